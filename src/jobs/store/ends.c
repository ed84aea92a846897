/* SPDX-License-Identifier: Apache-2.0 */
/* How a chain is ended from outside: what its last job becomes, and what its worker and the history are given. */
#include "jobs/store/ends.h"

struct sl__end sl__end_completed(const char *output)
{
	return (struct sl__end){.status = SL_JOB_COMPLETED,
				.reason = SL_LOST_COMPLETED,
				.change = SL_CHANGE_COMPLETED,
				.history = "completed from outside",
				.output = output != NULL ? output : "null"};
}

struct sl__end sl__end_failed(const char *error)
{
	const char *why = error != NULL ? error : "failed from outside";
	return (struct sl__end){.status = SL_JOB_FAILED,
				.reason = SL_LOST_FAILED,
				.change = SL_CHANGE_FAILED,
				.history = why,
				.error = why};
}

struct sl__end sl__end_cancelled(void)
{
	return (struct sl__end){.status = SL_JOB_CANCELLED,
				.reason = SL_LOST_CANCELLED,
				.change = SL_CHANGE_CANCELLED,
				.history = "cancelled"};
}
