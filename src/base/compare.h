/* SPDX-License-Identifier: Apache-2.0 */
/* Comparisons: the orders that qsort and bsearch are given, and what a text begins with or has in it. */
#ifndef SL_BASE_COMPARE_H
#define SL_BASE_COMPARE_H

#include <strings.h>

#include "base/base.h"

/* Of an array of pointers to texts. */
static inline int sl__compare_texts(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Of an array of uint64_t. */
static inline int sl__compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

static inline bool sl__starts_with(const char *text, const char *prefix)
{
	return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Upper and lower case are the same. */
static inline bool sl__has_word(const char *text, const char *word)
{
	size_t n = strlen(word);
	for (; *text != '\0'; text++)
		if (strncasecmp(text, word, n) == 0)
			return true;
	return false;
}

#endif
