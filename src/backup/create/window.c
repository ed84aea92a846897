/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The window between the walk and the manifest, inodes with several names, and the workers. Only the caller's thread
 * runs the code of the window. Each worker takes a run of files from the queue, reads them, and sets them done together.
 *
 * Of several names of an inode, the first that enters the manifest is the file, the others link to it (C3). When the
 * first one could not be read (it vanished), the next one takes its place. A link is freed when all of its names have
 * been met and have left the window, so memory holds only links with names that are still to come.
 */
#include "backup/create/create.h"

#define WINDOW_BYTES (4u << 20) /* of items in memory; then the walk waits */
#define RUN_FILES 64u
#define RUN_BYTES (1u << 20)

/* ---- inodes with several names ---- */

struct bk_link {
	struct bk_link *next; /* in its bucket */
	uint64_t dev, ino, names, met, left;
	char *path; /* in the manifest; NULL: none yet */
};

struct bk_links {
	struct bk_link **buckets;
	size_t n, n_buckets; /* a power of two */
};

static size_t link_bucket(const struct bk_links *l, uint64_t dev, uint64_t ino)
{
	uint64_t h = (ino ^ (dev << 32)) * UINT64_C(0x9E3779B97F4A7C15);
	return (size_t)(h >> 20) & (l->n_buckets - 1);
}

struct bk_link *sl__bk_links_meet(struct bk_create *c, const struct stat *st, bool *first)
{
	const struct sl_env *env = &c->b->env;
	struct bk_links *l = c->links;
	if (l == NULL)
		l = c->links = sl__calloc(env, 1, sizeof(*l));
	if (l == NULL)
		return NULL;
	struct bk_link *link = l->n > 0 ? l->buckets[link_bucket(l, st->st_dev, st->st_ino)] : NULL;
	while (link != NULL && (link->dev != st->st_dev || link->ino != st->st_ino))
		link = link->next;
	*first = link == NULL;
	if (link == NULL && l->n >= l->n_buckets) {
		/* More buckets; those that exist are enough when there is no memory for more. */
		size_t n = l->n_buckets != 0 ? 2 * l->n_buckets : 256;
		struct bk_links more = {.n = l->n, .n_buckets = n};
		more.buckets = sl__calloc(env, n, sizeof(*more.buckets));
		if (more.buckets == NULL && l->n_buckets == 0)
			return NULL;
		if (more.buckets != NULL) {
			for (size_t i = 0; i < l->n_buckets; i++)
				for (struct bk_link *old = l->buckets[i], *next; old != NULL; old = next) {
					size_t at = link_bucket(&more, old->dev, old->ino);
					next = old->next;
					old->next = more.buckets[at];
					more.buckets[at] = old;
				}
			sl__free(env, l->buckets);
			*l = more;
		}
	}
	if (link == NULL) {
		link = sl__calloc(env, 1, sizeof(*link));
		if (link == NULL)
			return NULL;
		size_t at = link_bucket(l, st->st_dev, st->st_ino);
		*link = (struct bk_link){
			.next = l->buckets[at], .dev = st->st_dev, .ino = st->st_ino, .names = st->st_nlink};
		l->buckets[at] = link;
		l->n++;
	}
	link->met++;
	return link;
}

static void drop_link(const struct sl_env *env, struct bk_links *l, struct bk_link *link)
{
	struct bk_link **at = &l->buckets[link_bucket(l, link->dev, link->ino)];
	while (*at != link)
		at = &(*at)->next;
	*at = link->next;
	l->n--;
	sl__free(env, link->path);
	sl__free(env, link);
}

int sl__bk_link_left(struct bk_create *c, struct bk_link *link, bool in_manifest, const char *path)
{
	link->left++;
	if (link->left == link->met && link->met >= link->names) {
		drop_link(&c->b->env, c->links, link);
		return 0;
	}
	if (!in_manifest || link->path != NULL)
		return 0;
	link->path = sl__strdup(&c->b->env, path);
	return link->path != NULL ? 0 : SL_ENOMEM;
}

/* ---- into the manifest ---- */

static int add_to_manifest(struct bk_create *c, const struct bk_entry *e, struct sl_err *err)
{
	int rc = sl__bk_manifest_add(c->manifest, e, err);
	atomic_fetch_add(&c->counts.entries, 1);
	if (e->type == SL_BACKUP_FILE) {
		atomic_fetch_add(&c->counts.files, 1);
		atomic_fetch_add(&c->counts.bytes, e->size);
	}
	return rc;
}

/* Write everything at the front that is done. */
static int write_done_items(struct bk_create *c, struct sl_err *err)
{
	int rc = 0;
	while (rc == 0 && c->first != NULL && atomic_load_explicit(&c->first->done, memory_order_acquire)) {
		struct bk_item *item = c->first;
		c->first = item->next;
		if (c->first == NULL)
			c->last = NULL;
		c->window_bytes -= item->bytes_counted;

		struct bk_entry *e = &item->e;
		if (!item->gone && item->link != NULL && e->type == SL_BACKUP_HARDLINK) {
			/* A name whose file is in the manifest becomes a link to it. */
			e->target = item->link->path;
			e->target_len = e->target != NULL ? strlen(e->target) : 0;
			if (e->target == NULL) {
				/* The name before it could not be read: this one is the file. */
				e->type = SL_BACKUP_FILE;
				rc = sl__bk_contents_file(c->own, item, err);
				if (rc == 0)
					rc = sl__bk_contents_flush(c->own, err);
			}
		}
		if (rc == 0 && !item->gone) {
			rc = add_to_manifest(c, e, err);
			if (e->type == SL_BACKUP_FILE)
				atomic_fetch_add(item->known ? &c->counts.files_changed : &c->counts.files_new,
						 !item->taken_over);
		}
		if (rc == 0 && item->link != NULL && sl__bk_link_left(c, item->link, !item->gone, e->path) != 0)
			rc = sl__no_memory(err, "create a snapshot");
		atomic_fetch_add(&c->counts.bytes_done, item->owed); /* holes, and what was not read */
		sl__bk_item_free(&c->b->env, item);
	}
	return rc;
}

/* Put the collected run into the queue. */
static void queue_run(struct bk_create *c)
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
	c->n_run = 0;
	c->run_bytes = 0;
}

/* ---- the window ---- */

int sl__bk_window_shrink(struct bk_create *c, size_t max_bytes, struct sl_err *err)
{
	int rc = write_done_items(c, err);
	while (rc == 0 && c->first != NULL && c->window_bytes > max_bytes) {
		queue_run(c);
		sl__lock(&c->mu);
		while (c->failed == 0 && !atomic_load_explicit(&c->first->done, memory_order_acquire))
			(void)sl__wait(&c->b->env, &c->done, &c->mu, SL_FOREVER);
		rc = c->failed;
		if (rc != 0 && err != NULL)
			*err = c->failure;
		sl__unlock(&c->mu);
		if (rc == 0)
			rc = write_done_items(c, err);
	}
	return rc;
}

int sl__bk_window_add(struct bk_create *c, struct bk_item *item, bool to_read, struct sl_err *err)
{
	if (c->last != NULL)
		c->last->next = item;
	else
		c->first = item;
	c->last = item;
	item->bytes_counted = item->bytes;
	c->window_bytes += item->bytes;
	if (to_read) {
		if (c->run_last != NULL)
			c->run_last->next_work = item;
		else
			c->run_first = item;
		c->run_last = item;
		c->n_run++;
		c->run_bytes += item->e.size;
		if (c->n_run == RUN_FILES || c->run_bytes >= RUN_BYTES)
			queue_run(c); /* from here on it may belong to a worker (C2) */
	} else {
		atomic_store_explicit(&item->done, true, memory_order_release);
	}
	return sl__bk_window_shrink(c, WINDOW_BYTES, err);
}

int sl__bk_window_entry(struct bk_create *c, const struct bk_entry *e, struct bk_link *link, struct sl_err *err)
{
	if (c->first == NULL && link == NULL)
		return add_to_manifest(c, e, err);
	struct bk_item *item = sl__bk_item_copy(&c->b->env, e);
	if (item == NULL)
		return sl__no_memory(err, "create a snapshot");
	item->link = link;
	item->taken_over = true;
	return sl__bk_window_add(c, item, false, err);
}

static void free_items(const struct sl_env *env, struct bk_item *first)
{
	for (struct bk_item *item = first, *next; item != NULL; item = next) {
		next = item->next;
		sl__bk_item_free(env, item);
	}
}

void sl__bk_window_fini(struct bk_create *c)
{
	const struct sl_env *env = &c->b->env;
	free_items(env, c->first);
	free_items(env, c->databases);
	c->first = c->last = c->databases = c->databases_last = NULL;
	if (c->links == NULL)
		return;
	for (size_t i = 0; i < c->links->n_buckets; i++)
		while (c->links->buckets[i] != NULL)
			drop_link(env, c->links, c->links->buckets[i]);
	sl__free(env, c->links->buckets);
	sl__free(env, c->links);
	c->links = NULL;
}

/* ---- the workers ---- */

struct worker {
	struct bk_create *c;
	struct bk_contents *contents;
};

static void *work(void *arg)
{
	struct worker w = *(struct worker *)arg;
	struct bk_create *c = w.c;
	int rc = 0;
	sl__free(&c->b->env, arg);
	while (rc == 0) {
		/* Take a run, its items chained by next_work. */
		sl__lock(&c->mu);
		while (c->queue == NULL && !c->ended && c->failed == 0)
			(void)sl__wait(&c->b->env, &c->work, &c->mu, SL_FOREVER);
		struct bk_item *run = c->failed == 0 ? c->queue : NULL, *last = run;
		while (last != NULL && !last->ends_run)
			last = last->next_work;
		if (last != NULL) {
			c->queue = last->next_work;
			if (c->queue == NULL)
				c->queue_last = NULL;
			last->next_work = NULL;
		}
		sl__unlock(&c->mu);
		if (run == NULL)
			break;

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

int sl__bk_workers_start(struct bk_create *c, struct sl_err *err)
{
	int rc = 0;
	c->threads = sl__calloc(&c->b->env, (size_t)c->b->opts.threads, sizeof(*c->threads));
	if (c->threads == NULL)
		return sl__no_memory(err, "start the workers");
	for (int i = 0; i < c->b->opts.threads; i++) {
		struct worker *w = sl__calloc(&c->b->env, 1, sizeof(*w));
		if (w == NULL)
			return sl__no_memory(err, "start a worker");
		w->c = c;
		rc = sl__bk_contents_new(&w->contents, c, i, err);
		if (rc == 0) {
			rc = sl__thread_start(&c->threads[i], "backup-read", work, w);
			if (rc != 0)
				rc = sl__thread_error(err, rc, "reader", "a backup");
		}
		if (rc != 0) {
			sl__bk_contents_free(w->contents);
			sl__free(&c->b->env, w);
			return rc;
		}
		c->n_threads++;
	}
	return 0;
}

void sl__bk_workers_stop(struct bk_create *c)
{
	sl__lock(&c->mu);
	c->ended = true;
	sl__broadcast(&c->work);
	sl__unlock(&c->mu);
	for (int i = 0; i < c->n_threads; i++)
		(void)pthread_join(c->threads[i], NULL);
	sl__free(&c->b->env, c->threads);
	c->threads = NULL;
	c->n_threads = 0;
}
