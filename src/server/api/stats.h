/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of the store as they were last counted, by one thread for all who ask. */
#ifndef SLUICE_SERVER_API_STATS_H
#define SLUICE_SERVER_API_STATS_H

#include "server/api/api.h"

struct srv_sample {
	int64_t now_ms;  /* of the store's clock */
	int64_t mono_ms; /* when it was taken */
	uint64_t by[SL_JOB_STATUS_COUNT + 1];
	uint64_t due, retrying, newest_id;
	int64_t oldest_due_ms; /* since when the oldest of the due could run; 0: none is */
	uint64_t workers, leases;
	int64_t p50_ms, p99_ms; /* from due to started, of jobs that started in the last minute; -1: none did */
	/* A second, over the last minute. */
	double enqueued, started, completed, failed;
};

/* The last one, taken now if this is the first. */
int srv_stats_get(struct srv_stats *s, struct srv_sample *out, struct sl_err *err);

/* api/stats.c: the same numbers for collectors, also of what workers on other machines do. */
struct srv_stats_metrics {
	sl_gauge *jobs[SL_JOB_STATUS_COUNT + 1];
	sl_gauge *due, *oldest_due, *leases, *letters;
};

#endif
