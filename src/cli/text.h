/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of unknown origin as text for people: nothing that reaches a terminal through these functions can move its
 * cursor, and nothing that reaches a JSON document is invalid UTF-8.
 *
 * Thread safety: no state.
 */
#ifndef SLUICE_CLI_TEXT_H
#define SLUICE_CLI_TEXT_H

#include "out.h"

#include <stdint.h>

/* The length of the printable UTF-8 character at s (n bytes are there), 0 when it is a control or not UTF-8. */
size_t text_char(const unsigned char *s, size_t n);
/* data in double quotes, escaped as in C, cut after `limit` bytes with "…" after the quote; 0: not cut. */
void text_quoted(struct out *out, const void *data, size_t n, size_t limit);
/* text as one line: controls, characters that deceive and bytes that are not UTF-8 are escaped ("\n", "\x1b"). Writes
 * at most size bytes with the NUL. */
void text_line(char *to, size_t size, const char *text);
/* The name of a file as one line: as text_line, with a backslash as "\\", so that no two names look the same. */
void text_name(struct out *out, const char *name);
/* A piece of a command's output for a terminal: as text_line, but tabs stay. */
void text_output(struct out *out, const void *data, size_t n);
/* A JSON string; what is not UTF-8 becomes U+FFFD. */
json_t *text_json(const char *text);
/* A JSON integer. */
json_t *text_number(uint64_t v);

#define TEXT_TIME_BYTES 32
/* "2024-01-01T00:00:00.000Z", or the number itself when no calendar has it. Returns to. */
const char *text_time(char to[TEXT_TIME_BYTES], int64_t unix_ms);
/* For people: "2024-01-01 02:00:00", local time, or "2024-01-01 00:00:00Z" with --utc; "-" for 0. Returns to. */
const char *text_moment(char to[TEXT_TIME_BYTES], const struct out *out, int64_t unix_ms);
/* "1.5 s", "3 min", "2 days"…; Returns to. */
const char *text_age(char to[TEXT_TIME_BYTES], int64_t ms);
/* "123 B", "1.5 KiB"…; returns to. */
const char *text_bytes(char to[TEXT_TIME_BYTES], uint64_t bytes);
#define TEXT_COUNT_BYTES 48
/* "1 record", "2 records": the noun has a plural in s and is short. Returns to. */
const char *text_count(char to[TEXT_COUNT_BYTES], uint64_t n, const char *noun);
#define TEXT_INCARNATION_BYTES 12
/* Six hexadecimal digits, as in the names of archives; returns to. */
const char *text_incarnation(char to[TEXT_INCARNATION_BYTES], uint32_t incarnation);

/* The bytes as hexadecimal digits, with a NUL behind: 2n + 1 bytes. Returns to. */
const char *text_hex(char *to, const void *bytes, size_t n);

#endif
