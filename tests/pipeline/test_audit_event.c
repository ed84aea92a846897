/* SPDX-License-Identifier: Apache-2.0 */
/* Audit events: one text for one event, and nothing else is taken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/sha256.h"
#include "pipeline/audit/event.h"
#include <sluice/audit.h>

static struct sl_audit_event example(void)
{
	struct sl_audit_event e = {.struct_size = sizeof(e),
				   .type = SL_AUDIT_PARTITION,
				   .number = 1,
				   .dataset = "ledger",
				   .sequence_column = "ledger_sequence",
				   .partition_size = 250000,
				   .start = 4250000,
				   .end = 4499999,
				   .path = "ledger/partition-00000000000000000017/"
					   "part-00000000000004250000-00000000000004499999.parquet",
				   .rows = 249994,
				   .bad_rows = 2,
				   .holes = 4,
				   .hole_ranges = "4250001,4250003-4250005",
				   .bytes = 9007199254740993, /* no double holds it */
				   .producer = "sluice",
				   .producer_version = "0.1.0"};
	memset(e.sha256, 0xab, sizeof(e.sha256));
	memset(e.schema_sha256, 0x01, sizeof(e.schema_sha256));
	return e;
}

static const char example_text[] =
	"{\"chain\":{\"event_hash\":\"%s\",\"prev_event_hash\":"
	"\"0000000000000000000000000000000000000000000000000000000000000000\"},\"dataset\":\"ledger\","
	"\"id\":\"ledger:4250000-4499999\",\"number\":\"1\",\"partition\":{\"end\":\"4499999\","
	"\"sequence_column\":\"ledger_sequence\",\"size\":\"250000\",\"start\":\"4250000\"},"
	"\"producer\":{\"name\":\"sluice\",\"version\":\"0.1.0\"},\"tables\":[{\"bad_rows\":\"2\","
	"\"bytes\":\"9007199254740993\",\"hole_ranges\":\"4250001,4250003-4250005\",\"holes\":\"4\",\"name\":"
	"\"ledger\",\"path\":\"ledger/partition-00000000000000000017/"
	"part-00000000000004250000-00000000000004499999.parquet\",\"rows\":\"249994\",\"schema_sha256\":"
	"\"0101010101010101010101010101010101010101010101010101010101010101\",\"sha256\":"
	"\"abababababababababababababababababababababababababababababababab\"}],\"type\":\"partition\",\"version\":1}";

static void an_event_is_the_bytes_that_the_format_says(void **state)
{
	struct sl_audit_event e = example(), back;
	struct sl_err err = SL_ERR_INIT;
	char text[SL_AUDIT_EVENT_BYTES], want[SL_AUDIT_EVENT_BYTES], storage[SL_AUDIT_EVENT_BYTES], hex[SL__SHA256_HEX];
	char hashed[SL_AUDIT_EVENT_BYTES];
	uint8_t digest[SL__SHA256_BYTES];
	size_t len;
	(void)state;
	assert_int_equal(sl_audit_event_format(&e, text, &len, &err), 0);
	sl__sha256_hex(e.hash, hex);
	(void)snprintf(want, sizeof(want), example_text, hex);
	assert_string_equal(text, want);
	assert_int_equal(len, strlen(want));
	/* The hash is that of the text without the member event_hash. */
	(void)snprintf(hashed, sizeof(hashed), "{\"chain\":{%s",
		       text + strlen("{\"chain\":{\"event_hash\":\"\",") + 64);
	assert_int_equal(sl__sha256(hashed, strlen(hashed), digest, &err), 0);
	assert_memory_equal(digest, e.hash, sizeof(digest));
	assert_int_equal(sl_audit_event_parse(text, len, &back, storage, &err), 0);
	assert_int_equal(back.start, e.start);
	assert_int_equal(back.bytes, e.bytes);
	assert_string_equal(back.path, e.path);
	assert_string_equal(back.sequence_column, e.sequence_column);
}

static void every_changed_bit_of_an_event_is_noticed(void **state)
{
	struct sl_audit_event e = example(), back;
	char text[SL_AUDIT_EVENT_BYTES], storage[SL_AUDIT_EVENT_BYTES];
	struct sl_err err = SL_ERR_INIT;
	size_t len;
	(void)state;
	assert_int_equal(sl_audit_event_format(&e, text, &len, &err), 0);
	for (size_t i = 0; i < len * 8; i++) {
		text[i / 8] = (char)(text[i / 8] ^ (1 << (i % 8)));
		int rc = sl_audit_event_parse(text, len, &back, storage, &err);
		text[i / 8] = (char)(text[i / 8] ^ (1 << (i % 8)));
		assert_int_equal(rc, SL_ECORRUPT);
	}
	/* What is possible, and not what was hashed, is reported as such. */
	char *sha256 = strstr(text, "\"sha256\":\"") + strlen("\"sha256\":\""), was = *sha256;
	*sha256 = was == '0' ? '1' : '0';
	assert_int_equal(sl_audit_event_parse(text, len, &back, storage, &err), SL_ECORRUPT);
	assert_non_null(strstr(err.msg, "event_hash"));
	*sha256 = was;
	for (size_t n = 0; n < len; n++)
		assert_int_equal(sl_audit_event_parse(text, n, &back, storage, &err), SL_ECORRUPT);
	text[len] = '\n';
	assert_int_equal(sl_audit_event_parse(text, len + 1, &back, storage, &err), SL_ECORRUPT);
}

/* The same value written otherwise, with the hash that it would have: not canonical. */
static void another_spelling_of_the_same_event_is_refused(void **state)
{
	static const struct {
		const char *from, *to;
	} spellings[] = {{"\"number\":\"1\"", "\"number\":\"01\""},
			 {"\"dataset\":\"ledger\"", "\"dataset\":\"\\u006cedger\""},
			 {",\"version\":1}", ", \"version\":1}"},
			 {"\"type\":\"partition\",\"version\":1", "\"version\":1,\"type\":\"partition\""},
			 {"ledger:4250000", "ledger:4250001"},
			 {"\"name\":\"ledger\"", "\"name\":\"ledgex\""}};
	struct sl_audit_event e = example(), back;
	char text[SL_AUDIT_EVENT_BYTES], other[SL_AUDIT_EVENT_BYTES], storage[SL_AUDIT_EVENT_BYTES];
	struct sl_err err = SL_ERR_INIT;
	size_t len;
	(void)state;
	assert_int_equal(sl_audit_event_format(&e, text, &len, &err), 0);
	for (size_t i = 0; i < SL_COUNT(spellings); i++) {
		const char *at = strstr(text, spellings[i].from);
		assert_non_null(at);
		(void)snprintf(other, sizeof(other), "%.*s%s%s", (int)(at - text), text, spellings[i].to,
			       at + strlen(spellings[i].from));
		assert_int_equal(sl_audit_event_parse(other, strlen(other), &back, storage, &err), SL_ECORRUPT);
	}
}

static void text_that_needs_escapes_comes_back(void **state)
{
	struct sl_audit_event e = example(), back;
	char text[SL_AUDIT_EVENT_BYTES], storage[SL_AUDIT_EVENT_BYTES];
	char column[256], producer[101];
	struct sl_err err = SL_ERR_INIT;
	size_t len;
	(void)state;
	memset(column, '\x01', sizeof(column) - 1);
	column[sizeof(column) - 1] = '\0';
	memcpy(column, "a\"b\\c\n\xC3\xA4", 8);
	memset(producer, '\x02', sizeof(producer) - 1);
	producer[sizeof(producer) - 1] = '\0';
	e.sequence_column = column;
	e.producer = e.producer_version = producer;
	assert_int_equal(sl_audit_event_format(&e, text, &len, &err), 0);
	assert_int_equal(sl_audit_event_parse(text, len, &back, storage, &err), 0);
	assert_string_equal(back.sequence_column, column);
	assert_string_equal(back.producer, producer);
}

static void what_cannot_be_is_not_written(void **state)
{
	struct sl_err err = SL_ERR_INIT;
	char text[SL_AUDIT_EVENT_BYTES];
	size_t len;
	(void)state;
#define REFUSED(field, value)                                                                                          \
	do {                                                                                                           \
		struct sl_audit_event e = example();                                                                   \
		e.field = (value);                                                                                     \
		assert_int_equal(sl_audit_event_format(&e, text, &len, &err), SL_EINVAL);                              \
	} while (0)
	REFUSED(number, 0);
	REFUSED(number, 2); /* without the hash of the one before */
	REFUSED(dataset, "_x");
	REFUSED(dataset, "");
	REFUSED(dataset, "a/b");
	REFUSED(sequence_column, "");
	REFUSED(sequence_column, "\xff");
	REFUSED(partition_size, 0);
	REFUSED(partition_size, 1000);
	REFUSED(end, 4500000);
	REFUSED(start, 4500000);
	REFUSED(rows, 249999);
	REFUSED(holes, 3);
	static const char *const ranges[] = {"",
					     "4250001,4250003-4250006",
					     "4250003-4250005,4250001",
					     "4250001,4250002-4250004",
					     "4250001,4250003-4250005,",
					     "4250001-4250001,4250003-4250005",
					     "04250001,4250003-4250005",
					     "4249999,4250003-4250005",
					     "4250001,4499998-4500000",
					     " 4250001,4250003-4250005",
					     "sha256:00"};
	for (size_t i = 0; i < SL_COUNT(ranges); i++)
		REFUSED(hole_ranges, ranges[i]);
	REFUSED(bytes, UINT64_MAX);
	REFUSED(producer, "");
	REFUSED(type, (enum sl_audit_type)2);
#undef REFUSED
}

static void a_path_that_leads_elsewhere_is_refused(void **state)
{
	static const char *const bad[] = {
		"ledger",          "ledger/",   "/ledger/a",      "ledger//a", "ledger/../a", "ledger/./a",
		"ledger/a/..",     "ledger/..", "ledger/.hidden", "other/a",   "ledgerx/a",   "ledger/a\nb",
		"ledger/_audit/x", "",          "ledger/a\xff",   "ledger/a/", "../ledger/a", "ledger/a\x7f"};
	char longest[SL__AUDIT_PATH_MAX + 2];
	(void)state;
	for (size_t i = 0; i < SL_COUNT(bad); i++)
		assert_false(sl__audit_path_ok("ledger", bad[i]));
	assert_true(sl__audit_path_ok("ledger", "ledger/a"));
	assert_true(sl__audit_path_ok("ledger", "ledger/a/b=c/d.parquet"));
	assert_false(sl__audit_path_ok("ledger", "ledger/_x"));
	memset(longest, 'x', sizeof(longest));
	memcpy(longest, "ledger/", 7);
	longest[SL__AUDIT_PATH_MAX] = '\0';
	assert_true(sl__audit_path_ok("ledger", longest));
	longest[SL__AUDIT_PATH_MAX] = 'x';
	longest[SL__AUDIT_PATH_MAX + 1] = '\0';
	assert_false(sl__audit_path_ok("ledger", longest));
}

static void a_chain_takes_only_what_follows(void **state)
{
	struct sl__audit_chain chain = {.events = 0};
	struct sl_audit_event first = example(), second = example();
	char text[SL_AUDIT_EVENT_BYTES];
	struct sl_err err = SL_ERR_INIT;
	size_t len;
	(void)state;
	assert_int_equal(sl_audit_event_format(&first, text, &len, &err), 0);
	second.number = 2;
	memcpy(second.prev_hash, first.hash, sizeof(first.hash));
	assert_int_equal(sl_audit_event_format(&second, text, &len, &err), 0);
	assert_int_equal(sl__audit_chain_add(&chain, &second, &err), SL_ECORRUPT);
	assert_int_equal(sl__audit_chain_add(&chain, &first, &err), 0);
	assert_int_equal(sl__audit_chain_add(&chain, &first, &err), SL_ECORRUPT);
	second.prev_hash[31] ^= 1;
	assert_int_equal(sl__audit_chain_add(&chain, &second, &err), SL_ECORRUPT);
	second.prev_hash[31] ^= 1;
	assert_int_equal(sl__audit_chain_add(&chain, &second, &err), 0);
	assert_int_equal(chain.events, 2);
	assert_memory_equal(chain.head, second.hash, sizeof(chain.head));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_event_is_the_bytes_that_the_format_says),
		cmocka_unit_test(every_changed_bit_of_an_event_is_noticed),
		cmocka_unit_test(another_spelling_of_the_same_event_is_refused),
		cmocka_unit_test(text_that_needs_escapes_comes_back),
		cmocka_unit_test(what_cannot_be_is_not_written),
		cmocka_unit_test(a_path_that_leads_elsewhere_is_refused),
		cmocka_unit_test(a_chain_takes_only_what_follows),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
