/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What sluice ship reads: files, which may be rotated, truncated, deleted or not there yet, and streams (standard
 * input, pipes), which have no position and are read to their end.
 *
 * A path has a list of files, the oldest first: those that had the name before and are not read to the end yet, then
 * the one that has it now.
 *
 *   path  app.log ──▶ [inode 11, app.log.2] ─▶ [inode 14, app.log.1] ─▶ [inode 17, app.log]
 *                      old: rest, and what its writer still adds         now: followed
 *
 * - rename and create: the file stays open under any name and is read to its end, then the one that has the name. An
 * old file is left when it was neither written to nor renamed for LINGER_MS: its writer has gone over to the new one.
 * Its last line without a newline is then shipped as partial. Files that came and went in between, also while ship was
 * not running, are found (shipfile.h) and read in their order.
 * - copytruncate: a file that is shorter than its place, or has other bytes before it, was truncated. Its rest is read
 *   from the copy, when there is one beside it; then the file from its beginning.
 * - deletion: as a rotation without a successor; the descriptor is closed after LINGER_MS.
 * - not there yet: waited for, also when its folder is missing.
 *
 * Lines end with a newline, which is not part of them; everything else is, also CR, NUL and what is not UTF-8. Only
 * complete lines are shipped, until a file is done with. A line longer than SHIP_LINE_MAX is shipped in pieces, all but
 * the last marked as partial. An empty line is a line.
 *
 * inotify tells of changes. On file systems where another machine may write (NFS, SMB, FUSE …), and where inotify has
 * no more room, files are looked at every POLL_MS.
 *
 * What must stay true: places are dropped only when all lines of the group are in the log (shipstate.h, invariant 1,
 * would not hold for a beginning of a group otherwise).
 *
 * Thread safety: none; the main thread calls. Ownership: the log must outlive it.
 */
#ifndef SLUICE_CLI_SHIPFOLLOW_H
#define SLUICE_CLI_SHIPFOLLOW_H

#include "shipfile.h"
#include "shiplog.h"

#include <poll.h>

#define SHIP_LINE_MAX ((size_t)16 * 1024 * 1024 - (256 << 10)) /* with a snapshot it fits a record of the log */
enum { SHIP_LINGER_MS = 5000, SHIP_POLL_MS = 1000 };

/* One file, or one stream, that is open. */
struct ship_part {
	struct ship_part *next; /* the one that came after it */
	int fd;
	int wd;         /* of inotify; -1: none */
	uint64_t place; /* its number in the log */
	uint64_t dev, ino;
	int old;                /* another file has its name, or none */
	int eof;                /* nothing more when last read */
	int replaced;           /* it was truncated while it was opened */
	int found_empty;        /* nothing was read yet, and copies of what it had before were searched for */
	uint64_t offset;        /* of data[0] in the file: behind the last line that is in the group */
	char *data;             /* read, and no complete line yet */
	size_t n, cap, scanned; /* no newline in the first `scanned` bytes */
	char tail[SHIP_SAMPLE]; /* the last bytes before offset */
	size_t tail_len;
	char head[SHIP_SAMPLE];
	size_t head_len;
};

struct ship_source {
	const char *given; /* the operand */
	char *path;        /* absolute, but with the name as given; "-" or the operand for a stream */
	char *dir;
	const char *base;
	int stream; /* 1: no position */
	int over;   /* read to its end, for good */
	int dirty;  /* something happened: look at it */
	int poll;   /* inotify does not tell: look every SHIP_POLL_MS */
	int dir_wd;
	int told; /* errno that was told, so that it is told once */
	struct ship_part *parts;
};

struct shipfollow {
	struct cli *cli;
	struct shiplog *log;
	int follow; /* 0: read to the end of each, once */
	int json;   /* lines that are JSON objects are events */
	struct ship_source *sources;
	size_t n;
	int inotify;                /* -1: none */
	int wait_ms;                /* until an old file may be left; -1: none is waited for */
	int64_t polled_ms;          /* when files were looked at that inotify does not tell of */
	uint64_t bytes, cut, plain; /* read; pieces of lines that were too long; lines that are no JSON object */
};

/* Open what is there, and find what is left of what was read before. 0, or an exit code after a line on stderr. */
int shipfollow_open(struct shipfollow *f, struct cli *cli, struct shiplog *log, const char *const *operands, int n,
		    int follow, int json);
void shipfollow_close(struct shipfollow *f);

/* Read what is there into the log's group, up to a bound. *more: there is more to read at once. */
int shipfollow_read(struct shipfollow *f, int *more, struct sl_err *err);
/* All sources are over. */
int shipfollow_over(const struct shipfollow *f);
/* Look at everything anew (SIGHUP). */
void shipfollow_reopen(struct shipfollow *f);

/* The rest of every stream, as a partial line in the group, since it will not be read to its end. *any: there are
 * streams that were not over. */
int shipfollow_end_streams(struct shipfollow *f, int *any, struct sl_err *err);
/* Descriptors to poll: at most shipfollow_fds_max; returns how many, and when to look again in any case (-1:
 * never). */
size_t shipfollow_fds_max(const struct shipfollow *f);
size_t shipfollow_fds(struct shipfollow *f, struct pollfd *fds, int *timeout_ms);
/* Take what poll said, or that it said nothing. */
void shipfollow_heard(struct shipfollow *f, const struct pollfd *fds, size_t n);

/* ---- shared between its files ---- */

/* shippart.c: a part that begins at a place; it owns fd then. NULL without memory. */
struct ship_part *ship_part_new(int fd, const struct ship_place *place);
void ship_part_free(struct shipfollow *f, struct ship_part *p);
/* The rest of a part, as a partial line. */
int ship_part_end(struct shipfollow *f, struct ship_part *p, struct sl_err *err);
enum ship_step_result {
	SHIP_MORE = 1,
	SHIP_EOF = 2,
	SHIP_TRUNCATED = 3,
	SHIP_FIRST = 4 /* the first bytes are there, and not in the group yet, or it is empty: what came before? */
};
/* Read once and put complete lines into the group. A result, or a negative error. */
int ship_part_read(struct shipfollow *f, struct ship_source *s, struct ship_part *p, struct sl_err *err);

/* shipwatch.c */
void shipwatch_open(struct shipfollow *f);
void shipwatch_source(struct shipfollow *f, struct ship_source *s);
void shipwatch_part(struct shipfollow *f, struct ship_source *s, struct ship_part *p);
void shipwatch_forget(struct shipfollow *f, struct ship_part *p);
void shipwatch_drop_all(struct shipfollow *f);
/* Read what inotify has to say and mark sources. */
void shipwatch_heard(struct shipfollow *f);

/* shipsource.c: rotation. Looks at the path and brings the list of parts up to date. */
int shipsource_open(struct shipfollow *f, struct ship_source *s, struct sl_err *err);
int shipsource_look(struct shipfollow *f, struct ship_source *s, struct sl_err *err);
int shipsource_first(struct shipfollow *f, struct ship_source *s, struct ship_part *p, struct sl_err *err);
int shipsource_truncated(struct shipfollow *f, struct ship_source *s, struct ship_part *p, struct sl_err *err);
/* Close old parts that are read to their end and quiet. *wait_ms: when to look again; unchanged for never. */
int shipsource_tidy(struct shipfollow *f, struct ship_source *s, int *wait_ms, struct sl_err *err);

#endif
