/* SPDX-License-Identifier: Apache-2.0 */
/* The event files: listed, loaded, and walked event by event; the head that follows from them. */
#include "pipeline/audit/event_files.h"
#include "base/compare.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define PREFIX "events-"
#define SUFFIX ".jsonl"
#define DIGITS 20

void sl__event_file_name(uint64_t first, char out[SL__EVENT_FILE_NAME_BYTES])
{
	(void)snprintf(out, SL__EVENT_FILE_NAME_BYTES, PREFIX "%020" PRIu64 SUFFIX, first);
}

static int note_event_file(const char *name, void *ctx)
{
	struct sl__event_files *l = ctx;
	char again[SL__EVENT_FILE_NAME_BYTES] = "";
	uint64_t first = 0;
	if (strncmp(name, PREFIX, strlen(PREFIX)) == 0) {
		first = strtoull(name + strlen(PREFIX), NULL, 10);
		sl__event_file_name(first, again);
	}
	if (first == 0 || strcmp(name, again) != 0) {
		l->n_strange++;
		return sl__buf_append(&l->strange, name, strlen(name) + 1) == 0 ? 0 : -ENOMEM;
	}
	uint64_t *grown = sl__grow(l->env, l->first, l->n, &l->cap, sizeof(*grown));
	if (grown == NULL)
		return -ENOMEM;
	l->first = grown;
	l->first[l->n++] = first;
	return 0;
}

int sl__event_files_list(struct sl__event_files *out, const struct sl_env *env, const char *dir, const char *dataset,
			 struct sl_err *err)
{
	struct sl_io_stat st;
	struct sl__event_files l SL_CLEANUP(sl__event_files_fini) = {.env = env};
	sl__buf_init(&l.strange, env);
	l.folder = sl__asprintf(env, "%s/%s/" SL__AUDIT_FOLDER, dir, dataset);
	if (l.folder == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for a list of files");
	int rc = SL__IO(env, stat, l.folder, &st);
	if (rc == 0 && !S_ISDIR(st.mode))
		return sl_err_set(err, SL_EACCES, "%s is not a folder", l.folder);
	if (rc == 0)
		rc = SL__IO(env, list, l.folder, note_event_file, &l);
	else if (rc == -ENOENT)
		rc = 0;
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "list %s", l.folder);
	if (l.n > 0)
		qsort(l.first, l.n, sizeof(*l.first), sl__compare_u64);
	*out = l;
	l = (struct sl__event_files){.env = NULL};
	return 0;
}

void sl__event_files_fini(struct sl__event_files *l)
{
	if (l->env == NULL)
		return;
	sl__free(l->env, l->folder);
	sl__free(l->env, l->first);
	sl__buf_fini(&l->strange);
	l->folder = NULL;
	l->first = NULL;
	l->n = l->cap = 0;
}

char *sl__event_files_path(const struct sl__event_files *l, size_t i)
{
	char name[SL__EVENT_FILE_NAME_BYTES];
	sl__event_file_name(l->first[i], name);
	return sl__asprintf(l->env, "%s/%s", l->folder, name);
}

static int load_fd(const struct sl_env *env, int fd, const char *path, struct sl__buf *b, struct sl_err *err)
{
	struct sl_io_stat st;
	int rc = SL__IO(env, fstat, fd, &st);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "stat %s", path);
	if (!S_ISREG(st.mode))
		return sl_err_set(err, SL_ECORRUPT, "%s is not a regular file", path);
	if (st.size > SL__EVENT_FILE_MAX)
		return sl_err_set(err, SL_ETOOBIG, "%s is longer than the maximum size of an event file", path);
	if (sl__buf_reserve(b, (size_t)st.size) != 0)
		return sl_err_set(err, SL_ENOMEM, "%s: out of memory", path);
	if (st.size == 0)
		return 0;
	ssize_t n = sl__pread_full(env, fd, b->data + b->len, (size_t)st.size, 0);
	if (n < 0)
		return sl_err_set_errno(err, (int)-n, "read %s", path);
	b->len += (size_t)n;
	b->data[b->len] = '\0';
	return 0;
}

int sl__event_files_load(const struct sl__event_files *l, size_t i, struct sl__buf *b, struct sl_err *err)
{
	char *path = sl__event_files_path(l, i);
	if (path == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for a path");
	int fd = SL__IO(l->env, open, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
	int rc = fd < 0 ? sl_err_set_errno(err, -fd, "open %s", path) : load_fd(l->env, fd, path, b, err);
	sl__close_fd(l->env, &fd);
	sl__free(l->env, path);
	return rc;
}

/* ---- the events in order ---- */

int sl_audit_events(const char *dir, const char *dataset, const struct sl_env *env, sl_audit_event_fn *fn, void *ctx,
		    struct sl_err *err)
{
	struct sl_env full;
	struct sl__audit_chain chain = {.events = 0};
	struct sl_audit_event e;
	char storage[SL_AUDIT_EVENT_BYTES];
	int rc = sl_dataset_check_name(dataset, err);
	if (rc != 0)
		return rc;
	if ((rc = sl__env_init(&full, env, err)) != 0)
		return rc;
	struct sl__event_files files SL_CLEANUP(sl__event_files_fini) = {.env = NULL};
	struct sl__buf data SL_CLEANUP(sl__buf_fini);
	sl__buf_init(&data, &full);
	if ((rc = sl__event_files_list(&files, &full, dir, dataset, err)) != 0)
		return rc;
	if (files.n == 0)
		return sl_err_set(err, SL_ENOENT, "no events of dataset %s below %.150s", dataset, dir);
	for (size_t i = 0; i < files.n; i++) {
		struct sl_err inner = SL_ERR_INIT;
		sl__buf_clear(&data);
		if ((rc = sl__event_files_load(&files, i, &data, err)) != 0)
			return rc;
		for (const char *at = sl__buf_str(&data), *end = at + data.len, *stop; rc == 0 && at < end;
		     at = stop + 1) {
			stop = memchr(at, '\n', (size_t)(end - at));
			if (stop == NULL) { /* it is being written, in the last file; elsewhere it is damage */
				if (i + 1 < files.n)
					rc = sl_err_set(&inner, SL_ECORRUPT, "the last line has no line feed");
				break;
			}
			rc = sl_audit_event_parse(at, (size_t)(stop - at), &e, storage, &inner);
			if (rc == 0)
				rc = sl__audit_chain_add(&chain, &e, &inner);
			if (rc == 0)
				rc = fn(&e, at, (size_t)(stop - at), ctx);
		}
		if (rc == SL_ECORRUPT && inner.code == rc)
			return sl_err_set(err, rc, "%s/events-%020" PRIu64 ".jsonl: %.120s", files.folder,
					  files.first[i], inner.msg);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static int note_chain_head(const struct sl_audit_event *event, const char *text, size_t len, void *ctx)
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
	int rc = sl_audit_events(dir, dataset, env, note_chain_head, &h, err);
	if (rc != 0)
		return rc;
	if (h.events == 0)
		return sl_err_set(err, SL_ENOENT, "no events of dataset %s below %.150s", dataset, dir);
	memcpy(h.dataset, dataset, strlen(dataset) + 1);
	*out = h;
	return 0;
}
