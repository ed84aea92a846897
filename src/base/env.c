/* SPDX-License-Identifier: Apache-2.0 */
/* The environment: defaults, memory and strings through it, log records, randomness. See env.h. */
#include "base/env.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

const struct sl_env sl__env_real = {SL_ENV_INIT,          .io = &sl__io_real,     .clock = &sl__clock_real,
				    .mem = &sl__mem_real, .rand = &sl__rand_real, .log_level = SL_LOG_INFO};

int sl__env_init(struct sl_env *out, const struct sl_env *in, struct sl_err *err)
{
	sl__opts_copy(out, sizeof(*out), in);
	if (out->io == NULL)
		out->io = &sl__io_real;
	if (out->clock == NULL)
		out->clock = &sl__clock_real;
	if (out->mem == NULL)
		out->mem = &sl__mem_real;
	if (out->rand == NULL)
		out->rand = &sl__rand_real;
	if (out->log_level == 0)
		out->log_level = SL_LOG_INFO;
	if (out->io->version != SL_IO_VERSION || out->clock->version != SL_CLOCK_VERSION ||
	    out->mem->version != SL_MEM_VERSION || out->rand->version != SL_RAND_VERSION)
		return sl_err_set(err, SL_EINVAL,
				  "env: a table of another version than this library's; build against its headers");
	return 0;
}

void *sl__calloc(const struct sl_env *e, size_t n, size_t size)
{
	size_t total;
	if (__builtin_mul_overflow(n, size, &total))
		return NULL;
	void *p = sl__alloc(e, total != 0 ? total : 1);
	if (p != NULL)
		memset(p, 0, total);
	return p;
}

void *sl__grow(const struct sl_env *e, void *p, size_t n, size_t *cap, size_t size)
{
	size_t more = SL_MAX((size_t)16, *cap), total;
	if (n < *cap)
		return p;
	if (__builtin_add_overflow(*cap, more, &more) || __builtin_mul_overflow(more, size, &total))
		return NULL;
	void *grown = sl__realloc(e, p, total);
	if (grown != NULL)
		*cap = more;
	return grown;
}

char *sl__strdup(const struct sl_env *e, const char *s)
{
	size_t n = strlen(s) + 1;
	char *copy = sl__alloc(e, n);
	if (copy != NULL)
		memcpy(copy, s, n);
	return copy;
}

const char **sl__strdup_list(const struct sl_env *e, const char *const *list, size_t n)
{
	size_t bytes = 0;
	for (size_t i = 0; i < n; i++)
		bytes += strlen(list[i]) + 1;
	const char **copy = sl__alloc(e, (n + 1) * sizeof(*copy) + bytes);
	if (copy == NULL)
		return NULL;
	char *at = (char *)(copy + n + 1);
	for (size_t i = 0; i < n; i++) {
		copy[i] = at;
		at = stpcpy(at, list[i]) + 1;
	}
	copy[n] = NULL;
	return copy;
}

char *sl__asprintf(const struct sl_env *e, const char *fmt, ...)
{
	va_list args, again;
	va_start(args, fmt);
	va_copy(again, args);
	int n = vsnprintf(NULL, 0, fmt, args);
	va_end(args);
	char *text = n < 0 ? NULL : sl__alloc(e, (size_t)n + 1);
	if (text != NULL)
		(void)vsnprintf(text, (size_t)n + 1, fmt, again);
	va_end(again);
	return text;
}

int64_t sl__deadline_ns(const struct sl_env *e, int64_t ms)
{
	int64_t ns, at;
	if (ms < 0 || __builtin_mul_overflow(ms, (int64_t)1000000, &ns) ||
	    __builtin_add_overflow(sl__mono_ns(e), ns, &at))
		return SL_FOREVER;
	return at;
}

ssize_t sl__pread_full(const struct sl_env *e, int fd, void *buf, size_t n, uint64_t offset)
{
	size_t done = 0;
	while (done < n) {
		ssize_t got = SL__IO(e, pread, fd, (char *)buf + done, n - done, offset + done);
		if (got < 0)
			return got;
		if (got == 0)
			break;
		done += (size_t)got;
	}
	return (ssize_t)done;
}

int sl__pwrite_full(const struct sl_env *e, int fd, const void *buf, size_t n, uint64_t offset)
{
	size_t done = 0;
	while (done < n) {
		ssize_t put = SL__IO(e, pwrite, fd, (const char *)buf + done, n - done, offset + done);
		if (put < 0)
			return (int)put;
		if (put == 0)
			return -ENOSPC;
		done += (size_t)put;
	}
	return 0;
}

int sl__sync_dir(const struct sl_env *e, const char *dir)
{
	int fd = SL__IO(e, open, dir, O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0)
		return fd;
	int rc = SL__IO(e, sync, fd);
	(void)SL__IO(e, close, fd);
	return rc;
}

char *sl__dirname(const struct sl_env *e, const char *path)
{
	const char *slash = strrchr(path, '/');
	if (slash == NULL)
		return sl__strdup(e, ".");
	if (slash == path)
		return sl__strdup(e, "/");
	return sl__asprintf(e, "%.*s", (int)(slash - path), path);
}

/* 0 for what may be a folder (a link to one, too), -ENOTDIR for a file, -ENOENT for nothing. */
static int find_folder(const struct sl_env *e, const char *dir)
{
	struct sl_io_stat st;
	int rc = SL__IO(e, stat, dir, &st);
	return rc == 0 && S_ISREG(st.mode) ? -ENOTDIR : rc;
}

/* Make one folder whose parent exists, and sync the parent: also when another process has made it meanwhile, which may
 * not have come to its sync yet. */
static int make_one(const struct sl_env *e, const char *dir)
{
	int rc = SL__IO(e, mkdir, dir, 0700);
	if (rc == -EEXIST)
		rc = find_folder(e, dir);
	if (rc < 0)
		return rc;
	char *parent = sl__dirname(e, dir);
	if (parent == NULL)
		return -ENOMEM;
	rc = sl__sync_dir(e, parent);
	sl__free(e, parent);
	return rc;
}

int sl_check_local_path(const char *what, const char *path, struct sl_err *err)
{
	const char *p = path != NULL ? path : "";
	if ((*p | 32) < 'a' || (*p | 32) > 'z')
		return 0;
	while (((*p | 32) >= 'a' && (*p | 32) <= 'z') || (*p >= '0' && *p <= '9') || *p == '+' || *p == '-' ||
	       *p == '.')
		p++;
	if (strncmp(p, "://", 3) != 0)
		return 0;
	return sl_err_set(err, SL_EINVAL,
			  "%s: %.*s:// is not supported here; give a local path (./%.*s:… for one that is named so)",
			  what, (int)SL_MIN(p - path, (ptrdiff_t)32), path, (int)SL_MIN(p - path, (ptrdiff_t)32), path);
}

int sl__mkdirs(const struct sl_env *e, const char *dir)
{
	if (dir[0] == '\0')
		return -ENOENT;
	int rc = find_folder(e, dir);
	if (rc == 0 || rc == -ENOTDIR)
		return rc;
	char *copy = sl__strdup(e, dir);
	if (copy == NULL)
		return -ENOMEM;
	rc = 0;
	for (char *p = copy + 1; rc == 0 && *p != '\0'; p++) {
		if (*p != '/' || p[-1] == '/')
			continue;
		*p = '\0';
		if (find_folder(e, copy) != 0)
			rc = make_one(e, copy);
		*p = '/';
	}
	size_t n = strlen(copy);
	while (n > 1 && copy[n - 1] == '/')
		copy[--n] = '\0';
	if (rc == 0)
		rc = make_one(e, copy);
	sl__free(e, copy);
	return rc;
}

void sl__log_fields(const struct sl_env *e, enum sl_log_level level, const char *component, const char *message,
		    const struct sl_log_field *fields, size_t n)
{
	if (e->log == NULL || level < e->log_level)
		return;
	struct sl_log_record record = {.level = level,
				       .time_ms = sl__real_ms(e),
				       .component = component,
				       .message = message,
				       .fields = fields,
				       .n_fields = n};
	e->log(&record, e->log_ctx);
}

void sl__log_text(const struct sl_env *e, enum sl_log_level level, const char *component, const char *fmt, ...)
{
	char text[2048];
	va_list args;
	if (e->log == NULL || level < e->log_level)
		return;
	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	sl__log_fields(e, level, component, text, NULL, 0);
}

/* splitmix64: one word of state, good enough to spread retries and name temporary files. */
void sl__prng_init(struct sl__prng *p, const struct sl_env *e)
{
	if (e->rand->fill(&p->s, sizeof(p->s), e->rand_ctx) != 0)
		p->s = (uint64_t)sl__mono_ns(e) * 0x9E3779B97F4A7C15ULL;
}

uint64_t sl__prng_next(struct sl__prng *p)
{
	uint64_t z = p->s += 0x9E3779B97F4A7C15ULL;
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
	return z ^ (z >> 31);
}

double sl__prng_unit(struct sl__prng *p)
{
	return (double)(sl__prng_next(p) >> 11) * 0x1.0p-53;
}
