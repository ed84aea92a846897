/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scanning a log, a segment or an archive in two passes: the first collects statuses and damage, the second reports
 * records and damage in the order of the files.
 */
#include "wal/scan.h"

#include <errno.h>
#include <fcntl.h>

#include "wal/archive_zst.h"
#include "wal/ranges.h"
#include "wal/segs.h"

#define PROGRESS_RECORDS 4096u

struct scanner {
	const struct wal_scan *scan;
	const char *id;
	struct wal_source *sources;
	size_t n;
	const struct wal_zst_content *archive; /* NULL: no archive, or a sound one */
	struct sl_wal_damage *lost;            /* of the archive itself, as many as it has */
	size_t n_lost, next_lost;
	struct wal_ranges statuses;
	struct sl_wal_damage *damage; /* in order of place, collected by the first pass */
	size_t n_damage, cap_damage;
	size_t next_damage;   /* second pass: the next one to report */
	bool damage_is_fresh; /* no record since the last damage: a gap belongs to it */
	bool has_front_hole;  /* damage[0] is one that no gap shows */
	uint8_t *plain;       /* an opened payload */
	size_t plain_cap;
	uint64_t total_bytes, done_bytes, seen;
	int64_t oldest_pending_ms;
	uint64_t pending_bytes;
	uint32_t renewed; /* under which incarnation records are sent; 0: the header's */
	unsigned passes;
};

/* ---- the first pass: what is there ---- */

static int push_damage(struct scanner *s, const struct wal_find *find, const char *reason)
{
	struct sl_wal_damage *grown = sl__grow(s->scan->env, s->damage, s->n_damage, &s->cap_damage, sizeof(*grown));
	if (grown == NULL)
		return SL_ENOMEM;
	s->damage = grown;
	s->damage[s->n_damage++] =
		(struct sl_wal_damage){.segment = s->sources[find->segment].name,
				       .offset = find->item->offset,
				       .length = find->kind == WAL_FOUND_GAP ? 0 : find->item->length,
				       .torn_tail = find->kind == WAL_FOUND_TORN,
				       .reason = reason,
				       .expected_crc = find->kind == WAL_FOUND_GAP ? 0 : find->item->expected_crc,
				       .actual_crc = find->kind == WAL_FOUND_GAP ? 0 : find->item->actual_crc,
				       .first_missing = find->gap_first,
				       .last_missing = find->gap_last};
	return 0;
}

static int progress(struct scanner *s, const struct wal_find *find)
{
	if (s->scan->on_progress == NULL || ++s->seen % PROGRESS_RECORDS != 0)
		return 0;
	uint64_t done = s->done_bytes + find->item->offset;
	for (size_t i = 0; i < find->segment; i++)
		done += s->sources[i].file_size;
	return s->scan->on_progress(SL_MIN(done, s->total_bytes), s->total_bytes, s->scan->ctx);
}

static int collect_find(const struct wal_find *find, struct sl_err *err, void *ctx)
{
	struct scanner *s = ctx;
	int rc = 0;
	if (find->kind == WAL_FOUND_GAP) {
		if (s->damage_is_fresh) {
			s->damage[s->n_damage - 1].first_missing = find->gap_first;
			s->damage[s->n_damage - 1].last_missing = find->gap_last;
		} else {
			rc = push_damage(s, find, "sequences missing");
		}
	} else if (find->kind != WAL_FOUND_RECORD) {
		rc = push_damage(s, find, find->item->reason);
		s->damage_is_fresh = find->kind == WAL_FOUND_DAMAGE;
	} else {
		const struct wal_record *rec = &find->item->record;
		bool fresh = s->damage_is_fresh;
		s->damage_is_fresh = false;
		if (rec->status == WAL_STATUS_RENEWAL)
			s->renewed = sl__get32(rec->payload) & 0xFFFFFF;
		if (rec->status == WAL_STATUS_CLOSED && fresh) {
			/* Damage right before a clean close: the record of the close holds how far the log went. */
			const struct wal_source *src = &s->sources[find->segment];
			uint64_t last = src->last != 0 ? src->last : src->before;
			struct sl_wal_damage *d = &s->damage[s->n_damage - 1];
			if (rec->sequence > last && d->first_missing == 0) {
				d->first_missing = last + 1;
				d->last_missing = rec->sequence;
			}
		}
		if (sl__wal_is_mark(rec->status))
			rc = sl__wal_ranges_set(&s->statuses, rec->first, rec->sequence, rec->status);
		if (rc == 0)
			rc = progress(s, find);
		if (rc > 0)
			return sl_err_set(err, SL_ECANCELLED, "stopped");
	}
	return rc < 0 ? sl_err_set(err, rc, "scan: out of memory") : rc;
}

/* After the first pass: add the damage that no record or gap shows. */
static int complete_damage(struct scanner *s)
{
	static const struct wal_item nowhere = {.offset = WAL_HEADER_BYTES};
	/* A hole that was declared before the first record shows no gap: it is put before what the first pass found. */
	size_t segment = 0;
	while (segment + 1 < s->n && s->sources[segment].first == 0)
		segment++;
	struct sl_wal_range hole = sl__wal_ranges_failed_before(&s->statuses, s->sources[segment].first);
	if (hole.last != 0 && (s->n_damage == 0 || s->damage[0].first_missing != hole.first)) {
		struct wal_find find = {.kind = WAL_FOUND_GAP,
					.segment = segment,
					.item = &nowhere,
					.gap_first = hole.first,
					.gap_last = hole.last};
		int rc = push_damage(s, &find, "sequences missing");
		if (rc != 0)
			return rc;
		struct sl_wal_damage added = s->damage[s->n_damage - 1];
		memmove(s->damage + 1, s->damage, (s->n_damage - 1) * sizeof(*s->damage));
		s->damage[0] = added;
		s->has_front_hole = true;
	}
	if (s->archive != NULL) {
		/* What the archive itself lost. */
		s->lost = sl__calloc(s->scan->env, s->archive->n_damage, sizeof(*s->lost));
		if (s->lost == NULL)
			return SL_ENOMEM;
		s->n_lost = s->archive->n_damage;
		for (size_t i = 0; i < s->n_lost; i++) {
			const struct wal_zst_damage *d = &s->archive->damage[i];
			s->lost[i] = (struct sl_wal_damage){.segment = s->sources[0].name,
							    .offset = d->content,
							    .length = d->length,
							    .reason = d->reason,
							    .of_archive = true,
							    .archive_offset = d->at};
		}
		/* A record that ends with what could be decompressed was not torn by a crash: it belongs to what is
		 * lost. */
		struct sl_wal_damage *torn = s->n_damage > 0 ? &s->damage[s->n_damage - 1] : NULL;
		struct sl_wal_damage *lost = &s->lost[s->n_lost - 1];
		if (torn != NULL && torn->torn_tail && lost->offset < torn->offset + torn->length) {
			torn->torn_tail = false;
		} else if (torn != NULL && torn->torn_tail) {
			lost->length = lost->length != 0 ? lost->length + (lost->offset - torn->offset) : 0;
			lost->offset = torn->offset;
			s->n_damage--;
		}
	}
	/* Holes that an earlier recovery declared are not damage. */
	for (size_t i = 0; i < s->n_damage; i++) {
		struct sl_wal_damage *d = &s->damage[i];
		if (d->first_missing != 0 && d->length == 0 &&
		    sl__wal_ranges_failed_covers(&s->statuses, d->first_missing, d->last_missing)) {
			d->declared = true;
			d->reason = "sequences declared missing";
		}
	}
	return 0;
}

/* ---- the second pass: reporting ---- */

/* What the archive lost before this place of its content. */
static int report_lost(struct scanner *s, uint64_t before)
{
	int rc = 0;
	while (rc == 0 && s->next_lost < s->n_lost && s->lost[s->next_lost].offset <= before) {
		const struct sl_wal_damage *d = &s->lost[s->next_lost++];
		rc = s->scan->on_damage != NULL ? s->scan->on_damage(d, s->scan->ctx) : 0;
	}
	return rc;
}

static int report_next_damage(struct scanner *s)
{
	if (s->next_damage >= s->n_damage)
		return 0;
	const struct sl_wal_damage *d = &s->damage[s->next_damage++];
	return s->scan->on_damage != NULL && !s->scan->quiet ? s->scan->on_damage(d, s->scan->ctx) : 0;
}

static int report_record(struct scanner *s, const struct wal_find *find, struct sl_err *err)
{
	const struct wal_record *rec = &find->item->record;
	const struct wal_source *src = &s->sources[find->segment];
	if (rec->status != SL_WAL_PENDING)
		return 0;
	struct sl_wal_record out = {.sequence = rec->sequence,
				    .status = (enum sl_wal_status)sl__wal_ranges_get(&s->statuses, rec->sequence),
				    .timestamp_ms = rec->timestamp_ms,
				    .payload = rec->payload,
				    .payload_len = rec->payload_len,
				    .offset = find->item->offset,
				    .length = rec->total - 4,
				    .crc = rec->crc,
				    .segment = src->name};
	if (src->header.version == 2 && s->scan->key != NULL) {
		size_t len = rec->payload_len >= WAL_SEAL_BYTES ? rec->payload_len - WAL_SEAL_BYTES : 0;
		if (len + 1 > s->plain_cap) {
			uint8_t *grown = sl__realloc(s->scan->env, s->plain, len + 1);
			if (grown == NULL)
				return sl_err_set(err, SL_ENOMEM, "scan %s: out of memory", src->name);
			s->plain = grown;
			s->plain_cap = len + 1;
		}
		struct wal_seal_ctx at = {s->id, src->header.incarnation, rec->sequence, rec->timestamp_ms};
		if (rec->payload_len < WAL_SEAL_BYTES ||
		    sl__wal_open_payload(s->scan->key, &at, s->plain, rec->payload, rec->payload_len) != 0)
			return sl_err_set(err, SL_EKEY,
					  "%s: record %llu cannot be decrypted: wrong key, or it was tampered with",
					  src->name, (unsigned long long)rec->sequence);
		out.payload = s->plain;
		out.payload_len = len;
	}
	if (out.status == SL_WAL_PENDING) {
		s->pending_bytes += rec->total;
		if (s->oldest_pending_ms == 0)
			s->oldest_pending_ms = out.timestamp_ms;
	}
	return s->scan->on_record != NULL ? s->scan->on_record(&out, s->scan->ctx) : 0;
}

static int report_find(const struct wal_find *find, struct sl_err *err, void *ctx)
{
	struct scanner *s = ctx;
	int rc = report_lost(s, find->item->offset);
	if (rc != 0)
		return rc;
	if (find->kind == WAL_FOUND_RECORD) {
		s->damage_is_fresh = false;
		rc = report_record(s, find, err);
		if (rc == 0 && progress(s, find) != 0)
			return sl_err_set(err, SL_ECANCELLED, "stopped");
		return rc;
	}
	if (find->kind == WAL_FOUND_GAP && s->damage_is_fresh)
		return 0; /* reported with the damage */
	s->damage_is_fresh = find->kind == WAL_FOUND_DAMAGE;
	return report_next_damage(s);
}

/* ---- counting ---- */

static void count_sources(const struct scanner *s, struct sl_wal_stats *out)
{
	struct sl_wal_stats st = {.struct_size = sizeof(st)};
	for (size_t i = 0; i < s->n; i++) {
		const struct wal_source *src = &s->sources[i];
		if (src->missing)
			continue;
		st.segments++;
		st.records += src->records;
		st.bytes += src->end;
		st.torn_bytes = s->n_lost == 0 ? src->torn : 0; /* part of what the archive lost */
		if (st.first_sequence == 0)
			st.first_sequence = src->first;
		if (src->last != 0)
			st.last_sequence = src->last;
		if (src->header_state <= WAL_HEADER_REPAIRABLE) {
			st.incarnation = src->header.incarnation;
			st.format_version = src->header.version;
		}
	}
	st.sent_incarnation = s->renewed != 0 ? s->renewed : st.incarnation;
	for (size_t i = 0; i < s->statuses.n; i++) {
		const struct wal_status_range *r = &s->statuses.v[i];
		/* How many of them are data records of the log? */
		uint64_t first = SL_MAX(r->first, st.first_sequence), last = SL_MIN(r->last, st.last_sequence);
		uint64_t n = st.first_sequence == 0 || first > last ? 0 : last - first + 1;
		for (size_t k = 0; n > 0 && k < s->n_damage; k++) {
			const struct sl_wal_damage *d = &s->damage[k];
			if (d->first_missing != 0 && d->last_missing >= first && d->first_missing <= last)
				n -= SL_MIN(d->last_missing, last) - SL_MAX(d->first_missing, first) + 1;
		}
		*(r->status == SL_WAL_SENT ? &st.sent : &st.failed) += n;
		if (r->status == SL_WAL_FAILED && r->last > st.last_sequence) /* a hole at the tail */
			st.holes += r->last - SL_MAX(r->first - 1, st.last_sequence);
	}
	st.pending = st.records - SL_MIN(st.records, st.sent + st.failed);
	for (size_t i = 0; i < s->n_damage; i++) {
		const struct sl_wal_damage *d = &s->damage[i];
		if (d->declared)
			st.holes += d->last_missing - d->first_missing + 1;
		else if (!d->torn_tail)
			st.damaged_ranges++;
	}
	st.damaged_ranges += s->n_lost;
	st.oldest_pending_ms = s->oldest_pending_ms;
	st.pending_bytes = s->pending_bytes;
	sl__result_copy(out, &st, sizeof(st));
}

static int run_passes(struct scanner *s, bool walk, struct sl_err *err)
{
	const struct sl_env *env = s->scan->env;
	uint64_t bytes = 0;
	for (size_t i = 0; i < s->n; i++) {
		struct wal_source *src = &s->sources[i];
		struct sl_io_stat st;
		if (src->mem != NULL)
			src->file_size = src->size;
		else if (SL__IO(env, fstat, src->fd, &st) == 0)
			src->file_size = st.size;
		bytes += src->file_size;
	}
	s->total_bytes = bytes * (walk ? 2 : 1);
	struct wal_survey survey = {.env = env, .sources = s->sources, .n = s->n, .fn = collect_find, .ctx = s};
	int rc = sl__wal_survey(&survey, err);
	if (rc != 0)
		return rc;
	const struct wal_source *newest = &s->sources[s->n - 1];
	if (s->archive == NULL && s->n == 1 && !newest->missing && newest->header_state == WAL_HEADER_BAD &&
	    newest->records + newest->marks == 0)
		return sl_err_set(err, SL_ECORRUPT,
				  newest->file_size == 0 ? "%s is empty, not a log"
							 : "%s is not a log: no valid header or record",
				  newest->path);
	rc = complete_damage(s);
	if (rc != 0)
		return sl_err_set(err, rc, "scan: out of memory");
	/* The second pass. Without records to hand out only the damage is reported. */
	s->damage_is_fresh = false;
	s->done_bytes = bytes;
	if (walk && s->has_front_hole)
		rc = report_next_damage(s);
	survey.fn = report_find;
	if (rc == 0 && walk)
		rc = sl__wal_survey(&survey, err);
	while (rc == 0 && s->next_damage < s->n_damage)
		rc = report_next_damage(s);
	if (rc != 0)
		return rc;
	return report_lost(s, UINT64_MAX);
}

/* Scan s->sources. */
static int scan_sources(struct scanner *s, struct sl_wal_stats *stats, struct sl_err *err)
{
	const struct sl_env *env = s->scan->env;
	sl__wal_ranges_init(&s->statuses, env);
	int rc = run_passes(s, s->scan->on_record != NULL || stats != NULL, err);
	if (rc == 0 && stats != NULL)
		count_sources(s, stats);
	sl__wal_ranges_fini(&s->statuses);
	sl__free(env, s->damage);
	sl__free(env, s->lost);
	sl__free(env, s->plain);
	return rc;
}

/* ---- finding the files ---- */

/* Descriptors and names of a stream's segments. */
struct stream_files {
	struct wal_source *sources;
	char **paths;
	size_t n;
};

/* Takes path and fd. */
static void stream_add(struct stream_files *f, char *path, int fd, uint64_t first)
{
	f->paths[f->n] = path;
	f->sources[f->n++] = (struct wal_source){
		.path = path, .name = sl__basename(path), .fd = fd, .size = UINT64_MAX, .named_first = first};
}

/* The active file is opened before the folder is listed: if it is sealed meanwhile, it shows up under both names. */
static int open_stream_files(struct stream_files *f, const struct sl_env *env, const char *dir, const char *id,
			     struct sl_err *err)
{
	struct wal_files files = {0};
	struct sl_io_stat active, st;
	bool active_sealed = false;
	char *path = sl__wal_file_path(env, dir, id, 0);
	if (path == NULL)
		return sl_err_set(err, SL_ENOMEM, "scan %s.wal: out of memory", id);
	int fd = SL__IO(env, open, path, O_RDONLY | O_NOFOLLOW, 0);
	bool known = fd >= 0 && SL__IO(env, fstat, fd, &active) == 0;
	int rc = fd < 0 && fd != -ENOENT ? sl_err_set_errno(err, -fd, "open %s", path) : 0;
	if (rc == 0)
		rc = sl__wal_files_list(&files, env, dir, id, err);
	if (rc == 0) {
		f->sources = sl__calloc(env, files.n_sealed + 1, sizeof(*f->sources));
		f->paths = sl__calloc(env, files.n_sealed + 1, sizeof(*f->paths));
		if (f->sources == NULL || f->paths == NULL)
			rc = sl_err_set(err, SL_ENOMEM, "scan %s: out of memory", path);
		for (size_t i = 0; rc == 0 && i < files.n_sealed; i++) {
			char *sealed = sl__wal_file_path(env, dir, id, files.sealed[i]);
			int sealed_fd = sealed != NULL ? SL__IO(env, open, sealed, O_RDONLY | O_NOFOLLOW, 0) : -ENOMEM;
			if (sealed_fd >= 0) {
				active_sealed |= known && SL__IO(env, fstat, sealed_fd, &st) == 0 &&
						 st.dev == active.dev && st.ino == active.ino;
				stream_add(f, sealed, sealed_fd, files.sealed[i]);
				continue;
			}
			if (sealed == NULL)
				rc = sl_err_set(err, SL_ENOMEM, "scan %s.wal: out of memory", id);
			else if (sealed_fd != -ENOENT)
				rc = sl_err_set_errno(err, -sealed_fd, "open %s", sealed);
			sl__free(env, sealed);
		}
		sl__wal_files_free(&files, env);
	}
	if (rc == 0 && fd < 0 && f->n == 0)
		rc = sl_err_set_errno(err, ENOENT, "open %s", path);
	if (rc == 0 && fd >= 0 && !active_sealed) {
		stream_add(f, path, fd, 0);
		return 0;
	}
	if (fd >= 0)
		(void)SL__IO(env, close, fd);
	sl__free(env, path);
	return rc;
}

int sl__wal_scan_stream(const struct wal_scan *scan, const char *dir, const char *id, struct sl_wal_stats *stats,
			struct sl_err *err)
{
	const struct sl_env *env = scan->env;
	struct stream_files f = {0};
	int rc = open_stream_files(&f, env, dir, id, err);
	if (rc == 0) {
		struct scanner s = {.scan = scan, .id = id, .sources = f.sources, .n = f.n};
		rc = scan_sources(&s, stats, err);
	}
	for (size_t i = 0; i < f.n; i++) {
		if (f.sources[i].fd >= 0)
			(void)SL__IO(env, close, f.sources[i].fd);
		sl__free(env, f.paths[i]);
	}
	sl__free(env, f.sources);
	sl__free(env, f.paths);
	return rc;
}

static int scan_path(const struct wal_scan *scan, const char *path, struct sl_wal_stats *stats, struct sl_err *err)
{
	const struct sl_env *env = scan->env;
	const char *name = sl__basename(path), *dot = strstr(name, ".wal");
	size_t id_len, n = strlen(name);
	uint64_t first;
	/* The id is what precedes ".wal"; a file of another name has none and cannot be encrypted. */
	char *id = dot != NULL ? sl__asprintf(env, "%.*s", (int)(dot - name), name) : sl__strdup(env, name);
	char *dir = sl__dirname(env, path);
	struct wal_zst_content content = {.fd = -1};
	struct wal_source src = {.path = path, .name = name, .fd = -1, .size = UINT64_MAX};
	struct scanner s = {.scan = scan, .id = id, .sources = &src, .n = 1};
	int rc = 0;
	if (id == NULL || dir == NULL) {
		rc = sl_err_set(err, SL_ENOMEM, "scan %s: out of memory", path);
	} else if (n > 4 && strcmp(name + n - 4, ".zst") == 0) {
		rc = sl__wal_zst_load(env, path, &content, err);
		if (rc == 0) {
			src.fd = content.fd;
			src.mem = content.data;
			src.size = content.size;
			s.archive = content.n_damage > 0 ? &content : NULL;
			rc = scan_sources(&s, stats, err);
			sl__wal_zst_content_free(&content, env);
		}
	} else if (sl__wal_name(name, &id_len, &first) == WAL_NAME_ACTIVE) {
		rc = sl__wal_scan_stream(scan, dir, id, stats, err);
	} else {
		src.fd = SL__IO(env, open, path, O_RDONLY, 0);
		if (src.fd < 0) {
			rc = sl_err_set_errno(err, -src.fd, "open %s", path);
		} else {
			rc = scan_sources(&s, stats, err);
			(void)SL__IO(env, close, src.fd);
		}
	}
	sl__free(env, id);
	sl__free(env, dir);
	return rc;
}

int sl_wal_scan(const char *path, const struct sl_wal_scan_opts *opts, struct sl_wal_stats *out, struct sl_err *err)
{
	struct sl_wal_scan_opts o;
	struct sl_env env;
	struct wal_key *key = NULL;
	sl__opts_copy(&o, sizeof(o), opts);
	int rc = sl__env_init(&env, o.env, err);
	if (rc == 0 && o.key_file != NULL)
		rc = sl__wal_key_load(&key, &env, o.key_file, err);
	if (rc != 0)
		return rc;
	struct wal_scan scan = {.env = &env,
				.key = key,
				.on_record = o.on_record,
				.on_damage = o.on_damage,
				.ctx = o.ctx,
				.on_progress = o.on_progress};
	rc = scan_path(&scan, path, out, err);
	sl__wal_key_free(key);
	return rc;
}
