/* SPDX-License-Identifier: Apache-2.0 */
/* The databases that were there when this was built. */
#include "bench.h"

const struct contender *const bench_peers[] = {
#ifdef HAVE_SQLITE
	&contender_sqlite,
#endif
#ifdef HAVE_ROCKSDB
	&contender_rocksdb,
#endif
#ifdef HAVE_LMDB
	&contender_lmdb,
#endif
#ifdef HAVE_HIREDIS
	&contender_redis,
#endif
	NULL,
};
