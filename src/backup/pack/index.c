/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All index files of a repository: a list that only grows, so that look-ups need no lock for it.
 *
 * A prune may merge files and remove the old ones during look-ups. A segment that is not there any more when it is first
 * needed leads to another listing: files that came since are added, and the one that is gone is skipped where it was not
 * read. Packs of later files are usable when an earlier file had them so; others came after us.
 *
 * The front: every create leaves an index file, most of them small. Searching hundreds of files for each block would
 * cost more than storing it. So when there are many, the first look-up gathers what may be used of the small ones into
 * one sorted file in memory, and look-ups search that and the large ones. Each gathered file frees its own memory, so
 * that an entry is in memory once. A file that is damaged or gone is not gathered: look-ups search it as before, and
 * report what is wrong with it when they need that part of it. Without memory or a temporary file there is no front:
 * look-ups are slow then, and as correct.
 */
#include "backup/pack/index_build.h"

#include <limits.h>
#include <stdlib.h>

#include "backup/helpers.h"

#define LISTINGS_MAX 100        /* each one because a prune removed a file meanwhile */
#define FRONT_FILES 8u          /* up to this many are searched one by one */
#define FRONT_SMALL BK_SORT_RUN /* entries of a small file, at most */

static struct bk_index_file *first_file(const struct bk_index *x)
{
	return atomic_load_explicit(&x->first, memory_order_acquire);
}

static struct bk_index_file *next_file(const struct bk_index_file *f)
{
	return atomic_load_explicit(&f->next, memory_order_acquire);
}

/* One more that find searches, at the end. */
static void add_asked(struct bk_index *x, struct bk_index_file *f)
{
	atomic_store_explicit(x->last_asked != NULL ? &x->last_asked->next_asked : &x->asked, f, memory_order_release);
	x->last_asked = f;
}

void sl__bk_index_append(struct bk_index *x, struct bk_index_file *f)
{
	f->first_ordinal = x->entries;
	x->entries += f->n_entries;
	x->n_files++;
	atomic_store_explicit(x->last != NULL ? &x->last->next : &x->first, f, memory_order_release);
	x->last = f;
	if (!f->gathered)
		add_asked(x, f);
}

/* What decides about the packs of a file, and about a damaged file. */
struct index_loading {
	struct bk_index *x;
	bk_pack_usable_fn *usable;
	bk_index_damaged_fn *on_damaged; /* NULL: damage ends the loading */
	void *ctx;
	struct sl_err *err;
	/* one listing; files are opened after it, not from inside of the driver */
	struct listed_index {
		struct bk_id id;
		uint64_t size;
	} * listed;
	size_t n_listed, cap_listed;
	bool vanished; /* one that was listed was not there */
};

static int keep_listed(const char *name, const struct sl_driver_stat *stat, void *ctx)
{
	struct index_loading *l = ctx;
	struct bk_id id;
	if (!sl__bk_unhex(name, id.b, sizeof(id.b)))
		return 0; /* check reports strays */
	struct listed_index *listed = sl__grow(&l->x->env, l->listed, l->n_listed, &l->cap_listed, sizeof(*listed));
	if (listed == NULL)
		return sl__no_memory(l->err, "the index");
	l->listed = listed;
	l->listed[l->n_listed++] = (struct listed_index){.id = id, .size = stat->size};
	return 0;
}

/* List and load what is not loaded yet, until nothing of a listing has vanished. */
static int load_listed(struct index_loading *l)
{
	const sl_driver *d = l->x->driver;
	bool again = first_file(l->x) != NULL; /* something may be loaded already */
	int rc = 0;
	l->vanished = true;
	for (int i = 0; rc == 0 && l->vanished && i < LISTINGS_MAX; i++, again = true) {
		l->vanished = false;
		l->n_listed = 0;
		rc = d->ops->list(d->driver, "index", keep_listed, l, l->err);
		for (size_t k = 0; rc == 0 && k < l->n_listed; k++) {
			char name[SL_DRIVER_NAME_BYTES] = "index/";
			sl__bk_hex(l->listed[k].id.b, BK_ID_BYTES, name + strlen(name));
			const struct bk_index_file *f = again ? first_file(l->x) : NULL;
			while (f != NULL && strcmp(f->name, name) != 0)
				f = next_file(f);
			if (f != NULL)
				continue;

			struct bk_index_file *opened;
			struct sl_err why = SL_ERR_INIT;
			rc = sl__bk_index_file_open(&opened, l->x, name, l->listed[k].size, &why);
			if (rc == SL_ENOENT) {
				l->vanished = true;
				rc = 0;
			} else if (rc == SL_ECORRUPT && l->on_damaged != NULL) {
				rc = l->on_damaged(name, &why, l->ctx);
			} else if (rc != 0) {
				rc = sl__bk_result(rc, &why, l->err);
			} else {
				for (uint32_t p = 0; p < opened->n_packs; p++)
					opened->usable[p] = l->usable == NULL || l->usable(&opened->packs[p], l->ctx);
				sl__bk_index_append(l->x, opened);
			}
		}
	}
	sl__free(&l->x->env, l->listed);
	l->listed = NULL;
	if (rc == 0 && l->vanished)
		rc = sl_err_set(l->err, SL_EAGAIN, "files of the index are removed while they are listed; try again");
	return rc;
}

int sl__bk_index_load(struct bk_index **out, const struct bk_index_from *from, struct sl_err *err)
{
	struct bk_index *x = sl__calloc(from->env, 1, sizeof(*x));
	if (x == NULL)
		return sl__no_memory(err, "the index");
	x->env = *from->env;
	x->keys = from->keys;
	x->driver = from->driver;
	sl__mutex_init(&x->refreshing);
	for (size_t i = 0; i < BK_INDEX_LOCKS; i++)
		sl__mutex_init(&x->reading[i]);
	struct index_loading l = {
		.x = x, .usable = from->usable, .on_damaged = from->on_damaged, .ctx = from->ctx, .err = err};
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

struct known_packs {
	struct bk_id *ids; /* sorted: the packs that are usable */
	size_t n;
};

static bool usable_before(const struct bk_id *pack, void *ctx)
{
	const struct known_packs *k = ctx;
	return k->n != 0 && bsearch(pack, k->ids, k->n, sizeof(*k->ids), sl__bk_compare_ids) != NULL;
}

/* The object of f is gone: add what came since. On 0 its unread segments are skipped. */
static int refresh(struct bk_index *x, struct bk_index_file *gone, struct sl_err *err)
{
	struct known_packs k = {.ids = NULL};
	struct index_loading l = {.x = x, .usable = usable_before, .ctx = &k, .err = err};
	size_t all = 1; /* never an allocation of nothing */
	int rc = 0;
	sl__lock(&x->refreshing);
	if (!atomic_load(&gone->gone)) {
		for (const struct bk_index_file *f = first_file(x); f != NULL; f = next_file(f))
			all += f->n_packs;
		k.ids = sl__calloc(&x->env, all, sizeof(*k.ids));
		if (k.ids == NULL)
			rc = sl__no_memory(err, "the index");
		for (const struct bk_index_file *f = first_file(x); rc == 0 && f != NULL; f = next_file(f))
			for (uint32_t i = 0; i < f->n_packs; i++)
				if (f->usable[i])
					k.ids[k.n++] = f->packs[i];
		if (rc == 0) {
			qsort(k.ids, k.n, sizeof(*k.ids), sl__bk_compare_ids);
			rc = load_listed(&l);
		}
		if (rc == 0)
			atomic_store(&gone->gone, true);
	}
	sl__unlock(&x->refreshing);
	sl__free(&x->env, k.ids);
	return rc;
}

/* ---- the front ---- */

/* From now on find searches only what is not gathered. No look-up runs meanwhile: all wait for the front. */
static void make_front(struct bk_index *x)
{
	struct bk_index_builder *b;
	if (sl__bk_index_builder_new(&b, &x->env, x->keys, NULL) != 0)
		return;
	int rc = 0;
	for (struct bk_index_file *f = first_file(x); rc == 0 && f != NULL; f = next_file(f)) {
		/* What may be used of a small file, into the builder. One that cannot be read is left out. */
		const uint8_t *entries;
		bool readable = f->n_entries <= FRONT_SMALL;
		for (uint32_t s = 0; s < f->n_segments && readable; s++)
			readable = sl__bk_index_segment(x, f, s, &entries, NULL) == 0;
		if (!readable)
			continue;
		uint32_t *numbers = sl__calloc(&x->env, f->n_packs, sizeof(*numbers));
		rc = numbers != NULL ? 0 : SL_ENOMEM;
		for (uint32_t i = 0; rc == 0 && i < f->n_packs; i++) {
			numbers[i] = UINT32_MAX;
			if (f->usable[i])
				rc = sl__bk_index_builder_number(b, &f->packs[i], &numbers[i], NULL);
		}
		if (rc == 0)
			rc = sl__bk_index_builder_file(b, x, f, numbers, NULL);
		sl__free(&x->env, numbers);
		if (rc == 0) {
			f->gathered = true;
			sl__bk_index_file_forget(x, f);
		}
	}
	if (rc == 0 && sl__bk_index_builder_entries(b) != 0)
		rc = sl__bk_index_file_make(&x->front, &x->env, b, NULL);
	sl__bk_index_builder_free(b);
	atomic_store(&x->asked, NULL);
	x->last_asked = NULL;
	for (struct bk_index_file *f = first_file(x); f != NULL; f = next_file(f)) {
		f->gathered = f->gathered && rc == 0;
		atomic_store(&f->next_asked, NULL);
		if (!f->gathered)
			add_asked(x, f);
	}
}

/* ---- look-ups ---- */

/* The entries of this id in f. When its object is gone, what came since is at the end of both lists afterwards. */
static int search_file(struct bk_index *x, struct bk_index_file *f, const struct bk_index_search *search,
		       struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	int rc = sl__bk_index_file_search(x, f, search, &why);
	if (rc == SL_ENOENT)
		rc = refresh(x, f, &why);
	if (rc < 0 && err != NULL)
		*err = why;
	return rc;
}

static void read_found(const struct bk_index_file *f, const uint8_t *entry, struct bk_found *out)
{
	out->pack = f->packs[sl__get32(entry + 32)];
	sl__bk_entry_place(entry, &out->place);
}

/* Visitors return 1 to end the search. */
static int take_usable(const struct bk_index_file *f, SL_UNUSED uint64_t ordinal, const uint8_t *entry, void *ctx)
{
	struct bk_found *out = ctx;
	if (!f->usable[sl__get32(entry + 32)])
		return 0;
	read_found(f, entry, out);
	return 1;
}

int sl__bk_index_find(struct bk_index *x, const struct bk_id *id, struct bk_found *out, struct sl_err *err)
{
	struct bk_found found;
	const struct bk_index_search search = {.id = id, .fn = take_usable, .ctx = &found};
	int rc = 0;
	if (!atomic_load_explicit(&x->front_made, memory_order_acquire)) {
		sl__lock(&x->refreshing);
		if (!atomic_load_explicit(&x->front_made, memory_order_relaxed)) {
			if (x->n_files > FRONT_FILES)
				make_front(x);
			atomic_store_explicit(&x->front_made, true, memory_order_release);
		}
		sl__unlock(&x->refreshing);
	}
	if (x->front != NULL)
		rc = sl__bk_index_file_search(x, x->front, &search, err);
	for (struct bk_index_file *f = atomic_load_explicit(&x->asked, memory_order_acquire); rc == 0 && f != NULL;
	     f = atomic_load_explicit(&f->next_asked, memory_order_acquire))
		rc = search_file(x, f, &search, err);
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
	read_found(f, entry, &found);
	for (size_t i = 0; i < p->count; i++)
		if (sl__bk_compare_ids(&p->out[i].pack, &found.pack) == 0)
			return 0;
	p->out[p->count++] = found;
	return 0;
}

int sl__bk_index_places(struct bk_index *x, const struct bk_id *id, struct bk_found *out, size_t n, struct sl_err *err)
{
	struct places p = {.out = out, .n = n};
	const struct bk_index_search search = {.id = id, .fn = take_place, .ctx = &p};
	for (struct bk_index_file *f = first_file(x); f != NULL; f = next_file(f)) {
		int rc = search_file(x, f, &search, err);
		if (rc != 0)
			return rc;
	}
	return (int)p.count;
}

/* ---- going through all of it ---- */

uint64_t sl__bk_index_entries(const struct bk_index *x)
{
	return x->entries;
}

size_t sl__bk_index_files(const struct bk_index *x)
{
	return x->n_files;
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
	return f != NULL ? f->n_entries : 0;
}

struct entry_visit {
	bk_index_entry_fn *fn;
	void *ctx;
	bool *damaged;
};

/* The list is made anew of the files that are not damaged. */
int sl__bk_index_read_all(struct bk_index *x, bk_index_damaged_fn *on_damaged, void *ctx, struct sl_err *err)
{
	int rc = 0;
	struct bk_index_file *next = first_file(x);
	atomic_store(&x->first, NULL);
	atomic_store(&x->asked, NULL);
	x->last = x->last_asked = NULL;
	x->n_files = 0;
	x->entries = 0;
	while (next != NULL) {
		struct bk_index_file *f = next;
		struct sl_err why = SL_ERR_INIT;
		next = next_file(f);
		atomic_store(&f->next, NULL);
		atomic_store(&f->next_asked, NULL);
		int read = 0;
		const uint8_t *entries;
		for (uint32_t i = 0; i < f->n_segments && rc == 0 && read == 0; i++)
			read = sl__bk_index_segment(x, f, i, &entries, &why);
		if (read == SL_ENOENT)
			read = sl_err_set(&why, SL_EAGAIN, "%s was removed meanwhile", f->name);
		if (read == SL_ECORRUPT && on_damaged != NULL) {
			rc = on_damaged(f->name, &why, ctx);
			sl__bk_index_file_free(&x->env, f);
			continue;
		}
		sl__bk_index_append(x, f);
		if (read != 0 && err != NULL)
			*err = why;
		if (rc == 0)
			rc = read;
	}
	return rc;
}

/* Every entry of a file. damaged NULL: a damaged segment ends it; else it is skipped, and *damaged set. */
static int each_of_file(struct bk_index *x, struct bk_index_file *f, const struct entry_visit *v, struct sl_err *err)
{
	for (uint32_t s = 0; s < f->n_segments; s++) {
		const uint8_t *e;
		struct sl_err why = SL_ERR_INIT;
		int rc = sl__bk_index_segment(x, f, s, &e, &why);
		if (rc == SL_ECORRUPT && v->damaged != NULL) {
			*v->damaged = true;
			continue;
		}
		if (rc == SL_ENOENT)
			rc = sl_err_set(&why, SL_EAGAIN, "%s was removed meanwhile", f->name);
		if (rc != 0)
			return sl__bk_result(rc, &why, err);
		uint64_t ordinal = f->first_ordinal + (uint64_t)s * BK_INDEX_SEGMENT;
		uint32_t n = sl__bk_segment_entries(f->n_entries, s);
		for (uint32_t i = 0; rc == 0 && i < n; i++, e += BK_INDEX_ENTRY, ordinal++) {
			struct bk_id id;
			struct bk_found found;
			memcpy(id.b, e, sizeof(id.b));
			read_found(f, e, &found);
			rc = v->fn(ordinal, &id, &found, v->ctx);
		}
		if (rc != 0)
			return rc;
	}
	return 0;
}

int sl__bk_index_each(struct bk_index *x, bk_index_entry_fn *fn, void *ctx, struct sl_err *err)
{
	const struct entry_visit v = {.fn = fn, .ctx = ctx};
	int rc = 0;
	for (struct bk_index_file *f = first_file(x); rc == 0 && f != NULL; f = next_file(f))
		rc = each_of_file(x, f, &v, err);
	return rc;
}

int sl__bk_index_scan(struct bk_index *x, bk_index_entry_fn *fn, void *ctx, bool *damaged, struct sl_err *err)
{
	const struct entry_visit v = {.fn = fn, .ctx = ctx, .damaged = damaged};
	for (struct bk_index_file *f = first_file(x); f != NULL; f = next_file(f)) {
		int rc = each_of_file(x, f, &v, err);
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

int sl__bk_index_ordinals(struct bk_index *x, const struct bk_id *id, uint64_t *out, size_t n, struct sl_err *err)
{
	struct ordinals o = {.out = out, .n = n};
	const struct bk_index_search search = {.id = id, .fn = take_ordinal, .ctx = &o};
	for (struct bk_index_file *f = first_file(x); f != NULL; f = next_file(f)) {
		int rc = search_file(x, f, &search, err);
		if (rc != 0)
			return rc;
	}
	return (int)SL_MIN(o.count, (size_t)INT_MAX);
}

int sl__bk_index_packs(struct bk_index *x, bk_index_pack_fn *fn, void *ctx)
{
	for (const struct bk_index_file *f = first_file(x); f != NULL; f = next_file(f)) {
		for (uint32_t i = 0; i < f->n_packs; i++) {
			int rc = fn(&f->packs[i], f->usable[i], ctx);
			if (rc != 0)
				return rc;
		}
	}
	return 0;
}
