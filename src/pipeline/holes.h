/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recorded holes: the sequences of a partition that its source does not have. As text they are ranges in ascending
 * order that neither overlap nor touch, "17,20-25": the form of the catalog, and of audit events up to
 * SL__HOLES_INLINE bytes. In an event longer ones are "sha256:" and the hash of that text, so that an event stays small
 * and verification can still compare it with the rows.
 *
 * Thread safety: no state. Ownership: texts are the caller's.
 */
#ifndef SL_PIPELINE_HOLES_H
#define SL_PIPELINE_HOLES_H

#include "base/buf.h"

#define SL__HOLES_INLINE 4096
#define SL__HOLES_EVENT_BYTES (SL__HOLES_INLINE + 1)
#define SL__HOLES_HASHED "sha256:"

/* One more range after the others. */
void sl__holes_put(struct sl__buf *text, uint64_t first, uint64_t last);
/* The range at *text, which then is after it. false: no range, *text is at what is left. */
bool sl__holes_next(const char **text, uint64_t *first, uint64_t *last);
/* Is it the text of `count` numbers that lie in start … end? */
bool sl__holes_ok(const char *text, uint64_t start, uint64_t end, uint64_t count);
/* Do first … last lie in one of its ranges? */
bool sl__holes_contain(const char *text, uint64_t first, uint64_t last);
/* As an event has them: the text, or its hash. */
SL_MUST_CHECK int sl__holes_for_event(const char *text, char out[SL__HOLES_EVENT_BYTES], struct sl_err *err);
/* Is this "sha256:" and 64 digits? */
bool sl__holes_hashed(const char *text);

#endif
