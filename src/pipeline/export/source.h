/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where rows come from: one table for files, pipes and databases. A source gives text, CSV or JSON lines, in the order
 * of the sequence; the export cuts it into records. A database gives CSV without a header: an unquoted empty field is
 * NULL, a quoted "" is empty text, bytes are \x and hexadecimal digits, times are RFC 3339 (a blank for the T will do),
 * booleans true/false or t/f.
 *
 * How the export uses it: open; columns; begin, read until 0; with follow begin again after the last row that it has
 * seen, after a pause or when wait says so; close. Backfill begins at any range.
 *
 * Thread safety: one thread at a time per source (not always the same one); wake from any thread. Ownership: what
 * columns gives lives until close.
 */
#ifndef SL_PIPELINE_EXPORT_SOURCE_H
#define SL_PIPELINE_EXPORT_SOURCE_H

#include "base/env.h"
#include <sluice/export.h>

#define SL__EXPORT_NO_END UINT64_MAX

struct sl__export_source {
	const struct sl__export_source_ops *ops;
	void *ctx;
	bool records_gaps; /* unless the caller says: what is missing is recorded as a hole */
};

struct sl__export_source_ops {
	/* CSV without a header, or JSON lines. */
	bool csv;
	/* "table ledger of postgres://host/db", for messages and dead letters; without secrets; lives until close. */
	const char *(*describe)(void *ctx);
	/* The columns of the text, in its order. kind 0: not known by the source, to be guessed from the text. */
	int (*columns)(const struct sl_parquet_column **out, size_t *n, struct sl_err *err, void *ctx);
	/* Only rows with first <= sequence <= last, sorted by the sequence; last SL__EXPORT_NO_END: no end. What an
	 * earlier begin had not given yet is dropped. */
	int (*begin)(uint64_t first, uint64_t last, struct sl_err *err, void *ctx);
	/* As sl_records_read_fn: up to n bytes; 0: these were all rows; negative: SL_E…, sl_err_retryable(err) says whether
	 * begin after the last whole record may help. Ends with a line end. */
	int64_t (*read)(void *buf, size_t n, struct sl_err *err, void *ctx);
	/* Whether there is a row with a number in one of these ranges ("17,20-25"): the smallest in *found, and true in
	 * *any. Between a begin whose rows were all read and the next. NULL: not of a database. */
	int (*present)(const char *ranges, bool *any, uint64_t *found, struct sl_err *err, void *ctx);
	/* Make a read or begin that is blocked return SL_ECANCELLED soon. NULL: they never block for long. */
	void (*wake)(void *ctx);
	void (*close)(void *ctx);
};

/* The databases. opts are the export's own copy and outlive the source; opts->sequence NULL: the first column is it. */
SL_MUST_CHECK int sl__export_postgres_open(struct sl__export_source *out, const struct sl_export_opts *opts,
					   const struct sl_env *env, struct sl_err *err);
SL_MUST_CHECK int sl__export_sqlite_open(struct sl__export_source *out, const struct sl_export_opts *opts,
					 const struct sl_env *env, struct sl_err *err);

#endif
