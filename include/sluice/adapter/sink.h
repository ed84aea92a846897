/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sink: where a coordinator's batches go. PostgreSQL, SQLite, HTTP, files, programs and nothing come with the library
 * (<sluice/sink.h>); a program supplies its own by filling a table of functions.
 *
 * What a sink promises: when write returns 0, every item of the batch is in the target, as durably as the target can
 * say. When it fails, it says what that means for the batch (err->error_class, err->retry_after_ms) and, where it
 * knows, for single items (reply). An item may be handed over again after a failure, also when the target had taken it
 * and only the answer was lost: a target that must not see it twice needs a key (an upsert, an idempotency key).
 *
 * Classes: SL_CLASS_TRANSIENT retry this batch; SL_CLASS_THROTTLED wait for retry_after_ms; SL_CLASS_POISON an item of
 * it will never be taken; SL_CLASS_FATAL the target is unavailable or refuses everything: nothing is charged, the
 * breaker opens. SL_CLASS_NONE: the coordinator's classifier decides, by default the specification's keywords.
 *
 * Thread safety: attach, write and detach are called from several threads at once, for different lanes; one lane is
 * used by one thread at a time. cancel is called from any thread. Nothing is called with a lock of the library held.
 * Ownership: items and what they point to live until write returns; the table must outlive the coordinator.
 */
#ifndef SLUICE_ADAPTER_SINK_H
#define SLUICE_ADAPTER_SINK_H

#include <sluice/adapter/env.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SL_SINK_VERSION 1

/* The bytes of an input that an item was read from, so that a table can record what it has of the input. */
struct sl_input_range {
	uint64_t begin, end; /* end 0: the item is not part of an input that is recorded */
	uint64_t hash;       /* of the record: sl_record_hash */
};

struct sl_sink_item {
	/* Byte items: the bytes. Pointer items (struct sl_coordinator_opts): the pointer, and the length it was
	 * submitted with. */
	const void *data;
	size_t len;
	const void *key; /* of the per-key order; NULL: none */
	size_t key_len;
	uint64_t position; /* the submitter's: a line, a sequence; 0: none */
	struct sl_input_range range;
};

/* What became of one item of a batch that failed. */
enum sl_sink_outcome {
	SL_SINK_AS_BATCH = 0, /* what the call returned holds for it */
	SL_SINK_WRITTEN = 1,  /* it is in the target in spite of the failure */
	SL_SINK_POISON = 2    /* it will never be taken; err says why */
};

struct sl_sink_batch {
	const struct sl_sink_item *items;
	size_t n;       /* at least 1 */
	uint8_t id[16]; /* random, the same whenever these same items are tried again: an idempotency key */
	uint32_t tries; /* of exactly this batch before this one */
	bool ordered;   /* true: items must be applied in their order (per-key order is on) */
};

#define SL_SINK_NO_CULPRIT ((size_t)-1)

struct sl_sink_reply {
	/* n entries of enum sl_sink_outcome, all SL_SINK_AS_BATCH before the call. Read only when write failed. */
	uint8_t *outcomes;
	/* With SL_CLASS_POISON: the one item that it is about, when nothing of the batch was written; else
	 * SL_SINK_NO_CULPRIT (the value before the call), and the coordinator finds it by halving. */
	size_t culprit;
};

/* What a table has of an input. Belongs to the sink; lives until the next load_begin or load_end. */
struct sl_sink_loaded {
	size_t struct_size;
	const struct sl_input_range *ranges; /* sorted, disjoint; without hashes */
	size_t n_ranges;
	uint64_t hash;      /* the sum of the hashes of all records in the ranges, modulo 2^64 */
	uint64_t rows;      /* written; the other records are dead letters */
	int64_t started_ms; /* Unix time of the first run */
	bool finished;      /* true: a run came to the end of the input */
};

struct sl_sink_ops {
	int version;      /* SL_SINK_VERSION */
	const char *name; /* the `sink` label of metrics: "postgres", "http" … */

	/* A lane for one worker: a connection, a buffer. Called on the worker's thread before its first write and again
	 * after detach. May be NULL: every lane is the sink's ctx. Failures are handled as those of a write. */
	int (*attach)(void *sink, void **lane, struct sl_err *err);
	/* The worker does not write any more for now, or the coordinator stops. May be NULL. */
	void (*detach)(void *sink, void *lane);
	/* Write a batch. May block; should come back within the sink's own timeouts. */
	int (*write)(void *sink, void *lane, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
		     struct sl_err *err);
	/* Can the target be written to? For callers that want to know before the first batch. May be NULL: the sink
	 * has no such check. Called without a lane, before the first write. */
	int (*check)(void *sink, struct sl_err *err);
	/* Running and later writes should return soon, with any error: stop has run out of time. May be NULL. */
	void (*cancel)(void *sink);
	/* Frees the sink. Not called by the coordinator: the caller that opened a sink closes it, after the
	 * coordinator. */
	void (*close)(void *sink);
	/* Where it goes, for people and dead letters: a URL without secrets. May be NULL: the name. */
	const char *(*target)(void *sink);

	/* A number that is the same for all records with the same key of an upsert (others may share it): the key of
	 * per-key order, so that the last record of a key wins. 0: only the database can compare it, so it may be the
	 * same as any other. lane is of attach, and only used for this. May be NULL. */
	int (*key)(void *sink, void *lane, const void *data, size_t len, uint64_t *hash, struct sl_err *err);

	/*
	 * Exactly once without a key. All three or none. From load_begin to load_end, the transaction that writes items
	 * also records their ranges, under the identity of the table and `input`, and a batch with items that are
	 * recorded already writes the others only: also after a commit whose answer was lost. One load at a time, and
	 * no write while one of the three runs, except load_dead.
	 *
	 * load_begin makes the tables of the records unless they are there, forgets the records of a table that is
	 * empty or was made anew, and with `again` those of this input. It ends every earlier run of the same load:
	 * what that had in flight is either in *out or will never be written, and its later writes fail with
	 * SL_ELOCKED, fatal. SL_EACCES: no right to make the tables.
	 */
	int (*load_begin)(void *sink, const char *input, bool again, struct sl_sink_loaded *out, struct sl_err *err);
	/* A record of the input is durable as a dead letter: its range is recorded with the next batch, or by load_end.
	 * From any thread. SL_ENOMEM. */
	int (*load_dead)(void *sink, const struct sl_input_range *range);
	/* finished: everything up to the end of the input is written or dead. */
	int (*load_end)(void *sink, bool finished, struct sl_err *err);
};

typedef struct sl_sink {
	const struct sl_sink_ops *ops;
	void *ctx;
} sl_sink;

#ifdef __cplusplus
}
#endif
#endif
