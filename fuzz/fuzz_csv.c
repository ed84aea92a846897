/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as CSV: the same records whatever the reads are; each is where it says that it is; a good one can be taken
 * apart, and what is written from its fields reads back as the same fields.
 */
#include "split_input.h"

#include "format/csv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t count_fields(const struct sl_record *r)
{
	struct sl__csv s = sl__csv_of(r->data, r->len, ',');
	struct sl__csv_field f;
	char *scratch = malloc(r->len + 1);
	size_t n = 0;
	int rc;
	MUST(scratch != NULL);
	s.scratch = scratch;
	while ((rc = sl__csv_next(&s, &f)) > 0)
		n++;
	MUST(rc == 0);
	free(scratch);
	return n;
}

static void same_fields(const struct sl__field *a, const struct sl__field *b, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		MUST(a[i].kind == b[i].kind && a[i].len == b[i].len);
		MUST(memcmp(a[i].text, b[i].text, a[i].len) == 0);
	}
}

static void look(const struct sl_record *r)
{
	if (r->bad != NULL)
		return;
	size_t n = count_fields(r);
	const struct sl__row_opts opts = {.csv = true, .n_columns = n};
	struct sl__field *fields = calloc(n, sizeof(*fields)), *again = calloc(n, sizeof(*again));
	struct sl__row_reader *first, *second;
	struct sl__buf text;
	struct sl_env env;
	MUST(fields != NULL && again != NULL && sl__env_init(&env, NULL, NULL) == 0);
	MUST(sl__row_reader_new(&first, &opts, NULL) == 0 && sl__row_reader_new(&second, &opts, NULL) == 0);
	MUST(sl__row_read(first, r->data, r->len, fields, NULL) == 0);
	sl__buf_init(&text, &env);
	sl__row_put_csv(&text, fields, n);
	MUST(sl__row_read(second, text.data, text.len, again, NULL) == 0);
	same_fields(fields, again, n);
	sl__buf_fini(&text);
	sl__row_reader_free(first);
	sl__row_reader_free(second);
	free(fields);
	free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size > 0)
		split_same(data, size, (struct sl_records_opts){SL_RECORDS_OPTS_INIT, .format = SL_ROWS_CSV}, look);
	return 0;
}
