/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of the receiver share: a server with nothing but the receiver, on a store that can be made unavailable
 * and made to refuse, to wait and to count; and senders.
 *
 * Thread safety: senders from any thread, one each; the rest from one. Failures fail the test.
 */
#ifndef TESTS_SERVER_INGEST_KIT_H
#define TESTS_SERVER_INGEST_KIT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <sluice/events.h>
#include <sluice/jobs.h>

#include "jobs/store/ops.h"
#include "server/ask.h"
#include "server/config/config.h"
#include "server/ingest/ingest.h"

#define TARGET_BYTES 33

struct kit {
	char dir[64];
	sl_store inner; /* SQLite */
	struct sl_store_ops ops;
	sl_store store;   /* the same, with what follows in between */
	_Atomic int away; /* calls about events fail with SL_EUNAVAIL */
	_Atomic unsigned n_append, n_read;
	const char *poison; /* a payload that is refused */
	pthread_mutex_t mu;
	pthread_cond_t cond;
	bool blocked; /* appends wait until it is false */
	unsigned waiting;
	struct srv_config config;
	sl_metrics *metrics;
	struct sl_env env;
	struct srv_core core;
	srv_http *http;
	struct srv_ingest *ingest;
	const char *address;
	char url[64];
	char target[TARGET_BYTES];
	uint64_t job_id;
};

/* change (may be NULL) is called with the configuration before anything starts. */
void kit_open(struct kit *k, void (*change)(struct srv_config *config));
void kit_close(struct kit *k);
/* Stop the server and start another on the same store and port. */
void kit_stop(struct kit *k);
void kit_start(struct kit *k);
void kit_block(struct kit *k, bool blocked);
/* Until this many appends wait in the store. */
void kit_await_waiting(struct kit *k, unsigned n);
/* How many events there are, of all jobs, and the payload of the n-th (from 1) in a static buffer. */
size_t kit_events(struct kit *k);
const char *kit_event(struct kit *k, size_t n, struct sl_event_row *out);

/* ---- senders ---- */

sl_event_http_sender *kit_sender(struct kit *k);
/* A batch of n events of stdout, "STREAM-SEQUENCE" each, of the kit's job. */
struct kit_result {
	int rc;
	uint64_t mark, refused;
	struct sl_err err;
};
struct kit_result kit_send(sl_event_http_sender *s, const char *stream, uint32_t incarnation, uint64_t first, size_t n,
			   uint64_t job_id);
/* Any records and ranges. */
struct kit_record {
	uint64_t sequence, crc;
	struct sl_event event;
};
struct kit_result kit_send_records(sl_event_http_sender *s, const char *stream, uint32_t incarnation,
				   const struct kit_record *records, size_t n, const struct sl_wal_range *skipped,
				   size_t n_skipped);
/* POST of JSON text to PublishJobEvents. */
void kit_post_json(struct kit *k, const char *json, struct ask_answer *out);
/* GET that must give 200; free with json_decref. */
json_t *kit_get(struct kit *k, const char *path);

#endif
