/* SPDX-License-Identifier: Apache-2.0 */
/* A coordinator over an HTTP server that fails in every way, by seeds: nothing is lost, nothing taken twice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sluice/coordinator.h>

#include "sink/http_kit.h"
#include "support/budget.h"

#define ITEMS 600
#define POISON_EVERY 97

struct deaths {
	_Atomic unsigned n;
	_Atomic bool wrong;
};

static void count_death(const struct sl_item *item, const struct sl_err *err, uint32_t attempts, void *ctx)
{
	struct deaths *d = ctx;
	(void)attempts;
	d->n++;
	if (item->position % POISON_EVERY != 0 || err->error_class != SL_CLASS_POISON)
		d->wrong = true;
}

static void submit_all(sl_coordinator *c)
{
	char text[64];
	for (unsigned id = 1; id <= ITEMS; id++) {
		int n = snprintf(text, sizeof(text), "{\"id\":%u,\"body\":\"%s\"}", id,
				 id % POISON_EVERY == 0 ? "poison" : "x");
		const struct sl_item item = {.data = text, .len = (size_t)n, .position = id};
		assert_int_equal(sl_coordinator_submit_many(c, &item, 1, SL_UNLIMITED, NULL), 0);
	}
}

static void expect_each_once(void)
{
	unsigned char seen[ITEMS + 1] = {0};
	char *end;
	for (const char *p = http_server_command(&http_server, "ids"); *p != '\0'; p = end + (*end == ' ')) {
		unsigned long id = strtoul(p, &end, 10);
		assert_in_range(id, 1, ITEMS);
		if (seen[id]++ != 0)
			fail_msg("item %lu came twice", id);
	}
	for (unsigned id = 1; id <= ITEMS; id++)
		if (seen[id] != (id % POISON_EVERY != 0))
			fail_msg("item %u is %s", id, seen[id] ? "poison and was taken" : "missing");
}

static void run_through_faults(unsigned seed)
{
	struct deaths deaths = {.n = 0};
	struct sl_err err = SL_ERR_INIT;
	struct sl_coordinator_report report = {.struct_size = sizeof(report)};
	const struct sl_coordinator_opts opts = {
		SL_COORDINATOR_OPTS_INIT,
		.batch_size = 20,
		.flush_interval_ms = SL_NONE,
		.retry.policy = {.max_attempts = SL_UNLIMITED, .first_ms = 1, .cap_ms = 4, .multiplier = 2},
		.breaker.open_ms = 1,
		.breaker.open_max_ms = 4,
		.unwritten.on_dead = count_death,
		.unwritten.dead_ctx = &deaths};
	sl_coordinator *c = NULL;
	(void)http_server_command(&http_server, "clear");
	(void)http_server_command(&http_server, "chaos %u 0.6", seed);
	sl_sink sink = http_open(http_url("/in"), &(struct sl_sink_opts){SL_SINK_OPTS_INIT, .timeout_ms = HTTP_HANG_MS,
									 .body = (enum sl_http_body)(seed % 3),
									 .connect_timeout_ms = 5000});
	if (sl_coordinator_new(&c, &sink, &opts, &err) != 0)
		fail_msg("%s", err.msg);
	submit_all(c);
	if (sl_coordinator_stop(c, SL_UNLIMITED, &report, &err) != 0)
		fail_msg("%s", err.msg);
	assert_int_equal(sl_coordinator_free(c), 0);
	sl_sink_close(&sink);
	struct http_counts n = http_server_counts(&http_server);
	print_message("# seed %u: %u requests for %u batches, %u of them sent again after they had been taken\n", seed,
		      n.requests, n.batches, n.repeats);
	assert_int_equal(report.written, ITEMS - ITEMS / POISON_EVERY);
	assert_int_equal(report.dead, ITEMS / POISON_EVERY);
	assert_int_equal(deaths.n, ITEMS / POISON_EVERY);
	assert_false(deaths.wrong);
	expect_each_once();
}

static void every_item_arrives_once_by_its_key_through_all_faults(void **state)
{
	double until = seconds_now() + test_seconds(1);
	unsigned seed = 1;
	(void)state;
	do {
		run_through_faults(seed++);
	} while (seconds_now() < until || seed < 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HTTP_TEST(every_item_arrives_once_by_its_key_through_all_faults),
	};
	http_server_start(&http_server, NULL, NULL);
	int failed = cmocka_run_group_tests_name("http_faults", tests, NULL, NULL);
	http_server_stop(&http_server);
	return failed;
}
