/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orphans: logs that a process left behind. Each is opened, which fails while another holds its lock, sent and archived
 * like a log of our own. One that cannot be helped does not keep the others.
 */
#include <errno.h>
#include <stdlib.h>

#include "wal/handle.h"
#include "wal/segs.h"

struct sweep {
	const struct sl_env *env;
	const struct sl_wal_opts *opts; /* resolved */
	const struct sl_wal_sender *sender;
	void *ctx;
	int64_t deadline_ns;
	struct sl_wal_sweep_result result;
	char **ids;
	size_t n, cap;
};

static int add_id(struct sweep *s, const char *name, size_t id_len)
{
	if (s->n == s->cap) {
		size_t cap = s->cap != 0 ? s->cap * 2 : 64;
		char **grown = sl__realloc(s->env, s->ids, cap * sizeof(*grown));
		if (grown == NULL)
			return -ENOMEM;
		s->ids = grown;
		s->cap = cap;
	}
	s->ids[s->n] = sl__asprintf(s->env, "%.*s", (int)id_len, name);
	if (s->ids[s->n] == NULL)
		return -ENOMEM;
	s->n++;
	return 0;
}

/* A crash in a rotation may leave sealed segments without an active file: they are a log too. */
static int on_name(const char *name, void *ctx)
{
	size_t id_len;
	uint64_t first;
	enum wal_name_kind kind = sl__wal_name(name, &id_len, &first);
	return kind == WAL_NAME_ACTIVE || kind == WAL_NAME_SEALED ? add_id(ctx, name, id_len) : 0;
}

static int compare_ids(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void sort_and_unite(struct sweep *s)
{
	if (s->n < 2)
		return;
	qsort(s->ids, s->n, sizeof(*s->ids), compare_ids);
	size_t kept = 1;
	for (size_t i = 1; i < s->n; i++) {
		if (strcmp(s->ids[i], s->ids[kept - 1]) == 0)
			sl__free(s->env, s->ids[i]);
		else
			s->ids[kept++] = s->ids[i];
	}
	s->n = kept;
}

static int64_t left_ms(const struct sweep *s)
{
	if (s->deadline_ns == SL_FOREVER)
		return SL_UNLIMITED;
	int64_t left = s->deadline_ns - sl__mono_ns(s->env);
	return left > 0 ? (left + 999999) / 1000000 : 0;
}

static int deliver(struct sweep *s, sl_wal *w, struct sl_err *err)
{
	struct sl_wal_stats st = {.struct_size = sizeof(st)};
	int rc = sl_wal_get_stats(w, &st, err);
	if (rc != 0 || st.pending == 0)
		return rc;
	rc = sl_wal_start(w, s->sender, s->ctx, err);
	return rc == 0 ? sl_wal_stop(w, left_ms(s), err) : rc;
}

/* What others keep for the log comes in first: once it is sent and archived, nobody could tell what is in it already.
 */
static int adopt(const struct sweep *s, sl_wal *w, const char *id, struct sl_err *err)
{
	if (s->opts->on_orphan == NULL)
		return 0;
	char *path = sl__wal_file_path(s->env, s->opts->wal_dir, id, 0);
	if (path == NULL)
		return sl_err_set(err, SL_ENOMEM, "sweep %s: out of memory", id);
	int rc = s->opts->on_orphan(w, path, err, s->opts->on_orphan_ctx);
	if (rc != 0 && err->code == 0)
		(void)sl_err_set(err, rc, "%s: %s", path, sl_err_text(rc));
	sl__free(s->env, path);
	return rc;
}

/* Send, archive, close. */
static int finish(struct sweep *s, sl_wal *w, const char *id, struct sl_err *err)
{
	int rc = adopt(s, w, id, err);
	if (rc == 0)
		rc = deliver(s, w, err);
	if (rc == 0) {
		s->result.sent++;
		if (s->opts->archive_on_complete != SL_OFF) {
			rc = sl_wal_archive(w, NULL, 0, err);
			s->result.archived += rc == 0;
		}
	}
	int closed = sl_wal_close(w, rc == 0 ? err : NULL);
	return rc != 0 ? rc : closed;
}

static void sweep_one(struct sweep *s, const char *id)
{
	struct sl_err err = SL_ERR_INIT;
	sl_wal *w = NULL;
	int rc = sl__wal_open_with(&w, id, s->opts, &(struct wal_open_hooks){.must_exist = true}, &err);
	if (rc == SL_ENOENT)
		return;
	s->result.found++;
	if (rc == SL_ELOCKED) {
		s->result.busy++;
		return;
	}
	if (rc == 0)
		rc = finish(s, w, id, &err);
	if (rc == 0)
		return;
	s->result.failed++;
	sl__log(s->env, SL_LOG_WARN, "wal", "an orphaned log could not be finished yet",
		SL__F_STR("folder", s->opts->wal_dir), SL__F_STR("stream", id), SL__F_STR("error", err.msg));
}

static int sweep_all(struct sweep *s, struct sl_err *err)
{
	int rc = SL__IO(s->env, list, s->opts->wal_dir, on_name, s);
	if (rc < 0 && rc != -ENOENT)
		rc = sl_err_set_errno(err, -rc, "sweep: list %s", s->opts->wal_dir);
	else
		rc = 0;
	sort_and_unite(s);
	for (size_t i = 0; i < s->n; i++) {
		if (rc == 0)
			sweep_one(s, s->ids[i]);
		sl__free(s->env, s->ids[i]);
	}
	sl__free(s->env, s->ids);
	return rc;
}

int sl_wal_sweep(const struct sl_wal_opts *opts, const struct sl_wal_sender *sender, void *ctx, int64_t deadline_ms,
		 struct sl_wal_sweep_result *out, struct sl_err *err)
{
	struct sl_env env;
	struct sl_wal_opts o;
	int rc = sl__env_init(&env, SL_OPT_HAS(opts, env) ? opts->env : NULL, err);
	if (rc != 0)
		return rc;
	if (sender == NULL || sender->version != SL_WAL_SENDER_VERSION || sender->send == NULL)
		return sl_err_set(err, SL_EINVAL, "sender: NULL, of another version, or without send");
	if (deadline_ms < 0 && deadline_ms != SL_UNLIMITED)
		return sl_err_set(err, SL_EINVAL, "deadline_ms: %lld is negative", (long long)deadline_ms);
	rc = sl__wal_opts_resolve(&o, opts, &env, err);
	if (rc != 0)
		return rc;
	struct sweep s = {.env = &env,
			  .opts = &o,
			  .sender = sender,
			  .ctx = ctx,
			  .deadline_ns = sl__deadline_ns(&env, deadline_ms)};
	o.env = &env;
	rc = sweep_all(&s, err);
	if (out != NULL) {
		size_t n = out->struct_size != 0 ? SL_MIN(out->struct_size, sizeof(s.result)) : sizeof(s.result);
		s.result.struct_size = n;
		memcpy(out, &s.result, n);
	}
	sl__wal_opts_free(&env, &o);
	return rc;
}
