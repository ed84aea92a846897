/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice dlq redrive: each letter's item goes where it was going: into a log as a new record, or to the target of a
 * load as a row. A letter is acknowledged after its record is durable or its row written, so that a crash in between
 * repeats it and never loses it.
 */
#include "base/time.h"
#include "commands.h"
#include "letter.h"
#include "loadletter.h"
#include "stop.h"
#include "text.h"
#include "walfile.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct redrive {
	struct cli *cli;
	const struct parsed *args;
	const char *dlq_dir;
	sl_wal *wal; /* of open_path; NULL: none yet */
	char open_path[PATH_MAX];
	struct loadletter load;
	int exit_code; /* of the first letter that stayed */
};

static int is_file(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* `target` or `dir/../<id>.wal`, when source is wal:<id> and such a log is there (a new one is never made: the path may
 * have meant another place). 0: none. */
static int path_of_source(const struct redrive *r, const struct sl_dlq_letter *letter, char path[PATH_MAX])
{
	const char *id = letter->source + 4;
	const char *target = letter->target ? letter->target : "";
	const char *slash = strrchr(target, '/');
	char name[NAME_MAX + 1];

	if (strncmp(letter->source, "wal:", 4) != 0 || !*id || strchr(id, '/'))
		return 0;
	if ((size_t)snprintf(name, sizeof(name), "%s.wal", id) >= sizeof(name))
		return 0;
	if (strcmp(slash ? slash + 1 : target, name) == 0 && is_file(target))
		return (size_t)snprintf(path, PATH_MAX, "%s", target) < PATH_MAX;
	/* The letters of <dir>/<id>.wal are in <dir>/<id>.dead unless configured otherwise. */
	return (size_t)snprintf(path, PATH_MAX, "%s/../%s", r->dlq_dir, name) < PATH_MAX && is_file(path);
}

static int close_log(struct redrive *r, struct sl_err *err)
{
	int rc = r->wal ? sl_wal_close(r->wal, err) : 0;

	r->wal = NULL;
	return rc;
}

static int open_log(struct redrive *r, const char *path, struct sl_err *err)
{
	struct sl_wal_opts opts = walfile_opts(r->cli, r->args);
	int64_t started_ms = sl__clock_ms();
	struct walfile file;
	int rc;

	if (r->wal && strcmp(r->open_path, path) == 0)
		return 0;
	rc = close_log(r, err);
	if (rc)
		return rc;
	if (walfile_split(r->cli, path, &file))
		return sl_err_set(err, SL_EINVAL, "%s is not the name of a log", path);
	opts.wal_dir = file.dir;
	opts.max_pending_bytes = SL_UNLIMITED;
	do
		rc = sl_wal_open(&r->wal, file.id, &opts, err);
	while (rc && walfile_lock_again(r->args, rc, started_ms));
	if (rc)
		return rc;
	snprintf(r->open_path, sizeof(r->open_path), "%s", path);
	return 0;
}

static int append(struct redrive *r, const struct letter_view *view, struct sl_err *err)
{
	const struct sl_dlq_letter *letter = &view->letter;
	const char *to_wal = opt_str(r->args, "to-wal");
	char path[PATH_MAX];
	uint64_t sequence;
	int rc;

	if (!to_wal && !path_of_source(r, letter, path))
		return sl_err_set(err, SL_EINVAL, "it does not say into which log; give --to-wal=FILE");
	rc = open_log(r, to_wal ? to_wal : path, err);
	if (rc)
		return rc;
	rc = sl_wal_append(r->wal, letter->item, letter->item_len, &sequence, err);
	if (rc)
		return rc;
	if (opt_flag(r->args, "json"))
		out_printf(&r->cli->out, "{\"id\":%" PRIu64 ",\"sequence\":%" PRIu64 "}\n", letter->id, sequence);
	else
		out_printf(&r->cli->out, "%" PRIu64 " -> %" PRIu64 "\n", letter->id, sequence);
	return 0;
}

static int write_row(struct redrive *r, const struct letter_view *view, struct sl_err *err)
{
	const struct sl_dlq_letter *letter = &view->letter;
	int rc = loadletter_write(&r->load, letter, err);

	if (rc)
		return rc;
	if (opt_flag(r->args, "json")) {
		out_json(&r->cli->out, json_pack("{s:I, s:o}", "id", (json_int_t)letter->id, "to",
						 text_json(loadletter_target(&r->load))));
		out_str(&r->cli->out, "\n");
		return 0;
	}
	out_printf(&r->cli->out, "%" PRIu64 " -> %s\n", letter->id, loadletter_target(&r->load));
	return 0;
}

/* *sealed: the letter did not open, which says nothing about the log. */
static int drive(struct redrive *r, const struct sl_dlq_letter *letter, int *sealed, struct sl_err *err)
{
	struct letter_view view;
	int rc = letter_view(&view, r->cli, letter, opt_str(r->args, "key-file"), err);

	if (!rc && !view.opened) /* sealed bytes are no record */
		rc = sl_err_set(err, SL_EKEY, "it is sealed; give the key file of its log with --key-file");
	*sealed = rc != 0;
	if (!rc && loadletter_is(letter) && !opt_given(r->args, "to-wal"))
		rc = write_row(r, &view, err);
	else if (!rc)
		rc = append(r, &view, err);
	letter_view_end(&view);
	return rc;
}

static int on_letter(const struct sl_dlq_letter *letter, void *ctx)
{
	struct redrive *r = ctx;
	struct sl_err err = SL_ERR_INIT;
	int rc, sealed = 0;

	if (stop_requested() || out_failed(&r->cli->out))
		return SL_ECANCELLED;
	rc = drive(r, letter, &sealed, &err);
	if (!rc)
		return 0;
	if (stop_requested())
		return SL_ECANCELLED;
	cli_say(r->cli, SL_LOG_ERROR, "letter %" PRIu64 " stays: %s", letter->id, err.msg);
	if (!r->exit_code)
		r->exit_code = sl_err_exit_code(err.code);
	/* A log or target that cannot be opened or written will not take the next letter either; a letter that is too
	 * big, is refused, names no place or stays sealed says nothing about the others. */
	return sealed || rc == SL_ETOOBIG || rc == SL_EINVAL || rc == SL_EREFUSED || rc == SL_EDATA ? rc
												    : SL_ECANCELLED;
}

static int redrive_all(struct redrive *r, sl_dlq *q)
{
	struct sl_err err = SL_ERR_INIT;
	uint64_t done = 0, failed = 0;
	int rc = sl_dlq_redrive(q, on_letter, r, &done, &failed, &err);

	if (stop_requested())
		return cli_interrupted(r->cli);
	if (r->exit_code)
		return r->exit_code;
	if (rc && !out_failed(&r->cli->out))
		return cli_fail(r->cli, &err, r->dlq_dir);
	return EXIT_OK;
}

static int run(struct cli *cli, const struct parsed *args)
{
	struct redrive r = {.cli = cli, .args = args, .dlq_dir = args->operands[0]};
	struct sl_err err = SL_ERR_INIT;
	struct walfile file;
	sl_dlq *q = NULL;
	int rc = 0;

	if (opt_given(args, "to-wal") && opt_given(args, "to"))
		return cli_usage(cli, "--to-wal and --to exclude each other");
	if (opt_given(args, "to-wal"))
		rc = walfile_split(cli, opt_str(args, "to-wal"), &file);
	if (!rc && opt_given(args, "to-wal"))
		rc = walfile_check_folder(cli, file.dir);
	rc = rc ? rc : letters_open(cli, r.dlq_dir, 0, &q);
	if (rc)
		return rc;
	rc = loadletter_init(&r.load, cli, opt_str(args, "to")) ? EXIT_INTERNAL : redrive_all(&r, q);
	loadletter_fini(&r.load);
	sl_dlq_close(q);
	if (close_log(&r, &err) && !rc)
		rc = cli_fail(cli, &err, r.open_path);
	return rc;
}

static const struct opt opts_table[] = {
	{.name = "to-wal",
	 .kind = OPT_STRING,
	 .arg = "FILE",
	 .help = "The log that takes the items, whatever their source"},
	{.name = "to",
	 .kind = OPT_STRING,
	 .arg = "URL",
	 .help = "Where letters of 'sluice load' go instead of the URL that they remember, with the same table and "
		 "columns; where those of 'sluice export' go, to a table with the name of the dataset"},
	WALFILE_OPT_KEY_FILE,
	WALFILE_OPT_LOCK_WAIT,
	WALFILE_OPT_JSON,
	{.name = NULL},
};

const struct command cmd_dlq_redrive = {
	.name = "dlq redrive",
	.operands = "DIR",
	.summary = "send letters to where they were going",
	.opts = opts_table,
	.description =
		"A letter of the source wal:<id> is appended to that log as a new record, when its target names "
		"<id>.wal or DIR lies beside it; a letter of 'sluice load' is written to the target it remembers, or "
		"to that of --to; a row that 'sluice export' has diverted goes to that of --to, as it was in the "
		"input. "
		"With --to-wal every item goes into that log. Prints the letter's id and the new "
		"sequence or the target, and acknowledges the letter after the record is durable or the row written. "
		"A letter that is refused again stays, with why on stderr, and the status is 65; so does one that "
		"does not say where it was going (64). A crash can repeat an item, never lose one. A sealed "
		"letter, of an encrypted log, is opened with --key-file; without the key, or with a wrong one, it "
		"stays and the status is 78. Passwords are not in letters: PGPASSWORD, PGPASSFILE, "
		"SLUICE_HTTP_TOKEN and the token file and header file of the load are read, or give --to.",
	.example = "sluice dlq redrive ./demo.dead --to-wal ./demo.wal\nsluice dlq redrive ./sluice-dead-letters",
	.run = run,
};
