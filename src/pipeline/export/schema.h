/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schema of a dataset: its columns, and what else decides the bytes of its files. It is kept in the catalog as
 *text, JSON lines: first {"format":1,"zstd_level":3}, then an object for each column in the order of the file,
 *	{"name":"fee","nullable":false,"type":"int64"}
 * with "dictionary":"on" or "off" where that was said. The text is compared byte by byte, so it has one form.
 *
 * Thread safety: no state. Ownership: a schema owns its columns and their names.
 */
#ifndef SL_PIPELINE_EXPORT_SCHEMA_H
#define SL_PIPELINE_EXPORT_SCHEMA_H

#include "base/buf.h"
#include <sluice/export.h>
#include <sluice/records.h>

#define SL__SCHEMA_COLUMNS_MAX ((size_t)2000)

struct sl__schema {
	const struct sl_env *env;
	struct sl_parquet_column *columns; /* names are owned */
	size_t n;
	int32_t zstd_level;
};

void sl__schema_fini(struct sl__schema *s); /* also of a zeroed one */

/* A copy. SL_EINVAL: no columns, too many, a name twice or empty, a kind that is invalid. */
SL_MUST_CHECK int sl__schema_copy(struct sl__schema *out, const struct sl_env *env,
				  const struct sl_parquet_column *columns, size_t n, struct sl_err *err);
/* Of guessed columns: the sequence is required, everything else nullable; numbers that neither 64 bits nor a double
 * hold, and JSON, are strings. */
struct sl__guessed {
	const struct sl_column *columns;
	size_t n;
	const char *sequence;
};
SL_MUST_CHECK int sl__schema_guess(struct sl__schema *out, const struct sl_env *env, const struct sl__guessed *from,
				   struct sl_err *err);

/* The text, in buf, which is cleared first. Failures stick there. */
void sl__schema_put(struct sl__buf *buf, const struct sl__schema *s);
/* From the text: SL_ECORRUPT. */
SL_MUST_CHECK int sl__schema_parse(struct sl__schema *out, const struct sl_env *env, const char *text,
				   struct sl_err *err);

/* The column of this name, or SIZE_MAX. */
size_t sl__schema_find(const struct sl__schema *s, const char *name);

#endif
