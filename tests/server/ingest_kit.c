/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/env.h"
#include "server/ingest_kit.h"

#define STOP_MS 60000 /* only a hang takes as long */

static void must(int rc, const struct sl_err *err)
{
	if (rc != 0)
		fail_msg("%s: %s", sl_err_name(rc), err->msg);
}

/* ---- the store in between ---- */

static int away(struct sl_err *err)
{
	(void)sl_err_set(err, SL_EUNAVAIL, "the test makes the store unavailable");
	err->error_class = SL_CLASS_FATAL;
	return SL_EUNAVAIL;
}

static void wait_while_blocked(struct kit *k)
{
	(void)pthread_mutex_lock(&k->mu);
	k->waiting++;
	(void)pthread_cond_broadcast(&k->cond);
	while (k->blocked)
		(void)pthread_cond_wait(&k->cond, &k->mu);
	k->waiting--;
	(void)pthread_mutex_unlock(&k->mu);
}

static enum sl_err_class odd_class(char letter)
{
	switch (letter) {
	case 'h':
		return SL_CLASS_THROTTLED;
	case 'p':
		return SL_CLASS_POISON;
	case 'f':
		return SL_CLASS_FATAL;
	case 'n':
		return SL_CLASS_NONE;
	default:
		return SL_CLASS_TRANSIENT;
	}
}

static int append(void *store, const struct sl_event_row *events, size_t n, struct sl_event_mark *marks, size_t n_marks,
		  size_t *n_new, struct sl_err *err)
{
	struct kit *k = store;
	atomic_fetch_add(&k->n_append, 1);
	wait_while_blocked(k);
	if (atomic_load(&k->away) != 0)
		return away(err);
	for (size_t i = 0; k->poison != NULL && i < n; i++)
		if (events[i].payload_len == strlen(k->poison) &&
		    memcmp(events[i].payload, k->poison, events[i].payload_len) == 0) {
			(void)sl_err_set(err, SL_EDATA, "no poison here");
			err->error_class = SL_CLASS_POISON;
			return SL_EDATA;
		}
	for (size_t i = 0; i < n; i++)
		if (events[i].payload_len > 4 && memcmp(events[i].payload, "odd", 3) == 0) {
			enum sl_err_class odd = odd_class(((const char *)events[i].payload)[3]);
			int rc = odd == SL_CLASS_POISON ? SL_EDATA : SL_EAGAIN;
			(void)sl_err_set(err, rc, "never this one");
			err->error_class = odd;
			return rc;
		}
	return k->inner.ops->events_append(k->inner.ctx, events, n, marks, n_marks, n_new, err);
}

static int read_events(void *store, uint64_t job_id, uint64_t after, uint32_t limit, sl_event_row_fn *fn, void *ctx,
		       struct sl_err *err)
{
	struct kit *k = store;
	atomic_fetch_add(&k->n_read, 1);
	if (atomic_load(&k->away) != 0)
		return away(err);
	return k->inner.ops->events_read(k->inner.ctx, job_id, after, limit, fn, ctx, err);
}

static int target_id(void *store, char out[33], struct sl_err *err)
{
	const struct kit *k = store;
	return k->inner.ops->target_id(k->inner.ctx, out, err);
}

static int get_job(void *store, sl_store_tx *tx, uint64_t id, sl_job_fn *fn, void *ctx, struct sl_err *err)
{
	const struct kit *k = store;
	return k->inner.ops->get_job(k->inner.ctx, tx, id, fn, ctx, err);
}

static int event_streams(void *store, const struct sl_event_stream *after, uint32_t limit, sl_event_stream_fn *fn,
			 void *ctx, struct sl_err *err)
{
	const struct kit *k = store;
	return k->inner.ops->event_streams(k->inner.ctx, after, limit, fn, ctx, err);
}

/* ---- open and close ---- */

static void open_store(struct kit *k)
{
	struct sl_err err = SL_ERR_INIT;
	char url[96];
	struct sl_new_chain chain = {.job = {.type = "talk", .input = "null"}};
	struct sl_started started = {0};
	(void)snprintf(url, sizeof(url), "sqlite:%s/jobs.db", k->dir);
	must(sl_store_open(&k->inner, url, NULL, &err), &err);
	must(k->inner.ops->start(k->inner.ctx, &chain, 1, NULL, &started, &err), &err);
	k->job_id = started.chain_id;
	must(k->inner.ops->target_id(k->inner.ctx, k->target, &err), &err);
	k->ops = (struct sl_store_ops){.version = SL_STORE_VERSION,
				       .name = "kit",
				       .target_id = target_id,
				       .get_job = get_job,
				       .event_streams = event_streams,
				       .events_append = append,
				       .events_read = read_events};
	k->store = (sl_store){.ops = &k->ops, .ctx = k};
}

void kit_start(struct kit *k)
{
	struct sl_err err = SL_ERR_INIT;
	struct srv_http_opts http = {.listen = k->address != NULL ? k->url + strlen("http://") : "127.0.0.1:0",
				     .threads = 4,
				     .connections_max = 5000,
				     .connections_per_address = 5000,
				     .metrics = k->metrics,
				     .env = &k->env};
	k->core = (struct srv_core){
		.env = &k->env, .metrics = k->metrics, .store = &k->store, .config = &k->config, .wal_dir = k->dir};
	must(srv_ingest_new(&k->ingest, &k->core, &err), &err);
	must(srv_http_new(&k->http, &http, &err), &err);
	must(srv_ingest_add(k->http, k->ingest, &err), &err);
	must(srv_http_start(k->http, &err), &err);
	k->address = srv_http_address(k->http);
	(void)snprintf(k->url, sizeof(k->url), "http://%s", k->address);
}

void kit_open(struct kit *k, void (*change)(struct srv_config *config))
{
	struct sl_err err = SL_ERR_INIT;
	memset(k, 0, sizeof(*k));
	/* A proxy of the machine is not for a server on it. */
	(void)setenv("no_proxy", "*", 1);
	(void)strcpy(k->dir, "/tmp/sluice-ingest-XXXXXX");
	assert_non_null(mkdtemp(k->dir));
	(void)pthread_mutex_init(&k->mu, NULL);
	(void)pthread_cond_init(&k->cond, NULL);
	open_store(k);
	must(srv_config_init(&k->config, &err), &err);
	if (change != NULL)
		change(&k->config);
	must(sl_metrics_new(&k->metrics, NULL, &err), &err);
	k->env = sl__env_real;
	k->env.metrics = k->metrics;
	kit_start(k);
}

void kit_stop(struct kit *k)
{
	struct sl_err err = SL_ERR_INIT;
	must(srv_http_stop(k->http, STOP_MS, &err), &err);
	must(srv_ingest_stop(k->ingest, STOP_MS, &err), &err);
	srv_http_free(k->http);
	srv_ingest_free(k->ingest);
	k->http = NULL;
	k->ingest = NULL;
}

void kit_close(struct kit *k)
{
	char command[128];
	if (k->http != NULL)
		kit_stop(k);
	sl_store_close(&k->inner);
	srv_config_fini(&k->config);
	sl_metrics_free(k->metrics);
	(void)pthread_cond_destroy(&k->cond);
	(void)pthread_mutex_destroy(&k->mu);
	(void)snprintf(command, sizeof(command), "rm -rf %s", k->dir);
	assert_int_equal(system(command), 0);
}

void kit_block(struct kit *k, bool blocked)
{
	(void)pthread_mutex_lock(&k->mu);
	k->blocked = blocked;
	(void)pthread_cond_broadcast(&k->cond);
	(void)pthread_mutex_unlock(&k->mu);
}

void kit_await_waiting(struct kit *k, unsigned n)
{
	(void)pthread_mutex_lock(&k->mu);
	while (k->waiting < n)
		(void)pthread_cond_wait(&k->cond, &k->mu);
	(void)pthread_mutex_unlock(&k->mu);
}

/* ---- looking into the store ---- */

struct looking {
	size_t n, want;
	struct sl_event_row row;
	char payload[256];
};

static int look(const struct sl_event_row *row, void *ctx)
{
	struct looking *l = ctx;
	l->n++;
	if (l->n == l->want) {
		l->row = *row;
		(void)snprintf(l->payload, sizeof(l->payload), "%.*s", (int)row->payload_len,
			       (const char *)row->payload);
	}
	return 0;
}

static void look_at(struct kit *k, struct looking *l)
{
	struct sl_err err = SL_ERR_INIT;
	must(k->inner.ops->events_read(k->inner.ctx, 0, 0, 1000000, look, l, &err), &err);
}

size_t kit_events(struct kit *k)
{
	struct looking l = {.n = 0};
	look_at(k, &l);
	return l.n;
}

const char *kit_event(struct kit *k, size_t n, struct sl_event_row *out)
{
	static struct looking l;
	l = (struct looking){.want = n};
	look_at(k, &l);
	assert_true(l.n >= n);
	l.row.stream = NULL;
	l.row.payload = l.payload;
	if (out != NULL)
		*out = l.row;
	return l.payload;
}

/* ---- senders ---- */

sl_event_http_sender *kit_sender(struct kit *k)
{
	struct sl_err err = SL_ERR_INIT;
	sl_event_http_sender *s = NULL;
	const struct sl_event_http_opts opts = {SL_EVENT_HTTP_OPTS_INIT, .url = k->url, .target = k->target};
	must(sl_event_http_sender_new(&s, &opts, &err), &err);
	return s;
}

struct kit_result kit_send_records(sl_event_http_sender *s, const char *stream, uint32_t incarnation,
				   const struct kit_record *records, size_t n, const struct sl_wal_range *skipped,
				   size_t n_skipped)
{
	struct kit_result r = {.err = SL_ERR_INIT};
	struct sl_wal_record *list = calloc(n + 1, sizeof(*list));
	struct sl_wal_reply reply = {0};
	for (size_t i = 0; i < n; i++) {
		void *bytes = NULL;
		must(sl_event_encode(&records[i].event, NULL, &bytes, &list[i].payload_len, &r.err), &r.err);
		list[i].payload = bytes;
		list[i].sequence = records[i].sequence;
		list[i].crc = records[i].crc;
	}
	const struct sl_wal_batch batch = {.stream = stream,
					   .incarnation = incarnation,
					   .records = list,
					   .n_records = n,
					   .skipped = skipped,
					   .n_skipped = n_skipped,
					   .last_sequence = n > 0 ? records[n - 1].sequence + 7 : 0};
	r.rc = sl_event_http_sender_ops()->send(&batch, &reply, &r.err, s);
	r.mark = reply.mark;
	r.refused = reply.refused;
	for (size_t i = 0; i < n; i++)
		sl_event_free(NULL, (void *)(uintptr_t)list[i].payload);
	free(list);
	return r;
}

struct kit_result kit_send(sl_event_http_sender *s, const char *stream, uint32_t incarnation, uint64_t first, size_t n,
			   uint64_t job_id)
{
	struct kit_record *records = calloc(n + 1, sizeof(*records));
	char(*texts)[64] = calloc(n + 1, sizeof(*texts));
	for (size_t i = 0; i < n; i++) {
		int len = snprintf(texts[i], sizeof(texts[i]), "%s-%llu", stream, (unsigned long long)(first + i));
		records[i] = (struct kit_record){.sequence = first + i,
						 .crc = (first + i) * 0x9E3779B97F4A7C15u,
						 .event = {.type = SL_EVENT_STDOUT,
							   .job_id = job_id,
							   .attempt = job_id != 0,
							   .ts_ms = 1700000000000,
							   .data = texts[i],
							   .len = (size_t)len}};
	}
	struct kit_result r = kit_send_records(s, stream, incarnation, records, n, NULL, 0);
	free(texts);
	free(records);
	return r;
}

void kit_post_json(struct kit *k, const char *json, struct ask_answer *out)
{
	ask(k->address, "POST", "/sluice.v1.JobEvents/PublishJobEvents", "Content-Type: application/json\r\n", json,
	    strlen(json), out);
}

json_t *kit_get(struct kit *k, const char *path)
{
	struct ask_answer a;
	ask(k->address, "GET", path, "", NULL, 0, &a);
	if (a.status != 200)
		fail_msg("%s: %d %s", path, a.status, a.body);
	json_t *v = json_loadb(a.body, a.len, 0, NULL);
	assert_non_null(v);
	ask_free(&a);
	return v;
}
