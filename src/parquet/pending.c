/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that wait for their row group to be full: copies, by column. */
#include "parquet/writer.h"

int sl__pending_init(sl_parquet_writer *w)
{
	w->pending = sl__calloc(&w->env, w->columns_n, sizeof(*w->pending));
	if (w->pending == NULL)
		return SL_ENOMEM;
	for (size_t i = 0; i < w->columns_n; i++) {
		sl__buf_init(&w->pending[i].values, &w->env);
		sl__buf_init(&w->pending[i].bytes, &w->env);
		sl__buf_init(&w->pending[i].nulls, &w->env);
	}
	return 0;
}

void sl__pending_fini(sl_parquet_writer *w)
{
	for (size_t i = 0; w->pending != NULL && i < w->columns_n; i++) {
		sl__buf_fini(&w->pending[i].values);
		sl__buf_fini(&w->pending[i].bytes);
		sl__buf_fini(&w->pending[i].nulls);
	}
	sl__free(&w->env, w->pending);
	w->pending = NULL;
}

void sl__pending_clear(sl_parquet_writer *w)
{
	for (size_t i = 0; i < w->columns_n; i++) {
		sl__buf_clear(&w->pending[i].values);
		sl__buf_clear(&w->pending[i].bytes);
		sl__buf_clear(&w->pending[i].nulls);
	}
	w->waiting = false;
}

/* A NULL row leaves no bytes: what its entry points to may be anything. */
static int add_bytes(struct sl__pending *p, const struct sl_parquet_bytes *v, const uint8_t *nulls, size_t n)
{
	if (sl__buf_reserve(&p->values, n * sizeof(uint32_t)) != 0)
		return SL_ENOMEM;
	for (size_t i = 0; i < n; i++) {
		uint32_t len = nulls != NULL && nulls[i] != 0 ? 0 : v[i].len;
		(void)sl__buf_append(&p->values, &len, sizeof(len));
		(void)sl__buf_append(&p->bytes, v[i].data, len);
	}
	return p->bytes.failed;
}

static int add_nulls(struct sl__pending *p, const uint8_t *nulls, size_t n)
{
	if (sl__buf_reserve(&p->nulls, n) != 0)
		return SL_ENOMEM;
	if (nulls != NULL)
		memcpy(p->nulls.data + p->nulls.len, nulls, n);
	else
		memset(p->nulls.data + p->nulls.len, 0, n);
	p->nulls.len += n;
	return 0;
}

int sl__pending_add(sl_parquet_writer *w, const struct sl_parquet_values *columns, size_t from, size_t n)
{
	w->waiting = true;
	for (size_t i = 0; i < w->columns_n; i++) {
		struct sl__pending *p = &w->pending[i];
		const struct sl_parquet_column *c = &w->columns[i];
		size_t entry = sl__pq_entry_bytes(c);
		const uint8_t *nulls = columns[i].nulls != NULL ? columns[i].nulls + from : NULL;
		const char *values = (const char *)columns[i].values + from * entry;
		int rc = 0;

		if (sl__pq_physical(c) == PQ_BYTE_ARRAY)
			rc = add_bytes(p, (const struct sl_parquet_bytes *)(const void *)values, nulls, n);
		else
			rc = sl__buf_append(&p->values, values, n * entry);
		if (rc == 0 && c->nullable)
			rc = add_nulls(p, nulls, n);
		if (rc != 0)
			return rc;
	}
	return 0;
}

int sl__pending_get(sl_parquet_writer *w, size_t column, struct sl_parquet_values *out)
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
