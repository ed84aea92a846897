/* SPDX-License-Identifier: Apache-2.0 */
/* Options, passphrase and handle of a repository, shared by the backup commands. */
#include "backuprepo.h"
#include "stop.h"
#include "text.h"
#include "watch.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <sluice/backup.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct askpass_question question = {
	.option = "passphrase-file", .environment = "SLUICE_PASSPHRASE_FILE", .prompt = "Passphrase of the repository"};

int backuprepo_find(struct backuprepo *r, struct cli *cli, const struct parsed *args)
{
	const char *path = opt_str(args, "repo");

	*r = (struct backuprepo){.cli = cli, .args = args};
	path = path != NULL ? path : getenv("SLUICE_BACKUP_REPO");
	if (path == NULL || !*path)
		return cli_usage(r->cli, "--repo=REPO is missing, and SLUICE_BACKUP_REPO is not set");
	r->path = path;
	return 0;
}

int backuprepo_fail(struct backuprepo *r, const struct sl_err *err)
{
	if (err->code == SL_ECANCELLED && stop_requested())
		return cli_interrupted(r->cli);
	return cli_fail(r->cli, err, r->path);
}

int backuprepo_driver(struct backuprepo *r, bool create)
{
	struct sl_driver_local_opts opts = {SL_DRIVER_LOCAL_OPTS_INIT, .env = &r->cli->env,
					    .create = create ? SL_ON : SL_OFF};
	struct sl_err err = SL_ERR_INIT;
	struct stat st;

	/* Errors that the driver would report in the words of storage. */
	if (stat(r->path, &st) == 0 && !S_ISDIR(st.st_mode)) {
		cli_say(r->cli, SL_LOG_ERROR, "%.500s is not a folder", r->path);
		return sl_err_exit_code(create ? SL_ECREATE : SL_ENOENT);
	}
	if (!create && stat(r->path, &st) && errno == ENOENT) {
		cli_say(r->cli, SL_LOG_ERROR, "there is no %.500s; 'sluice backup init' makes a repository", r->path);
		return sl_err_exit_code(SL_ENOENT);
	}
	return sl_driver_local_open(&r->driver, r->path, &opts, &err) ? backuprepo_fail(r, &err) : 0;
}

int backuprepo_open(struct backuprepo *r, struct cli *cli, const struct parsed *args, const struct sl_backup_opts *more)
{
	struct sl_backup_opts opts = {SL_BACKUP_OPTS_INIT};
	SL_CLEANUP(askpass_wipe) struct askpass pass = {.len = 0};
	struct sl_err err = SL_ERR_INIT;
	bool named = askpass_has_file(args, &question);
	int encrypted, rc = backuprepo_find(r, cli, args);

	/* Packs and buffers go back to the system when they are freed. By itself malloc would keep such large pieces
	 * from the second on, in several arenas: half as much memory again. */
	(void)mallopt(M_MMAP_THRESHOLD, 1 << 20);
	/* The session of a create that is killed makes prunes wait for a day. */
	(void)stop_on_hangup();
	opts = more != NULL ? *more : opts;
	opts.env = &cli->env;
	if (rc == 0)
		rc = backuprepo_driver(r, false);
	if (rc != 0)
		return rc;

	encrypted = sl_backup_is_encrypted(&r->driver, &opts, &err);
	if (encrypted == SL_ENOENT) {
		cli_say(r->cli, SL_LOG_ERROR, "%.500s is not a repository; 'sluice backup init' makes one", r->path);
		return sl_err_exit_code(SL_ENOENT);
	}
	if (encrypted < 0)
		return backuprepo_fail(r, &err);
	if (encrypted || named) {
		rc = askpass(&pass, cli, args, &question);
		if (rc != 0)
			return rc;
		opts.passphrase = pass.bytes;
		opts.passphrase_len = pass.len;
	}
	rc = sl_backup_open(&r->backup, &r->driver, &opts, &err);
	/* The config is what the storage says, and nothing vouches for it: who names a passphrase means an encrypted
	 * repository, and a plain one is not what was asked for. */
	if (rc == SL_EKEY && !encrypted && named) {
		cli_say(r->cli, SL_LOG_ERROR,
			"%.500s is marked as not encrypted, but %s names a passphrase: leave it out if the "
			"repository was made with --plain; if not, its config was changed",
			r->path, opt_str(args, question.option) != NULL ? "--passphrase-file" : question.environment);
		return sl_err_exit_code(SL_EKEY);
	}
	if (rc != 0)
		return backuprepo_fail(r, &err);
	return 0;
}

void backuprepo_close(struct backuprepo *r)
{
	sl_backup_close(r->backup);
	sl_driver_close(&r->driver);
	r->backup = NULL;
}

int backuprepo_snapshot(struct backuprepo *r, const char *word, char id[SL_BACKUP_ID_BYTES])
{
	struct sl_err err = SL_ERR_INIT;
	int rc = sl_backup_resolve(r->backup, word, id, &err);

	if (rc == 0)
		return 0;
	if (rc != SL_ENOENT && rc != SL_EINVAL)
		return backuprepo_fail(r, &err);
	/* A word that names no snapshot is bad data, not a missing file. */
	(void)cli_fail(r->cli, &err, r->path);
	return EXIT_BAD_DATA;
}

void backuprepo_path(char *copy, const char *path)
{
	size_t n = 0;

	/* Empty components and dots are dropped; ".." stays, and is not found. */
	while (*path) {
		size_t len = strcspn(path, "/");

		if (len > 0 && !(len == 1 && *path == '.')) {
			if (n)
				copy[n++] = '/';
			memcpy(copy + n, path, len);
			n += len;
		}
		path += len + (path[len] == '/');
	}
	copy[n] = '\0';
}

/* ---- paths as create stores them ---- */

/* One component more, or one less. 0, or -1: it is too long. */
static int append(char out[PATH_MAX], const char *name, size_t len)
{
	size_t n = strlen(out);

	if (len == 0 || (len == 1 && name[0] == '.'))
		return 0;
	if (len == 2 && memcmp(name, "..", 2) == 0) {
		while (n > 0 && out[n - 1] != '/')
			n--;
		out[n > 0 ? n - 1 : 0] = '\0';
		return 0;
	}
	if (n + 1 + len >= PATH_MAX)
		return -1;
	out[n] = '/';
	memcpy(out + n + 1, name, len);
	out[n + 1 + len] = '\0';
	return 0;
}

/* The real name of its folder, and its last component as it is: create stores a link that is no folder as a link. */
static int stored_file(const char *path, char out[PATH_MAX])
{
	char folder[PATH_MAX];
	size_t n = strlen(path), base;

	while (n > 1 && path[n - 1] == '/')
		n--;
	for (base = n; base > 0 && path[base - 1] != '/';)
		base--;
	if (n >= sizeof(folder))
		return -1;
	memcpy(folder, base ? path : ".", base ? base : 1);
	folder[base ? base : 1] = '\0';
	if (realpath(folder, out) == NULL)
		return -1;
	if (strcmp(out, "/") == 0)
		*out = '\0';
	return append(out, path + base, n - base);
}

int backuprepo_stored_path(struct cli *cli, const char *path, char out[PATH_MAX])
{
	const char *rest = path;
	struct stat st;
	int rc = 0;

	/* A folder has its real name; a file keeps its last component. */
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode) && realpath(path, out) != NULL)
		return 0;
	if (lstat(path, &st) == 0 && stored_file(path, out) == 0)
		return 0;
	/* Not there any more: from the root or the current folder on, without a slash at the end; "": the root. */
	*out = '\0';
	if (path[0] != '/')
		rc = getcwd(out, PATH_MAX) != NULL ? 0 : -1;
	if (rc == 0 && strcmp(out, "/") == 0)
		*out = '\0';
	while (rc == 0 && *rest) {
		size_t len = strcspn(rest, "/");

		rc = append(out, rest, len);
		rest += len + (rest[len] == '/');
	}
	if (rc != 0) {
		cli_say(cli, SL_LOG_ERROR, "--path: %.200s cannot be made absolute; give it from the root on", path);
		return EXIT_USAGE_ERROR;
	}
	if (!*out)
		memcpy(out, "/", 2);
	return 0;
}

void backuprepo_hint(struct cli *cli, const struct parsed *args, int first)
{
	for (int i = first; i < args->n_operands; i++) {
		if (args->operands[i][0] != '/') {
			cli_say(cli, SL_LOG_ERROR,
				"paths in snapshots begin at the root, not in this folder: 'sluice backup ls' shows "
				"them");
			return;
		}
	}
}

/* ---- progress and signals ---- */

struct words {
	char text[256];
	size_t used;
};

static void SL_PRINTF(2, 3) say(struct words *w, const char *fmt, ...)
{
	size_t room = sizeof(w->text) - w->used;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(w->text + w->used, room, fmt, ap);
	va_end(ap);
	w->used += n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1;
}

/* Signals and progress: the phase, what is done, the rate, and how the block writer fares. */
static void watch_backup(void *ctx)
{
	struct backupwatch *w = ctx;
	struct sl_backup_progress p = {.struct_size = sizeof(p)};
	struct words words = {.used = 0};
	char a[TEXT_TIME_BYTES], b[TEXT_TIME_BYTES];
	int64_t ms = watch_ms(&w->watch);
	double speed;

	if (stop_requested())
		sl_backup_stop(w->backup); /* each time: a call that begins forgets an earlier stop */
	if (!progress_due(&w->watch.progress))
		return;
	sl_backup_get_progress(w->backup, &p);
	if (p.phase == NULL)
		return;
	/* Only what is known by now: totals come after the first walk over the files. */
	say(&words, "%s", p.phase);
	if (p.totals_known && p.bytes_total)
		say(&words, ", %" PRIu64 " of %" PRIu64 " files, %s of %s", p.files, p.files_total,
		    text_bytes(a, p.bytes), text_bytes(b, p.bytes_total));
	else if (p.files || p.bytes)
		say(&words, ", %" PRIu64 " files, %s", p.files, text_bytes(a, p.bytes));
	if (p.packs_total)
		say(&words, ", %" PRIu64 " of %" PRIu64 " packs", p.packs, p.packs_total);
	speed = ms > 0 ? (double)p.bytes * 1000 / (double)ms : 0;
	if (speed >= 1)
		say(&words, ", %s/s", text_bytes(a, (uint64_t)speed));
	if (speed >= 1 && p.totals_known && p.bytes_total > p.bytes)
		say(&words, ", %s left", text_age(a, (int64_t)((double)(p.bytes_total - p.bytes) * 1000 / speed)));
	if (p.dedup_bytes || p.physical_bytes)
		say(&words, ", %s known, %s written", text_bytes(a, p.dedup_bytes), text_bytes(b, p.physical_bytes));
	/* How the block writer fares: writes in flight, and whether readers wait for it. */
	if (p.max_concurrency)
		say(&words, ", %" PRIu32 "/%" PRIu32 " writes%s", p.concurrency, p.max_concurrency,
		    p.backpressure ? ", readers wait" : "");
	if (p.errors)
		say(&words, ", %" PRIu64 " problems", p.errors);
	if (p.totals_known && p.bytes_total)
		progress_show(&w->watch.progress, words.text, p.bytes, p.bytes_total);
	else
		progress_show(&w->watch.progress, words.text, p.packs, p.packs_total);
}

int backupwatch_start(struct backupwatch *w, struct cli *cli, sl_backup *backup)
{
	w->backup = backup;
	return watch_start(&w->watch, cli, false, watch_backup, w);
}

double backupwatch_stop(struct backupwatch *w)
{
	watch_stop(&w->watch);
	return (double)watch_ms(&w->watch) / 1000;
}
