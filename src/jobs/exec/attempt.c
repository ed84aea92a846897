/* SPDX-License-Identifier: Apache-2.0 */
/* The handler of <sluice/exec.h>: a command at work for an attempt of a worker. */
#include "flow/retry.h"
#include "jobs/exec/priv.h"
#include "jobs/worker/worker.h"

static const struct sl_job *job(void *attempt)
{
	return sl_attempt_job(attempt);
}

static struct sl_claim_id claim(void *attempt)
{
	const sl_attempt *a = attempt;
	return a->run->claim->id;
}

static int abort_fd(void *attempt, struct sl_err *err)
{
	return sl_attempt_abort_fd(attempt, err);
}

static enum sl_abort_reason aborted(void *attempt)
{
	return sl_attempt_aborted(attempt);
}

/* A progress that cannot be shown is no reason to fail: its event is in the log. */
static void progress(void *attempt, const char *json)
{
	(void)!sl_attempt_progress(attempt, json, NULL);
}

static int count_futile(const struct sl_attempt_record *record, void *ctx)
{
	uint32_t *n = ctx;
	*n += record->outcome == SL_ATTEMPT_FAILED || record->outcome == SL_ATTEMPT_REAPED ||
	      record->outcome == SL_ATTEMPT_RESCHEDULED;
	return 0;
}

/* As if this run had failed. What was rescheduled before it counts as well, although it was not charged; the number of
 * the attempt says less, since it also counts claims that never started. */
static int64_t retry_delay_ms(void *attempt)
{
	const sl_attempt *a = attempt;
	const sl_store *store = &a->w->home.store;
	uint32_t futile = 0;
	struct sl__prng prng;
	if (store->ops->attempts(store->ctx, a->run->id, count_futile, &futile, NULL) != 0)
		futile = (uint32_t)a->run->charged;
	sl__prng_init(&prng, &a->w->home.env);
	return sl__retry_delay_ms(&sl__core_type(a->w->core, a->run)->retry, futile + 1, &prng);
}

static int read_origin(const struct sl_job *found, void *ctx)
{
	*(bool *)ctx = found->from_http != 0;
	return 0;
}

static int from_http(void *attempt, bool *out, struct sl_err *err)
{
	const sl_attempt *a = attempt;
	const sl_store *store = &a->w->home.store;
	return store->ops->get_job(store->ctx, NULL, a->run->id, read_origin, out, err);
}

static int emitted(void *attempt, const struct sl_wal_ticket *last, struct sl_err *err)
{
	sl_attempt *a = attempt;
	struct sl_wal_ticket before = a->ticket;
	/* One ticket speaks for all events of its flush; what went with an earlier one is waited for here. */
	int rc = before.batch != last->batch ? sl__emit_wait(a->w, &before, err) : 0;
	if (rc == 0)
		a->ticket = *last;
	return rc;
}

static void unlogged(void *attempt, const struct sl_err *why)
{
	(void)sl__attempt_unlogged(attempt, why, NULL);
}

static int complete(void *attempt, const char *output, struct sl_err *err)
{
	return sl_attempt_complete(attempt, output, err);
}

static int continue_with(void *attempt, const struct sl_new_job *next, struct sl_err *err)
{
	return sl_attempt_continue(attempt, next, err);
}

static int fail(void *attempt, const char *reason, struct sl_err *err)
{
	return sl_attempt_fail(attempt, reason, err);
}

static int reschedule_in(void *attempt, int64_t delay_ms, struct sl_err *err)
{
	return sl_attempt_reschedule_in(attempt, delay_ms, err);
}

int sl_exec_process(sl_attempt *attempt, struct sl_err *err, void *exec)
{
	static const struct sl__exec_ops ops = {.job = job,
						.claim = claim,
						.abort_fd = abort_fd,
						.aborted = aborted,
						.progress = progress,
						.retry_delay_ms = retry_delay_ms,
						.from_http = from_http,
						.emitted = emitted,
						.unlogged = unlogged,
						.complete = complete,
						.continue_with = continue_with,
						.fail = fail,
						.reschedule_in = reschedule_in};
	return sl__exec_process(exec, &ops, attempt, err);
}
