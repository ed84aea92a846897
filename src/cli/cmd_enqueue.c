/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice enqueue: start a chain, or one for each line of a file. A bulk file is one transaction: all of it or nothing,
 * and the ids are printed when it is committed. The file is read to its end before the transaction begins: a program
 * that writes it may take any time, and a transaction keeps others waiting.
 */
#include "bulk.h"
#include "commands.h"
#include "input.h"
#include "jobstore.h"
#include "progress.h"
#include "stop.h"
#include "text.h"
#include "values.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BATCH 5000                           /* chains handed over in one call */
#define BATCH_BYTES (16 * 1024 * 1024)       /* or as many as have so much text: they are in memory meanwhile */
#define LINE_MAX_BYTES (64 * 1024 * 1024)    /* of a bulk file */
#define INPUT_MAX_BYTES (256 * 1024 * 1024L) /* of standard input */

struct bulk {
	struct cli *cli;
	const struct parsed *args;
	const char *shown; /* how messages call the file */
	struct jobstore *store;
	struct sl_new_chain base; /* what the options say */
	struct spool spool;       /* all lines; one without anything in it is empty */
	struct progress progress;
	sl_tx *tx;
	struct sl_new_chain chains[BATCH];
	struct bulk_line lines[BATCH]; /* own the strings of chains */
	size_t n, bytes;               /* of the batch, and of its text */
	uint64_t n_lines;              /* of the file */
	struct sl_started *started;    /* of all batches */
	size_t n_started, cap_started;
};

static const char *const scopes[] = {"incomplete", "any", NULL}; /* as enum sl_dedup_scope */

static void print_started(struct cli *cli, const struct parsed *args, const struct sl_started *started)
{
	if (opt_flag(args, "json"))
		out_printf(&cli->out, "{\"chain_id\":\"%" PRIu64 "\",\"existing\":%s}\n", started->chain_id,
			   started->deduplicated ? "true" : "false");
	else
		out_printf(&cli->out, "%" PRIu64 "\n", started->chain_id);
}

/* All of standard input in fresh memory; NULL after a line on stderr. */
static char *read_stdin(struct cli *cli, int *code)
{
	size_t used = 0, cap = 1 << 16;
	char *text = malloc(cap);

	/* The buffer doubles up to the limit. */
	while (text != NULL) {
		size_t n = fread(text + used, 1, cap - used - 1, stdin);

		used += n;
		if (n == 0 || ferror(stdin))
			break;
		if (used + 1 == cap && cap < INPUT_MAX_BYTES) {
			char *more = realloc(text, cap *= 2);

			if (more == NULL)
				free(text);
			text = more;
		} else if (used + 1 == cap) {
			cli_say(cli, SL_LOG_ERROR, "the input on stdin is longer than 256 MiB; give a smaller input");
			*code = EXIT_BAD_DATA;
			free(text);
			return NULL;
		}
	}
	if (text != NULL && !ferror(stdin) && memchr(text, '\0', used) == NULL) {
		text[used] = '\0';
		return text;
	}
	/* A read that a signal ended is no broken input. */
	if (text != NULL && ferror(stdin) && stop_requested()) {
		*code = cli_interrupted(cli);
		free(text);
		return NULL;
	}
	*code = text != NULL ? ferror(stdin) ? EXIT_OUTPUT : EXIT_BAD_DATA : EXIT_INTERNAL;
	cli_say(cli, SL_LOG_ERROR, "stdin: %s",
		text != NULL ? ferror(stdin) ? "cannot be read" : "it contains a zero byte, which JSON cannot have"
			     : "out of memory");
	free(text);
	return NULL;
}

static int enqueue_one(struct cli *cli, const struct parsed *args, struct jobstore *store, struct sl_new_chain *chain)
{
	const char *input = args->n_operands > 1 ? args->operands[1] : NULL;
	bool from_stdin = input != NULL && strcmp(input, "-") == 0;
	struct sl_started started;
	struct sl_err err = SL_ERR_INIT;
	char *read = NULL;
	int rc = EXIT_OK;

	if (from_stdin && (read = read_stdin(cli, &rc)) == NULL)
		return rc;
	/* The store checks the input: it must be JSON. */
	chain->job.input = read != NULL ? read : input;
	rc = sl_jobs_enqueue(store->client, NULL, chain, &started, &err);
	free(read);
	/* JSON in an argument that has no quote in it has most likely lost them to the shell. */
	if (rc == SL_EDATA && strncmp(err.msg, "input:", 6) == 0 && input != NULL && !from_stdin &&
	    strchr(input, '"') == NULL) {
		cli_say(cli, SL_LOG_ERROR, "%s; quote JSON for the shell: '{\"to\":\"ada\"}'", err.msg);
		return EXIT_BAD_DATA;
	}
	if (rc != 0)
		return jobstore_fail(cli, args, &err);
	print_started(cli, args, &started);
	if (started.deduplicated)
		cli_say(cli, SL_LOG_WARN, "nothing was enqueued: chain %" PRIu64 " already has the key %s",
			started.chain_id, chain->key);
	return EXIT_OK;
}

static int bad_line(struct bulk *b, uint64_t line, const char *what)
{
	cli_say(b->cli, SL_LOG_ERROR, "%s, line %" PRIu64 ": %s; nothing was enqueued", b->shown, line, what);
	return EXIT_BAD_DATA;
}

/* The file, or the temporary one. */
static int not_kept(struct bulk *b, const struct sl_err *err)
{
	cli_say(b->cli, SL_LOG_ERROR, "%s: %s; nothing was enqueued", b->shown, err->msg);
	return err->code == SL_ENOMEM ? EXIT_INTERNAL : EXIT_OUTPUT;
}

static void forget_lines(struct bulk *b)
{
	for (size_t i = 0; i < b->n; i++)
		bulk_line_free(&b->lines[i]);
	b->n = b->bytes = 0;
}

/* Give the lines in memory to the store, and forget them. */
static int start_batch(struct bulk *b)
{
	struct sl_err err = SL_ERR_INIT, one = SL_ERR_INIT;
	struct sl_started started;
	int rc = EXIT_OK;

	if (b->n_started + b->n > b->cap_started) {
		size_t cap = 2 * (b->n_started + b->n);
		struct sl_started *more = realloc(b->started, cap * sizeof(*more));

		if (more == NULL)
			return cli_no_memory(b->cli);
		b->started = more;
		b->cap_started = cap;
	}
	if (!sl_jobs_enqueue_many(b->store->client, b->tx, b->chains, b->n, b->started + b->n_started, &err)) {
		b->n_started += b->n;
		forget_lines(b);
		return EXIT_OK;
	}
	/* Which line was refused? The transaction is lost in any case, so submit them one by one. */
	for (size_t i = 0; rc == 0 && i < b->n && (err.code == SL_EINVAL || err.code == SL_EDATA); i++) {
		if (sl_jobs_enqueue(b->store->client, b->tx, &b->chains[i], &started, &one))
			rc = bad_line(b, b->lines[i].number, one.msg);
	}
	forget_lines(b);
	if (rc != 0)
		return rc;
	return jobstore_fail(b->cli, b->args, &err);
}

static int read_more_lines(struct bulk *b, struct input *in, const char *what)
{
	struct sl_err err = SL_ERR_INIT;

	if (input_fill(in, &err) == 0)
		return 0;
	if (err.sys_errno)
		snprintf(err.msg, sizeof(err.msg), "%s%s", what, strerror(err.sys_errno));
	return not_kept(b, &err);
}

/* total 0: they are being read. */
static void show_lines(struct bulk *b, uint64_t lines, uint64_t total)
{
	char text[2 * TEXT_COUNT_BYTES + 40], count[TEXT_COUNT_BYTES];

	if (!progress_due(&b->progress))
		return;
	if (total)
		snprintf(text, sizeof(text), "%" PRIu64 " of %s given to the store", lines,
			 text_count(count, total, "line"));
	else
		snprintf(text, sizeof(text), "%s read", text_count(count, lines, "line"));
	progress_show(&b->progress, text, lines, total);
}

/* Read the whole file, and report a bad line before anything is sent to the store. */
static int keep_lines(struct bulk *b, int fd)
{
	struct sl_err err = SL_ERR_INIT;
	struct input_record line;
	struct input in;
	enum input_step step;
	int rc = EXIT_OK;

	input_init(&in, fd, false, LINE_MAX_BYTES);
	while (rc == 0 && (step = input_next(&in, &line, &err)) != INPUT_END) {
		if (step == INPUT_NEED) {
			input_wait(&in, stop_fd());
			rc = stop_requested() ? cli_interrupted(b->cli) : read_more_lines(b, &in, "");
		} else if (step == INPUT_FAILED) {
			rc = bad_line(b, in.number + 1, "it is longer than 64 MiB");
		} else {
			struct sl_new_chain chain = b->base;
			struct bulk_line checked = {0};
			char what[BULK_WHAT_BYTES];
			size_t blanks = 0;

			b->n_lines = line.number;
			while (blanks < line.len && line.data[blanks] && strchr(" \t\r\n", line.data[blanks]) != NULL)
				blanks++;
			if (blanks < line.len && bulk_line_read(&checked, line.data, line.len, &chain, what))
				rc = bad_line(b, line.number, what);
			else if (spool_add(&b->spool, line.data, blanks < line.len ? line.len : 0, &err))
				rc = not_kept(b, &err);
			bulk_line_free(&checked);
		}
		show_lines(b, b->n_lines, 0);
	}
	input_fini(&in);
	return rc;
}

/* One transaction with all lines that were kept. */
static int start_kept(struct bulk *b, struct input *kept)
{
	struct sl_err err = SL_ERR_INIT;
	struct input_record line;
	char what[BULK_WHAT_BYTES];
	enum input_step step;
	int rc = EXIT_OK;

	if (sl_jobs_begin(b->store->client, &b->tx, &err))
		return jobstore_fail(b->cli, b->args, &err);
	/* Every line was good when it was read first; it is parsed again instead of being kept twice in memory. */
	while (rc == 0 && (step = input_next(kept, &line, &err)) != INPUT_END) {
		if (step == INPUT_NEED) {
			rc = read_more_lines(b, kept, "read the temporary file (TMPDIR): ");
			continue;
		}
		if (step == INPUT_FAILED) {
			rc = not_kept(b, &err);
			continue;
		}
		if (stop_requested())
			rc = cli_interrupted(b->cli);
		show_lines(b, line.number, b->n_lines);
		if (rc == 0 && line.len > 0) {
			b->chains[b->n] = b->base;
			b->lines[b->n] = (struct bulk_line){.number = line.number};
			b->bytes += line.len;
			b->n++;
			if (bulk_line_read(&b->lines[b->n - 1], line.data, line.len, &b->chains[b->n - 1], what))
				rc = bad_line(b, line.number, what);
		}
		if (rc == 0 && (b->n == BATCH || b->bytes >= BATCH_BYTES))
			rc = start_batch(b);
	}
	if (rc == 0 && b->n > 0)
		rc = start_batch(b);
	forget_lines(b);
	if (rc != 0)
		sl_tx_rollback(b->tx);
	else if (sl_tx_commit(b->tx, &err))
		rc = jobstore_fail(b->cli, b->args, &err);
	return rc;
}

static int enqueue_file(struct cli *cli, const struct parsed *args, struct jobstore *store,
			const struct sl_new_chain *base)
{
	const char *path = opt_str(args, "bulk");
	bool is_stdin = strcmp(path, "-") == 0;
	int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
	struct sl_err err = SL_ERR_INIT;
	char count[TEXT_COUNT_BYTES];
	uint64_t n_existing = 0;
	struct bulk *b;
	struct input kept;
	int rc;

	if (fd < 0 && stop_requested())
		return cli_interrupted(cli);
	if (fd < 0) {
		cli_say(cli, SL_LOG_ERROR, "%s: %s", path, strerror(errno));
		return EXIT_OUTPUT;
	}
	b = calloc(1, sizeof(*b));
	if (b == NULL) {
		if (!is_stdin)
			close(fd);
		return cli_no_memory(cli);
	}
	b->cli = cli;
	b->args = args;
	b->shown = is_stdin ? "stdin" : path;
	b->store = store;
	b->base = *base;
	spool_init(&b->spool);
	progress_start(&b->progress, cli, false);
	/* First all lines, then the transaction, then the ids: nothing is printed that was not committed. */
	rc = keep_lines(b, fd);
	if (!is_stdin)
		close(fd);
	if (rc == 0 && spool_read(&b->spool, &kept, LINE_MAX_BYTES, &err)) {
		rc = not_kept(b, &err);
	} else if (rc == 0) {
		rc = start_kept(b, &kept);
		input_fini(&kept);
	}
	progress_end(&b->progress);
	for (size_t i = 0; rc == 0 && i < b->n_started; i++) {
		print_started(cli, args, &b->started[i]);
		n_existing += b->started[i].deduplicated != 0;
	}
	if (n_existing)
		cli_say(cli, SL_LOG_WARN, "nothing was enqueued for %s: another chain has the key",
			text_count(count, n_existing, "line"));
	spool_fini(&b->spool);
	free(b->started);
	free(b);
	return rc;
}

/* Fill in the chain as the options say; *blockers is fresh memory. */
static int read_chain(struct cli *cli, const struct parsed *args, struct sl_new_chain *chain, uint64_t **blockers)
{
	static const char *const about_key[] = {"key-scope", "key-window"};
	const char *at = opt_str(args, "at"), *text;
	size_t cap = 0;
	int rc = 0;

	chain->job.type = args->operands[0];
	chain->job.priority = (int32_t)opt_num(args, "priority");
	chain->job.delay_ms = opt_num(args, "in");
	chain->job.traceparent = getenv("TRACEPARENT");
	chain->key = opt_str(args, "key");
	chain->scope = (enum sl_dedup_scope)opt_num(args, "key-scope");
	chain->window_ms = opt_num(args, "key-window");

	/* The ids of all --after, each one or several with commas between. */
	for (int i = 0; (text = opt_all(args, "after", i)) != NULL; i++)
		cap += strlen(text) + 1;
	chain->job.blockers = *blockers = calloc(cap + 1, sizeof(**blockers));
	if (*blockers == NULL)
		return cli_no_memory(cli);
	for (int i = 0; rc == 0 && (text = opt_all(args, "after", i)) != NULL; i++) {
		char *copy = strdup(text), *rest = copy, *one;

		while (rc == 0 && (one = strsep(&rest, ",")) != NULL)
			rc = jobstore_id(cli, one, &(*blockers)[chain->job.n_blockers++]);
		free(copy);
	}
	if (rc != 0)
		return rc;

	if (at != NULL && opt_given(args, "in"))
		return cli_usage(cli, "--at and --in exclude each other");
	if (at != NULL && (strchr(at, '-') == NULL || value_time(at, 0, &chain->job.at_ms) || chain->job.at_ms <= 0))
		return cli_usage(cli, "--at: '%.100s' is not a time such as 2024-05-01T12:00:00Z", at);
	if (!opt_given(args, "bulk") && args->n_operands == 0)
		return cli_usage(cli, "TYPE is missing: sluice enqueue TYPE [JSON]");
	if (opt_given(args, "bulk") && args->n_operands > 1)
		return cli_usage(cli, "with --bulk, put the inputs into the file");
	/* The lines of a bulk file may have their own keys. */
	for (size_t i = 0; i < SL_COUNT(about_key) && !opt_given(args, "key") && !opt_given(args, "bulk"); i++) {
		if (opt_given(args, about_key[i]))
			return cli_usage(cli, "--%s needs --key", about_key[i]);
	}
	return 0;
}

static int enqueue_run(struct cli *cli, const struct parsed *args)
{
	SL_CLEANUP(jobstore_close) struct jobstore store = {0};
	struct sl_new_chain chain = {0};
	uint64_t *blockers = NULL;
	int rc = read_chain(cli, args, &chain, &blockers);

	/* Options are checked before the store is opened or made. */
	if (rc == 0)
		rc = jobstore_open(cli, args, JOBSTORE_CREATE, &store);
	if (rc == 0)
		rc = opt_given(args, "bulk") ? enqueue_file(cli, args, &store, &chain)
					     : enqueue_one(cli, args, &store, &chain);
	free(blockers);
	return rc;
}

static const struct opt enqueue_opts[] = {
	JOBSTORE_OPT_STORE,
	OPT_TEXT("key", 'k', "KEY",
		 "Do not start a chain if one with this key exists; print the id of that one instead"),
	{.name = "key-scope",
	 .kind = OPT_ENUM,
	 .arg = "SCOPE",
	 .def = "incomplete",
	 .choices = scopes,
	 .help = "Whether a chain that has ended keeps its key"},
	{.name = "key-window",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "0",
	 .min = 0,
	 .max = INT64_C(315360000000),
	 .help = "Keep the key for this long after the start; 0: as long as the scope says"},
	OPT_TEXT("at", 0, "TIME", "Do not start before this time, such as 2024-05-01T12:00:00Z"),
	{.name = "in",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "0",
	 .min = 0,
	 .max = INT64_C(3153600000000),
	 .help = "Do not start until this much later"},
	JOBSTORE_OPT_PRIORITY("Priority of the job; lower runs first"),
	{.name = "after",
	 .kind = OPT_STRING,
	 .arg = "CHAIN",
	 .repeat = true,
	 .help = "Wait until this chain has completed; separate several ids with commas"},
	OPT_TEXT("bulk", 0, "FILE",
		 "Start a chain for each line of FILE ('-': stdin), an object with \"input\" and optionally \"type\", "
		 "\"key\", \"at\", \"in_ms\" and \"priority\"; all of them or none. The whole file is read first; "
		 "beyond 4 MiB it is kept in a temporary file (TMPDIR, else /var/tmp)"),
	OPT_JSON("Print JSON"),
	{.name = NULL},
};

const struct command cmd_enqueue = {
	.name = "enqueue",
	.operands = "TYPE JSON",
	.optional = 2,
	.summary = "start a chain of jobs",
	.opts = enqueue_opts,
	.description = "Starts a chain with a job of this type and input ('-': from stdin; none: null) and prints the "
		       "chain's id once it is durable. A worker that serves the type runs the job.",
	.example = "sluice enqueue mail '{\"to\":\"ada\"}' --key welcome-ada\n"
		   "sluice enqueue --bulk jobs.jsonl --store postgres:///app",
	.run = enqueue_run,
};
