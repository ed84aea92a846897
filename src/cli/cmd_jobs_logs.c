/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice jobs logs: the events of a job that have reached the store, in order; of a chain, those of all its jobs. With
 * --follow it goes on until the chain has ended and its last events are there.
 */
#include "commands.h"
#include "jobstore.h"
#include "stop.h"
#include "text.h"

#include <inttypes.h>
#include <poll.h>
#include <sluice/events.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 500
#define LOOK_EVERY_MS 200
#define SETTLE_ROUNDS 25 /* how often to look for late events after the end: they may still be on their way */

struct source {
	uint64_t job, after;
	int exited; /* its last event came */
};

struct logs {
	struct cli *cli;
	const struct parsed *args;
	struct jobstore store;
	uint64_t id;
	struct source *jobs;
	size_t n, cap;
	uint32_t page; /* events in this page */
	uint64_t printed;
};

static int add_job(const struct sl_job *job, void *ctx)
{
	struct logs *l = ctx;

	for (size_t i = 0; i < l->n; i++) {
		if (l->jobs[i].job == job->id)
			return 0;
	}
	if (l->n == l->cap) {
		struct source *more = realloc(l->jobs, (l->cap = 2 * l->cap + 8) * sizeof(*more));

		if (!more)
			return SL_ENOMEM;
		l->jobs = more;
	}
	l->jobs[l->n++] = (struct source){.job = job->id};
	return 0;
}

static int is_output(int type)
{
	return type == SL_EVENT_STDOUT || type == SL_EVENT_STDERR || type == SL_EVENT_LOG;
}

static void print_json(struct out *out, const struct sl_event_row *e)
{
	json_t *text = json_stringn(e->payload, e->payload_len);

	out_printf(out,
		   "{\"offset\":%" PRIu64 ",\"job_id\":\"%" PRIu64
		   "\",\"attempt\":%d,\"type\":\"%s\",\"late\":%s,\"at\":",
		   e->offset, e->job_id, e->attempt, sl_event_type_name(e->type), e->late ? "true" : "false");
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
	struct source *source = NULL;

	for (size_t i = 0; i < l->n; i++) {
		if (l->jobs[i].job == e->job_id)
			source = &l->jobs[i];
	}
	if (source) {
		source->after = e->offset;
		source->exited = e->type == SL_EVENT_EXITED;
	}
	l->page++;
	l->printed++;
	if (opt_flag(l->args, "json")) {
		print_json(out, e);
	} else if (is_output(e->type)) {
		out_write(out, e->payload, e->payload_len);
		out_str(out, "\n");
	} else if (opt_flag(l->args, "all")) {
		char at[TEXT_TIME_BYTES];

		out_printf(out, "[%s job %" PRIu64 " attempt %d: %s ", text_time(at, e->ts_ms), e->job_id, e->attempt,
			   sl_event_type_name(e->type));
		text_quoted(out, e->payload, e->payload_len, 500);
		out_str(out, "]\n");
	}
	return out_failed(out) || stop_requested() ? SL_ECANCELLED : 0;
}

/* All that is there now. 0 or a negative SL_E…. */
static int drain(struct logs *l, struct sl_err *err)
{
	struct sl_job_filter chain = {.chain_id = l->id, .ascending = 1, .limit = 10000, .without_data = 1};
	int rc = l->jobs && l->jobs[0].job != l->id ? 0 : sl_jobs_list(l->store.client, &chain, add_job, l, err);

	for (size_t i = 0; !rc && i < l->n; i++) {
		do {
			l->page = 0;
			rc = sl_jobs_events(l->store.client, l->jobs[i].job, l->jobs[i].after, PAGE, print_event, l,
					    err);
		} while (!rc && l->page == PAGE);
	}
	return rc;
}

static int has_ended(struct logs *l, int *ended, struct sl_err *err)
{
	struct sl_job *job = NULL;
	struct sl_chain *chain = NULL;
	int rc = sl_jobs_get(l->store.client, l->id, &job, err);

	if (rc)
		return rc;
	*ended = job->status >= SL_JOB_COMPLETED;
	if (job->chain_id == l->id) {
		rc = sl_jobs_get_chain(l->store.client, l->id, &chain, err);
		*ended = !rc && chain->status >= SL_JOB_COMPLETED;
		sl_jobs_free(l->store.client, chain);
	}
	sl_jobs_free(l->store.client, job);
	return rc;
}

static int all_exited(const struct logs *l)
{
	for (size_t i = 0; i < l->n; i++) {
		if (!l->jobs[i].exited)
			return 0;
	}
	return l->n > 0;
}

static int follow(struct logs *l, struct sl_err *err)
{
	struct pollfd stop = {.fd = stop_fd(), .events = POLLIN};
	int ended = 0, quiet = 0, rc;

	do {
		uint64_t before = l->printed;

		rc = has_ended(l, &ended, err);
		rc = rc ? rc : drain(l, err);
		(void)out_flush(&l->cli->out);
		quiet = ended && l->printed == before ? quiet + 1 : 0;
		if (rc || (ended && (all_exited(l) || quiet > SETTLE_ROUNDS)))
			break;
		(void)poll(&stop, 1, LOOK_EVERY_MS);
	} while (!stop_requested());
	return rc;
}

static int run(struct cli *cli, const struct parsed *args)
{
	struct logs l = {.cli = cli, .args = args};
	struct sl_err err = SL_ERR_INIT;
	struct sl_job *job = NULL;
	int code = 0;
	int rc = jobstore_id(cli, args->operands[0], &l.id);

	if (rc)
		return rc;
	rc = jobstore_open(cli, args, &l.store);
	if (!rc)
		code = sl_jobs_get(l.store.client, l.id, &job, &err);
	if (!rc && !code && job->chain_id != job->id)
		code = add_job(job, &l);
	if (!rc && !code)
		code = opt_flag(args, "follow") ? follow(&l, &err) : drain(&l, &err);
	if (!rc && stop_requested())
		rc = cli_interrupted(cli);
	else if (!rc && code && !out_failed(&cli->out))
		rc = jobstore_fail(cli, args, &err);
	if (job)
		sl_jobs_free(l.store.client, job);
	jobstore_close(&l.store);
	free(l.jobs);
	return rc;
}

static const struct opt opts_table[] = {
	JOBSTORE_OPT_STORE,
	{.name = "follow", .letter = 'f', .kind = OPT_FLAG, .help = "Go on until the chain has ended"},
	{.name = "all",
	 .letter = 'a',
	 .kind = OPT_FLAG,
	 .help = "Also starts, exits, progress and errors, in brackets"},
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
		"in which they reached the store. The id of a chain prints all its jobs.",
	.example = "sluice jobs logs 42 --follow",
	.run = run,
};
