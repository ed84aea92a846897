/* SPDX-License-Identifier: Apache-2.0 */
/* Which records of an input a table already has, and whether the input is still the same. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/compare.h"
#include "base/fnv.h"
#include "base/varint.h"
#include "load/load.h"

enum { CHUNK = 1024 };

/* ---- records ---- */

static uint64_t end_of(const struct load_resume *r)
{
	return r->had.n_ranges ? r->had.ranges[r->had.n_ranges - 1].end : 0;
}

void sl__load_resume_start(struct load_resume *r)
{
	r->at = 0;
	r->sum = r->begin = r->fresh = 0;
	r->checked = false;
}

enum load_resume_what sl__load_resume_end(struct load_resume *r)
{
	if (r->checked)
		return LOAD_RESUME_DONE;
	r->checked = true;
	return r->sum == r->had.hash ? LOAD_RESUME_DONE : LOAD_RESUME_CHANGED;
}

enum load_resume_what sl__load_resume_next(struct load_resume *r, const struct sl_record *record,
					   struct sl_input_range *range)
{
	uint64_t last = record->offset + record->len;
	const struct sl_input_range *had = r->had.ranges;

	*range = (struct sl_input_range){.begin = r->begin, .end = record->end, .hash = sl_record_hash(record)};
	if (r->begin == 0)
		range->hash += r->header;
	r->begin = record->end;
	while (r->at < r->had.n_ranges && had[r->at].end <= record->offset)
		r->at++;
	if (r->at < r->had.n_ranges && had[r->at].begin <= record->offset) {
		struct sl_record cut = *record;

		if (last <= had[r->at].end) {
			r->sum += range->hash;
			return LOAD_RESUME_DONE;
		}
		cut.len = had[r->at].end - record->offset;
		r->sum += range->hash - sl_record_hash(record) + sl_record_hash(&cut);
		return r->at + 1 == r->had.n_ranges && r->sum == r->had.hash ? LOAD_RESUME_CUT : LOAD_RESUME_CHANGED;
	}
	if (record->offset >= end_of(r) && sl__load_resume_end(r) == LOAD_RESUME_CHANGED)
		return LOAD_RESUME_CHANGED;
	r->fresh++;
	return LOAD_RESUME_NEW;
}

/* ---- the log ---- */

/* A record of docs/formats/coordinator.md: version, position, begin and end of the range. */
static int add_logged(const struct sl_wal_record *record, void *ctx)
{
	const unsigned char *at = record->payload, *stop = at + record->payload_len;
	struct load_resume *r = ctx;
	uint64_t position, begin, end;

	if (record->status != SL_WAL_PENDING || at == stop || *at++ != 1 || !sl__varint_get(&at, stop, &position) ||
	    !sl__varint_get(&at, stop, &begin) || !sl__varint_get(&at, stop, &end) || !end)
		return 0;
	uint64_t *logged = sl__grow(r->env, r->logged, r->n_logged, &r->cap_logged, sizeof(*logged));

	if (logged == NULL)
		return SL_ENOMEM;
	r->logged = logged;
	r->logged[r->n_logged++] = begin;
	return 0;
}

int sl__load_resume_read_log(struct load_resume *r, sl_wal *log, struct sl_err *err)
{
	int rc = sl_wal_iterate(log, 0, add_logged, r, err);

	if (r->n_logged)
		qsort(r->logged, r->n_logged, sizeof(*r->logged), sl__compare_u64);
	return rc == SL_ENOMEM ? sl__no_memory(err, "pending records of the log") : rc;
}

bool sl__load_resume_is_logged(const struct load_resume *r, const struct sl_input_range *range)
{
	return r->n_logged &&
	       bsearch(&range->begin, r->logged, r->n_logged, sizeof(*r->logged), sl__compare_u64) != NULL;
}

void sl__load_resume_fini(struct load_resume *r)
{
	if (r->env != NULL)
		sl__free(r->env, r->logged);
	r->logged = NULL;
	r->n_logged = r->cap_logged = 0;
}

/* ---- the input ---- */

/* What the records are kept under: the path of a file, or the name that was given. */
static int name_input(sl_load *l, size_t i, char out[PATH_MAX + 8], struct sl_err *err)
{
	const char *input = l->paths[i];
	bool is_stdin = strcmp(input, "-") == 0, is_file;
	char full[PATH_MAX];
	struct stat st;

	if (l->load_id != NULL && (is_stdin || l->n_paths == 1)) {
		(void)snprintf(out, PATH_MAX + 8, "load-id:%s", l->load_id);
		return 0;
	}
	if (is_stdin || realpath(input, full) == NULL)
		(void)snprintf(full, sizeof(full), "%s", input);
	/* A pipe of the shell has another name each time. */
	is_file = !is_stdin && stat(input, &st) == 0 && S_ISREG(st.st_mode);
	if (is_stdin || (!is_file && (strncmp(full, "/proc/", 6) == 0 || strncmp(full, "/dev/", 5) == 0)))
		return sl_err_set(err, SL_EINVAL,
				  "%.100s has no name to resume an interrupted load by; add --load-id=NAME, or "
				  "--no-resume to load it without a record",
				  is_stdin ? "standard input" : input);
	(void)snprintf(out, PATH_MAX + 8, "%s", full);
	return 0;
}

/* Compare the records of a file with what was written. *found is not touched by a pipe: that is compared later. */
static int compare_input(sl_load *l, enum load_resume_what *found, struct sl_err *err)
{
	struct load_input in = {.fd = -1};
	struct load_resume *r = &l->resume;
	struct sl_record records[CHUNK];
	struct sl_input_range range;
	enum load_resume_what what = LOAD_RESUME_DONE;
	struct stat st;
	size_t n = 1;
	int rc;

	if (strcmp(l->in.path, "-") == 0 || stat(l->in.path, &st) || !S_ISREG(st.st_mode))
		return 0;
	sl__load_resume_start(r);
	rc = sl__load_input_open(&in, l, l->in.path, err);
	while (rc == 0 && n && !r->checked && what < LOAD_RESUME_CHANGED) {
		rc = sl_records_next(in.records, records, CHUNK, &n, err);
		if (rc != 0)
			rc = sl__load_input_failed(&in, rc, err);
		for (size_t i = 0; rc == 0 && i < n && !r->checked && what < LOAD_RESUME_CHANGED; i++)
			what = sl__load_resume_next(r, &records[i], &range);
	}
	if (rc == 0 && what < LOAD_RESUME_CHANGED)
		what = sl__load_resume_end(r);
	*found = what;
	sl__load_input_close(&in);
	return rc;
}

static int begin_load(sl_load *l, const char *name, bool again, struct sl_err *err)
{
	const struct sl_sink_opts *o = &l->to.opts;
	struct sl_err why = SL_ERR_INIT;
	int rc;

	l->resume = (struct load_resume){.env = &l->env, .on = true, .had = {.struct_size = sizeof(l->resume.had)}};
	if (o->format == SL_ROWS_CSV && l->header) { /* the names of the header, each with its NUL */
		l->resume.header = SL__FNV_INIT;
		for (size_t i = 0; i < o->n_columns; i++)
			l->resume.header = sl__fnv_add(l->resume.header, o->columns[i], strlen(o->columns[i]) + 1);
	}
	rc = l->sink.ops->load_begin(l->sink.ctx, name, again, &l->resume.had, &why);
	if (rc == 0)
		return 0;
	l->resume.on = false;
	if (rc == SL_EACCES)
		return sl_err_set(err, rc, "%.150s; grant it, or use --no-resume to load without a record", why.msg);
	if (err != NULL)
		*err = why;
	return sl__load_name_error(err, rc, sl_sink_target(&l->sink));
}

int sl__load_resume(sl_load *l, size_t i, struct sl_err *err)
{
	char name[PATH_MAX + 8];
	enum load_resume_what found = LOAD_RESUME_NEW;
	int rc;

	l->resume = (struct load_resume){.env = &l->env};
	if (l->sink.ops->load_begin == NULL || !l->wants_resume)
		return 0;
	rc = name_input(l, i, name, err);
	if (rc != 0)
		return rc;
	rc = begin_load(l, name, l->again, err);
	if (rc != 0)
		return rc;
	if (l->resume.had.n_ranges)
		rc = compare_input(l, &found, err);
	if (rc == 0 && found == LOAD_RESUME_CHANGED && l->resume.had.finished) {
		sl__log_text(&l->env, SL_LOG_WARN, "load",
			     "%s has changed since it was loaded: loading it as a new file", l->in.name);
		rc = begin_load(l, name, true, err);
	} else if (rc == 0 && found >= LOAD_RESUME_CHANGED) {
		rc = sl__load_changed(l, found, err);
	}
	if (rc == 0 && l->resume.had.n_ranges && !l->resume.had.finished &&
	    (!l->since_ms || l->resume.had.started_ms < l->since_ms))
		l->since_ms = l->resume.had.started_ms;
	sl__load_resume_start(&l->resume);
	return rc;
}

int sl__load_changed(const sl_load *l, enum load_resume_what found, struct sl_err *err)
{
	if (found == LOAD_RESUME_CUT)
		return sl_err_set(err, SL_EDATA,
				  "%.80s: the last record was loaded before it was complete; delete its row and load "
				  "the rest from another file, or load the whole file again with --again",
				  l->in.name);
	return sl_err_set(err, SL_EDATA,
			  "%.90s has changed since an earlier run began to load it; restore it, or load it from the "
			  "beginning with --again",
			  l->in.name);
}

int sl__load_resumed(sl_load *l, int rc, struct sl_err *err)
{
	const struct load_resume *r = &l->resume;
	struct sl_err why = SL_ERR_INIT;
	int ended;

	if (!r->on || l->left) /* the next run starts from what is recorded */
		return rc;
	if (rc == 0 && r->had.finished && !r->fresh)
		sl__log_text(&l->env, SL_LOG_WARN, "load", "%s is already loaded; use --again to load it again",
			     l->in.name);
	ended = l->sink.ops->load_end(l->sink.ctx, rc == 0 && !l->total.dropped, &why);
	if (rc != 0 || !ended)
		return rc;
	if (err != NULL)
		*err = why;
	return sl__load_name_error(err, ended, sl_sink_target(&l->sink));
}
