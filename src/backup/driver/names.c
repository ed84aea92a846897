/* SPDX-License-Identifier: Apache-2.0 */
/* Names of objects: what every driver may count on, and how a local folder spells them. */
#include <stdio.h>

#include "backup/driver/local.h"

static bool character_ok(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '/';
}

static bool component_ok(const char *at, size_t n)
{
	return n > 0 && !(n == 1 && at[0] == '.') && !(n == 2 && at[0] == '.' && at[1] == '.');
}

bool sl__bk_driver_name_ok(const char *name)
{
	const char *component = name;
	for (const char *p = name;; p++) {
		if (*p != '\0' && !character_ok(*p))
			return false;
		if (*p == '\0' || *p == '/') {
			if (!component_ok(component, (size_t)(p - component)))
				return false;
			component = p + 1;
		}
		if (*p == '\0')
			return (size_t)(p - name) < SL_DRIVER_NAME_BYTES;
	}
}

static bool is_ours(const char *name)
{
	size_t n = strlen(LOCAL_TMP);
	return strncmp(name, LOCAL_TMP, n) == 0 && (name[n] == '\0' || name[n] == '/');
}

int sl__bk_local_check(const struct local *l, const char *name, struct sl_err *err)
{
	if (sl__forked(&l->guard))
		return sl_err_set(err, SL_EFORKED, "repository %s: opened by another process: open it again", l->root);
	if (!sl__bk_driver_name_ok(name) || is_ours(name))
		return sl_err_set(err, SL_EINVAL, "repository %s: \"%.200s\" is no name of an object", l->root, name);
	return 0;
}

int sl__bk_local_check_change(struct local *l, const char *name, struct sl_err *err)
{
	int rc = sl__bk_local_check(l, name, err);
	if (rc != 0)
		return rc;
	sl__lock(&l->mu);
	bool broken = l->broken;
	sl__unlock(&l->mu);
	if (!broken)
		return 0;
	rc = sl_err_set(err, SL_EPOISONED,
			"repository %s: a sync has failed before: look at the disk and open it again", l->root);
	if (err != NULL)
		err->error_class = SL_CLASS_POISON; /* no retry helps */
	return rc;
}

void sl__bk_local_path(const struct local *l, const char *name, char out[LOCAL_PATH_BYTES])
{
	int n = snprintf(out, LOCAL_PATH_BYTES, name[0] != '\0' ? "%s/%s" : "%s", l->root, name);
	assert(n > 0 && n < LOCAL_PATH_BYTES); /* open has bounded the root */
	(void)n;
}

void sl__bk_local_folder_of(const char *name, char out[SL_DRIVER_NAME_BYTES])
{
	const char *slash = strrchr(name, '/');
	(void)snprintf(out, SL_DRIVER_NAME_BYTES, "%.*s", slash != NULL ? (int)(slash - name) : 0, name);
}
