/* SPDX-License-Identifier: Apache-2.0 */
/* The store that --store names, a client on it, and jobs as JSON. */
#include "jobstore.h"

#include "stop.h"
#include "text.h"
#include "values.h"

#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHOWN_JSON_BYTES 2048 /* of a value, for people */

const struct opt jobstore_opts[] = {JOBSTORE_OPT_STORE, OPT_JSON("Print JSON"), {.name = NULL}};
const struct opt jobstore_opts_store[] = {JOBSTORE_OPT_STORE, {.name = NULL}};

const char *jobstore_url(const struct parsed *args)
{
	const char *url = opt_str(args, "store");

	if (url == NULL)
		url = getenv("SLUICE_STORE");
	return url != NULL && *url ? url : sl_store_default_url();
}

const char *jobstore_host(const char *url)
{
	const char *host = strstr(url, "://"), *at;

	if (host == NULL)
		return NULL;
	host += strlen("://");
	/* As libpq looks for it: a password may have '?', '#' and ':' in it as they are, but no '/'. */
	at = host + strcspn(host, "@/");
	if (*at != '@')
		return host;
	host = at + 1;
	/* Another '@' is a mistake, and what is before it part of a password all the same. */
	at = memrchr(host, '@', strcspn(host, "/?"));
	return at != NULL ? at + 1 : host;
}

void jobstore_name(char to[JOBSTORE_NAME_BYTES], const char *url)
{
	const char *host = jobstore_host(url);
	size_t scheme = host != NULL ? (size_t)(strstr(url, "://") + 3 - url) : 0;

	if (host == NULL) /* a file of SQLite */
		host = url;
	(void)snprintf(to, JOBSTORE_NAME_BYTES, "%.*s%.*s", (int)SL_MIN(scheme, 32), url,
		       (int)SL_MIN(strcspn(host, "?"), 200), host);
}

int jobstore_fail(struct cli *cli, const struct parsed *args, const struct sl_err *err)
{
	const char *url = jobstore_url(args);
	int code;

	if (err->code == SL_EINVAL || err->code == SL_EDATA)
		return cli_fail(cli, err, NULL); /* what was given is wrong, wherever it was to go */
	/* A URL with a password or parameters is never printed. */
	code = cli_fail(cli, err, opts_has_password(url) || strchr(url, '?') != NULL ? "the store" : url);
	/* Of chains and keys, not of files. */
	return (err->code == SL_ENOENT || err->code == SL_EEXIST) && !err->sys_errno ? EXIT_BAD_DATA : code;
}

bool jobstore_wait(struct cli *cli, const struct sl_err *err, int *n_waits)
{
	struct pollfd stop = {.fd = stop_fd(), .events = POLLIN};

	if (sl_err_exit_code(err->code) != EXIT_INTERRUPTED /* 75 */ || stop_requested())
		return false;
	/* Reported once: a store may be busy for long. */
	if ((*n_waits)++ == 0)
		cli_say(cli, SL_LOG_WARN, "%s; waiting and retrying", err->msg);
	(void)poll(&stop, 1, 1000);
	return !stop_requested();
}

int jobstore_open(struct cli *cli, const struct parsed *args, enum jobstore_mode mode, struct jobstore *out)
{
	struct sl_store_opts opts = {SL_STORE_OPTS_INIT, .env = &cli->env,
				     .create = mode == JOBSTORE_EXISTING ? SL_OFF : SL_ON};
	struct sl_jobs_opts jobs = {SL_JOBS_OPTS_INIT, .env = &cli->env, .store = &out->store, .audit = &out->record};
	const struct passwd *user = getpwuid(getuid());
	json_t *operands = json_array();
	struct sl_err err = SL_ERR_INIT;
	int n_waits = 0;

	memset(out, 0, sizeof(*out));
	/* The audit record: the user, and the command with its operands, but without the input of jobs. */
	if (user != NULL)
		(void)snprintf(out->actor, sizeof(out->actor), "%s", user->pw_name);
	else
		(void)snprintf(out->actor, sizeof(out->actor), "uid %u", (unsigned)getuid());
	(void)snprintf(out->action, sizeof(out->action), "%s", cli->command);
	for (char *p = out->action; *p; p++)
		*p = *p == ' ' ? '.' : *p;
	for (int i = 0;
	     i < args->n_operands && strcmp(cli->command, "enqueue") != 0 && strcmp(cli->command, "run") != 0; i++)
		json_array_append_new(operands,
				      json_stringn_nocheck(args->operands[i], strnlen(args->operands[i], 200)));
	if (json_array_size(operands) > 0) {
		json_t *detail = json_pack("{s:O}", "operands", operands);

		out->detail = detail != NULL ? json_dumps(detail, JSON_COMPACT) : NULL;
		json_decref(detail);
	}
	json_decref(operands);
	out->record = (struct sl_audit_record){
		.via = SL_VIA_COMMAND, .actor = out->actor, .action = out->action, .detail = out->detail};

	/* Opening waits for a busy store up to a timeout; a service waits for as long as it takes. */
	opts_warn_of_password(cli, args, "store", JOBSTORE_PASSWORD_PLACES);
	while (sl_store_open(&out->store, jobstore_url(args), &opts, &err))
		if (mode != JOBSTORE_WAIT || !jobstore_wait(cli, &err, &n_waits))
			return jobstore_fail(cli, args, &err);

	/* Notifications and the client. */
	if (sl_notify_open(&out->notify, jobstore_url(args), &cli->env, &err)) {
		cli_say(cli, SL_LOG_WARN, "notifications are unavailable, falling back to polling: %s", err.msg);
		memset(&out->notify, 0, sizeof(out->notify));
	}
	jobs.notify = out->notify.ops != NULL ? &out->notify : NULL;
	return sl_jobs_open(&out->client, &jobs, &err) ? jobstore_fail(cli, args, &err) : 0;
}

void jobstore_close(struct jobstore *store)
{
	/* The client uses both others. */
	sl_jobs_close(store->client);
	if (store->notify.ops != NULL)
		sl_notify_close(&store->notify);
	if (store->store.ops != NULL)
		sl_store_close(&store->store);
	free(store->detail);
	free(store->ids);
	memset(store, 0, sizeof(*store));
}

int jobstore_id(struct cli *cli, const char *text, uint64_t *out)
{
	int64_t id = 0;

	if (value_int(text, &id) || id <= 0)
		return cli_usage(cli, "invalid id '%.100s'; give the number that 'sluice enqueue' prints", text);
	*out = (uint64_t)id;
	return 0;
}

int jobstore_open_ids(struct cli *cli, const struct parsed *args, struct jobstore *out)
{
	size_t n = (size_t)args->n_operands;
	uint64_t *ids = calloc(n + 1, sizeof(*ids));
	int rc = ids != NULL ? 0 : cli_no_memory(cli);

	/* The ids first: a mistyped one needs no store. */
	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = jobstore_id(cli, args->operands[i], &ids[i]);
	if (rc != 0) {
		free(ids);
		return rc;
	}
	/* jobstore_close frees the ids, also when opening fails. */
	rc = jobstore_open(cli, args, JOBSTORE_EXISTING, out);
	out->ids = ids;
	out->n_ids = n;
	return rc;
}

bool jobstore_is_run(const char *type)
{
	return strncmp(type, "run/", 4) == 0;
}

const char *jobstore_shown_type(const char *type)
{
	return jobstore_is_run(type) ? "run" : type;
}

/* The next stretch of text without the blanks between its parts: its length, with *text after it and *from at its
 * beginning; 0 at the end. */
static size_t next_stretch(const char **text, const char **from, bool *quoted)
{
	const char *p = *text;

	p += *quoted ? 0 : strspn(p, " \t\r\n");
	*from = p;
	while (*p && (*quoted || strchr(" \t\r\n", *p) == NULL)) {
		if (*quoted && *p == '\\' && p[1])
			p++;
		else if (*p == '"')
			*quoted = !*quoted;
		p++;
	}
	*text = p;
	return (size_t)(p - *from);
}

void jobstore_raw_json(struct out *out, const char *text)
{
	const char *from;
	bool quoted = false;
	size_t n;

	if (text == NULL) {
		out_str(out, "null");
		return;
	}
	while ((n = next_stretch(&text, &from, &quoted)) > 0)
		out_write(out, from, n);
}

void jobstore_show_json(struct out *out, const char *text)
{
	char line[SHOWN_JSON_BYTES], clean[SHOWN_JSON_BYTES];
	const char *from;
	size_t used = 0, n;
	bool quoted = false;

	/* Without the blanks, as much as fits, and then escaped for the terminal. */
	while (used + 1 < sizeof(line) && (n = next_stretch(&text, &from, &quoted)) > 0) {
		n = n < sizeof(line) - 1 - used ? n : sizeof(line) - 1 - used;
		memcpy(line + used, from, n);
		used += n;
	}
	line[used] = '\0';
	text_line(clean, sizeof(clean), line);
	out_printf(out, "%s%s", clean, used + 1 == sizeof(line) ? "…" : "");
}

void jobstore_json_string(struct out *out, const char *text)
{
	if (text != NULL)
		out_json(out, text_json(text));
	else
		out_str(out, "null");
}

void jobstore_json_time(struct out *out, int64_t ms)
{
	char buf[TEXT_TIME_BYTES];

	if (ms)
		out_printf(out, "\"%s\"", text_time(buf, ms));
	else
		out_str(out, "null");
}

void jobstore_string_field(struct out *out, const char *name, const char *value)
{
	out_printf(out, ",\"%s\":", name);
	jobstore_json_string(out, value);
}

void jobstore_raw_field(struct out *out, const char *name, const char *value)
{
	out_printf(out, ",\"%s\":", name);
	jobstore_raw_json(out, value);
}

void jobstore_time_field(struct out *out, const char *name, int64_t ms)
{
	out_printf(out, ",\"%s\":", name);
	jobstore_json_time(out, ms);
}

void jobstore_id_field(struct out *out, const char *name, uint64_t id)
{
	if (id)
		out_printf(out, ",\"%s\":\"%" PRIu64 "\"", name, id);
	else
		out_printf(out, ",\"%s\":null", name);
}

void jobstore_job_fields(struct out *out, const struct sl_job *job)
{
	int completed = job->status == SL_JOB_COMPLETED;

	/* Ids are strings: JSON readers with doubles lose digits beyond 2^53. */
	out_printf(out, "\"id\":\"%" PRIu64 "\",\"chain_id\":\"%" PRIu64 "\"", job->id, job->chain_id);
	jobstore_string_field(out, "type", job->type);
	jobstore_string_field(out, "status", sl_job_status_name(job->status));
	jobstore_string_field(out, "state", sl_job_status_name(job->state));
	out_printf(out, ",\"attempt\":%d,\"priority\":%d", job->attempt, job->priority);
	jobstore_raw_field(out, "input", job->input);
	jobstore_raw_field(out, "output", job->output);
	jobstore_string_field(out, "error", job->error);
	jobstore_raw_field(out, "progress", job->progress);
	jobstore_time_field(out, "created_at", job->created_ms);
	jobstore_time_field(out, "scheduled_for", job->scheduled_ms);
	jobstore_time_field(out, "started_at", job->started_ms);
	jobstore_time_field(out, "completed_at", completed ? job->ended_ms : 0);
	jobstore_time_field(out, "ended_at", job->ended_ms);
	jobstore_string_field(out, "leased_by", job->leased_by);
	jobstore_time_field(out, "leased_until", job->leased_until_ms);
	jobstore_id_field(out, "prev_id", job->prev_id);
	jobstore_id_field(out, "next_id", job->next_id);
	jobstore_string_field(out, "key", job->key);
	jobstore_string_field(out, "traceparent", job->traceparent);
	out_printf(out, ",\"blockers_open\":%u", job->blockers_open);
}

void jobstore_chain_fields(struct out *out, const struct sl_chain *chain)
{
	out_printf(out, "\"id\":\"%" PRIu64 "\",\"last_id\":\"%" PRIu64 "\"", chain->id, chain->last_id);
	jobstore_string_field(out, "type", chain->type);
	jobstore_string_field(out, "at_type", chain->at_type);
	jobstore_string_field(out, "status", sl_job_status_name(chain->status));
	jobstore_string_field(out, "state", sl_job_status_name(chain->state));
	jobstore_raw_field(out, "input", chain->input);
	jobstore_raw_field(out, "output", chain->output);
	jobstore_string_field(out, "error", chain->error);
	jobstore_string_field(out, "key", chain->key);
	jobstore_time_field(out, "created_at", chain->created_ms);
	jobstore_time_field(out, "ended_at", chain->ended_ms);
}
