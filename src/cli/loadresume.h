/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What earlier runs have written of an input, record by record: a table of a database keeps the byte ranges that it has
 * and the sum of their hashes (struct sl_sink_loaded), so that a load that is run again writes the rest only.
 *
 * A record is in a range by its own bytes, without its line end: a file without a final newline may grow. Everything
 * that is in a range must add up to the sum, else the input is not the one that was loaded. A file is compared before
 * the first row is written; a pipe while it is read.
 *
 * Thread safety: none; the main thread calls.
 */
#ifndef SLUICE_CLI_LOADRESUME_H
#define SLUICE_CLI_LOADRESUME_H

#include "cli.h"

#include <sluice/records.h>
#include <sluice/wal.h>

struct loadresume {
	int on;                    /* the target keeps records */
	struct sl_sink_loaded had; /* when this run began */
	uint64_t header;           /* a hash of the names of the columns: part of the first record */
	size_t at;                 /* the range that is next */
	uint64_t sum;              /* of the records in ranges so far */
	uint64_t begin;            /* where the range of the next record begins */
	int checked;               /* the sum was compared */
	uint64_t fresh;            /* records that are in no range */
	uint64_t *logged;          /* where records begin that the log of --wal has and the table may not; sorted */
	size_t n_logged, cap_logged;
};

enum loadresume_what {
	LOADRESUME_NEW,
	LOADRESUME_DONE,
	LOADRESUME_CHANGED,
	LOADRESUME_CUT /* everything is what it was, but the last record was loaded before it was whole */
};

/* From the beginning of the input. */
void loadresume_start(struct loadresume *r);
/* The next record: is it written already? *range: its bytes. */
enum loadresume_what loadresume_next(struct loadresume *r, const struct sl_record *record,
				     struct sl_input_range *range);
/* Is the record with this range pending in the log? */
int loadresume_is_logged(const struct loadresume *r, const struct sl_input_range *range);
/* Ask the log what is pending in it. 0, SL_ENOMEM, or what sl_wal_iterate returns. */
int loadresume_read_log(struct loadresume *r, sl_wal *log, struct sl_err *err);
void loadresume_fini(struct loadresume *r);
/* The end of the input: LOADRESUME_CHANGED, or LOADRESUME_DONE. */
enum loadresume_what loadresume_end(struct loadresume *r);

#endif
