/* SPDX-License-Identifier: Apache-2.0 */
/* Scheduled puts of a local repository: a queue, and a few threads that write what is in it. The block writer bounds
 * how many there are. */
#include "backup/driver/local.h"

struct local_job {
	struct local_job *next;
	char name[SL_DRIVER_NAME_BYTES];
	const void *bytes;
	size_t len;
	sl_driver_done_fn *done;
	void *ctx;
};

/* The next job; NULL when the handle is being closed and nothing is left. */
static struct local_job *next_job(struct local *l)
{
	sl__lock(&l->mu);
	while (l->first == NULL && !sl__pool_stopping(l->pool))
		(void)sl__wait(&l->env, &l->more, &l->mu, SL_FOREVER);
	struct local_job *job = l->first;
	if (job != NULL && (l->first = job->next) == NULL)
		l->last = NULL;
	sl__unlock(&l->mu);
	return job;
}

static void work(SL_UNUSED unsigned index, void *ctx)
{
	struct local *l = ctx;
	for (struct local_job *job; (job = next_job(l)) != NULL;) {
		struct sl_err err = SL_ERR_INIT;
		int rc = sl__bk_local_put_unsynced(l, job->name, job->bytes, job->len, &err);
		sl_driver_done_fn *done = job->done;
		void *done_ctx = job->ctx;
		sl__free(&l->env, job);
		done(rc == 0 ? NULL : &err, done_ctx);
	}
}

static void wake(void *ctx)
{
	struct local *l = ctx;
	sl__lock(&l->mu);
	sl__broadcast(&l->more);
	sl__unlock(&l->mu);
}

static int start_pool(struct local *l, struct sl_err *err)
{
	sl__lock(&l->starting);
	int rc = 0;
	if (l->pool == NULL)
		rc = sl__pool_start(&l->pool, &l->env, "backup-put", l->threads, work, wake, l, err);
	sl__unlock(&l->starting);
	return rc;
}

int sl__bk_local_schedule_put(void *driver, const char *name, const void *bytes, size_t len, sl_driver_done_fn *done,
			      void *ctx, struct sl_err *err)
{
	struct local *l = driver;
	int rc = sl__bk_local_check_change(l, name, err);
	if (rc == 0)
		rc = start_pool(l, err);
	if (rc != 0)
		return rc;
	struct local_job *job = sl__calloc(&l->env, 1, sizeof(*job));
	if (job == NULL)
		return sl_err_set(err, SL_ENOMEM, "repository %s: put %s: out of memory", l->root, name);
	*job = (struct local_job){.bytes = bytes, .len = len, .done = done, .ctx = ctx};
	memcpy(job->name, name, strlen(name) + 1);
	sl__lock(&l->mu);
	if (l->last != NULL)
		l->last->next = job;
	else
		l->first = job;
	l->last = job;
	sl__signal(&l->more);
	sl__unlock(&l->mu);
	return 0;
}
