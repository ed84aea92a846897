/* SPDX-License-Identifier: Apache-2.0 */
/* The builder of index files, inside of the index's own files. */
#ifndef SL_BACKUP_INDEX_BUILD_H
#define SL_BACKUP_INDEX_BUILD_H

#include "backup/pack/index_file.h"
#include "backup/pack/index_sort.h"

struct bk_index_builder {
	struct sl_env env;
	const struct bk_keys *keys;
	uint32_t file_entries; /* BK_INDEX_FILE_ENTRIES; tests set less */
	sl__mutex mu;
	struct bk_sort sort;
	struct bk_id *packs; /* by number */
	uint32_t n_packs;
	uint32_t *slots; /* a hash table of packs: number + 1, or 0; at most half full */
	size_t n_slots;  /* a power of two */
};

/* The number of a pack, a new one when it has none. */
SL_MUST_CHECK int sl__bk_index_builder_number(struct bk_index_builder *b, const struct bk_id *pack, uint32_t *number,
					      struct sl_err *err);
/* The entries of a file, its packs under the builder's numbers: numbers[i], or UINT32_MAX for one that is left out. */
SL_MUST_CHECK int sl__bk_index_builder_file(struct bk_index_builder *b, struct bk_index *x, struct bk_index_file *f,
					    const uint32_t *numbers, struct sl_err *err);
void sl__bk_index_builder_clear(struct bk_index_builder *b); /* as new */

#endif
