/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a table has of an input: a set of byte ranges, the sum of the hashes of the records in them, and how many rows
 * they are. A transaction records the ranges of its rows as one row of the table of records:
 *
 *     load │ first │ last │ parts │ rows │ hash
 *
 * first is where the lowest range begins, last where the highest ends; parts is NULL when there is one range, else the
 * ranges from `first` on as varints: length, gap, length, gap … length. Sums make it possible to put the rows of any
 * transactions together in any order (docs/formats/loads.md).
 *
 * Thread safety: one thread at a time. Ownership: a set owns its ranges until fini; env is borrowed.
 */
#ifndef SL_SINK_RANGES_H
#define SL_SINK_RANGES_H

#include "base/buf.h"
#include <sluice/adapter/sink.h>

#define SL__LOAD_ID_BYTES 33 /* 32 hexadecimal digits and a NUL */

struct sl__ranges {
	const struct sl_env *env;
	struct sl_input_range *at;
	size_t n, cap;
	uint64_t hash, rows;
};

void sl__ranges_init(struct sl__ranges *r, const struct sl_env *env);
void sl__ranges_fini(struct sl__ranges *r);
/* Empty, and keep the memory. */
void sl__ranges_clear(struct sl__ranges *r);
/* One more, in any order; it must not overlap others. Neighbours that come one after the other become one. hash is
 * added to the sum, rows is not changed. SL_ENOMEM. */
SL_MUST_CHECK int sl__ranges_add(struct sl__ranges *r, const struct sl_input_range *range);
/* Everything of `from`, with its sums. On SL_ENOMEM some of it is there. */
SL_MUST_CHECK int sl__ranges_add_all(struct sl__ranges *r, const struct sl__ranges *from);
/* Sorted, and neighbours put together: what put_parts and has need. */
void sl__ranges_sort(struct sl__ranges *r);
/* Is byte `begin` in it? Sorted only. */
bool sl__ranges_has(const struct sl__ranges *r, uint64_t begin);
/* The end of the last one; 0: empty. Sorted only. */
uint64_t sl__ranges_end(const struct sl__ranges *r);

/* The column `parts`; nothing when there is one range. Failures stick in out. Sorted only. */
void sl__ranges_put_parts(const struct sl__ranges *r, struct sl__buf *out);
/* Add what a row of the table has. SL_ECORRUPT: parts does not end at last. SL_ENOMEM. */
SL_MUST_CHECK int sl__ranges_get_row(struct sl__ranges *r, struct sl_input_range row, const void *parts, size_t n,
				     struct sl_err *err);

/* ---- a load of a sink ---- */

/* What the sinks with tables keep of the load that is running. */
struct sl__load {
	char id[SL__LOAD_ID_BYTES];    /* of the run; empty: no load */
	char tried[SL__LOAD_ID_BYTES]; /* the id that a renewal may have given it, when the answer was lost */
	int64_t started_ms;            /* of the first run */
	bool finished;                 /* when this run began */
	struct sl__ranges done;        /* when the run began; not changed until it ends */
	struct sl__ranges late;        /* the same, read again since an answer was lost */
	struct sl__ranges dead;        /* records that are durable as dead letters, to be recorded: sl__load_dead */
	bool doubt;                    /* the answer to a commit was lost: read the records before the next write */
};

void sl__load_init(struct sl__load *l, const struct sl_env *env);
void sl__load_fini(struct sl__load *l);
/* 32 random hexadecimal digits. */
void sl__load_new_id(const struct sl_env *env, char out[SL__LOAD_ID_BYTES]);
/* One more dead letter, kept with its own hash. */
SL_MUST_CHECK int sl__load_dead(struct sl__load *l, const struct sl_input_range *range);
/* The records were read into `late`: dead letters whose range is there need no other record. */
void sl__load_drop_dead(struct sl__load *l);
void sl__load_show(const struct sl__load *l, struct sl_sink_loaded *out);
/* The failure of a write whose run has ended. */
int sl__load_taken_over(struct sl_err *err);

#endif
