/* SPDX-License-Identifier: Apache-2.0 */
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

static int take_names(struct sl__layout *l, const char *const *names, size_t n, const struct sl__schema *schema,
		      struct sl_err *err)
{
	size_t count = names != NULL ? n : schema->n;
	l->names = sl__calloc(l->env, SL_MAX(count, (size_t)1), sizeof(*l->names));
	l->of_field = sl__calloc(l->env, schema->n, sizeof(*l->of_field));
	if (l->names == NULL || l->of_field == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for %zu columns", count);
	for (; l->n_names < count; l->n_names++) {
		const char *name = names != NULL ? names[l->n_names] : schema->columns[l->n_names].name;
		if ((l->names[l->n_names] = sl__strdup(l->env, name)) == NULL)
			return sl_err_set(err, SL_ENOMEM, "no memory for %zu columns", count);
	}
	return 0;
}

static size_t find_name(const struct sl__layout *l, const char *name)
{
	for (size_t i = 0; i < l->n_names; i++)
		if (strcmp(l->names[i], name) == 0)
			return i;
	return SIZE_MAX;
}

static int match(struct sl__layout *l, const struct sl__schema *schema, struct sl_err *err)
{
	for (size_t i = 0; i < l->n_names; i++)
		if (sl__schema_find(schema, l->names[i]) == SIZE_MAX)
			return sl_err_set(err, SL_EDATA, "the schema has no column for \"%.100s\" of the input",
					  l->names[i]);
	for (size_t i = 0; i < schema->n; i++) {
		const struct sl_parquet_column *c = &schema->columns[i];
		l->of_field[i] = find_name(l, c->name);
		if (l->of_field[i] == SIZE_MAX && !c->nullable)
			return sl_err_set(err, SL_EDATA, "the input has nothing for the required column \"%.100s\"",
					  c->name);
	}
	return 0;
}

static int find_sequence(struct sl__layout *l, const struct sl__schema *schema, const char *sequence,
			 struct sl_err *err)
{
	l->sequence_column = sl__schema_find(schema, sequence);
	if (l->sequence_column == SIZE_MAX)
		return sl_err_set(err, SL_EINVAL, "sequence: there is no column \"%.100s\"", sequence);
	const struct sl_parquet_column *c = &schema->columns[l->sequence_column];
	l->sequence_field = l->of_field[l->sequence_column];
	if ((c->kind != SL_PARQUET_INT64 && c->kind != SL_PARQUET_INT32) || c->nullable)
		return sl_err_set(err, SL_EINVAL, "sequence: column \"%.100s\" must be a required int64 or int32",
				  sequence);
	return 0;
}

int sl__layout_init(struct sl__layout *out, const struct sl_env *env, bool csv, char delimiter,
		    const char *const *names, size_t n, const struct sl__schema *schema, const char *sequence,
		    struct sl_err *err)
{
	struct sl__layout l = {.env = env, .csv = csv, .delimiter = delimiter};
	int rc = take_names(&l, names, n, schema, err);
	if (rc == 0)
		rc = match(&l, schema, err);
	if (rc == 0)
		rc = find_sequence(&l, schema, sequence, err);
	if (rc != 0)
		sl__layout_fini(&l);
	else
		*out = l;
	return rc;
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

static const char *csv_sequence(const struct sl__layout *l, const char *text, size_t len, struct sl__buf *scratch,
				uint64_t *out)
{
	struct sl__csv s = sl__csv_of(text, len, l->delimiter);
	struct sl__csv_field f;
	for (size_t i = 0;; i++) {
		int rc = sl__csv_next(&s, &f);
		if (rc < 0 && s.need_memory) { /* doubled quotes: once more, with room for them */
			sl__buf_clear(scratch);
			if (sl__buf_reserve(scratch, len) != 0)
				return "no memory";
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

static bool is_name(const struct sl__json_value *key, const char *name, struct sl__buf *scratch)
{
	bool has_nul;
	const char *text = key->text;
	size_t len = key->len;
	if (key->escaped) {
		sl__buf_clear(scratch);
		if (sl__buf_reserve(scratch, len) != 0)
			return false;
		len = sl__json_unescape(scratch->data, key->text, key->len, &has_nul);
		text = scratch->data;
	}
	return strlen(name) == len && memcmp(name, text, len) == 0;
}

static const char *json_sequence(const struct sl__layout *l, const char *text, size_t len, struct sl__buf *scratch,
				 uint64_t *out)
{
	struct sl__json s = sl__json_of(text, len);
	struct sl__json_value key, v;
	int more;
	if (!sl__json_open(&s))
		return s.why;
	for (bool first = true; (more = sl__json_more(&s, first)) > 0; first = false) {
		if (!sl__json_string(&s, &key) || !sl__json_colon(&s) || !sl__json_value(&s, &v))
			return s.why;
		if (!is_name(&key, l->names[l->sequence_field], scratch))
			continue;
		bool can = v.kind == SL__FIELD_NUMBER || (v.kind == SL__FIELD_TEXT && !v.escaped);
		return can ? to_sequence(v.text, v.len, out) : "not an integer";
	}
	return more < 0 ? s.why : "the member is missing";
}

const char *sl__layout_sequence(const struct sl__layout *l, const char *text, size_t len, struct sl__buf *scratch,
				uint64_t *out)
{
	return l->csv ? csv_sequence(l, text, len, scratch, out) : json_sequence(l, text, len, scratch, out);
}
