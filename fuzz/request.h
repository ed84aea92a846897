/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request without a connection, for the handlers of the API: the query up to the first NUL, the body after it. In
 * the query a name that begins with @ is a header field, and a last id= is every parameter of the path. One request at
 * a time, and each is answered once.
 */
#ifndef FUZZ_REQUEST_H
#define FUZZ_REQUEST_H

#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "jobs/client/types.h"
#include "must.h"
#include "server/api/api.h"
#include "server/http/net_text.h"

#define MAX_PAIRS 64

struct srv_request {
	const char *name[MAX_PAIRS], *value[MAX_PAIRS];
	size_t n;
	const char *field[MAX_PAIRS], *field_value[MAX_PAIRS];
	size_t n_fields;
	const char *id; /* of the path; NULL: a good one */
	const char *body;
	size_t len;
	struct srv_json_body json;
	int answers, status;
};

static srv_request *now; /* the one that is handled */

static void answered(srv_request *r, int status)
{
	r->answers++;
	r->status = status;
}

void srv_error(srv_request *r, int status, const char *code, const char *fmt, ...)
{
	char text[1024];
	va_list args;
	va_start(args, fmt);
	MUST(vsnprintf(text, sizeof(text), fmt, args) > 0 && code[0] != '\0' && status >= 400);
	va_end(args);
	answered(r, status);
}

void srv_fail(srv_request *r, const struct sl_err *err)
{
	MUST(err->code < 0 && err->msg[0] != '\0');
	answered(r, 500);
}

void srv_bytes(srv_request *r, int status, const char *type, const void *data, size_t len)
{
	json_t *v = json_loadb(data, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
	MUST(v != NULL && type != NULL);
	json_decref(v);
	answered(r, status);
}

void srv_bytes_own(srv_request *r, int status, const char *type, void *data, size_t len)
{
	srv_bytes(r, status, type, data, len);
	free(data);
}

void srv_set_header(srv_request *r, const char *name, const char *value)
{
	(void)r;
	MUST(name[0] != '\0' && strpbrk(value, "\r\n") == NULL);
}

const char *srv_path(const srv_request *r)
{
	(void)r;
	return "/api/v1/chains";
}

const char *srv_actor(const srv_request *r)
{
	(void)r;
	return "fuzz";
}

bool srv_may_enqueue(const srv_request *r, const char *type)
{
	(void)r;
	return strncmp(type, "no", 2) != 0;
}

void srv_audit_record(srv_request *r, struct sl_audit_record *out)
{
	(void)r;
	*out = (struct sl_audit_record){.via = SL_VIA_HTTP, .actor = "fuzz", .action = "fuzz"};
}

bool srv_change_begin(srv_request *r, const struct srv_core *core, struct srv_change *c)
{
	srv_audit_record(r, &c->record);
	c->jobs = core->jobs;
	return true;
}

void srv_change_end(struct srv_change *c)
{
	c->jobs = NULL;
}

bool srv_change_record(srv_request *r, const struct srv_core *core)
{
	(void)r;
	(void)core;
	return true;
}

sl_jobs *srv_changes_open(const struct srv_core *core, const struct sl_audit_record *records, size_t n,
			  struct sl_err *err)
{
	static char jobs; /* NULL would be an error */
	(void)core;
	(void)err;
	MUST(records != NULL || n == 0);
	return (sl_jobs *)(void *)&jobs;
}

const char *srv_query(const srv_request *r, const char *name)
{
	for (size_t i = 0; i < r->n; i++)
		if (strcmp(r->name[i], name) == 0)
			return r->value[i];
	return NULL;
}

void srv_many_next(srv_request *const *all)
{
	(void)all;
}

void srv_query_each(const srv_request *r, int (*fn)(const char *name, const char *value, void *ctx), void *ctx)
{
	for (size_t i = 0; i < r->n && fn(r->name[i], r->value[i], ctx) == 0; i++)
		;
}

const char *srv_header(const srv_request *r, const char *name)
{
	for (size_t i = 0; i < r->n_fields; i++)
		if (strcasecmp(r->field[i], name) == 0)
			return r->field_value[i];
	return NULL;
}

const char *srv_param(const srv_request *r, const char *name)
{
	(void)name;
	return r->id != NULL ? r->id : "7";
}

const void *srv_body(const srv_request *r, size_t *len)
{
	if (len != NULL)
		*len = r->len;
	return r->body;
}

json_t *srv_body_json_but(srv_request *r, const char *name, int depth)
{
	const struct srv_json_opts opts = {.opaque = name, .depth = depth};
	struct sl_err err = SL_ERR_INIT;
	if (r->json.json == NULL && srv_json_body_parse(&r->json, (struct srv_text){r->body, r->len}, &opts, &err) != 0)
		srv_error(r, 400, "bad_json", "%s", err.msg);
	return r->json.json;
}

json_t *srv_body_json(srv_request *r)
{
	return srv_body_json_but(r, NULL, 0);
}

struct srv_text srv_body_opaque(const srv_request *r, const json_t *member)
{
	return srv_json_body_text(&r->json, member);
}

/* The body as a parser understands it that knows nothing of opaque values. NULL: it has a number that the parser cannot
 * hold, while stores keep numbers of any size. */
static json_t *understood(const srv_request *r)
{
	return json_loadb(r->body, r->len, JSON_DECODE_ANY, NULL);
}

/* What jobs do with a text that is to be JSON: SL_EDATA, unless it is. It must then be the value in the body. */
static int check_same(const char *text, const json_t *object, const char *name, struct sl_err *err)
{
	const json_t *meant = json_object_get(object, name);
	int rc = text != NULL ? sl__job_json_check(text, name, err) : 0;
	if (rc != 0 || object == NULL)
		return rc;
	json_t *v = text != NULL ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
	MUST(text != NULL ? json_equal(v, meant) : meant == NULL);
	json_decref(v);
	return 0;
}

static void check_filter(const struct sl_job_filter *f)
{
	MUST(f->limit >= 1 && f->limit <= SRV_LIMIT_MAX && f->n_types <= SRV_TYPES_MAX && f->after <= INT64_MAX);
	for (size_t i = 0; i < f->n_types; i++)
		MUST(f->types[i][0] != '\0' && strlen(f->types[i]) <= 128);
	MUST(f->created_from_ms >= 0 && f->created_to_ms >= 0 && f->ended_from_ms >= 0 && f->ended_to_ms >= 0);
}

static void take_pair(srv_request *r, const char *name, const char *value)
{
	if (name[0] == '@') {
		r->field[r->n_fields] = name + 1;
		r->field_value[r->n_fields++] = value;
	} else {
		r->name[r->n] = name;
		r->value[r->n++] = value;
	}
}

/* false: http refuses it before it comes here. */
static bool take_query(srv_request *r, const char *query, size_t n, char *scratch)
{
	const char *end = query + n, *name, *value;
	int rc = 1;
	while (r->n < MAX_PAIRS && r->n_fields < MAX_PAIRS &&
	       (rc = srv_query_next(&query, end, &scratch, &name, &value)) > 0)
		take_pair(r, name, value);
	if (r->n > 0 && strcmp(r->name[r->n - 1], "id") == 0)
		r->id = r->value[--r->n];
	return rc == 0;
}

/* text ends with a NUL. */
static void handle(const char *text, size_t size, srv_handler_fn *handler, void *ctx)
{
	size_t n = strnlen(text, size);
	srv_request r = {.body = text + n + (n < size), .len = size - n - (n < size)};
	char *scratch = malloc(2 * size + 2);
	MUST(scratch != NULL);
	if (take_query(&r, text, n, scratch)) {
		now = &r;
		handler(&r, ctx);
		MUST(r.answers == 1 && r.status >= 200);
	}
	srv_json_body_fini(&r.json);
	free(scratch);
}

#endif
