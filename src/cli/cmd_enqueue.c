/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice enqueue: start a chain, or one for each line of a file. A bulk file is one transaction: all of it or nothing,
 * and the ids are printed when it is committed.
 */
#include "bulk.h"
#include "commands.h"
#include "jobstore.h"
#include "progress.h"
#include "stop.h"
#include "text.h"
#include "values.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BITE 5000                            /* chains handed over at once */
#define LINE_MAX_BYTES (64 * 1024 * 1024)    /* of a bulk file */
#define INPUT_MAX_BYTES (256 * 1024 * 1024L) /* of standard input */

struct bulk {
	struct cli *cli;
	const struct parsed *args;
	const char *path, *shown; /* shown: how messages call it */
	struct jobstore *store;
	struct sl_new_chain base; /* what the options say */
	sl_tx *tx;
	struct sl_new_chain chains[BITE];
	struct bulk_line lines[BITE]; /* own the strings of chains */
	size_t n;
	uint64_t line;              /* of the file, from 1 */
	struct sl_started *started; /* of all bites */
	size_t n_started, cap_started;
};

/* "2024-05-01T12:00:00Z" as Unix milliseconds. */
static int read_at(struct cli *cli, const char *text, int64_t *ms)
{
	if (strchr(text, '-') && value_time(text, 0, ms) == 0 && *ms > 0)
		return 0;
	return cli_usage(cli, "--at: '%.100s' is not a time such as 2024-05-01T12:00:00Z", text);
}

static const char *const scopes[] = {"incomplete", "any", NULL}; /* as enum sl_dedup_scope */

/* The ids of all --after, each one or several with commas between: *out is fresh memory. */
static int read_blockers(struct cli *cli, const struct parsed *args, uint64_t **out, size_t *n)
{
	size_t cap = 0;
	const char *text;
	int rc = 0;

	for (int i = 0; (text = opt_all(args, "after", i)) != NULL; i++)
		cap += strlen(text) + 1;
	*out = calloc(cap + 1, sizeof(**out));
	if (!*out) {
		cli_say(cli, SL_LOG_ERROR, "out of memory");
		return EXIT_INTERNAL;
	}
	for (int i = 0; !rc && (text = opt_all(args, "after", i)) != NULL; i++) {
		char *copy = strdup(text), *rest = copy, *one;

		while (!rc && (one = strsep(&rest, ",")) != NULL)
			rc = jobstore_id(cli, one, &(*out)[(*n)++]);
		free(copy);
	}
	return rc;
}

/* What the options say; *blockers is fresh memory. */
static int base_chain(struct cli *cli, const struct parsed *args, struct sl_new_chain *chain, uint64_t **blockers)
{
	int rc = read_blockers(cli, args, blockers, &chain->job.n_blockers);

	chain->job.blockers = *blockers;
	if (!rc && opt_given(args, "at") && opt_given(args, "in"))
		rc = cli_usage(cli, "--at and --in exclude each other");
	if (!rc && opt_given(args, "at"))
		rc = read_at(cli, opt_str(args, "at"), &chain->job.at_ms);
	chain->job.type = args->operands[0];
	chain->job.priority = (int32_t)opt_num(args, "priority");
	chain->job.delay_ms = opt_num(args, "in");
	chain->job.traceparent = getenv("TRACEPARENT");
	chain->key = opt_str(args, "key");
	chain->scope = (enum sl_dedup_scope)opt_num(args, "key-scope");
	chain->window_ms = opt_num(args, "key-window");
	return rc;
}

static void print_started(struct cli *cli, const struct parsed *args, const struct sl_started *started)
{
	if (opt_flag(args, "json"))
		out_printf(&cli->out, "{\"chain_id\":\"%" PRIu64 "\",\"deduplicated\":%s}\n", started->chain_id,
			   started->deduplicated ? "true" : "false");
	else
		out_printf(&cli->out, "%" PRIu64 "\n", started->chain_id);
}

/* All of standard input in fresh memory; NULL after a line on stderr. */
static char *read_stdin(struct cli *cli, int *code)
{
	size_t used = 0, cap = 1 << 16;
	char *text = malloc(cap);

	while (text) {
		size_t n = fread(text + used, 1, cap - used - 1, stdin);

		used += n;
		if (n == 0 || ferror(stdin))
			break;
		if (used + 1 == cap && cap < INPUT_MAX_BYTES) {
			char *more = realloc(text, cap *= 2);

			if (!more)
				free(text);
			text = more;
		} else if (used + 1 == cap) {
			cli_say(cli, SL_LOG_ERROR, "the input on stdin is longer than 256 MiB");
			*code = EXIT_BAD_DATA;
			free(text);
			return NULL;
		}
	}
	if (text && !ferror(stdin) && memchr(text, '\0', used) == NULL) {
		text[used] = '\0';
		return text;
	}
	if (text && ferror(stdin) && stop_requested()) {
		*code = cli_interrupted(cli);
		free(text);
		return NULL;
	}
	*code = !text ? EXIT_INTERNAL : ferror(stdin) ? EXIT_OUTPUT : EXIT_BAD_DATA;
	cli_say(cli, SL_LOG_ERROR, "stdin: %s",
		!text           ? "out of memory"
		: ferror(stdin) ? "cannot be read"
				: "it has a zero byte, which JSON has not");
	free(text);
	return NULL;
}

static int enqueue_one(struct cli *cli, const struct parsed *args, struct jobstore *store, struct sl_new_chain *chain)
{
	const char *input = args->n_operands > 1 ? args->operands[1] : NULL;
	struct sl_started started;
	struct sl_err err = SL_ERR_INIT;
	char *read = NULL;
	int rc = EXIT_OK;

	if (input && strcmp(input, "-") == 0 && !(read = read_stdin(cli, &rc)))
		return rc;
	chain->job.input = read ? read : input;
	if (sl_jobs_start(store->client, NULL, chain, &started, &err))
		rc = jobstore_fail(cli, args, &err);
	else
		print_started(cli, args, &started);
	free(read);
	return rc;
}

static int bad_line(struct bulk *b, uint64_t line, const char *what)
{
	cli_say(b->cli, SL_LOG_ERROR, "%s, line %" PRIu64 ": %s; nothing was enqueued", b->shown, line, what);
	return EXIT_BAD_DATA;
}

static int add_line(struct bulk *b, const char *text, size_t n)
{
	char what[BULK_WHAT_BYTES];

	b->chains[b->n] = b->base;
	b->lines[b->n] = (struct bulk_line){.number = b->line};
	b->n++;
	if (bulk_line_read(&b->lines[b->n - 1], text, n, &b->chains[b->n - 1], what))
		return bad_line(b, b->line, what);
	return 0;
}

static void forget_lines(struct bulk *b)
{
	for (size_t i = 0; i < b->n; i++)
		bulk_line_free(&b->lines[i]);
	b->n = 0;
}

/* Which line was refused? The transaction is lost in any case, so ask for them one by one. */
static int blame(struct bulk *b, const struct sl_err *whole)
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_started started;

	for (size_t i = 0; i < b->n && (whole->code == SL_EINVAL || whole->code == SL_EDATA); i++) {
		if (sl_jobs_start(b->store->client, b->tx, &b->chains[i], &started, &err))
			return bad_line(b, b->lines[i].number, err.msg);
	}
	return jobstore_fail(b->cli, b->args, whole);
}

static int bite(struct bulk *b)
{
	struct sl_err err = SL_ERR_INIT;
	int rc = EXIT_OK;

	if (b->n_started + b->n > b->cap_started) {
		size_t cap = 2 * (b->n_started + b->n);
		struct sl_started *more = realloc(b->started, cap * sizeof(*more));

		if (!more) {
			cli_say(b->cli, SL_LOG_ERROR, "out of memory");
			return EXIT_INTERNAL;
		}
		b->started = more;
		b->cap_started = cap;
	}
	if (sl_jobs_start_many(b->store->client, b->tx, b->chains, b->n, b->started + b->n_started, &err))
		rc = blame(b, &err);
	else
		b->n_started += b->n;
	forget_lines(b);
	return rc;
}

static int read_lines(struct bulk *b, FILE *file)
{
	struct progress progress;
	char *line = NULL;
	size_t cap = 0;
	ssize_t n;
	int rc = EXIT_OK;

	progress_start(&progress, b->cli, 0);
	while (!rc && (n = getline(&line, &cap, file)) > 0) {
		b->line++;
		progress_update(&progress, b->line, 0);
		if (stop_requested())
			rc = cli_interrupted(b->cli);
		else if (n > LINE_MAX_BYTES)
			rc = bad_line(b, b->line, "it is longer than 64 MiB");
		else if (strspn(line, " \t\r\n") < (size_t)n)
			rc = add_line(b, line, (size_t)n);
		if (!rc && b->n == BITE)
			rc = bite(b);
	}
	if (!rc && stop_requested())
		rc = cli_interrupted(b->cli);
	if (!rc && ferror(file)) {
		cli_say(b->cli, SL_LOG_ERROR, "%s: %s", b->shown, strerror(errno));
		rc = EXIT_OUTPUT;
	}
	if (!rc && b->n > 0)
		rc = bite(b);
	forget_lines(b);
	progress_end(&progress);
	free(line);
	return rc;
}

static int enqueue_bulk(struct bulk *b)
{
	int is_stdin = strcmp(b->path, "-") == 0;
	FILE *file = is_stdin ? stdin : fopen(b->path, "re");
	struct sl_err err = SL_ERR_INIT;
	int rc;

	b->shown = is_stdin ? "stdin" : b->path;
	if (!file) {
		cli_say(b->cli, SL_LOG_ERROR, "%s: %s", b->shown, strerror(errno));
		return EXIT_OUTPUT;
	}
	if (sl_jobs_begin(b->store->client, &b->tx, &err)) {
		rc = jobstore_fail(b->cli, b->args, &err);
	} else if ((rc = read_lines(b, file)) != EXIT_OK) {
		sl_tx_rollback(b->tx);
	} else if (sl_tx_commit(b->tx, &err)) {
		rc = jobstore_fail(b->cli, b->args, &err);
	} else {
		for (size_t i = 0; i < b->n_started; i++)
			print_started(b->cli, b->args, &b->started[i]);
	}
	if (file != stdin)
		(void)fclose(file);
	free(b->started);
	return rc;
}

static int enqueue_file(struct cli *cli, const struct parsed *args, struct jobstore *store,
			const struct sl_new_chain *base)
{
	struct bulk *b = calloc(1, sizeof(*b));
	int rc;

	if (!b) {
		cli_say(cli, SL_LOG_ERROR, "out of memory");
		return EXIT_INTERNAL;
	}
	b->cli = cli;
	b->args = args;
	b->path = opt_str(args, "bulk");
	b->store = store;
	b->base = *base;
	rc = enqueue_bulk(b);
	free(b);
	return rc;
}

static int run(struct cli *cli, const struct parsed *args)
{
	struct sl_new_chain chain = {0};
	struct jobstore store = {0};
	uint64_t *blockers = NULL;
	int rc = base_chain(cli, args, &chain, &blockers);

	if (!rc && !opt_given(args, "bulk") && args->n_operands == 0)
		rc = cli_usage(cli, "TYPE is missing");
	if (!rc && opt_given(args, "bulk") && args->n_operands > 1)
		rc = cli_usage(cli, "with --bulk the inputs stand in the file");
	rc = rc ? rc : jobstore_open(cli, args, &store);
	if (!rc)
		rc = opt_given(args, "bulk") ? enqueue_file(cli, args, &store, &chain)
					     : enqueue_one(cli, args, &store, &chain);
	jobstore_close(&store);
	free(blockers);
	return rc;
}

static const struct opt opts_table[] = {
	JOBSTORE_OPT_STORE,
	{.name = "key",
	 .letter = 'k',
	 .kind = OPT_STRING,
	 .arg = "KEY",
	 .help = "Start nothing when a chain with this key is there; print its id instead"},
	{.name = "key-scope",
	 .kind = OPT_ENUM,
	 .arg = "SCOPE",
	 .def = "incomplete",
	 .choices = scopes,
	 .help = "Whether a chain that has ended holds its key"},
	{.name = "key-window",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "0",
	 .min = 0,
	 .max = INT64_C(315360000000),
	 .help = "The key holds for so long after the start; 0: as long as the scope says"},
	{.name = "at", .kind = OPT_STRING, .arg = "TIME", .help = "Not before this time: 2024-05-01T12:00:00Z"},
	{.name = "in",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "0",
	 .min = 0,
	 .max = INT64_C(3153600000000),
	 .help = "Not before so long from now"},
	{.name = "priority",
	 .letter = 'p',
	 .kind = OPT_INT,
	 .arg = "N",
	 .def = "0",
	 .min = INT32_MIN,
	 .max = INT32_MAX,
	 .help = "Smaller runs first"},
	{.name = "after",
	 .kind = OPT_STRING,
	 .arg = "CHAIN",
	 .repeat = 1,
	 .help = "Wait until this chain has completed; several ids with commas between are several chains"},
	{.name = "bulk",
	 .kind = OPT_STRING,
	 .arg = "FILE",
	 .help = "Start a chain for each line of FILE ('-': stdin), an object with \"input\" and optionally \"type\", "
		 "\"key\", \"at\", \"in_ms\" and \"priority\"; all of them or none"},
	JOBSTORE_OPT_JSON,
	{.name = NULL},
};

const struct command cmd_enqueue = {
	.name = "enqueue",
	.operands = "TYPE JSON",
	.optional = 2,
	.summary = "start a chain of jobs",
	.opts = opts_table,
	.description = "Starts a chain with a job of this type and input ('-': from stdin; none: null) and prints the "
		       "chain's id when it is durable. A worker that serves the type runs it.",
	.example = "sluice enqueue mail '{\"to\":\"ada\"}' --key welcome-ada\n"
		   "sluice enqueue --bulk jobs.jsonl --store postgres:///app",
	.run = run,
};
