/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows what the readers make of inputs, for a test in another language to compare. On stdin, again and again: a line
 * "csv CHUNK LENGTH" or "jsonl CHUNK LENGTH", then the input; it is read in pieces of CHUNK bytes. On stdout a JSON
 * object a record: line, offset, end, and bad (why), error (of the row), or row (what it was taken apart into, put
 * together again); or failed, when the input cannot be read at all; then a line with a dot.
 */
#include <stdio.h>
#include <stdlib.h>

#include "format/row.h"
#include <sluice/records.h>

struct input {
	char *data;
	size_t len, at, chunk;
};

static int64_t read_input(void *buf, size_t n, struct sl_err *err, void *ctx)
{
	struct input *in = ctx;
	(void)err;
	size_t k = SL_MIN(SL_MIN(n, in->chunk), in->len - in->at);
	memcpy(buf, in->data + in->at, k);
	in->at += k;
	return (int64_t)k;
}

static void put_member(struct sl__buf *b, const char *name, const char *value)
{
	(void)sl__buf_printf(b, ",\"%s\":", name);
	sl__put_json_string(b, value, strlen(value));
}

static void put_record(struct sl__buf *b, struct sl__row_reader *rows, const struct sl_record *r,
		       const char *const *columns, struct sl__field *fields, size_t n)
{
	struct sl_err err = SL_ERR_INIT;
	(void)sl__buf_printf(b, "{\"line\":%llu,\"offset\":%llu,\"end\":%llu", (unsigned long long)r->line,
			     (unsigned long long)r->offset, (unsigned long long)r->end);
	if (r->bad != NULL) {
		put_member(b, "bad", r->bad);
	} else if (sl__row_read(rows, r->data, r->len, fields, &err) != 0) {
		put_member(b, "error", err.msg);
	} else {
		(void)sl__buf_str_append(b, ",\"row\":");
		sl__row_put_json(b, columns, fields, n);
	}
	(void)sl__buf_str_append(b, "}\n");
}

/* CSV has its columns in the header; of JSON, infer finds them. */
static int find_columns(sl_records *r, bool csv, const char ***out, size_t *n, struct sl_err *err)
{
	const struct sl_column *guessed = NULL;
	const char *const *names = NULL;
	int rc = csv ? sl_records_columns(r, &names, n, err) : sl_records_infer(r, SIZE_MAX, &guessed, n, err);
	if (rc != 0)
		return rc;
	*out = calloc(*n + 1, sizeof(**out));
	for (size_t i = 0; i < *n; i++)
		(*out)[i] = csv ? names[i] : guessed[i].name;
	return 0;
}

static int dump(struct sl__buf *b, struct input *in, bool csv, struct sl_err *err)
{
	const struct sl_records_opts opts = {SL_RECORDS_OPTS_INIT, .format = csv ? SL_ROWS_CSV : SL_ROWS_JSON};
	struct sl_record batch[3];
	struct sl__row_reader *rows = NULL;
	struct sl__field *fields = NULL;
	const char **columns = NULL;
	sl_records *r;
	size_t n, n_columns = 0;
	int rc = sl_records_new(&r, read_input, in, &opts, err);
	if (rc != 0)
		return rc;
	rc = find_columns(r, csv, &columns, &n_columns, err);
	const struct sl__row_opts row_opts = {.csv = csv, .columns = columns, .n_columns = n_columns};
	if (rc == 0)
		rc = sl__row_reader_new(&rows, &row_opts, err);
	fields = calloc(n_columns + 1, sizeof(*fields));
	while (rc == 0 && (rc = sl_records_next(r, batch, SL_COUNT(batch), &n, err)) == 0 && n > 0)
		for (size_t i = 0; i < n; i++)
			put_record(b, rows, &batch[i], columns, fields, n_columns);
	free(fields);
	free(columns);
	sl__row_reader_free(rows);
	sl_records_free(r);
	return rc;
}

int main(void)
{
	char kind[8];
	struct input in;
	struct sl_env env;
	struct sl__buf b;
	if (sl__env_init(&env, NULL, NULL) != 0)
		return 70;
	sl__buf_init(&b, &env);
	while (scanf("%7s %zu %zu", kind, &in.chunk, &in.len) == 3 && getchar() == '\n') {
		struct sl_err err = SL_ERR_INIT;
		in.at = 0;
		in.data = malloc(in.len + 1);
		if (in.data == NULL || fread(in.data, 1, in.len, stdin) != in.len)
			return 70;
		sl__buf_clear(&b);
		if (dump(&b, &in, strcmp(kind, "csv") == 0, &err) != 0) {
			(void)sl__buf_str_append(&b, "{\"code\":0");
			put_member(&b, "failed", err.msg);
			(void)sl__buf_str_append(&b, "}\n");
		}
		printf("%s.\n", sl__buf_str(&b));
		fflush(stdout);
		free(in.data);
	}
	sl__buf_fini(&b);
	return 0;
}
