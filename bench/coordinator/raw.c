/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a careful programmer writes by hand for one table (symbol, ts, open, high, low, close, volume) and one file, and
 * `sluice load` is measured against:
 *
 *   sluice-bench-raw unnest CONNINFO FILE ROWS    upserts of ROWS rows as binary arrays on 4 connections
 *   sluice-bench-raw merge CONNINFO FILE ROWS     COPY of ROWS lines into a temporary table and a merge from there,
 *                                                 the same
 *   sluice-bench-raw sqlite FILE.db FILE ROWS     prepared inserts in transactions of ROWS rows
 *   sluice-bench-raw replace FILE.db FILE ROWS    prepared upserts, the same
 *
 * It reads one exact form of the file and nothing else, keeps it all in memory and ends at the first error.
 */
#include <fcntl.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

enum { LANES = 4, COLUMNS = 7 };

struct row {
	const char *line, *symbol;
	uint32_t line_len, symbol_len;
	int64_t ts; /* microseconds since 2000 */
	double price[4];
	int64_t volume;
};

static struct row *rows;
static size_t n_rows, batch;
static const char *conninfo;

static void die(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	exit(1);
}

/* 2024-01-31T12:34:56Z */
static int64_t read_time(const char *p)
{
	struct tm tm = {.tm_year = atoi(p) - 1900,
			.tm_mon = atoi(p + 5) - 1,
			.tm_mday = atoi(p + 8),
			.tm_hour = atoi(p + 11),
			.tm_min = atoi(p + 14),
			.tm_sec = atoi(p + 17)};
	return ((int64_t)timegm(&tm) - 946684800) * 1000000;
}

static void read_row(struct row *r, const char *line, const char *end)
{
	const char *comma = memchr(line, ',', (size_t)(end - line));
	char *p;
	*r = (struct row){.line = line,
			  .line_len = (uint32_t)(end - line),
			  .symbol = line,
			  .symbol_len = (uint32_t)(comma - line),
			  .ts = read_time(comma + 1)};
	p = strchr(comma + 1, ',') + 1;
	for (int i = 0; i < 4; i++, p++)
		r->price[i] = strtod(p, &p);
	r->volume = strtoll(p, NULL, 10);
}

static void read_file(const char *path)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) != 0)
		die(path, "cannot be read");
	const char *text = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0), *end = text + st.st_size;
	if (text == MAP_FAILED)
		die(path, "cannot be mapped");
	size_t cap = (size_t)st.st_size / 40 + 1;
	rows = malloc(cap * sizeof(*rows));
	for (const char *line = strchr(text, '\n') + 1; line < end; n_rows++) {
		const char *stop = memchr(line, '\n', (size_t)(end - line));
		read_row(&rows[n_rows], line, stop);
		line = stop + 1;
	}
}

/* ---- PostgreSQL ---- */

static PGconn *connect_to(void)
{
	PGconn *pg = PQconnectdb(conninfo);
	if (PQstatus(pg) != CONNECTION_OK)
		die("connect", PQerrorMessage(pg));
	return pg;
}

static void check(PGconn *pg, PGresult *res, ExecStatusType wanted)
{
	if (PQresultStatus(res) != wanted)
		die("postgres", PQerrorMessage(pg));
	PQclear(res);
}

static char *put32(char *p, uint32_t v)
{
	v = __builtin_bswap32(v);
	return (char *)memcpy(p, &v, 4) + 4;
}

static char *put64(char *p, uint64_t v)
{
	v = __builtin_bswap64(v);
	return (char *)memcpy(p, &v, 8) + 8;
}

static char *put_value(char *p, const struct row *r, int column)
{
	uint64_t bits;
	if (column == 0) {
		p = put32(p, r->symbol_len);
		return (char *)memcpy(p, r->symbol, r->symbol_len) + r->symbol_len;
	}
	if (column >= 2 && column <= 5)
		memcpy(&bits, &r->price[column - 2], 8);
	else
		bits = (uint64_t)(column == 1 ? r->ts : r->volume);
	return put64(put32(p, 8), bits);
}

static void *unnest_lane(void *arg)
{
	static const uint32_t element[COLUMNS] = {25, 1184, 701, 701, 701, 701, 20};
	static const Oid array[COLUMNS] = {1009, 1185, 1022, 1022, 1022, 1022, 1016};
	static const int binary[COLUMNS] = {1, 1, 1, 1, 1, 1, 1};
	size_t lane = (size_t)arg;
	PGconn *pg = connect_to();
	char *space = malloc(batch * COLUMNS * 32 + 256);
	check(pg,
	      PQprepare(pg, "u",
			"INSERT INTO bars SELECT * FROM unnest($1,$2,$3,$4,$5,$6,$7) ON CONFLICT (symbol, ts) DO "
			"UPDATE SET "
			"open = EXCLUDED.open, high = EXCLUDED.high, low = EXCLUDED.low, close = EXCLUDED.close, "
			"volume = EXCLUDED.volume",
			COLUMNS, array),
	      PGRES_COMMAND_OK);
	for (size_t first = lane * batch; first < n_rows; first += LANES * batch) {
		size_t n = n_rows - first < batch ? n_rows - first : batch;
		const char *values[COLUMNS];
		int lengths[COLUMNS];
		char *p = space;
		for (int c = 0; c < COLUMNS; c++) {
			values[c] = p;
			p = put32(put32(put32(put32(put32(p, 1), 0), element[c]), (uint32_t)n), 1);
			for (size_t i = 0; i < n; i++)
				p = put_value(p, &rows[first + i], c);
			lengths[c] = (int)(p - values[c]);
		}
		check(pg, PQexecPrepared(pg, "u", COLUMNS, values, lengths, binary, 0), PGRES_COMMAND_OK);
	}
	free(space);
	PQfinish(pg);
	return NULL;
}

static void *merge_lane(void *arg)
{
	size_t lane = (size_t)arg;
	PGconn *pg = connect_to();
	check(pg, PQexec(pg, "CREATE TEMP TABLE fresh (LIKE bars) ON COMMIT DELETE ROWS"), PGRES_COMMAND_OK);
	for (size_t first = lane * batch; first < n_rows; first += LANES * batch) {
		size_t n = n_rows - first < batch ? n_rows - first : batch;
		const char *from = rows[first].line;
		const struct row *last = &rows[first + n - 1];
		check(pg, PQexec(pg, "BEGIN"), PGRES_COMMAND_OK);
		check(pg, PQexec(pg, "COPY fresh FROM STDIN (FORMAT csv)"), PGRES_COPY_IN);
		if (PQputCopyData(pg, from, (int)(last->line + last->line_len + 1 - from)) != 1 ||
		    PQputCopyEnd(pg, NULL) != 1)
			die("COPY", PQerrorMessage(pg));
		check(pg, PQgetResult(pg), PGRES_COMMAND_OK);
		if (PQgetResult(pg) != NULL)
			die("COPY", "more results than expected");
		check(pg,
		      PQexec(pg,
			     "INSERT INTO bars SELECT * FROM fresh ON CONFLICT (symbol, ts) DO UPDATE SET "
			     "open = EXCLUDED.open, high = EXCLUDED.high, low = EXCLUDED.low, close = EXCLUDED.close, "
			     "volume = EXCLUDED.volume"),
		      PGRES_COMMAND_OK);
		check(pg, PQexec(pg, "COMMIT"), PGRES_COMMAND_OK);
	}
	PQfinish(pg);
	return NULL;
}

static void run_lanes(void *(*lane)(void *))
{
	pthread_t threads[LANES];
	for (size_t i = 0; i < LANES; i++)
		if (pthread_create(&threads[i], NULL, lane, (void *)i) != 0)
			die("threads", "none left");
	for (size_t i = 0; i < LANES; i++)
		(void)pthread_join(threads[i], NULL);
}

/* ---- SQLite ---- */

static void sql(sqlite3 *db, const char *text)
{
	if (sqlite3_exec(db, text, NULL, NULL, NULL) != SQLITE_OK)
		die(text, sqlite3_errmsg(db));
}

#define INSERT "INSERT INTO bars VALUES (?,?,?,?,?,?,?)"
#define UPSERT                                                                                                         \
	INSERT " ON CONFLICT (symbol, ts) DO UPDATE SET open = excluded.open, high = excluded.high, "                  \
	       "low = excluded.low, close = excluded.close, volume = excluded.volume"

static void run_sqlite(const char *path, const char *text)
{
	sqlite3 *db;
	sqlite3_stmt *insert;
	if (sqlite3_open(path, &db) != SQLITE_OK || sqlite3_prepare_v2(db, text, -1, &insert, NULL) != SQLITE_OK)
		die(path, sqlite3_errmsg(db));
	for (size_t i = 0; i < n_rows; i++) {
		const struct row *r = &rows[i];
		if (i % batch == 0)
			sql(db, i == 0 ? "BEGIN" : "COMMIT; BEGIN");
		(void)sqlite3_bind_text(insert, 1, r->symbol, (int)r->symbol_len, SQLITE_STATIC);
		(void)sqlite3_bind_text(insert, 2, r->symbol + r->symbol_len + 1, 20, SQLITE_STATIC);
		for (int k = 0; k < 4; k++)
			(void)sqlite3_bind_double(insert, 3 + k, r->price[k]);
		(void)sqlite3_bind_int64(insert, 7, r->volume);
		if (sqlite3_step(insert) != SQLITE_DONE)
			die("insert", sqlite3_errmsg(db));
		(void)sqlite3_reset(insert);
	}
	sql(db, "COMMIT");
	(void)sqlite3_finalize(insert);
	(void)sqlite3_close(db);
}

int main(int argc, char **argv)
{
	if (argc != 5)
		die("usage", "sluice-bench-raw unnest|merge|sqlite|replace TARGET FILE ROWS");
	conninfo = argv[2];
	batch = strtoul(argv[4], NULL, 10);
	read_file(argv[3]);
	if (strcmp(argv[1], "unnest") == 0)
		run_lanes(unnest_lane);
	else if (strcmp(argv[1], "merge") == 0)
		run_lanes(merge_lane);
	else
		run_sqlite(argv[2], strcmp(argv[1], "replace") == 0 ? UPSERT : INSERT);
	return 0;
}
