/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole driver in memory, for tests of what is done to a repository: its clock is the test's, every call passes a
 * gate (where a scheduler may let others run first), calls can be made to fail, room to run out, and the whole state
 * can be copied, damaged and put back.
 *
 * Thread safety: as the contract requires; the other functions only while no call is running.
 */
#ifndef TESTS_BACKUP_SHELF_H
#define TESTS_BACKUP_SHELF_H

#include <pthread.h>
#include <stdbool.h>

#include <sluice/adapter/driver.h>

struct shelf_object {
	char name[SL_DRIVER_NAME_BYTES];
	uint8_t *bytes;
	size_t len;
	int64_t mtime_ms;
};

#define SHELF_LOCKS 4

struct shelf {
	pthread_mutex_t mu;
	struct shelf_object *objects;
	size_t n, cap;
	int64_t now_ms;
	size_t room; /* bytes that objects may take together; SIZE_MAX: no limit */
	size_t used;
	bool has_lock;                                 /* false: the driver has no locks */
	bool locked;                                   /* a lock is held; set by a test: all of them */
	char locks[SHELF_LOCKS][SL_DRIVER_NAME_BYTES]; /* that are held; "": free */
	/* Before each call, without the lock: what ("list", "put", …) and the name. NULL: none. */
	void (*gate)(const char *what, const char *name, void *ctx);
	void *gate_ctx;
	/* The fail_at-th changing call from now on fails with this code; 0: none does. `for_ever`: all later ones. */
	int64_t fail_at, changes;
	int fail_code;
	bool for_ever;
	const char *unreadable; /* gets of objects whose names begin so fail with SL_EIO; NULL: none */
};

void shelf_init(struct shelf *s);
void shelf_fini(struct shelf *s);
sl_driver shelf_driver(struct shelf *s);
/* The live object, or NULL. */
struct shelf_object *shelf_find(struct shelf *s, const char *name);
size_t shelf_count(const struct shelf *s, const char *folder); /* objects whose names begin with it */
bool shelf_drop(struct shelf *s, const char *name);
/* Contents and clock of one into another, which has neither gate nor faults then. */
void shelf_copy(struct shelf *to, const struct shelf *from);

#endif
