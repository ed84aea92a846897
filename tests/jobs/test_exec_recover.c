/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spools that a dead worker has left: whatever it had appended and noted when it died, and wherever a recovery dies
 * itself, in the end each event is in the log once, in order. On a filesystem in memory that can be stopped at any
 * call.
 */
#include "spoolbox.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "support/budget.h"
#include "support/fault.h"
#include <sluice/wal_files.h>

static bool has_file(const struct rig *r, const char *path)
{
	size_t n;
	return crashfs_get(r->fs, path, &n) != NULL;
}

static const char *events_from(size_t first, size_t n, const char *before)
{
	static char text[2048];
	(void)snprintf(text, sizeof(text), "%s", before);
	for (size_t i = first; i < n; i++)
		strcat(text, all_events[i]);
	return text;
}

/* Recover until it is done; then the log is right and the spool is gone. */
static void recover_and_check(struct rig *r)
{
	uint64_t n = 0;
	assert_int_equal(rig_open(r), 0);
	int rc = sl_exec_recover(r->box.log, SPOOL_DIR, &r->env, &n, &r->box.err);
	if (rc != 0)
		fail_msg("%s", r->box.err.msg);
	assert_string_equal(execbox_events(&r->box, JOB), events_from(0, N_EVENTS, ""));
	assert_false(has_file(r, SPOOL));
	/* Safe to repeat. */
	assert_int_equal(sl_exec_recover(r->box.log, SPOOL_DIR, &r->env, &n, &r->box.err), 0);
	assert_int_equal(n, 0);
	rig_close(r);
}

/* ---- tests ---- */

static void what_is_left_of_any_moment_is_appended_once(void **state)
{
	(void)state;
	int states = 0;
	struct spool s;
	spool_fill(&s);
	for (size_t noted = 0; noted <= s.frames; noted++)
		for (size_t logged = 0; logged <= N_EVENTS; logged++)
			for (int note_log = 0; note_log < 2; note_log++) {
				struct rig r;
				rig_init(&r);
				spool_fill(&s);
				if (lay_out(&r, &s, noted, logged, note_log != 0)) {
					recover_and_check(&r);
					states++;
				}
				rig_fini(&r);
			}
	print_message("# %d states\n", states);
	assert_true(states > 100);
}

static void a_recovery_may_die_anywhere_and_begin_again(void **state)
{
	(void)state;
	static const size_t logged[] = {0, 1, 5, N_EVENTS - 2, N_EVENTS - 1, N_EVENTS};
	int deaths = 0;
	for (size_t k = 0; k < SL_COUNT(logged); k++)
		for (size_t stop = 0;; stop++) {
			struct rig r;
			struct spool s;
			rig_init(&r);
			spool_fill(&s);
			assert_true(lay_out(&r, &s, 0, logged[k], true));
			crashfs_stop_at(r.fs, crashfs_point(r.fs) + stop);
			int rc = rig_open(&r);
			if (rc == 0) {
				rc = sl_exec_recover(r.box.log, SPOOL_DIR, &r.env, NULL, &r.box.err);
				rig_close(&r);
			}
			bool died = crashfs_stopped(r.fs);
			crashfs_stop_at(r.fs, SIZE_MAX);
			crashfs_kill(r.fs);
			deaths += died;
			recover_and_check(&r);
			rig_fini(&r);
			if (!died)
				break;
		}
	print_message("# %d deaths\n", deaths);
	assert_true(deaths > 20);
}

static void a_failing_call_fails_the_recovery_and_not_the_events(void **state)
{
	(void)state;
	for (int64_t at = 1;; at++) {
		struct rig r;
		struct spool s;
		struct fault fault;
		rig_init(&r);
		spool_fill(&s);
		assert_true(lay_out(&r, &s, 2, 4, true));
		assert_int_equal(rig_open(&r), 0);
		fault_init(&fault, &r.env);
		struct sl_env env = fault_env(&fault, &r.env);
		fault_arm_io(&fault, at, FAULT_ONCE, EIO, FAULT_ALL_OPS);
		(void)!sl_exec_recover(r.box.log, SPOOL_DIR, &env, NULL, &r.box.err);
		fault_disarm(&fault);
		bool failed = fault_io_failed(&fault) > 0;
		assert_int_equal(fault_open_fds(&fault), 0);
		assert_int_equal(fault_live_allocs(&fault), 0);
		fault_fini(&fault);
		rig_close(&r);
		recover_and_check(&r);
		rig_fini(&r);
		if (!failed)
			break;
	}
}

static void without_memory_nothing_is_lost_or_leaked(void **state)
{
	(void)state;
	for (int64_t at = 1;; at++) {
		struct rig r;
		struct spool s;
		struct fault fault;
		rig_init(&r);
		spool_fill(&s);
		assert_true(lay_out(&r, &s, 2, 4, true));
		assert_int_equal(rig_open(&r), 0);
		fault_init(&fault, &r.env);
		struct sl_env env = fault_env(&fault, &r.env);
		fault_arm_mem(&fault, at, FAULT_ONCE);
		int rc = sl_exec_recover(r.box.log, SPOOL_DIR, &env, NULL, &r.box.err);
		bool failed = fault_mem_failed(&fault) > 0;
		fault_disarm(&fault);
		assert_true(rc == 0 || failed);
		assert_int_equal(fault_open_fds(&fault), 0);
		assert_int_equal(fault_live_allocs(&fault), 0);
		fault_fini(&fault);
		rig_close(&r);
		recover_and_check(&r);
		rig_fini(&r);
		if (!failed)
			break;
	}
}

/* ---- random output ---- */

/* Bytes with newlines here and there, sometimes many of one kind without. */
static void random_frames(struct spool *s, struct sl__prng *prng)
{
	static const char control[] = "{\"progress\":7}\n{}\n \n{\"output\":3}\n";
	spool_init(s);
	FRAME(s, SL__FRAME_STARTED, "\x05\0\0\0");
	size_t control_at = 0;
	while (s->frames < 30) {
		char text[40];
		size_t n = 1 + sl__prng_next(prng) % sizeof(text);
		enum sl__frame_kind kind = (enum sl__frame_kind)(SL__FRAME_STDOUT + sl__prng_next(prng) % 3);
		uint64_t dense = 1 + sl__prng_next(prng) % 20;
		for (size_t i = 0; i < n; i++) {
			text[i] = sl__prng_next(prng) % dense == 0 ? '\n' : (char)('a' + sl__prng_next(prng) % 26);
			if (kind == SL__FRAME_CONTROL)
				text[i] = control[control_at++ % (sizeof(control) - 1)];
		}
		frame(s, kind, text, n);
	}
	if (sl__prng_next(prng) % 4 != 0)
		FRAME(s, SL__FRAME_EXITED, "\0\0\0\0\x03\0\0\0");
}

struct compare {
	const struct sl__event_batch *batch;
	size_t n;
};

static int compare_record(const struct sl_wal_record *record, void *ctx)
{
	struct compare *c = ctx;
	struct sl_event e, expected;
	assert_int_equal(sl_event_decode(record->payload, record->payload_len, &e, NULL), 0);
	if (e.job_id != JOB)
		return 0;
	assert_true(c->n < c->batch->n);
	sl__event_batch_get(c->batch, c->n++, &expected);
	assert_int_equal(e.type, expected.type);
	assert_int_equal(e.position, expected.position);
	assert_int_equal(e.partial, expected.partial);
	assert_int_equal(e.len, expected.len);
	assert_memory_equal(e.data, expected.data, e.len);
	return 0;
}

static void random_output_left_at_a_random_moment_is_appended_once(void **state)
{
	(void)state;
	struct sl__prng prng = {2026};
	int rounds = 0;
	int64_t end = sl__clock_real.mono_ns(NULL) + (int64_t)(test_seconds(1) * 1e9);
	while (rounds < 100 || sl__clock_real.mono_ns(NULL) < end) {
		struct rig r;
		struct spool s;
		struct sl__capture whole, noted;
		rig_init(&r);
		random_frames(&s, &prng);
		capture(&r, &s, SIZE_MAX, &whole);
		size_t frames = sl__prng_next(&prng) % (s.frames + 1);
		capture(&r, &s, frames, &noted);
		size_t first = noted.batch.n, all = whole.batch.n;
		sl__capture_fini(&noted);
		lay_out(&r, &s, frames, first + sl__prng_next(&prng) % (all - first + 1), true);
		assert_int_equal(rig_open(&r), 0);
		assert_int_equal(sl_exec_recover(r.box.log, SPOOL_DIR, &r.env, NULL, &r.box.err), 0);
		struct compare c = {.batch = &whole.batch};
		assert_int_equal(sl_wal_iterate(r.box.log, 0, compare_record, &c, &r.box.err), 0);
		assert_int_equal(c.n, all);
		rig_close(&r);
		sl__capture_fini(&whole);
		rig_fini(&r);
		rounds++;
	}
	print_message("# %d rounds\n", rounds);
}

static void an_attempt_that_was_done_says_nothing_more(void **state)
{
	(void)state;
	struct rig r;
	struct spool s;
	uint64_t n = 9;
	rig_init(&r);
	spool_fill(&s);
	s.header.flags = SL__SPOOL_DONE;
	sl__spool_put_header(s.bytes, &s.header);
	crashfs_put(r.fs, SPOOL, s.bytes, s.len);
	crashfs_put(r.fs, SPOOL_DIR "/empty.spool", "", 0);
	crashfs_put(r.fs, SPOOL_DIR "/notes.txt", "not ours", 8);
	assert_int_equal(rig_open(&r), 0);
	assert_int_equal(sl_exec_recover(r.box.log, SPOOL_DIR, &r.env, &n, &r.box.err), 0);
	assert_int_equal(n, 0);
	assert_events(&r.box, 0, "");
	assert_false(has_file(&r, SPOOL) || has_file(&r, SPOOL_DIR "/empty.spool"));
	assert_true(has_file(&r, SPOOL_DIR "/notes.txt"));
	rig_close(&r);
	rig_fini(&r);
}

static void a_command_that_was_never_started_says_nothing(void **state)
{
	(void)state;
	struct rig r;
	struct spool s;
	rig_init(&r);
	spool_init(&s);
	/* What an earlier attempt left in the same file is not of this one. */
	s.header.salt = 98;
	FRAME(&s, SL__FRAME_STARTED, "\x05\0\0\0");
	FRAME(&s, SL__FRAME_STDOUT, "old\n");
	s.header.salt = 99;
	sl__spool_put_header(s.bytes, &s.header);
	crashfs_put(r.fs, SPOOL, s.bytes, s.len);
	assert_int_equal(rig_open(&r), 0);
	assert_int_equal(sl_exec_recover(r.box.log, SPOOL_DIR, &r.env, NULL, &r.box.err), 0);
	assert_events(&r.box, 0, "");
	assert_false(has_file(&r, SPOOL));
	rig_close(&r);
	rig_fini(&r);
}

static void frames_of_an_earlier_attempt_past_the_end_are_not_read(void **state)
{
	(void)state;
	struct rig r;
	struct spool s;
	rig_init(&r);
	spool_init(&s);
	FRAME(&s, SL__FRAME_STARTED, "\x05\0\0\0");
	FRAME(&s, SL__FRAME_STDOUT, "new\n");
	s.header.salt = 98;
	FRAME(&s, SL__FRAME_STDOUT, "old\n");
	s.header.salt = 99;
	sl__spool_put_header(s.bytes, &s.header);
	crashfs_put(r.fs, SPOOL, s.bytes, s.len);
	assert_int_equal(rig_open(&r), 0);
	assert_int_equal(sl_exec_recover(r.box.log, SPOOL_DIR, &r.env, NULL, &r.box.err), 0);
	assert_events(&r.box, JOB, "started\nout 0 new\nerror 0 the worker died; the command was killed\n");
	rig_close(&r);
	rig_fini(&r);
}

static void a_torn_or_damaged_frame_is_the_end(void **state)
{
	(void)state;
	struct spool whole;
	spool_fill(&whole);
	for (size_t bit = SL__SPOOL_START * 8; bit < whole.len * 8; bit += 3) {
		struct rig r;
		struct spool s;
		rig_init(&r);
		spool_fill(&s);
		sl__spool_put_header(s.bytes, &s.header);
		s.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		crashfs_put(r.fs, SPOOL, s.bytes, s.len);
		assert_int_equal(rig_open(&r), 0);
		assert_int_equal(sl_exec_recover(r.box.log, SPOOL_DIR, &r.env, NULL, &r.box.err), 0);
		/* Some of the first events and the end: nothing that was never written. */
		const char *text = execbox_events(&r.box, JOB);
		size_t at = 0;
		while (at < N_EVENTS && strncmp(text, all_events[at], strlen(all_events[at])) == 0)
			text += strlen(all_events[at++]);
		assert_true(at < N_EVENTS);
		rig_close(&r);
		rig_fini(&r);
	}
}

static void a_spool_with_a_damaged_header_is_quarantined(void **state)
{
	(void)state;
	struct rig r;
	struct spool s;
	rig_init(&r);
	spool_fill(&s);
	sl__spool_put_header(s.bytes, &s.header);
	s.bytes[20] ^= 1;
	crashfs_put(r.fs, SPOOL, s.bytes, s.len);
	assert_int_equal(rig_open(&r), 0);
	assert_int_equal(sl_exec_recover(r.box.log, SPOOL_DIR, &r.env, NULL, &r.box.err), 0);
	assert_false(has_file(&r, SPOOL));
	assert_true(has_file(&r, SPOOL ".damaged"));
	rig_close(&r);
	rig_fini(&r);
}

static void a_spool_that_is_in_use_is_waited_for_and_left_alone(void **state)
{
	(void)state;
	struct rig r;
	struct spool s;
	rig_init(&r);
	spool_fill(&s);
	assert_true(lay_out(&r, &s, 0, 0, true));
	int fd = SL__IO(&r.env, open, SPOOL, 2, 0);
	assert_true(fd >= 0);
	assert_int_equal(SL__IO(&r.env, lock, fd), 0);
	assert_int_equal(rig_open(&r), 0);
	int64_t before = sl__mono_ns(&r.env);
	assert_int_equal(sl_exec_recover(r.box.log, SPOOL_DIR, &r.env, NULL, &r.box.err), SL_ELOCKED);
	assert_true(sl__mono_ns(&r.env) - before >= INT64_C(5000000000));
	assert_true(has_file(&r, SPOOL));
	rig_close(&r);
	assert_int_equal(SL__IO(&r.env, close, fd), 0);
	recover_and_check(&r);
	rig_fini(&r);
}

static void a_missing_folder_is_empty(void **state)
{
	(void)state;
	struct rig r;
	rig_init(&r);
	assert_int_equal(rig_open(&r), 0);
	assert_int_equal(sl_exec_recover(r.box.log, "/nowhere", &r.env, NULL, &r.box.err), 0);
	rig_close(&r);
	rig_fini(&r);
}

/* ---- with the sweep ---- */

struct peer {
	char text[4096];
	uint64_t mark;
};

static int take(const struct sl_wal_batch *batch, struct sl_wal_reply *reply, struct sl_err *err, void *ctx)
{
	struct peer *p = ctx;
	(void)err;
	for (size_t i = 0; i < batch->n_records; i++) {
		struct sl_event e;
		assert_int_equal(sl_event_decode(batch->records[i].payload, batch->records[i].payload_len, &e, NULL),
				 0);
		p->mark = batch->records[i].sequence;
		if (e.job_id == JOB)
			strcat(p->text, sl_event_type_name(e.type));
		if (e.job_id == JOB)
			strcat(p->text, " ");
	}
	reply->mark = p->mark;
	return 0;
}

static void a_sweep_brings_the_spool_of_an_orphan_in_before_it_sends(void **state)
{
	(void)state;
	static const struct sl_wal_sender sender = {.version = SL_WAL_SENDER_VERSION, .send = take};
	struct rig r;
	struct spool s;
	struct peer p = {.mark = 0};
	rig_init(&r);
	spool_fill(&s);
	assert_true(lay_out(&r, &s, 0, 3, true));
	struct sl_wal_opts opts = {SL_WAL_OPTS_INIT,
				   .env = &r.env,
				   .wal_dir = DIR,
				   .archive_dir = "/a",
				   .background = SL_OFF,
				   .prepare_max_bytes = SL_NONE,
				   .on_orphan = sl_exec_recover_orphan,
				   .on_orphan_ctx = &r.env};
	struct sl_wal_sweep_result result = {.struct_size = sizeof(result)};
	/* While it cannot, nothing is sent. */
	int fd = SL__IO(&r.env, open, SPOOL, 2, 0);
	assert_int_equal(SL__IO(&r.env, lock, fd), 0);
	assert_int_equal(sl_wal_sweep(&opts, &sender, &p, SL_UNLIMITED, &result, &r.box.err), 0);
	assert_int_equal(result.failed, 1);
	assert_string_equal(p.text, "");
	assert_int_equal(SL__IO(&r.env, close, fd), 0);
	assert_int_equal(sl_wal_sweep(&opts, &sender, &p, SL_UNLIMITED, &result, &r.box.err), 0);
	assert_int_equal(result.archived, 1);
	assert_string_equal(p.text, "started stdout stderr progress stdout stdout stdout stderr progress error stdout "
				    "stdout error exited ");
	assert_false(has_file(&r, SPOOL));
	rig_fini(&r);
}

/* The worker has flushed all lines and come by the frame of the exit, whose event is only made at the end. */
static void an_exit_that_was_read_but_not_logged_is_logged_by_recovery(void **state)
{
	(void)state;
	struct rig r;
	struct spool s;
	struct sl__capture c;
	struct sl_event e;
	struct sl_wal_stats st = {.struct_size = sizeof(st)};
	rig_init(&r);
	spool_init(&s);
	frame(&s, SL__FRAME_STARTED, "\x07\0\0\0", 4);
	frame(&s, SL__FRAME_STDOUT, "one\n", 4);
	frame(&s, SL__FRAME_EXITED, "\0\0\0\0\3\0\0\0", 8);
	capture(&r, &s, 3, &c);
	assert_int_equal(rig_open(&r), 0);
	assert_int_equal(sl_wal_get_stats(r.box.log, &st, NULL), 0);
	for (size_t i = 0; i < c.batch.n; i++) {
		sl__event_batch_get(&c.batch, i, &e);
		s.header.sequence = append_event(&r, &e);
	}
	rig_close(&r);
	sl__capture_note(&c, &s.header);
	s.header.incarnation = st.incarnation;
	sl__capture_fini(&c);
	sl__spool_put_header(s.bytes, &s.header);
	crashfs_put(r.fs, SPOOL, s.bytes, s.len);
	assert_int_equal(rig_open(&r), 0);
	assert_int_equal(sl_exec_recover(r.box.log, SPOOL_DIR, &r.env, NULL, &r.box.err), 0);
	assert_string_equal(execbox_events(&r.box, JOB), "started\nout 0 one\nerror 0 the worker died; the command was "
							 "killed\nexited {\"code\":3}\n");
	assert_false(has_file(&r, SPOOL));
	rig_close(&r);
	rig_fini(&r);
}

/* ---- a log that fails for a moment ---- */

static int count_records(const struct sl_wal_record *record, void *ctx)
{
	struct sl_event e;
	size_t *next = ctx;
	assert_int_equal(sl_event_decode(record->payload, record->payload_len, &e, NULL), 0);
	assert_int_equal(e.position, *next);
	(*next)++;
	return 0;
}

static void ignore_part(size_t n, uint64_t last, void *ctx)
{
	(void)n;
	(void)last;
	(void)ctx;
}

/* X1: a recovery takes what is in the log for the first of all. One record of a later flush would hide all before it.
 */
static bool fail_in_the_middle(size_t nth, size_t n_writes)
{
	static char line[30000];
	struct rig r;
	struct sl__event_batch b;
	struct sl_wal_ticket ticket;
	size_t n = 0;
	rig_init(&r);
	assert_int_equal(rig_open(&r), 0);
	sl__event_batch_init(&b, &r.env);
	memset(line, 'x', sizeof(line));
	for (uint64_t i = 0; i < 20; i++) {
		struct sl_event e = {.type = SL_EVENT_STDOUT,
				     .job_id = JOB,
				     .position = i,
				     .ts_ms = TS,
				     .data = line,
				     .len = sizeof(line)};
		assert_int_equal(sl__event_batch_add(&b, &e, NULL), 0);
	}
	crashfs_fail_writes(r.fs, nth, n_writes);
	const struct sl__event_log to = {r.box.log, ignore_part, NULL};
	int rc = sl__event_batch_submit(&b, &to, &ticket, &r.box.err);
	if (rc == 0)
		rc = sl_wal_wait(r.box.log, &ticket, SL_UNLIMITED, &r.box.err);
	crashfs_fail_writes(r.fs, 0, 0);
	(void)!sl_wal_sync(r.box.log, NULL);
	assert_int_equal(sl_wal_iterate(r.box.log, 0, count_records, &n, &r.box.err), 0);
	assert_int_equal(rc == 0, n == b.n);
	sl__event_batch_fini(&b);
	rig_close(&r);
	rig_fini(&r);
	return rc != 0;
}

static void a_batch_that_fails_in_the_middle_leaves_its_first_events_or_none(void **state)
{
	(void)state;
	int failed = 0;
	for (size_t nth = 1; nth < 12; nth++)
		for (size_t n_writes = 1; n_writes < 5; n_writes++)
			failed += fail_in_the_middle(nth, n_writes);
	print_message("# %d failures\n", failed);
	assert_true(failed > 5);
}

/* ---- a batch of which only the first part got into the log, which is then archived ---- */

#define LINES 2000 /* of 100 bytes: more than the log takes in one flush */

struct receiver {
	pthread_mutex_t mu;
	unsigned char seen[LINES]; /* how often each line came */
	uint64_t mark;
};

static int receive(const struct sl_wal_batch *batch, struct sl_wal_reply *reply, struct sl_err *err, void *ctx)
{
	struct receiver *to = ctx;
	(void)err;
	pthread_mutex_lock(&to->mu);
	for (size_t i = 0; i < batch->n_records; i++) {
		const struct sl_wal_record *r = &batch->records[i];
		struct sl_event e;
		assert_int_equal(sl_event_decode(r->payload, r->payload_len, &e, NULL), 0);
		if (e.type == SL_EVENT_STDOUT && e.job_id != JOB)
			to->seen[e.position / 100]++;
		to->mark = r->sequence;
	}
	reply->mark = to->mark;
	pthread_mutex_unlock(&to->mu);
	return 0;
}

static const struct sl_wal_sender receiver_ops = {.version = SL_WAL_SENDER_VERSION, .send = receive};

static uint64_t first_kept(sl_wal *log)
{
	struct sl_wal_stats s = {.struct_size = sizeof(s)};
	assert_int_equal(sl_wal_get_stats(log, &s, NULL), 0);
	return s.first_sequence;
}

/* The nth write under the log fails: the disk is full. What had got into the log before is sent and archived, and only
 * then is the rest brought in: by the handle itself, or by a recovery after a kill. false: no write was left to fail.
 */
static bool split_and_archived(int64_t nth, bool killed, int *failures)
{
	static const char *const argv[] = {"/bin/sh", "-c",
					   "head -c 198000 /dev/zero | tr '\\0' x | fold -w 99; echo; exit 0", NULL};
	struct execbox b;
	struct fault fault;
	struct receiver to = {.mu = PTHREAD_MUTEX_INITIALIZER};
	struct fake f;
	execbox_init(&b);
	execbox_close_log(&b);
	fault_init(&fault, NULL);
	struct sl_env env = fault_env(&fault, NULL);
	struct sl_wal_opts opts = {SL_WAL_OPTS_INIT,     .env = &env,           .wal_dir = b.dir,
				   .archive_dir = b.dir, .segment_bytes = 4096, .prepare_max_bytes = SL_NONE};
	assert_int_equal(sl_wal_open(&b.log, "w", &opts, &b.err), 0);
	execbox_exec(&b, argv);
	fault_arm_io(&fault, nth, FAULT_FROM, ENOSPC, FAULT_OP(FAULT_PWRITE));
	int rc = execbox_run(&b, &f, NULL);
	bool injected = fault_io_failed(&fault) > 0;
	fault_disarm(&fault);
	*failures += rc != 0;
	/* Something of another job, so that the segments before it may go. */
	struct sl_event other = {.type = SL_EVENT_STDOUT, .job_id = JOB, .ts_ms = TS, .data = "x", .len = 1};
	void *record;
	size_t len;
	uint64_t sequence = 0;
	for (int i = 0; i < 2; i++) {
		static char filler[5000];
		other.data = i == 0 ? filler : "x";
		other.len = i == 0 ? sizeof(filler) : 1;
		assert_int_equal(sl_event_encode(&other, NULL, &record, &len, &b.err), 0);
		assert_int_equal(sl_wal_append(b.log, record, len, &sequence, &b.err), 0);
		sl_event_free(NULL, record);
	}
	assert_int_equal(sl_wal_sender_start(b.log, &receiver_ops, &to, &b.err), 0);
	while (first_kept(b.log) + 1 < sequence)
		(void)usleep(1000);
	/* Now the rest. A recovery after a kill has nothing but the spool. */
	if (killed) {
		char path[160];
		(void)snprintf(path, sizeof(path), "%s.kept", b.spool);
		assert_int_equal(rename(b.spool, path), 0);
		sl_exec_free(b.exec);
		b.exec = NULL;
		(void)rmdir(b.spool);
		assert_int_equal(sl_exec_recover(b.log, path, NULL, NULL, &b.err), 0);
	} else {
		sl_exec_free(b.exec);
		b.exec = NULL;
	}
	assert_int_equal(sl_wal_sender_stop(b.log, 60000, &b.err), 0);
	/* Of a command that was ended a beginning, else all; each line once. */
	for (size_t i = 0; i < LINES; i++)
		if (to.seen[i] > 1 || (to.seen[i] == 0 && rc == 0) || (i > 0 && to.seen[i] > to.seen[i - 1]))
			fail_msg("write %d: line %zu came %d times", (int)nth, i, to.seen[i]);
	execbox_close_log(&b);
	fault_fini(&fault);
	execbox_fini(&b);
	return injected;
}

static void a_batch_whose_first_part_was_archived_is_not_doubled(void **state)
{
	(void)state;
	int failures = 0;
	for (int64_t nth = 1; split_and_archived(nth, false, &failures); nth++)
		;
	for (int64_t nth = 1; split_and_archived(nth, true, &failures); nth++)
		;
	print_message("# %d attempts failed\n", failures);
	assert_true(failures > 4);
}

/* ---- lines of descriptor 3 that are too long ---- */

static void a_line_of_descriptor_3_that_never_ends_is_reported_once_and_skipped(void **state)
{
	(void)state;
	struct rig r;
	struct sl__capture c;
	struct sl__spool_header h = {
		.job_id = JOB, .attempt = 2, .max_line_bytes = 100, .resume.offset = SL__SPOOL_START};
	static uint8_t chunk[SL__SPOOL_CHUNK];
	uint64_t at = SL__SPOOL_START;
	rig_init(&r);
	memset(chunk, 'x', sizeof(chunk));
	sl__capture_init(&c, &r.env, &h);
	size_t n = SL__CONTROL_LINE_MAX / sizeof(chunk) + 10;
	for (size_t i = 0; i < n; i++) {
		struct sl__frame f = {SL__FRAME_CONTROL, at, TS, chunk, sizeof(chunk), 0};
		assert_int_equal(sl__capture_frame(&c, &f, NULL), 0);
		at += SL__SPOOL_FRAME + sizeof(chunk);
	}
	assert_int_equal(c.batch.n, 1);
	/* The spool can be given back, and the next reader knows where to resume. */
	sl__capture_note(&c, &h);
	assert_int_equal(h.resume.offset, at);
	assert_int_equal(h.flags & SL__SPOOL_SKIPPING, SL__SPOOL_SKIPPING);
	sl__capture_fini(&c);
	sl__capture_init(&c, &r.env, &h);
	static const uint8_t rest[] = "tail of it\n{\"output\":5}\n";
	struct sl__frame f = {SL__FRAME_CONTROL, at, TS, rest, sizeof(rest) - 1, 0};
	assert_int_equal(sl__capture_frame(&c, &f, NULL), 0);
	assert_int_equal(c.batch.n, 0);
	assert_int_equal(c.protocol.last, SL__SAYS_OUTPUT);
	sl__capture_note(&c, &h);
	assert_int_equal(h.flags & SL__SPOOL_SKIPPING, 0);
	sl__capture_fini(&c);
	rig_fini(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_left_of_any_moment_is_appended_once),
		cmocka_unit_test(a_recovery_may_die_anywhere_and_begin_again),
		cmocka_unit_test(a_failing_call_fails_the_recovery_and_not_the_events),
		cmocka_unit_test(without_memory_nothing_is_lost_or_leaked),
		cmocka_unit_test(random_output_left_at_a_random_moment_is_appended_once),
		cmocka_unit_test(an_exit_that_was_read_but_not_logged_is_logged_by_recovery),
		cmocka_unit_test(an_attempt_that_was_done_says_nothing_more),
		cmocka_unit_test(a_command_that_was_never_started_says_nothing),
		cmocka_unit_test(frames_of_an_earlier_attempt_past_the_end_are_not_read),
		cmocka_unit_test(a_torn_or_damaged_frame_is_the_end),
		cmocka_unit_test(a_spool_with_a_damaged_header_is_quarantined),
		cmocka_unit_test(a_spool_that_is_in_use_is_waited_for_and_left_alone),
		cmocka_unit_test(a_missing_folder_is_empty),
		cmocka_unit_test(a_sweep_brings_the_spool_of_an_orphan_in_before_it_sends),
		cmocka_unit_test(a_batch_that_fails_in_the_middle_leaves_its_first_events_or_none),
		cmocka_unit_test(a_batch_whose_first_part_was_archived_is_not_doubled),
		cmocka_unit_test(a_line_of_descriptor_3_that_never_ends_is_reported_once_and_skipped),
	};
	return cmocka_run_group_tests_name("exec recover", tests, NULL, NULL);
}
