/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The PostgreSQL notifier: several of them on one server stand for several processes, since they share nothing but the
 * server. Nothing here sleeps: an ear is waited for until it has heard.
 */
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "jobs/notify/payload.h"
#include "jobs/pg_place.h"
#include "support/vclock.h"

static struct pg_place place;
static struct sl_err err;

/* ---- an ear ---- */

struct ear {
	pthread_mutex_t mu;
	pthread_cond_t changed;
	char text[65536]; /* a line per note but those of kind 0: "kind type id reason" */
	size_t n;
	unsigned everything; /* notes of kind 0 */
};

static void ear_init(struct ear *e)
{
	memset(e, 0, sizeof(*e));
	pthread_mutex_init(&e->mu, NULL);
	pthread_cond_init(&e->changed, NULL);
}

static void hear(const struct sl_note *note, void *ctx)
{
	struct ear *e = ctx;
	pthread_mutex_lock(&e->mu);
	if (note->kind == 0)
		e->everything++;
	else
		e->n += (size_t)snprintf(e->text + e->n, sizeof(e->text) - e->n, "%d %s %" PRIu64 " %d\n",
					 (int)note->kind, note->type != NULL ? note->type : "-", note->id,
					 (int)note->reason);
	pthread_cond_broadcast(&e->changed);
	pthread_mutex_unlock(&e->mu);
}

static void await_text(struct ear *e, const char *line)
{
	pthread_mutex_lock(&e->mu);
	while (strstr(e->text, line) == NULL)
		pthread_cond_wait(&e->changed, &e->mu);
	pthread_mutex_unlock(&e->mu);
}

static void await_everything(struct ear *e, unsigned n)
{
	pthread_mutex_lock(&e->mu);
	while (e->everything < n)
		pthread_cond_wait(&e->changed, &e->mu);
	pthread_mutex_unlock(&e->mu);
}

static size_t count(struct ear *e, const char *line)
{
	size_t n = 0;
	pthread_mutex_lock(&e->mu);
	for (const char *at = e->text; (at = strstr(at, line)) != NULL; at++)
		n++;
	pthread_mutex_unlock(&e->mu);
	return n;
}

/* Connections but the admin's own. */
static long long connections(void)
{
	return pg_temp_number(place.admin, "SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
					   " AND backend_type = 'client backend'");
}

/* ---- a notifier with an ear that is known to be listening ---- */

struct process {
	sl_notify notify;
	struct ear ear;
};

static void process_open(struct process *p)
{
	ear_init(&p->ear);
	if (sl_notify_postgres_open(&p->notify, pg_temp_url(place.server), NULL, &err) != 0)
		fail_msg("%s", err.msg);
	assert_int_equal(p->notify.ops->subscribe(p->notify.ctx, hear, &p->ear, &err), 0);
	while (!p->notify.ops->healthy(p->notify.ctx))
		sched_yield();
}

static void process_close(struct process *p)
{
	p->notify.ops->unsubscribe(p->notify.ctx, hear, &p->ear);
	sl_notify_close(&p->notify);
}

static void publish(struct process *p, const struct sl_note *note)
{
	assert_int_equal(p->notify.ops->publish(p->notify.ctx, note, 1, &err), 0);
}

static void say(struct process *p, const char *type, uint64_t id)
{
	publish(p, &(const struct sl_note){.kind = SL_NOTE_JOB_SCHEDULED, .type = type, .id = id});
}

static void a_note_reaches_every_process_once(void **state)
{
	(void)state;
	static struct process a, b;
	process_open(&a);
	process_open(&b);
	publish(&a, &(const struct sl_note){
			    .kind = SL_NOTE_OWNERSHIP_LOST, .type = "t", .id = 7, .reason = SL_LOST_CANCELLED});
	await_text(&a.ear, "2 t 7 4\n");
	await_text(&b.ear, "2 t 7 4\n");
	publish(&b, &(const struct sl_note){.kind = SL_NOTE_CHAIN_ENDED, .id = 8});
	await_text(&a.ear, "3 - 8 0\n");
	await_text(&b.ear, "3 - 8 0\n");
	say(&a, "last", 1); /* behind everything else, on both ways */
	await_text(&b.ear, "1 last 1 0\n");
	say(&b, "last", 2);
	await_text(&a.ear, "1 last 2 0\n");
	assert_int_equal(count(&a.ear, "2 t 7 4\n"), 1);
	assert_int_equal(count(&b.ear, "3 - 8 0\n"), 1);
	process_close(&a);
	process_close(&b);
}

static void what_was_published_before_close_is_heard(void **state)
{
	(void)state;
	static struct process listener;
	sl_notify brief;
	process_open(&listener);
	assert_int_equal(sl_notify_postgres_open(&brief, pg_temp_url(place.server), NULL, &err), 0);
	struct sl_note note = {.kind = SL_NOTE_JOB_SCHEDULED, .type = "brief", .id = 5};
	assert_int_equal(brief.ops->publish(brief.ctx, &note, 1, &err), 0);
	sl_notify_close(&brief);
	await_text(&listener.ear, "1 brief 5 0\n");
	process_close(&listener);
}

static void a_note_in_a_transaction_is_heard_when_it_commits(void **state)
{
	(void)state;
	static struct process a, b;
	sl_store store;
	sl_store_tx *tx;
	process_open(&a);
	process_open(&b);
	assert_int_equal(pg_place_open(&place, &store, 1), 0);
	for (int commit = 0; commit < 2; commit++) {
		struct sl_note note = {.kind = SL_NOTE_JOB_SCHEDULED, .type = commit ? "yes" : "no", .id = 1};
		assert_int_equal(store.ops->begin(store.ctx, &tx, &err), 0);
		assert_int_equal(a.notify.ops->publish_in(a.notify.ctx, tx, &note, 1, &err), 0);
		if (commit)
			assert_int_equal(store.ops->commit(tx, &err), 0);
		else
			store.ops->rollback(tx);
	}
	await_text(&a.ear, "1 yes 1 0\n");
	await_text(&b.ear, "1 yes 1 0\n");
	assert_int_equal(count(&a.ear, " no ") + count(&b.ear, " no "), 0);
	sl_store_close(&store);
	process_close(&a);
	process_close(&b);
}

/* ---- what a store sends with a start ---- */

static uint64_t start(const sl_store *store, const sl_notify *notify, const char *type)
{
	sl_jobs *client;
	struct sl_jobs_opts opts = {SL_JOBS_OPTS_INIT, .store = store, .notify = notify};
	struct sl_new_chain chain = {.job = {.type = type}};
	struct sl_started out = {0};
	assert_int_equal(sl_jobs_open(&client, &opts, &err), 0);
	if (sl_jobs_enqueue(client, NULL, &chain, &out, &err) != 0)
		fail_msg("%s", err.msg);
	sl_jobs_close(client);
	return out.chain_id;
}

static void a_start_now_and_then_is_heard_once_and_needs_no_publisher(void **state)
{
	(void)state;
	static struct process a, b;
	char line[64];
	sl_store store;
	sl_notify silent;
	process_open(&a);
	process_open(&b);
	assert_int_equal(pg_place_open(&place, &store, 1), 0);
	(void)snprintf(line, sizeof(line), "1 seldom %" PRIu64 " 0\n", start(&store, &a.notify, "seldom"));
	await_text(&a.ear, line);
	await_text(&b.ear, line);
	assert_int_equal(sl_notify_postgres_open(&silent, pg_temp_url(place.server), NULL, &err), 0);
	long long before = connections();
	(void)snprintf(line, sizeof(line), "1 silent %" PRIu64 " 0\n", start(&store, &silent, "silent"));
	await_text(&a.ear, line);
	await_text(&b.ear, line);
	assert_int_equal(connections(), before);
	say(&a, "last", 1); /* behind everything else, on both ways */
	await_text(&b.ear, "1 last 1 0\n");
	say(&b, "last", 2);
	await_text(&a.ear, "1 last 2 0\n");
	assert_int_equal(count(&a.ear, "1 seldom "), 1);
	assert_int_equal(count(&b.ear, "1 seldom "), 1);
	assert_int_equal(count(&b.ear, "1 silent "), 1);
	sl_notify_close(&silent);
	sl_store_close(&store);
	process_close(&a);
	process_close(&b);
}

static void a_start_in_a_transaction_is_heard_of_after_its_commit_only(void **state)
{
	(void)state;
	static struct process a, b;
	sl_store store;
	sl_jobs *client;
	sl_tx *tx;
	struct sl_new_chain chain = {.job = {.type = "inside"}};
	struct sl_started out;
	process_open(&a);
	process_open(&b);
	assert_int_equal(pg_place_open(&place, &store, 2), 0);
	struct sl_jobs_opts opts = {SL_JOBS_OPTS_INIT, .store = &store, .notify = &a.notify};
	assert_int_equal(sl_jobs_open(&client, &opts, &err), 0);
	for (int commit = 0; commit < 2; commit++) {
		assert_int_equal(sl_jobs_begin(client, &tx, &err), 0);
		assert_int_equal(sl_jobs_enqueue(client, tx, &chain, &out, &err), 0);
		say(&a, commit ? "second" : "first", 1);
		await_text(&b.ear, commit ? "1 second 1 0\n" : "1 first 1 0\n");
		assert_int_equal(count(&b.ear, "1 inside "), 0);
		if (commit)
			assert_int_equal(sl_tx_commit(tx, &err), 0);
		else
			sl_tx_rollback(tx);
	}
	await_text(&b.ear, "1 inside ");
	assert_int_equal(count(&b.ear, "1 inside "), 1);
	sl_jobs_close(client);
	sl_store_close(&store);
	process_close(&a);
	process_close(&b);
}

static void a_note_that_the_store_has_sent_stays_in_the_process(void **state)
{
	(void)state;
	static struct process a, b;
	process_open(&a);
	process_open(&b);
	const struct sl_note notes[] = {{.kind = SL_NOTE_CHAIN_ENDED, .id = 1},
					{.kind = SL_NOTE_JOB_SCHEDULED, .type = "sent", .id = 2, .sent = 1},
					{.kind = SL_NOTE_CHAIN_ENDED, .id = 3}};
	assert_int_equal(a.notify.ops->publish(a.notify.ctx, notes, 3, &err), 0);
	await_text(&a.ear, "1 sent 2 0\n");
	await_text(&b.ear, "3 - 1 0\n");
	await_text(&b.ear, "3 - 3 0\n");
	say(&a, "last", 1);
	await_text(&b.ear, "1 last 1 0\n");
	assert_int_equal(count(&b.ear, "1 sent "), 0);
	process_close(&a);
	process_close(&b);
}

static void a_stream_of_starts_is_left_to_the_publisher(void **state)
{
	(void)state;
	struct vclock clock;
	struct sl_start_notification note;
	sl_notify n;
	vclock_init(&clock);
	struct sl_env env = {.struct_size = sizeof(env), .clock = &vclock_table, .clock_ctx = &clock};
	assert_int_equal(sl_notify_postgres_open(&n, pg_temp_url(place.server), &env, &err), 0);
	assert_int_equal(n.ops->start_notification(n.ctx, "t", &note), 1);
	assert_string_equal(note.after, " t\n");
	assert_int_equal(n.ops->start_notification(n.ctx, "t", &note), 0);
	vclock_advance_ms(&clock, 4);
	assert_int_equal(n.ops->start_notification(n.ctx, "t", &note), 0); /* 4 ms after one that was refused */
	vclock_advance_ms(&clock, 5);
	assert_int_equal(n.ops->start_notification(n.ctx, "t", &note), 1);
	/* 200 a second are seldom enough each, and too many together: the bucket has 10, and 100 flow in. */
	int given = 0;
	for (int i = 0; i < 400; i++) {
		vclock_advance_ms(&clock, 5);
		given += n.ops->start_notification(n.ctx, "t", &note);
	}
	assert_in_range(given, 200, 210);
	sl_notify_close(&n);
	vclock_fini(&clock);
}

static void a_cut_connection_is_reopened_and_everything_is_checked(void **state)
{
	(void)state;
	static struct process a, b;
	process_open(&a);
	process_open(&b);
	pthread_mutex_lock(&b.ear.mu);
	unsigned before = b.ear.everything;
	pthread_mutex_unlock(&b.ear.mu);
	assert_true(before >= 1); /* the first connect sends it, too */
	pg_place_cut(&place);
	await_everything(&b.ear, before + 1);
	while (!b.notify.ops->healthy(b.notify.ctx) || !a.notify.ops->healthy(a.notify.ctx))
		sched_yield();
	say(&a, "again", 3);
	await_text(&b.ear, "1 again 3 0\n");
	process_close(&a);
	process_close(&b);
}

static void a_flood_is_merged_and_the_overflow_becomes_check_everything(void **state)
{
	(void)state;
	static struct process a, b;
	process_open(&a);
	process_open(&b);
	pthread_mutex_lock(&b.ear.mu);
	unsigned before = b.ear.everything;
	pthread_mutex_unlock(&b.ear.mu);
	struct sl_note *notes = calloc(2000, sizeof(*notes));
	assert_non_null(notes);
	for (uint64_t i = 0; i < 2000; i++)
		notes[i] = (struct sl_note){.kind = SL_NOTE_CHAIN_ENDED, .id = i + 1};
	assert_int_equal(a.notify.ops->publish(a.notify.ctx, notes, 2000, &err), 0);
	free(notes);
	await_text(&b.ear, "3 - 1 0\n");
	await_everything(&b.ear, before + 1); /* what did not fit */
	for (int i = 0; i < 100; i++)
		say(&a, "same", (uint64_t)i);
	say(&a, "last", 1);
	await_text(&b.ear, "1 last 1 0\n");
	assert_in_range(count(&b.ear, "1 same "), 1, 99);
	process_close(&a);
	process_close(&b);
}

static void say_and_await(const sl_notify *from, struct process *to, const char *type, int times)
{
	char line[64];
	struct sl_note note = {.kind = SL_NOTE_JOB_SCHEDULED, .type = type, .id = 1};
	for (int i = 0; i < times; i++)
		assert_int_equal(from->ops->publish(from->ctx, &note, 1, &err), 0);
	(void)snprintf(line, sizeof(line), "1 %s 1 0\n", type);
	if (to != NULL)
		await_text(&to->ear, line);
}

/* Time advances only to what the publisher waits for; returns how far it had to. */
static int64_t until_sent(struct vclock *clock, struct process *to, const char *line)
{
	int64_t before = clock->now_ns;
	while (vclock_advance_to_next(clock) == 0)
		sched_yield();
	await_text(&to->ear, line);
	return (clock->now_ns - before) / 1000000;
}

static void a_stream_of_notes_is_sent_ever_more_rarely(void **state)
{
	(void)state;
	static struct process b;
	struct vclock clock;
	sl_notify paced;
	vclock_init(&clock);
	struct sl_env env = {.struct_size = sizeof(env), .clock = &vclock_table, .clock_ctx = &clock};
	process_open(&b);
	assert_int_equal(sl_notify_postgres_open(&paced, pg_temp_url(place.server), &env, &err), 0);
	static const char *const first[] = {"n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"};
	for (size_t i = 0; i < sizeof(first) / sizeof(*first); i++)
		say_and_await(&paced, &b, first[i], 1);
	say_and_await(&paced, NULL, "one", 1);
	assert_int_equal(until_sent(&clock, &b, "1 one 1 0\n"), 10);
	say_and_await(&paced, NULL, "many", 100);
	assert_int_equal(until_sent(&clock, &b, "1 many 1 0\n"), 10);
	say_and_await(&paced, NULL, "next", 1); /* pays for the many */
	assert_int_equal(until_sent(&clock, &b, "1 next 1 0\n"), 50);
	say_and_await(&paced, NULL, "last", 1);
	sl_notify_close(&paced); /* does not wait */
	await_text(&b.ear, "1 last 1 0\n");
	process_close(&b);
	vclock_fini(&clock);
}

static void without_a_server_it_opens_and_is_not_healthy(void **state)
{
	(void)state;
	static struct ear ear;
	sl_notify notify;
	ear_init(&ear);
	assert_int_equal(sl_notify_postgres_open(&notify, "postgres://u:s3cret@127.0.0.1:1/x", NULL, &err), 0);
	assert_int_equal(notify.ops->subscribe(notify.ctx, hear, &ear, &err), 0);
	struct sl_note note = {.kind = SL_NOTE_JOB_SCHEDULED, .type = "here", .id = 5};
	assert_int_equal(notify.ops->publish(notify.ctx, &note, 1, &err), 0);
	await_text(&ear, "1 here 5 0\n"); /* within the process it works */
	assert_int_equal(notify.ops->healthy(notify.ctx), 0);
	notify.ops->unsubscribe(notify.ctx, hear, &ear);
	sl_notify_close(&notify);
	assert_int_equal(sl_notify_postgres_open(&notify, "postgres://u:s3cr%zz@h/x", NULL, &err), SL_EINVAL);
	assert_null(strstr(err.msg, "s3cr"));
}

static void a_foreign_transaction_is_refused(void **state)
{
	(void)state;
	static struct process a;
	uint64_t not_ours[8] = {0};
	struct sl_note note = {.kind = SL_NOTE_JOB_SCHEDULED, .type = "t"};
	process_open(&a);
	assert_int_equal(a.notify.ops->publish_in(a.notify.ctx, (sl_store_tx *)(void *)not_ours, &note, 1, &err),
			 SL_EINVAL);
	process_close(&a);
}

/* ---- payloads ---- */

static void ignore_wake(void *ctx)
{
	(void)ctx;
}

static void payloads_are_split_and_read_back(void **state)
{
	(void)state;
	static struct ear ear;
	struct sl_env env;
	struct sl__pg_payloads p;
	struct sl__fanout inbox;
	char type[96];
	ear_init(&ear);
	assert_int_equal(sl__env_init(&env, NULL, &err), 0);
	assert_int_equal(sl__fanout_init(&inbox, &env, ignore_wake, NULL, &err), 0);
	assert_int_equal(sl__fanout_subscribe(&inbox, hear, &ear, &err), 0);
	sl__pg_payloads_init(&p, &env, 77);
	for (uint64_t i = 0; i < 250; i++) {
		(void)snprintf(type, sizeof(type), "a.type-with:a/long_name-%040d", (int)i);
		sl__pg_payloads_add(
			&p, &(const struct sl_note){.kind = SL_NOTE_JOB_SCHEDULED, .type = type, .id = UINT64_MAX - i});
	}
	sl__pg_payloads_end(&p);
	unsigned n = 0;
	for (size_t at = 0; at < p.text.len; at += strlen(p.text.data + at) + 1, n++) {
		assert_true(strlen(p.text.data + at) < 8000);
		assert_int_equal(sl__pg_payload_take(p.text.data + at, 77, &inbox), 77);
	}
	sl__fanout_deliver(&inbox);
	assert_int_equal(ear.n, 0); /* its own notes are not delivered to it */
	for (size_t at = 0; at < p.text.len; at += strlen(p.text.data + at) + 1)
		assert_int_equal(sl__pg_payload_take(p.text.data + at, 5, &inbox), 77);
	sl__fanout_deliver(&inbox);
	assert_true(n > 1);
	assert_int_equal(count(&ear, "1 a.type-with:a/long_name-"), 250);
	assert_int_equal(count(&ear, "0249 18446744073709551366 0\n"), 1);
	sl__buf_fini(&p.text);
	sl__fanout_fini(&inbox);
}

static void an_unreadable_payload_means_check_everything(void **state)
{
	(void)state;
	static struct ear ear;
	struct sl_env env;
	struct sl__fanout inbox;
	static const char *const odd[] = {"1\n9 0 1 t\n", "1\nx\n", "1\n1 0\n", "1\n1 99 1 t\n", "1\n-1 0 1 t\n"};
	ear_init(&ear);
	assert_int_equal(sl__env_init(&env, NULL, &err), 0);
	assert_int_equal(sl__fanout_init(&inbox, &env, ignore_wake, NULL, &err), 0);
	assert_int_equal(sl__fanout_subscribe(&inbox, hear, &ear, &err), 0);
	for (unsigned i = 0; i < sizeof(odd) / sizeof(*odd); i++) {
		assert_int_equal(sl__pg_payload_take(odd[i], 5, &inbox), 1);
		sl__fanout_deliver(&inbox);
		assert_int_equal(ear.everything, i + 1);
	}
	assert_int_equal(ear.n, 0);
	assert_int_equal(sl__pg_payload_take("someone else's", 5, &inbox), 0);
	assert_int_equal(sl__pg_payload_take("", 5, &inbox), 0);
	assert_int_equal(sl__pg_payload_take("0\n1 0 1 t\n", 5, &inbox), 0); /* no process has this number */
	assert_int_equal(sl__pg_payload_take("\n7\n1 0 1 t\n", 5, &inbox), 0);
	sl__fanout_deliver(&inbox);
	assert_int_equal(ear.everything, sizeof(odd) / sizeof(*odd));
	sl__fanout_fini(&inbox);
}

static int set_up(void **state)
{
	(void)state;
	while (connections() != 0) /* the server notices in its own time that those of another test are gone */
		sched_yield();
	return pg_place_set_up(&place);
}

static int tear_down(void **state)
{
	(void)state;
	pg_place_tear_down(&place);
	return 0;
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		TEST(a_note_reaches_every_process_once),
		TEST(what_was_published_before_close_is_heard),
		TEST(a_note_in_a_transaction_is_heard_when_it_commits),
		TEST(a_start_now_and_then_is_heard_once_and_needs_no_publisher),
		TEST(a_start_in_a_transaction_is_heard_of_after_its_commit_only),
		TEST(a_note_that_the_store_has_sent_stays_in_the_process),
		TEST(a_stream_of_starts_is_left_to_the_publisher),
		TEST(a_cut_connection_is_reopened_and_everything_is_checked),
		TEST(a_flood_is_merged_and_the_overflow_becomes_check_everything),
		TEST(a_stream_of_notes_is_sent_ever_more_rarely),
		TEST(without_a_server_it_opens_and_is_not_healthy),
		TEST(a_foreign_transaction_is_refused),
		TEST(payloads_are_split_and_read_back),
		TEST(an_unreadable_payload_means_check_everything),
	};
	int rc = pg_place_start(&place, PG_TEMP_FAST);
	if (rc != 0)
		return rc;
	rc = cmocka_run_group_tests_name("notify_postgres", tests, NULL, NULL);
	pg_place_stop(&place);
	return rc;
}
