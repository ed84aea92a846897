/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of notifications that merges equal ones: one JOB_SCHEDULED per type (its id is kept while it is the only one,
 * else 0), one OWNERSHIP_LOST per job (the first reason stays), one CHAIN_ENDED per chain. It is filled while a
 * transaction runs and published once, after its commit.
 *
 * Not guaranteed: that a notification is kept when memory runs out. They are hints, and polling finds the rest; `lost`
 * counts them. A few fit without an allocation, so that enqueueing one chain never needs one.
 *
 * Thread safety: one thread at a time. Ownership: the set copies what it is given; env is borrowed.
 */
#ifndef SL_JOBS_NOTES_H
#define SL_JOBS_NOTES_H

#include "base/env.h"
#include "jobs/notify/ops.h"

#define SL__NOTES_INLINE 4
#define SL__NOTES_TYPE_BYTES 129 /* a type's name and its NUL */

struct sl__note_type {
	struct sl__note_type *next;
	char name[SL__NOTES_TYPE_BYTES];
};

struct sl__notes {
	const struct sl_env *env;
	struct sl_note *notes; /* n of them, in the order of arrival: a savepoint remembers n */
	size_t n, cap;
	uint32_t *index; /* open addressing over notes, once more than SL__NOTES_INLINE came; 0: free, else place + 1 */
	size_t n_index;
	uint64_t lost;               /* notifications dropped for lack of memory */
	struct sl__note_type *types; /* names that notes point to, each once */
	struct sl_note inline_notes[SL__NOTES_INLINE];
	struct sl__note_type inline_type;
};

void sl__notes_init(struct sl__notes *s, const struct sl_env *env);
void sl__notes_fini(struct sl__notes *s);
/* Empty it and keep the memory. */
void sl__notes_clear(struct sl__notes *s);
void sl__notes_add(struct sl__notes *s, const struct sl_note *note);
/* The set's own copy of a type's name, alive until fini; NULL without memory, or for NULL. */
const char *sl__notes_name(struct sl__notes *s, const char *type);
/* Keep the first n. */
void sl__notes_cut(struct sl__notes *s, size_t n);
/* Publish all and empty the set. notify may be NULL. A failure is only logged: polling is the guarantee. */
void sl__notes_publish(struct sl__notes *s, const sl_notify *notify);

#endif
