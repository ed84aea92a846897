/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader inside. Open reads the footer (footer_read.c), keeps its bytes, to which bounds point, and checks that
 * it is plausible: chunks lie between the first magic and the footer, every row group has every column. A read
 * fetches the bytes of one chunk, goes through its pages and decodes them (chunk_read.c).
 *
 * Invariants:
 *  1. Nothing is allocated for a chunk beyond `max_chunk_bytes`, whatever a footer or a page header claims.
 *  2. Byte arrays that were handed out point into `held` pages of their column, which live until its next read.
 */
#ifndef SL_PARQUET_READER_H
#define SL_PARQUET_READER_H

#include <sluice/parquet.h>
#include <zstd.h>

#include "base/buf.h"
#include "parquet/column.h"
#include "parquet/pack.h"

struct sl__rchunk {
	struct sl_parquet_chunk info;
	enum pq_codec codec;
};

/* What the last read of a column handed out. */
struct sl__held {
	struct sl__buf values, nulls;
	char **pages; /* that byte arrays point to */
	size_t n_pages, pages_cap;
};

struct sl_parquet_reader {
	struct sl_env env;
	sl_parquet_read_fn *read;
	void *read_ctx;
	const char *memory; /* the file, when it is in memory; else NULL */
	uint64_t file_bytes;
	uint64_t max_footer_bytes, max_chunk_bytes;

	char *footer; /* as read */
	size_t footer_bytes;
	char *text; /* the footer's texts with a NUL after each */
	size_t text_used;
	struct sl_parquet_column *columns;
	size_t n_columns;
	struct sl_parquet_pair *metadata;
	size_t n_metadata;
	const char *created_by;
	uint64_t rows;
	struct sl__rchunk *chunks; /* n_groups times n_columns */
	size_t n_groups, groups_cap;

	struct sl__held *held;     /* one per column */
	struct sl__buf raw;        /* the bytes of a chunk */
	struct sl__buf page;       /* of one page, unpacked, where nothing points to it */
	struct sl__buf index;      /* uint32_t: levels, or indices of a dictionary */
	struct sl__buf dictionary; /* its values, as entries */
	ZSTD_DCtx *zstd;
};

/* footer_read.c: parse r->footer. */
SL_MUST_CHECK int sl__footer_parse(sl_parquet_reader *r, struct sl_err *err);

/* chunk_read.c */
SL_MUST_CHECK int sl__chunk_read(sl_parquet_reader *r, size_t group, size_t column, struct sl_parquet_values *out,
				 struct sl_err *err);
void sl__held_release(sl_parquet_reader *r, struct sl__held *h);

#endif
