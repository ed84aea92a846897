/* SPDX-License-Identifier: Apache-2.0 */
/* Events as lines of text: pieces of a long line are joined again. */
#include "joiner.h"

#include "text.h"

#include <inttypes.h>
#include <sluice/events.h>
#include <stdlib.h>
#include <string.h>

struct joiner_held {
	struct joiner_held *next;
	struct sl_event_row event; /* its payload follows it; without a stream */
	char payload[];
};

void joiner_init(struct joiner *j, struct out *out, int all, int escape)
{
	*j = (struct joiner){.out = out, .all = all, .escape = escape};
	j->last = &j->first;
}

static int is_output(int type)
{
	return type == SL_EVENT_STDOUT || type == SL_EVENT_STDERR || type == SL_EVENT_LOG;
}

/* No line is open, or it is this one's. */
static void print(struct joiner *j, const struct sl_event_row *e)
{
	char at[TEXT_TIME_BYTES];

	if (is_output(e->type)) {
		if (j->escape)
			text_output(j->out, e->payload, e->payload_len);
		else
			out_write(j->out, e->payload, e->payload_len);
		j->job = e->job_id;
		j->attempt = e->attempt;
		j->type = e->partial ? e->type : 0;
		if (!e->partial)
			out_str(j->out, "\n");
	} else if (j->all) {
		out_printf(j->out, "[%s job %" PRIu64 " attempt %d: %s ", text_time(at, e->ts_ms), e->job_id,
			   e->attempt, sl_event_type_name(e->type));
		text_quoted(j->out, e->payload, e->payload_len, 500);
		out_str(j->out, "]\n");
	}
}

/* The line is over: what waited has its turn, and may open one itself. */
static void replay(struct joiner *j)
{
	struct joiner_held *next = j->first;

	j->first = NULL;
	j->last = &j->first;
	j->held_bytes = 0;
	while (next) {
		struct joiner_held *held = next;

		next = held->next;
		joiner_put(j, &held->event);
		free(held);
	}
}

static void break_off(struct joiner *j)
{
	out_str(j->out, "\n");
	j->type = 0;
	replay(j);
}

/* 0: it cannot wait. */
static int hold(struct joiner *j, const struct sl_event_row *e)
{
	struct joiner_held *held = NULL;

	if (j->held_bytes + e->payload_len <= JOINER_HELD_BYTES)
		held = malloc(sizeof(*held) + e->payload_len);
	if (!held)
		return 0;
	held->next = NULL;
	held->event = *e;
	held->event.stream = NULL;
	held->event.payload = held->payload;
	if (e->payload_len)
		memcpy(held->payload, e->payload, e->payload_len);
	*j->last = held;
	j->last = &held->next;
	j->held_bytes += sizeof(*held) + e->payload_len;
	return 1;
}

void joiner_put(struct joiner *j, const struct sl_event_row *e)
{
	while (j->type) {
		int ours = e->job_id == j->job && e->attempt == j->attempt;

		if (ours && e->type == j->type) {
			print(j, e);
			if (!j->type)
				replay(j);
			return;
		}
		if (ours && e->type != SL_EVENT_STARTED && e->type != SL_EVENT_EXITED && hold(j, e))
			return;
		break_off(j);
	}
	print(j, e);
}

void joiner_end(struct joiner *j)
{
	while (j->type)
		break_off(j);
}
