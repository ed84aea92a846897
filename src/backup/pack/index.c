/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All index files of a repository: a list that only grows, so that look-ups need no lock for it.
 *
 * A prune may merge files and remove the old ones while we look up. A segment that is not there any more when it is
 * first needed leads to another listing: files that came since are added, and the one that is gone is passed over where
 * it was not read. Packs of later files are usable when an earlier file had them so; others came after us.
 */
#include "backup/pack/index_file.h"

#include <stdlib.h>

#define LISTINGS_MAX 100 /* each one because a prune removed a file meanwhile */

static struct bk_index_file *first_file(const struct bk_index *x)
{
	return atomic_load_explicit(&x->first, memory_order_acquire);
}

static struct bk_index_file *next_file(const struct bk_index_file *f)
{
	return atomic_load_explicit(&f->next, memory_order_acquire);
}

void sl__bk_index_ask(struct bk_index *x, struct bk_index_file *f)
{
	atomic_store_explicit(x->last_asked != NULL ? &x->last_asked->next_asked : &x->asked, f, memory_order_release);
	x->last_asked = f;
}

void sl__bk_index_append(struct bk_index *x, struct bk_index_file *f)
{
	f->first_ordinal = x->entries;
	x->entries += f->entries_n;
	x->files_n++;
	atomic_store_explicit(x->last != NULL ? &x->last->next : &x->first, f, memory_order_release);
	x->last = f;
	if (!f->gathered)
		sl__bk_index_ask(x, f);
}

static bool is_loaded(const struct bk_index *x, const char *name)
{
	for (const struct bk_index_file *f = first_file(x); f != NULL; f = next_file(f))
		if (strcmp(f->name, name) == 0)
			return true;
	return false;
}

/* What decides about the packs of a file, and about a damaged file. */
struct loading {
	struct bk_index *x;
	bk_pack_usable_fn *usable;
	bk_index_damaged_fn *on_damaged; /* NULL: damage ends the loading */
	void *ctx;
	struct sl_err *err;
	/* one listing; files are opened behind it, not from inside of the driver */
	struct listed {
		struct bk_id id;
		uint64_t size;
	} * listed;
	size_t listed_n, listed_cap;
	bool vanished; /* one that was listed was not there */
};

static int load_file(struct loading *l, const char *name, uint64_t size)
{
	struct bk_index_file *f;
	struct sl_err why = SL_ERR_INIT;
	int rc = sl__bk_index_file_open(&f, l->x, name, size, &why);
	if (rc == SL_ENOENT) {
		l->vanished = true;
		return 0;
	}
	if (rc == SL_ECORRUPT && l->on_damaged != NULL)
		return l->on_damaged(name, &why, l->ctx);
	if (rc != 0) {
		if (l->err != NULL)
			*l->err = why;
		return rc;
	}
	for (uint32_t i = 0; i < f->packs_n; i++)
		f->usable[i] = l->usable == NULL || l->usable(&f->packs[i], l->ctx);
	sl__bk_index_append(l->x, f);
	return 0;
}

static int keep_listed(const char *name, const struct sl_driver_stat *stat, void *ctx)
{
	struct loading *l = ctx;
	struct bk_id id;
	if (!sl__bk_unhex(name, id.b, sizeof(id.b)))
		return 0; /* check tells of strays */
	if (l->listed_n == l->listed_cap) {
		size_t cap = SL_MAX(2 * l->listed_cap, (size_t)64);
		struct listed *listed = sl__realloc(&l->x->env, l->listed, cap * sizeof(*listed));
		if (listed == NULL)
			return sl__no_memory(l->err, "the index");
		l->listed = listed;
		l->listed_cap = cap;
	}
	l->listed[l->listed_n++] = (struct listed){.id = id, .size = stat->size};
	return 0;
}

/* Load what one listing shows and is not loaded; again: something may be. */
static int load_once(struct loading *l, bool again)
{
	const sl_driver *d = l->x->driver;
	l->vanished = false;
	l->listed_n = 0;
	int rc = d->ops->list(d->driver, "index", keep_listed, l, l->err);
	for (size_t i = 0; rc == 0 && i < l->listed_n; i++) {
		char name[SL_DRIVER_NAME_BYTES] = "index/";
		sl__bk_hex(l->listed[i].id.b, BK_ID_BYTES, name + strlen(name));
		if (!again || !is_loaded(l->x, name))
			rc = load_file(l, name, l->listed[i].size);
	}
	return rc;
}

/* Until nothing of a listing has vanished. */
static int load_listed(struct loading *l)
{
	int rc = 0;
	bool again = first_file(l->x) != NULL;
	l->vanished = true;
	for (int i = 0; rc == 0 && l->vanished && i < LISTINGS_MAX; i++) {
		rc = load_once(l, again);
		again = true;
	}
	sl__free(&l->x->env, l->listed);
	l->listed = NULL;
	if (rc == 0 && l->vanished)
		rc = sl_err_set(l->err, SL_EAGAIN, "the files of the index vanish as fast as they are listed");
	return rc;
}

int sl__bk_index_load(struct bk_index **out, const struct sl_env *env, const struct bk_keys *keys,
		      const sl_driver *driver, bk_pack_usable_fn *usable, bk_index_damaged_fn *on_damaged, void *ctx,
		      struct sl_err *err)
{
	struct bk_index *x = sl__calloc(env, 1, sizeof(*x));
	if (x == NULL)
		return sl__no_memory(err, "the index");
	x->env = *env;
	x->keys = keys;
	x->driver = driver;
	sl__mutex_init(&x->refreshing);
	for (size_t i = 0; i < BK_INDEX_LOCKS; i++)
		sl__mutex_init(&x->reading[i]);
	struct loading l = {.x = x, .usable = usable, .on_damaged = on_damaged, .ctx = ctx, .err = err};
	int rc = load_listed(&l);
	if (rc != 0) {
		sl__bk_index_free(x);
		return rc;
	}
	*out = x;
	return 0;
}

void sl__bk_index_free(struct bk_index *x)
{
	if (x == NULL)
		return;
	for (struct bk_index_file *f = first_file(x), *next; f != NULL; f = next) {
		next = next_file(f);
		sl__bk_index_file_free(&x->env, f);
	}
	sl__bk_index_file_free(&x->env, x->front);
	sl__mutex_fini(&x->refreshing);
	for (size_t i = 0; i < BK_INDEX_LOCKS; i++)
		sl__mutex_fini(&x->reading[i]);
	struct sl_env env = x->env;
	sl__free(&env, x);
}

/* ---- files that were removed while we look up ---- */

struct known {
	struct bk_id *ids; /* sorted: the packs that are usable */
	size_t n;
};

static bool usable_before(const struct bk_id *pack, void *ctx)
{
	const struct known *k = ctx;
	return k->n != 0 && bsearch(pack, k->ids, k->n, sizeof(*k->ids), sl__bk_compare_ids) != NULL;
}

static int know_packs(const struct bk_index *x, struct known *k, struct sl_err *err)
{
	size_t all = 1; /* never an allocation of nothing */
	for (const struct bk_index_file *f = first_file(x); f != NULL; f = next_file(f))
		all += f->packs_n;
	k->ids = sl__calloc(&x->env, all, sizeof(*k->ids));
	if (k->ids == NULL)
		return sl__no_memory(err, "the index");
	for (const struct bk_index_file *f = first_file(x); f != NULL; f = next_file(f))
		for (uint32_t i = 0; i < f->packs_n; i++)
			if (f->usable[i])
				k->ids[k->n++] = f->packs[i];
	qsort(k->ids, k->n, sizeof(*k->ids), sl__bk_compare_ids);
	return 0;
}

/* The object of f is gone: add what came since. On 0 its unread segments are passed over. */
static int refresh(struct bk_index *x, struct bk_index_file *gone, struct sl_err *err)
{
	int rc = 0;
	struct known k = {.ids = NULL};
	sl__lock(&x->refreshing);
	if (!atomic_load(&gone->gone)) {
		struct loading l = {.x = x, .usable = usable_before, .ctx = &k, .err = err};
		rc = know_packs(x, &k, err);
		if (rc == 0)
			rc = load_listed(&l);
		if (rc == 0)
			atomic_store(&gone->gone, true);
	}
	sl__unlock(&x->refreshing);
	sl__free(&x->env, k.ids);
	return rc;
}

/* The entries of this id in f. When its object is gone, what came since is at the end of both lists afterwards. */
static int search_file(struct bk_index *x, struct bk_index_file *f, const struct bk_id *id, bk_index_visit_fn *fn,
		       void *ctx, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	int rc = sl__bk_index_file_search(x, f, id, fn, ctx, &why);
	if (rc == SL_ENOENT)
		rc = refresh(x, f, &why);
	if (rc < 0 && err != NULL)
		*err = why;
	return rc;
}

static void found_at(const struct bk_index_file *f, const uint8_t *entry, struct bk_found *out)
{
	out->pack = f->packs[sl__get32(entry + 32)];
	sl__bk_entry_place(entry, &out->place);
}

/* Visitors answer 1 to end the search. */
static int take_usable(const struct bk_index_file *f, SL_UNUSED uint64_t ordinal, const uint8_t *entry, void *ctx)
{
	struct bk_found *out = ctx;
	if (!f->usable[sl__get32(entry + 32)])
		return 0;
	found_at(f, entry, out);
	return 1;
}

int sl__bk_index_find(struct bk_index *x, const struct bk_id *id, struct bk_found *out, struct sl_err *err)
{
	struct bk_found found;
	int rc = 0;
	sl__bk_index_front(x);
	if (x->front != NULL)
		rc = sl__bk_index_file_search(x, x->front, id, take_usable, &found, err);
	for (struct bk_index_file *f = atomic_load_explicit(&x->asked, memory_order_acquire); rc == 0 && f != NULL;
	     f = atomic_load_explicit(&f->next_asked, memory_order_acquire))
		rc = search_file(x, f, id, take_usable, &found, err);
	if (rc == 0)
		return SL_ENOENT;
	if (rc < 0)
		return rc;
	if (out != NULL)
		*out = found;
	return 0;
}

struct places {
	struct bk_found *out;
	size_t n, count;
};

static int take_place(const struct bk_index_file *f, SL_UNUSED uint64_t ordinal, const uint8_t *entry, void *ctx)
{
	struct places *p = ctx;
	struct bk_found found;
	if (!f->usable[sl__get32(entry + 32)] || p->count == p->n)
		return 0;
	found_at(f, entry, &found);
	for (size_t i = 0; i < p->count; i++)
		if (sl__bk_compare_ids(&p->out[i].pack, &found.pack) == 0)
			return 0;
	p->out[p->count++] = found;
	return 0;
}

int sl__bk_index_places(struct bk_index *x, const struct bk_id *id, struct bk_found *out, size_t n, size_t *count,
			struct sl_err *err)
{
	struct places p = {.out = out, .n = n};
	int rc = 0;
	for (struct bk_index_file *f = first_file(x); rc == 0 && f != NULL; f = next_file(f))
		rc = search_file(x, f, id, take_place, &p, err);
	if (rc == 0)
		*count = p.count;
	return rc;
}

/* ---- going through all of it ---- */

uint64_t sl__bk_index_entries(const struct bk_index *x)
{
	return x->entries;
}

size_t sl__bk_index_files(const struct bk_index *x)
{
	return x->files_n;
}

static const struct bk_index_file *file_at(const struct bk_index *x, size_t i)
{
	const struct bk_index_file *f = first_file(x);
	while (f != NULL && i-- > 0)
		f = next_file(f);
	return f;
}

const char *sl__bk_index_name(const struct bk_index *x, size_t i)
{
	const struct bk_index_file *f = file_at(x, i);
	return f != NULL ? f->name : NULL;
}

uint64_t sl__bk_index_file_entries(const struct bk_index *x, size_t i)
{
	const struct bk_index_file *f = file_at(x, i);
	return f != NULL ? f->entries_n : 0;
}

static int read_file(struct bk_index *x, struct bk_index_file *f, struct sl_err *err)
{
	int rc = 0;
	for (uint32_t s = 0; s < f->segments_n && rc == 0; s++) {
		const uint8_t *entries;
		rc = sl__bk_index_segment(x, f, s, &entries, err);
	}
	return rc == SL_ENOENT ? sl_err_set(err, SL_EAGAIN, "%s was removed meanwhile", f->name) : rc;
}

/* The list is made anew of the files that are whole. */
int sl__bk_index_read_all(struct bk_index *x, bk_index_damaged_fn *on_damaged, void *ctx, struct sl_err *err)
{
	int rc = 0;
	struct bk_index_file *next = first_file(x);
	atomic_store(&x->first, NULL);
	atomic_store(&x->asked, NULL);
	x->last = x->last_asked = NULL;
	x->files_n = 0;
	x->entries = 0;
	while (next != NULL) {
		struct bk_index_file *f = next;
		struct sl_err why = SL_ERR_INIT;
		next = next_file(f);
		atomic_store(&f->next, NULL);
		atomic_store(&f->next_asked, NULL);
		int read = rc == 0 ? read_file(x, f, &why) : 0;
		if (read == SL_ECORRUPT && on_damaged != NULL) {
			rc = on_damaged(f->name, &why, ctx);
			sl__bk_index_file_free(&x->env, f);
			continue;
		}
		sl__bk_index_append(x, f);
		if (read != 0 && err != NULL)
			*err = why;
		rc = rc != 0 ? rc : read;
	}
	return rc;
}

static int each_of_segment(const struct bk_index_file *f, uint32_t segment, const uint8_t *entries,
			   bk_index_entry_fn *fn, void *ctx)
{
	uint64_t ordinal = f->first_ordinal + (uint64_t)segment * BK_INDEX_SEGMENT;
	uint32_t n = sl__bk_segment_entries(f->entries_n, segment);
	for (uint32_t i = 0; i < n; i++, entries += BK_INDEX_ENTRY, ordinal++) {
		struct bk_id id;
		struct bk_found found;
		memcpy(id.b, entries, sizeof(id.b));
		found_at(f, entries, &found);
		int rc = fn(ordinal, &id, &found, ctx);
		if (rc != 0)
			return rc;
	}
	return 0;
}

/* damaged NULL: a segment that is damaged ends it; else it is passed over, and *damaged set. */
static int each_of_file(struct bk_index *x, struct bk_index_file *f, bool *damaged, bk_index_entry_fn *fn, void *ctx,
			struct sl_err *err)
{
	for (uint32_t s = 0; s < f->segments_n; s++) {
		const uint8_t *entries;
		struct sl_err why = SL_ERR_INIT;
		int rc = sl__bk_index_segment(x, f, s, &entries, &why);
		if (rc == SL_ECORRUPT && damaged != NULL) {
			*damaged = true;
			continue;
		}
		if (rc == SL_ENOENT)
			rc = sl_err_set(&why, SL_EAGAIN, "%s was removed meanwhile", f->name);
		if (rc != 0 && err != NULL)
			*err = why;
		if (rc == 0)
			rc = each_of_segment(f, s, entries, fn, ctx);
		if (rc != 0)
			return rc;
	}
	return 0;
}

int sl__bk_index_each(struct bk_index *x, bk_index_entry_fn *fn, void *ctx, struct sl_err *err)
{
	for (struct bk_index_file *f = first_file(x); f != NULL; f = next_file(f)) {
		int rc = each_of_file(x, f, NULL, fn, ctx, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

int sl__bk_index_scan(struct bk_index *x, bk_index_entry_fn *fn, void *ctx, bool *damaged, struct sl_err *err)
{
	for (struct bk_index_file *f = first_file(x); f != NULL; f = next_file(f)) {
		int rc = each_of_file(x, f, damaged, fn, ctx, err);
		if (rc != 0)
			return rc;
		sl__bk_index_file_forget(x, f);
	}
	return 0;
}

struct ordinals {
	uint64_t *out;
	size_t n, count;
};

static int take_ordinal(SL_UNUSED const struct bk_index_file *f, uint64_t ordinal, SL_UNUSED const uint8_t *entry,
			void *ctx)
{
	struct ordinals *o = ctx;
	if (o->count < o->n)
		o->out[o->count] = ordinal;
	o->count++;
	return 0;
}

int sl__bk_index_ordinals(struct bk_index *x, const struct bk_id *id, uint64_t *out, size_t n, size_t *count,
			  struct sl_err *err)
{
	struct ordinals o = {.out = out, .n = n};
	int rc = 0;
	for (struct bk_index_file *f = first_file(x); rc == 0 && f != NULL; f = next_file(f))
		rc = search_file(x, f, id, take_ordinal, &o, err);
	if (rc == 0)
		*count = o.count;
	return rc;
}

int sl__bk_index_packs(struct bk_index *x, bk_index_pack_fn *fn, void *ctx)
{
	for (const struct bk_index_file *f = first_file(x); f != NULL; f = next_file(f)) {
		for (uint32_t i = 0; i < f->packs_n; i++) {
			int rc = fn(&f->packs[i], f->usable[i], ctx);
			if (rc != 0)
				return rc;
		}
	}
	return 0;
}
