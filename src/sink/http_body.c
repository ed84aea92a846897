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
#include <time.h>

#include "base/time.h"
#include "sink/http.h"

void sl__batch_id_text(char out[SL__BATCH_ID_BYTES], const uint8_t id[16])
{
	*sl__hex(out, id, 16) = '\0';
}

const char *sl__http_content_type(enum sl_http_body body)
{
	switch (body) {
	case SL_HTTP_JSON_ARRAY:
		return "Content-Type: application/json";
	case SL_HTTP_CLOUD_EVENTS:
		return "Content-Type: application/cloudevents-batch+json; charset=UTF-8";
	case SL_HTTP_JSON_LINES:
	default:
		return "Content-Type: application/x-ndjson";
	}
}

/* ---- a body ---- */

int sl__http_body_init(struct sl__http_body *b, const struct sl_env *env, const struct sl_sink_opts *opts,
		       struct sl_err *err)
{
	const struct sl__row_opts row = {.env = env,
					 .csv = true,
					 .columns = opts->columns,
					 .n_columns = opts->n_columns,
					 .null_text = opts->null_text};
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

static int put_value(struct sl__http_body *b, const struct sl_sink_item *item, struct sl_err *err)
{
	int rc = b->reader != NULL ? sl__row_read(b->reader, item->data, item->len, b->fields, err)
				   : sl__json_check_value(item->data, item->len, false, err);
	if (rc != 0)
		return rc;
	if (b->reader != NULL)
		sl__row_put_json(&b->text, b->opts->columns, b->fields, b->opts->n_columns);
	else
		sl__put_json_line(&b->text, item->data, item->len);
	return 0;
}

/* Everything of an event but its data. */
struct event {
	char id[SL__BATCH_ID_BYTES];
	char time[SL__TIME_BYTES];
};

static void make_event(struct event *e, const struct sl_sink_batch *batch, int64_t ms)
{
	(void)sl__time_text(e->time, ms);
	sl__batch_id_text(e->id, batch->id);
}

static void put_event_head(struct sl__http_body *b, const struct event *e, size_t i)
{
	const struct sl_sink_opts *o = b->opts;
	(void)sl__buf_printf(&b->text, "{\"specversion\":\"1.0\",\"id\":\"%s-%zu\",\"source\":", e->id, i);
	sl__put_json_string(&b->text, o->event_source, strlen(o->event_source));
	(void)sl__buf_str_append(&b->text, ",\"type\":");
	sl__put_json_string(&b->text, o->event_type, strlen(o->event_type));
	(void)sl__buf_printf(&b->text, ",\"time\":\"%s\",\"datacontenttype\":\"application/json\",\"data\":", e->time);
}

/* 0: taken, or refused for good; else the batch cannot continue. */
static int put_item(struct sl__http_body *b, const struct sl_sink_batch *batch, size_t i, const struct event *e,
		    struct sl__refusals *refused, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	enum sl_http_body kind = b->opts->body;
	size_t start = b->text.len;
	if (kind != SL_HTTP_JSON_LINES && b->n > 0)
		(void)sl__buf_append(&b->text, ",", 1);
	if (kind == SL_HTTP_CLOUD_EVENTS)
		put_event_head(b, e, i);
	int rc = put_value(b, &batch->items[i], &why);
	if (rc == 0) {
		const char *behind = kind == SL_HTTP_JSON_LINES ? "\n" : kind == SL_HTTP_CLOUD_EVENTS ? "}" : "";
		b->n++;
		return sl__buf_str_append(&b->text, behind) == 0 ? 0 : sl__no_memory(err, "http");
	}
	if (why.error_class == SL_CLASS_POISON && b->text.failed == 0) {
		b->text.len = start;
		(void)sl__refusals_add(refused, i, &why);
		return 0;
	}
	if (b->text.failed != 0)
		return sl__no_memory(err, "http");
	*err = why;
	return rc;
}

int sl__http_body_fill(struct sl__http_body *b, const struct sl_sink_batch *batch, int64_t time_ms,
		       struct sl__refusals *refused, struct sl_err *err)
{
	bool listed = b->opts->body != SL_HTTP_JSON_LINES;
	struct event e;
	make_event(&e, batch, time_ms);
	sl__buf_clear(&b->text);
	b->n = 0;
	(void)sl__buf_str_append(&b->text, listed ? "[" : "");
	for (size_t i = 0; i < batch->n && refused->stop == SIZE_MAX; i++) {
		int rc = put_item(b, batch, i, &e, refused, err);
		if (rc != 0)
			return rc;
	}
	(void)sl__buf_str_append(&b->text, listed ? "]" : "");
	return b->text.failed == 0 ? 0 : sl__no_memory(err, "http");
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
