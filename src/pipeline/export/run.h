/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs: stretches of text that hold the records of consecutive sequences of one partition, which the pipeline carries
 * to a worker. There are two ways to make them.
 *
 * The cutter reads every record, by <sluice/records.h>: for pipes, databases and growing files, whose text it copies,
 * and for mapped files, of which it gives slices.
 *
 * The guesser inspects a few lines of a mapped file only: it takes the file for sorted, and searches for the line with
 * which the next partition begins. What it gives is a guess until a worker has parsed the run from its first to its
 * last byte and found one record after the other with the next number. Each run begins where the one before it ended,
 * so by induction a run that comes out right began and ended at a record, whatever quotes the input has. The first
 * begin is the file's; when a run resumes, the cutter reads what lies below, since nothing else would notice a step back
 * there, and the guesses begin where it has come to. Whatever does not come out right is done again by the cutter,
 * which finds and names the place.
 *
 * Thread safety: a cutter and a guesser belong to one thread at a time. Ownership: a run is owned by who gets it.
 */
#ifndef SL_PIPELINE_EXPORT_RUN_H
#define SL_PIPELINE_EXPORT_RUN_H

#include "pipeline/export/layout.h"
#include <sluice/pipeline.h>

/* A record within a run that the cutter has found to be none. */
struct sl__bad_record {
	size_t at, used;
	const char *why;
};

struct sl__run {
	const struct sl_env *env;
	const char *text; /* SL__ROW_PADDING bytes after it are readable */
	size_t len;
	char *own;                            /* text, when it is the run's; else NULL */
	uint64_t line;                        /* of its first byte; 0: not known */
	uint64_t end;                         /* after its last byte, in the input */
	const struct sl_export_value *values; /* not NULL: no text, but n_rows rows of typed values, in `own` */
	size_t n_rows;
	bool guessed;
	bool hole;                  /* no text: the source has none of its sequences */
	bool late;                  /* rows that were recorded as a hole, and are there now */
	struct sl__bad_record *bad; /* in order */
	size_t n_bad;
	uint64_t diverted; /* bad rows that are in the dead letters already */
};
void sl__run_free(struct sl__run *run); /* NULL is allowed */

/* ---- a mapped file ---- */

struct sl__map {
	const char *text; /* NULL: not mapped */
	size_t len;       /* SL__ROW_PADDING more are readable */
	size_t reserved;
};
/* SL_EIO and the like. fd is only needed during the call. */
SL_MUST_CHECK int sl__map_open(struct sl__map *out, int fd, size_t len, struct sl_err *err);
void sl__map_close(struct sl__map *map);
/* Called by each thread that reads a map. Who truncates the file meanwhile has it end by SIGBUS, which the program may
 * have a handler for; a thread that blocks the signal, as the library's do with all, never gets there. */
void sl__map_reader(void);

/* ---- the guesser ---- */

struct sl__guesser {
	const struct sl__layout *layout;
	const struct sl_env *env;
	const char *text;
	size_t len;
	uint64_t partition_size;
	size_t at;     /* where the next run begins */
	uint64_t next; /* its first sequence */
	size_t last_at;
	uint64_t last; /* of the file */
	struct sl__buf scratch;
};

/* env, layout, text, len, partition_size and at are set by the caller, the rest is zero. A record begins at byte `at`,
 * or the file ends there. resume: the record must be that of sequence `first`. 0;
 * SL_PIPELINE_END: there is nothing; SL_EAGAIN: the input is not what a guess can be made of, take the cutter. */
SL_MUST_CHECK int sl__guesser_init(struct sl__guesser *g, bool resume, uint64_t first);
/* 0, SL_PIPELINE_END, SL_EAGAIN, SL_ENOMEM. */
SL_MUST_CHECK int sl__guesser_next(struct sl__guesser *g, struct sl_pipeline_element *out);

/* ---- the cutter ---- */

#define SL__CUTTER_AHEAD 256

struct sl__cutter {
	const struct sl_env *env;
	const struct sl__layout *layout;
	sl_records *records; /* borrowed; may be exchanged between two calls of next */
	const char *map;     /* not NULL: the input lies there */
	uint64_t partition_size;
	uint64_t first; /* text of smaller sequences is not kept; may be raised between two calls of next */
	uint64_t until; /* a run ends with it; may be changed as first may; SL__SEQUENCE_MAX by default */
	bool divert;    /* bad records take up a sequence; else they end it */
	uint64_t again; /* records below it come once more and are skipped; 0: none do */
	/* A run begins with each of the sequences that next_cut gives, in ascending order; NULL: there are none. */
	bool (*next_cut)(uint64_t *sequence, void *ctx);
	void *cut_ctx;
	bool has_cut;
	uint64_t cut;

	struct sl_record ahead[SL__CUTTER_AHEAD];
	size_t at, n;
	bool any;
	uint64_t last;   /* sequence that was taken last, when any */
	uint64_t passed; /* of the record that was skipped last */

	/* the run that is being made */
	bool open;
	struct sl_pipeline_element element;
	uint64_t line, next_line; /* of its first byte, of the one after it */
	uint64_t offset, end;     /* in the input */
	struct sl__buf text, bad, scratch;
};

void sl__cutter_fini(struct sl__cutter *c);
/* 0: out->data is a struct sl__run, without text below first. SL_PIPELINE_END: the records have ended. SL_EDATA with
 * the place; what the records returned. */
SL_MUST_CHECK int sl__cutter_next(struct sl__cutter *c, struct sl_pipeline_element *out, struct sl_err *err);
/* What was given last, from `next` on, was too early: it comes again after other records. The records are exchanged
 * next. */
void sl__cutter_take_back(struct sl__cutter *c, uint64_t next);
/* Records from first on that were read and are in no run yet. */
uint64_t sl__cutter_left(const struct sl__cutter *c);
/* Read everything below c->first. 0: one number came after the other, and *end is the place after them in the input.
 * SL_PIPELINE_END: so it was, but the records ended before. SL_EAGAIN: something is wrong with them, which a run from
 * the beginning will report. Else as next. The cutter is not used any more. */
SL_MUST_CHECK int sl__cutter_skip(struct sl__cutter *c, uint64_t *end, struct sl_err *err);

#endif
