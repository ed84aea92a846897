/* SPDX-License-Identifier: Apache-2.0 */
#include "exportwatch.h"

#include "stop.h"
#include "text.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { BAR_MS = 100, LINE_MS = 1000 };

static int64_t mono_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

int64_t exportwatch_ms(const struct exportwatch *w)
{
	return mono_ms() - w->started_ms;
}

static void obey_signals(struct exportwatch *w)
{
	int count = stop_count();

	if (count >= 1 && w->told < 1) {
		w->told = 1;
		cli_say(w->cli, SL_LOG_WARN,
			"stopping: what was read is being committed; a second signal gives up what is not");
		sl_export_stop(w->export, SL_EXPORT_DRAIN);
	}
	if (count >= 2 && w->told < 2) {
		w->told = 2;
		sl_export_stop(w->export, SL_EXPORT_NOW);
	}
}

/* "63%, 120.0 MiB/s, 7.0 s left", or how many rows a second where the size of the input is not known. */
static void describe_rate(const struct exportwatch *w, const struct sl_export_progress *p, char *to, size_t size)
{
	char rate[TEXT_TIME_BYTES], left[TEXT_TIME_BYTES];
	int64_t ms = exportwatch_ms(w);
	double speed =
		ms > w->from_ms ? (double)(p->input_bytes - w->from_bytes) * 1000 / (double)(ms - w->from_ms) : 0;
	double rest = p->input_total > p->input_bytes ? (double)(p->input_total - p->input_bytes) : 0;

	if (!p->input_total)
		(void)snprintf(to, size, "%.0f rows/s", ms > 0 ? (double)p->rows * 1000 / (double)ms : 0.0);
	else if (speed < 1)
		(void)snprintf(to, size, "%.0f%%", (double)p->input_bytes * 100 / (double)p->input_total);
	else
		(void)snprintf(to, size, "%.0f%%, %s/s, %s left", (double)p->input_bytes * 100 / (double)p->input_total,
			       text_bytes(rate, (uint64_t)speed), text_age(left, (int64_t)(rest * 1000 / speed)));
}

/* An export that follows a source at rest has nothing new to say. */
static void show(struct exportwatch *w)
{
	struct sl_export_progress p;
	char text[256], rate[96], rows[TEXT_COUNT_BYTES], partitions[TEXT_COUNT_BYTES], bytes[TEXT_TIME_BYTES];

	if (!progress_due(&w->progress))
		return;
	sl_export_get_progress(w->export, &p);
	if (p.partitions == w->shown)
		return;
	if (!w->shown) {
		w->from_bytes = p.input_bytes;
		w->from_ms = exportwatch_ms(w);
	}
	w->shown = p.partitions;
	describe_rate(w, &p, rate, sizeof(rate));
	(void)snprintf(text, sizeof(text), "%s, %s, %s of %s, checkpoint %" PRIu64 "%s", rate,
		       text_count(rows, p.rows, "row"), text_count(partitions, p.partitions, "partition"),
		       text_bytes(bytes, p.bytes), p.checkpoint, p.bad_rows ? ", bad rows" : "");
	progress_show(&w->progress, text, p.input_bytes, p.input_total);
}

static void *watch(void *arg)
{
	struct exportwatch *w = arg;
	/* The descriptor of signals stays readable behind the first one: from then on it is looked at in turns. */
	struct pollfd fds[2] = {{.fd = w->over, .events = POLLIN}, {.fd = stop_fd(), .events = POLLIN}};

	while (!fds[0].revents) {
		obey_signals(w);
		show(w);
		fds[1].fd = w->told ? -1 : stop_fd();
		(void)poll(fds, 2, w->progress.bar == 1 || w->told ? BAR_MS : LINE_MS);
	}
	return NULL;
}

/* Signals are the main thread's. */
static int start_thread(struct exportwatch *w)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&w->thread, NULL, watch, w);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

int exportwatch_start(struct exportwatch *w, struct cli *cli, sl_export *export)
{
	int rc = 0;

	*w = (struct exportwatch){.cli = cli, .export = export, .started_ms = mono_ms()};
	progress_start(&w->progress, cli, 0);
	stop_ask_twice();
	w->over = eventfd(0, EFD_CLOEXEC);
	if (w->over < 0)
		rc = errno;
	rc = rc ? rc : start_thread(w);
	if (!rc)
		return 0;
	if (w->over >= 0)
		close(w->over);
	cli_say(cli, SL_LOG_ERROR, "progress: %s", strerror(rc));
	return EXIT_INTERNAL;
}

void exportwatch_stop(struct exportwatch *w)
{
	uint64_t one = 1;
	ssize_t ignored = write(w->over, &one, sizeof(one));

	(void)ignored;
	pthread_join(w->thread, NULL);
	close(w->over);
	progress_end(&w->progress);
}
