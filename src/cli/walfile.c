/* SPDX-License-Identifier: Apache-2.0 */
/* The FILE operand, shared options and output of the wal commands. */
#include "walfile.h"

#include "base/time.h"
#include "stop.h"
#include "text.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

const char *const walfile_corruption_choices[] = {"salvage", "truncate", "refuse", NULL};

int walfile_split(struct cli *cli, const char *path, struct walfile *out)
{
	const char *slash = strrchr(path, '/');
	const char *base = slash != NULL ? slash + 1 : path;
	const char *wal = strstr(base, ".wal.");
	size_t n = strlen(base);
	size_t dir_len = slash != NULL ? (size_t)(slash - path) : 1;

	/* A name that is not <id>.wal: suggest the right one, if the name shows it. */
	if (n > 4 && strcmp(base + n - 4, ".zst") == 0)
		return cli_usage(cli,
				 "%s is an archive, which only dump, verify and stat can read; decompress it with "
				 "'zstd -d' first",
				 path);
	if (n <= 4 || strcmp(base + n - 4, ".wal") != 0)
		return wal != NULL ? cli_usage(cli, "%s is not the active file of a log; name %.*s", path,
					       (int)(wal + 4 - path), path)
				   : cli_usage(cli, "%s: the name of a log must end in .wal; try %s.wal", path, path);
	if (n - 4 > NAME_MAX || dir_len >= PATH_MAX)
		return cli_usage(cli, "the name of the log is too long");
	snprintf(out->id, sizeof(out->id), "%.*s", (int)(n - 4), base);
	if (slash == NULL)
		snprintf(out->dir, sizeof(out->dir), ".");
	else
		snprintf(out->dir, sizeof(out->dir), "%.*s", dir_len ? (int)dir_len : 1, path);
	return 0;
}

int walfile_check(struct cli *cli, const char *path)
{
	struct sl_err err = SL_ERR_INIT;
	struct stat st;

	/* Nothing there is not decided here: append creates a log, and the others report it themselves. */
	if (lstat(path, &st) || S_ISREG(st.st_mode))
		return 0;
	if (S_ISLNK(st.st_mode)) /* the library does not follow one: it may lead to what others may change */
		sl_err_set(&err, SL_EACCES, "is a symbolic link; give the file that it points to");
	else
		sl_err_set(&err, SL_EDATA, "is a %s, not a log", S_ISDIR(st.st_mode) ? "folder" : "special file");
	return cli_fail(cli, &err, path);
}

static bool is_folder(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int walfile_check_folder(struct cli *cli, const char *dir)
{
	char parent[PATH_MAX];
	struct sl_err err = SL_ERR_INIT;
	struct stat st;
	size_t n = strlen(dir);

	if (is_folder(dir))
		return 0;
	/* The folder that dir is in: without slashes at the end, the last name, and the slashes before it. */
	while (n > 1 && dir[n - 1] == '/')
		n--;
	while (n > 0 && dir[n - 1] != '/')
		n--;
	while (n > 1 && dir[n - 1] == '/')
		n--;
	snprintf(parent, sizeof(parent), "%.*s", n ? (int)n : 1, n ? dir : ".");
	if (stat(dir, &st) == 0)
		sl_err_set(&err, SL_ECREATE, "%s is not a folder", dir);
	else if (!is_folder(parent))
		sl_err_set(&err, SL_ECREATE, "cannot create %s: the folder %s does not exist", dir, parent);
	else
		return 0;
	return cli_fail(cli, &err, NULL);
}

struct sl_wal_opts walfile_opts(struct cli *cli, const struct parsed *args)
{
	struct sl_wal_opts opts = {SL_WAL_OPTS_INIT, .env = &cli->env};

	/* Not every command has every option. */
	if (opts_has(args, "key-file"))
		opts.key_file = opt_str(args, "key-file");
	if (opts_has(args, "on-corruption"))
		opts.on_corruption = (enum sl_wal_on_corruption)opt_num(args, "on-corruption");
	return opts;
}

bool walfile_lock_again(const struct parsed *args, int rc, int64_t started_ms)
{
	int64_t left = started_ms + opt_num(args, "lock-wait") - sl__clock_ms();
	struct pollfd p = {.fd = stop_fd(), .events = POLLIN};

	/* Only a lock that is held is worth another attempt. */
	if (rc != SL_ELOCKED || left <= 0 || stop_requested())
		return false;
	(void)poll(&p, 1, left < 50 ? (int)left : 50);
	return !stop_requested();
}

void walfile_describe(char *to, size_t size, const struct sl_wal_damage *d)
{
	char missing[96] = "", crc[80] = "", count[TEXT_COUNT_BYTES];

	/* Which sequences are missing, and the checksums, where they are known. */
	if (d->first_missing && d->first_missing == d->last_missing)
		snprintf(missing, sizeof(missing), "; sequence %" PRIu64 " is missing", d->first_missing);
	else if (d->first_missing)
		snprintf(missing, sizeof(missing), "; sequences %" PRIu64 " to %" PRIu64 " are missing",
			 d->first_missing, d->last_missing);
	if (d->expected_crc || d->actual_crc)
		snprintf(crc, sizeof(crc), " (CRC %016" PRIx64 " expected, %016" PRIx64 " found)", d->expected_crc,
			 d->actual_crc);
	/* Of an archive the place is known twice: in the compressed bytes and in the log inside. */
	if (d->of_archive) {
		if (d->length)
			snprintf(missing, sizeof(missing), ", %s of content missing or uncertain",
				 text_count(count, d->length, "byte"));
		snprintf(to, size, "%s at compressed offset %" PRIu64 ", decompressed offset %" PRIu64 ": %s%s",
			 d->segment != NULL ? d->segment : "?", d->archive_offset, d->offset,
			 d->reason != NULL ? d->reason : "damaged", missing);
		return;
	}
	snprintf(to, size, "%s at %" PRIu64 ", %s: %s%s%s", d->segment != NULL ? d->segment : "?", d->offset,
		 text_count(count, d->length, "byte"), d->reason != NULL ? d->reason : "damaged", crc, missing);
}

static json_t *hex_json(uint64_t v)
{
	char text[17];

	snprintf(text, sizeof(text), "%016" PRIx64, v);
	return json_string(text);
}

/* What is not known, or not there, is null and never 0. */
static json_t *known(uint64_t v)
{
	return v ? json_integer((json_int_t)v) : json_null();
}

json_t *walfile_damage_json(const struct sl_wal_damage *d)
{
	int has_crc = d->expected_crc || d->actual_crc;

	return json_pack("{s:s, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "kind",
			 d->of_archive  ? "archive"
			 : d->declared  ? "hole"
			 : d->torn_tail ? "torn_tail"
					: "damage",
			 "segment", text_json(d->segment != NULL ? d->segment : ""), "archive_offset",
			 d->of_archive ? json_integer((json_int_t)d->archive_offset) : json_null(), "offset",
			 (json_int_t)d->offset, "length",
			 d->of_archive ? known(d->length) : json_integer((json_int_t)d->length), "reason",
			 text_json(d->reason != NULL ? d->reason : ""), "expected_crc",
			 has_crc ? hex_json(d->expected_crc) : json_null(), "actual_crc",
			 has_crc ? hex_json(d->actual_crc) : json_null(), "first_missing", known(d->first_missing),
			 "last_missing", known(d->last_missing));
}

json_t *walfile_stats_json(const struct sl_wal_stats *s)
{
	char incarnation[TEXT_INCARNATION_BYTES];
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:I, s:o, s:o, s:I, s:I}", "records",
			 (json_int_t)s->records, "pending", (json_int_t)s->pending, "sent", (json_int_t)s->sent,
			 "failed", (json_int_t)s->failed, "holes", (json_int_t)s->holes, "bytes", (json_int_t)s->bytes,
			 "pending_bytes", (json_int_t)s->pending_bytes, "first_sequence", known(s->first_sequence),
			 "last_sequence", known(s->last_sequence), "segments", (json_int_t)s->segments, "incarnation",
			 s->incarnation ? json_string(text_incarnation(incarnation, s->incarnation)) : json_null(),
			 "version", known(s->format_version), "damaged_ranges", (json_int_t)s->damaged_ranges,
			 "torn_bytes", (json_int_t)s->torn_bytes);
}
