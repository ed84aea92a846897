/* SPDX-License-Identifier: Apache-2.0 */
#include "parquet/reader.h"

#define MAX_FOOTER_DEFAULT (INT64_C(64) << 20)
#define MAX_CHUNK_DEFAULT (INT64_C(256) << 20)

static int read_at(sl_parquet_reader *r, void *buf, size_t n, uint64_t offset, struct sl_err *err)
{
	if (r->memory == NULL)
		return r->read(buf, n, offset, err, r->read_ctx);
	memcpy(buf, r->memory + offset, n);
	return 0;
}

static int check_ends(sl_parquet_reader *r, uint8_t tail[PQ_TAIL_BYTES], struct sl_err *err)
{
	char magic[PQ_MAGIC_BYTES];

	if (r->file_bytes < PQ_MAGIC_BYTES + PQ_TAIL_BYTES)
		return sl_err_set(err, SL_ECORRUPT, "parquet: %llu bytes are no Parquet file",
				  (unsigned long long)r->file_bytes);
	int rc = read_at(r, magic, sizeof(magic), 0, err);
	if (rc == 0)
		rc = read_at(r, tail, PQ_TAIL_BYTES, r->file_bytes - PQ_TAIL_BYTES, err);
	if (rc != 0)
		return sl_err_wrap(err, rc, "parquet");
	if (memcmp(magic, PQ_MAGIC, PQ_MAGIC_BYTES) != 0)
		return sl_err_set(err, SL_ECORRUPT, "parquet: no Parquet file: it does not begin with %s", PQ_MAGIC);
	if (memcmp(tail + 4, PQ_MAGIC, PQ_MAGIC_BYTES) != 0)
		return sl_err_set(err, SL_ECORRUPT, "parquet: it does not end with %s: cut off, or never finished",
				  PQ_MAGIC);
	return 0;
}

static int read_footer(sl_parquet_reader *r, struct sl_err *err)
{
	uint8_t tail[PQ_TAIL_BYTES];
	int rc = check_ends(r, tail, err);

	if (rc != 0)
		return rc;
	r->footer_bytes = sl__get32(tail);
	if (r->footer_bytes > r->file_bytes - PQ_TAIL_BYTES - PQ_MAGIC_BYTES)
		return sl_err_set(err, SL_ECORRUPT, "parquet: a footer of %zu bytes in a file of %llu", r->footer_bytes,
				  (unsigned long long)r->file_bytes);
	if (r->footer_bytes > r->max_footer_bytes)
		return sl_err_set(err, SL_ETOOBIG, "parquet: a footer of %zu bytes", r->footer_bytes);
	r->footer = sl__alloc(&r->env, r->footer_bytes + 1);
	r->text = sl__alloc(&r->env, r->footer_bytes + 1);
	if (r->footer == NULL || r->text == NULL)
		return sl_err_set(err, SL_ENOMEM, "parquet: no memory for a footer of %zu bytes", r->footer_bytes);
	rc = read_at(r, r->footer, r->footer_bytes, r->file_bytes - PQ_TAIL_BYTES - r->footer_bytes, err);
	return rc != 0 ? sl_err_wrap(err, rc, "parquet: footer") : sl__footer_parse(r, err);
}

static int make_held(sl_parquet_reader *r, struct sl_err *err)
{
	r->held = sl__calloc(&r->env, r->columns_n, sizeof(*r->held));
	if (r->held == NULL)
		return sl_err_set(err, SL_ENOMEM, "parquet: no memory for %zu columns", r->columns_n);
	for (size_t i = 0; i < r->columns_n; i++) {
		sl__buf_init(&r->held[i].values, &r->env);
		sl__buf_init(&r->held[i].nulls, &r->env);
	}
	return 0;
}

static int take_limits(sl_parquet_reader *r, const struct sl_parquet_reader_opts *o, struct sl_err *err)
{
	if (o->max_footer_bytes < 0 || o->max_chunk_bytes < 0)
		return sl_err_set(err, SL_EINVAL, "parquet: max_footer_bytes or max_chunk_bytes is negative");
	r->max_footer_bytes = (uint64_t)(o->max_footer_bytes != 0 ? o->max_footer_bytes : MAX_FOOTER_DEFAULT);
	r->max_chunk_bytes = (uint64_t)(o->max_chunk_bytes != 0 ? o->max_chunk_bytes : MAX_CHUNK_DEFAULT);
	return 0;
}

static int open_reader(sl_parquet_reader **out, const sl_parquet_reader *source,
		       const struct sl_parquet_reader_opts *opts, struct sl_err *err)
{
	struct sl_parquet_reader_opts o;
	struct sl_env env;

	sl__opts_copy(&o, sizeof(o), opts);
	int rc = sl__env_init(&env, o.env, err);
	if (rc != 0)
		return rc;
	sl_parquet_reader *r = sl__alloc(&env, sizeof(*r));
	if (r == NULL)
		return sl_err_set(err, SL_ENOMEM, "parquet: no memory for a reader");
	*r = *source;
	r->env = env;
	sl__buf_init(&r->raw, &r->env);
	sl__buf_init(&r->page, &r->env);
	sl__buf_init(&r->index, &r->env);
	sl__buf_init(&r->dictionary, &r->env);
	rc = take_limits(r, &o, err);
	if (rc == 0)
		rc = read_footer(r, err);
	if (rc == 0)
		rc = make_held(r, err);
	if (rc != 0)
		sl_parquet_reader_free(r);
	else
		*out = r;
	return rc;
}

int sl_parquet_reader_open(sl_parquet_reader **out, sl_parquet_read_fn *read, void *ctx, uint64_t file_bytes,
			   const struct sl_parquet_reader_opts *opts, struct sl_err *err)
{
	sl_parquet_reader source = {.read = read, .read_ctx = ctx, .file_bytes = file_bytes};

	if (read == NULL)
		return sl_err_set(err, SL_EINVAL, "parquet: no read callback");
	return open_reader(out, &source, opts, err);
}

int sl_parquet_reader_open_memory(sl_parquet_reader **out, const void *data, size_t n,
				  const struct sl_parquet_reader_opts *opts, struct sl_err *err)
{
	sl_parquet_reader source = {.memory = n > 0 ? data : "", .file_bytes = n};

	return open_reader(out, &source, opts, err);
}

void sl_parquet_reader_free(sl_parquet_reader *r)
{
	if (r == NULL)
		return;
	struct sl_env env = r->env;
	for (size_t i = 0; r->held != NULL && i < r->columns_n; i++) {
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

void sl_parquet_reader_info(const sl_parquet_reader *r, struct sl_parquet_info *out)
{
	*out = (struct sl_parquet_info){.columns = r->columns,
					.columns_n = r->columns_n,
					.rows = r->rows,
					.row_groups = r->groups_n,
					.created_by = r->created_by,
					.metadata = r->metadata,
					.metadata_n = r->metadata_n,
					.footer_bytes = r->footer_bytes};
}

static int check_place(const sl_parquet_reader *r, size_t group, size_t column, struct sl_err *err)
{
	if (group < r->groups_n && column < r->columns_n)
		return 0;
	return sl_err_set(err, SL_EINVAL, "parquet: no row group %zu with a column %zu", group, column);
}

int sl_parquet_reader_chunk(const sl_parquet_reader *r, size_t group, size_t column, struct sl_parquet_chunk *out,
			    struct sl_err *err)
{
	int rc = check_place(r, group, column, err);

	if (rc == 0)
		*out = r->chunks[group * r->columns_n + column].told;
	return rc;
}

int sl_parquet_reader_read(sl_parquet_reader *r, size_t group, size_t column, struct sl_parquet_values *out,
			   struct sl_err *err)
{
	int rc = check_place(r, group, column, err);

	return rc == 0 ? sl__chunk_read(r, group, column, out, err) : rc;
}
