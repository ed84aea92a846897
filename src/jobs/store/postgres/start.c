/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting chains without keys and blockers, which is all but a few.
 *
 * Many are sent in bites that the server works on while the next is being written, in one transaction. Single starts of
 * several threads share a transaction: while one is under way, those that come wait, and the first of them takes all the
 * others along (flow/join.h). Each has its answer only when that transaction is durable. When a shared one fails for its data, each
 * is tried alone, so that no call fails for another's fault.
 */
#include "jobs/store/postgres/store.h"

#define BITE 2048       /* chains in one statement */
#define BITES_PER_RUN 8 /* statements in one round trip */
#define SHARED_MAX 1024 /* chains that share a transaction */
#define GATHER_PART 3   /* of a transaction, to wait for others */
#define SINGLE_MAX 64   /* more chains than this do not wait for others */

/* A call of start, which may share a transaction with others. */
struct waiting {
	struct sl__join_entry in; /* first */
	const struct sl_new_chain *chains;
	size_t n;
	struct sl_started *out;
	bool *later;  /* per chain: scheduled for later */
	bool offered; /* started for an offer: no note is needed */
	bool sent;    /* other processes were notified */
	const struct sl_store_scope *scope;
	int rc;
	struct sl_err err;
	struct waiting *next; /* in the same transaction */
};

void sl__pg_report_created(const struct sl_store_scope *l, uint64_t id, uint64_t chain_id, const char *type,
			   enum pg_created how)
{
	sl__report_change(l, SL_CHANGE_CREATED, id, chain_id, type);
	if (how == PG_CREATED_BLOCKED)
		sl__report_change(l, SL_CHANGE_BLOCKED, id, chain_id, type);
	else if (how == PG_CREATED_SCHEDULED)
		sl__report_change(l, SL_CHANGE_SCHEDULED, id, chain_id, type);
	if (how != PG_CREATED_BLOCKED)
		sl__report_note(l, SL_NOTE_JOB_SCHEDULED, type, id, SL_LOST_NOT);
}

/* ---- parameters ---- */

/* The chains of one statement may come from several calls. */
struct cursor {
	const struct waiting *call;
	size_t i; /* in that call */
};

static const struct sl_new_job *next_job(struct cursor *c)
{
	while (c->i == c->call->n) {
		c->call = c->call->next;
		c->i = 0;
	}
	return &c->call->chains[c->i++].job;
}

/* n chains from *from on, which is moved past them. */
static void add_chains(struct sl__pg_params *p, struct cursor *from, size_t n)
{
	struct cursor c = *from;
	sl__pg_add_array(p, SL__PG_TEXT, n);
	for (size_t i = 0; i < n; i++)
		sl__pg_el_text(p, next_job(&c)->type);
	c = *from;
	sl__pg_add_array(p, SL__PG_TEXT, n);
	for (size_t i = 0; i < n; i++) {
		const char *input = next_job(&c)->input;
		sl__pg_el_text(p, input != NULL ? input : "null");
	}
	c = *from;
	sl__pg_add_array(p, SL__PG_INT4, n);
	for (size_t i = 0; i < n; i++)
		sl__pg_el_int4(p, next_job(&c)->priority);
	c = *from;
	sl__pg_add_array(p, SL__PG_TIMESTAMPTZ, n);
	for (size_t i = 0; i < n; i++)
		sl__pg_el_time(p, next_job(&c)->at_ms);
	c = *from;
	sl__pg_add_array(p, SL__PG_INTERVAL, n);
	for (size_t i = 0; i < n; i++)
		sl__pg_el_interval(p, next_job(&c)->delay_ms);
	c = *from;
	sl__pg_add_array(p, SL__PG_TEXT, n);
	for (size_t i = 0; i < n; i++)
		sl__pg_el_text(p, next_job(&c)->traceparent);
	*from = c;
}

static bool is_one_for_now(const struct waiting *list, size_t n)
{
	return n == 1 && list->chains[0].job.at_ms == 0 && list->chains[0].job.delay_ms == 0;
}

static void add_one(struct sl__pg_params *p, const struct sl_new_job *job)
{
	sl__pg_add_text(p, job->type);
	sl__pg_add_text(p, job->input != NULL ? job->input : "null");
	sl__pg_add_int4(p, job->priority);
	sl__pg_add_text(p, job->traceparent);
}

static void read_started(const PGresult *res, struct waiting **w, size_t *at)
{
	for (int i = 0; i < PQntuples(res); i++) {
		while (*at == (*w)->n) {
			*w = (*w)->next;
			*at = 0;
		}
		(*w)->out[*at] = (struct sl_started){.chain_id = (uint64_t)sl__pg_int8(res, i, 0)};
		(*w)->later[(*at)++] = sl__pg_bool(res, i, 1);
	}
}

/* ---- one transaction ---- */

/* All chains of the list of calls, n in all. A call that is audited is alone in its list. Its records stand for its
 * chains in turn: a statement for each record, which writes it. */
static int start_list(struct pg_store *s, sl_store_tx *tx, struct waiting *list, size_t n, struct sl_err *err)
{
	const struct sl_audit_record *record = NULL, *end = NULL;
	struct pg_call call;
	struct cursor from = {.call = list};
	struct waiting *to = list;
	size_t to_at = 0, of_record = n, n_audit = list->scope != NULL ? list->scope->n_audit : 0;
	bool one = n_audit == 0 && is_one_for_now(list, n);
	enum pg_statement statement = one ? ST_START_ONE : ST_START;
	if (n_audit > 0) {
		size_t covered = 0;
		record = list->scope->audit;
		end = record + n_audit;
		for (const struct sl_audit_record *r = record; r < end; r++)
			covered += r->n_chains > 0 ? r->n_chains : n;
		if (covered < n)
			return sl_err_set(err, SL_EINVAL, "start: the audit records leave out %zu chains", n - covered);
		of_record = record->n_chains > 0 ? record->n_chains : n;
		statement = ST_START_AUDITED;
	}
	int rc = sl__pg_call_open(&call, s, tx, n > BITE || n_audit > BITES_PER_RUN ? PG_LONG : PG_ONCE, err);
	if (rc != 0)
		return rc;
	while (n > 0 && rc == 0) {
		int at[BITES_PER_RUN], bites = 0;
		for (; bites < BITES_PER_RUN && n > 0; bites++) {
			if (of_record == 0 && ++record < end)
				of_record = record->n_chains > 0 ? record->n_chains : n;
			size_t bite = SL_MIN(SL_MIN(n, (size_t)BITE), of_record);
			if (one)
				add_one(&call.params, &list->chains[0].job);
			else
				add_chains(&call.params, &from, bite);
			if (record != NULL)
				sl__pg_add_record(&call.params, record);
			at[bites] = sl__pg_call_send(&call, statement);
			n -= bite;
			of_record -= bite;
		}
		rc = sl__pg_call_run(&call, n == 0, err);
		for (int i = 0; i < bites && rc == 0; i++)
			read_started(sl__pg_call_result(&call, at[i]), &to, &to_at);
		sl__pg_pipe_end(&call.pipe);
	}
	sl__pg_call_close(&call);
	return rc;
}

/* ---- sharing ---- */

/*
 * Start a single chain and notify other processes. Two transactions in one pipeline: the first makes the job visible and
 * notifies without waiting for the disk, the second waits until the log is flushed, and only then the start returns.
 * So a worker wakes up and claims while the start is being flushed. A claim is durable before its handler starts, and
 * the log is flushed in order, so no handler runs a job whose start could still be lost. NOTIFY holds a lock of the
 * whole server until its transaction ends, which is short because that one does not wait.
 * False: the notifier wants no notification, or the server refused it, and nothing was done.
 */
static bool start_and_notify(struct pg_store *s, struct waiting *w)
{
	struct pg_call call;
	struct sl_start_notification note;
	const struct sl_store_scope *l = w->scope;
	bool flushed = false;
	if (l == NULL || l->note == NULL || l->start_notification == NULL ||
	    l->start_notification(w->chains[0].job.type, &note, l->ctx) == 0)
		return false;
	w->rc = sl__pg_call_open(&call, s, NULL, PG_ONCE, &w->err);
	if (w->rc != 0)
		return true;
	add_one(&call.params, &w->chains[0].job);
	sl__pg_add_text(&call.params, note.channel);
	sl__pg_add_text(&call.params, note.before);
	sl__pg_add_text(&call.params, note.after);
	int at = sl__pg_call_send(&call, ST_START_NOTIFIED);
	w->rc = sl__pg_call_run_then(&call, ST_FLUSH, &flushed, &w->err);
	if (w->rc == 0) {
		read_started(sl__pg_call_result(&call, at), &(struct waiting *){w}, &(size_t){0});
		w->sent = true;
		if (!flushed)
			w->rc = sl_err_set(&w->err, SL_EUNAVAIL,
					   "postgres: start: the server was lost before the job was durable");
	}
	sl__pg_call_close(&call);
	return w->rc == 0 || w->rc == SL_EUNAVAIL;
}

/* Carry out a list that was taken, and leave every call its result. */
static void start_shared(struct pg_store *s, struct waiting *list, size_t n)
{
	struct sl_err err = SL_ERR_INIT;
	if (n == 1 && list->next == NULL && is_one_for_now(list, n)) {
		/* A single job that is due is started for an offer of this process, or with its notification. */
		struct pg_start_result r = {.err = SL_ERR_INIT};
		if (sl__pg_start_offered(s, &list->chains[0].job, &r)) {
			list->rc = r.rc;
			list->err = r.err;
			list->later[0] = false;
			list->offered = !r.queued;
			if (r.rc == 0)
				list->out[0] = (struct sl_started){.chain_id = r.chain_id};
			return;
		}
		if (start_and_notify(s, list))
			return;
	}
	int rc = start_list(s, NULL, list, n, &err);
	/* After a lost connection it is unknown whether it happened: no second time. */
	bool each = rc != 0 && rc != SL_EUNAVAIL && list->next != NULL;
	for (struct waiting *w = list, *next; w != NULL; w = next) {
		next = w->next;
		if (each) {
			w->next = NULL;
			w->rc = start_list(s, NULL, w, w->n, &w->err);
			w->next = next;
		} else {
			w->rc = rc;
			w->err = err;
		}
	}
}

/* Start the chains of a call, together with those of other calls, unless another thread does it for this one. */
static int start_joined(struct pg_store *s, struct waiting *me, struct sl_err *err)
{
	if (sl__join_enter(&s->starts, &me->in)) {
		struct sl__join_entry *all[SHARED_MAX];
		struct waiting *last = me;
		size_t n_calls = 1, n = me->n;
		all[0] = &me->in;
		sl__join_gather(&s->starts, GATHER_PART);
		while (n + SINGLE_MAX <= SHARED_MAX && (all[n_calls] = sl__join_next(&s->starts)) != NULL) {
			struct waiting *w = (struct waiting *)(void *)all[n_calls++];
			n += w->n;
			last->next = w;
			last = w;
		}
		start_shared(s, me, n);
		sl__join_end(&s->starts, all, n_calls);
	}
	if (me->rc != 0 && err != NULL)
		*err = me->err;
	return me->rc;
}

/* ---- the slot ---- */

int sl__pg_start(void *store, const struct sl_new_chain *chains, size_t n, const struct sl_store_scope *scope,
		 struct sl_started *out, struct sl_err *err)
{
	sl_store_tx *tx = sl__scope_tx(scope);
	struct pg_store *s = store;
	bool few[SINGLE_MAX], plain = true;
	int rc = 0;
	for (size_t i = 0; i < n; i++) {
		if (chains[i].job.type == NULL)
			return sl_err_set(err, SL_EINVAL, "postgres: start: chain %zu has no type", i);
		plain = plain && chains[i].key == NULL && chains[i].job.n_blockers == 0;
	}
	if (n == 0)
		return 0;
	if (!plain)
		return sl__pg_start_full(s, &(struct pg_start){tx, chains, n, out, scope}, err);
	struct waiting me = {.chains = chains, .n = n, .out = out, .later = few, .scope = scope};
	if (n > SINGLE_MAX)
		me.later = sl__calloc(&s->env, n, sizeof(*me.later));
	if (me.later == NULL)
		return sl_err_set(err, SL_ENOMEM, "postgres: start: out of memory");
	bool alone = tx != NULL || n > SINGLE_MAX || (scope != NULL && scope->n_audit > 0);
	rc = alone ? start_list(s, tx, &me, n, err) : start_joined(s, &me, err);
	/* Report the jobs. One that was started for an offer needs no notification; one whose notification went out is
	 * marked as sent. */
	for (size_t i = 0; rc == 0 && i < n; i++) {
		const char *type = chains[i].job.type;
		uint64_t id = out[i].chain_id;
		if (!me.offered && !me.sent) {
			sl__pg_report_created(scope, id, id, type,
					      me.later[i] ? PG_CREATED_SCHEDULED : PG_CREATED_READY);
			continue;
		}
		sl__report_change(scope, SL_CHANGE_CREATED, id, id, type);
		if (me.sent)
			scope->note(
				&(struct sl_note){.kind = SL_NOTE_JOB_SCHEDULED, .type = type, .id = id, .sent = true},
				scope->ctx);
	}
	if (me.later != few)
		sl__free(&s->env, me.later);
	return rc;
}
