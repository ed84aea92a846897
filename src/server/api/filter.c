/* SPDX-License-Identifier: Apache-2.0 */
/* Which jobs or chains: the same fields in the query of a list and in the filter of a change. */
#include "server/api/api.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILTER_FIELDS "type", "status", "key", "error", "q", "from", "to", "ended_from", "ended_to"

static bool add_status(srv_request *r, struct srv_filter *f, const char *name)
{
	enum sl_job_status status = sl_job_status_from(name);
	if (status == 0) {
		srv_error(r, 400, "invalid",
			  "status: unknown status '%.40s'; use ready, scheduled, retrying, pending (all three), "
			  "blocked, running, "
			  "completed, failed or cancelled",
			  name);
		return false;
	}
	f->f.statuses |= 1u << status;
	return true;
}

static bool add_type(srv_request *r, struct srv_filter *f, const char *name)
{
	if (f->f.n_types == SRV_TYPES_MAX || *name == '\0' || strlen(name) > 128) {
		srv_error(r, 400, "invalid", "type: must be at most %d names of 1 to 128 bytes", SRV_TYPES_MAX);
		return false;
	}
	f->types[f->f.n_types++] = name;
	f->f.types = f->types;
	return true;
}

/* Values come from the object of a body, or, where its json is NULL, from the query. */

static bool get_filter_text(const struct srv_object *s, const char *name, const char **out)
{
	if (s->json != NULL)
		return srv_in_text(s, name, out);
	*out = srv_query(s->r, name);
	return true;
}

/* A string of names, "a,b,c", or of a body also an array of them. */
static bool get_names(const struct srv_object *s, struct srv_filter *f, const char *name,
		      bool (*add)(srv_request *, struct srv_filter *, const char *))
{
	const json_t *v = json_object_get(s->json, name);
	const char *text = NULL;
	char statuses[256], *at = NULL;
	char *copy = add == add_type ? f->text : statuses; /* types are kept, as parts of the text */
	if (json_is_array(v)) {
		for (size_t i = 0; i < json_array_size(v); i++) {
			text = json_string_value(json_array_get(v, i));
			if (text == NULL) {
				srv_error(s->r, 400, "invalid", "filter.%s: must be an array of strings", name);
				return false;
			}
			if (!add(s->r, f, text))
				return false;
		}
		return true;
	}
	if (!get_filter_text(s, name, &text))
		return false;
	if (text == NULL)
		return true;
	if (strlen(text) >= (add == add_type ? sizeof(f->text) : sizeof(statuses))) {
		srv_error(s->r, 400, "invalid", "%s: too long", name);
		return false;
	}
	strcpy(copy, text);
	for (char *one = strtok_r(copy, ",", &at); one != NULL; one = strtok_r(NULL, ",", &at))
		if (!add(s->r, f, one))
			return false;
	return true;
}

static bool get_filter_time(const struct srv_object *s, const char *name, int64_t *out)
{
	const json_t *v = json_object_get(s->json, name);
	const char *text = NULL;
	char number[32];
	if (json_is_integer(v)) {
		(void)snprintf(number, sizeof(number), "%" PRId64, (int64_t)json_integer_value(v));
		return srv_in_time(s->r, name, number, out);
	}
	return get_filter_text(s, name, &text) && (text == NULL || srv_in_time(s->r, name, text, out));
}

static bool get_filter(const struct srv_object *s, struct srv_filter *f)
{
	return get_names(s, f, "type", add_type) && get_names(s, f, "status", add_status) &&
	       get_filter_text(s, "key", &f->f.key) && get_filter_text(s, "error", &f->f.error) &&
	       get_filter_text(s, "q", &f->f.text) && get_filter_time(s, "from", &f->f.created_from_ms) &&
	       get_filter_time(s, "to", &f->f.created_to_ms) && get_filter_time(s, "ended_from", &f->f.ended_from_ms) &&
	       get_filter_time(s, "ended_to", &f->f.ended_to_ms);
}

bool srv_filter_body(const struct srv_object *filter, struct srv_filter *out)
{
	static const char *const names[] = {FILTER_FIELDS, NULL};
	*out = (struct srv_filter){.f = {SL_JOB_FILTER_INIT}};
	return srv_in_only(filter, names) && get_filter(filter, out);
}

bool srv_filter_query(srv_request *r, struct srv_filter *out)
{
	static const char *const names[] = {FILTER_FIELDS, "cursor", "limit", "order", "data", NULL};
	*out = (struct srv_filter){.f = {SL_JOB_FILTER_INIT}};
	if (!srv_in_query(r, names) || !get_filter(&(struct srv_object){.r = r}, out))
		return false;
	const char *order = srv_query(r, "order"), *cursor = srv_query(r, "cursor");
	out->f.ascending = order != NULL && strcmp(order, "asc") == 0;
	if (order != NULL && !out->f.ascending && strcmp(order, "desc") != 0) {
		srv_error(r, 400, "invalid", "order: must be asc or desc");
		return false;
	}
	/* "d42": below 42, descending; "a42": above 42, ascending. */
	if (cursor != NULL) {
		char direction = out->f.ascending ? 'a' : 'd';
		if (*cursor != direction || !srv_number_parse(cursor + 1, INT64_MAX, &out->f.after) ||
		    out->f.after == 0) {
			srv_error(r, 400, "invalid", "cursor: not from a list in this order");
			return false;
		}
	}
	return srv_in_limit(r, &out->f.limit) && srv_in_flag(r, "data", &out->data);
}
