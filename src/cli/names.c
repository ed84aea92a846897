/* SPDX-License-Identifier: Apache-2.0 */
/* The files and archives of one log in a folder, sorted. */
#include "names.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int names_list(struct names *out, const char *dir, const char *id, int archives)
{
	DIR *d = opendir(dir);
	size_t n = strlen(id);
	struct dirent *e;
	int rc = 0;

	memset(out, 0, sizeof(*out));
	if (!d)
		return 0;
	while (!rc && (e = readdir(d))) {
		const char *name = e->d_name, *rest = name + n + 4;
		char **grown, *copy;

		/* Is it <id>.wal….zst, or else <id>.wal or <id>.wal.<digits>? */
		if (strncmp(name, id, n) != 0 || strncmp(name + n, ".wal", 4) != 0)
			continue;
		if (archives ? strlen(rest) < 4 || rest[0] != '.' || strcmp(name + strlen(name) - 4, ".zst") != 0
			     : *rest && (rest[0] != '.' || !rest[1] || rest[1 + strspn(rest + 1, "0123456789")]))
			continue;
		copy = strdup(name);
		grown = copy ? realloc(out->names, (out->n + 1) * sizeof(*grown)) : NULL;
		if (!grown) {
			free(copy);
			rc = -1;
			break;
		}
		out->names = grown;
		out->names[out->n++] = copy;
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
