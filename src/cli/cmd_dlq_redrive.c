/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice dlq redrive: each dead letter's item goes where it was going: into a log as a new record, or to the target of
 * a load as a row. A dead letter is acknowledged after its record is durable or its row written, so that a crash in
 * between repeats it and never loses it.
 */
#include "base/time.h"
#include "commands.h"
#include "deadletter.h"
#include "load/redrive.h"
#include "stop.h"
#include "text.h"
#include "waiting.h"
#include "walfile.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct redrive {
	struct cli *cli;
	const struct parsed *args;
	const char *dlq_dir;
	sl_wal *wal; /* of open_path; NULL: none yet */
	char open_path[PATH_MAX];
	struct load_redrive load;
	int exit_code; /* of the first dead letter that stayed */
};

static bool is_file(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static int close_log(struct redrive *r, struct sl_err *err)
{
	int rc = r->wal != NULL ? sl_wal_close(r->wal, err) : 0;

	r->wal = NULL;
	return rc;
}

/* Append the item to the log of --to-wal, or to the one that it came from. A new log is never made for the latter: the
 * path may have meant another place. */
static int append_letter(struct redrive *r, const struct sl_dlq_letter *letter, struct sl_err *err)
{
	struct sl_wal_opts opts = walfile_opts(r->cli, r->args);
	int64_t started_ms = sl__clock_ms();
	const char *path = opt_str(r->args, "to-wal"), *id = letter->source + 4;
	const char *target = letter->target != NULL ? letter->target : "";
	const char *slash = strrchr(target, '/');
	char name[NAME_MAX + 1], next_to[PATH_MAX];
	struct walfile file;
	uint64_t sequence;
	int rc;

	/* The target of wal:<id>. Else the dead letters of <dir>/<id>.wal are in <dir>/<id>.dead, unless configured
	 * otherwise. */
	if (path == NULL && strncmp(letter->source, "wal:", 4) == 0 && *id && strchr(id, '/') == NULL &&
	    (size_t)snprintf(name, sizeof(name), "%s.wal", id) < sizeof(name)) {
		if (strcmp(slash != NULL ? slash + 1 : target, name) == 0 && is_file(target))
			path = strlen(target) < PATH_MAX ? target : NULL;
		else if ((size_t)snprintf(next_to, sizeof(next_to), "%s/../%s", r->dlq_dir, name) < sizeof(next_to) &&
			 is_file(next_to))
			path = next_to;
	}
	if (path == NULL)
		return sl_err_set(err, SL_EINVAL, "the dead letter does not name a log; give --to-wal=FILE");

	/* One log stays open until a dead letter is for another. */
	if (r->wal == NULL || strcmp(r->open_path, path) != 0) {
		rc = close_log(r, err);
		if (rc != 0)
			return rc;
		if (walfile_split(r->cli, path, &file))
			return sl_err_set(err, SL_EINVAL, "%s is not the name of a log", path);
		opts.wal_dir = file.dir;
		opts.max_pending_bytes = SL_UNLIMITED;
		do
			rc = sl_wal_open(&r->wal, file.id, &opts, err);
		while (rc != 0 && walfile_lock_again(r->args, rc, started_ms));
		if (rc != 0)
			return rc;
		snprintf(r->open_path, sizeof(r->open_path), "%s", path);
	}
	rc = sl_wal_append(r->wal, letter->item, letter->item_len, &sequence, err);
	if (rc != 0)
		return rc;
	out_printf(&r->cli->out,
		   opt_flag(r->args, "json") ? "{\"id\":%" PRIu64 ",\"sequence\":%" PRIu64 "}\n"
					     : "%" PRIu64 " -> %" PRIu64 "\n",
		   letter->id, sequence);
	return 0;
}

static int on_letter(const struct sl_dlq_letter *letter, void *ctx)
{
	struct redrive *r = ctx;
	struct out *out = &r->cli->out;
	struct sl_err err = SL_ERR_INIT;
	struct deadletter_view view;
	bool sealed; /* it did not open, which says nothing about the log */
	int rc;

	if (stop_requested() || out_failed(out))
		return SL_ECANCELLED;
	/* Open the item, send it, report where it went. */
	rc = deadletter_view(&view, r->cli, letter, opt_str(r->args, "key-file"), &err);
	if (rc == 0 && !view.opened) /* sealed bytes are not a record */
		rc = sl_err_set(&err, SL_EKEY, "the item is sealed; give the key file of its log with --key-file");
	sealed = rc != 0;
	if (rc == 0 && (!sl__load_redrive_takes(letter) || opt_given(r->args, "to-wal"))) {
		rc = append_letter(r, &view.letter, &err);
	} else if (rc == 0) {
		rc = sl__load_redrive_write(&r->load, &view.letter, &err);
		if (rc == 0 && opt_flag(r->args, "json"))
			out_json_line(out, json_pack("{s:I, s:o}", "id", (json_int_t)letter->id, "to",
						     text_json(sl__load_redrive_target(&r->load))));
		else if (rc == 0)
			out_printf(out, "%" PRIu64 " -> %s\n", letter->id, sl__load_redrive_target(&r->load));
	}
	deadletter_view_end(&view);
	if (rc == 0)
		return 0;
	if (stop_requested())
		return SL_ECANCELLED;
	cli_say(r->cli, SL_LOG_ERROR, "dead letter %" PRIu64 " stays: %s", letter->id, err.msg);
	if (!r->exit_code)
		r->exit_code = sl_err_exit_code(err.code);
	/* A log or target that cannot be opened or written will not take the next dead letter either; a dead letter
	 * that is too big, is refused, names no place or stays sealed says nothing about the others. */
	return sealed || rc == SL_ETOOBIG || rc == SL_EINVAL || rc == SL_EREFUSED || rc == SL_EDATA ? rc
												    : SL_ECANCELLED;
}

static int dlq_redrive_run(struct cli *cli, const struct parsed *args)
{
	struct redrive r = {.cli = cli, .args = args, .dlq_dir = args->operands[0]};
	struct load_redrive_opts load = {.env = &cli->env,
					 .url = opt_str(args, "to"),
					 .token = getenv("SLUICE_HTTP_TOKEN"),
					 .stop_fd = stop_fd()};
	struct sl_err err = SL_ERR_INIT;
	uint64_t done = 0, failed = 0;
	struct walfile file;
	sl_dlq *q = NULL;
	int rc = 0;

	/* Options and folders first: nothing is sent before they are known to be right. */
	if (opt_given(args, "to-wal") && opt_given(args, "to"))
		return cli_usage(cli, "--to-wal and --to exclude each other");
	if (opt_given(args, "to-wal"))
		rc = walfile_split(cli, opt_str(args, "to-wal"), &file);
	if (rc == 0 && opt_given(args, "to-wal"))
		rc = walfile_check_folder(cli, file.dir);
	if (rc == 0)
		rc = deadletters_open(cli, r.dlq_dir, false, &q);
	if (rc != 0)
		return rc;
	if (sl__load_redrive_init(&r.load, &load, &err)) {
		rc = cli_fail(cli, &err, NULL);
	} else {
		rc = sl_dlq_redrive(q, on_letter, &r, &done, &failed, &err);
		if (stop_requested())
			rc = cli_interrupted(cli);
		else if (r.exit_code)
			rc = r.exit_code;
		else
			rc = rc != 0 && !out_failed(&cli->out) ? cli_fail(cli, &err, r.dlq_dir) : EXIT_OK;
	}
	if (sl__load_redrive_close(&r.load, &err)) {
		cli_say(cli, SL_LOG_ERROR, "%s", err.msg);
		waiting_abandon(cli, EXIT_INTERRUPTED);
	}
	sl_dlq_close(q);
	if (close_log(&r, &err) && rc == 0)
		rc = cli_fail(cli, &err, r.open_path);
	return rc;
}

static const struct opt dlq_redrive_opts[] = {
	OPT_TEXT("to-wal", 0, "FILE", "Append all items to this log, whatever their source"),
	OPT_TEXT("to", 0, "URL",
		 "Send dead letters of 'sluice load' to this URL instead of the one they name, with the same table and "
		 "columns; send those of 'sluice export' to a table with the name of the dataset"),
	WALFILE_OPT_KEY_FILE,
	WALFILE_OPT_LOCK_WAIT,
	OPT_JSON("Print JSON"),
	{.name = NULL},
};

const struct command cmd_dlq_redrive = {
	.name = "dlq redrive",
	.operands = "DIR",
	.summary = "send dead letters to their target again",
	.opts = dlq_redrive_opts,
	.description =
		"Appends a dead letter of the source wal:<id> to that log as a new record, if its target names "
		"<id>.wal or DIR is in the same folder as the log. Writes a dead letter of 'sluice load' to the target "
		"it names, or to that of --to, and a row that 'sluice export' diverted to that of --to, as it was in "
		"the input. With --to-wal, appends every item to that log. Prints the dead letter's id and the new "
		"sequence or the target, and acknowledges the dead letter once the record is durable or the row "
		"written. A dead letter that is refused again stays, with the reason on stderr (status 65); so does "
		"one that does not name its target (status 64). A crash can repeat an item, but never lose one. "
		"--key-file opens the sealed dead letters of an encrypted log; without the right key they stay (status "
		"78). Dead letters hold no passwords: set PGPASSWORD, PGPASSFILE, SLUICE_HTTP_TOKEN or the token and "
		"header files of the load, or give --to.",
	.example = "sluice dlq redrive ./demo.dead --to-wal ./demo.wal\nsluice dlq redrive ./sluice-dead-letters",
	.run = dlq_redrive_run,
};
