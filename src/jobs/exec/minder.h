/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The minder: a process next to the worker that starts commands, one at a time, moves what they write into a spool, and
 * ends them when the worker dies. It is forked from the worker and never executes another program, so that it costs a
 * fork once and not for every command: a command is then a vfork and an exec of a small process.
 *
 *   worker ── 'R' run, with seven descriptors ──▶ minder ── vfork, exec ──▶ command, leads its process group
 *          ── 'T' end it ──▶                        │ ◀── pipes 1, 2, 3 ──┘
 *          ── 'C' there is room again ──▶           ▼
 *          ◀── 'D' there is something ──          spool
 *          ◀── 'E' it has ended ──
 *
 * Invariants
 *  M1. What was read from a pipe is in the spool before anything else is read; `end` covers only whole frames.
 *  M2. When the worker is gone (its end of the socket closes, or its pidfd becomes readable), the command's process
 *      group gets SIGKILL, the pipes are drained into the spool, and the minder ends, and with it the lock on the spool.
 *  M3. The command is not reaped before its group was killed for the last time: its number cannot mean another group.
 *  M4. A command never outlives its minder, and neither do the processes it has started: SIGKILL is its parent-death
 *      signal, and its process group is on a leash: a pipe whose write end is the minder's alone and whose read end,
 *      which the command inherits, is set to send SIGKILL to the group when the write end closes (fcntl F_SETOWN,
 *      F_SETSIG, O_ASYNC). The kernel does it when the minder dies, whatever else died with it. A process that has left
 *      the group (setsid), or a group of which no process has the leash open any more (close of all descriptors), is
 *      out of its reach; the command itself is not.
 *  M5. A command of another user (run_as) has its own session: it cannot put input into the terminal of the worker. The
 *      minder keeps the worker's user, and needs CAP_KILL to end such a command.
 *
 *  M6. Of an encrypted spool the minder has the key of the attempt, not that of the log, which is wiped in its memory by
 *      the fork. The command cannot read either: after its exec it has neither the memory nor a descriptor of it, and
 *      the minder is not dumpable, so that /proc/<minder> is closed to processes of the same user.
 *
 * When the command itself has exited, its pipes may still be open in processes that it has left behind. They are read
 * for SL__LINGER_MS more, then (as when the pipes close) what is left of the process group is killed.
 *
 * Thread safety: after the fork nothing but async-signal-safe functions are called, and no memory is allocated.
 */
#ifndef SL_JOBS_EXEC_MINDER_H
#define SL_JOBS_EXEC_MINDER_H

#include <stdatomic.h>
#include <sys/types.h>
#include <unistd.h>

#include "jobs/exec/spool.h"
#include "jobs/exec/user.h"

#define SL__LINGER_MS 1000
#define SL__BACKLOG_MAX ((uint64_t)8 << 20) /* in the spool and not yet consumed: then the pipes are not read */
#define SL__ARENA_BYTES ((size_t)2 << 20)   /* of argv and environment */
#define SL__MINDER_FDS 7                    /* with 'R': stdin, the write ends of 1, 2 and 3, their read ends */

/* In memory that both processes map at the same address. Pointers point into the arena, or to what the worker had at
 * the fork and never changes. */
struct sl__minder_shared {
	_Atomic uint64_t end;       /* the spool's frames are complete up to here */
	_Atomic uint64_t consumed;  /* the worker has read the spool up to here */
	_Atomic uint32_t want_poke; /* the worker is about to sleep: send 'D' once there is more */
	_Atomic uint32_t stalled;   /* the minder waits for room: send 'C' */
	_Atomic int32_t pid;        /* of the command and its group; 0: none */
	/* What was read and is being written at `chunk_at`: where that is still `end`, the minder died meanwhile. */
	_Atomic uint64_t chunk_at;
	_Atomic uint32_t chunk_kind, chunk_len;
	/* Of the attempt, set before 'R'. */
	uint32_t salt;
	bool sealed; /* the spool is encrypted, with this key of the attempt alone */
	uint8_t key[SL_WAL_KEY_BYTES];
	_Atomic uint64_t n_sealed; /* with this key, also frames that were not written: the nonce */
	int64_t kill_grace_ms;
	const char *const *paths; /* what argv[0] may mean, in the order to try */
	char *const *argv;
	char *const *envp;
	const char *cwd; /* or NULL */
	volatile int spawn_errno, spawn_step;
	uint8_t chunk[SL__SPOOL_CHUNK];
	uint8_t sealed_chunk[SL__SPOOL_CHUNK + SL__SPOOL_SEAL]; /* of the one that writes frames */
	char arena[SL__ARENA_BYTES];
};

/* Commands run in real time, whatever clock the environment has. */
static inline int64_t sl__exec_now_ns(void)
{
	return sl__clock_real.mono_ns(NULL);
}

static inline void sl__exec_close_all(int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (fds[i] >= 0)
			(void)close(fds[i]);
		fds[i] = -1;
	}
}

/* The reading half, which the worker takes over when the minder dies. Async-signal-safe. */
struct sl__pump {
	struct sl__minder_shared *shared;
	int spool;
	int pipes[SL__STREAMS]; /* read ends that do not block; -1: closed */
};

/* Write a frame at `end` and move that. 0 or a positive errno: then nothing has happened. */
int sl__pump_write(struct sl__pump *p, enum sl__frame_kind kind, const void *payload, size_t n);
/* Read what is there, up to one chunk, into the spool. The pipe is closed at its end. 0, or the positive errno of the
 * spool: the chunk is then kept and written first by the next call. *n (may be NULL): bytes read. */
int sl__pump_read(struct sl__pump *p, enum sl__stream stream, size_t *n);
/* Write what a dead minder had read and not finished writing. */
int sl__pump_rescue(struct sl__pump *p);
bool sl__pump_open(const struct sl__pump *p);

/* Where the kernel put the environment of this process: what /proc/<pid>/environ shows. start NULL: not known. */
struct sl__env_area {
	void *start;
	size_t len;
};
void sl__minder_find_environment(const struct sl_env *env, struct sl__env_area *out);

/* What the process begins with. */
struct sl__minder_start {
	struct sl__minder_shared *shared;
	const struct sl__env_area *area;  /* to be wiped */
	const struct sl__exec_user *user; /* of the commands; NULL: that of this process */
	int ctl;                          /* its end of the socket, a SOCK_SEQPACKET */
	int spool;
	pid_t parent; /* the worker */
};
/* The process. */
_Noreturn void sl__minder_main(const struct sl__minder_start *start);

#endif
