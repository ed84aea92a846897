/* SPDX-License-Identifier: Apache-2.0 */
/* A dead letter as JSON and as text; shared by the dlq commands. */
#ifndef SLUICE_CLI_LETTER_H
#define SLUICE_CLI_LETTER_H

#include "out.h"

#include <sluice/dead_letter.h>

/* One object on one line: id, source, position, line, class, error, code, attempts, first_failed_ms, last_failed_ms,
 * target, acknowledged, payload_b64. line is the position of a letter that came from a file of lines, else null. */
void letter_json(struct out *out, const struct sl_dlq_letter *letter);
/* One line: id, last failure, class, attempts, source and position, error. */
void letter_line(struct out *out, const struct sl_dlq_letter *letter);
/* Everything, one field a line, the payload escaped. */
void letter_full(struct out *out, const struct sl_dlq_letter *letter);

#endif
