/* SPDX-License-Identifier: Apache-2.0 */
/* Messages on standard error, exit codes, and the log callback for the library. */
#include "cli.h"

#include "base/time.h"
#include "stop.h"
#include "text.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void print_raw(struct cli *cli, const char *before, const char *text)
{
	/* One line at a time from any thread, and never in the middle of a progress bar, which is erased first. */
	flockfile(stderr);
	if (cli->bar_shown) {
		fputs("\r\033[K", stderr);
		cli->bar_shown = false;
	}
	fprintf(stderr, "%s%s\n", before, text);
	fflush(stderr);
	funlockfile(stderr);
}

/* The library's records, from whichever thread. */
static void on_log(const struct sl_log_record *record, void *ctx)
{
	struct cli *cli = ctx;
	char line[4096];

	/* A record of the command's own component is a message of the command, without the record's fields. */
	if (cli->component != NULL && strcmp(record->component, cli->component) == 0) {
		cli_line(cli, record->level, record->message);
		return;
	}
	sl_log_format(record, cli->log_format, line, sizeof(line));
	print_raw(cli, "", line);
}

void cli_init(struct cli *cli)
{
	const char *no_color = getenv("NO_COLOR");
	const char *term = getenv("TERM");

	/* Colours only for people: https://no-color.org and TERM=dumb switch them off. */
	cli->command = "";
	cli->component = NULL;
	cli->color =
		isatty(STDERR_FILENO) && !(no_color != NULL && *no_color) && term != NULL && strcmp(term, "dumb") != 0;
	cli->bar_shown = false;
	cli->env = (struct sl_env){SL_ENV_INIT};
	out_init(&cli->out, STDOUT_FILENO);
	cli_configure(cli, SL_LOG_LOGFMT, SL_LOG_WARN, false);
}

void cli_configure(struct cli *cli, enum sl_log_format format, enum sl_log_level level, bool quiet)
{
	cli->log_format = format;
	cli->log_level = quiet ? SL_LOG_ERROR : level;
	cli->quiet = quiet;
	cli->env.log = on_log;
	cli->env.log_ctx = cli;
	cli->env.log_level = cli->log_level;
}

void cli_line(struct cli *cli, enum sl_log_level level, const char *text)
{
	const char *paint = !cli->color             ? ""
			    : level >= SL_LOG_ERROR ? "\033[31m"
			    : level == SL_LOG_WARN  ? "\033[33m"
						    : "";
	char clean[2048], before[128];

	/* With --log-format=json, messages of the command are records like those of the library. */
	if (cli->log_format == SL_LOG_JSON) {
		struct sl_log_field field = {.key = "command", .kind = SL_LOG_STR, .str = cli->command};
		struct sl_log_record record = {.level = level,
					       .time_ms = sl__clock_real_ms(),
					       .component = "sluice",
					       .message = text,
					       .fields = &field,
					       .n_fields = 1};

		on_log(&record, cli);
		return;
	}
	/* The text may quote a file, a row or a server's answer: nothing in it may move the cursor. */
	text_line(clean, sizeof(clean), text);
	snprintf(before, sizeof(before), "%ssluice%s%s:%s ", paint, *cli->command ? " " : "", cli->command,
		 *paint ? "\033[0m" : "");
	print_raw(cli, before, clean);
}

void cli_say(struct cli *cli, enum sl_log_level level, const char *fmt, ...)
{
	char text[2048];
	va_list ap;

	if (level < cli->log_level)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	cli_line(cli, level, text);
}

void cli_notice(struct cli *cli, const char *fmt, ...)
{
	char text[2048];
	va_list ap;

	if (cli->quiet)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	cli_line(cli, SL_LOG_INFO, text);
}

int cli_fail(struct cli *cli, const struct sl_err *err, const char *subject)
{
	/* The code alone says little; most errors have a message. */
	const char *text = err->msg[0] ? err->msg : sl_err_text(err->code);
	const char *slash = subject != NULL ? strrchr(subject, '/') : NULL;
	const char *name = slash != NULL && slash[1] ? slash + 1 : subject;
	size_t n = subject != NULL ? strlen(name) : 0;
	bool named = subject == NULL;

	/* Is the last component of subject in the text as a separate word? "repo" is not named by "repository". */
	for (const char *at = text; !named && n > 0 && (at = strstr(at, name)) != NULL; at++)
		named = (at == text || (!isalnum((unsigned char)at[-1]) && strchr("_-", at[-1]) == NULL)) &&
			!isalnum((unsigned char)at[n]) && (!at[n] || strchr("_-", at[n]) == NULL);
	if (named)
		cli_say(cli, SL_LOG_ERROR, "%s", text);
	else
		cli_say(cli, SL_LOG_ERROR, "%.500s: %s", subject, text);
	return sl_err_exit_code(err->code);
}

int cli_no_memory(struct cli *cli)
{
	cli_say(cli, SL_LOG_ERROR, "out of memory");
	return EXIT_INTERNAL;
}

int cli_usage(struct cli *cli, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	cli_say(cli, SL_LOG_ERROR, "%s (see 'sluice%s%s --help')", text, *cli->command ? " " : "", cli->command);
	return EXIT_USAGE_ERROR;
}

int cli_finish(struct cli *cli, int code)
{
	int failed = out_flush(&cli->out);

	if (!failed)
		return code;
	if (failed == EPIPE)
		return EXIT_BROKEN_PIPE;
	/* A result that was not printed is a failure, also when the work itself succeeded. */
	cli_say(cli, SL_LOG_ERROR, "standard output: %s", strerror(failed));
	return code ? code : EXIT_OUTPUT;
}

int cli_stopped(const struct cli *cli)
{
	if (out_failed(&cli->out))
		return SL_EIO;
	return stop_requested() ? SL_ECANCELLED : 0;
}

int cli_interrupted(struct cli *cli)
{
	cli_say(cli, SL_LOG_ERROR, "interrupted by a signal");
	return EXIT_INTERRUPTED;
}
