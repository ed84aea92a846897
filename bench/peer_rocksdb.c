/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RocksDB with sync=1: a put per record under a growing 8-byte key, one database shared by all threads (it groups their
 * commits), 64 MiB write buffers, no compression (the payloads do not compress). Reusing old log files was tried and
 * changes nothing within the length of a run.
 */
#include <rocksdb/c.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"

struct rocks {
	rocksdb_t *db;
	rocksdb_options_t *options;
	rocksdb_writeoptions_t *write;
	_Atomic uint64_t next;
};

static int rocks_fail(char *text, const char *what, struct sl_err *err)
{
	int rc = sl_err_set(err, SL_EIO, "rocksdb: %s: %s", what, text);
	rocksdb_free(text);
	return rc;
}

static int rocks_open(void **state, const struct place *place, struct sl_err *err)
{
	struct rocks *r = calloc(1, sizeof(*r));
	char *text = NULL;
	if (r == NULL)
		return sl_err_set(err, SL_ENOMEM, "rocksdb");
	*state = r;
	r->options = rocksdb_options_create();
	rocksdb_options_set_create_if_missing(r->options, 1);
	rocksdb_options_set_write_buffer_size(r->options, (size_t)64 << 20);
	rocksdb_options_set_compression(r->options, rocksdb_no_compression);
	r->write = rocksdb_writeoptions_create();
	rocksdb_writeoptions_set_sync(r->write, 1);
	r->db = rocksdb_open(r->options, place->dir, &text);
	return text == NULL ? 0 : rocks_fail(text, "open", err);
}

static int rocks_worker_open(void **worker, void *state, struct sl_err *err)
{
	(void)err;
	*worker = state;
	return 0;
}

static void rocks_worker_close(void *worker)
{
	(void)worker;
}

static int rocks_append(void *worker, const void *payload, size_t n, struct sl_err *err)
{
	struct rocks *r = worker;
	uint64_t key = __builtin_bswap64(atomic_fetch_add(&r->next, 1) + 1);
	char bytes[sizeof(key)], *text = NULL;
	memcpy(bytes, &key, sizeof(key));
	rocksdb_put(r->db, r->write, bytes, sizeof(bytes), payload, n, &text);
	return text == NULL ? 0 : rocks_fail(text, "put", err);
}

static bool rocks_busy(struct rocks *r)
{
	static const char *const properties[] = {"rocksdb.num-running-flushes", "rocksdb.num-running-compactions",
						 "rocksdb.mem-table-flush-pending", "rocksdb.compaction-pending"};
	for (size_t i = 0; i < sizeof(properties) / sizeof(*properties); i++) {
		uint64_t value = 0;
		if (rocksdb_property_int(r->db, properties[i], &value) == 0 && value != 0)
			return true;
	}
	return false;
}

static void rocks_settle(void *state)
{
	for (int i = 0; i < 5000 && rocks_busy(state); i++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void rocks_close(void *state)
{
	struct rocks *r = state;
	if (r->db != NULL)
		rocksdb_close(r->db);
	rocksdb_writeoptions_destroy(r->write);
	rocksdb_options_destroy(r->options);
	free(r);
}

const struct contender contender_rocksdb = {
	.name = "rocksdb",
	.settings = "sync=1, log on, 64 MiB write buffer, no compression, one put per record",
	.open = rocks_open,
	.worker_open = rocks_worker_open,
	.append = rocks_append,
	.worker_close = rocks_worker_close,
	.settle = rocks_settle,
	.close = rocks_close,
};
