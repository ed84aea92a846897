/* SPDX-License-Identifier: Apache-2.0 */
/* The errors with which every store refuses a request, or says that something is not there. */
#include "jobs/store/refusals.h"

#include <inttypes.h>

int sl__no_chain(uint64_t id, struct sl_err *err)
{
	return sl_err_set(err, SL_ENOENT, "no chain %" PRIu64, id);
}

int sl__no_job(uint64_t id, struct sl_err *err)
{
	return sl_err_set(err, SL_ENOENT, "no job %" PRIu64, id);
}

int sl__no_blocker(uint64_t chain, struct sl_err *err)
{
	int rc = sl_err_set(err, SL_ENOENT, "no chain %" PRIu64 " to wait for", chain);
	if (err != NULL)
		err->error_class = SL_CLASS_POISON;
	return rc;
}

int sl__refuse_ended(uint64_t chain, enum sl_job_status status, struct sl_err *err)
{
	return sl_err_set(err, SL_EEXIST, "chain %" PRIu64 " has already ended: %s", chain, sl_job_status_name(status));
}

int sl__refuse_waited_for(uint64_t waiting, uint64_t chain, struct sl_err *err)
{
	return sl_err_set(err, SL_EPENDING,
			  "chain %" PRIu64 " waits for chain %" PRIu64 "; delete it too, or with a cascade", waiting,
			  chain);
}

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
			  "chain %" PRIu64 " cannot be redriven: chain %" PRIu64
			  " has the same key and has not ended; wait for it, or cancel it",
			  chain, holder);
}

int sl__refuse_orphan(uint64_t chain, uint64_t gone, struct sl_err *err)
{
	return sl_err_set(err, SL_ECONFLICT,
			  "chain %" PRIu64 " cannot be redriven: it waits for chain %" PRIu64
			  ", which was deleted; enqueue it again, and delete this one",
			  chain, gone);
}
