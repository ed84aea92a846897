/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/rig.h"

#include <poll.h>

#include "base/env.h"
#include "pipeline/partition.h"

struct output {
	uint8_t digest[SL__SHA256_BYTES];
};

void rig_lock(struct rig *r)
{
	pthread_mutex_lock(&r->mu);
}

void rig_unlock(struct rig *r)
{
	pthread_mutex_unlock(&r->mu);
}

void rig_wait(struct rig *r)
{
	pthread_cond_wait(&r->changed, &r->mu);
}

void rig_tell(struct rig *r)
{
	pthread_cond_broadcast(&r->changed);
}

static void count(struct rig *r, int *live, int *most, int by)
{
	rig_lock(r);
	*live += by;
	if (most != NULL && *live > *most)
		*most = *live;
	rig_unlock(r);
}

/* ---- the source ---- */

static bool give(struct rig *r, struct sl_pipeline_element *out)
{
	if (r->script != NULL) {
		if (r->given == r->n_script)
			return false;
		*out = r->script[r->given++];
		return true;
	}
	if (!r->at_begun)
		r->at = r->from;
	r->at_begun = true;
	if (r->at > r->to)
		return false;
	uint64_t end = sl__partition_end(r->at, r->o.partition_size);
	out->first = r->at;
	out->last = SL_MIN(SL_MIN(r->at + r->run - 1, r->to), end);
	r->at = out->last + 1;
	return true;
}

static int next(struct sl_pipeline_element *out, struct sl_err *err, void *ctx)
{
	struct rig *r = ctx;
	if (give(r, out)) {
		out->data = malloc(1);
		out->bytes = r->bytes;
		count(r, &r->live_elements, &r->live_elements_max, 1);
		return 0;
	}
	atomic_store(&r->at_end, 1);
	if (r->wait_at_end) {
		struct pollfd look = {.fd = sl_pipeline_stop_fd(r->p), .events = POLLIN};
		(void)poll(&look, 1, -1);
	}
	return r->end_rc < 0 ? sl_err_set(err, r->end_rc, "the source broke") : r->end_rc;
}

static void describe(const struct sl_pipeline_element *e, char *text, size_t n, void *ctx)
{
	(void)e;
	(void)snprintf(text, n, "place %zu", ((struct rig *)ctx)->given);
}

static void interrupt(void *ctx)
{
	atomic_fetch_add(&((struct rig *)ctx)->interrupts, 1);
}

static void release_element(struct sl_pipeline_element *e, void *ctx)
{
	struct rig *r = ctx;
	free(e->data);
	count(r, &r->live_elements, NULL, -1);
}

/* ---- the workers ---- */

static int worker_init(unsigned index, void **state, struct sl_err *err, void *ctx)
{
	struct rig *r = ctx;
	(void)err;
	(void)index;
	*state = malloc(1);
	count(r, &r->live_states, NULL, 1);
	return 0;
}

static void worker_free(void *state, void *ctx)
{
	struct rig *r = ctx;
	free(state);
	count(r, &r->live_states, NULL, -1);
}

static void digest_range(uint64_t start, uint64_t end, uint8_t out[SL__SHA256_BYTES])
{
	uint64_t both[2] = {start, end};
	if (sl__sha256(both, sizeof(both), out, NULL) != 0)
		abort();
}

/* The elements must cover the partition; a hole gives another digest. */
static void digest_elements(const struct sl_pipeline_partition *p, uint8_t out[SL__SHA256_BYTES])
{
	uint64_t at = p->start;
	for (size_t i = 0; i < p->n_elements; i++) {
		if (p->elements[i].first != at || p->elements[i].data == NULL)
			abort();
		at = p->elements[i].last + 1;
	}
	digest_range(p->start, at - 1, out);
}

static int build(void *state, const struct sl_pipeline_partition *p, void **out, struct sl_err *err, void *ctx)
{
	struct rig *r = ctx;
	rig_lock(r);
	r->builds++;
	rig_unlock(r);
	if (state == NULL || *out != NULL)
		abort();
	int rc = r->on_build != NULL ? r->on_build(r, p, err) : 0;
	if (rc != 0)
		return rc;
	struct output *o = malloc(sizeof(*o));
	digest_elements(p, o->digest);
	*out = o;
	count(r, &r->live_outputs, &r->live_outputs_max, 1);
	return 0;
}

static int store(void *state, const struct sl_pipeline_partition *p, void *out, void **ref, struct sl_err *err,
		 void *ctx)
{
	struct rig *r = ctx;
	rig_lock(r);
	r->stores++;
	rig_unlock(r);
	if (state == NULL || out == NULL || *ref != NULL)
		abort();
	int rc = r->on_store != NULL ? r->on_store(r, p, err) : 0;
	if (rc != 0)
		return rc;
	*ref = malloc(1);
	count(r, &r->live_refs, NULL, 1);
	return 0;
}

static void release_output(void *out, void *ctx)
{
	struct rig *r = ctx;
	free(out);
	count(r, &r->live_outputs, NULL, -1);
}

static void release_ref(void *ref, void *ctx)
{
	struct rig *r = ctx;
	free(ref);
	count(r, &r->live_refs, NULL, -1);
}

/* ---- the commit ---- */

static void link_hash(const uint8_t *prev, const uint8_t *digest, uint64_t start, uint64_t end, uint8_t *out)
{
	uint8_t event[2 * SL__SHA256_BYTES + 16];
	memcpy(event, prev, SL__SHA256_BYTES);
	memcpy(event + SL__SHA256_BYTES, digest, SL__SHA256_BYTES);
	memcpy(event + sizeof(event) - 16, &start, 8);
	memcpy(event + sizeof(event) - 8, &end, 8);
	if (sl__sha256(event, sizeof(event), out, NULL) != 0)
		abort();
}

static void append(struct rig *r, const struct sl_pipeline_partition *p, const struct output *o)
{
	static const uint8_t none[SL__SHA256_BYTES];
	if (r->n_commits == RIG_COMMITS)
		abort();
	struct rig_commit *c = &r->commits[r->n_commits];
	c->start = p->start;
	c->end = p->end;
	link_hash(r->n_commits > 0 ? c[-1].chain : none, o->digest, p->start, p->end, c->chain);
	r->n_commits++;
}

static int commit(const struct sl_pipeline_partition *p, void *out, void *ref, struct sl_err *err, void *ctx)
{
	struct rig *r = ctx;
	if (ref == NULL || p->n_elements != 0)
		abort();
	rig_lock(r);
	r->tries++;
	r->overlapped |= r->committing++ != 0;
	rig_unlock(r);
	int rc = r->on_commit != NULL ? r->on_commit(r, p, err) : 0;
	rig_lock(r);
	r->committing--;
	if (rc == 0)
		append(r, p, out);
	rig_tell(r);
	rig_unlock(r);
	return rc;
}

static void step(const char *name, const struct sl_pipeline_partition *p, void *ctx)
{
	struct rig *r = ctx;
	if (r->on_step != NULL)
		r->on_step(name, p, ctx);
}

void rig_assert_chain(struct rig *r, uint64_t from, uint64_t to, uint64_t size)
{
	uint8_t chain[SL__SHA256_BYTES] = {0};
	size_t i = 0;
	for (uint64_t start = from; start <= to; i++) {
		uint64_t end = SL_MIN(start - start % size + size - 1, to);
		uint8_t digest[SL__SHA256_BYTES], linked[SL__SHA256_BYTES];
		assert_true(i < r->n_commits);
		assert_int_equal(r->commits[i].start, start);
		assert_int_equal(r->commits[i].end, end);
		digest_range(start, end, digest);
		link_hash(chain, digest, start, end, linked);
		memcpy(chain, linked, sizeof(chain));
		assert_memory_equal(r->commits[i].chain, chain, sizeof(chain));
		start = end + 1;
	}
	assert_int_equal(r->n_commits, i);
	assert_false(r->overlapped);
}

/* ---- running ---- */

static void log_record(const struct sl_log_record *record, void *ctx)
{
	struct rig *r = ctx;
	rig_lock(r);
	r->errors += record->level == SL_LOG_ERROR;
	r->warnings += record->level == SL_LOG_WARN;
	if (record->level >= SL_LOG_WARN)
		(void)sl_log_format(record, SL_LOG_LOGFMT, r->last_record, sizeof(r->last_record));
	rig_unlock(r);
}

void rig_init(struct rig *r)
{
	memset(r, 0, sizeof(*r));
	vclock_init(&r->clock);
	fault_init(&r->fault, NULL);
	struct sl_env base = {SL_ENV_INIT, .clock = &vclock_table, .clock_ctx = &r->clock, .log = log_record,
			      .log_ctx = r};
	r->env = fault_env(&r->fault, &base);
	pthread_mutex_init(&r->mu, NULL);
	pthread_cond_init(&r->changed, NULL);
	r->to = 59;
	r->run = 1;
	r->end_rc = SL_PIPELINE_END;
	r->ops = (struct sl_pipeline_ops){.version = SL_PIPELINE_OPS_VERSION,
					  .next = next,
					  .describe = describe,
					  .interrupt = interrupt,
					  .worker_init = worker_init,
					  .worker_free = worker_free,
					  .build = build,
					  .store = store,
					  .commit = commit,
					  .release_element = release_element,
					  .release_output = release_output,
					  .release_ref = release_ref};
	r->o = (struct sl_pipeline_opts){SL_PIPELINE_OPTS_INIT, .env = &r->env, .ops = &r->ops, .ctx = r,
					 .partition_size = 10,  .on_step = step};
}

static void assert_all_given_back(struct rig *r)
{
	assert_int_equal(r->live_elements, 0);
	assert_int_equal(r->live_outputs, 0);
	assert_int_equal(r->live_refs, 0);
	assert_int_equal(r->live_states, 0);
}

void rig_fini(struct rig *r)
{
	sl_pipeline_free(r->p);
	assert_all_given_back(r);
	assert_int_equal(fault_live_allocs(&r->fault), 0);
	fault_fini(&r->fault);
	vclock_fini(&r->clock);
	pthread_cond_destroy(&r->changed);
	pthread_mutex_destroy(&r->mu);
}

int rig_setup(void **state)
{
	struct rig *r = malloc(sizeof(*r));
	rig_init(r);
	*state = r;
	return 0;
}

int rig_teardown(void **state)
{
	rig_fini(*state);
	free(*state);
	return 0;
}

void rig_new(struct rig *r)
{
	sl_pipeline_free(r->p);
	r->p = NULL;
	r->given = 0;
	r->at_begun = false;
	atomic_store(&r->at_end, 0);
	atomic_store(&r->interrupts, 0);
	r->stats = (struct sl_pipeline_stats){.struct_size = sizeof(r->stats)};
	r->err = (struct sl_err)SL_ERR_INIT;
	if (sl_pipeline_new(&r->p, &r->o, &r->err) != 0)
		fail_msg("sl_pipeline_new: %s", r->err.msg);
}

static void *run_main(void *arg)
{
	struct rig *r = arg;
	r->rc = sl_pipeline_run(r->p, &r->stats, &r->err);
	return NULL;
}

void rig_start(struct rig *r)
{
	rig_new(r);
	assert_int_equal(pthread_create(&r->thread, NULL, run_main, r), 0);
}

int rig_join(struct rig *r)
{
	pthread_join(r->thread, NULL);
	assert_all_given_back(r);
	return r->rc;
}

int rig_run(struct rig *r)
{
	rig_new(r);
	(void)run_main(r);
	assert_all_given_back(r);
	return r->rc;
}

int rig_resume(struct rig *r)
{
	if (r->n_commits > 0) {
		r->o.begin = SL_PIPELINE_AT;
		r->o.first = r->commits[r->n_commits - 1].end + 1;
	}
	return rig_run(r);
}
