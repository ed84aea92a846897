/* SPDX-License-Identifier: Apache-2.0 */
/* sluice dlq list, show, export and purge: read dead letters, and put them away. */
#include "commands.h"
#include "letter.h"
#include "stop.h"
#include "text.h"
#include "values.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

typedef void print_fn(struct out *out, const struct sl_dlq_letter *letter);

struct listing {
	struct cli *cli;
	print_fn *print;
	uint64_t letters;
	int64_t before_ms; /* counting for purge: only what last failed before it; 0: all */
};

static int on_letter(const struct sl_dlq_letter *letter, void *ctx)
{
	struct listing *l = ctx;

	if (l->before_ms && letter->last_failed_ms >= l->before_ms)
		return 0;
	l->letters++;
	if (l->print)
		l->print(&l->cli->out, letter);
	if (out_failed(&l->cli->out))
		return SL_EIO;
	return stop_requested() ? SL_ECANCELLED : 0;
}

/* The exit code of a walk that ended with rc. Damage is told, and is 65 when nothing else is wrong. */
static int walk_result(struct cli *cli, sl_dlq *q, int rc, const struct sl_err *err, const char *dir)
{
	struct sl_dlq_stats stats = {.struct_size = sizeof(stats)};

	if (out_failed(&cli->out))
		return EXIT_OK; /* told at the end */
	if (rc)
		return stop_requested() ? cli_interrupted(cli) : cli_fail(cli, err, dir);
	if (sl_dlq_get_stats(q, &stats, NULL) || !stats.damaged)
		return EXIT_OK;
	cli_say(cli, SL_LOG_ERROR, "%s: %" PRIu64 " damaged letters were passed over", dir, stats.damaged);
	return EXIT_BAD_DATA;
}

static int list_letters(struct cli *cli, const char *dir, int all, print_fn *print)
{
	struct listing l = {.cli = cli, .print = print};
	struct sl_err err = SL_ERR_INIT;
	sl_dlq *q = NULL;
	int rc = letters_open(cli, dir, 1, &q);

	if (rc)
		return rc;
	rc = sl_dlq_list(q, all, on_letter, &l, &err);
	rc = walk_result(cli, q, rc, &err, dir);
	sl_dlq_close(q);
	return rc;
}

static int list_run(struct cli *cli, const struct parsed *args)
{
	return list_letters(cli, args->operands[0], opt_flag(args, "all"),
			    opt_flag(args, "json") ? letter_json : letter_line);
}

static int export_run(struct cli *cli, const struct parsed *args)
{
	return list_letters(cli, args->operands[0], opt_flag(args, "all"), letter_json);
}

static void print_item(struct out *out, const struct sl_dlq_letter *letter)
{
	out_write(out, letter->item, letter->item_len);
}

static int show_run(struct cli *cli, const struct parsed *args)
{
	struct listing l = {.cli = cli};
	struct sl_err err = SL_ERR_INIT;
	sl_dlq *q = NULL;
	int64_t id;
	int rc;

	if (value_int(args->operands[1], &id) || id < 1)
		return cli_usage(cli, "ID: '%s' is not a whole number from 1", args->operands[1]);
	l.print = opt_flag(args, "raw") ? print_item : opt_flag(args, "json") ? letter_json : letter_full;
	rc = letters_open(cli, args->operands[0], 1, &q);
	if (rc)
		return rc;
	rc = sl_dlq_show(q, (uint64_t)id, on_letter, &l, &err);
	sl_dlq_close(q);
	if (rc && !out_failed(&cli->out))
		return stop_requested() ? cli_interrupted(cli) : cli_fail(cli, &err, args->operands[0]);
	return EXIT_OK;
}

/* 0: go on. Destroying what somebody may still need takes a yes. */
static int confirm(struct cli *cli, const struct parsed *args, uint64_t letters)
{
	char answer[16];

	if (opt_flag(args, "yes") || letters == 0)
		return 0;
	if (!isatty(STDIN_FILENO))
		return cli_usage(cli, "%" PRIu64 " letters would be put away for good; confirm with --yes", letters);
	fprintf(stderr, "Put %" PRIu64 " letters away for good? [y/N] ", letters);
	fflush(stderr);
	if (fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y'))
		return 0;
	cli_say(cli, SL_LOG_ERROR, "nothing was purged");
	return EXIT_INTERRUPTED;
}

static int purge_letters(struct cli *cli, const struct parsed *args, sl_dlq *q)
{
	struct listing l = {.cli = cli, .before_ms = opt_num(args, "before")};
	struct sl_err err = SL_ERR_INIT;
	uint64_t purged = 0;
	int rc;

	if (sl_dlq_list(q, 0, on_letter, &l, &err))
		return stop_requested() ? cli_interrupted(cli) : cli_fail(cli, &err, args->operands[0]);
	rc = confirm(cli, args, l.letters);
	if (rc)
		return rc;
	if (sl_dlq_purge(q, l.before_ms, &purged, &err))
		return cli_fail(cli, &err, args->operands[0]);
	if (opt_flag(args, "json"))
		out_printf(&cli->out, "{\"purged\":%" PRIu64 "}\n", purged);
	else
		out_printf(&cli->out, "%" PRIu64 " letters purged\n", purged);
	return EXIT_OK;
}

static int purge_run(struct cli *cli, const struct parsed *args)
{
	sl_dlq *q = NULL;
	int rc = letters_open(cli, args->operands[0], 0, &q);

	if (rc)
		return rc;
	rc = purge_letters(cli, args, q);
	sl_dlq_close(q);
	return rc;
}

#define OPT_ALL                                                                                                        \
	{                                                                                                              \
		.name = "all", .letter = 'a', .kind = OPT_FLAG, .help = "Also letters that were re-driven or purged"   \
	}
#define OPT_JSON_LETTER                                                                                                \
	{                                                                                                              \
		.name = "json", .letter = 'j', .kind = OPT_FLAG, .help = "One JSON object a letter, with its payload"  \
	}

static const struct opt list_opts[] = {OPT_ALL, OPT_JSON_LETTER, {.name = NULL}};
static const struct opt show_opts[] = {
	OPT_JSON_LETTER,
	{.name = "raw", .kind = OPT_FLAG, .help = "Only the bytes of the item"},
	{.name = NULL},
};
static const struct opt export_opts[] = {
	OPT_ALL,
	{.name = "json", .letter = 'j', .kind = OPT_FLAG, .help = "Accepted; the export is always JSON lines"},
	{.name = NULL},
};
static const struct opt purge_opts[] = {
	{.name = "before",
	 .kind = OPT_TIME,
	 .arg = "TIME",
	 .help = "Only letters that last failed before 2024-05-01, 2024-05-01T12:00:00Z or 7d (so long ago)"},
	{.name = "yes", .letter = 'y', .kind = OPT_FLAG, .help = "Do not ask"},
	{.name = "json", .letter = 'j', .kind = OPT_FLAG, .help = "Print {\"purged\":N}"},
	{.name = NULL},
};

const struct command cmd_dlq_list = {
	.name = "dlq list",
	.operands = "DIR",
	.summary = "list what could not be delivered",
	.opts = list_opts,
	.description = "Prints one line a letter: id, last failure, class of the error, attempts, source and position, "
		       "error. Nothing is locked or changed. Damaged letters are passed over and counted, and the "
		       "status is 65.",
	.example = "sluice dlq list ./demo.dead\nsluice dlq list --json ./demo.dead | jq -r .error",
	.run = list_run,
};

const struct command cmd_dlq_show = {
	.name = "dlq show",
	.operands = "DIR ID",
	.summary = "show one letter and its item",
	.opts = show_opts,
	.description = "Prints every field of a letter and its item, escaped; --raw prints the item as it is.",
	.example = "sluice dlq show ./demo.dead 3\nsluice dlq show --raw ./demo.dead 3 > item",
	.run = show_run,
};

const struct command cmd_dlq_export = {
	.name = "dlq export",
	.operands = "DIR",
	.summary = "print all letters as JSON lines",
	.opts = export_opts,
	.description = "The same as 'sluice dlq list --json'.",
	.example = "sluice dlq export ./demo.dead > letters.jsonl",
	.run = export_run,
};

const struct command cmd_dlq_purge = {
	.name = "dlq purge",
	.operands = "DIR",
	.summary = "put letters away for good",
	.opts = purge_opts,
	.description = "Acknowledges the letters and removes files that hold no others. Asks first on a terminal; "
		       "elsewhere it "
		       "needs --yes.",
	.example = "sluice dlq purge ./demo.dead --before 30d --yes",
	.run = purge_run,
};
