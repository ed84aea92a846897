/* SPDX-License-Identifier: Apache-2.0 */
/* What a create tells while it runs. */
#include "backup/create/create.h"

void sl__bk_create_problem(struct bk_create *c, enum sl_backup_problem problem, const char *path,
			   const struct sl_err *err)
{
	if (problem != SL_BACKUP_SKIPPED) /* nobody misses a socket */
		atomic_fetch_add(&c->counts.problems, 1);
	if (c->o.on_problem == NULL)
		return;
	char *whole = sl__asprintf(&c->b->env, "/%s", path);
	sl__lock(&c->problem_mu);
	c->o.on_problem(problem, whole != NULL ? whole : path, err, c->o.ctx);
	sl__unlock(&c->problem_mu);
	sl__free(&c->b->env, whole);
}

void sl__bk_create_stats(struct bk_create *c, struct bk_store_stats *out)
{
	struct bk_store_stats s = {.new_blocks = 0};
	if (c->store != NULL)
		sl__bk_store_stats(c->store, &s);
	s.new_blocks += c->before.new_blocks;
	s.new_bytes += c->before.new_bytes;
	s.physical_bytes += c->before.physical_bytes;
	*out = s;
}

void sl__bk_create_progress(struct bk_create *c)
{
	struct bk_store_stats s;
	struct bk_counts *n = &c->counts;
	sl__bk_create_stats(c, &s);
	sl__lock(&c->b->mu);
	struct sl_backup_progress *p = &c->b->progress;
	p->files = atomic_load(&n->entries);
	p->bytes = atomic_load(&n->bytes_done);
	p->files_total = atomic_load(&n->seen);
	p->bytes_total = atomic_load(&n->seen_bytes);
	if (!p->totals_known && c->parent != NULL) {
		/* About as much as last time, until it is known. */
		p->files_total = SL_MAX(p->files_total, sl__bk_parent_info(c->parent)->entries);
		p->bytes_total = SL_MAX(p->bytes_total, sl__bk_parent_info(c->parent)->bytes);
	}
	p->dedup_bytes = atomic_load(&n->known_bytes);
	p->physical_bytes = s.physical_bytes;
	p->errors = atomic_load(&n->problems);
	p->backlog_bytes = s.backlog_bytes;
	p->concurrency = s.concurrency;
	p->max_concurrency = s.max_concurrency;
	p->backpressure = s.backpressure;
	sl__unlock(&c->b->mu);
}
