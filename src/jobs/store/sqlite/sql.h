/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The statements of the SQLite store that are prepared once per connection. Every name of the schema begins with
 * sluice_ (but job_events, which other programs read), because the file may be the caller's own.
 */
#ifndef SL_JOBS_STORE_SQLITE_SQL_H
#define SL_JOBS_STORE_SQLITE_SQL_H

#include "jobs/store/cold_sql.h"

/* The jobs under leases: r.id and r.fence name a job; a lease keeps them as {"id":fence,…}. */
#define SQ_LEASED                                                                                                      \
	"r AS MATERIALIZED (SELECT CAST(e.key AS INTEGER) AS id, e.value AS fence, l.worker AS worker,"                \
	" l.until_us AS until_us, l.claimed_us AS claimed_us"                                                          \
	" FROM sluice_lease l, json_each(l.jobs) e)"
/* The same for one job, ?1. */
#define SQ_LEASED_1                                                                                                    \
	"r AS (SELECT ?1 AS id, e.value AS fence, l.worker AS worker, l.until_us AS until_us,"                         \
	" l.claimed_us AS claimed_us, l.claim AS claim"                                                                \
	" FROM sluice_lease l, json_each(l.jobs) e WHERE e.key=CAST(?1 AS TEXT))"

/* The columns of cold.c; those of data can be left out by a NULL in their place. */
#define SQ_JOB_COLUMNS(input, output, progress)                                                                        \
	"j.id,j.chain_id,j.prev_id,j.next_id,j.type,iif(r.until_us IS NULL,j.status,3),"                               \
	"iif(r.until_us IS NULL,j.attempt,j.fence),j.priority," input "," output ",j.error," progress                  \
	",j.key,j.traceparent,coalesce(r.worker,j.leased_by),j.created_us,j.due_us,"                                   \
	"coalesce(r.claimed_us,j.started_us),j.ended_us,r.until_us,j.blockers_open,j.charged"
/* The state of job j at a time; leased: not NULL when it runs. */
#define SQ_STATE(leased, now)                                                                                          \
	"CASE WHEN " leased " IS NOT NULL THEN 3 WHEN j.status<>2 THEN j.status"                                       \
	" WHEN coalesce(j.due_us,0)<=" now " THEN 7 WHEN j.charged>0 THEN 9 ELSE 8 END"
#define SQ_JOB_FROM " FROM sluice_job j LEFT JOIN r ON r.id=j.id AND r.fence=j.fence AND j.status=2"
/* One job, ?1, with its lease: found by a separate search, since SQLite makes a table of a view that is joined so. */
#define SQ_JOB_FROM_1                                                                                                  \
	" FROM sluice_job j LEFT JOIN sluice_lease r ON j.status=2 AND r.rowid=(SELECT l.rowid FROM sluice_lease l,"   \
	" json_each(l.jobs) e WHERE e.key=CAST(?1 AS TEXT) AND e.value=j.fence) WHERE j.id=?1"
#define SQ_CHAIN_COLUMNS(input, output, leased)                                                                        \
	"h.id,j.id,h.type,j.type,iif(" leased " IS NULL,j.status,3)," input "," output                                 \
	",j.error,h.key,h.created_us,j.ended_us"
#define SQ_CHAIN_FROM                                                                                                  \
	" FROM sluice_job h JOIN sluice_job j ON j.id=coalesce(h.last_id,h.id)"                                        \
	" LEFT JOIN r ON r.id=j.id AND r.fence=j.fence AND j.status=2"

/* Not NULL when the job j is under a lease; reads the leases only when it can be. */
#define SQ_IS_LEASED                                                                                                   \
	"(CASE WHEN j.status=2 THEN (SELECT 1 FROM sluice_lease l, json_each(l.jobs) e"                                \
	" WHERE e.key=CAST(j.id AS TEXT) AND e.value=j.fence) END)"

/* ---- for cold_sql.h ---- */

/* The first line of j's error, cut: SL_ERROR_LINE_CHARS. */
#define SQ_ERROR_LINE "substr(coalesce(j.error,''),1,min(500,coalesce(nullif(instr(j.error,char(10)),0)-1,500)))"
/* Jobs below an id (?1) that failed, or are tried again, the newest first, at least ?2 of them. The index's condition
 * must stand there as it is. */
#define SQ_TRIED_IDS(queue)                                                                                            \
	" UNION ALL SELECT * FROM (SELECT q.id FROM sluice_" queue " q INDEXED BY sluice_" queue "_tried"              \
	" WHERE q.tried=1 AND q.id<?1 ORDER BY q.id DESC LIMIT ?2+1)"
#define SQ_FAILED_IDS                                                                                                  \
	"WITH " SQ_LEASED " SELECT id FROM (SELECT * FROM (SELECT j.id FROM sluice_job j"                              \
	" INDEXED BY sluice_job_stopped WHERE j.status>=5 AND j.status=5 AND j.id<?1 ORDER BY j.id DESC LIMIT "        \
	"?2+1)" SQ_TRIED_IDS("sched")                                                                                  \
		SQ_TRIED_IDS("ready") " UNION ALL SELECT r.id FROM r WHERE r.id<?1) ORDER BY id DESC"
/* When job j failed, for the first or the last time. */
#define SQ_FAILED_AT(order)                                                                                            \
	"coalesce(j.ended_us,(SELECT a.ended_us FROM sluice_attempt a WHERE a.job_id=j.id AND a.outcome=2"             \
	" ORDER BY a.attempt " order " LIMIT 1))"
/* A list in a parameter is a JSON array. */
#define SQ_OF_TYPES(column) "(?1 IS NULL OR " column " IN (SELECT value FROM json_each(?1)))"
#define SQ_EVENTS                                                                                                      \
	"SELECT offset,stream,incarnation,sequence,crc,job_id,attempt,type,late,ts_us,payload,partial FROM job_events" \
	" WHERE offset>?1"
#define SQ_LEASED_JOBS(lease)                                                                                          \
	"json_each(" lease ".jobs) e JOIN sluice_job j ON j.id=CAST(e.key AS INTEGER) AND j.fence=e.value"             \
	" AND j.status=2"

#define COLD_TABLE(name) "sluice_" name
#define COLD_EVENT_TABLE "job_events"
#define COLD_P(n, type) "?" #n
#define COLD_IN(query) "IN (" query ")"
#define COLD_IN_IDS(n) "IN (SELECT value FROM json_each(?" #n "))"
#define COLD_OPEN(b) b ".done=0"
#define COLD_NEXT "next_us"
#define COLD_NEXT_OR_NULL "nullif(next_us,0)"
#define COLD_LAST "last_us"
#define COLD_AT "at_us"
#define COLD_TS "ts_us"
#define COLD_STARTED "started_us"
#define COLD_SEEN "seen_us"
#define COLD_UNTIL "until_us"
#define COLD_ERROR_AT "error_us"
#define COLD_CLOCK(n) "?" #n
#define COLD_LATER(n, m) "?" #n "+?" #m "*1000"
#define COLD_SKIP_LOCKED ""
#define COLD_CHAINS "chains"
#define COLD_FAILED                                                                                                    \
	"SELECT j.id,j.type," SQ_FAILED_AT("ASC") " AS first_at," SQ_FAILED_AT(                                        \
		"DESC") " AS last_at,"                                                                                 \
			"j.status=2 AS again," SQ_ERROR_LINE " AS line FROM (" SQ_FAILED_IDS                           \
			" LIMIT ?2) f JOIN sluice_job j"                                                               \
			" ON j.id=f.id AND (j.status=5 OR (j.status=2 AND j.error IS NOT NULL))"
#define COLD_FAILED_ID SQ_FAILED_IDS
#define COLD_ANY_TYPE(n) "(?" #n " IS NULL OR type IN (SELECT value FROM json_each(?" #n ")))"
#define COLD_GET_JOB                                                                                                   \
	"SELECT " SQ_JOB_COLUMNS("j.input", "j.output", "j.progress") "," SQ_STATE(                                    \
		"r.until_us", "?2") ",(SELECT"                                                                         \
				    " h.flags&32<>0 FROM sluice_job h WHERE h.id=j.chain_id)" SQ_JOB_FROM_1
#define COLD_GET_CHAIN                                                                                                 \
	"SELECT " SQ_CHAIN_COLUMNS("h.input", "j.output", SQ_IS_LEASED) "," SQ_STATE(SQ_IS_LEASED, "?2")               \
		SQ_CHAIN_FROM_PLAIN " WHERE h.id=?1 AND h.chain_id=?1"
/* What runs, and what completed the job, is in no table, but follows from the job's row: a completion from outside has
 * no claim. */
#define COLD_ATTEMPTS                                                                                                  \
	"SELECT attempt,outcome,worker,error,started_us,ended_us FROM (SELECT 0 AS part,attempt AS n,attempt,outcome," \
	"worker,error,started_us,ended_us FROM sluice_attempt WHERE job_id=?1 UNION ALL"                               \
	" SELECT 1,0,iif(r.until_us IS NULL,j.attempt,j.fence),iif(r.until_us IS NULL,1,0),"                           \
	"iif(r.until_us IS NULL,j.leased_by,r.worker),NULL,iif(r.until_us IS NULL,j.started_us,r.claimed_us),"         \
	"iif(r.until_us IS NULL,j.ended_us,NULL)" SQ_JOB_FROM_1                                                        \
	" AND (r.until_us IS NOT NULL OR (j.status=4 AND j.claim IS NOT NULL))"                                        \
	" UNION ALL SELECT 2,0,NULL,NULL,NULL,NULL,NULL,NULL FROM sluice_job WHERE id=?1) ORDER BY part,n"
/* ?2 is now. d: what came due since the last claim of its type. */
#define COLD_OUTSTANDING                                                                                               \
	"WITH " SQ_LEASED ",t AS MATERIALIZED (SELECT * FROM sluice_count WHERE " SQ_OF_TYPES(                         \
		"type") "),"                                                                                           \
			"c AS (SELECT coalesce(sum(ready),0) AS ready,coalesce(sum(sched),0) AS sched,"                \
			"coalesce(sum(sched_tried),0) AS tried,coalesce(sum(blocked),0) AS blocked FROM t),"           \
			"d AS (SELECT count(*) AS n,coalesce(sum(s.tried),0) AS tried FROM t CROSS JOIN sluice_sched " \
			"s"                                                                                            \
			" ON s.type=t.type AND s.due_us<=?2)"                                                          \
			" SELECT c.ready+d.n,c.tried-d.tried,(SELECT count(*) FROM r JOIN sluice_job j ON j.id=r.id"   \
			" AND j.fence=r.fence AND j.status=2 WHERE " SQ_OF_TYPES(                                      \
				"j.type") "),"                                                                         \
					  "c.sched-d.n-(c.tried-d.tried),c.blocked FROM c,d"
#define COLD_LEASES                                                                                                    \
	"SELECT l.claim,l.worker,l.claimed_us,l.until_us,j.id,j.type FROM (SELECT * FROM sluice_lease s"               \
	" WHERE s.claim>?1 AND EXISTS(SELECT 1 FROM " SQ_LEASED_JOBS(                                                  \
		"s") ") ORDER BY s.claim LIMIT ?2) l," SQ_LEASED_JOBS("l") " ORDER BY l.claim,j.id"
#define COLD_EVENTS_OF_JOB SQ_EVENTS " AND job_id=?3 ORDER BY offset LIMIT ?2"
#define COLD_EVENTS_ALL SQ_EVENTS " ORDER BY offset LIMIT ?2"

/* X(name, text) */
#define SQ_STATEMENTS(X)                                                                                                 \
	X(BEGIN, "BEGIN IMMEDIATE")                                                                                      \
	X(COMMIT, "COMMIT")                                                                                              \
	X(SAVE, "SAVEPOINT sluice_op")                                                                                   \
	X(SAVE_RELEASE, "RELEASE sluice_op")                                                                             \
	X(SAVE_UNDO, "ROLLBACK TO sluice_op")                                                                            \
	/* ---- jobs and queues ---- */                                                                                  \
	X(NEW_IDS, "UPDATE sluice_meta SET value=value+?1 WHERE name='next_id' RETURNING value")                         \
	X(JOB_GET, "SELECT chain_id,fence,status,attempt,priority,flags,blockers_open,due_us,type,charged"               \
		   " FROM sluice_job WHERE id=?1")                                                                       \
	X(JOB_INSERT,                                                                                                    \
	  "INSERT INTO sluice_job(id,chain_id,type,status,fence,attempt,charged,priority,flags,created_us,due_us,"       \
	  "blockers_open,prev_id,key,traceparent,input)"                                                                 \
	  " VALUES(?1,?2,?3,?4,1,0,0,?5,?6,?7,?8,?9,?10,?11,?12,?13)")                                                   \
	X(READY_PUT, "INSERT INTO sluice_ready(type,solo,priority,id,tried) VALUES(?1,?2,?3,?4,?5)")                     \
	X(READY_PUT_NEW, "INSERT INTO sluice_ready(type,solo,priority,id,tried) SELECT type,0,priority,id,0"             \
			 " FROM sluice_job WHERE id>=?1 AND id<?2 AND status=2 AND (due_us IS NULL OR due_us<=?3)")      \
	X(READY_TAKE, "DELETE FROM sluice_ready WHERE type=?1 AND solo=?2 AND priority=?3 AND id=?4")                    \
	X(SCHED_PUT, "INSERT INTO sluice_sched(type,due_us,id,priority,solo,tried) VALUES(?1,?2,?3,?4,?5,?6)")           \
	X(SCHED_TAKE, "DELETE FROM sluice_sched WHERE type=?1 AND due_us=?2 AND id=?3")                                  \
	/* The columns in the order of enum sq_kind. */                                                                  \
	X(COUNT, "INSERT INTO sluice_count(type,blocked,ready,ready_tried,sched,sched_tried,completed,failed,"           \
		 "cancelled) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9) ON CONFLICT(type) DO UPDATE SET"                         \
		 " blocked=blocked+excluded.blocked,ready=ready+excluded.ready,"                                         \
		 "ready_tried=ready_tried+excluded.ready_tried,sched=sched+excluded.sched,"                              \
		 "sched_tried=sched_tried+excluded.sched_tried,completed=completed+excluded.completed,"                  \
		 "failed=failed+excluded.failed,cancelled=cancelled+excluded.cancelled")                                 \
	X(ATTEMPT_PUT, "INSERT INTO sluice_attempt(job_id,attempt,claim,outcome,worker,error,started_us,ended_us)"       \
		       " VALUES(?1,?2,?3,?4,?5,?6,?7,?8)")                                                               \
	X(LEASE_OF, "WITH " SQ_LEASED_1 " SELECT worker,claimed_us,claim FROM r WHERE fence=?2")                         \
	X(LOST_BEFORE, "SELECT 1 FROM sluice_attempt WHERE job_id=?1 AND outcome=3 LIMIT 1")                             \
	X(CLAIM_OF, "WITH " SQ_LEASED_1 " SELECT j.attempt,j.claim,r.fence,r.claim,a.claim FROM sluice_job j"            \
		    " LEFT JOIN r ON r.fence=j.fence AND j.status=2"                                                     \
		    " LEFT JOIN sluice_attempt a ON a.job_id=j.id AND a.attempt=?2 WHERE j.id=?1")                       \
	/* ---- chains, blockers, keys ---- */                                                                           \
	X(CHAIN_LAST, "SELECT coalesce(last_id,id) FROM sluice_job WHERE id=?1 AND chain_id=?1")                         \
	X(CHAIN_STATUS, "SELECT j.status" SQ_CHAIN_FROM_PLAIN " WHERE h.id=?1 AND h.chain_id=?1")                        \
	X(HEAD_LAST, "UPDATE sluice_job SET last_id=?2 WHERE id=?1")                                                     \
	X(HEAD_FLAG, "UPDATE sluice_job SET flags=flags|?2 WHERE id=?1")                                                 \
	X(BLOCKER_PUT, "INSERT INTO sluice_blocker(job_id,ord,chain_id,done) VALUES(?1,?2,?3,?4)")                       \
	X(BLOCKED_BY, "SELECT job_id FROM sluice_blocker WHERE chain_id=?1 AND done=0 ORDER BY job_id")                  \
	X(BLOCKER_DONE, "UPDATE sluice_blocker SET done=1 WHERE chain_id=?1 AND done=0")                                 \
	X(JOB_UNBLOCK, "UPDATE sluice_job SET blockers_open=blockers_open-1,"                                            \
		       "status=CASE WHEN status=1 AND blockers_open=1 THEN 2 ELSE status END WHERE id=?1")               \
	/* An edge to a chain that is gone. */                                                                           \
	X(BLOCKER_GONE, "SELECT b.chain_id FROM sluice_blocker b LEFT JOIN sluice_job h ON h.id=b.chain_id"              \
			" WHERE b.job_id=?1 AND b.done=0 AND h.id IS NULL LIMIT 1")                                      \
	/* Who waits for ?1 among those that it waits for, near or far: no more than ?2 edges are followed. One that   \
	 * failed or was cancelled while it waited would wait again. */ \
	X(CIRCLE, "WITH RECURSIVE w(chain,by) AS (SELECT b.chain_id,h.id FROM sluice_job h JOIN sluice_blocker b"        \
		  " ON b.job_id=coalesce(h.last_id,h.id) AND b.done=0 WHERE h.id=?1 UNION SELECT b.chain_id,h.id"        \
		  " FROM w CROSS JOIN sluice_job h ON h.id=w.chain AND h.id<>?1"                                         \
		  " CROSS JOIN sluice_job j ON j.id=coalesce(h.last_id,h.id) AND j.status IN (1,5,6)"                    \
		  " CROSS JOIN sluice_blocker b ON b.job_id=j.id AND b.done=0 LIMIT ?2)"                                 \
		  " SELECT by FROM w WHERE chain=?1 LIMIT 1")                                                            \
	X(KEY_GET, "SELECT chain_id FROM sluice_key WHERE key=?1 AND (until_us IS NULL OR until_us>?2)")                 \
	X(KEY_PUT, "INSERT OR REPLACE INTO sluice_key(key,chain_id,scope,until_us) VALUES(?1,?2,?3,?4)")                 \
	X(KEY_OF, "SELECT key FROM sluice_job WHERE id=?1")                                                              \
	X(KEY_FREE, "DELETE FROM sluice_key WHERE key=(SELECT key FROM sluice_job WHERE id=?1) AND chain_id=?1"          \
		    " AND scope<=?2")                                                                                    \
	/* ---- settling ---- */                                                                                         \
	X(JOB_COMPLETE, "UPDATE sluice_job SET status=4,fence=fence+1,attempt=fence,charged=charged+1,claim=?3,"         \
			"output=?4,error=NULL,progress=coalesce(?5,progress),leased_by=?6,"                              \
			"started_us=coalesce(?7,started_us),ended_us=?8,next_id=?9"                                      \
			" WHERE id=?1 AND fence=?2 AND status=2")                                                        \
	X(JOB_FAIL,                                                                                                      \
	  "UPDATE sluice_job SET status=5,fence=fence+1,attempt=iif(?3,fence,attempt),charged=charged+?3,error=?4,"      \
	  "progress=coalesce(?5,progress),leased_by=?6,started_us=coalesce(?7,started_us),ended_us=?8"                   \
	  " WHERE id=?1 AND fence=?2 AND status=2")                                                                      \
	/* ?11: it failed, with the error ?4. */                                                                         \
	X(JOB_BACK, "UPDATE sluice_job SET "                                                                             \
		    "fence=fence+1,attempt=coalesce(?10,attempt),charged=charged+?3,error=iif(?11,?4,error),"            \
		    "progress=coalesce(?5,progress),leased_by=?6,"                                                       \
		    "started_us=coalesce(?7,started_us),due_us=?8,flags=?9"                                              \
		    " WHERE id=?1 AND fence=?2 AND status=2")                                                            \
	X(LEASE_DROP, "DELETE FROM sluice_lease WHERE claim=?1")                                                         \
	/* ---- claiming ---- */                                                                                         \
	X(PAUSED, "SELECT 1 FROM sluice_paused WHERE type=?1")                                                           \
	X(SCHED_DUE, "SELECT due_us,id,priority,solo,tried FROM sluice_sched WHERE type=?1 AND due_us<=?2"               \
		     " ORDER BY due_us,id LIMIT ?3")                                                                     \
	X(SCHED_TAKE_UPTO, "DELETE FROM sluice_sched WHERE type=?1 AND (due_us,id)<=(?2,?3)")                            \
	X(READY_SOLO, "SELECT priority,id,tried FROM sluice_ready WHERE type=?1 AND solo=1"                              \
		      " ORDER BY priority,id LIMIT 1")                                                                   \
	X(READY_LIST, "SELECT priority,id,tried FROM sluice_ready WHERE type=?1 AND solo=0"                              \
		      " ORDER BY priority,id LIMIT ?2")                                                                  \
	X(READY_TAKE_UPTO, "DELETE FROM sluice_ready WHERE type=?1 AND solo=0 AND (priority,id)<=(?2,?3)")               \
	X(READY_ANY, "SELECT 1 FROM sluice_ready WHERE type=?1 LIMIT 1")                                                 \
	X(CLAIM_GET, "SELECT chain_id,fence,input,traceparent,charged,priority,flags,created_us,due_us,type"             \
		     " FROM sluice_job WHERE id=?1")                                                                     \
	X(LEASE_PUT, "INSERT INTO sluice_lease(claim,worker,claimed_us,until_us,started,types,jobs)"                     \
		     " VALUES(?1,?2,?3,?4,?5,?6,?7)")                                                                    \
	X(NEXT_DUE, "SELECT due_us FROM sluice_sched WHERE type=?1 ORDER BY due_us LIMIT 1")                             \
	X(NEXT_EXPIRY, "SELECT until_us,types FROM sluice_lease ORDER BY until_us")                                      \
	/* ---- leases ---- */                                                                                           \
	X(LEASE_RENEW, "UPDATE sluice_lease SET until_us=?2,started=max(started,?3) WHERE claim=?1")                     \
	X(LEASES_PROLONG, "UPDATE sluice_lease SET until_us=until_us+?1")                                                \
	X(LEASE_BY_CLAIM, "SELECT rowid FROM sluice_lease WHERE claim=?1")                                               \
	X(LEASE_EXPIRED, "SELECT rowid,types FROM sluice_lease WHERE until_us<=?1 ORDER BY until_us,rowid")              \
	X(LEASE_JOBS, "SELECT CAST(e.key AS INTEGER),e.value,l.worker,l.claimed_us,l.started,l.claim"                    \
		      " FROM sluice_lease l, json_each(l.jobs) e WHERE l.rowid=?1 ORDER BY 1")                           \
	X(LEASE_END, "DELETE FROM sluice_lease WHERE rowid=?1")                                                          \
	X(JOB_PROGRESS, "UPDATE sluice_job SET progress=?3 WHERE id=?1 AND fence=?2 AND status=2")                       \
	/* ---- steering ---- */                                                                                         \
	/* ?5: it is under a lease, whose attempt ?6 is in the history already. */                                       \
	X(JOB_END,                                                                                                       \
	  "UPDATE sluice_job SET status=?2,fence=fence+1,attempt=iif(?5,fence,attempt),output=?3,ended_us=?4,"           \
	  "error=CASE ?2 WHEN 4 THEN NULL WHEN 5 THEN ?7 ELSE error END,"                                                \
	  "leased_by=iif(?5,(SELECT worker FROM sluice_attempt WHERE job_id=?1 AND attempt=?6),leased_by),"              \
	  "started_us=iif(?5,(SELECT started_us FROM sluice_attempt WHERE job_id=?1 AND attempt=?6),started_us)"         \
	  " WHERE id=?1")                                                                                                \
	X(JOB_REDRIVE, "UPDATE sluice_job SET status=?2,fence=fence+1,charged=0,ended_us=NULL,due_us=NULL,"              \
		       "flags=flags&~1 WHERE id=?1")                                                                     \
	X(JOB_DUE_NOW, "UPDATE sluice_job SET due_us=?2 WHERE id=?1")                                                    \
	/* ---- removing ---- */                                                                                         \
	X(CHAIN_JOBS, "SELECT ?1 UNION ALL SELECT id FROM sluice_job WHERE chain_id=?1 AND chain_id<>id ORDER BY 1")     \
	X(JOB_DELETE, "DELETE FROM sluice_job WHERE id=?1")                                                              \
	X(ATTEMPTS_DELETE, "DELETE FROM sluice_attempt WHERE job_id=?1")                                                 \
	X(EVENTS_DELETE, "DELETE FROM job_events WHERE job_id=?1")                                                       \
	/* ?1 after this job, ?2 limit:  the jobs that events name, found by leaps through the index */                  \
	X(EVENT_JOBS, "WITH RECURSIVE t(j) AS (SELECT min(job_id) FROM job_events WHERE job_id>?1 UNION ALL"             \
		      " SELECT (SELECT min(job_id) FROM job_events WHERE job_id>t.j) FROM t WHERE t.j IS NOT NULL"       \
		      " LIMIT ?2) SELECT j, NOT EXISTS(SELECT 1 FROM sluice_job WHERE id=j) FROM t"                      \
		      " WHERE j IS NOT NULL")                                                                            \
	X(EVENTS_JOBLESS, "DELETE FROM job_events WHERE offset IN (SELECT offset FROM job_events"                        \
			  " WHERE job_id IS NULL AND late=1 AND ts_us<?1 LIMIT ?2)")                                     \
	X(EVENTS_ORPHANED, "DELETE FROM job_events WHERE job_id=?1 AND ts_us<?2"                                         \
			   " AND NOT EXISTS(SELECT 1 FROM sluice_job WHERE id=?1)")                                      \
	X(EDGES_DELETE, "DELETE FROM sluice_blocker WHERE job_id=?1")                                                    \
	/* One that was never completed stays open in the books of who waited for it, as in PostgreSQL. */               \
	X(EDGES_TO_DELETE, "DELETE FROM sluice_blocker WHERE chain_id=?1 AND done=1")                                    \
	/* ?1 completed before, ?2 failed before, ?3 after this id, ?4 up to that, ?5 exported, ?6 now, ?7 limit */      \
	X(PRUNE_FIND, "SELECT h.id" SQ_PRUNABLE " AND h.id>?3 AND h.id<=?4 AND " SQ_FREE " ORDER BY h.id LIMIT ?7")      \
	/* ?3 the id, ?4 the same */                                                                                     \
	X(PRUNE_CHECK, "SELECT h.id" SQ_PRUNABLE " AND h.id>=?3 AND h.id<=?4 AND " SQ_FREE)                              \
	/* ?1 after this id, ?2 limit, ?3 created before: how many are that old, the last of them, and all */            \
	X(PRUNE_PAGE, "SELECT total(created_us<?3),max(iif(created_us<?3,id,NULL)),count(*)"                             \
		      " FROM (SELECT id,created_us FROM sluice_job WHERE id>?1 ORDER BY id LIMIT ?2)")                   \
	/* ?1 now, ?2 chains, ?3 completed jobs, ?4 failed jobs */                                                       \
	X(PRUNED,                                                                                                        \
	  "UPDATE sluice_retention SET deleted_ms=?1,chains=chains+?2,completed=completed+?3,failed=failed+?4")          \
	X(EVENTS_SOME,                                                                                                   \
	  "DELETE FROM job_events WHERE offset IN (SELECT offset FROM job_events WHERE job_id=?1 LIMIT ?2)")             \
	/* ---- counting ---- */                                                                                         \
	X(COUNTS,                                                                                                        \
	  "WITH " SQ_LEASED ", run AS MATERIALIZED (SELECT j.type,count(*) AS n,min(j.id) AS oldest FROM r"              \
	  " JOIN sluice_job j ON j.id=r.id AND j.fence=r.fence AND j.status=2 GROUP BY j.type),"                         \
	  "t AS (SELECT type FROM sluice_count UNION SELECT type FROM run UNION SELECT type FROM sluice_paused)"         \
	  " SELECT t.type,coalesce(blocked,0),coalesce(ready,0),coalesce(ready_tried,0),coalesce(sched,0),"              \
	  "coalesce(sched_tried,0),coalesce(completed,0),coalesce(failed,0),coalesce(cancelled,0),"                      \
	  "coalesce(run.n,0),EXISTS(SELECT 1 FROM sluice_paused p WHERE p.type=t.type),"                                 \
	  "CASE WHEN sched>0 THEN (SELECT count(*) FROM sluice_sched s WHERE s.type=t.type AND s.due_us<=?1)"            \
	  " ELSE 0 END,CASE WHEN sched_tried>0 THEN sched_tried-(SELECT count(*) FROM sluice_sched s"                    \
	  " WHERE s.type=t.type AND s.due_us<=?1 AND s.tried=1) ELSE 0 END,CASE WHEN sched>0 THEN (SELECT min(+s.id) "   \
	  "FROM sluice_sched s WHERE s.type=t.type"                                                                      \
	  " AND s.due_us<=?1) END,CASE WHEN blocked>0 THEN (SELECT min(id) FROM sluice_job b WHERE b.status=1"           \
	  " AND b.type=t.type) END,CASE WHEN sched>0 THEN (SELECT min(id) FROM sluice_sched s"                           \
	  " WHERE s.type=t.type) END,run.oldest FROM t LEFT JOIN sluice_count c ON c.type=t.type"                        \
	  " LEFT JOIN run ON run.type=t.type ORDER BY t.type")                                                           \
	/* The first of the next priority. The id takes the search behind all of the one before. */                      \
	X(READY_NEXT, "SELECT solo,priority,id FROM sluice_ready WHERE type=?1"                                          \
		      " AND (solo,priority,id)>(?2,?3,9223372036854775807) ORDER BY solo,priority,id LIMIT 1")           \
	X(READY_MIN, "SELECT min(id) FROM sluice_ready WHERE type=?1")                                                   \
	X(PENDING_TYPES, "SELECT c.type,c.ready,CASE WHEN c.sched>0 THEN (SELECT min(id) FROM sluice_sched s"            \
			 " WHERE s.type=c.type) END FROM sluice_count c WHERE c.ready>0 OR c.sched>0")                   \
	X(CREATED, "SELECT created_us FROM sluice_job WHERE id=?1")                                                      \
	X(DUE_SINCE, "SELECT max(created_us,coalesce(due_us,0)) FROM sluice_job WHERE id=?1")                            \
	/* ---- recurring schedules ---- */                                                                              \
	X(CRON_MOVE, "UPDATE sluice_cron SET next_us=?3,last_us=?2"                                                      \
		     " WHERE name=?1 AND next_us=?2 AND spec=?4 AND catch_up=?5")                                        \
	X(CRON_GET, "SELECT type,input,priority,from_http FROM sluice_cron WHERE name=?1")                               \
	X(CRON_FIRED, "UPDATE sluice_cron SET last_chain=?2 WHERE name=?1")                                              \
	/* ---- the audit trail ---- */                                                                                  \
	X(AUDIT_PUT, "INSERT INTO sluice_audit(at_us,via,actor,address,action,request_id,chains,detail)"                 \
		     " VALUES(?1,?2,?3,?4,?5,?6,?7,?8)")                                                                 \
	/* ---- events ---- */                                                                                           \
	X(MARK_GET, "SELECT mark,crc,owner FROM sluice_event_mark WHERE stream=?1 AND incarnation=?2")                   \
	X(MARK_OWNER, "SELECT owner FROM sluice_event_mark WHERE stream=?1 LIMIT 1")                                     \
	X(MARK_ADOPT, "UPDATE sluice_event_mark SET owner=?2 WHERE stream=?1")                                           \
	X(MARK_PUT, "INSERT INTO sluice_event_mark(stream,incarnation,mark,crc,at_us,owner) VALUES(?1,?2,?3,?4,?5,?6)"   \
		    " ON CONFLICT(stream,incarnation) DO UPDATE SET mark=excluded.mark,crc=excluded.crc,"                \
		    "at_us=excluded.at_us")                                                                              \
	X(OFFSET_GET, "SELECT value FROM sluice_meta WHERE name='event_offset'")                                         \
	/* A value that stays the same would not be written. */                                                          \
	X(TOUCH, "INSERT INTO sluice_meta(name,value) VALUES('touched',1)"                                               \
		 " ON CONFLICT(name) DO UPDATE SET value=value+1")                                                       \
	X(OFFSET_PUT, "UPDATE sluice_meta SET value=?1 WHERE name='event_offset'")                                       \
	X(EVENT_CRC, "SELECT crc FROM job_events WHERE stream=?1 AND incarnation=?2 AND sequence=?3")                    \
	X(EVENT_PUT, "INSERT INTO job_events(offset,stream,incarnation,sequence,crc,job_id,attempt,type,late,ts_us,"     \
		     "payload,partial) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)")                                  \
	SL__COLD_STATEMENTS(X)

#define SQ_CHAIN_FROM_PLAIN " FROM sluice_job h JOIN sluice_job j ON j.id=coalesce(h.last_id,h.id)"
/* Chains that completed before ?1, or stopped before ?2, and are no blocker, done or not, of a job that has not completed. */
#define SQ_PRUNABLE                                                                                                    \
	SQ_CHAIN_FROM_PLAIN                                                                                            \
	" WHERE h.chain_id=h.id AND h.status>=4 AND j.status>=4 AND j.ended_us<iif(j.status=4,?1,?2)"                  \
	" AND (h.flags&4=0 OR NOT EXISTS(SELECT 1 FROM sluice_blocker b"                                               \
	" JOIN sluice_job d ON d.id=b.job_id WHERE b.chain_id=h.id AND d.status<>4))"
/* None of its events is above ?5, and its key does not hold for longer than until ?6. */
#define SQ_FREE                                                                                                        \
	"NOT EXISTS(SELECT 1 FROM job_events e WHERE e.job_id=h.id AND e.offset>?5) AND (h.last_id IS NULL"            \
	" OR NOT EXISTS(SELECT 1 FROM sluice_job m JOIN job_events e ON e.job_id=m.id AND e.offset>?5"                 \
	" WHERE m.chain_id=h.id AND m.chain_id<>m.id))"                                                                \
	" AND (h.key IS NULL OR NOT EXISTS(SELECT 1 FROM sluice_key k WHERE k.key=h.key AND k.chain_id=h.id"           \
	" AND coalesce(k.until_us,253370764800000000)>?6))"

enum sq_statement {
#define SQ_ENUM(name, text) SQ_##name,
	SQ_STATEMENTS(SQ_ENUM)
#undef SQ_ENUM
		SQ_STATEMENT_COUNT
};

extern const char *const sl__sq_statements[SQ_STATEMENT_COUNT];

#endif
