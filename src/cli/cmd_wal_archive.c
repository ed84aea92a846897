/* SPDX-License-Identifier: Apache-2.0 */
/* sluice wal archive and cleanup: compress a finished log, and remove archives that are old enough. */
#include "base/compare.h"
#include "base/time.h"
#include "commands.h"
#include "stop.h"
#include "text.h"
#include "walfile.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- the names of a log's files ---- */

/* The names in a folder that belong to one log, sorted: its files (<id>.wal, <id>.wal.<first>) or its archives
 * (<id>.wal….zst). names_free accepts a zeroed struct. */
struct names {
	char **names;
	size_t n;
};

static void names_free(struct names *names)
{
	for (size_t i = 0; i < names->n; i++)
		free(names->names[i]);
	free(names->names);
	memset(names, 0, sizeof(*names));
}

/* archives: 1 for the archives, 0 for the log's own files. A folder that cannot be read has none. 0, or -1 without
 * memory. */
static int names_list(struct names *out, const char *dir, const char *id, int archives)
{
	DIR *d = opendir(dir);
	size_t n = strlen(id);
	struct dirent *e;
	int rc = 0;

	memset(out, 0, sizeof(*out));
	if (d == NULL)
		return 0;
	while (rc == 0 && (e = readdir(d)) != NULL) {
		const char *name = e->d_name, *rest = name + n + 4;
		char **grown, *copy;

		/* Is it <id>.wal….zst, or else <id>.wal or <id>.wal.<digits>? */
		if (strncmp(name, id, n) != 0 || strncmp(name + n, ".wal", 4) != 0)
			continue;
		if (archives ? strlen(rest) < 4 || rest[0] != '.' || strcmp(name + strlen(name) - 4, ".zst") != 0
			     : *rest && (rest[0] != '.' || !rest[1] || rest[1 + strspn(rest + 1, "0123456789")]))
			continue;
		copy = strdup(name);
		grown = copy != NULL ? realloc(out->names, (out->n + 1) * sizeof(*grown)) : NULL;
		if (grown == NULL) {
			free(copy);
			rc = -1;
			break;
		}
		out->names = grown;
		out->names[out->n++] = copy;
	}
	closedir(d);
	if (rc != 0)
		names_free(out);
	else if (out->n)
		qsort(out->names, out->n, sizeof(*out->names), sl__compare_texts);
	return rc;
}

static bool names_have(const struct names *names, const char *name)
{
	for (size_t i = 0; i < names->n; i++) {
		if (strcmp(names->names[i], name) == 0)
			return true;
	}
	return false;
}

/* ---- archive ---- */

struct archive {
	struct names segments, before, after;
};

/* Print what this run made. When it only finished the work of an earlier one, the archives were there before: then the
 * ones with the names of the log's files are meant. */
static void print_archives(struct cli *cli, const struct archive *a, const char *dir)
{
	size_t made = 0;

	for (size_t i = 0; i < a->after.n; i++)
		made += !names_have(&a->before, a->after.names[i]);
	for (size_t i = 0; i < a->after.n; i++) {
		const char *name = a->after.names[i];
		char segment[NAME_MAX + 1];

		snprintf(segment, sizeof(segment), "%.*s", (int)strlen(name) - 4, name);
		if (!names_have(&a->before, name) || (made < a->segments.n && names_have(&a->segments, segment)))
			out_printf(&cli->out, "%s%s%s\n", dir, dir[strlen(dir) - 1] == '/' ? "" : "/", name);
	}
}

static int wal_archive_run(struct cli *cli, const struct parsed *args)
{
	struct sl_wal_scan_opts seals = {SL_WAL_SCAN_OPTS_INIT, .env = &cli->env,
					 .key_file = opt_str(args, "key-file")};
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	struct sl_wal_opts opts = walfile_opts(cli, args);
	struct archive a = {{0}, {0}, {0}};
	const char *path = args->operands[0], *dir = opt_str(args, "to");
	int64_t started_ms = sl__clock_ms();
	struct sl_err err = SL_ERR_INIT;
	struct walfile file;
	struct stat st;
	int rc = walfile_split(cli, path, &file);

	if (rc == 0)
		rc = walfile_check(cli, path);
	if (rc == 0)
		rc = walfile_check_folder(cli, dir);
	if (rc != 0)
		return rc;
	/* With a key: every payload opens with it. An archive that cannot be opened is useless, and the log would be
	 * removed. */
	if (seals.key_file != NULL && sl_wal_scan(path, &seals, &stats, &err))
		return cli_fail(cli, &err, path);

	/* The names before and after show which archives this run has made. */
	opts.archive_level = (int32_t)opt_num(args, "level");
	if (names_list(&a.segments, file.dir, file.id, 0) || names_list(&a.before, dir, file.id, 1))
		rc = SL_ENOMEM;
	else
		do
			rc = sl_wal_archive_path(path, dir, opt_flag(args, "include-pending"), &opts, &err);
		while (rc != 0 && walfile_lock_again(args, rc, started_ms));
	if (rc == SL_EPENDING) {
		cli_say(cli, SL_LOG_ERROR,
			"%s: records are still pending; deliver them, or archive them with --include-pending", path);
		rc = sl_err_exit_code(rc);
	} else {
		if (rc != 0) {
			if (rc == SL_EACCES && stat(dir, &st))
				err.code = SL_ECREATE; /* it is DIR that could not be made */
			if (!err.code)
				err.code = rc;
			rc = cli_fail(cli, &err, path);
		} else if (names_list(&a.after, dir, file.id, 1) == 0) {
			print_archives(cli, &a, dir);
		}
	}
	names_free(&a.segments);
	names_free(&a.before);
	names_free(&a.after);
	return rc;
}

static const struct opt archive_opts[] = {
	{.name = "to",
	 .kind = OPT_STRING,
	 .arg = "DIR",
	 .required = true,
	 .help = "Folder for the archives; created if it does not exist"},
	{.name = "include-pending", .kind = OPT_FLAG, .help = "Archive records that were never delivered too"},
	{.name = "level",
	 .kind = OPT_INT,
	 .arg = "N",
	 .def = "3",
	 .min = 1,
	 .max = 19,
	 .help = "Level of the zstd compression"},
	WALFILE_OPT_ON_CORRUPTION,
	OPT_TEXT("key-file", 0, "FILE",
		 "Archive an encrypted log only if this key opens every payload (default: do not check)"),
	WALFILE_OPT_LOCK_WAIT,
	{.name = NULL},
};

const struct command cmd_wal_archive = {
	.name = "wal archive",
	.operands = "FILE",
	.summary = "compress a finished log and remove it",
	.opts = archive_opts,
	.description = "Each segment of the log becomes one plain zstd frame, DIR/<segment>.zst, whose path is "
		       "printed. The archive is synced and verified by decompressing before the log is removed, the "
		       "active file last. A log with pending records is left alone (status 75) without "
		       "--include-pending. After a crash, running it again finishes the work. Encrypted payloads stay "
		       "sealed; --key-file checks first that they open (status 78 otherwise).",
	.example = "sluice wal archive ./demo.wal --to ./archive\n"
		   "sluice wal archive ./demo.wal --to ./archive --include-pending",
	.run = wal_archive_run,
};

/* ---- cleanup ---- */

struct cleanup {
	struct cli *cli;
	bool json;
	uint64_t archives, bytes;
	bool stopped;
};

static int on_entry(const struct sl_wal_cleanup_entry *entry, void *ctx)
{
	struct cleanup *c = ctx;
	char when[TEXT_TIME_BYTES], bytes[TEXT_TIME_BYTES], name[NAME_MAX + 1];

	/* Listed with --dry-run as well, in other words. */
	c->archives++;
	c->bytes += entry->bytes;
	if (c->json) {
		out_json_line(&c->cli->out, json_pack("{s:o, s:I, s:I, s:b}", "name", text_json(entry->name), "bytes",
						      (json_int_t)entry->bytes, "last_record_ms",
						      (json_int_t)entry->last_record_ms, "removed", entry->removed));
	} else {
		text_line(name, sizeof(name), entry->name);
		out_printf(&c->cli->out, "%s %s (%s, last record %s)\n", entry->removed ? "removed" : "would remove",
			   name, text_bytes(bytes, entry->bytes),
			   text_moment(when, &c->cli->out, entry->last_record_ms));
	}
	c->stopped = stop_requested();
	return c->stopped ? SL_ECANCELLED : 0;
}

static int wal_cleanup_run(struct cli *cli, const struct parsed *args)
{
	struct cleanup c = {.cli = cli, .json = opt_flag(args, "json")};
	struct sl_err err = SL_ERR_INIT;
	const char *dir = args->operands[0];
	bool dry = opt_flag(args, "dry-run");
	char bytes[TEXT_TIME_BYTES], count[TEXT_COUNT_BYTES];
	struct stat st;
	int rc;

	if (stat(dir, &st))
		cli_say(cli, SL_LOG_WARN, "%s does not exist: nothing to clean up", dir);
	rc = sl_wal_cleanup(dir, (int32_t)opt_num(args, "retention-days"), dry, on_entry, &c, &cli->env, &err);
	if (rc != 0)
		return c.stopped ? cli_interrupted(cli) : cli_fail(cli, &err, dir);
	if (!c.json)
		out_printf(&cli->out, "%s %s, %s\n", text_count(count, c.archives, "archive"), dry ? "due" : "removed",
			   text_bytes(bytes, c.bytes));
	return EXIT_OK;
}

static const struct opt cleanup_opts[] = {
	{.name = "retention-days",
	 .kind = OPT_INT,
	 .arg = "N",
	 .min = 0,
	 .max = 36500,
	 .required = true,
	 .help = "Keep archives whose last record is at most N days old"},
	{.name = "dry-run", .letter = 'n', .kind = OPT_FLAG, .help = "Print what would be removed, and remove nothing"},
	OPT_JSON("Print one JSON object per archive: name, bytes, last_record_ms, removed"),
	{.name = NULL},
};

const struct command cmd_wal_cleanup = {
	.name = "wal cleanup",
	.operands = "DIR",
	.summary = "remove old archives",
	.opts = cleanup_opts,
	.description =
		"Removes and prints the archives in DIR whose last record is older than --retention-days. For damaged "
		"archives and the files that a recovery quarantined (.torn-*, .damaged-*, .old-*), the time of the "
		"file counts. Other files are left alone. If DIR does not exist, there is nothing to remove.",
	.example = "sluice wal cleanup ./archive --retention-days 30\n"
		   "sluice wal cleanup ./archive --retention-days 30 --dry-run",
	.run = wal_cleanup_run,
};
