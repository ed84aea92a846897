/* SPDX-License-Identifier: Apache-2.0 */
/* The lines that a lane of the file sink appends: records checked, converted and compressed. */
#include "sink/file_lane.h"

/* ---- a lane ---- */

static int init_reader_and_zstd(struct sl__file_lane *l, struct sl_err *err)
{
	const struct sl_sink_opts *o = l->opts;
	/* A reader, when records are converted or their columns are counted. */
	if (o->format != o->file_format || (o->format == SL_ROWS_CSV && o->n_columns > 0)) {
		const struct sl__row_opts row = {.env = l->env,
						 .csv = o->format == SL_ROWS_CSV,
						 .columns = o->columns,
						 .n_columns = o->n_columns,
						 .null_text = o->null_text};
		l->fields = sl__calloc(l->env, o->n_columns, sizeof(*l->fields));
		int rc = l->fields == NULL ? sl__no_memory(err, "file") : sl__row_reader_new(&l->reader, &row, err);
		if (rc != 0)
			return rc;
	}
	if (o->zstd_level == 0)
		return 0;
	l->zstd = ZSTD_createCCtx();
	if (l->zstd == NULL)
		return sl__no_memory(err, "file");
	size_t rc = ZSTD_CCtx_setParameter(l->zstd, ZSTD_c_compressionLevel, o->zstd_level);
	if (!ZSTD_isError(rc))
		rc = ZSTD_CCtx_setParameter(l->zstd, ZSTD_c_checksumFlag, 1);
	return ZSTD_isError(rc) ? sl_err_set(err, SL_EINTERNAL, "file: zstd: %s", ZSTD_getErrorName(rc)) : 0;
}

int sl__file_lane_init(struct sl__file_lane *l, const struct sl_env *env, const struct sl_sink_opts *opts,
		       struct sl_err *err)
{
	*l = (struct sl__file_lane){.env = env, .opts = opts, .out = &l->text};
	sl__buf_init(&l->text, env);
	sl__buf_init(&l->packed, env);
	int rc = init_reader_and_zstd(l, err);
	if (rc != 0)
		sl__file_lane_fini(l);
	return rc;
}

void sl__file_lane_fini(struct sl__file_lane *l)
{
	if (l->env == NULL)
		return;
	(void)ZSTD_freeCCtx(l->zstd);
	sl__row_reader_free(l->reader);
	sl__free(l->env, l->fields);
	sl__buf_fini(&l->packed);
	sl__buf_fini(&l->text);
	*l = (struct sl__file_lane){.env = NULL};
}

/* ---- records ---- */

/* Without columns to count nothing is taken apart, but a record must not run into the next one. */
static int check_quotes(const char *data, size_t len, struct sl_err *err)
{
	bool quoted = false;
	for (size_t i = 0; i < len; i++) {
		quoted ^= data[i] == '"';
		if (data[i] == '\n' && !quoted)
			return sl_err_set(err, SL_EDATA, "CSV: a line end outside of quotes at byte %zu", i);
	}
	return quoted ? sl_err_set(err, SL_EDATA, "CSV: a quote is not closed") : 0;
}

/* Append one record as a line. Also checks what the search for a torn end (file_tail.c) relies on. */
static int put_record(struct sl__file_lane *l, const char *data, size_t len, struct sl_err *err)
{
	const struct sl_sink_opts *o = l->opts;
	size_t start = l->text.len;
	bool as_it_is = o->format == o->file_format && (o->null_text == NULL || o->null_text[0] == '\0');
	int rc = l->reader != NULL               ? sl__row_read(l->reader, data, len, l->fields, err)
		 : o->file_format == SL_ROWS_CSV ? check_quotes(data, len, err)
						 : sl__json_check_value(data, len, false, err);
	if (rc != 0)
		return rc;
	if (o->file_format == SL_ROWS_JSON && l->reader == NULL)
		sl__put_json_line(&l->text, data, len);
	else if (o->file_format == SL_ROWS_JSON)
		sl__row_put_json(&l->text, o->columns, l->fields, o->n_columns);
	else if (as_it_is || l->reader == NULL)
		(void)sl__buf_append(&l->text, data, len);
	else
		sl__row_put_csv(&l->text, l->fields, o->n_columns);
	(void)sl__buf_append(&l->text, "\n", 1);
	if (l->text.failed != 0)
		return sl__no_memory(err, "file");
	size_t n = l->text.len - start;
	if (n > SL__FILE_RECORD_MAX)
		return sl_err_set(err, SL_ETOOBIG, "a record of %zu bytes; a line has at most %zu", n,
				  SL__FILE_RECORD_MAX);
	if (memchr(l->text.data + start, '\0', n) != NULL)
		return sl_err_set(err, SL_EDATA, "a NUL byte cannot be in a line of text");
	return 0;
}

/* ---- pieces ---- */

static int compress(struct sl__file_lane *l, struct sl_err *err)
{
	l->out = l->zstd != NULL ? &l->packed : &l->text;
	sl__buf_clear(&l->packed);
	if (l->zstd == NULL || l->text.len == 0)
		return 0;
	if (sl__buf_reserve(&l->packed, ZSTD_compressBound(l->text.len)) != 0)
		return sl__no_memory(err, "file");
	size_t n = ZSTD_compress2(l->zstd, l->packed.data, l->packed.cap, l->text.data, l->text.len);
	if (ZSTD_isError(n))
		return sl_err_set(err, SL_ENOMEM, "file: zstd: %s", ZSTD_getErrorName(n));
	l->packed.len = n;
	return 0;
}

int sl__file_lane_fill(struct sl__file_lane *l, const struct sl_sink_batch *batch, size_t *next,
		       struct sl__refusals *refused, struct sl_err *err)
{
	size_t i = *next;
	sl__buf_clear(&l->text);
	for (; i < batch->n && l->text.len < SL__FILE_PIECE; i++) {
		struct sl_err why = SL_ERR_INIT;
		size_t start = l->text.len;
		int rc = put_record(l, batch->items[i].data, batch->items[i].len, &why);
		if (rc != 0 && why.error_class != SL_CLASS_POISON) {
			if (err != NULL)
				*err = why;
			return rc;
		}
		if (rc != 0) {
			l->text.len = start;
			(void)sl__refusals_add(refused, i, &why);
		}
		if (refused->stop == i)
			break;
	}
	*next = i;
	return compress(l, err);
}

int sl__file_lane_text(struct sl__file_lane *l, const char *text, size_t len, struct sl_err *err)
{
	sl__buf_clear(&l->text);
	if (sl__buf_append(&l->text, text, len) != 0)
		return sl__no_memory(err, "file");
	return compress(l, err);
}
