/* SPDX-License-Identifier: Apache-2.0 */
/* The notifier for one process: a queue and the thread that calls the subscribers. */
#include "jobs/notify/fanout.h"
#include <sluice/jobs.h>

struct local {
	struct sl__fanout fanout; /* first: its slots get this struct */
	struct sl_env env;
	pthread_t thread;
	sl__mutex mu;
	sl__cond wake;
	bool woken, stopping; /* under mu */
};

static void wake_deliverer(void *ctx)
{
	struct local *l = ctx;
	sl__lock(&l->mu);
	l->woken = true;
	sl__signal(&l->wake);
	sl__unlock(&l->mu);
}

static void *deliver_main(void *arg)
{
	struct local *l = arg;
	sl__lock(&l->mu);
	while (!l->stopping) {
		if (!l->woken) {
			(void)sl__wait(&l->env, &l->wake, &l->mu, SL_FOREVER);
			continue;
		}
		l->woken = false;
		sl__unlock(&l->mu);
		sl__fanout_deliver(&l->fanout);
		sl__lock(&l->mu);
	}
	sl__unlock(&l->mu);
	return NULL;
}

static void local_free(struct local *l)
{
	sl__fanout_fini(&l->fanout);
	sl__cond_fini(&l->wake);
	sl__mutex_fini(&l->mu);
	struct sl_env env = l->env;
	sl__free(&env, l);
}

static void local_close(void *notify)
{
	struct local *l = notify;
	if (sl__fanout_check_fork(&l->fanout, NULL) != 0)
		return;
	sl__lock(&l->mu);
	l->stopping = true;
	sl__signal(&l->wake);
	sl__unlock(&l->mu);
	(void)pthread_join(l->thread, NULL);
	local_free(l);
}

static const struct sl_notify_ops ops = {
	.version = SL_NOTIFY_VERSION,
	.name = "local",
	.close = local_close,
	.publish = sl__fanout_publish,
	.subscribe = sl__fanout_subscribe,
	.unsubscribe = sl__fanout_unsubscribe,
	.healthy = sl__fanout_healthy,
};

int sl_notify_local_open(sl_notify *out, const struct sl_env *env, struct sl_err *err)
{
	struct sl_env full;
	int rc = sl__env_init(&full, env, err);
	if (rc != 0)
		return rc;
	struct local *l = sl__calloc(&full, 1, sizeof(*l));
	if (l == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for a notifier");
	l->env = full;
	sl__mutex_init(&l->mu);
	sl__cond_init(&l->wake);
	rc = sl__fanout_init(&l->fanout, &l->env, wake_deliverer, l, err);
	if (rc != 0) {
		local_free(l);
		return rc;
	}
	rc = sl__thread_start(&l->thread, "sl-notify", deliver_main, l);
	if (rc != 0) {
		local_free(l);
		return sl__thread_error(err, rc, "notifier", "this process");
	}
	*out = (sl_notify){.ops = &ops, .ctx = l};
	return 0;
}
