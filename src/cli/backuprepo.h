/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The repository that a command of `sluice backup` works on: found, its passphrase asked for, opened; and the options
 * that say so.
 *
 * Thread safety: the main thread calls. Ownership: backuprepo_close frees what backuprepo_open made, also after a
 * failure.
 */
#ifndef SLUICE_CLI_BACKUPREPO_H
#define SLUICE_CLI_BACKUPREPO_H

#include "askpass.h"
#include "watch.h"

#include <limits.h>
#include <sluice/backup.h>

struct backuprepo {
	struct cli *cli;
	const struct parsed *args;
	const char *path;
	sl_driver driver;
	sl_backup *backup;
};

#define BACKUP_OPT_PASSPHRASE                                                                                          \
	{                                                                                                              \
		.name = "passphrase-file", .kind = OPT_STRING, .arg = "FILE",                                          \
		.help = "Read the passphrase from the first line of FILE, which only you may be able to read (chmod "  \
			"600). Default: SLUICE_PASSPHRASE_FILE, else ask on the terminal. With a file, refuse a "      \
			"repository that is not encrypted"                                                             \
	}
#define BACKUP_OPTS_REPO                                                                                               \
	{.name = "repo",                                                                                               \
	 .letter = 'r',                                                                                                \
	 .kind = OPT_STRING,                                                                                           \
	 .arg = "REPO",                                                                                                \
	 .help = "Folder of the repository (default: SLUICE_BACKUP_REPO)"},                                            \
		BACKUP_OPT_PASSPHRASE
#define BACKUP_OPT_THREADS                                                                                             \
	{                                                                                                              \
		.name = "threads", .kind = OPT_INT, .arg = "N", .def = "0", .min = 0, .max = 64,                       \
		.help = "Number of threads; 0: one per CPU"                                                            \
	}

/* Only its path, and nothing opened: for what is needed before a passphrase is asked for. */
int backuprepo_find(struct backuprepo *r, struct cli *cli, const struct parsed *args);
/* more: options of the library beside what is set here, or NULL. 0, or an exit code after a line on stderr. */
int backuprepo_open(struct backuprepo *r, struct cli *cli, const struct parsed *args,
		    const struct sl_backup_opts *more);
/* The folder as a driver, made with create; 0, or an exit code after a line on stderr. */
int backuprepo_driver(struct backuprepo *r, bool create);
void backuprepo_close(struct backuprepo *r);

/* Print err with the repository's name; the exit code. Interrupted by a signal: that, and 75. */
int backuprepo_fail(struct backuprepo *r, const struct sl_err *err);

/* The id of the snapshot that a word means. 0, or an exit code after a line on stderr: 65 for one that is not there. */
int backuprepo_snapshot(struct backuprepo *r, const char *word, char id[SL_BACKUP_ID_BYTES]);

/* A path as a person writes it ("/etc/ssh/", "./x") as the snapshots have it ("etc/ssh", "x"); copy: room for all of
 * it. Everything: "". */
void backuprepo_path(char *copy, const char *path);
/* A path as a person writes it, as create stores those that it is given: absolute, with the real name of a folder. What
 * is not there any more is only made absolute. 0, or an exit code after a line on stderr. */
int backuprepo_stored_path(struct cli *cli, const char *path, char out[PATH_MAX]);
/* A path that is not in a snapshot: where the snapshots' paths begin, when one of the operands from this one on may
 * have been meant from the current folder. */
void backuprepo_hint(struct cli *cli, const struct parsed *args, int first);

/*
 * What a person sees of a backup while it runs, and what signals do to it, on a separate thread: the library's call
 * takes up the calling one. The first SIGINT or SIGTERM ends the call with SL_ECANCELLED; the second the process.
 */
struct backupwatch {
	sl_backup *backup;
	struct watch watch;
};

/* 0, or an exit code after a line on stderr. The handle stays the caller's and must outlive backupwatch_stop. */
int backupwatch_start(struct backupwatch *w, struct cli *cli, sl_backup *backup);
/* Nothing is shown any more when it returns. The seconds since the start. */
double backupwatch_stop(struct backupwatch *w);

#endif
