/* SPDX-License-Identifier: Apache-2.0 */
/* sluice jobs: look at jobs and change what becomes of them. */
#include "commands.h"
#include "jobstore.h"
#include "stop.h"
#include "text.h"
#include "values.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct print {
	struct cli *cli;
	const struct parsed *args;
	uint64_t last; /* id of the last one printed */
	uint32_t n;
};

/* ---- list ---- */

static int print_job(const struct sl_job *job, void *ctx)
{
	struct print *p = ctx;
	struct out *out = &p->cli->out;
	char created[TEXT_TIME_BYTES], type[64], error[80];

	p->last = job->id;
	p->n++;
	if (opt_flag(p->args, "json")) {
		out_str(out, "{");
		jobstore_job_fields(out, job);
		out_str(out, "}\n");
	} else {
		text_line(type, sizeof(type), job->type);
		text_line(error, sizeof(error), job->error ? job->error : "");
		out_printf(out, "%-10" PRIu64 " %-10" PRIu64 " %-24s %-9s %3d  %s  %s\n", job->id, job->chain_id, type,
			   sl_job_status_name(job->status), job->attempt, text_time(created, job->created_ms), error);
	}
	return out_failed(out) || stop_requested() ? SL_ECANCELLED : 0;
}

static int print_chain(const struct sl_chain *chain, void *ctx)
{
	struct print *p = ctx;
	struct out *out = &p->cli->out;
	char created[TEXT_TIME_BYTES], type[64], error[80];

	p->last = chain->id;
	p->n++;
	if (opt_flag(p->args, "json")) {
		out_str(out, "{");
		jobstore_chain_fields(out, chain);
		out_str(out, "}\n");
	} else {
		text_line(type, sizeof(type), chain->type);
		text_line(error, sizeof(error), chain->error ? chain->error : "");
		out_printf(out, "%-10" PRIu64 " %-24s %-9s  %s  %s\n", chain->id, type,
			   sl_job_status_name(chain->status), text_time(created, chain->created_ms), error);
	}
	return out_failed(out) || stop_requested() ? SL_ECANCELLED : 0;
}

static int read_statuses(struct cli *cli, const struct parsed *args, uint32_t *out)
{
	const char *text;

	for (int i = 0; (text = opt_all(args, "status", i)) != NULL; i++) {
		enum sl_job_status status = sl_job_status_from(text);

		if (!status)
			return cli_usage(
				cli,
				"--status: '%.100s' is not blocked, pending, running, completed, failed or cancelled",
				text);
		*out |= 1u << status;
	}
	return 0;
}

static int optional_id(struct cli *cli, const struct parsed *args, const char *name, uint64_t *out)
{
	return opt_given(args, name) ? jobstore_id(cli, opt_str(args, name), out) : 0;
}

static int read_filter(struct cli *cli, const struct parsed *args, struct sl_job_filter *f, const char **types)
{
	int rc = read_statuses(cli, args, &f->statuses);

	while (f->n_types < 64 && opt_all(args, "type", (int)f->n_types)) {
		types[f->n_types] = opt_all(args, "type", (int)f->n_types);
		f->n_types++;
	}
	f->types = types;
	rc = rc ? rc : optional_id(cli, args, "chain", &f->chain_id);
	rc = rc ? rc : optional_id(cli, args, "waiting-for", &f->blocks);
	rc = rc ? rc : optional_id(cli, args, "cursor", &f->after);
	f->key = opt_str(args, "key");
	f->created_from_ms = opt_num(args, "since");
	f->created_to_ms = opt_num(args, "until");
	f->limit = (uint32_t)opt_num(args, "limit");
	f->ascending = opt_flag(args, "oldest-first");
	f->without_data = !opt_flag(args, "json");
	return rc;
}

static int list_run(struct cli *cli, const struct parsed *args)
{
	struct print p = {.cli = cli, .args = args};
	struct sl_job_filter filter = {0};
	struct sl_err err = SL_ERR_INIT;
	const char *types[64];
	struct jobstore store;
	int rc = read_filter(cli, args, &filter, types);

	if (rc)
		return rc;
	rc = jobstore_open(cli, args, &store);
	if (!rc) {
		int code = opt_flag(args, "chains") ? sl_jobs_list_chains(store.client, &filter, print_chain, &p, &err)
						    : sl_jobs_list(store.client, &filter, print_job, &p, &err);

		if (code && stop_requested())
			rc = cli_interrupted(cli);
		else if (code && !out_failed(&cli->out))
			rc = jobstore_fail(cli, args, &err);
		else if (p.n == filter.limit && !opt_flag(args, "json"))
			cli_say(cli, SL_LOG_WARN, "there may be more: --cursor=%" PRIu64, p.last);
	}
	jobstore_close(&store);
	return rc;
}

static const struct opt list_opts[] = {
	JOBSTORE_OPT_STORE,
	{.name = "type", .letter = 't', .kind = OPT_STRING, .arg = "NAME", .repeat = 1, .help = "Only this type"},
	{.name = "status", .kind = OPT_STRING, .arg = "STATUS", .repeat = 1, .help = "Only this status"},
	{.name = "chain", .kind = OPT_STRING, .arg = "ID", .help = "Only jobs of this chain"},
	{.name = "waiting-for",
	 .kind = OPT_STRING,
	 .arg = "ID",
	 .help = "Only those that wait, or waited, for this chain"},
	{.name = "key", .kind = OPT_STRING, .arg = "KEY", .help = "Only the one with this deduplication key"},
	{.name = "since", .kind = OPT_TIME, .arg = "TIME", .help = "Only those created at this time or later"},
	{.name = "until", .kind = OPT_TIME, .arg = "TIME", .help = "Only those created before"},
	{.name = "chains", .kind = OPT_FLAG, .help = "List chains instead of jobs"},
	{.name = "oldest-first", .kind = OPT_FLAG, .help = "By ascending id instead of the newest first"},
	{.name = "limit", .kind = OPT_INT, .arg = "N", .def = "100", .min = 1, .max = 10000, .help = "At most so many"},
	{.name = "cursor", .kind = OPT_STRING, .arg = "ID", .help = "Go on after this one"},
	JOBSTORE_OPT_JSON,
	{.name = NULL},
};

const struct command cmd_jobs_list = {
	.name = "jobs list",
	.operands = "",
	.summary = "list jobs or chains",
	.opts = list_opts,
	.description = "One line a job: id, chain, type, status, attempts, time of creation and the last error.",
	.example = "sluice jobs list --status failed --type mail",
	.run = list_run,
};

/* ---- show ---- */

static int print_attempt_json(const struct sl_attempt_record *a, void *ctx)
{
	struct print *p = ctx;
	struct out *out = &p->cli->out;

	out_printf(out, "%s{\"attempt\":%d,\"outcome\":\"%s\",\"worker\":", p->n++ ? "," : "", a->attempt,
		   sl_attempt_outcome_name(a->outcome));
	jobstore_json_string(out, a->worker);
	out_str(out, ",\"error\":");
	jobstore_json_string(out, a->error);
	out_str(out, ",\"started_at\":");
	jobstore_json_time(out, a->started_ms);
	out_str(out, ",\"ended_at\":");
	jobstore_json_time(out, a->ended_ms);
	out_str(out, "}");
	return 0;
}

static int print_attempt(const struct sl_attempt_record *a, void *ctx)
{
	struct print *p = ctx;
	char worker[64], error[160], started[TEXT_TIME_BYTES], ended[TEXT_TIME_BYTES];

	text_line(worker, sizeof(worker), a->worker ? a->worker : "-");
	text_line(error, sizeof(error), a->error ? a->error : "");
	out_printf(&p->cli->out, "  attempt %d  %-11s  %s  %s .. %s  %s\n", a->attempt,
		   sl_attempt_outcome_name(a->outcome), worker, a->started_ms ? text_time(started, a->started_ms) : "-",
		   a->ended_ms ? text_time(ended, a->ended_ms) : "-", error);
	return 0;
}

static void show_line(struct out *out, const char *name, const char *value)
{
	if (!value)
		return;
	out_printf(out, "%-14s", name);
	text_quoted(out, value, strlen(value), 2000);
	out_str(out, "\n");
}

static void show_time(struct out *out, const char *name, int64_t ms)
{
	char buf[TEXT_TIME_BYTES];

	if (ms)
		out_printf(out, "%-14s%s\n", name, text_time(buf, ms));
}

static void show_job(struct out *out, const struct sl_job *job)
{
	char type[160];

	text_line(type, sizeof(type), job->type);
	out_printf(out, "%-14s%" PRIu64 "\n%-14s%" PRIu64 "\n%-14s%s\n%-14s%s\n%-14s%d\n%-14s%d\n", "id", job->id,
		   "chain", job->chain_id, "type", type, "status", sl_job_status_name(job->status), "attempt",
		   job->attempt, "priority", job->priority);
	show_line(out, "input", job->input);
	show_line(out, "output", job->output);
	show_line(out, "error", job->error);
	show_line(out, "progress", job->progress);
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

static int show(struct cli *cli, const struct parsed *args, struct jobstore *store, uint64_t id)
{
	struct print p = {.cli = cli, .args = args};
	struct sl_err err = SL_ERR_INIT;
	struct sl_job *job = NULL;
	int json = opt_flag(args, "json");
	int rc = sl_jobs_get(store->client, id, &job, &err);

	if (rc)
		return jobstore_fail(cli, args, &err);
	if (json) {
		out_str(&cli->out, "{");
		jobstore_job_fields(&cli->out, job);
		out_str(&cli->out, ",\"attempts\":[");
	} else {
		show_job(&cli->out, job);
	}
	rc = sl_jobs_attempts(store->client, id, json ? print_attempt_json : print_attempt, &p, &err);
	if (json)
		out_str(&cli->out, "]}\n");
	sl_jobs_free(store->client, job);
	return rc ? jobstore_fail(cli, args, &err) : EXIT_OK;
}

static int show_run(struct cli *cli, const struct parsed *args)
{
	struct jobstore store;
	uint64_t id;
	int rc = jobstore_id(cli, args->operands[0], &id);

	if (rc)
		return rc;
	rc = jobstore_open(cli, args, &store);
	rc = rc ? rc : show(cli, args, &store, id);
	jobstore_close(&store);
	return rc;
}

static const struct opt plain_opts[] = {
	JOBSTORE_OPT_STORE,
	JOBSTORE_OPT_JSON,
	{.name = NULL},
};

const struct command cmd_jobs_show = {
	.name = "jobs show",
	.operands = "ID",
	.summary = "show a job with its attempts",
	.opts = plain_opts,
	.description = "Everything the store knows of one job, and how each of its attempts ended.",
	.example = "sluice jobs show 42 --json",
	.run = show_run,
};

/* ---- wait ---- */

static int wait_for(struct cli *cli, const struct parsed *args, struct jobstore *store, uint64_t id)
{
	int64_t left = opt_given(args, "timeout") ? opt_num(args, "timeout") : INT64_MAX;
	struct sl_chain *chain = NULL;
	struct sl_err err = SL_ERR_INIT;
	int rc;

	do { /* short waits, so that a signal is noticed; each is notified, not polled */
		int64_t turn = left < 200 ? left : 200;

		rc = sl_jobs_wait(store->client, id, turn, &chain, &err);
		left -= turn;
	} while (rc == SL_ETIMEDOUT && left > 0 && !stop_requested());
	if (rc == SL_ETIMEDOUT && stop_requested())
		return cli_interrupted(cli);
	if (rc)
		return jobstore_fail(cli, args, &err);
	if (opt_flag(args, "json")) {
		out_str(&cli->out, "{");
		jobstore_chain_fields(&cli->out, chain);
		out_str(&cli->out, "}\n");
	} else if (chain->status == SL_JOB_COMPLETED) {
		jobstore_raw_json(&cli->out, chain->output);
		out_str(&cli->out, "\n");
	}
	rc = chain->status == SL_JOB_COMPLETED ? EXIT_OK : EXIT_BAD_DATA;
	if (rc)
		cli_say(cli, SL_LOG_ERROR, "chain %" PRIu64 " is %s%s%s", id, sl_job_status_name(chain->status),
			chain->error ? ": " : "", chain->error ? chain->error : "");
	sl_jobs_free(store->client, chain);
	return rc;
}

static int wait_run(struct cli *cli, const struct parsed *args)
{
	struct jobstore store;
	uint64_t id;
	int rc = jobstore_id(cli, args->operands[0], &id);

	if (rc)
		return rc;
	rc = jobstore_open(cli, args, &store);
	rc = rc ? rc : wait_for(cli, args, &store, id);
	jobstore_close(&store);
	return rc;
}

static const struct opt wait_opts[] = {
	JOBSTORE_OPT_STORE,
	{.name = "timeout",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .min = 0,
	 .max = INT64_C(315360000000),
	 .help = "Give up after so long, with status 75"},
	JOBSTORE_OPT_JSON,
	{.name = NULL},
};

const struct command cmd_jobs_wait = {
	.name = "jobs wait",
	.operands = "CHAIN",
	.summary = "wait until a chain has ended and print its output",
	.opts = wait_opts,
	.description =
		"Status 0 when the chain completed, 65 when it failed or was cancelled, 75 when the time ran out.",
	.example = "sluice jobs wait 42 --timeout 5m",
	.run = wait_run,
};

/* ---- what changes chains: retry, cancel, trigger, delete ---- */

typedef int change_fn(struct jobstore *store, const struct parsed *args, const uint64_t *ids, size_t n_ids, size_t *n,
		      struct sl_err *err);

static int change_run(struct cli *cli, const struct parsed *args, change_fn *change, const char *done)
{
	struct sl_err err = SL_ERR_INIT;
	struct jobstore store;
	uint64_t *ids = NULL;
	size_t n_ids = 0, n = 0;
	int rc = jobstore_ids(cli, args, 0, &ids, &n_ids);

	if (!rc)
		rc = jobstore_open(cli, args, &store);
	else
		memset(&store, 0, sizeof(store));
	if (!rc && change(&store, args, ids, n_ids, &n, &err))
		rc = jobstore_fail(cli, args, &err);
	else if (!rc && opt_flag(args, "json"))
		out_printf(&cli->out, "{\"%s\":%zu,\"unchanged\":%zu}\n", done, n, n_ids > n ? n_ids - n : 0);
	else if (!rc)
		out_printf(&cli->out, "%s %zu of %zu\n", done, n, n_ids);
	jobstore_close(&store);
	free(ids);
	return rc;
}

static int retry_ids(struct jobstore *store, const struct parsed *args, const uint64_t *ids, size_t n_ids, size_t *n,
		     struct sl_err *err)
{
	(void)args;
	return sl_jobs_redrive(store->client, NULL, ids, n_ids, n, err);
}

static int cancel_ids(struct jobstore *store, const struct parsed *args, const uint64_t *ids, size_t n_ids, size_t *n,
		      struct sl_err *err)
{
	(void)args;
	return sl_jobs_cancel(store->client, NULL, ids, n_ids, n, err);
}

static int trigger_ids(struct jobstore *store, const struct parsed *args, const uint64_t *ids, size_t n_ids, size_t *n,
		       struct sl_err *err)
{
	(void)args;
	return sl_jobs_trigger(store->client, NULL, ids, n_ids, n, err);
}

static int delete_ids(struct jobstore *store, const struct parsed *args, const uint64_t *ids, size_t n_ids, size_t *n,
		      struct sl_err *err)
{
	return sl_jobs_delete(store->client, NULL, ids, n_ids, opt_flag(args, "cascade"), n, err);
}

static int retry_run(struct cli *cli, const struct parsed *args)
{
	return change_run(cli, args, retry_ids, "redriven");
}

static int cancel_run(struct cli *cli, const struct parsed *args)
{
	return change_run(cli, args, cancel_ids, "cancelled");
}

static int trigger_run(struct cli *cli, const struct parsed *args)
{
	return change_run(cli, args, trigger_ids, "triggered");
}

static int delete_run(struct cli *cli, const struct parsed *args)
{
	return change_run(cli, args, delete_ids, "deleted");
}

static const struct opt delete_opts[] = {
	JOBSTORE_OPT_STORE,
	{.name = "cascade", .kind = OPT_FLAG, .help = "Delete the chains that wait for these, too"},
	JOBSTORE_OPT_JSON,
	{.name = NULL},
};

const struct command cmd_jobs_retry = {
	.name = "jobs retry",
	.operands = "CHAIN…",
	.summary = "run failed or cancelled chains again",
	.opts = plain_opts,
	.description =
		"They go on at the job where they stopped, with their attempts counted anew. Chains in another state "
		"are left alone.",
	.example = "sluice jobs retry 42 43",
	.run = retry_run,
};
const struct command cmd_jobs_cancel = {
	.name = "jobs cancel",
	.operands = "CHAIN…",
	.summary = "cancel chains",
	.opts = plain_opts,
	.description =
		"A job that runs is aborted: its worker hears of it at once. Chains that have ended are left alone.",
	.example = "sluice jobs cancel 42",
	.run = cancel_run,
};
const struct command cmd_jobs_trigger = {
	.name = "jobs trigger",
	.operands = "CHAIN…",
	.summary = "run scheduled chains now",
	.opts = plain_opts,
	.description = "A job that is scheduled for later, or waits for its next attempt, becomes due at once.",
	.example = "sluice jobs trigger 42",
	.run = trigger_run,
};
const struct command cmd_jobs_delete = {
	.name = "jobs delete",
	.operands = "CHAIN…",
	.summary = "delete chains with their jobs and events",
	.opts = delete_opts,
	.description =
		"Refused, and nothing deleted, when other chains wait for one of them, unless --cascade is given.",
	.example = "sluice jobs delete 42 --cascade",
	.run = delete_run,
};

/* ---- pause, resume ---- */

static int pause_types(struct cli *cli, const struct parsed *args, int pause)
{
	struct sl_err err = SL_ERR_INIT;
	struct jobstore store;
	int rc = jobstore_open(cli, args, &store);

	for (int i = 0; !rc && i < args->n_operands; i++) {
		const char *type = args->operands[i];
		int code = pause ? sl_jobs_pause(store.client, type, &err) : sl_jobs_resume(store.client, type, &err);

		if (code)
			rc = jobstore_fail(cli, args, &err);
	}
	jobstore_close(&store);
	return rc;
}

static int pause_run(struct cli *cli, const struct parsed *args)
{
	return pause_types(cli, args, 1);
}

static int resume_run(struct cli *cli, const struct parsed *args)
{
	return pause_types(cli, args, 0);
}

static const struct opt store_opts[] = {
	JOBSTORE_OPT_STORE,
	{.name = NULL},
};

const struct command cmd_jobs_pause = {
	.name = "jobs pause",
	.operands = "TYPE…",
	.summary = "stop handing out jobs of a type",
	.opts = store_opts,
	.description = "Jobs that run go on; no worker anywhere gets another one until 'sluice jobs resume'.",
	.example = "sluice jobs pause mail",
	.run = pause_run,
};
const struct command cmd_jobs_resume = {
	.name = "jobs resume",
	.operands = "TYPE…",
	.summary = "hand out jobs of a type again",
	.opts = store_opts,
	.description = "Ends what 'sluice jobs pause' began.",
	.example = "sluice jobs resume mail",
	.run = resume_run,
};

/* ---- stats ---- */

struct stats {
	struct cli *cli;
	json_t *totals, *types;
};

static int add_count(const struct sl_job_count *c, void *ctx)
{
	struct stats *s = ctx;
	const char *status = sl_job_status_name(c->status);
	json_t *type = json_object_get(s->types, c->type);

	if (!type) {
		type = json_object();
		for (int i = 1; i <= SL_JOB_STATUS_COUNT; i++)
			json_object_set_new(type, sl_job_status_name((enum sl_job_status)i), json_integer(0));
		json_object_set_new(type, "due", json_integer(0));
		json_object_set_new(type, "retrying", json_integer(0));
		json_object_set_new(type, "oldest_ms", json_null());
		json_object_set_new(type, "paused", json_false());
		if (json_object_set_new(s->types, c->type, type))
			return SL_ENOMEM;
	}
	json_object_set_new(type, status, json_integer((json_int_t)c->count));
	json_object_set_new(
		s->totals, status,
		json_integer(json_integer_value(json_object_get(s->totals, status)) + (json_int_t)c->count));
	if (c->status == SL_JOB_PENDING) {
		json_object_set_new(type, "due", json_integer((json_int_t)c->due));
		json_object_set_new(type, "retrying", json_integer((json_int_t)c->retrying));
	}
	if (c->oldest_ms) {
		json_t *known = json_object_get(type, "oldest_ms");

		if (!json_is_integer(known) || json_integer_value(known) > c->oldest_ms)
			json_object_set_new(type, "oldest_ms", json_integer(c->oldest_ms));
	}
	if (c->paused)
		json_object_set_new(type, "paused", json_true());
	return 0;
}

static json_int_t int_at(json_t *object, const char *name)
{
	return json_integer_value(json_object_get(object, name));
}

static void print_stats(struct stats *s)
{
	struct out *out = &s->cli->out;
	const char *name;
	json_t *type;
	char line[64];

	out_printf(out, "%-28s %9s %9s %9s %9s %9s %9s\n", "TYPE", "blocked", "pending", "running", "completed",
		   "failed", "cancelled");
	json_object_foreach(s->types, name, type)
	{
		text_line(line, sizeof(line), name);
		out_printf(out, "%-28s %9lld %9lld %9lld %9lld %9lld %9lld%s\n", line, int_at(type, "blocked"),
			   int_at(type, "pending"), int_at(type, "running"), int_at(type, "completed"),
			   int_at(type, "failed"), int_at(type, "cancelled"),
			   json_is_true(json_object_get(type, "paused")) ? "  paused" : "");
	}
	out_printf(out, "%-28s %9lld %9lld %9lld %9lld %9lld %9lld\n", "all", int_at(s->totals, "blocked"),
		   int_at(s->totals, "pending"), int_at(s->totals, "running"), int_at(s->totals, "completed"),
		   int_at(s->totals, "failed"), int_at(s->totals, "cancelled"));
}

static int stats_run(struct cli *cli, const struct parsed *args)
{
	struct stats s = {.cli = cli, .totals = json_object(), .types = json_object()};
	struct sl_err err = SL_ERR_INIT;
	struct jobstore store;
	int rc = jobstore_open(cli, args, &store);

	for (int i = 1; i <= SL_JOB_STATUS_COUNT; i++)
		json_object_set_new(s.totals, sl_job_status_name((enum sl_job_status)i), json_integer(0));
	if (!rc && sl_jobs_counts(store.client, add_count, &s, &err))
		rc = jobstore_fail(cli, args, &err);
	else if (!rc && opt_flag(args, "json"))
		out_json(&cli->out, json_pack("{s:O, s:O}", "totals", s.totals, "types", s.types));
	else if (!rc)
		print_stats(&s);
	if (!rc && opt_flag(args, "json"))
		out_str(&cli->out, "\n");
	json_decref(s.totals);
	json_decref(s.types);
	jobstore_close(&store);
	return rc;
}

const struct command cmd_jobs_stats = {
	.name = "jobs stats",
	.operands = "",
	.summary = "count jobs by type and status",
	.opts = plain_opts,
	.description =
		"With --json also how many are due or wait for another attempt, the oldest that has not ended, and "
		"whether the type is paused.",
	.example = "sluice jobs stats --json",
	.run = stats_run,
};

/* ---- migrate, prune ---- */

static int migrate_run(struct cli *cli, const struct parsed *args)
{
	struct sl_store_opts opts = {SL_STORE_OPTS_INIT, .env = &cli->env};
	struct sl_err err = SL_ERR_INIT;
	sl_store store = {0};
	int from = 0, to = 0, rc = EXIT_OK;

	if (sl_store_open(&store, jobstore_url(args), &opts, &err) || store.ops->migrate(store.ctx, &from, &to, &err))
		rc = jobstore_fail(cli, args, &err);
	else if (opt_flag(args, "json"))
		out_printf(&cli->out, "{\"schema_version\":%d}\n", to);
	else
		out_printf(&cli->out, "schema version %d\n", to);
	if (store.ops)
		sl_store_close(&store);
	return rc;
}

const struct command cmd_jobs_migrate = {
	.name = "jobs migrate",
	.operands = "",
	.summary = "bring the store's schema up to date",
	.opts = plain_opts,
	.description =
		"Every command does this by itself; here it is for deployments that want it as a step of its own. "
		"Doing it twice, or in several places at once, is harmless.",
	.example = "sluice jobs migrate --store postgres:///app",
	.run = migrate_run,
};

static int prune_run(struct cli *cli, const struct parsed *args)
{
	struct sl_err err = SL_ERR_INIT;
	struct jobstore store;
	uint64_t n = 0;
	int rc = jobstore_open(cli, args, &store);

	if (!rc && sl_jobs_prune(store.client, opt_num(args, "keep"), &n, &err))
		rc = jobstore_fail(cli, args, &err);
	else if (!rc)
		out_printf(&cli->out, opt_flag(args, "json") ? "{\"deleted\":%" PRIu64 "}\n" : "deleted %" PRIu64 "\n",
			   n);
	jobstore_close(&store);
	return rc;
}

static const struct opt prune_opts[] = {
	JOBSTORE_OPT_STORE,
	{.name = "keep",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "30d",
	 .min = 0,
	 .max = INT64_C(3153600000000),
	 .help = "Keep what has ended within this time"},
	JOBSTORE_OPT_JSON,
	{.name = NULL},
};

const struct command cmd_jobs_prune = {
	.name = "jobs prune",
	.operands = "",
	.summary = "delete chains that ended long ago",
	.opts = prune_opts,
	.description =
		"Deletes completed, failed and cancelled chains with their events, a bounded number at a time. Chains "
		"that others still wait for are kept.",
	.example = "sluice jobs prune --keep 90d",
	.run = prune_run,
};
