/* SPDX-License-Identifier: Apache-2.0 */
/* A folder for one test, and whole files in it. */
#ifndef TESTS_SINK_PLACE_H
#define TESTS_SINK_PLACE_H

#include <stddef.h>

struct place {
	char dir[64];
	char path[128]; /* dir/inner/NAME: the target; inner can be moved away */
};

/* 0, or the folder could not be made. */
int place_init(struct place *p, const char *name);
void place_fini(struct place *p); /* removes all of it */
/* The folder of the target disappears, and comes back. */
void place_hide(const struct place *p);
void place_show(const struct place *p);
/* dir/inner/NAME, valid until the next call. */
const char *place_file(const struct place *p, const char *name);
/* The bytes of a file, followed by a NUL, to be freed; NULL if the file does not exist. */
char *place_read(const char *path, size_t *n);
void place_write(const char *path, const void *data, size_t n);

#endif
