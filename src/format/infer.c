/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The columns of an input, guessed from its first records. Each column begins as everything that it could be, and each
 * value takes away what it is not (guess.h). The records stay in the buffer: the reader goes back to where it was.
 */
#include <stdio.h>

#include "format/csv.h"
#include "format/guess.h"
#include "format/json.h"
#include "format/records_priv.h"

struct guess {
	char *name;
	size_t len;
	unsigned kinds;
	bool seen;
};

struct guesses {
	const sl_records *r;
	struct guess *all;
	size_t *sorted; /* by name; JSON only */
	size_t n, cap;
	struct sl__buf scratch;
};

static void free_guesses(struct guesses *g)
{
	for (size_t i = 0; i < g->n; i++)
		sl__free(&g->r->env, g->all[i].name);
	sl__free(&g->r->env, g->all);
	sl__free(&g->r->env, g->sorted);
	sl__buf_fini(&g->scratch);
}

/* A new column, inserted at `place` of the sorted ones. */
static int add_guess(struct guesses *g, size_t place, const char *name, size_t len, struct sl_err *err)
{
	if (g->n == g->cap) {
		size_t cap = g->cap == 0 ? 16 : g->cap * 2;
		struct guess *all = sl__realloc(&g->r->env, g->all, cap * sizeof(*all));
		if (all == NULL)
			return sl__no_memory(err, "guess columns");
		g->all = all;
		size_t *sorted = sl__realloc(&g->r->env, g->sorted, cap * sizeof(*sorted));
		if (sorted == NULL)
			return sl__no_memory(err, "guess columns");
		g->sorted = sorted;
		g->cap = cap;
	}
	char *copy = sl__alloc(&g->r->env, len + 1);
	if (copy == NULL)
		return sl__no_memory(err, "guess columns");
	memcpy(copy, name, len);
	copy[len] = '\0';
	memmove(g->sorted + place + 1, g->sorted + place, (g->n - place) * sizeof(*g->sorted));
	g->sorted[place] = g->n;
	g->all[g->n++] = (struct guess){.name = copy, .len = len, .kinds = SL__KINDS_ALL};
	return 0;
}

static void narrow(struct guess *c, const char *text, size_t len, unsigned asked)
{
	c->kinds &= sl__guess(text, len, asked & c->kinds);
	c->seen = true;
}

/* ---- CSV ---- */

/* Name the columns after the header, or c1, c2, … after the first record's fields. */
static int name_columns(struct guesses *g, size_t n, struct sl_err *err)
{
	char made[24];
	for (size_t i = 0; i < n; i++) {
		const char *name = made;
		if (g->r->names != NULL)
			name = g->r->names[i];
		else
			(void)snprintf(made, sizeof(made), "c%zu", i + 1);
		int rc = add_guess(g, g->n, name, strlen(name), err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static int scratch_for(struct guesses *g, size_t len, struct sl_err *err)
{
	sl__buf_clear(&g->scratch);
	return sl__buf_reserve(&g->scratch, len) != 0 ? sl__no_memory(err, "guess columns") : 0;
}

static int guess_from_csv(struct guesses *g, const struct sl_record *record, struct sl_err *err)
{
	const sl_records *r = g->r;
	struct sl__csv s = sl__csv_of(record->data, record->len, r->delimiter);
	struct sl__csv_field f;
	size_t n = 0, null_len = strlen(r->null_text);
	int rc = scratch_for(g, record->len, err);
	if (rc != 0)
		return rc;
	s.scratch = g->scratch.data;
	for (struct sl__csv count = s; sl__csv_next(&count, &f) > 0;)
		n++;
	if (g->n == 0 && (rc = name_columns(g, n, err)) != 0)
		return rc;
	if (n != g->n)
		return 0;
	for (size_t i = 0; sl__csv_next(&s, &f) > 0; i++) {
		struct guess *c = &g->all[i];
		if (!f.quoted && f.len == null_len && memcmp(f.text, r->null_text, null_len) == 0)
			continue;
		if (r->words && ((f.len == 3 && memcmp(f.text, "NaN", 3) == 0) ||
				 (f.len == 8 && memcmp(f.text, "Infinity", 8) == 0) ||
				 (f.len == 9 && memcmp(f.text, "-Infinity", 9) == 0))) {
			c->kinds &= SL__KIND(SL_COLUMN_REAL);
			c->seen = true;
		} else {
			narrow(c, f.text, f.len, SL__KINDS_ALL);
		}
	}
	return 0;
}

/* ---- JSON ---- */

/* The column of a JSON member; it is added when it is new. */
static int find_or_add_column(struct guesses *g, const char *name, size_t len, struct guess **out, struct sl_err *err)
{
	size_t low = 0, high = g->n;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		struct guess *c = &g->all[g->sorted[middle]];
		int order = memcmp(c->name, name, SL_MIN(c->len, len));
		if (order == 0)
			order = (c->len > len) - (c->len < len);
		*out = c;
		if (order == 0)
			return 0;
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (g->n == SL__INFER_COLUMNS_MAX)
		return sl_err_set(err, SL_EDATA, "more than %zu different members", SL__INFER_COLUMNS_MAX);
	int rc = add_guess(g, low, name, len, err);
	if (rc != 0)
		return rc;
	*out = &g->all[g->n - 1];
	return 0;
}

/* The record was checked when it was taken: nothing in it can be invalid here. */
static int guess_from_json(struct guesses *g, const struct sl_record *record, struct sl_err *err)
{
	struct sl__json s = sl__json_of(record->data, record->len);
	struct sl__json_value key, v;
	struct guess *c;
	int rc = scratch_for(g, record->len, err);
	if (rc != 0 || !sl__json_open(&s))
		return rc;
	for (bool first = true; sl__json_more(&s, first) > 0; first = false) {
		bool has_nul = false;
		if (!sl__json_string(&s, &key) || !sl__json_colon(&s) || !sl__json_value(&s, &v))
			break;
		if (key.escaped) {
			key.len = sl__json_unescape(g->scratch.data, key.text, key.len, &has_nul);
			key.text = g->scratch.data;
		}
		if (has_nul)
			continue;
		if ((rc = find_or_add_column(g, key.text, key.len, &c, err)) != 0)
			return rc;
		switch (v.kind) {
		case SL__FIELD_TEXT: /* with an escape it is no time; a string of digits was meant as a string */
			narrow(c, v.text, v.len, SL__KINDS_TIME);
			break;
		case SL__FIELD_NUMBER:
			narrow(c, v.text, v.len, SL__KINDS_NUMBER);
			break;
		case SL__FIELD_TRUE:
		case SL__FIELD_FALSE:
			narrow(c, v.text, v.len, SL__KIND(SL_COLUMN_BOOLEAN));
			break;
		case SL__FIELD_JSON:
			c->kinds &= SL__KIND(SL_COLUMN_JSON);
			c->seen = true;
			break;
		case SL__FIELD_NULL:
		case SL__FIELD_ABSENT:
			break;
		}
	}
	return 0;
}

/* ---- both ---- */

/* Sample records until there are enough, or the lookahead is full. *keep: the reader's position in the buffer. */
static int guess_from_sample(struct guesses *g, sl_records *r, size_t max_records, size_t *keep, struct sl_err *err)
{
	struct sl_record record;
	for (size_t n = 0; n < max_records;) {
		enum sl__took took = sl__records_take(r, &record);
		if (took == SL__TOOK_END || (took == SL__TOOK_NOTHING && r->tail - *keep >= SL__INFER_BYTES))
			return 0;
		int rc = 0;
		if (took == SL__TOOK_NOTHING) {
			size_t from = *keep;
			*keep = 0; /* fill moves the bytes first, even if it then fails */
			rc = sl__records_fill(r, from, SL_MAX(r->cap + 1, SL__INFER_BYTES), err);
			if (rc == SL_EAGAIN && n > 0)
				return 0; /* no more for now: these are enough */
		} else {
			n++;
			if (record.bad == NULL)
				rc = r->csv ? guess_from_csv(g, &record, err) : guess_from_json(g, &record, err);
		}
		if (rc != 0)
			return rc;
	}
	return 0;
}

int sl_records_infer(sl_records *r, size_t max_records, const struct sl_column **out, size_t *n, struct sl_err *err)
{
	int rc = sl__records_header(r, err);
	if (rc != 0)
		return rc;
	struct guesses g SL_CLEANUP(free_guesses) = {.r = r};
	sl__buf_init(&g.scratch, &r->env);
	struct sl_records before = *r;
	size_t keep = r->head;
	if (r->names != NULL)
		rc = name_columns(&g, r->n_names, err);
	if (rc == 0)
		rc = guess_from_sample(&g, r, max_records, &keep, err);

	/* Only the buffer stays as it is now: the sampled records are still to come. */
	before.buf = r->buf;
	before.cap = r->cap;
	before.head = keep;
	before.tail = r->tail;
	before.eof = r->eof;
	before.shrink = true;
	*r = before;
	if (rc != 0)
		return rc;

	/* One block: the columns, and after them their names. */
	struct sl__inferred *result;
	size_t bytes = sizeof(*result) + g.n * sizeof(result->columns[0]);
	for (size_t i = 0; i < g.n; i++)
		bytes += g.all[i].len + 1;
	result = sl__alloc(&r->env, bytes);
	if (result == NULL)
		return sl__no_memory(err, "guess columns");
	char *names = (char *)&result->columns[g.n];
	for (size_t i = 0; i < g.n; i++) {
		const struct guess *c = &g.all[i];
		memcpy(names, c->name, c->len + 1);
		/* The next record may lack what these have: not_null is for the caller to say. */
		result->columns[i] = (struct sl_column){.name = names, .kind = sl__guess_column(c->kinds, c->seen)};
		names += c->len + 1;
	}
	result->before = r->inferred;
	r->inferred = result;
	*out = result->columns;
	*n = g.n;
	return 0;
}
