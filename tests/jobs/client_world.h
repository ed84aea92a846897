/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fixture of the client's tests: a store (in memory and virtual time, or SQLite in its own folder), a notifier that
 * records what was published and delivers it immediately, on the publishing thread, an observer that records what it
 * sees, and memory that can be made to fail for the client alone.
 *
 * Thread safety: the notifier from any thread; the rest from the test's thread.
 */
#ifndef TESTS_CLIENT_WORLD_H
#define TESTS_CLIENT_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "jobs/notify/ops.h"
#include "jobs/sqlite_place.h"
#include "support/expect.h"
#include "support/fault.h"
#include "support/memstore.h"
#include "support/vclock.h"
#include <sluice/jobs.h>
#include <sluice/metrics.h>

#define WORLD_NOTES 64

struct world_note {
	enum sl_note_kind kind;
	char type[32];
	uint64_t id;
	enum sl_lost_reason reason;
};

struct world {
	struct vclock clock;
	struct fault fault;
	struct sl_env env; /* of the client */
	struct memstore *ms;
	struct sqlite_place place;
	sl_store real;           /* as opened */
	struct sl_store_ops ops; /* a copy of its table, for hooks */
	sl_store store;          /* what the client is given */
	int starts, lists;       /* calls that passed the hooks */
	int max_bite;

	/* the notifier */
	sl_notify notify;
	struct sl_notify_ops notify_ops;
	pthread_mutex_t mu;
	struct world_note notes[WORLD_NOTES];
	int n_notes, publishes, publishes_in;
	int drop;    /* 1: notes are remembered and not delivered */
	int healthy; /* what it says of itself */
	int fails;   /* publish and subscribe fail */
	int subscriptions, subscribed_ever;
	sl_note_fn *fn[8];
	void *fn_ctx[8];

	/* the observer */
	struct sl_observation seen[WORLD_NOTES];
	int n_seen;

	sl_metrics *metrics;
	sl_job_types *types; /* given to the client when not NULL */
	sl_jobs *client;
};

/* Fixtures; state is a struct world. */
int world_memory(void **state);
int world_sqlite(void **state);
int world_gone(void **state);

/* For notify_ops.publish_in, which is NULL at first. */
int world_publish_in(void *notify, sl_store_tx *tx, const struct sl_note *notes, size_t n, struct sl_err *err);

/* Open (again) with what is in the world now. */
void world_open(struct world *w);
/* A chain with defaults; fails the test when it cannot be started. */
uint64_t world_start(struct world *w, sl_tx *tx, const char *type, const char *input);
int world_seen(const struct world *w, enum sl_observe_kind kind);
int world_noted(const struct world *w, enum sl_note_kind kind, uint64_t id);
void world_forget(struct world *w);   /* notes and observations */
uint64_t world_jobs(struct world *w); /* how many there are */
/* Put the job under a lease. */
void world_claim(struct world *w, const char *type);

#endif
