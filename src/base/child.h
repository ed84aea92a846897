/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Child processes: what those that start programs have in common. The rest differs for a reason. The command of a job has
 * a minder, which outlives its worker (jobs/exec/minder.c); the program of a sink ends with the thread that runs it
 * (sink/exec.c); the demo runs this program itself, as servers that it kills (cli/demo/proc.c).
 *
 * Thread safety: all. Ownership: descriptors are the caller's.
 */
#ifndef SL_BASE_CHILD_H
#define SL_BASE_CHILD_H

#include <sys/types.h>

#include "base/base.h"

/* Wait until it has ended, whatever signals come. status may be NULL. 0 or a negative errno: -ECHILD when another part
 * of the program has reaped it. Async-signal-safe. */
int sl__child_wait(pid_t pid, int *status);
/* These bytes as a program's standard input: a file of memory at its start, which nothing can change. A descriptor of 3
 * or more, or a negative errno. */
int sl__child_input(const char *name, const void *data, size_t len);
/* fd, or a copy of it of 3 or more in its place: 0, 1 and 2, which a host may have closed, are for the program's own. -1
 * and errno as they came. */
int sl__child_lift(int fd);
/* For a forked child: every signal back to its default action, and all of them blocked. Async-signal-safe. */
void sl__signals_default(void);

#endif
