/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as JSON lines: the same records whatever the reads are; each is where it says that it is; jansson takes for
 * an object what we do, and nothing else. (It takes no numbers beyond a double, and no NUL in names; we take no records
 * that are too long or nested too deep.)
 */
#include "split_input.h"

#include <jansson.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Rightly refused although jansson takes it: it loses a NUL byte after a number. */
static bool is_ours(const struct sl_record *r)
{
	return strstr(r->bad, "longer") != NULL || strstr(r->bad, "deep") != NULL ||
	       memchr(r->data, '\0', r->len) != NULL;
}

static void look(const struct sl_record *r)
{
	json_error_t error;
	json_t *object = json_loadb(r->data, r->len, JSON_ALLOW_NUL, &error);
	enum json_error_code code = object != NULL ? json_error_unknown : json_error_code(&error);
	if (r->bad == NULL)
		MUST(object != NULL || code == json_error_numeric_overflow || code == json_error_null_byte_in_key);
	MUST(object == NULL || json_is_object(object) == (r->bad == NULL) || is_ours(r));
	json_decref(object);
}

/* The columns can be guessed, or there are too many, and the records are still there. */
static void look_ahead(const uint8_t *data, size_t size)
{
	const struct sl_records_opts opts = {SL_RECORDS_OPTS_INIT, .format = SL_ROWS_JSON};
	struct split_input in = {.data = data + 1, .len = size - 1, .most = 1 + data[0] % 40};
	const struct sl_column *columns;
	struct sl_record record;
	sl_records *r;
	size_t n;
	MUST(sl_records_new(&r, split_read, &in, &opts, NULL) == 0);
	MUST(sl_records_infer(r, 1 + data[0], &columns, &n, NULL) == 0);
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < i; k++)
			MUST(strcmp(columns[i].name, columns[k].name) != 0);
	MUST(sl_records_next(r, &record, 1, &n, NULL) == 0);
	if (n == 1)
		split_check(&in, &record, 0);
	sl_records_free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	split_same(data, size, (struct sl_records_opts){SL_RECORDS_OPTS_INIT, .format = SL_ROWS_JSON}, look);
	look_ahead(data, size);
	return 0;
}
