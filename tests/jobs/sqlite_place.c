/* SPDX-License-Identifier: Apache-2.0 */
#include "jobs/sqlite_place.h"

#include <dirent.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int sqlite_place_init(struct sqlite_place *p)
{
	const char *tmp = getenv("TMPDIR");
	(void)snprintf(p->dir, sizeof(p->dir), "%s/sluice-sqlite-XXXXXX",
		       tmp != NULL && strlen(tmp) < 32 ? tmp : "/tmp");
	if (mkdtemp(p->dir) == NULL)
		return -1;
	(void)snprintf(p->path, sizeof(p->path), "%s/jobs.db", p->dir);
	return 0;
}

static void remove_tree(const char *path)
{
	char name[512];
	DIR *dir = opendir(path);
	if (dir == NULL) {
		(void)unlink(path);
		return;
	}
	for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		(void)snprintf(name, sizeof(name), "%s/%s", path, e->d_name);
		remove_tree(name);
	}
	(void)closedir(dir);
	(void)rmdir(path);
}

void sqlite_place_fini(struct sqlite_place *p)
{
	remove_tree(p->dir);
}

/* A connection that neither creates nor checkpoints. */
static sqlite3 *look(const char *path)
{
	sqlite3 *db = NULL;
	if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK) {
		(void)sqlite3_close(db);
		return NULL;
	}
	(void)sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	(void)sqlite3_wal_autocheckpoint(db, 0);
	(void)sqlite3_busy_timeout(db, 60000);
	return db;
}

const char *sqlite_ask(const char *path, const char *sql)
{
	static char text[512];
	sqlite3 *db = look(path);
	sqlite3_stmt *s = NULL;
	text[0] = '\0';
	if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) != SQLITE_OK)
		(void)snprintf(text, sizeof(text), "%s", sqlite3_errmsg(db));
	else if (sqlite3_step(s) == SQLITE_ROW && sqlite3_column_text(s, 0) != NULL)
		(void)snprintf(text, sizeof(text), "%s", (const char *)sqlite3_column_text(s, 0));
	(void)sqlite3_finalize(s);
	(void)sqlite3_close(db);
	return text;
}

int sqlite_do(const char *path, const char *sql)
{
	sqlite3 *db = look(path);
	int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
	(void)sqlite3_close(db);
	return rc;
}

/* Each lists what must not be: a row is a fault. */
static const char *const faults[] = {
	/* A live job is in exactly one place: the ready queue, the waiting one, or a lease with its fence. */
	"WITH leased AS (SELECT CAST(e.key AS INTEGER) AS id, e.value AS fence FROM sluice_lease l, json_each(l.jobs) "
	"e),"
	" place AS (SELECT id FROM sluice_ready UNION ALL SELECT id FROM sluice_sched UNION ALL"
	"  SELECT leased.id FROM leased JOIN sluice_job j ON j.id=leased.id AND j.fence=leased.fence AND j.status=2)"
	" SELECT 'job '||j.id||' is in '||count(p.id)||' places' FROM sluice_job j LEFT JOIN place p ON p.id=j.id"
	" WHERE j.status=2 GROUP BY j.id HAVING count(p.id)<>1",
	/* Nothing else is in a queue. */
	"SELECT 'queued: '||q.id FROM (SELECT id FROM sluice_ready UNION ALL SELECT id FROM sluice_sched) q"
	" LEFT JOIN sluice_job j ON j.id=q.id WHERE j.id IS NULL OR j.status<>2",
	"SELECT 'tried of '||q.id FROM (SELECT id,tried FROM sluice_ready UNION ALL SELECT id,tried FROM sluice_sched) "
	"q"
	" JOIN sluice_job j ON j.id=q.id WHERE q.tried<>(j.charged>0)",
	/* What is counted is what is there. */
	"WITH x(type,kind,n) AS (SELECT type,CASE status WHEN 1 THEN 'blocked' WHEN 4 THEN 'completed' WHEN 5 THEN"
	" 'failed' ELSE 'cancelled' END,1 FROM sluice_job WHERE status<>2"
	" UNION ALL SELECT type,'ready',1 FROM sluice_ready UNION ALL SELECT type,'ready_tried',tried FROM sluice_ready"
	" UNION ALL SELECT type,'sched',1 FROM sluice_sched UNION ALL SELECT type,'sched_tried',tried FROM sluice_sched"
	" UNION ALL SELECT type,'blocked',-blocked FROM sluice_count"
	" UNION ALL SELECT type,'ready',-ready FROM sluice_count"
	" UNION ALL SELECT type,'ready_tried',-ready_tried FROM sluice_count"
	" UNION ALL SELECT type,'sched',-sched FROM sluice_count"
	" UNION ALL SELECT type,'sched_tried',-sched_tried FROM sluice_count"
	" UNION ALL SELECT type,'completed',-completed FROM sluice_count"
	" UNION ALL SELECT type,'failed',-failed FROM sluice_count"
	" UNION ALL SELECT type,'cancelled',-cancelled FROM sluice_count"
	")"
	" SELECT 'count of '||type||' '||kind||' is wrong by '||-sum(n) FROM x GROUP BY type,kind HAVING sum(n)<>0",
	"SELECT 'chain of '||j.id FROM sluice_job j LEFT JOIN sluice_job h ON h.id=j.chain_id"
	" WHERE h.id IS NULL OR h.chain_id<>h.id",
	"SELECT 'end of chain '||h.id FROM sluice_job h LEFT JOIN sluice_job l ON l.id=coalesce(h.last_id,h.id)"
	" WHERE h.id=h.chain_id AND (l.id IS NULL OR l.next_id IS NOT NULL OR l.chain_id<>h.id)",
	"SELECT 'open blockers of '||j.id FROM sluice_job j WHERE j.blockers_open<>"
	"(SELECT count(*) FROM sluice_blocker b WHERE b.job_id=j.id AND b.done=0)",
	"SELECT 'gap in offsets' WHERE (SELECT count(*) FROM job_events)<>(SELECT coalesce(max(offset),0) FROM "
	"job_events)",
};

const char *sqlite_wrong(const char *path)
{
	static char text[512];
	(void)snprintf(text, sizeof(text), "%s", sqlite_ask(path, "PRAGMA integrity_check"));
	if (strcmp(text, "ok") != 0)
		return text;
	for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
		(void)snprintf(text, sizeof(text), "%s", sqlite_ask(path, faults[i]));
		if (text[0] != '\0')
			return text;
	}
	return NULL;
}
