/* SPDX-License-Identifier: Apache-2.0 */
/* Runs, record by record. A run ends with its partition, where a number or a line does not follow, and at a size. */
#include <stdlib.h>

#include "format/row.h"
#include "pipeline/export/run.h"
#include "pipeline/partition.h"

#define RUN_BYTES ((size_t)1 << 20)

#define U(x) ((unsigned long long)(x))

void sl__run_free(struct sl__run *run)
{
	if (run == NULL)
		return;
	const struct sl_env *env = run->env;
	sl__free(env, run->own);
	sl__free(env, run->bad);
	sl__free(env, run);
}

void sl__cutter_fini(struct sl__cutter *c)
{
	if (c->env == NULL)
		return;
	sl__buf_fini(&c->text);
	sl__buf_fini(&c->bad);
	sl__buf_fini(&c->scratch);
}

/* ---- the run at hand ---- */

/* The open run ends: out->data is it. */
static int give_run(struct sl__cutter *c, struct sl_pipeline_element *out, struct sl_err *err)
{
	static const char padding[SL__ROW_PADDING];
	struct sl__run *run = sl__calloc(c->env, 1, sizeof(*run));
	c->open = false;
	*out = c->element;
	if (run == NULL)
		return sl__no_memory(err, "a run of rows");
	run->env = c->env;
	run->line = c->line;
	run->end = c->end;
	out->data = run;
	if (c->element.first < c->first)
		return 0; /* only its position is needed */
	run->n_bad = c->bad.len / sizeof(*run->bad);
	run->bad = run->n_bad > 0 ? (void *)sl__buf_take(&c->bad) : NULL;
	if (run->n_bad > 0 && run->bad == NULL)
		goto no_memory;
	if (c->map != NULL) {
		run->text = c->map + c->offset;
		run->len = (size_t)(c->end - c->offset);
		out->bytes = 0;
		return 0;
	}

	/* The text becomes the run's, in a block of its size. */
	run->len = c->text.len;
	if (sl__buf_append(&c->text, padding, sizeof(padding)) != 0)
		goto no_memory;
	size_t bytes = c->text.len;
	run->own = sl__buf_take(&c->text);
	if (run->own == NULL)
		goto no_memory;
	char *fit = sl__realloc(c->env, run->own, bytes);
	if (fit != NULL)
		run->own = fit;
	run->text = run->own;
	out->bytes = run->len;
	return 0;
no_memory:
	sl__run_free(run);
	return sl__no_memory(err, "a run of rows");
}

/* Does the record belong to the open run? */
static bool belongs_to_run(struct sl__cutter *c, const struct sl_record *r, uint64_t sequence)
{
	if (sequence != c->element.last + 1 || sequence % c->partition_size == 0 || sequence == c->first)
		return false;
	while (c->next_cut != NULL && (!c->has_cut || c->cut < sequence)) {
		c->has_cut = c->next_cut(&c->cut, c->cut_ctx);
		if (!c->has_cut)
			c->next_cut = NULL;
	}
	if (c->has_cut && c->cut == sequence)
		return false;
	return c->text.len < RUN_BYTES && (c->map != NULL || r->line == c->next_line);
}

/* ---- records ---- */

static int bad_record(const struct sl__cutter *c, const struct sl_record *r, const char *why, struct sl_err *err)
{
	if (r->bad != NULL)
		return sl_err_set(err, SL_EDATA, "line %llu: %s", U(r->line), why);
	return sl_err_set(err, SL_EDATA, "line %llu, column %.100s: %s", U(r->line),
			  c->layout->names[c->layout->sequence_field], why);
}

/* Add one record to a run. *full: the run is complete, in out. c->at moves past the record if it was added. */
static int cut_record(struct sl__cutter *c, const struct sl_record *r, struct sl_pipeline_element *out, bool *full,
		      struct sl_err *err)
{
	uint64_t sequence;
	const char *bad = r->bad;
	if (bad == NULL)
		bad = sl__layout_sequence(c->layout, r->data, r->len, &c->scratch, &sequence);
	if (bad != NULL) {
		if (!c->any)
			return bad_record(c, r, bad, err); /* its position is not known */
		sequence = c->last + 1;
		if (!c->divert && sequence >= c->first)
			return bad_record(c, r, bad, err);
	}
	*full = c->open && !belongs_to_run(c, r, sequence);
	if (*full)
		return give_run(c, out, err);
	/* Append it to the open run, or open one with it. */
	if (!c->open) {
		c->open = true;
		c->element = (struct sl_pipeline_element){.first = sequence, .last = sequence};
		c->line = r->line;
		c->offset = r->offset;
		sl__buf_clear(&c->text);
		sl__buf_clear(&c->bad);
	}
	bool keeps = sequence >= c->first;
	size_t at = c->map != NULL ? (size_t)(r->offset - c->offset) : c->text.len;
	size_t used = c->map != NULL ? (size_t)(r->end - r->offset) : r->len + 1;
	c->element.last = sequence;
	c->end = r->end;
	c->next_line = r->line + 1;
	for (const char *p = r->data, *end = p + r->len; (p = memchr(p, '\n', (size_t)(end - p))) != NULL; p++)
		c->next_line++;
	if (keeps && c->map == NULL) {
		if (c->text.data == NULL)
			(void)sl__buf_reserve(&c->text, RUN_BYTES + RUN_BYTES / 16);
		(void)sl__buf_append(&c->text, r->data, r->len);
		(void)sl__buf_append(&c->text, "\n", 1);
	}
	const struct sl__bad_record mark = {.at = at, .used = used, .why = bad};
	if (keeps && bad != NULL)
		(void)sl__buf_append(&c->bad, &mark, sizeof(mark));
	if (c->text.failed != 0 || c->bad.failed != 0)
		return sl__no_memory(err, "a run of rows");
	c->any = true;
	c->last = sequence;
	c->at++;
	*full = sequence == sl__partition_end(sequence, c->partition_size) || sequence == c->until;
	return *full ? give_run(c, out, err) : 0;
}

void sl__cutter_take_back(struct sl__cutter *c, uint64_t next)
{
	c->open = false;
	c->at = c->n = 0;
	c->any = c->any && next > c->first; /* before that nothing was given that counts */
	c->last = next - 1;
	c->again = next;
	c->passed = 0;
}

int sl__cutter_next(struct sl__cutter *c, struct sl_pipeline_element *out, struct sl_err *err)
{
	for (;;) {
		bool full = false;
		if (c->at == c->n) {
			c->at = c->n = 0;
			int rc = sl_records_next(c->records, c->ahead, SL__CUTTER_AHEAD, &c->n, err);
			if (rc != 0)
				return rc;
			if (c->n == 0)
				return c->open ? give_run(c, out, err) : SL_PIPELINE_END;
		}
		if (c->again != 0) {
			/* A record below it was returned before. If its number cannot be read, it follows the last. */
			const struct sl_record *r = &c->ahead[c->at];
			uint64_t sequence = c->passed + 1;
			if (r->bad == NULL)
				(void)sl__layout_sequence(c->layout, r->data, r->len, &c->scratch, &sequence);
			c->passed = sequence;
			if (sequence >= c->again)
				c->again = 0;
			if (c->again != 0) {
				c->at++;
				continue;
			}
		}
		int rc = cut_record(c, &c->ahead[c->at], out, &full, err);
		if (rc != 0 || full)
			return rc;
	}
}

uint64_t sl__cutter_left(const struct sl__cutter *c)
{
	uint64_t next = c->any ? c->last + 1 : 0, left = 0;
	if (next >= c->first)
		left = c->n - c->at;
	if (c->open && c->element.first >= c->first)
		left += c->element.last - c->element.first + 1;
	return left;
}

int sl__cutter_skip(struct sl__cutter *c, uint64_t *end, struct sl_err *err)
{
	uint64_t last = 0;
	c->until = c->first - 1;
	for (bool any = false; last != c->until || !any; any = true) {
		struct sl_pipeline_element e;
		int rc = sl__cutter_next(c, &e, err);
		if (rc != 0)
			return rc == SL_EDATA ? SL_EAGAIN : rc;
		*end = ((const struct sl__run *)e.data)->end;
		sl__run_free(e.data);
		if ((any && e.first != last + 1) || e.last > c->until)
			return SL_EAGAIN;
		last = e.last;
	}
	return 0;
}
