/* SPDX-License-Identifier: Apache-2.0 */
/* sluice audit verify: everything anew from the files, and the path of what is wrong. */
#include "commands.h"
#include "exportopts.h"
#include "progress.h"
#include "stop.h"
#include "text.h"

#include <inttypes.h>
#include <sluice/audit.h>
#include <stdio.h>

struct verifying {
	struct cli *cli;
	bool json;
	uint64_t reported;
	struct progress progress;
};

static int on_finding(const struct sl_audit_finding *f, void *ctx)
{
	struct verifying *v = ctx;
	char path[1100], text[600];

	text_line(path, sizeof(path), f->path);
	text_line(text, sizeof(text), f->text);
	/* Printed as it is found: a broken export may have any number of findings. */
	if (v->json) {
		out_str(&v->cli->out, v->reported ? "," : "");
		out_json(&v->cli->out,
			 json_pack("{s:s, s:b, s:o, s:I, s:o}", "fault", sl_audit_fault_name(f->fault), "note",
				   f->fault < SL_AUDIT_MISSING, "path", f->path[0] ? text_json(f->path) : json_null(),
				   "event", (json_int_t)f->event, "text", text_json(f->text)));
	} else {
		out_printf(&v->cli->out, "%s%s%s%s\n", f->fault < SL_AUDIT_MISSING ? "note: " : "", path,
			   path[0] ? ": " : "", text);
	}
	v->reported++;
	return cli_stopped(v->cli);
}

static int on_progress(uint64_t done, uint64_t total, void *ctx)
{
	struct verifying *v = ctx;

	progress_update(&v->progress, done, total);
	return cli_stopped(v->cli);
}

/* ---- the result ---- */

/* The counts as JSON; as text only when there are no findings. */
static void print_summary(struct verifying *v, const char *dir, const char *dataset, const struct sl_audit_result *r)
{
	char events[TEXT_COUNT_BYTES], rows[TEXT_COUNT_BYTES], bytes[TEXT_TIME_BYTES],
		head[2 * SL_AUDIT_HASH_BYTES + 1], shown[600];
	struct out *out = &v->cli->out;

	text_hex(head, r->head, sizeof(r->head));
	if (v->json) {
		out_json_end(out, json_pack("{s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:b, s:b, s:b}", "ok",
					    r->findings == 0, "events", text_number(r->events), "partitions",
					    text_number(r->partitions), "rows", text_number(r->rows), "bad_rows",
					    text_number(r->bad_rows), "bytes", text_number(r->bytes), "start",
					    text_number(r->start), "checkpoint", text_number(r->checkpoint), "head",
					    head, "catalog_checked", r->catalog_checked, "head_checked",
					    r->head_checked, "signature_checked", r->signature_checked));
		return;
	}
	/* With findings the summary would look like a good result. */
	if (r->findings)
		return;
	text_line(shown, sizeof(shown), dir);
	if (!r->events) {
		out_printf(out, "%s/%s: ok: nothing is committed yet\n", shown, dataset);
		return;
	}
	out_printf(out, "%s/%s: ok: %" PRIu64 " to %" PRIu64 ", %s in %s, %s", shown, dataset, r->start, r->checkpoint,
		   text_count(rows, r->rows, "row"), text_count(events, r->events, "partition"),
		   text_bytes(bytes, r->bytes));
	if (r->bad_rows)
		out_printf(out, ", %s diverted", text_count(rows, r->bad_rows, "bad row"));
	out_str(out, "\n");
	out_printf(out, "head %s%s%s\n", head, r->catalog_checked ? ", catalog checked" : ", no catalog",
		   r->signature_checked ? ", signed head found"
		   : r->head_checked    ? ", head found"
					: "");
}

static int audit_verify_run(struct cli *cli, const struct parsed *args)
{
	struct verifying v = {.cli = cli, .json = opt_flag(args, "json")};
	struct sl_audit_result result = {.struct_size = sizeof(result)};
	struct sl_err err = SL_ERR_INIT;
	const char *dir = args->operands[0], *dataset = opt_str(args, "dataset");
	char count[TEXT_COUNT_BYTES];
	struct sl_audit_verify_opts opts = {SL_AUDIT_VERIFY_OPTS_INIT,
					    .env = &cli->env,
					    .threads = (int)opt_num(args, "threads"),
					    .all = opt_flag(args, "all") ? SL_ON : SL_OFF,
					    .checkpoint = opt_str(args, "checkpoint"),
					    .public_key = opt_str(args, "public-key"),
					    .catalog = opt_flag(args, "no-catalog") ? "" : opt_str(args, "catalog"),
					    .on_finding = on_finding,
					    .on_progress = on_progress,
					    .ctx = &v};
	int rc;

	if (opt_flag(args, "no-catalog") && opt_given(args, "catalog"))
		return cli_usage(cli, "--catalog and --no-catalog exclude each other");
	if (opts.public_key != NULL && opts.checkpoint == NULL)
		return cli_usage(cli, "--public-key checks the signature of a head: add --checkpoint=FILE");
	opts_warn_of_password(cli, args, "catalog", EXPORT_PASSWORD_PLACES);
	/* JSON output is one object, written as it grows: any number of findings needs no memory. */
	if (v.json) {
		out_str(&cli->out, "{\"dir\":");
		out_json(&cli->out, text_json(dir));
		out_str(&cli->out, ",\"dataset\":");
		out_json(&cli->out, text_json(dataset));
		out_str(&cli->out, ",\"findings\":[");
	}
	progress_start(&v.progress, cli, false);
	rc = sl_audit_verify(dir, dataset, &opts, &result, &err);
	progress_end(&v.progress);
	if (rc != 0 && !err.code) /* a callback of ours has ended it */
		sl_err_set(&err, rc, "%s",
			   rc == SL_ECANCELLED
				   ? "interrupted before the verification was complete; run the same command again"
				   : sl_err_text(rc));
	if (rc != 0) {
		if (v.json)
			out_json_end(&cli->out, json_pack("{s:b, s:s, s:o}", "ok", 0, "code", sl_err_name(err.code),
							  "error", text_json(err.msg)));
		if (out_failed(&cli->out))
			return EXIT_OK; /* cli_finish reports it */
		return stop_requested() ? cli_interrupted(cli) : cli_fail(cli, &err, dir);
	}
	/* The result: counts and head, or how much is wrong. */
	print_summary(&v, dir, dataset, &result);
	if (!result.findings)
		return EXIT_OK;
	(void)out_flush(&cli->out);
	if (opt_flag(args, "all"))
		cli_say(cli, SL_LOG_ERROR, "%s: %s", dir, text_count(count, result.findings, "finding"));
	else
		cli_say(cli, SL_LOG_ERROR, "%s: differs from what was committed; --all lists every difference", dir);
	return EXIT_BAD_DATA;
}

static const struct opt verify_opts[] = {
	{.name = "dataset",
	 .letter = 'd',
	 .kind = OPT_STRING,
	 .arg = "NAME",
	 .required = true,
	 .help = "Name of the exported dataset"},
	OPT_TEXT("checkpoint", 0, "FILE",
		 "Check that the chain still contains this head of 'sluice audit head' that was kept elsewhere"),
	OPT_TEXT("public-key", 0, "FILE",
		 "Require a signature of the head by this key (FILE.pub of 'sluice audit keygen')"),
	OPT_TEXT("catalog", 0, "URL",
		 "Catalog of the dataset: sqlite:FILE or postgres://… (default: sqlite:DIR/_catalog.db if it exists)"),
	{.name = "no-catalog", .kind = OPT_FLAG, .help = "Check only the files, for a copy without its catalog"},
	{.name = "all", .letter = 'a', .kind = OPT_FLAG, .help = "Report everything that is wrong, not only the first"},
	{.name = "threads",
	 .kind = OPT_INT,
	 .arg = "N",
	 .def = "0",
	 .min = 0,
	 .max = 256,
	 .help = "Number of files read at the same time; 0: one per CPU"},
	OPT_JSON("Print one JSON object with all findings and counts"),
	{.name = NULL},
};

const struct command cmd_audit_verify = {
	.name = "audit verify",
	.operands = "DIR",
	.summary = "prove that no part of an export was skipped, duplicated or changed",
	.opts = verify_opts,
	.description = "Recomputes everything from the files below DIR and checks it: every event of the audit chain, "
		       "its hash and its link to the one before; every data file's size, SHA-256, rows and order of "
		       "sequences; gaps and overlaps; files that are missing or that no event names; the rows of the "
		       "catalog. Prints a summary with status 0 when all is well, or else the path of the first thing "
		       "that is wrong, with status 65. What an unfinished run has left is reported as a note, not as a "
		       "fault. Nothing is locked or changed, and an export may run meanwhile. Only a head that was "
		       "kept elsewhere (--checkpoint) shows that the end of the chain was cut off everywhere.",
	.example = "sluice audit verify ./lake --dataset ledgers\nsluice audit verify ./lake --dataset ledgers --all "
		   "--checkpoint ledgers.head --public-key audit.key.pub",
	.run = audit_verify_run,
};
