/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spool of an attempt: what its command has written, in the order in which the minder read it, as frames in a file.
 * It lives in the page cache and so survives the death of any process, but no power loss. docs/formats/spool.md has the
 * bytes.
 *
 * One file serves many attempts, one after the other, and is overwritten in place, which costs a tenth of making a
 * file. What an earlier attempt left after the end of a later one is recognised by the salt, with which every frame's
 * checksum begins. There is one writer of frames at a time: the minder, or the worker after the minder's death. The
 * header is the worker's.
 *
 * Thread safety: none; a file has one owner on each side. The functions that build frames are async-signal-safe.
 */
#ifndef SL_JOBS_EXEC_SPOOL_H
#define SL_JOBS_EXEC_SPOOL_H

#include "base/env.h"
#include "jobs/store/ops.h"
#include <sluice/wal_files.h>

#define SL__SPOOL_HEADER 160
#define SL__SPOOL_START 256               /* of the first frame */
#define SL__SPOOL_FRAME 24                /* before its bytes */
#define SL__SPOOL_KEY_AT SL__SPOOL_HEADER /* of the sealed key of an encrypted spool */
#define SL__SPOOL_NONCE 24
#define SL__SPOOL_SEAL 40 /* what encryption adds to the bytes of a frame */
#define SL__SPOOL_CHUNK 65536
#define SL__LINE_MAX ((uint64_t)8 << 20) /* the longest max_line_bytes */

/* What a command writes to: descriptors 1, 2 and 3. */
enum sl__stream { SL__STDOUT = 0, SL__STDERR = 1, SL__CONTROL = 2, SL__STREAMS = 3 };

enum sl__frame_kind {
	SL__FRAME_STARTED = 1, /* pid, 4 bytes */
	SL__FRAME_STDOUT = 2,  /* the streams follow one another */
	SL__FRAME_STDERR = 3,
	SL__FRAME_CONTROL = 4,
	SL__FRAME_EXITED = 5, /* how (0 code, 1 signal) and which, 4 bytes each */
	SL__FRAME_FAILED = 6  /* not started: errno and enum sl__spawn_step, 4 bytes each */
};

enum sl__spawn_step {
	SL__SPAWN_FORK = 1,
	SL__SPAWN_SETUP = 2,
	SL__SPAWN_CHDIR = 3,
	SL__SPAWN_EXEC = 4,
	SL__SPAWN_USER = 5 /* become the user of run_as */
};

enum sl__spool_flags {
	SL__SPOOL_STARTED = 1, /* its event is in the log */
	SL__SPOOL_EXITED = 2,
	SL__SPOOL_DONE = 4,     /* the attempt has ended and all its events are in the log */
	SL__SPOOL_SKIPPING = 8, /* at consumed, descriptor 3 is inside of a line that was too long */
	SL__SPOOL_SEALED = 16   /* the bytes of frames are encrypted; the sealed key follows the header */
};

/* A place in the spool: the offset of a frame, and how many bytes of each stream came before it. */
struct sl__spool_place {
	uint64_t offset;
	uint64_t position[SL__STREAMS];
};

struct sl__spool_header {
	uint32_t salt;
	uint32_t flags; /* enum sl__spool_flags */
	uint64_t job_id;
	int32_t attempt;
	struct sl_claim_id claim;
	/* resume, consumed, known and flags cover everything of the attempt that is in the log up to here. */
	uint32_t incarnation;
	uint64_t sequence;
	uint64_t max_line_bytes;
	struct sl__spool_place resume;  /* nothing before it is needed any more */
	uint64_t consumed[SL__STREAMS]; /* what came before this position is in the log */
	uint64_t known[SL__STREAMS];    /* and so are events that begin before this one: the first part of a batch */
};

void sl__spool_put_header(uint8_t out[SL__SPOOL_HEADER], const struct sl__spool_header *h);
/* SL_EDATA: not a header, or damaged; SL_EUNSUPPORTED: of a later version. */
SL_MUST_CHECK int sl__spool_get_header(const uint8_t in[SL__SPOOL_HEADER], struct sl__spool_header *out);

struct sl__frame {
	enum sl__frame_kind kind;
	uint64_t offset; /* in the file */
	int64_t ts_ms;
	const uint8_t *data;
	size_t len;
	size_t seal; /* what encryption added to them in the file */
};

/* The first bytes of a frame, which its data follows; its offset does not matter. Async-signal-safe. */
void sl__spool_put_frame(uint8_t out[SL__SPOOL_FRAME], uint32_t salt, const struct sl__frame *frame);

/* Encrypt the bytes of a frame at frame->offset: out has room for frame->len + SL__SPOOL_SEAL. What is written to the
 * file is then a frame with these bytes. A nonce is used once with a key, also by a frame that failed
 * to be written and is written again. Async-signal-safe, once a log has loaded its key. */
void sl__spool_seal(uint8_t *out, const uint8_t key[SL_WAL_KEY_BYTES], const uint8_t nonce[SL__SPOOL_NONCE],
		    uint32_t salt, const struct sl__frame *frame);

#define SL__SPOOL_BUF (SL__SPOOL_FRAME + SL__SPOOL_CHUNK + SL__SPOOL_SEAL)

/* Reads frames one by one. buf has SL__SPOOL_BUF bytes and belongs to the caller. */
struct sl__spool_reader {
	const struct sl_env *env;
	int fd;
	uint32_t salt;
	uint64_t at,
		limit; /* the next frame; frames end here at the latest (UINT64_MAX: where none is valid any more) */
	uint8_t *buf;
	const uint8_t *key; /* of an encrypted spool, else NULL */
	uint64_t have_at;   /* what the buffer holds of the file */
	size_t have;
};

/* 1: *out is filled, its data lives until the next call; 0: no further frame; a negative errno: -EKEYREJECTED, a frame
 * that is whole does not open. */
int sl__spool_next(struct sl__spool_reader *r, struct sl__frame *out);

#endif
