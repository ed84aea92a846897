/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One suite for every sink: what <sluice/adapter/sink.h> promises, as tests. A sink's test program fills a struct
 * sink_fixture and calls sink_contract_run; each test gets its own empty target.
 *
 *	int main(int argc, char **argv)
 *	{
 *		struct sink_fixture f = {.name = "sqlite", .set_up = …, .open = …, .read_back = …, …};
 *		return sink_contract_run(&f, sink_contract_part(argc, argv, NULL));
 *	}
 *
 * and in meson.build, twice: suite ['unit'] without arguments, suite ['threads', 'unit'] with args: ['threads'] (link
 * with sink_contract_lib and support_lib). One program prints one TAP plan.
 *
 * Batches that fail are handled here as a coordinator handles them (sink_deliver): outcomes are honoured, a culprit is
 * taken out, else the batch is halved.
 */
#ifndef TESTS_SINK_CONTRACT_H
#define TESTS_SINK_CONTRACT_H

#include <stdbool.h>

#include <sluice/sink.h>

/* The ids that a target holds. */
struct sink_ids {
	uint64_t *at;
	size_t n, cap;
};
void sink_ids_add(struct sink_ids *ids, uint64_t id);
void sink_ids_fini(struct sink_ids *ids);
bool sink_ids_have(const struct sink_ids *ids, uint64_t id);

struct sink_fixture {
	const char *name;
	/* Before each test: an empty target (a file, a table, a server). 0, or the test fails. NULL: nothing to do. */
	int (*set_up)(void *ctx);
	void (*tear_down)(void *ctx);
	/* A sink on that target, with this environment in its options (NULL: the real one). 0 or a negative SL_E…. */
	int (*open)(sl_sink *out, const struct sl_env *env, struct sl_err *err, void *ctx);
	/* The bytes of item number id, as a text in out; returns its length. NULL: {"id":7,"body":"item 7"}. */
	size_t (*item)(char *out, size_t cap, uint64_t id, void *ctx);
	/* The same of an item that the target will never take. NULL: the target takes everything. */
	size_t (*poison_item)(char *out, size_t cap, uint64_t id, void *ctx);
	/* Every id in the target, in the order of arrival. NULL: what is written cannot be seen. */
	void (*read_back)(struct sink_ids *out, void *ctx);
	/* The target becomes unavailable (a server stopped, a table renamed, a disk full), and comes back. Writes in
	 * between must give SL_CLASS_FATAL. NULL: it cannot. */
	void (*break_target)(void *ctx);
	void (*mend_target)(void *ctx);
	/* From now on a write does not come back by itself; let_go undoes it. await_hang (may be NULL) returns when a
	 * write is stuck. NULL: it cannot. */
	void (*hang)(void *ctx);
	void (*await_hang)(void *ctx);
	void (*let_go)(void *ctx);
	/* A text that no message and no target may show; NULL: no such text. */
	const char *secret;
	/* A batch that failed as a whole may have been taken all the same: items may arrive more than once after a
	 * failure. 0: exactly once, always. */
	int may_repeat;
	int max_lanes; /* of the test with many; 0: 8 */
	void *ctx;
};

enum sink_contract_part {
	SINK_CONTRACT_PLAIN = 1,  /* one thread */
	SINK_CONTRACT_THREADS = 2 /* lanes at once, boxed by SLUICE_TEST_SECONDS */
};

/* From the arguments of main: [threads] [WAY], where WAY is one of ways (ends with NULL; NULL: the sink has one way).
 * Anything else ends the program with 64, so that a mistyped name never passes. */
enum sink_contract_part sink_contract_part(int argc, char **argv, const char *ways[]);
/* Run the tests as one cmocka group. The number of failed tests. */
int sink_contract_run(const struct sink_fixture *fixture, enum sink_contract_part part);

/* ---- for tests of a single sink ---- */

/* A run of items with ids first … first + n - 1, made by the fixture. */
struct sink_run {
	struct sl_sink_item *items;
	char *text;
	size_t n;
};
void sink_run_make(struct sink_run *r, const struct sink_fixture *f, uint64_t first, size_t n);
/* Item i becomes one that the target refuses. */
void sink_run_poison(struct sink_run *r, const struct sink_fixture *f, size_t i);
void sink_run_fini(struct sink_run *r);

/* What came of a delivery. */
struct sink_delivery {
	struct sink_ids dead;  /* positions of items that were refused for good */
	size_t writes;         /* calls of write */
	struct sl_err err;     /* the last failure; code 0: none */
	struct sl_err dead_as; /* the last failure that made an item dead */
	const char *secret;    /* not to be in any message; NULL: none */
};

/* One call of write, with a fresh reply. outcomes: room for n. The rules of replies are asserted. */
int sink_write(const sl_sink *sink, void *lane, const struct sl_sink_item *items, size_t n, struct sl_sink_reply *reply,
	       uint8_t *outcomes, struct sl_err *err);
/* Write all n items as a coordinator would, without waiting between tries. 0 when each is written or in d->dead; else
 * the failure that was not poison, and what is not written may be delivered again. */
int sink_deliver(const sl_sink *sink, void *lane, const struct sl_sink_item *items, size_t n, struct sink_delivery *d);
void sink_delivery_fini(struct sink_delivery *d);

/* A lane of the sink, or the sink's ctx when it has no attach. Asserts success. */
void *sink_attach(const sl_sink *sink);
void sink_detach(const sl_sink *sink, void *lane);

/* The target holds exactly the ids first … first + n - 1 but those of dead (may be NULL): in order when `in_order`,
 * once each when `once`. Fails the test when not. */
void sink_expect(const struct sink_fixture *f, uint64_t first, size_t n, const struct sink_ids *dead, bool in_order,
		 bool once);

#endif
