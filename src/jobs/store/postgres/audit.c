/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The audit trail: one row for every requested change, written by the transaction of the change, so that
 * there is never one without the other.
 */
#include <stdlib.h>

#include "jobs/store/postgres/store.h"

bool sl__pg_from_http(const struct sl_store_listen *listen)
{
	return listen != NULL && listen->n_audit > 0 && listen->audit->via == SL_VIA_HTTP;
}

void sl__pg_call_audit(struct pg_call *call, const struct sl_store_listen *listen)
{
	call->audit = listen != NULL ? listen->audit : NULL;
	call->n_audit = listen != NULL ? listen->n_audit : 0;
}

void sl__pg_add_record(struct sl__pg_params *p, const struct sl_audit_record *record)
{
	sl__pg_add_int4(p, (int32_t)record->via);
	sl__pg_add_text(p, record->actor);
	sl__pg_add_text(p, record->address);
	sl__pg_add_text(p, record->action);
	sl__pg_add_text(p, record->request_id);
	sl__pg_add_text(p, record->detail);
}

int sl__pg_audit_put(void *store, const struct sl_audit_record *records, size_t n, struct sl_err *err)
{
	struct pg_call call;
	const struct sl_store_listen listen = {.audit = records, .n_audit = n};
	int rc = sl__pg_call_open(&call, store, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	sl__pg_call_audit(&call, &listen);
	rc = sl__pg_call_run(&call, true, err);
	sl__pg_call_close(&call);
	return rc;
}

/* "17,18" as allocated memory, or NULL. *n: how many. */
static uint64_t *read_ids(const struct sl_env *env, const char *text, size_t *n)
{
	size_t cap = 1;
	for (const char *p = text; *p != '\0'; p++)
		cap += *p == ',';
	uint64_t *ids = sl__calloc(env, cap, sizeof(*ids));
	*n = 0;
	for (char *end; ids != NULL && *text != '\0'; text = *end == ',' ? end + 1 : end)
		ids[(*n)++] = strtoull(text, &end, 10);
	return ids;
}

int sl__pg_audit_list(void *store, uint64_t before, uint32_t limit, sl_audit_record_fn *fn, void *ctx,
		      struct sl_err *err)
{
	struct pg_store *s = store;
	struct pg_call call;
	const PGresult *res = NULL;
	int rc = sl__pg_call_open(&call, s, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	sl__pg_add_int8(&call.params, before != 0 && before < INT64_MAX ? (int64_t)before : INT64_MAX);
	sl__pg_add_int8(&call.params, limit);
	rc = sl__pg_call_one(&call, ST_AUDIT_LIST, &res, err);
	for (int i = 0; rc == 0 && i < PQntuples(res); i++) {
		size_t n = 0;
		uint64_t *ids = read_ids(&s->env, sl__pg_text(res, i, 7), &n);
		const struct sl_audit_record record = {.id = (uint64_t)sl__pg_int8(res, i, 0),
						       .time_ms = sl__pg_time_ms(res, i, 1),
						       .via = (enum sl_via)sl__pg_int4(res, i, 2),
						       .actor = sl__pg_text(res, i, 3),
						       .address = sl__pg_text(res, i, 4),
						       .action = sl__pg_text(res, i, 5),
						       .request_id = sl__pg_text(res, i, 6),
						       .chains = ids,
						       .n_chains = n,
						       .detail = sl__pg_text(res, i, 8)};
		rc = ids != NULL ? fn(&record, ctx) : sl_err_set(err, SL_ENOMEM, "postgres: out of memory");
		sl__free(&s->env, ids);
	}
	sl__pg_call_close(&call);
	return rc;
}

int sl__pg_audit_prune(void *store, int64_t before_ms, uint32_t limit, size_t *n, struct sl_err *err)
{
	struct pg_call call;
	const PGresult *res = NULL;
	int rc = sl__pg_call_open(&call, store, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	sl__pg_add_time(&call.params, before_ms);
	sl__pg_add_int8(&call.params, limit);
	rc = sl__pg_call_one(&call, ST_AUDIT_PRUNE, &res, err);
	if (rc == 0)
		*n = (size_t)PQntuples(res);
	sl__pg_call_close(&call);
	return rc;
}
