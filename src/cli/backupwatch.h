/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a person sees of a backup while it runs, and what signals do to it, on a separate thread: the library's call
 * takes up the calling one. The first SIGINT or SIGTERM ends the call with SL_ECANCELLED; the second the process.
 *
 * Thread safety: the main thread calls. Ownership: the handle stays the caller's and must outlive backupwatch_stop.
 */
#ifndef SLUICE_CLI_BACKUPWATCH_H
#define SLUICE_CLI_BACKUPWATCH_H

#include "watch.h"

#include <sluice/backup.h>

struct backupwatch {
	sl_backup *backup;
	struct watch watch;
};

/* prints: 1 when the command writes to standard output meanwhile. 0, or an exit code after a line on stderr. */
int backupwatch_start(struct backupwatch *w, struct cli *cli, sl_backup *backup, int prints);
/* Nothing is shown any more when it returns. The seconds since the start. */
double backupwatch_stop(struct backupwatch *w);

#endif
