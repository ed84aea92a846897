/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the index share: synthetic blocks by number, their places, and a repository in memory. */
#ifndef TESTS_BACKUP_INDEX_KIT_H
#define TESTS_BACKUP_INDEX_KIT_H

#include "backup/format_kit.h"
#include "backup/mem_driver.h"
#include "backup/pack/index_build.h"

#define INDEX_KIT_PACK 100u /* blocks of a pack: number i is in pack i / 100 */

struct index_kit {
	struct sl_env env;
	struct bk_keys keys;
	struct mem_driver mem;
	sl_driver driver;
};

void index_kit_begin(struct index_kit *t, int which);
void index_kit_end(struct index_kit *t);

/* A place that only this block has, and the id of a pack by number. */
struct bk_place index_kit_place(const struct bk_keys *keys, uint64_t number);
struct bk_id index_kit_pack(uint64_t number);
/* The blocks first to end - 1, pack by pack. */
void index_kit_add(struct index_kit *t, struct bk_index_builder *b, uint64_t first, uint64_t end);
/* The same into separate files, with this many entries per run and per file. */
void index_kit_put(struct index_kit *t, uint64_t first, uint64_t end, uint32_t run, uint32_t per_file);
struct bk_index *index_kit_load(struct index_kit *t);
void index_kit_assert_found(struct index_kit *t, struct bk_index *x, uint64_t number);
void index_kit_assert_missing(struct bk_index *x, uint64_t number);

#endif
