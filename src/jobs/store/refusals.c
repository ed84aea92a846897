/* SPDX-License-Identifier: Apache-2.0 */
/* The errors with which every store refuses a redrive or a continuation. */
#include "jobs/store/refusals.h"

#include <inttypes.h>

int sl__refuse_circle(uint64_t chain, uint64_t by, struct sl_err *err)
{
	int rc = sl_err_set(err, SL_EDATA,
			    "chains %" PRIu64 " and %" PRIu64
			    " would wait for each other, perhaps through others: %" PRIu64 " waits for %" PRIu64
			    " already",
			    chain, by, by, chain);
	if (err != NULL)
		err->error_class = SL_CLASS_POISON;
	return rc;
}

int sl__refuse_key(uint64_t chain, uint64_t holder, struct sl_err *err)
{
	return sl_err_set(err, SL_EEXIST,
			  "chain %" PRIu64 " cannot be re-driven: chain %" PRIu64
			  " has the same key and has not ended; wait for it, or cancel it",
			  chain, holder);
}

int sl__refuse_orphan(uint64_t chain, uint64_t gone, struct sl_err *err)
{
	return sl_err_set(err, SL_ECONFLICT,
			  "chain %" PRIu64 " cannot be re-driven: it waits for chain %" PRIu64
			  ", which was deleted; start it anew, and delete this one",
			  chain, gone);
}
