/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sink/http_kit.h"

struct http_server http_server;
struct place http_place;

int http_set_up(void **state)
{
	(void)state;
	(void)http_server_command(&http_server, "clear");
	return place_init(&http_place, "file");
}

int http_tear_down(void **state)
{
	(void)state;
	(void)http_server_command(&http_server, "release");
	place_fini(&http_place);
	return 0;
}

const char *http_url(const char *path)
{
	static char url[256];
	(void)snprintf(url, sizeof(url), "http://127.0.0.1:%d%s", http_server.port, path);
	return url;
}

sl_sink http_open(const char *url, const struct sl_sink_opts *opts)
{
	struct sl_err err = SL_ERR_INIT;
	sl_sink sink = {0};
	if (sl_sink_open(&sink, url, opts, &err) != 0)
		fail_msg("open: %s", err.msg);
	return sink;
}

/* ---- one write ---- */

struct http_result http_write(const sl_sink *sink, void *lane, const char *const *texts, size_t n, uint8_t id,
			      uint32_t tries)
{
	struct http_result r = {.err = SL_ERR_INIT};
	struct sl_sink_reply reply = {.outcomes = r.outcomes, .culprit = SL_SINK_NO_CULPRIT};
	struct sl_sink_item items[16];
	for (size_t i = 0; i < n; i++)
		items[i] = (struct sl_sink_item){.data = texts[i], .len = strlen(texts[i])};
	struct sl_sink_batch batch = {.items = items, .n = n, .tries = tries};
	memset(batch.id, id, sizeof(batch.id));
	r.rc = sink->ops->write(sink->ctx, lane, &batch, &reply, &r.err);
	r.culprit = reply.culprit;
	return r;
}

const char *const http_two[] = {"{\"id\":1}", "{\"id\":2}"};

struct http_result http_write_two(const sl_sink *sink, void *lane)
{
	static uint8_t id;
	return http_write(sink, lane, http_two, 2, ++id, 0);
}

void http_expect(const struct http_result *r, const struct http_expectation *e)
{
	if (r->rc != e->code || r->err.error_class != e->error_class || strstr(r->err.msg, e->words) == NULL)
		fail_msg("%s gave %s, %s: %s", e->behaviour, sl_err_name(r->rc), sl_err_class_name(r->err.error_class),
			 r->err.msg);
	assert_int_equal(r->err.retry_after_ms, e->retry_after_ms);
}
