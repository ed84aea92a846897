/* SPDX-License-Identifier: Apache-2.0 */
/* What a dataset may be called, and which paths stay below it. */
#include "base/utf8.h"
#include "pipeline/audit/event.h"

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

int sl_dataset_check_name(const char *name, struct sl_err *err)
{
	size_t n = name != NULL ? strlen(name) : 0;
	if (n >= 1 && n <= SL_DATASET_NAME_MAX && strchr(LETTERS, name[0]) != NULL && strspn(name, LETTERS "._-") == n)
		return 0;
	return sl_err_set(
		err, SL_EINVAL,
		"dataset: a name begins with a letter or a digit, goes on with letters, digits and . _ -, and "
		"has at most %d bytes",
		SL_DATASET_NAME_MAX);
}

/* The part of a path up to the next slash: not empty, and not hidden from readers (. and _), so neither "." nor "..".
 */
static bool part_ok(const char *part, size_t n)
{
	return n > 0 && part[0] != '.' && part[0] != '_';
}

static bool printable(const char *s)
{
	for (const char *p = s; *p != '\0'; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			return false;
	return sl__utf8_valid(s);
}

bool sl__audit_path_ok(const char *dataset, const char *path)
{
	size_t n = strlen(dataset);
	if (strlen(path) > SL__AUDIT_PATH_MAX || strncmp(path, dataset, n) != 0 || path[n] != '/' || !printable(path))
		return false;
	const char *part = path + n + 1;
	for (;;) {
		size_t len = strcspn(part, "/");
		if (!part_ok(part, len))
			return false;
		if (part[len] == '\0')
			return true;
		part += len + 1;
	}
}
