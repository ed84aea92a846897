/* SPDX-License-Identifier: Apache-2.0 */
/* Leases after the claim: asking for them, prolonging them, taking back what they no longer hold. */
#include <stdatomic.h>
#include <stdio.h>

#include "flow/retry.h"
#include "jobs/store/id_set.h"
#include "jobs/store/sqlite/store.h"

#define RENEWALS_FIRST_MS 250 /* after a long wait for the lock: much more than others of that wait need */

static enum sl_lost_reason reason_of(int found, const struct sq_row *row, uint64_t fence)
{
	return found == 0 ? SL_LOST_NOT_FOUND : sl__sq_lost(row, fence);
}

int sl__sq_guard(void *store, sl_store_tx *tx, uint64_t id, uint64_t fence, enum sl_lost_reason *out,
		 struct sl_err *err)
{
	struct sq_op op = {.store = store, .err = err};
	struct sq_row row;
	/* Inside a transaction the store's lock keeps the row as it is; outside there is nothing to hold. */
	int rc = sl__sq_read_begin(store, tx, &op.c, err);
	if (rc != 0)
		return rc;
	rc = sl__sq_row_get(&op, id, &row);
	sl__sq_read_end(store, tx, op.c);
	if (rc < 0)
		return rc;
	*out = reason_of(rc, &row, fence);
	return 0;
}

int sl__sq_progress(void *store, uint64_t id, uint64_t fence, const char *progress, enum sl_lost_reason *out,
		    struct sl_err *err)
{
	struct sq_op op;
	struct sq_row row;
	int rc = sl__sq_op_begin(&op, store, SQ_DURABLE, NULL, err);
	if (rc != 0)
		return rc;
	rc = sl__sq_row_get(&op, id, &row);
	if (rc >= 0) {
		*out = reason_of(rc, &row, fence);
		rc = *out == SL_LOST_NOT ? SQ_RUN(&op, SQ_JOB_PROGRESS, SQ_INT(id), SQ_INT(fence), SQ_TEXT(progress))
					 : 0;
	}
	return sl__sq_op_end(&op, rc);
}

/* ---- renewal ---- */

static int renew_one(struct sq_op *op, const struct sl_renewal *r, sl_lost_fn *lost, void *lost_ctx)
{
	int renewed = 0;
	int rc = SQ_CHANGE(op, SQ_LEASE_RENEW, &renewed, SQ_BLOB(r->claim.bytes, sizeof(r->claim.bytes)),
			   SQ_INT(op->now_us + sq_us(r->lease_ms)), SQ_INT(r->started));
	for (size_t i = 0; rc == 0 && i < r->n; i++) {
		struct sq_row row;
		int found = sl__sq_row_get(op, r->ids[i], &row);
		if (found < 0)
			return found;
		enum sl_lost_reason reason = reason_of(found, &row, r->fences[i]);
		if (reason == SL_LOST_NOT && !renewed)
			reason = SL_LOST_TAKEN;
		if (reason != SL_LOST_NOT && lost != NULL)
			lost(r->ids[i], r->fences[i], reason, lost_ctx);
	}
	return rc;
}

int sl__sq_renew(void *store, const struct sl_renewal *renewals, size_t n, sl_lost_fn *lost, void *lost_ctx,
		 struct sl_err *err)
{
	struct sq_store *s = store;
	struct sq_op op;
	atomic_store(&s->renewal_waits, true);
	int rc = sl__sq_op_begin(&op, s, SQ_RELAXED, NULL, err);
	/* A renewal that gave up waiting comes back soon, and a reaper that could take the jobs back waits as well. */
	if (rc != SL_EAGAIN)
		atomic_store(&s->renewal_waits, false);
	if (rc != 0)
		return rc;
	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = renew_one(&op, &renewals[i], lost, lost_ctx);
	return sl__sq_op_end(&op, rc);
}

int sl__sq_renewal_waits(void *store)
{
	struct sq_store *s = store;
	return atomic_load(&s->renewal_waits);
}

/* ---- reaping ---- */

struct reaping {
	struct sq_op *op;
	const struct sl_reap_type *types;
	size_t n_types; /* 0: all */
	uint32_t limit, n;
	bool more;
	struct sq_lease lease; /* the one at hand */
};

/* NULL: not wanted. */
static const struct sl_reap_type *wanted(const struct reaping *x, const char *type)
{
	static const struct sl_reap_type any;
	for (size_t i = 0; i < x->n_types; i++)
		if (strcmp(x->types[i].type, type) == 0)
			return &x->types[i];
	return x->n_types == 0 ? &any : NULL;
}

static bool lease_wanted(const struct sl_reap_type *types, size_t n_types, const char *lines)
{
	char line[SQ_TYPE_BYTES + 2];
	for (size_t i = 0; i < n_types; i++) {
		(void)snprintf(line, sizeof(line), "\n%s\n", types[i].type);
		if (strstr(lines, line) != NULL)
			return true;
	}
	return n_types == 0;
}

static int reap_job(struct reaping *x, struct sq_row *row, const struct sl_reap_type *type)
{
	struct sq_op *op = x->op;
	const struct sq_lease *lease = &x->lease;
	const char *worker = lease->worker.data;
	sqlite3_stmt *s;
	int64_t delay_us = 0;
	row->charged += lease->started;
	/* The first loss costs no time: most often the worker was to blame. From the second on the job may be. */
	int rc = type->retry != NULL ? SQ_ROW(op, SQ_LOST_BEFORE, &s, SQ_INT(row->id)) : 0;
	if (rc < 0)
		return rc;
	if (rc > 0) {
		(void)sqlite3_reset(s);
		delay_us = sq_us(sl__retry_delay_ms(type->retry, (uint32_t)SL_MAX(row->charged, 1), NULL));
	}
	int64_t due_us = delay_us > 0 ? op->now_us + delay_us : 0;
	rc = sl__sq_attempt_put(op, row,
				&(struct sq_past){.claim = lease->claim,
						  .outcome = SL_ATTEMPT_REAPED,
						  .worker = worker,
						  .started_us = lease->claimed_us});
	if (rc != 0)
		return rc;
	row->flags |= SQ_SOLO;
	rc = SQ_RUN(op, SQ_JOB_BACK, SQ_INT(row->id), SQ_INT(row->fence), SQ_INT(lease->started), SQ_NULL, SQ_NULL,
		    SQ_TEXT(worker), SQ_INT(lease->claimed_us), SQ_INT_OR_NULL(due_us != 0 ? due_us : row->due_us),
		    SQ_INT(row->flags), SQ_INT(row->fence), SQ_INT(0));
	if (rc == 0)
		rc = sl__sq_enqueue(op, row, due_us);
	if (rc != 0)
		return rc;
	x->n++;
	sl__report_change(op->scope, SL_CHANGE_REAPED, row->id, row->chain_id, row->type);
	sl__report_note(op->scope, SL_NOTE_OWNERSHIP_LOST, row->type, row->id, SL_LOST_TAKEN);
	sl__report_note(op->scope, SL_NOTE_JOB_SCHEDULED, row->type, row->id, SL_LOST_NOT);
	return 0;
}

int sl__sq_lease_read(struct sq_op *op, int64_t rowid, struct sq_lease *out)
{
	sqlite3_stmt *s;
	sl__buf_clear(&out->jobs);
	sl__buf_clear(&out->worker);
	int rc = sl__sqlite_bind(op->c, SQ_LEASE_JOBS, SQ_VALUES(SQ_INT(rowid)), &s, op->err);
	while (rc == 0 && (rc = sl__sqlite_step(op->c, s, op->err)) > 0) {
		struct sq_leased job = {sl__sqlite_u64(s, 0), sl__sqlite_u64(s, 1)};
		const char *worker = sl__sqlite_text(s, 2);
		rc = sl__buf_append(&out->jobs, &job, sizeof(job));
		if (rc == 0 && out->worker.len == 0 && worker != NULL)
			rc = sl__buf_str_append(&out->worker, worker);
		out->claimed_us = sl__sqlite_i64(s, 3);
		out->started = sqlite3_column_int(s, 4) != 0;
		sl__sq_read_claim(s, 5, &out->claim);
	}
	(void)sqlite3_reset(s);
	return rc == SL_ENOMEM ? sl_err_set(op->err, rc, "no memory for the jobs of a lease") : rc;
}

/* Take what is wanted of an expired lease; it goes when nothing of it is left. */
static int reap_lease(struct reaping *x, int64_t rowid)
{
	int rc = sl__sq_lease_read(x->op, rowid, &x->lease);
	bool left = false;
	for (size_t at = 0; rc == 0 && at < x->lease.jobs.len; at += sizeof(struct sq_leased)) {
		struct sq_leased job;
		struct sq_row row;
		memcpy(&job, x->lease.jobs.data + at, sizeof(job));
		rc = sl__sq_row_get(x->op, job.id, &row);
		if (rc < 0)
			return rc;
		if (rc == 0 || sl__sq_lost(&row, job.fence) != SL_LOST_NOT) {
			rc = 0; /* settled, or taken by another worker */
		} else if (wanted(x, row.type) == NULL) {
			left = true;
			rc = 0;
		} else if (x->n == x->limit) {
			left = x->more = true;
			rc = 0;
		} else {
			rc = reap_job(x, &row, wanted(x, row.type));
		}
	}
	if (rc != 0 || left)
		return rc;
	return SQ_RUN(x->op, SQ_LEASE_END, SQ_INT(rowid));
}

/* Reads only: standby workers ask this every second, and must not take turns with writers. -1: no lease. */
static int expiry_in_ms(struct sq_store *store, const struct sl_reap_type *types, size_t n_types, int64_t *in_ms,
			struct sl_err *err)
{
	struct sl__sqlite *c;
	sqlite3_stmt *s;
	int rc = sl__sq_read_begin(store, NULL, &c, err);
	if (rc != 0)
		return rc;
	*in_ms = -1;
	rc = sl__sqlite_bind(c, SQ_NEXT_EXPIRY, NULL, 0, &s, err);
	while (rc == 0 && *in_ms < 0 && (rc = sl__sqlite_step(c, s, err)) > 0) {
		rc = 0;
		if (lease_wanted(types, n_types, sl__sqlite_text(s, 1)))
			*in_ms = sq_until_ms(sl__sq_now_us(store), sl__sqlite_i64(s, 0));
	}
	(void)sqlite3_reset(s);
	sl__sq_read_end(store, NULL, c);
	return rc;
}

int sl__sq_reap(void *store, const struct sl_reap_type *types, size_t n_types, uint32_t limit, struct sl_reaped *out,
		const struct sl_store_scope *scope, struct sl_err *err)
{
	struct sq_store *s = store;
	struct sq_op op;
	struct sl__id_set expired SL_CLEANUP(sl__id_set_fini) = {.env = &s->env}; /* rowids of leases */
	sqlite3_stmt *stmt;
	*out = (struct sl_reaped){.next_expiry_in_ms = -1};
	int rc = expiry_in_ms(s, types, n_types, &out->next_expiry_in_ms, err);
	if (rc != 0 || out->next_expiry_in_ms != 0)
		return rc;
	/* A process that held the lock for long, and may have died with it, kept owners from renewing and us from
	 * reaping. What ended during that wait is left to the next check: its owner waits for the lock as well, and gets
	 * it before that. */
	int64_t since_us = atomic_load(&s->reap_waits_us);
	if (since_us == 0)
		since_us = sl__sq_now_us(s);
	rc = sl__sq_op_begin(&op, s, SQ_DURABLE, scope, err);
	atomic_store(&s->reap_waits_us, rc == SL_EAGAIN ? since_us : 0);
	if (rc != 0)
		return rc;
	int64_t expired_us = op.now_us - since_us < SQ_SHORT_US ? op.now_us : since_us;
	struct reaping x = {.op = &op, .types = types, .n_types = n_types, .limit = limit};
	sl__buf_init(&x.lease.jobs, &s->env);
	sl__buf_init(&x.lease.worker, &s->env);
	rc = sl__sqlite_bind(op.c, SQ_LEASE_EXPIRED, SQ_VALUES(SQ_INT(expired_us)), &stmt, err);
	while (rc == 0 && (rc = sl__sqlite_step(op.c, stmt, err)) > 0)
		rc = lease_wanted(types, n_types, sl__sqlite_text(stmt, 1))
			     ? sl__id_set_add(&expired, sl__sqlite_u64(stmt, 0), err)
			     : 0;
	(void)sqlite3_reset(stmt);
	for (size_t i = 0; rc == 0 && !x.more && i < expired.n; i++)
		rc = reap_lease(&x, (int64_t)expired.ids[i]);
	sl__buf_fini(&x.lease.worker);
	sl__buf_fini(&x.lease.jobs);
	rc = sl__sq_op_end(&op, rc);
	if (rc != 0)
		return rc;
	out->n = x.n;
	out->more = x.more;
	/* The jobs are taken back, whatever comes of this: without an answer there is another check soon. */
	if (expiry_in_ms(s, types, n_types, &out->next_expiry_in_ms, NULL) != 0)
		out->next_expiry_in_ms = 0;
	if (expired_us < op.now_us)
		out->next_expiry_in_ms = SL_MAX(out->next_expiry_in_ms, RENEWALS_FIRST_MS);
	return 0;
}
