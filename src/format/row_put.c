/* SPDX-License-Identifier: Apache-2.0 */
/* Rows put together again: as JSON on one line, or as a CSV record. */
#include <stdio.h>

#include "format/row.h"
#include "format/text.h"

static void put_char(struct sl__buf *buf, char c)
{
	(void)sl__buf_append(buf, &c, 1);
}

/* ---- JSON ---- */

/* The bytes from p that stand in a JSON string as they are. */
static size_t verbatim_length(const char *p, size_t n)
{
	size_t i = 0;
	while (i < n && (unsigned char)p[i] >= 0x20 && p[i] != '"' && p[i] != '\\') {
		size_t step = (signed char)p[i] > 0 ? 1 : sl__utf8_length_n(p + i, n - i);
		if (step == 0)
			break;
		i += step;
	}
	return i;
}

/* One byte that cannot stand there as it is. What is not UTF-8 becomes the replacement character. */
static void put_escape(struct sl__buf *buf, char c)
{
	static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
	const char *known = c != '\0' ? strchr(from, c) : NULL;
	if (known != NULL) {
		put_char(buf, '\\');
		put_char(buf, to[known - from]);
	} else if ((unsigned char)c < 0x20) {
		(void)sl__buf_printf(buf, "\\u%04x", (unsigned)(unsigned char)c);
	} else {
		(void)sl__buf_str_append(buf, "\xEF\xBF\xBD");
	}
}

void sl__put_json_string(struct sl__buf *buf, const char *text, size_t len)
{
	put_char(buf, '"');
	for (size_t i = 0; i < len;) {
		size_t n = verbatim_length(text + i, len - i);
		(void)sl__buf_append(buf, text + i, n);
		i += n;
		if (i < len)
			put_escape(buf, text[i++]);
	}
	put_char(buf, '"');
}

void sl__put_json_line(struct sl__buf *buf, const char *text, size_t len)
{
	if (sl__buf_append(buf, text, len) != 0 || (memchr(text, '\n', len) == NULL && memchr(text, '\r', len) == NULL))
		return;
	for (char *p = buf->data + buf->len - len, *end = p + len; p < end; p++)
		if (*p == '\n' || *p == '\r')
			*p = ' ';
}

static void put_json_value(struct sl__buf *buf, const struct sl__field *f)
{
	switch (f->kind) {
	case SL__FIELD_TEXT:
		sl__put_json_string(buf, f->text, f->len);
		break;
	case SL__FIELD_NUMBER:
		(void)sl__buf_append(buf, f->text, f->len);
		break;
	case SL__FIELD_TRUE:
		(void)sl__buf_str_append(buf, "true");
		break;
	case SL__FIELD_FALSE:
		(void)sl__buf_str_append(buf, "false");
		break;
	case SL__FIELD_JSON:
		sl__put_json_line(buf, f->text, f->len);
		break;
	case SL__FIELD_NULL:
	case SL__FIELD_ABSENT:
		(void)sl__buf_str_append(buf, "null");
		break;
	}
}

void sl__row_put_json(struct sl__buf *buf, const char *const *columns, const struct sl__field *fields, size_t n)
{
	char before = '{';
	for (size_t i = 0; i < n; i++) {
		if (fields[i].kind == SL__FIELD_ABSENT)
			continue;
		put_char(buf, before);
		sl__put_json_string(buf, columns[i], strlen(columns[i]));
		put_char(buf, ':');
		put_json_value(buf, &fields[i]);
		before = ',';
	}
	if (before == '{')
		put_char(buf, '{');
	put_char(buf, '}');
}

/* ---- CSV ---- */

/* An empty text is quoted to differ from NULL; \. because psql's \copy takes it for the end of the data. */
static bool needs_quotes(const char *text, size_t len)
{
	if (len == 0 || (len == 2 && text[0] == '\\' && text[1] == '.'))
		return true;
	for (size_t i = 0; i < len; i++)
		if (text[i] == ',' || text[i] == '"' || text[i] == '\n' || text[i] == '\r')
			return true;
	return false;
}

static void put_quoted(struct sl__buf *buf, const char *text, size_t len)
{
	put_char(buf, '"');
	for (const char *end = text + len; text < end;) {
		const char *quote = memchr(text, '"', (size_t)(end - text));
		size_t n = (size_t)((quote != NULL ? quote + 1 : end) - text);
		(void)sl__buf_append(buf, text, n);
		if (quote != NULL)
			put_char(buf, '"');
		text += n;
	}
	put_char(buf, '"');
}

static void put_csv_text(struct sl__buf *buf, const char *text, size_t len)
{
	if (needs_quotes(text, len))
		put_quoted(buf, text, len);
	else
		(void)sl__buf_append(buf, text, len);
}

void sl__row_put_csv(struct sl__buf *buf, const struct sl__field *fields, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct sl__field *f = &fields[i];
		if (i > 0)
			put_char(buf, ',');
		if (f->kind == SL__FIELD_TRUE)
			(void)sl__buf_str_append(buf, "true");
		else if (f->kind == SL__FIELD_FALSE)
			(void)sl__buf_str_append(buf, "false");
		else if (f->kind != SL__FIELD_NULL && f->kind != SL__FIELD_ABSENT)
			put_csv_text(buf, f->text, f->len);
	}
}
