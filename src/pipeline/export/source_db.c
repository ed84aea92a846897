/* SPDX-License-Identifier: Apache-2.0 */
/* What the database sources share. source_db.h has the invariants. */
#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "flow/retry.h"
#include "pipeline/export/source_db.h"
#include "pipeline/holes.h"

/* ---- the SELECT ---- */

void sl__export_db_put_name(struct sl__buf *buf, const char *name)
{
	(void)sl__buf_append(buf, "\"", 1);
	for (const char *p = name; *p != '\0'; p++)
		(void)sl__buf_append(buf, *p == '"' ? "\"\"" : p, *p == '"' ? 2 : 1);
	(void)sl__buf_append(buf, "\"", 1);
}

void sl__export_db_put_sequence(struct sl__buf *buf, const struct sl__export_db *db)
{
	(void)sl__buf_str_append(buf, "s.");
	sl__export_db_put_name(buf, db->columns[db->sequence].name);
}

bool sl__export_db_put_present(struct sl__buf *sql, const struct sl__export_db *db, const char **ranges)
{
	enum { AT_A_TIME = 500 };
	uint64_t first, last;
	int n = 0;
	sl__buf_clear(sql);
	(void)sl__buf_str_append(sql, "SELECT min(");
	sl__export_db_put_sequence(sql, db);
	(void)sl__buf_str_append(sql, ") FROM (VALUES ");
	for (; n < AT_A_TIME && sl__holes_next(ranges, &first, &last); n++)
		(void)sl__buf_printf(sql, "%s(%llu,%llu)", n > 0 ? "," : "", (unsigned long long)first,
				     (unsigned long long)last);
	(void)sl__buf_printf(sql, ") AS h JOIN %s ON ", db->inner);
	sl__export_db_put_sequence(sql, db);
	(void)sl__buf_str_append(sql, " >= h.column1 AND ");
	sl__export_db_put_sequence(sql, db);
	(void)sl__buf_str_append(sql, " <= h.column2");
	return n > 0;
}

bool sl__export_db_is_job_events(const struct sl_export_opts *opts)
{
	const char *dot = opts->table != NULL ? strchr(opts->table, '.') : NULL;
	return opts->table != NULL && strcmp(dot != NULL ? dot + 1 : opts->table, "job_events") == 0;
}

int sl__export_db_init(struct sl__export_db *db, const struct sl_export_opts *opts, const struct sl_env *env,
		       struct sl_err *err)
{
	struct sl__buf inner SL_CLEANUP(sl__buf_fini);
	*db = (struct sl__export_db){.env = env, .opts = opts};
	sl__buf_init(&db->text, env);
	sl__prng_init(&db->prng, env);
	sl__buf_init(&inner, env);
	db->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (db->wake_fd < 0)
		return sl_err_set_errno(err, errno, "export: eventfd");
	if ((opts->table == NULL) == (opts->query == NULL))
		return sl_err_set(err, SL_EINVAL, "export: a database needs a table or a query%s",
				  opts->table != NULL ? ", not both" : "");
	if (opts->table != NULL) { /* SCHEMA.TABLE or TABLE */
		const char *dot = strchr(opts->table, '.');
		if (dot != NULL) {
			char *schema = sl__asprintf(env, "%.*s", (int)(dot - opts->table), opts->table);
			if (schema == NULL)
				return sl__no_memory(err, "export");
			sl__export_db_put_name(&inner, schema);
			sl__free(env, schema);
			(void)sl__buf_append(&inner, ".", 1);
		}
		sl__export_db_put_name(&inner, dot != NULL ? dot + 1 : opts->table);
	} else { /* without a semicolon at its end, and with a line end that ends its last comment */
		size_t n = strlen(opts->query);
		while (n > 0 && strchr("; \t\r\n", opts->query[n - 1]) != NULL)
			n--;
		(void)sl__buf_append(&inner, "(", 1);
		(void)sl__buf_append(&inner, opts->query, n);
		(void)sl__buf_append(&inner, "\n)", 2);
	}
	(void)sl__buf_str_append(&inner, " AS s");
	db->inner = sl__buf_take(&inner);
	return db->inner != NULL ? 0 : sl__no_memory(err, "export");
}

void sl__export_db_fini(struct sl__export_db *db)
{
	if (db->env == NULL)
		return;
	for (size_t i = 0; i < db->n; i++)
		sl__free(db->env, (void *)(uintptr_t)db->columns[i].name);
	sl__free(db->env, db->columns);
	sl__free(db->env, db->inner);
	sl__free(db->env, db->describe);
	sl__buf_fini(&db->text);
	if (db->wake_fd >= 0)
		(void)close(db->wake_fd);
	*db = (struct sl__export_db){.env = NULL};
}

/* ---- columns ---- */

int sl__export_db_columns(struct sl__export_db *db, size_t n, struct sl_err *err)
{
	if (n == 0)
		return sl_err_set(err, SL_EINVAL, "export: %s has no columns", db->describe);
	db->columns = sl__calloc(db->env, n, sizeof(*db->columns));
	if (db->columns == NULL)
		return sl__no_memory(err, "export");
	db->n = n;
	return 0;
}

int sl__export_db_name(struct sl__export_db *db, size_t i, const char *name, struct sl_err *err)
{
	for (size_t k = 0; k < i; k++)
		if (strcmp(db->columns[k].name, name) == 0)
			return sl_err_set(err, SL_EINVAL, "export: two columns of the query are named %.100s", name);
	db->columns[i].name = sl__strdup(db->env, name);
	return db->columns[i].name != NULL ? 0 : sl__no_memory(err, "export");
}

int sl__export_db_find_sequence(struct sl__export_db *db, struct sl_err *err)
{
	const char *name = db->opts->sequence;
	db->sequence = 0;
	for (size_t i = 0; name != NULL && i < db->n; i++) {
		db->sequence = i;
		if (strcmp(db->columns[i].name, name) == 0)
			return 0;
	}
	return name == NULL ? 0 : sl_err_set(err, SL_EINVAL, "export: %.120s has no column %.60s", db->describe, name);
}

/* ---- rows ---- */

void sl__export_db_begin(struct sl__export_db *db, uint64_t first, uint64_t last)
{
	db->first = first;
	db->last = last;
	db->any = db->pass_seen = db->done = false;
	sl__buf_clear(&db->text);
	db->at = 0;
}

uint64_t sl__export_db_next_chunk(struct sl__export_db *db)
{
	db->pass_seen = db->any;
	return db->any ? db->seen : db->first;
}

enum sl__export_db_verdict sl__export_db_admit(struct sl__export_db *db, uint64_t sequence)
{
	if (db->pass_seen && sequence == db->seen) {
		db->pass_seen = false;
		return SL__EXPORT_DB_PASS;
	}
	/* May a number before this one still appear? Where the dataset has no row yet, it may begin anywhere. */
	uint64_t expected = db->any ? db->seen + 1 : db->first;
	if (db->waits && sequence > expected && (!db->any_settled || sequence - 1 > db->settled))
		return SL__EXPORT_DB_SETTLE;
	db->any = true;
	db->seen = sequence;
	return SL__EXPORT_DB_GIVE;
}

/* ---- waiting ---- */

int sl__export_db_cancelled(struct sl_err *err)
{
	return sl_err_set(err, SL_ECANCELLED, "the export was stopped");
}

void sl__export_db_wake(struct sl__export_db *db)
{
	uint64_t one = 1;
	atomic_store(&db->woken, true);
	ssize_t ignored = write(db->wake_fd, &one, sizeof(one));
	(void)ignored;
}

int sl__export_db_retry(struct sl__export_db *db, struct sl_err *err)
{
	static const struct sl_retry_policy policy = {.max_attempts = SL_UNLIMITED,
						      .first_ms = 250,
						      .cap_ms = 10000,
						      .multiplier = 2,
						      .jitter = SL_JITTER_AROUND};
	struct pollfd wake = {.fd = db->wake_fd, .events = POLLIN};
	if (err->code == SL_ECANCELLED || !sl_err_retryable(err))
		return err->code;
	int64_t delay_ms = sl__retry_delay_ms(&policy, ++db->failures, &db->prng);
	sl__log(db->env, SL_LOG_WARN, "export", "the source is unavailable; retrying",
		SL__F_STR("source", db->describe), SL__F_STR("error", err->msg), SL__F_U64("failures", db->failures),
		SL__F_I64("delay_ms", delay_ms));
	(void)poll(&wake, 1, (int)delay_ms);
	return atomic_load(&db->woken) ? sl__export_db_cancelled(err) : 0;
}

size_t sl__export_db_take(struct sl__export_db *db, void *buf, size_t n)
{
	size_t k = SL_MIN(n, db->text.len - db->at);
	if (k > 0)
		memcpy(buf, db->text.data + db->at, k);
	db->at += k;
	if (db->at == db->text.len) {
		sl__buf_clear(&db->text);
		db->at = 0;
	}
	return k;
}
