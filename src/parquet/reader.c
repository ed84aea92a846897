/* SPDX-License-Identifier: Apache-2.0 */
/* The reader's handle: opening, what the footer says, and the check of everything in a file against its footer. */
#include "parquet/reader.h"

#include "parquet/bounds.h"

#define MAX_FOOTER_DEFAULT (INT64_C(64) << 20)
#define MAX_CHUNK_DEFAULT (INT64_C(256) << 20)

static int read_file_at(sl_parquet_reader *r, void *buf, size_t n, uint64_t offset, struct sl_err *err)
{
	if (r->memory == NULL)
		return r->read(buf, n, offset, err, r->read_ctx);
	memcpy(buf, r->memory + offset, n);
	return 0;
}

/* Both magics, the length of the footer, and the footer itself. */
static int read_footer(sl_parquet_reader *r, struct sl_err *err)
{
	char magic[PQ_MAGIC_BYTES];
	uint8_t tail[PQ_TAIL_BYTES];

	if (r->file_bytes < PQ_MAGIC_BYTES + PQ_TAIL_BYTES)
		return sl_err_set(err, SL_ECORRUPT, "parquet: not a Parquet file (only %llu bytes long)",
				  (unsigned long long)r->file_bytes);
	int rc = read_file_at(r, magic, sizeof(magic), 0, err);
	if (rc == 0)
		rc = read_file_at(r, tail, PQ_TAIL_BYTES, r->file_bytes - PQ_TAIL_BYTES, err);
	if (rc != 0)
		return sl_err_wrap(err, rc, "parquet");
	if (memcmp(magic, PQ_MAGIC, PQ_MAGIC_BYTES) != 0)
		return sl_err_set(err, SL_ECORRUPT, "parquet: not a Parquet file: it does not begin with %s", PQ_MAGIC);
	if (memcmp(tail + 4, PQ_MAGIC, PQ_MAGIC_BYTES) != 0)
		return sl_err_set(err, SL_ECORRUPT,
				  "parquet: the file does not end with %s: truncated or never finished", PQ_MAGIC);

	r->footer_bytes = sl__get32(tail);
	if (r->footer_bytes > r->file_bytes - PQ_TAIL_BYTES - PQ_MAGIC_BYTES)
		return sl_err_set(err, SL_ECORRUPT, "parquet: a footer of %zu bytes in a file of %llu", r->footer_bytes,
				  (unsigned long long)r->file_bytes);
	if (r->footer_bytes > r->max_footer_bytes)
		return sl_err_set(err, SL_ETOOBIG, "parquet: a footer of %zu bytes", r->footer_bytes);
	r->footer = sl__alloc(&r->env, r->footer_bytes + 1);
	r->text = sl__alloc(&r->env, r->footer_bytes + 1);
	if (r->footer == NULL || r->text == NULL)
		return sl_err_set(err, SL_ENOMEM, "parquet: out of memory for a footer of %zu bytes", r->footer_bytes);
	rc = read_file_at(r, r->footer, r->footer_bytes, r->file_bytes - PQ_TAIL_BYTES - r->footer_bytes, err);
	if (rc != 0)
		return sl_err_wrap(err, rc, "parquet: footer");
	return sl__footer_parse(r, err);
}

static int open_parquet_reader(sl_parquet_reader **out, const sl_parquet_reader *source,
			       const struct sl_parquet_reader_opts *opts, struct sl_err *err)
{
	struct sl_parquet_reader_opts o;
	struct sl_env env;

	sl__opts_copy(&o, sizeof(o), opts);
	int rc = sl__env_init(&env, o.env, err);
	if (rc != 0)
		return rc;
	if (o.max_footer_bytes < 0 || o.max_chunk_bytes < 0)
		return sl_err_set(err, SL_EINVAL, "parquet: max_footer_bytes or max_chunk_bytes is negative");
	sl_parquet_reader *r = sl__alloc(&env, sizeof(*r));
	if (r == NULL)
		return sl_err_set(err, SL_ENOMEM, "parquet: out of memory for a reader");
	*r = *source;
	r->env = env;
	r->max_footer_bytes = (uint64_t)(o.max_footer_bytes != 0 ? o.max_footer_bytes : MAX_FOOTER_DEFAULT);
	r->max_chunk_bytes = (uint64_t)(o.max_chunk_bytes != 0 ? o.max_chunk_bytes : MAX_CHUNK_DEFAULT);
	sl__buf_init(&r->raw, &r->env);
	sl__buf_init(&r->page, &r->env);
	sl__buf_init(&r->index, &r->env);
	sl__buf_init(&r->dictionary, &r->env);
	rc = read_footer(r, err);
	if (rc == 0 && (r->held = sl__calloc(&r->env, r->n_columns, sizeof(*r->held))) == NULL)
		rc = sl_err_set(err, SL_ENOMEM, "parquet: out of memory for %zu columns", r->n_columns);
	if (rc != 0) {
		sl_parquet_reader_close(r);
		return rc;
	}
	for (size_t i = 0; i < r->n_columns; i++) {
		sl__buf_init(&r->held[i].values, &r->env);
		sl__buf_init(&r->held[i].nulls, &r->env);
	}
	*out = r;
	return 0;
}

int sl_parquet_reader_open(sl_parquet_reader **out, sl_parquet_read_fn *read, void *ctx, uint64_t file_bytes,
			   const struct sl_parquet_reader_opts *opts, struct sl_err *err)
{
	sl_parquet_reader source = {.read = read, .read_ctx = ctx, .file_bytes = file_bytes};

	if (read == NULL)
		return sl_err_set(err, SL_EINVAL, "parquet: no read callback");
	return open_parquet_reader(out, &source, opts, err);
}

int sl_parquet_reader_open_memory(sl_parquet_reader **out, const void *data, size_t n,
				  const struct sl_parquet_reader_opts *opts, struct sl_err *err)
{
	sl_parquet_reader source = {.memory = n > 0 ? data : "", .file_bytes = n};

	return open_parquet_reader(out, &source, opts, err);
}

void sl_parquet_reader_close(sl_parquet_reader *r)
{
	if (r == NULL)
		return;
	struct sl_env env = r->env;
	for (size_t i = 0; r->held != NULL && i < r->n_columns; i++) {
		sl__held_release(r, &r->held[i]);
		sl__free(&env, r->held[i].pages);
		sl__buf_fini(&r->held[i].values);
		sl__buf_fini(&r->held[i].nulls);
	}
	sl__buf_fini(&r->raw);
	sl__buf_fini(&r->page);
	sl__buf_fini(&r->index);
	sl__buf_fini(&r->dictionary);
	(void)ZSTD_freeDCtx(r->zstd);
	sl__free(&env, r->held);
	sl__free(&env, r->chunks);
	sl__free(&env, r->metadata);
	sl__free(&env, r->columns);
	sl__free(&env, r->text);
	sl__free(&env, r->footer);
	sl__free(&env, r);
}

void sl_parquet_reader_get_info(const sl_parquet_reader *r, struct sl_parquet_info *out)
{
	const struct sl_parquet_info info = {.columns = r->columns,
					     .n_columns = r->n_columns,
					     .rows = r->rows,
					     .row_groups = r->n_groups,
					     .created_by = r->created_by,
					     .metadata = r->metadata,
					     .n_metadata = r->n_metadata,
					     .footer_bytes = r->footer_bytes};
	sl__result_copy(out, &info, sizeof(info));
}

static int check_place(const sl_parquet_reader *r, size_t group, size_t column, struct sl_err *err)
{
	if (group < r->n_groups && column < r->n_columns)
		return 0;
	return sl_err_set(err, SL_EINVAL, "parquet: no row group %zu with a column %zu", group, column);
}

int sl_parquet_reader_get_chunk(const sl_parquet_reader *r, size_t group, size_t column, struct sl_parquet_chunk *out,
				struct sl_err *err)
{
	int rc = check_place(r, group, column, err);

	if (rc != 0)
		return rc;
	const struct sl_parquet_chunk *info = &r->chunks[group * r->n_columns + column].info;
	sl__result_copy(out, info, sizeof(*info));
	return 0;
}

int sl_parquet_reader_read(sl_parquet_reader *r, size_t group, size_t column, struct sl_parquet_values *out,
			   struct sl_err *err)
{
	int rc = check_place(r, group, column, err);

	if (rc != 0)
		return rc;
	return sl__chunk_read(r, group, column, out, err);
}

/* ---- the check: what a reader that trusts bounds and counts relies on ---- */

/* The values of a chunk against what the footer says of it. */
static int check_chunk(sl_parquet_reader *r, size_t group, size_t column, struct sl_err *err)
{
	const struct sl_parquet_column *c = &r->columns[column];
	const struct sl_parquet_chunk *chunk = &r->chunks[group * r->n_columns + column].info;
	size_t entry = sl__pq_entry_bytes(c), n = (size_t)chunk->rows;
	struct sl_parquet_values v;
	struct sl__bounds bounds = {0};
	uint64_t nulls = 0;
	bool utf8 = true;
	int rc = sl__chunk_read(r, group, column, &v, err);

	if (rc != 0)
		return rc;

	/* Bounds as the writer takes them: without NULLs, which are counted. */
	if (v.nulls == NULL)
		sl__bounds_add(&bounds, c, v.values, n);
	for (size_t i = 0; v.nulls != NULL && i < n; i++) {
		if (v.nulls[i] != 0)
			nulls++;
		else
			sl__bounds_add(&bounds, c, (const char *)v.values + i * entry, 1);
	}
	for (size_t i = 0; c->kind == SL_PARQUET_STRING && utf8 && i < n; i++)
		utf8 = sl__pq_is_utf8(((const struct sl_parquet_bytes *)v.values)[i]);
	/* A NaN lies within no bounds. */
	struct sl__bounds outer = {0};
	bool hold = !chunk->has_bounds ||
		    (sl__bounds_add_encoded(&outer, c, chunk->min) && sl__bounds_add_encoded(&outer, c, chunk->max) &&
		     !bounds.nan && (!bounds.any || sl__bounds_contain(&outer, &bounds, c)));
	const char *why;
	if (chunk->nulls >= 0 && (uint64_t)chunk->nulls != nulls)
		why = "the number of NULLs differs from the footer";
	else if (!hold)
		why = "a value outside the footer's bounds";
	else if (!utf8)
		why = "a text that is not UTF-8";
	else
		return 0;
	return sl_err_set(err, SL_ECORRUPT, "parquet: row group %zu, column '%.60s': %s", group, c->name, why);
}

int sl_parquet_reader_check(sl_parquet_reader *r, struct sl_err *err)
{
	uint64_t at = PQ_MAGIC_BYTES;

	/* Chunks follow each other from the magic to the footer, without gaps: unread bytes could be anything. */
	for (size_t i = 0; i < r->n_groups * r->n_columns; i++) {
		const struct sl_parquet_chunk *c = &r->chunks[i].info;
		if (c->offset != at)
			return sl_err_set(err, SL_ECORRUPT,
					  "parquet: row group %zu, column '%.60s': not where the one before ends",
					  i / r->n_columns, r->columns[i % r->n_columns].name);
		at += c->bytes;
	}
	if (at != r->file_bytes - PQ_TAIL_BYTES - r->footer_bytes)
		return sl_err_set(err, SL_ECORRUPT, "parquet: bytes between the last row group and the footer");
	for (size_t g = 0; g < r->n_groups; g++)
		for (size_t c = 0; c < r->n_columns; c++) {
			int rc = check_chunk(r, g, c, err);
			if (rc != 0)
				return rc;
		}
	return 0;
}
