/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes and the folder of the demo: this program, started again as server and as workers. However the demo
 * ends, by SIGKILL too, the system ends them with it.
 *
 * Thread safety: none; the main thread calls.
 */
#ifndef SLUICE_CLI_DEMO_PROC_H
#define SLUICE_CLI_DEMO_PROC_H

#include "cli/cli.h"

#include <sys/types.h>

struct demoproc_place {
	char dir[128]; /* $TMPDIR/sluice-demo-XXXXXX, or as given */
	bool stays;    /* given: it is left as it is at the end */
	char script[160], ledger[160], wal[160], store[160], store_url[176];
};

struct demoproc {
	pid_t pid;     /* 0: not there, or waited for */
	int port;      /* of the server */
	char name[32]; /* its log is <dir>/<name>.log */
	int status;
};

/* Each returns 0, or an exit code after a line on stderr. */
/* dir: a folder to be made and left; NULL: a temporary one. */
int demoproc_place_make(struct cli *cli, struct demoproc_place *place, const char *dir, const char *script);
int demoproc_server(struct cli *cli, const struct demoproc_place *place, struct demoproc *out, const char *listen);
/* out->name is set: the worker's id, and the name of its log. */
int demoproc_worker(struct cli *cli, const struct demoproc_place *place, struct demoproc *out, const char *server,
		    int64_t lease_ms);

/* SIGSTOP, but not while it holds the lock of the store's file: all others would wait with it. */
void demoproc_stop(const struct demoproc *p, const struct demoproc_place *place);
void demoproc_resume(const struct demoproc *p);
void demoproc_kill(struct demoproc *p);
void demoproc_ask_to_end(const struct demoproc *p);
/* 0: it ended with status 0, or was not there. */
int demoproc_wait(struct demoproc *p);
/* One line: how it ended, and the last line of its log. */
void demoproc_report_end(struct cli *cli, const struct demoproc_place *place, const struct demoproc *p);
void demoproc_place_remove(const struct demoproc_place *place);

#endif
