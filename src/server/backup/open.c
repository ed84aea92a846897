/* SPDX-License-Identifier: Apache-2.0 */
#include "server/backup/backup.h"
#include "server/config/config.h"
#include "server/passphrase.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* NULL: none is configured. */
static const char *passphrase_file(const struct srv_core *core)
{
	const char *path = core->config->backup_passphrase_file;
	if (path == NULL)
		path = getenv("SLUICE_PASSPHRASE_FILE");
	return path != NULL && *path != '\0' ? path : NULL;
}

/* SL_EKEY: no file is configured, or it is wrong. */
static int read_passphrase(const char *path, char bytes[SRV_PASSPHRASE_BYTES], size_t *len, struct sl_err *err)
{
	if (path == NULL)
		return sl_err_set(err, SL_EKEY, "the repository is encrypted: set backup.passphrase_file");
	return srv_passphrase_read(path, bytes, len, err);
}

static int open_backup(struct srv_repository *r, const struct srv_core *core, struct sl_err *err)
{
	struct sl_backup_opts opts = {SL_BACKUP_OPTS_INIT, .env = core->env, .threads = 1};
	char passphrase[SRV_PASSPHRASE_BYTES];
	int encrypted = sl_backup_is_encrypted(&r->driver, &opts, err);
	if (encrypted < 0)
		return encrypted;
	/* Whoever configures a passphrase means an encrypted repository: the library refuses a plain one then, whose
	 * config somebody may have changed. */
	const char *path = passphrase_file(core);
	if (encrypted == 0 && path == NULL)
		return sl_backup_open(&r->backup, &r->driver, &opts, err);
	int rc = read_passphrase(path, passphrase, &opts.passphrase_len, err);
	opts.passphrase = passphrase;
	if (rc == 0)
		rc = sl_backup_open(&r->backup, &r->driver, &opts, err);
	explicit_bzero(passphrase, sizeof(passphrase));
	return rc;
}

int srv_repository_open(struct srv_repository *r, const struct srv_core *core, struct sl_err *err)
{
	struct sl_driver_local_opts opts = {SL_DRIVER_LOCAL_OPTS_INIT, .env = core->env};
	*r = (struct srv_repository){.backup = NULL};
	int rc = sl_driver_local_open(&r->driver, core->config->backup_repo, &opts, err);
	rc = rc != 0 ? rc : open_backup(r, core, err);
	if (rc != 0)
		srv_repository_close(r);
	return rc;
}

void srv_repository_close(struct srv_repository *r)
{
	sl_backup_close(r->backup);
	sl_driver_close(&r->driver);
	r->backup = NULL;
}
