/* SPDX-License-Identifier: Apache-2.0 */
/* A partition's task: its elements, its output, its reference, each given back exactly once. */
#include "pipeline/partition.h"
#include "pipeline/pipeline.h"

struct sl__task *sl__task_new(sl_pipeline *p, uint64_t start)
{
	struct sl__task *t = sl__calloc(&p->env, 1, sizeof(*t));
	if (t == NULL)
		return NULL;
	t->part.start = start;
	t->part.number = sl__partition_number(start, p->o.partition_size);
	t->part.attempt = 1;
	return t;
}

bool sl__task_append(sl_pipeline *p, struct sl__task *t, const struct sl_pipeline_element *e)
{
	if (t->part.n_elements == t->cap) {
		size_t cap = t->cap == 0 ? 1 : t->cap * 2;
		struct sl_pipeline_element *elements = sl__realloc(&p->env, t->elements, cap * sizeof(*elements));
		if (elements == NULL)
			return false;
		t->elements = elements;
		t->cap = cap;
	}
	t->elements[t->part.n_elements++] = *e;
	t->part.elements = t->elements;
	t->part.end = e->last;
	t->part.bytes += e->bytes;
	return true;
}

void sl__pipeline_release_element(sl_pipeline *p, struct sl_pipeline_element *e)
{
	if (p->o.ops->release_element != NULL)
		p->o.ops->release_element(p->o.ctx, e);
}

void sl__task_release_elements(sl_pipeline *p, struct sl__task *t)
{
	for (size_t i = 0; i < t->part.n_elements; i++)
		sl__pipeline_release_element(p, &t->elements[i]);
	sl__free(&p->env, t->elements);
	t->elements = NULL;
	t->cap = 0;
	t->part.elements = NULL;
	t->part.n_elements = 0;
}

void sl__task_release_ref(sl_pipeline *p, struct sl__task *t)
{
	if (t->ref != NULL && p->o.ops->release_ref != NULL)
		p->o.ops->release_ref(p->o.ctx, t->ref);
	t->ref = NULL;
}

void sl__task_release_product(sl_pipeline *p, struct sl__task *t)
{
	sl__task_release_ref(p, t);
	if (t->out != NULL && p->o.ops->release_output != NULL)
		p->o.ops->release_output(p->o.ctx, t->out);
	t->out = NULL;
	t->built = false;
}

void sl__task_free(sl_pipeline *p, struct sl__task *t)
{
	if (t == NULL)
		return;
	sl__task_release_product(p, t);
	sl__task_release_elements(p, t);
	sl__free(&p->env, t);
}
