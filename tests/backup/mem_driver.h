/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver that keeps its objects in memory, in the order of their puts: for tests that damage, count or take away
 * objects. Only put, get, stat, list and remove.
 *
 * Thread safety: as the contract asks.
 */
#ifndef TESTS_BACKUP_MEM_DRIVER_H
#define TESTS_BACKUP_MEM_DRIVER_H

#include <pthread.h>

#include <sluice/adapter/driver.h>

struct mem_object {
	char name[SL_DRIVER_NAME_BYTES];
	uint8_t *bytes;
	size_t len;
};

struct mem_driver {
	pthread_mutex_t mu;
	struct mem_object *objects;
	size_t n;
	uint64_t gets, got_bytes;
	int64_t fail_get_at; /* the get that fails with SL_EIO, from 1; 0: none */
	/* Called at the end of a listing, without the lock; NULL: not. */
	void (*after_list)(struct mem_driver *d, void *ctx);
	void *after_list_ctx;
};

void mem_driver_init(struct mem_driver *d);
void mem_driver_fini(struct mem_driver *d);
sl_driver mem_driver_handle(struct mem_driver *d);
/* NULL: not found. */
struct mem_object *mem_driver_find(struct mem_driver *d, const char *name);

#endif
