/* SPDX-License-Identifier: Apache-2.0 */
/* A bounded queue of notes that merges what says the same, and the subscribers that they are delivered to. */
#include <unistd.h>

#include "jobs/notify/fanout.h"

struct sl__subscriber {
	struct sl__subscriber *next;
	sl_note_fn *fn;
	void *ctx;
	bool gone; /* unsubscribed while subscribers are called; freed after */
};

int sl__fanout_init(struct sl__fanout *f, const struct sl_env *env, sl__fanout_wake_fn *wake, void *ctx,
		    struct sl_err *err)
{
	memset(f, 0, sizeof(*f));
	f->env = env;
	f->pid = getpid();
	f->wake = wake;
	f->wake_ctx = ctx;
	f->queue = sl__calloc(env, 2 * SL__FANOUT_MAX, sizeof(*f->queue));
	f->memory = f->queue;
	f->taken = f->queue != NULL ? f->queue + SL__FANOUT_MAX : NULL;
	if (f->queue == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for a notifier");
	sl__mutex_init(&f->mu);
	sl__cond_init(&f->idle);
	return 0;
}

static void drop_gone(struct sl__fanout *f, bool all)
{
	for (struct sl__subscriber **at = &f->subscribers; *at != NULL;) {
		struct sl__subscriber *s = *at;
		if (!all && !s->gone) {
			at = &s->next;
			continue;
		}
		*at = s->next;
		sl__free(f->env, s);
	}
}

void sl__fanout_fini(struct sl__fanout *f)
{
	if (f->memory == NULL)
		return;
	drop_gone(f, true);
	sl__cond_fini(&f->idle);
	sl__mutex_fini(&f->mu);
	sl__free(f->env, f->memory);
	f->memory = NULL;
}

/* ---- the queue ---- */

/* Jobs of one type are one note, whose id is kept while it is one job. */
static bool merge_note(struct sl_note *into, const struct sl_note *note)
{
	if (into->kind != note->kind)
		return false;
	if (note->kind != SL_NOTE_JOB_SCHEDULED)
		return into->id == note->id && into->reason == note->reason;
	bool same_type = into->type == NULL || note->type == NULL ? into->type == note->type
								  : strcmp(into->type, note->type) == 0;
	if (!same_type)
		return false;
	if (into->id != note->id)
		into->id = 0;
	into->later = into->later && note->later;
	return true;
}

void sl__fanout_push(struct sl__fanout *f, const struct sl_note *notes, size_t n)
{
	sl__lock(&f->mu);
	bool was_empty = f->n == 0 && !f->overflowed;
	for (size_t i = 0; i < n && f->subscribers != NULL; i++) {
		const struct sl_note *note = &notes[i];
		size_t at = f->n;
		while (at > 0 && !merge_note(&f->queue[at - 1].note, note))
			at--;
		if (at > 0)
			continue;
		if (note->kind == 0 || f->n == SL__FANOUT_MAX) {
			f->overflowed = true;
			continue;
		}
		struct sl__fanout_note *q = &f->queue[f->n++];
		q->note = *note;
		q->note.type = NULL;
		if (note->type != NULL && strlen(note->type) < sizeof(q->type)) {
			memcpy(q->type, note->type, strlen(note->type) + 1);
			q->note.type = q->type;
		}
	}
	bool wake = was_empty && (f->n > 0 || f->overflowed);
	sl__unlock(&f->mu);
	if (wake)
		f->wake(f->wake_ctx);
}

void sl__fanout_push_all(struct sl__fanout *f)
{
	sl__fanout_push(f, &(const struct sl_note){.kind = 0}, 1);
}

int sl__fanout_check_fork(const struct sl__fanout *f, struct sl_err *err)
{
	return f->pid == getpid() ? 0 : sl_err_set(err, SL_EFORKED, "a forked child must open its own notifier");
}

int sl__fanout_publish(void *fanout, const struct sl_note *notes, size_t n, struct sl_err *err)
{
	int rc = sl__fanout_check_fork(fanout, err);
	if (rc != 0)
		return rc;
	sl__fanout_push(fanout, notes, n);
	return 0;
}

int sl__fanout_healthy(SL_UNUSED void *fanout)
{
	return 1;
}

/* ---- subscribers ---- */

int sl__fanout_subscribe(void *fanout, sl_note_fn *fn, void *ctx, struct sl_err *err)
{
	struct sl__fanout *f = fanout;
	int rc = sl__fanout_check_fork(f, err);
	if (rc != 0)
		return rc;
	struct sl__subscriber *s = sl__calloc(f->env, 1, sizeof(*s));
	if (s == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for a subscription");
	s->fn = fn;
	s->ctx = ctx;
	sl__lock(&f->mu);
	s->next = f->subscribers;
	f->subscribers = s;
	sl__unlock(&f->mu);
	return 0;
}

void sl__fanout_unsubscribe(void *fanout, sl_note_fn *fn, void *ctx)
{
	struct sl__fanout *f = fanout;
	if (sl__fanout_check_fork(f, NULL) != 0)
		return;
	sl__lock(&f->mu);
	struct sl__subscriber *s = f->subscribers;
	while (s != NULL && (s->gone || s->fn != fn || s->ctx != ctx))
		s = s->next;
	if (s != NULL)
		s->gone = true;
	while (f->delivering && !pthread_equal(f->deliverer, pthread_self()))
		(void)sl__wait(f->env, &f->idle, &f->mu, SL_FOREVER);
	if (!f->delivering)
		drop_gone(f, false);
	sl__unlock(&f->mu);
}

void sl__fanout_deliver(struct sl__fanout *f)
{
	static const struct sl_note check_all = {.kind = 0};
	sl__lock(&f->mu);
	f->delivering = true;
	f->deliverer = pthread_self();
	while (f->n > 0 || f->overflowed) {
		/* Taken out before they are delivered: what comes meanwhile is a separate note. */
		struct sl__fanout_note *notes = f->queue;
		size_t n = f->n;
		bool overflowed = f->overflowed;
		f->queue = f->taken;
		f->taken = notes;
		f->n = 0;
		f->overflowed = false;
		for (size_t i = 0; i < n + overflowed; i++) {
			const struct sl_note *note = i < n ? &notes[i].note : &check_all;
			/* Only the head of the list changes meanwhile, and no subscriber is freed while `delivering` is set. */
			for (struct sl__subscriber *s = f->subscribers; s != NULL; s = s->next) {
				if (s->gone)
					continue;
				sl__unlock(&f->mu);
				s->fn(note, s->ctx);
				sl__lock(&f->mu);
			}
		}
	}
	f->delivering = false;
	drop_gone(f, false);
	sl__broadcast(&f->idle);
	sl__unlock(&f->mu);
}
