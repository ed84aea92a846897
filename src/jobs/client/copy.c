/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies in one allocation: the struct, then its strings, then what only some structs have (a payload, lists). A table
 * per struct says where its strings are.
 */
#include "jobs/client/client.h"

#include <stdalign.h>

/* A struct, where its strings are, and where the id is that a page of it ends with. */
struct shape {
	size_t size;
	bool paged;
	uint16_t id;
	size_t n_strings;
	uint16_t strings[10];
};

#define AT(type, field) ((uint16_t)offsetof(struct type, field))
#define SHAPE(type, n, ...)                                                                                            \
	{                                                                                                              \
		.size = sizeof(struct type), .n_strings = (n), .strings = { __VA_ARGS__ }                              \
	}
#define PAGED_SHAPE(type, id_field, n, ...)                                                                            \
	{                                                                                                              \
		.size = sizeof(struct type), .paged = true, .id = AT(type, id_field), .n_strings = (n), .strings = {   \
			__VA_ARGS__                                                                                    \
		}                                                                                                      \
	}

static const struct shape job_shape =
	PAGED_SHAPE(sl_job, id, 8, AT(sl_job, type), AT(sl_job, input), AT(sl_job, output), AT(sl_job, error),
		    AT(sl_job, progress), AT(sl_job, key), AT(sl_job, traceparent), AT(sl_job, leased_by));
static const struct shape chain_shape =
	PAGED_SHAPE(sl_chain, id, 6, AT(sl_chain, type), AT(sl_chain, at_type), AT(sl_chain, input),
		    AT(sl_chain, output), AT(sl_chain, error), AT(sl_chain, key));
static const struct shape event_shape = PAGED_SHAPE(sl_event_row, offset, 1, AT(sl_event_row, stream));
static const struct shape attempt_shape =
	SHAPE(sl_attempt_record, 2, AT(sl_attempt_record, worker), AT(sl_attempt_record, error));
static const struct shape count_shape = SHAPE(sl_job_count, 1, AT(sl_job_count, type));
static const struct shape cron_shape =
	SHAPE(sl_cron, 4, AT(sl_cron, name), AT(sl_cron, spec), AT(sl_cron, type), AT(sl_cron, input));
static const struct shape lease_shape = SHAPE(sl_lease, 1, AT(sl_lease, worker));
static const struct shape error_shape = SHAPE(sl_error_group, 2, AT(sl_error_group, type), AT(sl_error_group, error));
static const struct shape stream_shape = SHAPE(sl_event_stream, 1, AT(sl_event_stream, stream));

static const struct shape heartbeat_shape =
	SHAPE(sl_heartbeat, 5, AT(sl_heartbeat, worker), AT(sl_heartbeat, host), AT(sl_heartbeat, version),
	      AT(sl_heartbeat, types), AT(sl_heartbeat, error));

static const char *string_at(const void *from, uint16_t offset)
{
	const char *s;
	memcpy(&s, (const char *)from + offset, sizeof(s));
	return s;
}

/* The size of a copy: the struct and its strings. */
static size_t copy_size(const struct shape *shape, const void *from)
{
	size_t n = shape->size;
	for (size_t i = 0; i < shape->n_strings; i++) {
		const char *s = string_at(from, shape->strings[i]);
		n += s != NULL ? strlen(s) + 1 : 0;
	}
	return n;
}

/* Copy the struct to `to` (NULL: nothing happens) and its strings after it. Returns `to`. */
static void *copy_to(const struct shape *shape, void *to, const void *from)
{
	if (to == NULL)
		return NULL;
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
	return to;
}

static int copy_one(const struct shape *shape, const void *from, struct sl__copy *copy)
{
	copy->data = copy_to(shape, sl__alloc(copy->env, copy_size(shape, from)), from);
	return copy->data != NULL ? 0 : SL_ENOMEM;
}

int sl__copy_job(const struct sl_job *job, void *ctx)
{
	return copy_one(&job_shape, job, ctx);
}

int sl__copy_chain(const struct sl_chain *chain, void *ctx)
{
	return copy_one(&chain_shape, chain, ctx);
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

/* Append a copy with room for `extra` bytes after it, which begin at *tail (NULL allowed). SL__ROWS_FULL: it was
 * appended, and ends the page. */
static int add_row(struct sl__rows *rows, const struct shape *shape, const void *from, size_t extra, char **tail)
{
	static_assert(sizeof(struct sl__row) % alignof(max_align_t) == 0, "the data after a row is aligned");
	size_t size = sizeof(struct sl__row) + copy_size(shape, from) + extra;
	struct sl__row *row = sl__alloc(rows->env, size);
	if (row == NULL) {
		rows->no_memory = true;
		return SL_ENOMEM;
	}
	*row = (struct sl__row){.data = row + 1};
	(void)copy_to(shape, row->data, from);
	if (tail != NULL)
		*tail = (char *)row + size - extra;
	*rows->last = row;
	rows->last = &row->next;
	rows->n++;
	rows->bytes += size;
	if (!shape->paged)
		return 0;
	memcpy(&rows->last_id, (const char *)from + shape->id, sizeof(rows->last_id));
	rows->full = rows->bytes >= SL__ROWS_BYTES;
	return rows->full ? SL__ROWS_FULL : 0;
}

void *sl__rows_newest(const struct sl__rows *rows)
{
	return ((struct sl__row *)(void *)((char *)rows->last - offsetof(struct sl__row, next)))->data;
}

int sl__rows_job(const struct sl_job *job, void *ctx)
{
	return add_row(ctx, &job_shape, job, 0, NULL);
}

int sl__rows_chain(const struct sl_chain *chain, void *ctx)
{
	return add_row(ctx, &chain_shape, chain, 0, NULL);
}

int sl__rows_attempt(const struct sl_attempt_record *attempt, void *ctx)
{
	return add_row(ctx, &attempt_shape, attempt, 0, NULL);
}

int sl__rows_count(const struct sl_job_count *count, void *ctx)
{
	return add_row(ctx, &count_shape, count, 0, NULL);
}

int sl__rows_cron(const struct sl_cron *cron, void *ctx)
{
	return add_row(ctx, &cron_shape, cron, 0, NULL);
}

int sl__rows_error(const struct sl_error_group *group, void *ctx)
{
	return add_row(ctx, &error_shape, group, 0, NULL);
}

int sl__rows_stream(const struct sl_event_stream *stream, void *ctx)
{
	return add_row(ctx, &stream_shape, stream, 0, NULL);
}

int sl__rows_heartbeat(const struct sl_heartbeat *heartbeat, void *ctx)
{
	return add_row(ctx, &heartbeat_shape, heartbeat, 0, NULL);
}

/* After the strings: the payload. */
int sl__rows_event(const struct sl_event_row *event, void *ctx)
{
	char *payload;
	int rc = add_row(ctx, &event_shape, event, event->payload_len, &payload);
	if (rc >= 0 && event->payload_len > 0) {
		memcpy(payload, event->payload, event->payload_len);
		((struct sl_event_row *)sl__rows_newest(ctx))->payload = payload;
	}
	return rc;
}

/* After the strings: the ids, the pointers to the types, and those. */
int sl__rows_lease(const struct sl_lease *lease, void *ctx)
{
	size_t names = 0;
	char *at;
	for (size_t i = 0; i < lease->n_types; i++)
		names += strlen(lease->types[i]) + 1;
	size_t extra = lease->n_jobs * sizeof(uint64_t) + lease->n_types * sizeof(char *) + names;
	int rc = add_row(ctx, &lease_shape, lease, extra + alignof(uint64_t) - 1, &at);
	if (rc != 0)
		return rc;
	struct sl_lease *copied = sl__rows_newest(ctx);
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
