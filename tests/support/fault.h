/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables for tests that count every I/O call and allocation, fail chosen ones, and know what was not
 * given back. They stand on other tables (the real ones, or a test's own).
 *
 *	struct fault f;
 *	fault_init(&f, NULL);
 *	struct sl_env env = fault_env(&f, NULL);
 *	for (int64_t n = 1;; n++) {
 *		fault_arm_io(&f, n, FAULT_ONCE, EIO, FAULT_ALL_OPS);
 *		… run, check what it promised …
 *		fault_disarm(&f);
 *		if (fault_io_failed(&f) == 0)
 *			break;                          no call was left to fail
 *	}
 *	assert_int_equal(fault_open_fds(&f), 0);
 *	assert_int_equal(fault_live_allocs(&f), 0);
 *
 * A call that is made to fail has no effect, except: close really closes; a pwrite may write a part first
 * (partial_writes); with FAULT_FROM the program has died in effect, and what is on disk is what a kill -9 would leave.
 *
 * Thread safety: counting and failing are safe from any thread; arm and disarm only while nothing runs.
 */
#ifndef TESTS_FAULT_H
#define TESTS_FAULT_H

#include <pthread.h>

#include <sluice/adapter/env.h>

enum fault_op {
	FAULT_OPEN,
	FAULT_CLOSE,
	FAULT_PREAD,
	FAULT_PWRITE,
	FAULT_DATASYNC,
	FAULT_SYNC,
	FAULT_TRUNCATE,
	FAULT_FSTAT,
	FAULT_STAT,
	FAULT_RENAME,
	FAULT_UNLINK,
	FAULT_MKDIR,
	FAULT_LIST,
	FAULT_LOCK,
	FAULT_N_OPS
};
#define FAULT_OP(op) (1u << (op))
#define FAULT_ALL_OPS (FAULT_OP(FAULT_N_OPS) - 1)
#define FAULT_SYNC_OPS (FAULT_OP(FAULT_DATASYNC) | FAULT_OP(FAULT_SYNC))

enum fault_mode { FAULT_ONCE, FAULT_FROM /* that one and every later one */ };

struct fault_plan {
	int64_t at; /* the call that fails, from 1; 0: none */
	enum fault_mode mode;
	int64_t calls;  /* seen since armed */
	int64_t failed; /* made to fail since armed */
};

struct fault {
	const struct sl_io *io; /* beneath */
	void *io_ctx;
	const struct sl_mem *mem;
	void *mem_ctx;
	pthread_mutex_t mu;
	struct fault_plan io_plan, mem_plan;
	int io_errno;       /* what a failing call returns, positive */
	unsigned io_ops;    /* which calls count and may fail */
	int partial_writes; /* 1: a pwrite that fails has written half of its bytes */
	int64_t op_calls[FAULT_N_OPS];
	int64_t open_fds, live_allocs;
	char failed_op[16]; /* the name of the last call that was made to fail */
};

extern const struct sl_io fault_io;
extern const struct sl_mem fault_mem;

/* Stand on the io and mem of `beneath` (NULL, or NULL inside: the real ones). Nothing fails until armed. */
void fault_init(struct fault *f, const struct sl_env *beneath);
void fault_fini(struct fault *f);
/* A copy of base (NULL: empty) with this fault's io and mem in it. */
struct sl_env fault_env(struct fault *f, const struct sl_env *base);

/* Both start counting from zero. */
void fault_arm_io(struct fault *f, int64_t at, enum fault_mode mode, int errnum, unsigned ops);
void fault_arm_mem(struct fault *f, int64_t at, enum fault_mode mode);
/* Stop failing; the counts since arming stay readable. */
void fault_disarm(struct fault *f);

int64_t fault_io_failed(struct fault *f);
int64_t fault_mem_failed(struct fault *f);
int64_t fault_open_fds(struct fault *f);
int64_t fault_live_allocs(struct fault *f);

#endif
