/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Archives as files: reading a .zst piece by piece, in whole, or against a segment, and making one. An archive is one
 * plain zstd frame with content size and checksum; reading takes any number of frames.
 *
 * Guarantee: a file that write made was read back and has the bytes of its source; it is synced, its name is not.
 * Memory is bounded by the window of the frame (at most 128 MiB, else SL_EUNSUPPORTED); load takes WAL_ZST_MEMORY_BYTES
 * more, and puts a longer content into a temporary file without a name.
 *
 * Thread safety: one thread per reader. Ownership: paths are borrowed for the reader's life.
 */
#ifndef SL_WAL_ARCHIVE_ZST_H
#define SL_WAL_ARCHIVE_ZST_H

#include "base/env.h"

#define WAL_ZST_MAX_BYTES ((uint64_t)8 * 1024 * 1024 * 1024) /* load refuses more: SL_ETOOBIG */
/* Twice what a segment usually has. A few KB can say that they are gigabytes. */
#define WAL_ZST_MEMORY_BYTES ((uint64_t)128 * 1024 * 1024)

struct wal_zst {
	const struct sl_env *env;
	const char *path;
	void *stream; /* ZSTD_DStream */
	uint8_t *in;  /* compressed bytes: in_len of them, in_pos used up */
	size_t in_cap, in_len, in_pos;
	uint64_t offset; /* in the file, of the next read */
	int fd;
	bool in_frame; /* a frame has begun and not ended */
	bool ended;    /* the file has no more bytes */
};

/* *z needs no close when this fails. SL_ECORRUPT: not zstd. */
SL_MUST_CHECK int sl__wal_zst_open(struct wal_zst *z, const struct sl_env *env, const char *path, struct sl_err *err);
void sl__wal_zst_close(struct wal_zst *z);
/* The next cap bytes of content; *got is less only at the end. SL_ECORRUPT: damaged or cut off, err says where. */
SL_MUST_CHECK int sl__wal_zst_read(struct wal_zst *z, void *out, size_t cap, size_t *got, struct sl_err *err);

/* A place where the archive itself is damaged. */
struct wal_zst_damage {
	uint64_t at;      /* in the file */
	uint64_t content; /* in the content: bytes are missing here, or those from here on are in doubt */
	uint64_t length;  /* how many, as the frame header states; 0: unknown */
	char reason[80];
};

struct wal_zst_content {
	uint8_t *data; /* NULL: it is in fd */
	int fd;        /* -1: it is in data */
	uint64_t size;
	struct wal_zst_damage *damage; /* in order of at */
	size_t n_damage;
};

/* All the content that can be decompressed, and where the archive is damaged (archive_salvage.c has the rules). 0 also
 * for a damaged or cut off archive; SL_ECORRUPT: no zstd frame is at its beginning. On success *out is for
 * sl__wal_zst_content_free. */
SL_MUST_CHECK int sl__wal_zst_load(const struct sl_env *env, const char *path, struct wal_zst_content *out,
				   struct sl_err *err);
void sl__wal_zst_content_free(struct wal_zst_content *c, const struct sl_env *env);

/* The segment that is archived: the first n bytes of fd. */
struct wal_zst_source {
	const struct sl_env *env;
	int fd;
	uint64_t n;
};

/* Compress the segment into a new file at path (mode 0600, locked while *out_fd is open), sync it, and verify it by
 * decompressing. On failure nothing is left at path; on success the caller closes *out_fd. */
SL_MUST_CHECK int sl__wal_zst_write(const struct wal_zst_source *from, const char *path, int level, int *out_fd,
				    struct sl_err *err);

enum wal_zst_match {
	WAL_ZST_HOLDS,   /* it begins with all bytes of the segment, and is sound to its end */
	WAL_ZST_DIFFERS, /* another content of the same incarnation */
	WAL_ZST_STRANGER /* another incarnation, or nothing that we can read as a sound archive */
};
/* Is the content of the archive at path that of the segment? SL_ENOENT: the name is free. */
SL_MUST_CHECK int sl__wal_zst_compare(const struct wal_zst_source *with, const char *path, enum wal_zst_match *out,
				      struct sl_err *err);

#endif
