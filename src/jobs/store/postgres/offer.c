/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offers of workers in this process to run what is started next, and the start that takes one: the job's row and its
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

static const struct sl_offer_type *find_type(const struct sl_offer *offer, const char *type)
{
	for (size_t i = 0; i < offer->n_types; i++)
		if (strcmp(offer->types[i].type, type) == 0)
			return &offer->types[i];
	return NULL;
}

/* The oldest offer for the type, out of the list; NULL: none. */
static struct sl_offer *take(struct pg_store *s, const char *type, int64_t *lease_ms)
{
	const struct sl_offer_type *found = NULL;
	sl__lock(&s->offers_mu);
	struct sl_offer **at = &s->offers;
	while (*at != NULL && (found = find_type(*at, type)) == NULL)
		at = &(*at)->next;
	struct sl_offer *offer = *at;
	if (found != NULL) {
		*lease_ms = found->lease_ms;
		*at = offer->next;
	}
	sl__unlock(&s->offers_mu);
	return offer;
}

static int start(struct pg_store *s, const struct sl_offer *offer, int64_t lease_ms, struct sl_claimed_job *job,
		 bool *queued, struct sl_err *err)
{
	struct pg_call call;
	const PGresult *res = NULL;
	struct sl__pg_params *p = &call.params;
	int rc = sl__pg_call_open(&call, s, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	sl__pg_add_text(p, job->type);
	sl__pg_add_text(p, job->input);
	sl__pg_add_int4(p, job->priority);
	sl__pg_add_text(p, job->traceparent);
	sl__pg_add_uuid(p, offer->claim.bytes);
	sl__pg_add_text(p, offer->worker);
	sl__pg_add_interval(p, lease_ms);
	rc = sl__pg_call_one(&call, ST_START_OFFERED, &res, err);
	if (rc == 0) {
		job->id = job->chain_id = (uint64_t)sl__pg_int8(res, 0, 0);
		*queued = !sl__pg_bool(res, 0, 1);
		job->created_ms = sl__pg_time_ms(res, 0, 2);
	}
	sl__pg_call_close(&call);
	return rc;
}

bool sl__pg_start_offered(struct pg_store *s, const struct sl_new_job *job, struct sl_started *out, bool *queued,
			  int *rc, struct sl_err *err)
{
	int64_t lease_ms = 0;
	struct sl_offer *offer = take(s, job->type, &lease_ms);
	if (offer == NULL)
		return false;
	struct sl_claimed_job claimed = {.fence = 1,
					 .type = job->type,
					 .input = job->input != NULL ? job->input : "null",
					 .traceparent = job->traceparent,
					 .priority = job->priority,
					 .attempt = 1};
	int64_t sent_ns = sl__mono_ns(&s->env);
	*queued = true;
	*rc = start(s, offer, lease_ms, &claimed, queued, err);
	if (*rc == 0)
		*out = (struct sl_started){.chain_id = claimed.id};
	offer->taken(*rc, *queued ? NULL : &claimed, sent_ns, claimed.created_ms, offer->ctx);
	return true;
}
