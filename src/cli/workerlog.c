/* SPDX-License-Identifier: Apache-2.0 */
/* The logs of worker processes: this one, and orphans of earlier ones. */
#include "workerlog.h"
#include "jobs/store/ops.h"
#include "server/config/config.h"

#include "base/thread.h"
#include "base/time.h"
#include "text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#define SWEEP_EVERY_MS 60000
#define SWEEP_DEADLINE_MS 10000
#define LAST_SWEEP_MS 5000
#define SWEEP_AGAIN_MS 100
#define FIRST_CONTACT_MS 3000
#define CLEAN_EVERY_MS 86400000
#define RETENTION_DAYS 30

#define BATCH_RECORDS 500 /* within batch_bytes: a transaction or a request costs more than its rows */

#define RUN_KILLED "the 'sluice run' of this command was killed"

static struct sl_wal_opts wal_opts(struct workerlog *log)
{
	struct sl_wal_opts opts = log->opts.wal;

	if (opts.batch_records == 0)
		opts.batch_records = BATCH_RECORDS;
	opts.env = log->env;
	opts.wal_dir = log->dir;
	opts.archive_dir = log->archive;
	return opts;
}

/* ---- couriers ---- */

static int courier_new(const struct workerlog *log, struct courier *out, struct sl_err *err)
{
	struct sl_event_http_opts opts = {SL_EVENT_HTTP_OPTS_INIT,      .env = log->env,
					  .url = log->opts.server,      .token_file = log->opts.token_file,
					  .ca_file = log->opts.ca_file, .target = log->target};

	*out = (struct courier){.store = NULL};
	if (log->opts.server != NULL)
		return sl_event_http_sender_new(&out->http, &opts, err);
	int rc = sl_event_sender_new(&out->store, &log->store->store, log->env, err);
	if (rc == 0 && log->opts.taken != NULL)
		sl_event_sender_on_taken(out->store, log->opts.taken, log->opts.taken_ctx);
	return rc;
}

static void courier_free(struct courier *c)
{
	sl_event_sender_free(c->store);
	sl_event_http_sender_free(c->http);
	*c = (struct courier){.store = NULL};
}

static const struct sl_wal_sender *courier_ops(const struct courier *c)
{
	return c->http != NULL ? sl_event_http_sender_ops() : sl_event_sender_ops();
}

static void *courier_ctx(const struct courier *c)
{
	return c->http != NULL ? (void *)c->http : (void *)c->store;
}

/* ---- what others left behind ---- */

static int note_id(const struct sl_job *job, void *ctx)
{
	*(uint64_t *)ctx = job->id;
	return 0;
}

/* Called by the sweep with each log whose process is dead, before it is sent. */
static int on_orphan(sl_wal *w, const char *path, struct sl_err *err, void *ctx)
{
	static const char text[] = RUN_KILLED;
	struct workerlog *log = ctx;
	const char *name = strrchr(path, '/');
	char suffix[64], type[80];
	struct sl_job_filter filter = {SL_JOB_FILTER_INIT, .key = type, .limit = 1, .without_data = true};
	struct sl_event event = {.type = SL_EVENT_ERROR, .data = text, .len = strlen(text)};
	struct sl_env env = *log->env;
	uint64_t id = 0, sequence;
	void *record = NULL;
	size_t n = 0;
	int rc = sl_exec_recover_orphan(w, path, err, &env);

	name = name != NULL ? name + 1 : path;
	if (rc != 0 || sscanf(name, WORKERLOG_RUN_STREAM "%60[0-9a-f-]", suffix) != 1)
		return rc;

	/* No worker would ever finish the job of a 'sluice run' that is dead: fail it. Its chain's key is its type. */
	(void)snprintf(type, sizeof(type), WORKERLOG_RUN_TYPE "%.60s", suffix);
	rc = sl_jobs_list(log->store->client, &filter, note_id, &id, err);
	if (rc != 0 || !id)
		return rc;
	rc = sl_jobs_fail(log->store->client, NULL, id, RUN_KILLED, err);
	if (rc != 0)
		return rc == SL_EEXIST ? 0 : rc; /* EEXIST: it was killed after the end of its job */

	/* The log says why, in case a person asks where the rest of the output is. */
	event.job_id = id;
	event.ts_ms = sl__clock_real_ms();
	rc = sl_event_encode(&event, log->env, &record, &n, err);
	if (rc == 0)
		rc = sl_wal_append(w, record, n, &sequence, err);
	sl_event_free(log->env, record);
	return rc;
}

static void sweep_once(struct workerlog *log, int64_t deadline_ms)
{
	struct sl_wal_opts opts = wal_opts(log);
	struct sl_wal_sweep_result result = {.struct_size = sizeof(result)};
	struct courier courier;
	struct sl_err err = SL_ERR_INIT;
	int rc = courier_new(log, &courier, &err);

	/* One whose log cannot be made, say on a full disk, does not keep the others. */
	if (rc == 0 && sl_exec_find_lost(&opts, NULL, &err))
		cli_say(log->cli, SL_LOG_WARN, "output left behind by earlier workers: %s", err.msg);
	/* An orphan gets no more records: it is sent, archived and gone. */
	opts.linger_ms = 0; /* nothing more comes */
	opts.on_orphan = on_orphan;
	opts.on_orphan_ctx = log;
	if (rc == 0)
		rc = sl_wal_sweep(&opts, courier_ops(&courier), courier_ctx(&courier), deadline_ms, &result, &err);
	if (rc != 0)
		cli_say(log->cli, SL_LOG_WARN, "logs left behind by earlier workers: %s", err.msg);
	courier_free(&courier);
}

static void *sweep(void *arg)
{
	struct workerlog *log = arg;
	int32_t days = log->opts.retention_days ? (int32_t)log->opts.retention_days : RETENTION_DAYS;
	struct pollfd wake = {.fd = log->wake[0], .events = POLLIN};
	int64_t clean_at_ms = sl__clock_ms(); /* monotonic: a clock that is set back delays nothing */
	struct sl_err err = SL_ERR_INIT;
	char what;

	do {
		sweep_once(log, SWEEP_DEADLINE_MS);
		if (sl__clock_ms() >= clean_at_ms) {
			if (sl_wal_cleanup(log->archive, days, false, NULL, NULL, log->env, &err))
				cli_say(log->cli, SL_LOG_WARN, "clean-up of archives: %s", err.msg);
			if (strcmp(log->archive, log->dir) != 0 &&
			    sl_wal_cleanup_quarantine(log->dir, NULL, days, log->env, &err))
				cli_say(log->cli, SL_LOG_WARN, "clean-up of %s: %s", log->dir, err.msg);
			clean_at_ms = sl__clock_ms() + CLEAN_EVERY_MS;
		}
		(void)poll(&wake, 1, SWEEP_EVERY_MS);
	} while (!(wake.revents & (POLLIN | POLLHUP)) || read(log->wake[0], &what, 1) == 1);
	return NULL;
}

void workerlog_nudge(struct workerlog *log)
{
	if (log->has_sweeper)
		(void)!write(log->wake[1], "n", 1);
}

/* ---- our own ---- */

int workerlog_read_opts(struct cli *cli, const struct parsed *args, struct workerlog_opts *out)
{
	*out = (struct workerlog_opts){WORKERLOG_OPTS_INIT,
				       .wal_dir = opts_has(args, "wal") ? opt_str(args, "wal") : NULL,
				       .server = opt_str(args, "server"), .token_file = opt_str(args, "token-file"),
				       .ca_file = opt_str(args, "ca-file")};
	if (out->server == NULL && (out->token_file != NULL || out->ca_file != NULL))
		return cli_usage(cli, "--%s is for a --server", out->token_file != NULL ? "token-file" : "ca-file");
	return 0;
}

void workerlog_set_opts(struct workerlog_opts *o, const struct srv_config *c)
{
	o->wal_dir = c->wal_wal_dir;
	o->archive_dir = c->wal_archive_dir;
	o->retention_days = c->wal_retention_days;
	o->wal.key_file = c->wal_key_file;
	o->wal.on_corruption = (enum sl_wal_on_corruption)(c->wal_on_corruption + SL_WAL_SALVAGE); /* in this order */
	o->wal.retry_backoff = (struct sl_retry_policy){.first_ms = c->wal_retry_delay_ms,
							.cap_ms = c->wal_retry_max_delay_ms,
							.multiplier = (double)c->wal_retry_multiplier / 1000};
	o->wal.flush_interval_ms = c->wal_flush_interval_ms;
	o->wal.linger_ms = c->wal_linger_ms;
	o->wal.segment_bytes = c->wal_segment_bytes;
	o->wal.max_pending_bytes = c->wal_max_pending_bytes;
	o->wal.archive_on_complete = c->wal_archive_on_complete ? SL_ON : SL_OFF;
}

/* A publish without events shows whether the server accepts our token. Later it may be renewed, and is waited for; at
 * the first contact it is a mistake that a person must fix before anything runs. A server that does not answer says
 * nothing. 0, or an exit code after a line on stderr. */
static int check_token(const struct workerlog *log)
{
	struct sl_event_http_opts opts = {SL_EVENT_HTTP_OPTS_INIT,        .env = log->env,
					  .url = log->opts.server,        .token_file = log->opts.token_file,
					  .ca_file = log->opts.ca_file,   .target = log->target,
					  .timeout_ms = FIRST_CONTACT_MS, .connect_timeout_ms = FIRST_CONTACT_MS};
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	struct sl_wal_batch batch = {.stream = log->id};
	struct sl_wal_reply reply = {.mark = 0};
	struct sl_err err = SL_ERR_INIT;
	sl_event_http_sender *sender = NULL;
	int rc;

	if (sl_wal_get_stats(log->wal, &stats, &err) || sl_event_http_sender_new(&sender, &opts, &err))
		return cli_fail(log->cli, &err, log->opts.server);
	batch.incarnation = stats.sent_incarnation;
	rc = sl_event_http_sender_ops()->send(&batch, &reply, &err, sender);
	sl_event_http_sender_free(sender);
	if (rc != SL_EACCES)
		return 0;
	err.code = SL_ECONFIG; /* not a file's permissions */
	(void)sl_err_wrap(&err, SL_ECONFIG, "the server refused the token");
	return cli_fail(log->cli, &err, NULL);
}

static int start_sending(struct workerlog *log)
{
	struct sl_err err = SL_ERR_INIT;
	int rc = log->opts.server != NULL ? check_token(log) : 0;

	if (rc != 0)
		return rc;
	if (courier_new(log, &log->courier, &err) ||
	    sl_wal_sender_start(log->wal, courier_ops(&log->courier), courier_ctx(&log->courier), &err))
		return cli_fail(log->cli, &err, log->opts.server != NULL ? log->opts.server : log->dir);
	log->sending = true;
	return 0;
}

/* The paths of the log: <wal_dir>/<target>/<id>.wal, its spool next to it, and the folder of archives. */
static int name_log(struct workerlog *log)
{
	const char *base = log->opts.wal_dir, *archive = log->opts.archive_dir, *id = log->opts.id;
	const char *home = getenv("HOME");
	uint64_t random = 0;
	int dir, to, spool;

	if (base == NULL && (home == NULL || !*home))
		return cli_usage(log->cli, "HOME is not set; give --wal=DIR");
	dir = snprintf(log->dir, sizeof(log->dir), "%s%s/%s", base != NULL ? base : home,
		       base != NULL ? "" : "/.sluice/wal", log->target);
	if (archive != NULL)
		to = snprintf(log->archive, sizeof(log->archive), "%s", archive);
	else
		to = snprintf(log->archive, sizeof(log->archive), "%s%s", base != NULL ? base : home,
			      base != NULL ? "/archive" : "/.sluice/archive");
	/* Two workers never share a log, also when they start in the same moment. */
	if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
		random = (uint64_t)getpid();
	if (id != NULL)
		(void)snprintf(log->id, sizeof(log->id), "%s", id);
	else
		(void)snprintf(log->id, sizeof(log->id), "worker-%016" PRIx64, random);
	spool = snprintf(log->spool, sizeof(log->spool), "%s/%s.spool", log->dir, log->id);
	if (dir < PATH_MAX && to < PATH_MAX && spool < PATH_MAX)
		return 0;
	cli_say(log->cli, SL_LOG_ERROR, "%.100s…: the path is too long", log->dir);
	return EXIT_USAGE_ERROR;
}

int workerlog_open(struct cli *cli, const struct sl_env *env, struct jobstore *store, const struct workerlog_opts *opts,
		   struct workerlog *out)
{
	const sl_store *s = &store->store;
	struct sl_err err = SL_ERR_INIT;
	struct sl_wal_opts wal;
	int rc;

	memset(out, 0, sizeof(*out));
	out->cli = cli;
	out->env = env != NULL ? env : &cli->env;
	out->store = store;
	out->wake[0] = out->wake[1] = -1;
	out->opts = *opts;
	if (s->ops->target_id(s->ctx, out->target, &err))
		return cli_fail(cli, &err, "the store");
	rc = name_log(out);
	if (rc != 0)
		return rc;
	wal = wal_opts(out);
	if (sl_wal_open(&out->wal, out->id, &wal, &err))
		return cli_fail(cli, &err, out->dir);
	rc = start_sending(out);
	if (rc != 0)
		return rc;
	/* The sweeper. */
	rc = pipe2(out->wake, O_CLOEXEC) != 0 ? -errno : sl__thread_start(&out->sweeper, "log-sweeper", sweep, out);
	if (rc != 0) {
		cli_say(cli, SL_LOG_ERROR, "cannot start a thread: %s", strerror(-rc));
		return EXIT_INTERNAL;
	}
	(void)fcntl(out->wake[1], F_SETFL, O_NONBLOCK);
	out->has_sweeper = true;
	return 0;
}

static void stop_sweeper(struct workerlog *log)
{
	if (log->wake[1] >= 0)
		(void)close(log->wake[1]);
	if (log->has_sweeper)
		(void)pthread_join(log->sweeper, NULL);
	if (log->wake[0] >= 0)
		(void)close(log->wake[0]);
	log->wake[0] = log->wake[1] = -1;
	log->has_sweeper = false;
}

static int report_left(const struct workerlog *log, const char *why)
{
	cli_say(log->cli, SL_LOG_ERROR, "events stay in %s/%s.wal for the next worker: %s", log->dir, log->id, why);
	return EXIT_INTERRUPTED;
}

/* Does another process have the log? */
static bool is_held(const char *path)
{
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	bool held = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;

	if (fd >= 0)
		(void)close(fd);
	return held;
}

/* Output that the log did not take is in the spools. The log must not be archived without it; once it is closed it is
 * an orphan like any other, and a sweep brings in what is missing. If another process sweeps just now, the log is
 * safe: it is delivered there, or left by a process that died, and then it is ours again. */
static int leave_to_sweep(struct workerlog *log, int64_t deadline_ms)
{
	int64_t until = sl__clock_ms() + deadline_ms, left;
	struct sl_err err = SL_ERR_INIT;
	char path[PATH_MAX + sizeof(log->id) + sizeof("/.wal")];
	bool held;

	(void)!sl_wal_sender_stop(log->wal, 0, &err);
	(void)sl_wal_close(log->wal, &err);
	log->wal = NULL;
	(void)snprintf(path, sizeof(path), "%s/%s.wal", log->dir, log->id);
	do {
		held = is_held(path);
		left = until - sl__clock_ms();
		sweep_once(log, left > 0 ? left : 0);
		if (access(path, F_OK))
			return EXIT_OK;
		held |= is_held(path);
		if (held)
			(void)poll(NULL, 0, SWEEP_AGAIN_MS);
	} while (held && sl__clock_ms() < until);
	return report_left(log, held ? "another process holds it" : "not all output was appended or sent");
}

/* Deliver everything and archive the log. */
static int finish_log(struct workerlog *log, int64_t deadline_ms)
{
	struct sl_err err = SL_ERR_INIT;
	DIR *dir = opendir(log->spool);
	bool spooled = false;

	for (struct dirent *e; dir != NULL && !spooled && (e = readdir(dir)) != NULL;) {
		const char *dot = strrchr(e->d_name, '.');

		spooled = dot != NULL && dot != e->d_name && strcmp(dot, ".spool") == 0;
	}
	if (dir != NULL)
		(void)closedir(dir);
	if (spooled)
		return leave_to_sweep(log, deadline_ms);
	if (sl_wal_complete(log->wal, deadline_ms, &err))
		return report_left(log, err.msg);
	/* The store is there: one last sweep for those who died since the last one. */
	sweep_once(log, deadline_ms < LAST_SWEEP_MS ? deadline_ms : LAST_SWEEP_MS);
	return EXIT_OK;
}

int workerlog_close(struct workerlog *log, int64_t deadline_ms)
{
	struct sl_err err = SL_ERR_INIT;
	int rc;

	stop_sweeper(log);
	rc = log->sending ? finish_log(log, deadline_ms) : EXIT_OK;
	if (log->wal != NULL && sl_wal_close(log->wal, &err) && rc == 0)
		rc = cli_fail(log->cli, &err, log->dir);
	courier_free(&log->courier);
	if (log->spool[0])
		(void)rmdir(log->spool); /* empty unless something is left in it */
	memset(log, 0, sizeof(*log));
	log->wake[0] = log->wake[1] = -1;
	return rc;
}
