/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a log in its folder: sealed segments, the active file, temporary files. */
#include "wal/segs.h"

#include "base/compare.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct listing {
	struct wal_files *out;
	const struct sl_env *env;
	const char *id;
	size_t id_len;
};

static int on_log_file(const char *name, void *ctx)
{
	struct listing *l = ctx;
	struct wal_files *f = l->out;
	size_t id_len;
	uint64_t first;
	enum wal_name_kind kind = sl__wal_name(name, &id_len, &first);
	if (kind == WAL_NAME_OTHER || id_len != l->id_len || memcmp(name, l->id, id_len) != 0)
		return 0;
	if (kind == WAL_NAME_SEALED) {
		uint64_t *grown = sl__grow(l->env, f->sealed, f->n_sealed, &f->cap, sizeof(*grown));
		if (grown == NULL)
			return -ENOMEM;
		f->sealed = grown;
		f->sealed[f->n_sealed++] = first;
	}
	if (kind == WAL_NAME_TEMP) {
		char **grown = sl__realloc(l->env, f->temps, (f->n_temps + 1) * sizeof(*grown));
		if (grown == NULL)
			return -ENOMEM;
		f->temps = grown;
		f->temps[f->n_temps] = sl__strdup(l->env, name);
		if (f->temps[f->n_temps] == NULL)
			return -ENOMEM;
		f->n_temps++;
	}
	return 0;
}

int sl__wal_files_list(struct wal_files *out, const struct sl_env *env, const char *dir, const char *id,
		       struct sl_err *err)
{
	memset(out, 0, sizeof(*out));
	struct listing l = {.out = out, .env = env, .id = id, .id_len = strlen(id)};
	int rc = SL__IO(env, list, dir, on_log_file, &l);
	if (rc == -ENOENT)
		rc = 0;
	if (rc != 0) {
		sl__wal_files_free(out, env);
		return sl_err_set_errno(err, -rc, "list %s", dir);
	}
	if (out->n_sealed > 1)
		qsort(out->sealed, out->n_sealed, sizeof(*out->sealed), sl__compare_u64);
	return 0;
}

void sl__wal_files_free(struct wal_files *f, const struct sl_env *env)
{
	for (size_t i = 0; i < f->n_temps; i++)
		sl__free(env, f->temps[i]);
	sl__free(env, f->temps);
	sl__free(env, f->sealed);
	memset(f, 0, sizeof(*f));
}

char *sl__wal_file_path(const struct sl_env *env, const char *dir, const char *id, uint64_t first)
{
	if (first == 0)
		return sl__asprintf(env, "%s/%s.wal", dir, id);
	return sl__asprintf(env, "%s/%s.wal.%llu", dir, id, (unsigned long long)first);
}
