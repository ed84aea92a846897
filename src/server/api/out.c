/* SPDX-License-Identifier: Apache-2.0 */
/* JSON as text. Values that came as JSON text are put in as they are. */
#include "base/base64.h"
#include "base/time.h"
#include "server/api/api.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The buffer's failure sticks; it is checked once, when the answer is sent. */
static void put_bytes(struct srv_out *o, const void *data, size_t n)
{
	if (o->text.env == NULL)
		o->text.env = &sl__env_real;
	(void)sl__buf_append(&o->text, data, n);
}

static void put_text(struct srv_out *o, const char *text)
{
	put_bytes(o, text, strlen(text));
}

static void before_value(struct srv_out *o)
{
	if (o->comma)
		put_bytes(o, ",", 1);
	o->comma = true;
}

void srv_out_open(struct srv_out *o, char bracket)
{
	before_value(o);
	put_bytes(o, &bracket, 1);
	o->comma = false;
}

void srv_out_begin(struct srv_out *o, const char *name, char bracket)
{
	srv_out_name(o, name);
	srv_out_open(o, bracket);
}

void srv_out_close(struct srv_out *o, char bracket)
{
	put_bytes(o, &bracket, 1);
	o->comma = true;
}

void srv_out_name(struct srv_out *o, const char *name)
{
	srv_out_str(o, name);
	put_bytes(o, ":", 1);
	o->comma = false;
}

/* Bytes of the character at p: 1 to 4; 0: not UTF-8. */
static size_t utf8_len(const unsigned char *p, size_t n)
{
	if (p[0] < 0x80)
		return 1;
	size_t len = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
	if (p[0] < 0xC2 || p[0] > 0xF4 || n < len)
		return 0;
	for (size_t i = 1; i < len; i++)
		if ((p[i] & 0xC0) != 0x80)
			return 0;
	if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F) || (p[0] == 0xF0 && p[1] < 0x90) ||
	    (p[0] == 0xF4 && p[1] > 0x8F))
		return 0;
	return len;
}

void srv_out_strn(struct srv_out *o, const char *text, size_t n)
{
	static const char escapes[] = "\"\\\n\r\t", letters[] = "\"\\nrt";
	const unsigned char *p = (const unsigned char *)text;
	size_t from = 0;
	before_value(o);
	put_bytes(o, "\"", 1);
	for (size_t i = 0; i < n;) {
		size_t len = utf8_len(p + i, n - i);
		if (len > 0 && p[i] >= 0x20 && p[i] != '"' && p[i] != '\\' && p[i] != 0x7F) {
			i += len;
			continue;
		}
		put_bytes(o, text + from, i - from);
		const char *known = p[i] != '\0' ? strchr(escapes, p[i]) : NULL;
		if (len == 0)
			put_text(o, "\xEF\xBF\xBD");
		else if (known != NULL)
			(void)sl__buf_printf(&o->text, "\\%c", letters[known - escapes]);
		else
			(void)sl__buf_printf(&o->text, "\\u%04x", p[i]);
		from = ++i;
	}
	put_bytes(o, text + from, n - from);
	put_bytes(o, "\"", 1);
}

void srv_out_str(struct srv_out *o, const char *text)
{
	if (text == NULL)
		srv_out_raw(o, NULL);
	else
		srv_out_strn(o, text, strlen(text));
}

void srv_out_raw(struct srv_out *o, const char *json)
{
	before_value(o);
	put_text(o, json != NULL && *json != '\0' ? json : "null");
}

void srv_out_int(struct srv_out *o, int64_t n)
{
	char text[32];
	(void)snprintf(text, sizeof(text), "%" PRId64, n);
	srv_out_raw(o, text);
}

void srv_out_real(struct srv_out *o, double n)
{
	char text[64];
	(void)snprintf(text, sizeof(text), "%.3f", n);
	srv_out_raw(o, text);
}

void srv_out_bool(struct srv_out *o, bool b)
{
	srv_out_raw(o, b ? "true" : "false");
}

void srv_out_id(struct srv_out *o, uint64_t id)
{
	char text[32];
	(void)snprintf(text, sizeof(text), "\"%" PRIu64 "\"", id);
	srv_out_raw(o, id != 0 ? text : NULL);
}

void srv_out_time(struct srv_out *o, int64_t ms)
{
	char text[SL__TIME_BYTES];
	if (ms == 0)
		srv_out_raw(o, NULL);
	else
		srv_out_strn(o, text, sl__time_text(text, ms));
}

void srv_out_base64(struct srv_out *o, const void *data, size_t n)
{
	before_value(o);
	put_bytes(o, "\"", 1);
	(void)sl__base64_append(&o->text, data, n);
	put_bytes(o, "\"", 1);
}

void srv_out_free(struct srv_out *o)
{
	sl__buf_fini(&o->text);
	*o = (struct srv_out){0};
}

void srv_out_answer(srv_request *r, int status, struct srv_out *o)
{
	size_t n = o->text.len;
	char *text = sl__buf_take(&o->text);
	if (text != NULL)
		srv_bytes_own(r, status, "application/json", text, n);
	else
		srv_error(r, 500, "internal", "out of memory");
	srv_out_free(o);
}

void srv_items_begin(struct srv_out *o)
{
	srv_out_open(o, '{');
	srv_out_begin(o, "items", '[');
}

void srv_items_answer(srv_request *r, struct srv_out *o, int rc, const struct sl_err *err, const char *cursor)
{
	if (rc != 0 && !o->text.failed) {
		srv_out_free(o);
		srv_fail(r, err);
		return;
	}
	srv_out_close(o, ']');
	if (cursor != NULL)
		SRV_FIELD(o, "next_cursor", str, cursor[0] != '\0' ? cursor : NULL);
	srv_out_close(o, '}');
	srv_out_answer(r, 200, o);
}

/* ---- jobs and chains ---- */

/* "": it was left out for its length, and so is the field. */
static void out_data(struct srv_out *o, const char *name, const char *json)
{
	if (json == NULL || *json != '\0')
		SRV_FIELD(o, name, raw, json);
}

void srv_out_job(struct srv_out *o, const struct sl_job *job)
{
	SRV_FIELD(o, "id", id, job->id);
	SRV_FIELD(o, "chain_id", id, job->chain_id);
	SRV_FIELD(o, "type", str, job->type);
	SRV_FIELD(o, "status", str, sl_job_status_name(job->status));
	SRV_FIELD(o, "attempt", int, job->attempt);
	SRV_FIELD(o, "priority", int, job->priority);
	out_data(o, "input", job->input);
	out_data(o, "output", job->output);
	SRV_FIELD(o, "error", str, job->error);
	out_data(o, "progress", job->progress);
	SRV_FIELD(o, "created_at", time, job->created_ms);
	SRV_FIELD(o, "scheduled_for", time, job->scheduled_ms);
	SRV_FIELD(o, "started_at", time, job->started_ms);
	SRV_FIELD(o, "completed_at", time, job->status == SL_JOB_COMPLETED ? job->ended_ms : 0);
	SRV_FIELD(o, "ended_at", time, job->ended_ms);
	SRV_FIELD(o, "leased_by", str, job->leased_by);
	SRV_FIELD(o, "leased_until", time, job->leased_until_ms);
	SRV_FIELD(o, "prev_id", id, job->prev_id);
	SRV_FIELD(o, "next_id", id, job->next_id);
	SRV_FIELD(o, "key", str, job->key);
	SRV_FIELD(o, "traceparent", str, job->traceparent);
	SRV_FIELD(o, "blockers_open", int, job->blockers_open);
}

void srv_out_chain(struct srv_out *o, const struct sl_chain *chain)
{
	SRV_FIELD(o, "id", id, chain->id);
	SRV_FIELD(o, "last_id", id, chain->last_id);
	SRV_FIELD(o, "type", str, chain->type);
	SRV_FIELD(o, "at_type", str, chain->at_type);
	SRV_FIELD(o, "status", str, sl_job_status_name(chain->status));
	out_data(o, "input", chain->input);
	out_data(o, "output", chain->output);
	SRV_FIELD(o, "error", str, chain->error);
	SRV_FIELD(o, "key", str, chain->key);
	SRV_FIELD(o, "created_at", time, chain->created_ms);
	SRV_FIELD(o, "ended_at", time, chain->ended_ms);
}
