/* SPDX-License-Identifier: Apache-2.0 */
/* Which field of a record belongs to which column, and reading the sequence number of a record. */
#include "pipeline/export/layout.h"

#include "format/csv.h"
#include "format/json.h"
#include "pipeline/export/convert.h"
#include "pipeline/partition.h"

void sl__layout_fini(struct sl__layout *l)
{
	if (l->env == NULL)
		return;
	for (size_t i = 0; l->names != NULL && i < l->n_names; i++)
		sl__free(l->env, l->names[i]);
	sl__free(l->env, l->names);
	sl__free(l->env, l->of_field);
	*l = (struct sl__layout){.env = NULL};
}

int sl__layout_init(struct sl__layout *out, const struct sl__layout_opts *opts, struct sl_err *err)
{
	const struct sl__schema *schema = opts->schema;
	struct sl__layout l SL_CLEANUP(sl__layout_fini) = {.env = opts->env,
							   .csv = opts->csv,
							   .delimiter = opts->delimiter,
							   .max_record_bytes = opts->max_record_bytes};

	/* The fields: their names are copied, and each has a column. */
	size_t n = opts->names != NULL ? opts->n_names : schema->n;
	l.names = sl__calloc(l.env, SL_MAX(n, (size_t)1), sizeof(*l.names));
	l.of_field = sl__calloc(l.env, schema->n, sizeof(*l.of_field));
	if (l.names == NULL || l.of_field == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for %zu columns", n);
	for (; l.n_names < n; l.n_names++) {
		const char *name = opts->names != NULL ? opts->names[l.n_names] : schema->columns[l.n_names].name;
		if ((l.names[l.n_names] = sl__strdup(l.env, name)) == NULL)
			return sl_err_set(err, SL_ENOMEM, "out of memory for %zu columns", n);
		if (sl__schema_find(schema, name) == SIZE_MAX) {
			l.n_names++;
			return sl_err_set(err, SL_EDATA, "the schema has no column for \"%.100s\" of the input", name);
		}
	}

	/* The columns: a required one has a field. */
	for (size_t i = 0; i < schema->n; i++) {
		const struct sl_parquet_column *c = &schema->columns[i];
		l.of_field[i] = SIZE_MAX;
		for (size_t k = 0; k < n && l.of_field[i] == SIZE_MAX; k++)
			if (strcmp(l.names[k], c->name) == 0)
				l.of_field[i] = k;
		if (l.of_field[i] == SIZE_MAX && !c->nullable)
			return sl_err_set(err, SL_EDATA, "the input has no field for the required column \"%.100s\"",
					  c->name);
	}

	/* The sequence: a required column of integers. */
	l.sequence_column = sl__schema_find(schema, opts->sequence);
	if (l.sequence_column == SIZE_MAX)
		return sl_err_set(err, SL_EINVAL, "sequence: no column \"%.100s\"", opts->sequence);
	const struct sl_parquet_column *c = &schema->columns[l.sequence_column];
	l.sequence_field = l.of_field[l.sequence_column];
	if ((c->kind != SL_PARQUET_INT64 && c->kind != SL_PARQUET_INT32) || c->nullable)
		return sl_err_set(err, SL_EINVAL, "sequence: column \"%.100s\" must be a required int64 or int32",
				  opts->sequence);
	*out = l;
	l = (struct sl__layout){.env = NULL};
	return 0;
}

/* ---- the number of a record ---- */

static const char *to_sequence(const char *text, size_t len, uint64_t *out)
{
	int64_t v;
	const char *why = sl__to_int64(text, len, &v);
	if (why != NULL)
		return why;
	if (v < 0 || (uint64_t)v > SL__SEQUENCE_MAX)
		return "not a sequence number";
	*out = (uint64_t)v;
	return NULL;
}

static const char *json_sequence(const struct sl__layout *l, const char *text, size_t len, struct sl__buf *scratch,
				 uint64_t *out)
{
	const char *wanted = l->names[l->sequence_field];
	struct sl__json s = sl__json_of(text, len);
	struct sl__json_value key, v;
	bool has_nul;
	int more;
	if (!sl__json_open(&s))
		return s.why;
	for (bool first = true; (more = sl__json_more(&s, first)) > 0; first = false) {
		if (!sl__json_string(&s, &key) || !sl__json_colon(&s) || !sl__json_value(&s, &v))
			return s.why;
		if (key.escaped) {
			sl__buf_clear(scratch);
			if (sl__buf_reserve(scratch, key.len) != 0)
				continue;
			key.len = sl__json_unescape(scratch->data, key.text, key.len, &has_nul);
			key.text = scratch->data;
		}
		if (strlen(wanted) != key.len || memcmp(wanted, key.text, key.len) != 0)
			continue;
		bool can = v.kind == SL__FIELD_NUMBER || (v.kind == SL__FIELD_TEXT && !v.escaped);
		return can ? to_sequence(v.text, v.len, out) : "not an integer";
	}
	return more < 0 ? s.why : "the member is missing";
}

const char *sl__layout_sequence(const struct sl__layout *l, const char *text, size_t len, struct sl__buf *scratch,
				uint64_t *out)
{
	if (!l->csv)
		return json_sequence(l, text, len, scratch, out);
	struct sl__csv s = sl__csv_of(text, len, l->delimiter);
	struct sl__csv_field f;
	for (size_t i = 0;; i++) {
		int rc = sl__csv_next(&s, &f);
		if (rc < 0 && s.need_memory) { /* doubled quotes: once more, with room for them */
			sl__buf_clear(scratch);
			if (sl__buf_reserve(scratch, len) != 0)
				return "out of memory";
			s = sl__csv_of(text, len, l->delimiter);
			s.scratch = scratch->data;
			i = SIZE_MAX;
		} else if (rc <= 0) {
			return rc < 0 ? s.why : "the field is missing";
		} else if (i == l->sequence_field) {
			return to_sequence(f.text, f.len, out);
		}
	}
}
