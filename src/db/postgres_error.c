/* SPDX-License-Identifier: Apache-2.0 */
/* What an SQLSTATE means: one table, the longest matching prefix wins. */
#include <ctype.h>
#include <stdio.h>

#include "db/postgres.h"

struct state_row {
	const char *prefix;
	int code;
	enum sl_err_class error_class;
	bool retryable;
};

static const struct state_row state_rows[] = {
	{"08", SL_EUNAVAIL, SL_CLASS_FATAL, true},         /* connection exception */
	{"22", SL_EDATA, SL_CLASS_POISON, false},          /* data exception */
	{"23", SL_EDATA, SL_CLASS_POISON, false},          /* constraint */
	{"25006", SL_EUNAVAIL, SL_CLASS_FATAL, true},      /* read-only: a standby */
	{"25P02", SL_EINVAL, SL_CLASS_NONE, false},        /* the transaction has failed before */
	{"25P03", SL_EUNAVAIL, SL_CLASS_FATAL, true},      /* idle-in-transaction timeout */
	{"26000", SL_EAGAIN, SL_CLASS_TRANSIENT, true},    /* no such prepared statement: it was forgotten */
	{"28", SL_EACCES, SL_CLASS_FATAL, false},          /* authorization */
	{"3D", SL_ECONFIG, SL_CLASS_FATAL, false},         /* no such database */
	{"3F", SL_ECONFIG, SL_CLASS_FATAL, false},         /* no such schema */
	{"40", SL_EAGAIN, SL_CLASS_TRANSIENT, true},       /* serialization failure, deadlock */
	{"42501", SL_EACCES, SL_CLASS_FATAL, false},       /* privilege */
	{"42P05", SL_EAGAIN, SL_CLASS_TRANSIENT, true},    /* prepared already, by another session */
	{"42P01", SL_ECONFIG, SL_CLASS_FATAL, false},      /* no such table: not migrated */
	{"53100", SL_ENOSPC, SL_CLASS_TRANSIENT, true},    /* disk full */
	{"53200", SL_ENOMEM, SL_CLASS_TRANSIENT, true},    /* out of memory */
	{"53", SL_EUNAVAIL, SL_CLASS_FATAL, true},         /* too many connections */
	{"54", SL_ETOOBIG, SL_CLASS_POISON, false},        /* program limit */
	{"55P03", SL_EAGAIN, SL_CLASS_TRANSIENT, true},    /* lock not available */
	{"57014", SL_ETIMEDOUT, SL_CLASS_TRANSIENT, true}, /* statement timeout, cancelled */
	{"57P", SL_EUNAVAIL, SL_CLASS_FATAL, true},        /* shutdown, crash, starting up */
	{"58030", SL_EIO, SL_CLASS_TRANSIENT, true},       /* I/O error of the server */
	{"XX001", SL_ECORRUPT, SL_CLASS_FATAL, false},     {"XX002", SL_ECORRUPT, SL_CLASS_FATAL, false},
};

int sl__pg_code(const char *sqlstate, enum sl_err_class *error_class, bool *retryable)
{
	const struct state_row *best = NULL;
	for (size_t i = 0; i < SL_COUNT(state_rows); i++) {
		const struct state_row *row = &state_rows[i];
		bool fits = strncmp(sqlstate, row->prefix, strlen(row->prefix)) == 0;
		if (fits && (best == NULL || strlen(row->prefix) > strlen(best->prefix)))
			best = row;
	}
	*error_class = best != NULL ? best->error_class : SL_CLASS_NONE;
	*retryable = best != NULL && best->retryable;
	return best != NULL ? best->code : SL_EINTERNAL;
}

/* The first line, without what libpq puts around it. */
static void first_line(char *out, size_t size, const char *text)
{
	(void)snprintf(out, size, "%s", text != NULL ? text : "");
	out[strcspn(out, "\n")] = '\0';
	size_t n = strlen(out);
	while (n > 0 && isspace((unsigned char)out[n - 1]))
		out[--n] = '\0';
}

int sl__pg_error(struct sl_err *err, const PGconn *pg, const PGresult *res, const char *what)
{
	const char *state = res != NULL ? PQresultErrorField(res, PG_DIAG_SQLSTATE) : NULL;
	const char *primary = res != NULL ? PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY) : NULL;
	enum sl_err_class error_class = SL_CLASS_FATAL;
	bool retryable = true;
	int code = SL_EUNAVAIL; /* no state: libpq speaks, the connection is gone */
	if (state != NULL)
		code = sl__pg_code(state, &error_class, &retryable);
	char line[192];
	first_line(line, sizeof(line), primary != NULL ? primary : PQerrorMessage(pg));
	(void)sl_err_set(err, code, "postgres: %s: %s", what, line[0] != '\0' ? line : "the connection is lost");
	if (err == NULL)
		return code;
	err->error_class = error_class;
	err->retryable = retryable;
	(void)snprintf(err->sqlstate, sizeof(err->sqlstate), "%s", state != NULL ? state : "");
	return code;
}
