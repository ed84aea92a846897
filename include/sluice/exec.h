/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands as handlers: a job runs an executable, whose output becomes events and whose exit code ends the attempt.
 *
 * The command gets the job's input on standard input and SLUICE_JOB_ID, SLUICE_CHAIN_ID, SLUICE_ATTEMPT, SLUICE_TYPE
 * (and TRACEPARENT) in its environment. Lines on stdout and stderr become events; what it writes to descriptor 3 is
 * JSON lines: {"output":…} {"continue_with":{"type":…,"input":…}} {"progress":…} {"reschedule_in_ms":…} {"fail":"…"}.
 * Exit 0 completes, 75 reschedules uncharged, anything else is a failure that is tried again. An abort or a timeout
 * sends SIGTERM to its process group, and SIGKILL after the grace time.
 *
 * Guarantee: what the command has written before this process was killed with SIGKILL is kept (a minder process beside
 * it moves the output into a spool file, ends the command and drains its pipes), and sl_exec_recover brings it into the
 * log, once. The job settles only after its events are durable in the log. Not guaranteed: output in the pipes when the
 * minder is killed in the same moment, and unsynced spools in a power loss.
 *
 * Thread safety: one handle serves any number of attempts at once.
 */
#ifndef SLUICE_EXEC_H
#define SLUICE_EXEC_H

#include <sluice/events.h>
#include <sluice/jobs.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_exec sl_exec;

/* Called on the attempt's thread with each event (its type tells), in order, after it is durable in the log. */
typedef void sl_exec_tap_fn(const struct sl_event *event, void *ctx);

struct sl_exec_opts {
	size_t struct_size;
	const struct sl_env *env;
	const char *const
		*argv;         /* NULL-terminated; argv[0] is looked up in PATH. NULL: the job's input is an object with
				  "argv" (an array of strings), and optionally "cwd" and "env"; then stdin is empty */
	sl_wal *events;        /* required: the same log as the worker's */
	const char *spool_dir; /* required: of this log alone; made with mode 0700 */
	int64_t kill_grace_ms; /* default 5,000 */
	int64_t max_line_bytes; /* longer lines are cut into partial events; default 256 KiB; at most 8 MiB */
	sl_exec_tap_fn *tap;
	void *tap_ctx;
	enum sl_switch reschedule; /* by exit 75 and by {"reschedule_in_ms":…}; default on. Off: the one is a failure
				      like others, the other is passed over: for a command that is to run once */
};
#define SL_EXEC_OPTS_INIT .struct_size = sizeof(struct sl_exec_opts)

SL_API SL_MUST_CHECK int sl_exec_new(sl_exec **out, const struct sl_exec_opts *opts, struct sl_err *err);
SL_API void sl_exec_free(sl_exec *exec);
/* The handler: give it as `process` of a struct sl_processor, with the sl_exec as ctx. */
SL_API SL_MUST_CHECK int sl_exec_process(sl_attempt *attempt, struct sl_err *err, void *exec);

/* Append what is left in the spools of a worker that died to its log (opened again by the caller), then remove them.
 * Call it before the log's sender is started and before a sl_exec uses the folder: once records are sent and archived,
 * nobody can tell what is in the log already. Safe to repeat, also after a crash in between: each event gets into the
 * log once. Waits a few seconds for minders that still end their commands; SL_ELOCKED when that was not enough (the
 * other spools are done). A spool that cannot be read is kept as <name>.damaged. *n (may be NULL): events appended. */
SL_API SL_MUST_CHECK int sl_exec_recover(sl_wal *events, const char *spool_dir, const struct sl_env *env, uint64_t *n,
					 struct sl_err *err);
/* The same for an orphan that a sweep has found: give it as on_orphan of struct sl_wal_opts, with a const struct sl_env
 * * (or NULL) as on_orphan_ctx. The spool folder of <dir>/<id>.wal is <dir>/<id>.spool; one that is missing is empty.
 */
SL_API SL_MUST_CHECK int sl_exec_recover_orphan(sl_wal *w, const char *path, struct sl_err *err, void *env);

#ifdef __cplusplus
}
#endif
#endif
