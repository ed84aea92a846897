/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inputs of sl_ship: files, which may be rotated, truncated, deleted or not there yet, and streams (standard
 * input, pipes), which have no position and are read to their end.
 *
 * A path has a list of files, the oldest first: those that had the name before and are not read to the end yet, then
 * the one that has it now.
 *
 *   path  app.log ──▶ [inode 11, app.log.2] ─▶ [inode 14, app.log.1] ─▶ [inode 17, app.log]
 *                      old: rest, and what its writer still adds         now: followed
 *
 * - rename and create: the file stays open under any name and is read to its end, then the one that has the name. An
 *   old file is left when it was neither written to nor renamed for SHIP_LINGER_MS: its writer uses the new one by
 *   then. Its last line without a newline is then shipped as partial. Files that came and went in between, also while
 *   nothing ran, are found (file.h) and read in their order.
 * - copytruncate: a file that is shorter than its place, or has other bytes before it, was truncated. Its rest is read
 *   from the copy, if one is next to it; then the file from its beginning.
 * - deletion: as a rotation without a successor; the descriptor is closed after SHIP_LINGER_MS.
 * - not there yet: waited for, also when its folder is missing.
 *
 * Lines end with a newline, which is not part of them; all other bytes are, also CR, NUL and invalid UTF-8. Only
 * complete lines are shipped, until a file is done with. A line longer than SHIP_LINE_MAX is shipped in pieces, all but
 * the last marked as partial. An empty line is a line.
 *
 * inotify reports changes. On file systems where another machine may write (NFS, SMB, FUSE …), and where inotify has no
 * more room, files are checked every SHIP_POLL_MS.
 *
 * Invariant: places are dropped only when all lines of the group are in the log (otherwise invariant 1 of state.h would
 * not hold for a beginning of a group).
 *
 * Thread safety: none but `cut`; the thread of open, run and close calls. Ownership: the log must outlive it.
 */
#ifndef SL_SHIP_FOLLOW_H
#define SL_SHIP_FOLLOW_H

#include "ship/file.h"
#include "ship/log.h"

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
	bool old;               /* another file has its name, or none */
	bool eof;               /* nothing more when last read */
	bool replaced;          /* it was truncated while it was opened */
	bool found_empty;       /* nothing was read yet, and copies of what it had before were searched for */
	uint64_t offset;        /* of data[0] in the file: after the last line that is in the group */
	char *data;             /* read, and not a complete line yet */
	size_t n, cap, scanned; /* no newline in the first `scanned` bytes */
	char tail[SHIP_SAMPLE]; /* the last bytes before offset */
	size_t tail_len;
	char head[SHIP_SAMPLE];
	size_t head_len;
};

struct ship_source {
	char *given; /* as in the options */
	char *path;  /* absolute, but with the name as given; "-" or the given path for a stream */
	struct ship_folder in;
	bool stream; /* no position */
	bool over;   /* read to its end, for good */
	bool dirty;  /* something happened: check it */
	bool poll;   /* inotify does not report: check every SHIP_POLL_MS */
	int dir_wd;
	int reported; /* errno that was logged, so that it is logged once */
	struct ship_part *parts;
};

struct ship_follow {
	const struct sl_env *env;
	struct ship_log *log;
	bool follow; /* false: read to the end of each, once */
	bool json;   /* lines that are JSON objects are events */
	struct ship_source *sources;
	size_t n;
	int inotify;          /* -1: none */
	int wait_ms;          /* until an old file may be left; -1: none is waited for */
	int64_t polled_ms;    /* when files were checked that inotify does not report */
	_Atomic uint64_t cut; /* pieces of lines that were too long */
};

/* Open what exists, and find what is left of what was read before. Close it also after a failure. */
int sl__ship_follow_open(struct ship_follow *f, const struct sl_env *env, struct ship_log *log,
			 const struct sl_ship_opts *opts, struct sl_err *err);
void sl__ship_follow_close(struct ship_follow *f);

/* Read what is there into the log's group, up to a bound. *more: there is more to read now. */
int sl__ship_follow_read(struct ship_follow *f, bool *more, struct sl_err *err);
/* All sources are over. */
bool sl__ship_follow_over(const struct ship_follow *f);
/* Watch and check everything anew. */
void sl__ship_follow_reopen(struct ship_follow *f);

/* Put the rest of every stream into the group, as a partial line, since it will not be read to its end. *any: some
 * streams were not over. */
int sl__ship_follow_end_streams(struct ship_follow *f, bool *any, struct sl_err *err);
/* Descriptors to poll: at most sl__ship_follow_fds_max; returns how many, and when to check again in any case (-1:
 * never). */
size_t sl__ship_follow_fds_max(const struct ship_follow *f);
size_t sl__ship_follow_fds(struct ship_follow *f, struct pollfd *fds, int *timeout_ms);
/* Note what poll reported, or that it timed out. */
void sl__ship_follow_polled(struct ship_follow *f, const struct pollfd *fds, size_t n);

/* ---- shared between its files ---- */

/* part.c: a part that begins at a place; it owns fd then. NULL without memory. */
struct ship_part *sl__ship_part_new(const struct sl_env *env, int fd, const struct ship_place *place);
void sl__ship_part_free(struct ship_follow *f, struct ship_part *p);
/* Put the rest of a part into the group, as a partial line. */
int sl__ship_part_end(struct ship_follow *f, struct ship_part *p, struct sl_err *err);
enum ship_read_result {
	SHIP_MORE = 1,
	SHIP_EOF = 2,
	SHIP_TRUNCATED = 3,
	SHIP_FIRST = 4 /* the first bytes were read and are not in the group yet, or it is empty: what came before? */
};
/* Read once and put complete lines into the group. A result, or a negative error. */
int sl__ship_part_read(struct ship_follow *f, struct ship_source *s, struct ship_part *p, struct sl_err *err);

/* watch.c: inotify. */
void sl__ship_watch_open(struct ship_follow *f);
void sl__ship_watch_source(struct ship_follow *f, struct ship_source *s);
void sl__ship_watch_part(struct ship_follow *f, struct ship_source *s, struct ship_part *p);
void sl__ship_watch_remove(struct ship_follow *f, struct ship_part *p);
void sl__ship_watch_remove_all(struct ship_follow *f);
/* Read the events and mark sources as dirty. */
void sl__ship_watch_read(struct ship_follow *f);

/* source.c: rotation. open and refresh check the path and bring the list of parts up to date; the other two do what
 * SHIP_FIRST and SHIP_TRUNCATED of a part ask for. */
int sl__ship_source_open(struct ship_follow *f, struct ship_source *s, struct sl_err *err);
int sl__ship_source_refresh(struct ship_follow *f, struct ship_source *s, struct sl_err *err);
int sl__ship_source_first(struct ship_follow *f, struct ship_source *s, struct ship_part *p, struct sl_err *err);
int sl__ship_source_truncated(struct ship_follow *f, struct ship_source *s, struct ship_part *p, struct sl_err *err);
/* Close old parts that are read to their end and quiet. Lowers f->wait_ms to when to check again. */
int sl__ship_source_tidy(struct ship_follow *f, struct ship_source *s, struct sl_err *err);

#endif
