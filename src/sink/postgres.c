/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The PostgreSQL sink: a lane is a connection. It is made by the first write and again after it was lost. A lost
 * connection to a server that can be reached again at once says nothing about the target: the batch is to be tried
 * again, uncharged. Whether the lost one had committed is not known: in a load the records show
 * (postgres_load.c), else appends may repeat then, and upserts not.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "sink/postgres.h"

#define CONNECT_TIMEOUT_MS 10000
#define STATEMENT_TIMEOUT_MS 60000
#define AGAIN_AFTER_MS 20

/* ---- the connection ---- */

static void set_connection(struct sl__pg_lane *lane, PGconn *pg)
{
	sl__lock(&lane->sink->mu);
	lane->pg = pg;
	sl__unlock(&lane->sink->mu);
}

void sl__pg_disconnect(struct sl__pg_lane *lane)
{
	PGconn *pg = lane->pg;
	set_connection(lane, NULL);
	if (pg != NULL)
		PQfinish(pg);
	lane->table_known = lane->broken = false;
	sl__buf_clear(&lane->prepared);
}

static int connect_lane(struct sl__pg_lane *lane, struct sl_err *err)
{
	struct sl__pg_sink *s = lane->sink;
	struct sl__pg_conn conn = {.env = &s->env};
	struct sl__pg_opts opts = {.env = &s->env,
				   .conninfo = s->conninfo,
				   .application = "sluice",
				   .settings = "SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD';"
					       "SET standard_conforming_strings = on;"
					       "SET idle_in_transaction_session_timeout = '10min';"
					       "SET client_connection_check_interval = '5s'",
				   .connect_timeout_ms = s->opts.connect_timeout_ms,
				   .statement_timeout_ms = s->opts.statement_timeout_ms};
	int rc = sl__pg_open(&conn, &opts, err);
	if (rc != 0)
		return sl__sink_class(err, rc, rc == SL_ENOMEM ? SL_CLASS_TRANSIENT : SL_CLASS_FATAL);
	if (PQsetnonblocking(conn.pg, 1) != 0) {
		rc = sl__pg_sink_error(err, conn.pg, NULL, "connect");
		PQfinish(conn.pg);
		return rc;
	}
	lane->pooled = conn.pooled;
	set_connection(lane, conn.pg);
	return 0;
}

int sl__pg_make_ready(struct sl__pg_lane *lane, struct sl_err *err)
{
	struct sl__pg_sink *s = lane->sink;
	int rc = lane->pg == NULL ? connect_lane(lane, err) : 0;
	if (rc != 0 || lane->table_known)
		return rc;
	rc = sl__pg_table_load(lane, err);
	if (rc != 0)
		return rc;
	/* A reader for its columns. */
	struct sl__row_opts opts = {.env = &s->env,
				    .csv = s->opts.format == SL_ROWS_CSV,
				    .columns = lane->table.names,
				    .n_columns = lane->table.n,
				    .null_text = s->opts.null_text,
				    .delimiter = s->opts.delimiter};
	sl__row_reader_free(lane->reader);
	lane->reader = NULL;
	struct sl__field *fields = sl__realloc(&s->env, lane->rows.fields, lane->table.n * sizeof(*fields));
	if (fields == NULL)
		return sl__no_memory(err, "postgres");
	lane->rows.fields = fields;
	rc = sl__row_reader_new(&lane->reader, &opts, err);
	lane->table_known = rc == 0;
	return rc;
}

bool sl__pg_is_cancelled(struct sl__pg_sink *s)
{
	sl__lock(&s->mu);
	bool yes = s->cancelled;
	sl__unlock(&s->mu);
	return yes;
}

/* ---- a batch ---- */

/* One attempt to write a batch. */
struct attempt {
	const struct sl_sink_batch *batch;
	struct sl__refusals refused;
	size_t culprit; /* the row that the server refused; SIZE_MAX: unknown */
};

/* Encode the rows and send them. With rows.unsure a value could not be encoded in binary, and nothing was sent. */
static int try_batch(struct sl__pg_lane *lane, struct attempt *a, bool text, struct sl_err *err)
{
	a->refused = (struct sl__refusals)SL__REFUSALS_INIT;
	a->culprit = SIZE_MAX;
	lane->rows.text = text;
	int rc = sl__pg_rows_fill(lane, a->batch, &a->refused, err);
	if (rc != 0 || lane->rows.unsure || lane->rows.n == 0)
		return rc;
	rc = sl__pg_load_record(lane, a->batch, err);
	if (rc != 0)
		return rc;
	return lane->sink->opts.n_on_conflict > 0 ? sl__pg_upsert(lane, err) : sl__pg_append(lane, &a->culprit, err);
}

/* Binary first, where every column has an encoding. */
static int write_ready(struct sl__pg_lane *lane, struct attempt *a, struct sl_err *err)
{
	int rc = try_batch(lane, a, !lane->table.binary, err);
	bool unsure = lane->rows.unsure, changed = false;
	/* A row may have been refused, or read as another type, because the table has changed: read the catalog again.
	 * 08P01: a value of another length than its type has. */
	bool shape_error = rc != 0 && (lane->changed || err->error_class == SL_CLASS_POISON ||
				       strncmp(err->sqlstate, "42", 2) == 0 || strcmp(err->sqlstate, "08P01") == 0);
	lane->changed = false;
	if (shape_error && !lane->broken && PQtransactionStatus(lane->pg) == PQTRANS_IDLE) {
		struct sl_err again = SL_ERR_INIT;
		int64_t shape = lane->table.shape;
		lane->table_known = false;
		int load_rc = sl__pg_make_ready(lane, &again);
		if (load_rc != 0) {
			*err = again;
			return load_rc;
		}
		changed = lane->table.shape != shape;
	}
	if (changed || (rc == 0 && unsure)) {
		rc = try_batch(lane, a, unsure || !lane->table.binary, err);
		unsure = lane->rows.unsure;
	}
	if (rc == 0 && unsure && changed)
		rc = try_batch(lane, a, true, err);
	return rc;
}

static bool is_lost(const struct sl__pg_lane *lane)
{
	return lane->pg == NULL || lane->broken || PQstatus(lane->pg) != CONNECTION_OK ||
	       PQtransactionStatus(lane->pg) != PQTRANS_IDLE;
}

/* After a failure: is the connection of use, and is it the target that is unavailable? */
static int after_failure(struct sl__pg_lane *lane, int rc, struct sl_err *err)
{
	bool lost = is_lost(lane);
	if (err->sqlstate[0] == '4' && err->sqlstate[1] == '2')
		lane->table_known = false;
	if (!lost)
		return rc;
	bool had = lane->pg != NULL;
	sl__pg_disconnect(lane);
	if (sl__pg_is_cancelled(lane->sink))
		return sl__sink_class(err, rc, SL_CLASS_TRANSIENT);
	if (!had || err->error_class != SL_CLASS_FATAL || rc == SL_ETIMEDOUT)
		return rc;
	struct sl_err away = SL_ERR_INIT;
	if (connect_lane(lane, &away) != 0) {
		*err = away;
		return away.code;
	}
	err->retry_after_ms = AGAIN_AFTER_MS;
	return sl__sink_class(err, rc, SL_CLASS_THROTTLED);
}

static int pg_write_batch(void *ctx, void *lane_ctx, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
			  struct sl_err *err)
{
	struct sl__pg_lane *lane = lane_ctx;
	struct attempt a = {.batch = batch, .refused = SL__REFUSALS_INIT, .culprit = SIZE_MAX};
	struct sl_err why = SL_ERR_INIT;
	bool cancelled = sl__pg_is_cancelled(lane->sink);
	(void)ctx;
	int rc = cancelled ? sl_err_set(&why, SL_ECANCELLED, "postgres: the write was cancelled") : 0;
	for (bool again = !cancelled; again;) {
		rc = sl__pg_make_ready(lane, &why);
		if (rc == 0)
			rc = sl__pg_load_enter(lane, batch, &why);
		if (rc == 0)
			rc = write_ready(lane, &a, &why);
		again = sl__pg_load_leave(lane, rc, rc != 0 && lane->pg != NULL && is_lost(lane));
	}
	if (rc == 0)
		return sl__refusals_reply(&a.refused, lane->rows.done, reply, 0, err);
	rc = after_failure(lane, rc, &why);
	if (why.error_class == SL_CLASS_NONE)
		(void)sl__sink_class(&why, rc, SL_CLASS_TRANSIENT);
	if (why.error_class == SL_CLASS_POISON && a.culprit < lane->rows.n)
		reply->culprit = lane->rows.item[a.culprit];
	if (err != NULL)
		*err = why;
	return rc;
}

/* A lane that waits for the server wakes up: its socket is closed. */
static void pg_cancel(void *ctx)
{
	struct sl__pg_sink *s = ctx;
	sl__lock(&s->mu);
	s->cancelled = true;
	for (struct sl__pg_lane *l = s->lanes; l != NULL; l = l->next)
		if (l->pg != NULL && PQsocket(l->pg) >= 0)
			(void)shutdown(PQsocket(l->pg), SHUT_RDWR);
	sl__unlock(&s->mu);
}

/* ---- lanes ---- */

int sl__pg_attach(void *ctx, void **out, struct sl_err *err)
{
	struct sl__pg_sink *s = ctx;
	struct sl__pg_lane *lane = sl__calloc(&s->env, 1, sizeof(*lane));
	if (lane == NULL)
		return sl__no_memory(err, "postgres");
	lane->sink = s;
	sl__buf_init(&lane->out, &s->env);
	sl__buf_init(&lane->prepared, &s->env);
	sl__buf_init(&lane->rows.buf, &s->env);
	sl__buf_init(&lane->rows.have, &s->env);
	sl__buf_init(&lane->record, &s->env);
	sl__ranges_init(&lane->written, &s->env);
	sl__ranges_init(&lane->dead, &s->env);
	sl__lock(&s->mu);
	lane->next = s->lanes;
	s->lanes = lane;
	sl__unlock(&s->mu);
	*out = lane;
	return 0;
}

void sl__pg_detach(void *ctx, void *lane_ctx)
{
	struct sl__pg_sink *s = ctx;
	struct sl__pg_lane *lane = lane_ctx, **at = &s->lanes;
	sl__pg_disconnect(lane);
	sl__lock(&s->mu);
	while (*at != lane)
		at = &(*at)->next;
	*at = lane->next;
	sl__unlock(&s->mu);
	sl__pg_table_fini(&lane->table);
	sl__row_reader_free(lane->reader);
	sl__pg_rows_fini(&lane->rows, &s->env);
	sl__buf_fini(&lane->out);
	sl__buf_fini(&lane->prepared);
	sl__buf_fini(&lane->record);
	sl__ranges_fini(&lane->written);
	sl__ranges_fini(&lane->dead);
	sl__free(&s->env, lane);
}

static int pg_check(void *ctx, struct sl_err *err)
{
	void *lane;
	int rc = sl__pg_attach(ctx, &lane, err);
	if (rc != 0)
		return rc;
	rc = sl__pg_make_ready(lane, err);
	if (rc == 0)
		rc = sl__pg_try(lane, err);
	sl__pg_detach(ctx, lane);
	return rc;
}

/* ---- the handle ---- */

static const char *pg_target(void *ctx)
{
	return ((struct sl__pg_sink *)ctx)->target;
}

static void pg_close(void *ctx)
{
	struct sl__pg_sink *s = ctx;
	struct sl_env env = s->env;
	if (s->c_locale != (locale_t)0)
		freelocale(s->c_locale);
	sl__mutex_fini(&s->mu);
	sl__mutex_fini(&s->load_mu);
	sl__load_fini(&s->load);
	sl__free(&env, s->load_schema);
	sl__sink_free_opts(&s->opts, &env);
	sl__free(&env, s->conninfo);
	sl__free(&env, s->table);
	sl__free(&env, s->bare);
	sl__free(&env, s->target);
	sl__free(&env, s);
}

static const struct sl_sink_ops postgres_ops = {.version = SL_SINK_VERSION,
						.name = "postgres",
						.attach = sl__pg_attach,
						.detach = sl__pg_detach,
						.write = pg_write_batch,
						.check = pg_check,
						.cancel = pg_cancel,
						.close = pg_close,
						.target = pg_target,
						.key = sl__pg_key,
						.load_begin = sl__pg_load_begin,
						.load_dead = sl__pg_load_dead,
						.load_end = sl__pg_load_end};

static void put_url_escaped(struct sl__buf *out, const char *text)
{
	for (; *text != '\0'; text++) {
		bool plain = isalnum((unsigned char)*text) || strchr("-._~/,", *text) != NULL;
		(void)(plain ? sl__buf_append(out, text, 1) : sl__buf_printf(out, "%%%02X", (unsigned char)*text));
	}
}

static const char *value_of(const PQconninfoOption *all, const char *keyword)
{
	for (; all->keyword != NULL; all++)
		if (strcmp(all->keyword, keyword) == 0)
			return all->val;
	return NULL;
}

/* postgres://user@host:port/database, and as a query everything else that was given: the whole of it opens the same
 * database again. Never a password. A folder for a host, and several hosts, have no place before the database.
 * Fresh memory; NULL without memory (the conninfo was checked before). */
static char *describe_target(const struct sl_env *env, const char *conninfo)
{
	static const char *const placed[] = {"user", "dbname", "host", "port"};
	PQconninfoOption *all = PQconninfoParse(conninfo, NULL);
	struct sl__buf out;
	if (all == NULL)
		return NULL;
	const char *user = value_of(all, "user"), *host = value_of(all, "host"), *port = value_of(all, "port"),
		   *database = value_of(all, "dbname"), *before = "?";
	bool one_host = host == NULL || (host[0] != '/' && strpbrk(host, ",:") == NULL);
	sl__buf_init(&out, env);
	(void)sl__buf_str_append(&out, "postgres://");
	put_url_escaped(&out, user != NULL ? user : "");
	(void)sl__buf_str_append(&out, user != NULL ? "@" : "");
	put_url_escaped(&out, host != NULL && one_host ? host : "");
	(void)sl__buf_str_append(&out, port != NULL && one_host ? ":" : "");
	put_url_escaped(&out, port != NULL && one_host ? port : "");
	(void)sl__buf_str_append(&out, "/");
	put_url_escaped(&out, database != NULL ? database : "");
	for (const PQconninfoOption *o = all; o->keyword != NULL; o++) {
		bool known = false;
		for (size_t i = 0; i < (one_host ? 4 : 2); i++)
			known = known || strcmp(o->keyword, placed[i]) == 0;
		if (known || o->val == NULL || strchr(o->dispchar, '*') != NULL)
			continue;
		(void)sl__buf_printf(&out, "%s%s=", before, o->keyword);
		put_url_escaped(&out, o->val);
		before = "&";
	}
	PQconninfoFree(all);
	char *text = sl__buf_append(&out, "", 1) == 0 ? sl__strdup(env, out.data) : NULL;
	sl__buf_fini(&out);
	return text;
}

int sl_sink_postgres_open(sl_sink *out, const char *conninfo, const struct sl_sink_opts *opts, struct sl_err *err)
{
	struct sl_env env;
	int rc = sl__sink_check_opts(opts, SL__SINK_ROWS | SL__SINK_TABLE, "postgres", &env, err);
	if (rc == 0)
		rc = sl__pg_check_conninfo(conninfo, err);
	if (rc != 0)
		return rc;
	if (opts == NULL || opts->table == NULL || opts->table[0] == '\0')
		return sl_err_set(err, SL_EINVAL, "postgres: table: missing; give the table to write to");
	struct sl__pg_sink *s = sl__calloc(&env, 1, sizeof(*s));
	if (s == NULL)
		return sl__no_memory(err, "postgres");
	s->env = env;
	sl__mutex_init(&s->mu);
	sl__mutex_init(&s->load_mu);
	sl__load_init(&s->load, &s->env);
	rc = sl__sink_copy_opts(&s->opts, opts, &s->env, err);
	if (rc != 0) {
		pg_close(s);
		return rc;
	}
	if (s->opts.connect_timeout_ms == 0)
		s->opts.connect_timeout_ms = CONNECT_TIMEOUT_MS;
	if (s->opts.statement_timeout_ms == 0)
		s->opts.statement_timeout_ms = STATEMENT_TIMEOUT_MS;
	const char *dot = strchr(s->opts.table, '.');
	s->conninfo = sl__strdup(&s->env, conninfo);
	s->table = sl__pg_quoted_table(&s->env, s->opts.table);
	s->bare = sl__strdup(&s->env, dot != NULL ? dot + 1 : s->opts.table);
	s->target = describe_target(&s->env, conninfo);
	s->c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
	if (s->conninfo == NULL || s->table == NULL || s->bare == NULL || s->target == NULL ||
	    s->c_locale == (locale_t)0) {
		pg_close(s);
		return sl__no_memory(err, "postgres");
	}
	*out = (sl_sink){.ops = &postgres_ops, .ctx = s};
	return 0;
}
