/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parsing of request text: see net_text.h. Every function takes a length and reads no further, since the bytes come
 * from clients and need not end with a NUL.
 */
#include "server/http/net_text.h"

#include "base/utf8.h"

#include <strings.h>

static int percent_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool srv_utf8_ok(const char *s, size_t n)
{
	return strnlen(s, n) == n && sl__utf8_valid_n(s, n);
}

void srv_utf8_copy(char *dst, size_t size, const char *src)
{
	size_t at = 0;
	for (size_t len; *src != '\0'; src += len) {
		size_t good = sl__utf8_length(src);
		len = good > 0 ? good : 1;
		if (len >= size - at)
			break;
		memcpy(dst + at, good > 0 ? src : "?", len);
		at += len;
	}
	dst[at] = '\0';
}

ptrdiff_t srv_percent_decode(char *dst, const char *src, size_t n, bool plus)
{
	size_t out = 0;
	for (size_t i = 0; i < n; i++) {
		char c = src[i];
		if (c == '%') {
			int high = n - i > 2 ? percent_digit(src[i + 1]) : -1,
			    low = n - i > 2 ? percent_digit(src[i + 2]) : -1;
			if (high < 0 || low < 0)
				return -1;
			c = (char)(high << 4 | low);
			i += 2;
		} else if (c == '+' && plus) {
			c = ' ';
		}
		dst[out++] = c;
	}
	dst[out] = '\0';
	return srv_utf8_ok(dst, out) ? (ptrdiff_t)out : -1;
}

int srv_query_next(const char **query, const char *end, char **scratch, const char **name, const char **value)
{
	const char *p = *query;
	while (p < end && *p == '&')
		p++;
	if (p == end)
		return 0;
	const char *stop = memchr(p, '&', (size_t)(end - p));
	if (stop == NULL)
		stop = end;
	const char *eq = memchr(p, '=', (size_t)(stop - p));
	const char *name_end = eq != NULL ? eq : stop, *from = eq != NULL ? eq + 1 : stop;
	ptrdiff_t n = srv_percent_decode(*scratch, p, (size_t)(name_end - p), true);
	if (n < 0)
		return -1;
	*name = *scratch;
	*scratch += n + 1;
	n = srv_percent_decode(*scratch, from, (size_t)(stop - from), true);
	if (n < 0)
		return -1;
	*value = *scratch;
	*scratch += n + 1;
	*query = stop;
	return 1;
}

const char *srv_cookie_find(const char *field, const char *name, size_t *len)
{
	size_t n = strlen(name);
	for (const char *p = field; p != NULL && *p != '\0';) {
		p += strspn(p, " \t;");
		size_t pair = strcspn(p, ";");
		if (pair > n && p[n] == '=' && memcmp(p, name, n) == 0) {
			const char *value = p + n + 1;
			size_t size = pair - n - 1;
			while (size > 0 && (value[size - 1] == ' ' || value[size - 1] == '\t'))
				size--;
			*len = size;
			return value;
		}
		p += pair;
	}
	return NULL;
}

static bool name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
	       c == '_';
}

/* Four numbers of at most 255 without leading zeros: nothing that a resolver would be asked about. */
static bool is_ipv4(const char *s, size_t n)
{
	int parts = 0;
	for (size_t i = 0; i < n; parts++) {
		int v = 0;
		size_t from = i;
		while (i < n && s[i] >= '0' && s[i] <= '9' && i - from < 3)
			v = v * 10 + (s[i++] - '0');
		if (i == from || v > 255 || (s[from] == '0' && i - from > 1))
			return false;
		if (i < n && (s[i] != '.' || ++i == n))
			return false;
	}
	return parts == 4;
}

bool srv_host_parse(const char *s, size_t n, struct srv_host *out)
{
	size_t used = 0;
	*out = (struct srv_host){.name = s, .port = -1};
	if (n > 0 && s[0] == '[') {
		/* An IPv6 address in brackets. */
		const char *close = memchr(s, ']', n);
		if (close == NULL || close - s < 3)
			return false;
		for (const char *p = s + 1; p < close; p++) {
			if (percent_digit(*p) < 0 && *p != ':' && *p != '.')
				return false;
			out->is_address |= *p == ':';
		}
		if (!out->is_address)
			return false;
		out->name = s + 1;
		out->len = (size_t)(close - s - 1);
		used = out->len + 2;
	} else {
		while (used < n && name_char(s[used]))
			used++;
		out->len = used;
		out->is_address = is_ipv4(s, used);
	}
	if (out->len == 0 || out->len > 255)
		return false;
	if (used == n)
		return true;
	/* The port: one to five digits. */
	if (s[used] != ':' || n - used - 1 < 1 || n - used - 1 > 5)
		return false;
	int32_t port = 0;
	for (size_t i = used + 1; i < n; i++) {
		if (s[i] < '0' || s[i] > '9')
			return false;
		port = port * 10 + (s[i] - '0');
	}
	out->port = port;
	return port > 0 && port <= 65535;
}

bool srv_accepts_coding(const char *field, const char *coding)
{
	bool any = false;
	if (field == NULL)
		return true;
	for (const char *p = field; *p != '\0';) {
		p += strspn(p, " \t,");
		size_t item = strcspn(p, ","), word = strcspn(p, " \t,;");
		/* "q=0", "q=0.0" and the like refuse the coding. */
		const char *q = p + word, *end = p + item;
		while (end - q > 1 && ((q[0] != 'q' && q[0] != 'Q') || q[1] != '='))
			q++;
		bool yes = end - q <= 1;
		if (!yes)
			for (q += 2; q < end && *q != ' ' && *q != '\t' && *q != ';'; q++)
				yes |= *q >= '1' && *q <= '9';
		if (word == strlen(coding) && strncasecmp(p, coding, word) == 0)
			return yes;
		if (word == 1 && *p == '*')
			any = yes;
		p += item;
	}
	return any;
}

bool srv_etag_matches(const char *field, const char *etag)
{
	size_t n = strlen(etag);
	for (const char *p = field; p != NULL && *p != '\0';) {
		p += strspn(p, " \t,");
		if (p[0] == 'W' && p[1] == '/')
			p += 2;
		if (*p == '*' || (strncmp(p, etag, n) == 0 && strchr(" \t,", p[n]) != NULL))
			return true;
		const char *close = *p == '"' ? strchr(p + 1, '"') : NULL;
		p = close != NULL ? close + 1 : p + strcspn(p, ",");
	}
	return false;
}

bool srv_request_id_ok(const char *s)
{
	size_t n = 0;
	for (; s[n] != '\0' && n <= 64; n++)
		if (!name_char(s[n]))
			return false;
	return n > 0 && n <= 64;
}
