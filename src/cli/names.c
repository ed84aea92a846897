/* SPDX-License-Identifier: Apache-2.0 */
/* The files and archives of one log in a folder, sorted. */
#include "names.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

static int all_digits(const char *s)
{
	return *s && s[strspn(s, "0123456789")] == '\0';
}

static int belongs(const char *name, const char *id, int archives)
{
	size_t n = strlen(id);
	size_t len = strlen(name);

	if (strncmp(name, id, n) != 0 || strncmp(name + n, ".wal", 4) != 0)
		return 0;
	if (archives)
		return len > n + 8 - 1 && name[n + 4] == '.' && strcmp(name + len - 4, ".zst") == 0;
	return name[n + 4] == '\0' || (name[n + 4] == '.' && all_digits(name + n + 5));
}

static int add(struct names *names, const char *name)
{
	char *copy = strdup(name);
	char **grown = copy ? realloc(names->names, (names->n + 1) * sizeof(*grown)) : NULL;

	if (!grown) {
		free(copy);
		return -1;
	}
	names->names = grown;
	names->names[names->n++] = copy;
	return 0;
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int names_list(struct names *out, const char *dir, const char *id, int archives)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	int rc = 0;

	memset(out, 0, sizeof(*out));
	if (!d)
		return 0;
	while (!rc && (e = readdir(d))) {
		if (belongs(e->d_name, id, archives))
			rc = add(out, e->d_name);
	}
	closedir(d);
	if (rc)
		names_free(out);
	else if (out->n)
		qsort(out->names, out->n, sizeof(*out->names), compare);
	return rc;
}

int names_have(const struct names *names, const char *name)
{
	for (size_t i = 0; i < names->n; i++) {
		if (strcmp(names->names[i], name) == 0)
			return 1;
	}
	return 0;
}

void names_free(struct names *names)
{
	for (size_t i = 0; i < names->n; i++)
		free(names->names[i]);
	free(names->names);
	memset(names, 0, sizeof(*names));
}
