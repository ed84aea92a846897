/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Progress of long work on stderr: a bar on a terminal, a plain line every ten seconds elsewhere, nothing with --quiet.
 * Work that ends within a moment shows nothing. The bar stays away while results are printed on the same terminal.
 *
 * Thread safety: none; the main thread calls.
 */
#ifndef SLUICE_CLI_PROGRESS_H
#define SLUICE_CLI_PROGRESS_H

#include "cli.h"

enum progress_form { PROGRESS_NONE, PROGRESS_LINES, PROGRESS_BAR };

struct progress {
	struct cli *cli;
	enum progress_form form;
	int64_t started_ms, shown_ms;
};

/* prints: the command writes to standard output while it works. */
void progress_start(struct progress *p, struct cli *cli, bool prints);
/* total 0: not known. Cheap enough to call for every record. */
void progress_update(struct progress *p, uint64_t done, uint64_t total);
/* The same with words of the caller's, in two steps so that they are made only when they are shown: is it time? Then
 * show text, with a bar when total is known. */
bool progress_due(const struct progress *p);
void progress_show(struct progress *p, const char *text, uint64_t done, uint64_t total);
void progress_end(struct progress *p);

#endif
