/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the memory store share: its rows, and the steps that more than one operation takes. */
#ifndef TESTS_MEMSTORE_PRIV_H
#define TESTS_MEMSTORE_PRIV_H

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "support/memstore.h"

/* A growing array. Elements are plain data whose strings are kept in the store's arena, so a copy of the array is a
 * snapshot. */
struct mem_vec {
	void *items;
	size_t n, cap, size;
};

enum mem_place { MEM_NOWHERE, MEM_READY, MEM_SCHED };

struct mem_job {
	uint64_t id, chain_id, prev_id, next_id, fence;
	const char *type, *input, *output, *error, *progress, *key, *traceparent, *leased_by;
	enum sl_job_status status; /* never SL_JOB_RUNNING: that is derived from the leases */
	enum mem_place place;
	bool solo, gone;
	bool by_worker;                     /* completed by an attempt, not from outside */
	int32_t attempt, charged, priority; /* attempt: the last that has ended */
	struct sl_claim_id claim;           /* that completed it */
	int64_t created_ms, scheduled_ms, started_ms, ended_ms;
	size_t first_edge; /* its blockers are there in a row */
	uint32_t n_edges;
	/* Of a chain's first job. */
	uint64_t last_id;
	bool watched;
};
struct mem_edge {
	uint64_t job_id, chain_id;
	bool done, gone;
};
struct mem_lease {
	struct sl_claim_id claim;
	const char *worker;
	int64_t until_ms, since_ms;
	bool started;
	size_t n;
	const uint64_t *ids, *fences;
};
struct mem_attempt {
	uint64_t job_id;
	struct sl_claim_id claim;
	struct sl_attempt_record rec;
};
struct mem_key {
	const char *key;
	uint64_t chain_id;
	enum sl_dedup_scope scope;
	int64_t until_ms; /* 0: no window */
};
struct mem_mark {
	const char *stream;
	uint32_t incarnation;
	uint64_t mark, crc;
	bool has_crc;      /* false: the sequence at the mark was skipped */
	int64_t at_ms;     /* when it last moved */
	const char *owner; /* token that created the stream, or NULL */
};
/* A mark as it became when the last event had this offset. */
struct mem_mark_was {
	uint64_t offset;
	struct mem_mark mark;
};

/* All tables; MEM_TABLES vectors in a row so that a snapshot is a loop. */
struct mem_state {
	struct mem_vec jobs, edges, leases, attempts, keys, paused, crons, events, marks, requests;
	uint64_t next_offset;
};
#define MEM_TABLES 10

struct mem_request {
	struct sl_once once;
	int64_t until_ms;
	const char *answer;
};

struct mem_savepoint {
	char *name;
	struct mem_state state;
	struct mem_savepoint *below;
};

struct sl_store_tx {
	struct memstore *ms;
	struct mem_savepoint *saved; /* the bottom one is the beginning */
};

struct memstore {
	struct sl_env env;
	pthread_mutex_t mu;
	pthread_cond_t tx_ended;
	bool tx_open;
	struct mem_state s;
	struct mem_vec marks_were; /* for memstore_lose_events */
	void **arena;
	size_t n_arena, cap_arena;
	char *next_room; /* in the last block, and how much is left there */
	size_t room;
	memstore_fault_fn *faults;
	void *faults_ctx;
	enum memstore_fault fault; /* of the operation that runs */
	enum memstore_break broken;
	uint64_t torn; /* counts what MEMSTORE_TORN_CONTINUE and its like spoil now and then */
};

/* ---- memstore.c ---- */
/* Aborts without memory, as all of the support code does. */
void *mem_room(struct memstore *ms, size_t n); /* kept until the store is freed */
void *mem_keep(struct memstore *ms, const void *data, size_t n);
const char *mem_str(struct memstore *ms, const char *s); /* NULL stays NULL */
void *mem_push(struct mem_vec *v);                       /* a zeroed element at the end */
void mem_drop(struct mem_vec *v, size_t i);
#define MEM_AT(v, T, i) (&((T *)(v).items)[i])
#define MEM_EACH(v, T, it) for (T *it = (T *)(v).items, *it##_end = it == NULL ? NULL : it + (v).n; it < it##_end; it++)

void mem_snapshot(struct mem_state *to, const struct mem_state *from);
void mem_restore(struct mem_state *to, struct mem_state *from); /* from is used up */
void mem_discard(struct mem_state *state);

/* Every slot: enter, work, leave. enter locks (unless tx), asks for a fault, and fails without a lock held. */
int mem_enter(struct memstore *ms, sl_store_tx *tx, const char *op, struct sl_err *err);
int mem_leave(struct memstore *ms, sl_store_tx *tx, int rc, struct sl_err *err);

int64_t mem_now(struct memstore *ms);
struct mem_job *mem_job(struct memstore *ms, uint64_t id);   /* NULL: never was, or deleted */
struct mem_job *mem_chain(struct memstore *ms, uint64_t id); /* the first job; NULL when id is not a chain */
struct mem_lease *mem_lease_of(struct memstore *ms, const struct mem_job *job);
bool mem_live(const struct mem_job *job); /* blocked or pending */
uint32_t mem_blockers(struct memstore *ms, uint64_t job_id, uint32_t *open);
bool mem_has(const char *const *list, size_t n, const char *s);
bool mem_paused(struct memstore *ms, const char *type);
enum sl_lost_reason mem_lost(struct memstore *ms, uint64_t id, uint64_t fence);

/* The transaction of a scope; NULL: none. */
static inline sl_store_tx *mem_tx(const struct sl_store_scope *scope)
{
	return scope != NULL ? scope->tx : NULL;
}
void mem_note(const struct sl_store_scope *l, enum sl_note_kind kind, const char *type, uint64_t id,
	      enum sl_lost_reason reason);
void mem_change(const struct sl_store_scope *l, enum sl_change_kind kind, const struct mem_job *job);

/* ---- memstore_work.c ---- */
int mem_check_blockers(struct memstore *ms, const struct sl_new_job *job, uint64_t own, struct sl_err *err);
/* Make a job; prev NULL: the first of a chain. The pointer holds until the next one is made. */
struct mem_job *mem_make(struct memstore *ms, const struct sl_new_job *spec, struct mem_job *prev,
			 const struct sl_store_scope *l);
/* Put a pending job where claims find it, by its scheduled_ms. */
void mem_enqueue(struct memstore *ms, struct mem_job *job);
void mem_history(struct memstore *ms, const struct mem_job *job, enum sl_attempt_outcome outcome, const char *worker,
		 const char *error, int64_t started_ms, int32_t attempt, const struct sl_claim_id *claim);
/* The chain that job is the last of has ended with job's status. */
void mem_chain_ended(struct memstore *ms, struct mem_job *job, const struct sl_store_scope *l);
/* A claim on job ends from outside: history, note. True when there was one. */
bool mem_abort_claim(struct memstore *ms, struct mem_job *job, enum sl_lost_reason reason,
		     const struct sl_store_scope *l);
void mem_free_keys(struct memstore *ms, uint64_t chain_id, bool all_scopes);
/* For a chain that is redriven: take its key, if no other chain has it. Whose it is then. */
uint64_t mem_take_key(struct memstore *ms, const struct mem_job *head);

int mem_start(void *store, const struct sl_new_chain *chains, size_t n, const struct sl_store_scope *scope,
	      struct sl_started *out, struct sl_err *err);
int mem_exchange(void *store, const struct sl_exchange *x, const struct sl_store_scope *scope, struct sl_err *err);
int mem_guard(void *store, sl_store_tx *tx, uint64_t id, uint64_t fence, enum sl_lost_reason *out, struct sl_err *err);
int mem_progress(void *store, uint64_t id, uint64_t fence, const char *progress, enum sl_lost_reason *out,
		 struct sl_err *err);
int mem_renew(void *store, const struct sl_renewal *renewals, size_t n, sl_lost_fn *lost, void *lost_ctx,
	      struct sl_err *err);
int mem_reap(void *store, const struct sl_reap_type *types, size_t n_types, uint32_t limit, struct sl_reaped *out,
	     const struct sl_store_scope *scope, struct sl_err *err);

/* ---- memstore_admin.c ---- */
int mem_complete_chain(void *store, uint64_t chain_id, const char *output, const struct sl_store_scope *scope,
		       struct sl_err *err);
int mem_fail_chain(void *store, uint64_t chain_id, const char *error, const struct sl_store_scope *scope,
		   struct sl_err *err);
int mem_cancel(void *store, struct sl_ids chains, const struct sl_store_scope *scope, size_t *n, struct sl_err *err);
int mem_redrive(void *store, struct sl_ids chains, const struct sl_store_scope *scope, size_t *n, struct sl_err *err);
int mem_trigger(void *store, struct sl_ids chains, const struct sl_store_scope *scope, size_t *n, struct sl_err *err);
int mem_remove(void *store, struct sl_ids chains, bool cascade, const struct sl_store_scope *scope, size_t *n,
	       struct sl_err *err);
int mem_pause(void *store, const char *type, int paused, const struct sl_store_scope *scope, struct sl_err *err);
int mem_prune(void *store, int64_t before_ms, uint32_t limit, const struct sl_store_scope *scope, size_t *n,
	      struct sl_err *err);
int mem_watch(void *store, uint64_t chain_id, enum sl_job_status *status, struct sl_err *err);
int mem_request_take(void *store, sl_store_tx *tx, const struct sl_once *once, struct sl_kept_answer *kept,
		     struct sl_err *err);
int mem_request_answer(void *store, sl_store_tx *tx, const char *key, const char *answer, struct sl_err *err);
int mem_cron_put(void *store, const struct sl_cron *cron, const struct sl_store_scope *scope, struct sl_err *err);
int mem_cron_remove(void *store, const char *name, const struct sl_store_scope *scope, struct sl_err *err);
int mem_cron_list(void *store, sl_cron_fn *fn, void *ctx, struct sl_err *err);
int mem_cron_fire(void *store, const struct sl_cron *seen, int64_t next_ms, bool *fired, struct sl_started *out,
		  const struct sl_store_scope *scope, struct sl_err *err);

/* ---- memstore_read.c ---- */
enum sl_job_status mem_status(struct memstore *ms, const struct mem_job *job); /* running derived */
int mem_get_job(void *store, sl_store_tx *tx, uint64_t id, sl_job_fn *fn, void *ctx, struct sl_err *err);
int mem_get_chain(void *store, sl_store_tx *tx, uint64_t id, sl_chain_fn *fn, void *ctx, struct sl_err *err);
int mem_list_jobs(void *store, const struct sl_job_filter *filter, sl_job_fn *fn, void *ctx, struct sl_err *err);
int mem_list_chains(void *store, const struct sl_job_filter *filter, sl_chain_fn *fn, void *ctx, struct sl_err *err);
int mem_attempts(void *store, uint64_t job_id, sl_attempt_record_fn *fn, void *ctx, struct sl_err *err);
int mem_counts(void *store, sl_job_count_fn *fn, void *ctx, struct sl_err *err);
int mem_outstanding(void *store, const char *const *types, size_t n_types, struct sl_outstanding *out,
		    struct sl_err *err);
/* The first line of an error, cut as in struct sl_error_group; n bytes of it. */
size_t mem_error_line(const char *error);
int mem_leases(void *store, const uint8_t after[16], uint32_t limit, sl_lease_fn *fn, void *ctx, struct sl_err *err);
int mem_errors(void *store, const struct sl_error_filter *filter, sl_error_group_fn *fn, void *ctx, struct sl_err *err);
int mem_event_streams(void *store, const struct sl_event_stream *after, uint32_t limit, sl_event_stream_fn *fn,
		      void *ctx, struct sl_err *err);
int mem_events_append(void *store, const struct sl_event_row *events, size_t n, struct sl_event_mark *marks,
		      size_t n_marks, size_t *n_new, struct sl_err *err);
int mem_events_read(void *store, uint64_t job_id, uint64_t after, uint32_t limit, sl_event_row_fn *fn, void *ctx,
		    struct sl_err *err);
int mem_events_newest(void *store, uint64_t *offset, struct sl_err *err);

#endif
