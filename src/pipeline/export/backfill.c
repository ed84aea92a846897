/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building again what was committed, and what lies below it. The ranges become targets: committed partitions that they
 * touch, which must come out as they were, and stretches that no partition holds, cut at the boundaries, which become
 * events of type backfill. The source is read once, from the first target to the last, one partition at a time.
 *
 * Rows that have appeared in recorded holes of a committed partition change nothing in its file: each stretch of them
 * becomes a separate file next to it, with an event of type late. What is late already must come out as it was, too.
 *
 * What lies below the start is committed when all of it is in its place, the stretch next to the start first: whenever
 * it ends, by a kill or by an error, there is no gap between what is committed. Files that were not committed are
 * replaced by the next try.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "pipeline/export/export.h"
#include "pipeline/holes.h"

#define U(x) ((unsigned long long)(x))

struct target {
	uint64_t start, end;
	bool committed;
	bool late;
	uint64_t bytes;
	char *holes; /* of a committed one, as it was recorded */
	uint8_t sha256[SL__SHA256_BYTES];
};

/* Where the cutter is to begin a run: where targets, their holes and what is late in those begin and end. */
struct cuts {
	enum { CUT_TARGET, CUT_HOLE, CUT_LATE, CUT_LATE_END } next;
	size_t target, late;
	const char *holes;
	uint64_t hole_end;
};

struct backfill {
	struct sl__export_job *job;
	const struct sl_export_range *ranges;
	size_t n_ranges;
	struct sl__buf targets; /* of struct target */
	struct sl__buf late;    /* of struct target: what is late already in those, ascending */
	struct cuts cuts;
	uint64_t next;       /* no partition that was seen holds it or anything after it */
	struct sl__buf held; /* of struct sl__object *: below the start, in place, not committed yet */
	struct sl__buf elements, late_elements; /* of struct sl_pipeline_element */
	struct sl_pipeline_element ahead;       /* data not NULL: it was read, and comes next */
	bool ended;                             /* the source has no more */
	struct sl__builder *builder;
};

/* ---- targets ---- */

static size_t n_targets(const struct sl__buf *targets)
{
	return targets->len / sizeof(struct target);
}

/* One committed partition: it is a target when a range touches it, and so is what no partition before it holds. */
static int add_targets(const struct sl_catalog_partition *p, void *ctx)
{
	struct backfill *b = ctx;
	struct target t = {.start = p->start, .end = p->end, .committed = true, .bytes = p->bytes};
	memcpy(t.sha256, p->sha256, sizeof(t.sha256));

	/* Late rows belong to the partition that was seen last, if that is a target. */
	if (p->type == SL_AUDIT_LATE) {
		const struct target *all = (void *)b->targets.data;
		size_t n = n_targets(&b->targets);
		t.late = true;
		if (n > 0 && all[n - 1].committed && all[n - 1].start <= p->start && p->end <= all[n - 1].end)
			(void)sl__buf_append(&b->late, &t, sizeof(t));
		return b->late.failed;
	}

	bool touched = false;
	for (size_t i = 0; i < b->n_ranges; i++) {
		const struct sl_export_range *r = &b->ranges[i];
		touched = touched || (r->first <= p->end && r->last >= p->start);
		uint64_t at = SL_MAX(b->next, r->first);
		while (p->start > 0 && at <= SL_MIN(p->start - 1, r->last)) { /* in no partition, cut at boundaries */
			uint64_t end = sl__partition_end(at, b->job->dataset.partition_size);
			const struct target missing = {.start = at, .end = SL_MIN(end, SL_MIN(p->start - 1, r->last))};
			(void)sl__buf_append(&b->targets, &missing, sizeof(missing));
			at = missing.end + 1;
		}
	}
	b->next = p->end + 1;
	if (touched) {
		t.holes = sl__strdup(&b->job->e->env, p->hole_ranges);
		if (t.holes == NULL)
			return SL_ENOMEM;
		(void)sl__buf_append(&b->targets, &t, sizeof(t));
	}
	return b->targets.failed;
}

static int by_target_start(const void *a, const void *b)
{
	const struct target *left = a, *right = b;
	return (left->start > right->start) - (left->start < right->start);
}

static int find_targets(struct backfill *b, struct sl_err *err)
{
	const struct sl_export_range *r = b->ranges;
	const struct sl__export_job *job = b->job;
	uint64_t checkpoint = job->dataset.checkpoint;
	if (job->dataset.events == 0)
		return sl_err_set(err, SL_EINVAL, "backfill: nothing is committed to %s yet; export first",
				  job->e->o.dataset);
	if (job->input.source.ops == NULL && !job->input.regular)
		return sl_err_set(err, SL_EINVAL, "backfill: a pipe cannot be read again; give a file or a database");
	for (size_t i = 0; i < b->n_ranges; i++) {
		if (r[i].first > r[i].last)
			return sl_err_set(err, SL_EINVAL, "backfill: invalid range %llu to %llu", U(r[i].first),
					  U(r[i].last));
		if (r[i].last > checkpoint)
			return sl_err_set(err, SL_EINVAL, "backfill: %llu is after the checkpoint %llu; export it",
					  U(r[i].last), U(checkpoint));
		for (size_t k = 0; k < i; k++)
			if (r[k].first <= r[i].last && r[k].last >= r[i].first)
				return sl_err_set(err, SL_EINVAL, "backfill: ranges overlap at %llu",
						  U(SL_MAX(r[k].first, r[i].first)));
	}
	int rc = sl_catalog_partitions(job->catalog, job->e->o.dataset, 0, 0, add_targets, b, err);
	if (rc == SL_ENOMEM || (rc == 0 && b->targets.failed != 0))
		rc = sl__no_memory(err, "backfill");
	if (b->targets.len > 0)
		qsort(b->targets.data, n_targets(&b->targets), sizeof(struct target), by_target_start);
	return rc;
}

static bool next_cut(uint64_t *out, void *ctx)
{
	struct backfill *b = ctx;
	struct cuts *c = &b->cuts;
	const struct target *all = (void *)b->targets.data, *late = (void *)b->late.data;
	if (c->target == n_targets(&b->targets))
		return false;
	switch (c->next) {
	case CUT_TARGET:
		c->holes = all[c->target].holes;
		*out = all[c->target].start;
		c->next = CUT_HOLE;
		return true;
	case CUT_HOLE:
		c->next = CUT_LATE;
		if (c->holes != NULL && sl__holes_next(&c->holes, out, &c->hole_end))
			return true;
		*out = all[c->target++].end + 1;
		c->next = CUT_TARGET;
		return true;
	case CUT_LATE:
		if (c->late < n_targets(&b->late) && late[c->late].start <= c->hole_end) {
			*out = late[c->late].start;
			c->next = CUT_LATE_END;
		} else {
			*out = c->hole_end + 1;
			c->next = CUT_HOLE;
		}
		return true;
	case CUT_LATE_END:
		*out = late[c->late++].end + 1;
		c->next = CUT_LATE;
		return true;
	}
	return false;
}

/* ---- one target ---- */

static void release_elements(struct sl__buf *elements)
{
	struct sl_pipeline_element *all = (void *)elements->data;
	for (size_t i = 0; i < elements->len / sizeof(*all); i++)
		sl__run_free(all[i].data);
	sl__buf_clear(elements);
}

/* On success the run is of these elements. */
static int add_element(struct sl__buf *elements, struct sl_pipeline_element *e, struct sl_err *err)
{
	if (sl__buf_append(elements, e, sizeof(*e)) != 0)
		return sl__no_memory(err, "backfill");
	e->data = NULL;
	return 0;
}

static int add_target_hole(struct backfill *b, uint64_t first, uint64_t last, struct sl_err *err)
{
	struct sl__run *run = sl__calloc(&b->job->e->env, 1, sizeof(*run));
	struct sl_pipeline_element e = {.first = first, .last = last, .data = run};
	if (run == NULL)
		return sl__no_memory(err, "backfill");
	*run = (struct sl__run){.env = &b->job->e->env, .hole = true};
	int rc = add_element(&b->elements, &e, err);
	sl__run_free(e.data);
	return rc;
}

/* The next rows that do not lie below the target are in b->ahead, unless b->ended. */
static int look_ahead(struct backfill *b, const struct target *t, struct sl_err *err)
{
	while (b->ahead.data == NULL && !b->ended) {
		int rc = sl__cutter_next(&b->job->cutter, &b->ahead, err);
		b->ended = rc == SL_PIPELINE_END;
		if (rc != 0)
			b->ahead.data = NULL;
		if (rc < 0)
			return rc;
		if (rc == 0 && b->ahead.last < t->start) {
			sl__run_free(b->ahead.data);
			b->ahead.data = NULL;
		}
	}
	return 0;
}

/* The rows of a target, from the source. The cutter begins a run wherever a hole begins or ends. */
static int gather_target(struct backfill *b, const struct target *t, struct sl_err *err)
{
	const char *holes = t->holes;
	uint64_t next = t->start, first, last;
	bool has_hole = holes != NULL && sl__holes_next(&holes, &first, &last);
	int rc;
	b->job->cutter.first = t->start;
	b->job->cutter.until = t->end; /* what follows it is not read */
	while (next <= t->end) {
		/* A recorded hole, and the rows that have appeared in it. */
		if (has_hole && next == first) {
			if ((rc = add_target_hole(b, first, last, err)) != 0)
				return rc;
			while ((rc = look_ahead(b, t, err)) == 0 && b->ahead.data != NULL && b->ahead.first <= last) {
				((struct sl__run *)b->ahead.data)->late = true;
				if ((rc = add_element(&b->late_elements, &b->ahead, err)) != 0)
					return rc;
			}
			if (rc != 0)
				return rc;
			next = last + 1;
			has_hole = sl__holes_next(&holes, &first, &last);
			continue;
		}
		if ((rc = look_ahead(b, t, err)) != 0)
			return rc;
		bool missing = b->ahead.data == NULL || b->ahead.first > next;
		uint64_t until = missing && b->ahead.data != NULL ? SL_MIN(b->ahead.first - 1, t->end) : t->end;
		if (missing && !t->committed && b->job->records_gaps) {
			if ((rc = add_target_hole(b, next, until, err)) != 0)
				return rc;
			next = until + 1;
			continue;
		}
		if (missing || b->ahead.first < next)
			return sl_err_set(err, missing ? SL_EGAP : SL_EDUPLICATE,
					  "the source has %s %llu of the partition %llu to %llu",
					  missing ? "no" : "more than one", U(missing ? next : b->ahead.first),
					  U(t->start), U(t->end));
		next = b->ahead.last + 1;
		if ((rc = add_element(&b->elements, &b->ahead, err)) != 0)
			return rc;
	}
	return 0;
}

/* Does the committed file exist, with the committed bytes? */
static bool is_in_place(const struct backfill *b, const struct target *t)
{
	const struct sl_export *e = b->job->e;
	const struct sl_env *env = &e->env;
	char name[SL__PARTITION_NAME_BYTES], *buf = sl__builder_buf(b->builder);
	struct sl__sha256 hash = {NULL};
	uint8_t digest[SL__SHA256_BYTES];
	uint64_t offset = 0;
	ssize_t got = -1;
	if (!t->committed)
		return false;
	sl__partition_name(t->start, t->end, b->job->dataset.partition_size, t->late, name);
	char *path = sl__asprintf(env, "%s/%s/%s", e->o.to, e->o.dataset, name);
	int fd = path != NULL ? SL__IO(env, open, path, O_RDONLY | O_NOFOLLOW, 0) : -ENOMEM;
	sl__free(env, path);
	if (fd < 0 || sl__sha256_begin(&hash, NULL) != 0) {
		sl__close_fd(env, &fd);
		return false;
	}
	while ((got = SL__IO(env, pread, fd, buf, SL__OBJECT_BUF, offset)) > 0) {
		if (sl__sha256_update(&hash, buf, (size_t)got, NULL) != 0)
			break;
		offset += (uint64_t)got;
	}
	bool same = got == 0 && sl__sha256_final(&hash, digest, NULL) == 0 &&
		    memcmp(digest, t->sha256, sizeof(digest)) == 0;
	sl__sha256_drop(&hash);
	sl__close_fd(env, &fd);
	return same;
}

static int commit_one(struct backfill *b, struct sl__object *o, struct sl_err *err)
{
	struct sl__export_job *job = b->job;
	struct sl_catalog_partition row;
	sl__object_row(o, &row);
	row.type = o->late ? SL_AUDIT_LATE : SL_AUDIT_BACKFILL;
	sl__export_step(job->e, "before_commit", o->start);
	int rc = sl_catalog_commit(job->catalog, job->lease, &row, NULL, err);
	if (rc != 0)
		return rc;
	sl__export_step(job->e, "committed", o->start);
	sl__store_sweep(job->e, row.path, row.start, row.end);
	sl_outbox_wake(job->outbox);
	sl__job_count(job, o);
	return 0;
}

/* What is not committed when it returns waits for the next try. */
static int commit_held(struct backfill *b, struct sl_err *err)
{
	int rc = 0;
	while (rc == 0 && b->held.len > 0 && !sl__export_stopping(b->job->e)) {
		struct sl__object *o;
		memcpy(&o, b->held.data + b->held.len - sizeof(o), sizeof(o));
		b->held.len -= sizeof(o);
		rc = commit_one(b, o, err);
		sl__object_free(o);
	}
	return rc;
}

/* Build one file and bring it to its place. A target below the start is held until all of those are in place. */
static int do_one(struct backfill *b, const struct target *t, const struct sl_pipeline_element *elements, size_t n,
		  struct sl_err *err)
{
	struct sl__export_job *job = b->job;
	struct sl__object *o = NULL;
	const struct sl_pipeline_partition p = {.start = t->start,
						.end = t->end,
						.number = sl__partition_number(t->start, job->dataset.partition_size),
						.attempt = 1,
						.elements = elements,
						.n_elements = n};
	bool in_place = is_in_place(b, t);
	for (size_t i = 0; in_place && i < n; i++) /* its bad rows were diverted when it was committed */
		((struct sl__run *)elements[i].data)->diverted = UINT64_MAX;
	int rc = sl__builder_build(b->builder, &p, &o, err);
	if (rc != 0)
		return rc;
	if (t->committed && (o->bytes != t->bytes || memcmp(o->sha256, t->sha256, sizeof(t->sha256)) != 0))
		rc = sl_err_set(err, SL_ECONFLICT,
				"partition %llu to %llu: the rows of the source differ from those committed",
				U(t->start), U(t->end));
	else if (!in_place)
		rc = sl__object_store(o, job->e, job->lease, err);
	if (rc == 0 && !in_place) {
		if (t->committed) {
			sl__job_count(job, o);
		} else if (t->end >= job->dataset.start) {
			rc = commit_one(b, o, err);
		} else if (sl__buf_append(&b->held, &o, sizeof(struct sl__object *)) != 0) {
			rc = sl__no_memory(err, "backfill");
		} else {
			return 0;
		}
	}
	sl__object_free(o);
	return rc;
}

/* What is late already and holds the sequence, or NULL. */
static const struct target *late_with(const struct backfill *b, uint64_t sequence)
{
	const struct target *all = (void *)b->late.data;
	for (size_t i = 0; i < n_targets(&b->late); i++)
		if (all[i].start <= sequence && sequence <= all[i].end)
			return &all[i];
	return NULL;
}

/* The rows that have appeared in the holes of a target, one stretch at a time. */
static int do_late(struct backfill *b, const struct target *t, struct sl_err *err)
{
	const struct sl_pipeline_element *all = (void *)b->late_elements.data;
	const struct target *late = (void *)b->late.data;
	size_t n = b->late_elements.len / sizeof(*all), known = 0, n_late = 0;
	for (size_t i = 0; i < n_targets(&b->late); i++)
		n_late += t->start <= late[i].start && late[i].end <= t->end;
	for (size_t i = 0, end; i < n; i = end) {
		const struct target *was = late_with(b, all[i].first);
		for (end = i + 1; end < n && all[end].first == all[end - 1].last + 1; end++)
			if (late_with(b, all[end].first) != was)
				break;
		const struct target is = {.start = all[i].first, .end = all[end - 1].last, .late = true};
		if (was != NULL && (was->start != is.start || was->end != is.end))
			break; /* a row of it is missing */
		known += was != NULL;
		int rc = do_one(b, was != NULL ? was : &is, all + i, end - i, err);
		if (rc != 0)
			return rc;
	}
	if (known != n_late)
		return sl_err_set(err, SL_EGAP,
				  "the source no longer has all rows that were exported late for the partition %llu to "
				  "%llu",
				  U(t->start), U(t->end));
	return 0;
}

/* ---- all ---- */

static int do_targets(struct backfill *b, struct sl_err *err)
{
	struct sl__export_job *job = b->job;
	const struct target *all = (void *)b->targets.data;
	size_t n = n_targets(&b->targets), i = 0;
	if (n == 0)
		return 0;
	int rc = sl__store_clean(job->e, sl__partition_number(all[0].start, job->dataset.partition_size), err);
	if (rc == 0)
		rc = sl__input_begin(&job->input, all[0].start, all[n - 1].end, err);
	if (rc != 0)
		return rc;
	sl__job_init_cutter(job, all[0].start);
	job->cutter.next_cut = next_cut;
	job->cutter.cut_ctx = b;
	rc = sl__builder_new(job, &b->builder, err);
	for (; rc == 0 && i < n && !sl__export_stopping(job->e); i++) {
		if (all[i].end >= job->dataset.start && (rc = commit_held(b, err)) != 0)
			break;
		rc = gather_target(b, &all[i], err);
		if (rc == 0)
			rc = do_one(b, &all[i], (void *)b->elements.data,
				    b->elements.len / sizeof(struct sl_pipeline_element), err);
		if (rc == 0)
			rc = do_late(b, &all[i], err);
		release_elements(&b->elements);
		release_elements(&b->late_elements);
	}
	if (rc == 0 && i == n)
		rc = commit_held(b, err);
	sl__builder_free(b->builder);
	sl__cutter_fini(&job->cutter);
	return rc;
}

static int backfill(struct sl__export_job *job, struct sl_export *e, struct sl_err *err, void *ctx)
{
	struct backfill *b = ctx;
	b->job = job;
	sl__buf_init(&b->targets, &e->env);
	sl__buf_init(&b->late, &e->env);
	sl__buf_init(&b->elements, &e->env);
	sl__buf_init(&b->late_elements, &e->env);
	sl__buf_init(&b->held, &e->env);
	int rc = sl__job_open(job, e, err);
	if (rc == 0)
		rc = find_targets(b, err);
	if (rc == 0)
		rc = do_targets(b, err);

	release_elements(&b->elements);
	release_elements(&b->late_elements);
	sl__run_free(b->ahead.data);
	sl__buf_fini(&b->elements);
	sl__buf_fini(&b->late_elements);
	struct sl__object **held = (void *)b->held.data;
	for (size_t i = 0; i < b->held.len / sizeof(*held); i++)
		sl__object_free(held[i]);
	sl__buf_fini(&b->held);
	const struct target *all = (void *)b->targets.data;
	for (size_t i = 0; i < n_targets(&b->targets); i++)
		sl__free(&e->env, all[i].holes);
	sl__buf_fini(&b->targets);
	sl__buf_fini(&b->late);
	return rc;
}

int sl_export_backfill(sl_export *e, const struct sl_export_range *ranges, size_t n, struct sl_export_result *result,
		       struct sl_err *err)
{
	struct backfill b = {.ranges = ranges, .n_ranges = n};
	return sl__export_call(e, backfill, &b, result, err);
}
