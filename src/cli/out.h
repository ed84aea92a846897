/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Standard output, buffered, with every failure noticed: a broken pipe, a full disk or a closed descriptor is kept and
 * ends the command with exit code 74. A write that a signal interrupts is finished; a descriptor that does not block is
 * waited for. After the first failure writing does nothing, so callers may check once in a while.
 *
 * Thread safety: none; the main thread writes. Ownership: the struct holds no heap memory and does not own fd.
 */
#ifndef SLUICE_CLI_OUT_H
#define SLUICE_CLI_OUT_H

#include <jansson.h>
#include <sluice/err.h>
#include <stddef.h>

struct out {
	int fd;
	int sys_errno; /* of the first failure; 0: none so far */
	bool utc;      /* times for people are UTC, not local */
	size_t used;
	char buf[65536];
};

void out_init(struct out *out, int fd);
void out_write(struct out *out, const void *data, size_t n);
void out_str(struct out *out, const char *text);
void out_printf(struct out *out, const char *fmt, ...) SL_PRINTF(2, 3);
/* Base64 (RFC 4648, padded), without a copy of the whole. */
void out_b64(struct out *out, const void *data, size_t n);
/* One compact JSON value; consumes the reference to value. NULL (no memory) counts as a failure. */
void out_json(struct out *out, json_t *value);
/* The same on a line. */
void out_json_line(struct out *out, json_t *value);
/* The end of an object with a list in it that was printed as it grew, as "{"findings":[…": closes the list and adds
 * the fields of rest; consumes the reference to rest. */
void out_json_end(struct out *out, json_t *rest);
/* Hand all that is buffered to the system. 0, or the errno of the first failure. */
int out_flush(struct out *out);
bool out_failed(const struct out *out);

#endif
