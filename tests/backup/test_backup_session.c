/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions and marks: the order of their steps (F4, F5), the heartbeat under a virtual clock, publishing, and a session
 * that another process took for dead. */
#include "backup/repo_kit.h"
#include "support/crashfs.h"
#include "support/fault.h"
#include "support/vclock.h"

static struct bk_ids packs_of(struct repo *r, uint8_t first, size_t n)
{
	struct bk_ids ids = {.n = 0};
	for (size_t i = 0; i < n; i++) {
		struct bk_id id;
		memset(id.b, (int)(first + i), sizeof(id.b));
		assert_int_equal(sl__bk_ids_add(&r->b->env, &ids, &id), 0);
	}
	return ids;
}

static void put_mark(struct repo *r, sl_backup *b, uint8_t first, size_t n, char id[BK_NAME_HEX])
{
	struct bk_ids ids = packs_of(r, first, n);
	assert_int_equal(sl__bk_mark_put(b, &ids, id, NULL), 0);
	sl__bk_ids_fini(&r->b->env, &ids);
}

static bool is_marked(const struct bk_marks *m, uint8_t byte)
{
	struct bk_id id;
	memset(id.b, byte, sizeof(id.b));
	return sl__bk_marks_have(m, &id);
}

static void name_of(const char *folder, const char *id, char out[SL_DRIVER_NAME_BYTES])
{
	(void)snprintf(out, SL_DRIVER_NAME_BYTES, "%s/%s", folder, id);
}

/* ---- marks ---- */

static void marks_say_which_packs_are_marked(void **state)
{
	struct repo r;
	struct bk_marks m;
	char ids[2][BK_NAME_HEX];
	(void)state;
	repo_make(&r, NULL);
	assert_int_equal(sl__bk_marks_load(r.b, &m, NULL), 0);
	assert_int_equal(m.n, 0);
	sl__bk_marks_fini(&r.b->env, &m);
	put_mark(&r, r.b, 10, 3, ids[0]);
	put_mark(&r, r.b, 50, 1, ids[1]);
	assert_int_equal(sl__bk_marks_load(r.b, &m, NULL), 0);
	assert_int_equal(m.n, 2);
	assert_true(strcmp(m.marks[0].id, m.marks[1].id) < 0);
	assert_true(is_marked(&m, 10) && is_marked(&m, 12) && is_marked(&m, 50));
	assert_false(is_marked(&m, 13) || is_marked(&m, 0));
	sl__bk_marks_fini(&r.b->env, &m);
	repo_free(&r);
}

static int remove_mark(struct bad_driver *b, enum bad_op op, const char *name, void *ctx)
{
	if (op == BAD_GET && strcmp(name, ctx) == 0)
		assert_int_equal(b->under.ops->remove(b->under.driver, name, NULL), 0);
	return 0;
}

static void a_mark_that_is_removed_meanwhile_is_skipped_and_a_damaged_one_is_not(void **state)
{
	struct repo r;
	struct sl_err err = SL_ERR_INIT;
	struct bk_marks m = {.n = 77};
	char ids[2][BK_NAME_HEX], name[SL_DRIVER_NAME_BYTES], other[SL_DRIVER_NAME_BYTES];
	(void)state;
	repo_make(&r, NULL);
	put_mark(&r, r.b, 10, 1, ids[0]);
	put_mark(&r, r.b, 20, 1, ids[1]);
	name_of("marks", ids[0], name);
	r.bad.hook = remove_mark;
	r.bad.hook_ctx = name;
	assert_int_equal(sl__bk_marks_load(r.b, &m, &err), 0);
	assert_int_equal(m.n, 1);
	assert_string_equal(m.marks[0].id, ids[1]);
	sl__bk_marks_fini(&r.b->env, &m);
	r.bad.hook = NULL;
	m.n = 77;
	name_of("marks", ids[1], other);
	assert_int_equal(r.d.ops->rename(r.d.driver, other, name, NULL), 0); /* another's name */
	assert_int_equal(sl__bk_marks_load(r.b, &m, &err), SL_ECORRUPT);
	assert_non_null(strstr(err.msg, ids[0]));
	assert_int_equal(m.n, 77);
	repo_free(&r);
}

/* ---- begin ---- */

struct steps {
	char text[256];
};

static int note_step(struct bad_driver *b, enum bad_op op, const char *name, void *ctx)
{
	struct steps *s = ctx;
	(void)b;
	size_t n = strlen(s->text);
	(void)snprintf(s->text + n, sizeof(s->text) - n, "%s %.*s, ", bad_op_name(op), (int)strcspn(name, "/"), name);
	return 0;
}

static void a_session_is_announced_before_it_reads_the_marks(void **state)
{
	struct repo r;
	struct steps steps = {.text = ""};
	struct bk_session *s;
	(void)state;
	repo_make(&r, NULL);
	r.bad.hook = note_step;
	r.bad.hook_ctx = &steps;
	assert_int_equal(sl__bk_session_begin(r.b, &s, NULL), 0);
	assert_string_equal(steps.text, "put sessions, list marks, put sessions, ");
	sl__bk_session_end(s);
	assert_string_equal(steps.text, "put sessions, list marks, put sessions, remove sessions, ");
	repo_free(&r);
}

struct look {
	int n;
	struct bk_session_info last;
	char seen[4][BK_NAME_HEX];
};

static int look_at(const struct bk_session_info *info, void *ctx)
{
	struct look *l = ctx;
	l->n++;
	l->last = *info;
	for (size_t i = 0; i < info->n_seen; i++)
		memcpy(l->seen[i], info->seen[i], BK_NAME_HEX);
	return 0;
}

static struct look look(sl_backup *b)
{
	struct look l = {.n = 0};
	assert_int_equal(sl__bk_sessions_each(b, look_at, &l, NULL), 0);
	return l;
}

struct prune {
	struct repo *r;
	char before[BK_NAME_HEX]; /* a mark that is put when the session is announced */
	struct look while_beginning;
};

static int put_mark_meanwhile(struct bad_driver *b, enum bad_op op, const char *name, void *ctx)
{
	struct prune *p = ctx;
	if (op == BAD_LIST && strcmp(name, "marks") == 0) {
		b->hook = NULL;
		p->while_beginning = look(p->r->b);
		put_mark(p->r, p->r->b, 10, 1, p->before);
	}
	return 0;
}

/* F5, and what F4 relies on. */
static void a_session_announces_the_marks_it_has_seen(void **state)
{
	struct repo r;
	struct bk_session *s;
	char after[BK_NAME_HEX];
	struct prune p = {.r = &r};
	(void)state;
	repo_make(&r, NULL);
	r.bad.hook = put_mark_meanwhile;
	r.bad.hook_ctx = &p;
	assert_int_equal(sl__bk_session_begin(r.b, &s, NULL), 0);
	assert_int_equal(p.while_beginning.n, 1);
	assert_false(p.while_beginning.last.ready);
	assert_int_equal(p.while_beginning.last.n_seen, 0);
	put_mark(&r, r.b, 20, 1, after);
	struct look l = look(r.b);
	assert_int_equal(l.n, 1);
	assert_true(l.last.ready);
	assert_string_equal(l.last.id, s->id);
	assert_int_equal(l.last.n_seen, 1);
	assert_string_equal(l.seen[0], p.before);
	assert_true(is_marked(&s->seen, 10));
	assert_false(is_marked(&s->seen, 20));
	sl__bk_session_end(s);
	assert_int_equal(look(r.b).n, 0);
	repo_free(&r);
}

static void a_session_that_cannot_be_read_is_not_ready(void **state)
{
	struct repo r;
	struct bk_session *s;
	char name[SL_DRIVER_NAME_BYTES];
	(void)state;
	repo_make(&r, NULL);
	assert_int_equal(sl__bk_session_begin(r.b, &s, NULL), 0);
	name_of("sessions", s->id, name);
	repo_damage(&r.d, name, 60);
	struct look l = look(r.b);
	assert_int_equal(l.n, 1);
	assert_false(l.last.ready);
	assert_string_equal(l.last.id, s->id);
	assert_true(l.last.mtime_ms > 0);
	r.bad.fail_at = 1; /* an error of reading is no reason to overlook it either */
	r.bad.counted = 0;
	r.bad.fail_ops = BAD_OP(BAD_GET);
	l = look(r.b);
	assert_int_equal(l.n, 1);
	assert_false(l.last.ready);
	sl__bk_session_end(s);
	assert_int_equal(r.d.ops->put(r.d.driver, "sessions/stray", "x", 1, SL_DRIVER_NEW, NULL), 0);
	assert_int_equal(look(r.b).n, 0);
	repo_free(&r);
}

/* ---- the heartbeat ---- */

static struct vclock vclock;

static void make_with_clock(struct repo *r)
{
	vclock_init(&vclock);
	struct sl_env env = {SL_ENV_INIT, .clock = &vclock_table, .clock_ctx = &vclock};
	repo_make(r, &env);
}

static void a_session_beats_every_minute(void **state)
{
	struct repo r;
	struct bk_session *s;
	(void)state;
	make_with_clock(&r);
	assert_int_equal(sl__bk_session_begin(r.b, &s, NULL), 0);
	vclock_await_settled(&vclock, 1);
	int64_t puts = r.bad.calls[BAD_PUT];
	vclock_advance_ms(&vclock, BK_HEARTBEAT_MS - 1);
	vclock_await_settled(&vclock, 1);
	assert_int_equal(r.bad.calls[BAD_PUT], puts);
	for (int i = 1; i <= 3; i++) {
		vclock_advance_ms(&vclock, i == 1 ? 1 : BK_HEARTBEAT_MS);
		vclock_await_settled(&vclock, 1);
		assert_int_equal(r.bad.calls[BAD_PUT], puts + i);
	}
	assert_true(look(r.b).last.ready);
	sl__bk_session_end(s);
	repo_free(&r);
	vclock_fini(&vclock);
}

static void a_failed_beat_is_made_up_for_by_the_next(void **state)
{
	struct repo r;
	struct bk_session *s;
	struct sl_err err = SL_ERR_INIT;
	(void)state;
	make_with_clock(&r);
	assert_int_equal(sl__bk_session_begin(r.b, &s, NULL), 0);
	vclock_await_settled(&vclock, 1);
	r.bad.fail_at = 1;
	r.bad.counted = 0;
	r.bad.fail_ops = BAD_OP(BAD_PUT);
	vclock_advance_ms(&vclock, BK_HEARTBEAT_MS);
	vclock_await_settled(&vclock, 1);
	assert_int_equal(r.bad.failed, 1);
	vclock_advance_ms(&vclock, BK_HEARTBEAT_MS);
	vclock_await_settled(&vclock, 1);
	assert_int_equal(sl__bk_session_publish(s, "{}", 2, &err), 0);
	sl__bk_session_end(s);
	repo_free(&r);
	vclock_fini(&vclock);
}

/* ---- publishing ---- */

static void a_published_session_is_a_snapshot(void **state)
{
	struct repo r;
	struct sl_err err = SL_ERR_INIT;
	char id[BK_NAME_HEX];
	struct bk_snapshot s;
	(void)state;
	repo_make(&r, NULL);
	assert_int_equal(repo_publish(&r, "the host", 5, id, &err), 0);
	assert_int_equal(repo_count(&r.d, "sessions", NULL), 0);
	assert_int_equal(sl__bk_snapshot_load(r.b, id, &s, &err), 0);
	assert_string_equal(s.info.host, "the host");
	sl__bk_snapshot_fini(&r.b->env, &s);
	repo_free(&r);
}

static void a_session_that_was_removed_is_not_published(void **state)
{
	struct repo r;
	struct bk_session *s;
	struct sl_err err = SL_ERR_INIT;
	char name[SL_DRIVER_NAME_BYTES];
	(void)state;
	for (int with_beat = 0; with_beat < 2; with_beat++) {
		make_with_clock(&r);
		assert_int_equal(sl__bk_session_begin(r.b, &s, NULL), 0);
		vclock_await_settled(&vclock, 1);
		name_of("sessions", s->id, name);
		assert_int_equal(r.d.ops->remove(r.d.driver, name, NULL), 0);
		if (with_beat) /* which finds it gone, and does not bring it back */
			vclock_advance_ms(&vclock, BK_HEARTBEAT_MS);
		assert_int_equal(sl__bk_session_publish(s, "{}", 2, &err), SL_EAGAIN);
		assert_int_equal(sl_err_exit_code(err.code), 75);
		sl__bk_session_end(s);
		assert_int_equal(repo_count(&r.d, "sessions", NULL) + repo_count(&r.d, "snapshots", NULL), 0);
		repo_free(&r);
		vclock_fini(&vclock);
	}
}

static int take_for_dead(struct bad_driver *b, enum bad_op op, const char *name, void *ctx)
{
	if (op == BAD_RENAME)
		*(int *)ctx = b->under.ops->remove(b->under.driver, name, NULL);
	return 0;
}

static void a_session_that_goes_in_the_last_moment_is_not_published(void **state)
{
	struct repo r;
	struct sl_err err = SL_ERR_INIT;
	int removed = -1;
	(void)state;
	repo_make(&r, NULL);
	r.bad.hook = take_for_dead;
	r.bad.hook_ctx = &removed;
	assert_int_equal(repo_publish(&r, "host", 5, NULL, &err), SL_EAGAIN);
	assert_int_equal(removed, 0);
	assert_int_equal(repo_count(&r.d, "sessions", NULL) + repo_count(&r.d, "snapshots", NULL), 0);
	repo_free(&r);
}

static int look_before_rename(struct bad_driver *b, enum bad_op op, const char *name, void *ctx)
{
	struct prune *p = ctx;
	(void)name;
	if (op == BAD_RENAME) {
		b->hook = NULL;
		p->while_beginning = look(p->r->b);
	}
	return 0;
}

static void a_session_that_is_being_published_is_not_ready(void **state)
{
	struct repo r;
	struct sl_err err = SL_ERR_INIT;
	struct prune p = {.r = &r};
	(void)state;
	repo_make(&r, NULL);
	r.bad.hook = look_before_rename;
	r.bad.hook_ctx = &p;
	assert_int_equal(repo_publish(&r, "host", 5, NULL, &err), 0);
	assert_int_equal(p.while_beginning.n, 1);
	assert_false(p.while_beginning.last.ready);
	repo_free(&r);
}

/* ---- failures ---- */

static void a_failing_driver_leaves_a_whole_snapshot_or_none(void **state)
{
	int64_t n = 1;
	(void)state;
	for (bool injected = true; injected; n++) {
		struct repo r;
		struct sl_err err = SL_ERR_INIT;
		char id[SL_DRIVER_NAME_BYTES];
		repo_make(&r, NULL);
		r.bad.counted = 0;
		r.bad.fail_at = n;
		int rc = repo_publish(&r, "host", 5, NULL, &err);
		r.bad.fail_at = 0;
		injected = r.bad.failed != 0;
		assert_int_equal(rc, err.code);
		assert_int_equal(repo_count(&r.d, "snapshots", id), rc == 0);
		if (rc == 0) {
			struct bk_snapshot s;
			assert_int_equal(sl__bk_snapshot_load(r.b, id, &s, &err), 0);
			sl__bk_snapshot_fini(&r.b->env, &s);
		}
		repo_free(&r);
	}
	printf("# %lld calls of the driver failed, one after another\n", (long long)n - 2);
}

static void every_failing_allocation_is_reported_and_nothing_is_left(void **state)
{
	struct fault f;
	int64_t n = 1;
	(void)state;
	fault_init(&f, NULL);
	struct sl_env env = fault_env(&f, NULL);
	for (bool injected = true; injected; n++) {
		struct repo r;
		char mark[BK_NAME_HEX];
		sl_backup *b;
		repo_make(&r, NULL);
		put_mark(&r, r.b, 10, 1, mark);
		struct sl_backup_opts opts = r.opts;
		opts.env = &env;
		assert_int_equal(sl_backup_open(&b, &r.d, &opts, NULL), 0);
		sl_backup *real = r.b;
		r.b = b;
		fault_arm_mem(&f, n, FAULT_ONCE);
		int rc = repo_publish(&r, "host", 5, NULL, NULL);
		fault_disarm(&f);
		injected = fault_mem_failed(&f) != 0;
		assert_true(rc == 0 || (injected && rc == SL_ENOMEM));
		r.b = real;
		sl_backup_close(b);
		assert_int_equal(fault_live_allocs(&f), 0);
		assert_int_equal(repo_count(&r.d, "sessions", NULL), 0);
		repo_free(&r);
	}
	fault_fini(&f);
	printf("# %lld allocations failed, one after another\n", (long long)n - 2);
}

static void a_power_loss_leaves_a_whole_snapshot_or_none(void **state)
{
	struct crashfs *fs = crashfs_new();
	struct sl_env env = {SL_ENV_INIT, .io = &crashfs_io, .io_ctx = fs};
	struct repo r;
	char id[BK_NAME_HEX];
	size_t states = 0;
	(void)state;
	repo_make(&r, &env);
	size_t begun = crashfs_point(fs);
	assert_int_equal(repo_publish(&r, "host", 5, id, NULL), 0);
	size_t done = crashfs_point(fs);
	for (size_t point = begun; point <= done; point++)
		for (size_t k = 0; k < crashfs_states(fs, point, 200); k++, states++) {
			struct crashfs *lost = crashfs_crash(fs, point, k, 200, 1, NULL);
			struct sl_env after = {SL_ENV_INIT, .io = &crashfs_io, .io_ctx = lost};
			struct sl_driver_local_opts opts = {SL_DRIVER_LOCAL_OPTS_INIT, .env = &after};
			struct bk_snapshot s;
			sl_driver d;
			sl_backup *b;
			assert_int_equal(sl_driver_local_open(&d, "/repo", &opts, NULL), 0);
			assert_int_equal(sl_backup_open(&b, &d, &r.opts, NULL), 0);
			int rc = sl__bk_snapshot_load(b, id, &s, NULL);
			assert_true(rc == 0 || (rc == SL_ENOENT && point < done));
			if (rc == 0)
				sl__bk_snapshot_fini(&b->env, &s);
			struct look l = look(b);
			assert_int_equal(l.n + (rc == 0) <= 1, 1);
			sl_backup_close(b);
			sl_driver_close(&d);
			crashfs_free(lost);
		}
	printf("# %zu states\n", states);
	repo_free(&r);
	crashfs_free(fs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(marks_say_which_packs_are_marked),
		cmocka_unit_test(a_mark_that_is_removed_meanwhile_is_skipped_and_a_damaged_one_is_not),
		cmocka_unit_test(a_session_is_announced_before_it_reads_the_marks),
		cmocka_unit_test(a_session_announces_the_marks_it_has_seen),
		cmocka_unit_test(a_session_that_cannot_be_read_is_not_ready),
		cmocka_unit_test(a_session_beats_every_minute),
		cmocka_unit_test(a_failed_beat_is_made_up_for_by_the_next),
		cmocka_unit_test(a_published_session_is_a_snapshot),
		cmocka_unit_test(a_session_that_was_removed_is_not_published),
		cmocka_unit_test(a_session_that_goes_in_the_last_moment_is_not_published),
		cmocka_unit_test(a_session_that_is_being_published_is_not_ready),
		cmocka_unit_test(a_failing_driver_leaves_a_whole_snapshot_or_none),
		cmocka_unit_test(every_failing_allocation_is_reported_and_nothing_is_left),
		cmocka_unit_test(a_power_loss_leaves_a_whole_snapshot_or_none),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
