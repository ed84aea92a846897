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

static int attach(void *ctx, void **lane, struct sl_err *err)
{
	struct file_sink *s = ctx;
	struct sl__file_lane *l = sl__calloc(&s->env, 1, sizeof(*l));
	if (l == NULL)
		return sl_err_set(err, SL_ENOMEM, "%s: out of memory", s->path);
	int rc = sl__file_lane_init(l, &s->env, &s->opts, err);
	if (rc == 0)
		*lane = l;
	else
		sl__free(&s->env, l);
	return rc;
}

static void detach(void *ctx, void *lane)
{
	struct file_sink *s = ctx;
	sl__file_lane_fini(lane);
	sl__free(&s->env, lane);
}

/* ---- writing ---- */

static int take_file(struct file_sink *s, struct sl_err *err)
{
	sl__lock(&s->mu);
	while (s->busy && !s->cancelled)
		(void)sl__wait(&s->env, &s->freed, &s->mu, SL_FOREVER);
	bool cancelled = s->cancelled;
	s->busy |= !cancelled;
	sl__unlock(&s->mu);
	return cancelled ? sl_err_set(err, SL_ECANCELLED, "%s: the write was cancelled", s->path) : 0;
}

static void give_file(struct file_sink *s)
{
	sl__lock(&s->mu);
	s->busy = false;
	sl__signal(&s->freed);
	sl__unlock(&s->mu);
}

/* A file that cannot be written takes nothing of anybody: the data is kept until it can. */
static int append(struct file_sink *s, const struct sl__file_lane *l, struct sl_err *err)
{
	int rc = take_file(s, err);
	if (rc != 0)
		return sl__sink_class(err, rc, SL_CLASS_TRANSIENT);
	rc = sl__file_out_append(&s->out, l->out->data, l->out->len, err);
	give_file(s);
	return rc == 0 || rc == SL_ENOMEM ? rc : sl__sink_class(err, rc, SL_CLASS_FATAL);
}

static int write_batch(void *ctx, void *lane, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
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
			rc = append(s, l, err);
		if (rc == 0)
			done = end;
	}
	return sl__refusals_reply(&refused, done, reply, rc, err);
}

static void cancel(void *ctx)
{
	struct file_sink *s = ctx;
	sl__lock(&s->mu);
	s->cancelled = true;
	sl__broadcast(&s->freed);
	sl__unlock(&s->mu);
}

/* ---- the handle ---- */

static const char *target(void *ctx)
{
	return ((struct file_sink *)ctx)->target;
}

static void close_sink(void *ctx)
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
					    .attach = attach,
					    .detach = detach,
					    .write = write_batch,
					    .cancel = cancel,
					    .close = close_sink,
					    .target = target};

static int check(const char *path, const struct sl_sink_opts *o, struct sl_err *err)
{
	if (path == NULL || path[0] == '\0' || path[strlen(path) - 1] == '/')
		return sl_err_set(err, SL_EINVAL, "file: needs the name of a file");
	int local = sl_check_local_path("file", path, err);
	if (local != 0)
		return local;
	bool converts = o->format != o->file_format;
	if (converts && o->n_columns == 0)
		return sl_err_set(err, SL_EINVAL, "file: columns: name them to turn %s into %s",
				  o->format == SL_ROWS_CSV ? "CSV" : "JSON", o->format == SL_ROWS_CSV ? "JSON" : "CSV");
	return 0;
}

/* The names of the columns as the first line of CSV files. */
static int make_header(struct file_sink *s, struct sl_err *err)
{
	sl__buf_init(&s->header_text, &s->env);
	if (s->opts.file_format != SL_ROWS_CSV || s->opts.n_columns == 0)
		return sl__file_lane_init(&s->header, &s->env, &s->opts, err);
	struct sl__field *names = sl__calloc(&s->env, s->opts.n_columns, sizeof(*names));
	for (size_t i = 0; names != NULL && i < s->opts.n_columns; i++)
		names[i] = (struct sl__field){
			.text = s->opts.columns[i], .len = strlen(s->opts.columns[i]), .kind = SL__FIELD_TEXT};
	if (names != NULL) {
		sl__row_put_csv(&s->header_text, names, s->opts.n_columns);
		(void)sl__buf_append(&s->header_text, "\n", 1);
	}
	sl__free(&s->env, names);
	int rc = sl__file_lane_init(&s->header, &s->env, &s->opts, err);
	if (rc == 0 && (names == NULL || s->header_text.failed != 0))
		rc = sl_err_set(err, SL_ENOMEM, "%s: out of memory", s->path);
	return rc != 0 ? rc : sl__file_lane_text(&s->header, s->header_text.data, s->header_text.len, err);
}

static void prepare_out(struct file_sink *s)
{
	const struct sl_sink_opts *o = &s->opts;
	s->out = (struct sl__file_out){
		.env = &s->env,
		.path = s->path,
		.kind = o->zstd_level > 0               ? SL__FILE_ZSTD
			: o->file_format == SL_ROWS_CSV ? SL__FILE_CSV
							: SL__FILE_LINES,
		.rotate_bytes = o->rotate_bytes,
		.rotate_ms = o->rotate_ms,
		.fd = -1,
	};
	if (s->header_text.len == 0)
		return;
	s->out.header = s->header.out->data;
	s->out.header_len = s->header.out->len;
	s->out.header_text = s->header_text.data;
	s->out.header_text_len = s->header_text.len;
}

static int build(struct file_sink *s, const char *path, const struct sl_sink_opts *opts, struct sl_err *err)
{
	s->path = sl__strdup(&s->env, path);
	s->target = sl__asprintf(&s->env, "file:%s", path);
	if (s->path == NULL || s->target == NULL)
		return sl_err_set(err, SL_ENOMEM, "%s: out of memory", path);
	int rc = sl__sink_copy_opts(&s->opts, opts, &s->env, err);
	rc = rc != 0 ? rc : check(path, &s->opts, err);
	rc = rc != 0 ? rc : make_header(s, err);
	if (rc != 0)
		return rc;
	prepare_out(s);
	return sl__file_out_open(&s->out, err);
}

int sl_sink_file_open(sl_sink *out, const char *path, const struct sl_sink_opts *opts, struct sl_err *err)
{
	struct sl_env env;
	int rc = sl__sink_check_opts(opts, SL__SINK_ROWS | SL__SINK_FILE, "file:", err);
	rc = rc != 0 ? rc : sl__env_init(&env, SL_OPT_HAS(opts, env) ? opts->env : NULL, err);
	if (rc != 0)
		return rc;
	if (path == NULL)
		return sl_err_set(err, SL_EINVAL, "file: needs the name of a file");
	struct file_sink *s = sl__calloc(&env, 1, sizeof(*s));
	if (s == NULL)
		return sl_err_set(err, SL_ENOMEM, "%s: out of memory", path);
	s->env = env;
	s->out.fd = -1;
	s->out.env = &s->env;
	sl__mutex_init(&s->mu);
	sl__cond_init(&s->freed);
	rc = build(s, path, opts, err);
	if (rc != 0)
		close_sink(s);
	else
		*out = (sl_sink){.ops = &file_ops, .ctx = s};
	return rc;
}
