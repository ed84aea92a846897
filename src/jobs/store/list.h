/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of jobs and chains, for both stores: keyset pagination along the ids, with SQL that is written once. A store
 * supplies its dialect and runs the queries.
 *
 * Thread safety: none. Ownership: everything is borrowed for the duration of sl__list.
 */
#ifndef SL_JOBS_STORE_LIST_H
#define SL_JOBS_STORE_LIST_H

#include "jobs/store/cold.h"

#define SL__LIST_SMALL_MAX 10000 /* a status with at most this many jobs is read whole */
#define SL__LIST_GROUPS_MAX 1000 /* groups of the queues; with more, the list walks along the ids */

/* A row of the queries that find ids: the status or state whose source found it, or 0, and the id. */
struct sl__list_found {
	uint64_t source, id;
};

/* What of a status is in the order of ids: all of it, or that of each group. */
struct sl__list_part {
	const char *group; /* a table of sl__list_dialect.groups with a column type; NULL: no groups */
	const char *from;  /* FROM … WHERE …, for one group */
	const char *id;
};

/* In each text an @ stands for the time now. */
struct sl__list_dialect {
	bool numbered;                   /* placeholders are $1::type, not ? */
	const char *job, *blocker;       /* tables */
	const char *in, *in_end;         /* around a subquery: is the id among its ids? */
	const char *in_ids, *in_ids_end; /* around a placeholder for SL__COLD_IDS */
	const char *each, *each_end;     /* around a subquery that runs once per row of the table before it */
	const char *each_id;             /* the column of its ids */
	const char *now;                 /* the time now: an expression, or a ? */
	const char *created, *ended;     /* columns */
	const char *find;                /* the function that finds a text in a text */
	const char *length, *length_end; /* around a text: its length in bytes */
	const char *error_line;          /* the first line of the error of j */
	const char *status;              /* the status of j, with SL_JOB_RUNNING */
	const char *state;               /* its state */
	const char *head_status;         /* the status of a chain as far as its first job has it; may be NULL */
	const char *leases;              /* the table of running jobs, for a WITH */
	const char *jobs, *chains;       /* SELECT … FROM … WHERE true, with [column] for input, output, progress */
	const char *blocked_chains;      /* the same as chains, up to the WHERE: joined with what a job waits for */
	const char *whole[SL_JOB_STATE_COUNT + 1]; /* per status or state that is not final: SELECT … AS id */
	const char *groups;                        /* the tables of groups, for a WITH RECURSIVE */
	const char *n_groups; /* an expression: how many groups there are, counted to one over the bound */
	struct sl__list_part parts[SL_JOB_STATE_COUNT + 1][2]; /* per one that may be too large to be read whole */
	const char *stopped,
		*stopped_chains; /* FROM … WHERE of the index of failed and cancelled jobs x, up to status= */
	const char *continued;   /* FROM … WHERE of the jobs c that are not the first of their chain */
};

/* What a store does for a list. */
struct sl__list_db {
	const struct sl_env *env;
	const struct sl__list_dialect *dialect;
	int (*run)(const struct sl__cold_query *q, struct sl_err *err, void *ctx);
	/* The smallest id of all pending jobs; 0: no job is pending. */
	int (*oldest_pending)(uint64_t *out, struct sl_err *err, void *ctx);
	void *ctx;
};

/* Who gets the rows. */
struct sl__list_to {
	sl_job_fn *job; /* or */
	sl_chain_fn *chain;
	void *ctx;
};

/* One page of what the filter selects: of chains, or of jobs. The code of a callback that is not 0 ends the list and is
 * returned. */
SL_MUST_CHECK int sl__list(const struct sl__list_db *db, const struct sl_job_filter *filter,
			   const struct sl__list_to *to, struct sl_err *err);

#endif
