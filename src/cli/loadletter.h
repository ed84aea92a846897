/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A dead letter of `sluice load`, written to its target again: the target that it remembers, or another URL with the
 * same table and columns.
 *
 * A letter is written alone. 0 means that its row is in the target; a crash before the letter is acknowledged repeats
 * it. What is no whole record (it was too long, and only its beginning is in the letter) is never written.
 *
 * Thread safety: none; the main thread calls.
 */
#ifndef SLUICE_CLI_LOADLETTER_H
#define SLUICE_CLI_LOADLETTER_H

#include "loadsink.h"

#include <sluice/coordinator.h>

/* One target, open as long as the letters stay with it. */
struct loadletter {
	struct cli *cli;
	const char *url; /* instead of the one that letters remember; NULL: none */
	char target[LOADSINK_TEXT_BYTES + 100];
	struct loadsink to;
	sl_sink sink;
	sl_coordinator *c; /* NULL: nothing is open */
	struct sl_err why; /* of the letter that is being written; code 0: it was */
};

void loadletter_init(struct loadletter *r, struct cli *cli, const char *url);
int loadletter_is(const struct sl_dlq_letter *letter);
/* 0: written. SL_ECANCELLED: a signal came first. SL_EREFUSED: refused again, and err says why. Others: the target, or
 * the letter's idea of it, is wrong. */
int loadletter_write(struct loadletter *r, const struct sl_dlq_letter *letter, struct sl_err *err);
/* Where the last one went, without secrets. */
const char *loadletter_target(const struct loadletter *r);
void loadletter_fini(struct loadletter *r);

#endif
