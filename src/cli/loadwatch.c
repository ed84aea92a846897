/* SPDX-License-Identifier: Apache-2.0 */
#include "loadwatch.h"

#include "stop.h"
#include "text.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { LOOK_EVERY_MS = 100 };

static int64_t mono_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

int64_t loadwatch_ms(const struct loadwatch *w)
{
	return mono_ms() - w->started_ms;
}

static void show(struct loadwatch *w, const struct sl_coordinator_health *h)
{
	uint64_t written = w->written + h->written, dead = w->dead + h->dead_letters + w->bad;
	int away = h->breaker != SL_BREAKER_CLOSED;
	int64_t ms = loadwatch_ms(w);
	char text[256], count[TEXT_COUNT_BYTES];

	snprintf(text, sizeof(text), "%s, %.0f/s, %" PRIu64 " queued, %" PRIu64 " retrying, %" PRIu64 " dead%s%.100s",
		 text_count(count, written, "row"), ms > 0 ? (double)written * 1000 / (double)ms : 0.0, h->queue_size,
		 h->retrying, dead, away ? "; waiting: " : "", away ? h->last_error.msg : "");
	progress_show(&w->progress, text, w->total_bytes ? (uint64_t)w->taken : 0, w->total_bytes);
}

static void tell_stopping(struct loadwatch *w, const struct sl_coordinator_health *h)
{
	char count[TEXT_COUNT_BYTES];

	w->told = 1;
	cli_say(w->cli, SL_LOG_WARN, "stopping: %s still to be written; a second signal ends the command at once",
		text_count(count, h->queue_size + h->in_flight + h->retrying, "row"));
}

/* With mu held, so that the coordinator stays. */
static void look(struct loadwatch *w)
{
	struct sl_coordinator_health h = {.struct_size = sizeof(h)};

	if (!w->c || sl_coordinator_get_health(w->c, &h))
		return;
	if (stop_requested() && !w->told)
		tell_stopping(w, &h);
	if (progress_due(&w->progress))
		show(w, &h);
}

static void next_look(struct timespec *at)
{
	clock_gettime(CLOCK_MONOTONIC, at);
	at->tv_nsec += LOOK_EVERY_MS * 1000000;
	at->tv_sec += at->tv_nsec / 1000000000;
	at->tv_nsec %= 1000000000;
}

static void *watch(void *arg)
{
	struct loadwatch *w = arg;
	struct timespec at;

	pthread_mutex_lock(&w->mu);
	while (!w->over) {
		next_look(&at);
		while (!w->over && pthread_cond_timedwait(&w->hurry, &w->mu, &at) == 0) {
		}
		if (!w->over)
			look(w);
	}
	pthread_mutex_unlock(&w->mu);
	return NULL;
}

static int init_sync(struct loadwatch *w)
{
	pthread_condattr_t attr;
	int rc = pthread_condattr_init(&attr);

	rc = rc ? rc : pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	rc = rc ? rc : pthread_cond_init(&w->hurry, &attr);
	pthread_condattr_destroy(&attr);
	return rc ? rc : pthread_mutex_init(&w->mu, NULL);
}

/* Signals are the main thread's, which has to wake from its poll. */
static int start_thread(struct loadwatch *w)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&w->thread, NULL, watch, w);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

int loadwatch_start(struct loadwatch *w, struct cli *cli, uint64_t total_bytes)
{
	int rc;

	*w = (struct loadwatch){.cli = cli, .total_bytes = total_bytes, .started_ms = mono_ms()};
	progress_start(&w->progress, cli, 0);
	rc = init_sync(w);
	rc = rc ? rc : start_thread(w);
	if (!rc)
		return 0;
	cli_say(cli, SL_LOG_ERROR, "progress: %s", strerror(rc));
	return EXIT_INTERNAL;
}

void loadwatch_begin(struct loadwatch *w, sl_coordinator *c)
{
	pthread_mutex_lock(&w->mu);
	w->c = c;
	pthread_mutex_unlock(&w->mu);
}

void loadwatch_end(struct loadwatch *w, uint64_t written, uint64_t dead)
{
	pthread_mutex_lock(&w->mu);
	w->c = NULL;
	w->written += written;
	w->dead += dead;
	pthread_mutex_unlock(&w->mu);
}

void loadwatch_stop(struct loadwatch *w)
{
	pthread_mutex_lock(&w->mu);
	w->over = 1;
	pthread_cond_signal(&w->hurry);
	pthread_mutex_unlock(&w->mu);
	pthread_join(w->thread, NULL);
	pthread_mutex_destroy(&w->mu);
	pthread_cond_destroy(&w->hurry);
	progress_end(&w->progress);
}
