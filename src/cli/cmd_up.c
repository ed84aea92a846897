/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice up and server. `server` is API, receiver of the log and dashboard on a store; any number of them may share one
 * PostgreSQL. `up` is everything on one machine: server, dashboard and a worker on an embedded store. The worker's
 * output goes through its log into the store that both use, not over HTTP to its own process. The server is notified
 * of it, so that those who follow a job see its lines as they come.
 */
#include "commands.h"
#include "handlers.h"
#include "serving.h"

#include <string.h>

#define DETACHED_TYPE "run" /* as 'sluice run --detach' makes them */

struct beside {
	struct handlers handlers;
	struct jobstore store; /* handles of the server */
	struct workerlog log;
	struct sl_env env;
};

/* The worker is of use when its last call to the store was answered and its event log accepts records. */
static enum srv_verdict check_worker(char *why, size_t size, void *ctx)
{
	struct beside *b = ctx;
	struct sl_worker_stats stats = {.struct_size = sizeof(stats)};

	sl_worker_get_stats(b->handlers.worker, &stats);
	if (sl_worker_log_error(b->handlers.worker, NULL)) {
		(void)snprintf(why, size, "the event log does not accept records");
		return SRV_NOT_READY;
	}
	if (stats.connected)
		return SRV_FINE;
	(void)snprintf(why, size, "the last call to the store failed");
	return SRV_NOT_READY;
}

/* The types of the settings, and the one of 'sluice run --detach' where jobs may name their command. Before anything is
 * started: a command that is not there is reported at once. 0, or an exit code after a line on stderr. */
static int add_handlers(struct beside *b, struct cli *cli, const struct srv_config *c)
{
	bool has_detached = false;
	int rc = 0;

	b->handlers = (struct handlers){
		.cli = cli,
		.env = &b->env,
		.shell = c->jobs_shell,
		.command_from_input = c->jobs_command_from_input,
		.run_as = c->jobs_run_as,
	};
	for (size_t i = 0; rc == 0 && i < c->jobs_types.n; i++) {
		const char *text = c->jobs_types.items[i];
		size_t n = strlen(DETACHED_TYPE);

		has_detached |= strncmp(text, DETACHED_TYPE, n) == 0 && (text[n] == '\0' || text[n] == '=');
		rc = handlers_add(&b->handlers, text);
	}
	if (rc == 0 && c->jobs_command_from_input && !has_detached)
		rc = handlers_add(&b->handlers, DETACHED_TYPE);
	return rc;
}

/* The worker next to the server, when requests are answered. */
static int start_worker(struct serving *s, void *ctx)
{
	const struct srv_core *core = &s->server->core;
	const struct srv_places *places = &s->server->places;
	const struct srv_config *c = &s->config;
	struct beside *b = ctx;
	struct workerlog_opts log = {
		.wal_dir = places->wal_dir,
		.archive_dir = places->archive_dir,
		.retention_days = c->wal_retention_days,
		.taken = srv_ingest_taken,
		.taken_ctx = core->ingest,
		.wal = {SL_WAL_OPTS_INIT, .flush_interval_ms = c->wal_flush_interval_ms, .linger_ms = c->wal_linger_ms,
			.segment_bytes = c->wal_segment_bytes, .max_pending_bytes = c->wal_max_pending_bytes,
			.archive_on_complete = c->wal_archive_on_complete ? SL_ON : SL_OFF},
	};
	struct handlers_opts opts = {
		.slots = c->jobs_slots,
		.lease_ms = c->jobs_lease_ms,
		.renew_interval_ms = c->jobs_renew_interval_ms,
		.timeout_ms = c->jobs_timeout_ms,
		.max_attempts = c->jobs_max_attempts,
		.initial_delay_ms = c->jobs_initial_delay_ms,
		.max_delay_ms = c->jobs_max_delay_ms,
		.poll_interval_ms = c->jobs_poll_interval_ms,
		.kill_grace_ms = c->jobs_kill_grace_ms,
		.pass_env = (const char *const *)c->jobs_pass_env.items,
		.n_pass_env = c->jobs_pass_env.n,
	};
	struct sl_err err = SL_ERR_INIT;
	int rc;

	b->env = *core->env;
	b->store = (struct jobstore){.store = *core->store, .notify = *core->notify, .client = core->jobs};
	rc = workerlog_open(s->cli, &b->env, &b->store, &log, &b->log);
	if (rc != 0 || b->handlers.n == 0)
		return rc; /* without a type there is nothing to run */
	rc = handlers_start(&b->handlers, &opts, &b->store, &b->log);
	if (rc == 0 && srv_health_add_check(s->server->health, "worker", check_worker, b, &err))
		rc = cli_fail(s->cli, &err, NULL);
	return rc;
}

static int stop_worker(struct serving *s, int64_t deadline_ms, void *ctx)
{
	struct beside *b = ctx;

	(void)s;
	return handlers_stop(&b->handlers, deadline_ms);
}

/* The server takes nothing more; what is left in the log goes into the store after it. */
static int finish_worker(struct serving *s, int64_t deadline_ms, void *ctx)
{
	struct beside *b = ctx;

	(void)s;
	handlers_fini(&b->handlers);
	return b->log.cli != NULL ? workerlog_close(&b->log, deadline_ms) : EXIT_OK;
}

static const struct serving_beside worker = {.start = start_worker, .stop = stop_worker, .finish = finish_worker};

static int up_run(struct cli *cli, const struct parsed *args)
{
	struct beside b = {.handlers = {.n = 0}};
	struct serving s = {.cli = cli, .args = args, .beside = &worker, .beside_ctx = &b};
	int code;

	handlers_hide_secrets();
	code = serving_configure(cli, args, &s.config);
	if (!code)
		code = add_handlers(&b, cli, &s.config);
	if (!code)
		code = serving_run(&s);
	handlers_fini(&b.handlers);
	srv_config_fini(&s.config);
	return code;
}

static const struct opt up_opts[] = {
	SERVING_OPTS_OWN,
	SRV_SETTINGS_SHARED(SERVING_OPT) SRV_SETTINGS_UP(SERVING_OPT){.name = NULL},
};

const struct command cmd_up = {
	.name = "up",
	.operands = "",
	.summary = "start server, dashboard and a worker on an embedded store",
	.opts = up_opts,
	.description = "Prints the address of the dashboard once it answers, and serves until SIGTERM or SIGINT. The "
		       "worker runs the commands that --type names and, with --command-from-input, what 'sluice run "
		       "--detach' enqueues. Without a token, the server serves only its own user and root. A signal "
		       "drains: the server accepts nothing new, running commands may finish, and their output is "
		       "written to the store. SIGHUP reloads tokens, certificates and the log level.",
	.example = "sluice up\n"
		   "sluice up --data ./here --listen 127.0.0.1:8080 --type mail='./send-mail --fast' --slots 8",
	.run = up_run,
};

/* ---- server ---- */

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
	.description = "Prints the address and serves until SIGTERM or SIGINT. These drain: the server accepts nothing "
		       "new, and open requests may finish. Any number of servers may share one PostgreSQL database. "
		       "SIGHUP reloads tokens and certificates.",
	.example = "sluice server --store postgres://db.example/jobs --listen 127.0.0.1:7070\n"
		   "sluice server --config /etc/sluice/sluice.yaml",
	.run = server_run,
};
