/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the dead letters: the bytes of a file (dead_letter_format.c), reading one through a window and finding the way
 * past damage (dead_letter_scan.c), the folder (dead_letter_folder.c), writing (dead_letter_put.c), reading
 * (dead_letter_walk.c), and what surrounds them (dead_letter.c). docs/formats/dead_letter.md specifies the bytes.
 *
 * Invariants
 *  I1  A file is named by the id of its first letter, and ids grow through a file and from file to file: the names say
 *      which file holds an id, and the highest name is a floor for the next id.
 *  I2  A letter's acknowledgement is in the letter's own file. So a file can be removed without bringing a dealt-with
 *      letter back, and no file depends on another.
 *  I3  The newest file is removed only when a newer one is durably there: the numbering never starts again.
 *  I4  A letter at offset o has an id of at most first_id + (o - header) / smallest letter. The index of a file is so
 *      bounded by its size, and after damage the numbering jumps over every id that the damaged bytes may have held.
 *  I5  Nothing after `size` of a file was ever promised; it is cut off before the next write (`cut`).
 *  I6  A close record follows the last letter of a file that was closed, or that a newer file continues. So every
 *      letter before it was written whole: one that is not good is damage, while after a crash the tail of the newest
 *      file, which has no close record, may be a write that was torn.
 */
#ifndef SL_FLOW_DEAD_LETTER_H
#define SL_FLOW_DEAD_LETTER_H

#include <stdatomic.h>
#include <sys/types.h>

#include "base/thread.h"
#include <sluice/dead_letter.h>
#include <sluice/metrics.h>

/* ---- the format ---- */

#define SL__DL_VERSION 1
#define SL__DL_HEADER_COPY 40
#define SL__DL_HEADER 80 /* two copies */
#define SL__DL_FRAME 32
#define SL__DL_LETTER_FIXED 80 /* frame and fixed fields */
#define SL__DL_LETTER_MIN 91   /* three empty strings and the CRC */
#define SL__DL_ACK 56
#define SL__DL_CLOSE 40 /* frame and CRC */
#define SL__DL_MAX_SOURCE 255
#define SL__DL_MAX_ERROR 4096
#define SL__DL_MAX_TARGET 4096
#define SL__DL_MAX_ITEM ((size_t)64 * 1024 * 1024)
#define SL__DL_MAX_FILE ((uint64_t)INT32_MAX) /* offsets have 31 bits in the index */
#define SL__DL_MAX_NAME ((uint64_t)1 << 62)

enum sl__dl_type { SL__DL_LETTER = 1, SL__DL_ACKED = 2, SL__DL_CLOSED = 3 };

struct sl__dl_frame {
	uint64_t salt, id;
	uint32_t length; /* of the whole record */
	enum sl__dl_type type;
};

/* Sizes of the parts of a letter; SL_EINVAL (names the field) or SL_ETOOBIG. */
struct sl__dl_sizes {
	size_t source, error, target, item, total;
};
int sl__dl_measure(const struct sl_dlq_letter *letter, struct sl__dl_sizes *out, struct sl_err *err);

void sl__dl_put_header(uint8_t out[SL__DL_HEADER], uint64_t first_id, uint64_t salt);
/* Checks both copies. 0 with *salt; SL_ECORRUPT: neither is good; SL_EUNSUPPORTED: a later version;
 * SL_EDATA: a good header of another file (first_id differs). n: bytes that are there. */
int sl__dl_get_header(const uint8_t *p, size_t n, uint64_t first_id, uint64_t *salt);

void sl__dl_put_letter(uint8_t *out, uint64_t salt, uint64_t id, const struct sl_dlq_letter *letter,
		       const struct sl__dl_sizes *sizes);
void sl__dl_put_ack(uint8_t out[SL__DL_ACK], uint64_t salt, uint64_t first, uint64_t last, int64_t now_ms);
/* next_id: above the ids of all letters before it. */
void sl__dl_put_close(uint8_t out[SL__DL_CLOSE], uint64_t salt, uint64_t next_id);

/* Does a record's frame begin at p (SL__DL_FRAME bytes)? */
bool sl__dl_get_frame(const uint8_t *p, struct sl__dl_frame *out);
/* Is the whole record (frame.length bytes) undamaged? */
bool sl__dl_whole(const uint8_t *p, const struct sl__dl_frame *frame);
/* The fields of an undamaged letter; strings and item point into p. false when the lengths contradict each other. */
bool sl__dl_get_letter(const uint8_t *p, const struct sl__dl_frame *frame, struct sl_dlq_letter *out);
static inline uint64_t sl__dl_ack_last(const uint8_t *p)
{
	return sl__get64(p + SL__DL_FRAME);
}

/* ---- reading one file ---- */

/* A window over a file. peek never reads past `limit`. */
struct sl__dl_reader {
	const struct sl_env *env;
	int fd;
	uint64_t limit; /* bytes of the file that may be read */
	uint8_t *buf;
	size_t cap, have;
	uint64_t at; /* offset of buf[0] */
};

/* n bytes at offset (offset + n <= limit), valid until the next peek. 0 or a negative errno; -ESTALE when the file is
 * shorter than limit: its writer cut it back meanwhile. */
int sl__dl_peek(struct sl__dl_reader *r, uint64_t offset, size_t n, const uint8_t **out);
/* Point the reader at another file; keeps the memory. */
void sl__dl_reader_set(struct sl__dl_reader *r, int fd, uint64_t limit);
void sl__dl_reader_fini(struct sl__dl_reader *r);

#define SL__DL_IS_ACKED 0x80000000u

struct sl__dl_file {
	uint64_t first_id;     /* and its name (I1) */
	uint64_t salt;         /* begins each of its records */
	uint64_t size;         /* where the next record goes */
	uint32_t *index;       /* by id - first_id: offset and SL__DL_IS_ACKED; 0: no such letter */
	size_t n_index;        /* last id + 1 - first_id */
	size_t cap_index;      /* allocated */
	uint64_t letters;      /* good ones */
	uint64_t unacked;      /* of these, not acknowledged */
	uint64_t damaged;      /* skipped */
	uint64_t damaged_tail; /* bytes after the last good letter that may have held more; for the next id (I4) */
	bool opaque;           /* not one good byte, or not ours: never written to */
	bool cut;              /* bytes after `size` to be cut off before the next write (I5) */
	bool close_due;        /* no close record follows its last letter (I6) */
};

/* Read a file of `size` bytes through r and fill *f, whose first_id is set. *tail is where good records end: size when
 * all is well, else everything from there on is of no use. Damage before it is counted and logged. 0; SL_ENOMEM;
 * SL_EUNSUPPORTED; SL_ESTALE (see peek); SL_EIO … On failure *f needs fini. */
int sl__dl_scan(struct sl__dl_file *f, struct sl__dl_reader *r, uint64_t size, uint64_t *tail, struct sl_err *err);
/* The letter with this index entry. SL_ECORRUPT when it is not good any more. */
int sl__dl_read_letter(const struct sl__dl_file *f, struct sl__dl_reader *r, uint32_t entry, struct sl_dlq_letter *out,
		       struct sl_err *err);
/* Make room for id; then adding it cannot fail. */
int sl__dl_index_reserve(struct sl__dl_file *f, const struct sl_env *env, uint64_t id);
void sl__dl_index_add(struct sl__dl_file *f, uint64_t id, uint64_t offset);
void sl__dl_index_ack(struct sl__dl_file *f, uint64_t first, uint64_t last);
void sl__dl_file_fini(struct sl__dl_file *f, const struct sl_env *env);

/* ---- the folder ---- */

struct sl_dlq {
	struct sl_env env;
	pid_t pid;
	char *dir;
	size_t dir_len;
	uint64_t max_bytes; /* UINT64_MAX: no bound */
	uint64_t file_bytes;
	enum sl_dlq_on_full on_full;
	sl_dlq_drop_fn *on_drop;
	void *on_drop_ctx;
	bool read_only;
	int lock_fd;
	sl__mutex mu;              /* protects all below */
	char *path;                /* scratch: dir, '/', a name */
	struct sl__dl_file *files; /* by first_id */
	size_t n_files, cap_files;
	int active_fd;    /* the newest file, open for writing; -1: not open */
	uint64_t next_id; /* from 1 */
	uint64_t bytes;   /* of the folder's .dlq files and the torn tails kept next to them */
	bool poisoned, redriving;
	sl_counter *puts, *drops; /* metrics; NULL: none */
	sl_gauge *waiting_gauge, *bytes_gauge;
	atomic_uint_fast64_t waiting_now, bytes_now; /* what the gauges show */
	uint8_t *buf;                                /* records on their way out */
	size_t buf_len, buf_cap;
};

/* "<dir>/<name>" in q->path. */
const char *sl__dl_path(sl_dlq *q, const char *name) SL_REQUIRES(q->mu);
const char *sl__dl_file_path(sl_dlq *q, uint64_t first_id, const char *suffix) SL_REQUIRES(q->mu);
/* Read the folder into q->files. A writer (not read_only) trims, syncs and tidies. On failure q->files is as before. */
int sl__dl_load(sl_dlq *q, struct sl_err *err) SL_REQUIRES(q->mu);
/* q->bytes from the disk. */
int sl__dl_recount(sl_dlq *q, struct sl_err *err) SL_REQUIRES(q->mu);
/* A new newest file for next_id, durable, and open as active_fd. */
int sl__dl_new_file(sl_dlq *q, struct sl_err *err) SL_REQUIRES(q->mu);
/* Remove files[i] from disk and memory. Not the newest (I3). The folder is for the caller to sync. */
int sl__dl_remove_file(sl_dlq *q, size_t i, struct sl_err *err) SL_REQUIRES(q->mu);
/* Remove the torn tails kept of files up to this one; 0: of all. */
int sl__dl_remove_torn(sl_dlq *q, uint64_t up_to, struct sl_err *err) SL_REQUIRES(q->mu);
int sl__dl_sync_folder(sl_dlq *q, struct sl_err *err) SL_REQUIRES(q->mu);
/* The last file with first_id <= id, or NULL. */
struct sl__dl_file *sl__dl_find(sl_dlq *q, uint64_t id) SL_REQUIRES(q->mu);
static inline bool sl__dl_is_newest(const sl_dlq *q, const struct sl__dl_file *f) SL_REQUIRES(q->mu)
{
	return f == &q->files[q->n_files - 1];
}
/* The index entry of an id, NULL when f (NULL allowed) does not reach that far. */
static inline uint32_t *sl__dl_entry(struct sl__dl_file *f, uint64_t id)
{
	return f != NULL && id - f->first_id < f->n_index ? &f->index[id - f->first_id] : NULL;
}
static inline bool sl__dl_is_waiting(uint32_t entry)
{
	return entry != 0 && (entry & SL__DL_IS_ACKED) == 0;
}
/* After a sync that failed, or a write that failed for another reason than space: nothing is written any more. */
int sl__dl_poison(sl_dlq *q, int rc) SL_REQUIRES(q->mu);

/* ---- writing ---- */

int sl__dl_reserve_buf(sl_dlq *q, size_t n, struct sl_err *err) SL_REQUIRES(q->mu);
/* n bytes of q->buf after f, durable when 0 returns. Leaves nothing behind otherwise, now or before the next write. */
int sl__dl_append(sl_dlq *q, struct sl__dl_file *f, size_t n, struct sl_err *err) SL_REQUIRES(q->mu);
/* Append a close record to the newest file, durably, unless it has one or nothing in it waits (I6). Like
 * acknowledgements, it is not refused for max_bytes. */
int sl__dl_end_newest(sl_dlq *q, struct sl_err *err) SL_REQUIRES(q->mu);
/* As sl_dlq_ack. Moves files. */
int sl__dl_ack(sl_dlq *q, uint64_t id, struct sl_err *err) SL_REQUIRES(q->mu);
/* Remove files whose letters are all dealt with. Damaged ones stay, to be inspected. */
int sl__dl_reap(sl_dlq *q, struct sl_err *err) SL_REQUIRES(q->mu);

/* ---- what every call begins and ends with ---- */

/* Take the lock to read, or to write: SL_EFORKED in a child, SL_EACCES and SL_EPOISONED when writing is not possible.
 * A reader has no lock on the folder, so it reads first what the writer has done since. On failure nothing is locked. */
enum sl__dl_purpose { SL__DL_READ, SL__DL_WRITE };
int sl__dl_enter(sl_dlq *q, enum sl__dl_purpose purpose, struct sl_err *err)
	SL_TSA(try_acquire_capability(false, q->mu));
/* Update the gauges, and unlock. */
void sl__dl_leave(sl_dlq *q) SL_RELEASE(q->mu);
/* When the oldest unacknowledged letter failed last; 0: none. */
int sl__dl_oldest(sl_dlq *q, int64_t *out, struct sl_err *err) SL_REQUIRES(q->mu);

#endif
