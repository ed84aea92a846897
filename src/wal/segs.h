/* SPDX-License-Identifier: Apache-2.0 */
/* The files of one stream in a folder. */
#ifndef SL_WAL_SEGS_H
#define SL_WAL_SEGS_H

#include "base/env.h"
#include "wal/format.h"

struct wal_files {
	uint64_t *sealed; /* first sequences, ascending */
	size_t n_sealed, cap;
	char **temps; /* names of temporary files that a crash left */
	size_t n_temps;
};

/* List the files of stream id in dir. A folder that is not there has none. */
SL_MUST_CHECK int sl__wal_files_list(struct wal_files *out, const struct sl_env *env, const char *dir, const char *id,
				     struct sl_err *err);
void sl__wal_files_free(struct wal_files *f, const struct sl_env *env);
/* <dir>/<id>.wal, or <dir>/<id>.wal.<first> when first is not 0. */
char *sl__wal_file_path(const struct sl_env *env, const char *dir, const char *id, uint64_t first);

#endif
