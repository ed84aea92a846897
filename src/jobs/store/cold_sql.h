/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The statements of cold.c, once for both databases. Whose texts are needed, not only their numbers, has said before what
 * differs:
 *
 *	COLD_TABLE(name)           a table of the store's own
 *	COLD_EVENT_TABLE           the table of events
 *	COLD_P(n, type)            parameter n
 *	COLD_IN(query)             = one of what a query gives
 *	COLD_IN_IDS(n)             = one of the ids in parameter n
 *	COLD_OPEN(b)               whether the edge b is not done
 *	COLD_NEXT COLD_LAST        the times of a schedule
 *	COLD_NEXT_OR_NULL          its next time, or NULL when it is paused
 *	COLD_AT COLD_TS            the times of a record and of an event
 *	COLD_STARTED COLD_SEEN COLD_UNTIL COLD_ERROR_AT  the times of a worker
 *	COLD_CLOCK(n)              the store's clock, which is parameter n where the database has no clock
 *	COLD_LATER(n, m)           the same and parameter m, in milliseconds
 *	COLD_SKIP_LOCKED           after a query in COLD_IN: leave out what another transaction has locked
 *	COLD_CHAINS                the ids of a record's chains as a text
 *	COLD_FAILED                id, type, first_at, last_at, again (0 or 1) and line of the jobs that failed or are
 *	                           tried again, below an id (1), newest first, at most (2)
 *	COLD_FAILED_ID             their ids, and at least one more
 *	COLD_ANY_TYPE(n)           whether the type is in the list of parameter n, or the list is NULL
 *	COLD_GET_JOB COLD_GET_CHAIN COLD_ATTEMPTS COLD_OUTSTANDING COLD_LEASES COLD_EVENTS_OF_JOB COLD_EVENTS_ALL
 *
 * Columns have the order in which cold.c reads them.
 */
#ifndef SL_JOBS_STORE_COLD_SQL_H
#define SL_JOBS_STORE_COLD_SQL_H

#define COLD_HISTORY "step_s,at_s,taken_ms,newest_id,completed,failed,due,running,p50_ms,p99_ms"

/* clang-format off */
/* An event that never had a job: a line that was shipped. One that is late had one. */
#define COLD_IS_LINE "(job_id IS NULL AND NOT late)"
/* Events of jobs from before (2), lines from before (3). */
#define COLD_OLD_EVENT \
	"CASE WHEN " COLD_IS_LINE " THEN " COLD_TS "<" COLD_P(3, "timestamptz") " ELSE " COLD_TS "<" COLD_P(2, "timestamptz") " END"
#define COLD_STALE_MARKS \
	"SELECT m.stream,m.incarnation FROM " COLD_TABLE("event_mark") " m WHERE (m." COLD_AT "<" COLD_P(2, "timestamptz") \
	" OR (m." COLD_AT "<" COLD_P(1, "timestamptz") " AND EXISTS(SELECT 1 FROM " COLD_TABLE("event_mark") " n" \
	" WHERE n.stream=m.stream AND n.incarnation<>m.incarnation AND n." COLD_AT ">m." COLD_AT ")))" \
	" AND NOT EXISTS(SELECT 1 FROM " COLD_EVENT_TABLE " e WHERE e.stream=m.stream AND e.incarnation=m.incarnation)" \
	" LIMIT " COLD_P(3, "bigint")
#define COLD_LIMIT(column, n) \
	column "=CASE WHEN " COLD_P(n, "bigint") "<0 THEN " column " ELSE " COLD_P(n, "bigint") " END"
/* X(name, text) */
#define SL__COLD_STATEMENTS(X) \
	/* Chains outside of a set that wait for one inside, and for which. */ \
	X(WAITING, "SELECT DISTINCT j.chain_id,b.chain_id FROM " COLD_TABLE("blocker") " b JOIN " COLD_TABLE("job") " j" \
		" ON j.id=b.job_id WHERE b.chain_id " COLD_IN_IDS(1) " AND " COLD_OPEN("b") " AND j.status IN (1,2)" \
		" AND NOT j.chain_id " COLD_IN_IDS(1)) \
	/* Marks of incarnations that another has followed, and of which nothing is left. */ \
	X(PRUNE_MARKS, "DELETE FROM " COLD_TABLE("event_mark") " AS m WHERE " COLD_AT "<" COLD_P(1, "timestamptz") \
		" AND EXISTS(SELECT 1 FROM " COLD_TABLE("event_mark") " n WHERE n.stream=m.stream" \
		" AND n.incarnation<>m.incarnation AND n." COLD_AT ">m." COLD_AT ") AND NOT EXISTS(SELECT 1 FROM " \
		COLD_EVENT_TABLE " e WHERE e.stream=m.stream AND e.incarnation=m.incarnation)") \
	/* (1) after, (2) events of jobs and (3) lines before, (4) up to, then a limit, and whether (6) events and (7) lines are \
	 * kept for ever: the last offset, and how many there are, too old, and too young for either limit. */ \
	X(RETAIN_PAGE, "SELECT max(o),count(*),sum(old),sum(young) FROM (SELECT \"offset\" AS o," \
		"CASE WHEN " COLD_OLD_EVENT " THEN 1 ELSE 0 END AS old," \
		"CASE WHEN (" COLD_P(6, "boolean") " OR " COLD_TS ">=" COLD_P(2, "timestamptz") ") AND (" COLD_P(7, "boolean") \
		" OR " COLD_TS ">=" COLD_P(3, "timestamptz") ") THEN 1 ELSE 0 END AS young FROM " COLD_EVENT_TABLE \
		" WHERE \"offset\">" COLD_P(1, "bigint") " AND \"offset\"<=" COLD_P(4, "bigint") \
		" ORDER BY \"offset\" LIMIT " COLD_P(5, "bigint") ") p") \
	X(RETAIN_EVENTS, "DELETE FROM " COLD_EVENT_TABLE " WHERE \"offset\">" COLD_P(1, "bigint") \
		" AND \"offset\"<=" COLD_P(4, "bigint") " AND " COLD_OLD_EVENT) \
	/* (1) superseded before, (2) silent before, (3) limit */ \
	X(RETAIN_MARKS_FOUND, "SELECT 1 FROM (" COLD_STALE_MARKS ") f") \
	/* The times again: a mark that another transaction has just advanced stays. */ \
	X(RETAIN_MARKS, "DELETE FROM " COLD_TABLE("event_mark") " WHERE (stream,incarnation) IN (" COLD_STALE_MARKS ") AND (" \
		COLD_AT "<" COLD_P(1, "timestamptz") " OR " COLD_AT "<" COLD_P(2, "timestamptz") ")") \
	/* (1) exports since */ \
	X(RETENTION_READ, "SELECT holder,until_ms,completed_ms,failed_ms,events_ms,lines_ms,deleted_ms,chains,completed,failed,events," \
		"(SELECT count(*) FROM " COLD_TABLE("retention_export") " WHERE at_ms>=" COLD_P(1, "bigint") ")," \
		"(SELECT min(checkpoint) FROM " COLD_TABLE("retention_export") " WHERE at_ms>=" COLD_P(1, "bigint") ")" \
		" FROM " COLD_TABLE("retention")) \
	X(RETENTION_LIMITS, "UPDATE " COLD_TABLE("retention") " SET " COLD_LIMIT("completed_ms", 1) "," \
		COLD_LIMIT("failed_ms", 2) "," COLD_LIMIT("events_ms", 3) "," COLD_LIMIT("lines_ms", 4)) \
	/* (1) holder, (2) now, (3) until, (4) events */ \
	X(RETENTION_TURN, "UPDATE " COLD_TABLE("retention") " SET holder=" COLD_P(1, "text") ",until_ms=" \
		COLD_P(3, "bigint") ",deleted_ms=CASE WHEN " COLD_P(4, "bigint") ">0 THEN " COLD_P(2, "bigint") \
		" ELSE deleted_ms END,events=events+" COLD_P(4, "bigint") \
		" WHERE holder=" COLD_P(1, "text") " OR until_ms<" COLD_P(2, "bigint")) \
	X(RETENTION_EXPORT, "INSERT INTO " COLD_TABLE("retention_export") " AS x(name,checkpoint,at_ms) VALUES(" \
		COLD_P(1, "text") "," COLD_P(2, "bigint") "," COLD_P(3, "bigint") ") ON CONFLICT(name) DO UPDATE SET" \
		" checkpoint=excluded.checkpoint,at_ms=excluded.at_ms") \
	X(TARGET_ID, "SELECT value FROM " COLD_TABLE("meta") " WHERE name='target_id'") \
	X(PAUSE, "INSERT INTO " COLD_TABLE("paused") "(type) VALUES(" COLD_P(1, "text") ") ON CONFLICT DO NOTHING") \
	X(RESUME, "DELETE FROM " COLD_TABLE("paused") " WHERE type=" COLD_P(1, "text")) \
	X(REQUEST_TAKE, "INSERT INTO " COLD_TABLE("request") " AS r (key,hash," COLD_UNTIL ",answer) VALUES(" \
		COLD_P(1, "text") "," COLD_P(2, "text") "," COLD_LATER(4, 3) ",NULL) ON CONFLICT(key) DO UPDATE SET" \
		" hash=excluded.hash," COLD_UNTIL "=excluded." COLD_UNTIL ",answer=NULL WHERE r." COLD_UNTIL "<=" \
		COLD_CLOCK(4)) \
	X(REQUEST_GET, "SELECT hash,answer FROM " COLD_TABLE("request") " WHERE key=" COLD_P(1, "text")) \
	X(REQUEST_ANSWER, "UPDATE " COLD_TABLE("request") " SET answer=" COLD_P(2, "text") " WHERE key=" COLD_P(1, "text")) \
	X(REQUEST_PRUNE, "DELETE FROM " COLD_TABLE("request") " WHERE key " COLD_IN("SELECT key FROM " \
		COLD_TABLE("request") " WHERE " COLD_UNTIL "<=" COLD_CLOCK(2) " ORDER BY " COLD_UNTIL " LIMIT " \
		COLD_P(1, "bigint") COLD_SKIP_LOCKED)) \
	X(CRON_PUT, "INSERT INTO " COLD_TABLE("cron") "(name,spec,type,input,priority,catch_up," COLD_NEXT ",from_http)" \
		" VALUES(" COLD_P(1, "text") "," COLD_P(2, "text") "," COLD_P(3, "text") "," COLD_P(4, "text") "," \
		COLD_P(5, "bigint") "," COLD_P(6, "boolean") "," COLD_P(7, "timestamptz") "," COLD_P(8, "boolean") ")" \
		" ON CONFLICT(name) DO UPDATE SET spec=excluded.spec,type=excluded.type,input=excluded.input," \
		"priority=excluded.priority,catch_up=excluded.catch_up," COLD_NEXT "=excluded." COLD_NEXT "," \
		"from_http=excluded.from_http") \
	X(CRON_REMOVE, "DELETE FROM " COLD_TABLE("cron") " WHERE name=" COLD_P(1, "text")) \
	X(CRON_LIST, "SELECT name,spec,type,input,priority,catch_up," COLD_NEXT "," COLD_LAST ",last_chain,from_http" \
		" FROM " COLD_TABLE("cron") " ORDER BY " COLD_NEXT_OR_NULL " NULLS LAST,name") \
	X(AUDIT_LIST, "SELECT id," COLD_AT ",via,actor,address,action,request_id," COLD_CHAINS ",detail" \
		" FROM " COLD_TABLE("audit") " WHERE id<" COLD_P(1, "bigint") " ORDER BY id DESC LIMIT " COLD_P(2, "bigint")) \
	X(AUDIT_PRUNE, "DELETE FROM " COLD_TABLE("audit") " WHERE " COLD_AT "<" COLD_P(1, "timestamptz") \
		" AND id " COLD_IN("SELECT id FROM " COLD_TABLE("audit") " ORDER BY id LIMIT " COLD_P(2, "bigint"))) \
	X(GET_JOB, COLD_GET_JOB) \
	X(GET_CHAIN, COLD_GET_CHAIN) \
	X(ATTEMPTS, COLD_ATTEMPTS) \
	X(OUTSTANDING, COLD_OUTSTANDING) \
	X(LEASES, COLD_LEASES) \
	X(ERRORS, "SELECT type,line,count(*) AS n,min(first_at),max(last_at),max(id) AS newest,sum(again)" \
		" FROM (" COLD_FAILED ") e WHERE " COLD_ANY_TYPE(3) \
		" GROUP BY type,line ORDER BY n DESC,newest DESC LIMIT " COLD_P(4, "bigint")) \
	X(ERRORS_REACHED, COLD_FAILED_ID " LIMIT 1 OFFSET " COLD_P(2, "bigint")) \
	X(EVENT_STREAMS, "SELECT m.stream,m.incarnation,m.mark,(SELECT e." COLD_TS " FROM " COLD_EVENT_TABLE " e" \
		" WHERE e.stream=m.stream AND e.incarnation=m.incarnation ORDER BY e.sequence DESC LIMIT 1)" \
		" FROM " COLD_TABLE("event_mark") " m WHERE (m.stream,m.incarnation)>(" COLD_P(1, "text") "," \
		COLD_P(2, "bigint") ") ORDER BY m.stream,m.incarnation LIMIT " COLD_P(3, "bigint")) \
	X(EVENTS_OF_JOB, COLD_EVENTS_OF_JOB) \
	X(EVENTS_ALL, COLD_EVENTS_ALL) \
	X(EVENTS_NEWEST, "SELECT max(\"offset\") FROM " COLD_EVENT_TABLE) \
	X(HEARTBEAT, "INSERT INTO " COLD_TABLE("worker") "(worker,host,pid,version,slots,types,error," COLD_ERROR_AT "," \
		COLD_STARTED "," COLD_SEEN "," COLD_UNTIL ") VALUES(" COLD_P(1, "text") "," COLD_P(2, "text") "," \
		COLD_P(3, "bigint") "," COLD_P(4, "text") "," COLD_P(5, "bigint") "," COLD_P(6, "text") "," \
		COLD_P(7, "text") ",CASE WHEN " COLD_P(7, "text") " IS NOT NULL THEN " COLD_P(8, "timestamptz") " END," \
		COLD_P(9, "timestamptz") "," COLD_CLOCK(11) "," COLD_LATER(11, 10) ") ON CONFLICT(worker) DO UPDATE SET" \
		" host=excluded.host,pid=excluded.pid,version=excluded.version,slots=excluded.slots," \
		"types=excluded.types,error=excluded.error," COLD_ERROR_AT "=excluded." COLD_ERROR_AT "," COLD_STARTED \
		"=excluded." COLD_STARTED "," COLD_SEEN "=excluded." COLD_SEEN "," COLD_UNTIL "=excluded." COLD_UNTIL) \
	X(HEARTBEAT_SWEEP, "DELETE FROM " COLD_TABLE("worker") " WHERE " COLD_UNTIL "<=" COLD_CLOCK(1)) \
	X(HEARTBEAT_END, "DELETE FROM " COLD_TABLE("worker") " WHERE worker=" COLD_P(1, "text") " AND " COLD_STARTED "<=" \
		COLD_P(2, "timestamptz")) \
	X(HEARTBEATS, "SELECT worker,host,pid,version,slots,types,error," COLD_ERROR_AT "," COLD_STARTED "," COLD_SEEN "," \
		COLD_UNTIL " FROM " COLD_TABLE("worker") " WHERE " COLD_UNTIL ">" COLD_CLOCK(1) " ORDER BY worker LIMIT 10000") \
	/* The newest job may have been deleted since the last row: what was started so far never falls. */ \
	X(HISTORY_PUT, "INSERT INTO " COLD_TABLE("history") "(" COLD_HISTORY ") VALUES(" COLD_P(1, "bigint") "," \
		COLD_P(2, "bigint") "," COLD_P(3, "bigint") ",(SELECT max(v) FROM (SELECT " COLD_P(4, "bigint") " AS v UNION ALL" \
		" SELECT newest_id FROM " COLD_TABLE("history") " WHERE at_s<" COLD_P(2, "bigint") ") q)," COLD_P(5, "bigint") "," COLD_P(6, "bigint") "," COLD_P(7, "bigint") "," COLD_P(8, "bigint") "," COLD_P(9, "bigint") "," \
		COLD_P(10, "bigint") ") ON CONFLICT DO NOTHING") \
	/* What is counted so far is that of the last row, the rest an average; of the 99th percentile, the worst. */ \
	X(HISTORY_ROLL, "INSERT INTO " COLD_TABLE("history") "(" COLD_HISTORY ") SELECT " COLD_P(1, "bigint") ",g.at_s," \
		"l.taken_ms,l.newest_id,l.completed,l.failed,g.due,g.running,g.p50,g.p99 FROM (SELECT at_s-at_s%" \
		COLD_P(1, "bigint") " AS at_s,max(at_s) AS last_s,CAST(avg(due) AS bigint) AS due," \
		"CAST(avg(running) AS bigint) AS running,CAST(coalesce(avg(nullif(p50_ms,-1)),-1) AS bigint) AS p50," \
		"max(p99_ms) AS p99 FROM " COLD_TABLE("history") " WHERE step_s=" COLD_P(2, "bigint") " AND at_s<" \
		COLD_P(3, "bigint") "-" COLD_P(3, "bigint") "%" COLD_P(1, "bigint") " GROUP BY 1) g JOIN " \
		COLD_TABLE("history") " l ON l.step_s=" COLD_P(2, "bigint") " AND l.at_s=g.last_s WHERE true" \
		" ON CONFLICT DO NOTHING") \
	X(HISTORY_PRUNE, "DELETE FROM " COLD_TABLE("history") " WHERE step_s=" COLD_P(1, "bigint") " AND at_s<" \
		COLD_P(2, "bigint")) \
	X(HISTORY, "SELECT " COLD_HISTORY " FROM " COLD_TABLE("history") " WHERE step_s<=" COLD_P(1, "bigint") " AND at_s>=" \
		COLD_P(2, "bigint") " ORDER BY at_s,step_s DESC LIMIT 5000")
/* clang-format on */

#endif
