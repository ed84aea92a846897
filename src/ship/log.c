/* SPDX-License-Identifier: Apache-2.0 */
/* The log that lines go through on their way to the target, and the group that is made durable next. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fnv.h"
#include "ship/log.h"

struct ship_log_record {
	size_t at, len; /* in bytes */
	struct ship_step step;
};

enum {
	RETRY_FIRST_MS = 250,
	RETRY_CAP_MS = 10000,
	SEND_RECORDS = 5000,
	SEND_BYTES = 2 << 20,
	LINGER_MS = 5,
	RETENTION_DAYS = 30,
	SPANS_MAX = 4096
};

const char *sl__ship_count(char to[SHIP_COUNT_BYTES], uint64_t lines)
{
	(void)snprintf(to, SHIP_COUNT_BYTES, "%" PRIu64 " line%s", lines, lines == 1 ? "" : "s");
	return to;
}

/* ---- open and close ---- */

/* Everything that this machine ships to one target is one stream unless the options name another: a file that is added
 * to the inputs, or removed, does not change what was read of the others. */
static void name_stream(struct ship_log *log, const char *stream, uint64_t target)
{
	char host[65] = "";

	if (stream != NULL) {
		(void)snprintf(log->id, sizeof(log->id), "%s", stream);
		return;
	}
	if (gethostname(host, sizeof(host) - 1) || !isalnum((unsigned char)host[0]))
		(void)snprintf(host, sizeof(host), "host");
	host[strcspn(host, ".")] = '\0';
	for (char *p = host; *p; p++)
		if (!isalnum((unsigned char)*p) && *p != '-' && *p != '_')
			*p = '-';
	(void)snprintf(log->id, sizeof(log->id), "%s-%08" PRIx32, host, (uint32_t)(target ^ target >> 32));
}

static int open_wal(struct ship_log *log, const struct sl_ship_opts *opts, struct sl_err *err)
{
	struct sl_wal_opts wal = {SL_WAL_OPTS_INIT,
				  .env = log->env,
				  .wal_dir = log->dir,
				  .key_file = opts->key_file,
				  .max_pending_bytes = opts->max_pending_bytes,
				  .on_full = SL_WAL_FULL_ERROR,
				  .retry_backoff = {.first_ms = RETRY_FIRST_MS, .cap_ms = RETRY_CAP_MS},
				  .batch_records = SEND_RECORDS,
				  .batch_bytes = SEND_BYTES,
				  .linger_ms = LINGER_MS,
				  .discard_settled = SL_ON};
	int rc = sl_wal_open(&log->wal, log->id, &wal, err);

	if (rc == SL_ELOCKED)
		return sl_err_set(err, rc, "another process ships the stream %.64s from %.120s; use another --stream",
				  log->id, log->dir);
	return rc;
}

int sl__ship_log_open(struct ship_log *log, const struct sl_env *env, const struct sl_ship_opts *opts,
		      const char *target, struct sl_err *err)
{
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	uint64_t hash = sl__fnv(target, strlen(target));
	struct sl_err why = SL_ERR_INIT;
	int rc;

	*log = (struct ship_log){.env = env, .state.env = env, .bytes.env = env, .first.env = env};
	name_stream(log, opts->stream, hash);
	if (snprintf(log->dir, sizeof(log->dir), "%s", opts->wal_dir) >= PATH_MAX ||
	    snprintf(log->copy, sizeof(log->copy), "%s/%s.place", log->dir, log->id) >= PATH_MAX)
		return sl_err_set(err, SL_EINVAL, "wal_dir: the path is too long");
	rc = open_wal(log, opts, err);
	if (rc != 0)
		return rc;
	rc = sl__ship_recover(&log->state, log->wal, log->copy, &log->pending, err);
	if (rc != 0)
		return rc;

	/* What recoveries of earlier runs quarantined is not kept forever. Archives in the folder are not ours. */
	if (sl_wal_cleanup_quarantine(log->dir, log->id, RETENTION_DAYS, env, &why))
		sl__log_text(env, SL_LOG_WARN, "ship", "clean-up of %s: %s", log->dir, why.msg);
	rc = sl__ship_save(&log->state, log->wal, log->copy, &why);
	if (rc != 0 && rc != SL_ENOSPC) {
		if (err != NULL)
			*err = why;
		return rc;
	}
	if (rc != 0) /* the log has the state too, and what waits in it can be delivered */
		sl__log_text(env, SL_LOG_WARN, "ship", "%s", why.msg);

	/* Lines that wait for one target must not go to another because of a mistaken name. */
	rc = sl_wal_get_stats(log->wal, &stats, err);
	if (rc != 0)
		return rc;
	if (log->state.target && log->state.target != hash && stats.pending && opts->retarget != SL_ON)
		return sl_err_set(err, SL_ECONFIG,
				  "%.70s/%.40s.wal has %" PRIu64
				  " lines for another target; send them there first, use another --stream, or add "
				  "--retarget to send them here",
				  log->dir, log->id, stats.pending);
	log->state.target = hash;
	return 0;
}

int sl__ship_log_close(struct ship_log *log, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	int rc = 0;

	if (log->env == NULL)
		return 0;
	if (log->wal != NULL && sl__ship_save(&log->state, log->wal, log->copy, &why))
		sl__log_text(log->env, SL_LOG_WARN, "ship", "%s", why.msg); /* the log has the state too */
	if (log->wal != NULL)
		rc = sl_wal_close(log->wal, err);
	sl__ship_state_fini(&log->state);
	sl__buf_fini(&log->bytes);
	sl__buf_fini(&log->first);
	sl__free(log->env, log->records);
	*log = (struct ship_log){.env = NULL};
	return rc;
}

/* ---- lines ---- */

size_t sl__ship_log_waiting(const struct ship_log *log)
{
	return log->done < log->n ? log->bytes.len - log->records[log->done].at : 0;
}

int sl__ship_log_add(struct ship_log *log, const struct ship_line *line, struct sl_err *err)
{
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	size_t at = log->bytes.len;
	int rc;

	/* No one else appends: the sequences of records that are not in the log yet are known. */
	if (log->n == 0) {
		rc = sl_wal_get_stats(log->wal, &stats, err);
		if (rc != 0)
			return rc;
		log->state.sequence = stats.last_sequence;
	}
	struct ship_log_record *grown = sl__grow(log->env, log->records, log->n, &log->cap, sizeof(*grown));

	if (grown == NULL)
		return sl__no_memory(err, "line");
	log->records = grown;
	rc = sl__ship_encode(&log->bytes, &log->state, line, log->state.sequence + (log->n - log->done) + 1, err);
	if (rc != 0)
		return rc;
	log->records[log->n++] = (struct ship_log_record){at, log->bytes.len - at, sl__ship_step_of(line)};
	return 0;
}

/* As many as fit one flush. They are in the log as a whole, or a beginning of them after a crash. */
static int flush_some(struct ship_log *log, struct sl_err *err)
{
	const struct ship_log_record *r = &log->records[log->done];
	struct sl_wal_span spans[SPANS_MAX];
	struct sl_wal_ticket ticket;
	size_t n = SL_MIN(log->n - log->done, (size_t)SPANS_MAX), taken = 0;
	uint64_t expected;
	int rc;

	/* The first record of the group gets the snapshot. */
	sl__buf_clear(&log->first);
	(void)sl__buf_append(&log->first, log->bytes.data + r->at, r->len);
	sl__ship_encode_snapshot(&log->first, &log->state);
	if (log->first.failed)
		return sl__no_memory(err, "lines");
	spans[0] = (struct sl_wal_span){log->first.data, log->first.len};
	for (size_t i = 1; i < n; i++)
		spans[i] = (struct sl_wal_span){log->bytes.data + r[i].at, r[i].len};
	rc = sl_wal_submit_many(log->wal, spans, n, &ticket, &taken, err);
	if (rc != 0)
		return rc;
	rc = sl_wal_wait(log->wal, &ticket, SL_UNLIMITED, err);
	if (rc != 0)
		return rc;
	expected = log->state.sequence + taken;
	if (ticket.sequence != expected)
		return sl_err_set(err, SL_EINTERNAL, "the log returned sequence %" PRIu64 " instead of %" PRIu64,
				  ticket.sequence, expected);
	for (size_t i = 0; i < taken; i++)
		sl__ship_apply(&log->state, &r[i].step);
	log->done += taken;
	log->lines += taken;
	log->state.sequence = expected;
	return 0;
}

int sl__ship_log_flush(struct ship_log *log, struct sl_err *err)
{
	while (log->done < log->n) {
		int rc = flush_some(log, err);

		if (rc != 0)
			return rc;
	}
	log->n = log->done = 0;
	sl__buf_clear(&log->bytes);
	return 0;
}
