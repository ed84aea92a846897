/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of a file, the environment and flags as options of an export. */
#include "exportopts.h"

#include "configfile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The flags that are settings, too: what they say goes through the same check. */
static const struct {
	const char *flag, *section, *name;
} flags[] = {
	{"from", "export", "from"},          {"to", "export", "to"},
	{"dataset", "export", "dataset"},    {"table", "export", "table"},
	{"query", "export", "query"},        {"format", "export", "format"},
	{"sequence", "export", "sequence"},  {"partition-size", "export", "partition_size"},
	{"schema", "export", "schema_file"}, {"catalog", "export", "catalog"},
	{"workers", "perf", "workers"},      {"zstd-level", "export", "zstd_level"},
	{"bad-rows", "export", "bad_rows"},  {"dead-letters", "export", "dead_letters"},
	{"follow", "export", "follow"},      {"gaps", "export", "gaps"},
};

/* ---- what belongs together ---- */

/* The settings of the file, the environment and the flags. */
static int read_settings(struct exportopts *o)
{
	struct sl_err err = SL_ERR_INIT;
	int rc = configfile_read(o->cli, opt_str(o->args, "config"), true, &o->config);

	if (rc != 0)
		return rc;
	/* Flags go through the check of settings, and win over the file and the environment. */
	for (size_t i = 0; rc == 0 && i < SL_COUNT(flags); i++) {
		const struct srv_setting *s = srv_setting_find(flags[i].section, flags[i].name);
		const char *flag = flags[i].flag;

		if (opts_has(o->args, flag) && opt_given(o->args, flag))
			rc = srv_config_set(&o->config, s, s->kind == SRV_SWITCH ? "true" : opt_str(o->args, flag),
					    &err);
	}
	if (rc != 0)
		return cli_fail(o->cli, &err, NULL);
	return 0;
}

/* What is missing, and what does not go together. */
static int check_settings(struct exportopts *o)
{
	static const char *const suffixes[] = {".csv", ".jsonl", ".ndjson", ".json"};
	const struct srv_config *c = &o->config;
	const char *from = c->export_from;
	bool has_format = c->export_format >= 0, database;

	/* What is missing may come from a file as well, so that the parser cannot require it. */
	if (from == NULL)
		return cli_usage(o->cli, "--from=SOURCE is missing");
	if (c->export_to == NULL)
		return cli_usage(o->cli, "--to=DIR is missing");
	if (c->export_dataset == NULL)
		return cli_usage(o->cli, "--dataset=NAME is missing");
	database = strncmp(from, "postgres://", 11) == 0 || strncmp(from, "postgresql://", 13) == 0 ||
		   strncmp(from, "sqlite:", 7) == 0;
	if (database && c->export_table == NULL && c->export_query == NULL)
		return cli_usage(o->cli, "a database needs --table or --query");
	if (database && c->export_table != NULL && c->export_query != NULL)
		return cli_usage(o->cli, "--table and --query exclude each other");
	if (database && (opt_given(o->args, "format") || opt_flag(o->args, "no-header")))
		return cli_usage(o->cli, "--%s is only for files",
				 opt_given(o->args, "format") ? "format" : "no-header");
	if (!database && (c->export_table != NULL || c->export_query != NULL))
		return cli_usage(o->cli, "--%s is only for databases", c->export_table != NULL ? "table" : "query");
	/* The end of a file's name may be its format. */
	for (size_t i = 0, n = strlen(from); i < SL_COUNT(suffixes); i++) {
		size_t m = strlen(suffixes[i]);

		has_format |= n > m && strcmp(from + n - m, suffixes[i]) == 0;
	}
	if (!database && !has_format)
		return cli_usage(o->cli, "cannot see the format of %s; give --format=csv or --format=jsonl",
				 strcmp(from, "-") ? from : "standard input");
	if (c->export_follow && opts_has(o->args, "final") && opt_given(o->args, "final"))
		return cli_usage(o->cli, "--final and --follow exclude each other");
	if (c->export_dead_letters != NULL && c->export_bad_rows == 0)
		return cli_usage(o->cli, "--dead-letters needs --bad-rows=divert");
	return 0;
}

int exportopts_read(struct exportopts *o, struct cli *cli, const struct parsed *args)
{
	const struct srv_config *c = &o->config;
	int rc;

	*o = (struct exportopts){.cli = cli, .args = args};
	rc = read_settings(o);
	if (rc == 0)
		rc = check_settings(o);
	if (rc == 0 && c->export_schema_file != NULL)
		rc = exportschema_read(&o->schema, cli, c->export_schema_file);
	if (rc != 0)
		return rc;
	/* The column that counts is never NULL, whether the schema says so or not. */
	for (size_t i = 0; i < o->schema.n; i++) {
		if (c->export_sequence != NULL ? strcmp(o->schema.columns[i].name, c->export_sequence) == 0 : i == 0)
			o->schema.columns[i].nullable = false;
	}
	opts_warn_of_password(cli, args, "from", EXPORT_PASSWORD_PLACES);
	opts_warn_of_password(cli, args, "catalog", EXPORT_PASSWORD_PLACES);
	o->opts = (struct sl_export_opts){
		SL_EXPORT_OPTS_INIT,
		.env = &cli->env,
		.from = c->export_from,
		.table = c->export_table,
		.query = c->export_query,
		.format = (enum sl_export_format)(c->export_format + 1),
		.header = opt_flag(args, "no-header") ? SL_OFF : SL_ON,
		.to = c->export_to,
		.dataset = c->export_dataset,
		.catalog = c->export_catalog,
		.sequence = c->export_sequence,
		.partition_size = c->export_partition_size,
		.columns = o->schema.columns,
		.n_columns = o->schema.n,
		.zstd_level = (int32_t)c->export_zstd_level,
		.perf = {.workers = (int32_t)c->perf_workers,
			 .queue_size = (int32_t)c->perf_queue_size,
			 .retry_attempts = (int32_t)c->perf_retry_attempts,
			 .retry_backoff_ms = c->perf_retry_backoff_ms},
		.follow = c->export_follow ? SL_ON : SL_OFF,
		.gaps = (enum sl_export_gaps)(c->export_gaps + 1),
		.bad_rows = c->export_bad_rows ? SL_EXPORT_BAD_ROWS_DIVERT : SL_EXPORT_BAD_ROWS_STOP,
		.dead_letters = c->export_dead_letters,
	};
	return 0;
}

void exportopts_fini(struct exportopts *o)
{
	exportschema_fini(&o->schema);
	srv_config_fini(&o->config);
}
