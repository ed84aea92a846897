/* SPDX-License-Identifier: Apache-2.0 */
/* The list of commands, and the help that is made from their tables. */
#ifndef SLUICE_CLI_COMMANDS_H
#define SLUICE_CLI_COMMANDS_H

#include "opts.h"

extern const struct command cmd_wal_append, cmd_wal_dump, cmd_wal_verify, cmd_wal_recover, cmd_wal_archive,
	cmd_wal_cleanup, cmd_wal_stat;
extern const struct command cmd_dlq_list, cmd_dlq_show, cmd_dlq_redrive, cmd_dlq_purge, cmd_dlq_export;
extern const struct command cmd_help;

/* All commands in the order of help, NULL at the end. */
extern const struct command *const commands[];

struct group {
	const char *name, *summary;
};
/* Commands of two words, by their first; name NULL at the end. */
extern const struct group groups[];

/* NULL: there is none of that name. word2 may be NULL. */
const struct command *command_find(const char *word1, const char *word2);
const struct group *group_find(const char *word);

void help_main(struct out *out);
void help_group(struct out *out, const struct group *group);
void help_command(struct out *out, const struct command *command);
/* All tables as one JSON document. */
void help_json(struct out *out);

#endif
