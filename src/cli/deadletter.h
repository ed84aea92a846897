/* SPDX-License-Identifier: Apache-2.0 */
/* What the dlq commands share: opening a folder of dead letters, and a dead letter as JSON and as text. */
#ifndef SLUICE_CLI_DEADLETTER_H
#define SLUICE_CLI_DEADLETTER_H

#include "cli.h"
#include "table.h"

#include <sluice/dead_letter.h>

/* Open a folder that is there: a missing one is never made. 0, or an exit code after a line on stderr. */
int deadletters_open(struct cli *cli, const char *dir, bool read_only, sl_dlq **q);

/* A dead letter with its item as it was appended, where that can be had. */
struct deadletter_view {
	struct sl_dlq_letter letter; /* letter.encoding says how it is stored */
	bool opened;                 /* the item is plain; false: it is sealed, and letter.item as stored */
	void *owned;
};

/* Open a dead letter; key_file may be NULL. Without a key a sealed item stays sealed, and that is no error. A key
 * that does not open it is SL_EKEY; the view is then good all the same. End it with deadletter_view_end. */
int deadletter_view(struct deadletter_view *v, const struct cli *cli, const struct sl_dlq_letter *letter,
		    const char *key_file, struct sl_err *err);
void deadletter_view_end(struct deadletter_view *v);

/* One object on one line: id, source, position, line, class, error, code, attempts, first_failed_ms, last_failed_ms,
 * target, acknowledged, sealed, payload_b64. line is the position of a dead letter that came from a file of lines, else
 * null. payload_b64 is null when the item stays sealed, and sealed_b64 follows. */
void deadletter_json(struct out *out, const struct deadletter_view *view);
/* A table of one row each: id, last failure, class, attempts, state, source and position, error. */
void deadletter_table(struct table *table, struct out *out);
void deadletter_row(struct table *table, const struct deadletter_view *view);
/* Everything, one field a line, the payload escaped. */
void deadletter_full(struct out *out, const struct deadletter_view *view);

#endif
