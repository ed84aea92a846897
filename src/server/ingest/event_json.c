/* SPDX-License-Identifier: Apache-2.0 */
/* A row of events as JSON, for lists and for those who follow. */
#include "base/base64.h"
#include "base/time.h"
#include "server/ingest/ingest.h"

json_t *srv_event_json(const struct sl_event_row *e)
{
	char ts[SL__TIME_BYTES];
	size_t ts_len = sl__time_text(ts, e->ts_ms);
	json_t *o = json_pack("{s:I,s:s,s:o,s:o,s:b,s:b,s:s}", "offset", (json_int_t)e->offset, "type",
			      sl_event_type_name(e->type), "ts", json_stringn(ts, ts_len), "attempt",
			      e->attempt != 0 ? json_integer(e->attempt) : json_null(), "late", e->late != 0, "partial",
			      e->partial != 0, "stream", e->stream);
	json_t *text = json_stringn(e->payload_len > 0 ? e->payload : "", e->payload_len);
	const char *name = "text";
	if (text == NULL) { /* not UTF-8 */
		struct sl__buf b = {.env = &sl__env_real};
		name = "data_b64";
		if (sl__base64_append(&b, e->payload, e->payload_len) == 0)
			text = json_stringn(sl__buf_str(&b), b.len);
		sl__buf_fini(&b);
	}
	if (json_object_set_new(o, name, text) == 0)
		return o;
	json_decref(o);
	return NULL;
}
