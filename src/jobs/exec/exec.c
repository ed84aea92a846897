/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handle, the handler of <sluice/exec.h>, and how an attempt ends:
 *
 *   the command              writes to descriptor 3                the attempt
 *   exit 0                   nothing, or output                    completes
 *                            continue_with                         continues
 *                            reschedule_in_ms                      is rescheduled
 *                            fail                                  fails for good
 *                            (and had a bad line)                  fails, and is retried, unless it wrote fail
 *   exit 75                  reschedule_in_ms, or not              is rescheduled, else by the retry policy's delay
 *                            fail                                  fails for good
 *   another exit code        reschedule_in_ms                      is rescheduled
 *                            fail                                  fails for good
 *                            anything else                         fails, and is retried
 *   a signal, no start       fail                                  fails for good
 *                            anything else                         fails, and is retried
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "flow/retry.h"
#include "jobs/exec/priv.h"
#include "jobs/worker/worker.h"

#define RESCHEDULE_EXIT 75 /* EX_TEMPFAIL */

/* ---- the handle ---- */

static int check_number(int64_t *value, int64_t standard, int64_t max, const char *name, struct sl_err *err)
{
	if (*value == 0)
		*value = standard;
	if (*value == SL_NONE && strcmp(name, "kill_grace_ms") == 0)
		*value = 0;
	else if (*value < 1 || *value > max)
		return sl_err_set(err, SL_EINVAL, "%s: %lld is not 1 to %lld", name, (long long)*value, (long long)max);
	return 0;
}

static int set_up_exec(sl_exec *x, struct sl_exec_opts *o, struct sl_err *err)
{
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	if (o->events == NULL)
		return sl_err_set(err, SL_EINVAL, "events: a command's output needs a log");
	if (o->spool_dir == NULL || o->spool_dir[0] == '\0')
		return sl_err_set(err, SL_EINVAL, "spool_dir: is missing");
	int rc = check_number(&o->kill_grace_ms, 5000, 86400000, "kill_grace_ms", err);
	if (rc == 0)
		rc = check_number(&o->max_line_bytes, 256 * 1024, (int64_t)SL__LINE_MAX, "max_line_bytes", err);
	if (rc != 0)
		return rc;
	x->events = o->events;
	x->kill_grace_ms = o->kill_grace_ms;
	x->max_line_bytes = o->max_line_bytes;
	x->may_reschedule = o->reschedule != SL_OFF;
	x->tap = o->tap;
	x->tap_ctx = o->tap_ctx;
	rc = o->run_as != NULL ? sl__exec_user_find(&x->user, &x->env, o->run_as, err) : 0;
	if (rc != 0)
		return rc;
	sl__minder_find_environment(&x->env, &x->env_area);
	rc = sl_wal_get_stats(x->events, &stats, err);
	if (rc != 0)
		return rc;
	x->incarnation = stats.incarnation;
	const uint8_t zeros[SL_WAL_KEY_BYTES] = {0};
	uint8_t sealed[SL_WAL_SEALED_KEY_BYTES];
	rc = sl_wal_seal_key(x->events, zeros, sealed, err);
	if (rc != 0 && rc != SL_ENOENT)
		return rc;
	x->sealed = rc == 0;
	atomic_store(&x->sequence, stats.last_sequence);
	x->spool_dir = sl__strdup(&x->env, o->spool_dir);
	if (x->spool_dir == NULL)
		return sl_err_set(err, SL_ENOMEM, "exec: out of memory");
	rc = sl_check_local_path("spool_dir", x->spool_dir, err);
	if (rc != 0)
		return rc;
	rc = sl__mkdirs(&x->env, x->spool_dir);
	if (rc < 0)
		return sl_err_set_errno(err, -rc, "make %s", x->spool_dir);
	return sl__launch_fixed(x, o->argv, o->environment, err);
}

int sl_exec_new(sl_exec **out, const struct sl_exec_opts *opts, struct sl_err *err)
{
	struct sl_exec_opts o;
	struct sl_env env;
	sl__opts_copy(&o, sizeof(o), opts);
	int rc = sl__env_init(&env, o.env, err);
	if (rc != 0)
		return rc;
	sl_exec *x = sl__calloc(&env, 1, sizeof(*x));
	if (x == NULL)
		return sl_err_set(err, SL_ENOMEM, "exec: out of memory");
	x->env = env;
	x->pid = getpid();
	sl__mutex_init(&x->mu);
	sl__prng_init(&x->prng, &x->env);
	rc = set_up_exec(x, &o, err);
	if (rc != 0) {
		sl_exec_free(x);
		return rc;
	}
	*out = x;
	return 0;
}

void sl_exec_free(sl_exec *x)
{
	if (x == NULL)
		return;
	struct sl_env env = x->env;
	while (x->idle != NULL && x->pid == getpid()) {
		struct sl__minder *m = x->idle;
		x->idle = m->next;
		sl__minder_end(x, m);
	}
	if (x->pid == getpid())
		sl__exec_retry_retired(x, true);
	while (x->retired != NULL) {
		struct sl__retired *r = x->retired;
		x->retired = r->next;
		sl__free(&env, r->path);
		sl__free(&env, r);
	}
	/* The removals are durable before the log may go: a spool that comes back would look unfinished. The folder is
	 * removed only when it is empty; struct sl_io has no call for that. */
	if (x->spool_dir != NULL && x->pid == getpid()) {
		(void)sl__sync_dir(&env, x->spool_dir);
		(void)rmdir(x->spool_dir);
	}
	sl__launch_free(x);
	sl__exec_user_free(x->user, &env);
	sl__free(&env, x->spool_dir);
	sl__mutex_fini(&x->mu);
	sl__free(&env, x);
}

/* ---- the end of an attempt ---- */

/* SL_EAGAIN: the attempt has failed and is retried. */
static int bad_exit(const struct sl__capture *c, struct sl_err *err)
{
	const char *colon = c->last_stderr[0] != '\0' ? ": " : "";
	if (!c->signalled)
		return sl_err_set(err, SL_EAGAIN, "exit code %u%s%s", c->exit_value, colon, c->last_stderr);
	const char *name = sigabbrev_np((int)c->exit_value);
	return sl_err_set(err, SL_EAGAIN, "killed by signal %u (SIG%s)%s%s", c->exit_value, name != NULL ? name : "?",
			  colon, c->last_stderr);
}

static int end_attempt(const sl_exec *x, const struct sl__exec_ops *ops, sl_attempt *attempt,
		       const struct sl__exec_result *r, struct sl_err *err)
{
	const struct sl__capture *c = &r->capture;
	const struct sl__protocol *p = &c->protocol;
	bool reschedules = p->last == SL__SAYS_RESCHEDULE && x->may_reschedule;
	if (r->aborted)
		return sl_err_set(err, SL_ECANCELLED, "aborted: %s", sl_abort_reason_name(ops->aborted(attempt)));
	if (p->last == SL__SAYS_FAIL)
		return ops->fail(attempt, sl__buf_str(&p->text), err);
	if (c->failed) {
		const char *why = strerrordesc_np((int)c->spawn_errno);
		if (why == NULL)
			why = "unknown error";
		if (c->spawn_step == SL__SPAWN_USER && x->user != NULL)
			return sl_err_set(err, SL_EAGAIN, "cannot change to user %s: %s", x->user->name, why);
		return sl_err_set(err, SL_EAGAIN, "cannot %s %s: %s",
				  c->spawn_step == SL__SPAWN_CHDIR  ? "change to the folder of"
				  : c->spawn_step == SL__SPAWN_EXEC ? "execute"
								    : "start",
				  x->argv != NULL ? x->argv[0] : "the command", why);
	}
	if (r->minder_died)
		return sl_err_set(err, SL_EAGAIN, "the command's minder process died; the command was killed");
	if (!c->exited)
		return sl_err_set(err, SL_ENOSPC, "no space for the spool: the command's exit status is unknown");
	if (c->signalled)
		return bad_exit(c, err);
	if (c->exit_value != 0) {
		if (reschedules)
			return ops->reschedule_in(attempt, p->reschedule_ms, err);
		if (x->may_reschedule && c->exit_value == RESCHEDULE_EXIT)
			return ops->reschedule_in(attempt, ops->retry_delay_ms(attempt), err);
		return bad_exit(c, err);
	}
	/* It has succeeded, unless descriptor 3 had a bad line. */
	if (p->bad)
		return sl_err_set(err, SL_EAGAIN, "%s", p->why);
	if (p->last == SL__SAYS_CONTINUE)
		return ops->continue_with(attempt, &p->next, err);
	if (reschedules)
		return ops->reschedule_in(attempt, p->reschedule_ms, err);
	return ops->complete(attempt, p->last == SL__SAYS_OUTPUT ? sl__buf_str(&p->text) : NULL, err);
}

int sl__exec_process(sl_exec *x, const struct sl__exec_ops *ops, sl_attempt *attempt, struct sl_err *err)
{
	struct sl__exec_result r = {0};
	struct sl_err why = SL_ERR_INIT;
	if (x->pid != getpid())
		return sl_err_set(err, SL_EFORKED, "exec: used in a forked child");
	sl__exec_retry_retired(x, false);
	/* A client that can only send requests must not choose what runs here. */
	if (x->argv == NULL && ops->from_http != NULL) {
		bool from_http = false;
		int rc = ops->from_http(attempt, &from_http, err);
		if (rc != 0)
			return rc;
		if (from_http)
			return ops->fail(attempt, "refused: the input names the command, and the job came over HTTP",
					 err);
	}
	int rc = sl__exec_run(x, ops, attempt, &r, &why);
	bool ran = rc == 0;
	if (ran)
		rc = end_attempt(x, ops, attempt, &r, &why);
	/* A command that ran and was not captured to its end found no space in the spool. */
	bool uncaptured = ran && rc == SL_ENOSPC && !r.capture.exited;
	if (rc != 0 && (!ran || uncaptured) && !r.reported && ops->unlogged != NULL)
		ops->unlogged(attempt, &why);
	if (rc != 0 && err != NULL)
		*err = why;
	sl__capture_fini(&r.capture);
	return rc;
}

/* ---- the handler, for an attempt of a worker ---- */

static struct sl_claim_id claim_of(const sl_attempt *a)
{
	return a->run->claim->id;
}

static int count_futile(const struct sl_attempt_record *record, void *ctx)
{
	uint32_t *n = ctx;
	*n += record->outcome == SL_ATTEMPT_FAILED || record->outcome == SL_ATTEMPT_REAPED ||
	      record->outcome == SL_ATTEMPT_RESCHEDULED;
	return 0;
}

/* As if this attempt had failed. Rescheduled ones before it count as well, although they were not charged; the number
 * of the attempt is no measure, since it also counts claims that never started. */
static int64_t retry_delay_ms(const sl_attempt *a)
{
	const sl_store *store = &a->w->home.store;
	uint32_t futile = 0;
	struct sl__prng prng;
	if (store->ops->attempts(store->ctx, a->run->id, count_futile, &futile, NULL) != 0)
		futile = (uint32_t)a->run->charged;
	sl__prng_init(&prng, &a->w->home.env);
	return sl__retry_delay_ms(&a->w->core_types[a->run->type].retry, futile + 1, &prng);
}

static int read_origin(const struct sl_job *found, void *ctx)
{
	*(bool *)ctx = found->from_http;
	return 0;
}

static int came_from_http(const sl_attempt *a, bool *out, struct sl_err *err)
{
	const sl_store *store = &a->w->home.store;
	return store->ops->get_job(store->ctx, NULL, a->run->id, read_origin, out, err);
}

/* One ticket stands for all events of its flush; an earlier flush is waited for here. */
static int replace_ticket(sl_attempt *a, const struct sl_wal_ticket *last, struct sl_err *err)
{
	int rc = a->ticket.batch != last->batch ? sl__emit_wait(a->w, &a->ticket, err) : 0;
	if (rc == 0)
		a->ticket = *last;
	return rc;
}

static void report_unlogged(sl_attempt *a, const struct sl_err *why)
{
	(void)sl__attempt_unlogged(a, why, NULL);
}

int sl_exec_process(sl_attempt *attempt, struct sl_err *err, void *exec)
{
	static const struct sl__exec_ops ops = {.job = sl_attempt_job,
						.claim = claim_of,
						.abort_fd = sl_attempt_abort_fd,
						.aborted = sl_attempt_aborted,
						.progress = sl_attempt_progress,
						.retry_delay_ms = retry_delay_ms,
						.from_http = came_from_http,
						.emitted = replace_ticket,
						.unlogged = report_unlogged,
						.complete = sl_attempt_complete,
						.continue_with = sl_attempt_continue,
						.fail = sl_attempt_fail,
						.reschedule_in = sl_attempt_reschedule_in};
	return sl__exec_process(exec, &ops, attempt, err);
}
