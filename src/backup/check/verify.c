/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All packs of a view on opts.threads threads: each takes the next pack, reads it from front to back once, and judges
 * it. What the index knows of a pack whose directory cannot be read is looked at afterwards, on one thread.
 */
#include <stdlib.h>

#include "backup/check/check.h"

struct worker {
	struct bk_verify *v;
	struct bk_scanner *scanner;
	uint32_t pack;     /* at hand */
	bool any_bad;      /* a block of it */
	struct sl_err why; /* the first one's reason */
};

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

uint64_t sl__bk_place_sum(const struct bk_id *id, const struct bk_place *p)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < BK_ID_BYTES; i += 8)
		sum = mix(sum ^ sl__get64(id->b + i));
	sum = mix(sum ^ p->frame_offset ^ (uint64_t)p->frame_stored << 32);
	sum = mix(sum ^ p->frame_raw ^ (uint64_t)p->offset << 32);
	return mix(sum ^ p->length ^ (uint64_t)p->zstd << 32);
}

/* ---- one pack ---- */

static int keep_bad(struct bk_verify *v, uint32_t pack, const struct bk_id *id) SL_REQUIRES(v->mu)
{
	if (v->bad_n == v->bad_cap) {
		size_t cap = v->bad_cap == 0 ? 64 : v->bad_cap * 2;
		void *grown = sl__realloc(&v->b->env, v->bad, cap * sizeof(*v->bad));
		if (grown == NULL)
			return SL_ENOMEM;
		v->bad = grown;
		v->bad_cap = cap;
	}
	v->bad[v->bad_n++] = (struct bk_bad_block){.pack = v->view->packs.ids[pack], .id = *id};
	return 0;
}

static int bad_block(const struct bk_id *id, const struct sl_err *why, void *ctx, struct sl_err *err)
{
	struct worker *w = ctx;
	if (!w->any_bad)
		w->why = *why;
	w->any_bad = true;
	sl__lock(&w->v->mu);
	int rc = keep_bad(w->v, w->pack, id);
	sl__unlock(&w->v->mu);
	return rc == 0 ? 0 : sl_err_set(err, SL_ENOMEM, "no memory for what was found");
}

static int scan_pack(struct worker *w, const struct bk_pack_block *blocks, size_t n, bool whole, struct sl_err *err)
{
	const struct bk_view *view = w->v->view;
	const struct bk_scan scan = {.bad = bad_block, .ctx = w, .whole = whole};
	w->any_bad = false;
	int rc = sl__bk_scan(w->scanner, &view->packs.ids[w->pack], view->sizes[w->pack], blocks, n, &scan, err);
	if (rc == 0 && w->any_bad) {
		if (err != NULL)
			*err = w->why;
		rc = SL_ECORRUPT;
	}
	return rc;
}

static int judge(struct worker *w, struct bk_verdict *verdict, struct sl_err *err)
{
	const struct bk_view *view = w->v->view;
	struct bk_pack_block *blocks = NULL;
	size_t n = 0;
	int rc = sl__bk_directory_blocks(w->v->b, &view->packs.ids[w->pack], view->sizes[w->pack], &blocks, &n, err);
	if (rc == SL_ECORRUPT)
		verdict->state = BK_PACK_NO_DIRECTORY;
	for (size_t i = 0; i < n && rc == 0; i++)
		verdict->sum += sl__bk_place_sum(&blocks[i].id, &blocks[i].place);
	verdict->blocks = (uint32_t)n;
	if (rc == 0 && w->v->read_data) {
		rc = scan_pack(w, blocks, n, true, err);
		if (rc == SL_ECORRUPT)
			verdict->state = BK_PACK_DAMAGED;
	}
	if (rc == SL_ENOENT)
		verdict->state = BK_PACK_GONE;
	if (rc == SL_EIO && w->v->pass_unreadable)
		verdict->state = BK_PACK_UNREADABLE;
	sl__free(&w->v->b->env, blocks);
	return rc;
}

/* ---- threads ---- */

static void count(struct bk_verify *v, uint32_t pack) SL_REQUIRES(v->mu)
{
	v->blocks += v->verdicts[pack].blocks;
	v->bytes += v->view->sizes[pack];
	sl__lock(&v->b->mu);
	v->b->progress.packs++;
	v->b->progress.bytes += v->view->sizes[pack];
	sl__unlock(&v->b->mu);
}

/* 0: all are given, or somebody failed. */
static bool take(struct bk_verify *v, uint32_t *pack)
{
	sl__lock(&v->mu);
	bool more = v->rc == 0 && v->next < v->view->packs.n;
	if (more)
		*pack = v->next++;
	sl__unlock(&v->mu);
	return more;
}

static void settle(struct bk_verify *v, uint32_t pack, int rc, struct sl_err *err)
{
	sl__lock(&v->mu);
	count(v, pack);
	if (v->verdicts[pack].state != BK_PACK_RIGHT)
		rc = v->verdicts[pack].state == BK_PACK_GONE ? 0 : v->on_wrong(pack, err, v->ctx, err);
	if (rc != 0 && v->rc == 0) {
		v->rc = rc;
		v->err = *err;
	}
	sl__unlock(&v->mu);
}

static void *run(void *arg)
{
	struct bk_verify *v = arg;
	struct worker w = {.v = v};
	struct sl_err err = SL_ERR_INIT;
	int rc = sl__bk_scanner_new(&w.scanner, v->b, &err);
	if (rc != 0) {
		sl__lock(&v->mu);
		v->rc = v->rc != 0 ? v->rc : rc;
		v->err = err;
		sl__unlock(&v->mu);
		return NULL;
	}
	while (take(v, &w.pack)) {
		rc = judge(&w, &v->verdicts[w.pack], &err);
		settle(v, w.pack, rc, &err);
	}
	sl__bk_scanner_free(w.scanner);
	return NULL;
}

static void run_threads(struct bk_verify *v)
{
	pthread_t threads[64];
	int n = 0, want = (int)SL_MIN((size_t)SL_MAX(v->b->opts.threads, 1), v->view->packs.n);
	while (n + 1 < want && n < (int)SL_COUNT(threads) && sl__thread_start(&threads[n], "sl-check", run, v) == 0)
		n++;
	(void)run(v); /* this thread is one of them: also when no other could be started */
	for (int i = 0; i < n; i++)
		(void)pthread_join(threads[i], NULL);
}

/* ---- packs without a directory ---- */

struct of_pack {
	const struct bk_view *view;
	uint32_t pack;
	struct bk_pack_block *blocks;
	size_t n, cap;
};

static int gather(uint64_t ordinal, const struct bk_id *id, const struct bk_found *found, void *ctx)
{
	struct of_pack *o = ctx;
	if (o->view->pack_of[ordinal] != o->pack)
		return 0;
	if (o->n == o->cap) {
		size_t cap = o->cap == 0 ? 256 : o->cap * 2;
		void *grown = sl__realloc(&o->view->b->env, o->blocks, cap * sizeof(*o->blocks));
		if (grown == NULL)
			return SL_ENOMEM;
		o->blocks = grown;
		o->cap = cap;
	}
	o->blocks[o->n++] = (struct bk_pack_block){.id = *id, .place = found->place};
	return 0;
}

static int by_place(const void *a, const void *b)
{
	const struct bk_place *x = &((const struct bk_pack_block *)a)->place;
	const struct bk_place *y = &((const struct bk_pack_block *)b)->place;
	if (x->frame_offset != y->frame_offset)
		return x->frame_offset < y->frame_offset ? -1 : 1;
	return (x->offset > y->offset) - (x->offset < y->offset);
}

int sl__bk_indexed_blocks(const struct bk_view *view, uint32_t pack, struct bk_pack_block **blocks, size_t *n,
			  struct sl_err *err)
{
	struct of_pack o = {.view = view, .pack = pack};
	int rc = sl__bk_index_each(view->index, gather, &o, err);
	if (rc != 0) {
		sl__free(&view->b->env, o.blocks);
		return rc == SL_ENOMEM ? sl_err_set(err, rc, "no memory for the blocks of a pack") : rc;
	}
	if (o.n > 0)
		qsort(o.blocks, o.n, sizeof(*o.blocks), by_place);
	*blocks = o.blocks;
	*n = o.n;
	return 0;
}

static int look_by_index(struct bk_verify *v, struct sl_err *err)
{
	struct worker w = {.v = v};
	int rc = 0;
	for (uint32_t i = 0; i < v->view->packs.n && rc == 0; i++) {
		struct bk_pack_block *blocks = NULL;
		size_t n = 0;
		if (v->verdicts[i].state != BK_PACK_NO_DIRECTORY)
			continue;
		if (w.scanner == NULL)
			rc = sl__bk_scanner_new(&w.scanner, v->b, err);
		if (rc == 0)
			rc = sl__bk_indexed_blocks(v->view, i, &blocks, &n, err);
		w.pack = i;
		if (rc == 0)
			rc = scan_pack(&w, blocks, n, false, err);
		if (rc == SL_ECORRUPT || rc == SL_ENOENT || (rc == SL_EIO && v->pass_unreadable))
			rc = 0;
		sl__free(&v->b->env, blocks);
	}
	sl__bk_scanner_free(w.scanner);
	return rc;
}

/* ---- all ---- */

static void begin_progress(struct bk_verify *v)
{
	uint64_t bytes = 0;
	for (size_t i = 0; i < v->view->packs.n; i++)
		bytes += v->view->sizes[i];
	sl__lock(&v->b->mu);
	v->b->progress.packs_total = v->view->packs.n;
	v->b->progress.bytes_total = bytes;
	v->b->progress.totals_known = 1;
	sl__unlock(&v->b->mu);
}

int sl__bk_verify_packs(struct bk_verify *v, struct sl_err *err)
{
	sl__mutex_init(&v->mu);
	v->verdicts = sl__calloc(&v->b->env, v->view->packs.n + 1, sizeof(*v->verdicts));
	if (v->verdicts == NULL)
		return sl_err_set(err, SL_ENOMEM, "check packs: out of memory");
	begin_progress(v);
	if (v->view->packs.n > 0)
		run_threads(v);
	if (v->rc != 0) {
		if (err != NULL)
			*err = v->err;
		return v->rc;
	}
	return look_by_index(v, err);
}

void sl__bk_verify_fini(struct bk_verify *v)
{
	if (v->verdicts != NULL)
		sl__mutex_fini(&v->mu);
	sl__free(&v->b->env, v->verdicts);
	sl__free(&v->b->env, v->bad);
	v->verdicts = NULL;
	v->bad = NULL;
}

/* Nothing of a pack that the storage does not give can be counted on. */
static void set_unreadable(const struct bk_verify *v, const struct bk_view *view, uint64_t *bits)
{
	for (size_t i = 0; i < v->view->packs.n; i++) {
		if (v->verdicts[i].state != BK_PACK_UNREADABLE)
			continue;
		uint32_t pack = sl__bk_view_pack(view, &v->view->packs.ids[i]);
		for (uint64_t o = 0; o < view->entries && pack != BK_NO_PACK; o++)
			if (view->pack_of[o] == pack)
				sl__bk_set_bit(bits, o);
	}
}

uint64_t *sl__bk_verify_bits(const struct bk_verify *v, const struct bk_view *view, struct sl_err *err)
{
	struct bk_ordinals o = {.n = 0};
	uint64_t *bits = sl__bk_bits(&v->b->env, view->entries);
	int rc = bits != NULL ? 0 : sl_err_set(err, SL_ENOMEM, "check packs: out of memory");
	for (size_t i = 0; i < v->bad_n && rc == 0; i++) {
		uint32_t pack = sl__bk_view_pack(view, &v->bad[i].pack);
		rc = sl__bk_view_ordinals(view, &v->bad[i].id, &o, err);
		for (size_t k = 0; k < o.n && rc == 0; k++)
			if (pack != BK_NO_PACK && view->pack_of[o.at[k]] == pack)
				sl__bk_set_bit(bits, o.at[k]);
	}
	sl__free(&v->b->env, o.at);
	if (rc != 0) {
		sl__free(&v->b->env, bits);
		return NULL;
	}
	set_unreadable(v, view, bits);
	return bits;
}
