/* SPDX-License-Identifier: Apache-2.0 */
/* Construction and start of a worker, its statistics, and which thread is woken when. stop.c stops it. */
#include "jobs/worker/worker.h"

#include <stdio.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "jobs/client/types.h"

#define SLOTS_MAX 10000
#define BATCH_MAX 10000
#define LANES_MAX 16

/* ---- memory of runs ---- */

void sl__run_release(struct sl__run *run, void *worker)
{
	sl_worker *w = worker;
	for (struct sl__owned *o = run->owned, *next; o != NULL; o = next) {
		next = o->next;
		sl__free(&w->home.env, o);
	}
	run->owned = NULL;
}

void *sl__run_memory(sl_worker *w, struct sl__run *run, size_t n)
{
	struct sl__owned *o = sl__alloc(&w->home.env, sizeof(*o) + n);
	if (o == NULL)
		return NULL;
	o->next = run->owned;
	run->owned = o;
	return o->data;
}

const char *sl__run_text(sl_worker *w, struct sl__run *run, const char *text)
{
	size_t n = strlen(text) + 1;
	char *copy = n <= sizeof(run->text) ? run->text : sl__run_memory(w, run, n);
	if (copy == NULL)
		return "the attempt failed (no memory for its reason)";
	memcpy(copy, text, n);
	for (size_t i = 0, len; copy[i] != '\0'; i += len) {
		len = sl__utf8_length(copy + i);
		if (len == 0) {
			copy[i] = '?';
			len = 1;
		}
	}
	return copy;
}

/* ---- waking ---- */

void sl__worker_wake_slot(sl_worker *w)
{
	struct sl_attempt *a = w->idle;
	if (a == NULL || w->waking > 0 || !sl__core_waiting(w->core))
		return;
	w->idle = a->next_idle;
	a->idle = false;
	w->waking++;
	sl__signal(&a->wake);
}

void sl__worker_wake(sl_worker *w, int64_t now_ns)
{
	sl__worker_wake_slot(w);
	for (unsigned i = 0; i < w->lanes_started; i++) {
		struct sl__lane *l = &w->lanes[i];
		if (l->asleep && (sl__core_ready(w->core, (int)i, now_ns) || sl__offer_lacks(w, l, now_ns))) {
			l->asleep = false;
			sl__signal(&l->wake);
		}
	}
	for (int i = 0; i < SL__KEEPERS; i++) {
		struct sl__keeper *k = &w->keepers[i];
		bool writes = k->todo.who == SL__REAPER && w->progress_due;
		if (k->until_ns > sl__core_wake_ns(w->core, k->todo.who, now_ns) ||
		    (k->until_ns != INT64_MIN && writes)) {
			k->until_ns = INT64_MIN;
			sl__signal(&k->wake);
		}
	}
	if (w->clock_until_ns > sl__core_next_abort_ns(w->core)) {
		w->clock_until_ns = INT64_MIN;
		sl__signal(&w->clock_wake);
	}
	if (w->waiters > 0)
		sl__broadcast(&w->changed);
}

void sl__worker_note(const struct sl_note *note, void *ctx)
{
	sl_worker *w = ctx;
	int64_t now = sl__mono_ns(&w->home.env);
	sl__lock(&w->mu);
	sl__core_note(w->core, note, now);
	sl__worker_wake(w, now);
	sl__unlock(&w->mu);
}

/* ---- listening to the store ---- */

static void hear_note(const struct sl_note *note, void *ctx)
{
	struct sl__heard *h = ctx;
	sl__notes_add(&h->notes, note);
}

static void hear_change(const struct sl_change *change, void *ctx)
{
	const struct sl__heard *h = ctx;
	h->outer->change(change, h->outer->ctx);
}

void sl__heard_init(struct sl__heard *h, const sl_worker *w, const struct sl_store_scope *outer)
{
	sl__notes_init(&h->notes, &w->home.env);
	h->outer = outer;
	h->scope = (struct sl_store_scope){
		.tx = outer->tx, .note = hear_note, .change = outer->change != NULL ? hear_change : NULL, .ctx = h};
}

void sl__heard_pass(const struct sl__heard *h)
{
	for (size_t i = 0; h->outer->note != NULL && i < h->notes.n; i++)
		h->outer->note(&h->notes.notes[i], h->outer->ctx);
}

/* ---- options ---- */

static int bad_worker_option(struct sl_err *err, const char *field, const char *what)
{
	return sl_err_set(err, SL_EINVAL, "worker options: %s %s", field, what);
}

static int fill_numbers(struct sl__core_cfg *cfg, const struct sl_worker_opts *o, struct sl_err *err)
{
	cfg->slots = o->slots != 0 ? o->slots : 1;
	cfg->claim_batch = o->claim_batch != 0 ? o->claim_batch : 256;
	cfg->lanes = o->lanes != 0 ? o->lanes : 1;
	cfg->poll_ms = o->poll_interval_ms != 0 ? o->poll_interval_ms : 60000;
	const struct {
		const char *field;
		int64_t value, least, most;
	} ranges[] = {{"slots", cfg->slots, 1, SLOTS_MAX},
		      {"claim_batch", cfg->claim_batch, 1, BATCH_MAX},
		      {"lanes", cfg->lanes, 1, LANES_MAX},
		      {"poll_interval_ms", cfg->poll_ms, 1, INT32_MAX},
		      {"next_job_delay_ms", o->next_job_delay_ms == SL_NONE ? 0 : o->next_job_delay_ms, 0, INT32_MAX}};
	for (size_t i = 0; i < SL_COUNT(ranges); i++)
		if (ranges[i].value < ranges[i].least || ranges[i].value > ranges[i].most)
			return sl_err_set(err, SL_EINVAL, "worker options: %s is %lld, and must be %lld to %lld",
					  ranges[i].field, (long long)ranges[i].value, (long long)ranges[i].least,
					  (long long)ranges[i].most);
	return 0;
}

static int resolve_type(sl_worker *w, size_t i, const struct sl_processor *p, const struct sl_worker_opts *o,
			struct sl_err *err)
{
	const struct sl_job_type own = {SL_JOB_TYPE_INIT,
					.retry = p->retry,
					.lease_ms = p->lease_ms,
					.renew_interval_ms = p->renew_interval_ms,
					.timeout_ms = p->timeout_ms,
					.slots = p->slots};
	const struct sl_job_type all = {SL_JOB_TYPE_INIT, .retry = o->retry, .lease_ms = o->lease_ms,
					.renew_interval_ms = o->renew_interval_ms};
	const struct sl_job_type *given = sl__job_types_given(o->types, p->type);
	const struct sl_job_type *const layers[] = {&own, given, &all};
	struct sl_job_type full;
	char *name = sl__strdup(&w->home.env, p->type);
	w->type_names[i] = name;
	if (name == NULL)
		return sl_err_set(err, SL_ENOMEM, "worker: out of memory");
	int rc = sl__job_type_resolve(&full, name, layers, SL_COUNT(layers), err);
	if (rc != 0)
		return rc;
	int64_t rest_ms = p->next_job_delay_ms != 0 ? p->next_job_delay_ms : o->next_job_delay_ms;
	rest_ms = rest_ms == SL_NONE ? 0 : rest_ms;
	if (rest_ms < 0 || rest_ms > INT32_MAX)
		return sl_err_set(err, SL_EINVAL, "type %s: next_job_delay_ms is %lld, and must be 0 to %d", name,
				  (long long)rest_ms, INT32_MAX);
	int32_t slots = full.slots == 0 || full.slots > w->cfg.slots ? w->cfg.slots : full.slots;
	w->core_types[i] = (struct sl__core_type){.name = name,
						  .retry = full.retry,
						  .lease_ms = full.lease_ms,
						  .renew_ms = full.renew_interval_ms,
						  .timeout_ms = full.timeout_ms,
						  .slots = slots,
						  .next_job_delay_ms = rest_ms};
	w->reap_types[i] = (struct sl_reap_type){.type = name, .retry = &w->core_types[i].retry};
	w->processes[i].fn = p->process;
	w->processes[i].ctx = p->ctx;
	w->processes[i].validates = given != NULL && given->validate_output != NULL;
	return 0;
}

static int fill_types(sl_worker *w, const struct sl_worker_opts *o, struct sl_err *err)
{
	const struct sl_env *env = &w->home.env;
	if (o->processors == NULL || o->n_processors == 0)
		return bad_worker_option(err, "processors", "are missing");
	w->processes = sl__calloc(env, o->n_processors, sizeof(*w->processes));
	w->core_types = sl__calloc(env, o->n_processors, sizeof(*w->core_types));
	w->type_names = sl__calloc(env, o->n_processors, sizeof(char *));
	w->reap_types = sl__calloc(env, o->n_processors, sizeof(*w->reap_types));
	if (w->processes == NULL || w->core_types == NULL || w->type_names == NULL || w->reap_types == NULL)
		return sl_err_set(err, SL_ENOMEM, "worker: out of memory");
	const char *at = (const char *)o->processors;
	for (size_t i = 0; i < o->n_processors; i++) {
		struct sl_processor p;
		size_t stride;
		memcpy(&stride, at, sizeof(stride));
		if (stride == 0)
			return bad_worker_option(err, "processors", "has one without its struct_size");
		sl__opts_copy(&p, sizeof(p), at);
		at += stride;
		int rc = sl__job_name_check(p.type, "processors: type", err);
		if (rc != 0)
			return rc;
		if (p.process == NULL)
			return sl_err_set(err, SL_EINVAL, "worker options: processors: %s has no process", p.type);
		for (size_t j = 0; j < i; j++)
			if (strcmp(w->type_names[j], p.type) == 0)
				return sl_err_set(err, SL_EINVAL, "worker options: processors: %s is listed twice",
						  p.type);
		w->n_types = i + 1;
		rc = resolve_type(w, i, &p, o, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static int make_id(sl_worker *w, const struct sl_env *env, const char *given, struct sl_err *err)
{
	uint8_t r[16];
	if (given != NULL) {
		if (given[0] == '\0' || strlen(given) > 128 || !sl__utf8_valid(given))
			return bad_worker_option(err, "worker_id", "must be 1 to 128 bytes of UTF-8");
		w->id = sl__strdup(env, given);
	} else {
		int rc = env->rand->fill(r, sizeof(r), env->rand_ctx);
		if (rc != 0)
			return sl_err_set_errno(err, -rc, "worker: a random id");
		r[6] = (uint8_t)((r[6] & 0x0F) | 0x40);
		r[8] = (uint8_t)((r[8] & 0x3F) | 0x80);
		w->id = sl__asprintf(env, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", r[0],
				     r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9], r[10], r[11], r[12], r[13],
				     r[14], r[15]);
	}
	return w->id != NULL ? 0 : sl_err_set(err, SL_ENOMEM, "worker: out of memory");
}

/* What heartbeats say, where the store keeps them. */
static int make_pulse(sl_worker *w, struct sl_err *err)
{
	struct sl__pulse *p = &w->pulse;
	struct sl__buf types;
	if (w->home.store.ops->heartbeat == NULL)
		return 0;
	w->cfg.heartbeat_ms = SL__HEARTBEAT_MS;
	if (gethostname(p->host, sizeof(p->host) - 1) != 0 || !sl__utf8_valid(p->host))
		(void)snprintf(p->host, sizeof(p->host), "?");
	sl__buf_init(&types, &w->home.env);
	for (size_t i = 0; i < w->n_types; i++)
		(void)sl__buf_printf(&types, "%s%s", i > 0 ? "," : "", w->type_names[i]);
	p->types = sl__buf_take(&types);
	sl__buf_fini(&types);
	return p->types != NULL ? 0 : sl_err_set(err, SL_ENOMEM, "worker: out of memory");
}

/* ---- construction ---- */

static int make_lanes(sl_worker *w, struct sl_err *err)
{
	const struct sl_env *env = &w->home.env;
	w->lanes = sl__calloc(env, (size_t)w->cfg.lanes, sizeof(*w->lanes));
	if (w->lanes == NULL)
		return sl_err_set(err, SL_ENOMEM, "worker: out of memory");
	for (int i = 0; i < w->cfg.lanes; i++) {
		struct sl__lane *l = &w->lanes[i];
		l->w = w;
		l->index = i;
		sl__cond_init(&l->wake);
		sl__effects_init(&l->fx, &w->home);
		sl__heard_init(&l->heard, w, &l->fx.scope);
	}
	for (int i = 0; i < w->cfg.lanes; i++) {
		struct sl__lane *l = &w->lanes[i];
		l->settles = sl__calloc(env, SL__SETTLE_MAX, sizeof(*l->settles));
		l->results = sl__calloc(env, SL__SETTLE_MAX, sizeof(*l->results));
		if (l->settles == NULL || l->results == NULL)
			return sl_err_set(err, SL_ENOMEM, "worker: out of memory");
		int rc = sl__todo_init(&l->todo, w->core, i, err);
		if (rc != 0)
			return rc;
	}
	/* The offer of the first lane. */
	struct sl__offering *o = &w->lanes[0].offering;
	if (w->home.store.ops->offer == NULL)
		return 0;
	o->lane = &w->lanes[0];
	o->types = sl__calloc(env, w->n_types, sizeof(*o->types));
	if (o->types == NULL)
		return sl_err_set(err, SL_ENOMEM, "worker: out of memory");
	return sl__todo_init(&o->todo, w->core, 0, err);
}

static int fill_worker(sl_worker *w, const struct sl_worker_opts *o, struct sl_err *err)
{
	const struct sl__home_opts home = {.what = "worker",
					   .env = o->env,
					   .store = o->store,
					   .notify = o->notify,
					   .observe = o->observe,
					   .observe_ctx = o->observe_ctx,
					   .worker = w->id};
	int rc = sl__home_init(&w->home, &home, err);
	if (rc != 0)
		return rc;
	rc = fill_numbers(&w->cfg, o, err);
	if (rc != 0)
		return rc;
	rc = fill_types(w, o, err);
	if (rc != 0)
		return rc;

	/* Middlewares. */
	w->n_middlewares = o->n_middlewares;
	w->middlewares = sl__calloc(&w->home.env, SL_MAX(o->n_middlewares, (size_t)1), sizeof(*w->middlewares));
	if (w->middlewares == NULL)
		return sl_err_set(err, SL_ENOMEM, "worker: out of memory");
	for (size_t i = 0; i < o->n_middlewares; i++) {
		if (o->middlewares[i].fn == NULL)
			return bad_worker_option(err, "middlewares", "has one without a function");
		w->middlewares[i] = o->middlewares[i];
	}

	rc = make_pulse(w, err);
	if (rc != 0)
		return rc;

	/* The core. */
	w->cfg.env = &w->home.env;
	w->cfg.worker = w->id;
	w->cfg.types = w->core_types;
	w->cfg.n_types = w->n_types;
	w->cfg.release = sl__run_release;
	w->cfg.release_ctx = w;
	rc = sl__core_new(&w->core, &w->cfg, sl__mono_ns(&w->home.env), err);
	if (rc != 0)
		return rc;

	/* Slots, lanes and keepers. */
	w->slots = sl__calloc(&w->home.env, (size_t)w->cfg.slots, sizeof(*w->slots));
	if (w->slots == NULL)
		return sl_err_set(err, SL_ENOMEM, "worker: out of memory");
	for (int32_t i = 0; i < w->cfg.slots; i++) {
		struct sl_attempt *a = &w->slots[i];
		a->w = w;
		a->index = (unsigned)i;
		a->abort_fd = -1;
		sl__cond_init(&a->wake);
		sl__cond_init(&a->abort_cond);
	}
	rc = make_lanes(w, err);
	if (rc != 0)
		return rc;
	for (int i = 0; i < SL__KEEPERS; i++) {
		w->keepers[i].w = w;
		rc = sl__todo_init(&w->keepers[i].todo, w->core, -1 - i, err);
		if (rc != 0)
			return rc;
	}
	return sl__report_init(w, err);
}

static void free_worker(sl_worker *w)
{
	struct sl_env env = w->home.env;
	sl__report_fini(w);
	for (int32_t i = 0; w->slots != NULL && i < w->cfg.slots; i++) {
		sl__cond_fini(&w->slots[i].wake);
		sl__cond_fini(&w->slots[i].abort_cond);
	}
	for (int32_t i = 0; w->lanes != NULL && i < w->cfg.lanes; i++) {
		struct sl__lane *l = &w->lanes[i];
		sl__free(&env, l->settles);
		sl__free(&env, l->results);
		sl__todo_fini(&l->todo, w->core);
		sl__todo_fini(&l->offering.todo, w->core);
		sl__free(&env, l->offering.types);
		sl__effects_fini(&l->fx);
		sl__notes_fini(&l->heard.notes);
		sl__cond_fini(&l->wake);
	}
	for (int i = 0; i < SL__KEEPERS; i++) {
		if (w->core != NULL)
			sl__todo_fini(&w->keepers[i].todo, w->core);
		sl__free(&env, w->keepers[i].losses);
		sl__cond_fini(&w->keepers[i].wake);
	}
	sl__core_free(w->core);
	for (size_t i = 0; i < w->n_types; i++)
		sl__free(&env, (void *)(uintptr_t)w->type_names[i]);
	sl__free(&env, w->type_names);
	sl__free(&env, w->reap_types);
	sl__free(&env, w->core_types);
	sl__free(&env, w->processes);
	sl__free(&env, w->middlewares);
	sl__free(&env, w->slots);
	sl__free(&env, w->lanes);
	sl__free(&env, w->pulse.types);
	sl__free(&env, w->id);
	sl__cond_fini(&w->changed);
	sl__cond_fini(&w->clock_wake);
	sl__cond_fini(&w->log_wake);
	sl__mutex_fini(&w->mu);
	sl__free(&env, w);
}

int sl_worker_new(sl_worker **out, const struct sl_worker_opts *opts, struct sl_err *err)
{
	struct sl_worker_opts o;
	struct sl_env env;
	sl__opts_copy(&o, sizeof(o), opts);
	int rc = sl__env_init(&env, o.env, err);
	if (rc != 0)
		return rc;
	sl_worker *w = sl__calloc(&env, 1, sizeof(*w));
	if (w == NULL)
		return sl_err_set(err, SL_ENOMEM, "worker: out of memory");
	w->home.env = env;
	w->types = o.types;
	w->events = o.events;
	w->retains = o.retention != NULL;
	sl__opts_copy(&w->keep, sizeof(w->keep), o.retention);
	w->clock_until_ns = INT64_MIN;
	sl__mutex_init(&w->mu);
	sl__cond_init(&w->changed);
	for (int i = 0; i < SL__KEEPERS; i++) {
		w->keepers[i].until_ns = INT64_MIN;
		sl__cond_init(&w->keepers[i].wake);
	}
	sl__cond_init(&w->clock_wake);
	sl__cond_init(&w->log_wake);
	rc = make_id(w, &env, o.worker_id, err);
	if (rc == 0)
		rc = fill_worker(w, &o, err);
	if (rc != 0) {
		w->home.env = env; /* whatever became of the home */
		free_worker(w);
		return rc;
	}
	*out = w;
	return 0;
}

/* ---- starting ---- */

static int start_threads(sl_worker *w, struct sl_err *err) SL_REQUIRES(w->mu)
{
	static const char *const keepers[][2] = {
		{"keeper", "sl-keeper"}, {"reaper", "sl-reaper"}, {"scheduler", "sl-cron"}};
	char name[32];
	int rc;
	for (int32_t i = 0; i < w->cfg.slots; i++, w->n_started++) {
		(void)snprintf(name, sizeof(name), "sl-slot-%d", (int)i);
		rc = sl__thread_start(&w->slots[i].thread, name, sl__slot_main, &w->slots[i]);
		if (rc != 0)
			return sl__thread_error(err, rc, "slot", "worker");
	}
	rc = sl__thread_start(&w->clock_thread, "sl-clock", sl__clock_main, w);
	if (rc != 0)
		return sl__thread_error(err, rc, "clock", "worker");
	w->clock_started = true;
	for (int i = 0; i < SL__KEEPERS; i++) {
		rc = sl__thread_start(&w->keepers[i].thread, keepers[i][1], sl__keeper_main, &w->keepers[i]);
		if (rc != 0)
			return sl__thread_error(err, rc, keepers[i][0], "worker");
		w->keepers[i].started = true;
	}
	if (w->events != NULL) {
		rc = sl__thread_start(&w->log_thread, "sl-log", sl__log_main, w);
		if (rc != 0)
			return sl__thread_error(err, rc, "log", "worker");
		w->log_started = true;
	}
	for (int32_t i = 0; i < w->cfg.lanes; i++, w->lanes_started++) {
		(void)snprintf(name, sizeof(name), "sl-lane-%d", (int)i);
		rc = sl__thread_start(&w->lanes[i].thread, name, sl__lane_main, &w->lanes[i]);
		if (rc != 0)
			return sl__thread_error(err, rc, "lane", "worker");
	}
	return 0;
}

int sl_worker_start(sl_worker *w, struct sl_err *err)
{
	int rc = sl__home_check(&w->home, err);
	if (rc != 0)
		return rc;
	sl__lock(&w->mu);
	bool fresh = w->state == SL__WORKER_NEW;
	if (fresh)
		w->state = SL__WORKER_RUNS;
	sl__unlock(&w->mu);
	if (!fresh)
		return sl_err_set(err, SL_EINVAL, "worker: it was started before");
	const sl_notify *notify = w->home.notify;
	if (notify != NULL) {
		rc = notify->ops->subscribe(notify->ctx, sl__worker_note, w, err);
		w->subscribed = rc == 0;
	}
	/* The threads are started with the lock held, so that none of them sees the others half counted. */
	sl__lock(&w->mu);
	w->pulse.started_ns = sl__mono_ns(&w->home.env);
	if (rc == 0)
		rc = start_threads(w, err);
	sl__unlock(&w->mu);
	const struct sl_retention_opts retention = {SL_RETENTION_OPTS_INIT, .env = &w->home.env,
						    .store = &w->home.store, .keep = w->keep};
	if (rc == 0 && w->retains)
		rc = sl_retention_start(&w->retention, &retention, err);
	if (rc != 0) {
		int stopped = sl_worker_stop(w, 0, NULL);
		(void)stopped;
		return rc;
	}
	sl__report_worker(w, SL_OBSERVE_WORKER_STARTED, NULL);
	return 0;
}

void sl_worker_free(sl_worker *w)
{
	if (w == NULL || sl__home_check(&w->home, NULL) != 0)
		return;
	/* All threads are gone, whatever it says; but where it is refused, they are not, and neither is the worker. */
	if (sl_worker_stop(w, 0, NULL) != SL_EINVAL)
		free_worker(w);
}

/* ---- statistics ---- */

const char *sl_worker_id(const sl_worker *w)
{
	return w->id;
}

void sl_worker_get_stats(sl_worker *w, struct sl_worker_stats *out)
{
	sl__lock(&w->mu);
	const struct sl__core_stats *s = sl__core_stats(w->core);
	const struct sl_worker_stats full = {.struct_size = sizeof(full),
					     .busy = s->busy,
					     .connected = s->connected,
					     .slots = (uint32_t)w->cfg.slots,
					     .claimed = s->claimed,
					     .completed = s->completed,
					     .failed = s->failed,
					     .retried = s->retried,
					     .lost = s->lost,
					     .reaped = s->reaped,
					     .released = s->released,
					     .renewals = s->renewals,
					     .exchanges = s->exchanges,
					     .polls = s->polls,
					     .notified = s->notified};
	sl__unlock(&w->mu);
	sl__result_copy(out, &full, sizeof(full));
}
