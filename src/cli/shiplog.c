/* SPDX-License-Identifier: Apache-2.0 */
#include "shiplog.h"

#include "walfile.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct shiplog_record {
	size_t at, len; /* in bytes */
	struct ship_step step;
};

enum {
	RETRY_FIRST_MS = 250,
	RETRY_CAP_MS = 10000,
	SEND_RECORDS = 5000,
	SEND_BYTES = 2 << 20,
	LINGER_MS = 5,
	RETENTION_DAYS = 30
};

/* ---- its name ---- */

/* The machine's name as part of a stream's id: what is not allowed there becomes '-'. */
static void host_name(char out[65])
{
	char name[65] = "";

	if (gethostname(name, sizeof(name) - 1) || !isalnum((unsigned char)name[0]))
		(void)snprintf(name, sizeof(name), "host");
	name[strcspn(name, ".")] = '\0';
	for (char *p = name; *p; p++)
		if (!isalnum((unsigned char)*p) && *p != '-' && *p != '_')
			*p = '-';
	memcpy(out, name, sizeof(name));
}

/* Everything that this machine ships to one target is one stream unless --stream says otherwise: a file that is added
 * to the command, or taken away, does not change what was read of the others. */
static void name_stream(struct shiplog *log, const struct parsed *args, uint64_t target)
{
	const char *id = opt_str(args, "stream");
	char host[65];

	host_name(host);
	if (id)
		(void)snprintf(log->id, sizeof(log->id), "%s", id);
	else
		(void)snprintf(log->id, sizeof(log->id), "%s-%08" PRIx32, host, (uint32_t)(target ^ target >> 32));
}

static int name_files(struct shiplog *log, const struct parsed *args)
{
	const char *dir = opt_str(args, "wal"), *home = getenv("HOME");
	int n = 0, m;

	if (dir)
		n = snprintf(log->dir, sizeof(log->dir), "%s", dir);
	else if (home && *home)
		n = snprintf(log->dir, sizeof(log->dir), "%s/.sluice/ship", home);
	else
		return cli_usage(log->cli, "HOME is not set; give --wal=DIR");
	m = snprintf(log->copy, sizeof(log->copy), "%s/%s.place", log->dir, log->id);
	return n >= PATH_MAX || m >= PATH_MAX ? cli_usage(log->cli, "--wal: the name of the folder is too long") : 0;
}

/* ---- open and close ---- */

/* Lines that wait for one target must not go to another because somebody mistook a name. */
static int check_target(struct shiplog *log, const struct parsed *args, uint64_t target)
{
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	struct sl_err err = SL_ERR_INIT;

	if (sl_wal_get_stats(log->wal, &stats, &err))
		return cli_fail(log->cli, &err, log->dir);
	if (log->state.target && log->state.target != target && stats.pending && !opt_flag(args, "retarget")) {
		cli_say(log->cli, SL_LOG_ERROR,
			"%s/%s.wal has %" PRIu64 " lines for another target: send them there first, give this one "
			"another --stream, or add --retarget to send them here",
			log->dir, log->id, stats.pending);
		return sl_err_exit_code(SL_ECONFIG);
	}
	log->state.target = target;
	return 0;
}

static int open_wal(struct shiplog *log, const struct parsed *args)
{
	struct sl_wal_opts opts = {SL_WAL_OPTS_INIT,
				   .env = &log->cli->env,
				   .wal_dir = log->dir,
				   .key_file = opt_str(args, "key-file"),
				   .max_pending_bytes = opt_num(args, "max-pending"),
				   .on_full = SL_WAL_FULL_ERROR,
				   .retry_backoff = {.first_ms = RETRY_FIRST_MS, .cap_ms = RETRY_CAP_MS},
				   .batch_records = SEND_RECORDS,
				   .batch_bytes = SEND_BYTES,
				   .linger_ms = LINGER_MS,
				   .discard_settled = SL_ON};
	struct sl_err err = SL_ERR_INIT;
	int rc = sl_wal_open(&log->wal, log->id, &opts, &err);

	if (rc == SL_ELOCKED)
		(void)sl_err_set(
			&err, rc,
			"another process ships the stream %.64s from %.120s; give this one a --stream of its own",
			log->id, log->dir);
	return rc ? cli_fail(log->cli, &err, log->dir) : 0;
}

int shiplog_open(struct shiplog *log, struct cli *cli, const struct parsed *args, const char *target)
{
	uint64_t hash = ship_hash(target, strlen(target));
	struct sl_err err = SL_ERR_INIT;
	int rc;

	*log = (struct shiplog){.cli = cli};
	name_stream(log, args, hash);
	rc = name_files(log, args);
	rc = rc ? rc : open_wal(log, args);
	if (rc)
		return rc;
	if (ship_recover(&log->state, log->wal, log->copy, &log->pending, &err))
		return cli_fail(cli, &err, log->dir);
	/* What recoveries of earlier runs put aside does not stay for ever. Archives in the folder are not ours. */
	if (sl_wal_cleanup_quarantine(log->dir, log->id, RETENTION_DAYS, &cli->env, &err))
		cli_say(cli, SL_LOG_WARN, "clean-up of %s: %s", log->dir, err.msg);
	rc = ship_save(&log->state, log->wal, log->copy, &err);
	if (rc == SL_ENOSPC) /* the log has it all the same, and what waits in it can be delivered */
		cli_say(cli, SL_LOG_WARN, "%s", err.msg);
	else if (rc)
		return cli_fail(cli, &err, log->dir);
	return check_target(log, args, hash);
}

int shiplog_close(struct shiplog *log)
{
	struct sl_err err = SL_ERR_INIT;
	int rc = 0;

	if (log->wal && ship_save(&log->state, log->wal, log->copy, &err))
		cli_say(log->cli, SL_LOG_WARN, "%s", err.msg); /* the log has it all the same */
	if (log->wal && sl_wal_close(log->wal, &err))
		rc = cli_fail(log->cli, &err, log->dir);
	ship_state_fini(&log->state);
	ship_buf_fini(&log->bytes);
	ship_buf_fini(&log->first);
	free(log->records);
	*log = (struct shiplog){.cli = log->cli};
	return rc;
}

/* ---- lines ---- */

size_t shiplog_waiting(const struct shiplog *log)
{
	return log->done < log->n ? log->bytes.n - log->records[log->done].at : 0;
}

static int grow(struct shiplog *log)
{
	size_t cap = log->cap ? log->cap * 2 : 1024;
	struct shiplog_record *records;

	if (log->n < log->cap)
		return 0;
	records = realloc(log->records, cap * sizeof(*records));
	if (!records)
		return SL_ENOMEM;
	log->records = records;
	log->cap = cap;
	return 0;
}

/* Nobody else appends: the numbers of records that are not in the log yet are known. */
int shiplog_add(struct shiplog *log, const struct ship_line *line, struct sl_err *err)
{
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	size_t at = log->bytes.n;
	int rc = log->n ? 0 : sl_wal_get_stats(log->wal, &stats, err);

	if (!rc && log->n == 0)
		log->state.sequence = stats.last_sequence;
	if (!rc && grow(log))
		rc = sl_err_set(err, SL_ENOMEM, "out of memory");
	if (!rc)
		rc = ship_encode(&log->bytes, &log->state, line, log->state.sequence + (log->n - log->done) + 1,
				 &log->cli->env, err);
	if (rc)
		return rc;
	log->records[log->n++] = (struct shiplog_record){at, log->bytes.n - at, ship_step_of(line)};
	return 0;
}

static int make_spans(struct shiplog *log, struct sl_wal_span *spans, size_t n, struct sl_err *err)
{
	const struct shiplog_record *r = &log->records[log->done];

	log->first.n = 0;
	ship_buf_add(&log->first, log->bytes.data + r->at, r->len);
	ship_encode_snapshot(&log->first, &log->state);
	if (log->first.failed) {
		log->first.failed = 0;
		return sl_err_set(err, SL_ENOMEM, "out of memory");
	}
	spans[0] = (struct sl_wal_span){log->first.data, log->first.n};
	for (size_t i = 1; i < n; i++)
		spans[i] = (struct sl_wal_span){log->bytes.data + r[i].at, r[i].len};
	return 0;
}

/* As many as fit one flush. They are in the log as a whole, or a beginning of them after a crash. */
static int flush_some(struct shiplog *log, struct sl_err *err)
{
	enum { MANY = 4096 };
	struct sl_wal_span spans[MANY];
	struct sl_wal_ticket ticket;
	size_t n = log->n - log->done < MANY ? log->n - log->done : MANY, taken = 0;
	uint64_t expected;
	int rc = make_spans(log, spans, n, err);

	rc = rc ? rc : sl_wal_submit_many(log->wal, spans, n, &ticket, &taken, err);
	rc = rc ? rc : sl_wal_wait(log->wal, &ticket, SL_UNLIMITED, err);
	if (rc)
		return rc;
	expected = log->state.sequence + taken;
	if (ticket.sequence != expected)
		return sl_err_set(err, SL_EINTERNAL, "the log gave sequence %" PRIu64 " instead of %" PRIu64,
				  ticket.sequence, expected);
	for (size_t i = 0; i < taken; i++)
		ship_apply(&log->state, &log->records[log->done + i].step);
	log->done += taken;
	log->lines += taken;
	log->state.sequence = expected;
	return 0;
}

int shiplog_flush(struct shiplog *log, struct sl_err *err)
{
	int rc = 0;

	while (!rc && log->done < log->n)
		rc = flush_some(log, err);
	if (!rc)
		log->n = log->done = log->bytes.n = 0;
	return rc;
}
