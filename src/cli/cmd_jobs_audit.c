/* SPDX-License-Identifier: Apache-2.0 */
/* sluice jobs audit: who changed what, the newest first. */
#include "commands.h"
#include "jobstore.h"
#include "text.h"

#include <inttypes.h>

struct listing {
	struct out *out;
	int json;
};

static const char *way(enum sl_via via)
{
	return via == SL_VIA_HTTP ? "http" : via == SL_VIA_COMMAND ? "command" : "library";
}

static void show_json(struct listing *l, const struct sl_audit_record *r)
{
	struct out *out = l->out;

	out_printf(out, "{\"id\":\"%" PRIu64 "\",\"time\":", r->id);
	jobstore_json_time(out, r->time_ms);
	out_printf(out, ",\"actor\":");
	jobstore_json_string(out, r->actor);
	out_printf(out, ",\"via\":\"%s\",\"address\":", way(r->via));
	jobstore_json_string(out, r->address);
	out_printf(out, ",\"action\":");
	jobstore_json_string(out, r->action);
	out_printf(out, ",\"request_id\":");
	jobstore_json_string(out, r->request_id);
	out_printf(out, ",\"chains\":[");
	for (size_t i = 0; i < r->n_chains; i++)
		out_printf(out, "%s\"%" PRIu64 "\"", i ? "," : "", r->chains[i]);
	out_printf(out, "],\"detail\":");
	jobstore_raw_json(out, r->detail);
	out_printf(out, "}\n");
}

static void show_text(struct listing *l, const struct sl_audit_record *r)
{
	char time[TEXT_TIME_BYTES];

	out_printf(l->out, "%s  %s  %s  %s", text_time(time, r->time_ms), r->actor, way(r->via), r->action);
	for (size_t i = 0; i < r->n_chains && i < 5; i++)
		out_printf(l->out, "%s%" PRIu64, i ? "," : "  ", r->chains[i]);
	if (r->n_chains > 5)
		out_printf(l->out, ",… (%zu)", r->n_chains);
	if (r->detail) {
		out_printf(l->out, "  ");
		jobstore_show_json(l->out, r->detail);
	}
	out_printf(l->out, "\n");
}

static int show(const struct sl_audit_record *r, void *ctx)
{
	struct listing *l = ctx;

	if (l->json)
		show_json(l, r);
	else
		show_text(l, r);
	return 0;
}

static int run(struct cli *cli, const struct parsed *args)
{
	struct listing l = {.out = &cli->out, .json = opt_flag(args, "json")};
	struct sl_err err = SL_ERR_INIT;
	struct jobstore store;
	int rc = jobstore_open_existing(cli, args, &store);

	if (!rc && sl_jobs_audit_list(store.client, (uint64_t)opt_num(args, "before"), (uint32_t)opt_num(args, "limit"),
				      show, &l, &err))
		rc = jobstore_fail(cli, args, &err);
	jobstore_close(&store);
	return rc;
}

static const struct opt opts_table[] = {
	JOBSTORE_OPT_STORE,
	{.name = "limit",
	 .letter = 'n',
	 .kind = OPT_INT,
	 .arg = "N",
	 .def = "50",
	 .min = 1,
	 .max = 10000,
	 .help = "At most this many records"},
	{.name = "before",
	 .kind = OPT_INT,
	 .arg = "ID",
	 .def = "0",
	 .min = 0,
	 .max = INT64_MAX,
	 .help = "Records that are older than the one with this id"},
	JOBSTORE_OPT_JSON,
	{.name = NULL},
};

const struct command cmd_jobs_audit = {
	.name = "jobs audit",
	.operands = "",
	.summary = "show who changed what",
	.opts = opts_table,
	.description =
		"Every change that was asked for over HTTP or by a command is a record in the store, written in the "
		"transaction of the change: without the record there is no change. Newest first. 'sluice jobs prune' "
		"and "
		"the server remove old records.",
	.example = "sluice jobs audit --limit 20\nsluice jobs audit --json | jq 'select(.actor == \"ci\")'",
	.run = run,
};
