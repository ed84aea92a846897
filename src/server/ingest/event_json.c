/* SPDX-License-Identifier: Apache-2.0 */
/* A row of events as JSON, for lists and for those who follow. */
#include "server/ingest/ingest.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static json_t *ts_json(int64_t ms)
{
	char text[48];
	struct tm tm;
	int64_t s = ms / 1000, rest = ms % 1000;
	if (rest < 0) {
		s--;
		rest += 1000;
	}
	time_t t = (time_t)s;
	if (gmtime_r(&t, &tm) == NULL)
		return json_null();
	size_t n = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
	(void)snprintf(text + n, sizeof(text) - n, ".%03dZ", (int)rest);
	return json_string(text);
}

static json_t *base64_json(const uint8_t *data, size_t len)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char *text = malloc((len + 2) / 3 * 4 + 1), *p = text;
	if (text == NULL)
		return NULL;
	for (size_t i = 0; i < len; i += 3) {
		uint32_t left = (uint32_t)(len - i), bits = (uint32_t)data[i] << 16;
		bits |= left > 1 ? (uint32_t)data[i + 1] << 8 : 0;
		bits |= left > 2 ? data[i + 2] : 0;
		*p++ = digits[bits >> 18];
		*p++ = digits[bits >> 12 & 63];
		*p++ = left > 1 ? digits[bits >> 6 & 63] : '=';
		*p++ = left > 2 ? digits[bits & 63] : '=';
	}
	json_t *v = json_stringn(text, (size_t)(p - text));
	free(text);
	return v;
}

json_t *srv_event_json(const struct sl_event_row *e)
{
	json_t *o = json_pack("{s:I,s:s,s:o,s:o,s:b,s:b,s:s}", "offset", (json_int_t)e->offset, "type",
			      sl_event_type_name(e->type), "ts", ts_json(e->ts_ms), "attempt",
			      e->attempt != 0 ? json_integer(e->attempt) : json_null(), "late", e->late != 0, "partial",
			      e->partial != 0, "stream", e->stream);
	json_t *text = json_stringn(e->payload_len > 0 ? e->payload : "", e->payload_len);
	int rc = text != NULL ? json_object_set_new(o, "text", text)
			      : json_object_set_new(o, "data_b64", base64_json(e->payload, e->payload_len));
	if (rc == 0)
		return o;
	json_decref(o);
	return NULL;
}
