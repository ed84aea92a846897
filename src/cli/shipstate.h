/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where sluice ship stands in its files, kept in the log of the lines themselves.
 *
 * A line gets from a file into the log exactly once, however the command ends, because there is only one thing that is
 * made durable: the record. It is a JobEvent (proto/sluice/v1/events.proto) with the line, and behind it two fields
 * that readers of events pass over:
 *
 *   15 place     of every record: its own sequence, the file's path and number, and where the next line begins
 *   14 snapshot  of the first record of every group that goes to disk together: the places of all files before it,
 *                and what the log is for (a hash of the target)
 *
 *   … │ line  place │ line  place │        line  place  snapshot │ line  place │ line  place │ end of the log
 *     └──────── a group ──────────┘        └──────────────── a group ─────────────────────────┘
 *
 * Invariants
 *  1. The state is what the last snapshot says, with the places of the records behind it laid over. A record is in the
 *     log or it is not, so a line and the place behind it are too.
 *  2. A group is in one segment, as a whole or a beginning of it; the log keeps the segment of its newest record. So
 *     the last snapshot is always there, whatever was delivered and discarded before.
 *  3. A record counts only under the sequence that it names: one that was driven again from the dead letters says
 *     nothing about places.
 *  4. A place is believed when the file is what it was: same first bytes, same last bytes before the place.
 *
 * Beside the log, <stream>.place has a copy of the state as of the last start and clean end, for a log whose records
 * were taken away by a person. It counts only for the same incarnation, and only up to its sequence.
 *
 * Thread safety: none; the main thread calls. Ownership: a state owns its places and their paths.
 */
#ifndef SLUICE_CLI_SHIPSTATE_H
#define SLUICE_CLI_SHIPSTATE_H

#include "cli.h"
#include "shipwire.h"

#include <sluice/events.h>
#include <sluice/wal.h>

#define SHIP_SAMPLE 256               /* bytes that are compared at most, at the beginning and before the place */
#define SHIP_SNAPSHOT_MAX (192 << 10) /* bytes of a snapshot: bounds the files of one log */

/* How far one file is in the log. */
struct ship_place {
	uint64_t id; /* of this file, or of its life since it was truncated, in this log; from 1, never given twice */
	char *path;  /* under which it was followed; "-" for standard input */
	uint64_t dev, ino;
	uint64_t offset;  /* behind the last line that is in the log */
	int64_t since_ns; /* when reading it began, by the clock of the file system: its successors are younger */
	uint32_t head_len, tail_len; /* of what the hashes are over: the first bytes, the last ones before offset */
	uint64_t head, tail;
	int done;        /* read to its end and left; kept while its file could be taken for one that was never seen */
	int64_t born_ns; /* of a file that is done: when it was made, as shipfile.h has it */
};

struct ship_state {
	struct ship_place *places; /* older ones of a path first */
	size_t n, cap;
	uint64_t last_id;
	uint64_t target;   /* 0: not known */
	uint64_t sequence; /* of the newest record that is in it */
};

uint64_t ship_hash(const void *data, size_t n);

void ship_state_fini(struct ship_state *s);
/* NULL: there is none of that number. Lives until a place is added or dropped. */
struct ship_place *ship_state_find(const struct ship_state *s, uint64_t id);
/* A place at the beginning of a file, at the end of the list. NULL without memory. */
struct ship_place *ship_state_add(struct ship_state *s, const char *path);
void ship_state_drop(struct ship_state *s, uint64_t id);
/* It is the newest now. Places found before lie elsewhere then. NULL: there is none. */
struct ship_place *ship_state_move_last(struct ship_state *s, uint64_t id);
/* Bytes that a snapshot of it takes. */
size_t ship_state_size(const struct ship_state *s);

/* A line on its way into the log. */
struct ship_line {
	uint64_t place;   /* the number of its file */
	uint64_t at, end; /* of its first byte, and where the next one begins */
	const char *data;
	size_t len;
	int partial;
	int type; /* enum sl_event_type */
	int64_t ts_ms;
};

/* The record of a line, without a snapshot, at the end of b. */
int ship_encode(struct ship_buf *b, const struct ship_state *s, const struct ship_line *line, uint64_t sequence,
		const struct sl_env *env, struct sl_err *err);
/* The snapshot, at the end of b. */
void ship_encode_snapshot(struct ship_buf *b, const struct ship_state *s);
/* What a line changes once it is in the log. */
struct ship_step {
	uint64_t place, end, tail;
	uint32_t tail_len;
};
struct ship_step ship_step_of(const struct ship_line *line);
void ship_apply(struct ship_state *s, const struct ship_step *step);

/* What a record says, for whoever delivers it. */
struct ship_record {
	struct sl_event event;
	const char *path; /* of the file, not ended by a NUL; NULL: none */
	size_t path_len;
};
int ship_decode(const struct sl_wal_record *record, struct ship_record *out, struct sl_err *err);

/* Read the state from the log. *first_pending: the first sequence that is not delivered, one past the last for none. */
int ship_recover(struct ship_state *s, sl_wal *w, const char *copy, uint64_t *first_pending, struct sl_err *err);
/* Write the copy beside the log. */
int ship_save(const struct ship_state *s, sl_wal *w, const char *copy, struct sl_err *err);

#endif
