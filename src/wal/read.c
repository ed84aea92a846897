/* SPDX-License-Identifier: Apache-2.0 */
/* Reading an open log: one record, and a walk over all of them. */
#include <errno.h>
#include <fcntl.h>

#include "wal/handle.h"
#include "wal/letter.h"
#include "wal/scan.h"
#include "wal/segs.h"

/* The first sequence of the segment that holds `sequence`; 0 when none does. */
static uint64_t segment_first(const sl_wal *w, uint64_t sequence, uint32_t *version, bool *active) SL_REQUIRES(w->mu)
{
	*active = w->active_first != 0 && sequence >= w->active_first;
	if (*active) {
		*version = w->header.version;
		return w->active_first;
	}
	for (size_t i = w->n_segments; i > 0; i--)
		if (w->segments[i - 1].first <= sequence) {
			*version = w->segments[i - 1].version;
			return w->segments[i - 1].first;
		}
	return 0;
}

char *sl__wal_segment_path(sl_wal *w, uint64_t sequence)
{
	uint32_t version;
	bool active;
	uint64_t first = segment_first(w, sequence, &version, &active);
	return sl__wal_file_path(&w->env, w->dir, w->id, active ? 0 : first);
}

static uint64_t segment_now(sl_wal *w, uint64_t sequence, uint32_t *version, bool *active)
{
	sl__lock(&w->mu);
	uint64_t first = segment_first(w, sequence, version, active);
	sl__unlock(&w->mu);
	return first;
}

/* A file can be sealed, which renames it, between asking for its name and opening it: then SL_EAGAIN. */
static int open_segment(sl_wal *w, uint64_t sequence, uint64_t first, bool active, int *out, struct sl_err *err)
{
	char *path = sl__wal_file_path(&w->env, w->dir, w->id, active ? 0 : first);
	if (path == NULL)
		return sl_err_set(err, SL_ENOMEM, "read %s: no memory", w->path);
	int fd = SL__IO(&w->env, open, path, O_RDONLY | O_NOFOLLOW, 0);
	bool active_now;
	uint32_t version;
	int rc = 0;
	if (segment_now(w, sequence, &version, &active_now) != first || active_now != active)
		rc = SL_EAGAIN;
	else if (fd < 0)
		rc = sl_err_set_errno(err, -fd, "open %s", path);
	sl__free(&w->env, path);
	if (rc == 0)
		*out = fd;
	else if (fd >= 0)
		(void)SL__IO(&w->env, close, fd);
	return rc;
}

int sl__wal_open_segment_of(sl_wal *w, uint64_t sequence, int *fd, struct sl_err *err)
{
	int rc = SL_EAGAIN;
	for (int tries = 0; rc == SL_EAGAIN && tries < 100; tries++) {
		bool active;
		uint32_t version;
		uint64_t first = segment_now(w, sequence, &version, &active);
		if (first == 0)
			return SL_ENOENT;
		rc = open_segment(w, sequence, first, active, fd, err);
	}
	return rc;
}

/* Make the segment that holds sequence the one that is open for reading. */
static int open_for_read(sl_wal *w, uint64_t sequence, uint32_t *version, struct sl_err *err) SL_REQUIRES(w->read_mu)
{
	for (int tries = 0; tries < 100; tries++) {
		bool active;
		uint64_t first = segment_now(w, sequence, version, &active);
		if (first == 0)
			break;
		if (w->read_fd >= 0 && w->read_first == first)
			return 0;
		sl__close_fd(&w->env, &w->read_fd);
		int rc = open_segment(w, sequence, first, active, &w->read_fd, err);
		if (rc == 0)
			w->read_first = first;
		if (rc != SL_EAGAIN)
			return rc;
	}
	return sl_err_set(err, SL_ENOENT, "%s: sequence %llu is not in it", w->path, (unsigned long long)sequence);
}

static int read_bytes(sl_wal *w, const struct wal_entry *entry, uint8_t *bytes, uint32_t *version, struct sl_err *err)
	SL_REQUIRES(w->read_mu)
{
	int rc = open_for_read(w, entry->sequence, version, err);
	if (rc != 0)
		return rc;
	ssize_t got = sl__pread_full(&w->env, w->read_fd, bytes, entry->total, entry->offset);
	if (got < 0)
		return sl_err_set_errno(err, (int)-got, "read %s", w->path);
	if ((size_t)got < entry->total)
		memset(bytes + got, 0, entry->total - (size_t)got);
	return 0;
}

static int check_bytes(const sl_wal *w, const struct wal_entry *entry, struct wal_stored *stored, struct sl_err *err)
{
	if (sl__wal_total(stored->bytes, entry->total) == entry->total &&
	    sl__wal_check(stored->bytes, entry->total, &stored->record, NULL) == WAL_VALID &&
	    stored->record.sequence == entry->sequence)
		return 0;
	return sl_err_set(err, SL_ECORRUPT,
			  "%s: record %llu is damaged on disk; close the log and run sluice wal recover", w->path,
			  (unsigned long long)entry->sequence);
}

int sl__wal_read_stored(sl_wal *w, const struct wal_entry *entry, struct wal_stored *out, struct sl_err *err)
{
	struct wal_stored stored = {.version = 1, .bytes = sl__alloc(&w->env, entry->total)};
	if (stored.bytes == NULL)
		return sl_err_set(err, SL_ENOMEM, "read %s: no memory", w->path);
	sl__lock(&w->read_mu);
	int rc = read_bytes(w, entry, stored.bytes, &stored.version, err);
	sl__unlock(&w->read_mu);
	if (rc == 0)
		rc = check_bytes(w, entry, &stored, err);
	if (rc != 0) {
		sl__free(&w->env, stored.bytes);
		return rc;
	}
	*out = stored;
	return 0;
}

/* Open the sealed payload beside, then move it to the front: the caller frees one block. */
static int open_payload(sl_wal *w, struct wal_stored *stored, struct sl_wal_record *out, struct sl_err *err)
{
	const struct wal_record *rec = &stored->record;
	if (w->key == NULL)
		return sl_err_set(err, SL_EKEY, "%s is encrypted: give its key file (key_file, --key-file)", w->path);
	struct wal_seal_ctx at = {w->id, w->header.incarnation, rec->sequence, rec->timestamp_ms};
	size_t plain = rec->payload_len >= WAL_SEAL_BYTES ? rec->payload_len - WAL_SEAL_BYTES : 0;
	uint8_t *open_text = sl__alloc(&w->env, plain + 1);
	if (open_text == NULL)
		return sl_err_set(err, SL_ENOMEM, "read %s: no memory", w->path);
	int rc = sl__wal_open_payload(w->key, &at, open_text, rec->payload, rec->payload_len);
	if (rc == 0 && plain > 0)
		memcpy(stored->bytes + WAL_BODY_OFFSET, open_text, plain);
	sl__free(&w->env, open_text);
	out->payload_len = plain;
	if (rc != 0)
		return sl_err_set(err, SL_EKEY, "%s: record %llu does not open: a wrong key, or it was tampered with",
				  w->path, (unsigned long long)rec->sequence);
	return 0;
}

int sl__wal_read_entry(sl_wal *w, const struct wal_entry *entry, struct sl_wal_record *out, uint8_t **owned,
		       struct sl_err *err)
{
	struct wal_stored stored;
	int rc = sl__wal_read_stored(w, entry, &stored, err);
	if (rc != 0)
		return rc;
	const struct wal_record *rec = &stored.record;
	*out = (struct sl_wal_record){.sequence = rec->sequence,
				      .status = (enum sl_wal_status)entry->status,
				      .timestamp_ms = rec->timestamp_ms,
				      .payload = rec->payload,
				      .payload_len = rec->payload_len,
				      .offset = entry->offset,
				      .length = rec->total - 4,
				      .crc = rec->crc};
	if (stored.version == 2 && (rc = open_payload(w, &stored, out, err)) != 0) {
		sl__free(&w->env, stored.bytes);
		return rc;
	}
	*owned = stored.bytes;
	return 0;
}

/* ---- the public walk ---- */

struct iterate {
	sl_wal *w;
	sl_wal_record_fn *fn;
	void *ctx;
	uint64_t from, upto;
};

static int on_record(const struct sl_wal_record *record, void *ctx)
{
	struct iterate *it = ctx;
	if (record->sequence < it->from || record->sequence > it->upto)
		return 0;
	/* What was settled since the last flush is known to the handle, not yet to the files. */
	struct sl_wal_record now = *record;
	sl__lock(&it->w->mu);
	uint8_t said = sl__wal_ranges_get(&it->w->marks, now.sequence);
	if (said == SL_WAL_PENDING)
		said = sl__wal_ranges_get(&it->w->flying, now.sequence);
	sl__unlock(&it->w->mu);
	if (said != SL_WAL_PENDING)
		now.status = (enum sl_wal_status)said;
	return it->fn(&now, it->ctx);
}

int sl_wal_iterate(sl_wal *w, uint64_t from, sl_wal_record_fn *fn, void *ctx, struct sl_err *err)
{
	int rc = sl__wal_check_process(w, err);
	if (rc != 0)
		return rc;
	struct iterate it = {.w = w, .fn = fn, .ctx = ctx, .from = from};
	sl__lock(&w->mu);
	it.upto = w->durable_seq;
	bool gone = w->archived;
	sl__unlock(&w->mu);
	if (gone)
		return sl_err_set(err, SL_ECLOSED, "%s is archived", w->path);
	struct wal_scan scan = {.env = &w->env, .key = w->key, .on_record = on_record, .ctx = &it, .quiet = true};
	return sl__wal_scan_stream(&scan, w->dir, w->id, NULL, err);
}

struct find_one {
	const struct sl_env *env;
	struct sl_wal_record *out;
	uint64_t sequence;
	int rc;
};

static int on_one(const struct sl_wal_record *record, void *ctx)
{
	struct find_one *f = ctx;
	if (record->sequence != f->sequence)
		return 0;
	uint8_t *copy = sl__alloc(f->env, record->payload_len + 1);
	f->rc = copy != NULL ? 0 : SL_ENOMEM;
	if (copy != NULL) {
		if (record->payload_len > 0)
			memcpy(copy, record->payload, record->payload_len);
		*f->out = *record;
		f->out->payload = copy;
		f->out->segment = NULL;
	}
	return 1;
}

int sl_wal_read(sl_wal *w, uint64_t sequence, struct sl_wal_record *out, struct sl_err *err)
{
	struct find_one f = {.env = &w->env, .out = out, .sequence = sequence, .rc = SL_ENOENT};
	int rc = sl__wal_check_process(w, err);
	if (rc != 0)
		return rc;
	/* A pending record is found by the index; a settled one is looked for in the files. */
	sl__lock(&w->mu);
	const struct wal_entry *found = sl__wal_index_next(&w->index, sequence);
	struct wal_entry entry = found != NULL ? *found : (struct wal_entry){0};
	sl__unlock(&w->mu);
	if (entry.sequence == sequence && sequence != 0) {
		struct sl_wal_record rec;
		uint8_t *owned;
		rc = sl__wal_read_entry(w, &entry, &rec, &owned, err);
		if (rc != 0)
			return rc;
		(void)on_one(&rec, &f);
		sl__free(&w->env, owned);
	} else {
		rc = sl_wal_iterate(w, sequence, on_one, &f, err);
	}
	if (rc < 0)
		return rc;
	if (f.rc != 0)
		return sl_err_set(err, f.rc, "%s: sequence %llu: %s", w->path, (unsigned long long)sequence,
				  sl_err_text(f.rc));
	return 0;
}

void sl_wal_free(sl_wal *w, const void *payload)
{
	sl__free(&w->env, (void *)(uintptr_t)payload);
}
