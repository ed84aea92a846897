/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exports: datasets, their partitions, events and heads out of the catalog, and verifications. All datasets of the
 * configured folder are shown, also those that `sluice export` has put there.
 */
#include "server/api/api.h"
#include "server/config/config.h"
#include "server/export/export.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENOUGH 1 /* ends a walk */

static void out_hash(struct srv_out *o, const char *name, const uint8_t *bytes, size_t n, bool there)
{
	char text[2 * SL_AUDIT_PUBLIC_KEY_BYTES + 1];
	*sl__hex(text, bytes, n) = '\0';
	SRV_FIELD(o, name, str, there ? text : NULL);
}

/* A sequence is an id that may also be 0, once there is one. */
static void out_sequence(struct srv_out *o, const char *name, uint64_t sequence, bool there)
{
	char text[32];
	(void)snprintf(text, sizeof(text), "\"%" PRIu64 "\"", sequence);
	SRV_FIELD(o, name, raw, there ? text : NULL);
}

/* ---- verifications ---- */

/* The fields, without brackets. */
static void out_verification(struct srv_out *o, const struct srv_verification *v)
{
	SRV_FIELD(o, "state", str, srv_check_state(v->running, &v->err, v->faults));
	SRV_FIELD(o, "started_at", time, v->started_ms);
	SRV_FIELD(o, "ended_at", time, v->ended_ms);
	SRV_FIELD(o, "done_bytes", int, (int64_t)v->done_bytes);
	SRV_FIELD(o, "total_bytes", int, (int64_t)v->total_bytes);
	SRV_FIELD(o, "findings_total", int, (int64_t)v->faults);
	SRV_FIELD(o, "notes_total", int, (int64_t)v->notes);
	SRV_FIELD(o, "events", int, (int64_t)v->result.events);
	SRV_FIELD(o, "partitions", int, (int64_t)v->result.partitions);
	SRV_FIELD(o, "rows", int, (int64_t)v->result.rows);
	SRV_FIELD(o, "error", str, v->err.code != 0 ? v->err.msg : NULL);
}

static void out_verification_findings(const struct srv_verification *v, void *ctx)
{
	struct srv_out *o = ctx;
	srv_out_open(o, '{');
	out_verification(o, v);
	srv_out_begin(o, "findings", '[');
	for (size_t i = 0; i < v->n_findings; i++) {
		const struct srv_finding *f = &v->findings[i];
		srv_out_open(o, '{');
		SRV_FIELD(o, "fault", str, sl_audit_fault_name(f->fault));
		SRV_FIELD(o, "note", bool, f->fault < SL_AUDIT_MISSING);
		SRV_FIELD(o, "path", str, f->path);
		SRV_FIELD(o, "event", id, f->event);
		SRV_FIELD(o, "text", str, f->text);
		srv_out_close(o, '}');
	}
	srv_out_close(o, ']');
	srv_out_close(o, '}');
}

static void out_verification_object(const struct srv_verification *v, void *ctx)
{
	struct srv_out *o = ctx;
	srv_out_open(o, '{');
	out_verification(o, v);
	srv_out_close(o, '}');
}

/* ---- datasets ---- */

struct dataset_list {
	struct srv_out out;
	struct srv_exports *exports;
	const struct srv_config *config;
	struct srv_export_status status;
};

static int add_dataset(const struct sl_dataset *d, void *ctx)
{
	struct dataset_list *l = ctx;
	struct srv_out *o = &l->out;
	bool any = d->events > 0, ours = strcmp(d->name, l->config->export_events_dataset) == 0;
	uint64_t newest = l->status.newest;
	srv_out_open(o, '{');
	SRV_FIELD(o, "name", str, d->name);
	SRV_FIELD(o, "sequence_column", str, d->sequence_column);
	SRV_FIELD(o, "partition_size", id, d->partition_size);
	out_sequence(o, "start", d->start, any);
	out_sequence(o, "checkpoint", d->checkpoint, any);
	SRV_FIELD(o, "partitions", int, (int64_t)d->partitions);
	SRV_FIELD(o, "rows", int, (int64_t)d->rows);
	SRV_FIELD(o, "bad_rows", int, (int64_t)d->bad_rows);
	SRV_FIELD(o, "bytes", int, (int64_t)d->bytes);
	SRV_FIELD(o, "events", int, (int64_t)d->events);
	out_hash(o, "head", d->head, sizeof(d->head), any);
	srv_out_known(o, "lag", ours, newest > d->checkpoint ? (int64_t)(newest - d->checkpoint) : 0);
	SRV_FIELD(o, "outbox_backlog", int, (int64_t)(d->events - d->delivered_files));
	srv_out_known(o, "endpoint_backlog", ours && l->config->export_events_audit_endpoint != NULL,
		      (int64_t)(d->events - d->delivered_endpoint));
	SRV_FIELD(o, "holder", str, d->holder);
	srv_out_name(o, "verification");
	if (!srv_verify_look(l->exports, d->name, out_verification_object, o))
		srv_out_raw(o, NULL);
	return srv_out_end(o);
}

void srv_exports_list(srv_request *r, void *ctx)
{
	struct srv_core *core = ((struct srv_api *)ctx)->core;
	struct srv_exports *x = core->exports; /* NULL: none */
	struct dataset_list l = {.exports = x, .config = core->config};
	struct srv_out *o = &l.out;
	struct sl_err err = SL_ERR_INIT;
	sl_catalog *c = NULL;
	if (!srv_in_query(r, NULL))
		return;
	srv_out_open(o, '{');
	SRV_FIELD(o, "configured", bool, x != NULL);
	SRV_FIELD(o, "dir", str, core->config->export_events_dir);
	srv_out_name(o, "exporter");
	if (x != NULL) {
		/* The export of this server. */
		const struct srv_export_status *s = &l.status;
		srv_exports_status(x, &l.status);
		srv_out_open(o, '{');
		SRV_FIELD(o, "dataset", str, l.config->export_events_dataset);
		SRV_FIELD(o, "state", str, srv_export_state_name(s->state));
		SRV_FIELD(o, "since", time, s->since_ms);
		SRV_FIELD(o, "next_try_at", time, s->next_try_ms);
		SRV_FIELD(o, "starts", int, (int64_t)s->starts);
		SRV_FIELD(o, "failures", int, (int64_t)s->failures);
		SRV_FIELD(o, "error", str, s->error[0] != '\0' ? s->error : NULL);
		SRV_FIELD(o, "newest", id, s->newest);
		srv_out_close(o, '}');
	} else {
		srv_out_raw(o, NULL);
	}
	/* All datasets of the folder. */
	srv_out_begin(o, "items", '[');
	int rc = x != NULL ? srv_exports_catalog(x, SL_OFF, &c, &err) : 0;
	if (rc == 0 && c != NULL)
		rc = sl_catalog_datasets(c, NULL, add_dataset, &l, &err);
	sl_catalog_close(c);
	srv_out_close(o, ']');
	/* Without the catalog the state of the export is still shown: it may give the reason. */
	SRV_FIELD(o, "catalog_error", str, rc != 0 ? err.msg : NULL);
	srv_out_close(o, '}');
	srv_out_answer(r, 200, o, NULL);
}

/* ---- one dataset ---- */

static int dataset_exists(const struct sl_dataset *d, void *ctx)
{
	(void)d;
	(void)ctx;
	return 0;
}

/* The catalog with {dataset} in it; NULL: it was answered. The caller closes it. */
static sl_catalog *catalog_of(srv_request *r, struct srv_exports *x, sl_dataset_fn *fn, void *fn_ctx)
{
	const char *name = srv_param(r, "dataset");
	struct sl_err err = SL_ERR_INIT;
	sl_catalog *c = NULL;
	if (x == NULL) {
		srv_error(r, 404, "not_found", "this server has no export: set export_events.dir");
		return NULL;
	}
	int rc = sl_dataset_check_name(name, &err) != 0 ? SL_ENOENT : srv_exports_catalog(x, SL_OFF, &c, &err);
	if (rc == 0)
		rc = c != NULL ? sl_catalog_datasets(c, name, fn, fn_ctx, &err) : SL_ENOENT;
	if (rc == 0)
		return c;
	if (rc == SL_ENOENT)
		srv_error(r, 404, "not_found", "no dataset '%.100s'", name);
	else
		srv_fail(r, &err);
	sl_catalog_close(c);
	return NULL;
}

struct export_page {
	struct srv_out out;
	uint64_t from, next; /* next: where the next page begins; 0: this is the last */
	uint32_t n, limit;
};

static int add_partition(const struct sl_catalog_partition *q, void *ctx)
{
	struct export_page *p = ctx;
	struct srv_out *o = &p->out;
	if (p->n++ == p->limit) {
		p->next = q->start;
		return ENOUGH;
	}
	srv_out_open(o, '{');
	out_sequence(o, "start", q->start, true);
	out_sequence(o, "end", q->end, true);
	SRV_FIELD(o, "type", str,
		  q->type == SL_AUDIT_LATE       ? "late"
		  : q->type == SL_AUDIT_BACKFILL ? "backfill"
						 : "partition");
	SRV_FIELD(o, "rows", int, (int64_t)q->rows);
	SRV_FIELD(o, "bad_rows", int, (int64_t)q->bad_rows);
	SRV_FIELD(o, "holes", int, (int64_t)q->holes);
	SRV_FIELD(o, "bytes", int, (int64_t)q->bytes);
	out_hash(o, "sha256", q->sha256, sizeof(q->sha256), true);
	SRV_FIELD(o, "path", str, q->path);
	SRV_FIELD(o, "event", id, q->event);
	return srv_out_end(o);
}

/* The event is shown byte for byte: its hash is that of these bytes. */
static int add_audit_event(uint64_t number, const char *event, size_t len, void *ctx)
{
	struct export_page *p = ctx;
	char *text = p->n < p->limit ? strndup(event, len) : NULL;
	if (p->n++ == p->limit) {
		p->next = number - 1;
		return ENOUGH;
	}
	srv_out_open(&p->out, '{');
	SRV_FIELD(&p->out, "number", id, number);
	SRV_FIELD(&p->out, "event", raw, text);
	srv_out_close(&p->out, '}');
	bool failed = text == NULL || p->out.text.failed;
	p->out.text.failed = failed;
	free(text);
	return failed ? SL_ENOMEM : 0;
}

/* A page of partitions, or of audit events. */
static void answer_page(srv_request *r, struct srv_exports *x, bool partitions)
{
	struct sl_err err = SL_ERR_INIT;
	static const char *const names[] = {"cursor", "limit", NULL};
	const char *cursor = srv_query(r, "cursor"), *dataset = srv_param(r, "dataset");
	struct export_page p = {0};
	char next[32] = "";
	if (!srv_in_query(r, names) || !srv_in_limit(r, &p.limit) ||
	    (cursor != NULL && !srv_in_number(r, "cursor", cursor, INT64_MAX, &p.from)))
		return;
	sl_catalog *c = catalog_of(r, x, dataset_exists, NULL);
	if (c == NULL)
		return;
	srv_items_begin(&p.out);
	uint64_t limit = (uint64_t)p.limit + 1;
	int rc = partitions ? sl_catalog_partitions(c, dataset, p.from, limit, add_partition, &p, &err)
			    : sl_catalog_events(c, dataset, p.from, limit, add_audit_event, &p, &err);
	sl_catalog_close(c);
	if (p.next != 0)
		(void)snprintf(next, sizeof(next), "%" PRIu64, p.next);
	srv_items_answer(r, &p.out, rc == ENOUGH ? 0 : rc, &err, next);
}

void srv_exports_partitions(srv_request *r, void *ctx)
{
	answer_page(r, ((struct srv_api *)ctx)->core->exports, true);
}

void srv_exports_events(srv_request *r, void *ctx)
{
	answer_page(r, ((struct srv_api *)ctx)->core->exports, false);
}

/* ---- heads ---- */

static int note_dataset_head(const struct sl_dataset *d, void *ctx)
{
	struct sl_audit_head *h = ctx;
	h->events = d->events;
	h->checkpoint = d->checkpoint;
	memcpy(h->event_hash, d->head, sizeof(h->event_hash));
	(void)snprintf(h->dataset, sizeof(h->dataset), "%s", d->name);
	return 0;
}

void srv_exports_head(srv_request *r, void *ctx)
{
	struct srv_core *core = ((struct srv_api *)ctx)->core;
	struct sl_audit_head h = {.struct_size = sizeof(h)};
	struct sl_err err = SL_ERR_INIT;
	char text[SL_AUDIT_HEAD_BYTES];
	size_t len = 0;
	if (!srv_in_query(r, NULL))
		return;
	sl_catalog *c = catalog_of(r, core->exports, note_dataset_head, &h);
	if (c == NULL)
		return;
	sl_catalog_close(c);
	if (h.events == 0) {
		srv_error(r, 404, "not_found", "the dataset '%s' has no events yet", h.dataset);
		return;
	}
	const char *key = core->config->export_events_sign_key_file;
	int rc = key != NULL ? sl_audit_head_sign(&h, key, core->env, &err) : 0;
	if (rc == 0)
		rc = sl_audit_head_format(&h, text, &len, &err);
	struct srv_out o = {0};
	srv_out_open(&o, '{');
	SRV_FIELD(&o, "dataset", str, h.dataset);
	SRV_FIELD(&o, "events", int, (int64_t)h.events);
	out_sequence(&o, "checkpoint", h.checkpoint, true);
	out_hash(&o, "event_hash", h.event_hash, sizeof(h.event_hash), true);
	SRV_FIELD(&o, "signed", bool, h.has_signature);
	out_hash(&o, "public_key", h.public_key, sizeof(h.public_key), h.has_signature);
	SRV_FIELD(&o, "text", str, rc == 0 ? text : NULL);
	srv_out_close(&o, '}');
	srv_out_answer(r, 200, &o, rc != 0 ? &err : NULL);
}

/* ---- verifying ---- */

/* False: it was answered. */
static bool dataset_is_known(srv_request *r, struct srv_exports *x)
{
	sl_catalog *c = catalog_of(r, x, dataset_exists, NULL);
	sl_catalog_close(c);
	return c != NULL;
}

void srv_exports_verification(srv_request *r, void *ctx)
{
	struct srv_exports *x = ((struct srv_api *)ctx)->core->exports;
	struct srv_out o = {0};
	if (!srv_in_query(r, NULL) || !dataset_is_known(r, x))
		return;
	if (srv_verify_look(x, srv_param(r, "dataset"), out_verification_findings, &o))
		srv_out_answer(r, 200, &o, NULL);
	else
		srv_error(r, 404, "not_found", "this server has not verified '%.100s' yet", srv_param(r, "dataset"));
	srv_out_free(&o);
}

void srv_exports_verify_now(srv_request *r, void *ctx)
{
	struct srv_exports *x = ((struct srv_api *)ctx)->core->exports;
	struct sl_err err = SL_ERR_INIT;
	struct srv_out o = {0};
	if (!srv_in_query(r, NULL) || !srv_in_no_body(r) || !dataset_is_known(r, x) ||
	    !srv_change_record(r, ((struct srv_api *)ctx)->core))
		return;
	if (srv_verify_start(x, srv_param(r, "dataset"), &err) != 0) {
		srv_fail(r, &err);
		return;
	}
	if (srv_verify_look(x, srv_param(r, "dataset"), out_verification_findings, &o))
		srv_out_answer(r, 202, &o, NULL);
	srv_out_free(&o);
}
