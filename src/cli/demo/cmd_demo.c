/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice demo: the whole pipeline under faults, with a count at the end. A server and four workers as separate
 * processes on an embedded store in a temporary folder; chains with fan-in; one worker killed, one stopped beyond its
 * lease, the network between workers and server cut. What is compared at the end comes from the store and from the
 * ledger in which the commands noted what they had written; nothing of it is what was planned.
 */
#include "base/time.h"
#include "cli/commands.h"
#include "cli/demo/lines.h"
#include "cli/demo/proc.h"
#include "cli/demo/relay.h"
#include "cli/stop.h"
#include "cli/text.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FAN_IN 10
#define PAGE 1000 /* jobs in a listing */
#define LEASE_MS 1500
#define STOPPED_MS 4000 /* well beyond the lease */
#define CUT_MS 4000
#define ROW_MS 1000
#define POLL_MS 100
#define TICK_MS 200 /* between two drawings of the last row, on a terminal */

enum { KILLED, STOPPED, N_WORKERS = 4, N_ALL = N_WORKERS + 1 };

struct numbers {
	uint64_t jobs, completed, running, failed;
};

/* What was disturbed last, in this order. */
enum stage { STAGE_RUNNING, STAGE_STOPPED, STAGE_KILLED, STAGE_CUT, STAGE_REPAIRED, STAGE_RESUMED };

struct demo {
	struct cli *cli;
	const struct parsed *args;
	struct demoproc_place place;
	struct jobstore store;
	struct demoproc server, workers[N_ALL];
	struct demorelay relay;
	struct demolines ledger, delivered;
	struct numbers now;
	uint64_t last_chain;
	uint64_t total;
	int64_t begun_ms, row_ms, stopped_ms, cut_ms, moved_ms;
	uint64_t moved;
	enum stage stage;
	bool json;    /* nothing but the result is printed */
	bool live;    /* on a terminal: the last row is drawn anew until it has news */
	bool drawn;   /* it is there, without its end */
	bool started; /* there is something to inspect in the folder */
	const char *news;
};

/* A line is noted in the ledger only after it was written to standard output. */
static const char script[] = "#!/bin/sh\n"
			     "read -r step\n"
			     "say() { line=\"job $SLUICE_JOB_ID attempt $SLUICE_ATTEMPT pid $$: $1\"; echo \"$line\"; "
			     "echo \"$line\" >>\"$LEDGER\"; }\n"
			     "say begin\n"
			     "say \"step $step of chain $SLUICE_CHAIN_ID\"\n"
			     "sleep 0.02\n"
			     "say end\n"
			     "if [ \"$step\" = 1 ]; then\n"
			     "\techo '{\"continue_with\":{\"type\":\"step\",\"input\":2}}' >&3\n"
			     "else\n"
			     "\techo \"{\\\"output\\\":\\\"chain $SLUICE_CHAIN_ID\\\"}\" >&3\n"
			     "fi\n";

static int fail(struct demo *d, const struct sl_err *err)
{
	return cli_fail(d->cli, err, NULL);
}

/* ---- jobs ---- */

/* n chains, each after `each` of those before (0: after none). Their ids take the place of before's. */
static int start_level(struct demo *d, const char *type, const char *input, uint64_t **ids, size_t *n, size_t each)
{
	size_t count = each ? (*n + each - 1) / each : *n;
	struct sl_new_chain *chains = calloc(count, sizeof(*chains));
	struct sl_started *started = calloc(count, sizeof(*started));
	struct sl_err err = SL_ERR_INIT;
	int rc = chains != NULL && started != NULL ? 0 : sl_err_set(&err, SL_ENOMEM, "out of memory");

	/* The last chain of a level may wait for fewer than the others. */
	for (size_t i = 0; rc == 0 && i < count; i++) {
		chains[i].job = (struct sl_new_job){.type = type, .input = input};
		if (each) {
			chains[i].job.blockers = *ids + i * each;
			chains[i].job.n_blockers = *n - i * each < each ? *n - i * each : each;
		}
	}
	if (rc == 0)
		rc = sl_jobs_enqueue_many(d->store.client, NULL, chains, count, started, &err);
	for (size_t i = 0; rc == 0 && i < count; i++)
		(*ids)[i] = started[i].chain_id;
	*n = count;
	free(chains);
	free(started);
	if (rc != 0)
		return fail(d, &err);
	return 0;
}

static int add_count(const struct sl_job_count *c, void *ctx)
{
	struct numbers *n = ctx;

	n->jobs += c->count;
	n->completed += c->status == SL_JOB_COMPLETED ? c->count : 0;
	n->running += c->status == SL_JOB_RUNNING ? c->count : 0;
	n->failed += c->status == SL_JOB_FAILED || c->status == SL_JOB_CANCELLED ? c->count : 0;
	return 0;
}

static int count(struct demo *d)
{
	struct numbers n = {.jobs = 0};
	struct sl_err err = SL_ERR_INIT;

	/* From the store and the ledger only, never from what the demo has planned. */
	if (sl_jobs_counts(d->store.client, add_count, &n, &err) ||
	    demolines_read_file(&d->ledger, d->place.ledger, &err) ||
	    demolines_read_store(&d->delivered, &d->store.store, &err))
		return fail(d, &err);
	d->now = n;
	return 0;
}

/* ---- the table ---- */

/* A row that is drawn in place is made an end of. */
static void table_end(struct demo *d)
{
	if (d->drawn)
		out_str(&d->cli->out, "\n");
	d->drawn = false;
	(void)out_flush(&d->cli->out);
}

static void table_row(struct demo *d)
{
	int64_t now = sl__clock_real_ms();
	size_t on_way = d->ledger.n > d->delivered.n ? d->ledger.n - d->delivered.n : 0;

	if (d->json || (d->news == NULL && now < d->row_ms + (d->live ? TICK_MS : ROW_MS)))
		return;
	out_printf(&d->cli->out, "%s%4lld s  %7" PRIu64 "/%7" PRIu64 "  %7" PRIu64 "  %7zu  %9zu  %7s  %s",
		   d->live ? "\r\033[K" : "", (long long)(now - d->begun_ms) / 1000, d->now.completed, d->total,
		   d->now.running, d->ledger.n, d->delivered.n, d->relay.cut ? "cut" : "up",
		   d->news != NULL ? d->news : "");
	if (d->news == NULL && on_way > 100)
		out_printf(&d->cli->out, "%zu lines wait in logs", on_way);
	d->drawn = true;
	d->row_ms = now;
	if (d->news != NULL || !d->live)
		table_end(d);
	(void)out_flush(&d->cli->out);
	d->news = NULL;
}

/* ---- what goes wrong ---- */

static int start_worker(struct demo *d, int i)
{
	struct demoproc *worker = &d->workers[i];
	char server[64];

	(void)snprintf(worker->name, sizeof(worker->name), "worker-%d", i + 1);
	(void)snprintf(server, sizeof(server), "http://127.0.0.1:%d", d->relay.port);
	return demoproc_worker(d->cli, &d->place, worker, server, LEASE_MS);
}

/* One step after the other, each when the work has come far enough. */
static int disturb(struct demo *d)
{
	int64_t now = sl__clock_real_ms();
	uint64_t percent = d->total ? d->now.completed * 100 / d->total : 0;

	/* Stop, kill, cut, repair, resume: each at a time when the others are at work. */
	if (d->stage == STAGE_RUNNING && percent >= 15) {
		demoproc_stop(&d->workers[STOPPED], &d->place);
		d->news = "worker 2 stopped (SIGSTOP), for longer than its lease";
		d->stopped_ms = now;
		d->stage = STAGE_STOPPED;
	} else if (d->stage == STAGE_STOPPED && percent >= 25) {
		demoproc_kill(&d->workers[KILLED]);
		d->news = "worker 1 killed (SIGKILL), with its commands; worker 5 started";
		d->stage = STAGE_KILLED;
		return start_worker(d, N_WORKERS);
	} else if (d->stage == STAGE_KILLED && percent >= 40) {
		demorelay_cut(&d->relay, true);
		d->news = "network between workers and server cut: connections reset";
		d->cut_ms = now;
		d->stage = STAGE_CUT;
	} else if (d->stage == STAGE_CUT && now >= d->cut_ms + CUT_MS) {
		demorelay_cut(&d->relay, false);
		d->news = "network up again";
		d->stage = STAGE_REPAIRED;
	} else if (d->stage == STAGE_REPAIRED && now >= d->stopped_ms + STOPPED_MS) {
		demoproc_resume(&d->workers[STOPPED]);
		d->news = "worker 2 resumes, long after its lease";
		d->stage = STAGE_RESUMED;
	}
	return 0;
}

/* From the first job to the last line. */
static int watch_demo(struct demo *d)
{
	struct pollfd stop = {.fd = stop_fd(), .events = POLLIN};
	int64_t patience_ms = opt_num(d->args, "patience");
	struct demodiff diff;
	int rc = 0;

	if (!d->json)
		out_printf(&d->cli->out, "\n%6s  %15s  %7s  %7s  %9s  %7s  %s\n", "time", "jobs done", "running",
			   "written", "delivered", "network", "");
	while (!stop_requested()) {
		uint64_t progress;
		int64_t now;

		rc = count(d);
		if (rc == 0)
			rc = disturb(d);
		table_row(d);
		if (rc != 0 || d->now.failed)
			break;
		/* Is everything done, and every line delivered? */
		if (d->now.completed >= d->total && d->stage == STAGE_RESUMED && d->delivered.n >= d->ledger.n) {
			demolines_compare(&d->ledger, &d->delivered, &diff);
			if (diff.lost == 0)
				break;
		}
		now = sl__clock_real_ms();
		progress = d->now.completed + d->ledger.n + d->delivered.n + (uint64_t)d->stage;
		/* Work stands while the network is cut: that is no hang. */
		if (progress != d->moved || !d->moved_ms || d->relay.cut) {
			d->moved = progress;
			d->moved_ms = now;
		}
		if (now > d->moved_ms + patience_ms) { /* the count shows what is missing */
			table_end(d);
			cli_say(d->cli, SL_LOG_ERROR, "nothing has moved for %lld s; see %s",
				(long long)patience_ms / 1000, d->place.dir);
			break;
		}
		(void)poll(&stop, 1, POLL_MS);
	}
	table_end(d);
	if (rc != 0)
		return rc;
	return stop_requested() ? cli_interrupted(d->cli) : 0;
}

/* ---- the count ---- */

struct tally {
	struct demo *demo;
	uint64_t jobs, attempts, completed, taken_over, not_once;
	uint64_t last_id;
	int of_this;
};

static int add_attempt(const struct sl_attempt_record *a, void *ctx)
{
	struct tally *t = ctx;

	t->attempts++;
	t->of_this += a->outcome == SL_ATTEMPT_COMPLETED;
	t->taken_over += a->outcome == SL_ATTEMPT_REAPED;
	return 0;
}

static int add_job(const struct sl_job *job, void *ctx)
{
	struct tally *t = ctx;
	struct sl_err err = SL_ERR_INIT;
	int rc;

	t->jobs++;
	t->last_id = job->id;
	t->completed += job->status == SL_JOB_COMPLETED;
	t->of_this = 0;
	rc = sl_jobs_attempts(t->demo->store.client, job->id, add_attempt, t, &err);
	t->not_once += t->of_this != 1;
	return rc;
}

/* Count jobs, attempts and lines, print them, and compare. The exit code. */
static int report_demo(struct demo *d)
{
	struct sl_job_filter filter = {SL_JOB_FILTER_INIT, .without_data = true, .limit = PAGE};
	struct tally t = {.demo = d};
	struct out *out = &d->cli->out;
	struct sl_err err = SL_ERR_INIT;
	struct demodiff diff;
	uint64_t before;
	int64_t ms;
	bool good;
	int rc = count(d);

	if (rc != 0)
		return rc;
	do {
		before = t.jobs;
		filter.after = t.last_id;
		if (sl_jobs_list(d->store.client, &filter, add_job, &t, &err))
			return fail(d, &err);
	} while (t.jobs == before + PAGE);
	demolines_compare(&d->ledger, &d->delivered, &diff);
	good = !diff.lost && !diff.duplicated && !t.not_once && t.completed == t.jobs && t.jobs == d->total;
	ms = sl__clock_real_ms() - d->begun_ms;
	if (d->json) {
		out_printf(out,
			   "{\"jobs\":%" PRIu64 ",\"completed_once\":%" PRIu64 ",\"attempts\":%" PRIu64
			   ",\"taken_over\":%" PRIu64 ",\"lines_written\":%zu,\"lines_delivered\":%zu,\"lost\":%zu"
			   ",\"duplicated\":%zu,\"seconds\":%.1f}\n",
			   t.jobs, t.completed - t.not_once, t.attempts, t.taken_over, d->ledger.n, d->delivered.n,
			   diff.lost, diff.duplicated, (double)ms / 1000);
		return good ? EXIT_OK : EXIT_INTERNAL;
	}
	out_printf(out, "\n  %-18s %9" PRIu64 "   %" PRIu64 " completed, each once\n", "jobs", t.jobs,
		   t.completed - t.not_once);
	out_printf(out, "  %-18s %9" PRIu64 "   %" PRIu64 " taken over from the killed and the stopped worker\n",
		   "attempts", t.attempts, t.taken_over);
	out_printf(out, "  %-18s %9zu   noted by the commands themselves\n", "lines written", d->ledger.n);
	out_printf(out, "  %-18s %9zu   %zu of them written just before a kill, and not recorded\n", "lines delivered",
		   d->delivered.n, diff.unnoted);
	out_printf(out, "  %-18s %9zu%s%s\n", "lost", diff.lost, diff.example != NULL ? "   such as: " : "",
		   diff.example != NULL ? diff.example : "");
	out_printf(out, "  %-18s %9zu\n\n", "duplicated", diff.duplicated);
	out_printf(out, "%s %lld s.\n", good ? "Nothing lost, nothing doubled." : "SOMETHING WENT WRONG.",
		   (long long)ms / 1000);
	if (!good)
		out_printf(out, "The folder stays: %s\n", d->place.dir);
	return good ? EXIT_OK : EXIT_INTERNAL;
}

/* ---- together ---- */

static int start_all(struct demo *d)
{
	struct sl_store_opts opts = {SL_STORE_OPTS_INIT, .env = &d->cli->env};
	struct sl_jobs_opts jobs = {SL_JOBS_OPTS_INIT, .env = &d->cli->env, .store = &d->store.store,
				    .notify = &d->store.notify};
	size_t n = (size_t)opt_num(d->args, "chains");
	struct sl_err err = SL_ERR_INIT;
	uint64_t *ids;
	int failed, rc = demoproc_place_make(d->cli, &d->place, opt_str(d->args, "data"), script);

	/* The folder, the server, and a client on its store. */
	if (rc == 0)
		rc = demoproc_server(d->cli, &d->place, &d->server, opt_str(d->args, "listen"));
	if (rc != 0)
		return rc;
	if (sl_store_open(&d->store.store, d->place.store_url, &opts, &err) ||
	    sl_notify_open(&d->store.notify, d->place.store_url, &d->cli->env, &err) ||
	    sl_jobs_open(&d->store.client, &jobs, &err))
		return fail(d, &err);
	d->started = true;
	failed = demorelay_start(&d->relay, d->server.port);
	if (failed) {
		cli_say(d->cli, SL_LOG_ERROR, "the relay: %s", strerror(failed));
		return EXIT_INTERNAL;
	}
	/* Chains of two jobs; one after ten of them; one after ten of these, and so on up to the last one. */
	ids = calloc(n, sizeof(*ids));
	if (ids == NULL)
		return cli_no_memory(d->cli);
	rc = start_level(d, "step", "1", &ids, &n, 0);
	d->total = 2 * n;
	while (rc == 0 && n > 1) {
		rc = start_level(d, "join", "0", &ids, &n, FAN_IN);
		d->total += n;
	}
	d->last_chain = ids[0];
	free(ids);
	if (!d->json)
		out_printf(&d->cli->out,
			   "A server on http://127.0.0.1:%d/ and four workers on an embedded store. %" PRIu64
			   " jobs in chains:\ntwo by two, then one after ten of them, one after ten of these, up to "
			   "the last.\n",
			   d->server.port, d->total);
	(void)out_flush(&d->cli->out);
	for (int i = 0; rc == 0 && i < N_WORKERS; i++)
		rc = start_worker(d, i);
	return rc;
}

static int stop_workers(struct demo *d)
{
	int bad = 0;

	for (int i = 0; i < N_ALL; i++)
		demoproc_ask_to_end(&d->workers[i]);
	for (int i = 0; i < N_ALL; i++) {
		if (demoproc_wait(&d->workers[i]) == 0 || i == KILLED)
			continue;
		bad = 1;
		if (!stop_requested())
			demoproc_report_end(d->cli, &d->place, &d->workers[i]);
	}
	return bad ? EXIT_INTERNAL : 0;
}

static int demo_run(struct cli *cli, const struct parsed *args)
{
	struct pollfd stop = {.fd = stop_fd(), .events = POLLIN};
	struct demo *d = calloc(1, sizeof(*d));
	const char *term = getenv("TERM");
	int code, bad;

	if (d == NULL)
		return cli_no_memory(cli);
	d->cli = cli;
	d->args = args;
	d->json = opt_flag(args, "json");
	d->live = !d->json && isatty(STDOUT_FILENO) && term != NULL && strcmp(term, "dumb") != 0;
	d->begun_ms = d->row_ms = sl__clock_real_ms();
	code = start_all(d);
	if (!code)
		code = watch_demo(d);
	/* Whatever happened, every process gets its network and its signals back, and is then asked to end. */
	demorelay_cut(&d->relay, false);
	demoproc_resume(&d->workers[STOPPED]);
	bad = stop_workers(d);
	if (!code)
		code = report_demo(d);
	if (!code)
		code = bad;
	if (!code && opt_flag(args, "keep")) {
		if (d->json) /* the result stays alone on standard output */
			cli_say(cli, SL_LOG_WARN, "the server stays until Ctrl-C: http://127.0.0.1:%d/",
				d->server.port);
		else
			out_printf(&cli->out, "\nThe server stays until Ctrl-C: http://127.0.0.1:%d/\n",
				   d->server.port);
		(void)out_flush(&cli->out);
		while (!stop_requested())
			(void)poll(&stop, 1, -1);
	}
	/* The server last: workers and this client use it until here. */
	demorelay_stop(&d->relay);
	jobstore_close(&d->store);
	demoproc_ask_to_end(&d->server);
	if (demoproc_wait(&d->server) && !code) {
		demoproc_report_end(cli, &d->place, &d->server);
		code = EXIT_INTERNAL;
	}
	demolines_fini(&d->ledger);
	demolines_fini(&d->delivered);
	if (!code || !d->started || stop_requested()) /* after a failure there is something to find out */
		demoproc_place_remove(&d->place);
	free(d);
	return code;
}

static const struct opt demo_opts[] = {
	{.name = "keep", .kind = OPT_FLAG, .help = "Leave the server running at the end, to explore; Ctrl-C ends it"},
	{.name = "listen",
	 .letter = 'l',
	 .kind = OPT_STRING,
	 .arg = "ADDR",
	 .def = "127.0.0.1:0",
	 .help = "Where the server listens: a port of 127.0.0.1, 0 for a free one"},
	{.name = "data",
	 .letter = 'd',
	 .kind = OPT_STRING,
	 .arg = "DIR",
	 .help = "A new folder for the store and the logs, which stays; a temporary one unless given"},
	{.name = "chains",
	 .kind = OPT_INT,
	 .arg = "N",
	 .def = "1000",
	 .min = 10,
	 .max = 100000,
	 .help = "Chains of two jobs to begin with"},
	{.name = "patience",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "150s", /* a worker sweeps the logs that others have left once a minute */
	 .min = 1000,
	 .max = INT64_C(86400000),
	 .help = "Count what is missing after this long without progress"},
	OPT_JSON("Print the count as JSON, and nothing else"),
	{.name = NULL},
};

const struct command cmd_demo = {
	.name = "demo",
	.operands = "",
	.summary = "watch jobs and their output survive kills and a cut network",
	.opts = demo_opts,
	.description = "Starts a server and four workers on an embedded store in a temporary folder, enqueues chains "
		       "with fan-in, kills one worker with SIGKILL, stops another beyond its lease, and cuts the "
		       "network between workers and server. When the last line has arrived it counts: jobs and "
		       "attempts in the store, lines in the store against those that the commands themselves noted to "
		       "have written. Status 0: nothing lost, nothing doubled. The network is a relay of the demo's "
		       "own that resets connections while it is cut; workers reach the store itself, a file, all the "
		       "time. However the demo ends, all processes end with it; after a failure the folder stays.",
	.example = "sluice demo\nsluice demo --keep --listen 127.0.0.1:7070",
	.run = demo_run,
};
