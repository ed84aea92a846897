/* SPDX-License-Identifier: Apache-2.0 */
/* What `sluice help TOPIC` teaches: how commands go together, by example. */
#ifndef SLUICE_CLI_TOPICS_H
#define SLUICE_CLI_TOPICS_H

struct topic {
	const char *name, *summary; /* no topic has the name of a command or a group */
	const char *text; /* lines of at most 80 columns; an indented line that begins with sluice can be run */
};

/* In the order in which they are best read; name NULL at the end. */
extern const struct topic topics[];

/* NULL: no such topic. */
const struct topic *topic_find(const char *name);

#endif
