/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run of a program: a file of memory as its standard input, its standard output where this process has its own, the
 * end of its standard error kept.
 *
 * Guarantees: the program is the leader of its own process group, with no descriptor of this process but 0, 1 and
 * 2, default signal actions and nothing blocked; it is killed when the thread that started it dies. It sees all of its
 * input or is never started. No signal reaches this process. When run returns, the program has ended and is reaped.
 * Not guaranteed: that programs which it started in turn have ended, unless the run was cut short.
 *
 * Thread safety: any number of runs at once. Ownership: everything is borrowed for the call.
 */
#ifndef SL_SINK_EXEC_RUN_H
#define SL_SINK_EXEC_RUN_H

#include "base/env.h"

#define SL__EXEC_TAIL 512 /* bytes of standard error that are kept */

enum sl__exec_end {
	SL__EXEC_EXITED,    /* by itself: status says how */
	SL__EXEC_TIMED_OUT, /* ended because its time was over */
	SL__EXEC_CANCELLED, /* ended because `cancel` became readable */
	SL__EXEC_LOST       /* other code has reaped it: how it ended is unknown */
};

struct sl__exec_result {
	enum sl__exec_end end;
	int status; /* as of waitpid */
	char tail[SL__EXEC_TAIL + 1];
	size_t tail_len;
};

struct sl__exec_program {
	char *const *argv; /* argv[0] is looked for in PATH */
	char *const *envp;
	int cancel;         /* descriptor */
	int64_t timeout_ms; /* SL_UNLIMITED allowed */
};

/* SL_EUNAVAIL: it cannot be started (not there, not allowed); SL_EAGAIN, SL_ENOMEM: not now. */
SL_MUST_CHECK int sl__exec_run_program(const struct sl__exec_program *p, const void *input, size_t len,
				       struct sl__exec_result *out, struct sl_err *err);

#endif
