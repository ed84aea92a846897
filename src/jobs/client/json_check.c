/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is a text one JSON value, with nothing behind it? It is only looked at, never built, since stores keep JSON byte for
 * byte: numbers of any size pass, and a text of many megabytes costs no memory. format/json.h has the rules.
 */
#include "format/json.h"
#include "jobs/client/types.h"

#define DEPTH_MAX 1000

/* Lines and columns count from 1; a column is a character. */
static void place(const char *json, const char *at, size_t *line, size_t *column)
{
	*line = *column = 1;
	for (; json < at; json++) {
		if (*json == '\n') {
			(*line)++;
			*column = 1;
		} else if (((unsigned char)*json & 0xC0) != 0x80) {
			(*column)++;
		}
	}
}

int sl__job_json_check(const char *json, const char *field, struct sl_err *err)
{
	size_t len = strnlen(json, SL__JOB_JSON_BYTES + 1);
	if (len > SL__JOB_JSON_BYTES)
		return sl_err_set(err, SL_ETOOBIG, "%s: more than %zu MiB of JSON; store it elsewhere and name it",
				  field, SL__JOB_JSON_BYTES >> 20);
	struct sl__json s = sl__json_of(json, len);
	struct sl__json_value ignored;
	s.depth_max = DEPTH_MAX;
	if (sl__json_value(&s, &ignored) && sl__json_finish(&s))
		return 0;
	size_t line, column;
	place(json, s.at, &line, &column);
	return sl_err_set(err, SL_EDATA, "%s: line %zu, column %zu: %s", field, line, column, s.why);
}
