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

void sl__cutter_init(struct sl__cutter *c, const struct sl_env *env, const struct sl__layout *layout,
		     sl_records *records, const char *map, uint64_t partition_size, uint64_t first, bool divert)
{
	*c = (struct sl__cutter){.env = env,
				 .layout = layout,
				 .records = records,
				 .map = map,
				 .partition_size = partition_size,
				 .first = first,
				 .until = SL__SEQUENCE_MAX,
				 .divert = divert};
	sl__buf_init(&c->text, env);
	sl__buf_init(&c->bad, env);
	sl__buf_init(&c->scratch, env);
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

/* The text becomes the run's. */
static int give_text(struct sl__cutter *c, struct sl__run *run, struct sl_err *err)
{
	if (c->map != NULL) {
		run->text = c->map + c->offset;
		run->len = (size_t)(c->end - c->offset);
		return 0;
	}
	static const char padding[SL__ROW_PADDING];
	run->len = c->text.len;
	if (sl__buf_append(&c->text, padding, sizeof(padding)) != 0)
		return sl__no_memory(err, "a run of rows");
	size_t bytes = c->text.len;
	run->own = sl__buf_take(&c->text);
	char *fit = run->own != NULL ? sl__realloc(c->env, run->own, bytes) : NULL;
	if (fit != NULL)
		run->own = fit;
	run->text = run->own;
	return run->own != NULL ? 0 : sl__no_memory(err, "a run of rows");
}

static int give(struct sl__cutter *c, struct sl_pipeline_element *out, struct sl_err *err)
{
	struct sl__run *run;
	c->open = false;
	*out = c->element;
	run = sl__calloc(c->env, 1, sizeof(*run));
	if (run == NULL)
		return sl__no_memory(err, "a run of rows");
	run->env = c->env;
	run->line = c->line;
	run->end = c->end;
	out->data = run;
	if (c->element.first < c->first)
		return 0; /* only its place may be asked for */
	run->n_bad = c->bad.len / sizeof(*run->bad);
	run->bad = run->n_bad > 0 ? (void *)sl__buf_take(&c->bad) : NULL;
	int rc = run->n_bad > 0 && run->bad == NULL ? sl__no_memory(err, "a run of rows") : give_text(c, run, err);
	if (rc != 0) {
		sl__run_free(run);
		return rc;
	}
	out->bytes = run->own != NULL ? run->len : 0;
	return 0;
}

static void open_run(struct sl__cutter *c, const struct sl_record *r, uint64_t sequence)
{
	c->open = true;
	c->element = (struct sl_pipeline_element){.first = sequence, .last = sequence};
	c->line = c->next_line = r->line;
	c->offset = c->end = r->offset;
	sl__buf_clear(&c->text);
	sl__buf_clear(&c->bad);
}

static uint64_t lines_of(const char *p, size_t n)
{
	uint64_t lines = 1;
	for (const char *end = p + n; (p = memchr(p, '\n', (size_t)(end - p))) != NULL; p++)
		lines++;
	return lines;
}

static int append(struct sl__cutter *c, const struct sl_record *r, uint64_t sequence, const char *bad,
		  struct sl_err *err)
{
	bool keeps = sequence >= c->first;
	size_t at = c->map != NULL ? (size_t)(r->offset - c->offset) : c->text.len;
	size_t used = c->map != NULL ? (size_t)(r->end - r->offset) : r->len + 1;
	c->element.last = sequence;
	c->next_line = r->line + lines_of(r->data, r->len);
	c->end = r->end;
	if (keeps && c->map == NULL) {
		if (c->text.data == NULL)
			(void)sl__buf_reserve(&c->text, RUN_BYTES + RUN_BYTES / 16);
		(void)sl__buf_append(&c->text, r->data, r->len);
		(void)sl__buf_append(&c->text, "\n", 1);
	}
	const struct sl__bad_record mark = {.at = at, .used = used, .why = bad};
	if (keeps && bad != NULL)
		(void)sl__buf_append(&c->bad, &mark, sizeof(mark));
	return c->text.failed != 0 || c->bad.failed != 0 ? sl__no_memory(err, "a run of rows") : 0;
}

/* Must a run begin with it? */
static bool is_cut(struct sl__cutter *c, uint64_t sequence)
{
	while (c->next_cut != NULL && (!c->has_cut || c->cut < sequence)) {
		c->has_cut = c->next_cut(&c->cut, c->cut_ctx);
		if (!c->has_cut)
			c->next_cut = NULL;
	}
	return c->has_cut && c->cut == sequence;
}

/* Does the record belong to the run that is open? */
static bool follows(struct sl__cutter *c, const struct sl_record *r, uint64_t sequence)
{
	return sequence == c->element.last + 1 && sequence % c->partition_size != 0 && sequence != c->first &&
	       !is_cut(c, sequence) && c->text.len < RUN_BYTES && (c->map != NULL || r->line == c->next_line);
}

/* ---- records ---- */

static int bad_record(const struct sl__cutter *c, const struct sl_record *r, const char *why, struct sl_err *err)
{
	if (r->bad != NULL)
		return sl_err_set(err, SL_EDATA, "line %llu: %s", U(r->line), why);
	return sl_err_set(err, SL_EDATA, "line %llu, column %.100s: %s", U(r->line),
			  c->layout->names[c->layout->sequence_field], why);
}

/* The number of the record at hand, and why it is none that fits (NULL: it does). */
static int number_of(struct sl__cutter *c, const struct sl_record *r, uint64_t *sequence, const char **bad,
		     struct sl_err *err)
{
	*bad = r->bad;
	if (*bad == NULL)
		*bad = sl__layout_sequence(c->layout, r->data, r->len, &c->scratch, sequence);
	if (*bad == NULL)
		return 0;
	if (!c->any)
		return bad_record(c, r, *bad, err); /* where it stands is not known */
	*sequence = c->last + 1;
	return c->divert || *sequence < c->first ? 0 : bad_record(c, r, *bad, err);
}

/* One record into a run. *full: the run that was open is in out, and the record is still to come. */
static int take(struct sl__cutter *c, const struct sl_record *r, struct sl_pipeline_element *out, bool *full,
		struct sl_err *err)
{
	uint64_t sequence;
	const char *bad;
	int rc = number_of(c, r, &sequence, &bad, err);
	if (rc != 0)
		return rc;
	*full = c->open && !follows(c, r, sequence);
	if (*full)
		return give(c, out, err);
	if (!c->open)
		open_run(c, r, sequence);
	if ((rc = append(c, r, sequence, bad, err)) != 0)
		return rc;
	c->any = true;
	c->last = sequence;
	c->at++;
	*full = sequence == sl__partition_end(sequence, c->partition_size) || sequence == c->until;
	return *full ? give(c, out, err) : 0;
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

/* Was the record given before? Its number may not be readable; then it is the next one. */
static bool is_again(struct sl__cutter *c, const struct sl_record *r)
{
	uint64_t sequence = c->passed + 1;
	if (r->bad == NULL)
		(void)sl__layout_sequence(c->layout, r->data, r->len, &c->scratch, &sequence);
	c->passed = sequence;
	if (sequence >= c->again)
		c->again = 0;
	return c->again != 0;
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
				return c->open ? give(c, out, err) : SL_PIPELINE_END;
		}
		if (c->again != 0 && is_again(c, &c->ahead[c->at])) {
			c->at++;
			continue;
		}
		int rc = take(c, &c->ahead[c->at], out, &full, err);
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
