/* SPDX-License-Identifier: Apache-2.0 */
#include "shipfile.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sluice/adapter/io.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

enum { SCANS = 20 };

static int64_t ns_of(int64_t seconds, int64_t ns)
{
	return seconds * 1000000000 + ns;
}

int64_t shipfile_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME_COARSE, &ts);
	return ns_of(ts.tv_sec, ts.tv_nsec);
}

/* ---- identity ---- */

static int has_bytes(int fd, uint64_t at, uint32_t len, uint64_t hash)
{
	char bytes[SHIP_SAMPLE];

	if (len == 0)
		return 1;
	return pread(fd, bytes, len, (off_t)at) == (ssize_t)len && ship_hash(bytes, len) == hash;
}

int shipfile_is_at(int fd, const struct ship_place *place)
{
	struct stat st;

	return fstat(fd, &st) == 0 && (uint64_t)st.st_size >= place->offset &&
	       has_bytes(fd, 0, place->head_len, place->head) &&
	       has_bytes(fd, place->offset - place->tail_len, place->tail_len, place->tail);
}

void shipfile_close(struct shipfile *f)
{
	if (f->fd >= 0)
		(void)close(f->fd);
	f->fd = -1;
}

/* Device, inode and time of birth of an open file. */
static int describe(struct shipfile *f, int64_t *written_ns)
{
	struct statx sx;

	if (statx(f->fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &sx))
		return errno;
	if (!S_ISREG(sx.stx_mode))
		return EINVAL;
	f->dev = makedev(sx.stx_dev_major, sx.stx_dev_minor);
	f->ino = sx.stx_ino;
	f->size = sx.stx_size;
	*written_ns = ns_of(sx.stx_mtime.tv_sec, sx.stx_mtime.tv_nsec);
	f->born_ns = sx.stx_mask & STATX_BTIME ? ns_of(sx.stx_btime.tv_sec, sx.stx_btime.tv_nsec) : *written_ns;
	return 0;
}

/* Never waits, whatever lies under the name. */
static int open_at(int dir, const char *path, struct shipfile *f, int64_t *written_ns)
{
	int rc;

	f->seen_ns = shipfile_now_ns();
	f->fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	rc = f->fd < 0 ? errno : describe(f, written_ns);
	if (rc)
		shipfile_close(f);
	return rc;
}

int shipfile_open(const char *path, struct shipfile *out)
{
	struct shipfile f = {.fd = -1};
	int64_t written_ns;
	int rc = open_at(AT_FDCWD, path, &f, &written_ns);

	if (!rc)
		*out = f;
	return rc;
}

int64_t shipfile_born_ns(int fd)
{
	struct shipfile f = {.fd = fd};
	int64_t written_ns;

	return describe(&f, &written_ns) ? 0 : f.born_ns;
}

/* ---- a file under another name ---- */

/* Call fn with every name of the folder until it returns 1, which is then the result. */
static int each_name(const char *path, int (*fn)(int dir, const struct dirent *e, void *ctx), void *ctx)
{
	DIR *dir = opendir(path);
	const struct dirent *e;
	int found = 0;

	while (dir && !found && (e = readdir(dir)))
		found = e->d_name[0] != '\0' && strcmp(e->d_name, ".") && strcmp(e->d_name, "..") &&
			fn(dirfd(dir), e, ctx);
	if (dir)
		(void)closedir(dir);
	return found;
}

struct search {
	const char *base;
	const struct ship_place *place;
	struct shipfile *out;
};

static int take_if_at(const struct search *s, int dir, const char *name, int same)
{
	struct shipfile f = {.fd = -1};
	int64_t written_ns;

	if (open_at(dir, name, &f, &written_ns))
		return 0;
	if ((f.dev == s->place->dev && f.ino == s->place->ino) != same || !shipfile_is_at(f.fd, s->place)) {
		shipfile_close(&f);
		return 0;
	}
	(void)snprintf(f.name, sizeof(f.name), "%s", name);
	*s->out = f;
	return 1;
}

static int try_same(int dir, const struct dirent *e, void *ctx)
{
	const struct search *s = ctx;
	struct stat st;

	return fstatat(dir, e->d_name, &st, 0) == 0 && st.st_ino == s->place->ino && take_if_at(s, dir, e->d_name, 1);
}

/* Content is all that speaks for a copy: without any, nothing does. */
static int try_copy(int dir, const struct dirent *e, void *ctx)
{
	const struct search *s = ctx;

	return s->place->head_len > 0 && s->place->offset > 0 && sl_is_rotated_name(s->base, e->d_name) &&
	       take_if_at(s, dir, e->d_name, 0);
}

int shipfile_find_copy(const char *dir, const char *base, const struct ship_place *place, struct shipfile *out)
{
	struct search s = {base, place, out};

	return each_name(dir, try_copy, &s);
}

int shipfile_find(const char *dir, const char *base, const struct ship_place *place, struct shipfile *out)
{
	struct search s = {base, place, out};

	return each_name(dir, try_same, &s) || shipfile_find_copy(dir, base, place, out);
}

/* ---- files that were never seen ---- */

struct unseen {
	const char *base;
	const struct ship_place *after;
	shipfile_skip_fn *skip;
	void *ctx;
	struct shipfile *files;
	size_t n, cap;
	int failed;
};

static int is_unseen(const struct unseen *u, const struct shipfile *f, int64_t written_ns)
{
	return written_ns >= u->after->since_ns && f->born_ns >= u->after->since_ns && !u->skip(f, u->ctx);
}

static int keep(struct unseen *u, const struct shipfile *f)
{
	struct shipfile *files = u->files;

	if (u->n == u->cap) {
		u->cap = u->cap ? u->cap * 2 : 8;
		files = realloc(u->files, u->cap * sizeof(*files));
	}
	if (!files)
		return ENOMEM;
	u->files = files;
	u->files[u->n++] = *f;
	return 0;
}

static int look_at(int dir, const struct dirent *e, void *ctx)
{
	struct unseen *u = ctx;
	struct shipfile f = {.fd = -1};
	int64_t written_ns;

	if (!sl_is_rotated_name(u->base, e->d_name) || open_at(dir, e->d_name, &f, &written_ns))
		return 0;
	(void)snprintf(f.name, sizeof(f.name), "%s", e->d_name);
	if (!is_unseen(u, &f, written_ns)) {
		shipfile_close(&f);
		return 0;
	}
	u->failed = keep(u, &f);
	if (u->failed)
		shipfile_close(&f);
	return u->failed;
}

/* Born in the same tick: a higher number is older, a later date younger. */
static int by_birth(const void *a, const void *b)
{
	const struct shipfile *x = a, *y = b;
	size_t n = strlen(x->name), m = strlen(y->name);
	int by_name = strcmp(x->name, y->name);

	if (x->born_ns != y->born_ns)
		return x->born_ns < y->born_ns ? -1 : 1;
	if (n != m)
		return n > m ? -1 : 1;
	return n < 4 || !isdigit((unsigned char)x->name[n - 4]) ? -by_name : by_name;
}

static void forget(struct unseen *u)
{
	for (size_t i = 0; i < u->n; i++)
		shipfile_close(&u->files[i]);
	free(u->files);
	u->files = NULL;
	u->n = u->cap = 0;
}

static int same_files(const struct unseen *a, const struct unseen *b)
{
	if (a->n != b->n)
		return 0;
	for (size_t i = 0; i < a->n; i++)
		if (a->files[i].ino != b->files[i].ino)
			return 0;
	return 1;
}

/* A rotation that runs meanwhile can hide a file from one reading of the folder: two in a row must agree. */
int shipfile_unseen(const char *dir, const char *base, const struct ship_place *after, shipfile_skip_fn *skip,
		    void *ctx, struct shipfile **out, size_t *n)
{
	struct unseen last = {.base = NULL}, now;

	for (int i = 0; i < SCANS; i++) {
		now = (struct unseen){.base = base, .after = after, .skip = skip, .ctx = ctx};
		(void)each_name(dir, look_at, &now);
		if (now.n > 1)
			qsort(now.files, now.n, sizeof(*now.files), by_birth);
		if (now.failed || (i > 0 && same_files(&last, &now)))
			break;
		if (i + 1 < SCANS) {
			forget(&last);
			last = now;
			now = (struct unseen){.base = NULL};
		}
	}
	forget(&last);
	if (now.failed) {
		forget(&now);
		return ENOMEM;
	}
	*out = now.files;
	*n = now.n;
	return 0;
}
