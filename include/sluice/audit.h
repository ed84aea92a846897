/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The audit chain of an export: one event per committed partition, each holding the hash of the one before it; heads
 * that are signed and kept elsewhere; and verification, which derives everything from the files again.
 *
 * Guarantees
 *  - An event has exactly one form in bytes, and its hash covers every member: two events with the same hash are the
 *    same.
 *  - Verification trusts no name inside an event: nothing outside of the export's folder is opened, no link is
 *    followed.
 *  - A byte that was changed in a data file, an event, a catalog row or a head is named.
 * Not guaranteed: that events which are missing at the end are noticed without a head that was kept elsewhere; that a
 * chain which a person with write access has forged as a whole is noticed without a signed head.
 *
 * Thread safety: the functions have no state; callbacks run on the calling thread unless they say otherwise.
 * Ownership: everything passed in is only read; what a callback sees lives for the call.
 *
 * docs/formats/audit.md has the bytes.
 */
#ifndef SLUICE_AUDIT_H
#define SLUICE_AUDIT_H

#include <sluice/adapter/env.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SL_AUDIT_HASH_BYTES 32
#define SL_AUDIT_EVENT_BYTES 16384 /* no event is longer, with its NUL */
#define SL_DATASET_NAME_MAX 100

/* [A-Za-z0-9][A-Za-z0-9._-]*, at most SL_DATASET_NAME_MAX bytes. SL_EINVAL */
SL_API SL_MUST_CHECK int sl_dataset_check_name(const char *name, struct sl_err *err);

/* ---- events ---- */

enum sl_audit_type {
	SL_AUDIT_PARTITION = 0, /* continues the dataset */
	SL_AUDIT_BACKFILL = 1,  /* a range below the checkpoint that was not there */
	SL_AUDIT_LATE = 2       /* rows that appeared in a recorded hole of a committed partition */
};

struct sl_audit_event {
	size_t struct_size;
	enum sl_audit_type type;
	uint64_t number; /* from 1, without a gap */
	const char *dataset;
	const char *sequence_column;
	uint64_t partition_size;
	uint64_t start, end;
	const char *path;                      /* relative to the export's folder, '/' between its parts */
	uint64_t rows, bad_rows, holes, bytes; /* rows + bad_rows + holes is end - start + 1 */
	/* Sequences that the source does not have: "17,20-25", or "sha256:" and the hash of that text when it is longer
	 * than 4,096 bytes. NULL, as "": none. */
	const char *hole_ranges;
	uint8_t sha256[SL_AUDIT_HASH_BYTES];        /* of the file */
	uint8_t schema_sha256[SL_AUDIT_HASH_BYTES]; /* of the dataset's schema in the catalog */
	const char *producer, *producer_version;
	uint8_t prev_hash[SL_AUDIT_HASH_BYTES]; /* zeros for number 1 */
	uint8_t hash[SL_AUDIT_HASH_BYTES];      /* set by format and parse */
};

/* Write the canonical text with its NUL to out, and the hash into the event. SL_EINVAL: a member that cannot be. */
SL_API SL_MUST_CHECK int sl_audit_event_format(struct sl_audit_event *event, char out[SL_AUDIT_EVENT_BYTES],
					       size_t *len, struct sl_err *err);
/* Parse the canonical text, strictly: text that is not exactly canonical, or whose hash is wrong, is SL_ECORRUPT, and
 * the error says why. The strings of *out point into storage. */
SL_API SL_MUST_CHECK int sl_audit_event_parse(const void *text, size_t len, struct sl_audit_event *out,
					      char storage[SL_AUDIT_EVENT_BYTES], struct sl_err *err);
/* "DATASET:START-END": what receivers know an event by. Points into out. */
SL_API const char *sl_audit_event_id(const struct sl_audit_event *event, char out[160]);

/* ---- keys and heads ---- */

#define SL_AUDIT_PUBLIC_KEY_BYTES 32
#define SL_AUDIT_SIGNATURE_BYTES 64
#define SL_AUDIT_HEAD_BYTES 1024

/* A new key pair: the secret one in path (0600, SL_EEXIST when it is taken), the public one in path.pub. */
SL_API SL_MUST_CHECK int sl_audit_keygen(const char *path, const struct sl_env *env,
					 uint8_t public_key[SL_AUDIT_PUBLIC_KEY_BYTES], struct sl_err *err);
/* SL_EKEY says what is wrong with the file. */
SL_API SL_MUST_CHECK int sl_audit_public_key_load(const char *path, const struct sl_env *env,
						  uint8_t out[SL_AUDIT_PUBLIC_KEY_BYTES], struct sl_err *err);

struct sl_audit_head {
	size_t struct_size;
	char dataset[SL_DATASET_NAME_MAX + 1];
	uint64_t events;                         /* of the chain */
	uint64_t checkpoint;                     /* the last sequence */
	uint8_t event_hash[SL_AUDIT_HASH_BYTES]; /* of event number `events` */
	bool has_signature;
	uint8_t public_key[SL_AUDIT_PUBLIC_KEY_BYTES];
	uint8_t signature[SL_AUDIT_SIGNATURE_BYTES];
};
/* Sign with the secret key in key_file (SL_EKEY); the key is wiped from memory before it returns. */
SL_API SL_MUST_CHECK int sl_audit_head_sign(struct sl_audit_head *head, const char *key_file, const struct sl_env *env,
					    struct sl_err *err);
/* One line with its line end and NUL. */
SL_API SL_MUST_CHECK int sl_audit_head_format(const struct sl_audit_head *head, char out[SL_AUDIT_HEAD_BYTES],
					      size_t *len, struct sl_err *err);
/* SL_ECORRUPT. A signature is checked against the key in the head itself, and against public_key when that is not NULL:
 * then a head without one, or by another key, is SL_EKEY. */
SL_API SL_MUST_CHECK int sl_audit_head_parse(const void *text, size_t len, const uint8_t *public_key,
					     struct sl_audit_head *out, struct sl_err *err);
/* The head of the dataset below dir, from its event files. SL_ENOENT, SL_ECORRUPT. */
SL_API SL_MUST_CHECK int sl_audit_head_read(const char *dir, const char *dataset, const struct sl_env *env,
					    struct sl_audit_head *out, struct sl_err *err);

/* ---- verification ---- */

enum sl_audit_fault {
	SL_AUDIT_NOTE_UNCOMMITTED = 1, /* no fault: a file of sequences that no event holds, or a temporary one, of a
					* run that still runs or did not end; the same run again replaces it */
	SL_AUDIT_NOTE_BACKLOG = 2,     /* no fault: events of the catalog that are not in the files yet */
	SL_AUDIT_MISSING = 10,         /* a file that an event names is not there */
	SL_AUDIT_UNREADABLE = 11,      /* it cannot be read, or is not a regular file */
	SL_AUDIT_SIZE = 12,
	SL_AUDIT_HASH = 13,     /* the contents are not those of the event */
	SL_AUDIT_CONTENTS = 14, /* rows, order or range of the sequence, or not Parquet */
	SL_AUDIT_UNKNOWN = 15,  /* a file that no event names */
	SL_AUDIT_EVENT = 20,    /* an event that is damaged or not canonical */
	SL_AUDIT_LINK = 21,     /* events that do not follow each other */
	SL_AUDIT_GAP = 22,      /* sequences that no partition holds */
	SL_AUDIT_OVERLAP = 23,  /* or two do */
	SL_AUDIT_CATALOG = 30,  /* a catalog row is not what the event says */
	SL_AUDIT_HEAD = 40,     /* the chain does not contain the head that was kept */
	SL_AUDIT_SIGNATURE = 41
};
/* For programs: "missing", "hash", "link" …; "other" for an unknown number. */
SL_API const char *sl_audit_fault_name(enum sl_audit_fault fault);

struct sl_audit_finding {
	size_t struct_size;
	enum sl_audit_fault fault;
	const char *path; /* of what is wrong, with the export's folder before it; or the catalog's table and key */
	uint64_t event;   /* 0: none */
	const char *text; /* what is wrong */
};
/* Findings come in the order of the chain. Returns 0 to continue; another value ends the verification and becomes its
 * result. */
typedef int sl_audit_finding_fn(const struct sl_audit_finding *finding, void *ctx);
typedef int sl_audit_progress_fn(uint64_t done_bytes, uint64_t total_bytes, void *ctx);

struct sl_audit_verify_opts {
	size_t struct_size;
	const struct sl_env *env;
	int threads;            /* files at a time; default: as many as processors */
	enum sl_switch all;     /* every finding instead of the first; default off */
	enum sl_switch decode;  /* rows, order and range from the Parquet data; default on */
	const char *checkpoint; /* the file of a head that was kept elsewhere; NULL: none */
	const char *public_key; /* the file of the key that must have signed it; NULL: any, or none */
	const char *catalog;    /* URL; NULL: sqlite:DIR/_catalog.db when it is there; "" : none */
	sl_audit_finding_fn *on_finding;
	sl_audit_progress_fn *on_progress; /* about ten times a second */
	void *ctx;
};
#define SL_AUDIT_VERIFY_OPTS_INIT .struct_size = sizeof(struct sl_audit_verify_opts)

struct sl_audit_result {
	size_t struct_size;
	uint64_t findings, notes; /* reported; without `all` at most one finding */
	uint64_t events, partitions, rows, bad_rows, bytes;
	uint64_t start, checkpoint;
	uint8_t head[SL_AUDIT_HASH_BYTES];
	bool catalog_checked, head_checked, signature_checked;
};

/* 0 when the verification ran to its end, whatever it found: check findings. SL_ENOENT: there is no such dataset below
 * dir. An export or a backfill may run meanwhile: verification reads a consistent snapshot of the dataset. */
SL_API SL_MUST_CHECK int sl_audit_verify(const char *dir, const char *dataset, const struct sl_audit_verify_opts *opts,
					 struct sl_audit_result *out, struct sl_err *err);

/* The events of the files below dir in order, each checked by itself and against the one before (SL_ECORRUPT). */
typedef int sl_audit_event_fn(const struct sl_audit_event *event, const char *text, size_t len, void *ctx);
SL_API SL_MUST_CHECK int sl_audit_events(const char *dir, const char *dataset, const struct sl_env *env,
					 sl_audit_event_fn *fn, void *ctx, struct sl_err *err);

#ifdef __cplusplus
}
#endif
#endif
