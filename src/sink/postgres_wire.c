/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Talking to the server with a deadline. The server's own statement timeout ends what takes too long; a server that has
 * stopped, or a network that loses everything, is found here: no answer within that timeout and a few seconds.
 */
#include <errno.h>
#include <poll.h>

#include "sink/postgres.h"

#define GRACE_MS 5000

static int64_t deadline(const struct sl__pg_lane *lane)
{
	int64_t ms = lane->sink->opts.statement_timeout_ms;
	return ms == SL_UNLIMITED ? SL_FOREVER : sl__mono_ns(&lane->sink->env) + (ms + GRACE_MS) * 1000000;
}

static int lost(struct sl__pg_lane *lane, struct sl_err *err)
{
	return sl__pg_sink_error(err, lane->pg, NULL, "write");
}

/* Wait until the socket can do one of the events. */
static int await(struct sl__pg_lane *lane, short events, int64_t until, struct sl_err *err)
{
	for (;;) {
		if (sl__pg_is_cancelled(lane->sink))
			return sl__sink_class(err, sl_err_set(err, SL_ECANCELLED, "postgres: write: cancelled"),
					      SL_CLASS_TRANSIENT);
		int64_t left = until == SL_FOREVER ? -1 : (until - sl__mono_ns(&lane->sink->env)) / 1000000;
		if (until != SL_FOREVER && left <= 0)
			return sl__sink_class(
				err,
				sl_err_set(err, SL_ETIMEDOUT, "postgres: write: no answer within %lld s",
					   (long long)(lane->sink->opts.statement_timeout_ms + GRACE_MS) / 1000),
				SL_CLASS_FATAL);
		struct pollfd p = {.fd = PQsocket(lane->pg), .events = events};
		int n = poll(&p, 1, left < 0 || left > INT32_MAX ? INT32_MAX : (int)left + 1);
		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return sl__sink_class(err, sl_err_set_errno(err, errno, "postgres: poll"), SL_CLASS_FATAL);
	}
}

/* Send what libpq has queued, taking in what the server says meanwhile: else both sides could wait for each other. */
int sl__pg_push(struct sl__pg_lane *lane, struct sl_err *err)
{
	int64_t until = deadline(lane);
	for (;;) {
		int left = PQflush(lane->pg);
		if (left == 0)
			return 0;
		if (left < 0)
			return lost(lane, err);
		int rc = await(lane, POLLIN | POLLOUT, until, err);
		if (rc != 0)
			return rc;
		if (PQconsumeInput(lane->pg) == 0)
			return lost(lane, err);
	}
}

PGresult *sl__pg_next(struct sl__pg_lane *lane, int *rc, struct sl_err *err)
{
	int64_t until = deadline(lane);
	*rc = sl__pg_push(lane, err);
	while (*rc == 0 && PQisBusy(lane->pg)) {
		*rc = await(lane, POLLIN, until, err);
		if (*rc == 0 && PQconsumeInput(lane->pg) == 0)
			*rc = lost(lane, err);
	}
	return *rc == 0 ? PQgetResult(lane->pg) : NULL;
}

int sl__pg_simple(struct sl__pg_lane *lane, const char *sql, const char *what, struct sl_err *err)
{
	if (PQsendQuery(lane->pg, sql) == 0)
		return lost(lane, err);
	int rc = 0, wait_rc = 0;
	for (;;) {
		PGresult *res = sl__pg_next(lane, &wait_rc, err);
		if (res == NULL)
			return wait_rc != 0 ? wait_rc : rc;
		ExecStatusType status = PQresultStatus(res);
		if (rc == 0 && status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
			rc = sl__pg_sink_error(err, lane->pg, res, what);
		PQclear(res);
	}
}

/* ---- errors ---- */

/*
 * SQLSTATEs in the four classes of <sluice/err.h>. The longest prefix counts; every class of PostgreSQL's appendix A
 * has its own row, and what is new there is transient: tried again, charged, and in the end a dead letter.
 *
 *   poison      something in these rows; others will be taken
 *   transient   this attempt
 *   throttled   the server is there and has enough for now
 *   fatal       the server is unavailable, or refuses everything: wrong table, no rights, no space
 */
static const struct {
	const char *prefix;
	enum sl_err_class error_class;
} sqlstate_classes[] = {
	{"00", SL_CLASS_TRANSIENT},    /* success: no error */
	{"01", SL_CLASS_TRANSIENT},    /* warning */
	{"02", SL_CLASS_TRANSIENT},    /* no data */
	{"03", SL_CLASS_TRANSIENT},    /* statement not yet complete */
	{"08", SL_CLASS_FATAL},        /* connection exception */
	{"08P01", SL_CLASS_TRANSIENT}, /* a message that it cannot read */
	{"09", SL_CLASS_POISON},       /* triggered action exception */
	{"0A", SL_CLASS_FATAL},        /* feature not supported */
	{"0B", SL_CLASS_TRANSIENT},    /* invalid transaction initiation */
	{"0F", SL_CLASS_POISON},       /* locator exception */
	{"0L", SL_CLASS_FATAL},        /* invalid grantor */
	{"0P", SL_CLASS_FATAL},        /* invalid role */
	{"0Z", SL_CLASS_POISON},       /* diagnostics exception */
	{"20", SL_CLASS_POISON},       /* case not found */
	{"21", SL_CLASS_POISON},       /* cardinality violation */
	{"22", SL_CLASS_POISON},       /* data exception */
	{"23", SL_CLASS_POISON},       /* integrity constraint violation */
	{"24", SL_CLASS_TRANSIENT},    /* invalid cursor state */
	{"25", SL_CLASS_TRANSIENT},    /* invalid transaction state */
	{"25006", SL_CLASS_FATAL},     /* read only: a standby */
	{"25P03", SL_CLASS_FATAL},     /* idle in transaction too long: disconnected */
	{"26", SL_CLASS_TRANSIENT},    /* no such prepared statement */
	{"27", SL_CLASS_POISON},       /* triggered data change violation */
	{"28", SL_CLASS_FATAL},        /* invalid authorization */
	{"2B", SL_CLASS_FATAL},        /* dependent privilege descriptors */
	{"2D", SL_CLASS_TRANSIENT},    /* invalid transaction termination */
	{"2F", SL_CLASS_POISON},       /* SQL routine exception */
	{"34", SL_CLASS_TRANSIENT},    /* invalid cursor name */
	{"38", SL_CLASS_POISON},       /* external routine exception */
	{"39", SL_CLASS_POISON},       /* external routine invocation exception */
	{"3B", SL_CLASS_TRANSIENT},    /* savepoint exception */
	{"3D", SL_CLASS_FATAL},        /* no such database */
	{"3F", SL_CLASS_FATAL},        /* no such schema */
	{"40", SL_CLASS_TRANSIENT},    /* serialization failure, deadlock */
	{"42", SL_CLASS_FATAL},        /* syntax, access, names and types of the table */
	{"42804", SL_CLASS_FATAL},     /* datatype mismatch: the table's, not a row's */
	{"44", SL_CLASS_POISON},       /* WITH CHECK OPTION */
	{"53", SL_CLASS_THROTTLED},    /* insufficient resources: too many connections */
	{"53100", SL_CLASS_FATAL},     /* disk full */
	{"53200", SL_CLASS_TRANSIENT}, /* out of memory */
	{"54", SL_CLASS_POISON},       /* program limit: a row too big */
	{"55", SL_CLASS_FATAL},        /* object not in the state for it */
	{"55006", SL_CLASS_TRANSIENT}, /* object in use */
	{"55P03", SL_CLASS_TRANSIENT}, /* lock not available */
	{"57", SL_CLASS_FATAL},        /* shutdown, crash, starting up */
	{"57014", SL_CLASS_TRANSIENT}, /* cancelled, or the statement timeout */
	{"58", SL_CLASS_TRANSIENT},    /* the server's own I/O */
	{"72", SL_CLASS_TRANSIENT},    /* snapshot too old */
	{"F0", SL_CLASS_FATAL},        /* configuration file */
	{"HV", SL_CLASS_TRANSIENT},    /* foreign data wrapper */
	{"P0", SL_CLASS_POISON},       /* raised by a trigger or function */
	{"XX", SL_CLASS_TRANSIENT},    /* internal error */
	{"XX001", SL_CLASS_FATAL},     /* the table is damaged */
	{"XX002", SL_CLASS_FATAL},     /* its index is */
};

enum sl_err_class sl__pg_sink_class(const char *sqlstate)
{
	enum sl_err_class best = SL_CLASS_TRANSIENT;
	size_t length = 0;
	for (size_t i = 0; i < SL_COUNT(sqlstate_classes); i++) {
		size_t n = strlen(sqlstate_classes[i].prefix);
		if (n > length && strncmp(sqlstate, sqlstate_classes[i].prefix, n) == 0) {
			best = sqlstate_classes[i].error_class;
			length = n;
		}
	}
	return best;
}

int sl__pg_sink_error(struct sl_err *err, const PGconn *pg, const PGresult *res, const char *what)
{
	struct sl_err local;
	struct sl_err *e = err != NULL ? err : &local;
	const char *constraint = res != NULL ? PQresultErrorField(res, PG_DIAG_CONSTRAINT_NAME) : NULL;
	if (constraint != NULL && strcmp(constraint, SL__PG_LOAD_FENCE) == 0)
		return sl__load_taken_over(e);
	int code = sl__pg_error(e, pg, res, what);
	enum sl_err_class error_class = e->sqlstate[0] != '\0' ? sl__pg_sink_class(e->sqlstate) : SL_CLASS_FATAL;
	if (strcmp(e->sqlstate, "22P02") == 0 && strstr(e->msg, SL__PG_OTHER_ROW) != NULL) {
		code = e->code = SL_ECONFLICT;
		error_class = SL_CLASS_FATAL; /* whatever comes under these keys */
	}
	if (error_class == SL_CLASS_POISON && code == SL_EINTERNAL)
		code = e->code = SL_EDATA;
	return sl__sink_class(e, code, error_class);
}
