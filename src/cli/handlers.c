/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of a worker and the worker that runs them. */
#include "handlers.h"
#include "base/base.h"
#include "base/time.h"
#include "stop.h"
#include "text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define DETACHED_TYPE "run" /* as 'sluice run --detach' makes them */

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
	char *authority = strstr(setting, "://"), *host, *query, *colon;

	if (authority == NULL)
		return;
	authority += strlen("://");
	/* Of "user:password@host" the ":password". */
	host = setting + (jobstore_host(setting) - setting);
	colon = memchr(authority, ':', (size_t)(host - authority));
	if (colon != NULL) {
		memmove(colon, host - 1, strlen(host - 1) + 1);
		host = colon + 1;
	}
	query = strchr(host, '?');
	if (query == NULL)
		return;
	cut_parameter(query + 1, "password=");
	query = strchr(host, '?');
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

/* One line about a command; place NULL: of --type. 64, or 78 for one of a file. */
static SL_PRINTF(4, 5) int bad_handler(const struct handlers *h, const char *name, const char *place, const char *fmt,
				       ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (place == NULL)
		return cli_usage(h->cli, "--type %s: %s", name, text);
	cli_say(h->cli, SL_LOG_ERROR, "%s: %s", place, text);
	return sl_err_exit_code(SL_ECONFIG);
}

static const struct handler *find_handler(const struct handlers *h, const char *name)
{
	for (size_t i = 0; i < h->n; i++)
		if (strcmp(h->list[i].name, name) == 0)
			return &h->list[i];
	return NULL;
}

/* command: for the shell, as words, or NULL: in the input of each job. It must be there, unless the shell runs it. */
static int add_handler(struct handlers *h, const char *name, const char *command, const char *place)
{
	struct handler *one = &h->list[h->n];
	const char *error = NULL;
	struct sl_err err = SL_ERR_INIT;

	if (h->n == HANDLERS_MAX)
		return cli_usage(h->cli, "more than %d types", HANDLERS_MAX);
	if (find_handler(h, name) != NULL)
		return cli_usage(h->cli, "--type %s is given twice", name);
	one->name = strdup(name);
	if (one->name == NULL)
		return cli_no_memory(h->cli);
	h->n++;
	if (command == NULL && !h->config->jobs_command_from_input)
		return bad_handler(h, name, place,
				   "missing command; give %s=COMMAND, or --command-from-input to let the input of each "
				   "job name it",
				   name);
	if (command == NULL)
		return 0;
	if (!*command)
		return cli_usage(h->cli, "--type %s=: missing command", name);
	if (h->config->jobs_shell) {
		one->shell_argv[0] = "/bin/sh", one->shell_argv[1] = "-c", one->shell_argv[2] = command;
		return 0;
	}
	one->argv = words_split(command, &error);
	if (one->argv == NULL)
		return bad_handler(h, name, place, "invalid command: %s", error);
	if (!sl_exec_check_command(one->argv[0], h->config->jobs_run_as, &err))
		return 0;
	return err.code == SL_ENOENT || err.code == SL_EACCES ? bad_handler(h, name, place, "%s", err.msg)
							      : cli_fail(h->cli, &err, NULL);
}

/* A type that is set by a flag is meant for this worker, so another name is a mistake. A file may be shared. */
static int check_set_types(const struct handlers *h)
{
	for (size_t i = 0; i < h->config->types.n; i++) {
		const struct srv_type *type = &h->config->types.items[i];

		for (int k = 0; k < SRV_N_TYPE_SETTINGS && find_handler(h, type->name) == NULL; k++) {
			if (!srv_type_has(type, (enum srv_type_index)k) || type->places[k].line ||
			    k == SRV_TYPE_priority)
				continue;
			return cli_usage(h->cli,
					 "--set types.%s.%s: this worker does not serve %s; add --type %s=COMMAND",
					 type->name, srv_type_settings[k].name, type->name, type->name);
		}
	}
	return 0;
}

int handlers_init(struct handlers *h, struct cli *cli, const struct sl_env *env, const struct srv_config *config,
		  bool detached)
{
	int rc = 0;

	*h = (struct handlers){.cli = cli, .env = env, .config = config};
	for (size_t i = 0; rc == 0 && i < config->jobs_types.n; i++) {
		const char *text = config->jobs_types.items[i], *equals = strchr(text, '=');
		char *name = strndup(text, equals != NULL ? (size_t)(equals - text) : strlen(text));

		if (name == NULL)
			return cli_no_memory(cli);
		rc = *name ? add_handler(h, name, equals != NULL ? equals + 1 : NULL, NULL)
			   : cli_usage(cli, "--type '%.100s': missing name before the '='", text);
		free(name);
	}
	for (size_t i = 0; rc == 0 && i < config->types.n; i++) {
		const struct srv_type *type = &config->types.items[i];
		char place[PATH_MAX];

		if (srv_type_has(type, SRV_TYPE_command) && find_handler(h, type->name) == NULL)
			rc = add_handler(h, type->name, type->command,
					 srv_type_place(config, type, SRV_TYPE_command, place, sizeof(place)));
	}
	if (rc == 0 && detached && config->jobs_command_from_input && find_handler(h, DETACHED_TYPE) == NULL)
		rc = add_handler(h, DETACHED_TYPE, NULL, NULL);
	if (rc != 0)
		return rc;
	return check_set_types(h);
}

/* ---- what is reported ---- */

enum { FAILED_LINES_A_SECOND = 20, SHOWN_RUNNING = 5 };

static const char *served_type(const struct handlers *h, const char *type)
{
	const struct handler *found = type != NULL ? find_handler(h, type) : NULL;

	return found != NULL ? found->name : "?";
}

/* On the thread of the handler. What ran there before is over, although its end may not be observed yet (the store is
 * slow) or never will be (it was given back). */
static void attempt_began(struct handlers *h, const struct sl_observation *o)
{
	struct handlers_said *s = &h->said;
	size_t i = 0;

	pthread_mutex_lock(&s->mu);
	while (i < s->n_running && !pthread_equal(s->running[i].thread, pthread_self()))
		i++;
	if (i < s->slots) {
		s->running[i] = (struct handlers_running){pthread_self(), o->id, o->attempt, served_type(h, o->type)};
		s->n_running = SL_MAX(s->n_running, i + 1);
	}
	pthread_mutex_unlock(&s->mu);
}

/* On any thread. The next attempt of the same job may have begun. */
static void attempt_is_over(struct handlers *h, const struct sl_observation *o)
{
	struct handlers_said *s = &h->said;

	pthread_mutex_lock(&s->mu);
	for (size_t i = 0; i < s->n_running; i++) {
		if (s->running[i].id == o->id && s->running[i].attempt == o->attempt) {
			s->running[i] = s->running[--s->n_running];
			break;
		}
	}
	pthread_mutex_unlock(&s->mu);
}

static void say_left_out(struct handlers *h, uint64_t n)
{
	if (n)
		cli_notice(h->cli, "%" PRIu64 " more lines about failed attempts were left out", n);
}

/* One of the lines of which there may be too many: whether it is printed. Says first how many were left out before. */
static bool may_say(struct handlers *h)
{
	struct handlers_said *s = &h->said;
	int64_t now = sl__clock_ms();
	uint64_t left_out = 0;
	bool yes;

	pthread_mutex_lock(&s->mu);
	if (now - s->second_ms >= 1000) {
		s->second_ms = now;
		s->n_failed = 0;
		left_out = s->n_left_out;
		s->n_left_out = 0;
	}
	yes = s->n_failed < FAILED_LINES_A_SECOND;
	s->n_failed += yes;
	s->n_left_out += !yes;
	pthread_mutex_unlock(&s->mu);
	say_left_out(h, left_out);
	return yes;
}

/* "finishing job 3 (mail), job 7 (resize)…": copied under the lock, printed after it. */
static void say_stopping(struct handlers *h)
{
	struct handlers_running shown[SHOWN_RUNNING];
	struct handlers_said *s = &h->said;
	char text[1024];
	size_t n, used = 0;

	pthread_mutex_lock(&s->mu);
	n = s->n_running;
	memcpy(shown, s->running, SL_MIN(n, SHOWN_RUNNING) * sizeof(*shown));
	pthread_mutex_unlock(&s->mu);
	if (n == 0) {
		if (stop_requested()) /* not at the end of a drain */
			cli_notice(h->cli, "stopping; no job is running");
		return;
	}
	for (size_t i = 0; i < SL_MIN(n, SHOWN_RUNNING); i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%sjob %" PRIu64 " (%.100s)", i ? ", " : "",
					 shown[i].id, shown[i].type);
	if (n > SHOWN_RUNNING)
		(void)snprintf(text + used, sizeof(text) - used, " and %zu more", n - SHOWN_RUNNING);
	cli_notice(h->cli, "stopping; finishing %s. A second signal exits immediately", text);
}

/* On any thread. */
static void on_observation(const struct sl_observation *o, void *ctx)
{
	struct handlers *h = ctx;
	const char *type = served_type(h, o->type), *why = o->err != NULL ? o->err->msg : "no reason was given";

	switch (o->kind) {
	case SL_OBSERVE_JOB_REAPED: /* its worker died, perhaps with output that is not sent */
		workerlog_nudge(h->log);
		break;
	case SL_OBSERVE_WORKER_STOPPING:
		say_stopping(h);
		break;
	case SL_OBSERVE_ATTEMPT_STARTED:
		attempt_began(h, o);
		break;
	case SL_OBSERVE_ATTEMPT_COMPLETED:
		attempt_is_over(h, o);
		break;
	case SL_OBSERVE_ATTEMPT_FAILED:
		attempt_is_over(h, o);
		if (!may_say(h))
			break;
		/* The reason may have what the command printed last, and stderr may end in a file. */
		if (h->config->wal_key_file != NULL)
			cli_notice(h->cli,
				   "job %" PRIu64 " (%s), attempt %d failed; see the reason with: sluice jobs show "
				   "%" PRIu64,
				   o->id, type, o->attempt, o->id);
		else
			cli_notice(h->cli, "job %" PRIu64 " (%s), attempt %d failed: %s", o->id, type, o->attempt, why);
		break;
	case SL_OBSERVE_ATTEMPT_ABORTED:
		attempt_is_over(h, o);
		if (may_say(h))
			cli_notice(h->cli, "job %" PRIu64 " (%s), attempt %d was stopped: %s", o->id, type, o->attempt,
				   why);
		break;
	case SL_OBSERVE_JOB_FAILED:
		if (may_say(h))
			cli_notice(h->cli,
				   "job %" PRIu64 " (%s) failed and is not retried; retry it with: sluice jobs retry "
				   "%" PRIu64,
				   o->id, type, o->id);
		break;
	case SL_OBSERVE_LEASE_LOST:
		attempt_is_over(h, o);
		if (may_say(h))
			cli_notice(h->cli, "job %" PRIu64 " (%s), attempt %d lost its lease: %s", o->id, type,
				   o->attempt, why);
		break;
	default:
		break;
	}
}

/* What holds for the type, in the worker's terms. */
static struct sl_processor processor_of(const struct handlers *h, const struct handler *one)
{
	bool from_input = one->argv == NULL && one->shell_argv[0] == NULL; /* a command that a person ran once */
	struct srv_type t;

	srv_type_resolve(h->config, one->name, &t);
	return (struct sl_processor){
		SL_PROCESSOR_INIT,
		.type = one->name,
		.process = sl_exec_process,
		.ctx = one->exec,
		.lease_ms = t.lease,
		.renew_interval_ms = t.renew,
		.timeout_ms = t.timeout,
		.slots = (int32_t)t.slots,
		.next_job_delay_ms = t.next_job_delay,
		/* The cap of all types may be below the first delay of one; its own was refused. */
		.retry = {.first_ms = t.retry_first,
			  .cap_ms = t.retry_cap ? SL_MAX(t.retry_cap, t.retry_first) : 0,
			  .multiplier = (double)t.retry_multiplier / 1000,
			  .max_attempts = from_input ? 1 : (int32_t)t.max_attempts},
	};
}

int handlers_start(struct handlers *h, struct jobstore *store, struct workerlog *log)
{
	const struct srv_config *c = h->config;
	struct sl_processor processors[HANDLERS_MAX];
	struct sl_err err = SL_ERR_INIT;
	char types[512] = "", slots[TEXT_COUNT_BYTES];
	size_t used = 0;
	struct sl_worker_opts opts = {
		SL_WORKER_OPTS_INIT,
		.env = h->env,
		.store = &store->store,
		.notify = store->notify.ops != NULL ? &store->notify : NULL,
		.worker_id = h->worker_id,
		.processors = processors,
		.n_processors = h->n,
		.slots = (int32_t)c->jobs_slots,
		.poll_interval_ms = c->jobs_poll_interval_ms,
		.events = log->wal,
		.retention = h->retention,
		.observe = on_observation,
		.observe_ctx = h,
	};

	h->log = log;
	h->said.slots = (size_t)c->jobs_slots;
	h->said.running = calloc(h->said.slots, sizeof(*h->said.running));
	if (h->said.running == NULL)
		return cli_no_memory(h->cli);
	(void)pthread_mutex_init(&h->said.mu, NULL);
	h->environment = handlerenv_make(environ, (const char *const *)c->jobs_pass_env.items, c->jobs_pass_env.n);
	if (h->environment == NULL)
		return cli_no_memory(h->cli);
	if (srv_types_registry(c, h->env, &h->types, &err))
		return cli_fail(h->cli, &err, NULL);
	opts.types = h->types;
	/* One processor for each type, with its own command. */
	for (size_t i = 0; i < h->n; i++) {
		struct handler *one = &h->list[i];
		struct sl_exec_opts exec = {
			SL_EXEC_OPTS_INIT,
			.env = h->env,
			.argv = one->shell_argv[0] != NULL ? one->shell_argv : (const char *const *)one->argv,
			.events = log->wal,
			.spool_dir = log->spool,
			.kill_grace_ms = c->jobs_kill_grace_ms,
			.environment = (const char *const *)h->environment,
			.run_as = c->jobs_run_as,
		};

		if (sl_exec_new(&one->exec, &exec, &err))
			return cli_fail(h->cli, &err, one->name);
		processors[i] = processor_of(h, one);
	}
	if (sl_worker_new(&h->worker, &opts, &err) || sl_worker_start(h->worker, &err))
		return cli_fail(h->cli, &err, NULL);
	if (h->store_name == NULL)
		return 0;
	for (size_t i = 0; i < h->n && used < sizeof(types) - 1; i++)
		used += (size_t)snprintf(types + used, sizeof(types) - used, "%s%s", i ? ", " : "", h->list[i].name);
	cli_notice(h->cli, "ready: type%s %s%s, %s, store %s", h->n == 1 ? "" : "s", types,
		   used >= sizeof(types) ? "…" : "", text_count(slots, (uint64_t)c->jobs_slots, "slot"), h->store_name);
	return 0;
}

int handlers_stop(struct handlers *h, int64_t grace_ms)
{
	struct sl_err err = SL_ERR_INIT;
	int rc;

	if (h->worker == NULL)
		return EXIT_OK;
	rc = sl_worker_stop(h->worker, grace_ms, &err);
	say_left_out(h, h->said.n_left_out); /* its threads have ended */
	h->said.n_left_out = 0;
	if (rc == 0)
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
	sl_job_types_free(h->types);
	handlerenv_free(h->environment);
	h->environment = NULL;
	h->types = NULL;
	if (h->said.running != NULL)
		(void)pthread_mutex_destroy(&h->said.mu);
	free(h->said.running);
	h->said.running = NULL;
	h->worker = NULL;
	h->n = 0;
}
