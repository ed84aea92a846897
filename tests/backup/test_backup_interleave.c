/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two creates, one or two prunes and a forget at the same time, interleaved at every driver call by a seeded scheduler,
 * while the clock jumps and sessions fall silent: after each seed, every block of every snapshot must be there.
 *
 * Each actor is a thread that runs only while it holds the baton, and gives it back before each call of the driver.
 * (The threads inside of a create need no baton: they put packs and search the index, which affects no other actor
 * until the create itself continues.) The scheduler lets one actor run for some calls, then another: bursts of one call
 * and of hundreds are equally likely, so that a prune may stall in the middle of its work while others come and go.
 *
 * Then the protocol is broken on purpose in each of the ways of breaks.h, by switches that only this test's copies of
 * the sources have (breaks.py), and a script of how far each actor runs must find each break. (A seed that finds one is
 * soon outdated: what it does depends on every call that the actors make.) In these scripts a create does not read the
 * marks again before it publishes (F7), since that hides some of the breaks; that it hides them, and that nothing is
 * lost without it as long as nothing else is broken, is shown separately.
 *
 * SLUICE_BACKUP_SEEDS: how many seeds (default by time); SLUICE_BACKUP_SEED=n: only that one, with its trace.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backup/breaks.h"
#include "backup/care_kit.h"
#include "support/budget.h"

unsigned protocol_broken;

#define ACTORS 6
#define TREES 2
#define CONTENTS 6
#define DAY_MS INT64_C(86400000)

/* ---- chance ---- */

static uint64_t draw(uint64_t *state)
{
	*state += UINT64_C(0x9e3779b97f4a7c15);
	uint64_t x = *state;
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static uint64_t below(uint64_t *state, uint64_t n)
{
	return draw(state) % n;
}

/* ---- the world ---- */

enum what { CREATE, PRUNE, FORGET };

struct actor {
	struct world *w;
	int number;
	enum what what;
	uint64_t chance;
	pthread_t thread;
	bool waits, done;                   /* at the gate; at the end */
	char at[SL_DRIVER_NAME_BYTES + 16]; /* the call that it is about to make: "put index/…" */
};

struct world {
	struct shelf shelf;
	struct sl_env env;
	uint64_t seed, chance, names;
	bool trace;
	bool script; /* each actor acts once, and on the first tree; what was before had the second */
	pthread_mutex_t mu;
	pthread_cond_t changed;
	struct actor actors[ACTORS];
	int n_actors;
	int holder; /* whose turn it is; -1: the scheduler's */
	int calls;
	int single;    /* blocks of metadata that the last check found in one pack only */
	char odd[300]; /* an error that no actor should get */
};

static char folder[200];       /* of the trees */
static struct shelf beginning; /* a repository without anything */
static __thread struct actor *self;

/* The trees are a day old: nothing in them changed just now. */
static int64_t later_ms(void *ctx)
{
	struct timespec ts;
	(void)ctx;
	(void)clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * 1000 + DAY_MS;
}

static int64_t mono(void *ctx)
{
	struct timespec ts;
	(void)ctx;
	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static int wait_on(pthread_cond_t *cond, pthread_mutex_t *mu, int64_t deadline_ns, void *ctx)
{
	struct timespec ts = {.tv_sec = deadline_ns / 1000000000, .tv_nsec = deadline_ns % 1000000000};
	(void)ctx;
	return deadline_ns == SL_FOREVER ? pthread_cond_wait(cond, mu) : pthread_cond_timedwait(cond, mu, &ts);
}

/* Ids by the seed. */
static int fill(void *buf, size_t n, void *ctx)
{
	struct world *w = ctx;
	uint8_t *at = buf;
	(void)pthread_mutex_lock(&w->mu);
	for (size_t i = 0; i < n; i++)
		at[i] = (uint8_t)draw(&w->names);
	(void)pthread_mutex_unlock(&w->mu);
	return 0;
}

/* ---- the baton ---- */

static void hand_back(struct actor *a, bool done)
{
	struct world *w = a->w;
	(void)pthread_mutex_lock(&w->mu);
	a->done = done;
	a->waits = true;
	w->holder = -1;
	(void)pthread_cond_broadcast(&w->changed);
	while (!done && w->holder != a->number)
		(void)pthread_cond_wait(&w->changed, &w->mu);
	a->waits = false;
	(void)pthread_mutex_unlock(&w->mu);
}

/* Of the 257 folders of packs, a listing is interrupted at few. */
static bool is_dull(const char *what, const char *name, uint64_t *chance)
{
	return strcmp(what, "list") == 0 && strncmp(name, "packs/", 6) == 0 && strcmp(name, "packs/00") != 0 &&
	       below(chance, 100) != 0;
}

static void gate(const char *what, const char *name, void *ctx)
{
	struct world *w = ctx;
	if (self == NULL || self->w != w || is_dull(what, name, &self->chance))
		return;
	snprintf(self->at, sizeof(self->at), "%s %s", what, name);
	hand_back(self, false);
	if (w->trace)
		print_message("# %d: %s %.40s\n", self->number, what, name);
}

/* ---- what actors do ---- */

static sl_backup *open_handle(struct world *w)
{
	const struct sl_backup_opts opts = {SL_BACKUP_OPTS_INIT, .env = &w->env, .threads = 1, .max_retry_attempts = 1};
	const sl_driver driver = shelf_driver(&w->shelf);
	sl_backup *b = NULL;
	struct sl_err err = SL_ERR_INIT;
	if (sl_backup_open(&b, &driver, &opts, &err) != 0) {
		print_message("# open: %s\n", err.msg);
		abort();
	}
	return b;
}

static void say(const struct world *w, int number, const char *what, int rc, const struct sl_err *err)
{
	if (w->trace)
		print_message("# %d: %s %s\n", number, what, rc == 0 ? "is done" : err->msg);
}

/* May fail: its session was silent for too long. */
static void create(struct world *w, sl_backup *b, uint64_t *chance, int number)
{
	char path[256];
	snprintf(path, sizeof(path), "%s/t%d", folder, w->script ? number < 0 : (int)below(chance, TREES));
	const char *paths[] = {path};
	const struct sl_backup_create_opts opts = {SL_BACKUP_CREATE_OPTS_INIT, .paths = paths, .n_paths = 1,
						   .host = "h", .sqlite = SL_OFF};
	struct sl_backup_created out = {.struct_size = sizeof(out)};
	struct sl_err err = SL_ERR_INIT;
	int rc = sl_backup_create(b, &opts, &out, &err);
	say(w, number, "create", rc, &err);
	if (rc != 0 && rc != SL_EAGAIN)
		snprintf(w->odd, sizeof(w->odd), "create: %s", err.msg);
}

/* May find what another one is about to change, and says so. Some seeds merge small packs; which is not drawn, so that
 * the seeds below are what they were. */
static void prune(struct world *w, sl_backup *b, uint64_t *chance, int number)
{
	bool merges = !w->script && (w->seed % 7 >= 5 || w->seed % 7 == 0);
	const struct sl_backup_prune_opts opts = {SL_BACKUP_PRUNE_OPTS_INIT,
						  .repack_percent = below(chance, 2) == 0 ? SL_NONE : 90,
						  .merge_small = merges ? 2 : SL_NONE};
	struct sl_err err = SL_ERR_INIT;
	int rc = sl_backup_prune(b, &opts, NULL, &err);
	say(w, number, "prune", rc, &err);
}

static void forget(struct world *w, sl_backup *b, uint64_t *chance, int number)
{
	char(*ids)[BK_NAME_HEX] = NULL;
	size_t n = 0;
	if (sl__bk_snapshot_ids(b, &ids, &n, NULL) != 0 || n == 0) {
		sl__free(&b->env, ids);
		return;
	}
	const char *id = ids[below(chance, n)];
	const struct sl_backup_forget_opts opts = {SL_BACKUP_FORGET_OPTS_INIT, .snapshots = &id, .n_snapshots = 1};
	struct sl_err err = SL_ERR_INIT;
	int rc = sl_backup_forget(b, &opts, NULL, &err);
	say(w, number, "forget", rc, &err);
	sl__free(&b->env, ids);
}

static void act(struct world *w, enum what what, uint64_t *chance, int number)
{
	sl_backup *b = open_handle(w);
	if (what == CREATE)
		create(w, b, chance, number);
	else if (what == PRUNE)
		prune(w, b, chance, number);
	else
		forget(w, b, chance, number);
	sl_backup_close(b);
}

static void *play(void *arg)
{
	struct actor *a = arg;
	self = a;
	hand_back(a, false);
	for (uint64_t n = a->w->script ? 1 : 1 + below(&a->chance, 4); n > 0; n--)
		act(a->w, a->what, &a->chance, a->number);
	hand_back(a, true);
	return NULL;
}

/* ---- the scheduler ---- */

/* Heartbeats come, or do not; a session that is silent for a day is dead. */
static void let_time_pass(struct world *w)
{
	static const int64_t steps[] = {60000, DAY_MS / 2, DAY_MS + 1};
	bool asleep = below(&w->chance, 2) == 0;
	(void)pthread_mutex_lock(&w->shelf.mu);
	w->shelf.now_ms += steps[below(&w->chance, SL_COUNT(steps))];
	for (size_t i = 0; i < w->shelf.n && !asleep; i++)
		if (strncmp(w->shelf.objects[i].name, "sessions/", 9) == 0 && below(&w->chance, 4) != 0)
			w->shelf.objects[i].mtime_ms = w->shelf.now_ms;
	(void)pthread_mutex_unlock(&w->shelf.mu);
}

/* One that has not ended, or -1. */
static int choose(struct world *w)
{
	int left[ACTORS], n = 0;
	for (int i = 0; i < w->n_actors; i++)
		if (!w->actors[i].done)
			left[n++] = i;
	return n == 0 ? -1 : left[below(&w->chance, (uint64_t)n)];
}

static void give(struct world *w, int number)
{
	w->holder = number;
	w->calls++;
	(void)pthread_cond_broadcast(&w->changed);
	while (w->holder != -1)
		(void)pthread_cond_wait(&w->changed, &w->mu);
}

static void schedule(struct world *w)
{
	for (int number; (number = choose(w)) >= 0;) {
		static const uint64_t bursts[] = {1, 1, 3, 10, 40, 400};
		uint64_t burst = 1 + below(&w->chance, bursts[below(&w->chance, SL_COUNT(bursts))]);
		for (; burst > 0 && !w->actors[number].done; burst--)
			give(w, number);
		if (below(&w->chance, 12) == 0)
			let_time_pass(w);
	}
}

static void start_actors(struct world *w)
{
	w->holder = -1;
	for (int i = 0; i < w->n_actors; i++) {
		struct actor *a = &w->actors[i];
		*a = (struct actor){.w = w, .number = i, .what = a->what, .chance = draw(&w->chance)};
		if (pthread_create(&a->thread, NULL, play, a) != 0)
			fail_msg("no thread");
	}
	w->shelf.gate = gate;
	w->shelf.gate_ctx = w;
	(void)pthread_mutex_lock(&w->mu);
	for (int i = 0; i < w->n_actors; i++)
		while (!w->actors[i].waits)
			(void)pthread_cond_wait(&w->changed, &w->mu);
}

static void end_actors(struct world *w)
{
	(void)pthread_mutex_unlock(&w->mu);
	for (int i = 0; i < w->n_actors; i++)
		(void)pthread_join(w->actors[i].thread, NULL);
	w->shelf.gate = NULL;
}

static void run_actors(struct world *w)
{
	static const enum what parts[] = {CREATE, CREATE, PRUNE, FORGET, PRUNE};
	w->n_actors = w->shelf.has_lock ? 4 : SL_COUNT(parts);
	for (int i = 0; i < w->n_actors; i++)
		w->actors[i].what = parts[i];
	start_actors(w);
	schedule(w);
	end_actors(w);
}

/* ---- one seed ---- */

static int show(const struct sl_backup_finding *f, void *ctx)
{
	struct world *w = ctx;
	w->single += f->fault == SL_BACKUP_FAULT_ONE_COPY;
	if (w->trace)
		print_message("# %s %s %s %s: %s\n", sl_backup_fault_name(f->fault), f->object,
			      f->snapshot != NULL ? f->snapshot : "", f->path != NULL ? f->path : "", f->reason.msg);
	return 0;
}

static bool is_right(struct world *w)
{
	sl_backup *b = open_handle(w);
	w->single = 0;
	int rc = care_check(b, show, w, NULL);
	sl_backup_close(b);
	return rc == 0;
}

static void begin(struct world *w, uint64_t seed)
{
	static const struct sl_clock clock = {
		.version = SL_CLOCK_VERSION, .mono_ns = mono, .real_ms = later_ms, .wait = wait_on};
	static const struct sl_rand chance = {.version = SL_RAND_VERSION, .fill = fill};
	memset(w, 0, sizeof(*w));
	w->seed = seed;
	w->chance = seed;
	w->names = seed * 31 + 7;
	w->trace = getenv("SLUICE_BACKUP_SEED") != NULL;
	(void)pthread_mutex_init(&w->mu, NULL);
	(void)pthread_cond_init(&w->changed, NULL);
	shelf_init(&w->shelf);
	shelf_copy(&w->shelf, &beginning);
	w->shelf.has_lock = below(&w->chance, 3) == 0;
	w->env = (struct sl_env){SL_ENV_INIT, .clock = &clock, .rand = &chance, .rand_ctx = w};
}

static void finish(struct world *w)
{
	shelf_fini(&w->shelf);
	(void)pthread_cond_destroy(&w->changed);
	(void)pthread_mutex_destroy(&w->mu);
}

/* true: every snapshot has everything, now and after two more prunes, and then all metadata is in two packs. */
static bool run_seed(uint64_t seed, int *calls)
{
	struct world w;
	begin(&w, seed);
	static const enum what before[] = {CREATE, FORGET, CREATE, FORGET, PRUNE, CREATE, FORGET};
	for (uint64_t i = below(&w.chance, SL_COUNT(before)); i < SL_COUNT(before); i++)
		act(&w, before[i], &w.chance, -1);
	run_actors(&w);
	bool right = is_right(&w);
	for (int i = 0; i < 2 && right; i++) {
		w.shelf.now_ms += DAY_MS + 1;
		act(&w, PRUNE, &w.chance, -1);
	}
	right = right && is_right(&w) && w.single == 0;
	if (w.odd[0] != '\0' && protocol_broken == 0)
		fail_msg("SLUICE_BACKUP_SEED=%llu: %s", (unsigned long long)seed, w.odd);
	*calls += w.calls;
	finish(&w);
	return right;
}

/* ---- scripts ---- */

/* How far an actor runs: to the call that begins with `until`, which is not made yet, or to its end. */
struct step {
	int actor;
	enum what what;
	const char *until; /* NULL: its end */
	bool day_passes;   /* before it runs */
};

static void take_step(struct world *w, const struct step *step)
{
	struct actor *a = &w->actors[step->actor];
	if (step->day_passes) {
		(void)pthread_mutex_lock(&w->shelf.mu);
		w->shelf.now_ms += DAY_MS + 1;
		(void)pthread_mutex_unlock(&w->shelf.mu);
	}
	while (!a->done && (step->until == NULL || strncmp(a->at, step->until, strlen(step->until)) != 0))
		give(w, a->number);
}

/* In the beginning there is a pack that a forgotten snapshot has left; it has contents of the first tree too. */
static bool run_script_to(const struct step *steps, size_t n, size_t *published)
{
	struct world w;
	begin(&w, 1);
	w.script = true;
	w.shelf.has_lock = false;
	act(&w, CREATE, &w.chance, -1);
	act(&w, FORGET, &w.chance, -1);
	for (size_t i = 0; i < n; i++) {
		w.actors[steps[i].actor].what = steps[i].what;
		w.n_actors = SL_MAX(w.n_actors, steps[i].actor + 1);
	}
	start_actors(&w);
	for (size_t i = 0; i < n; i++)
		take_step(&w, &steps[i]);
	end_actors(&w);
	bool right = is_right(&w);
	*published = shelf_count(&w.shelf, "snapshots/");
	finish(&w);
	return right;
}

static bool run_script(const struct step *steps, size_t n)
{
	size_t published;
	return run_script_to(steps, n, &published);
}

/* A create counts on the pack; it is marked; the create falls silent, and publishes just as it is taken for dead. */
static const struct step silent_publishes[] = {
	{.actor = 0, .what = CREATE, .until = "rename sessions/"},
	{.actor = 1, .what = PRUNE},
	{.actor = 2, .what = PRUNE, .until = "remove sessions/", .day_passes = true},
	{.actor = 0, .what = CREATE},
	{.actor = 2, .what = PRUNE},
};

/* A create counts on the pack; it is marked; the create publishes. Another one has seen the mark, and takes its files
 * over from the first, which is forgotten; the pack is deleted. */
static const struct step parent_vanishes[] = {
	{.actor = 0, .what = CREATE, .until = "stat packs/"}, /* its own packs are in no index yet, and left alone */
	{.actor = 1, .what = PRUNE},
	{.actor = 0, .what = CREATE},
	{.actor = 2, .what = CREATE, .until = "list snapshots"},
	{.actor = 2, .what = CREATE, .until = "put sessions/"},
	{.actor = 3, .what = FORGET},
	{.actor = 4, .what = PRUNE},
	{.actor = 2, .what = CREATE},
};

/* As above, but the create is not removed, and publishes long after. */
static const struct step silent_comes_back[] = {
	{.actor = 0, .what = CREATE, .until = "rename sessions/"},
	{.actor = 1, .what = PRUNE},
	{.actor = 2, .what = PRUNE, .day_passes = true},
	{.actor = 0, .what = CREATE},
};

/* A create begins while a prune is about to delete the pack. */
static const struct step begins_at_the_end[] = {
	{.actor = 0, .what = PRUNE},
	{.actor = 1, .what = PRUNE, .until = "remove packs/"},
	{.actor = 2, .what = CREATE, .until = "list snapshots"},
	{.actor = 1, .what = PRUNE},
	{.actor = 2, .what = CREATE},
};

/* A create stalls before it announces its session, until a prune has listed the sessions. */
static const struct step stalls_before_announcing[] = {
	{.actor = 0, .what = CREATE, .until = "put sessions/"},
	{.actor = 1, .what = PRUNE},
	{.actor = 2, .what = PRUNE, .until = "remove packs/"},
	{.actor = 0, .what = CREATE, .until = "list snapshots"},
	{.actor = 2, .what = PRUNE},
	{.actor = 0, .what = CREATE},
};

/* A create counts on the pack; it is marked; the create publishes while another prune is about to look for sessions. */
static const struct step publishes_between[] = {
	{.actor = 0, .what = CREATE, .until = "stat packs/"},
	{.actor = 1, .what = PRUNE},
	{.actor = 2, .what = PRUNE, .until = "list sessions"},
	{.actor = 0, .what = CREATE},
	{.actor = 2, .what = PRUNE},
};

/* A create has looked for marks, and not yet said what it has seen, when the pack is marked; it counts on the pack
 * while another prune is about to delete it. */
static const struct step is_not_ready[] = {
	{.actor = 0, .what = CREATE, .until = "list marks"},
	{.actor = 0, .what = CREATE, .until = "put sessions/"},
	{.actor = 1, .what = PRUNE},
	{.actor = 2, .what = PRUNE, .until = "remove index/"},
	{.actor = 0, .what = CREATE, .until = "stat packs/"},
	{.actor = 2, .what = PRUNE},
	{.actor = 0, .what = CREATE},
};

/* A create counts on the pack; it is marked before the create reads the marks for the last time, and deleted by the
 * next prune before the create publishes. */
static const struct step marked_meanwhile[] = {
	{.actor = 0, .what = CREATE, .until = "list snapshots"},
	{.actor = 1, .what = PRUNE},
	{.actor = 0, .what = CREATE, .until = "rename sessions/"},
	{.actor = 2, .what = PRUNE},
	{.actor = 0, .what = CREATE},
};

/* The same, but the pack is gone, and its mark not yet, when the create looks. */
static const struct step deleted_meanwhile[] = {
	{.actor = 0, .what = CREATE, .until = "stat packs/"},
	{.actor = 1, .what = PRUNE},
	{.actor = 2, .what = PRUNE, .until = "remove marks/"},
	{.actor = 0, .what = CREATE},
	{.actor = 2, .what = PRUNE},
};

/* A create counts on the pack; a prune marks it. */
static const struct step marked_under_way[] = {
	{.actor = 0, .what = CREATE, .until = "stat packs/"},
	{.actor = 1, .what = PRUNE},
	{.actor = 0, .what = CREATE},
};

/* The same, and after the create has published, another prune finds the mark of a pack that is needed. */
static const struct step needed_again[] = {
	{.actor = 0, .what = CREATE, .until = "stat packs/"},
	{.actor = 1, .what = PRUNE},
	{.actor = 0, .what = CREATE},
	{.actor = 2, .what = PRUNE},
};

/* A create is about to announce itself while a prune is about to delete the pack, which no index names any more. */
static const struct step announces_late[] = {
	{.actor = 0, .what = PRUNE},
	{.actor = 1, .what = PRUNE, .until = "remove packs/"},
	{.actor = 2, .what = CREATE, .until = "put sessions/"},
	{.actor = 1, .what = PRUNE},
	{.actor = 2, .what = CREATE},
};

/* The pack is marked; a create that has seen the mark is under way when the pack is deleted. */
static const struct step has_seen_the_mark[] = {
	{.actor = 0, .what = PRUNE},
	{.actor = 1, .what = CREATE, .until = "stat packs/"},
	{.actor = 2, .what = PRUNE},
	{.actor = 1, .what = CREATE},
};

/* A create stores all contents of its tree, since the pack is marked. Its snapshot is forgotten, its packs are marked;
 * another create has seen that mark, and stores the same again while a prune deletes them. */
static const struct step stored_again[] = {
	{.actor = 0, .what = PRUNE},
	{.actor = 1, .what = CREATE},
	{.actor = 2, .what = FORGET},
	{.actor = 3, .what = PRUNE},
	{.actor = 4, .what = CREATE, .until = "put index/"},
	{.actor = 5, .what = PRUNE},
	{.actor = 4, .what = CREATE},
};

/* A create counts on the pack; it is marked; the create falls silent, its session is removed and the pack deleted. */
static const struct step removed_publishes[] = {
	{.actor = 0, .what = CREATE, .until = "stat packs/"},
	{.actor = 1, .what = PRUNE},
	{.actor = 2, .what = PRUNE, .day_passes = true},
	{.actor = 0, .what = CREATE},
};

/* ---- tests ---- */

/* Seeds that have failed once: creates whose session was removed under them, and that said something else. */
static const uint64_t kept_seeds[] = {10, 534};

static void no_snapshot_misses_a_block_however_creates_prunes_and_forgets_interleave(void **state)
{
	(void)state;
	const char *count = getenv("SLUICE_BACKUP_SEEDS"), *one = getenv("SLUICE_BACKUP_SEED");
	uint64_t first = one != NULL ? strtoull(one, NULL, 10) : 1,
		 seeds = count != NULL ? strtoull(count, NULL, 10) : 0;
	double end = seconds_now() + test_seconds(1.5);
	uint64_t seed = first;
	int calls = 0;
	protocol_broken = 0;
	for (size_t i = 0; i < SL_COUNT(kept_seeds) && one == NULL; i++)
		assert_true(run_seed(kept_seeds[i], &calls));
	for (; one != NULL ? seed == first : seeds > 0 ? seed <= seeds : seconds_now() < end; seed++)
		if (!run_seed(seed, &calls))
			fail_msg("SLUICE_BACKUP_SEED=%llu: a snapshot misses a block, or a copy of one",
				 (unsigned long long)seed);
	print_message("# %llu seeds, %d calls interleaved\n", (unsigned long long)(seed - first), calls);
}

#define SCRIPT(script) script, SL_COUNT(script)
static const struct {
	enum protocol_break what;
	const char *name;
	const struct step *script;
	size_t steps;
} breaks[] = {
	{BREAK_IGNORE_SEEN, "no mark waits for a session", SCRIPT(marked_meanwhile)},
	{BREAK_NOT_READY_SEEN, "a session that is not ready has seen everything", SCRIPT(is_not_ready)},
	{BREAK_SNAPSHOTS_FIRST, "snapshots are listed before sessions", SCRIPT(publishes_between)},
	{BREAK_LEAVE_SILENT, "silent sessions are not removed", SCRIPT(silent_comes_back)},
	{BREAK_REMOVE_LATE, "silent sessions are removed after snapshots were listed", SCRIPT(silent_publishes)},
	{BREAK_DELETE_AT_ONCE, "packs are deleted by the run that marks them", SCRIPT(marked_under_way)},
	{BREAK_DELETE_NEEDED, "packs are deleted though something of them is needed", SCRIPT(needed_again)},
	{BREAK_MARK_GOES_FIRST, "marks are removed before their packs", SCRIPT(begins_at_the_end)},
	{BREAK_NO_SESSION_YET, "the index is loaded before the session begins", SCRIPT(announces_late)},
	{BREAK_MARKS_FIRST, "marks are loaded before the session is there", SCRIPT(stalls_before_announcing)},
	{BREAK_USE_MARKED, "creates count on packs that they know as marked", SCRIPT(has_seen_the_mark)},
	{BREAK_TRUST_PARENT, "what is unchanged is taken over unseen", SCRIPT(parent_vanishes)},
	{BREAK_SAME_NAMES, "packs have the names of their contents", SCRIPT(stored_again)},
	{BREAK_PUBLISH_ANYWAY, "a removed session publishes", SCRIPT(removed_publishes)},
};

static void every_way_to_break_the_protocol_is_found(void **state)
{
	(void)state;
	assert_int_equal(SL_COUNT(breaks), BREAK_NO_RECHECK - 1); /* all that are before it, from 1 on */
	for (size_t i = 0; i < SL_COUNT(breaks); i++) {
		protocol_broken = 1u << breaks[i].what | 1u << BREAK_NO_RECHECK;
		bool found = !run_script(breaks[i].script, breaks[i].steps);
		protocol_broken = 1u << BREAK_NO_RECHECK;
		bool by_itself = !run_script(breaks[i].script, breaks[i].steps);
		protocol_broken = 0;
		if (!found)
			fail_msg("not found: %s", breaks[i].name);
		if (by_itself || !run_script(breaks[i].script, breaks[i].steps))
			fail_msg("found without being broken: %s", breaks[i].name);
	}
	print_message("# %zu breaks found\n", SL_COUNT(breaks));
}

/* Each of the two protections holds where the other one is left out, and nothing does where both are. */
static void the_recheck_of_the_marks_protects_where_prunes_do_not_wait(void **state)
{
	(void)state;
	static const struct {
		const struct step *script;
		size_t steps;
		size_t published; /* where only the recheck protects */
	} scripts[] = {{marked_meanwhile, SL_COUNT(marked_meanwhile), 1},
		       {deleted_meanwhile, SL_COUNT(deleted_meanwhile), 0}};
	const unsigned ignore = 1u << BREAK_IGNORE_SEEN, blind = 1u << BREAK_NO_RECHECK;
	for (size_t i = 0; i < SL_COUNT(scripts); i++) {
		size_t published = 0;
		protocol_broken = ignore | blind;
		assert_false(run_script_to(scripts[i].script, scripts[i].steps, &published));
		protocol_broken = blind;
		assert_true(run_script_to(scripts[i].script, scripts[i].steps, &published));
		assert_int_equal(published, 1);
		protocol_broken = ignore;
		assert_true(run_script_to(scripts[i].script, scripts[i].steps, &published));
		assert_int_equal(published, scripts[i].published);
		protocol_broken = 0;
		assert_true(run_script_to(scripts[i].script, scripts[i].steps, &published));
		assert_int_equal(published, 1);
	}
}

static void without_the_recheck_nothing_is_lost_as_long_as_prunes_wait(void **state)
{
	(void)state;
	double end = seconds_now() + test_seconds(1.5) / 4;
	uint64_t seed = 1;
	int calls = 0;
	protocol_broken = 1u << BREAK_NO_RECHECK;
	for (; seed <= 10 || seconds_now() < end; seed++)
		if (!run_seed(seed, &calls))
			fail_msg("seed %llu: a snapshot misses a block, or a copy of one", (unsigned long long)seed);
	protocol_broken = 0;
	print_message("# %llu seeds, %d calls interleaved\n", (unsigned long long)(seed - 1), calls);
}

/* ---- the trees: each a choice of the same contents ---- */

static void write_file(const char *path, int number)
{
	struct care_file file = {.seed = (uint64_t)number + 100, .len = 2000};
	uint8_t *bytes = care_bytes(&file);
	int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0644);
	assert_true(fd >= 0 && write(fd, bytes, file.len) == (ssize_t)file.len && close(fd) == 0);
	free(bytes);
}

static int set_up(void **state)
{
	(void)state;
	const char *tmp = getenv("TMPDIR");
	snprintf(folder, sizeof(folder), "%s/sluice-interleave-XXXXXX", tmp != NULL ? tmp : "/tmp");
	assert_non_null(mkdtemp(folder));
	for (int t = 0; t < TREES; t++) {
		char path[256];
		snprintf(path, sizeof(path), "%s/t%d", folder, t);
		assert_int_equal(mkdir(path, 0755), 0);
		for (int c = 0; c < CONTENTS; c++) {
			if ((t + c) % 4 == 0)
				continue;
			snprintf(path, sizeof(path), "%s/t%d/f%d", folder, t, c);
			write_file(path, c);
		}
	}
	shelf_init(&beginning);
	sl_backup_close(care_new(&beginning, false));
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	for (int t = 0; t < TREES; t++) {
		char path[256];
		for (int c = 0; c < CONTENTS; c++) {
			snprintf(path, sizeof(path), "%s/t%d/f%d", folder, t, c);
			(void)unlink(path);
		}
		snprintf(path, sizeof(path), "%s/t%d", folder, t);
		(void)rmdir(path);
	}
	shelf_fini(&beginning);
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_snapshot_misses_a_block_however_creates_prunes_and_forgets_interleave),
		cmocka_unit_test(every_way_to_break_the_protocol_is_found),
		cmocka_unit_test(the_recheck_of_the_marks_protects_where_prunes_do_not_wait),
		cmocka_unit_test(without_the_recheck_nothing_is_lost_as_long_as_prunes_wait),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
