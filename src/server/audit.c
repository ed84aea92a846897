/* SPDX-License-Identifier: Apache-2.0 */
#include "audit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TAIL_BYTES ((off_t)4 << 20)

struct srv_audit {
	pthread_mutex_t mu;
	char *path;
	int fd;
	bool dirty;   /* something is not synced */
	bool failing; /* the last write failed */
	bool torn;    /* half a line may be at the end */
};

static int open_file(const char *path)
{
	int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	return fd >= 0 ? fd : -errno;
}

/* Whoever wrote last may have died within a line. */
static bool ends_torn(int fd)
{
	struct stat st;
	char last = '\n';
	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 &&
	       pread(fd, &last, 1, st.st_size - 1) == 1 && last != '\n';
}

int srv_audit_open(srv_audit **out, const char *path, struct sl_err *err)
{
	srv_audit *a = calloc(1, sizeof *a);
	if (a == NULL || (a->path = strdup(path)) == NULL) {
		free(a);
		return sl_err_set(err, SL_ENOMEM, "audit log");
	}
	a->fd = open_file(path);
	if (a->fd < 0) {
		int rc = sl_err_set_errno(err, -a->fd, "audit log %s", path);
		free(a->path);
		free(a);
		return rc;
	}
	a->torn = ends_torn(a->fd);
	pthread_mutex_init(&a->mu, NULL);
	*out = a;
	return 0;
}

void srv_audit_close(srv_audit *a)
{
	if (a == NULL)
		return;
	int rc = srv_audit_sync(a, NULL);
	(void)rc;
	close(a->fd);
	pthread_mutex_destroy(&a->mu);
	free(a->path);
	free(a);
}

int srv_audit_reopen(srv_audit *a, struct sl_err *err)
{
	int fd = open_file(a->path);
	if (fd < 0)
		return sl_err_set_errno(err, -fd, "audit log %s", a->path);
	int rc = srv_audit_sync(a, err);
	pthread_mutex_lock(&a->mu);
	int old = a->fd;
	a->fd = fd;
	a->failing = false;
	a->torn = ends_torn(fd);
	pthread_mutex_unlock(&a->mu);
	close(old);
	return rc;
}

/* a->mu held. The whole of it in one write, so that lines of two processes do not mix; what is left of a short write
 * (a full disk) is cut by a newline before the next. */
static int put(srv_audit *a, const char *text, size_t len)
{
	if (a->torn && write(a->fd, "\n", 1) != 1)
		return errno;
	a->torn = false;
	ssize_t n = len > 0 ? write(a->fd, text, len) : 0;
	if (n == (ssize_t)len) {
		a->dirty = a->dirty || len > 0;
		return 0;
	}
	a->torn = n > 0;
	return n < 0 ? errno : ENOSPC;
}

bool srv_audit_ready(srv_audit *a)
{
	pthread_mutex_lock(&a->mu);
	if (a->failing)
		a->failing = put(a, "\n", 1) != 0;
	bool ready = !a->failing;
	pthread_mutex_unlock(&a->mu);
	return ready;
}

int srv_audit_write(srv_audit *a, json_t *line, struct sl_err *err)
{
	size_t n = line != NULL ? json_dumpb(line, NULL, 0, JSON_COMPACT) : 0;
	char *text = n > 0 ? malloc(n + 1) : NULL;
	if (text != NULL)
		json_dumpb(line, text, n, JSON_COMPACT);
	json_decref(line);
	if (text == NULL)
		return sl_err_set(err, SL_ENOMEM, "audit log %s", a->path);
	text[n] = '\n';
	int rc = srv_audit_put(a, text, n + 1, err);
	free(text);
	return rc;
}

int srv_audit_put(srv_audit *a, const char *lines, size_t len, struct sl_err *err)
{
	pthread_mutex_lock(&a->mu);
	int e = put(a, lines, len);
	a->failing = e != 0;
	pthread_mutex_unlock(&a->mu);
	return e != 0 ? sl_err_set_errno(err, e, "audit log %s", a->path) : 0;
}

int srv_audit_sync(srv_audit *a, struct sl_err *err)
{
	pthread_mutex_lock(&a->mu);
	int fd = a->dirty ? dup(a->fd) : -1; /* a line need not wait for the disk */
	bool due = a->dirty;
	a->dirty = false;
	pthread_mutex_unlock(&a->mu);
	int e = due && fd < 0 ? errno : 0;
	if (fd >= 0) {
		e = fdatasync(fd) != 0 ? errno : 0;
		close(fd);
	}
	return e != 0 ? sl_err_set_errno(err, e, "sync the audit log %s", a->path) : 0;
}

/* Lines from the end of text, newest first. Half a line (the start of the window, a torn one) is passed over. */
static json_t *last_lines(const char *text, size_t len, size_t limit)
{
	json_t *all = json_array();
	const char *end = text + len;
	while (all != NULL && end > text && json_array_size(all) < limit) {
		const char *stop = end[-1] == '\n' ? end - 1 : end;
		const char *from = stop > text ? memrchr(text, '\n', (size_t)(stop - text)) : NULL;
		from = from != NULL ? from + 1 : text;
		json_t *line = json_loadb(from, (size_t)(stop - from), 0, NULL);
		if (line != NULL)
			json_array_append_new(all, line);
		end = from;
	}
	return all;
}

int srv_audit_tail(srv_audit *a, size_t limit, json_t **out, struct sl_err *err)
{
	struct stat st;
	int fd = open(a->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || fstat(fd, &st) != 0) {
		int rc = sl_err_set_errno(err, errno, "audit log");
		if (fd >= 0)
			close(fd);
		return rc;
	}
	off_t from = st.st_size > TAIL_BYTES ? st.st_size - TAIL_BYTES : 0;
	size_t size = (size_t)(st.st_size - from);
	char *text = malloc(size + 1);
	ssize_t n = text != NULL ? pread(fd, text, size, from) : -1;
	close(fd);
	json_t *all = n >= 0 ? last_lines(text, (size_t)n, limit) : NULL;
	free(text);
	if (all == NULL)
		return sl_err_set(err, SL_EIO, "the audit log cannot be read");
	*out = all;
	return 0;
}
