/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder with a log and a handle for commands, and attempts that are made of nothing: what the handler does with them
 * is noted as text. For tests of commands without a worker.
 */
#ifndef TESTS_JOBS_EXECBOX_H
#define TESTS_JOBS_EXECBOX_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "jobs/exec/priv.h"

/* An attempt. */
struct fake {
	struct sl_job job;
	struct sl_claim_id claim;
	int abort_fd; /* an eventfd */
	_Atomic int reason;
	int64_t retry_delay_ms;
	char text[512];     /* "complete null", "continue next {…} p5 d7 b[1,2]", "fail why", "reschedule 100" */
	char progress[256]; /* the last one */
};
extern const struct sl__exec_ops fake_ops;
/* The fake as fake_ops takes it. */
static inline sl_attempt *fake_attempt(struct fake *f)
{
	return (sl_attempt *)(void *)f;
}
void fake_init(struct fake *f, uint64_t id, const char *input);
void fake_fini(struct fake *f);
void fake_abort(struct fake *f, enum sl_abort_reason reason);

struct execbox {
	char dir[64];    /* a fresh folder below TMPDIR or /tmp */
	char spool[128]; /* <dir>/w.spool */
	sl_wal *log;     /* <dir>/w.wal */
	sl_exec *exec;
	struct sl_exec_opts opts; /* for execbox_exec */
	struct sl_err err;
	uint64_t next_id;
	const char *key_file; /* of the log; NULL: none */
	int keep_going;       /* the log is not asserted to be open at fini */
};

void execbox_init(struct execbox *b);
void execbox_fini(struct execbox *b);
void execbox_open_log(struct execbox *b);
void execbox_close_log(struct execbox *b);
/* Make the handle; argv NULL: from the input. */
void execbox_exec(struct execbox *b, const char *const *argv);
/* The same with sh -c script. */
void execbox_sh(struct execbox *b, const char *script);
/* One attempt with the input; b->err is cleared before. What the attempt noted is in f, which is finished. */
int execbox_run(struct execbox *b, struct fake *f, const char *input);
/*
 * The events of a job (0: of all) in the log, one per line: "started", "out 0 text", "err 5 text", "progress 0 …",
 * "exited {…}", "error 0 text"; partial ones have a "+" after the position; bytes that are not printed are "\xNN". Job
 * ids come first when all are asked for. Valid until the next call.
 */
const char *execbox_events(struct execbox *b, uint64_t job_id);
#define assert_events(b, job_id, text) assert_string_equal(execbox_events(b, job_id), text)
/* Files in the spool folder. */
size_t execbox_spools(struct execbox *b);
/* Of children of this process, zombies too. */
size_t execbox_children(void);

#endif
