/* SPDX-License-Identifier: Apache-2.0 */
#include "loadresume.h"

#include "load.h"
#include "stop.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CHUNK = 1024 };

/* ---- records ---- */

static uint64_t end_of(const struct loadresume *r)
{
	return r->had.n_ranges ? r->had.ranges[r->had.n_ranges - 1].end : 0;
}

void loadresume_start(struct loadresume *r)
{
	r->at = 0;
	r->sum = r->begin = r->fresh = 0;
	r->checked = 0;
}

enum loadresume_what loadresume_end(struct loadresume *r)
{
	if (r->checked)
		return LOADRESUME_DONE;
	r->checked = 1;
	return r->sum == r->had.hash ? LOADRESUME_DONE : LOADRESUME_CHANGED;
}

enum loadresume_what loadresume_next(struct loadresume *r, const struct sl_record *record, struct sl_input_range *range)
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
			return LOADRESUME_DONE;
		}
		cut.len = had[r->at].end - record->offset;
		r->sum += range->hash - sl_record_hash(record) + sl_record_hash(&cut);
		return r->at + 1 == r->had.n_ranges && r->sum == r->had.hash ? LOADRESUME_CUT : LOADRESUME_CHANGED;
	}
	if (record->offset >= end_of(r) && loadresume_end(r) == LOADRESUME_CHANGED)
		return LOADRESUME_CHANGED;
	r->fresh++;
	return LOADRESUME_NEW;
}

/* ---- the log ---- */

static int get_varint(const unsigned char **at, const unsigned char *end, uint64_t *v)
{
	*v = 0;
	for (unsigned shift = 0; *at < end && shift < 64; shift += 7) {
		unsigned char byte = *(*at)++;

		*v |= (uint64_t)(byte & 0x7F) << shift;
		if (byte < 0x80)
			return 1;
	}
	return 0;
}

/* A record of docs/formats/coordinator.md: version, position, begin and end of the range. */
static int take_logged(const struct sl_wal_record *record, void *ctx)
{
	const unsigned char *at = record->payload, *stop = at + record->payload_len;
	struct loadresume *r = ctx;
	uint64_t position, begin, end;

	if (record->status != SL_WAL_PENDING || at == stop || *at++ != 1 || !get_varint(&at, stop, &position) ||
	    !get_varint(&at, stop, &begin) || !get_varint(&at, stop, &end) || !end)
		return 0;
	if (r->n_logged == r->cap_logged) {
		size_t cap = r->cap_logged ? r->cap_logged * 2 : 1024;
		uint64_t *logged = realloc(r->logged, cap * sizeof(*logged));

		if (!logged)
			return SL_ENOMEM;
		r->logged = logged;
		r->cap_logged = cap;
	}
	r->logged[r->n_logged++] = begin;
	return 0;
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

int loadresume_read_log(struct loadresume *r, sl_wal *log, struct sl_err *err)
{
	int rc = sl_wal_iterate(log, 0, take_logged, r, err);

	if (r->n_logged)
		qsort(r->logged, r->n_logged, sizeof(*r->logged), by_number);
	return rc == SL_ENOMEM ? sl_err_set(err, SL_ENOMEM, "no memory for what is pending in the log") : rc;
}

int loadresume_is_logged(const struct loadresume *r, const struct sl_input_range *range)
{
	return r->n_logged && bsearch(&range->begin, r->logged, r->n_logged, sizeof(*r->logged), by_number) != NULL;
}

void loadresume_fini(struct loadresume *r)
{
	free(r->logged);
	r->logged = NULL;
	r->n_logged = r->cap_logged = 0;
}

/* ---- the input ---- */

/* FNV-1a over the names of a header. */
static uint64_t hash_header(const struct load *l)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	if (l->to.opts.format != SL_ROWS_CSV || opt_flag(l->args, "no-header"))
		return 0;
	for (size_t i = 0; i < l->to.opts.n_columns; i++)
		for (const char *p = l->to.opts.columns[i];; p++) {
			h = (h ^ (unsigned char)*p) * UINT64_C(0x100000001b3);
			if (!*p)
				break;
		}
	return h;
}

/* What the records are kept under: the path of a file, or the name that was given. 0, or an exit code. */
static int name_input(struct load *l, int i, char out[PATH_MAX + 8])
{
	const char *id = opt_str(l->args, "load-id"), *input = l->inputs[i];
	int is_stdin = strcmp(input, "-") == 0, is_file;
	char full[PATH_MAX];
	struct stat st;

	if (id && (is_stdin || l->n_inputs == 1)) {
		snprintf(out, PATH_MAX + 8, "load-id:%s", id);
		return 0;
	}
	if (is_stdin || !realpath(input, full))
		snprintf(full, sizeof(full), "%s", input);
	/* A pipe of the shell has another name each time. */
	is_file = !is_stdin && stat(input, &st) == 0 && S_ISREG(st.st_mode);
	if (is_stdin || (!is_file && (strncmp(full, "/proc/", 6) == 0 || strncmp(full, "/dev/", 5) == 0)))
		return cli_usage(l->cli,
				 "%s has no name by which an interrupted load could be resumed; add --load-id=NAME, or "
				 "--no-resume to load it without a record",
				 is_stdin ? "standard input" : input);
	snprintf(out, PATH_MAX + 8, "%s", full);
	return 0;
}

/* Compare the records of a file with what was written. *found is not touched by a pipe: that is compared later. */
static int compare(struct load *l, enum loadresume_what *found)
{
	struct loadinput in = {.fd = -1};
	struct loadresume *r = &l->resume;
	struct sl_err err = SL_ERR_INIT;
	struct sl_record records[CHUNK];
	struct sl_input_range range;
	enum loadresume_what what = LOADRESUME_DONE;
	struct stat st;
	size_t n = 1;
	int rc;

	if (strcmp(l->in.path, "-") == 0 || stat(l->in.path, &st) || !S_ISREG(st.st_mode))
		return 0;
	loadresume_start(r);
	rc = loadinput_open(&in, l->cli, l->in.path, l->records);
	while (!rc && n && !r->checked && what < LOADRESUME_CHANGED) {
		if (sl_records_next(in.records, records, CHUNK, &n, &err))
			rc = loadinput_failed(&in, &err);
		for (size_t i = 0; !rc && i < n && !r->checked && what < LOADRESUME_CHANGED; i++)
			what = loadresume_next(r, &records[i], &range);
	}
	if (!rc && what < LOADRESUME_CHANGED)
		what = loadresume_end(r);
	*found = what;
	loadinput_close(&in);
	return rc;
}

static int begin(struct load *l, const char *name, int again)
{
	const struct sl_sink_ops *ops = l->sink.ops;
	struct sl_err err = SL_ERR_INIT;

	l->resume =
		(struct loadresume){.on = 1, .had = {.struct_size = sizeof(l->resume.had)}, .header = hash_header(l)};
	if (ops->load_begin(l->sink.ctx, name, again, &l->resume.had, &err) == 0)
		return 0;
	l->resume.on = 0;
	if (err.code == SL_EACCES) /* the text is of the library, the way out is ours */
		snprintf(err.msg + strlen(err.msg), sizeof(err.msg) - strlen(err.msg),
			 "; without it an interrupted load cannot be resumed: use --no-resume");
	return cli_fail(l->cli, &err, sl_sink_target(&l->sink));
}

int load_resume(struct load *l, int i)
{
	char name[PATH_MAX + 8];
	enum loadresume_what found = LOADRESUME_NEW;
	int rc;

	l->resume = (struct loadresume){.on = 0};
	if (!l->sink.ops->load_begin || opt_flag(l->args, "no-resume"))
		return 0;
	rc = name_input(l, i, name);
	rc = rc ? rc : begin(l, name, opt_flag(l->args, "again"));
	if (!rc && l->resume.had.n_ranges)
		rc = compare(l, &found);
	if (!rc && found == LOADRESUME_CHANGED && l->resume.had.finished) {
		cli_say(l->cli, SL_LOG_WARN, "%s has changed since it was loaded: loading it as a new file",
			l->in.name);
		rc = begin(l, name, 1);
	} else if (!rc && found >= LOADRESUME_CHANGED) {
		rc = load_changed(l, found);
	}
	if (!rc && l->resume.had.n_ranges && !l->resume.had.finished &&
	    (!l->since_ms || l->resume.had.started_ms < l->since_ms))
		l->since_ms = l->resume.had.started_ms;
	loadresume_start(&l->resume);
	return rc;
}

int load_changed(struct load *l, enum loadresume_what found)
{
	if (found == LOADRESUME_CUT)
		cli_say(l->cli, SL_LOG_ERROR,
			"%s: the last record was loaded before it was complete; delete its row and load the rest from "
			"another "
			"file, or load all of it again with --again",
			l->in.name);
	else
		cli_say(l->cli, SL_LOG_ERROR,
			"%s is not what an earlier run had begun to load: restore it, or load this one from its "
			"beginning with --again",
			l->in.name);
	return EXIT_BAD_DATA;
}

int load_resumed(struct load *l, int rc)
{
	const struct loadresume *r = &l->resume;
	struct sl_err err = SL_ERR_INIT;

	if (!r->on || l->left) /* the next run starts from what is recorded */
		return rc;
	if (!rc && r->had.finished && !r->fresh)
		cli_say(l->cli, SL_LOG_WARN, "%s is already loaded; use --again to load it again", l->in.name);
	if (l->sink.ops->load_end(l->sink.ctx, !rc && !l->total.dropped, &err) && !rc)
		rc = cli_fail(l->cli, &err, sl_sink_target(&l->sink));
	return rc;
}
