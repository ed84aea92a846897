/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as one row of JSON or CSV: no byte outside of the record is touched; what is read can be written as JSON,
 * which jansson takes and which reads back as the same fields, and as CSV, which reads back as the same text.
 */
#include <stdlib.h>

#include <jansson.h>

#include "format/row.h"
#include "must.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = {"a", "b", "c\"\\", "\xC3\xA9", ""};
enum { N = 5 };

static struct sl__row_reader *reader(bool csv)
{
	const struct sl__row_opts opts = {.csv = csv, .columns = names, .n_columns = N};
	struct sl__row_reader *r;
	MUST(sl__row_reader_new(&r, &opts, NULL) == 0);
	return r;
}

static bool same_text(const struct sl__field *a, const struct sl__field *b)
{
	return a->len == b->len && (a->len == 0 || memcmp(a->text, b->text, a->len) == 0);
}

/* What was CSV comes back as strings; nested values may have had line ends, which became blanks. */
static void check_json(const struct sl__field *fields, struct sl__buf *text)
{
	struct sl__row_reader *r = reader(false);
	struct sl__field again[N];
	json_error_t error;
	sl__row_put_json(text, names, fields, N);
	MUST(memchr(text->data, '\n', text->len) == NULL);
	json_t *object = json_loadb(text->data, text->len, JSON_ALLOW_NUL, &error);
	MUST(object != NULL || json_error_code(&error) == json_error_numeric_overflow ||
	     json_error_code(&error) == json_error_null_byte_in_key);
	json_decref(object);
	MUST(sl__row_read(r, text->data, text->len, again, NULL) == 0);
	for (size_t i = 0; i < N; i++) {
		MUST(again[i].kind == fields[i].kind && again[i].has_nul == fields[i].has_nul);
		MUST(fields[i].kind == SL__FIELD_JSON
			     ? again[i].len == fields[i].len
			     : fields[i].kind < SL__FIELD_TEXT || same_text(&again[i], &fields[i]));
	}
	sl__row_reader_free(r);
}

static void check_csv(const struct sl__field *fields, struct sl__buf *text)
{
	struct sl__row_reader *r = reader(true);
	struct sl__field again[N];
	for (size_t i = 0; i < N; i++)
		if (fields[i].has_nul)
			goto out;
	sl__buf_clear(text);
	sl__row_put_csv(text, fields, N);
	MUST(sl__row_read(r, text->data, text->len, again, NULL) == 0);
	for (size_t i = 0; i < N; i++) {
		bool null = fields[i].kind == SL__FIELD_NULL || fields[i].kind == SL__FIELD_ABSENT;
		MUST(again[i].kind == (null ? SL__FIELD_NULL : SL__FIELD_TEXT));
		MUST(null || same_text(&again[i], &fields[i]));
	}
out:
	sl__row_reader_free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sl__field fields[N];
	struct sl__buf text;
	struct sl_env env;
	if (size == 0)
		return 0;
	struct sl__row_reader *r = reader((data[0] & 1) != 0);
	uint8_t *record = malloc(size > 1 ? size - 1 : 1); /* ends where its memory ends */
	MUST(record != NULL && sl__env_init(&env, NULL, NULL) == 0);
	memcpy(record, data + 1, size - 1);
	sl__buf_init(&text, &env);
	struct sl_err err = SL_ERR_INIT;
	/* Twice: the second time members are expected where they were. */
	int rc = sl__row_read(r, record, size - 1, fields, &err);
	MUST(rc == 0 || (rc == SL_EDATA && err.error_class == SL_CLASS_POISON && err.msg[0] != '\0'));
	MUST(sl__row_read(r, record, size - 1, fields, NULL) == rc);
	if (rc == 0) {
		check_json(fields, &text);
		check_csv(fields, &text);
	}
	sl__buf_fini(&text);
	sl__row_reader_free(r);
	free(record);
	return 0;
}
