/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schema and its versions.
 *
 *   sluice_job      every job, for ever: the row is updated in place, and no index holds what changes on the way from
 *                   pending to completed. id = chain_id: the head of a chain, whose last_id names the job it is at.
 *   sluice_ready    what can be claimed, in the order of claims; rows come and go
 *   sluice_sched    what waits for its time; claims move it to sluice_ready
 *   sluice_lease    a row per claim, with its jobs as {"id":fence,…}. A live job (status 2) is in sluice_ready, in
 *                   sluice_sched, or in exactly one lease with its present fence: then it is running.
 *   sluice_attempt  attempts that did not complete, by the fence they began with
 *   sluice_blocker  which job waits for which chain
 *   sluice_key      keys that are taken
 *   sluice_count    a row per type: how many jobs are blocked, in each queue (and tried before), and in each final
 *                   status; written by the operation that changes them, so that nobody counts rows
 *
 * Times are Unix microseconds. A step from version n to n+1 is never changed after a release; a new one is added.
 */
#include <stdio.h>

#include "jobs/store/sqlite/store.h"

const char *const sl__sq_statements[SQ_STATEMENT_COUNT] = {
#define SQ_TEXT_OF(name, text) text,
	SQ_STATEMENTS(SQ_TEXT_OF)
#undef SQ_TEXT_OF
};

static const char to_1[] =
	"CREATE TABLE sluice_job("
	" id INTEGER PRIMARY KEY, chain_id INTEGER NOT NULL, type TEXT NOT NULL, status INTEGER NOT NULL,"
	" fence INTEGER NOT NULL, attempt INTEGER NOT NULL, priority INTEGER NOT NULL, flags INTEGER NOT NULL,"
	" created_us INTEGER NOT NULL, due_us INTEGER, blockers_open INTEGER NOT NULL, started_us INTEGER,"
	" ended_us INTEGER, prev_id INTEGER, next_id INTEGER, last_id INTEGER, leased_by TEXT, key TEXT,"
	" traceparent TEXT, error TEXT, progress TEXT, output TEXT, input TEXT NOT NULL);"
	/* Partial: a job that is started and completes is in none of them. */
	"CREATE INDEX sluice_job_chain ON sluice_job(chain_id) WHERE chain_id<>id;"
	"CREATE INDEX sluice_job_blocked ON sluice_job(type) WHERE status=1;"
	"CREATE INDEX sluice_job_failed ON sluice_job(type) WHERE status=5;"
	"CREATE INDEX sluice_job_cancelled ON sluice_job(type) WHERE status=6;"
	"CREATE INDEX sluice_job_key ON sluice_job(key) WHERE key IS NOT NULL;"
	"CREATE TABLE sluice_ready(type TEXT NOT NULL, solo INTEGER NOT NULL, priority INTEGER NOT NULL,"
	" id INTEGER NOT NULL, tried INTEGER NOT NULL, PRIMARY KEY(type,solo,priority,id)) WITHOUT ROWID;"
	"CREATE TABLE sluice_sched(type TEXT NOT NULL, due_us INTEGER NOT NULL, id INTEGER NOT NULL,"
	" priority INTEGER NOT NULL, solo INTEGER NOT NULL, tried INTEGER NOT NULL,"
	" PRIMARY KEY(type,due_us,id)) WITHOUT ROWID;"
	"CREATE TABLE sluice_lease(claim BLOB NOT NULL UNIQUE, worker TEXT, claimed_us INTEGER NOT NULL,"
	" until_us INTEGER NOT NULL, charged INTEGER NOT NULL, types TEXT NOT NULL, jobs TEXT NOT NULL);"
	"CREATE TABLE sluice_attempt(job_id INTEGER NOT NULL, fence INTEGER NOT NULL, attempt INTEGER NOT NULL,"
	" outcome INTEGER NOT NULL, worker TEXT, error TEXT, started_us INTEGER, ended_us INTEGER,"
	" PRIMARY KEY(job_id,fence)) WITHOUT ROWID;"
	"CREATE TABLE sluice_blocker(job_id INTEGER NOT NULL, ord INTEGER NOT NULL, chain_id INTEGER NOT NULL,"
	" done INTEGER NOT NULL, PRIMARY KEY(job_id,ord)) WITHOUT ROWID;"
	"CREATE INDEX sluice_blocker_chain ON sluice_blocker(chain_id,done,job_id);"
	"CREATE TABLE sluice_key(key TEXT PRIMARY KEY, chain_id INTEGER NOT NULL, scope INTEGER NOT NULL,"
	" until_us INTEGER) WITHOUT ROWID;"
	"CREATE TABLE sluice_paused(type TEXT PRIMARY KEY) WITHOUT ROWID;"
	"CREATE TABLE sluice_tally(type TEXT NOT NULL, status INTEGER NOT NULL, n INTEGER NOT NULL,"
	" PRIMARY KEY(type,status)) WITHOUT ROWID;"
	"CREATE TABLE sluice_cron(name TEXT PRIMARY KEY, spec TEXT NOT NULL, type TEXT NOT NULL, input TEXT NOT NULL,"
	" priority INTEGER NOT NULL, catch_up INTEGER NOT NULL, next_us INTEGER NOT NULL, last_us INTEGER,"
	" last_chain INTEGER) WITHOUT ROWID;"
	"CREATE TABLE job_events(offset INTEGER PRIMARY KEY, stream TEXT NOT NULL, incarnation INTEGER NOT NULL,"
	" sequence INTEGER NOT NULL, crc INTEGER NOT NULL, job_id INTEGER, attempt INTEGER, type INTEGER NOT NULL,"
	" late INTEGER NOT NULL, ts_us INTEGER NOT NULL, payload BLOB NOT NULL);"
	"CREATE UNIQUE INDEX job_events_key ON job_events(stream,incarnation,sequence);"
	"CREATE INDEX job_events_job ON job_events(job_id,offset) WHERE job_id IS NOT NULL;"
	"CREATE TABLE sluice_event_mark(stream TEXT NOT NULL, incarnation INTEGER NOT NULL, mark INTEGER NOT NULL,"
	" PRIMARY KEY(stream,incarnation)) WITHOUT ROWID;"
	"INSERT INTO sluice_meta(name,value) VALUES('next_id',1),('event_offset',0),"
	" ('target_id',lower(hex(randomblob(16))));";

/* Pieces of a line that was too long for one event can be told from lines. Those that are there already cannot. */
static const char to_2[] = "ALTER TABLE job_events ADD COLUMN partial INTEGER NOT NULL DEFAULT 0;";

/* Failed and cancelled jobs, and their chains, can be listed in the order of ids however many there are. And every
 * status is counted where it changes, not only the final ones. */
static const char to_3[] =
	"DROP INDEX sluice_job_failed; DROP INDEX sluice_job_cancelled;"
	"CREATE INDEX sluice_job_stopped ON sluice_job(status) WHERE status>=5;"
	"CREATE INDEX sluice_job_stopped_chain ON sluice_job(status,chain_id) WHERE status>=5;"
	"CREATE INDEX sluice_sched_oldest ON sluice_sched(type,id);"
	"CREATE TABLE sluice_count(type TEXT PRIMARY KEY, blocked INTEGER NOT NULL, ready INTEGER NOT NULL,"
	" ready_tried INTEGER NOT NULL, sched INTEGER NOT NULL, sched_tried INTEGER NOT NULL,"
	" completed INTEGER NOT NULL, failed INTEGER NOT NULL, cancelled INTEGER NOT NULL) WITHOUT ROWID;"
	"INSERT INTO sluice_count SELECT type,sum(b),sum(r),sum(rt),sum(s),sum(st),sum(c),sum(f),sum(x) FROM ("
	" SELECT type,count(*) AS b,0 AS r,0 AS rt,0 AS s,0 AS st,0 AS c,0 AS f,0 AS x FROM sluice_job WHERE status=1"
	"  GROUP BY type"
	" UNION ALL SELECT type,0,count(*),sum(tried),0,0,0,0,0 FROM sluice_ready GROUP BY type"
	" UNION ALL SELECT type,0,0,0,count(*),sum(tried),0,0,0 FROM sluice_sched GROUP BY type"
	" UNION ALL SELECT type,0,0,0,0,0,(status=4)*n,(status=5)*n,(status=6)*n FROM sluice_tally) GROUP BY type;"
	"DROP TABLE sluice_tally;";

/* Of other stores: nothing here. */
static const char to_4[] = "";

/* steps[n] leads from version n to n+1. */
static const char *const steps[] = {to_1, to_2, to_3, to_4};
_Static_assert(SL_COUNT(steps) == SL_SCHEMA_VERSION, "a version of the schema without its statements");

/* 0: an empty file, or one without a store in it. */
static int version_of(struct sl__sqlite *c, int *out, struct sl_err *err)
{
	return sl__sqlite_version(c, "sluice_meta", "SELECT value FROM sluice_meta WHERE name='schema_version'", out,
				  err);
}

static int too_new(const struct sq_store *s, int version, struct sl_err *err)
{
	return sl_err_set(err, SL_EUNSUPPORTED, "%s has schema version %d, this library knows %d; use a newer sluice",
			  s->path, version, SL_SCHEMA_VERSION);
}

static int step_up(struct sq_store *s, int version, struct sl_err *err)
{
	struct sl__sqlite *c = &s->writer;
	char set[96];
	int rc = 0;
	if (version == 0)
		rc = sl__sqlite_exec(
			c, "CREATE TABLE IF NOT EXISTS sluice_meta(name TEXT PRIMARY KEY, value) WITHOUT ROWID", err);
	for (; rc == 0 && version < SL_SCHEMA_VERSION; version++)
		rc = sl__sqlite_exec(c, steps[version], err);
	(void)snprintf(set, sizeof set, "INSERT OR REPLACE INTO sluice_meta(name,value) VALUES('schema_version',%d)",
		       SL_SCHEMA_VERSION);
	return rc != 0 ? rc : sl__sqlite_exec(c, set, err);
}

static int not_there(const struct sq_store *s, struct sl_err *err)
{
	return sl_err_set(err, SL_EUNAVAIL, "%s has no job store in it; 'sluice jobs migrate' makes one", s->path);
}

int sl__sq_migrate(struct sq_store *s, int *from, int *to, struct sl_err *err)
{
	struct sl__sqlite *c = &s->writer;
	int version = 0, rc = s->may_create ? 0 : version_of(c, &version, err);
	if (rc == 0 && version == 0 && !s->may_create)
		rc = not_there(s, err);
	rc = rc != 0 ? rc : sl__sqlite_exec(c, "PRAGMA journal_mode=WAL", err);
	rc = rc != 0 ? rc : sl__sqlite_synchronous(c, 2, err);
	rc = rc != 0 ? rc : sl__sqlite_exec(c, "BEGIN IMMEDIATE", err);
	rc = rc != 0 ? rc : version_of(c, &version, err);
	if (rc == 0 && version > SL_SCHEMA_VERSION)
		rc = too_new(s, version, err);
	if (rc == 0 && version < SL_SCHEMA_VERSION)
		rc = step_up(s, version, err);
	rc = rc != 0 ? rc : sl__sqlite_exec(c, "COMMIT", err);
	if (rc != 0) {
		sl__sqlite_rollback(c);
		return rc;
	}
	if (from != NULL)
		*from = version;
	if (to != NULL)
		*to = SL_SCHEMA_VERSION;
	return 0;
}

int sl__sq_require_schema(struct sq_store *s, struct sl_err *err)
{
	int version = 0, rc = version_of(&s->writer, &version, err);
	if (rc != 0)
		return rc;
	if (version == 0 && !s->may_create)
		return not_there(s, err);
	if (version > SL_SCHEMA_VERSION)
		return too_new(s, version, err);
	if (version < SL_SCHEMA_VERSION)
		return sl_err_set(err, SL_EUNSUPPORTED, "%s has schema version %d, this library needs %d; migrate it",
				  s->path, version, SL_SCHEMA_VERSION);
	return 0;
}
