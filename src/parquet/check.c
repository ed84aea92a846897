/* SPDX-License-Identifier: Apache-2.0 */
/* Everything in a file against its footer: what a reader that trusts bounds and counts relies on. */
#include "parquet/bounds.h"
#include "parquet/reader.h"
#include "parquet/text.h"

/* Values as the writer's bounds take them: without NULLs, which are counted. */
static uint64_t add_values(struct sl__bounds *b, const struct sl_parquet_column *c, const struct sl_parquet_values *v,
			   size_t n)
{
	size_t entry = sl__pq_entry_bytes(c);
	uint64_t nulls = 0;

	if (v->nulls == NULL) {
		sl__bounds_add(b, c, v->values, n);
		return 0;
	}
	for (size_t i = 0; i < n; i++) {
		if (v->nulls[i] != 0)
			nulls++;
		else
			sl__bounds_add(b, c, (const char *)v->values + i * entry, 1);
	}
	return nulls;
}

static bool all_utf8(const struct sl_parquet_values *v, size_t n)
{
	const struct sl_parquet_bytes *text = v->values;

	for (size_t i = 0; i < n; i++)
		if (!sl__pq_is_utf8(text[i]))
			return false;
	return true;
}

/* A NaN lies within no bounds. */
static bool bounds_hold(const struct sl__bounds *values, const struct sl_parquet_column *c,
			const struct sl_parquet_chunk *chunk)
{
	struct sl__bounds told = {0};

	if (!chunk->has_bounds)
		return true;
	if (!sl__bounds_add_told(&told, c, chunk->min) || !sl__bounds_add_told(&told, c, chunk->max))
		return false;
	return !values->nan && (!values->any || sl__bounds_contain(&told, values, c));
}

static int check_chunk(sl_parquet_reader *r, size_t group, size_t column, struct sl_err *err)
{
	const struct sl_parquet_column *c = &r->columns[column];
	const struct sl_parquet_chunk *chunk = &r->chunks[group * r->columns_n + column].told;
	struct sl_parquet_values v;
	struct sl__bounds bounds = {0};
	const char *why = NULL;
	int rc = sl__chunk_read(r, group, column, &v, err);

	if (rc != 0)
		return rc;
	uint64_t nulls = add_values(&bounds, c, &v, (size_t)chunk->rows);
	if (chunk->nulls >= 0 && (uint64_t)chunk->nulls != nulls)
		why = "another number of NULLs than the footer says";
	else if (!bounds_hold(&bounds, c, chunk))
		why = "a value outside of the footer's bounds";
	else if (c->kind == SL_PARQUET_STRING && !all_utf8(&v, (size_t)chunk->rows))
		why = "a text that is not UTF-8";
	return why == NULL ? 0
			   : sl_err_set(err, SL_ECORRUPT, "parquet: row group %zu, column '%.60s': %s", group, c->name,
					why);
}

/* Chunks follow each other from the magic to the footer, without gaps: a byte that nobody reads could be anything. */
static int check_places(const sl_parquet_reader *r, struct sl_err *err)
{
	uint64_t at = PQ_MAGIC_BYTES;

	for (size_t i = 0; i < r->groups_n * r->columns_n; i++) {
		const struct sl_parquet_chunk *c = &r->chunks[i].told;
		if (c->offset != at)
			return sl_err_set(err, SL_ECORRUPT,
					  "parquet: row group %zu, column '%.60s': it is not where the one before ends",
					  i / r->columns_n, r->columns[i % r->columns_n].name);
		at += c->bytes;
	}
	if (at != r->file_bytes - PQ_TAIL_BYTES - r->footer_bytes)
		return sl_err_set(err, SL_ECORRUPT, "parquet: bytes between the last row group and the footer");
	return 0;
}

int sl_parquet_reader_check(sl_parquet_reader *r, struct sl_err *err)
{
	int rc = check_places(r, err);

	for (size_t g = 0; g < r->groups_n && rc == 0; g++)
		for (size_t c = 0; c < r->columns_n && rc == 0; c++)
			rc = check_chunk(r, g, c, err);
	return rc;
}
