/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a request to the API: the first byte says to which route, up to the first NUL is its query, the rest its
 * body. Every request is answered once; what reaches the jobs is within what they may be asked, and the JSON that is
 * taken as it was sent is what the parser understood.
 */
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include "must.h"
#include "server/api.h"
#include "server/net_text.h"

#define MAX_PAIRS 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- a request without a connection ---- */

struct srv_request {
	const char *name[MAX_PAIRS], *value[MAX_PAIRS];
	size_t n;
	const char *id; /* of the path; NULL: a good one */
	const char *body;
	size_t len;
	json_t *json;
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
	MUST(vsnprintf(text, sizeof text, fmt, args) > 0 && code[0] != '\0' && status >= 400);
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
	json_t *v = json_loadb(data, len, JSON_DECODE_ANY, NULL);
	MUST(v != NULL && type != NULL);
	json_decref(v);
	answered(r, status);
}

void srv_audit_detail(srv_request *r, json_t *detail)
{
	(void)r;
	json_decref(detail);
}

const char *srv_query(const srv_request *r, const char *name)
{
	for (size_t i = 0; i < r->n; i++)
		if (strcmp(r->name[i], name) == 0)
			return r->value[i];
	return NULL;
}

void srv_query_each(const srv_request *r, int (*fn)(const char *name, const char *value, void *ctx), void *ctx)
{
	for (size_t i = 0; i < r->n && fn(r->name[i], r->value[i], ctx) == 0; i++)
		;
}

/* The id of the path may be anything, too: a last id= of the query is it. */
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

json_t *srv_body_json(srv_request *r)
{
	if (r->json == NULL && (r->len == 0 || memchr(r->body, 0, r->len) == NULL)) /* as srv_body_json of the server */
		r->json = json_loadb(r->body, r->len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
	if (r->json == NULL)
		srv_error(r, 400, "bad_json", "the body is not JSON");
	return r->json;
}

/* ---- jobs that take everything ---- */

static void check_same(const char *text, const json_t *understood)
{
	json_t *v = text != NULL ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
	MUST((text == NULL && understood == NULL) || (v != NULL && json_equal(v, understood)));
	json_decref(v);
}

static void check_chain(const struct sl_new_chain *c, const json_t *object)
{
	MUST(c->job.type != NULL && strncmp(c->job.type, "run/", 4) != 0 && strcmp(c->job.type, "run") != 0);
	MUST(c->job.at_ms >= 0 && c->job.delay_ms >= 0 && c->window_ms >= 0);
	MUST(c->job.at_ms == 0 || c->job.delay_ms == 0);
	for (size_t i = 0; i < c->job.n_blockers; i++)
		MUST(c->job.blockers[i] > 0 && c->job.blockers[i] <= INT64_MAX);
	check_same(c->job.input, json_object_get(object, "input"));
}

int sl_jobs_start(sl_jobs *client, sl_tx *tx, const struct sl_new_chain *chain, struct sl_started *out,
		  struct sl_err *err)
{
	(void)client;
	(void)tx;
	(void)err;
	memset(out, 0, sizeof *out);
	check_chain(chain, now->json);
	return 0;
}

int sl_jobs_start_many(sl_jobs *client, sl_tx *tx, const struct sl_new_chain *chains, size_t n, struct sl_started *out,
		       struct sl_err *err)
{
	const json_t *all = json_object_get(now->json, "chains");
	(void)client;
	(void)tx;
	(void)err;
	MUST(n == json_array_size(all));
	memset(out, 0, n * sizeof *out);
	for (size_t i = 0; i < n; i++)
		check_chain(&chains[i], json_array_get(all, i));
	return 0;
}

int sl_jobs_complete(sl_jobs *client, sl_tx *tx, uint64_t id, const char *output, struct sl_err *err)
{
	json_t *none = json_null();
	const json_t *v = json_object_get(now->json, "output");
	(void)client;
	(void)tx;
	MUST(id > 0 && id <= INT64_MAX);
	check_same(output, v != NULL ? v : none);
	return sl_err_set(err, SL_ENOENT, "there is no chain");
}

int sl_jobs_fail(sl_jobs *client, sl_tx *tx, uint64_t id, const char *error, struct sl_err *err)
{
	(void)client;
	(void)tx;
	MUST(id > 0 && (error == NULL || srv_utf8_ok(error, strlen(error))));
	return sl_err_set(err, SL_ENOENT, "there is no chain");
}

static int change(const uint64_t *chains, size_t n_chains, size_t *n)
{
	for (size_t i = 0; i < n_chains; i++)
		MUST(chains[i] > 0 && chains[i] <= INT64_MAX);
	*n = n_chains;
	return 0;
}

#define CHANGE(name)                                                                                                   \
	int name(sl_jobs *client, sl_tx *tx, const uint64_t *chains, size_t n_chains, size_t *n, struct sl_err *err)   \
	{                                                                                                              \
		(void)client;                                                                                          \
		(void)tx;                                                                                              \
		(void)err;                                                                                             \
		return change(chains, n_chains, n);                                                                    \
	}
CHANGE(sl_jobs_cancel)
CHANGE(sl_jobs_redrive)
CHANGE(sl_jobs_trigger)

int sl_jobs_delete(sl_jobs *client, sl_tx *tx, const uint64_t *chains, size_t n_chains, int cascade, size_t *n,
		   struct sl_err *err)
{
	(void)client;
	(void)tx;
	(void)err;
	(void)cascade;
	return change(chains, n_chains, n);
}

int sl_jobs_get_chain(sl_jobs *client, uint64_t id, struct sl_chain **out, struct sl_err *err)
{
	(void)client;
	(void)out;
	MUST(id > 0);
	return sl_err_set(err, SL_ENOENT, "there is no chain");
}

void sl_jobs_free(sl_jobs *client, void *job_or_chain)
{
	(void)client;
	MUST(job_or_chain == NULL);
}

static void check_filter(const struct sl_job_filter *f)
{
	MUST(f->limit >= 1 && f->limit <= SRV_LIMIT_MAX && f->n_types <= SRV_TYPES_MAX && f->after <= INT64_MAX);
	for (size_t i = 0; i < f->n_types; i++)
		MUST(f->types[i][0] != '\0' && strlen(f->types[i]) <= 128);
	MUST(f->created_from_ms >= 0 && f->created_to_ms >= 0 && f->ended_from_ms >= 0 && f->ended_to_ms >= 0);
}

int sl_jobs_list(sl_jobs *client, const struct sl_job_filter *filter, sl_job_fn *fn, void *ctx, struct sl_err *err)
{
	(void)client;
	(void)fn;
	(void)ctx;
	(void)err;
	check_filter(filter);
	return 0;
}

int sl_jobs_list_chains(sl_jobs *client, const struct sl_job_filter *filter, sl_chain_fn *fn, void *ctx,
			struct sl_err *err)
{
	(void)client;
	(void)fn;
	(void)ctx;
	(void)err;
	check_filter(filter);
	*filter->reached = 0;
	return 0;
}

/* ---- the requests ---- */

static void list(srv_request *r, void *ctx)
{
	struct srv_filter f;
	(void)ctx;
	if (!srv_filter_query(r, &f))
		return;
	check_filter(&f.f);
	answered(r, 200);
}

static srv_handler_fn *const handlers[] = {list,
					   srv_chains_start,
					   srv_chains_bulk,
					   srv_chains_complete,
					   srv_chains_fail,
					   srv_chains_cancel,
					   srv_chains_delete,
					   srv_bulk_cancel,
					   srv_bulk_delete};

/* false: http refuses it before it comes here. */
static bool take_query(srv_request *r, const char *query, size_t n, char *scratch)
{
	const char *end = query + n;
	int rc = 1;
	while (rc > 0 && r->n < MAX_PAIRS) {
		rc = srv_query_next(&query, end, &scratch, &r->name[r->n], &r->value[r->n]);
		r->n += rc > 0;
	}
	if (r->n > 0 && strcmp(r->name[r->n - 1], "id") == 0)
		r->id = r->value[--r->n];
	return rc == 0;
}

static void handle(const char *text, size_t size, srv_handler_fn *handler, char *scratch)
{
	struct srv_core core = {.jobs = NULL};
	struct srv_api api = {.core = &core};
	size_t n = strnlen(text, size);
	srv_request r = {.body = text + n + (n < size), .len = size - n - (n < size)};
	if (!take_query(&r, text, n, scratch))
		return;
	now = &r;
	handler(&r, &api);
	MUST(r.answers == 1 && r.status >= 200);
	json_decref(r.json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	char *text = malloc(size), *scratch = malloc(2 * size + 2);
	MUST(text != NULL && scratch != NULL);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	handle(text, size - 1, handlers[data[0] % (sizeof handlers / sizeof handlers[0])], scratch);
	free(text);
	free(scratch);
	return 0;
}
