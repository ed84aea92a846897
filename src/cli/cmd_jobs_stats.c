/* SPDX-License-Identifier: Apache-2.0 */
/* sluice jobs stats: how many jobs there are, by type and status. */
#include "commands.h"
#include "jobstore.h"
#include "text.h"

struct stats {
	struct cli *cli;
	json_t *totals, *types;
};

static json_int_t int_at(json_t *object, const char *name)
{
	return json_integer_value(json_object_get(object, name));
}

static void add_to(json_t *object, const char *name, uint64_t n)
{
	json_object_set_new(object, name, json_integer(int_at(object, name) + (json_int_t)n));
}

static int add_count(const struct sl_job_count *c, void *ctx)
{
	struct stats *s = ctx;
	const char *status = sl_job_status_name(c->status);
	const char *name = jobstore_shown_type(c->type);
	json_t *type = json_object_get(s->types, name);

	if (!type) {
		type = json_object();
		for (int i = 1; i <= SL_JOB_STATUS_COUNT; i++)
			json_object_set_new(type, sl_job_status_name((enum sl_job_status)i), json_integer(0));
		json_object_set_new(type, "due", json_integer(0));
		json_object_set_new(type, "retrying", json_integer(0));
		json_object_set_new(type, "oldest_ms", json_null());
		json_object_set_new(type, "paused", json_false());
		if (json_object_set_new(s->types, name, type))
			return SL_ENOMEM;
	}
	add_to(type, status, c->count);
	add_to(s->totals, status, c->count);
	if (c->status == SL_JOB_PENDING) {
		add_to(type, "due", c->due);
		add_to(type, "retrying", c->retrying);
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

static int jobs_stats_run(struct cli *cli, const struct parsed *args)
{
	struct stats s = {.cli = cli, .totals = json_object(), .types = json_object()};
	SL_CLEANUP(jobstore_close) struct jobstore store = {0};
	struct sl_err err = SL_ERR_INIT;
	int rc = jobstore_open(cli, args, JOBSTORE_EXISTING, &store);

	for (int i = 1; i <= SL_JOB_STATUS_COUNT; i++)
		json_object_set_new(s.totals, sl_job_status_name((enum sl_job_status)i), json_integer(0));
	if (!rc && sl_jobs_counts(store.client, add_count, &s, &err)) {
		rc = jobstore_fail(cli, args, &err);
	} else if (!rc && opt_flag(args, "json")) {
		out_json(&cli->out, json_pack("{s:O, s:O}", "totals", s.totals, "types", s.types));
		out_str(&cli->out, "\n");
	} else if (!rc) {
		print_stats(&s);
	}
	json_decref(s.totals);
	json_decref(s.types);
	return rc;
}

static const struct opt stats_opts[] = {
	JOBSTORE_OPT_STORE,
	OPT_JSON("Print JSON"),
	{.name = NULL},
};

const struct command cmd_jobs_stats = {
	.name = "jobs stats",
	.operands = "",
	.summary = "count jobs by type and status",
	.opts = stats_opts,
	.description = "With --json also how many are due or wait for another attempt, the oldest that has not ended, "
		       "and whether the type is paused.",
	.example = "sluice jobs stats --json",
	.run = jobs_stats_run,
};
