/* SPDX-License-Identifier: Apache-2.0 */
/* Verification: the phases, what is reported, and the summary. */
#include "pipeline/audit/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "pipeline/audit/catalog.h"

int sl__verify_report(struct sl__verify *v, enum sl_audit_fault fault, uint64_t event, const char *path,
		      const char *fmt, ...)
{
	char where[1024], text[512];
	bool is_note = fault < SL_AUDIT_MISSING;
	va_list args;
	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (path != NULL)
		(void)snprintf(where, sizeof(where), "%s%s%s", v->dir, path[0] != '\0' ? "/" : "", path);
	struct sl_audit_finding f = {.struct_size = sizeof(f),
				     .fault = fault,
				     .path = path != NULL ? where : "",
				     .event = event,
				     .text = text};
	if (is_note)
		v->result.notes++;
	else
		v->result.findings++;
	v->callback_rc = v->opts.on_finding != NULL ? v->opts.on_finding(&f, v->opts.ctx) : 0;
	return v->callback_rc != 0 || (!is_note && v->opts.all != SL_ON) ? SL__VERIFY_STOP : 0;
}

int sl__verify_add(struct sl__verify *v, const struct sl_audit_event *event, bool in_files, struct sl_err *err)
{
	struct sl__verify_entry *grown = sl__grow(&v->env, v->entries, v->n, &v->cap, sizeof(*grown));
	if (grown == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for the events");
	v->entries = grown;
	struct sl__verify_entry e = {.number = event->number,
				     .start = event->start,
				     .end = event->end,
				     .rows = event->rows,
				     .bad_rows = event->bad_rows,
				     .holes = event->holes,
				     .bytes = event->bytes,
				     .type = event->type,
				     .in_files = in_files,
				     .path = sl__strdup(&v->env, event->path),
				     .hole_ranges = sl__strdup(&v->env, event->hole_ranges)};
	if (e.path == NULL || e.hole_ranges == NULL) {
		sl__free(&v->env, e.path);
		sl__free(&v->env, e.hole_ranges);
		return sl_err_set(err, SL_ENOMEM, "out of memory for the events");
	}
	memcpy(e.hash, event->hash, sizeof(e.hash));
	memcpy(e.sha256, event->sha256, sizeof(e.sha256));
	v->entries[v->n++] = e;
	return 0;
}

int sl__verify_common(struct sl__verify *v, const struct sl_audit_event *event, const char *path)
{
	const char *what = NULL;
	if (!v->has_common) {
		v->has_common = true;
		v->partition_size = event->partition_size;
		(void)snprintf(v->sequence_column, sizeof(v->sequence_column), "%s", event->sequence_column);
		memcpy(v->schema_sha256, event->schema_sha256, sizeof(v->schema_sha256));
	}
	if (strcmp(event->dataset, v->dataset) != 0)
		what = "dataset";
	else if (event->partition_size != v->partition_size)
		what = "partition size";
	else if (strcmp(event->sequence_column, v->sequence_column) != 0)
		what = "sequence column";
	else if (memcmp(event->schema_sha256, v->schema_sha256, sizeof(v->schema_sha256)) != 0)
		what = "schema";
	return what == NULL ? 0
			    : sl__verify_report(v, SL_AUDIT_LINK, event->number, path,
						"event %llu has another %s than the events before it",
						(unsigned long long)event->number, what);
}

/* ---- what is read before the event files, because a run writes it after them ---- */

static int note_delivered(const struct sl__cat_row *row, struct sl_err *err, void *ctx)
{
	struct sl__verify *v = ctx;
	struct sl__cat_dataset d;
	(void)err;
	sl__cat_read_dataset(row, &d);
	v->delivered = d.damaged ? 0 : d.d.delivered_files; /* damage is reported with the catalog */
	return 0;
}

/* The catalog, and how many events it says are in the files. v->catalog stays NULL if there is no catalog. */
static int open_verified_catalog(struct sl__verify *v, struct sl_err *err)
{
	struct sl_catalog_opts opts = {SL_CATALOG_OPTS_INIT, .env = &v->env, .create = SL_OFF};
	struct sl__cat_call get = {
		.stmt = CAT_DATASET_GET, .values = {CAT_TEXT(v->dataset)}, .n = 1, .fn = note_delivered, .ctx = v};
	struct sl_io_stat st;
	const char *given = v->opts.catalog;
	if (given != NULL && given[0] == '\0')
		return 0;
	char *url = given != NULL ? sl__strdup(&v->env, given) : sl__asprintf(&v->env, "sqlite:%s/_catalog.db", v->dir);
	if (url == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for a URL");
	int found = given == NULL ? SL__IO(&v->env, stat, url + strlen("sqlite:"), &st) : 0;
	int rc = 0;
	if (found == 0)
		rc = sl_catalog_open(&v->catalog, url, &opts, err);
	else if (found != -ENOENT)
		rc = sl_err_set_errno(err, -found, "look for the catalog in %.150s", v->dir);
	sl__free(&v->env, url);
	return rc != 0 || v->catalog == NULL ? rc : sl__catalog_once(v->catalog, CAT_READ, &get, err);
}

static int verify_begin(struct sl__verify *v, struct sl_err *err)
{
	/* The head. What is wrong with it is reported later. */
	const char *path = v->opts.checkpoint;
	if (path != NULL) {
		int fd = SL__IO(&v->env, open, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
		ssize_t n = fd >= 0 ? sl__pread_full(&v->env, fd, v->head, sizeof(v->head), 0) : 0;
		if (fd < 0)
			(void)sl_err_set_errno(&v->head_why, -fd, "open %.180s", path);
		else if (n < 0)
			(void)sl_err_set_errno(&v->head_why, (int)-n, "read %.180s", path);
		else
			v->head_len = (size_t)n;
		sl__close_fd(&v->env, &fd);
	}
	int rc = open_verified_catalog(v, &v->catalog_why);
	if (rc == SL_ENOMEM)
		return sl_err_set(err, rc, "%s", v->catalog_why.msg);

	/* The dataset's folder. */
	struct sl_io_stat st;
	char *folder = sl__asprintf(&v->env, "%s/%s", v->dir, v->dataset);
	if (folder == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for a path");
	rc = SL__IO(&v->env, stat, folder, &st);
	v->has_folder = rc == 0 && S_ISDIR(st.mode);
	sl__free(&v->env, folder);
	if (rc != 0 && rc != -ENOENT && rc != -ENOTDIR)
		return sl_err_set_errno(err, -rc, "stat %.150s/%s", v->dir, v->dataset);
	return 0;
}

/* ---- phases ---- */

int sl__verify_nothing(const struct sl__verify *v, struct sl_err *err)
{
	return sl_err_set(err, SL_ENOENT, "no dataset %s, neither below %.120s nor in the catalog", v->dataset, v->dir);
}

int sl_audit_verify(const char *dir, const char *dataset, const struct sl_audit_verify_opts *opts,
		    struct sl_audit_result *out, struct sl_err *err)
{
	static int (*const phases[])(struct sl__verify * v, struct sl_err * err) = {
		verify_begin,    sl__verify_events, sl__verify_catalog, sl__verify_order,
		sl__verify_head, sl__verify_tree,   sl__verify_files};
	struct sl__verify v = {.dir = dir, .dataset = dataset, .result = {.struct_size = sizeof(v.result)}};
	struct sl_audit_result *r = &v.result;
	sl__opts_copy(&v.opts, sizeof(v.opts), opts);
	int rc = sl_dataset_check_name(dataset, err);
	if (rc == 0)
		rc = sl__env_init(&v.env, v.opts.env, err);
	if (rc != 0)
		return rc;
	if (v.opts.threads < 0 || v.opts.threads > 256)
		return sl_err_set(err, SL_EINVAL, "threads: give 1 to 256");
	for (size_t i = 0; i < SL_COUNT(phases) && rc == 0; i++)
		rc = phases[i](&v, err);
	if (rc == SL__VERIFY_STOP)
		rc = v.callback_rc;
	if (rc == 0 && v.undefined && v.n == 0 && r->findings == 0)
		rc = sl__verify_nothing(&v, err);

	/* The summary. */
	r->events = r->partitions = v.n;
	for (size_t i = 0; i < v.n; i++) {
		const struct sl__verify_entry *e = &v.entries[i];
		r->rows += e->rows;
		r->bad_rows += e->bad_rows;
		r->bytes += e->bytes;
		r->start = i == 0 ? e->start : SL_MIN(r->start, e->start);
		r->checkpoint = SL_MAX(r->checkpoint, e->end);
	}
	memcpy(r->head, v.chain.head, sizeof(r->head));
	for (size_t i = 0; i < v.n; i++) {
		sl__free(&v.env, v.entries[i].path);
		sl__free(&v.env, v.entries[i].hole_ranges);
	}
	sl__free(&v.env, v.entries);
	sl__free(&v.env, v.by_start);
	sl__free(&v.env, v.by_path);
	sl_catalog_close(v.catalog);
	if (rc == 0)
		sl__result_copy(out, r, sizeof(*r));
	return rc;
}

const char *sl_audit_fault_name(enum sl_audit_fault fault)
{
	switch (fault) {
	case SL_AUDIT_NOTE_UNCOMMITTED:
		return "uncommitted";
	case SL_AUDIT_NOTE_BACKLOG:
		return "backlog";
	case SL_AUDIT_MISSING:
		return "missing";
	case SL_AUDIT_UNREADABLE:
		return "unreadable";
	case SL_AUDIT_SIZE:
		return "size";
	case SL_AUDIT_HASH:
		return "hash";
	case SL_AUDIT_CONTENTS:
		return "contents";
	case SL_AUDIT_UNKNOWN:
		return "unknown";
	case SL_AUDIT_EVENT:
		return "event";
	case SL_AUDIT_LINK:
		return "link";
	case SL_AUDIT_GAP:
		return "gap";
	case SL_AUDIT_OVERLAP:
		return "overlap";
	case SL_AUDIT_CATALOG:
		return "catalog";
	case SL_AUDIT_HEAD:
		return "head";
	case SL_AUDIT_SIGNATURE:
		return "signature";
	}
	return "other";
}
