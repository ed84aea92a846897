/* SPDX-License-Identifier: Apache-2.0 */
/* One call of an export: what it opens, its pipeline, its dead letters, and the recheck of recorded holes. */
#include "pipeline/export/export.h"

#include <stdio.h>

#include "format/csv.h"
#include "format/row.h"
#include "pipeline/audit/catalog.h"
#include "pipeline/holes.h"

#define DELIVER_MS 10000

/* ---- the catalog ---- */

void sl__dataset_fini(const struct sl_env *env, struct sl__dataset_state *d)
{
	sl__free(env, d->sequence);
	sl__free(env, d->schema);
	*d = (struct sl__dataset_state){.known = false};
}

struct load {
	const struct sl_env *env;
	struct sl__dataset_state *out;
};

static int load_one(const struct sl_dataset *d, void *ctx)
{
	const struct load *l = ctx;
	struct sl__dataset_state *out = l->out;
	*out = (struct sl__dataset_state){.known = true,
					  .partition_size = d->partition_size,
					  .events = d->events,
					  .start = d->start,
					  .checkpoint = d->checkpoint,
					  .sequence = sl__strdup(l->env, d->sequence_column),
					  .schema = sl__strdup(l->env, d->schema)};
	return out->sequence != NULL && out->schema != NULL ? 0 : SL_ENOMEM;
}

int sl__export_catalog(struct sl_export *e, bool create, sl_catalog **out, struct sl_err *err)
{
	const struct sl_catalog_opts opts = {SL_CATALOG_OPTS_INIT, .env = &e->env, .create = create ? SL_ON : SL_OFF};
	return sl_catalog_open(out, e->o.catalog, &opts, err);
}

static void forward_outbox_step(const char *step, uint64_t event, void *ctx)
{
	sl__export_step(ctx, step, event);
}

/* Open the catalog, take the dataset's lease, and load what is known of the dataset. */
static int open_job_catalog(struct sl__export_job *job, struct sl_err *err)
{
	struct sl_export *e = job->e;
	int rc = sl__export_mkdirs(&e->env, e->o.to, err);
	if (rc != 0)
		return rc;
	if ((rc = sl__export_catalog(e, true, &job->catalog, err)) != 0)
		return rc;
	if ((rc = sl_catalog_lease_acquire(job->catalog, e->o.dataset, NULL, &job->lease, err)) != 0)
		return rc;
	struct load l = {.env = &e->env, .out = &job->dataset};
	job->dataset = (struct sl__dataset_state){.known = false};
	rc = sl_catalog_datasets(job->catalog, e->o.dataset, load_one, &l, err);
	if (rc == SL_ENOENT)
		return 0;
	if (rc == SL_ENOMEM)
		return sl_err_set(err, SL_ENOMEM, "out of memory for a dataset");
	return rc;
}

/* ---- what the dataset is ---- */

static int differs(const struct sl_export *e, const char *field, const char *has, struct sl_err *err)
{
	return sl_err_set(err, SL_ECONFLICT, "%s: the dataset %s has %s", field, e->o.dataset, has);
}

/* Once something is committed, the options must agree with the dataset. */
static int check_same_dataset(struct sl__export_job *job, struct sl_err *err)
{
	const struct sl_export *e = job->e;
	const struct sl__dataset_state *d = &job->dataset;
	char text[32];
	int rc = sl__schema_parse(&job->schema, &e->env, d->schema, err);
	if (rc != 0)
		return rc;
	if (e->o.partition_size != 0 && (uint64_t)e->o.partition_size != d->partition_size) {
		(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)d->partition_size);
		return differs(e, "partition_size", text, err);
	}
	if (e->o.sequence != NULL && strcmp(e->o.sequence, d->sequence) != 0)
		return differs(e, "sequence", d->sequence, err);
	if (e->o.zstd_level != 0 && e->o.zstd_level != job->schema.zstd_level) {
		(void)snprintf(text, sizeof(text), "%d", (int)job->schema.zstd_level);
		return differs(e, "zstd_level", text, err);
	}
	if (e->given.n == 0)
		return 0;

	/* The columns are compared as text. */
	struct sl__buf has SL_CLEANUP(sl__buf_fini), wanted SL_CLEANUP(sl__buf_fini);
	struct sl__schema given = e->given;
	given.zstd_level = job->schema.zstd_level;
	sl__buf_init(&has, &e->env);
	sl__buf_init(&wanted, &e->env);
	sl__schema_put(&has, &job->schema);
	sl__schema_put(&wanted, &given);
	bool same = has.failed == 0 && wanted.failed == 0 && strcmp(sl__buf_str(&has), sl__buf_str(&wanted)) == 0;
	return same ? 0 : differs(e, "columns", "other columns", err);
}

/* Of a dataset without a commit: the schema, the partition size and the sequence of the options, or the defaults. */
static int choose_dataset(struct sl__export_job *job, struct sl_err *err)
{
	const struct sl_export *e = job->e;
	struct sl__dataset_state *d = &job->dataset;
	int rc = e->given.n > 0 ? sl__schema_copy(&job->schema, &e->env, e->given.columns, e->given.n, err)
				: sl__input_schema(&job->input, e->o.sequence, &job->schema, err);
	if (rc != 0)
		return rc;
	job->schema.zstd_level = e->o.zstd_level != 0 ? e->o.zstd_level : 3;
	d->partition_size = e->o.partition_size != 0 ? (uint64_t)e->o.partition_size : 250000;
	d->sequence = sl__strdup(&e->env, e->o.sequence != NULL ? e->o.sequence : job->schema.columns[0].name);
	return d->sequence != NULL ? 0 : sl_err_set(err, SL_ENOMEM, "out of memory for a dataset");
}

static int define_dataset(struct sl__export_job *job, struct sl_err *err)
{
	const struct sl__dataset_state *d = &job->dataset;
	struct sl__buf text SL_CLEANUP(sl__buf_fini);
	sl__buf_init(&text, &job->e->env);
	sl__schema_put(&text, &job->schema);
	if (text.failed != 0)
		return sl_err_set(err, SL_ENOMEM, "out of memory for a schema");
	const struct sl_dataset dataset = {.struct_size = sizeof(dataset),
					   .name = job->e->o.dataset,
					   .partition_size = d->partition_size,
					   .sequence_column = d->sequence,
					   .schema = sl__buf_str(&text)};
	return sl_catalog_define(job->catalog, job->lease, &dataset, err);
}

static int sweep_last_partition(const struct sl_catalog_partition *p, void *ctx)
{
	struct sl__export_job *job = ctx;
	if (p->end == job->dataset.checkpoint && p->type != SL_AUDIT_LATE)
		sl__store_sweep(job->e, p->path, p->start, p->end);
	return 0;
}

int sl__job_open(struct sl__export_job *job, struct sl_export *e, struct sl_err *err)
{
	struct sl__dataset_state *d = &job->dataset;
	job->e = e;
	sl__mutex_init(&job->letters_mu);
	int rc = open_job_catalog(job, err);
	if (rc != 0)
		return rc;
	bool committed = d->known && d->events > 0;
	if (!committed)
		sl__dataset_fini(&e->env, d); /* what was only defined may be defined again */
	rc = sl__input_open(&job->input, e, d->sequence, committed ? d->checkpoint + 1 : 0, err);
	sl__lock(&e->mu);
	e->progress.input_total = job->input.total;
	sl__unlock(&e->mu);
	if (rc != 0)
		return rc;
	job->records_gaps = e->o.gaps == SL_EXPORT_GAPS_RECORD ||
			    (e->o.gaps == SL_EXPORT_GAPS_DEFAULT && job->input.source.records_gaps);
	rc = committed ? check_same_dataset(job, err) : choose_dataset(job, err);
	if (rc != 0)
		return rc;

	/* How records map to columns. */
	struct sl__layout_opts layout = {.env = &e->env,
					 .csv = job->input.csv,
					 .delimiter = e->o.delimiter,
					 .schema = &job->schema,
					 .sequence = d->sequence,
					 .max_record_bytes = (size_t)e->o.max_record_bytes};
	if (job->input.header) {
		rc = sl_records_columns(job->input.records, &layout.names, &layout.n_names, err);
		if (rc != 0)
			return rc;
	}
	if ((rc = sl__layout_init(&job->layout, &layout, err)) != 0)
		return rc;
	if (!committed && (rc = define_dataset(job, err)) != 0)
		return rc;

	/* What an earlier run left: temporary files, and what its last commit replaced. */
	rc = sl__store_clean(e, committed ? sl__partition_number(d->checkpoint, d->partition_size) : 0, err);
	if (rc != 0)
		return rc;
	if (committed) {
		uint64_t from = d->checkpoint - d->checkpoint % d->partition_size;
		if ((rc = sl_catalog_partitions(job->catalog, e->o.dataset, from, 0, sweep_last_partition, job, err)) !=
		    0)
			return rc;
	}
	const struct sl_outbox_opts outbox = {SL_OUTBOX_OPTS_INIT,
					      .dir = e->o.to,
					      .endpoint = e->o.audit_endpoint,
					      .token_file = e->o.audit_token_file,
					      .ca_file = e->o.audit_ca_file,
					      .on_step = forward_outbox_step,
					      .on_step_ctx = e};
	return sl_outbox_start(job->catalog, job->lease, &outbox, &job->outbox, err);
}

void sl__job_close(struct sl__export_job *job)
{
	const struct sl_env *env = &job->e->env;
	sl_outbox_stop(job->outbox);
	sl_catalog_lease_release(job->lease);
	sl_catalog_close(job->catalog);
	sl_dlq_close(job->letters);
	sl__free(env, job->letter_target);
	if (job->rows.job != NULL) {
		sl__buf_fini(&job->rows.cells);
		sl__buf_fini(&job->rows.bytes);
	}
	sl__input_close(&job->input);
	sl__layout_fini(&job->layout);
	sl__schema_fini(&job->schema);
	sl__dataset_fini(env, &job->dataset);
	sl__mutex_fini(&job->letters_mu);
}

/* ---- dead letters ---- */

#define LETTER_TARGET_BYTES 4000

/* What the row of a letter is, in the words of 'sluice load', so that it can be sent to any target: its format and, of
 * CSV, its columns. */
static void put_target(struct sl__buf *text, const struct sl__export_job *job, bool csv)
{
	const struct sl__layout *l = &job->layout;
	const char *input = sl__input_name(&job->input);
	(void)sl__buf_printf(text, "{\"to\":\"\",\"format\":\"%s\",\"table\":\"%s\"", csv ? "csv" : "jsonl",
			     job->e->o.dataset);
	for (size_t i = 0; csv && i < l->n_names; i++) {
		(void)sl__buf_str_append(text, i == 0 ? ",\"columns\":[" : ",");
		sl__put_json_string(text, l->names[i], strlen(l->names[i]));
	}
	(void)sl__buf_str_append(text, csv ? "],\"input\":" : ",\"input\":");
	sl__put_json_string(text, input, SL_MIN(strlen(input), (size_t)1000));
	(void)sl__buf_printf(text, "%s}", csv ? ",\"file_format\":\"csv\"" : "");
}

/* A row of CSV as others read it: with commas, or as an object of strings. false: it is not such a row, or memory has
 * run out (out->failed); then it is kept as it was. */
static bool put_letter_row(struct sl__buf *out, const struct sl__export_job *job, const struct sl_record *row)
{
	const struct sl__layout *l = &job->layout;
	struct sl__csv s = sl__csv_of(row->data, row->len, l->delimiter);
	struct sl__csv_field f;
	size_t n = 0;
	int rc;
	char *scratch = sl__alloc(&job->e->env, row->len + 1);
	s.scratch = scratch;
	if (scratch == NULL) {
		out->failed = SL_ENOMEM;
		return false;
	}
	for (; (rc = sl__csv_next(&s, &f)) > 0 && n < l->n_names; n++) {
		(void)sl__buf_str_append(out, n > 0 ? "," : job->letters_json ? "{" : "");
		if (job->letters_json) {
			sl__put_json_string(out, l->names[n], strlen(l->names[n]));
			(void)sl__buf_append(out, ":", 1);
			if (f.len == 0 && !f.quoted)
				(void)sl__buf_str_append(out, "null");
			else
				sl__put_json_string(out, f.text, f.len);
		} else if (f.quoted || (f.len > 0 && memchr(f.text, ',', f.len) != NULL)) {
			(void)sl__buf_append(out, "\"", 1);
			for (size_t i = 0; i < f.len; i++)
				(void)sl__buf_append(out, f.text[i] == '"' ? "\"\"" : f.text + i,
						     f.text[i] == '"' ? 2 : 1);
			(void)sl__buf_append(out, "\"", 1);
		} else {
			(void)sl__buf_append(out, f.text, f.len);
		}
	}
	(void)sl__buf_str_append(out, job->letters_json ? "}" : "");
	sl__free(&job->e->env, scratch);
	return rc == 0 && n == l->n_names && out->failed == 0;
}

/* Open the dead letters before the first of them, and describe their rows for a redrive. */
static int open_letters(struct sl__export_job *job, struct sl_err *err) SL_REQUIRES(job->letters_mu)
{
	const struct sl_dlq_opts opts = {SL_DLQ_OPTS_INIT, .env = &job->e->env};
	if (job->letters != NULL)
		return 0;
	int rc = sl__export_mkdirs(&job->e->env, job->e->o.dead_letters, err);
	if (rc != 0)
		return rc;
	if (job->letter_target == NULL) {
		struct sl__buf text SL_CLEANUP(sl__buf_fini);
		sl__buf_init(&text, &job->e->env);
		put_target(&text, job, job->layout.csv);
		job->letters_json = job->layout.csv && text.len > LETTER_TARGET_BYTES;
		if (job->letters_json) {
			sl__buf_clear(&text);
			put_target(&text, job, false);
		}
		job->letter_target = sl__buf_take(&text);
		if (job->letter_target == NULL)
			return sl_err_set(err, SL_ENOMEM, "out of memory for a dead letter");
	}
	return sl_dlq_open(&job->letters, job->e->o.dead_letters, &opts, err);
}

int sl__job_divert(struct sl__export_job *job, const struct sl_record *row, const struct sl_err *why,
		   struct sl_err *err)
{
	char source[160];
	struct sl__buf text SL_CLEANUP(sl__buf_fini);
	sl__buf_init(&text, &job->e->env);
	(void)snprintf(source, sizeof(source), "export:%s", job->e->o.dataset);
	sl__lock(&job->letters_mu);
	int rc = open_letters(job, err);
	sl__unlock(&job->letters_mu);
	if (rc != 0)
		return sl_err_wrap(err, rc, "dead letters");
	struct sl_dlq_letter letter = {
		SL_DLQ_LETTER_INIT,    .source = source,
		.position = row->line, .error = why->msg,
		.code = why->code,     .error_class = SL_CLASS_POISON,
		.attempts = 1,         .target = job->letter_target,
		.item = row->data,     .item_len = row->len,
	};
	if (job->layout.csv && (job->letters_json || job->layout.delimiter != ',')) {
		if (put_letter_row(&text, job, row)) {
			letter.item = text.data;
			letter.item_len = text.len;
		} else if (text.failed != 0) {
			return sl_err_set(err, SL_ENOMEM, "dead letters: out of memory for a dead letter");
		}
	}
	rc = sl_dlq_put(job->letters, &letter, NULL, err);
	if (rc != 0)
		return sl_err_wrap(err, rc, "dead letters");
	return 0;
}

/* ---- the pipeline's callbacks ---- */

struct recheck {
	struct sl__export_job *job;
	struct sl_err *err;
	uint64_t found; /* rows, so far only the smallest of each partition */
};

/* The holes of a partition without those whose rows have been exported late. */
struct still_open {
	struct sl__buf *text;
	const char *holes; /* after first … last */
	bool has_hole;
	uint64_t first, last, end; /* of the hole at hand, and the end of the partition */
};

static void pass_hole(struct still_open *o)
{
	sl__holes_put(o->text, o->first, o->last);
	o->has_hole = sl__holes_next(&o->holes, &o->first, &o->last);
}

static int close_late(const struct sl_catalog_partition *p, void *ctx)
{
	struct still_open *o = ctx;
	if (p->start > o->end)
		return 1;
	if (p->type != SL_AUDIT_LATE)
		return 0;
	while (o->has_hole && o->last < p->start)
		pass_hole(o);
	if (!o->has_hole || p->start < o->first || p->end > o->last)
		return 0; /* not what was committed; verification says so */
	if (o->first < p->start)
		sl__holes_put(o->text, o->first, p->start - 1);
	o->first = p->end + 1;
	if (o->first > o->last)
		o->has_hole = sl__holes_next(&o->holes, &o->first, &o->last);
	return 0;
}

/* Has a row appeared in the holes of a partition that is not exported yet? */
static int recheck_one(const struct sl_catalog_partition *p, void *ctx)
{
	struct recheck *r = ctx;
	struct sl__export_job *job = r->job;
	const struct sl__export_source *source = &job->input.source;
	bool any = false;
	uint64_t found = 0;
	int rc = source->ops->present(p->hole_ranges, &any, &found, r->err, source->ctx);
	if (rc != 0 || !any)
		return rc;

	/* Query again, without the holes whose rows were exported late. */
	struct sl__buf text SL_CLEANUP(sl__buf_fini);
	sl__buf_init(&text, &job->e->env);
	struct still_open o = {.text = &text, .holes = p->hole_ranges, .end = p->end};
	o.has_hole = sl__holes_next(&o.holes, &o.first, &o.last);
	rc = sl_catalog_partitions(job->catalog, job->e->o.dataset, p->start, 0, close_late, &o, r->err);
	if (rc < 0)
		return rc;
	while (o.has_hole)
		pass_hole(&o);
	if (text.failed != 0)
		return sl_err_set(r->err, SL_ENOMEM, "out of memory for the holes of a partition");
	any = false;
	if (text.len > 0 && (rc = source->ops->present(sl__buf_str(&text), &any, &found, r->err, source->ctx)) != 0)
		return rc;
	if (!any)
		return 0;
	sl__log(&job->e->env, SL_LOG_ERROR, "export", "a row has appeared in a recorded hole",
		SL__F_STR("dataset", job->e->o.dataset), SL__F_U64("sequence", found), SL__F_STR("file", p->path));
	if (r->found++ == 0)
		(void)sl_err_set(r->err, SL_EGAP,
				 "%.60s %llu has appeared in the source after it was recorded as a hole: a backfill of "
				 "%llu to %llu exports it",
				 job->dataset.sequence, (unsigned long long)found, (unsigned long long)p->start,
				 (unsigned long long)p->end);
	return 0;
}

int sl__job_recheck(struct sl__export_job *job, struct sl_err *err)
{
	const struct sl_env *env = &job->e->env;
	struct recheck r = {.job = job, .err = err};
	if (job->input.source.ops == NULL || job->input.source.ops->present == NULL)
		return 0;
	int64_t since_ms = sl__real_ms(env) - SL__HOLES_RECHECK_MS;
	job->recheck_ns = sl__deadline_ns(env, SL__HOLES_RECHECK_EVERY_MS);
	const struct sl__partition_walk walk = {
		.dataset = job->e->o.dataset, .with_holes = true, .since_ms = since_ms, .fn = recheck_one, .ctx = &r};
	int rc = sl__catalog_walk_partitions(job->catalog, &walk, err);
	if (rc != 0)
		return rc;
	return r.found > 0 ? SL_EGAP : 0;
}

/* What is missing before a file that is followed may lie in rotated ones. SL_PIPELINE_END: it does not. */
static int read_before(struct sl__export_job *job, uint64_t next, uint64_t begins, struct sl_err *err)
{
	int rc = sl__input_before(&job->input, &job->layout, next, begins, err);
	if (rc == 0) {
		sl__cutter_take_back(&job->cutter, next);
		job->cutter.records = job->input.records;
	}
	return rc;
}

/* The records have ended. A database that is followed is asked again; a file may have a successor. */
static int next_of_records(struct sl__export_job *job, struct sl_pipeline_element *out, struct sl_err *err)
{
	for (;;) {
		uint64_t expected = job->cutter.any ? job->cutter.last + 1 : job->first;
		int rc = sl__cutter_next(&job->cutter, out, err);
		if (rc == 0 && job->input.begun) {
			job->input.begun = false;
			if (expected == 0 || out->first <= expected)
				return 0;
			rc = read_before(job, expected, out->first, err);
			if (rc == SL_PIPELINE_END)
				return 0;
			sl__run_free(out->data);
			if (rc != 0)
				return rc;
			continue;
		}
		if (rc != SL_PIPELINE_END || job->e->o.follow != SL_ON)
			return rc;
		if (job->input.source.ops == NULL) {
			if ((rc = sl__input_turn(&job->input, job->layout.names, job->layout.n_names, err)) != 0)
				return rc;
			job->cutter.records = job->input.records;
			continue;
		}
		if (!sl__input_pause(&job->input))
			return SL_PIPELINE_END;
		if (job->recheck_ns <= sl__mono_ns(&job->e->env) && (rc = sl__job_recheck(job, err)) != 0)
			return rc;
		uint64_t next = job->cutter.any ? job->cutter.last + 1 : job->cutter.first;
		if ((rc = sl__input_begin(&job->input, next, SL__EXPORT_NO_END, err)) != 0)
			return rc;
		job->cutter.records = job->input.records;
	}
}

/* A hole becomes an empty file for every whole partition in it: more than this is a sequence that has jumped. */
#define EMPTY_PARTITIONS_MAX 10000

/* As next_of_records, with a separate run for what is missing before one. */
static int next_with_holes(struct sl__export_job *job, struct sl_pipeline_element *out, struct sl_err *err)
{
	if (!job->has_pending) {
		int rc = job->e->o.rows != NULL ? sl__export_rows_next(job, &job->pending, err)
						: next_of_records(job, &job->pending, err);
		if (rc != 0)
			return rc;
		job->has_pending = true;
	}
	uint64_t expected = job->seen_any ? job->seen + 1 : job->first;
	if (!job->records_gaps || expected == 0 || job->pending.first <= expected) {
		*out = job->pending;
		job->has_pending = false;
		return 0;
	}

	/* The hole before the pending run, or a part of it: it ends with its partition, and where this run resumes. */
	uint64_t size = job->dataset.partition_size, first = expected, last = job->pending.first - 1;
	if ((last - first) / size > EMPTY_PARTITIONS_MAX)
		return sl_err_set(err, SL_EGAP,
				  "source: %llu to %llu are missing, more than %d partitions of %llu; export the rows "
				  "after this jump as another dataset",
				  (unsigned long long)first, (unsigned long long)last, EMPTY_PARTITIONS_MAX,
				  (unsigned long long)size);
	last = SL_MIN(last, sl__partition_end(first, size));
	if (first < job->first)
		last = SL_MIN(last, job->first - 1);
	struct sl__run *run = sl__calloc(&job->e->env, 1, sizeof(*run));
	if (run == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for a run of rows");
	*run = (struct sl__run){
		.env = &job->e->env, .hole = true, .line = ((const struct sl__run *)job->pending.data)->line};
	*out = (struct sl_pipeline_element){.first = first, .last = last, .data = run};
	return 0;
}

static int next_run(struct sl_pipeline_element *out, struct sl_err *err, void *ctx)
{
	struct sl__export_job *job = ctx;
	sl__map_reader();
	int rc = job->guessing ? sl__guesser_next(&job->guesser, out) : next_with_holes(job, out, err);
	if (rc == 0) {
		job->seen = out->last;
		job->seen_first = job->seen_any ? job->seen_first : out->first;
		job->seen_any = true;
	}
	if (!job->guessing || rc == 0 || rc == SL_PIPELINE_END)
		return rc;
	atomic_store(&job->guess_wrong, rc == SL_EAGAIN);
	return rc == SL_EAGAIN ? sl_err_set(err, SL_ECANCELLED, "to be cut record by record")
			       : sl_err_set(err, rc, "out of memory for a run of rows");
}

static void describe_run(const struct sl_pipeline_element *e, char *text, size_t n, void *ctx)
{
	const struct sl__export_job *job = ctx;
	const struct sl__run *run = e->data;
	text[0] = '\0';
	if (job->input.source.ops != NULL) /* its lines are internal */
		(void)snprintf(text, n, "column %s", job->dataset.sequence);
	else if (run != NULL && run->line != 0)
		(void)snprintf(text, n, "line %llu, column %s", (unsigned long long)run->line, job->dataset.sequence);
}

static void interrupt(void *ctx)
{
	struct sl__export_job *job = ctx;
	sl__export_interrupt(job->e, true);
}

static int worker_init(unsigned index, void **state, struct sl_err *err, void *ctx)
{
	struct sl__builder *w;
	(void)index;
	sl__map_reader();
	int rc = sl__builder_new(ctx, &w, err);
	if (rc == 0)
		*state = w;
	return rc;
}

static void worker_free(void *state, void *ctx)
{
	(void)ctx;
	sl__builder_free(state);
}

static int build_partition(void *state, const struct sl_pipeline_partition *p, void **out, struct sl_err *err,
			   void *ctx)
{
	struct sl__object *o;
	(void)ctx;
	int rc = sl__builder_build(state, p, &o, err);
	if (rc == 0)
		*out = o;
	return rc;
}

static int store_partition(void *state, const struct sl_pipeline_partition *p, void *out, void **ref,
			   struct sl_err *err, void *ctx)
{
	struct sl__export_job *job = ctx;
	(void)state;
	(void)p;
	(void)ref;
	return sl__object_store(out, job->e, job->lease, err);
}

void sl__job_count(struct sl__export_job *job, const struct sl__object *o)
{
	struct sl_export *e = job->e;
	struct sl_export_progress now;
	sl__lock(&e->mu);
	e->progress.checkpoint = o->end;
	e->progress.partitions++;
	e->progress.rows += o->rows;
	e->progress.bad_rows += o->bad_rows;
	e->progress.holes += o->holes;
	e->progress.bytes += o->bytes;
	if (job->input.source.ops == NULL)
		e->progress.input_bytes = SL_MAX(e->progress.input_bytes, o->input_end);
	now = e->progress;
	now.struct_size = sizeof(now);
	sl__unlock(&e->mu);
	if (e->o.on_progress != NULL)
		e->o.on_progress(&now, e->o.on_progress_ctx);
}

static int commit(const struct sl_pipeline_partition *p, void *out, void *ref, struct sl_err *err, void *ctx)
{
	struct sl__export_job *job = ctx;
	struct sl_catalog_partition row;
	(void)ref;
	sl__object_row(out, &row);
	sl__export_step(job->e, "before_commit", p->start);
	int rc = sl_catalog_commit(job->catalog, job->lease, &row, NULL, err);
	if (rc != 0)
		return rc;
	sl__export_step(job->e, "committed", p->start);
	sl__store_sweep(job->e, row.path, row.start, row.end);
	sl_outbox_wake(job->outbox);
	sl__job_count(job, out);
	return 0;
}

static void release_element(struct sl_pipeline_element *e, void *ctx)
{
	(void)ctx;
	sl__run_free(e->data);
}

static void release_output(void *out, void *ctx)
{
	(void)ctx;
	sl__object_free(out);
}

static const struct sl_pipeline_ops ops = {
	.version = SL_PIPELINE_OPS_VERSION,
	.next = next_run,
	.describe = describe_run,
	.interrupt = interrupt,
	.worker_init = worker_init,
	.worker_free = worker_free,
	.build = build_partition,
	.store = store_partition,
	.commit = commit,
	.release_element = release_element,
	.release_output = release_output,
};

/* ---- the pipeline ---- */

/* The pipeline that a stop reaches. */
static void set_pipeline(struct sl_export *e, sl_pipeline *p)
{
	sl__lock(&e->mu);
	e->pipeline = p;
	if (p != NULL && e->stop != SL_PIPELINE_GO)
		sl_pipeline_stop(p, e->stop);
	sl__unlock(&e->mu);
}

/* Where this run continues: after what is committed, also by an earlier pipeline of this call. */
static bool begins_at(struct sl__export_job *job, uint64_t *first)
{
	struct sl_export_progress now = {.struct_size = sizeof(now)};
	sl_export_get_progress(job->e, &now);
	uint64_t checkpoint = now.partitions > 0 ? now.checkpoint : job->dataset.checkpoint;
	*first = now.partitions > 0 || job->dataset.events > 0 ? checkpoint + 1 : 0;
	return *first != 0;
}

static int run_pipeline(struct sl__export_job *job, struct sl_err *err)
{
	struct sl_export *e = job->e;
	uint64_t first;
	bool resume = begins_at(job, &first);
	bool final = e->o.final == SL_ON ||
		     (e->o.final == SL_DEFAULT && job->input.source.ops == NULL && e->o.follow != SL_ON);
	const struct sl_pipeline_opts opts = {SL_PIPELINE_OPTS_INIT,
					      .env = &e->env,
					      .name = e->o.dataset,
					      .ops = &ops,
					      .ctx = job,
					      .partition_size = job->dataset.partition_size,
					      .begin = resume ? SL_PIPELINE_AT : SL_PIPELINE_ANYWHERE,
					      .first = first,
					      .final = final ? SL_ON : SL_OFF,
					      .workers = e->o.perf.workers,
					      .queue_size = e->o.perf.queue_size,
					      .retry_attempts = e->o.perf.retry_attempts,
					      .retry_backoff_ms = e->o.perf.retry_backoff_ms,
					      .queue_bytes = e->o.perf.queue_bytes};
	sl_pipeline *p;
	int rc = sl_pipeline_new(&p, &opts, err);
	if (rc != 0)
		return rc;
	set_pipeline(e, p);
	rc = sl_pipeline_run(p, NULL, err);
	set_pipeline(e, NULL);
	sl_pipeline_free(p);
	return rc;
}

void sl__job_init_cutter(struct sl__export_job *job, uint64_t first)
{
	job->cutter = (struct sl__cutter){.env = &job->e->env,
					  .layout = &job->layout,
					  .records = job->input.records,
					  .map = job->input.map.text,
					  .partition_size = job->dataset.partition_size,
					  .first = first,
					  .divert = job->e->o.bad_rows == SL_EXPORT_BAD_ROWS_DIVERT};
	job->cutter.until = SL__SEQUENCE_MAX;
	sl__buf_init(&job->cutter.text, &job->e->env);
	sl__buf_init(&job->cutter.bad, &job->e->env);
	sl__buf_init(&job->cutter.scratch, &job->e->env);
}

/* Export without reading every byte after the checkpoint, where that is possible. SL_EAGAIN: it is not. */
static int by_guesses(struct sl__export_job *job, struct sl_err *err)
{
	uint64_t first;
	struct sl_record record;
	size_t n;
	bool resume = begins_at(job, &first);
	int rc = sl_records_next(job->input.records, &record, 1, &n, err);
	if (rc != 0 || n == 0)
		return rc;

	/* Skip the records below first. If the first number cannot be read, guesses would fail anyway. */
	uint64_t from = record.offset, number = first;
	if (resume && record.bad == NULL) {
		struct sl__buf scratch SL_CLEANUP(sl__buf_fini);
		sl__buf_init(&scratch, &job->e->env);
		if (sl__layout_sequence(&job->layout, record.data, record.len, &scratch, &number) != NULL)
			number = first;
	}
	if (resume && number < first) {
		if ((rc = sl__input_begin(&job->input, 0, SL__EXPORT_NO_END, err)) != 0)
			return rc;
		sl__job_init_cutter(job, first);
		rc = sl__cutter_skip(&job->cutter, &from, err);
		sl__cutter_fini(&job->cutter);
		if (rc != 0)
			return rc == SL_PIPELINE_END ? 0 : rc;
	}

	job->guesser = (struct sl__guesser){.env = &job->e->env,
					    .layout = &job->layout,
					    .text = job->input.map.text,
					    .len = job->input.map.len,
					    .partition_size = job->dataset.partition_size,
					    .at = (size_t)from};
	rc = sl__guesser_init(&job->guesser, resume, first);
	job->guessing = true;
	if (rc == 0)
		rc = run_pipeline(job, err);
	job->guessing = false;
	sl__buf_fini(&job->guesser.scratch);
	if (rc == SL_PIPELINE_END)
		return 0;
	return atomic_load(&job->guess_wrong) && rc != 0 ? SL_EAGAIN : rc;
}

int sl__job_pipeline(struct sl__export_job *job, struct sl_err *err)
{
	if (job->input.map.text != NULL) {
		int rc = by_guesses(job, err);
		if (rc != SL_EAGAIN)
			return rc;
		sl__log(&job->e->env, SL_LOG_INFO, "export",
			"cannot split the file for parallel reading; reading it record by record",
			SL__F_STR("dataset", job->e->o.dataset), SL__F_STR("file", sl__input_name(&job->input)));
		sl__export_interrupt(job->e, false);
		if ((rc = sl__input_begin(&job->input, 0, SL__EXPORT_NO_END, err)) != 0)
			return rc;
	}
	/* Record by record. */
	int rc = 0;
	(void)begins_at(job, &job->first);
	job->result.sequential = true;
	job->seen_any = false; /* what the guesses returned and did not commit comes again */
	sl__job_init_cutter(job, job->first);
	/* A file that was rotated while no export ran may have no row yet. */
	if (job->input.begun && job->first != 0 && !sl__input_has_row(&job->input, &job->layout))
		rc = read_before(job, job->first, UINT64_MAX, err);
	if (rc >= 0)
		rc = run_pipeline(job, err);
	if (job->has_pending)
		sl__run_free(job->pending.data);
	job->has_pending = false;
	job->left = sl__cutter_left(&job->cutter) + job->rows.n - job->rows.at;
	sl__cutter_fini(&job->cutter);
	return rc;
}

int sl__job_deliver(struct sl__export_job *job, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	sl__lock(&job->e->mu);
	bool now = job->e->stop == SL_PIPELINE_NOW;
	sl__unlock(&job->e->mu);
	/* After a failure or an immediate stop, do not wait for a catalog, a disk or an endpoint that is unavailable. */
	int rc = sl_outbox_drain(job->outbox, now || err == NULL ? SL_NONE : DELIVER_MS, &why);
	if (rc == 0)
		return 0;
	if (rc == SL_ETIMEDOUT || sl_err_retryable(&why)) { /* they stay in the catalog, and go out later */
		sl__log(&job->e->env, SL_LOG_WARN, "export", "audit events are not delivered yet",
			SL__F_STR("dataset", job->e->o.dataset), SL__F_STR("error", why.msg));
		return 0;
	}
	if (err != NULL)
		*err = why;
	return sl_err_wrap(err, rc, "audit events");
}
