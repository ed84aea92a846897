/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands as handlers, as the files of this folder see them.
 *
 *   exec.c          the handle, and how an attempt ends        exec/minder.c   the process beside the worker
 *   exec/attempt.c  the handler of <sluice/exec.h>             exec/pump.c     pipes into the spool
 *   exec/run.c      one command: start, follow, append         exec/spool.c    the bytes of a spool
 *   exec/launch.c   arguments and environment                  exec/capture.c  frames into events
 *   exec/pool.c     minders, idle and at work                  exec/protocol.c descriptor 3
 *   exec/recover.c  spools that a dead worker has left         exec/lost.c     spools without a log
 *   exec/user.c     the user that commands run as
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
	char *spool_dir;
	int64_t kill_grace_ms, max_line_bytes;
	bool may_reschedule;
	sl_exec_tap_fn *tap;
	void *tap_ctx;
	char **argv;     /* NULL: the job's input says it */
	char **paths;    /* what argv[0] may mean */
	char **base_env; /* of all attempts, without our own names */
	size_t n_base_env;
	char *search; /* PATH */
	struct sl__env_area env_area;
	struct sl__exec_user *user; /* of the commands; NULL: that of this process */

	_Atomic uint64_t sequence; /* the highest of an event that this handle knows to be in the log */
	sl__mutex mu;
	struct sl__minder *idle;
	struct sl__minder *settling; /* the attempt has ended, its last events are on their way to the disk */
	uint32_t running;            /* attempts */
	_Atomic uint32_t n_settling;
	struct sl__retired *retired;
	int64_t retry_retired_ns; /* not before */
	struct sl__prng prng;     /* names of spools, salts */
};

/* What an attempt is to the command that serves it: the worker's, or a test's. */
struct sl__exec_ops {
	const struct sl_job *(*job)(void *attempt);
	struct sl_claim_id (*claim)(void *attempt);
	int (*abort_fd)(void *attempt, struct sl_err *err);
	enum sl_abort_reason (*aborted)(void *attempt);
	void (*progress)(void *attempt, const char *json);
	int64_t (*retry_delay_ms)(void *attempt);
	/* May be NULL. Did the job come over HTTP? Asked only where the input names the command. */
	int (*from_http)(void *attempt, bool *out, struct sl_err *err);
	/* May be NULL. The attempt's last event is on its way to the disk: whoever settles the job waits for the ticket
	 * first, and fails the attempt when it fails. Without it, the handler waits. */
	int (*emitted)(void *attempt, const struct sl_wal_ticket *last, struct sl_err *err);
	/* May be NULL. The log or the spool did not accept the attempt's output: it is not to be charged for that. */
	void (*unlogged)(void *attempt, const struct sl_err *why);
	int (*complete)(void *attempt, const char *output, struct sl_err *err);
	int (*continue_with)(void *attempt, const struct sl_new_job *next, struct sl_err *err);
	int (*fail)(void *attempt, const char *reason, struct sl_err *err);
	int (*reschedule_in)(void *attempt, int64_t delay_ms, struct sl_err *err);
};

/* exec.c */
/* All of sl_exec_process: run the command of the attempt, and end it. */
SL_MUST_CHECK int sl__exec_process(sl_exec *x, const struct sl__exec_ops *ops, void *attempt, struct sl_err *err);

/* exec/run.c */
/* How a command went; its protocol is in the capture. */
struct sl__exec_result {
	bool aborted;     /* it was ended because the attempt was aborted */
	bool minder_died; /* nobody knows how it has exited */
	bool reported;    /* a failure of the log was, by `unlogged` */
	struct sl__capture capture;
};
/* Run the command until it has ended and all its events are durable. r->capture is for the caller to fini in any case.
 * On failure the events are in the spool, which stays to be recovered. */
SL_MUST_CHECK int sl__exec_run(sl_exec *x, const struct sl__exec_ops *ops, void *attempt, struct sl__exec_result *r,
			       struct sl_err *err);

/* exec/launch.c */
SL_MUST_CHECK int sl__launch_fixed(sl_exec *x, const char *const *argv, const char *const *environment,
				   struct sl_err *err);
void sl__launch_free(sl_exec *x);
/* Write argv, environment and folder of the job into the minder's shared memory. *stdin_text: what the command reads.
 * SL_EDATA: the input does not say what to run; SL_ETOOBIG. */
SL_MUST_CHECK int sl__launch_prepare(const sl_exec *x, struct sl__minder_shared *shared, const struct sl_job *job,
				     const char **stdin_text, struct sl_err *err);

/* exec/pool.c: every acquire is followed by one of release, settle, retire and discard. */
SL_MUST_CHECK int sl__minder_acquire(sl_exec *x, struct sl__minder **out, struct sl_err *err);
/* Idle again, or gone when it is dead. */
void sl__minder_release(sl_exec *x, struct sl__minder *m);
/* Idle once the ticket has succeeded; its spool to be recovered when that fails. */
void sl__minder_settle(sl_exec *x, struct sl__minder *m, const struct sl_wal_ticket *ticket,
		       const struct sl__spool_header *header);
/* Look after those that settle, and wait for them. Someone does it as long as there are any: an attempt that runs, or
 * the last one that ends. So a spool does not stay unfinished while its events move away with the log. */
void sl__minder_settled(sl_exec *x, bool wait);
/* End it, but keep its spool, to be recovered. */
void sl__minder_retire(sl_exec *x, struct sl__minder *m);
/* It is dead or was never used: away with it and its spool. */
void sl__minder_discard(sl_exec *x, struct sl__minder *m);
/* End an idle one. */
void sl__minder_end(sl_exec *x, struct sl__minder *m);
/* The highest sequence that is known grows. */
void sl__exec_saw(sl_exec *x, uint64_t sequence);
SL_MUST_CHECK int sl__minder_write_header(const sl_exec *x, const struct sl__minder *m,
					  const struct sl__spool_header *header, struct sl_err *err);
/* Send 'R' with the descriptors. false: it is dead. */
bool sl__minder_run(struct sl__minder *m, const int fds[SL__MINDER_FDS]);
void sl__minder_tell(struct sl__minder *m, char what);

/* exec/recover.c */
/* Try to bring in what earlier attempts of this handle could not append. */
void sl__exec_retry_retired(sl_exec *x, bool now);

#endif
