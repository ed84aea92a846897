/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records from a stream of bytes: lines, or frames with a 4-byte little-endian length before each. Holds at most one
 * record of the largest size in memory, whatever comes in. A line's newline is not part of it, everything else is (CR,
 * NUL); the last line may lack its newline; an empty line or frame is an empty record.
 *
 * Thread safety: none. Ownership: a record lives in the buffer until the next call.
 */
#ifndef SLUICE_CLI_INPUT_H
#define SLUICE_CLI_INPUT_H

#include <sluice/err.h>
#include <stddef.h>
#include <stdint.h>

struct input {
	int fd;
	bool frames;
	size_t max_record;
	char *buf;
	size_t cap, start, end; /* what is not consumed is buf[start..end) */
	size_t scanned;         /* no newline in buf[start..start + scanned) */
	bool eof;
	uint64_t offset; /* of buf[start] in the stream */
	uint64_t number; /* records given out */
};

struct input_record {
	const char *data;
	size_t len;
	uint64_t offset; /* in the stream, of its line or frame */
	uint64_t number; /* from 1: the line */
};

enum input_step { INPUT_RECORD, INPUT_NEED, INPUT_END, INPUT_FAILED };

void input_init(struct input *in, int fd, bool frames, size_t max_record);
void input_fini(struct input *in);
/* The next record of what was read. NEED: read more first. FAILED: too long, or a frame that was cut off (err says
 * where). */
enum input_step input_next(struct input *in, struct input_record *out, struct sl_err *err);
/* 1 when a read would not block. */
bool input_ready(const struct input *in);
/* Wait until a read would not block or wake_fd is readable. */
void input_wait(const struct input *in, int wake_fd);
/* Read what is there. 0 (also when a signal came first), or an error. */
int input_fill(struct input *in, struct sl_err *err);

/*
 * Records that are kept until all of them are there: in memory while they are few, in a temporary file without a name
 * (of TMPDIR) beyond 4 MiB. They come back in order, by way of struct input. The data of a record is copied.
 */
struct spool {
	int fd; /* -1: all in memory */
	char *buf;
	size_t used, cap; /* of buf, which follows on what is in the file */
};

void spool_init(struct spool *s);
void spool_fini(struct spool *s);
/* n below 4 GiB; 0 is a record, too. */
int spool_add(struct spool *s, const char *data, size_t n, struct sl_err *err);
/* No more records: in, which need not be initialised, gives them out from the first one, each of at most max_record
 * bytes. End it before the spool. */
int spool_read(struct spool *s, struct input *in, size_t max_record, struct sl_err *err);

#endif
