/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lease of a dataset. The row has a fence number that only grows; taking the lease raises it, and every
 * transaction of a holder looks for the row by its own fence, so that a holder who was overtaken finds nothing to write
 * to. Where leases expire, a thread renews at a third of the time; that a renewal finds no row is how a holder learns
 * early. A renewal that fails for another reason (the database is unavailable) is tried again: only the fence decides.
 */
#include <stdio.h>
#include <unistd.h>

#include "pipeline/audit/catalog.h"

#define TTL_MS 30000
#define TTL_MIN_MS 1000

/* ---- who has it ---- */

static int note_holder(const struct sl__cat_row *row, SL_UNUSED struct sl_err *err, void *ctx)
{
	struct sl__cat_dataset d;
	sl__cat_read_dataset(row, &d);
	(void)snprintf(ctx, CAT_HOLDER_BYTES, "%s", d.d.holder != NULL ? d.d.holder : "");
	return 0;
}

static void find_holder(struct sl_catalog *c, const char *dataset, char out[CAT_HOLDER_BYTES])
{
	struct sl__cat_call get = {
		.stmt = CAT_DATASET_GET, .values = {CAT_TEXT(dataset)}, .n = 1, .fn = note_holder, .ctx = out};
	out[0] = '\0';
	(void)!sl__catalog_once(c, CAT_READ, &get, NULL);
}

static int stale(struct sl_catalog_lease *lease, struct sl_err *err) SL_REQUIRES(lease->mu)
{
	return sl_err_set(err, SL_ESTALE, "the lease of dataset %s was lost%s%s: another process is exporting it",
			  lease->dataset, lease->lost_to[0] != '\0' ? " to " : "", lease->lost_to);
}

int sl__lease_lost(struct sl_catalog_lease *lease, struct sl_err *err)
{
	char holder[CAT_HOLDER_BYTES];
	find_holder(lease->catalog, lease->dataset, holder);
	sl__lock(&lease->mu);
	lease->lost = true;
	memcpy(lease->lost_to, holder, sizeof(holder));
	int rc = stale(lease, err);
	sl__unlock(&lease->mu);
	return rc;
}

int sl_catalog_lease_check(sl_catalog_lease *lease, struct sl_err *err)
{
	int rc = sl__catalog_check(lease->catalog, err);
	if (rc != 0)
		return rc;
	sl__lock(&lease->mu);
	rc = lease->lost ? stale(lease, err) : 0;
	sl__unlock(&lease->mu);
	return rc;
}

uint64_t sl_catalog_lease_fence(const sl_catalog_lease *lease)
{
	return lease->fence;
}

/* ---- renewing ---- */

static void *renewer(void *arg)
{
	struct sl_catalog_lease *lease = arg;
	const struct sl_env *env = &lease->catalog->env;
	sl__lock(&lease->mu);
	while (!lease->stopping && !lease->lost) {
		int64_t until_ns = sl__deadline_ns(env, lease->ttl_ms / 3);
		while (!lease->stopping && sl__wait(env, &lease->wake, &lease->mu, until_ns))
			;
		if (lease->stopping)
			break;
		sl__unlock(&lease->mu);
		struct sl_err err = SL_ERR_INIT;
		struct sl__cat_call call = {
			.stmt = CAT_LEASE_RENEW,
			.values = {CAT_INT(lease->ttl_ms), CAT_TEXT(lease->dataset), CAT_INT(lease->fence)},
			.n = 3};
		int rc = sl__catalog_once(lease->catalog, CAT_RELAXED, &call, &err);
		if (rc == 0 && call.changed == 0)
			(void)sl__lease_lost(lease, &err);
		if (rc != 0 || call.changed == 0)
			sl__log(env, SL_LOG_WARN, "catalog", rc == 0 ? "lease lost" : "lease not renewed",
				SL__F_STR("dataset", lease->dataset), SL__F_STR("error", err.msg));
		sl__lock(&lease->mu);
	}
	sl__unlock(&lease->mu);
	return NULL;
}

/* ---- taking and giving back ---- */

static int note_fence(const struct sl__cat_row *row, SL_UNUSED struct sl_err *err, void *ctx)
{
	*(uint64_t *)ctx = (uint64_t)sl__cat_number(row, 0);
	return 0;
}

static int lease_held(struct sl_catalog *c, const char *dataset, struct sl_err *err)
{
	char holder[CAT_HOLDER_BYTES];
	find_holder(c, dataset, holder);
	return sl_err_set(err, SL_ELOCKED, "dataset %s is being exported by %s", dataset,
			  holder[0] != '\0' ? holder : "another process");
}

/* The guard, the row with a new fence, and where leases expire the thread that renews it. */
static int acquire_lease(struct sl_catalog_lease *lease, const char *holder, struct sl_err *err)
{
	struct sl_catalog *c = lease->catalog;
	struct sl__cat_tx tx;
	struct sl__cat_call calls[] = {{.stmt = CAT_DATASET_MAKE, .values = {CAT_TEXT(lease->dataset)}, .n = 1},
				       {.stmt = CAT_LEASE_TAKE,
					.values = {CAT_TEXT(holder), CAT_INT(lease->ttl_ms), CAT_TEXT(lease->dataset)},
					.n = 3,
					.fn = note_fence,
					.ctx = &lease->fence}};
	int rc = c->ops->guard(c->db, lease->dataset, &lease->guard, err);
	if (rc == SL_ELOCKED)
		return lease_held(c, lease->dataset, err);
	if (rc != 0)
		return rc;
	lease->has_guard = true;
	if ((rc = c->ops->begin(c->db, CAT_DURABLE, &tx, err)) != 0)
		return rc;
	rc = c->ops->call(&tx, calls, SL_COUNT(calls), true, err);
	c->ops->end(&tx);
	if (rc != 0)
		return rc;
	if (lease->fence == 0)
		return lease_held(c, lease->dataset, err);
	if (!c->ops->expires)
		return 0;
	rc = sl__thread_start(&lease->thread, "sl-lease", renewer, lease);
	lease->has_thread = rc == 0;
	if (rc != 0)
		return sl__thread_error(err, rc, "lease", lease->dataset);
	return 0;
}

int sl_catalog_lease_acquire(sl_catalog *c, const char *dataset, const struct sl_catalog_lease_opts *opts,
			     sl_catalog_lease **out, struct sl_err *err)
{
	struct sl_catalog_lease_opts o;
	char holder[CAT_HOLDER_BYTES], host[65] = "";
	sl__opts_copy(&o, sizeof(o), opts);
	int rc = sl__catalog_check(c, err);
	if (rc == 0)
		rc = sl_dataset_check_name(dataset, err);
	if (rc != 0)
		return rc;
	o.ttl_ms = o.ttl_ms != 0 ? o.ttl_ms : TTL_MS;
	if (o.ttl_ms < TTL_MIN_MS || o.ttl_ms > INT32_MAX)
		return sl_err_set(err, SL_EINVAL, "ttl_ms: must be at least one second");
	if (o.holder != NULL && strlen(o.holder) >= CAT_HOLDER_BYTES)
		return sl_err_set(err, SL_EINVAL, "holder: at most %d bytes", CAT_HOLDER_BYTES - 1);
	if (gethostname(host, sizeof(host) - 1) != 0 || host[0] == '\0')
		(void)snprintf(host, sizeof(host), "localhost");
	(void)snprintf(holder, sizeof(holder), "%s pid %ld", host, (long)getpid());

	struct sl_catalog_lease *lease = sl__calloc(&c->env, 1, sizeof(*lease));
	if (lease == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for a lease");
	lease->catalog = c;
	lease->ttl_ms = o.ttl_ms;
	(void)snprintf(lease->dataset, sizeof(lease->dataset), "%s", dataset);
	sl__mutex_init(&lease->mu);
	sl__cond_init(&lease->wake);
	rc = acquire_lease(lease, o.holder != NULL ? o.holder : holder, err);
	if (rc != 0) {
		sl_catalog_lease_release(lease);
		return rc;
	}
	*out = lease;
	return 0;
}

void sl_catalog_lease_release(sl_catalog_lease *lease)
{
	if (lease == NULL || sl__catalog_check(lease->catalog, NULL) != 0)
		return;
	struct sl_catalog *c = lease->catalog;
	if (lease->has_thread) {
		sl__lock(&lease->mu);
		lease->stopping = true;
		sl__signal(&lease->wake);
		sl__unlock(&lease->mu);
		(void)pthread_join(lease->thread, NULL);
	}
	struct sl__cat_call drop = {
		.stmt = CAT_LEASE_DROP, .values = {CAT_TEXT(lease->dataset), CAT_INT(lease->fence)}, .n = 2};
	/* A lease that is not released expires. */
	if (lease->fence != 0)
		(void)!sl__catalog_once(c, CAT_RELAXED, &drop, NULL);
	if (lease->has_guard)
		c->ops->unguard(c->db, lease->guard);
	sl__cond_fini(&lease->wake);
	sl__mutex_fini(&lease->mu);
	sl__free(&c->env, lease);
}
