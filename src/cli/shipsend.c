/* SPDX-License-Identifier: Apache-2.0 */
#include "shipsend.h"

#include "server/thread.h"
#include "shiprow.h"

#include <errno.h>
#include <limits.h>
#include <sluice/coordinator.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- the URL ---- */

static int is_http(const char *url)
{
	return strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0;
}

/* No path behind the host, or only a slash. */
static int is_bare(const char *url)
{
	const char *host = strstr(url, "://") + 3;
	const char *path = host + strcspn(host, "/?#");

	return !*path || strcmp(path, "/") == 0;
}

static int is_table(const char *url)
{
	return strncmp(url, "postgres", 8) == 0 || strncmp(url, "sqlite:", 7) == 0;
}

/* A path means the same from any folder. */
static void name_target(struct shipsend *s, const char *shown)
{
	const char *colon = strchr(shown, ':');
	char here[PATH_MAX] = "";
	int is_path = strncmp(shown, "sqlite:", 7) == 0 || strncmp(shown, "file:", 5) == 0;

	if (is_path && colon[1] != '/' && getcwd(here, sizeof(here)))
		(void)snprintf(s->target, sizeof(s->target), "%.*s%s/%s", (int)(colon + 1 - shown), shown, here,
			       colon + 1);
	else
		(void)snprintf(s->target, sizeof(s->target), "%s", shown);
	if (s->to.opts.table) {
		size_t n = strlen(s->target);

		(void)snprintf(s->target + n, sizeof(s->target) - n, "#%s", s->to.opts.table);
	}
}

/* The URL of a server without what may stand before an '@'. */
static void name_server(struct shipsend *s)
{
	const char *host = strstr(s->url, "://") + 3, *at = memrchr(host, '@', strcspn(host, "/?#"));
	size_t n;

	(void)snprintf(s->target, sizeof(s->target), "%.*s%s", (int)(host - s->url), s->url, at ? at + 1 : host);
	n = strlen(s->target);
	if (n && s->target[n - 1] == '/')
		s->target[n - 1] = '\0';
}

/* ---- options ---- */

static int set_list(struct shipsend *s, const char *name, const char *text, const char ***list, size_t *n)
{
	int rc = loadsink_split(text, list, n);
	struct sl_err err = SL_ERR_INIT;

	if (rc == SL_ENOMEM) {
		(void)sl_err_set(&err, SL_ENOMEM, "no memory for a list of columns");
		return cli_fail(s->cli, &err, "ship");
	}
	return rc == 0 ? 0 : cli_usage(s->cli, "--%s: '%s' is not a list of columns like a,b", name, text);
}

/* Does the key name the record? Then a row is a line, for ever: what is there under its key is the same line, or
 * another log's. A key of what is in the line is the user's own, and the last line of it counts. */
static int names_record(const char *const *key, size_t n)
{
	static const char *const own[] = {"stream", "incarnation", "sequence"};
	size_t found = 0;

	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < sizeof(own) / sizeof(own[0]); k++)
			found += strcmp(key[i], own[k]) == 0;
	return n && found == n;
}

static int set_lists(struct shipsend *s)
{
	const char *key = opt_str(s->args, "on-conflict"), *columns = opt_str(s->args, "columns"), *unknown = NULL;
	int rc = is_table(s->url) && *key ? set_list(s, "on-conflict", key, &s->to.lists[1], &s->to.opts.n_on_conflict)
					  : 0;

	s->to.opts.on_conflict = s->to.lists[1];
	s->to.opts.immutable_rows = names_record(s->to.opts.on_conflict, s->to.opts.n_on_conflict) ? SL_ON : SL_DEFAULT;
	if (rc == 0 && columns)
		rc = set_list(s, "columns", columns, &s->to.lists[0], &s->to.opts.n_columns);
	if (rc != 0)
		return rc;
	s->members = shiprow_members(s->to.lists[0], s->to.opts.n_columns, &unknown);
	s->to.opts.n_columns = 0; /* members of objects name their columns themselves */
	return s->members ? 0 : cli_usage(s->cli, "--columns: there is no '%.60s'", unknown);
}

static int check_options(const struct shipsend *s)
{
	static const char *const of_tables[] = {"table", "create", "on-conflict"};

	for (size_t i = 0; i < sizeof(of_tables) / sizeof(of_tables[0]); i++)
		if (!is_table(s->url) && opt_given(s->args, of_tables[i]))
			return cli_usage(s->cli, "--%s is for databases", of_tables[i]);
	if (s->server && opt_given(s->args, "columns"))
		return cli_usage(s->cli, "--columns is for rows; a Sluice server takes lines as they are");
	if (!is_http(s->url) &&
	    (opt_given(s->args, "body") || opt_given(s->args, "token-file") || opt_given(s->args, "ca-file")))
		return cli_usage(s->cli, "--body, --token-file and --ca-file are for http:// and https://");
	if (s->server && opt_given(s->args, "body"))
		return cli_usage(s->cli, "--body is for an endpoint that is no Sluice server");
	return 0;
}

/* A password between ':' and '@' of the authority, which others can read in the list of processes. */
static void warn_of_password(const struct shipsend *s)
{
	const char *host = strstr(s->url, "://");
	const char *at = host ? strchr(host + 3, '@') : NULL, *colon = host ? strchr(host + 3, ':') : NULL;

	if (at && colon && colon < at && strncmp(s->url, "exec:", 5))
		cli_say(s->cli, SL_LOG_WARN,
			"the password in --to can be seen by every user of this machine; use PGPASSWORD, a password "
			"file or --token-file");
}

static int create(struct shipsend *s, struct sl_err *err)
{
	struct sl_column columns[SHIPROW_COLUMNS];
	size_t n = 0;

	for (int i = 0; i < SHIPROW_COLUMNS; i++)
		if (s->members & 1U << i)
			columns[n++] = shiprow_columns[i];
	return sl_sink_create_table(s->url, &s->to.opts, columns, n, err);
}

/* As for an endpoint: the environment's, without a file and without a password in the URL. */
static const char *token_of_environment(const struct shipsend *s)
{
	const char *token = getenv("SLUICE_HTTP_TOKEN");
	const char *host = strstr(s->url, "://") + 3;

	if (!token || !*token || opt_str(s->args, "token-file") || memchr(host, '@', strcspn(host, "/?#")))
		return NULL;
	return token;
}

static int open_server(struct shipsend *s)
{
	struct sl_event_http_opts opts = {SL_EVENT_HTTP_OPTS_INIT,
					  .env = &s->cli->env,
					  .url = s->url,
					  .token_file = opt_str(s->args, "token-file"),
					  .ca_file = opt_str(s->args, "ca-file"),
					  .token = token_of_environment(s)};
	struct sl_err err = SL_ERR_INIT;

	name_server(s);
	return sl_event_http_sender_new(&s->http, &opts, &err) ? cli_fail(s->cli, &err, "--to") : 0;
}

static int open_sink(struct shipsend *s)
{
	struct sl_err err = SL_ERR_INIT;
	int rc = set_lists(s);

	if (rc)
		return rc;
	s->to.url = s->url;
	s->to.opts.struct_size = sizeof(s->to.opts);
	s->to.opts.env = &s->cli->env;
	s->to.opts.table = is_table(s->url) ? opt_str(s->args, "table") : NULL;
	s->to.opts.body = (enum sl_http_body)opt_num(s->args, "body");
	s->to.opts.token_file = opt_str(s->args, "token-file");
	s->to.opts.ca_file = opt_str(s->args, "ca-file");
	if (loadsink_take_token(&s->to, s->url))
		rc = sl_err_set(&err, SL_ENOMEM, "out of memory");
	if (!rc && opt_flag(s->args, "create") && strncmp(s->url, "sqlite:", 7) == 0)
		rc = create(s, &err); /* its file must be there to be opened */
	rc = rc ? rc : sl_sink_open(&s->sink, s->url, &s->to.opts, &err);
	if (rc)
		return cli_fail(s->cli, &err, "--to");
	name_target(s, sl_sink_target(&s->sink));
	return 0;
}

int shipsend_open(struct shipsend *s, struct cli *cli, const struct parsed *args)
{
	const char *url = opt_str(args, "to");
	int named = strncmp(url, "sluice:", 7) == 0, rc;

	*s = (struct shipsend){.cli = cli, .args = args};
	(void)pthread_mutex_init(&s->mu, NULL);
	s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if ((size_t)snprintf(s->url, sizeof(s->url), "%s", named ? url + 7 : url) >= sizeof(s->url))
		return cli_usage(cli, "--to: the URL is too long");
	if (named && !is_http(s->url))
		return cli_usage(cli, "--to: behind 'sluice:' stands the URL of a server, http://… or https://…");
	s->server = is_http(s->url) && (named || (is_bare(s->url) && !opt_given(args, "body")));
	rc = check_options(s);
	if (rc)
		return rc;
	warn_of_password(s);
	return s->server ? open_server(s) : open_sink(s);
}

/* ---- writing rows ---- */

/* The table, made when it is wanted, and looked at. */
static int prepare(struct shipsend *s, struct sl_err *err)
{
	int rc = 0;

	if (s->ready || s->server)
		return 0;
	if (opt_flag(s->args, "create"))
		rc = create(s, err);
	if (!rc && s->sink.ops->check)
		rc = s->sink.ops->check(s->sink.ctx, err);
	s->ready = !rc;
	return rc;
}

static int attach(struct shipsend *s, struct sl_err *err)
{
	int rc;

	if (s->attached)
		return 0;
	s->lane = s->sink.ctx;
	rc = s->sink.ops->attach ? s->sink.ops->attach(s->sink.ctx, &s->lane, err) : 0;
	s->attached = !rc;
	return rc;
}

static void detach(struct shipsend *s)
{
	if (s->attached && s->sink.ops->detach)
		s->sink.ops->detach(s->sink.ctx, s->lane);
	s->attached = 0;
}

/* Records above the mark as items. *skipped: how many of the first are in the target already. */
static int make_items(struct shipsend *s, const struct sl_wal_batch *b, size_t *skipped, struct sl_wal_reply *reply,
		      struct sl_err *err)
{
	size_t at = 0;

	free(s->items);
	free(s->outcomes);
	s->items = calloc(b->n_records + 1, sizeof(*s->items));
	s->outcomes = calloc(b->n_records + 1, 1);
	s->rows.n = 0;
	s->rows.failed = 0;
	for (*skipped = 0; *skipped < b->n_records && b->records[*skipped].sequence <= s->mark; ++*skipped) {
	}
	if (!s->items || !s->outcomes)
		return sl_err_set(err, SL_ENOMEM, "out of memory");
	for (size_t i = *skipped; i < b->n_records; i++) {
		size_t from = s->rows.n;
		int rc = shiprow_write(&s->rows, s->members, b, &b->records[i], err);

		if (rc == SL_EDATA) {
			reply->refused = b->records[i].sequence;
			return SL_EREFUSED;
		}
		if (rc)
			return rc;
		s->items[i - *skipped] =
			(struct sl_sink_item){.len = s->rows.n - from, .position = b->records[i].sequence};
	}
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

	h[0] = ship_hash(text, (size_t)n);
	h[1] = 0;
	for (size_t i = first; i < b->n_records; i++) { /* of another log, the same numbers are other records */
		h[1] ^= b->records[i].crc;
		h[1] = ship_hash(&h[1], sizeof(h[1]));
	}
	memcpy(id, h, 16);
}

/* What a failure of the sink means to the sender: only a refusal parks a record, only it is final. */
static int translate(struct shipsend *s, const struct sl_wal_batch *b, size_t first, const struct sl_sink_reply *got,
		     int rc, struct sl_wal_reply *reply, struct sl_err *err)
{
	if (rc == SL_ECONFLICT)
		return rc; /* another log's lines are there: the sender begins a new incarnation */
	if (err->error_class == SL_CLASS_NONE)
		err->error_class = sl_default_retry_classifier(err, NULL);
	if (err->error_class != SL_CLASS_POISON) {
		if (err->error_class == SL_CLASS_FATAL)
			detach(s); /* a connection that broke is made anew */
		return rc == SL_EREFUSED ? SL_EAGAIN : rc;
	}
	for (size_t i = 0; i < b->n_records - first && !reply->refused; i++)
		if (got->culprit == i || got->outcomes[i] == SL_SINK_POISON)
			reply->refused = b->records[first + i].sequence;
	if (!reply->refused && b->n_records - first == 1)
		reply->refused = b->records[first].sequence;
	return SL_EREFUSED;
}

static int write_rows(struct shipsend *s, const struct sl_wal_batch *b, struct sl_wal_reply *reply, struct sl_err *err)
{
	struct sl_sink_batch batch = {.ordered = 1};
	struct sl_sink_reply got = {.culprit = SL_SINK_NO_CULPRIT};
	size_t skipped = 0;
	int rc = prepare(s, err);

	rc = rc ? rc : make_items(s, b, &skipped, reply, err);
	if (rc || skipped == b->n_records)
		return rc;
	rc = attach(s, err);
	batch.items = s->items;
	batch.n = b->n_records - skipped;
	got.outcomes = s->outcomes;
	name_batch(batch.id, b, skipped);
	rc = rc ? rc : s->sink.ops->write(s->sink.ctx, s->lane, &batch, &got, err);
	return rc ? translate(s, b, skipped, &got, rc, reply, err) : 0;
}

/* The mark of a target that has none of its own is what the log knows. */
static int send_rows(struct shipsend *s, const struct sl_wal_batch *b, struct sl_wal_reply *reply, struct sl_err *err)
{
	uint64_t last = b->n_records ? b->records[b->n_records - 1].sequence : 0;
	int rc;

	if (s->foreign && s->foreign == b->incarnation && (!b->n_records || last > s->mark))
		return sl_err_set(err, SL_ECONFLICT, "%.150s has other lines of this stream", s->target);
	rc = b->n_records ? write_rows(s, b, reply, err) : 0;

	if (rc)
		return rc;
	for (size_t i = 0; i < b->n_skipped; i++)
		last = b->skipped[i].last > last ? b->skipped[i].last : last;
	s->mark = last > s->mark ? last : s->mark;
	reply->mark = s->mark;
	return 0;
}

/* ---- the sender ---- */

static void note(struct shipsend *s, size_t lines, uint64_t mark, int rc, const struct sl_err *err)
{
	int failed = rc && rc != SL_EREFUSED;
	uint64_t one = 1;

	pthread_mutex_lock(&s->mu);
	s->delivered += rc ? 0 : lines;
	s->taken = rc ? s->taken : mark;
	if (failed && !s->trouble.code)
		s->failing_ms = srv_clock_ms();
	s->trouble = failed ? *err : (struct sl_err)SL_ERR_INIT;
	if (failed && !s->trouble.code)
		s->trouble.code = rc;
	s->answered |= !failed && lines > 0; /* without lines a sink is not asked */
	pthread_mutex_unlock(&s->mu);
	(void)!write(s->wake, &one, sizeof(one));
}

static int on_send(const struct sl_wal_batch *batch, struct sl_wal_reply *reply, struct sl_err *err, void *ctx)
{
	struct shipsend *s = ctx;
	struct sl_err why = SL_ERR_INIT;
	int rc = s->server ? sl_event_http_sender_ops()->send(batch, reply, &why, s->http)
			   : send_rows(s, batch, reply, &why);
	size_t again = 0;

	/* What was acknowledged before this run, and is sent again, does not count. */
	while (again < batch->n_records && batch->records[again].sequence < s->first)
		again++;
	note(s, batch->n_records - again, reply->mark, rc, &why);
	if (rc && err)
		*err = why;
	return rc;
}

static void on_cancel(void *ctx)
{
	struct shipsend *s = ctx;

	if (s->server && sl_event_http_sender_ops()->cancel)
		sl_event_http_sender_ops()->cancel(s->http);
	else if (!s->server && s->sink.ops->cancel)
		s->sink.ops->cancel(s->sink.ctx);
}

static const struct sl_wal_sender sender = {.version = SL_WAL_SENDER_VERSION, .send = on_send, .cancel = on_cancel};

/* A server that answers, and does not know the token or is none: it will not do so later by itself. */
static int ask_server(struct shipsend *s, struct sl_err *err)
{
	char id[33];
	int rc = sl_event_http_sender_target(s->http, id, err);

	if (rc == SL_EACCES)
		rc = err->code = SL_ECONFIG;
	return rc;
}

int shipsend_check(struct shipsend *s)
{
	struct sl_err err = SL_ERR_INIT;
	int rc = s->server ? ask_server(s, &err) : prepare(s, &err);

	if (!rc)
		return 0;
	if (rc == SL_ENOENT) /* a table, or the file of a database */
		rc = err.code = SL_ECONFIG;
	if (rc != SL_EUNAVAIL && rc != SL_ETIMEDOUT && rc != SL_EAGAIN)
		return cli_fail(s->cli, &err, "--to");
	cli_say(s->cli, SL_LOG_WARN, "%s; lines wait for it in the log", err.msg);
	return 0;
}

/* Is the row what the log's record of that sequence looks like? */
static int is_own_row(struct shipsend *s, sl_wal *w, const struct sl_wal_stats *stats, const char *stream,
		      uint64_t sequence, const char *row, size_t n)
{
	struct sl_wal_batch batch = {.stream = stream, .incarnation = stats->sent_incarnation};
	struct ship_buf own = {NULL, 0, 0, 0};
	struct sl_wal_record record;
	int same;

	if (sequence > stats->last_sequence || sl_wal_read(w, sequence, &record, NULL))
		return 0;
	same = shiprow_write(&own, s->members, &batch, &record, NULL) == 0 && own.n == n &&
	       memcmp(own.data, row, n) == 0;
	ship_buf_fini(&own);
	sl_wal_free(w, record.payload);
	return same;
}

int shipsend_start(struct shipsend *s, sl_wal *w, const char *stream, uint64_t pending)
{
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	struct sl_err err = SL_ERR_INIT;
	char *row = NULL;
	size_t n = 0;
	uint64_t has;

	if (sl_wal_get_stats(w, &stats, &err))
		return cli_fail(s->cli, &err, NULL);
	s->first = pending;
	s->mark = pending - 1;
	s->foreign = 0;
	has = strncmp(s->url, "file:", 5) == 0 ? shipmark_of_file(s->url + 5, stream, stats.sent_incarnation, &row, &n)
					       : 0;
	/* What the file has and the log does not know to be there was written before a crash, or by another log. */
	if (has > s->mark && is_own_row(s, w, &stats, stream, has, row, n))
		s->mark = has;
	else if (has > s->mark)
		s->foreign = stats.sent_incarnation;
	free(row);
	return sl_wal_start(w, &sender, s, &err) ? cli_fail(s->cli, &err, NULL) : 0;
}

uint64_t shipsend_get(struct shipsend *s, struct sl_err *trouble)
{
	uint64_t delivered;

	pthread_mutex_lock(&s->mu);
	delivered = s->delivered;
	*trouble = s->trouble;
	pthread_mutex_unlock(&s->mu);
	return delivered;
}

struct shipsend_state shipsend_state(struct shipsend *s)
{
	struct shipsend_state state = {.first = 0};

	pthread_mutex_lock(&s->mu);
	state.why = s->trouble;
	state.failing_ms = s->trouble.code ? srv_clock_ms() - s->failing_ms : 0;
	state.first = !s->answered;
	pthread_mutex_unlock(&s->mu);
	return state;
}

uint64_t shipsend_mark(struct shipsend *s)
{
	uint64_t mark;

	pthread_mutex_lock(&s->mu);
	mark = s->taken;
	pthread_mutex_unlock(&s->mu);
	return mark;
}

void shipsend_close(struct shipsend *s)
{
	if (!s->cli)
		return;
	detach(s);
	sl_sink_close(&s->sink);
	sl_event_http_sender_free(s->http);
	loadsink_fini(&s->to);
	ship_buf_fini(&s->rows);
	free(s->items);
	free(s->outcomes);
	if (s->wake >= 0)
		(void)close(s->wake);
	(void)pthread_mutex_destroy(&s->mu);
	s->cli = NULL;
}
