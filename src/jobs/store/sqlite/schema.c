/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schema and its versions.
 *
 *   sluice_job      every job, for ever: the row is updated in place, and no index holds what changes on the way from
 *                   pending to completed. id = chain_id: the head of a chain, whose last_id names the job it is at.
 *                   An attempt's number is the fence of its claim; attempt is that of the last one that has ended,
 *                   claim the hash of the claim that completed the job, charged how many runs count
 *   sluice_ready    what can be claimed, in the order of claims; rows come and go
 *   sluice_sched    what waits for its time; claims move it to sluice_ready
 *   sluice_lease    a row per claim, with its jobs as {"id":fence,…}. A live job (status 2) is in sluice_ready, in
 *                   sluice_sched, or in exactly one lease with its present fence: then it is running. started: all of
 *                   them have been started, and are charged when the lease ends without a settle
 *   sluice_attempt  attempts that did not complete, by their numbers, each with the hash of its claim
 *   sluice_blocker  which job waits for which chain
 *   sluice_key      keys that are taken
 *   sluice_worker   the last heartbeat of each worker; expired at until_us
 *   sluice_history  the numbers of the store at the beginning of each bucket, for the charts of servers
 *   sluice_request  requests that are answered once, with their answers, until their time is over
 *   sluice_audit    who changed what, written in the transaction of the change; ids grow and are never used again
 *   sluice_retention, sluice_retention_export   the limits of retention, and the checkpoints of exports
 *   sluice_count    a row per type: how many jobs are blocked, in each queue (and tried before), and in each final
 *                   status; written by the operation that changes them, so that no rows are counted
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

/* Who changed what, and which schedules were put over HTTP. */
#define AUDIT                                                                                                          \
	"CREATE TABLE sluice_audit(id INTEGER PRIMARY KEY AUTOINCREMENT, at_us INTEGER NOT NULL, via INTEGER NOT "     \
	"NULL,"                                                                                                        \
	" actor TEXT NOT NULL, address TEXT, action TEXT NOT NULL, request_id TEXT, chains TEXT, detail TEXT);"        \
	"ALTER TABLE sluice_cron ADD COLUMN from_http INTEGER NOT NULL DEFAULT 0;"

/* What retention deletes, which process does, and how far exports are that it waits for: times are Unix milliseconds,
 * limits 0 for ever and -1 not given. */
#define RETENTION                                                                                                      \
	"CREATE TABLE sluice_retention(holder TEXT NOT NULL, until_ms INTEGER NOT NULL, completed_ms INTEGER NOT "     \
	"NULL,"                                                                                                        \
	" failed_ms INTEGER NOT NULL, events_ms INTEGER NOT NULL, lines_ms INTEGER NOT NULL, deleted_ms INTEGER NOT "  \
	"NULL,"                                                                                                        \
	" chains INTEGER NOT NULL, completed INTEGER NOT NULL, failed INTEGER NOT NULL, events INTEGER NOT NULL);"     \
	"INSERT INTO sluice_retention VALUES('',0,-1,-1,-1,-1,0,0,0,0,0);"                                             \
	"CREATE TABLE sluice_retention_export(name TEXT PRIMARY KEY, checkpoint INTEGER NOT NULL, at_ms INTEGER NOT "  \
	"NULL) WITHOUT ROWID;"

static const char schema[] =
	"CREATE TABLE sluice_job("
	" id INTEGER PRIMARY KEY, chain_id INTEGER NOT NULL, type TEXT NOT NULL, status INTEGER NOT NULL,"
	" fence INTEGER NOT NULL, attempt INTEGER NOT NULL, charged INTEGER NOT NULL, priority INTEGER NOT NULL,"
	" flags INTEGER NOT NULL, created_us INTEGER NOT NULL, due_us INTEGER, blockers_open INTEGER NOT NULL,"
	" started_us INTEGER, ended_us INTEGER, prev_id INTEGER, next_id INTEGER, last_id INTEGER, claim INTEGER,"
	" leased_by TEXT, key TEXT, traceparent TEXT, error TEXT, progress TEXT, output TEXT, input TEXT NOT NULL);"
	/* Partial: a job that is started and completes is in none of them. */
	"CREATE INDEX sluice_job_chain ON sluice_job(chain_id) WHERE chain_id<>id;"
	"CREATE INDEX sluice_job_blocked ON sluice_job(type) WHERE status=1;"
	"CREATE INDEX sluice_job_stopped ON sluice_job(status) WHERE status>=5;"
	"CREATE INDEX sluice_job_stopped_chain ON sluice_job(status,chain_id) WHERE status>=5;"
	"CREATE INDEX sluice_job_key ON sluice_job(key) WHERE key IS NOT NULL;"
	"CREATE TABLE sluice_ready(type TEXT NOT NULL, solo INTEGER NOT NULL, priority INTEGER NOT NULL,"
	" id INTEGER NOT NULL, tried INTEGER NOT NULL, PRIMARY KEY(type,solo,priority,id)) WITHOUT ROWID;"
	"CREATE TABLE sluice_sched(type TEXT NOT NULL, due_us INTEGER NOT NULL, id INTEGER NOT NULL,"
	" priority INTEGER NOT NULL, solo INTEGER NOT NULL, tried INTEGER NOT NULL,"
	" PRIMARY KEY(type,due_us,id)) WITHOUT ROWID;"
	"CREATE INDEX sluice_sched_oldest ON sluice_sched(type,id);"
	/* Of those that failed or were lost before. */
	"CREATE INDEX sluice_ready_tried ON sluice_ready(id) WHERE tried=1;"
	"CREATE INDEX sluice_sched_tried ON sluice_sched(id) WHERE tried=1;"
	"CREATE TABLE sluice_lease(claim BLOB NOT NULL UNIQUE, worker TEXT, claimed_us INTEGER NOT NULL,"
	" until_us INTEGER NOT NULL, started INTEGER NOT NULL, types TEXT NOT NULL, jobs TEXT NOT NULL);"
	"CREATE TABLE sluice_attempt(job_id INTEGER NOT NULL, attempt INTEGER NOT NULL, outcome INTEGER NOT NULL,"
	" claim INTEGER, worker TEXT, error TEXT, started_us INTEGER, ended_us INTEGER,"
	" PRIMARY KEY(job_id,attempt)) WITHOUT ROWID;"
	"CREATE TABLE sluice_blocker(job_id INTEGER NOT NULL, ord INTEGER NOT NULL, chain_id INTEGER NOT NULL,"
	" done INTEGER NOT NULL, PRIMARY KEY(job_id,ord)) WITHOUT ROWID;"
	"CREATE INDEX sluice_blocker_chain ON sluice_blocker(chain_id,done,job_id);"
	"CREATE TABLE sluice_key(key TEXT PRIMARY KEY, chain_id INTEGER NOT NULL, scope INTEGER NOT NULL,"
	" until_us INTEGER) WITHOUT ROWID;"
	"CREATE TABLE sluice_request(key TEXT PRIMARY KEY, hash TEXT NOT NULL, until_us INTEGER NOT NULL, answer TEXT)"
	" WITHOUT ROWID;"
	"CREATE INDEX sluice_request_until ON sluice_request(until_us);"
	"CREATE TABLE sluice_paused(type TEXT PRIMARY KEY) WITHOUT ROWID;"
	"CREATE TABLE sluice_count(type TEXT PRIMARY KEY, blocked INTEGER NOT NULL, ready INTEGER NOT NULL,"
	" ready_tried INTEGER NOT NULL, sched INTEGER NOT NULL, sched_tried INTEGER NOT NULL,"
	" completed INTEGER NOT NULL, failed INTEGER NOT NULL, cancelled INTEGER NOT NULL) WITHOUT ROWID;"
	"CREATE TABLE sluice_cron(name TEXT PRIMARY KEY, spec TEXT NOT NULL, type TEXT NOT NULL, input TEXT NOT NULL,"
	" priority INTEGER NOT NULL, catch_up INTEGER NOT NULL, next_us INTEGER NOT NULL, last_us INTEGER,"
	" last_chain INTEGER) WITHOUT ROWID;"
	"CREATE TABLE sluice_worker(worker TEXT PRIMARY KEY, host TEXT NOT NULL, pid INTEGER NOT NULL,"
	" version TEXT NOT NULL, slots INTEGER NOT NULL, types TEXT NOT NULL, error TEXT, error_us INTEGER,"
	" started_us INTEGER NOT NULL, seen_us INTEGER NOT NULL, until_us INTEGER NOT NULL) WITHOUT ROWID;"
	"CREATE TABLE sluice_history(step_s INTEGER NOT NULL, at_s INTEGER NOT NULL, taken_ms INTEGER NOT NULL,"
	" newest_id INTEGER NOT NULL, completed INTEGER NOT NULL, failed INTEGER NOT NULL, due INTEGER NOT NULL,"
	" running INTEGER NOT NULL, p50_ms INTEGER NOT NULL, p99_ms INTEGER NOT NULL, PRIMARY KEY(step_s,at_s))"
	" WITHOUT ROWID;"
	"CREATE TABLE job_events(offset INTEGER PRIMARY KEY, stream TEXT NOT NULL, incarnation INTEGER NOT NULL,"
	" sequence INTEGER NOT NULL, crc INTEGER NOT NULL, job_id INTEGER, attempt INTEGER, type INTEGER NOT NULL,"
	" late INTEGER NOT NULL, ts_us INTEGER NOT NULL, payload BLOB NOT NULL, partial INTEGER NOT NULL DEFAULT 0);"
	"CREATE UNIQUE INDEX job_events_key ON job_events(stream,incarnation,sequence);"
	"CREATE INDEX job_events_job ON job_events(job_id,offset) WHERE job_id IS NOT NULL;"
	"CREATE INDEX job_events_jobless ON job_events(ts_us) WHERE job_id IS NULL AND late=1;"
	"CREATE TABLE sluice_event_mark(stream TEXT NOT NULL, incarnation INTEGER NOT NULL, mark INTEGER NOT NULL,"
	" crc INTEGER, at_us INTEGER NOT NULL, owner TEXT, PRIMARY KEY(stream,incarnation)) WITHOUT ROWID;" RETENTION
	"INSERT INTO sluice_meta(name,value) VALUES('next_id',1),('event_offset',0),"
	" ('target_id',lower(hex(randomblob(16))));" AUDIT;

/* steps[n] leads from version n to n+1. */
static const char *const steps[] = {schema};
_Static_assert(SL_COUNT(steps) == SL_SCHEMA_VERSION, "a version of the schema without its statements");

/* 0: an empty file, or one without a store in it. */
static int version_of(struct sl__sqlite *c, int *out, struct sl_err *err)
{
	return sl__sqlite_version(c, "sluice_meta", "SELECT value FROM sluice_meta WHERE name='schema_version'", out,
				  err);
}

static int sq_too_new(const struct sq_store *s, int version, struct sl_err *err)
{
	return sl_err_set(err, SL_EUNSUPPORTED,
			  "%s has schema version %d, this library supports %d; use a newer sluice", s->path, version,
			  SL_SCHEMA_VERSION);
}

static int sq_not_there(const struct sq_store *s, struct sl_err *err)
{
	return sl_err_set(err, SL_EUNAVAIL, "%s has no job store in it; 'sluice jobs migrate' makes one", s->path);
}

/* *version: the one that was there. What fails may leave a transaction open. */
static int migrate_writer(struct sq_store *s, int *version, struct sl_err *err)
{
	struct sl__sqlite *c = &s->writer;
	char set[96];
	int rc = s->may_create ? 0 : version_of(c, version, err);
	if (rc != 0)
		return rc;
	if (*version == 0 && !s->may_create)
		return sq_not_there(s, err);
	rc = sl__sqlite_exec(c, "PRAGMA journal_mode=WAL", err);
	if (rc != 0)
		return rc;
	rc = sl__sqlite_synchronous(c, 2, err);
	if (rc != 0)
		return rc;
	rc = sl__sqlite_exec(c, "BEGIN IMMEDIATE", err);
	if (rc != 0)
		return rc;
	rc = version_of(c, version, err);
	if (rc != 0)
		return rc;
	if (*version > SL_SCHEMA_VERSION)
		return sq_too_new(s, *version, err);
	if (*version == 0)
		rc = sl__sqlite_exec(
			c, "CREATE TABLE IF NOT EXISTS sluice_meta(name TEXT PRIMARY KEY, value) WITHOUT ROWID", err);
	for (int from = *version; rc == 0 && from < SL_SCHEMA_VERSION; from++)
		rc = sl__sqlite_exec(c, steps[from], err);
	(void)snprintf(set, sizeof(set), "INSERT OR REPLACE INTO sluice_meta(name,value) VALUES('schema_version',%d)",
		       SL_SCHEMA_VERSION);
	if (rc == 0 && *version < SL_SCHEMA_VERSION)
		rc = sl__sqlite_exec(c, set, err);
	if (rc != 0)
		return rc;
	return sl__sqlite_exec(c, "COMMIT", err);
}

int sl__sq_migrate(struct sq_store *s, int *from, int *to, struct sl_err *err)
{
	int version = 0, rc = migrate_writer(s, &version, err);
	if (rc != 0) {
		sl__sqlite_rollback(&s->writer);
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
		return sq_not_there(s, err);
	if (version > SL_SCHEMA_VERSION)
		return sq_too_new(s, version, err);
	if (version < SL_SCHEMA_VERSION)
		return sl_err_set(err, SL_EUNSUPPORTED, "%s has schema version %d, this library needs %d; migrate it",
				  s->path, version, SL_SCHEMA_VERSION);
	return 0;
}
