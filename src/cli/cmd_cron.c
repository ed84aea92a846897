/* SPDX-License-Identifier: Apache-2.0 */
/* sluice cron: recurring schedules. Workers enqueue the ticks; these commands only keep the list. */
#include "commands.h"
#include "jobstore.h"
#include "table.h"
#include "text.h"

#include <string.h>

static int cron_add_run(struct cli *cli, const struct parsed *args)
{
	/* The operands in order, the input last since it may be missing. */
	struct sl_cron cron = {
		SL_CRON_INIT,
		.name = args->operands[0],
		.spec = args->operands[1],
		.type = args->operands[2],
		.input = args->n_operands > 3 ? args->operands[3] : NULL,
		.priority = (int32_t)opt_num(args, "priority"),
		.catch_up = opt_flag(args, "catch-up"),
		.paused = opt_flag(args, "paused"),
	};
	SL_CLEANUP(jobstore_close) struct jobstore store = {0};
	struct sl_err err = SL_ERR_INIT;
	int rc = jobstore_open(cli, args, JOBSTORE_CREATE, &store);

	if (rc != 0)
		return rc;
	return sl_jobs_cron_put(store.client, &cron, &err) ? jobstore_fail(cli, args, &err) : EXIT_OK;
}

struct crons {
	struct table table;
	bool json;
};

static const struct table_column cron_columns[] = {
	{"NAME", TABLE_TEXT}, {"SCHEDULE", TABLE_TEXT}, {"TYPE", TABLE_TEXT},
	{"NEXT", TABLE_LEFT}, {"LAST", TABLE_LEFT},
};

static int print_cron(const struct sl_cron *cron, void *ctx)
{
	struct crons *c = ctx;
	struct out *out = c->table.out;
	char next[TEXT_TIME_BYTES], last[TEXT_TIME_BYTES];

	if (c->json) {
		out_str(out, "{\"name\":");
		jobstore_json_string(out, cron->name);
		jobstore_string_field(out, "spec", cron->spec);
		jobstore_string_field(out, "type", cron->type);
		jobstore_raw_field(out, "input", cron->input);
		out_printf(out, ",\"priority\":%d,\"catch_up\":%s,\"paused\":%s", cron->priority,
			   cron->catch_up ? "true" : "false", cron->paused ? "true" : "false");
		jobstore_time_field(out, "next_at", cron->next_ms);
		jobstore_time_field(out, "last_at", cron->last_ms);
		jobstore_id_field(out, "last_chain", cron->last_chain);
		out_str(out, "}\n");
		return out_failed(out) ? SL_ECANCELLED : 0;
	}
	table_cell(&c->table, "%s", cron->name);
	table_cell(&c->table, "%s", cron->spec);
	table_cell(&c->table, "%s", cron->type);
	table_cell(&c->table, "%s", cron->paused ? "paused" : text_moment(next, out, cron->next_ms));
	table_cell(&c->table, "%s", text_moment(last, out, cron->last_ms));
	return out_failed(out) ? SL_ECANCELLED : 0;
}

static int cron_list_run(struct cli *cli, const struct parsed *args)
{
	struct crons c = {.json = opt_flag(args, "json")};
	SL_CLEANUP(jobstore_close) struct jobstore store = {0};
	struct sl_err err = SL_ERR_INIT;
	int rc = jobstore_open(cli, args, JOBSTORE_EXISTING, &store);

	if (rc != 0)
		return rc;
	/* A broken output ends the list; cli_finish reports that one. */
	table_begin(&c.table, &cli->out, cron_columns, SL_COUNT(cron_columns));
	rc = sl_jobs_cron_list(store.client, print_cron, &c, &err);
	table_end(&c.table);
	return rc && !out_failed(&cli->out) ? jobstore_fail(cli, args, &err) : EXIT_OK;
}

static int cron_remove_run(struct cli *cli, const struct parsed *args)
{
	SL_CLEANUP(jobstore_close) struct jobstore store = {0};
	struct sl_err err = SL_ERR_INIT;
	int rc = jobstore_open(cli, args, JOBSTORE_EXISTING, &store);

	/* Each removal is a transaction: the ones before a name that is unknown stay removed. */
	for (int i = 0; rc == 0 && i < args->n_operands; i++) {
		if (sl_jobs_cron_remove(store.client, args->operands[i], &err))
			rc = jobstore_fail(cli, args, &err);
	}
	return rc;
}

static const struct opt add_opts[] = {
	JOBSTORE_OPT_STORE,
	JOBSTORE_OPT_PRIORITY("Priority of the jobs; lower runs first"),
	{.name = "catch-up",
	 .kind = OPT_FLAG,
	 .help = "Enqueue every tick that was missed while no worker ran, not only the newest"},
	{.name = "paused", .kind = OPT_FLAG, .help = "Enqueue nothing until it is added again without this option"},
	{.name = NULL},
};

const struct command cmd_cron_add = {
	.name = "cron add",
	.operands = "NAME SPEC TYPE JSON",
	.optional = 1,
	.summary = "enqueue a job on a schedule",
	.opts = add_opts,
	.description = "SPEC has five fields (minute, hour, day of month, month, day of week; lists, ranges, steps and "
		       "names) or is @hourly, @daily, @weekly, @monthly or @yearly; times are UTC. Running workers "
		       "enqueue each tick exactly once, however many there are. Adding a name again replaces it.",
	.example = "sluice cron add nightly '30 2 * * *' report '{\"kind\":\"full\"}'\n"
		   "sluice cron add hourly '@hourly' report",
	.run = cron_add_run,
};
const struct command cmd_cron_list = {
	.name = "cron list",
	.operands = "",
	.summary = "list recurring schedules",
	.opts = jobstore_opts,
	.description = "Prints name, schedule (in UTC), type, next and last tick, soonest first and paused "
		       "ones last.",
	.example = "sluice cron list\n"
		   "sluice cron list --json",
	.run = cron_list_run,
};
const struct command cmd_cron_remove = {
	.name = "cron remove",
	.operands = "NAME…",
	.summary = "remove recurring schedules",
	.opts = jobstore_opts_store,
	.description = "Jobs that were already enqueued stay.",
	.example = "sluice cron remove nightly\n"
		   "sluice cron remove nightly hourly",
	.run = cron_remove_run,
};
