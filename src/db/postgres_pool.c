/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool: a list of idle connections, the last used first, and a count of all. Connecting happens outside of the
 * lock, with the place already counted.
 */
#include <poll.h>
#include <unistd.h>

#include "db/postgres.h"

struct sl__pg_pool {
	struct sl_env env;
	struct sl__pg_opts opts;
	char *conninfo, *application, *settings;
	pid_t pid;
	unsigned max;
	sl__mutex mu;
	sl__cond back;
	struct sl__pg_conn *idle; /* under mu */
	unsigned n;               /* under mu: idle and taken */
	unsigned n_held;          /* under mu: of those, by transactions */
	_Atomic uint64_t deaths;
};

static void close_conn(sl__pg_pool *pool, struct sl__pg_conn *c)
{
	if (c == NULL)
		return;
	PQfinish(c->pg);
	sl__free(&pool->env, c);
}

int sl__pg_pool_new(sl__pg_pool **out, const struct sl__pg_opts *opts, unsigned max, struct sl_err *err)
{
	sl__pg_pool *pool = sl__calloc(opts->env, 1, sizeof(*pool));
	if (pool == NULL)
		return sl_err_set(err, SL_ENOMEM, "postgres: out of memory");
	pool->env = *opts->env;
	pool->pid = getpid();
	pool->max = max;
	sl__mutex_init(&pool->mu);
	sl__cond_init(&pool->back);
	pool->opts = *opts;
	pool->opts.env = &pool->env;
	pool->opts.conninfo = pool->conninfo = sl__strdup(&pool->env, opts->conninfo);
	pool->opts.application = pool->application = sl__strdup(&pool->env, opts->application);
	pool->opts.settings = pool->settings = sl__strdup(&pool->env, opts->settings != NULL ? opts->settings : "");
	if (pool->conninfo == NULL || pool->application == NULL || pool->settings == NULL) {
		sl__pg_pool_free(pool);
		return sl_err_set(err, SL_ENOMEM, "postgres: out of memory");
	}
	*out = pool;
	return 0;
}

void sl__pg_pool_free(sl__pg_pool *pool)
{
	if (pool == NULL)
		return;
	while (pool->idle != NULL) {
		struct sl__pg_conn *c = pool->idle;
		pool->idle = c->next;
		close_conn(pool, c);
	}
	sl__free(&pool->env, pool->conninfo);
	sl__free(&pool->env, pool->application);
	sl__free(&pool->env, pool->settings);
	sl__cond_fini(&pool->back);
	sl__mutex_fini(&pool->mu);
	struct sl_env env = pool->env;
	sl__free(&env, pool);
}

/* Something to read on an idle connection is the server's good-bye, or so rare that a new connection costs nothing. */
static bool is_alive(struct sl__pg_conn *c)
{
	struct pollfd fd = {.fd = PQsocket(c->pg), .events = POLLIN | POLLRDHUP};
	return fd.fd >= 0 && PQstatus(c->pg) == CONNECTION_OK && poll(&fd, 1, 0) == 0;
}

/* All who wait look: the first of them may be one who must not have the last connection. */
static void give_place_back(sl__pg_pool *pool, bool held)
{
	sl__lock(&pool->mu);
	pool->n--;
	pool->n_held -= held;
	sl__broadcast(&pool->back);
	sl__unlock(&pool->mu);
}

static bool has_place(const sl__pg_pool *pool, bool held)
{
	bool may = !held || pool->n_held + 1 < pool->max || pool->n_held == 0;
	return may && (pool->idle != NULL || pool->n < pool->max);
}

/* *out NULL: a place is counted for a new connection. False: none came back in time. */
static bool wait_for_place(sl__pg_pool *pool, bool held, struct sl__pg_conn **out)
{
	bool found, in_time = true;
	int64_t deadline = sl__deadline_ns(
		&pool->env, pool->opts.statement_timeout_ms > 0 ? pool->opts.statement_timeout_ms : SL_UNLIMITED);
	sl__lock(&pool->mu);
	while (!(found = has_place(pool, held)) && in_time)
		in_time = sl__wait(&pool->env, &pool->back, &pool->mu, deadline);
	*out = found ? pool->idle : NULL;
	if (*out != NULL)
		pool->idle = (*out)->next;
	else if (found)
		pool->n++;
	pool->n_held += found && held;
	sl__unlock(&pool->mu);
	return found;
}

static int take(sl__pg_pool *pool, bool held, struct sl__pg_conn **out, struct sl_err *err)
{
	struct sl__pg_conn *c;
	if (pool->pid != getpid())
		return sl_err_set(err, SL_EFORKED,
				  "postgres: the store was opened before a fork; open it again in the child");
	if (!wait_for_place(pool, held, &c))
		return sl_err_set(err, SL_EAGAIN, "postgres: all %u connections stayed in use%s", pool->max,
				  held ? ", or all but one by transactions" : "");
	int rc = 0;
	if (c == NULL || !is_alive(c)) {
		if (c != NULL)
			atomic_fetch_add(&pool->deaths, 1);
		close_conn(pool, c);
		c = sl__calloc(&pool->env, 1, sizeof(*c));
		if (c != NULL)
			c->env = &pool->env;
		rc = c != NULL ? sl__pg_open(c, &pool->opts, err)
			       : sl_err_set(err, SL_ENOMEM, "postgres: out of memory");
	}
	if (c == NULL || rc != 0) {
		sl__free(&pool->env, c);
		give_place_back(pool, held);
		return rc;
	}
	c->held = held;
	*out = c;
	return 0;
}

int sl__pg_take(sl__pg_pool *pool, struct sl__pg_conn **out, struct sl_err *err)
{
	return take(pool, false, out, err);
}

int sl__pg_take_held(sl__pg_pool *pool, struct sl__pg_conn **out, struct sl_err *err)
{
	return take(pool, true, out, err);
}

void sl__pg_put(sl__pg_pool *pool, struct sl__pg_conn *c)
{
	if (c == NULL)
		return;
	bool held = c->held;
	if (PQstatus(c->pg) != CONNECTION_OK || PQtransactionStatus(c->pg) != PQTRANS_IDLE ||
	    PQpipelineStatus(c->pg) != PQ_PIPELINE_OFF) {
		if (PQstatus(c->pg) != CONNECTION_OK)
			atomic_fetch_add(&pool->deaths, 1);
		close_conn(pool, c);
		give_place_back(pool, held);
		return;
	}
	sl__lock(&pool->mu);
	c->next = pool->idle;
	pool->idle = c;
	pool->n_held -= held;
	sl__broadcast(&pool->back);
	sl__unlock(&pool->mu);
}

uint64_t sl__pg_deaths(sl__pg_pool *pool)
{
	return atomic_load(&pool->deaths);
}
