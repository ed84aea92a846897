/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orphans: logs that a process left behind. Each is opened, which fails while another holds its lock, sent and archived
 * like a log of our own. One that cannot be helped does not keep the others.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/compare.h"
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

/* A crash in a rotation may leave sealed segments without an active file: they are a log too. */
static int on_sweep_name(const char *name, void *ctx)
{
	struct sweep *s = ctx;
	size_t id_len;
	uint64_t first;
	enum wal_name_kind kind = sl__wal_name(name, &id_len, &first);
	if (kind != WAL_NAME_ACTIVE && kind != WAL_NAME_SEALED)
		return 0;
	char **grown = sl__grow(s->env, s->ids, s->n, &s->cap, sizeof(*grown));
	if (grown == NULL)
		return -ENOMEM;
	s->ids = grown;
	s->ids[s->n] = sl__asprintf(s->env, "%.*s", (int)id_len, name);
	if (s->ids[s->n] == NULL)
		return -ENOMEM;
	s->n++;
	return 0;
}

/* Adopt, send and archive. What others keep for the log comes in first: once it is sent and archived, nothing shows any
 * more what is in it already. */
static int finish_orphan(struct sweep *s, sl_wal *w, const char *id, struct sl_err *err)
{
	int rc = 0;
	if (s->opts->on_orphan != NULL) {
		char *path = sl__wal_file_path(s->env, s->opts->wal_dir, id, 0);
		if (path == NULL)
			return sl_err_set(err, SL_ENOMEM, "sweep %s: out of memory", id);
		rc = s->opts->on_orphan(w, path, err, s->opts->on_orphan_ctx);
		if (rc != 0 && err->code == 0)
			(void)sl_err_set(err, rc, "%s: %s", path, sl_err_text(rc));
		sl__free(s->env, path);
	}
	struct sl_wal_stats st = {.struct_size = sizeof(st)};
	if (rc == 0)
		rc = sl_wal_get_stats(w, &st, err);
	if (rc != 0)
		return rc;
	if (st.pending > 0) {
		rc = sl_wal_sender_start(w, s->sender, s->ctx, err);
		if (rc != 0)
			return rc;
		int64_t left = SL_UNLIMITED;
		if (s->deadline_ns != SL_FOREVER)
			left = (SL_MAX(s->deadline_ns - sl__mono_ns(s->env), 0) + 999999) / 1000000;
		rc = sl_wal_sender_stop(w, left, err);
		if (rc != 0)
			return rc;
	}
	s->result.sent++;
	if (s->opts->archive_on_complete == SL_OFF)
		return 0;
	rc = sl_wal_archive(w, NULL, false, err);
	s->result.archived += rc == 0;
	return rc;
}

static void sweep_log(struct sweep *s, const char *id)
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
	if (rc == 0) {
		rc = finish_orphan(s, w, id, &err);
		if (rc == 0)
			rc = sl_wal_close(w, &err);
		else
			(void)sl_wal_close(w, NULL);
	}
	if (rc == 0)
		return;
	s->result.failed++;
	sl__log(s->env, SL_LOG_WARN, "wal", "could not finish an orphaned log yet; retrying",
		SL__F_STR("folder", s->opts->wal_dir), SL__F_STR("stream", id), SL__F_STR("error", err.msg));
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
	/* The ids of the folder, each once. */
	rc = SL__IO(&env, list, o.wal_dir, on_sweep_name, &s);
	rc = rc < 0 && rc != -ENOENT ? sl_err_set_errno(err, -rc, "sweep: list %s", o.wal_dir) : 0;
	if (s.n > 1)
		qsort(s.ids, s.n, sizeof(*s.ids), sl__compare_texts);
	for (size_t i = 0; i < s.n; i++)
		if (rc == 0 && (i == 0 || strcmp(s.ids[i], s.ids[i - 1]) != 0))
			sweep_log(&s, s.ids[i]);
	for (size_t i = 0; i < s.n; i++)
		sl__free(&env, s.ids[i]);
	sl__free(&env, s.ids);
	sl__result_copy(out, &s.result, sizeof(s.result));
	sl__wal_opts_free(&env, &o);
	return rc;
}
