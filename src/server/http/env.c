/* SPDX-License-Identifier: Apache-2.0 */
/* The clock and the log of the environment, or the real ones; memory that held a token. */
#include "server/http/internal.h"
#include "server/thread.h"

#include <errno.h>
#include <malloc.h>
#include <sodium.h>
#include <stdlib.h>
#include <time.h>

int64_t srv_mono_ns(srv_http *h)
{
	struct timespec ts;
	if (h->env.clock != NULL)
		return h->env.clock->mono_ns(h->env.clock_ctx);
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

int64_t srv_real_ms(srv_http *h)
{
	if (h->env.clock != NULL)
		return h->env.clock->real_ms(h->env.clock_ctx);
	return srv_clock_real_ms();
}

int srv_wait(srv_http *h, pthread_cond_t *cond, pthread_mutex_t *mu, int64_t deadline_ns)
{
	if (h->env.clock != NULL)
		return h->env.clock->wait(cond, mu, deadline_ns, h->env.clock_ctx);
	if (deadline_ns == SL_FOREVER)
		return pthread_cond_wait(cond, mu);
	struct timespec ts = {.tv_sec = deadline_ns / 1000000000, .tv_nsec = deadline_ns % 1000000000};
	return pthread_cond_timedwait(cond, mu, &ts);
}

void srv_log(srv_http *h, enum sl_log_level level, const char *message, const char *key, const char *value)
{
	enum sl_log_level least = h->env.log_level != 0 ? h->env.log_level : SL_LOG_INFO;
	const struct sl_log_field field = {.key = key, .kind = SL_LOG_STR, .str = value};
	if (h->env.log == NULL || level < least)
		return;
	const struct sl_log_record record = {.level = level,
					     .time_ms = srv_real_ms(h),
					     .component = "http",
					     .message = message,
					     .fields = &field,
					     .n_fields = key != NULL};
	h->env.log(&record, h->env.log_ctx);
}

/* Of this thread, while it has a log-in in hand: wiping everything costs a tenth of a small answer's time. */
static _Thread_local bool wiping;

void srv_json_wiping(bool on)
{
	wiping = on;
}

static void wipe_and_free(void *p)
{
	if (p != NULL && wiping)
		sodium_memzero(p, malloc_usable_size(p));
	free(p);
}

void srv_http_wipe_json(void)
{
	json_set_alloc_funcs(malloc, wipe_and_free);
}
