/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records into rows of encoded values, and rows into runs that one statement can write.
 *
 * A run ends where the next row has other columns (a value that is not there takes the column's default, and a
 * statement names its columns for all rows), and, for upserts, where a key comes again: one statement may not touch a
 * row twice. Keys are compared by a hash of their encoded values; two keys with one hash only make a run shorter.
 */
#include <stdlib.h>

#include "base/fnv.h"
#include "sink/postgres.h"

void sl__pg_rows_fini(struct sl__pg_rows *rows, const struct sl_env *env)
{
	sl__buf_fini(&rows->buf);
	sl__buf_fini(&rows->have);
	sl__free(env, rows->at);
	sl__free(env, rows->item);
	sl__free(env, rows->runs);
	sl__free(env, rows->seen);
	sl__free(env, rows->skip);
	sl__free(env, rows->fields);
}

static uint64_t mix_bytes(uint64_t h, const char *p, size_t n)
{
	h = sl__fnv_add(h, p, n);
	return (h ^ (h >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
}

/* true: this run has a row with that key. */
static bool seen_before(struct sl__pg_rows *r, uint64_t hash)
{
	hash |= 1; /* 0 is a free place */
	for (size_t i = hash & (r->cap_seen - 1);; i = (i + 1) & (r->cap_seen - 1)) {
		if (r->seen[i] == hash)
			return true;
		if (r->seen[i] == 0) {
			r->seen[i] = hash;
			return false;
		}
	}
}

/* A value that is not there is NULL, unless its column has a default. */
static bool is_there(const struct sl__pg_column *c, const struct sl__field *f)
{
	return f->kind != SL__FIELD_ABSENT || !c->has_default;
}

/* Encode the record in r->fields after the others. *hash: of its key. A value that only the server can read sets
 * r->unsure. */
static int encode(struct sl__pg_lane *lane, uint8_t *have, uint64_t *hash, struct sl_err *err)
{
	struct sl__pg_rows *r = &lane->rows;
	const struct sl__pg_table *t = &lane->table;
	bool csv = lane->sink->opts.format == SL_ROWS_CSV;
	*hash = SL__FNV_INIT;
	for (size_t i = 0; i < t->n; i++) {
		const struct sl__pg_column *c = &t->columns[i];
		const struct sl__field *f = &r->fields[i];
		size_t start = r->buf.len;
		have[i] = is_there(c, f);
		if (!have[i])
			continue;
		enum sl__fit fit = r->text ? sl__pg_put_text(&r->buf, c->enc, f, csv)
					   : sl__pg_put_binary(&r->buf, c->enc, f, csv, lane->sink->c_locale);
		if (fit == SL__FIT_NO) {
			(void)sl_err_set(err, SL_EDATA, "postgres: column %s (%s) does not accept %s\"%.*s\"%s",
					 c->name, c->type, f->kind == SL__FIELD_TEXT ? "" : "the value ",
					 (int)SL_MIN(f->len, 60), f->text != NULL ? f->text : "",
					 f->has_nul ? ": a NUL character" : "");
			return sl__sink_class(err, SL_EDATA, SL_CLASS_POISON);
		}
		if (fit == SL__FIT_UNSURE) {
			r->unsure = true;
			return 0;
		}
		if (c->is_key && r->buf.failed == 0)
			*hash = mix_bytes(*hash, r->buf.data + start, r->buf.len - start);
	}
	return r->buf.failed != 0 ? sl__no_memory(err, "postgres") : 0;
}

/* The row that was just encoded joins the last run, or begins one. */
static int place(struct sl__pg_lane *lane, const uint8_t *have, uint64_t hash, uint32_t item)
{
	struct sl__pg_rows *r = &lane->rows;
	bool upsert = lane->sink->opts.n_on_conflict > 0;
	size_t width = lane->table.n;
	bool fresh = r->n_runs == 0 || memcmp(r->have.data + (r->n_runs - 1) * width, have, width) != 0 ||
		     (upsert && seen_before(r, hash));
	if (fresh) {
		struct sl__pg_run *runs = sl__grow(&lane->sink->env, r->runs, r->n_runs, &r->cap_runs, sizeof(*runs));
		if (runs == NULL)
			return SL_ENOMEM;
		r->runs = runs;
		r->runs[r->n_runs++] = (struct sl__pg_run){.first = r->n};
		if (sl__buf_append(&r->have, have, width) != 0)
			return SL_ENOMEM;
		if (upsert) {
			memset(r->seen, 0, r->cap_seen * sizeof(*r->seen));
			(void)seen_before(r, hash);
		}
	}
	r->item[r->n++] = item;
	r->at[r->n] = r->buf.len;
	r->runs[r->n_runs - 1].n++;
	return 0;
}

/* Room for n rows, and for upserts a table of keys twice as large, in a power of two: never more than half full. */
static int make_row_room(struct sl__pg_lane *lane, size_t n)
{
	const struct sl_env *env = &lane->sink->env;
	struct sl__pg_rows *r = &lane->rows;
	if (r->cap < n) {
		size_t *at = sl__realloc(env, r->at, (n + 1) * sizeof(*at));
		if (at == NULL)
			return SL_ENOMEM;
		r->at = at;
		uint32_t *item = sl__realloc(env, r->item, n * sizeof(*item));
		if (item == NULL)
			return SL_ENOMEM;
		r->item = item;
		r->cap = n;
	}
	if (lane->sink->opts.n_on_conflict == 0)
		return 0;
	size_t cap = 64;
	while (cap < n * 2)
		cap *= 2;
	if (r->cap_seen < cap) {
		uint64_t *seen = sl__realloc(env, r->seen, cap * sizeof(*seen));
		if (seen == NULL)
			return SL_ENOMEM;
		r->seen = seen;
		r->cap_seen = cap;
	}
	return 0;
}

int sl__pg_rows_fill(struct sl__pg_lane *lane, const struct sl_sink_batch *batch, struct sl__refusals *refused,
		     struct sl_err *err)
{
	struct sl__pg_rows *r = &lane->rows;
	sl__buf_clear(&r->buf);
	sl__buf_clear(&r->have);
	r->n = r->n_runs = r->done = 0;
	r->unsure = false;
	uint8_t *have = sl__alloc(&lane->sink->env, lane->table.n);
	int rc = have == NULL || make_row_room(lane, batch->n) != 0 ? sl__no_memory(err, "postgres") : 0;
	if (rc == 0)
		r->at[0] = 0;
	for (size_t i = 0; rc == 0 && i < batch->n && i < refused->stop; i++) {
		const struct sl_sink_item *item = &batch->items[i];
		struct sl_err why = SL_ERR_INIT;
		uint64_t hash;
		if (SL_UNLIKELY(r->skips && r->skip[i])) {
			r->done = i + 1;
			continue;
		}
		size_t start = r->buf.len;
		rc = sl__row_read(lane->reader, item->data, item->len, r->fields, &why);
		if (rc == 0)
			rc = encode(lane, have, &hash, &why);
		if (r->unsure)
			break;
		if (rc == 0) {
			rc = place(lane, have, hash, (uint32_t)i) != 0 ? sl__no_memory(err, "postgres") : 0;
		} else if (why.error_class == SL_CLASS_POISON) {
			rc = 0;
			r->buf.len = start;
			if (!sl__refusals_add(refused, i, &why))
				break;
		} else if (err != NULL) {
			*err = why;
		}
		r->done = i + 1;
	}
	for (size_t k = 0; k < r->n_runs; k++)
		r->runs[k].have = (const uint8_t *)r->have.data + k * lane->table.n;
	sl__free(&lane->sink->env, have);
	return rc;
}

/* ---- keys ---- */

/* Equal keys have equal numbers. What cannot be compared here, because only the server reads such a value or has its
 * own idea of equality, is 0. */
int sl__pg_key(void *ctx, void *lane_ctx, const void *data, size_t len, uint64_t *hash, struct sl_err *err)
{
	struct sl__pg_lane *lane = lane_ctx;
	struct sl__pg_rows *r = &lane->rows;
	bool csv = lane->sink->opts.format == SL_ROWS_CSV;
	uint64_t h = SL__FNV_INIT;
	(void)ctx;
	*hash = 0;
	if (lane->reader == NULL) {
		int rc = sl__pg_make_ready(lane, err);
		sl__pg_disconnect(lane); /* the table is what it was for */
		if (rc != 0)
			return rc;
	}
	struct sl_err why;
	if (sl__row_read(lane->reader, data, len, r->fields, &why) != 0) {
		*hash = 1; /* it will be refused */
		return 0;
	}
	for (size_t i = 0; i < lane->table.n; i++) {
		const struct sl__pg_column *c = &lane->table.columns[i];
		if (!c->is_key)
			continue;
		sl__buf_clear(&r->buf);
		if (!c->plain || !is_there(c, &r->fields[i]) ||
		    sl__pg_put_binary(&r->buf, c->enc, &r->fields[i], csv, lane->sink->c_locale) != SL__FIT_OK)
			return 0;
		if (r->buf.failed != 0)
			return sl__no_memory(err, "postgres");
		size_t n = r->buf.len;
		while (c->enc == SL__ENC_TEXT && n > 4 && r->buf.data[n - 1] == ' ')
			n--;
		h = mix_bytes(h, r->buf.data + 4, n - 4);
	}
	*hash = h != 0 ? h : 1;
	return 0;
}
