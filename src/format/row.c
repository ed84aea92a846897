/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows. A CSV record is cut at its delimiters in one pass; only one with quotes or with bytes beyond ASCII takes the
 * second, careful way. The members of a JSON object are expected where the last record had them, compared there, and
 * searched for (by halving the sorted names) only when they are elsewhere.
 *
 * Strings that must be changed (escapes, doubled quotes) are written to one scratch area that is made as long as the
 * record before the first of them, so that it never moves under the fields that point into it: what comes out is never
 * longer than what it was written as.
 */
#include <stdlib.h>

#include "format/csv.h"
#include "format/json.h"
#include "format/records_priv.h"
#include "format/text.h"

struct column {
	const char *name;
	size_t len;
	bool verbatim; /* in JSON it can be written as it is, and is compared so */
};

struct sl__row_reader {
	struct sl_env env;
	bool csv;
	char delimiter;
	char *null_text;
	size_t null_len;
	size_t n_columns;
	struct column *columns;
	size_t *sorted;   /* columns by name */
	size_t *expected; /* of the n-th member: the column that the last record had there */
	char *scratch;
	size_t scratch_bytes;
};

/* ---- construction ---- */

static int compare_columns(const struct column *a, const struct column *b)
{
	int order = memcmp(a->name, b->name, SL_MIN(a->len, b->len));
	return order != 0 ? order : (a->len > b->len) - (a->len < b->len);
}

static int by_column_name(const void *a, const void *b, void *columns)
{
	const struct column *all = columns;
	return compare_columns(&all[*(const size_t *)a], &all[*(const size_t *)b]);
}

static int set_columns(struct sl__row_reader *r, const struct sl__row_opts *opts, struct sl_err *err)
{
	r->n_columns = opts->n_columns;
	if (r->csv)
		return 0; /* field i is column i */
	r->columns = sl__calloc(&r->env, SL_MAX(opts->n_columns, 1), sizeof(*r->columns));
	r->sorted = sl__calloc(&r->env, SL_MAX(opts->n_columns, 1), 2 * sizeof(*r->sorted));
	if (r->columns == NULL || r->sorted == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for a reader of %zu columns", opts->n_columns);
	r->expected = r->sorted + opts->n_columns;
	for (size_t i = 0; i < opts->n_columns; i++) {
		const char *name = opts->columns[i];
		size_t len = strlen(name), at;
		bool verbatim = sl__text_fault(name, len, &at) == NULL;
		for (size_t k = 0; verbatim && k < len; k++)
			verbatim = name[k] != '"' && name[k] != '\\' && (unsigned char)name[k] >= 0x20;
		r->columns[i] = (struct column){name, len, verbatim};
		r->sorted[i] = r->expected[i] = i;
	}
	qsort_r(r->sorted, r->n_columns, sizeof(*r->sorted), by_column_name, r->columns);
	for (size_t i = 1; i < r->n_columns; i++)
		if (by_column_name(&r->sorted[i - 1], &r->sorted[i], r->columns) == 0)
			return sl_err_set(err, SL_EINVAL, "columns: duplicate column \"%s\"",
					  r->columns[r->sorted[i]].name);
	return 0;
}

int sl__row_reader_new(struct sl__row_reader **out, const struct sl__row_opts *opts, struct sl_err *err)
{
	struct sl_env env;
	int rc = sl__env_init(&env, opts->env, err);
	if (rc != 0)
		return rc;
	if (opts->delimiter == '"' || opts->delimiter == '\n' || opts->delimiter == '\r' || opts->delimiter < 0)
		return sl_err_set(err, SL_EINVAL,
				  "delimiter: must be an ASCII character other than a quote or a line end");
	struct sl__row_reader *r = sl__calloc(&env, 1, sizeof(*r));
	if (r == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for a reader of rows");
	r->env = env;
	r->csv = opts->csv;
	r->delimiter = opts->delimiter != 0 ? opts->delimiter : ',';
	r->null_text = sl__strdup(&env, opts->null_text != NULL ? opts->null_text : "");
	rc = r->null_text != NULL ? set_columns(r, opts, err)
				  : sl_err_set(err, SL_ENOMEM, "out of memory for a reader of rows");
	if (rc != 0) {
		sl__row_reader_free(r);
		return rc;
	}
	r->null_len = strlen(r->null_text);
	*out = r;
	return 0;
}

void sl__row_reader_free(struct sl__row_reader *r)
{
	if (r == NULL)
		return;
	struct sl_env env = r->env;
	sl__free(&env, r->null_text);
	sl__free(&env, r->columns);
	sl__free(&env, r->sorted);
	sl__free(&env, r->scratch);
	sl__free(&env, r);
}

/* Room for everything that a record of len bytes may need; what was in it is gone. */
static int reserve_scratch(struct sl__row_reader *r, size_t len, struct sl_err *err)
{
	if (len <= r->scratch_bytes)
		return 0;
	size_t bytes = SL_MAX(len, (size_t)512);
	char *p = sl__alloc(&r->env, bytes);
	if (p == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for a row of %zu bytes", len);
	sl__free(&r->env, r->scratch);
	r->scratch = p;
	r->scratch_bytes = bytes;
	return 0;
}

/* ---- CSV ---- */

static inline void mark_null(const struct sl__row_reader *r, struct sl__field *f)
{
	if (f->len == r->null_len && memcmp(f->text, r->null_text, f->len) == 0)
		f->kind = SL__FIELD_NULL;
}

/* How many fields there really are, for the message. */
static int wrong_number(const struct sl__row_reader *r, struct sl__csv s, size_t n, struct sl_err *err)
{
	struct sl__csv_field ignored;
	s.scratch = NULL;
	for (int rc; (rc = sl__csv_next(&s, &ignored)) != 0; n++)
		if (rc < 0)
			return sl_err_set(err, SL_EDATA, "CSV: more than %zu fields for %zu columns", n, r->n_columns);
	return sl_err_set(err, SL_EDATA, "CSV: %zu field%s for %zu column%s", n, n == 1 ? "" : "s", r->n_columns,
			  r->n_columns == 1 ? "" : "s");
}

static int read_fields(const struct sl__row_reader *r, struct sl__csv *s, struct sl__field *fields, struct sl_err *err)
{
	struct sl__csv_field f;
	size_t n = 0;
	for (int rc; (rc = sl__csv_next(s, &f)) != 0; n++) {
		if (rc < 0 && s->need_memory)
			return SL_EAGAIN;
		if (rc < 0)
			return sl_err_set(err, SL_EDATA, "CSV, field %zu, byte %zu: %s", n + 1,
					  (size_t)(s->at - s->start) + 1, s->why);
		if (n == r->n_columns)
			return wrong_number(r, *s, n + 1, err);
		fields[n] = (struct sl__field){.text = f.text, .len = f.len, .kind = SL__FIELD_TEXT};
		if (!f.quoted)
			mark_null(r, &fields[n]);
	}
	return n == r->n_columns ? 0 : wrong_number(r, *s, n, err);
}

/* A record with quotes or bytes beyond ASCII, or an invalid one. */
static SL_NOINLINE int read_csv_carefully(struct sl__row_reader *r, const char *record, size_t len,
					  struct sl__field *fields, struct sl_err *err)
{
	size_t at;
	const char *fault = sl__text_fault(record, len, &at);
	if (fault != NULL)
		return sl_err_set(err, SL_EDATA, "CSV, byte %zu: %s", at + 1, fault);
	struct sl__csv s = sl__csv_of(record, len, r->delimiter);
	int rc = read_fields(r, &s, fields, err);
	if (rc != SL_EAGAIN)
		return rc;
	if ((rc = reserve_scratch(r, len, err)) != 0)
		return rc;
	s = sl__csv_of(record, len, r->delimiter);
	s.scratch = r->scratch;
	return read_fields(r, &s, fields, err);
}

/* ---- JSON ---- */

/* The column of the member whose key begins at s->at; `at` moves past the key. A key with escapes is compared as the
 * text it stands for, which is written to scratch for that only. */
static int search_column(struct sl__row_reader *r, struct sl__json *s, char *scratch, const struct column **out,
			 struct sl_err *err)
{
	struct sl__json_value key;
	bool has_nul;
	if (!sl__json_string(s, &key))
		return sl__json_wrong(s, err);
	struct column wanted = {.name = key.text, .len = key.len};
	if (key.escaped) {
		wanted.len = sl__json_unescape(scratch, key.text, key.len, &has_nul);
		wanted.name = scratch;
	}
	for (size_t from = 0, left = r->n_columns; left > 0;) { /* halve what is left of the sorted names */
		size_t half = left / 2;
		*out = &r->columns[r->sorted[from + half]];
		int order = compare_columns(*out, &wanted);
		if (order == 0)
			return 0;
		from = order < 0 ? from + half + 1 : from;
		left = order < 0 ? left - half - 1 : half;
	}
	return sl_err_set(err, SL_EDATA, "JSON: no column for member \"%.*s\"%s", (int)SL_MIN(key.len, 100), key.text,
			  key.len > 100 ? "…" : "");
}

static int read_json(struct sl__row_reader *r, const char *record, size_t len, struct sl__field *fields,
		     struct sl_err *err)
{
	struct sl__json s = sl__json_of(record, len);
	struct sl__json_value v;
	int rc, more;
	if (memchr(record, '\\', len) != NULL && (rc = reserve_scratch(r, len, err)) != 0)
		return rc;
	char *scratch = r->scratch;
	for (size_t i = 0; i < r->n_columns; i++)
		fields[i] = (struct sl__field){.kind = SL__FIELD_ABSENT};
	if (!sl__json_open(&s))
		return sl__json_wrong(&s, err);
	for (size_t member = 0; (more = sl__json_more(&s, member == 0)) > 0; member++) {
		/* The key is mostly, byte for byte, the one that the last record had here. */
		const struct column *c = member < r->n_columns ? &r->columns[r->expected[member]] : NULL;
		const char *p = s.at;
		if (c != NULL && c->verbatim && (size_t)(s.end - p) >= c->len + 2 && p[0] == '"' &&
		    p[c->len + 1] == '"' && memcmp(p + 1, c->name, c->len) == 0)
			s.at = p + c->len + 2;
		else
			c = NULL;
		if (c == NULL) {
			if ((rc = search_column(r, &s, scratch, &c, err)) != 0)
				return rc;
			if (member < r->n_columns)
				r->expected[member] = (size_t)(c - r->columns);
		}
		if (!sl__json_colon(&s) || !sl__json_value(&s, &v))
			return sl__json_wrong(&s, err);
		struct sl__field *f = &fields[c - r->columns];
		if (f->kind != SL__FIELD_ABSENT)
			return sl_err_set(err, SL_EDATA, "JSON: duplicate member \"%s\"", c->name);
		*f = (struct sl__field){.text = v.text, .len = v.len, .kind = v.kind};
		if (SL_UNLIKELY(v.escaped)) {
			f->len = sl__json_unescape(scratch, v.text, v.len, &f->has_nul);
			f->text = scratch;
			scratch += f->len;
		}
	}
	return more == 0 && sl__json_finish(&s) ? 0 : sl__json_wrong(&s, err);
}

int sl__row_read(struct sl__row_reader *r, const void *record, size_t len, struct sl__field *fields, struct sl_err *err)
{
	const char *text = len > 0 ? record : ""; /* an item without bytes may have no address */
	if (!r->csv)
		return read_json(r, text, len, fields, err);
	size_t n = sl__csv_cut(text, len, r->delimiter, fields, r->n_columns);
	if (SL_UNLIKELY(n != r->n_columns))
		return read_csv_carefully(r, text, len, fields, err);
	for (size_t i = 0; i < n; i++)
		mark_null(r, &fields[i]);
	return 0;
}

/* ---- a record whose end is still to be found ---- */

static_assert(SL__ROW_PADDING >= SL__PADDING, "the scan reads past the end of the text");

static SL_NOINLINE int next_csv_carefully(struct sl__row_reader *r, struct sl__row_line *line, struct sl__field *fields,
					  struct sl_err *err)
{
	const char *text = line->text;
	struct sl__scan scan = {.state = SL__SCAN_PLAIN};
	bool ends = sl__csv_scan(&scan, text, line->left, r->delimiter);
	if (!ends && scan.state == SL__SCAN_QUOTED) { /* not closed: only the first line is lost */
		scan = (struct sl__scan){.state = SL__SCAN_LINE, .bad = "an unclosed quote"};
		ends = sl__csv_scan(&scan, text, line->left, r->delimiter);
	}
	line->len = scan.at > 0 && text[scan.at - 1] == '\r' ? scan.at - 1 : scan.at;
	line->used = scan.at + ends;
	if (line->len == 0)
		return SL__ROW_BLANK;
	if (scan.bad != NULL)
		return sl_err_set(err, SL_EDATA, "CSV: %s", scan.bad);
	return sl__row_read(r, text, line->len, fields, err);
}

int sl__row_next(struct sl__row_reader *r, struct sl__row_line *line, struct sl__field *fields, struct sl_err *err)
{
	if (!r->csv) {
		const char *line_end = memchr(line->text, '\n', line->left);
		size_t raw = line_end != NULL ? (size_t)(line_end - line->text) : line->left;
		line->used = raw + (line_end != NULL);
		line->len = raw > 0 && line->text[raw - 1] == '\r' ? raw - 1 : raw;
		if (sl__jsonl_blank(line->text, line->len))
			return SL__ROW_BLANK;
		return read_json(r, line->text, line->len, fields, err);
	}
	size_t got = sl__csv_cut_line(line, r->delimiter, fields, r->n_columns);
	if (SL_UNLIKELY(got != r->n_columns || line->len == 0))
		return next_csv_carefully(r, line, fields, err);
	for (size_t i = 0; i < got; i++)
		mark_null(r, &fields[i]);
	return 0;
}
