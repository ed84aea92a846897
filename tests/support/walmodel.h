/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a log must hold, kept beside a log under test: which payloads were submitted under which sequence, which of them
 * were acknowledged, and what a receiver has taken. Every fact carries the crash point (crashfs.h) at which it became
 * true, so that one recorded run gives the obligations at every point of it.
 *
 * Rules that walmodel_verify checks of the log that is left at a point:
 *  1. It opens.
 *  2. Every record in it was submitted under its sequence with exactly that payload, in ascending order, and not
 *     refused.
 *  3. Every record acknowledged by then is in the log, or in a whole archive.
 *  4. A record that a receiver took is not there with another payload, and its sequence is not given again.
 *  5. A record is sent or failed only on request.
 *  6. It takes new records, closes, and opens again with all of these.
 *  7. No descriptor and no memory is left behind.
 *  8. Damaged bytes are kept by the code that removes them, the sequences lost with them are declared missing, and what a
 *     recovery has repaired is sound.
 *
 * Thread safety: none but for the receiver's send, which locks.
 */
#ifndef TESTS_WALMODEL_H
#define TESTS_WALMODEL_H

#include <pthread.h>

#include "support/crashfs.h"
#include "support/vclock.h"
#include <sluice/wal_files.h>

#define WALMODEL_MAX_PAYLOAD 4096
#define WALMODEL_NEVER SIZE_MAX

/* ---- payloads: made from a number, and recognised ---- */
size_t walmodel_payload(uint64_t id, uint8_t out[WALMODEL_MAX_PAYLOAD]);
/* The number that made these bytes; 0 when nothing did. */
uint64_t walmodel_id_of(const void *payload, size_t n);

struct walmodel_entry {
	uint32_t incarnation;
	uint64_t sequence, id;
	size_t submitted_at, acked_at; /* WALMODEL_NEVER: not acknowledged */
	size_t refused_at;             /* the append said that it is not there; WALMODEL_NEVER */
	bool excused;                  /* destroyed on purpose: may be missing */
};

struct walmodel_delivery {
	uint32_t incarnation;
	uint64_t sequence, id;
	size_t at;
};

struct walmodel_mark {
	uint32_t incarnation;
	uint64_t first, last;
	enum sl_wal_status status;
	size_t at;         /* asked for */
	size_t durable_at; /* must be there from here on; WALMODEL_NEVER: may be forgotten */
	size_t until;      /* an archive began: from here on it may be forgotten again; WALMODEL_NEVER */
	bool forgettable;  /* its process died with it: may be forgotten for ever */
};

struct walmodel {
	pthread_mutex_t mu;
	struct walmodel_entry *entries;
	size_t n_entries;
	struct walmodel_delivery *deliveries;
	size_t n_deliveries;
	struct walmodel_mark *marks;
	size_t n_marks;
	uint64_t next_id;
	bool any_sequence; /* records may have been numbered anew (a new incarnation): rule 2 asks for the payload only
			    */
	bool copied_archives; /* not only the log puts archives there: one that cannot be read does not count */
	const void *kept;     /* bytes that must be in the log or in a set-aside file; NULL: none */
	size_t kept_len;
	size_t sound_at; /* a recovery returned: verify finds no damage from here on; WALMODEL_NEVER */
};

void walmodel_init(struct walmodel *m, uint64_t first_id);
void walmodel_fini(struct walmodel *m);
/* Deep copy of the facts that hold at point, all of them moved to point 0. */
void walmodel_rebase(struct walmodel *to, const struct walmodel *from, size_t point);
struct walmodel_entry *walmodel_submit(struct walmodel *m, uint32_t incarnation, uint64_t sequence, uint64_t id,
				       size_t at);
void walmodel_mark(struct walmodel *m, uint32_t incarnation, uint64_t first, uint64_t last, enum sl_wal_status status,
		   size_t at);
/* A receiver has first..last, as far as they continue what it had; not the log's sender brought them. */
void walmodel_deliver(struct walmodel *m, uint32_t incarnation, uint64_t first, uint64_t last, size_t at);
/* Everything that was marked so far must stay marked (a clean close). */
void walmodel_marks_durable(struct walmodel *m, size_t at);
/* An archive began: while files of the log go, so may marks. The records that they stand for are published by then. */
void walmodel_marks_until(struct walmodel *m, size_t at);
/* The process died: what was not durable by then may be forgotten. */
void walmodel_marks_forgettable(struct walmodel *m);

/* ---- a receiver: idempotent, in order, never forgets ---- */
struct walmodel_receiver {
	struct walmodel *m;
	struct crashfs *fs; /* for the point of a delivery; NULL: 0 */
	uint64_t refuse;    /* a sequence that it refuses for good; 0: none */
	bool name_refused;  /* it says which one */
	uint32_t fail_next; /* the number of calls that fail with SL_EUNAVAIL first */
	bool broken;        /* what came contradicts what it has */
	uint64_t batches;
};
extern const struct sl_wal_sender walmodel_sender; /* ctx: struct walmodel_receiver */

/* ---- an environment on a crashfs ---- */
struct walmodel_env {
	struct sl_env env;
	struct vclock clock;
	struct crashfs *fs;
	uint64_t rand_state; /* short draws never repeat, so that no two incarnations are equal by chance */
	size_t live_allocs;
	size_t warnings, errors; /* log records */
	bool verbose;            /* print log records as comments */
	/* Called once when this much virtual time has passed by waiting, to end what would never end. */
	void (*on_late)(void *ctx);
	void *on_late_ctx;
	int64_t late_ns;
};
void walmodel_env_init(struct walmodel_env *e, struct crashfs *fs, uint64_t seed);
void walmodel_env_fini(struct walmodel_env *e);

/* ---- the judge ---- */
struct walmodel_case {
	const struct walmodel *m;
	size_t point;
	const char *id;
	struct sl_wal_opts opts; /* env is replaced */
	const char *archive_dir; /* NULL: none */
	bool send;               /* also deliver what is left, to a receiver that has what was delivered by point */
	bool verbose;
};
/* 0, or -1 with what is wrong in why. Changes fs. */
int walmodel_verify(const struct walmodel_case *c, struct crashfs *fs, char why[512]);

#endif
