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

/* The worker next to the server, when requests are answered. */
static int start_worker(struct serving *s, void *ctx)
{
	const struct srv_core *core = &s->server->core;
	const struct srv_places *places = &s->server->places;
	struct beside *b = ctx;
	struct workerlog_opts log = {
		.taken = srv_ingest_taken,
		.taken_ctx = core->ingest,
		.wal = {SL_WAL_OPTS_INIT},
	};
	struct sl_err err = SL_ERR_INIT;
	int rc;

	workerlog_set_opts(&log, &s->config);
	log.wal_dir = places->wal_dir;
	log.archive_dir = places->archive_dir;
	b->env = *core->env;
	b->store = (struct jobstore){.store = *core->store, .notify = *core->notify, .client = core->jobs};
	rc = workerlog_open(s->cli, &b->env, &b->store, &log, &b->log);
	if (rc != 0 || b->handlers.n == 0)
		return rc; /* without a type there is nothing to run */
	rc = handlers_start(&b->handlers, &b->store, &b->log);
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
		code = handlers_init(&b.handlers, cli, &b.env, &s.config, true);
	if (!code)
		code = serving_run(&s);
	handlers_fini(&b.handlers);
	srv_config_fini(&s.config);
	return code;
}

static const struct opt up_opts[] = {
	CONFIG_OPTS_OWN,
	SRV_SETTINGS_SHARED(CONFIG_OPT) SRV_SETTINGS_WORKER(CONFIG_OPT) SRV_SETTINGS_UP(CONFIG_OPT){.name = NULL},
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

/* A file may be shared with workers; what a flag sets is meant for this server. */
static int check_server_types(struct cli *cli, const struct srv_config *c)
{
	for (size_t i = 0; i < c->types.n; i++) {
		const struct srv_type *type = &c->types.items[i];

		for (int k = 0; k < SRV_N_TYPE_SETTINGS; k++)
			if (k != SRV_TYPE_priority && srv_type_has(type, (enum srv_type_index)k) &&
			    !type->places[k].line)
				return cli_usage(cli,
						 "--set types.%s.%s: a server runs no jobs and uses only the priority "
						 "of a type; set it for 'sluice worker' or 'sluice up'",
						 type->name, srv_type_settings[k].name);
	}
	return 0;
}

static int server_run(struct cli *cli, const struct parsed *args)
{
	struct serving s = {.cli = cli, .args = args};
	int code = serving_configure(cli, args, &s.config);

	if (!code)
		code = check_server_types(cli, &s.config);
	if (!code)
		code = serving_run(&s);
	srv_config_fini(&s.config);
	return code;
}

static const struct opt server_opts[] = {
	CONFIG_OPTS_OWN,
	SRV_SETTINGS_SHARED(CONFIG_OPT){.name = NULL},
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
