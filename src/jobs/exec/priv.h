/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands as handlers, as the files of this folder see them.
 *
 *   exec.c      the handle, the handler, how an attempt ends   minder.c    the process next to the worker
 *   run.c       one command: start, follow, append             spool.c     the bytes of a spool
 *   launch.c    arguments and environment                      capture.c   frames into events
 *   pool.c      minders, idle and at work                      protocol.c  descriptor 3
 *   recover.c   spools that a dead worker has left             user.c      the user that commands run as
 *   find.c      is the command there, before it is needed
 *
 * Locks: `mu` of the handle guards the idle minders and the retired spools; no I/O happens under it. A minder that is
 * at work belongs to its attempt's thread.
 */
#ifndef SL_JOBS_EXEC_PRIV_H
#define SL_JOBS_EXEC_PRIV_H

#include "base/thread.h"
#include "jobs/exec/capture.h"
#include "jobs/exec/minder.h"
#include <sluice/exec.h>

/* A minder as the worker sees it. */
struct sl__minder {
	struct sl__minder *next; /* of the idle ones */
	pid_t pid;
	int ctl;   /* our end of the socket */
	int spool; /* locked; the same open file as the minder's */
	char *path;
	struct sl__minder_shared *shared;
	bool dead; /* seen to be */
	/* While it settles: */
	struct sl_wal_ticket ticket; /* the last event of its attempt */
	struct sl__spool_header header;
};

/* A spool whose events could not be appended. */
struct sl__retired {
	struct sl__retired *next;
	char *path;
};

struct sl_exec {
	/* Fixed after new: minders have a copy of it from their fork. */
	struct sl_env env;
	pid_t pid;
	sl_wal *events;
	uint32_t incarnation;
	bool sealed; /* the log has a key: spools are encrypted */
	char *spool_dir;
	int64_t kill_grace_ms, max_line_bytes;
	bool may_reschedule;
	sl_exec_tap_fn *tap;
	void *tap_ctx;
	char **argv;     /* NULL: the job's input names it */
	char **paths;    /* what argv[0] may mean */
	char **base_env; /* of all attempts, without our own names */
	size_t n_base_env;
	char *search; /* PATH */
	struct sl__env_area env_area;
	struct sl__exec_user *user; /* of the commands; NULL: that of this process */

	_Atomic uint64_t sequence; /* the highest of an event that this handle knows to be in the log */
	sl__mutex mu;
	struct sl__minder *idle;
	struct sl__minder *settling; /* the attempt has ended, its last events are not durable yet */
	uint32_t running;            /* attempts */
	_Atomic uint32_t n_settling;
	struct sl__retired *retired;
	int64_t retry_retired_ns; /* not before */
	struct sl__prng prng;     /* names of spools, salts */
};

/* The calls on an attempt that a command needs: the worker's, or a test's. */
struct sl__exec_ops {
	const struct sl_job *(*job)(const sl_attempt *attempt);
	struct sl_claim_id (*claim)(const sl_attempt *attempt);
	int (*abort_fd)(sl_attempt *attempt, struct sl_err *err);
	enum sl_abort_reason (*aborted)(const sl_attempt *attempt);
	int (*progress)(sl_attempt *attempt, const char *json, struct sl_err *err);
	int64_t (*retry_delay_ms)(const sl_attempt *attempt);
	/* May be NULL. Did the job come over HTTP? Called only where the input names the command. */
	int (*from_http)(const sl_attempt *attempt, bool *out, struct sl_err *err);
	/* May be NULL. The attempt's last event was submitted to the log: the worker waits for the ticket before it
	 * settles the job, and fails the attempt when it fails. Without it, the handler waits. */
	int (*emitted)(sl_attempt *attempt, const struct sl_wal_ticket *last, struct sl_err *err);
	/* May be NULL. The log or the spool did not accept the attempt's output: it is not to be charged for that. */
	void (*unlogged)(sl_attempt *attempt, const struct sl_err *why);
	int (*complete)(sl_attempt *attempt, const char *output, struct sl_err *err);
	int (*continue_with)(sl_attempt *attempt, const struct sl_new_job *next, struct sl_err *err);
	int (*fail)(sl_attempt *attempt, const char *reason, struct sl_err *err);
	int (*reschedule_in)(sl_attempt *attempt, int64_t delay_ms, struct sl_err *err);
};

/* exec.c */
/* All of sl_exec_process: run the command of the attempt, and end it. */
SL_MUST_CHECK int sl__exec_process(sl_exec *x, const struct sl__exec_ops *ops, sl_attempt *attempt, struct sl_err *err);

/* run.c */
/* How a command went; its protocol is in the capture. */
struct sl__exec_result {
	bool aborted;     /* it was ended because the attempt was aborted */
	bool minder_died; /* how it has exited is unknown */
	bool reported;    /* a failure of the log was, by `unlogged` */
	struct sl__capture capture;
};
/* Run the command until it has ended and all its events are durable. r->capture is for the caller to fini in any case.
 * On failure the events are in the spool, which stays to be recovered. */
SL_MUST_CHECK int sl__exec_run(sl_exec *x, const struct sl__exec_ops *ops, sl_attempt *attempt,
			       struct sl__exec_result *r, struct sl_err *err);

/* launch.c */
/* Where commands without a slash are looked up: PATH, or what stands in for it. */
const char *sl__launch_search(void);
SL_MUST_CHECK int sl__launch_fixed(sl_exec *x, const char *const *argv, const char *const *environment,
				   struct sl_err *err);
void sl__launch_free(sl_exec *x);
/* Write argv, environment and folder of the job into the minder's shared memory. *stdin_text: what the command reads.
 * SL_EDATA: the input does not name a command; SL_ETOOBIG. */
SL_MUST_CHECK int sl__launch_prepare(const sl_exec *x, struct sl__minder_shared *shared, const struct sl_job *job,
				     const char **stdin_text, struct sl_err *err);

/* pool.c: every acquire is followed by one of release, settle and retire. */
SL_MUST_CHECK int sl__minder_acquire(sl_exec *x, struct sl__minder **out, struct sl_err *err);
/* Idle again, or gone when it is dead. */
void sl__minder_release(sl_exec *x, struct sl__minder *m);
/* Idle once the ticket has succeeded; its spool to be recovered when that fails. */
void sl__minder_settle(sl_exec *x, struct sl__minder *m, const struct sl_wal_ticket *ticket,
		       const struct sl__spool_header *header);
/* Finish those whose events are durable; wait: all of them. It is called as long as there are any, by an attempt that
 * runs or by the last one that ends. So a spool does not stay unfinished while its events leave with the log. */
void sl__minder_settled(sl_exec *x, bool wait);
/* End it, but keep its spool, to be recovered. */
void sl__minder_retire(sl_exec *x, struct sl__minder *m);
/* End an idle one. */
void sl__minder_end(sl_exec *x, struct sl__minder *m);
/* The highest sequence that is known grows. */
void sl__exec_saw(sl_exec *x, uint64_t sequence);
SL_MUST_CHECK int sl__minder_write_header(const sl_exec *x, const struct sl__minder *m,
					  const struct sl__spool_header *header, struct sl_err *err);
/* Send 'R' with the descriptors. false: it is dead. */
bool sl__minder_run(struct sl__minder *m, const int fds[SL__MINDER_FDS]);
void sl__minder_send(struct sl__minder *m, char what);

/* recover.c */
/* Retry to append what earlier attempts of this handle could not append. */
void sl__exec_retry_retired(sl_exec *x, bool now);

#endif
