/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file sink. A lane makes the lines of its batch in its own memory, and compresses them; then it waits for the
 * file, which one lane at a time appends to.
 *
 * A record that cannot be written as a line is refused alone: the others of its batch are written (sink/refusal.h).
 */
#include <zstd.h>

#include "base/buf.h"
#include "base/thread.h"
#include "format/row.h"
#include "sink/file_out.h"
#include "sink/refusal.h"
#include "sink/sink.h"

/* What a lane makes of its batches: lines of JSON or CSV, whole records without a NUL byte, in one frame when they are
 * compressed. */
struct file_lane {
	const struct sl_env *env;
	const struct sl_sink_opts *opts;
	struct sl__row_reader *reader; /* NULL: records are not taken apart */
	struct sl__field *fields;      /* one for each column */
	struct sl__buf text, packed;
	ZSTD_CCtx *zstd;     /* NULL: not compressed */
	struct sl__buf *out; /* of the two, what is to be appended */
};

struct file_sink {
	struct sl_env env;
	struct sl_sink_opts opts;
	char *path, *target;
	struct file_lane header; /* its out: what every file begins with, compressed when that is asked for */
	struct sl__buf header_text;
	/* mu guards busy and cancelled; `out` belongs to the lane that has set busy. */
	sl__mutex mu;
	sl__cond freed;
	bool busy, cancelled;
	struct sl__file_out out;
};

/* ---- what a lane appends ---- */

/* A zeroed lane is allowed. */
static void file_lane_fini(struct file_lane *l)
{
	if (l->env == NULL)
		return;
	(void)ZSTD_freeCCtx(l->zstd);
	sl__row_reader_free(l->reader);
	sl__free(l->env, l->fields);
	sl__buf_fini(&l->packed);
	sl__buf_fini(&l->text);
	*l = (struct file_lane){.env = NULL};
}

static int file_lane_init(struct file_lane *l, const struct sl_env *env, const struct sl_sink_opts *o,
			  struct sl_err *err)
{
	*l = (struct file_lane){.env = env, .opts = o, .out = &l->text};
	sl__buf_init(&l->text, env);
	sl__buf_init(&l->packed, env);
	int rc = 0;
	/* A reader, when records are converted or their columns are counted. */
	if (o->format != o->file_format || (o->format == SL_ROWS_CSV && o->n_columns > 0)) {
		const struct sl__row_opts row = {.env = l->env,
						 .csv = o->format == SL_ROWS_CSV,
						 .columns = o->columns,
						 .n_columns = o->n_columns,
						 .null_text = o->null_text,
						 .delimiter = o->delimiter};
		l->fields = sl__calloc(l->env, o->n_columns, sizeof(*l->fields));
		rc = l->fields == NULL ? sl__no_memory(err, "file") : sl__row_reader_new(&l->reader, &row, err);
	}
	if (rc == 0 && o->zstd_level != 0) {
		l->zstd = ZSTD_createCCtx();
		if (l->zstd == NULL)
			rc = sl__no_memory(err, "file");
	}
	if (rc == 0 && l->zstd != NULL) {
		size_t set = ZSTD_CCtx_setParameter(l->zstd, ZSTD_c_compressionLevel, o->zstd_level);
		if (!ZSTD_isError(set))
			set = ZSTD_CCtx_setParameter(l->zstd, ZSTD_c_checksumFlag, 1);
		if (ZSTD_isError(set))
			rc = sl_err_set(err, SL_EINTERNAL, "file: zstd: %s", ZSTD_getErrorName(set));
	}
	if (rc != 0)
		file_lane_fini(l);
	return rc;
}

/* Append one record as a line. Also checks what the search for a torn end (file_tail.c) relies on. */
static int put_record(struct file_lane *l, const char *data, size_t len, struct sl_err *err)
{
	const struct sl_sink_opts *o = l->opts;
	size_t start = l->text.len;
	bool as_it_is = o->format == o->file_format && (o->null_text == NULL || o->null_text[0] == '\0') &&
			(o->delimiter == 0 || o->delimiter == ',');
	int rc = 0;
	if (l->reader != NULL)
		rc = sl__row_read(l->reader, data, len, l->fields, err);
	else if (o->file_format == SL_ROWS_JSON)
		rc = sl__json_check_value(data, len, false, err);
	if (rc != 0)
		return rc;
	/* Without columns to count nothing is taken apart, but a CSV record must not run into the next one. */
	bool quoted = false;
	for (size_t i = 0; l->reader == NULL && o->file_format == SL_ROWS_CSV && i < len; i++) {
		quoted ^= data[i] == '"';
		if (data[i] == '\n' && !quoted)
			return sl_err_set(err, SL_EDATA, "CSV: a line end outside of quotes at byte %zu", i);
	}
	if (quoted)
		return sl_err_set(err, SL_EDATA, "CSV: an unclosed quote");
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
		return sl_err_set(err, SL_ETOOBIG, "a record of %zu bytes is longer than the maximum of %zu", n,
				  SL__FILE_RECORD_MAX);
	if (memchr(l->text.data + start, '\0', n) != NULL)
		return sl_err_set(err, SL_EDATA, "a line of text cannot contain a NUL byte");
	return 0;
}

/* Make l->out of l->text. */
static int compress_text(struct file_lane *l, struct sl_err *err)
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

/* Make l->out of the items from *next on, as many as fit one append, and move *next past them. Items that are not
 * records go to `refused`. */
static int file_lane_fill(struct file_lane *l, const struct sl_sink_batch *batch, size_t *next,
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
	return compress_text(l, err);
}

/* ---- lanes ---- */

static int file_attach(void *ctx, void **lane, struct sl_err *err)
{
	struct file_sink *s = ctx;
	struct file_lane *l = sl__calloc(&s->env, 1, sizeof(*l));
	if (l == NULL)
		return sl__no_memory(err, s->path);
	int rc = file_lane_init(l, &s->env, &s->opts, err);
	if (rc == 0)
		*lane = l;
	else
		sl__free(&s->env, l);
	return rc;
}

static void file_detach(void *ctx, void *lane)
{
	struct file_sink *s = ctx;
	file_lane_fini(lane);
	sl__free(&s->env, lane);
}

/* ---- writing ---- */

static int file_write_batch(void *ctx, void *lane, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
			    struct sl_err *err)
{
	struct file_sink *s = ctx;
	struct file_lane *l = lane;
	struct sl__refusals refused = SL__REFUSALS_INIT;
	size_t done = 0;
	int rc = 0;
	while (rc == 0 && done < batch->n && refused.stop == SIZE_MAX) {
		size_t end = done;
		rc = file_lane_fill(l, batch, &end, &refused, err);
		if (rc == 0 && l->out->len > 0) {
			/* One lane at a time. */
			sl__lock(&s->mu);
			while (s->busy && !s->cancelled)
				(void)sl__wait(&s->env, &s->freed, &s->mu, SL_FOREVER);
			bool cancelled = s->cancelled;
			s->busy |= !cancelled;
			sl__unlock(&s->mu);
			if (cancelled) {
				rc = sl_err_set(err, SL_ECANCELLED, "%s: the write was cancelled", s->path);
				(void)sl__sink_class(err, rc, SL_CLASS_TRANSIENT);
				break;
			}
			rc = sl__file_out_append(&s->out, l->out->data, l->out->len, err);
			sl__lock(&s->mu);
			s->busy = false;
			sl__signal(&s->freed);
			sl__unlock(&s->mu);
			/* A file that cannot be written takes nothing from any lane: the data is kept until it can. */
			if (rc != 0 && rc != SL_ENOMEM)
				(void)sl__sink_class(err, rc, SL_CLASS_FATAL);
		}
		if (rc == 0)
			done = end;
	}
	return sl__refusals_reply(&refused, done, reply, rc, err);
}

static void file_cancel(void *ctx)
{
	struct file_sink *s = ctx;
	sl__lock(&s->mu);
	s->cancelled = true;
	sl__broadcast(&s->freed);
	sl__unlock(&s->mu);
}

/* ---- the handle ---- */

static const char *file_target(void *ctx)
{
	return ((struct file_sink *)ctx)->target;
}

static void file_close(void *ctx)
{
	struct file_sink *s = ctx;
	struct sl_env env = s->env;
	sl__file_out_close(&s->out);
	file_lane_fini(&s->header);
	sl__buf_fini(&s->header_text);
	sl__sink_free_opts(&s->opts, &env);
	sl__cond_fini(&s->freed);
	sl__mutex_fini(&s->mu);
	sl__free(&env, s->target);
	sl__free(&env, s->path);
	sl__free(&env, s);
}

static const struct sl_sink_ops file_ops = {.version = SL_SINK_VERSION,
					    .name = "file",
					    .attach = file_attach,
					    .detach = file_detach,
					    .write = file_write_batch,
					    .cancel = file_cancel,
					    .close = file_close,
					    .target = file_target};

static int build_file_sink(struct file_sink *s, const char *path, const struct sl_sink_opts *opts, struct sl_err *err)
{
	const struct sl_sink_opts *o = &s->opts;
	s->path = sl__strdup(&s->env, path);
	s->target = sl__asprintf(&s->env, "file:%s", path);
	if (s->path == NULL || s->target == NULL)
		return sl__no_memory(err, path);
	int rc = sl__sink_copy_opts(&s->opts, opts, &s->env, err);
	if (rc != 0)
		return rc;
	/* Check the path and the options. */
	if (path[0] == '\0' || path[strlen(path) - 1] == '/')
		return sl_err_set(err, SL_EINVAL, "file: missing file name; give file:PATH");
	rc = sl_check_local_path("file", path, err);
	if (rc != 0)
		return rc;
	if (o->format != o->file_format && o->n_columns == 0)
		return sl_err_set(err, SL_EINVAL, "file: columns: missing; they are needed to turn %s into %s",
				  o->format == SL_ROWS_CSV ? "CSV" : "JSON", o->format == SL_ROWS_CSV ? "JSON" : "CSV");
	rc = file_lane_init(&s->header, &s->env, o, err);
	if (rc != 0)
		return rc;
	/* The names of the columns as the first line of CSV files. */
	if (o->file_format == SL_ROWS_CSV && o->n_columns > 0) {
		struct sl__field *names = sl__calloc(&s->env, o->n_columns, sizeof(*names));
		if (names == NULL)
			return sl__no_memory(err, s->path);
		for (size_t i = 0; i < o->n_columns; i++)
			names[i] = (struct sl__field){
				.text = o->columns[i], .len = strlen(o->columns[i]), .kind = SL__FIELD_TEXT};
		sl__row_put_csv(&s->header.text, names, o->n_columns);
		sl__free(&s->env, names);
		(void)sl__buf_append(&s->header.text, "\n", 1);
		(void)sl__buf_append(&s->header_text, s->header.text.data, s->header.text.len);
		if (s->header.text.failed != 0 || s->header_text.failed != 0)
			return sl__no_memory(err, s->path);
		rc = compress_text(&s->header, err);
		if (rc != 0)
			return rc;
	}
	/* Open the file. */
	s->out.path = s->path;
	s->out.kind = o->zstd_level > 0 ? SL__FILE_ZSTD : o->file_format == SL_ROWS_CSV ? SL__FILE_CSV : SL__FILE_LINES;
	s->out.rotate_bytes = o->rotate_bytes;
	s->out.rotate_ms = o->rotate_ms;
	if (s->header_text.len > 0) {
		s->out.header = s->header.out->data;
		s->out.header_len = s->header.out->len;
		s->out.header_text = s->header_text.data;
		s->out.header_text_len = s->header_text.len;
	}
	return sl__file_out_open(&s->out, err);
}

int sl_sink_file_open(sl_sink *out, const char *path, const struct sl_sink_opts *opts, struct sl_err *err)
{
	struct sl_env env;
	int rc = sl__sink_check_opts(opts, SL__SINK_ROWS | SL__SINK_FILE, "file:", &env, err);
	if (rc != 0)
		return rc;
	if (path == NULL)
		return sl_err_set(err, SL_EINVAL, "file: missing file name; give file:PATH");
	struct file_sink *s = sl__calloc(&env, 1, sizeof(*s));
	if (s == NULL)
		return sl__no_memory(err, path);
	s->env = env;
	s->out.fd = -1;
	s->out.env = &s->env;
	sl__buf_init(&s->header_text, &s->env);
	sl__mutex_init(&s->mu);
	sl__cond_init(&s->freed);
	rc = build_file_sink(s, path, opts, err);
	if (rc != 0)
		file_close(s);
	else
		*out = (sl_sink){.ops = &file_ops, .ctx = s};
	return rc;
}
