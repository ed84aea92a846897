/* SPDX-License-Identifier: Apache-2.0 */
/* JSON lines: a record is a line, and a JSON object. */
#include "format/json.h"
#include "format/records_priv.h"

bool sl__line_scan(struct sl__scan *s, const char *record, size_t n)
{
	const char *line_end = memchr(record + s->at, '\n', n - s->at);
	s->at = line_end != NULL ? (size_t)(line_end - record) : n;
	return line_end != NULL;
}

bool sl__jsonl_blank(const char *record, size_t len)
{
	size_t i = 0;
	while (i < len && (record[i] == ' ' || record[i] == '\t' || record[i] == '\r'))
		i++;
	return i == len;
}

const char *sl__jsonl_fault(const char *record, size_t len)
{
	struct sl__json s = sl__json_of(record, len);
	struct sl__json_value v;
	if (!sl__json_open(&s))
		return s.why;
	s = sl__json_of(record, len);
	return sl__json_value(&s, &v) && sl__json_finish(&s) ? NULL : s.why;
}
