/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of unknown origin as text for terminals and JSON; times, sizes and counts. */
#include "text.h"
#include "base/base.h"
#include "base/time.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ESCAPE_BYTES = 8 }; /* "\x1b" and the NUL, with room to spare */

/* Decodes one multi-byte character of the n bytes at s; its length, or 0 when it is not UTF-8. */
static size_t decode(const unsigned char *s, size_t n, uint32_t *c)
{
	char at[5] = "";
	size_t len;

	/* The bytes need not end with a NUL, which the check relies on. */
	memcpy(at, s, SL_MIN(n, 4));
	len = sl__utf8_length(at);
	if (len < 2)
		return 0;
	*c = s[0] & (0x7Fu >> len);
	for (size_t i = 1; i < len; i++)
		*c = *c << 6 | (s[i] & 0x3Fu);
	return len;
}

size_t text_char(const unsigned char *s, size_t n)
{
	uint32_t c = 0;
	size_t len;

	if (n == 0)
		return 0;
	if (s[0] < 0x80)
		return s[0] >= 0x20 && s[0] != 0x7F;
	len = decode(s, n, &c);
	/* C1 controls, and the marks that reorder or hide text: they can make one line look like another. */
	if (c < 0xA0 || (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069) || c == 0xFEFF)
		return 0;
	return len;
}

/* "\n", "\x1b"; returns its length. */
static size_t escape(char to[ESCAPE_BYTES], unsigned char c)
{
	static const char names[] = "\nn\tt\rr\"\"\\\\";

	/* Pairs of a byte and its letter in C; all others as hexadecimal digits. */
	for (const char *p = names; *p; p += 2) {
		if ((unsigned char)p[0] == c)
			return (size_t)snprintf(to, ESCAPE_BYTES, "\\%c", p[1]);
	}
	return (size_t)snprintf(to, ESCAPE_BYTES, "\\x%02x", c);
}

/* What is printed for one character, or for one byte that begins none. */
struct piece {
	const char *text; /* into the input, or escaped */
	size_t n;         /* of text */
	size_t len;       /* bytes of the input that it stands for */
	char escaped[ESCAPE_BYTES];
};

/* The character at s, or the escape of its first byte. also: characters that are escaped though they are printable. */
static void next_piece(struct piece *p, const unsigned char *s, size_t n, const char *also)
{
	p->text = (const char *)s;
	p->n = p->len = strchr(also, s[0]) != NULL ? 0 : text_char(s, n);
	if (p->len)
		return;
	p->text = p->escaped;
	p->n = escape(p->escaped, s[0]);
	p->len = 1;
}

void text_quoted(struct out *out, const void *data, size_t n, size_t limit)
{
	const unsigned char *s = data;
	size_t end = limit && n > limit ? limit : n;
	size_t i = 0;

	out_str(out, "\"");
	while (i < end) {
		struct piece p;

		next_piece(&p, s + i, n - i, "\"\\");
		out_write(out, p.text, p.n);
		i += p.len;
	}
	out_str(out, end < n ? "\"…" : "\"");
}

void text_line(char *to, size_t size, const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	size_t n = strlen(text);
	size_t used = 0;
	struct piece p;

	for (size_t i = 0; i < n; i += p.len) {
		next_piece(&p, s + i, n - i, "");
		if (used + p.n >= size)
			break;
		memcpy(to + used, p.text, p.n);
		used += p.n;
	}
	to[used] = '\0';
}

void text_name(struct out *out, const char *name)
{
	const unsigned char *s = (const unsigned char *)name;
	struct piece p;

	for (size_t i = 0, n = strlen(name); i < n; i += p.len) {
		next_piece(&p, s + i, n - i, "\\");
		out_write(out, p.text, p.n);
	}
}

void text_output(struct out *out, const void *data, size_t n)
{
	const unsigned char *s = data;
	size_t from = 0;
	struct piece p;

	for (size_t i = 0; i < n; i += p.len) {
		p.len = 1;
		if (s[i] == '\t')
			continue;
		next_piece(&p, s + i, n - i, "");
		if (p.text != p.escaped)
			continue;
		/* The bytes before it, as they are, and the escape. */
		out_write(out, s + from, i - from);
		out_write(out, p.text, p.n);
		from = i + p.len;
	}
	out_write(out, s + from, n - from);
}

json_t *text_json(const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	size_t n = strlen(text);
	size_t used = 0;
	char *clean;
	json_t *value = json_stringn(text, n);

	/* Nearly every text is valid; only others are copied, with room for three bytes in place of each one. */
	if (value != NULL || (clean = malloc(3 * n + 1)) == NULL)
		return value;
	for (size_t i = 0; i < n;) {
		uint32_t c = 0;
		size_t len = s[i] < 0x80 ? 1 : decode(s + i, n - i, &c);

		memcpy(clean + used, len ? text + i : "\xEF\xBF\xBD", len ? len : 3);
		used += len ? len : 3;
		i += len ? len : 1;
	}
	value = json_stringn(clean, used);
	free(clean);
	return value;
}

json_t *text_number(uint64_t v)
{
	return json_integer((json_int_t)v);
}

const char *text_time(char to[TEXT_TIME_BYTES], int64_t unix_ms)
{
	char text[SL__TIME_BYTES];

	/* Four digits of year fit the field; a damaged or foreign clock may report anything. */
	if (unix_ms < SL__TIME_MIN_MS || unix_ms > SL__TIME_MAX_MS)
		snprintf(to, TEXT_TIME_BYTES, "%lld", (long long)unix_ms);
	else
		memcpy(to, text, sl__time_text(text, unix_ms) + 1);
	return to;
}

const char *text_moment(char to[TEXT_TIME_BYTES], const struct out *out, int64_t unix_ms)
{
	time_t seconds = (time_t)(unix_ms / 1000);
	struct tm tm;

	if (unix_ms == 0)
		snprintf(to, TEXT_TIME_BYTES, "-");
	else if (unix_ms < SL__TIME_MIN_MS || unix_ms > SL__TIME_MAX_MS ||
		 (out->utc ? gmtime_r(&seconds, &tm) : localtime_r(&seconds, &tm)) == NULL ||
		 strftime(to, TEXT_TIME_BYTES, out->utc ? "%Y-%m-%d %H:%M:%SZ" : "%Y-%m-%d %H:%M:%S", &tm) == 0)
		snprintf(to, TEXT_TIME_BYTES, "%lld", (long long)unix_ms);
	return to;
}

const char *text_age(char to[TEXT_TIME_BYTES], int64_t ms)
{
	static const struct {
		int64_t ms;
		const char *unit;
	} steps[] = {{86400000, "days"}, {3600000, "h"}, {60000, "min"}, {1000, "s"}};

	/* The largest unit of which there is at least one. */
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		if (ms >= steps[i].ms) {
			snprintf(to, TEXT_TIME_BYTES, "%.1f %s", (double)ms / (double)steps[i].ms, steps[i].unit);
			return to;
		}
	}
	snprintf(to, TEXT_TIME_BYTES, "%lld ms", (long long)ms);
	return to;
}

const char *text_bytes(char to[TEXT_TIME_BYTES], uint64_t bytes)
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
	double v = (double)bytes / 1024;
	size_t i = 0;

	if (bytes < 1024) {
		snprintf(to, TEXT_TIME_BYTES, "%u B", (unsigned)bytes);
		return to;
	}
	while (v >= 1024 && i + 1 < sizeof(units) / sizeof(units[0])) {
		v /= 1024;
		i++;
	}
	snprintf(to, TEXT_TIME_BYTES, "%.1f %s", v, units[i]);
	return to;
}

const char *text_count(char to[TEXT_COUNT_BYTES], uint64_t n, const char *noun)
{
	snprintf(to, TEXT_COUNT_BYTES, "%" PRIu64 " %s%s", n, noun, n == 1 ? "" : "s");
	return to;
}

const char *text_incarnation(char to[TEXT_INCARNATION_BYTES], uint32_t incarnation)
{
	snprintf(to, TEXT_INCARNATION_BYTES, "%06" PRIx32, incarnation);
	return to;
}

const char *text_hex(char *to, const void *bytes, size_t n)
{
	static const char digits[] = "0123456789abcdef";
	const unsigned char *b = bytes;

	for (size_t i = 0; i < n; i++) {
		to[2 * i] = digits[b[i] >> 4];
		to[2 * i + 1] = digits[b[i] & 15];
	}
	to[2 * n] = '\0';
	return to;
}
