/* SPDX-License-Identifier: Apache-2.0 */
/* sluice jobs audit: who changed what, the newest first. */
#include "commands.h"
#include "jobstore.h"
#include "text.h"

#include <inttypes.h>

struct listing {
	struct out *out;
	bool json;
};

static int print_audit_record(const struct sl_audit_record *r, void *ctx)
{
	const char *via = r->via == SL_VIA_HTTP ? "http" : r->via == SL_VIA_COMMAND ? "command" : "library";
	struct listing *l = ctx;
	struct out *out = l->out;
	char time[TEXT_TIME_BYTES];

	if (l->json) {
		out_printf(out, "{\"id\":\"%" PRIu64 "\",\"time\":", r->id);
		jobstore_json_time(out, r->time_ms);
		out_str(out, ",\"actor\":");
		jobstore_json_string(out, r->actor);
		out_printf(out, ",\"via\":\"%s\",\"address\":", via);
		jobstore_json_string(out, r->address);
		out_str(out, ",\"action\":");
		jobstore_json_string(out, r->action);
		out_str(out, ",\"request_id\":");
		jobstore_json_string(out, r->request_id);
		out_str(out, ",\"chains\":[");
		for (size_t i = 0; i < r->n_chains; i++)
			out_printf(out, "%s\"%" PRIu64 "\"", i ? "," : "", r->chains[i]);
		out_str(out, "],\"detail\":");
		jobstore_raw_json(out, r->detail);
		out_str(out, "}\n");
		return 0;
	}
	out_printf(out, "%s  %s  %s  %s", text_time(time, r->time_ms), r->actor, via, r->action);
	for (size_t i = 0; i < r->n_chains && i < 5; i++)
		out_printf(out, "%s%" PRIu64, i ? "," : "  ", r->chains[i]);
	if (r->n_chains > 5)
		out_printf(out, ",… (%zu)", r->n_chains);
	if (r->detail) {
		out_str(out, "  ");
		jobstore_show_json(out, r->detail);
	}
	out_str(out, "\n");
	return 0;
}

static int jobs_audit_run(struct cli *cli, const struct parsed *args)
{
	struct listing l = {.out = &cli->out, .json = opt_flag(args, "json")};
	SL_CLEANUP(jobstore_close) struct jobstore store = {0};
	struct sl_err err = SL_ERR_INIT;
	int rc = jobstore_open(cli, args, JOBSTORE_EXISTING, &store);

	if (rc)
		return rc;
	if (sl_jobs_audit_list(store.client, (uint64_t)opt_num(args, "before"), (uint32_t)opt_num(args, "limit"),
			       print_audit_record, &l, &err))
		return jobstore_fail(cli, args, &err);
	return EXIT_OK;
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
	 .help = "At most this many records"},
	{.name = "before",
	 .kind = OPT_INT,
	 .arg = "ID",
	 .def = "0",
	 .min = 0,
	 .max = INT64_MAX,
	 .help = "Records that are older than the one with this id"},
	OPT_JSON("Print JSON"),
	{.name = NULL},
};

const struct command cmd_jobs_audit = {
	.name = "jobs audit",
	.operands = "",
	.summary = "show who changed what",
	.opts = jobs_audit_opts,
	.description = "Every change that was asked for over HTTP or by a command is a record in the store, written in "
		       "the transaction of the change: without the record there is no change. Newest first. 'sluice "
		       "jobs prune' and the server remove old records.",
	.example = "sluice jobs audit --limit 20\nsluice jobs audit --json | jq 'select(.actor == \"ci\")'",
	.run = jobs_audit_run,
};
