/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contenders taking turns.
 *
 *   round 0 (thrown away)   A B C D
 *   round 1                 B C D A      each letter: one slice, all clients of that contender appending
 *   round 2                 C D A B      between slices: settle the contender, write back the disk
 *
 * The rate of a slice is the sum over its clients of appends / own time, so a client that is stuck in its last append
 * (a database that lets its writers starve) neither stretches the slice of the others nor loses what it did.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

_Atomic int bench_slice_over;
_Atomic int bench_stopped;

struct client {
	pthread_t thread;
	pthread_barrier_t *start;
	const struct contender *c;
	void *worker;
	unsigned char *payload;
	size_t n;
	uint64_t slice_ns;
	uint64_t done;
	double rate;
	struct hist latency;
	int rc;
	struct sl_err err;
};

static void *client_main(void *arg)
{
	struct client *me = arg;
	pthread_barrier_wait(me->start);
	uint64_t begin = now_ns(), end = begin + me->slice_ns, then = begin, now;
	do {
		memcpy(me->payload, &me->done, sizeof(me->done));
		me->rc = me->c->append(me->worker, me->payload, me->n, &me->err);
		now = now_ns();
		if (me->rc == SL_ECANCELLED)
			break;
		if (me->rc != 0)
			return NULL;
		hist_add(&me->latency, now - then);
		then = now;
		me->done++;
	} while (now < end && !bench_stopped);
	bench_slice_over = 1;
	me->rc = 0;
	if (me->c->finish != NULL)
		me->rc = me->c->finish(me->worker, &me->err);
	me->rate = (double)me->done * 1e9 / (double)(now_ns() - begin);
	return NULL;
}

static struct client *clients_new(const struct entry *e, const struct group *g, const struct settings *s)
{
	struct client *clients = calloc((size_t)e->clients, sizeof(*clients));
	if (clients == NULL)
		abort();
	for (int i = 0; i < e->clients; i++) {
		clients[i].c = e->c;
		clients[i].worker = e->workers[i];
		clients[i].n = g->record_bytes;
		clients[i].slice_ns = (uint64_t)s->slice_ms * 1000000U;
		clients[i].payload = malloc(g->record_bytes);
		if (clients[i].payload == NULL)
			abort();
		fill_random(clients[i].payload, g->record_bytes, (uint64_t)i + 1);
	}
	return clients;
}

static void clients_free(struct client *clients, int n)
{
	for (int i = 0; i < n; i++)
		free(clients[i].payload);
	free(clients);
}

static void entry_fail(struct entry *e, const struct sl_err *err)
{
	if (!e->out)
		e->err = *err;
	e->out = true;
}

/* Add up what the clients did; the rate is kept unless this is the round to throw away. */
static void entry_collect(struct entry *e, const struct client *clients, bool keep)
{
	double rate = 0;
	for (int i = 0; i < e->clients; i++) {
		if (clients[i].rc != 0)
			entry_fail(e, &clients[i].err);
		rate += clients[i].rate;
		e->records += clients[i].done;
		if (keep)
			hist_merge(&e->latency, &clients[i].latency);
	}
	if (keep && !e->out)
		e->rates[e->n_rates++] = rate;
}

static void run_slice(struct entry *e, const struct group *g, const struct settings *s, bool keep)
{
	struct client *clients = clients_new(e, g, s);
	pthread_barrier_t start;
	uint64_t flushes[2] = {0}, records[2] = {0};
	if (e->c->flushes != NULL)
		e->c->flushes(e->state, &flushes[0], &records[0]);
	pthread_barrier_init(&start, NULL, (unsigned)e->clients);
	for (int i = 0; i < e->clients; i++) {
		clients[i].start = &start;
		if (pthread_create(&clients[i].thread, NULL, client_main, &clients[i]) != 0)
			abort(); /* the others would wait at the barrier for ever */
	}
	for (int i = 0; i < e->clients; i++)
		pthread_join(clients[i].thread, NULL);
	bench_slice_over = 0;
	pthread_barrier_destroy(&start);
	if (e->c->flushes != NULL)
		e->c->flushes(e->state, &flushes[1], &records[1]);
	if (keep) {
		e->flushes += flushes[1] - flushes[0];
		e->flushed_records += records[1] - records[0];
	}
	entry_collect(e, clients, keep);
	clients_free(clients, e->clients);
}

void group_add(struct group *g, const struct contender *c, int clients)
{
	if (g->n >= MAX_ENTRIES)
		abort();
	struct entry *e = &g->entries[g->n++];
	memset(e, 0, sizeof(*e));
	e->c = c;
	e->clients = clients;
}

static void entry_open(struct entry *e, const struct group *g, const struct settings *s)
{
	char dir[4096];
	struct place place = {.record_bytes = g->record_bytes, .clients = e->clients, .env = g->env, .dir = dir};
	struct sl_err err = SL_ERR_INIT;
	int rc = make_dir(dir, sizeof(dir), s->dir, e->c->name, &err);
	if (rc == 0)
		rc = e->c->open(&e->state, &place, &err);
	if (rc == 0 && (e->workers = calloc((size_t)e->clients, sizeof(*e->workers))) == NULL)
		rc = sl_err_set(&err, SL_ENOMEM, "workers");
	while (rc == 0 && e->n_workers < e->clients) {
		rc = e->c->worker_open(&e->workers[e->n_workers], e->state, &err);
		e->n_workers += rc == 0;
	}
	if (rc != 0)
		entry_fail(e, &err);
}

static void entry_close(struct entry *e, const struct settings *s)
{
	char dir[4096];
	for (int i = 0; i < e->n_workers; i++)
		e->c->worker_close(e->workers[i]);
	free(e->workers);
	e->workers = NULL;
	if (e->state != NULL)
		e->c->close(e->state);
	e->state = NULL;
	if (snprintf(dir, sizeof(dir), "%s/%s", s->dir, e->c->name) < (int)sizeof(dir))
		remove_tree(dir);
}

/* Leave no dirty pages to the next one. */
static void settle(const struct entry *e, const struct settings *s)
{
	if (e->c->settle != NULL)
		e->c->settle(e->state);
	int fd = open(s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0) {
		(void)syncfs(fd);
		close(fd);
	}
}

void group_run(struct group *g, const struct settings *s)
{
	for (int i = 0; i < g->n; i++)
		entry_open(&g->entries[i], g, s);
	for (int round = 0; round <= s->rounds && !bench_stopped; round++) {
		for (int i = 0; i < g->n && !bench_stopped; i++) {
			struct entry *e = &g->entries[(i + round) % g->n];
			if (e->out)
				continue;
			run_slice(e, g, s, round > 0);
			settle(e, s);
		}
		if (s->progress != NULL)
			fputc('.', s->progress);
	}
	for (int i = 0; i < g->n; i++)
		entry_close(&g->entries[i], s);
}

const struct entry *group_find(const struct group *g, const struct contender *c)
{
	for (int i = 0; i < g->n; i++)
		if (g->entries[i].c == c && !g->entries[i].out && g->entries[i].n_rates > 0)
			return &g->entries[i];
	return NULL;
}

const struct entry *group_best(const struct group *g, bool raw)
{
	const struct entry *best = NULL;
	for (int i = 0; i < g->n; i++) {
		const struct entry *e = &g->entries[i];
		if (e->out || e->n_rates == 0 || e->c->is_ours || e->c->is_raw != raw)
			continue;
		if (best == NULL || entry_rate(e) > entry_rate(best))
			best = e;
	}
	return best;
}

double entry_rate(const struct entry *e)
{
	return median(e->rates, e->n_rates);
}

double entry_ratio(const struct entry *a, const struct entry *b)
{
	double ratios[MAX_ROUNDS];
	int n = a->n_rates < b->n_rates ? a->n_rates : b->n_rates;
	for (int i = 0; i < n; i++)
		ratios[i] = a->rates[i] / b->rates[i];
	return median(ratios, n);
}
