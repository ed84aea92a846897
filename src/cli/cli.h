/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every command shares: where it prints, how it reports, and the environment that it hands to the library.
 *
 * Errors are one line on stderr, "sluice wal dump: what failed"; with --log-format=json they are log records like those
 * of the library. Results go to standard output only.
 *
 * Thread safety: cli_say, cli_fail and the log callback may be called from any thread (a line is written whole); the
 * rest belongs to the main thread.
 */
#ifndef SLUICE_CLI_CLI_H
#define SLUICE_CLI_CLI_H

#include "base/base.h"
#include "out.h"

#include <sluice/adapter/env.h>

/* Exit codes, as <sysexits.h> has them; those of library errors come from sl_err_exit_code. */
enum {
	EXIT_OK = 0,
	EXIT_USAGE_ERROR = 64,
	EXIT_BAD_DATA = 65,
	EXIT_INTERNAL = 70,
	EXIT_OUTPUT = 74,
	EXIT_INTERRUPTED = 75,
	EXIT_BROKEN_PIPE = 141 /* as if SIGPIPE had ended it */
};

struct cli {
	const char *command; /* "wal dump"; empty until it is known */
	enum sl_log_format log_format;
	enum sl_log_level log_level;
	bool quiet;
	bool color;            /* stderr is a terminal that may be coloured */
	bool bar_shown;        /* a progress bar is on the last line of stderr; guarded by flockfile(stderr) */
	const char *component; /* the library's records of it are messages of this command; NULL: none */
	struct sl_env env;
	struct out out;
};

void cli_init(struct cli *cli);
/* Apply --log-format, --log-level and --quiet. */
void cli_configure(struct cli *cli, enum sl_log_format format, enum sl_log_level level, bool quiet);

/* One line on stderr, unless its level is below --log-level. Errors are always printed. */
void cli_say(struct cli *cli, enum sl_log_level level, const char *fmt, ...) SL_PRINTF(3, 4);
/* The same unless --quiet was given, whatever --log-level is: what a person who started a service wants to see. */
void cli_notice(struct cli *cli, const char *fmt, ...) SL_PRINTF(2, 3);
/* The same at any level, for progress. */
void cli_line(struct cli *cli, enum sl_log_level level, const char *text);
/* Print err, with "<subject>: " before it when its text does not name the subject already; subject may be NULL.
 * Returns the exit code of err. */
int cli_fail(struct cli *cli, const struct sl_err *err, const char *subject);
/* Prints "out of memory". Returns 70. */
int cli_no_memory(struct cli *cli);
/* A usage error: one line that ends with a pointer to --help. Returns 64. */
int cli_usage(struct cli *cli, const char *fmt, ...) SL_PRINTF(2, 3);
/* Flush standard output. Returns code, or 74 with a line on stderr when the output is broken and code is 0. A reader
 * that has closed the pipe wants no more: that is 141, without a line. */
int cli_finish(struct cli *cli, int code);
/* What a callback of the library returns: 0 to continue, SL_EIO when standard output is broken, SL_ECANCELLED after a
 * signal. */
int cli_stopped(const struct cli *cli);
/* A line that says that work was interrupted. Returns 75. */
int cli_interrupted(struct cli *cli);

#endif
