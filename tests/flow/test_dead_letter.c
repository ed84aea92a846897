/* SPDX-License-Identifier: Apache-2.0 */
/* What dead letters promise while the disk behaves. */
#include "letterbox.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sluice/metrics.h>

static void ack(struct letterbox *b, sl_dlq *q, uint64_t id)
{
	if (sl_dlq_ack(q, id, &b->err) != 0)
		fail_msg("ack %llu: %s", (unsigned long long)id, b->err.msg);
}

static sl_dlq *reopen(struct letterbox *b, sl_dlq *q)
{
	sl_dlq_close(q);
	return letterbox_open(b);
}

/* ---- one letter ---- */

static int compare_fields(const struct sl_dlq_letter *got, void *ctx)
{
	const struct sl_dlq_letter *put = ctx;
	assert_int_equal(got->id, 1);
	assert_string_equal(got->source, put->source);
	assert_int_equal(got->position, put->position);
	assert_string_equal(got->error, put->error);
	assert_int_equal(got->code, put->code);
	assert_int_equal(got->error_class, put->error_class);
	assert_int_equal(got->attempts, put->attempts);
	/* Times that were not given are those of put. */
	if (put->first_failed_ms != 0)
		assert_int_equal(got->first_failed_ms, put->first_failed_ms);
	else
		assert_int_equal(got->first_failed_ms, got->last_failed_ms);
	if (put->last_failed_ms != 0)
		assert_int_equal(got->last_failed_ms, put->last_failed_ms);
	else
		assert_true(got->last_failed_ms > 1600000000000);
	assert_string_equal(got->target, put->target);
	assert_int_equal(got->item_len, put->item_len);
	assert_memory_equal(got->item, put->item, put->item_len);
	assert_int_equal(got->acknowledged, 0);
	assert_int_equal(got->encoding, put->encoding);
	return 0;
}

static void every_field_comes_back_as_it_was_put(void **state)
{
	struct letterbox *b = *state;
	sl_dlq *q = letterbox_open(b);
	char item[] = "with a \0 inside and \xff\xfe bytes";
	struct sl_dlq_letter letter = {
		SL_DLQ_LETTER_INIT,
		.id = 99,
		.source = "wal:jöb-7",
		.position = UINT64_MAX,
		.error = "cannot: “quotes”\nand lines",
		.code = SL_EREFUSED,
		.error_class = SL_CLASS_FATAL,
		.attempts = UINT32_MAX,
		.first_failed_ms = -1,
		.last_failed_ms = INT64_MAX,
		.target = "http://host/path",
		.item = item,
		.item_len = sizeof(item),
		.acknowledged = true,
		.encoding = SL_DLQ_SEALED,
	};
	assert_int_equal(sl_dlq_put(q, &letter, NULL, &b->err), 0);
	assert_int_equal(sl_dlq_show(q, 1, compare_fields, &letter, &b->err), 0);
	q = reopen(b, q);
	assert_int_equal(sl_dlq_show(q, 1, compare_fields, &letter, &b->err), 0);
	assert_int_equal(sl_dlq_list(q, false, compare_fields, &letter, &b->err), 0);
	sl_dlq_close(q);
}

static void fields_that_a_shorter_letter_does_not_have_are_zero(void **state)
{
	struct letterbox *b = *state;
	sl_dlq *q = letterbox_open(b);
	struct sl_dlq_letter letter = letterbox_letter("x");
	letter.struct_size = offsetof(struct sl_dlq_letter, encoding);
	letter.encoding = SL_DLQ_SEALED; /* where such a caller has something else */
	assert_int_equal(sl_dlq_put(q, &letter, NULL, &b->err), 0);
	letter.encoding = SL_DLQ_PLAIN;
	assert_int_equal(sl_dlq_show(q, 1, compare_fields, &letter, &b->err), 0);
	letter.struct_size = 0;
	assert_int_equal(sl_dlq_put(q, &letter, NULL, &b->err), SL_EINVAL);
	sl_dlq_close(q);
}

static void a_dead_letter_may_be_empty(void **state)
{
	struct letterbox *b = *state;
	sl_dlq *q = letterbox_open(b);
	struct sl_dlq_letter letter = {SL_DLQ_LETTER_INIT};
	assert_int_equal(sl_dlq_put(q, &letter, NULL, &b->err), 0);
	letter = (struct sl_dlq_letter){SL_DLQ_LETTER_INIT, .source = "", .error = "", .target = "", .item = ""};
	assert_int_equal(sl_dlq_show(q, 1, compare_fields, &letter, &b->err), 0);
	sl_dlq_close(q);
}

static int keep_error(const struct sl_dlq_letter *letter, void *ctx)
{
	(void)snprintf(ctx, 8192, "%s", letter->error);
	return 0;
}

static void a_long_error_is_cut_between_characters(void **state)
{
	struct letterbox *b = *state;
	sl_dlq *q = letterbox_open(b);
	char error[6000], got[8192];
	memset(error, 'e', sizeof(error));
	memcpy(error + 4095, "é", 2); /* the second byte would be number 4097 */
	error[sizeof(error) - 1] = '\0';
	struct sl_dlq_letter letter = letterbox_letter("x");
	letter.error = error;
	assert_int_equal(sl_dlq_put(q, &letter, NULL, &b->err), 0);
	assert_int_equal(sl_dlq_show(q, 1, keep_error, got, &b->err), 0);
	assert_int_equal(strlen(got), 4095);
	error[4095] = error[4096] = 'e';
	assert_int_equal(sl_dlq_put(q, &letter, NULL, &b->err), 0);
	assert_int_equal(sl_dlq_show(q, 2, keep_error, got, &b->err), 0);
	assert_int_equal(strlen(got), 4096);
	sl_dlq_close(q);
}

static void a_dead_letter_that_cannot_be_kept_is_refused_by_name(void **state)
{
	struct letterbox *b = *state;
	sl_dlq *q = letterbox_open(b);
	char source[257];
	memset(source, 's', 256);
	source[256] = '\0';
	struct sl_dlq_letter letter = letterbox_letter("x");
	letter.source = source;
	assert_int_equal(sl_dlq_put(q, &letter, NULL, &b->err), SL_EINVAL);
	assert_non_null(strstr(b->err.msg, "source"));
	letter = letterbox_letter("x");
	letter.error_class = (enum sl_err_class)77;
	assert_int_equal(sl_dlq_put(q, &letter, NULL, &b->err), SL_EINVAL);
	assert_non_null(strstr(b->err.msg, "error_class"));
	letter = letterbox_letter("x");
	letter.encoding = (enum sl_dlq_encoding)2;
	assert_int_equal(sl_dlq_put(q, &letter, NULL, &b->err), SL_EINVAL);
	assert_non_null(strstr(b->err.msg, "encoding"));
	letter = letterbox_letter("x");
	letter.item_len = 64 * 1024 * 1024 + 1;
	assert_int_equal(sl_dlq_put(q, &letter, NULL, &b->err), SL_ETOOBIG);
	assert_waiting(b, q, "");
	sl_dlq_close(q);
}

static void bad_options_are_named(void **state)
{
	struct letterbox *b = *state;
	sl_dlq *q = NULL;
	b->opts.max_bytes = -7;
	assert_int_equal(letterbox_try_open(b, &q), SL_EINVAL);
	assert_non_null(strstr(b->err.msg, "max_bytes"));
	b->opts.max_bytes = 0;
	b->opts.file_bytes = 100;
	assert_int_equal(letterbox_try_open(b, &q), SL_EINVAL);
	assert_non_null(strstr(b->err.msg, "file_bytes"));
	b->opts.file_bytes = 0;
	b->opts.on_full = (enum sl_dlq_on_full)9;
	assert_int_equal(letterbox_try_open(b, &q), SL_EINVAL);
	assert_non_null(strstr(b->err.msg, "on_full"));
	assert_int_equal(sl_dlq_open(&q, "", NULL, &b->err), SL_EINVAL);
	assert_null(q);
}

/* ---- ids and files ---- */

static void dead_letters_keep_their_ids_and_order_over_a_reopen(void **state)
{
	struct letterbox *b = *state;
	sl_dlq *q = letterbox_open(b);
	assert_int_equal(letterbox_put(b, q, "one"), 1);
	assert_int_equal(letterbox_put(b, q, "two"), 2);
	q = reopen(b, q);
	assert_int_equal(letterbox_put(b, q, "three"), 3);
	assert_letters(b, q, "1=one 2=two 3=three");
	sl_dlq_close(q);
}

static void a_new_file_begins_past_the_limit_and_is_named_by_its_first_id(void **state)
{
	struct letterbox *b = *state;
	b->opts.file_bytes = 4096;
	sl_dlq *q = letterbox_open(b);
	letterbox_put_n(b, q, 12, 900);
	assert_int_equal(letterbox_stats(b, q).files, 4);
	assert_true(letterbox_has(b, BOX_FIRST));
	assert_true(letterbox_has(b, "/letters/00000004.dlq"));
	assert_true(letterbox_has(b, "/letters/00000010.dlq"));
	q = reopen(b, q);
	assert_int_equal(letterbox_stats(b, q).letters, 12);
	assert_int_equal(letterbox_put(b, q, "next"), 13);
	sl_dlq_close(q);
}

static void a_dead_letter_above_the_file_size_has_its_own_file(void **state)
{
	struct letterbox *b = *state;
	b->opts.file_bytes = 4096;
	sl_dlq *q = letterbox_open(b);
	letterbox_put_n(b, q, 3, 10000);
	letterbox_put(b, q, "small");
	assert_int_equal(letterbox_stats(b, q).files, 4);
	assert_waiting(b, q, "1=aaaaaaaaaaaaaaaa~ 2=aaaaaaaaaaaaaaaa~ 3=aaaaaaaaaaaaaaaa~ 4=small");
	sl_dlq_close(q);
}

static void the_largest_item_fits(void **state)
{
	struct letterbox *b = *state;
	sl_dlq *q = letterbox_open(b);
	letterbox_put_n(b, q, 1, 64 * 1024 * 1024);
	letterbox_put(b, q, "after");
	q = reopen(b, q);
	assert_waiting(b, q, "1=aaaaaaaaaaaaaaaa~ 2=after");
	assert_int_equal(letterbox_stats(b, q).damaged, 0);
	sl_dlq_close(q);
}

/* ---- acknowledging ---- */

static void an_acknowledged_dead_letter_is_listed_only_on_request(void **state)
{
	struct letterbox *b = *state;
	sl_dlq *q = letterbox_open(b);
	letterbox_put(b, q, "one");
	letterbox_put(b, q, "two");
	letterbox_put(b, q, "three");
	ack(b, q, 2);
	for (int round = 0; round < 2; round++, q = reopen(b, q)) {
		assert_waiting(b, q, "1=one 3=three");
		assert_letters(b, q, "1=one 2=two! 3=three");
		assert_int_equal(letterbox_stats(b, q).unacknowledged, 2);
		assert_int_equal(letterbox_stats(b, q).letters, 3);
	}
	sl_dlq_close(q);
}

static void acknowledging_is_idempotent_and_knows_what_never_was(void **state)
{
	struct letterbox *b = *state;
	sl_dlq *q = letterbox_open(b);
	assert_int_equal(sl_dlq_ack(q, 1, &b->err), SL_ENOENT);
	letterbox_put(b, q, "one");
	letterbox_put(b, q, "two");
	ack(b, q, 1);
	ack(b, q, 1);
	ack(b, q, 2); /* the file goes */
	ack(b, q, 1);
	ack(b, q, 2);
	q = reopen(b, q);
	ack(b, q, 2);
	assert_int_equal(sl_dlq_ack(q, 0, &b->err), SL_ENOENT);
	assert_int_equal(sl_dlq_ack(q, 3, &b->err), SL_ENOENT);
	assert_int_equal(sl_dlq_ack(q, UINT64_MAX, &b->err), SL_ENOENT);
	sl_dlq_close(q);
}

static void a_file_that_is_done_with_is_removed_and_its_ids_are_not_used_again(void **state)
{
	struct letterbox *b = *state;
	b->opts.file_bytes = 4096;
	sl_dlq *q = letterbox_open(b);
	letterbox_put_n(b, q, 7, 900); /* 1-3, 4-6, 7 */
	for (uint64_t id = 4; id <= 6; id++)
		ack(b, q, id);
	assert_false(letterbox_has(b, "/letters/00000004.dlq"));
	assert_int_equal(letterbox_stats(b, q).files, 2);
	assert_letters(b, q, "1=aaaaaaaaaaaaaaaa~ 2=aaaaaaaaaaaaaaaa~ 3=aaaaaaaaaaaaaaaa~ 7=aaaaaaaaaaaaaaaa~");
	ack(b, q, 7); /* the newest */
	for (uint64_t id = 1; id <= 3; id++)
		ack(b, q, id);
	assert_letters(b, q, "");
	assert_int_equal(letterbox_count(b, ".dlq"), 1);
	q = reopen(b, q);
	assert_int_equal(letterbox_put(b, q, "new"), 8);
	sl_dlq_close(q);
}

static void acknowledging_works_when_the_folder_is_full(void **state)
{
	struct letterbox *b = *state;
	b->opts.max_bytes = 2000;
	sl_dlq *q = letterbox_open(b);
	struct sl_dlq_letter letter = letterbox_letter("a letter");
	int rc;
	while ((rc = sl_dlq_put(q, &letter, NULL, &b->err)) == 0)
		;
	assert_int_equal(rc, SL_EFULL);
	assert_true(sl_err_retryable(&b->err));
	uint64_t n = letterbox_stats(b, q).letters;
	assert_true(n > 5);
	for (uint64_t id = 1; id <= n; id++)
		ack(b, q, id);
	assert_int_equal(letterbox_put(b, q, "again"), n + 1);
	sl_dlq_close(q);
}

/* What was there before counts: each process that opens the folder would add as much again otherwise. */
static void a_folder_that_was_full_is_full_when_it_is_opened_again(void **state)
{
	struct letterbox *b = *state;
	struct sl_dlq_letter letter = letterbox_letter("a letter");
	b->opts.max_bytes = 2000;
	sl_dlq *q = letterbox_open(b);
	while (sl_dlq_put(q, &letter, NULL, &b->err) == 0)
		;
	uint64_t n = letterbox_stats(b, q).letters;
	sl_dlq_close(q);
	q = letterbox_open(b);
	assert_int_equal(sl_dlq_put(q, &letter, NULL, &b->err), SL_EFULL);
	assert_int_equal(letterbox_stats(b, q).letters, n);
	sl_dlq_close(q);
}

static void a_file_that_is_done_with_and_cannot_be_removed_is_logged_and_removed_later(void **state)
{
	struct letterbox *b = *state;
	b->opts.file_bytes = 4096;
	sl_dlq *q = letterbox_open(b);
	letterbox_put_n(b, q, 3, 10000); /* a file each */
	ack(b, q, 1);
	assert_int_equal(b->warnings, 0);
	assert_int_equal(letterbox_stats(b, q).files, 2);
	fault_arm_io(&b->fault, 1, FAULT_FROM, EIO, FAULT_OP(FAULT_UNLINK));
	ack(b, q, 2);
	fault_disarm(&b->fault);
	assert_int_equal(b->warnings, 1);
	assert_non_null(strstr(b->last_warning, "failed to remove a file"));
	assert_waiting(b, q, "3=aaaaaaaaaaaaaaaa~");
	q = reopen(b, q);
	assert_int_equal(letterbox_stats(b, q).files, 1);
	assert_waiting(b, q, "3=aaaaaaaaaaaaaaaa~");
	sl_dlq_close(q);
}

/* Also of what another process has put beside the files since. */
static void the_size_is_that_of_the_disk(void **state)
{
	struct letterbox *b = *state;
	sl_dlq *q = letterbox_open(b);
	letterbox_put(b, q, "one");
	uint64_t before = letterbox_stats(b, q).bytes;
	letterbox_write(b, BOX_FIRST ".torn-7", "torn", 4);
	assert_int_equal(letterbox_stats(b, q).bytes, before + 4);
	sl_dlq_close(q);
}

/* ---- show ---- */

static int never(const struct sl_dlq_letter *letter, void *ctx)
{
	(void)letter;
	(void)ctx;
	fail_msg("not to be called");
	return 0;
}

static void showing_what_is_not_there_is_reported(void **state)
{
	struct letterbox *b = *state;
	sl_dlq *q = letterbox_open(b);
	assert_int_equal(sl_dlq_show(q, 1, never, NULL, &b->err), SL_ENOENT);
	letterbox_put(b, q, "one");
	assert_int_equal(sl_dlq_show(q, 0, never, NULL, &b->err), SL_ENOENT);
	assert_int_equal(sl_dlq_show(q, 2, never, NULL, &b->err), SL_ENOENT);
	ack(b, q, 1);
	assert_int_equal(sl_dlq_show(q, 1, never, NULL, &b->err), SL_ENOENT);
	sl_dlq_close(q);
}

/* ---- walks and callbacks ---- */

struct seen {
	struct letterbox *b;
	sl_dlq *q;
	int calls, stop_at, answer;
};

static int stop_later(const struct sl_dlq_letter *letter, void *ctx)
{
	struct seen *s = ctx;
	(void)letter;
	return ++s->calls == s->stop_at ? s->answer : 0;
}

static void a_callback_can_stop_the_walk_with_its_own_answer(void **state)
{
	struct letterbox *b = *state;
	sl_dlq *q = letterbox_open(b);
	letterbox_put_n(b, q, 5, 3);
	struct seen s = {.stop_at = 2, .answer = 42};
	assert_int_equal(sl_dlq_list(q, false, stop_later, &s, &b->err), 42);
	assert_int_equal(s.calls, 2);
	s = (struct seen){.stop_at = 1, .answer = SL_ECANCELLED};
	b->err = (struct sl_err)SL_ERR_INIT;
	assert_int_equal(sl_dlq_list(q, false, stop_later, &s, &b->err), SL_ECANCELLED);
	assert_int_equal(b->err.code, SL_ECANCELLED);
	sl_dlq_close(q);
}

static int put_and_ack(const struct sl_dlq_letter *letter, void *ctx)
{
	struct seen *s = ctx;
	s->calls++;
	letterbox_put(s->b, s->q, "meanwhile");
	ack(s->b, s->q, letter->id);
	ack(s->b, s->q, letter->id + 1);
	return 0;
}

static void a_callback_may_use_the_handle_and_the_walk_does_not_chase_it(void **state)
{
	struct letterbox *b = *state;
	b->opts.file_bytes = 4096;
	sl_dlq *q = letterbox_open(b);
	letterbox_put_n(b, q, 8, 900);
	struct seen s = {.b = b, .q = q};
	assert_int_equal(sl_dlq_list(q, false, put_and_ack, &s, &b->err), 0);
	assert_int_equal(s.calls, 4); /* every second was acknowledged before its turn */
	assert_waiting(b, q, "9=meanwhile 10=meanwhile 11=meanwhile 12=meanwhile");
	sl_dlq_close(q);
}

static int accept_even(const struct sl_dlq_letter *letter, void *ctx)
{
	struct seen *s = ctx;
	s->calls++;
	if (letter->id == (uint64_t)s->stop_at)
		return SL_ECANCELLED;
	return letter->id % 2 == 0 ? 0 : SL_EREFUSED;
}

static void a_redrive_acknowledges_what_was_accepted_and_keeps_the_rest(void **state)
{
	struct letterbox *b = *state;
	sl_dlq *q = letterbox_open(b);
	for (const char *const *item = (const char *const[]){"a", "b", "c", "d", "e", NULL}; *item != NULL; item++)
		letterbox_put(b, q, *item);
	ack(b, q, 1);
	struct seen s = {0};
	uint64_t done = 0, failed = 0;
	assert_int_equal(sl_dlq_redrive(q, accept_even, &s, &done, &failed, &b->err), 0);
	assert_int_equal(done, 2);
	assert_int_equal(failed, 2);
	assert_int_equal(s.calls, 4);
	q = reopen(b, q);
	assert_letters(b, q, "1=a! 2=b! 3=c 4=d! 5=e");
	sl_dlq_close(q);
}

static void a_redrive_that_is_cancelled_keeps_what_it_has_done(void **state)
{
	struct letterbox *b = *state;
	sl_dlq *q = letterbox_open(b);
	letterbox_put_n(b, q, 6, 1);
	struct seen s = {.stop_at = 4};
	uint64_t done = 0, failed = 0;
	assert_int_equal(sl_dlq_redrive(q, accept_even, &s, &done, &failed, &b->err), SL_ECANCELLED);
	assert_int_equal(done, 1);
	assert_int_equal(failed, 2);
	assert_waiting(b, q, "1=a 3=a 4=a 5=a 6=a");
	sl_dlq_close(q);
}

static int redrive_inside(const struct sl_dlq_letter *letter, void *ctx)
{
	struct seen *s = ctx;
	(void)letter;
	s->calls++;
	uint64_t done = 7, failed = 7;
	assert_int_equal(sl_dlq_redrive(s->q, never, NULL, &done, &failed, &s->b->err), SL_EAGAIN);
	assert_int_equal(done + failed, 0);
	return 0;
}

static void two_redrives_at_once_are_refused(void **state)
{
	struct letterbox *b = *state;
	sl_dlq *q = letterbox_open(b);
	letterbox_put(b, q, "one");
	struct seen s = {.b = b, .q = q};
	assert_int_equal(sl_dlq_redrive(q, redrive_inside, &s, NULL, NULL, &b->err), 0);
	assert_int_equal(s.calls, 1);
	assert_int_equal(sl_dlq_redrive(q, never, &s, NULL, NULL, &b->err), 0);
	sl_dlq_close(q);
}

/* ---- purge ---- */

static void put_failed_at(struct letterbox *b, sl_dlq *q, const char *item, int64_t last_failed_ms)
{
	struct sl_dlq_letter letter = letterbox_letter(item);
	letter.last_failed_ms = last_failed_ms;
	assert_int_equal(sl_dlq_put(q, &letter, NULL, &b->err), 0);
}

static void a_purge_by_age_acknowledges_what_failed_before(void **state)
{
	struct letterbox *b = *state;
	sl_dlq *q = letterbox_open(b);
	put_failed_at(b, q, "old", 100);
	put_failed_at(b, q, "older", 50);
	put_failed_at(b, q, "new", 300);
	put_failed_at(b, q, "exact", 200);
	put_failed_at(b, q, "old2", 199);
	ack(b, q, 2);
	uint64_t purged = 0;
	assert_int_equal(sl_dlq_purge(q, 200, &purged, &b->err), 0);
	assert_int_equal(purged, 2);
	assert_int_equal(letterbox_stats(b, q).oldest_ms, 300);
	q = reopen(b, q);
	assert_letters(b, q, "1=old! 2=older! 3=new 4=exact 5=old2!");
	assert_int_equal(sl_dlq_purge(q, 1000, &purged, &b->err), 0);
	assert_int_equal(purged, 2);
	assert_letters(b, q, "");
	assert_int_equal(letterbox_stats(b, q).oldest_ms, 0);
	assert_int_equal(letterbox_put(b, q, "next"), 6);
	sl_dlq_close(q);
}

static void a_purge_writes_one_acknowledgement_for_neighbours(void **state)
{
	struct letterbox *b = *state;
	sl_dlq *q = letterbox_open(b);
	for (int i = 0; i < 3000; i++)
		put_failed_at(b, q, "x", i % 1000 == 999 ? 5000 : 100);
	uint64_t before = letterbox_stats(b, q).bytes, purged = 0;
	assert_int_equal(sl_dlq_purge(q, 200, &purged, &b->err), 0);
	assert_int_equal(purged, 2997);
	assert_int_equal(letterbox_stats(b, q).bytes - before, 3 * 56);
	assert_waiting(b, q, "1000=x 2000=x 3000=x");
	q = reopen(b, q);
	assert_waiting(b, q, "1000=x 2000=x 3000=x");
	/* More runs than fit one write. */
	for (int i = 0; i < 5000; i++)
		put_failed_at(b, q, "y", i % 2 == 0 ? 100 : 9000);
	assert_int_equal(sl_dlq_purge(q, 200, &purged, &b->err), 0);
	assert_int_equal(purged, 2500);
	q = reopen(b, q);
	assert_int_equal(letterbox_stats(b, q).unacknowledged, 2503);
	sl_dlq_close(q);
}

static void a_purge_of_everything_leaves_only_the_numbering(void **state)
{
	struct letterbox *b = *state;
	b->opts.file_bytes = 4096;
	sl_dlq *q = letterbox_open(b);
	uint64_t purged = 7;
	assert_int_equal(sl_dlq_purge(q, 0, &purged, &b->err), 0);
	assert_int_equal(purged, 0);
	letterbox_put_n(b, q, 10, 900);
	ack(b, q, 5);
	assert_int_equal(sl_dlq_purge(q, 0, &purged, &b->err), 0);
	assert_int_equal(purged, 9);
	assert_letters(b, q, "");
	assert_int_equal(letterbox_count(b, ".dlq"), 1);
	assert_int_equal(sl_dlq_purge(q, 0, &purged, &b->err), 0);
	assert_int_equal(purged, 0);
	q = reopen(b, q);
	assert_int_equal(letterbox_put(b, q, "next"), 11);
	sl_dlq_close(q);
}

/* ---- the bound ---- */

struct dropped {
	struct letterbox *b;
	sl_dlq *q;
	uint64_t calls, first, last, unacked;
};

static void on_drop(uint64_t first_id, uint64_t last_id, uint64_t unacknowledged, void *ctx)
{
	struct dropped *d = ctx;
	d->calls++;
	d->first = first_id;
	d->last = last_id;
	d->unacked += unacknowledged;
	(void)letterbox_stats(d->b, d->q); /* no lock is held */
}

static void a_full_folder_drops_its_oldest_file_loudly(void **state)
{
	struct letterbox *b = *state;
	struct dropped d = {.b = b};
	sl_metrics *metrics = NULL;
	sl_counter *drops = NULL;
	assert_int_equal(sl_metrics_new(&metrics, NULL, NULL), 0);
	b->env.metrics = metrics;
	b->opts.max_bytes = 40000;
	b->opts.on_full = SL_DLQ_DROP_OLDEST;
	b->opts.on_drop = on_drop;
	b->opts.on_drop_ctx = &d;
	sl_dlq *q = d.q = letterbox_open(b);
	uint64_t put = 0;
	while (d.calls == 0) {
		letterbox_put_n(b, q, 1, 900);
		put++;
	}
	assert_int_equal(d.first, 1);
	assert_int_equal(d.unacked, d.last);
	assert_int_equal(b->warnings, 1);
	assert_non_null(strstr(b->last_warning, "dropped"));
	for (uint64_t i = 0; i < 200; i++) {
		letterbox_put_n(b, q, 1, 900);
		assert_true(letterbox_stats(b, q).bytes <= 40000);
	}
	struct sl_dlq_stats stats = letterbox_stats(b, q);
	assert_int_equal(stats.unacknowledged + d.unacked, put + 200);
	assert_int_equal(d.last + stats.letters, put + 200);
	assert_true(stats.letters > 25); /* a file at a time, not everything */
	assert_int_equal(sl_metrics_counter(metrics, "sluice_dead_letter_dropped_total",
					    "Unacknowledged dead letters dropped to stay within max_bytes.", NULL, 0,
					    &drops, NULL),
			 0);
	assert_int_equal(sl_counter_value(drops), d.unacked);
	sl_dlq_close(q);
	sl_metrics_free(metrics);
}

static void one_file_that_fills_the_bound_is_dropped_whole(void **state)
{
	struct letterbox *b = *state;
	struct dropped d = {.b = b};
	b->opts.max_bytes = 12000;
	b->opts.on_full = SL_DLQ_DROP_OLDEST;
	b->opts.on_drop = on_drop;
	b->opts.on_drop_ctx = &d;
	sl_dlq *q = d.q = letterbox_open(b);
	letterbox_put_n(b, q, 1, 10000);
	letterbox_put_n(b, q, 1, 10000);
	assert_int_equal(d.calls, 1);
	assert_int_equal(d.last, 1);
	assert_waiting(b, q, "2=aaaaaaaaaaaaaaaa~");
	struct sl_dlq_letter huge = letterbox_letter("x");
	char *item = calloc(1, 12000);
	huge.item = item;
	huge.item_len = 12000;
	assert_int_equal(sl_dlq_put(q, &huge, NULL, &b->err), SL_ETOOBIG);
	assert_waiting(b, q, "2=aaaaaaaaaaaaaaaa~");
	free(item);
	sl_dlq_close(q);
}

static void the_bound_counts_what_is_on_disk(void **state)
{
	struct letterbox *b = *state;
	b->opts.max_bytes = 10000;
	sl_dlq *q = letterbox_open(b);
	letterbox_put_n(b, q, 3, 2500);
	struct sl_dlq_letter letter = letterbox_letter("x");
	char item[2500] = {0};
	letter.item = item;
	letter.item_len = sizeof(item);
	assert_int_equal(sl_dlq_put(q, &letter, NULL, &b->err), SL_EFULL);
	/* A person makes room behind our back. */
	assert_int_equal(crashfs_io.unlink(BOX_FIRST, b->fs), 0);
	assert_int_equal(sl_dlq_put(q, &letter, NULL, &b->err), 0);
	/* A file that a newer one continues ends with a close record. */
	assert_int_equal(letterbox_stats(b, q).bytes, 3 * (80 + 91 + 4 + 13 + 8 + 2500) + 2 * 40);
	sl_dlq_close(q);
}

static void the_gauges_show_what_waits(void **state)
{
	struct letterbox *b = *state;
	sl_metrics *metrics = NULL;
	sl_gauge *waiting = NULL, *bytes = NULL;
	assert_int_equal(sl_metrics_new(&metrics, NULL, NULL), 0);
	b->env.metrics = metrics;
	sl_dlq *q = letterbox_open(b);
	letterbox_put_n(b, q, 3, 10);
	ack(b, q, 1);
	assert_int_equal(sl_metrics_gauge(metrics, "sluice_dead_letter_unacknowledged",
					  "Dead letters not yet acknowledged.", NULL, 0, &waiting, NULL),
			 0);
	assert_int_equal(sl_metrics_gauge(metrics, "sluice_dead_letter_size_bytes", "Size of the dead letters on disk.",
					  NULL, 0, &bytes, NULL),
			 0);
	assert_true(sl_gauge_value(waiting) == 2.0);
	assert_true(sl_gauge_value(bytes) == (double)letterbox_stats(b, q).bytes);
	uint64_t size = letterbox_stats(b, q).bytes;
	sl_dlq_close(q);
	assert_true(sl_gauge_value(waiting) == 0.0);
	q = letterbox_open(b); /* what was there before shows at once */
	assert_true(sl_gauge_value(waiting) == 2.0);
	assert_true(sl_gauge_value(bytes) == (double)(size + 40)); /* and the close record */
	sl_dlq_close(q);
	sl_metrics_free(metrics);
}

/* ---- who may write ---- */

static void one_writer_at_a_time_and_any_number_of_readers(void **state)
{
	struct letterbox *b = *state;
	sl_dlq *q = letterbox_open(b), *second = NULL;
	assert_int_equal(letterbox_try_open(b, &second), SL_ELOCKED);
	assert_null(second);
	b->opts.read_only = SL_ON;
	sl_dlq *reader = letterbox_open(b);
	assert_waiting(b, reader, "");
	letterbox_put(b, q, "one");
	letterbox_put(b, q, "two");
	assert_waiting(b, reader, "1=one 2=two");
	ack(b, q, 1);
	assert_waiting(b, reader, "2=two");
	assert_int_equal(letterbox_stats(b, reader).letters, 2);
	ack(b, q, 2);
	assert_int_equal(letterbox_stats(b, reader).letters, 0);
	struct sl_dlq_letter letter = letterbox_letter("x");
	assert_int_equal(sl_dlq_put(reader, &letter, NULL, &b->err), SL_EACCES);
	assert_int_equal(sl_dlq_ack(reader, 1, &b->err), SL_EACCES);
	assert_int_equal(sl_dlq_purge(reader, 0, NULL, &b->err), SL_EACCES);
	assert_int_equal(sl_dlq_redrive(reader, never, NULL, NULL, NULL, &b->err), SL_EACCES);
	sl_dlq_close(reader);
	b->opts.read_only = SL_DEFAULT;
	q = reopen(b, q);
	sl_dlq_close(q);
}

static void a_reader_changes_nothing(void **state)
{
	struct letterbox *b = *state;
	sl_dlq *q = letterbox_open(b);
	letterbox_put(b, q, "one");
	letterbox_put(b, q, "two");
	sl_dlq_close(q);
	size_t n;
	(void)letterbox_bytes(b, BOX_FIRST, &n);
	letterbox_cut(b, BOX_FIRST, n - 40 - 5); /* without the close record */
	b->opts.read_only = SL_ON;
	fault_arm_io(&b->fault, 0, FAULT_ONCE, EIO, FAULT_ALL_OPS);
	q = letterbox_open(b);
	assert_letters(b, q, "1=one");
	assert_int_equal(letterbox_stats(b, q).damaged, 0);
	sl_dlq_close(q);
	for (int op = 0; op < FAULT_N_OPS; op++)
		if (op == FAULT_PWRITE || op == FAULT_TRUNCATE || op == FAULT_RENAME || op == FAULT_UNLINK ||
		    op == FAULT_MKDIR || op == FAULT_LOCK)
			assert_int_equal(b->fault.op_calls[op], 0);
	b->opts.read_only = SL_ON;
	sl_dlq *none = NULL;
	assert_int_equal(sl_dlq_open(&none, "/nowhere", &b->opts, &b->err), SL_ENOENT);
}

/* On the real disk, with real processes. */
static void a_child_can_neither_use_the_handle_nor_take_the_lock(void **state)
{
	struct letterbox *b = *state;
	const char *base = getenv("TMPDIR");
	char dir[512], sub[600];
	(void)snprintf(dir, sizeof(dir), "%s/sluice-dlq-XXXXXX", base != NULL ? base : P_tmpdir);
	assert_non_null(mkdtemp(dir));
	(void)snprintf(sub, sizeof(sub), "%s/deep/dead", dir);
	sl_dlq *q = NULL;
	assert_int_equal(sl_dlq_open(&q, sub, NULL, &b->err), 0);
	letterbox_put(b, q, "one");
	struct stat st;
	assert_int_equal(stat(sub, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	pid_t child = fork();
	if (child == 0) {
		sl_dlq *mine = NULL;
		struct sl_dlq_letter letter = letterbox_letter("two");
		struct sl_dlq_stats stats = {.struct_size = sizeof(stats)};
		bool right = sl_dlq_get_stats(q, &stats, NULL) == SL_EFORKED &&
			     sl_dlq_put(q, &letter, NULL, NULL) == SL_EFORKED && sl_dlq_ack(q, 1, NULL) == SL_EFORKED &&
			     sl_dlq_list(q, false, never, NULL, NULL) == SL_EFORKED &&
			     sl_dlq_open(&mine, sub, NULL, NULL) == SL_ELOCKED;
		sl_dlq_close(q);
		_exit(right ? 0 : 1);
	}
	int status = -1;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	letterbox_put(b, q, "two");
	assert_int_equal(sl_dlq_purge(q, 0, NULL, &b->err), 0);
	sl_dlq_close(q);
	char command[700];
	(void)snprintf(command, sizeof(command), "rm -r '%s'", dir);
	assert_int_equal(system(command), 0);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, letterbox_setup, letterbox_teardown)
	const struct CMUnitTest tests[] = {
		T(every_field_comes_back_as_it_was_put),
		T(fields_that_a_shorter_letter_does_not_have_are_zero),
		T(a_dead_letter_may_be_empty),
		T(a_long_error_is_cut_between_characters),
		T(a_dead_letter_that_cannot_be_kept_is_refused_by_name),
		T(bad_options_are_named),
		T(dead_letters_keep_their_ids_and_order_over_a_reopen),
		T(a_new_file_begins_past_the_limit_and_is_named_by_its_first_id),
		T(a_dead_letter_above_the_file_size_has_its_own_file),
		T(the_largest_item_fits),
		T(an_acknowledged_dead_letter_is_listed_only_on_request),
		T(acknowledging_is_idempotent_and_knows_what_never_was),
		T(a_file_that_is_done_with_is_removed_and_its_ids_are_not_used_again),
		T(acknowledging_works_when_the_folder_is_full),
		T(a_folder_that_was_full_is_full_when_it_is_opened_again),
		T(a_file_that_is_done_with_and_cannot_be_removed_is_logged_and_removed_later),
		T(the_size_is_that_of_the_disk),
		T(showing_what_is_not_there_is_reported),
		T(a_callback_can_stop_the_walk_with_its_own_answer),
		T(a_callback_may_use_the_handle_and_the_walk_does_not_chase_it),
		T(a_redrive_acknowledges_what_was_accepted_and_keeps_the_rest),
		T(a_redrive_that_is_cancelled_keeps_what_it_has_done),
		T(two_redrives_at_once_are_refused),
		T(a_purge_by_age_acknowledges_what_failed_before),
		T(a_purge_writes_one_acknowledgement_for_neighbours),
		T(a_purge_of_everything_leaves_only_the_numbering),
		T(a_full_folder_drops_its_oldest_file_loudly),
		T(one_file_that_fills_the_bound_is_dropped_whole),
		T(the_bound_counts_what_is_on_disk),
		T(the_gauges_show_what_waits),
		T(one_writer_at_a_time_and_any_number_of_readers),
		T(a_reader_changes_nothing),
		T(a_child_can_neither_use_the_handle_nor_take_the_lock),
	};
	return cmocka_run_group_tests_name("dead_letter", tests, NULL, NULL);
}
