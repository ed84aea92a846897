/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offers to other processes: a row of `offer`, which a start takes out of the table and answers with a letter in its
 * own transaction (start_posted of sql.c).
 *
 *	1 CLAIM ID CREATED PRIORITY      the claim as a UUID, microseconds of the server's clock
 *	TYPE
 *	t TRACE PARENT                   without the blank; empty: there is none
 *	INPUT                            to the end
 *
 * A letter says when the lease began by the server's clock. What that is by ours is known from the post, in whose
 * answer the server told its time: not later than counted from before it was sent.
 */
#include <inttypes.h>
#include <stdio.h>

#include "jobs/store/postgres/store.h"

#define LETTER_MAX 7600 /* bytes of type, trace parent and input: the server takes less than 8,000 of a letter */
#define SWEEP_NS INT64_C(60000000000)

bool sl__pg_fits_letter(const struct sl_new_job *job)
{
	const char *trace = job->traceparent != NULL ? job->traceparent : "";
	size_t n = strlen(job->type) + strlen(trace) + (job->input != NULL ? strlen(job->input) : 4);
	return n <= LETTER_MAX && strchr(job->type, '\n') == NULL && strchr(trace, '\n') == NULL;
}

/* ---- the offers that stand ---- */

static void put(struct pg_store *s, struct sl_offer *offer)
{
	sl__lock(&s->offers_mu);
	offer->next = s->posted;
	s->posted = offer;
	sl__unlock(&s->offers_mu);
}

/* Out of the list, by its claim; NULL: it is not there. */
static struct sl_offer *take(struct pg_store *s, const struct sl_claim_id *claim)
{
	sl__lock(&s->offers_mu);
	struct sl_offer **at = &s->posted;
	while (*at != NULL && memcmp(&(*at)->claim, claim, sizeof(*claim)) != 0)
		at = &(*at)->next;
	struct sl_offer *offer = *at;
	if (offer != NULL)
		*at = offer->next;
	sl__unlock(&s->offers_mu);
	return offer;
}

int sl__pg_drop(void *store, struct sl_offer *offer)
{
	return take(store, &offer->claim) != NULL;
}

/* The job is the worker's since claimed_us. */
static void hand_over(const struct pg_store *s, const struct sl_offer *offer, const struct sl_claimed_job *job,
		      int64_t claimed_us)
{
	int64_t now = sl__mono_ns(&s->env), since = offer->posted_ns, now_us = claimed_us;
	if (offer->posted_us != 0) { /* else the post is not answered yet */
		since += (claimed_us - offer->posted_us) * 1000;
		now_us = SL_MAX(now_us, offer->posted_us + (now - offer->answered_ns) / 1000);
	}
	offer->taken(0, job, SL_MIN(since, now), now_us / 1000, offer->ctx);
}

/* ---- posting ---- */

static bool must_sweep(struct pg_store *s)
{
	int64_t now = sl__mono_ns(&s->env);
	sl__lock(&s->offers_mu);
	bool must = now - s->swept_ns >= SWEEP_NS;
	if (must)
		s->swept_ns = now;
	sl__unlock(&s->offers_mu);
	return must;
}

static void add_post(struct sl__pg_params *p, const struct sl_offer *offer, const struct sl_address *at)
{
	sl__pg_add_text(p, offer->worker);
	sl__pg_add_uuid(p, offer->claim.bytes);
	sl__pg_add_int8(p, (int64_t)at->lock);
	sl__pg_add_interval(p, offer->accept_ms);
	sl__pg_add_text(p, at->channel);
	sl__pg_add_array(p, SL__PG_TEXT, offer->n_types);
	for (size_t i = 0; i < offer->n_types; i++)
		sl__pg_el_text(p, offer->types[i].type);
	sl__pg_add_int8(p, offer->posted_ns);
}

/* The answer has come: the server's clock is known, unless a letter was faster. */
static void answered(struct pg_store *s, struct sl_offer *offer, int64_t us)
{
	sl__lock(&s->offers_mu);
	const struct sl_offer *at = s->posted;
	while (at != NULL && at != offer)
		at = at->next;
	if (at != NULL) {
		offer->answered_ns = sl__mono_ns(&s->env);
		offer->posted_us = us;
	}
	sl__unlock(&s->offers_mu);
}

int sl__pg_post(void *store, struct sl_offer *offer, const struct sl_address *at, struct sl_err *err)
{
	struct pg_store *s = store;
	struct pg_call call;
	int rc = sl__pg_call_open(&call, s, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	/* The dead leave their offers behind; starts pass over them, and somebody takes them away. */
	if (must_sweep(s))
		(void)sl__pg_call_send(&call, ST_SWEEP_POSTS);
	offer->posted_ns = sl__mono_ns(&s->env);
	offer->posted_us = 0;
	add_post(&call.params, offer, at);
	int sent = sl__pg_call_send(&call, ST_POST);
	put(s, offer); /* a letter may come before the answer */
	struct sl_claim_id claim = offer->claim;
	rc = sl__pg_call_run(&call, true, err);
	if (rc == 0 && PQntuples(sl__pg_call_result(&call, sent)) == 0)
		rc = sl_err_set(err, SL_EEXIST, "postgres: post: a later offer of %s stands", offer->worker);
	if (rc == 0)
		answered(s, offer, sl__pg_int8(sl__pg_call_result(&call, sent), 0, 0));
	else if (take(s, &claim) == NULL)
		rc = 0;
	sl__pg_call_close(&call);
	return rc;
}

/* ---- taking back ---- */

static void read_posted(const PGresult *res, struct sl_claimed_job *job)
{
	*job = (struct sl_claimed_job){.id = (uint64_t)sl__pg_int8(res, 0, 0),
				       .chain_id = (uint64_t)sl__pg_int8(res, 0, 0),
				       .fence = (uint64_t)sl__pg_int8(res, 0, 1),
				       .type = sl__pg_text(res, 0, 2),
				       .input = sl__pg_text(res, 0, 3),
				       .traceparent = sl__pg_text(res, 0, 4),
				       .attempt = (int32_t)sl__pg_int8(res, 0, 1),
				       .charged = sl__pg_int4(res, 0, 5),
				       .priority = sl__pg_int4(res, 0, 6),
				       .created_ms = sl__pg_time_ms(res, 0, 7)};
}

int sl__pg_unpost(void *store, struct sl_offer *offer, struct sl_err *err)
{
	struct pg_store *s = store;
	struct pg_call call;
	struct sl_claimed_job job;
	if (take(s, &offer->claim) == NULL)
		return 0;
	int rc = sl__pg_call_open(&call, s, NULL, PG_ONCE, err);
	if (rc != 0) {
		put(s, offer);
		return rc;
	}
	sl__pg_add_text(&call.params, offer->worker);
	sl__pg_add_uuid(&call.params, offer->claim.bytes);
	(void)sl__pg_call_send(&call, ST_UNPOST);
	/* A statement of its own, to see what the first one has waited for. */
	sl__pg_add_uuid(&call.params, offer->claim.bytes);
	int at = sl__pg_call_send(&call, ST_POSTED);
	rc = sl__pg_call_run(&call, true, err);
	bool taken = rc == 0 && PQntuples(sl__pg_call_result(&call, at)) > 0;
	if (taken) {
		const PGresult *res = sl__pg_call_result(&call, at);
		read_posted(res, &job);
		hand_over(s, offer, &job, sl__pg_int8(res, 0, 8));
	} else if (rc != 0) {
		put(s, offer);
	}
	sl__pg_call_close(&call);
	return rc != 0 ? rc : !taken;
}

/* ---- letters ---- */

static bool read_uuid(const char *text, struct sl_claim_id *out)
{
	for (size_t i = 0, at = 0; i < sizeof(out->bytes); i++, at += 2) {
		unsigned byte;
		at += text[at] == '-';
		if (sscanf(text + at, "%2x", &byte) != 1)
			return false;
		out->bytes[i] = (uint8_t)byte;
	}
	return true;
}

/* The line at *at, which is moved behind it; false: there is none that ends. */
static bool next_line(char **at, const char **out)
{
	char *end = strchr(*at, '\n');
	if (end == NULL)
		return false;
	*out = *at;
	*end = '\0';
	*at = end + 1;
	return true;
}

static bool read_letter(char *text, struct sl_claim_id *claim, struct sl_claimed_job *job, int64_t *claimed_us)
{
	const char *head = NULL, *trace = NULL;
	char uuid[40];
	*job = (struct sl_claimed_job){.fence = 1, .attempt = 1};
	if (!next_line(&text, &head) || !next_line(&text, &job->type) || !next_line(&text, &trace) ||
	    sscanf(head, "1 %39s %" SCNu64 " %" SCNd64 " %" SCNd32, uuid, &job->id, claimed_us, &job->priority) != 4 ||
	    strlen(uuid) != 36 || !read_uuid(uuid, claim))
		return false;
	job->chain_id = job->id;
	job->input = text;
	job->traceparent = trace[0] == 't' ? trace + 1 : NULL;
	job->created_ms = *claimed_us / 1000;
	return true;
}

int sl__pg_letter(void *store, const char *text)
{
	struct pg_store *s = store;
	struct sl_claim_id claim;
	struct sl_claimed_job job;
	int64_t claimed_us;
	struct sl_offer *offer = NULL;
	char *copy = sl__strdup(&s->env, text);
	if (copy == NULL)
		return SL_ENOMEM;
	if (read_letter(copy, &claim, &job, &claimed_us))
		offer = take(s, &claim);
	if (offer != NULL)
		hand_over(s, offer, &job, claimed_us);
	sl__free(&s->env, copy);
	return offer != NULL;
}
