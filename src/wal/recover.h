/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recovery between its two files: recover_survey.c reads the whole log and changes nothing; recover.c repairs what
 * the survey found, and takes the state of the handle from one that found nothing to repair.
 */
#ifndef SL_WAL_RECOVER_H
#define SL_WAL_RECOVER_H

#include "wal/handle.h"
#include "wal/segs.h"
#include "wal/survey.h"

struct wal_gap {
	uint64_t first, last;
};

struct wal_recovery {
	sl_wal *w;
	const struct wal_open_hooks *hooks;
	int round;
	struct wal_files files;
	struct wal_source *sources;
	char **paths;
	size_t n; /* sources: sealed ones, then the active one */
	struct wal_index index;
	struct wal_ranges statuses;
	struct wal_gap *gaps;
	size_t n_gaps, cap_gaps;
	struct wal_gap front;       /* taken by damage before the first record of all: only a declaration keeps it */
	uint64_t top;               /* the highest sequence that is mentioned anywhere */
	uint64_t last;              /* the highest data sequence */
	uint64_t damaged;           /* ranges, gaps and headers */
	uint64_t tail_bytes;        /* damaged bytes with no data record after them */
	uint64_t tail_first;        /* the first sequence that they may have held */
	size_t cut_segment;         /* the first damage */
	uint64_t cut_offset;        /* of it; 0: none */
	struct wal_renewal renewed; /* the last one */
	size_t renewed_in;          /* its segment */
	size_t closed_in;           /* the segment of the last record of a clean close */
	uint64_t closed_end;        /* where that ends; 0: none */
	struct wal_entry sealed_sample; /* the last encrypted record, to try the key on */
	struct sl_wal_damage pending;   /* told once it is known which sequences are missing */
	bool has_pending;
	struct sl_err first_damage;
};

/* Read every segment; what is found is in r, and told to its hooks. What an earlier survey found must be forgotten. */
SL_MUST_CHECK int sl__wal_recover_survey(struct wal_recovery *r, struct sl_err *err);
/* Sequences that are missing. SL_ENOMEM. */
SL_MUST_CHECK int sl__wal_recover_gap(struct wal_recovery *r, uint64_t first, uint64_t last);
/* Free what a survey found. */
void sl__wal_recover_forget(struct wal_recovery *r);

#endif
