/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Retention: archives whose last record is old enough are removed. The age is in the records, not in the file: copying
 * an archive does not make it young. One that cannot be read to its end, and what a recovery quarantined (torn tails,
 * damaged bytes, segments of an earlier incarnation), goes by the file's own time, and each removal is logged.
 */
#include <errno.h>
#include <sluice/wal_files.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/compare.h"
#include "wal/archive_zst.h"
#include "wal/format.h"

#define DAY_MS ((int64_t)24 * 3600 * 1000)
#define PIECE_BYTES ((size_t)64 * 1024)

/* ---- the last record ---- */

/* The content of an archive, piece by piece. */
struct content {
	struct wal_zst z;
	uint8_t *buf; /* PIECE_BYTES */
	size_t pos, len;
};

/* Take n bytes, into out unless it is NULL. *short_by: how many were not there. */
static int take_content(struct content *c, uint8_t *out, size_t n, size_t *short_by, struct sl_err *err)
{
	while (n > 0) {
		if (c->pos == c->len) {
			c->pos = 0;
			int rc = sl__wal_zst_read(&c->z, c->buf, PIECE_BYTES, &c->len, err);
			if (rc != 0)
				return rc;
			if (c->len == 0)
				break;
		}
		size_t part = SL_MIN(n, c->len - c->pos);
		if (out != NULL) {
			memcpy(out, c->buf + c->pos, part);
			out += part;
		}
		c->pos += part;
		n -= part;
	}
	*short_by = n;
	return 0;
}

/* The timestamp of the archive's last record. SL_ECORRUPT when the content is not a whole log, SL_ENOENT when it has no
 * record. The archive's checksum vouches for the bytes; here only lengths and fields are checked. */
static int last_record_ms(const struct sl_env *env, const char *path, int64_t *last_ms, struct sl_err *err)
{
	struct content c = {.pos = 0};
	uint8_t head[WAL_BODY_OFFSET];
	struct wal_header h;
	size_t missing;
	int rc = sl__wal_zst_open(&c.z, env, path, err);
	if (rc != 0)
		return rc;
	c.buf = sl__alloc(env, PIECE_BYTES);
	if (c.buf == NULL)
		rc = sl_err_set(err, SL_ENOMEM, "cleanup %s: out of memory", path);
	else
		rc = take_content(&c, head, WAL_HEADER_BYTES, &missing, err);
	if (rc == 0 && (missing > 0 || sl__wal_header_decode(head, &h) > WAL_HEADER_REPAIRABLE))
		rc = sl_err_set(err, SL_ECORRUPT, "archive %s contains no log", path);
	bool any = false;
	while (rc == 0) {
		rc = take_content(&c, head, sizeof(head), &missing, err);
		if (rc != 0 || missing == sizeof(head))
			break;
		uint32_t total = missing > 0 ? 0 : sl__wal_total(head, UINT64_MAX);
		if (total == 0 || sl__wal_check_fields(head) != WAL_VALID) {
			rc = sl_err_set(err, SL_ECORRUPT, "archive %s contains a damaged log", path);
			break;
		}
		*last_ms = (int64_t)sl__get64(head + 16);
		any = true;
		rc = take_content(&c, NULL, total - sizeof(head), &missing, err);
		if (rc == 0 && missing > 0)
			rc = sl_err_set(err, SL_ECORRUPT, "archive %s contains a truncated log", path);
	}
	sl__free(env, c.buf);
	sl__wal_zst_close(&c.z);
	return rc == 0 && !any ? SL_ENOENT : rc;
}

/* ---- the folder ---- */

struct cleanup {
	const struct sl_env *env;
	const char *dir;
	int64_t due_before_ms;
	bool dry_run;
	bool archives;  /* not only quarantined files */
	const char *id; /* of this log; NULL: of all */
	sl_wal_cleanup_fn *fn;
	void *ctx;
	char **names;
	size_t n, cap;
};

static int on_cleanup_name(const char *name, void *ctx)
{
	struct cleanup *c = ctx;
	size_t id_len, n = c->id != NULL ? strlen(c->id) : 0;
	if (!(c->archives && sl__wal_archive_name(name, &id_len)) && !sl__wal_quarantine_name(name))
		return 0;
	if (c->id != NULL && (strncmp(name, c->id, n) != 0 || strncmp(name + n, ".wal", 4) != 0))
		return 0;
	char **grown = sl__grow(c->env, c->names, c->n, &c->cap, sizeof(*grown));
	if (grown == NULL)
		return -ENOMEM;
	c->names = grown;
	c->names[c->n] = sl__strdup(c->env, name);
	if (c->names[c->n] == NULL)
		return -ENOMEM;
	c->n++;
	return 0;
}

/* Check one file and remove it when it is due. What fn returns goes to *stop. */
static int clean_one(struct cleanup *c, const char *name, const char *path, int *stop, struct sl_err *err)
{
	struct sl_io_stat st;
	int rc = SL__IO(c->env, stat, path, &st);
	if (rc == -ENOENT)
		return 0;
	if (rc < 0)
		return sl_err_set_errno(err, -rc, "cleanup %s: stat", path);
	if (!S_ISREG(st.mode))
		return 0;
	struct sl_wal_cleanup_entry entry = {.name = name, .bytes = st.size};
	bool quarantined = sl__wal_quarantine_name(name), damaged = false;
	rc = quarantined ? SL_ENOENT : last_record_ms(c->env, path, &entry.last_record_ms, err);
	damaged = rc == SL_ECORRUPT || rc == SL_EUNSUPPORTED;
	if (rc != 0 && rc != SL_ENOENT && !damaged)
		return rc;
	if (rc != 0) /* the time at which it was written, or quarantined */
		entry.last_record_ms = SL_MAX(st.mtime_ms, st.ctime_ms);
	if (entry.last_record_ms >= c->due_before_ms) {
		if (damaged)
			sl__log(c->env, SL_LOG_WARN, "wal", "damaged archive kept until its retention expires",
				SL__F_STR("file", name));
		return 0;
	}
	if ((damaged || quarantined) && !c->dry_run)
		sl__log(c->env, SL_LOG_WARN, "wal",
			damaged ? "removed a damaged archive whose retention expired"
				: "removed quarantined bytes whose retention expired",
			SL__F_STR("file", name), SL__F_U64("bytes", st.size));
	if (!c->dry_run) {
		rc = SL__IO(c->env, unlink, path);
		if (rc < 0 && rc != -ENOENT)
			return sl_err_set_errno(err, -rc, "cleanup: remove %s", path);
		entry.removed = true;
	}
	*stop = c->fn != NULL ? c->fn(&entry, c->ctx) : 0;
	return 0;
}

/* c says what is to be removed; the rest is filled here. One file that fails does not keep the others; the first error
 * is returned. The folder is not synced: an archive that a power loss brings back is due again. */
static int clean_folder(struct cleanup *c, const char *dir, int32_t retention_days, const struct sl_env *env_in,
			struct sl_err *err)
{
	struct sl_env env;
	int rc = sl__env_init(&env, env_in, err);
	if (rc != 0)
		return rc;
	if (dir == NULL || dir[0] == '\0')
		return sl_err_set(err, SL_EINVAL, "cleanup: no folder given");
	if (retention_days < 0 && retention_days != SL_UNLIMITED)
		return sl_err_set(err, SL_EINVAL, "retention_days: %d is negative", (int)retention_days);
	c->env = &env;
	c->dir = dir;
	c->due_before_ms = INT64_MIN;
	if (retention_days != SL_UNLIMITED)
		c->due_before_ms = sl__real_ms(&env) - retention_days * DAY_MS;
	int listed = SL__IO(&env, list, dir, on_cleanup_name, c), stop = 0;
	bool complete = listed >= 0 || listed == -ENOENT;
	if (!complete)
		rc = sl_err_set_errno(err, -listed, "cleanup: list %s", dir);
	if (rc == 0 && c->n > 1)
		qsort(c->names, c->n, sizeof(*c->names), sl__compare_texts);
	for (size_t i = 0; i < c->n && stop == 0 && complete; i++) {
		struct sl_err why = SL_ERR_INIT;
		char *path = sl__asprintf(&env, "%s/%s", dir, c->names[i]);
		int one = path != NULL ? clean_one(c, c->names[i], path, &stop, &why)
				       : sl_err_set(&why, SL_ENOMEM, "cleanup %s: out of memory", c->names[i]);
		sl__free(&env, path);
		if (one != 0 && rc == 0) {
			rc = one;
			if (err != NULL)
				*err = why;
		}
	}
	for (size_t i = 0; i < c->n; i++)
		sl__free(&env, c->names[i]);
	sl__free(&env, c->names);
	if (rc != 0)
		return rc;
	return stop;
}

int sl_wal_cleanup(const char *dir, int32_t retention_days, bool dry_run, sl_wal_cleanup_fn *fn, void *ctx,
		   const struct sl_env *env, struct sl_err *err)
{
	struct cleanup c = {.dry_run = dry_run, .archives = true, .fn = fn, .ctx = ctx};
	return clean_folder(&c, dir, retention_days, env, err);
}

int sl_wal_cleanup_quarantine(const char *dir, const char *id, int32_t retention_days, const struct sl_env *env,
			      struct sl_err *err)
{
	struct cleanup c = {.id = id};
	return clean_folder(&c, dir, retention_days, env, err);
}
