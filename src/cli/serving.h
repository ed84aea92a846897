/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `sluice up` and `sluice server` share: the configuration from file, environment and flags, the signals, and the
 * loop from the first request to the last.
 *
 * Thread safety: none; the main thread calls. Ownership: srv_config_fini frees the settings.
 */
#ifndef SLUICE_CLI_SERVING_H
#define SLUICE_CLI_SERVING_H

#include "opts.h"

#include "server/server.h"

struct serving {
	struct cli *cli;
	const struct parsed *args;
	struct srv_config config;
	struct srv_systemd systemd;
	struct sl_env env; /* the command's, with a level that a reload may change */
	_Atomic int log_level;
	srv_server *server;
	/* What runs beside the server, or NULL: start is called when requests are answered; stop, with the time that is
	 * left, when changes are refused; sent, when the coordinator is empty. Each returns an exit code. */
	const struct serving_beside *beside;
	void *beside_ctx;
};

struct serving_beside {
	int (*start)(struct serving *s, void *ctx);
	int (*stop)(struct serving *s, int64_t deadline_ms, void *ctx);
	int (*finish)(struct serving *s, int64_t deadline_ms, void *ctx);
};

#define SERVING_K_TEXT OPT_STRING
#define SERVING_K_PATH OPT_STRING
#define SERVING_K_NUMBER OPT_INT
#define SERVING_K_MILLIS OPT_DURATION
#define SERVING_K_BYTES OPT_SIZE
#define SERVING_K_SWITCH OPT_FLAG
#define SERVING_K_CHOICE OPT_ENUM
#define SERVING_K_LIST OPT_STRING
/* A row of the settings as an option; the text goes through the same check as a file's. */
#define SERVING_OPT(row_kind, section, row_name, flag, row_letter, row_arg, row_def, least, most, row_choices,         \
		    row_help)                                                                                          \
	{.name = flag,                                                                                                 \
	 .letter = row_letter,                                                                                         \
	 .kind = SERVING_K_##row_kind,                                                                                 \
	 .arg = row_arg,                                                                                               \
	 .def = SERVING_K_##row_kind == OPT_FLAG ? NULL : row_def,                                                     \
	 .min = least,                                                                                                 \
	 .max = most,                                                                                                  \
	 .choices = row_choices,                                                                                       \
	 .repeat = SRV_##row_kind == SRV_LIST,                                                                         \
	 .help = row_help},
#define SERVING_OPTS_OWN                                                                                               \
	{.name = "config",                                                                                             \
	 .letter = 'c',                                                                                                \
	 .kind = OPT_STRING,                                                                                           \
	 .arg = "FILE",                                                                                                \
	 .help = "Read settings from a YAML file ('sluice config list' prints all of them). SLUICE_… in the "        \
		 "environment and flags override it"},                                                                 \
	{                                                                                                              \
		.name = "set", .kind = OPT_STRING, .arg = "SECTION.NAME=VALUE", .repeat = true,                        \
		.help = "Set any setting, also one without a flag"                                                     \
	}

/* The settings of the file, the environment and the flags. 0, or an exit code after lines on stderr. */
int serving_configure(struct cli *cli, const struct parsed *args, struct srv_config *config);
/* Start, say where, serve until a signal, stop. The exit code. */
int serving_run(struct serving *s);

#endif
