/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What earlier runs have written of an input, record by record: a table of a database keeps the byte ranges that it has
 * and the sum of their hashes (struct sl_sink_loaded), so that a load that is run again writes the rest only.
 *
 * A record is in a range by its own bytes, without its line end: a file without a final newline may grow. Everything
 * that is in a range must add up to the sum, else the input is not the one that was loaded. A file is compared before
 * the first row is written; a pipe while it is read.
 *
 * Thread safety: none; the thread of sl_load_run calls.
 */
#ifndef SL_LOAD_RESUME_H
#define SL_LOAD_RESUME_H

#include "base/env.h"

#include <sluice/adapter/sink.h>
#include <sluice/records.h>
#include <sluice/wal.h>

struct load_resume {
	const struct sl_env *env;
	bool on;                   /* the target keeps records */
	struct sl_sink_loaded had; /* when this run began */
	uint64_t header;           /* a hash of the names of the columns: part of the first record */
	size_t at;                 /* the range that is next */
	uint64_t sum;              /* of the records in ranges so far */
	uint64_t begin;            /* where the range of the next record begins */
	bool checked;              /* the sum was compared */
	uint64_t fresh;            /* records that are not in any range */
	uint64_t *logged;          /* where records begin that the log has and the table may not; sorted */
	size_t n_logged, cap_logged;
};

enum load_resume_what {
	LOAD_RESUME_NEW,
	LOAD_RESUME_DONE,
	LOAD_RESUME_CHANGED,
	LOAD_RESUME_CUT /* everything is what it was, but the last record was loaded before it was complete */
};

/* From the beginning of the input. */
void sl__load_resume_start(struct load_resume *r);
/* The next record: is it written already? *range: its bytes. */
enum load_resume_what sl__load_resume_next(struct load_resume *r, const struct sl_record *record,
					   struct sl_input_range *range);
/* Is the record with this range pending in the log? */
bool sl__load_resume_is_logged(const struct load_resume *r, const struct sl_input_range *range);
/* Read what is pending in the log. 0, SL_ENOMEM, or what sl_wal_iterate returns. */
int sl__load_resume_read_log(struct load_resume *r, sl_wal *log, struct sl_err *err);
void sl__load_resume_fini(struct load_resume *r);
/* The end of the input: LOAD_RESUME_CHANGED, or LOAD_RESUME_DONE. */
enum load_resume_what sl__load_resume_end(struct load_resume *r);

#endif
