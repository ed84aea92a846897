/* SPDX-License-Identifier: Apache-2.0 */
/* Dead letters in a folder in memory (crashfs.h) under a table that fails calls (fault.h): put, damage, and say in one
 * line what must be there. */
#ifndef TESTS_FLOW_LETTERBOX_H
#define TESTS_FLOW_LETTERBOX_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/env.h"
#include "support/crashfs.h"
#include "support/fault.h"
#include "support/vclock.h"
#include <sluice/dead_letter.h>

#define BOX_DIR "/letters"
#define BOX_FIRST "/letters/00000001.dlq"

struct letterbox {
	struct crashfs *fs;
	struct vclock clock;
	struct fault fault;
	uint64_t random; /* the same in every run */
	struct sl_env env;
	struct sl_dlq_opts opts;
	struct sl_err err;
	int warnings;           /* log records at WARN and above */
	char last_warning[128]; /* its message */
	char text[1 << 16];     /* of letterbox_list */
};

int letterbox_setup(void **state);
/* Asserts that nothing is left open or allocated. */
int letterbox_teardown(void **state);
/* The same box on another filesystem, say one after a crash. */
void letterbox_on(struct letterbox *b, struct crashfs *fs);

sl_dlq *letterbox_open(struct letterbox *b);
int letterbox_try_open(struct letterbox *b, sl_dlq **out);
/* A letter with this item, from "test", at position 7, failed between 1,000 and 2,000 ms. */
struct sl_dlq_letter letterbox_letter(const char *item);
uint64_t letterbox_put(struct letterbox *b, sl_dlq *q, const char *item);
/* n letters "a" padded to len bytes. */
void letterbox_put_n(struct letterbox *b, sl_dlq *q, size_t n, size_t len);
/* "1=one 2=two! 3=three": what list visits; ! is acknowledged. Items longer than 16 bytes are cut with "~". */
const char *letterbox_list(struct letterbox *b, sl_dlq *q, int all);
#define assert_letters(b, q, what) assert_string_equal(letterbox_list(b, q, 1), what)
#define assert_waiting(b, q, what) assert_string_equal(letterbox_list(b, q, 0), what)
struct sl_dlq_stats letterbox_stats(struct letterbox *b, sl_dlq *q);

/* Files of the folder, whole. */
const uint8_t *letterbox_bytes(struct letterbox *b, const char *path, size_t *n);
void letterbox_write(struct letterbox *b, const char *path, const void *data, size_t n);
void letterbox_flip(struct letterbox *b, const char *path, size_t bit);
void letterbox_cut(struct letterbox *b, const char *path, size_t size);
bool letterbox_has(struct letterbox *b, const char *path);
/* Names in the folder that contain part. */
size_t letterbox_count(struct letterbox *b, const char *part);

#endif
