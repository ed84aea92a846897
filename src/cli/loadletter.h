/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A dead letter of `sluice load`, written to its target again: the target that it remembers, or another URL with the
 * same table and columns.
 *
 * A dead letter is written alone. 0 means that its row is in the target; a crash before the dead letter is acknowledged repeats
 * it. What is no whole record (it was too long, and only its beginning is in the dead letter) is never written.
 *
 * Thread safety: none; the main thread calls.
 */
#ifndef SLUICE_CLI_LOADLETTER_H
#define SLUICE_CLI_LOADLETTER_H

#include "cli.h"
#include "load/target.h"

#include <sluice/coordinator.h>

/* One target, open as long as the dead letters stay with it. */
struct loadletter {
	struct cli *cli;
	const char *url;   /* instead of the one that dead letters remember; NULL: none */
	struct sl_env env; /* complete, for the library's own functions */
	char target[LOAD_TARGET_BYTES + 100];
	struct load_target to;
	char *header[1]; /* with the token of the environment */
	sl_sink sink;
	sl_coordinator *c; /* NULL: nothing is open */
	struct sl_err why; /* of the dead letter that is being written; code 0: it was */
};

/* An HTTP target without a token file gets the token of SLUICE_HTTP_TOKEN, if that is set, as a header. 0, or
 * SL_ENOMEM; the caller frees header[0]. */
int loadletter_set_token(struct sl_sink_opts *opts, const char *url, char *header[1]);

/* 0, or SL_EINVAL. */
int loadletter_init(struct loadletter *r, struct cli *cli, const char *url);
int loadletter_is(const struct sl_dlq_letter *letter);
/* 0: written. SL_ECANCELLED: a signal came first. SL_EREFUSED: refused again, and err says why. Others: the target, or
 * the dead letter's idea of it, is wrong. */
int loadletter_write(struct loadletter *r, const struct sl_dlq_letter *letter, struct sl_err *err);
/* Where the last one went, without secrets. */
const char *loadletter_target(const struct loadletter *r);
void loadletter_fini(struct loadletter *r);

#endif
