/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ways to break the protocol between creates and prunes. tests/backup/test_backup_interleave.c compiles the files that
 * ask BK_BROKEN with SL_BK_BREAKABLE, and must find a snapshot that misses a block for each of these, several of them
 * together with the last one: what a create does twice has to be left out twice. In the library nothing is broken, and
 * the compiler leaves it out.
 */
#ifndef SL_BACKUP_BROKEN_H
#define SL_BACKUP_BROKEN_H

enum bk_break {
	BK_BREAK_NONE,
	/* prune; P1 to P11 are in backup/prune/prune.h */
	BK_BREAK_IGNORE_SEEN,     /* P2: no mark waits for a session */
	BK_BREAK_NOT_READY_SEEN,  /* P2: a session that is not ready counts as if it had seen everything */
	BK_BREAK_SNAPSHOTS_FIRST, /* P3 before P2 */
	BK_BREAK_LEAVE_SILENT,    /* P2: a silent session is passed over, but not removed */
	BK_BREAK_REMOVE_LATE,     /* P2: silent sessions are removed after P3 */
	BK_BREAK_DELETE_AT_ONCE,  /* P10: also what this run has marked */
	BK_BREAK_DELETE_NEEDED,   /* P10: also packs of which something was chosen in P6 */
	BK_BREAK_MARK_GOES_FIRST, /* P11 before P10 */
	/* create */
	BK_BREAK_NO_SESSION_YET, /* the index is loaded before the session begins */
	BK_BREAK_MARKS_FIRST,    /* the marks are loaded before the session is there */
	BK_BREAK_USE_CONDEMNED,  /* packs of marks that were seen count (F5) */
	BK_BREAK_TRUST_PARENT,   /* what is unchanged is taken over without a look at where its blocks are (F5) */
	BK_BREAK_SAME_NAMES,     /* packs of the same blocks have the same name (F6) */
	BK_BREAK_PUBLISH_ANYWAY, /* also when somebody removed the session */
	BK_BREAK_NO_RECHECK,     /* F7: no look at marks that came since; alone it does no harm */
	BK_BREAKS
};

#ifdef SL_BK_BREAKABLE
extern unsigned sl__bk_broken; /* a bit for each */
#define BK_BROKEN(what) ((sl__bk_broken >> (what)&1u) != 0)
#else
#define BK_BROKEN(what) false
#endif

#endif
