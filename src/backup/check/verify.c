/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verify all packs of a view on opts.threads threads. Each thread takes the next pack, reads it once from front to back
 * and judges it. Packs whose directory cannot be read are then verified by what the index has of them, on one thread.
 *
 * Seals find damage. An index that was written wrong is found by its sums: each index file is summed up by pack and
 * compared with the sums of the packs' directories.
 */
#include <stdlib.h>

#include "backup/check/check.h"

struct pack_verifier { /* of one thread */
	struct bk_verify *v;
	struct bk_scanner *scanner;
	bool any_bad;      /* a block of the current pack */
	struct bk_id pack; /* the current one */
	struct sl_err why; /* of its first bad block */
};

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

/* How a block and its place count in a sum. */
static uint64_t place_sum(const struct bk_id *id, const struct bk_place *p)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < BK_ID_BYTES; i += 8)
		sum = mix(sum ^ sl__get64(id->b + i));
	sum = mix(sum ^ p->frame_offset ^ (uint64_t)p->frame_stored << 32);
	sum = mix(sum ^ p->frame_raw ^ (uint64_t)p->offset << 32);
	return mix(sum ^ p->length ^ (uint64_t)p->zstd << 32);
}

/* ---- one pack ---- */

static int on_bad_block(const struct bk_id *id, const struct sl_err *why, struct sl_err *err, void *ctx)
{
	struct pack_verifier *w = ctx;
	struct bk_verify *v = w->v;
	if (!w->any_bad)
		w->why = *why;
	w->any_bad = true;
	sl__lock(&v->mu);
	struct bk_bad_block *grown = sl__grow(&v->b->env, v->bad, v->n_bad, &v->cap_bad, sizeof(*grown));
	if (grown != NULL) {
		v->bad = grown;
		v->bad[v->n_bad++] = (struct bk_bad_block){.pack = w->pack, .id = *id};
	}
	sl__unlock(&v->mu);
	return grown != NULL ? 0 : sl__no_memory(err, "check packs");
}

/* SL_ECORRUPT also when only blocks are bad. */
static int scan_pack(struct pack_verifier *w, const struct bk_pack_blocks *p, bool whole, struct sl_err *err)
{
	const struct bk_scan scan = {.bad = on_bad_block, .ctx = w, .whole = whole};
	w->any_bad = false;
	w->pack = p->pack;
	int rc = sl__bk_scan(w->scanner, p, &scan, err);
	if (rc != 0 || !w->any_bad)
		return rc;
	if (err != NULL)
		*err = w->why;
	return SL_ECORRUPT;
}

static int judge_pack(struct pack_verifier *w, uint32_t number, struct bk_verdict *verdict, struct sl_err *err)
{
	const struct bk_verify *v = w->v;
	struct bk_pack_blocks p = {.pack = v->view->packs.ids[number], .size = v->view->sizes[number]};
	int rc = sl__bk_directory_blocks(v->b, &p, err);
	if (rc == 0) {
		for (size_t i = 0; i < p.n; i++)
			verdict->sum += place_sum(&p.blocks[i].id, &p.blocks[i].place);
		verdict->blocks = (uint32_t)p.n;
		if (v->read_data)
			rc = scan_pack(w, &p, true, err);
		if (rc == SL_ECORRUPT)
			verdict->state = BK_PACK_DAMAGED;
	} else if (rc == SL_ECORRUPT) {
		verdict->state = BK_PACK_NO_DIRECTORY;
	}
	if (rc == SL_ENOENT)
		verdict->state = BK_PACK_GONE;
	if (rc == SL_EIO && v->skip_unreadable)
		verdict->state = BK_PACK_UNREADABLE;
	sl__free(&v->b->env, p.blocks);
	return rc;
}

/* ---- threads ---- */

static void *verify_thread(void *arg)
{
	struct bk_verify *v = arg;
	struct pack_verifier w = {.v = v};
	struct sl_err err = SL_ERR_INIT;
	int rc = sl__bk_scanner_new(&w.scanner, v->b, &err);
	sl__lock(&v->mu);
	for (;;) {
		if (rc != 0 && v->rc == 0) {
			v->rc = rc;
			v->err = err;
		}
		if (v->rc != 0 || v->next >= v->view->packs.n)
			break;
		uint32_t pack = v->next++;
		sl__unlock(&v->mu);
		struct bk_verdict *verdict = &v->verdicts[pack];
		rc = judge_pack(&w, pack, verdict, &err);
		sl__lock(&v->mu);

		/* Count it and report it. */
		v->blocks += verdict->blocks;
		v->bytes += v->view->sizes[pack];
		sl__lock(&v->b->mu);
		v->b->progress.packs++;
		v->b->progress.bytes += v->view->sizes[pack];
		sl__unlock(&v->b->mu);
		if (verdict->state == BK_PACK_GONE)
			rc = 0;
		else if (verdict->state == BK_PACK_UNREADABLE &&
			 sl__bk_ids_add(&v->b->env, &v->unreadable, &v->view->packs.ids[pack]) != 0)
			rc = sl__no_memory(&err, "check packs");
		else if (verdict->state != BK_PACK_RIGHT)
			rc = v->on_wrong(pack, &err, &err, v->ctx);
	}
	sl__unlock(&v->mu);
	sl__bk_scanner_free(w.scanner);
	return NULL;
}

/* ---- packs without a directory ---- */

struct index_reading {
	const struct bk_view *view;
	uint32_t pack;
	struct bk_pack_blocks *p;
};

static int add_indexed_block(uint64_t ordinal, const struct bk_id *id, const struct bk_found *found, void *ctx)
{
	const struct index_reading *r = ctx;
	if (r->view->pack_of[ordinal] != r->pack)
		return 0;
	return sl__bk_pack_blocks_add(&r->view->b->env, r->p, id, &found->place);
}

static int compare_places(const void *a, const void *b)
{
	const struct bk_place *x = &((const struct bk_pack_block *)a)->place;
	const struct bk_place *y = &((const struct bk_pack_block *)b)->place;
	if (x->frame_offset != y->frame_offset)
		return x->frame_offset < y->frame_offset ? -1 : 1;
	return (x->offset > y->offset) - (x->offset < y->offset);
}

int sl__bk_indexed_blocks(const struct bk_view *view, uint32_t pack, struct bk_pack_blocks *p, struct sl_err *err)
{
	struct index_reading r = {.view = view, .pack = pack, .p = p};
	*p = (struct bk_pack_blocks){.pack = view->packs.ids[pack], .size = view->sizes[pack]};
	int rc = sl__bk_index_each(view->index, add_indexed_block, &r, err);
	if (rc == SL_ENOMEM)
		return sl__no_memory(err, "read the blocks of a pack");
	if (rc == 0 && p->n > 0)
		qsort(p->blocks, p->n, sizeof(*p->blocks), compare_places);
	return rc;
}

/* ---- all packs ---- */

int sl__bk_verify_packs(struct bk_verify *v, struct sl_err *err)
{
	pthread_t threads[64];
	uint64_t bytes = 0;
	int n = 0, want = (int)SL_MIN((size_t)SL_MAX(v->b->opts.threads, 1), v->view->packs.n);
	sl__mutex_init(&v->mu);
	v->verdicts = sl__calloc(&v->b->env, v->view->packs.n + 1, sizeof(*v->verdicts));
	if (v->verdicts == NULL)
		return sl__no_memory(err, "check packs");

	for (size_t i = 0; i < v->view->packs.n; i++)
		bytes += v->view->sizes[i];
	sl__lock(&v->b->mu);
	v->b->progress.packs_total = v->view->packs.n;
	v->b->progress.bytes_total = bytes;
	v->b->progress.totals_known = 1;
	sl__unlock(&v->b->mu);

	/* This thread is one of them: also when no other could be started. */
	while (n + 1 < want && n < (int)SL_COUNT(threads) &&
	       sl__thread_start(&threads[n], "sl-check", verify_thread, v) == 0)
		n++;
	if (want > 0)
		(void)verify_thread(v);
	for (int i = 0; i < n; i++)
		(void)pthread_join(threads[i], NULL);
	if (v->rc != 0) {
		if (err != NULL)
			*err = v->err;
		return v->rc;
	}

	/* Packs without a directory, by what the index has of them. */
	struct pack_verifier w = {.v = v};
	int rc = 0;
	for (uint32_t i = 0; i < v->view->packs.n && rc == 0; i++) {
		struct bk_pack_blocks p = {.n = 0};
		if (v->verdicts[i].state != BK_PACK_NO_DIRECTORY)
			continue;
		if (w.scanner == NULL)
			rc = sl__bk_scanner_new(&w.scanner, v->b, err);
		if (rc == 0)
			rc = sl__bk_indexed_blocks(v->view, i, &p, err);
		if (rc == 0)
			rc = scan_pack(&w, &p, false, err);
		if (rc == SL_ECORRUPT || rc == SL_ENOENT || (rc == SL_EIO && v->skip_unreadable))
			rc = 0;
		sl__free(&v->b->env, p.blocks);
	}
	sl__bk_scanner_free(w.scanner);
	return rc;
}

void sl__bk_verify_fini(struct bk_verify *v)
{
	if (v->verdicts != NULL)
		sl__mutex_fini(&v->mu);
	sl__free(&v->b->env, v->verdicts);
	sl__free(&v->b->env, v->bad);
	sl__bk_ids_fini(&v->b->env, &v->unreadable);
	v->verdicts = NULL;
	v->bad = NULL;
}

/* The view may be a later one than the one that was verified: packs are compared by id. */
uint64_t *sl__bk_verify_bits(const struct bk_verify *v, const struct bk_view *view, struct sl_err *err)
{
	struct bk_ordinals o = {.n = 0};
	uint64_t *bits = sl__bk_bits(&v->b->env, view->entries);
	int rc = bits != NULL ? 0 : sl__no_memory(err, "check packs");
	for (size_t i = 0; i < v->n_bad && rc == 0; i++) {
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
	/* Nothing of a pack that the storage fails to read can be used. */
	for (size_t i = 0; i < v->unreadable.n; i++) {
		uint32_t pack = sl__bk_view_pack(view, &v->unreadable.ids[i]);
		for (uint64_t k = 0; k < view->entries && pack != BK_NO_PACK; k++)
			if (view->pack_of[k] == pack)
				sl__bk_set_bit(bits, k);
	}
	return bits;
}

/* ---- does the index agree with the directories? ---- */

struct index_summing {
	const struct bk_verify *v;
	struct bk_findings *f;
	struct sl_err *err;
	size_t file;  /* the current one */
	uint64_t end; /* the first ordinal after it */
	struct pack_sum {
		uint32_t blocks;
		uint64_t sum;
	} * sums; /* by pack number */
};

static int compare_sums(const struct index_summing *s)
{
	const struct bk_view *view = s->v->view;
	for (size_t i = 0; i < view->packs.n; i++) {
		const struct bk_verdict *verdict = &s->v->verdicts[i];
		char pack[SL_DRIVER_NAME_BYTES];
		struct sl_err why = SL_ERR_INIT;
		if (s->sums[i].blocks == 0 || verdict->state == BK_PACK_GONE ||
		    verdict->state == BK_PACK_NO_DIRECTORY || verdict->state == BK_PACK_UNREADABLE ||
		    (s->sums[i].blocks == verdict->blocks && s->sums[i].sum == verdict->sum))
			continue;
		sl__bk_pack_name(&view->packs.ids[i], pack);
		(void)sl_err_set(&why, SL_ECORRUPT, "it does not agree with the directory of %s", pack);
		int rc = sl__bk_findings_damaged(s->f, SL_BACKUP_FAULT_INDEX, sl__bk_index_name(view->index, s->file),
						 &why, s->err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static int add_to_sum(uint64_t ordinal, const struct bk_id *id, const struct bk_found *found, void *ctx)
{
	struct index_summing *s = ctx;
	const struct bk_view *view = s->v->view;
	uint32_t pack = view->pack_of[ordinal];
	/* On to the file that has this ordinal. */
	while (ordinal >= s->end && s->file + 1 < sl__bk_index_files(view->index)) {
		int rc = compare_sums(s);
		if (rc != 0)
			return rc;
		memset(s->sums, 0, (view->packs.n + 1) * sizeof(*s->sums));
		s->end += sl__bk_index_file_entries(view->index, ++s->file);
	}
	if (pack == BK_NO_PACK)
		return 0;
	s->sums[pack].blocks++;
	s->sums[pack].sum += place_sum(id, &found->place);
	return 0;
}

int sl__bk_check_agreement(const struct bk_verify *v, struct bk_findings *f, struct sl_err *err)
{
	struct index_summing s = {.v = v, .f = f, .err = err};
	const struct bk_view *view = v->view;
	if (sl__bk_index_files(view->index) == 0)
		return 0;
	s.sums = sl__calloc(&v->b->env, view->packs.n + 1, sizeof(*s.sums));
	if (s.sums == NULL)
		return sl__no_memory(err, "check the index");
	s.end = sl__bk_index_file_entries(view->index, 0);
	int rc = sl__bk_index_each(view->index, add_to_sum, &s, err);
	if (rc == 0)
		rc = compare_sums(&s);
	sl__free(&v->b->env, s.sums);
	return rc;
}
