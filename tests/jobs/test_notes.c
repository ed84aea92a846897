/* SPDX-License-Identifier: Apache-2.0 */
/* The set of notes: what merges, what a cut forgets, and what happens without memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "jobs/client/notes.h"
#include "support/fault.h"

struct sent {
	int calls;
	size_t n;
	struct sl_note notes[8];
};

static int publish(void *notify, const struct sl_note *notes, size_t n, struct sl_err *err)
{
	(void)err;
	struct sent *s = notify;
	s->calls++;
	s->n = n;
	for (size_t i = 0; i < n && i < SL_COUNT(s->notes); i++)
		s->notes[i] = notes[i];
	return 0;
}

static const struct sl_notify_ops sent_ops = {.version = SL_NOTIFY_VERSION, .name = "sent", .publish = publish};
static const struct sl_env real_env = {SL_ENV_INIT, .mem = &sl__mem_real};

static void add(struct sl__notes *s, enum sl_note_kind kind, const char *type, uint64_t id, enum sl_lost_reason reason)
{
	const struct sl_note note = {.kind = kind, .type = type, .id = id, .reason = reason};
	sl__notes_add(s, &note);
}

static void notes_that_say_the_same_become_one(void **state)
{
	(void)state;
	struct sent sent = {0};
	const sl_notify notify = {.ops = &sent_ops, .ctx = &sent};
	struct sl__notes s;
	char type[] = "mail"; /* the set has its own copy */
	sl__notes_init(&s, &real_env);
	add(&s, SL_NOTE_JOB_SCHEDULED, type, 5, SL_LOST_NOT);
	add(&s, SL_NOTE_JOB_SCHEDULED, "report", 6, SL_LOST_NOT);
	add(&s, SL_NOTE_JOB_SCHEDULED, "mail", 7, SL_LOST_NOT);
	add(&s, SL_NOTE_OWNERSHIP_LOST, NULL, 5, SL_LOST_TAKEN);
	add(&s, SL_NOTE_OWNERSHIP_LOST, NULL, 5, SL_LOST_CANCELLED);
	add(&s, SL_NOTE_CHAIN_ENDED, NULL, 5, SL_LOST_NOT);
	add(&s, SL_NOTE_CHAIN_ENDED, NULL, 5, SL_LOST_NOT);
	type[0] = 'X';
	assert_int_equal(s.n, 4);
	sl__notes_publish(&s, &notify);
	assert_int_equal(sent.calls, 1);
	assert_int_equal(sent.n, 4);
	assert_string_equal(sent.notes[0].type, "mail");
	assert_true(sent.notes[0].id == 0); /* several */
	assert_true(sent.notes[1].id == 6); /* one */
	assert_int_equal(sent.notes[2].reason, SL_LOST_TAKEN);
	assert_int_equal(sent.notes[3].kind, SL_NOTE_CHAIN_ENDED);
	/* It is empty now, and an empty set is not published. */
	sl__notes_publish(&s, &notify);
	assert_int_equal(sent.calls, 1);
	sl__notes_publish(&s, NULL);
	sl__notes_fini(&s);
}

static void thousands_of_notes_stay_apart_and_merge_still(void **state)
{
	(void)state;
	enum { N = 5000 };
	struct sl__notes s;
	sl__notes_init(&s, &real_env);
	for (int twice = 0; twice < 2; twice++)
		for (uint64_t id = 1; id <= N; id++) {
			char type[16];
			(void)snprintf(type, sizeof(type), "t%d", (int)(id % 50));
			add(&s, SL_NOTE_JOB_SCHEDULED, type, id, SL_LOST_NOT);
			add(&s, SL_NOTE_OWNERSHIP_LOST, NULL, id, SL_LOST_TAKEN);
			add(&s, SL_NOTE_CHAIN_ENDED, NULL, id, SL_LOST_NOT);
		}
	assert_int_equal(s.n, 50 + 2 * N);
	assert_true(s.lost == 0);
	sl__notes_clear(&s);
	add(&s, SL_NOTE_CHAIN_ENDED, NULL, 17, SL_LOST_NOT);
	assert_int_equal(s.n, 1);
	sl__notes_fini(&s);
}

static void a_cut_forgets_what_came_later_and_takes_it_again(void **state)
{
	(void)state;
	struct sl__notes s;
	sl__notes_init(&s, &real_env);
	for (uint64_t id = 1; id <= 100; id++)
		add(&s, SL_NOTE_CHAIN_ENDED, NULL, id, SL_LOST_NOT);
	sl__notes_cut(&s, 60);
	assert_int_equal(s.n, 60);
	sl__notes_cut(&s, 80);
	assert_int_equal(s.n, 60);
	for (uint64_t id = 1; id <= 70; id++)
		add(&s, SL_NOTE_CHAIN_ENDED, NULL, id, SL_LOST_NOT);
	assert_int_equal(s.n, 70);
	sl__notes_fini(&s);
}

static void without_memory_notes_are_lost_and_counted(void **state)
{
	(void)state;
	struct fault f;
	fault_init(&f, NULL);
	struct sl_env env = fault_env(&f, NULL);
	for (int64_t n = 1;; n++) {
		struct sl__notes s;
		sl__notes_init(&s, &env);
		fault_arm_mem(&f, n, FAULT_FROM);
		for (uint64_t id = 1; id <= 40; id++) {
			char type[16];
			(void)snprintf(type, sizeof(type), "t%d", (int)(id % 3));
			add(&s, SL_NOTE_JOB_SCHEDULED, type, id, SL_LOST_NOT);
			add(&s, SL_NOTE_OWNERSHIP_LOST, NULL, id, SL_LOST_TAKEN);
		}
		fault_disarm(&f);
		bool failed = fault_mem_failed(&f) > 0;
		assert_true(failed == (s.lost > 0));
		assert_true(s.n >= SL__NOTES_INLINE);
		if (!failed)
			assert_int_equal(s.n, 43);
		sl__notes_fini(&s);
		assert_int_equal(fault_live_allocs(&f), 0);
		if (!failed)
			break;
	}
	fault_fini(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(notes_that_say_the_same_become_one),
		cmocka_unit_test(thousands_of_notes_stay_apart_and_merge_still),
		cmocka_unit_test(a_cut_forgets_what_came_later_and_takes_it_again),
		cmocka_unit_test(without_memory_notes_are_lost_and_counted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
