/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sluice command: find the command, parse its options, run it, and see to it that nothing that was to be printed
 * is lost in silence. Everything it does goes through the public headers.
 */
#include "commands.h"
#include "stop.h"

#include <errno.h>
#include <fcntl.h>
#include <sluice/version.h>
#include <string.h>
#include <unistd.h>

const struct group groups[] = {
	{"jobs", "jobs in a store: list, show, follow, wait for, change and clean up"},
	{"cron", "recurring schedules"},
	{"config", "the configuration of a server"},
	{"export", "exports to Parquet: status, gaps and backfill"},
	{"audit", "the audit chain of an export: verify, show, sign its head"},
	{"backup", "backups: create, list, restore, check and forget snapshots"},
	{"wal", "the write-ahead log: append, read, check, recover and archive"},
	{"parquet", "Parquet files: rows, columns and statistics"},
	{"dlq", "dead letters: items that could not be delivered, and why"},
	{NULL, NULL},
};

#define LISTED(name) &cmd_##name
const struct command *const commands[] = {COMMANDS(LISTED), NULL};

const struct command *command_find(const char *word1, const char *word2)
{
	for (int i = 0; commands[i]; i++) {
		const char *name = commands[i]->name;
		size_t n = strlen(word1);

		if (strncmp(name, word1, n) != 0)
			continue;
		if (word2 != NULL ? name[n] == ' ' && strcmp(name + n + 1, word2) == 0 : name[n] == '\0')
			return commands[i];
	}
	return NULL;
}

const struct group *group_find(const char *word)
{
	for (int i = 0; groups[i].name; i++) {
		if (strcmp(groups[i].name, word) == 0)
			return &groups[i];
	}
	return NULL;
}

static const struct opt help_opts[] = {
	{.name = "all", .letter = 'a', .kind = OPT_FLAG, .help = "List all commands, topics and global options"},
	{.name = "json", .kind = OPT_FLAG, .help = "Print every command, option and exit status as one JSON document"},
	{.name = NULL},
};

static int help_run(struct cli *cli, const struct parsed *args)
{
	const char *word1 = args->operands[0], *word2 = args->operands[1];
	const struct command *command = word1 != NULL ? command_find(word1, word2) : NULL;
	const struct group *group = word1 != NULL && word2 == NULL ? group_find(word1) : NULL;
	const struct topic *topic = word1 != NULL && word2 == NULL ? topic_find(word1) : NULL;
	char hint[SUGGEST_BYTES];

	/* A command wins over a group of the same name, a group over a topic. */
	if (opt_flag(args, "json"))
		help_json(&cli->out);
	else if (opt_flag(args, "all"))
		help_all(&cli->out);
	else if (word1 == NULL)
		help_main(&cli->out);
	else {
		if (command != NULL)
			help_command(&cli->out, command);
		else {
			if (group != NULL)
				help_group(&cli->out, group);
			else {
				if (topic != NULL)
					help_topic(&cli->out, topic);
				else {
					if (word2 != NULL)
						return cli_usage(cli, "unknown command '%.100s %.100s'%s", word1, word2,
								 group_find(word1) != NULL
									 ? suggest_command(word1, word2, hint)
									 : "");
					else
						return cli_usage(cli, "no command or topic '%.100s'%s", word1,
								 suggest_help(word1, hint));
				}
			}
		}
	}
	return EXIT_OK;
}

const struct command cmd_help = {
	.name = "help",
	.operands = "COMMAND|TOPIC SUBCOMMAND",
	.optional = 2,
	.summary = "explain a command or a topic",
	.opts = help_opts,
	.description = "Prints what 'sluice COMMAND --help' prints, or explains a topic with examples. Without a "
		       "command, prints an overview.",
	.example = "sluice help first-steps\nsluice help wal append",
	.run = help_run,
};

/* --version and --help before a command is known. 1: dealt with. */
static int early_exit(struct cli *cli, const struct parsed *args, const struct group *group)
{
	if (opt_flag(args, "version")) {
		out_printf(&cli->out, "sluice %s\n", sl_version());
		return 1;
	}
	if (opt_flag(args, "help")) {
		if (group != NULL)
			help_group(&cli->out, group);
		else
			help_main(&cli->out);
		return 1;
	}
	return 0;
}

/* Read the words that name a command. *done is set when there is nothing left to do; the result is the exit code. */
static int find_command(struct cli *cli, struct parsed *args, int argc, char **argv, int *done)
{
	const struct group *group = NULL;
	const char *word1, *next, *word2 = NULL;
	char hint[SUGGEST_BYTES];
	int rc = opts_parse_globals(cli, args, argc, argv);

	/* Global options may come before the command, and between its two words. */
	*done = 1;
	if (rc != 0 || early_exit(cli, args, NULL))
		return rc;
	if (args->first_free >= argc) {
		help_main(&cli->out);
		return EXIT_OK;
	}
	word1 = argv[args->first_free++];
	/* A group that is a command as well ("export") is one where one of its commands follows. */
	next = args->first_free < argc ? argv[args->first_free] : NULL;
	if (command_find(word1, NULL) == NULL || (next != NULL && command_find(word1, next) != NULL))
		group = group_find(word1);
	if (group != NULL) {
		cli->command = group->name;
		rc = opts_parse_globals(cli, args, argc, argv);
		if (rc != 0 || early_exit(cli, args, group))
			return rc;
		if (args->first_free >= argc)
			return cli_usage(cli, "no command given");
		word2 = argv[args->first_free++];
	}
	/* Both words together, or the nearest known ones as a hint. */
	args->command = command_find(word1, word2);
	if (args->command == NULL)
		return cli_usage(cli, "unknown command '%.100s'%s", word2 != NULL ? word2 : word1,
				 suggest_command(word2 != NULL ? word1 : NULL, word2 != NULL ? word2 : word1, hint));
	cli->command = args->command->name;
	*done = 0;
	return 0;
}

static int run(struct cli *cli, int argc, char **argv)
{
	struct parsed args;
	int done, rc;

	opts_init(&args);
	args.first_free = 1;
	rc = find_command(cli, &args, argc, argv, &done);
	if (done)
		return rc;
	/* Options and operands of the command, then its work. */
	rc = opts_parse_command(cli, &args, argc, argv);
	if (rc == 0)
		cli_configure(cli, (enum sl_log_format)opt_num(&args, "log-format"),
			      (enum sl_log_level)(opt_num(&args, "log-level") + 1), opt_flag(&args, "quiet"));
	cli->out.utc = rc == 0 && opt_flag(&args, "utc");
	if (rc == 0 && opt_flag(&args, "version"))
		out_printf(&cli->out, "sluice %s\n", sl_version());
	else if (rc == 0 && opt_flag(&args, "help"))
		help_command(&cli->out, args.command);
	else if (rc == 0)
		rc = args.command->run(cli, &args);
	opts_fini(&args);
	return rc;
}

int main(int argc, char **argv)
{
	struct cli cli;
	int failed;

	/* Files that the command opens must not land on the standard descriptors: put something there that fails. */
	for (int fd = 0; fd <= 2; fd++) {
		/* Reading 0 and writing 1 or 2 give EBADF, as they would have. */
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
			return EXIT_OUTPUT;
	}
	/* Before anything can block: from here on a signal asks the command to end. */
	cli_init(&cli);
	failed = stop_install();
	if (failed) {
		cli_say(&cli, SL_LOG_ERROR, "signals: %s", strerror(failed));
		return EXIT_INTERNAL;
	}
	return cli_finish(&cli, run(&cli, argc, argv));
}
