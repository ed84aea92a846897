/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/kit.h"

uintptr_t kit_value(const struct kit *k, const void *data)
{
	uint64_t v;
	if (!k->bytes)
		return (uintptr_t)data;
	memcpy(&v, data, sizeof(v));
	return v;
}

static void note(struct kit *k, const struct sl_sink_batch *batch, int rc, int number)
{
	pthread_mutex_lock(&k->mu);
	if (number <= KIT_WRITES) {
		struct kit_write *w = &k->writes[number - 1];
		*w = (struct kit_write){.n = batch->n,
					.first = kit_value(k, batch->items[0].data),
					.rc = rc,
					.tries = batch->tries,
					.ordered = batch->ordered};
		memcpy(w->id, batch->id, sizeof(w->id));
	}
	while (rc == 0 && k->n_written + batch->n > k->cap_written) {
		k->cap_written = k->cap_written != 0 ? 2 * k->cap_written : 1024;
		k->written = realloc(k->written, k->cap_written * sizeof(*k->written));
		assert_non_null(k->written);
	}
	for (size_t i = 0; i < batch->n && rc == 0; i++)
		k->written[k->n_written++] = kit_value(k, batch->items[i].data);
	k->in_write--;
	pthread_cond_broadcast(&k->changed);
	pthread_mutex_unlock(&k->mu);
}

static void stay(struct kit *k, int number)
{
	atomic_fetch_add(&k->n_held, 1);
	vclock_look_again(&k->clock);
	while (k->hold && number > k->let_go)
		pthread_cond_wait(&k->changed, &k->mu);
	atomic_fetch_sub(&k->n_held, 1);
}

static int kit_write(void *sink, void *lane, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
		     struct sl_err *err)
{
	struct kit *k = sink;
	(void)lane;
	pthread_mutex_lock(&k->mu);
	int number = ++k->n_writes;
	k->in_write++;
	if (k->in_write > k->max_in_write)
		k->max_in_write = k->in_write;
	pthread_cond_broadcast(&k->changed);
	if (k->hold && number > k->let_go)
		stay(k, number);
	kit_script *script = k->script;
	pthread_mutex_unlock(&k->mu);
	int rc = script != NULL ? script(k, number, batch, reply, err) : 0;
	note(k, batch, rc, number);
	return rc;
}

static int kit_attach(void *sink, void **lane, struct sl_err *err)
{
	struct kit *k = sink;
	(void)err;
	pthread_mutex_lock(&k->mu);
	k->attached++;
	pthread_mutex_unlock(&k->mu);
	*lane = k;
	return 0;
}

static void kit_detach(void *sink, void *lane)
{
	struct kit *k = sink;
	(void)lane;
	pthread_mutex_lock(&k->mu);
	k->detached++;
	pthread_cond_broadcast(&k->changed);
	pthread_mutex_unlock(&k->mu);
}

static void kit_cancel(void *sink)
{
	struct kit *k = sink;
	pthread_mutex_lock(&k->mu);
	k->cancelled++;
	pthread_cond_broadcast(&k->changed);
	pthread_mutex_unlock(&k->mu);
}

static const char *kit_target(void *sink)
{
	(void)sink;
	return "kit:target";
}

/* ---- callbacks ---- */

static void on_high(void *ctx)
{
	struct kit *k = ctx;
	pthread_mutex_lock(&k->mu);
	k->marks[k->n_marks++ % 63] = 'H';
	pthread_cond_broadcast(&k->changed);
	pthread_mutex_unlock(&k->mu);
}

static void on_low(void *ctx)
{
	struct kit *k = ctx;
	pthread_mutex_lock(&k->mu);
	k->marks[k->n_marks++ % 63] = 'L';
	pthread_cond_broadcast(&k->changed);
	pthread_mutex_unlock(&k->mu);
}

static void on_drop(const struct sl_item *item, void *ctx)
{
	struct kit *k = ctx;
	pthread_mutex_lock(&k->mu);
	k->dropped[k->n_dropped++ % 1024] = kit_value(k, item->data);
	pthread_mutex_unlock(&k->mu);
}

static void on_dead(const struct sl_item *item, const struct sl_err *err, uint32_t attempts, void *ctx)
{
	struct kit *k = ctx;
	pthread_mutex_lock(&k->mu);
	k->dead[k->n_dead % 1024] = kit_value(k, item->data);
	k->dead_attempts[k->n_dead++ % 1024] = attempts;
	k->dead_err = *err;
	pthread_cond_broadcast(&k->changed);
	pthread_mutex_unlock(&k->mu);
}

static void on_returned(const struct sl_item *item, void *ctx)
{
	struct kit *k = ctx;
	pthread_mutex_lock(&k->mu);
	k->returned[k->n_returned++ % 65536] = kit_value(k, item->data);
	pthread_mutex_unlock(&k->mu);
}

void kit_done(enum sl_item_end end, const struct sl_err *err, void *ctx)
{
	struct kit *k = ctx;
	assert_true((end == SL_ITEM_DEAD) == (err != NULL));
	pthread_mutex_lock(&k->mu);
	k->ends[end]++;
	pthread_cond_broadcast(&k->changed);
	pthread_mutex_unlock(&k->mu);
}

/* ---- the fixture ---- */

int kit_set_up(void **state)
{
	struct kit *k = calloc(1, sizeof(*k));
	assert_non_null(k);
	vclock_init(&k->clock);
	k->env = (struct sl_env){SL_ENV_INIT, .clock = &vclock_table, .clock_ctx = &k->clock};
	pthread_mutex_init(&k->mu, NULL);
	pthread_cond_init(&k->changed, NULL);
	k->ops = (struct sl_sink_ops){.version = SL_SINK_VERSION,
				      .name = "kit",
				      .attach = kit_attach,
				      .detach = kit_detach,
				      .write = kit_write,
				      .cancel = kit_cancel,
				      .target = kit_target};
	k->sink = (sl_sink){.ops = &k->ops, .ctx = k};
	*state = k;
	return 0;
}

int kit_tear_down(void **state)
{
	struct kit *k = *state;
	if (k->c != NULL) {
		kit_release_all(k);
		int rc = sl_coordinator_stop(k->c, 0, NULL, NULL);
		(void)rc;
		rc = sl_coordinator_free(k->c);
		assert_int_equal(rc, 0);
	}
	vclock_fini(&k->clock);
	pthread_mutex_destroy(&k->mu);
	pthread_cond_destroy(&k->changed);
	free(k->written);
	free(k);
	return 0;
}

void kit_new(struct kit *k, struct sl_coordinator_opts opts)
{
	struct sl_err err = SL_ERR_INIT;
	opts.struct_size = sizeof(opts);
	opts.env = &k->env;
	k->workers_max = opts.scaling.workers_max != 0 ? opts.scaling.workers_max : opts.workers;
	if (!k->bytes)
		opts.items.kind = SL_ITEM_POINTERS;
	opts.backpressure.on_high = on_high;
	opts.backpressure.on_low = on_low;
	opts.backpressure.ctx = k;
	opts.drop_callback = on_drop;
	opts.drop_ctx = k;
	opts.unwritten.on_dead = on_dead;
	opts.unwritten.dead_ctx = k;
	if (opts.unwritten.returned_ctx == NULL) {
		opts.unwritten.on_returned = on_returned;
		opts.unwritten.returned_ctx = k;
	}
	int rc = sl_coordinator_new(&k->c, &k->sink, &opts, &err);
	if (rc != 0)
		print_error("%s\n", err.msg);
	assert_int_equal(rc, 0);
}

#define AWAIT(k, condition)                                                                                            \
	do {                                                                                                           \
		pthread_mutex_lock(&(k)->mu);                                                                          \
		while (!(condition))                                                                                   \
			pthread_cond_wait(&(k)->changed, &(k)->mu);                                                    \
		pthread_mutex_unlock(&(k)->mu);                                                                        \
	} while (0)

void kit_await_writes(struct kit *k, int n)
{
	AWAIT(k, k->n_writes >= n);
}

void kit_await_in_write(struct kit *k, int n)
{
	AWAIT(k, k->in_write >= n);
}

void kit_await_written(struct kit *k, size_t n)
{
	AWAIT(k, k->n_written >= n);
}

void kit_await_dead(struct kit *k, int n)
{
	AWAIT(k, k->n_dead >= n);
}

void kit_await_marks(struct kit *k, int n)
{
	AWAIT(k, k->n_marks >= n);
}

void kit_await_cancelled(struct kit *k)
{
	AWAIT(k, k->cancelled > 0);
}

void kit_await_calm(struct kit *k, int waiters)
{
	vclock_await_waiters(&k->clock, waiters);
}

/* Who was let go is on the way. Only the test's thread calls this, and changes hold. */
static int held(void *ctx)
{
	struct kit *k = ctx;
	return k->hold ? atomic_load(&k->n_held) : 0;
}

void kit_settle(struct kit *k)
{
	assert_true(k->workers_max > 0);
	int n = k->workers_max + 2;               /* the keeper, the notifier */
	for (int round = 0; round < 3; round++) { /* the keeper wakes a worker, that the keeper or another one */
		vclock_poke(&k->clock);
		vclock_await_rest(&k->clock, n, held, k);
	}
}

void kit_pass(struct kit *k)
{
	(void)vclock_advance_to_next(&k->clock);
	kit_settle(k);
}

int kit_count_writes(struct kit *k)
{
	pthread_mutex_lock(&k->mu);
	int n = k->n_writes;
	pthread_mutex_unlock(&k->mu);
	return n;
}

void kit_set_script(struct kit *k, kit_script *script)
{
	pthread_mutex_lock(&k->mu);
	k->script = script;
	pthread_mutex_unlock(&k->mu);
}

void kit_hold(struct kit *k)
{
	pthread_mutex_lock(&k->mu);
	k->hold = true;
	k->let_go = k->n_writes;
	pthread_mutex_unlock(&k->mu);
}

void kit_release(struct kit *k, int n)
{
	pthread_mutex_lock(&k->mu);
	k->let_go += n;
	pthread_cond_broadcast(&k->changed);
	pthread_mutex_unlock(&k->mu);
}

void kit_release_all(struct kit *k)
{
	pthread_mutex_lock(&k->mu);
	k->hold = false;
	pthread_cond_broadcast(&k->changed);
	pthread_mutex_unlock(&k->mu);
}

void kit_submit(struct kit *k, uintptr_t first, uintptr_t last)
{
	for (uintptr_t i = first; i <= last; i++) {
		uint64_t v = i;
		assert_int_equal(k->bytes ? sl_coordinator_submit(k->c, &v, sizeof(v), SL_UNLIMITED)
					  : sl_coordinator_submit(k->c, ITEM(i), 0, SL_UNLIMITED),
				 0);
	}
}

void kit_hold_first(struct kit *k)
{
	kit_hold(k);
	kit_submit(k, 1, 1);
	kit_await_in_write(k, 1);
}

struct sl_coordinator_health kit_health(struct kit *k)
{
	struct sl_coordinator_health h = {.struct_size = sizeof(h)};
	assert_int_equal(sl_coordinator_get_health(k->c, &h), 0);
	return h;
}

void kit_check_equation(struct kit *k)
{
	struct sl_coordinator_health h = kit_health(k);
	assert_int_equal(h.accepted,
			 h.written + h.dead_letters + h.dropped + h.returned + h.queue_size + h.in_flight + h.retrying);
}

void kit_finish(struct kit *k, int rc)
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_coordinator_report r = {.struct_size = sizeof(r)};
	int got = sl_coordinator_stop(k->c, SL_UNLIMITED, &r, &err);
	if (got != rc)
		print_error("stop: %d %s\n", got, err.msg);
	assert_int_equal(got, rc);
	assert_int_equal(r.accepted, r.written + r.dead + r.dropped + r.returned + r.unknown);
	assert_int_equal(sl_coordinator_free(k->c), 0);
	k->c = NULL;
}

int kit_fail(struct sl_err *err, enum sl_err_class error_class)
{
	int rc = sl_err_set(err, SL_EUNAVAIL, "the test makes this fail");
	err->error_class = error_class;
	return rc;
}

#define FAILS(name, error_class)                                                                                       \
	int name(struct kit *k, int number, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,            \
		 struct sl_err *err)                                                                                   \
	{                                                                                                              \
		(void)k, (void)number, (void)batch, (void)reply;                                                       \
		return kit_fail(err, error_class);                                                                     \
	}
FAILS(kit_fail_transient, SL_CLASS_TRANSIENT)
FAILS(kit_fail_fatal, SL_CLASS_FATAL)
FAILS(kit_fail_poison, SL_CLASS_POISON)

int kit_fail_cancelled(struct kit *k, int number, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
		       struct sl_err *err)
{
	(void)number, (void)batch, (void)reply;
	kit_await_cancelled(k);
	return kit_fail(err, SL_CLASS_TRANSIENT);
}
