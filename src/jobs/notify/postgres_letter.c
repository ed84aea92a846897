/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The address of a process: a channel that only its listener's session hears, and an advisory lock of the same number
 * that this session holds. Whoever can get the lock knows that nobody listens there any more, however the process went.
 * Behind a pooler, where sessions are shared, notifications do not arrive and there is no address; so neither lock nor
 * channel is left behind in somebody else's session.
 */
#include <inttypes.h>
#include <stdio.h>

#include "jobs/notify/postgres.h"

int sl__pg_address(void *notify, struct sl_address *out)
{
	struct sl__pg_notify *n = notify;
	uint64_t lock = atomic_load(&n->lock);
	if (lock == 0 || !atomic_load(&n->healthy))
		return 0;
	out->lock = lock;
	(void)snprintf(out->channel, sizeof(out->channel), "%s_%016" PRIx64, SL__PG_CHANNEL, lock);
	return 1;
}

int sl__pg_attend(void *notify, sl_letter_fn *fn, void *ctx, struct sl_err *err)
{
	struct sl__pg_notify *n = notify;
	size_t i = 0;
	sl__lock(&n->letters_mu);
	while (i < SL_COUNT(n->readers) && n->readers[i].fn != NULL)
		i++;
	if (i < SL_COUNT(n->readers)) {
		n->readers[i].fn = fn;
		n->readers[i].ctx = ctx;
	}
	sl__unlock(&n->letters_mu);
	return i < SL_COUNT(n->readers) ? 0 : sl_err_set(err, SL_EFULL, "notifier: too many attend to its letters");
}

void sl__pg_unattend(void *notify, sl_letter_fn *fn, void *ctx)
{
	struct sl__pg_notify *n = notify;
	sl__lock(&n->letters_mu);
	for (size_t i = 0; i < SL_COUNT(n->readers); i++)
		if (n->readers[i].fn == fn && n->readers[i].ctx == ctx)
			n->readers[i].fn = NULL;
	while (n->telling && !pthread_equal(n->teller, pthread_self()))
		(void)sl__wait(&n->env, &n->letters_idle, &n->letters_mu, SL_FOREVER);
	sl__unlock(&n->letters_mu);
}

void sl__pg_letter_tell(struct sl__pg_notify *n, const char *text)
{
	sl__lock(&n->letters_mu);
	n->telling = true;
	n->teller = pthread_self();
	for (size_t i = 0; i < SL_COUNT(n->readers); i++) {
		sl_letter_fn *fn = n->readers[i].fn;
		void *ctx = n->readers[i].ctx;
		sl__unlock(&n->letters_mu);
		if (fn != NULL)
			fn(text, ctx);
		sl__lock(&n->letters_mu);
	}
	n->telling = false;
	sl__broadcast(&n->letters_idle);
	sl__unlock(&n->letters_mu);
}

void sl__pg_address_open(struct sl__pg_notify *n, PGconn *pg)
{
	struct sl__prng prng;
	char sql[128];
	if (atomic_load(&n->lock) != 0)
		return;
	sl__prng_init(&prng, &n->env);
	uint64_t lock = sl__prng_next(&prng) >> 1 | 1;
	(void)snprintf(sql, sizeof(sql), "LISTEN %s_%016" PRIx64 "; SELECT pg_try_advisory_lock(%" PRIu64 ")",
		       SL__PG_CHANNEL, lock, lock);
	PGresult *res = PQexec(pg, sql);
	bool mine = PQresultStatus(res) == PGRES_TUPLES_OK && PQgetvalue(res, 0, 0)[0] == 't';
	PQclear(res);
	if (!mine)
		return;
	atomic_store(&n->lock, lock);
	sl__pg_letter_tell(n, NULL);
}

void sl__pg_address_lost(struct sl__pg_notify *n)
{
	if (atomic_exchange(&n->lock, 0) != 0)
		sl__pg_letter_tell(n, NULL);
}
