/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules, pauses, the audit trail and what is only read: see cold.h. */
#include "jobs/store/cold.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/compare.h"
#include "jobs/store/refusals.h"

#define ERRORS_SCAN_DEFAULT 10000
#define ERRORS_SCAN_MAX 100000
#define ERROR_GROUPS_DEFAULT 100
#define ERROR_GROUPS_MAX 1000

/* A read: what it asks for, who gets the rows, and what is counted on the way. */
struct visit {
	sl_store_tx *tx; /* or NULL */
	struct sl__cold_value values[3];
	size_t n_values;
	union {
		sl_job_fn *job;
		sl_chain_fn *chain;
		sl_attempt_record_fn *attempt;
		sl_event_row_fn *event;
		sl_event_stream_fn *stream;
		sl_error_group_fn *group;
		sl_cron_fn *cron;
		sl_audit_record_fn *record;
		sl_heartbeat_fn *heartbeat;
		sl_history_fn *history;
	} fn;
	void *ctx;
	const struct sl_env *env;
	struct sl_err *err;
	size_t n; /* rows */
	size_t bytes;
	uint64_t last;
};

static int cold_rows(struct sl__cold_store *s, enum sl__cold_stmt stmt, sl__cold_row_fn *row, struct visit *v,
		     struct sl_err *err)
{
	const struct sl__cold_query query = {
		.stmt = stmt, .values = v->values, .n_values = v->n_values, .row = row, .ctx = v};
	return s->ops->read(s, v->tx, &query, 1, err);
}

void sl__report_note(const struct sl_store_scope *scope, enum sl_note_kind kind, const char *type, uint64_t id,
		     enum sl_lost_reason reason)
{
	if (scope != NULL && scope->note != NULL)
		scope->note(&(struct sl_note){.kind = kind, .type = type, .id = id, .reason = reason}, scope->ctx);
}

void sl__report_change(const struct sl_store_scope *scope, enum sl_change_kind kind, uint64_t id, uint64_t chain_id,
		       const char *type)
{
	if (scope != NULL && scope->change != NULL)
		scope->change(&(struct sl_change){.kind = kind, .id = id, .chain_id = chain_id, .type = type},
			      scope->ctx);
}

void sl__report_put_back(const struct sl_store_scope *scope, const struct sl_settle *s, const char *type, bool later)
{
	const struct sl_note note = {.kind = SL_NOTE_JOB_SCHEDULED, .type = type, .id = s->id, .later = later};
	if (later)
		sl__report_change(scope, SL_CHANGE_SCHEDULED, s->id, s->chain_id, type);
	if (scope != NULL && scope->note != NULL)
		scope->note(&note, scope->ctx);
}

static int keep_target_id(const struct sl__cold_row *row, void *ctx)
{
	const char *id = sl__cold_text(row, 0);
	if (id != NULL && strlen(id) == 32)
		memcpy(ctx, id, 33);
	return 0;
}

int sl__cold_target_id(void *store, char out[33], struct sl_err *err)
{
	struct sl__cold_store *s = store;
	char id[33] = "";
	const struct sl__cold_query query = {.stmt = SL__COLD_TARGET_ID, .row = keep_target_id, .ctx = id};
	int rc = s->ops->read(s, NULL, &query, 1, err);
	if (rc != 0)
		return rc;
	if (id[0] == '\0')
		return sl_err_set(err, SL_ECORRUPT, "the job store has lost its target id");
	memcpy(out, id, sizeof(id));
	return 0;
}

/* ---- pauses and schedules ---- */

int sl__cold_pause(void *store, const char *type, int paused, const struct sl_store_scope *scope, struct sl_err *err)
{
	struct sl__cold_store *s = store;
	const struct sl__cold_query query = {.stmt = paused ? SL__COLD_PAUSE : SL__COLD_RESUME,
					     COLD_VALUES(COLD_TEXT(type))};
	size_t n = 0;
	int rc = s->ops->change(s, &query, scope, false, &n, err);
	if (rc == 0 && !paused && n > 0)
		sl__report_note(scope, SL_NOTE_JOB_SCHEDULED, type, 0, SL_LOST_NOT);
	return rc;
}

int sl__cold_cron_put(void *store, const struct sl_cron *cron, const struct sl_store_scope *scope, struct sl_err *err)
{
	struct sl__cold_store *s = store;
	bool from_http = scope != NULL && scope->n_audit > 0 && scope->audit->via == SL_VIA_HTTP;
	const struct sl__cold_query query = {
		.stmt = SL__COLD_CRON_PUT,
		COLD_VALUES(COLD_TEXT(cron->name), COLD_TEXT(cron->spec), COLD_TEXT(cron->type),
			    COLD_TEXT(cron->input != NULL ? cron->input : "null"), COLD_INT(cron->priority),
			    COLD_BOOL(cron->catch_up), COLD_TIME(cron->next_ms), COLD_BOOL(from_http))};
	size_t n;
	return s->ops->change(s, &query, scope, false, &n, err);
}

int sl__cold_cron_remove(void *store, const char *name, const struct sl_store_scope *scope, struct sl_err *err)
{
	struct sl__cold_store *s = store;
	const struct sl__cold_query query = {.stmt = SL__COLD_CRON_REMOVE, COLD_VALUES(COLD_TEXT(name))};
	size_t n;
	int rc = s->ops->change(s, &query, scope, true, &n, err);
	return rc == SL_ENOENT ? sl_err_set(err, rc, "no schedule %s", name) : rc;
}

static int visit_cron(const struct sl__cold_row *row, void *ctx)
{
	struct visit *v = ctx;
	const struct sl_cron cron = {SL_CRON_INIT,
				     .name = sl__cold_text(row, 0),
				     .spec = sl__cold_text(row, 1),
				     .type = sl__cold_text(row, 2),
				     .input = sl__cold_text(row, 3),
				     .priority = (int32_t)sl__cold_number(row, 4),
				     .catch_up = sl__cold_number(row, 5) != 0,
				     .paused = sl__cold_time_ms(row, 6) == 0,
				     .next_ms = sl__cold_time_ms(row, 6),
				     .last_ms = sl__cold_time_ms(row, 7),
				     .last_chain = sl__cold_id(row, 8),
				     .from_http = sl__cold_number(row, 9) != 0};
	return v->fn.cron(&cron, v->ctx);
}

int sl__cold_cron_list(void *store, sl_cron_fn *fn, void *ctx, struct sl_err *err)
{
	struct visit v = {.fn.cron = fn, .ctx = ctx};
	return cold_rows(store, SL__COLD_CRON_LIST, visit_cron, &v, err);
}

int sl__cold_prune_marks(struct sl__cold_store *s, int64_t before_ms, struct sl_err *err)
{
	const struct sl__cold_query query = {.stmt = SL__COLD_PRUNE_MARKS, COLD_VALUES(COLD_TIME(before_ms))};
	size_t n;
	return s->ops->change(s, &query, NULL, false, &n, err);
}

/* ---- retention ---- */

struct event_page {
	uint64_t last, n, old, young;
};

static int keep_event_page(const struct sl__cold_row *row, void *ctx)
{
	*(struct event_page *)ctx =
		(struct event_page){sl__cold_id(row, 0), sl__cold_id(row, 1), sl__cold_id(row, 2), sl__cold_id(row, 3)};
	return 0;
}

/* A page is read without a lock, and written only when something in it is too old. A page with nothing but what is too
 * young is the end: what comes after it came later. */
int sl__cold_retain_events(void *store, struct sl_prune_step *step, struct sl_err *err)
{
	struct sl__cold_store *s = store;
	struct event_page page = {0};
	uint64_t exported = SL_MIN(step->exported, (uint64_t)INT64_MAX);
	const struct sl__cold_query find = {.stmt = SL__COLD_RETAIN_PAGE,
					    COLD_VALUES(COLD_INT(step->after), COLD_TIME(step->events_before_ms),
							COLD_TIME(step->lines_before_ms), COLD_INT(exported),
							COLD_INT(step->scan), COLD_BOOL(step->events_for_ever),
							COLD_BOOL(step->lines_for_ever)),
					    .row = keep_event_page,
					    .ctx = &page};
	const struct sl__cold_query none = {.stmt = SL__COLD_RETAIN_EVENTS};
	int rc = s->ops->read(s, NULL, &find, 1, err);
	if (rc != 0)
		return rc;
	step->chains = step->events = 0;
	step->end = page.n < step->scan || (page.old == 0 && page.young > 0);
	if (page.old > 0) {
		struct sl__cold_query delete = none;
		size_t n = 0;
		const struct sl__cold_value values[] = {COLD_INT(step->after), COLD_TIME(step->events_before_ms),
							COLD_TIME(step->lines_before_ms), COLD_INT(page.last)};
		delete.values = values;
		delete.n_values = SL_COUNT(values);
		rc = s->ops->change(s, &delete, NULL, false, &n, err);
		if (rc != 0)
			return rc;
		step->events = n;
	}
	/* What is too young is read again by the next pass. */
	if (page.young == 0 || !step->end)
		step->after = SL_MAX(step->after, page.last);
	return 0;
}

static int note_any_row(const struct sl__cold_row *row, void *ctx)
{
	(void)row;
	*(bool *)ctx = true;
	return 0;
}

int sl__cold_retain_marks(void *store, struct sl_prune_step *step, struct sl_err *err)
{
	struct sl__cold_store *s = store;
	const struct sl__cold_value values[] = {COLD_TIME(step->superseded_before_ms),
						COLD_TIME(step->silent_before_ms), COLD_INT(step->limit)};
	struct sl__cold_query query = {.values = values, .n_values = SL_COUNT(values)};
	bool found = false;
	size_t n = 0;
	query.stmt = SL__COLD_RETAIN_MARKS_FOUND;
	query.row = note_any_row;
	query.ctx = &found;
	int rc = s->ops->read(s, NULL, &query, 1, err);
	query.stmt = SL__COLD_RETAIN_MARKS;
	if (rc == 0 && found)
		rc = s->ops->change(s, &query, NULL, false, &n, err);
	if (rc != 0)
		return rc;
	step->marks = n;
	step->end = n < step->limit;
	return 0;
}

static int keep_retention(const struct sl__cold_row *row, void *ctx)
{
	struct sl_retention_row *out = ctx;
	const char *holder = sl__cold_text(row, 0);
	*out = (struct sl_retention_row){.until_ms = sl__cold_number(row, 1),
					 .completed_ms = sl__cold_number(row, 2),
					 .failed_ms = sl__cold_number(row, 3),
					 .events_ms = sl__cold_number(row, 4),
					 .lines_ms = sl__cold_number(row, 5),
					 .deleted_ms = sl__cold_number(row, 6),
					 .chains = sl__cold_id(row, 7),
					 .completed = sl__cold_id(row, 8),
					 .failed = sl__cold_id(row, 9),
					 .events = sl__cold_id(row, 10),
					 .exports = sl__cold_number(row, 11) > 0,
					 .exported = sl__cold_id(row, 12)};
	(void)snprintf(out->holder, sizeof(out->holder), "%s", holder != NULL ? holder : "");
	return 0;
}

int sl__cold_retention_read(void *store, int64_t exports_since_ms, struct sl_retention_row *out, struct sl_err *err)
{
	struct sl__cold_store *s = store;
	const struct sl__cold_query query = {.stmt = SL__COLD_RETENTION_READ,
					     COLD_VALUES(COLD_INT(exports_since_ms)),
					     .row = keep_retention,
					     .ctx = out};
	return s->ops->read(s, NULL, &query, 1, err);
}

int sl__cold_retention_limits(void *store, const struct sl_retention_row *limits, struct sl_err *err)
{
	struct sl__cold_store *s = store;
	size_t n;
	const struct sl__cold_query query = {.stmt = SL__COLD_RETENTION_LIMITS,
					     COLD_VALUES(COLD_INT(limits->completed_ms), COLD_INT(limits->failed_ms),
							 COLD_INT(limits->events_ms), COLD_INT(limits->lines_ms))};
	return s->ops->change(s, &query, NULL, false, &n, err);
}

int sl__cold_retention_turn(void *store, const struct sl_retention_turn *turn, struct sl_err *err)
{
	struct sl__cold_store *s = store;
	size_t n = 0;
	const struct sl__cold_query query = {.stmt = SL__COLD_RETENTION_TURN,
					     COLD_VALUES(COLD_TEXT(turn->holder), COLD_INT(turn->now_ms),
							 COLD_INT(turn->until_ms), COLD_INT(turn->events))};
	int rc = s->ops->change(s, &query, NULL, false, &n, err);
	if (rc != 0)
		return rc;
	return n > 0 ? 0 : SL_ELOCKED;
}

int sl__cold_retention_export(void *store, const char *name, uint64_t checkpoint, int64_t now_ms, struct sl_err *err)
{
	struct sl__cold_store *s = store;
	size_t n;
	const struct sl__cold_query query = {.stmt = SL__COLD_RETENTION_EXPORT,
					     COLD_VALUES(COLD_TEXT(name), COLD_INT(checkpoint), COLD_INT(now_ms))};
	return s->ops->change(s, &query, NULL, false, &n, err);
}

/* ---- requests that are answered once ---- */

#define REQUESTS_PRUNED 20 /* whose time is over, per request that is kept: so there is no heap of them */

struct request {
	const char *hash; /* of the request that comes now */
	bool same;
	struct sl_kept_answer *kept;
};

static int visit_answer(const struct sl__cold_row *row, void *ctx)
{
	struct request *r = ctx;
	const char *hash = sl__cold_text(row, 0), *answer = sl__cold_text(row, 1);
	r->kept->found = true;
	r->same = hash != NULL && strcmp(hash, r->hash) == 0 && answer != NULL;
	return r->same ? r->kept->fn(answer, r->kept->ctx) : 0;
}

int sl__cold_request_take(void *store, sl_store_tx *tx, const struct sl_once *once, struct sl_kept_answer *kept,
			  struct sl_err *err)
{
	struct sl__cold_store *s = store;
	const struct sl_store_scope scope = {.tx = tx};
	char hash[2 * sizeof(once->hash) + 1];
	struct request request = {.hash = hash, .kept = kept};
	size_t n = 0;
	*sl__hex(hash, once->hash, sizeof(once->hash)) = '\0';
	const struct sl__cold_query prune = {.stmt = SL__COLD_REQUEST_PRUNE,
					     COLD_VALUES(COLD_INT(REQUESTS_PRUNED), COLD_NOW)};
	const struct sl__cold_query take = {
		.stmt = SL__COLD_REQUEST_TAKE,
		COLD_VALUES(COLD_TEXT(once->key), COLD_TEXT(hash), COLD_INT(once->keep_ms), COLD_NOW)};
	const struct sl__cold_query get = {
		.stmt = SL__COLD_REQUEST_GET, COLD_VALUES(COLD_TEXT(once->key)), .row = visit_answer, .ctx = &request};
	int rc = s->ops->change(s, &prune, &scope, false, &n, err);
	if (rc == 0)
		rc = s->ops->change(s, &take, &scope, false, &n, err);
	kept->found = false;
	if (rc != 0 || n > 0)
		return rc;
	rc = s->ops->read(s, tx, &get, 1, err);
	if (rc == 0 && kept->found && !request.same)
		rc = sl_err_set(err, SL_ECONFLICT, "the key was used for another request");
	if (rc == 0 && !kept->found)
		rc = sl_err_set(err, SL_EAGAIN, "the key's time has just ended; try again");
	return rc;
}

int sl__cold_request_answer(void *store, sl_store_tx *tx, const char *key, const char *answer, struct sl_err *err)
{
	struct sl__cold_store *s = store;
	const struct sl__cold_query query = {.stmt = SL__COLD_REQUEST_ANSWER,
					     COLD_VALUES(COLD_TEXT(key), COLD_TEXT(answer))};
	size_t n;
	return s->ops->change(s, &query, &(struct sl_store_scope){.tx = tx}, false, &n, err);
}

/* ---- the audit trail ---- */

int sl__cold_audit_put(void *store, const struct sl_audit_record *records, size_t n, struct sl_err *err)
{
	struct sl__cold_store *s = store;
	const struct sl_store_scope scope = {.audit = records, .n_audit = n};
	size_t changed;
	return s->ops->change(s, NULL, &scope, false, &changed, err);
}

/* The numbers of a list as "17,18", or as JSON. *out: allocated memory. */
static int chain_ids(const struct visit *v, const char *text, uint64_t **out, size_t *n)
{
	size_t cap = 1;
	for (const char *p = text; p != NULL && *p != '\0'; p++)
		cap += *p == ',';
	uint64_t *ids = sl__calloc(v->env, cap, sizeof(*ids));
	if (ids == NULL)
		return sl__no_memory(v->err, "the audit record");
	*n = 0;
	for (char *end; text != NULL && *text != '\0'; text = end) {
		end = (char *)(uintptr_t)text + 1;
		if (*text >= '0' && *text <= '9')
			ids[(*n)++] = strtoull(text, &end, 10);
	}
	*out = ids;
	return 0;
}

static int visit_record(const struct sl__cold_row *row, void *ctx)
{
	struct visit *v = ctx;
	uint64_t *ids = NULL;
	size_t n = 0;
	int rc = chain_ids(v, sl__cold_text(row, 7), &ids, &n);
	if (rc != 0)
		return rc;
	const struct sl_audit_record record = {.id = sl__cold_id(row, 0),
					       .time_ms = sl__cold_time_ms(row, 1),
					       .via = (enum sl_via)sl__cold_number(row, 2),
					       .actor = sl__cold_text(row, 3),
					       .address = sl__cold_text(row, 4),
					       .action = sl__cold_text(row, 5),
					       .request_id = sl__cold_text(row, 6),
					       .chains = ids,
					       .n_chains = n,
					       .detail = sl__cold_text(row, 8)};
	rc = v->fn.record(&record, v->ctx);
	sl__free(v->env, ids);
	return rc;
}

int sl__cold_audit_list(void *store, uint64_t before, uint32_t limit, sl_audit_record_fn *fn, void *ctx,
			struct sl_err *err)
{
	struct sl__cold_store *s = store;
	struct visit v = {.values = {COLD_INT(before != 0 && before < INT64_MAX ? before : INT64_MAX), COLD_INT(limit)},
			  .n_values = 2,
			  .fn.record = fn,
			  .ctx = ctx,
			  .env = s->env,
			  .err = err};
	return cold_rows(s, SL__COLD_AUDIT_LIST, visit_record, &v, err);
}

int sl__cold_audit_prune(void *store, int64_t before_ms, uint32_t limit, size_t *n, struct sl_err *err)
{
	struct sl__cold_store *s = store;
	const struct sl__cold_query query = {.stmt = SL__COLD_AUDIT_PRUNE,
					     COLD_VALUES(COLD_TIME(before_ms), COLD_INT(limit))};
	return s->ops->change(s, &query, NULL, false, n, err);
}

/* ---- workers ---- */

int sl__cold_heartbeat(void *store, const struct sl_heartbeat *h, struct sl_err *err)
{
	struct sl__cold_store *s = store;
	const struct sl__cold_query sweep = {.stmt = SL__COLD_HEARTBEAT_SWEEP, COLD_VALUES(COLD_NOW)};
	const struct sl__cold_query write = {.stmt = SL__COLD_HEARTBEAT,
					     COLD_VALUES(COLD_TEXT(h->worker), COLD_TEXT(h->host), COLD_INT(h->pid),
							 COLD_TEXT(h->version), COLD_INT(h->slots), COLD_TEXT(h->types),
							 COLD_TEXT(h->error), COLD_TIME(h->error_ms),
							 COLD_TIME(h->started_ms), COLD_INT(h->ttl_ms), COLD_NOW)};
	size_t n;
	int rc = h->sweep ? s->ops->change(s, &sweep, NULL, false, &n, err) : 0;
	if (rc == 0)
		rc = s->ops->change(s, &write, NULL, false, &n, err);
	return rc;
}

int sl__cold_heartbeat_end(void *store, const char *worker, int64_t started_ms, struct sl_err *err)
{
	struct sl__cold_store *s = store;
	const struct sl__cold_query query = {.stmt = SL__COLD_HEARTBEAT_END,
					     COLD_VALUES(COLD_TEXT(worker), COLD_TIME(started_ms))};
	size_t n;
	return s->ops->change(s, &query, NULL, false, &n, err);
}

static int visit_heartbeat(const struct sl__cold_row *row, void *ctx)
{
	struct visit *v = ctx;
	const struct sl_heartbeat heartbeat = {.worker = sl__cold_text(row, 0),
					       .host = sl__cold_text(row, 1),
					       .pid = sl__cold_number(row, 2),
					       .version = sl__cold_text(row, 3),
					       .slots = (int32_t)sl__cold_number(row, 4),
					       .types = sl__cold_text(row, 5),
					       .error = sl__cold_text(row, 6),
					       .error_ms = sl__cold_time_ms(row, 7),
					       .started_ms = sl__cold_time_ms(row, 8),
					       .seen_ms = sl__cold_time_ms(row, 9),
					       .until_ms = sl__cold_time_ms(row, 10)};
	return v->fn.heartbeat(&heartbeat, v->ctx);
}

int sl__cold_heartbeats(void *store, sl_heartbeat_fn *fn, void *ctx, struct sl_err *err)
{
	struct visit v = {.values = {COLD_NOW}, .n_values = 1, .fn.heartbeat = fn, .ctx = ctx};
	return cold_rows(store, SL__COLD_HEARTBEATS, visit_heartbeat, &v, err);
}

/* ---- history ---- */

int sl__cold_history_put(void *store, const struct sl_history_row *row, struct sl_err *err)
{
	struct sl__cold_store *s = store;
	const struct sl__cold_query query = {
		.stmt = SL__COLD_HISTORY_PUT,
		COLD_VALUES(COLD_INT(row->step_s), COLD_INT(row->at_s), COLD_INT(row->taken_ms),
			    COLD_INT(row->newest_id), COLD_INT(row->completed), COLD_INT(row->failed),
			    COLD_INT(row->due), COLD_INT(row->running), COLD_INT(row->p50_ms), COLD_INT(row->p99_ms))};
	size_t n;
	return s->ops->change(s, &query, NULL, false, &n, err);
}

int sl__cold_history_roll(void *store, const struct sl_history_roll *r, struct sl_err *err)
{
	struct sl__cold_store *s = store;
	const struct sl__cold_query roll = {
		.stmt = SL__COLD_HISTORY_ROLL,
		COLD_VALUES(COLD_INT(r->step_s), COLD_INT(r->finer_s), COLD_INT(r->before_s))};
	const struct sl__cold_query prune = {.stmt = SL__COLD_HISTORY_PRUNE,
					     COLD_VALUES(COLD_INT(r->step_s), COLD_INT(r->keep_s))};
	size_t n;
	int rc = r->finer_s != 0 ? s->ops->change(s, &roll, NULL, false, &n, err) : 0;
	if (rc == 0)
		rc = s->ops->change(s, &prune, NULL, false, &n, err);
	return rc;
}

static int visit_history(const struct sl__cold_row *row, void *ctx)
{
	struct visit *v = ctx;
	const struct sl_history_row out = {.step_s = sl__cold_number(row, 0),
					   .at_s = sl__cold_number(row, 1),
					   .taken_ms = sl__cold_number(row, 2),
					   .newest_id = sl__cold_id(row, 3),
					   .completed = sl__cold_id(row, 4),
					   .failed = sl__cold_id(row, 5),
					   .due = sl__cold_id(row, 6),
					   .running = sl__cold_id(row, 7),
					   .p50_ms = sl__cold_number(row, 8),
					   .p99_ms = sl__cold_number(row, 9)};
	return v->fn.history(&out, v->ctx);
}

int sl__cold_history(void *store, const struct sl_history_row *from, sl_history_fn *fn, void *ctx, struct sl_err *err)
{
	struct visit v = {
		.values = {COLD_INT(from->step_s), COLD_INT(from->at_s)}, .n_values = 2, .fn.history = fn, .ctx = ctx};
	return cold_rows(store, SL__COLD_HISTORY, visit_history, &v, err);
}

/* ---- jobs and chains ---- */

struct sl_job sl__cold_job(const struct sl__cold_row *row)
{
	return (struct sl_job){.id = sl__cold_id(row, 0),
			       .chain_id = sl__cold_id(row, 1),
			       .prev_id = sl__cold_id(row, 2),
			       .next_id = sl__cold_id(row, 3),
			       .type = sl__cold_text(row, 4),
			       .status = (enum sl_job_status)sl__cold_number(row, 5),
			       .attempt = (int32_t)sl__cold_number(row, 6),
			       .priority = (int32_t)sl__cold_number(row, 7),
			       .input = sl__cold_text(row, 8),
			       .output = sl__cold_text(row, 9),
			       .error = sl__cold_text(row, 10),
			       .progress = sl__cold_text(row, 11),
			       .key = sl__cold_text(row, 12),
			       .traceparent = sl__cold_text(row, 13),
			       .leased_by = sl__cold_text(row, 14),
			       .created_ms = sl__cold_time_ms(row, 15),
			       .scheduled_ms = sl__cold_time_ms(row, 16),
			       .started_ms = sl__cold_time_ms(row, 17),
			       .ended_ms = sl__cold_time_ms(row, 18),
			       .leased_until_ms = sl__cold_time_ms(row, 19),
			       .blockers_open = (uint32_t)sl__cold_number(row, 20),
			       .charged = (int32_t)sl__cold_number(row, 21),
			       .state = (enum sl_job_status)sl__cold_number(row, 22)};
}

struct sl_chain sl__cold_chain(const struct sl__cold_row *row)
{
	return (struct sl_chain){.id = sl__cold_id(row, 0),
				 .last_id = sl__cold_id(row, 1),
				 .type = sl__cold_text(row, 2),
				 .at_type = sl__cold_text(row, 3),
				 .status = (enum sl_job_status)sl__cold_number(row, 4),
				 .input = sl__cold_text(row, 5),
				 .output = sl__cold_text(row, 6),
				 .error = sl__cold_text(row, 7),
				 .key = sl__cold_text(row, 8),
				 .created_ms = sl__cold_time_ms(row, 9),
				 .ended_ms = sl__cold_time_ms(row, 10),
				 .state = (enum sl_job_status)sl__cold_number(row, 11)};
}

static int visit_job(const struct sl__cold_row *row, void *ctx)
{
	struct visit *v = ctx;
	struct sl_job job = sl__cold_job(row);
	job.from_http = sl__cold_number(row, 23) != 0;
	v->n++;
	return v->fn.job(&job, v->ctx);
}

static int visit_chain(const struct sl__cold_row *row, void *ctx)
{
	struct visit *v = ctx;
	const struct sl_chain chain = sl__cold_chain(row);
	v->n++;
	return v->fn.chain(&chain, v->ctx);
}

int sl__cold_get_job(void *store, sl_store_tx *tx, uint64_t id, sl_job_fn *fn, void *ctx, struct sl_err *err)
{
	struct visit v = {.tx = tx, .values = {COLD_INT(id), COLD_NOW}, .n_values = 2, .fn.job = fn, .ctx = ctx};
	int rc = cold_rows(store, SL__COLD_GET_JOB, visit_job, &v, err);
	if (rc == 0 && v.n == 0)
		rc = sl__no_job(id, err);
	return rc;
}

int sl__cold_get_chain(void *store, sl_store_tx *tx, uint64_t id, sl_chain_fn *fn, void *ctx, struct sl_err *err)
{
	struct visit v = {.tx = tx, .values = {COLD_INT(id), COLD_NOW}, .n_values = 2, .fn.chain = fn, .ctx = ctx};
	int rc = cold_rows(store, SL__COLD_GET_CHAIN, visit_chain, &v, err);
	if (rc == 0 && v.n == 0)
		rc = sl__no_chain(id, err);
	return rc;
}

/* The last row has no attempt: it says that the job exists. */
static int visit_attempt(const struct sl__cold_row *row, void *ctx)
{
	struct visit *v = ctx;
	const struct sl_attempt_record record = {.attempt = (int32_t)sl__cold_number(row, 0),
						 .outcome = (enum sl_attempt_outcome)sl__cold_number(row, 1),
						 .worker = sl__cold_text(row, 2),
						 .error = sl__cold_text(row, 3),
						 .started_ms = sl__cold_time_ms(row, 4),
						 .ended_ms = sl__cold_time_ms(row, 5)};
	v->n++;
	return record.attempt == 0 ? 0 : v->fn.attempt(&record, v->ctx);
}

int sl__cold_attempts(void *store, uint64_t job_id, sl_attempt_record_fn *fn, void *ctx, struct sl_err *err)
{
	struct visit v = {.values = {COLD_INT(job_id)}, .n_values = 1, .fn.attempt = fn, .ctx = ctx};
	int rc = cold_rows(store, SL__COLD_ATTEMPTS, visit_attempt, &v, err);
	if (rc == 0 && v.n == 0)
		rc = sl__no_job(job_id, err);
	return rc;
}

static int read_outstanding(const struct sl__cold_row *row, void *ctx)
{
	struct sl_outstanding *out = ctx;
	*out = (struct sl_outstanding){.due = sl__cold_id(row, 0),
				       .retrying = sl__cold_id(row, 1),
				       .running = sl__cold_id(row, 2),
				       .scheduled = sl__cold_id(row, 3),
				       .blocked = sl__cold_id(row, 4)};
	return 0;
}

int sl__cold_outstanding(void *store, const char *const *types, size_t n_types, struct sl_outstanding *out,
			 struct sl_err *err)
{
	struct sl__cold_store *s = store;
	const struct sl__cold_query query = {.stmt = SL__COLD_OUTSTANDING,
					     COLD_VALUES(COLD_TEXTS(types, n_types), COLD_NOW),
					     .row = read_outstanding,
					     .ctx = out};
	return s->ops->read(s, NULL, &query, 1, err);
}

/* ---- failed jobs by their errors ---- */

static int keep_number(const struct sl__cold_row *row, void *ctx)
{
	*(uint64_t *)ctx = sl__cold_id(row, 0);
	return 0;
}

static int visit_group(const struct sl__cold_row *row, void *ctx)
{
	struct visit *v = ctx;
	const struct sl_error_group group = {.type = sl__cold_text(row, 0),
					     .error = sl__cold_text(row, 1),
					     .count = sl__cold_id(row, 2),
					     .first_ms = sl__cold_time_ms(row, 3),
					     .last_ms = sl__cold_time_ms(row, 4),
					     .sample_id = sl__cold_id(row, 5),
					     .retrying = sl__cold_id(row, 6)};
	v->n++;
	return v->fn.group(&group, v->ctx);
}

int sl__cold_errors(void *store, const struct sl_error_filter *filter, sl_error_group_fn *fn, void *ctx,
		    struct sl_err *err)
{
	static const struct sl_error_filter all = {0};
	struct sl__cold_store *s = store;
	const struct sl_error_filter *f = filter != NULL ? filter : &all;
	int64_t below = f->after != 0 ? (int64_t)f->after : INT64_MAX;
	int64_t scan = f->scan == 0 ? ERRORS_SCAN_DEFAULT : SL_MIN(f->scan, ERRORS_SCAN_MAX);
	int64_t limit = f->limit == 0 ? ERROR_GROUPS_DEFAULT : SL_MIN(f->limit, ERROR_GROUPS_MAX);
	uint64_t reached = 0;
	struct visit v = {.fn.group = fn, .ctx = ctx};
	const struct sl__cold_query queries[] = {
		{.stmt = SL__COLD_ERRORS_REACHED,
		 COLD_VALUES(COLD_INT(below), COLD_INT(scan - 1)),
		 .row = keep_number,
		 .ctx = &reached},
		{.stmt = SL__COLD_ERRORS,
		 COLD_VALUES(COLD_INT(below), COLD_INT(scan), COLD_TEXTS(f->types, f->n_types), COLD_INT(limit)),
		 .row = visit_group,
		 .ctx = &v}};
	int rc = s->ops->read(s, NULL, queries, SL_COUNT(queries), err);
	if (f->reached != NULL && (rc == 0 || v.n > 0))
		*f->reached = reached;
	return rc;
}

/* ---- events ---- */

static int visit_stream(const struct sl__cold_row *row, void *ctx)
{
	struct visit *v = ctx;
	const struct sl_event_stream stream = {.stream = sl__cold_text(row, 0),
					       .incarnation = (uint32_t)sl__cold_number(row, 1),
					       .mark = sl__cold_id(row, 2),
					       .last_ms = sl__cold_time_ms(row, 3)};
	return v->fn.stream(&stream, v->ctx);
}

int sl__cold_event_streams(void *store, const struct sl_event_stream *after, uint32_t limit, sl_event_stream_fn *fn,
			   void *ctx, struct sl_err *err)
{
	struct visit v = {.values = {COLD_TEXT(after != NULL ? after->stream : ""),
				     COLD_INT(after != NULL ? (int64_t)after->incarnation : -1), COLD_INT(limit)},
			  .n_values = 3,
			  .fn.stream = fn,
			  .ctx = ctx};
	return cold_rows(store, SL__COLD_EVENT_STREAMS, visit_stream, &v, err);
}

static int visit_event(const struct sl__cold_row *row, void *ctx)
{
	struct visit *v = ctx;
	size_t len;
	const void *payload = row->ops->bytes(row, 10, &len);
	const struct sl_event_row event = {.offset = sl__cold_id(row, 0),
					   .stream = sl__cold_text(row, 1),
					   .incarnation = (uint32_t)sl__cold_number(row, 2),
					   .sequence = sl__cold_id(row, 3),
					   .crc = sl__cold_id(row, 4),
					   .job_id = sl__cold_id(row, 5),
					   .attempt = (int32_t)sl__cold_number(row, 6),
					   .type = (enum sl_event_type)sl__cold_number(row, 7),
					   .late = sl__cold_number(row, 8) != 0,
					   .ts_ms = sl__cold_time_ms(row, 9),
					   .payload = payload,
					   .payload_len = len,
					   .partial = sl__cold_number(row, 11) != 0};
	v->n++;
	v->bytes += len;
	v->last = event.offset;
	return v->fn.event(&event, v->ctx);
}

int sl__cold_events_read(void *store, uint64_t job_id, uint64_t after, uint32_t limit, sl_event_row_fn *fn, void *ctx,
			 struct sl_err *err)
{
	struct sl__cold_store *s = store;
	struct visit v = {.n_values = job_id != 0 ? 3 : 2, .fn.event = fn, .ctx = ctx, .last = after};
	bool more = true;
	while (more && limit > 0) {
		v.values[0] = COLD_INT(v.last);
		v.values[1] = COLD_INT(limit);
		v.values[2] = COLD_INT(job_id);
		v.n = v.bytes = 0;
		int rc = cold_rows(s, job_id != 0 ? SL__COLD_EVENTS_OF_JOB : SL__COLD_EVENTS_ALL, visit_event, &v, err);
		if (rc != 0)
			return rc;
		limit -= (uint32_t)v.n;
		more = s->ops->answer_bytes != 0 && v.bytes >= s->ops->answer_bytes;
	}
	return 0;
}

int sl__cold_events_newest(void *store, uint64_t *offset, struct sl_err *err)
{
	struct sl__cold_store *s = store;
	const struct sl__cold_query query = {.stmt = SL__COLD_EVENTS_NEWEST, .row = keep_number, .ctx = offset};
	return s->ops->read(s, NULL, &query, 1, err);
}

/* ---- leases ---- */

/* The rows, one for each job and in the order of claims, drawn together to one struct sl_lease a claim. */
struct lease_rows {
	struct sl_lease lease; /* the one that is being collected; n_jobs 0: none */
	struct sl__buf worker;
	struct sl__buf ids;   /* uint64_t */
	struct sl__buf names; /* of types, each with its NUL, each once */
	sl_lease_fn *fn;
	void *ctx;
	struct sl_err *err;
};

/* Show what was collected, and begin anew. */
static int show_lease(struct lease_rows *rows)
{
	struct sl_lease *lease = &rows->lease;
	const struct sl_env *env = rows->ids.env;
	bool failed = rows->worker.failed != 0 || rows->ids.failed != 0 || rows->names.failed != 0;
	const char **types = failed ? NULL : sl__calloc(env, lease->n_types, sizeof(*types));
	if (types == NULL)
		return sl_err_set(rows->err, SL_ENOMEM, "no memory for the jobs of a lease");
	const char *at = sl__buf_str(&rows->names);
	for (size_t i = 0; i < lease->n_types; i++, at += strlen(at) + 1)
		types[i] = at;
	qsort(types, lease->n_types, sizeof(*types), sl__compare_texts);
	lease->types = types;
	lease->worker = sl__buf_str(&rows->worker);
	lease->jobs = (const uint64_t *)(const void *)rows->ids.data;
	int rc = rows->fn(lease, rows->ctx);
	sl__free(env, types);
	sl__buf_clear(&rows->worker);
	sl__buf_clear(&rows->ids);
	sl__buf_clear(&rows->names);
	*lease = (struct sl_lease){0};
	return rc;
}

/* Columns: claim, worker, since, until, job, type. */
static int add_lease_row(const struct sl__cold_row *row, void *ctx)
{
	struct lease_rows *rows = ctx;
	struct sl_lease *lease = &rows->lease;
	size_t len;
	const void *claim = row->ops->bytes(row, 0, &len);
	if (len != sizeof(lease->claim))
		return sl_err_set(rows->err, SL_ECORRUPT, "a lease whose claim has not 16 bytes");
	if (lease->n_jobs > 0 && memcmp(lease->claim, claim, len) != 0) {
		int rc = show_lease(rows);
		if (rc != 0)
			return rc;
		claim = row->ops->bytes(row, 0, &len);
	}
	if (lease->n_jobs == 0) {
		const char *worker = sl__cold_text(row, 1);
		memcpy(lease->claim, claim, sizeof(lease->claim));
		lease->claimed_ms = sl__cold_time_ms(row, 2);
		lease->until_ms = sl__cold_time_ms(row, 3);
		(void)sl__buf_str_append(&rows->worker, worker != NULL ? worker : "");
	}
	uint64_t job = sl__cold_id(row, 4);
	(void)sl__buf_append(&rows->ids, &job, sizeof(job));
	lease->n_jobs++;
	/* Each type once. */
	const char *type = sl__cold_text(row, 5), *at = sl__buf_str(&rows->names);
	for (size_t i = 0; i < lease->n_types; i++, at += strlen(at) + 1)
		if (strcmp(at, type) == 0)
			return 0;
	if (sl__buf_append(&rows->names, type, strlen(type) + 1) != 0)
		return sl_err_set(rows->err, SL_ENOMEM, "no memory for the jobs of a lease");
	lease->n_types++;
	return 0;
}

int sl__cold_leases(void *store, const uint8_t after[16], uint32_t limit, sl_lease_fn *fn, void *ctx,
		    struct sl_err *err)
{
	static const uint8_t none[16] = {0};
	struct sl__cold_store *s = store;
	struct lease_rows rows = {.fn = fn, .ctx = ctx, .err = err};
	sl__buf_init(&rows.worker, s->env);
	sl__buf_init(&rows.ids, s->env);
	sl__buf_init(&rows.names, s->env);
	const struct sl__cold_query query = {.stmt = SL__COLD_LEASES,
					     COLD_VALUES(COLD_CLAIM(after != NULL ? after : none), COLD_INT(limit)),
					     .row = add_lease_row,
					     .ctx = &rows};
	int rc = s->ops->read(s, NULL, &query, 1, err);
	if (rc == 0 && rows.lease.n_jobs > 0)
		rc = show_lease(&rows);
	sl__buf_fini(&rows.worker);
	sl__buf_fini(&rows.ids);
	sl__buf_fini(&rows.names);
	return rc;
}
