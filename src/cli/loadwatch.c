/* SPDX-License-Identifier: Apache-2.0 */
#include "loadwatch.h"

#include "stop.h"
#include "text.h"

#include <inttypes.h>
#include <stdio.h>

static void show(struct loadwatch *w, const struct sl_coordinator_health *h)
{
	uint64_t written = w->written + h->written, dead = w->dead + h->dead_letters + w->bad;
	int away = h->breaker != SL_BREAKER_CLOSED;
	int64_t ms = watch_ms(&w->watch);
	char text[256], count[TEXT_COUNT_BYTES];

	snprintf(text, sizeof(text), "%s, %.0f/s, %" PRIu64 " queued, %" PRIu64 " retrying, %" PRIu64 " dead%s%.100s",
		 text_count(count, written, "row"), ms > 0 ? (double)written * 1000 / (double)ms : 0.0, h->queue_size,
		 h->retrying, dead, away ? "; waiting: " : "", away ? h->last_error.msg : "");
	progress_show(&w->watch.progress, text, w->total_bytes ? (uint64_t)w->taken : 0, w->total_bytes);
}

static void tell_stopping(struct loadwatch *w, const struct sl_coordinator_health *h)
{
	char count[TEXT_COUNT_BYTES];

	w->told = 1;
	cli_say(w->watch.cli, SL_LOG_WARN, "stopping: %s still to be written; a second signal ends the command at once",
		text_count(count, h->queue_size + h->in_flight + h->retrying, "row"));
}

/* With mu held, so that the coordinator stays. */
static void look_at(struct loadwatch *w)
{
	struct sl_coordinator_health h = {.struct_size = sizeof(h)};

	if (!w->c || sl_coordinator_get_health(w->c, &h))
		return;
	if (stop_requested() && !w->told)
		tell_stopping(w, &h);
	if (progress_due(&w->watch.progress))
		show(w, &h);
}

static void look(void *ctx)
{
	struct loadwatch *w = ctx;

	pthread_mutex_lock(&w->mu);
	look_at(w);
	pthread_mutex_unlock(&w->mu);
}

int loadwatch_start(struct loadwatch *w, struct cli *cli, uint64_t total_bytes)
{
	*w = (struct loadwatch){.total_bytes = total_bytes, .mu = PTHREAD_MUTEX_INITIALIZER};
	return watch_start(&w->watch, cli, 0, look, w);
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
