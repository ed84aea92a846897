/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The window between the walk and the manifest. Only the caller's thread is in here; the workers see runs
 * (create/work.c) and set items done.
 */
#include "backup/create/contents.h"

#define WINDOW_BYTES (4u << 20) /* of items in memory; then the walk waits */
#define RUN_FILES 64u
#define RUN_BYTES (1u << 20)

static int failure(struct bk_create *c, struct sl_err *err)
{
	sl__lock(&c->mu);
	int rc = c->failed;
	if (rc != 0 && err != NULL)
		*err = c->failure;
	sl__unlock(&c->mu);
	return rc;
}

/* ---- into the manifest ---- */

static void count_entry(struct bk_create *c, const struct bk_entry *e)
{
	atomic_fetch_add(&c->counts.entries, 1);
	if (e->type != SL_BACKUP_FILE)
		return;
	atomic_fetch_add(&c->counts.files, 1);
	atomic_fetch_add(&c->counts.bytes, e->size);
}

/* A name whose file is in the manifest becomes a link to it; else it is the file. */
static int settle_link(struct bk_create *c, struct bk_item *item, struct sl_err *err)
{
	if (item->link == NULL || item->e.type != SL_BACKUP_HARDLINK)
		return 0;
	const char *path = sl__bk_link_path(item->link);
	if (path != NULL) {
		item->e.target = path;
		item->e.target_len = strlen(path);
		return 0;
	}
	/* The name that came before it could not be read. */
	item->e.type = SL_BACKUP_FILE;
	int rc = sl__bk_contents_file(c->own, item, err);
	return rc == 0 ? sl__bk_contents_flush(c->own, err) : rc;
}

static int put_out(struct bk_create *c, struct bk_item *item, struct sl_err *err)
{
	int rc = item->gone ? 0 : settle_link(c, item, err);
	if (rc == 0 && !item->gone) {
		rc = sl__bk_manifest_add(c->manifest, &item->e, err);
		count_entry(c, &item->e);
		if (item->e.type == SL_BACKUP_FILE)
			atomic_fetch_add(item->known ? &c->counts.files_changed : &c->counts.files_new,
					 !item->taken_over);
	}
	if (rc == 0 && item->link != NULL && sl__bk_link_left(c, item->link, !item->gone, item->e.path) != 0)
		rc = sl__no_memory(err, "the entries of a snapshot");
	return rc;
}

/* Everything at the front that is done. */
static int put_out_done(struct bk_create *c, struct sl_err *err)
{
	int rc = 0;
	while (rc == 0 && c->first != NULL && atomic_load_explicit(&c->first->done, memory_order_acquire)) {
		struct bk_item *item = c->first;
		c->first = item->next;
		if (c->first == NULL)
			c->last = NULL;
		c->window_bytes -= item->bytes_counted;
		rc = put_out(c, item, err);
		atomic_fetch_add(&c->counts.bytes_done, item->owed); /* holes, and what nobody read */
		sl__bk_item_free(&c->b->env, item);
	}
	return rc;
}

/* ---- runs ---- */

/* What waits becomes a run in the queue. */
static void publish(struct bk_create *c)
{
	if (c->run_first == NULL)
		return;
	c->run_last->ends_run = true;
	sl__lock(&c->mu);
	if (c->queue_last != NULL)
		c->queue_last->next_work = c->run_first;
	else
		c->queue = c->run_first;
	c->queue_last = c->run_last;
	sl__signal(&c->work);
	sl__unlock(&c->mu);
	c->run_first = c->run_last = NULL;
	c->run_n = 0;
	c->run_bytes = 0;
}

static void add_to_run(struct bk_create *c, struct bk_item *item)
{
	if (c->run_last != NULL)
		c->run_last->next_work = item;
	else
		c->run_first = item;
	c->run_last = item;
	c->run_n++;
	c->run_bytes += item->e.size;
	if (c->run_n == RUN_FILES || c->run_bytes >= RUN_BYTES)
		publish(c);
}

static int await_first(struct bk_create *c, struct sl_err *err)
{
	publish(c);
	sl__lock(&c->mu);
	while (c->failed == 0 && !atomic_load_explicit(&c->first->done, memory_order_acquire))
		(void)sl__wait(&c->b->env, &c->done, &c->mu, SL_FOREVER);
	sl__unlock(&c->mu);
	return failure(c, err);
}

/* ---- the window ---- */

static void append(struct bk_create *c, struct bk_item *item)
{
	if (c->last != NULL)
		c->last->next = item;
	else
		c->first = item;
	c->last = item;
	item->bytes_counted = item->bytes;
	c->window_bytes += item->bytes;
}

int sl__bk_window_add(struct bk_create *c, struct bk_item *item, bool to_read, struct sl_err *err)
{
	append(c, item);
	if (to_read)
		add_to_run(c, item); /* it may be a worker's from here on (C2) */
	else
		atomic_store_explicit(&item->done, true, memory_order_release);
	int rc = put_out_done(c, err);
	while (rc == 0 && c->window_bytes > WINDOW_BYTES) {
		rc = await_first(c, err);
		if (rc == 0)
			rc = put_out_done(c, err);
	}
	return rc;
}

int sl__bk_window_entry(struct bk_create *c, const struct bk_entry *e, struct bk_link *link, struct sl_err *err)
{
	if (c->first == NULL && link == NULL) {
		int rc = sl__bk_manifest_add(c->manifest, e, err);
		count_entry(c, e);
		return rc;
	}
	struct bk_item *item = sl__bk_item_copy(&c->b->env, e);
	if (item == NULL)
		return sl__no_memory(err, "the entries of a snapshot");
	item->link = link;
	item->taken_over = true;
	return sl__bk_window_add(c, item, false, err);
}

int sl__bk_window_drain(struct bk_create *c, struct sl_err *err)
{
	int rc = put_out_done(c, err);
	while (rc == 0 && c->first != NULL) {
		rc = await_first(c, err);
		if (rc == 0)
			rc = put_out_done(c, err);
	}
	return rc;
}

void sl__bk_window_fini(struct bk_create *c)
{
	while (c->first != NULL) {
		struct bk_item *item = c->first;
		c->first = item->next;
		sl__bk_item_free(&c->b->env, item);
	}
	while (c->databases != NULL) {
		struct bk_item *item = c->databases;
		c->databases = item->next;
		sl__bk_item_free(&c->b->env, item);
	}
	c->last = c->databases_last = NULL;
}
