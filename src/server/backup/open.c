/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the configured repository of backups, with the passphrase of a file. */
#include "server/backup/backup.h"
#include "server/config/config.h"
#include "server/passphrase.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int bad(struct sl_err *err, const char *path, const char *why)
{
	return sl_err_set(err, SL_EKEY, "passphrase file %.150s: %s", path, why);
}

/* The passphrase of an open file into out; *len is its length. */
static int read_passphrase_fd(int fd, const char *path, char out[SRV_PASSPHRASE_BYTES], size_t *len, struct sl_err *err)
{
	struct stat st;
	if (fstat(fd, &st) != 0)
		return bad(err, path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return bad(err, path, "not a regular file");
	if ((st.st_mode & 077) != 0)
		return bad(err, path, "readable by other users; run chmod 600 on it");
	/* A file that fills the buffer is too long. */
	for (*len = 0; *len < SRV_PASSPHRASE_BYTES;) {
		ssize_t n = read(fd, out + *len, SRV_PASSPHRASE_BYTES - *len);
		if (n < 0 && errno != EINTR)
			return bad(err, path, strerror(errno));
		if (n == 0)
			break;
		*len += n > 0 ? (size_t)n : 0;
	}
	if (*len == SRV_PASSPHRASE_BYTES)
		return bad(err, path, "too long for a passphrase");
	if (*len > 0 && out[*len - 1] == '\n')
		--*len;
	if (*len > 0 && out[*len - 1] == '\r')
		--*len;
	return *len == 0 ? bad(err, path, "empty") : 0;
}

int srv_passphrase_read(const char *path, char out[SRV_PASSPHRASE_BYTES], size_t *len, struct sl_err *err)
{
	/* Without O_NONBLOCK a pipe of that name would hold us up. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	size_t n = 0;
	if (fd < 0)
		return bad(err, path, errno == ELOOP ? "is a symbolic link" : strerror(errno));
	int rc = read_passphrase_fd(fd, path, out, &n, err);
	(void)close(fd);
	if (rc != 0)
		explicit_bzero(out, SRV_PASSPHRASE_BYTES);
	else
		*len = n;
	return rc;
}

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
	/* A configured passphrase means an encrypted repository: the library then refuses a plain one, whose
	 * config may have been tampered with. */
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
