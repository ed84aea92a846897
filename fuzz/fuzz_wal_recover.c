/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the active file of a log, perhaps with a sealed segment before it: open, append, close, open again. The
 * appended record is there, under a number that was free; no record that scan could read before is gone after a
 * salvage; the second open finds nothing more to repair. The first byte of the input has the flags of wal_input.h; bits
 * 4 and 5 choose what to do about damage.
 */
#include "wal_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_SEEN 512

struct seen {
	size_t n;
	struct {
		uint64_t sequence, sum;
	} at[MAX_SEEN];
};

static uint64_t sum_of(const void *payload, size_t n)
{
	const uint8_t *p = payload;
	uint64_t h = n + 1;
	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 0x100000001B3ULL;
	return h;
}

static int see(const struct sl_wal_record *r, void *ctx)
{
	struct seen *s = ctx;
	MUST(s->n == 0 || s->at[s->n - 1].sequence < r->sequence);
	if (s->n == MAX_SEEN)
		return 0;
	s->at[s->n].sequence = r->sequence;
	s->at[s->n++].sum = sum_of(r->payload, r->payload_len);
	return 0;
}

/* Every record of before is in after. */
static void nothing_is_gone(const struct seen *before, const struct seen *after)
{
	size_t k = 0;
	for (size_t i = 0; i < before->n && after->n < MAX_SEEN; i++) {
		while (k < after->n && after->at[k].sequence < before->at[i].sequence)
			k++;
		MUST(k < after->n && after->at[k].sequence == before->at[i].sequence);
		MUST(after->at[k].sum == before->at[i].sum);
	}
}

static struct sl_wal_stats stats_of(sl_wal *w)
{
	struct sl_wal_stats st = {.struct_size = sizeof(st)};
	MUST(sl_wal_get_stats(w, &st, NULL) == 0);
	return st;
}

/* The second half: w is open. */
static void use(sl_wal *w, const struct sl_wal_opts *opts, const struct seen *before)
{
	struct sl_err err = SL_ERR_INIT;
	struct seen now = {0}, after = {0};
	uint64_t sequence = 0;
	MUST(sl_wal_iterate(w, 0, see, &now, &err) == 0);
	if (opts->on_corruption == SL_WAL_SALVAGE)
		nothing_is_gone(before, &now);
	MUST(sl_wal_append(w, "appended", 8, &sequence, &err) == 0);
	MUST(now.n == 0 || now.n == MAX_SEEN || sequence > now.at[now.n - 1].sequence);
	MUST(sl_wal_close(w, &err) == 0);
	w = NULL;
	MUST(sl_wal_open(&w, "s", opts, &err) == 0);
	MUST(stats_of(w).damaged_ranges == 0 && stats_of(w).torn_bytes == 0);
	MUST(sl_wal_iterate(w, 0, see, &after, &err) == 0);
	nothing_is_gone(&now, &after);
	struct sl_wal_record r;
	MUST(sl_wal_read(w, sequence, &r, &err) == 0);
	MUST(r.payload_len == 8 && memcmp(r.payload, "appended", 8) == 0 && r.status == SL_WAL_PENDING);
	sl_wal_record_free(w, &r);
	MUST(sl_wal_close(w, &err) == 0);
}

static void lay_out(struct crashfs *fs, uint8_t *p, size_t n, unsigned flags)
{
	uint64_t sequence = 0;
	size_t cut = (flags & INPUT_SECOND) != 0 ? n / 2 : 0;
	crashfs_mkdir(fs, "/w");
	if (cut != 0) {
		fix_header(p, cut, flags);
		fix_records(p, cut, flags, &sequence);
		crashfs_put(fs, "/w/s.wal.1", p, cut);
	}
	fix_header(p + cut, n - cut, flags);
	fix_records(p + cut, n - cut, flags, &sequence);
	crashfs_put(fs, "/w/s.wal", p + cut, n - cut);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const enum sl_wal_on_corruption what[] = {SL_WAL_SALVAGE, SL_WAL_SALVAGE, SL_WAL_TRUNCATE,
							 SL_WAL_REFUSE};
	struct walmodel_env e;
	struct seen before = {0};
	struct sl_err err = SL_ERR_INIT;
	if (size < 1)
		return 0;
	unsigned flags = data[0];
	size_t n = size - 1;
	uint8_t *copy = malloc(n + 1);
	MUST(copy != NULL);
	memcpy(copy, data + 1, n);
	struct crashfs *fs = crashfs_new();
	crashfs_record(fs, false);
	walmodel_env_init(&e, fs, 1);
	lay_out(fs, copy, n, flags);
	struct sl_wal_opts opts = {SL_WAL_OPTS_INIT,
				   .env = &e.env,
				   .wal_dir = "/w",
				   .segment_bytes = 4096,
				   .on_corruption = what[flags >> 4 & 3],
				   .background = SL_OFF,
				   .archive_on_complete = SL_OFF,
				   .max_pending_bytes = SL_UNLIMITED,
				   .prepare_max_bytes = (flags & 64) != 0 ? 4096 : SL_NONE};
	struct sl_wal_scan_opts scan = {SL_WAL_SCAN_OPTS_INIT, .env = &e.env, .on_record = see, .ctx = &before};
	int rc = sl_wal_scan("/w/s.wal", &scan, NULL, &err);
	/* Two segments whose headers do not agree are not one log: what is stale leaves as a whole. */
	if (rc != 0 || ((flags & INPUT_SECOND) != 0 && (flags & INPUT_HEADER) == 0))
		before.n = 0;
	sl_wal *w = NULL;
	rc = sl_wal_open(&w, "s", &opts, &err);
	if (rc == 0)
		use(w, &opts, &before);
	else
		MUST(err.code == rc && err.msg[0] != '\0' && w == NULL);
	MUST(e.live_allocs == 0 && crashfs_open_files(fs) == 0);
	walmodel_env_fini(&e);
	crashfs_free(fs);
	free(copy);
	return 0;
}
