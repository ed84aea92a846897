/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exec sink: a program that gets each batch on its standard input, a record a line, and answers with its exit code.
 *
 *   0         written                        75        not now: again later, and counted
 *   65        an item of it is refused       69, 126, 127  away: everything is kept until it is back
 *   others, a signal, no end within timeout_ms: as 75
 *
 * The environment has SLUICE_BATCH_ID (the same when the same batch is tried again) and SLUICE_BATCH_ITEMS.
 * The exit code decides, whether or not the program has read its input.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "format/row.h"
#include "sink/exec_run.h"
#include "sink/sink.h"

#define TIMEOUT_MS 30000
#define EXIT_DATA 65
#define EXIT_AWAY 69
#define EXIT_NOT_NOW 75
#define OWN_SETTINGS 2

struct exec_sink {
	struct sl_env env;
	struct sl_sink_opts opts;
	char *command, *target;
	char *shell[4];
	char *const *argv; /* of opts, or shell */
	char **settings;   /* of the environment when the sink was opened; followed by room for our own */
	size_t n_settings;
	int cancel; /* an eventfd: readable for ever once cancelled */
};

struct lane {
	struct sl__buf text;
	char **envp;
	char id[64], items[64];
};

/* ---- lanes ---- */

static void exec_detach(void *ctx, void *lane)
{
	struct exec_sink *s = ctx;
	struct lane *l = lane;
	sl__buf_fini(&l->text);
	sl__free(&s->env, l->envp);
	sl__free(&s->env, l);
}

static int exec_attach(void *ctx, void **lane, struct sl_err *err)
{
	struct exec_sink *s = ctx;
	struct lane *l = sl__calloc(&s->env, 1, sizeof(*l));
	if (l == NULL)
		return sl__no_memory(err, "exec");
	sl__buf_init(&l->text, &s->env);
	l->envp = sl__calloc(&s->env, s->n_settings + OWN_SETTINGS + 1, sizeof(*l->envp));
	if (l->envp == NULL) {
		exec_detach(s, l);
		return sl__no_memory(err, "exec");
	}
	for (size_t i = 0; i < s->n_settings; i++)
		l->envp[i] = s->settings[i];
	l->envp[s->n_settings] = l->id;
	l->envp[s->n_settings + 1] = l->items;
	*lane = l;
	return 0;
}

/* ---- the input ---- */

/* The input of the program. Outside of strings a line end in JSON is white space; in CSV it is inside of quotes. */
static int put_batch(const struct exec_sink *s, struct lane *l, const struct sl_sink_batch *batch,
		     struct sl_sink_reply *reply, struct sl_err *err)
{
	struct sl__buf *text = &l->text;
	sl__buf_clear(text);
	for (size_t i = 0; i < batch->n; i++) {
		const struct sl_sink_item *item = &batch->items[i];
		size_t start = text->len;
		bool lines = s->opts.format == SL_ROWS_JSON && memchr(item->data, '\n', item->len) != NULL;
		int rc = lines ? sl__json_check_value(item->data, item->len, false, err) : 0;
		if (rc == SL_EDATA)
			reply->culprit = i;
		if (rc != 0)
			return rc;
		(void)sl__buf_append(text, item->data, item->len);
		(void)sl__buf_append(text, "\n", 1);
		if (text->failed != 0)
			return sl__no_memory(err, "exec");
		for (char *p = text->data + start; lines && p < text->data + text->len - 1; p++)
			if (*p == '\n')
				*p = ' ';
	}
	int n = snprintf(l->id, sizeof(l->id), "SLUICE_BATCH_ID=");
	*sl__hex(l->id + n, batch->id, sizeof(batch->id)) = '\0';
	(void)snprintf(l->items, sizeof(l->items), "SLUICE_BATCH_ITEMS=%zu", batch->n);
	return 0;
}

/* ---- the answer ---- */

/* The end of standard error as one line: printable, valid UTF-8, line ends as " | ". */
static void tail_line(const struct sl__exec_result *r, char *out, size_t cap)
{
	size_t end = r->tail_len, n = 0;
	while (end > 0 && (unsigned char)r->tail[end - 1] <= ' ')
		end--;
	size_t start = end > cap / 2 ? end - cap / 2 : 0;
	while (start > 0 && start < end && ((unsigned char)r->tail[start] & 0xC0) == 0x80)
		start++;
	for (size_t i = start; i < end && n + 5 < cap;) {
		size_t len = sl__utf8_length(r->tail + i);
		unsigned char c = (unsigned char)r->tail[i];
		if (c == '\n')
			n += (size_t)snprintf(out + n, cap - n, " | ");
		else if (len == 0 || c < ' ' || c == 0x7F)
			out[n++] = len == 0 ? '?' : ' ';
		else
			n = (size_t)((char *)mempcpy(out + n, r->tail + i, len) - out);
		i += len == 0 ? 1 : len;
	}
	out[n] = '\0';
}

static int exec_failed(const struct sl__exec_result *r, int code, enum sl_err_class error_class, const char *how,
		       struct sl_err *err)
{
	char tail[200];
	tail_line(r, tail, sizeof(tail));
	(void)sl_err_set(err, code, "exec: %s%s%s", how, tail[0] != '\0' ? ": " : "", tail);
	return sl__sink_class(err, code, error_class);
}

/* What the end of the program means. */
static int exec_answer(const struct exec_sink *s, const struct sl__exec_result *r, struct sl_err *err)
{
	char how[64];
	if (r->end == SL__EXEC_TIMED_OUT)
		return exec_failed(r, SL_ETIMEDOUT, SL_CLASS_TRANSIENT, "not done within timeout_ms", err);
	if (r->end == SL__EXEC_CANCELLED)
		return exec_failed(r, SL_ECANCELLED, SL_CLASS_TRANSIENT, "cancelled", err);
	if (r->end == SL__EXEC_LOST)
		return exec_failed(r, SL_EAGAIN, SL_CLASS_TRANSIENT,
				   "how it ended is not known: this process ignores SIGCHLD or reaps all children",
				   err);
	if (!WIFEXITED(r->status)) {
		(void)snprintf(how, sizeof(how), "ended by signal %d", WTERMSIG(r->status));
		return exec_failed(r, SL_EAGAIN, SL_CLASS_TRANSIENT, how, err);
	}
	int code = WEXITSTATUS(r->status);
	if (code == 0) {
		if (r->tail_len > 0)
			sl__log(&s->env, SL_LOG_DEBUG, "exec", "standard error of the program",
				SL__F_STR("text", r->tail));
		return 0;
	}
	(void)snprintf(how, sizeof(how), "exit code %d", code);
	if (code == EXIT_DATA)
		return exec_failed(r, SL_EREFUSED, SL_CLASS_POISON, how, err);
	if (code == EXIT_AWAY || code == 126 || code == 127)
		return exec_failed(r, SL_EUNAVAIL, SL_CLASS_FATAL, how, err);
	return exec_failed(r, SL_EAGAIN, SL_CLASS_TRANSIENT, how, err);
}

static int exec_write_batch(void *ctx, void *lane, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
			    struct sl_err *err)
{
	struct exec_sink *s = ctx;
	struct lane *l = lane;
	struct sl__exec_result result = {.end = SL__EXEC_CANCELLED};
	const struct sl__exec_program program = {
		.argv = s->argv, .envp = l->envp, .cancel = s->cancel, .timeout_ms = s->opts.timeout_ms};
	struct pollfd cancelled = {.fd = s->cancel, .events = POLLIN};
	int rc = put_batch(s, l, batch, reply, err);
	if (rc == 0 && poll(&cancelled, 1, 0) <= 0)
		rc = sl__exec_run_program(&program, l->text.data, l->text.len, &result, err);
	return rc != 0 ? rc : exec_answer(s, &result, err);
}

static void exec_cancel(void *ctx)
{
	struct exec_sink *s = ctx;
	uint64_t one = 1;
	(void)!write(s->cancel, &one, sizeof(one));
}

/* ---- the handle ---- */

static const char *exec_target(void *ctx)
{
	return ((struct exec_sink *)ctx)->target;
}

static void exec_close(void *ctx)
{
	struct exec_sink *s = ctx;
	struct sl_env env = s->env;
	for (size_t i = 0; i < s->n_settings; i++)
		sl__free(&env, s->settings[i]);
	sl__free(&env, s->settings);
	if (s->cancel >= 0)
		(void)close(s->cancel);
	sl__sink_free_opts(&s->opts, &env);
	sl__free(&env, s->target);
	sl__free(&env, s->command);
	sl__free(&env, s);
}

static const struct sl_sink_ops exec_ops = {.version = SL_SINK_VERSION,
					    .name = "exec",
					    .attach = exec_attach,
					    .detach = exec_detach,
					    .write = exec_write_batch,
					    .cancel = exec_cancel,
					    .close = exec_close,
					    .target = exec_target};

/* Copy the options and the environment, and choose what to run. */
static int build_exec_sink(struct exec_sink *s, const char *command, const struct sl_sink_opts *opts,
			   struct sl_err *err)
{
	static char sh[] = "/bin/sh", dash_c[] = "-c";
	size_t n = 0;
	int rc = sl__sink_copy_opts(&s->opts, opts, &s->env, err);
	if (rc != 0)
		return rc;
	if (s->opts.timeout_ms == 0)
		s->opts.timeout_ms = TIMEOUT_MS;
	/* The environment as it is now. */
	while (environ != NULL && environ[n] != NULL)
		n++;
	s->command = sl__strdup(&s->env, command != NULL ? command : "");
	s->settings = sl__calloc(&s->env, n + 1, sizeof(*s->settings));
	if (s->command == NULL || s->settings == NULL)
		return sl__no_memory(err, "exec");
	for (size_t i = 0; i < n; i++) {
		if (strncmp(environ[i], "SLUICE_BATCH_", 13) == 0)
			continue;
		s->settings[s->n_settings] = sl__strdup(&s->env, environ[i]);
		if (s->settings[s->n_settings] == NULL)
			return sl__no_memory(err, "exec");
		s->n_settings++;
	}
	s->cancel = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->cancel < 0)
		return sl_err_set_errno(err, errno, "exec: eventfd");
	/* The program: argv, or the command by way of a shell. execve does not change the strings. */
	union {
		const char *const *in;
		char *const *out;
	} argv = {.in = s->opts.argv};
	bool named = s->command[0] != '\0';
	if (argv.in != NULL && (argv.in[0] == NULL || argv.in[0][0] == '\0'))
		return sl_err_set(err, SL_EINVAL, "exec: argv names no program");
	if ((argv.in != NULL) == named)
		return sl_err_set(err, SL_EINVAL, "exec: missing command; give exec:COMMAND or argv, not both");
	s->shell[0] = sh;
	s->shell[1] = dash_c;
	s->shell[2] = s->command;
	s->argv = named ? s->shell : argv.out;
	s->target = sl__asprintf(&s->env, "exec:%s", named ? s->command : argv.in[0]);
	return s->target != NULL ? 0 : sl__no_memory(err, "exec");
}

int sl_sink_exec_open(sl_sink *out, const char *command, const struct sl_sink_opts *opts, struct sl_err *err)
{
	struct sl_env env;
	int rc = sl__sink_check_opts(opts, SL__SINK_ROWS | SL__SINK_EXEC, "exec:", err);
	if (rc == 0)
		rc = sl__env_init(&env, SL_OPT_HAS(opts, env) ? opts->env : NULL, err);
	if (rc != 0)
		return rc;
	struct exec_sink *s = sl__calloc(&env, 1, sizeof(*s));
	if (s == NULL)
		return sl__no_memory(err, "exec");
	s->env = env;
	s->cancel = -1;
	rc = build_exec_sink(s, command, opts, err);
	if (rc != 0)
		exec_close(s);
	else
		*out = (sl_sink){.ops = &exec_ops, .ctx = s};
	return rc;
}
