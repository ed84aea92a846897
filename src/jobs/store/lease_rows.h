/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of (claim, worker, times, job, type), ordered by claim and job, drawn together to one struct sl_lease a claim.
 * Shared by the stores, whose statements give a row for each job.
 *
 * Thread safety: one thread. Ownership: everything is copied; what fn sees lives for its call.
 */
#ifndef SL_JOBS_STORE_LEASE_ROWS_H
#define SL_JOBS_STORE_LEASE_ROWS_H

#include "base/buf.h"
#include <sluice/job.h>

struct sl__lease_rows {
	struct sl_lease lease; /* the one that is being collected; n_jobs 0: none */
	struct sl__buf worker;
	struct sl__buf ids;   /* uint64_t */
	struct sl__buf names; /* of types, each with its NUL, each once */
	sl_lease_fn *fn;
	void *ctx;
};

void sl__lease_rows_init(struct sl__lease_rows *rows, const struct sl_env *env, sl_lease_fn *fn, void *ctx);
/* The next row; calls fn when it belongs to another claim than the one before. */
SL_MUST_CHECK int sl__lease_rows_add(struct sl__lease_rows *rows, const struct sl_lease *row, uint64_t job,
				     const char *type, struct sl_err *err);
/* The last claim, unless rc says that it went wrong before; frees. Returns rc, or what fn returned. */
SL_MUST_CHECK int sl__lease_rows_end(struct sl__lease_rows *rows, int rc, struct sl_err *err);

#endif
