/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growing buffer, and the fields of a protobuf message in it: enough for what sluice ship adds to the events of its
 * log. A key is the number of a field and its type.
 *
 * Thread safety: none. Ownership: a buffer owns its bytes; a field that was read points into the message.
 */
#ifndef SLUICE_CLI_SHIPWIRE_H
#define SLUICE_CLI_SHIPWIRE_H

#include <stddef.h>
#include <stdint.h>

/* failed: memory ran out, and what it holds is not all. */
struct ship_buf {
	char *data;
	size_t n, cap;
	int failed;
};
void ship_buf_add(struct ship_buf *b, const void *data, size_t n);
void ship_buf_fini(struct ship_buf *b);

enum { SHIP_VARINT = 0, SHIP_FIXED64 = 1, SHIP_BYTES = 2, SHIP_FIXED32 = 5 };

void ship_put_number(struct ship_buf *b, unsigned field, uint64_t value);
void ship_put_fixed(struct ship_buf *b, unsigned field, uint64_t value);
void ship_put_bytes(struct ship_buf *b, unsigned field, const void *data, size_t len);

struct ship_reader {
	const unsigned char *at, *end;
};

struct ship_field {
	unsigned number, type;
	uint64_t value;            /* of a number; the length of bytes */
	const unsigned char *data; /* of bytes */
};

/* 1: a field; 0: the end, or not a message from here on. */
int ship_get_field(struct ship_reader *r, struct ship_field *f);
/* The message that a field of bytes holds. */
struct ship_reader ship_reader_of(const struct ship_field *f);

#endif
