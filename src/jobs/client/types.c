/* SPDX-License-Identifier: Apache-2.0 */
/* The registry, an array sorted by name; the layers that make up a type; the names of statuses and other enums. */
#include "jobs/client/types.h"

#include <sluice/adapter/observe.h>
#include <sluice/worker.h>

#define LEASE_MIN_MS 10
#define LEASE_MAX_MS ((int64_t)30 * 24 * 3600 * 1000)
#define LEASE_MS 60000
#define RENEW_INTERVAL_MS 30000

struct sl_job_types {
	struct sl_env env;
	struct sl_job_type *types; /* as given; the names are ours */
	size_t n, cap;
	bool open; /* others are allowed */
};

int sl_job_types_new(sl_job_types **out, const struct sl_env *env, struct sl_err *err)
{
	struct sl_env e;
	int rc = sl__env_init(&e, env, err);
	if (rc != 0)
		return rc;
	sl_job_types *types = sl__calloc(&e, 1, sizeof(*types));
	if (types == NULL)
		return sl_err_set(err, SL_ENOMEM, "job types: no memory");
	types->env = e;
	*out = types;
	return 0;
}

void sl_job_types_free(sl_job_types *types)
{
	if (types == NULL)
		return;
	struct sl_env env = types->env;
	for (size_t i = 0; i < types->n; i++)
		sl__free(&env, (void *)(uintptr_t)types->types[i].name);
	sl__free(&env, types->types);
	sl__free(&env, types);
}

void sl_job_types_allow_others(sl_job_types *types)
{
	types->open = true;
}

bool sl__job_types_closed(const sl_job_types *types)
{
	return types != NULL && !types->open;
}

/* Where the name is, or where it belongs. */
static size_t type_place(const sl_job_types *types, const char *name)
{
	size_t low = 0, high = types->n;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		if (strcmp(types->types[mid].name, name) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

const struct sl_job_type *sl__job_types_given(const sl_job_types *types, const char *name)
{
	if (types == NULL)
		return NULL;
	size_t i = type_place(types, name);
	return i < types->n && strcmp(types->types[i].name, name) == 0 ? &types->types[i] : NULL;
}

int sl_job_types_add(sl_job_types *types, const struct sl_job_type *type, struct sl_err *err)
{
	struct sl_job_type given, resolved;
	sl__opts_copy(&given, sizeof(given), type);
	int rc = sl__job_name_check(given.name, "name", err);
	if (rc != 0)
		return rc;
	const struct sl_job_type *layer = &given;
	rc = sl__job_type_resolve(&resolved, given.name, &layer, 1, err);
	if (rc != 0)
		return rc;
	if (sl__job_types_given(types, given.name) != NULL)
		return sl_err_set(err, SL_EEXIST, "type %s is in the registry already", given.name);
	struct sl_job_type *grown = sl__grow(&types->env, types->types, types->n, &types->cap, sizeof(*grown));
	if (grown == NULL)
		return sl_err_set(err, SL_ENOMEM, "type %s: no memory", given.name);
	types->types = grown;
	char *name = sl__strdup(&types->env, given.name);
	if (name == NULL)
		return sl_err_set(err, SL_ENOMEM, "type %s: no memory", given.name);
	size_t i = type_place(types, name);
	memmove(&types->types[i + 1], &types->types[i], (types->n - i) * sizeof(given));
	given.name = name;
	types->types[i] = given;
	types->n++;
	return 0;
}

/* ---- layers ---- */

/* Fill the fields of `to` that are zero from the layer below. */
static void merge_type(struct sl_job_type *to, const struct sl_job_type *below)
{
	if (to->retry.max_attempts == 0)
		to->retry.max_attempts = below->retry.max_attempts;
	if (to->retry.first_ms == 0)
		to->retry.first_ms = below->retry.first_ms;
	if (to->retry.cap_ms == 0)
		to->retry.cap_ms = below->retry.cap_ms;
	if (to->retry.multiplier == 0)
		to->retry.multiplier = below->retry.multiplier;
	if (to->retry.jitter == SL_JITTER_DEFAULT)
		to->retry.jitter = below->retry.jitter;
	/* A lease and its renewal come from the same layer, or the renewal from one above. */
	if (to->lease_ms == 0) {
		to->lease_ms = below->lease_ms;
		if (to->renew_interval_ms == 0)
			to->renew_interval_ms = below->renew_interval_ms;
	}
	if (to->timeout_ms == 0)
		to->timeout_ms = below->timeout_ms;
	if (to->priority == 0)
		to->priority = below->priority;
	if (to->slots == 0)
		to->slots = below->slots;
	/* The callbacks of one layer share their ctx, so they come together. */
	if (to->validate_input == NULL && to->validate_output == NULL) {
		to->validate_input = below->validate_input;
		to->validate_output = below->validate_output;
		to->validate_ctx = below->validate_ctx;
	}
}

int sl__job_type_resolve(struct sl_job_type *out, const char *name, const struct sl_job_type *const *layers, size_t n,
			 struct sl_err *err)
{
	struct sl_job_type t = {SL_JOB_TYPE_INIT};
	for (size_t i = 0; i < n; i++)
		if (layers[i] != NULL)
			merge_type(&t, layers[i]);
	t.name = name;
	int rc = sl_retry_resolve(&t.retry, SL_RETRY_JOBS, &t.retry, err);
	if (rc != 0)
		return sl_err_wrap(err, rc, "type %s", name);
	if (t.renew_interval_ms == 0)
		t.renew_interval_ms = t.lease_ms == 0 ? RENEW_INTERVAL_MS : t.lease_ms / 3;
	if (t.lease_ms == 0)
		t.lease_ms = LEASE_MS;
	if (t.timeout_ms == 0)
		t.timeout_ms = SL_UNLIMITED;
	if (t.lease_ms < LEASE_MIN_MS || t.lease_ms > LEASE_MAX_MS)
		return sl_err_set(err, SL_EINVAL, "type %s: lease_ms is %lld; it must be %d to %lld", name,
				  (long long)t.lease_ms, LEASE_MIN_MS, (long long)LEASE_MAX_MS);
	if (t.renew_interval_ms < 1 || t.renew_interval_ms > t.lease_ms / 2)
		return sl_err_set(err, SL_EINVAL,
				  "type %s: renew_interval_ms is %lld; it must be 1 to half of lease_ms (%lld)", name,
				  (long long)t.renew_interval_ms, (long long)t.lease_ms);
	if (t.timeout_ms < 1 && t.timeout_ms != SL_UNLIMITED)
		return sl_err_set(err, SL_EINVAL, "type %s: timeout_ms is %lld; give 1 or more, or SL_UNLIMITED", name,
				  (long long)t.timeout_ms);
	if (t.slots < 0)
		return sl_err_set(err, SL_EINVAL, "type %s: slots is %d; give 1 or more, or 0 for all", name,
				  (int)t.slots);
	*out = t;
	return 0;
}

/* ---- names ---- */

static const char *const statuses[] = {"unknown", "blocked",   "pending", "running",   "completed",
				       "failed",  "cancelled", "ready",   "scheduled", "retrying"};
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

#define NAME_OF(table, i) ((size_t)(i) < SL_COUNT(table) ? (table)[(size_t)(i)] : "unknown")

const char *sl_job_status_name(enum sl_job_status status)
{
	return NAME_OF(statuses, status);
}

enum sl_job_status sl_job_status_from(const char *name)
{
	for (size_t i = 1; i < SL_COUNT(statuses); i++)
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
