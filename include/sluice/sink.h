/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sinks that come with the library. Each open function gives a sink for sl_coordinator_new; close it after the
 * coordinator was freed. <sluice/adapter/sink.h> says what every sink promises.
 *
 * Rows: the table sinks (PostgreSQL, SQLite), and the others where they convert, read an item as one record in
 * `format`: a JSON object (members go to the columns of the same name; nested values as JSON text), or a CSV record
 * (fields go to `columns` in order). A record that cannot be read, has a member without a column, or a value that its
 * column does not take is poison: it alone goes to the dead letters.
 *
 * Files: a batch is one write and one sync. Opening a file that a crash has torn moves what is no whole record to
 * PATH.torn-NNN. CSV has the names of its columns on the first line; with zstd every batch is a separate frame. One
 * process at a time writes to a file (SL_ELOCKED).
 *
 * Programs: exec runs the program for each batch, with the records on its standard input, one per line, and
 * SLUICE_BATCH_ID and SLUICE_BATCH_ITEMS in its environment. Its exit code decides: 0 written, 65 an item is refused,
 * 75 or any other try again, 69 (126, 127) unavailable; a signal, or no end within timeout_ms, is as 75. The end of its
 * standard error is in the message.
 *
 * HTTP: a batch is one POST with the header Idempotency-Key, which is the same whenever the same batch is sent again,
 * as is the body; a receiver that remembers keys takes every batch once. 2xx: written, all of it, whatever the
 * answer's text says. 429, and 503 with Retry-After: throttled. 400, 413 and 422: an item is refused and nothing of
 * the batch was taken; the answer may name items by their number in the body, from 0:
 * {"errors":[{"index":3,"error":"why"}]} or {"index":3,"error":"why"}. 408, 409, 425, 500 and most of 5xx: again
 * later, and counted. No connection, no complete answer in time, 502, 503, 504: unavailable. Redirects (which are not
 * followed) and the other 4xx: the same, until a person fixes it. Certificates are always checked. Proxies are those
 * of http_proxy, https_proxy and no_proxy. An event's id is the batch's key and the item's number.
 *
 * SQLite: a value is stored as its column's affinity says; text that is not a number is refused by INTEGER and REAL
 * columns, also where the database itself would keep it. A member that a JSON record does not have keeps the column's
 * default, or its old value in an update.
 *
 * Secrets: a password in a URL is used and never shown; sl_sink_target and all messages leave it out, as they do the
 * query of an HTTP URL ("?…" stands for it), its headers' values and the token. A path is shown.
 *
 * Thread safety: as in <sluice/adapter/sink.h>. Ownership: strings in options are copied.
 */
#ifndef SLUICE_SINK_H
#define SLUICE_SINK_H

#include <sluice/adapter/sink.h>
#include <sluice/retry.h>

#ifdef __cplusplus
extern "C" {
#endif

enum sl_row_format {
	SL_ROWS_JSON = 0, /* one object per record; for http, file and exec any JSON value */
	SL_ROWS_CSV = 1   /* a record of RFC 4180 without its line end */
};

enum sl_http_body {
	SL_HTTP_JSON_LINES = 0,  /* application/x-ndjson */
	SL_HTTP_JSON_ARRAY = 1,  /* application/json */
	SL_HTTP_CLOUD_EVENTS = 2 /* application/cloudevents-batch+json, specversion 1.0 */
};

/* One struct for all sinks, so that sl_sink_open can take a URL of any of them; a field that the sink has no use for is
 * refused with SL_EINVAL when it is set. */
struct sl_sink_opts {
	size_t struct_size; /* SL_SINK_OPTS_INIT fills it */
	const struct sl_env *env;

	/* rows */
	enum sl_row_format format;
	const char *const *columns; /* of CSV records, in order; NULL: of the table, in its order */
	size_t n_columns;
	const char *null_text; /* an unquoted CSV field with this text is NULL; default "" (a quoted "" is text) */

	/* tables: postgres, sqlite */
	const char *table;              /* may be schema.table on PostgreSQL; required */
	const char *const *on_conflict; /* columns of a unique key: write as upserts; NULL: append */
	size_t n_on_conflict;
	int64_t connect_timeout_ms;   /* also of http; default 10,000 */
	int64_t statement_timeout_ms; /* default 60,000; SL_UNLIMITED */

	/* http */
	enum sl_http_body body;
	const char *const *headers; /* "Name: value"; a value may be secret */
	size_t n_headers;
	const char *token_file;   /* "Authorization: Bearer <first line>"; read again after a 401 */
	const char *event_type;   /* of CloudEvents; default "sluice.item" */
	const char *event_source; /* of CloudEvents; default "sluice" */
	int64_t timeout_ms;       /* of one request, all in all; default 30,000 */
	const char *ca_file;      /* PEM; default the system's */

	/* file */
	enum sl_row_format file_format; /* what is written; another one than `format` needs columns */
	int64_t rotate_bytes; /* rename to PATH.YYYYMMDDTHHMMSSZ-NNN before it grows past this; default none */
	int64_t rotate_ms;    /* the same when its first record is so old, by the next batch; default none */
	int32_t zstd_level;   /* compress: 1 to 19; default none */

	/* exec; timeout_ms counts for a run of the program */
	const char *const *argv; /* NULL-terminated; NULL: the URL's text is given to /bin/sh -c */

	/* http: a file of more headers, one "Name: value" per line, '#' begins a comment; at most 256 in 64 KiB;
	 * read again after a 401. SL_ECONFIG names the line that is no header, or sets what is set already. */
	const char *header_file;

	/* postgres, sqlite, with on_conflict: on: a row whose key is there already must be equal to what is there. One
	 * that is not fails the batch with SL_ECONFLICT, and nothing of the batch is written. Default off: replaced. */
	enum sl_switch immutable_rows;

	char delimiter; /* of CSV records; default ',' */
};
#define SL_SINK_OPTS_INIT .struct_size = sizeof(struct sl_sink_opts)

/*
 * Open by URL: postgres://… (or postgresql://…, or key=value pairs after "postgres:"), sqlite:FILE, http://… https://…,
 * file:PATH, exec:COMMAND, null: . Connections are made by the first write, so that a target that is unavailable is
 * waited for; what can be checked at once is: SL_EINVAL (names the option), SL_ENOENT, SL_EACCES, SL_ECONFIG. On
 * success *out is the caller's: sl_sink_close.
 */
SL_API SL_MUST_CHECK int sl_sink_open(sl_sink *out, const char *url, const struct sl_sink_opts *opts,
				      struct sl_err *err);
/* NULL and a zeroed sink are allowed. */
SL_API void sl_sink_close(sl_sink *sink);
/* The target without secrets. Lives as long as the sink. */
SL_API const char *sl_sink_target(const sl_sink *sink);

/* One by one, for programs that link only what they use. */
SL_API SL_MUST_CHECK int sl_sink_postgres_open(sl_sink *out, const char *conninfo, const struct sl_sink_opts *opts,
					       struct sl_err *err);
SL_API SL_MUST_CHECK int sl_sink_sqlite_open(sl_sink *out, const char *path, const struct sl_sink_opts *opts,
					     struct sl_err *err);
SL_API SL_MUST_CHECK int sl_sink_http_open(sl_sink *out, const char *url, const struct sl_sink_opts *opts,
					   struct sl_err *err);
SL_API SL_MUST_CHECK int sl_sink_file_open(sl_sink *out, const char *path, const struct sl_sink_opts *opts,
					   struct sl_err *err);
SL_API SL_MUST_CHECK int sl_sink_exec_open(sl_sink *out, const char *command, const struct sl_sink_opts *opts,
					   struct sl_err *err);
SL_API SL_MUST_CHECK int sl_sink_null_open(sl_sink *out, const struct sl_sink_opts *opts, struct sl_err *err);

/* ---- tables ---- */

/* The kinds that --create gives to columns. */
enum sl_column_kind {
	SL_COLUMN_TEXT = 0,
	SL_COLUMN_INTEGER = 1,   /* bigint; INTEGER */
	SL_COLUMN_REAL = 2,      /* double precision; REAL */
	SL_COLUMN_NUMERIC = 3,   /* numeric; TEXT on SQLite: decimals beyond a double, or integers beyond 64 bits */
	SL_COLUMN_BOOLEAN = 4,   /* boolean; INTEGER */
	SL_COLUMN_TIMESTAMP = 5, /* timestamptz; TEXT */
	SL_COLUMN_DATE = 6,      /* date; TEXT */
	SL_COLUMN_JSON = 7       /* jsonb; TEXT */
};

struct sl_column {
	const char *name;
	enum sl_column_kind kind;
	bool not_null;
};

/* Make the table unless it is there, with the columns of opts->on_conflict as its primary key. Safe when several do it
 * at once. For postgres: and sqlite: URLs; SL_EUNSUPPORTED for the others. */
SL_API SL_MUST_CHECK int sl_sink_create_table(const char *url, const struct sl_sink_opts *opts,
					      const struct sl_column *columns, size_t n, struct sl_err *err);

#ifdef __cplusplus
}
#endif
#endif
