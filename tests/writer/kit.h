/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of the block writer: a virtual clock, and a driver that writes down what it is asked and completes a write
 * when the test says so, or at once (`at_once`), or as `script` says.
 *
 * kit_quiet returns when the loop sleeps and nothing is left that could wake it but the test: then what has not
 * happened will not happen by itself.
 */
#ifndef TESTS_WRITER_KIT_H
#define TESTS_WRITER_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/vclock.h"
#include <sluice/writer.h>

#define KIT_MAX 4096

struct kit;
/* Called in schedule_write, without a lock; number counts calls from 1. What schedule_write returns; complete by
 * kit_complete, or not. */
typedef int kit_script(struct kit *k, int number, struct sl_err *err);

struct kit_write {
	char hash[72];
	size_t len;
	const void *bytes;
	uint32_t attempt;
	struct sl_write write;
	int64_t at_ms; /* of the virtual clock, since its start */
};

struct kit_unwritten {
	char hash[72];
	uint32_t attempts;
	struct sl_err reason;
};

struct kit {
	struct vclock clock;
	struct sl_env env;
	struct sl_writer_driver_ops ops;
	struct sl_writer_opts opts; /* without env, ctx and callbacks, which kit_new fills in */
	sl_writer *w;
	bool at_once;
	kit_script *script;

	pthread_mutex_t mu;
	pthread_cond_t changed;
	struct kit_write writes[KIT_MAX];
	int n_writes;
	char blocked[16][8]; /* shard keys that are not ready */
	char asked[KIT_MAX][8];
	int n_asked;
	int driver_waits;           /* calls of wait_for_any_shard_ready */
	int64_t driver_wait_ms[64]; /* their timeouts */
	bool driver_says_ready;
	uint64_t buffered;
	uint32_t limits[256]; /* passed to on_concurrency_limit_changed */
	int64_t limits_at_ms[256];
	int n_limits;

	struct {
		uint64_t queued, in_flight, buffered;
	} metrics[KIT_MAX];
	int n_metrics;
	uint64_t physical;
	int n_physical;
	char written[KIT_MAX][72];
	int n_written;
	struct kit_unwritten unwritten[KIT_MAX];
	int n_unwritten;
	int released;
	char *log; /* logfmt lines without their times */
	size_t log_len;
};

int kit_set_up(void **state);
int kit_tear_down(void **state); /* cancels and completes what is still there */
/* Make the writer with the kit's clock, driver, options and callbacks. */
void kit_new(struct kit *k);
/* kit_new, and start its thread. */
void kit_start(struct kit *k);
void kit_quiet(struct kit *k);
/* Move the clock and let the loop do what is due. */
void kit_pass_ms(struct kit *k, int64_t ms);
int64_t kit_now_ms(struct kit *k);

void kit_enqueue(struct kit *k, const char *hash, size_t len);
/* The first call of schedule_write whose write is not completed for this hash; index into writes. */
int kit_find(struct kit *k, const char *hash, uint32_t attempt);
/* Complete call number i (from 0); NULL: success. Waits until the loop has dealt with it. */
void kit_complete(struct kit *k, int i, const struct sl_err *err);
/* Complete everything that comes with success until the writer has ended; returns what join says. */
int kit_finish(struct kit *k);
/* "aaaa1 bbbb1 …" of the calls from first on; free it. */
char *kit_order(struct kit *k, int first);
void kit_block_shard(struct kit *k, const char *key, bool blocked);
struct sl_err kit_error(enum sl_err_class error_class, const char *msg);
struct sl_writer_stats kit_stats(struct kit *k);
/* How many lines of the log have this text. */
int kit_logged(struct kit *k, const char *text);

#endif
