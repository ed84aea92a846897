/* SPDX-License-Identifier: Apache-2.0 */
/* JSON as text: see out.h. */
#include "server/http/out.h"

#include "base/base64.h"
#include "base/time.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The buffer's failure sticks; it is checked once, when the answer is sent. */
static void out_bytes(struct srv_out *o, const void *data, size_t n)
{
	if (o->text.env == NULL)
		o->text.env = &sl__env_real;
	(void)sl__buf_append(&o->text, data, n);
}

static void out_text(struct srv_out *o, const char *text)
{
	out_bytes(o, text, strlen(text));
}

static void before_value(struct srv_out *o)
{
	if (o->comma)
		out_bytes(o, ",", 1);
	o->comma = true;
}

void srv_out_open(struct srv_out *o, char bracket)
{
	before_value(o);
	out_bytes(o, &bracket, 1);
	o->comma = false;
}

void srv_out_begin(struct srv_out *o, const char *name, char bracket)
{
	srv_out_name(o, name);
	srv_out_open(o, bracket);
}

void srv_out_close(struct srv_out *o, char bracket)
{
	out_bytes(o, &bracket, 1);
	o->comma = true;
}

int srv_out_end(struct srv_out *o)
{
	srv_out_close(o, '}');
	return o->text.failed;
}

void srv_out_name(struct srv_out *o, const char *name)
{
	srv_out_str(o, name);
	out_bytes(o, ":", 1);
	o->comma = false;
}

void srv_out_strn(struct srv_out *o, const char *text, size_t n)
{
	static const char escapes[] = "\"\\\n\r\t", letters[] = "\"\\nrt";
	size_t from = 0;
	before_value(o);
	out_bytes(o, "\"", 1);
	for (size_t i = 0; i < n;) {
		size_t len = sl__utf8_length_n(text + i, n - i);
		unsigned char c = (unsigned char)text[i];
		if (len > 0 && c >= 0x20 && c != '"' && c != '\\' && c != 0x7F) {
			i += len;
			continue;
		}
		out_bytes(o, text + from, i - from);
		const char *known = c != '\0' ? strchr(escapes, c) : NULL;
		if (len == 0)
			out_text(o, "\xEF\xBF\xBD");
		else {
			if (known != NULL)
				(void)sl__buf_printf(&o->text, "\\%c", letters[known - escapes]);
			else
				(void)sl__buf_printf(&o->text, "\\u%04x", c);
		}
		from = ++i;
	}
	out_bytes(o, text + from, n - from);
	out_bytes(o, "\"", 1);
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
	out_text(o, json != NULL && *json != '\0' ? json : "null");
}

void srv_out_int(struct srv_out *o, int64_t n)
{
	char text[32];
	(void)snprintf(text, sizeof(text), "%" PRId64, n);
	srv_out_raw(o, text);
}

void srv_out_known(struct srv_out *o, const char *name, bool known, int64_t n)
{
	srv_out_name(o, name);
	if (known)
		srv_out_int(o, n);
	else
		srv_out_raw(o, NULL);
}

void srv_out_strs(struct srv_out *o, const char *name, const char *const *texts, size_t n)
{
	srv_out_begin(o, name, '[');
	for (size_t i = 0; i < n; i++)
		srv_out_str(o, texts[i]);
	srv_out_close(o, ']');
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
	out_bytes(o, "\"", 1);
	(void)sl__base64_append(&o->text, data, n);
	out_bytes(o, "\"", 1);
}

void srv_out_free(struct srv_out *o)
{
	sl__buf_fini(&o->text);
	*o = (struct srv_out){0};
}

void srv_out_answer(srv_request *r, int status, struct srv_out *o, const struct sl_err *err)
{
	if (err != NULL && !o->text.failed) {
		srv_out_free(o);
		srv_fail(r, err);
		return;
	}
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
	srv_out_close(o, ']');
	if (cursor != NULL)
		SRV_FIELD(o, "next_cursor", str, cursor[0] != '\0' ? cursor : NULL);
	srv_out_close(o, '}');
	srv_out_answer(r, 200, o, rc != 0 ? err : NULL);
}
