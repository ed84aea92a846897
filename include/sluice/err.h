/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors. Every function that can fail returns 0 or a negative SL_E… code; those that do I/O, SQL or parsing also take
 * a last `struct sl_err *err`, which may be NULL, is owned by the caller, holds no heap memory and is written only on
 * failure. Decide by `code`, `error_class` and sl_err_retryable, never by the text.
 *
 * Thread safety: a struct sl_err belongs to one thread at a time; the functions here have no state.
 * Ownership: a struct sl_err is the caller's and points to nothing; names and texts are static.
 */
#ifndef SLUICE_ERR_H
#define SLUICE_ERR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(SL_BUILDING_LIBRARY)
#define SL_API __attribute__((visibility("default")))
#else
#define SL_API
#endif
#define SL_MUST_CHECK __attribute__((warn_unused_result))
#define SL_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* In options, zero means "the default"; these say "zero" and "without a limit" where that is meant. */
#define SL_NONE (-1)
#define SL_UNLIMITED (-2)

/* A switch in options: zero is the default that the field documents. */
enum sl_switch { SL_DEFAULT = 0, SL_ON = 1, SL_OFF = 2 };

/*
 * One table of codes: X(name, value, exit code of the command, short text). Values never change.
 * Exit codes: 64 usage, 65 bad data, 69 unavailable, 70 internal, 73 can't create, 74 I/O, 75 try again, 78
 * configuration.
 */
#define SL_ERR_TABLE(X)                                                                                                \
	X(EINVAL, -1, 64, "invalid argument")                                                                          \
	X(ENOMEM, -2, 70, "out of memory")                                                                             \
	X(EIO, -3, 74, "input/output error")                                                                           \
	X(ENOSPC, -4, 74, "no space left")                                                                             \
	X(ENOENT, -5, 74, "not found")                                                                                 \
	X(EEXIST, -6, 73, "exists already")                                                                            \
	X(EACCES, -7, 74, "permission denied")                                                                         \
	X(ECORRUPT, -8, 65, "damaged data")                                                                            \
	X(EDATA, -9, 65, "bad data")                                                                                   \
	X(ETOOBIG, -10, 65, "too big")                                                                                 \
	X(ELOCKED, -11, 75, "in use by another process")                                                               \
	X(EFULL, -12, 75, "full")                                                                                      \
	X(ETIMEDOUT, -13, 75, "timed out")                                                                             \
	X(EAGAIN, -14, 75, "try again")                                                                                \
	X(ECLOSED, -15, 70, "closed")                                                                                  \
	X(EPOISONED, -16, 74, "unusable after an earlier I/O failure; reopen it")                                      \
	X(EFORKED, -17, 70, "used in a forked child")                                                                  \
	X(EREFUSED, -18, 65, "refused by the receiver")                                                                \
	X(ECONFLICT, -19, 65, "in conflict with the receiver")                                                         \
	X(EUNAVAIL, -20, 69, "unavailable")                                                                            \
	X(EKEY, -21, 78, "wrong or missing key")                                                                       \
	X(ECONFIG, -22, 78, "configuration error")                                                                     \
	X(ECREATE, -23, 73, "cannot create")                                                                           \
	X(EGAP, -24, 65, "gap in the order")                                                                           \
	X(EDUPLICATE, -25, 65, "seen before")                                                                          \
	X(ECANCELLED, -26, 75, "cancelled")                                                                            \
	X(ESTALE, -27, 75, "too old to answer")                                                                        \
	X(EUNSUPPORTED, -28, 78, "not supported")                                                                      \
	X(EPENDING, -29, 75, "records are still pending")                                                              \
	X(EINTERNAL, -30, 70, "internal error")

enum sl_err_code {
	SL_OK = 0,
#define SL_ERR_ENUM(name, value, exit_code, text) SL_##name = value,
	SL_ERR_TABLE(SL_ERR_ENUM)
#undef SL_ERR_ENUM
};

/* What a failure means for the work at hand, and so whether the same call may succeed later (sl_err_retryable). */
enum sl_err_class {
	SL_CLASS_NONE = 0,      /* not classified */
	SL_CLASS_TRANSIENT = 1, /* this attempt failed; try again, and count it */
	SL_CLASS_THROTTLED = 2, /* wait for retry_after_ms, not counted */
	SL_CLASS_POISON = 3,    /* this item will never succeed */
	SL_CLASS_FATAL = 4      /* the target refuses everything or is unavailable: keep the data, count nothing. It may
				 * recover with the code SL_EUNAVAIL; with another one a person has to fix it */
};

#define SL_ERR_MSG_BYTES 256

struct sl_err {
	int code;                      /* SL_E…, or 0 */
	enum sl_err_class error_class; /* what it means for a retry */
	int sys_errno;                 /* errno when that was the cause, or 0 */
	char sqlstate[6];              /* of a database, NUL-terminated, or empty */
	int64_t retry_after_ms;        /* as the target asks; 0: it does not say */
	char msg[SL_ERR_MSG_BYTES];    /* for people: what failed, on which thing, what to do */
};

/* A cleared error; designated use: struct sl_err err = SL_ERR_INIT; */
#ifdef __cplusplus
#define SL_ERR_INIT                                                                                                    \
	{                                                                                                              \
	}
#else
#define SL_ERR_INIT                                                                                                    \
	{                                                                                                              \
		0                                                                                                      \
	}
#endif

/* The name ("ENOSPC") and the short text of a code; "EUNKNOWN" / "unknown error" for one that is not ours. */
SL_API const char *sl_err_name(int code);
SL_API const char *sl_err_text(int code);
/* "transient", "throttled", "poison", "fatal" or "none". */
SL_API const char *sl_err_class_name(enum sl_err_class error_class);
/* Whether the same call may succeed later, without any change. From code and class: transient, throttled, and
 * fatal with SL_EUNAVAIL. */
SL_API bool sl_err_retryable(const struct sl_err *err);
/* The exit code that the sluice command uses for a code; 0 for 0. */
SL_API int sl_err_exit_code(int code);

/*
 * Fill err (when not NULL) and return code, so that callers write `return sl_err_set(err, SL_EIO, "…", …);`.
 * Code and class go together as the table of codes says; a caller who knows better sets the class.
 * sl_err_set_errno appends ": <strerror>" and maps the errno to a code. sl_err_wrap puts
 * "text: " before the message of an err that is already filled and returns its code.
 */
SL_API int sl_err_set(struct sl_err *err, int code, const char *fmt, ...) SL_PRINTF(3, 4);
SL_API int sl_err_set_errno(struct sl_err *err, int sys_errno, const char *fmt, ...) SL_PRINTF(3, 4);
SL_API int sl_err_wrap(struct sl_err *err, int code, const char *fmt, ...) SL_PRINTF(3, 4);

#ifdef __cplusplus
}
#endif
#endif
