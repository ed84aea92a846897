/* SPDX-License-Identifier: Apache-2.0 */
/* Walk the records of a log's segments in order, and report records, damage and gaps. */
#include "wal/survey.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

static int report_find(const struct wal_survey *s, size_t segment, enum wal_finding kind, const struct wal_item *item,
		       struct sl_err *err)
{
	struct wal_find find = {.kind = kind, .segment = segment, .item = item};
	return s->fn(&find, err, s->ctx);
}

static int survey_record(struct wal_survey *s, size_t segment, const struct wal_item *item, struct sl_err *err)
{
	struct wal_source *src = &s->sources[segment];
	src->last_ms = item->record.timestamp_ms;
	if (item->record.status != SL_WAL_PENDING) {
		src->marks++;
		return report_find(s, segment, WAL_FOUND_RECORD, item, err);
	}
	/* Sequences between the last data record and this one. At the very front only damage shows that some are
	 * missing. */
	uint64_t expect = s->last + 1, found = item->record.sequence;
	if (s->last == 0) {
		uint64_t named = src->named_first, lost = s->front_bytes / WAL_FRAME_BYTES;
		expect = named != 0 && named < found ? named : lost < found ? SL_MAX(found - lost, (uint64_t)1) : 1;
		if (s->front_bytes == 0 && named == 0)
			expect = found;
	}
	s->last = src->last = found;
	if (src->first == 0)
		src->first = found;
	src->records++;
	if (expect < found) {
		struct wal_find gap = {.kind = WAL_FOUND_GAP,
				       .segment = segment,
				       .item = item,
				       .gap_first = expect,
				       .gap_last = found - 1};
		int rc = s->fn(&gap, err, s->ctx);
		if (rc != 0)
			return rc;
	}
	return report_find(s, segment, WAL_FOUND_RECORD, item, err);
}

static int survey_reader(struct wal_survey *s, size_t segment, struct wal_reader *r, struct sl_err *err)
{
	struct wal_source *src = &s->sources[segment];
	struct wal_item item = {.offset = 0, .length = WAL_HEADER_BYTES, .reason = "header damaged"};
	/* The header. */
	size_t got;
	const uint8_t *p = sl__wal_view(r, 0, WAL_HEADER_BYTES, &got);
	if (p == NULL)
		return sl_err_set_errno(err, r->error, "read %s", src->name);
	src->end = got;
	src->too_short = got < WAL_HEADER_BYTES;
	if (src->too_short)
		return 0;
	src->header_state = sl__wal_header_decode(p, &src->header);
	if (src->header_state == WAL_HEADER_UNSUPPORTED)
		return sl_err_set(err, SL_EUNSUPPORTED, "%s: format version %u is newer than this program supports",
				  src->name, sl__get32(p + 8));
	int rc = src->header_state != WAL_HEADER_OK ? report_find(s, segment, WAL_FOUND_HEADER, &item, err) : 0;
	/* The records. */
	struct wal_walk walk;
	sl__wal_walk_init(&walk, r, s->last);
	for (enum wal_step step = WAL_STEP_RECORD; rc == 0 && step != WAL_STEP_END;) {
		step = sl__wal_walk_next(&walk, &item, err);
		switch (step) {
		case WAL_STEP_RECORD:
			rc = survey_record(s, segment, &item, err);
			break;
		case WAL_STEP_DAMAGE:
			src->damage++;
			if (s->last == 0)
				s->front_bytes += item.length;
			rc = report_find(s, segment, WAL_FOUND_DAMAGE, &item, err);
			break;
		case WAL_STEP_END:
			src->end = item.offset;
			src->torn = item.length;
			if (item.length == 0)
				break;
			if (segment + 1 == s->n)
				return report_find(s, segment, WAL_FOUND_TORN, &item, err);
			/* A sealed segment was trimmed: bytes after its records are damage, with valid segments after
			 * them. */
			src->damage++;
			rc = report_find(s, segment, WAL_FOUND_DAMAGE, &item, err);
			break;
		case WAL_STEP_ERROR:
			rc = sl_err_set_errno(err, r->error, "read %s", src->name);
		}
	}
	return rc;
}

static int survey_file(struct wal_survey *s, size_t segment, struct sl_err *err)
{
	struct wal_source *src = &s->sources[segment];
	struct sl_io_stat st;
	int fd = src->fd >= 0 ? src->fd : SL__IO(s->env, open, src->path, O_RDONLY | O_NOFOLLOW, 0);
	if (fd == -ENOENT && s->n > 1) {
		src->missing = true;
		return 0;
	}
	if (fd < 0)
		return sl_err_set_errno(err, -fd, "open %s", src->path);
	int rc = SL__IO(s->env, fstat, fd, &st);
	if (rc < 0) {
		rc = sl_err_set_errno(err, -rc, "stat %s", src->path);
	} else if (!S_ISREG(st.mode)) {
		rc = sl_err_set(err, SL_EDATA, "%s is not a regular file", src->path);
	} else {
		struct wal_reader r;
		src->file_size = st.size;
		sl__wal_reader_init(&r, s->env, fd, SL_MIN(st.size, src->size));
		rc = survey_reader(s, segment, &r, err);
		sl__wal_reader_fini(&r);
	}
	if (src->fd < 0)
		(void)SL__IO(s->env, close, fd);
	return rc;
}

int sl__wal_survey(struct wal_survey *s, struct sl_err *err)
{
	s->last = s->front_bytes = 0;
	int rc = 0;
	for (size_t i = 0; i < s->n && rc == 0; i++) {
		struct wal_source *src = &s->sources[i];
		src->first = src->last = src->records = src->marks = src->end = src->torn = src->damage = 0;
		src->before = s->last;
		src->missing = src->too_short = false;
		src->header_state = WAL_HEADER_BAD;
		if (src->mem != NULL) {
			struct wal_reader r;
			src->file_size = src->size;
			sl__wal_reader_init_memory(&r, s->env, src->mem, (size_t)src->size);
			rc = survey_reader(s, i, &r, err);
			sl__wal_reader_fini(&r);
		} else {
			rc = survey_file(s, i, err);
		}
	}
	return rc;
}
