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
	uint64_t *ids; /* of the operands, after jobstore_open_ids */
	size_t n_ids;
};

enum jobstore_mode {
	JOBSTORE_EXISTING, /* for commands that only read or change what is there: a missing store is 69, not created */
	JOBSTORE_CREATE,
	JOBSTORE_WAIT /* for a service: waits while the store is locked or busy, until a stop is requested */
};

#define JOBSTORE_OPT_STORE                                                                                             \
	{                                                                                                              \
		.name = "store", .letter = 's', .kind = OPT_STRING, .arg = "URL",                                      \
		.help = "Store of the jobs: sqlite:FILE or postgres://… (default: SLUICE_STORE, else "               \
			"sqlite:~/.sluice/sluice.db)"                                                                  \
	}
#define JOBSTORE_OPT_PRIORITY(text)                                                                                    \
	{                                                                                                              \
		.name = "priority", .letter = 'p', .kind = OPT_INT, .arg = "N", .def = "0", .min = -INT32_MAX,         \
		.max = INT32_MAX, .help = text                                                                         \
	}

/* The tables of commands without other options: --store and --json, or --store alone. */
extern const struct opt jobstore_opts[], jobstore_opts_store[];

/* For opts_warn_of_password about --store. */
#define JOBSTORE_PASSWORD_PLACES "SLUICE_STORE, PGPASSWORD or a password file"

/* --store, else SLUICE_STORE, else the default. */
const char *jobstore_url(const struct parsed *args);
/* Where the host begins in a URL, after the user and the password; NULL: not a URL with a host. */
const char *jobstore_host(const char *url);
#define JOBSTORE_NAME_BYTES 256
/* The URL without user, password and parameters, for messages. */
void jobstore_name(char to[JOBSTORE_NAME_BYTES], const char *url);
/* Open store, notifier and client. 0, or an exit code after a line on stderr. Without its notifier (it cannot be had)
 * a store still works, by polling: a warning is printed. */
int jobstore_open(struct cli *cli, const struct parsed *args, enum jobstore_mode mode, struct jobstore *out);
/* Read the ids of all operands, then open the existing store. 0, or an exit code after a line on stderr. */
int jobstore_open_ids(struct cli *cli, const struct parsed *args, struct jobstore *out);
/* Whether to retry what failed because the store is busy (exit code 75): waits a second first, and reports the first
 * wait. false: another failure, or a stop was requested. */
bool jobstore_wait(struct cli *cli, const struct sl_err *err, int *n_waits);
void jobstore_close(struct jobstore *store);
/* Print err with the store's name (never a password) before it; its exit code. What the store does not know (an id, a
 * schedule) is bad data, 65. */
int jobstore_fail(struct cli *cli, const struct parsed *args, const struct sl_err *err);

/* A job or chain id. 0, or 64 after a line on stderr. */
int jobstore_id(struct cli *cli, const char *text, uint64_t *out);

/* Each 'sluice run' has its own type, "run/…", that no other worker serves. */
bool jobstore_is_run(const char *type);
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
/* ,"name":value as the functions above write it; an id that is 0 is null. */
void jobstore_string_field(struct out *out, const char *name, const char *value);
void jobstore_raw_field(struct out *out, const char *name, const char *value);
void jobstore_time_field(struct out *out, const char *name, int64_t ms);
void jobstore_id_field(struct out *out, const char *name, uint64_t id);
/* The fields of a job, "id":… to "blockers_open":…, without the braces. */
void jobstore_job_fields(struct out *out, const struct sl_job *job);
void jobstore_chain_fields(struct out *out, const struct sl_chain *chain);

#endif
