/* SPDX-License-Identifier: Apache-2.0 */
/* Reading an open log: one record, and a walk over all of them. */
#include <errno.h>
#include <fcntl.h>

#include "wal/scan.h"
#include "wal/segs.h"
#include "wal/sender.h"

/* A segment, as it was when it was asked for. */
struct place {
	uint64_t first; /* its first sequence; 0: none */
	uint32_t version;
	bool active;
};

/* The segment that holds `sequence`, or would. */
static struct place find_segment(sl_wal *w, uint64_t sequence)
{
	struct place found = {0};
	sl__lock(&w->mu);
	if (w->active_first != 0 && sequence >= w->active_first)
		found = (struct place){w->active_first, w->header.version, true};
	for (size_t i = w->n_segments; i > 0 && found.first == 0; i--)
		if (w->segments[i - 1].first <= sequence)
			found = (struct place){w->segments[i - 1].first, w->segments[i - 1].version, false};
	sl__unlock(&w->mu);
	return found;
}

/* A descriptor of the caller's for the segment that holds sequence, or would. SL_ENOENT: no segment is that old. */
static int open_segment(sl_wal *w, uint64_t sequence, struct place *out, int *out_fd, struct sl_err *err)
{
	for (int tries = 0; tries < 100; tries++) {
		struct place at = find_segment(w, sequence);
		if (at.first == 0)
			return SL_ENOENT;
		char *path = sl__wal_file_path(&w->env, w->dir, w->id, at.active ? 0 : at.first);
		if (path == NULL)
			return sl_err_set(err, SL_ENOMEM, "read %s: out of memory", w->path);
		int rc = 0, fd = SL__IO(&w->env, open, path, O_RDONLY | O_NOFOLLOW, 0);
		/* A file can be sealed, which renames it, between asking for its name and opening it: then again. */
		struct place now = find_segment(w, sequence);
		bool moved = now.first != at.first || now.active != at.active;
		if (!moved && fd < 0)
			rc = sl_err_set_errno(err, -fd, "open %s", path);
		sl__free(&w->env, path);
		if (!moved && fd >= 0) {
			*out = at;
			*out_fd = fd;
		} else if (fd >= 0) {
			(void)SL__IO(&w->env, close, fd);
		}
		if (!moved)
			return rc;
	}
	return SL_ENOENT;
}

int sl__wal_open_segment_of(sl_wal *w, uint64_t sequence, int *fd, struct sl_err *err)
{
	struct place at;
	return open_segment(w, sequence, &at, fd, err);
}

/* The bytes of the record of entry, into stored->bytes. The segment stays open for the next read. */
static int read_bytes(sl_wal *w, const struct wal_entry *entry, struct wal_stored *stored, struct sl_err *err)
	SL_REQUIRES(w->read_mu)
{
	struct place at = find_segment(w, entry->sequence);
	if (w->read_fd < 0 || at.first == 0 || w->read_first != at.first) {
		sl__close_fd(&w->env, &w->read_fd);
		int rc = open_segment(w, entry->sequence, &at, &w->read_fd, err);
		if (rc == SL_ENOENT)
			return sl_err_set(err, SL_ENOENT, "%s: no sequence %llu", w->path,
					  (unsigned long long)entry->sequence);
		if (rc != 0)
			return rc;
		w->read_first = at.first;
	}
	stored->version = at.version;
	ssize_t got = sl__pread_full(&w->env, w->read_fd, stored->bytes, entry->total, entry->offset);
	if (got < 0)
		return sl_err_set_errno(err, (int)-got, "read %s", w->path);
	if ((size_t)got < entry->total)
		memset(stored->bytes + got, 0, entry->total - (size_t)got);
	return 0;
}

int sl__wal_read_stored(sl_wal *w, const struct wal_entry *entry, struct wal_stored *out, struct sl_err *err)
{
	struct wal_stored stored = {.version = 1, .bytes = sl__alloc(&w->env, entry->total)};
	if (stored.bytes == NULL)
		return sl_err_set(err, SL_ENOMEM, "read %s: out of memory", w->path);
	sl__lock(&w->read_mu);
	int rc = read_bytes(w, entry, &stored, err);
	sl__unlock(&w->read_mu);
	bool sound = rc == 0 && sl__wal_total(stored.bytes, entry->total) == entry->total &&
		     sl__wal_check(stored.bytes, entry->total, &stored.record, NULL) == WAL_VALID &&
		     stored.record.sequence == entry->sequence;
	if (rc == 0 && !sound)
		rc = sl_err_set(err, SL_ECORRUPT,
				"%s: record %llu is damaged on disk; close the log and run sluice wal recover", w->path,
				(unsigned long long)entry->sequence);
	if (rc != 0) {
		sl__free(&w->env, stored.bytes);
		return rc;
	}
	*out = stored;
	return 0;
}

/* Decrypt the sealed payload into fresh memory, then move it to the front: the caller frees one block. */
static int open_payload(sl_wal *w, struct wal_stored *stored, struct sl_wal_record *out, struct sl_err *err)
{
	const struct wal_record *rec = &stored->record;
	if (w->key == NULL)
		return sl_err_set(err, SL_EKEY, "%s is encrypted; give its key file (key_file, --key-file)", w->path);
	struct wal_seal_ctx at = {w->id, w->header.incarnation, rec->sequence, rec->timestamp_ms};
	size_t plain = rec->payload_len >= WAL_SEAL_BYTES ? rec->payload_len - WAL_SEAL_BYTES : 0;
	uint8_t *open_text = sl__alloc(&w->env, plain + 1);
	if (open_text == NULL)
		return sl_err_set(err, SL_ENOMEM, "read %s: out of memory", w->path);
	int rc = sl__wal_open_payload(w->key, &at, open_text, rec->payload, rec->payload_len);
	if (rc == 0 && plain > 0)
		memcpy(stored->bytes + WAL_BODY_OFFSET, open_text, plain);
	sl__free(&w->env, open_text);
	out->payload_len = plain;
	if (rc != 0)
		return sl_err_set(err, SL_EKEY,
				  "%s: record %llu cannot be decrypted: wrong key, or it was tampered with", w->path,
				  (unsigned long long)rec->sequence);
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

static int on_iterated_record(const struct sl_wal_record *record, void *ctx)
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
	struct wal_scan scan = {
		.env = &w->env, .key = w->key, .on_record = on_iterated_record, .ctx = &it, .quiet = true};
	return sl__wal_scan_stream(&scan, w->dir, w->id, NULL, err);
}

struct find_one {
	const struct sl_env *env;
	struct sl_wal_record *out;
	uint64_t sequence;
	int rc;
};

static int note_found_record(const struct sl_wal_record *record, void *ctx)
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
	/* A pending record is found by the index; a settled one is searched for in the files. */
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
		(void)note_found_record(&rec, &f);
		sl__free(&w->env, owned);
	} else {
		rc = sl_wal_iterate(w, sequence, note_found_record, &f, err);
	}
	if (rc < 0)
		return rc;
	if (f.rc != 0)
		return sl_err_set(err, f.rc, "%s: sequence %llu: %s", w->path, (unsigned long long)sequence,
				  sl_err_text(f.rc));
	return 0;
}

void sl_wal_record_free(sl_wal *w, struct sl_wal_record *record)
{
	sl__free(&w->env, (void *)(uintptr_t)record->payload);
	record->payload = NULL;
}
