/* SPDX-License-Identifier: Apache-2.0 */
#include "loadplace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NOTE_BYTES = 21 }; /* twenty digits and a newline: written in place, always as long */

/* FNV-1a: names a log, nothing more. */
static uint64_t hash(uint64_t h, const char *text)
{
	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
	return (h ^ 0xff) * UINT64_C(0x100000001b3);
}

static uint64_t name_of(const char *target, const char *input)
{
	char *full = strcmp(input, "-") ? realpath(input, NULL) : NULL;
	uint64_t h = hash(hash(UINT64_C(0xcbf29ce484222325), target), full ? full : input);

	free(full);
	return h;
}

static int failed(struct cli *cli, int sys_errno, const char *path)
{
	struct sl_err err = SL_ERR_INIT;

	sl_err_set_errno(&err, sys_errno, "%s", path);
	return cli_fail(cli, &err, path);
}

static int read_place(struct loadplace *p, struct cli *cli)
{
	char text[NOTE_BYTES + 1] = "";
	ssize_t n = pread(p->fd, text, NOTE_BYTES, 0);
	char *end;

	if (n < 0)
		return failed(cli, errno, p->path);
	p->offset = strtoull(text, &end, 10);
	if (n == 0 || (n == NOTE_BYTES && *end == '\n'))
		return 0;
	cli_say(cli, SL_LOG_ERROR, "%s is not the place of a load; remove it to begin anew", p->path);
	return EXIT_BAD_DATA;
}

int loadplace_open(struct loadplace *p, struct cli *cli, const char *dir, const char *target, const char *input)
{
	struct sl_wal_opts opts = {SL_WAL_OPTS_INIT, .env = &cli->env, .wal_dir = dir,
				   .max_pending_bytes = SL_UNLIMITED, /* the queue is the bound */
				   .discard_settled = SL_ON};
	struct sl_err err = SL_ERR_INIT;
	char id[32];

	*p = (struct loadplace){.fd = -1};
	if (!dir)
		return 0;
	snprintf(id, sizeof(id), "load-%016" PRIx64, name_of(target, input));
	if ((size_t)snprintf(p->path, sizeof(p->path), "%s/%s.place", dir, id) >= sizeof(p->path))
		return cli_usage(cli, "--wal: the name of the folder is too long");
	if (sl_wal_open(&p->wal, id, &opts, &err))
		return cli_fail(cli, &err, dir);
	p->fd = open(p->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	return p->fd < 0 ? failed(cli, errno, p->path) : read_place(p, cli);
}

int loadplace_note(struct loadplace *p, struct cli *cli, uint64_t offset)
{
	char text[NOTE_BYTES + 1];

	p->offset = offset;
	if (!p->wal)
		return 0;
	snprintf(text, sizeof(text), "%020" PRIu64 "\n", offset);
	return pwrite(p->fd, text, NOTE_BYTES, 0) == NOTE_BYTES ? 0 : failed(cli, errno ? errno : ENOSPC, p->path);
}

int loadplace_finish(struct loadplace *p, struct cli *cli)
{
	struct sl_err err = SL_ERR_INIT;

	if (!p->wal)
		return 0;
	/* The place first: a log without one is read from the beginning, a place without its log would skip rows. */
	if (unlink(p->path) && errno != ENOENT)
		return failed(cli, errno, p->path);
	return sl_wal_complete(p->wal, 0, &err) ? cli_fail(cli, &err, NULL) : 0;
}

void loadplace_close(struct loadplace *p, struct cli *cli)
{
	struct sl_err err = SL_ERR_INIT;

	if (p->fd >= 0)
		close(p->fd);
	if (p->wal && sl_wal_close(p->wal, &err))
		cli_say(cli, SL_LOG_WARN, "%s", err.msg);
	*p = (struct loadplace){.fd = -1};
}
