/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The passphrase of a repository: from the file of --passphrase-file or SLUICE_PASSPHRASE_FILE, else asked for on the
 * terminal, without an echo. Never from the command line, which every user of the machine can read.
 *
 * Thread safety: none; the main thread calls. Ownership: askpass_wipe ends it, in any case.
 */
#ifndef SLUICE_CLI_ASKPASS_H
#define SLUICE_CLI_ASKPASS_H

#include "opts.h"
#include "server/passphrase.h"

struct askpass {
	char bytes[SRV_PASSPHRASE_BYTES];
	size_t len;
};

struct askpass_question {
	const char *option;      /* that names the file */
	const char *environment; /* the variable that stands in for it; NULL: none */
	const char *prompt;      /* "Passphrase" */
	int twice;               /* a new one: asked for a second time */
};

/* Is there a file to read it from? */
bool askpass_has_file(const struct parsed *args, const struct askpass_question *question);
/* 0, or an exit code after a line on stderr: 78 where there is neither a file nor a terminal. */
int askpass(struct askpass *out, struct cli *cli, const struct parsed *args, const struct askpass_question *question);
void askpass_wipe(struct askpass *p);

#endif
