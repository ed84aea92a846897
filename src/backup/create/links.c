/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inodes with several names. The first name that comes into the manifest is the file, the others link to it (C3). When
 * the first one could not be read (it vanished meanwhile), the next one takes its place.
 *
 * A link is forgotten when all of its names have been met and have left the window, so memory holds only those of
 * which names are still to come.
 */
#include "backup/create/contents.h"

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

static bool grow(const struct sl_env *env, struct bk_links *l)
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

static struct bk_link *add(const struct sl_env *env, struct bk_links *l, const struct stat *st)
{
	struct bk_link *link = grow(env, l) ? sl__calloc(env, 1, sizeof(*link)) : NULL;
	if (link == NULL)
		return NULL;
	size_t at = bucket_of(l, st->st_dev, st->st_ino);
	*link = (struct bk_link){.next = l->buckets[at], .dev = st->st_dev, .ino = st->st_ino, .names = st->st_nlink};
	l->buckets[at] = link;
	l->n++;
	return link;
}

struct bk_link *sl__bk_links_meet(struct bk_create *c, const struct stat *st, bool *first)
{
	const struct sl_env *env = &c->b->env;
	if (c->links == NULL)
		c->links = sl__calloc(env, 1, sizeof(*c->links));
	if (c->links == NULL)
		return NULL;
	struct bk_link *link = c->links->n > 0 ? c->links->buckets[bucket_of(c->links, st->st_dev, st->st_ino)] : NULL;
	while (link != NULL && (link->dev != st->st_dev || link->ino != st->st_ino))
		link = link->next;
	*first = link == NULL;
	if (link == NULL)
		link = add(env, c->links, st);
	if (link != NULL)
		link->met++;
	return link;
}

static void forget(const struct sl_env *env, struct bk_links *l, struct bk_link *link)
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
		forget(&c->b->env, c->links, link);
		return 0;
	}
	if (in_manifest && link->path == NULL) {
		link->path = sl__strdup(&c->b->env, path);
		return link->path != NULL ? 0 : SL_ENOMEM;
	}
	return 0;
}

const char *sl__bk_link_path(const struct bk_link *link)
{
	return link->path;
}

void sl__bk_links_fini(struct bk_create *c)
{
	const struct sl_env *env = &c->b->env;
	for (size_t i = 0; c->links != NULL && i < c->links->buckets_n; i++)
		while (c->links->buckets[i] != NULL)
			forget(env, c->links, c->links->buckets[i]);
	if (c->links != NULL)
		sl__free(env, c->links->buckets);
	sl__free(env, c->links);
	c->links = NULL;
}
