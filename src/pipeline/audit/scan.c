/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Canonical text has one form, so it is not parsed but followed: literal, value, literal, … Whoever scans puts what was
 * read together again and compares, so that what this lets through (an escape that need not be one, a zero before a
 * number) is found as well.
 */
#include "format/json.h"
#include "pipeline/audit/event.h"

static void fail(struct sl__audit_scan *s, const char *why)
{
	if (s->why == NULL)
		s->why = why;
}

void sl__audit_scan_literal(struct sl__audit_scan *s, const char *literal)
{
	size_t n = strlen(literal);
	if (s->why != NULL)
		return;
	if ((size_t)(s->end - s->at) < n || memcmp(s->at, literal, n) != 0)
		fail(s, literal);
	else
		s->at += n;
}

const char *sl__audit_scan_string(struct sl__audit_scan *s, const char *why)
{
	struct sl__json json = sl__json_of(s->at, (size_t)(s->end - s->at));
	struct sl__json_value v;
	bool has_nul = false;
	if (s->why != NULL)
		return "";
	if (!sl__json_string(&json, &v) || v.len >= (size_t)(s->storage_end - s->storage)) {
		fail(s, why);
		return "";
	}
	char *text = s->storage;
	size_t n = sl__json_unescape(text, v.text, v.len, &has_nul);
	if (has_nul)
		fail(s, why);
	text[n] = '\0';
	s->storage += n + 1;
	s->at = json.at;
	return text;
}

uint64_t sl__audit_scan_u64(struct sl__audit_scan *s, const char *why)
{
	uint64_t v = 0;
	sl__audit_scan_literal(s, "\"");
	const char *from = s->at;
	for (; s->why == NULL && s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++)
		if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(*s->at - '0'), &v))
			fail(s, why);
	if (s->at == from)
		fail(s, why);
	sl__audit_scan_literal(s, "\"");
	return v;
}

static int nibble(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool sl__audit_unhex(const char *text, size_t len, uint8_t *out, size_t n)
{
	if (len != 2 * n)
		return false;
	for (size_t i = 0; i < n; i++) {
		int high = nibble(text[2 * i]), low = nibble(text[2 * i + 1]);
		if (high < 0 || low < 0)
			return false;
		out[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

void sl__audit_scan_hex(struct sl__audit_scan *s, uint8_t *out, size_t n, const char *why)
{
	sl__audit_scan_literal(s, "\"");
	if (s->why != NULL)
		return;
	if ((size_t)(s->end - s->at) < 2 * n || !sl__audit_unhex(s->at, 2 * n, out, n))
		fail(s, why);
	else
		s->at += 2 * n;
	sl__audit_scan_literal(s, "\"");
}
