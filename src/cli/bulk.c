/* SPDX-License-Identifier: Apache-2.0 */
/* The value of "input" is kept as it was written: base/json_scan.h finds it, and what is parsed for the other members is a
 * copy of the line with a 0 and blanks in its place. */
#include "bulk.h"

#include "base/base.h"
#include "base/json_scan.h"
#include "values.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct span {
	const char *from, *to; /* from NULL: not found */
};

/* The value of the outermost object's "input". */
static struct span find_input(const char *text, size_t n)
{
	static const char name[] = "\"input\"";
	const char *end = text + n, *p = sl__json_skip_blanks(text, end);
	struct span found = {NULL, NULL};

	if (p == end || *p != '{')
		return found;
	for (p = sl__json_skip_blanks(p + 1, end); p < end && *p == '"';) {
		const char *key = p, *value;

		p = sl__json_skip_string(p, end);
		int is_input = (size_t)(p - key) == strlen(name) && memcmp(key, name, strlen(name)) == 0;
		p = sl__json_skip_blanks(p, end);
		if (p == end || *p != ':')
			break;
		value = sl__json_skip_blanks(p + 1, end);
		p = sl__json_skip_value(value, end);
		if (is_input && p > value)
			found = (struct span){value, p};
		p = sl__json_skip_blanks(p, end);
		p = p < end && *p == ',' ? sl__json_skip_blanks(p + 1, end) : end;
	}
	return found;
}

static int SL_PRINTF(2, 3) wrong(char *what, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, BULK_WHAT_BYTES, fmt, ap);
	va_end(ap);
	return -1;
}

/* Where the text of the JSON library is about itself, another one. */
static int bad_json(char *what, const json_error_t *where, int shift)
{
	static const struct {
		enum json_error_code code;
		const char *text;
	} texts[] = {
		{json_error_out_of_memory, "out of memory"},
		{json_error_stack_overflow, "the JSON is nested too deeply"},
		{json_error_invalid_utf8, "the line is not UTF-8"},
		{json_error_premature_end_of_input, "the line ends before the object does"},
		{json_error_end_of_input_expected, "nothing may follow the object"},
		{json_error_null_character, "\\u0000 is allowed only in \"input\""},
		{json_error_null_byte_in_key, "a member's name cannot contain \\u0000"},
		{json_error_numeric_overflow, "the number is too large"},
	};
	const char *text = where->text;

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		if (json_error_code(where) == texts[i].code)
			text = texts[i].text;
	}
	return wrong(what, "column %d: %s", where->column + shift, text);
}

/* The line without its input, and the input itself. */
static int parse(struct bulk_line *line, const char *text, size_t n, char *what)
{
	struct span input = find_input(text, n);
	size_t len = (size_t)(input.to - input.from);
	char *rest;
	json_error_t where;

	/* The input alone first, so that an error in it is named where it is. A number that this machine's types do not
	 * hold is still JSON. */
	if (input.from != NULL) {
		json_t *value = json_loadb(input.from, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &where);

		json_decref(value);
		if (value == NULL && json_error_code(&where) != json_error_numeric_overflow)
			return bad_json(what, &where, (int)(input.from - text));
	}
	rest = malloc(n + 1);
	if (rest == NULL)
		return wrong(what, "out of memory");
	memcpy(rest, text, n);
	if (input.from != NULL) {
		memset(rest + (input.from - text), ' ', len);
		rest[input.from - text] = '0';
	}
	line->object = json_loadb(rest, n, JSON_REJECT_DUPLICATES, &where);
	free(rest);
	if (line->object == NULL)
		return bad_json(what, &where, 0);
	if (input.from == NULL)
		return json_object_get(line->object, "input") != NULL ? wrong(what, "write \"input\" without escapes")
								      : 0;
	line->input = strndup(input.from, len);
	return line->input != NULL ? 0 : wrong(what, "out of memory");
}

static int integer_member(json_t *object, const char *name, int64_t min, int64_t max, int64_t *out, char *what)
{
	json_t *value = json_object_get(object, name);

	if (value == NULL)
		return 0;
	if (!json_is_integer(value) || json_integer_value(value) < min || json_integer_value(value) > max)
		return wrong(what, "\"%s\" is not a whole number in range", name);
	*out = json_integer_value(value);
	return 0;
}

static int string_member(json_t *object, const char *name, const char **out, char *what)
{
	json_t *value = json_object_get(object, name);

	if (value == NULL)
		return 0;
	if (!json_is_string(value))
		return wrong(what, "\"%s\" is not a string", name);
	*out = json_string_value(value);
	return 0;
}

int bulk_line_read(struct bulk_line *line, const char *text, size_t n, struct sl_new_chain *chain,
		   char what[BULK_WHAT_BYTES])
{
	static const char *const known[] = {"input", "type", "key", "at", "in_ms", "priority"};
	int64_t priority = chain->job.priority, at_ms = 0, in_ms = 0;
	const char *name, *at = NULL;
	json_t *value, *object;
	bool has_delay;

	if (parse(line, text, n, what))
		return -1;
	object = line->object;
	if (!json_is_object(object))
		return wrong(what, "the line is not a JSON object");
	chain->job.input = line->input;
	json_object_foreach(object, name, value)
	{
		size_t i = 0;

		while (i < SL_COUNT(known) && strcmp(known[i], name) != 0)
			i++;
		if (i == SL_COUNT(known))
			return wrong(what, "unknown member \"%.60s\"", name);
	}
	/* What the line has takes the place of what the options gave. */
	if (string_member(object, "type", &chain->job.type, what) || string_member(object, "key", &chain->key, what) ||
	    integer_member(object, "priority", -INT32_MAX, INT32_MAX, &priority, what) ||
	    string_member(object, "at", &at, what) ||
	    integer_member(object, "in_ms", 0, INT64_MAX / 2000, &in_ms, what))
		return -1;
	chain->job.priority = (int32_t)priority;

	/* "at" or "in_ms"; either takes the place of what the options said. */
	has_delay = json_object_get(object, "in_ms") != NULL;
	if (at != NULL && has_delay)
		return wrong(what, "\"at\" and \"in_ms\" exclude each other");
	if (at != NULL && (strchr(at, '-') == NULL || value_time(at, 0, &at_ms) || at_ms <= 0))
		return wrong(what, "\"at\" is not a time such as 2024-05-01T12:00:00Z");
	if (at != NULL || has_delay) {
		chain->job.at_ms = at_ms;
		chain->job.delay_ms = in_ms;
	}
	if (chain->job.type == NULL)
		return wrong(what, "\"type\" is missing; add it, or give TYPE on the command line");
	return 0;
}

void bulk_line_free(struct bulk_line *line)
{
	json_decref(line->object);
	free(line->input);
	*line = (struct bulk_line){0};
}
