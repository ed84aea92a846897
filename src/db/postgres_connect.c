/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connecting. Our defaults stand before the caller's conninfo and so give way to it; what the code relies on stands
 * behind it.
 */
#include <stdio.h>

#include "db/postgres.h"

static void discard_notice(void *arg, const PGresult *res)
{
	(void)arg, (void)res; /* the library never prints */
}

int sl__pg_check_conninfo(const char *conninfo, struct sl_err *err)
{
	PQconninfoOption *parsed = PQconninfoParse(conninfo, NULL);
	if (parsed == NULL)
		return sl_err_set(err, SL_EINVAL,
				  "postgres: the connection string is not a postgres:// URL nor key=value pairs");
	PQconninfoFree(parsed);
	return 0;
}

/* Strike out every occurrence of a secret. */
static void scrub(char *text, const char *secret)
{
	size_t n = secret != NULL ? strlen(secret) : 0;
	if (n == 0)
		return;
	for (char *at = strstr(text, secret); at != NULL; at = strstr(at, secret)) {
		memset(at, '*', n);
		at += n;
	}
}

/* A failed connection says why in words only; the server's SQLSTATE is in the text of no version. */
static int connect_error(struct sl_err *err, const PGconn *pg)
{
	struct sl_err local;
	struct sl_err *e = err != NULL ? err : &local;
	int code = sl__pg_error(e, pg, NULL, "connect");
	scrub(e->msg, PQpass(pg));
	static const struct {
		const char *part;
		int code;
	} final[] = {{"password authentication failed", SL_EACCES},
		     {"no pg_hba.conf entry", SL_EACCES},
		     {"no password supplied", SL_EACCES},
		     {"\" does not exist", SL_ECONFIG}};
	for (size_t i = 0; i < SL_COUNT(final); i++)
		if (strstr(e->msg, final[i].part) != NULL) {
			code = e->code = final[i].code;
			e->retryable = 0;
		}
	return code;
}

static int apply_settings(PGconn *pg, const struct sl__pg_opts *opts, struct sl_err *err)
{
	char *sql = sl__asprintf(opts->env, "SET statement_timeout = %lld;%s",
				 (long long)(opts->statement_timeout_ms > 0 ? opts->statement_timeout_ms : 0),
				 opts->settings != NULL ? opts->settings : "");
	if (sql == NULL)
		return sl_err_set(err, SL_ENOMEM, "postgres: connect: out of memory");
	PGresult *res = PQexec(pg, sql);
	sl__free(opts->env, sql);
	int rc = PQresultStatus(res) == PGRES_COMMAND_OK ? 0 : sl__pg_error(err, pg, res, "connect: settings");
	PQclear(res);
	return rc;
}

int sl__pg_connect(PGconn **out, const struct sl__pg_opts *opts, struct sl_err *err)
{
	char seconds[16], user_timeout[16];
	/* libpq counts whole seconds, and takes 1 for 2. */
	(void)snprintf(seconds, sizeof seconds, "%d",
		       (int)SL_MIN((opts->connect_timeout_ms + 999) / 1000, (int64_t)3600));
	(void)snprintf(user_timeout, sizeof user_timeout, "%d",
		       (int)SL_MIN(opts->connect_timeout_ms * 2, (int64_t)600000));
	const char *const keys[] = {"connect_timeout",
				    "tcp_user_timeout",
				    "keepalives_idle",
				    "keepalives_interval",
				    "keepalives_count",
				    "fallback_application_name",
				    "dbname",
				    "client_encoding",
				    NULL};
	const char *const values[] = {seconds,           user_timeout,   "5",    "3", "3",
				      opts->application, opts->conninfo, "UTF8", NULL};
	int rc = sl__pg_check_conninfo(opts->conninfo, err);
	if (rc != 0)
		return rc;
	PGconn *pg = PQconnectdbParams(keys, values, 1);
	if (pg == NULL)
		return sl_err_set(err, SL_ENOMEM, "postgres: connect: out of memory");
	(void)PQsetNoticeReceiver(pg, discard_notice, NULL);
	rc = PQstatus(pg) == CONNECTION_OK ? apply_settings(pg, opts, err) : connect_error(err, pg);
	if (rc != 0) {
		PQfinish(pg);
		return rc;
	}
	*out = pg;
	return 0;
}
