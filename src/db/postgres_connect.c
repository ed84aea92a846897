/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connecting. Our defaults come before the caller's conninfo, which overrides them; what the code relies on comes
 * after it.
 */
#include <stdio.h>
#include <stdlib.h>

#include "db/postgres.h"

/* Of both ends: a peer that is gone is noticed after 14 s. */
#define KEEPALIVES_IDLE "5"
#define KEEPALIVES_INTERVAL "3"
#define KEEPALIVES_COUNT "3"

static void discard_notice(void *arg, const PGresult *res)
{
	(void)arg, (void)res; /* the library never prints */
}

/* One for each host, with commas between them; an empty one is the default. libpq looks only when it connects, and then
 * it cannot be distinguished from a server that is unavailable. */
static bool is_port_list(const char *text)
{
	for (;;) {
		text += strspn(text, " ");
		size_t n = strspn(text, "0123456789");
		if (n > 5 || (n > 0 && (atoi(text) < 1 || atoi(text) > 65535)))
			return false;
		text += n;
		text += strspn(text, " ");
		if (*text == '\0')
			return true;
		if (*text++ != ',')
			return false;
	}
}

int sl__pg_check_conninfo(const char *conninfo, struct sl_err *err)
{
	PQconninfoOption *parsed = PQconninfoParse(conninfo, NULL);
	if (parsed == NULL)
		return sl_err_set(err, SL_EINVAL,
				  "postgres: the connection string is neither a postgres:// URL nor key=value pairs");
	int rc = 0;
	for (const PQconninfoOption *o = parsed; o->keyword != NULL && rc == 0; o++)
		if (strcmp(o->keyword, "port") == 0 && o->val != NULL && !is_port_list(o->val))
			/* It may be the beginning of a password, so it is not shown. */
			rc = sl_err_set(err, SL_EINVAL,
					"postgres: the port is not a number from 1 to 65535; in a password write / as "
					"%%2F");
	PQconninfoFree(parsed);
	return rc;
}

/* A failed connection says why in words only; the server's SQLSTATE is in the text of no version. */
static int connect_error(struct sl_err *err, const PGconn *pg)
{
	struct sl_err local;
	struct sl_err *e = err != NULL ? err : &local;
	int code = sl__pg_error(e, pg, NULL, "connect");
	/* Strike out every occurrence of the password. */
	const char *secret = PQpass(pg);
	size_t n = secret != NULL ? strlen(secret) : 0;
	for (char *at = e->msg; n > 0 && (at = strstr(at, secret)) != NULL; at += n)
		memset(at, '*', n);
	static const struct {
		const char *part;
		int code;
	} final[] = {{"password authentication failed", SL_EACCES},
		     {"no pg_hba.conf entry", SL_EACCES},
		     {"no password supplied", SL_EACCES},
		     {"\" does not exist", SL_ECONFIG}};
	for (size_t i = 0; i < SL_COUNT(final); i++)
		if (strstr(e->msg, final[i].part) != NULL)
			code = e->code = final[i].code;
	return code;
}

/* Is the process that answers another than the one that was announced with the connection? Then a pooler stands
 * between: it may give us another session with every transaction, and what is set in one stays for the next client.
 * So the timeouts of the server's end, and the caller's settings, are set only in a session that is ours. Those of TCP
 * do nothing to a unix socket. */
static int apply_settings(PGconn *pg, const struct sl__pg_opts *opts, int user_timeout_ms, bool *pooled,
			  struct sl_err *err)
{
	char sql[640];
	(void)snprintf(sql, sizeof(sql),
		       "SELECT s.own, CASE WHEN s.own THEN set_config('statement_timeout', '%lld', false)"
		       " || set_config('idle_in_transaction_session_timeout', '%lld', false)"
		       " || set_config('tcp_user_timeout', '%d', false)"
		       " || set_config('tcp_keepalives_idle', '" KEEPALIVES_IDLE "', false)"
		       " || set_config('tcp_keepalives_interval', '" KEEPALIVES_INTERVAL "', false)"
		       " || set_config('tcp_keepalives_count', '" KEEPALIVES_COUNT "', false) END"
		       " FROM (SELECT pg_backend_pid() = %d AS own OFFSET 0) s",
		       (long long)(opts->statement_timeout_ms > 0 ? opts->statement_timeout_ms : 0),
		       (long long)opts->transaction_timeout_ms, user_timeout_ms, PQbackendPID(pg));
	PGresult *res = PQexec(pg, sql);
	int rc = PQresultStatus(res) == PGRES_TUPLES_OK ? 0 : sl__pg_error(err, pg, res, "connect: timeouts");
	*pooled = rc == 0 && PQgetvalue(res, 0, 0)[0] != 't';
	PQclear(res);
	if (rc != 0 || opts->settings == NULL || opts->settings[0] == '\0' || *pooled)
		return rc;
	res = PQexec(pg, opts->settings);
	rc = PQresultStatus(res) == PGRES_COMMAND_OK ? 0 : sl__pg_error(err, pg, res, "connect: settings");
	PQclear(res);
	return rc;
}

static int connect_to(PGconn **out, bool *pooled, const struct sl__pg_opts *opts, struct sl_err *err)
{
	char seconds[16], user_timeout[16];
	/* libpq counts whole seconds, and takes 1 for 2. */
	(void)snprintf(seconds, sizeof(seconds), "%d",
		       (int)SL_MIN((opts->connect_timeout_ms + 999) / 1000, (int64_t)3600));
	const int user_timeout_ms = (int)SL_MIN(opts->connect_timeout_ms * 2, (int64_t)600000);
	(void)snprintf(user_timeout, sizeof(user_timeout), "%d", user_timeout_ms);
	const char *const keys[] = {"connect_timeout",
				    "tcp_user_timeout",
				    "keepalives_idle",
				    "keepalives_interval",
				    "keepalives_count",
				    "fallback_application_name",
				    "dbname",
				    "client_encoding",
				    NULL};
	const char *const values[] = {seconds,
				      user_timeout,
				      KEEPALIVES_IDLE,
				      KEEPALIVES_INTERVAL,
				      KEEPALIVES_COUNT,
				      opts->application,
				      opts->conninfo,
				      "UTF8",
				      NULL};
	int rc = sl__pg_check_conninfo(opts->conninfo, err);
	if (rc != 0)
		return rc;
	PGconn *pg = PQconnectdbParams(keys, values, 1);
	if (pg == NULL)
		return sl_err_set(err, SL_ENOMEM, "postgres: connect: out of memory");
	(void)PQsetNoticeReceiver(pg, discard_notice, NULL);
	rc = PQstatus(pg) == CONNECTION_OK ? apply_settings(pg, opts, user_timeout_ms, pooled, err)
					   : connect_error(err, pg);
	if (rc != 0) {
		PQfinish(pg);
		return rc;
	}
	*out = pg;
	return 0;
}

int sl__pg_connect(PGconn **out, const struct sl__pg_opts *opts, struct sl_err *err)
{
	bool pooled;
	return connect_to(out, &pooled, opts, err);
}

int sl__pg_open(struct sl__pg_conn *conn, const struct sl__pg_opts *opts, struct sl_err *err)
{
	return connect_to(&conn->pg, &conn->pooled, opts, err);
}
