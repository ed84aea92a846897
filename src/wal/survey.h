/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A walk over all segments of a stream, oldest first: headers, records, damage, and sequences that are missing between
 * records. Recovery, scan, iterate and archive all see a log through it. Changes nothing.
 */
#ifndef SL_WAL_SURVEY_H
#define SL_WAL_SURVEY_H

#include "wal/reader.h"

struct wal_source {
	/* in */
	const char *path;     /* opened by the survey when fd < 0 and memory is NULL */
	const char *name;     /* for reports: without its folder */
	int fd;               /* -1: open path; not closed when given */
	const uint8_t *mem;   /* an archive in memory, or NULL */
	uint64_t size;        /* of mem; of a file: read up to here, UINT64_MAX for all of it */
	uint64_t named_first; /* a sealed segment's number; 0: unknown */
	/* out */
	enum wal_header_state header_state;
	struct wal_header header;
	uint64_t file_size;
	uint64_t before;         /* the highest data sequence of the sources before this one */
	uint64_t first, last;    /* data sequences; 0: none */
	uint64_t records, marks; /* data records; status records */
	uint64_t end;            /* logical end */
	uint64_t torn;           /* bytes of an unfinished write after it */
	uint64_t damage;         /* damaged ranges */
	int64_t last_ms;         /* timestamp of the last record */
	bool missing;            /* the file disappeared before it was opened */
	bool too_short;          /* not even a header */
};

enum wal_finding {
	WAL_FOUND_RECORD, /* item->record: data or status */
	/* item->offset, length: bytes that are not a record; valid ones follow in this or a later segment */
	WAL_FOUND_DAMAGE,
	/* gap_first..gap_last were skipped by the next record; follows its DAMAGE, if bytes are before it */
	WAL_FOUND_GAP,
	WAL_FOUND_TORN,  /* the tail of the last segment */
	WAL_FOUND_HEADER /* the header is not sound */
};

struct wal_find {
	enum wal_finding kind;
	size_t segment; /* index into the sources */
	const struct wal_item *item;
	uint64_t gap_first, gap_last;
};

/* Return 0 to continue. */
typedef int wal_survey_fn(const struct wal_find *find, struct sl_err *err, void *ctx);

struct wal_survey {
	const struct sl_env *env;
	struct wal_source *sources;
	size_t n;
	wal_survey_fn *fn;
	void *ctx;
	/* of the walk itself */
	uint64_t last;        /* the highest data sequence so far */
	uint64_t front_bytes; /* damage before the first data record of all */
};

/* SL_EIO …, SL_EUNSUPPORTED for a later version, or what fn returned. A source that is not a log at all (no sound
 * header and no record) has header_state WAL_HEADER_BAD and records == 0. */
SL_MUST_CHECK int sl__wal_survey(struct wal_survey *s, struct sl_err *err);

#endif
