/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the wal commands share: the FILE operand, waiting for a log that another process holds, and damage and counts as
 * text and JSON.
 *
 * Thread safety: none; the main thread calls. Ownership: buffers are the caller's; JSON values are new references.
 */
#ifndef SLUICE_CLI_WALFILE_H
#define SLUICE_CLI_WALFILE_H

#include "opts.h"

#include <limits.h>
#include <sluice/wal_files.h>

struct walfile {
	char dir[PATH_MAX]; /* "." when the path has no folder */
	char id[NAME_MAX + 1];
};

/* Split <dir>/<id>.wal. 0, or an exit code after a line on stderr that says what to name instead. */
int walfile_split(struct cli *cli, const char *path, struct walfile *out);
/* Something is there that cannot be a log: a folder or a device (65), a symbolic link (74), after a line on stderr.
 * Otherwise 0, also when nothing is there: the library checks it. */
int walfile_check(struct cli *cli, const char *path);

/* dir is a folder, or could be made in one that is there: a longer missing path is more likely a slip than a wish. 73
 * after a line on stderr otherwise. */
int walfile_check_folder(struct cli *cli, const char *dir);

/* The options that commands which take the log's lock share; put them into a table. */
#define WALFILE_OPT_KEY_FILE                                                                                           \
	{                                                                                                              \
		.name = "key-file", .kind = OPT_STRING, .arg = "FILE",                                                 \
		.help = "Read the key of an encrypted log from FILE: 32 bytes, raw or as 64 hexadecimal digits, mode " \
			"0600"                                                                                         \
	}
#define WALFILE_OPT_LOCK_WAIT                                                                                          \
	{                                                                                                              \
		.name = "lock-wait", .kind = OPT_DURATION, .arg = "TIME", .def = "0", .min = 0, .max = 86400000,       \
		.help = "Wait up to this long for another process to release the log"                                  \
	}
extern const char *const walfile_corruption_choices[]; /* as enum sl_wal_on_corruption */
#define WALFILE_OPT_ON_CORRUPTION                                                                                      \
	{                                                                                                              \
		.name = "on-corruption", .kind = OPT_ENUM, .arg = "WHAT", .def = "salvage",                            \
		.choices = walfile_corruption_choices,                                                                 \
		.help = "Handle damage: quarantine it and keep all valid records, cut the log off there, or change "   \
			"nothing and fail"                                                                             \
	}
/* The options above as the library takes them. Fields for which the table has no option stay at their default. */
struct sl_wal_opts walfile_opts(struct cli *cli, const struct parsed *args);

/* Call after an attempt failed with rc: 1 to try again (the lock was held, time is left, no signal came; a moment has
 * passed). started_ms is sl__clock_ms() of the first attempt. */
bool walfile_lock_again(const struct parsed *args, int rc, int64_t started_ms);

/* "job-7.wal at 4096, 87 bytes: checksum …; sequences 5 to 7 are missing", or of an archive itself "job-7.wal.zst at
 * compressed offset 5123, decompressed offset 131072: cut off, 411 bytes of content are missing or in doubt" */
void walfile_describe(char *to, size_t size, const struct sl_wal_damage *damage);
json_t *walfile_damage_json(const struct sl_wal_damage *damage);
/* The counts as an object that the caller completes; null for what is not there. */
json_t *walfile_stats_json(const struct sl_wal_stats *stats);

#endif
