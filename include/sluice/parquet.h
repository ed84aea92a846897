/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parquet files with flat columns: a writer whose bytes are the same every time, and a reader for what it writes.
 *
 * The writer gives a stream of bytes, in order, to a callback; it never seeks, so that the caller can hash and store in
 * one pass. Guarantees
 *  - The bytes depend on the columns, the options and the values only: not on time, threads, memory, seeds, or how the
 *    rows were split into calls (for one version of this library and of zstd).
 *  - What DuckDB, Arrow (Rust) and hyparquet read is what was written, cell by cell; bounds and null counts never make
 *    them skip a row that fits. A column chunk with a NaN, or with a bound of more than 256 bytes, has no bounds.
 *  - Memory is bounded by one row group: row_group_rows and row_group_bytes cut it, whichever comes first.
 * The reader guarantees that a hostile file costs no more than max_chunk_bytes and its footer, and ends in SL_ECORRUPT,
 * SL_EUNSUPPORTED or values, never outside of its memory; every page that has a CRC is checked. Our pages have one.
 * Not guaranteed: reading every Parquet file there is. Flat columns of the kinds below, data pages of version 1, PLAIN,
 * RLE_DICTIONARY, DELTA_BINARY_PACKED and DELTA_LENGTH_BYTE_ARRAY, without compression or with zstd: the rest is
 * SL_EUNSUPPORTED. docs/formats/parquet.md has the format byte by byte.
 *
 * Thread safety: one thread at a time per handle; handles are independent. Ownership: strings in columns and options
 * are copied; what is put is the caller's; what is read is the reader's, see sl_parquet_reader_read.
 */
#ifndef SLUICE_PARQUET_H
#define SLUICE_PARQUET_H

#include <sluice/adapter/env.h>
#include <sluice/err.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_parquet_writer sl_parquet_writer;
typedef struct sl_parquet_reader sl_parquet_reader;

/* What a column holds, and the C type of one entry in its array of values. */
enum sl_parquet_kind {
	SL_PARQUET_BOOL = 1,      /* uint8_t: 0 or not */
	SL_PARQUET_INT32 = 2,     /* int32_t */
	SL_PARQUET_INT64 = 3,     /* int64_t */
	SL_PARQUET_FLOAT = 4,     /* float */
	SL_PARQUET_DOUBLE = 5,    /* double */
	SL_PARQUET_TIMESTAMP = 6, /* int64_t: units since 1970-01-01T00:00:00, UTC unless `local` */
	SL_PARQUET_DATE = 7,      /* int32_t: days since 1970-01-01 */
	SL_PARQUET_DECIMAL = 8,   /* int64_t: the value times ten to the power of scale */
	SL_PARQUET_STRING = 9,    /* struct sl_parquet_bytes, UTF-8 */
	SL_PARQUET_BINARY = 10,   /* struct sl_parquet_bytes */
	SL_PARQUET_FIXED = 11     /* `length` bytes, one entry right after the other */
};

enum sl_parquet_unit { SL_PARQUET_MICROS = 0, SL_PARQUET_MILLIS = 1, SL_PARQUET_NANOS = 2 };

struct sl_parquet_column {
	const char *name; /* UTF-8, not empty, unique in the file */
	enum sl_parquet_kind kind;
	bool nullable;             /* false: required */
	enum sl_parquet_unit unit; /* of a timestamp */
	int32_t precision;         /* of a decimal: 1 to 18 */
	int32_t scale;             /* of a decimal: 0 to precision */
	int32_t length;            /* of fixed: 1 to 65,536 */
	/* Try a dictionary; default on where it can pay (not for bool). It is dropped when it does not. */
	enum sl_switch dictionary;
	bool local; /* of a timestamp: true: a date and a time of no zone, not a moment (isAdjustedToUTC is false) */
	uint64_t reserved[2];
};

struct sl_parquet_bytes {
	const char *data; /* may be NULL when len is 0 */
	uint32_t len;
};

/* Values of one column, one entry per row; what stands in the entry of a NULL row does not matter. */
struct sl_parquet_values {
	const void *values;   /* array of the kind's C type */
	const uint8_t *nulls; /* one byte per row, not 0: NULL. NULL pointer: there are none */
};

struct sl_parquet_pair {
	const char *key, *value;
};

/* ---- writing ---- */

/* Take the next n bytes of the file. 0 or a negative SL_E… with err filled. Called from put and finish. */
typedef int sl_parquet_write_fn(const void *bytes, size_t n, struct sl_err *err, void *ctx);

struct sl_parquet_writer_opts {
	size_t struct_size; /* SL_PARQUET_WRITER_OPTS_INIT fills it */
	const struct sl_env *env;
	int32_t zstd_level;        /* default 3; 1 to 19; SL_NONE: no compression */
	int64_t row_group_rows;    /* default 122,880; at most 16,777,216 */
	int64_t row_group_bytes;   /* of values, plainly encoded; the row that reaches it is the last; default 24 MiB */
	int64_t dictionary_bytes;  /* of one column chunk's dictionary; default 4 MiB; SL_NONE: no dictionaries */
	enum sl_switch check_utf8; /* of strings; default on. Off for a caller who has checked */
	const char *created_by;    /* default "sluice version x.y.z (build 0)" */
	const struct sl_parquet_pair *metadata; /* key/value pairs of the footer, in this order */
	size_t n_metadata;
};
#define SL_PARQUET_WRITER_OPTS_INIT .struct_size = sizeof(struct sl_parquet_writer_opts)

/* Nothing is written yet. SL_EINVAL names the column or option. */
SL_API SL_MUST_CHECK int sl_parquet_writer_new(sl_parquet_writer **out, const struct sl_parquet_column *columns,
					       size_t n, const struct sl_parquet_writer_opts *opts,
					       sl_parquet_write_fn *write, void *ctx, struct sl_err *err);
/* NULL is allowed. A file without finish is not a Parquet file. */
SL_API void sl_parquet_writer_free(sl_parquet_writer *w);

/*
 * Put n rows: columns[i] has the values of column i. They are the caller's again when this returns: row groups that are
 * whole within this call are encoded from where they lie, the rest of the rows is copied until the group is full. So a
 * caller who puts many rows at a time (a row group, a partition) has nothing copied but the last few.
 * SL_EDATA (a NULL in a required column, invalid UTF-8, with the row's number in this file, from 0), SL_ETOOBIG (more
 * rows than 2^31 or a value of 1 GiB), SL_ENOMEM, or what the callback returned; after any of these the writer takes
 * nothing more (SL_EPOISONED).
 */
SL_API SL_MUST_CHECK int sl_parquet_writer_put(sl_parquet_writer *w, const struct sl_parquet_values *columns,
					       size_t n_rows, struct sl_err *err);
/* Write the last row group and the footer: the file is whole when 0 returns. Only free may follow. */
SL_API SL_MUST_CHECK int sl_parquet_writer_finish(sl_parquet_writer *w, struct sl_err *err);

struct sl_parquet_writer_stats {
	size_t struct_size;
	uint64_t rows;       /* put so far */
	uint64_t bytes;      /* given to the callback */
	uint64_t row_groups; /* written */
};
/* A snapshot of the counts. struct_size must be set. */
SL_API void sl_parquet_writer_get_stats(const sl_parquet_writer *w, struct sl_parquet_writer_stats *out);

/* ---- reading ---- */

/* Read exactly n bytes at offset. 0 or a negative SL_E… with err filled. Never asked for bytes past file_bytes. */
typedef int sl_parquet_read_fn(void *buf, size_t n, uint64_t offset, struct sl_err *err, void *ctx);

struct sl_parquet_reader_opts {
	size_t struct_size; /* SL_PARQUET_READER_OPTS_INIT fills it */
	const struct sl_env *env;
	int64_t max_footer_bytes; /* default 64 MiB: SL_ETOOBIG */
	int64_t max_chunk_bytes;  /* of one column of one row group, decoded; default 256 MiB: SL_ETOOBIG */
};
#define SL_PARQUET_READER_OPTS_INIT .struct_size = sizeof(struct sl_parquet_reader_opts)

/* Read the footer. SL_ECORRUPT: not a Parquet file, or damaged; SL_EUNSUPPORTED; SL_ETOOBIG; what read returned. */
SL_API SL_MUST_CHECK int sl_parquet_reader_open(sl_parquet_reader **out, sl_parquet_read_fn *read, void *ctx,
						uint64_t file_bytes, const struct sl_parquet_reader_opts *opts,
						struct sl_err *err);
/* The same for bytes in memory, which must outlive the reader. */
SL_API SL_MUST_CHECK int sl_parquet_reader_open_memory(sl_parquet_reader **out, const void *data, size_t n,
						       const struct sl_parquet_reader_opts *opts, struct sl_err *err);
SL_API void sl_parquet_reader_close(sl_parquet_reader *r); /* NULL is allowed */

/* What the footer says. Pointers live as long as r. */
struct sl_parquet_info {
	size_t struct_size;
	const struct sl_parquet_column *columns;
	size_t n_columns;
	uint64_t rows;
	size_t row_groups;
	const char *created_by; /* "" when not given */
	const struct sl_parquet_pair *metadata;
	size_t n_metadata;
	uint64_t footer_bytes;
};
SL_API void sl_parquet_reader_get_info(const sl_parquet_reader *r, struct sl_parquet_info *out);

/* Encodings of a chunk, as bits of sl_parquet_chunk.encodings: 1 << the number that Parquet gives them. */
#define SL_PARQUET_ENC_PLAIN (1u << 0)
#define SL_PARQUET_ENC_PLAIN_DICTIONARY (1u << 2)
#define SL_PARQUET_ENC_RLE (1u << 3)
#define SL_PARQUET_ENC_DELTA_BINARY_PACKED (1u << 5)
#define SL_PARQUET_ENC_DELTA_LENGTH_BYTE_ARRAY (1u << 6)
#define SL_PARQUET_ENC_RLE_DICTIONARY (1u << 8)

/* One column of one row group, as the footer describes it. Not checked against the data; sl_parquet_reader_check
 * does. */
struct sl_parquet_chunk {
	size_t struct_size;
	uint64_t rows;
	uint64_t offset;             /* of its first page */
	uint64_t bytes;              /* in the file, with page headers */
	uint64_t uncompressed_bytes; /* with page headers */
	int64_t nulls;               /* -1: unknown */
	uint32_t encodings;          /* SL_PARQUET_ENC_… */
	bool compressed;             /* true: zstd */
	bool has_bounds;
	/* The smallest and largest value, in the file's bytes: little-endian numbers, one byte for a bool, or the value
	 * itself. Live as long as r. */
	struct sl_parquet_bytes min, max;
};
/* SL_EINVAL: no such group or column. */
SL_API SL_MUST_CHECK int sl_parquet_reader_get_chunk(const sl_parquet_reader *r, size_t group, size_t column,
						     struct sl_parquet_chunk *out, struct sl_err *err);

/*
 * All values of a column in a row group, sl_parquet_chunk.rows of them; entries of NULLs are zero. They live until the
 * next read of the same column, or the reader's end, so that all columns of a group can be held side by side. nulls is
 * NULL when there are none. SL_ECORRUPT says which page; SL_EUNSUPPORTED; SL_ETOOBIG; SL_ENOMEM; what read returned.
 */
SL_API SL_MUST_CHECK int sl_parquet_reader_read(sl_parquet_reader *r, size_t group, size_t column,
						struct sl_parquet_values *out, struct sl_err *err);

/* Decode everything and compare it with the footer: rows, nulls, bounds, offsets without gaps. SL_ECORRUPT names the
 * column and row group. */
SL_API SL_MUST_CHECK int sl_parquet_reader_check(sl_parquet_reader *r, struct sl_err *err);

/* "int64", "timestamp(micros)", "decimal(18,2)", "fixed(16)" …, cut to fit. Returns out. */
SL_API const char *sl_parquet_type_name(const struct sl_parquet_column *column, char *out, size_t n);

#ifdef __cplusplus
}
#endif
#endif
