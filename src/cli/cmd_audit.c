/* SPDX-License-Identifier: Apache-2.0 */
/* sluice audit show, head and keygen: the chain of an export, its head, and the key that signs it. */
#include "commands.h"
#include "stop.h"
#include "table.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sluice/audit.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- show ---- */

struct showing {
	struct cli *cli;
	bool json;
	uint64_t after, left;
	struct table table;
};

static int on_event(const struct sl_audit_event *e, const char *text, size_t len, void *ctx)
{
	char hash[2 * SL_AUDIT_HASH_BYTES + 1], bytes[TEXT_TIME_BYTES];
	struct showing *s = ctx;
	struct table *t = &s->table;
	struct out *out = &s->cli->out;

	/* The chain is always checked from its beginning; --after only skips the printing. */
	if (e->number <= s->after)
		return 0;
	if (s->left-- == 0)
		return 1;
	if (s->json) {
		out_write(out, text, len);
		out_str(out, "\n");
		return out_failed(out) ? 1 : cli_stopped(s->cli);
	}
	/* The first 8 bytes of the hash are enough to compare by eye. */
	text_hex(hash, e->hash, 8);
	table_cell(t, "%" PRIu64, e->number);
	table_cell(t, "%s…", hash);
	table_cell(t, "%s",
		   e->type == SL_AUDIT_LATE       ? "late"
		   : e->type == SL_AUDIT_BACKFILL ? "backfill"
						  : "partition");
	table_cell(t, "%" PRIu64, e->start);
	table_cell(t, "%" PRIu64, e->end);
	table_cell(t, "%" PRIu64, e->rows);
	table_cell(t, "%" PRIu64, e->holes);
	table_cell(t, "%" PRIu64, e->bad_rows);
	table_cell(t, "%s", text_bytes(bytes, e->bytes));
	table_cell(t, "%s", e->path);
	return out_failed(out) ? 1 : cli_stopped(s->cli);
}

static const struct table_column event_columns[] = {
	{"EVENT", TABLE_RIGHT}, {"HASH", TABLE_LEFT},  {"TYPE", TABLE_LEFT},   {"FROM", TABLE_RIGHT},
	{"TO", TABLE_RIGHT},    {"ROWS", TABLE_RIGHT}, {"HOLES", TABLE_RIGHT}, {"BAD", TABLE_RIGHT},
	{"SIZE", TABLE_RIGHT},  {"FILE", TABLE_TEXT},
};

static int audit_show_run(struct cli *cli, const struct parsed *args)
{
	struct showing s = {.cli = cli, .json = opt_flag(args, "json"), .after = (uint64_t)opt_num(args, "after")};
	struct sl_err err = SL_ERR_INIT;
	int rc;

	table_begin(&s.table, &cli->out, event_columns, SL_COUNT(event_columns));
	s.left = opt_given(args, "limit") ? (uint64_t)opt_num(args, "limit") : UINT64_MAX;
	rc = sl_audit_events(args->operands[0], opt_str(args, "dataset"), &cli->env, on_event, &s, &err);
	table_end(&s.table);
	if (rc >= 0)
		return EXIT_OK; /* a broken output is reported at the end */
	return stop_requested() ? cli_interrupted(cli) : cli_fail(cli, &err, args->operands[0]);
}

#define OPT_DATASET                                                                                                    \
	{                                                                                                              \
		.name = "dataset", .letter = 'd', .kind = OPT_STRING, .arg = "NAME", .required = true,                 \
		.help = "Name of the exported dataset"                                                                 \
	}

static const struct opt show_opts[] = {
	OPT_DATASET,
	{.name = "after",
	 .kind = OPT_INT,
	 .arg = "N",
	 .def = "0",
	 .min = 0,
	 .max = INT64_MAX,
	 .help = "Print only events after this number"},
	{.name = "limit", .kind = OPT_INT, .arg = "N", .min = 0, .max = INT64_MAX, .help = "Print at most N events"},
	OPT_JSON("Print each event unchanged, one JSON object per line"),
	{.name = NULL},
};

const struct command cmd_audit_show = {
	.name = "audit show",
	.operands = "DIR",
	.summary = "print the audit events of an export",
	.opts = show_opts,
	.description = "Reads the event files below DIR and prints one line per event: number, the beginning of its "
		       "hash, type, sequences, rows, size and path. Each event is checked alone and against the one "
		       "before it. An event that is damaged or does not follow ends the list with status 65. The data "
		       "files are not read: 'sluice audit verify' does that.",
	.example = "sluice audit show ./lake --dataset ledgers\nsluice audit show ./lake -d ledgers --json | jq -r "
		   ".chain.event_hash",
	.run = audit_show_run,
};

/* ---- head ---- */

/* A folder that is not there or does not let us in: another name is needed, not another try. */
static int cannot_create(struct sl_err *err, const char *path)
{
	int why = errno;

	if (why == ENOENT || why == ENOTDIR || why == EISDIR || why == EACCES || why == EPERM || why == EROFS ||
	    why == ENAMETOOLONG)
		return sl_err_set(err, SL_ECREATE, "create %.180s: %s", path, strerror(why));
	return sl_err_set_errno(err, why, "create %.180s", path);
}

/* A new file, or the old one replaced in one step: a head that was kept must not be lost to a full disk. */
static int write_file(const char *path, const char *text, size_t len, struct sl_err *err)
{
	char temporary[4096];
	int n = snprintf(temporary, sizeof(temporary), "%s.tmp-%ld", path, (long)getpid());
	int fd = -1, failed;

	/* Into a new file next to it, which takes the place of the old one when it is on disk. */
	errno = ENAMETOOLONG;
	if (n > 0 && (size_t)n < sizeof(temporary))
		fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0)
		return cannot_create(err, path);
	failed = write(fd, text, len) != (ssize_t)len || fsync(fd);
	/* Nothing is left after a failure. */
	if (failed)
		sl_err_set_errno(err, errno, "write %.180s", path);
	failed |= close(fd);
	if (!failed && rename(temporary, path)) {
		(void)cannot_create(err, path);
		failed = 1;
	}
	if (failed)
		(void)unlink(temporary);
	return failed ? err->code : 0;
}

static int audit_head_run(struct cli *cli, const struct parsed *args)
{
	struct sl_audit_head head = {.struct_size = sizeof(head)};
	struct sl_err err = SL_ERR_INIT;
	const char *dir = args->operands[0], *key = opt_str(args, "key-file"), *to = opt_str(args, "out");
	char text[SL_AUDIT_HEAD_BYTES];
	size_t len = 0;
	int rc = sl_audit_head_read(dir, opt_str(args, "dataset"), &cli->env, &head, &err);

	/* Read, sign, format, write: each only when the step before it succeeded. */
	if (rc == 0 && key != NULL)
		rc = sl_audit_head_sign(&head, key, &cli->env, &err);
	if (rc == 0)
		rc = sl_audit_head_format(&head, text, &len, &err);
	if (rc == 0 && to != NULL)
		rc = write_file(to, text, len, &err);
	if (rc != 0)
		return cli_fail(cli, &err, dir);
	if (to == NULL)
		out_write(&cli->out, text, len);
	return EXIT_OK;
}

static const struct opt head_opts[] = {
	OPT_DATASET,
	OPT_TEXT("key-file", 0, "FILE", "Sign the head with this secret key of 'sluice audit keygen'"),
	OPT_TEXT("out", 'o', "FILE", "Write the head to FILE instead of standard output; FILE is replaced atomically"),
	OPT_JSON("Accepted for consistency; a head is always JSON"),
	{.name = NULL},
};

const struct command cmd_audit_head = {
	.name = "audit head",
	.operands = "DIR",
	.summary = "print the head of an export's audit chain, signed",
	.opts = head_opts,
	.description = "Reads and checks the event files below DIR and prints one line of JSON: how many events there "
		       "are, the last sequence, the hash of the last event, and with --key-file an Ed25519 signature. "
		       "Keep it elsewhere: with it, 'sluice audit verify --checkpoint' detects that the end of the "
		       "chain was cut off, which nothing in DIR can show.",
	.example = "sluice audit head ./lake --dataset ledgers\n"
		   "sluice audit head ./lake --dataset ledgers --key-file audit.key > ledgers.head",
	.run = audit_head_run,
};

/* ---- keygen ---- */

static int audit_keygen_run(struct cli *cli, const struct parsed *args)
{
	const char *path = args->operands[0];
	struct sl_err err = SL_ERR_INIT;
	uint8_t key[SL_AUDIT_PUBLIC_KEY_BYTES];
	char hex[2 * SL_AUDIT_PUBLIC_KEY_BYTES + 1], shown[600];
	int rc = sl_audit_keygen(path, &cli->env, key, &err);

	if (rc != 0)
		return cli_fail(cli, &err, path);
	text_hex(hex, key, sizeof(key));
	text_line(shown, sizeof(shown), path);
	if (opt_flag(args, "json"))
		out_json(&cli->out, json_pack("{s:o, s:s}", "key_file", text_json(path), "public_key", hex));
	else
		out_printf(&cli->out, "%s is the secret key: keep it to yourself\n%s.pub is the public key: %s", shown,
			   shown, hex);
	out_str(&cli->out, "\n");
	return EXIT_OK;
}

static const struct opt keygen_opts[] = {
	OPT_JSON("Print {\"key_file\":…,\"public_key\":…}"),
	{.name = NULL},
};

const struct command cmd_audit_keygen = {
	.name = "audit keygen",
	.operands = "FILE",
	.summary = "create a key that signs heads",
	.opts = keygen_opts,
	.description =
		"Writes a new Ed25519 key: the secret key to FILE, which only you can read (mode 0600), and the public "
		"key to FILE.pub. An existing file is never replaced (status 73). The secret key is never printed.",
	.example = "sluice audit keygen audit.key\n"
		   "sluice audit keygen /etc/sluice/audit.key",
	.run = audit_keygen_run,
};
