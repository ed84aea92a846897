/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The audit trail: one row for every requested change, written by the transaction of the change, so that
 * there is never one without the other. The ids of the chains are a JSON array.
 */
#include <inttypes.h>

#include "jobs/store/sqlite/store.h"

int sl__sq_audit(struct sq_op *op, const struct sl_audit_record *record)
{
	struct sl__buf ids;
	if (record->actor == NULL || record->action == NULL)
		return sl_err_set(op->err, SL_EINVAL, "audit record: actor or action is missing");
	sl__buf_init(&ids, &op->store->env);
	for (size_t i = 0; i < record->n_chains; i++)
		(void)sl__buf_printf(&ids, "%c%" PRIu64, i == 0 ? '[' : ',', record->chains[i]);
	(void)sl__buf_str_append(&ids, record->n_chains > 0 ? "]" : "[]");
	int rc = ids.failed != 0
			 ? sl__no_memory(op->err, "the audit record")
			 : SQ_RUN(op, SQ_AUDIT_PUT, SQ_INT(op->now_us), SQ_INT(record->via), SQ_TEXT(record->actor),
				  SQ_TEXT(record->address), SQ_TEXT(record->action), SQ_TEXT(record->request_id),
				  SQ_TEXT(sl__buf_str(&ids)), SQ_TEXT(record->detail));
	sl__buf_fini(&ids);
	return rc;
}
