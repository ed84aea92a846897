/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `sluice backup create` backs up: the paths of the command line, and Sluice's own data: the data folder of a
 * server with store, log, archive, dead letters and audit log, and what its configuration has put elsewhere, the
 * exports among it.
 *
 * Ownership: backupdata_fini frees all, also after a failure.
 */
#ifndef SLUICE_CLI_BACKUPDATA_H
#define SLUICE_CLI_BACKUPDATA_H

#include "opts.h"

enum { BACKUPDATA_OWN_MAX = 8 };

struct backupdata {
	const char **paths; /* n of them; those of the command line are borrowed */
	size_t n;
	char *own[BACKUPDATA_OWN_MAX]; /* absolute */
	size_t n_own;
	char *exclude; /* the repository, when it is inside of a path; or NULL */
};

/* repo is left out when it lies in a path. 0, or an exit code after a line on stderr. */
int backupdata_find(struct backupdata *d, struct cli *cli, const struct parsed *args, const char *repo);
void backupdata_fini(struct backupdata *d);

#endif
