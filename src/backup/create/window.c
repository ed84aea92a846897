/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The window between the walk and the manifest, and inodes with several names. Only the caller's thread runs this code;
 * the workers see runs (work.c) and set items done.
 *
 * Of several names of an inode, the first that enters the manifest is the file, the others link to it (C3). When the
 * first one could not be read (it vanished), the next one takes its place. A link is freed when all of its names have
 * been met and have left the window, so memory holds only links with names that are still to come.
 */
#include "backup/create/contents.h"

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
	size_t n, buckets_n; /* a power of two */
};

static size_t bucket_of(const struct bk_links *l, uint64_t dev, uint64_t ino)
{
	uint64_t h = (ino ^ (dev << 32)) * UINT64_C(0x9E3779B97F4A7C15);
	return (size_t)(h >> 20) & (l->buckets_n - 1);
}

static bool grow_buckets(const struct sl_env *env, struct bk_links *l)
{
	size_t was = l->buckets_n;
	struct bk_link **old = l->buckets;
	if (l->n < was)
		return true;
	size_t n = was != 0 ? 2 * was : 256;
	struct bk_link **more = sl__calloc(env, n, sizeof(*more));
	if (more == NULL)
		return was != 0;
	l->buckets = more;
	l->buckets_n = n;
	for (size_t i = 0; i < was; i++)
		for (struct bk_link *link = old[i], *next; link != NULL; link = next) {
			size_t at = bucket_of(l, link->dev, link->ino);
			next = link->next;
			link->next = more[at];
			more[at] = link;
		}
	sl__free(env, old);
	return true;
}

struct bk_link *sl__bk_links_meet(struct bk_create *c, const struct stat *st, bool *first)
{
	const struct sl_env *env = &c->b->env;
	struct bk_links *l = c->links;
	if (l == NULL)
		l = c->links = sl__calloc(env, 1, sizeof(*l));
	if (l == NULL)
		return NULL;
	struct bk_link *link = l->n > 0 ? l->buckets[bucket_of(l, st->st_dev, st->st_ino)] : NULL;
	while (link != NULL && (link->dev != st->st_dev || link->ino != st->st_ino))
		link = link->next;
	*first = link == NULL;
	if (link == NULL) {
		link = grow_buckets(env, l) ? sl__calloc(env, 1, sizeof(*link)) : NULL;
		if (link == NULL)
			return NULL;
		size_t at = bucket_of(l, st->st_dev, st->st_ino);
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
	struct bk_link **at = &l->buckets[bucket_of(l, link->dev, link->ino)];
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

static int write_item(struct bk_create *c, struct bk_item *item, struct sl_err *err)
{
	struct bk_entry *e = &item->e;
	int rc = 0;
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
			if (rc != 0)
				return rc;
		}
	}
	if (!item->gone) {
		rc = add_to_manifest(c, e, err);
		if (e->type == SL_BACKUP_FILE)
			atomic_fetch_add(item->known ? &c->counts.files_changed : &c->counts.files_new,
					 !item->taken_over);
	}
	if (rc == 0 && item->link != NULL && sl__bk_link_left(c, item->link, !item->gone, e->path) != 0)
		rc = sl__no_memory(err, "create a snapshot");
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
		rc = write_item(c, item, err);
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
	c->run_n = 0;
	c->run_bytes = 0;
}

/* ---- the window ---- */

/* Write what is done, and wait until the window has at most max_bytes bytes. */
static int shrink_window(struct bk_create *c, size_t max_bytes, struct sl_err *err)
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
		c->run_n++;
		c->run_bytes += item->e.size;
		if (c->run_n == RUN_FILES || c->run_bytes >= RUN_BYTES)
			queue_run(c); /* from here on it may belong to a worker (C2) */
	} else {
		atomic_store_explicit(&item->done, true, memory_order_release);
	}
	return shrink_window(c, WINDOW_BYTES, err);
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

int sl__bk_window_drain(struct bk_create *c, struct sl_err *err)
{
	return shrink_window(c, 0, err);
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
	for (size_t i = 0; i < c->links->buckets_n; i++)
		while (c->links->buckets[i] != NULL)
			drop_link(env, c->links, c->links->buckets[i]);
	sl__free(env, c->links->buckets);
	sl__free(env, c->links);
	c->links = NULL;
}
