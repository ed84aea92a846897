/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include <sluice/backup.h>

const char *sl_backup_problem_name(enum sl_backup_problem problem)
{
	switch (problem) {
	case SL_BACKUP_VANISHED:
		return "vanished";
	case SL_BACKUP_CHANGED:
		return "changed";
	case SL_BACKUP_UNREADABLE:
		return "unreadable";
	case SL_BACKUP_SKIPPED:
		return "skipped";
	case SL_BACKUP_NOT_SET:
		return "not_set";
	case SL_BACKUP_AS_FILE:
		return "as_file";
	}
	return "unknown";
}

const char *sl_backup_fault_name(enum sl_backup_fault fault)
{
	static const char *const names[] = {[SL_BACKUP_FAULT_PACK] = "pack",
					    [SL_BACKUP_FAULT_INDEX] = "index",
					    [SL_BACKUP_FAULT_SNAPSHOT] = "snapshot",
					    [SL_BACKUP_FAULT_KEY] = "key",
					    [SL_BACKUP_FAULT_CONFIG] = "config",
					    [SL_BACKUP_FAULT_MISSING_PACK] = "missing_pack",
					    [SL_BACKUP_FAULT_MISSING_BLOCK] = "missing_block",
					    [SL_BACKUP_FAULT_UNINDEXED] = "unindexed",
					    [SL_BACKUP_FAULT_STRAY] = "stray",
					    [SL_BACKUP_FAULT_MARK] = "mark",
					    [SL_BACKUP_FAULT_ONE_COPY] = "one_copy"};
	return (size_t)fault < SL_COUNT(names) && names[fault] != NULL ? names[fault] : "unknown";
}
