/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file sink. A lane makes the lines of its batch in its own memory, and compresses them; then it waits for the
 * file, which one lane at a time appends to.
 *
 * A record that cannot be written as a line is refused alone: the others of its batch are written (sink/refusal.h).
 */
#include "sink/file_lane.h"

struct file_sink {
	struct sl_env env;
	struct sl_sink_opts opts;
	char *path, *target;
	struct sl__file_lane header; /* its out: what every file begins with, compressed when that is asked for */
	struct sl__buf header_text;
	/* mu guards busy and cancelled; `out` belongs to the lane that has set busy. */
	sl__mutex mu;
	sl__cond freed;
	bool busy, cancelled;
	struct sl__file_out out;
};

/* ---- lanes ---- */

static int file_attach(void *ctx, void **lane, struct sl_err *err)
{
	struct file_sink *s = ctx;
	struct sl__file_lane *l = sl__calloc(&s->env, 1, sizeof(*l));
	if (l == NULL)
		return sl__no_memory(err, s->path);
	int rc = sl__file_lane_init(l, &s->env, &s->opts, err);
	if (rc == 0)
		*lane = l;
	else
		sl__free(&s->env, l);
	return rc;
}

static void file_detach(void *ctx, void *lane)
{
	struct file_sink *s = ctx;
	sl__file_lane_fini(lane);
	sl__free(&s->env, lane);
}

/* ---- writing ---- */

/* A file that cannot be written takes nothing from any lane: the data is kept until it can. */
static int append_to_file(struct file_sink *s, const struct sl__file_lane *l, struct sl_err *err)
{
	/* One lane at a time. */
	sl__lock(&s->mu);
	while (s->busy && !s->cancelled)
		(void)sl__wait(&s->env, &s->freed, &s->mu, SL_FOREVER);
	bool cancelled = s->cancelled;
	s->busy |= !cancelled;
	sl__unlock(&s->mu);
	if (cancelled) {
		(void)sl_err_set(err, SL_ECANCELLED, "%s: the write was cancelled", s->path);
		return sl__sink_class(err, SL_ECANCELLED, SL_CLASS_TRANSIENT);
	}
	int rc = sl__file_out_append(&s->out, l->out->data, l->out->len, err);
	sl__lock(&s->mu);
	s->busy = false;
	sl__signal(&s->freed);
	sl__unlock(&s->mu);
	return rc == 0 || rc == SL_ENOMEM ? rc : sl__sink_class(err, rc, SL_CLASS_FATAL);
}

static int file_write_batch(void *ctx, void *lane, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
			    struct sl_err *err)
{
	struct file_sink *s = ctx;
	struct sl__file_lane *l = lane;
	struct sl__refusals refused = SL__REFUSALS_INIT;
	size_t done = 0;
	int rc = 0;
	while (rc == 0 && done < batch->n && refused.stop == SIZE_MAX) {
		size_t end = done;
		rc = sl__file_lane_fill(l, batch, &end, &refused, err);
		if (rc == 0 && l->out->len > 0)
			rc = append_to_file(s, l, err);
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
	sl__file_lane_fini(&s->header);
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

/* The names of the columns as the first line of CSV files. */
static int make_header(struct file_sink *s, struct sl_err *err)
{
	int rc = sl__file_lane_init(&s->header, &s->env, &s->opts, err);
	if (rc != 0 || s->opts.file_format != SL_ROWS_CSV || s->opts.n_columns == 0)
		return rc;
	struct sl__field *names = sl__calloc(&s->env, s->opts.n_columns, sizeof(*names));
	if (names == NULL)
		return sl__no_memory(err, s->path);
	for (size_t i = 0; i < s->opts.n_columns; i++)
		names[i] = (struct sl__field){
			.text = s->opts.columns[i], .len = strlen(s->opts.columns[i]), .kind = SL__FIELD_TEXT};
	sl__row_put_csv(&s->header_text, names, s->opts.n_columns);
	(void)sl__buf_append(&s->header_text, "\n", 1);
	sl__free(&s->env, names);
	if (s->header_text.failed != 0)
		return sl__no_memory(err, s->path);
	return sl__file_lane_text(&s->header, s->header_text.data, s->header_text.len, err);
}

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
		return sl_err_set(err, SL_EINVAL, "file: needs the name of a file");
	rc = sl_check_local_path("file", path, err);
	if (rc != 0)
		return rc;
	if (o->format != o->file_format && o->n_columns == 0)
		return sl_err_set(err, SL_EINVAL, "file: columns: name them to turn %s into %s",
				  o->format == SL_ROWS_CSV ? "CSV" : "JSON", o->format == SL_ROWS_CSV ? "JSON" : "CSV");
	rc = make_header(s, err);
	if (rc != 0)
		return rc;
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
	int rc = sl__sink_check_opts(opts, SL__SINK_ROWS | SL__SINK_FILE, "file:", err);
	if (rc == 0)
		rc = sl__env_init(&env, SL_OPT_HAS(opts, env) ? opts->env : NULL, err);
	if (rc != 0)
		return rc;
	if (path == NULL)
		return sl_err_set(err, SL_EINVAL, "file: needs the name of a file");
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
