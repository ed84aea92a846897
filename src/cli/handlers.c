/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of a worker and the worker that runs them. */
#include "handlers.h"
#include "text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* ---- a command as words ---- */

/* Copy the word at *from to `to`, without its quotes; moves both on. 0, or -1 when a quote is open at the end. */
static int take_word(const char **from, char **to)
{
	const char *p = *from;
	char *o = *to;
	char quote = '\0';

	for (; *p && (quote || strchr(" \t\n", *p) == NULL); p++) {
		if (quote && *p == quote)
			quote = '\0';
		else if (!quote && (*p == '\'' || *p == '"'))
			quote = *p;
		else if (*p == '\\' && p[1] && (!quote || (quote == '"' && strchr("\\\"", p[1]) != NULL)))
			*o++ = *++p;
		else
			*o++ = *p;
	}
	*o++ = '\0';
	*from = p;
	*to = o;
	return quote ? -1 : 0;
}

/* A command line as a NULL-terminated array of words, one block of memory: blanks separate, quotes and backslashes keep
 * together, nothing is expanded. NULL with *error set when a quote is not closed, nothing is there, or memory ran out.
 * Inside '…' everything is itself; inside "…" a backslash makes \ and " themselves; outside it makes any character
 * itself. */
static char **words_split(const char *text, const char **error)
{
	size_t len = strlen(text);
	/* A word takes at least one byte of text and a pointer: one block holds the array and, after it, the bytes. */
	char **words = calloc(1, (len / 2 + 2) * sizeof(*words) + len + 2);
	char *to = words != NULL ? (char *)(words + len / 2 + 2) : NULL;
	size_t n = 0;

	*error = words != NULL ? NULL : "out of memory";
	for (const char *p = text; words != NULL && *error == NULL;) {
		p += strspn(p, " \t\n");
		if (!*p)
			break;
		words[n++] = to;
		if (take_word(&p, &to))
			*error = "a quote is not closed";
	}
	if (words != NULL && *error == NULL && n == 0)
		*error = "it is empty";
	if (*error != NULL) {
		free(words);
		return NULL;
	}
	return words;
}

/* ---- the environment of commands ---- */

/*
 * The worker's own, without what is secret and Sluice's. PGPASSWORD and every SLUICE_… whose name has TOKEN, PASS,
 * SECRET or KEY in it are left out, and SLUICE_STORE loses its password; what is named in pass stays as it is. A
 * command that needs the store can still reach one that asks for no password, or finds it in a password file.
 */
#define STORE "SLUICE_STORE"

static bool is_named(const char *setting, const char *name)
{
	size_t n = strlen(name);

	return strncmp(setting, name, n) == 0 && setting[n] == '=';
}

static bool is_secret(const char *setting)
{
	static const char *const parts[] = {"TOKEN", "PASS", "SECRET", "KEY"};
	const char *end = strchr(setting, '=');

	if (is_named(setting, "PGPASSWORD"))
		return true;
	for (size_t i = 0; end != NULL && strncmp(setting, "SLUICE_", 7) == 0 && i < sizeof(parts) / sizeof(*parts);
	     i++) {
		const char *found = strstr(setting, parts[i]);

		if (found != NULL && found < end)
			return true;
	}
	return false;
}

/* query begins after the '?'. */
static void cut_parameter(char *query, const char *name)
{
	size_t n = strlen(name);

	/* Every parameter of that name. */
	while (*query) {
		size_t len = strcspn(query, "&");
		const char *next = query + len + (query[len] == '&');

		if (strncmp(query, name, n) != 0) {
			query += next - query;
		} else if (*next) {
			memmove(query, next, strlen(next) + 1);
		} else {
			query[-1] = '\0';
			return;
		}
	}
}

static void cut_password(char *setting)
{
	char *authority = strstr(setting, "://"), *query, *at, *colon;
	size_t n;

	if (authority == NULL)
		return;
	/* Of "user:password@host" the ":password"; an '@' in the password is the last but one. */
	n = strcspn(authority + 3, "/?#");
	at = memrchr(authority + 3, '@', n);
	colon = memchr(authority + 3, ':', n);
	if (at != NULL && colon != NULL && colon < at)
		memmove(colon, at, strlen(at) + 1);
	query = strchr(authority, '?');
	if (query == NULL)
		return;
	cut_parameter(query + 1, "password=");
	query = strchr(authority, '?');
	if (query != NULL)
		cut_parameter(query + 1, "sslpassword=");
}

void handlers_hide_secrets(void)
{
	(void)prctl(PR_SET_DUMPABLE, 0);
	for (size_t i = 0; environ[i]; i++) {
		char *old = environ[i], *copy;

		if (!is_secret(old) && !is_named(old, STORE))
			continue;
		copy = strdup(old);
		if (copy == NULL)
			continue;
		environ[i] = copy;
		explicit_bzero(old, strlen(old));
	}
}

static void handlerenv_free(char **list)
{
	for (size_t i = 0; list != NULL && list[i] != NULL; i++)
		free(list[i]);
	free(list);
}

/* "NAME=value"…, NULL at the end, to be freed with handlerenv_free; NULL without memory. */
static char **handlerenv_make(char *const *from, const char *const *pass, size_t n_pass)
{
	size_t n = 0, kept = 0;
	char **list;

	while (from[n] != NULL)
		n++;
	list = calloc(n + 1, sizeof(*list));
	for (size_t i = 0; list != NULL && i < n; i++) {
		bool passed = false;

		for (size_t k = 0; k < n_pass; k++)
			passed |= is_named(from[i], pass[k]);
		if (!passed && is_secret(from[i]))
			continue;
		list[kept] = strdup(from[i]);
		if (list[kept] == NULL) {
			handlerenv_free(list);
			return NULL;
		}
		if (!passed && is_named(from[i], STORE))
			cut_password(list[kept]);
		kept++;
	}
	return list;
}

/* ---- handlers ---- */

int handlers_add(struct handlers *s, const char *text)
{
	struct handler *h = &s->list[s->n];
	const char *equals = strchr(text, '=');
	const char *error = NULL;

	if (s->n == HANDLERS_MAX)
		return cli_usage(s->cli, "more than %d types", HANDLERS_MAX);
	s->n++;
	h->name = strndup(text, equals != NULL ? (size_t)(equals - text) : strlen(text));
	if (h->name == NULL)
		return cli_no_memory(s->cli);
	if (!*h->name)
		return cli_usage(s->cli, "--type '%.100s': missing name before the '='", text);

	/* The command: for the shell, as words, or in the input of each job. */
	if (equals != NULL && s->shell) {
		h->shell_argv[0] = "/bin/sh", h->shell_argv[1] = "-c", h->shell_argv[2] = equals + 1;
		if (!equals[1])
			return cli_usage(s->cli, "--type %s=: missing command", h->name);
	} else {
		if (equals != NULL) {
			h->argv = words_split(equals + 1, &error);
			if (error != NULL)
				return cli_usage(s->cli, "--type %s: invalid command: %s", h->name, error);
		} else if (!s->command_from_input) {
			return cli_usage(
				s->cli,
				"--type %s: missing command; give %s=COMMAND, or --command-from-input to let the "
				"input of each job name it",
				h->name, h->name);
		}
	}
	for (size_t k = 0; k + 1 < s->n; k++) {
		if (strcmp(h->name, s->list[k].name) == 0)
			return cli_usage(s->cli, "--type %s is given twice", h->name);
	}
	return 0;
}

/* On any thread. */
static void on_observation(const struct sl_observation *o, void *ctx)
{
	struct handlers *s = ctx;
	const char *why = o->err != NULL ? o->err->msg : "";

	/* A job that was reaped had a worker that died, perhaps with output that is not sent. */
	if (o->kind == SL_OBSERVE_JOB_REAPED)
		workerlog_nudge(s->log);
	if (o->kind == SL_OBSERVE_WORKER_STOPPING)
		cli_say(s->cli, SL_LOG_INFO, "stopping; no new jobs are started");
	if (o->kind == SL_OBSERVE_ATTEMPT_FAILED || o->kind == SL_OBSERVE_ATTEMPT_ABORTED ||
	    o->kind == SL_OBSERVE_JOB_FAILED || o->kind == SL_OBSERVE_LEASE_LOST)
		cli_say(s->cli, SL_LOG_INFO, "job %" PRIu64 ", attempt %d: %s%s%s", o->id, o->attempt,
			sl_observe_name(o->kind), *why ? ": " : "", why);
}

int handlers_start(struct handlers *h, const struct handlers_opts *o, struct jobstore *store, struct workerlog *log)
{
	struct sl_processor processors[HANDLERS_MAX];
	struct sl_err err = SL_ERR_INIT;
	char types[TEXT_COUNT_BYTES], slots[TEXT_COUNT_BYTES];
	struct sl_worker_opts opts = {
		SL_WORKER_OPTS_INIT,
		.env = h->env,
		.store = &store->store,
		.notify = store->notify.ops != NULL ? &store->notify : NULL,
		.worker_id = o->worker_id,
		.processors = processors,
		.n_processors = h->n,
		.slots = (int32_t)o->slots,
		.poll_interval_ms = o->poll_interval_ms,
		.events = log->wal,
		.observe = on_observation,
		.observe_ctx = h,
	};

	h->log = log;
	h->environment = handlerenv_make(environ, o->pass_env, o->n_pass_env);
	if (h->environment == NULL)
		return cli_no_memory(h->cli);
	/* One processor for each type, with its own command. */
	for (size_t i = 0; i < h->n; i++) {
		struct handler *one = &h->list[i];
		struct sl_exec_opts exec = {
			SL_EXEC_OPTS_INIT,
			.env = h->env,
			.argv = one->shell_argv[0] != NULL ? one->shell_argv : (const char *const *)one->argv,
			.events = log->wal,
			.spool_dir = log->spool,
			.kill_grace_ms = o->kill_grace_ms,
			.environment = (const char *const *)h->environment,
			.run_as = o->run_as,
		};
		bool from_input =
			one->argv == NULL && one->shell_argv[0] == NULL; /* a command that a person ran once */

		if (sl_exec_new(&one->exec, &exec, &err))
			return cli_fail(h->cli, &err, one->name);
		processors[i] = (struct sl_processor){
			SL_PROCESSOR_INIT,
			.type = one->name,
			.process = sl_exec_process,
			.ctx = one->exec,
			.lease_ms = o->lease_ms,
			.renew_interval_ms = o->renew_interval_ms,
			.timeout_ms = o->timeout_ms,
			/* The default cap may be below the first delay; another one was refused. */
			.retry = {.first_ms = o->initial_delay_ms,
				  .cap_ms = SL_MAX(o->max_delay_ms, o->initial_delay_ms),
				  .max_attempts = from_input ? 1 : (int32_t)o->max_attempts},
		};
	}
	if (sl_worker_new(&h->worker, &opts, &err) || sl_worker_start(h->worker, &err))
		return cli_fail(h->cli, &err, NULL);
	cli_say(h->cli, SL_LOG_INFO, "worker %s serves %s with %s", sl_worker_id(h->worker),
		text_count(types, h->n, "type"), text_count(slots, (uint64_t)o->slots, "slot"));
	return 0;
}

int handlers_stop(struct handlers *h, int64_t grace_ms)
{
	struct sl_err err = SL_ERR_INIT;

	if (h->worker == NULL || !sl_worker_stop(h->worker, grace_ms, &err))
		return EXIT_OK;
	cli_say(h->cli, SL_LOG_WARN, "stopping: %s", err.msg);
	return EXIT_INTERRUPTED;
}

void handlers_fini(struct handlers *h)
{
	sl_worker_free(h->worker);
	for (size_t i = 0; i < h->n; i++) {
		sl_exec_free(h->list[i].exec);
		free(h->list[i].argv);
		free(h->list[i].name);
	}
	handlerenv_free(h->environment);
	h->environment = NULL;
	h->worker = NULL;
	h->n = 0;
}
