/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses the lines of descriptor 3. A line is first checked as JSON as a whole; after that the walk over its members
 * may trust it, and values are copied byte for byte: an output of many megabytes, or with numbers that no double holds,
 * comes through unchanged.
 *
 * A line is parsed into a draft as a whole before any of it takes effect, so that a bad one changes nothing.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "jobs/client/types.h"
#include "jobs/exec/protocol.h"

struct span {
	const char *at;
	size_t len;
};

struct member {
	struct span key; /* without its quotes */
	struct span value;
};

/* ---- walking over JSON that is known to be well-formed ---- */

static const char *protocol_blanks(const char *p)
{
	while (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r')
		p++;
	return p;
}

static const char *protocol_string(const char *p)
{
	for (p++; *p != '"'; p++)
		if (*p == '\\')
			p++;
	return p + 1;
}

static const char *protocol_value(const char *p)
{
	int depth = 0;
	do {
		if (*p == '"') {
			p = protocol_string(p);
			continue;
		}
		if (*p == '{' || *p == '[')
			depth++;
		else if (*p == '}' || *p == ']')
			depth--;
		else if (depth == 0)
			return p + strcspn(p, ",}] \t\r\n");
		p++;
	} while (depth > 0);
	return p;
}

/* *p is after the '{' or after a value. false at the end of the object. */
static bool next_member(const char **p, struct member *out)
{
	const char *at = protocol_blanks(*p);
	if (*at == ',')
		at = protocol_blanks(at + 1);
	if (*at == '}')
		return false;
	const char *end = protocol_string(at);
	out->key = (struct span){at + 1, (size_t)(end - at) - 2};
	at = protocol_blanks(protocol_blanks(end) + 1);
	end = protocol_value(at);
	out->value = (struct span){at, (size_t)(end - at)};
	*p = end;
	return true;
}

static bool member_is(const struct member *m, const char *name)
{
	return m->key.len == strlen(name) && memcmp(m->key.at, name, m->key.len) == 0;
}

/* ---- values ---- */

static bool get_int(struct span v, int64_t min, int64_t max, int64_t *out)
{
	char text[24], *end;
	if (v.len == 0 || v.len >= sizeof(text))
		return false;
	memcpy(text, v.at, v.len);
	text[v.len] = '\0';
	errno = 0;
	long long n = strtoll(text, &end, 10);
	if (*end != '\0' || errno != 0 || n < min || n > max)
		return false;
	*out = n;
	return true;
}

/* Append the string without its escapes to out. false: not a string, or with a NUL in it. */
static bool get_string(struct span v, struct sl__buf *out)
{
	if (v.len < 2 || v.at[0] != '"')
		return false;
	json_t *text = json_loadb(v.at, v.len, JSON_DECODE_ANY, NULL);
	if (text == NULL)
		return false;
	(void)sl__buf_append(out, json_string_value(text), json_string_length(text));
	json_decref(text);
	return true;
}

/* ---- a line ---- */

/* What would hold after a line, and what of the line is worth an event. */
struct draft {
	struct sl__protocol p;
	struct sl__said *said;
};

static bool refuse_line(struct draft *d, const char *why)
{
	(void)snprintf(d->said->bad, sizeof(d->said->bad), "descriptor 3: %s", why);
	return false;
}

static bool get_blockers(struct draft *d, struct span v)
{
	if (v.at[0] != '[')
		return refuse_line(d, "continue_with: blockers is an array of at most 10,000 chain ids");
	const char *p = protocol_blanks(v.at + 1);
	for (size_t n = 0; *p != ']'; n++) {
		const char *end = protocol_value(p);
		struct span id = {p, (size_t)(end - p)};
		int64_t number;
		if (n == SL__BLOCKERS_MAX)
			return refuse_line(d, "continue_with: blockers is an array of at most 10,000 chain ids");
		/* An id is a number, or a string of digits: some languages have no 64-bit integers. */
		if (id.len >= 2 && id.at[0] == '"')
			id = (struct span){id.at + 1, id.len - 2};
		if (id.len == 0 || id.at[0] < '0' || id.at[0] > '9' || !get_int(id, 1, INT64_MAX, &number))
			return refuse_line(d, "continue_with: an item of blockers is not a chain id");
		(void)sl__buf_append(&d->p.blockers, &(uint64_t){(uint64_t)number}, sizeof(uint64_t));
		p = protocol_blanks(end);
		if (*p == ',')
			p = protocol_blanks(p + 1);
	}
	return true;
}

static bool get_next_job(struct draft *d, struct span v)
{
	struct member m;
	const char *p = v.at + 1;
	int64_t n = 0;
	if (v.at[0] != '{')
		return refuse_line(d, "continue_with is an object");
	while (next_member(&p, &m)) {
		if (member_is(&m, "type")) {
			sl__buf_clear(&d->p.type);
			if (!get_string(m.value, &d->p.type))
				return refuse_line(d, "continue_with: type is a string");
		} else if (member_is(&m, "input")) {
			sl__buf_clear(&d->p.text);
			(void)sl__buf_append(&d->p.text, m.value.at, m.value.len);
		} else if (member_is(&m, "priority")) {
			if (!get_int(m.value, -INT32_MAX, INT32_MAX, &n))
				return refuse_line(
					d, "continue_with: priority is an integer from -2147483647 to 2147483647");
			d->p.next.priority = n != 0 ? (int32_t)n : SL_PRIORITY_ZERO;
		} else if (member_is(&m, "delay_ms")) {
			if (!get_int(m.value, 0, SL__JOB_TIME_MAX_MS, &d->p.next.delay_ms))
				return refuse_line(d, "continue_with: delay_ms is a number of milliseconds");
		} else if (member_is(&m, "at_ms")) {
			if (!get_int(m.value, 0, SL__JOB_TIME_MAX_MS, &d->p.next.at_ms))
				return refuse_line(d, "continue_with: at_ms is a time in Unix milliseconds");
		} else if (member_is(&m, "blockers")) {
			sl__buf_clear(&d->p.blockers);
			if (!get_blockers(d, m.value))
				return false;
		} else {
			return refuse_line(
				d, "continue_with: expected type, input, priority, delay_ms, at_ms or blockers");
		}
	}
	if (d->p.type.len == 0)
		return refuse_line(d, "continue_with: type is missing");
	if (d->p.next.at_ms != 0 && d->p.next.delay_ms != 0)
		return refuse_line(d, "continue_with: delay_ms or at_ms, not both");
	d->p.last = SL__SAYS_CONTINUE;
	return true;
}

static bool parse_member(struct draft *d, const struct member *m)
{
	if (member_is(m, "progress")) {
		if (m->value.len > SL__PROGRESS_MAX)
			return refuse_line(d, "progress is longer than 1 MiB");
		d->said->progress = m->value.at;
		d->said->progress_len = m->value.len;
		return true;
	}
	/* Each of the others replaces what came before it. */
	sl__buf_clear(&d->p.text);
	sl__buf_clear(&d->p.type);
	sl__buf_clear(&d->p.blockers);
	d->p.next = (struct sl_new_job){0};
	if (member_is(m, "output")) {
		d->p.last = SL__SAYS_OUTPUT;
		(void)sl__buf_append(&d->p.text, m->value.at, m->value.len);
		return true;
	}
	if (member_is(m, "continue_with"))
		return get_next_job(d, m->value);
	if (member_is(m, "reschedule_in_ms")) {
		d->p.last = SL__SAYS_RESCHEDULE;
		return get_int(m->value, 0, SL__JOB_TIME_MAX_MS, &d->p.reschedule_ms) ||
		       refuse_line(d, "reschedule_in_ms is a number of milliseconds");
	}
	if (member_is(m, "fail")) {
		d->p.last = SL__SAYS_FAIL;
		return get_string(m->value, &d->p.text) || refuse_line(d, "fail is a string without NUL");
	}
	return refuse_line(d, "expected output, continue_with, progress, reschedule_in_ms or fail");
}

static bool parse_line(struct draft *d, const char *line, size_t len)
{
	struct sl_err err = SL_ERR_INIT;
	struct member m;
	bool any = false;
	if (memchr(line, '\0', len) != NULL)
		return refuse_line(d, "a NUL in a line of JSON");
	if (sl__job_json_check(line, "line", &err) != 0) {
		(void)snprintf(d->said->bad, sizeof(d->said->bad), "descriptor 3: %.150s", err.msg);
		return false;
	}
	const char *p = protocol_blanks(line);
	if (*p++ != '{')
		return refuse_line(d, "a line is a JSON object");
	for (; next_member(&p, &m); any = true)
		if (!parse_member(d, &m))
			return false;
	return any || refuse_line(d, "an empty object");
}

static void remember_bad(struct sl__protocol *p, struct sl__said *said)
{
	said->progress = NULL;
	if (!p->bad)
		memcpy(p->why, said->bad, sizeof(p->why));
	p->bad = true;
}

void sl__protocol_init(struct sl__protocol *p, const struct sl_env *env)
{
	*p = (struct sl__protocol){.env = env};
	sl__buf_init(&p->text, env);
	sl__buf_init(&p->type, env);
	sl__buf_init(&p->blockers, env);
}

void sl__protocol_fini(struct sl__protocol *p)
{
	sl__buf_fini(&p->text);
	sl__buf_fini(&p->type);
	sl__buf_fini(&p->blockers);
}

int sl__protocol_line(struct sl__protocol *p, const char *line, size_t len, struct sl__said *said)
{
	struct draft d = {.said = said};
	*said = (struct sl__said){0};
	if (strspn(line, " \t\r") == len)
		return 0;
	sl__protocol_init(&d.p, p->env);
	bool good = parse_line(&d, line, len);
	int rc = d.p.text.failed | d.p.type.failed | d.p.blockers.failed;
	if (rc == 0 && !good)
		remember_bad(p, said);
	if (rc == 0 && good && d.p.last != SL__SAYS_NOTHING) {
		struct sl__protocol before = *p;
		*p = d.p;
		d.p = before;
		p->bad = before.bad;
		memcpy(p->why, before.why, sizeof(p->why));
		p->next.type = sl__buf_str(&p->type);
		p->next.input = p->text.len > 0 ? sl__buf_str(&p->text) : NULL;
		p->next.blockers = (const uint64_t *)(const void *)p->blockers.data;
		p->next.n_blockers = p->blockers.len / sizeof(uint64_t);
	}
	sl__protocol_fini(&d.p);
	return rc;
}

void sl__protocol_overlong(struct sl__protocol *p, struct sl__said *said)
{
	*said = (struct sl__said){0};
	(void)snprintf(said->bad, sizeof(said->bad), "descriptor 3: a line is longer than 64 MiB");
	remember_bad(p, said);
}
