/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offers of workers in this process to run what is started next, and the start that accepts one: the job's row and its
 * lease in one transaction, without a row in `ready`. It costs the job no second transaction, and the worker no claim.
 */
#include "jobs/store/postgres/store.h"

void sl__pg_offer(void *store, struct sl_offer *offer)
{
	struct pg_store *s = store;
	offer->next = NULL;
	sl__lock(&s->offers_mu);
	struct sl_offer **end = &s->offers;
	while (*end != NULL)
		end = &(*end)->next;
	*end = offer;
	sl__unlock(&s->offers_mu);
}

int sl__pg_withdraw(void *store, struct sl_offer *offer)
{
	struct pg_store *s = store;
	sl__lock(&s->offers_mu);
	struct sl_offer **at = &s->offers;
	while (*at != NULL && *at != offer)
		at = &(*at)->next;
	bool found = *at != NULL;
	if (found)
		*at = offer->next;
	sl__unlock(&s->offers_mu);
	return found;
}

bool sl__pg_start_offered(struct pg_store *s, const struct sl_new_job *job, struct pg_start_result *out)
{
	const struct sl_offer_type *found = NULL;
	/* Take the oldest offer for the type out of the list. */
	sl__lock(&s->offers_mu);
	struct sl_offer **at = &s->offers, *offer;
	for (; (offer = *at) != NULL; at = &offer->next) {
		for (size_t i = 0; i < offer->n_types && found == NULL; i++)
			if (strcmp(offer->types[i].type, job->type) == 0)
				found = &offer->types[i];
		if (found != NULL) {
			*at = offer->next;
			break;
		}
	}
	int64_t lease_ms = found != NULL ? found->lease_ms : 0;
	sl__unlock(&s->offers_mu);
	if (found == NULL)
		return false;
	/* The job's row and its lease. */
	struct sl_claimed_job claimed = {.fence = 1,
					 .type = job->type,
					 .input = job->input != NULL ? job->input : "null",
					 .traceparent = job->traceparent,
					 .priority = job->priority,
					 .attempt = 1};
	struct pg_call call;
	const PGresult *res = NULL;
	int64_t sent_ns = sl__mono_ns(&s->env);
	out->queued = true;
	out->rc = sl__pg_call_open(&call, s, NULL, PG_ONCE, &out->err);
	if (out->rc == 0) {
		struct sl__pg_params *p = &call.params;
		sl__pg_add_text(p, claimed.type);
		sl__pg_add_text(p, claimed.input);
		sl__pg_add_int4(p, claimed.priority);
		sl__pg_add_text(p, claimed.traceparent);
		sl__pg_add_uuid(p, offer->claim.bytes);
		sl__pg_add_text(p, offer->worker);
		sl__pg_add_interval(p, lease_ms);
		out->rc = sl__pg_call_one(&call, ST_START_OFFERED, &res, &out->err);
	}
	if (out->rc == 0) {
		claimed.id = claimed.chain_id = (uint64_t)sl__pg_int8(res, 0, 0);
		out->chain_id = claimed.id;
		out->queued = !sl__pg_bool(res, 0, 1);
		claimed.created_ms = sl__pg_time_ms(res, 0, 2);
	}
	sl__pg_call_close(&call);
	offer->accepted(out->rc, out->queued ? NULL : &claimed, sent_ns, claimed.created_ms, offer->ctx);
	return true;
}
