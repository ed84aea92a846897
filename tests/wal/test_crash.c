/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Power loss. Each scenario runs once on a crash filesystem; then, for every point of its history, the states that a
 * loss could leave there are rebuilt, recovered and judged (tests/support/walmodel.h has the rules).
 *
 *   SLUICE_CRASH_STATES=N       so many distinct states in all, instead of a few seconds' worth
 *   SLUICE_CRASH_SEED=S         start with this seed
 *   SLUICE_CRASH_SEED=scenario:seed:point:k      one state again, with the log's own messages
 *   SLUICE_CRASH_SCENARIO=name  that one only
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "world.h"

#define STATES_PER_POINT 24 /* of each tear size; all of them when there are no more */

/* States that once went wrong stay here for ever: "scenario:seed:point:k", found with STATES_PER_POINT. */
static const char *const kept_states[] = {
	/* The first record of all torn, later ones of the same flush whole: the hole in front was not declared, and the
	 * sender took it for records that the receiver had lost. */
	"append_many:1:12:14", "tickets:1:12:12", "rotate:5:12:2",
	"settled:1:12:14",     "salvage:6:13:0",  "encrypted:7:12:6",
};

/* ---- a set of hashes, so that a state is judged and counted once ---- */
struct set {
	uint64_t *at;
	size_t n, cap; /* cap is a power of two */
};

static bool set_add(struct set *s, uint64_t h)
{
	h |= h == 0;
	if (s->n * 2 >= s->cap) {
		struct set bigger = {.cap = s->cap != 0 ? s->cap * 2 : 1024};
		bigger.at = calloc(bigger.cap, sizeof *bigger.at);
		assert_non_null(bigger.at);
		for (size_t i = 0; i < s->cap; i++)
			if (s->at[i] != 0)
				(void)set_add(&bigger, s->at[i]);
		free(s->at);
		*s = bigger;
	}
	size_t i = (size_t)h & (s->cap - 1);
	while (s->at[i] != 0 && s->at[i] != h)
		i = (i + 1) & (s->cap - 1);
	bool fresh = s->at[i] == 0;
	s->at[i] = h;
	s->n += fresh;
	return fresh;
}

/* ---- one run of a scenario and its states ---- */
struct run {
	const struct scenario *scenario;
	uint64_t seed;
	struct world x;
};

static void run_begin(struct run *r, const struct scenario *scenario, uint64_t seed, const char *ignored_sync)
{
	r->scenario = scenario;
	r->seed = seed;
	world_init(&r->x, seed, NULL, NULL);
	crashfs_ignore_sync(r->x.fs, ignored_sync);
	scenario->run(&r->x);
}

static void run_end(struct run *r)
{
	world_fini(&r->x);
}

/* 0: in order, or seen before (then *fresh is false). */
static int judge(struct run *r, size_t point, size_t k, struct set *seen, bool *fresh, bool verbose, char why[512])
{
	uint64_t hash;
	struct crashfs *state = crashfs_crash(r->x.fs, point, k, STATES_PER_POINT, r->seed, &hash);
	int rc = 0;
	*fresh = seen == NULL || set_add(seen, hash);
	if (*fresh) {
		struct walmodel_case c = world_case(&r->x, point);
		c.send = (hash & 7) == 0;
		c.verbose = verbose;
		if (verbose)
			crashfs_print_tree(state, stdout);
		rc = walmodel_verify(&c, state, why);
	}
	crashfs_free(state);
	return rc;
}

static void report(const struct run *r, size_t point, size_t k, const char *why)
{
	printf("# SLUICE_CRASH_SEED=%s:%llu:%zu:%zu violates a promise: %s\n", r->scenario->name,
	       (unsigned long long)r->seed, point, k, why);
	crashfs_print_log(r->x.fs, point, stdout);
	fflush(stdout);
}

static bool run_is_sound(const struct run *r)
{
	if (r->x.rc == 0 && r->x.wrong[0] == '\0')
		return true;
	printf("# %s with seed %llu does not even run: %s %s\n", r->scenario->name, (unsigned long long)r->seed,
	       r->x.rc != 0 ? r->x.err.msg : "", r->x.wrong);
	crashfs_print_log(r->x.fs, crashfs_point(r->x.fs), stdout);
	return false;
}

/* ---- budgets ---- */
static double seconds_now(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static uint64_t env_number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);
	return text != NULL && *text != '\0' ? strtoull(text, NULL, 10) : otherwise;
}

struct budget {
	uint64_t states; /* 0: by time */
	double until;
};

static struct budget share_of_one(void)
{
	uint64_t states = env_number("SLUICE_CRASH_STATES", 0);
	double seconds = (double)env_number("SLUICE_TEST_SECONDS", 8);
	return (struct budget){states / n_scenarios + (states != 0), seconds_now() + seconds / (double)n_scenarios};
}

static bool spent(const struct budget *b, uint64_t states)
{
	return b->states != 0 ? states >= b->states : seconds_now() > b->until;
}

static size_t gcd(size_t a, size_t b)
{
	return b == 0 ? a : gcd(b, a % b);
}

/* Points in an order that spreads: a run that is cut short has seen all parts of the history. */
static size_t spread(size_t i, size_t n)
{
	size_t step = n * 618 / 1000 + 1;
	while (gcd(n, step) != 1)
		step++;
	return i * step % n;
}

static uint64_t judge_points(struct run *r, const struct budget *b, uint64_t before)
{
	struct set seen = {0};
	size_t points = crashfs_point(r->x.fs) + 1;
	uint64_t states = 0;
	char why[512];
	for (size_t i = 0; i < points && !spent(b, before + states); i++) {
		size_t point = spread(i, points), n = crashfs_states(r->x.fs, point, STATES_PER_POINT);
		for (size_t k = 0; k < n; k++) {
			bool fresh;
			if (judge(r, point, k, &seen, &fresh, false, why) != 0) {
				report(r, point, k, why);
				free(seen.at);
				run_end(r);
				fail_msg("%s: %s", r->scenario->name, why);
			}
			states += fresh;
		}
	}
	free(seen.at);
	return states;
}

static uint64_t total_states;

static void survives(const struct scenario *scenario)
{
	const char *only = getenv("SLUICE_CRASH_SCENARIO");
	if (only != NULL && strcmp(only, scenario->name) != 0)
		return;
	struct budget b = share_of_one();
	uint64_t seed = env_number("SLUICE_CRASH_SEED", 1), first = seed, states = 0;
	for (; !spent(&b, states); seed++) {
		struct run r;
		run_begin(&r, scenario, seed, NULL);
		if (!run_is_sound(&r)) {
			run_end(&r);
			fail_msg("%s does not run with seed %llu", scenario->name, (unsigned long long)seed);
		}
		states += judge_points(&r, &b, states);
		run_end(&r);
	}
	total_states += states;
	printf("# %s: %llu distinct states, seeds %llu to %llu\n", scenario->name, (unsigned long long)states,
	       (unsigned long long)first, (unsigned long long)seed - 1);
}

#define SURVIVES(name, sentence)                                                                                       \
	static void sentence(void **state)                                                                             \
	{                                                                                                              \
		(void)state;                                                                                           \
		survives(scenario_find(name));                                                                         \
	}
SURVIVES("append", appended_records_survive_a_power_loss)
SURVIVES("append_many", records_appended_together_survive_a_power_loss)
SURVIVES("tickets", records_with_tickets_survive_a_power_loss)
SURVIVES("rotate", a_rotation_survives_a_power_loss)
SURVIVES("sent", sent_marks_survive_a_power_loss)
SURVIVES("close", a_clean_close_survives_a_power_loss)
SURVIVES("send", a_sender_survives_a_power_loss)
SURVIVES("send_after_recovery", what_was_sent_after_a_recovery_survives_a_power_loss)
SURVIVES("refused", a_refused_record_survives_a_power_loss)
SURVIVES("archive", an_archive_survives_a_power_loss)
SURVIVES("settled", archiving_settled_segments_survives_a_power_loss)
SURVIVES("recover", a_recovery_survives_a_power_loss)
SURVIVES("salvage", a_salvage_survives_a_power_loss)
SURVIVES("new_incarnation", a_new_incarnation_survives_a_power_loss)
SURVIVES("encrypted", an_encrypted_log_survives_a_power_loss)

/* ---- states that once were wrong, and one on request ---- */
static int replay(const char *text, bool verbose, char why[512])
{
	char name[64];
	unsigned long long seed;
	size_t point, k;
	if (sscanf(text, "%63[a-z_]:%llu:%zu:%zu", name, &seed, &point, &k) != 4 || scenario_find(name) == NULL)
		return snprintf(why, 512, "%s is not scenario:seed:point:k", text);
	struct run r;
	bool fresh;
	run_begin(&r, scenario_find(name), seed, NULL);
	int rc = run_is_sound(&r) ? 0 : -1;
	if (point > crashfs_point(r.x.fs))
		point = crashfs_point(r.x.fs); /* the log does less than it did */
	if (rc != 0)
		(void)snprintf(why, 512, "the scenario does not get there");
	if (rc == 0 && k < crashfs_states(r.x.fs, point, STATES_PER_POINT))
		rc = judge(&r, point, k, NULL, &fresh, verbose, why);
	if (rc != 0)
		report(&r, point, k, why);
	run_end(&r);
	return rc;
}

static void states_that_once_went_wrong_stay_right(void **state)
{
	(void)state;
	char why[512];
	for (size_t i = 0; i < sizeof kept_states / sizeof kept_states[0]; i++)
		if (replay(kept_states[i], false, why) != 0)
			fail_msg("%s: %s", kept_states[i], why);
}

/* ---- every sync is there for a reason ---- */

/* Syncs whose loss no power failure shows, with the reason why they stay. Most are calls that are needed with other
 * changes pending: the class tells what there was to make durable. */
static const struct {
	const char *phases, *sync, *reason;
} spare_syncs[] = {
	{"append close archive send", "sync of temporary file after writes",
	 "behind a sealed segment, recovery puts a new active file in the place of one without a header"},
	{"append close recover archive send", "datasync of active segment after truncate",
	 "behind the end lie zeros, or bytes that were never acknowledged"},
	{"open recover", "sync of active segment after truncate", "a torn tail that comes back is trimmed again"},
	{"open recover", "sync of folder w after unlink", "a temporary file that comes back is removed again"},
	{"open recover", "sync of folder w after create unlink", "a temporary file that comes back is removed again"},
	{"open recover", "datasync of active segment after writes",
	 "a hole between records shows as a gap again, and is declared again"},
	{"recover", "sync of folder w after rename", "a segment that comes back damaged is salvaged again by open"},
	{"new incarnation", "sync of folder w after rename", "open syncs the folder before the first append"},
	{"new incarnation", "sync of folder w after create rename", "open syncs the folder before the first append"},
	{"archive send close", "sync of folder w after unlink",
	 "a segment that comes back is published already, and is removed again"},
	{"archive", "sync of folder w after rename", "all of the log is published by then"},
	{"send", "sync of folder w after create rename", "a rotation for marks only; needed in one for records"},
	{"send", "sync of folder w after rename", "a rotation for marks only; needed in one for records"},
	{"send", "sync of folder d after create", "the lock file of the dead letters has nothing in it"},
	{"send", "datasync of temporary file after writes", "the sync of the first letter covers its file's header"},
};

static bool is_spare(const char *sync_class)
{
	const char *colon = strstr(sync_class, ": ");
	size_t n = (size_t)(colon - sync_class);
	for (size_t i = 0; i < sizeof spare_syncs / sizeof spare_syncs[0]; i++)
		if (strcmp(spare_syncs[i].sync, colon + 2) == 0 &&
		    memmem(spare_syncs[i].phases, strlen(spare_syncs[i].phases), sync_class, n) != NULL)
			return true;
	return false;
}

struct classes {
	char *name[128];
	uint32_t in[128]; /* scenarios, a bit each */
	size_t n;
};

static void add_classes(struct classes *all, const struct crashfs *fs, size_t scenario)
{
	for (size_t i = 0; i < crashfs_sync_classes(fs); i++) {
		const char *name = crashfs_sync_class(fs, i);
		size_t k = 0;
		while (k < all->n && strcmp(all->name[k], name) != 0)
			k++;
		assert_true(k < 128);
		if (k == all->n)
			all->name[all->n++] = strdup(name);
		all->in[k] |= 1U << scenario;
	}
}

/* Is there a state that goes wrong in this scenario when syncs of this class do nothing? */
static bool shows(const struct scenario *scenario, uint64_t seed, const char *sync_class, size_t *states)
{
	struct run r;
	char why[512];
	bool found = false;
	run_begin(&r, scenario, seed, sync_class);
	size_t points = crashfs_point(r.x.fs) + 1;
	for (size_t i = 0; i < points && !found; i++) {
		size_t point = points - 1 - spread(i, points), n = crashfs_states(r.x.fs, point, STATES_PER_POINT);
		for (size_t k = 0; k < n && !found; k++, (*states)++) {
			bool fresh;
			found = judge(&r, point, k, NULL, &fresh, false, why) != 0;
		}
	}
	if (found)
		printf("# without \"%s\": %s (%s, %zu states)\n", sync_class, why, scenario->name, *states);
	run_end(&r);
	return found;
}

static bool is_needed(const struct classes *all, size_t i)
{
	size_t states = 0;
	for (uint64_t seed = 1; seed <= 6 && states < 20000; seed++)
		for (size_t s = 0; s < n_scenarios; s++)
			if ((all->in[i] >> s & 1) != 0 && shows(&scenarios[s], seed, all->name[i], &states))
				return true;
	return false;
}

static void every_sync_is_needed(void **state)
{
	(void)state;
	struct classes all = {0};
	if (WORLD_SLOW)
		return; /* it looks for states that fail; sanitizers have nothing to add */
	for (size_t s = 0; s < n_scenarios; s++)
		for (uint64_t seed = 1; seed <= 6; seed++) {
			struct run r;
			run_begin(&r, &scenarios[s], seed, NULL);
			add_classes(&all, r.x.fs, s);
			run_end(&r);
		}
	size_t needed = 0, spare = 0, unexplained = 0;
	for (size_t i = 0; i < all.n; i++) {
		if (is_spare(all.name[i]))
			spare++;
		else if (is_needed(&all, i))
			needed++;
		else {
			unexplained++;
			printf("# no state misses \"%s\"\n", all.name[i]);
		}
		free(all.name[i]);
	}
	printf("# %zu kinds of sync: %zu needed, %zu kept for another reason\n", all.n, needed, spare);
	assert_int_equal(unexplained, 0);
	assert_true(needed > 0);
}

int main(void)
{
	const char *one = getenv("SLUICE_CRASH_SEED");
	if (one != NULL && strchr(one, ':') != NULL) {
		char why[512];
		return replay(one, true, why) != 0;
	}
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(states_that_once_went_wrong_stay_right),
		cmocka_unit_test(appended_records_survive_a_power_loss),
		cmocka_unit_test(records_appended_together_survive_a_power_loss),
		cmocka_unit_test(records_with_tickets_survive_a_power_loss),
		cmocka_unit_test(a_rotation_survives_a_power_loss),
		cmocka_unit_test(sent_marks_survive_a_power_loss),
		cmocka_unit_test(a_clean_close_survives_a_power_loss),
		cmocka_unit_test(a_sender_survives_a_power_loss),
		cmocka_unit_test(what_was_sent_after_a_recovery_survives_a_power_loss),
		cmocka_unit_test(a_refused_record_survives_a_power_loss),
		cmocka_unit_test(an_archive_survives_a_power_loss),
		cmocka_unit_test(archiving_settled_segments_survives_a_power_loss),
		cmocka_unit_test(a_recovery_survives_a_power_loss),
		cmocka_unit_test(a_salvage_survives_a_power_loss),
		cmocka_unit_test(a_new_incarnation_survives_a_power_loss),
		cmocka_unit_test(an_encrypted_log_survives_a_power_loss),
		cmocka_unit_test(every_sync_is_needed),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	printf("# %llu crash states in all\n", (unsigned long long)total_states);
	return failed;
}
