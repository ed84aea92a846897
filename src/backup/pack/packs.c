/* SPDX-License-Identifier: Apache-2.0 */
/* Which packs are there, what is in them, and the index over all of them. */
#include <stdio.h>
#include <stdlib.h>

#include "backup/repo/broken.h"
#include "backup/repo/repo.h"

#define LOADS_MAX 20                /* a prune may remove index files while they are read */
#define DIRECTORY_GUESS (64u << 10) /* bytes of a pack's end that are read at first */

/* ---- listing ---- */

struct sized {
	struct bk_id id;
	uint64_t size;
};

struct listing {
	struct sl_backup *b;
	char folder[16]; /* "packs/3f" */
	struct sized *all;
	size_t n, cap;
	void (*on_stray)(const char *name, void *ctx);
	void *ctx;
	bool no_memory;
};

static void tell_stray(const struct listing *s, const char *file)
{
	char name[SL_DRIVER_NAME_BYTES];
	(void)snprintf(name, sizeof(name), "%s/%s", s->folder, file);
	if (s->on_stray != NULL)
		s->on_stray(name, s->ctx);
}

static int add_pack(const char *file, const struct sl_driver_stat *stat, void *ctx)
{
	struct listing *s = ctx;
	struct bk_id id;
	if (strlen(s->folder) != 8 || strncmp(file, s->folder + 6, 2) != 0 ||
	    strspn(file, "0123456789abcdef") != BK_HEX_BYTES - 1 || !sl__bk_unhex(file, id.b, sizeof(id.b))) {
		tell_stray(s, file);
		return 0;
	}
	if (s->n == s->cap) {
		size_t cap = s->cap != 0 ? 2 * s->cap : 256;
		struct sized *bigger = sl__realloc(&s->b->env, s->all, cap * sizeof(*bigger));
		if (bigger == NULL) {
			s->no_memory = true;
			return 1;
		}
		s->all = bigger;
		s->cap = cap;
	}
	s->all[s->n++] = (struct sized){.id = id, .size = stat->size};
	return 0;
}

static int compare_sized(const void *a, const void *b)
{
	const struct sized *x = a, *y = b;
	return sl__bk_compare_ids(&x->id, &y->id);
}

static int list_all(struct listing *s, struct sl_err *err)
{
	int rc = 0;
	for (unsigned i = 0; rc == 0 && i <= 256; i++) {
		(void)snprintf(s->folder, sizeof(s->folder), i < 256 ? "packs/%02x" : "packs", i);
		rc = s->b->driver.ops->list(s->b->driver.driver, s->folder, add_pack, s, err);
		if (rc == 0)
			rc = sl__bk_check_stop(s->b, err);
	}
	return s->no_memory ? sl_err_set(err, SL_ENOMEM, "list packs: out of memory") : rc;
}

int sl__bk_list_packs(struct sl_backup *b, struct bk_ids *out, uint64_t **sizes,
		      void (*on_stray)(const char *name, void *ctx), void *ctx, struct sl_err *err)
{
	struct listing s = {.b = b, .on_stray = on_stray, .ctx = ctx};
	struct bk_ids ids = {.n = 0};
	uint64_t *bytes = NULL;
	int rc = list_all(&s, err);
	if (rc == 0) {
		ids.ids = sl__calloc(&b->env, s.n, sizeof(*ids.ids));
		bytes = sl__calloc(&b->env, s.n, sizeof(*bytes));
		ids.n = ids.cap = s.n;
		if (ids.ids == NULL || bytes == NULL)
			rc = sl_err_set(err, SL_ENOMEM, "list packs: out of memory");
	}
	if (rc == 0 && s.n != 0)
		qsort(s.all, s.n, sizeof(*s.all), compare_sized);
	for (size_t i = 0; rc == 0 && i < s.n; i++) {
		ids.ids[i] = s.all[i].id;
		bytes[i] = s.all[i].size;
	}
	sl__free(&b->env, s.all);
	if (rc != 0 || sizes == NULL)
		sl__free(&b->env, bytes);
	if (rc != 0) {
		sl__bk_ids_fini(&b->env, &ids);
		return rc;
	}
	*out = ids;
	if (sizes != NULL)
		*sizes = bytes;
	return 0;
}

/* ---- directories ---- */

static int read_end(struct sl_backup *b, const char *name, uint64_t size, uint8_t *bytes, size_t n, struct sl_err *err)
{
	size_t got = 0;
	int rc = b->driver.ops->get(b->driver.driver, name, size - n, bytes, n, &got, err);
	return rc == 0 && got != n ? sl_err_set(err, SL_ECORRUPT, "%s is shorter than it was listed", name) : rc;
}

int sl__bk_read_directory(struct sl_backup *b, const struct bk_id *pack, uint64_t size, bk_directory_fn *fn, void *ctx,
			  struct sl_err *err)
{
	char name[SL_DRIVER_NAME_BYTES];
	size_t n = (size_t)SL_MIN(size, (uint64_t)DIRECTORY_GUESS), need = 0;
	sl__bk_pack_name(pack, name);
	if (size > BK_PACK_BYTES_MAX)
		return sl_err_set(err, SL_ECORRUPT, "%s has %llu bytes: no pack has so many", name,
				  (unsigned long long)size);
	for (int attempt = 0;; attempt++) {
		uint8_t *end = sl__alloc(&b->env, n + 1);
		if (end == NULL)
			return sl_err_set(err, SL_ENOMEM, "%s: out of memory", name);
		int rc = read_end(b, name, size, end, n, err);
		if (rc == 0)
			rc = sl__bk_directory_read(&b->keys, end, n, size, &need, fn, ctx, err);
		sl__free(&b->env, end);
		if (rc != SL_EAGAIN)
			return rc;
		if (attempt == 1 || need <= n || need > size)
			return sl_err_set(err, SL_ECORRUPT, "%s: the length of its directory is wrong", name);
		n = need;
	}
}

/* ---- the index ---- */

struct view {
	struct sl_backup *b;
	struct bk_ids packs; /* that are there */
	uint64_t *sizes;
	const struct bk_marks *seen; /* NULL: none counts */
	bool whole;                  /* index files that are damaged anywhere are left out: all of it is read */
	struct bk_ids cut;           /* of packs, those that are shorter than the index says */
	struct bk_ids indexed;
	bool no_memory;
};

static bool is_usable(const struct bk_id *pack, void *ctx)
{
	const struct view *v = ctx;
	return sl__bk_ids_has(&v->packs, pack) && !sl__bk_ids_has(&v->cut, pack) &&
	       (v->seen == NULL || BK_BROKEN(BK_BREAK_USE_CONDEMNED) || !sl__bk_marks_have(v->seen, pack));
}

static int pass_over(const char *name, const struct sl_err *err, void *ctx)
{
	const struct view *v = ctx;
	sl__log(&v->b->env, SL_LOG_WARN, "backup", "a damaged index is passed over", SL__F_STR("index", name),
		SL__F_STR("reason", err->msg));
	return 0;
}

static int note_indexed(const struct bk_id *pack, SL_UNUSED bool usable, void *ctx)
{
	struct view *v = ctx;
	v->no_memory |= sl__bk_ids_add(&v->b->env, &v->indexed, pack) != 0;
	return v->no_memory;
}

struct gathered {
	const struct sl_env *env;
	struct bk_pack_block *blocks;
	size_t n, cap;
};

static int gather(const struct bk_id *id, const struct bk_place *place, void *ctx)
{
	struct gathered *g = ctx;
	if (g->n == g->cap) {
		size_t cap = g->cap != 0 ? 2 * g->cap : 256;
		struct bk_pack_block *bigger = sl__realloc(g->env, g->blocks, cap * sizeof(*bigger));
		if (bigger == NULL)
			return SL_ENOMEM;
		g->blocks = bigger;
		g->cap = cap;
	}
	g->blocks[g->n++] = (struct bk_pack_block){.id = *id, .place = *place};
	return 0;
}

/* A pack that is damaged or was deleted meanwhile has nothing to give. */
static int take_in_pack(struct view *v, size_t i, struct bk_index_builder *builder, struct sl_err *err)
{
	struct gathered g = {.env = &v->b->env};
	struct sl_err why = SL_ERR_INIT;
	char name[SL_DRIVER_NAME_BYTES];
	int rc = sl__bk_read_directory(v->b, &v->packs.ids[i], v->sizes[i], gather, &g, &why);
	if (rc == 0)
		rc = sl__bk_index_builder_pack(builder, &v->packs.ids[i], g.blocks, g.n, &why);
	sl__free(&v->b->env, g.blocks);
	if (rc == SL_ECORRUPT) {
		sl__bk_pack_name(&v->packs.ids[i], name);
		sl__log(&v->b->env, SL_LOG_WARN, "backup", "a damaged pack is passed over", SL__F_STR("pack", name),
			SL__F_STR("reason", why.msg));
	}
	if (rc == SL_ECORRUPT || rc == SL_ENOENT)
		return 0;
	if (rc != 0 && why.code == 0)
		return sl_err_set(err, rc, "take in a pack: %s", sl_err_text(rc));
	if (rc != 0 && err != NULL)
		*err = why;
	return rc;
}

/* What is in packs that no index file has. */
static int take_in_rest(struct view *v, struct bk_index_builder *builder, bool durable, struct sl_err *err)
{
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < v->packs.n; i++) {
		struct sl_driver_stat st;
		char name[SL_DRIVER_NAME_BYTES];
		if (sl__bk_ids_has(&v->indexed, &v->packs.ids[i]) || !is_usable(&v->packs.ids[i], v))
			continue;
		sl__bk_pack_name(&v->packs.ids[i], name);
		if (durable) /* what stat has shown the next sync makes durable */
			rc = v->b->driver.ops->stat(v->b->driver.driver, name, &st, err);
		if (rc == SL_ENOENT)
			rc = 0;
		if (rc == 0)
			rc = sl__bk_check_stop(v->b, err);
		if (rc == 0)
			rc = take_in_pack(v, i, builder, err);
	}
	return rc;
}

static int load_files(struct view *v, struct bk_index **out, struct sl_err *err)
{
	return sl__bk_index_load(out, &v->b->env, &v->b->keys, &v->b->driver, is_usable, pass_over, v, err);
}

/* Only files that are right in every segment: what the others say is taken in from the packs. */
static int load_whole_files(struct view *v, struct bk_index **out, struct sl_err *err)
{
	int rc = SL_EAGAIN;
	for (int i = 0; i < LOADS_MAX && rc == SL_EAGAIN; i++) {
		sl__bk_index_free(*out);
		*out = NULL;
		rc = load_files(v, out, err);
		if (rc == 0)
			rc = sl__bk_index_read_all(*out, pass_over, v, err);
	}
	return rc;
}

static int note_cut(SL_UNUSED uint64_t ordinal, SL_UNUSED const struct bk_id *id, const struct bk_found *found,
		    void *ctx)
{
	struct view *v = ctx;
	const struct bk_id *pack = sl__bk_ids_find(&v->packs, &found->pack);
	if (pack != NULL && sl__bk_place_end(&found->place) > v->sizes[pack - v->packs.ids])
		v->no_memory |= sl__bk_ids_add(&v->b->env, &v->cut, pack) != 0;
	return v->no_memory ? SL_ENOMEM : 0;
}

static void tell_cut(const struct view *v)
{
	for (size_t i = 0; i < v->cut.n; i++) {
		char name[SL_DRIVER_NAME_BYTES];
		sl__bk_pack_name(&v->cut.ids[i], name);
		sl__log(&v->b->env, SL_LOG_WARN, "backup",
			"a pack is shorter than the index says and is not counted on: run a check",
			SL__F_STR("pack", name));
	}
}

static int load_again(struct view *v, struct bk_index **out, struct sl_err *err)
{
	return v->whole ? load_whole_files(v, out, err) : load_files(v, out, err);
}

/* What somebody reads is compared with its id, and looked for elsewhere. What a create counts on it does not read: a
 * pack of which the end is missing must not be there for it. For that all of the index is read once. */
static int load_for_writing(struct view *v, struct bk_index **x, struct sl_err *err)
{
	int rc = SL_EAGAIN;
	for (int i = 0; i < LOADS_MAX && rc == SL_EAGAIN; i++) {
		sl__bk_index_free(*x);
		*x = NULL;
		rc = load_files(v, x, err);
		if (rc == 0)
			rc = sl__bk_index_scan(*x, note_cut, v, &v->whole, err);
	}
	if (v->no_memory)
		return sl_err_set(err, SL_ENOMEM, "load the index: out of memory");
	sl__bk_ids_sort(&v->cut);
	if (rc != 0 || (v->cut.n == 0 && !v->whole))
		return rc;
	tell_cut(v);
	sl__bk_index_free(*x); /* it has them as usable */
	*x = NULL;
	return load_again(v, x, err);
}

static int load(struct view *v, struct bk_index **out, struct sl_err *err)
{
	int rc = v->seen != NULL ? load_for_writing(v, out, err) : load_again(v, out, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_index_packs(*out, note_indexed, v);
	if (v->no_memory)
		rc = sl_err_set(err, SL_ENOMEM, "load the index: out of memory");
	sl__bk_ids_sort(&v->indexed);
	return rc; /* open_index frees what is loaded */
}

static void fini_view(struct view *v)
{
	sl__bk_ids_fini(&v->b->env, &v->packs);
	sl__bk_ids_fini(&v->b->env, &v->cut);
	sl__bk_ids_fini(&v->b->env, &v->indexed);
	sl__free(&v->b->env, v->sizes);
}

/* F3: what is taken in for a create is durable, and in a durable index, before anybody counts on it. */
static int keep_rest(struct view *v, struct bk_index_builder *builder, struct sl_err *err)
{
	if (sl__bk_index_builder_entries(builder) == 0)
		return 0;
	int rc = v->b->driver.ops->sync(v->b->driver.driver, err);
	return rc == 0 ? sl__bk_index_builder_put(builder, &v->b->driver, NULL, NULL, NULL, err) : rc;
}

/* The builder holds what no file has. For a create it is put, and everything loaded again. */
static int complete(struct view *v, struct bk_index **x, struct bk_index_builder *builder, bool durable,
		    struct sl_err *err)
{
	int rc = take_in_rest(v, builder, durable, err);
	if (rc != 0 || sl__bk_index_builder_entries(builder) == 0)
		return rc;
	if (!durable)
		return sl__bk_index_take_in(*x, builder, err);
	rc = keep_rest(v, builder, err);
	if (rc != 0)
		return rc;
	sl__bk_index_free(*x);
	*x = NULL;
	return load_again(v, x, err);
}

static int open_index(struct sl_backup *b, const struct bk_marks *seen, bool whole, struct bk_index **out,
		      struct sl_err *err)
{
	struct view v = {.b = b, .seen = seen, .whole = whole};
	struct bk_index *x = NULL;
	struct bk_index_builder *builder = NULL;
	int rc = sl__bk_list_packs(b, &v.packs, &v.sizes, NULL, NULL, err);
	if (rc == 0)
		rc = load(&v, &x, err);
	if (rc == 0)
		rc = sl__bk_index_builder_new(&builder, &b->env, &b->keys, err);
	if (rc == 0)
		rc = complete(&v, &x, builder, seen != NULL, err);
	sl__bk_index_builder_free(builder);
	fini_view(&v);
	if (rc == 0)
		*out = x;
	else
		sl__bk_index_free(x);
	return rc;
}

int sl__bk_index_for_reading(struct sl_backup *b, struct bk_index **out, struct sl_err *err)
{
	return open_index(b, NULL, false, out, err);
}

int sl__bk_index_around_damage(struct sl_backup *b, struct bk_index **out, struct sl_err *err)
{
	return open_index(b, NULL, true, out, err);
}

int sl__bk_index_for_writing(struct sl_backup *b, const struct bk_marks *seen, struct bk_index **out,
			     struct sl_err *err)
{
	return open_index(b, seen, false, out, err);
}
