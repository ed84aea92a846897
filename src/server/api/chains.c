/* SPDX-License-Identifier: Apache-2.0 */
/* Chains: start, show and steer them, one at a time; bulk starts. */
#include "base/sha256.h"
#include "base/time.h"
#include "server/api/api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BULK_MAX 10000
#define ONCE_HEADER "Idempotency-Key"
#define AFTER_MAX 10000 /* ids in "after" of one request: each is an edge that a transaction checks and writes */
#define SHOWN_MAX 1000  /* jobs, blockers and waiting chains in one answer */
#define WINDOW_MAX_MS INT64_C(315360000000) /* ten years */

/* ---- starting ---- */

/* One chain of a body, with what it points to. */
struct start {
	struct sl_new_chain chain;
	uint64_t *after;
	char *input;
};

static void start_fini(struct start *s)
{
	free(s->after);
	free(s->input);
}

/* Read one chain of a body. */
static bool read_start(const struct srv_object *o, struct start *s)
{
	static const char *const names[] = {"type", "input", "key",   "scope",       "window_ms", "priority",
					    "at",   "in_ms", "after", "traceparent", NULL};
	struct sl_new_job *job = &s->chain.job;
	srv_request *r = o->r;
	const char *scope = NULL, *at = NULL;
	if (!srv_in_only(o, names) || !srv_in_text(o, "type", &job->type) || !srv_in_type(r, job->type))
		return false;
	if (job->type == NULL) {
		srv_error(r, 400, "invalid", "%s%stype: missing", o->where, o->where[0] != '\0' ? "." : "");
		return false;
	}

	/* When a chain with the same key counts as a duplicate. */
	if (!srv_in_text(o, "key", &s->chain.key) || !srv_in_text(o, "scope", &scope) ||
	    !srv_in_int(o, "window_ms", 0, WINDOW_MAX_MS, &s->chain.window_ms))
		return false;
	if (scope != NULL && strcmp(scope, "any") == 0) {
		s->chain.scope = SL_DEDUP_ANY;
	} else if (scope != NULL && strcmp(scope, "incomplete") != 0) {
		srv_error(r, 400, "invalid", "scope: must be incomplete or any");
		return false;
	}
	if (!srv_in_priority(o, &job->priority))
		return false;

	/* When it runs: a time, or a delay. */
	if (json_is_integer(json_object_get(o->json, "at"))) {
		if (!srv_in_int(o, "at", 1, SL__TIME_MAX_MS, &job->at_ms))
			return false;
	} else if (!srv_in_text(o, "at", &at) || (at != NULL && !srv_in_time(r, "at", at, &job->at_ms))) {
		return false;
	}
	if (!srv_in_int(o, "in_ms", 0, WINDOW_MAX_MS, &job->delay_ms))
		return false;
	if (job->at_ms != 0 && job->delay_ms != 0) {
		srv_error(r, 400, "invalid", "at and in_ms exclude each other");
		return false;
	}

	/* What it waits for, and its input. */
	bool ok = srv_in_ids(o, "after", AFTER_MAX, &s->after, &job->n_blockers) &&
		  srv_in_text(o, "traceparent", &job->traceparent) && srv_in_opaque(o, "input", &s->input);
	job->blockers = s->after;
	job->input = s->input;
	return ok;
}

static void out_started(struct srv_out *o, const struct sl_started *s)
{
	srv_out_open(o, '{');
	SRV_FIELD(o, "chain_id", id, s->chain_id);
	SRV_FIELD(o, "existing", bool, s->deduplicated);
	srv_out_close(o, '}');
}

/* The chains of one request. */
struct bulk {
	struct start *starts;
	struct sl_new_chain *chains;
	struct sl_started *started;
	size_t n;
};

/* Start chains; with an Idempotency-Key once, for that client, path and key. The same body then gets the same answer,
 * from every server of the store, for 24 hours. */
static int start_chains(srv_request *r, sl_jobs *jobs, const struct bulk *b, struct sl_err *err)
{
	const char *key = srv_header(r, ONCE_HEADER);
	if (key == NULL)
		return sl_jobs_enqueue_many(jobs, NULL, b->chains, b->n, b->started, err);
	char named[1001];
	struct sl_once once = {.key = named, .chains = b->chains, .n_chains = b->n, .out = b->started};
	size_t len, key_len = strlen(key);
	const void *body = srv_body(r, &len);
	for (size_t i = 0; i < key_len; i++)
		key_len = key[i] >= 0x20 && key[i] < 0x7f ? key_len : 0;
	if (key_len == 0 || key_len > 255)
		return sl_err_set(err, SL_EINVAL, ONCE_HEADER ": must be 1 to 255 printable ASCII characters");
	if (snprintf(named, sizeof(named), "%s %s %s", srv_path(r), key, srv_actor(r)) >= (int)sizeof(named))
		return sl_err_set(err, SL_EINVAL, ONCE_HEADER ": too long together with the name of the token");
	int rc = sl__sha256(body, len, once.hash, err);
	if (rc == 0)
		rc = sl_jobs_enqueue_once(jobs, &once, err);
	if (rc == 0 && once.again)
		srv_set_header(r, "Idempotent-Replayed", "true");
	return rc;
}

/* A blocker that does not exist is a mistake of the client, not a missing resource. */
static void start_failed(srv_request *r, struct sl_err *err)
{
	if (err->code == SL_ENOENT)
		srv_error(r, 422, "refused", "after: %s", err->msg);
	else if (err->code == SL_ECONFLICT)
		srv_error(r, 422, "refused",
			  ONCE_HEADER ": the key was used in the last 24 hours with another body; use a new key");
	else
		srv_fail(r, err);
}

static void answer_start(srv_request *r, int rc, struct sl_err *err, const struct sl_started *started)
{
	struct srv_out o = {0};
	if (rc != 0) {
		start_failed(r, err);
		return;
	}
	char location[64];
	(void)snprintf(location, sizeof(location), "/api/v1/chains/%llu", (unsigned long long)started->chain_id);
	srv_set_header(r, "Location", location);
	out_started(&o, started);
	srv_out_answer(r, 201, &o, NULL);
}

static bool read_request(srv_request *r, struct start *s)
{
	if (!srv_in_query(r, NULL))
		return false;
	const struct srv_object body = {r, "", srv_body_json_but(r, "input", 1)};
	return body.json != NULL && read_start(&body, s);
}

void srv_chains_start(srv_request *r, void *ctx)
{
	struct srv_api *api = ctx;
	struct sl_err err = SL_ERR_INIT;
	struct start s = {0};
	struct srv_change c;
	struct sl_started started;
	if (read_request(r, &s) && srv_change_begin(r, api->core, &c)) {
		const struct bulk one = {.chains = &s.chain, .started = &started, .n = 1};
		int rc = start_chains(r, c.jobs, &one, &err);
		srv_change_end(&c);
		answer_start(r, rc, &err, &started);
	}
	start_fini(&s);
}

/* ---- those of several clients ---- */

/* Starts in one transaction: those of the requests that can be. */
struct joint {
	srv_request *r[SRV_MANY_MAX];
	struct start start[SRV_MANY_MAX];
	struct sl_new_chain chain[SRV_MANY_MAX];
	struct sl_started started[SRV_MANY_MAX];
	struct sl_audit_record record[SRV_MANY_MAX]; /* one for neighbours of the same client */
	size_t n, n_records;
};

void srv_chains_start_many(srv_request *const *all, size_t n, void *ctx)
{
	struct srv_api *api = ctx;
	struct sl_err err = SL_ERR_INIT;
	struct joint *j = n <= SRV_MANY_MAX ? malloc(sizeof(*j)) : NULL;
	if (j == NULL)
		return;
	j->n = j->n_records = 0;
	for (size_t i = 0; i < n; i++) {
		/* A chain with a key or blockers, and a start that is done once, may have to wait for another
		 * transaction; the others do not wait with it. */
		struct start *s = &j->start[j->n];
		*s = (struct start){0};
		if (srv_header(all[i], ONCE_HEADER) == NULL && read_request(all[i], s) && s->chain.key == NULL &&
		    s->chain.job.n_blockers == 0) {
			j->r[j->n] = all[i];
			j->chain[j->n++] = s->chain;
			/* A row for every start would cost as much as the start: requests of one client that follow
			 * each other share a record, which has all their chains and the id of the first request. */
			struct sl_audit_record *last = j->n_records > 0 ? &j->record[j->n_records - 1] : NULL, mine;
			srv_audit_record(all[i], &mine);
			if (last != NULL && strcmp(last->actor, mine.actor) == 0 &&
			    strcmp(last->address, mine.address) == 0) {
				last->n_chains++;
			} else {
				mine.n_chains = 1;
				j->record[j->n_records++] = mine;
			}
		} else {
			start_fini(s);
		}
	}
	/* One transaction for all of them. */
	sl_jobs *jobs = srv_changes_open(api->core, j->record, j->n_records, NULL);
	int rc = 0;
	if (jobs == NULL)
		rc = sl_err_set(&err, SL_ENOMEM, "out of memory");
	else if (j->n > 0)
		rc = sl_jobs_enqueue_many(jobs, NULL, j->chain, j->n, j->started, &err);
	sl_jobs_close(jobs);
	srv_many_next(all);
	/* If one of them caused the failure, no chain was started, and each request is tried alone. */
	bool of_one = rc == SL_EINVAL || rc == SL_EDATA || rc == SL_ETOOBIG || rc == SL_EREFUSED || rc == SL_ENOENT;
	for (size_t i = 0; i < j->n; i++) {
		if (!of_one)
			answer_start(j->r[i], rc, &err, &j->started[i]);
		start_fini(&j->start[i]);
	}
	free(j);
}

/* ---- many of one client ---- */

static bool read_bulk(srv_request *r, struct bulk *b)
{
	static const char *const names[] = {"chains", NULL};
	size_t edges = 0;
	/* {"chains": [{"input": …}]}: three deep. */
	const struct srv_object body = {r, "", srv_body_json_but(r, "input", 3)};
	if (body.json == NULL || !srv_in_only(&body, names))
		return false;
	const json_t *array = json_object_get(body.json, "chains");
	size_t n = json_array_size(array);
	if (!json_is_array(array) || n == 0 || n > BULK_MAX) {
		srv_error(r, 400, "invalid", "chains: must be an array of 1 to %d chains", BULK_MAX);
		return false;
	}
	b->n = n;
	b->starts = calloc(n, sizeof(*b->starts));
	b->chains = calloc(n, sizeof(*b->chains));
	b->started = calloc(n, sizeof(*b->started));
	if (b->starts == NULL || b->chains == NULL || b->started == NULL) {
		srv_error(r, 500, "internal", "out of memory");
		return false;
	}
	for (size_t i = 0; i < n; i++) {
		char where[32];
		(void)snprintf(where, sizeof(where), "chains[%zu]", i);
		if (!read_start(&(struct srv_object){r, where, json_array_get(array, i)}, &b->starts[i]))
			return false;
		b->chains[i] = b->starts[i].chain;
		edges += b->chains[i].job.n_blockers;
		if (edges > AFTER_MAX) {
			srv_error(r, 400, "invalid", "%s.after: the request has more than %d ids in after; split it",
				  where, AFTER_MAX);
			return false;
		}
	}
	return true;
}

void srv_chains_bulk(srv_request *r, void *ctx)
{
	struct srv_api *api = ctx;
	struct sl_err err = SL_ERR_INIT;
	struct bulk b = {0};
	struct srv_change c;
	struct srv_out o = {0};
	if (srv_in_query(r, NULL) && read_bulk(r, &b) && srv_change_begin(r, api->core, &c)) {
		int rc = start_chains(r, c.jobs, &b, &err);
		srv_change_end(&c);
		if (rc != 0) {
			start_failed(r, &err);
		} else {
			srv_out_open(&o, '{');
			srv_out_begin(&o, "chains", '[');
			for (size_t i = 0; i < b.n; i++)
				out_started(&o, &b.started[i]);
			srv_out_close(&o, ']');
			srv_out_close(&o, '}');
			srv_out_answer(r, 201, &o, NULL);
		}
	}
	for (size_t i = 0; b.starts != NULL && i < b.n; i++)
		start_fini(&b.starts[i]);
	free(b.starts);
	free(b.chains);
	free(b.started);
}

/* ---- showing ---- */

static int out_job_of_chain(const struct sl_job *job, void *ctx)
{
	struct srv_out *o = ctx;
	srv_out_open(o, '{');
	srv_out_job(o, job);
	return srv_out_end(o);
}

static int add_neighbour(const struct sl_chain *chain, void *ctx)
{
	struct srv_out *o = ctx;
	srv_out_open(o, '{');
	SRV_FIELD(o, "id", id, chain->id);
	SRV_FIELD(o, "type", str, chain->type);
	SRV_FIELD(o, "status", str, sl_job_status_name(chain->status));
	SRV_FIELD(o, "state", str, sl_job_status_name(chain->state));
	return srv_out_end(o);
}

/* The jobs of a chain. */
struct job_ids {
	uint64_t jobs[SHOWN_MAX];
	size_t n;
};

static int note_job(const struct sl_job *job, void *ctx)
{
	struct job_ids *b = ctx;
	if (b->n < SHOWN_MAX)
		b->jobs[b->n++] = job->id;
	return 0;
}

/* The jobs of the chain, the chains that any of them waits or waited for, and the chains that wait for it. */
static int out_parts(struct srv_api *api, struct srv_out *o, uint64_t id, struct sl_err *err)
{
	struct sl_job_filter jobs = {SL_JOB_FILTER_INIT, .chain_id = id, .ascending = true, .limit = SHOWN_MAX,
				     .data_max_bytes = SRV_SHORT_BYTES};
	struct sl_job_filter ids = {SL_JOB_FILTER_INIT, .chain_id = id, .ascending = true, .limit = SHOWN_MAX,
				    .without_data = true};
	struct sl_job_filter waiting = {SL_JOB_FILTER_INIT, .blocks = id, .ascending = true, .limit = SHOWN_MAX,
					.without_data = true};
	srv_out_begin(o, "jobs", '[');
	int rc = sl_jobs_list(api->core->jobs, &jobs, out_job_of_chain, o, err);
	if (rc != 0)
		return rc;
	srv_out_close(o, ']');
	srv_out_begin(o, "blockers", '[');
	struct job_ids *b = calloc(1, sizeof(*b));
	if (b == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory");
	rc = sl_jobs_list(api->core->jobs, &ids, note_job, b, err);
	for (size_t i = 0; rc == 0 && i < b->n; i++) {
		struct sl_job_filter f = {SL_JOB_FILTER_INIT, .blocked_by_job = b->jobs[i], .limit = SHOWN_MAX,
					  .without_data = true};
		rc = sl_jobs_list_chains(api->core->jobs, &f, add_neighbour, o, err);
	}
	free(b);
	if (rc != 0)
		return rc;
	srv_out_close(o, ']');
	srv_out_begin(o, "blocked", '[');
	rc = sl_jobs_list_chains(api->core->jobs, &waiting, add_neighbour, o, err);
	srv_out_close(o, ']');
	return rc;
}

void srv_chain_answer(srv_request *r, struct srv_api *api, uint64_t id)
{
	struct sl_err err = SL_ERR_INIT;
	struct srv_out o = {0};
	struct sl_chain *chain = NULL;
	int rc = sl_jobs_get_chain(api->core->jobs, id, &chain, &err);
	if (rc == 0) {
		srv_out_open(&o, '{');
		srv_out_chain(&o, chain);
		rc = out_parts(api, &o, id, &err);
		srv_out_close(&o, '}');
	}
	sl_chain_release(api->core->jobs, chain);
	srv_out_answer(r, 200, &o, rc != 0 ? &err : NULL);
}

void srv_chains_show(srv_request *r, void *ctx)
{
	uint64_t id;
	if (srv_in_query(r, NULL) && srv_in_id(r, &id))
		srv_chain_answer(r, ctx, id);
}

/* ---- steering ---- */

void srv_chains_complete(srv_request *r, void *ctx)
{
	static const char *const names[] = {"output", NULL};
	struct srv_api *api = ctx;
	struct sl_err err = SL_ERR_INIT;
	uint64_t id;
	char *output = NULL;
	struct srv_change c;
	struct srv_object body;
	if (!srv_in_query(r, NULL) || !srv_in_id(r, &id) || !srv_in_body(r, names, "output", &body) ||
	    !srv_in_opaque(&body, "output", &output))
		return;
	if (!srv_change_begin(r, api->core, &c)) {
		free(output);
		return;
	}
	int rc = sl_jobs_complete(c.jobs, NULL, id, output != NULL ? output : "null", &err);
	srv_change_end(&c);
	free(output);
	if (rc != 0)
		srv_fail(r, &err);
	else
		srv_chain_answer(r, api, id);
}

void srv_chains_fail(srv_request *r, void *ctx)
{
	static const char *const names[] = {"error", NULL};
	struct srv_api *api = ctx;
	struct sl_err err = SL_ERR_INIT;
	const char *error = NULL;
	uint64_t id;
	struct srv_change c;
	struct srv_object body;
	if (!srv_in_query(r, NULL) || !srv_in_id(r, &id) || !srv_in_body(r, names, NULL, &body) ||
	    !srv_in_text(&body, "error", &error) || !srv_change_begin(r, api->core, &c))
		return;
	int rc = sl_jobs_fail(c.jobs, NULL, id, error, &err);
	srv_change_end(&c);
	if (rc != 0)
		srv_fail(r, &err);
	else
		srv_chain_answer(r, api, id);
}

/* 409 when the chain is not in a state for the change. */
static void change_chain(srv_request *r, struct srv_api *api, srv_chains_fn *fn, const char *why)
{
	struct sl_err err = SL_ERR_INIT;
	uint64_t id;
	size_t changed = 0;
	struct srv_change c;
	if (!srv_in_query(r, NULL) || !srv_in_id(r, &id) || !srv_in_no_body(r) || !srv_change_begin(r, api->core, &c))
		return;
	int rc = fn(c.jobs, NULL, &id, 1, &changed, &err);
	srv_change_end(&c);
	if (rc != 0)
		srv_fail(r, &err);
	else if (changed == 0)
		srv_error(r, 409, "conflict", "%s", why);
	else
		srv_chain_answer(r, api, id);
}

void srv_chains_cancel(srv_request *r, void *ctx)
{
	change_chain(r, ctx, sl_jobs_cancel, "the chain has ended already");
}

void srv_chains_trigger(srv_request *r, void *ctx)
{
	change_chain(r, ctx, sl_jobs_trigger, "the chain is not scheduled for later");
}

void srv_chains_retry(srv_request *r, void *ctx)
{
	change_chain(r, ctx, sl_jobs_redrive, "the chain has neither failed nor been cancelled");
}

void srv_chains_delete(srv_request *r, void *ctx)
{
	static const char *const names[] = {"cascade", NULL};
	struct srv_api *api = ctx;
	struct sl_err err = SL_ERR_INIT;
	struct srv_out o = {0};
	uint64_t id;
	size_t deleted = 0;
	bool cascade;
	struct srv_change c;
	if (!srv_in_query(r, names) || !srv_in_id(r, &id) || !srv_in_flag(r, "cascade", &cascade) ||
	    !srv_in_no_body(r) || !srv_change_begin(r, api->core, &c))
		return;
	int rc = sl_jobs_delete(c.jobs, NULL, &id, 1, cascade, &deleted, &err);
	srv_change_end(&c);
	srv_out_open(&o, '{');
	SRV_FIELD(&o, "deleted", int, (int64_t)deleted);
	srv_out_close(&o, '}');
	srv_out_answer(r, 200, &o, rc != 0 ? &err : NULL);
}
