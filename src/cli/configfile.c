/* SPDX-License-Identifier: Apache-2.0 */
/* Settings from a file and the environment, and what is wrong with a file. See configfile.h. */
#include "configfile.h"

#include <unistd.h>

void configfile_problem(size_t line, size_t column, const char *text, void *ctx)
{
	struct configfile_problems *p = ctx;

	p->n++;
	if (line)
		cli_say(p->cli, SL_LOG_ERROR, "%s:%zu:%zu: %s", p->path, line, column, text);
	else
		cli_say(p->cli, SL_LOG_ERROR, "%s: %s", p->path, text);
}

int configfile_read(struct cli *cli, const char *path, bool environment, struct srv_config *config)
{
	struct configfile_problems problems = {.cli = cli, .path = path};
	struct sl_err err = SL_ERR_INIT;

	if (srv_config_init(config, &err))
		return cli_fail(cli, &err, NULL);
	if (path != NULL && srv_config_file(config, path, configfile_problem, &problems, &err))
		return problems.n ? sl_err_exit_code(SL_ECONFIG) : cli_fail(cli, &err, path);
	if (environment && srv_config_environment(config, environ, &err))
		return cli_fail(cli, &err, NULL);
	return 0;
}
