/* SPDX-License-Identifier: Apache-2.0 */
/* The workers: each takes a run of files from the queue, reads them, and sets them done together. */
#include "backup/create/contents.h"

struct worker {
	struct bk_create *c;
	struct bk_contents *contents;
};

/* A run, its items chained by next_work; NULL: the end. */
static struct bk_item *take_run(struct bk_create *c)
{
	sl__lock(&c->mu);
	while (c->queue == NULL && !c->ended && c->failed == 0)
		(void)sl__wait(&c->b->env, &c->work, &c->mu, SL_FOREVER);
	struct bk_item *first = c->failed == 0 ? c->queue : NULL, *last = first;
	while (last != NULL && !last->ends_run)
		last = last->next_work;
	if (last != NULL) {
		c->queue = last->next_work;
		if (c->queue == NULL)
			c->queue_last = NULL;
		last->next_work = NULL;
	}
	sl__unlock(&c->mu);
	return first;
}

static void *work(void *arg)
{
	struct worker w = *(struct worker *)arg;
	struct bk_create *c = w.c;
	struct bk_item *run;
	int rc = 0;
	sl__free(&c->b->env, arg);
	while (rc == 0 && (run = take_run(c)) != NULL) {
		struct sl_err err = SL_ERR_INIT;
		for (struct bk_item *item = run; rc == 0 && item != NULL; item = item->next_work)
			rc = sl__bk_contents_file(w.contents, item, &err);
		if (rc == 0)
			rc = sl__bk_contents_flush(w.contents, &err);
		/* Once done is set, an item may be freed immediately (C2). */
		for (struct bk_item *item = run, *next; rc == 0 && item != NULL; item = next) {
			next = item->next_work;
			atomic_store_explicit(&item->done, true, memory_order_release);
		}
		sl__lock(&c->mu);
		if (rc != 0 && c->failed == 0) {
			c->failed = rc;
			c->failure = err;
		}
		if (rc != 0)
			sl__broadcast(&c->work);
		sl__signal(&c->done);
		sl__unlock(&c->mu);
		if (rc == 0)
			sl__bk_create_progress(c);
	}
	sl__bk_contents_free(w.contents);
	return NULL;
}

static int start_worker(struct bk_create *c, int lane, struct sl_err *err)
{
	struct worker *w = sl__calloc(&c->b->env, 1, sizeof(*w));
	if (w == NULL)
		return sl__no_memory(err, "start a worker");
	w->c = c;
	int rc = sl__bk_contents_new(&w->contents, c, lane, err);
	if (rc == 0) {
		rc = sl__thread_start(&c->threads[c->threads_n], "backup-read", work, w);
		if (rc == 0) {
			c->threads_n++;
			return 0;
		}
		rc = sl__thread_error(err, rc, "reader", "a backup");
		sl__bk_contents_free(w->contents);
	}
	sl__free(&c->b->env, w);
	return rc;
}

int sl__bk_workers_start(struct bk_create *c, struct sl_err *err)
{
	int rc = 0;
	c->threads = sl__calloc(&c->b->env, (size_t)c->b->opts.threads, sizeof(*c->threads));
	if (c->threads == NULL)
		return sl__no_memory(err, "start the workers");
	for (int i = 0; rc == 0 && i < c->b->opts.threads; i++)
		rc = start_worker(c, i, err);
	return rc;
}

void sl__bk_workers_stop(struct bk_create *c)
{
	sl__lock(&c->mu);
	c->ended = true;
	sl__broadcast(&c->work);
	sl__unlock(&c->mu);
	for (int i = 0; i < c->threads_n; i++)
		(void)pthread_join(c->threads[i], NULL);
	sl__free(&c->b->env, c->threads);
	c->threads = NULL;
	c->threads_n = 0;
}
