/* SPDX-License-Identifier: Apache-2.0 */
/* A command line split into words. */
#include "words.h"

#include <stdlib.h>
#include <string.h>

/* Copy the word at *from to `to`, without its quotes; moves both on. 0, or -1 when a quote is open at the end. */
static int take_word(const char **from, char **to)
{
	const char *p = *from;
	char *o = *to;
	char quote = '\0';

	for (; *p && (quote || !strchr(" \t\n", *p)); p++) {
		if (quote && *p == quote)
			quote = '\0';
		else if (!quote && (*p == '\'' || *p == '"'))
			quote = *p;
		else if (*p == '\\' && p[1] && (!quote || (quote == '"' && strchr("\\\"", p[1]))))
			*o++ = *++p;
		else
			*o++ = *p;
	}
	*o++ = '\0';
	*from = p;
	*to = o;
	return quote ? -1 : 0;
}

char **words_split(const char *text, const char **error)
{
	size_t len = strlen(text);
	/* A word takes at least one byte of text and a pointer: one block holds the array and, after it, the bytes. */
	char **words = calloc(1, (len / 2 + 2) * sizeof(*words) + len + 2);
	char *to = words ? (char *)(words + len / 2 + 2) : NULL;
	size_t n = 0;

	*error = words ? NULL : "out of memory";
	for (const char *p = text; words && !*error;) {
		p += strspn(p, " \t\n");
		if (!*p)
			break;
		words[n++] = to;
		if (take_word(&p, &to))
			*error = "a quote is not closed";
	}
	if (words && !*error && n == 0)
		*error = "it is empty";
	if (*error) {
		free(words);
		return NULL;
	}
	return words;
}

void words_free(char **words)
{
	free(words);
}
