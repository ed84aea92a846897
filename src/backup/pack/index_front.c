/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every create leaves an index file, most of them small. To ask hundreds of files for each block would cost more than
 * storing it: so when there are many, the first look-up gathers what may be used of the small ones into one sorted file
 * in memory, the front, and look-ups ask that and the large ones. Each gathered file gives its own memory back, so that
 * an entry is in memory once.
 *
 * A file that is damaged or gone is not gathered: look-ups ask it as before, and say what is wrong with it when they
 * need that part of it. Without memory or a temporary file there is no front: look-ups are slow then, and as right.
 */
#include "backup/pack/index_build.h"

#define FRONT_FILES 8u          /* so many are asked one by one */
#define FRONT_SMALL BK_SORT_RUN /* entries of a small file, at most */

static bool readable(struct bk_index *x, struct bk_index_file *f)
{
	for (uint32_t s = 0; s < f->segments_n; s++) {
		const uint8_t *entries;
		if (sl__bk_index_segment(x, f, s, &entries, NULL) != 0)
			return false;
	}
	return true;
}

static int gather_file(struct bk_index *x, struct bk_index_file *f, struct bk_index_builder *b)
{
	if (!readable(x, f))
		return 0;
	uint32_t *numbers = sl__calloc(&x->env, f->packs_n, sizeof(*numbers));
	int rc = numbers != NULL ? 0 : SL_ENOMEM;
	for (uint32_t i = 0; rc == 0 && i < f->packs_n; i++) {
		numbers[i] = UINT32_MAX;
		if (f->usable[i])
			rc = sl__bk_index_builder_number(b, &f->packs[i], &numbers[i], NULL);
	}
	if (rc == 0)
		rc = sl__bk_index_builder_file(b, x, f, numbers, NULL);
	sl__free(&x->env, numbers);
	if (rc != 0)
		return rc;
	f->gathered = true;
	sl__bk_index_file_forget(x, f);
	return 0;
}

/* From now on find asks only what is not gathered. Nobody looks up meanwhile: all wait for the front. */
static void ask_the_rest(struct bk_index *x)
{
	atomic_store(&x->asked, NULL);
	x->last_asked = NULL;
	for (struct bk_index_file *f = atomic_load(&x->first); f != NULL; f = atomic_load(&f->next)) {
		atomic_store(&f->next_asked, NULL);
		if (!f->gathered)
			sl__bk_index_ask(x, f);
	}
}

static void gather(struct bk_index *x)
{
	struct bk_index_builder *b;
	if (sl__bk_index_builder_new(&b, &x->env, x->keys, NULL) != 0)
		return;
	int rc = 0;
	for (struct bk_index_file *f = atomic_load(&x->first); rc == 0 && f != NULL; f = atomic_load(&f->next))
		if (f->entries_n <= FRONT_SMALL)
			rc = gather_file(x, f, b);
	if (rc == 0 && sl__bk_index_builder_entries(b) != 0)
		rc = sl__bk_index_file_make(&x->front, &x->env, b, NULL);
	sl__bk_index_builder_free(b);
	for (struct bk_index_file *f = atomic_load(&x->first); rc != 0 && f != NULL; f = atomic_load(&f->next))
		f->gathered = false;
	ask_the_rest(x);
}

void sl__bk_index_front(struct bk_index *x)
{
	if (atomic_load_explicit(&x->front_made, memory_order_acquire))
		return;
	sl__lock(&x->refreshing);
	if (!atomic_load_explicit(&x->front_made, memory_order_relaxed)) {
		if (x->files_n > FRONT_FILES)
			gather(x);
		atomic_store_explicit(&x->front_made, true, memory_order_release);
	}
	sl__unlock(&x->refreshing);
}
