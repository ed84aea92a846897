/* SPDX-License-Identifier: Apache-2.0 */
/* A folder in memory (crashfs.h) for unit tests of the log: open, append, and say in one line what must be there. */
#ifndef TESTS_WAL_BOX_H
#define TESTS_WAL_BOX_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/walmodel.h"

#define BOX_DIR "/w"
#define BOX_PATH "/w/s.wal"

struct box {
	struct crashfs *fs;
	struct walmodel_env e;
	struct sl_wal_opts opts;
	struct sl_err err;
};

/* Virtual clock that moves by itself, no background thread, no zeros ahead. */
void box_init(struct box *b);
void box_fini(struct box *b); /* asserts that nothing is left open */
sl_wal *box_open(struct box *b);
void box_close(struct box *b, sl_wal *w);
int box_try_open(struct box *b, sl_wal **out);
uint64_t box_append(sl_wal *w, const char *text);
/* n records of len bytes. */
void box_append_n(sl_wal *w, size_t n, size_t len);
/*
 * What sl_wal_scan says of path, as text: "1=one 2=two* 3=three!" (pending, sent, failed), and at their places
 * "<damage 48+35 miss 2-2>", "<torn 83+7>", "<hole 2-2>". Payloads longer than 16 bytes are cut with "~".
 */
const char *box_scan(struct box *b, const char *path);
#define assert_scan(b, path, text) assert_string_equal(box_scan(b, path), text)
/* The live bytes of a file; fails the test when it is missing. */
const uint8_t *box_bytes(struct box *b, const char *path, size_t *n);
bool box_has(struct box *b, const char *path);
/* Names in a folder that contain part. */
size_t box_count(struct box *b, const char *dir, const char *part);
/* Change bytes of a file in place. */
void box_poke(struct box *b, const char *path, size_t offset, const void *bytes, size_t n);
void box_flip(struct box *b, const char *path, size_t bit);
void box_cut(struct box *b, const char *path, size_t size);
struct sl_wal_stats box_stats(sl_wal *w);
/* The bytes of a data record as any program would write it, with a CRC that is computed bit by bit; returns its size.
 */
size_t box_record(uint8_t *out, uint64_t sequence, uint8_t status, int64_t timestamp_ms, const void *payload, size_t n);
uint64_t box_crc64(const void *data, size_t n);

#endif
