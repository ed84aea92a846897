/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logs as files: read, recover, archive and clean up what lies in a folder, and send what processes that died have left.
 * <sluice/wal.h> is for a log that is open.
 *
 * Guarantees
 *  - Reading locks nothing and changes nothing; of a log that is being written it sees a prefix.
 *  - Damage is reported with its position; good records after it are read.
 *  - A log is removed only after its archive was verified and synced. Each function may be repeated after a crash.
 *
 * Thread safety: functions may be called from any thread; those that change a log take its lock (SL_ELOCKED). Callbacks
 * run on the caller's thread. Ownership: strings in options are used only during the call; what a callback gets lives
 * until it returns.
 */
#ifndef SLUICE_WAL_FILES_H
#define SLUICE_WAL_FILES_H

#include <sluice/wal.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- logs on disk, without a handle: nothing is changed ---- */

struct sl_wal_damage {
	const char *segment; /* file name, without its folder */
	uint64_t offset, length;
	bool torn_tail; /* true: nothing valid follows; not damage in the sense of verify */
	const char *reason;
	uint64_t expected_crc, actual_crc;    /* both 0 when the record was not readable that far */
	uint64_t first_missing, last_missing; /* sequences that are gone with it; 0: none known */
	bool declared;                        /* true: a hole that was declared by an earlier recovery (length 0) */
	/* true: the .zst itself is damaged or cut off at archive_offset; offset is then a place in what was
	 * decompressed, and length the bytes that are missing or in doubt there, 0 when that is not known. */
	bool of_archive;
	uint64_t archive_offset;
};
typedef int sl_wal_damage_fn(const struct sl_wal_damage *damage, void *ctx);

struct sl_wal_scan_opts {
	size_t struct_size;
	const struct sl_env *env;
	const char *key_file;        /* NULL: payloads of an encrypted log stay sealed, as stored */
	sl_wal_record_fn *on_record; /* data records with their effective status, in order; may be NULL */
	sl_wal_damage_fn *on_damage; /* may be NULL; called in order of place, between records */
	void *ctx;
	/* May be NULL; called now and then with bytes read and bytes in all. Return non-zero to stop. */
	int (*on_progress)(uint64_t done, uint64_t total, void *ctx);
};
#define SL_WAL_SCAN_OPTS_INIT .struct_size = sizeof(struct sl_wal_scan_opts)

/*
 * Read the log that path names: an active file (its sealed segments are read first), one sealed segment, any single
 * file in the format, or a .zst archive. Never locks, never writes; of a log that is being written it sees a prefix. 0
 * also for a damaged log, and for a damaged archive with all that can be decompressed: *out (may be NULL) counts the
 * damage. SL_ENOENT, SL_ECORRUPT (not a log at all), SL_EIO …
 */
SL_API SL_MUST_CHECK int sl_wal_scan(const char *path, const struct sl_wal_scan_opts *opts, struct sl_wal_stats *out,
				     struct sl_err *err);

struct sl_wal_recover_opts {
	size_t struct_size;
	const struct sl_wal_opts *wal; /* as in open, wal_dir ignored; NULL allowed */
	bool new_incarnation; /* true: restart the stream under a new incarnation; pending records are sent again */
	sl_wal_damage_fn *on_damage; /* may be NULL */
	void *ctx;
};
#define SL_WAL_RECOVER_OPTS_INIT .struct_size = sizeof(struct sl_wal_recover_opts)

/* Recover <dir>/<id>.wal in place as open does and close it again. *out (may be NULL) says what is there afterwards and
 * what damage was found. Twice is the same as once. */
SL_API SL_MUST_CHECK int sl_wal_recover(const char *path, const struct sl_wal_recover_opts *opts,
					struct sl_wal_stats *out, struct sl_err *err);

/* ---- dead letters of a log ---- */

struct sl_dlq_letter; /* <sluice/dead_letter.h> */

/*
 * The item of a letter as it was appended. A record of an encrypted log is sealed in its letter, too (encoding
 * SL_DLQ_SEALED), and is opened with the key of that log; a plain item is copied, and key_file (may be NULL) is not
 * read. out belongs to the caller, has room for letter->item_len bytes, which is always enough, and does not overlap
 * the item; *len says how many were written. SL_EKEY: no key, a wrong one, or a letter that was tampered with;
 * SL_EDATA: not a sealed record. Nothing is changed in the letter; after a failure out may be, *len is not. env may be
 * NULL.
 */
SL_API SL_MUST_CHECK int sl_wal_open_letter(const struct sl_dlq_letter *letter, const char *key_file,
					    const struct sl_env *env, void *out, size_t *len, struct sl_err *err);

/* ---- archives ---- */

/* Archive a log that no handle has open: each segment becomes DIR/<segment>.zst, verified and synced, before the log is
 * removed, the active one last. SL_EPENDING when records are pending, without include_pending. Running it again after a
 * crash finishes it. opts as in open (wal_dir ignored), NULL allowed. */
SL_API SL_MUST_CHECK int sl_wal_archive_path(const char *path, const char *dir, bool include_pending,
					     const struct sl_wal_opts *opts, struct sl_err *err);
struct sl_wal_cleanup_entry {
	const char *name;
	uint64_t bytes;
	int64_t last_record_ms; /* what its age goes by; the file's own time when no record can be read from it */
	bool removed;           /* false in a dry run */
};
typedef int sl_wal_cleanup_fn(const struct sl_wal_cleanup_entry *entry, void *ctx);
/* The specification's CleanupArchive. Remove archives in dir whose last record is older than retention_days (>= 0).
 * Damaged archives, and files that a recovery quarantined (.torn-, .damaged-, .old-), are removed and logged when the
 * file itself is older. Other files are left alone. fn (may be NULL) is called for each file that is due. A missing dir
 * counts as empty. */
SL_API SL_MUST_CHECK int sl_wal_cleanup(const char *dir, int32_t retention_days, bool dry_run, sl_wal_cleanup_fn *fn,
					void *ctx, const struct sl_env *env, struct sl_err *err);
/* The same for quarantined files only; archives stay. id: only those of this log; NULL: of every log in dir. */
SL_API SL_MUST_CHECK int sl_wal_cleanup_quarantine(const char *dir, const char *id, int32_t retention_days,
						   const struct sl_env *env, struct sl_err *err);

/* ---- orphans ---- */

struct sl_wal_sweep_result {
	size_t struct_size;
	uint64_t found, busy, sent, archived, failed; /* logs */
};
/* For every log in opts->wal_dir that no live process holds: recover it, send what is pending (at most deadline_ms for
 * all), archive it when complete and archive_on_complete is on. One that fails is logged and skipped. */
SL_API SL_MUST_CHECK int sl_wal_sweep(const struct sl_wal_opts *opts, const struct sl_wal_sender *sender, void *ctx,
				      int64_t deadline_ms, struct sl_wal_sweep_result *out, struct sl_err *err);

/*
 * For files that belong to an encrypted log and are not records of it, such as the spools of commands: give each its
 * own key, and keep that sealed with the key of the log, bound to the log's id. SL_ENOENT: the log has no key;
 * SL_EKEY: `sealed` was made with another key or for another log, or was changed.
 */
#define SL_WAL_KEY_BYTES 32
#define SL_WAL_SEALED_KEY_BYTES 72
SL_API SL_MUST_CHECK int sl_wal_seal_key(const sl_wal *w, const uint8_t key[SL_WAL_KEY_BYTES],
					 uint8_t sealed[SL_WAL_SEALED_KEY_BYTES], struct sl_err *err);
SL_API SL_MUST_CHECK int sl_wal_open_key(const sl_wal *w, const uint8_t sealed[SL_WAL_SEALED_KEY_BYTES],
					 uint8_t key[SL_WAL_KEY_BYTES], struct sl_err *err);

#ifdef __cplusplus
}
#endif
#endif
