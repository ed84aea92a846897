/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What check and repair find, printed as it comes, so that any number of findings needs no memory: lines, or one JSON
 * object that grows.
 *
 * Thread safety: one call at a time; the library's callback sees to that.
 */
#ifndef SLUICE_CLI_BACKUPFINDINGS_H
#define SLUICE_CLI_BACKUPFINDINGS_H

#include "backuprepo.h"

struct backupfindings {
	struct cli *cli;
	const struct parsed *args;
	struct backuprepo repo;
	int json;
	uint64_t reported;
};

void backupfindings_begin(struct backupfindings *f);
/* Of the library; ctx is a struct backupfindings. */
int backupfindings_add(const struct sl_backup_finding *finding, void *ctx);
/* rest is an object whose fields join those that are written; its reference is consumed. Text: nothing. */
void backupfindings_end(struct backupfindings *f, json_t *rest);
/* It did not come to its end: the exit code, after a line on stderr. */
int backupfindings_fail(struct backupfindings *f, const struct sl_err *err);

#endif
