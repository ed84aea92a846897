/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The payload of a PostgreSQL notification is text: the sender's number in hexadecimal on the first line, then a line per note,
 *
 *	KIND REASON ID TYPE      decimal numbers; the type to the end of the line, may be empty
 *
 * Kind 0 stands for "check everything". A line that cannot be read counts as that too: a newer version may say more.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "jobs/notify/payload.h"

#define LINE_MAX_BYTES 256

void sl__pg_payloads_init(struct sl__pg_payloads *p, const struct sl_env *env, uint64_t from)
{
	sl__buf_init(&p->text, env);
	p->begin = 0;
	p->from = from;
}

void sl__pg_payloads_end(struct sl__pg_payloads *p)
{
	if (p->text.len == p->begin)
		return;
	(void)sl__buf_append(&p->text, "", 1);
	p->begin = p->text.len;
}

void sl__pg_payloads_head(struct sl__pg_payloads *p)
{
	if (p->text.len == p->begin)
		(void)sl__buf_printf(&p->text, "%016" PRIx64 "\n", p->from);
}

void sl__pg_payloads_add(struct sl__pg_payloads *p, const struct sl_note *note)
{
	const char *type = note->type != NULL && strlen(note->type) < SL__FANOUT_TYPE_BYTES ? note->type : "";
	if (p->text.len - p->begin > SL__PG_PAYLOAD_MAX - LINE_MAX_BYTES)
		sl__pg_payloads_end(p);
	sl__pg_payloads_head(p);
	(void)sl__buf_printf(&p->text, "%d %d %" PRIu64 " %s\n", (int)note->kind, (int)note->reason, note->id, type);
}

void sl__pg_payload_of_start(uint64_t from, const char *type, struct sl_start_notification *out)
{
	(void)snprintf(out->channel, sizeof(out->channel), "%s", SL__PG_CHANNEL);
	(void)snprintf(out->before, sizeof(out->before), "%016" PRIx64 "\n%d %d ", from, (int)SL_NOTE_JOB_SCHEDULED,
		       (int)SL_LOST_NOT);
	(void)snprintf(out->after, sizeof(out->after), " %s\n", type);
}

uint64_t sl__pg_payload_take(const char *payload, uint64_t self, struct sl__fanout *inbox)
{
	size_t digits = strspn(payload, "0123456789abcdef");
	if (digits == 0 || digits > 16 || payload[digits] != '\n')
		return 0;
	uint64_t from = strtoull(payload, NULL, 16);
	for (const char *line = payload + digits + 1; from != 0 && from != self && *line != '\0';) {
		size_t len = strcspn(line, "\n");
		char text[LINE_MAX_BYTES] = "";
		int kind, reason, at = 0;
		uint64_t id;
		struct sl_note note = {.kind = 0};
		if (len < sizeof(text)) {
			memcpy(text, line, len);
			text[len] = '\0';
		}
		if (sscanf(text, "%d %d %" SCNu64 "%n", &kind, &reason, &id, &at) == 3 && text[at] == ' ' &&
		    kind >= 0 && kind <= SL_NOTE_CHAIN_ENDED && reason >= 0 && reason <= SL_LOST_FAILED)
			note = (struct sl_note){.kind = (enum sl_note_kind)kind,
						.reason = (enum sl_lost_reason)reason,
						.id = id,
						.type = text[at + 1] != '\0' ? text + at + 1 : NULL};
		sl__fanout_push(inbox, &note, 1);
		line += len + (line[len] == '\n');
	}
	return from;
}
