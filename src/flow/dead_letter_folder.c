/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder of dead-letter files: reading it at open, setting torn tails aside, making and removing files.
 *
 *	lock                      who holds its flock may write
 *	00000001.dlq              letters from id 1
 *	00000218.dlq              letters from id 218; the newest takes the new ones
 *	00000001.dlq.torn-9182    what was cut off at that offset
 *	*.tmp                     being made; removed at open
 */
#include "flow/dead_letter.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define TORN ".torn-"
#define TMP ".tmp"
#define TRIES 8 /* a reader's patience with a file that its writer cuts back */

const char *sl__dl_path(sl_dlq *q, const char *name)
{
	(void)snprintf(q->path + q->dir_len, 258, "/%s", name);
	return q->path;
}

const char *sl__dl_file_path(sl_dlq *q, uint64_t first_id, const char *suffix)
{
	(void)snprintf(q->path + q->dir_len, 258, "/%08llu.dlq%s", (unsigned long long)first_id, suffix);
	return q->path;
}

int sl__dl_poison(sl_dlq *q, int rc)
{
	if (!q->poisoned)
		sl__log(&q->env, SL_LOG_ERROR, "dead_letter", "unusable after an I/O failure; open it again",
			SL__F_STR("dir", q->dir));
	q->poisoned = true;
	return rc;
}

int sl__dl_sync_folder(sl_dlq *q, struct sl_err *err)
{
	int rc = sl__sync_dir(&q->env, q->dir);
	if (rc != 0)
		return sl__dl_poison(q, sl_err_set_errno(err, -rc, "dead letters %s: sync the folder", q->dir));
	return 0;
}

/* ---- names ---- */

/* Is it "<number>.dlq" exactly as we write it, followed by rest? */
static bool parse_name(const char *name, uint64_t *first_id, const char **rest)
{
	char again[32], *end;
	if (name[0] < '0' || name[0] > '9')
		return false;
	errno = 0;
	unsigned long long n = strtoull(name, &end, 10);
	if (errno != 0 || n == 0 || n > SL__DL_MAX_NAME)
		return false;
	int len = snprintf(again, sizeof(again), "%08llu.dlq", n);
	if (strncmp(name, again, (size_t)len) != 0)
		return false;
	*first_id = n;
	*rest = name + len;
	return true;
}

static int by_first_id(const void *a, const void *b)
{
	const struct sl__dl_file *x = a, *y = b;
	return (x->first_id > y->first_id) - (x->first_id < y->first_id);
}

/* ---- walks over the names; each visits through q->path ---- */

struct visit {
	sl_dlq *q;
	uint64_t bytes;
	bool tmp;       /* remove temporary files, not torn tails */
	uint64_t up_to; /* torn tails of files up to this one; 0: of all */
	int rc;
};

static int add_size(const char *name, void *ctx) SL_NO_TSA
{
	struct visit *v = ctx;
	uint64_t id;
	const char *rest;
	struct sl_io_stat st;
	if (!parse_name(name, &id, &rest))
		return 0;
	v->rc = SL__IO(&v->q->env, stat, sl__dl_path(v->q, name), &st);
	if (v->rc == 0)
		v->bytes += st.size;
	if (v->rc == -ENOENT)
		v->rc = 0;
	return v->rc;
}

static int visit_names(sl_dlq *q, sl_io_list_fn *fn, struct visit *v, const char *what, struct sl_err *err)
{
	v->q = q;
	int rc = SL__IO(&q->env, list, q->dir, fn, v);
	if (rc == 0)
		rc = v->rc;
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "dead letters %s: %s", q->dir, what);
	return 0;
}

int sl__dl_recount(sl_dlq *q, struct sl_err *err)
{
	struct visit v = {0};
	int rc = visit_names(q, add_size, &v, "list", err);
	if (rc == 0)
		q->bytes = v.bytes;
	return rc;
}

/* Remove a torn tail or a temporary file. */
static int unlink_leftover(const char *name, void *ctx) SL_NO_TSA
{
	struct visit *v = ctx;
	uint64_t id;
	const char *rest;
	if (!parse_name(name, &id, &rest))
		return 0;
	size_t n = strlen(rest), n_tmp = strlen(TMP);
	bool is_tmp = n >= n_tmp && strcmp(rest + n - n_tmp, TMP) == 0;
	bool is_torn = strncmp(rest, TORN, strlen(TORN)) == 0 && (v->up_to == 0 || id <= v->up_to);
	if (v->tmp ? is_tmp : is_torn) {
		v->rc = SL__IO(&v->q->env, unlink, sl__dl_path(v->q, name));
		if (v->rc == -ENOENT)
			v->rc = 0;
	}
	return v->rc;
}

int sl__dl_remove_torn(sl_dlq *q, uint64_t up_to, struct sl_err *err)
{
	struct visit v = {.up_to = up_to};
	return visit_names(q, unlink_leftover, &v, "remove torn tails", err);
}

/* ---- making and removing files ---- */

struct publish {
	const char *name, *tmp; /* paths */
	const uint8_t *data;
	size_t n;
	int fd;           /* of the new file, when 0 returns */
	bool sync_failed; /* that was why */
};

/* Write a new file under its temporary name, sync it, give it its name unless that is taken (-EEXIST). The folder is
 * for the caller to sync. Removes what it made when it fails. 0 or a negative errno. */
static int publish_file(sl_dlq *q, struct publish *p)
{
	const struct sl_env *e = &q->env;
	p->fd = SL__IO(e, open, p->tmp, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
	if (p->fd < 0)
		return p->fd;
	int rc = sl__pwrite_full(e, p->fd, p->data, p->n, 0);
	if (rc == 0) {
		rc = SL__IO(e, datasync, p->fd);
		p->sync_failed = rc != 0;
	}
	if (rc == 0)
		rc = SL__IO(e, rename, p->tmp, p->name, 1);
	if (rc != 0) {
		sl__close_fd(e, &p->fd);
		(void)SL__IO(e, unlink, p->tmp);
	}
	return rc;
}

int sl__dl_new_file(sl_dlq *q, struct sl_err *err)
{
	uint8_t header[SL__DL_HEADER];
	uint64_t salt;
	struct sl__dl_file *files = sl__grow(&q->env, q->files, q->n_files, &q->cap_files, sizeof(*files));
	if (files == NULL)
		return sl_err_set(err, SL_ENOMEM, "dead letters %s: out of memory", q->dir);
	q->files = files;
	int rc = q->env.rand->fill(&salt, sizeof(salt), q->env.rand_ctx);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "dead letters %s: random bytes", q->dir);
	assert(q->n_files == 0 || q->files[q->n_files - 1].first_id < q->next_id);
	sl__dl_put_header(header, q->next_id, salt);
	char *tmp = sl__strdup(&q->env, sl__dl_file_path(q, q->next_id, TMP));
	if (tmp == NULL)
		return sl_err_set(err, SL_ENOMEM, "dead letters %s: out of memory", q->dir);
	struct publish p = {.tmp = tmp, .data = header, .n = SL__DL_HEADER};
	p.name = sl__dl_file_path(q, q->next_id, "");
	rc = publish_file(q, &p);
	sl__free(&q->env, tmp);
	if (rc != 0) {
		rc = sl_err_set_errno(err, -rc, "make %s", q->path);
		return p.sync_failed ? sl__dl_poison(q, rc) : rc;
	}
	rc = sl__dl_sync_folder(q, err);
	if (rc != 0) {
		sl__close_fd(&q->env, &p.fd);
		return rc;
	}
	sl__close_fd(&q->env, &q->active_fd);
	q->active_fd = p.fd;
	q->files[q->n_files++] = (struct sl__dl_file){.first_id = q->next_id, .salt = salt, .size = SL__DL_HEADER};
	q->bytes += SL__DL_HEADER;
	return 0;
}

int sl__dl_remove_file(sl_dlq *q, size_t i, struct sl_err *err)
{
	assert(i + 1 < q->n_files); /* I3 */
	struct sl__dl_file *f = &q->files[i];
	int rc = SL__IO(&q->env, unlink, sl__dl_file_path(q, f->first_id, ""));
	if (rc != 0 && rc != -ENOENT)
		return sl_err_set_errno(err, -rc, "remove %s", q->path);
	q->bytes -= SL_MIN(q->bytes, f->size);
	sl__dl_file_fini(f, &q->env);
	q->n_files--;
	memmove(f, f + 1, (q->n_files - i) * sizeof(*f));
	return 0;
}

struct sl__dl_file *sl__dl_find(sl_dlq *q, uint64_t id)
{
	size_t lo = 0, hi = q->n_files;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (q->files[mid].first_id <= id)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo == 0 ? NULL : &q->files[lo - 1];
}

/* ---- torn tails ---- */

/* Is the file at q->path the same n bytes? Then an earlier open saved the tail and did not get further. */
static bool same_content(sl_dlq *q, const uint8_t *data, size_t n) SL_REQUIRES(q->mu)
{
	int fd = SL__IO(&q->env, open, q->path, O_RDONLY | O_NOFOLLOW, 0);
	if (fd < 0)
		return false;
	struct sl__dl_reader r = {.env = &q->env, .fd = fd, .limit = n};
	struct sl_io_stat st;
	const uint8_t *p;
	bool same = SL__IO(&q->env, fstat, fd, &st) == 0 && st.size == n && sl__dl_peek(&r, 0, n, &p) == 0 &&
		    memcmp(p, data, n) == 0;
	sl__dl_reader_fini(&r);
	sl__close_fd(&q->env, &fd);
	return same;
}

/* Keep the bytes that are to be cut off as <file>.torn-<offset>, durably. 0 or a negative errno. */
static int save_torn_tail(sl_dlq *q, const struct sl__dl_file *f, uint64_t at, const uint8_t *data, size_t n)
	SL_REQUIRES(q->mu)
{
	char *tmp = sl__strdup(&q->env, sl__dl_file_path(q, f->first_id, TORN TMP));
	if (tmp == NULL)
		return -ENOMEM;
	int rc = -EEXIST;
	for (unsigned nth = 0; rc == -EEXIST && nth < 1000; nth++) {
		char suffix[64], more[16] = "";
		if (nth > 0)
			(void)snprintf(more, sizeof(more), ".%u", nth + 1);
		(void)snprintf(suffix, sizeof(suffix), TORN "%llu%s", (unsigned long long)at, more);
		(void)sl__dl_file_path(q, f->first_id, suffix);
		if (same_content(q, data, n)) {
			rc = 0;
			break;
		}
		struct publish p = {.tmp = tmp, .name = q->path, .data = data, .n = n, .fd = -1};
		rc = publish_file(q, &p);
		sl__close_fd(&q->env, &p.fd);
	}
	sl__free(&q->env, tmp);
	if (rc != 0)
		return rc;
	return sl__sync_dir(&q->env, q->dir);
}

/* Cut the tail off. Without the space to save it, it stays where it is: nothing is lost, and a later open tries
 * again. */
static int trim(sl_dlq *q, struct sl__dl_file *f, struct sl__dl_reader *r, uint64_t tail, struct sl_err *err)
	SL_REQUIRES(q->mu)
{
	const uint8_t *data;
	size_t n = (size_t)(f->size - tail);
	int rc = sl__dl_peek(r, tail, n, &data);
	bool all_zero = rc == 0 && (n == 0 || (data[0] == 0 && memcmp(data, data + 1, n - 1) == 0));
	if (rc == 0 && !all_zero)
		rc = save_torn_tail(q, f, tail, data, n);
	if (rc == -ENOSPC || rc == -EDQUOT || rc == -EFBIG) {
		f->damaged++;
		f->close_due = false; /* a close record would turn the tail into damage for good */
		sl__log(&q->env, SL_LOG_WARN, "dead_letter", "no space to save a torn tail; it stays in the file",
			SL__F_U64("file", f->first_id), SL__F_U64("offset", tail), SL__F_U64("bytes", n));
		return 0;
	}
	if (rc == 0)
		rc = SL__IO(&q->env, truncate, r->fd, tail);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "trim the torn tail at %llu", (unsigned long long)tail);
	sl__log(&q->env, SL_LOG_WARN, "dead_letter", "torn tail trimmed", SL__F_U64("file", f->first_id),
		SL__F_U64("offset", tail), SL__F_U64("bytes", n));
	f->size = tail;
	return 0;
}

/* ---- reading the folder ---- */

struct loading {
	sl_dlq *q;
	struct sl__dl_file *files;
	size_t n, cap;
	uint64_t next_id;
	struct sl__dl_reader reader;
};

static int add_name(const char *name, void *ctx)
{
	struct loading *l = ctx;
	uint64_t first_id;
	const char *rest;
	if (!parse_name(name, &first_id, &rest) || *rest != '\0')
		return 0;
	struct sl__dl_file *files = sl__grow(&l->q->env, l->files, l->n, &l->cap, sizeof(*files));
	if (files == NULL)
		return -ENOMEM;
	l->files = files;
	l->files[l->n++] = (struct sl__dl_file){.first_id = first_id};
	return 0;
}

/* Scan an open file. A writer makes sure of what it found: a letter that is listed now must not be gone after a power
 * loss, or its id could be given again. */
static int scan_open_file(sl_dlq *q, struct sl__dl_file *f, struct sl__dl_reader *r, struct sl_err *err)
	SL_REQUIRES(q->mu)
{
	struct sl_io_stat st;
	uint64_t tail;
	int rc = SL__IO(&q->env, fstat, r->fd, &st);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "fstat");
	sl__dl_reader_set(r, r->fd, st.size);
	rc = sl__dl_scan(f, r, st.size, &tail, err);
	if (rc != 0 || q->read_only || f->opaque)
		return rc;
	if (tail < st.size)
		rc = trim(q, f, r, tail, err);
	if (rc != 0)
		return rc;
	rc = SL__IO(&q->env, datasync, r->fd);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "sync");
	return 0;
}

/* *gone: it was removed while it was read. */
static int load_file(sl_dlq *q, struct sl__dl_file *f, struct sl__dl_reader *r, bool *gone, struct sl_err *err)
	SL_REQUIRES(q->mu)
{
	struct sl_io_stat st;
	int rc = SL__IO(&q->env, stat, sl__dl_file_path(q, f->first_id, ""), &st);
	*gone = rc == -ENOENT;
	if (rc == 0 && !S_ISREG(st.mode)) {
		f->opaque = true;
		f->damaged = 1;
		return 0;
	}
	int fd = rc != 0 ? rc : SL__IO(&q->env, open, q->path, (q->read_only ? O_RDONLY : O_RDWR) | O_NOFOLLOW, 0);
	*gone = fd == -ENOENT;
	if (fd < 0)
		return *gone ? 0 : sl_err_set_errno(err, -fd, "open %s", q->path);
	int tries = 0;
	r->fd = fd;
	do {
		/* Forget an earlier scan. */
		sl__dl_file_fini(f, &q->env);
		*f = (struct sl__dl_file){.first_id = f->first_id};
		rc = scan_open_file(q, f, r, err);
	} while (rc == SL_ESTALE && q->read_only && ++tries < TRIES);
	sl__close_fd(&q->env, &fd);
	if (rc != 0)
		return sl_err_wrap(err, rc, "%s", sl__dl_file_path(q, f->first_id, ""));
	return 0;
}

static int load_all(struct loading *l, struct sl_err *err) SL_NO_TSA
{
	sl_dlq *q = l->q;
	int rc = SL__IO(&q->env, list, q->dir, add_name, l);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "list");
	if (l->n > 1)
		qsort(l->files, l->n, sizeof(*l->files), by_first_id);
	size_t kept = 0;
	for (size_t i = 0; i < l->n && rc == 0; i++) {
		bool gone = false;
		rc = load_file(q, &l->files[i], &l->reader, &gone, err);
		struct sl__dl_file f = l->files[i];
		l->files[i].index = NULL;
		/* The next id is above every one that this file holds or may have held (I4). */
		uint64_t next = f.first_id + f.n_index;
		if (f.damaged_tail > 0)
			next += f.damaged_tail / SL__DL_LETTER_MIN + 1;
		if (f.opaque && next == f.first_id)
			next++; /* its name is taken */
		l->next_id = SL_MAX(l->next_id, next);
		if (gone)
			sl__dl_file_fini(&f, &q->env);
		else
			l->files[kept++] = f;
	}
	if (rc == 0)
		l->n = kept;
	return rc;
}

static void free_files(const struct sl_env *env, struct sl__dl_file *files, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sl__dl_file_fini(&files[i], env);
	sl__free(env, files);
}

int sl__dl_load(sl_dlq *q, struct sl_err *err)
{
	struct loading l = {.q = q, .next_id = q->next_id, .reader = {.env = &q->env}};
	struct visit v = {.tmp = true};
	int rc = load_all(&l, err);
	sl__dl_reader_fini(&l.reader);
	if (rc != 0) {
		free_files(&q->env, l.files, l.n);
		return sl_err_wrap(err, rc, "dead letters %s", q->dir);
	}
	free_files(&q->env, q->files, q->n_files);
	q->files = l.files;
	q->n_files = l.n;
	q->cap_files = l.cap;
	q->next_id = l.next_id;
	if (q->read_only)
		return sl__dl_recount(q, err);
	/* What a crash may have left behind: files that are being made, files whose letters are all dealt with. */
	rc = visit_names(q, unlink_leftover, &v, "remove temporary files", err);
	for (size_t i = 0; rc == 0 && i + 1 < q->n_files;) {
		const struct sl__dl_file *f = &q->files[i];
		if (f->unacked == 0 && f->damaged == 0)
			rc = sl__dl_remove_file(q, i, err);
		else
			i++;
	}
	if (rc == 0)
		rc = sl__dl_sync_folder(q, err);
	if (rc == 0)
		rc = sl__dl_recount(q, err);
	return rc;
}
