/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a request to the API: the first byte says to which route, up to the first NUL is its query, the rest its
 * body. Every request is answered once; what reaches the jobs is within what they may be asked, and the JSON that is
 * taken as it was sent is what the parser understood.
 */
#include "request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool joint; /* the request is one of those that came together */

/* ---- jobs that take everything ---- */

static int check_chain(const struct sl_new_chain *c, const json_t *object, struct sl_err *err)
{
	MUST(c->job.type != NULL && strncmp(c->job.type, "run/", 4) != 0 && strcmp(c->job.type, "run") != 0);
	MUST(c->job.at_ms >= 0 && c->job.delay_ms >= 0 && c->window_ms >= 0);
	MUST(c->job.at_ms == 0 || c->job.delay_ms == 0);
	for (size_t i = 0; i < c->job.n_blockers; i++)
		MUST(c->job.blockers[i] > 0 && c->job.blockers[i] <= INT64_MAX);
	return check_same(c->job.input, object, "input", err);
}

void sl_jobs_close(sl_jobs *client)
{
	MUST(client != NULL);
}

int sl_jobs_enqueue(sl_jobs *client, sl_tx *tx, const struct sl_new_chain *chain, struct sl_started *out,
		    struct sl_err *err)
{
	(void)client;
	(void)tx;
	memset(out, 0, sizeof(*out));
	json_t *body = understood(now);
	int rc = check_chain(chain, body, err);
	json_decref(body);
	return rc;
}

int sl_jobs_enqueue_many(sl_jobs *client, sl_tx *tx, const struct sl_new_chain *chains, size_t n,
			 struct sl_started *out, struct sl_err *err)
{
	json_t *body = understood(now);
	const json_t *all = json_object_get(body, "chains");
	bool single = joint || all == NULL; /* the body is the chain */
	int rc = 0;
	(void)client;
	(void)tx;
	memset(out, 0, n * sizeof(*out));
	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = check_chain(&chains[i], single ? body : json_array_get(all, i), err);
	MUST(rc != 0 || body == NULL || (single ? n <= 1 : n == json_array_size(all)));
	json_decref(body);
	return rc;
}

int sl_jobs_enqueue_once(sl_jobs *client, struct sl_once *once, struct sl_err *err)
{
	MUST(once->key != NULL && strlen(once->key) > 0 && strlen(once->key) <= 1000);
	once->again = once->hash[0] % 2 == 0;
	return sl_jobs_enqueue_many(client, NULL, once->chains, once->n_chains, once->out, err);
}

int sl_jobs_complete(sl_jobs *client, sl_tx *tx, uint64_t id, const char *output, struct sl_err *err)
{
	json_t *body = understood(now);
	(void)client;
	(void)tx;
	MUST(id > 0 && id <= INT64_MAX);
	int rc = body == NULL || json_object_get(body, "output") != NULL ? check_same(output, body, "output", err)
									 : strcmp(output, "null");
	MUST(rc <= 0);
	json_decref(body);
	return rc != 0 ? rc : sl_err_set(err, SL_ENOENT, "there is no chain");
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

int sl_jobs_delete(sl_jobs *client, sl_tx *tx, const uint64_t *chains, size_t n_chains, bool cascade, size_t *n,
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

void sl_job_release(sl_jobs *client, struct sl_job *job)
{
	(void)client;
	MUST(job == NULL);
}

void sl_chain_release(sl_jobs *client, struct sl_chain *chain)
{
	(void)client;
	MUST(chain == NULL);
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

/* One of those that came together; it is left for the handler of one, or answered. */
static void start_joint(srv_request *r, void *ctx)
{
	srv_request *all[] = {r};
	joint = true;
	srv_chains_start_many(all, 1, ctx);
	joint = false;
	if (r->answers == 0)
		srv_chains_start(r, ctx);
}

static srv_handler_fn *const handlers[] = {list,
					   srv_chains_start,
					   srv_chains_bulk,
					   srv_chains_complete,
					   srv_chains_fail,
					   srv_chains_cancel,
					   srv_chains_delete,
					   srv_bulk_cancel,
					   srv_bulk_delete,
					   srv_chains_trigger,
					   srv_chains_retry,
					   srv_bulk_trigger,
					   srv_bulk_retry,
					   start_joint};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct srv_core core = {.jobs = NULL};
	struct srv_api api = {.core = &core};
	if (size == 0)
		return 0;
	char *text = malloc(size);
	MUST(text != NULL);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	handle(text, size - 1, handlers[data[0] % (sizeof(handlers) / sizeof(handlers[0]))], &api);
	free(text);
	return 0;
}
