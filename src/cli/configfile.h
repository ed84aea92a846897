/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings as commands read them that share those of the server: from a file and from the environment.
 *
 * Thread safety: none; the main thread calls. Ownership: srv_config_fini frees the settings, also after a failure.
 */
#ifndef SLUICE_CLI_CONFIGFILE_H
#define SLUICE_CLI_CONFIGFILE_H

#include "cli.h"

#include "server/config/config.h"

/* Begin a configuration: the settings of the file at path (NULL: none), and with environment those of SLUICE_…. The
 * caller ends it with srv_config_fini in any case. 0, or an exit code after lines on stderr. */
int configfile_read(struct cli *cli, const char *path, bool environment, struct srv_config *config);

/* Print every problem of a file as FILE:LINE:COLUMN: TEXT; ctx is a struct configfile_problems. */
struct configfile_problems {
	struct cli *cli;
	const char *path;
	int n;
};
void configfile_problem(size_t line, size_t column, const char *text, void *ctx);

#endif
