/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The starter holds `mu` while it creates the threads; each thread passes through it before it reads `aborted`. So
 * no thread enters fn before all exist, and a start that fails half-way only has to say so and join. A mutex and not a
 * condition: a virtual clock must not see these threads as waiters.
 *
 * Locks: join_mu is held while joining, so that every caller of stop returns only when all threads are gone; mu is
 * taken for a moment at a time, also inside join_mu. A thread of the pool never takes join_mu.
 */
#include "flow/pool.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

struct worker {
	sl__pool *pool;
	pthread_t thread;
	unsigned index;
	bool left; /* under mu: out of fn; from here on the system may give its id to another thread */
};

struct sl__pool {
	struct sl_env env;
	sl__pool_fn *fn;
	sl__pool_wake_fn *wake;
	void *ctx;
	pid_t pid;
	sl__mutex mu;
	bool aborted; /* under mu: the start failed, fn is not to be entered */
	sl__mutex join_mu;
	bool joined; /* under join_mu */
	atomic_bool stopping;
	unsigned n;
	struct worker workers[];
};

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	sl__pool *p = w->pool;
	sl__lock(&p->mu);
	bool aborted = p->aborted;
	sl__unlock(&p->mu);
	if (!aborted)
		p->fn(w->index, p->ctx);
	sl__lock(&p->mu);
	w->left = true;
	sl__unlock(&p->mu);
	return NULL;
}

static void join_all(sl__pool *p, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		(void)pthread_join(p->workers[i].thread, NULL);
}

static void destroy(sl__pool *p)
{
	sl__mutex_fini(&p->mu);
	sl__mutex_fini(&p->join_mu);
	struct sl_env env = p->env;
	sl__free(&env, p);
}

int sl__pool_start(sl__pool **out, const struct sl_env *env, const char *name, unsigned n, sl__pool_fn *fn,
		   sl__pool_wake_fn *wake, void *ctx, struct sl_err *err)
{
	if (n == 0 || n > SL__POOL_MAX)
		return sl_err_set(err, SL_EINVAL, "pool %s: %u threads; give 1 to %u", name, n, (unsigned)SL__POOL_MAX);
	sl__pool *p = sl__calloc(env, 1, sizeof(*p) + n * sizeof(p->workers[0]));
	if (p == NULL)
		return sl_err_set(err, SL_ENOMEM, "pool %s: out of memory", name);
	p->env = *env;
	p->pid = getpid();
	p->n = n;
	p->fn = fn;
	p->wake = wake;
	p->ctx = ctx;
	sl__mutex_init(&p->mu);
	sl__mutex_init(&p->join_mu);
	atomic_init(&p->stopping, false);
	int rc = 0;
	unsigned started = 0;
	sl__lock(&p->mu);
	while (rc == 0 && started < n) {
		char cut[16];
		struct worker *w = &p->workers[started];
		char suffix[16] = "";
		if (n > 1)
			(void)snprintf(suffix, sizeof(suffix), "-%u", started);
		size_t tail = strlen(suffix);
		size_t head = SL_MIN(strlen(name), 15 - tail);
		memcpy(cut, name, head);
		memcpy(cut + head, suffix, tail + 1);
		*w = (struct worker){.pool = p, .index = started};
		rc = sl__thread_start(&w->thread, cut, worker_main, w);
		started += rc == 0;
	}
	p->aborted = rc != 0;
	if (rc == 0)
		*out = p;
	sl__unlock(&p->mu);
	if (rc == 0)
		return 0;
	join_all(p, started);
	destroy(p);
	if (rc == -EAGAIN) /* not a lock's EAGAIN */
		return sl_err_set(err, SL_EAGAIN,
				  "pool %s: the system's limit of threads is reached (thread %u of %u); use fewer",
				  name, started + 1, n);
	return sl_err_set_errno(err, -rc, "pool %s: start thread %u of %u", name, started + 1, n);
}

bool sl__pool_stopping(const sl__pool *p)
{
	return atomic_load_explicit(&p->stopping, memory_order_acquire);
}

void sl__pool_stop(sl__pool *p)
{
	if (p == NULL || p->pid != getpid())
		return;
	if (!atomic_exchange_explicit(&p->stopping, true, memory_order_acq_rel) && p->wake != NULL)
		p->wake(p->ctx);
	/* A worker that stops its own pool does not wait for itself. */
	bool own = false;
	sl__lock(&p->mu);
	for (unsigned i = 0; i < p->n && !own; i++)
		own = !p->workers[i].left && pthread_equal(p->workers[i].thread, pthread_self());
	sl__unlock(&p->mu);
	if (own)
		return;
	sl__lock(&p->join_mu);
	if (!p->joined)
		join_all(p, p->n);
	p->joined = true;
	sl__unlock(&p->join_mu);
}

void sl__pool_free(sl__pool *p)
{
	if (p == NULL)
		return;
	sl__pool_stop(p);
	destroy(p);
}
