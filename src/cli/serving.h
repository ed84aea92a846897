/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `sluice up` and `sluice server` share: the configuration from file, environment and flags, the signals, and the
 * loop from the first request to the last.
 *
 * Thread safety: none; the main thread calls. Ownership: srv_config_fini frees the settings.
 */
#ifndef SLUICE_CLI_SERVING_H
#define SLUICE_CLI_SERVING_H

#include "configfile.h"

#include "server/server.h"

struct serving {
	struct cli *cli;
	const struct parsed *args;
	struct srv_config config;
	struct srv_systemd systemd;
	struct sl_env env; /* the command's, with a level that a reload may change */
	_Atomic int log_level;
	srv_server *server;
	/* What runs beside the server, or NULL: start is called when requests are answered; stop, with the time that is
	 * left, when changes are refused; sent, when the coordinator is empty. Each returns an exit code. */
	const struct serving_beside *beside;
	void *beside_ctx;
};

struct serving_beside {
	int (*start)(struct serving *s, void *ctx);
	int (*stop)(struct serving *s, int64_t deadline_ms, void *ctx);
	int (*finish)(struct serving *s, int64_t deadline_ms, void *ctx);
};

/* The settings of the file, the environment and the flags. 0, or an exit code after lines on stderr. */
int serving_configure(struct cli *cli, const struct parsed *args, struct srv_config *config);
/* Start, say where, serve until a signal, stop. The exit code. */
int serving_run(struct serving *s);

#endif
