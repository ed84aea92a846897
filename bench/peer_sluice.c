/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our log, through its public interface and with its defaults, but for the bound of the backlog (no sender runs): as
 * sl_wal_append by many threads, and as one thread that keeps 64 tickets in flight.
 */
#include <stdlib.h>

#include "bench.h"
#include <sluice/wal.h>

#define IN_FLIGHT 64

static int log_open(void **state, const struct place *place, struct sl_err *err)
{
	struct sl_wal_opts opts = {SL_WAL_OPTS_INIT,
				   .env = place->env,
				   .wal_dir = place->dir,
				   .archive_dir = place->dir,
				   .archive_on_complete = SL_OFF,
				   .max_pending_bytes = SL_UNLIMITED};
	sl_wal *w = NULL;
	int rc = sl_wal_open(&w, "bench", &opts, err);
	*state = w;
	return rc;
}

static int log_worker_open(void **worker, void *state, struct sl_err *err)
{
	(void)err;
	*worker = state;
	return 0;
}

static void log_worker_close(void *worker)
{
	(void)worker;
}

static int log_append(void *worker, const void *payload, size_t n, struct sl_err *err)
{
	return sl_wal_append(worker, payload, n, NULL, err);
}

static void log_flushes(void *state, uint64_t *flushes, uint64_t *records)
{
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	if (sl_wal_get_stats(state, &stats, NULL) == 0) {
		*flushes = stats.flushes;
		*records = stats.flushed_records;
	}
}

static void log_close(void *state)
{
	(void)sl_wal_close(state, NULL);
}

/* A ring of tickets: when it is full, the oldest is waited for before the next record is submitted. */
struct ring {
	sl_wal *w;
	uint64_t submitted, waited;
	struct sl_wal_ticket tickets[IN_FLIGHT];
};

static int ring_open(void **worker, void *state, struct sl_err *err)
{
	struct ring *ring = calloc(1, sizeof(*ring));
	if (ring == NULL)
		return sl_err_set(err, SL_ENOMEM, "ring");
	ring->w = state;
	*worker = ring;
	return 0;
}

static int ring_wait(struct ring *ring, struct sl_err *err)
{
	return sl_wal_wait(ring->w, &ring->tickets[ring->waited++ % IN_FLIGHT], SL_UNLIMITED, err);
}

static int ring_append(void *worker, const void *payload, size_t n, struct sl_err *err)
{
	struct ring *ring = worker;
	int rc = 0;
	if (ring->submitted - ring->waited == IN_FLIGHT)
		rc = ring_wait(ring, err);
	if (rc == 0)
		rc = sl_wal_submit(ring->w, payload, n, &ring->tickets[ring->submitted % IN_FLIGHT], err);
	ring->submitted += rc == 0;
	return rc;
}

static int ring_finish(void *worker, struct sl_err *err)
{
	struct ring *ring = worker;
	int rc = 0;
	while (rc == 0 && ring->waited < ring->submitted)
		rc = ring_wait(ring, err);
	return rc;
}

const struct contender contender_sluice = {
	.name = "sluice",
	.settings = "defaults, backlog unbounded, one sl_wal_append per record",
	.is_ours = true,
	.open = log_open,
	.worker_open = log_worker_open,
	.append = log_append,
	.worker_close = log_worker_close,
	.flushes = log_flushes,
	.close = log_close,
};

const struct contender contender_sluice_tickets = {
	.name = "sluice-tickets",
	.settings = "defaults, backlog unbounded, one thread with 64 tickets in flight",
	.is_ours = true,
	.pipelined = true,
	.open = log_open,
	.worker_open = ring_open,
	.append = ring_append,
	.finish = ring_finish,
	.worker_close = free,
	.flushes = log_flushes,
	.close = log_close,
};
