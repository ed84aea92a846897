/* SPDX-License-Identifier: Apache-2.0 */
/* Delivery: options of the target, batches of the log as requests or rows, and what became of them. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/compare.h"
#include "base/fnv.h"
#include "ship/log.h"
#include "ship/send.h"
#include <sluice/coordinator.h>

/* ---- the URL ---- */

static bool is_http(const char *url)
{
	return sl__starts_with(url, "http://") || sl__starts_with(url, "https://");
}

static bool is_table(const char *url)
{
	return sl__starts_with(url, "postgres") || sl__starts_with(url, "sqlite:");
}

/* The '@' after a login in the authority of an HTTP URL, or NULL. */
static const char *login_end(const char *url)
{
	const char *host = strstr(url, "://") + 3;

	return memrchr(host, '@', strcspn(host, "/?#"));
}

/* The target of a sink: a path means the same from any folder. */
static void name_sink(struct ship_send *s, const char *shown)
{
	const char *colon = strchr(shown, ':');
	char here[PATH_MAX] = "";
	bool is_path = sl__starts_with(shown, "sqlite:") || sl__starts_with(shown, "file:");
	size_t n;

	if (is_path && colon[1] != '/' && getcwd(here, sizeof(here)) != NULL)
		(void)snprintf(s->target, sizeof(s->target), "%.*s%s/%s", (int)(colon + 1 - shown), shown, here,
			       colon + 1);
	else
		(void)snprintf(s->target, sizeof(s->target), "%s", shown);
	n = strlen(s->target);
	if (s->opts.table != NULL)
		(void)snprintf(s->target + n, sizeof(s->target) - n, "#%s", s->opts.table);
}

/* ---- options ---- */

/* Options that the target has no use for. */
static int check_options(const struct ship_send *s, const struct sl_ship_opts *o, struct sl_err *err)
{
	bool table = is_table(s->url), http = is_http(s->url), rows = o->as_rows == SL_ON || o->body;
	const struct {
		const char *name;
		bool wrong;
		const char *use;
	} rules[] = {
		{"table", !table && o->table != NULL, "only for databases"},
		{"create", !table && o->create == SL_ON, "only for databases"},
		{"on_conflict", !table && (o->n_on_conflict || o->upsert == SL_OFF), "only for databases"},
		{"columns", s->server && o->n_columns, "only for rows; a Sluice server accepts unmodified lines"},
		{"body", !http && rows, "only for http:// and https://"},
		{"token_file", !http && o->token_file != NULL, "only for http:// and https://"},
		{"ca_file", !http && o->ca_file != NULL, "only for http:// and https://"},
		{"body", s->server && rows, "only for an endpoint that is not a Sluice server"},
	};

	for (size_t i = 0; i < SL_COUNT(rules); i++)
		if (rules[i].wrong)
			return sl_err_set(err, SL_EINVAL, "%s: %s", rules[i].name, rules[i].use);
	return 0;
}

static int create_table(struct ship_send *s, struct sl_err *err)
{
	struct sl_column columns[SHIP_ROW_COLUMNS];
	size_t n = 0;

	for (int i = 0; i < SHIP_ROW_COLUMNS; i++)
		if (s->members & 1U << i)
			columns[n++] = sl__ship_row_columns[i];
	return sl_sink_create_table(s->url, &s->opts, columns, n, err);
}

static int open_server(struct ship_send *s, const struct sl_ship_opts *o, struct sl_err *err)
{
	const char *host = strstr(s->url, "://") + 3, *at = login_end(s->url);
	struct sl_event_http_opts http = {
		SL_EVENT_HTTP_OPTS_INIT, .env = s->env,
		.url = s->url,           .token_file = o->token_file,
		.ca_file = o->ca_file,   .token = o->token_file != NULL || at != NULL ? NULL : o->token};
	size_t n;

	/* The URL without its login. */
	(void)snprintf(s->target, sizeof(s->target), "%.*s%s", (int)(host - s->url), s->url,
		       at != NULL ? at + 1 : host);
	n = strlen(s->target);
	if (n && s->target[n - 1] == '/')
		s->target[n - 1] = '\0';
	int rc = sl_event_http_sender_new(&s->http, &http, err);

	if (rc != 0)
		return sl_err_wrap(err, rc, "to");
	return 0;
}

static int open_sink(struct ship_send *s, const struct sl_ship_opts *o, struct sl_err *err)
{
	static const char *const key[] = {"stream", "incarnation", "sequence"};
	const char *unknown = NULL, *headers[1];
	char *header = NULL;
	int rc = 0;

	s->members = sl__ship_row_members(o->columns, o->n_columns, &unknown);
	if (!s->members)
		return sl_err_set(err, SL_EINVAL, "columns: no column '%.60s'", unknown);
	s->opts = (struct sl_sink_opts){SL_SINK_OPTS_INIT, .env = s->env, .body = o->body, .token_file = o->token_file,
					.ca_file = o->ca_file};
	if (is_table(s->url)) {
		s->opts.table = sl__strdup(s->env, o->table != NULL ? o->table : "shipped_lines");
		if (s->opts.table == NULL)
			return sl__no_memory(err, "table");
	}
	if (is_table(s->url) && o->upsert != SL_OFF) {
		size_t n = o->n_on_conflict ? o->n_on_conflict : SL_COUNT(key), of_record = 0;

		s->opts.on_conflict = sl__strdup_list(s->env, o->n_on_conflict ? o->on_conflict : key, n);
		if (s->opts.on_conflict == NULL)
			return sl__no_memory(err, "on_conflict");
		s->opts.n_on_conflict = n;
		/* When the key names the record, a row is a line, forever: what is there under its key is the same
		 * line, or another log's. A key of what is in the line is the user's own, and its last line counts. */
		for (size_t i = 0; i < n; i++)
			for (size_t k = 0; k < SL_COUNT(key); k++)
				of_record += strcmp(s->opts.on_conflict[i], key[k]) == 0;
		s->opts.immutable_rows = of_record == n ? SL_ON : SL_DEFAULT;
	}
	if (o->token != NULL && is_http(s->url) && o->token_file == NULL) {
		header = sl__asprintf(s->env, "Authorization: Bearer %s", o->token);
		if (header == NULL)
			return sl__no_memory(err, "token");
		headers[0] = header;
		s->opts.headers = headers;
		s->opts.n_headers = 1;
	}
	if (s->create && sl__starts_with(s->url, "sqlite:"))
		rc = create_table(s, err); /* its file must exist to be opened */
	if (rc == 0)
		rc = sl_sink_open(&s->sink, s->url, &s->opts, err);

	/* What stays is what create_table needs later. */
	s->opts.headers = NULL;
	s->opts.n_headers = 0;
	s->opts.token_file = s->opts.ca_file = NULL;
	sl__free(s->env, header);
	if (rc != 0)
		return sl_err_wrap(err, rc, "to");
	name_sink(s, sl_sink_target(&s->sink));
	return 0;
}

int sl__ship_send_open(struct ship_send *s, const struct sl_env *env, const struct sl_ship_opts *opts,
		       struct sl_err *err)
{
	bool named = sl__starts_with(opts->to, "sluice:"), bare, rows = opts->as_rows == SL_ON || opts->body;
	const char *host;
	int rc;

	*s = (struct ship_send){.env = env, .rows.env = env, .create = opts->create == SL_ON};
	sl__mutex_init(&s->mu);
	s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->wake < 0)
		return sl_err_set_errno(err, errno, "eventfd");
	if ((size_t)snprintf(s->url, sizeof(s->url), "%s", named ? opts->to + 7 : opts->to) >= sizeof(s->url))
		return sl_err_set(err, SL_EINVAL, "to: the URL is too long");
	if (named && !is_http(s->url))
		return sl_err_set(err, SL_EINVAL, "to: 'sluice:' needs the URL of a server, http://… or https://…");
	host = is_http(s->url) ? strstr(s->url, "://") + 3 : s->url;
	host += strcspn(host, "/?#");
	bare = !*host || strcmp(host, "/") == 0; /* no path after the host, or only a slash */
	s->server = is_http(s->url) && (named || (bare && !rows));
	rc = check_options(s, opts, err);
	if (rc != 0)
		return rc;
	return s->server ? open_server(s, opts, err) : open_sink(s, opts, err);
}

/* ---- writing rows ---- */

/* Create the table when that is wanted, and check it. */
static int prepare_sink(struct ship_send *s, struct sl_err *err)
{
	int rc = 0;

	if (s->ready)
		return 0;
	if (s->create)
		rc = create_table(s, err);
	if (rc == 0 && s->sink.ops->check != NULL)
		rc = s->sink.ops->check(s->sink.ctx, err);
	s->ready = rc == 0;
	return rc;
}

static void detach_lane(struct ship_send *s)
{
	if (s->attached && s->sink.ops->detach != NULL)
		s->sink.ops->detach(s->sink.ctx, s->lane);
	s->attached = false;
}

/* Records above the mark as items. *skipped: how many of the first are in the target already. */
static int make_items(struct ship_send *s, const struct sl_wal_batch *b, size_t *skipped, struct sl_wal_reply *reply,
		      struct sl_err *err)
{
	size_t at = 0;

	sl__free(s->env, s->items);
	sl__free(s->env, s->outcomes);
	s->items = sl__calloc(s->env, b->n_records + 1, sizeof(*s->items));
	s->outcomes = sl__calloc(s->env, b->n_records + 1, 1);
	sl__buf_clear(&s->rows);
	for (*skipped = 0; *skipped < b->n_records && b->records[*skipped].sequence <= s->mark; ++*skipped) {
	}
	if (s->items == NULL || s->outcomes == NULL)
		return sl__no_memory(err, "rows");
	for (size_t i = *skipped; i < b->n_records; i++) {
		size_t from = s->rows.len;
		int rc = sl__ship_row_write(&s->rows, s->members, b, &b->records[i], err);

		if (rc == SL_EDATA) {
			reply->refused = b->records[i].sequence;
			return SL_EREFUSED;
		}
		if (rc != 0)
			return rc;
		s->items[i - *skipped] =
			(struct sl_sink_item){.len = s->rows.len - from, .position = b->records[i].sequence};
	}
	/* The buffer does not move any more. */
	for (size_t i = *skipped; i < b->n_records; i++) {
		s->items[i - *skipped].data = s->rows.data + at;
		at += s->items[i - *skipped].len;
	}
	return 0;
}

/* The same for the same records: an endpoint that remembers keys takes them once. */
static void name_batch(uint8_t id[16], const struct sl_wal_batch *b, size_t first)
{
	char text[512];
	uint64_t h[2];
	int n = snprintf(text, sizeof(text), "%.255s %u %llu %llu", b->stream, b->incarnation,
			 (unsigned long long)b->records[first].sequence,
			 (unsigned long long)b->records[b->n_records - 1].sequence);

	h[0] = sl__fnv(text, (size_t)n);
	h[1] = 0;
	for (size_t i = first; i < b->n_records; i++) { /* of another log, the same numbers are other records */
		h[1] ^= b->records[i].crc;
		h[1] = sl__fnv(&h[1], sizeof(h[1]));
	}
	memcpy(id, h, 16);
}

static int write_rows(struct ship_send *s, const struct sl_wal_batch *b, struct sl_wal_reply *reply, struct sl_err *err)
{
	struct sl_sink_batch batch = {.ordered = true};
	struct sl_sink_reply got = {.culprit = SL_SINK_NO_CULPRIT};
	size_t skipped = 0;
	int rc = prepare_sink(s, err);

	if (rc != 0)
		return rc;
	rc = make_items(s, b, &skipped, reply, err);
	if (rc != 0 || skipped == b->n_records)
		return rc;
	batch.items = s->items;
	batch.n = b->n_records - skipped;
	got.outcomes = s->outcomes;
	name_batch(batch.id, b, skipped);
	if (!s->attached) {
		s->lane = s->sink.ctx;
		rc = s->sink.ops->attach != NULL ? s->sink.ops->attach(s->sink.ctx, &s->lane, err) : 0;
		s->attached = rc == 0;
	}
	if (rc == 0)
		rc = s->sink.ops->write(s->sink.ctx, s->lane, &batch, &got, err);
	if (rc == 0)
		return 0;

	/* What the failure means to the sender of the log: only a refusal parks a record, only it is final. */
	err->code = rc;
	if (rc == SL_ECONFLICT)
		return rc; /* another log's lines are there: the sender starts a new incarnation */
	if (err->error_class == SL_CLASS_NONE)
		err->error_class = sl_default_retry_classifier(err, NULL);
	if (err->error_class != SL_CLASS_POISON) {
		if (err->error_class == SL_CLASS_FATAL)
			detach_lane(s); /* a broken connection is opened again */
		return rc == SL_EREFUSED ? SL_EAGAIN : rc;
	}
	for (size_t i = 0; i < batch.n && !reply->refused; i++)
		if (got.culprit == i || got.outcomes[i] == SL_SINK_POISON)
			reply->refused = b->records[skipped + i].sequence;
	if (!reply->refused && batch.n == 1)
		reply->refused = b->records[skipped].sequence;
	return SL_EREFUSED;
}

/* The mark of a target that keeps none is what the log recorded. */
static int send_rows(struct ship_send *s, const struct sl_wal_batch *b, struct sl_wal_reply *reply, struct sl_err *err)
{
	uint64_t last = b->n_records ? b->records[b->n_records - 1].sequence : 0;

	if (s->foreign && s->foreign == b->incarnation && (!b->n_records || last > s->mark))
		return sl_err_set(err, SL_ECONFLICT, "%.150s has other lines of this stream", s->target);
	if (b->n_records) {
		int rc = write_rows(s, b, reply, err);

		if (rc != 0)
			return rc;
	}
	for (size_t i = 0; i < b->n_skipped; i++)
		last = SL_MAX(b->skipped[i].last, last);
	s->mark = SL_MAX(last, s->mark);
	reply->mark = s->mark;
	return 0;
}

/* ---- the sender ---- */

static int64_t now_ms(const struct ship_send *s)
{
	return sl__mono_ns(s->env) / 1000000;
}

static int on_send(const struct sl_wal_batch *batch, struct sl_wal_reply *reply, struct sl_err *err, void *ctx)
{
	struct ship_send *s = ctx;
	struct ship_progress *p = &s->progress;
	struct sl_err why = SL_ERR_INIT;
	int rc = s->server ? sl_event_http_sender_ops()->send(batch, reply, &why, s->http)
			   : send_rows(s, batch, reply, &why);
	bool failed = rc != 0 && rc != SL_EREFUSED;
	size_t again = 0;
	uint64_t one = 1;

	if (failed && !why.code)
		why.code = rc;
	/* What was acknowledged before this run, and is sent again, does not count. */
	while (again < batch->n_records && batch->records[again].sequence < s->first)
		again++;
	sl__lock(&s->mu);
	if (rc == 0) {
		p->delivered += batch->n_records - again;
		p->mark = reply->mark;
	}
	if (failed && !p->trouble.code)
		p->failing_ms = now_ms(s);
	p->trouble = failed ? why : (struct sl_err)SL_ERR_INIT;
	if (!failed && batch->n_records > again) /* without lines a sink is not called */
		p->answered = true;
	sl__unlock(&s->mu);
	(void)!write(s->wake, &one, sizeof(one));
	if (rc != 0 && err != NULL)
		*err = why;
	return rc;
}

static void on_cancel(void *ctx)
{
	struct ship_send *s = ctx;

	if (s->server && sl_event_http_sender_ops()->cancel != NULL)
		sl_event_http_sender_ops()->cancel(s->http);
	else if (!s->server && s->sink.ops->cancel != NULL)
		s->sink.ops->cancel(s->sink.ctx);
}

static const struct sl_wal_sender sender = {.version = SL_WAL_SENDER_VERSION, .send = on_send, .cancel = on_cancel};

int sl__ship_send_check(struct ship_send *s, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	char id[33];
	int rc = s->server ? sl_event_http_sender_target(s->http, id, &why) : prepare_sink(s, &why);

	if (rc == 0)
		return 0;
	if (rc == SL_EUNAVAIL || rc == SL_ETIMEDOUT || rc == SL_EAGAIN) {
		sl__log_text(s->env, SL_LOG_WARN, "ship", "%s; lines wait for it in the log", why.msg);
		return 0;
	}
	/* A missing table, or the file of a database; a server that refuses the token will not accept it later. */
	if (rc == SL_ENOENT || (s->server && rc == SL_EACCES))
		rc = SL_ECONFIG;
	why.code = rc;
	if (err != NULL)
		*err = why;
	return sl_err_wrap(err, rc, "to");
}

/* Is the row the one of the log's record with its sequence? */
static bool is_own_row(struct ship_send *s, sl_wal *w, const struct sl_wal_stats *stats, const char *stream,
		       const struct ship_last_row *last)
{
	struct sl_wal_batch batch = {.stream = stream, .incarnation = stats->sent_incarnation};
	SL_CLEANUP(sl__buf_fini) struct sl__buf own = {.env = s->env};
	struct sl_wal_record record;
	bool same;

	if (last->sequence > stats->last_sequence || sl_wal_read(w, last->sequence, &record, NULL))
		return false;
	same = sl__ship_row_write(&own, s->members, &batch, &record, NULL) == 0 && own.len == last->len &&
	       memcmp(own.data, last->row, last->len) == 0;
	sl_wal_record_free(w, &record);
	return same;
}

int sl__ship_send_start(struct ship_send *s, sl_wal *w, const char *stream, uint64_t pending, struct sl_err *err)
{
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	struct ship_last_row last = {.sequence = 0};
	int rc = sl_wal_get_stats(w, &stats, err);

	if (rc != 0)
		return rc;
	s->first = pending;
	s->mark = pending - 1;
	s->foreign = 0;
	if (sl__starts_with(s->url, "file:"))
		last = sl__ship_row_last(s->env, s->url + 5, stream, stats.sent_incarnation);
	/* What the file has and the log has not recorded was written before a crash, or by another log. */
	if (last.sequence > s->mark && is_own_row(s, w, &stats, stream, &last))
		s->mark = last.sequence;
	else if (last.sequence > s->mark)
		s->foreign = stats.sent_incarnation;
	sl__free(s->env, last.row);
	return sl_wal_sender_start(w, &sender, s, err);
}

struct ship_progress sl__ship_send_get(struct ship_send *s)
{
	struct ship_progress progress;

	sl__lock(&s->mu);
	progress = s->progress;
	sl__unlock(&s->mu);
	progress.failing_ms = progress.trouble.code ? now_ms(s) - progress.failing_ms : 0;
	return progress;
}

void sl__ship_send_close(struct ship_send *s)
{
	union {
		const void *in;
		void *out;
	} table = {.in = s->opts.table}, key = {.in = s->opts.on_conflict};

	if (s->env == NULL)
		return;
	detach_lane(s);
	sl_sink_close(&s->sink);
	sl_event_http_sender_free(s->http);
	sl__free(s->env, table.out);
	sl__free(s->env, key.out);
	sl__buf_fini(&s->rows);
	sl__free(s->env, s->items);
	sl__free(s->env, s->outcomes);
	if (s->wake >= 0)
		(void)close(s->wake);
	sl__mutex_fini(&s->mu);
	s->env = NULL;
}
