/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arguments and environment of a command. What is the same for all attempts is made once, in memory that minders
 * inherit by their fork; what belongs to one attempt goes into the arena of the shared memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <jansson.h>

#include "jobs/exec/priv.h"

static const char *const own_names[] = {"SLUICE_JOB_ID", "SLUICE_CHAIN_ID", "SLUICE_ATTEMPT", "SLUICE_TYPE",
					"TRACEPARENT"};
static const char *const user_names[] = {"HOME", "USER", "LOGNAME"};

static bool names_variable(const char *setting, const char *name, size_t n)
{
	return strncmp(setting, name, n) == 0 && setting[n] == '=';
}

/* ---- once ---- */

static bool is_one_of(const char *setting, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (names_variable(setting, names[i], strlen(names[i])))
			return true;
	return false;
}

static char **copy_strings(const struct sl_env *env, const char *const *list)
{
	size_t n = 0;
	while (list[n] != NULL)
		n++;
	return (char **)(uintptr_t)sl__strdup_list(env, list, n);
}

/* ---- memory of the arena, for one attempt ---- */

struct arena {
	char *at, *end; /* at NULL: it was too small */
};

static void *arena_alloc(struct arena *a, size_t n, size_t align)
{
	if (a->at == NULL)
		return NULL;
	size_t skip = (size_t)(-(uintptr_t)a->at & (align - 1));
	if ((size_t)(a->end - a->at) < skip || (size_t)(a->end - a->at) - skip < n) {
		a->at = NULL;
		return NULL;
	}
	char *p = a->at + skip;
	a->at = p + n;
	return p;
}

static void *arena_list(struct arena *a, size_t n)
{
	void *p = arena_alloc(a, n * sizeof(char *), _Alignof(char *));
	if (p != NULL)
		memset(p, 0, n * sizeof(char *));
	return p;
}

static char *arena_text(struct arena *a, const char *text, size_t n)
{
	char *p = arena_alloc(a, n + 1, 1);
	if (p != NULL) {
		memcpy(p, text, n);
		p[n] = '\0';
	}
	return p;
}

SL_PRINTF(2, 3) static char *arena_printf(struct arena *a, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	int n = vsnprintf(a->at, a->at != NULL ? (size_t)(a->end - a->at) : 0, fmt, args);
	va_end(args);
	return arena_alloc(a, (size_t)n + 1, 1);
}

/* What name may mean: itself when it has a slash, else one file in each folder of PATH. */
static const char **arena_paths(struct arena *a, const char *search, const char *name)
{
	size_t n = 1, len = strlen(name);
	for (const char *p = search; *p != '\0'; p++)
		n += *p == ':';
	const char **paths = arena_list(a, n + 1);
	if (paths == NULL)
		return NULL;
	if (strchr(name, '/') != NULL || len == 0) {
		paths[0] = arena_text(a, name, len);
		return paths;
	}
	for (size_t i = 0; i < n; i++) {
		int folder = (int)strcspn(search, ":");
		paths[i] = arena_printf(a, "%.*s/%s", folder > 0 ? folder : 1, folder > 0 ? search : ".", name);
		search += folder + (search[folder] == ':');
	}
	return paths;
}

const char *sl__launch_search(void)
{
	const char *search = getenv("PATH");
	return search != NULL ? search : "/usr/local/bin:/usr/bin:/bin";
}

int sl__launch_fixed(sl_exec *x, const char *const *argv, const char *const *environment, struct sl_err *err)
{
	x->search = sl__strdup(&x->env, sl__launch_search());
	/* The environment, without our own names; names and home of the user when commands run as another user. */
	const char *const *from = environment != NULL ? environment : (const char *const *)environ;
	size_t n = 0;
	while (from != NULL && from[n] != NULL)
		n++;
	x->base_env = sl__calloc(&x->env, n + SL_COUNT(user_names) + 1, sizeof(*x->base_env));
	if (x->search == NULL || x->base_env == NULL)
		return sl_err_set(err, SL_ENOMEM, "exec: out of memory");
	for (size_t i = 0; i < n; i++) {
		if (is_one_of(from[i], own_names, SL_COUNT(own_names)) ||
		    (x->user != NULL && is_one_of(from[i], user_names, SL_COUNT(user_names))))
			continue;
		x->base_env[x->n_base_env] = sl__strdup(&x->env, from[i]);
		if (x->base_env[x->n_base_env++] == NULL)
			return sl_err_set(err, SL_ENOMEM, "exec: out of memory");
	}
	for (size_t i = 0; x->user != NULL && i < SL_COUNT(user_names); i++) {
		const char *value = i == 0 ? x->user->home : x->user->name;
		x->base_env[x->n_base_env] = sl__asprintf(&x->env, "%s=%s", user_names[i], value);
		if (x->base_env[x->n_base_env++] == NULL)
			return sl_err_set(err, SL_ENOMEM, "exec: out of memory");
	}
	if (argv == NULL)
		return 0;
	if (argv[0] == NULL || argv[0][0] == '\0')
		return sl_err_set(err, SL_EINVAL, "argv: missing command");
	size_t bytes = (strlen(x->search) + 2) * (strlen(argv[0]) + 4) + 256 + strlen(x->search) * sizeof(char *);
	char *scratch = sl__alloc(&x->env, bytes);
	if (scratch == NULL)
		return sl_err_set(err, SL_ENOMEM, "exec: out of memory");
	struct arena a = {scratch, scratch + bytes};
	const char **paths = arena_paths(&a, x->search, argv[0]);
	x->paths = paths != NULL && a.at != NULL ? copy_strings(&x->env, paths) : NULL;
	x->argv = copy_strings(&x->env, argv);
	sl__free(&x->env, scratch);
	if (x->argv == NULL || x->paths == NULL)
		return sl_err_set(err, SL_ENOMEM, "exec: out of memory");
	return 0;
}

void sl__launch_free(sl_exec *x)
{
	sl__free(&x->env, x->argv);
	sl__free(&x->env, x->paths);
	for (size_t i = 0; i < x->n_base_env; i++)
		sl__free(&x->env, x->base_env[i]);
	sl__free(&x->env, x->base_env);
	sl__free(&x->env, x->search);
}

/* ---- the input as a command ---- */

static bool plain_string(const json_t *value)
{
	return json_is_string(value) && strlen(json_string_value(value)) == json_string_length(value);
}

/* What one attempt is started with. */
struct launch {
	const sl_exec *x;
	struct sl__minder_shared *shared;
	struct arena arena;
	char **envp;
	size_t n_env;
};

/* Replace the variable of that name, or add it; there is room. */
static void set_variable(struct launch *l, const char *name, char *setting)
{
	size_t len = strlen(name);
	for (size_t i = 0; i < l->n_env; i++)
		if (names_variable(l->envp[i], name, len)) {
			l->envp[i] = setting;
			return;
		}
	l->envp[l->n_env++] = setting;
}

/* argv, cwd and env of the input. What the arena has no room for is found by the caller. */
static int parse_input(struct launch *l, json_t *input, struct sl_err *err)
{
	struct arena *a = &l->arena;
	struct sl__minder_shared *sh = l->shared;
	json_t *list = json_object_get(input, "argv"), *cwd = json_object_get(input, "cwd");
	json_t *env = json_object_get(input, "env"), *value;
	size_t n_argv = json_array_size(list);
	const char *name;
	if (!json_is_object(input))
		return sl_err_set(err, SL_EDATA, "input: is not a JSON object with argv");
	if (!json_is_array(list) || n_argv == 0)
		return sl_err_set(err, SL_EDATA, "input: argv is an array of strings, with the command first");
	char **argv = arena_list(a, n_argv + 1);
	for (size_t i = 0; i < n_argv; i++) {
		json_t *item = json_array_get(list, i);
		if (!plain_string(item) || (i == 0 && json_string_length(item) == 0))
			return sl_err_set(err, SL_EDATA, "input: argv is an array of strings, with the command first");
		if (argv != NULL)
			argv[i] = arena_text(a, json_string_value(item), json_string_length(item));
	}
	sh->argv = argv;
	sh->paths = arena_paths(a, l->x->search, json_string_value(json_array_get(list, 0)));
	if (cwd != NULL && !json_is_null(cwd)) {
		if (!plain_string(cwd))
			return sl_err_set(err, SL_EDATA, "input: cwd is a string");
		sh->cwd = arena_text(a, json_string_value(cwd), json_string_length(cwd));
	}
	if (env == NULL || json_is_null(env))
		return 0;
	if (!json_is_object(env))
		return sl_err_set(err, SL_EDATA, "input: env is an object of strings");
	json_object_foreach(env, name, value)
	{
		if (!plain_string(value) || name[0] == '\0' || strchr(name, '=') != NULL)
			return sl_err_set(err, SL_EDATA, "input: env is an object of strings");
		char *setting = arena_printf(a, "%s=%s", name, json_string_value(value));
		if (setting == NULL)
			return 0;
		set_variable(l, name, setting);
	}
	return 0;
}

/* ---- an attempt ---- */

int sl__launch_prepare(const sl_exec *x, struct sl__minder_shared *shared, const struct sl_job *job,
		       const char **stdin_text, struct sl_err *err)
{
	struct launch l = {.x = x, .shared = shared, .arena = {shared->arena, shared->arena + sizeof(shared->arena)}};
	json_t *input = NULL;
	int rc = 0;
	if (x->argv == NULL)
		input = json_loads(job->input != NULL ? job->input : "null", JSON_DECODE_ANY, NULL);
	size_t more = json_object_size(json_object_get(input, "env"));
	l.n_env = x->n_base_env;
	l.envp = arena_list(&l.arena, l.n_env + more + SL_COUNT(own_names) + 1);
	if (l.envp != NULL)
		memcpy(l.envp, x->base_env, l.n_env * sizeof(*l.envp));
	shared->cwd = NULL;
	shared->argv = x->argv;
	shared->paths = (const char *const *)x->paths;
	shared->envp = l.envp;
	*stdin_text = job->input != NULL ? job->input : "null";
	if (x->argv == NULL && l.envp != NULL) {
		*stdin_text = "";
		rc = parse_input(&l, input, err);
	}
	/* Our own names last: the input cannot replace them. */
	if (rc == 0 && l.envp != NULL) {
		struct arena *a = &l.arena;
		char *own[] = {arena_printf(a, "%s=%llu", own_names[0], (unsigned long long)job->id),
			       arena_printf(a, "%s=%llu", own_names[1], (unsigned long long)job->chain_id),
			       arena_printf(a, "%s=%d", own_names[2], (int)job->attempt),
			       arena_printf(a, "%s=%s", own_names[3], job->type != NULL ? job->type : ""),
			       job->traceparent != NULL ? arena_printf(a, "%s=%s", own_names[4], job->traceparent)
							: NULL};
		for (size_t i = 0; i < SL_COUNT(own); i++)
			if (own[i] != NULL)
				set_variable(&l, own_names[i], own[i]);
	}
	json_decref(input);
	if (rc == 0 && l.arena.at == NULL)
		return sl_err_set(err, SL_ETOOBIG, "arguments and environment of the command need more than 2 MiB");
	return rc;
}
