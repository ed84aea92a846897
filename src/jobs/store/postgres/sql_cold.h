/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The statements of clients, readers and events: what is not on the path of a job from its start to its end. Part of
 * sql.c, whose macros it uses and whose rules (P1 to P4) hold here too.
 */
#ifndef SL_JOBS_STORE_POSTGRES_SQL_COLD_H
#define SL_JOBS_STORE_POSTGRES_SQL_COLD_H

/* The lines from here on are those of the SQL. */
/* clang-format off */

/* ---- clients ---- */

/* Who holds a job now: the lease with its present fence. */
#define RUN_OF(j)                                                                                                      \
	"LEFT JOIN LATERAL (SELECT l.worker, l.until, l.claimed_at FROM {s}.lease l WHERE " j               \
	".status = 2 AND l.ids @> ARRAY[" j ".id] AND l.fences[array_position(l.ids, " j ".id)] = " j                  \
	".fence LIMIT 1) run ON true"
#define LEASED(j)                                                                                                      \
	"EXISTS (SELECT 1 FROM {s}.lease o WHERE o.ids @> ARRAY[" j ".id]"                                             \
	" AND o.fences[array_position(o.ids, " j ".id)] = " j ".fence)"
/* The claims on any of the jobs in $1. */
#define RUNS_ON(ids)                                                                                                   \
	"run AS MATERIALIZED (SELECT u.id, u.fence, l.claim, l.worker, l.claimed_at FROM {s}.lease l"                  \
	" CROSS JOIN LATERAL unnest(l.ids, l.fences) AS u(id, fence) WHERE l.ids && " ids " AND u.id = ANY (" ids "))"
#define LEAVE_QUEUES                                                                                                   \
	"dr AS (DELETE FROM {s}.ready r USING j WHERE r.type = j.type AND r.solo = ANY ('{t,f}')"                      \
	" AND r.priority = j.priority AND r.id = j.id),"                                                               \
	"dq AS (DELETE FROM {s}.sched q USING j WHERE q.type = j.type AND q.due = j.scheduled_for AND q.id = j.id)"

/* $1 last jobs of chains, $2 status, $3 output, $4 error, $5 error of the attempts that are cut short */
static const char end[] =
	"WITH " RUNS_ON("$1::bigint[]") ","
	"j AS (UPDATE {s}.job j SET status = $2::integer, fence = j.fence + 1, ended_at = clock_timestamp(),"
	" attempt = CASE WHEN EXISTS (SELECT 1 FROM run WHERE run.id = j.id AND run.fence = j.fence)"
	" THEN j.fence::integer ELSE j.attempt END,"
	" output = CASE WHEN $2 = 4 THEN $3::text ELSE j.output END, outside = $2 = 4,"
	" error = CASE $2 WHEN 4 THEN NULL WHEN 5 THEN $4::text ELSE j.error END,"
	" leased_by = coalesce((SELECT worker FROM run WHERE run.id = j.id AND run.fence = j.fence LIMIT 1),"
	" j.leased_by),"
	" started_at = coalesce((SELECT claimed_at FROM run WHERE run.id = j.id AND run.fence = j.fence LIMIT 1),"
	" j.started_at) WHERE j.id = ANY ($1) AND j.status IN (1, 2)"
	" RETURNING j.id, j.chain_id, j.fence - 1 AS fence, j.type, j.priority, j.attempt, j.scheduled_for, j.key,"
	" j.watched, j.blockers_open),"
	"a AS (INSERT INTO {s}.job_attempt (job_id, attempt, claim, outcome, worker, error, started_at, ended_at)"
	" SELECT j.id, j.attempt, " CLAIM_HASH("run.claim") ", 6, run.worker,"
	" $5::text, run.claimed_at, clock_timestamp() FROM"
	" j JOIN run ON run.id = j.id AND run.fence = j.fence RETURNING job_id),"
	"h AS (UPDATE {s}.job h SET chain_status = $2 FROM j WHERE j.id <> j.chain_id AND h.id = j.chain_id"
	" RETURNING h.id, h.key, h.watched)," LEAVE_QUEUES ","
	"k AS (DELETE FROM {s}.dedup d USING (SELECT key, id FROM j WHERE id = chain_id UNION ALL SELECT key, id"
	" FROM h) e WHERE e.key IS NOT NULL AND d.key = e.key AND d.chain_id = e.id AND d.scope = 0),"
	STOP("$2", "j WHERE $2 <> 4") ","
	/* What waits for a blocker is blocked. The row as it was may be another than the one that is updated. */
	TALLY("type", "$2", "CASE WHEN blockers_open > 0 THEN 1 ELSE 2 END", "j")
	" SELECT j.id, j.chain_id, j.type, EXISTS (SELECT 1 FROM a WHERE a.job_id = j.id),"
	" coalesce((SELECT h.watched FROM h WHERE h.id = j.chain_id), j.watched) FROM j ORDER BY j.id";

/* $1 last jobs */
static const char redrive[] =
	"WITH j AS (UPDATE {s}.job j SET status = CASE WHEN j.blockers_open > 0 THEN 1 ELSE 2 END, charged = 0,"
	" solo = false, fence = j.fence + 1, ended_at = NULL, scheduled_for = NULL"
	" FROM {s}.job o WHERE j.id = ANY ($1::bigint[]) AND j.status IN (5, 6) AND o.id = j.id"
	" RETURNING j.id, j.chain_id, j.fence, j.type, j.priority, j.status, o.status AS was),"
	"h AS (UPDATE {s}.job h SET chain_status = 2 FROM j WHERE j.id <> j.chain_id AND h.id = j.chain_id),"
	"r AS (INSERT INTO {s}.ready (id, fence, priority, solo, type)"
	" SELECT id, fence, priority, false, type FROM j WHERE status = 2),"
	GO_ON("was") ","
	TALLY("type", "status", "was", "j")
	" SELECT id, chain_id, type, status = 2 FROM j ORDER BY id";

/* $1 chains that are redriven. Their keys, those that are free: the row of one that is in force is updated to itself,
 * as in start_full. */
static const char take_keys[] =
	"INSERT INTO {s}.dedup AS d (key, chain_id, scope) SELECT h.key, min(h.id), 0 FROM {s}.job h"
	" WHERE h.id = ANY ($1::bigint[]) AND h.key IS NOT NULL GROUP BY h.key ORDER BY h.key"
	" ON CONFLICT (key) DO UPDATE SET"
	" chain_id = CASE WHEN d.until <= clock_timestamp() THEN excluded.chain_id ELSE d.chain_id END,"
	" scope = CASE WHEN d.until <= clock_timestamp() THEN excluded.scope ELSE d.scope END,"
	" until = CASE WHEN d.until <= clock_timestamp() THEN excluded.until ELSE d.until END";

/* $1 the same chains, after that: one whose key another has that has not ended, or is redriven as well. */
static const char keys_held[] =
	"SELECT h.id, o.id FROM {s}.job h JOIN {s}.dedup d ON d.key = h.key AND d.chain_id <> h.id"
	" JOIN {s}.job o ON o.id = d.chain_id WHERE h.id = ANY ($1::bigint[])"
	" AND (" CHAIN_STATUS("o") " < 4 OR o.id = ANY ($1)) ORDER BY h.id LIMIT 1";

/* $1 last jobs */
static const char trigger[] =
	"WITH q AS (DELETE FROM {s}.sched q USING {s}.job j WHERE j.id = ANY ($1::bigint[]) AND j.status = 2"
	" AND q.type = j.type AND q.due = j.scheduled_for AND q.id = j.id AND q.due > clock_timestamp()"
	" RETURNING q.id, q.fence, q.priority, q.solo, q.tried, q.type),"
	"j AS (UPDATE {s}.job j SET scheduled_for = clock_timestamp() FROM q WHERE j.id = q.id),"
	"r AS (INSERT INTO {s}.ready (id, fence, priority, solo, tried, type)"
	" SELECT id, fence, priority, solo, tried, type FROM q) SELECT id, id, type, true FROM q ORDER BY id";

/* No event of the chain is above an offset. */
#define EXPORTED(chain, offset)                                                                                        \
	"NOT EXISTS (SELECT 1 FROM {s}.job_events e WHERE e.job_id = " chain " AND e.\"offset\" > " offset ")"         \
	" AND NOT EXISTS (SELECT 1 FROM {s}.job m JOIN {s}.job_events e ON e.job_id = m.id AND e.\"offset\" > " offset \
	" WHERE m.chain_id = " chain " AND m.chain_id <> m.id)"

/* Whether a job may ask for the output of a chain: now, or when it is retried. */
#define ASKED_FOR(chain)                                                                                               \
	"EXISTS (SELECT 1 FROM {s}.blocker b JOIN {s}.job w ON w.id = b.job_id WHERE b.chain_id = " chain             \
	" AND w.status <> 4)"

/* $1 chains, $2 a prune: keep those that a job may ask for, $3 and those with an event above this offset, and count what
 * goes */
static const char delete_chains[] =
	"WITH c AS MATERIALIZED (SELECT u.id FROM unnest($1::bigint[]) AS u(id) WHERE NOT $2::boolean OR NOT "
	ASKED_FOR("u.id") " AND " EXPORTED("u.id", "$3::bigint") "),"
	"i AS MATERIALIZED (SELECT id FROM c UNION ALL SELECT j.id FROM {s}.job j"
	" WHERE j.chain_id = ANY (ARRAY(SELECT id FROM c)) AND j.chain_id <> j.id),"
	RUNS_ON("ARRAY(SELECT id FROM i)") ","
	"j AS (DELETE FROM {s}.job j WHERE j.id = ANY (ARRAY(SELECT id FROM i))"
	" RETURNING j.id, j.chain_id, j.fence, j.type, j.priority, j.status, j.scheduled_for)," LEAVE_QUEUES ","
	"a AS (DELETE FROM {s}.job_attempt WHERE job_id = ANY (ARRAY(SELECT id FROM i))),"
	"b AS (DELETE FROM {s}.blocker WHERE job_id = ANY (ARRAY(SELECT id FROM i))),"
	"v AS (DELETE FROM {s}.job_events WHERE job_id = ANY (ARRAY(SELECT id FROM i))),"
	"k AS (DELETE FROM {s}.dedup WHERE chain_id = ANY (ARRAY(SELECT id FROM c))),"
	"t AS (UPDATE {s}.retention SET deleted_ms = extract(epoch FROM clock_timestamp()) * 1000,"
	" chains = chains + (SELECT count(*) FROM j WHERE id = chain_id),"
	" completed = completed + (SELECT count(*) FROM j WHERE status = 4),"
	" failed = failed + (SELECT count(*) FROM j WHERE status = 5) WHERE $2 AND EXISTS (SELECT 1 FROM j)),"
	GO_ON("status") ","
	TALLY("type", "0", "status", "j") " SELECT j.id, j.chain_id, j.type,"
	" j.status = 2 AND EXISTS (SELECT 1 FROM run WHERE run.id = j.id AND run.fence = j.fence) FROM j ORDER BY"
	" j.id";

/* $1 before, $2 limit, $3 after this job
 * Events that came after their job was deleted. The jobs that events name are found by leaps through the index. */
static const char prune_events[] =
	"WITH RECURSIVE t(j) AS ((SELECT min(job_id) FROM {s}.job_events WHERE job_id > $3::bigint) UNION ALL"
	" SELECT (SELECT min(e.job_id) FROM {s}.job_events e WHERE e.job_id > t.j) FROM t WHERE t.j IS NOT NULL),"
	"p AS MATERIALIZED (SELECT j FROM t WHERE j IS NOT NULL LIMIT $2::bigint),"
	"d AS (DELETE FROM {s}.job_events e USING p WHERE e.job_id = p.j AND e.ts < $1::timestamptz"
	" AND NOT EXISTS (SELECT 1 FROM {s}.job x WHERE x.id = p.j)),"
	"n AS (DELETE FROM {s}.job_events WHERE job_id IS NULL AND late AND ts < $1)"
	" SELECT count(*), coalesce(max(j), 0) FROM p";

/*
 * $1 completed before, $2 stopped before, $3 after this id, $4 how many are read, $5 limit, $6 exported, $7 now
 * No index has the time of creation, but ids grow with it: the last that is old enough is found by halving (b), so that
 * nothing younger is read. Ids that were taken out of the order of time, by starts at the same moment or by a clock that
 * was set back, may be missed now and are found when they are older.
 * Rows: the last that was read, how many were, and a chain or NULL.
 */
static const char prunable[] =
	"WITH RECURSIVE b(lo, hi) AS (SELECT $3::bigint, (SELECT max(id) FROM {s}.job)"
	" UNION ALL SELECT CASE WHEN r.created_at < greatest($1::timestamptz, $2::timestamptz) THEN r.id ELSE b.lo END,"
	" CASE WHEN r.created_at < greatest($1, $2) THEN b.hi ELSE b.lo + (b.hi - b.lo) / 2 END"
	" FROM b LEFT JOIN LATERAL (SELECT j.id, j.created_at FROM {s}.job j"
	" WHERE j.id > b.lo + (b.hi - b.lo) / 2 AND j.id <= b.hi ORDER BY j.id LIMIT 1) r ON true WHERE b.lo < b.hi),"
	"p AS MATERIALIZED (SELECT max(x.id) AS last, count(*) AS n FROM (SELECT id FROM {s}.job WHERE id > $3"
	" AND id <= (SELECT max(lo) FROM b) ORDER BY id LIMIT $4::bigint) x),"
	"l AS MATERIALIZED (SELECT h.id FROM {s}.job h LEFT JOIN {s}.job t ON t.id = h.last_id"
	" WHERE h.id > $3 AND h.id <= (SELECT last FROM p)"
	" AND h.id = h.chain_id AND " CHAIN_STATUS("h") " IN (4, 5, 6)"
	" AND coalesce(t.ended_at, h.ended_at) < CASE WHEN " CHAIN_STATUS("h") " = 4 THEN $1 ELSE $2 END"
	" AND NOT " ASKED_FOR("h.id") " AND " EXPORTED("h.id", "$6::bigint")
	/* A key without a window holds for ever. */
	" AND NOT EXISTS (SELECT 1 FROM {s}.dedup d WHERE d.chain_id = h.id"
	" AND coalesce(d.until, timestamptz '9999-01-01 00:00+0') > $7::timestamptz)"
	" ORDER BY h.id LIMIT $5::bigint FOR NO KEY UPDATE OF h SKIP LOCKED)"
	" SELECT coalesce(p.last, 0), p.n, coalesce(l.id, 0) FROM p LEFT JOIN l ON true ORDER BY l.id";

/* $1 chains, $2 limit, $3 exported: events of their jobs; of none that has become a blocker since it was found. */
static const char prune_some_events[] =
	"DELETE FROM {s}.job_events WHERE \"offset\" = ANY (ARRAY(SELECT e.\"offset\" FROM (SELECT u.id FROM"
	" unnest($1::bigint[]) AS u(id) WHERE NOT " ASKED_FOR("u.id") " UNION ALL SELECT j.id FROM {s}.job j WHERE j.chain_id = ANY ($1) AND j.chain_id <> j.id"
	" AND NOT " ASKED_FOR("j.chain_id") ") i"
	" JOIN {s}.job_events e ON e.job_id = i.id AND e.\"offset\" <= $3::bigint LIMIT $2::bigint))";

/* ---- reading ---- */

/* The state of job j, which may run. */
#define STATE                                                                                                          \
	"CASE WHEN run.until IS NOT NULL THEN 3 WHEN j.status <> 2 THEN j.status"                                      \
	" WHEN j.scheduled_for IS NULL OR j.scheduled_for <= " NOW " THEN 7 WHEN j.charged > 0 THEN 9 ELSE 8 END"

/* $1 id */
static const char get_job[] =
	"SELECT j.id, j.chain_id, j.prev_id, j.next_id, j.type, CASE WHEN run.until IS NULL THEN j.status ELSE 3 END,"
	" CASE WHEN run.until IS NULL THEN j.attempt ELSE j.fence::integer END, j.priority, j.input, j.output, j.error, j.progress,"
	" j.key, j.traceparent, coalesce(run.worker, j.leased_by), j.created_at, j.scheduled_for,"
	" coalesce(run.claimed_at, j.started_at),"
	" j.ended_at, run.until, j.blockers_open, j.charged, " STATE ","
	" (SELECT h.from_http FROM {s}.job h WHERE h.id = j.chain_id)"
	" FROM {s}.job j " RUN_OF("j") " WHERE j.id = $1::bigint";

static const char get_chain[] =
	"SELECT h.id, j.id, h.type, j.type, CASE WHEN run.until IS NULL THEN j.status ELSE 3 END, h.input, j.output,"
	" j.error, h.key, h.created_at, j.ended_at, " STATE " FROM {s}.job h JOIN {s}.job j ON j.id = coalesce(h.last_id, h.id)"
	" " RUN_OF("j") " WHERE h.id = $1::bigint AND h.id = h.chain_id";

/* $1 job. A last row without an outcome says that the job exists. */
static const char attempts[] =
	"SELECT attempt, outcome, worker, error, started_at, ended_at FROM ("
	"SELECT 0 AS part, a.id AS n, a.attempt, a.outcome::integer, a.worker, a.error, a.started_at, a.ended_at"
	" FROM {s}.job_attempt a WHERE a.job_id = $1::bigint"
	" UNION ALL SELECT 1, 0, j.fence::integer, 0, run.worker, NULL, run.claimed_at, NULL"
	" FROM {s}.job j " RUN_OF("j") " WHERE j.id = $1 AND run.until IS NOT NULL"
	" UNION ALL SELECT 1, 0, j.attempt, 1, j.leased_by, NULL, j.started_at, j.ended_at FROM {s}.job j"
	" WHERE j.id = $1 AND j.status = 4 AND NOT j.outside"
	" UNION ALL SELECT 2, 0, NULL, NULL, NULL, NULL, NULL, NULL FROM {s}.job j WHERE j.id = $1) all_of_them"
	" ORDER BY part, n";

/* $1 types */
static const char outstanding[] =
	"SELECT (SELECT count(*) FROM {s}.ready r WHERE r.type = ANY ($1::text[]))"
	" + (SELECT count(*) FROM {s}.sched q WHERE q.type = ANY ($1) AND q.due <= " NOW "),"
	" (SELECT count(*) FROM {s}.sched q WHERE q.type = ANY ($1) AND q.due > " NOW " AND q.tried),"
	" (SELECT count(*) FROM {s}.lease l CROSS JOIN LATERAL unnest(l.ids, l.fences) AS u(id, fence)"
	" JOIN {s}.job j ON j.id = u.id AND j.fence = u.fence AND j.status = 2 AND j.type = ANY ($1)),"
	" (SELECT count(*) FROM {s}.sched q WHERE q.type = ANY ($1) AND q.due > " NOW " AND NOT q.tried),"
	" (SELECT count(*) FROM {s}.job j WHERE j.id = ANY (ARRAY(SELECT DISTINCT b.job_id FROM {s}.blocker b"
	" WHERE NOT b.done)) AND j.status = 1 AND j.type = ANY ($1))";

/* ---- inspecting from outside ---- */

/* $1 after this claim, $2 limit */
#define LEASE_JOBS(l)                                                                                                  \
	"unnest(" l ".ids, " l ".fences) AS u(id, fence) JOIN {s}.job j ON j.id = u.id AND j.fence = u.fence"          \
	" AND j.status = 2"
static const char leases[] =
	"SELECT l.claim, l.worker, l.claimed_at, l.until, j.id, j.type FROM (SELECT * FROM {s}.lease o"
	" WHERE o.claim > $1::uuid AND EXISTS (SELECT 1 FROM " LEASE_JOBS("o") ")"
	" ORDER BY o.claim LIMIT $2::bigint) l CROSS JOIN LATERAL " LEASE_JOBS("l") " ORDER BY l.claim, j.id";

/* ---- events ---- */

/* $1 streams, $2 incarnations: lock their marks in order; what is not there yet begins at 0. */
static const char event_marks[] =
	"INSERT INTO {s}.event_mark AS m (stream, incarnation, mark, at) SELECT DISTINCT u.stream, u.incarnation, 0,"
	" clock_timestamp()"
	" FROM unnest($1::text[], $2::bigint[]) AS u(stream, incarnation) ORDER BY 1, 2"
	" ON CONFLICT (stream, incarnation) DO UPDATE SET mark = m.mark RETURNING stream, incarnation, mark, crc,"
	" owner, xmax = 0";

/* $1 a stream, $2 an incarnation that is new: the owner of the others. Two that begin a stream of one name at the same
 * time do so one after the other: the statement before this has taken the lock. */
static const char event_owners[] =
	"SELECT owner FROM {s}.event_mark WHERE stream = $1::text AND incarnation <> $2::bigint LIMIT 1";

/* $1 streams, $2 incarnations, $3 sequences */
static const char event_known[] =
	"SELECT u.ord::integer, e.crc FROM unnest($1::text[], $2::bigint[], $3::bigint[]) WITH ORDINALITY"
	" AS u(stream, incarnation, sequence, ord) JOIN {s}.job_events e"
	" ON e.stream = u.stream AND e.incarnation = u.incarnation AND e.sequence = u.sequence ORDER BY u.ord";

/* $1 streams, $2 incarnations, $3 sequences, $4 CRCs, $5 jobs, $6 attempts, $7 types, $8 times, $9 payloads, $10 which
 * are partial, $11 how many. The counter's row is locked until the commit, so offsets are gapless and in the order of
 * commits. */
static const char event_insert[] =
	"WITH o AS (UPDATE {s}.event_offset SET last = last + $11::bigint RETURNING last - $11 AS base)"
	" INSERT INTO {s}.job_events (\"offset\", stream, incarnation, sequence, crc, job_id, attempt, type, ts,"
	" payload, partial, late) SELECT o.base + u.ord, u.stream, u.incarnation, u.sequence, u.crc, nullif(u.job, 0),"
	" nullif(u.attempt, 0), u.type, u.ts, u.payload, u.partial, u.late"
	" FROM o CROSS JOIN unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::integer[],"
	" $7::integer[], $8::timestamptz[], $9::bytea[], $10::boolean[], $12::boolean[]) WITH ORDINALITY"
	" AS u(stream, incarnation, sequence, crc, job, attempt, type, ts, payload, partial, late, ord)";

/* $1 jobs, $2 attempts, $3 claims, $4 their hashes. For each, in order, enum sl__claim_standing: had this attempt of the
 * job this claim, and is it the one that runs, or the last there was? */
static const char claim_standing[] =
	"SELECT CASE WHEN j.id IS NULL THEN 0 WHEN NOT (l.fence IS NOT NULL OR (j.attempt = u.attempt AND j.claim = u.hash)"
	" OR EXISTS (SELECT 1 FROM {s}.job_attempt a WHERE a.job_id = u.job AND a.attempt = u.attempt"
	" AND a.claim = u.hash)) THEN 1"
	" WHEN l.fence = j.fence AND j.status = 2 THEN 3"
	" WHEN u.attempt = j.attempt AND (j.status <> 2 OR NOT " LEASED("j") ") THEN 3 ELSE 2 END"
	" FROM unnest($1::bigint[], $2::integer[], $3::uuid[], $4::bigint[]) WITH ORDINALITY"
	" AS u(job, attempt, claim, hash, ord) LEFT JOIN {s}.job j ON j.id = u.job"
	" LEFT JOIN LATERAL (SELECT x.fence FROM {s}.lease o CROSS JOIN LATERAL unnest(o.ids, o.fences) AS x(id, fence)"
	" WHERE o.claim = u.claim AND x.id = u.job AND x.fence = u.attempt) l ON true ORDER BY u.ord";
/* clang-format on */

#define EVENT_COLUMNS                                                                                                  \
	"\"offset\", stream, incarnation, sequence, crc, job_id, attempt, type, late, ts, payload, partial"
/* $1 an offset, $2 a limit. The answer ends with the event that fills SL__PG_EVENTS_BYTES: libpq keeps all of it in
 * memory. A payload's length is known without reading it. */
#define TEXT_OF_(number) #number
#define TEXT_OF(number) TEXT_OF_(number)
#define EVENTS(where)                                                                                                  \
	"SELECT " EVENT_COLUMNS " FROM (SELECT e.*, sum(octet_length(payload)) OVER (ORDER BY \"offset\") AS total"    \
	" FROM (SELECT * FROM {s}.job_events WHERE " where " \"offset\" > $1::bigint ORDER BY \"offset\""              \
	" LIMIT $2::bigint) e) w WHERE total - octet_length(payload) < " TEXT_OF(                                      \
		SL__PG_EVENTS_BYTES) " ORDER BY \"offset\""

/* ---- for cold_sql.h ---- */

/* $1 below this id, $2 how many at least: jobs that failed, or are tried again, the newest first. */
#define TRIED_IDS(queue)                                                                                               \
	" UNION ALL (SELECT q.id, q.fence FROM {s}." queue " q WHERE q.tried AND q.id < $1 ORDER BY q.id DESC"         \
	" LIMIT $2 + 1)"
#define FAILED_IDS                                                                                                     \
	"SELECT f.id, f.fence FROM ((SELECT x.id, NULL::bigint AS fence FROM {s}.stopped x WHERE x.status = 5"         \
	" AND x.id < $1::bigint ORDER BY x.id DESC LIMIT $2::bigint + 1)" TRIED_IDS("sched")                           \
		TRIED_IDS("ready") " UNION ALL SELECT u.id, u.fence FROM {s}.lease l CROSS JOIN LATERAL "              \
				   "unnest(l.ids, l.fences) AS u(id, fence)"                                           \
				   " WHERE u.id < $1) f ORDER BY f.id DESC"
/* When job j failed, for the first or the last time. */
#define FAILED_AT(order)                                                                                               \
	"coalesce(j.ended_at, (SELECT a.ended_at FROM {s}.job_attempt a WHERE a.job_id = j.id AND a.outcome = 2"       \
	" ORDER BY a.id " order " LIMIT 1))"

#define COLD_TABLE(name) "{s}." name
#define COLD_EVENT_TABLE "{s}.job_events"
#define COLD_P(n, type) "$" #n "::" type
#define COLD_IN(query) "= ANY (ARRAY(" query "))"
#define COLD_IN_IDS(n) "= ANY ($" #n "::bigint[])"
#define COLD_OPEN(b) "NOT " b ".done"
#define COLD_NEXT "next_at"
#define COLD_NEXT_OR_NULL "next_at"
#define COLD_LAST "last_at"
#define COLD_AT "at"
#define COLD_TS "ts"
#define COLD_STARTED "started_at"
#define COLD_SEEN "seen_at"
#define COLD_UNTIL "until"
#define COLD_ERROR_AT "error_at"
#define COLD_CLOCK(n) "clock_timestamp()"
#define COLD_LATER(n, m) "clock_timestamp()+$" #m "::bigint*interval '1 millisecond'"
#define COLD_SKIP_LOCKED " FOR UPDATE SKIP LOCKED"
#define COLD_CHAINS "array_to_string(chains, ',')"
#define COLD_FAILED                                                                                                    \
	"SELECT j.id, j.type, " FAILED_AT("ASC") " AS first_at, " FAILED_AT(                                           \
		"DESC") " AS last_at,"                                                                                 \
			" (j.status = 2)::integer AS again, " SL__PG_ERROR_LINE " AS line FROM (" FAILED_IDS           \
			" LIMIT $2) x"                                                                                 \
			" JOIN {s}.job j ON j.id = x.id AND (x.fence IS NULL AND j.status = 5"                         \
			" OR x.fence = j.fence AND j.status = 2 AND j.error IS NOT NULL)"
#define COLD_FAILED_ID FAILED_IDS
#define COLD_ANY_TYPE(n) "($" #n "::text[] IS NULL OR type = ANY ($" #n "))"
#define COLD_GET_JOB get_job
#define COLD_GET_CHAIN get_chain
#define COLD_ATTEMPTS attempts
#define COLD_OUTSTANDING outstanding
#define COLD_LEASES leases
#define COLD_EVENTS_OF_JOB EVENTS("job_id = $3::bigint AND")
#define COLD_EVENTS_ALL EVENTS("")

#endif
