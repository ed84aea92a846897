/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration, signals and main loop of `sluice up` and `sluice server`. */
#include "serving.h"

#include "base/time.h"
#include "jobstore.h"
#include "server/http/http.h"
#include "stop.h"
#include "text.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

int serving_configure(struct cli *cli, const struct parsed *args, struct srv_config *config)
{
	int rc = configfile_read(cli, opt_str(args, "config"), true, config);

	/* No core dumps, and no other process of this user reads the tokens in this memory. */
	(void)prctl(PR_SET_DUMPABLE, 0);
	srv_http_wipe_json();
	if (rc != 0)
		return rc;
	return configfile_flags(cli, args, config);
}

/* ---- the log ---- */

/* The library makes all records; how many are printed can then change while it runs. */
static void on_log(const struct sl_log_record *record, void *ctx)
{
	struct serving *s = ctx;

	if ((int)record->level >= s->log_level)
		s->cli->env.log(record, s->cli->env.log_ctx);
}

/* --log-level and --quiet win over the file. */
static int level_of(const struct serving *s, const struct srv_config *config)
{
	if (s->cli->quiet || opt_given(s->args, "log-level") || config->server_log_level < 0)
		return (int)s->cli->log_level;
	return (int)config->server_log_level + 1;
}

/* ---- from the first request to the last ---- */

static int start_server(struct serving *s)
{
	struct sl_err err = SL_ERR_INIT;
	int failed = reload_install(), n_waits = 0;

	opts_warn_of_password(s->cli, s->args, "store", JOBSTORE_PASSWORD_PLACES);
	if (failed) {
		cli_say(s->cli, SL_LOG_ERROR, "signals: %s", strerror(failed));
		return EXIT_INTERNAL;
	}
	/* All records come to on_log, which prints those of the level that is set now. */
	s->log_level = level_of(s, &s->config);
	s->env = s->cli->env;
	s->env.log = on_log;
	s->env.log_ctx = s;
	s->env.log_level = SL_LOG_DEBUG;
	while (srv_server_new(&s->server, &s->config, &s->env, &err)) {
		srv_systemd_notify(&s->systemd, "EXTEND_TIMEOUT_USEC=90000000\nSTATUS=Waiting for the store");
		if (!jobstore_wait(s->cli, &err, &n_waits))
			return cli_fail(s->cli, &err, NULL);
	}
	if (srv_server_start(s->server, &s->systemd, &err))
		return cli_fail(s->cli, &err, NULL);
	return s->beside != NULL ? s->beside->start(s, s->beside_ctx) : EXIT_OK;
}

/* Until a signal. SIGHUP reads again what can change while it runs: tokens, certificates, the level of the log. The old
 * ones stay when the new are bad. */
static void serve_until_stopped(struct serving *s)
{
	struct pollfd fds[2] = {{.fd = stop_fd(), .events = POLLIN}, {.fd = reload_fd(), .events = POLLIN}};

	while (!stop_requested()) {
		struct srv_config fresh;
		struct sl_err err = SL_ERR_INIT;
		int bad;

		/* Each signal writes to its pipe: none is missed between the check and the poll. */
		(void)poll(fds, 2, -1);
		if (stop_requested() || !reload_requested())
			continue;
		srv_systemd_notify_reloading(&s->systemd);
		bad = serving_configure(s->cli, s->args, &fresh);
		if (!bad)
			s->log_level = level_of(s, &fresh);
		srv_config_fini(&fresh);
		if (!bad && srv_server_reload(s->server, &err))
			bad = cli_fail(s->cli, &err, NULL);
		if (bad)
			cli_line(s->cli, SL_LOG_WARN, "reload failed; the old settings stay in effect");
		else if (s->log_level <= SL_LOG_INFO)
			cli_line(s->cli, SL_LOG_INFO, "reloaded");
		srv_systemd_notify(&s->systemd, "READY=1\nSTATUS=Serving on %s", s->server->url);
	}
}

static int64_t left_ms(int64_t until)
{
	int64_t now = sl__clock_ms();

	return now < until ? until - now : 0;
}

int serving_run(struct serving *s)
{
	struct sl_err err = SL_ERR_INIT;
	int code, stopped = EXIT_OK, finished = EXIT_OK, server = EXIT_OK;

	srv_systemd_init(&s->systemd);
	code = start_server(s);
	if (!code) {
		out_printf(&s->cli->out, "%s\n", s->server->url);
		(void)out_flush(&s->cli->out);
		srv_systemd_notify(&s->systemd, "READY=1\nSTATUS=Serving on %s", s->server->url);
		serve_until_stopped(s);
	}

	/* Drain in this order: intake, workers, coordinator, sender. */
	if (s->server != NULL) {
		int64_t until = sl__clock_ms() + s->config.server_drain_timeout_ms;

		srv_systemd_notify(&s->systemd, "STOPPING=1\nSTATUS=Finishing open requests");
		srv_server_refuse(s->server);
		if (s->beside != NULL)
			stopped = s->beside->stop(s, left_ms(until), s->beside_ctx);
		if (srv_server_stop(s->server, left_ms(until), &err))
			server = cli_fail(s->cli, &err, NULL);
		if (s->beside != NULL)
			finished = s->beside->finish(s, left_ms(until), s->beside_ctx);
	}
	srv_server_free(s->server);
	srv_systemd_fini(&s->systemd);
	/* The first failure. */
	if (code || stopped)
		return code ? code : stopped;
	return server ? server : finished;
}
