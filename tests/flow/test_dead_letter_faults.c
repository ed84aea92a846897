/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dead letters when calls fail, when the process is killed, when the power goes, when the disk is full, and under many
 * threads. A scenario keeps a ledger of what was acknowledged; afterwards the folder is opened by a healthy process and
 * compared with it:
 *
 *   L1  a put that returned 0 is there, whole, under its id, unless it was asked to go;
 *   L2  an acknowledgement that returned 0 holds;
 *   L3  nothing is there that was never put;
 *   L4  an id that was ever returned names no other letter, now or later;
 *   L5  the folder takes letters again, and has them after the next open.
 */
#include "letterbox.h"
#include "support/budget.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#define MAX_PUTS 64
#define NOT_YET SIZE_MAX

struct entry {
	char item[1200];
	uint64_t id;        /* 0: the put failed */
	size_t put_point;   /* in the history of crashfs, when put returned 0 */
	size_t going_point; /* when it was first asked to go */
	size_t gone_point;  /* when that returned 0 */
	bool seen;
};

struct ledger {
	struct letterbox *b;
	size_t n, puts_ok, failures;
	struct entry entries[MAX_PUTS];
	bool drops; /* a put may take older letters away */
};

static void going(struct ledger *l, struct entry *e)
{
	e->going_point = SL_MIN(e->going_point, crashfs_point(l->b->fs));
}

static void gone(struct ledger *l, struct entry *e)
{
	e->gone_point = SL_MIN(e->gone_point, crashfs_point(l->b->fs));
}

static void note_failure(struct ledger *l, int rc)
{
	l->failures += rc != 0;
}

static int do_put(struct ledger *l, sl_dlq *q, size_t len)
{
	struct entry *e = &l->entries[l->n];
	for (size_t i = 0; l->drops && i < l->n; i++)
		going(l, &l->entries[i]);
	*e = (struct entry){.put_point = NOT_YET, .going_point = NOT_YET, .gone_point = NOT_YET};
	memset(e->item, 'x', len);
	(void)snprintf(e->item, 12, "item-%06zu", l->n);
	e->item[11] = 'x';
	e->item[len] = '\0';
	l->n++;
	struct sl_dlq_letter letter = letterbox_letter(e->item);
	int rc = sl_dlq_put(q, &letter, &e->id, NULL);
	note_failure(l, rc);
	if (rc == 0) {
		e->put_point = crashfs_point(l->b->fs);
		l->puts_ok++;
	}
	return rc;
}

static void do_ack(struct ledger *l, sl_dlq *q, size_t i)
{
	struct entry *e = &l->entries[i];
	if (e->id == 0)
		return;
	going(l, e);
	int rc = sl_dlq_ack(q, e->id, NULL);
	note_failure(l, rc);
	if (rc == 0)
		gone(l, e);
}

static struct entry *entry_of_item(struct ledger *l, const struct sl_dlq_letter *letter)
{
	for (size_t i = 0; i < l->n; i++)
		if (strlen(l->entries[i].item) == letter->item_len &&
		    memcmp(l->entries[i].item, letter->item, letter->item_len) == 0)
			return &l->entries[i];
	return NULL;
}

/* A redrive is asked to let go of what fn accepts; only what it has counted is gone for sure. */
static int accept_some(const struct sl_dlq_letter *letter, void *ctx)
{
	struct ledger *l = ctx;
	struct entry *e = entry_of_item(l, letter);
	assert_non_null(e);
	if (letter->id % 2 != 0)
		return SL_EREFUSED;
	going(l, e);
	return 0;
}

static void do_purge(struct ledger *l, sl_dlq *q, size_t upto)
{
	for (size_t i = 0; i < upto; i++)
		going(l, &l->entries[i]);
	int rc = sl_dlq_purge(q, upto == l->n ? 0 : 2001, NULL, NULL);
	note_failure(l, rc);
	for (size_t i = 0; rc == 0 && i < upto; i++)
		gone(l, &l->entries[i]);
}

/* Everything that writes: new folder, files that roll, acknowledgements in old files and in the newest, removal,
 * redrive, purge, close and open, a torn tail. */
static void scenario(struct ledger *l)
{
	sl_dlq *q = NULL;
	int rc = letterbox_try_open(l->b, &q);
	note_failure(l, rc);
	if (rc == 0) {
		for (int i = 0; i < 6; i++)
			(void)do_put(l, q, 1000);
		do_ack(l, q, 1);
		do_ack(l, q, 0);
		do_ack(l, q, 5); /* the newest */
		do_ack(l, q, 2); /* completes the first file */
		(void)do_put(l, q, 100);
		sl_dlq_close(q);
	}
	rc = letterbox_try_open(l->b, &q);
	note_failure(l, rc);
	if (rc != 0)
		return;
	for (int i = 0; i < 4; i++)
		(void)do_put(l, q, 300);
	note_failure(l, sl_dlq_redrive(q, accept_some, l, NULL, NULL, NULL));
	(void)do_put(l, q, 2000 - 900);
	if (l->n == 12)
		do_purge(l, q, l->n);
	(void)do_put(l, q, 50);
	sl_dlq_close(q);
}

/* ---- comparing ---- */

struct comparing {
	struct ledger *l;
	size_t point;
	uint64_t last_id;
};

static int compare(const struct sl_dlq_letter *letter, void *ctx)
{
	struct comparing *c = ctx;
	struct entry *e = entry_of_item(c->l, letter);
	if (e == NULL) {
		fail_msg("L3: letter %llu was never put", (unsigned long long)letter->id);
		return -1;
	}
	if (e->seen && e->id != 0)
		fail_msg("%s is there twice", e->item);
	if (e->id != 0 && e->put_point <= c->point && e->id != letter->id)
		fail_msg("L4: %.11s has id %llu, not %llu", e->item, (unsigned long long)letter->id,
			 (unsigned long long)e->id);
	for (size_t i = 0; i < c->l->n; i++)
		if (&c->l->entries[i] != e && c->l->entries[i].id == letter->id &&
		    c->l->entries[i].put_point <= c->point)
			fail_msg("L4: id %llu was given to two letters", (unsigned long long)letter->id);
	if (e->gone_point <= c->point && !letter->acknowledged)
		fail_msg("L2: %.11s came back", e->item);
	if (e->going_point > c->point && letter->acknowledged)
		fail_msg("%.11s is acknowledged without a request", e->item);
	assert_true(letter->id > c->last_id);
	c->last_id = letter->id;
	e->seen = true;
	return 0;
}

/* point: the ledger as it was at that crash point; NOT_YET - 1: all of it. */
static void verify(struct ledger *l, struct letterbox *b, size_t point)
{
	struct comparing c = {.l = l, .point = point};
	uint64_t given = 0, id = 0, again = 0;
	for (size_t i = 0; i < l->n; i++)
		l->entries[i].seen = false;
	sl_dlq *q = letterbox_open(b);
	if (sl_dlq_list(q, true, compare, &c, &b->err) != 0)
		fail_msg("list: %s", b->err.msg);
	for (size_t i = 0; i < l->n; i++) {
		const struct entry *e = &l->entries[i];
		if (e->put_point <= point && e->going_point > point && !e->seen)
			fail_msg("L1: %.11s is lost", e->item);
		if (e->put_point <= point)
			given = SL_MAX(given, e->id);
	}
	/* Neither a failed call nor a crash is damage. */
	assert_int_equal(letterbox_stats(b, q).damaged, 0);
	id = letterbox_put(b, q, "after everything");
	if (id <= given)
		fail_msg("L4: id %llu is given again", (unsigned long long)id);
	sl_dlq_close(q);
	q = letterbox_open(b); /* recover again after recovering */
	letterbox_list(b, q, 0);
	assert_non_null(strstr(b->text, "after everything"));
	again = letterbox_put(b, q, "and again");
	assert_true(again > id);
	sl_dlq_close(q);
}

static void on_drop(uint64_t first_id, uint64_t last_id, uint64_t unacknowledged, void *ctx)
{
	struct ledger *l = ctx;
	(void)unacknowledged;
	for (size_t i = 0; i < l->n; i++)
		if (l->entries[i].id >= first_id && l->entries[i].id <= last_id)
			gone(l, &l->entries[i]);
}

static struct ledger *begin(struct letterbox *b, bool record)
{
	struct ledger *l = calloc(1, sizeof(*l));
	l->drops = b->opts.on_full == SL_DLQ_DROP_OLDEST;
	crashfs_free(b->fs);
	letterbox_on(b, crashfs_new());
	crashfs_record(b->fs, record);
	b->random = 1;
	b->opts.file_bytes = 4096;
	b->opts.on_drop = NULL;
	if (l->drops) {
		b->opts.on_drop = on_drop;
		b->opts.on_drop_ctx = l;
	}
	l->b = b;
	return l;
}

/* ---- failing calls ---- */

static int64_t fail_each_call(struct letterbox *b, enum fault_mode mode, int errnum, int partial)
{
	int64_t n = 1, failed;
	b->fault.partial_writes = partial;
	do {
		struct ledger *l = begin(b, false);
		fault_arm_io(&b->fault, n, mode, errnum, FAULT_ALL_OPS);
		scenario(l);
		failed = fault_io_failed(&b->fault);
		fault_disarm(&b->fault);
		assert_int_equal(fault_open_fds(&b->fault), 0);
		assert_int_equal(fault_live_allocs(&b->fault), 0);
		verify(l, b, NOT_YET - 1);
		if (failed == 0) {
			assert_int_equal(l->failures, 0);
			assert_int_equal(l->puts_ok, 13);
		}
		free(l);
		n++;
	} while (failed > 0);
	return n - 2;
}

static void any_call_may_fail_once(void **state)
{
	struct letterbox *b = *state;
	printf("# %lld calls failed with EIO\n", (long long)fail_each_call(b, FAULT_ONCE, EIO, 0));
	printf("# %lld calls failed with ENOSPC\n", (long long)fail_each_call(b, FAULT_ONCE, ENOSPC, 0));
	printf("# %lld calls failed with ENOSPC after half a write\n",
	       (long long)fail_each_call(b, FAULT_ONCE, ENOSPC, 1));
	printf("# %lld calls failed with EMFILE\n", (long long)fail_each_call(b, FAULT_ONCE, EMFILE, 1));
}

static void the_process_may_die_at_any_call(void **state)
{
	struct letterbox *b = *state;
	printf("# %lld calls failed\n", (long long)fail_each_call(b, FAULT_FROM, EIO, 0));
	printf("# %lld calls failed, half a write\n", (long long)fail_each_call(b, FAULT_FROM, EIO, 1));
	printf("# %lld calls failed, full disk for good\n", (long long)fail_each_call(b, FAULT_FROM, ENOSPC, 1));
}

static void any_call_of_a_drop_may_fail(void **state)
{
	struct letterbox *b = *state;
	b->opts.on_full = SL_DLQ_DROP_OLDEST;
	b->opts.max_bytes = 5000;
	printf("# %lld calls failed\n", (long long)fail_each_call(b, FAULT_ONCE, EIO, 0));
	printf("# %lld calls failed, once no space\n", (long long)fail_each_call(b, FAULT_ONCE, ENOSPC, 1));
	printf("# %lld calls failed, from then on\n", (long long)fail_each_call(b, FAULT_FROM, EIO, 1));
}

static void any_allocation_may_fail(void **state)
{
	struct letterbox *b = *state;
	for (int mode = FAULT_ONCE; mode <= FAULT_FROM; mode++) {
		int64_t n = 1, failed;
		do {
			struct ledger *l = begin(b, false);
			fault_arm_mem(&b->fault, n, (enum fault_mode)mode);
			scenario(l);
			failed = fault_mem_failed(&b->fault);
			fault_disarm(&b->fault);
			assert_int_equal(fault_open_fds(&b->fault), 0);
			assert_int_equal(fault_live_allocs(&b->fault), 0);
			verify(l, b, NOT_YET - 1);
			free(l);
			n++;
		} while (failed > 0);
		printf("# %lld allocations failed\n", (long long)n - 2);
	}
}

/* The recovery of a damaged folder is as robust as the rest. */
static void any_call_of_a_recovery_may_fail(void **state)
{
	struct letterbox *b = *state;
	static const int errnums[] = {EIO, ENOSPC};
	for (size_t e = 0; e < SL_COUNT(errnums); e++) {
		int64_t failed, n = 1;
		do {
			struct ledger *l = begin(b, false);
			sl_dlq *q = letterbox_open(b);
			for (int i = 0; i < 5; i++)
				(void)do_put(l, q, 1000);
			sl_dlq_close(q);
			size_t size;
			(void)letterbox_bytes(b, "/letters/00000004.dlq", &size);
			letterbox_cut(b, "/letters/00000004.dlq", size - 1);
			l->entries[4].put_point = NOT_YET; /* the disk lost it */
			l->entries[4].going_point = 0;
			fault_arm_io(&b->fault, n, FAULT_ONCE, errnums[e], FAULT_ALL_OPS);
			if (letterbox_try_open(b, &q) == 0)
				sl_dlq_close(q);
			failed = fault_io_failed(&b->fault);
			fault_disarm(&b->fault);
			assert_int_equal(fault_open_fds(&b->fault), 0);
			verify(l, b, NOT_YET - 1);
			/* What was torn off is kept, once. */
			assert_int_equal(letterbox_count(b, ".torn-"), 1);
			free(l);
			n++;
		} while (failed > 0);
		printf("# %lld calls failed\n", (long long)n - 2);
	}
}

static void a_failed_sync_poisons_the_handle(void **state)
{
	struct letterbox *b = *state;
	sl_dlq *q = letterbox_open(b);
	letterbox_put(b, q, "one");
	letterbox_put(b, q, "two");
	fault_arm_io(&b->fault, 1, FAULT_ONCE, EIO, FAULT_OP(FAULT_DATASYNC));
	struct sl_dlq_letter letter = letterbox_letter("three");
	assert_int_equal(sl_dlq_put(q, &letter, NULL, &b->err), SL_EIO);
	assert_int_equal(sl_dlq_put(q, &letter, NULL, &b->err), SL_EPOISONED);
	assert_int_equal(sl_dlq_ack(q, 1, &b->err), SL_EPOISONED);
	assert_int_equal(sl_dlq_purge(q, 0, NULL, &b->err), SL_EPOISONED);
	assert_waiting(b, q, "1=one 2=two"); /* reading continues */
	sl_dlq_close(q);
	q = letterbox_open(b);
	assert_waiting(b, q, "1=one 2=two");
	letterbox_put(b, q, "three");
	sl_dlq_close(q);
}

static void a_full_disk_is_an_error_and_then_it_is_not(void **state)
{
	struct letterbox *b = *state;
	sl_dlq *q = letterbox_open(b);
	letterbox_put_n(b, q, 3, 500);
	/* Room for all but the last bytes of the next letter: a short write. */
	for (size_t room = 0; room < 600; room += 7) {
		size_t n;
		struct sl_dlq_letter letter = letterbox_letter("four");
		char item[600] = "four";
		letter.item = item;
		letter.item_len = sizeof(item);
		(void)letterbox_bytes(b, BOX_FIRST, &n);
		crashfs_quota(b->fs, n + room);
		assert_int_equal(sl_dlq_put(q, &letter, NULL, &b->err), SL_ENOSPC);
		assert_true(sl_err_retryable(&b->err));
		size_t after;
		(void)letterbox_bytes(b, BOX_FIRST, &after);
		assert_int_equal(after, n); /* cut back */
	}
	crashfs_quota(b->fs, SIZE_MAX);
	assert_int_equal(letterbox_put(b, q, "four"), 4);
	sl_dlq_close(q);
	q = letterbox_open(b);
	assert_int_equal(letterbox_stats(b, q).letters, 4);
	assert_int_equal(letterbox_stats(b, q).damaged, 0);
	/* Even then everything can be purged: older files first, which makes the room. */
	sl_dlq_close(q);
	b->opts.file_bytes = 4096;
	q = letterbox_open(b);
	letterbox_put_n(b, q, 8, 1000);
	crashfs_quota(b->fs, 0);
	assert_int_equal(sl_dlq_purge(q, 0, NULL, &b->err), SL_ENOSPC); /* the newest needs a successor */
	assert_true(letterbox_stats(b, q).files == 1);
	crashfs_quota(b->fs, SIZE_MAX);
	assert_int_equal(sl_dlq_purge(q, 0, NULL, &b->err), 0);
	sl_dlq_close(q);
}

static void a_cut_back_that_fails_is_made_up_for_before_the_next_write(void **state)
{
	struct letterbox *b = *state;
	sl_dlq *q = letterbox_open(b);
	letterbox_put(b, q, "one");
	char item[1000] = "much longer than what comes next";
	struct sl_dlq_letter letter = letterbox_letter("two");
	letter.item = item;
	letter.item_len = sizeof(item);
	b->fault.partial_writes = 1;
	fault_arm_io(&b->fault, 1, FAULT_FROM, ENOSPC, FAULT_OP(FAULT_PWRITE) | FAULT_OP(FAULT_TRUNCATE));
	assert_int_equal(sl_dlq_put(q, &letter, NULL, &b->err), SL_ENOSPC);
	assert_int_equal(sl_dlq_put(q, &letter, NULL, &b->err), SL_ENOSPC);
	fault_disarm(&b->fault);
	letterbox_put(b, q, "t");
	sl_dlq_close(q);
	q = letterbox_open(b);
	assert_waiting(b, q, "1=one 2=t");
	assert_int_equal(letterbox_count(b, ".torn-"), 0);
	sl_dlq_close(q);
}

static void a_read_that_fails_is_an_error_and_not_damage(void **state)
{
	struct letterbox *b = *state;
	sl_dlq *q = letterbox_open(b);
	letterbox_put(b, q, "one");
	fault_arm_io(&b->fault, 1, FAULT_ONCE, EIO, FAULT_OP(FAULT_PREAD));
	assert_int_equal(sl_dlq_show(q, 1, compare, NULL, &b->err), SL_EIO);
	sl_dlq_close(q);
	fault_arm_io(&b->fault, 1, FAULT_ONCE, EIO, FAULT_OP(FAULT_PREAD));
	assert_int_equal(letterbox_try_open(b, &q), SL_EIO);
	q = letterbox_open(b);
	assert_waiting(b, q, "1=one");
	assert_int_equal(letterbox_stats(b, q).damaged, 0);
	sl_dlq_close(q);
}

/* ---- power loss ---- */

static int64_t budget_states(void)
{
	const char *text = getenv("SLUICE_TEST_STATES");
	return text != NULL ? atoll(text) : 4000;
}

static size_t crash_everywhere(struct ledger *l, struct crashfs *history, size_t limit)
{
	struct letterbox *b = l->b;
	size_t states = 0;
	for (size_t point = 0; point <= crashfs_point(history); point++) {
		size_t n = crashfs_states(history, point, limit);
		for (size_t k = 0; k < n; k++, states++) {
			letterbox_on(b, crashfs_crash(history, point, k, limit, 11, NULL));
			verify(l, b, point);
			crashfs_free(b->fs);
		}
	}
	letterbox_on(b, history);
	return states;
}

static void a_power_loss_at_any_point_keeps_every_promise(void **state)
{
	struct letterbox *b = *state;
	struct ledger *l = begin(b, true);
	scenario(l);
	assert_int_equal(l->failures, 0);
	size_t points = crashfs_point(b->fs);
	size_t limit = SL_MAX((size_t)budget_states() / (points + 1), (size_t)2);
	size_t states = crash_everywhere(l, b->fs, limit);
	printf("# %zu points, %zu states\n", points, states);
	free(l);
}

static void what_was_dropped_does_not_come_back_after_a_power_loss(void **state)
{
	struct letterbox *b = *state;
	b->opts.on_full = SL_DLQ_DROP_OLDEST;
	b->opts.max_bytes = 5000;
	struct ledger *l = begin(b, true);
	scenario(l);
	assert_int_equal(l->failures, 0);
	size_t dropped = 0;
	for (size_t i = 0; i < l->n; i++)
		dropped += l->entries[i].gone_point != NOT_YET;
	assert_true(dropped > 3);
	b->opts.on_drop = NULL; /* the checks drop letters too */
	size_t states = crash_everywhere(l, b->fs, 20);
	printf("# %zu states\n", states);
	free(l);
}

/* A power loss in the middle of a recovery: the torn bytes are in the file or quarantined, never lost. */
static void a_torn_tail_is_never_lost_on_the_way(void **state)
{
	struct letterbox *b = *state;
	struct ledger *l = begin(b, false);
	sl_dlq *q = letterbox_open(b);
	letterbox_put_n(b, q, 2, 300);
	sl_dlq_close(q);
	size_t n, states = 0;
	(void)letterbox_bytes(b, BOX_FIRST, &n);
	n -= 40; /* without the close record */
	letterbox_cut(b, BOX_FIRST, n - 1);
	crashfs_settle(b->fs);
	crashfs_record(b->fs, true);
	q = letterbox_open(b);
	sl_dlq_close(q);
	struct crashfs *history = b->fs;
	for (size_t point = 0; point <= crashfs_point(history); point++) {
		size_t limit = crashfs_states(history, point, 50);
		for (size_t k = 0; k < limit; k++, states++) {
			size_t kept;
			letterbox_on(b, crashfs_crash(history, point, k, 50, 3, NULL));
			q = letterbox_open(b);
			(void)letterbox_bytes(b, BOX_FIRST ".torn-496", &kept);
			assert_int_equal(kept, n - 1 - 496);
			sl_dlq_close(q);
			crashfs_free(b->fs);
		}
	}
	letterbox_on(b, history);
	printf("# %zu states\n", states);
	free(l);
}

/* The file is cut back after a failed sync, and the cut is synced: a power loss must not bring back a letter whose put
 * has failed, or an acknowledgement that has. */
static void what_failed_to_sync_does_not_come_back_after_a_power_loss(void **state)
{
	struct letterbox *b = *state;
	for (int acks = 0; acks < 2; acks++) {
		struct ledger *l = begin(b, true);
		struct sl_dlq_letter letter = letterbox_letter("two");
		sl_dlq *q = letterbox_open(b);
		letterbox_put(b, q, "one");
		crashfs_fail_syncs(b->fs, 1);
		if (acks != 0)
			assert_int_equal(sl_dlq_ack(q, 1, &b->err), SL_EIO);
		else
			assert_int_equal(sl_dlq_put(q, &letter, NULL, &b->err), SL_EIO);
		sl_dlq_close(q);
		struct crashfs *history = b->fs;
		size_t now = crashfs_point(history), n = crashfs_states(history, now, 200);
		for (size_t k = 0; k < n; k++) {
			letterbox_on(b, crashfs_crash(history, now, k, 200, 7, NULL));
			q = letterbox_open(b);
			assert_letters(b, q, "1=one");
			assert_int_equal(letterbox_count(b, ".torn-"), 0);
			sl_dlq_close(q);
			crashfs_free(b->fs);
		}
		letterbox_on(b, history);
		free(l);
	}
}

/* The process dies, the next one lists what it finds in the page cache, and then the power goes: what was shown to a
 * person must still be there, or its id could be given to another letter. */
static void what_a_recovery_has_shown_survives_a_power_loss(void **state)
{
	struct letterbox *b = *state;
	struct ledger *whole = begin(b, true);
	scenario(whole);
	size_t points = crashfs_point(b->fs), states = 0;
	free(whole);
	for (size_t stop = 0; stop < points; stop++) {
		struct ledger *l = begin(b, true);
		static char shown[sizeof(b->text)];
		crashfs_stop_at(b->fs, stop);
		scenario(l);
		crashfs_kill(b->fs);
		crashfs_stop_at(b->fs, SIZE_MAX);
		sl_dlq *q = letterbox_open(b);
		(void)snprintf(shown, sizeof(shown), "%s", letterbox_list(b, q, 0));
		struct crashfs *history = b->fs;
		size_t now = crashfs_point(history), n = crashfs_states(history, now, 6);
		for (size_t k = 0; k < n; k++, states++) {
			letterbox_on(b, crashfs_crash(history, now, k, 6, 5, NULL));
			sl_dlq *after = letterbox_open(b);
			assert_string_equal(letterbox_list(b, after, 0), shown);
			sl_dlq_close(after);
			crashfs_free(b->fs);
		}
		letterbox_on(b, history);
		sl_dlq_close(q);
		free(l);
	}
	printf("# %zu points, %zu states\n", points, states);
}

/* ---- threads ---- */

#define WRITERS 4

struct crowd {
	struct letterbox *b;
	sl_dlq *q;
	atomic_uint_fast64_t puts, acks, lists;
	int64_t end_ns;
	_Atomic uint8_t given[1 << 20]; /* by id */
};

static bool time_left(const struct crowd *c)
{
	return sl__clock_real.mono_ns(NULL) < c->end_ns;
}

static void *writer(void *arg)
{
	struct crowd *c = arg;
	while (time_left(c) && atomic_load(&c->puts) < SL_COUNT(c->given) - 2 * WRITERS) {
		struct sl_dlq_letter letter = letterbox_letter("threads");
		uint64_t id = 0;
		assert_int_equal(sl_dlq_put(c->q, &letter, &id, NULL), 0);
		assert_int_equal(atomic_fetch_add(&c->given[id], 1), 0);
		atomic_fetch_add(&c->puts, 1);
		if (id % 3 != 0) {
			assert_int_equal(sl_dlq_ack(c->q, id, NULL), 0);
			atomic_fetch_add(&c->acks, 1);
		}
	}
	return NULL;
}

static int in_order(const struct sl_dlq_letter *letter, void *ctx)
{
	uint64_t *last = ctx;
	assert_true(letter->id > *last);
	assert_int_equal(letter->item_len, 7);
	assert_memory_equal(letter->item, "threads", 7);
	*last = letter->id;
	return 0;
}

static void *lister(void *arg)
{
	struct crowd *c = arg;
	while (time_left(c)) {
		uint64_t last = 0;
		assert_int_equal(sl_dlq_list(c->q, true, in_order, &last, NULL), 0);
		struct sl_dlq_stats stats = {.struct_size = sizeof(stats)};
		assert_int_equal(sl_dlq_get_stats(c->q, &stats, NULL), 0);
		assert_true(stats.unacknowledged <= stats.letters);
		atomic_fetch_add(&c->lists, 1);
	}
	return NULL;
}

static void many_threads_put_acknowledge_and_list(void **state)
{
	struct letterbox *b = *state;
	struct crowd *c = calloc(1, sizeof(*c));
	b->opts.file_bytes = 4096;
	c->b = b;
	c->q = letterbox_open(b);
	c->end_ns = sl__clock_real.mono_ns(NULL) + (int64_t)(test_seconds(1) * 1e9);
	pthread_t threads[WRITERS + 1];
	for (size_t i = 0; i < SL_COUNT(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, i == 0 ? lister : writer, c), 0);
	for (size_t i = 0; i < SL_COUNT(threads); i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(letterbox_stats(b, c->q).unacknowledged, c->puts - c->acks);
	sl_dlq_close(c->q);
	c->q = letterbox_open(b);
	assert_int_equal(letterbox_stats(b, c->q).unacknowledged, c->puts - c->acks);
	assert_int_equal(letterbox_stats(b, c->q).damaged, 0);
	sl_dlq_close(c->q);
	printf("# %llu puts, %llu acknowledgements, %llu lists\n", (unsigned long long)c->puts,
	       (unsigned long long)c->acks, (unsigned long long)c->lists);
	free(c);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, letterbox_setup, letterbox_teardown)
	const struct CMUnitTest tests[] = {
		T(any_call_may_fail_once),
		T(the_process_may_die_at_any_call),
		T(any_call_of_a_drop_may_fail),
		T(any_allocation_may_fail),
		T(any_call_of_a_recovery_may_fail),
		T(a_failed_sync_poisons_the_handle),
		T(a_full_disk_is_an_error_and_then_it_is_not),
		T(a_cut_back_that_fails_is_made_up_for_before_the_next_write),
		T(a_read_that_fails_is_an_error_and_not_damage),
		T(a_power_loss_at_any_point_keeps_every_promise),
		T(what_was_dropped_does_not_come_back_after_a_power_loss),
		T(a_torn_tail_is_never_lost_on_the_way),
		T(what_failed_to_sync_does_not_come_back_after_a_power_loss),
		T(what_a_recovery_has_shown_survives_a_power_loss),
		T(many_threads_put_acknowledge_and_list),
	};
	return cmocka_run_group_tests_name("dead_letter_faults", tests, NULL, NULL);
}
