/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the repository's formats share: keys, bytes that compress or do not, packs and their blocks. */
#ifndef TESTS_BACKUP_FORMAT_KIT_H
#define TESTS_BACKUP_FORMAT_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backup/create/chunker.h"
#include "backup/pack/index.h"
#include "backup/pack/pack.h"

/* The real environment, filled in. */
struct sl_env kit_env(void);
/* Keys of a plain (which 0) or an encrypted repository; other values are other encrypted repositories. */
struct bk_keys kit_keys(int which);

/* A stream of bytes by a seed; `text` from words, so that it compresses. */
void kit_random(uint8_t *out, size_t n, uint64_t seed);
void kit_text(uint8_t *out, size_t n, uint64_t seed);
/* An id by number, as evenly spread as real ones. */
struct bk_id kit_id(uint64_t number);

#endif
