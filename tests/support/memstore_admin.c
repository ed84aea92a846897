/* SPDX-License-Identifier: Apache-2.0 */
/* The memory store for clients: ending, re-driving and removing chains, pauses, retention, recurring schedules. */
#include <stdlib.h>

#include "support/memstore_priv.h"

static int no_chain(struct sl_err *err, uint64_t id)
{
	return sl_err_set(err, SL_ENOENT, "chain %llu: not found", (unsigned long long)id);
}

static int check_chains(struct memstore *ms, struct sl_ids chains, struct sl_err *err)
{
	for (size_t i = 0; i < chains.n; i++)
		if (mem_chain(ms, chains.ids[i]) == NULL)
			return no_chain(err, chains.ids[i]);
	return 0;
}

static struct mem_job *last_of(struct memstore *ms, uint64_t chain_id)
{
	return mem_job(ms, mem_chain(ms, chain_id)->last_id);
}

static void end_from_outside(struct memstore *ms, struct mem_job *job, enum sl_job_status status,
			     enum sl_lost_reason reason, enum sl_change_kind change, const struct sl_store_scope *l)
{
	mem_abort_claim(ms, job, reason, l);
	job->status = status;
	job->place = MEM_NOWHERE;
	if (ms->broken != MEMSTORE_FAIL_SAME_FENCE || status != SL_JOB_FAILED)
		job->fence++;
	job->ended_ms = mem_now(ms);
	mem_change(l, change, job);
	mem_chain_ended(ms, job, l);
}

static int check_live(struct memstore *ms, uint64_t chain_id, struct sl_err *err)
{
	int rc = check_chains(ms, (struct sl_ids){&chain_id, 1}, err);
	if (rc == 0 && !mem_live(last_of(ms, chain_id)))
		rc = sl_err_set(err, SL_EEXIST, "chain %llu has ended", (unsigned long long)chain_id);
	return rc;
}

int mem_complete_chain(void *store, uint64_t chain_id, const char *output, const struct sl_store_scope *scope,
		       struct sl_err *err)
{
	sl_store_tx *tx = mem_tx(scope);
	struct memstore *ms = store;
	int rc = mem_enter(ms, tx, "complete_chain", err);
	if (rc != 0)
		return rc;
	rc = check_live(ms, chain_id, err);
	if (rc == 0) {
		struct mem_job *job = last_of(ms, chain_id);
		job->output = mem_str(ms, output != NULL ? output : "null");
		job->error = NULL;
		end_from_outside(ms, job, SL_JOB_COMPLETED, SL_LOST_COMPLETED, SL_CHANGE_COMPLETED, scope);
	}
	return mem_leave(ms, tx, rc, err);
}

int mem_fail_chain(void *store, uint64_t chain_id, const char *error, const struct sl_store_scope *scope,
		   struct sl_err *err)
{
	sl_store_tx *tx = mem_tx(scope);
	struct memstore *ms = store;
	int rc = mem_enter(ms, tx, "fail_chain", err);
	if (rc != 0)
		return rc;
	rc = check_live(ms, chain_id, err);
	if (rc == 0) {
		struct mem_job *job = last_of(ms, chain_id);
		job->error = mem_str(ms, error != NULL ? error : "failed from outside");
		end_from_outside(ms, job, SL_JOB_FAILED, SL_LOST_FAILED, SL_CHANGE_FAILED, scope);
	}
	return mem_leave(ms, tx, rc, err);
}

/* One chain of a list; true when it was changed. */
typedef bool each_fn(struct memstore *ms, struct mem_job *job, const struct sl_store_scope *l);

static int each_chain(const char *op, struct memstore *ms, struct sl_ids chains, each_fn *fn,
		      const struct sl_store_scope *scope, size_t *n, struct sl_err *err)
{
	sl_store_tx *tx = mem_tx(scope);
	int rc = mem_enter(ms, tx, op, err);
	if (rc != 0)
		return rc;
	rc = check_chains(ms, chains, err);
	size_t changed = 0;
	for (size_t i = 0; i < chains.n && rc == 0; i++)
		changed += fn(ms, last_of(ms, chains.ids[i]), scope);
	if (rc == 0 && n != NULL)
		*n = changed;
	return mem_leave(ms, tx, rc, err);
}

static bool cancel_one(struct memstore *ms, struct mem_job *job, const struct sl_store_scope *l)
{
	if (!mem_live(job))
		return false;
	end_from_outside(ms, job, SL_JOB_CANCELLED, SL_LOST_CANCELLED, SL_CHANGE_CANCELLED, l);
	return true;
}

int mem_cancel(void *store, struct sl_ids chains, const struct sl_store_scope *scope, size_t *n, struct sl_err *err)
{
	return each_chain("cancel", store, chains, cancel_one, scope, n, err);
}

static bool redrive_one(struct memstore *ms, struct mem_job *job, const struct sl_store_scope *l)
{
	bool again = job->status == SL_JOB_FAILED || job->status == SL_JOB_CANCELLED ||
		     (ms->broken == MEMSTORE_REDRIVE_COMPLETED && job->status == SL_JOB_COMPLETED);
	if (!again)
		return false;
	uint32_t open;
	mem_blockers(ms, job->id, &open);
	job->charged = 0;
	job->solo = false;
	job->fence++;
	job->ended_ms = 0;
	job->scheduled_ms = 0;
	job->status = open > 0 ? SL_JOB_BLOCKED : SL_JOB_PENDING;
	job->place = open > 0 ? MEM_NOWHERE : MEM_READY;
	if (open == 0)
		mem_note(l, SL_NOTE_JOB_SCHEDULED, job->type, job->id, SL_LOST_NOT);
	return true;
}

/* What keeps a chain that has stopped from continuing: a blocker that is gone, or its key held by another. The
 * key is taken here. */
static int check_redrive(struct memstore *ms, uint64_t chain_id, struct sl_err *err)
{
	const struct mem_job *head = mem_chain(ms, chain_id), *job = last_of(ms, chain_id);
	if (job->status != SL_JOB_FAILED && job->status != SL_JOB_CANCELLED)
		return 0;
	for (uint32_t i = 0; i < job->n_edges; i++) {
		const struct mem_edge *edge = MEM_AT(ms->s.edges, struct mem_edge, job->first_edge + i);
		if (!edge->done && mem_chain(ms, edge->chain_id) == NULL)
			return sl_err_set(err, SL_ECONFLICT, "chain %llu waits for chain %llu, which was deleted",
					  (unsigned long long)chain_id, (unsigned long long)edge->chain_id);
	}
	uint64_t holder = head->key != NULL ? mem_take_key(ms, head) : chain_id;
	if (holder == chain_id || !mem_live(last_of(ms, holder)))
		return 0;
	return sl_err_set(err, SL_EEXIST, "chain %llu: chain %llu has its key", (unsigned long long)chain_id,
			  (unsigned long long)holder);
}

int mem_redrive(void *store, struct sl_ids chains, const struct sl_store_scope *scope, size_t *n, struct sl_err *err)
{
	sl_store_tx *tx = mem_tx(scope);
	struct memstore *ms = store;
	struct mem_state before;
	size_t changed = 0;
	int rc = mem_enter(ms, tx, "redrive", err);
	if (rc != 0)
		return rc;
	mem_snapshot(&before, &ms->s);
	rc = check_chains(ms, chains, err);
	for (size_t i = 0; i < chains.n && rc == 0; i++) {
		rc = check_redrive(ms, chains.ids[i], err);
		changed += rc == 0 && redrive_one(ms, last_of(ms, chains.ids[i]), scope);
	}
	if (rc != 0)
		mem_restore(&ms->s, &before);
	else
		mem_discard(&before);
	if (rc == 0 && n != NULL)
		*n = changed;
	return mem_leave(ms, tx, rc, err);
}

static bool trigger_one(struct memstore *ms, struct mem_job *job, const struct sl_store_scope *l)
{
	if (!mem_live(job) || job->place != MEM_SCHED || job->scheduled_ms <= mem_now(ms))
		return false;
	job->scheduled_ms = mem_now(ms);
	job->place = MEM_READY;
	mem_note(l, SL_NOTE_JOB_SCHEDULED, job->type, job->id, SL_LOST_NOT);
	return true;
}

int mem_trigger(void *store, struct sl_ids chains, const struct sl_store_scope *scope, size_t *n, struct sl_err *err)
{
	return each_chain("trigger", store, chains, trigger_one, scope, n, err);
}

/* ---- removing ---- */

struct id_set {
	uint64_t *ids;
	size_t n, cap;
};

static bool in_set(const struct id_set *set, uint64_t id)
{
	for (size_t i = 0; i < set->n; i++)
		if (set->ids[i] == id)
			return true;
	return false;
}

static void put_in_set(struct id_set *set, uint64_t id)
{
	if (in_set(set, id))
		return;
	if (set->n == set->cap) {
		set->cap = set->cap * 2 + 16;
		set->ids = realloc(set->ids, set->cap * sizeof(*set->ids));
		if (set->ids == NULL)
			abort();
	}
	set->ids[set->n++] = id;
}

/* Chains outside that wait for one inside: take them in (cascade), or refuse. */
static int close_set(struct memstore *ms, struct id_set *set, int cascade, struct sl_err *err)
{
	for (size_t before = 0; before != set->n;) {
		before = set->n;
		MEM_EACH(ms->s.edges, struct mem_edge, edge)
		{
			const struct mem_job *job = mem_job(ms, edge->job_id);
			if (edge->gone || edge->done || job == NULL || !mem_live(job) || !in_set(set, edge->chain_id) ||
			    in_set(set, job->chain_id))
				continue;
			if (!cascade)
				return sl_err_set(err, SL_EPENDING, "chain %llu waits for chain %llu",
						  (unsigned long long)job->chain_id,
						  (unsigned long long)edge->chain_id);
			put_in_set(set, job->chain_id);
		}
	}
	return 0;
}

static void delete_events(struct memstore *ms, uint64_t job_id)
{
	for (size_t i = 0; i < ms->s.events.n; i++)
		if (MEM_AT(ms->s.events, struct sl_event_row, i)->job_id == job_id)
			mem_drop(&ms->s.events, i--);
}

static void delete_job(struct memstore *ms, struct mem_job *job, const struct sl_store_scope *l)
{
	mem_abort_claim(ms, job, SL_LOST_NOT_FOUND, l);
	mem_change(l, SL_CHANGE_DELETED, job);
	MEM_EACH(ms->s.edges, struct mem_edge, edge)
	if (edge->job_id == job->id)
		edge->gone = true;
	for (size_t i = 0; i < ms->s.attempts.n; i++)
		if (MEM_AT(ms->s.attempts, struct mem_attempt, i)->job_id == job->id)
			mem_drop(&ms->s.attempts, i--);
	delete_events(ms, job->id);
	job->gone = true;
	job->place = MEM_NOWHERE;
}

static void delete_chain(struct memstore *ms, uint64_t chain_id, const struct sl_store_scope *l)
{
	mem_free_keys(ms, chain_id, true);
	MEM_EACH(ms->s.jobs, struct mem_job, job)
	if (job->chain_id == chain_id && !job->gone)
		delete_job(ms, job, l);
}

int mem_remove(void *store, struct sl_ids chains, bool cascade, const struct sl_store_scope *scope, size_t *n,
	       struct sl_err *err)
{
	sl_store_tx *tx = mem_tx(scope);
	struct memstore *ms = store;
	int rc = mem_enter(ms, tx, "remove", err);
	if (rc != 0)
		return rc;
	struct id_set set = {0};
	rc = check_chains(ms, chains, err);
	for (size_t i = 0; i < chains.n && rc == 0; i++)
		put_in_set(&set, chains.ids[i]);
	if (rc == 0)
		rc = close_set(ms, &set, cascade, err);
	for (size_t i = 0; i < set.n && rc == 0; i++)
		delete_chain(ms, set.ids[i], scope);
	if (rc == 0 && n != NULL)
		*n = set.n;
	free(set.ids);
	return mem_leave(ms, tx, rc, err);
}

static bool is_needed(struct memstore *ms, uint64_t chain_id)
{
	MEM_EACH(ms->s.edges, struct mem_edge, edge)
	{
		const struct mem_job *job = edge->gone ? NULL : mem_job(ms, edge->job_id);
		if (job != NULL && edge->chain_id == chain_id && mem_live(job))
			return true;
	}
	return false;
}

/* Another incarnation has followed, and nothing is left of this one. */
static bool is_superseded(struct memstore *ms, const struct mem_mark *m)
{
	bool followed = false;
	MEM_EACH(ms->s.marks, struct mem_mark, other)
	if (strcmp(other->stream, m->stream) == 0 && other->at_ms > m->at_ms)
		followed = true;
	MEM_EACH(ms->s.events, struct sl_event_row, e)
	if (e->incarnation == m->incarnation && strcmp(e->stream, m->stream) == 0)
		return false;
	return followed;
}

int mem_prune(void *store, int64_t before_ms, uint32_t limit, const struct sl_store_scope *scope, size_t *n,
	      struct sl_err *err)
{
	(void)scope;
	struct memstore *ms = store;
	int rc = mem_enter(ms, NULL, "prune", err);
	if (rc != 0)
		return rc;
	*n = 0;
	for (uint64_t id = 1; id <= ms->s.jobs.n && *n < limit; id++) {
		if (mem_chain(ms, id) == NULL)
			continue;
		const struct mem_job *last = last_of(ms, id);
		if (mem_live(last) || last->ended_ms >= before_ms || is_needed(ms, id))
			continue;
		delete_chain(ms, id, NULL);
		++*n;
	}
	for (size_t i = 0; *n == 0 && i < ms->s.events.n; i++) {
		const struct sl_event_row *e = MEM_AT(ms->s.events, struct sl_event_row, i);
		bool orphan = e->job_id != 0 ? mem_job(ms, e->job_id) == NULL : e->late;
		if (orphan && e->ts_ms < before_ms)
			mem_drop(&ms->s.events, i--);
	}
	for (size_t i = 0; *n == 0 && i < ms->s.marks.n; i++) {
		const struct mem_mark *m = MEM_AT(ms->s.marks, struct mem_mark, i);
		if (m->at_ms < before_ms && is_superseded(ms, m))
			mem_drop(&ms->s.marks, i--);
	}
	return mem_leave(ms, NULL, 0, err);
}

int mem_pause(void *store, const char *type, int paused, const struct sl_store_scope *scope, struct sl_err *err)
{
	struct memstore *ms = store;
	int rc = mem_enter(ms, NULL, "pause", err);
	if (rc != 0)
		return rc;
	bool was = mem_paused(ms, type);
	if (paused && !was)
		*(const char **)mem_push(&ms->s.paused) = mem_str(ms, type);
	for (size_t i = 0; !paused && i < ms->s.paused.n; i++)
		if (strcmp(*MEM_AT(ms->s.paused, const char *, i), type) == 0)
			mem_drop(&ms->s.paused, i--);
	if (!paused && was)
		mem_note(scope, SL_NOTE_JOB_SCHEDULED, type, 0, SL_LOST_NOT);
	return mem_leave(ms, NULL, 0, err);
}

int mem_watch(void *store, uint64_t chain_id, enum sl_job_status *status, struct sl_err *err)
{
	struct memstore *ms = store;
	int rc = mem_enter(ms, NULL, "watch", err);
	if (rc != 0)
		return rc;
	rc = check_chains(ms, (struct sl_ids){&chain_id, 1}, err);
	if (rc == 0) {
		mem_chain(ms, chain_id)->watched = true;
		*status = mem_status(ms, last_of(ms, chain_id));
	}
	return mem_leave(ms, NULL, rc, err);
}

/* ---- recurring schedules ---- */

static struct sl_cron *find_cron(struct memstore *ms, const char *name)
{
	MEM_EACH(ms->s.crons, struct sl_cron, cron)
	if (strcmp(cron->name, name) == 0)
		return cron;
	return NULL;
}

static struct mem_request *find_request(struct memstore *ms, const char *key)
{
	MEM_EACH(ms->s.requests, struct mem_request, request)
	if (strcmp(request->once.key, key) == 0)
		return request;
	return NULL;
}

int mem_request_take(void *store, sl_store_tx *tx, const struct sl_once *once, struct sl_kept_answer *kept,
		     struct sl_err *err)
{
	struct memstore *ms = store;
	int rc = mem_enter(ms, tx, "request_take", err);
	if (rc != 0)
		return rc;
	struct mem_request *mine = find_request(ms, once->key);
	kept->found = mine != NULL && mine->until_ms > mem_now(ms);
	if (!kept->found) {
		mine = mine != NULL ? mine : mem_push(&ms->s.requests);
		*mine = (struct mem_request){.once = *once, .until_ms = mem_now(ms) + once->keep_ms};
		mine->once.key = mem_str(ms, once->key);
	} else if (memcmp(mine->once.hash, once->hash, sizeof(once->hash)) != 0) {
		rc = sl_err_set(err, SL_ECONFLICT, "the key was used for another request");
	} else {
		rc = kept->fn(mine->answer, kept->ctx);
	}
	return mem_leave(ms, tx, rc, err);
}

int mem_request_answer(void *store, sl_store_tx *tx, const char *key, const char *answer, struct sl_err *err)
{
	struct memstore *ms = store;
	int rc = mem_enter(ms, tx, "request_answer", err);
	if (rc != 0)
		return rc;
	struct mem_request *mine = find_request(ms, key);
	if (mine != NULL)
		mine->answer = mem_str(ms, answer);
	return mem_leave(ms, tx, 0, err);
}

int mem_cron_put(void *store, const struct sl_cron *cron, const struct sl_store_scope *scope, struct sl_err *err)
{
	(void)scope;
	struct memstore *ms = store;
	int rc = mem_enter(ms, NULL, "cron_put", err);
	if (rc != 0)
		return rc;
	struct sl_cron *mine = find_cron(ms, cron->name);
	if (mine == NULL)
		mine = mem_push(&ms->s.crons);
	int64_t last_ms = mine->last_ms;
	uint64_t last_chain = mine->last_chain;
	*mine = *cron;
	mine->paused = cron->next_ms == 0;
	mine->name = mem_str(ms, cron->name);
	mine->spec = mem_str(ms, cron->spec);
	mine->type = mem_str(ms, cron->type);
	mine->input = mem_str(ms, cron->input != NULL ? cron->input : "null");
	mine->last_ms = last_ms;
	mine->last_chain = last_chain;
	return mem_leave(ms, NULL, 0, err);
}

int mem_cron_remove(void *store, const char *name, const struct sl_store_scope *scope, struct sl_err *err)
{
	(void)scope;
	struct memstore *ms = store;
	int rc = mem_enter(ms, NULL, "cron_remove", err);
	if (rc != 0)
		return rc;
	struct sl_cron *cron = find_cron(ms, name);
	if (cron != NULL)
		mem_drop(&ms->s.crons, (size_t)(cron - (struct sl_cron *)ms->s.crons.items));
	else
		rc = sl_err_set(err, SL_ENOENT, "schedule %s: not found", name);
	return mem_leave(ms, NULL, rc, err);
}

static int by_next(const void *a, const void *b)
{
	const struct sl_cron *x = a, *y = b;
	int64_t first = x->paused ? INT64_MAX : x->next_ms, second = y->paused ? INT64_MAX : y->next_ms;
	return first < second ? -1 : first > second;
}

int mem_cron_list(void *store, sl_cron_fn *fn, void *ctx, struct sl_err *err)
{
	struct memstore *ms = store;
	int rc = mem_enter(ms, NULL, "cron_list", err);
	if (rc != 0)
		return rc;
	if (ms->s.crons.n > 0)
		qsort(ms->s.crons.items, ms->s.crons.n, sizeof(struct sl_cron), by_next);
	for (size_t i = 0; i < ms->s.crons.n && rc == 0; i++)
		rc = fn(MEM_AT(ms->s.crons, struct sl_cron, i), ctx);
	return mem_leave(ms, NULL, rc, err);
}

int mem_cron_fire(void *store, const struct sl_cron *seen, int64_t next_ms, bool *fired, struct sl_started *out,
		  const struct sl_store_scope *scope, struct sl_err *err)
{
	struct memstore *ms = store;
	int rc = mem_enter(ms, NULL, "cron_fire", err);
	if (rc != 0)
		return rc;
	struct sl_cron *cron = find_cron(ms, seen->name);
	bool same = cron != NULL && cron->catch_up == seen->catch_up && strcmp(cron->spec, seen->spec) == 0;
	*fired = same && (cron->next_ms == seen->next_ms || ms->broken == MEMSTORE_CRON_ANY_TICK);
	if (*fired) {
		struct sl_new_job spec = {.type = cron->type, .input = cron->input, .priority = cron->priority};
		bool torn = ++ms->torn % 3 == 0;
		*out = (struct sl_started){0};
		if (ms->broken != MEMSTORE_CRON_NO_JOB || !torn)
			out->chain_id = mem_make(ms, &spec, NULL, scope)->id;
		cron->last_ms = seen->next_ms;
		if (ms->broken != MEMSTORE_CRON_STAYS || !torn)
			cron->next_ms = next_ms;
		cron->last_chain = out->chain_id;
	}
	return mem_leave(ms, NULL, 0, err);
}
