/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/check/needed.h"

int sl__bk_refs_add(const struct sl_env *env, struct bk_refs *s, const struct bk_ref *ref)
{
	if (s->n == s->cap) {
		size_t cap = s->cap == 0 ? 16 : s->cap * 2;
		struct bk_ref *bigger = sl__realloc(env, s->refs, cap * sizeof(*bigger));
		if (bigger == NULL)
			return SL_ENOMEM;
		s->refs = bigger;
		s->cap = cap;
	}
	s->refs[s->n++] = *ref;
	return 0;
}

int sl__bk_choice_init(struct bk_choice *c, const struct bk_view *view, const bool *avoid, const uint64_t *bad,
		       struct sl_err *err)
{
	*c = (struct bk_choice){.view = view, .avoid = avoid, .bad = bad};
	c->chosen = sl__bk_bits(&view->b->env, view->entries);
	return c->chosen != NULL ? 0 : sl_err_set(err, SL_ENOMEM, "choose among blocks: out of memory");
}

void sl__bk_choice_fini(struct bk_choice *c)
{
	if (c->view == NULL)
		return;
	sl__free(&c->view->b->env, c->chosen);
	sl__free(&c->view->b->env, c->ordinals.at);
	*c = (struct bk_choice){.view = NULL};
}

/* The better of two places; both are of packs that are there. */
static bool is_better(const struct bk_choice *c, uint32_t pack, uint32_t than)
{
	bool avoid = c->avoid != NULL && c->avoid[pack], avoid_other = c->avoid != NULL && c->avoid[than];
	return avoid != avoid_other ? avoid_other : pack < than;
}

/* The best place in another pack than those that were chosen for this block; UINT64_MAX: there is none. */
static uint64_t best_place(const struct bk_choice *c, const uint32_t *taken, int n)
{
	const uint32_t *pack_of = c->view->pack_of;
	uint64_t best = UINT64_MAX;
	for (size_t i = 0; i < c->ordinals.n; i++) {
		uint64_t at = c->ordinals.at[i];
		bool out = pack_of[at] == BK_NO_PACK || (c->bad != NULL && sl__bk_bit(c->bad, at));
		for (int k = 0; k < n && !out; k++)
			out = pack_of[at] == taken[k];
		if (!out && (best == UINT64_MAX || is_better(c, pack_of[at], pack_of[best])))
			best = at;
	}
	return best;
}

int sl__bk_choose(struct bk_choice *c, const struct bk_id *id, int copies, struct sl_err *err)
{
	uint32_t taken[BK_METADATA_COPIES];
	int n = 0;
	assert(copies <= BK_METADATA_COPIES);
	int rc = sl__bk_view_ordinals(c->view, id, &c->ordinals, err);
	if (rc != 0)
		return rc;
	while (n < copies) {
		uint64_t best = best_place(c, taken, n);
		if (best == UINT64_MAX)
			break;
		sl__bk_set_bit(c->chosen, best);
		taken[n++] = c->view->pack_of[best];
	}
	return n > 0 ? n : SL_ENOENT;
}

int sl__bk_is_chosen(struct bk_choice *c, const struct bk_id *id, uint32_t pack, struct sl_err *err)
{
	int rc = sl__bk_view_ordinals(c->view, id, &c->ordinals, err);
	if (rc != 0)
		return rc;
	for (size_t i = 0; i < c->ordinals.n; i++)
		if (c->view->pack_of[c->ordinals.at[i]] == pack && sl__bk_bit(c->chosen, c->ordinals.at[i]))
			return 1;
	return 0;
}
