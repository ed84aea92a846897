/* SPDX-License-Identifier: Apache-2.0 */
/* An input in memory for a reader of records: cut into reads as a test wants, and failing where it wants. */
#ifndef TESTS_FORMAT_SOURCE_H
#define TESTS_FORMAT_SOURCE_H

#include <sluice/records.h>

struct source {
	const char *data;
	size_t len;
	size_t first, chunk; /* the most that the first read gives, and every later one; 0: no limit */
	size_t fail_at;      /* the read that fails, from 1; 0: none */
	size_t at, reads;
};

int64_t source_read(void *buf, size_t n, struct sl_err *err, void *ctx);

/* All records as text, a line each: "3 [a,b]" (the physical line and the data), after a bad one " !why". Checks on the
 * way that offsets, ends and data agree with the input. In fresh memory. */
char *source_records(struct source *s, const struct sl_records_opts *opts, size_t at_once);

#endif
