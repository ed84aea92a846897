/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a dead-letter file: opening, listing and putting must never crash, and the dead letter that was put must
 * be there after the next open, alone under its id.
 *
 * The first byte of the input says how the rest becomes a file: bit 0 lays a right header over it, bit 1 makes frames
 * and checksums right wherever the lengths lead, so that the code after their check is reached; bit 2 adds a second
 * file with the same bytes; bit 3 opens it for reading first.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc64nvme.h"
#include "flow/dead_letter.h"
#include "must.h"
#include "support/crashfs.h"

#define DIR "/dead"
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Lengths that add up, for three letters of four. */
static void fix_lengths(uint8_t *r, size_t length)
{
	size_t room = length - SL__DL_LETTER_MIN, at = SL__DL_LETTER_FIXED;
	if ((r[13] & 3) == 0)
		return;
	for (size_t i = 66; i < 72; i += 2) {
		size_t n = room == 0 ? 0 : r[i] % (room + 1);
		r[i] = (uint8_t)n;
		r[i + 1] = 0;
		room -= n;
		at += n;
		r[at++] = '\0';
	}
	r[64] %= 5;
	r[65] = 0;
	sl__put32(r + 72, (uint32_t)room);
	sl__put32(r + 76, 0);
}

static void fix_records(uint8_t *p, size_t n, uint64_t salt)
{
	size_t at = SL__DL_HEADER;
	while (n > at && n - at >= SL__DL_ACK) {
		uint8_t *r = p + at;
		size_t length = SL__DL_ACK;
		bool ack = (r[12] & 1) != 0;
		if (!ack) {
			length = SL__DL_LETTER_MIN + sl__get32(r + 8) % 512;
			if (length > n - at)
				length = n - at;
		}
		if (length < SL__DL_LETTER_MIN && !ack)
			return;
		if (!ack)
			fix_lengths(r, length);
		sl__put64(r, salt);
		sl__put32(r + 8, (uint32_t)length);
		sl__put32(r + 12, ack ? SL__DL_ACKED : SL__DL_LETTER);
		memset(r + 18, 0, 6); /* ids within reach */
		r[17] &= 1;
		sl__put32(r + 24, (uint32_t)sl__crc64nvme(0, r, 24));
		sl__put32(r + 28, 0);
		sl__put64(r + length - 8, sl__crc64nvme(0, r, length - 8));
		at += length;
	}
}

struct look {
	uint64_t last_id, found, sum, waiting;
	const char *item; /* counted in found when it is there under id */
	uint64_t id;
};

static int look(const struct sl_dlq_letter *letter, void *ctx)
{
	struct look *l = ctx;
	MUST(letter->id > l->last_id);
	l->last_id = letter->id;
	l->sum += strlen(letter->source) + strlen(letter->error) + strlen(letter->target);
	for (size_t i = 0; i < letter->item_len; i++)
		l->sum += ((const uint8_t *)letter->item)[i];
	l->waiting += !letter->acknowledged;
	if (l->item != NULL && letter->id == l->id) {
		MUST(letter->item_len == strlen(l->item) && memcmp(letter->item, l->item, letter->item_len) == 0);
		l->found++;
	}
	return 0;
}

static struct look list(sl_dlq *q, uint64_t id, const char *item)
{
	struct look l = {.id = id, .item = item};
	MUST(sl_dlq_list(q, true, look, &l, NULL) == 0);
	struct sl_dlq_stats stats = {.struct_size = sizeof(stats)};
	MUST(sl_dlq_get_stats(q, &stats, NULL) == 0);
	MUST(stats.unacknowledged == l.waiting);
	return l;
}

static void use(const struct sl_dlq_opts *opts)
{
	static const char item[] = "put by the fuzzer";
	struct sl_dlq_letter letter = {SL_DLQ_LETTER_INIT, .source = "fuzz", .item = item, .item_len = strlen(item)};
	sl_dlq *q = NULL;
	uint64_t id = 0;
	int rc = sl_dlq_open(&q, DIR, opts, NULL);
	MUST(rc == 0 || rc == SL_EUNSUPPORTED);
	if (rc != 0)
		return;
	struct look before = list(q, 0, NULL);
	MUST(sl_dlq_put(q, &letter, &id, NULL) == 0);
	MUST(id > before.last_id);
	sl_dlq_close(q);

	MUST(sl_dlq_open(&q, DIR, opts, NULL) == 0);
	struct look after = list(q, id, item);
	MUST(after.found == 1 && after.waiting == before.waiting + 1);
	MUST(sl_dlq_ack(q, id, NULL) == 0);
	sl_dlq_close(q);

	MUST(sl_dlq_open(&q, DIR, opts, NULL) == 0);
	MUST(list(q, 0, NULL).waiting == before.waiting);
	MUST(sl_dlq_purge(q, 0, NULL, NULL) == 0);
	MUST(list(q, 0, NULL).waiting == 0);
	uint64_t next = 0;
	MUST(sl_dlq_put(q, &letter, &next, NULL) == 0 && next > id);
	sl_dlq_close(q);
}

static void put_file(struct crashfs *fs, const uint8_t *data, size_t n, uint64_t first_id, int flags)
{
	char path[64];
	uint8_t *copy = calloc(1, n + SL__DL_HEADER);
	uint64_t salt = 0x5EED5EED5EED5EED;
	MUST(copy != NULL);
	memcpy(copy, data, n);
	if ((flags & 1) != 0) {
		sl__dl_put_header(copy, first_id, salt);
		n = n > SL__DL_HEADER ? n : SL__DL_HEADER;
	}
	if ((flags & 2) != 0)
		fix_records(copy, n, salt);
	(void)snprintf(path, sizeof(path), DIR "/%08llu.dlq", (unsigned long long)first_id);
	crashfs_put(fs, path, copy, n);
	free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	struct crashfs *fs = crashfs_new();
	struct sl_env env = {SL_ENV_INIT, .io = &crashfs_io, .io_ctx = fs};
	struct sl_dlq_opts opts = {SL_DLQ_OPTS_INIT, .env = &env, .max_bytes = SL_UNLIMITED, .file_bytes = 4096};
	crashfs_record(fs, false);
	crashfs_mkdir(fs, DIR);
	put_file(fs, data + 1, size - 1, 1, data[0]);
	if ((data[0] & 4) != 0)
		put_file(fs, data + 1, size - 1, 300, data[0]);
	if ((data[0] & 8) != 0) {
		sl_dlq *q = NULL;
		opts.read_only = SL_ON;
		if (sl_dlq_open(&q, DIR, &opts, NULL) == 0) {
			(void)list(q, 0, NULL);
			sl_dlq_close(q);
		}
		opts.read_only = SL_OFF;
	}
	use(&opts);
	crashfs_free(fs);
	return 0;
}
