/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writer inside. Rows come in by put; a row group that is whole within a call is encoded from the caller's arrays,
 * else its rows wait in `pending`. A group is encoded column by column (chunk_write.c), each page leaves
 * through the callback as soon as it is compressed, and what the footer needs of it stays (footer_write.c).
 *
 * Invariants:
 *  1. The cut between row groups depends on the rows before it only, never on how they came in.
 *  2. `offset` is the number of bytes that the callback took.
 *  3. After a failure nothing is written any more.
 */
#ifndef SL_PARQUET_WRITER_H
#define SL_PARQUET_WRITER_H

#include <sluice/parquet.h>
#include <zstd.h>

#include "base/buf.h"
#include "parquet/column.h"
#include "parquet/dict.h"

#define PQ_PAGE_BYTES (1u << 20) /* of values; the value that reaches it is the page's last */

/* What the footer holds of a column chunk. */
struct sl__chunk {
	int64_t dictionary_offset; /* -1: none */
	int64_t data_offset;       /* of the first data page */
	int64_t bytes, uncompressed_bytes;
	int64_t nulls;
	uint32_t encodings; /* 1 << enum pq_encoding */
	char *bounds;       /* min, then max, right after; NULL: none */
	uint32_t min_len, max_len;
};

struct sl__group {
	struct sl__chunk *chunks; /* one per column */
	int64_t rows, offset, bytes, uncompressed_bytes;
};

/* Rows of a column that wait for their group to be full. */
struct sl__pending {
	struct sl__buf values; /* entries; for byte arrays the lengths, uint32_t each */
	struct sl__buf bytes;  /* of byte arrays, one after the other */
	struct sl__buf nulls;  /* a byte per row */
};

struct sl_parquet_writer {
	struct sl_env env;
	struct sl_parquet_column *columns;
	size_t n_columns;
	struct sl_parquet_pair *metadata; /* strings after it */
	size_t n_metadata;
	char *created_by;
	int zstd_level; /* 0: no compression */
	int64_t group_rows_max, group_bytes_max, dictionary_bytes;
	bool check_utf8;
	sl_parquet_write_fn *write;
	void *write_ctx;

	int failed; /* 0, or why nothing more is taken */
	bool finished;
	uint64_t rows;   /* put so far */
	uint64_t offset; /* bytes written */
	struct sl__group *groups;
	size_t n_groups, groups_cap;

	/* the row group that is being filled */
	int64_t group_rows, group_bytes;
	size_t row_bytes;      /* of one row without the contents of byte arrays */
	size_t *bytes_columns; /* which columns are byte arrays */
	size_t n_bytes_columns;
	struct sl__pending *pending;
	bool waiting; /* pending holds the group's rows */

	/* scratch of one chunk */
	ZSTD_CCtx *zstd;
	bool match_chosen;     /* how long matches of this chunk are; see chunk_write.c */
	struct sl__buf page;   /* what a page holds, before compression */
	struct sl__buf packed; /* room for a header, and the page compressed */
	struct sl__buf header; /* of a page */
	struct sl__buf dense;  /* the values that are not NULL */
	struct sl__buf index;  /* uint32_t per value: of the dictionary; or lengths */
	struct sl__buf levels; /* uint32_t per row */
	struct sl__buf views;  /* byte arrays of pending, or of the dictionary */
	struct sl__dict dictionary;
};

/* chunk_write.c: write all pages of a column's g->rows rows. g->chunks[column] is filled. */
SL_MUST_CHECK int sl__chunk_write(sl_parquet_writer *w, size_t column, const struct sl_parquet_values *v,
				  struct sl__group *g, struct sl_err *err);

/* writer.c: hand bytes to the callback. */
SL_MUST_CHECK int sl__writer_emit(sl_parquet_writer *w, const void *bytes, size_t n, struct sl_err *err);

/* footer_write.c */
SL_MUST_CHECK int sl__footer_write(sl_parquet_writer *w, struct sl_err *err);

#endif
