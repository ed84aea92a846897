/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log of a worker process: its events go through it into the store's job_events, also those that an earlier process
 * left behind. Logs lie in <wal dir>/<id of the store>/, so that one never reaches the wrong store; a thread sweeps
 * orphans at the start and every minute.
 *
 * Thread safety: open and close from the main thread. Ownership: close frees what open made, also after a failure.
 */
#ifndef SLUICE_CLI_WORKERLOG_H
#define SLUICE_CLI_WORKERLOG_H

#include "jobstore.h"

#include <limits.h>
#include <pthread.h>
#include <sluice/exec.h>
#include <sluice/wal_files.h>

/* Where the events of a log are sent: into the store, or to a server. Serves one log at a time. */
struct courier {
	sl_event_sender *store;
	sl_event_http_sender *http;
};

/* Strings must outlive the log. */
struct workerlog_opts {
	const char *id;          /* of the log's stream; NULL: a random one */
	const char *wal_dir;     /* NULL: ~/.sluice/wal */
	const char *archive_dir; /* NULL: archive beside the logs */
	const char *server;      /* send to this server; NULL: into the store */
	const char *token_file, *ca_file;
	sl_events_taken_fn *taken; /* for what goes into the store directly; NULL: none */
	void *taken_ctx;
	struct sl_wal_opts wal; /* env and folders are ours */
	int64_t retention_days; /* 0: 30 */
};
#define WORKERLOG_OPTS_INIT                                                                                            \
	.wal = {SL_WAL_OPTS_INIT, .linger_ms = 10} /* so that many short commands share a transaction */

struct workerlog {
	struct cli *cli;
	const struct sl_env *env;
	struct jobstore *store;
	struct workerlog_opts opts;
	sl_wal *wal;
	struct courier courier;
	char target[33];
	bool sending;
	char dir[PATH_MAX];
	char archive[PATH_MAX];
	char id[64];
	char spool[PATH_MAX];
	pthread_t sweeper;
	bool has_sweeper;
	int wake[2]; /* to the sweeper: 'n' sweep now; the end of file: end */
};

#define WORKERLOG_OPT_WAL                                                                                              \
	{                                                                                                              \
		.name = "wal", .kind = OPT_STRING, .arg = "DIR",                                                       \
		.help = "Folder that keeps output until it is in the store (default: ~/.sluice/wal)"                   \
	}

#define WORKERLOG_OPT_FLUSH_TIMEOUT                                                                                    \
	{                                                                                                              \
		.name = "flush-timeout", .kind = OPT_DURATION, .arg = "TIME", .def = "30s", .min = 0, .max = 86400000, \
		.help = "Wait up to this long on exit for the last output to reach the store"                          \
	}

/* Where the output goes instead of into the store directly. */
#define WORKERLOG_OPTS_SERVER                                                                                            \
	{.name = "server",                                                                                               \
	 .kind = OPT_STRING,                                                                                             \
	 .arg = "URL",                                                                                                   \
	 .help = "Send output to this server of the same store, http://… or https://…, instead of writing it there " \
		 "directly"},                                                                                            \
		{.name = "token-file",                                                                                   \
		 .kind = OPT_STRING,                                                                                     \
		 .arg = "FILE",                                                                                          \
		 .help = "Send the first line of FILE as the bearer token to the server"},                               \
	{                                                                                                                \
		.name = "ca-file", .kind = OPT_STRING, .arg = "FILE",                                                    \
		.help = "CA certificates (PEM) to trust instead of the system's"                                         \
	}

/* The options above, and --wal; 0, or 64 after a line on stderr. */
int workerlog_read_opts(struct cli *cli, const struct parsed *args, struct workerlog_opts *out);

/* The settings of the log that are in config, which outlives it. */
struct srv_config;
void workerlog_set_opts(struct workerlog_opts *opts, const struct srv_config *config);

/* Streams whose name begins so are of a 'sluice run': WORKERLOG_RUN_STREAM "X" has run the jobs of the type
 * WORKERLOG_RUN_TYPE "X", and no other worker does. */
#define WORKERLOG_RUN_STREAM "run-"
#define WORKERLOG_RUN_TYPE "run/"

/* env NULL: the command's. 0, or an exit code after a line on stderr. */
int workerlog_open(struct cli *cli, const struct sl_env *env, struct jobstore *store, const struct workerlog_opts *opts,
		   struct workerlog *out);
/* Look for what others left behind soon: one of them may just have died. From any thread. */
void workerlog_nudge(struct workerlog *log);
/* Send what is there, also of others that died, at most deadline_ms, and archive the log when all is sent. What is left
 * stays on disk for the next worker: 75 after a line on stderr. */
int workerlog_close(struct workerlog *log, int64_t deadline_ms);

#endif
