/* SPDX-License-Identifier: Apache-2.0 */
/* Settings from a file and the environment, and what is wrong with a file. See configfile.h. */
#include "configfile.h"

#include <string.h>
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

int configfile_flags(struct cli *cli, const struct parsed *args, struct srv_config *config)
{
	struct sl_err err = SL_ERR_INIT;
	int rc = 0;

	for (const struct srv_setting *s = srv_settings; rc == 0 && s->section != NULL; s++) {
		if (s->flag == NULL || !opts_has(args, s->flag) || !opt_given(args, s->flag))
			continue;
		srv_config_clear(config, s);
		/* Elsewhere an empty text takes a value back; here it would run commands as the worker's own user. */
		if (strcmp(s->flag, "run-as") == 0 && !*opt_str(args, s->flag))
			return cli_usage(cli, "--run-as: missing user name");
		if (s->kind != SRV_LIST)
			rc = srv_config_set(config, s, s->kind == SRV_SWITCH ? "true" : opt_str(args, s->flag), &err);
		for (int i = 0; s->kind == SRV_LIST && rc == 0 && opt_all(args, s->flag, i) != NULL; i++)
			rc = srv_config_set(config, s, opt_all(args, s->flag, i), &err);
	}
	for (int i = 0; rc == 0 && opt_all(args, "set", i) != NULL; i++)
		rc = srv_config_assign(config, opt_all(args, "set", i), &err);
	if (rc == 0)
		rc = srv_config_check(config, &err);
	if (rc != 0)
		return cli_fail(cli, &err, NULL);
	return 0;
}
