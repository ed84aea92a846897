/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of sim.h, checked on the store's rows after each of its changes against what they were before. */
#include "jobs/sim_priv.h"

typedef unsigned long long ull;

static bool live(enum sl_job_status status)
{
	return status == SL_JOB_BLOCKED || status == SL_JOB_PENDING;
}

/* ---- rows ---- */

static void check_kept(struct sim *sim, const struct memstore_row *row, const struct sim_shadow *was, const char *op)
{
	if (row->status != SL_JOB_COMPLETED)
		sim_fail(sim, "R1: %s: job %llu was completed and is %s", op, (ull)row->id,
			 sl_job_status_name(row->status));
	else if (row->output != was->output || row->next_id != was->next_id)
		sim_fail(sim, "R1: %s: job %llu was completed a second time", op, (ull)row->id);
}

static void check_place(struct sim *sim, const struct memstore_row *row, const char *op)
{
	int places = row->ready + row->sched + row->leases;
	if (row->status == SL_JOB_BLOCKED && (row->open == 0 || places != 0))
		sim_fail(sim, "R5: %s: job %llu is blocked with %u open blockers and is in %d queues", op, (ull)row->id,
			 row->open, places);
	else if (row->status == SL_JOB_PENDING && row->open != 0)
		sim_fail(sim, "R5: %s: job %llu is open, and %u blockers are not done", op, (ull)row->id, row->open);
	else if (row->status == SL_JOB_PENDING && places == 0)
		sim_fail(sim, "R3: %s: job %llu is lost: no queue and no lease has it", op, (ull)row->id);
	else if (row->status == SL_JOB_PENDING && places != 1)
		sim_fail(sim, "R3: %s: job %llu is in %d places at once", op, (ull)row->id, places);
	else if (!live(row->status) && row->ready + row->sched != 0)
		sim_fail(sim, "R3: %s: job %llu has ended and is still in a queue", op, (ull)row->id);
}

static void check_blockers(struct sim *sim, const struct memstore_row *row, const char *op)
{
	for (uint32_t i = 0; i < row->blockers; i++) {
		int open;
		uint64_t chain = memstore_blocker(sim->ms, row->id, i, &open);
		struct memstore_row at;
		for (memstore_row(sim->ms, chain, &at); at.next_id != 0;)
			memstore_row(sim->ms, at.next_id, &at);
		if (!at.gone && open != (at.status != SL_JOB_COMPLETED))
			sim_fail(sim, "R5: %s: job %llu takes blocker %llu for %s", op, (ull)row->id, (ull)chain,
				 open ? "open" : "done");
	}
}

static void check_chain(struct sim *sim, const struct memstore_row *row, const char *op)
{
	struct memstore_row other;
	if (row->status == SL_JOB_COMPLETED && (row->output != NULL) == (row->next_id != 0))
		sim_fail(sim, "R4: %s: job %llu is completed with %s", op, (ull)row->id,
			 row->output != NULL ? "an output and a next job" : "no output and no next job");
	if (row->next_id != 0) {
		memstore_row(sim->ms, row->next_id, &other);
		if (row->status != SL_JOB_COMPLETED || other.prev_id != row->id || other.chain_id != row->chain_id)
			sim_fail(sim, "R4: %s: job %llu and its next %llu do not fit", op, (ull)row->id,
				 (ull)row->next_id);
	}
	if (row->prev_id != 0) {
		memstore_row(sim->ms, row->prev_id, &other);
		if (other.next_id != row->id)
			sim_fail(sim, "R4: %s: job %llu follows %llu, which does not know", op, (ull)row->id,
				 (ull)row->prev_id);
	}
}

static void check_change(struct sim *sim, const struct memstore_row *row, struct sim_shadow *was, const char *op)
{
	if (row->fence < was->fence)
		sim_fail(sim, "R6: %s: the fence of job %llu went back", op, (ull)row->id);
	if (row->status == was->status)
		return;
	bool opening = was->status == SL_JOB_BLOCKED && row->status == SL_JOB_PENDING;
	if (opening && ++was->opened > 1)
		sim_fail(sim, "R5: %s: job %llu was opened twice", op, (ull)row->id);
	if (!opening && row->fence == was->fence)
		sim_fail(sim, "R6: %s: job %llu became %s under the same fence", op, (ull)row->id,
			 sl_job_status_name(row->status));
	if (!live(was->status) && !sim->redriving)
		sim_fail(sim, "R7: %s: job %llu was %s and is %s", op, (ull)row->id, sl_job_status_name(was->status),
			 sl_job_status_name(row->status));
	if (!live(was->status) && row->status == SL_JOB_BLOCKED)
		was->opened = 0; /* it waits anew */
	if (!live(was->status) && live(row->status))
		was->begun = false; /* a client wants it to run again */
	if (was->status == SL_JOB_PENDING && row->status == SL_JOB_BLOCKED)
		sim_fail(sim, "R5: %s: job %llu was open and is blocked", op, (ull)row->id);
}

static void remember(struct sim_shadow *s, const struct memstore_row *row)
{
	s->known = true;
	s->gone = row->gone;
	s->status = row->status;
	s->fence = row->fence;
	s->next_id = row->next_id;
	s->output = row->output;
}

void sim_check(struct sim *sim, const char *op)
{
	sim->n_rows = memstore_rows(sim->ms);
	if (sim->n_rows > SIM_ROWS) {
		sim_fail(sim, "more jobs than the simulation has room for");
		return;
	}
	for (uint64_t id = 1; id <= sim->n_rows && !sim->report->failed; id++) {
		struct sim_shadow *was = &sim->shadow[id];
		struct memstore_row row;
		if (was->gone)
			continue;
		memstore_row(sim->ms, id, &row);
		if (!row.gone) {
			if (was->known && was->status == SL_JOB_COMPLETED)
				check_kept(sim, &row, was, op);
			if (was->known)
				check_change(sim, &row, was, op);
			check_place(sim, &row, op);
			check_chain(sim, &row, op);
			check_blockers(sim, &row, op);
			if (row.charged < 0 || row.charged > row.attempt)
				sim_fail(sim, "R8: %s: job %llu has %d runs charged, and attempt %d", op, (ull)id,
					 row.charged, row.attempt);
		}
		remember(was, &row);
	}
}

/* ---- claims, ends, starts ---- */

void sim_check_claimed(struct sim *sim, const struct sl_claimed_job *job, bool again)
{
	struct sim_shadow *was = &sim->shadow[job->id];
	sim_trace(sim, "  claimed %llu/%llu%s", (ull)job->id, (ull)job->fence, again ? " again" : "");
	if (job->id >= SIM_ROWS)
		return; /* sim_check will say so */
	/* One whose answer was lost comes a second time, under the claim it had. */
	if (was->known && !again && job->fence <= was->claimed_fence)
		sim_fail(sim, "R2: job %llu was claimed twice under fence %llu", (ull)job->id, (ull)job->fence);
	was->claimed_fence = job->fence;
}

static int32_t most_attempts(const struct sim *sim, const char *type)
{
	for (int i = 0; i < SIM_TYPES; i++)
		if (strcmp(sim_type_names[i], type) == 0)
			return sim->k.max_attempts[i];
	return SL_UNLIMITED;
}

static void check_retry(struct sim *sim, uint64_t id)
{
	struct memstore_row row;
	memstore_row(sim->ms, id, &row);
	int32_t most = most_attempts(sim, row.type);
	if (most != SL_UNLIMITED && row.charged >= most)
		sim_fail(sim, "R8: job %llu is to be tried again after %d runs of %d", (ull)id, row.charged, most);
}

void sim_check_settled(struct sim *sim, const struct sl_settle *s, const struct sl_settle_result *r)
{
	sim_trace(sim, "  settled %llu/%llu kind %d: %s%s", (ull)s->id, (ull)s->fence, s->kind,
		  r->lost == SL_LOST_NOT ? "taken" : "lost", s->last_of_claim ? ", the last of its claim" : "");
	if (r->lost != SL_LOST_NOT)
		return;
	if (s->kind == SL_SETTLE_RESCHEDULE)
		sim->shadow[s->id].begun = false; /* the handler asked for another run */
	if (s->kind == SL_SETTLE_RETRY)
		check_retry(sim, s->id);
	if (s->kind != SL_SETTLE_COMPLETE && s->kind != SL_SETTLE_CONTINUE)
		return;
	sim->report->completions++;
	sim_check_durable(sim, s);
	if (++sim->shadow[s->id].completions > 1)
		sim_fail(sim, "R1: a second completion of job %llu was accepted", (ull)s->id);
}

void sim_check_started(struct sim *sim, struct sim_worker *w, const struct sl__run *run)
{
	struct sim_shadow *was = &sim->shadow[run->id];
	int32_t most = sim->k.max_attempts[run->type];
	uint64_t bit = run->fence < 64 ? (uint64_t)1 << run->fence : 0;
	if ((was->started & bit) != 0)
		sim_fail(sim, "R2: job %llu was started twice under fence %llu", (ull)run->id, (ull)run->fence);
	was->started |= bit;
	uint64_t number = run->attempt < 64 ? (uint64_t)1 << run->attempt : 0;
	if (run->attempt <= 0 || (was->numbers & number) != 0)
		sim_fail(sim, "R20: job %llu starts attempt %d a second time", (ull)run->id, run->attempt);
	was->numbers |= number;
	if (most != SL_UNLIMITED && run->charged >= most)
		sim_fail(sim, "R8: job %llu starts after %d runs of %d", (ull)run->id, run->charged, most);
	if (most == 1 && was->begun)
		sim_fail(sim, "R21: job %llu may run once, and starts again", (ull)run->id);
	was->begun = true;
	struct memstore_row row;
	memstore_row(sim->ms, run->id, &row);
	int64_t now = 0;
	if (sim->store.ops->now_ms(sim->store.ctx, &now, NULL) != 0)
		return;
	bool ours = !row.gone && live(row.status) && row.fence == run->fence;
	if (sim->clocks_true && ours && row.lease_until_ms < now)
		sim_fail(sim, "R8: %s starts job %llu after its lease", w->id, (ull)run->id);
}

void sim_check_lost(struct sim *sim, struct sim_worker *w, const struct sim_lost *lost)
{
	for (int i = 0; i < SIM_SLOTS; i++) {
		const struct sl__run *run = w->slots[i].run;
		if (run != NULL && run->id == lost->id && run->fence == lost->fence && !run->declared &&
		    run->abort == SL_ABORT_NONE)
			sim_fail(sim, "R11: %s was notified that job %llu is lost, and its handler was not", w->id,
				 (ull)lost->id);
	}
}

void sim_check_worker(struct sim *sim, const struct sim_worker *w)
{
	if (sl__core_stats(w->core)->abandoned > 0 && !w->gave_up && sim->k.poison == 0)
		sim_fail(sim, "R11: %s threw the ends of attempts away", w->id);
}

/* ---- the end ---- */

static bool waits_in_vain(struct sim *sim, const struct memstore_row *row)
{
	for (uint32_t i = 0; i < row->blockers; i++) {
		int open;
		struct memstore_row at;
		uint64_t chain = memstore_blocker(sim->ms, row->id, i, &open);
		if (!open)
			continue;
		for (memstore_row(sim->ms, chain, &at); at.next_id != 0;)
			memstore_row(sim->ms, at.next_id, &at);
		if (at.gone || at.status == SL_JOB_FAILED || at.status == SL_JOB_CANCELLED ||
		    (at.status == SL_JOB_BLOCKED && waits_in_vain(sim, &at)))
			return true;
	}
	return false;
}

bool sim_at_rest(struct sim *sim, char *why, size_t size)
{
	for (uint64_t id = 1; id <= memstore_rows(sim->ms); id++) {
		struct memstore_row row;
		memstore_row(sim->ms, id, &row);
		if (row.gone || !live(row.status))
			continue;
		if (row.status == SL_JOB_BLOCKED && waits_in_vain(sim, &row))
			continue;
		snprintf(why, size, "job %llu is stuck: %s, %s", (ull)id, sl_job_status_name(row.status),
			 row.ready    ? "ready"
			 : row.sched  ? "scheduled"
			 : row.leases ? "leased"
				      : "nowhere");
		return false;
	}
	return true;
}
