/* SPDX-License-Identifier: Apache-2.0 */
/* The list of commands, and the help that is made from their tables. */
#ifndef SLUICE_CLI_COMMANDS_H
#define SLUICE_CLI_COMMANDS_H

#include "opts.h"

/* All commands, in the order of help. */
#ifdef WITHOUT_SERVER /* -Dserver=disabled */
#define COMMANDS_SERVING(X)
#else
#define COMMANDS_SERVING(X) X(up), X(demo), X(server),
#endif
#define COMMANDS(X)                                                                                                    \
	COMMANDS_SERVING(X)                                                                                            \
	X(run), X(enqueue), X(worker), X(jobs_list), X(jobs_show), X(jobs_logs), X(jobs_wait), X(jobs_watch),          \
		X(jobs_stats), X(jobs_retry), X(jobs_cancel), X(jobs_fail), X(jobs_trigger), X(jobs_delete),           \
		X(jobs_pause), X(jobs_resume), X(jobs_prune), X(jobs_audit), X(jobs_migrate), X(cron_add),             \
		X(cron_list), X(cron_remove), X(load), X(ship), X(export), X(export_status), X(export_gaps),           \
		X(export_backfill), X(parquet_cat), X(parquet_schema), X(parquet_stat), X(wal_append), X(wal_dump),    \
		X(audit_verify), X(audit_show), X(audit_head), X(audit_keygen), X(wal_verify), X(wal_recover),         \
		X(wal_archive), X(wal_cleanup), X(wal_stat), X(dlq_list), X(dlq_show), X(dlq_redrive), X(dlq_purge),   \
		X(dlq_export), X(backup_init), X(backup_create), X(backup_list), X(backup_show), X(backup_ls),         \
		X(backup_cat), X(backup_restore), X(backup_check), X(backup_repair), X(backup_forget),                 \
		X(backup_prune), X(backup_passphrase), X(config_check), X(config_list), X(help)

#define DECLARED(name) cmd_##name
extern const struct command COMMANDS(DECLARED);

/* The same as a list, NULL at the end. */
extern const struct command *const commands[];

struct group {
	const char *name, *summary;
};
/* Commands of two words, by their first; name NULL at the end. */
extern const struct group groups[];

/* NULL: no command of that name. word2 may be NULL. */
const struct command *command_find(const char *word1, const char *word2);
const struct group *group_find(const char *word);

/* What `sluice help TOPIC` teaches: how commands go together, by example. */
struct topic {
	const char *name, *summary; /* no topic has the name of a command or a group */
	/* Lines of at most 80 columns; an indented line that begins with sluice can be run. NULL: made from tables. */
	const char *text;
};

/* In the order in which they are best read; name NULL at the end. */
extern const struct topic topics[];

/* NULL: no such topic. */
const struct topic *topic_find(const char *name);

/* What a person may have meant by a word that is no command. */
enum { SUGGEST_BYTES = 128 };

/* "; did you mean 'worker'?", or "" when nothing is near. group: the word came after this one, else NULL. A word that
 * is the second of a command ("logs") is answered with that command ("jobs logs"). */
const char *suggest_command(const char *group, const char *word, char to[SUGGEST_BYTES]);
/* The same with topics of help. */
const char *suggest_help(const char *word, char to[SUGGEST_BYTES]);

/* What there is for what people want, on one screen. */
void help_main(struct out *out);
/* Every command, topic and global option. */
void help_all(struct out *out);
void help_topic(struct out *out, const struct topic *topic);
void help_group(struct out *out, const struct group *group);
void help_command(struct out *out, const struct command *command);
/* All tables as one JSON document. */
void help_json(struct out *out);

#endif
