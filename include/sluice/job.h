/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs as plain data: what a store keeps, a client lists and a handler is given.
 *
 * Times are Unix milliseconds of the store's clock; 0 means unset. JSON is text, as it was given.
 *
 * Thread safety: these are plain values; the functions here have no state.
 * Ownership: strings inside a struct belong to the code that made the struct; in a callback they live until it returns.
 */
#ifndef SLUICE_JOB_H
#define SLUICE_JOB_H

#include <sluice/err.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 *   blocked ──▶ pending ──▶ running ──▶ completed
 *                  ▲           │ ├────▶ failed ─────┐
 *                  └── retry ──┘ └────▶ cancelled ──┤   (cancelled from every state that is not final)
 *                  ▲                                │
 *                  └───────────── redrive ──────────┘
 */
enum sl_job_status {
	SL_JOB_BLOCKED = 1, /* waits for other chains */
	SL_JOB_PENDING = 2, /* ready, scheduled or retrying */
	SL_JOB_RUNNING = 3, /* under a lease */
	SL_JOB_COMPLETED = 4,
	SL_JOB_FAILED = 5, /* attempts ran out, or failed for good, perhaps from outside */
	SL_JOB_CANCELLED = 6,
	/* States of a pending job. They follow from the store's clock, so `status` never has them: `state` does, and
	 * filters and names take them as statuses. */
	SL_JOB_READY = 7,     /* can be claimed now */
	SL_JOB_SCHEDULED = 8, /* waits for its first attempt, or for the next after one that was not charged */
	SL_JOB_RETRYING = 9   /* waits for its next attempt after one that failed or was lost */
};
#define SL_JOB_STATUS_COUNT 6
#define SL_JOB_STATE_COUNT 9

/* How long a key deduplicates: meanwhile a start with the same key returns the first chain. */
enum sl_dedup_scope {
	SL_DEDUP_INCOMPLETE = 0, /* while the first chain has not ended (completed, failed, cancelled or deleted). One
				    that is redriven takes the key again, until it ends and without its window */
	SL_DEDUP_ANY = 1         /* also after its end */
};

struct sl_job {
	uint64_t id;
	uint64_t chain_id; /* the id of the chain's first job */
	uint64_t prev_id;  /* the job that continued with this one; 0: the first */
	uint64_t next_id;  /* the job it continued with; 0: none */
	const char *type;
	enum sl_job_status status;
	int32_t attempt;  /* the number of the last attempt, or of the one that runs; 0: none yet. Numbers grow, may be
			     left out, and never come twice */
	int32_t charged;  /* runs that have ended, or were lost with their worker, and count against max_attempts */
	int32_t priority; /* smaller runs first */
	const char *input;
	const char *output;      /* NULL until completed; of a continued job NULL */
	const char *error;       /* of the last failed attempt, or NULL; NULL when completed */
	const char *progress;    /* last reported, or NULL */
	const char *key;         /* of deduplication (the chain's first job), or NULL */
	const char *traceparent; /* W3C trace context given at the start, or NULL */
	const char *leased_by;   /* worker that has it, or had it last; NULL: none yet */
	int64_t created_ms;
	int64_t scheduled_ms; /* not before; 0: at once */
	int64_t started_ms;   /* of the last attempt */
	int64_t ended_ms;     /* completed, failed or cancelled */
	int64_t leased_until_ms;
	uint32_t blockers_open; /* chains it still waits for */
	bool from_http; /* its chain was started, retried or scheduled over HTTP. Of get_job only: lists leave it false */
	enum sl_job_status state; /* the status; of a pending job SL_JOB_READY, SL_JOB_SCHEDULED or SL_JOB_RETRYING */
};

/* A chain is its first job seen from outside: the status and output of its last job. */
struct sl_chain {
	uint64_t id;
	uint64_t last_id;    /* the job that the chain is at */
	const char *type;    /* of the first job */
	const char *at_type; /* of the last job */
	enum sl_job_status status;
	const char *input;  /* of the first job */
	const char *output; /* of the last job, when completed */
	const char *error;
	const char *key;
	int64_t created_ms;
	int64_t ended_ms;
	enum sl_job_status state; /* of the last job */
};

/* How an attempt that is over has ended, for the history of a job. */
enum sl_attempt_outcome {
	SL_ATTEMPT_RUNNING = 0,
	SL_ATTEMPT_COMPLETED = 1,
	SL_ATTEMPT_FAILED = 2,      /* retried or final: see the job's status */
	SL_ATTEMPT_REAPED = 3,      /* its lease ran out */
	SL_ATTEMPT_RESCHEDULED = 4, /* asked for a later time; not charged */
	SL_ATTEMPT_RELEASED = 5,    /* given back by a worker that stopped */
	SL_ATTEMPT_ABORTED = 6      /* cancelled, or completed or failed from outside */
};

struct sl_attempt_record {
	int32_t attempt;
	enum sl_attempt_outcome outcome;
	const char *worker;
	const char *error; /* or NULL */
	int64_t started_ms;
	int64_t ended_ms; /* 0: running */
};

/* Names in small letters: "pending", "incomplete", "failed". Unknown values give "unknown". */
SL_API const char *sl_job_status_name(enum sl_job_status status);
/* 0 for an unknown name. */
SL_API enum sl_job_status sl_job_status_from(const char *name);
SL_API const char *sl_attempt_outcome_name(enum sl_attempt_outcome outcome);

/* As a priority: 0 itself, where the type has another default. */
#define SL_PRIORITY_ZERO INT32_MIN

/* The next job of a chain, or its first. Zero is the default of a field. */
struct sl_new_job {
	const char *type;
	const char *input; /* JSON text; NULL: null */
	int32_t priority;
	int64_t at_ms;            /* not before this time of the store's clock */
	int64_t delay_ms;         /* or: not before now + delay_ms; not both */
	const uint64_t *blockers; /* chains that must complete before; each at most once */
	size_t n_blockers;
	const char *traceparent;
	uint64_t reserved[4];
};

struct sl_new_chain {
	struct sl_new_job job;
	const char *key; /* deduplication; NULL: none */
	enum sl_dedup_scope scope;
	int64_t window_ms; /* the key holds for this long after the start; 0: as long as the scope says */
	uint64_t reserved[2];
};

struct sl_started {
	uint64_t chain_id;
	bool deduplicated; /* true: an earlier chain with this key; nothing was made */
};

/* Chains to start once, for a request that may be sent again because its answer was lost. */
struct sl_once {
	const char *key;  /* 1 to 1,000 bytes: the same whenever the request is sent again */
	uint8_t hash[32]; /* of what the request asks for */
	int64_t keep_ms;  /* how long the results are kept; default 24 hours */
	const struct sl_new_chain *chains;
	size_t n_chains;
	struct sl_started *out; /* out: n_chains of them */
	bool again;             /* out: these are the results of an earlier call */
};

/* What to list. Zero fields do not filter. Newest first unless ascending. */
struct sl_job_filter {
	size_t struct_size; /* SL_JOB_FILTER_INIT fills it */
	const char *const *types;
	size_t n_types;
	uint32_t statuses;       /* a bit each: 1u << SL_JOB_PENDING; also of states: 1u << SL_JOB_RETRYING */
	uint64_t chain_id;       /* jobs of this chain */
	uint64_t blocks;         /* jobs that wait for this chain, or waited */
	uint64_t blocked_by_job; /* chains that this job waits for, or waited, in the order given (list_chains only) */
	const char *key;
	int64_t created_from_ms, created_to_ms; /* from inclusive, to exclusive */
	uint64_t after;                         /* cursor: the id of the last one seen */
	uint32_t limit;                         /* default 100; at most 10,000 */
	bool ascending;
	bool without_data;                  /* true: leave input, output and progress NULL */
	uint32_t data_max_bytes;            /* longer ones are "" (not valid JSON); 0: no bound */
	const char *text;                   /* occurs, byte for byte, in the input, the output, the error or the key. Of
					       a chain: input and key of its first job, output or error of its last */
	const char *error;                  /* the first line of the error, as struct sl_error_group has it */
	int64_t ended_from_ms, ended_to_ms; /* from inclusive, to exclusive; what has not ended is left out */
	/* Scan no more than this many jobs or chains in the order of the list (0: no bound), so that a search for
	 * something rare comes back: *reached (may be NULL) is then the cursor to continue from, 0 when nothing is
	 * left to scan. The scan may have gone further than the last job that it listed. Filters by key, chain_id,
	 * blocks and blocked_by_job are not bounded by it; sl_jobs_list scans this many for each 500 that it lists. */
	uint32_t scan;
	uint64_t *reached;
};
#define SL_JOB_FILTER_INIT .struct_size = sizeof(struct sl_job_filter)

/* Jobs of a type, failed or tried again, whose last attempts failed with errors that begin with the same line. */
#define SL_ERROR_LINE_CHARS 500 /* a longer line is cut */
struct sl_error_group {
	const char *type;
	const char *error; /* the first line, cut; never NULL */
	uint64_t count;
	/* When the first and the last of them ended. Of one that is tried again: its first and its last attempt. */
	int64_t first_ms, last_ms;
	uint64_t sample_id; /* the newest job */
	uint64_t retrying;  /* of count: those that are tried again */
};
struct sl_error_filter {
	size_t struct_size; /* SL_ERROR_FILTER_INIT fills it */
	const char *const *types;
	size_t n_types;
	uint64_t after;    /* cursor: jobs with smaller ids than this; 0: from the newest */
	uint32_t scan;     /* at how many jobs; default 10,000, at most 100,000 */
	uint32_t limit;    /* groups at most, the largest first; default 100, at most 1,000 */
	uint64_t *reached; /* may be NULL: the cursor to continue from; 0: all were scanned */
};
#define SL_ERROR_FILTER_INIT .struct_size = sizeof(struct sl_error_filter)

/* 128 random bits that name a claim: a batch of jobs taken at once, with one lease. */
struct sl_claim_id {
	uint8_t bytes[16];
};

/* A claim in force: a worker and the jobs that it has. Jobs that have left it are not shown, nor a claim without any.
 */
struct sl_lease {
	uint8_t claim[16];
	const char *worker;
	const char *const *types; /* of the jobs, each once, in order */
	size_t n_types;
	const uint64_t *jobs; /* ids, ascending */
	size_t n_jobs;
	int64_t claimed_ms, until_ms;
};

/* How a change was asked for. */
enum sl_via { SL_VIA_LIBRARY = 0, SL_VIA_COMMAND = 1, SL_VIA_HTTP = 2 };

/* A row of the audit trail: who changed what. The store writes it in the transaction of the change. */
struct sl_audit_record {
	uint64_t id;     /* filled by the store; grows */
	int64_t time_ms; /* filled by the store */
	enum sl_via via;
	const char *actor;      /* name of a token, "local", or the user who ran a command; required */
	const char *address;    /* of the client, or NULL */
	const char *action;     /* "chains.cancel"; required */
	const char *request_id; /* or NULL */
	const char *detail;     /* JSON, or NULL */
	/* The chains that were changed. Of a start the store fills in the ids: there n_chains is for how many of the
	 * call's next chains the record stands; 0: for all that are left. */
	const uint64_t *chains;
	size_t n_chains;
	uint64_t reserved[2];
};

/* Per type and status. A paused type without jobs is listed as pending, with 0. */
struct sl_job_count {
	const char *type;
	enum sl_job_status status;
	uint64_t count;
	uint64_t due;      /* of pending: those that are SL_JOB_READY */
	uint64_t retrying; /* of pending: those that are SL_JOB_RETRYING; the rest is SL_JOB_SCHEDULED */
	int64_t oldest_ms; /* created_ms of the oldest of those that are not final; 0: none */
	/* Of pending: since when the oldest of those that could be claimed now can be: created_ms, or scheduled_ms when
	 * that is later; 0: none */
	int64_t oldest_due_ms;
	bool paused; /* the type is paused */
};

/* A recurring schedule. */
struct sl_cron {
	size_t struct_size; /* SL_CRON_INIT fills it */
	const char *name;   /* unique */
	const char *spec;   /* five fields, or @hourly and its like; UTC */
	const char *type;
	const char *input;
	int32_t priority;
	bool catch_up; /* of the ticks missed in a pause, enqueue each, 1,000 a turn at most; false: one for all */
	bool paused;   /* it enqueues nothing until it is put again without; ticks missed meanwhile are not caught up */
	int64_t next_ms; /* the next tick; 0: it is paused */
	int64_t last_ms; /* the last tick that was enqueued; 0: none */
	uint64_t last_chain;
	bool from_http; /* true: put over HTTP; so are the chains that it starts */
};
#define SL_CRON_INIT .struct_size = sizeof(struct sl_cron)

typedef int sl_job_fn(const struct sl_job *job, void *ctx); /* non-zero stops, and is the result */
typedef int sl_chain_fn(const struct sl_chain *chain, void *ctx);
typedef int sl_attempt_record_fn(const struct sl_attempt_record *attempt, void *ctx);
typedef int sl_job_count_fn(const struct sl_job_count *count, void *ctx);
typedef int sl_cron_fn(const struct sl_cron *cron, void *ctx);
typedef int sl_lease_fn(const struct sl_lease *lease, void *ctx);
typedef int sl_error_group_fn(const struct sl_error_group *group, void *ctx);
typedef int sl_audit_record_fn(const struct sl_audit_record *record, void *ctx);

/* An open store and an open notifier: made by the open functions of <sluice/jobs.h>, and copied freely. */
typedef struct sl_store {
	const struct sl_store_ops *ops;
	void *ctx;
} sl_store;
typedef struct sl_notify {
	const struct sl_notify_ops *ops;
	void *ctx;
} sl_notify;

#ifdef __cplusplus
}
#endif
#endif
