/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A dead letter of a load, or a row that an export has diverted, written to its target again: the target that it
 * remembers, or another URL with the same table and columns.
 *
 * A dead letter is written alone. 0 means that its row is in the target; a crash before the dead letter is acknowledged
 * repeats it. What is no whole record (it was too long, and only its beginning is in the dead letter) is never written.
 *
 * Thread safety: none. Ownership: the options are borrowed; sl__load_redrive_close ends what init began.
 */
#ifndef SL_LOAD_REDRIVE_H
#define SL_LOAD_REDRIVE_H

#include "load/target.h"

#include <sluice/coordinator.h>
#include <sluice/dead_letter.h>

struct load_redrive_opts {
	const struct sl_env *env;
	const char *url;   /* instead of the one that dead letters remember; NULL: none */
	const char *token; /* of HTTP targets without a token file; NULL: none */
	int stop_fd;       /* readable once a stop was requested */
};

/* One target, open as long as the dead letters stay with it. */
struct load_redrive {
	struct load_redrive_opts opts;
	struct sl_env env; /* complete */
	char target[LOAD_TARGET_BYTES + 100];
	struct load_target to;
	char *header[1]; /* with the token */
	sl_sink sink;
	sl_coordinator *c; /* NULL: nothing is open */
	struct sl_err why; /* of the dead letter that is being written; code 0: it was */
};

/* 0, or SL_EINVAL. */
int sl__load_redrive_init(struct load_redrive *r, const struct load_redrive_opts *opts, struct sl_err *err);
/* Is it one of these? By its source. */
bool sl__load_redrive_takes(const struct sl_dlq_letter *letter);
/* 0: written. SL_ECANCELLED: a stop was requested first. SL_EREFUSED: refused again, and err says why. Others: the
 * target, or the dead letter's idea of it, is wrong. */
int sl__load_redrive_write(struct load_redrive *r, const struct sl_dlq_letter *letter, struct sl_err *err);
/* Where the last one went, without secrets. */
const char *sl__load_redrive_target(const struct load_redrive *r);
/* Fails while a write has not returned; the memory must then stay, and the process end under it. */
int sl__load_redrive_close(struct load_redrive *r, struct sl_err *err);

#endif
