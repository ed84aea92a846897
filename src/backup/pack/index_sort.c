/* SPDX-License-Identifier: Apache-2.0 */
/* Sorting index entries: runs in memory, spilled to a temporary file and merged by a heap. */
#include "backup/pack/index_sort.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#define KEY_BYTES (BK_ID_BYTES + 4) /* id and pack */

struct bk_sort_run {
	uint8_t *window;   /* room for window_cap entries; in the last run the entries themselves */
	size_t at, len;    /* entries: where we are, how many are in the window */
	uint64_t next;     /* the entry in the file after the window */
	uint64_t end;      /* where the run ends in the file */
	size_t window_cap; /* entries */
};

void sl__bk_sort_init(struct bk_sort *s, const struct sl_env *env)
{
	*s = (struct bk_sort){.env = env, .run_entries = BK_SORT_RUN, .fd = -1};
}

void sl__bk_sort_fini(struct bk_sort *s)
{
	sl__close_fd(s->env, &s->fd);
	sl__free(s->env, s->run);
	sl__free(s->env, s->runs);
	sl__free(s->env, s->windows);
	sl__bk_sort_init(s, s->env);
}

static int compare_entries(const void *a, const void *b)
{
	return memcmp(a, b, KEY_BYTES);
}

/* A file that no other process can open and that is gone with its descriptor. */
static int open_sort_file(const struct sl_env *env, struct sl_err *err)
{
	const char *dir = secure_getenv("TMPDIR");
	if (dir == NULL || dir[0] == '\0')
		dir = "/var/tmp"; /* not /tmp, which is often memory */
	int fd = SL__IO(env, open, dir, O_TMPFILE | O_RDWR, 0600);
	if (fd != -EOPNOTSUPP && fd != -EISDIR && fd != -EINVAL)
		return fd >= 0 ? fd : sl_err_set_errno(err, -fd, "open a temporary file in %s (TMPDIR)", dir);
	/* A file system without unnamed files. */
	uint64_t number;
	int rc = env->rand->fill(&number, sizeof(number), env->rand_ctx);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "random bytes for the name of a temporary file");
	char *path = sl__asprintf(env, "%s/sluice-index-%016llx", dir, (unsigned long long)number);
	if (path == NULL)
		return sl__no_memory(err, "sort an index");
	fd = SL__IO(env, open, path, O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW, 0600);
	if (fd >= 0)
		(void)SL__IO(env, unlink, path);
	else
		fd = sl_err_set_errno(err, -fd, "open the temporary file %s (TMPDIR)", path);
	sl__free(env, path);
	return fd;
}

int sl__bk_sort_add(struct bk_sort *s, const uint8_t entry[BK_INDEX_ENTRY], struct sl_err *err)
{
	assert(!s->merging);
	if (s->n == s->run_entries) {
		/* Sort the run and write it after the others. */
		if (s->fd < 0) {
			int fd = open_sort_file(s->env, err);
			if (fd < 0)
				return fd;
			s->fd = fd;
		}
		qsort(s->run, s->n, BK_INDEX_ENTRY, compare_entries);
		int rc = sl__pwrite_full(s->env, s->fd, s->run, s->n * BK_INDEX_ENTRY, s->spilled * BK_INDEX_ENTRY);
		if (rc < 0)
			return sl_err_set_errno(err, -rc, "write the temporary file of an index (TMPDIR)");
		s->spilled += s->n;
		s->n = 0;
	} else if (s->n == s->cap) {
		size_t cap = SL_MIN(SL_MAX(2 * s->cap, (size_t)256), (size_t)s->run_entries);
		uint8_t *run = sl__realloc(s->env, s->run, cap * BK_INDEX_ENTRY);
		if (run == NULL)
			return sl__no_memory(err, "sort an index");
		s->run = run;
		s->cap = cap;
	}
	memcpy(s->run + s->n * BK_INDEX_ENTRY, entry, BK_INDEX_ENTRY);
	s->n++;
	s->total++;
	return 0;
}

static const uint8_t *least_of(const struct bk_sort_run *r)
{
	return r->window + r->at * BK_INDEX_ENTRY;
}

/* The heap below i is right but for i itself. */
static void sift(struct bk_sort *s, size_t i)
{
	struct bk_sort_run moved = s->runs[i];
	for (;;) {
		size_t child = 2 * i + 1;
		if (child >= s->n_runs)
			break;
		if (child + 1 < s->n_runs &&
		    compare_entries(least_of(&s->runs[child + 1]), least_of(&s->runs[child])) < 0)
			child++;
		if (compare_entries(least_of(&moved), least_of(&s->runs[child])) <= 0)
			break;
		s->runs[i] = s->runs[child];
		i = child;
	}
	s->runs[i] = moved;
}

/* The next window of a run; len 0: it has ended. */
static int refill_run(struct bk_sort *s, struct bk_sort_run *r, struct sl_err *err)
{
	size_t n = (size_t)SL_MIN(r->end - r->next, (uint64_t)r->window_cap), bytes = n * BK_INDEX_ENTRY;
	r->at = 0;
	r->len = n;
	if (n == 0)
		return 0;
	ssize_t got = sl__pread_full(s->env, s->fd, r->window, bytes, r->next * BK_INDEX_ENTRY);
	if (got < 0)
		return sl_err_set_errno(err, (int)-got, "read the temporary file of an index");
	if ((size_t)got != bytes)
		return sl_err_set(err, SL_EIO, "the temporary file of an index was cut");
	r->next += n;
	return 0;
}

int sl__bk_sort_next(struct bk_sort *s, const uint8_t **entry, struct sl_err *err)
{
	int rc = 0;
	if (!s->merging) {
		/* The runs of the file, then the one in memory, each with its first window, become a heap. */
		s->merging = true;
		if (s->n != 0)
			qsort(s->run, s->n, BK_INDEX_ENTRY, compare_entries);
		size_t in_file = (size_t)(s->spilled / s->run_entries);
		size_t window = in_file != 0 ? BK_SORT_WINDOWS / BK_INDEX_ENTRY / in_file : 0;
		window = SL_MIN(SL_MAX(window, (size_t)64), (size_t)s->run_entries);
		s->runs = sl__calloc(s->env, in_file + 1, sizeof(*s->runs));
		if (in_file != 0)
			s->windows = sl__alloc(s->env, in_file * window * BK_INDEX_ENTRY);
		if (s->runs == NULL || (in_file != 0 && s->windows == NULL))
			return sl__no_memory(err, "sort an index");
		for (size_t i = 0; i < in_file && rc == 0; i++) {
			struct bk_sort_run *r = &s->runs[s->n_runs++];
			*r = (struct bk_sort_run){.window = s->windows + i * window * BK_INDEX_ENTRY,
						  .next = i * s->run_entries,
						  .end = (i + 1) * (uint64_t)s->run_entries,
						  .window_cap = window};
			rc = refill_run(s, r, err);
		}
		if (rc != 0)
			return rc;
		if (s->n != 0)
			s->runs[s->n_runs++] = (struct bk_sort_run){.window = s->run, .len = s->n};
		for (size_t i = s->n_runs / 2; i-- > 0;)
			sift(s, i);
	} else if (s->n_runs > 0) { /* step over the entry that was returned last */
		struct bk_sort_run *r = &s->runs[0];
		if (++r->at == r->len) {
			rc = refill_run(s, r, err);
			if (rc == 0 && r->len == 0)
				*r = s->runs[--s->n_runs];
		}
		if (rc == 0 && s->n_runs > 1)
			sift(s, 0);
	}
	if (rc != 0)
		return rc;
	if (s->n_runs == 0)
		return 0;
	*entry = least_of(&s->runs[0]);
	return 1;
}
