/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every single bit of sample logs is flipped. A flip in a record or in the header is noticed by scan and by open; no
 * wrong payload and no wrong status is accepted; the records that the flip did not hit stay; a second recovery finds
 * nothing more to do, and the log takes records.
 */
#include <stdio.h>

#include "box.h"

#define MAX_RECORDS 16

struct sample {
	const char *name;
	struct box b;
	char path[32];  /* of the file that is flipped */
	uint8_t *bytes; /* of it */
	size_t n;
};

struct seen {
	size_t n;
	struct {
		uint64_t sequence, offset, end;
		char payload[24];
		bool here; /* in the file that is flipped */
	} at[MAX_RECORDS];
	const char *segment;
	bool wrong;
	const struct seen *truth;
};

static int note_truth(const struct sl_wal_record *r, void *ctx)
{
	struct seen *s = ctx;
	assert_true(s->n < MAX_RECORDS && r->payload_len < 24);
	s->at[s->n].sequence = r->sequence;
	s->at[s->n].offset = r->offset;
	s->at[s->n].end = r->offset + 4 + r->length;
	s->at[s->n].here = strcmp(r->segment, s->segment) == 0;
	memcpy(s->at[s->n].payload, r->payload, r->payload_len);
	s->n++;
	return 0;
}

/* A record after the flip must be one of the truth, unchanged. */
static int compare(const struct sl_wal_record *r, void *ctx)
{
	struct seen *s = ctx;
	const struct seen *t = s->truth;
	bool known = false;
	for (size_t i = 0; i < t->n; i++)
		known = known || (t->at[i].sequence == r->sequence && strlen(t->at[i].payload) == r->payload_len &&
				  memcmp(t->at[i].payload, r->payload, r->payload_len) == 0);
	s->wrong = s->wrong || !known;
	if (s->n < MAX_RECORDS)
		s->at[s->n++].sequence = r->sequence;
	return 0;
}

static bool has(const struct seen *s, uint64_t sequence)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->at[i].sequence == sequence)
			return true;
	return false;
}

static void scan_into(struct sample *x, struct seen *s, sl_wal_record_fn *fn, struct sl_wal_stats *st)
{
	struct sl_wal_scan_opts opts = {SL_WAL_SCAN_OPTS_INIT, .env = &x->b.e.env, .key_file = x->b.opts.key_file,
					.on_record = fn, .ctx = s};
	*st = (struct sl_wal_stats){.struct_size = sizeof(*st)};
	int rc = sl_wal_scan(BOX_PATH, &opts, st, &x->b.err);
	if (rc != 0)
		fail_msg("%s: scan: %s", x->name, x->b.err.msg);
}

/* Put the log back as it was: only the files of the sample, with one bit flipped. */
static int drop_name(const char *name, void *ctx)
{
	struct sample *x = ctx;
	char path[300];
	(void)snprintf(path, sizeof(path), "%s/%s", BOX_DIR, name);
	if (strstr(name, ".damaged") != NULL || strstr(name, ".torn") != NULL)
		(void)crashfs_io.unlink(path, x->b.fs);
	return 0;
}

/* Every record that the flip did not hit is there, and nothing that was not. */
static void check_records(struct sample *x, size_t bit, const struct seen *truth, const char *when,
			  struct sl_wal_stats *st)
{
	struct seen s = {.truth = truth};
	scan_into(x, &s, compare, st);
	if (s.wrong)
		fail_msg("%s, bit %zu: a wrong record is accepted %s", x->name, bit, when);
	for (size_t i = 0; i < truth->n; i++) {
		bool hit = truth->at[i].here && bit / 8 >= truth->at[i].offset && bit / 8 < truth->at[i].end;
		if (!hit && !has(&s, truth->at[i].sequence))
			fail_msg("%s, bit %zu: record %llu, which was not hit, is gone %s", x->name, bit,
				 (unsigned long long)truth->at[i].sequence, when);
	}
}

static void check_open(struct sample *x, size_t bit, const struct seen *truth)
{
	struct sl_wal_stats st;
	sl_wal *w;
	if (box_try_open(&x->b, &w) != 0)
		fail_msg("%s, bit %zu: open: %s", x->name, bit, x->b.err.msg);
	if (box_stats(w).damaged_ranges + box_stats(w).torn_bytes == 0)
		fail_msg("%s, bit %zu: open did not notice", x->name, bit);
	box_close(&x->b, w);
	check_records(x, bit, truth, "after recovery", &st);
	w = box_open(&x->b);
	uint64_t next = box_append(w, "after");
	box_close(&x->b, w);
	uint64_t last = truth->at[truth->n - 1].sequence;
	if (next < last) /* the flip may have taken the last record, which looks like one never finished */
		fail_msg("%s, bit %zu: sequence %llu is given again", x->name, bit, (unsigned long long)next);
	w = box_open(&x->b);
	st = box_stats(w);
	if (st.damaged_ranges != 0 || st.torn_bytes != 0)
		fail_msg("%s, bit %zu: a second recovery found more", x->name, bit);
	box_close(&x->b, w);
}

static void flip_one(struct sample *x, size_t bit, const struct seen *truth)
{
	struct sl_wal_stats st;
	x->bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
	crashfs_put(x->b.fs, x->path, x->bytes, x->n);
	x->bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
	check_records(x, bit, truth, "by scan", &st);
	if (st.damaged_ranges + st.torn_bytes == 0)
		fail_msg("%s, bit %zu: scan did not notice", x->name, bit);
}

struct files {
	struct box *b;
	size_t n;
	struct {
		char path[300];
		uint8_t *bytes;
		size_t n;
	} at[8];
};

static int keep_file(const char *name, void *ctx)
{
	struct files *f = ctx;
	assert_true(f->n < 8);
	(void)snprintf(f->at[f->n].path, sizeof(f->at[0].path), "%s/%s", BOX_DIR, name);
	const uint8_t *p = crashfs_get(f->b->fs, f->at[f->n].path, &f->at[f->n].n);
	f->at[f->n].bytes = malloc(f->at[f->n].n + 1);
	assert_non_null(f->at[f->n].bytes);
	memcpy(f->at[f->n].bytes, p, f->at[f->n].n);
	f->n++;
	return 0;
}

static void restore(struct sample *x, const struct files *f)
{
	(void)crashfs_io.list(BOX_DIR, drop_name, x, x->b.fs);
	for (size_t i = 0; i < f->n; i++)
		crashfs_put(x->b.fs, f->at[i].path, f->at[i].bytes, f->at[i].n);
}

static void flip_all(struct sample *x)
{
	struct files f = {.b = &x->b};
	struct sl_wal_stats st;
	struct seen truth = {.segment = strrchr(x->path, '/') + 1};
	(void)crashfs_each(x->b.fs, BOX_DIR, keep_file, &f);
	const uint8_t *p = box_bytes(&x->b, x->path, &x->n);
	x->bytes = malloc(x->n);
	assert_non_null(x->bytes);
	memcpy(x->bytes, p, x->n);
	scan_into(x, &truth, note_truth, &st);
	assert_int_equal(st.damaged_ranges + st.torn_bytes, 0);
	for (size_t bit = 0; bit < x->n * 8; bit++) {
		flip_one(x, bit, &truth);
		check_open(x, bit, &truth);
		restore(x, &f);
	}
	printf("# %s: %zu bits, %zu records\n", x->name, x->n * 8, truth.n);
	for (size_t i = 0; i < f.n; i++)
		free(f.at[i].bytes);
	free(x->bytes);
	box_fini(&x->b);
}

/* Some records, marks of both kinds, a range, an empty payload. */
static void fill(struct box *b)
{
	sl_wal *w = box_open(b);
	(void)box_append(w, "the first");
	(void)box_append(w, "");
	(void)box_append(w, "third of them");
	assert_int_equal(sl_wal_mark_sent(w, 1, 2, NULL), 0);
	(void)box_append(w, "4");
	assert_int_equal(sl_wal_mark_failed(w, 3, 3, NULL), 0);
	(void)box_append(w, "five is the last");
	box_close(b, w);
}

static void every_bit_of_a_log_of_ours(void **state)
{
	(void)state;
	struct sample x = {.name = "own log", .path = BOX_PATH};
	box_init(&x.b);
	fill(&x.b);
	flip_all(&x);
}

static void every_bit_of_an_encrypted_log(void **state)
{
	(void)state;
	struct sample x = {.name = "encrypted log", .path = BOX_PATH};
	uint8_t key[32] = {3};
	box_init(&x.b);
	crashfs_put(x.b.fs, "/key", key, sizeof(key));
	x.b.opts.key_file = "/key";
	fill(&x.b);
	flip_all(&x);
}

static void every_bit_of_a_foreign_log(void **state)
{
	(void)state;
	struct sample x = {.name = "foreign log", .path = BOX_PATH};
	uint8_t log[512] = "ARWAL001\x01";
	size_t n = 16;
	box_init(&x.b);
	n += box_record(log + n, 1, 1, 1704067200000, "one", 3);
	n += box_record(log + n, 2, 1, 1704067200001, "two", 3);
	n += box_record(log + n, 1, 2, 1704067200002, "", 0);
	n += box_record(log + n, 3, 1, 1704067200003, "three", 5);
	crashfs_mkdir(x.b.fs, BOX_DIR);
	crashfs_put(x.b.fs, BOX_PATH, log, n);
	flip_all(&x);
}

static void two_segments(struct box *b)
{
	box_init(b);
	b->opts.segment_bytes = 4096;
	sl_wal *w = box_open(b);
	(void)box_append(w, "the first");
	(void)box_append(w, "second");
	box_close(b, w);
	/* Sealed by hand, so that the sample stays small. */
	size_t n;
	const uint8_t *p = box_bytes(b, BOX_PATH, &n);
	uint8_t log[512];
	memcpy(log, p, n);
	crashfs_put(b->fs, BOX_PATH ".1", log, n);
	size_t more = 16 + box_record(log + 16, 3, 1, 1704067200003, "three", 5);
	more += box_record(log + more, 4, 1, 1704067200004, "four", 4);
	crashfs_put(b->fs, BOX_PATH, log, more);
}

static void every_bit_of_a_sealed_segment(void **state)
{
	(void)state;
	struct sample x = {.name = "sealed segment", .path = BOX_PATH ".1"};
	two_segments(&x.b);
	flip_all(&x);
}

static void every_bit_of_the_active_segment_after_a_sealed_one(void **state)
{
	(void)state;
	struct sample x = {.name = "active segment", .path = BOX_PATH};
	two_segments(&x.b);
	flip_all(&x);
}

/* An archive: the frame's own checksum and the log's. */
static void every_bit_of_an_archive(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	fill(&b);
	char expected[1024];
	(void)snprintf(expected, sizeof(expected), "%s", box_scan(&b, BOX_PATH));
	assert_int_equal(sl_wal_archive_path(BOX_PATH, "/a", true, &b.opts, &b.err), 0);
	size_t n, noticed = 0, silent = 0;
	const uint8_t *p = box_bytes(&b, "/a/s.wal.zst", &n);
	uint8_t copy[1024];
	memcpy(copy, p, n);
	for (size_t bit = 0; bit < n * 8; bit++) {
		copy[bit / 8] ^= (uint8_t)(1U << bit % 8);
		crashfs_put(b.fs, "/a/s.wal.zst", copy, n);
		copy[bit / 8] ^= (uint8_t)(1U << bit % 8);
		const char *seen = box_scan(&b, "/a/s.wal.zst");
		bool same = strcmp(seen, expected) == 0;
		noticed += !same;
		silent += same; /* a bit of the frame that carries nothing */
		if (!same && strncmp(seen, "E", 1) != 0 && strstr(seen, "<") == NULL)
			fail_msg("bit %zu: the archive reads as %s", bit, seen);
	}
	printf("# archive: %zu bits, %zu noticed, %zu without effect\n", n * 8, noticed, silent);
	assert_true(noticed > 0);
	box_fini(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_bit_of_a_log_of_ours),
		cmocka_unit_test(every_bit_of_an_encrypted_log),
		cmocka_unit_test(every_bit_of_a_foreign_log),
		cmocka_unit_test(every_bit_of_a_sealed_segment),
		cmocka_unit_test(every_bit_of_the_active_segment_after_a_sealed_one),
		cmocka_unit_test(every_bit_of_an_archive),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
