/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The positions of sl_ship in its files, kept in the log of the lines themselves.
 *
 * A line gets from a file into the log exactly once, however the process ends, because only one thing is made durable:
 * the record. It is a JobEvent (proto/sluice/v1/events.proto) with the line, followed by two fields that readers of
 * events ignore:
 *
 *   15 place     of every record: its own sequence, the file's path and number, and where the next line begins
 *   14 snapshot  of the first record of every group that goes to disk together: the places of all files before it,
 *                and what the log is for (a hash of the target)
 *
 *   … │ line  place │ line  place │        line  place  snapshot │ line  place │ line  place │ end of the log
 *     └──────── a group ──────────┘        └──────────────── a group ─────────────────────────┘
 *
 * Invariants
 *  1. The state is the last snapshot plus the places of the records after it. A record is in the log or it is not, so a
 *     line and the place after it are too.
 *  2. A group is in one segment, as a whole or a beginning of it; the log keeps the segment of its newest record. So
 *     the last snapshot always exists, whatever was delivered and discarded before.
 *  3. A record counts only under the sequence that it names: one that was redriven from the dead letters changes no
 *     place.
 *  4. A place is trusted when the file still has the same first bytes, and the same last bytes before the place.
 *
 * Next to the log, <stream>.place has a copy of the state as of the last start and clean end, for a log whose records
 * were removed by an operator. It counts only for the same incarnation, and only up to its sequence.
 *
 * Thread safety: none; the thread of open, run and close calls. Ownership: a state owns its places and their paths.
 */
#ifndef SL_SHIP_STATE_H
#define SL_SHIP_STATE_H

#include "base/buf.h"

#include <sluice/events.h>
#include <sluice/wal.h>

#define SHIP_SAMPLE 256               /* bytes that are compared at most, at the beginning and before the place */
#define SHIP_SNAPSHOT_MAX (192 << 10) /* bytes of a snapshot: bounds the files of one log */

/* How much of one file is in the log. */
struct ship_place {
	uint64_t id; /* of this file, or of its life since it was truncated, in this log; from 1, never reused */
	char *path;  /* under which it was followed; "-" for standard input */
	uint64_t dev, ino;
	uint64_t offset;  /* after the last line that is in the log */
	int64_t since_ns; /* when reading it began, by the clock of the file system: its successors are younger */
	uint32_t head_len, tail_len; /* bytes that the hashes cover: the first ones, the last ones before offset */
	uint64_t head, tail;
	bool done;       /* read to its end and left; kept while its file could be mistaken for an unseen one */
	int64_t born_ns; /* of a file that is done: when it was created, as in file.h */
};

struct ship_state {
	const struct sl_env *env;
	struct ship_place *places; /* older ones of a path first */
	size_t n, cap;
	uint64_t last_id;
	uint64_t target;   /* 0: not known */
	uint64_t sequence; /* of the newest record that is in it */
};

/* Empty it; env stays. */
void sl__ship_state_fini(struct ship_state *s);
/* NULL: no such number. Lives until a place is added or dropped. */
struct ship_place *sl__ship_state_find(const struct ship_state *s, uint64_t id);
/* A place at the beginning of a file, at the end of the list. NULL without memory. */
struct ship_place *sl__ship_state_add(struct ship_state *s, const char *path);
void sl__ship_state_drop(struct ship_state *s, uint64_t id);
/* Make it the newest. Pointers to other places are invalid then. NULL: no such number. */
struct ship_place *sl__ship_state_move_last(struct ship_state *s, uint64_t id);
/* Bytes that a snapshot of it takes. */
size_t sl__ship_state_size(const struct ship_state *s);

/* A line on its way into the log. */
struct ship_line {
	uint64_t place;   /* the number of its file */
	uint64_t at, end; /* of its first byte, and where the next one begins */
	const char *data;
	size_t len;
	bool partial;
	enum sl_event_type type;
	int64_t ts_ms;
};

/* The record of a line, without a snapshot, appended to b. */
int sl__ship_encode(struct sl__buf *b, const struct ship_state *s, const struct ship_line *line, uint64_t sequence,
		    struct sl_err *err);
/* The snapshot, appended to b. */
void sl__ship_encode_snapshot(struct sl__buf *b, const struct ship_state *s);
/* What a line changes once it is in the log. */
struct ship_step {
	uint64_t place, end, tail;
	uint32_t tail_len;
};
struct ship_step sl__ship_step_of(const struct ship_line *line);
void sl__ship_apply(struct ship_state *s, const struct ship_step *step);

/* A record, for delivery. */
struct ship_record {
	struct sl_event event;
	const char *path; /* of the file, without a NUL; NULL: none */
	size_t path_len;
};
int sl__ship_decode(const struct sl_wal_record *record, struct ship_record *out, struct sl_err *err);

/* Read the state from the log. *first_pending: the first sequence that is not delivered, one past the last for none. */
int sl__ship_recover(struct ship_state *s, sl_wal *w, const char *copy, uint64_t *first_pending, struct sl_err *err);
/* Write the copy next to the log. */
int sl__ship_save(const struct ship_state *s, sl_wal *w, const char *copy, struct sl_err *err);

#endif
