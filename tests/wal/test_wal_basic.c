/* SPDX-License-Identifier: Apache-2.0 */
/* Opening, appending, tickets, reading, marking, the backlog, space: what <sluice/wal.h> says of one log. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "box.h"
#include "support/fault.h"

/* ---- options ---- */

static void refused_field(struct sl_wal_opts opts, const char *id, const char *field)
{
	struct box b;
	box_init(&b);
	opts.struct_size = sizeof(opts);
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
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		refused_field((struct sl_wal_opts){0}, bad[i], "id");
}

static void good_ids_are_taken(void **state)
{
	(void)state;
	static const char *const good[] = {"a", "job-7", "_", "-", "A.b_c-9", "0", "a..b"};
	struct box b;
	box_init(&b);
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
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

static void iterate_starts_at_the_given_sequence_and_stops_when_the_callback_does(void **state)
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
	sl_wal_record_free(w, &r);
	assert_int_equal(sl_wal_read(w, 22, &r, &b.err), 0);
	assert_memory_equal(r.payload, "last", 4);
	assert_int_equal(r.status, SL_WAL_PENDING);
	sl_wal_record_free(w, &r);
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
	sl_wal_record_free(w, &r);
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

static void a_failure_that_is_4096_others_ago_is_forgotten(void **state)
{
	(void)state;
	struct box b;
	struct sl_wal_ticket first, t, ok;
	box_init(&b);
	sl_wal *w = box_open(&b);
	(void)box_append(w, "a");
	for (int i = 0; i < 4097; i++) {
		crashfs_quota(b.fs, 0);
		assert_int_equal(sl_wal_submit(w, "b", 1, &t, &b.err), 0);
		assert_int_equal(sl_wal_wait(w, &t, SL_UNLIMITED, &b.err), SL_ENOSPC);
		if (i == 0)
			first = t;
		crashfs_quota(b.fs, SIZE_MAX);
		assert_int_equal(sl_wal_submit(w, "", 0, &ok, &b.err), 0);
		assert_int_equal(sl_wal_wait(w, &ok, SL_UNLIMITED, &b.err), 0);
	}
	assert_int_equal(sl_wal_wait(w, &first, 0, &b.err), SL_ESTALE);
	assert_int_equal(sl_wal_wait(w, &t, 0, &b.err), SL_ENOSPC);
	assert_int_equal(sl_wal_wait(w, &ok, 0, &b.err), 0);
	box_close(&b, w);
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
	assert_int_equal(box_append(w, "d"), 2); /* what was refused does not come back */
	box_close(&b, w);
	assert_int_equal(fault_open_fds(&f), 0);
	fault_fini(&f);
	assert_scan(&b, BOX_PATH, "1=a 2=d");
	b.opts.env = &b.e.env;
	box_fini(&b);
}

/* Their flush failed in another caller's append, which returned the error; their own submitter never waited. */
static void sync_reports_once_that_submitted_records_were_lost(void **state)
{
	(void)state;
	struct box b;
	struct sl_wal_ticket t;
	box_init(&b);
	sl_wal *w = box_open(&b);
	for (int waited = 0; waited < 2; waited++) {
		assert_int_equal(sl_wal_submit(w, "a", 1, &t, &b.err), 0);
		crashfs_fail_writes(b.fs, 1, 2);
		assert_int_equal(sl_wal_append(w, "b", 1, NULL, &b.err), SL_ENOSPC);
		if (waited)
			assert_int_equal(sl_wal_wait(w, &t, SL_UNLIMITED, &b.err), SL_ENOSPC);
		assert_int_equal(sl_wal_sync(w, &b.err), waited ? 0 : SL_ENOSPC);
		assert_int_equal(sl_wal_sync(w, &b.err), 0);
	}
	assert_int_equal(sl_wal_submit(w, "a", 1, &t, &b.err), 0);
	crashfs_fail_writes(b.fs, 1, 2);
	assert_int_equal(sl_wal_append(w, "b", 1, NULL, &b.err), SL_ENOSPC);
	assert_int_equal(sl_wal_close(w, &b.err), SL_ENOSPC);
	box_fini(&b);
}

static void a_failure_keeps_its_own_error(void **state)
{
	(void)state;
	struct box b;
	struct fault f;
	struct sl_wal_ticket first, second;
	box_init(&b);
	fault_init(&f, &b.e.env);
	struct sl_env env = fault_env(&f, &b.e.env);
	b.opts.env = &env;
	sl_wal *w = box_open(&b);
	assert_int_equal(sl_wal_submit(w, "a", 1, &first, &b.err), 0);
	crashfs_fail_writes(b.fs, 1, 2);
	assert_int_equal(sl_wal_wait(w, &first, SL_UNLIMITED, &b.err), SL_ENOSPC);
	assert_int_equal(sl_wal_submit(w, "b", 1, &second, &b.err), 0);
	fault_arm_io(&f, 1, FAULT_ONCE, EIO, FAULT_SYNC_OPS);
	assert_int_equal(sl_wal_wait(w, &second, SL_UNLIMITED, &b.err), SL_EIO);
	assert_int_equal(sl_wal_wait(w, &first, SL_UNLIMITED, &b.err), SL_ENOSPC);
	(void)sl_wal_close(w, NULL);
	fault_fini(&f);
	b.opts.env = &b.e.env;
	box_fini(&b);
}

static void close_writes_all_marks(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	sl_wal *w = box_open(&b);
	box_append_n(w, 300, 10);
	for (uint64_t i = 2; i <= 300; i += 2) /* far more ranges than one flush carries */
		assert_int_equal(sl_wal_mark_sent(w, i, i, &b.err), 0);
	box_close(&b, w);
	w = box_open(&b);
	assert_int_equal(box_stats(w).sent, 150);
	box_close(&b, w);
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
	(void)snprintf(path, sizeof(path), "%s/s.wal", dir);
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

static void a_full_backlog_is_an_error_until_there_is_room(void **state)
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
	while ((rc = sl_wal_append(w, text, sizeof(text), NULL, &b.err)) == 0)
		n++;
	assert_int_equal(rc, SL_EFULL);
	assert_int_equal(n, 4); /* of 1,000 bytes each */
	assert_int_equal(box_stats(w).pending_bytes, 4000);
	assert_int_equal(sl_wal_mark_sent(w, 1, 1, &b.err), 0);
	assert_int_equal(sl_wal_append(w, text, sizeof(text), NULL, &b.err), 0);
	assert_int_equal(sl_wal_append(w, text, sizeof(text), NULL, &b.err), SL_EFULL);
	box_close(&b, w);
	/* What was pending counts after a restart too. */
	w = box_open(&b);
	assert_int_equal(sl_wal_append(w, text, sizeof(text), NULL, &b.err), SL_EFULL);
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
	assert_int_equal(sl_wal_append(w, text, sizeof(text), NULL, &b.err), 0);
	assert_int_equal(sl_wal_append(w, text, sizeof(text), NULL, &b.err), SL_EFULL);
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
	x->rc = sl_wal_append(x->w, text, sizeof(text), &x->sequence, NULL);
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
	assert_int_equal(n, 16 + 33 + 32);
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

/* The disk is full for two writes (the log tries once more after it gave its zeros back) in the middle of a long call:
 * what came before is there, what came behind is not. */
static void of_many_records_the_durable_ones_are_the_first(void **state)
{
	(void)state;
	static char payload[30000];
	struct sl_wal_span spans[8];
	for (size_t i = 0; i < 8; i++)
		spans[i] = (struct sl_wal_span){payload, sizeof(payload) - i};
	int64_t failed_at = 0;
	for (int64_t n = 1; failed_at == n - 1; n++) {
		struct box b;
		box_init(&b);
		sl_wal *w = box_open(&b);
		crashfs_fail_writes(b.fs, (size_t)n, 2);
		size_t durable = 99;
		int rc = sl_wal_append_many(w, spans, 8, NULL, &durable, &b.err);
		if (rc != 0)
			failed_at = n;
		assert_int_equal(rc, failed_at == n ? SL_ENOSPC : 0);
		assert_true(durable < 8 || rc == 0);
		assert_int_equal(box_stats(w).records, durable);
		crashfs_fail_writes(b.fs, 0, 0);
		assert_int_equal(box_append(w, "next"), durable + 1);
		box_close(&b, w);
		box_fini(&b);
	}
	assert_true(failed_at >= 3); /* the call took several writes */
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
		cmocka_unit_test(iterate_starts_at_the_given_sequence_and_stops_when_the_callback_does),
		cmocka_unit_test(the_callback_of_iterate_may_use_the_log),
		cmocka_unit_test(one_record_can_be_read),
		cmocka_unit_test(a_record_carries_the_time_of_its_append),
		cmocka_unit_test(tickets_are_durable_after_wait_or_sync),
		cmocka_unit_test(a_ticket_of_a_failed_flush_fails_and_its_number_is_given_again),
		cmocka_unit_test(a_failure_that_is_4096_others_ago_is_forgotten),
		cmocka_unit_test(a_failed_sync_poisons_until_the_log_is_opened_again),
		cmocka_unit_test(the_descriptor_is_readable_after_a_flush_until_it_is_cleared),
		cmocka_unit_test(without_a_background_thread_there_is_no_descriptor),
		cmocka_unit_test(marks_of_what_was_never_appended_are_refused),
		cmocka_unit_test(a_mark_rides_the_next_flush),
		cmocka_unit_test(the_index_costs_at_most_40_bytes_a_pending_record_and_nothing_for_sent_ones),
		cmocka_unit_test(a_full_backlog_is_an_error_until_there_is_room),
		cmocka_unit_test(automatic_means_error_while_no_sender_runs),
		cmocka_unit_test(a_full_backlog_blocks_until_there_is_room),
		cmocka_unit_test(a_log_past_segment_bytes_is_sealed_under_its_first_sequence),
		cmocka_unit_test(a_clean_close_trims_what_was_prepared),
		cmocka_unit_test(a_full_disk_fails_the_append_and_leaves_the_log_usable),
		cmocka_unit_test(of_many_records_the_durable_ones_are_the_first),
		cmocka_unit_test(sync_reports_once_that_submitted_records_were_lost),
		cmocka_unit_test(a_failure_keeps_its_own_error),
		cmocka_unit_test(close_writes_all_marks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
