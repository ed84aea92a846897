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
		.help = "The folder below which the datasets are; the partitions go to DIR/NAME"                       \
	}
#define EXPORT_OPT_DATASET                                                                                             \
	{                                                                                                              \
		.name = "dataset", .letter = 'd', .kind = OPT_STRING, .arg = "NAME", .help = "The name of the dataset" \
	}
#define EXPORT_OPT_CATALOG                                                                                             \
	{                                                                                                              \
		.name = "catalog", .kind = OPT_STRING, .arg = "URL",                                                   \
		.help = "Where partitions, audit events and the checkpoint are kept: sqlite:FILE or postgres://…; "  \
			"sqlite:DIR/_catalog.db unless given"                                                          \
	}
#define EXPORT_OPTS_SOURCE                                                                                             \
	{.name = "from",                                                                                               \
	 .letter = 'f',                                                                                                \
	 .kind = OPT_STRING,                                                                                           \
	 .arg = "SOURCE",                                                                                              \
	 .help = "A file, - for standard input, postgres://… or sqlite:FILE"},                                         \
		EXPORT_OPT_TO, EXPORT_OPT_DATASET,                                                                     \
		{.name = "table",                                                                                      \
		 .kind = OPT_STRING,                                                                                   \
		 .arg = "T",                                                                                           \
		 .help = "The table, of a database; also SCHEMA.TABLE"},                                               \
		{.name = "query",                                                                                      \
		 .kind = OPT_STRING,                                                                                   \
		 .arg = "SQL",                                                                                         \
		 .help = "A query instead of a table; it is asked for ranges of its sequence"},                        \
		{.name = "format",                                                                                     \
		 .kind = OPT_ENUM,                                                                                     \
		 .arg = "WHAT",                                                                                        \
		 .choices = srv_choices_rows,                                                                          \
		 .help = "What the file is, when its name does not end in .csv or .jsonl"},                            \
		{.name = "no-header",                                                                                  \
		 .kind = OPT_FLAG,                                                                                     \
		 .help = "The first record of CSV is a row; its columns are c1, c2 … unless --schema names them"},     \
		{.name = "sequence",                                                                                   \
		 .letter = 's',                                                                                        \
		 .kind = OPT_STRING,                                                                                   \
		 .arg = "COLUMN",                                                                                      \
		 .help = "The column that numbers the rows without gaps; the first one unless given"},                 \
		{.name = "partition-size",                                                                             \
		 .letter = 'p',                                                                                        \
		 .kind = OPT_INT,                                                                                      \
		 .arg = "N",                                                                                           \
		 .min = 1,                                                                                             \
		 .max = INT64_C(4294967296),                                                                           \
		 .help = "Sequence numbers of a partition, the same for the life of a dataset; 250000 unless given"},  \
		{.name = "schema",                                                                                     \
		 .kind = OPT_STRING,                                                                                   \
		 .arg = "FILE",                                                                                        \
		 .help = "The columns and their types in YAML; unless given, those of the dataset, of the database, "  \
			 "or as guessed from the first rows"},                                                         \
		EXPORT_OPT_CATALOG,                                                                                    \
		{.name = "workers",                                                                                    \
		 .letter = 'w',                                                                                        \
		 .kind = OPT_INT,                                                                                      \
		 .arg = "N",                                                                                           \
		 .def = "4",                                                                                           \
		 .min = 1,                                                                                             \
		 .max = 256,                                                                                           \
		 .help = "Partitions built at a time"},                                                                \
		{.name = "zstd-level",                                                                                 \
		 .kind = OPT_INT,                                                                                      \
		 .arg = "N",                                                                                           \
		 .min = 1,                                                                                             \
		 .max = 19,                                                                                            \
		 .help = "Of the Parquet files, the same for the life of a dataset; 3 unless given"},                  \
		{.name = "gaps",                                                                                       \
		 .kind = OPT_ENUM,                                                                                     \
		 .arg = "WHAT",                                                                                        \
		 .choices = srv_choices_gaps,                                                                          \
		 .help = "A number that the source does not have, and that no open transaction can still produce, "    \
			 "stops the export, or is recorded as a hole in the audit event; unless given, record for a "  \
			 "table of a database, stop for the rest and where open transactions are invisible"},          \
		{.name = "bad-rows",                                                                                   \
		 .kind = OPT_ENUM,                                                                                     \
		 .arg = "WHAT",                                                                                        \
		 .def = "stop",                                                                                        \
		 .choices = srv_choices_bad_rows,                                                                      \
		 .help = "A row that does not fit its columns stops the export, or goes to the dead letters"},         \
		{.name = "dead-letters",                                                                               \
		 .kind = OPT_STRING,                                                                                   \
		 .arg = "DIR",                                                                                         \
		 .help = "Where such rows go; DIR/_dead/NAME of the export unless given"},                             \
	{                                                                                                              \
		.name = "config", .letter = 'c', .kind = OPT_STRING, .arg = "FILE",                                    \
		.help = "Settings in YAML, in the sections perf and export ('sluice config list' has them all); "      \
			"SLUICE_… in the environment and flags win"                                                  \
	}

/* 0, or an exit code after lines on stderr. */
int exportopts_read(struct exportopts *o, struct cli *cli, const struct parsed *args);
void exportopts_fini(struct exportopts *o);

/* For opts_warn_of_password about --from and --catalog. */
#define EXPORT_PASSWORD_PLACES "PGPASSWORD, a password file or --config"

#endif
