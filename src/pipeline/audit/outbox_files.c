/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events to files. The catalog has the truth; a file is a copy of it that grows at its end, one sync a batch.
 *
 *	resume: the last file is compared with the catalog, event by event, up to where they part:
 *	        equal up to the file's end           continue there
 *	        torn after the last synced event    cut it there and continue
 *	        anything else                        SL_ECONFLICT: it was changed, or the catalog is an older one
 *	append: lines after `size`; sync; the mark. After a failure the file is cut back to what was synced before the
 *	        next write, so that no line is there twice or in part.
 *
 * A write that was not synced can be torn at any place after a power loss; what lies at or below the mark was synced.
 */
#include <errno.h>
#include <fcntl.h>

#include "pipeline/audit/event_files.h"
#include "pipeline/audit/outbox.h"

#define BATCH_BYTES (1 << 20)

struct files_lane {
	bool resumed;     /* the fields below are known */
	int fd;           /* of the last file; -1: none, or it is full */
	uint64_t size;    /* synced bytes of it */
	bool dirty;       /* there may be more after them */
	uint64_t written; /* the last event that is in the files, synced */
	struct sl__buf lines;
	char *folder;
};

/* ---- resuming ---- */

struct compare {
	const char *at, *end;
	uint64_t last; /* the last event that is equal */
};

static int compare_line(uint64_t number, const char *event, size_t len, void *ctx)
{
	struct compare *c = ctx;
	if ((size_t)(c->end - c->at) <= len || memcmp(c->at, event, len) != 0 || c->at[len] != '\n')
		return 1; /* here they part */
	c->at += len + 1;
	c->last = number;
	return 0;
}

static int conflict(const char *folder, uint64_t number, struct sl_err *err)
{
	return sl_err_set(
		err, SL_ECONFLICT,
		"%s: event %llu differs from the catalog's; were the files changed, or is the catalog an older one?",
		folder, (unsigned long long)number);
}

/* Where file i stops to be the catalog's. */
struct end_of_file {
	uint64_t size, last; /* bytes, and the last event, that are the catalog's */
	bool more;           /* there are bytes after them */
	uint64_t mark;       /* in: events up to it were synced */
};

static int compare_file(struct sl__lane *lane, const struct sl__event_files *files, size_t i, struct end_of_file *out,
			struct sl_err *err)
{
	struct files_lane *f = lane->target;
	struct sl_outbox *o = lane->outbox;
	struct sl_audit_event e;
	char storage[SL_AUDIT_EVENT_BYTES];
	sl__buf_clear(&f->lines);
	int rc = sl__event_files_load(files, i, &f->lines, err);
	if (rc != 0)
		return rc;
	const char *data = sl__buf_str(&f->lines), *end = data + f->lines.len;
	struct compare c = {.at = data, .end = end, .last = files->first[i] - 1};
	rc = sl_catalog_events(o->catalog, o->lease->dataset, files->first[i] - 1, 0, compare_line, &c, err);
	if (rc < 0)
		return rc;
	out->size = (uint64_t)(c.at - data);
	out->last = c.last;
	out->more = c.at < end;
	if (!out->more)
		return 0;
	/* A complete event was not torn: it is another one. */
	const char *line_end = memchr(c.at, '\n', (size_t)(end - c.at));
	bool is_event =
		line_end != NULL && sl_audit_event_parse(c.at, (size_t)(line_end - c.at), &e, storage, NULL) == 0;
	return c.last < out->mark || is_event ? conflict(files->folder, c.last + 1, err) : 0;
}

static int resume_from(struct sl__lane *lane, const struct sl__event_files *files, uint64_t mark, struct sl_err *err)
{
	struct files_lane *f = lane->target;
	const struct sl_env *env = &lane->outbox->env;
	struct end_of_file last = {.mark = mark}, before = {.mark = UINT64_MAX};
	f->written = 0;
	if (files->n == 0)
		return 0;
	size_t i = files->n - 1;
	int rc = compare_file(lane, files, i, &last, err);
	if (rc != 0)
		return rc;
	f->size = last.size;
	f->dirty = last.more;
	f->written = last.last;
	/* A file of which nothing is left follows the one before it, or is the first. */
	if (f->size == 0 && i > 0) {
		if ((rc = compare_file(lane, files, i - 1, &before, err)) != 0)
			return rc;
		if (before.last != files->first[i] - 1)
			return conflict(files->folder, before.last + 1, err);
	} else if (f->size == 0 && files->first[0] != 1) {
		return conflict(files->folder, files->first[0], err);
	}
	char *path = sl__event_files_path(files, i);
	if (path == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for a path");
	f->fd = SL__IO(env, open, path, O_RDWR | O_NOFOLLOW, 0);
	rc = f->fd < 0 ? sl_err_set_errno(err, -f->fd, "open %s", path) : 0;
	sl__free(env, path);
	return rc;
}

static int resume_files(struct sl__lane *lane, struct sl_err *err)
{
	struct files_lane *f = lane->target;
	struct sl_outbox *o = lane->outbox;
	struct sl__event_files files;
	uint64_t mark = 0;
	sl__close_fd(&o->env, &f->fd);
	f->size = 0;
	f->dirty = false;
	int rc = sl__outbox_delivered(o, false, &mark, err);
	if (rc == 0)
		rc = sl__event_files_list(&files, &o->env, o->opts.dir, o->lease->dataset, err);
	if (rc != 0)
		return rc;
	/* Files that were removed are written again; what is there must be right. */
	rc = resume_from(lane, &files, files.n > 0 ? mark : 0, err);
	sl__event_files_fini(&files);
	if (rc != 0)
		return rc;
	/* Lines that an earlier run wrote, and did not live to sync or to mark. */
	if (f->written > mark) {
		int synced = SL__IO(&o->env, datasync, f->fd);
		if (synced != 0)
			return sl_err_set_errno(err, -synced, "sync the event file in %s", f->folder);
		if ((rc = sl__catalog_mark(o->catalog, o->lease, false, f->written, err)) != 0)
			return rc;
	}
	f->resumed = true;
	return 0;
}

/* ---- appending ---- */

static int new_file(struct sl__lane *lane, struct sl_err *err)
{
	struct files_lane *f = lane->target;
	const struct sl_env *env = &lane->outbox->env;
	char name[SL__EVENT_FILE_NAME_BYTES];
	sl__close_fd(env, &f->fd);
	int rc = sl__mkdirs(env, f->folder);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "make %s", f->folder);
	sl__event_file_name(f->written + 1, name);
	char *path = sl__asprintf(env, "%s/%s", f->folder, name);
	if (path == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for a path");
	f->fd = SL__IO(env, open, path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
	rc = f->fd < 0 ? f->fd : sl__sync_dir(env, f->folder);
	if (rc != 0) {
		rc = sl_err_set_errno(err, -rc, "create %s", path);
		sl__close_fd(env, &f->fd);
	}
	f->size = 0;
	f->dirty = true; /* one that was there, and held nothing of ours */
	sl__free(env, path);
	return rc;
}

static void outbox_step(struct sl_outbox *o, const char *name, uint64_t event)
{
	if (o->opts.on_step != NULL)
		o->opts.on_step(name, event, o->opts.on_step_ctx);
}

/* One batch. *more: there was one. */
static int write_one_batch(struct sl__lane *lane, bool *more, struct sl_err *err)
{
	struct files_lane *f = lane->target;
	struct sl_outbox *o = lane->outbox;
	uint64_t file_bytes = (uint64_t)o->opts.file_bytes;
	/* A file that is full is followed by another, whose name is the next event's. */
	if (f->fd >= 0 && f->size >= file_bytes)
		sl__close_fd(&o->env, &f->fd);
	size_t room = f->fd >= 0 ? (size_t)SL_MIN(file_bytes - f->size, BATCH_BYTES) : BATCH_BYTES;
	struct sl__outbox_batch batch = {
		.lines = &f->lines, .max_bytes = SL_MIN(room, (size_t)file_bytes), .last = f->written};
	int rc = sl__outbox_read(o, &batch, err);
	*more = rc == 0 && f->lines.len > 0;
	if (!*more)
		return rc;
	outbox_step(o, "before_outbox", f->written + 1);
	if (f->fd < 0 && (rc = new_file(lane, err)) != 0)
		return rc;

	/* Append to what was synced, and sync. */
	rc = f->dirty ? SL__IO(&o->env, truncate, f->fd, f->size) : 0;
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "cut the event file in %s back", f->folder);
	f->dirty = true;
	rc = sl__pwrite_full(&o->env, f->fd, f->lines.data, f->lines.len, f->size);
	if (rc == 0)
		rc = SL__IO(&o->env, datasync, f->fd);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "write events to %s", f->folder);
	f->dirty = false;
	f->size += f->lines.len;
	f->written = batch.last;
	outbox_step(o, "outbox_written", batch.last);
	return sl__catalog_mark(o->catalog, o->lease, false, batch.last, err);
}

static int files_deliver(struct sl__lane *lane, struct sl_err *err)
{
	struct files_lane *f = lane->target;
	bool more = true;
	int rc = f->resumed ? 0 : resume_files(lane, err);
	while (rc == 0 && more && !sl__outbox_stopping(lane->outbox))
		rc = write_one_batch(lane, &more, err);
	return rc;
}

static void files_close(struct sl__lane *lane)
{
	struct files_lane *f = lane->target;
	const struct sl_env *env = &lane->outbox->env;
	sl__close_fd(env, &f->fd);
	sl__buf_fini(&f->lines);
	sl__free(env, f->folder);
	sl__free(env, f);
}

static const struct sl__lane_ops ops = {.name = "files", .deliver = files_deliver, .close = files_close};

int sl__lane_files_open(struct sl__lane *lane, struct sl_err *err)
{
	struct sl_outbox *o = lane->outbox;
	struct files_lane *f = sl__calloc(&o->env, 1, sizeof(*f));
	if (f == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for an outbox");
	f->fd = -1;
	sl__buf_init(&f->lines, &o->env);
	lane->target = f;
	lane->ops = &ops;
	f->folder = sl__asprintf(&o->env, "%s/%s/" SL__AUDIT_FOLDER, o->opts.dir, o->lease->dataset);
	return f->folder != NULL ? 0 : sl_err_set(err, SL_ENOMEM, "out of memory for an outbox");
}
