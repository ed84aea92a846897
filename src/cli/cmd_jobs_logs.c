/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice jobs logs: the events of a job that have reached the store, in order; of a chain, those of all its jobs. With
 * --follow it continues until the chain has ended and its last events are there.
 */
#include "commands.h"
#include "jobstore.h"
#include "joiner.h"
#include "stop.h"
#include "text.h"

#include <inttypes.h>
#include <poll.h>
#include <sluice/events.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE 500
#define LOOK_EVERY_MS 200
#define AWAY_MS 5000     /* the longest pause between two tries while the store is unavailable */
#define SETTLE_ROUNDS 25 /* how often to look for late events after the end: they may still be on their way */

struct source {
	uint64_t job, after;
	enum sl_job_status status;
	int32_t attempt;
	int64_t started_ms; /* of the last attempt; 0: never run */
	int32_t exit_attempt;
	int64_t exit_ms; /* of the last exit that came; 0: none */
	int passed;      /* there will be nothing more */
};

struct logs {
	struct cli *cli;
	const struct parsed *args;
	sl_jobs *client;
	struct joiner lines; /* of what is printed for people */
	uint64_t id;
	int is_chain;
	struct source *jobs;
	size_t n, cap;
	uint32_t page; /* events in this page */
	uint64_t printed;
};

static struct source *find_source(struct logs *l, uint64_t job)
{
	for (size_t i = l->n; i-- > 0;) {
		if (l->jobs[i].job == job)
			return &l->jobs[i];
	}
	return NULL;
}

static int add_job(const struct sl_job *job, void *ctx)
{
	struct logs *l = ctx;
	struct source *s = find_source(l, job->id);

	if (!s && l->n == l->cap) {
		struct source *more = realloc(l->jobs, (2 * l->cap + 8) * sizeof(*more));

		if (!more)
			return SL_ENOMEM;
		l->cap = 2 * l->cap + 8;
		l->jobs = more;
	}
	if (!s) {
		s = &l->jobs[l->n++];
		*s = (struct source){.job = job->id};
	}
	s->status = job->status;
	s->attempt = job->attempt;
	s->started_ms = job->started_ms;
	return 0;
}

static void print_json(struct out *out, const struct sl_event_row *e)
{
	json_t *text = json_stringn(e->payload, e->payload_len);

	out_printf(out,
		   "{\"offset\":%" PRIu64 ",\"job_id\":\"%" PRIu64
		   "\",\"attempt\":%d,\"type\":\"%s\",\"late\":%s,\"partial\":%s,\"at\":",
		   e->offset, e->job_id, e->attempt, sl_event_type_name(e->type), e->late ? "true" : "false",
		   e->partial ? "true" : "false");
	jobstore_json_time(out, e->ts_ms);
	if (text) {
		out_str(out, ",\"text\":");
		out_json(out, text);
	} else {
		out_str(out, ",\"data_b64\":\"");
		out_b64(out, e->payload, e->payload_len);
		out_str(out, "\"");
	}
	out_str(out, "}\n");
}

static int print_event(const struct sl_event_row *e, void *ctx)
{
	struct logs *l = ctx;
	struct out *out = &l->cli->out;
	struct source *source = find_source(l, e->job_id);

	if (source)
		source->after = e->offset;
	if (source && e->type == SL_EVENT_EXITED) {
		source->exit_attempt = e->attempt;
		source->exit_ms = e->ts_ms;
	}
	l->page++;
	l->printed++;
	if (opt_flag(l->args, "json"))
		print_json(out, e);
	else
		joiner_put(&l->lines, e);
	return out_failed(out) || stop_requested() ? SL_ECANCELLED : 0;
}

/* It has ended, and so has the output of its last attempt. */
static int over(const struct source *s)
{
	int silent = s->exit_attempt >= s->attempt && s->exit_ms >= s->started_ms;

	return s->status >= SL_JOB_COMPLETED && (silent || !s->started_ms);
}

/* The jobs of the chain so far, or the one job that was asked for. */
static int look_for_jobs(struct logs *l, struct sl_err *err)
{
	struct sl_job_filter chain = {.chain_id = l->id, .ascending = 1, .limit = PAGE, .without_data = 1};
	struct sl_job *job = NULL;
	size_t before;
	int rc;

	if (!l->is_chain) {
		rc = sl_jobs_get(l->client, l->id, &job, err);
		rc = rc ? rc : add_job(job, l);
		sl_jobs_free(l->client, job);
		return rc;
	}
	/* From the first that may still change on. */
	for (size_t i = 0; i < l->n && over(&l->jobs[i]); i++)
		chain.after = l->jobs[i].job;
	do {
		before = l->n;
		rc = sl_jobs_list(l->client, &chain, add_job, l, err);
		chain.after = l->n ? l->jobs[l->n - 1].job : 0;
	} while (!rc && l->n >= before + PAGE);
	return rc;
}

/* All that is there now. 0 or a negative SL_E…. */
static int drain(struct logs *l, struct sl_err *err)
{
	int rc = look_for_jobs(l, err);

	for (size_t i = 0; !rc && i < l->n; i++) {
		struct source *s = &l->jobs[i];

		int last = over(s); /* what is there now is all */

		if (s->passed)
			continue;
		do {
			l->page = 0;
			rc = sl_jobs_events(l->client, s->job, s->after, PAGE, print_event, l, err);
		} while (!rc && l->page == PAGE);
		s->passed = !rc && last;
	}
	return rc;
}

static int all_over(const struct logs *l)
{
	for (size_t i = 0; i < l->n; i++) {
		if (!over(&l->jobs[i]))
			return 0;
	}
	return l->n > 0;
}

static int has_ended(const struct logs *l)
{
	return l->n > 0 && l->jobs[l->n - 1].status >= SL_JOB_COMPLETED;
}

/* How long to wait for the next look. A store that went away is told once, and asked again: every event has its offset,
 * so what was printed does not come again. */
static int next_look_ms(struct logs *l, int rc, const struct sl_err *err, int *pause_ms)
{
	if (rc && !*pause_ms)
		cli_say(l->cli, SL_LOG_WARN, "store unavailable, retrying: %s", err->msg);
	if (!rc && *pause_ms)
		cli_say(l->cli, SL_LOG_INFO, "the store is back");
	*pause_ms = !rc ? 0 : *pause_ms ? 2 * *pause_ms : LOOK_EVERY_MS;
	if (*pause_ms > AWAY_MS)
		*pause_ms = AWAY_MS;
	return rc ? *pause_ms : LOOK_EVERY_MS;
}

/* Events reach the store a moment after the job has ended: a chain is over with the exits of its commands. One whose
 * exit never comes (a handler in C, a worker that died) is waited for a while. */
static int follow(struct logs *l, struct sl_err *err)
{
	struct pollfd stop = {.fd = stop_fd(), .events = POLLIN};
	int quiet = 0, pause_ms = 0, rc;

	do {
		uint64_t before = l->printed;

		rc = drain(l, err);
		(void)out_flush(&l->cli->out);
		if (rc && !err->retryable)
			break;
		quiet = !rc && has_ended(l) && l->printed == before ? quiet + 1 : 0;
		if (!rc && ((has_ended(l) && all_over(l)) || quiet > SETTLE_ROUNDS))
			break;
		(void)poll(&stop, 1, next_look_ms(l, rc, err, &pause_ms));
	} while (!stop_requested());
	return rc;
}

static int print_logs(struct logs *l, struct sl_err *err)
{
	struct sl_job *job = NULL;
	int rc = sl_jobs_get(l->client, l->id, &job, err);

	if (rc)
		return rc;
	l->is_chain = job->chain_id == job->id;
	sl_jobs_free(l->client, job);
	return opt_flag(l->args, "follow") ? follow(l, err) : drain(l, err);
}

static int logs(struct cli *cli, const struct parsed *args, struct jobstore *store, uint64_t id)
{
	struct logs l = {.cli = cli, .args = args, .client = store->client, .id = id};
	struct sl_err err = SL_ERR_INIT;
	int code;

	joiner_init(&l.lines, &cli->out, opt_flag(args, "all"), isatty(STDOUT_FILENO) && !opt_flag(args, "raw"));
	code = print_logs(&l, &err);
	joiner_end(&l.lines);
	free(l.jobs);
	if (stop_requested())
		return cli_interrupted(cli);
	return code && !out_failed(&cli->out) ? jobstore_fail(cli, args, &err) : EXIT_OK;
}

static int run(struct cli *cli, const struct parsed *args)
{
	return jobstore_with_id(cli, args, logs);
}

static const struct opt opts_table[] = {
	JOBSTORE_OPT_STORE,
	{.name = "follow", .letter = 'f', .kind = OPT_FLAG, .help = "Follow until the chain has ended"},
	{.name = "all",
	 .letter = 'a',
	 .kind = OPT_FLAG,
	 .help = "Also starts, exits, progress and errors, in brackets"},
	{.name = "raw",
	 .kind = OPT_FLAG,
	 .help = "Print control characters to a terminal as they are; otherwise they are escaped (\\x1b)"},
	JOBSTORE_OPT_JSON,
	{.name = NULL},
};

const struct command cmd_jobs_logs = {
	.name = "jobs logs",
	.operands = "ID",
	.summary = "print what a job has written",
	.opts = opts_table,
	.description =
		"The lines that a job's command wrote to stdout and stderr, or that its handler emitted, in the order "
		"in which they reached the store. The id of a chain prints all its jobs. A line that was too long for "
		"one event is put together again; with --json its pieces are apart, all but the last partial. A store "
		"that becomes unavailable during --follow is queried again, every 5 s at the latest.",
	.example = "sluice jobs logs 42 --follow",
	.run = run,
};
