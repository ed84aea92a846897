/* SPDX-License-Identifier: Apache-2.0 */
/* With a log: what submit accepted is written, whatever happens; what stop could not write comes back. */
#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "coordinator/kit.h"
#include "support/budget.h"
#include "support/fault.h"
#include <sluice/dead_letter.h>

#define OPTS(...) ((struct sl_coordinator_opts){__VA_ARGS__})
#define OTHERS 2

/* ---- a log in its own folder ---- */

struct place {
	char dir[32];
	sl_wal *wal;
	struct sl_env env; /* of the log */
};

static void open_log(struct place *p)
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_wal_opts opts = {SL_WAL_OPTS_INIT, .env = &p->env, .wal_dir = p->dir};
	int rc = sl_wal_open(&p->wal, "items", &opts, &err);
	if (rc != 0)
		print_error("%s\n", err.msg);
	assert_int_equal(rc, 0);
}

static void make_folder(struct place *p, struct sl_env env)
{
	*p = (struct place){.dir = "/tmp/sluice-test-XXXXXX", .env = env};
	assert_non_null(mkdtemp(p->dir));
}

static void make_place(struct place *p)
{
	make_folder(p, (struct sl_env){SL_ENV_INIT});
	open_log(p);
}

/* The same with a log whose calls f fails when it is armed. */
static void make_place_with_faults(struct place *p, struct fault *f)
{
	fault_init(f, NULL);
	make_folder(p, fault_env(f, NULL));
	open_log(p);
}

static void close_log(struct place *p)
{
	assert_int_equal(sl_wal_close(p->wal, NULL), 0);
	p->wal = NULL;
}

static void remove_place(struct place *p)
{
	char command[64];
	if (p->wal != NULL)
		close_log(p);
	(void)snprintf(command, sizeof(command), "rm -rf %s", p->dir);
	assert_int_equal(system(command), 0);
}

static struct sl_wal_stats stats_of(const struct place *p)
{
	struct sl_wal_stats s = {.struct_size = sizeof(s)};
	assert_int_equal(sl_wal_get_stats(p->wal, &s, NULL), 0);
	return s;
}

static void finish(struct kit *k, int64_t drain_ms, int rc, struct sl_coordinator_report *r)
{
	struct sl_err err = SL_ERR_INIT;
	*r = (struct sl_coordinator_report){.struct_size = sizeof(*r)};
	int got = sl_coordinator_stop(k->c, drain_ms, r, &err);
	if (got != rc)
		print_error("stop: %d %s\n", got, err.msg);
	assert_int_equal(got, rc);
	assert_int_equal(sl_coordinator_free(k->c), 0);
	k->c = NULL;
	k->cancelled = 0;
}

/* A first run with these options: accepts 1 … n … */
static void begin_in_vain(struct kit *k, struct sl_coordinator_opts opts, uintptr_t n)
{
	kit_set_script(k, kit_fail_cancelled);
	kit_new(k, opts);
	kit_submit(k, 1, n);
}

/* … writes none of them, and leaves them in its log. */
static void end_in_vain(struct kit *k, uintptr_t n)
{
	struct sl_coordinator_report r;
	finish(k, 0, SL_EPENDING, &r);
	assert_int_equal(r.returned, n);
	assert_int_equal(r.spilled, n);
	assert_int_equal(k->n_returned, 0);
}

static void run_in_vain(struct kit *k, struct sl_coordinator_opts opts, uintptr_t n)
{
	begin_in_vain(k, opts, n);
	end_in_vain(k, n);
}

/* A write is held, and the queue of 2 is full. */
static void fill_up(struct kit *k, struct place *p)
{
	make_place(p);
	k->bytes = true;
	k->script = kit_fail_cancelled;
	kit_new(k, OPTS(.workers = 1, .wal = p->wal, .capacity = 2));
	kit_submit(k, 1, 1);
	kit_await_in_write(k, 1);
	kit_submit(k, 2, 3);
}

/* ---- wal ---- */

static void an_accepted_item_is_in_the_log_and_marked_when_it_is_written(void **state)
{
	struct kit *k = *state;
	struct place p;
	make_place(&p);
	k->bytes = true;
	kit_new(k, OPTS(.workers = 1, .wal = p.wal));
	kit_hold(k);
	kit_submit(k, 1, 3);
	assert_int_equal(stats_of(&p).pending, 3);
	kit_release_all(k);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	assert_int_equal(stats_of(&p).pending, 0);
	assert_int_equal(stats_of(&p).sent, 3);
	kit_finish(k, 0);
	remove_place(&p);
}

static int check_extras(struct kit *k, int number, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
			struct sl_err *err)
{
	(void)number;
	(void)reply;
	(void)err;
	for (size_t i = 0; i < batch->n; i++) {
		uintptr_t v = kit_value(k, batch->items[i].data);
		assert_int_equal(batch->items[i].len, 8);
		assert_int_equal(batch->items[i].position, v % 2 != 0 ? v << 40 : 0);
		assert_int_equal(batch->items[i].key_len, v % 3 == 0 ? 5 : 0);
		assert_true(v % 3 != 0 || memcmp(batch->items[i].key, "k\0key", 5) == 0);
	}
	return 0;
}

static void what_was_not_written_is_written_after_a_restart_ahead_of_what_is_new(void **state)
{
	struct kit *k = *state;
	struct place p;
	make_place(&p);
	k->bytes = true;
	k->script = kit_fail_cancelled;
	kit_new(k, OPTS(.workers = 1, .wal = p.wal, .batch_size = 10));
	for (uint64_t v = 1; v <= 100; v++) {
		struct sl_item item = {.data = &v,
				       .len = 8,
				       .key = "k\0key",
				       .key_len = v % 3 == 0 ? 5 : 0,
				       .position = v % 2 != 0 ? v << 40 : 0};
		assert_int_equal(sl_coordinator_submit_many(k->c, &item, 1, SL_UNLIMITED, NULL), 0);
	}
	end_in_vain(k, 100);
	close_log(&p);
	open_log(&p);
	assert_int_equal(stats_of(&p).pending, 100);
	k->script = check_extras;
	kit_new(k, OPTS(.workers = 1, .wal = p.wal, .batch_size = 10, .capacity = 20));
	uint64_t v = 1000;
	assert_int_equal(sl_coordinator_submit(k->c, &v, 8, SL_UNLIMITED), 0);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	assert_int_equal(k->n_written, 101);
	for (uintptr_t i = 0; i < 100; i++)
		assert_int_equal(k->written[i], i + 1);
	assert_int_equal(k->written[100], 1000);
	assert_int_equal(stats_of(&p).pending, 0);
	kit_finish(k, 0);
	remove_place(&p);
}

static void many_items_share_a_flush(void **state)
{
	struct kit *k = *state;
	struct place p;
	struct sl_item items[500];
	uint64_t values[500];
	size_t accepted;
	make_place(&p);
	k->bytes = true;
	kit_new(k, OPTS(.workers = 1, .wal = p.wal));
	for (uint64_t i = 0; i < 500; i++) {
		values[i] = i;
		items[i] = (struct sl_item){.data = &values[i], .len = 8};
	}
	uint64_t before = stats_of(&p).flushes;
	assert_int_equal(sl_coordinator_submit_many(k->c, items, 500, SL_UNLIMITED, &accepted), 0);
	assert_int_equal(accepted, 500);
	assert_true(stats_of(&p).flushes - before < 100);
	kit_finish(k, 0);
	assert_int_equal(k->n_written, 500);
	assert_int_equal(stats_of(&p).sent, 500);
	remove_place(&p);
}

static void a_refused_item_is_not_written_after_a_restart(void **state)
{
	struct kit *k = *state;
	struct place p;
	struct sl_coordinator_report r;
	uint64_t v = 99;
	fill_up(k, &p);
	assert_int_equal(sl_coordinator_submit(k->c, &v, 8, 0), SL_EFULL);
	struct sl_item items[3] = {{.data = &v, .len = 8}, {.data = &v, .len = 8}, {.data = &v, .len = 8}};
	size_t accepted;
	assert_int_equal(sl_coordinator_submit_many(k->c, items, 3, 0, &accepted), SL_EFULL);
	assert_int_equal(accepted, 0);
	finish(k, 0, SL_EPENDING, &r);
	assert_int_equal(stats_of(&p).pending, 3);
	remove_place(&p);
}

struct submit_call {
	struct kit *k;
	int64_t timeout_ms;
	int rc;
	pthread_t thread;
};

static void *submit_main(void *arg)
{
	struct submit_call *s = arg;
	uint64_t v = 77;
	s->rc = sl_coordinator_submit(s->k->c, &v, 8, s->timeout_ms);
	return NULL;
}

static void a_submit_that_finds_no_room_in_time_is_not_in_the_log(void **state)
{
	struct kit *k = *state;
	struct place p;
	struct sl_coordinator_report r;
	struct submit_call s = {.k = k, .timeout_ms = 50};
	fill_up(k, &p);
	assert_int_equal(pthread_create(&s.thread, NULL, submit_main, &s), 0);
	kit_await_calm(k, 1 + OTHERS);
	vclock_advance_ms(&k->clock, 50);
	pthread_join(s.thread, NULL);
	assert_int_equal(s.rc, SL_ETIMEDOUT);
	assert_int_equal(stats_of(&p).pending, 3);
	assert_int_equal(stats_of(&p).last_sequence, 3);
	finish(k, 0, SL_EPENDING, &r);
	remove_place(&p);
}

static void of_many_items_only_those_with_room_are_appended(void **state)
{
	struct kit *k = *state;
	struct place p;
	struct sl_coordinator_report r;
	struct sl_item items[5];
	uint64_t values[5] = {2, 3, 4, 5, 6};
	size_t accepted;
	make_place(&p);
	k->bytes = true;
	k->script = kit_fail_cancelled;
	kit_new(k, OPTS(.workers = 1, .wal = p.wal, .capacity = 3, .overflow_strategy = SL_OVERFLOW_ERROR));
	kit_submit(k, 1, 1);
	kit_await_in_write(k, 1);
	for (size_t i = 0; i < 5; i++)
		items[i] = (struct sl_item){.data = &values[i], .len = 8};
	assert_int_equal(sl_coordinator_submit_many(k->c, items, 5, SL_UNLIMITED, &accepted), SL_EFULL);
	assert_int_equal(accepted, 3);
	assert_int_equal(stats_of(&p).last_sequence, 4);
	assert_int_equal(stats_of(&p).pending, 4);
	assert_int_equal(stats_of(&p).failed, 0);
	finish(k, 0, SL_EPENDING, &r);
	remove_place(&p);
}

struct many_call {
	struct kit *k;
	int rc;
	size_t accepted;
	pthread_t thread;
};

static void *many_main(void *arg)
{
	struct many_call *m = arg;
	struct sl_item items[9];
	uint64_t values[9];
	for (uint64_t i = 0; i < 9; i++) {
		values[i] = i + 2;
		items[i] = (struct sl_item){.data = &values[i], .len = 8};
	}
	m->rc = sl_coordinator_submit_many(m->k->c, items, 9, SL_UNLIMITED, &m->accepted);
	return NULL;
}

static void a_submit_of_more_than_the_queue_has_room_for_is_appended_in_pieces(void **state)
{
	struct kit *k = *state;
	struct place p;
	struct many_call m = {.k = k};
	make_place(&p);
	k->bytes = true;
	kit_new(k, OPTS(.workers = 1, .wal = p.wal, .capacity = 2, .batch_size = 2));
	kit_hold_first(k);
	assert_int_equal(pthread_create(&m.thread, NULL, many_main, &m), 0);
	kit_await_calm(k, 1 + OTHERS);
	assert_int_equal(stats_of(&p).last_sequence, 3);
	kit_release_all(k);
	pthread_join(m.thread, NULL);
	assert_int_equal(m.rc, 0);
	assert_int_equal(m.accepted, 9);
	kit_finish(k, 0);
	assert_int_equal(k->n_written, 10);
	for (uintptr_t i = 0; i < 10; i++)
		assert_int_equal(k->written[i], i + 1);
	assert_int_equal(stats_of(&p).last_sequence, 10);
	assert_int_equal(stats_of(&p).sent, 10);
	remove_place(&p);
}

static void dead_and_dropped_items_are_marked_as_failed(void **state)
{
	struct kit *k = *state;
	struct place p;
	make_place(&p);
	k->bytes = true;
	k->script = kit_fail_poison;
	kit_new(k, OPTS(.workers = 1, .wal = p.wal, .capacity = 3, .overflow_strategy = SL_OVERFLOW_DROP_OLDEST));
	kit_hold_first(k);
	kit_submit(k, 2, 6); /* 2 and 3 are dropped */
	assert_int_equal(k->n_dropped, 2);
	kit_release_all(k);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	assert_int_equal(k->n_dead, 4);
	assert_int_equal(stats_of(&p).failed, 6);
	assert_int_equal(stats_of(&p).pending, 0);
	kit_finish(k, 0);
	remove_place(&p);
}

static void feeding_does_not_drop_what_the_log_holds(void **state)
{
	struct kit *k = *state;
	struct place p;
	make_place(&p);
	k->bytes = true;
	run_in_vain(k, OPTS(.workers = 1, .wal = p.wal, .batch_size = 5), 100);
	kit_set_script(k, NULL);
	kit_new(k, OPTS(.workers = 1, .wal = p.wal, .batch_size = 5, .capacity = 10,
			.overflow_strategy = SL_OVERFLOW_DROP_OLDEST));
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	assert_int_equal(k->n_written, 100);
	assert_int_equal(k->n_dropped, 0);
	kit_finish(k, 0);
	remove_place(&p);
}

static void submits_wait_until_the_log_is_fed(void **state)
{
	struct kit *k = *state;
	struct place p;
	struct sl_coordinator_report r;
	uint64_t v = 7;
	make_place(&p);
	k->bytes = true;
	run_in_vain(k, OPTS(.workers = 1, .wal = p.wal, .batch_size = 5), 50);
	kit_set_script(k, NULL);
	kit_hold(k);
	kit_new(k, OPTS(.workers = 1, .wal = p.wal, .batch_size = 5, .capacity = 10));
	kit_await_in_write(k, 1);
	assert_int_equal(sl_coordinator_submit(k->c, &v, 8, 0), SL_EFULL);
	assert_int_equal(sl_coordinator_flush(k->c, 0), SL_ETIMEDOUT);
	/* Stop drains what the log has, too. */
	kit_release_all(k);
	finish(k, SL_UNLIMITED, 0, &r);
	assert_int_equal(r.written, 50);
	assert_int_equal(stats_of(&p).pending, 0);
	remove_place(&p);
}

static void a_stop_during_feeding_leaves_the_rest_in_the_log(void **state)
{
	struct kit *k = *state;
	struct place p;
	struct sl_coordinator_report r;
	make_place(&p);
	k->bytes = true;
	run_in_vain(k, OPTS(.workers = 1, .wal = p.wal, .batch_size = 5), 50);
	kit_new(k, OPTS(.workers = 1, .wal = p.wal, .batch_size = 5, .capacity = 10));
	kit_await_in_write(k, 1);
	finish(k, 0, SL_EPENDING, &r);
	assert_int_equal(stats_of(&p).pending, 50);
	kit_set_script(k, NULL);
	kit_new(k, OPTS(.workers = 2, .wal = p.wal, .batch_size = 5, .capacity = 10));
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	assert_int_equal(k->n_written, 50);
	kit_finish(k, 0);
	remove_place(&p);
}

static void a_full_disk_refuses_the_item_and_the_coordinator_keeps_working(void **state)
{
	struct kit *k = *state;
	struct place p;
	struct fault f;
	uint64_t v = 5;
	make_place_with_faults(&p, &f);
	k->bytes = true;
	kit_new(k, OPTS(.workers = 1, .wal = p.wal));
	kit_submit(k, 1, 1);
	fault_arm_io(&f, 1, FAULT_FROM, ENOSPC, FAULT_OP(FAULT_PWRITE));
	assert_int_equal(sl_coordinator_submit(k->c, &v, 8, SL_UNLIMITED), SL_ENOSPC);
	fault_disarm(&f);
	assert_int_equal(sl_coordinator_submit(k->c, &v, 8, SL_UNLIMITED), 0);
	kit_finish(k, 0);
	assert_int_equal(k->n_written, 2);
	remove_place(&p);
	fault_fini(&f);
}

static void an_item_that_a_log_could_not_take_is_refused(void **state)
{
	struct kit *k = *state;
	struct place p;
	char *big = calloc(1, SL_WAL_MAX_PAYLOAD);
	char key[255] = "";
	make_place(&p);
	k->bytes = true;
	kit_new(k, OPTS(.workers = 1, .spill_wal = p.wal));
	struct sl_item item = {.data = big,
			       .len = SL_WAL_MAX_PAYLOAD - 295,
			       .key = key,
			       .key_len = sizeof(key),
			       .position = UINT64_MAX,
			       .range = {.begin = UINT64_MAX - 1, .end = UINT64_MAX, .hash = UINT64_MAX}};
	assert_int_equal(sl_coordinator_submit_many(k->c, &item, 1, 0, NULL), SL_ETOOBIG);
	item.len--;
	k->script = kit_fail_cancelled;
	assert_int_equal(sl_coordinator_submit_many(k->c, &item, 1, 0, NULL), 0);
	struct sl_coordinator_report r;
	finish(k, 0, SL_EPENDING, &r);
	assert_int_equal(r.spilled, 1);
	free(big);
	remove_place(&p);
}

/* ---- spill ---- */

static void what_stop_could_not_write_is_spilled_and_comes_back(void **state)
{
	struct kit *k = *state;
	struct place p;
	struct sl_coordinator_report r;
	make_place(&p);
	k->bytes = true;
	begin_in_vain(k, OPTS(.workers = 1, .spill_wal = p.wal, .batch_size = 10), 200);
	assert_int_equal(stats_of(&p).records, 0);
	end_in_vain(k, 200);
	assert_int_equal(stats_of(&p).pending, 200);
	/* Once more without success: they are not spilled twice. */
	kit_new(k, OPTS(.workers = 1, .spill_wal = p.wal, .batch_size = 10));
	kit_await_in_write(k, 1);
	finish(k, 0, SL_EPENDING, &r);
	assert_int_equal(stats_of(&p).pending, 200);
	kit_set_script(k, NULL);
	kit_new(k, OPTS(.workers = 2, .spill_wal = p.wal, .batch_size = 10));
	kit_submit(k, 201, 210);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	assert_int_equal(k->n_written, 210);
	assert_int_equal(stats_of(&p).pending, 0);
	kit_finish(k, 0);
	remove_place(&p);
}

static void a_spill_that_fails_loses_nothing_and_can_be_repeated(void **state)
{
	struct kit *k = *state;
	struct place p;
	struct fault f;
	struct sl_coordinator_report r = {.struct_size = sizeof(r)};
	make_place_with_faults(&p, &f);
	k->bytes = true;
	k->script = kit_fail_cancelled;
	kit_new(k, OPTS(.workers = 1, .spill_wal = p.wal, .batch_size = 10));
	kit_submit(k, 1, 100);
	fault_arm_io(&f, 1, FAULT_FROM, ENOSPC, FAULT_OP(FAULT_PWRITE));
	assert_int_equal(sl_coordinator_stop(k->c, 0, &r, NULL), SL_ENOSPC);
	assert_int_equal(r.returned, 0);
	assert_int_equal(sl_coordinator_free(k->c), SL_EPENDING);
	fault_disarm(&f);
	assert_int_equal(sl_coordinator_stop(k->c, 0, &r, NULL), SL_EPENDING);
	assert_int_equal(r.spilled, 100);
	assert_int_equal(stats_of(&p).pending, 100);
	assert_int_equal(sl_coordinator_free(k->c), 0);
	k->c = NULL;
	remove_place(&p);
	fault_fini(&f);
}

/* ---- pointers ---- */

static int encode_number(const void *item, size_t len, const void **out, size_t *out_len, void *ctx)
{
	static _Thread_local uint64_t v;
	(void)len;
	(void)ctx;
	v = (uintptr_t)item;
	*out = &v;
	*out_len = sizeof(v);
	return 0;
}

static int decode_number(const void *bytes, size_t n, void **item, size_t *len, void *ctx)
{
	uint64_t v;
	(void)ctx;
	if (n != sizeof(v))
		return SL_EDATA;
	memcpy(&v, bytes, sizeof(v));
	*item = ITEM(v);
	*len = 0;
	return 0;
}

static void pointer_items_come_back_as_pointers(void **state)
{
	struct kit *k = *state;
	struct place p;
	make_place(&p);
	struct sl_coordinator_opts opts =
		OPTS(.workers = 1, .wal = p.wal, .items.encode = encode_number, .items.decode = decode_number);
	run_in_vain(k, opts, 20);
	kit_set_script(k, NULL);
	kit_new(k, opts);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	assert_int_equal(k->n_written, 20);
	assert_int_equal(k->written[19], 20);
	kit_finish(k, 0);
	remove_place(&p);
}

/* An item is encoded between the reservation and the append. */
static sem_t encodes, may_encode;

static int encode_slowly(const void *item, size_t len, const void **out, size_t *out_len, void *ctx)
{
	(void)sem_post(&encodes);
	(void)sem_wait(&may_encode);
	return encode_number(item, len, out, out_len, ctx);
}

static void *submit_pointer_main(void *arg)
{
	struct submit_call *s = arg;
	s->rc = sl_coordinator_submit(s->k->c, ITEM(7), 0, s->timeout_ms);
	return NULL;
}

static void a_submit_that_meets_the_stop_after_its_append_is_marked_as_failed(void **state)
{
	struct kit *k = *state;
	struct place p;
	struct sl_coordinator_report r = {.struct_size = sizeof(r)};
	struct submit_call s = {.k = k, .timeout_ms = SL_UNLIMITED};
	(void)sem_init(&encodes, 0, 0);
	(void)sem_init(&may_encode, 0, 0);
	make_place(&p);
	kit_new(k, OPTS(.workers = 1, .wal = p.wal, .items.encode = encode_slowly, .items.decode = decode_number));
	assert_int_equal(pthread_create(&s.thread, NULL, submit_pointer_main, &s), 0);
	(void)sem_wait(&encodes);
	assert_int_equal(sl_coordinator_stop(k->c, SL_UNLIMITED, &r, NULL), 0);
	(void)sem_post(&may_encode);
	pthread_join(s.thread, NULL);
	assert_int_equal(s.rc, SL_ECLOSED);
	assert_int_equal(stats_of(&p).failed, 1);
	assert_int_equal(stats_of(&p).pending, 0);
	assert_int_equal(sl_coordinator_free(k->c), 0);
	k->c = NULL;
	remove_place(&p);
	(void)sem_destroy(&encodes);
	(void)sem_destroy(&may_encode);
}

static void records_that_are_no_items_stay_in_the_log(void **state)
{
	struct kit *k = *state;
	struct place p;
	static const struct sl_wal_span strange[] = {{"", 0},
						     {"\x02...", 4},
						     {"\x01", 1},
						     {"\x01\x80\x80", 3},
						     {"\x01\x00\x00\x00\x05xy", 7},
						     {"\x01\x00\x01\x02short", 9}};
	make_place(&p);
	assert_int_equal(sl_wal_append_many(p.wal, strange, 6, NULL, NULL, NULL), 0);
	assert_int_equal(sl_wal_append(p.wal, "\x01\x00\x00\x00\x00yyyyyyyy", 13, NULL, NULL), 0);
	k->bytes = true;
	kit_new(k, OPTS(.workers = 1, .wal = p.wal));
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	assert_int_equal(k->n_written, 1);
	assert_int_equal(stats_of(&p).pending, 6);
	kit_finish(k, SL_EPENDING); /* 0 would say that nothing is left */
	remove_place(&p);
}

#define LARGE 100000 /* no other allocation is */

static void *alloc_small(size_t size, void *ctx)
{
	(void)ctx;
	return size < LARGE ? malloc(size) : NULL;
}

static void *resize(void *p, size_t size, void *ctx)
{
	(void)ctx;
	return realloc(p, size);
}

static void release(void *p, void *ctx)
{
	(void)ctx;
	free(p);
}

static void stop_ends_in_time_while_there_is_no_memory_for_what_the_log_has(void **state)
{
	static const struct sl_mem small = {SL_MEM_VERSION, alloc_small, resize, release};
	struct kit *k = *state;
	struct place p;
	struct sl_coordinator_report r;
	char *record = calloc(1, LARGE);
	make_place(&p);
	assert_non_null(record);
	record[0] = 1; /* the version; no position, no key */
	assert_int_equal(sl_wal_append(p.wal, record, LARGE, NULL, NULL), 0);
	free(record);
	k->bytes = true;
	k->env.mem = &small;
	kit_new(k, OPTS(.workers = 1, .wal = p.wal, .batch_size = 10, .capacity = 10));
	finish(k, 0, SL_EPENDING, &r);
	assert_int_equal(r.accepted, 0);
	assert_int_equal(stats_of(&p).pending, 1);
	remove_place(&p);
}

/* ---- kill -9 ---- */

#define KILL_ROUNDS 8
#define KILL_ITEMS 20000
#define ATTEMPTS 5
#define NEVER 101 /* a multiple of this is never written */

struct shared {
	atomic_uint accepted;                  /* values 1 … accepted were accepted */
	atomic_ushort written[KILL_ITEMS + 1]; /* how often */
};

/* What it looks like in the end. */
struct tally {
	unsigned sets, accepted, twice, dead;
};

/* A write fails now and then. One can have that five times in a row, when another worker does four in between. */
static int note_shared(struct kit *k, int number, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
		       struct sl_err *err)
{
	struct shared *s = k->script_ctx;
	(void)reply;
	bool never = false;
	for (size_t i = 0; i < batch->n; i++)
		never = never || kit_value(k, batch->items[i].data) % NEVER == 0;
	if (never || number % 5 == 0)
		return kit_fail(err, SL_CLASS_TRANSIENT);
	for (size_t i = 0; i < batch->n; i++)
		atomic_fetch_add(&s->written[kit_value(k, batch->items[i].data)], 1);
	return 0;
}

static sl_dlq *open_letters(const struct place *p, enum sl_switch read_only)
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_dlq_opts opts = {SL_DLQ_OPTS_INIT, .read_only = read_only};
	char dir[64];
	sl_dlq *letters = NULL;
	(void)snprintf(dir, sizeof(dir), "%s/letters", p->dir);
	int rc = sl_dlq_open(&letters, dir, &opts, &err);
	if (rc != 0)
		print_error("%s\n", err.msg);
	assert_int_equal(rc, 0);
	return letters;
}

static void open_for_kill(struct kit *k, struct place *p, sl_dlq **letters)
{
	open_log(p);
	*letters = open_letters(p, SL_OFF);
	kit_new(k, OPTS(.workers = 2, .wal = p->wal, .unwritten.dead_letters = *letters, .capacity = 50,
			.batch_size = 7, .flush_interval_ms = SL_NONE,
			.retry.policy = {.max_attempts = ATTEMPTS, .first_ms = 1, .cap_ms = 1},
			.breaker.failures = SL_UNLIMITED));
}

static void child_main(struct kit *k, struct place *p)
{
	struct shared *s = k->script_ctx;
	sl_dlq *letters;
	open_for_kill(k, p, &letters);
	for (uint64_t v = atomic_load(&s->accepted) + 1; v <= KILL_ITEMS; v++) {
		if (sl_coordinator_submit(k->c, &v, 8, SL_UNLIMITED) != 0)
			_exit(2);
		atomic_store(&s->accepted, (unsigned)v);
	}
	_exit(sl_coordinator_flush(k->c, SL_UNLIMITED) == 0 ? 3 : 4);
}

static void kill_children(struct kit *k, struct place *p)
{
	struct shared *s = k->script_ctx;
	for (unsigned round = 1; round <= KILL_ROUNDS; round++) {
		pid_t pid = fork();
		if (pid == 0)
			child_main(k, p);
		unsigned target = atomic_load(&s->accepted) + 37 * round;
		while (atomic_load(&s->accepted) < target && waitpid(pid, NULL, WNOHANG) == 0)
			(void)sched_yield();
		(void)kill(pid, SIGKILL);
		(void)waitpid(pid, NULL, 0);
	}
}

static int note_letter(const struct sl_dlq_letter *letter, void *ctx)
{
	unsigned char *dead = ctx;
	uint64_t v;
	assert_int_equal(letter->item_len, sizeof(v));
	memcpy(&v, letter->item, sizeof(v));
	assert_in_range(v, 1, KILL_ITEMS);
	assert_true(letter->attempts >= ATTEMPTS);
	dead[v] = 1;
	return 0;
}

/* Every item that was accepted is written, or in the dead letters on disk; one that cannot be written is there. */
static void account(const struct place *p, const struct shared *s, struct tally *t)
{
	unsigned char *dead = calloc(1, KILL_ITEMS + 1);
	sl_dlq *letters = open_letters(p, SL_ON);
	assert_int_equal(sl_dlq_list(letters, true, note_letter, dead, NULL), 0);
	sl_dlq_close(letters);
	unsigned accepted = atomic_load(&s->accepted), lost = 0;
	for (unsigned v = 1; v <= accepted; v++) {
		unsigned written = atomic_load(&s->written[v]);
		if (written == 0 && !dead[v])
			print_error("%u of %u was lost (no. %u)\n", v, accepted, ++lost);
		assert_true(v % NEVER != 0 || (dead[v] && written == 0));
		t->twice += written > 1;
		t->dead += dead[v];
	}
	assert_int_equal(lost, 0);
	t->accepted += accepted;
	t->sets++;
	free(dead);
}

static void kill_and_account(struct kit *k, struct tally *t)
{
	struct shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct place p;
	sl_dlq *letters;
	assert_ptr_not_equal(s, MAP_FAILED);
	make_folder(&p, (struct sl_env){SL_ENV_INIT});
	k->script_ctx = s;
	kill_children(k, &p);
	open_for_kill(k, &p, &letters);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	assert_int_equal(stats_of(&p).pending, 0);
	kit_finish(k, 0);
	sl_dlq_close(letters);
	account(&p, s, t);
	remove_place(&p);
	(void)munmap(s, sizeof(*s));
}

static void after_kill_9_everything_accepted_is_written_or_in_the_dead_letters(void **state)
{
	struct kit *k = *state;
	time_t end = time(NULL) + (time_t)test_seconds(0);
	struct tally t = {0};
	k->bytes = true;
	k->script = note_shared;
	k->env = (struct sl_env){SL_ENV_INIT}; /* real time */
	do
		kill_and_account(k, &t);
	while (time(NULL) < end);
	printf("# kill -9: %u processes, %u items accepted, none lost, %u written more than once, %u dead letters\n",
	       t.sets * KILL_ROUNDS, t.accepted, t.twice, t.dead);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, kit_set_up, kit_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_accepted_item_is_in_the_log_and_marked_when_it_is_written),
		TEST(what_was_not_written_is_written_after_a_restart_ahead_of_what_is_new),
		TEST(many_items_share_a_flush),
		TEST(a_refused_item_is_not_written_after_a_restart),
		TEST(a_submit_that_finds_no_room_in_time_is_not_in_the_log),
		TEST(of_many_items_only_those_with_room_are_appended),
		TEST(a_submit_of_more_than_the_queue_has_room_for_is_appended_in_pieces),
		TEST(dead_and_dropped_items_are_marked_as_failed),
		TEST(feeding_does_not_drop_what_the_log_holds),
		TEST(submits_wait_until_the_log_is_fed),
		TEST(a_stop_during_feeding_leaves_the_rest_in_the_log),
		TEST(a_full_disk_refuses_the_item_and_the_coordinator_keeps_working),
		TEST(an_item_that_a_log_could_not_take_is_refused),
		TEST(what_stop_could_not_write_is_spilled_and_comes_back),
		TEST(a_spill_that_fails_loses_nothing_and_can_be_repeated),
		TEST(pointer_items_come_back_as_pointers),
		TEST(a_submit_that_meets_the_stop_after_its_append_is_marked_as_failed),
		TEST(records_that_are_no_items_stay_in_the_log),
		TEST(stop_ends_in_time_while_there_is_no_memory_for_what_the_log_has),
		TEST(after_kill_9_everything_accepted_is_written_or_in_the_dead_letters),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
