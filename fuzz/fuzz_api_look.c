/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a request to what shows things, and to schedules and dead letters: the first byte says to which route,
 * the rest is as in request.h. Numbers and cursors that reach the store are those that were sent, a schedule is taken
 * whole or not at all, no dead letter disappears while the store accepts nothing, and whatever a store may hold is
 * shown as JSON.
 */
#include <ftw.h>
#include <unistd.h>

#include "request.h"
#include "server/api/counts.h"
#include "server/ingest/ingest.h"
#include <sluice/dead_letter.h>

#define N_CAPTURED 8

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- what the parts of the server ask of HTTP ---- */

static struct {
	srv_handler_fn *fn;
	void *ctx;
} captured[N_CAPTURED]; /* handlers that only their routes name */
static size_t n_captured;

int srv_http_add(srv_http *h, const struct srv_route *routes, size_t n, void *ctx, struct sl_err *err)
{
	(void)h;
	(void)err;
	for (size_t i = 0; i < n; i++) {
		MUST(n_captured < N_CAPTURED);
		captured[n_captured].fn = routes[i].fn;
		captured[n_captured++].ctx = ctx;
	}
	return 0;
}

void srv_json(srv_request *r, int status, json_t *body)
{
	char *text = json_dumps(body, JSON_COMPACT | JSON_ENCODE_ANY);
	MUST(text != NULL);
	free(text);
	json_decref(body);
	answered(r, status);
}

void srv_stream_open(srv_request *r, const struct srv_stream_ops *ops, void *ctx)
{
	const char *last = srv_header(r, "Last-Event-ID"), *after = srv_query(r, "after");
	const char *from = last != NULL && *last != '\0' ? last : after;
	MUST(from == NULL || (from[0] != '\0' && strspn(from, "0123456789") == strlen(from)));
	ops->done(ctx);
	answered(r, 200);
}

void srv_stream_wake(srv_stream *s)
{
	(void)s;
}

/* ---- jobs: there is one of everything, with the bytes of the body in it ---- */

static int never(struct sl_err *err)
{
	return sl_err_set(err, SL_EUNAVAIL, "the store is unavailable");
}

/* Text as a store has it. */
static const char *some_text(void)
{
	return now->len > 0 && memchr(now->body, 0, now->len) == NULL ? now->body : "x";
}

static struct sl_job some_job(void)
{
	return (struct sl_job){.id = 1, .chain_id = 1, .type = "t", .status = SL_JOB_FAILED, .error = some_text()};
}

int sl_jobs_list(sl_jobs *client, const struct sl_job_filter *filter, sl_job_fn *fn, void *ctx, struct sl_err *err)
{
	struct sl_job job = some_job();
	(void)client;
	(void)err;
	check_filter(filter);
	*filter->reached = 0;
	job.key = filter->key;
	return fn(&job, ctx);
}

int sl_jobs_list_chains(sl_jobs *client, const struct sl_job_filter *filter, sl_chain_fn *fn, void *ctx,
			struct sl_err *err)
{
	struct sl_chain chain = {.id = 1, .type = "t", .at_type = "t", .status = SL_JOB_FAILED, .error = some_text()};
	(void)client;
	(void)err;
	check_filter(filter);
	*filter->reached = 0;
	return fn(&chain, ctx);
}

int sl_jobs_get(sl_jobs *client, uint64_t id, struct sl_job **out, struct sl_err *err)
{
	(void)client;
	(void)out;
	MUST(id > 0 && id <= INT64_MAX);
	return never(err);
}

void sl_job_release(sl_jobs *client, struct sl_job *job)
{
	(void)client;
	MUST(job == NULL);
}

void sl_chain_release(sl_jobs *client, struct sl_chain *chain)
{
	(void)client;
	MUST(chain == NULL);
}

int sl_jobs_events(sl_jobs *client, uint64_t job_id, uint64_t after, uint32_t limit, sl_event_row_fn *fn, void *ctx,
		   struct sl_err *err)
{
	struct sl_event_row row = {.offset = 1,
				   .stream = "s",
				   .type = SL_EVENT_STDOUT,
				   .payload = now->body,
				   .payload_len = now->len,
				   .ts_ms = (int64_t)after};
	(void)client;
	(void)err;
	MUST(job_id > 0 && job_id <= INT64_MAX && after <= INT64_MAX && limit >= 1 && limit <= SRV_LIMIT_MAX);
	return fn(&row, ctx);
}

int srv_counts_each(struct srv_counts *c, sl_job_count_fn *fn, void *ctx, struct sl_err *err)
{
	(void)c;
	(void)fn;
	(void)ctx;
	return never(err);
}

void srv_counts_forget(struct srv_counts *c)
{
	(void)c;
}

int sl_jobs_workers(sl_jobs *client, sl_worker_info_fn *fn, void *ctx, struct sl_err *err)
{
	(void)client;
	(void)fn;
	(void)ctx;
	return never(err);
}

int sl_jobs_pause(sl_jobs *client, const char *type, struct sl_err *err)
{
	(void)client;
	(void)err;
	MUST(srv_utf8_ok(type, strlen(type)));
	return 0;
}

int sl_jobs_resume(sl_jobs *client, const char *type, struct sl_err *err)
{
	return sl_jobs_pause(client, type, err);
}

/* A cursor is what the last one of a page has: here and back, it is the same. */
int sl_jobs_leases(sl_jobs *client, const uint8_t after[16], uint32_t limit, sl_lease_fn *fn, void *ctx,
		   struct sl_err *err)
{
	struct sl_lease lease = {.worker = some_text()};
	const char *cursor = srv_query(now, "cursor");
	char text[33] = "";
	(void)client;
	(void)err;
	MUST(limit >= 1 && limit <= SRV_LIMIT_MAX && (after == NULL) == (cursor == NULL));
	for (size_t i = 0; after != NULL && i < 16; i++)
		(void)snprintf(text + 2 * i, 3, "%02x", after[i]);
	MUST(after == NULL || strcmp(text, cursor) == 0);
	return fn(&lease, ctx);
}

int sl_jobs_errors(sl_jobs *client, const struct sl_error_filter *filter, sl_error_group_fn *fn, void *ctx,
		   struct sl_err *err)
{
	struct sl_error_group group = {.type = "t", .error = some_text(), .count = 1};
	(void)client;
	(void)err;
	MUST(filter->limit >= 1 && filter->limit <= SRV_LIMIT_MAX && filter->after <= INT64_MAX);
	*filter->reached = filter->after;
	return fn(&group, ctx);
}

/* ---- schedules: the last that was put ---- */

static struct sl_cron cron;

static int check_spec(const char *spec, int64_t *next, struct sl_err *err)
{
	const int64_t after = INT64_C(1700000000000);
	int64_t again;
	int rc = sl_cron_next(spec, after, next, err);
	MUST(rc == 0 || rc == SL_EDATA || rc == SL_ENOENT);
	MUST(rc != 0 || (*next > after && *next % 60000 == 0));
	MUST(rc != 0 || (sl_cron_next(spec, *next - 1, &again, NULL) == 0 && again == *next));
	return rc;
}

int sl_jobs_cron_put(sl_jobs *client, const struct sl_cron *c, struct sl_err *err)
{
	(void)client;
	MUST(c->type != NULL && strncmp(c->type, "run/", 4) != 0 && strcmp(c->type, "run") != 0);
	json_t *body = understood(now);
	int rc = check_same(c->input, body, "input", err);
	json_decref(body);
	if (rc != 0)
		return rc;
	cron = *c;
	cron.input = NULL;
	return check_spec(c->spec, &cron.next_ms, err);
}

int sl_jobs_cron_remove(sl_jobs *client, const char *name, struct sl_err *err)
{
	(void)client;
	MUST(srv_utf8_ok(name, strlen(name)));
	return never(err);
}

int sl_jobs_cron_list(sl_jobs *client, sl_cron_fn *fn, void *ctx, struct sl_err *err)
{
	(void)client;
	(void)err;
	return fn(&cron, ctx);
}

int sl_coordinator_get_health(sl_coordinator *c, struct sl_coordinator_health *out)
{
	(void)c;
	out->capacity = 1;
	return 0;
}

/* ---- a store ---- */

static int get_job(void *store, sl_store_tx *tx, uint64_t id, sl_job_fn *fn, void *ctx, struct sl_err *err)
{
	struct sl_job job = some_job();
	(void)store;
	(void)tx;
	(void)err;
	MUST(id > 0 && id <= INT64_MAX);
	return fn(&job, ctx);
}

static int attempts(void *store, uint64_t job_id, sl_attempt_record_fn *fn, void *ctx, struct sl_err *err)
{
	struct sl_attempt_record a = {.attempt = 1, .worker = "w", .error = some_text()};
	(void)store;
	(void)job_id;
	(void)err;
	return fn(&a, ctx);
}

/* "INCARNATION:STREAM", here and back. */
static int event_streams(void *store, const struct sl_event_stream *after, uint32_t limit, sl_event_stream_fn *fn,
			 void *ctx, struct sl_err *err)
{
	const char *cursor = srv_query(now, "cursor");
	(void)store;
	(void)err;
	MUST(limit >= 1 && (after == NULL) == (cursor == NULL));
	MUST(after == NULL || (strchr(cursor, ':') != NULL && strcmp(after->stream, strchr(cursor, ':') + 1) == 0));
	MUST(after == NULL || after->incarnation == (uint32_t)strtoull(cursor, NULL, 10));
	if (after == NULL || strlen(after->stream) >= SRV_STREAM_BYTES)
		return 0;
	struct sl_event_stream one = *after;
	return fn(&one, ctx);
}

/* A letter's event goes nowhere: the letter stays. */
static int events_append(void *store, const struct sl_event_row *rows, size_t n, struct sl_event_mark *marks,
			 size_t n_marks, size_t *refused, struct sl_err *err)
{
	(void)store;
	(void)marks;
	(void)n_marks;
	(void)refused;
	MUST(n == 1 && rows[0].payload_len > 0);
	return never(err);
}

static int events_read(void *store, uint64_t job_id, uint64_t after, uint32_t limit, sl_event_row_fn *fn, void *ctx,
		       struct sl_err *err)
{
	(void)store;
	(void)job_id;
	(void)after;
	(void)limit;
	(void)fn;
	(void)ctx;
	(void)err;
	return 0;
}

static int heartbeats(void *store, sl_heartbeat_fn *fn, void *ctx, struct sl_err *err)
{
	(void)store;
	(void)err;
	return fn(&(struct sl_heartbeat){.worker = "w", .types = "t"}, ctx);
}

static const struct sl_store_ops ops = {.version = SL_STORE_VERSION,
					.heartbeats = heartbeats,
					.get_job = get_job,
					.attempts = attempts,
					.event_streams = event_streams,
					.events_append = events_append,
					.events_read = events_read};

/* ---- the requests ---- */

static sl_store store = {.ops = &ops};
static char folder[] = "/tmp/sluice-fuzz-XXXXXX";
static struct srv_core core = {.env = &sl__env_real, .store = &store, .dlq_dir = folder};
static struct srv_api api = {.core = &core};
static struct srv_ingest ingest = {.core = &core, .env = &sl__env_real, .target = "0123456789abcdef0123456789abcdef"};

static srv_handler_fn *const handlers[] = {
	srv_list_chains,         srv_list_jobs,    srv_jobs_show,    srv_jobs_events,
	srv_types_pause,         srv_leases_list,  srv_errors_list,  srv_cron_put,
	srv_cron_delete,         srv_letters_list, srv_letters_show, srv_letters_redrive,
	srv_letters_redrive_all,
};
#define N_HANDLERS (sizeof(handlers) / sizeof(handlers[0]))

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	(void)st;
	(void)kind;
	(void)at;
	return remove(path);
}

static void clean_up(void)
{
	(void)nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static int count_one(const struct sl_dlq_letter *letter, void *ctx)
{
	(void)letter;
	++*(int *)ctx;
	return 0;
}

static int letters(void)
{
	struct sl_dlq_opts opts = {SL_DLQ_OPTS_INIT, .read_only = SL_ON};
	sl_dlq *q;
	int n = 0;
	MUST(sl_dlq_open(&q, folder, &opts, NULL) == 0 && sl_dlq_list(q, false, count_one, &n, NULL) == 0);
	sl_dlq_close(q);
	return n;
}

/* One letter with an event, one with bytes that are none. */
static void put_letters(void)
{
	struct sl_event e = {.type = SL_EVENT_STDOUT, .job_id = 7, .attempt = 1, .ts_ms = 1, .data = "hello", .len = 5};
	void *bytes = NULL;
	size_t n = 0;
	sl_dlq *q;
	MUST(mkdtemp(folder) != NULL && sl_dlq_open(&q, folder, NULL, NULL) == 0);
	MUST(sl_event_encode(&e, NULL, &bytes, &n, NULL) == 0);
	struct sl_dlq_letter l = {
		SL_DLQ_LETTER_INIT, .source = "wal:x", .error = "e", .code = SL_EREFUSED, .item = bytes, .item_len = n,
	};
	MUST(sl_dlq_put(q, &l, NULL, NULL) == 0);
	l.item = "\xff\xfe";
	l.item_len = 2;
	MUST(sl_dlq_put(q, &l, NULL, NULL) == 0);
	sl_dlq_close(q);
	sl_event_free(NULL, bytes);
	(void)atexit(clean_up);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	put_letters();
	MUST(srv_letters_new(&api.letters, &core, NULL) == 0);
	MUST(srv_follow_new(&ingest.follow, &core, NULL) == 0);
	ingest.heard = srv_heard_new();
	MUST(ingest.heard != NULL && srv_follow_add(NULL, ingest.follow, NULL) == 0);
	MUST(srv_ingest_look_add(NULL, &ingest, NULL) == 0);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	size_t which = data[0] % (N_HANDLERS + n_captured);
	char *text = malloc(size);
	MUST(text != NULL);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	if (which < N_HANDLERS)
		handle(text, size - 1, handlers[which], &api);
	else
		handle(text, size - 1, captured[which - N_HANDLERS].fn, captured[which - N_HANDLERS].ctx);
	if (which < N_HANDLERS &&
	    (handlers[which] == srv_letters_redrive || handlers[which] == srv_letters_redrive_all))
		MUST(letters() == 2);
	free(text);
	return 0;
}
