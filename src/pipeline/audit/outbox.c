/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane's thread: wait for a wake, deliver all there is, and after a failure wait as the policy says. What a lane has
 * delivered is in the catalog (its mark), so nothing is lost when a process ends in the middle.
 *
 *	wanted ──┬──▶ lane: begun … deliver … done = wanted as it was when the attempt began
 *	         └──▶ drain: wait until every lane's done is at least the wanted of the call
 */
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "flow/retry.h"
#include "pipeline/audit/outbox.h"

#define FILE_BYTES_DEFAULT (16 << 20)
#define TIMEOUT_DEFAULT_MS 30000
#define BATCH_FULL 1 /* ends the walk over events */

/* ---- what lanes use ---- */

bool sl__outbox_stopping(struct sl_outbox *o)
{
	sl__lock(&o->mu);
	bool stopping = o->stopping;
	sl__unlock(&o->mu);
	return stopping;
}

static int add_event(uint64_t number, const char *event, size_t len, void *ctx)
{
	struct sl__outbox_batch *batch = ctx;
	if (batch->lines->len > 0 && batch->lines->len + len + 1 > batch->max_bytes)
		return BATCH_FULL;
	(void)sl__buf_append(batch->lines, event, len);
	if (sl__buf_append(batch->lines, "\n", 1) != 0)
		return SL_ENOMEM;
	batch->last = number;
	return 0;
}

int sl__outbox_read(struct sl_outbox *o, struct sl__outbox_batch *batch, struct sl_err *err)
{
	sl__buf_clear(batch->lines);
	int rc = sl_catalog_events(o->catalog, o->lease->dataset, batch->last, 500, add_event, batch, err);
	if (batch->lines->failed != 0)
		return sl_err_set(err, SL_ENOMEM, "out of memory for a batch of audit events");
	return rc == BATCH_FULL ? 0 : rc;
}

struct marks {
	uint64_t files, endpoint;
};

static int note_marks(const struct sl_dataset *d, void *ctx)
{
	*(struct marks *)ctx = (struct marks){.files = d->delivered_files, .endpoint = d->delivered_endpoint};
	return 0;
}

int sl__outbox_delivered(struct sl_outbox *o, bool endpoint, uint64_t *out, struct sl_err *err)
{
	struct marks marks = {0};
	int rc = sl_catalog_datasets(o->catalog, o->lease->dataset, note_marks, &marks, err);
	/* One that is not defined yet has nothing to deliver. */
	if (rc != 0 && rc != SL_ENOENT)
		return rc;
	*out = endpoint ? marks.endpoint : marks.files;
	return 0;
}

/* ---- a lane's thread ---- */

/* One attempt. Returns the time before which no other is made. */
static int64_t attempt(struct sl_outbox *o, struct sl__lane *lane, uint32_t *failures, struct sl__prng *prng)
	SL_REQUIRES(o->mu)
{
	struct sl_err err = SL_ERR_INIT;
	uint64_t wanted = o->wanted;
	lane->begun++;
	sl__unlock(&o->mu);
	int rc = lane->ops->deliver(lane, &err);
	if (rc != 0 && rc != SL_ECANCELLED)
		sl__log(&o->env, SL_LOG_WARN, "outbox", "audit events could not be delivered",
			SL__F_STR("dataset", o->lease->dataset), SL__F_STR("to", lane->ops->name),
			SL__F_STR("error", err.msg));
	sl__lock(&o->mu);
	lane->attempts++;
	lane->err = err;
	/* What no retry can fix: the lease is lost, or the files were changed by another program. */
	lane->dead = rc == SL_ESTALE || rc == SL_ECONFLICT || rc == SL_EFORKED;
	if (rc == 0)
		lane->done = wanted;
	*failures = rc == 0 ? 0 : *failures + 1;
	sl__broadcast(&o->changed);
	if (rc == 0)
		return 0;
	int64_t delay_ms = sl__retry_delay_ms(&o->retry, *failures, prng);
	return sl__deadline_ns(&o->env, SL_MAX(delay_ms, SL_MIN(err.retry_after_ms, SL__RETRY_AFTER_MAX_MS)));
}

static void *lane_main(void *arg)
{
	struct sl__lane *lane = arg;
	struct sl_outbox *o = lane->outbox;
	struct sl__prng prng;
	uint32_t failures = 0;
	int64_t not_before_ns = 0;
	uint64_t hurried = 0;
	sl__prng_init(&prng, &o->env);
	sl__lock(&o->mu);
	while (!o->stopping) {
		bool idle = lane->dead || lane->done == o->wanted;
		/* A drain waits for it: retry immediately. */
		if (hurried != o->hurry)
			not_before_ns = 0;
		hurried = o->hurry;
		if (idle)
			(void)sl__wait(&o->env, &o->changed, &o->mu, SL_FOREVER);
		else if (sl__mono_ns(&o->env) < not_before_ns)
			(void)sl__wait(&o->env, &o->changed, &o->mu, not_before_ns);
		else
			not_before_ns = attempt(o, lane, &failures, &prng);
	}
	sl__unlock(&o->mu);
	return NULL;
}

/* ---- waiting for it ---- */

void sl_outbox_wake(sl_outbox *o)
{
	sl__lock(&o->mu);
	o->wanted++;
	sl__broadcast(&o->changed);
	sl__unlock(&o->mu);
}

int sl_outbox_drain(sl_outbox *o, int64_t timeout_ms, struct sl_err *err)
{
	int rc = sl__catalog_check(o->catalog, err);
	if (rc != 0)
		return rc;
	uint64_t attempts[SL_COUNT(o->lanes)];
	bool once = timeout_ms == SL_NONE;
	int64_t until_ns = once ? SL_FOREVER : sl__deadline_ns(&o->env, timeout_ms);
	sl__lock(&o->mu);
	uint64_t wanted = ++o->wanted;
	o->hurry++;
	for (size_t i = 0; i < o->n_lanes; i++)
		attempts[i] = o->lanes[i].begun + 1; /* one that begins from now on sees what is committed */
	sl__broadcast(&o->changed);

	/* Until there is nothing more to wait for in any lane. */
	for (size_t i = 0; i < o->n_lanes && !o->stopping;) {
		const struct sl__lane *lane = &o->lanes[i];
		if (lane->dead || lane->done >= wanted || (once && lane->attempts >= attempts[i]))
			i++;
		else if (!sl__wait(&o->env, &o->changed, &o->mu, until_ns))
			break;
	}

	/* The first lane that has not delivered everything says why. */
	for (size_t i = 0; i < o->n_lanes && rc == 0; i++) {
		const struct sl__lane *lane = &o->lanes[i];
		if (lane->done >= wanted)
			continue;
		if (lane->err.code == 0 || lane->err.code == SL_ECANCELLED) {
			rc = sl_err_set(err, SL_ETIMEDOUT, "audit events of %s are not yet delivered to %s",
					o->lease->dataset, lane->ops->name);
		} else {
			if (err != NULL)
				*err = lane->err;
			rc = sl_err_wrap(err, lane->err.code, "audit events of %s to %s", o->lease->dataset,
					 lane->ops->name);
		}
	}
	sl__unlock(&o->mu);
	return rc;
}

/* ---- the handle ---- */

static void free_string(const struct sl_env *env, const char *field)
{
	union {
		const char *in;
		char *out;
	} text = {.in = field};
	sl__free(env, text.out);
}

static int copy_outbox_opts(struct sl_outbox *o, const struct sl_outbox_opts *opts, struct sl_err *err)
{
	struct sl_outbox_opts from;
	sl__opts_copy(&from, sizeof(from), opts);
	o->opts = from;
	o->opts.dir = o->opts.endpoint = o->opts.token_file = o->opts.ca_file = NULL;
	o->opts.file_bytes = from.file_bytes != 0 ? from.file_bytes : FILE_BYTES_DEFAULT;
	o->opts.timeout_ms = from.timeout_ms != 0 ? from.timeout_ms : TIMEOUT_DEFAULT_MS;
	if (o->opts.file_bytes < 1 || o->opts.file_bytes > (32 << 20))
		return sl_err_set(err, SL_EINVAL, "file_bytes: give 1 byte to 32 MiB");
	if (o->opts.timeout_ms < 1 || o->opts.timeout_ms > INT32_MAX)
		return sl_err_set(err, SL_EINVAL, "timeout_ms: must be positive");
	const struct {
		const char **to, *from;
	} strings[] = {{&o->opts.dir, from.dir},
		       {&o->opts.endpoint, from.endpoint},
		       {&o->opts.token_file, from.token_file},
		       {&o->opts.ca_file, from.ca_file}};
	int rc = sl_check_local_path("outbox: dir", from.dir, err);
	if (rc != 0)
		return rc;
	for (size_t i = 0; i < SL_COUNT(strings); i++) {
		*strings[i].to = strings[i].from != NULL ? sl__strdup(&o->env, strings[i].from) : NULL;
		if (strings[i].from != NULL && *strings[i].to == NULL)
			return sl_err_set(err, SL_ENOMEM, "out of memory for an outbox");
	}
	const struct sl_retry_policy policy = {.first_ms = from.retry_ms};
	return sl_retry_resolve(&policy, SL_RETRY_WAL, &o->retry, err);
}

int sl_outbox_start(sl_catalog *c, sl_catalog_lease *lease, const struct sl_outbox_opts *opts, sl_outbox **out,
		    struct sl_err *err)
{
	int rc = sl_catalog_lease_check(lease, err);
	if (rc != 0)
		return rc;
	struct sl_outbox *o = sl__calloc(&c->env, 1, sizeof(*o));
	if (o == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for an outbox");
	o->env = c->env;
	o->catalog = c;
	o->lease = lease;
	o->wanted = 1; /* what an earlier run left over */
	sl__mutex_init(&o->mu);
	sl__cond_init(&o->changed);
	o->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	rc = o->cancel_fd < 0 ? sl_err_set_errno(err, errno, "outbox: eventfd") : copy_outbox_opts(o, opts, err);
	/* A lane for the files, one for the endpoint, and a thread for each. */
	for (size_t i = 0; i < SL_COUNT(o->lanes); i++)
		o->lanes[i].outbox = o;
	if (rc == 0 && o->opts.dir != NULL && (rc = sl__lane_files_open(&o->lanes[o->n_lanes], err)) == 0)
		o->n_lanes++;
	if (rc == 0 && o->opts.endpoint != NULL && (rc = sl__lane_http_open(&o->lanes[o->n_lanes], err)) == 0)
		o->n_lanes++;
	for (size_t i = 0; i < o->n_lanes && rc == 0; i++) {
		struct sl__lane *lane = &o->lanes[i];
		rc = sl__thread_start(&lane->thread, "sl-outbox", lane_main, lane);
		lane->started = rc == 0;
		if (rc != 0)
			rc = sl__thread_error(err, rc, "outbox", o->lease->dataset);
	}
	if (rc != 0)
		sl_outbox_stop(o);
	else
		*out = o;
	return rc;
}

void sl_outbox_stop(sl_outbox *o)
{
	const uint64_t one = 1;
	if (o == NULL || sl__catalog_check(o->catalog, NULL) != 0)
		return;
	sl__lock(&o->mu);
	o->stopping = true;
	sl__broadcast(&o->changed);
	sl__unlock(&o->mu);
	if (o->cancel_fd >= 0 && write(o->cancel_fd, &one, sizeof(one)) < 0)
		assert(errno == EAGAIN);
	for (size_t i = 0; i < SL_COUNT(o->lanes); i++) {
		if (o->lanes[i].started)
			(void)pthread_join(o->lanes[i].thread, NULL);
		if (o->lanes[i].ops != NULL)
			o->lanes[i].ops->close(&o->lanes[i]);
	}
	if (o->cancel_fd >= 0)
		(void)close(o->cancel_fd);
	free_string(&o->env, o->opts.dir);
	free_string(&o->env, o->opts.endpoint);
	free_string(&o->env, o->opts.token_file);
	free_string(&o->env, o->opts.ca_file);
	sl__cond_fini(&o->changed);
	sl__mutex_fini(&o->mu);
	struct sl_env env = o->env;
	sl__free(&env, o);
}
