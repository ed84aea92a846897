/* SPDX-License-Identifier: Apache-2.0 */
/* A command line as words: blanks separate, quotes and backslashes keep together; nothing is expanded. */
#ifndef SLUICE_CLI_WORDS_H
#define SLUICE_CLI_WORDS_H

/* A NULL-terminated array of words; free with words_free. NULL with *error set when a quote is not closed, nothing is
 * there, or memory ran out. Inside '…' everything is itself; inside "…" a backslash makes \ and " themselves; outside
 * it makes any character itself. */
char **words_split(const char *text, const char **error);
void words_free(char **words);

#endif
