/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every file that an event names: there, a regular file without a link on the way, of that size, with that hash; and,
 * decoded, with that many rows, whose sequence column ascends through the partition's range.
 *
 * Threads take the files in the order of the chain, hash them in one pass, and read footer and sequence column while
 * they are warm. What they find waits in the file's slot until the caller's thread has reported everything before it,
 * so the order of findings does not depend on the threads.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sha256.h"
#include "base/thread.h"
#include "flow/pool.h"
#include "pipeline/audit/verify.h"
#include "pipeline/holes.h"
#include <sluice/parquet.h>

#define READ_BYTES (1 << 20)
#define PROGRESS_MS 100

struct slot {
	bool done;                 /* under mu */
	enum sl_audit_fault fault; /* 0: all is well */
	int rc;                    /* negative: it could not be inspected */
	char text[200];
};

struct work {
	struct sl__verify *v;
	struct slot *slots;
	atomic_size_t next;
	_Atomic uint64_t bytes; /* read so far */
	atomic_bool stop;
	sl__mutex mu;
	sl__cond changed;
};

/* A file as a thread sees it. */
struct file {
	struct work *w;
	const struct sl__verify_entry *e;
	struct slot *slot;
	int fd;
	uint64_t size;
};

static void SL_PRINTF(3, 4) found(struct slot *s, enum sl_audit_fault fault, const char *fmt, ...)
{
	va_list args;
	s->fault = fault;
	va_start(args, fmt);
	(void)vsnprintf(s->text, sizeof(s->text), fmt, args);
	va_end(args);
}

static const struct sl_env *env_of(const struct file *f)
{
	return &f->w->v->env;
}

/* ---- opening ---- */

static void open_verified(struct file *f, char *path)
{
	const struct sl_env *env = env_of(f);
	struct sl_io_stat st;
	int rc = 0;
	/* Every folder on the way must be a folder, not a link. */
	char *slash = strchr(path + strlen(f->w->v->dir) + 1, '/');
	for (; rc == 0 && slash != NULL; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		rc = SL__IO(env, stat, path, &st);
		*slash = '/';
		if (rc == 0 && !S_ISDIR(st.mode))
			rc = -ELOOP;
	}
	if (rc == 0)
		rc = f->fd = SL__IO(env, open, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
	if (rc >= 0)
		rc = SL__IO(env, fstat, f->fd, &st);
	if (rc == -ENOENT || rc == -ENOTDIR)
		found(f->slot, SL_AUDIT_MISSING, "the file is missing");
	else if (rc == -ELOOP)
		found(f->slot, SL_AUDIT_UNREADABLE, "it is a link, or something on the way to it is not a folder");
	else if (rc < 0)
		found(f->slot, SL_AUDIT_UNREADABLE, "%s", strerror(-rc));
	else if (!S_ISREG(st.mode))
		found(f->slot, SL_AUDIT_UNREADABLE, "it is not a regular file");
	else if (st.size != f->e->bytes)
		found(f->slot, SL_AUDIT_SIZE, "it has %" PRIu64 " bytes, its event has %" PRIu64, st.size, f->e->bytes);
	else
		f->size = st.size;
}

/* ---- hashing ---- */

static int check_hash(struct file *f, void *buf, struct sl_err *err)
{
	struct sl__sha256 h SL_CLEANUP(sl__sha256_drop) = {NULL};
	uint8_t digest[SL__SHA256_BYTES];
	char got[SL__SHA256_HEX], want[SL__SHA256_HEX];
	int rc = sl__sha256_begin(&h, err);
	if (rc != 0)
		return rc;
	for (uint64_t at = 0; at < f->size && !atomic_load_explicit(&f->w->stop, memory_order_relaxed);) {
		size_t n = (size_t)SL_MIN(f->size - at, READ_BYTES);
		ssize_t got_bytes = sl__pread_full(env_of(f), f->fd, buf, n, at);
		if (got_bytes < 0) {
			found(f->slot, SL_AUDIT_UNREADABLE, "it cannot be read: %s", strerror((int)-got_bytes));
			return 0;
		}
		if ((rc = sl__sha256_update(&h, buf, (size_t)got_bytes, err)) != 0)
			return rc;
		if ((size_t)got_bytes < n)
			break; /* shorter than it was: the hash will differ */
		at += n;
		atomic_fetch_add_explicit(&f->w->bytes, n, memory_order_relaxed);
	}
	if ((rc = sl__sha256_final(&h, digest, err)) != 0)
		return rc;
	if (memcmp(digest, f->e->sha256, sizeof(digest)) == 0)
		return 0;
	sl__sha256_hex(digest, got);
	sl__sha256_hex(f->e->sha256, want);
	found(f->slot, SL_AUDIT_HASH, "its SHA-256 is %.16s…, its event has %.16s…", got, want);
	return 0;
}

/* ---- decoding ---- */

static int read_verified(void *buf, size_t n, uint64_t offset, struct sl_err *err, void *ctx)
{
	struct file *f = ctx;
	ssize_t got = sl__pread_full(env_of(f), f->fd, buf, n, offset);
	if (got < 0)
		return sl_err_set_errno(err, (int)-got, "read");
	return (size_t)got == n ? 0 : sl_err_set(err, SL_ECORRUPT, "the file is too short");
}

bool sl__verify_same_holes(const char *text, const char *of_event)
{
	char form[SL__HOLES_EVENT_BYTES];
	return strcmp(text, of_event) == 0 ||
	       (sl__holes_for_event(text, form, NULL) == 0 && strcmp(form, of_event) == 0);
}

/* What the rows of a file have left out so far. */
struct absent {
	uint64_t next; /* the smallest sequence that may come */
	struct sl__buf ranges;
	const char *holes; /* of the event, from `first` to `last` on; inline ones only */
	bool has_hole;
	uint64_t first, last;
};

/* The rows of one group. They ascend, and so do the holes of the event. */
static void check_sequences(struct file *f, const struct sl_parquet_column *column,
			    const struct sl_parquet_values *values, uint64_t rows, struct absent *a)
{
	const struct sl__verify_entry *e = f->e;
	bool gapless = e->bad_rows == 0 && e->holes == 0;
	uint64_t *next = &a->next;
	for (uint64_t i = 0; i < rows; i++) {
		int64_t value = column->kind == SL_PARQUET_INT32 ? ((const int32_t *)values->values)[i]
								 : ((const int64_t *)values->values)[i];
		/* A negative one is larger than any end. */
		if ((values->nulls != NULL && values->nulls[i] != 0) || (uint64_t)value < *next ||
		    (uint64_t)value > e->end || (gapless && (uint64_t)value != *next)) {
			found(f->slot, SL_AUDIT_CONTENTS, "sequence %" PRId64 ", expected %" PRIu64, value, *next);
			return;
		}
		while (a->has_hole && a->last < (uint64_t)value)
			a->has_hole = sl__holes_next(&a->holes, &a->first, &a->last);
		if (a->has_hole && (uint64_t)value >= a->first) {
			found(f->slot, SL_AUDIT_CONTENTS,
			      "it has a row of sequence %" PRId64 ", which its event calls a hole", value);
			return;
		}
		if (e->holes > 0 && (uint64_t)value > *next)
			sl__holes_put(&a->ranges, *next, (uint64_t)value - 1);
		*next = (uint64_t)value + 1;
	}
}

/* Decode the file: its rows, and their sequence column. */
static int check_contents(struct file *f, sl_parquet_reader *r, struct sl_err *err)
{
	const struct sl__verify_entry *e = f->e;
	struct absent a = {.next = e->start, .holes = e->hole_ranges};
	struct sl_parquet_info info = {.struct_size = sizeof(info)};
	const char *name = f->w->v->sequence_column;
	size_t column = 0;
	int rc = 0;
	sl_parquet_reader_get_info(r, &info);
	if (info.rows != e->rows) {
		found(f->slot, SL_AUDIT_CONTENTS, "it has %" PRIu64 " rows, its event has %" PRIu64, info.rows,
		      e->rows);
		return 0;
	}
	while (column < info.n_columns &&
	       (strcmp(info.columns[column].name, name) != 0 ||
		(info.columns[column].kind != SL_PARQUET_INT64 && info.columns[column].kind != SL_PARQUET_INT32)))
		column++;
	if (column == info.n_columns) {
		found(f->slot, SL_AUDIT_CONTENTS, "it has no integer column \"%.100s\"", name);
		return 0;
	}
	sl__buf_init(&a.ranges, env_of(f));
	a.has_hole = sl__holes_next(&a.holes, &a.first, &a.last);
	for (size_t g = 0; g < info.row_groups && f->slot->fault == 0 && rc == 0; g++) {
		struct sl_parquet_chunk chunk = {.struct_size = sizeof(chunk)};
		struct sl_parquet_values values;
		rc = sl_parquet_reader_get_chunk(r, g, column, &chunk, err);
		if (rc == 0)
			rc = sl_parquet_reader_read(r, g, column, &values, err);
		if (rc == 0)
			check_sequences(f, &info.columns[column], &values, chunk.rows, &a);
	}
	/* What was diverted is absent too, and stands nowhere: then only the rows can be compared with the holes. */
	if (rc == 0 && f->slot->fault == 0 && e->holes > 0 && e->bad_rows == 0) {
		if (a.next <= e->end)
			sl__holes_put(&a.ranges, a.next, e->end);
		if (a.ranges.failed != 0)
			rc = sl_err_set(err, SL_ENOMEM, "out of memory for the holes of a file");
		else if (!sl__verify_same_holes(sl__buf_str(&a.ranges), e->hole_ranges))
			found(f->slot, SL_AUDIT_CONTENTS, "its rows leave out %.60s, its event has %.60s",
			      sl__buf_str(&a.ranges), e->hole_ranges);
	}
	sl__buf_fini(&a.ranges);
	return rc;
}

/* ---- threads ---- */

static int check_file(struct file *f, void *buf, struct sl_err *err)
{
	char *path = sl__asprintf(env_of(f), "%s/%s", f->w->v->dir, f->e->path);
	if (path == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for a path");
	open_verified(f, path);
	sl__free(env_of(f), path);
	int rc = f->slot->fault == 0 ? check_hash(f, buf, err) : 0;
	bool stopped = atomic_load_explicit(&f->w->stop, memory_order_relaxed);
	if (rc == 0 && f->slot->fault == 0 && !stopped && f->w->v->opts.decode != SL_OFF) {
		struct sl_parquet_reader_opts opts = {SL_PARQUET_READER_OPTS_INIT, .env = env_of(f)};
		struct sl_err why = SL_ERR_INIT;
		sl_parquet_reader *r = NULL;
		rc = sl_parquet_reader_open(&r, read_verified, f, f->size, &opts, &why);
		if (rc == 0)
			rc = check_contents(f, r, &why);
		sl_parquet_reader_close(r);
		if (rc == SL_ENOMEM)
			rc = sl_err_set(err, rc, "%s", why.msg);
		else if (rc != 0) {
			found(f->slot, SL_AUDIT_CONTENTS, "%s", why.msg);
			rc = 0;
		}
	}
	sl__close_fd(env_of(f), &f->fd);
	return rc;
}

static void verify_worker(unsigned index, void *ctx)
{
	struct work *w = ctx;
	struct sl__verify *v = w->v;
	void *buf = sl__alloc(&v->env, READ_BYTES);
	(void)index;
	for (size_t i; !atomic_load(&w->stop) && (i = atomic_fetch_add(&w->next, 1)) < v->n;) {
		struct sl_err err = SL_ERR_INIT;
		struct slot *s = &w->slots[i];
		struct file f = {.w = w, .e = &v->entries[i], .slot = s, .fd = -1};
		int rc = buf != NULL ? check_file(&f, buf, &err)
				     : sl_err_set(&err, SL_ENOMEM, "out of memory to read the file");
		if (rc != 0)
			(void)snprintf(s->text, sizeof(s->text), "%.190s", err.msg);
		sl__lock(&w->mu);
		s->rc = rc;
		s->done = true;
		sl__signal(&w->changed);
		sl__unlock(&w->mu);
	}
	sl__free(&v->env, buf);
}

static int report_progress(struct work *w, uint64_t total)
{
	struct sl__verify *v = w->v;
	if (v->opts.on_progress == NULL)
		return 0;
	v->callback_rc = v->opts.on_progress(atomic_load(&w->bytes), total, v->opts.ctx);
	return v->callback_rc != 0 ? SL__VERIFY_STOP : 0;
}

static int report_all(struct work *w, struct sl_err *err)
{
	struct sl__verify *v = w->v;
	uint64_t total = 0;
	int64_t next_ns = sl__deadline_ns(&v->env, PROGRESS_MS);
	int rc = 0;
	for (size_t i = 0; i < v->n; i++)
		total += v->entries[i].bytes;
	for (size_t i = 0; i < v->n && rc == 0; i++) {
		const struct slot *s = &w->slots[i];
		/* Until it is done, with progress every now and then. */
		sl__lock(&w->mu);
		while (rc == 0 && !s->done) {
			(void)sl__wait(&v->env, &w->changed, &w->mu, next_ns);
			if (sl__mono_ns(&v->env) < next_ns)
				continue;
			sl__unlock(&w->mu);
			rc = report_progress(w, total);
			next_ns = sl__deadline_ns(&v->env, PROGRESS_MS);
			sl__lock(&w->mu);
		}
		sl__unlock(&w->mu);
		if (rc == 0 && s->rc != 0)
			return sl_err_set(err, s->rc, "%.150s: %s", v->entries[i].path, s->text);
		if (rc == 0 && s->fault != 0)
			rc = sl__verify_report(v, s->fault, v->entries[i].number, v->entries[i].path, "%s", s->text);
	}
	if (rc != 0)
		return rc;
	return report_progress(w, total);
}

int sl__verify_files(struct sl__verify *v, struct sl_err *err)
{
	struct work w = {.v = v};
	sl__pool *pool = NULL;
	long n_threads = v->opts.threads > 0 ? v->opts.threads : sysconf(_SC_NPROCESSORS_ONLN);
	if (v->n == 0)
		return 0;
	n_threads = (long)SL_MIN((size_t)SL_MAX(n_threads, 1), v->n);
	w.slots = sl__calloc(&v->env, v->n, sizeof(*w.slots));
	if (w.slots == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for %zu files", v->n);
	sl__mutex_init(&w.mu);
	sl__cond_init(&w.changed);
	int rc = sl__pool_start(&pool, &v->env, "sl-verify", (unsigned)n_threads, verify_worker, NULL, &w, err);
	if (rc == 0)
		rc = report_all(&w, err);
	atomic_store(&w.stop, true);
	sl__pool_free(pool);
	sl__cond_fini(&w.changed);
	sl__mutex_fini(&w.mu);
	sl__free(&v->env, w.slots);
	return rc;
}
