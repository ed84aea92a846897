/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The statements of the hot path and of leases. Numbers in them are those of enum sl_job_status (1 blocked, 2 pending,
 * 4 completed, 5 failed, 6 cancelled), enum sl_settle_kind and enum sl_attempt_outcome.
 *
 * What keeps them right under READ COMMITTED
 *  P1. Every end of a claim is an UPDATE of the job's row with `fence = …` and `status = 2` in its WHERE. When another
 *      transaction was faster, PostgreSQL checks the new row again, and nothing matches.
 *  P2. Rows of job are locked in the order of their ids: parameters come sorted, and plans are nested loops over them
 *      (other joins are switched off on our connections, which also keeps a plan made for an empty table from being a
 *      scan of a full one).
 *  P3. A transaction that puts an edge to a chain locks the chain's first job before it checks whether the chain has
 *      completed.
 *      One that completes a chain updates that row and looks for edges in a later statement. One sees the other.
 *  P4. `ready` and `sched` may hold a row that its job has left (a claim that was lost with the server's memory, a
 *      promotion that raced with a cancel). Claims skip what has another fence or status than the job's row.
 */
#include "jobs/store/postgres/store.h"

#define NOW "(SELECT clock_timestamp())"

/* How many jobs are in which status is noted where that changes, and summed up by who asks: a row for each statement
 * and type, so that no transaction waits for another's count. Status 0: not there. */
#define TALLY(type, status, was, from)                                                                                 \
	"tally AS (INSERT INTO {s}.tally (type, status, was, n) SELECT " type ", " status ", " was ", count(*)"        \
	" FROM " from " GROUP BY 1, 2, 3)"
#define TALLY_ONE(type) "tally AS (INSERT INTO {s}.tally (type, status, was, n) VALUES (" type ", 2, 0, 1))"

/* ---- claims ---- */

/* The claimable of a type from its mark on, in order; `priority < mark` is read in full, so that what is more urgent is
 * found at once. $lock: FOR UPDATE SKIP LOCKED. The parts are read lazily and in turn. */
#define READY_FROM(columns, type, priority, id, lock)                                                                  \
	"(SELECT * FROM (SELECT " columns " FROM {s}.ready r WHERE r.type = " type                                     \
	" AND NOT r.solo AND r.priority < " priority " ORDER BY r.priority, r.id " lock                                \
	") urgent UNION ALL SELECT * FROM (SELECT " columns " FROM {s}.ready r WHERE r.type = " type                   \
	" AND NOT r.solo AND (r.priority, r.id) > (" priority ", " id ") ORDER BY r.priority, r.id " lock ") rest)"

#define LEASE_COLUMNS "(claim, worker, claimed_at, until, started, types, ids, fences)"
/* The same call asks again after rows that their jobs had left. A row without types is that of a claim that was given
 * up: who sent it does not wait for the answer any more, and nothing may come of it. */
#define LEASE_AGAIN                                                                                                    \
	" ON CONFLICT (claim) DO UPDATE SET until = excluded.until, started = excluded.started,"                       \
	" types = CASE WHEN lease.types = '{}' THEN lease.claim::text::text[] ELSE excluded.types END,"                \
	" ids = excluded.ids, fences = excluded.fences RETURNING until"

/* What the store keeps of a claim: jobs/store/claims.h. */
#define CLAIM_HASH(claim)                                                                                              \
	"('x' || encode(substring(sha256(uuid_send(" claim ")) FROM 1 FOR 8), 'hex'))::bit(64)::bigint"

/* The first job of a type that is claimed alone, with its place in the order. */
#define FIRST_SOLO(type)                                                                                               \
	"SELECT r.ctid AS tid, r.priority, r.id FROM {s}.ready r WHERE r.type = " type                                 \
	" AND r.solo ORDER BY r.priority, r.id LIMIT 1 FOR UPDATE SKIP LOCKED"
#define BEFORE_SOLO(type)                                                                                              \
	"EXISTS (SELECT 1 FROM {s}.ready r WHERE r.type = " type                                                       \
	" AND NOT r.solo AND (r.priority, r.id) < (f.priority, f.id))"

/* The jobs in order, then one row for the reply: count taken out, whether there is more than it seems, whether jobs
 * wait for a free slot, now, next due time, next expiry. */
#define CLAIMED_JOBS                                                                                                   \
	" SELECT * FROM (SELECT j.id, j.chain_id, j.fence, j.type, j.input, j.traceparent, j.charged, j.priority,"     \
	" NULL::boolean, j.blockers IS NOT NULL, j.created_at, j.scheduled_for, NULL::timestamptz"                     \
	" FROM d JOIN {s}.job j ON j.id = d.id AND j.fence = d.fence AND j.status = 2"                                 \
	" ORDER BY d.priority, d.id) taken"
#define CLAIMED(limit, free, types_match_ready, solo_left, alone, types_match_sched, types_match_lease, seen)          \
	CLAIMED_JOBS " UNION ALL SELECT NULL, (SELECT n FROM z), " seen ", NULL, NULL, NULL, NULL, NULL,"              \
		     " (EXISTS (SELECT 1 FROM s) AND " limit " > 1 AND EXISTS"                                         \
		     " (SELECT 1 FROM {s}.ready r WHERE " types_match_ready                                            \
		     " AND r.ctid <> ALL (ARRAY(SELECT tid FROM s)))) OR ((SELECT n FROM z) = 0 AND " free             \
		     " > 0 AND " solo_left "), " alone ", clock_timestamp(),"                                          \
		     " CASE WHEN (SELECT n FROM z) < " limit                                                           \
		     " THEN (SELECT min(q.due) FROM {s}.sched q WHERE " types_match_sched ") END,"                     \
		     " CASE WHEN (SELECT n FROM z) < " limit                                                           \
		     " THEN least((SELECT min(o.until) FROM {s}.lease o WHERE " types_match_lease                      \
		     "), (SELECT until FROM l)) END"

/* The lines from here on are those of the SQL. */
/* clang-format off */
/* $1 type, $2 limit, $3 $4 mark, $5 claim, $6 worker, $7 lease, $8 free slots */
#define PAUSED_ONE "EXISTS (SELECT 1 FROM {s}.paused p WHERE p.type = $1)"
#define SOLO_ONE "(NOT " PAUSED_ONE " AND EXISTS (SELECT 1 FROM {s}.ready r WHERE r.type = $1 AND r.solo))"
static const char claim_one_type[] =
	"WITH s AS MATERIALIZED (SELECT f.tid FROM (" FIRST_SOLO("$1") ") f"
	" WHERE $8::integer > 0 AND NOT " PAUSED_ONE " AND NOT " BEFORE_SOLO("$1") "),"
	"d AS (DELETE FROM {s}.ready x WHERE x.ctid = ANY (CASE WHEN EXISTS (SELECT 1 FROM s)"
	" THEN ARRAY(SELECT tid FROM s) ELSE ARRAY(SELECT tid FROM "
	READY_FROM("r.ctid AS tid", "$1", "$3::integer", "$4::bigint", "FOR UPDATE SKIP LOCKED")
	" m LIMIT CASE WHEN " PAUSED_ONE " THEN 0 ELSE $2::integer END) END)"
	" RETURNING x.id, x.fence, x.priority),"
	"z AS MATERIALIZED (SELECT count(*) AS n FROM d),"
	"l AS (INSERT INTO {s}.lease " LEASE_COLUMNS
	" SELECT $5::uuid, $6::text, clock_timestamp(), clock_timestamp() + $7::interval, count(*) <= $8,"
	" ARRAY[$1::text], array_agg(id), array_agg(fence) FROM d HAVING count(*) > 0" LEASE_AGAIN ")"
	CLAIMED("$2", "$8", "r.type = $1", SOLO_ONE, "$8 = 0 AND " SOLO_ONE, "q.type = $1", "o.types @> ARRAY[$1::text]",
	"NULL::bigint");

/* $1 type, $2 limit, $3 claim, $4 worker, $5 lease, $6 free slots: the same for a worker that has nothing and was notified
 * of a job. It takes two thirds of the time, most of which is setting a plan up: it skips flagged jobs, of which it only
 * says that there are some, leaves out the next expiry, and has what is said of the reply in every row, at least one.
 * Rows of ready that their jobs had left come last, with an id of NULL. */
static const char claim_hinted[] =
	"WITH d AS (DELETE FROM {s}.ready x WHERE x.ctid = ANY (ARRAY(SELECT r.ctid FROM {s}.ready r WHERE r.type = $1"
	" AND NOT r.solo ORDER BY r.priority, r.id LIMIT CASE WHEN " PAUSED_ONE " THEN 0 ELSE $2::integer END"
	" FOR UPDATE SKIP LOCKED)) RETURNING x.id, x.fence, x.priority),"
	"l AS (INSERT INTO {s}.lease " LEASE_COLUMNS
	" SELECT $3::uuid, $4::text, clock_timestamp(), clock_timestamp() + $5::interval, count(*) <= $6::integer,"
	" ARRAY[$1::text], array_agg(id), array_agg(fence) FROM d HAVING count(*) > 0)"
	" SELECT j.id, j.chain_id, j.fence, j.type, j.input, j.traceparent, j.charged, j.priority,"
	" EXISTS (SELECT 1 FROM {s}.ready r WHERE r.type = $1 AND r.solo), j.blockers IS NOT NULL, j.created_at,"
	" j.scheduled_for, (SELECT min(q.due) FROM {s}.sched q WHERE q.type = $1), clock_timestamp(), d.id IS NOT NULL"
	" FROM (SELECT) one LEFT JOIN d ON true"
	" LEFT JOIN {s}.job j ON j.id = d.id AND j.fence = d.fence AND j.status = 2 ORDER BY j.priority, j.id";

/*
 * $1 types, $2 limits, $3 $4 marks, $5 limit, $6 claim, $7 worker, $8 lease, $9 lock all, $10 free slots of each type,
 * $11 free slots
 * A read without locks says how many of each type are among the first; only that many are locked. When others
 * hold those locks the claim gets less than it has seen; the caller then asks again with all types to their limits.
 */
static const char claim_types[] =
	"WITH t AS MATERIALIZED (SELECT u.type, least(u.lim, $5::integer) AS lim, u.priority, u.id,"
	" least(u.free, $11::integer) AS free"
	" FROM unnest($1::text[], $2::integer[], $3::integer[], $4::bigint[], $10::integer[])"
	" AS u(type, lim, priority, id, free)"
	" WHERE u.lim > 0 AND NOT EXISTS (SELECT 1 FROM {s}.paused p WHERE p.type = u.type)),"
	"s AS MATERIALIZED (SELECT f.tid FROM (SELECT m.tid, m.priority, m.id FROM t"
	" CROSS JOIN LATERAL (" FIRST_SOLO("t.type") ") m WHERE t.free > 0 ORDER BY m.priority, m.id LIMIT 1) f"
	" WHERE NOT EXISTS (SELECT 1 FROM t WHERE " BEFORE_SOLO("t.type") ")),"
	"w AS MATERIALIZED (SELECT f.type, count(*) AS n FROM (SELECT t.type, m.priority, m.id FROM t"
	" CROSS JOIN LATERAL (SELECT * FROM "
	READY_FROM("r.priority, r.id", "t.type", "t.priority", "t.id", "")
	" m LIMIT t.lim) m"
	" WHERE NOT EXISTS (SELECT 1 FROM s) ORDER BY m.priority, m.id LIMIT $5) f GROUP BY f.type),"
	"k AS MATERIALIZED (SELECT m.tid FROM (SELECT t.type, t.priority, t.id,"
	" CASE WHEN $9 THEN t.lim ELSE coalesce((SELECT w.n FROM w WHERE w.type = t.type), 0) END AS n"
	" FROM t WHERE NOT EXISTS (SELECT 1 FROM s)) t"
	" CROSS JOIN LATERAL (SELECT * FROM "
	READY_FROM("r.ctid AS tid, r.priority, r.id", "t.type", "t.priority", "t.id", "FOR UPDATE SKIP LOCKED")
	" m LIMIT t.n) m ORDER BY m.priority, m.id LIMIT $5),"
	"d AS (DELETE FROM {s}.ready x WHERE x.ctid = ANY (ARRAY(SELECT tid FROM s UNION ALL SELECT tid FROM k))"
	" RETURNING x.id, x.fence, x.priority, x.type),"
	"z AS MATERIALIZED (SELECT count(*) AS n FROM d),"
	"l AS (INSERT INTO {s}.lease " LEASE_COLUMNS
	" SELECT $6::uuid, $7::text, clock_timestamp(), clock_timestamp() + $8::interval, count(*) <= $11"
	" AND NOT EXISTS (SELECT 1 FROM t WHERE (SELECT count(*) FROM d e WHERE e.type = t.type) > t.free),"
	" array_agg(DISTINCT type), array_agg(id), array_agg(fence) FROM d HAVING count(*) > 0" LEASE_AGAIN ")"
	CLAIMED("$5", "$11", "r.type IN (SELECT type FROM t)",
	"EXISTS (SELECT 1 FROM t WHERE EXISTS (SELECT 1 FROM {s}.ready r WHERE r.type = t.type AND r.solo))",
	"EXISTS (SELECT 1 FROM t WHERE t.free = 0"
	" AND EXISTS (SELECT 1 FROM {s}.ready r WHERE r.type = t.type AND r.solo))",
	"q.type = ANY ($1)", "o.types && $1", "(SELECT sum(n)::bigint FROM w)");

/* $1 claim, $2 worker, $3 lease: what a claim holds whose answer was lost. Where it was not made it can only fail from
 * here on; one that is being made is waited for. */
static const char claim_again[] =
	"WITH l AS (INSERT INTO {s}.lease AS o " LEASE_COLUMNS " VALUES ($1::uuid, $2::text, clock_timestamp(),"
	" clock_timestamp() + $3::interval, false, '{}', '{}', '{}')"
	" ON CONFLICT (claim) DO UPDATE SET until = excluded.until RETURNING o.ids, o.fences),"
	"d AS (SELECT u.id, u.fence, j.priority FROM l CROSS JOIN LATERAL unnest(l.ids, l.fences) AS u(id, fence)"
	" JOIN {s}.job j ON j.id = u.id)"
	CLAIMED_JOBS
	" UNION ALL SELECT NULL, 0, NULL::bigint, NULL, NULL, NULL, NULL, NULL, true, false, clock_timestamp(), NULL,"
	" NULL";

/* $1 types. A bounded number at a time; the next claim takes the rest. */
static const char promote[] =
	"WITH q AS (DELETE FROM {s}.sched x WHERE x.ctid = ANY (ARRAY(SELECT m.tid FROM unnest($1::text[]) AS t(type)"
	" CROSS JOIN LATERAL (SELECT q.ctid AS tid FROM {s}.sched q WHERE q.type = t.type AND q.due <= " NOW
	" ORDER BY q.due, q.id LIMIT 1000 FOR UPDATE SKIP LOCKED) m))"
	" RETURNING x.id, x.fence, x.priority, x.solo, x.tried, x.type)"
	" INSERT INTO {s}.ready (id, fence, priority, solo, tried, type)"
	" SELECT id, fence, priority, solo, tried, type FROM q";

/* ---- settling ---- */


/* Jobs that fail or are cancelled are also kept in a list of their own. What a process of an earlier version left there
 * does no harm: readers of the list also check the job. */
#define STOP(status, from)                                                                                             \
	"stop AS (INSERT INTO {s}.stopped (status, id, chain_id) SELECT " status ", id, chain_id FROM " from           \
	" ON CONFLICT DO NOTHING)"
#define GO_ON(status)                                                                                                  \
	"go AS (DELETE FROM {s}.stopped x USING j WHERE x.status = j." status " AND x.id = j.id)"

#define CHAIN_STATUS(a) "coalesce(" a ".chain_status, " a ".status)"

/* $1 ids, $2 fences, $3 hashes of claims, $4 outputs, $5 started, $6 worker, $7 claims whose lease goes */
static const char settle_fast[] =
	"WITH s AS (UPDATE {s}.job j SET fence = j.fence + 1, status = 4, attempt = j.fence::integer,"
	" charged = j.charged + 1, claim = x.claim, output = x.output, error = NULL, started_at = x.started, ended_at = clock_timestamp(),"
	" leased_by = $6::text, solo = false"
	" FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::timestamptz[]) WITH ORDINALITY"
	" AS x(id, fence, claim, output, started, ord)"
	" WHERE j.id = x.id AND j.fence = x.fence AND j.status = 2 RETURNING j.id, j.type, j.watched, j.key, x.ord),"
	"k AS (DELETE FROM {s}.dedup d USING s WHERE s.key IS NOT NULL AND d.key = s.key AND d.chain_id = s.id"
	" AND d.scope = 0),"
	"l AS (DELETE FROM {s}.lease WHERE claim = ANY ($7::uuid[]))," TALLY("type", "4", "2", "s")
	" SELECT ord::integer, NULL::bigint, type, false, watched FROM s";

/*
 * $1 ids, $2 fences, $3 kinds, $4 charges, $5 outputs, $6 errors, $7 progress, $8 started, $9 at, $10 delays,
 * $11 workers, $12 claims whose lease goes; of continuations $13 types, $14 inputs, $15 priorities, $16 at, $17 delays,
 * $18 trace parents; their blockers: $19 which settle (from 1), $20 order, $21 chains; $22 hashes of claims.
 * All rows that it touches were locked before, in order.
 */
static const char settle[] =
	"WITH x AS MATERIALIZED (SELECT u.*, " NOW " AS now, coalesce(u.at, " NOW " + u.delay) AS due,"
	" coalesce(u.next_at, " NOW " + u.next_delay) AS next_due,"
	" CASE WHEN u.kind = 2 THEN nextval('{s}.job_id') END AS next_id"
	" FROM unnest($1::bigint[], $2::bigint[], $3::integer[], $4::integer[], $5::text[], $6::text[], $7::text[],"
	" $8::timestamptz[], $9::timestamptz[], $10::interval[], $11::text[], $13::text[], $14::text[],"
	" $15::integer[], $16::timestamptz[], $17::interval[], $18::text[], $22::bigint[]) WITH ORDINALITY"
	" AS u(id, fence, kind, charge, output, error, progress, started, at, delay, worker, next_type, next_input,"
	" next_priority, next_at, next_delay, next_trace, claim, ord)),"
	"s AS (UPDATE {s}.job j SET fence = j.fence + 1,"
	" status = CASE WHEN x.kind IN (1, 2) THEN 4 WHEN x.kind = 4 THEN 5 ELSE 2 END,"
	" attempt = CASE WHEN x.kind IN (4, 6) AND x.started IS NULL THEN j.attempt ELSE j.fence::integer END,"
	" charged = j.charged + x.charge, claim = CASE WHEN x.kind IN (1, 2) THEN x.claim END,"
	" output = CASE WHEN x.kind = 1 THEN x.output END,"
	" error = CASE WHEN x.kind IN (1, 2) THEN NULL WHEN x.kind IN (3, 4) THEN x.error ELSE j.error END,"
	" progress = coalesce(x.progress, j.progress), leased_by = x.worker, started_at = coalesce(x.started, j.started_at),"
	" ended_at = CASE WHEN x.kind IN (1, 2, 4) THEN x.now END,"
	" scheduled_for = CASE WHEN x.kind IN (3, 5) THEN x.due WHEN x.kind = 6 THEN NULL ELSE j.scheduled_for END,"
	" solo = j.solo AND x.kind = 6 AND x.started IS NULL, next_id = x.next_id,"
	" last_id = CASE WHEN x.kind = 2 AND j.id = j.chain_id THEN x.next_id ELSE j.last_id END,"
	" chain_status = CASE WHEN x.kind = 2 AND j.id = j.chain_id THEN 2 ELSE j.chain_status END"
	" FROM x WHERE j.id = x.id AND j.fence = x.fence AND j.status = 2"
	" RETURNING j.id, j.chain_id, j.fence, j.type, j.priority, j.attempt, j.charged, j.solo, j.key, j.watched,"
	" x.ord, x.kind, x.claim,"
	" x.error, x.worker, x.started, x.due, x.now, x.next_id, x.next_type, x.next_input, x.next_priority,"
	" x.next_due, x.next_trace),"
	"h AS (UPDATE {s}.job h SET chain_status = CASE s.kind WHEN 1 THEN 4 WHEN 4 THEN 5 ELSE 2 END,"
	" last_id = coalesce(s.next_id, h.last_id) FROM s"
	" WHERE s.id <> s.chain_id AND s.kind IN (1, 2, 4) AND h.id = s.chain_id RETURNING h.id, h.key, h.watched,"
	" s.kind),"
	"k AS (DELETE FROM {s}.dedup d USING (SELECT key, id FROM s WHERE id = chain_id AND kind IN (1, 4)"
	" UNION ALL SELECT key, id FROM h WHERE kind IN (1, 4)) e"
	" WHERE e.key IS NOT NULL AND d.key = e.key AND d.chain_id = e.id AND d.scope = 0),"
	"e AS MATERIALIZED (SELECT s.next_id AS job_id, b.ord, c.id AS chain_id, " CHAIN_STATUS("c") " = 4 AS done"
	" FROM unnest($19::integer[], $20::integer[], $21::bigint[]) AS b(settle, ord, chain)"
	" JOIN s ON s.ord = b.settle LEFT JOIN {s}.job c ON c.id = b.chain AND c.id = c.chain_id"
	" AND c.id <> s.chain_id),"
	"b AS (INSERT INTO {s}.blocker (job_id, ord, chain_id, done) SELECT job_id, ord, chain_id, done FROM e),"
	"n AS MATERIALIZED (SELECT s.*, (SELECT nullif(count(*), 0)::integer FROM e WHERE e.job_id = s.next_id) AS"
	" edges,"
	" (SELECT count(*)::integer FROM e WHERE e.job_id = s.next_id AND NOT e.done) AS open FROM s WHERE s.kind ="
	" 2),"
	"j AS (INSERT INTO {s}.job (id, chain_id, prev_id, created_at, scheduled_for, priority, blockers,"
	" blockers_open,"
	" status, type, input, traceparent) SELECT next_id, chain_id, id, now, next_due, next_priority, edges,"
	" CASE WHEN edges > 0 THEN open END, CASE WHEN open > 0 THEN 1 ELSE 2 END, next_type, next_input, next_trace"
	" FROM n),"
	"r AS (INSERT INTO {s}.ready (id, fence, priority, solo, tried, type)"
	" SELECT id, fence, priority, solo, charged > 0, type FROM s WHERE kind = 6 OR (kind IN (3, 5) AND (due IS NULL OR due <="
	" now)) UNION ALL SELECT next_id, 1, next_priority, false, false, next_type FROM n"
	" WHERE open = 0 AND (next_due IS NULL OR next_due <= now)),"
	"q AS (INSERT INTO {s}.sched (id, fence, due, priority, tried, type)"
	" SELECT id, fence, due, priority, charged > 0, type FROM s WHERE kind IN (3, 5) AND due > now"
	" UNION ALL SELECT next_id, 1, next_due, next_priority, false, next_type FROM n WHERE open = 0 AND next_due"
	" > now),"
	"a AS (INSERT INTO {s}.job_attempt (job_id, attempt, claim, outcome, worker, error, started_at, ended_at)"
	" SELECT id, attempt, claim, CASE kind WHEN 5 THEN 4 WHEN 6 THEN 5 ELSE 2 END, worker,"
	" error, started, now FROM s WHERE kind IN (3, 5) OR (kind IN (4, 6) AND started IS NOT NULL)),"
	"l AS (DELETE FROM {s}.lease WHERE claim = ANY ($12::uuid[])),"
	STOP("5", "s WHERE kind = 4") ","
	TALLY("type", "status", "was", "(SELECT type, CASE kind WHEN 4 THEN 5 ELSE 4 END AS status, 2 AS was FROM s"
	" WHERE kind IN (1, 2, 4) UNION ALL SELECT next_type, CASE WHEN open > 0 THEN 1 ELSE 2 END, 0 FROM n) m")
	" SELECT s.ord::integer, s.next_id, s.type, s.due > s.now,"
	" coalesce((SELECT h.watched FROM h WHERE h.id = s.chain_id), s.watched), s.next_due > s.now,"
	" coalesce((SELECT n.open FROM n WHERE n.id = s.id), 0) FROM s";

/*
 * Chains that would wait for each other. Nothing waits for a chain that is just being started: only a continuation can
 * close such a circle, and it checks, with its edges in the tables already.
 *
 * A continuation holds the first jobs of its chain and of those it waits for (ST_LOCK), a start those that it waits for,
 * so of two edges that meet in a chain one is committed before the other is made. Circles of two or three are seen by
 * that. In a longer one, edges that do not meet may be made at the same time; then each of those continuations waits for
 * a chain that waits itself, and takes a lock of the schema before it checks. The last of them sees all edges.
 *
 * $1 chains that the continuations wait for
 */
static const char circle_lock[] =
	"SELECT pg_advisory_xact_lock(hashtextextended('sluice circle {s}', 0)) WHERE EXISTS (SELECT 1"
	" FROM unnest($1::bigint[]) AS u(id) JOIN {s}.job h ON h.id = u.id JOIN {s}.blocker b"
	" ON b.job_id = coalesce(h.last_id, h.id) AND NOT b.done)";

/* $1 chains that were continued, $2 how many edges to follow. A job that failed or was cancelled while it waited would
 * wait again. A circle is an error, since the statements before this one are to be undone: 22P02, with both chains. */
static const char circle[] =
	"WITH RECURSIVE w(own, chain, by) AS (SELECT h.id, b.chain_id, h.id FROM unnest($1::bigint[]) AS u(id)"
	" JOIN {s}.job h ON h.id = u.id JOIN {s}.blocker b ON b.job_id = coalesce(h.last_id, h.id) AND NOT b.done"
	" UNION SELECT w.own, b.chain_id, h.id FROM w JOIN {s}.job h ON h.id = w.chain AND h.id <> w.own"
	" JOIN {s}.job j ON j.id = coalesce(h.last_id, h.id) AND j.status IN (1, 5, 6)"
	" JOIN {s}.blocker b ON b.job_id = j.id AND NOT b.done)"
	" SELECT ('" SL__PG_CIRCLE "' || f.own || ' ' || f.by)::bigint FROM (SELECT * FROM w LIMIT $2::bigint) f"
	" WHERE f.chain = f.own LIMIT 1";

/* $1 chains: open what waited for those of them that have completed. Nothing at all is read while nothing waits. */
static const char unblock[] =
	"WITH e AS (UPDATE {s}.blocker b SET done = true FROM {s}.job h"
	" WHERE EXISTS (SELECT 1 FROM {s}.blocker o WHERE NOT o.done) AND b.chain_id = ANY ($1::bigint[]) AND NOT"
	" b.done AND h.id = b.chain_id AND " CHAIN_STATUS("h") " = 4 RETURNING b.job_id),"
	"c AS MATERIALIZED (SELECT job_id, count(*)::integer AS n FROM e GROUP BY job_id ORDER BY job_id),"
	"u AS (UPDATE {s}.job j SET blockers_open = j.blockers_open - c.n,"
	" status = CASE WHEN j.status = 1 AND j.blockers_open = c.n THEN 2 ELSE j.status END"
	" FROM c WHERE j.id = c.job_id"
	" RETURNING j.id, j.chain_id, j.fence, j.type, j.priority, j.charged, j.scheduled_for, j.status = 2 AS"
	" opened, j.scheduled_for > clock_timestamp() AS later),"
	"r AS (INSERT INTO {s}.ready (id, fence, priority, solo, tried, type)"
	" SELECT id, fence, priority, false, charged > 0, type FROM u WHERE opened AND later IS NOT TRUE),"
	"q AS (INSERT INTO {s}.sched (id, fence, due, priority, tried, type)"
	" SELECT id, fence, scheduled_for, priority, charged > 0, type FROM u WHERE opened AND later),"
	TALLY("type", "2", "1", "u WHERE opened")
	" SELECT id, chain_id, type FROM u WHERE opened ORDER BY id";

/* ---- leases ---- */

/* $1 types, $2 limit, of each type $3 the first delay, $4 the longest (ms), $5 the multiplier. What of an expired lease
 * is not taken stays in it: jobs of other types, jobs beyond the limit, and jobs that are locked (an owner that
 * is settling after all), for which there is another check in a second. The first loss of a job costs no time.
 */
static const char reap[] =
	"WITH l AS MATERIALIZED (SELECT claim, worker, claimed_at, started, ids, fences FROM {s}.lease"
	" WHERE until <= " NOW " AND (types && $1::text[] OR types = '{}') ORDER BY until LIMIT least($2::integer, 64)"
	" FOR UPDATE SKIP LOCKED),"
	"x AS MATERIALIZED (SELECT l.claim, l.worker, l.claimed_at, l.started, u.id, u.fence"
	" FROM l CROSS JOIN LATERAL unnest(l.ids, l.fences) AS u(id, fence)),"
	"p AS MATERIALIZED (SELECT * FROM unnest($1, $3::bigint[], $4::bigint[], $5::text[]::float8[])"
	" AS p(type, first, cap, multiplier)),"
	"k AS MATERIALIZED (SELECT j.id, CASE WHEN p.first > 0 AND EXISTS"
	" (SELECT 1 FROM {s}.job_attempt a WHERE a.job_id = j.id AND a.outcome = 3) THEN clock_timestamp()"
	" + interval '1 millisecond' * least(p.cap, p.first"
	" * exp(least(600, ln(p.multiplier) * (greatest(j.charged + x.started::integer, 1) - 1)))) END AS due"
	" FROM x JOIN {s}.job j ON j.id = x.id AND j.fence = x.fence JOIN p ON p.type = j.type"
	" WHERE j.status = 2 ORDER BY j.id LIMIT $2 FOR NO KEY UPDATE OF j SKIP LOCKED),"
	"u AS (UPDATE {s}.job j SET fence = j.fence + 1, attempt = j.fence::integer,"
	" charged = j.charged + x.started::integer, solo = true, leased_by = x.worker, started_at = x.claimed_at,"
	" scheduled_for = coalesce(k.due, j.scheduled_for)"
	" FROM k JOIN x ON x.id = k.id WHERE j.id = k.id AND j.fence = x.fence"
	" RETURNING j.id, j.chain_id, j.fence, j.type, j.priority, j.attempt, j.charged, k.due, x.claim, x.worker,"
	" x.claimed_at),"
	"r AS (INSERT INTO {s}.ready (id, fence, priority, solo, tried, type)"
	" SELECT id, fence, priority, true, charged > 0, type FROM u WHERE due IS NULL),"
	"q AS (INSERT INTO {s}.sched (id, fence, due, priority, solo, tried, type)"
	" SELECT id, fence, due, priority, true, charged > 0, type FROM u WHERE due IS NOT NULL),"
	"a AS (INSERT INTO {s}.job_attempt (job_id, attempt, claim, outcome, worker, started_at, ended_at)"
	" SELECT id, attempt, " CLAIM_HASH("claim") ", 3, worker, claimed_at, clock_timestamp() FROM u),"
	"y AS MATERIALIZED (SELECT x.claim, array_agg(x.id) AS ids, array_agg(x.fence) AS fences,"
	" array_agg(DISTINCT j.type)::text[] AS types, bool_or(j.type = ANY ($1)) AS ours"
	" FROM x JOIN {s}.job j ON j.id = x.id AND j.fence = x.fence AND j.status = 2"
	" WHERE x.id <> ALL (ARRAY(SELECT id FROM k)) GROUP BY x.claim),"
	"g AS (DELETE FROM {s}.lease WHERE claim = ANY (ARRAY(SELECT claim FROM l EXCEPT SELECT claim FROM y))),"
	"z AS (UPDATE {s}.lease o SET ids = y.ids, fences = y.fences, types = y.types,"
	" until = CASE WHEN y.ours AND (SELECT count(*) FROM k) < $2 THEN clock_timestamp() + interval '1 second'"
	" ELSE o.until END FROM y WHERE o.claim = y.claim)"
	" SELECT id, chain_id, type, NULL::boolean FROM u UNION ALL SELECT NULL, NULL, NULL,"
	" ((SELECT count(*) FROM k) >= $2 AND EXISTS (SELECT 1 FROM y WHERE ours))"
	" OR EXISTS (SELECT 1 FROM {s}.lease o WHERE o.until <= " NOW " AND o.types && $1"
	" AND o.claim <> ALL (ARRAY(SELECT claim FROM l)))";

/* ---- starting ---- */

/* $1 types, $2 inputs, $3 priorities, $4 at, $5 delays, $6 trace parents. Ids in the order given. */
#define START(audit, column, value)                                                                                    \
	"WITH x AS MATERIALIZED (SELECT nextval('{s}.job_id') AS id, u.type, u.input, u.priority, u.trace, " NOW       \
	" AS now, coalesce(u.at, " NOW " + u.delay) AS due FROM unnest($1::text[], $2::text[], $3::integer[],"         \
	" $4::timestamptz[], $5::interval[], $6::text[]) AS u(type, input, priority, at, delay, trace)),"              \
	"j AS (INSERT INTO {s}.job (id, chain_id, created_at, scheduled_for, priority, status, type, input,"           \
	" traceparent" column ") SELECT id, id, now, due, priority, 2, type, input, trace" value " FROM x)," audit     \
	"r AS (INSERT INTO {s}.ready (id, fence, priority, solo, type)"                                                \
	" SELECT id, 1, priority, false, type FROM x WHERE due IS NULL OR due <= now),"                                \
	"q AS (INSERT INTO {s}.sched (id, fence, due, priority, tried, type)"                                          \
	" SELECT id, 1, due, priority, false, type FROM x WHERE due > now)," TALLY("type", "2", "0", "x")              \
	" SELECT id, due > now FROM x"
static const char start[] = START("", "", "");

/* A row of the audit trail: the record's columns, but for its chains, and where they come from. */
#define AUDIT_ROW(via, actor, address, action, request, detail, chains)                                                \
	"INSERT INTO {s}.audit (at, via, actor, address, action, request_id, detail, chains) SELECT"                   \
	" clock_timestamp(), " via "::integer, " actor "::text, " address "::text, " action "::text, " request         \
	"::text, " detail "::text, " chains
#define NEW_CHAINS(from) "coalesce(array_agg(id ORDER BY id), '{}') FROM " from
/* The same with $7 to $12 a record that stands for the chains. */
static const char start_audited[] =
	START("a AS (" AUDIT_ROW("$7", "$8", "$9", "$10", "$11", "$12", NEW_CHAINS("x")) "),", ", from_http", ", $7 = 2");

/* $1 type, $2 input, $3 priority, $4 trace parent: one chain to be run now, without the arrays of start. */
#define START_ONE(more) \
	"WITH j AS (INSERT INTO {s}.job (id, chain_id, created_at, priority, status, type, input, traceparent)" \
	" SELECT id, id, clock_timestamp(), $3::integer, 2, $1::text, $2::text, $4::text" \
	" FROM (SELECT nextval('{s}.job_id') AS id OFFSET 0) x RETURNING id, priority, type)," \
	TALLY_ONE("$1") \
	" INSERT INTO {s}.ready (id, fence, priority, solo, type) SELECT id, 1, priority, false, type FROM j" \
	" RETURNING id, false" more
static const char start_one[] = START_ONE("");
/* The same with $5 channel, $6 $7 payload before and after the id: see start_and_notify. */
static const char start_notified[] = START_ONE(", set_config('synchronous_commit', 'off', true),"
	" pg_notify($5::text, $6::text || id || $7::text)");

/* $1 type, $2 input, $3 priority, $4 trace parent, $5 claim, $6 worker, $7 lease: one chain that a worker has offered to
 * run. What it has in the queue goes by the ordinary way when its type is paused. */
static const char start_offered[] =
	"WITH x AS MATERIALIZED (SELECT nextval('{s}.job_id') AS id, " NOW " AS now,"
	" NOT EXISTS (SELECT 1 FROM {s}.paused p WHERE p.type = $1) AS runs),"
	"j AS (INSERT INTO {s}.job (id, chain_id, created_at, priority, status, type, input, traceparent)"
	" SELECT id, id, now, $3::integer, 2, $1::text, $2::text, $4::text FROM x),"
	"l AS (INSERT INTO {s}.lease " LEASE_COLUMNS " SELECT $5::uuid, $6::text, now, now + $7::interval, true,"
	" ARRAY[$1], ARRAY[id], ARRAY[1::bigint] FROM x WHERE runs),"
	"r AS (INSERT INTO {s}.ready (id, fence, priority, solo, type) SELECT id, 1, $3, false, $1 FROM x WHERE NOT runs),"
	TALLY_ONE("$1")
	" SELECT id, runs, now FROM x";

/*
 * As start, with $7 keys, $8 scopes, $9 windows; blockers: $10 which chain (from 1), $11 order, $12 chains.
 * The row of a key that is in force is updated to itself: that waits for a transaction that is about to put or free it, and gives
 * its chain back. A key is in the parameters at most once.
 */
#define START_FULL(audit, column, value) \
	"WITH x AS MATERIALIZED (SELECT nextval('{s}.job_id') AS id, u.*, " NOW " AS now," \
	" coalesce(u.at, " NOW \
	" + u.delay) AS due FROM unnest($1::text[], $2::text[], $3::integer[], $4::timestamptz[]," \
	" $5::interval[], $6::text[], $7::text[], $8::integer[], $9::interval[]) WITH ORDINALITY" \
	" AS u(type, input, priority, at, delay, trace, key, scope, win, ord))," \
	"d AS (INSERT INTO {s}.dedup AS d (key, chain_id, scope, until)" \
	" SELECT key, id, scope, now + win FROM x WHERE key IS NOT NULL ORDER BY key ON CONFLICT (key) DO UPDATE SET" \
	" chain_id = CASE WHEN d.until <= clock_timestamp() THEN excluded.chain_id ELSE d.chain_id END," \
	" scope = CASE WHEN d.until <= clock_timestamp() THEN excluded.scope ELSE d.scope END," \
	" until = CASE WHEN d.until <= clock_timestamp() THEN excluded.until ELSE d.until END" \
	" RETURNING d.key, d.chain_id)," \
	"y AS MATERIALIZED (SELECT x.*, coalesce(d.chain_id, x.id) AS got FROM x LEFT JOIN d ON d.key = x.key)," \
	"e AS MATERIALIZED (SELECT y.id AS job_id, b.ord, c.id AS chain_id, " CHAIN_STATUS("c") " = 4 AS done" \
	" FROM unnest($10::integer[], $11::integer[], $12::bigint[]) AS b(which, ord, chain)" \
	" JOIN y ON y.ord = b.which AND y.got = y.id LEFT JOIN {s}.job c ON c.id = b.chain AND c.id = c.chain_id)," \
	"b AS (INSERT INTO {s}.blocker (job_id, ord, chain_id, done) SELECT job_id, ord, chain_id, done FROM e)," \
	"o AS MATERIALIZED (SELECT job_id, count(*)::integer AS edges, (count(*) FILTER (WHERE NOT done))::integer" \
	" AS open FROM e GROUP BY job_id)," \
	"n AS MATERIALIZED (SELECT y.*, o.edges, coalesce(o.open, 0) AS open FROM y LEFT JOIN o ON o.job_id = y.id)," \
	"j AS (INSERT INTO {s}.job (id, chain_id, created_at, scheduled_for, priority, blockers, blockers_open," \
	" status," \
	" type, input, key, traceparent" column ") SELECT id, id, now, due, priority, edges, CASE WHEN edges > 0 THEN open END," \
	" CASE WHEN open > 0 THEN 1 ELSE 2 END, type, input, key, trace" value " FROM n WHERE got = id)," audit \
	"r AS (INSERT INTO {s}.ready (id, fence, priority, solo, type) SELECT id, 1, priority, false, type FROM n" \
	" WHERE got = id AND open = 0 AND (due IS NULL OR due <= now))," \
	"q AS (INSERT INTO {s}.sched (id, fence, due, priority, tried, type)" \
	" SELECT id, 1, due, priority, false, type FROM n WHERE got = id AND open = 0 AND due > now)," \
	TALLY("type", "CASE WHEN open > 0 THEN 1 ELSE 2 END", "0", "n WHERE got = id") \
	" SELECT got, got <> id, open, due > now FROM n ORDER BY ord"
static const char start_full[] = START_FULL("", "", "");
/* The same with $13 to $18 a record that stands for the chains which are new. */
static const char start_full_audited[] =
	START_FULL("a AS (" AUDIT_ROW("$13", "$14", "$15", "$16", "$17", "$18", NEW_CHAINS("n WHERE got = id")) "),",
		   ", from_http", ", $13 = 2");

/* clang-format on */

#include "jobs/store/postgres/sql_cold.h"

/* The caller's settings are kept aside while our statements are planned. */
#define PLANNER_SET(name, value)                                                                                       \
	", set_config('sluice." #name "', current_setting('" #name "'), true), set_config('" #name "', '" #value       \
	"', true)"
#define PLANNER_RESET(name, value) ", set_config('" #name "', current_setting('sluice." #name "'), true)"

const char *const sl__pg_sql[ST_COUNT] = {
	[ST_NOW] = "SELECT clock_timestamp()",
	[ST_ASYNC] = "SELECT set_config('synchronous_commit', 'off', true)",
	[ST_STRICT] = "SELECT 1" SL__PG_PLANNER(PLANNER_SET),
	[ST_RELAXED] = "SELECT 1" SL__PG_PLANNER(PLANNER_RESET),
	[ST_START] = start,
	[ST_START_ONE] = start_one,
	[ST_START_OFFERED] = start_offered,
	[ST_START_NOTIFIED] = start_notified,
	/* A record in the log, so that the commit flushes it and everything before it. */
	[ST_FLUSH] = "SELECT pg_logical_emit_message(true, 'sluice', '')",
	[ST_START_FULL] = start_full,
	[ST_START_AUDITED] = start_audited,
	[ST_START_FULL_AUDITED] = start_full_audited,
	[ST_AUDIT] = AUDIT_ROW("$1", "$2", "$3", "$4", "$5", "$6", "$7::bigint[]"),
	[ST_MARK_HTTP] = "UPDATE {s}.job SET from_http = true WHERE id = ANY ($1::bigint[]) AND NOT from_http",
	[ST_LOCK_SHARE] = "SELECT id FROM {s}.job WHERE id = ANY ($1::bigint[]) ORDER BY id FOR SHARE",
	[ST_LOCK] = "SELECT id FROM {s}.job WHERE id = ANY ($1::bigint[]) ORDER BY id FOR NO KEY UPDATE",
	[ST_MISSING] = "SELECT u.id FROM unnest($1::bigint[]) WITH ORDINALITY AS u(id, ord) LEFT JOIN {s}.job c"
		       " ON c.id = u.id AND c.id = c.chain_id WHERE c.id IS NULL ORDER BY u.ord LIMIT 1",
	[ST_SETTLE_FAST] = settle_fast,
	[ST_SETTLE] = settle,
	[ST_CIRCLE_LOCK] = circle_lock,
	[ST_CIRCLE] = circle,
	[ST_UNBLOCK] = unblock,
	[ST_PROMOTE] = promote,
	[ST_CLAIM_ONE_TYPE] = claim_one_type,
	[ST_CLAIM_HINTED] = claim_hinted,
	[ST_CLAIM_TYPES] = claim_types,
	[ST_CLAIM_AGAIN] = claim_again,
	/* What a reap puts back is flagged, what a settle puts back is not. */
	[ST_LOST] = "SELECT u.ord::integer, j.status, j.fence = u.fence AND j.status IN (1, 2), j.fence = u.fence + 1,"
		    " NOT j.solo"
		    " FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS u(id, fence, ord)"
		    " LEFT JOIN {s}.job j ON j.id = u.id",
	/* With the chain's first job, as the settle that follows needs it: a cancel locks that one first (P2). */
	[ST_GUARD] = "WITH g AS MATERIALIZED (SELECT id, status, fence FROM {s}.job WHERE id = ANY"
		     " (ARRAY(SELECT unnest(ARRAY[id, chain_id]) FROM {s}.job WHERE id = $1::bigint))"
		     " ORDER BY id FOR NO KEY UPDATE)"
		     " SELECT 1, status, fence = $2::bigint AND status IN (1, 2), fence = $2 + 1 FROM g WHERE id = $1",
	/* It does not wait: the row may be locked by the handler itself, in a transaction. */
	[ST_PROGRESS] = "UPDATE {s}.job SET progress = $3::text WHERE id = ANY (ARRAY(SELECT id FROM {s}.job"
			" WHERE id = $1::bigint AND fence = $2::bigint AND status IN (1, 2)"
			" FOR NO KEY UPDATE SKIP LOCKED)) RETURNING id",
	/* In the order of claims, as settles let go of leases. */
	[ST_RENEW] = "UPDATE {s}.lease l SET until = clock_timestamp() + u.lease, started = l.started OR u.started"
		     " FROM (SELECT * FROM unnest($1::uuid[], $2::interval[], $3::boolean[]) WITH ORDINALITY"
		     " AS v(claim, lease, started, ord)"
		     " ORDER BY v.claim OFFSET 0) u WHERE l.claim = u.claim RETURNING u.ord::integer",
	[ST_RENEW_LOST] = "SELECT u.ord::integer, j.status, false, j.fence = u.fence + 1"
			  " FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS u(id, fence, ord)"
			  " LEFT JOIN {s}.job j ON j.id = u.id"
			  " WHERE (j.fence = u.fence AND j.status = 2) IS NOT TRUE",
	[ST_REAP] = reap,
	/* $1 types: in milliseconds, until one of their leases runs out; NULL: no lease. */
	[ST_NEXT_EXPIRY] = "SELECT ceil(extract(epoch FROM min(until) - clock_timestamp()) * 1000)::bigint"
			   " FROM {s}.lease WHERE types && $1::text[] OR types = '{}'",
	[ST_CLAIM_STANDING] = claim_standing,
	[ST_HEADS] = "SELECT id, coalesce(last_id, id), " CHAIN_STATUS(
		"job") " FROM {s}.job WHERE id = ANY ($1::bigint[]) AND id = chain_id ORDER BY id FOR NO KEY UPDATE",
	/* $1 last jobs: a transaction that deletes one of the chains that they wait for is waited for, or waits. */
	[ST_LOCK_BLOCKERS] = "SELECT c.id FROM {s}.blocker b JOIN {s}.job c ON c.id = b.chain_id"
			     " WHERE b.job_id = ANY ($1::bigint[]) AND NOT b.done ORDER BY c.id FOR SHARE OF c",
	[ST_BLOCKERS_GONE] = "SELECT j.chain_id, b.chain_id FROM {s}.blocker b JOIN {s}.job j ON j.id = b.job_id"
			     " WHERE b.job_id = ANY ($1::bigint[]) AND NOT b.done"
			     " AND NOT EXISTS (SELECT 1 FROM {s}.job c WHERE c.id = b.chain_id)"
			     " ORDER BY b.job_id, b.ord LIMIT 1",
	[ST_TAKE_KEYS] = take_keys,
	[ST_KEYS_HELD] = keys_held,
	[ST_END] = end,
	[ST_REDRIVE] = redrive,
	[ST_TRIGGER] = trigger,
	[ST_DELETE] = delete_chains,
	[ST_PRUNABLE] = prunable,
	[ST_PRUNE_EVENTS] = prune_events,
	[ST_PRUNE_SOME_EVENTS] = prune_some_events,
	[ST_WATCH] = "UPDATE {s}.job SET watched = true WHERE id = $1::bigint AND id = chain_id AND NOT watched",
	/* $1: nothing while there are fewer rows. What others are folding, or have not committed, stays as it is: the
	 * sum is the same before and after. */
	[ST_FOLD_TALLY] = "WITH d AS (DELETE FROM {s}.tally x WHERE x.ctid = ANY (ARRAY(SELECT t.ctid FROM {s}.tally t"
			  " WHERE (SELECT count(*) FROM (SELECT 1 FROM {s}.tally LIMIT $1::bigint) few) >= $1"
			  " LIMIT 100000 FOR UPDATE SKIP LOCKED)) RETURNING x.type, x.status, x.was, x.n)"
			  " INSERT INTO {s}.tally (type, status, was, n) SELECT type, status, 0, sum(n) FROM"
			  " (SELECT type, status, n FROM d UNION ALL SELECT type, was, -n FROM d) m"
			  " WHERE status <> 0 GROUP BY 1, 2 HAVING sum(n) <> 0",
	[ST_CRON_FIRE] =
		"WITH u AS (UPDATE {s}.cron SET next_at = $3::timestamptz, last_at = $2::timestamptz,"
		" last_chain = nextval('{s}.job_id') WHERE name = $1::text AND next_at = $2"
		" AND spec = $4::text AND catch_up = $5::boolean"
		" RETURNING last_chain AS id, type, input, priority, from_http),"
		"j AS (INSERT INTO {s}.job (id, chain_id, created_at, priority, status, type, input, from_http)"
		" SELECT id, id, clock_timestamp(), priority, 2, type, input, from_http FROM u),"
		"r AS (INSERT INTO {s}.ready (id, fence, priority, solo, type)"
		" SELECT id, 1, priority, false, type FROM u)," TALLY("type", "2", "0", "u") " SELECT id, type FROM u",
	[ST_EVENT_MARKS] = event_marks,
	[ST_EVENT_NAME_LOCK] = "SELECT pg_advisory_xact_lock(hashtextextended('sluice stream ' || $1::text, 0))",
	[ST_EVENT_OWNERS] = event_owners,
	[ST_EVENT_OWN] = "UPDATE {s}.event_mark SET owner = $3::text WHERE stream = $1::text"
			 " AND incarnation = $2::bigint",
	[ST_EVENT_ADOPT] = "UPDATE {s}.event_mark SET owner = $2::text WHERE stream = $1::text",
	[ST_EVENT_KNOWN] = event_known,
	[ST_EVENT_INSERT] = event_insert,
	[ST_EVENT_OFFSET] = "UPDATE {s}.event_offset SET last = last + $1::bigint RETURNING last - $1",
	[ST_EVENT_COPY] = "COPY {s}.job_events (" EVENT_COLUMNS ") FROM STDIN (FORMAT binary)", /* never prepared */
	[ST_EVENT_ADVANCE] = "UPDATE {s}.event_mark m SET mark = u.mark, at = clock_timestamp(),"
			     " crc = CASE WHEN u.has_crc THEN u.crc END"
			     " FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::boolean[])"
			     " AS u(stream, incarnation, mark, crc, has_crc)"
			     " WHERE m.stream = u.stream AND m.incarnation = u.incarnation",
#define PG_COLD_TEXT(name, text) [ST_##name] = (text),
	SL__COLD_STATEMENTS(PG_COLD_TEXT)
#undef PG_COLD_TEXT
};

const char *const sl__pg_sql_names[ST_COUNT] = {
#define PG_STATEMENT_NAME(name) "sluice_" #name,
	SL__PG_STORE_STATEMENTS(PG_STATEMENT_NAME)
#undef PG_STATEMENT_NAME
};

char *sl__pg_render(const struct sl_env *env, const char *sql, const char *schema)
{
	struct sl__buf out;
	sl__buf_init(&out, env);
	for (const char *at; (at = strstr(sql, "{s}")) != NULL; sql = at + 3) {
		(void)sl__buf_append(&out, sql, (size_t)(at - sql));
		(void)sl__buf_printf(&out, "\"%s\"", schema);
	}
	(void)sl__buf_str_append(&out, sql);
	char *text = sl__buf_take(&out);
	sl__buf_fini(&out);
	return text;
}
