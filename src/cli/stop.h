/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGINT and SIGTERM ask the command to finish what is in flight and end with exit code 75; a second one ends it at
 * once, as the system does it. SIGPIPE and SIGXFSZ are ignored: a broken pipe and a limit of the size of files show as
 * a failed write.
 *
 * The flags, their pipes and one text are the only state that the command keeps outside its structs: a signal
 * handler has no other way to speak.
 */
#ifndef SLUICE_CLI_STOP_H
#define SLUICE_CLI_STOP_H

#include <stdbool.h>

/* 0, or an errno. Call once, before anything that may block. */
int stop_install(void);
bool stop_requested(void);
/* SIGHUP is a signal like these: for work that leaves something behind when the terminal's end kills it. A process that
 * was started to ignore it (nohup) still does. */
int stop_on_hangup(void);
/* The first signal's number; 0: none came. */
int stop_signal(void);
/* How many came. */
int stop_count(void);
/* The second one, too, is only counted; the third ends the command. For work that knows two ways to stop. */
void stop_ask_twice(void);
/* Readable once a stop was requested: poll it beside what may block. */
int stop_fd(void);

/* For a command that maps its input: SIGBUS, which the system sends for a read past the end of a file that became
 * shorter meanwhile, prints this line (cut at 1,000 bytes) and ends the command with status 74. 0, or an errno. */
int stop_report_bus(const char *line);

/* SIGHUP asks a server to read its files again; without this call it ends the process. 0, or an errno. */
int reload_install(void);
/* 1 once for all signals since the last call. */
int reload_requested(void);
int reload_fd(void);

#endif
