/* SPDX-License-Identifier: Apache-2.0 */
/* Records into cells: values of the types that the columns of a SQLite table keep. */
#include "sink/sqlite_rows.h"

#include <limits.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <strings.h>

#include "base/fnv.h"
#include "format/text.h"

/* ---- numbers ---- */

/* A decimal number taken apart: sign, up to 19 significant digits, a power of ten. */
struct decimal {
	uint64_t digits;
	int n_digits; /* significant ones, also those that did not fit */
	int exponent;
	bool negative, whole; /* whole: neither point nor exponent */
};

static const char *scan_digits(struct decimal *d, const char *p, const char *end, int step)
{
	for (; p < end && sl__is_digit(*p); p++) {
		if (d->n_digits > 0 || *p != '0')
			d->n_digits++;
		if (d->n_digits <= 19)
			d->digits = d->digits * 10 + (uint64_t)(*p - '0');
		d->exponent += d->n_digits <= 19 ? step : step + 1;
	}
	return p;
}

static const char *scan_exponent(struct decimal *d, const char *p, const char *end)
{
	const char *q = p + 1;
	bool minus = q < end && *q == '-';
	int value = 0;
	q += q < end && (*q == '-' || *q == '+');
	if (q == end || !sl__is_digit(*q))
		return p;
	for (; q < end && sl__is_digit(*q); q++)
		value = value < 100000 ? value * 10 + (*q - '0') : value;
	d->exponent += minus ? -value : value;
	d->whole = false;
	return q;
}

/* Is all of the text one decimal number? */
static bool scan_decimal(struct decimal *d, const char *p, const char *end)
{
	*d = (struct decimal){.whole = true, .negative = p < end && *p == '-'};
	p += p < end && (*p == '-' || *p == '+');
	const char *start = p;
	p = scan_digits(d, p, end, 0);
	ptrdiff_t digits = p - start;
	if (p < end && *p == '.') {
		d->whole = false;
		start = ++p;
		p = scan_digits(d, p, end, -1);
		digits += p - start;
	}
	if (digits > 0 && p < end && (*p == 'e' || *p == 'E'))
		p = scan_exponent(d, p, end);
	return digits > 0 && p == end;
}

static bool as_int64(const struct decimal *d, int64_t *out)
{
	uint64_t limit = (uint64_t)INT64_MAX + d->negative;
	if (!d->whole || d->n_digits > 19 || d->digits > limit)
		return false;
	*out = d->negative ? (int64_t)(0 - d->digits) : (int64_t)d->digits;
	return true;
}

/* The nearest double. Up to 15 digits and a power of ten that a double holds exactly, one operation rounds right. */
static bool as_double(const struct decimal *d, const char *text, size_t len, double *out)
{
	static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
				      1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
	if (d->n_digits <= 15 && d->exponent >= -22 && d->exponent <= 22) {
		double m = (double)d->digits;
		m = d->exponent < 0 ? m / tens[-d->exponent] : m * tens[d->exponent];
		*out = d->negative ? -m : m;
		return true;
	}
	char copy[128];
	/* The host's locale may want another decimal point. */
	locale_t c = len < sizeof(copy) ? newlocale(LC_ALL_MASK, "C", (locale_t)0) : (locale_t)0;
	if (c == (locale_t)0)
		return false;
	memcpy(copy, text, len);
	copy[len] = '\0';
	*out = strtod_l(copy, NULL, c);
	freelocale(c);
	return true;
}

/* ---- fields ---- */

static struct sl__cell int_cell(int64_t i)
{
	return (struct sl__cell){.i = i, .kind = SL__CELL_INT};
}

static struct sl__cell text_cell(const char *text, size_t len)
{
	return (struct sl__cell){.text = text, .len = (uint32_t)len, .kind = SL__CELL_TEXT};
}

static bool truth(const char *text, size_t len, int64_t *out)
{
	static const char *const words[] = {"false", "true", "f", "t"};
	for (size_t i = 0; i < SL_COUNT(words); i++)
		if (len == strlen(words[i]) && strncasecmp(text, words[i], len) == 0) {
			*out = (int64_t)(i & 1);
			return true;
		}
	return false;
}

/* A number for a column that keeps what it is given. */
static struct sl__cell loose_number(const struct sl__field *f, bool converts)
{
	struct decimal d;
	struct sl__cell cell = text_cell(f->text, f->len);
	if (!scan_decimal(&d, f->text, f->text + f->len))
		return cell;
	if (as_int64(&d, &cell.i))
		return int_cell(cell.i);
	double value;
	cell = text_cell(f->text, f->len);
	if (!converts && !d.whole && d.n_digits <= 17 && as_double(&d, f->text, f->len, &value))
		cell = (struct sl__cell){.d = value, .kind = SL__CELL_REAL};
	return cell;
}

/* For INTEGER and REAL columns. NULL, or what is wrong. */
static const char *number_cell(const struct sl__field *f, enum sl__affinity affinity, struct sl__cell *out)
{
	const char *p = f->text, *end = f->text + f->len;
	struct decimal d;
	double value;
	int64_t i;
	while (p < end && (*p == ' ' || *p == '\t'))
		p++;
	while (end > p && (end[-1] == ' ' || end[-1] == '\t'))
		end--;
	if (!scan_decimal(&d, p, end)) {
		if (!truth(p, (size_t)(end - p), &i))
			return affinity == SL__AFFINITY_INTEGER ? "accepts only integers" : "accepts only numbers";
		*out = int_cell(i);
		return NULL;
	}
	if (affinity == SL__AFFINITY_INTEGER && as_int64(&d, &i))
		*out = int_cell(i);
	else if (affinity == SL__AFFINITY_INTEGER && d.whole)
		return "accepts only integers of 64 bits";
	else if (!as_double(&d, p, (size_t)(end - p), &value))
		*out = text_cell(p, (size_t)(end - p)); /* SQLite converts it */
	else if (isinf(value))
		return "accepts only numbers up to the largest double";
	else
		*out = (struct sl__cell){.d = value, .kind = SL__CELL_REAL};
	return NULL;
}

/* NULL, or what is wrong with it. */
static const char *convert(const struct sl__field *f, enum sl__affinity affinity, struct sl__cell *out)
{
	bool yes = f->kind == SL__FIELD_TRUE;
	switch (f->kind) {
	case SL__FIELD_ABSENT:
		*out = (struct sl__cell){.kind = SL__CELL_ABSENT};
		return NULL;
	case SL__FIELD_NULL:
		*out = (struct sl__cell){.kind = SL__CELL_NULL};
		return NULL;
	case SL__FIELD_TRUE:
	case SL__FIELD_FALSE:
		*out = affinity == SL__AFFINITY_TEXT ? text_cell(yes ? "true" : "false", yes ? 4 : 5) : int_cell(yes);
		return NULL;
	case SL__FIELD_TEXT:
	case SL__FIELD_NUMBER:
	case SL__FIELD_JSON:
	default:
		break;
	}
	if (f->has_nul)
		return "does not accept text with a NUL character";
	if (f->len > INT_MAX)
		return "does not accept text of this length";
	if (affinity == SL__AFFINITY_INTEGER || affinity == SL__AFFINITY_REAL)
		return number_cell(f, affinity, out);
	*out = f->kind == SL__FIELD_NUMBER && affinity != SL__AFFINITY_TEXT
		       ? loose_number(f, affinity == SL__AFFINITY_NUMERIC)
		       : text_cell(f->text, f->len);
	return NULL;
}

/* ---- rows ---- */

void sl__sqlite_rows_init(struct sl__sqlite_rows *r, const struct sl_env *env, const struct sl_sink_opts *opts)
{
	*r = (struct sl__sqlite_rows){.env = env, .opts = opts, .shape = {.version = -1}};
	sl__buf_init(&r->copies, env);
}

static void drop_reader(struct sl__sqlite_rows *r)
{
	sl__row_reader_free(r->reader);
	sl__free(r->env, r->fields);
	sl__free(r->env, r->cells);
	sl__free(r->env, r->full);
	r->reader = NULL;
	r->fields = NULL;
	r->cells = NULL;
	r->full = NULL;
	r->refused = r->alike = NULL;
	r->cap = 0;
}

void sl__sqlite_rows_fini(struct sl__sqlite_rows *r)
{
	drop_reader(r);
	sl__shape_fini(&r->shape);
	sl__buf_fini(&r->copies);
}

int sl__sqlite_rows_reshape(struct sl__sqlite_rows *r, struct sl_err *err)
{
	drop_reader(r);
	const struct sl__row_opts opts = {.env = r->env,
					  .csv = r->opts->format == SL_ROWS_CSV,
					  .columns = r->shape.names,
					  .n_columns = r->shape.n,
					  .null_text = r->opts->null_text,
					  .delimiter = r->opts->delimiter};
	r->fields = sl__calloc(r->env, r->shape.n, sizeof(*r->fields));
	int rc = r->fields != NULL ? sl__row_reader_new(&r->reader, &opts, err) : sl__no_memory(err, "sqlite");
	if (rc != 0) {
		drop_reader(r);
		r->shape.version = -1; /* so that it is tried again */
	}
	return rc;
}

static int fill_row(struct sl__sqlite_rows *r, const struct sl_sink_item *item, size_t k, struct sl_err *err)
{
	struct sl__cell *cells = r->cells + k * r->shape.n;
	uintptr_t record = (uintptr_t)item->data;
	uint8_t full = 1;
	r->full[k] = r->alike[k] = 0;
	r->refused[k] = 1;
	int rc = sl__row_read(r->reader, item->data, item->len, r->fields, err);
	if (rc != 0)
		return rc;
	for (size_t c = 0; c < r->shape.n; c++) {
		const struct sl__field *f = &r->fields[c];
		struct sl__cell *cell = &cells[c];
		const char *why = convert(f, (enum sl__affinity)r->shape.affinity[c], cell);
		if (why != NULL)
			return sl_err_set(err, SL_EDATA, "column %s %s", r->shape.names[c], why);
		full &= cell->kind != SL__CELL_ABSENT;
		/* Text that the reader has unescaped lives only until the next record: copy it. */
		uintptr_t text = (uintptr_t)f->text;
		if (cell->kind != SL__CELL_TEXT || (text >= record && text < record + item->len) || cell->len == 0 ||
		    f->kind == SL__FIELD_TRUE || f->kind == SL__FIELD_FALSE)
			continue;
		size_t at = r->copies.len;
		if (sl__buf_append(&r->copies, cell->text, cell->len) != 0)
			return sl__no_memory(err, "sqlite");
		cell->at = at;
		cell->kind = SL__CELL_COPY;
	}
	r->full[k] = full;
	r->refused[k] = 0;
	/* Does it have the columns of the row before it? */
	bool alike = k > 0 && !r->refused[k - 1] && full == r->full[k - 1];
	for (size_t c = 0; alike && !full && c < r->shape.n; c++)
		alike = (cells[c].kind == SL__CELL_ABSENT) == ((cells - r->shape.n)[c].kind == SL__CELL_ABSENT);
	r->alike[k] = alike;
	return 0;
}

void sl__sqlite_rows_omit(struct sl__sqlite_rows *r, size_t k)
{
	r->full[k] = r->alike[k] = 0;
	r->refused[k] = 1;
	if (k + 1 < r->n)
		r->alike[k + 1] = 0;
}

int sl__sqlite_rows_fill(struct sl__sqlite_rows *r, const struct sl_sink_batch *batch, size_t first,
			 struct sl__refusals *refused, struct sl_err *err)
{
	size_t n = SL_MIN(batch->n - first, (size_t)SL__ROWS_MAX);
	if (n > r->cap) {
		struct sl__cell *cells = sl__realloc(r->env, r->cells, n * r->shape.n * sizeof(*cells));
		if (cells == NULL)
			return sl__no_memory(err, "sqlite");
		r->cells = cells;
		uint8_t *marks = sl__realloc(r->env, r->full, 3 * n);
		if (marks == NULL)
			return sl__no_memory(err, "sqlite");
		r->full = marks;
		r->refused = marks + n;
		r->alike = marks + 2 * n;
		r->cap = n;
	}
	r->first = first;
	r->n = 0;
	sl__buf_clear(&r->copies);
	for (size_t k = 0; k < n; k++) {
		struct sl_err why;
		const struct sl_sink_item *item = &batch->items[first + k];
		if (SL_UNLIKELY(item->range.end != 0 && r->done != NULL && r->done->n > 0) &&
		    sl__ranges_has(r->done, item->range.begin)) {
			r->n = k + 1;
			sl__sqlite_rows_omit(r, k);
			continue;
		}
		int rc = fill_row(r, item, k, &why);
		if (rc != 0 && why.error_class != SL_CLASS_POISON) {
			if (err != NULL)
				*err = why;
			return rc;
		}
		if (rc != 0 && !sl__refusals_add(refused, first + k, &why))
			break;
		r->n = k + 1;
	}
	return 0;
}

/* ---- binding ---- */

static int bind_cell(const struct sl__sqlite_rows *r, const struct sl__cell *c, sqlite3_stmt *stmt, int at)
{
	switch ((enum sl__cell_kind)c->kind) {
	case SL__CELL_INT:
		return sqlite3_bind_int64(stmt, at, c->i);
	case SL__CELL_REAL:
		return sqlite3_bind_double(stmt, at, c->d);
	case SL__CELL_TEXT:
		return sqlite3_bind_text(stmt, at, c->len > 0 ? c->text : "", (int)c->len, SQLITE_STATIC);
	case SL__CELL_COPY:
		return sqlite3_bind_text(stmt, at, r->copies.data + c->at, (int)c->len, SQLITE_STATIC);
	case SL__CELL_ABSENT:
	case SL__CELL_NULL:
	default:
		return sqlite3_bind_null(stmt, at);
	}
}

int sl__sqlite_rows_bind(const struct sl__sqlite_rows *r, size_t k, size_t n, sqlite3_stmt *stmt)
{
	const struct sl__cell *cell = r->cells + k * r->shape.n, *end = cell + n * r->shape.n;
	int at = 0, rc = SQLITE_OK;
	for (; cell < end && rc == SQLITE_OK; cell++)
		if (cell->kind != SL__CELL_ABSENT)
			rc = bind_cell(r, cell, stmt, ++at);
	return rc;
}

bool sl__sqlite_rows_has_values(const struct sl__sqlite_rows *r, size_t k)
{
	const struct sl__cell *cells = r->cells + k * r->shape.n;
	size_t c = 0;
	while (c < r->shape.n && cells[c].kind == SL__CELL_ABSENT)
		c++;
	return c < r->shape.n;
}

void sl__sqlite_rows_present(const struct sl__sqlite_rows *r, size_t k, uint8_t *bits)
{
	const struct sl__cell *cells = r->cells + k * r->shape.n;
	memset(bits, 0, (r->shape.n + 7) / 8);
	for (size_t c = 0; c < r->shape.n; c++)
		if (cells[c].kind != SL__CELL_ABSENT)
			bits[c / 8] = (uint8_t)(bits[c / 8] | 1u << (c % 8));
}

/* ---- keys ---- */

static uint64_t mix_u64(uint64_t h, uint64_t v)
{
	h = (h ^ v) * UINT64_C(0xbf58476d1ce4e5b9);
	return h ^ h >> 29;
}

/* Values that SQLite takes for equal have one number: 1, 1.0 and, in a column of numbers, '01'; text whatever its case
 * and the blanks at its end are, because the key may have the collation NOCASE or RTRIM. */
static uint64_t mix_cell(uint64_t h, const struct sl__cell *cell)
{
	const char *text = cell->text;
	double value = cell->kind == SL__CELL_INT ? (double)cell->i : cell->d;
	struct decimal d;
	size_t n = cell->len;
	if (cell->kind == SL__CELL_TEXT) {
		while (n > 0 && text[n - 1] == ' ')
			n--;
		if (!scan_decimal(&d, text, text + n) || !as_double(&d, text, n, &value)) {
			for (size_t i = 0; i < n; i++)
				h = mix_u64(h, (uint8_t)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] | 0x20 : text[i]));
			return mix_u64(h, n);
		}
	} else if (cell->kind != SL__CELL_INT && cell->kind != SL__CELL_REAL) {
		return mix_u64(h, 1); /* NULL: it is never in conflict */
	}
	uint64_t bits;
	value = value == 0 ? 0 : value; /* not -0 */
	memcpy(&bits, &value, sizeof(bits));
	return mix_u64(h, bits);
}

int sl__sqlite_rows_key(struct sl__sqlite_rows *r, const void *data, size_t len, uint64_t *hash, struct sl_err *err)
{
	struct sl_err why;
	uint64_t h = SL__FNV_INIT;
	*hash = 1; /* of what will be refused */
	int rc = sl__row_read(r->reader, data, len, r->fields, &why);
	if (rc != 0)
		return rc == SL_ENOMEM ? sl__no_memory(err, "sqlite") : 0;
	for (size_t c = 0; c < r->shape.n; c++) {
		struct sl__cell cell;
		if (!sl__is_key_column(r->opts, r->shape.names[c]))
			continue;
		if (convert(&r->fields[c], (enum sl__affinity)r->shape.affinity[c], &cell) != NULL)
			return 0;
		if (cell.kind == SL__CELL_ABSENT) { /* the default, which only the database knows */
			*hash = 0;
			return 0;
		}
		h = mix_cell(h, &cell);
	}
	*hash = h != 0 ? h : 1;
	return 0;
}
