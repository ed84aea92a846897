/* SPDX-License-Identifier: Apache-2.0 */
/* The handle of an export: options, stop, progress. */
#include "pipeline/export/export.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- options ---- */

static int bad_export_option(struct sl_err *err, const char *field, const char *why)
{
	return sl_err_set(err, SL_EINVAL, "export: %s: %s", field, why);
}

static int check_source(struct sl_export_opts *o, struct sl_err *err)
{
	if (o->rows != NULL) {
		if (o->table != NULL || o->query != NULL)
			return bad_export_option(err, "rows", "not with a table or a query");
		if (o->n_columns == 0)
			return bad_export_option(err, "columns", "required with rows");
		if (o->bad_rows == SL_EXPORT_BAD_ROWS_DIVERT)
			return bad_export_option(err, "bad_rows", "rows of a callback cannot be diverted");
		if (o->from == NULL)
			o->from = "rows";
		return 0;
	}
	if (o->from == NULL || o->from[0] == '\0')
		return bad_export_option(err, "from", "required");
	bool database = strncmp(o->from, "postgres://", 11) == 0 || strncmp(o->from, "postgresql://", 13) == 0 ||
			strncmp(o->from, "sqlite:", 7) == 0;
	if (database && (o->table != NULL) == (o->query != NULL))
		return bad_export_option(err, "table", "a database needs either a table or a query");
	if (!database && (o->table != NULL || o->query != NULL))
		return bad_export_option(err, o->table != NULL ? "table" : "query", "only for a database");
	int rc = database ? 0 : sl_check_local_path("export: from", o->from, err);
	if (rc != 0)
		return rc;
	if ((unsigned)o->format > SL_EXPORT_JSON_LINES)
		return bad_export_option(err, "format", "unknown format");
	if (!database && o->format == SL_EXPORT_BY_NAME) {
		const char *dot = strrchr(o->from, '.');
		if (dot != NULL && strcmp(dot, ".csv") == 0)
			o->format = SL_EXPORT_CSV;
		else if (dot != NULL &&
			 (strcmp(dot, ".jsonl") == 0 || strcmp(dot, ".ndjson") == 0 || strcmp(dot, ".json") == 0))
			o->format = SL_EXPORT_JSON_LINES;
		else
			return bad_export_option(err, "format", "the name does not end in .csv or .jsonl; set format");
	}
	if (o->delimiter < 0 || o->delimiter == '"' || o->delimiter == '\n' || o->delimiter == '\r')
		return bad_export_option(err, "delimiter",
					 "must be an ASCII character other than a quote or a line end");
	if (o->max_record_bytes < 0 || o->max_record_bytes > (int64_t)64 << 20)
		return bad_export_option(err, "max_record_bytes", "must be at most 64 MiB");
	if (o->sample_records < 0)
		return bad_export_option(err, "sample_records", "negative");
	return 0;
}

static int check_dataset_and_run(const struct sl_export_opts *o, struct sl_err *err)
{
	if (o->to == NULL || o->to[0] == '\0')
		return bad_export_option(err, "to", "required");
	if (o->dataset == NULL)
		return bad_export_option(err, "dataset", "required");
	int rc = sl_check_local_path("export: to", o->to, err);
	if (rc != 0)
		return rc;
	if ((rc = sl_check_local_path("export: dead_letters", o->dead_letters, err)) != 0)
		return rc;
	if ((rc = sl_dataset_check_name(o->dataset, err)) != 0)
		return sl_err_wrap(err, rc, "export");
	if (o->partition_size < 0 || o->partition_size > (int64_t)1 << 32)
		return bad_export_option(err, "partition_size", "give 1 to 2^32");
	if (o->zstd_level < 0 || o->zstd_level > 19)
		return bad_export_option(err, "zstd_level", "1 to 19");
	if (o->n_columns > 0 && o->columns == NULL)
		return bad_export_option(err, "columns", "missing");
	if ((unsigned)o->follow > SL_OFF || (unsigned)o->final > SL_OFF || (unsigned)o->header > SL_OFF)
		return bad_export_option(err, "follow, final, header", "must be on or off");
	if (o->follow == SL_ON && o->final == SL_ON)
		return bad_export_option(err, "final",
					 "not with follow: a source that is followed has no end to close");
	if ((unsigned)o->gaps > SL_EXPORT_GAPS_RECORD)
		return bad_export_option(err, "gaps", "must be stop or record");
	if ((unsigned)o->bad_rows > SL_EXPORT_BAD_ROWS_DIVERT)
		return bad_export_option(err, "bad_rows", "must be stop or divert");
	if (o->poll_interval_ms < 0)
		return bad_export_option(err, "poll_interval_ms", "negative");
	if (o->perf.queue_bytes < 0)
		return bad_export_option(err, "perf.queue_bytes", "negative");
	return 0;
}

/* The handle owns the string, which may be NULL for lack of memory. */
static int keep_string(struct sl_export *e, const char **to, char *text, struct sl_err *err)
{
	if (text == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for an export");
	assert(e->n_strings < SL_COUNT(e->strings));
	e->strings[e->n_strings++] = text;
	*to = text;
	return 0;
}

/* Copy strings and columns, and make the paths that depend on others. */
static int keep_options(struct sl_export *e, struct sl_err *err)
{
	struct sl_export_opts *o = &e->o;
	const char **const texts[] = {&o->from,           &o->table,
				      &o->query,          &o->to,
				      &o->dataset,        &o->catalog,
				      &o->sequence,       &o->dead_letters,
				      &o->audit_endpoint, &o->audit_token_file,
				      &o->audit_ca_file};
	const struct sl_parquet_column *columns = o->columns;
	o->columns = NULL;
	int rc;
	for (size_t i = 0; i < SL_COUNT(texts); i++)
		if (*texts[i] != NULL && (rc = keep_string(e, texts[i], sl__strdup(&e->env, *texts[i]), err)) != 0)
			return rc;
	if (o->catalog == NULL &&
	    (rc = keep_string(e, &o->catalog, sl__asprintf(&e->env, "sqlite:%s/_catalog.db", o->to), err)) != 0)
		return rc;
	if (o->dead_letters == NULL &&
	    (rc = keep_string(e, &o->dead_letters, sl__asprintf(&e->env, "%s/_dead/%s", o->to, o->dataset), err)) != 0)
		return rc;
	if (o->n_columns > 0 && (rc = sl__schema_copy(&e->given, &e->env, columns, o->n_columns, err)) != 0)
		return rc;
	o->columns = e->given.columns;
	return 0;
}

int sl_export_new(sl_export **out, const struct sl_export_opts *opts, struct sl_err *err)
{
	struct sl_export_opts o;
	struct sl_env env;
	sl__opts_copy(&o, sizeof(o), opts);
	int rc = sl__env_init(&env, o.env, err);
	if (rc != 0)
		return rc;
	if ((rc = check_source(&o, err)) != 0)
		return rc;
	if ((rc = check_dataset_and_run(&o, err)) != 0)
		return rc;
	if (o.delimiter == 0)
		o.delimiter = ',';
	if (o.max_record_bytes == 0)
		o.max_record_bytes = (int64_t)16 << 20;
	if (o.sample_records == 0)
		o.sample_records = 10000;
	if (o.poll_interval_ms == 0)
		o.poll_interval_ms = 500;
	if (o.perf.workers == 0)
		o.perf.workers = 4;
	if (o.perf.queue_bytes == 0)
		o.perf.queue_bytes = (int64_t)256 << 20;

	struct sl_export *e = sl__calloc(&env, 1, sizeof(*e));
	if (e == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for an export");
	e->env = env;
	e->o = o;
	e->o.env = &e->env;
	sl__fork_guard_init(&e->guard);
	sl__mutex_init(&e->mu);
	e->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	rc = e->stop_fd >= 0 ? keep_options(e, err) : sl_err_set_errno(err, errno, "export: eventfd");
	if (rc != 0) {
		sl_export_free(e);
		return rc;
	}
	*out = e;
	return 0;
}

void sl_export_free(sl_export *e)
{
	if (e == NULL)
		return;
	struct sl_env env = e->env;
	if (e->stop_fd >= 0)
		(void)close(e->stop_fd);
	sl__schema_fini(&e->given);
	for (size_t i = 0; i < e->n_strings; i++)
		sl__free(&env, e->strings[i]);
	sl__mutex_fini(&e->mu);
	sl__fork_guard_fini(&e->guard);
	sl__free(&env, e);
}

/* ---- while it runs ---- */

/* Wake what waits for input, until sl__export_interrupt(e, false). */
static void wake_source(struct sl_export *e) SL_REQUIRES(e->mu)
{
	const uint64_t one = 1;
	if (e->source != NULL && e->source->ops->wake != NULL)
		e->source->ops->wake(e->source->ctx);
	ssize_t wrote = write(e->stop_fd, &one, sizeof(one)); /* full: it is readable already */
	(void)wrote;
}

void sl_export_stop(sl_export *e, enum sl_export_stop_mode mode)
{
	sl__lock(&e->mu);
	enum sl_pipeline_stop how = mode == SL_EXPORT_NOW ? SL_PIPELINE_NOW : SL_PIPELINE_DRAIN;
	e->stop = SL_MAX(e->stop, how);
	if (e->pipeline != NULL)
		sl_pipeline_stop(e->pipeline, how);
	wake_source(e);
	sl__unlock(&e->mu);
}

void sl__export_interrupt(struct sl_export *e, bool on)
{
	uint64_t ignored;
	sl__lock(&e->mu);
	e->interrupted = on;
	if (on) {
		wake_source(e);
	} else if (e->stop == SL_PIPELINE_GO) {
		ssize_t got = read(e->stop_fd, &ignored, sizeof(ignored));
		(void)got;
	}
	sl__unlock(&e->mu);
}

bool sl__export_stopping(struct sl_export *e)
{
	sl__lock(&e->mu);
	bool stopping = e->stop != SL_PIPELINE_GO || e->interrupted;
	sl__unlock(&e->mu);
	return stopping;
}

void sl_export_get_progress(sl_export *e, struct sl_export_progress *out)
{
	sl__lock(&e->mu);
	sl__result_copy(out, &e->progress, sizeof(e->progress));
	sl__unlock(&e->mu);
}

void sl__export_step(const struct sl_export *e, const char *step, uint64_t start)
{
	if (e->o.on_step != NULL)
		e->o.on_step(step, start, e->o.on_step_ctx);
}
