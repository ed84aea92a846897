/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings as commands read them that share those of the server: from a file and from the environment.
 *
 * Thread safety: none; the main thread calls. Ownership: srv_config_fini frees the settings, also after a failure.
 */
#ifndef SLUICE_CLI_CONFIGFILE_H
#define SLUICE_CLI_CONFIGFILE_H

#include "opts.h"

#include "server/config/config.h"

#define CONFIG_K_TEXT OPT_STRING
#define CONFIG_K_PATH OPT_STRING
#define CONFIG_K_NUMBER OPT_INT
#define CONFIG_K_MILLIS OPT_DURATION
#define CONFIG_K_BYTES OPT_SIZE
#define CONFIG_K_FACTOR OPT_STRING
#define CONFIG_K_SWITCH OPT_FLAG
#define CONFIG_K_CHOICE OPT_ENUM
#define CONFIG_K_LIST OPT_STRING
/* A row of the settings as an option; the text goes through the same check as a file's. */
#define CONFIG_OPT(row_kind, section, row_name, flag, row_letter, row_arg, row_def, least, most, row_choices,          \
		   row_help)                                                                                           \
	{.name = flag,                                                                                                 \
	 .letter = row_letter,                                                                                         \
	 .kind = CONFIG_K_##row_kind,                                                                                  \
	 .arg = row_arg,                                                                                               \
	 .def = CONFIG_K_##row_kind == OPT_FLAG ? NULL : row_def,                                                      \
	 .min = least,                                                                                                 \
	 .max = most,                                                                                                  \
	 .choices = row_choices,                                                                                       \
	 .repeat = SRV_##row_kind == SRV_LIST,                                                                         \
	 .help = row_help},
#define CONFIG_OPTS_OWN                                                                                                \
	{.name = "config",                                                                                             \
	 .letter = 'c',                                                                                                \
	 .kind = OPT_STRING,                                                                                           \
	 .arg = "FILE",                                                                                                \
	 .help = "Read settings from a YAML file ('sluice config list' prints all of them). SLUICE_… in the "        \
		 "environment and flags override it"},                                                                 \
	{                                                                                                              \
		.name = "set", .kind = OPT_STRING, .arg = "SECTION.NAME=VALUE", .repeat = true,                        \
		.help = "Set any setting, also one without a flag or of one type: types.mail.lease=60s"                \
	}

/* Begin a configuration: the settings of the file at path (NULL: none), and with environment those of SLUICE_…. The
 * caller ends it with srv_config_fini in any case. 0, or an exit code after lines on stderr. */
int configfile_read(struct cli *cli, const char *path, bool environment, struct srv_config *config);

/* After configfile_read: the flags of the command that are settings, then --set. 0, or an exit code after a line on stderr.
 */
int configfile_flags(struct cli *cli, const struct parsed *args, struct srv_config *config);

/* Print every problem of a file as FILE:LINE:COLUMN: TEXT; ctx is a struct configfile_problems. */
struct configfile_problems {
	struct cli *cli;
	const char *path;
	int n;
};
void configfile_problem(size_t line, size_t column, const char *text, void *ctx);

#endif
