/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker: the runs of a partition, row by row, into columns, and a row group at a time into a Parquet file. Every row
 * is inspected here: its number must be the next one, from the partition's first to its last, and the runs must end
 * where their records do. Only then is a guess (run.h) known to be right; whatever is wrong with a guessed run, be it
 * one bad row, only says that the input must be cut record by record.
 */
#include "pipeline/export/export.h"
#include "pipeline/holes.h"

#define U(x) ((unsigned long long)(x))

struct sl__builder {
	struct sl__export_job *job;
	struct sl__row_reader *reader;
	struct sl__table table;
	struct sl__field *fields;
	char *buf; /* of the object at hand */
};

/* A partition on its way. */
struct build {
	struct sl__builder *w;
	sl_parquet_writer *writer;
	struct sl__object *object;
	const struct sl_pipeline_element *element;
	struct sl__run *run;
	const char *at; /* in the run */
	size_t bad_at;  /* the next of run->bad */
	uint64_t n_bad; /* rows of this run so far */
	uint64_t next;  /* the number that must come */
};

/* ---- the worker ---- */

int sl__builder_new(struct sl__export_job *job, struct sl__builder **out, struct sl_err *err)
{
	const struct sl_env *env = &job->e->env;
	const struct sl__layout *l = &job->layout;
	const struct sl__row_opts opts = {.env = env,
					  .csv = l->csv,
					  .columns = (const char *const *)l->names,
					  .n_columns = l->n_names,
					  .delimiter = l->delimiter};
	struct sl__builder *w = sl__calloc(env, 1, sizeof(*w));
	if (w == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for a worker");
	w->job = job;
	w->fields = sl__calloc(env, SL_MAX(l->n_names, (size_t)1), sizeof(*w->fields));
	w->buf = sl__alloc(env, SL__OBJECT_BUF);
	int rc = w->fields == NULL || w->buf == NULL ? sl_err_set(err, SL_ENOMEM, "out of memory for a worker") : 0;
	if (rc == 0)
		rc = sl__row_reader_new(&w->reader, &opts, err);
	const struct sl__table_columns columns = {job->schema.columns, job->schema.n, l->of_field};
	if (rc == 0)
		rc = sl__table_init(&w->table, env, &columns, SL__EXPORT_ROW_GROUP_ROWS, err);
	if (rc != 0) {
		sl__builder_free(w);
		return rc;
	}
	*out = w;
	return 0;
}

void sl__builder_free(struct sl__builder *w)
{
	if (w == NULL)
		return;
	const struct sl_env *env = &w->job->e->env;
	sl__table_fini(&w->table);
	sl__row_reader_free(w->reader);
	sl__free(env, w->fields);
	sl__free(env, w->buf);
	sl__free(env, w);
}

char *sl__builder_buf(struct sl__builder *w)
{
	return w->buf;
}

/* ---- rows ---- */

static int put_group(struct build *b, struct sl_err *err)
{
	struct sl__table *t = &b->w->table;
	if (t->n == 0)
		return 0;
	int rc = sl_parquet_writer_put(b->writer, sl__table_values(t), t->n, err);
	b->object->rows += t->n;
	sl__table_clear(t);
	return rc;
}

/* Of the row at hand; of a guess, which is never reported, only within the run. */
static uint64_t line_at_hand(const struct build *b)
{
	uint64_t line = b->run->line;
	for (const char *p = b->run->text; (p = memchr(p, '\n', (size_t)(b->at - p))) != NULL; p++)
		line++;
	return line;
}

/* The number of the row that was added last. */
static inline uint64_t last_number(const struct build *b)
{
	const struct sl__table *t = &b->w->table;
	const struct sl__table_column *c = &t->columns[b->w->job->layout.sequence_column];
	if (c->as.kind == SL_PARQUET_INT64)
		return (uint64_t)((const int64_t *)(const void *)c->values)[t->n - 1];
	return (uint64_t)(int64_t)((const int32_t *)(const void *)c->values)[t->n - 1];
}

/* A row of len bytes that does not fit its columns. It counts; it is diverted, or ends the build. */
static int count_bad_row(struct build *b, size_t len, const struct sl_err *why, struct sl_err *err)
{
	struct sl__export_job *job = b->w->job;
	const struct sl_record row = {.data = b->at, .len = len, .line = line_at_hand(b)};
	if (why->code != SL_EDATA || job->e->o.bad_rows != SL_EXPORT_BAD_ROWS_DIVERT || b->run->guessed) {
		*err = *why;
		return why->code != SL_EDATA ? why->code : sl_err_wrap(err, why->code, "line %llu", U(row.line));
	}
	b->object->bad_rows++;
	if (++b->n_bad <= b->run->diverted) /* an earlier attempt diverted it */
		return 0;
	int rc = sl__job_divert(job, &row, why, err);
	if (rc == 0)
		b->run->diverted = b->n_bad;
	return rc;
}

/* The text of a run, row by row. */
static int build_run(struct build *b, struct sl_err *err)
{
	struct sl__builder *w = b->w;
	const struct sl__table *t = &w->table;
	const char *end = b->run->text + b->run->len;
	b->bad_at = 0;
	b->n_bad = 0;
	sl__table_input(&w->table, b->run->text, end);
	for (b->at = b->run->text; b->at < end;) {
		struct sl_err why;
		size_t used = 0, len = 0;
		int rc;
		bool marked = b->bad_at < b->run->n_bad && b->run->bad[b->bad_at].at == (size_t)(b->at - b->run->text);
		if (SL_UNLIKELY(marked)) { /* the cutter found it to be invalid */
			const struct sl__bad_record *mark = &b->run->bad[b->bad_at++];
			why = (struct sl_err)SL_ERR_INIT;
			rc = sl_err_set(&why, SL_EDATA, "%s", mark->why);
			used = mark->used;
			len = mark->used - 1;
		} else {
			struct sl__row_line line = {.text = b->at, .left = (size_t)(end - b->at)};
			rc = sl__row_next(w->reader, &line, w->fields, &why);
			len = line.len;
			used = line.used;
			if (SL_UNLIKELY(rc == SL__ROW_BLANK)) {
				b->at += used;
				continue;
			}
			if (SL_LIKELY(rc == 0))
				rc = sl__table_add(&w->table, w->fields, &why);
		}
		if (SL_UNLIKELY(rc != 0)) {
			if ((rc = count_bad_row(b, len, &why, err)) != 0)
				return rc;
		} else if (SL_UNLIKELY(last_number(b) != b->next)) {
			uint64_t number = last_number(b);
			return sl_err_set(err, number > b->next ? SL_EGAP : SL_EDUPLICATE,
					  "line %llu, column %.100s: %llu where %llu is next", U(line_at_hand(b)),
					  w->job->layout.names[w->job->layout.sequence_field], U(number), U(b->next));
		}
		b->next++;
		b->at += used;
		if ((t->n == t->max || t->bytes >= (size_t)SL__EXPORT_ROW_GROUP_BYTES) && (rc = put_group(b, err)) != 0)
			return rc;
	}
	if (b->next != b->element->last + 1)
		return sl_err_set(err, SL_EGAP, "the rows end with %llu where %llu is the last", U(b->next - 1),
				  U(b->element->last));
	return 0;
}

/* ---- the file ---- */

static int take_runs(struct build *b, const struct sl_pipeline_partition *p, struct sl_err *err)
{
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < p->n_elements; i++) {
		const struct sl_pipeline_element *e = b->element = &p->elements[i];
		b->run = e->data;
		if (b->run->hole) { /* numbers without a row; each hole is one element, so the ranges do not touch */
			sl__holes_put(&b->object->hole_text, e->first, e->last);
			b->object->holes += e->last - e->first + 1;
			b->next = e->last + 1;
			if (b->object->hole_text.failed != 0)
				rc = sl_err_set(err, SL_ENOMEM, "out of memory for the holes of a partition");
		} else if (b->run->values != NULL) {
			/* Typed rows, which rows.c has checked; their sequences are those of the run. */
			struct sl__table *t = &b->w->table;
			for (size_t k = 0; rc == 0 && k < b->run->n_rows; k++) {
				rc = sl__table_add_values(t, b->run->values + k * t->n_columns, err);
				if (rc == 0 && (t->n == t->max || t->bytes >= (size_t)SL__EXPORT_ROW_GROUP_BYTES))
					rc = put_group(b, err);
			}
			b->next = e->last + 1;
		} else {
			rc = build_run(b, err);
		}
		if (rc != 0 && b->run->guessed && rc != SL_ENOMEM && err->sys_errno == 0) {
			atomic_store(&b->w->job->guess_wrong, true);
			rc = sl_err_set(err, SL_ECANCELLED, "to be cut record by record");
		}
	}
	sl__table_input(&b->w->table, NULL, NULL);
	return rc;
}

int sl__builder_build(struct sl__builder *w, const struct sl_pipeline_partition *p, struct sl__object **out,
		      struct sl_err *err)
{
	struct sl__export_job *job = w->job;
	struct build b = {.w = w, .next = p->start};
	const struct sl_parquet_writer_opts opts = {SL_PARQUET_WRITER_OPTS_INIT,
						    .env = &job->e->env,
						    .zstd_level = job->schema.zstd_level,
						    .row_group_rows = SL__EXPORT_ROW_GROUP_ROWS,
						    .row_group_bytes = SL__EXPORT_ROW_GROUP_BYTES,
						    .check_utf8 = SL_OFF}; /* the reader of rows has checked it */
	const struct sl__object like = {.start = p->start,
					.end = p->end,
					.late = p->n_elements > 0 &&
						((const struct sl__run *)p->elements[0].data)->late,
					.buf = w->buf};
	sl__table_clear(&w->table);
	int rc = sl__object_new(&b.object, job->e, job->dataset.partition_size, &like, err);
	if (rc != 0)
		return rc;
	rc = sl_parquet_writer_new(&b.writer, job->schema.columns, job->schema.n, &opts, sl__object_write, b.object,
				   err);
	if (rc != 0)
		goto fail;
	if ((rc = take_runs(&b, p, err)) != 0)
		goto fail;
	b.object->input_end = b.run != NULL ? b.run->end : 0;
	if ((rc = put_group(&b, err)) != 0)
		goto fail;
	if ((rc = sl_parquet_writer_finish(b.writer, err)) != 0)
		goto fail;
	sl__export_step(job->e, "built", p->start);
	if ((rc = sl__object_finish(b.object, err)) != 0)
		goto fail;
	sl_parquet_writer_free(b.writer);
	sl__export_step(job->e, "temp_written", p->start);
	*out = b.object;
	return 0;
fail:
	sl_parquet_writer_free(b.writer);
	sl__object_free(b.object);
	return rc;
}
