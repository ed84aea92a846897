/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dispatcher: takes elements from the source, checks that each follows the one before, gathers those of one
 * partition, and queues the partition when its last number has come.
 */
#include "pipeline/partition.h"
#include "pipeline/pipeline.h"

struct cut {
	struct sl__task *task; /* the partition that is being gathered, or NULL */
	uint64_t boundary;     /* its last number when whole */
	bool any;              /* an element came, and */
	uint64_t last;         /* its last number */
};

#define U(x) ((unsigned long long)(x))

/* " (line 17)", or nothing. */
static const char *place_of_element(sl_pipeline *p, const struct sl_pipeline_element *e, char *text, size_t n)
{
	text[0] = '\0';
	if (p->o.ops->describe == NULL || n < 5)
		return text;
	text[2] = '\0';
	p->o.ops->describe(e, text + 2, n - 3, p->o.ctx);
	if (text[2] == '\0')
		return text;
	text[0] = ' ';
	text[1] = '(';
	size_t len = strnlen(text + 2, n - 4);
	memcpy(text + 2 + len, ")", 2);
	return text;
}

static int not_an_element(sl_pipeline *p, const struct sl_pipeline_element *e, const char *why, uint64_t number,
			  struct sl_err *err)
{
	char text[96];
	return sl_err_set(err, SL_EINVAL, "source: the run %llu to %llu%s %s %llu", U(e->first), U(e->last),
			  place_of_element(p, e, text, sizeof(text)), why, U(number));
}

static int missing(sl_pipeline *p, const struct sl_pipeline_element *e, uint64_t expected, struct sl_err *err)
{
	char text[96];
	place_of_element(p, e, text, sizeof(text));
	if (e->first == expected + 1)
		return sl_err_set(err, SL_EGAP, "source: %llu is missing: the next number is %llu%s", U(expected),
				  U(e->first), text);
	return sl_err_set(err, SL_EGAP, "source: %llu to %llu are missing: the next number is %llu%s", U(expected),
			  U(e->first - 1), U(e->first), text);
}

/* The element follows the one before. *skip: it lies before the number from which this run continues. */
static int check_sequence_order(sl_pipeline *p, const struct cut *c, const struct sl_pipeline_element *e, bool *skip,
				struct sl_err *err)
{
	char text[96];
	bool at = p->o.begin == SL_PIPELINE_AT;
	if (e->first > e->last || e->last > SL_SEQUENCE_MAX)
		return not_an_element(p, e, "is not a range up to", SL_SEQUENCE_MAX, err);
	if (c->any && e->first <= c->last)
		return sl_err_set(err, SL_EDUPLICATE, "source: %llu%s comes after %llu: the numbers must rise by one",
				  U(e->first), place_of_element(p, e, text, sizeof(text)), U(c->last));
	if (c->any && e->first > c->last + 1)
		return missing(p, e, c->last + 1, err);
	if (!c->any && at && e->first > p->o.first)
		return missing(p, e, p->o.first, err);
	*skip = at && e->last < p->o.first;
	if (!*skip && at && e->first < p->o.first)
		return not_an_element(p, e, "must be cut at the number that this run begins with,", p->o.first, err);
	return 0;
}

/* ---- partitions ---- */

/* The task is the queue's, or freed. */
static int dispatch_partition(sl_pipeline *p, struct cut *c, struct sl_err *err)
{
	struct sl__task *t = c->task;
	c->task = NULL;
	sl__lock(&p->mu);
	if (p->ordinals == 0)
		p->stats.next = t->part.start;
	t->ordinal = p->ordinals++;
	p->stats.dispatched++;
	sl__unlock(&p->mu);
	sl__pipeline_step(p, "dispatched", t);
	size_t bytes = t->part.bytes;
	if (p->o.queue_bytes != SL_UNLIMITED && bytes > (uint64_t)p->o.queue_bytes)
		bytes = (size_t)p->o.queue_bytes;
	uint64_t start = t->part.start, end = t->part.end;
	int rc = sl__queue_push(p->queue, t, bytes);
	if (rc == 0)
		return 0;
	sl__lock(&p->mu);
	p->ordinals--;
	p->stats.dispatched--;
	sl__unlock(&p->mu);
	sl__task_free(p, t);
	return sl_err_set(err, rc, "partition %llu to %llu: queue: %s", U(start), U(end), sl_err_text(rc));
}

/* Put the element into its partition, and dispatch that when it is complete. The element is released on failure. */
static int take_element(sl_pipeline *p, struct cut *c, struct sl_pipeline_element *e, struct sl_err *err)
{
	bool skip = false;
	int rc = check_sequence_order(p, c, e, &skip, err);
	c->any = true;
	c->last = e->last;
	if (rc == 0 && !skip) {
		if (c->task == NULL) {
			c->boundary = sl__partition_end(e->first, p->o.partition_size);
			c->task = sl__calloc(&p->env, 1, sizeof(*c->task));
			if (c->task != NULL)
				c->task->part = (struct sl_pipeline_partition){
					.start = e->first,
					.number = sl__partition_number(e->first, p->o.partition_size),
					.attempt = 1};
		}
		if (e->last > c->boundary)
			rc = not_an_element(p, e, "crosses the boundary of a partition after", c->boundary, err);
		else if (c->task == NULL || !sl__task_append(p, c->task, e))
			rc = sl_err_set(err, SL_ENOMEM, "source: out of memory for %llu to %llu", U(e->first),
					U(e->last));
	}
	if (rc != 0 || skip) {
		sl__pipeline_release_element(p, e);
		sl__lock(&p->mu);
		p->stats.skipped += skip;
		sl__unlock(&p->mu);
		return rc;
	}
	return e->last == c->boundary ? dispatch_partition(p, c, err) : 0;
}

void sl__dispatcher_main(unsigned index, void *ctx)
{
	sl_pipeline *p = ctx;
	struct cut c = {0};
	struct sl_err err = SL_ERR_INIT;
	(void)index;
	/* Until the source ends or fails, or the run is to end. */
	int rc = 0;
	while (rc == 0 && !sl__pipeline_ending(p)) {
		struct sl_pipeline_element e = {0};
		rc = p->o.ops->next(&e, &err, p->o.ctx);
		if (rc == 0)
			rc = take_element(p, &c, &e, &err);
		else if (rc < 0)
			sl__pipeline_complete_err(&err, rc);
	}
	/* A source that was interrupted may return anything; only one that ended on its own has an end. */
	if (rc == SL_PIPELINE_END && !sl__pipeline_ending(p) && p->o.final == SL_ON && c.task != NULL)
		rc = dispatch_partition(p, &c, &err);
	sl__task_free(p, c.task);
	bool interrupted = sl__pipeline_ending(p) && (rc == SL_ECANCELLED || rc == SL_EAGAIN || rc == SL_ETIMEDOUT);
	if (rc < 0 && !interrupted) {
		sl__lock(&p->mu);
		uint64_t at = p->ordinals;
		sl__unlock(&p->mu);
		sl__pipeline_fail(p, at, &err);
	}
	sl__queue_close(p->queue, SL__QUEUE_DRAIN);
}
