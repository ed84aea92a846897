/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which events a store takes: the one rule of all stores. Events of a stream follow its mark without a gap, except over
 * a range that the sender says to skip; a skip counts only where the events do not fill it themselves. What is at or
 * below the mark is known already, and must be the same.
 *
 *     sl__events_init ─▶ the store fills streams[], locked ─▶ sl__events_admit ─▶ the store compares known[], inserts
 * fresh[], writes streams[] and what sl__events_audit has found ─▶ commit ─▶ sl__events_return_marks
 *
 * A stream belongs to the token that created it, whatever its incarnation. One without an owner was created by a
 * process with access to the store, or through a server without tokens.
 *
 * Thread safety: none. Ownership: what it points to is the caller's.
 */
#ifndef SL_JOBS_STORE_EVENT_ADMIT_H
#define SL_JOBS_STORE_EVENT_ADMIT_H

#include "base/env.h"
#include "jobs/store/claims.h"
#include "jobs/store/event_mark.h"

/* A stream with the mark that the store has, moved on as events are admitted. */
struct sl__event_stream {
	const char *name;
	uint32_t incarnation;
	struct sl__event_mark mark;
	/* Filled by the store with the mark. */
	bool found;                         /* it has this incarnation of the stream */
	bool has_others;                    /* it has other incarnations; asked for only where this one is new */
	char owner[SL_EVENT_OWNER_MAX + 1]; /* of any incarnation; "": none */
	/* Filled by sl__events_admit. */
	bool own;     /* the owner is to be written for this incarnation */
	bool adopted; /* and for the others */
	bool foreign;
	uint64_t skip_first, skip_last; /* what was skipped lies between them; 0: nothing */
};

struct sl__event_detail {
	char json[400];
};

struct sl__event_admission {
	const struct sl_event_row *events;
	size_t n;
	struct sl_event_mark *marks; /* of the caller: may lack streams that have events */
	size_t n_marks;
	struct sl__event_stream *streams; /* of marks and events, once each */
	size_t n_streams;
	const struct sl_event_row **fresh, **known; /* in the order of events */
	size_t n_fresh, n_known;
	/* Of each event that names a job: filled by the store before it inserts. */
	enum sl__claim_standing *standings;
	/* What is out of the ordinary, for the audit trail: written in the same transaction. */
	struct sl_audit_record *records;
	size_t n_records;
	struct sl__event_detail *details;
};

/* events and marks are set. SL_ENOMEM. To be followed by fini in any case. */
SL_MUST_CHECK int sl__events_init(struct sl__event_admission *a, const struct sl_env *env, struct sl_err *err);
void sl__events_fini(struct sl__event_admission *a, const struct sl_env *env);
/* One that is there. */
struct sl__event_stream *sl__events_stream(const struct sl__event_admission *a, const char *name, uint32_t incarnation);
/* SL_EGAP, SL_ECONFLICT, SL_EACCES: nothing of the call may be taken. */
SL_MUST_CHECK int sl__events_admit(struct sl__event_admission *a, struct sl_err *err);
/* Is the event kept under its job and attempt? Not when there is no such job: one that is made later must not find it
 * in its log. */
bool sl__event_keeps_job(const struct sl__event_admission *a, const struct sl_event_row *event);
/* Only what comes with the claim of the attempt that runs, or that was the last, is in time. */
bool sl__event_is_late(const struct sl__event_admission *a, const struct sl_event_row *event);
/* Have two events the same job, attempt and claim? */
bool sl__event_same_claim(const struct sl_event_row *x, const struct sl_event_row *y);
/* Fill records; the standings are known. */
void sl__events_audit(struct sl__event_admission *a);
/* After the commit: the caller's marks. */
void sl__events_return_marks(const struct sl__event_admission *a);

#endif
