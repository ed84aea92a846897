/* SPDX-License-Identifier: Apache-2.0 */
/* Items that a sink refuses while it writes the rest of their batch. */
#include "sink/refusal.h"

bool sl__refusals_add(struct sl__refusals *r, size_t i, const struct sl_err *err)
{
	if (i > r->first) {
		r->stop = SL_MIN(r->stop, i);
		return false;
	}
	r->stop = SL_MIN(r->stop, r->first);
	r->first = i;
	r->err = *err;
	return true;
}

int sl__refusals_reply(const struct sl__refusals *r, size_t done, struct sl_sink_reply *reply, int rc,
		       struct sl_err *err)
{
	if (rc == 0 && r->first == SIZE_MAX)
		return 0;
	memset(reply->outcomes, SL_SINK_WRITTEN, done);
	/* With another failure to report, the refused item is handed over again, and refused then. */
	if (r->first < done)
		reply->outcomes[r->first] = rc == 0 ? SL_SINK_POISON : SL_SINK_AS_BATCH;
	if (rc != 0)
		return rc;
	if (err != NULL)
		*err = r->err;
	return r->err.code;
}
