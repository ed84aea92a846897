/* SPDX-License-Identifier: Apache-2.0 */
/* The logs and places of a load; place.h has the rules. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fnv.h"
#include "load/place.h"

#define BODY "%08" PRIx32 " %015" PRId64 " %020" PRIu64 " %020" PRIu64 " %016" PRIx64
enum { BODY_BYTES = 8 + 1 + 15 + 1 + 20 + 1 + 20 + 1 + 16, LINE_BYTES = BODY_BYTES + 1 + 16 + 1 };
enum { RETENTION_DAYS = 30 }; /* of quarantined files */

/* With its NUL, so that "a", "b" is not "ab". */
static uint64_t hash_text(uint64_t h, const char *text)
{
	return sl__fnv_add(h, text, strlen(text) + 1);
}

/* Names the log of input i: load-<hash>-<number>. Paths are not from memory that may run out: the log would get another
 * name. */
static void name_log(char id[64], const struct load_key *key, size_t i)
{
	uint64_t h = hash_text(SL__FNV_INIT, key->target);
	char full[PATH_MAX];

	for (size_t k = 0; k < key->n_inputs; k++)
		h = hash_text(h, strcmp(key->inputs[k], "-") != 0 && realpath(key->inputs[k], full) != NULL
					 ? full
					 : key->inputs[k]);
	(void)snprintf(id, 64, "load-%016" PRIx64 "-%zu", h, i + 1);
}

/* A line that is not valid, or of another log, is ignored: the input is read from its beginning, and no row is lost. */
static int read_place(struct load_place *p, struct sl_err *err)
{
	char line[LINE_BYTES + 1] = "", again[LINE_BYTES + 1] = "";
	ssize_t n = sl__pread_full(p->env, p->fd, line, LINE_BYTES, 0);
	uint64_t before, end, last;
	uint32_t incarnation;
	int64_t started_ms;

	if (n < 0)
		return sl_err_set_errno(err, (int)-n, "%s", p->path);
	if (n == 0)
		return 0;
	if (sscanf(line, "%8" SCNx32 " %15" SCNd64 " %20" SCNu64 " %20" SCNu64 " %16" SCNx64, &incarnation, &started_ms,
		   &before, &end, &last) == 5)
		(void)snprintf(again, sizeof(again), BODY " %016" PRIx64 "\n", incarnation, started_ms, before, end,
			       last, sl__fnv(line, BODY_BYTES));
	if (!*again || strcmp(line, again) != 0 || incarnation != p->incarnation || before >= end) {
		sl__log_text(p->env, SL_LOG_WARN, "load",
			     "%s belongs to another load; reading the input from its beginning", p->path);
		return 0;
	}
	p->before = before;
	p->end = end;
	p->hash = last;
	p->started_ms = started_ms;
	return 0;
}

int sl__load_place_open(struct load_place *p, const struct load_key *key, size_t i, struct sl_err *err)
{
	struct sl_wal_opts opts = {SL_WAL_OPTS_INIT, .env = key->env, .wal_dir = key->dir,
				   .max_pending_bytes = SL_UNLIMITED, /* the queue is the bound */
				   .discard_settled = SL_ON};
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	char id[64];
	int rc;

	*p = (struct load_place){.env = key->env, .fd = -1, .started_ms = sl__real_ms(key->env)};
	if (key->dir == NULL)
		return 0;
	name_log(id, key, i);
	if ((size_t)snprintf(p->path, sizeof(p->path), "%s/%s.place", key->dir, id) >= sizeof(p->path))
		return sl_err_set(err, SL_EINVAL, "wal: the path of the folder is too long");
	rc = sl_wal_open(&p->wal, id, &opts, err);
	if (rc == 0)
		rc = sl_wal_get_stats(p->wal, &stats, err);
	if (rc != 0)
		return rc;
	p->incarnation = stats.incarnation;
	p->fd = SL__IO(p->env, open, p->path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
	return p->fd < 0 ? sl_err_set_errno(err, -p->fd, "%s", p->path) : read_place(p, err);
}

bool sl__load_place_is_at(const struct load_place *p, const struct sl_record *record)
{
	return record->end == p->end && sl__fnv(record->data, record->len) == p->hash;
}

int sl__load_place_skip(const struct load_place *p, sl_records *records, struct sl_err *err)
{
	struct sl_record last;
	size_t n = 0;
	int rc;

	if (!p->end)
		return 0;
	rc = sl_records_skip(records, p->before, err);
	if (rc == 0)
		rc = sl_records_next(records, &last, 1, &n, err);
	if (rc != 0)
		return rc;
	if (n == 1 && sl__load_place_is_at(p, &last))
		return 0;
	return sl_err_set(err, SL_EDATA, "the record before byte %" PRIu64 " has changed since it was loaded", p->end);
}

int sl__load_place_note(struct load_place *p, const struct sl_record *records, size_t n, struct sl_err *err)
{
	const struct sl_record *last = &records[n - 1];
	char line[LINE_BYTES + 1];
	int rc;

	if (p->wal == NULL)
		return 0;
	p->before = n > 1 ? records[n - 2].end : p->end;
	p->end = last->end;
	p->hash = sl__fnv(last->data, last->len);
	(void)snprintf(line, sizeof(line), BODY, p->incarnation, p->started_ms, p->before, p->end, p->hash);
	(void)snprintf(line + BODY_BYTES, sizeof(line) - BODY_BYTES, " %016" PRIx64 "\n", sl__fnv(line, BODY_BYTES));
	rc = sl__pwrite_full(p->env, p->fd, line, LINE_BYTES, 0);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "%s", p->path);
	return 0;
}

void sl__load_place_close(struct load_place *p)
{
	struct sl_err why = SL_ERR_INIT;

	if (p->env == NULL)
		return;
	sl__close_fd(p->env, &p->fd);
	if (p->wal != NULL && sl_wal_close(p->wal, &why))
		sl__log_text(p->env, SL_LOG_WARN, "load", "%s", why.msg);
	*p = (struct load_place){.fd = -1};
}

/* The log first: a place without its log counts for nothing. */
static int finish_input(const struct load_key *key, size_t i, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	struct load_place p;
	char id[64], prefix[80], path[PATH_MAX];
	const struct dirent *e;
	int rc = sl__load_place_open(&p, key, i, err);

	if (rc == 0) {
		rc = sl_wal_complete(p.wal, 0, err);
		if (rc == SL_EPENDING)
			rc = sl_err_wrap(err, rc, "%.100s (run the same load again to write them)", key->dir);
	}
	if (rc == 0) {
		int removed = SL__IO(key->env, unlink, p.path);

		if (removed && removed != -ENOENT)
			rc = sl_err_set_errno(err, -removed, "%s", p.path);
	}
	sl__load_place_close(&p);
	if (rc != 0)
		return rc;
	name_log(id, key, i);

	/* What a crash tore off the end of the log had not been acknowledged, and was read again. */
	int n = snprintf(prefix, sizeof(prefix), "%s.wal.torn-", id);
	DIR *dir = opendir(key->dir);

	while (dir != NULL && (e = readdir(dir)) != NULL)
		if (strncmp(e->d_name, prefix, (size_t)n) == 0 &&
		    (size_t)snprintf(path, sizeof(path), "%s/%s", key->dir, e->d_name) < sizeof(path))
			(void)SL__IO(key->env, unlink, path);
	if (dir != NULL)
		(void)closedir(dir);
	if (sl_wal_cleanup_quarantine(key->dir, id, RETENTION_DAYS, key->env, &why))
		sl__log_text(key->env, SL_LOG_WARN, "load", "clean-up of %s: %s", key->dir, why.msg);
	return 0;
}

int sl__load_place_finish(const struct load_key *key, struct sl_err *err)
{
	for (size_t i = 0; i < key->n_inputs && key->dir != NULL; i++) {
		int rc = finish_input(key, i, err);

		if (rc != 0)
			return rc;
	}
	return 0;
}
