/* SPDX-License-Identifier: Apache-2.0 */
/* The help texts and `help --json`, made from the tables of commands and options. */
#include "commands.h"

#include "values.h"

#include <ctype.h>
#include <sluice/version.h>
#include <stdio.h>
#include <string.h>

static const struct {
	int code;
	const char *meaning;
} exit_codes[] = {
	{0, "done"},
	{64, "wrong usage: an unknown command or option, or a value out of range"},
	{65, "bad data: a damaged log, archive or export, an invalid file, a record that is too big, invalid JSON, a "
	     "chain that failed, rows that became dead letters"},
	{69, "unavailable: a database or another target cannot be reached"},
	{70, "internal error, or out of memory"},
	{73, "a file or folder could not be created"},
	{74, "input/output error: a file cannot be read or written or does not exist, the disk is full, standard "
	     "output is broken"},
	{75, "temporary failure, try again: in use by another process, records still pending, the time ran out, "
	     "interrupted by a signal"},
	{78, "configuration: a wrong or missing setting, schema or key, a format of a later version, a table that does "
	     "not fit"},
	{130, "'run' only: cancelled with Ctrl-C; 143 by SIGTERM"},
	{141, "the reader of standard output, such as head, closed its pipe"},
};

enum { N_EXIT_CODES = sizeof(exit_codes) / sizeof(exit_codes[0]), HELP_COLUMN = 26, HELP_WIDTH = 80 };

/* text with breaks between words, each further line indented. */
static void wrapped(struct out *out, const char *text, int indent)
{
	int at = indent;

	while (*text) {
		int n = (int)strcspn(text, " ");

		/* A word that does not fit begins a new line; one that is too long for any stands alone. */
		if (at > indent && at + 1 + n > HELP_WIDTH) {
			out_printf(out, "\n%*s", indent, "");
			at = indent;
		} else if (at > indent) {
			out_str(out, " ");
			at++;
		}
		out_write(out, text, (size_t)n);
		at += n;
		text += n + (text[n] == ' ');
	}
	out_str(out, "\n");
}

/* The whole sentence about an option: its help, what it takes, its default. */
static void say_option(char *to, size_t size, const struct opt *opt)
{
	char low[32], high[32];
	size_t used;

	snprintf(to, size, "%s", opt->help);
	used = strlen(to);
	/* "; 1 to 4096", ": a, b". Bounds are printed in the unit in which they are given on the command line. */
	if (opt->kind == OPT_ENUM) {
		for (int i = 0; opt->choices[i] != NULL && used < size; i++)
			used += (size_t)snprintf(to + used, size - used, "%s%s", i ? ", " : ": ", opt->choices[i]);
	} else if (opt->kind == OPT_INT) {
		snprintf(to + used, size - used, "; %lld to %lld", (long long)opt->min, (long long)opt->max);
	} else if (opt->kind == OPT_SIZE) {
		snprintf(to + used, size - used, "; %s to %s", value_write_size(low, opt->min),
			 value_write_size(high, opt->max));
	} else if (opt->kind == OPT_DURATION) {
		snprintf(to + used, size - used, "; %s to %s", value_write_duration(low, opt->min),
			 value_write_duration(high, opt->max));
	}
	used = strlen(to);
	if (opt->def != NULL)
		snprintf(to + used, size - used, " (default %s)", opt->def);
	else if (opt->required)
		snprintf(to + used, size - used, " (required)");
	used = strlen(to);
	if (opt->repeat)
		snprintf(to + used, size - used, " (may be repeated)");
}

static void help_options(struct out *out, const char *title, const struct opt *table)
{
	char left[64], right[512];
	int n;

	if (table == NULL || table->name == NULL)
		return;
	out_printf(out, "\n%s:\n", title);
	for (const struct opt *opt = table; opt->name; opt++) {
		/* Options without a letter are indented as if they had one, so that the names are in one column. */
		if (opt->letter)
			n = snprintf(left, sizeof(left), "  -%c, --%s", opt->letter, opt->name);
		else
			n = snprintf(left, sizeof(left), "      --%s", opt->name);
		if (opt->kind != OPT_FLAG)
			n += snprintf(left + n, sizeof(left) - (size_t)n, "=%s", opt->arg);
		say_option(right, sizeof(right), opt);
		out_str(out, left);
		/* A long name has its help on the next line. */
		if (n + 2 > HELP_COLUMN)
			out_printf(out, "\n%*s", HELP_COLUMN, "");
		else
			out_printf(out, "%*s", HELP_COLUMN - n, "");
		wrapped(out, right, HELP_COLUMN);
	}
}

/* The lines of an example; most: how many of them. */
static void help_examples(struct out *out, const char *lines, int most)
{
	for (const char *p = lines; *p && most-- > 0;) {
		int n = (int)strcspn(p, "\n");

		out_printf(out, "  %.*s\n", n, p);
		p += n + (p[n] == '\n');
	}
}

void help_command(struct out *out, const struct command *command)
{
	int needed = opts_operand_count(command->operands) - command->optional;
	const char *p = command->operands;

	out_printf(out, "Usage: sluice %s", command->name);
	/* Options that must be given; then operands, of which the optional ones are at the end, in brackets. */
	for (const struct opt *opt = command->opts; opt != NULL && opt->name != NULL; opt++) {
		if (opt->required)
			out_printf(out, " --%s=%s", opt->name, opt->arg);
	}
	for (int i = 0; *p; i++) {
		int n = (int)strcspn(p, " ");

		out_printf(out, i < needed ? " %.*s" : " [%.*s]", n, p);
		p += n + (p[n] == ' ');
	}
	out_printf(out, " [OPTION]...\n\n%c%s.\n\nExamples:\n", toupper((unsigned char)command->summary[0]),
		   command->summary + 1);
	help_examples(out, command->example, 2);
	help_options(out, "Options", command->opts);
	out_printf(out, "\nMore: man %s%.*s, sluice help exit-codes\n", command == &cmd_help ? "sluice" : "sluice-",
		   command == &cmd_help ? 0 : (int)strcspn(command->name, " "), command->name);
}

static bool in_group(const struct command *command, const char *group)
{
	size_t n = strlen(group);

	return strncmp(command->name, group, n) == 0 && command->name[n] == ' ';
}

static void list_commands(struct out *out, const char *group)
{
	for (int i = 0; commands[i]; i++) {
		if (in_group(commands[i], group))
			out_printf(out, "  sluice %-17s %s\n", commands[i]->name, commands[i]->summary);
	}
}

void help_group(struct out *out, const struct group *group)
{
	int n = 0;

	out_printf(out, "Usage: sluice %s COMMAND [ARGUMENT]...\n\n%c%s.\n\nCommands:\n", group->name,
		   toupper((unsigned char)group->summary[0]), group->summary + 1);
	list_commands(out, group->name);
	out_str(out, "\nExamples:\n");
	for (int i = 0; commands[i] && n < 2; i++) {
		if (in_group(commands[i], group->name)) {
			help_examples(out, commands[i]->example, 1);
			n++;
		}
	}
	out_printf(out, "\n'sluice help %s COMMAND' explains one. More: man sluice-%s\n", group->name, group->name);
}

/* What people want, and the commands and groups for it. A word that this build does not have is left out. */
static const struct {
	const char *want, *words, *what;
} wants[] = {
	{"Jobs", "up", "start a server with its dashboard and a worker"},
	{"", "run enqueue", "run a command as a job; add a job to the queue"},
	{"", "worker", "run commands for jobs"},
	{"", "jobs cron", "list, show, wait for, retry and cancel jobs; schedules"},
	{"Logs", "logs", "print the lines that were shipped"},
	{"", "ship", "send the lines of files to a server or a database"},
	{"", "wal", "the write-ahead log: append, read, check, archive"},
	{"Data", "load", "load CSV files and JSON lines into a database"},
	{"", "parquet", "read Parquet files"},
	{"", "dlq", "list, redrive and purge what could not be delivered"},
	{"Export", "export audit", "export numbered rows to Parquet, and prove it"},
	{"Backup", "backup", "create, list, restore and check encrypted snapshots"},
	{"Admin", "server config", "a server on a shared store; its settings"},
	{"", "demo", "watch jobs and their lines survive kill -9"},
};

/* "up, demo": those of a row that there are. */
static void known_words(char *to, size_t size, const char *words)
{
	size_t used = 0;

	*to = '\0';
	for (const char *p = words; *p && used < size;) {
		int n = (int)strcspn(p, " ");
		char word[32];

		(void)snprintf(word, sizeof(word), "%.*s", n, p);
		if (command_find(word, NULL) != NULL || group_find(word) != NULL)
			used += (size_t)snprintf(to + used, size - used, "%s%s", used ? ", " : "", word);
		p += n + (p[n] == ' ');
	}
}

void help_main(struct out *out)
{
	const char *want = "";
	char words[64];

	out_str(out, "sluice - a job queue that loses nothing; with logs, exports and backups\n\n"
		     "Usage: sluice COMMAND [ARGUMENT]...\n\n");
	for (size_t i = 0; i < sizeof(wants) / sizeof(wants[0]); i++) {
		if (*wants[i].want)
			want = wants[i].want;
		known_words(words, sizeof(words), wants[i].words);
		if (!*words)
			continue;
		out_printf(out, "  %-7s %-15s %s\n", want, words, wants[i].what);
		want = "";
	}
	out_str(out, "\nBegin with 'sluice help first-steps'. 'sluice help COMMAND' explains a command,\n"
		     "'sluice help --all' lists all commands and topics.\n");
}

static const char main_examples[] = "\nBegin with:\n"
				    "  sluice up --type hello='echo hello'   # server, dashboard and a worker\n"
				    "  sluice enqueue hello '{\"to\":\"ada\"}'   # a job; prints its number\n"
				    "  sluice jobs logs 1                    # every line that it wrote\n"
				    "  sluice help first-steps               # and so on\n";

void help_all(struct out *out)
{
	out_str(out, "Usage: sluice COMMAND [ARGUMENT]...\n");
	out_str(out, main_examples);
	out_str(out, "\nCommands ('sluice help COMMAND' explains one, with examples):\n");
	/* Commands of one word first, then the groups, and help itself last: the order in which a person needs
	 * them. */
	for (int i = 0; commands[i]; i++) {
		if (strchr(commands[i]->name, ' ') == NULL && commands[i] != &cmd_help)
			out_printf(out, "  sluice %-17s %s\n", commands[i]->name, commands[i]->summary);
	}
	for (int i = 0; groups[i].name; i++)
		list_commands(out, groups[i].name);
	out_printf(out, "  sluice %-17s %s\n", cmd_help.name, cmd_help.summary);
	out_str(out, "\nTopics ('sluice help TOPIC'):\n");
	for (const struct topic *t = topics; t->name; t++)
		out_printf(out, "  %-24s %s\n", t->name, t->summary);
	help_options(out, "Global options", opts_global);
}

static void help_exit_codes(struct out *out)
{
	out_str(out, "The status that a command exits with:\n\n");
	for (int i = 0; i < N_EXIT_CODES; i++) {
		out_printf(out, "  %3d  ", exit_codes[i].code);
		wrapped(out, exit_codes[i].meaning, 7);
	}
	out_str(out, "\n'sluice run' exits with the status of its command, 127 if it was not started.\n"
		     "\n"
		     "SIGINT (Ctrl-C) and SIGTERM end a command cleanly: with status 75 if it was not\n"
		     "finished, with 0 if it serves until then (up, server, worker, --follow). A\n"
		     "second one ends it immediately.\n");
	help_options(out, "Global options, before or after the command", opts_global);
}

void help_topic(struct out *out, const struct topic *topic)
{
	out_printf(out, "%s - %s\n\n", topic->name, topic->summary);
	if (topic->text != NULL)
		out_str(out, topic->text);
	else
		help_exit_codes(out);
}

static const char *const kind_names[] = {
	[OPT_FLAG] = "flag", [OPT_INT] = "int",       [OPT_DURATION] = "duration", [OPT_SIZE] = "size",
	[OPT_ENUM] = "enum", [OPT_STRING] = "string", [OPT_TIME] = "time"};

static json_t *json_options(const struct opt *table)
{
	json_t *list = json_array();

	for (const struct opt *opt = table; opt != NULL && opt->name != NULL; opt++) {
		json_t *j =
			json_pack("{s:s, s:s, s:s?, s:s?, s:b, s:s}", "name", opt->name, "kind", kind_names[opt->kind],
				  "arg", opt->arg, "default", opt->def, "required", opt->required, "help", opt->help);
		char letter[2] = {opt->letter, '\0'}, text[512];

		/* "text" is the sentence that --help prints, for generators of manuals; the other fields are for
		 * programs. */
		say_option(text, sizeof(text), opt);
		json_object_set_new(j, "text", json_string(text));
		json_object_set_new(j, "letter", opt->letter ? json_string(letter) : json_null());
		json_object_set_new(j, "repeat", json_boolean(opt->repeat));
		if (opt->kind == OPT_INT || opt->kind == OPT_SIZE || opt->kind == OPT_DURATION) {
			json_object_set_new(j, "min", json_integer(opt->min));
			json_object_set_new(j, "max", json_integer(opt->max));
		}
		if (opt->kind == OPT_ENUM) {
			json_t *choices = json_array();

			for (int i = 0; opt->choices[i]; i++)
				json_array_append_new(choices, json_string(opt->choices[i]));
			json_object_set_new(j, "choices", choices);
		}
		json_array_append_new(list, j);
	}
	return list;
}

void help_json(struct out *out)
{
	json_t *list = json_array();
	json_t *codes = json_object();
	json_t *by_word = json_object(), *by_topic = json_object();

	/* Commands keep their order; everything that is looked up by name is an object. */
	for (int i = 0; commands[i]; i++) {
		const struct command *c = commands[i];

		json_array_append_new(list, json_pack("{s:s, s:s, s:i, s:s, s:s, s:s, s:o}", "name", c->name,
						      "operands", c->operands, "optional_operands", c->optional,
						      "summary", c->summary, "description", c->description, "example",
						      c->example, "options", json_options(c->opts)));
	}
	for (int i = 0; groups[i].name; i++)
		json_object_set_new(by_word, groups[i].name, json_string(groups[i].summary));
	for (const struct topic *t = topics; t->name; t++)
		json_object_set_new(by_topic, t->name,
				    json_pack("{s:s, s:s?}", "summary", t->summary, "text", t->text));
	for (int i = 0; i < N_EXIT_CODES; i++) {
		char text[16];

		snprintf(text, sizeof(text), "%d", exit_codes[i].code);
		json_object_set_new(codes, text, json_string(exit_codes[i].meaning));
	}
	out_json_line(out, json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "version", sl_version(), "global_options",
				     json_options(opts_global), "groups", by_word, "commands", list, "topics", by_topic,
				     "exit_codes", codes));
}
