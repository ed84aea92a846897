/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics of open logs. All logs of a registry share one family each: counters add up, gauges are summed at render
 * time. Stream ids are never labels. Without a registry every handle is NULL and costs a branch.
 */
#ifndef SL_WAL_OBSERVE_H
#define SL_WAL_OBSERVE_H

#include <stdbool.h>

#include <sluice/metrics.h>
#include <sluice/wal.h>

struct wal_metrics {
	sl_counter *records, *bytes, *flush_errors, *sent, *failed;
	sl_histogram *flush_seconds, *flush_records;
	sl_gauge *pending_records, *pending_bytes;
	bool attached;
};

SL_MUST_CHECK int sl__wal_metrics_attach(sl_wal *w, struct sl_err *err);
void sl__wal_metrics_detach(sl_wal *w);

#endif
