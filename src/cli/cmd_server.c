/* SPDX-License-Identifier: Apache-2.0 */
/* sluice server: API, receiver of the log and dashboard on a store; any number of them on one PostgreSQL. */
#include "commands.h"
#include "serving.h"

static int server_run(struct cli *cli, const struct parsed *args)
{
	struct serving s = {.cli = cli, .args = args};
	int code = serving_configure(cli, args, &s.config);

	if (!code)
		code = serving_run(&s);
	srv_config_fini(&s.config);
	return code;
}

static const struct opt server_opts[] = {
	SERVING_OPTS_OWN,
	SRV_SETTINGS_SHARED(SERVING_OPT){.name = NULL},
};

const struct command cmd_server = {
	.name = "server",
	.operands = "",
	.summary = "serve the API, the log's receiver and the dashboard on a store",
	.opts = server_opts,
	.description = "Prints the address and serves until SIGTERM or SIGINT, which drain: nothing more is taken in, "
		       "what is open may finish. Any number of servers may share one PostgreSQL. SIGHUP reads tokens "
		       "and certificates again.",
	.example = "sluice server --store postgres://db.example/jobs --listen 127.0.0.1:7070",
	.run = server_run,
};
