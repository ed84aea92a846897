/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first ids of what waits, in the order of a list, when too much waits to be read whole.
 *
 * No index has what is pending in the order of ids, but there is one for each part of it: sluice_ready for each type
 * and priority, sluice_sched for each type, the blocked jobs for each type. From each part no more is read than can be
 * among the first n of all.
 */
#include <stdio.h>
#include <stdlib.h>

#include "jobs/store/list_rules.h"
#include "jobs/store/sqlite/store.h"

#define TYPE_BYTES 128 /* of the longest name; a longer one would be found again and again, up to SL__LIST_GROUPS_MAX */

struct gather {
	struct sl__sqlite *c;
	struct sq_waiting *w;
	uint64_t lo, hi; /* ids above lo, up to hi: narrower as more are found */
	uint32_t groups;
};

static size_t count(const struct gather *g)
{
	return g->w->ids.len / sizeof(uint64_t);
}

static int up(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

static int down(const void *a, const void *b)
{
	return up(b, a);
}

/* In order, and no more than n: what lies beyond the last of them is of no interest. */
static void cut(struct gather *g)
{
	struct sq_waiting *w = g->w;
	uint64_t *ids = (uint64_t *)(void *)w->ids.data;
	size_t n = count(g);
	if (n == 0)
		return;
	qsort(ids, n, sizeof(*ids), w->ascending ? up : down);
	if (n < w->n)
		return;
	w->ids.len = w->n * sizeof(*ids);
	w->end = ids[w->n - 1];
	if (w->ascending)
		g->hi = w->end;
	else
		g->lo = w->end - 1;
}

/* One part: SQL up to the condition on the id, with its values. */
static int add_part(struct gather *g, const char *sql, const struct sl__sqlite_value *v, size_t n, struct sl_err *err)
{
	struct sl__sqlite_value all[6];
	char text[256];
	sqlite3_stmt *s = NULL;
	(void)snprintf(text, sizeof(text), "%s AND id>? AND id<=? ORDER BY id %s LIMIT ?", sql,
		       g->w->ascending ? "ASC" : "DESC");
	for (size_t i = 0; i < n; i++)
		all[i] = v[i];
	all[n] = SQ_INT(g->lo);
	all[n + 1] = SQ_INT(g->hi);
	all[n + 2] = SQ_INT(g->w->n);
	int rc = sl__sqlite_prepare(g->c, text, all, n + 3, &s, err);
	while (rc == 0 && (rc = sl__sqlite_step(g->c, s, err)) > 0) {
		uint64_t id = sl__sqlite_u64(s, 0);
		rc = sl__buf_append(&g->w->ids, &id, sizeof(id));
		if (rc != 0)
			(void)sl_err_set(err, rc, "no memory for a listing");
	}
	(void)sqlite3_finalize(s);
	if (rc == 0 && count(g) >= g->w->n)
		cut(g);
	return rc;
}

/* Is the type among those that are looked for? */
static bool wanted(const struct gather *g, const char *type)
{
	const struct sl_job_filter *f = g->w->filter;
	for (size_t i = 0; i < f->n_types; i++)
		if (strcmp(f->types[i], type) == 0)
			return true;
	return f->n_types == 0;
}

/* Every part of a table in turn: `next` finds the first behind (type, solo, priority). */
static int each_part(struct gather *g, const char *next, const char *sql, size_t n_values, struct sl_err *err)
{
	char type[TYPE_BYTES + 1] = "";
	int64_t solo = -1, priority = 0;
	int rc = 1;
	while (rc > 0 && ++g->groups <= SL__LIST_GROUPS_MAX) {
		const struct sl__sqlite_value v[] = {SQ_TEXT(type), SQ_INT(solo), SQ_INT(priority)};
		sqlite3_stmt *s = NULL;
		rc = sl__sqlite_prepare(g->c, next, v, n_values, &s, err);
		rc = rc != 0 ? rc : sl__sqlite_step(g->c, s, err);
		if (rc > 0) {
			(void)snprintf(type, sizeof(type), "%s", sl__sqlite_text(s, 0));
			solo = sl__sqlite_i64(s, 1);
			priority = sl__sqlite_i64(s, 2);
		}
		(void)sqlite3_finalize(s);
		if (rc > 0 && wanted(g, type)) {
			const struct sl__sqlite_value at[] = {SQ_TEXT(type), SQ_INT(solo), SQ_INT(priority)};
			rc = add_part(g, sql, at, n_values, err);
			rc = rc == 0 ? 1 : rc;
		}
	}
	return SL_MIN(rc, 0);
}

int sl__sq_waiting(struct sl__sqlite *c, struct sq_waiting *w, bool blocked, struct sl_err *err)
{
	const uint64_t most = INT64_MAX;
	struct gather g = {.c = c, .w = w, .hi = most};
	int rc;
	if (w->ascending) {
		g.lo = w->after;
		g.hi = w->floor != 0 ? w->floor : most;
	} else {
		g.lo = w->floor != 0 ? w->floor - 1 : 0;
		g.hi = w->after != 0 ? w->after - 1 : most;
	}
	w->end = 0;
	if (blocked) {
		rc = each_part(&g, "SELECT type,0,0 FROM sluice_count WHERE type>? AND blocked>0 ORDER BY type LIMIT 1",
			       "SELECT id FROM sluice_job INDEXED BY sluice_job_blocked WHERE status=1 AND type=?", 1,
			       err);
	} else {
		rc = each_part(&g,
			       "SELECT type,solo,priority FROM sluice_ready WHERE (type,solo,priority,id)"
			       ">(?,?,?,9223372036854775807) ORDER BY type,solo,priority,id LIMIT 1",
			       "SELECT id FROM sluice_ready WHERE type=? AND solo=? AND priority=?", 3, err);
		rc = rc != 0 ? rc
			     : each_part(&g, "SELECT type,0,0 FROM sluice_sched WHERE type>? ORDER BY type LIMIT 1",
					 "SELECT id FROM sluice_sched INDEXED BY sluice_sched_oldest WHERE type=?", 1,
					 err);
	}
	if (rc == 0)
		cut(&g);
	w->too_many_parts = g.groups > SL__LIST_GROUPS_MAX;
	return rc;
}
