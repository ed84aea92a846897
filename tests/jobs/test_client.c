/* SPDX-License-Identifier: Apache-2.0 */
/* The client on both stores: starting, transactions, listing, steering, and what it does without memory. */
#include "jobs/client_world.h"

#include <inttypes.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "jobs/client/client.h"

/* ---- starting ---- */

static void what_was_started_can_be_read_back(void **state)
{
	struct world *w = *state;
	uint64_t first = world_start(w, NULL, "first", NULL);
	struct sl_new_chain chain = {.job = {.type = "mail",
					     .input = " {\"to\" : \"\xc3\xa9\"}",
					     .priority = -3,
					     .delay_ms = 60000,
					     .blockers = &first,
					     .n_blockers = 1,
					     .traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
				     .key = "k"};
	struct sl_started s;
	OK(sl_jobs_enqueue(w->client, NULL, &chain, &s, &err));
	assert_int_equal(s.deduplicated, 0);
	struct sl_job *job;
	OK(sl_jobs_get(w->client, s.chain_id, &job, &err));
	assert_true(job->id == s.chain_id && job->chain_id == s.chain_id);
	assert_string_equal(job->type, "mail");
	assert_string_equal(job->input, " {\"to\" : \"\xc3\xa9\"}");
	assert_string_equal(job->key, "k");
	assert_string_equal(job->traceparent, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
	assert_int_equal(job->priority, -3);
	assert_int_equal(job->status, SL_JOB_BLOCKED);
	assert_null(job->output);
	sl_job_release(w->client, job);
	struct sl_chain *c;
	OK(sl_jobs_get_chain(w->client, first, &c, &err));
	assert_string_equal(c->type, "first");
	assert_string_equal(c->input, "null");
	assert_int_equal(c->status, SL_JOB_PENDING);
	sl_chain_release(w->client, c);
	struct sl_started again;
	OK(sl_jobs_enqueue(w->client, NULL, &chain, &again, &err));
	assert_int_equal(again.deduplicated, 1);
	assert_true(again.chain_id == s.chain_id);
	REFUSED(sl_jobs_get(w->client, 999, &job, &err), SL_ENOENT, "999");
	REFUSED(sl_jobs_get_chain(w->client, 999, &c, &err), SL_ENOENT, "999");
}

static void a_start_that_is_refused_names_the_field_and_makes_nothing(void **state)
{
	struct world *w = *state;
	struct sl_new_chain chains[3] = {{.job.type = "a"}, {.job.type = "a"}, {.job = {.type = "a", .input = "{]"}}};
	struct sl_started s[3];
	REFUSED(sl_jobs_enqueue(w->client, NULL, &chains[2], s, &err), SL_EDATA, "input: line 1, column 2");
	REFUSED(sl_jobs_enqueue_many(w->client, NULL, chains, 3, s, &err), SL_EDATA,
		"chains[2]: input: line 1, column 2");
	uint64_t nobody = 12345;
	chains[2] = (struct sl_new_chain){.job = {.type = "a", .blockers = &nobody, .n_blockers = 1}};
	REFUSED(sl_jobs_enqueue_many(w->client, NULL, chains, 3, s, &err), SL_ENOENT, "12345");
	assert_true(world_jobs(w) == 0);
	assert_int_equal(w->publishes, 0);
	assert_int_equal(w->n_seen, 0);
	OK(sl_jobs_enqueue_many(w->client, NULL, NULL, 0, NULL, &err));
}

static struct sl_new_chain *many_chains(size_t n)
{
	struct sl_new_chain *chains = calloc(n, sizeof(*chains));
	for (size_t i = 0; i < n; i++)
		chains[i].job = (struct sl_new_job){.type = i % 2 == 0 ? "even" : "odd", .input = "[0]"};
	return chains;
}

enum { MANY = 25000 };

static void many_chains_go_in_bites_of_one_transaction(void **state)
{
	struct world *w = *state;
	struct sl_new_chain *chains = many_chains(MANY);
	struct sl_started *s = calloc(MANY, sizeof(*s));
	OK(sl_jobs_enqueue_many(w->client, NULL, chains, MANY, s, &err));
	assert_int_equal(w->starts, 3);
	assert_int_equal(w->max_bite, 10000);
	assert_int_equal(w->publishes, 1);
	assert_int_equal(w->n_notes, 2); /* one for each type */
	for (size_t i = 1; i < MANY; i++)
		assert_true(s[i].chain_id > s[i - 1].chain_id);
	assert_true(world_jobs(w) == MANY);
	free(chains);
	free(s);
}

static void one_bad_chain_among_many_undoes_all_of_them(void **state)
{
	struct world *w = *state;
	struct sl_new_chain *chains = many_chains(MANY);
	struct sl_started *s = calloc(MANY, sizeof(*s));
	chains[20001].job.input = "nope";
	REFUSED(sl_jobs_enqueue_many(w->client, NULL, chains, MANY, s, &err), SL_EDATA, "chains[20001]: input");
	assert_true(world_jobs(w) == 0);
	assert_int_equal(w->publishes, 0);
	/* Inside of the caller's transaction, only what this call did. */
	sl_tx *tx;
	OK(sl_jobs_begin(w->client, &tx, &err));
	uint64_t id = world_start(w, tx, "before", NULL);
	REFUSED(sl_jobs_enqueue_many(w->client, tx, chains, MANY, s, &err), SL_EDATA, "chains[20001]: input");
	OK(sl_tx_commit(tx, &err));
	assert_true(world_jobs(w) == 1);
	assert_int_equal(w->n_notes, 1);
	assert_string_equal(w->notes[0].type, "before");
	assert_true(w->notes[0].id == id || w->notes[0].id == 0);
	free(chains);
	free(s);
}

static void big_inputs_make_small_bites(void **state)
{
	struct world *w = *state;
	enum { N = 6, BYTES = 12 << 20 };
	char *input = malloc(BYTES + 1);
	memset(input, ' ', BYTES);
	input[0] = '1';
	input[BYTES] = '\0';
	struct sl_new_chain chains[N];
	struct sl_started s[N];
	for (int i = 0; i < N; i++)
		chains[i] = (struct sl_new_chain){.job = {.type = "big", .input = input}};
	OK(sl_jobs_enqueue_many(w->client, NULL, chains, N, s, &err));
	assert_int_equal(w->starts, 2);
	assert_true(world_jobs(w) == N);
	free(input);
}

/* ---- transactions ---- */

static void the_notes_of_a_transaction_go_out_merged_after_its_commit(void **state)
{
	struct world *w = *state;
	sl_tx *tx;
	OK(sl_jobs_begin(w->client, &tx, &err));
	for (int i = 0; i < 10; i++)
		(void)world_start(w, tx, i < 9 ? "a" : "b", NULL);
	assert_int_equal(w->publishes, 0);
	assert_int_equal(w->n_seen, 0);
	OK(sl_tx_commit(tx, &err));
	assert_int_equal(w->publishes, 1);
	assert_int_equal(w->n_notes, 2);
	assert_int_equal(world_seen(w, SL_OBSERVE_JOB_CREATED), 10);
}

static void a_rollback_sends_no_notifications(void **state)
{
	struct world *w = *state;
	sl_tx *tx;
	OK(sl_jobs_begin(w->client, &tx, &err));
	for (int i = 0; i < 10; i++)
		(void)world_start(w, tx, "a", NULL);
	sl_tx_rollback(tx);
	sl_tx_rollback(NULL);
	assert_int_equal(w->publishes + w->n_seen, 0);
	assert_true(world_jobs(w) == 0);
}

static struct world *failing;
static int failing_commit(sl_store_tx *tx, struct sl_err *err)
{
	failing->real.ops->rollback(tx);
	return sl_err_set(err, SL_EUNAVAIL, "the connection was lost in the commit");
}

static void a_failed_commit_sends_no_notifications(void **state)
{
	struct world *w = *state;
	sl_tx *tx;
	failing = w;
	w->ops.commit = failing_commit;
	OK(sl_jobs_begin(w->client, &tx, &err));
	(void)world_start(w, tx, "a", NULL);
	REFUSED(sl_tx_commit(tx, &err), SL_EUNAVAIL, "lost in the commit");
	assert_int_equal(w->publishes + w->n_seen, 0);
	assert_true(world_jobs(w) == 0);
}

static void a_handler_cannot_end_the_transaction_of_its_attempt(void **state)
{
	struct world *w = *state;
	sl_tx *tx;
	OK(sl__tx_begin(&w->client->home, NULL, true, &tx, &err));
	(void)world_start(w, tx, "a", NULL);
	REFUSED(sl_tx_commit(tx, &err), SL_EINVAL, "end of the attempt");
	sl_tx_rollback(tx);
	(void)world_start(w, tx, "a", NULL);
	OK(sl__tx_commit(tx, &err));
	assert_true(world_jobs(w) == 2);
}

static void a_rollback_to_a_savepoint_forgets_what_came_after_it(void **state)
{
	struct world *w = *state;
	sl_tx *tx;
	OK(sl_jobs_begin(w->client, &tx, &err));
	(void)world_start(w, tx, "kept", NULL);
	OK(sl_tx_savepoint(tx, "one", &err));
	for (int i = 0; i < 20; i++) {
		char type[16];
		(void)snprintf(type, sizeof(type), "undone%d", i);
		(void)world_start(w, tx, type, NULL);
		OK(sl_tx_savepoint(tx, "inner", &err));
	}
	OK(sl_tx_rollback_to(tx, "one", &err));
	REFUSED(sl_tx_release(tx, "inner", &err), SL_EINVAL, "inner");
	(void)world_start(w, tx, "later", NULL);
	OK(sl_tx_release(tx, "one", &err));
	REFUSED(sl_tx_rollback_to(tx, "one", &err), SL_EINVAL, "one");
	REFUSED(sl_tx_savepoint(tx, "one; DROP", &err), SL_EINVAL, "name");
	OK(sl_tx_commit(tx, &err));
	assert_true(world_jobs(w) == 2);
	assert_int_equal(w->n_notes, 2);
	assert_string_equal(w->notes[0].type, "kept");
	assert_string_equal(w->notes[1].type, "later");
	assert_int_equal(world_seen(w, SL_OBSERVE_JOB_CREATED), 2);
}

/* Those inside of it go with it; what was started stays. The innermost of one name is the one that is meant. */
static void a_savepoint_that_is_released_takes_those_inside_of_it_along(void **state)
{
	struct world *w = *state;
	sl_tx *tx;
	OK(sl_jobs_begin(w->client, &tx, &err));
	OK(sl_tx_savepoint(tx, "outer", &err));
	(void)world_start(w, tx, "a", NULL);
	OK(sl_tx_savepoint(tx, "inner", &err));
	(void)world_start(w, tx, "b", NULL);
	OK(sl_tx_savepoint(tx, "inner", &err));
	(void)world_start(w, tx, "undone", NULL);
	OK(sl_tx_rollback_to(tx, "inner", &err));
	OK(sl_tx_release(tx, "inner", &err));
	(void)world_start(w, tx, "c", NULL);
	OK(sl_tx_release(tx, "outer", &err));
	REFUSED(sl_tx_rollback_to(tx, "inner", &err), SL_EINVAL, "inner");
	REFUSED(sl_tx_release(tx, "outer", &err), SL_EINVAL, "outer");
	(void)world_start(w, tx, "d", NULL);
	OK(sl_tx_commit(tx, &err));
	assert_true(world_jobs(w) == 4);
	assert_int_equal(w->n_notes, 4);
	assert_string_equal(w->notes[1].type, "b");
	assert_string_equal(w->notes[2].type, "c");
	assert_int_equal(world_seen(w, SL_OBSERVE_JOB_CREATED), 4);
}

static void a_transaction_of_another_store_is_refused(void **state)
{
	struct world *w = *state;
	struct sl_env env = {SL_ENV_INIT};
	struct memstore *ms = memstore_new(&env);
	sl_store store = memstore_handle(ms);
	struct sl_jobs_opts opts = {SL_JOBS_OPTS_INIT, .store = &store};
	struct sl_new_chain chain = {.job.type = "a"};
	struct sl_started s;
	sl_jobs *other;
	sl_tx *tx;
	OK(sl_jobs_open(&other, &opts, &err));
	OK(sl_jobs_begin(other, &tx, &err));
	REFUSED(sl_jobs_enqueue(w->client, tx, &chain, &s, &err), SL_EINVAL, "another store");
	sl_tx_rollback(tx);
	sl_jobs_close(other);
	memstore_free(ms);
}

static int refuse_begin(void *store, sl_store_tx **out, struct sl_err *err)
{
	(void)store;
	(void)out;
	return sl_err_set(err, SL_EUNAVAIL, "the store is unavailable");
}

static int refuse_savepoint(sl_store_tx *tx, const char *name, struct sl_err *err)
{
	(void)tx;
	return sl_err_set(err, SL_EUNAVAIL, "no savepoint %s", name);
}

static void what_the_store_refuses_of_a_transaction_is_refused(void **state)
{
	struct world *w = *state;
	struct sl_store_ops ops = w->ops;
	sl_tx *tx = NULL;
	w->ops.begin = refuse_begin;
	REFUSED(sl_jobs_begin(w->client, &tx, &err), SL_EUNAVAIL, "the store is unavailable");
	assert_null(tx);
	w->ops = ops;
	OK(sl_jobs_begin(w->client, &tx, &err));
	OK(sl_tx_savepoint(tx, "one", &err));
	w->ops.savepoint = w->ops.release_savepoint = w->ops.rollback_to = refuse_savepoint;
	REFUSED(sl_tx_savepoint(tx, "two", &err), SL_EUNAVAIL, "two");
	REFUSED(sl_tx_rollback_to(tx, "two", &err), SL_EINVAL, "two"); /* it was not made */
	REFUSED(sl_tx_rollback_to(tx, "one", &err), SL_EUNAVAIL, "one");
	REFUSED(sl_tx_release(tx, "one", &err), SL_EUNAVAIL, "one");
	w->ops = ops;
	sl_tx_rollback(tx);
}

/* Fewer and more than a transaction has room for before it allocates memory: each is the one that happened, in order.
 */
static void observers_hear_of_every_change_of_a_transaction(void **state)
{
	struct world *w = *state;
	static const int sizes[] = {1, 4, 5, 8, 9, 40};
	for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
		uint64_t ids[40];
		sl_tx *tx;
		w->n_seen = 0;
		OK(sl_jobs_begin(w->client, &tx, &err));
		for (int i = 0; i < sizes[k]; i++)
			ids[i] = world_start(w, tx, i % 2 == 0 ? "even" : "odd", NULL);
		assert_int_equal(w->n_seen, 0);
		OK(sl_tx_commit(tx, &err));
		assert_int_equal(w->n_seen, sizes[k]);
		for (int i = 0; i < sizes[k]; i++) {
			assert_int_equal(w->seen[i].kind, SL_OBSERVE_JOB_CREATED);
			assert_int_equal(w->seen[i].id, ids[i]);
		}
	}
}

static void an_unavailable_notifier_fails_no_start(void **state)
{
	struct world *w = *state;
	w->fails = 1;
	(void)world_start(w, NULL, "a", NULL);
	assert_int_equal(w->publishes, 1);
}

static void observers_and_metrics_hear_of_what_is_durable(void **state)
{
	struct world *w = *state;
	uint64_t first = world_start(w, NULL, "a", NULL);
	assert_int_equal(world_seen(w, SL_OBSERVE_JOB_CREATED), 1);
	assert_true(w->seen[0].id == first && w->seen[0].chain_id == first);
	assert_null(w->seen[0].worker);
	struct sl_new_chain chain = {.job = {.type = "b", .blockers = &first, .n_blockers = 1}};
	struct sl_started s;
	OK(sl_jobs_enqueue(w->client, NULL, &chain, &s, &err));
	assert_int_equal(world_seen(w, SL_OBSERVE_JOB_BLOCKED), 1);
	OK(sl_jobs_complete(w->client, NULL, first, "1", &err));
	assert_int_equal(world_seen(w, SL_OBSERVE_JOB_UNBLOCKED), 1);
	assert_int_equal(world_seen(w, SL_OBSERVE_CHAIN_COMPLETED), 1);
	struct sl_metric_label label = {"kind", "job_created"};
	sl_counter *created;
	OK(sl_metrics_counter(w->metrics, "sluice_job_observations_total",
			      "Changes of state of jobs, attempts, leases and workers.", &label, 1, &created, &err));
	assert_true(sl_counter_value(created) == 2);
}

/* ---- on the caller's connection: SQLite ---- */

static sqlite3 *own_connection(const struct world *w)
{
	sqlite3 *db;
	assert_int_equal(sqlite3_open(w->place.path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "CREATE TABLE orders(id INTEGER)", NULL, NULL, NULL), SQLITE_OK);
	return db;
}

static void a_chain_and_the_callers_rows_are_one_transaction(void **state)
{
	struct world *w = *state;
	sqlite3 *db = own_connection(w);
	sl_tx *tx;
	for (int commit = 0; commit < 2; commit++) {
		OK(sl_jobs_join(w->client, db, &tx, &err));
		assert_ptr_equal(sl_tx_native(tx), db);
		assert_int_equal(sqlite3_exec(db, "INSERT INTO orders VALUES (7)", NULL, NULL, NULL), SQLITE_OK);
		(void)world_start(w, tx, "ship", "7");
		if (commit)
			OK(sl_tx_commit(tx, &err));
		else
			sl_tx_rollback(tx);
		assert_true(world_jobs(w) == (uint64_t)commit);
		assert_string_equal(sqlite_ask(w->place.path, "SELECT count(*) FROM orders"), commit ? "1" : "0");
		assert_int_equal(w->publishes, commit);
	}
	REFUSED(sl_jobs_join(w->client, NULL, &tx, &err), SL_EINVAL, "native");
	sqlite3_close(db);
}

static void a_notifier_that_can_publishes_as_part_of_a_joined_transaction(void **state)
{
	struct world *w = *state;
	sqlite3 *db = own_connection(w);
	sl_tx *tx;
	w->notify_ops.publish_in = world_publish_in;
	OK(sl_jobs_join(w->client, db, &tx, &err));
	(void)world_start(w, tx, "ship", "7");
	OK(sl_tx_commit(tx, &err));
	assert_int_equal(w->publishes_in, 1);
	assert_int_equal(w->publishes, 0);
	assert_int_equal(w->n_notes, 1);
	/* A transaction of our own is published after its commit. */
	OK(sl_jobs_begin(w->client, &tx, &err));
	(void)world_start(w, tx, "ship", "8");
	OK(sl_tx_commit(tx, &err));
	assert_int_equal(w->publishes_in, 1);
	assert_int_equal(w->publishes, 1);
	/* A notification that cannot be part of it undoes it. */
	w->fails = 1;
	OK(sl_jobs_join(w->client, db, &tx, &err));
	(void)world_start(w, tx, "ship", "9");
	REFUSED(sl_tx_commit(tx, &err), SL_EUNAVAIL, "the notifier is unavailable");
	assert_true(world_jobs(w) == 2);
	sqlite3_close(db);
}

static void notifications_can_be_kept_for_after_the_callers_commit(void **state)
{
	struct world *w = *state;
	sqlite3 *db = own_connection(w);
	struct sl_new_chain chain = {.job.type = "a"};
	struct sl_started s;
	for (int notify = 0; notify < 2; notify++) {
		sl_tx *tx;
		OK(sl_jobs_join(w->client, db, &tx, &err));
		(void)world_start(w, tx, "ship", "7");
		sl_tx_notify_after(tx);
		OK(sl_tx_commit(tx, &err));
		assert_int_equal(w->publishes + w->n_seen, 0);
		REFUSED(sl_jobs_enqueue(w->client, tx, &chain, &s, &err), SL_EINVAL, "committed");
		REFUSED(sl_tx_commit(tx, &err), SL_EINVAL, "committed");
		REFUSED(sl_tx_savepoint(tx, "one", &err), SL_EINVAL, "committed");
		REFUSED(sl_tx_rollback_to(tx, "one", &err), SL_EINVAL, "committed");
		REFUSED(sl_tx_release(tx, "one", &err), SL_EINVAL, "committed");
		assert_null(sl_tx_native(tx));
		if (notify)
			sl_tx_notify(tx);
		else
			sl_tx_rollback(tx);
		assert_int_equal(w->publishes, notify);
		assert_int_equal(w->n_seen, notify);
	}
	sqlite3_close(db);
}

/* ---- listing ---- */

struct shown {
	struct world *w;
	uint64_t last;
	int n, stop_at;
	bool descending;
};

static int show(const struct sl_job *job, void *ctx)
{
	struct shown *s = ctx;
	if (s->last != 0)
		assert_true(s->descending ? job->id < s->last : job->id > s->last);
	s->last = job->id;
	/* The client may be used. */
	if (s->n % 100 == 0) {
		struct sl_job *same;
		OK(sl_jobs_get(s->w->client, job->id, &same, &err));
		assert_string_equal(same->input, job->input);
		sl_job_release(s->w->client, same);
	}
	return ++s->n == s->stop_at ? 77 : 0;
}

static void a_listing_shows_every_row_once_and_lets_the_client_be_used(void **state)
{
	struct world *w = *state;
	enum { N = 1234 };
	struct sl_new_chain *chains = many_chains(N);
	struct sl_started s[N];
	OK(sl_jobs_enqueue_many(w->client, NULL, chains, N, s, &err));
	struct sl_job_filter up = {SL_JOB_FILTER_INIT, .limit = 10000, .ascending = true},
			     down = {SL_JOB_FILTER_INIT, .limit = 10000}, some = {SL_JOB_FILTER_INIT, .limit = 700};
	struct shown a = {.w = w}, b = {.w = w, .descending = true}, c = {.w = w, .descending = true}, d = {.w = w};
	OK(sl_jobs_list(w->client, &up, show, &a, &err));
	assert_int_equal(a.n, N);
	assert_true(a.last == s[N - 1].chain_id);
	OK(sl_jobs_list(w->client, &down, show, &b, &err));
	assert_int_equal(b.n, N);
	OK(sl_jobs_list(w->client, &some, show, &c, &err));
	assert_int_equal(c.n, 700);
	some.after = c.last;
	OK(sl_jobs_list(w->client, &some, show, &c, &err));
	assert_int_equal(c.n, N);
	assert_true(c.last == s[0].chain_id);
	d = (struct shown){.w = w, .descending = true};
	OK(sl_jobs_list(w->client, NULL, show, &d, &err));
	assert_int_equal(d.n, 100); /* the default */
	d = (struct shown){.w = w, .stop_at = 3, .descending = true};
	assert_int_equal(sl_jobs_list(w->client, NULL, show, &d, NULL), 77);
	assert_int_equal(d.n, 3);
	free(chains);
}

static char *input_of(size_t bytes)
{
	char *input = malloc(bytes + 1);
	memset(input, ' ', bytes);
	input[0] = '1';
	input[bytes] = '\0';
	return input;
}

static int count_bytes(const struct sl_job *job, void *ctx)
{
	*(size_t *)ctx += strlen(job->input);
	return 0;
}

static int count_chain_bytes(const struct sl_chain *chain, void *ctx)
{
	*(size_t *)ctx += strlen(chain->input);
	return 0;
}

static void a_page_of_big_rows_ends_early_and_loses_none(void **state)
{
	struct world *w = *state;
	enum { N = 400, BYTES = 60000 };
	char *input = input_of(BYTES);
	for (int i = 0; i < N; i++)
		(void)world_start(w, NULL, "big", input);
	struct shown s = {.w = w};
	struct sl_job_filter up = {SL_JOB_FILTER_INIT, .limit = 1000, .ascending = true};
	world_forget(w);
	OK(sl_jobs_list(w->client, &up, show, &s, &err));
	assert_int_equal(s.n, N);
	assert_true(w->lists >= 5);
	free(input);
}

static void rows_too_large_for_a_page_are_listed_whole_or_as_the_caller_bounds_them(void **state)
{
	struct world *w = *state;
	const size_t sizes[] = {1 << 20, 10, 100000, 65536, 65537};
	size_t all = 0;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		char *input = input_of(sizes[i]);
		(void)world_start(w, NULL, "big", input);
		all += sizes[i];
		free(input);
	}
	const struct {
		uint32_t max;
		size_t bytes;
	} cases[] = {{0, all}, {1 << 20, all}, {100000, all - (1 << 20)}, {65536, 65546}, {9, 0}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sl_job_filter f = {SL_JOB_FILTER_INIT, .data_max_bytes = cases[i].max};
		size_t jobs = 0, chains = 0;
		OK(sl_jobs_list(w->client, &f, count_bytes, &jobs, &err));
		OK(sl_jobs_list_chains(w->client, &f, count_chain_bytes, &chains, &err));
		assert_int_equal(jobs, cases[i].bytes);
		assert_int_equal(chains, cases[i].bytes);
	}
}

static int show_chain(const struct sl_chain *chain, void *ctx)
{
	(void)chain;
	(*(int *)ctx)++;
	return 0;
}

static void a_wrong_filter_is_refused(void **state)
{
	struct world *w = *state;
	int n = 0;
	const char *type = "a b";
	struct sl_job_filter f = {SL_JOB_FILTER_INIT, .limit = 10001};
	REFUSED(sl_jobs_list(w->client, &f, show, NULL, &err), SL_EINVAL, "limit");
	REFUSED(sl_jobs_list_chains(w->client, &f, show_chain, &n, &err), SL_EINVAL, "limit");
	f = (struct sl_job_filter){.limit = 1};
	REFUSED(sl_jobs_list(w->client, &f, show, NULL, &err), SL_EINVAL, "struct_size");
	f = (struct sl_job_filter){SL_JOB_FILTER_INIT, .types = &type, .n_types = 1};
	REFUSED(sl_jobs_list(w->client, &f, show, NULL, &err), SL_EINVAL, "types");
	f = (struct sl_job_filter){SL_JOB_FILTER_INIT, .statuses = 1u << 10};
	REFUSED(sl_jobs_list(w->client, &f, show, NULL, &err), SL_EINVAL, "statuses");
	f = (struct sl_job_filter){SL_JOB_FILTER_INIT, .statuses = 1u};
	REFUSED(sl_jobs_list(w->client, &f, show, NULL, &err), SL_EINVAL, "statuses");
	f = (struct sl_job_filter){SL_JOB_FILTER_INIT, .blocked_by_job = 1};
	REFUSED(sl_jobs_list(w->client, &f, show, NULL, &err), SL_EINVAL, "blocked_by_job");
	f = (struct sl_job_filter){SL_JOB_FILTER_INIT, .statuses = 0x7eu};
	OK(sl_jobs_list_chains(w->client, &f, show_chain, &n, &err));
}

static int show_event(const struct sl_event_row *event, void *ctx)
{
	uint64_t *last = ctx;
	assert_true(event->offset > *last);
	assert_true(event->payload_len == 4);
	assert_memory_equal(event->payload, "a\0b\n", 4);
	assert_string_equal(event->stream, "s");
	*last = event->offset;
	return 0;
}

static void events_are_shown_with_their_bytes_page_by_page(void **state)
{
	struct world *w = *state;
	enum { N = 1100 };
	uint64_t id = world_start(w, NULL, "a", NULL);
	struct sl_event_row rows[N];
	for (int i = 0; i < N; i++)
		rows[i] = (struct sl_event_row){.stream = "s",
						.incarnation = 1,
						.sequence = (uint64_t)i + 1,
						.job_id = id,
						.attempt = 1,
						.type = 2,
						.ts_ms = 1,
						.payload = "a\0b\n",
						.payload_len = 4};
	struct sl_event_mark mark = {.stream = "s", .incarnation = 1};
	OK(w->real.ops->events_append(w->real.ctx, rows, N, &mark, 1, NULL, &err));
	uint64_t last = 0;
	OK(sl_jobs_events(w->client, id, 0, 10000, show_event, &last, &err));
	assert_true(last == N);
	last = 1090;
	OK(sl_jobs_events(w->client, id, 1090, 0, show_event, &last, &err));
	assert_true(last == N);
}

static int show_cron(const struct sl_cron *cron, void *ctx)
{
	struct world *w = ctx;
	assert_string_equal(cron->name, "nightly");
	assert_string_equal(cron->spec, "@daily");
	assert_string_equal(cron->input, "null");
	assert_true(cron->next_ms > 0 && cron->next_ms % 86400000 == 0);
	assert_false(cron->catch_up);
	OK(sl_jobs_cron_remove(w->client, "nightly", &err));
	return 0;
}

static int fail_on_cron(const struct sl_cron *cron, void *ctx)
{
	(void)ctx;
	fail_msg("%s is still there", cron->name);
	return 0;
}

static int show_paused(const struct sl_cron *cron, void *ctx)
{
	(void)ctx;
	assert_true(cron->paused);
	assert_int_equal(cron->next_ms, 0);
	return 0;
}

static void a_schedule_can_be_put_listed_and_removed(void **state)
{
	struct world *w = *state;
	struct sl_cron cron = {
		SL_CRON_INIT, .name = "nightly", .spec = "@daily", .type = "t", .next_ms = 5, .last_ms = 9,
	};
	OK(sl_jobs_cron_put(w->client, &cron, &err));
	OK(sl_jobs_cron_list(w->client, show_cron, w, &err));
	OK(sl_jobs_cron_list(w->client, fail_on_cron, w, &err));
	/* A paused one has no next tick, until it is put again. */
	cron.paused = true;
	OK(sl_jobs_cron_put(w->client, &cron, &err));
	OK(sl_jobs_cron_list(w->client, show_paused, w, &err));
	cron.paused = false;
	OK(sl_jobs_cron_put(w->client, &cron, &err));
	OK(sl_jobs_cron_list(w->client, show_cron, w, &err));
	/* What a shorter schedule does not have is zero. */
	cron.struct_size = offsetof(struct sl_cron, catch_up);
	cron.catch_up = true;
	OK(sl_jobs_cron_put(w->client, &cron, &err));
	OK(sl_jobs_cron_list(w->client, show_cron, w, &err));
}

/* ---- steering ---- */

static enum sl_job_status status_of(struct world *w, uint64_t id)
{
	struct sl_chain *c;
	OK(sl_jobs_get_chain(w->client, id, &c, &err));
	enum sl_job_status status = c->status;
	sl_chain_release(w->client, c);
	return status;
}

static void an_owner_hears_of_a_job_that_is_cancelled_completed_or_deleted(void **state)
{
	struct world *w = *state;
	uint64_t a = world_start(w, NULL, "t", NULL), b = world_start(w, NULL, "t", NULL),
		 c = world_start(w, NULL, "t", NULL);
	size_t n = 0;
	world_claim(w, "t");
	assert_int_equal(status_of(w, a), SL_JOB_RUNNING);
	world_forget(w);
	OK(sl_jobs_cancel(w->client, NULL, &a, 1, &n, &err));
	assert_int_equal(n, 1);
	assert_int_equal(world_noted(w, SL_NOTE_OWNERSHIP_LOST, a), 1);
	assert_int_equal(world_seen(w, SL_OBSERVE_JOB_CANCELLED), 1);
	OK(sl_jobs_complete(w->client, NULL, b, NULL, &err));
	assert_int_equal(world_noted(w, SL_NOTE_OWNERSHIP_LOST, b), 1);
	OK(sl_jobs_delete(w->client, NULL, &c, 1, false, &n, &err));
	assert_int_equal(world_noted(w, SL_NOTE_OWNERSHIP_LOST, c), 1);
	assert_int_equal(world_seen(w, SL_OBSERVE_JOB_DELETED), 1);
	assert_int_equal(status_of(w, a), SL_JOB_CANCELLED);
	struct sl_chain *chain;
	OK(sl_jobs_get_chain(w->client, b, &chain, &err));
	assert_string_equal(chain->output, "null");
	sl_chain_release(w->client, chain);
	REFUSED(sl_jobs_complete(w->client, NULL, b, "1", &err), SL_EEXIST, "");
	REFUSED(sl_jobs_cancel(w->client, NULL, &c, 1, &n, &err), SL_ENOENT, "");
	OK(sl_jobs_redrive(w->client, NULL, &a, 1, NULL, &err));
	assert_int_equal(status_of(w, a), SL_JOB_PENDING);
	OK(sl_jobs_cancel(w->client, NULL, NULL, 0, &n, &err));
	assert_int_equal(n, 0);
}

static void a_chain_is_failed_from_outside_with_its_error(void **state)
{
	struct world *w = *state;
	uint64_t a = world_start(w, NULL, "t", NULL);
	world_claim(w, "t");
	REFUSED(sl_jobs_fail(w->client, NULL, a, "\xff", &err), SL_EDATA, "error is not valid UTF-8");
	REFUSED(sl_jobs_fail(w->client, NULL, 999, "none", &err), SL_ENOENT, "999");
	world_forget(w);
	OK(sl_jobs_fail(w->client, NULL, a, "its host is gone", &err));
	assert_int_equal(world_noted(w, SL_NOTE_OWNERSHIP_LOST, a), 1);
	assert_int_equal(world_seen(w, SL_OBSERVE_JOB_FAILED), 1);
	struct sl_chain *chain;
	OK(sl_jobs_wait(w->client, a, 0, &chain, &err));
	assert_int_equal(chain->status, SL_JOB_FAILED);
	assert_string_equal(chain->error, "its host is gone");
	sl_chain_release(w->client, chain);
	REFUSED(sl_jobs_fail(w->client, NULL, a, "again", &err), SL_EEXIST, "");
}

static void a_change_inside_a_transaction_is_undone_with_it(void **state)
{
	struct world *w = *state;
	uint64_t a = world_start(w, NULL, "t", NULL);
	sl_tx *tx;
	size_t n;
	world_forget(w);
	OK(sl_jobs_begin(w->client, &tx, &err));
	OK(sl_jobs_cancel(w->client, tx, &a, 1, &n, &err));
	sl_tx_rollback(tx);
	assert_int_equal(status_of(w, a), SL_JOB_PENDING);
	assert_int_equal(w->publishes + w->n_seen, 0);
	OK(sl_jobs_begin(w->client, &tx, &err));
	OK(sl_jobs_complete(w->client, tx, a, "[1]", &err));
	OK(sl_tx_commit(tx, &err));
	assert_int_equal(status_of(w, a), SL_JOB_COMPLETED);
}

static void a_blocker_is_deleted_only_with_those_that_wait_for_it(void **state)
{
	struct world *w = *state;
	uint64_t a = world_start(w, NULL, "t", NULL);
	struct sl_new_chain chain = {.job = {.type = "t", .blockers = &a, .n_blockers = 1}};
	struct sl_started s;
	size_t n = 0;
	OK(sl_jobs_enqueue(w->client, NULL, &chain, &s, &err));
	REFUSED(sl_jobs_delete(w->client, NULL, &a, 1, false, &n, &err), SL_EPENDING, "");
	assert_true(world_jobs(w) == 2);
	OK(sl_jobs_delete(w->client, NULL, &a, 1, true, &n, &err));
	assert_int_equal(n, 2);
	assert_true(world_jobs(w) == 0);
}

static int paused_count(const struct sl_job_count *c, void *ctx)
{
	*(int *)ctx += c->paused;
	return 0;
}

static void a_type_can_be_paused_and_resumed_and_a_schedule_triggered(void **state)
{
	struct world *w = *state;
	struct sl_new_chain chain = {.job = {.type = "t", .delay_ms = 3600000}};
	struct sl_started s;
	int paused = 0;
	size_t n = 0;
	OK(sl_jobs_enqueue(w->client, NULL, &chain, &s, &err));
	OK(sl_jobs_pause(w->client, "t", &err));
	OK(sl_jobs_counts(w->client, paused_count, &paused, &err));
	assert_int_equal(paused, 1);
	world_forget(w);
	OK(sl_jobs_resume(w->client, "t", &err));
	assert_int_equal(world_noted(w, SL_NOTE_JOB_SCHEDULED, 0), 1);
	OK(sl_jobs_trigger(w->client, NULL, &s.chain_id, 1, &n, &err));
	assert_int_equal(n, 1);
	world_claim(w, "t");
	REFUSED(sl_jobs_pause(w->client, "", &err), SL_EINVAL, "type");
}

static void what_ended_long_ago_is_pruned_and_nothing_else(void **state)
{
	struct world *w = *state;
	enum { N = 2500 };
	struct sl_new_chain *chains = many_chains(N);
	struct sl_started s[N];
	uint64_t ids[N], n = 0;
	OK(sl_jobs_enqueue_many(w->client, NULL, chains, N, s, &err));
	for (int i = 0; i < N; i++)
		ids[i] = s[i].chain_id;
	OK(sl_jobs_cancel(w->client, NULL, ids, N - 1, NULL, &err));
	OK(sl_jobs_prune(w->client, 3600000, &n, &err));
	assert_true(n == 0);
	vclock_advance_ms(&w->clock, 10);
	OK(sl_jobs_prune(w->client, 5, &n, &err));
	assert_true(n == N - 1);
	assert_true(world_jobs(w) == 1);
	assert_int_equal(status_of(w, ids[N - 1]), SL_JOB_PENDING);
	REFUSED(sl_jobs_prune(w->client, -1, NULL, &err), SL_EINVAL, "keep_ms");
	free(chains);
}

static int not_seven(const char *type, const char *json, struct sl_err *err, void *ctx)
{
	(void)ctx;
	return strcmp(json, "7") != 0 ? 0 : sl_err_set(err, SL_EDATA, "no 7 for %s", type);
}

static void a_registry_knows_the_types_and_checks_outputs_from_outside(void **state)
{
	struct world *w = *state;
	const struct sl_job_type t = {SL_JOB_TYPE_INIT, .name = "t", .priority = 9, .validate_output = not_seven};
	OK(sl_job_types_new(&w->types, NULL, &err));
	OK(sl_job_types_add(w->types, &t, &err));
	world_open(w);
	struct sl_new_chain typo = {.job.type = "tt"};
	struct sl_started s;
	struct sl_job *job;
	REFUSED(sl_jobs_enqueue(w->client, NULL, &typo, &s, &err), SL_EINVAL, "tt is not in the registry");
	uint64_t id = world_start(w, NULL, "t", NULL);
	OK(sl_jobs_get(w->client, id, &job, &err));
	assert_int_equal(job->priority, 9);
	sl_job_release(w->client, job);
	REFUSED(sl_jobs_complete(w->client, NULL, id, "7", &err), SL_EDATA, "output: no 7 for t");
	REFUSED(sl_jobs_complete(w->client, NULL, id, "7 7", &err), SL_EDATA, "output: line 1, column 3");
	REFUSED(sl_jobs_complete(w->client, NULL, 999, "8", &err), SL_ENOENT, "999");
	OK(sl_jobs_complete(w->client, NULL, id, "8", &err));
}

/* ---- what must not happen ---- */

static void options_are_checked(void **state)
{
	struct world *w = *state;
	sl_jobs *c;
	struct sl_store_ops old = *w->real.ops;
	old.version = SL_STORE_VERSION + 1;
	sl_store newer = {.ops = &old, .ctx = w->real.ctx};
	struct sl_jobs_opts opts = {SL_JOBS_OPTS_INIT};
	REFUSED(sl_jobs_open(&c, NULL, &err), SL_EINVAL, "store is missing");
	REFUSED(sl_jobs_open(&c, &opts, &err), SL_EINVAL, "store is missing");
	opts.store = &newer;
	REFUSED(sl_jobs_open(&c, &opts, &err), SL_EINVAL, "version");
	opts.store = &w->real;
	opts.wait_poll_ms = -1;
	REFUSED(sl_jobs_open(&c, &opts, &err), SL_EINVAL, "wait_poll_ms");
	sl_jobs_close(NULL);
}

static void a_forked_child_is_refused(void **state)
{
	struct world *w = *state;
	sl_tx *tx;
	uint64_t id = world_start(w, NULL, "a", NULL);
	assert_int_equal(sl_jobs_wait(w->client, id, 0, NULL, NULL), SL_ETIMEDOUT);
	OK(sl_jobs_begin(w->client, &tx, &err));
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct sl_new_chain chain = {.job.type = "a"};
		struct sl_started s;
		struct sl_job *job;
		sl_tx *other;
		int wrong = sl_jobs_enqueue(w->client, NULL, &chain, &s, NULL) != SL_EFORKED;
		wrong |= sl_jobs_enqueue(w->client, tx, &chain, &s, NULL) != SL_EFORKED;
		wrong |= sl_jobs_get(w->client, id, &job, NULL) != SL_EFORKED;
		wrong |= sl_jobs_list(w->client, NULL, show, NULL, NULL) != SL_EFORKED;
		wrong |= sl_jobs_wait(w->client, id, 0, NULL, NULL) != SL_EFORKED;
		wrong |= sl_jobs_begin(w->client, &other, NULL) != SL_EFORKED;
		wrong |= sl_tx_commit(tx, NULL) != SL_EFORKED;
		wrong |= sl_jobs_prune(w->client, 1, NULL, NULL) != SL_EFORKED;
		sl_tx_rollback(tx);
		sl_jobs_close(w->client);
		_exit(wrong);
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	sl_tx_rollback(tx);
}

/* One thing that a client does; 0 or an error. */
typedef int action_fn(struct world *w, struct sl_err *err);

static int act_open(struct world *w, struct sl_err *err)
{
	struct sl_jobs_opts opts = {SL_JOBS_OPTS_INIT, .env = &w->env, .store = &w->store};
	sl_jobs *c;
	int rc = sl_jobs_open(&c, &opts, err);
	if (rc == 0)
		sl_jobs_close(c);
	return rc;
}

static int act_start(struct world *w, struct sl_err *err)
{
	struct sl_new_chain chain = {.job.type = "a"};
	struct sl_started s;
	return sl_jobs_enqueue(w->client, NULL, &chain, &s, err);
}

static int act_start_blocked(struct world *w, struct sl_err *err)
{
	uint64_t ids[40];
	for (uint64_t i = 0; i < 40; i++)
		ids[i] = i + 1;
	struct sl_new_chain chain = {.job = {.type = "a", .blockers = ids, .n_blockers = 40}};
	struct sl_started s;
	return sl_jobs_enqueue(w->client, NULL, &chain, &s, err);
}

static int act_start_many(struct world *w, struct sl_err *err)
{
	enum { N = 10001 };
	struct sl_new_chain *chains = many_chains(N);
	struct sl_started *s = calloc(N, sizeof(*s));
	int rc = sl_jobs_enqueue_many(w->client, NULL, chains, N, s, err);
	free(chains);
	free(s);
	return rc;
}

static int act_tx(struct world *w, struct sl_err *err)
{
	struct sl_new_chain chain = {.job.type = "a"};
	struct sl_started s;
	sl_tx *tx;
	int rc = sl_jobs_begin(w->client, &tx, err);
	if (rc == 0) {
		rc = sl_tx_savepoint(tx, "sp", err);
		if (rc == 0)
			rc = sl_jobs_enqueue(w->client, tx, &chain, &s, err);
		sl_tx_rollback(tx);
	}
	return rc;
}

static int act_get(struct world *w, struct sl_err *err)
{
	struct sl_job *job = NULL;
	struct sl_chain *chain = NULL;
	int rc = sl_jobs_get(w->client, 1, &job, err);
	if (rc == 0)
		rc = sl_jobs_get_chain(w->client, 1, &chain, err);
	sl_job_release(w->client, job);
	sl_chain_release(w->client, chain);
	return rc;
}

static int nothing(const struct sl_job *job, void *ctx)
{
	(void)job;
	(void)ctx;
	return 0;
}

static int act_list(struct world *w, struct sl_err *err)
{
	int n = 0;
	struct sl_job_filter f = {SL_JOB_FILTER_INIT, .limit = 5};
	int rc = sl_jobs_list(w->client, &f, nothing, NULL, err);
	return rc != 0 ? rc : sl_jobs_list_chains(w->client, &f, show_chain, &n, err);
}

static int act_wait(struct world *w, struct sl_err *err)
{
	struct sl_chain *chain = NULL;
	int rc = sl_jobs_wait(w->client, 1, SL_UNLIMITED, &chain, err);
	sl_chain_release(w->client, chain);
	return rc;
}

/* Fail the first allocation, the second, … until none is left: a clean error and no leak, or, where memory is only
 * needed to notify others, success. */
static void starve(struct world *w, action_fn *act, int min_failures)
{
	int failures = 0;
	for (int64_t n = 1;; n++) {
		struct sl_err err = SL_ERR_INIT;
		int64_t live = fault_live_allocs(&w->fault);
		uint64_t jobs = world_jobs(w);
		fault_arm_mem(&w->fault, n, FAULT_ONCE);
		int rc = act(w, &err);
		fault_disarm(&w->fault);
		assert_int_equal(fault_live_allocs(&w->fault), live);
		bool failed = fault_mem_failed(&w->fault) > 0;
		if (rc != 0) {
			assert_int_equal(rc, SL_ENOMEM);
			assert_int_equal(err.code, SL_ENOMEM);
			assert_non_null(strstr(err.msg, "no memory"));
			assert_true(world_jobs(w) == jobs);
			failures++;
		}
		if (!failed) {
			assert_int_equal(rc, 0);
			break;
		}
	}
	assert_true(failures >= min_failures);
}

static void without_memory_there_is_a_clean_error_and_no_leak(void **state)
{
	struct world *w = *state;
	for (int i = 0; i < 45; i++)
		(void)world_start(w, NULL, "a", NULL);
	OK(sl_jobs_complete(w->client, NULL, 1, "{}", &err));
	starve(w, act_open, 1);
	starve(w, act_start, 0); /* needs none */
	starve(w, act_start_blocked, 1);
	starve(w, act_start_many, 2);
	starve(w, act_tx, 2);
	starve(w, act_get, 2);
	starve(w, act_list, 10);
	starve(w, act_wait, 1);
}

#define ON_MEMORY(test) cmocka_unit_test_setup_teardown(test, world_memory, world_gone)
#define ON_SQLITE(test)                                                                                                \
	{                                                                                                              \
#test " (sqlite)", test, world_sqlite, world_gone, NULL                                                \
	}
#define ON_BOTH(test) ON_MEMORY(test), ON_SQLITE(test)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_BOTH(what_was_started_can_be_read_back),
		ON_BOTH(a_start_that_is_refused_names_the_field_and_makes_nothing),
		ON_BOTH(many_chains_go_in_bites_of_one_transaction),
		ON_BOTH(one_bad_chain_among_many_undoes_all_of_them),
		ON_SQLITE(big_inputs_make_small_bites),
		ON_BOTH(the_notes_of_a_transaction_go_out_merged_after_its_commit),
		ON_BOTH(a_rollback_sends_no_notifications),
		ON_BOTH(a_failed_commit_sends_no_notifications),
		ON_BOTH(a_handler_cannot_end_the_transaction_of_its_attempt),
		ON_BOTH(a_rollback_to_a_savepoint_forgets_what_came_after_it),
		ON_BOTH(a_savepoint_that_is_released_takes_those_inside_of_it_along),
		ON_BOTH(a_transaction_of_another_store_is_refused),
		ON_MEMORY(what_the_store_refuses_of_a_transaction_is_refused),
		ON_MEMORY(observers_hear_of_every_change_of_a_transaction),
		ON_MEMORY(an_unavailable_notifier_fails_no_start),
		ON_BOTH(observers_and_metrics_hear_of_what_is_durable),
		ON_SQLITE(a_chain_and_the_callers_rows_are_one_transaction),
		ON_SQLITE(a_notifier_that_can_publishes_as_part_of_a_joined_transaction),
		ON_SQLITE(notifications_can_be_kept_for_after_the_callers_commit),
		ON_BOTH(a_listing_shows_every_row_once_and_lets_the_client_be_used),
		ON_BOTH(a_page_of_big_rows_ends_early_and_loses_none),
		ON_BOTH(rows_too_large_for_a_page_are_listed_whole_or_as_the_caller_bounds_them),
		ON_BOTH(a_wrong_filter_is_refused),
		ON_BOTH(events_are_shown_with_their_bytes_page_by_page),
		ON_BOTH(a_schedule_can_be_put_listed_and_removed),
		ON_BOTH(an_owner_hears_of_a_job_that_is_cancelled_completed_or_deleted),
		ON_BOTH(a_chain_is_failed_from_outside_with_its_error),
		ON_BOTH(a_change_inside_a_transaction_is_undone_with_it),
		ON_BOTH(a_blocker_is_deleted_only_with_those_that_wait_for_it),
		ON_BOTH(a_type_can_be_paused_and_resumed_and_a_schedule_triggered),
		ON_MEMORY(what_ended_long_ago_is_pruned_and_nothing_else),
		ON_BOTH(a_registry_knows_the_types_and_checks_outputs_from_outside),
		ON_MEMORY(options_are_checked),
		ON_MEMORY(a_forked_child_is_refused),
		ON_BOTH(without_memory_there_is_a_clean_error_and_no_leak),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
