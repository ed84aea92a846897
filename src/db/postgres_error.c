/* SPDX-License-Identifier: Apache-2.0 */
/* What an SQLSTATE means: one table, the longest matching prefix wins. */
#include <ctype.h>
#include <stdio.h>

#include "db/postgres.h"

struct state_row {
	const char *prefix;
	int code;
	enum sl_err_class error_class;
};

static const struct state_row state_rows[] = {
	{"08", SL_EUNAVAIL, SL_CLASS_FATAL},         /* connection exception */
	{"22", SL_EDATA, SL_CLASS_POISON},           /* data exception */
	{"23", SL_EDATA, SL_CLASS_POISON},           /* constraint */
	{"25006", SL_EUNAVAIL, SL_CLASS_FATAL},      /* read-only: a standby */
	{"25P02", SL_EINVAL, SL_CLASS_NONE},         /* the transaction has failed before */
	{"25P03", SL_EUNAVAIL, SL_CLASS_FATAL},      /* idle-in-transaction timeout */
	{"26000", SL_EAGAIN, SL_CLASS_TRANSIENT},    /* no such prepared statement: it was forgotten */
	{"28", SL_EACCES, SL_CLASS_FATAL},           /* authorization */
	{"3D", SL_ECONFIG, SL_CLASS_FATAL},          /* no such database */
	{"3F", SL_ECONFIG, SL_CLASS_FATAL},          /* no such schema */
	{"40", SL_EAGAIN, SL_CLASS_TRANSIENT},       /* serialization failure, deadlock */
	{"42501", SL_EACCES, SL_CLASS_FATAL},        /* privilege */
	{"42P05", SL_EAGAIN, SL_CLASS_TRANSIENT},    /* prepared already, by another session */
	{"42P01", SL_ECONFIG, SL_CLASS_FATAL},       /* no such table: not migrated */
	{"53100", SL_ENOSPC, SL_CLASS_TRANSIENT},    /* disk full */
	{"53200", SL_ENOMEM, SL_CLASS_TRANSIENT},    /* out of memory */
	{"53", SL_EUNAVAIL, SL_CLASS_FATAL},         /* too many connections */
	{"54", SL_ETOOBIG, SL_CLASS_POISON},         /* program limit */
	{"55P03", SL_EAGAIN, SL_CLASS_TRANSIENT},    /* lock not available */
	{"57014", SL_ETIMEDOUT, SL_CLASS_TRANSIENT}, /* statement timeout, cancelled */
	{"57P", SL_EUNAVAIL, SL_CLASS_FATAL},        /* shutdown, crash, starting up */
	{"58030", SL_EIO, SL_CLASS_TRANSIENT},       /* I/O error of the server */
	{"XX001", SL_ECORRUPT, SL_CLASS_FATAL},      {"XX002", SL_ECORRUPT, SL_CLASS_FATAL},
};

int sl__pg_code(const char *sqlstate, enum sl_err_class *error_class)
{
	const struct state_row *best = NULL;
	for (size_t i = 0; i < SL_COUNT(state_rows); i++) {
		const struct state_row *row = &state_rows[i];
		bool fits = strncmp(sqlstate, row->prefix, strlen(row->prefix)) == 0;
		if (fits && (best == NULL || strlen(row->prefix) > strlen(best->prefix)))
			best = row;
	}
	*error_class = best != NULL ? best->error_class : SL_CLASS_NONE;
	return best != NULL ? best->code : SL_EINTERNAL;
}

int sl__pg_error(struct sl_err *err, const PGconn *pg, const PGresult *res, const char *what)
{
	const char *state = res != NULL ? PQresultErrorField(res, PG_DIAG_SQLSTATE) : NULL;
	const char *primary = res != NULL ? PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY) : NULL;
	enum sl_err_class error_class = SL_CLASS_FATAL;
	int code = SL_EUNAVAIL; /* no state: libpq speaks, the connection is gone */
	if (state != NULL)
		code = sl__pg_code(state, &error_class);
	/* The first line, without what libpq puts around it. */
	char line[192];
	const char *text = primary != NULL ? primary : PQerrorMessage(pg);
	(void)snprintf(line, sizeof(line), "%s", text != NULL ? text : "");
	size_t n = strcspn(line, "\n");
	while (n > 0 && isspace((unsigned char)line[n - 1]))
		n--;
	line[n] = '\0';
	(void)sl_err_set(err, code, "postgres: %s: %s", what, line[0] != '\0' ? line : "the connection is lost");
	if (err == NULL)
		return code;
	err->error_class = error_class;
	(void)snprintf(err->sqlstate, sizeof(err->sqlstate), "%s", state != NULL ? state : "");
	return code;
}
