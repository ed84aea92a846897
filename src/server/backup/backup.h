/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The repository of backups in the server: what snapshots there are, and a check of it. The server makes no backups: it
 * shows whether backups are made.
 *
 * Two threads: one reads the repository when the server starts and every refresh interval, and keeps what it has
 * seen; a check has its own, one at a time. Requests get what is kept, so that storage which is slow or away holds
 * no request up, and never makes the server less ready.
 *
 * Thread safety: new, start, stop and free by one thread, in this order; the rest from any. Ownership: the core must
 * outlive it.
 */
#ifndef SLUICE_SERVER_BACKUP_H
#define SLUICE_SERVER_BACKUP_H

#include "server/core.h"

#include <sluice/backup_care.h>

#define SRV_SNAPSHOTS_KEPT 500 /* the newest of them are shown */
#define SRV_DAMAGED_KEPT 20
#define SRV_BACKUP_FINDINGS_KEPT 100

struct srv_backups;

/* NULL in *out when no repository is configured. */
int srv_backups_new(struct srv_backups **out, struct srv_core *core, struct sl_err *err);
int srv_backups_start(struct srv_backups *b, struct sl_err *err); /* b NULL is allowed, here and below */
void srv_backups_stop(struct srv_backups *b);                     /* what runs ends where it is */
void srv_backups_free(struct srv_backups *b);

/* What was seen of the repository. */
struct srv_backups_view {
	int64_t read_ms;  /* Unix, of the last look that succeeded; 0: none yet */
	char error[256];  /* why the last one failed; "": it did not */
	const char *repo; /* the folder */
	struct sl_backup_stats stats;
	int64_t newest_ms;      /* Unix; 0: there is no snapshot */
	uint64_t snapshots;     /* that can be read, also those that are not kept */
	const char *items;      /* JSON: the newest snapshots, newest first */
	const char *damaged;    /* JSON: those that cannot be read */
	uint64_t damaged_total; /* also those that are not kept */
};
/* Under the lock: fn must be quick. */
typedef void srv_backups_view_fn(const struct srv_backups_view *view, void *ctx);
void srv_backups_look(struct srv_backups *b, srv_backups_view_fn *fn, void *ctx);

/* The check that runs, or the last one. */
struct srv_backup_finding {
	enum sl_backup_fault fault;
	bool harmless;
	char *object, *snapshot, *path, *text; /* snapshot and path may be NULL */
};
struct srv_backup_check {
	bool running, read_data;
	int64_t started_ms, ended_ms;       /* Unix; 0: not yet */
	struct sl_backup_progress progress; /* while it runs */
	struct srv_backup_finding findings[SRV_BACKUP_FINDINGS_KEPT];
	size_t n_findings;
	uint64_t faults, harmless;       /* reported so far */
	struct sl_backup_checked result; /* when it has ended */
	struct sl_err err;               /* code 0: it came to its end */
};
/* SL_EEXIST: one is running; SL_EUNAVAIL: the server stops. */
int srv_backups_check_start(struct srv_backups *b, bool read_data, struct sl_err *err);
/* false: there was none. fn as above. */
typedef void srv_backup_check_fn(const struct srv_backup_check *check, void *ctx);
bool srv_backups_check_look(struct srv_backups *b, srv_backup_check_fn *fn, void *ctx);

#endif
