/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory store: its tables, transactions and faults. Rows are plain data and their strings never move, so a
 * snapshot (of a transaction, a savepoint, an exchange that may have to be taken back) is a copy of the arrays.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/env.h"
#include "support/memstore_priv.h"

static void *must(void *p)
{
	if (p == NULL)
		abort();
	return p;
}

/* Many small things that live until the end share a block; a large one has its own. */
#define BLOCK_BYTES ((size_t)8192)

static void *new_block(struct memstore *ms, size_t n)
{
	if (ms->n_arena == ms->cap_arena) {
		ms->cap_arena = ms->cap_arena * 2 + 64;
		ms->arena = must(realloc(ms->arena, ms->cap_arena * sizeof(*ms->arena)));
	}
	return ms->arena[ms->n_arena++] = must(malloc(n));
}

void *mem_room(struct memstore *ms, size_t n)
{
	n = (n + 15) & ~(size_t)15;
	if (n > BLOCK_BYTES / 8)
		return new_block(ms, n);
	if (n > ms->room) {
		ms->next_room = new_block(ms, BLOCK_BYTES);
		ms->room = BLOCK_BYTES;
	}
	void *p = ms->next_room;
	ms->next_room += n;
	ms->room -= n;
	return p;
}

void *mem_keep(struct memstore *ms, const void *data, size_t n)
{
	char *copy = mem_room(ms, n + 1);
	if (n > 0)
		memcpy(copy, data, n);
	copy[n] = '\0';
	return copy;
}

const char *mem_str(struct memstore *ms, const char *s)
{
	return s != NULL ? mem_keep(ms, s, strlen(s)) : NULL;
}

void *mem_push(struct mem_vec *v)
{
	if (v->n == v->cap) {
		v->cap = v->cap * 2 + 16;
		v->items = must(realloc(v->items, v->cap * v->size));
	}
	void *item = (char *)v->items + v->n++ * v->size;
	memset(item, 0, v->size);
	return item;
}

void mem_drop(struct mem_vec *v, size_t i)
{
	char *at = (char *)v->items + i * v->size;
	memmove(at, at + v->size, (v->n - i - 1) * v->size);
	v->n--;
}

/* ---- snapshots ---- */

void mem_snapshot(struct mem_state *to, const struct mem_state *from)
{
	*to = *from;
	struct mem_vec *v = &to->jobs;
	for (int i = 0; i < MEM_TABLES; i++) {
		void *items = must(malloc(v[i].n * v[i].size + 1));
		if (v[i].n > 0)
			memcpy(items, v[i].items, v[i].n * v[i].size);
		v[i].items = items;
		v[i].cap = v[i].n;
	}
}

void mem_discard(struct mem_state *state)
{
	struct mem_vec *v = &state->jobs;
	for (int i = 0; i < MEM_TABLES; i++)
		free(v[i].items);
}

void mem_restore(struct mem_state *to, struct mem_state *from)
{
	mem_discard(to);
	*to = *from;
}

/* ---- life ---- */

static void init_state(struct mem_state *s)
{
	s->jobs.size = sizeof(struct mem_job);
	s->edges.size = sizeof(struct mem_edge);
	s->leases.size = sizeof(struct mem_lease);
	s->attempts.size = sizeof(struct mem_attempt);
	s->keys.size = sizeof(struct mem_key);
	s->paused.size = sizeof(const char *);
	s->requests.size = sizeof(struct mem_request);
	s->crons.size = sizeof(struct sl_cron);
	s->events.size = sizeof(struct sl_event_row);
	s->marks.size = sizeof(struct mem_mark);
	s->next_offset = 1;
}

struct memstore *memstore_new(const struct sl_env *env)
{
	struct memstore *ms = must(calloc(1, sizeof(*ms)));
	if (sl__env_init(&ms->env, env, NULL) != 0)
		abort();
	pthread_mutex_init(&ms->mu, NULL);
	pthread_cond_init(&ms->tx_ended, NULL);
	init_state(&ms->s);
	ms->marks_were.size = sizeof(struct mem_mark_was);
	return ms;
}

void memstore_free(struct memstore *ms)
{
	if (ms == NULL)
		return;
	mem_discard(&ms->s);
	free(ms->marks_were.items);
	for (size_t i = 0; i < ms->n_arena; i++)
		free(ms->arena[i]);
	free(ms->arena);
	pthread_cond_destroy(&ms->tx_ended);
	pthread_mutex_destroy(&ms->mu);
	free(ms);
}

void memstore_set_faults(struct memstore *ms, memstore_fault_fn *fn, void *ctx)
{
	ms->faults = fn;
	ms->faults_ctx = ctx;
}

void memstore_set_break(struct memstore *ms, enum memstore_break which)
{
	ms->broken = which;
}

/* ---- every operation ---- */

static int away(struct sl_err *err)
{
	int rc = sl_err_set(err, SL_EUNAVAIL, "the memory store is unavailable");
	if (err != NULL)
		err->error_class = SL_CLASS_FATAL;
	return rc;
}

static int again(struct sl_err *err)
{
	int rc = sl_err_set(err, SL_EAGAIN, "the memory store asks to try again");
	if (err != NULL)
		err->error_class = SL_CLASS_TRANSIENT;
	return rc;
}

static void unlock(struct memstore *ms, sl_store_tx *tx)
{
	if (tx == NULL)
		pthread_mutex_unlock(&ms->mu);
}

int mem_enter(struct memstore *ms, sl_store_tx *tx, const char *op, struct sl_err *err)
{
	if (tx == NULL) {
		pthread_mutex_lock(&ms->mu);
		while (ms->tx_open)
			pthread_cond_wait(&ms->tx_ended, &ms->mu);
	}
	ms->fault = ms->faults != NULL ? ms->faults(op, ms->faults_ctx) : MEMSTORE_OK;
	if (ms->fault != MEMSTORE_FAIL_BEFORE && ms->fault != MEMSTORE_AGAIN)
		return 0;
	int rc = ms->fault == MEMSTORE_AGAIN ? again(err) : away(err);
	unlock(ms, tx);
	return rc;
}

int mem_leave(struct memstore *ms, sl_store_tx *tx, int rc, struct sl_err *err)
{
	if (rc == 0 && ms->fault == MEMSTORE_FAIL_AFTER)
		rc = away(err);
	unlock(ms, tx);
	return rc;
}

int64_t mem_now(struct memstore *ms)
{
	return sl__real_ms(&ms->env);
}

/* ---- rows ---- */

struct mem_job *mem_job(struct memstore *ms, uint64_t id)
{
	if (id == 0 || id > ms->s.jobs.n)
		return NULL;
	struct mem_job *job = MEM_AT(ms->s.jobs, struct mem_job, id - 1);
	return job->gone ? NULL : job;
}

struct mem_job *mem_chain(struct memstore *ms, uint64_t id)
{
	struct mem_job *job = mem_job(ms, id);
	return job != NULL && job->chain_id == id ? job : NULL;
}

bool mem_live(const struct mem_job *job)
{
	return job->status == SL_JOB_BLOCKED || job->status == SL_JOB_PENDING;
}

static bool lease_holds(const struct mem_lease *lease, const struct mem_job *job)
{
	for (size_t i = 0; i < lease->n; i++)
		if (lease->ids[i] == job->id && lease->fences[i] == job->fence)
			return true;
	return false;
}

struct mem_lease *mem_lease_of(struct memstore *ms, const struct mem_job *job)
{
	if (!mem_live(job))
		return NULL;
	MEM_EACH(ms->s.leases, struct mem_lease, lease)
	if (lease_holds(lease, job))
		return lease;
	return NULL;
}

uint32_t mem_blockers(struct memstore *ms, uint64_t job_id, uint32_t *open)
{
	const struct mem_job *job = mem_job(ms, job_id);
	*open = 0;
	for (uint32_t i = 0; job != NULL && i < job->n_edges; i++)
		*open += !MEM_AT(ms->s.edges, struct mem_edge, job->first_edge + i)->done;
	return job != NULL ? job->n_edges : 0;
}

bool mem_has(const char *const *list, size_t n, const char *s)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(list[i], s) == 0)
			return true;
	return false;
}

bool mem_paused(struct memstore *ms, const char *type)
{
	return mem_has(ms->s.paused.items, ms->s.paused.n, type);
}

enum sl_lost_reason mem_lost(struct memstore *ms, uint64_t id, uint64_t fence)
{
	const struct mem_job *job = mem_job(ms, id);
	if (job == NULL)
		return SL_LOST_NOT_FOUND;
	if (mem_live(job) && job->fence == fence)
		return SL_LOST_NOT;
	/* In the very next step: no worker had claimed it before. */
	if (job->status == SL_JOB_COMPLETED && job->fence == fence + 1)
		return SL_LOST_COMPLETED;
	if (job->status == SL_JOB_FAILED && job->fence == fence + 1)
		return SL_LOST_FAILED;
	return job->status == SL_JOB_CANCELLED ? SL_LOST_CANCELLED : SL_LOST_TAKEN;
}

void mem_note(const struct sl_store_scope *l, enum sl_note_kind kind, const char *type, uint64_t id,
	      enum sl_lost_reason reason)
{
	if (l != NULL && l->note != NULL)
		l->note(&(struct sl_note){.kind = kind, .type = type, .id = id, .reason = reason}, l->ctx);
}

void mem_change(const struct sl_store_scope *l, enum sl_change_kind kind, const struct mem_job *job)
{
	if (l != NULL && l->change != NULL)
		l->change(
			&(struct sl_change){.kind = kind, .id = job->id, .chain_id = job->chain_id, .type = job->type},
			l->ctx);
}

size_t memstore_rows(struct memstore *ms)
{
	return ms->s.jobs.n;
}

void memstore_row(struct memstore *ms, uint64_t id, struct memstore_row *out)
{
	const struct mem_job *job = MEM_AT(ms->s.jobs, struct mem_job, id - 1);
	*out = (struct memstore_row){.id = job->id,
				     .chain_id = job->chain_id,
				     .prev_id = job->prev_id,
				     .next_id = job->next_id,
				     .fence = job->fence,
				     .type = job->type,
				     .output = job->output,
				     .status = job->status,
				     .attempt = job->attempt,
				     .charged = job->charged,
				     .gone = job->gone,
				     .ready = job->place == MEM_READY,
				     .sched = job->place == MEM_SCHED,
				     .solo = job->solo};
	out->blockers = mem_blockers(ms, id, &out->open);
	MEM_EACH(ms->s.leases, struct mem_lease, lease)
	{
		if (!lease_holds(lease, job))
			continue;
		out->leases++;
		out->lease_until_ms = lease->until_ms;
	}
}

uint64_t memstore_blocker(struct memstore *ms, uint64_t id, uint32_t i, int *open)
{
	const struct mem_job *job = MEM_AT(ms->s.jobs, struct mem_job, id - 1);
	const struct mem_edge *edge = MEM_AT(ms->s.edges, struct mem_edge, job->first_edge + i);
	*open = !edge->done;
	return edge->chain_id;
}

/* ---- transactions ---- */

static void save(sl_store_tx *tx, const char *name)
{
	struct mem_savepoint *sp = must(calloc(1, sizeof(*sp)));
	sp->name = must(strdup(name));
	mem_snapshot(&sp->state, &tx->ms->s);
	sp->below = tx->saved;
	tx->saved = sp;
}

static void pop_savepoint(sl_store_tx *tx)
{
	struct mem_savepoint *sp = tx->saved;
	tx->saved = sp->below;
	mem_discard(&sp->state);
	free(sp->name);
	free(sp);
}

static int mem_begin(void *store, sl_store_tx **out, struct sl_err *err)
{
	struct memstore *ms = store;
	int rc = mem_enter(ms, NULL, "begin", err);
	if (rc != 0)
		return rc;
	sl_store_tx *tx = must(calloc(1, sizeof(*tx)));
	tx->ms = ms;
	save(tx, "");
	ms->tx_open = true;
	ms->fault = MEMSTORE_OK;
	*out = tx;
	return mem_leave(ms, NULL, 0, err);
}

static int mem_join(void *store, void *native, sl_store_tx **out, struct sl_err *err)
{
	(void)store, (void)native, (void)out;
	return sl_err_set(err, SL_EUNSUPPORTED, "the memory store has no connections to join");
}

static void *mem_native(sl_store_tx *tx)
{
	(void)tx;
	return NULL;
}

static struct mem_savepoint *find_savepoint(sl_store_tx *tx, const char *name)
{
	struct mem_savepoint *sp = tx->saved;
	while (sp != NULL && strcmp(sp->name, name) != 0)
		sp = sp->below;
	return sp;
}

static int mem_savepoint(sl_store_tx *tx, const char *name, struct sl_err *err)
{
	(void)err;
	save(tx, name);
	return 0;
}

static int mem_release_savepoint(sl_store_tx *tx, const char *name, struct sl_err *err)
{
	struct mem_savepoint *sp = find_savepoint(tx, name);
	if (sp == NULL)
		return sl_err_set(err, SL_EINVAL, "no savepoint %s", name);
	while (tx->saved != sp)
		pop_savepoint(tx);
	pop_savepoint(tx);
	return 0;
}

static int mem_rollback_to(sl_store_tx *tx, const char *name, struct sl_err *err)
{
	struct mem_savepoint *sp = find_savepoint(tx, name);
	if (sp == NULL)
		return sl_err_set(err, SL_EINVAL, "no savepoint %s", name);
	while (tx->saved != sp)
		pop_savepoint(tx);
	struct mem_state copy;
	mem_snapshot(&copy, &sp->state);
	mem_restore(&tx->ms->s, &copy);
	return 0;
}

static void end_tx(sl_store_tx *tx)
{
	struct memstore *ms = tx->ms;
	while (tx->saved != NULL)
		pop_savepoint(tx);
	free(tx);
	pthread_mutex_lock(&ms->mu);
	ms->tx_open = false;
	pthread_cond_broadcast(&ms->tx_ended);
	pthread_mutex_unlock(&ms->mu);
}

static void mem_rollback(sl_store_tx *tx)
{
	while (tx->saved->below != NULL)
		pop_savepoint(tx);
	struct mem_state copy;
	mem_snapshot(&copy, &tx->saved->state);
	mem_restore(&tx->ms->s, &copy);
	end_tx(tx);
}

static int mem_commit(sl_store_tx *tx, struct sl_err *err)
{
	int rc = mem_enter(tx->ms, tx, "commit", err);
	if (rc != 0) {
		mem_rollback(tx);
		return rc;
	}
	rc = mem_leave(tx->ms, tx, 0, err);
	end_tx(tx);
	return rc;
}

/* ---- the table ---- */

static void mem_close(void *store)
{
	(void)store;
}

static int mem_migrate(void *store, int *from, int *to, struct sl_err *err)
{
	(void)store, (void)err;
	if (from != NULL)
		*from = SL_SCHEMA_VERSION;
	if (to != NULL)
		*to = SL_SCHEMA_VERSION;
	return 0;
}

static int mem_target_id(void *store, char out[33], struct sl_err *err)
{
	(void)store, (void)err;
	memcpy(out, "0123456789abcdef0123456789abcdef", 33);
	return 0;
}

static int mem_now_ms(void *store, int64_t *out, struct sl_err *err)
{
	struct memstore *ms = store;
	int rc = mem_enter(ms, NULL, "now_ms", err);
	if (rc != 0)
		return rc;
	*out = mem_now(ms);
	return mem_leave(ms, NULL, 0, err);
}

static const struct sl_store_ops ops = {
	.version = SL_STORE_VERSION,
	.name = "memory",
	.close = mem_close,
	.migrate = mem_migrate,
	.target_id = mem_target_id,
	.now_ms = mem_now_ms,
	.begin = mem_begin,
	.join = mem_join,
	.native = mem_native,
	.savepoint = mem_savepoint,
	.release_savepoint = mem_release_savepoint,
	.rollback_to = mem_rollback_to,
	.commit = mem_commit,
	.rollback = mem_rollback,
	.start = mem_start,
	.exchange = mem_exchange,
	.guard = mem_guard,
	.progress = mem_progress,
	.renew = mem_renew,
	.reap = mem_reap,
	.complete_chain = mem_complete_chain,
	.fail_chain = mem_fail_chain,
	.cancel = mem_cancel,
	.redrive = mem_redrive,
	.trigger = mem_trigger,
	.remove = mem_remove,
	.pause = mem_pause,
	.request_take = mem_request_take,
	.request_answer = mem_request_answer,
	.prune = mem_prune,
	.watch = mem_watch,
	.get_job = mem_get_job,
	.get_chain = mem_get_chain,
	.list_jobs = mem_list_jobs,
	.list_chains = mem_list_chains,
	.attempts = mem_attempts,
	.counts = mem_counts,
	.outstanding = mem_outstanding,
	.cron_put = mem_cron_put,
	.cron_remove = mem_cron_remove,
	.cron_list = mem_cron_list,
	.cron_fire = mem_cron_fire,
	.events_append = mem_events_append,
	.events_read = mem_events_read,
	.events_newest = mem_events_newest,
	.leases = mem_leases,
	.errors = mem_errors,
	.event_streams = mem_event_streams,
};

sl_store memstore_handle(struct memstore *ms)
{
	return (sl_store){.ops = &ops, .ctx = ms};
}
