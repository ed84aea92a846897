/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies:
 *   JSON lines     ITEM\n ITEM\n …
 *   JSON array     [ITEM,ITEM,…]
 *   CloudEvents    [{"specversion":"1.0","id":"<batch>-<i>","source":…,"type":…,"time":…,
 *                    "datacontenttype":"application/json","data":ITEM},…]
 * i is the item's number in its batch, from 0. time is when the batch was first sent.
 */
#include <stdio.h>

#include "base/time.h"
#include "sink/http.h"

/* ---- a body ---- */

int sl__http_body_init(struct sl__http_body *b, const struct sl_env *env, const struct sl_sink_opts *opts,
		       struct sl_err *err)
{
	const struct sl__row_opts row = {.env = env,
					 .csv = true,
					 .columns = opts->columns,
					 .n_columns = opts->n_columns,
					 .null_text = opts->null_text,
					 .delimiter = opts->delimiter};
	int rc = 0;
	*b = (struct sl__http_body){.env = env, .opts = opts};
	sl__buf_init(&b->text, env);
	if (opts->format == SL_ROWS_CSV) {
		b->fields = sl__calloc(env, opts->n_columns, sizeof(*b->fields));
		rc = b->fields == NULL ? sl__no_memory(err, "http") : sl__row_reader_new(&b->reader, &row, err);
	}
	if (rc != 0)
		sl__http_body_fini(b);
	return rc;
}

void sl__http_body_fini(struct sl__http_body *b)
{
	if (b->env == NULL)
		return;
	sl__row_reader_free(b->reader);
	sl__free(b->env, b->fields);
	sl__buf_fini(&b->text);
	*b = (struct sl__http_body){.env = NULL};
}

int sl__http_body_fill(struct sl__http_body *b, const struct sl_sink_batch *batch, int64_t time_ms,
		       struct sl__refusals *refused, struct sl_err *err)
{
	const struct sl_sink_opts *o = b->opts;
	bool listed = o->body != SL_HTTP_JSON_LINES, events = o->body == SL_HTTP_CLOUD_EVENTS;
	const char *after = events ? "}" : listed ? "" : "\n";
	struct sl__buf *text = &b->text;
	char id[2 * sizeof(batch->id) + 1], when[SL__TIME_BYTES];
	*sl__hex(id, batch->id, sizeof(batch->id)) = '\0';
	(void)sl__time_text(when, time_ms);
	sl__buf_clear(text);
	b->n = 0;
	(void)sl__buf_str_append(text, listed ? "[" : "");
	for (size_t i = 0; i < batch->n && refused->stop == SIZE_MAX; i++) {
		const struct sl_sink_item *item = &batch->items[i];
		struct sl_err why = SL_ERR_INIT;
		size_t start = text->len;
		/* What is before the item. */
		if (listed && b->n > 0)
			(void)sl__buf_append(text, ",", 1);
		if (events) {
			(void)sl__buf_printf(text, "{\"specversion\":\"1.0\",\"id\":\"%s-%zu\",\"source\":", id, i);
			sl__put_json_string(text, o->event_source, strlen(o->event_source));
			(void)sl__buf_str_append(text, ",\"type\":");
			sl__put_json_string(text, o->event_type, strlen(o->event_type));
			(void)sl__buf_printf(
				text, ",\"time\":\"%s\",\"datacontenttype\":\"application/json\",\"data\":", when);
		}
		/* The item as JSON. One that is not a record is refused alone. */
		int rc = b->reader != NULL ? sl__row_read(b->reader, item->data, item->len, b->fields, &why)
					   : sl__json_check_value(item->data, item->len, false, &why);
		if (text->failed != 0)
			return sl__no_memory(err, "http");
		if (rc != 0 && why.error_class == SL_CLASS_POISON) {
			text->len = start;
			(void)sl__refusals_add(refused, i, &why);
			continue;
		}
		if (rc != 0) {
			*err = why;
			return rc;
		}
		if (b->reader != NULL)
			sl__row_put_json(text, o->columns, b->fields, o->n_columns);
		else
			sl__put_json_line(text, item->data, item->len);
		(void)sl__buf_str_append(text, after);
		b->n++;
	}
	(void)sl__buf_str_append(text, listed ? "]" : "");
	return text->failed == 0 ? 0 : sl__no_memory(err, "http");
}

/* ---- times ---- */

int64_t sl__http_times_get(struct sl__http_times *t, const struct sl_sink_batch *batch, int64_t now_ms)
{
	int64_t ms = now_ms;
	if (batch->tries == 0)
		return ms;
	sl__lock(&t->mu);
	for (size_t i = 0; i < SL__HTTP_TIMES; i++)
		if (t->at[i].ms != 0 && memcmp(t->at[i].id, batch->id, sizeof(batch->id)) == 0)
			ms = t->at[i].ms;
	sl__unlock(&t->mu);
	return ms;
}

void sl__http_times_keep(struct sl__http_times *t, const struct sl_sink_batch *batch, int64_t ms)
{
	sl__lock(&t->mu);
	size_t at = t->next % SL__HTTP_TIMES;
	for (size_t i = 0; i < SL__HTTP_TIMES; i++)
		if (memcmp(t->at[i].id, batch->id, sizeof(batch->id)) == 0)
			at = i;
	if (at == t->next % SL__HTTP_TIMES)
		t->next++;
	memcpy(t->at[at].id, batch->id, sizeof(batch->id));
	t->at[at].ms = ms;
	sl__unlock(&t->mu);
}
