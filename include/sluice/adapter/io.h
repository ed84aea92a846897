/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file operations that the library uses, as a table that a program or a test may replace: to count, to fail the
 * Nth call, to keep everything in memory and rebuild what a power loss could leave.
 *
 * Every function returns a value >= 0 or a negative errno. Descriptors are numbers of the table's own; the library
 * hands them only to the same table. EINTR is handled inside.
 *
 * Thread safety: functions are called from several threads at once, without locks that the table needs to know of; they
 * may block. Ownership: paths and buffers are the library's and live for the call; the table and its ctx outlive every
 * handle that was opened with them.
 */
#ifndef SLUICE_ADAPTER_IO_H
#define SLUICE_ADAPTER_IO_H

#include <sluice/err.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SL_IO_VERSION 1

struct sl_io_stat {
	uint64_t size;     /* bytes */
	uint64_t dev, ino; /* identity: the same pair is the same file */
	int64_t mtime_ms;  /* Unix milliseconds */
	uint32_t mode;     /* st_mode */
	int64_t ctime_ms;  /* of the last change of name, mode or content; 0: not known */
};

/* Returns 0 to continue, another value to stop (it becomes the result of list). "." and ".." are not reported. */
typedef int sl_io_list_fn(const char *name, void *ctx);

struct sl_io {
	int version; /* SL_IO_VERSION */
	/* flags as in open(2); the table adds O_CLOEXEC. Directories are opened with O_RDONLY | O_DIRECTORY to sync. */
	int (*open)(const char *path, int flags, mode_t mode, void *ctx);
	int (*close)(int fd, void *ctx);
	/* May transfer less than n; 0 from pread is the end of the file. */
	ssize_t (*pread)(int fd, void *buf, size_t n, uint64_t offset, void *ctx);
	ssize_t (*pwrite)(int fd, const void *buf, size_t n, uint64_t offset, void *ctx);
	int (*datasync)(int fd, void *ctx); /* fdatasync: data and size */
	int (*sync)(int fd, void *ctx);     /* fsync; of a directory, its entries */
	int (*truncate)(int fd, uint64_t size, void *ctx);
	int (*fstat)(int fd, struct sl_io_stat *out, void *ctx);
	int (*stat)(const char *path, struct sl_io_stat *out, void *ctx); /* does not follow a last symbolic link */
	/* noreplace: -EEXIST when `to` is taken, else it is replaced in one step. */
	int (*rename)(const char *from, const char *to, int noreplace, void *ctx);
	int (*unlink)(const char *path, void *ctx);
	int (*mkdir)(const char *path, mode_t mode, void *ctx);
	int (*list)(const char *path, sl_io_list_fn *fn, void *fn_ctx, void *ctx);
	/* An exclusive lock on the open file, gone with its last descriptor; -EWOULDBLOCK when another holds it. */
	int (*lock)(int fd, void *ctx);
};

/* Refuse a URL where a path of this machine is expected: SL_EINVAL for SCHEME://…, where SCHEME is a letter and then
 * letters, digits, '+', '-' and '.'. Everything that takes a file or a folder calls it first, so that nothing is ever
 * written to a local folder named s3:. A path that really looks so can be given as ./PATH. what: the option or field,
 * for the message, which shows no more of the URL than its scheme. path NULL is allowed. */
SL_API SL_MUST_CHECK int sl_check_local_path(const char *what, const char *path, struct sl_err *err);

/* Is name what a rotation makes of base (both without their folder)? app.log becomes app.log.1, app.log-20240501,
 * app.log.2024-05-01T12, app.log.old, app.log~, and app.1.log or app-20240501.log. Names of compressed files are not
 * among them. */
SL_API bool sl_is_rotated_name(const char *base, const char *name);

#ifdef __cplusplus
}
#endif
#endif
