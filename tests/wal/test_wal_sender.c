/* SPDX-License-Identifier: Apache-2.0 */
/* Delivery: order, batches, retries for ever, refusals, conflicts, stop. The receiver here is a script that notes what
 * it was asked. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>

#include "box.h"
#include "support/fault.h"
#include <sluice/dead_letter.h>

struct peer {
	pthread_mutex_t mu;
	pthread_cond_t cond;
	uint64_t mark;
	uint64_t calls, in_flight, most_in_flight;
	int fail_with; /* for fail_times calls */
	uint64_t fail_times;
	int64_t retry_after_ms;
	bool throttles;     /* of the class of the error */
	bool says_nothing;  /* it fails with a code alone */
	uint64_t refuse[4]; /* sequences */
	bool name_refused;
	bool gate;        /* calls wait here until it is opened */
	uint64_t gate_at; /* 0, or the mark from which on the gate is closed */
	uint64_t waiting, cancelled;
	uint64_t force_mark; /* answered instead of mark, once */
	size_t largest_batch, largest_bytes;
	char text[8192]; /* what it took: "1=a 2=b [3-3] …"; "| " before what came under another incarnation */
	/* A receiver that keeps a mark for each incarnation, and CRCs. */
	bool remembers;
	struct peer_stream {
		uint32_t incarnation;
		uint64_t mark, crc[64]; /* 0: skipped */
	} streams[4];
	uint32_t last_incarnation;
};

static void peer_init(struct peer *p)
{
	memset(p, 0, sizeof(*p));
	pthread_mutex_init(&p->mu, NULL);
	pthread_cond_init(&p->cond, NULL);
}

static void peer_put(struct peer *p, const char *fmt, ...) SL_PRINTF(2, 3);
static void peer_put(struct peer *p, const char *fmt, ...)
{
	size_t n = strlen(p->text);
	va_list args;
	va_start(args, fmt);
	if (n < sizeof(p->text) - 64)
		(void)vsnprintf(p->text + n, sizeof(p->text) - n, fmt, args);
	va_end(args);
}

static void take_ranges(struct peer *p, const struct sl_wal_batch *b)
{
	for (size_t i = 0; i < b->n_skipped; i++)
		if (b->skipped[i].first <= p->mark + 1 && b->skipped[i].last > p->mark) {
			p->mark = b->skipped[i].last;
			peer_put(p, "[%llu-%llu] ", (unsigned long long)b->skipped[i].first,
				 (unsigned long long)b->skipped[i].last);
		}
}

static bool refused(const struct peer *p, uint64_t sequence)
{
	for (size_t i = 0; i < 4; i++)
		if (p->refuse[i] != 0 && p->refuse[i] == sequence)
			return true;
	return false;
}

static struct peer_stream *stream_of(struct peer *p, uint32_t incarnation)
{
	struct peer_stream *s = p->streams;
	while (s->incarnation != 0 && s->incarnation != incarnation)
		s++;
	assert_true(s < p->streams + 4);
	s->incarnation = incarnation;
	return s;
}

/* Known records are compared, and so is the mark that the sender goes by. */
static int remember(struct peer *p, const struct sl_wal_batch *b)
{
	const struct peer_stream *s = stream_of(p, b->incarnation);
	if (p->last_incarnation != 0 && p->last_incarnation != b->incarnation)
		peer_put(p, "| ");
	p->last_incarnation = b->incarnation;
	p->mark = s->mark;
	if (b->after.kind == SL_WAL_MARK_RECORD && b->after.sequence == s->mark && b->after.crc != s->crc[s->mark])
		return SL_ECONFLICT;
	for (size_t i = 0; i < b->n_records; i++)
		if (b->records[i].sequence <= s->mark && b->records[i].crc != s->crc[b->records[i].sequence])
			return SL_ECONFLICT;
	return 0;
}

static void keep_mark(struct peer *p, const struct sl_wal_batch *b, struct sl_wal_reply *reply)
{
	struct peer_stream *s = stream_of(p, b->incarnation);
	for (size_t i = 0; i < b->n_records; i++)
		if (b->records[i].sequence > s->mark && b->records[i].sequence <= p->mark)
			s->crc[b->records[i].sequence] = b->records[i].crc;
	s->mark = p->mark;
	reply->mark_crc = s->crc[s->mark];
	reply->mark_kind = s->crc[s->mark] != 0 ? SL_WAL_MARK_RECORD : SL_WAL_MARK_SKIPPED;
}

static int take(struct peer *p, const struct sl_wal_batch *b, struct sl_wal_reply *reply)
{
	size_t bytes = 0;
	int known = p->remembers ? remember(p, b) : 0;
	if (known != 0)
		return known;
	for (size_t i = 0; i < b->n_records && !p->name_refused; i++)
		if (refused(p, b->records[i].sequence))
			return SL_EREFUSED;
	for (size_t i = 0; i < b->n_records; i++) {
		const struct sl_wal_record *r = &b->records[i];
		bytes += r->payload_len;
		take_ranges(p, b);
		if (refused(p, r->sequence)) {
			reply->refused = r->sequence;
			return SL_EREFUSED;
		}
		if (r->sequence != p->mark + 1)
			continue;
		p->mark = r->sequence;
		peer_put(p, "%llu=%.*s ", (unsigned long long)r->sequence,
			 (int)(r->payload_len < 8 ? r->payload_len : 3), (const char *)r->payload);
	}
	take_ranges(p, b);
	p->largest_batch = b->n_records > p->largest_batch ? b->n_records : p->largest_batch;
	p->largest_bytes = bytes > p->largest_bytes ? bytes : p->largest_bytes;
	if (p->remembers)
		keep_mark(p, b, reply);
	return 0;
}

static int peer_send(const struct sl_wal_batch *batch, struct sl_wal_reply *reply, struct sl_err *err, void *ctx)
{
	struct peer *p = ctx;
	pthread_mutex_lock(&p->mu);
	p->calls++;
	p->in_flight++;
	p->most_in_flight = p->in_flight > p->most_in_flight ? p->in_flight : p->most_in_flight;
	p->waiting++;
	pthread_cond_broadcast(&p->cond);
	if (p->gate_at != 0 && p->mark >= p->gate_at) {
		p->gate = true;
		p->gate_at = 0;
		pthread_cond_broadcast(&p->cond);
	}
	while (p->gate)
		pthread_cond_wait(&p->cond, &p->mu);
	p->waiting--;
	int rc = 0;
	if (p->fail_times != 0) {
		p->fail_times--;
		rc = p->fail_with;
	}
	if (rc == 0)
		rc = take(p, batch, reply);
	reply->mark = p->force_mark != 0 ? p->force_mark : p->mark;
	p->force_mark = 0;
	p->in_flight--;
	pthread_cond_broadcast(&p->cond);
	int64_t wait_ms = p->retry_after_ms;
	bool throttles = p->throttles, says_nothing = p->says_nothing;
	pthread_mutex_unlock(&p->mu);
	if (rc == 0 || says_nothing)
		return rc;
	rc = sl_err_set(err, rc, "the peer said so");
	err->retry_after_ms = wait_ms;
	if (throttles)
		err->error_class = SL_CLASS_THROTTLED;
	return rc;
}

static void peer_cancel(void *ctx)
{
	struct peer *p = ctx;
	pthread_mutex_lock(&p->mu);
	p->cancelled++;
	p->gate = false;
	p->fail_times++;
	p->fail_with = SL_ECANCELLED;
	pthread_cond_broadcast(&p->cond);
	pthread_mutex_unlock(&p->mu);
}

static const struct sl_wal_sender peer_table = {
	.version = SL_WAL_SENDER_VERSION, .send = peer_send, .cancel = peer_cancel};

static void peer_await_call(struct peer *p, uint64_t calls)
{
	pthread_mutex_lock(&p->mu);
	while (p->calls < calls)
		pthread_cond_wait(&p->cond, &p->mu);
	pthread_mutex_unlock(&p->mu);
}

static void peer_await_gate(struct peer *p)
{
	pthread_mutex_lock(&p->mu);
	while (!p->gate)
		pthread_cond_wait(&p->cond, &p->mu);
	pthread_mutex_unlock(&p->mu);
}

static void peer_await_mark(struct peer *p, uint64_t mark)
{
	pthread_mutex_lock(&p->mu);
	while (p->mark < mark)
		pthread_cond_wait(&p->cond, &p->mu);
	pthread_mutex_unlock(&p->mu);
}

static uint64_t peer_mark(struct peer *p)
{
	pthread_mutex_lock(&p->mu);
	uint64_t mark = p->mark;
	pthread_mutex_unlock(&p->mu);
	return mark;
}

static void peer_open_gate(struct peer *p)
{
	pthread_mutex_lock(&p->mu);
	p->gate = false;
	pthread_cond_broadcast(&p->cond);
	pthread_mutex_unlock(&p->mu);
}

/* Start, deliver everything, stop. */
static int deliver(struct box *b, sl_wal *w, struct peer *p)
{
	int rc = sl_wal_sender_start(w, &peer_table, p, &b->err);
	return rc != 0 ? rc : sl_wal_sender_stop(w, SL_UNLIMITED, &b->err);
}

static void append_letters(sl_wal *w, const char *letters)
{
	for (; *letters != '\0'; letters++) {
		char text[2] = {*letters, '\0'};
		(void)box_append(w, text);
	}
}

static void records_arrive_in_order_and_are_marked_sent(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	box_init(&b);
	peer_init(&p);
	sl_wal *w = box_open(&b);
	append_letters(w, "abc");
	assert_int_equal(deliver(&b, w, &p), 0);
	assert_string_equal(p.text, "1=a 2=b 3=c ");
	struct sl_wal_stats st = box_stats(w);
	assert_int_equal(st.pending, 0);
	assert_int_equal(st.sent, 3);
	assert_int_equal(st.mark, 3);
	assert_int_equal(st.sender_state, SL_WAL_SENDER_STOPPED);
	assert_int_equal(sl_wal_sender_stop(w, 0, &b.err), 0); /* idempotent */
	append_letters(w, "d");
	assert_int_equal(sl_wal_sender_stop(w, 0, &b.err), SL_EPENDING);
	assert_int_equal(deliver(&b, w, &p), 0); /* usable again */
	assert_string_equal(p.text, "1=a 2=b 3=c 4=d ");
	box_close(&b, w);
	assert_scan(&b, BOX_PATH, "1=a* 2=b* 3=c* 4=d*");
	box_fini(&b);
}

static void a_batch_has_at_most_50_records_and_256_kib(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	box_init(&b);
	peer_init(&p);
	sl_wal *w = box_open(&b);
	box_append_n(w, 120, 10);
	assert_int_equal(deliver(&b, w, &p), 0);
	assert_int_equal(p.largest_batch, 50);
	assert_int_equal(p.mark, 120);
	box_append_n(w, 20, 30000);
	assert_int_equal(deliver(&b, w, &p), 0);
	assert_true(p.largest_bytes <= 256 * 1024);
	assert_true(p.largest_bytes > 200 * 1024);
	box_append_n(w, 1, 300000); /* a larger one goes alone */
	box_append_n(w, 1, 10);
	assert_int_equal(deliver(&b, w, &p), 0);
	assert_int_equal(p.largest_bytes, 300000);
	assert_int_equal(p.mark, 142);
	assert_int_equal(p.most_in_flight, 1);
	box_close(&b, w);
	box_fini(&b);
}

static void the_sender_wakes_on_append(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	box_init(&b);
	peer_init(&p);
	b.e.clock.auto_advance = 0; /* nothing moves the time: only the append can wake it */
	sl_wal *w = box_open(&b);
	assert_int_equal(sl_wal_sender_start(w, &peer_table, &p, &b.err), 0);
	assert_int_equal(sl_wal_sender_start(w, &peer_table, &p, &b.err), SL_EINVAL);
	append_letters(w, "a");
	peer_await_mark(&p, 1);
	append_letters(w, "b");
	peer_await_mark(&p, 2);
	assert_int_equal(sl_wal_sender_stop(w, SL_UNLIMITED, &b.err), 0);
	box_close(&b, w);
	box_fini(&b);
}

static void a_batch_with_room_waits_for_more_until_it_is_full_or_its_time_is_over(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	box_init(&b);
	peer_init(&p);
	b.e.clock.auto_advance = 0; /* no time passes but what the test lets pass */
	b.opts.linger_ms = 10;
	b.opts.background = SL_OFF; /* the sender is the only one who waits for a time */
	sl_wal *w = box_open(&b);
	assert_int_equal(sl_wal_sender_start(w, &peer_table, &p, &b.err), 0);
	for (int i = 0; i < 50; i++)
		append_letters(w, "a");
	peer_await_mark(&p, 50);
	assert_int_equal(p.largest_batch, 50);
	assert_int_equal(p.calls, 2); /* the first one asks for the mark */
	append_letters(w, "b");
	int64_t before = b.e.env.clock->mono_ns(b.e.env.clock_ctx);
	while (peer_mark(&p) < 51)
		(void)vclock_advance_to_next(&b.e.clock);
	assert_true(b.e.env.clock->mono_ns(b.e.env.clock_ctx) - before >= 10 * 1000000);
	assert_int_equal(p.calls, 3);
	append_letters(w, "c");
	assert_int_equal(sl_wal_sender_stop(w, SL_UNLIMITED, &b.err), 0); /* who stops does not wait for more */
	assert_int_equal(p.mark, 52);
	box_close(&b, w);
	box_fini(&b);
}

static void failures_are_retried_for_ever_with_growing_delays(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	box_init(&b);
	peer_init(&p);
	sl_wal *w = box_open(&b);
	append_letters(w, "ab");
	p.fail_with = SL_EUNAVAIL;
	p.fail_times = 1000;
	int64_t before = b.e.env.clock->mono_ns(b.e.env.clock_ctx);
	assert_int_equal(deliver(&b, w, &p), 0);
	int64_t waited_s = (b.e.env.clock->mono_ns(b.e.env.clock_ctx) - before) / 1000000000;
	/* 1 + 2 + 4 + 8 + 16 + 32, then 60 seconds each; the stop cuts the one short that it comes in. */
	assert_true(waited_s >= 63 + 993 * 60);
	assert_true(waited_s <= 63 + 994 * 60 + 120);
	assert_string_equal(p.text, "1=a 2=b ");
	assert_int_equal(box_stats(w).failed, 0);
	box_close(&b, w);
	box_fini(&b);
}

static void other_errors_of_the_receiver_park_nothing(void **state)
{
	(void)state;
	static const int codes[] = {SL_EIO,   SL_EACCES, SL_EDATA,        SL_ETIMEDOUT,  SL_EUNAVAIL,
				    SL_EFULL, SL_ENOENT, SL_EUNSUPPORTED, SL_ECANCELLED, SL_EINTERNAL};
	struct box b;
	box_init(&b);
	sl_wal *w = box_open(&b);
	struct peer p;
	peer_init(&p);
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		append_letters(w, "a");
		p.fail_with = codes[i];
		p.fail_times = 3;
		assert_int_equal(deliver(&b, w, &p), 0);
		assert_int_equal(p.mark, i + 1);
	}
	assert_int_equal(box_stats(w).failed, 0);
	box_close(&b, w);
	box_fini(&b);
}

static void the_receiver_may_say_how_long_to_wait(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	box_init(&b);
	peer_init(&p);
	sl_wal *w = box_open(&b);
	append_letters(w, "a");
	p.fail_with = SL_EUNAVAIL;
	p.fail_times = 1;
	p.retry_after_ms = 3600000;
	int64_t before = b.e.env.clock->mono_ns(b.e.env.clock_ctx);
	assert_int_equal(deliver(&b, w, &p), 0);
	int64_t waited_ms = (b.e.env.clock->mono_ns(b.e.env.clock_ctx) - before) / 1000000;
	assert_true(waited_ms >= 3600000 && waited_ms < 2 * 3600000);
	box_close(&b, w);
	box_fini(&b);
}

/* For as long as it says, however often it says it; one that does not say how long is waited for like one that is
 * unavailable. */
static void a_receiver_that_throttles_is_waited_for(void **state)
{
	(void)state;
	static const struct {
		int64_t says_ms, least_ms, most_ms;
	} cases[] = {{100, 1000, 2000}, {0, 1000 * (1 + 2 + 4 + 8 + 16 + 32 + 4 * 60), 1000 * (63 + 4 * 60 + 60)}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct box b;
		struct peer p;
		box_init(&b);
		peer_init(&p);
		sl_wal *w = box_open(&b);
		append_letters(w, "a");
		p.fail_with = SL_EUNAVAIL;
		p.fail_times = 10;
		p.throttles = true;
		p.retry_after_ms = cases[i].says_ms;
		int64_t before = b.e.env.clock->mono_ns(b.e.env.clock_ctx);
		assert_int_equal(deliver(&b, w, &p), 0);
		int64_t waited_ms = (b.e.env.clock->mono_ns(b.e.env.clock_ctx) - before) / 1000000;
		assert_in_range(waited_ms, cases[i].least_ms, cases[i].most_ms);
		assert_string_equal(p.text, "1=a ");
		box_close(&b, w);
		box_fini(&b);
	}
}

static void a_receiver_that_fails_with_a_code_alone_is_in_trouble_too(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	box_init(&b);
	peer_init(&p);
	p.fail_with = SL_EACCES;
	p.fail_times = UINT64_MAX / 2;
	p.says_nothing = true;
	sl_wal *w = box_open(&b);
	append_letters(w, "a");
	assert_int_equal(sl_wal_sender_start(w, &peer_table, &p, &b.err), 0);
	peer_await_call(&p, 2);
	assert_int_equal(sl_wal_sender_stop(w, 10000, &b.err), SL_EPENDING);
	assert_true(strstr(b.err.msg, sl_err_text(SL_EACCES)) != NULL ||
		    strstr(b.err.msg, sl_err_text(SL_ECANCELLED)) != NULL); /* by the end of the stop's time */
	box_close(&b, w);
	box_fini(&b);
}

struct letters {
	size_t n;
	char text[256];
};

static int note_letter(const struct sl_dlq_letter *letter, void *ctx)
{
	struct letters *l = ctx;
	size_t n = strlen(l->text);
	l->n++;
	assert_int_equal(letter->code, SL_EREFUSED);
	assert_non_null(strstr(letter->source, "s"));
	(void)snprintf(l->text + n, sizeof(l->text) - n, "%llu=%.*s ", (unsigned long long)letter->position,
		       (int)letter->item_len, (const char *)letter->item);
	return 0;
}

static struct letters letters_of(struct box *b, const char *dir)
{
	struct letters l = {0};
	struct sl_dlq_opts opts = {SL_DLQ_OPTS_INIT, .env = &b->e.env, .read_only = SL_ON};
	sl_dlq *q = NULL;
	assert_int_equal(sl_dlq_open(&q, dir, &opts, &b->err), 0);
	assert_int_equal(sl_dlq_list(q, false, note_letter, &l, &b->err), 0);
	sl_dlq_close(q);
	return l;
}

static void a_refused_record_is_parked_and_skipped(bool named)
{
	struct box b;
	struct peer p;
	box_init(&b);
	peer_init(&p);
	sl_wal *w = box_open(&b);
	append_letters(w, "abcdefghij");
	p.refuse[0] = 4;
	p.refuse[1] = 9;
	p.name_refused = named;
	assert_int_equal(deliver(&b, w, &p), 0);
	assert_string_equal(p.text, "1=a 2=b 3=c [4-4] 5=e 6=f 7=g 8=h [9-9] 10=j ");
	assert_int_equal(box_stats(w).failed, 2);
	assert_int_equal(box_stats(w).sent, 8);
	box_close(&b, w);
	assert_scan(&b, BOX_PATH, "1=a* 2=b* 3=c* 4=d! 5=e* 6=f* 7=g* 8=h* 9=i! 10=j*");
	struct letters l = letters_of(&b, "/w/s.dead");
	assert_int_equal(l.n, 2);
	assert_string_equal(l.text, "4=d 9=i ");
	box_fini(&b);
}

static void a_record_that_the_receiver_names_is_parked_and_skipped(void **state)
{
	(void)state;
	a_refused_record_is_parked_and_skipped(true);
}

static void a_refused_record_that_is_not_named_is_found_by_bisecting(void **state)
{
	(void)state;
	a_refused_record_is_parked_and_skipped(false);
}

static void a_record_is_not_skipped_while_its_letter_cannot_be_kept(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	box_init(&b);
	peer_init(&p);
	crashfs_put(b.fs, "/blocked", "a file where the folder should be", 33);
	b.opts.dead_letter_dir = "/blocked";
	b.e.clock.auto_advance = 0;
	sl_wal *w = box_open(&b);
	append_letters(w, "abc");
	p.refuse[0] = 2;
	p.name_refused = true;
	assert_int_equal(sl_wal_sender_start(w, &peer_table, &p, &b.err), 0);
	peer_await_call(&p, 1);
	for (uint64_t i = 0; i < 5; i++) {
		vclock_await_waiters(&b.e.clock, 1);
		(void)vclock_advance_to_next(&b.e.clock);
	}
	assert_int_equal(box_stats(w).failed, 0);
	assert_int_equal(p.mark, 1);
	assert_int_equal(sl_wal_sender_stop(w, 0, &b.err), SL_EPENDING);
	box_close(&b, w);
	assert_scan(&b, BOX_PATH, "1=a* 2=b 3=c");
	box_fini(&b);
}

/* The log as it is on disk now, and that put back: a folder that was restored from a backup. */
struct backup {
	uint8_t bytes[4096];
	size_t n;
};

static void back_up(struct box *b, struct backup *to)
{
	const uint8_t *bytes = box_bytes(b, BOX_PATH, &to->n);
	assert_true(to->n <= sizeof(to->bytes));
	memcpy(to->bytes, bytes, to->n);
}

static void restore(struct box *b, const struct backup *from)
{
	box_cut(b, BOX_PATH, from->n);
	box_poke(b, BOX_PATH, 0, from->bytes, from->n);
}

static void deliver_letters(struct box *b, struct peer *p, const char *letters)
{
	sl_wal *w = box_open(b);
	append_letters(w, letters);
	assert_int_equal(deliver(b, w, p), 0);
	assert_int_equal(box_stats(w).pending, 0);
	box_close(b, w);
}

static void a_restored_log_delivers_what_its_receiver_has_other_records_for(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	struct backup copy;
	box_init(&b);
	peer_init(&p);
	p.remembers = true;
	deliver_letters(&b, &p, "ab");
	back_up(&b, &copy);
	deliver_letters(&b, &p, "cde");
	restore(&b, &copy);
	uint64_t warned = b.e.warnings;
	deliver_letters(&b, &p, "NOPQ"); /* as long as what was lost, and one more */
	assert_string_equal(p.text, "1=a 2=b 3=c 4=d 5=e | [1-2] 3=N 4=O 5=P 6=Q ");
	assert_true(b.e.warnings > warned);
	/* The new incarnation is kept: nothing comes twice. */
	deliver_letters(&b, &p, "R");
	assert_string_equal(p.text, "1=a 2=b 3=c 4=d 5=e | [1-2] 3=N 4=O 5=P 6=Q 7=R ");
	assert_scan(&b, BOX_PATH, "1=a* 2=b* 3=N* 4=O* 5=P* 6=Q* 7=R*");
	box_fini(&b);
}

static void a_restored_log_that_is_shorter_than_its_receiver_delivers_what_is_appended(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	struct backup copy;
	box_init(&b);
	peer_init(&p);
	p.remembers = true;
	deliver_letters(&b, &p, "ab");
	back_up(&b, &copy);
	deliver_letters(&b, &p, "cde");
	restore(&b, &copy);
	deliver_letters(&b, &p, "");
	deliver_letters(&b, &p, "N");
	assert_string_equal(p.text, "1=a 2=b 3=c 4=d 5=e | [1-2] 3=N ");
	/* And restored once more, to before that. */
	restore(&b, &copy);
	deliver_letters(&b, &p, "XY");
	assert_string_equal(p.text, "1=a 2=b 3=c 4=d 5=e | [1-2] 3=N | | [1-2] 3=X 4=Y ");
	box_fini(&b);
}

static void a_log_that_was_copied_while_records_were_pending_delivers_them_again_rather_than_never(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	struct backup copy;
	box_init(&b);
	peer_init(&p);
	p.remembers = true;
	sl_wal *w = box_open(&b);
	append_letters(w, "ab");
	box_close(&b, w);
	back_up(&b, &copy); /* before anything was acknowledged */
	deliver_letters(&b, &p, "c");
	restore(&b, &copy);
	deliver_letters(&b, &p, "N");
	assert_string_equal(p.text, "1=a 2=b 3=c | 1=a 2=b 3=N ");
	box_fini(&b);
}

static void a_new_incarnation_goes_along_when_segments_are_sealed_and_archived(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	struct backup copy;
	box_init(&b);
	peer_init(&p);
	p.remembers = true;
	b.opts.segment_bytes = 4096;
	b.opts.discard_settled = SL_ON;
	deliver_letters(&b, &p, "ab");
	back_up(&b, &copy);
	deliver_letters(&b, &p, "cde");
	restore(&b, &copy);
	deliver_letters(&b, &p, "N");
	uint32_t incarnation = p.last_incarnation;
	for (int i = 0; i < 4; i++) {
		sl_wal *w = box_open(&b);
		assert_int_equal(box_stats(w).sent_incarnation, incarnation);
		box_append_n(w, 4, 1500);
		assert_int_equal(deliver(&b, w, &p), 0);
		box_close(&b, w);
	}
	assert_int_equal(p.mark, 19);
	assert_int_equal(p.last_incarnation, incarnation);
	sl_wal *w = box_open(&b);
	assert_true(box_stats(w).first_sequence > 3); /* the segment with its beginning is gone */
	assert_int_equal(box_stats(w).sent_incarnation, incarnation);
	box_close(&b, w);
	box_fini(&b);
}

/* The copy in the last segment is damaged, so that the recovery writes it again. */
static void a_recovery_with_a_new_incarnation_forgets_the_one_that_the_sender_began(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	struct backup copy;
	struct sl_wal_stats st = {.struct_size = sizeof(st)};
	box_init(&b);
	peer_init(&p);
	p.remembers = true;
	b.opts.segment_bytes = 4096;
	deliver_letters(&b, &p, "ab");
	back_up(&b, &copy);
	deliver_letters(&b, &p, "cde");
	restore(&b, &copy);
	deliver_letters(&b, &p, "N");
	sl_wal *w = box_open(&b);
	box_append_n(w, 4, 1500);
	assert_true(box_stats(w).segments > 1);
	box_close(&b, w);
	box_flip(&b, BOX_PATH, (16 + 24) * 8);
	struct sl_wal_recover_opts opts = {SL_WAL_RECOVER_OPTS_INIT, .wal = &b.opts, .new_incarnation = true};
	assert_int_equal(sl_wal_recover(BOX_PATH, &opts, &st, &b.err), 0);
	assert_int_equal(st.pending, 4);
	assert_int_equal(st.sent_incarnation, st.incarnation);
	w = box_open(&b);
	assert_int_equal(box_stats(w).sent_incarnation, st.incarnation);
	assert_int_equal(deliver(&b, w, &p), 0);
	box_close(&b, w);
	assert_int_equal(p.last_incarnation, st.incarnation);
	assert_int_equal(stream_of(&p, st.incarnation)->mark, 4);
	assert_true(stream_of(&p, st.incarnation)->crc[1] != 0); /* a record, not skipped */
	box_fini(&b);
}

static void a_receiver_whose_records_differ_from_those_it_goes_by_is_noticed_before_it_takes_more(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	box_init(&b);
	peer_init(&p);
	p.remembers = true;
	sl_wal *w = box_open(&b);
	append_letters(w, "ab");
	assert_int_equal(sl_wal_sender_start(w, &peer_table, &p, &b.err), 0);
	peer_await_mark(&p, 2);
	while (box_stats(w).pending > 0)
		sched_yield();
	pthread_mutex_lock(&p.mu);
	p.streams[0].crc[2] ^= 1; /* another receiver with the same mark took its place */
	pthread_mutex_unlock(&p.mu);
	append_letters(w, "c");
	assert_int_equal(sl_wal_sender_stop(w, SL_UNLIMITED, &b.err), 0);
	assert_string_equal(p.text, "1=a 2=b | 1=a 2=b 3=c "); /* it has not what it acknowledged */
	box_close(&b, w);
	box_fini(&b);
}

/* Receiver and log were both restored, at different times: what the receiver acknowledged once and has no more is sent
 * again, however many records of the other log it took meanwhile. */
static void a_receiver_that_lost_records_and_took_others_instead_gets_all_that_the_log_has(void **state)
{
	(void)state;
	static const char *const others[] = {"X", "XY", "XYZW"};
	for (size_t i = 0; i < 3; i++) {
		struct box b;
		struct peer p;
		struct backup early, whole;
		box_init(&b);
		peer_init(&p);
		p.remembers = true;
		deliver_letters(&b, &p, "a");
		back_up(&b, &early);
		deliver_letters(&b, &p, "bc");
		back_up(&b, &whole);
		p.streams[0].mark = 1; /* restored */
		restore(&b, &early);
		deliver_letters(&b, &p, others[i]);
		assert_int_equal(p.streams[1].incarnation, 0); /* no reason for a new one yet */
		p.text[0] = '\0';
		restore(&b, &whole);
		deliver_letters(&b, &p, "d");
		assert_string_equal(p.text, "| 1=a 2=b 3=c 4=d ");
		deliver_letters(&b, &p, "e");
		assert_string_equal(p.text, "| 1=a 2=b 3=c 4=d 5=e ");
		box_fini(&b);
	}
}

static void a_receiver_that_was_restored_to_before_a_new_incarnation_gets_all_that_the_log_has(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	struct backup copy;
	box_init(&b);
	peer_init(&p);
	p.remembers = true;
	deliver_letters(&b, &p, "ab");
	back_up(&b, &copy);
	deliver_letters(&b, &p, "cde");
	restore(&b, &copy);
	deliver_letters(&b, &p, "N");
	assert_string_equal(p.text, "1=a 2=b 3=c 4=d 5=e | [1-2] 3=N ");
	p.streams[0].mark = 1;
	memset(&p.streams[1], 0, sizeof(p.streams[1]));
	p.text[0] = '\0';
	deliver_letters(&b, &p, "O");
	assert_string_equal(p.text, "| 1=a 2=b 3=N 4=O ");
	deliver_letters(&b, &p, "P");
	assert_string_equal(p.text, "| 1=a 2=b 3=N 4=O 5=P ");
	box_fini(&b);
}

static void a_mark_that_was_skipped_for_another_log_is_not_taken_for_ones_own(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	struct backup copy;
	box_init(&b);
	peer_init(&p);
	p.remembers = p.name_refused = true;
	deliver_letters(&b, &p, "a");
	back_up(&b, &copy);
	p.refuse[0] = 2;
	deliver_letters(&b, &p, "b");
	assert_string_equal(p.text, "1=a [2-2] ");
	p.refuse[0] = 0;
	restore(&b, &copy);
	deliver_letters(&b, &p, "N");
	assert_string_equal(p.text, "1=a [2-2] | [1-1] 2=N ");
	box_fini(&b);
}

static void a_receiver_that_reports_conflicts_for_every_incarnation_halts_the_stream_visibly(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	box_init(&b);
	peer_init(&p);
	sl_wal *w = box_open(&b);
	append_letters(w, "abc");
	p.fail_with = SL_ECONFLICT;
	p.fail_times = 4;
	assert_int_equal(sl_wal_sender_start(w, &peer_table, &p, &b.err), 0);
	peer_await_call(&p, 4);
	while (box_stats(w).sender_state != SL_WAL_SENDER_HALTED)
		sched_yield();
	assert_int_equal(sl_wal_sender_error(w, NULL), SL_ECONFLICT);
	append_letters(w, "d");                                       /* appends continue */
	assert_true(sl_wal_sender_stop(w, SL_UNLIMITED, &b.err) < 0); /* does not hang */
	assert_int_equal(p.calls, 4);
	assert_int_equal(box_stats(w).pending, 4); /* nothing is taken for sent */
	box_close(&b, w);
	assert_scan(&b, BOX_PATH, "1=a 2=b 3=c 4=d");
	box_fini(&b);
}

static void a_record_that_the_disk_gives_back_damaged_halts_the_stream_visibly(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	box_init(&b);
	peer_init(&p);
	sl_wal *w = box_open(&b);
	append_letters(w, "abc");
	box_flip(&b, BOX_PATH, (16 + 2 * 33 - 9) * 8); /* the payload of the second: one byte, then the checksum */
	assert_int_equal(sl_wal_sender_start(w, &peer_table, &p, &b.err), 0);
	while (box_stats(w).sender_state != SL_WAL_SENDER_HALTED)
		sched_yield();
	assert_int_equal(sl_wal_sender_error(w, &b.err), SL_ECORRUPT);
	assert_non_null(strstr(b.err.msg, "sluice wal recover"));
	assert_string_equal(p.text, "1=a ");
	assert_true(sl_wal_sender_stop(w, SL_UNLIMITED, &b.err) < 0); /* does not hang */
	assert_int_equal(box_stats(w).pending, 2);
	box_close(&b, w);
	box_fini(&b);
}

/* A disk that answers again is all that is needed. */
static void a_read_that_fails_is_tried_again(void **state)
{
	(void)state;
	for (int64_t n = 1; n <= 3; n++) {
		struct box b;
		struct peer p;
		struct fault f;
		box_init(&b);
		peer_init(&p);
		fault_init(&f, &b.e.env);
		struct sl_env env = fault_env(&f, &b.e.env);
		b.opts.env = &env;
		sl_wal *w = box_open(&b);
		append_letters(w, "abc");
		fault_arm_io(&f, n, FAULT_ONCE, EIO, FAULT_OP(FAULT_PREAD));
		assert_int_equal(deliver(&b, w, &p), 0);
		assert_string_equal(p.text, "1=a 2=b 3=c ");
		assert_true(n > 1 || fault_io_failed(&f) == 1);
		fault_disarm(&f);
		assert_int_equal(sl_wal_sender_error(w, &b.err), 0);
		box_close(&b, w);
		assert_int_equal(fault_live_allocs(&f), 0);
		fault_fini(&f);
		box_fini(&b);
	}
}

static void a_mark_above_what_was_appended_begins_a_new_incarnation(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	box_init(&b);
	peer_init(&p);
	sl_wal *w = box_open(&b);
	append_letters(w, "abc");
	p.force_mark = 77; /* of a receiver without CRCs */
	assert_int_equal(deliver(&b, w, &p), 0);
	assert_string_equal(p.text, "1=a 2=b 3=c ");
	assert_int_not_equal(box_stats(w).sent_incarnation, box_stats(w).incarnation);
	box_close(&b, w);
	box_fini(&b);
}

static void a_restored_receiver_gets_everything_from_its_mark_again(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	box_init(&b);
	peer_init(&p);
	sl_wal *w = box_open(&b);
	append_letters(w, "abcde");
	assert_int_equal(deliver(&b, w, &p), 0);
	p.mark = 2; /* restored from a backup */
	p.text[0] = '\0';
	append_letters(w, "f");
	assert_int_equal(deliver(&b, w, &p), 0);
	assert_string_equal(p.text, "3=c 4=d 5=e 6=f ");
	assert_int_equal(box_stats(w).pending, 0);
	box_close(&b, w);
	box_fini(&b);
}

static void a_restart_continues_where_the_receiver_is(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	box_init(&b);
	peer_init(&p);
	sl_wal *w = box_open(&b);
	append_letters(w, "abc");
	assert_int_equal(deliver(&b, w, &p), 0);
	append_letters(w, "de");
	box_close(&b, w);
	w = box_open(&b);
	assert_int_equal(deliver(&b, w, &p), 0);
	assert_string_equal(p.text, "1=a 2=b 3=c 4=d 5=e ");
	box_close(&b, w);
	box_fini(&b);
}

static void records_that_a_receiver_has_already_are_not_sent_twice(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	box_init(&b);
	peer_init(&p);
	sl_wal *w = box_open(&b);
	append_letters(w, "abc");
	p.mark = 3; /* took them, and the answer was lost */
	assert_int_equal(deliver(&b, w, &p), 0);
	assert_string_equal(p.text, "");
	assert_int_equal(box_stats(w).sent, 3);
	box_close(&b, w);
	box_fini(&b);
}

static void a_declared_hole_is_reported_as_skipped(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	box_init(&b);
	peer_init(&p);
	sl_wal *w = box_open(&b);
	append_letters(w, "abcd");
	box_close(&b, w);
	box_flip(&b, BOX_PATH, (16 + 33 + 24) * 8);
	w = box_open(&b);
	assert_int_equal(deliver(&b, w, &p), 0);
	assert_string_equal(p.text, "1=a [2-2] 3=c 4=d ");
	box_close(&b, w);
	box_fini(&b);
}

static void stop_gives_up_at_its_deadline_and_keeps_the_rest(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	box_init(&b);
	peer_init(&p);
	sl_wal *w = box_open(&b);
	append_letters(w, "abc");
	p.fail_with = SL_EUNAVAIL;
	p.fail_times = UINT64_MAX / 2;
	assert_int_equal(sl_wal_sender_start(w, &peer_table, &p, &b.err), 0);
	assert_int_equal(sl_wal_sender_stop(w, 10000, &b.err), SL_EPENDING);
	assert_int_equal(box_stats(w).pending, 3);
	assert_int_equal(box_append(w, "d"), 4);
	p.fail_times = 0;
	assert_int_equal(deliver(&b, w, &p), 0);
	assert_string_equal(p.text, "1=a 2=b 3=c 4=d ");
	box_close(&b, w);
	box_fini(&b);
}

struct stopper {
	sl_wal *w;
	int rc;
};

static void *stop_within_10_s(void *arg)
{
	struct stopper *s = arg;
	s->rc = sl_wal_sender_stop(s->w, 10000, NULL);
	return NULL;
}

static void stop_tries_at_once_what_waits_for_a_retry_and_again_before_its_deadline(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	pthread_t thread;
	box_init(&b);
	peer_init(&p);
	b.e.clock.auto_advance = 0;
	sl_wal *w = box_open(&b);
	append_letters(w, "ab");
	p.fail_with = SL_EUNAVAIL;
	p.fail_times = 10; /* eight before the stop, so that a pause takes at least 30 s; and two after it */
	assert_int_equal(sl_wal_sender_start(w, &peer_table, &p, &b.err), 0);
	for (uint64_t calls = 1; calls <= 8; calls++) {
		peer_await_call(&p, calls);
		vclock_await_settled(&b.e.clock, 1);
		if (calls < 8)
			(void)vclock_advance_to_next(&b.e.clock);
	}
	struct stopper s = {.w = w};
	assert_int_equal(pthread_create(&thread, NULL, stop_within_10_s, &s), 0);
	for (uint64_t calls = 9; calls <= 10; calls++) {
		peer_await_call(&p, calls);
		vclock_await_settled(&b.e.clock, 2); /* the sender's pause, the stop's deadline */
		(void)vclock_advance_to_next(&b.e.clock);
	}
	(void)pthread_join(thread, NULL);
	assert_int_equal(s.rc, 0);
	assert_string_equal(p.text, "1=a 2=b ");
	box_close(&b, w);
	box_fini(&b);
}

static void stop_cancels_a_send_that_hangs(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	box_init(&b);
	peer_init(&p);
	sl_wal *w = box_open(&b);
	append_letters(w, "abc");
	p.gate = true;
	assert_int_equal(sl_wal_sender_start(w, &peer_table, &p, &b.err), 0);
	peer_await_call(&p, 1);
	assert_int_equal(sl_wal_sender_stop(w, 0, &b.err), SL_EPENDING);
	assert_true(p.cancelled >= 1);
	assert_int_equal(box_stats(w).pending, 3);
	box_close(&b, w);
	box_fini(&b);
}

static void close_stops_a_running_sender(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	box_init(&b);
	peer_init(&p);
	sl_wal *w = box_open(&b);
	append_letters(w, "abc");
	p.gate = true;
	assert_int_equal(sl_wal_sender_start(w, &peer_table, &p, &b.err), 0);
	peer_await_call(&p, 1);
	box_close(&b, w);
	assert_true(p.cancelled >= 1);
	assert_scan(&b, BOX_PATH, "1=a 2=b 3=c");
	box_fini(&b);
}

struct appender {
	sl_wal *w;
	int rc;
};

static void *append_900(void *ctx)
{
	struct appender *a = ctx;
	char text[900] = {0};
	a->rc = sl_wal_append(a->w, text, sizeof(text), NULL, NULL);
	return NULL;
}

static void automatic_backlog_blocks_while_a_sender_runs(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	box_init(&b);
	peer_init(&p);
	b.e.clock.auto_advance = 0;
	b.opts.max_pending_bytes = 1000;
	sl_wal *w = box_open(&b);
	p.gate = true;
	assert_int_equal(sl_wal_sender_start(w, &peer_table, &p, &b.err), 0);
	struct appender a = {.w = w};
	(void)append_900(&a);
	assert_int_equal(a.rc, 0);
	peer_await_call(&p, 1);
	pthread_t t;
	a.rc = 1;
	assert_int_equal(pthread_create(&t, NULL, append_900, &a), 0);
	vclock_await_waiters(&b.e.clock, 1);
	peer_open_gate(&p);
	pthread_join(t, NULL);
	assert_int_equal(a.rc, 0);
	assert_int_equal(sl_wal_sender_stop(w, SL_UNLIMITED, &b.err), 0);
	box_close(&b, w);
	box_fini(&b);
}

static void complete_delivers_and_archives(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	box_init(&b);
	peer_init(&p);
	b.opts.archive_on_complete = SL_ON;
	sl_wal *w = box_open(&b);
	append_letters(w, "abc");
	assert_int_equal(sl_wal_sender_start(w, &peer_table, &p, &b.err), 0);
	assert_int_equal(sl_wal_complete(w, SL_UNLIMITED, &b.err), 0);
	box_close(&b, w);
	assert_string_equal(p.text, "1=a 2=b 3=c ");
	assert_false(box_has(&b, BOX_PATH));
	assert_scan(&b, "/a/s.wal.zst", "1=a* 2=b* 3=c*");
	box_fini(&b);
}

static void complete_archives_nothing_that_is_pending(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	box_init(&b);
	peer_init(&p);
	b.opts.archive_on_complete = SL_ON;
	sl_wal *w = box_open(&b);
	append_letters(w, "abc");
	p.fail_with = SL_EUNAVAIL;
	p.fail_times = UINT64_MAX / 2;
	assert_int_equal(sl_wal_sender_start(w, &peer_table, &p, &b.err), 0);
	assert_int_equal(sl_wal_complete(w, 5000, &b.err), SL_EPENDING);
	box_close(&b, w);
	assert_int_equal(box_count(&b, "/a", ".zst"), 0);
	assert_scan(&b, BOX_PATH, "1=a 2=b 3=c");
	box_fini(&b);
}

/* Its last record is the last that the receiver has; nothing after it was ever confirmed. */
static void a_segment_is_archived_when_the_receiver_has_its_last_record(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	box_init(&b);
	peer_init(&p);
	b.opts.segment_bytes = 4096;
	b.opts.archive_on_complete = SL_ON;
	b.opts.background = SL_ON;
	p.gate_at = 50; /* records of a batch */
	sl_wal *w = box_open(&b);
	box_append_n(w, 51, 50);
	assert_int_equal(box_stats(w).segments, 2);
	assert_int_equal(sl_wal_sender_start(w, &peer_table, &p, &b.err), 0);
	peer_await_gate(&p);
	assert_int_equal(peer_mark(&p), 50);
	while (box_stats(w).segments > 1)
		(void)sched_yield();
	assert_int_equal(box_stats(w).pending, 1);
	peer_open_gate(&p);
	assert_int_equal(sl_wal_sender_stop(w, SL_UNLIMITED, &b.err), 0);
	assert_true(box_has(&b, "/a/s.wal.1.zst"));
	box_close(&b, w);
	box_fini(&b);
}

static void an_encrypted_log_delivers_plain_payloads(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	uint8_t key[32] = {7};
	box_init(&b);
	peer_init(&p);
	crashfs_put(b.fs, "/key", key, sizeof(key));
	b.opts.key_file = "/key";
	sl_wal *w = box_open(&b);
	append_letters(w, "abc");
	assert_int_equal(deliver(&b, w, &p), 0);
	assert_string_equal(p.text, "1=a 2=b 3=c ");
	box_close(&b, w);
	box_fini(&b);
}

static void sweep_sends_and_archives_logs_that_no_process_holds(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	box_init(&b);
	peer_init(&p);
	b.opts.archive_on_complete = SL_ON;
	sl_wal *w = box_open(&b);
	append_letters(w, "abc");
	box_close(&b, w);
	sl_wal *busy = NULL;
	assert_int_equal(sl_wal_open(&busy, "busy", &b.opts, &b.err), 0);
	append_letters(busy, "x");
	crashfs_put(b.fs, "/w/notes.txt", "no log", 6);
	struct sl_wal_sweep_result r = {.struct_size = sizeof(r)};
	assert_int_equal(sl_wal_sweep(&b.opts, &peer_table, &p, SL_UNLIMITED, &r, &b.err), 0);
	assert_int_equal(r.found, 2);
	assert_int_equal(r.busy, 1);
	assert_int_equal(r.sent, 1);
	assert_int_equal(r.archived, 1);
	assert_int_equal(r.failed, 0);
	assert_string_equal(p.text, "1=a 2=b 3=c ");
	assert_false(box_has(&b, BOX_PATH));
	assert_true(box_has(&b, "/a/s.wal.zst"));
	assert_true(box_has(&b, "/w/notes.txt"));
	box_close(&b, busy);
	box_fini(&b);
}

static void sweep_skips_a_log_that_fails(void **state)
{
	(void)state;
	struct box b;
	struct peer p;
	box_init(&b);
	peer_init(&p);
	b.opts.archive_on_complete = SL_ON;
	sl_wal *w = box_open(&b);
	append_letters(w, "abc");
	box_close(&b, w);
	crashfs_put(b.fs, "/w/a.wal", "this is not a log at all, and nothing can be read of it", 55);
	struct sl_wal_sweep_result r = {.struct_size = sizeof(r)};
	assert_int_equal(sl_wal_sweep(&b.opts, &peer_table, &p, SL_UNLIMITED, &r, &b.err), 0);
	assert_int_equal(r.found, 2);
	assert_int_equal(r.failed, 1);
	assert_int_equal(r.sent, 1);
	assert_true(box_has(&b, "/w/a.wal"));
	box_fini(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(records_arrive_in_order_and_are_marked_sent),
		cmocka_unit_test(a_batch_has_at_most_50_records_and_256_kib),
		cmocka_unit_test(the_sender_wakes_on_append),
		cmocka_unit_test(a_batch_with_room_waits_for_more_until_it_is_full_or_its_time_is_over),
		cmocka_unit_test(failures_are_retried_for_ever_with_growing_delays),
		cmocka_unit_test(other_errors_of_the_receiver_park_nothing),
		cmocka_unit_test(the_receiver_may_say_how_long_to_wait),
		cmocka_unit_test(a_receiver_that_throttles_is_waited_for),
		cmocka_unit_test(a_receiver_that_fails_with_a_code_alone_is_in_trouble_too),
		cmocka_unit_test(a_record_that_the_receiver_names_is_parked_and_skipped),
		cmocka_unit_test(a_refused_record_that_is_not_named_is_found_by_bisecting),
		cmocka_unit_test(a_record_is_not_skipped_while_its_letter_cannot_be_kept),
		cmocka_unit_test(a_restored_log_delivers_what_its_receiver_has_other_records_for),
		cmocka_unit_test(a_restored_log_that_is_shorter_than_its_receiver_delivers_what_is_appended),
		cmocka_unit_test(
			a_log_that_was_copied_while_records_were_pending_delivers_them_again_rather_than_never),
		cmocka_unit_test(a_new_incarnation_goes_along_when_segments_are_sealed_and_archived),
		cmocka_unit_test(a_recovery_with_a_new_incarnation_forgets_the_one_that_the_sender_began),
		cmocka_unit_test(a_receiver_whose_records_differ_from_those_it_goes_by_is_noticed_before_it_takes_more),
		cmocka_unit_test(a_receiver_that_lost_records_and_took_others_instead_gets_all_that_the_log_has),
		cmocka_unit_test(a_receiver_that_was_restored_to_before_a_new_incarnation_gets_all_that_the_log_has),
		cmocka_unit_test(a_mark_that_was_skipped_for_another_log_is_not_taken_for_ones_own),
		cmocka_unit_test(a_receiver_that_reports_conflicts_for_every_incarnation_halts_the_stream_visibly),
		cmocka_unit_test(a_record_that_the_disk_gives_back_damaged_halts_the_stream_visibly),
		cmocka_unit_test(a_read_that_fails_is_tried_again),
		cmocka_unit_test(a_mark_above_what_was_appended_begins_a_new_incarnation),
		cmocka_unit_test(a_restored_receiver_gets_everything_from_its_mark_again),
		cmocka_unit_test(a_restart_continues_where_the_receiver_is),
		cmocka_unit_test(records_that_a_receiver_has_already_are_not_sent_twice),
		cmocka_unit_test(a_declared_hole_is_reported_as_skipped),
		cmocka_unit_test(stop_gives_up_at_its_deadline_and_keeps_the_rest),
		cmocka_unit_test(stop_tries_at_once_what_waits_for_a_retry_and_again_before_its_deadline),
		cmocka_unit_test(stop_cancels_a_send_that_hangs),
		cmocka_unit_test(close_stops_a_running_sender),
		cmocka_unit_test(automatic_backlog_blocks_while_a_sender_runs),
		cmocka_unit_test(complete_delivers_and_archives),
		cmocka_unit_test(complete_archives_nothing_that_is_pending),
		cmocka_unit_test(a_segment_is_archived_when_the_receiver_has_its_last_record),
		cmocka_unit_test(an_encrypted_log_delivers_plain_payloads),
		cmocka_unit_test(sweep_sends_and_archives_logs_that_no_process_holds),
		cmocka_unit_test(sweep_skips_a_log_that_fails),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
