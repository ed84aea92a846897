/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names in a folder that belong to one log, sorted: its files (<id>.wal, <id>.wal.<first>) or its archives
 * (<id>.wal….zst).
 *
 * Ownership: names_free frees what names_list made; it accepts a zeroed struct.
 */
#ifndef SLUICE_CLI_NAMES_H
#define SLUICE_CLI_NAMES_H

#include <stddef.h>

struct names {
	char **names;
	size_t n;
};

/* archives: 1 for the archives, 0 for the log's own files. A folder that cannot be read has none. 0, or -1 without
 * memory. */
int names_list(struct names *out, const char *dir, const char *id, int archives);
int names_have(const struct names *names, const char *name);
void names_free(struct names *names);

#endif
