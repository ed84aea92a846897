/* SPDX-License-Identifier: Apache-2.0 */
/* Opening, appending, tickets, reading, marking, the backlog: what <sluice/wal.h> says of one log in one process, and
 * of a second one that wants it too. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "box.h"
#include "support/fault.h"

/* ---- options ---- */

static void refused_field(struct sl_wal_opts opts, const char *id, const char *field)
{
	struct box b;
	box_init(&b);
	opts.struct_size = sizeof opts;
	opts.env = &b.e.env;
	opts.wal_dir = opts.wal_dir != NULL ? opts.wal_dir : BOX_DIR;
	sl_wal *w = (sl_wal *)&b;
	struct sl_err err = SL_ERR_INIT;
	int rc = sl_wal_open(&w, id, &opts, &err);
	if (rc != SL_EINVAL || strstr(err.msg, field) == NULL)
		fail_msg("%s: got %s, %s", field, sl_err_name(rc), err.msg);
	assert_ptr_equal(w, &b); /* untouched */
	assert_int_equal(box_count(&b, "/", "w"), 0);
	box_fini(&b);
}

static void a_bad_option_is_refused_by_its_name(void **state)
{
	(void)state;
	refused_field((struct sl_wal_opts){.segment_bytes = 4095}, "s", "segment_bytes");
	refused_field((struct sl_wal_opts){.segment_bytes = -5}, "s", "segment_bytes");
	refused_field((struct sl_wal_opts){.retention_days = -7}, "s", "retention_days");
	refused_field((struct sl_wal_opts){.flush_interval_ms = -3}, "s", "flush_interval_ms");
	refused_field((struct sl_wal_opts){.archive_level = 99}, "s", "archive_level");
	refused_field((struct sl_wal_opts){.max_pending_bytes = -9}, "s", "max_pending_bytes");
	refused_field((struct sl_wal_opts){.batch_records = -1}, "s", "batch_records");
	refused_field((struct sl_wal_opts){.batch_bytes = -1}, "s", "batch_bytes");
	refused_field((struct sl_wal_opts){.prepare_max_bytes = -7}, "s", "prepare_max_bytes");
	refused_field((struct sl_wal_opts){.on_full = (enum sl_wal_on_full)9}, "s", "on_full");
	refused_field((struct sl_wal_opts){.on_corruption = (enum sl_wal_on_corruption)9}, "s", "on_corruption");
	refused_field((struct sl_wal_opts){.background = (enum sl_switch)9}, "s", "background");
	refused_field((struct sl_wal_opts){.archive_on_complete = (enum sl_switch)9}, "s", "archive_on_complete");
	refused_field((struct sl_wal_opts){.retry_backoff = {.multiplier = 0.5}}, "s", "multiplier");
}

static void a_bad_id_is_refused(void **state)
{
	(void)state;
	static const char *const bad[] = {"", ".hidden", "a/b", "a.wal", "a.wal.7", "a b", "\xc3\xa4", "..", "a\nb"};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		refused_field((struct sl_wal_opts){0}, bad[i], "id");
}

static void good_ids_are_taken(void **state)
{
	(void)state;
	static const char *const good[] = {"a", "job-7", "_", "-", "A.b_c-9", "0", "a..b"};
	struct box b;
	box_init(&b);
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
		sl_wal *w = NULL;
		assert_int_equal(sl_wal_open(&w, good[i], &b.opts, &b.err), 0);
		box_close(&b, w);
	}
	box_fini(&b);
}

/* ---- append, read, iterate ---- */

static void sequences_start_at_1_and_grow_by_1(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	sl_wal *w = box_open(&b);
	assert_int_equal(box_stats(w).last_sequence, 0);
	for (uint64_t i = 1; i <= 20; i++)
		assert_int_equal(box_append(w, "x"), i);
	struct sl_wal_span spans[3] = {{"a", 1}, {"", 0}, {"c", 1}};
	uint64_t first = 0;
	assert_int_equal(sl_wal_append_many(w, spans, 3, &first, NULL, &b.err), 0);
	assert_int_equal(first, 21);
	box_close(&b, w);
	w = box_open(&b);
	assert_int_equal(box_append(w, "y"), 24);
	box_close(&b, w);
	box_fini(&b);
}

static void records_appended_together_share_one_flush(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	sl_wal *w = box_open(&b);
	struct sl_wal_span spans[40];
	for (size_t i = 0; i < 40; i++)
		spans[i] = (struct sl_wal_span){"0123456789", 10};
	assert_int_equal(sl_wal_append_many(w, spans, 40, NULL, NULL, &b.err), 0);
	struct sl_wal_stats st = box_stats(w);
	assert_int_equal(st.flushes, 1);
	assert_int_equal(st.flushed_records, 40);
	box_close(&b, w);
	box_fini(&b);
}

static void an_append_does_exactly_one_sync(void **state)
{
	(void)state;
	struct box b;
	struct fault f;
	box_init(&b);
	fault_init(&f, &b.e.env);
	struct sl_env env = fault_env(&f, &b.e.env);
	b.opts.env = &env;
	sl_wal *w = box_open(&b);
	fault_arm_io(&f, 0, FAULT_ONCE, EIO, FAULT_SYNC_OPS);
	for (int i = 0; i < 10; i++)
		(void)box_append(w, "x");
	assert_int_equal(f.op_calls[FAULT_DATASYNC] + f.op_calls[FAULT_SYNC], 10);
	assert_int_equal(f.op_calls[FAULT_PWRITE], 10);
	box_close(&b, w);
	fault_fini(&f);
	box_fini(&b);
}

/* The hot path: once warm, nothing is allocated per record. */
static void a_warm_append_allocates_nothing(void **state)
{
	(void)state;
	struct box b;
	struct fault f;
	box_init(&b);
	fault_init(&f, &b.e.env);
	struct sl_env env = fault_env(&f, &b.e.env);
	b.opts.env = &env;
	sl_wal *w = box_open(&b);
	for (uint64_t i = 1; i <= 1000; i++) {
		(void)box_append(w, "warming up");
		assert_int_equal(sl_wal_mark_sent(w, i, i, &b.err), 0);
	}
	fault_arm_mem(&f, 0, FAULT_ONCE);
	for (uint64_t i = 1001; i <= 3000; i++) {
		(void)box_append(w, "warming up");
		assert_int_equal(sl_wal_mark_sent(w, i, i, &b.err), 0);
	}
	assert_int_equal(f.mem_plan.calls, 0);
	box_close(&b, w);
	fault_fini(&f);
	box_fini(&b);
}

static int sum_sequences(const struct sl_wal_record *record, void *ctx)
{
	uint64_t *sum = ctx;
	*sum += record->sequence;
	return record->sequence == 7 ? 1234 : 0;
}

static void iterate_starts_where_told_and_stops_when_told(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	b.opts.segment_bytes = 4096;
	sl_wal *w = box_open(&b);
	box_append_n(w, 30, 600);
	uint64_t sum = 0;
	assert_int_equal(sl_wal_iterate(w, 5, sum_sequences, &sum, &b.err), 1234);
	assert_int_equal(sum, 5 + 6 + 7);
	sum = 0;
	assert_int_equal(sl_wal_iterate(w, 8, sum_sequences, &sum, &b.err), 0);
	assert_int_equal(sum, (8 + 30) * 23 / 2);
	sum = 0;
	assert_int_equal(sl_wal_iterate(w, 31, sum_sequences, &sum, &b.err), 0);
	assert_int_equal(sum, 0);
	box_close(&b, w);
	box_fini(&b);
}

static int append_while_iterating(const struct sl_wal_record *record, void *ctx)
{
	sl_wal *w = ctx;
	assert_true(record->sequence <= 3);
	(void)box_append(w, "from inside");
	return 0;
}

static void the_callback_of_iterate_may_use_the_log(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	sl_wal *w = box_open(&b);
	for (int i = 0; i < 3; i++)
		(void)box_append(w, "x");
	assert_int_equal(sl_wal_iterate(w, 0, append_while_iterating, w, &b.err), 0);
	assert_int_equal(box_stats(w).last_sequence, 6);
	box_close(&b, w);
	box_fini(&b);
}

static void one_record_can_be_read(void **state)
{
	(void)state;
	struct box b;
	struct sl_wal_record r;
	box_init(&b);
	b.opts.segment_bytes = 4096;
	sl_wal *w = box_open(&b);
	(void)box_append(w, "first");
	box_append_n(w, 20, 600);
	(void)box_append(w, "last");
	assert_int_equal(sl_wal_mark_sent(w, 1, 1, &b.err), 0);
	assert_int_equal(sl_wal_read(w, 1, &r, &b.err), 0);
	assert_int_equal(r.payload_len, 5);
	assert_memory_equal(r.payload, "first", 5);
	assert_int_equal(r.status, SL_WAL_SENT);
	assert_int_equal(r.offset, 16);
	assert_int_equal(r.length, 33);
	sl_wal_free(w, r.payload);
	assert_int_equal(sl_wal_read(w, 22, &r, &b.err), 0);
	assert_memory_equal(r.payload, "last", 4);
	assert_int_equal(r.status, SL_WAL_PENDING);
	sl_wal_free(w, r.payload);
	assert_int_equal(sl_wal_read(w, 23, &r, &b.err), SL_ENOENT);
	assert_int_equal(sl_wal_read(w, 0, &r, &b.err), SL_ENOENT);
	box_close(&b, w);
	box_fini(&b);
}

static void a_record_carries_the_time_of_its_append(void **state)
{
	(void)state;
	struct box b;
	struct sl_wal_record r;
	box_init(&b);
	sl_wal *w = box_open(&b);
	vclock_advance_ms(&b.e.clock, 5000);
	int64_t now = b.e.env.clock->real_ms(b.e.env.clock_ctx);
	(void)box_append(w, "x");
	assert_int_equal(box_stats(w).oldest_pending_ms, now);
	vclock_advance_ms(&b.e.clock, 5000);
	(void)box_append(w, "y");
	assert_int_equal(sl_wal_read(w, 2, &r, &b.err), 0);
	assert_int_equal(r.timestamp_ms, now + 5000);
	sl_wal_free(w, r.payload);
	assert_int_equal(sl_wal_mark_sent(w, 1, 1, &b.err), 0);
	assert_int_equal(box_stats(w).oldest_pending_ms, now + 5000);
	box_close(&b, w);
	box_fini(&b);
}

/* ---- tickets ---- */

static void tickets_are_durable_after_wait_or_sync(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	sl_wal *w = box_open(&b);
	struct sl_wal_ticket t[10];
	for (size_t i = 0; i < 10; i++) {
		assert_int_equal(sl_wal_submit(w, "x", 1, &t[i], &b.err), 0);
		assert_int_equal(t[i].sequence, i + 1);
	}
	assert_int_equal(sl_wal_wait(w, &t[9], 0, &b.err), SL_ETIMEDOUT);
	assert_int_equal(sl_wal_wait(w, &t[9], SL_UNLIMITED, &b.err), 0);
	for (size_t i = 0; i < 10; i++)
		assert_int_equal(sl_wal_wait(w, &t[i], 0, &b.err), 0);
	assert_int_equal(box_stats(w).flushes, 1);
	assert_int_equal(sl_wal_submit(w, "y", 1, &t[0], &b.err), 0);
	assert_int_equal(sl_wal_sync(w, &b.err), 0);
	assert_int_equal(sl_wal_wait(w, &t[0], 0, &b.err), 0);
	assert_int_equal(sl_wal_submit(w, "z", 1, &t[1], &b.err), 0);
	box_close(&b, w); /* flushes what was submitted */
	assert_scan(&b, BOX_PATH, "1=x 2=x 3=x 4=x 5=x 6=x 7=x 8=x 9=x 10=x 11=y 12=z");
	box_fini(&b);
}

static void a_ticket_of_a_failed_flush_fails_and_its_number_is_given_again(void **state)
{
	(void)state;
	struct box b;
	struct fault f;
	struct sl_wal_ticket t, later;
	box_init(&b);
	fault_init(&f, &b.e.env);
	struct sl_env env = fault_env(&f, &b.e.env);
	b.opts.env = &env;
	sl_wal *w = box_open(&b);
	(void)box_append(w, "a");
	fault_arm_io(&f, 1, FAULT_FROM, ENOSPC, FAULT_OP(FAULT_PWRITE));
	assert_int_equal(sl_wal_submit(w, "b", 1, &t, &b.err), 0);
	assert_int_equal(sl_wal_wait(w, &t, SL_UNLIMITED, &b.err), SL_ENOSPC);
	fault_disarm(&f);
	assert_int_equal(sl_wal_submit(w, "c", 1, &later, &b.err), 0);
	assert_int_equal(sl_wal_wait(w, &later, SL_UNLIMITED, &b.err), 0);
	assert_int_equal(later.sequence, 2);
	assert_int_equal(sl_wal_wait(w, &t, 0, &b.err), SL_ENOSPC); /* still */
	box_close(&b, w);
	assert_scan(&b, BOX_PATH, "1=a 2=c");
	fault_fini(&f);
	box_fini(&b);
}

static void a_failed_sync_poisons_until_the_log_is_opened_again(void **state)
{
	(void)state;
	struct box b;
	struct fault f;
	box_init(&b);
	fault_init(&f, &b.e.env);
	struct sl_env env = fault_env(&f, &b.e.env);
	b.opts.env = &env;
	sl_wal *w = box_open(&b);
	(void)box_append(w, "a");
	fault_arm_io(&f, 1, FAULT_ONCE, EIO, FAULT_SYNC_OPS);
	int rc = sl_wal_append(w, "b", 1, NULL, &b.err);
	assert_true(rc == SL_EIO || rc == SL_EPOISONED);
	fault_disarm(&f);
	int64_t syncs = f.op_calls[FAULT_DATASYNC] + f.op_calls[FAULT_SYNC];
	assert_int_equal(sl_wal_append(w, "c", 1, NULL, &b.err), SL_EPOISONED);
	struct sl_wal_ticket t;
	rc = sl_wal_submit(w, "c", 1, &t, &b.err);
	assert_int_equal(rc, SL_EPOISONED);
	/* An fsync is not tried again. */
	assert_int_equal(f.op_calls[FAULT_DATASYNC] + f.op_calls[FAULT_SYNC], syncs);
	(void)sl_wal_close(w, NULL);
	w = box_open(&b);
	assert_true(box_append(w, "d") >= 2);
	box_close(&b, w);
	assert_int_equal(fault_open_fds(&f), 0);
	fault_fini(&f);
	box_fini(&b);
}

static void the_descriptor_is_readable_after_a_flush_until_it_is_cleared(void **state)
{
	(void)state;
	char dir[] = "sluice-fd-XXXXXX";
	assert_non_null(mkdtemp(dir));
	struct sl_wal_opts opts = {SL_WAL_OPTS_INIT, .wal_dir = dir};
	sl_wal *w = NULL;
	struct sl_err err = SL_ERR_INIT;
	assert_int_equal(sl_wal_open(&w, "s", &opts, &err), 0);
	struct pollfd p = {.fd = sl_wal_fd(w, &err), .events = POLLIN};
	assert_true(p.fd >= 0);
	assert_int_equal(sl_wal_fd(w, &err), p.fd);
	assert_int_equal(poll(&p, 1, 0), 0);
	struct sl_wal_ticket t;
	assert_int_equal(sl_wal_submit(w, "x", 1, &t, &err), 0);
	assert_int_equal(poll(&p, 1, 30000), 1);
	assert_int_equal(sl_wal_wait(w, &t, 0, &err), 0);
	assert_int_equal(poll(&p, 1, 0), 1);
	sl_wal_fd_clear(w);
	assert_int_equal(poll(&p, 1, 0), 0);
	assert_int_equal(sl_wal_close(w, &err), 0);
	char path[64];
	(void)snprintf(path, sizeof path, "%s/s.wal", dir);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(dir), 0);
}

static void without_a_background_thread_there_is_no_descriptor(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	sl_wal *w = box_open(&b);
	assert_true(sl_wal_fd(w, &b.err) < 0);
	box_close(&b, w);
	box_fini(&b);
}

/* ---- marks ---- */

static void marks_of_what_was_never_appended_are_refused(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	sl_wal *w = box_open(&b);
	(void)box_append(w, "x");
	(void)box_append(w, "y");
	assert_int_equal(sl_wal_mark_sent(w, 1, 3, &b.err), SL_EINVAL);
	assert_int_equal(sl_wal_mark_sent(w, 0, 1, &b.err), SL_EINVAL);
	assert_int_equal(sl_wal_mark_failed(w, 2, 1, &b.err), SL_EINVAL);
	assert_int_equal(sl_wal_mark_failed(w, 3, 3, &b.err), SL_EINVAL);
	assert_int_equal(box_stats(w).pending, 2);
	assert_int_equal(sl_wal_mark_sent(w, 1, 1, &b.err), 0);
	assert_int_equal(sl_wal_mark_failed(w, 1, 1, &b.err), 0); /* not pending: nothing changes */
	assert_int_equal(box_stats(w).sent, 1);
	assert_int_equal(box_stats(w).failed, 0);
	box_close(&b, w);
	assert_scan(&b, BOX_PATH, "1=x* 2=y");
	box_fini(&b);
}

static void a_mark_rides_the_next_flush(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	sl_wal *w = box_open(&b);
	for (int i = 0; i < 3; i++)
		(void)box_append(w, "x");
	uint64_t flushes = box_stats(w).flushes;
	assert_int_equal(sl_wal_mark_sent(w, 1, 2, &b.err), 0);
	assert_int_equal(box_stats(w).flushes, flushes);
	(void)box_append(w, "x");
	assert_int_equal(box_stats(w).flushes, flushes + 1);
	assert_scan(&b, BOX_PATH, "1=x* 2=x* 3=x 4=x");
	box_close(&b, w);
	box_fini(&b);
}

static void the_index_costs_at_most_40_bytes_a_pending_record_and_nothing_for_sent_ones(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	b.opts.max_pending_bytes = SL_UNLIMITED;
	sl_wal *w = box_open(&b);
	struct sl_wal_span spans[100];
	for (size_t i = 0; i < 100; i++)
		spans[i] = (struct sl_wal_span){"x", 1};
	for (int i = 0; i < 200; i++)
		assert_int_equal(sl_wal_append_many(w, spans, 100, NULL, NULL, &b.err), 0);
	uint64_t bytes = box_stats(w).index_bytes;
	print_message("# %llu bytes for 20000 pending records\n", (unsigned long long)bytes);
	assert_true(bytes > 0 && bytes <= 20000 * 40);
	assert_int_equal(sl_wal_mark_sent(w, 1, 20000, &b.err), 0);
	assert_true(box_stats(w).index_bytes <= 16384);
	box_close(&b, w);
	/* The same after a recovery. */
	w = box_open(&b);
	assert_true(box_stats(w).index_bytes <= 16384);
	for (int i = 0; i < 10; i++)
		assert_int_equal(sl_wal_append_many(w, spans, 100, NULL, NULL, &b.err), 0);
	box_close(&b, w);
	w = box_open(&b);
	assert_int_equal(box_stats(w).pending, 1000);
	assert_true(box_stats(w).index_bytes <= 1000 * 40 + 8192);
	box_close(&b, w);
	box_fini(&b);
}

/* ---- the backlog ---- */

static void a_full_backlog_is_an_error_that_goes_away(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	b.opts.max_pending_bytes = 4096;
	b.opts.on_full = SL_WAL_FULL_ERROR;
	sl_wal *w = box_open(&b);
	char text[968] = {0};
	uint64_t n = 0;
	int rc;
	while ((rc = sl_wal_append(w, text, sizeof text, NULL, &b.err)) == 0)
		n++;
	assert_int_equal(rc, SL_EFULL);
	assert_int_equal(n, 4); /* of 1,000 bytes each */
	assert_int_equal(box_stats(w).pending_bytes, 4000);
	assert_int_equal(sl_wal_mark_sent(w, 1, 1, &b.err), 0);
	assert_int_equal(sl_wal_append(w, text, sizeof text, NULL, &b.err), 0);
	assert_int_equal(sl_wal_append(w, text, sizeof text, NULL, &b.err), SL_EFULL);
	box_close(&b, w);
	/* What was pending counts after a restart too. */
	w = box_open(&b);
	assert_int_equal(sl_wal_append(w, text, sizeof text, NULL, &b.err), SL_EFULL);
	box_close(&b, w);
	box_fini(&b);
}

static void automatic_means_error_while_no_sender_runs(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	b.opts.max_pending_bytes = 1000;
	sl_wal *w = box_open(&b);
	char text[900] = {0};
	assert_int_equal(sl_wal_append(w, text, sizeof text, NULL, &b.err), 0);
	assert_int_equal(sl_wal_append(w, text, sizeof text, NULL, &b.err), SL_EFULL);
	box_close(&b, w);
	box_fini(&b);
}

struct blocked {
	sl_wal *w;
	uint64_t sequence;
	int rc;
};

static void *append_blocked(void *ctx)
{
	struct blocked *x = ctx;
	char text[900] = {0};
	x->rc = sl_wal_append(x->w, text, sizeof text, &x->sequence, NULL);
	return NULL;
}

static void a_full_backlog_blocks_until_there_is_room(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	b.e.clock.auto_advance = 0;
	b.opts.max_pending_bytes = 1000;
	b.opts.on_full = SL_WAL_FULL_BLOCK;
	sl_wal *w = box_open(&b);
	struct blocked x = {.w = w};
	(void)append_blocked(&x);
	assert_int_equal(x.rc, 0);
	pthread_t t;
	assert_int_equal(pthread_create(&t, NULL, append_blocked, &x), 0);
	vclock_await_waiters(&b.e.clock, 1);
	assert_int_equal(box_stats(w).last_sequence, 1);
	assert_int_equal(sl_wal_mark_sent(w, 1, 1, &b.err), 0);
	pthread_join(t, NULL);
	assert_int_equal(x.rc, 0);
	assert_int_equal(x.sequence, 2);
	box_close(&b, w);
	box_fini(&b);
}

/* ---- segments and space ---- */

static void a_log_past_segment_bytes_is_sealed_under_its_first_sequence(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	b.opts.segment_bytes = 4096;
	sl_wal *w = box_open(&b);
	box_append_n(w, 40, 500);
	struct sl_wal_stats st = box_stats(w);
	assert_true(st.segments >= 4);
	assert_int_equal(st.records, 40);
	assert_true(box_has(&b, BOX_PATH ".1"));
	size_t n;
	(void)box_bytes(&b, BOX_PATH ".1", &n);
	assert_true(n >= 4096 && n < 4096 + 1000);
	const uint8_t *p = box_bytes(&b, BOX_PATH ".1", &n);
	assert_true(p[n - 1] != 0 || p[n - 2] != 0 || p[n - 3] != 0); /* trimmed: ends with a CRC */
	box_close(&b, w);
	w = box_open(&b);
	assert_int_equal(box_stats(w).records, 40);
	assert_int_equal(box_stats(w).pending, 40);
	box_close(&b, w);
	box_fini(&b);
}

static void a_clean_close_trims_what_was_prepared(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	b.opts.prepare_max_bytes = 0;
	sl_wal *w = box_open(&b);
	(void)box_append(w, "x");
	size_t n;
	(void)box_bytes(&b, BOX_PATH, &n);
	assert_true(n <= 16 + 33 + 128 * 1024); /* a short log has at most 128 KiB of zeros */
	box_close(&b, w);
	(void)box_bytes(&b, BOX_PATH, &n);
	assert_int_equal(n, 16 + 33);
	box_fini(&b);
}

static void a_full_disk_fails_the_append_and_leaves_the_log_usable(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	sl_wal *w = box_open(&b);
	(void)box_append(w, "a");
	struct sl_wal_span spans[3] = {{"0123456789", 10}, {"0123456789", 10}, {"0123456789", 10}};
	for (size_t room = 0; room < 126; room += 7) {
		crashfs_quota(b.fs, 16 + 33 + room); /* also between the records of one batch */
		size_t durable = 9;
		assert_int_equal(sl_wal_append_many(w, spans, 3, NULL, &durable, &b.err), SL_ENOSPC);
		assert_int_equal(durable, 0);
	}
	crashfs_quota(b.fs, SIZE_MAX);
	assert_int_equal(box_append(w, "b"), 2);
	box_close(&b, w);
	assert_scan(&b, BOX_PATH, "1=a 2=b");
	box_fini(&b);
}

/* ---- on the real disk: modes, links, processes ---- */

struct disk {
	char dir[32];
	struct sl_wal_opts opts;
	struct sl_err err;
};

static void disk_init(struct disk *d)
{
	memset(d, 0, sizeof *d);
	memcpy(d->dir, "sluice-wal-XXXXXX", 18);
	assert_non_null(mkdtemp(d->dir));
	d->opts = (struct sl_wal_opts){SL_WAL_OPTS_INIT, .wal_dir = d->dir};
}

static void disk_fini(struct disk *d)
{
	char command[64];
	(void)snprintf(command, sizeof command, "rm -rf %s", d->dir);
	assert_int_equal(system(command), 0);
}

static void files_are_private(void **state)
{
	(void)state;
	struct disk d;
	struct stat st;
	disk_init(&d);
	char dir[64], path[96];
	(void)snprintf(dir, sizeof dir, "%s/x/y", d.dir);
	(void)snprintf(path, sizeof path, "%s/s.wal", dir);
	d.opts.wal_dir = dir;
	mode_t old = umask(0);
	sl_wal *w = NULL;
	assert_int_equal(sl_wal_open(&w, "s", &d.opts, &d.err), 0);
	umask(old);
	assert_int_equal(stat(dir, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(sl_wal_close(w, &d.err), 0);
	disk_fini(&d);
}

static void a_symbolic_link_is_not_followed(void **state)
{
	(void)state;
	struct disk d;
	disk_init(&d);
	char link[64], target[64];
	(void)snprintf(target, sizeof target, "%s/elsewhere", d.dir);
	(void)snprintf(link, sizeof link, "%s/s.wal", d.dir);
	int fd = open(target, O_CREAT | O_WRONLY, 0600);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(symlink("elsewhere", link), 0);
	sl_wal *w = NULL;
	assert_true(sl_wal_open(&w, "s", &d.opts, &d.err) < 0);
	struct stat st;
	assert_int_equal(stat(target, &st), 0);
	assert_int_equal(st.st_size, 0);
	disk_fini(&d);
}

static void the_default_folder_is_in_the_home_of_the_user(void **state)
{
	(void)state;
	struct disk d;
	disk_init(&d);
	char *home = getenv("HOME") != NULL ? strdup(getenv("HOME")) : NULL;
	char cwd[512], full[600];
	assert_non_null(getcwd(cwd, sizeof cwd));
	(void)snprintf(full, sizeof full, "%s/%s", cwd, d.dir);
	assert_int_equal(setenv("HOME", full, 1), 0);
	sl_wal *w = NULL;
	int rc = sl_wal_open(&w, "s", NULL, &d.err);
	if (home != NULL)
		assert_int_equal(setenv("HOME", home, 1), 0);
	free(home);
	if (rc != 0)
		fail_msg("open: %s", d.err.msg);
	(void)box_append(w, "x");
	assert_int_equal(sl_wal_close(w, &d.err), 0);
	char path[700];
	(void)snprintf(path, sizeof path, "%s/.sluice/wal/s.wal", full);
	assert_int_equal(access(path, R_OK), 0);
	disk_fini(&d);
}

static void a_second_opener_in_the_same_process_is_told(void **state)
{
	(void)state;
	struct disk d;
	sl_wal *w = NULL, *other = NULL;
	disk_init(&d);
	assert_int_equal(sl_wal_open(&w, "s", &d.opts, &d.err), 0);
	assert_int_equal(sl_wal_open(&other, "s", &d.opts, &d.err), SL_ELOCKED);
	assert_non_null(strstr(d.err.msg, "s.wal"));
	assert_null(other);
	(void)box_append(w, "x");
	assert_int_equal(sl_wal_close(w, &d.err), 0);
	assert_int_equal(sl_wal_open(&w, "s", &d.opts, &d.err), 0);
	assert_int_equal(sl_wal_close(w, &d.err), 0);
	disk_fini(&d);
}

static void the_lock_stays_through_a_rotation(void **state)
{
	(void)state;
	struct disk d;
	sl_wal *w = NULL, *other = NULL;
	disk_init(&d);
	d.opts.segment_bytes = 4096;
	assert_int_equal(sl_wal_open(&w, "s", &d.opts, &d.err), 0);
	for (int i = 0; i < 3; i++) {
		box_append_n(w, 12, 500);
		assert_int_equal(sl_wal_open(&other, "s", &d.opts, &d.err), SL_ELOCKED);
	}
	assert_true(box_stats(w).segments > 3);
	assert_int_equal(sl_wal_close(w, &d.err), 0);
	disk_fini(&d);
}

/* A child that has the log open, until it is killed. Returns its pid once it has the log. */
static pid_t holder(struct disk *d)
{
	int ready[2];
	assert_int_equal(pipe(ready), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		sl_wal *w = NULL;
		int rc = sl_wal_open(&w, "s", &d->opts, NULL);
		if (rc == 0)
			rc = sl_wal_append(w, "from the child", 14, NULL, NULL);
		if (write(ready[1], rc == 0 ? "y" : "n", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	char c = 0;
	assert_int_equal(read(ready[0], &c, 1), 1);
	assert_int_equal(c, 'y');
	close(ready[0]);
	close(ready[1]);
	return pid;
}

static void another_process_is_told_and_the_lock_of_a_dead_one_does_not_stay(void **state)
{
	(void)state;
	struct disk d;
	sl_wal *w = NULL;
	disk_init(&d);
	pid_t pid = holder(&d);
	assert_int_equal(sl_wal_open(&w, "s", &d.opts, &d.err), SL_ELOCKED);
	assert_int_equal(kill(pid, SIGKILL), 0);
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(sl_wal_open(&w, "s", &d.opts, &d.err), 0);
	assert_int_equal(box_stats(w).records, 1);
	assert_int_equal(sl_wal_close(w, &d.err), 0);
	disk_fini(&d);
}

/* Whether every call on w is refused with SL_EFORKED. Runs in the child. */
static int all_refused(sl_wal *w)
{
	struct sl_wal_ticket t = {0};
	struct sl_wal_stats st = {.struct_size = sizeof st};
	struct sl_wal_record r;
	struct sl_wal_span span = {"x", 1};
	uint64_t sum;
	int bad = 0;
	bad += sl_wal_append(w, "x", 1, NULL, NULL) != SL_EFORKED;
	bad += sl_wal_append_many(w, &span, 1, NULL, NULL, NULL) != SL_EFORKED;
	bad += sl_wal_submit(w, "x", 1, &t, NULL) != SL_EFORKED;
	bad += sl_wal_wait(w, &t, 0, NULL) != SL_EFORKED;
	bad += sl_wal_sync(w, NULL) != SL_EFORKED;
	bad += sl_wal_read(w, 1, &r, NULL) != SL_EFORKED;
	bad += sl_wal_iterate(w, 0, sum_sequences, &sum, NULL) != SL_EFORKED;
	bad += sl_wal_mark_sent(w, 1, 1, NULL) != SL_EFORKED;
	bad += sl_wal_start(w, &walmodel_sender, NULL, NULL) != SL_EFORKED;
	bad += sl_wal_stop(w, 0, NULL) != SL_EFORKED;
	bad += sl_wal_get_stats(w, &st, NULL) != SL_EFORKED;
	bad += sl_wal_archive(w, NULL, 1, NULL) != SL_EFORKED;
	bad += sl_wal_fd(w, NULL) != SL_EFORKED;
	bad += sl_wal_close(w, NULL) != SL_EFORKED;
	return bad;
}

static void a_forked_child_is_refused_and_the_parent_goes_on(void **state)
{
	(void)state;
	struct disk d;
	sl_wal *w = NULL;
	disk_init(&d);
	assert_int_equal(sl_wal_open(&w, "s", &d.opts, &d.err), 0);
	(void)box_append(w, "x");
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(all_refused(w));
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(box_append(w, "y"), 2);
	assert_int_equal(sl_wal_close(w, &d.err), 0);
	assert_int_equal(sl_wal_open(&w, "s", &d.opts, &d.err), 0);
	assert_int_equal(box_stats(w).records, 2);
	assert_int_equal(sl_wal_close(w, &d.err), 0);
	disk_fini(&d);
}

static void closing_nothing_is_allowed(void **state)
{
	(void)state;
	assert_int_equal(sl_wal_close(NULL, NULL), 0);
}

/* ---- the event batcher ---- */

static void the_batcher_flushes_by_items_bytes_and_on_demand(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	sl_wal *w = box_open(&b);
	sl_wal_batcher *e = NULL;
	struct sl_wal_batcher_opts opts = {SL_WAL_BATCHER_OPTS_INIT, .max_items = 3, .max_bytes = 1000,
					   .background = SL_OFF};
	assert_int_equal(sl_wal_batcher_new(&e, w, &opts, &b.err), 0);
	assert_int_equal(sl_wal_batcher_add(e, "a", 1, &b.err), 0);
	assert_int_equal(sl_wal_batcher_add(e, "b", 1, &b.err), 0);
	assert_int_equal(box_stats(w).records, 0);
	assert_int_equal(sl_wal_batcher_add(e, "c", 1, &b.err), 0);
	assert_int_equal(box_stats(w).records, 3);
	assert_int_equal(box_stats(w).flushes, 1); /* one record an event, one flush a batch */
	char big[1000] = {0};
	assert_int_equal(sl_wal_batcher_add(e, "d", 1, &b.err), 0);
	assert_int_equal(sl_wal_batcher_add(e, big, sizeof big, &b.err), 0);
	assert_true(box_stats(w).records >= 4);
	assert_int_equal(sl_wal_batcher_add(e, "f", 1, &b.err), 0);
	assert_int_equal(sl_wal_batcher_flush(e, &b.err), 0);
	assert_int_equal(box_stats(w).records, 6);
	assert_int_equal(sl_wal_batcher_add(e, "g", 1, &b.err), 0);
	size_t lost = 9;
	assert_int_equal(sl_wal_batcher_free(e, &lost, &b.err), 0);
	assert_int_equal(lost, 0);
	assert_int_equal(box_stats(w).records, 7);
	assert_int_equal(sl_wal_batcher_free(NULL, NULL, NULL), 0);
	box_close(&b, w);
	box_fini(&b);
}

static void the_batcher_flushes_when_the_oldest_has_waited_long_enough(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	sl_wal *w = box_open(&b);
	sl_wal_batcher *e = NULL;
	struct sl_wal_batcher_opts opts = {SL_WAL_BATCHER_OPTS_INIT, .flush_interval_ms = 100, .background = SL_OFF};
	assert_int_equal(sl_wal_batcher_new(&e, w, &opts, &b.err), 0);
	assert_int_equal(sl_wal_batcher_add(e, "a", 1, &b.err), 0);
	vclock_advance_ms(&b.e.clock, 99);
	assert_int_equal(sl_wal_batcher_add(e, "b", 1, &b.err), 0);
	assert_int_equal(box_stats(w).records, 0);
	vclock_advance_ms(&b.e.clock, 1);
	assert_int_equal(sl_wal_batcher_add(e, "c", 1, &b.err), 0);
	assert_int_equal(box_stats(w).records, 3);
	assert_int_equal(sl_wal_batcher_free(e, NULL, &b.err), 0);
	box_close(&b, w);
	box_fini(&b);
}

static void the_batcher_keeps_a_batch_that_failed_and_tries_it_first(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	sl_wal *w = box_open(&b);
	sl_wal_batcher *e = NULL;
	struct sl_wal_batcher_opts opts = {SL_WAL_BATCHER_OPTS_INIT, .max_items = 2, .background = SL_OFF};
	assert_int_equal(sl_wal_batcher_new(&e, w, &opts, &b.err), 0);
	crashfs_quota(b.fs, 20);
	assert_int_equal(sl_wal_batcher_add(e, "a", 1, &b.err), 0);
	assert_int_equal(sl_wal_batcher_add(e, "b", 1, &b.err), SL_ENOSPC);
	crashfs_quota(b.fs, SIZE_MAX);
	assert_int_equal(sl_wal_batcher_flush(e, &b.err), 0);
	assert_int_equal(sl_wal_batcher_add(e, "c", 1, &b.err), 0);
	crashfs_quota(b.fs, 20);
	size_t lost = 0;
	assert_int_equal(sl_wal_batcher_free(e, &lost, &b.err), SL_ENOSPC);
	assert_int_equal(lost, 1);
	crashfs_quota(b.fs, SIZE_MAX);
	box_close(&b, w);
	assert_scan(&b, BOX_PATH, "1=a 2=b");
	box_fini(&b);
}

/* ---- encryption ---- */

static void put_key(struct box *b, const char *path, uint8_t byte)
{
	uint8_t key[32];
	memset(key, byte, sizeof key);
	crashfs_put(b->fs, path, key, sizeof key);
}

static void an_encrypted_log_opens_with_its_key_only(void **state)
{
	(void)state;
	struct box b;
	sl_wal *w;
	box_init(&b);
	put_key(&b, "/key", 1);
	put_key(&b, "/other", 2);
	b.opts.key_file = "/key";
	w = box_open(&b);
	assert_int_equal(box_stats(w).format_version, 2);
	(void)box_append(w, "a secret payload");
	box_close(&b, w);
	size_t n;
	const uint8_t *p = box_bytes(&b, BOX_PATH, &n);
	assert_null(memmem(p, n, "secret", 6));
	assert_int_equal(p[8], 2);
	assert_scan(&b, BOX_PATH, "1=a secret payload");
	b.opts.key_file = "/other";
	assert_int_equal(box_try_open(&b, &w), SL_EKEY);
	b.opts.key_file = NULL;
	assert_int_equal(box_try_open(&b, &w), SL_EKEY);
	b.opts.key_file = "/missing";
	assert_true(box_try_open(&b, &w) < 0);
	b.opts.key_file = "/key";
	w = box_open(&b);
	struct sl_wal_record r;
	assert_int_equal(sl_wal_read(w, 1, &r, &b.err), 0);
	assert_memory_equal(r.payload, "a secret payload", 16);
	sl_wal_free(w, r.payload);
	box_close(&b, w);
	box_fini(&b);
}

/* With a right CRC, so that only the cipher can notice. */
static void a_tampered_payload_is_noticed(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	put_key(&b, "/key", 1);
	b.opts.key_file = "/key";
	sl_wal *w = box_open(&b);
	(void)box_append(w, "first");
	(void)box_append(w, "other");
	box_close(&b, w);
	size_t n;
	uint8_t copy[256];
	const uint8_t *stored = box_bytes(&b, BOX_PATH, &n);
	memcpy(copy, stored, n);
	size_t total = 32 + 40 + 5;
	copy[16 + 24 + 30] ^= 1;
	uint64_t crc = box_crc64(copy + 20, total - 12);
	memcpy(copy + 16 + total - 8, &crc, 8);
	crashfs_put(b.fs, BOX_PATH, copy, n);
	const char *seen = box_scan(&b, BOX_PATH);
	assert_null(strstr(seen, "1=first"));
	struct sl_wal_record r;
	if (box_try_open(&b, &w) == 0) {
		assert_true(sl_wal_read(w, 1, &r, &b.err) < 0);
		box_close(&b, w);
	} else {
		assert_true(b.err.code == SL_EKEY || b.err.code == SL_ECORRUPT);
	}
	box_fini(&b);
}

static void a_key_file_that_others_can_read_or_of_a_wrong_size_is_refused(void **state)
{
	(void)state;
	struct box b;
	sl_wal *w;
	box_init(&b);
	crashfs_put(b.fs, "/key", "too short", 9);
	b.opts.key_file = "/key";
	assert_int_equal(box_try_open(&b, &w), SL_EKEY);
	assert_null(strstr(b.err.msg, "too short"));
	int fd = crashfs_io.open("/open", O_CREAT | O_RDWR, 0644, b.fs);
	uint8_t key[32] = {1};
	assert_int_equal(crashfs_io.pwrite(fd, key, 32, 0, b.fs), 32);
	assert_int_equal(crashfs_io.close(fd, b.fs), 0);
	b.opts.key_file = "/open";
	assert_int_equal(box_try_open(&b, &w), SL_EKEY);
	box_fini(&b);
}

static void a_hexadecimal_key_is_the_same_key(void **state)
{
	(void)state;
	struct box b;
	char hex[65];
	box_init(&b);
	put_key(&b, "/raw", 0xAB);
	for (size_t i = 0; i < 32; i++)
		memcpy(hex + 2 * i, i % 2 == 0 ? "ab" : "AB", 2);
	hex[64] = '\n';
	crashfs_put(b.fs, "/hex", hex, 65);
	b.opts.key_file = "/raw";
	sl_wal *w = box_open(&b);
	(void)box_append(w, "x");
	box_close(&b, w);
	b.opts.key_file = "/hex";
	assert_scan(&b, BOX_PATH, "1=x");
	box_close(&b, box_open(&b));
	box_fini(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_bad_option_is_refused_by_its_name),
		cmocka_unit_test(a_bad_id_is_refused),
		cmocka_unit_test(good_ids_are_taken),
		cmocka_unit_test(sequences_start_at_1_and_grow_by_1),
		cmocka_unit_test(records_appended_together_share_one_flush),
		cmocka_unit_test(an_append_does_exactly_one_sync),
		cmocka_unit_test(a_warm_append_allocates_nothing),
		cmocka_unit_test(iterate_starts_where_told_and_stops_when_told),
		cmocka_unit_test(the_callback_of_iterate_may_use_the_log),
		cmocka_unit_test(one_record_can_be_read),
		cmocka_unit_test(a_record_carries_the_time_of_its_append),
		cmocka_unit_test(tickets_are_durable_after_wait_or_sync),
		cmocka_unit_test(a_ticket_of_a_failed_flush_fails_and_its_number_is_given_again),
		cmocka_unit_test(a_failed_sync_poisons_until_the_log_is_opened_again),
		cmocka_unit_test(the_descriptor_is_readable_after_a_flush_until_it_is_cleared),
		cmocka_unit_test(without_a_background_thread_there_is_no_descriptor),
		cmocka_unit_test(marks_of_what_was_never_appended_are_refused),
		cmocka_unit_test(a_mark_rides_the_next_flush),
		cmocka_unit_test(the_index_costs_at_most_40_bytes_a_pending_record_and_nothing_for_sent_ones),
		cmocka_unit_test(a_full_backlog_is_an_error_that_goes_away),
		cmocka_unit_test(automatic_means_error_while_no_sender_runs),
		cmocka_unit_test(a_full_backlog_blocks_until_there_is_room),
		cmocka_unit_test(a_log_past_segment_bytes_is_sealed_under_its_first_sequence),
		cmocka_unit_test(a_clean_close_trims_what_was_prepared),
		cmocka_unit_test(a_full_disk_fails_the_append_and_leaves_the_log_usable),
		cmocka_unit_test(files_are_private),
		cmocka_unit_test(a_symbolic_link_is_not_followed),
		cmocka_unit_test(the_default_folder_is_in_the_home_of_the_user),
		cmocka_unit_test(a_second_opener_in_the_same_process_is_told),
		cmocka_unit_test(the_lock_stays_through_a_rotation),
		cmocka_unit_test(another_process_is_told_and_the_lock_of_a_dead_one_does_not_stay),
		cmocka_unit_test(a_forked_child_is_refused_and_the_parent_goes_on),
		cmocka_unit_test(closing_nothing_is_allowed),
		cmocka_unit_test(the_batcher_flushes_by_items_bytes_and_on_demand),
		cmocka_unit_test(the_batcher_flushes_when_the_oldest_has_waited_long_enough),
		cmocka_unit_test(the_batcher_keeps_a_batch_that_failed_and_tries_it_first),
		cmocka_unit_test(an_encrypted_log_opens_with_its_key_only),
		cmocka_unit_test(a_tampered_payload_is_noticed),
		cmocka_unit_test(a_key_file_that_others_can_read_or_of_a_wrong_size_is_refused),
		cmocka_unit_test(a_hexadecimal_key_is_the_same_key),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
