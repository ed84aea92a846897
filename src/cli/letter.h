/* SPDX-License-Identifier: Apache-2.0 */
/* What the dlq commands share: opening a folder of dead letters, and a letter as JSON and as text. */
#ifndef SLUICE_CLI_LETTER_H
#define SLUICE_CLI_LETTER_H

#include "cli.h"

#include <sluice/dead_letter.h>

/* Open a folder that is there: a missing one is never made. 0, or an exit code after a line on stderr. */
int letters_open(struct cli *cli, const char *dir, int read_only, sl_dlq **q);

/* One object on one line: id, source, position, line, class, error, code, attempts, first_failed_ms, last_failed_ms,
 * target, acknowledged, payload_b64. line is the position of a letter that came from a file of lines, else null. */
void letter_json(struct out *out, const struct sl_dlq_letter *letter);
/* One line: id, last failure, class, attempts, source and position, error. */
void letter_line(struct out *out, const struct sl_dlq_letter *letter);
/* Everything, one field a line, the payload escaped. */
void letter_full(struct out *out, const struct sl_dlq_letter *letter);

#endif
