/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/needed.h"

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

int sl__bk_choose(struct bk_choice *c, const struct bk_id *id, uint64_t *ordinal, struct sl_err *err)
{
	int rc = sl__bk_view_ordinals(c->view, id, &c->ordinals, err);
	if (rc != 0)
		return rc;
	const uint32_t *pack_of = c->view->pack_of;
	uint64_t best = UINT64_MAX;
	for (size_t i = 0; i < c->ordinals.n; i++) {
		uint64_t at = c->ordinals.at[i];
		if (pack_of[at] == BK_NO_PACK || (c->bad != NULL && sl__bk_bit(c->bad, at)))
			continue;
		if (best == UINT64_MAX || is_better(c, pack_of[at], pack_of[best]))
			best = at;
	}
	if (best == UINT64_MAX)
		return SL_ENOENT;
	sl__bk_set_bit(c->chosen, best);
	if (ordinal != NULL)
		*ordinal = best;
	return 0;
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
