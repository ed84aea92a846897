/* SPDX-License-Identifier: Apache-2.0 */
/* The environment of a worker's commands, without secrets. */
#include "handlerenv.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define STORE "SLUICE_STORE"

static int is_named(const char *setting, const char *name)
{
	size_t n = strlen(name);

	return strncmp(setting, name, n) == 0 && setting[n] == '=';
}

static int is_passed(const char *setting, const char *const *pass, size_t n_pass)
{
	for (size_t i = 0; i < n_pass; i++) {
		if (is_named(setting, pass[i]))
			return 1;
	}
	return 0;
}

static int is_secret(const char *setting)
{
	static const char *const parts[] = {"TOKEN", "PASS", "SECRET", "KEY"};
	const char *end = strchr(setting, '=');

	if (is_named(setting, "PGPASSWORD"))
		return 1;
	for (size_t i = 0; end && strncmp(setting, "SLUICE_", 7) == 0 && i < sizeof(parts) / sizeof(*parts); i++) {
		const char *found = strstr(setting, parts[i]);

		if (found && found < end)
			return 1;
	}
	return 0;
}

/* Of "user:password@host" the ":password"; an '@' in the password is the last but one. */
static void cut_user(char *authority)
{
	size_t n = strcspn(authority, "/?#");
	char *at = memrchr(authority, '@', n), *colon = memchr(authority, ':', n);

	if (at && colon && colon < at)
		memmove(colon, at, strlen(at) + 1);
}

/* query begins after the '?'. */
static void cut_parameter(char *query, const char *name)
{
	size_t n = strlen(name);

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
	char *authority = strstr(setting, "://"), *query;

	if (!authority)
		return;
	cut_user(authority + 3);
	query = strchr(authority, '?');
	if (!query)
		return;
	cut_parameter(query + 1, "password=");
	query = strchr(authority, '?');
	if (query)
		cut_parameter(query + 1, "sslpassword=");
}

void handlerenv_hide(void)
{
	(void)prctl(PR_SET_DUMPABLE, 0);
	for (size_t i = 0; environ[i]; i++) {
		char *old = environ[i], *copy;

		if (!is_secret(old) && !is_named(old, STORE))
			continue;
		copy = strdup(old);
		if (!copy)
			continue;
		environ[i] = copy;
		explicit_bzero(old, strlen(old));
	}
}

char **handlerenv_make(char *const *from, const char *const *pass, size_t n_pass)
{
	size_t n = 0, kept = 0;
	char **list;

	while (from[n])
		n++;
	list = calloc(n + 1, sizeof(*list));
	for (size_t i = 0; list && i < n; i++) {
		int passed = is_passed(from[i], pass, n_pass);

		if (!passed && is_secret(from[i]))
			continue;
		list[kept] = strdup(from[i]);
		if (!list[kept]) {
			handlerenv_free(list);
			return NULL;
		}
		if (!passed && is_named(from[i], STORE))
			cut_password(list[kept]);
		kept++;
	}
	return list;
}

void handlerenv_free(char **list)
{
	for (size_t i = 0; list && list[i]; i++)
		free(list[i]);
	free(list);
}
