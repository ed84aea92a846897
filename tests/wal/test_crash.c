/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Power loss. Each scenario runs once on a crash filesystem; then, for every point of its history, the states that a
 * loss could leave there are rebuilt, recovered and judged (tests/support/walmodel.h has the rules).
 *
 *   SLUICE_CRASH_STATES=N       N distinct states in all, instead of a few seconds' worth
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

#include <cmocka.h>

#include "support/budget.h"
#include "world.h"

#define STATES_PER_POINT 24 /* of each tear size; all of them when there are no more */

/* States that once went wrong stay here for ever: "scenario:seed:point:k", found with STATES_PER_POINT. */
static const char *const kept_states[] = {
	/* The first record of all torn, later ones of the same flush whole: the hole in front was not declared, and the
	 * sender took it for records that the receiver had lost. */
	"append_many:3:11:21",
	"tickets:2:12:25",
	"rotate:7:11:6",
	"settled:2:12:34",
	"salvage:6:13:0",
	"encrypted:7:11:4",
	/* The incarnation of a plain log that gets a key has a CRC-8 of zero under the new version: taken for no
	   header. */
	"gets_a_key:130:13:0",
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
		bigger.at = calloc(bigger.cap, sizeof(*bigger.at));
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

static void run_begin(struct run *r, const struct scenario *scenario, uint64_t seed)
{
	r->scenario = scenario;
	r->seed = seed;
	world_init(&r->x, seed, NULL, NULL);
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
struct budget {
	uint64_t states; /* 0: by time */
	double until;
};

static struct budget share_of_one(void)
{
	uint64_t states = test_number("SLUICE_CRASH_STATES", 0);
	double seconds = test_seconds(8);
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
	uint64_t seed = test_number("SLUICE_CRASH_SEED", 1), first = seed, states = 0;
	for (; !spent(&b, states); seed++) {
		struct run r;
		run_begin(&r, scenario, seed);
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
SURVIVES("gets_a_key", a_log_that_gets_a_key_survives_a_power_loss)
SURVIVES("copied", an_archive_that_was_there_survives_a_power_loss)
SURVIVES("full", what_a_full_disk_refused_stays_away_after_a_power_loss)
SURVIVES("poisoned", what_a_failed_sync_refused_stays_away_after_a_power_loss)

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
	run_begin(&r, scenario_find(name), seed);
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
	for (size_t i = 0; i < sizeof(kept_states) / sizeof(kept_states[0]); i++)
		if (replay(kept_states[i], false, why) != 0)
			fail_msg("%s: %s", kept_states[i], why);
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
		cmocka_unit_test(a_log_that_gets_a_key_survives_a_power_loss),
		cmocka_unit_test(an_archive_that_was_there_survives_a_power_loss),
		cmocka_unit_test(what_a_full_disk_refused_stays_away_after_a_power_loss),
		cmocka_unit_test(what_a_failed_sync_refused_stays_away_after_a_power_loss),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	printf("# %llu crash states in all\n", (unsigned long long)total_states);
	return failed;
}
