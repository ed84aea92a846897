/* SPDX-License-Identifier: Apache-2.0 */
#include "loadplace.h"

#include "server/thread.h"
#include "text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BODY "%08" PRIx32 " %015" PRId64 " %020" PRIu64 " %020" PRIu64 " %016" PRIx64
enum { BODY_BYTES = 8 + 1 + 15 + 1 + 20 + 1 + 20 + 1 + 16, LINE_BYTES = BODY_BYTES + 1 + 16 + 1 };
enum { RETENTION_DAYS = 30 }; /* of quarantined files */

/* FNV-1a: tells things apart, nothing more. */
#define HASH_INIT UINT64_C(0xcbf29ce484222325)
static uint64_t hash(uint64_t h, const void *data, size_t n)
{
	const unsigned char *p = data;

	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * UINT64_C(0x100000001b3);
	return h;
}

/* With its NUL, so that "a", "b" is not "ab". */
static uint64_t hash_text(uint64_t h, const char *text)
{
	return hash(h, text, strlen(text) + 1);
}

static uint64_t hash_input(uint64_t h, const char *input)
{
	char full[PATH_MAX]; /* not from memory that may run out: the log would get another name */

	return hash_text(h, strcmp(input, "-") && realpath(input, full) ? full : input);
}

/* Names the log of input i: load-<hash>-<number>. */
static void name_log(char id[64], const struct loadplace_key *key, int i)
{
	uint64_t h = hash_text(HASH_INIT, key->target);

	for (int k = 0; k < key->n_inputs; k++)
		h = hash_input(h, key->inputs[k]);
	snprintf(id, 64, "load-%016" PRIx64 "-%d", h, i + 1);
}

static int failed(struct cli *cli, int sys_errno, const char *path)
{
	struct sl_err err = SL_ERR_INIT;

	sl_err_set_errno(&err, sys_errno, "%s", path);
	return cli_fail(cli, &err, path);
}

/* A line that is none, or is about another log, says nothing: the input is read from its beginning, and no row is
 * lost. */
static int read_place(struct loadplace *p, struct cli *cli)
{
	char line[LINE_BYTES + 1] = "", again[LINE_BYTES + 1];
	ssize_t n = pread(p->fd, line, LINE_BYTES, 0);
	uint64_t before, end, last;
	uint32_t incarnation;
	int64_t started_ms;

	if (n < 0)
		return failed(cli, errno, p->path);
	if (n == 0)
		return 0;
	if (sscanf(line, "%8" SCNx32 " %15" SCNd64 " %20" SCNu64 " %20" SCNu64 " %16" SCNx64, &incarnation, &started_ms,
		   &before, &end, &last) == 5)
		snprintf(again, sizeof(again), BODY " %016" PRIx64 "\n", incarnation, started_ms, before, end, last,
			 hash(HASH_INIT, line, BODY_BYTES));
	else
		again[0] = '\0';
	if (strcmp(line, again) || incarnation != p->incarnation || before >= end) {
		cli_say(cli, SL_LOG_WARN, "%s is not the place of this load; the input is read from its beginning",
			p->path);
		return 0;
	}
	p->before = before;
	p->end = end;
	p->hash = last;
	p->started_ms = started_ms;
	return 0;
}

static int open_log(struct loadplace *p, struct cli *cli, const struct loadplace_key *key, const char *id)
{
	struct sl_wal_opts opts = {SL_WAL_OPTS_INIT, .env = &cli->env, .wal_dir = key->dir,
				   .max_pending_bytes = SL_UNLIMITED, /* the queue is the bound */
				   .discard_settled = SL_ON};
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	struct sl_err err = SL_ERR_INIT;

	if (sl_wal_open(&p->wal, id, &opts, &err) || sl_wal_get_stats(p->wal, &stats, &err))
		return cli_fail(cli, &err, key->dir);
	p->incarnation = stats.incarnation;
	return 0;
}

int loadplace_open(struct loadplace *p, struct cli *cli, const struct loadplace_key *key, int i)
{
	char id[64];
	int rc;

	*p = (struct loadplace){.fd = -1, .started_ms = srv_clock_real_ms()};
	if (!key->dir)
		return 0;
	name_log(id, key, i);
	if ((size_t)snprintf(p->path, sizeof(p->path), "%s/%s.place", key->dir, id) >= sizeof(p->path))
		return cli_usage(cli, "--wal: the name of the folder is too long");
	rc = open_log(p, cli, key, id);
	if (rc)
		return rc;
	p->fd = open(p->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	return p->fd < 0 ? failed(cli, errno, p->path) : read_place(p, cli);
}

int loadplace_is_at(const struct loadplace *p, const struct sl_record *record)
{
	return record->end == p->end && hash(HASH_INIT, record->data, record->len) == p->hash;
}

int loadplace_skip(const struct loadplace *p, sl_records *records, struct sl_err *err)
{
	struct sl_record last;
	size_t n = 0;
	int rc;

	if (!p->end)
		return 0;
	rc = sl_records_skip(records, p->before, err);
	if (!rc)
		rc = sl_records_next(records, &last, 1, &n, err);
	if (rc)
		return rc;
	if (n == 1 && loadplace_is_at(p, &last))
		return 0;
	return sl_err_set(err, SL_EDATA, "before byte %" PRIu64 " is another record than when it was loaded", p->end);
}

int loadplace_note(struct loadplace *p, struct cli *cli, const struct sl_record *records, size_t n)
{
	const struct sl_record *last = &records[n - 1];
	char line[LINE_BYTES + 1];
	ssize_t done;

	if (!p->wal)
		return 0;
	p->before = n > 1 ? records[n - 2].end : p->end;
	p->end = last->end;
	p->hash = hash(HASH_INIT, last->data, last->len);
	snprintf(line, sizeof(line), BODY, p->incarnation, p->started_ms, p->before, p->end, p->hash);
	snprintf(line + BODY_BYTES, sizeof(line) - BODY_BYTES, " %016" PRIx64 "\n", hash(HASH_INIT, line, BODY_BYTES));
	done = pwrite(p->fd, line, LINE_BYTES, 0);
	return done == LINE_BYTES ? 0 : failed(cli, done < 0 ? errno : ENOSPC, p->path);
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

/* What a crash tore off the end of the log had not been acknowledged, and was read again. */
static void remove_torn(const char *dir, const char *id)
{
	char prefix[80], path[PATH_MAX];
	DIR *d = opendir(dir);
	const struct dirent *e;
	int n = snprintf(prefix, sizeof(prefix), "%s.wal.torn-", id);

	while (d && (e = readdir(d)))
		if (strncmp(e->d_name, prefix, (size_t)n) == 0 &&
		    (size_t)snprintf(path, sizeof(path), "%s/%s", dir, e->d_name) < sizeof(path))
			(void)unlink(path);
	if (d)
		closedir(d);
}

/* The log first: a place without its log counts for nothing. */
static int finish_one(struct cli *cli, const struct loadplace_key *key, int i)
{
	struct sl_err err = SL_ERR_INIT;
	struct loadplace p;
	char id[64];
	int rc = loadplace_open(&p, cli, key, i);

	name_log(id, key, i);
	if (!rc && sl_wal_complete(p.wal, 0, &err)) {
		rc = cli_fail(cli, &err, key->dir);
		if (err.code == SL_EPENDING)
			cli_say(cli, SL_LOG_ERROR, "the same command writes what is pending in %s", key->dir);
	}
	if (!rc && unlink(p.path) && errno != ENOENT)
		rc = failed(cli, errno, p.path);
	loadplace_close(&p, cli);
	if (!rc)
		remove_torn(key->dir, id);
	if (!rc && sl_wal_cleanup_quarantine(key->dir, id, RETENTION_DAYS, &cli->env, &err))
		cli_say(cli, SL_LOG_WARN, "clean-up of %s: %s", key->dir, err.msg);
	return rc;
}

int loadplace_finish(struct cli *cli, const struct loadplace_key *key)
{
	int rc = 0;

	for (int i = 0; i < key->n_inputs && key->dir && !rc; i++)
		rc = finish_one(cli, key, i);
	return rc;
}
