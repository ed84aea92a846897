/* SPDX-License-Identifier: Apache-2.0 */
/* The nearest known command for a word that is not one. */
#include "commands.h"

#include "server/config/config.h"

#include <stdio.h>
#include <string.h>

enum { MOST_WORDS = 160, MOST_SUGGESTED = 3 };

/* Words that a command line may begin with. */
static size_t add_firsts(const char **words, size_t n)
{
	for (int i = 0; commands[i] != NULL && n < MOST_WORDS; i++) {
		if (strchr(commands[i]->name, ' ') == NULL)
			words[n++] = commands[i]->name;
	}
	for (int i = 0; groups[i].name != NULL && n < MOST_WORDS; i++)
		words[n++] = groups[i].name;
	return n;
}

/* Commands whose second word this is: "'jobs list' or 'cron list'". The number of them. */
static int say_seconds(const char *word, char to[SUGGEST_BYTES])
{
	size_t used = 0;
	int found = 0;

	/* At most three: a longer list helps no more than the help does. */
	for (int i = 0; commands[i] != NULL && found < MOST_SUGGESTED && used < SUGGEST_BYTES; i++) {
		const char *space = strchr(commands[i]->name, ' ');

		if (space == NULL || strcmp(space + 1, word) != 0)
			continue;
		used += (size_t)snprintf(to + used, SUGGEST_BYTES - used, "%s'%s'", found ? " or " : "; did you mean ",
					 commands[i]->name);
		found++;
	}
	if (found && used < SUGGEST_BYTES)
		(void)snprintf(to + used, SUGGEST_BYTES - used, "?");
	return found;
}

static const char *say_nearest(const char *group, const char *word, const char **words, size_t n,
			       char to[SUGGEST_BYTES])
{
	const char *nearest = srv_nearest(word, words, n);

	to[0] = '\0';
	if (nearest != NULL)
		(void)snprintf(to, SUGGEST_BYTES, "; did you mean '%s%s%s'?", group != NULL ? group : "",
			       group != NULL ? " " : "", nearest);
	return to;
}

const char *suggest_command(const char *group, const char *word, char to[SUGGEST_BYTES])
{
	const char *words[MOST_WORDS] = {NULL};
	size_t len = group != NULL ? strlen(group) : 0, n = group != NULL ? 0 : add_firsts(words, 0);

	/* A second word without its group, or an option of every command without its dashes, is more likely than a
	 * slip of a letter. */
	if (group == NULL && say_seconds(word, to))
		return to;
	for (const struct opt *o = opts_global; group == NULL && o->name != NULL; o++) {
		if (strcmp(o->name, word) == 0) {
			(void)snprintf(to, SUGGEST_BYTES, "; did you mean '--%s'?", o->name);
			return to;
		}
	}
	/* The second words of the group. */
	for (int i = 0; group != NULL && commands[i] != NULL && n < MOST_WORDS; i++) {
		if (strncmp(commands[i]->name, group, len) == 0 && commands[i]->name[len] == ' ')
			words[n++] = commands[i]->name + len + 1;
	}
	return say_nearest(group, word, words, n, to);
}

const char *suggest_help(const char *word, char to[SUGGEST_BYTES])
{
	const char *words[MOST_WORDS] = {NULL};
	size_t n = add_firsts(words, 0);

	if (say_seconds(word, to))
		return to;
	for (const struct topic *t = topics; t->name != NULL && n < MOST_WORDS; t++)
		words[n++] = t->name;
	return say_nearest(NULL, word, words, n, to);
}
