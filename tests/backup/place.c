/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/place.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void place_make(struct place *p)
{
	const char *tmp = getenv("TMPDIR");
	(void)snprintf(p->path, sizeof(p->path), "%.40s/sl-backup-XXXXXX", tmp != NULL ? tmp : "/tmp");
	if (mkdtemp(p->path) == NULL)
		abort();
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

void place_remove(struct place *p)
{
	(void)nftw(p->path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
