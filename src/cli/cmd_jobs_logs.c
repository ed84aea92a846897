/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice jobs logs: the events of a job that have reached the store, in order; of a chain, those of all its jobs. With
 * --follow it continues until the chain has ended and its last events are there.
 */
#include "base/env.h"
#include "commands.h"
#include "jobstore.h"
#include "out.h"
#include "stop.h"
#include "text.h"

#include <inttypes.h>
#include <poll.h>
#include <sluice/event.h>
#include <sluice/events.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- lines ---- */

/*
 * Events as text: a line of output that was cut into several events is one line again. While such a line is open, what
 * else its attempt says waits until it has ended, so that nothing stands in the middle of it; a line is ended by its
 * last piece, the exit of its command, or another attempt that speaks. Up to JOINER_HELD_BYTES can wait; then the line
 * is broken off. replay frees what waits; events are borrowed.
 */
#define JOINER_HELD_BYTES ((size_t)64 << 20)

struct joiner_held {
	struct joiner_held *next;
	struct sl_event_row event; /* its payload follows it; without a stream */
	char payload[];
};

struct joiner {
	struct out *out;
	bool all;    /* also starts, exits, progress and errors, in brackets */
	bool escape; /* control characters: the output goes to a terminal */
	/* The line that is open; type 0: none. */
	uint64_t job;
	int32_t attempt;
	enum sl_event_type type;
	struct joiner_held *first, **last; /* what waits for its end */
	size_t held_bytes;
};

static void joiner_put(struct joiner *j, const struct sl_event_row *e);

/* No line is open, or it is this one's. */
static void print(struct joiner *j, const struct sl_event_row *e)
{
	char at[TEXT_TIME_BYTES];

	if (e->type == SL_EVENT_STDOUT || e->type == SL_EVENT_STDERR || e->type == SL_EVENT_LOG) {
		if (j->escape)
			text_output(j->out, e->payload, e->payload_len);
		else
			out_write(j->out, e->payload, e->payload_len);
		j->job = e->job_id;
		j->attempt = e->attempt;
		j->type = e->partial ? e->type : (enum sl_event_type)0;
		if (!e->partial)
			out_str(j->out, "\n");
	} else if (j->all) {
		out_printf(j->out, "[%s job %" PRIu64 " attempt %d: %s ", text_time(at, e->ts_ms), e->job_id,
			   e->attempt, sl_event_type_name(e->type));
		text_quoted(j->out, e->payload, e->payload_len, 500);
		out_str(j->out, "]\n");
	}
}

/* The line is over: what waited has its turn, and may open one itself. */
static void replay(struct joiner *j)
{
	struct joiner_held *next = j->first;

	j->first = NULL;
	j->last = &j->first;
	j->held_bytes = 0;
	while (next != NULL) {
		struct joiner_held *held = next;

		next = held->next;
		joiner_put(j, &held->event);
		free(held);
	}
}

static void break_off(struct joiner *j)
{
	out_str(j->out, "\n");
	j->type = (enum sl_event_type)0;
	replay(j);
}

/* 0: it cannot wait. */
static int hold(struct joiner *j, const struct sl_event_row *e)
{
	struct joiner_held *held = NULL;

	if (j->held_bytes + e->payload_len <= JOINER_HELD_BYTES)
		held = malloc(sizeof(*held) + e->payload_len);
	if (held == NULL)
		return 0;
	held->next = NULL;
	held->event = *e;
	held->event.stream = NULL;
	held->event.payload = held->payload;
	if (e->payload_len)
		memcpy(held->payload, e->payload, e->payload_len);
	*j->last = held;
	j->last = &held->next;
	j->held_bytes += sizeof(*held) + e->payload_len;
	return 1;
}

static void joiner_put(struct joiner *j, const struct sl_event_row *e)
{
	while (j->type) {
		int ours = e->job_id == j->job && e->attempt == j->attempt;

		if (ours && e->type == j->type) {
			print(j, e);
			if (!j->type)
				replay(j);
			return;
		}
		if (ours && e->type != SL_EVENT_STARTED && e->type != SL_EVENT_EXITED && hold(j, e))
			return;
		break_off(j);
	}
	print(j, e);
}

/* ---- the events of a job ---- */

#define PAGE 500
#define POLL_MS 200
#define RETRY_MS 5000    /* the longest pause between two queries while the store is unavailable */
#define SETTLE_ROUNDS 25 /* polls for late events after the end: they may still be on their way */

struct source {
	uint64_t job, after;
	enum sl_job_status status;
	int32_t attempt;
	int64_t started_ms; /* of the last attempt; 0: never run */
	int32_t exit_attempt;
	int64_t exit_ms; /* of the last exit that came; 0: none */
	bool passed;     /* there will be nothing more */
};

struct logs {
	struct cli *cli;
	const struct parsed *args;
	sl_jobs *client;
	struct joiner lines; /* of what is printed for people */
	uint64_t id;
	bool is_chain;
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

	if (s == NULL) {
		struct source *more = sl__grow(&sl__env_real, l->jobs, l->n, &l->cap, sizeof(*more));

		if (more == NULL)
			return SL_ENOMEM;
		l->jobs = more;
		s = &l->jobs[l->n++];
		*s = (struct source){.job = job->id};
	}
	/* Known or new: how far it has come. */
	s->status = job->status;
	s->attempt = job->attempt;
	s->started_ms = job->started_ms;
	return 0;
}

static int print_event(const struct sl_event_row *e, void *ctx)
{
	struct logs *l = ctx;
	struct out *out = &l->cli->out;
	struct source *source = find_source(l, e->job_id);
	json_t *text;

	if (source != NULL)
		source->after = e->offset;
	if (source != NULL && e->type == SL_EVENT_EXITED) {
		source->exit_attempt = e->attempt;
		source->exit_ms = e->ts_ms;
	}
	l->page++;
	l->printed++;
	if (!opt_flag(l->args, "json")) {
		joiner_put(&l->lines, e);
		return out_failed(out) || stop_requested() ? SL_ECANCELLED : 0;
	}
	out_printf(out,
		   "{\"offset\":%" PRIu64 ",\"job_id\":\"%" PRIu64
		   "\",\"attempt\":%d,\"type\":\"%s\",\"late\":%s,\"partial\":%s,\"at\":",
		   e->offset, e->job_id, e->attempt, sl_event_type_name(e->type), e->late ? "true" : "false",
		   e->partial ? "true" : "false");
	jobstore_json_time(out, e->ts_ms);
	text = json_stringn(e->payload, e->payload_len); /* NULL: not UTF-8 */
	if (text != NULL) {
		out_str(out, ",\"text\":");
		out_json(out, text);
	} else {
		out_str(out, ",\"data_b64\":\"");
		out_b64(out, e->payload, e->payload_len);
		out_str(out, "\"");
	}
	out_str(out, "}\n");
	return out_failed(out) || stop_requested() ? SL_ECANCELLED : 0;
}

/* It has ended, and so has the output of its last attempt. */
static bool is_over(const struct source *s)
{
	bool silent = s->exit_attempt >= s->attempt && s->exit_ms >= s->started_ms;

	return s->status >= SL_JOB_COMPLETED && (silent || !s->started_ms);
}

/* Print all events that are in the store now. 0 or a negative SL_E…. */
static int print_new_events(struct logs *l, struct sl_err *err)
{
	struct sl_job_filter chain = {SL_JOB_FILTER_INIT, .chain_id = l->id, .ascending = true, .limit = PAGE,
				      .without_data = true};
	struct sl_job *job = NULL;
	size_t before;
	int rc;

	/* The one job that was asked for, or the jobs of the chain from the first that may still change on. */
	if (!l->is_chain) {
		rc = sl_jobs_get(l->client, l->id, &job, err);
		if (rc == 0)
			rc = add_job(job, l);
		sl_job_release(l->client, job);
	} else {
		for (size_t i = 0; i < l->n && is_over(&l->jobs[i]); i++)
			chain.after = l->jobs[i].job;
		do {
			before = l->n;
			rc = sl_jobs_list(l->client, &chain, add_job, l, err);
			chain.after = l->n ? l->jobs[l->n - 1].job : 0;
		} while (rc == 0 && l->n >= before + PAGE);
	}

	for (size_t i = 0; rc == 0 && i < l->n; i++) {
		struct source *s = &l->jobs[i];
		bool last = is_over(s); /* what is there now is all */

		if (s->passed)
			continue;
		do {
			l->page = 0;
			rc = sl_jobs_events(l->client, s->job, s->after, PAGE, print_event, l, err);
		} while (rc == 0 && l->page == PAGE);
		s->passed = rc == 0 && last;
	}
	return rc;
}

/*
 * Events reach the store shortly after the job has ended: a chain is over with the exits of its commands. One whose
 * exit never comes (a handler in C, a worker that died) is waited for a while. A store that becomes unavailable is
 * reported once and queried again: every event has its offset, so what was printed is not printed twice.
 */
static int follow(struct logs *l, struct sl_err *err)
{
	struct pollfd stop = {.fd = stop_fd(), .events = POLLIN};
	int quiet = 0, pause_ms = 0, rc;

	do {
		uint64_t before = l->printed;
		bool ended, all_over;

		rc = print_new_events(l, err);
		(void)out_flush(&l->cli->out);
		if (rc != 0 && !sl_err_retryable(err))
			break;
		all_over = ended = l->n > 0 && l->jobs[l->n - 1].status >= SL_JOB_COMPLETED;
		for (size_t i = 0; i < l->n; i++)
			all_over &= is_over(&l->jobs[i]);
		quiet = rc == 0 && ended && l->printed == before ? quiet + 1 : 0;
		if (rc == 0 && (all_over || quiet > SETTLE_ROUNDS))
			break;

		if (rc != 0 && !pause_ms)
			cli_say(l->cli, SL_LOG_WARN, "store unavailable, retrying: %s", err->msg);
		if (rc == 0 && pause_ms)
			cli_say(l->cli, SL_LOG_INFO, "store available again");
		pause_ms = rc == 0 ? 0 : pause_ms ? SL_MIN(2 * pause_ms, RETRY_MS) : POLL_MS;
		(void)poll(&stop, 1, rc != 0 ? pause_ms : POLL_MS);
	} while (!stop_requested());
	return rc;
}

static int jobs_logs_run(struct cli *cli, const struct parsed *args)
{
	SL_CLEANUP(jobstore_close) struct jobstore store = {0};
	struct logs l = {.cli = cli, .args = args};
	struct sl_err err = SL_ERR_INIT;
	struct sl_job *job = NULL;
	int rc = jobstore_open_ids(cli, args, &store);

	if (rc != 0)
		return rc;
	l.client = store.client;
	l.id = store.ids[0];
	l.lines.out = &cli->out;
	l.lines.all = opt_flag(args, "all");
	l.lines.escape = isatty(STDOUT_FILENO) && !opt_flag(args, "raw");
	l.lines.last = &l.lines.first;
	/* The first job of a chain has its id: then all jobs of the chain are meant. */
	rc = sl_jobs_get(l.client, l.id, &job, &err);
	if (rc == 0) {
		l.is_chain = job->chain_id == job->id;
		sl_job_release(l.client, job);
		rc = opt_flag(args, "follow") ? follow(&l, &err) : print_new_events(&l, &err);
	}
	/* Nothing more will come: end what is open, print what waits. */
	while (l.lines.type)
		break_off(&l.lines);
	free(l.jobs);
	if (stop_requested())
		return cli_interrupted(cli);
	return rc != 0 && !out_failed(&cli->out) ? jobstore_fail(cli, args, &err) : EXIT_OK;
}

static const struct opt jobs_logs_opts[] = {
	JOBSTORE_OPT_STORE,
	{.name = "follow", .letter = 'f', .kind = OPT_FLAG, .help = "Follow until the chain has ended"},
	{.name = "all",
	 .letter = 'a',
	 .kind = OPT_FLAG,
	 .help = "Print starts, exits, progress and errors too, in brackets"},
	{.name = "raw",
	 .kind = OPT_FLAG,
	 .help = "Print control characters to a terminal as they are (default: escape them as \\x1b)"},
	OPT_JSON("Print JSON"),
	{.name = NULL},
};

const struct command cmd_jobs_logs = {
	.name = "jobs logs",
	.operands = "ID",
	.summary = "print the output of a job",
	.opts = jobs_logs_opts,
	.description = "Prints the lines that a job's command wrote to stdout and stderr, or that its handler emitted, "
		       "in the order in which they reached the store. For the id of a chain, prints the output of all "
		       "its jobs. A line that was too long for one event is joined again; --json prints its parts "
		       "separately, all but the last marked as partial. If the store becomes unavailable during "
		       "--follow, it is queried again at least every 5 s.",
	.example = "sluice jobs logs 42\n"
		   "sluice jobs logs 42 --follow",
	.run = jobs_logs_run,
};
