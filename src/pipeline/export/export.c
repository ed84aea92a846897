/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/export/source.h"

int sl_export_new(sl_export **out, const struct sl_export_opts *opts, struct sl_err *err)
{
	(void)out;
	(void)opts;
	return sl_err_set(err, SL_EUNSUPPORTED, "export");
}

void sl_export_free(sl_export *e)
{
	(void)e;
}

int sl_export_run(sl_export *e, struct sl_export_result *result, struct sl_err *err)
{
	(void)e;
	(void)result;
	return sl_err_set(err, SL_EUNSUPPORTED, "export");
}

void sl_export_stop(sl_export *e, enum sl_export_stop_mode mode)
{
	(void)e;
	(void)mode;
}

void sl_export_get_progress(sl_export *e, struct sl_export_progress *out)
{
	(void)e;
	*out = (struct sl_export_progress){0};
}

int sl_export_backfill(sl_export *e, const struct sl_export_range *ranges, size_t n, struct sl_export_result *result,
		       struct sl_err *err)
{
	(void)e;
	(void)ranges;
	(void)n;
	(void)result;
	return sl_err_set(err, SL_EUNSUPPORTED, "export");
}

int sl_export_gaps(sl_export *e, sl_export_gap_fn *fn, void *ctx, struct sl_err *err)
{
	(void)e;
	(void)fn;
	(void)ctx;
	return sl_err_set(err, SL_EUNSUPPORTED, "export");
}
