/* SPDX-License-Identifier: Apache-2.0 */
/* The progress bar, or plain lines where standard error is not a terminal. */
#include "progress.h"

#include "base/time.h"
#include "text.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { BAR_EVERY_MS = 100, LINE_EVERY_MS = 10000, BAR_WIDTH = 30 };

void progress_start(struct progress *p, struct cli *cli, bool prints)
{
	/* No bar while results are printed on the same terminal: the two would overwrite each other. */
	p->cli = cli;
	p->started_ms = p->shown_ms = sl__clock_ms();
	p->form = isatty(STDERR_FILENO) ? PROGRESS_BAR : PROGRESS_LINES;
	if (cli->quiet || (p->form == PROGRESS_BAR && prints && isatty(STDOUT_FILENO)))
		p->form = PROGRESS_NONE;
}

/* How much of text fits on a line of the terminal after this many columns: a line that wraps cannot be taken back. */
static int fitting(const char *text, size_t columns)
{
	struct winsize size;
	size_t room, at = 0;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || size.ws_col == 0)
		return (int)strlen(text);
	room = size.ws_col > columns + 1 ? size.ws_col - columns - 1 : 0;
	/* Whole characters only; a byte that is not UTF-8 counts as one column. */
	for (size_t n; text[at] && room > 0; at += n, room--) {
		n = text_char((const unsigned char *)text + at, strlen(text + at));
		n = n ? n : 1;
	}
	return (int)at;
}

bool progress_due(const struct progress *p)
{
	return p->form != PROGRESS_NONE &&
	       sl__clock_ms() - p->shown_ms >= (p->form == PROGRESS_BAR ? BAR_EVERY_MS : LINE_EVERY_MS);
}

void progress_show(struct progress *p, const char *text, uint64_t done, uint64_t total)
{
	char line[256], bar[BAR_WIDTH + 1];
	size_t full = total ? (size_t)((double)(done < total ? done : total) * BAR_WIDTH / (double)total) : 0;

	p->shown_ms = sl__clock_ms();
	text_line(line, sizeof(line), text);
	if (p->form != PROGRESS_BAR) {
		cli_line(p->cli, SL_LOG_INFO, line);
		return;
	}
	for (size_t i = 0; i < BAR_WIDTH; i++)
		bar[i] = i < full ? '#' : '.';
	bar[BAR_WIDTH] = '\0';
	/* One write under the lock of stderr, so that no message of another thread gets into the bar. */
	flockfile(stderr);
	fprintf(stderr, "\r%s%s%s %.*s\033[K", total ? "[" : "", total ? bar : "", total ? "]" : "",
		fitting(line, total ? BAR_WIDTH + 3 : 1), line);
	fflush(stderr);
	p->cli->bar_shown = true;
	funlockfile(stderr);
}

void progress_update(struct progress *p, uint64_t done, uint64_t total)
{
	char text[160], a[TEXT_TIME_BYTES], b[TEXT_TIME_BYTES], c[TEXT_TIME_BYTES];
	uint64_t rate;
	int64_t ms;

	if (!progress_due(p))
		return;
	ms = sl__clock_ms() - p->started_ms;
	rate = ms > 0 ? (uint64_t)((double)done * 1000 / (double)ms) : 0;
	/* Without a total there is no percentage, only the amount and the rate. */
	if (total)
		snprintf(text, sizeof(text), "%s of %s (%u%%), %s/s", text_bytes(a, done), text_bytes(b, total),
			 (unsigned)(done >= total ? 100 : (double)done * 100 / (double)total), text_bytes(c, rate));
	else
		snprintf(text, sizeof(text), "%s, %s/s", text_bytes(a, done), text_bytes(c, rate));
	progress_show(p, text, done, total);
}

void progress_end(struct progress *p)
{
	/* The line of the bar is erased: what is printed next begins in the first column. */
	flockfile(stderr);
	if (p->cli->bar_shown)
		fputs("\r\033[K", stderr);
	p->cli->bar_shown = false;
	fflush(stderr);
	funlockfile(stderr);
}
