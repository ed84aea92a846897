/* SPDX-License-Identifier: Apache-2.0 */
/* Files by identity and content; file.h says which are searched for. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "base/fnv.h"
#include "ship/file.h"
#include <sluice/adapter/io.h>

enum { SCANS_MAX = 20 };

int64_t sl__ship_file_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME_COARSE, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* ---- identity ---- */

static bool has_hash(int fd, uint64_t at, uint32_t len, uint64_t hash)
{
	char bytes[SHIP_SAMPLE];

	if (len == 0)
		return true;
	return pread(fd, bytes, len, (off_t)at) == (ssize_t)len && sl__fnv(bytes, len) == hash;
}

bool sl__ship_file_is_at(int fd, const struct ship_place *place)
{
	struct stat st;

	return fstat(fd, &st) == 0 && (uint64_t)st.st_size >= place->offset &&
	       has_hash(fd, 0, place->head_len, place->head) &&
	       has_hash(fd, place->offset - place->tail_len, place->tail_len, place->tail);
}

void sl__ship_file_close(struct ship_file *f)
{
	if (f->fd >= 0)
		(void)close(f->fd);
	f->fd = -1;
}

static int64_t ns_of(struct statx_timestamp t)
{
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Device, inode and time of birth of an open file. */
static int describe_file(struct ship_file *f, int64_t *written_ns)
{
	struct statx sx;

	if (statx(f->fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &sx))
		return errno;
	if (!S_ISREG(sx.stx_mode))
		return EINVAL;
	f->dev = makedev(sx.stx_dev_major, sx.stx_dev_minor);
	f->ino = sx.stx_ino;
	f->size = sx.stx_size;
	*written_ns = ns_of(sx.stx_mtime);
	f->born_ns = sx.stx_mask & STATX_BTIME ? ns_of(sx.stx_btime) : *written_ns;
	return 0;
}

/* Never waits, whatever kind of file has the name. */
static int open_in(int dir, const char *name, struct ship_file *f, int64_t *written_ns)
{
	int rc;

	f->seen_ns = sl__ship_file_now_ns();
	f->fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	rc = f->fd < 0 ? errno : describe_file(f, written_ns);
	if (rc != 0)
		sl__ship_file_close(f);
	(void)snprintf(f->name, sizeof(f->name), "%s", sl__basename(name));
	return rc;
}

int sl__ship_file_open(const char *path, struct ship_file *out)
{
	struct ship_file f = {.fd = -1};
	int64_t written_ns;
	int rc = open_in(AT_FDCWD, path, &f, &written_ns);

	if (rc == 0)
		*out = f;
	return rc;
}

int64_t sl__ship_file_born_ns(int fd)
{
	struct ship_file f = {.fd = fd};
	int64_t written_ns;

	return describe_file(&f, &written_ns) ? 0 : f.born_ns;
}

/* ---- a file under another name ---- */

/* The next name in a folder; NULL: no more. */
static const struct dirent *next_name(DIR *dir)
{
	const struct dirent *e = dir != NULL ? readdir(dir) : NULL;

	while (e != NULL && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0))
		e = readdir(dir);
	return e;
}

/* copy: another inode with the same content under a rotated name. Otherwise the same inode under any name. */
static bool find_in_folder(const struct ship_folder *in, const struct ship_place *place, bool copy,
			   struct ship_file *out)
{
	DIR *dir = opendir(in->dir);
	const struct dirent *e;
	bool found = false;

	/* Only its content identifies a copy: without any, nothing does. */
	while (!(copy && (place->head_len == 0 || place->offset == 0)) && !found && (e = next_name(dir)) != NULL) {
		struct ship_file f = {.fd = -1};
		struct stat st;
		int64_t written_ns;
		bool candidate = copy ? sl_is_rotated_name(in->base, e->d_name)
				      : fstatat(dirfd(dir), e->d_name, &st, 0) == 0 && st.st_ino == place->ino;

		if (!candidate || open_in(dirfd(dir), e->d_name, &f, &written_ns))
			continue;
		found = (f.dev == place->dev && f.ino == place->ino) != copy && sl__ship_file_is_at(f.fd, place);
		if (found)
			*out = f;
		else
			sl__ship_file_close(&f);
	}
	if (dir != NULL)
		(void)closedir(dir);
	return found;
}

bool sl__ship_file_find_copy(const struct ship_folder *in, const struct ship_place *place, struct ship_file *out)
{
	return find_in_folder(in, place, true, out);
}

bool sl__ship_file_find(const struct ship_folder *in, const struct ship_place *place, struct ship_file *out)
{
	return find_in_folder(in, place, false, out) || find_in_folder(in, place, true, out);
}

/* ---- unseen files ---- */

/* Files born in the same tick: a higher number is older, a later date younger. */
static int compare_birth(const void *a, const void *b)
{
	const struct ship_file *x = a, *y = b;
	size_t n = strlen(x->name), m = strlen(y->name);
	int by_name = strcmp(x->name, y->name);

	if (x->born_ns != y->born_ns)
		return x->born_ns < y->born_ns ? -1 : 1;
	if (n != m)
		return n > m ? -1 : 1;
	return n < 4 || !isdigit((unsigned char)x->name[n - 4]) ? -by_name : by_name;
}

static void free_files(const struct sl_env *env, struct ship_files *found)
{
	for (size_t i = 0; i < found->n; i++)
		sl__ship_file_close(&found->files[i]);
	sl__free(env, found->files);
	*found = (struct ship_files){.files = NULL};
}

/* One reading of the folder. SL_ENOMEM leaves *found empty. */
static int scan_unseen(const struct ship_folder *in, const struct ship_place *after, ship_file_skip_fn *skip, void *ctx,
		       struct ship_files *found)
{
	DIR *dir = opendir(in->dir);
	const struct dirent *e;
	size_t cap = 0;
	int rc = 0;

	*found = (struct ship_files){.files = NULL};
	while (rc == 0 && (e = next_name(dir)) != NULL) {
		struct ship_file f = {.fd = -1}, *grown = found->files;
		int64_t written_ns;

		if (!sl_is_rotated_name(in->base, e->d_name) || open_in(dirfd(dir), e->d_name, &f, &written_ns))
			continue;
		if (written_ns < after->since_ns || f.born_ns < after->since_ns || skip(&f, ctx)) {
			sl__ship_file_close(&f);
			continue;
		}
		if (found->n == cap) {
			cap = cap ? cap * 2 : 8;
			grown = sl__realloc(in->env, found->files, cap * sizeof(*grown));
		}
		if (grown == NULL) {
			sl__ship_file_close(&f);
			rc = SL_ENOMEM;
			continue;
		}
		found->files = grown;
		found->files[found->n++] = f;
	}
	if (dir != NULL)
		(void)closedir(dir);
	if (rc != 0)
		free_files(in->env, found);
	if (found->n > 1)
		qsort(found->files, found->n, sizeof(*found->files), compare_birth);
	return rc;
}

static bool are_same_files(const struct ship_files *a, const struct ship_files *b)
{
	if (a->n != b->n)
		return false;
	for (size_t i = 0; i < a->n; i++)
		if (a->files[i].ino != b->files[i].ino)
			return false;
	return true;
}

/* A rotation that runs meanwhile can hide a file from one reading of the folder: two in a row must agree. */
int sl__ship_file_unseen(const struct ship_folder *in, const struct ship_place *after, ship_file_skip_fn *skip,
			 void *ctx, struct ship_files *out)
{
	struct ship_files last = {.files = NULL}, now;

	for (int i = 0;; i++) {
		int rc = scan_unseen(in, after, skip, ctx, &now);

		if (rc != 0) {
			free_files(in->env, &last);
			return rc;
		}
		if ((i > 0 && are_same_files(&last, &now)) || i + 1 == SCANS_MAX)
			break;
		free_files(in->env, &last);
		last = now;
	}
	free_files(in->env, &last);
	*out = now;
	return 0;
}
