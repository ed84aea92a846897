/* SPDX-License-Identifier: Apache-2.0 */
/* sluice dlq list, show, export and purge: read dead letters, and discard them. */
#include "commands.h"
#include "deadletter.h"
#include "stop.h"
#include "text.h"
#include "values.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

typedef void print_fn(struct out *out, const struct deadletter_view *view);

struct listing {
	struct cli *cli;
	print_fn *print;
	bool rows; /* print them as rows of the table */
	struct table table;
	const char *key_file; /* NULL: sealed items stay sealed */
	bool raw;             /* print nothing of a dead letter whose item stays sealed */
	int exit_code;        /* of the first dead letter that did not open */
	uint64_t n_letters;
	int64_t before_ms; /* counting for purge: only what last failed before it; 0: all */
};

/* A dead letter that does not open is printed as it is, and reported. */
static int on_letter(const struct sl_dlq_letter *letter, void *ctx)
{
	struct listing *l = ctx;
	struct sl_err err = SL_ERR_INIT;
	struct deadletter_view view;
	int rc;

	/* purge counts with the rule by which it purges. */
	if (l->before_ms && letter->last_failed_ms >= l->before_ms)
		return 0;
	l->n_letters++;
	if (l->print != NULL || l->rows) {
		rc = deadletter_view(&view, l->cli, letter, l->key_file, &err);
		if (rc == 0 && !view.opened && l->raw)
			rc = sl_err_set(&err, SL_EKEY,
					"dead letter %" PRIu64
					" is sealed; give the key file of its log with --key-file",
					letter->id);
		/* With --raw the output is the item and nothing else. */
		if (l->rows)
			deadletter_row(&l->table, &view);
		else if (view.opened || !l->raw)
			l->print(&l->cli->out, &view);
		if (rc != 0)
			cli_say(l->cli, SL_LOG_ERROR, "%s", err.msg);
		if (rc != 0 && !l->exit_code)
			l->exit_code = sl_err_exit_code(rc);
		deadletter_view_end(&view);
	}
	return cli_stopped(l->cli);
}

/* list and export. Damage is reported, and is 65 when nothing else is wrong. */
static int list_run(struct cli *cli, const struct parsed *args)
{
	bool json = args->command == &cmd_dlq_export || opt_flag(args, "json");
	struct listing l = {.cli = cli,
			    .print = json ? deadletter_json : NULL,
			    .rows = !json,
			    .key_file = opt_str(args, "key-file")};
	struct sl_dlq_stats stats = {.struct_size = sizeof(stats)};
	struct sl_err err = SL_ERR_INIT;
	const char *dir = args->operands[0];
	char count[TEXT_COUNT_BYTES];
	sl_dlq *q = NULL;
	int rc = deadletters_open(cli, dir, true, &q);

	if (rc != 0)
		return rc;
	/* Damage does not end the list: what can be read is printed. */
	deadletter_table(&l.table, &cli->out);
	rc = sl_dlq_list(q, opt_flag(args, "all"), on_letter, &l, &err);
	table_end(&l.table);
	if (out_failed(&cli->out)) {
		rc = EXIT_OK; /* cli_finish reports it */
	} else {
		if (rc != 0) {
			rc = stop_requested() ? cli_interrupted(cli) : cli_fail(cli, &err, dir);
		} else if (!sl_dlq_get_stats(q, &stats, NULL) && stats.damaged) {
			cli_say(cli, SL_LOG_ERROR, "%s: %s skipped", dir,
				text_count(count, stats.damaged, "damaged dead letter"));
			rc = EXIT_BAD_DATA;
		}
	}
	sl_dlq_close(q);
	if (rc != 0)
		return rc;
	return l.exit_code;
}

static void print_item(struct out *out, const struct deadletter_view *view)
{
	out_write(out, view->letter.item, view->letter.item_len);
}

static int dlq_show_run(struct cli *cli, const struct parsed *args)
{
	struct listing l = {.cli = cli, .key_file = opt_str(args, "key-file"), .raw = opt_flag(args, "raw")};
	struct sl_err err = SL_ERR_INIT;
	sl_dlq *q = NULL;
	int64_t id;
	int rc;

	if (value_int(args->operands[1], &id) || id < 1)
		return cli_usage(cli, "ID: '%s' is not a whole number from 1", args->operands[1]);
	/* Raw bytes, JSON or text. */
	l.print = l.raw ? print_item : opt_flag(args, "json") ? deadletter_json : deadletter_full;
	rc = deadletters_open(cli, args->operands[0], true, &q);
	if (rc != 0)
		return rc;
	rc = sl_dlq_show(q, (uint64_t)id, on_letter, &l, &err);
	sl_dlq_close(q);
	if (rc == 0)
		return l.exit_code;
	if (out_failed(&cli->out))
		return EXIT_OK; /* cli_finish reports it */
	if (stop_requested())
		return cli_interrupted(cli);
	if (err.code == SL_ENOENT) /* the folder is there: it is the ID that is wrong */
		sl_err_set(&err, SL_EDATA, "%.150s has no dead letter %s; 'sluice dlq list --all' shows all",
			   args->operands[0], args->operands[1]);
	return cli_fail(cli, &err, args->operands[0]);
}

static int dlq_purge_run(struct cli *cli, const struct parsed *args)
{
	struct listing l = {.cli = cli, .before_ms = opt_num(args, "before")};
	const char *dir = args->operands[0];
	char answer[16] = "", count[TEXT_COUNT_BYTES];
	struct sl_err err = SL_ERR_INIT;
	uint64_t purged = 0;
	sl_dlq *q = NULL;
	int rc = deadletters_open(cli, dir, false, &q);

	if (rc != 0)
		return rc;
	/* How many it would be, for the question. */
	if (sl_dlq_list(q, false, on_letter, &l, &err)) {
		rc = stop_requested() ? cli_interrupted(cli) : cli_fail(cli, &err, dir);
		goto end;
	}
	/* Destroying what may still be needed takes a yes. */
	if (!opt_flag(args, "yes") && l.n_letters > 0) {
		text_count(count, l.n_letters, "dead letter");
		if (!isatty(STDIN_FILENO)) {
			rc = cli_usage(cli, "%s would be discarded for good; confirm with --yes", count);
			goto end;
		}
		fprintf(stderr, "Discard %s for good? [y/N] ", count);
		fflush(stderr);
		if (fgets(answer, sizeof(answer), stdin) == NULL || (answer[0] != 'y' && answer[0] != 'Y')) {
			cli_say(cli, SL_LOG_ERROR, "nothing was purged");
			rc = EXIT_INTERRUPTED;
			goto end;
		}
	}
	if (sl_dlq_purge(q, l.before_ms, &purged, &err))
		rc = cli_fail(cli, &err, dir);
	else if (opt_flag(args, "json"))
		out_printf(&cli->out, "{\"purged\":%" PRIu64 "}\n", purged);
	else
		out_printf(&cli->out, "%s purged\n", text_count(count, purged, "dead letter"));
end:
	sl_dlq_close(q);
	return rc;
}

#define OPT_ALL                                                                                                        \
	{                                                                                                              \
		.name = "all", .letter = 'a', .kind = OPT_FLAG,                                                        \
		.help = "Also list dead letters that were redriven or purged"                                          \
	}
#define OPT_KEY_FILE                                                                                                   \
	{                                                                                                              \
		.name = "key-file", .kind = OPT_STRING, .arg = "FILE",                                                 \
		.help = "Open sealed dead letters with the key of their log: 32 bytes, raw or as 64 hexadecimal "      \
			"digits, mode 0600"                                                                            \
	}

static const struct opt list_opts[] = {
	OPT_ALL, OPT_JSON("Print one JSON object per dead letter, with its payload"), OPT_KEY_FILE, {.name = NULL}};
static const struct opt show_opts[] = {
	OPT_JSON("Print one JSON object per dead letter, with its payload"),
	{.name = "raw", .kind = OPT_FLAG, .help = "Print only the bytes of the item"},
	OPT_KEY_FILE,
	{.name = NULL},
};
static const struct opt export_opts[] = {
	OPT_ALL,
	OPT_JSON("Accepted for consistency; the export is always JSON lines"),
	OPT_KEY_FILE,
	{.name = NULL},
};
static const struct opt purge_opts[] = {
	{.name = "before",
	 .kind = OPT_TIME,
	 .arg = "TIME",
	 .help = "Purge only dead letters that last failed before TIME: 2024-05-01, 2024-05-01T12:00:00Z or 7d (7 days "
		 "ago)"},
	{.name = "yes", .letter = 'y', .kind = OPT_FLAG, .help = "Do not ask for confirmation"},
	OPT_JSON("Print {\"purged\":N}"),
	{.name = NULL},
};

const struct command cmd_dlq_list = {
	.name = "dlq list",
	.operands = "DIR",
	.summary = "list items that could not be delivered",
	.opts = list_opts,
	.description =
		"Prints one line per dead letter: id, last failure, class of the error, attempts, source and position, "
		"error. Nothing is locked or changed. Damaged dead letters are skipped and counted, and the status is "
		"65. The dead letters of an encrypted log are sealed: --json has their payload only with --key-file, "
		"and sealed_b64 without; a key that does not open one is status 78.",
	.example = "sluice dlq list ./demo.dead\nsluice dlq list --json ./demo.dead | jq -r .error",
	.run = list_run,
};

const struct command cmd_dlq_show = {
	.name = "dlq show",
	.operands = "DIR ID",
	.summary = "show one dead letter and its item",
	.opts = show_opts,
	.description = "Prints every field of a dead letter and its item, escaped; --raw prints the item as it is. A "
		       "sealed item is shown only with --key-file; without it --raw is status 78. An ID that the "
		       "folder does not have is status 65.",
	.example = "sluice dlq show ./demo.dead 3\nsluice dlq show --raw ./demo.dead 3 > item",
	.run = dlq_show_run,
};

const struct command cmd_dlq_export = {
	.name = "dlq export",
	.operands = "DIR",
	.summary = "print all dead letters as JSON lines",
	.opts = export_opts,
	.description = "The same as 'sluice dlq list --json'.",
	.example = "sluice dlq export ./demo.dead > letters.jsonl\n"
		   "sluice dlq export ./demo.dead | jq .error",
	.run = list_run,
};

const struct command cmd_dlq_purge = {
	.name = "dlq purge",
	.operands = "DIR",
	.summary = "discard dead letters for good",
	.opts = purge_opts,
	.description = "Acknowledges the dead letters and removes files that hold no others. Asks first on a terminal; "
		       "elsewhere it needs --yes.",
	.example = "sluice dlq purge ./demo.dead\n"
		   "sluice dlq purge ./demo.dead --before 30d --yes",
	.run = dlq_purge_run,
};
