/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matching patterns (exclude.h). Two places to go back to are enough: the last * and the last **. What an earlier star
 * could match, a later one can match as well, except that * stops at a slash and ** does not. So matching is never
 * exponential.
 */
#include "backup/create/exclude.h"

/* The position after the closing bracket of a class, or NULL without one: then [ stands for itself. */
static const char *class_end(const char *p, const char *end)
{
	p++;
	if (p < end && (*p == '!' || *p == '^'))
		p++;
	if (p < end && *p == ']')
		p++;
	while (p < end && *p != ']')
		p++;
	return p < end ? p + 1 : NULL;
}

static bool in_class(const char *p, const char *end, unsigned char c)
{
	bool negated = false, found = false;
	p++;
	end--; /* the closing bracket */
	if (*p == '!' || *p == '^') {
		negated = true;
		p++;
	}
	while (p < end) {
		unsigned char low = (unsigned char)*p, high = low;
		if (end - p > 2 && p[1] == '-') {
			high = (unsigned char)p[2];
			p += 2;
		}
		found |= low <= c && c <= high;
		p++;
	}
	return found != negated;
}

/* Match one element of the pattern against one byte; *p moves past it. */
static bool match_one(const char **p, const char *end, char c)
{
	const char *at = *p, *after;
	if (*at == '?') {
		*p = at + 1;
		return c != '/';
	}
	if (*at == '[' && (after = class_end(at, end)) != NULL) {
		*p = after;
		return c != '/' && in_class(at, after, (unsigned char)c);
	}
	if (*at == '\\' && end - at > 1)
		at++;
	*p = at + 1;
	return *at == c;
}

bool sl__bk_glob(const char *pattern, size_t n, const char *text)
{
	const char *p = pattern, *end = pattern + n;
	const char *star = NULL, *star_text = NULL, *globstar = NULL, *globstar_text = NULL;
	for (;;) {
		size_t k = 0;
		while (p + k < end && p[k] == '*')
			k++;
		if (k >= 2) {
			p += k;
			/* Between slashes it also stands for nothing at all. */
			if (p < end && *p == '/' && (p - k == pattern || p[-(ptrdiff_t)k - 1] == '/') &&
			    sl__bk_glob(p + 1, (size_t)(end - p) - 1, text))
				return true;
			globstar = p;
			globstar_text = text;
			star = NULL;
			continue;
		}
		if (k == 1) {
			star = ++p;
			star_text = text;
			continue;
		}
		if (p == end && *text == '\0')
			return true;
		if (p < end && *text != '\0' && match_one(&p, end, *text)) {
			text++;
			continue;
		}
		if (star != NULL && *star_text != '\0' && *star_text != '/') {
			p = star;
			text = ++star_text;
		} else if (globstar != NULL && *globstar_text != '\0') {
			p = globstar;
			text = ++globstar_text;
			star = NULL;
		} else {
			return false;
		}
	}
}

int sl__bk_excludes_init(struct bk_excludes *x, const char *const *patterns, size_t n, struct sl_err *err)
{
	*x = (struct bk_excludes){patterns, n, false};
	for (size_t i = 0; i < n; i++) {
		if (patterns[i] == NULL || patterns[i][0] == '\0')
			return sl_err_set(err, SL_EINVAL, "excludes: pattern %zu is empty", i + 1);
		x->any_whole |= memchr(patterns[i], '/', sl__bk_trimmed_length(patterns[i])) != NULL;
	}
	return 0;
}

static const char *without_dot(const char *path)
{
	while (path[0] == '.' && path[1] == '/')
		for (path++; *path == '/';)
			path++;
	return path;
}

bool sl__bk_excluded(const struct bk_excludes *x, const char *name, const char *given, const char *absolute)
{
	for (size_t i = 0; i < x->n; i++) {
		size_t n = sl__bk_trimmed_length(x->patterns[i]);
		if (memchr(x->patterns[i], '/', n) == NULL) {
			if (sl__bk_glob(x->patterns[i], n, name))
				return true;
			continue;
		}
		const char *pattern = without_dot(x->patterns[i]);
		n -= (size_t)(pattern - x->patterns[i]);
		if (sl__bk_glob(pattern, n, without_dot(given)) || sl__bk_glob(pattern, n, absolute))
			return true;
	}
	return false;
}
