/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of a log: registered when it is opened, removed when it is closed. */
#include "wal/handle.h"

static double read_pending_records(void *ctx)
{
	sl_wal *w = ctx;
	sl__lock(&w->mu);
	uint64_t n = w->index.pending;
	sl__unlock(&w->mu);
	return (double)n;
}

static double read_pending_bytes(void *ctx)
{
	sl_wal *w = ctx;
	sl__lock(&w->mu);
	uint64_t n = w->index.pending_bytes;
	sl__unlock(&w->mu);
	return (double)n;
}

int sl__wal_metrics_attach(sl_wal *w, struct sl_err *err)
{
	struct wal_metrics *x = &w->metrics;
	sl_metrics *m = w->env.metrics;
	if (m == NULL)
		return 0;
	const struct {
		sl_counter **to;
		const char *name, *help;
	} counters[] = {
		{&x->records, "sluice_wal_records_appended_total", "Records appended to write-ahead logs."},
		{&x->bytes, "sluice_wal_appended_bytes_total", "Bytes appended to write-ahead logs."},
		{&x->flush_errors, "sluice_wal_flush_errors_total", "Failed flushes of write-ahead logs."},
		{&x->sent, "sluice_wal_records_sent_total", "Records acknowledged by the receiver."},
		{&x->failed, "sluice_wal_records_failed_total", "Refused records moved to the dead letters."},
	};
	int rc = 0;
	for (size_t i = 0; i < SL_COUNT(counters) && rc == 0; i++)
		rc = sl_metrics_counter(m, counters[i].name, counters[i].help, NULL, 0, counters[i].to, err);
	if (rc == 0)
		rc = sl_metrics_histogram(m, "sluice_wal_flush_seconds", "Duration of a write and sync.", NULL, 0,
					  SL_UNIT_NANOSECONDS, &x->flush_seconds, err);
	if (rc == 0)
		rc = sl_metrics_histogram(m, "sluice_wal_flush_records", "Records per sync.", NULL, 0, SL_UNIT_COUNT,
					  &x->flush_records, err);
	if (rc != 0)
		return rc;
	rc = sl_metrics_gauge(m, "sluice_wal_pending_records", "Records not yet acknowledged by the receiver.", NULL, 0,
			      &x->pending_records, err);
	if (rc == 0)
		rc = sl_metrics_gauge(m, "sluice_wal_pending_bytes", "Bytes not yet acknowledged by the receiver.",
				      NULL, 0, &x->pending_bytes, err);
	if (rc == 0)
		rc = sl_gauge_attach(x->pending_records, read_pending_records, w, err);
	if (rc != 0)
		return rc;
	rc = sl_gauge_attach(x->pending_bytes, read_pending_bytes, w, err);
	if (rc != 0)
		sl_gauge_detach(x->pending_records, read_pending_records, w);
	else
		x->attached = true;
	return rc;
}

void sl__wal_metrics_detach(sl_wal *w)
{
	struct wal_metrics *x = &w->metrics;
	if (!x->attached)
		return;
	x->attached = false;
	sl_gauge_detach(x->pending_records, read_pending_records, w);
	sl_gauge_detach(x->pending_bytes, read_pending_bytes, w);
}
