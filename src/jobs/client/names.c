/* SPDX-License-Identifier: Apache-2.0 */
/* The names of statuses, outcomes, observations and abort reasons, each from one table. */
#include <string.h>

#include <sluice/adapter/observe.h>
#include <sluice/jobs.h>

static const char *const statuses[] = {"unknown", "blocked", "pending", "running", "completed", "failed", "cancelled"};
static const char *const outcomes[] = {"running",     "completed", "failed", "reaped",
				       "rescheduled", "released",  "aborted"};
static const char *const observations[] = {"unknown",
#define OBSERVE_NAME(name, text) text,
					   SL_OBSERVE_TABLE(OBSERVE_NAME)
#undef OBSERVE_NAME
};
static const char *const abort_reasons[] = {
	"none",     "taken_by_another_worker", "already_completed", "not_found", "error", "timeout", "cancelled",
	"shutdown", "already_failed",
};

#define NAME_OF(table, i) ((size_t)(i) < sizeof(table) / sizeof(*(table)) ? (table)[(size_t)(i)] : "unknown")

const char *sl_job_status_name(enum sl_job_status status)
{
	return NAME_OF(statuses, status);
}

enum sl_job_status sl_job_status_from(const char *name)
{
	for (size_t i = 1; i < sizeof(statuses) / sizeof(*statuses); i++)
		if (strcmp(statuses[i], name) == 0)
			return (enum sl_job_status)i;
	return (enum sl_job_status)0;
}

const char *sl_attempt_outcome_name(enum sl_attempt_outcome outcome)
{
	return NAME_OF(outcomes, outcome);
}

const char *sl_observe_name(enum sl_observe_kind kind)
{
	return NAME_OF(observations, kind);
}

const char *sl_abort_reason_name(enum sl_abort_reason reason)
{
	return NAME_OF(abort_reasons, reason);
}
