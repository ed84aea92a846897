/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the contract suite share: the test's state, short names for the slots that fail the test when the
 * call fails, and collectors for callbacks.
 *
 * Thread safety: helpers that take a struct kit may be used by several threads, each with its own collectors. A helper
 * that fails on a thread other than the test's aborts the program with a message: cmocka can only jump on its own.
 */
#ifndef TESTS_CONTRACT_KIT_H
#define TESTS_CONTRACT_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "jobs/store_contract.h"

#define KIT_LONG_MS 3600000 /* a lease that no test outlives */
#define KIT_MAX 512         /* jobs in a claim, rows in a collector */

struct kit {
	bool busy;                           /* claims find no slot free; otherwise one */
	const struct sl_retry_policy *retry; /* of reaps, or NULL */
	const struct contract_fixture *f;
	sl_store store;
	const struct sl_store_ops *ops;
	void *s; /* store.ctx */
};

/* ---- what callbacks reported ---- */

struct kit_note {
	enum sl_note_kind kind;
	enum sl_lost_reason reason;
	uint64_t id;
	char type[64];
};
struct kit_change {
	enum sl_change_kind kind;
	uint64_t id, chain_id;
};
struct kit_heard {
	struct kit_note notes[KIT_MAX];
	struct kit_change changes[KIT_MAX];
	size_t n_notes, n_changes;
	struct sl_store_scope scope; /* made by kit_hear */
};
const struct sl_store_scope *kit_hear(struct kit_heard *heard); /* empties it */
/* How many notes of the kind; type NULL and id 0 are any. */
size_t kit_notes(const struct kit_heard *heard, enum sl_note_kind kind, const char *type, uint64_t id);
size_t kit_changes(const struct kit_heard *heard, enum sl_change_kind kind, uint64_t id);
/* The reason with which ownership of the job was lost; SL_LOST_NOT: no such note. */
enum sl_lost_reason kit_lost_note(const struct kit_heard *heard, uint64_t id);

struct kit_job {
	uint64_t id, chain_id, fence;
	char type[64];
	char input[64];
	char traceparent[64];
	int32_t attempt, priority;
	int32_t charged; /* before this run */
	int has_blockers;
};
struct kit_claim {
	struct sl_claim_id id;
	char worker[32];
	struct sl_claim_reply reply;
	uint32_t n;
	struct kit_job jobs[KIT_MAX];
};

/* ---- strings of a row, cut ---- */
struct kit_row {
	struct sl_job job; /* its strings point to the arrays below, or are NULL */
	char type[64], input[128], output[128], error[128], progress[128], key[64], traceparent[64], leased_by[64];
	size_t output_len;
};
struct kit_chain {
	struct sl_chain chain;
	char type[64], at_type[64], input[128], output[128], error[128], key[64];
};
struct kit_ids {
	uint64_t ids[KIT_MAX];
	size_t n;
};

/* ---- calls that must succeed ---- */

/* Fail the test (or, on another thread, the program) when rc is not 0. */
#define KIT_OK(call)                                                                                                   \
	do {                                                                                                           \
		struct sl_err err_ = SL_ERR_INIT;                                                                      \
		struct sl_err *err = &err_;                                                                            \
		int rc_ = (call);                                                                                      \
		kit_check(rc_, err, #call, __FILE__, __LINE__);                                                        \
	} while (0)
/* The call fails with this code. `err` is visible inside. */
#define KIT_FAILS(code_, call)                                                                                         \
	do {                                                                                                           \
		struct sl_err err_ = SL_ERR_INIT;                                                                      \
		struct sl_err *err = &err_;                                                                            \
		int rc_ = (call);                                                                                      \
		kit_expect(code_, rc_, err, #call, __FILE__, __LINE__);                                                \
	} while (0)
void kit_check(int rc, const struct sl_err *err, const char *call, const char *file, int line);

/* Did the call fail because another caller meanwhile ended or deleted its chains, or deleted their blockers? */
static inline bool kit_overtaken(int rc)
{
	return rc == SL_ENOENT || rc == SL_EEXIST || rc == SL_EPENDING || rc == SL_ECONFLICT;
}
void kit_expect(int code, int rc, const struct sl_err *err, const char *call, const char *file, int line);
/* An assertion for threads. */
#define KIT_TRUE(cond) kit_true((cond), #cond, __FILE__, __LINE__)
void kit_true(bool ok, const char *cond, const char *file, int line);

/* This thread is the test's. */
void kit_set_thread(void);
void kit_open(struct kit *k, const struct contract_fixture *f);
void kit_close(struct kit *k);
int64_t kit_now(struct kit *k);
/* Until the store's clock has moved on by ms. */
void kit_pass_ms(struct kit *k, int64_t ms);
/* Boxes for loops: from SLUICE_TEST_SECONDS, default 1. */
int64_t kit_box_ns(void);
int64_t kit_mono_ns(void);

uint64_t kit_start(struct kit *k, const char *type);
uint64_t kit_start_job(struct kit *k, const struct sl_new_job *job);
uint64_t kit_start_after(struct kit *k, const char *type, const uint64_t *blockers, size_t n);
struct sl_started kit_start_key(struct kit *k, const char *key, enum sl_dedup_scope scope, int64_t window_ms);

/* Claim at most limit of one type (NULL: "t") under a lease of lease_ms (0: KIT_LONG_MS), as a new worker. */
void kit_claim(struct kit *k, const char *type, uint32_t limit, int64_t lease_ms, struct kit_claim *out);
void kit_claim_types(struct kit *k, const struct sl_claim_type *types, size_t n, uint32_t limit, int64_t lease_ms,
		     struct kit_claim *out);
/* As a worker that has nothing and was notified of a job. */
void kit_claim_hinted(struct kit *k, const char *type, uint32_t limit, struct kit_claim *out);
/* Ask for the jobs of a claim as if its answer had been lost. */
void kit_claim_again(struct kit *k, const char *type, const struct kit_claim *claim, struct kit_claim *out);
/* The one job that must be claimable. */
struct kit_job kit_claim_one(struct kit *k, const char *type, struct kit_claim *out);
/* A settle of job i, filled but for what its kind needs. last_of_claim when the claim has one job. */
struct sl_settle kit_settle(const struct kit_claim *claim, size_t i, enum sl_settle_kind kind);
struct sl_settle_result kit_exchange(struct kit *k, const struct sl_settle *settle, struct kit_heard *heard);
/* Settle job i of the claim: must not be lost. */
void kit_complete(struct kit *k, const struct kit_claim *claim, size_t i, const char *output);
void kit_fail(struct kit *k, const struct kit_claim *claim, size_t i);
void kit_retry(struct kit *k, const struct kit_claim *claim, size_t i, int64_t delay_ms);
/* Claim the one job of the type and complete it. */
void kit_run(struct kit *k, const char *type, const char *output);
/* Reap all that is expired of the type; the number. */
uint32_t kit_reap(struct kit *k, const char *type, struct kit_heard *heard);
/* Claim one with a lease that ends at once, and wait until it has. */
void kit_claim_expired(struct kit *k, const char *type, uint32_t limit, struct kit_claim *out);

void kit_get(struct kit *k, uint64_t id, struct kit_row *out);
void kit_get_chain(struct kit *k, uint64_t id, struct kit_chain *out);
enum sl_job_status kit_status(struct kit *k, uint64_t id);
bool kit_exists(struct kit *k, uint64_t id);
void kit_list(struct kit *k, const struct sl_job_filter *filter, struct kit_ids *out);
void kit_list_chains(struct kit *k, const struct sl_job_filter *filter, struct kit_ids *out);
/* The outcomes of a job's attempts, one letter each, in order: r running, c completed, f failed, R reaped,
 * s rescheduled, b released, a aborted. */
void kit_outcomes(struct kit *k, uint64_t id, char out[KIT_MAX]);

int kit_noop_claimed(const struct sl_claimed_job *job, void *ctx);

/* ---- the parts of the suite ---- */
struct contract_tests {
	const struct CMUnitTest *tests;
	size_t n;
};
#define CONTRACT_TESTS(name, array)                                                                                    \
	struct contract_tests name(void)                                                                               \
	{                                                                                                              \
		return (struct contract_tests){array, sizeof(array) / sizeof((array)[0])};                             \
	}
struct contract_tests contract_claim_tests(void);
struct contract_tests contract_settle_tests(void);
struct contract_tests contract_chain_tests(void);
struct contract_tests contract_admin_tests(void);
struct contract_tests contract_audit_tests(void);
struct contract_tests contract_retention_tests(void);
struct contract_tests contract_list_tests(void);
struct contract_tests contract_counts_tests(void);
struct contract_tests contract_look_tests(void);
struct contract_tests contract_event_tests(void);
struct contract_tests contract_tx_tests(void);
struct contract_tests contract_threads_tests(void);

#endif
