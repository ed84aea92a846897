/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names that are left out of a snapshot, by patterns like those of a shell. *, ? and […] match bytes of one component,
 * ** matches any bytes, slashes too. ** between two slashes, or at the beginning before one, also matches nothing,
 * together with one of the slashes. A backslash quotes the next byte. Bytes are compared, whatever they mean.
 *
 * Thread safety: read-only after init. Ownership: patterns are borrowed and must outlive it.
 */
#ifndef SL_BACKUP_EXCLUDE_H
#define SL_BACKUP_EXCLUDE_H

#include "base/env.h"

struct bk_excludes {
	const char *const *patterns;
	size_t n;
	bool any_whole; /* one of them has a slash: paths are needed, not only names */
};

/* SL_EINVAL names an empty pattern. */
SL_MUST_CHECK int sl__bk_excludes_init(struct bk_excludes *x, const char *const *patterns, size_t n,
				       struct sl_err *err);
/* name: the last component; given: the path as the caller gave its beginning; absolute: with a leading slash. The last
 * two may be NULL when any_whole is false. */
bool sl__bk_excluded(const struct bk_excludes *x, const char *name, const char *given, const char *absolute);
/* One pattern of n bytes, against all of text. */
bool sl__bk_glob(const char *pattern, size_t n, const char *text);

/* The length of a path or pattern without slashes at its end: "cache/" means "cache". */
static inline size_t sl__bk_trimmed_length(const char *path)
{
	size_t n = strlen(path);
	while (n > 1 && path[n - 1] == '/')
		n--;
	return n;
}

#endif
