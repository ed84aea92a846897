/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of the SQLite sink in transactions. Invariants 2 to 4 of sqlite.c are kept here. */
#include "sink/sqlite.h"

#define CHECKPOINT_PAGES 1000 /* as SQLite does by itself */
#define GROUP 16              /* rows in one statement: 1.7 times as fast as one by one; more gain little */
#define JOIN_MAX 16           /* batches in one transaction */
#define JOIN_ROWS 20000       /* no more batches are taken along when it has this many */

/* A batch and what becomes of it. Its lane waits while another one writes it. */
struct entry {
	struct sl__join_entry in; /* first */
	const struct sl_sink_batch *batch;
	struct sl__sqlite_rows *rows;
	struct sl__refusals refused;
	struct sl_sink_reply *reply;
	struct sl_err *err;
	int rc;
};

/* ---- a batch ---- */

/* Write n rows, from row k on, that have the same columns. */
static int insert_rows(struct sl__sqlite_sink *s, const struct sl__sqlite_rows *r, size_t k, size_t n,
		       struct sl_err *err)
{
	struct sl__insert what = {.rows = n};
	struct sl_err table_err = SL_ERR_INIT;
	sqlite3_stmt *stmt;
	if (!r->full[k]) {
		sl__sqlite_rows_present(r, k, s->present);
		what.present = s->present;
	}
	int rc = sl__sqlite_get_insert(s, &r->shape, what, &stmt, err);
	if (rc != 0)
		return rc;
	int result = sl__sqlite_rows_bind(r, k, n, stmt);
	if (result == SQLITE_OK)
		result = sqlite3_step(stmt);
	if (SL_LIKELY(result == SQLITE_DONE)) {
		(void)sqlite3_reset(stmt);
		return 0;
	}
	if (sqlite3_extended_errcode(s->db.db) == SQLITE_CONSTRAINT_FUNCTION) {
		(void)sqlite3_reset(stmt);
		(void)sl_err_set(err, SL_ECONFLICT, "sqlite: %s: another row has the key", s->opts.table);
		return sl__sink_class(err, SL_ECONFLICT, SL_CLASS_FATAL); /* whatever comes under these keys */
	}
	rc = sl__sqlite_fail(&s->db, result, s->opts.table, err);
	(void)sqlite3_reset(stmt);
	if (rc != SL_EINTERNAL)
		return rc;
	/* The statement of a table that was changed under us fails when it is prepared anew; else the row is at
	 * fault. */
	sl__inserts_clear(&s->inserts, &s->env);
	rc = sl__sqlite_get_insert(s, &r->shape, what, &stmt, &table_err);
	if (rc != 0) {
		*err = table_err;
		return rc;
	}
	err->code = SL_EDATA;
	return sl__sink_class(err, SL_EDATA, SL_CLASS_POISON);
}

/* How many of the rows from k on go into one statement: GROUP when they all have the same columns, else 1. A row of
 * defaults alone cannot be one of several. */
static size_t group_at(const struct sl__sqlite_sink *s, const struct sl__sqlite_rows *r, size_t k, size_t end)
{
	bool whole = end - k >= GROUP && !r->refused[k] && memchr(r->alike + k + 1, 0, GROUP - 1) == NULL;
	return whole && r->shape.n * GROUP <= s->max_values && sl__sqlite_rows_has_values(r, k) ? GROUP : 1;
}

/* Write the rows that are filled. A statement that fails leaves nothing of its rows; then each of them is tried alone. A
 * row that fails alone is refused, unless it took the transaction with it: then the reply has its number. */
static int write_rows(struct sl__sqlite_sink *s, struct entry *e, struct sl_err *err)
{
	const struct sl__sqlite_rows *r = e->rows;
	struct sl__refusals *refused = &e->refused;
	for (size_t k = 0, alone = 0; k < r->n && r->first + k < refused->stop;) {
		size_t end = SL_MIN(r->n, refused->stop - r->first), n = k < alone ? 1 : group_at(s, r, k, end);
		int rc = n == 1 && r->refused[k] ? 0 : insert_rows(s, r, k, n, err);
		if (SL_LIKELY(rc == 0)) {
			k += n;
			continue;
		}
		bool rolled_back = sqlite3_get_autocommit(s->db.db) != 0; /* ON CONFLICT ROLLBACK */
		if (err->error_class != SL_CLASS_POISON)
			return rc;
		if (rolled_back) {
			if (n == 1)
				e->reply->culprit = r->first + k;
			return rc;
		}
		if (n > 1) {
			alone = k + n;
			continue;
		}
		(void)sl__refusals_add(refused, r->first + k, err);
		k++;
	}
	return 0;
}

/* From the first row on, as if it had never been tried. */
static int fill_anew(struct entry *e, struct sl_err *err)
{
	e->refused = (struct sl__refusals)SL__REFUSALS_INIT;
	e->reply->culprit = SL_SINK_NO_CULPRIT;
	return sl__sqlite_rows_fill(e->rows, e->batch, 0, &e->refused, err);
}

/* Make the lane's columns those of this transaction. */
static int agree_on_columns(struct sl__sqlite_sink *s, struct entry *e, struct sl_err *err)
{
	struct sl__sqlite_rows *r = e->rows;
	int64_t version;
	int rc = sl__sqlite_sink_version(s, &version, err);
	if (rc != 0)
		return rc;
	if (r->shape.version != version) {
		rc = sl__shape_load(&r->shape, &s->db, &s->opts, version, err);
		if (rc == 0)
			rc = sl__sqlite_rows_reshape(r, err);
		if (rc == 0)
			rc = fill_anew(e, err);
		if (rc != 0)
			return rc;
	}
	size_t bytes = (r->shape.n + 7) / 8;
	if (bytes <= s->present_cap)
		return 0;
	uint8_t *bits = sl__realloc(&s->env, s->present, bytes);
	if (bits == NULL)
		return sl__no_memory(err, "sqlite");
	s->present = bits;
	s->present_cap = bytes;
	return 0;
}

static int write_entry(struct sl__sqlite_sink *s, struct entry *e, struct sl_err *err)
{
	const struct sl__load *l = &s->load;
	struct sl__sqlite_rows *r = e->rows;
	int rc = agree_on_columns(s, e, err);
	while (rc == 0) {
		/* Leave out what is recorded since the answer to a commit was lost. */
		for (size_t k = 0; k < r->n && l->late.n > 0; k++) {
			const struct sl_input_range *range = &e->batch->items[r->first + k].range;
			if (range->end != 0 && sl__ranges_has(&l->late, range->begin))
				sl__sqlite_rows_omit(r, k);
		}
		rc = write_rows(s, e, err);
		size_t next = r->first + r->n;
		if (rc != 0 || e->refused.stop != SIZE_MAX || next == e->batch->n)
			break;
		rc = sl__sqlite_rows_fill(r, e->batch, next, &e->refused, err);
	}
	if (rc != 0 || l->id[0] == '\0')
		return rc;
	/* Record which items this transaction has written: those before the second that is refused, but for the
	 * first. */
	struct sl__ranges *w = &s->written;
	size_t end = SL_MIN(e->refused.stop, e->batch->n);
	sl__ranges_clear(w);
	for (size_t i = 0; i < end; i++) {
		const struct sl_input_range *range = &e->batch->items[i].range;
		if (range->end == 0 || i == e->refused.first || sl__ranges_has(&l->done, range->begin) ||
		    sl__ranges_has(&l->late, range->begin))
			continue;
		if (sl__ranges_add(w, range) != 0)
			return sl__no_memory(err, "sqlite");
		w->rows++;
	}
	return sl__sqlite_load_put(s, w, err);
}

/* ---- a transaction ---- */

struct group {
	struct sl__join_entry *at[JOIN_MAX];
	size_t n;
};

static struct entry *entry_of(struct sl__join_entry *e)
{
	return (struct entry *)e;
}

/* Write those of the group, and with `more` those that come meanwhile. */
static int write_transaction(struct sl__sqlite_sink *s, struct group *g, bool more, struct sl_err *err)
{
	size_t rows = 0;
	sl__sqlite_sink_start_waiting(s);
	int rc = sl__sqlite_sink_connect(s, err);
	if (rc != 0)
		return rc;
	struct sl__ranges dead;
	sl__ranges_init(&dead, &s->env);
	rc = sl__sqlite_run(&s->db, SL__SINKQ_BEGIN, NULL, 0, NULL, err);
	if (rc == 0)
		rc = sl__sqlite_load_enter(s, err);
	for (size_t i = 0; rc == 0 && i < g->n; i++) {
		rc = write_entry(s, entry_of(g->at[i]), err);
		rows += entry_of(g->at[i])->batch->n;
		more = more && rc == 0 && rows < JOIN_ROWS && g->n < JOIN_MAX;
		if (more && i + 1 == g->n && (g->at[g->n] = sl__join_next(&s->join)) != NULL)
			g->n++;
	}
	if (rc == 0)
		rc = sl__sqlite_load_put_dead(s, &dead, err);
	sl__sqlite_sink_start_waiting(s);
	if (rc == 0) {
		rc = sl__sqlite_run(&s->db, SL__SINKQ_COMMIT, NULL, 0, NULL, err);
		s->load.doubt = s->load.doubt || rc != 0; /* it may be durable all the same */
	}
	if (rc != 0) {
		sl__sqlite_rollback(&s->db);
		sl__sqlite_load_give_back(s, &dead);
		return rc;
	}
	sl__ranges_fini(&dead);
	if (s->log_mode && s->db.wal_pages >= CHECKPOINT_PAGES)
		sl__sqlite_checkpoint(&s->db, false);
	return 0;
}

static void write_group(struct sl__sqlite_sink *s, struct group *g)
{
	struct sl_err err = SL_ERR_INIT;
	int rc = write_transaction(s, g, true, &err);
	bool one_is_to_blame = rc == SL_ENOMEM || (rc != 0 && err.error_class == SL_CLASS_POISON);
	for (size_t i = 0; i < g->n; i++) {
		struct entry *e = entry_of(g->at[i]);
		if (one_is_to_blame && g->n > 1) {
			struct group alone = {.at = {&e->in}, .n = 1};
			e->rc = e->rows->shape.version >= 0 ? fill_anew(e, e->err) : 0;
			if (e->rc == 0)
				e->rc = write_transaction(s, &alone, false, e->err);
			continue;
		}
		e->rc = rc;
		if (rc != 0)
			*e->err = err;
	}
}

int sl__sqlite_sink_write(void *ctx, void *lane, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
			  struct sl_err *err)
{
	struct sl__sqlite_sink *s = ctx;
	struct sl_err own;
	struct entry e = {
		.batch = batch, .rows = lane, .refused = SL__REFUSALS_INIT, .reply = reply, .err = err ? err : &own};
	int rc = e.rows->shape.version >= 0 ? sl__sqlite_rows_fill(e.rows, batch, 0, &e.refused, e.err) : 0;
	if (rc == 0) {
		if (sl__join_enter(&s->join, &e.in)) {
			struct group g = {.at = {&e.in}, .n = 1};
			e.rc = sl__sqlite_sink_lock(s, e.err);
			if (e.rc == 0) {
				write_group(s, &g);
				sl__sqlite_lock_release(&s->lock);
			}
			sl__join_end(&s->join, g.at, g.n);
		}
		rc = e.rc;
	}
	if (rc != 0)
		return sl__sqlite_sink_classify(s, rc, e.err);
	return sl__refusals_reply(&e.refused, SL_MIN(e.refused.stop, batch->n), reply, 0, e.err);
}
