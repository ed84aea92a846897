/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types of jobs: the layers that make up a type, and whether a new job, a chain or an output suits it. Errors name the
 * field: "input: line 1, column 7: …", "delay_ms: …". SL_EINVAL for a field, SL_EDATA (poison) for JSON that is not
 * well-formed, what the type's own validation returned for JSON that it refuses.
 *
 * Thread safety: a registry is not changed once it is used; then every function here from any thread.
 * Ownership: what is found in a registry belongs to it.
 */
#ifndef SL_JOBS_TYPES_H
#define SL_JOBS_TYPES_H

#include "base/env.h"
#include <sluice/jobs.h>

#define SL__JOB_TYPE_BYTES 128
#define SL__JOB_KEY_BYTES 512
#define SL__JOB_TRACE_BYTES 256
#define SL__JOB_JSON_BYTES ((size_t)256 << 20)
#define SL__JOB_TIME_MAX_MS INT64_C(253402300799999) /* the end of the year 9999 */

/* What the registry (NULL allowed) was given for the name, its zero fields still zero; NULL: nothing. */
const struct sl_job_type *sl__job_types_given(const sl_job_types *types, const char *name);

/* A type that the registry does not have is refused. */
bool sl__job_types_closed(const sl_job_types *types);

/*
 * The type with every field filled. layers[n] (NULLs are skipped), the strongest first; e.g. a handler's fields,
 * sl__job_types_given(…), a worker's defaults. The first that is not zero wins, then the defaults of <sluice/jobs.h>.
 * A lease and its renewal are a pair: a renewal from below the layer that gave the lease does not count. out->name is
 * `name`; out->slots stays 0: all. SL_EINVAL names the type and the field.
 */
SL_MUST_CHECK int sl__job_type_resolve(struct sl_job_type *out, const char *name,
				       const struct sl_job_type *const *layers, size_t n, struct sl_err *err);

/* 1 to 128 bytes of [A-Za-z0-9._:/-]. field is for the error. */
SL_MUST_CHECK int sl__job_name_check(const char *name, const char *field, struct sl_err *err);
/* One JSON value (RFC 8259, UTF-8, nested at most 1,000 deep), nothing after it. field is for the error. */
SL_MUST_CHECK int sl__job_json_check(const char *json, const char *field, struct sl_err *err);

/* Check all of a new job against the registry (NULL: any type); with one that is closed its type must be in there. *out (may be
 * in itself) is in with the defaults of its type; it borrows what in points to. */
SL_MUST_CHECK int sl__new_job_check(const sl_job_types *types, const struct sl_env *env, const struct sl_new_job *in,
				    struct sl_new_job *out, struct sl_err *err);
SL_MUST_CHECK int sl__new_chain_check(const sl_job_types *types, const struct sl_env *env,
				      const struct sl_new_chain *in, struct sl_new_chain *out, struct sl_err *err);
/* output NULL is null. A type that the registry does not have is checked for JSON only. */
SL_MUST_CHECK int sl__job_output_check(const sl_job_types *types, const char *type, const char *output,
				       struct sl_err *err);

#endif
