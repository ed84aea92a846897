/* SPDX-License-Identifier: Apache-2.0 */
/* The real environment: system calls, the monotonic clock, malloc, getrandom. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/env.h"
#include "base/thread.h"

static int real_open(const char *path, int flags, mode_t mode, SL_UNUSED void *ctx)
{
	int fd;
	do
		fd = open(path, flags | O_CLOEXEC, mode);
	while (fd < 0 && errno == EINTR);
	return fd < 0 ? -errno : fd;
}

static int real_close(int fd, SL_UNUSED void *ctx)
{
	/* Linux frees the descriptor even when close is interrupted. */
	return close(fd) == 0 || errno == EINTR ? 0 : -errno;
}

static ssize_t real_pread(int fd, void *buf, size_t n, uint64_t offset, SL_UNUSED void *ctx)
{
	ssize_t got;
	do
		got = pread(fd, buf, n, (off_t)offset);
	while (got < 0 && errno == EINTR);
	return got < 0 ? -errno : got;
}

static ssize_t real_pwrite(int fd, const void *buf, size_t n, uint64_t offset, SL_UNUSED void *ctx)
{
	ssize_t put;
	do
		put = pwrite(fd, buf, n, (off_t)offset);
	while (put < 0 && errno == EINTR);
	return put < 0 ? -errno : put;
}

/* A sync is never retried: after a failure the kernel may have dropped the dirty pages. */
static int real_datasync(int fd, SL_UNUSED void *ctx)
{
	return fdatasync(fd) == 0 ? 0 : -errno;
}

static int real_sync(int fd, SL_UNUSED void *ctx)
{
	return fsync(fd) == 0 ? 0 : -errno;
}

static int real_truncate(int fd, uint64_t size, SL_UNUSED void *ctx)
{
	while (ftruncate(fd, (off_t)size) != 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

static void fill_stat(struct sl_io_stat *out, const struct stat *st)
{
	out->size = (uint64_t)st->st_size;
	out->dev = st->st_dev;
	out->ino = st->st_ino;
	out->mtime_ms = (int64_t)st->st_mtim.tv_sec * 1000 + st->st_mtim.tv_nsec / 1000000;
	out->ctime_ms = (int64_t)st->st_ctim.tv_sec * 1000 + st->st_ctim.tv_nsec / 1000000;
	out->mode = st->st_mode;
}

static int real_fstat(int fd, struct sl_io_stat *out, SL_UNUSED void *ctx)
{
	struct stat st;
	if (fstat(fd, &st) != 0)
		return -errno;
	fill_stat(out, &st);
	return 0;
}

static int real_stat(const char *path, struct sl_io_stat *out, SL_UNUSED void *ctx)
{
	struct stat st;
	if (lstat(path, &st) != 0)
		return -errno;
	fill_stat(out, &st);
	return 0;
}

static int real_rename(const char *from, const char *to, int noreplace, SL_UNUSED void *ctx)
{
	if (!noreplace)
		return rename(from, to) == 0 ? 0 : -errno;
	if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	/* A filesystem without RENAME_NOREPLACE: link refuses a taken name just as well. */
	if (link(from, to) != 0)
		return -errno;
	return unlink(from) == 0 ? 0 : -errno;
}

static int real_unlink(const char *path, SL_UNUSED void *ctx)
{
	return unlink(path) == 0 ? 0 : -errno;
}

static int real_mkdir(const char *path, mode_t mode, SL_UNUSED void *ctx)
{
	return mkdir(path, mode) == 0 ? 0 : -errno;
}

static int real_list(const char *path, sl_io_list_fn *fn, void *fn_ctx, SL_UNUSED void *ctx)
{
	DIR *dir = opendir(path);
	if (dir == NULL)
		return -errno;
	int rc = 0;
	for (;;) {
		errno = 0;
		const struct dirent *entry = readdir(dir);
		if (entry == NULL) {
			rc = -errno;
			break;
		}
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		rc = fn(entry->d_name, fn_ctx);
		if (rc != 0)
			break;
	}
	(void)closedir(dir);
	return rc;
}

static int real_lock(int fd, SL_UNUSED void *ctx)
{
	while (flock(fd, LOCK_EX | LOCK_NB) != 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

const struct sl_io sl__io_real = {
	.version = SL_IO_VERSION,
	.open = real_open,
	.close = real_close,
	.pread = real_pread,
	.pwrite = real_pwrite,
	.datasync = real_datasync,
	.sync = real_sync,
	.truncate = real_truncate,
	.fstat = real_fstat,
	.stat = real_stat,
	.rename = real_rename,
	.unlink = real_unlink,
	.mkdir = real_mkdir,
	.list = real_list,
	.lock = real_lock,
};

static int64_t real_mono_ns(SL_UNUSED void *ctx)
{
	struct timespec ts;
	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static int64_t real_real_ms(SL_UNUSED void *ctx)
{
	struct timespec ts;
	(void)clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int real_wait(pthread_cond_t *cond, pthread_mutex_t *mu, int64_t deadline_ns, SL_UNUSED void *ctx)
{
	if (deadline_ns == SL_FOREVER)
		return pthread_cond_wait(cond, mu);
	int64_t at = deadline_ns < 0 ? 0 : deadline_ns;
	struct timespec ts = {.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000};
	return pthread_cond_timedwait(cond, mu, &ts);
}

const struct sl_clock sl__clock_real = {
	.version = SL_CLOCK_VERSION, .mono_ns = real_mono_ns, .real_ms = real_real_ms, .wait = real_wait};

static void *real_alloc(size_t size, SL_UNUSED void *ctx)
{
	return malloc(size);
}
static void *real_resize(void *p, size_t size, SL_UNUSED void *ctx)
{
	return realloc(p, size);
}
static void real_release(void *p, SL_UNUSED void *ctx)
{
	free(p);
}

const struct sl_mem sl__mem_real = {
	.version = SL_MEM_VERSION, .alloc = real_alloc, .resize = real_resize, .release = real_release};

static int real_fill(void *buf, size_t n, SL_UNUSED void *ctx)
{
	size_t done = 0;
	while (done < n) {
		ssize_t got = getrandom((char *)buf + done, n - done, 0);
		if (got < 0 && errno != EINTR)
			return -errno;
		if (got > 0)
			done += (size_t)got;
	}
	return 0;
}

const struct sl_rand sl__rand_real = {.version = SL_RAND_VERSION, .fill = real_fill};

void sl__mutex_init(sl__mutex *mu)
{
	int rc = pthread_mutex_init(&mu->m, NULL);
	assert(rc == 0);
	(void)rc;
}

void sl__mutex_init_busy(sl__mutex *mu)
{
	pthread_mutexattr_t attr;
	(void)pthread_mutexattr_init(&attr);
	(void)pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
	int rc = pthread_mutex_init(&mu->m, &attr);
	(void)pthread_mutexattr_destroy(&attr);
	assert(rc == 0);
	(void)rc;
}

void sl__mutex_fini(sl__mutex *mu)
{
	(void)pthread_mutex_destroy(&mu->m);
}

void sl__cond_init(sl__cond *cond)
{
	pthread_condattr_t attr;
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	int rc = pthread_cond_init(&cond->c, &attr);
	(void)pthread_condattr_destroy(&attr);
	assert(rc == 0);
	(void)rc;
}

void sl__cond_fini(sl__cond *cond)
{
	(void)pthread_cond_destroy(&cond->c);
}

int sl__thread_start(pthread_t *out, const char *name, void *(*fn)(void *), void *arg)
{
	sigset_t all, old;
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	int rc = pthread_create(out, NULL, fn, arg);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc != 0)
		return -rc;
	char cut[16];
	(void)snprintf(cut, sizeof(cut), "%s", name);
	(void)pthread_setname_np(*out, cut);
	return 0;
}

int sl__thread_error(struct sl_err *err, int rc, const char *role, const char *of)
{
	if (rc == -EAGAIN) /* not a lock's EAGAIN */
		return sl_err_set(err, SL_EAGAIN, "start the %s thread of %s: the system's limit of threads is reached",
				  role, of);
	return sl_err_set_errno(err, -rc, "start the %s thread of %s", role, of);
}
