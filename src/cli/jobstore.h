/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the commands about jobs share: the store that --store names, a client on it, ids, and jobs as JSON.
 *
 * Thread safety: none; the main thread calls. Ownership: jobstore_close frees what jobstore_open made, also after a
 * failure.
 */
#ifndef SLUICE_CLI_JOBSTORE_H
#define SLUICE_CLI_JOBSTORE_H

#include "opts.h"

#include <sluice/jobs.h>

struct jobstore {
	sl_store store;
	sl_notify notify;
	sl_jobs *client;
	struct sl_audit_record record; /* of the changes that the client makes: this user, by this command */
	char actor[64], action[64];
	char *detail;
};

#define JOBSTORE_OPT_STORE                                                                                             \
	{                                                                                                              \
		.name = "store", .letter = 's', .kind = OPT_STRING, .arg = "URL",                                      \
		.help = "Where the jobs are: sqlite:FILE or postgres://…; SLUICE_STORE in the environment, else "    \
			"sqlite:~/.sluice/sluice.db"                                                                   \
	}
#define JOBSTORE_OPT_JSON                                                                                              \
	{                                                                                                              \
		.name = "json", .letter = 'j', .kind = OPT_FLAG, .help = "Print JSON"                                  \
	}

/* --store, else SLUICE_STORE, else the default. */
const char *jobstore_url(const struct parsed *args);
/* Open store, notifier and client. 0, or an exit code after a line on stderr. Without its notifier (it cannot be had)
 * a store still works, by polling: a warning is printed. */
int jobstore_open(struct cli *cli, const struct parsed *args, struct jobstore *out);
/* The same, for a service: a store that is locked or busy is waited for until it is free or a stop is requested. */
int jobstore_open_waiting(struct cli *cli, const struct parsed *args, struct jobstore *out);
/* Whether to try again what failed because the store is busy (exit code 75): waits a second first, and reports the
 * first wait. 0: another failure, or a stop was requested. */
int jobstore_wait(struct cli *cli, const struct sl_err *err, int *n_waits);
/* The same for commands that only ask for what is there: a store that does not exist is not made, but 69. */
int jobstore_open_existing(struct cli *cli, const struct parsed *args, struct jobstore *out);
void jobstore_close(struct jobstore *store);
/* A line on stderr when --store has a password in it, which the list of processes shows. */
void jobstore_warn_of_password(struct cli *cli, const struct parsed *args);
/* Print err with the store's name (never a password) before it; its exit code. What the store does not know (an id, a
 * schedule) is bad data, 65. */
int jobstore_fail(struct cli *cli, const struct parsed *args, const struct sl_err *err);

/* A command about the one job or chain that its first operand names. */
typedef int jobstore_id_fn(struct cli *cli, const struct parsed *args, struct jobstore *store, uint64_t id);
/* Open the existing store, run fn on it with the id, close it. An exit code. */
int jobstore_with_id(struct cli *cli, const struct parsed *args, jobstore_id_fn *fn);
/* The same for the ids of all operands. n_ids > 0. */
typedef int jobstore_ids_fn(struct cli *cli, const struct parsed *args, struct jobstore *store, const uint64_t *ids,
			    size_t n_ids, void *ctx);
int jobstore_with_ids(struct cli *cli, const struct parsed *args, jobstore_ids_fn *fn, void *ctx);

/* A job or chain id. 0, or 64 after a line on stderr. */
int jobstore_id(struct cli *cli, const char *text, uint64_t *out);

/* Each 'sluice run' has its own type, "run/…", that no other worker serves. */
int jobstore_is_run(const char *type);
/* All of them are "run" where jobs are counted. */
const char *jobstore_shown_type(const char *type);

/* JSON text on one line, as it is but without blanks between its parts; "null" for NULL. */
void jobstore_raw_json(struct out *out, const char *text);
/* The same for people: cut when it is long, nothing in it moves a terminal's cursor. text is not NULL. */
void jobstore_show_json(struct out *out, const char *text);
/* "…": a JSON string; or null. */
void jobstore_json_string(struct out *out, const char *text);
/* "2024-01-01T00:00:00.000Z" in quotes, or null for 0. */
void jobstore_json_time(struct out *out, int64_t ms);
/* The fields of a job, "id":… to "blockers_open":…, without the braces. */
void jobstore_job_fields(struct out *out, const struct sl_job *job);
void jobstore_chain_fields(struct out *out, const struct sl_chain *chain);

#endif
