/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dead letters: those of the server and those of the logs under its folder, each in its own folder. The id of a dead
 * letter here is <folder>-<number>, where the folder is named by a hash of its path below the two roots.
 *
 * A redrive writes the event of a dead letter to the store, as a separate stream ("redrive", with a random incarnation),
 * and acknowledges the dead letter after that: a crash in between repeats it.
 */
#include "base/thread.h"
#include "base/time.h"
#include "base/utf8.h"
#include "server/api/api.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <sluice/dead_letter.h>
#include <sluice/events.h>

#define FOLDERS_MAX 256
#define DEPTH_MAX 3
#define COUNT_EVERY_MS 5000
#define SHOWN_BYTES (1 << 20)

struct folder {
	char *path;
	char name[9]; /* 8 hexadecimal digits */
};

struct folders {
	struct folder all[FOLDERS_MAX];
	size_t n;
};

struct srv_letters {
	struct srv_core *core;
	sl__mutex mu; /* one redrive at a time, and the count */
	int64_t waiting, counted_ms;
};

/* ---- folders ---- */

static void add_folder(struct folders *f, const char *path, const char *below)
{
	uint32_t hash = 2166136261u;
	if (f->n == FOLDERS_MAX)
		return;
	for (const char *p = below; *p != '\0'; p++)
		hash = (hash ^ (uint8_t)*p) * 16777619u;
	struct folder *x = &f->all[f->n];
	x->path = strdup(path);
	(void)snprintf(x->name, sizeof(x->name), "%08x", hash);
	f->n += x->path != NULL;
}

static bool is_directory(const char *path)
{
	struct stat st;
	return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Every <log>.dead below path. */
static void find_folders(struct folders *f, const char *root, const char *path, int depth)
{
	DIR *dir = depth > 0 ? opendir(path) : NULL;
	if (dir == NULL)
		return;
	for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
		char child[4096];
		size_t n = strlen(e->d_name);
		if (e->d_name[0] == '.' ||
		    (size_t)snprintf(child, sizeof(child), "%s/%s", path, e->d_name) >= sizeof(child) ||
		    !is_directory(child))
			continue;
		if (n > 5 && strcmp(e->d_name + n - 5, ".dead") == 0)
			add_folder(f, child, child + strlen(root));
		else
			find_folders(f, root, child, depth - 1);
	}
	(void)closedir(dir);
}

static int by_folder_path(const void *a, const void *b)
{
	return strcmp(((const struct folder *)a)->path, ((const struct folder *)b)->path);
}

static void free_folders(struct folders **f)
{
	for (size_t i = 0; *f != NULL && i < (*f)->n; i++)
		free((*f)->all[i].path);
	free(*f);
}

/* All folders; NULL: out of memory, which is answered unless r is NULL. */
static struct folders *list_folders(const struct srv_core *core, srv_request *r)
{
	struct folders *f = calloc(1, sizeof(*f));
	if (f == NULL) {
		if (r != NULL)
			srv_error(r, 500, "internal", "out of memory");
		return NULL;
	}
	if (core->wal_dir != NULL)
		find_folders(f, core->wal_dir, core->wal_dir, DEPTH_MAX);
	qsort(f->all, f->n, sizeof(f->all[0]), by_folder_path);
	if (core->dlq_dir != NULL && is_directory(core->dlq_dir))
		add_folder(f, core->dlq_dir, "");
	return f;
}

static int open_letter_folder(const struct srv_core *core, const struct folder *x, bool write, sl_dlq **out,
			      struct sl_err *err)
{
	struct sl_dlq_opts opts = {SL_DLQ_OPTS_INIT, .env = core->env, .read_only = write ? SL_OFF : SL_ON};
	int rc = sl_dlq_open(out, x->path, &opts, err);
	if (rc == SL_ELOCKED) {
		(void)sl_err_set(err, SL_EAGAIN, "another process is writing to the dead letters");
		err->retry_after_ms = 1000;
	}
	return rc == SL_ELOCKED ? SL_EAGAIN : rc;
}

/* ---- showing ---- */

static void out_letter(struct srv_out *o, const char *folder, const struct sl_dlq_letter *l)
{
	static const char *const classes[] = {[SL_CLASS_TRANSIENT] = "transient",
					      [SL_CLASS_THROTTLED] = "throttled",
					      [SL_CLASS_POISON] = "poison",
					      [SL_CLASS_FATAL] = "fatal"};
	const char *class = (size_t)l->error_class < SL_COUNT(classes) ? classes[l->error_class] : NULL;
	char id[40];
	(void)snprintf(id, sizeof(id), "%s-%" PRIu64, folder, l->id);
	SRV_FIELD(o, "id", str, id);
	SRV_FIELD(o, "source", str, l->source);
	SRV_FIELD(o, "position", int, (int64_t)l->position);
	SRV_FIELD(o, "error", str, l->error);
	SRV_FIELD(o, "code", str, sl_err_name(l->code));
	SRV_FIELD(o, "class", str, class != NULL ? class : "none");
	SRV_FIELD(o, "attempts", int, l->attempts);
	SRV_FIELD(o, "first_failed_at", time, l->first_failed_ms);
	SRV_FIELD(o, "last_failed_at", time, l->last_failed_ms);
	SRV_FIELD(o, "target", str, l->target);
	SRV_FIELD(o, "bytes", int, (int64_t)l->item_len);
	SRV_FIELD(o, "sealed", bool, l->encoding == SL_DLQ_SEALED);
	SRV_FIELD(o, "acknowledged", bool, l->acknowledged);
}

#define ENOUGH 1

struct letter_page {
	struct srv_out out;
	const char *folder;
	uint64_t after; /* in the first folder */
	uint32_t n, limit;
	uint64_t last;
	char next[40]; /* the cursor; empty: the list is complete */
};

static int add_letter(const struct sl_dlq_letter *l, void *ctx)
{
	struct letter_page *x = ctx;
	if (l->id <= x->after)
		return 0;
	if (x->n == x->limit)
		return ENOUGH;
	srv_out_open(&x->out, '{');
	out_letter(&x->out, x->folder, l);
	x->n++;
	x->last = l->id;
	return srv_out_end(&x->out);
}

/* "<folder>-<number>"; the number of the folder, or f->n when it does not exist. */
static size_t find_id(const struct folders *f, const char *id, uint64_t *number)
{
	if (strlen(id) < 10 || id[8] != '-' || !srv_number_parse(id + 9, UINT64_MAX, number))
		return f->n;
	for (size_t i = 0; i < f->n; i++)
		if (strncmp(id, f->all[i].name, 8) == 0)
			return i;
	return f->n;
}

void srv_letters_list(srv_request *r, void *ctx)
{
	static const char *const names[] = {"cursor", "limit", NULL};
	const struct srv_core *core = ((struct srv_api *)ctx)->core;
	struct sl_err err = SL_ERR_INIT;
	struct letter_page x = {0};
	const char *cursor = srv_query(r, "cursor");
	size_t from = 0;
	if (!srv_in_query(r, names) || !srv_in_limit(r, &x.limit))
		return;
	struct folders *f SL_CLEANUP(free_folders) = list_folders(core, r);
	if (f == NULL)
		return;
	if (cursor != NULL && (from = find_id(f, cursor, &x.after)) == f->n) {
		srv_error(r, 400, "invalid", "cursor: not from this list");
		return;
	}
	srv_items_begin(&x.out);
	int rc = 0;
	for (size_t i = from; i < f->n && rc == 0; i++) {
		sl_dlq *q = NULL;
		rc = open_letter_folder(core, &f->all[i], false, &q, &err);
		if (rc == SL_ENOENT) { /* removed meanwhile */
			rc = 0;
		} else if (rc == 0) {
			x.folder = f->all[i].name;
			rc = sl_dlq_list(q, false, add_letter, &x, &err);
			sl_dlq_close(q);
		}
		if (rc == ENOUGH)
			(void)snprintf(x.next, sizeof(x.next), "%s-%" PRIu64, x.n > 0 ? f->all[i].name : "", x.last);
		else
			x.last = 0;
		x.after = 0;
	}
	srv_items_answer(r, &x.out, rc == ENOUGH ? 0 : rc, &err, x.next);
}

struct showing {
	struct srv_out *out;
	const char *folder;
};

static int show_letter(const struct sl_dlq_letter *l, void *ctx)
{
	const struct showing *s = ctx;
	srv_out_open(s->out, '{');
	out_letter(s->out, s->folder, l);
	/* What is in it: an event in its fields, or the bytes. */
	struct sl_event e;
	struct sl_err err = SL_ERR_INIT;
	bool plain = l->encoding == SL_DLQ_PLAIN;
	bool event = plain && sl_event_decode(l->item, l->item_len, &e, &err) == 0;
	srv_out_name(s->out, "event");
	if (event) {
		srv_out_open(s->out, '{');
		SRV_FIELD(s->out, "type", str, sl_event_type_name(e.type));
		SRV_FIELD(s->out, "job_id", id, e.job_id);
		SRV_FIELD(s->out, "attempt", int, e.attempt);
		SRV_FIELD(s->out, "ts", time, e.ts_ms);
		srv_out_close(s->out, '}');
	} else {
		srv_out_raw(s->out, NULL);
	}
	srv_out_name(s->out, "text");
	if (event && sl__utf8_valid_n(e.data, e.len))
		srv_out_strn(s->out, e.data, e.len);
	else
		srv_out_raw(s->out, NULL);
	srv_out_name(s->out, "data_b64");
	srv_out_base64(s->out, l->item, l->item_len < SHOWN_BYTES ? l->item_len : SHOWN_BYTES);
	srv_out_close(s->out, '}');
	return 0;
}

/* The folder of {id}, with its number; answers 404 when it does not exist. */
static const struct folder *folder_of(srv_request *r, const struct folders *f, uint64_t *number)
{
	const char *id = srv_param(r, "id");
	if (f == NULL)
		return NULL;
	size_t i = find_id(f, id, number);
	if (i < f->n)
		return &f->all[i];
	srv_error(r, 404, "not_found", "no dead letter '%.60s'", id);
	return NULL;
}

void srv_letters_show(srv_request *r, void *ctx)
{
	const struct srv_core *core = ((struct srv_api *)ctx)->core;
	struct sl_err err = SL_ERR_INIT;
	struct srv_out o = {0};
	uint64_t number = 0;
	sl_dlq *q = NULL;
	if (!srv_in_query(r, NULL))
		return;
	struct folders *f SL_CLEANUP(free_folders) = list_folders(core, r);
	const struct folder *x = folder_of(r, f, &number);
	if (x == NULL)
		return;
	int rc = open_letter_folder(core, x, false, &q, &err);
	if (rc == 0)
		rc = sl_dlq_show(q, number, show_letter, &(struct showing){&o, x->name}, &err);
	sl_dlq_close(q);
	srv_out_answer(r, 200, &o, rc != 0 ? &err : NULL);
}

/* ---- redriving ---- */

struct redrive {
	struct srv_core *core;
	uint32_t incarnation;
	uint64_t sequence, done, failed;
	uint64_t only;     /* one letter; 0: all */
	struct sl_err err; /* of the last that stayed */
};

static int write_event(struct redrive *d, const struct sl_dlq_letter *l, struct sl_err *err)
{
	const sl_store *store = d->core->store;
	struct sl_event e;
	if (l->encoding != SL_DLQ_PLAIN)
		return sl_err_set(err, SL_EKEY,
				  "the dead letter is sealed; redrive it with 'sluice dlq redrive --key-file'");
	int rc = sl_event_decode(l->item, l->item_len, &e, err);
	if (rc != 0)
		return sl_err_set(err, SL_EDATA,
				  "the dead letter is not an event; redrive it with 'sluice dlq redrive'");
	uint64_t hash = UINT64_C(14695981039346656037);
	for (size_t i = 0; i < l->item_len; i++)
		hash = (hash ^ ((const uint8_t *)l->item)[i]) * UINT64_C(1099511628211);
	struct sl_event_row row = {.stream = "redrive",
				   .incarnation = d->incarnation,
				   .sequence = d->sequence + 1,
				   .crc = hash,
				   .job_id = e.job_id,
				   .attempt = e.attempt,
				   .type = e.type,
				   .partial = e.partial,
				   .ts_ms = e.ts_ms,
				   .payload = e.data,
				   .payload_len = e.len};
	struct sl_event_mark mark = {.stream = row.stream, .incarnation = row.incarnation};
	rc = store->ops->events_append(store->ctx, &row, 1, &mark, 1, NULL, err);
	d->sequence += rc == 0;
	return rc;
}

static int drive(const struct sl_dlq_letter *l, void *ctx)
{
	struct redrive *d = ctx;
	struct sl_err err = SL_ERR_INIT;
	int rc = write_event(d, l, &err);
	if (rc == 0)
		return 0;
	d->err = err;
	/* An unavailable store would not take the next one either. */
	return rc == SL_EDATA || rc == SL_EKEY || err.error_class == SL_CLASS_POISON ? rc : SL_ECANCELLED;
}

static int drive_one(const struct sl_dlq_letter *l, void *ctx)
{
	struct redrive *d = ctx;
	if (l->acknowledged)
		return sl_err_set(&d->err, SL_EEXIST, "the dead letter was already redriven or discarded");
	return write_event(d, l, &d->err);
}

static int drive_folder(struct redrive *d, const struct folder *x, struct sl_err *err)
{
	uint64_t done = 0, failed = 0;
	sl_dlq *q = NULL;
	int rc = open_letter_folder(d->core, x, true, &q, err);
	if (rc != 0)
		return rc;
	if (d->only == 0) {
		rc = sl_dlq_redrive(q, drive, d, &done, &failed, err);
		if (rc == SL_ECANCELLED) {
			*err = d->err;
			rc = d->err.code;
		}
	} else {
		rc = sl_dlq_show(q, d->only, drive_one, d, err);
		if (rc == 0)
			rc = sl_dlq_ack(q, d->only, err);
		else if (d->err.code != 0)
			*err = d->err;
		done = rc == 0;
	}
	d->done += done;
	d->failed += failed;
	sl_dlq_close(q);
	return rc;
}

static void redrive_begin(struct srv_letters *l, struct redrive *d) SL_ACQUIRE(l->mu)
{
	*d = (struct redrive){.core = l->core};
	if (getrandom(&d->incarnation, sizeof(d->incarnation), 0) != sizeof(d->incarnation))
		d->incarnation = (uint32_t)sl__clock_ms();
	d->incarnation = (d->incarnation & 0xffffff) | 1;
	sl__lock(&l->mu);
}

static void redrive_end(srv_request *r, struct srv_letters *l, struct redrive *d, int rc, struct sl_err *err)
	SL_RELEASE(l->mu)
{
	struct srv_out o = {0};
	l->counted_ms = 0;
	sl__unlock(&l->mu);
	if (rc == SL_EDATA || rc == SL_EKEY) {
		srv_error(r, 422, "refused", "%s", err->msg);
		return;
	}
	srv_out_open(&o, '{');
	SRV_FIELD(&o, "redriven", int, (int64_t)d->done);
	SRV_FIELD(&o, "failed", int, (int64_t)d->failed);
	SRV_FIELD(&o, "last_error", str, d->err.code != 0 ? d->err.msg : NULL);
	srv_out_close(&o, '}');
	srv_out_answer(r, 200, &o, rc != 0 ? err : NULL);
}

void srv_letters_redrive(srv_request *r, void *ctx)
{
	struct srv_letters *l = ((struct srv_api *)ctx)->letters;
	struct sl_err err = SL_ERR_INIT;
	struct redrive d;
	uint64_t number = 0;
	if (!srv_in_query(r, NULL) || !srv_in_no_body(r))
		return;
	struct folders *f SL_CLEANUP(free_folders) = list_folders(l->core, r);
	const struct folder *x = folder_of(r, f, &number);
	if (x == NULL || !srv_change_record(r, l->core))
		return;
	redrive_begin(l, &d);
	d.only = number;
	redrive_end(r, l, &d, drive_folder(&d, x, &err), &err);
}

void srv_letters_redrive_all(srv_request *r, void *ctx)
{
	static const char *const names[] = {"all", NULL};
	struct srv_letters *l = ((struct srv_api *)ctx)->letters;
	struct sl_err err = SL_ERR_INIT;
	struct redrive d;
	struct srv_object body;
	bool all = false;
	int rc = 0;
	if (!srv_in_query(r, NULL) || !srv_in_body(r, names, NULL, &body) || !srv_in_bool(&body, "all", &all))
		return;
	if (!all) {
		srv_error(r, 400, "invalid", "all: must be true");
		return;
	}
	struct folders *f SL_CLEANUP(free_folders) = list_folders(l->core, r);
	if (f == NULL || !srv_change_record(r, l->core))
		return;
	redrive_begin(l, &d);
	for (size_t i = 0; i < f->n && rc == 0; i++)
		rc = drive_folder(&d, &f->all[i], &err);
	redrive_end(r, l, &d, rc, &err);
}

/* ---- counting ---- */

int64_t srv_letters_waiting(struct srv_letters *l)
{
	sl__lock(&l->mu);
	int64_t now = sl__clock_ms();
	if (l->counted_ms == 0 || now - l->counted_ms > COUNT_EVERY_MS) {
		struct folders *f SL_CLEANUP(free_folders) = list_folders(l->core, NULL);
		l->waiting = f != NULL ? 0 : -1;
		for (size_t i = 0; f != NULL && i < f->n; i++) {
			struct sl_dlq_stats stats = {.struct_size = sizeof(stats)};
			struct sl_err err = SL_ERR_INIT;
			sl_dlq *q = NULL;
			if (open_letter_folder(l->core, &f->all[i], false, &q, &err) == 0 &&
			    sl_dlq_get_stats(q, &stats, &err) == 0)
				l->waiting += (int64_t)stats.unacknowledged;
			sl_dlq_close(q);
		}
		l->counted_ms = now;
	}
	int64_t n = l->waiting;
	sl__unlock(&l->mu);
	return n;
}

int srv_letters_new(struct srv_letters **out, struct srv_core *core, struct sl_err *err)
{
	struct srv_letters *l = calloc(1, sizeof(*l));
	if (l == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory");
	l->core = core;
	sl__mutex_init(&l->mu);
	*out = l;
	return 0;
}

void srv_letters_free(struct srv_letters *l)
{
	if (l == NULL)
		return;
	sl__mutex_fini(&l->mu);
	free(l);
}
