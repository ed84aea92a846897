/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The audit trail: one row for every requested change, written by the transaction of the change, so that
 * there is never one without the other.
 */
#include "jobs/store/postgres/store.h"

bool sl__pg_from_http(const struct sl_store_scope *scope)
{
	return scope != NULL && scope->n_audit > 0 && scope->audit->via == SL_VIA_HTTP;
}

void sl__pg_call_audit(struct pg_call *call, const struct sl_store_scope *scope)
{
	call->audit = scope != NULL ? scope->audit : NULL;
	call->n_audit = scope != NULL ? scope->n_audit : 0;
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
