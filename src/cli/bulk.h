/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A line of a bulk file as a chain to start: an object with "input" and optionally "type", "key", "at", "in_ms" and
 * "priority". The input is taken as it was written, digit for digit.
 *
 * Thread safety: no state. Ownership: what the chain points to lives as long as its line.
 */
#ifndef SLUICE_CLI_BULK_H
#define SLUICE_CLI_BULK_H

#include <jansson.h>
#include <sluice/jobs.h>

struct bulk_line {
	uint64_t number; /* in the file, from 1 */
	json_t *object;
	char *input;
};

#define BULK_WHAT_BYTES 320

/* Fill *chain, which holds what the options said. 0, or -1 with what is wrong. Free the line in either case. */
int bulk_line_read(struct bulk_line *line, const char *text, size_t n, struct sl_new_chain *chain,
		   char what[BULK_WHAT_BYTES]);
void bulk_line_free(struct bulk_line *line);

#endif
