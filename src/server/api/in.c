/* SPDX-License-Identifier: Apache-2.0 */
/* The input of requests: every name is known and every value in range, or the answer is 400 with the field and the
 * reason. */
#include "server/api/api.h"

#include "base/time.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "a, b, c" */
static void join_names(char *out, size_t size, const char *const *names)
{
	size_t used = 0;
	out[0] = '\0';
	for (size_t i = 0; names[i] != NULL && used < size; i++)
		used += (size_t)snprintf(out + used, size - used, "%s%s", i > 0 ? ", " : "", names[i]);
}

/* ---- queries ---- */

struct query_check {
	const char *const *names;
	char bad[64];
	bool twice;
	uint64_t seen; /* a bit each */
};

static int check_parameter(const char *name, const char *value, void *ctx)
{
	struct query_check *c = ctx;
	(void)value;
	for (size_t i = 0; c->names[i] != NULL; i++)
		if (strcmp(name, c->names[i]) == 0) {
			c->twice = (c->seen & UINT64_C(1) << i) != 0;
			c->seen |= UINT64_C(1) << i;
			if (c->twice)
				(void)snprintf(c->bad, sizeof(c->bad), "%s", name);
			return c->twice;
		}
	(void)snprintf(c->bad, sizeof(c->bad), "%.60s", *name != '\0' ? name : "(empty)");
	return 1;
}

bool srv_in_query(srv_request *r, const char *const *names)
{
	static const char *const none[] = {NULL};
	struct query_check c = {.names = names != NULL ? names : none};
	char all[256];
	srv_query_each(r, check_parameter, &c);
	if (c.bad[0] == '\0')
		return true;
	join_names(all, sizeof(all), c.names);
	if (c.twice)
		srv_error(r, 400, "invalid", "%s: given twice", c.bad);
	else
		srv_error(r, 400, "invalid", "unknown parameter %s%s%s", c.bad,
			  all[0] != '\0' ? "; known parameters are " : "", all);
	return false;
}

bool srv_number_parse(const char *text, uint64_t most, uint64_t *out)
{
	char *end = NULL;
	if (text == NULL || !isdigit((unsigned char)*text))
		return false;
	errno = 0;
	unsigned long long n = strtoull(text, &end, 10);
	if (*end != '\0' || errno != 0 || n > most)
		return false;
	*out = n;
	return true;
}

bool srv_in_number(srv_request *r, const char *name, const char *text, uint64_t most, uint64_t *out)
{
	if (srv_number_parse(text, most, out))
		return true;
	srv_error(r, 400, "invalid", "%s: must be a whole number, at most %" PRIu64, name, most);
	return false;
}

bool srv_in_limit(srv_request *r, uint32_t *out)
{
	const char *text = srv_query(r, "limit");
	uint64_t n = SRV_LIMIT;
	if (text != NULL && !srv_in_number(r, "limit", text, SRV_LIMIT_MAX, &n))
		return false;
	if (n == 0) {
		srv_error(r, 400, "invalid", "limit: must be 1 to %d", SRV_LIMIT_MAX);
		return false;
	}
	*out = (uint32_t)n;
	return true;
}

bool srv_in_id(srv_request *r, uint64_t *out)
{
	const char *text = srv_param(r, "id");
	if (srv_number_parse(text, INT64_MAX, out) && *out > 0)
		return true;
	srv_error(r, 404, "not_found", "no resource with id '%.40s'; ids are whole numbers above 0",
		  text != NULL ? text : "");
	return false;
}

bool srv_in_flag(srv_request *r, const char *name, bool *out)
{
	const char *text = srv_query(r, name);
	*out = text != NULL && (strcmp(text, "1") == 0 || strcmp(text, "true") == 0);
	if (text == NULL || *out || strcmp(text, "0") == 0 || strcmp(text, "false") == 0)
		return true;
	srv_error(r, 400, "invalid", "%s: must be 0 or 1", name);
	return false;
}

/* ---- times ---- */

static bool digits(const char **text, int n, int *out)
{
	*out = 0;
	for (int i = 0; i < n; i++, ++*text) {
		if (!isdigit((unsigned char)**text))
			return false;
		*out = *out * 10 + (**text - '0');
	}
	return true;
}

static bool skip(const char **text, char c)
{
	if (**text != c)
		return false;
	++*text;
	return true;
}

static bool rfc3339(const char *text, int64_t *out)
{
	struct tm tm = {0};
	int year, month, ms = 0, minutes = 0, hours = 0;
	bool ok = digits(&text, 4, &year) && skip(&text, '-') && digits(&text, 2, &month) && skip(&text, '-') &&
		  digits(&text, 2, &tm.tm_mday) && (skip(&text, 'T') || skip(&text, 't') || skip(&text, ' ')) &&
		  digits(&text, 2, &tm.tm_hour) && skip(&text, ':') && digits(&text, 2, &tm.tm_min) &&
		  skip(&text, ':') && digits(&text, 2, &tm.tm_sec);
	/* ".123…": milliseconds; further digits are dropped. */
	if (ok && skip(&text, '.')) {
		ok = isdigit((unsigned char)*text);
		for (int scale = 100; isdigit((unsigned char)*text); text++, scale /= 10)
			ms += (*text - '0') * scale;
	}
	/* "Z" or "+02:00" */
	if (ok && !skip(&text, 'Z') && !skip(&text, 'z')) {
		int sign = *text == '-' ? -1 : 1;
		ok = (skip(&text, '+') || skip(&text, '-')) && digits(&text, 2, &hours) && skip(&text, ':') &&
		     digits(&text, 2, &minutes) && hours <= 23 && minutes <= 59;
		minutes = sign * (hours * 60 + minutes);
	}
	if (!ok || *text != '\0' || month < 1 || month > 12 || tm.tm_mday < 1 || tm.tm_hour > 23 || tm.tm_min > 59 ||
	    tm.tm_sec > 60)
		return false;
	tm.tm_year = year - 1900;
	tm.tm_mon = month - 1;
	int day = tm.tm_mday, leap = tm.tm_sec == 60;
	tm.tm_sec -= leap;
	time_t s = timegm(&tm);
	if (tm.tm_mday != day)
		return false; /* 30 February */
	*out = ((int64_t)s + leap - minutes * 60) * 1000 + ms;
	return true;
}

bool srv_in_time(srv_request *r, const char *name, const char *text, int64_t *out)
{
	char *end = NULL;
	errno = 0;
	long long n = strtoll(text, &end, 10);
	bool number = isdigit((unsigned char)*text) && *end == '\0' && errno == 0;
	if (number)
		*out = n;
	if ((number || rfc3339(text, out)) && *out > 0 && *out <= SL__TIME_MAX_MS)
		return true;
	srv_error(r, 400, "invalid", "%s: must be a time such as 2026-01-31T12:00:00Z, or Unix milliseconds", name);
	return false;
}

/* ---- bodies ---- */

bool srv_in_only(const struct srv_object *o, const char *const *names)
{
	const char *name, *where = o->where;
	json_t *value, *object = (json_t *)(uintptr_t)o->json;
	char all[256];
	if (!json_is_object(object)) {
		srv_error(o->r, 400, "invalid", "%s: must be an object", where[0] != '\0' ? where : "the body");
		return false;
	}
	json_object_foreach(object, name, value)
	{
		size_t i = 0;
		while (names[i] != NULL && strcmp(name, names[i]) != 0)
			i++;
		if (names[i] != NULL)
			continue;
		join_names(all, sizeof(all), names);
		srv_error(o->r, 400, "invalid", "unknown field %s%s%.60s%s%s", where, where[0] != '\0' ? "." : "", name,
			  all[0] != '\0' ? "; known fields are " : "", all);
		return false;
	}
	return true;
}

bool srv_in_body(srv_request *r, const char *const *names, const char *opaque, struct srv_object *out)
{
	*out = (struct srv_object){r, "", srv_body_json_but(r, opaque, 1)};
	return out->json != NULL && srv_in_only(out, names);
}

bool srv_in_opaque(const struct srv_object *o, const char *name, char **out)
{
	const json_t *v = json_object_get(o->json, name);
	if (v == NULL)
		return true;
	struct srv_text text = srv_body_opaque(o->r, v);
	*out = strndup(text.at, text.len);
	if (*out == NULL)
		srv_error(o->r, 500, "internal", "out of memory");
	return *out != NULL;
}

bool srv_in_no_body(srv_request *r)
{
	static const char *const none[] = {NULL};
	size_t len = 0;
	struct srv_object body;
	(void)srv_body(r, &len);
	return len == 0 || srv_in_body(r, none, NULL, &body);
}

static bool member_must(const struct srv_object *o, const char *name, const char *what)
{
	srv_error(o->r, 400, "invalid", "%s%s%s: %s", o->where, o->where[0] != '\0' ? "." : "", name, what);
	return false;
}

static const json_t *member(const struct srv_object *o, const char *name)
{
	const json_t *v = json_object_get(o->json, name);
	return json_is_null(v) ? NULL : v;
}

bool srv_in_text(const struct srv_object *o, const char *name, const char **out)
{
	const json_t *v = member(o, name);
	if (v == NULL)
		return true;
	if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
		return member_must(o, name, "must be a string without a NUL");
	*out = json_string_value(v);
	return true;
}

bool srv_in_type(srv_request *r, const char *type)
{
	if (type != NULL && !srv_may_enqueue(r, type)) {
		srv_error(r, 403, "forbidden", "type: the token \"%s\" may not start jobs of '%.60s'", srv_actor(r),
			  type);
		return false;
	}
	if (type == NULL || (strcmp(type, "run") != 0 && strncmp(type, "run/", 4) != 0))
		return true;
	srv_error(r, 403, "forbidden",
		  "type: jobs of '%.60s' are commands, which a request cannot start; use 'sluice run'", type);
	return false;
}

bool srv_in_int(const struct srv_object *o, const char *name, int64_t least, int64_t most, int64_t *out)
{
	const json_t *v = member(o, name);
	char what[96];
	if (v == NULL)
		return true;
	(void)snprintf(what, sizeof(what), "must be a whole number from %" PRId64 " to %" PRId64, least, most);
	if (!json_is_integer(v) || json_integer_value(v) < least || json_integer_value(v) > most)
		return member_must(o, name, what);
	*out = json_integer_value(v);
	return true;
}

bool srv_in_priority(const struct srv_object *o, int32_t *out)
{
	int64_t n = INT64_MIN;
	if (!srv_in_int(o, "priority", -INT32_MAX, INT32_MAX, &n))
		return false;
	if (n != INT64_MIN)
		*out = n != 0 ? (int32_t)n : SL_PRIORITY_ZERO;
	return true;
}

bool srv_in_bool(const struct srv_object *o, const char *name, bool *out)
{
	const json_t *v = member(o, name);
	if (v == NULL)
		return true;
	if (!json_is_boolean(v))
		return member_must(o, name, "must be true or false");
	*out = json_is_true(v);
	return true;
}

bool srv_in_ids(const struct srv_object *o, const char *name, size_t most, uint64_t **ids, size_t *n)
{
	const json_t *v = member(o, name);
	char what[96];
	if (v == NULL)
		return true;
	(void)snprintf(what, sizeof(what), "must be an array of at most %zu ids", most);
	if (!json_is_array(v) || json_array_size(v) > most)
		return member_must(o, name, what);
	*n = json_array_size(v);
	*ids = calloc(*n + 1, sizeof(**ids));
	if (*ids == NULL) {
		srv_error(o->r, 500, "internal", "out of memory");
		return false;
	}
	for (size_t i = 0; i < *n; i++) {
		/* A number, or a string of digits as in answers. */
		const json_t *one = json_array_get(v, i);
		uint64_t id = 0;
		if (json_is_integer(one) && json_integer_value(one) > 0)
			id = (uint64_t)json_integer_value(one);
		else
			(void)srv_number_parse(json_string_value(one), INT64_MAX, &id);
		(*ids)[i] = id;
		if (id != 0)
			continue;
		free(*ids);
		*ids = NULL;
		return member_must(o, name, "every id must be a whole number above 0");
	}
	return true;
}
