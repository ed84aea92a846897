/* SPDX-License-Identifier: Apache-2.0 */
/* Backups: the snapshots of the configured repository as they were last seen, and checks of it. Nothing here waits for
 * the repository, and nothing of its passphrase is shown. */
#include "server/api/api.h"
#include "server/backup/backup.h"

/* ---- checks ---- */

/* The fields, without brackets. */
static void out_check(struct srv_out *o, const struct srv_backup_check *k)
{
	SRV_FIELD(o, "state", str, srv_check_state(k->running, &k->err, k->faults));
	SRV_FIELD(o, "read_data", bool, k->read_data);
	SRV_FIELD(o, "started_at", time, k->started_ms);
	SRV_FIELD(o, "ended_at", time, k->ended_ms);
	SRV_FIELD(o, "done_packs", int, (int64_t)k->progress.packs);
	SRV_FIELD(o, "total_packs", int, (int64_t)k->progress.packs_total);
	SRV_FIELD(o, "findings_total", int, (int64_t)k->faults);
	SRV_FIELD(o, "harmless_total", int, (int64_t)k->harmless);
	SRV_FIELD(o, "snapshots", int, (int64_t)k->result.snapshots);
	SRV_FIELD(o, "packs", int, (int64_t)k->result.packs);
	SRV_FIELD(o, "blocks", int, (int64_t)k->result.blocks);
	SRV_FIELD(o, "bytes", int, (int64_t)k->result.bytes);
	SRV_FIELD(o, "error", str, k->err.code != 0 ? k->err.msg : NULL);
}

static void out_check_object(const struct srv_backup_check *k, void *ctx)
{
	struct srv_out *o = ctx;
	srv_out_open(o, '{');
	out_check(o, k);
	srv_out_close(o, '}');
}

static void out_check_findings(const struct srv_backup_check *k, void *ctx)
{
	struct srv_out *o = ctx;
	srv_out_open(o, '{');
	out_check(o, k);
	srv_out_begin(o, "findings", '[');
	for (size_t i = 0; i < k->n_findings; i++) {
		const struct srv_backup_finding *f = &k->findings[i];
		srv_out_open(o, '{');
		SRV_FIELD(o, "fault", str, sl_backup_fault_name(f->fault));
		SRV_FIELD(o, "harmless", bool, f->harmless);
		SRV_FIELD(o, "object", str, f->object);
		SRV_FIELD(o, "snapshot", str, f->snapshot);
		SRV_FIELD(o, "path", str, f->path);
		SRV_FIELD(o, "text", str, f->text);
		srv_out_close(o, '}');
	}
	srv_out_close(o, ']');
	srv_out_close(o, '}');
}

/* ---- the repository ---- */

static void out_view(const struct srv_backups_view *v, void *ctx)
{
	struct srv_out *o = ctx;
	SRV_FIELD(o, "configured", bool, v->repo != NULL);
	SRV_FIELD(o, "repo", str, v->repo);
	SRV_FIELD(o, "state", str,
		  v->repo != NULL ? v->error[0] != '\0' ? "failed"
				    : v->read_ms == 0   ? "reading"
							: "ready"
				  : "off");
	SRV_FIELD(o, "error", str, v->error[0] != '\0' ? v->error : NULL);
	SRV_FIELD(o, "read_at", time, v->read_ms);
	SRV_FIELD(o, "newest_at", time, v->newest_ms);
	srv_out_name(o, "repository");
	if (v->read_ms != 0) {
		const struct sl_backup_stats *s = &v->stats;
		srv_out_open(o, '{');
		SRV_FIELD(o, "id", str, s->id);
		SRV_FIELD(o, "encrypted", bool, s->encrypted);
		SRV_FIELD(o, "snapshots", int, (int64_t)v->snapshots);
		SRV_FIELD(o, "packs", int, (int64_t)s->packs);
		SRV_FIELD(o, "pack_bytes", int, (int64_t)s->pack_bytes);
		SRV_FIELD(o, "blocks", int, (int64_t)s->blocks);
		SRV_FIELD(o, "marked_packs", int, (int64_t)s->marked_packs);
		SRV_FIELD(o, "sessions", int, (int64_t)s->sessions);
		srv_out_close(o, '}');
	} else {
		srv_out_raw(o, NULL);
	}
	SRV_FIELD(o, "items", raw, v->items);
	SRV_FIELD(o, "damaged_total", int, (int64_t)v->damaged_total);
	SRV_FIELD(o, "damaged", raw, v->damaged);
}

void srv_backups_list(srv_request *r, void *ctx)
{
	struct srv_backups *b = ((struct srv_api *)ctx)->core->backups;
	const struct srv_backups_view none = {.items = "[]", .damaged = "[]"};
	struct srv_out o = {0};
	if (!srv_in_query(r, NULL))
		return;
	srv_out_open(&o, '{');
	if (b != NULL)
		srv_backups_look(b, out_view, &o);
	else
		out_view(&none, &o);
	srv_out_name(&o, "check");
	if (b == NULL || !srv_backups_check_look(b, out_check_object, &o))
		srv_out_raw(&o, NULL);
	srv_out_close(&o, '}');
	srv_out_answer(r, 200, &o, NULL);
}

/* The repository; NULL: none is configured, which was answered. */
static struct srv_backups *configured(srv_request *r, void *ctx)
{
	struct srv_backups *b = ((struct srv_api *)ctx)->core->backups;
	if (b == NULL)
		srv_error(r, 404, "not_found", "this server has no backup repository: set backup.repo");
	return b;
}

void srv_backups_show_check(srv_request *r, void *ctx)
{
	struct srv_out o = {0};
	struct srv_backups *b = srv_in_query(r, NULL) ? configured(r, ctx) : NULL;
	if (b == NULL)
		return;
	if (srv_backups_check_look(b, out_check_findings, &o))
		srv_out_answer(r, 200, &o, NULL);
	else
		srv_error(r, 404, "not_found", "this server has not checked the repository yet");
	srv_out_free(&o);
}

void srv_backups_check_now(srv_request *r, void *ctx)
{
	struct sl_err err = SL_ERR_INIT;
	struct srv_out o = {0};
	static const char *const names[] = {"read_data", NULL};
	struct srv_object body;
	size_t len = 0;
	bool read_data = false;
	/* The body may be missing: a quick check. */
	(void)srv_body(r, &len);
	if (!srv_in_query(r, NULL) ||
	    (len > 0 && (!srv_in_body(r, names, NULL, &body) || !srv_in_bool(&body, "read_data", &read_data))))
		return;
	struct srv_backups *b = configured(r, ctx);
	if (b == NULL || !srv_change_record(r, ((struct srv_api *)ctx)->core))
		return;
	if (srv_backups_check_start(b, read_data, &err) != 0) {
		srv_fail(r, &err);
		return;
	}
	if (srv_backups_check_look(b, out_check_findings, &o))
		srv_out_answer(r, 202, &o, NULL);
	srv_out_free(&o);
}
