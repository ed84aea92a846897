/* SPDX-License-Identifier: Apache-2.0 */
/* sluice jobs list, show, wait and audit: what the store holds, the end of a chain, and who changed what. */
#include "commands.h"
#include "jobstore.h"
#include "stop.h"
#include "table.h"
#include "text.h"
#include "waiting.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct print {
	struct cli *cli;
	const struct parsed *args;
	struct table table; /* of a list for people */
	uint64_t last;      /* id of the last one printed */
	uint32_t n;
};

/* ---- list ---- */

static int print_job(const struct sl_job *job, void *ctx)
{
	struct print *p = ctx;
	struct out *out = &p->cli->out;
	struct table *t = &p->table;
	char created[TEXT_TIME_BYTES];

	/* For the hint about --cursor. */
	p->last = job->id;
	p->n++;
	if (opt_flag(p->args, "json")) {
		out_str(out, "{");
		jobstore_job_fields(out, job);
		out_str(out, "}\n");
	} else {
		/* The error is cut: it may be long, and jobs show has all of it. */
		table_cell(t, "%" PRIu64, job->id);
		table_cell(t, "%" PRIu64, job->chain_id);
		table_cell(t, "%s", job->type);
		table_cell(t, "%s", sl_job_status_name(job->state));
		table_cell(t, "%d", job->attempt);
		table_cell(t, "%s", text_moment(created, out, job->created_ms));
		table_cell(t, "%.80s", job->error != NULL ? job->error : "");
	}
	return out_failed(out) || stop_requested() ? SL_ECANCELLED : 0;
}

static int print_chain(const struct sl_chain *chain, void *ctx)
{
	struct print *p = ctx;
	struct out *out = &p->cli->out;
	struct table *t = &p->table;
	char created[TEXT_TIME_BYTES];

	p->last = chain->id;
	p->n++;
	if (opt_flag(p->args, "json")) {
		out_str(out, "{");
		jobstore_chain_fields(out, chain);
		out_str(out, "}\n");
	} else {
		table_cell(t, "%" PRIu64, chain->id);
		table_cell(t, "%s", chain->type);
		table_cell(t, "%s", sl_job_status_name(chain->state));
		table_cell(t, "%s", text_moment(created, out, chain->created_ms));
		table_cell(t, "%.80s", chain->error != NULL ? chain->error : "");
	}
	return out_failed(out) || stop_requested() ? SL_ECANCELLED : 0;
}

static const struct table_column job_columns[] = {
	{"ID", TABLE_RIGHT},      {"CHAIN", TABLE_RIGHT},  {"TYPE", TABLE_TEXT},  {"STATUS", TABLE_LEFT},
	{"ATTEMPT", TABLE_RIGHT}, {"CREATED", TABLE_LEFT}, {"ERROR", TABLE_TEXT},
};
static const struct table_column chain_columns[] = {
	{"ID", TABLE_RIGHT},     {"TYPE", TABLE_TEXT},  {"STATUS", TABLE_LEFT},
	{"CREATED", TABLE_LEFT}, {"ERROR", TABLE_TEXT},
};

static int jobs_list_run(struct cli *cli, const struct parsed *args)
{
	struct print p = {.cli = cli, .args = args};
	struct sl_job_filter filter = {
		SL_JOB_FILTER_INIT,
		.key = opt_str(args, "key"),
		.created_from_ms = opt_num(args, "since"),
		.created_to_ms = opt_num(args, "until"),
		.limit = (uint32_t)opt_num(args, "limit"),
		.ascending = opt_flag(args, "oldest-first"),
		.without_data = !opt_flag(args, "json"),
	};
	/* Options whose value is an id. */
	const struct {
		const char *option;
		uint64_t *to;
	} ids[] = {{"chain", &filter.chain_id}, {"waiting-for", &filter.blocks}, {"cursor", &filter.after}};
	SL_CLEANUP(jobstore_close) struct jobstore store = {0};
	struct sl_err err = SL_ERR_INIT;
	const char *types[64], *text;
	int rc = 0;

	/* The filter. */
	for (int i = 0; (text = opt_all(args, "status", i)) != NULL; i++) {
		enum sl_job_status status = sl_job_status_from(text);

		if (!status)
			return cli_usage(
				cli,
				"--status: unknown status '%.100s'; use ready, scheduled, retrying, pending (all "
				"three), blocked, running, completed, failed or cancelled",
				text);
		filter.statuses |= 1u << status;
	}
	for (; filter.n_types < 64 && (text = opt_all(args, "type", (int)filter.n_types)) != NULL; filter.n_types++)
		types[filter.n_types] = text;
	filter.types = types;
	for (size_t i = 0; rc == 0 && i < SL_COUNT(ids); i++)
		rc = opt_given(args, ids[i].option) ? jobstore_id(cli, opt_str(args, ids[i].option), ids[i].to) : 0;
	if (rc != 0)
		return rc;

	rc = jobstore_open(cli, args, JOBSTORE_EXISTING, &store);
	if (rc != 0)
		return rc;
	/* JSON has input and output as well; the lines for people are read without them. */
	if (opt_flag(args, "chains")) {
		table_begin(&p.table, &cli->out, chain_columns, SL_COUNT(chain_columns));
		rc = sl_jobs_list_chains(store.client, &filter, print_chain, &p, &err);
	} else {
		table_begin(&p.table, &cli->out, job_columns, SL_COUNT(job_columns));
		rc = sl_jobs_list(store.client, &filter, print_job, &p, &err);
	}
	table_end(&p.table);
	if (rc != 0 && stop_requested())
		return cli_interrupted(cli);
	if (rc != 0)
		return out_failed(&cli->out) ? EXIT_OK : jobstore_fail(cli, args, &err);
	/* A full page may be the end: whether there is more, only the next one shows. */
	if (p.n == filter.limit && !opt_flag(args, "json"))
		cli_say(cli, SL_LOG_WARN, "there may be more; continue with --cursor=%" PRIu64, p.last);
	return EXIT_OK;
}

static const struct opt list_opts[] = {
	JOBSTORE_OPT_STORE,
	{.name = "type",
	 .letter = 't',
	 .kind = OPT_STRING,
	 .arg = "NAME",
	 .repeat = true,
	 .help = "List only jobs of this type"},
	{.name = "status",
	 .kind = OPT_STRING,
	 .arg = "STATUS",
	 .repeat = true,
	 .help = "List only jobs that are ready, scheduled, retrying, pending (all three), blocked, running, "
		 "completed, failed or cancelled"},
	OPT_TEXT("chain", 0, "ID", "List only jobs of this chain"),
	OPT_TEXT("waiting-for", 0, "ID", "List only jobs that wait, or waited, for this chain"),
	OPT_TEXT("key", 0, "KEY", "List only the job with this deduplication key"),
	{.name = "since", .kind = OPT_TIME, .arg = "TIME", .help = "List only jobs created at or after this time"},
	{.name = "until", .kind = OPT_TIME, .arg = "TIME", .help = "List only jobs created before this time"},
	{.name = "chains", .kind = OPT_FLAG, .help = "List chains instead of jobs"},
	{.name = "oldest-first", .kind = OPT_FLAG, .help = "Sort by ascending id (default: newest first)"},
	{.name = "limit",
	 .kind = OPT_INT,
	 .arg = "N",
	 .def = "100",
	 .min = 1,
	 .max = 10000,
	 .help = "List at most N jobs"},
	OPT_TEXT("cursor", 0, "ID", "Continue after the job with this id"),
	OPT_JSON("Print JSON"),
	{.name = NULL},
};

const struct command cmd_jobs_list = {
	.name = "jobs list",
	.operands = "",
	.summary = "list jobs or chains",
	.opts = list_opts,
	.description = "Prints one line per job: id, chain, type, status, attempt, time of creation and the last "
		       "error. 'sluice "
		       "jobs show ID' prints everything about one.",
	.example = "sluice jobs list --status failed --type mail\n"
		   "sluice jobs list --since 1h --json",
	.run = jobs_list_run,
};

/* ---- show ---- */

static int print_attempt_json(const struct sl_attempt_record *a, void *ctx)
{
	struct print *p = ctx;
	struct out *out = &p->cli->out;

	out_printf(out, "%s{\"attempt\":%d", p->n++ ? "," : "", a->attempt);
	jobstore_string_field(out, "outcome", sl_attempt_outcome_name(a->outcome));
	jobstore_string_field(out, "worker", a->worker);
	jobstore_string_field(out, "error", a->error);
	jobstore_time_field(out, "started_at", a->started_ms);
	jobstore_time_field(out, "ended_at", a->ended_ms);
	out_str(out, "}");
	return 0;
}

static int print_attempt(const struct sl_attempt_record *a, void *ctx)
{
	struct print *p = ctx;
	char worker[64], error[160], started[TEXT_TIME_BYTES], ended[TEXT_TIME_BYTES];

	/* One that was started by a client of another language may have no worker or error. */
	text_line(worker, sizeof(worker), a->worker != NULL ? a->worker : "-");
	text_line(error, sizeof(error), a->error != NULL ? a->error : "");
	out_printf(&p->cli->out, "  attempt %d  %-11s  %s  %s .. %s  %s\n", a->attempt,
		   sl_attempt_outcome_name(a->outcome), worker, text_moment(started, &p->cli->out, a->started_ms),
		   text_moment(ended, &p->cli->out, a->ended_ms), error);
	return 0;
}

static void show_line(struct out *out, const char *name, const char *value)
{
	if (value == NULL)
		return;
	out_printf(out, "%-14s", name);
	text_quoted(out, value, strlen(value), 2000);
	out_str(out, "\n");
}

static void show_json(struct out *out, const char *name, const char *value)
{
	if (value == NULL)
		return;
	out_printf(out, "%-14s", name);
	jobstore_show_json(out, value);
	out_str(out, "\n");
}

static void show_time(struct out *out, const char *name, int64_t ms)
{
	char buf[TEXT_TIME_BYTES];

	if (ms)
		out_printf(out, "%-14s%s\n", name, text_moment(buf, out, ms));
}

static void show_job(struct out *out, const struct sl_job *job)
{
	char type[160];

	text_line(type, sizeof(type), job->type);
	out_printf(out, "%-14s%" PRIu64 "\n%-14s%" PRIu64 "\n%-14s%s\n%-14s%s\n%-14s%d\n%-14s%d\n", "id", job->id,
		   "chain", job->chain_id, "type", type, "status", sl_job_status_name(job->state), "attempt",
		   job->attempt, "priority", job->priority);
	/* What is not set is left out, so that a short job is a short page. */
	show_json(out, "input", job->input);
	show_json(out, "output", job->output);
	show_line(out, "error", job->error);
	show_json(out, "progress", job->progress);
	show_line(out, "key", job->key);
	show_line(out, "leased by", job->leased_by);
	show_time(out, "leased until", job->leased_until_ms);
	show_time(out, "created", job->created_ms);
	show_time(out, "scheduled for", job->scheduled_ms);
	show_time(out, "started", job->started_ms);
	show_time(out, "ended", job->ended_ms);
	if (job->next_id)
		out_printf(out, "%-14s%" PRIu64 "\n", "continued with", job->next_id);
	if (job->blockers_open)
		out_printf(out, "%-14s%u\n", "waits for", job->blockers_open);
}

static int jobs_show_run(struct cli *cli, const struct parsed *args)
{
	SL_CLEANUP(jobstore_close) struct jobstore store = {0};
	struct print p = {.cli = cli, .args = args};
	struct sl_err err = SL_ERR_INIT;
	struct sl_job *job = NULL;
	bool json = opt_flag(args, "json");
	int rc = jobstore_open_ids(cli, args, &store);

	if (rc != 0)
		return rc;
	/* The job, then its attempts: in JSON they are one object. */
	if (sl_jobs_get(store.client, store.ids[0], &job, &err))
		return jobstore_fail(cli, args, &err);
	if (json) {
		out_str(&cli->out, "{");
		jobstore_job_fields(&cli->out, job);
		out_str(&cli->out, ",\"attempts\":[");
	} else {
		show_job(&cli->out, job);
	}
	rc = sl_jobs_attempts(store.client, job->id, json ? print_attempt_json : print_attempt, &p, &err);
	if (json)
		out_str(&cli->out, "]}\n");
	sl_job_release(store.client, job);
	if (rc != 0)
		return jobstore_fail(cli, args, &err);
	return EXIT_OK;
}

const struct command cmd_jobs_show = {
	.name = "jobs show",
	.operands = "ID",
	.summary = "show a job with its attempts",
	.opts = jobstore_opts,
	.description = "Prints everything in the store about one job, and how each of its attempts ended.",
	.example = "sluice jobs show 42\n"
		   "sluice jobs show 42 --json",
	.run = jobs_show_run,
};

/* ---- wait ---- */

static int jobs_wait_run(struct cli *cli, const struct parsed *args)
{
	int64_t timeout_ms = opt_given(args, "timeout") ? opt_num(args, "timeout") : SL_UNLIMITED;
	SL_CLEANUP(jobstore_close) struct jobstore store = {0};
	const struct sl_chain *chain;
	struct waiting w;
	int rc = jobstore_open_ids(cli, args, &store);

	if (rc != 0)
		return rc;
	/* The wait is on another thread, so that a signal ends this command immediately. */
	rc = waiting_start(&w, cli, store.client, store.ids[0], timeout_ms);
	if (rc != 0)
		return rc;
	if (waiting_until_signal_or(&w, -1) == WAITING_SIGNAL)
		waiting_abandon(cli, cli_interrupted(cli));
	waiting_join(&w);
	if (w.rc)
		return jobstore_fail(cli, args, &w.err);

	/* It has ended: print it, and report a failure in the exit code. */
	chain = w.chain;
	if (opt_flag(args, "json")) {
		out_str(&cli->out, "{");
		jobstore_chain_fields(&cli->out, chain);
		out_str(&cli->out, "}\n");
	} else if (chain->status == SL_JOB_COMPLETED) {
		jobstore_raw_json(&cli->out, chain->output);
		out_str(&cli->out, "\n");
	}
	if (chain->status != SL_JOB_COMPLETED) {
		cli_say(cli, SL_LOG_ERROR, "chain %" PRIu64 " is %s%s%s", chain->id, sl_job_status_name(chain->status),
			chain->error != NULL ? ": " : "", chain->error != NULL ? chain->error : "");
		rc = EXIT_BAD_DATA;
	}
	sl_chain_release(store.client, w.chain);
	return rc;
}

static const struct opt wait_opts[] = {
	JOBSTORE_OPT_STORE,
	{.name = "timeout",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .min = 0,
	 .max = INT64_C(315360000000),
	 .help = "Give up after this long, with status 75"},
	OPT_JSON("Print JSON"),
	{.name = NULL},
};

const struct command cmd_jobs_wait = {
	.name = "jobs wait",
	.operands = "CHAIN",
	.summary = "wait until a chain has ended and print its output",
	.opts = wait_opts,
	.description = "Exits with 0 if the chain completed, 65 if it failed, was cancelled or is unknown, and 75 if "
		       "the time ran out.",
	.example = "sluice jobs wait 42\n"
		   "sluice jobs wait 42 --timeout 5m",
	.run = jobs_wait_run,
};

/* ---- audit ---- */

struct listing {
	struct out *out;
	struct table table;
	bool json;
};

static int print_audit_record(const struct sl_audit_record *r, void *ctx)
{
	const char *via = r->via == SL_VIA_HTTP ? "http" : r->via == SL_VIA_COMMAND ? "command" : "library";
	struct listing *l = ctx;
	struct out *out = l->out;
	char time[TEXT_TIME_BYTES], chains[160] = "";
	size_t used = 0;

	if (l->json) {
		out_printf(out, "{\"id\":\"%" PRIu64 "\"", r->id);
		jobstore_time_field(out, "time", r->time_ms);
		jobstore_string_field(out, "actor", r->actor);
		jobstore_string_field(out, "via", via);
		jobstore_string_field(out, "address", r->address);
		jobstore_string_field(out, "action", r->action);
		jobstore_string_field(out, "request_id", r->request_id);
		out_str(out, ",\"chains\":[");
		for (size_t i = 0; i < r->n_chains; i++)
			out_printf(out, "%s\"%" PRIu64 "\"", i ? "," : "", r->chains[i]);
		out_str(out, "]");
		jobstore_raw_field(out, "detail", r->detail);
		out_str(out, "}\n");
		return 0;
	}
	table_cell(&l->table, "%s", text_moment(time, out, r->time_ms));
	table_cell(&l->table, "%s", r->actor);
	table_cell(&l->table, "%s", via);
	table_cell(&l->table, "%s", r->action);
	/* A change of many chains names the first five. */
	for (size_t i = 0; i < r->n_chains && i < 5; i++)
		used += (size_t)snprintf(chains + used, sizeof(chains) - used, "%s%" PRIu64, i ? "," : "",
					 r->chains[i]);
	if (r->n_chains > 5)
		(void)snprintf(chains + used, sizeof(chains) - used, ",… (%zu)", r->n_chains);
	table_cell(&l->table, "%s", chains);
	table_cell(&l->table, "%.2000s", r->detail != NULL ? r->detail : "");
	return out_failed(out);
}

static const struct table_column audit_columns[] = {
	{"TIME", TABLE_LEFT},   {"WHO", TABLE_TEXT},    {"VIA", TABLE_LEFT},
	{"ACTION", TABLE_LEFT}, {"CHAINS", TABLE_TEXT}, {"DETAIL", TABLE_TEXT},
};

static int jobs_audit_run(struct cli *cli, const struct parsed *args)
{
	struct listing l = {.out = &cli->out, .json = opt_flag(args, "json")};
	SL_CLEANUP(jobstore_close) struct jobstore store = {0};
	struct sl_err err = SL_ERR_INIT;
	int rc = jobstore_open(cli, args, JOBSTORE_EXISTING, &store);

	if (rc != 0)
		return rc;
	table_begin(&l.table, l.out, audit_columns, SL_COUNT(audit_columns));
	rc = sl_jobs_audit_list(store.client, (uint64_t)opt_num(args, "before"), (uint32_t)opt_num(args, "limit"),
				print_audit_record, &l, &err);
	table_end(&l.table);
	return rc && !out_failed(l.out) ? jobstore_fail(cli, args, &err) : EXIT_OK;
}

static const struct opt jobs_audit_opts[] = {
	JOBSTORE_OPT_STORE,
	{.name = "limit",
	 .letter = 'n',
	 .kind = OPT_INT,
	 .arg = "N",
	 .def = "50",
	 .min = 1,
	 .max = 10000,
	 .help = "Print at most N records"},
	{.name = "before",
	 .kind = OPT_INT,
	 .arg = "ID",
	 .def = "0",
	 .min = 0,
	 .max = INT64_MAX,
	 .help = "Print only records older than the one with this id"},
	OPT_JSON("Print JSON"),
	{.name = NULL},
};

const struct command cmd_jobs_audit = {
	.name = "jobs audit",
	.operands = "",
	.summary = "show who changed what",
	.opts = jobs_audit_opts,
	.description =
		"Every change requested over HTTP or by a command is recorded in the store, in the transaction of the "
		"change. Prints the newest record first. 'sluice jobs prune' and the server remove old records.",
	.example = "sluice jobs audit --limit 20\nsluice jobs audit --json | jq 'select(.actor == \"ci\")'",
	.run = jobs_audit_run,
};
