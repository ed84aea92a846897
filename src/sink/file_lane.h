/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one lane of a file sink makes of its batches: lines of JSON or CSV, compressed when that is asked for.
 *
 * Guarantees: what is made is whole records, none of them with a NUL byte, in one frame when compressed.
 *
 * Thread safety: one thread at a time per lane. Ownership: a lane borrows env and opts and owns its buffers.
 */
#ifndef SL_SINK_FILE_LANE_H
#define SL_SINK_FILE_LANE_H

#include <zstd.h>

#include "base/buf.h"
#include "base/thread.h"
#include "format/row.h"
#include "sink/file_out.h"
#include "sink/refusal.h"
#include "sink/sink.h"

struct sl__file_lane {
	const struct sl_env *env;
	const struct sl_sink_opts *opts;
	struct sl__row_reader *reader; /* NULL: records are not taken apart */
	struct sl__field *fields;      /* one for each column */
	struct sl__buf text, packed;
	ZSTD_CCtx *zstd;     /* NULL: not compressed */
	struct sl__buf *out; /* of the two, what is to be appended */
};

/* On failure there is nothing to fini. */
SL_MUST_CHECK int sl__file_lane_init(struct sl__file_lane *l, const struct sl_env *env, const struct sl_sink_opts *opts,
				     struct sl_err *err);
void sl__file_lane_fini(struct sl__file_lane *l); /* a zeroed one is allowed */

/* Make l->out of the items from *next on, as many as fit one append, and move *next behind them. Items that are no
 * records go to `refused`. */
SL_MUST_CHECK int sl__file_lane_fill(struct sl__file_lane *l, const struct sl_sink_batch *batch, size_t *next,
				     struct sl__refusals *refused, struct sl_err *err);
/* Make l->out of this text. */
SL_MUST_CHECK int sl__file_lane_text(struct sl__file_lane *l, const char *text, size_t len, struct sl_err *err);

#endif
