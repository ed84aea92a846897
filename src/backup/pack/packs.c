/* SPDX-License-Identifier: Apache-2.0 */
/* The packs of a repository: listing them, reading their directories, and loading the index over all of them. */
#include <stdio.h>
#include <stdlib.h>

#include "backup/helpers.h"
#include "backup/repo/repo.h"

#define LOADS_MAX 20                /* a prune may remove index files while they are read */
#define DIRECTORY_GUESS (64u << 10) /* bytes of a pack's end that are read at first */

/* ---- listing ---- */

struct sized_pack {
	struct bk_id id;
	uint64_t size;
};

struct pack_listing {
	struct sl_backup *b;
	char folder[16]; /* "packs/3f" */
	struct sized_pack *all;
	size_t n, cap;
	const struct bk_strays *strays; /* or NULL */
	bool no_memory;
};

static int add_pack(const char *file, const struct sl_driver_stat *stat, void *ctx)
{
	struct pack_listing *s = ctx;
	struct bk_id id;
	if (strlen(s->folder) != 8 || strncmp(file, s->folder + 6, 2) != 0 ||
	    strspn(file, "0123456789abcdef") != BK_HEX_BYTES - 1 || !sl__bk_unhex(file, id.b, sizeof(id.b))) {
		char name[SL_DRIVER_NAME_BYTES];
		(void)snprintf(name, sizeof(name), "%s/%s", s->folder, file);
		if (s->strays != NULL && s->strays->fn != NULL)
			s->strays->fn(name, s->strays->ctx);
		return 0;
	}
	struct sized_pack *grown = sl__grow(&s->b->env, s->all, s->n, &s->cap, sizeof(*grown));
	if (grown == NULL) {
		s->no_memory = true;
		return 1;
	}
	s->all = grown;
	s->all[s->n++] = (struct sized_pack){.id = id, .size = stat->size};
	return 0;
}

static int compare_sized(const void *a, const void *b)
{
	const struct sized_pack *x = a, *y = b;
	return sl__bk_compare_ids(&x->id, &y->id);
}

int sl__bk_list_packs(struct sl_backup *b, struct bk_ids *out, uint64_t **sizes, const struct bk_strays *strays,
		      struct sl_err *err)
{
	struct pack_listing s = {.b = b, .strays = strays};
	struct bk_ids ids = {.n = 0};
	uint64_t *bytes = NULL;
	int rc = 0;
	for (unsigned i = 0; rc == 0 && i <= 256; i++) {
		(void)snprintf(s.folder, sizeof(s.folder), i < 256 ? "packs/%02x" : "packs", i);
		rc = b->driver.ops->list(b->driver.driver, s.folder, add_pack, &s, err);
		if (rc == 0)
			rc = sl__bk_check_stop(b, err);
	}
	if (s.no_memory)
		rc = sl_err_set(err, SL_ENOMEM, "list packs: out of memory");
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

int sl__bk_pack_blocks_add(const struct sl_env *env, struct bk_pack_blocks *p, const struct bk_id *id,
			   const struct bk_place *place)
{
	struct bk_pack_block *grown = sl__grow(env, p->blocks, p->n, &p->cap, sizeof(*grown));
	if (grown == NULL)
		return SL_ENOMEM;
	p->blocks = grown;
	p->blocks[p->n++] = (struct bk_pack_block){.id = *id, .place = *place};
	return 0;
}

struct directory_reading {
	const struct sl_env *env;
	struct bk_pack_blocks *p;
};

static int add_directory_block(const struct bk_id *id, const struct bk_place *place, void *ctx)
{
	const struct directory_reading *r = ctx;
	return sl__bk_pack_blocks_add(r->env, r->p, id, place);
}

int sl__bk_directory_blocks(struct sl_backup *b, struct bk_pack_blocks *p, struct sl_err *err)
{
	struct directory_reading r = {.env = &b->env, .p = p};
	char name[SL_DRIVER_NAME_BYTES];
	uint64_t size = p->size;
	size_t n = (size_t)SL_MIN(size, (uint64_t)DIRECTORY_GUESS);
	sl__bk_pack_name(&p->pack, name);
	if (size > BK_PACK_BYTES_MAX)
		return sl_err_set(err, SL_ECORRUPT, "%s has %llu bytes: too large for a pack", name,
				  (unsigned long long)size);
	for (int attempt = 0;; attempt++) {
		uint8_t *end = sl__alloc(&b->env, n + 1);
		if (end == NULL)
			return sl_err_set(err, SL_ENOMEM, "%s: out of memory", name);
		size_t got = 0;
		int rc = b->driver.ops->get(b->driver.driver, name, size - n, end, n, &got, err);
		if (rc == 0 && got != n)
			rc = sl_err_set(err, SL_ECORRUPT, "%s is shorter than it was listed", name);
		struct bk_pack_end last = {.bytes = end, .n = n, .pack_size = size};
		if (rc == 0)
			rc = sl__bk_directory_read(&b->keys, &last, add_directory_block, &r, err);
		sl__free(&b->env, end);
		if (rc == SL_ENOMEM)
			return sl__no_memory(err, "read the repository");
		if (rc != SL_EAGAIN)
			return rc;
		if (attempt == 1 || last.need <= n || last.need > size)
			return sl_err_set(err, SL_ECORRUPT, "%s: the length of its directory is wrong", name);
		n = last.need;
	}
}

/* ---- the index ---- */

/* What an index is loaded for, and what is known meanwhile. */
struct view {
	struct sl_backup *b;
	struct bk_index *index;           /* of what index files have */
	struct bk_index_builder *builder; /* of what none has */
	struct bk_ids packs;              /* that are there */
	uint64_t *sizes;
	const struct bk_marks *seen; /* NULL: marks do not count */
	bool whole;                  /* index files that are damaged anywhere are left out: all of it is read */
	struct bk_ids cut;           /* of packs, those that are shorter than the index says */
	struct bk_ids indexed;
	bool no_memory;
};

static bool is_usable(const struct bk_id *pack, void *ctx)
{
	const struct view *v = ctx;
	return sl__bk_ids_has(&v->packs, pack) && !sl__bk_ids_has(&v->cut, pack) &&
	       (v->seen == NULL || !sl__bk_marks_have(v->seen, pack));
}

static int skip_damaged(const char *name, const struct sl_err *err, void *ctx)
{
	const struct view *v = ctx;
	sl__log(&v->b->env, SL_LOG_WARN, "backup", "a damaged index is skipped", SL__F_STR("index", name),
		SL__F_STR("reason", err->msg));
	return 0;
}

static int note_indexed(const struct bk_id *pack, SL_UNUSED bool usable, void *ctx)
{
	struct view *v = ctx;
	v->no_memory |= sl__bk_ids_add(&v->b->env, &v->indexed, pack) != 0;
	return v->no_memory;
}

/* The entries of packs that no index file has. A pack that is damaged or was deleted meanwhile is skipped. */
static int take_in_rest(struct view *v, struct sl_err *err)
{
	struct sl_backup *b = v->b;
	for (size_t i = 0; i < v->packs.n; i++) {
		const struct bk_id *pack = &v->packs.ids[i];
		struct bk_pack_blocks p = {.pack = *pack, .size = v->sizes[i]};
		struct sl_err why = SL_ERR_INIT;
		struct sl_driver_stat st;
		char name[SL_DRIVER_NAME_BYTES];
		int rc = 0;
		if (sl__bk_ids_has(&v->indexed, pack) || !is_usable(pack, v))
			continue;
		sl__bk_pack_name(pack, name);
		if (v->seen != NULL) /* what stat has shown the next sync makes durable */
			rc = b->driver.ops->stat(b->driver.driver, name, &st, err);
		if (rc != 0 && rc != SL_ENOENT)
			return rc;
		rc = sl__bk_check_stop(b, err);
		if (rc != 0)
			return rc;
		rc = sl__bk_directory_blocks(b, &p, &why);
		if (rc == 0)
			rc = sl__bk_index_builder_pack(v->builder, pack, p.blocks, p.n, &why);
		sl__free(&b->env, p.blocks);
		if (rc == SL_ECORRUPT)
			sl__log(&b->env, SL_LOG_WARN, "backup", "a damaged pack is skipped", SL__F_STR("pack", name),
				SL__F_STR("reason", why.msg));
		if (rc == 0 || rc == SL_ECORRUPT || rc == SL_ENOENT)
			continue;
		if (why.code == 0)
			return sl_err_set(err, rc, "take in a pack: %s", sl_err_text(rc));
		return sl__bk_result(rc, &why, err);
	}
	return 0;
}

/* Replace the index. With v->whole only files that are right in every segment: what the others say is taken in from
 * the packs. */
static int load_files(struct view *v, struct sl_err *err)
{
	const struct bk_index_from from = {.env = &v->b->env,
					   .keys = &v->b->keys,
					   .driver = &v->b->driver,
					   .usable = is_usable,
					   .on_damaged = skip_damaged,
					   .ctx = v};
	int rc = SL_EAGAIN;
	for (int i = 0; i < LOADS_MAX && rc == SL_EAGAIN; i++) {
		sl__bk_index_free(v->index);
		v->index = NULL;
		rc = sl__bk_index_load(&v->index, &from, err);
		if (!v->whole)
			return rc;
		if (rc == 0)
			rc = sl__bk_index_read_all(v->index, skip_damaged, v, err);
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

/* What is read is compared with its id, and searched elsewhere. A create relies on blocks without reading them: a pack
 * of which the end is missing must not count for it. For that all of the index is read once. */
static int load_for_writing(struct view *v, struct sl_err *err)
{
	int rc = SL_EAGAIN;
	for (int i = 0; i < LOADS_MAX && rc == SL_EAGAIN; i++) {
		rc = load_files(v, err);
		if (rc == 0)
			rc = sl__bk_index_scan(v->index, note_cut, v, &v->whole, err);
		if (rc == SL_EAGAIN)
			v->whole = false;
	}
	if (v->no_memory)
		return sl_err_set(err, SL_ENOMEM, "load the index: out of memory");
	sl__bk_ids_sort(&v->cut);
	if (rc != 0 || (v->cut.n == 0 && !v->whole))
		return rc;
	for (size_t i = 0; i < v->cut.n; i++) {
		char name[SL_DRIVER_NAME_BYTES];
		sl__bk_pack_name(&v->cut.ids[i], name);
		sl__log(&v->b->env, SL_LOG_WARN, "backup",
			"a pack is shorter than the index says and is not used: run a check", SL__F_STR("pack", name));
	}
	return load_files(v, err); /* the first load has them as usable */
}

static int load_view(struct view *v, struct sl_err *err)
{
	struct sl_backup *b = v->b;
	const sl_driver *d = &b->driver;
	int rc = sl__bk_index_builder_new(&v->builder, &b->env, &b->keys, err);
	if (rc == 0)
		rc = sl__bk_list_packs(b, &v->packs, &v->sizes, NULL, err);
	if (rc == 0)
		rc = v->seen != NULL ? load_for_writing(v, err) : load_files(v, err);
	if (rc != 0)
		return rc;

	/* What no index file has is taken in from the packs. */
	rc = sl__bk_index_packs(v->index, note_indexed, v);
	if (v->no_memory)
		return sl_err_set(err, SL_ENOMEM, "load the index: out of memory");
	if (rc != 0)
		return rc;
	sl__bk_ids_sort(&v->indexed);
	rc = take_in_rest(v, err);
	if (rc != 0 || sl__bk_index_builder_entries(v->builder) == 0)
		return rc;
	if (v->seen == NULL)
		return sl__bk_index_take_in(v->index, v->builder, err);

	/* F3: for a create it is durable, and in a durable index, before anything relies on it. */
	rc = d->ops->sync(d->driver, err);
	if (rc == 0)
		rc = sl__bk_index_builder_put(v->builder, d, NULL, err);
	if (rc == 0)
		rc = load_files(v, err);
	return rc;
}

static int open_index(struct sl_backup *b, const struct bk_marks *seen, bool whole, struct bk_index **out,
		      struct sl_err *err)
{
	struct view v = {.b = b, .seen = seen, .whole = whole};
	int rc = load_view(&v, err);
	sl__bk_index_builder_free(v.builder);
	sl__bk_ids_fini(&b->env, &v.packs);
	sl__bk_ids_fini(&b->env, &v.cut);
	sl__bk_ids_fini(&b->env, &v.indexed);
	sl__free(&b->env, v.sizes);
	if (rc == 0)
		*out = v.index;
	else
		sl__bk_index_free(v.index);
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
