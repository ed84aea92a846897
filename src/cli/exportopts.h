/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options of `sluice export` and its commands: the settings of a file (--config), of the environment and of flags,
 * in this order, become the options of the library.
 *
 * Thread safety: none; the main thread calls. Ownership: exportopts_fini frees everything, also after a failure; the
 * options point into it.
 */
#ifndef SLUICE_CLI_EXPORTOPTS_H
#define SLUICE_CLI_EXPORTOPTS_H

#include "exportschema.h"
#include "opts.h"

#include "server/config/config.h"

#include <sluice/export.h>

struct exportopts {
	struct cli *cli;
	const struct parsed *args;
	struct srv_config config;
	struct exportschema schema;
	struct sl_export_opts opts;
};

/* Options that the commands have in common: the dataset, and the source with all that makes rows of it. */
#define EXPORT_OPT_TO                                                                                                  \
	{                                                                                                              \
		.name = "to", .letter = 't', .kind = OPT_STRING, .arg = "DIR",                                         \
		.help = "Folder of the datasets; partitions are written to DIR/NAME"                                   \
	}
#define EXPORT_OPT_DATASET                                                                                             \
	{                                                                                                              \
		.name = "dataset", .letter = 'd', .kind = OPT_STRING, .arg = "NAME", .help = "Name of the dataset"     \
	}
#define EXPORT_OPT_CATALOG                                                                                             \
	{                                                                                                              \
		.name = "catalog", .kind = OPT_STRING, .arg = "URL",                                                   \
		.help = "Catalog of partitions, audit events and the checkpoint: sqlite:FILE or postgres://… "       \
			"(default: sqlite:DIR/_catalog.db)"                                                            \
	}
#define EXPORT_OPTS_SOURCE                                                                                             \
	{.name = "from",                                                                                               \
	 .letter = 'f',                                                                                                \
	 .kind = OPT_STRING,                                                                                           \
	 .arg = "SOURCE",                                                                                              \
	 .help = "Source to read: a file, - for standard input, postgres://… or sqlite:FILE"},                         \
		EXPORT_OPT_TO, EXPORT_OPT_DATASET,                                                                     \
		{.name = "table",                                                                                      \
		 .kind = OPT_STRING,                                                                                   \
		 .arg = "T",                                                                                           \
		 .help = "Table of the database to read; also SCHEMA.TABLE"},                                          \
		{.name = "query",                                                                                      \
		 .kind = OPT_STRING,                                                                                   \
		 .arg = "SQL",                                                                                         \
		 .help = "Query to read instead of a table; it is run for ranges of its sequence"},                    \
		{.name = "format",                                                                                     \
		 .kind = OPT_ENUM,                                                                                     \
		 .arg = "WHAT",                                                                                        \
		 .choices = srv_choices_rows,                                                                          \
		 .help = "Format of the file when its name does not end in .csv or .jsonl"},                           \
		{.name = "no-header",                                                                                  \
		 .kind = OPT_FLAG,                                                                                     \
		 .help = "Read the first record of CSV as a row; its columns are c1, c2 … unless --schema names "    \
			 "them"},                                                                                      \
		{.name = "sequence",                                                                                   \
		 .letter = 's',                                                                                        \
		 .kind = OPT_STRING,                                                                                   \
		 .arg = "COLUMN",                                                                                      \
		 .help = "Column that numbers the rows without gaps (default: the first one)"},                        \
		{.name = "partition-size",                                                                             \
		 .letter = 'p',                                                                                        \
		 .kind = OPT_INT,                                                                                      \
		 .arg = "N",                                                                                           \
		 .min = 1,                                                                                             \
		 .max = INT64_C(4294967296),                                                                           \
		 .help = "Sequence numbers per partition (default: 250000); cannot change for an existing dataset"},   \
		{.name = "schema",                                                                                     \
		 .kind = OPT_STRING,                                                                                   \
		 .arg = "FILE",                                                                                        \
		 .help = "Columns and their types in YAML. Default: those of the dataset or the database, else "       \
			 "guessed from the first rows"},                                                               \
		EXPORT_OPT_CATALOG,                                                                                    \
		{.name = "workers",                                                                                    \
		 .letter = 'w',                                                                                        \
		 .kind = OPT_INT,                                                                                      \
		 .arg = "N",                                                                                           \
		 .def = "4",                                                                                           \
		 .min = 1,                                                                                             \
		 .max = 256,                                                                                           \
		 .help = "Number of partitions built at the same time"},                                               \
		{.name = "zstd-level",                                                                                 \
		 .kind = OPT_INT,                                                                                      \
		 .arg = "N",                                                                                           \
		 .min = 1,                                                                                             \
		 .max = 19,                                                                                            \
		 .help = "Compression level of the Parquet files (default: 3); cannot change for an existing "         \
			 "dataset"},                                                                                   \
		{.name = "gaps",                                                                                       \
		 .kind = OPT_ENUM,                                                                                     \
		 .arg = "WHAT",                                                                                        \
		 .choices = srv_choices_gaps,                                                                          \
		 .help = "Stop at a number that is missing for good, or record it as a hole in the audit event. "      \
			 "Default: record for a table of a database, stop for other sources and where open "           \
			 "transactions are invisible"},                                                                \
		{.name = "bad-rows",                                                                                   \
		 .kind = OPT_ENUM,                                                                                     \
		 .arg = "WHAT",                                                                                        \
		 .def = "stop",                                                                                        \
		 .choices = srv_choices_bad_rows,                                                                      \
		 .help = "Stop at a row that does not fit its columns, or divert it to the dead letters"},             \
		{.name = "dead-letters",                                                                               \
		 .kind = OPT_STRING,                                                                                   \
		 .arg = "DIR",                                                                                         \
		 .help = "Folder for diverted rows (default: DIR/_dead/NAME)"},                                        \
	{                                                                                                              \
		.name = "config", .letter = 'c', .kind = OPT_STRING, .arg = "FILE",                                    \
		.help = "Read the sections perf and export of a YAML settings file ('sluice config list' prints all "  \
			"settings). SLUICE_… in the environment and flags override it"                               \
	}

/* 0, or an exit code after lines on stderr. */
int exportopts_read(struct exportopts *o, struct cli *cli, const struct parsed *args);
void exportopts_fini(struct exportopts *o);

/* For opts_warn_of_password about --from and --catalog. */
#define EXPORT_PASSWORD_PLACES "PGPASSWORD, a password file or --config"

#endif
