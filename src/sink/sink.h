/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the library's sinks share: which options each of them takes, a copy of the options that outlives the call, and
 * the makers of tables.
 *
 * Thread safety: no state. Ownership: sl__sink_copy_opts allocates; sl__sink_free_opts frees.
 */
#ifndef SL_SINK_SINK_H
#define SL_SINK_SINK_H

#include "base/env.h"
#include <sluice/sink.h>

/* The groups of options in struct sl_sink_opts. */
enum { SL__SINK_ROWS = 1, SL__SINK_TABLE = 2, SL__SINK_HTTP = 4, SL__SINK_FILE = 8, SL__SINK_EXEC = 16 };

/* Check the options and resolve their environment. SL_EINVAL names the first option that is set and not in `groups`, or
 * out of range, or the struct_size. opts may be NULL. */
SL_MUST_CHECK int sl__sink_check_opts(const struct sl_sink_opts *opts, unsigned groups, const char *sink,
				      struct sl_env *env, struct sl_err *err);

/* Deep copy of every string; the struct_size of *out is the library's. opts may be NULL: all defaults. */
SL_MUST_CHECK int sl__sink_copy_opts(struct sl_sink_opts *out, const struct sl_sink_opts *opts,
				     const struct sl_env *env, struct sl_err *err);
void sl__sink_free_opts(struct sl_sink_opts *opts, const struct sl_env *env);

/* Give err another class; the code is returned for `return sl__sink_class(…)`. err may be NULL. */
static inline int sl__sink_class(struct sl_err *err, int code, enum sl_err_class error_class)
{
	if (err != NULL)
		err->error_class = error_class;
	return code;
}

/* Halves of sl_sink_create_table. `what`: the file; the conninfo. */
SL_MUST_CHECK int sl__sink_sqlite_create(const char *what, const struct sl_sink_opts *opts,
					 const struct sl_column *columns, size_t n, struct sl_err *err);
SL_MUST_CHECK int sl__sink_postgres_create(const char *what, const struct sl_sink_opts *opts,
					   const struct sl_column *columns, size_t n, struct sl_err *err);

#endif
