/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of requests. A series is made when a route first needs it, so unused routes cost nothing. */
#include "server/metrics.h"
#include "server/http/internal.h"

#include <stdlib.h>
#include <string.h>

#define CLASSES 6

struct srv_route_metrics {
	sl_counter *requests[CLASSES]; /* by hundreds of the status */
	sl_histogram *seconds;
};

static const char *const class_names[CLASSES] = {"none", "1xx", "2xx", "3xx", "4xx", "5xx"};

/* ctx: the number. */
static double read_number_now(void *ctx)
{
	return (double)atomic_load((_Atomic int64_t *)ctx);
}

static double count_running(void *ctx)
{
	srv_http *h = ctx;
	return (double)(atomic_load(&h->n_active) - atomic_load(&h->n_streams));
}

static const struct {
	const char *name, *help;
	sl_gauge_fn *fn;
	size_t offset; /* of its ctx in srv_http */
} gauges[] = {
	{"sluice_http_connections", "Open connections.", read_number_now, offsetof(srv_http, n_connections)},
	{"sluice_http_streams", "Open server-sent streams.", read_number_now, offsetof(srv_http, n_streams)},
	{"sluice_http_requests_running", "Requests not answered yet.", count_running, 0},
	{"sluice_http_bodies_bytes", "Memory used by request bodies.", read_number_now, offsetof(srv_http, body_bytes)},
};
#define N_GAUGES (SL_COUNT(gauges))
_Static_assert(N_GAUGES == SRV_GAUGES, "srv_http has a place for each");

int srv_metrics_start(srv_http *h, struct sl_err *err)
{
	static const char cut[] = "sluice_http_cut_connections_total",
			  cut_help[] = "Connections closed before their request was complete.";
	const struct srv_metric counters[] = {
		{cut, cut_help, NULL, &h->cut_late, {"reason", "deadline"}},
		{cut, cut_help, NULL, &h->cut_body, {"reason", "body"}},
		{"sluice_http_denied_total", "Denied requests.", .counter = &h->denied},
		{"sluice_http_refused_logins_total", "Failed logins.", .counter = &h->refused_logins},
	};
	for (size_t i = 0; h->metrics != NULL && i < N_GAUGES; i++) {
		int rc = sl_metrics_gauge(h->metrics, gauges[i].name, gauges[i].help, NULL, 0, &h->gauges[i], err);
		if (rc == 0)
			rc = sl_gauge_attach(h->gauges[i], gauges[i].fn, (char *)h + gauges[i].offset, err);
		if (rc != 0) {
			h->gauges[i] = NULL;
			return rc;
		}
	}
	return srv_metrics_make(h->metrics, counters, SL_COUNT(counters), err);
}

void srv_metrics_stop(srv_http *h)
{
	for (size_t i = 0; i < N_GAUGES; i++)
		if (h->gauges[i] != NULL)
			sl_gauge_detach(h->gauges[i], gauges[i].fn, (char *)h + gauges[i].offset);
}

static sl_counter *requests_of(srv_http *h, const char *method, const char *path, int class)
{
	const struct sl_metric_label labels[] = {
		{"method", method},
		{"route", path},
		{"status", class_names[class]},
	};
	sl_counter *c = NULL; /* stays so on failure, and is not counted then */
	(void)!sl_metrics_counter(h->metrics, "sluice_http_requests_total", "Requests by route and status class.",
				  labels, 3, &c, NULL);
	return c;
}

void srv_metrics_count(srv_http *h, struct srv_endpoint *e, int status, int64_t ns, bool stream)
{
	int class = status >= 100 && status < 600 ? status / 100 : 0;
	if (h->metrics == NULL)
		return;
	if (e == NULL) {
		sl_counter_add(requests_of(h, "other", "other", class), 1);
		return;
	}
	if (e->metrics == NULL) /* network thread only */
		e->metrics = calloc(1, sizeof(*e->metrics));
	if (e->metrics == NULL)
		return;
	if (e->metrics->requests[class] == NULL)
		e->metrics->requests[class] = requests_of(h, e->route.method, e->route.path, class);
	sl_counter_add(e->metrics->requests[class], 1);
	if (stream)
		return;
	/* The histogram is made by the first request of a route. */
	if (e->metrics->seconds == NULL) {
		const struct sl_metric_label labels[] = {{"method", e->route.method}, {"route", e->route.path}};
		(void)!sl_metrics_histogram(h->metrics, "sluice_http_request_seconds",
					    "Duration from the first line of a request to the last byte of its "
					    "response; streams are excluded.",
					    labels, 2, SL_UNIT_NANOSECONDS, &e->metrics->seconds, NULL);
	}
	sl_histogram_observe(e->metrics->seconds, (uint64_t)ns);
}
