/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice enqueue: start a chain, or one for each line of a file. A bulk file is one transaction: all of it or nothing,
 * and the ids are printed when it is committed.
 */
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
	const char *path;
	struct jobstore *store;
	struct sl_new_chain base; /* what the options say */
	sl_tx *tx;
	struct sl_new_chain chains[BITE];
	json_t *lines[BITE]; /* own the strings of chains */
	char *inputs[BITE];
	size_t n;
	uint64_t line; /* of the file, from 1 */
	uint64_t *ids;
	size_t n_ids, cap_ids;
};

/* "2024-05-01T12:00:00Z" as Unix milliseconds. */
static int read_at(struct cli *cli, const char *text, int64_t *ms)
{
	if (strchr(text, '-') && value_time(text, 0, ms) == 0 && *ms > 0)
		return 0;
	return cli_usage(cli, "--at: '%.100s' is not a time such as 2024-05-01T12:00:00Z", text);
}

static const char *const scopes[] = {"incomplete", "any", NULL}; /* as enum sl_dedup_scope */

static int base_chain(struct cli *cli, const struct parsed *args, struct sl_new_chain *chain)
{
	uint64_t *blockers = NULL;
	int n = 0, rc = 0;

	while (opt_all(args, "after", n))
		n++;
	blockers = calloc((size_t)n + 1, sizeof(*blockers)); /* lives as long as the process */
	for (int i = 0; blockers && !rc && i < n; i++)
		rc = jobstore_id(cli, opt_all(args, "after", i), &blockers[i]);
	if (opt_given(args, "at") && opt_given(args, "in"))
		return cli_usage(cli, "--at and --in exclude each other");
	if (!rc && opt_given(args, "at"))
		rc = read_at(cli, opt_str(args, "at"), &chain->job.at_ms);
	chain->job.type = args->operands[0];
	chain->job.priority = (int32_t)opt_num(args, "priority");
	chain->job.delay_ms = opt_num(args, "in");
	chain->job.blockers = blockers;
	chain->job.n_blockers = (size_t)n;
	chain->job.traceparent = getenv("TRACEPARENT");
	chain->key = opt_str(args, "key");
	chain->scope = (enum sl_dedup_scope)opt_num(args, "key-scope");
	chain->window_ms = opt_num(args, "key-window");
	return blockers ? rc : EXIT_INTERNAL;
}

static void print_started(struct cli *cli, const struct parsed *args, const struct sl_started *started)
{
	if (opt_flag(args, "json"))
		out_printf(&cli->out, "{\"chain_id\":\"%" PRIu64 "\",\"deduplicated\":%s}\n", started->chain_id,
			   started->deduplicated ? "true" : "false");
	else
		out_printf(&cli->out, "%" PRIu64 "\n", started->chain_id);
}

/* All of standard input, in memory that lives as long as the process; NULL after a line on stderr. */
static char *read_stdin(struct cli *cli, int *code)
{
	size_t used = 0, cap = 1 << 16;
	char *text = malloc(cap);

	while (text) {
		size_t n = fread(text + used, 1, cap - used - 1, stdin);

		used += n;
		if (n == 0)
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
	int code = 0;

	if (input && strcmp(input, "-") == 0 && !(input = read_stdin(cli, &code)))
		return code;
	chain->job.input = input;
	if (sl_jobs_start(store->client, NULL, chain, &started, &err))
		return jobstore_fail(cli, args, &err);
	print_started(cli, args, &started);
	return EXIT_OK;
}

static int bad_line(struct bulk *b, const char *what)
{
	cli_say(b->cli, SL_LOG_ERROR, "%s, line %" PRIu64 ": %s; nothing was enqueued", b->path, b->line, what);
	return EXIT_BAD_DATA;
}

static int integer_member(struct bulk *b, json_t *object, const char *name, int64_t min, int64_t max, int64_t *out)
{
	json_t *value = json_object_get(object, name);
	char what[128];

	if (!value)
		return 0;
	if (json_is_integer(value) && json_integer_value(value) >= min && json_integer_value(value) <= max) {
		*out = json_integer_value(value);
		return 0;
	}
	snprintf(what, sizeof(what), "\"%s\" is not a whole number in range", name);
	return bad_line(b, what);
}

static int string_member(struct bulk *b, json_t *object, const char *name, const char **out)
{
	json_t *value = json_object_get(object, name);
	char what[128];

	if (!value)
		return 0;
	if (json_is_string(value)) {
		*out = json_string_value(value);
		return 0;
	}
	snprintf(what, sizeof(what), "\"%s\" is not a string", name);
	return bad_line(b, what);
}

static int unknown_member(struct bulk *b, json_t *object)
{
	static const char *const known[] = {"input", "type", "key", "at", "in_ms", "priority"};
	const char *name;
	json_t *value;
	char what[160];

	json_object_foreach(object, name, value)
	{
		size_t i = 0;

		while (i < sizeof(known) / sizeof(*known) && strcmp(known[i], name) != 0)
			i++;
		if (i == sizeof(known) / sizeof(*known)) {
			snprintf(what, sizeof(what), "unknown member \"%.60s\"", name);
			return bad_line(b, what);
		}
	}
	return 0;
}

/* Fill chain i from a line's object. */
static int read_members(struct bulk *b, json_t *object, struct sl_new_chain *chain)
{
	int64_t priority = chain->job.priority;
	const char *at = NULL;
	int rc = unknown_member(b, object);

	rc = rc ? rc : string_member(b, object, "type", &chain->job.type);
	rc = rc ? rc : string_member(b, object, "key", &chain->key);
	rc = rc ? rc : string_member(b, object, "at", &at);
	rc = rc ? rc : integer_member(b, object, "priority", INT32_MIN, INT32_MAX, &priority);
	rc = rc ? rc : integer_member(b, object, "in_ms", 0, INT64_MAX / 2000, &chain->job.delay_ms);
	if (!rc && at && (!strchr(at, '-') || value_time(at, 0, &chain->job.at_ms)))
		rc = bad_line(b, "\"at\" is not a time such as 2024-05-01T12:00:00Z");
	if (!rc && at && json_object_get(object, "in_ms"))
		rc = bad_line(b, "\"at\" and \"in_ms\" exclude each other");
	if (!rc && !chain->job.type)
		rc = bad_line(b, "it has no \"type\", and none is given on the command line");
	chain->job.priority = (int32_t)priority;
	return rc;
}

static int add_line(struct bulk *b, const char *text, size_t len)
{
	struct sl_new_chain *chain = &b->chains[b->n];
	json_error_t where;
	json_t *object = json_loadb(text, len, JSON_ALLOW_NUL, &where);
	json_t *input = object ? json_object_get(object, "input") : NULL;

	*chain = b->base;
	b->lines[b->n] = object;
	b->inputs[b->n] = NULL;
	b->n++;
	if (!object)
		return bad_line(b, where.text);
	if (!json_is_object(object))
		return bad_line(b, "it is not an object");
	if (input && !(b->inputs[b->n - 1] = json_dumps(input, JSON_ENCODE_ANY | JSON_COMPACT)))
		return bad_line(b, "its input cannot be kept");
	chain->job.input = b->inputs[b->n - 1];
	return read_members(b, object, chain);
}

static void forget_lines(struct bulk *b)
{
	for (size_t i = 0; i < b->n; i++) {
		json_decref(b->lines[i]);
		free(b->inputs[i]);
	}
	b->n = 0;
}

static int bite(struct bulk *b)
{
	struct sl_started *out = calloc(b->n + 1, sizeof(*out));
	struct sl_err err = SL_ERR_INIT;
	int rc = EXIT_OK;

	if (b->n_ids + b->n > b->cap_ids) {
		uint64_t *more = realloc(b->ids, (b->cap_ids = 2 * (b->n_ids + b->n)) * sizeof(*more));

		b->ids = more ? more : b->ids;
		if (!more)
			rc = EXIT_INTERNAL;
	}
	if (!out || rc) {
		free(out);
		cli_say(b->cli, SL_LOG_ERROR, "out of memory");
		return EXIT_INTERNAL;
	}
	if (sl_jobs_start_many(b->store->client, b->tx, b->chains, b->n, out, &err))
		rc = jobstore_fail(b->cli, b->args, &err);
	for (size_t i = 0; !rc && i < b->n; i++)
		b->ids[b->n_ids++] = out[i].chain_id;
	free(out);
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
			rc = bad_line(b, "it is longer than 64 MiB");
		else if (strspn(line, " \t\r\n") < (size_t)n)
			rc = add_line(b, line, (size_t)n);
		if (!rc && b->n == BITE)
			rc = bite(b);
	}
	if (!rc && ferror(file)) {
		cli_say(b->cli, SL_LOG_ERROR, "%s: %s", b->path, strerror(errno));
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
	FILE *file = strcmp(b->path, "-") == 0 ? stdin : fopen(b->path, "re");
	struct sl_err err = SL_ERR_INIT;
	int rc;

	if (!file) {
		cli_say(b->cli, SL_LOG_ERROR, "%s: %s", b->path, strerror(errno));
		return EXIT_OUTPUT;
	}
	if (sl_jobs_begin(b->store->client, &b->tx, &err)) {
		rc = jobstore_fail(b->cli, b->args, &err);
	} else if ((rc = read_lines(b, file)) != EXIT_OK) {
		sl_tx_rollback(b->tx);
	} else if (sl_tx_commit(b->tx, &err)) {
		rc = jobstore_fail(b->cli, b->args, &err);
	} else {
		for (size_t i = 0; i < b->n_ids; i++)
			print_started(b->cli, b->args, &(struct sl_started){.chain_id = b->ids[i]});
	}
	if (file != stdin)
		(void)fclose(file);
	free(b->ids);
	return rc;
}

static int run(struct cli *cli, const struct parsed *args)
{
	struct sl_new_chain chain = {0};
	struct jobstore store;
	int rc = base_chain(cli, args, &chain);

	if (!rc && !opt_given(args, "bulk") && args->n_operands == 0)
		rc = cli_usage(cli, "TYPE is missing");
	if (!rc && opt_given(args, "bulk") && args->n_operands > 1)
		rc = cli_usage(cli, "with --bulk the inputs stand in the file");
	if (rc)
		return rc;
	rc = jobstore_open(cli, args, &store);
	if (!rc && opt_given(args, "bulk")) {
		struct bulk *b = calloc(1, sizeof(*b));

		if (b) {
			b->cli = cli, b->args = args, b->path = opt_str(args, "bulk"), b->store = &store,
			b->base = chain;
			rc = enqueue_bulk(b);
		} else {
			rc = EXIT_INTERNAL;
		}
		free(b);
	} else if (!rc) {
		rc = enqueue_one(cli, args, &store, &chain);
	}
	jobstore_close(&store);
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
	 .help = "Wait until this chain has completed"},
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
