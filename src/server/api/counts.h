/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The counts of a store, shared by all who ask at the same time: one count is under way at a time, however many pages
 * are open.
 *
 * Guarantee: a count is taken after it was asked for, so that a client sees its own change. Only of a store in
 * which so much waits that counting takes a while, it may have been counted up to a second before.
 *
 * Thread safety: every function from any thread, but for free, which comes after all others.
 */
#ifndef SLUICE_SERVER_API_COUNTS_H
#define SLUICE_SERVER_API_COUNTS_H

#include <sluice/jobs.h>

#define SRV_COUNTS_LARGE 100000 /* jobs that wait */
#define SRV_COUNTS_AGAIN_MS 1000

struct srv_counts;

struct srv_counts_source {
	int (*count)(sl_job_count_fn *fn, void *fn_ctx, struct sl_err *err, void *ctx); /* one call at a time */
	int64_t (*now_ms)(void *ctx);                                                   /* never goes back */
	void *ctx;
};

int srv_counts_new(struct srv_counts **out, const struct srv_counts_source *source, struct sl_err *err);
void srv_counts_free(struct srv_counts *c);
/* As sl_jobs_counts, on the caller's thread. */
int srv_counts_each(struct srv_counts *c, sl_job_count_fn *fn, void *ctx, struct sl_err *err);
/* Counts asked for from now on include what has just been changed. */
void srv_counts_forget(struct srv_counts *c);

#endif
