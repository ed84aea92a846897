/* SPDX-License-Identifier: Apache-2.0 */
/* The events of the files, in order, and the head that follows from them. */
#include <inttypes.h>

#include "pipeline/audit/event_files.h"

struct walk {
	sl_audit_event_fn *fn;
	void *ctx;
	struct sl__audit_chain chain;
};

/* One file. A line without an end is one that is being written, in the last file; elsewhere it is damage. */
static int walk_file(struct walk *w, const char *data, size_t n, bool last, struct sl_err *err)
{
	struct sl_audit_event e;
	char storage[SL_AUDIT_EVENT_BYTES];
	const char *at = data, *end = data + n;
	while (at < end) {
		const char *stop = memchr(at, '\n', (size_t)(end - at));
		if (stop == NULL)
			return last ? 0 : sl_err_set(err, SL_ECORRUPT, "the last line has no end");
		int rc = sl_audit_event_parse(at, (size_t)(stop - at), &e, storage, err);
		rc = rc != 0 ? rc : sl__audit_chain_add(&w->chain, &e, err);
		rc = rc != 0 ? rc : w->fn(&e, at, (size_t)(stop - at), w->ctx);
		if (rc != 0)
			return rc;
		at = stop + 1;
	}
	return 0;
}

static int walk_files(struct walk *w, const struct sl__event_files *files, struct sl_err *err)
{
	struct sl__buf data SL_CLEANUP(sl__buf_fini);
	int rc = 0;
	sl__buf_init(&data, files->env);
	for (size_t i = 0; i < files->n && rc == 0; i++) {
		struct sl_err inner = SL_ERR_INIT;
		sl__buf_clear(&data);
		rc = sl__event_files_load(files, i, &data, err);
		if (rc != 0)
			return rc;
		rc = walk_file(w, sl__buf_str(&data), data.len, i + 1 == files->n, &inner);
		if (rc == SL_ECORRUPT && inner.code == rc)
			rc = sl_err_set(err, rc, "%s/events-%020" PRIu64 ".jsonl: %.120s", files->folder,
					files->first[i], inner.msg);
	}
	return rc;
}

int sl_audit_events(const char *dir, const char *dataset, const struct sl_env *env, sl_audit_event_fn *fn, void *ctx,
		    struct sl_err *err)
{
	struct sl_env full;
	struct sl__event_files files;
	struct walk w = {.fn = fn, .ctx = ctx};
	int rc = sl_dataset_check_name(dataset, err);
	rc = rc != 0 ? rc : sl__env_init(&full, env, err);
	rc = rc != 0 ? rc : sl__event_files_list(&files, &full, dir, dataset, err);
	if (rc != 0)
		return rc;
	rc = files.n > 0 ? walk_files(&w, &files, err)
			 : sl_err_set(err, SL_ENOENT, "there are no events of dataset %s below %.150s", dataset, dir);
	sl__event_files_fini(&files);
	return rc;
}

static int note_head(const struct sl_audit_event *event, const char *text, size_t len, void *ctx)
{
	struct sl_audit_head *h = ctx;
	(void)text;
	(void)len;
	h->events = event->number;
	h->checkpoint = SL_MAX(h->checkpoint, event->end);
	memcpy(h->event_hash, event->hash, sizeof(h->event_hash));
	return 0;
}

int sl_audit_head_read(const char *dir, const char *dataset, const struct sl_env *env, struct sl_audit_head *out,
		       struct sl_err *err)
{
	struct sl_audit_head h = {.struct_size = sizeof(h)};
	int rc = sl_audit_events(dir, dataset, env, note_head, &h, err);
	if (rc != 0)
		return rc;
	if (h.events == 0)
		return sl_err_set(err, SL_ENOENT, "there are no events of dataset %s below %.150s", dataset, dir);
	memcpy(h.dataset, dataset, strlen(dataset) + 1);
	*out = h;
	return 0;
}
