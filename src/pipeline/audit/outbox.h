/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The outbox: a lane for the event files, a lane for the endpoint, each with a thread its own, so that an endpoint
 * that hangs does not keep the files waiting.
 *
 * Locks: o->mu guards the fields that say so; it is not held while a lane delivers.
 */
#ifndef SL_PIPELINE_AUDIT_OUTBOX_H
#define SL_PIPELINE_AUDIT_OUTBOX_H

#include "pipeline/audit/catalog.h"
#include <sluice/retry.h>

struct sl__lane;

struct sl__lane_ops {
	const char *name;
	bool endpoint; /* which mark */
	/* Deliver everything that is pending, in order, marking what went out. Called again after a failure. */
	int (*deliver)(struct sl__lane *lane, struct sl_err *err);
	void (*close)(struct sl__lane *lane);
};

struct sl__lane {
	const struct sl__lane_ops *ops;
	struct sl_outbox *outbox;
	void *target;
	pthread_t thread;
	bool started;
	uint64_t done;     /* under mu: of o->wanted when an attempt began that delivered everything */
	uint64_t attempts; /* under mu: ended */
	uint64_t begun;    /* under mu: attempts that began */
	bool dead;         /* under mu: what is wrong needs a person */
	struct sl_err err; /* under mu: of the last attempt, if it failed */
};

struct sl_outbox {
	struct sl_env env;
	struct sl_catalog *catalog;
	struct sl_catalog_lease *lease;
	struct sl_outbox_opts opts; /* its strings are ours */
	struct sl_retry_policy retry;
	struct sl__lane lanes[2];
	size_t n_lanes;
	int cancel_fd;
	sl__mutex mu;
	sl__cond changed; /* for lanes and drains alike */
	uint64_t wanted;  /* under mu: grows with every wake */
	uint64_t hurry;   /* under mu: grows with every drain */
	bool stopping;    /* under mu */
};

SL_MUST_CHECK bool sl__outbox_stopping(struct sl_outbox *o);
struct sl__outbox_batch {
	struct sl__buf *lines; /* cleared first */
	size_t max_bytes;      /* at most, unless one event alone has more */
	uint64_t last;         /* in: the number of the event before; out: of the last one in lines, or the same */
};
/* The next events, as lines. */
SL_MUST_CHECK int sl__outbox_read(struct sl_outbox *o, struct sl__outbox_batch *batch, struct sl_err *err);
/* How many events the catalog says were delivered so. */
SL_MUST_CHECK int sl__outbox_delivered(struct sl_outbox *o, bool endpoint, uint64_t *out, struct sl_err *err);

SL_MUST_CHECK int sl__lane_files_open(struct sl__lane *lane, struct sl_err *err);
SL_MUST_CHECK int sl__lane_http_open(struct sl__lane *lane, struct sl_err *err);

#endif
