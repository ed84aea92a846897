/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The environment inside the library: a struct sl_env in which nothing is NULL but log and metrics, kept by value in
 * each handle, and short names for its calls. Nothing in the library calls malloc, open or clock_gettime but through
 * here.
 */
#ifndef SL_BASE_ENV_H
#define SL_BASE_ENV_H

#include <stdarg.h>

#include "base/base.h"
#include <sluice/adapter/env.h>

extern const struct sl_io sl__io_real;
extern const struct sl_clock sl__clock_real;
extern const struct sl_mem sl__mem_real;
extern const struct sl_rand sl__rand_real;
/* All of these, without a log and metrics. */
extern const struct sl_env sl__env_real;

/* Fill *out from in (NULL allowed) and the real defaults. SL_EINVAL for a table of another version. */
SL_MUST_CHECK int sl__env_init(struct sl_env *out, const struct sl_env *in, struct sl_err *err);

static inline void *sl__alloc(const struct sl_env *e, size_t n)
{
	return e->mem->alloc(n, e->mem_ctx);
}
/* Zeroed array; NULL also when n * size overflows. */
void *sl__calloc(const struct sl_env *e, size_t n, size_t size);
static inline void *sl__realloc(const struct sl_env *e, void *p, size_t n)
{
	return e->mem->resize(p, n, e->mem_ctx);
}
/* An array of n elements of `size` bytes with room for one more: p itself, or a larger copy, with *cap set to what it
 * holds now. NULL without memory, p and *cap as they were. */
SL_MUST_CHECK void *sl__grow(const struct sl_env *e, void *p, size_t n, size_t *cap, size_t size);
static inline void sl__free(const struct sl_env *e, void *p)
{
	if (p != NULL)
		e->mem->release(p, e->mem_ctx);
}
char *sl__strdup(const struct sl_env *e, const char *s);
/* A copy of n texts in one block of memory, for one sl__free, with NULL at its end. NULL without memory. */
const char **sl__strdup_list(const struct sl_env *e, const char *const *list, size_t n);
/* printf into fresh memory; NULL without memory. */
char *sl__asprintf(const struct sl_env *e, const char *fmt, ...) SL_PRINTF(2, 3);

static inline int64_t sl__mono_ns(const struct sl_env *e)
{
	return e->clock->mono_ns(e->clock_ctx);
}
static inline int64_t sl__real_ms(const struct sl_env *e)
{
	return e->clock->real_ms(e->clock_ctx);
}
/* mono_ns() + ms, saturating; ms < 0 (SL_UNLIMITED) is SL_FOREVER. */
int64_t sl__deadline_ns(const struct sl_env *e, int64_t ms);

/* ---- I/O: thin names over the table ---- */
#define SL__IO(e, op, ...) ((e)->io->op(__VA_ARGS__, (e)->io_ctx))

/* Whole transfers. A short file in sl__pread_full gives the count that was read. 0 or count, or a negative errno. */
ssize_t sl__pread_full(const struct sl_env *e, int fd, void *buf, size_t n, uint64_t offset);
int sl__pwrite_full(const struct sl_env *e, int fd, const void *buf, size_t n, uint64_t offset);
/* Open the folder of path (or path itself when is_dir), fsync, close. 0 or a negative errno. */
int sl__sync_dir(const struct sl_env *e, const char *dir);
/* mkdir -p with 0700 for what is missing, each new entry synced in its parent. 0 or a negative errno. */
int sl__mkdirs(const struct sl_env *e, const char *dir);
/* The folder part of path in fresh memory ("." without one); NULL without memory. */
char *sl__dirname(const struct sl_env *e, const char *path);
static inline const char *sl__basename(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash != NULL ? slash + 1 : path;
}
/* Close an int descriptor through the table; for handles that keep -1 when closed. */
static inline void sl__close_fd(const struct sl_env *e, int *fd)
{
	if (*fd >= 0)
		(void)SL__IO(e, close, *fd);
	*fd = -1;
}

/* ---- log ---- */
#define SL__F_STR(k, v) ((struct sl_log_field){.key = (k), .kind = SL_LOG_STR, .str = (v)})
#define SL__F_I64(k, v) ((struct sl_log_field){.key = (k), .kind = SL_LOG_I64, .num = (uint64_t)(int64_t)(v)})
#define SL__F_U64(k, v) ((struct sl_log_field){.key = (k), .kind = SL_LOG_U64, .num = (v)})
#define SL__F_HEX(k, v) ((struct sl_log_field){.key = (k), .kind = SL_LOG_HEX64, .num = (v)})
void sl__log_fields(const struct sl_env *e, enum sl_log_level level, const char *component, const char *message,
		    const struct sl_log_field *fields, size_t n);
/* sl__log(env, SL_LOG_WARN, "wal", "torn tail trimmed", SL__F_STR("segment", name), SL__F_U64("offset", off)); */
#define sl__log(e, level, component, message, ...)                                                                     \
	do {                                                                                                           \
		if ((e)->log != NULL && (level) >= (e)->log_level)                                                     \
			sl__log_fields(e, level, component, message, (const struct sl_log_field[]){__VA_ARGS__},       \
				       sizeof((const struct sl_log_field[]){__VA_ARGS__}) /                            \
					       sizeof(struct sl_log_field));                                           \
	} while (0)

/* A record without fields, its message like printf. */
void sl__log_text(const struct sl_env *e, enum sl_log_level level, const char *component, const char *fmt, ...)
	SL_PRINTF(4, 5);

/* ---- randomness that need not be secret: jitter, temporary names ---- */
struct sl__prng {
	uint64_t s;
};
/* Seeded from the environment; falls back to the clock when that fails. */
void sl__prng_init(struct sl__prng *p, const struct sl_env *e);
uint64_t sl__prng_next(struct sl__prng *p);
/* Uniform in [0, 1). */
double sl__prng_unit(struct sl__prng *p);

#endif
