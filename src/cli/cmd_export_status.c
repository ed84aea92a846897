/* SPDX-License-Identifier: Apache-2.0 */
/* sluice export status and gaps: what the catalog knows, and what it and the files lack. */
#include "commands.h"
#include "exportopts.h"
#include "stop.h"
#include "text.h"

#include <inttypes.h>
#include <sluice/catalog.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- status ---- */

static void status_text(struct out *out, const struct sl_dataset *d, const char *head)
{
	char rows[TEXT_COUNT_BYTES], partitions[TEXT_COUNT_BYTES], bytes[TEXT_TIME_BYTES];

	/* Names come from the catalog: they are escaped. */
	text_name(out, d->name);
	out_str(out, "\n  sequence       ");
	text_name(out, d->sequence_column);
	out_printf(out, ", %" PRIu64 " per partition\n", d->partition_size);
	if (!d->events) {
		out_str(out, "  nothing is committed yet\n");
		return;
	}
	out_printf(out, "  committed      %" PRIu64 " to %" PRIu64 ": %s in %s, %s\n", d->start, d->checkpoint,
		   text_count(rows, d->rows, "row"), text_count(partitions, d->partitions, "partition"),
		   text_bytes(bytes, d->bytes));
	if (d->bad_rows)
		out_printf(out, "  diverted       %s\n", text_count(rows, d->bad_rows, "bad row"));
	out_printf(out, "  head           %s\n", head);
	/* Events that are committed and not in their files yet: the next run writes them. */
	if (d->events > d->delivered_files)
		out_printf(out, "  not written    %s\n",
			   text_count(rows, d->events - d->delivered_files, "audit event"));
	/* Whether there is an endpoint only the run knows; one that has accepted something there was. */
	if (d->delivered_endpoint && d->events > d->delivered_endpoint)
		out_printf(out, "  not accepted   %s by the endpoint\n",
			   text_count(rows, d->events - d->delivered_endpoint, "audit event"));
	if (d->holder != NULL) {
		out_str(out, "  exported by    ");
		text_name(out, d->holder);
		out_str(out, "\n");
	}
}

struct status {
	struct cli *cli;
	sl_catalog *catalog;
	bool json, partitions;
	int n;
};

static int show_partition(const struct sl_catalog_partition *p, void *ctx)
{
	struct status *s = ctx;
	char sha[2 * SL_AUDIT_HASH_BYTES + 1], bytes[TEXT_TIME_BYTES];

	text_hex(sha, p->sha256, SL_AUDIT_HASH_BYTES);
	if (!s->json) {
		out_printf(&s->cli->out, "  %20" PRIu64 " %20" PRIu64 " %10" PRIu64 " %10s  ", p->start, p->end,
			   p->rows, text_bytes(bytes, p->bytes));
		text_name(&s->cli->out, p->path);
		out_str(&s->cli->out, "\n");
		return out_failed(&s->cli->out) || stop_requested();
	}
	/* As JSON: one object per partition, on its own line. */
	out_json_line(&s->cli->out,
		      json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:s}", "start", text_number(p->start), "end",
				text_number(p->end), "rows", text_number(p->rows), "bad_rows", text_number(p->bad_rows),
				"holes", text_number(p->holes), "bytes", text_number(p->bytes), "sha256", sha, "path",
				p->path));
	return out_failed(&s->cli->out) || stop_requested();
}

static int show_dataset(const struct sl_dataset *d, void *ctx)
{
	struct status *s = ctx;
	char head[2 * SL_AUDIT_HASH_BYTES + 1] = "";
	struct sl_err err = SL_ERR_INIT;
	int rc;

	s->n++;
	if (d->events)
		text_hex(head, d->head, SL_AUDIT_HASH_BYTES);
	if (s->json)
		out_json_line(&s->cli->out,
			      json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:s?}", "dataset",
					d->name, "sequence", d->sequence_column, "partition_size",
					text_number(d->partition_size), "partitions", text_number(d->partitions),
					"rows", text_number(d->rows), "bad_rows", text_number(d->bad_rows), "bytes",
					text_number(d->bytes), "start", text_number(d->start), "checkpoint",
					text_number(d->checkpoint), "events_behind",
					text_number(d->events - d->delivered_files), "delivered_endpoint",
					text_number(d->delivered_endpoint), "head", head, "holder", d->holder));
	else
		status_text(&s->cli->out, d, head);
	/* The partitions follow their dataset. */
	if (!s->partitions)
		return out_failed(&s->cli->out);
	rc = sl_catalog_partitions(s->catalog, d->name, 0, 0, show_partition, s, &err);
	return rc < 0 ? cli_fail(s->cli, &err, d->name) : rc;
}

static int export_status_run(struct cli *cli, const struct parsed *args)
{
	struct status s = {.cli = cli, .json = opt_flag(args, "json"), .partitions = opt_flag(args, "partitions")};
	struct sl_catalog_opts opts = {SL_CATALOG_OPTS_INIT, .env = &cli->env, .create = SL_OFF};
	struct sl_err err = SL_ERR_INIT;
	char *url = NULL;
	int rc;

	/* The catalog that was given, or the file in the folder. */
	opts_warn_of_password(cli, args, "catalog", EXPORT_PASSWORD_PLACES);
	if (opt_given(args, "catalog"))
		url = strdup(opt_str(args, "catalog"));
	else if (asprintf(&url, "sqlite:%s/_catalog.db", args->operands[0]) < 0)
		url = NULL;
	if (url == NULL)
		return cli_no_memory(cli);
	rc = sl_catalog_open(&s.catalog, url, &opts, &err);
	free(url);
	if (rc != 0)
		return cli_fail(cli, &err, args->operands[0]);
	/* All datasets, or the one that was named. */
	rc = sl_catalog_datasets(s.catalog, opt_str(args, "dataset"), show_dataset, &s, &err);
	sl_catalog_close(s.catalog);
	if (rc < 0)
		return cli_fail(cli, &err, opt_str(args, "dataset"));
	if (stop_requested())
		return EXIT_INTERRUPTED;
	if (rc == 0 && !s.n && !s.json)
		out_printf(&cli->out, "no datasets\n");
	return rc;
}

static const struct opt status_opts[] = {
	EXPORT_OPT_DATASET,
	EXPORT_OPT_CATALOG,
	{.name = "partitions", .letter = 'p', .kind = OPT_FLAG, .help = "List the partitions of each dataset too"},
	OPT_JSON("Print one JSON object per dataset and per partition"),
	{.name = NULL},
};

const struct command cmd_export_status = {
	.name = "export status",
	.operands = "DIR",
	.summary = "show the progress of the datasets below a folder",
	.opts = status_opts,
	.description = "Prints what the catalog records of each dataset, or of one: its range, rows, partitions and "
		       "bytes, the hash of the last audit event, and which process exports to it. The files are not "
		       "read: 'sluice export gaps' and 'sluice audit verify' do that.",
	.example = "sluice export status ./lake\n"
		   "sluice export status ./lake --dataset ledgers --json",
	.run = export_status_run,
};

/* ---- gaps ---- */

struct gaps {
	struct cli *cli;
	bool json;
	uint64_t n;
};

static int show_gap(const struct sl_export_gap *gap, void *ctx)
{
	struct gaps *g = ctx;
	const char *why = gap->kind == SL_EXPORT_GAP_UNCOMMITTED ? "uncommitted"
			  : gap->kind == SL_EXPORT_GAP_MISSING   ? "missing"
								 : "size";

	/* Any gap makes the status 65. */
	g->n++;
	if (g->json) {
		out_json_line(&g->cli->out, json_pack("{s:o, s:o, s:s, s:s}", "first", text_number(gap->first), "last",
						      text_number(gap->last), "kind", why, "path", gap->path));
	} else {
		out_printf(&g->cli->out, "%" PRIu64 "-%" PRIu64 " %s%s", gap->first, gap->last, why,
			   gap->path[0] ? " " : "");
		text_name(&g->cli->out, gap->path);
		out_str(&g->cli->out, "\n");
	}
	return out_failed(&g->cli->out) || stop_requested();
}

static int export_gaps_run(struct cli *cli, const struct parsed *args)
{
	/* No source is opened: standard input stands for it. */
	struct sl_export_opts opts = {SL_EXPORT_OPTS_INIT,
				      .env = &cli->env,
				      .from = "-",
				      .format = SL_EXPORT_CSV,
				      .to = args->operands[0],
				      .dataset = opt_str(args, "dataset"),
				      .catalog = opt_str(args, "catalog")};
	struct gaps g = {.cli = cli, .json = opt_flag(args, "json")};
	struct sl_err err = SL_ERR_INIT;
	sl_export *export = NULL;
	int rc;

	opts_warn_of_password(cli, args, "catalog", EXPORT_PASSWORD_PLACES);
	rc = sl_export_new(&export, &opts, &err);
	if (rc == 0)
		rc = sl_export_gaps(export, show_gap, &g, &err);
	sl_export_free(export);
	if (rc < 0)
		return cli_fail(cli, &err, args->operands[0]);
	if (stop_requested())
		return EXIT_INTERRUPTED;
	return g.n ? EXIT_BAD_DATA : EXIT_OK;
}

static const struct opt gaps_opts[] = {
	{.name = "dataset",
	 .letter = 'd',
	 .kind = OPT_STRING,
	 .arg = "NAME",
	 .required = true,
	 .help = "Name of the dataset"},
	EXPORT_OPT_CATALOG,
	OPT_JSON("Print one JSON object per gap"),
	{.name = NULL},
};

const struct command cmd_export_gaps = {
	.name = "export gaps",
	.operands = "DIR",
	.summary = "list what is missing from a dataset",
	.opts = gaps_opts,
	.description =
		"Prints ranges that no partition covers, and partitions whose file is missing or has the wrong size, "
		"as FIRST-LAST with the reason; the status is 65 if there are any. 'sluice export backfill --ranges' "
		"restores them. The contents of the files are not checked: 'sluice audit verify' does that.",
	.example = "sluice export gaps ./lake\n"
		   "sluice export gaps ./lake --dataset ledgers",
	.run = export_gaps_run,
};
