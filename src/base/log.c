/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log records as one line of logfmt or JSON in a buffer that may be too small.
 *
 * Cutting: a piece (a character with its escape, a number, a key with what opens its value) is written whole or not at
 * all, and always so that what must still be closed has room; after the first piece that does not fit, nothing but the
 * closing follows. A line is therefore well-formed at every size.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/time.h"
#include "base/utf8.h"
#include <sluice/log.h>

struct line {
	char *out;
	size_t room; /* bytes without the NUL */
	size_t len;
	size_t owed; /* bytes that close what is open: they always fit */
	bool json;
	bool cut;
};

static void put_raw(struct line *l, const char *text, size_t n)
{
	if (l->cut || l->len + n + l->owed > l->room) {
		l->cut = true;
		return;
	}
	memcpy(l->out + l->len, text, n);
	l->len += n;
}

static void put_str(struct line *l, const char *text)
{
	put_raw(l, text, strlen(text));
}

/* Write what was owed. */
static void close_with(struct line *l, char c)
{
	l->out[l->len++] = c;
	l->owed--;
}

/* C0, DEL and C1: what a terminal may obey. */
static bool is_control(const char *str)
{
	const unsigned char *s = (const unsigned char *)str;
	return s[0] < 0x20 || s[0] == 0x7F || (s[0] == 0xC2 && s[1] >= 0x80 && s[1] < 0xA0);
}

/* Both formats quote alike, but for bytes that are not UTF-8: logfmt shows them, JSON has no form for them. */
static void put_quoted_char(struct line *l, const char *s, size_t n)
{
	char text[8];
	if (n == 0) {
		(void)snprintf(text, sizeof(text), "\\x%02x", (unsigned char)s[0]);
		put_str(l, l->json ? "\xEF\xBF\xBD" : text); /* U+FFFD */
	} else if (s[0] == '"' || s[0] == '\\') {
		put_raw(l, (const char[]){'\\', s[0]}, 2);
	} else if (s[0] == '\n') {
		put_str(l, "\\n");
	} else if (s[0] == '\r') {
		put_str(l, "\\r");
	} else if (s[0] == '\t') {
		put_str(l, "\\t");
	} else if (is_control(s)) {
		(void)snprintf(text, sizeof(text), "\\u%04x", (unsigned char)s[n - 1]);
		put_str(l, text);
	} else {
		put_raw(l, s, n);
	}
}

static void put_quoted(struct line *l, const char *s)
{
	l->owed++;
	put_raw(l, "\"", 1);
	if (l->cut) {
		l->owed--;
		return;
	}
	while (*s != '\0' && !l->cut) {
		size_t n = sl__utf8_length(s);
		put_quoted_char(l, s, n);
		s += n > 0 ? n : 1;
	}
	close_with(l, '"');
}

static bool needs_quotes(const char *s)
{
	if (*s == '\0')
		return true;
	for (size_t n; *s != '\0'; s += n) {
		n = sl__utf8_length(s);
		if (n == 0 || is_control(s) || *s == ' ' || *s == '"' || *s == '=' || *s == '\\')
			return true;
	}
	return false;
}

static void put_key(struct line *l, const char *key, bool first)
{
	if (l->json) {
		put_raw(l, ",", first ? 0 : 1);
		put_quoted(l, key);
		put_raw(l, ":", 1);
		return;
	}
	put_raw(l, " ", first ? 0 : 1);
	/* A logfmt key has no quotes: what would need them becomes '_'. */
	if (*key == '\0')
		put_raw(l, "_", 1);
	for (const char *s = key; *s != '\0' && !l->cut;) {
		size_t n = sl__utf8_length(s);
		bool odd = n == 0 || is_control(s) || *s == ' ' || *s == '"' || *s == '=' || *s == '\\';
		put_raw(l, odd ? "_" : s, odd ? 1 : n);
		s += n > 0 ? n : 1;
	}
	put_raw(l, "=", 1);
}

static void put_field_value(struct line *l, const struct sl_log_field *f)
{
	char text[24] = "";
	if (f->kind == SL_LOG_I64)
		(void)snprintf(text, sizeof(text), "%" PRId64, (int64_t)f->num);
	else if (f->kind == SL_LOG_U64)
		(void)snprintf(text, sizeof(text), "%" PRIu64, f->num);
	else if (f->kind == SL_LOG_HEX64)
		(void)snprintf(text, sizeof(text), l->json ? "\"0x%016" PRIx64 "\"" : "0x%016" PRIx64, f->num);
	else if (f->str == NULL)
		(void)snprintf(text, sizeof(text), "null");
	if (text[0] != '\0')
		put_str(l, text);
	else if (l->json || needs_quotes(f->str))
		put_quoted(l, f->str);
	else
		for (const char *s = f->str; *s != '\0' && !l->cut; s += sl__utf8_length(s))
			put_raw(l, s, sl__utf8_length(s));
}

/* A field whose value has not begun is taken back. */
static void put_field(struct line *l, const struct sl_log_field *f, bool first)
{
	size_t start = l->len;
	if (l->cut)
		return;
	put_key(l, f->key != NULL ? f->key : "", first);
	size_t value = l->len;
	put_field_value(l, f);
	if (l->cut && l->len == value)
		l->len = start;
}

const char *sl_log_level_name(enum sl_log_level level)
{
	switch (level) {
	case SL_LOG_DEBUG:
		return "debug";
	case SL_LOG_INFO:
		return "info";
	case SL_LOG_WARN:
		return "warn";
	case SL_LOG_ERROR:
		return "error";
	}
	return "unknown";
}

static void put_log_record(struct line *l, const struct sl_log_record *r)
{
	char time[SL__TIME_BYTES];
	/* A time that a year of four digits cannot express is cut to what it can. */
	(void)sl__time_text(time, SL_MIN(SL_MAX(r->time_ms, SL__TIME_MIN_MS), SL__TIME_MAX_MS));
	const struct sl_log_field head[] = {
		{.key = "ts", .kind = SL_LOG_STR, .str = time},
		{.key = "level", .kind = SL_LOG_STR, .str = sl_log_level_name(r->level)},
		{.key = "component", .kind = SL_LOG_STR, .str = r->component},
		{.key = "msg", .kind = SL_LOG_STR, .str = r->message},
	};
	for (size_t i = 0; i < SL_COUNT(head); i++)
		put_field(l, &head[i], i == 0);
	for (size_t i = 0; i < r->n_fields; i++)
		put_field(l, &r->fields[i], false);
}

size_t sl_log_format(const struct sl_log_record *record, enum sl_log_format format, char *out, size_t size)
{
	struct line l = {.out = out, .room = size > 0 ? size - 1 : 0, .json = format == SL_LOG_JSON};
	if (size == 0)
		return 0;
	if (!l.json) {
		put_log_record(&l, record);
	} else if (l.room >= 2) {
		l.owed = 1;
		put_raw(&l, "{", 1);
		put_log_record(&l, record);
		close_with(&l, '}');
	}
	out[l.len] = '\0';
	return l.len;
}
