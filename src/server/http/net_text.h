/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of a request we take apart ourselves: percent escapes, query strings, cookies, Host, lists in header fields.
 * Pure functions over bytes that a stranger sent: they never read past the length they were given, never allocate and
 * never fail in another way than by saying so.
 *
 * Thread safety: no state. Ownership: results point into what was passed in.
 */
#ifndef SLUICE_SERVER_NET_TEXT_H
#define SLUICE_SERVER_NET_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Well-formed UTF-8 in the shortest form, no surrogates, at most U+10FFFF, and no NUL. */
bool srv_utf8_ok(const char *s, size_t n);

/* A copy of src in dst[size], cut at a whole character; what is not UTF-8 in it becomes '?'. */
void srv_utf8_copy(char *dst, size_t size, const char *src);

/* Decode %XX (and + as a blank when plus) of src into dst, which has room for n + 1 bytes and may be src itself.
 * Returns the length, followed by a NUL, or -1: half an escape, a NUL, or not UTF-8. */
ptrdiff_t srv_percent_decode(char *dst, const char *src, size_t n, bool plus);

/* The next "name=value" of a query string: decoded into *scratch (which moves on; it needs twice as many bytes as the
 * query has, plus 2). *query moves on. 1: a pair, 0: the end, -1: malformed. Empty pairs ("&&") are skipped. */
int srv_query_next(const char **query, const char *end, char **scratch, const char **name, const char **value);

/* The value of the cookie called name in a Cookie field; NULL: not found. *len is its length. */
const char *srv_cookie_find(const char *field, const char *name, size_t *len);

/* The host of a Host field or an Origin's authority, without its port: "[::1]:7070" → "::1". false: not an authority.
 */
struct srv_host {
	const char *name;
	size_t len;
	int32_t port;    /* -1: none */
	bool is_address; /* an IPv4 or IPv6 literal */
};
bool srv_host_parse(const char *s, size_t n, struct srv_host *out);

/* Whether a list as of Accept-Encoding takes coding: named (or by "*") with a quality above 0. No field takes all. */
bool srv_accepts_coding(const char *field, const char *coding);

/* Whether If-None-Match names etag (a quoted string), weakly compared, or is "*". */
bool srv_etag_matches(const char *field, const char *etag);

/* A request id that may be taken over: 1 to 64 of [A-Za-z0-9._-]. */
bool srv_request_id_ok(const char *s);

#endif
