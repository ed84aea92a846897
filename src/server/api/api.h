/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The REST API under /api/v1: chains, jobs, their events, types, workers, errors, schedules, numbers and dead letters.
 * openapi.json describes it, and a test compares every answer with that.
 *
 * Guarantee: what is answered with 2xx after a change is durable in the store. Lists are bounded in rows, in bytes, and
 * in how many rows are read: a page may be short, or empty, while next_cursor says that there is more.
 *
 * Thread safety: handlers run on any thread. It has two threads: one for requests that wait for a chain, one that
 * counts. Ownership: struct srv_api belongs to the core from srv_api_add to srv_api_free.
 */
#ifndef SLUICE_SERVER_API_H
#define SLUICE_SERVER_API_H

#include "server/core.h"
#include "server/http/out.h"

#include <stdbool.h>

#define SRV_API "/api/v1"
#define SRV_LIMIT 50
#define SRV_LIMIT_MAX 1000

struct srv_counts;
struct srv_waits;
struct srv_stats;
struct srv_letters;

struct srv_api {
	struct srv_core *core;
	struct srv_counts *counts; /* api/counts.h */
	struct srv_waits *waits;
	struct srv_stats *stats;
	struct srv_letters *letters;
};

/* ---- api/out.c ---- */

/* Of a verification, or a check of the repository. */
const char *srv_check_state(bool running, const struct sl_err *err, uint64_t faults);
void srv_out_job(struct srv_out *o, const struct sl_job *job); /* the fields, without brackets */
void srv_out_chain(struct srv_out *o, const struct sl_chain *chain);
/* An event: offset, type, ts, attempt, late, partial, stream, and text or data_b64. */
struct sl_event_row;
void srv_out_event(struct srv_out *o, const struct sl_event_row *row);
/* Of lists: JSON above this is left out (data_max_bytes of their filter). */
#define SRV_SHORT_BYTES 256
/* A page of a list ends once it has this many bytes, however many rows were asked for. */
#define SRV_PAGE_BYTES ((size_t)8 << 20)

/* ---- api/change.c: no record, no change ---- */

/* A client whose changes are recorded as r's; each in its transaction. false: it was answered. */
struct srv_change {
	struct sl_audit_record record;
	sl_jobs *jobs;
};
bool srv_change_begin(srv_request *r, const struct srv_core *core, struct srv_change *c);
void srv_change_end(struct srv_change *c);
/* The same for chains of several requests, which the records stand for in turn. NULL: it could not be opened. */
sl_jobs *srv_changes_open(const struct srv_core *core, const struct sl_audit_record *records, size_t n,
			  struct sl_err *err);
/* Before a change that is made elsewhere than in the store. false: it cannot be recorded, which was answered. */
bool srv_change_record(srv_request *r, const struct srv_core *core);
void srv_audit_list(srv_request *r, void *ctx);

/* ---- api/in.c: queries and bodies. Each answers 400 and returns false when something is wrong ---- */

/* Nothing but these names, each at most once; the list ends with NULL. NULL: no parameter at all. */
bool srv_in_query(srv_request *r, const char *const *names);
bool srv_in_limit(srv_request *r, uint32_t *out);
/* Nothing but digits, at most `most`. It answers nothing; text NULL is false. */
bool srv_number_parse(const char *text, uint64_t most, uint64_t *out);
bool srv_in_number(srv_request *r, const char *name, const char *text, uint64_t most, uint64_t *out);
bool srv_in_id(srv_request *r, uint64_t *out); /* {id} of the path; 404 when it cannot be one */
bool srv_in_flag(srv_request *r, const char *name, bool *out);
/* RFC 3339, or Unix milliseconds. */
bool srv_in_time(srv_request *r, const char *name, const char *text, int64_t *out);
/* An object of a body; borrowed. */
struct srv_object {
	srv_request *r;
	const char *where; /* its name in errors; "": it is the body */
	const json_t *json;
};
/* The body: an object with nothing but these names. opaque: the value of this member is kept as text
 * (srv_body_json_but); NULL: none. */
bool srv_in_body(srv_request *r, const char *const *names, const char *opaque, struct srv_object *out);
/* The body is empty or an empty object. */
bool srv_in_no_body(srv_request *r);
bool srv_in_only(const struct srv_object *o, const char *const *names);
/* Members; *out is untouched when the member is missing. */
bool srv_in_text(const struct srv_object *o, const char *name, const char **out);
bool srv_in_int(const struct srv_object *o, const char *name, int64_t least, int64_t most, int64_t *out);
/* "priority" of a new job: 0 is SL_PRIORITY_ZERO, as *out without it is the default of the type. */
bool srv_in_priority(const struct srv_object *o, int32_t *out);
bool srv_in_bool(const struct srv_object *o, const char *name, bool *out);
/* An array of ids: *ids is the caller's (free). */
bool srv_in_ids(const struct srv_object *o, const char *name, size_t most, uint64_t **ids, size_t *n);
/* A copy of an opaque member's text (free), not checked: what takes it as JSON does that. */
bool srv_in_opaque(const struct srv_object *o, const char *name, char **out);
/* Any process that reaches the loopback of this machine may start chains. Who may run commands as this user is decided
 * by the permissions of the store's file, not here. */
bool srv_in_type(srv_request *r, const char *type);

/* A change of chains, as sl_jobs_cancel. */
typedef int srv_chains_fn(sl_jobs *client, sl_tx *tx, const uint64_t *chains, size_t n_chains, size_t *n,
			  struct sl_err *err);

/* ---- api/filter.c: which jobs or chains ---- */

#define SRV_TYPES_MAX 64
struct srv_filter {
	struct sl_job_filter f;
	const char *types[SRV_TYPES_MAX];
	char text[4096]; /* the text of types */
	bool data;       /* whole inputs and outputs */
};
/* From the query of a list, with its cursor, or from the object `filter` of a body. */
bool srv_filter_query(srv_request *r, struct srv_filter *out);
bool srv_filter_body(const struct srv_object *filter, struct srv_filter *out);

/* ---- routes, by file ---- */
srv_handler_fn srv_chains_start, srv_chains_bulk, srv_chains_show, srv_chains_complete, srv_chains_fail,
	srv_chains_cancel, srv_chains_trigger, srv_chains_retry, srv_chains_delete; /* api/chains.c */
srv_many_fn srv_chains_start_many;
srv_handler_fn srv_bulk_cancel, srv_bulk_retry, srv_bulk_trigger, srv_bulk_delete; /* api/bulk.c */
srv_handler_fn srv_list_chains, srv_list_jobs, srv_jobs_show, srv_jobs_events;     /* api/jobs.c */
srv_handler_fn srv_chains_wait;                                                    /* api/wait.c */
srv_handler_fn srv_types_list, srv_types_pause, srv_types_resume, srv_errors_list, srv_cron_list, srv_cron_put,
	srv_cron_delete;                                            /* api/views.c */
srv_handler_fn srv_workers_list, srv_workers_show, srv_leases_list; /* api/workers.c */
srv_handler_fn srv_stats_show, srv_stats_stream, srv_pipeline_show; /* api/stats.c */
srv_handler_fn srv_exports_list, srv_exports_partitions, srv_exports_events, srv_exports_head, srv_exports_verification,
	srv_exports_verify_now;                                                 /* api/exports.c */
srv_handler_fn srv_backups_list, srv_backups_show_check, srv_backups_check_now; /* api/backups.c */
srv_handler_fn srv_letters_list, srv_letters_show, srv_letters_redrive,
	srv_letters_redrive_all; /* api/dead_letters.c */

/* The chain with its jobs, blockers and those that wait for it; answers. */
void srv_chain_answer(srv_request *r, struct srv_api *api, uint64_t id);

/* ---- api/workers.c: types that a worker serves, by its heartbeat ---- */
struct srv_served {
	struct sl__buf types;
};
/* To be followed by free in any case. */
int srv_served_read(struct srv_served *s, const struct srv_core *core, struct sl_err *err);
bool srv_served(const struct srv_served *s, const char *type);
void srv_served_free(struct srv_served *s);

/* ---- api/history.c ---- */
struct sl_history_row;
struct srv_history {
	int64_t written_s, rolled; /* the last bucket that was written; that of the last roll-up */
	bool failed;
};
/* Write the row, whose numbers and taken_ms are set, if its bucket has none. From one thread. */
void srv_history_put(struct srv_history *h, const struct srv_core *core, struct sl_history_row *row);
srv_handler_fn srv_history_show;

/* ---- parts with state ---- */
int srv_waits_new(struct srv_waits **out, struct srv_api *api, struct sl_err *err);
void srv_waits_free(struct srv_waits *w);
/* letters: must outlive it. */
int srv_stats_new(struct srv_stats **out, struct srv_core *core, struct srv_letters *letters, struct sl_err *err);
void srv_stats_free(struct srv_stats *s);
int srv_letters_new(struct srv_letters **out, struct srv_core *core, struct sl_err *err);
void srv_letters_free(struct srv_letters *l);
/* How many letters wait, as last counted; -1: not known. */
int64_t srv_letters_waiting(struct srv_letters *l);

#endif
