/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ways to break the protocol between creates and prunes. breaks.py copies the sources that keep the protocol and puts
 * BROKEN(…) into the copies; test_backup_interleave.c is built with these, and must find a snapshot that misses a block
 * for each break. Several need the last one as well: what a create does twice has to be left out twice.
 */
#ifndef TEST_BACKUP_BREAKS_H
#define TEST_BACKUP_BREAKS_H

enum protocol_break {
	BREAK_NOTHING,
	/* prune; P1 to P11 are in backup/prune/prune.h */
	BREAK_IGNORE_SEEN,     /* P2: no mark waits for a session */
	BREAK_NOT_READY_SEEN,  /* P2: a session that is not ready counts as if it had seen everything */
	BREAK_SNAPSHOTS_FIRST, /* P3 before P2 */
	BREAK_LEAVE_SILENT,    /* P2: a silent session is ignored, but not removed */
	BREAK_REMOVE_LATE,     /* P2: silent sessions are removed after P3 */
	BREAK_DELETE_AT_ONCE,  /* P10: also what this run has marked */
	BREAK_DELETE_NEEDED,   /* P10: also packs of which something was chosen in P6 */
	BREAK_MARK_GOES_FIRST, /* P11 before P10 */
	/* create */
	BREAK_NO_SESSION_YET, /* the index is loaded before the session begins */
	BREAK_MARKS_FIRST,    /* the marks are loaded before the session is there */
	BREAK_USE_MARKED,     /* packs of marks that were seen count (F5) */
	BREAK_TRUST_PARENT,   /* what is unchanged is taken over without checking where its blocks are (F5) */
	BREAK_SAME_NAMES,     /* packs of the same blocks have the same name (F6) */
	BREAK_PUBLISH_ANYWAY, /* also when a prune removed the session */
	BREAK_NO_RECHECK,     /* F7: marks that came since are not checked; alone it does no harm */
};

extern unsigned protocol_broken; /* a bit for each */
#define BROKEN(what) ((protocol_broken >> BREAK_##what & 1u) != 0)

#endif
