/* SPDX-License-Identifier: Apache-2.0 */
/* sluice up: everything on one machine: server, dashboard and a worker on an embedded store. */
#include "commands.h"
#include "serving.h"

static int run(struct cli *cli, const struct parsed *args)
{
	struct serving s = {.cli = cli, .args = args};
	int code = serving_configure(cli, args, &s.config);

	code = code ? code : serving_run(&s);
	srv_config_fini(&s.config);
	return code;
}

static const struct opt opts_table[] = {
	SERVING_OPTS_OWN SRV_SETTINGS_SHARED(SERVING_OPT) SRV_SETTINGS_UP(SERVING_OPT){.name = NULL},
};

const struct command cmd_up = {
	.name = "up",
	.operands = "",
	.summary = "start server, dashboard and a worker on an embedded store",
	.opts = opts_table,
	.description = "Prints the address to open in a browser, and serves until SIGTERM or SIGINT.",
	.example = "sluice up\nsluice up --data ./here --listen 127.0.0.1:8080 --type mail=./send-mail",
	.run = run,
};
