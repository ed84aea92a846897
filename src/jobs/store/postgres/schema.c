/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schema and its versions.
 *
 *	job          one row per job; its columns that change are in no index, so that every update is HOT
 *	ready        what can be claimed: inserted and deleted, never updated, in the order of claims
 *	sched        what can be claimed later; claims move it to ready when it is due
 *	lease        one row per claim: who has which jobs, under which fences, until when; started: all of them have
 *	             been started, and are charged when the lease ends without a settle. Without types and jobs: a claim
 *	             whose answer was lost, and that must not be made any more
 *	job_attempt  attempts that did not complete, each with the hash of its claim; the one that did, or runs, is read
 *	             off job and lease
 *	blocker      edges from a job to the chains it waits for, or waited
 *	dedup        keys in force
 *	request      requests that are answered once, with their answers, until their time is over
 *	tally        how many jobs have gone from which status to which, 0 for none: what came less what went is the
 *	             number of rows of job with that type and status
 *	stopped      the jobs that failed or were cancelled, with their chains
 *	audit        who changed what, written in the transaction of the change
 *	worker       the last heartbeat of each worker, expired at `until`
 *	history      the numbers of the store at the beginning of each bucket, for the charts of servers
 *	paused, cron, meta, schema_version
 *	retention, retention_export              the limits of retention, and the checkpoints of exports
 *	job_events, event_mark, event_offset     events and how far each stream has come
 *
 * A job is pending in exactly one place: ready, sched or a lease. The statuses in job are those of enum sl_job_status
 * without running, which is a pending job in a lease under its present fence. An attempt's number is the fence of its
 * claim; attempt is that of the last one that has ended, claim the hash of the claim that completed the job, charged
 * how many runs count. A job's chain_status and last_id are
 * those of a chain, kept in its first job and NULL while the chain has no other job.
 *
 * Versions are applied one by one, each in the transaction that also writes it down, under an advisory lock: any number
 * of processes may migrate at once.
 */
#include <stdio.h>

#include "jobs/store/postgres/store.h"

/* Every row of job is updated once on its way, most by a batch that holds whole pages: room for both versions. */
#define JOB_STORAGE                                                                                                    \
	"fillfactor = 35, autovacuum_vacuum_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.1, "               \
	"autovacuum_vacuum_cost_delay = 0"
/* Tables that turn over completely: vacuumed by count, and never cut under a lock. */
#define QUEUE_STORAGE                                                                                                  \
	"autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, "                                     \
	"autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000, "                                  \
	"autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off"

/* Who changed what, and what came over HTTP. */
#define AUDIT                                                                                                          \
	"CREATE TABLE {s}.audit (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL,"         \
	" via smallint NOT NULL, actor text NOT NULL, address text, action text NOT NULL, request_id text,"            \
	" chains bigint[] NOT NULL, detail text);"                                                                     \
	"ALTER TABLE {s}.job ADD COLUMN from_http boolean NOT NULL DEFAULT false;"                                     \
	"ALTER TABLE {s}.cron ADD COLUMN from_http boolean NOT NULL DEFAULT false;"

/* What retention deletes, which process does, and how far exports are that it waits for: times are Unix milliseconds,
 * limits 0 for ever and -1 not given. */
#define RETENTION                                                                                                      \
	"CREATE TABLE {s}.retention(holder text NOT NULL, until_ms bigint NOT NULL, completed_ms bigint NOT NULL,"     \
	" failed_ms bigint NOT NULL, events_ms bigint NOT NULL, lines_ms bigint NOT NULL, deleted_ms bigint NOT NULL," \
	" chains bigint NOT NULL, completed bigint NOT NULL, failed bigint NOT NULL, events bigint NOT NULL);"         \
	"INSERT INTO {s}.retention VALUES('',0,-1,-1,-1,-1,0,0,0,0,0);"                                                \
	"CREATE TABLE {s}.retention_export(name text PRIMARY KEY, checkpoint bigint NOT NULL, at_ms bigint NOT NULL);"

static const char version_1[] =
	"CREATE SEQUENCE {s}.job_id AS bigint;"
	"CREATE TABLE {s}.job ("
	" id bigint PRIMARY KEY, chain_id bigint NOT NULL, fence bigint NOT NULL DEFAULT 1,"
	" created_at timestamptz NOT NULL, scheduled_for timestamptz, started_at timestamptz, ended_at timestamptz,"
	" prev_id bigint, next_id bigint, last_id bigint, claim bigint,"
	" priority integer NOT NULL, attempt integer NOT NULL DEFAULT 0, charged integer NOT NULL DEFAULT 0,"
	" blockers integer, blockers_open integer,"
	" status smallint NOT NULL, chain_status smallint,"
	" solo boolean NOT NULL DEFAULT false, watched boolean NOT NULL DEFAULT false,"
	" outside boolean NOT NULL DEFAULT false,"
	" type text COLLATE \"C\" NOT NULL, input text NOT NULL, output text, error text, progress text,"
	" key text COLLATE \"C\", traceparent text, leased_by text"
	") WITH (" JOB_STORAGE ");"
	"ALTER SEQUENCE {s}.job_id OWNED BY {s}.job.id;"
	"CREATE INDEX job_chain ON {s}.job (chain_id, id) WHERE chain_id <> id;"
	"CREATE INDEX job_key ON {s}.job (key) WHERE key IS NOT NULL;"
	"CREATE TABLE {s}.ready ("
	" id bigint NOT NULL, fence bigint NOT NULL, priority integer NOT NULL, solo boolean NOT NULL,"
	" tried boolean NOT NULL DEFAULT false,"
	" type text COLLATE \"C\" NOT NULL) WITH (" QUEUE_STORAGE ");"
	"CREATE INDEX ready_order ON {s}.ready (type, solo, priority, id);"
	/* Of those that failed or were lost before. */
	"CREATE INDEX ready_tried ON {s}.ready (id) WHERE tried;"
	"CREATE TABLE {s}.sched ("
	" id bigint NOT NULL, fence bigint NOT NULL, due timestamptz NOT NULL, priority integer NOT NULL,"
	" solo boolean NOT NULL DEFAULT false, tried boolean NOT NULL,"
	" type text COLLATE \"C\" NOT NULL) WITH (" QUEUE_STORAGE ");"
	"CREATE INDEX sched_order ON {s}.sched (type, due, id);"
	"CREATE INDEX sched_oldest ON {s}.sched (type, id);"
	"CREATE INDEX sched_tried ON {s}.sched (id) INCLUDE (type, due) WHERE tried;"
	"CREATE TABLE {s}.lease ("
	" claim uuid PRIMARY KEY, until timestamptz NOT NULL, claimed_at timestamptz NOT NULL,"
	" started boolean NOT NULL, worker text NOT NULL, types text[] NOT NULL, ids bigint[] NOT NULL,"
	" fences bigint[] NOT NULL) WITH (" QUEUE_STORAGE ");"
	"CREATE INDEX lease_until ON {s}.lease (until);"
	"CREATE TABLE {s}.job_attempt ("
	" id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, job_id bigint NOT NULL, claim bigint,"
	" attempt integer NOT NULL, outcome smallint NOT NULL, worker text, error text, started_at timestamptz,"
	" ended_at timestamptz NOT NULL);"
	"CREATE INDEX job_attempt_job ON {s}.job_attempt (job_id, id);"
	"CREATE TABLE {s}.blocker ("
	" job_id bigint NOT NULL, ord integer NOT NULL, chain_id bigint NOT NULL, done boolean NOT NULL,"
	" PRIMARY KEY (job_id, ord));"
	"CREATE INDEX blocker_chain ON {s}.blocker (chain_id, job_id);"
	"CREATE INDEX blocker_open ON {s}.blocker (chain_id) WHERE NOT done;"
	"CREATE INDEX blocker_waits ON {s}.blocker (job_id) WHERE NOT done;"
	"CREATE TABLE {s}.dedup ("
	" key text COLLATE \"C\" PRIMARY KEY, chain_id bigint NOT NULL, scope smallint NOT NULL, until timestamptz);"
	"CREATE INDEX dedup_chain ON {s}.dedup (chain_id);"
	"CREATE TABLE {s}.request (key text COLLATE \"C\" PRIMARY KEY, hash text NOT NULL, until timestamptz NOT NULL,"
	" answer text);"
	"CREATE INDEX request_until ON {s}.request (until);"
	"CREATE TABLE {s}.paused (type text COLLATE \"C\" PRIMARY KEY);"
	"CREATE TABLE {s}.tally (type text COLLATE \"C\" NOT NULL, status smallint NOT NULL, n bigint NOT NULL,"
	" was smallint NOT NULL) WITH (" QUEUE_STORAGE ");"
	/* Not an index of job: one that has the status in it, if only in its condition, would end the HOT updates. */
	"CREATE TABLE {s}.stopped (status smallint NOT NULL, id bigint NOT NULL, chain_id bigint NOT NULL,"
	" PRIMARY KEY (status, id));"
	"CREATE INDEX stopped_chain ON {s}.stopped (status, chain_id);"
	"CREATE TABLE {s}.cron ("
	" name text COLLATE \"C\" PRIMARY KEY, spec text NOT NULL, type text COLLATE \"C\" NOT NULL,"
	" input text NOT NULL, priority integer NOT NULL, catch_up boolean NOT NULL,"
	" next_at timestamptz, last_at timestamptz, last_chain bigint);"
	"CREATE TABLE {s}.worker (worker text COLLATE \"C\" PRIMARY KEY, host text NOT NULL, pid bigint NOT NULL,"
	" version text NOT NULL, slots bigint NOT NULL, types text NOT NULL, error text, error_at timestamptz,"
	" started_at timestamptz NOT NULL, seen_at timestamptz NOT NULL, until timestamptz NOT NULL);"
	"CREATE TABLE {s}.history (step_s bigint NOT NULL, at_s bigint NOT NULL, taken_ms bigint NOT NULL,"
	" newest_id bigint NOT NULL, completed bigint NOT NULL, failed bigint NOT NULL, due bigint NOT NULL,"
	" running bigint NOT NULL, p50_ms bigint NOT NULL, p99_ms bigint NOT NULL, PRIMARY KEY (step_s, at_s));"
	"CREATE TABLE {s}.job_events ("
	" \"offset\" bigint PRIMARY KEY, incarnation bigint NOT NULL, sequence bigint NOT NULL, crc bigint NOT NULL,"
	" job_id bigint, ts timestamptz NOT NULL, attempt integer, type integer NOT NULL, late boolean NOT NULL,"
	" partial boolean NOT NULL DEFAULT false,"
	" stream text COLLATE \"C\" NOT NULL, payload bytea NOT NULL, UNIQUE (stream, incarnation, sequence));"
	"CREATE INDEX job_events_job ON {s}.job_events (job_id, \"offset\") WHERE job_id IS NOT NULL;"
	"CREATE INDEX job_events_jobless ON {s}.job_events (ts) WHERE job_id IS NULL AND late;"
	"CREATE TABLE {s}.event_mark ("
	" stream text COLLATE \"C\" NOT NULL, incarnation bigint NOT NULL, mark bigint NOT NULL, crc bigint,"
	" at timestamptz NOT NULL, owner text, PRIMARY KEY (stream, incarnation)) WITH (fillfactor = 50);"
	"CREATE TABLE {s}.event_offset (last bigint NOT NULL) WITH (fillfactor = 10);"
	"INSERT INTO {s}.event_offset VALUES (0);" RETENTION
	"CREATE TABLE {s}.meta (name text PRIMARY KEY, value text NOT NULL);"
	"INSERT INTO {s}.meta VALUES ('target_id', replace(gen_random_uuid()::text, '-', ''));" AUDIT;

static const char *const versions[] = {version_1};
_Static_assert(SL_COUNT(versions) == SL_SCHEMA_VERSION, "a version of the schema without its statements");

/* SQL of the store's own, rendered and run without parameters. out: one value of text, NULL is empty; or NULL. */
static int run_sql(struct pg_store *s, struct sl__pg_conn *c, const char *sql, char out[64], struct sl_err *err)
{
	char *text = sl__pg_render(&s->env, sql, s->schema);
	if (text == NULL)
		return sl_err_set(err, SL_ENOMEM, "postgres: out of memory");
	PGresult *res = PQexec(c->pg, text);
	ExecStatusType status = PQresultStatus(res);
	int rc = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK ? 0 : sl__pg_error(err, c->pg, res, "schema");
	if (rc == 0 && out != NULL)
		(void)snprintf(out, 64, "%s", PQntuples(res) > 0 ? PQgetvalue(res, 0, 0) : "");
	PQclear(res);
	sl__free(&s->env, text);
	return rc;
}

/* *out is 0 where there is nothing of ours yet. */
static int read_version(struct pg_store *s, struct sl__pg_conn *c, int *out, struct sl_err *err)
{
	char text[64];
	/* The FROM makes this session see what others changed: waiting for the advisory lock does not, and then
	 * to_regclass would repeat from its cache that there is nothing, although another process has just made it. */
	int rc = run_sql(s, c,
			 "SELECT to_regclass('{s}.schema_version') IS NOT NULL"
			 " FROM pg_catalog.pg_namespace WHERE nspname = 'pg_catalog'",
			 text, err);
	*out = 0;
	if (rc != 0 || text[0] != 't')
		return rc;
	rc = run_sql(s, c, "SELECT coalesce(max(version), 0) FROM {s}.schema_version", text, err);
	if (rc == 0 && sscanf(text, "%d", out) != 1)
		rc = sl_err_set(err, SL_ECORRUPT, "postgres: schema %s: no version in schema_version", s->schema);
	return rc;
}

static int pg_too_new(const struct pg_store *s, int version, struct sl_err *err)
{
	return sl_err_set(err, SL_EUNSUPPORTED,
			  "postgres: schema %s has version %d, this library supports up to %d; use a newer sluice",
			  s->schema, version, SL_SCHEMA_VERSION);
}

/* Inside a transaction that holds the lock. */
static int apply_missing(struct pg_store *s, struct sl__pg_conn *c, int version, struct sl_err *err)
{
	char text[64];
	int rc = run_sql(s, c, "SELECT to_regnamespace('{s}') IS NOT NULL", text, err);
	if (rc == 0 && text[0] != 't')
		rc = run_sql(s, c, "CREATE SCHEMA {s}", NULL, err);
	if (rc == 0 && version == 0)
		rc = run_sql(s, c,
			     "CREATE TABLE IF NOT EXISTS {s}.schema_version"
			     " (version integer PRIMARY KEY, applied_at timestamptz NOT NULL)",
			     NULL, err);
	for (; rc == 0 && version < SL_SCHEMA_VERSION; version++) {
		char note[128];
		rc = run_sql(s, c, versions[version], NULL, err);
		(void)snprintf(note, sizeof(note), "INSERT INTO {s}.schema_version VALUES (%d, clock_timestamp())",
			       version + 1);
		if (rc == 0)
			rc = run_sql(s, c, note, NULL, err);
	}
	return rc;
}

static int pg_not_there(const struct pg_store *s, struct sl_err *err)
{
	return sl_err_set(err, SL_EUNAVAIL, "postgres: no job store in schema %s; run: sluice jobs migrate", s->schema);
}

static int migrate_locked(struct pg_store *s, struct sl__pg_conn *c, int *version, struct sl_err *err)
{
	int rc = sl__pg_exec(c, "BEGIN", err);
	if (rc != 0)
		return rc;
	/* Waits for as long as another process migrates. */
	rc = run_sql(s, c, "SELECT pg_advisory_xact_lock(hashtextextended('sluice migrate {s}', 0))", NULL, err);
	if (rc == 0)
		rc = read_version(s, c, version, err);
	if (rc == 0 && *version > SL_SCHEMA_VERSION)
		rc = pg_too_new(s, *version, err);
	if (rc == 0 && *version < SL_SCHEMA_VERSION)
		rc = apply_missing(s, c, *version, err);
	if (rc == 0)
		return sl__pg_exec(c, "COMMIT", err);
	sl__pg_exec_quietly(c, "ROLLBACK");
	return rc;
}

int sl__pg_migrate(void *store, int *from, int *to, struct sl_err *err)
{
	struct pg_store *s = store;
	struct sl__pg_conn *c;
	int version = 0;
	int rc = sl__pg_take(s->pool, &c, err);
	if (rc != 0)
		return rc;
	/* Mostly there is nothing to do, and no lock is taken for that. */
	rc = read_version(s, c, &version, err);
	if (rc == 0 && version == 0 && !s->may_create)
		rc = pg_not_there(s, err);
	if (rc == 0 && version != SL_SCHEMA_VERSION)
		rc = migrate_locked(s, c, &version, err);
	sl__pg_put(s->pool, c);
	if (rc == 0 && from != NULL)
		*from = version;
	if (rc == 0 && to != NULL)
		*to = SL_SCHEMA_VERSION;
	return rc;
}

int sl__pg_schema_check(struct pg_store *s, struct sl_err *err)
{
	struct sl__pg_conn *c;
	int version = 0;
	int rc = sl__pg_take(s->pool, &c, err);
	if (rc != 0)
		return rc;
	rc = read_version(s, c, &version, err);
	sl__pg_put(s->pool, c);
	if (rc != 0 || version == SL_SCHEMA_VERSION)
		return rc;
	if (version == 0 && !s->may_create)
		return pg_not_there(s, err);
	if (version > SL_SCHEMA_VERSION)
		return pg_too_new(s, version, err);
	return sl_err_set(err, SL_EUNSUPPORTED, "postgres: schema %s has version %d, not %d: run `sluice jobs migrate`",
			  s->schema, version, SL_SCHEMA_VERSION);
}
