/* SPDX-License-Identifier: Apache-2.0 */
/* The writer's handle: options, row groups, rows. writer.h has the invariants. */
#include "parquet/writer.h"

#include "base/options.h"

#include <sluice/version.h>

#define LEVEL_DEFAULT 3
#define LEVEL_MAX 19
#define GROUP_ROWS_DEFAULT 122880
#define GROUP_ROWS_MAX (1 << 24)
#define GROUP_BYTES_DEFAULT (24 << 20)
#define GROUP_BYTES_MAX (INT64_C(1) << 31)
#define DICTIONARY_BYTES_DEFAULT (4 << 20)
#define DICTIONARY_BYTES_MAX (INT64_C(1) << 30)
#define ROWS_MAX INT32_MAX
#define VALUE_MAX (1u << 30)
#define CREATED_BY "sluice version " SL_VERSION " (build 0)"

int sl__writer_emit(sl_parquet_writer *w, const void *bytes, size_t n, struct sl_err *err)
{
	int rc = w->write(bytes, n, err, w->write_ctx);

	if (rc == 0)
		w->offset += n;
	return rc;
}

/* ---- options ---- */

/* The options with their defaults, each within its range. */
static int take_writer_options(sl_parquet_writer *w, const struct sl_parquet_writer_opts *o, struct sl_err *err)
{
	w->zstd_level = o->zstd_level == SL_NONE ? 0 : (int)sl__or_default(o->zstd_level, LEVEL_DEFAULT);
	w->group_rows_max = sl__or_default(o->row_group_rows, GROUP_ROWS_DEFAULT);
	w->group_bytes_max = sl__or_default(o->row_group_bytes, GROUP_BYTES_DEFAULT);
	w->dictionary_bytes =
		o->dictionary_bytes == SL_NONE ? 0 : sl__or_default(o->dictionary_bytes, DICTIONARY_BYTES_DEFAULT);
	w->check_utf8 = o->check_utf8 != SL_OFF;
	const struct sl__range rows[] = {
		{"zstd_level", w->zstd_level, 0, LEVEL_MAX},
		{"row_group_rows", w->group_rows_max, 1, GROUP_ROWS_MAX},
		{"row_group_bytes", w->group_bytes_max, 1, GROUP_BYTES_MAX},
		{"dictionary_bytes", w->dictionary_bytes, 0, DICTIONARY_BYTES_MAX},
	};
	for (const struct sl__range *r = rows; r < rows + SL_COUNT(rows); r++)
		if (r->value < r->least || r->value > r->most)
			return sl_err_set(err, SL_EINVAL, "parquet: %s is %lld; give %lld to %lld", r->name,
					  (long long)r->value, (long long)r->least, (long long)r->most);
	return 0;
}

/* Copies of the pairs, in one piece of memory: the array, then the texts. */
static int take_metadata(sl_parquet_writer *w, const struct sl_parquet_writer_opts *o, struct sl_err *err)
{
	size_t bytes = o->n_metadata * sizeof(*o->metadata);

	for (size_t i = 0; i < o->n_metadata; i++) {
		const struct sl_parquet_pair *p = &o->metadata[i];
		if (p->key == NULL)
			return sl_err_set(err, SL_EINVAL, "parquet: metadata %zu: no key", i + 1);
		bytes += strlen(p->key) + 1 + (p->value != NULL ? strlen(p->value) + 1 : 0);
	}
	w->metadata = sl__alloc(&w->env, bytes + 1);
	if (w->metadata == NULL)
		return sl_err_set(err, SL_ENOMEM, "parquet: out of memory for metadata");
	char *text = (char *)(w->metadata + o->n_metadata);
	for (size_t i = 0; i < o->n_metadata; i++) {
		w->metadata[i].key = strcpy(text, o->metadata[i].key);
		text += strlen(text) + 1;
		w->metadata[i].value = NULL;
		if (o->metadata[i].value != NULL) {
			w->metadata[i].value = strcpy(text, o->metadata[i].value);
			text += strlen(text) + 1;
		}
	}
	w->n_metadata = o->n_metadata;
	return 0;
}

/* ---- rows that wait for their row group to be full: copies, by column ---- */

/* Copy n rows that begin at `from`. SL_ENOMEM. */
static int pending_add(sl_parquet_writer *w, const struct sl_parquet_values *columns, size_t from, size_t n)
{
	w->waiting = true;
	for (size_t i = 0; i < w->n_columns; i++) {
		struct sl__pending *p = &w->pending[i];
		const struct sl_parquet_column *c = &w->columns[i];
		size_t entry = sl__pq_entry_bytes(c);
		const uint8_t *nulls = columns[i].nulls != NULL ? columns[i].nulls + from : NULL;
		const char *values = (const char *)columns[i].values + from * entry;

		if (sl__pq_physical(c) == PQ_BYTE_ARRAY) {
			const struct sl_parquet_bytes *v = (const struct sl_parquet_bytes *)(const void *)values;
			(void)sl__buf_reserve(&p->values, n * sizeof(uint32_t));
			for (size_t k = 0; k < n; k++) { /* a NULL row leaves no bytes: its entry may be anything */
				uint32_t len = nulls != NULL && nulls[k] != 0 ? 0 : v[k].len;
				(void)sl__buf_append(&p->values, &len, sizeof(len));
				(void)sl__buf_append(&p->bytes, v[k].data, len);
			}
		} else {
			(void)sl__buf_append(&p->values, values, n * entry);
		}
		if (c->nullable && sl__buf_reserve(&p->nulls, n) == 0) {
			if (nulls != NULL)
				memcpy(p->nulls.data + p->nulls.len, nulls, n);
			else
				memset(p->nulls.data + p->nulls.len, 0, n);
			p->nulls.len += n;
		}
		if (p->values.failed != 0 || p->bytes.failed != 0 || p->nulls.failed != 0)
			return SL_ENOMEM;
	}
	return 0;
}

/* The rows of a column; byte arrays are laid out in w->views. SL_ENOMEM. */
static int pending_get(sl_parquet_writer *w, size_t column, struct sl_parquet_values *out)
{
	const struct sl_parquet_column *c = &w->columns[column];
	struct sl__pending *p = &w->pending[column];

	out->nulls = c->nullable ? (const uint8_t *)p->nulls.data : NULL;
	out->values = p->values.data;
	if (sl__pq_physical(c) != PQ_BYTE_ARRAY)
		return 0;
	size_t n = p->values.len / sizeof(uint32_t);
	const uint32_t *lengths = (const uint32_t *)(const void *)p->values.data;
	const char *bytes = p->bytes.data;
	sl__buf_clear(&w->views);
	if (sl__buf_reserve(&w->views, n * sizeof(struct sl_parquet_bytes)) != 0)
		return SL_ENOMEM;
	struct sl_parquet_bytes *v = (struct sl_parquet_bytes *)(void *)w->views.data;
	for (size_t i = 0; i < n; i++) {
		v[i] = (struct sl_parquet_bytes){bytes, lengths[i]};
		bytes = bytes != NULL ? bytes + lengths[i] : NULL;
	}
	out->values = v;
	return 0;
}

/* ---- the handle ---- */

/* Copies of the columns, the size of a row, and empty buffers for rows that wait. */
static int copy_columns(sl_parquet_writer *w, const struct sl_parquet_column *columns, size_t n)
{
	w->columns = sl__pq_columns_copy(&w->env, columns, n);
	w->bytes_columns = sl__calloc(&w->env, n, sizeof(*w->bytes_columns));
	if (w->columns == NULL || w->bytes_columns == NULL)
		return SL_ENOMEM;
	w->n_columns = n;
	for (size_t i = 0; i < n; i++) {
		size_t plain = sl__pq_plain_bytes(&columns[i]);
		w->row_bytes += plain != 0 ? plain : 4;
		if (plain == 0)
			w->bytes_columns[w->n_bytes_columns++] = i;
	}
	w->pending = sl__calloc(&w->env, w->n_columns, sizeof(*w->pending));
	if (w->pending == NULL)
		return SL_ENOMEM;
	for (size_t i = 0; i < w->n_columns; i++) {
		sl__buf_init(&w->pending[i].values, &w->env);
		sl__buf_init(&w->pending[i].bytes, &w->env);
		sl__buf_init(&w->pending[i].nulls, &w->env);
	}
	return 0;
}

int sl_parquet_writer_new(sl_parquet_writer **out, const struct sl_parquet_column *columns, size_t n,
			  const struct sl_parquet_writer_opts *opts, sl_parquet_write_fn *write, void *ctx,
			  struct sl_err *err)
{
	struct sl_parquet_writer_opts o;
	struct sl_env env;

	sl__opts_copy(&o, sizeof(o), opts);
	int rc = sl__env_init(&env, o.env, err);
	if (rc != 0)
		return rc;
	if (write == NULL)
		return sl_err_set(err, SL_EINVAL, "parquet: no write callback");
	sl_parquet_writer *w = sl__calloc(&env, 1, sizeof(*w));
	if (w == NULL)
		return sl_err_set(err, SL_ENOMEM, "parquet: out of memory for a writer");
	w->env = env;
	w->write = write;
	w->write_ctx = ctx;
	struct sl__buf *all[] = {&w->page, &w->packed, &w->header, &w->dense, &w->index, &w->levels, &w->views};
	for (size_t i = 0; i < SL_COUNT(all); i++)
		sl__buf_init(all[i], &w->env);
	sl__dict_init(&w->dictionary, &w->env);

	if ((rc = take_writer_options(w, &o, err)) != 0)
		goto fail;
	if ((rc = take_metadata(w, &o, err)) != 0)
		goto fail;
	if ((rc = sl__pq_columns_check(&w->env, columns, n, err)) != 0)
		goto fail;
	w->created_by = sl__strdup(&w->env, o.created_by != NULL ? o.created_by : CREATED_BY);
	bool made = w->created_by != NULL && copy_columns(w, columns, n) == 0;
	if (made && w->zstd_level != 0) {
		w->zstd = ZSTD_createCCtx();
		made = w->zstd != NULL &&
		       !ZSTD_isError(ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_compressionLevel, w->zstd_level));
	}
	if (made) {
		*out = w;
		return 0;
	}
	rc = sl_err_set(err, SL_ENOMEM, "parquet: out of memory for a writer");
fail:
	sl_parquet_writer_free(w);
	return rc;
}

void sl_parquet_writer_free(sl_parquet_writer *w)
{
	if (w == NULL)
		return;
	struct sl_env env = w->env;
	struct sl__buf *all[] = {&w->page, &w->packed, &w->header, &w->dense, &w->index, &w->levels, &w->views};
	for (size_t i = 0; i < SL_COUNT(all); i++)
		sl__buf_fini(all[i]);
	sl__dict_fini(&w->dictionary);
	for (size_t i = 0; w->pending != NULL && i < w->n_columns; i++) {
		sl__buf_fini(&w->pending[i].values);
		sl__buf_fini(&w->pending[i].bytes);
		sl__buf_fini(&w->pending[i].nulls);
	}
	sl__free(&w->env, w->pending);
	w->pending = NULL;
	for (size_t g = 0; g < w->n_groups; g++) {
		struct sl__chunk *chunks = w->groups[g].chunks;
		for (size_t i = 0; chunks != NULL && i < w->n_columns; i++)
			sl__free(&env, chunks[i].bounds);
		sl__free(&env, chunks);
	}
	sl__free(&env, w->groups);
	sl__free(&env, w->columns);
	sl__free(&env, w->bytes_columns);
	sl__free(&env, w->metadata);
	sl__free(&env, w->created_by);
	(void)ZSTD_freeCCtx(w->zstd);
	sl__free(&env, w);
}

/* ---- row groups ---- */

/* Encode the group from the caller's arrays at `from`, or from pending when columns is NULL. */
static int write_row_group(sl_parquet_writer *w, const struct sl_parquet_values *columns, size_t from,
			   struct sl_err *err)
{
	int rc = w->offset == 0 ? sl__writer_emit(w, PQ_MAGIC, PQ_MAGIC_BYTES, err) : 0;
	if (rc != 0)
		return rc;
	struct sl__group *groups = sl__grow(&w->env, w->groups, w->n_groups, &w->groups_cap, sizeof(*groups));
	if (groups == NULL)
		return sl_err_set(err, SL_ENOMEM, "parquet: out of memory for a row group");
	w->groups = groups;
	struct sl__group *g = &w->groups[w->n_groups];
	*g = (struct sl__group){.rows = w->group_rows,
				.offset = (int64_t)w->offset,
				.chunks = sl__calloc(&w->env, w->n_columns, sizeof(*g->chunks))};
	if (g->chunks == NULL)
		return sl_err_set(err, SL_ENOMEM, "parquet: out of memory for a row group");
	w->n_groups++;

	for (size_t i = 0; i < w->n_columns && rc == 0; i++) {
		const struct sl_parquet_values *c = columns != NULL ? &columns[i] : NULL;
		struct sl_parquet_values v;
		if (c != NULL) {
			v.values = (const char *)c->values + from * sl__pq_entry_bytes(&w->columns[i]);
			v.nulls = c->nulls != NULL ? c->nulls + from : NULL;
		} else if (pending_get(w, i, &v) != 0) {
			return sl_err_set(err, SL_ENOMEM, "parquet: out of memory for the rows of a group");
		}
		rc = sl__chunk_write(w, i, &v, g, err);
		g->bytes += g->chunks[i].bytes;
		g->uncompressed_bytes += g->chunks[i].uncompressed_bytes;
	}
	w->group_rows = w->group_bytes = 0;
	return rc;
}

/* ---- rows ---- */

/* What a caller must not put: NULL in a required column, values that are too long, too many rows. */
static int check_rows(const sl_parquet_writer *w, const struct sl_parquet_values *columns, size_t n, struct sl_err *err)
{
	if (n > ROWS_MAX || w->rows + n > ROWS_MAX)
		return sl_err_set(err, SL_ETOOBIG, "parquet: more than %d rows", ROWS_MAX);
	for (size_t i = 0; i < w->n_columns; i++) {
		const struct sl_parquet_column *c = &w->columns[i];
		const struct sl_parquet_bytes *bytes = columns[i].values;
		const uint8_t *nulls = columns[i].nulls;
		if (columns[i].values == NULL)
			return sl_err_set(err, SL_EINVAL, "parquet: column '%.100s' has no values", c->name);
		for (size_t k = 0; !c->nullable && nulls != NULL && k < n; k++)
			if (nulls[k] != 0)
				return sl_err_set(err, SL_EDATA,
						  "parquet: row %llu, column '%.100s': NULL in a required column",
						  (unsigned long long)(w->rows + k), c->name);
		if (sl__pq_physical(c) != PQ_BYTE_ARRAY)
			continue;
		for (size_t k = 0; k < n; k++)
			if (SL_UNLIKELY(bytes[k].len >= VALUE_MAX) && (nulls == NULL || nulls[k] == 0))
				return sl_err_set(err, SL_ETOOBIG, "parquet: row %llu, column '%.100s': %u bytes",
						  (unsigned long long)(w->rows + k), c->name, bytes[k].len);
	}
	return 0;
}

/* A writer that has failed, or whose file is finished, takes nothing more. */
static int usable(const sl_parquet_writer *w, struct sl_err *err)
{
	if (w->failed != 0)
		return sl_err_set(err, SL_EPOISONED, "parquet: the writer failed before: %s", sl_err_text(w->failed));
	return w->finished ? sl_err_set(err, SL_ECLOSED, "parquet: the file is finished") : 0;
}

int sl_parquet_writer_put(sl_parquet_writer *w, const struct sl_parquet_values *columns, size_t n_rows,
			  struct sl_err *err)
{
	int rc = usable(w, err);

	if (rc != 0 || n_rows == 0)
		return rc;
	rc = check_rows(w, columns, n_rows, err);
	for (size_t at = 0; at < n_rows && rc == 0;) {
		size_t m = 0;
		/* Count rows into the group until it is full. */
		for (; at + m < n_rows && w->group_rows < w->group_rows_max && w->group_bytes < w->group_bytes_max;
		     m++) {
			size_t bytes = w->row_bytes, row = at + m;
			for (size_t k = 0; k < w->n_bytes_columns; k++) {
				const struct sl_parquet_values *v = &columns[w->bytes_columns[k]];
				if (v->nulls == NULL || v->nulls[row] == 0)
					bytes += ((const struct sl_parquet_bytes *)v->values)[row].len;
			}
			w->group_bytes += (int64_t)bytes;
			w->group_rows++;
		}
		bool full = w->group_rows >= w->group_rows_max || w->group_bytes >= w->group_bytes_max;
		w->rows += m;
		if (full && !w->waiting) {
			rc = write_row_group(w, columns, at, err);
		} else if (pending_add(w, columns, at, m) != 0) {
			rc = sl_err_set(err, SL_ENOMEM, "parquet: out of memory for waiting rows");
		} else if (full) {
			rc = write_row_group(w, NULL, 0, err);
			for (size_t i = 0; i < w->n_columns; i++) {
				sl__buf_clear(&w->pending[i].values);
				sl__buf_clear(&w->pending[i].bytes);
				sl__buf_clear(&w->pending[i].nulls);
			}
			w->waiting = false;
		}
		at += m;
	}
	w->failed = rc;
	return rc;
}

int sl_parquet_writer_finish(sl_parquet_writer *w, struct sl_err *err)
{
	int rc = usable(w, err);

	if (rc != 0)
		return rc;
	if (w->group_rows > 0)
		rc = write_row_group(w, NULL, 0, err);
	else if (w->offset == 0)
		rc = sl__writer_emit(w, PQ_MAGIC, PQ_MAGIC_BYTES, err);
	if (rc == 0)
		rc = sl__footer_write(w, err);
	w->failed = rc;
	w->finished = rc == 0;
	return rc;
}

void sl_parquet_writer_get_stats(const sl_parquet_writer *w, struct sl_parquet_writer_stats *out)
{
	const struct sl_parquet_writer_stats s = {.rows = w->rows, .bytes = w->offset, .row_groups = w->n_groups};
	sl__result_copy(out, &s, sizeof(s));
}
