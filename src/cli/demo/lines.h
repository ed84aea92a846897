/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two records of what commands wrote: their own ledger, a file, and the store. A line gets into the ledger after it
 * was written to standard output, so every line of the ledger must be in the store, and none in the store twice.
 *
 * Thread safety: none. Ownership: demolines_fini frees.
 */
#ifndef SLUICE_CLI_DEMO_LINES_H
#define SLUICE_CLI_DEMO_LINES_H

#include "cli/jobstore.h"

struct demolines {
	char **lines;
	size_t n, cap;
	uint64_t at; /* where the next read begins: a byte of the file, an offset of the store */
	int sorted;
};

/* Read what has come since the last call. 0, or an SL_E…. */
int demolines_read_file(struct demolines *d, const char *path, struct sl_err *err);
int demolines_read_store(struct demolines *d, const sl_store *store, struct sl_err *err);
void demolines_fini(struct demolines *d);

struct demodiff {
	size_t lost;       /* in the ledger, not in the store */
	size_t duplicated; /* more than once in the store */
	size_t unnoted;    /* in the store, not in the ledger: the command was killed between the two */
	const char *example;
};
/* Sorts both. */
void demolines_compare(struct demolines *ledger, struct demolines *store, struct demodiff *out);

#endif
