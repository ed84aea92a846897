/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands of a worker, "NAME=COMMAND…" each, and the worker that runs them: what `sluice worker` and `sluice up`
 * share.
 *
 * Thread safety: none; the main thread calls. Ownership: texts and the environment must outlive the handlers;
 * handlers_fini frees what init made, also after a failure.
 */
#ifndef SLUICE_CLI_HANDLERS_H
#define SLUICE_CLI_HANDLERS_H

#include "workerlog.h"

#include "server/config/config.h"

#include <pthread.h>

#include <sluice/exec.h>

#define HANDLERS_MAX 64

struct handler {
	char *name;
	char **argv; /* NULL: the job's input names the command */
	const char *shell_argv[4];
	sl_exec *exec;
};

/* What a worker reports on standard error while it runs. */
struct handlers_said {
	pthread_mutex_t mu;
	/* The attempts that run: one of each thread that runs handlers, and there are as many of them as slots. */
	struct handlers_running {
		pthread_t thread;
		uint64_t id;
		int32_t attempt;
		const char *type; /* of the list of handlers */
	} * running;
	size_t n_running, slots;
	int64_t second_ms; /* when the second began in which n_failed lines were printed */
	unsigned n_failed;
	uint64_t n_left_out; /* lines about failed attempts, because there were too many in that second */
};

struct handlers {
	struct cli *cli;
	const struct sl_env *env;
	const struct srv_config *config; /* sections jobs and types */
	struct handler list[HANDLERS_MAX];
	size_t n;
	char **environment; /* of the commands */
	sl_job_types *types;
	sl_worker *worker;
	struct workerlog *log;
	struct handlers_said said;
	/* Set before the start, or NULL: */
	const char *worker_id;  /* NULL: a random one */
	const char *store_name; /* what the line that reports the start calls the store; NULL: no such line */
	const struct sl_retention *retention; /* NULL: the worker deletes nothing */
};

/* Keep commands from reading the worker's secrets in /proc/<worker>: they leave the memory that /proc shows as environ,
 * and the process is no longer dumpable, so that processes of the same user cannot read its memory. getenv still finds
 * them. Called once, before threads are started. */
void handlers_hide_secrets(void);
/* The handlers of config, which outlives them: "NAME=COMMAND…" of --type and commands of single types, split into words
 * or for the shell, and with detached the type of 'sluice run --detach', where jobs may name their command. A command
 * must be there, unless the shell runs it. 0, or an exit code after a line on stderr. */
int handlers_init(struct handlers *h, struct cli *cli, const struct sl_env *env, const struct srv_config *config,
		  bool detached);
/* Make the worker and start it; its output goes to log, which outlives the handlers. From here on, unless --quiet was
 * given, lines on stderr report the start, failed attempts (at most some in a second, and how many more) and which jobs
 * are finished at the end. 0, or an exit code after a line on stderr. */
int handlers_start(struct handlers *h, struct jobstore *store, struct workerlog *log);
/* Let running commands finish within grace_ms. 0, or 75 when they had to be ended. */
int handlers_stop(struct handlers *h, int64_t grace_ms);
void handlers_fini(struct handlers *h);

#endif
