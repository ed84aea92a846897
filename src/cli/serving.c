/* SPDX-License-Identifier: Apache-2.0 */
#include "serving.h"

#include "stop.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void serving_problem(size_t line, size_t column, const char *text, void *ctx)
{
	struct serving_problems *p = ctx;

	p->n++;
	if (line)
		cli_say(p->cli, SL_LOG_ERROR, "%s:%zu:%zu: %s", p->path, line, column, text);
	else
		cli_say(p->cli, SL_LOG_ERROR, "%s: %s", p->path, text);
}

static int from_file(struct cli *cli, const char *path, struct srv_config *config)
{
	struct serving_problems problems = {.cli = cli, .path = path};
	struct sl_err err = SL_ERR_INIT;

	if (!path || srv_config_file(config, path, serving_problem, &problems, &err) == 0)
		return 0;
	return problems.n ? sl_err_exit_code(SL_ECONFIG) : cli_fail(cli, &err, path);
}

static int is_flag_of(const struct parsed *args, const char *flag)
{
	for (const struct opt *o = args->command->opts; o->name; o++) {
		if (strcmp(o->name, flag) == 0)
			return 1;
	}
	return 0;
}

static int from_flags(const struct parsed *args, struct srv_config *config, struct sl_err *err)
{
	int rc = 0;

	for (const struct srv_setting *s = srv_settings; !rc && s->section; s++) {
		if (!s->flag || !is_flag_of(args, s->flag) || !opt_given(args, s->flag))
			continue;
		srv_config_clear(config, s);
		if (s->kind != SRV_LIST)
			rc = srv_config_set(config, s, s->kind == SRV_SWITCH ? "true" : opt_str(args, s->flag), err);
		for (int i = 0; s->kind == SRV_LIST && !rc && opt_all(args, s->flag, i); i++)
			rc = srv_config_set(config, s, opt_all(args, s->flag, i), err);
	}
	for (int i = 0; !rc && opt_all(args, "set", i); i++)
		rc = srv_config_assign(config, opt_all(args, "set", i), err);
	return rc;
}

int serving_configure(struct cli *cli, const struct parsed *args, struct srv_config *config)
{
	struct sl_err err = SL_ERR_INIT;
	int rc = srv_config_init(config, &err);

	if (rc)
		return cli_fail(cli, &err, NULL);
	rc = from_file(cli, opt_str(args, "config"), config);
	if (rc)
		return rc;
	if (srv_config_environment(config, environ, &err) || from_flags(args, config, &err) ||
	    srv_config_check(config, &err))
		return cli_fail(cli, &err, NULL);
	return 0;
}

static void say_where(struct serving *s)
{
	out_printf(&s->cli->out, "%s\n", srv_server_url(s->server));
	(void)out_flush(&s->cli->out);
}

static void wait_for_stop(void)
{
	struct pollfd stop = {.fd = stop_fd(), .events = POLLIN};

	while (!stop_requested())
		(void)poll(&stop, 1, -1);
}

int serving_run(struct serving *s)
{
	struct sl_err err = SL_ERR_INIT;
	int code = EXIT_OK;

	if (srv_server_new(&s->server, &s->config, &s->cli->env, &err) || srv_server_start(s->server, &err)) {
		code = cli_fail(s->cli, &err, NULL);
	} else {
		say_where(s);
		wait_for_stop();
		srv_server_refuse(s->server);
		if (srv_server_stop(s->server, s->config.server_drain_timeout_ms, &err))
			code = cli_fail(s->cli, &err, NULL);
	}
	srv_server_free(s->server);
	return code;
}
