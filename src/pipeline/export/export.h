/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The export inside: the handle, what one call of it holds open, and what its files call of each other.
 *
 *	export.c    the handle and its options        input.c   the source is opened, sampled, read
 *	job.c       one call: open, pipeline, close   build.c   a worker: runs become a Parquet file
 *	store.c     names, temporary files, syncs     calls.c, backfill.c   run and gaps, backfill
 *	rows.c      rows from the caller's callback, without text
 *
 * Locks: e->mu guards the pipeline's pointer, the stop and the progress; job->letters_mu the dead letters. Both are
 * leaves.
 */
#ifndef SL_PIPELINE_EXPORT_EXPORT_H
#define SL_PIPELINE_EXPORT_EXPORT_H

#include <stdatomic.h>

#include "base/buf.h"
#include "base/fork_guard.h"
#include "base/sha256.h"
#include "base/thread.h"
#include "pipeline/export/run.h"
#include "pipeline/export/source.h"
#include "pipeline/export/table.h"
#include "pipeline/partition.h"
#include <sluice/catalog.h>
#include <sluice/dead_letter.h>
#include <sluice/pipeline.h>

#define SL__EXPORT_ROW_GROUP_ROWS 122880
#define SL__EXPORT_ROW_GROUP_BYTES ((int64_t)32 << 20)

struct sl_export {
	struct sl_env env;
	struct sl__fork_guard guard;
	struct sl_export_opts o; /* resolved; strings and columns are the handle's */
	char *strings[16];       /* those */
	size_t n_strings;
	struct sl__schema given; /* n 0: none */
	int stop_fd;             /* an eventfd: readable when waits for input are to end */

	sl__mutex mu;
	sl_pipeline *pipeline;      /* while it runs */
	enum sl_pipeline_stop stop; /* asked for before or while it runs */
	bool interrupted;           /* the pipeline wants no more input */
	struct sl__export_source *source;
	struct sl_export_progress progress;
};

/* What a dataset is, as far as it is known. */
struct sl__dataset_state {
	bool known; /* it is defined in the catalog */
	uint64_t partition_size, events, start, checkpoint;
	char *sequence, *schema;
};

/* The input of a call. */
struct sl__input {
	struct sl_export *e;
	struct sl__export_source source; /* ops NULL: a file or a descriptor */
	struct sl_export_opts source_opts;
	int fd;                /* of a file: of env->io; else the caller's */
	bool is_file, regular; /* a path was opened; it can be read at offsets */
	uint64_t offset;       /* of the next read */
	uint64_t total;        /* bytes of the input; 0: not known, or it grows */
	bool sampling;         /* of a file that grows: what is there now, up to its last line end */
	/* Of a file that is followed: the last bytes that were read, and what has become of it meanwhile. */
	char tail[64];
	size_t tail_len;
	enum { SL__INPUT_SAME = 0, SL__INPUT_RENAMED, SL__INPUT_TRUNCATED, SL__INPUT_COPY_READ } turn;
	bool begun;         /* from its beginning, and nothing was taken yet: what comes before it may lie elsewhere */
	uint64_t sought[2]; /* the last number that was searched for in rotated files, and the one after it; 0: none */
	int *before;        /* rotated files that are read first, */
	size_t n_before, before_at; /* and the next of them */
	bool cut;                   /* of a pipe: the last byte so far is not the end of a line */
	bool sampled;               /* of a pipe: it has ended, and the sample must do with what it has */
	int64_t sample_end_ns;      /* of a pipe: the sample is to do with what it has then; 0: it is no sample */
	struct sl__map map;
	size_t map_at; /* of the next read */
	bool csv, header;
	sl_records *records; /* what is read one after the other */
	const struct sl_parquet_column *known;
	size_t n_known;
};

/* Rows that the caller's callback has added and that are in no run yet. Zeroed before the first use. */
struct sl_export_rows {
	struct sl__export_job *job;
	struct sl__buf
		cells; /* of struct sl_export_value, a row after the other; `bytes` of a cell is set in its run */
	struct sl__buf bytes;
	size_t at, n;    /* rows: the next to be given, all */
	size_t bytes_at; /* where the bytes of row `at` begin */
	bool ended;
};

/* One call of run or backfill. */
struct sl__export_job {
	struct sl_export *e;
	sl_catalog *catalog;
	sl_catalog_lease *lease;
	sl_outbox *outbox;
	struct sl__dataset_state dataset;
	struct sl__input input;
	struct sl__schema schema;
	struct sl__layout layout;
	bool guessing;
	struct sl__guesser guesser;
	struct sl__cutter cutter;
	struct sl_export_rows rows; /* of a callback */
	atomic_bool guess_wrong;
	bool seen_any;             /* something was given to the pipeline: */
	uint64_t seen_first, seen; /* its first and its last sequence */
	uint64_t left;             /* rows that were read and not given to it */
	bool records_gaps;         /* a missing sequence is a hole, not the end */
	int64_t recheck_ns;        /* when holes are inspected again */
	uint64_t first;            /* of the pipeline: what lies below is committed; 0: it may begin anywhere */
	bool has_pending;          /* a run that waits until the hole before it was given: */
	struct sl_pipeline_element pending;

	sl__mutex letters_mu;
	sl_dlq *letters;
	char *letter_target; /* with the first of them */
	bool letters_json;   /* their rows are objects: the columns are too many for the target */
	struct sl_export_result result;
};

/* ---- export.c ---- */
/* Nothing more is to be read: the caller or the pipeline has said so. */
bool sl__export_stopping(struct sl_export *e);
void sl__export_interrupt(struct sl_export *e, bool on);
void sl__export_step(const struct sl_export *e, const char *step, uint64_t start);

/* ---- input.c ---- */
/* Open it and inspect its beginning; the columns are not known before. */
SL_MUST_CHECK int sl__input_open(struct sl__input *in, struct sl_export *e, const char *sequence, uint64_t first,
				 struct sl_err *err);
void sl__input_close(struct sl__input *in);
/* Columns of the schema: of the source, or guessed. sequence NULL: the first column. */
SL_MUST_CHECK int sl__input_schema(struct sl__input *in, const char *sequence, struct sl__schema *out,
				   struct sl_err *err);
/* Begin again, with the sequences first … last as far as the source can choose; the records are read from there. */
SL_MUST_CHECK int sl__input_begin(struct sl__input *in, uint64_t first, uint64_t last, struct sl_err *err);
/* A followed file has ended: another file has its name, or it was truncated: continue with what
 * follows it. SL_PIPELINE_END: it has not; the input is over. names: of the columns that the others had; n 0: no
 * header. */
SL_MUST_CHECK int sl__input_turn(struct sl__input *in, char *const *names, size_t n, struct sl_err *err);
/* The file that is followed begins with `begins`, and `next` is missing before it: it was rotated more than once since
 * it was read. SL_PIPELINE_END: no rotated file next to it has that number. 0: those that have what is missing are read
 * first, then it again from its beginning; the records are exchanged. */
SL_MUST_CHECK int sl__input_before(struct sl__input *in, const struct sl__layout *layout, uint64_t next,
				   uint64_t begins, struct sl_err *err);
/* Has the file a whole record whose number can be read? */
bool sl__input_has_row(const struct sl__input *in, const struct sl__layout *layout);
/* Wait for the source to grow. false: a stop was asked for. */
bool sl__input_pause(struct sl__input *in);
/* Wait this long, or until a stop. false: a stop was requested. */
bool sl__input_wait(struct sl__input *in, int64_t ms);
/* For messages: "ledger.csv", "standard input", "table …". */
const char *sl__input_name(const struct sl__input *in);

/* ---- rows.c ---- */
/* As sl__cutter_next, of the callback's rows. */
SL_MUST_CHECK int sl__export_rows_next(struct sl__export_job *job, struct sl_pipeline_element *out, struct sl_err *err);

/* ---- build.c ---- */
struct sl__builder;
SL_MUST_CHECK int sl__builder_new(struct sl__export_job *job, struct sl__builder **out, struct sl_err *err);
void sl__builder_free(struct sl__builder *w); /* NULL is allowed */
/* SL__OBJECT_BUF bytes that are free between two builds. */
char *sl__builder_buf(struct sl__builder *w);

/* ---- store.c ---- */
/* A file on its way: written and hashed under a temporary name, synced, renamed. */
struct sl__object {
	const struct sl_env *env;
	uint64_t start, end, rows, bad_rows, bytes;
	bool late;                /* rows in the holes of a partition */
	uint64_t holes;           /* sequences that the source does not have, */
	struct sl__buf hole_text; /* as ranges (pipeline/holes.h) */
	uint64_t input_end;       /* after its last row, in the input */
	uint8_t sha256[SL__SHA256_BYTES];
	char *folder, *temp, *path; /* of the file system */
	char *name;                 /* relative to TO, as the catalog has it */
	int fd;
	bool temp_there;
	struct sl__sha256 hash;
	uint64_t hinted; /* bytes whose writeback was started */
	char *buf;       /* small writes gather here; borrowed from the worker */
	size_t used;
};
#define SL__OBJECT_BUF ((size_t)256 << 10)

/* The folder and those above it. SL_ECREATE: they cannot be; what may pass (no space, a failing disk) is reported as such.
 */
SL_MUST_CHECK int sl__export_mkdirs(const struct sl_env *env, const char *folder, struct sl_err *err);

/* start, end, late and buf are those of `like`. */
SL_MUST_CHECK int sl__object_new(struct sl__object **out, struct sl_export *e, uint64_t partition_size,
				 const struct sl__object *like, struct sl_err *err);
/* The file of an object that was not renamed is removed. NULL is allowed. */
void sl__object_free(struct sl__object *o);
/* sl_parquet_write_fn */
int sl__object_write(const void *bytes, size_t n, struct sl_err *err, void *object);
/* Everything is written: hash and size are known. */
SL_MUST_CHECK int sl__object_finish(struct sl__object *o, struct sl_err *err);
/* Durable under its name when 0 returns. lease may be NULL. */
SL_MUST_CHECK int sl__object_store(struct sl__object *o, struct sl_export *e, sl_catalog_lease *lease,
				   struct sl_err *err);
/* Remove temporary files of earlier runs, in the folders from this partition on. */
SL_MUST_CHECK int sl__store_clean(struct sl_export *e, uint64_t from_number, struct sl_err *err);
/*
 * The file `name` of start … end is committed: another that holds a part of the range never can be. A run that was
 * killed leaves one when it had closed its last partition short and the input grew before the next. What cannot be
 * removed is left: audit verify names it.
 */
void sl__store_sweep(struct sl_export *e, const char *name, uint64_t start, uint64_t end);

/* ---- build.c ---- */
SL_MUST_CHECK int sl__builder_build(struct sl__builder *w, const struct sl_pipeline_partition *p,
				    struct sl__object **out, struct sl_err *err);

/* ---- job.c ---- */
SL_MUST_CHECK int sl__job_open(struct sl__export_job *job, struct sl_export *e, struct sl_err *err);
/* The cutter of job->input, from this sequence on. */
void sl__job_init_cutter(struct sl__export_job *job, uint64_t first);
/* Exports what comes from job->input. */
SL_MUST_CHECK int sl__job_pipeline(struct sl__export_job *job, struct sl_err *err);
/* Look whether rows have appeared in holes that were recorded in the last SL__HOLES_RECHECK_MS: SL_EGAP says where. */
#define SL__HOLES_RECHECK_MS ((int64_t)24 * 3600 * 1000)
#define SL__HOLES_RECHECK_EVERY_MS 60000 /* of a source that is followed */
SL_MUST_CHECK int sl__job_recheck(struct sl__export_job *job, struct sl_err *err);
SL_MUST_CHECK int sl__job_deliver(struct sl__export_job *job, struct sl_err *err);
void sl__job_close(struct sl__export_job *job);
/* The catalog's row of it. */
void sl__object_row(struct sl__object *o, struct sl_catalog_partition *out);
/* A partition was committed: for the progress. */
void sl__job_count(struct sl__export_job *job, const struct sl__object *o);
/* Put a bad row into the dead letters, durably. */
SL_MUST_CHECK int sl__job_divert(struct sl__export_job *job, const struct sl_record *row, const struct sl_err *why,
				 struct sl_err *err);

void sl__dataset_fini(const struct sl_env *env, struct sl__dataset_state *d);

SL_MUST_CHECK int sl__export_catalog(struct sl_export *e, bool create, sl_catalog **out, struct sl_err *err);

/* ---- calls.c ---- */
/* What a call does; everything that it has opened in job is closed after it, and reported in result. */
typedef int sl__export_call_fn(struct sl__export_job *job, struct sl_export *e, struct sl_err *err, void *ctx);
SL_MUST_CHECK int sl__export_call(struct sl_export *e, sl__export_call_fn *fn, void *ctx,
				  struct sl_export_result *result, struct sl_err *err);

#endif
