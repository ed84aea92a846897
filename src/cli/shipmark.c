/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far a file of rows is. It is read from its end backwards, a block at a time, until a row of the stream is found:
 * rows of a stream are in order, so the last one is its mark. A row that was torn off by a crash is none; the sink sets
 * it aside when it opens the file.
 */
#include "shipsend.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 1 << 20 };
#define LOOK_BACK ((off_t)256 << 20) /* behind that, what a crash could repeat is long delivered */

/* The sequence of a row, when it is one of this stream. */
static uint64_t sequence_of(const char *row, size_t n, const char *stream, uint32_t incarnation)
{
	json_t *j = json_loadb(row, n, 0, NULL);
	const char *id = json_string_value(json_object_get(j, "stream"));
	uint64_t sequence = 0;

	if (id && strcmp(id, stream) == 0 && json_integer_value(json_object_get(j, "incarnation")) == incarnation)
		sequence = (uint64_t)json_integer_value(json_object_get(j, "sequence"));
	json_decref(j);
	return sequence;
}

/* Of the complete rows in data, the last one of the stream. *rest: bytes at the beginning that are no whole row. */
static uint64_t last_in(const char *data, size_t n, int from_start, const char *stream, uint32_t incarnation,
			size_t *rest, const char **where, size_t *len)
{
	const char *end = memrchr(data, '\n', n);

	while (end) {
		const char *before = end > data ? memrchr(data, '\n', (size_t)(end - data)) : NULL;
		const char *row = before ? before + 1 : data;
		uint64_t found = 0;

		if (before || from_start)
			found = sequence_of(row, (size_t)(end - row), stream, incarnation);
		if (found) {
			*where = row;
			*len = (size_t)(end - row);
			return found;
		}
		*rest = (size_t)(end - data) + 1;
		end = before;
	}
	return 0;
}

static uint64_t look_back(int fd, off_t size, const char *stream, uint32_t incarnation, char **row, size_t *len)
{
	off_t from = size, stop = size > LOOK_BACK ? size - LOOK_BACK : 0;
	size_t n = 0, cap = 2 * BLOCK;
	char *data = malloc(cap);
	const char *where = NULL;
	uint64_t found = 0;

	/* data holds the file from `from` on, n bytes: rows that were not looked at yet. */
	while (data && !found && from > stop) {
		size_t more = from - stop < BLOCK ? (size_t)(from - stop) : BLOCK, rest = n;

		if (n + more > cap) {
			char *grown = realloc(data, cap *= 2);

			if (!grown)
				break;
			data = grown;
		}
		memmove(data + more, data, n);
		if (pread(fd, data, more, from - (off_t)more) != (ssize_t)more)
			break;
		from -= (off_t)more;
		n += more;
		rest = n;
		found = last_in(data, n, from == 0, stream, incarnation, &rest, &where, len);
		n = rest;
	}
	*row = found ? strndup(where, *len) : NULL;
	free(data);
	return found;
}

uint64_t shipmark_of_file(const char *path, const char *stream, uint32_t incarnation, char **row, size_t *n)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	uint64_t found = 0;

	*row = NULL;
	if (fd < 0)
		return 0;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		found = look_back(fd, st.st_size, stream, incarnation, row, n);
	(void)close(fd);
	return found;
}
