/* SPDX-License-Identifier: Apache-2.0 */
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

/* ---- options ---- */

static int check_range(const char *name, int64_t value, int64_t low, int64_t high, struct sl_err *err)
{
	if (value >= low && value <= high)
		return 0;
	return sl_err_set(err, SL_EINVAL, "parquet: %s %lld is not %lld to %lld", name, (long long)value,
			  (long long)low, (long long)high);
}

static int take_numbers(sl_parquet_writer *w, const struct sl_parquet_writer_opts *o, struct sl_err *err)
{
	w->zstd_level = o->zstd_level == SL_NONE ? 0 : (int)sl__or_default(o->zstd_level, LEVEL_DEFAULT);
	w->group_rows_max = sl__or_default(o->row_group_rows, GROUP_ROWS_DEFAULT);
	w->group_bytes_max = sl__or_default(o->row_group_bytes, GROUP_BYTES_DEFAULT);
	w->dictionary_bytes =
		o->dictionary_bytes == SL_NONE ? 0 : sl__or_default(o->dictionary_bytes, DICTIONARY_BYTES_DEFAULT);
	w->check_utf8 = o->check_utf8 != SL_OFF;
	int rc = check_range("zstd_level", w->zstd_level, 0, LEVEL_MAX, err);
	if (rc == 0)
		rc = check_range("row_group_rows", w->group_rows_max, 1, GROUP_ROWS_MAX, err);
	if (rc == 0)
		rc = check_range("row_group_bytes", w->group_bytes_max, 1, GROUP_BYTES_MAX, err);
	if (rc == 0)
		rc = check_range("dictionary_bytes", w->dictionary_bytes, 0, DICTIONARY_BYTES_MAX, err);
	return rc;
}

static int take_metadata(sl_parquet_writer *w, const struct sl_parquet_writer_opts *o, struct sl_err *err)
{
	size_t bytes = o->metadata_n * sizeof(*o->metadata);

	for (size_t i = 0; i < o->metadata_n; i++) {
		const struct sl_parquet_pair *p = &o->metadata[i];
		if (p->key == NULL)
			return sl_err_set(err, SL_EINVAL, "parquet: metadata %zu has no key", i + 1);
		bytes += strlen(p->key) + 1 + (p->value != NULL ? strlen(p->value) + 1 : 0);
	}
	w->metadata = sl__alloc(&w->env, bytes + 1);
	if (w->metadata == NULL)
		return sl_err_set(err, SL_ENOMEM, "parquet: no memory for metadata");
	char *text = (char *)(w->metadata + o->metadata_n);
	for (size_t i = 0; i < o->metadata_n; i++) {
		w->metadata[i].key = strcpy(text, o->metadata[i].key);
		text += strlen(text) + 1;
		w->metadata[i].value = NULL;
		if (o->metadata[i].value != NULL) {
			w->metadata[i].value = strcpy(text, o->metadata[i].value);
			text += strlen(text) + 1;
		}
	}
	w->metadata_n = o->metadata_n;
	return 0;
}

/* ---- life ---- */

static void init_buffers(sl_parquet_writer *w)
{
	struct sl__buf *all[] = {&w->page, &w->packed, &w->header, &w->dense, &w->index, &w->levels, &w->views};

	for (size_t i = 0; i < SL_COUNT(all); i++)
		sl__buf_init(all[i], &w->env);
	sl__dict_init(&w->dictionary, &w->env);
}

static int take_columns(sl_parquet_writer *w, const struct sl_parquet_column *columns, size_t n)
{
	w->columns = sl__pq_columns_copy(&w->env, columns, n);
	w->bytes_columns = sl__calloc(&w->env, n, sizeof(*w->bytes_columns));
	if (w->columns == NULL || w->bytes_columns == NULL)
		return SL_ENOMEM;
	w->columns_n = n;
	for (size_t i = 0; i < n; i++) {
		size_t plain = sl__pq_plain_bytes(&columns[i]);
		w->row_bytes += plain != 0 ? plain : 4;
		if (plain == 0)
			w->bytes_columns[w->bytes_columns_n++] = i;
	}
	return sl__pending_init(w);
}

static int make_zstd(sl_parquet_writer *w)
{
	if (w->zstd_level == 0)
		return 0;
	w->zstd = ZSTD_createCCtx();
	if (w->zstd == NULL || ZSTD_isError(ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_compressionLevel, w->zstd_level)))
		return SL_ENOMEM;
	return 0;
}

static int fill(sl_parquet_writer *w, const struct sl_parquet_column *columns, size_t n,
		const struct sl_parquet_writer_opts *o, struct sl_err *err)
{
	int rc = take_numbers(w, o, err);

	if (rc == 0)
		rc = take_metadata(w, o, err);
	if (rc == 0)
		rc = sl__pq_columns_check(&w->env, columns, n, err);
	if (rc != 0)
		return rc;
	w->created_by = sl__strdup(&w->env, o->created_by != NULL ? o->created_by : CREATED_BY);
	if (w->created_by == NULL || take_columns(w, columns, n) != 0 || make_zstd(w) != 0)
		return sl_err_set(err, SL_ENOMEM, "parquet: no memory for a writer");
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
		return sl_err_set(err, SL_ENOMEM, "parquet: no memory for a writer");
	w->env = env;
	w->write = write;
	w->write_ctx = ctx;
	init_buffers(w);
	rc = fill(w, columns, n, &o, err);
	if (rc != 0)
		sl_parquet_writer_free(w);
	else
		*out = w;
	return rc;
}

static void free_group(const sl_parquet_writer *w, struct sl__group *g)
{
	for (size_t i = 0; g->chunks != NULL && i < w->columns_n; i++)
		sl__free(&w->env, g->chunks[i].bounds);
	sl__free(&w->env, g->chunks);
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
	sl__pending_fini(w);
	for (size_t i = 0; i < w->groups_n; i++)
		free_group(w, &w->groups[i]);
	sl__free(&env, w->groups);
	sl__free(&env, w->columns);
	sl__free(&env, w->bytes_columns);
	sl__free(&env, w->metadata);
	sl__free(&env, w->created_by);
	(void)ZSTD_freeCCtx(w->zstd);
	sl__free(&env, w);
}

/* ---- row groups ---- */

static struct sl__group *new_group(sl_parquet_writer *w)
{
	if (w->groups_n == w->groups_cap) {
		size_t cap = w->groups_cap == 0 ? 8 : w->groups_cap * 2;
		struct sl__group *groups = sl__realloc(&w->env, w->groups, cap * sizeof(*groups));
		if (groups == NULL)
			return NULL;
		w->groups = groups;
		w->groups_cap = cap;
	}
	struct sl__group *g = &w->groups[w->groups_n];
	*g = (struct sl__group){.chunks = sl__calloc(&w->env, w->columns_n, sizeof(*g->chunks))};
	if (g->chunks == NULL)
		return NULL;
	w->groups_n++;
	return g;
}

static int write_magic(sl_parquet_writer *w, struct sl_err *err)
{
	return w->offset == 0 ? sl__writer_emit(w, PQ_MAGIC, PQ_MAGIC_BYTES, err) : 0;
}

/* Values of a column that begin at a row. */
static struct sl_parquet_values slice(const struct sl_parquet_column *c, const struct sl_parquet_values *v, size_t from)
{
	return (struct sl_parquet_values){(const char *)v->values + from * sl__pq_entry_bytes(c),
					  v->nulls != NULL ? v->nulls + from : NULL};
}

/* Encode the group from the caller's arrays at `from`, or from pending when columns is NULL. */
static int write_group(sl_parquet_writer *w, const struct sl_parquet_values *columns, size_t from, struct sl_err *err)
{
	int rc = write_magic(w, err);
	if (rc != 0)
		return rc;
	struct sl__group *g = new_group(w);
	if (g == NULL)
		return sl_err_set(err, SL_ENOMEM, "parquet: no memory for a row group");
	g->rows = w->group_rows;
	g->offset = (int64_t)w->offset;
	for (size_t i = 0; i < w->columns_n && rc == 0; i++) {
		struct sl_parquet_values v;
		if (columns != NULL)
			v = slice(&w->columns[i], &columns[i], from);
		else if (sl__pending_get(w, i, &v) != 0)
			return sl_err_set(err, SL_ENOMEM, "parquet: no memory for the rows of a group");
		rc = sl__chunk_write(w, i, &v, (size_t)g->rows, &g->chunks[i], err);
		g->bytes += g->chunks[i].bytes;
		g->uncompressed_bytes += g->chunks[i].uncompressed_bytes;
	}
	w->group_rows = w->group_bytes = 0;
	return rc;
}

/* Count rows from `from` on into the group until it is full or n are counted. Returns how many. */
static size_t fill_group(sl_parquet_writer *w, const struct sl_parquet_values *columns, size_t from, size_t n)
{
	size_t i = 0;

	for (; i < n && w->group_rows < w->group_rows_max && w->group_bytes < w->group_bytes_max; i++) {
		size_t bytes = w->row_bytes, row = from + i;
		for (size_t k = 0; k < w->bytes_columns_n; k++) {
			const struct sl_parquet_values *v = &columns[w->bytes_columns[k]];
			if (v->nulls == NULL || v->nulls[row] == 0)
				bytes += ((const struct sl_parquet_bytes *)v->values)[row].len;
		}
		w->group_bytes += (int64_t)bytes;
		w->group_rows++;
	}
	return i;
}

static bool group_is_full(const sl_parquet_writer *w)
{
	return w->group_rows >= w->group_rows_max || w->group_bytes >= w->group_bytes_max;
}

/* ---- rows ---- */

static int check_nulls(const sl_parquet_writer *w, const struct sl_parquet_column *c, const uint8_t *nulls, size_t n,
		       struct sl_err *err)
{
	for (size_t i = 0; i < n; i++)
		if (nulls[i] != 0)
			return sl_err_set(err, SL_EDATA,
					  "parquet: row %llu, column '%.100s': NULL in a required column",
					  (unsigned long long)(w->rows + i), c->name);
	return 0;
}

static int check_lengths(const sl_parquet_writer *w, const struct sl_parquet_column *c,
			 const struct sl_parquet_values *v, size_t n, struct sl_err *err)
{
	const struct sl_parquet_bytes *bytes = v->values;

	for (size_t i = 0; i < n; i++)
		if (SL_UNLIKELY(bytes[i].len >= VALUE_MAX) && (v->nulls == NULL || v->nulls[i] == 0))
			return sl_err_set(err, SL_ETOOBIG, "parquet: row %llu, column '%.100s': %u bytes",
					  (unsigned long long)(w->rows + i), c->name, bytes[i].len);
	return 0;
}

static int check_rows(const sl_parquet_writer *w, const struct sl_parquet_values *columns, size_t n, struct sl_err *err)
{
	int rc = 0;

	if (n > ROWS_MAX || w->rows + n > ROWS_MAX)
		return sl_err_set(err, SL_ETOOBIG, "parquet: more than %d rows", ROWS_MAX);
	for (size_t i = 0; i < w->columns_n && rc == 0; i++) {
		const struct sl_parquet_column *c = &w->columns[i];
		if (columns[i].values == NULL)
			return sl_err_set(err, SL_EINVAL, "parquet: column '%.100s' has no values", c->name);
		if (!c->nullable && columns[i].nulls != NULL)
			rc = check_nulls(w, c, columns[i].nulls, n, err);
		if (rc == 0 && sl__pq_physical(c) == PQ_BYTE_ARRAY)
			rc = check_lengths(w, c, &columns[i], n, err);
	}
	return rc;
}

static int put_rows(sl_parquet_writer *w, const struct sl_parquet_values *columns, size_t n, struct sl_err *err)
{
	int rc = check_rows(w, columns, n, err);

	for (size_t at = 0; at < n && rc == 0;) {
		size_t m = fill_group(w, columns, at, n - at);
		bool full = group_is_full(w);
		w->rows += m;
		if (full && !w->waiting) {
			rc = write_group(w, columns, at, err);
		} else if (sl__pending_add(w, columns, at, m) != 0) {
			rc = sl_err_set(err, SL_ENOMEM, "parquet: no memory for rows that wait");
		} else if (full) {
			rc = write_group(w, NULL, 0, err);
			sl__pending_clear(w);
		}
		at += m;
	}
	return rc;
}

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
	w->failed = put_rows(w, columns, n_rows, err);
	return w->failed;
}

int sl_parquet_writer_finish(sl_parquet_writer *w, struct sl_err *err)
{
	int rc = usable(w, err);

	if (rc != 0)
		return rc;
	if (w->group_rows > 0)
		rc = write_group(w, NULL, 0, err);
	if (rc == 0)
		rc = write_magic(w, err);
	if (rc == 0)
		rc = sl__footer_write(w, err);
	w->failed = rc;
	w->finished = rc == 0;
	return rc;
}

void sl_parquet_writer_stats(const sl_parquet_writer *w, struct sl_parquet_writer_stats *out)
{
	*out = (struct sl_parquet_writer_stats){.rows = w->rows, .bytes = w->offset, .row_groups = w->groups_n};
}
