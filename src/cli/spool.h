/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records that are kept until all of them are there: in memory while they are few, in a temporary file without a name
 * (of TMPDIR) beyond 4 MiB. They come back in order, by way of struct input.
 *
 * Thread safety: none. Ownership: the data of a record is copied.
 */
#ifndef SLUICE_CLI_SPOOL_H
#define SLUICE_CLI_SPOOL_H

#include "input.h"

struct spool {
	int fd; /* -1: all in memory */
	char *buf;
	size_t used, cap; /* of buf, which follows on what is in the file */
};

void spool_init(struct spool *s);
void spool_fini(struct spool *s);
/* n below 4 GiB; 0 is a record, too. */
int spool_add(struct spool *s, const char *data, size_t n, struct sl_err *err);
/* No more records: in, which need not be initialised, gives them out from the first one, each of at most max_record
 * bytes. End it before the spool. */
int spool_read(struct spool *s, struct input *in, size_t max_record, struct sl_err *err);

#endif
