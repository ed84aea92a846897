/* SPDX-License-Identifier: Apache-2.0 */
/* The sink that keeps nothing passes the suite as far as it can be inspected. */
#include "sink/contract.h"

static int open_null(sl_sink *out, const struct sl_env *env, struct sl_err *err, void *ctx)
{
	(void)ctx;
	return sl_sink_open(out, "null:", &(struct sl_sink_opts){SL_SINK_OPTS_INIT, .env = env}, err);
}

int main(int argc, char **argv)
{
	const struct sink_fixture f = {.name = "null", .open = open_null};
	return sink_contract_run(&f, sink_contract_part(argc, argv, NULL));
}
