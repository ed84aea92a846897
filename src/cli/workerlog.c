/* SPDX-License-Identifier: Apache-2.0 */
#include "workerlog.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define SWEEP_EVERY_MS 60000
#define SWEEP_DEADLINE_MS 30000

static int too_long(struct cli *cli, const char *path)
{
	cli_say(cli, SL_LOG_ERROR, "%.100s…: the path is too long", path);
	return EXIT_USAGE_ERROR;
}

/* <base>/<target>, where base is --wal or ~/.sluice/wal; archives beside it. */
static int name_folders(struct workerlog *log, const struct parsed *args, const char *target)
{
	const char *base = opt_str(args, "wal");
	const char *home = getenv("HOME");
	int n, m;

	if (base) {
		n = snprintf(log->dir, sizeof(log->dir), "%s/%s", base, target);
		m = snprintf(log->archive, sizeof(log->archive), "%s/archive", base);
	} else if (home && *home) {
		n = snprintf(log->dir, sizeof(log->dir), "%s/.sluice/wal/%s", home, target);
		m = snprintf(log->archive, sizeof(log->archive), "%s/.sluice/archive", home);
	} else {
		return cli_usage(log->cli, "HOME is not set; give --wal=DIR");
	}
	return n >= PATH_MAX || m >= PATH_MAX ? too_long(log->cli, log->dir) : 0;
}

static int name_stream(struct workerlog *log)
{
	uint64_t random = 0;
	int n;

	if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
		random = (uint64_t)getpid();
	(void)snprintf(log->id, sizeof(log->id), "worker-%016" PRIx64, random);
	n = snprintf(log->spool, sizeof(log->spool), "%s/%s.spool", log->dir, log->id);
	return n >= PATH_MAX ? too_long(log->cli, log->dir) : 0;
}

static struct sl_wal_opts wal_opts(struct workerlog *log)
{
	return (struct sl_wal_opts){SL_WAL_OPTS_INIT, .env = &log->cli->env, .wal_dir = log->dir,
				    .archive_dir = log->archive};
}

static void sweep_once(struct workerlog *log)
{
	struct sl_wal_opts opts = wal_opts(log);
	struct sl_wal_sweep_result result = {.struct_size = sizeof(result)};
	struct sl_event_sender *sender = NULL;
	struct sl_err err = SL_ERR_INIT;
	int rc = sl_event_sender_new(&sender, log->store, &log->cli->env, &err);

	if (!rc)
		rc = sl_wal_sweep(&opts, sl_event_sender_ops(), sender, SWEEP_DEADLINE_MS, &result, &err);
	if (rc)
		cli_say(log->cli, SL_LOG_WARN, "logs left behind by earlier workers: %s", err.msg);
	sl_event_sender_free(sender);
	rc = sl_wal_cleanup(log->archive, 30, 0, NULL, NULL, &log->cli->env, &err);
	if (rc)
		cli_say(log->cli, SL_LOG_WARN, "clean-up of archives: %s", err.msg);
}

static void *sweep(void *arg)
{
	struct workerlog *log = arg;
	struct pollfd wake = {.fd = log->wake[0], .events = POLLIN};

	do
		sweep_once(log);
	while (poll(&wake, 1, SWEEP_EVERY_MS) == 0);
	return NULL;
}

static int start_sweeper(struct workerlog *log)
{
	int rc = pipe2(log->wake, O_CLOEXEC) ? errno : pthread_create(&log->sweeper, NULL, sweep, log);

	if (rc) {
		cli_say(log->cli, SL_LOG_ERROR, "cannot start a thread: %s", strerror(rc));
		return EXIT_INTERRUPTED;
	}
	log->has_sweeper = 1;
	return 0;
}

int workerlog_open(struct cli *cli, const struct parsed *args, const sl_store *store, struct workerlog *out)
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_wal_opts opts;
	char target[33];
	int rc;

	memset(out, 0, sizeof(*out));
	out->cli = cli;
	out->store = store;
	out->wake[0] = out->wake[1] = -1;
	if (store->ops->target_id(store->ctx, target, &err))
		return jobstore_fail(cli, args, &err);
	rc = name_folders(out, args, target);
	rc = rc ? rc : name_stream(out);
	if (rc)
		return rc;
	opts = wal_opts(out);
	if (sl_wal_open(&out->wal, out->id, &opts, &err))
		return cli_fail(cli, &err, out->dir);
	if (sl_event_sender_new(&out->sender, store, &cli->env, &err) ||
	    sl_wal_start(out->wal, sl_event_sender_ops(), out->sender, &err))
		return cli_fail(cli, &err, out->dir);
	out->sending = 1;
	return start_sweeper(out);
}

static void stop_sweeper(struct workerlog *log)
{
	if (log->has_sweeper) {
		(void)!write(log->wake[1], "", 1);
		(void)pthread_join(log->sweeper, NULL);
	}
	for (int i = 0; i < 2; i++) {
		if (log->wake[i] >= 0)
			(void)close(log->wake[i]);
	}
}

int workerlog_close(struct workerlog *log, int64_t deadline_ms)
{
	struct sl_err err = SL_ERR_INIT;
	int rc = EXIT_OK;

	stop_sweeper(log);
	if (log->sending && sl_wal_complete(log->wal, deadline_ms, &err)) {
		cli_say(log->cli, SL_LOG_ERROR, "events stay in %s/%s.wal for the next worker: %s", log->dir, log->id,
			err.msg);
		rc = EXIT_INTERRUPTED;
	}
	if (log->wal && sl_wal_close(log->wal, &err) && !rc)
		rc = cli_fail(log->cli, &err, log->dir);
	sl_event_sender_free(log->sender);
	if (log->spool[0])
		(void)rmdir(log->spool); /* empty unless something is left in it */
	memset(log, 0, sizeof(*log));
	log->wake[0] = log->wake[1] = -1;
	return rc;
}
