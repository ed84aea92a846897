/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands and their options as tables. One table serves the parser, the --help text, `sluice help --json` (from which
 * documentation and completion can be made and checked) and the error messages, so that they cannot disagree.
 *
 * Options may stand anywhere among the operands; "--" ends them. `--name=value`, `--name value`, `-x value` and
 * `-xvalue` are the same. The last one given wins.
 *
 * Thread safety: none needed, the tables are constant. Ownership: values point into argv and the tables.
 */
#ifndef SLUICE_CLI_OPTS_H
#define SLUICE_CLI_OPTS_H

#include "cli.h"

enum opt_kind {
	OPT_FLAG,
	OPT_INT,
	OPT_DURATION, /* 250ms, 60s, 5m, 2h, 7d; the value is in milliseconds */
	OPT_SIZE,     /* 4096, 64KiB, 64MiB, 1GiB; in bytes */
	OPT_ENUM,     /* one of choices; the value is its index */
	OPT_STRING,
	OPT_TIME /* 2024-05-01, 2024-05-01T12:00:00Z, or a duration: so long ago; in Unix milliseconds */
};

struct opt {
	const char *name; /* long, without its dashes; NULL ends a table */
	char letter;      /* 0: no short form */
	enum opt_kind kind;
	const char *arg;            /* what help calls the value */
	const char *def;            /* as it would be written; NULL: none, the value is 0 or NULL */
	int64_t min, max;           /* of INT, DURATION and SIZE, inclusive */
	const char *const *choices; /* of ENUM, NULL-terminated */
	bool required;
	bool repeat; /* may be given many times: opt_all has every value, the others the last */
	const char *help;
};

#define OPTS_MAX 48

/* An option whose value is any text; flag: its letter, or 0. */
#define OPT_TEXT(option, flag, what, text)                                                                             \
	{                                                                                                              \
		.name = option, .letter = flag, .kind = OPT_STRING, .arg = what, .help = text                          \
	}
/* The option that every command with a result has. */
#define OPT_JSON(text)                                                                                                 \
	{                                                                                                              \
		.name = "json", .letter = 'j', .kind = OPT_FLAG, .help = text                                          \
	}

struct opt_value {
	bool given;
	int64_t num;
	const char *str;
};

struct opt_repeated {
	const struct opt *opt;
	const char *text;
};

struct parsed;

struct command {
	const char *name;        /* "wal append" */
	const char *operands;    /* "FILE", "DIR ID…": names in order, the last may repeat; "" for none */
	int optional;            /* how many of them, from the end, may be missing */
	bool empty_ok;           /* an operand may be empty */
	const char *summary;     /* a clause without a full stop */
	const struct opt *opts;  /* own options; NULL: none */
	const char *description; /* sentences */
	const char *example;     /* command lines */
	const void *data;        /* for run, where several commands share one */
	/* Returns the exit code. */
	int (*run)(struct cli *cli, const struct parsed *args);
};

struct parsed {
	const struct command *command; /* NULL until it is known */
	int first_free;                /* index in argv of what was not parsed */
	struct opt_value globals[OPTS_MAX], own[OPTS_MAX];
	const char **operands; /* n_operands of them, then NULLs up to as many as the command names */
	int n_operands;
	struct opt_repeated *repeated; /* values of options that repeat, in order */
	int n_repeated;
};

extern const struct opt opts_global[];

/* Fill in the defaults of a table. */
void opts_init(struct parsed *args);
/* Parse argv from args->first_free: only global options, up to the first operand (command still NULL). 0, or 64 after
 * a line on stderr. */
int opts_parse_globals(struct cli *cli, struct parsed *args, int argc, char **argv);
/* Parse the rest for args->command. Required options and operands are checked unless --help was given. The lists in
 * args are made here and end with opts_fini. */
int opts_parse_command(struct cli *cli, struct parsed *args, int argc, char **argv);
void opts_fini(struct parsed *args);

/* Has a URL a password between ':' and '@' of its authority? The command of an exec: target is no URL. */
bool opts_has_password(const char *url);
/* Warn of a password in the URL that was given as this option: others can read it in the list of processes. instead:
 * the better places for it, as "PGPASSWORD or a password file". */
void opts_warn_of_password(struct cli *cli, const struct parsed *args, const char *option, const char *instead);
/* Does the command's own table have this option? */
bool opts_has(const struct parsed *args, const char *name);
/* Values by name; the name must be in the table of the command or among the global ones. */
bool opt_given(const struct parsed *args, const char *name);
int64_t opt_num(const struct parsed *args, const char *name);
const char *opt_str(const struct parsed *args, const char *name);
static inline bool opt_flag(const struct parsed *args, const char *name)
{
	return opt_num(args, name) != 0;
}

/* Value i of an option that repeats; NULL past the last. */
const char *opt_all(const struct parsed *args, const char *name, int i);

/* The "a,b" of an option that names columns as a NULL-terminated list, one block of memory for free(), and its length;
 * nothing when it is not given. 0, or an exit code after a line on stderr. */
int opts_columns(struct cli *cli, const struct parsed *args, const char *option, const char ***out, size_t *n);
/* The library refused one of its options: an error that begins with the name of a field, "on_conflict: …", is about
 * the option of that name. Prints it and returns the exit code. */
int opts_fail(struct cli *cli, const struct parsed *args, const struct sl_err *err);

/* How many operands a command names. */
int opts_operand_count(const char *operands);

#endif
