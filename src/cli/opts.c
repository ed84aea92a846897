/* SPDX-License-Identifier: Apache-2.0 */
/* The parser of command lines, driven by the tables of commands and options. */
#include "opts.h"

#include "base/time.h"
#include "commands.h"
#include "server/config/config.h"
#include "text.h"
#include "values.h"

#include <assert.h>
#include <sluice/adapter/io.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const log_formats[] = {"logfmt", "json", NULL};                /* as enum sl_log_format */
static const char *const log_levels[] = {"debug", "info", "warn", "error", NULL}; /* as enum sl_log_level, less 1 */

const struct opt opts_global[] = {
	{.name = "log-format",
	 .kind = OPT_ENUM,
	 .arg = "FORMAT",
	 .def = "logfmt",
	 .choices = log_formats,
	 .help = "Format of log records and errors on stderr"},
	{.name = "log-level",
	 .kind = OPT_ENUM,
	 .arg = "LEVEL",
	 .def = "warn",
	 .choices = log_levels,
	 .help = "Print only records of this level or above"},
	{.name = "quiet", .letter = 'q', .kind = OPT_FLAG, .help = "Print errors only: no warnings, no progress"},
	{.name = "utc", .kind = OPT_FLAG, .help = "Print times in UTC (default: local time). JSON is always UTC"},
	{.name = "help", .letter = 'h', .kind = OPT_FLAG, .help = "Print help and exit"},
	{.name = "version", .kind = OPT_FLAG, .help = "Print the version and exit"},
	{.name = NULL},
};

static int find_long(const struct opt *table, const char *name, size_t n)
{
	for (int i = 0; table != NULL && table[i].name != NULL; i++) {
		if (strlen(table[i].name) == n && strncmp(table[i].name, name, n) == 0)
			return i;
	}
	return -1;
}

static int find_letter(const struct opt *table, char letter)
{
	for (int i = 0; table != NULL && table[i].name != NULL; i++) {
		if (table[i].letter == letter)
			return i;
	}
	return -1;
}

/* The text of a value in its kind. 0, or -1. */
static int read_value(const struct opt *opt, const char *text, int64_t *num)
{
	/* The number is what the command works with; the text is kept beside it by the caller. */
	switch (opt->kind) {
	case OPT_INT:
		return value_int(text, num);
	case OPT_DURATION:
		return value_duration(text, num);
	case OPT_SIZE:
		return value_size(text, num);
	case OPT_TIME:
		return value_time(text, sl__clock_real_ms(), num);
	case OPT_ENUM:
		for (*num = 0; opt->choices[*num]; ++*num) {
			if (strcmp(opt->choices[*num], text) == 0)
				return 0;
		}
		return -1;
	case OPT_FLAG:
	case OPT_STRING:
		break;
	}
	*num = opt->kind == OPT_FLAG;
	return 0;
}

static bool has_range(const struct opt *opt)
{
	return opt->kind == OPT_INT || opt->kind == OPT_DURATION || opt->kind == OPT_SIZE;
}

static const char *write_bound(char to[32], const struct opt *opt, int64_t v)
{
	if (opt->kind == OPT_SIZE)
		return value_write_size(to, v);
	if (opt->kind == OPT_DURATION)
		return value_write_duration(to, v);
	snprintf(to, 32, "%lld", (long long)v);
	return to;
}

/* What a right value looks like, for an error message. */
static void expectation(char *to, size_t size, const struct opt *opt)
{
	char low[32], high[32];
	size_t used = 0;

	/* The bounds are part of the sentence, so that the next attempt is right. */
	if (has_range(opt)) {
		snprintf(to, size, "%s from %s to %s",
			 opt->kind == OPT_SIZE       ? "a size such as 64MiB,"
			 : opt->kind == OPT_DURATION ? "a duration such as 250ms, 60s or 5m,"
						     : "a whole number",
			 write_bound(low, opt, opt->min), write_bound(high, opt, opt->max));
		return;
	}
	if (opt->kind == OPT_TIME) {
		snprintf(to, size, "a time such as 2024-05-01, 2024-05-01T12:00:00Z or 7d (so long ago)");
		return;
	}
	to[0] = '\0';
	for (int i = 0; opt->choices != NULL && opt->choices[i] != NULL && used < size; i++)
		used += (size_t)snprintf(to + used, size - used, "%s%s", i ? ", " : "one of ", opt->choices[i]);
}

/* Do these words of a table stand for a file or a folder of this machine? */
static bool names_path(const char *word, size_t n)
{
	static const char *const words[] = {"DIR", "FILE", "PATH", "REPO"};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (strlen(words[i]) == n && strncmp(words[i], word, n) == 0)
			return true;
	}
	return false;
}

/* A URL where a path is expected would make a folder named after its scheme. */
static int check_path(struct cli *cli, const char *what, const char *text)
{
	struct sl_err err;

	return sl_check_local_path(what, text, &err) ? cli_usage(cli, "%s", err.msg) : 0;
}

static int set_value(struct cli *cli, struct parsed *args, const struct opt *opt, struct opt_value *value,
		     const char *text)
{
	char expected[256];
	int64_t num = 0;

	/* The value and its range. */
	if (read_value(opt, text, &num) || (has_range(opt) && (num < opt->min || num > opt->max))) {
		expectation(expected, sizeof(expected), opt);
		return cli_usage(cli, "--%s: '%s' is not %s", opt->name, text, expected);
	}
	/* A value that names a file or folder of this machine is never a URL. */
	if (opt->kind == OPT_STRING && names_path(opt->arg, strlen(opt->arg))) {
		char what[64];
		int rc;

		(void)snprintf(what, sizeof(what), "--%s", opt->name);
		rc = check_path(cli, what, text);
		if (rc != 0)
			return rc;
	}
	/* The last one given wins; an option that repeats keeps all of them, in order. */
	if (opt->repeat)
		args->repeated[args->n_repeated++] = (struct opt_repeated){.opt = opt, .text = text};
	value->given = true;
	value->num = num;
	value->str = text;
	return 0;
}

static void init_table(const struct opt *table, struct opt_value *values)
{
	/* A default goes through the same reader as a value: a wrong one fails in the first test. */
	for (int i = 0; table != NULL && table[i].name != NULL; i++) {
		assert(i < OPTS_MAX);
		values[i] = (struct opt_value){0};
		if (table[i].def != NULL && table[i].kind != OPT_FLAG) {
			int bad = read_value(&table[i], table[i].def, &values[i].num);

			assert(!bad);
			(void)bad;
			values[i].str = table[i].def;
		}
	}
}

void opts_init(struct parsed *args)
{
	memset(args, 0, sizeof(*args));
	init_table(opts_global, args->globals);
}

/* The option that an argument names, in the command's table or among the global ones. */
static const struct opt *lookup(struct parsed *args, const char *name, size_t n, char letter, struct opt_value **value)
{
	const struct opt *own = args->command != NULL ? args->command->opts : NULL;
	int i = letter ? find_letter(own, letter) : find_long(own, name, n);

	/* The command's own table first: it may have an option with the name of a global one. */
	if (i >= 0) {
		*value = &args->own[i];
		return &own[i];
	}
	i = letter ? find_letter(opts_global, letter) : find_long(opts_global, name, n);
	if (i < 0)
		return NULL;
	*value = &args->globals[i];
	return &opts_global[i];
}

static size_t add_names(const char **names, size_t n, const struct opt *table)
{
	for (; table != NULL && table->name != NULL; table++)
		names[n++] = table->name;
	return n;
}

static int parse_long(struct cli *cli, struct parsed *args, int argc, char **argv)
{
	const char *name = argv[args->first_free++] + 2;
	const char *equals = strchr(name, '=');
	size_t n = equals != NULL ? (size_t)(equals - name) : strlen(name);
	const char *names[2 * OPTS_MAX], *nearest;
	char given[64];
	struct opt_value *value;
	const struct opt *opt = lookup(args, name, n, 0, &value);

	if (opt == NULL) {
		size_t count = add_names(names, 0, args->command != NULL ? args->command->opts : NULL);

		count = add_names(names, count, opts_global);
		/* A word that is longer than every option is near to none. */
		(void)snprintf(given, sizeof(given), "%.*s", (int)(n < 63 ? n : 63), name);
		nearest = n < sizeof(given) ? srv_nearest(given, names, count) : NULL;
		return cli_usage(cli, "unknown option '--%.*s'%s%s%s", (int)(n < 100 ? n : 100), name,
				 nearest != NULL ? "; did you mean '--" : "", nearest != NULL ? nearest : "",
				 nearest != NULL ? "'?" : "");
	}
	/* --name=value, or --name value; a flag has neither. */
	if (opt->kind == OPT_FLAG && equals != NULL)
		return cli_usage(cli, "--%s takes no value", opt->name);
	if (opt->kind == OPT_FLAG)
		return set_value(cli, args, opt, value, "");
	if (equals != NULL)
		return set_value(cli, args, opt, value, equals + 1);
	if (args->first_free >= argc)
		return cli_usage(cli, "--%s needs a value: --%s=%s", opt->name, opt->name, opt->arg);
	return set_value(cli, args, opt, value, argv[args->first_free++]);
}

static int parse_short(struct cli *cli, struct parsed *args, int argc, char **argv)
{
	const char *letters = argv[args->first_free++] + 1;

	/* Flags may stand together, as in -jq; an option with a value takes the rest of the word or the next one. */
	for (; *letters; letters++) {
		struct opt_value *value;
		const struct opt *opt = lookup(args, NULL, 0, *letters, &value);
		int rc;

		if (opt == NULL)
			return cli_usage(cli, "unknown option '-%c'", *letters);
		if (opt->kind == OPT_FLAG) {
			rc = set_value(cli, args, opt, value, "");
			if (rc != 0)
				return rc;
			continue;
		}
		if (letters[1])
			return set_value(cli, args, opt, value, letters + 1);
		if (args->first_free >= argc)
			return cli_usage(cli, "-%c needs a value: -%c %s", *letters, *letters, opt->arg);
		return set_value(cli, args, opt, value, argv[args->first_free++]);
	}
	return 0;
}

static bool is_option(const char *arg)
{
	return arg[0] == '-' && arg[1] != '\0';
}

static int parse_option(struct cli *cli, struct parsed *args, int argc, char **argv)
{
	return argv[args->first_free][1] == '-' ? parse_long(cli, args, argc, argv)
						: parse_short(cli, args, argc, argv);
}

int opts_parse_globals(struct cli *cli, struct parsed *args, int argc, char **argv)
{
	while (args->first_free < argc && is_option(argv[args->first_free])) {
		int rc = parse_option(cli, args, argc, argv);

		if (rc != 0)
			return rc;
	}
	return 0;
}

/* The name of operand i in "FILE OTHER"; the last one may repeat. */
static void operand_name(const char *operands, int i, char to[32])
{
	while (i-- > 0 && strchr(operands, ' ') != NULL)
		operands = strchr(operands, ' ') + 1;
	snprintf(to, 32, "%.*s", (int)strcspn(operands, " "), operands);
}

static int take_operand(struct cli *cli, struct parsed *args, const char *text)
{
	const char *dots = strstr(args->command->operands, "…");
	char name[32], hint[SUGGEST_BYTES];
	int rc;

	/* Too many, unless the last one repeats; behind "export" it may be a mistyped "status". */
	if (args->n_operands >= opts_operand_count(args->command->operands) &&
	    !(dots != NULL && dots[strlen("…")] == '\0'))
		return cli_usage(cli, "unexpected argument '%.100s'%s", text,
				 args->n_operands == 0 ? suggest_command(args->command->name, text, hint) : "");
	if (!*text && !args->command->empty_ok)
		return cli_usage(cli, "an argument is empty");
	operand_name(args->command->operands, args->n_operands, name);
	rc = names_path(name, strcspn(name, "\xe2")) ? check_path(cli, name, text) : 0; /* FILE… is one, too */
	if (rc != 0)
		return rc;
	args->operands[args->n_operands++] = text;
	return 0;
}

int opts_parse_command(struct cli *cli, struct parsed *args, int argc, char **argv)
{
	const struct command *command = args->command;
	bool options = true;
	char name[32];
	int rc = 0;

	/* Room for as many operands and repeated values as there are words; operands end with NULLs. */
	init_table(command->opts, args->own);
	args->operands = calloc((size_t)argc + 8, sizeof(*args->operands));
	args->repeated = calloc((size_t)argc + 1, sizeof(*args->repeated));
	assert(opts_operand_count(command->operands) <= 8);
	if (args->operands == NULL || args->repeated == NULL)
		return cli_no_memory(cli);
	/* Options may stand anywhere among the operands; "--" ends them. */
	while (rc == 0 && args->first_free < argc) {
		const char *arg = argv[args->first_free];

		if (options && strcmp(arg, "--") == 0) {
			options = false;
			args->first_free++;
		} else if (options && is_option(arg)) {
			rc = parse_option(cli, args, argc, argv);
		} else {
			rc = take_operand(cli, args, arg);
			args->first_free++;
		}
	}
	if (rc != 0 || opt_flag(args, "help") || opt_flag(args, "version"))
		return rc;
	if (args->n_operands < opts_operand_count(command->operands) - command->optional) {
		operand_name(command->operands, args->n_operands, name);
		return cli_usage(cli, "%s is missing", name);
	}
	/* Required options are checked last: --help is printed without them. */
	for (int i = 0; command->opts != NULL && command->opts[i].name != NULL; i++) {
		if (command->opts[i].required && !args->own[i].given)
			return cli_usage(cli, "--%s=%s is missing", command->opts[i].name, command->opts[i].arg);
	}
	return 0;
}

void opts_fini(struct parsed *args)
{
	free(args->operands);
	free(args->repeated);
	args->operands = NULL;
	args->repeated = NULL;
	args->n_operands = args->n_repeated = 0;
}

static const struct opt_value *value_of(const struct parsed *args, const char *name)
{
	const struct opt *own = args->command != NULL ? args->command->opts : NULL;
	int i = find_long(own, name, strlen(name));

	if (i >= 0)
		return &args->own[i];
	i = find_long(opts_global, name, strlen(name));
	assert(i >= 0);
	return &args->globals[i];
}

bool opt_given(const struct parsed *args, const char *name)
{
	return value_of(args, name)->given;
}

int64_t opt_num(const struct parsed *args, const char *name)
{
	return value_of(args, name)->num;
}

const char *opt_str(const struct parsed *args, const char *name)
{
	return value_of(args, name)->str;
}

bool opts_has_password(const char *url)
{
	const char *host = strncmp(url, "exec:", 5) != 0 ? strstr(url, "://") : NULL;
	const char *at = host != NULL ? strchr(host + 3, '@') : NULL;
	const char *colon = host != NULL ? strchr(host + 3, ':') : NULL;

	return at != NULL && colon != NULL && colon < at;
}

void opts_warn_of_password(struct cli *cli, const struct parsed *args, const char *option, const char *instead)
{
	if (opt_given(args, option) && opts_has_password(opt_str(args, option)))
		cli_say(cli, SL_LOG_WARN, "the password in --%s can be seen by every user of this machine; use %s",
			option, instead);
}

bool opts_has(const struct parsed *args, const char *name)
{
	return find_long(args->command->opts, name, strlen(name)) >= 0;
}

const char *opt_all(const struct parsed *args, const char *name, int i)
{
	/* Values of all options that repeat are in one list, in the order of the command line. */
	for (int k = 0; k < args->n_repeated; k++) {
		if (strcmp(args->repeated[k].opt->name, name) == 0 && i-- == 0)
			return args->repeated[k].text;
	}
	return NULL;
}

int opts_operand_count(const char *operands)
{
	int n = *operands != '\0';

	for (; *operands; operands++)
		n += *operands == ' ';
	return n;
}

int opts_columns(struct cli *cli, const struct parsed *args, const char *option, const char ***out, size_t *n)
{
	const char *text = opt_str(args, option);
	size_t names = 1, bytes = text != NULL ? strlen(text) + 1 : 0;
	const char **list;
	char *copy, *at;

	if (text == NULL)
		return 0;
	for (const char *p = text; *p; p++)
		names += *p == ',';
	/* One block: the pointers, then a copy of the text that they point into. */
	list = malloc((names + 1) * sizeof(*list) + bytes);
	if (list == NULL)
		return cli_no_memory(cli);
	copy = memcpy((char *)(list + names + 1), text, bytes);
	*n = 0;
	while ((at = strsep(&copy, ",")) != NULL) {
		if (!*at) {
			free(list);
			return cli_usage(cli, "--%s: '%s' is not a list of columns like a,b", option, text);
		}
		list[(*n)++] = at;
	}
	list[*n] = NULL;
	*out = list;
	return 0;
}

int opts_fail(struct cli *cli, const struct parsed *args, const struct sl_err *err)
{
	size_t n = strcspn(err->msg, ":");
	char name[32];

	if (n >= sizeof(name) || !err->msg[n])
		return cli_fail(cli, err, NULL);
	(void)snprintf(name, sizeof(name), "%.*s", (int)n, err->msg);
	/* Fields have underscores where options have dashes. */
	for (char *p = name; *p; p++)
		*p = *p == '_' ? '-' : *p;
	/* Only an error about an option of this command is a usage error. */
	for (const struct opt *o = args->command->opts; o->name; o++) {
		if (strcmp(o->name, name) != 0)
			continue;
		if (err->code == SL_EINVAL)
			return cli_usage(cli, "--%s%s", name, err->msg + n);
		cli_say(cli, SL_LOG_ERROR, "--%s%s", name, err->msg + n);
		return sl_err_exit_code(err->code);
	}
	return cli_fail(cli, err, NULL);
}
