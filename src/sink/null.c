/* SPDX-License-Identifier: Apache-2.0 */
/* A sink that takes everything and keeps nothing: for benchmarks and dry runs. */
#include "sink/sink.h"

static int write_nothing(void *sink, void *lane, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
			 struct sl_err *err)
{
	(void)sink;
	(void)lane;
	(void)batch;
	(void)reply;
	(void)err;
	return 0;
}

static void close_nothing(void *sink)
{
	(void)sink;
}

static const char *target(void *sink)
{
	(void)sink;
	return "null:";
}

static const struct sl_sink_ops null_ops = {
	.version = SL_SINK_VERSION, .name = "null", .write = write_nothing, .close = close_nothing, .target = target};

int sl_sink_null_open(sl_sink *out, const struct sl_sink_opts *opts, struct sl_err *err)
{
	int rc = sl__sink_check_opts(opts, SL__SINK_ROWS, "null:", err);
	if (rc == 0)
		*out = (sl_sink){.ops = &null_ops};
	return rc;
}
