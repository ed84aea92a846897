/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publishes that the coordinator has. When the store turns out to be away, all of them are told, not only those whose
 * write failed: the others would wait behind the breaker with their connections open until their senders give up.
 * Their items go on, and what is written of them is known by its sequence when it comes again.
 */
#include "base/thread.h"
#include "base/time.h"
#include "server/ingest/ingest.h"

#include <string.h>

#define AWAY_MS 1000

void srv_wait_init(struct srv_ingest *in)
{
	sl__mutex_init(&in->wait.mu);
}

void srv_wait_fini(struct srv_ingest *in)
{
	sl__mutex_fini(&in->wait.mu);
}

bool srv_wait_begin(struct srv_ingest *in, struct srv_publish *p, bool probe)
{
	struct srv_waiting *w = &in->wait;
	sl__lock(&w->mu);
	bool away = !probe && w->away_until_ms != 0 && sl__mono_ns(in->env) / 1000000 < w->away_until_ms;
	/* What a stream sends again and again must not fill the queue while the store does not take it. */
	for (const struct srv_publish *q = w->first; q != NULL && !away; q = q->next_waiting)
		away = atomic_load(&q->unheard) && q->key_len == p->key_len && memcmp(q->key, p->key, p->key_len) == 0;
	if (!away) {
		p->next_waiting = w->first;
		p->prev_waiting = &w->first;
		if (w->first != NULL)
			w->first->prev_waiting = &p->next_waiting;
		w->first = p;
	}
	sl__unlock(&w->mu);
	return !away;
}

void srv_wait_end(struct srv_publish *p)
{
	struct srv_waiting *w = &p->ingest->wait;
	sl__lock(&w->mu);
	*p->prev_waiting = p->next_waiting;
	if (p->next_waiting != NULL)
		p->next_waiting->prev_waiting = p->prev_waiting;
	sl__unlock(&w->mu);
}

/* Without the lock, which others hold while they wait for on_gone to return. One that has its answer will end soon. */
void srv_wait_unheard(struct srv_publish *p, int64_t ms, const char *why)
{
	if (atomic_load(&p->request) != NULL)
		atomic_store(&p->unheard, true);
	srv_publish_busy(p, 503, ms, why);
}

/* Nobody frees one of them meanwhile: the coordinator has it until srv_wait_end. */
void srv_wait_away(struct srv_ingest *in)
{
	struct srv_waiting *w = &in->wait;
	sl__lock(&w->mu);
	w->away_until_ms = sl__mono_ns(in->env) / 1000000 + AWAY_MS;
	for (struct srv_publish *p = w->first; p != NULL; p = p->next_waiting)
		srv_wait_unheard(p, AWAY_MS, "the store is away");
	sl__unlock(&w->mu);
}

void srv_wait_back(struct srv_ingest *in)
{
	sl__lock(&in->wait.mu);
	in->wait.away_until_ms = 0;
	sl__unlock(&in->wait.mu);
}
