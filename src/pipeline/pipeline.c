/* SPDX-License-Identifier: Apache-2.0 */
#include "base/env.h"
#include <sluice/pipeline.h>

int sl_pipeline_new(sl_pipeline **out, const struct sl_pipeline_opts *opts, struct sl_err *err)
{
	(void)out;
	(void)opts;
	return sl_err_set(err, SL_EUNSUPPORTED, "pipeline: not yet");
}

void sl_pipeline_free(sl_pipeline *p)
{
	(void)p;
}

int sl_pipeline_run(sl_pipeline *p, struct sl_pipeline_stats *stats, struct sl_err *err)
{
	(void)p;
	(void)stats;
	return sl_err_set(err, SL_EUNSUPPORTED, "pipeline: not yet");
}

void sl_pipeline_stop(sl_pipeline *p, enum sl_pipeline_stop how)
{
	(void)p;
	(void)how;
}

enum sl_pipeline_stop sl_pipeline_stopping(const sl_pipeline *p)
{
	(void)p;
	return SL_PIPELINE_GO;
}

int sl_pipeline_stop_fd(const sl_pipeline *p)
{
	(void)p;
	return -1;
}

int sl_pipeline_get_stats(sl_pipeline *p, struct sl_pipeline_stats *out)
{
	(void)p;
	(void)out;
	return SL_EUNSUPPORTED;
}
