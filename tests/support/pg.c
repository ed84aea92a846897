/* SPDX-License-Identifier: Apache-2.0 */
#include "support/pg.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct pg_temp {
	pid_t pid;
	FILE *commands; /* its standard input: the server lives until this is closed */
	FILE *answers;
	char url[512];
};

/* The child: pipes for input and output, then the script. */
static void run_script(enum pg_temp_durability durability, const int in[2], const int out[2])
{
	dup2(in[0], STDIN_FILENO);
	dup2(out[1], STDOUT_FILENO);
	for (int fd = 3; fd < 64; fd++)
		close(fd);
	if (durability == PG_TEMP_FAST)
		execl(PG_TEMP_SCRIPT, "pg-temp", "--no-fsync", (char *)NULL);
	else
		execl(PG_TEMP_SCRIPT, "pg-temp", (char *)NULL);
	_exit(127);
}

static int spawn(struct pg_temp *pg, enum pg_temp_durability durability)
{
	int in[2], out[2];
	if (pipe(in) != 0 || pipe(out) != 0)
		return -1;
	pg->pid = fork();
	if (pg->pid == 0)
		run_script(durability, in, out);
	close(in[0]);
	close(out[1]);
	pg->commands = fdopen(in[1], "w");
	pg->answers = fdopen(out[0], "r");
	return pg->pid > 0 && pg->commands != NULL && pg->answers != NULL ? 0 : -1;
}

struct pg_temp *pg_temp_start(enum pg_temp_durability durability)
{
	struct pg_temp *pg = calloc(1, sizeof(*pg));
	if (pg == NULL || spawn(pg, durability) != 0)
		abort();
	if (fgets(pg->url, sizeof(pg->url), pg->answers) == NULL) {
		pg_temp_stop(pg);
		return NULL;
	}
	pg->url[strcspn(pg->url, "\n")] = '\0';
	return pg;
}

const char *pg_temp_url(const struct pg_temp *pg)
{
	return pg->url;
}

int pg_temp_command(struct pg_temp *pg, const char *command)
{
	char answer[16];
	if (fprintf(pg->commands, "%s\n", command) < 0 || fflush(pg->commands) != 0)
		return -1;
	return fgets(answer, sizeof(answer), pg->answers) != NULL && strcmp(answer, "ok\n") == 0 ? 0 : -1;
}

void pg_temp_stop(struct pg_temp *pg)
{
	if (pg == NULL)
		return;
	fclose(pg->commands);
	fclose(pg->answers);
	waitpid(pg->pid, NULL, 0);
	free(pg);
}

int pg_temp_missing(void)
{
	return getenv("CI") != NULL ? 1 : 77;
}

PGconn *pg_temp_connect(const struct pg_temp *pg)
{
	PGconn *conn = PQconnectdb(pg->url);
	if (PQstatus(conn) != CONNECTION_OK) {
		fprintf(stderr, "%s", PQerrorMessage(conn));
		abort();
	}
	return conn;
}

int pg_temp_exec(PGconn *conn, const char *sql)
{
	PGresult *res = PQexec(conn, sql);
	ExecStatusType status = PQresultStatus(res);
	int rc = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK ? 0 : -1;
	if (rc != 0)
		fprintf(stderr, "%s: %s", sql, PQerrorMessage(conn));
	PQclear(res);
	return rc;
}

long long pg_temp_number(PGconn *conn, const char *sql)
{
	PGresult *res = PQexec(conn, sql);
	long long number = -1;
	if (PQresultStatus(res) == PGRES_TUPLES_OK && PQntuples(res) > 0 && !PQgetisnull(res, 0, 0))
		number = strtoll(PQgetvalue(res, 0, 0), NULL, 10);
	else
		fprintf(stderr, "%s: %s", sql, PQerrorMessage(conn));
	PQclear(res);
	return number;
}
