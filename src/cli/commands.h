/* SPDX-License-Identifier: Apache-2.0 */
/* The list of commands, and the help that is made from their tables. */
#ifndef SLUICE_CLI_COMMANDS_H
#define SLUICE_CLI_COMMANDS_H

#include "opts.h"

extern const struct command cmd_wal_append, cmd_wal_dump, cmd_wal_verify, cmd_wal_recover, cmd_wal_archive,
	cmd_wal_cleanup, cmd_wal_stat;
extern const struct command cmd_dlq_list, cmd_dlq_show, cmd_dlq_redrive, cmd_dlq_purge, cmd_dlq_export;
extern const struct command cmd_enqueue, cmd_worker, cmd_run;
extern const struct command cmd_jobs_list, cmd_jobs_show, cmd_jobs_logs, cmd_jobs_wait, cmd_jobs_retry, cmd_jobs_cancel,
	cmd_jobs_fail, cmd_jobs_trigger, cmd_jobs_delete, cmd_jobs_pause, cmd_jobs_resume, cmd_jobs_stats,
	cmd_jobs_watch, cmd_jobs_migrate, cmd_jobs_prune, cmd_jobs_audit;
extern const struct command cmd_cron_add, cmd_cron_list, cmd_cron_remove;
extern const struct command cmd_load;
extern const struct command cmd_parquet_cat, cmd_parquet_schema, cmd_parquet_stat;
extern const struct command cmd_ship;
extern const struct command cmd_export, cmd_export_status, cmd_export_gaps, cmd_export_backfill;
extern const struct command cmd_up, cmd_server, cmd_demo, cmd_config_check, cmd_config_list;
extern const struct command cmd_audit_verify, cmd_audit_show, cmd_audit_head, cmd_audit_keygen;
extern const struct command cmd_backup_init, cmd_backup_create, cmd_backup_list, cmd_backup_show, cmd_backup_ls,
	cmd_backup_cat, cmd_backup_restore, cmd_backup_check, cmd_backup_repair, cmd_backup_forget, cmd_backup_prune,
	cmd_backup_passphrase;
extern const struct command cmd_help;

/* All commands in the order of help, NULL at the end. */
extern const struct command *const commands[];

struct group {
	const char *name, *summary;
};
/* Commands of two words, by their first; name NULL at the end. */
extern const struct group groups[];

/* NULL: no command of that name. word2 may be NULL. */
const struct command *command_find(const char *word1, const char *word2);
const struct group *group_find(const char *word);

void help_main(struct out *out);
void help_group(struct out *out, const struct group *group);
void help_command(struct out *out, const struct command *command);
struct topic;
void help_topic(struct out *out, const struct topic *topic);
/* All tables as one JSON document. */
void help_json(struct out *out);

#endif
