/* SPDX-License-Identifier: Apache-2.0 */
/* Count and measure, and render it for Prometheus. Handles that are opened with env report there as well. */
#include <sluice/metrics.h>
#include <stdio.h>

static int print(const char *data, size_t n, void *ctx)
{
	return fwrite(data, 1, n, (FILE *)ctx) == n ? 0 : SL_EIO;
}

int main(void)
{
	const struct sl_metric_label ok = {.name = "outcome", .value = "ok"};
	struct sl_err err = SL_ERR_INIT;
	sl_metrics *metrics = NULL;
	sl_counter *loaded = NULL;
	sl_histogram *seconds = NULL;

	if (sl_metrics_new(&metrics, NULL, &err) != 0 ||
	    sl_metrics_counter(metrics, "app_rows_total", "Rows seen.", &ok, 1, &loaded, &err) != 0 ||
	    sl_metrics_histogram(metrics, "app_load_seconds", "Time of a load.", NULL, 0, SL_UNIT_NANOSECONDS, &seconds,
				 &err) != 0)
		fprintf(stderr, "%s\n", err.msg);
	for (uint64_t i = 1; i <= 100; i++) { /* no lock, no allocation: fit for a hot path, from any thread */
		sl_counter_add(loaded, 42);
		sl_histogram_observe(seconds, i * 1000000);
	}
	int rc = metrics == NULL ? err.code : sl_metrics_render(metrics, print, stdout, &err);
	sl_metrics_free(metrics);
	return rc != 0;
}
