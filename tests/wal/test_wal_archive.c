/* SPDX-License-Identifier: Apache-2.0 */
/* Archives: complete before the log goes, again after a crash, never half there, and removed by age. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include <zstd.h>

#include "box.h"
#include "support/fault.h"
#include "wal/format.h"

static void log_of(struct box *b, const char *letters, uint64_t sent)
{
	sl_wal *w = box_open(b);
	for (; *letters != '\0'; letters++) {
		char text[2] = {*letters, '\0'};
		(void)box_append(w, text);
	}
	if (sent != 0)
		assert_int_equal(sl_wal_mark_sent(w, 1, sent, &b->err), 0);
	box_close(b, w);
}

static int archive(struct box *b, int include_pending)
{
	return sl_wal_archive_path(BOX_PATH, "/a", include_pending, &b->opts, &b->err);
}

static void an_archive_is_a_plain_zstd_frame_of_the_log(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	log_of(&b, "abc", 3);
	size_t n, packed;
	uint8_t log[256], plain[256];
	memcpy(log, box_bytes(&b, BOX_PATH, &n), 16 + 99);
	assert_int_equal(archive(&b, 0), 0);
	assert_false(box_has(&b, BOX_PATH));
	const uint8_t *p = box_bytes(&b, "/a/s.wal.zst", &packed);
	assert_int_equal(ZSTD_decompress(plain, sizeof(plain), p, packed), n);
	assert_memory_equal(plain, log, 16 + 99);
	assert_scan(&b, "/a/s.wal.zst", "1=a* 2=b* 3=c*");
	assert_int_equal(box_count(&b, "/a", ""), 1);
	box_fini(&b);
}

static void pending_records_are_archived_only_for_one_who_means_it(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	log_of(&b, "abc", 2);
	assert_int_equal(archive(&b, 0), SL_EPENDING);
	assert_scan(&b, BOX_PATH, "1=a* 2=b* 3=c");
	assert_int_equal(box_count(&b, "/a", ".zst"), 0);
	assert_int_equal(archive(&b, 1), 0);
	assert_false(box_has(&b, BOX_PATH));
	assert_scan(&b, "/a/s.wal.zst", "1=a* 2=b* 3=c");
	box_fini(&b);
}

static void failed_records_do_not_hold_an_archive_back(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	sl_wal *w = box_open(&b);
	(void)box_append(w, "x");
	assert_int_equal(sl_wal_mark_failed(w, 1, 1, &b.err), 0);
	assert_int_equal(sl_wal_archive(w, NULL, false, &b.err), 0);
	assert_true(sl_wal_append(w, "y", 1, NULL, &b.err) < 0); /* only takes close now */
	box_close(&b, w);
	assert_scan(&b, "/a/s.wal.zst", "1=x!");
	box_fini(&b);
}

static void every_segment_gets_its_own_archive(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	b.opts.segment_bytes = 4096;
	sl_wal *w = box_open(&b);
	box_append_n(w, 30, 500);
	uint64_t segments = box_stats(w).segments;
	assert_int_equal(sl_wal_mark_sent(w, 1, 30, &b.err), 0);
	box_close(&b, w);
	assert_int_equal(archive(&b, 0), 0);
	assert_int_equal(box_count(&b, BOX_DIR, "s.wal"), 0);
	assert_int_equal(box_count(&b, "/a", ".zst"), segments);
	assert_true(box_has(&b, "/a/s.wal.1.zst"));
	box_fini(&b);
}

static void an_open_log_is_not_archived_by_another(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	sl_wal *w = box_open(&b);
	(void)box_append(w, "x");
	assert_int_equal(archive(&b, 1), SL_ELOCKED);
	box_close(&b, w);
	assert_int_equal(archive(&b, 1), 0);
	assert_int_equal(archive(&b, 1), SL_ENOENT);
	box_fini(&b);
}

static void a_taken_name_gets_the_incarnation_in_it(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	log_of(&b, "abc", 3);
	assert_int_equal(archive(&b, 0), 0);
	log_of(&b, "xyz", 3);
	assert_int_equal(archive(&b, 0), 0);
	assert_int_equal(box_count(&b, "/a", ".zst"), 2);
	assert_scan(&b, "/a/s.wal.zst", "1=a* 2=b* 3=c*"); /* never replaced by another log */
	log_of(&b, "123", 3);
	assert_int_equal(archive(&b, 0), 0);
	assert_int_equal(box_count(&b, "/a", ".zst"), 3);
	box_fini(&b);
}

/* <log>.wal.zst; with another log there, <log>.wal.<incarnation>.zst; with that taken too, or with another content of
 * the same incarnation there, -2, -3 … */
static void an_archive_takes_the_first_name_that_is_free(void **state)
{
	(void)state;
	struct box b;
	struct wal_header h;
	size_t n;
	uint8_t log[512];
	char names[5][64] = {"/a/s.wal.zst"};
	box_init(&b);
	crashfs_mkdir(b.fs, "/a");
	crashfs_put(b.fs, names[0], "not a frame", 11);
	log_of(&b, "abc", 3);
	memcpy(log, box_bytes(&b, BOX_PATH, &n), 16);
	assert_int_equal(sl__wal_header_decode(log, &h), WAL_HEADER_OK);
	(void)snprintf(names[1], sizeof(names[1]), "/a/s.wal.%06x.zst", h.incarnation);
	for (int i = 2; i < 5; i++)
		(void)snprintf(names[i], sizeof(names[i]), "/a/s.wal.%06x-%d.zst", h.incarnation, i);
	crashfs_put(b.fs, names[1], "nor this", 8);
	crashfs_put(b.fs, names[2], "nor this", 8);
	memcpy(log, box_bytes(&b, BOX_PATH, &n), 512 > n ? n : 512);
	assert_int_equal(archive(&b, 0), 0);
	assert_int_equal(box_count(&b, "/a", ""), 4);
	assert_scan(&b, names[3], "1=a* 2=b* 3=c*");
	/* The same log again, as a crash before its removal leaves it, and with one record more. */
	crashfs_put(b.fs, BOX_PATH, log, n);
	assert_int_equal(archive(&b, 0), 0);
	assert_int_equal(box_count(&b, "/a", ""), 4);
	crashfs_put(b.fs, BOX_PATH, log, n);
	log_of(&b, "d", 4);
	assert_int_equal(archive(&b, 0), 0);
	assert_int_equal(box_count(&b, "/a", ""), 5);
	assert_scan(&b, names[4], "1=a* 2=b* 3=c* 4=d*");
	assert_scan(&b, names[3], "1=a* 2=b* 3=c*");
	box_fini(&b);
	/* Without a stranger the plain name counts up. */
	box_init(&b);
	log_of(&b, "abc", 3);
	memcpy(log, box_bytes(&b, BOX_PATH, &n), 512 > n ? n : 512);
	assert_int_equal(archive(&b, 0), 0);
	crashfs_put(b.fs, BOX_PATH, log, n);
	log_of(&b, "d", 4);
	assert_int_equal(archive(&b, 0), 0);
	assert_int_equal(box_count(&b, "/a", ""), 2);
	assert_scan(&b, "/a/s.wal-2.zst", "1=a* 2=b* 3=c* 4=d*");
	box_fini(&b);
}

/* Of this log, and not locked: the next archive takes them away. */
static void what_a_crash_left_half_written_is_removed_unless_a_process_is_writing_it(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	log_of(&b, "abc", 3);
	crashfs_mkdir(b.fs, "/a");
	crashfs_put(b.fs, "/a/.s.wal.zst.tmp-0123456789abcdef", "half", 4);
	crashfs_put(b.fs, "/a/.s.wal.1.zst.tmp-0123456789abcdef", "half", 4);
	crashfs_put(b.fs, "/a/.s.wal.zst.tmp-aa", "busy", 4);
	crashfs_put(b.fs, "/a/.t.wal.zst.tmp-0123456789abcdef", "another's", 9);
	crashfs_put(b.fs, "/a/.ss.wal.zst.tmp-0123456789abcdef", "another's", 9);
	crashfs_put(b.fs, "/a/.s.wal.zst.tmp-x", "mine", 4);
	const struct sl_io *io = b.e.env.io;
	int busy = io->open("/a/.s.wal.zst.tmp-aa", O_RDWR, 0, b.e.env.io_ctx);
	assert_true(busy >= 0);
	assert_int_equal(io->lock(busy, b.e.env.io_ctx), 0);
	assert_int_equal(archive(&b, 0), 0);
	assert_int_equal(box_count(&b, "/a", ".tmp-"), 4);
	assert_true(box_has(&b, "/a/.s.wal.zst.tmp-aa"));
	assert_true(box_has(&b, "/a/.t.wal.zst.tmp-0123456789abcdef"));
	assert_true(box_has(&b, "/a/.ss.wal.zst.tmp-0123456789abcdef"));
	assert_true(box_has(&b, "/a/.s.wal.zst.tmp-x"));
	assert_int_equal(io->close(busy, b.e.env.io_ctx), 0);
	log_of(&b, "abc", 3);
	assert_int_equal(archive(&b, 0), 0);
	assert_false(box_has(&b, "/a/.s.wal.zst.tmp-aa"));
	box_fini(&b);
}

static void a_folder_that_cannot_be_made_is_named(void **state)
{
	(void)state;
	struct box b;
	struct fault f;
	box_init(&b);
	log_of(&b, "abc", 3);
	fault_init(&f, &b.e.env);
	struct sl_env env = fault_env(&f, &b.e.env);
	b.opts.env = &env;
	fault_arm_io(&f, 1, FAULT_FROM, EACCES, FAULT_OP(FAULT_MKDIR));
	assert_int_equal(archive(&b, 0), SL_ECREATE);
	assert_non_null(strstr(b.err.msg, "create /a"));
	assert_true(box_has(&b, BOX_PATH));
	fault_disarm(&f);
	assert_int_equal(archive(&b, 0), 0);
	assert_int_equal(fault_open_fds(&f), 0);
	assert_int_equal(fault_live_allocs(&f), 0);
	fault_fini(&f);
	box_fini(&b);
}

/* A crash between the archive and the removal of the log: both are there. */
static void archiving_the_same_log_twice_is_archiving_it_once(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	log_of(&b, "abc", 3);
	size_t n, packed;
	uint8_t log[512], first[512];
	const uint8_t *p = box_bytes(&b, BOX_PATH, &n);
	memcpy(log, p, n);
	assert_int_equal(archive(&b, 0), 0);
	p = box_bytes(&b, "/a/s.wal.zst", &packed);
	memcpy(first, p, packed);
	crashfs_put(b.fs, BOX_PATH, log, n);
	assert_int_equal(archive(&b, 0), 0);
	assert_false(box_has(&b, BOX_PATH));
	assert_int_equal(box_count(&b, "/a", ".zst"), 1);
	size_t again;
	assert_memory_equal(box_bytes(&b, "/a/s.wal.zst", &again), first, packed);
	box_fini(&b);
}

static void a_disk_that_fills_while_archiving_loses_and_publishes_nothing(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	sl_wal *w = box_open(&b);
	uint8_t payload[WALMODEL_MAX_PAYLOAD];
	for (uint64_t id = 1; id <= 20; id++)
		assert_int_equal(sl_wal_append(w, payload, walmodel_payload(id, payload), NULL, &b.err), 0);
	assert_int_equal(sl_wal_mark_sent(w, 1, 20, &b.err), 0);
	box_close(&b, w);
	size_t n;
	(void)box_bytes(&b, BOX_PATH, &n);
	for (size_t room = 0; room < n; room += 97) {
		crashfs_quota(b.fs, n + room);
		int rc = archive(&b, 0);
		if (rc == 0)
			break;
		assert_int_equal(rc, SL_ENOSPC);
		assert_true(box_has(&b, BOX_PATH));
		assert_int_equal(box_count(&b, "/a", ""), 0);
	}
	crashfs_quota(b.fs, SIZE_MAX);
	if (box_has(&b, BOX_PATH))
		assert_int_equal(archive(&b, 0), 0);
	struct sl_wal_stats st = {.struct_size = sizeof(st)};
	struct sl_wal_scan_opts scan = {SL_WAL_SCAN_OPTS_INIT, .env = &b.e.env};
	assert_int_equal(sl_wal_scan("/a/s.wal.zst", &scan, &st, &b.err), 0);
	assert_int_equal(st.records, 20);
	box_fini(&b);
}

static void a_damaged_archive_under_the_name_is_not_trusted(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	log_of(&b, "abc", 3);
	crashfs_mkdir(b.fs, "/a");
	crashfs_put(b.fs, "/a/s.wal.zst", "not a frame", 11);
	assert_int_equal(archive(&b, 0), 0);
	assert_false(box_has(&b, BOX_PATH));
	size_t n;
	assert_memory_equal(box_bytes(&b, "/a/s.wal.zst", &n), "not a frame", 11);
	assert_int_equal(box_count(&b, "/a", ".zst"), 2);
	box_fini(&b);
}

static void an_encrypted_archive_stays_sealed(void **state)
{
	(void)state;
	struct box b;
	uint8_t key[32] = {9};
	box_init(&b);
	crashfs_put(b.fs, "/key", key, sizeof(key));
	b.opts.key_file = "/key";
	log_of(&b, "abc", 3);
	assert_int_equal(archive(&b, 0), 0);
	assert_scan(&b, "/a/s.wal.zst", "1=a* 2=b* 3=c*");
	b.opts.key_file = NULL;
	assert_null(strstr(box_scan(&b, "/a/s.wal.zst"), "1=a"));
	box_fini(&b);
}

static void sealed_segments_are_archived_when_all_in_them_is_sent(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	b.opts.segment_bytes = 4096;
	b.opts.archive_on_complete = SL_ON;
	sl_wal *w = box_open(&b);
	box_append_n(w, 30, 500);
	uint64_t before = box_stats(w).segments;
	assert_int_equal(sl_wal_mark_sent(w, 1, 18, &b.err), 0);
	box_append_n(w, 1, 500);
	box_close(&b, w);
	size_t archived = box_count(&b, "/a", ".zst");
	assert_int_equal(archived, 2); /* of eight records each; the third holds pending ones */
	w = box_open(&b);
	assert_true(box_stats(w).segments < before);
	assert_int_equal(box_stats(w).pending, 13);
	assert_int_equal(box_append(w, "x"), 32);
	box_close(&b, w);
	box_fini(&b);
}

/* Exactly the last record of the segment is confirmed, and nothing after it; then all but that one. */
static void a_segment_is_archived_with_its_last_record_and_not_before(void **state)
{
	(void)state;
	for (uint64_t short_by = 0; short_by < 2; short_by++) {
		struct box b;
		box_init(&b);
		b.opts.segment_bytes = 4096;
		b.opts.archive_on_complete = SL_ON;
		sl_wal *w = box_open(&b);
		while (box_stats(w).segments < 2)
			box_append_n(w, 1, 500);
		uint64_t last = box_stats(w).last_sequence - 1; /* the active file has one record */
		assert_int_equal(sl_wal_mark_sent(w, 1, last - short_by, &b.err), 0);
		box_append_n(w, 1, 500);
		box_close(&b, w);
		assert_int_equal(box_count(&b, "/a", ".zst"), 1 - short_by);
		assert_int_equal(box_has(&b, "/w/s.wal.1"), short_by);
		box_fini(&b);
	}
}

/* ---- retention ---- */

struct due {
	size_t n, removed;
	char name[64];
	int64_t last_record_ms;
};

static int note_due(const struct sl_wal_cleanup_entry *entry, void *ctx)
{
	struct due *d = ctx;
	d->n++;
	d->removed += entry->removed;
	(void)snprintf(d->name, sizeof(d->name), "%s", entry->name);
	d->last_record_ms = entry->last_record_ms;
	return 0;
}

static void retention_goes_by_the_time_of_the_last_record(void **state)
{
	(void)state;
	static const int64_t day_ms = 86400000;
	struct box b;
	box_init(&b);
	sl_wal *w = NULL;
	struct sl_wal_stats st;
	for (int i = 0; i < 2; i++) {
		char id[8], path[32];
		(void)snprintf(id, sizeof(id), "log%d", i);
		(void)snprintf(path, sizeof(path), "/w/log%d.wal", i);
		assert_int_equal(sl_wal_open(&w, id, &b.opts, &b.err), 0);
		(void)box_append(w, "old");
		vclock_advance_ms(&b.e.clock, 5 * day_ms);
		(void)box_append(w, "new");
		st = box_stats(w);
		box_close(&b, w);
		assert_int_equal(sl_wal_archive_path(path, "/a", true, &b.opts, &b.err), 0);
	}
	(void)st;
	crashfs_put(b.fs, "/a/readme.txt", "mine", 4);
	/* log0's last record is 5 days old, log1's is of now. */
	vclock_advance_ms(&b.e.clock, day_ms / 2);
	struct due d = {0};
	assert_int_equal(sl_wal_cleanup("/a", 6, false, note_due, &d, &b.e.env, &b.err), 0);
	assert_int_equal(d.n, 0);
	assert_int_equal(sl_wal_cleanup("/a", 5, true, note_due, &d, &b.e.env, &b.err), 0);
	assert_int_equal(d.n, 1);
	assert_int_equal(d.removed, 0);
	assert_string_equal(d.name, "log0.wal.zst");
	assert_true(box_has(&b, "/a/log0.wal.zst"));
	assert_int_equal(sl_wal_cleanup("/a", 5, false, note_due, &d, &b.e.env, &b.err), 0);
	assert_int_equal(d.removed, 1);
	assert_false(box_has(&b, "/a/log0.wal.zst"));
	assert_true(box_has(&b, "/a/log1.wal.zst"));
	assert_int_equal(sl_wal_cleanup("/a", 0, false, NULL, NULL, &b.e.env, &b.err), 0);
	assert_false(box_has(&b, "/a/log1.wal.zst"));
	assert_true(box_has(&b, "/a/readme.txt"));
	assert_int_equal(sl_wal_cleanup("/missing", 1, false, NULL, NULL, &b.e.env, &b.err), 0);
	assert_int_equal(sl_wal_cleanup("/a", -1, false, NULL, NULL, &b.e.env, &b.err), SL_EINVAL);
	box_fini(&b);
}

/* Names that a recovery gives, and some that only look so. Files of crashfs.h are all of one time. */
static void what_was_put_aside_and_damaged_archives_go_by_the_time_of_their_files(void **state)
{
	(void)state;
	static const char *const due[] = {"s.wal.torn-148",     "s.wal.torn-148.2", "s.wal.damaged-0",
					  "s.wal.17.damaged-9", "s.wal.old-0a1b2c", "s.wal.5.old-0a1b2c.3",
					  "other.wal.zst" /* no zstd in it */};
	static const char *const kept[] = {"s.wal",
					   "s.wal.17",
					   "keep-me-old.wal.zst.bak",
					   "s.wal.torn-",
					   "s.wal.torn-1.bak",
					   "s.wal.torn-1x",
					   "s.wal.damaged-0a",
					   "notes.torn-1",
					   ".wal.torn-1",
					   "s.wal.old-xyz",
					   "s.wal.tmp-0a1b2c",
					   "s.wal.torn-1.",
					   "s.waldamaged-1",
					   "s.wal.x.damaged-1",
					   "readme.txt"};
	struct box b;
	struct sl_io_stat st;
	char path[64];
	box_init(&b);
	crashfs_mkdir(b.fs, "/q");
	for (size_t i = 0; i < sizeof(due) / sizeof(due[0]); i++) {
		(void)snprintf(path, sizeof(path), "/q/%s", due[i]);
		crashfs_put(b.fs, path, "hi\n", 3);
	}
	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
		(void)snprintf(path, sizeof(path), "/q/%s", kept[i]);
		crashfs_put(b.fs, path, "hi\n", 3);
	}
	assert_int_equal(b.e.env.io->stat("/q/s.wal", &st, b.e.env.io_ctx), 0);
	int64_t now = b.e.env.clock->real_ms(b.e.env.clock_ctx);
	vclock_advance_ms(&b.e.clock, st.mtime_ms + (int64_t)3 * 86400000 - now); /* three days after they were made */
	struct due d = {0};
	assert_int_equal(sl_wal_cleanup("/q", 3, false, note_due, &d, &b.e.env, &b.err), 0);
	assert_int_equal(d.n, 0);
	vclock_advance_ms(&b.e.clock, 1);
	assert_int_equal(sl_wal_cleanup("/q", 3, true, note_due, &d, &b.e.env, &b.err), 0);
	assert_int_equal(d.n, sizeof(due) / sizeof(due[0]));
	assert_int_equal(d.removed, 0);
	uint64_t warned = b.e.warnings;
	assert_int_equal(sl_wal_cleanup("/q", 3, false, note_due, &d, &b.e.env, &b.err), 0);
	assert_int_equal(b.e.warnings - warned, sizeof(due) / sizeof(due[0])); /* a line for each */
	assert_int_equal(box_count(&b, "/q", ""), sizeof(kept) / sizeof(kept[0]));
	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
		(void)snprintf(path, sizeof(path), "/q/%s", kept[i]);
		assert_true(box_has(&b, path));
	}
	box_fini(&b);
}

static void put_archive(struct box *b, const char *path, const void *content, size_t n)
{
	uint8_t packed[1024];
	size_t size = ZSTD_compress(packed, sizeof(packed), content, n, 1);
	assert_false(ZSTD_isError(size));
	crashfs_put(b->fs, path, packed, size);
}

/* Without a record there is only the file's time; a header with one wrong bit is as good as a sound one. */
static void an_archive_without_a_record_is_as_old_as_its_file(void **state)
{
	(void)state;
	struct box b;
	struct due d = {0};
	struct sl_io_stat st;
	uint8_t log[256];
	box_init(&b);
	crashfs_mkdir(b.fs, "/a");
	sl__wal_header_encode(log, (struct wal_header){.version = 1, .incarnation = 0xabcdef});
	put_archive(&b, "/a/empty.wal.zst", log, WAL_HEADER_BYTES);
	size_t n = WAL_HEADER_BYTES + box_record(log + WAL_HEADER_BYTES, 1, SL_WAL_PENDING, 1000, "x", 1);
	log[9] ^= 4;
	assert_int_equal(sl__wal_header_decode(log, &(struct wal_header){0}), WAL_HEADER_REPAIRABLE);
	put_archive(&b, "/a/flipped.wal.zst", log, n);
	assert_int_equal(b.e.env.io->stat("/a/empty.wal.zst", &st, b.e.env.io_ctx), 0);
	vclock_advance_ms(&b.e.clock, st.mtime_ms + 86400000 - b.e.env.clock->real_ms(b.e.env.clock_ctx));
	assert_int_equal(sl_wal_cleanup("/a", 1, false, note_due, &d, &b.e.env, &b.err), 0);
	assert_int_equal(d.removed, 1);
	assert_string_equal(d.name, "flipped.wal.zst");
	assert_int_equal(d.last_record_ms, 1000);
	vclock_advance_ms(&b.e.clock, 1);
	assert_int_equal(sl_wal_cleanup("/a", 1, false, note_due, &d, &b.e.env, &b.err), 0);
	assert_int_equal(d.removed, 2);
	assert_int_equal(d.last_record_ms, st.mtime_ms);
	box_fini(&b);
}

/* One that cannot be read or removed does not keep the others, and is reported. */
static void an_archive_that_cannot_be_removed_keeps_no_other(void **state)
{
	(void)state;
	static const struct {
		unsigned op;
		const char *says;
	} faults[] = {{FAULT_OP(FAULT_UNLINK), "remove /a/"},
		      {FAULT_OP(FAULT_PREAD), "read"},
		      {FAULT_OP(FAULT_STAT), "stat"},
		      {FAULT_OP(FAULT_OPEN), "open"}};
	for (size_t i = 0; i < SL_COUNT(faults); i++) {
		struct box b;
		struct fault f;
		struct due d = {0};
		box_init(&b);
		for (int n = 0; n < 3; n++) {
			log_of(&b, "abc", 3);
			assert_int_equal(archive(&b, 0), 0);
		}
		vclock_advance_ms(&b.e.clock, 86400000);
		fault_init(&f, &b.e.env);
		struct sl_env env = fault_env(&f, &b.e.env);
		b.err = (struct sl_err)SL_ERR_INIT;
		fault_arm_io(&f, 1, FAULT_ONCE, EIO, faults[i].op);
		assert_int_equal(sl_wal_cleanup("/a", 0, false, note_due, &d, &env, &b.err), SL_EIO);
		assert_int_equal(fault_io_failed(&f), 1);
		assert_non_null(strstr(b.err.msg, faults[i].says));
		fault_disarm(&f);
		assert_int_equal(d.removed, 2);
		assert_int_equal(box_count(&b, "/a", ".zst"), 1);
		assert_int_equal(sl_wal_cleanup("/a", 0, false, note_due, &d, &env, &b.err), 0);
		assert_int_equal(d.removed, 3);
		assert_int_equal(fault_open_fds(&f), 0);
		assert_int_equal(fault_live_allocs(&f), 0);
		fault_fini(&f);
		box_fini(&b);
	}
}

static void a_clean_up_of_quarantined_files_leaves_archives_and_other_logs_alone(void **state)
{
	(void)state;
	static const char *const names[] = {"s.wal.torn-148", "s.wal.3.damaged-16", "s2.wal.torn-148", "s.wal.zst",
					    "s.wal.3.zst"};
	struct box b;
	char path[64];
	box_init(&b);
	crashfs_mkdir(b.fs, "/q");
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		(void)snprintf(path, sizeof(path), "/q/%s", names[i]);
		crashfs_put(b.fs, path, "hi\n", 3);
	}
	struct sl_io_stat st;
	assert_int_equal(b.e.env.io->stat("/q/s.wal.zst", &st, b.e.env.io_ctx), 0);
	int64_t now = b.e.env.clock->real_ms(b.e.env.clock_ctx);
	vclock_advance_ms(&b.e.clock, st.mtime_ms + (int64_t)3 * 86400000 + 1 - now);
	assert_int_equal(sl_wal_cleanup_quarantine("/q", "s", 4, &b.e.env, &b.err), 0);
	assert_int_equal(box_count(&b, "/q", ""), 5);
	assert_int_equal(sl_wal_cleanup_quarantine("/q", "s", 3, &b.e.env, &b.err), 0);
	assert_int_equal(box_count(&b, "/q", ""), 3);
	assert_true(box_has(&b, "/q/s2.wal.torn-148"));
	assert_int_equal(sl_wal_cleanup_quarantine("/q", NULL, 3, &b.e.env, &b.err), 0);
	assert_int_equal(box_count(&b, "/q", ""), 2);
	assert_true(box_has(&b, "/q/s.wal.zst"));
	assert_int_equal(sl_wal_cleanup_quarantine("/missing", NULL, 3, &b.e.env, &b.err), 0);
	box_fini(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_archive_is_a_plain_zstd_frame_of_the_log),
		cmocka_unit_test(pending_records_are_archived_only_for_one_who_means_it),
		cmocka_unit_test(failed_records_do_not_hold_an_archive_back),
		cmocka_unit_test(every_segment_gets_its_own_archive),
		cmocka_unit_test(an_open_log_is_not_archived_by_another),
		cmocka_unit_test(a_taken_name_gets_the_incarnation_in_it),
		cmocka_unit_test(an_archive_takes_the_first_name_that_is_free),
		cmocka_unit_test(what_a_crash_left_half_written_is_removed_unless_a_process_is_writing_it),
		cmocka_unit_test(a_folder_that_cannot_be_made_is_named),
		cmocka_unit_test(archiving_the_same_log_twice_is_archiving_it_once),
		cmocka_unit_test(a_disk_that_fills_while_archiving_loses_and_publishes_nothing),
		cmocka_unit_test(a_damaged_archive_under_the_name_is_not_trusted),
		cmocka_unit_test(an_encrypted_archive_stays_sealed),
		cmocka_unit_test(sealed_segments_are_archived_when_all_in_them_is_sent),
		cmocka_unit_test(a_segment_is_archived_with_its_last_record_and_not_before),
		cmocka_unit_test(retention_goes_by_the_time_of_the_last_record),
		cmocka_unit_test(what_was_put_aside_and_damaged_archives_go_by_the_time_of_their_files),
		cmocka_unit_test(an_archive_without_a_record_is_as_old_as_its_file),
		cmocka_unit_test(an_archive_that_cannot_be_removed_keeps_no_other),
		cmocka_unit_test(a_clean_up_of_quarantined_files_leaves_archives_and_other_logs_alone),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
