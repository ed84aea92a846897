/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of a part of the server, made from a table. Thread safety and ownership: as <sluice/metrics.h>. */
#ifndef SLUICE_SERVER_METRICS_H
#define SLUICE_SERVER_METRICS_H

#include "base/base.h"

#include <sluice/metrics.h>

struct srv_metric {
	const char *name, *help;
	sl_gauge **gauge; /* one of the two */
	sl_counter **counter;
	struct sl_metric_label label; /* name NULL: none */
};

static inline int srv_metrics_make(sl_metrics *m, const struct srv_metric *all, size_t n, struct sl_err *err)
{
	for (size_t i = 0; i < n; i++) {
		const struct srv_metric *x = &all[i];
		size_t n_labels = x->label.name != NULL;
		int rc = x->gauge != NULL
				 ? sl_metrics_gauge(m, x->name, x->help, &x->label, n_labels, x->gauge, err)
				 : sl_metrics_counter(m, x->name, x->help, &x->label, n_labels, x->counter, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

#endif
