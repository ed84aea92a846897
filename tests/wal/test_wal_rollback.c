/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logs and receivers that are restored from backups, in any order, seed by seed: the real sender, and a receiver that
 * compares CRCs as the stores do. Whatever happened, a delivery that succeeds means that the receiver has every record
 * that the log has, under some incarnation, and no record of it was replaced by another.
 *
 *	SLUICE_TEST_SECONDS=n   for this long (default 1)
 *	SLUICE_SEED=n           this seed alone
 */
#include "wal/box.h"

#include <stdio.h>

#include "support/budget.h"

#define STREAMS 48
#define RECORDS 160 /* of a log */
#define BACKUPS 3
#define STEPS 40

/* Records are distinguished by their CRC, which covers sequence and time: crc[s][n] of sequence n + 1, 0 for a skip. */
struct receiver {
	uint32_t incarnation[STREAMS];
	uint64_t mark[STREAMS], crc[STREAMS][RECORDS];
};

struct copy {
	uint8_t bytes[32768];
	size_t n; /* 0: none */
};

struct play {
	struct box b;
	uint64_t rng;
	struct receiver r, r_backup[BACKUPS];
	struct copy backup[BACKUPS];
	unsigned n_appended;
};

static uint64_t draw(struct play *p, uint64_t n)
{
	p->rng ^= p->rng << 13;
	p->rng ^= p->rng >> 7;
	p->rng ^= p->rng << 17;
	return (p->rng >> 11) % n;
}

/* ---- the receiver ---- */

static size_t stream_of(struct receiver *r, uint32_t incarnation)
{
	size_t s = 0;
	while (s < STREAMS && r->incarnation[s] != 0 && r->incarnation[s] != incarnation)
		s++;
	assert_true(s < STREAMS);
	r->incarnation[s] = incarnation;
	return s;
}

static bool is_skipped(const struct sl_wal_batch *b, uint64_t sequence)
{
	for (size_t i = 0; i < b->n_skipped; i++)
		if (b->skipped[i].first <= sequence && sequence <= b->skipped[i].last)
			return true;
	return false;
}

static int receive(const struct sl_wal_batch *b, struct sl_wal_reply *reply, struct sl_err *err, void *ctx)
{
	struct receiver *r = ctx;
	size_t s = stream_of(r, b->incarnation);
	uint64_t *mark = &r->mark[s], *crc = r->crc[s];
	if (b->after.kind == SL_WAL_MARK_RECORD && b->after.sequence != 0 && b->after.sequence == *mark &&
	    crc[*mark - 1] != 0 && crc[*mark - 1] != b->after.crc)
		return sl_err_set(err, SL_ECONFLICT, "another record at the mark");
	for (size_t i = 0; i < b->n_records; i++) {
		const struct sl_wal_record *rec = &b->records[i];
		if (rec->sequence <= *mark && crc[rec->sequence - 1] != 0 && crc[rec->sequence - 1] != rec->crc)
			return sl_err_set(err, SL_ECONFLICT, "another record %d", (int)rec->sequence);
	}
	for (size_t i = 0; i <= b->n_records; i++) {
		for (; is_skipped(b, *mark + 1); ++*mark)
			crc[*mark] = 0;
		if (i < b->n_records && b->records[i].sequence == *mark + 1)
			crc[(*mark)++] = b->records[i].crc;
	}
	reply->mark = *mark;
	reply->mark_crc = *mark > 0 ? crc[*mark - 1] : 0;
	reply->mark_kind = reply->mark_crc != 0 ? SL_WAL_MARK_RECORD : SL_WAL_MARK_SKIPPED;
	return 0;
}

static const struct sl_wal_sender receiver_ops = {.version = SL_WAL_SENDER_VERSION, .send = receive};

/* ---- the log ---- */

static void append(struct play *p, sl_wal *w, uint64_t n)
{
	char text[16];
	for (; n > 0 && box_stats(w).last_sequence + 2 < RECORDS; n--) {
		(void)snprintf(text, sizeof(text), "line %u", p->n_appended++);
		(void)box_append(w, text);
	}
}

static void deliver(struct play *p, sl_wal *w)
{
	assert_int_equal(sl_wal_sender_start(w, &receiver_ops, &p->r, &p->b.err), 0);
	if (sl_wal_sender_stop(w, SL_UNLIMITED, &p->b.err) != 0)
		fail_msg("%s", p->b.err.msg);
}

static void back_up(struct play *p, struct copy *to)
{
	const uint8_t *bytes = box_bytes(&p->b, BOX_PATH, &to->n);
	assert_true(to->n <= sizeof(to->bytes));
	memcpy(to->bytes, bytes, to->n);
}

static void restore(struct play *p, const struct copy *from)
{
	box_cut(&p->b, BOX_PATH, from->n);
	box_poke(&p->b, BOX_PATH, 0, from->bytes, from->n);
}

static int check_record(const struct sl_wal_record *record, void *ctx)
{
	const struct play *p = ctx;
	for (size_t s = 0; s < STREAMS; s++)
		if (p->r.mark[s] >= record->sequence && p->r.crc[s][record->sequence - 1] == record->crc)
			return 0;
	fail_msg("the receiver lacks record %llu", (unsigned long long)record->sequence);
	return 0;
}

static void step(struct play *p)
{
	size_t i = (size_t)draw(p, BACKUPS);
	sl_wal *w;
	switch (draw(p, 8)) {
	case 0:
		back_up(p, &p->backup[i]);
		break;
	case 1:
		if (p->backup[i].n > 0)
			restore(p, &p->backup[i]);
		break;
	case 2:
		p->r_backup[i] = p->r;
		break;
	case 3:
		p->r = p->r_backup[i]; /* empty, as at the beginning, without a backup */
		break;
	case 4:
		w = box_open(&p->b);
		append(p, w, draw(p, 4));
		box_close(&p->b, w);
		break;
	default:
		w = box_open(&p->b);
		append(p, w, draw(p, 4));
		deliver(p, w);
		box_close(&p->b, w);
		break;
	}
}

static void play(uint64_t seed)
{
	struct play *p = calloc(1, sizeof(*p));
	assert_non_null(p);
	p->rng = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
	box_init(&p->b);
	p->b.opts.batch_records = (int32_t)draw(p, 5) + 1;
	sl_wal *w = box_open(&p->b);
	append(p, w, 1);
	box_close(&p->b, w);
	for (int i = 0; i < STEPS; i++)
		step(p);
	/* Something new: a log without anything pending does not ask whether the receiver has all the rest. */
	w = box_open(&p->b);
	append(p, w, 1);
	deliver(p, w);
	assert_int_equal(box_stats(w).pending, 0);
	if (sl_wal_iterate(w, 1, check_record, p, &p->b.err) != 0)
		fail_msg("%s", p->b.err.msg);
	box_close(&p->b, w);
	box_fini(&p->b);
	free(p);
}

static uint64_t last_seed;

static int tell_seed(void **state)
{
	(void)state;
	print_message("# the last seed was %llu\n", (unsigned long long)last_seed);
	return 0;
}

static void whatever_is_restored_the_receiver_gets_what_the_log_has(void **state)
{
	(void)state;
	uint64_t one = test_number("SLUICE_SEED", 0);
	double until = seconds_now() + test_seconds(1);
	last_seed = one != 0 ? one - 1 : 0;
	do
		play(++last_seed);
	while (one == 0 && seconds_now() < until);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(whatever_is_restored_the_receiver_gets_what_the_log_has, tell_seed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
