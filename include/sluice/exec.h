/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands as handlers: a job runs an executable, whose output becomes events and whose exit code ends the attempt.
 *
 * The command gets the job's input on standard input and SLUICE_JOB_ID, SLUICE_CHAIN_ID, SLUICE_ATTEMPT, SLUICE_TYPE
 * (and TRACEPARENT) in its environment, which is otherwise `environment`, or that of the process, when the handle was
 * made: leave out what commands must not see, such as the password of the store. A command can read the environment of
 * this process in /proc unless it runs as another user (`run_as`) or prctl(PR_SET_DUMPABLE, 0) was called here (the
 * minder, which is its parent, has neither). Lines on
 * stdout and stderr become events; what it writes to descriptor 3 is JSON, one object per line:
 *   {"output":…}  {"progress":…}  {"reschedule_in_ms":…}  {"fail":"…"}
 *   {"continue_with":{"type":…,"input":…,"priority":…,"delay_ms":…,"at_ms":…,"blockers":[…]}}
 * Of output, continue_with, reschedule_in_ms and fail the last one holds. fail and reschedule_in_ms do so whatever the
 * exit code is (after a signal only fail); output and continue_with need exit 0. Exit 75 reschedules uncharged, by the
 * retry policy's delay when it says nothing else; any other exit is a failure that is tried again. A line that is not
 * understood is an error event and fails an attempt that would have succeeded.
 *
 * An abort or a timeout sends SIGTERM to the command's process group, and SIGKILL after the grace time. When the
 * command has exited, what it left running in its group may still write for a second, unless it closes its output
 * before; then it is killed. A process that is to outlive it must leave the group (setsid).
 *
 * Guarantee: what the command has written before this process was killed with SIGKILL is kept (a separate minder
 * process moves the output into a spool file, ends the command and drains its pipes), and sl_exec_recover brings it
 * into the log, once. The job settles only after its events are durable in the log. When the log fails, the attempt
 * ends without a charge (with max_attempts 1 it fails); its output stays in the spool and follows when the log works
 * again. A full disk, or a log that falls behind, makes the command wait. Nothing of the command's process group
 * outlives the minder, also when this process dies with it: descriptor 240, which the command inherits, is a pipe by
 * which the kernel ends the group; a process that left the group, or a group of which every process has closed it, is
 * not reached. Not guaranteed: output in the pipes when the minder is killed in the same moment, and unsynced spools
 * in a power loss.
 *
 * Encryption: with a log that has a key (key_file of struct sl_wal_opts) the spools are encrypted, too. A command gets
 * none of the keys, neither by its environment nor by a descriptor or memory that it could reach. One that runs as the
 * user of this process can read the key file itself: run commands as another user (`run_as`) to prevent that.
 *
 * Minders are forked when they are needed and kept for the next commands: there are at most about twice as many as
 * attempts ran at once. They keep the working folder, umask and limits of their fork. A program that reaps children
 * with waitpid(-1) may reap them too. env->io must give real descriptors.
 *
 * Thread safety: one handle serves any number of attempts at once; sl_exec_free must be the last call.
 * Ownership: strings in options are copied; the log is the caller's and must outlive the handle.
 */
#ifndef SLUICE_EXEC_H
#define SLUICE_EXEC_H

#include <sluice/events.h>
#include <sluice/worker.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_exec sl_exec;

/* Called on the attempt's thread with each event of any type, in order, after it is durable in the log. */
typedef void sl_exec_tap_fn(const struct sl_event *event, void *ctx);

struct sl_exec_opts {
	size_t struct_size;
	const struct sl_env *env;
	const char *const *argv; /* NULL-terminated; argv[0] is looked up in PATH. NULL: the job's input is an object
				    with "argv" (an array of strings), and optionally "cwd" and "env"; then stdin is
				    empty. Anyone who can start such a job runs commands as this user, so jobs that came
				    over HTTP (from_http) fail */
	sl_wal *events;          /* required: the same log as the worker's */
	const char *spool_dir;   /* required: of this log alone; made with mode 0700 */
	int64_t kill_grace_ms;   /* default 5,000; SL_NONE: SIGKILL at once */
	int64_t max_line_bytes;  /* longer lines are cut into partial events; default 256 KiB; at most 8 MiB */
	sl_exec_tap_fn *tap;
	void *tap_ctx;
	enum sl_switch reschedule; /* by exit 75 and by {"reschedule_in_ms":…}; default on. Off: the one is a failure
				      like others, the other is ignored: for a command that is to run once */
	const char *const *environment; /* "NAME=value", NULL at the end; NULL: that of this process */
	/* The name of the user that commands run as; NULL: that of this process. They have the ids and groups of that
	 * user, no capabilities, HOME, USER and LOGNAME, and their own session, and cannot change back. They start
	 * in the working folder where the user can enter it by its path, else in the root folder. This process needs
	 * CAP_SETUID, CAP_SETGID and CAP_KILL, or root: SL_ECONFIG without. SL_EINVAL: no such user, root, or the user
	 * of this process */
	const char *run_as;
};
#define SL_EXEC_OPTS_INIT .struct_size = sizeof(struct sl_exec_opts)

/* Make a handle that runs commands; free it with sl_exec_free. Strings in opts are copied. SL_EINVAL names the field.
 * *out is untouched on failure. */
SL_API SL_MUST_CHECK int sl_exec_new(sl_exec **out, const struct sl_exec_opts *opts, struct sl_err *err);
/* Output that the log did not take is tried once more; when it still does not, it stays in the folder. Then close the
 * log rather than complete it: the next open knows what is in it, and recovers the rest. NULL is allowed. */
SL_API void sl_exec_free(sl_exec *exec);
/* Whether a command of this name can be executed now, looked up in PATH as argv[0] of struct sl_exec_opts is, by the
 * user run_as (NULL: that of this process). SL_ENOENT: no such file; SL_EACCES: not an executable file; both texts name
 * the fix. A command that appears later is found by the attempts, so a program that wants this check calls it before it
 * makes the handle. */
SL_API SL_MUST_CHECK int sl_exec_check_command(const char *command, const char *run_as, struct sl_err *err);
/* The handler: give it as `process` of a struct sl_processor, with the sl_exec as ctx. */
SL_API SL_MUST_CHECK int sl_exec_process(sl_attempt *attempt, struct sl_err *err, void *exec);

/* Append what is left in the spools of a worker that died to its log (opened again by the caller), then remove them.
 * Call it before the log's sender is started and before a sl_exec uses the folder: once records are sent and archived,
 * it is unknown what the log already contains. Safe to repeat, also after a crash in between: each event gets into the
 * log once. Waits a few seconds for minders that still end their commands; SL_ELOCKED when that was not enough (the
 * other spools are done). A spool that cannot be read is kept as <name>.damaged. *n (may be NULL): events appended. */
SL_API SL_MUST_CHECK int sl_exec_recover(sl_wal *events, const char *spool_dir, const struct sl_env *env, uint64_t *n,
					 struct sl_err *err);
/* The same for an orphan that a sweep has found: give it as on_orphan of struct sl_wal_opts, with a const struct sl_env
 * * (or NULL) as on_orphan_ctx. The spool folder of <dir>/<id>.wal is <dir>/<id>.spool; one that is missing is empty.
 */
SL_API SL_MUST_CHECK int sl_exec_recover_orphan(sl_wal *w, const char *path, struct sl_err *err, void *env);
/* Spools whose log is gone, because it was completed and archived while they could not be brought in: for every
 * <id>.spool in opts->wal_dir (required) that holds a spool and has no log, make the log again, empty, with opts; the
 * next sl_wal_sweep finds it. Call it before each sweep. Folders that are empty are removed. *n (may be NULL): logs
 * made. Returns the first error, after all were processed. */
SL_API SL_MUST_CHECK int sl_exec_find_lost(const struct sl_wal_opts *opts, uint64_t *n, struct sl_err *err);

#ifdef __cplusplus
}
#endif
#endif
