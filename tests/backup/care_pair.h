/* SPDX-License-Identifier: Apache-2.0 */
/* The world of the tests of check and prune: a repository on a shelf, with two snapshots that share a file. */
#ifndef TESTS_BACKUP_CARE_PAIR_H
#define TESTS_BACKUP_CARE_PAIR_H

#include "backup/care_kit.h"

static const struct care_file first[] = {
	{.path = "a"}, {.path = "a/1", .seed = 1, .len = 5000}, {.path = "a/2", .seed = 2, .len = 700}};
static const struct care_file second[] = {
	{.path = "a"}, {.path = "a/1", .seed = 1, .len = 5000}, {.path = "a/3", .seed = 3, .len = 90000}};

struct world {
	struct shelf shelf;
	sl_backup *b;
	char one[SL_BACKUP_ID_BYTES], two[SL_BACKUP_ID_BYTES];
};

static inline void make(sl_backup *b, const struct care_file *files, size_t n, char id[SL_BACKUP_ID_BYTES])
{
	struct sl_err err = SL_ERR_INIT;
	const struct care_snapshot s = {.files = files, .n = n, .time_ms = 1000};
	if (care_make(b, &s, id, &err) != 0)
		fail_msg("make: %s", err.msg);
}

static inline void begin(struct world *w)
{
	shelf_init(&w->shelf);
	w->b = care_new(&w->shelf, false);
	make(w->b, first, SL_COUNT(first), w->one);
	make(w->b, second, SL_COUNT(second), w->two);
}

static inline void end(struct world *w)
{
	sl_backup_close(w->b);
	shelf_fini(&w->shelf);
}

#endif
