/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Power loss around spools. A spool is never synced, but its removal is, before the log that has its events may go:
 * else it would come back and be brought in again. Each scenario runs once on a crash filesystem, with a store that
 * takes what the log sends; then, for every point of its history, the states that a loss could leave there are rebuilt
 * and swept into what the store had taken by then. In the end every event is in the store at most once, and those that
 * the log had called durable exactly once.
 *
 *   SLUICE_CRASH_STATES=N, SLUICE_TEST_SECONDS=S   N states, or S seconds, but at least one round of each scenario
 */
#include "spoolbox.h"

#include <fcntl.h>
#include <sluice/wal_files.h>
#include <stdio.h>

#define ARCHIVE "/a"
#define STATES_PER_POINT 24 /* of each tear size; all of them when there are no more */
#define MAX_TAKEN 256

/* What the store has taken: the record, and the point of the history at which it did. */
struct taken {
	size_t point;
	uint32_t incarnation;
	uint64_t sequence;
	size_t event; /* which of all_events; N_EVENTS: of another job */
};

struct store {
	const struct crashfs *fs;
	const struct sl__event_batch *whole;
	struct taken taken[MAX_TAKEN];
	size_t n;
};

struct scene {
	const char *name;
	struct rig rig;
	struct sl__capture whole;
	struct store store;
	size_t begins;   /* the first point that is checked */
	size_t all_from; /* from this point on, all events are durable */
	size_t logged;   /* before it: the number of durable events */
};

static size_t which_event(const struct sl__event_batch *whole, const struct sl_event *e)
{
	struct sl_event other;
	if (e->job_id != JOB)
		return N_EVENTS;
	for (size_t i = 0; i < whole->n; i++) {
		sl__event_batch_get(whole, i, &other);
		if (other.type == e->type && other.position == e->position)
			return i;
	}
	fail_msg("an event that was never written");
	return 0;
}

static bool store_has(const struct store *s, uint32_t incarnation, uint64_t sequence)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->taken[i].incarnation == incarnation && s->taken[i].sequence == sequence)
			return true;
	return false;
}

static int store_send(const struct sl_wal_batch *batch, struct sl_wal_reply *reply, struct sl_err *err, void *ctx)
{
	struct store *s = ctx;
	(void)err;
	for (size_t i = 0; i < batch->n_records; i++) {
		const struct sl_wal_record *record = &batch->records[i];
		struct sl_event e;
		reply->mark = record->sequence;
		if (store_has(s, batch->incarnation, record->sequence))
			continue;
		assert_true(s->n < MAX_TAKEN);
		assert_int_equal(sl_event_decode(record->payload, record->payload_len, &e, NULL), 0);
		s->taken[s->n++] = (struct taken){.point = s->fs != NULL ? crashfs_point(s->fs) : 0,
						  .incarnation = batch->incarnation,
						  .sequence = record->sequence,
						  .event = which_event(s->whole, &e)};
	}
	return 0;
}

static const struct sl_wal_sender sender = {.version = SL_WAL_SENDER_VERSION, .send = store_send};

static struct sl_wal_opts log_opts(const struct rig *r)
{
	return (struct sl_wal_opts){SL_WAL_OPTS_INIT,       .env = &r->env,       .wal_dir = DIR,
				    .archive_dir = ARCHIVE, .background = SL_OFF, .prepare_max_bytes = SL_NONE};
}

/* ---- scenes ---- */

static void scene_init(struct scene *c, struct spool *s)
{
	rig_init(&c->rig);
	spool_fill(s);
	capture(&c->rig, s, SIZE_MAX, &c->whole);
	c->store = (struct store){.fs = c->rig.fs, .whole = &c->whole.batch};
}

static void scene_begins(struct scene *c)
{
	crashfs_settle(c->rig.fs);
	c->begins = crashfs_point(c->rig.fs);
	c->all_from = c->begins;
}

static void scene_fini(struct scene *c)
{
	sl__capture_fini(&c->whole);
	rig_fini(&c->rig);
}

/* What a minder has been using, without its process. */
static void add_idle(struct rig *r, sl_exec *x, struct spool *s)
{
	struct sl__minder *m = sl__calloc(&r->env, 1, sizeof(*m));
	m->ctl = -1;
	m->path = sl__strdup(&r->env, SPOOL);
	m->spool = SL__IO(&r->env, open, SPOOL, O_RDWR, 0);
	assert_int_equal(SL__IO(&r->env, lock, m->spool), 0);
	s->header.flags |= SL__SPOOL_DONE;
	assert_int_equal(sl__minder_write_header(x, m, &s->header, NULL), 0);
	x->idle = m;
}

/* A worker ends: all is in the log, the spool is removed, the log is sent and archived. */
static void a_worker_ends(struct scene *c)
{
	struct spool s;
	struct rig *r = &c->rig;
	sl_exec *x = NULL;
	scene_init(c, &s);
	/* What is durable of the header is of an early moment. */
	assert_true(lay_out(r, &s, 0, N_EVENTS, true));
	scene_begins(c);
	struct sl_wal_opts opts = log_opts(r);
	assert_int_equal(sl_wal_open(&r->box.log, "w", &opts, &r->box.err), 0);
	struct sl_exec_opts exec = {SL_EXEC_OPTS_INIT, .env = &r->env, .argv = (const char *const[]){"/bin/true", NULL},
				    .events = r->box.log, .spool_dir = SPOOL_DIR};
	assert_int_equal(sl_exec_new(&x, &exec, &r->box.err), 0);
	add_idle(r, x, &s);
	sl_exec_free(x);
	assert_int_equal(sl_wal_sender_start(r->box.log, &sender, &c->store, &r->box.err), 0);
	assert_int_equal(sl_wal_complete(r->box.log, SL_UNLIMITED, &r->box.err), 0);
	rig_close(r);
}

static struct scene *sweeping;

static int recover_orphan(sl_wal *w, const char *path, struct sl_err *err, void *env)
{
	int rc = sl_exec_recover_orphan(w, path, err, env);
	if (rc == 0 && sweeping != NULL && sweeping->all_from == SIZE_MAX)
		sweeping->all_from = crashfs_point(sweeping->rig.fs);
	return rc;
}

static int sweep(struct rig *r, struct store *store, struct sl_wal_sweep_result *result)
{
	struct sl_wal_opts opts = log_opts(r);
	*result = (struct sl_wal_sweep_result){.struct_size = sizeof(*result)};
	opts.on_orphan = recover_orphan;
	opts.on_orphan_ctx = &r->env;
	int rc = sl_exec_find_lost(&opts, NULL, &r->box.err);
	return rc == 0 ? sl_wal_sweep(&opts, &sender, store, SL_UNLIMITED, result, &r->box.err) : rc;
}

static void sweep_in(struct scene *c)
{
	struct sl_wal_sweep_result result;
	sweeping = c;
	c->all_from = SIZE_MAX;
	assert_int_equal(sweep(&c->rig, &c->store, &result), 0);
	assert_int_equal(result.archived, 1);
	assert_true(c->all_from != SIZE_MAX);
	sweeping = NULL;
}

/* A worker was killed: a sweep brings its spool in, sends and archives its log. */
static void a_killed_worker_is_swept(struct scene *c)
{
	struct spool s;
	scene_init(c, &s);
	c->logged = 5;
	assert_true(lay_out(&c->rig, &s, 2, c->logged, true));
	scene_begins(c);
	sweep_in(c);
}

/* The log was archived without the spool. */
static void a_lost_spool_is_swept(struct scene *c)
{
	struct spool s;
	scene_init(c, &s);
	c->logged = 0;
	s.header.incarnation = 12345;
	s.header.sequence = 99;
	sl__spool_put_header(s.bytes, &s.header);
	crashfs_put(c->rig.fs, SPOOL, s.bytes, s.len);
	scene_begins(c);
	sweep_in(c);
}

/* ---- states ---- */

static void check_store(const struct scene *c, const struct store *store, size_t point, size_t k, uint64_t seed)
{
	size_t times[N_EVENTS + 1] = {0};
	for (size_t i = 0; i < store->n; i++)
		times[store->taken[i].event]++;
	size_t durable = point >= c->all_from ? N_EVENTS : c->logged;
	for (size_t i = 0; i < N_EVENTS; i++) {
		if (times[i] == 1 || (times[i] == 0 && i >= durable))
			continue;
		printf("# SLUICE_CRASH_SEED=%s:%llu:%zu:%zu violates a promise: event %zu is in the store %zu times\n",
		       c->name, (unsigned long long)seed, point, k, i, times[i]);
		crashfs_print_log(c->rig.fs, point, stdout);
		fflush(stdout);
		fail();
	}
}

static void judge(const struct scene *c, size_t point, size_t k, uint64_t seed)
{
	struct rig r;
	struct store store = c->store;
	struct sl_wal_sweep_result result;
	rig_init_on(&r, crashfs_crash(c->rig.fs, point, k, STATES_PER_POINT, seed, NULL));
	store.fs = NULL;
	for (store.n = 0; store.n < c->store.n && c->store.taken[store.n].point <= point;)
		store.n++;
	int rc = sweep(&r, &store, &result);
	if (rc != 0 || result.failed != 0)
		fail_msg("%s:%llu:%zu:%zu is not swept: %s", c->name, (unsigned long long)seed, point, k,
			 r.box.err.msg);
	check_store(c, &store, point, k, seed);
	/* Nothing is found again. */
	size_t n = store.n;
	assert_int_equal(sweep(&r, &store, &result), 0);
	assert_int_equal(result.found, 0);
	assert_int_equal(store.n, n);
	rig_fini(&r);
}

static uint64_t judge_all(const struct scene *c, uint64_t seed)
{
	uint64_t states = 0;
	for (size_t point = c->begins; point <= crashfs_point(c->rig.fs); point++) {
		size_t n = crashfs_states(c->rig.fs, point, STATES_PER_POINT);
		for (size_t k = 0; k < n; k++, states++)
			judge(c, point, k, seed);
	}
	return states;
}

static double number(const char *name, double otherwise)
{
	const char *text = getenv(name);
	return text != NULL ? atof(text) : otherwise;
}

static void survives(const char *name, void (*run)(struct scene *))
{
	double wanted = number("SLUICE_CRASH_STATES", 0) / 3;
	int64_t end =
		sl__clock_real.mono_ns(NULL) + (int64_t)((wanted > 0 ? 0 : number("SLUICE_TEST_SECONDS", 1)) / 3 * 1e9);
	uint64_t states = 0, seed = 0;
	struct scene c = {.name = name, .logged = N_EVENTS};
	run(&c);
	do
		states += judge_all(&c, ++seed);
	while ((double)states < wanted || sl__clock_real.mono_ns(NULL) < end);
	print_message("# %s: %llu states\n", name, (unsigned long long)states);
	assert_true(states > 100);
	scene_fini(&c);
}

static void the_spool_of_a_worker_that_ended_does_not_reappear_after_its_log_is_gone(void **state)
{
	(void)state;
	survives("a_worker_ends", a_worker_ends);
}

static void a_recovered_spool_does_not_reappear_after_its_log_is_gone(void **state)
{
	(void)state;
	survives("a_killed_worker_is_swept", a_killed_worker_is_swept);
}

static void a_spool_without_a_log_is_brought_in_once(void **state)
{
	(void)state;
	survives("a_lost_spool_is_swept", a_lost_spool_is_swept);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_spool_of_a_worker_that_ended_does_not_reappear_after_its_log_is_gone),
		cmocka_unit_test(a_recovered_spool_does_not_reappear_after_its_log_is_gone),
		cmocka_unit_test(a_spool_without_a_log_is_brought_in_once),
	};
	return cmocka_run_group_tests_name("exec crash", tests, NULL, NULL);
}
