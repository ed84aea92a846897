/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a person sees of an export while it runs, and what signals do to it, on a separate thread: the export takes up
 * the calling one. The first SIGINT or SIGTERM ends the reading, and what was read is committed; the second gives up
 * what is not committed, which a later run does again; the third ends the process, as the system does it.
 *
 * Thread safety: the main thread calls. Ownership: the export stays the caller's and must outlive the watch.
 */
#ifndef SLUICE_CLI_EXPORTWATCH_H
#define SLUICE_CLI_EXPORTWATCH_H

#include "watch.h"

#include <sluice/export.h>

struct exportwatch {
	sl_export *export;
	struct watch watch;
	int n_stops;    /* signals that were acted upon */
	uint64_t shown; /* partitions when progress was last shown */
	/* Where the input stood at the first look that saw a commit, and when: a run may resume far into it. */
	uint64_t from_bytes;
	int64_t from_ms;
};

/* 0, or an exit code after a line on stderr. watch_stop(&w->watch) ends it. */
int exportwatch_start(struct exportwatch *w, struct cli *cli, sl_export *export);

#endif
