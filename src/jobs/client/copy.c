/* SPDX-License-Identifier: Apache-2.0 */
#include "jobs/client/copy.h"

#include <stdalign.h>

/* A struct and where its strings are. */
struct shape {
	size_t size;
	size_t n_strings;
	uint16_t strings[10];
};

#define AT(type, field) ((uint16_t)offsetof(struct type, field))
static const struct shape job_shape = {
	sizeof(struct sl_job),
	8,
	{AT(sl_job, type), AT(sl_job, input), AT(sl_job, output), AT(sl_job, error), AT(sl_job, progress),
	 AT(sl_job, key), AT(sl_job, traceparent), AT(sl_job, leased_by)},
};
static const struct shape chain_shape = {
	sizeof(struct sl_chain),
	6,
	{AT(sl_chain, type), AT(sl_chain, at_type), AT(sl_chain, input), AT(sl_chain, output), AT(sl_chain, error),
	 AT(sl_chain, key)},
};
static const struct shape attempt_shape = {
	sizeof(struct sl_attempt_record), 2, {AT(sl_attempt_record, worker), AT(sl_attempt_record, error)}};
static const struct shape count_shape = {sizeof(struct sl_job_count), 1, {AT(sl_job_count, type)}};
static const struct shape cron_shape = {
	sizeof(struct sl_cron),
	4,
	{AT(sl_cron, name), AT(sl_cron, spec), AT(sl_cron, type), AT(sl_cron, input)},
};
static const struct shape event_shape = {sizeof(struct sl_event_row), 1, {AT(sl_event_row, stream)}};

static const struct shape lease_shape = {sizeof(struct sl_lease), 1, {AT(sl_lease, worker)}};
static const struct shape error_shape = {
	sizeof(struct sl_error_group), 2, {AT(sl_error_group, type), AT(sl_error_group, error)}};
static const struct shape stream_shape = {sizeof(struct sl_event_stream), 1, {AT(sl_event_stream, stream)}};

static const char *string_at(const void *from, uint16_t offset)
{
	const char *s;
	memcpy(&s, (const char *)from + offset, sizeof(s));
	return s;
}

static size_t strings_size(const struct shape *shape, const void *from)
{
	size_t n = 0;
	for (size_t i = 0; i < shape->n_strings; i++) {
		const char *s = string_at(from, shape->strings[i]);
		n += s != NULL ? strlen(s) + 1 : 0;
	}
	return n;
}

/* Copy the struct to `to` and its strings behind it; the first byte behind those. */
static char *copy_to(const struct shape *shape, void *to, const void *from)
{
	char *at = (char *)to + shape->size;
	memcpy(to, from, shape->size);
	for (size_t i = 0; i < shape->n_strings; i++) {
		const char *s = string_at(from, shape->strings[i]);
		if (s == NULL)
			continue;
		size_t n = strlen(s) + 1;
		memcpy(at, s, n);
		memcpy((char *)to + shape->strings[i], &at, sizeof(at));
		at += n;
	}
	return at;
}

static void *copy(const struct sl_env *env, const struct shape *shape, const void *from)
{
	void *to = sl__alloc(env, shape->size + strings_size(shape, from));
	if (to != NULL)
		(void)copy_to(shape, to, from);
	return to;
}

struct sl_job *sl__copy_job(const struct sl_env *env, const struct sl_job *job)
{
	return copy(env, &job_shape, job);
}

struct sl_chain *sl__copy_chain(const struct sl_env *env, const struct sl_chain *chain)
{
	return copy(env, &chain_shape, chain);
}

/* ---- rows ---- */

void sl__rows_init(struct sl__rows *rows, const struct sl_env *env)
{
	*rows = (struct sl__rows){.env = env, .last = &rows->first};
}

void sl__rows_fini(struct sl__rows *rows)
{
	for (struct sl__row *row = rows->first, *next; row != NULL; row = next) {
		next = row->next;
		sl__free(rows->env, row);
	}
	sl__rows_init(rows, rows->env);
}

/* Append a copy with room for `extra` bytes; where those go is in *behind (NULL allowed). */
static int add(struct sl__rows *rows, const struct shape *shape, const void *from, size_t extra, char **behind)
{
	static_assert(sizeof(struct sl__row) % alignof(max_align_t) == 0, "the data behind a row is aligned");
	size_t size = sizeof(struct sl__row) + shape->size + strings_size(shape, from) + extra;
	struct sl__row *row = sl__alloc(rows->env, size);
	if (row == NULL) {
		rows->no_memory = true;
		return SL_ENOMEM;
	}
	*row = (struct sl__row){.data = row + 1};
	char *end = copy_to(shape, row->data, from);
	if (behind != NULL)
		*behind = end;
	*rows->last = row;
	rows->last = &row->next;
	rows->n++;
	rows->bytes += size;
	return 0;
}

static int page(struct sl__rows *rows, int rc)
{
	rows->full = rc == 0 && rows->bytes >= SL__ROWS_BYTES;
	return rows->full ? SL__ROWS_FULL : rc;
}

int sl__rows_job(const struct sl_job *job, void *ctx)
{
	struct sl__rows *rows = ctx;
	rows->last_id = job->id;
	return page(rows, add(rows, &job_shape, job, 0, NULL));
}

int sl__rows_chain(const struct sl_chain *chain, void *ctx)
{
	struct sl__rows *rows = ctx;
	rows->last_id = chain->id;
	return page(rows, add(rows, &chain_shape, chain, 0, NULL));
}

void *sl__rows_newest(const struct sl__rows *rows)
{
	return ((struct sl__row *)(void *)((char *)rows->last - offsetof(struct sl__row, next)))->data;
}

int sl__rows_event(const struct sl_event_row *event, void *ctx)
{
	struct sl__rows *rows = ctx;
	char *payload;
	rows->last_id = event->offset;
	int rc = add(rows, &event_shape, event, event->payload_len, &payload);
	if (rc == 0 && event->payload_len > 0) {
		memcpy(payload, event->payload, event->payload_len);
		((struct sl_event_row *)sl__rows_newest(rows))->payload = payload;
	}
	return page(rows, rc);
}

int sl__rows_attempt(const struct sl_attempt_record *attempt, void *ctx)
{
	return add(ctx, &attempt_shape, attempt, 0, NULL);
}

int sl__rows_count(const struct sl_job_count *count, void *ctx)
{
	return add(ctx, &count_shape, count, 0, NULL);
}

int sl__rows_cron(const struct sl_cron *cron, void *ctx)
{
	return add(ctx, &cron_shape, cron, 0, NULL);
}

/* Behind the strings of the struct: the ids, the pointers to the types, and those. */
int sl__rows_lease(const struct sl_lease *lease, void *ctx)
{
	struct sl__rows *rows = ctx;
	size_t names = 0;
	char *at;
	for (size_t i = 0; i < lease->n_types; i++)
		names += strlen(lease->types[i]) + 1;
	size_t extra = lease->n_jobs * sizeof(uint64_t) + lease->n_types * sizeof(char *) + names;
	int rc = add(rows, &lease_shape, lease, extra + alignof(uint64_t) - 1, &at);
	if (rc != 0)
		return rc;
	struct sl_lease *copied = sl__rows_newest(rows);
	at += -(uintptr_t)at % alignof(uint64_t);
	uint64_t *jobs = (uint64_t *)(void *)at;
	const char **types = (const char **)(void *)(jobs + lease->n_jobs);
	at = (char *)(types + lease->n_types);
	memcpy(jobs, lease->jobs, lease->n_jobs * sizeof(*jobs));
	for (size_t i = 0; i < lease->n_types; i++, at += strlen(at) + 1)
		types[i] = strcpy(at, lease->types[i]);
	copied->jobs = jobs;
	copied->types = types;
	return 0;
}

int sl__rows_error(const struct sl_error_group *group, void *ctx)
{
	return add(ctx, &error_shape, group, 0, NULL);
}

int sl__rows_stream(const struct sl_event_stream *stream, void *ctx)
{
	return add(ctx, &stream_shape, stream, 0, NULL);
}
