/* SPDX-License-Identifier: Apache-2.0 */
/* Events as bytes, and their way from a log into a store. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <events.pb-c.h>

#include "base/base.h"
#include "base/env.h"
#include "jobs/events/events.h"
#include "support/crashfs.h"
#include "support/fault.h"
#include "support/memstore.h"

/* ---- bytes ---- */

static struct sl_event sample(void)
{
	struct sl_event e = {.type = SL_EVENT_STDERR,
			     .job_id = UINT64_MAX,
			     .attempt = 3,
			     .ts_ms = 1700000000123,
			     .position = 1ull << 40,
			     .partial = true,
			     .data = "a\0b\xFF",
			     .len = 4};
	for (size_t i = 0; i < sizeof(e.claim.bytes); i++)
		e.claim.bytes[i] = (uint8_t)(i * 17);
	return e;
}

static void assert_same(const struct sl_event *a, const struct sl_event *b)
{
	assert_int_equal(a->type, b->type);
	assert_int_equal(a->job_id, b->job_id);
	assert_int_equal(a->attempt, b->attempt);
	assert_memory_equal(a->claim.bytes, b->claim.bytes, sizeof(a->claim.bytes));
	assert_int_equal(a->ts_ms, b->ts_ms);
	assert_int_equal(a->position, b->position);
	assert_int_equal(a->partial, b->partial);
	assert_int_equal(a->len, b->len);
	if (a->len > 0)
		assert_memory_equal(a->data, b->data, a->len);
}

static void an_event_comes_back_as_it_was(void **state)
{
	(void)state;
	struct sl_event cases[] = {sample(), sample(), sample(), {.type = 1}, {.type = 6, .ts_ms = -5, .job_id = 1}};
	cases[1].len = 0;
	cases[1].attempt = -1;
	memset(cases[2].claim.bytes, 0, sizeof(cases[2].claim.bytes));
	for (size_t i = 0; i < SL_COUNT(cases); i++) {
		void *bytes = NULL;
		size_t len = 0;
		struct sl_event back;
		assert_int_equal(sl_event_encode(&cases[i], NULL, &bytes, &len, NULL), 0);
		assert_int_equal(sl_event_decode(bytes, len, &back, NULL), 0);
		assert_same(&cases[i], &back);
		/* It points into the record. */
		assert_true((const char *)back.data >= (char *)bytes && (const char *)back.data <= (char *)bytes + len);
		sl_event_free(NULL, bytes);
	}
}

/* Our reader and the generated one agree about random messages. */
/* docs/formats/events.md shows these bytes. */
static void the_example_of_the_format_is_what_is_written(void **state)
{
	static const uint8_t bytes[] = {0x08, 0x02, 0x12, 0x16, 0x08, 0x2a, 0x10, 0x01, 0x1a, 0x10, 0x00,
					0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b,
					0x0c, 0x0d, 0x0e, 0x0f, 0x18, 0x80, 0xd0, 0x95, 0xff, 0xbc, 0x31,
					0x20, 0x80, 0x80, 0x10, 0x28, 0x01, 0x32, 0x02, 0x68, 0x69};
	struct sl_event e = {.type = SL_EVENT_STDOUT,
			     .job_id = 42,
			     .attempt = 1,
			     .ts_ms = 1700000000000,
			     .position = 262144,
			     .partial = true,
			     .data = "hi",
			     .len = 2};
	struct sl_event back;
	void *record;
	size_t n;
	(void)state;
	for (size_t i = 0; i < sizeof(e.claim.bytes); i++)
		e.claim.bytes[i] = (uint8_t)i;
	assert_int_equal(sl_event_encode(&e, NULL, &record, &n, NULL), 0);
	assert_int_equal(n, sizeof(bytes));
	assert_memory_equal(record, bytes, n);
	assert_int_equal(sl_event_decode(bytes, sizeof(bytes), &back, NULL), 0);
	assert_same(&e, &back);
	sl_event_free(NULL, record);
}

static void what_protobuf_c_packs_is_read_alike(void **state)
{
	(void)state;
	struct sl__prng prng = {42};
	for (int i = 0; i < 20000; i++) {
		uint8_t claim[16], data[64], packed[256];
		Sluice__V1__TaskToken token = SLUICE__V1__TASK_TOKEN__INIT;
		Sluice__V1__JobEvent m = SLUICE__V1__JOB_EVENT__INIT;
		for (size_t k = 0; k < sizeof(data); k++)
			data[k] = claim[k % 16] = (uint8_t)sl__prng_next(&prng);
		unsigned shift = (unsigned)(sl__prng_next(&prng) % 64);
		token.job_id = sl__prng_next(&prng) >> shift;
		token.attempt = (int32_t)(uint32_t)sl__prng_next(&prng);
		token.claim = (ProtobufCBinaryData){i % 3 == 0 ? 0 : 16, claim};
		m.type = (Sluice__V1__JobEvent__Type)(1 + sl__prng_next(&prng) % 7);
		m.token = i % 5 == 0 ? NULL : &token;
		m.ts_ms = (int64_t)(sl__prng_next(&prng) >> shift);
		m.position = sl__prng_next(&prng) >> shift;
		m.partial = i % 2;
		m.data = (ProtobufCBinaryData){(size_t)(sl__prng_next(&prng) % sizeof(data)), data};
		size_t n = sluice__v1__job_event__pack(&m, packed);
		struct sl_event e;
		assert_int_equal(sl_event_decode(packed, n, &e, NULL), 0);
		assert_int_equal(e.type, m.type);
		assert_int_equal(e.job_id, m.token != NULL ? token.job_id : 0);
		assert_int_equal(e.attempt, m.token != NULL ? token.attempt : 0);
		if (m.token != NULL && token.claim.len == 16)
			assert_memory_equal(e.claim.bytes, claim, 16);
		assert_int_equal(e.ts_ms, m.ts_ms);
		assert_int_equal(e.position, m.position);
		assert_int_equal(e.partial, m.partial);
		assert_int_equal(e.len, m.data.len);
		assert_memory_equal(e.data, data, e.len);
	}
}

static void what_we_encode_is_read_by_protobuf_c(void **state)
{
	(void)state;
	struct sl_event e = sample();
	void *bytes = NULL;
	size_t len = 0;
	assert_int_equal(sl_event_encode(&e, NULL, &bytes, &len, NULL), 0);
	Sluice__V1__JobEvent *m = sluice__v1__job_event__unpack(NULL, len, bytes);
	assert_non_null(m);
	assert_int_equal(m->type, SLUICE__V1__JOB_EVENT__TYPE__STDERR);
	assert_int_equal(m->token->job_id, e.job_id);
	assert_int_equal(m->token->claim.len, 16);
	assert_int_equal(m->data.len, 4);
	sluice__v1__job_event__free_unpacked(m, NULL);
	sl_event_free(NULL, bytes);
}

static void fields_of_a_later_version_are_ignored(void **state)
{
	(void)state;
	/* type 2; field 15 as varint, 16 as 64 bits, 17 as bytes, 18 as 32 bits; data "x" */
	static const uint8_t bytes[] = {0x08, 2, 0x78, 0x96, 1, 0x81, 1, 1, 2, 3, 4, 5,    6, 7,  8,
					0x8A, 1, 2,    9,    9, 0x95, 1, 1, 2, 3, 4, 0x32, 1, 'x'};
	struct sl_event e;
	assert_int_equal(sl_event_decode(bytes, sizeof(bytes), &e, NULL), 0);
	assert_int_equal(e.type, SL_EVENT_STDOUT);
	assert_int_equal(e.len, 1);
}

static void what_is_no_event_is_refused(void **state)
{
	(void)state;
	static const struct {
		const char *bytes;
		size_t len;
	} bad[] = {
#define B(text) {text, sizeof(text) - 1}
		B(""),
		B("hello world"),
		B("\x08"),                                         /* a number is cut off */
		B("\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x02"), /* 65 bits */
		B("\x08\x00"),                                     /* no type */
		B("\x0A\x01\x01"),                                 /* type as bytes */
		B("\x08\x02\x32\x05xyz"),                          /* data is cut off */
		B("\x08\x02\x12\x02\x08"),                         /* so is the token */
		B("\x08\x02\x12\x04\x1A\x02xy"),                   /* a claim of two bytes */
		B("\x08\x02\x12\x06\x10\xFF\xFF\xFF\xFF\x7F"),     /* an attempt beyond 32 bits */
		B("\x08\x02\x03"),                                 /* a group */
		B("\x08\x02\x00\x01"),                             /* field 0 */
	};
	for (size_t i = 0; i < SL_COUNT(bad); i++) {
		struct sl_event e;
		struct sl_err err = SL_ERR_INIT;
		assert_int_equal(sl_event_decode(bad[i].bytes, bad[i].len, &e, &err), SL_EDATA);
		assert_int_equal(err.error_class, SL_CLASS_POISON);
		assert_memory_equal(err.msg, "not a JobEvent: ", 16);
	}
}

static void an_event_that_was_cut_anywhere_never_reads_beyond(void **state)
{
	(void)state;
	struct sl_event e = sample(), back;
	void *bytes = NULL;
	size_t len = 0;
	assert_int_equal(sl_event_encode(&e, NULL, &bytes, &len, NULL), 0);
	for (size_t n = 0; n < len; n++) {
		uint8_t *copy = malloc(n + 1);
		memcpy(copy, bytes, n);
		if (sl_event_decode(copy, n, &back, NULL) == 0)
			assert_true((const uint8_t *)back.data + back.len <= copy + n || back.len == 0);
		free(copy);
	}
	sl_event_free(NULL, bytes);
}

static void an_event_that_fits_no_record_is_refused(void **state)
{
	(void)state;
	char *data = calloc(1, SL_WAL_MAX_PAYLOAD + 1);
	struct sl_event e = {.type = SL_EVENT_LOG, .data = data, .len = SL_WAL_MAX_PAYLOAD};
	void *bytes = NULL;
	size_t len = 0;
	assert_int_equal(sl_event_encode(&e, NULL, &bytes, &len, NULL), SL_ETOOBIG);
	e.len = SL_WAL_MAX_PAYLOAD + 1;
	assert_int_equal(sl_event_encode(&e, NULL, &bytes, &len, NULL), SL_ETOOBIG);
	e.len = SL_WAL_MAX_PAYLOAD - 16;
	assert_int_equal(sl_event_encode(&e, NULL, &bytes, &len, NULL), 0);
	assert_true(len <= SL_WAL_MAX_PAYLOAD);
	sl_event_free(NULL, bytes);
	/* The longest that fits, and one byte more. */
	e.len += SL_WAL_MAX_PAYLOAD - len;
	assert_int_equal(sl_event_encode(&e, NULL, &bytes, &len, NULL), 0);
	assert_int_equal(len, SL_WAL_MAX_PAYLOAD);
	sl_event_free(NULL, bytes);
	e.len++;
	assert_int_equal(sl_event_encode(&e, NULL, &bytes, &len, NULL), SL_ETOOBIG);
	e.type = 0;
	assert_int_equal(sl_event_encode(&e, NULL, &bytes, &len, NULL), SL_EINVAL);
	free(data);
}

static void types_have_names(void **state)
{
	(void)state;
	assert_string_equal(sl_event_type_name(SL_EVENT_STARTED), "started");
	assert_string_equal(sl_event_type_name(SL_EVENT_LOG), "log");
	assert_string_equal(sl_event_type_name((enum sl_event_type)0), "unknown");
	assert_string_equal(sl_event_type_name((enum sl_event_type)8), "unknown");
	assert_string_equal(sl_event_type_name((enum sl_event_type)(-1)), "unknown");
}

/* ---- the sender ---- */

#define WAL_DIR "/w"

struct road {
	struct crashfs *fs;
	struct sl_env env;
	struct memstore *ms;
	sl_store store;
	sl_event_sender *sender;
	sl_wal *log;
	struct sl_wal_opts opts;
	struct sl_err err;
};

static int road_open(void **state)
{
	struct road *r = calloc(1, sizeof(*r));
	r->fs = crashfs_new();
	crashfs_record(r->fs, false);
	r->env = (struct sl_env){SL_ENV_INIT, .io = &crashfs_io, .io_ctx = r->fs};
	crashfs_mkdir(r->fs, WAL_DIR);
	r->ms = memstore_new(&r->env);
	r->store = memstore_handle(r->ms);
	r->opts = (struct sl_wal_opts){SL_WAL_OPTS_INIT,
				       .env = &r->env,
				       .wal_dir = WAL_DIR,
				       .archive_dir = "/a",
				       .archive_on_complete = SL_OFF,
				       .background = SL_OFF,
				       .prepare_max_bytes = SL_NONE,
				       .batch_records = 4};
	assert_int_equal(sl_event_sender_new(&r->sender, &r->store, &r->env, &r->err), 0);
	assert_int_equal(sl_wal_open(&r->log, "s", &r->opts, &r->err), 0);
	*state = r;
	return 0;
}

static int road_close(void **state)
{
	struct road *r = *state;
	if (r->log != NULL)
		assert_int_equal(sl_wal_close(r->log, NULL), 0);
	sl_event_sender_free(r->sender);
	memstore_free(r->ms);
	crashfs_free(r->fs);
	free(r);
	return 0;
}

static void append_text(struct road *r, const char *text)
{
	struct sl_event e = {
		.type = SL_EVENT_LOG, .job_id = 5, .attempt = 1, .ts_ms = 7, .data = text, .len = strlen(text)};
	void *bytes = NULL;
	size_t len = 0;
	assert_int_equal(sl_event_encode(&e, NULL, &bytes, &len, NULL), 0);
	assert_int_equal(sl_wal_append(r->log, bytes, len, NULL, &r->err), 0);
	sl_event_free(NULL, bytes);
}

static void append_texts(struct road *r, const char *letters)
{
	for (; *letters != '\0'; letters++)
		append_text(r, (char[]){*letters, '\0'});
}

static int on_row(const struct sl_event_row *row, void *ctx)
{
	char *text = ctx, one[128];
	(void)snprintf(one, sizeof(one), "%llu:%llu=%.*s ", (unsigned long long)row->offset,
		       (unsigned long long)row->sequence, (int)row->payload_len, (const char *)row->payload);
	strcat(text, one);
	assert_string_equal(row->stream, "s");
	assert_true(row->incarnation != 0 && row->crc != 0);
	assert_int_equal(row->job_id, 0); /* job 5 does not exist */
	assert_int_equal(row->late, 1);
	assert_int_equal(row->type, SL_EVENT_LOG);
	assert_int_equal(row->ts_ms, 7);
	return 0;
}

static const char *rows(struct road *r)
{
	static char text[4096];
	text[0] = '\0';
	assert_int_equal(r->store.ops->events_read(r->store.ctx, 0, 0, 1000, on_row, text, &r->err), 0);
	return text;
}

static int deliver(struct road *r)
{
	assert_int_equal(sl_wal_sender_start(r->log, sl_event_sender_ops(), r->sender, &r->err), 0);
	return sl_wal_sender_stop(r->log, SL_UNLIMITED, &r->err);
}

static void events_become_rows_with_gapless_offsets(void **state)
{
	struct road *r = *state;
	append_texts(r, "abcdefghij");
	assert_int_equal(deliver(r), 0);
	assert_string_equal(rows(r), "1:1=a 2:2=b 3:3=c 4:4=d 5:5=e 6:6=f 7:7=g 8:8=h 9:9=i 10:10=j ");
	append_texts(r, "k");
	assert_int_equal(deliver(r), 0);
	assert_int_equal(deliver(r), 0);
	assert_string_equal(rows(r), "1:1=a 2:2=b 3:3=c 4:4=d 5:5=e 6:6=f 7:7=g 8:8=h 9:9=i 10:10=j 11:11=k ");
}

struct seen {
	struct road *r;
	char text[256];
};

/* What is reported is in the store already. */
static void on_taken(const struct sl_wal_batch *batch, const struct sl_event_row *batch_rows, void *ctx)
{
	struct seen *seen = ctx;
	for (size_t i = 0; i < batch->n_records; i++) {
		char one[32];
		assert_int_equal(batch_rows[i].sequence, batch->records[i].sequence);
		(void)snprintf(one, sizeof(one), ":%llu=%.*s ", (unsigned long long)batch_rows[i].sequence,
			       (int)batch_rows[i].payload_len, (const char *)batch_rows[i].payload);
		assert_non_null(strstr(rows(seen->r), one));
		strcat(seen->text, one);
	}
}

static void each_batch_is_reported_once_the_store_has_it(void **state)
{
	struct seen seen = {.r = *state};
	struct road *r = *state;
	sl_event_sender_on_taken(r->sender, on_taken, &seen);
	append_texts(r, "abcdef");
	assert_int_equal(sl_wal_append(r->log, "garbage", 7, NULL, &r->err), 0);
	append_texts(r, "g");
	assert_int_equal(deliver(r), 0);
	assert_string_equal(seen.text, ":1=a :2=b :3=c :4=d :5=e :6=f :8=g ");
}

static void a_record_that_is_not_an_event_is_parked_and_skipped(void **state)
{
	struct road *r = *state;
	append_texts(r, "ab");
	assert_int_equal(sl_wal_append(r->log, "garbage", 7, NULL, &r->err), 0);
	append_texts(r, "cd");
	assert_int_equal(deliver(r), 0);
	assert_string_equal(rows(r), "1:1=a 2:2=b 3:4=c 4:5=d ");
	struct sl_wal_stats st = {.struct_size = sizeof(st)};
	assert_int_equal(sl_wal_get_stats(r->log, &st, NULL), 0);
	assert_int_equal(st.failed, 1);
	assert_int_equal(st.pending, 0);
}

static void records_parked_before_are_skipped_and_counted_in_the_mark(void **state)
{
	struct road *r = *state;
	append_texts(r, "abcdefg");
	assert_int_equal(sl_wal_mark_failed(r->log, 1, 1, &r->err), 0);
	assert_int_equal(sl_wal_mark_failed(r->log, 3, 4, &r->err), 0);
	assert_int_equal(sl_wal_mark_failed(r->log, 7, 7, &r->err), 0);
	assert_int_equal(deliver(r), 0);
	assert_string_equal(rows(r), "1:2=b 2:5=e 3:6=f ");
}

/* ---- the table itself ---- */

static int send(struct road *r, const struct sl_wal_record *records, size_t n, const struct sl_wal_range *skipped,
		size_t n_skipped, struct sl_wal_reply *reply)
{
	struct sl_wal_batch b = {.stream = "s",
				 .incarnation = 9,
				 .records = records,
				 .n_records = n,
				 .skipped = skipped,
				 .n_skipped = n_skipped};
	*reply = (struct sl_wal_reply){0};
	r->err = (struct sl_err)SL_ERR_INIT;
	return sl_event_sender_ops()->send(&b, reply, &r->err, r->sender);
}

struct made {
	struct sl_wal_record records[8];
	void *bytes[8];
	size_t n;
};

static void make(struct made *m, const uint64_t *sequences, size_t n)
{
	*m = (struct made){.n = n};
	for (size_t i = 0; i < n; i++) {
		struct sl_event e = {
			.type = SL_EVENT_LOG, .job_id = 5, .attempt = 1, .ts_ms = 7, .data = "x", .len = 1};
		size_t len = 0;
		assert_int_equal(sl_event_encode(&e, NULL, &m->bytes[i], &len, NULL), 0);
		m->records[i] = (struct sl_wal_record){
			.sequence = sequences[i], .payload = m->bytes[i], .payload_len = len, .crc = sequences[i] * 3};
	}
}

static void unmake(struct made *m)
{
	for (size_t i = 0; i < m->n; i++)
		sl_event_free(NULL, m->bytes[i]);
}

static void a_store_that_lacks_earlier_records_answers_with_its_mark(void **state)
{
	struct road *r = *state;
	struct sl_wal_reply reply;
	struct made m;
	make(&m, (const uint64_t[]){1, 2, 5, 8}, 4);
	assert_int_equal(send(r, NULL, 0, NULL, 0, &reply), 0);
	assert_int_equal(reply.mark, 0);
	assert_int_equal(send(r, m.records, 2, NULL, 0, &reply), 0);
	assert_int_equal(reply.mark, 2);
	/* A gap. */
	assert_int_equal(send(r, m.records + 2, 1, NULL, 0, &reply), 0);
	assert_int_equal(reply.mark, 2);
	/* A skipped range that begins beyond the mark must not swallow what lies between. */
	assert_int_equal(send(r, m.records + 3, 1, &(struct sl_wal_range){6, 7}, 1, &reply), 0);
	assert_int_equal(reply.mark, 2);
	/* Ranges before and between; two that touch. */
	const struct sl_wal_range ranges[] = {{3, 3}, {4, 4}, {6, 7}};
	assert_int_equal(send(r, m.records + 2, 2, ranges, 3, &reply), 0);
	assert_int_equal(reply.mark, 8);
	/* Only ranges. */
	assert_int_equal(send(r, NULL, 0, &(struct sl_wal_range){9, 12}, 1, &reply), 0);
	assert_int_equal(reply.mark, 12);
	/* All of it once more changes nothing. */
	assert_int_equal(send(r, m.records, 4, ranges, 3, &reply), 0);
	assert_int_equal(reply.mark, 12);
	unmake(&m);
}

static void another_record_under_a_known_sequence_is_a_conflict(void **state)
{
	struct road *r = *state;
	struct sl_wal_reply reply;
	struct made m;
	make(&m, (const uint64_t[]){1, 2}, 2);
	assert_int_equal(send(r, m.records, 2, NULL, 0, &reply), 0);
	m.records[1].crc++;
	assert_int_equal(send(r, m.records, 2, NULL, 0, &reply), SL_ECONFLICT);
	unmake(&m);
}

static void the_record_that_is_refused_is_named(void **state)
{
	struct road *r = *state;
	struct sl_wal_reply reply;
	struct made m;
	make(&m, (const uint64_t[]){1, 2, 3}, 3);
	m.records[1].payload = "no event";
	m.records[1].payload_len = 8;
	assert_int_equal(send(r, m.records, 3, NULL, 0, &reply), SL_EREFUSED);
	assert_int_equal(reply.refused, 2);
	assert_int_equal(r->err.code, SL_EREFUSED);
	unmake(&m);
}

static enum memstore_fault away(const char *op, void *ctx)
{
	(void)op;
	(void)ctx;
	return MEMSTORE_FAIL_BEFORE;
}

static void an_unavailable_store_is_a_retryable_error(void **state)
{
	struct road *r = *state;
	struct sl_wal_reply reply;
	struct made m;
	make(&m, (const uint64_t[]){1}, 1);
	memstore_set_faults(r->ms, away, NULL);
	assert_int_equal(send(r, m.records, 1, NULL, 0, &reply), SL_EUNAVAIL);
	memstore_set_faults(r->ms, NULL, NULL);
	assert_int_equal(send(r, m.records, 1, NULL, 0, &reply), 0);
	assert_int_equal(reply.mark, 1);
	unmake(&m);
}

/* ---- batches ---- */

static void a_batch_gives_back_what_was_added_and_survives_a_lack_of_memory(void **state)
{
	(void)state;
	for (int64_t at = 1;; at++) {
		struct fault f;
		fault_init(&f, NULL);
		struct sl_env raw = fault_env(&f, NULL), env;
		assert_int_equal(sl__env_init(&env, &raw, NULL), 0);
		struct sl__event_batch b;
		sl__event_batch_init(&b, &env);
		fault_arm_mem(&f, at, FAULT_ONCE);
		struct sl_event e = sample(), back;
		int rc = 0;
		for (int i = 0; rc == 0 && i < 100; i++) {
			e.position = (uint64_t)i;
			rc = sl__event_batch_add(&b, &e, NULL);
			assert_int_equal(b.n, (size_t)i + (rc == 0));
		}
		for (size_t i = 0; i < b.n; i++) {
			e.position = i;
			sl__event_batch_get(&b, i, &back);
			assert_same(&e, &back);
		}
		bool failed = fault_mem_failed(&f) > 0;
		fault_disarm(&f);
		assert_true(failed == (rc == SL_ENOMEM));
		sl__event_batch_fini(&b);
		assert_int_equal(fault_live_allocs(&f), 0);
		fault_fini(&f);
		if (!failed)
			break;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define R(name) cmocka_unit_test_setup_teardown(name, road_open, road_close)
		cmocka_unit_test(an_event_comes_back_as_it_was),
		cmocka_unit_test(the_example_of_the_format_is_what_is_written),
		cmocka_unit_test(what_protobuf_c_packs_is_read_alike),
		cmocka_unit_test(what_we_encode_is_read_by_protobuf_c),
		cmocka_unit_test(fields_of_a_later_version_are_ignored),
		cmocka_unit_test(what_is_no_event_is_refused),
		cmocka_unit_test(an_event_that_was_cut_anywhere_never_reads_beyond),
		cmocka_unit_test(an_event_that_fits_no_record_is_refused),
		cmocka_unit_test(types_have_names),
		R(events_become_rows_with_gapless_offsets),
		R(each_batch_is_reported_once_the_store_has_it),
		R(a_record_that_is_not_an_event_is_parked_and_skipped),
		R(records_parked_before_are_skipped_and_counted_in_the_mark),
		R(a_store_that_lacks_earlier_records_answers_with_its_mark),
		R(another_record_under_a_known_sequence_is_a_conflict),
		R(the_record_that_is_refused_is_named),
		R(an_unavailable_store_is_a_retryable_error),
		cmocka_unit_test(a_batch_gives_back_what_was_added_and_survives_a_lack_of_memory),
	};
	return cmocka_run_group_tests_name("events", tests, NULL, NULL);
}
