/* SPDX-License-Identifier: Apache-2.0 */
/* What a person may have meant by a word that is no command. */
#ifndef SLUICE_CLI_SUGGEST_H
#define SLUICE_CLI_SUGGEST_H

enum { SUGGEST_BYTES = 128 };

/* "; did you mean 'worker'?", or "" when nothing is near. group: word stood behind this one, else NULL. A word that is
 * the second of a command ("logs") is answered with that command ("jobs logs"). */
const char *suggest_command(const char *group, const char *word, char to[SUGGEST_BYTES]);
/* The same with topics of help. */
const char *suggest_help(const char *word, char to[SUGGEST_BYTES]);

#endif
