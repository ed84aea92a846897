/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots and entries as text and as JSON, the same for every command that shows them. */
#ifndef SLUICE_CLI_BACKUPSHOW_H
#define SLUICE_CLI_BACKUPSHOW_H

#include "table.h"

#include <sluice/backup_care.h>

/* "a, b" of a list, cut where it is long; returns to. */
const char *backupshow_join(char *to, size_t size, const char *const *items, size_t n);
/* A table of one row each: the beginning of the id, time, host, files, size, paths, tags; before them, with decisions,
 * two columns that the caller fills: whether a snapshot is kept, and by which rules. */
void backupshow_table(struct table *table, struct out *out, bool decisions);
void backupshow_row(struct table *table, const struct sl_backup_snapshot *s);
void backupshow_details(struct out *out, const struct sl_backup_snapshot *s);
json_t *backupshow_json(const struct sl_backup_snapshot *s);

/* As `ls -l` shows it. */
void backupshow_entry(struct out *out, const struct sl_backup_entry *e);
json_t *backupshow_entry_json(const struct sl_backup_entry *e);

#endif
