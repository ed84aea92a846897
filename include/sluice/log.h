/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structured log records. The library never prints: a handle hands its records to the callback of its environment
 * (<sluice/adapter/env.h>), and drops them without one. Payloads and secrets are never in a record.
 *
 * Thread safety: the functions here have no state; a callback is called from several threads at once.
 * Ownership: a record and all that it points to live for the call.
 */
#ifndef SLUICE_LOG_H
#define SLUICE_LOG_H

#include <sluice/err.h>

#ifdef __cplusplus
extern "C" {
#endif

enum sl_log_level { SL_LOG_DEBUG = 1, SL_LOG_INFO = 2, SL_LOG_WARN = 3, SL_LOG_ERROR = 4 };

enum sl_log_kind { SL_LOG_STR = 0, SL_LOG_I64 = 1, SL_LOG_U64 = 2, SL_LOG_HEX64 = 3 };

struct sl_log_field {
	const char *key;
	enum sl_log_kind kind;
	const char *str; /* SL_LOG_STR */
	uint64_t num;    /* the others; SL_LOG_I64 is read as int64_t */
};

struct sl_log_record {
	enum sl_log_level level;
	int64_t time_ms;       /* Unix milliseconds */
	const char *component; /* "wal", "queue", … */
	const char *message;
	const struct sl_log_field *fields;
	size_t n_fields;
};

/* Called on the thread that logs, with no lock held that concerns the callback; it must not call back
 * into the handle that logs. */
typedef void sl_log_fn(const struct sl_log_record *record, void *ctx);

enum sl_log_format { SL_LOG_LOGFMT = 0, SL_LOG_JSON = 1 };

/* Write record as one line without its newline into out (always NUL-terminated when size > 0; cut at a character
 * boundary when too long, and still valid JSON). Returns the length that was written. */
SL_API size_t sl_log_format(const struct sl_log_record *record, enum sl_log_format format, char *out, size_t size);

/* "debug", "info", "warn" or "error". A static string. */
SL_API const char *sl_log_level_name(enum sl_log_level level);

#ifdef __cplusplus
}
#endif
#endif
