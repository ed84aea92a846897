/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offers to other processes, in the simulation: what post.c does for the first lane of a worker, and what the store of
 * its process and the database do about it. A row is made and taken out again by calls that go wrong as all others do;
 * a start takes it in one step with the job and sends a letter, which is lost with the session it was for, or late.
 */
#include "jobs/sim_priv.h"

#include <stdlib.h>

typedef unsigned long long ull;

#define ACCEPT_MS 400
#define RETRY_MS 1000

/* ---- the worker's side ---- */

static bool is_due(struct sim *sim, struct sim_worker *w)
{
	return sim_clock(sim, w) >= w->post_retry_ns || w->stopping;
}

bool sim_post_lacks(struct sim *sim, struct sim_worker *w)
{
	if (w->post_closing || !is_due(sim, w))
		return false;
	size_t types = sl__core_may_offer(w->core, sim_clock(sim, w), true);
	if (!w->posted)
		return types > 0 && sim->opts.wrong != SIM_WRONG_NO_POST;
	return types == 0 || types > w->post.n_types || w->posted_at != w->address;
}

int64_t sim_post_wake_ns(struct sim *sim, struct sim_worker *w)
{
	return sim->k.posts && w->post_retry_ns > sim_clock(sim, w) ? w->post_retry_ns : SL_FOREVER;
}

static void keep_row(struct sim_post *row, struct sim_worker *w)
{
	*row = (struct sim_post){.there = true,
				 .life = w->life,
				 .address = w->address,
				 .n = ++w->n_posts,
				 .claim = w->post.claim,
				 .accept_ms = w->post.accept_ms,
				 .n_types = w->post.n_types};
	snprintf(row->worker, sizeof(row->worker), "%s", w->id);
	for (size_t i = 0; i < row->n_types; i++)
		row->types[i] = w->post_types[i].type;
}

static bool post(struct sim *sim, struct sim_worker *w)
{
	w->post.accept_ms = ACCEPT_MS;
	if (!sl__core_offer(w->core, sim_clock(sim, w), &w->post_todo, &w->post, w->post_types))
		return false;
	struct sim_call *c = sim_call_by(w, SIM_POST);
	keep_row(&c->post, w);
	w->posted = w->post_listed = true;
	w->posted_at = w->address;
	w->post.posted_ns = sim_clock(sim, w);
	w->post.posted_us = 0;
	sim->report->posts++;
	sim_trace(sim, "%s posts an offer to run %s (%zu types)", w->id, c->post.types[0], c->post.n_types);
	sim_call_send(sim, c);
	return true;
}

/* False: its letter is being read, so nothing is sent. */
static bool unpost(struct sim *sim, struct sim_worker *w)
{
	if (!w->post_listed) {
		w->post_closing = w->posted;
		return false;
	}
	w->post_listed = false;
	struct sim_call *c = sim_call_by(w, SIM_UNPOST);
	c->post.claim = w->post.claim;
	sim_trace(sim, "%s takes back what it posted", w->id);
	sim_call_send(sim, c);
	return true;
}

bool sim_post_tend(struct sim *sim, struct sim_worker *w)
{
	if (!sim_post_lacks(sim, w))
		return false;
	return w->posted ? unpost(sim, w) : post(sim, w);
}

bool sim_post_yield(struct sim *sim, struct sim_worker *w)
{
	if (!w->posted || w->post_closing || !is_due(sim, w) || !sl__core_last_slot(w->core) || !unpost(sim, w))
		return false;
	w->post_first = true;
	return true;
}

/* As hand_over of the store's post.c, and sl__offer_taken. */
static void taken(struct sim *sim, struct sim_worker *w, const struct sl_claimed_job *job, int64_t claimed_ms)
{
	int64_t now = sim_clock(sim, w), since = w->post.posted_ns, now_ms = claimed_ms;
	if (w->post.posted_us != 0) {
		since += (claimed_ms * 1000 - w->post.posted_us) * 1000;
		now_ms = SL_MAX(now_ms, (w->post.posted_us + (now - w->post.posted_ns) / 1000) / 1000);
	}
	if (sim->opts.wrong == SIM_WRONG_POST_FRESH)
		since = now;
	if (sl__core_claimed(w->core, &w->post_todo, job) != 0)
		sim_fail(sim, "the core refused a job that was handed over");
	sl__core_handed(w->core, &w->post_todo, 0, SL_MIN(since, now), now_ms, now);
	w->posted = w->post_closing = false;
}

static void forget(struct sim *sim, struct sim_worker *w)
{
	int64_t now = sim_clock(sim, w);
	sl__core_handed(w->core, &w->post_todo, SL_EUNAVAIL, now, 0, now);
	w->posted = w->post_listed = false;
}

static void posted(struct sim *sim, struct sim_worker *w, const struct sim_call *c)
{
	if (c->rc == 0) {
		if (w->post_listed)
			w->post.posted_us = c->now_ms * 1000;
	} else if (w->post_listed) {
		w->post_retry_ns = sim_clock(sim, w) + RETRY_MS * SIM_MS;
		forget(sim, w);
	}
}

static void unposted(struct sim *sim, struct sim_worker *w, const struct sim_call *c)
{
	if (c->rc == 0 && c->handed.job.id != 0) {
		sim->report->found++;
		taken(sim, w, &c->handed.job, c->handed.now_ms);
	} else if (c->rc == 0) {
		sl__core_withdrawn(w->core, &w->post_todo);
		w->posted = false;
	} else if (w->stopping) {
		forget(sim, w);
	} else {
		w->post_listed = true;
		w->posted_at = 0;
		w->post_retry_ns = sim_clock(sim, w) + RETRY_MS * SIM_MS;
	}
}

void sim_post_answered(struct sim *sim, struct sim_worker *w, struct sim_call *c)
{
	bool then = w->post_first;
	w->post_first = false;
	if (c->kind == SIM_POST)
		posted(sim, w, c);
	else
		unposted(sim, w, c);
	sim_wake(sim, w);
	if (then)
		sim_send_todo(sim, w, &w->lanes[0]);
	else
		sim_step(sim, w, &w->lanes[0]);
}

/* ---- the store's side ---- */

static void find_posted(struct sim *sim, struct sim_call *c)
{
	c->handed = (struct memstore_handed){.now_ms = 0};
	memstore_find_claimed(sim->ms, &c->post.claim, &c->handed);
	if (c->handed.job.id != 0)
		sim_trace(sim, "  it was taken for job %llu", (ull)c->handed.job.id);
}

void sim_apply_post(struct sim *sim, struct sim_call *c)
{
	struct sim_post *row = &sim->posts[c->worker];
	if (c->kind == SIM_POST) {
		bool late =
			row->there && (row->life > c->post.life || (row->life == c->post.life && row->n > c->post.n));
		if (!late) /* the row of an earlier life is another one, of which nothing more is seen */
			*row = c->post;
		c->applied_rc = sim->store.ops->now_ms(sim->store.ctx, &c->now_ms, NULL);
		return;
	}
	if (row->there && memcmp(&row->claim, &c->post.claim, sizeof(row->claim)) == 0)
		row->there = false;
	find_posted(sim, c);
}

/* ---- starts ---- */

struct letter {
	struct sl_claim_id claim;
	uint32_t address;
	struct memstore_handed handed; /* strings are the store's */
};

static void read_letter(struct sim *sim, const struct sim_event *ev)
{
	struct letter *letter = ev->ptr;
	struct sim_worker *w = ev->worker >= 0 ? &sim->workers[ev->worker] : NULL;
	if (w != NULL && w->address == letter->address && w->post_listed &&
	    memcmp(&w->post.claim, &letter->claim, sizeof(letter->claim)) == 0) {
		sim_trace(sim, "%s reads a letter: job %llu", w->id, (ull)letter->handed.job.id);
		sim->report->letters++;
		w->post_listed = false;
		taken(sim, w, &letter->handed.job, letter->handed.now_ms);
		sim_wake(sim, w);
		if (w->lanes[0].asleep)
			sim_step(sim, w, &w->lanes[0]);
	}
	free(letter);
}

static void listen_anew(struct sim *sim, const struct sim_event *ev)
{
	if (ev->worker < 0)
		return;
	struct sim_worker *w = &sim->workers[ev->worker];
	sim_trace(sim, "%s listens anew", w->id);
	w->address++;
	sim_wake(sim, w);
}

static void send_letter(struct sim *sim, const struct sim_post *row, int index, const struct memstore_handed *handed)
{
	struct sim_worker *w = &sim->workers[index];
	if (!w->alive || w->life != row->life || w->address != row->address)
		return;
	if (sim_fault(sim, sim->k.lose_note / 4)) { /* with its session */
		sim_at(sim, sim->now_ns + sim_range(sim, 1, 500) * SIM_MS, listen_anew, w);
		return;
	}
	struct letter *letter = sim_alloc(sizeof(*letter));
	*letter = (struct letter){.claim = row->claim, .address = row->address, .handed = *handed};
	sim_at(sim, sim->now_ns + sim_range(sim, 10, 20000) * 1000, read_letter, w)->ptr = letter;
}

/* Is the lock held, as far as the server knows? */
static bool is_held(const struct sim *sim, int index)
{
	const struct sim_worker *w = &sim->workers[index];
	const struct sim_post *row = &sim->posts[index];
	return (w->alive && w->life == row->life && w->address == row->address) || sim->now_ns < row->held_until_ns;
}

static bool runs(const struct sim_post *row, const char *type)
{
	size_t i = 0;
	while (i < row->n_types && strcmp(row->types[i], type) != 0)
		i++;
	return row->there && i < row->n_types;
}

/* R20. */
static void check_taken(struct sim *sim, const struct sim_post *row)
{
	for (size_t i = 0; i < sim->n_taken; i++)
		if (memcmp(&sim->taken[i], &row->claim, sizeof(row->claim)) == 0)
			sim_fail(sim, "R20: an offer of %s to others was taken twice", row->worker);
	if (sim->n_taken < sizeof(sim->taken) / sizeof(sim->taken[0]))
		sim->taken[sim->n_taken++] = row->claim;
}

static bool take(struct sim *sim, int index, const char *type)
{
	struct sim_post *row = &sim->posts[index];
	struct sim_hearing h;
	struct memstore_handed handed;
	struct sl_err err = SL_ERR_INIT;
	const struct sl_new_job job = {.type = type, .input = "1"};
	const struct sl_offer offer = {.claim = row->claim, .worker = row->worker};
	if (memstore_start_offered(sim->ms, &job, &offer, row->accept_ms, &handed, sim_hear(&h), &err) != 0)
		return false;
	sim_know(sim, handed.started.chain_id);
	if (handed.job.id == 0) { /* its type is paused: the offer stands */
		sim_publish(sim, h.notes, h.n);
		return true;
	}
	sim_trace(sim, "client: chain %llu for %s", (ull)handed.started.chain_id, row->worker);
	check_taken(sim, row);
	row->there = sim->opts.wrong == SIM_WRONG_POST_TWICE;
	sim->report->far++;
	sim_check_claimed(sim, &handed.job, false);
	sim_check(sim, "start for another process");
	send_letter(sim, row, index, &handed);
	return true;
}

bool sim_start_far(struct sim *sim, const char *type)
{
	if (memstore_rows(sim->ms) >= SIM_ROWS)
		return false;
	for (int i = 0; i < sim->k.n_workers; i++)
		if (runs(&sim->posts[i], type) && is_held(sim, i))
			return take(sim, i, type);
	return false;
}

/* ---- sessions ---- */

void sim_post_orphaned(struct sim *sim, const struct sim_worker *w)
{
	if (sim_fault(sim, sim->k.linger))
		sim->posts[w->index].held_until_ns = sim->now_ns + sim_range(sim, 1, 3000) * SIM_MS;
}

void sim_reconnect(struct sim *sim, const struct sim_event *ev)
{
	(void)ev;
	struct sim_worker *w = &sim->workers[sim_range(sim, 0, sim->k.n_workers - 1)];
	if (sim->calm || !w->alive || w->paused_until_ns > sim->now_ns)
		return;
	sim_post_orphaned(sim, w);
	sim_at(sim, sim->now_ns, listen_anew, w);
}
