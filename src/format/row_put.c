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

void sl__put_json_string(struct sl__buf *buf, const char *text, size_t len)
{
	static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
	put_char(buf, '"');
	for (size_t i = 0; i < len;) {
		/* What needs no escape is copied in one piece. */
		size_t start = i, step;
		while (i < len && (unsigned char)text[i] >= 0x20 && text[i] != '"' && text[i] != '\\') {
			step = (signed char)text[i] > 0 ? 1 : sl__utf8_length_n(text + i, len - i);
			if (step == 0)
				break;
			i += step;
		}
		(void)sl__buf_append(buf, text + start, i - start);
		if (i == len)
			break;

		/* One byte that needs an escape; a byte that is not UTF-8 becomes the replacement character. */
		char c = text[i++];
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

void sl__row_put_json(struct sl__buf *buf, const char *const *columns, const struct sl__field *fields, size_t n)
{
	char before = '{';
	for (size_t i = 0; i < n; i++) {
		if (fields[i].kind == SL__FIELD_ABSENT)
			continue;
		put_char(buf, before);
		sl__put_json_string(buf, columns[i], strlen(columns[i]));
		put_char(buf, ':');
		const struct sl__field *f = &fields[i];
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
		before = ',';
	}
	if (before == '{')
		put_char(buf, '{');
	put_char(buf, '}');
}

/* ---- CSV ---- */

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
		if (f->kind == SL__FIELD_TRUE || f->kind == SL__FIELD_FALSE || f->kind == SL__FIELD_NULL ||
		    f->kind == SL__FIELD_ABSENT)
			continue;

		/* An empty text is quoted to differ from NULL; \. because psql's \copy reads it as the end of data. */
		const char *text = f->text, *end = text + f->len;
		bool quoted = f->len == 0 || (f->len == 2 && text[0] == '\\' && text[1] == '.');
		for (size_t k = 0; !quoted && k < f->len; k++)
			quoted = text[k] == ',' || text[k] == '"' || text[k] == '\n' || text[k] == '\r';
		if (!quoted) {
			(void)sl__buf_append(buf, text, f->len);
			continue;
		}
		put_char(buf, '"');
		while (text < end) {
			const char *quote = memchr(text, '"', (size_t)(end - text));
			size_t k = (size_t)((quote != NULL ? quote + 1 : end) - text);
			(void)sl__buf_append(buf, text, k);
			if (quote != NULL)
				put_char(buf, '"');
			text += k;
		}
		put_char(buf, '"');
	}
}
