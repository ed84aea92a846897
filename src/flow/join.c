/* SPDX-License-Identifier: Apache-2.0 */
/* Entries wait in a list, oldest first. An entry that finds no leader leads. */
#include "flow/join.h"

void sl__join_init(struct sl__join *j, const struct sl_env *env)
{
	*j = (struct sl__join){.env = env};
	sl__mutex_init(&j->mu);
	sl__cond_init(&j->moved);
	sl__cond_init(&j->gathered);
}

void sl__join_fini(struct sl__join *j)
{
	assert(j->first == NULL && !j->led);
	sl__cond_fini(&j->gathered);
	sl__cond_fini(&j->moved);
	sl__mutex_fini(&j->mu);
}

static void take_entry(struct sl__join *j, struct sl__join_entry *e) SL_REQUIRES(j->mu)
{
	struct sl__join_entry *before = NULL;
	for (struct sl__join_entry *p = j->first; p != e; p = p->next)
		before = p;
	if (before != NULL)
		before->next = e->next;
	else
		j->first = e->next;
	if (j->last == e)
		j->last = before;
	j->n_waiting--;
}

bool sl__join_enter(struct sl__join *j, struct sl__join_entry *e)
{
	sl__lock(&j->mu);
	*e = (struct sl__join_entry){.next = NULL};
	if (j->last != NULL)
		j->last->next = e;
	else
		j->first = e;
	j->last = e;
	if (++j->n_waiting + 1 == j->expected && j->led)
		sl__signal(&j->gathered);
	while (!e->done && j->led)
		(void)sl__wait(j->env, &j->moved, &j->mu, SL_FOREVER);
	bool leads = !e->done;
	if (leads) {
		take_entry(j, e);
		j->led = true;
	}
	sl__unlock(&j->mu);
	return leads;
}

void sl__join_gather(struct sl__join *j, unsigned part)
{
	sl__lock(&j->mu);
	int64_t deadline = sl__mono_ns(j->env) + j->took_ns / part;
	while (j->n_waiting + 1 < j->expected && sl__wait(j->env, &j->gathered, &j->mu, deadline))
		;
	j->began_ns = sl__mono_ns(j->env);
	sl__unlock(&j->mu);
}

struct sl__join_entry *sl__join_next(struct sl__join *j)
{
	sl__lock(&j->mu);
	struct sl__join_entry *e = j->first;
	if (e != NULL)
		take_entry(j, e);
	sl__unlock(&j->mu);
	return e;
}

void sl__join_end(struct sl__join *j, struct sl__join_entry *const *done, size_t n)
{
	sl__lock(&j->mu);
	for (size_t i = 0; i < n; i++)
		done[i]->done = true;
	/* Those that are done may come again, in addition to those that are here. */
	j->expected = SL_MAX(n, j->n_waiting);
	if (j->began_ns != 0)
		j->took_ns = sl__mono_ns(j->env) - j->began_ns;
	j->began_ns = 0;
	j->led = false;
	sl__broadcast(&j->moved);
	sl__unlock(&j->mu);
}
