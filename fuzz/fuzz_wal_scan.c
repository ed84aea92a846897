/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a log or an archive, read by scan: no crash, no record outside of the file or out of order, the same
 * answer twice, and the counts agree with what was reported. The first byte of the input has the flags of wal_input.h;
 * bit 4 makes it an archive.
 */
#include "wal_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct told {
	uint64_t records, last, damage, sum;
	uint64_t size; /* of the file; 0: unknown */
};

static int on_record(const struct sl_wal_record *r, void *ctx)
{
	struct told *t = ctx;
	MUST(r->sequence > t->last);
	MUST(r->status >= SL_WAL_PENDING && r->status <= SL_WAL_FAILED);
	MUST(r->offset >= WAL_HEADER_BYTES && r->length == r->payload_len + WAL_MIN_LENGTH);
	MUST(t->size == 0 || r->offset + 4 + r->length <= t->size);
	t->last = r->sequence;
	t->records++;
	for (size_t i = 0; i < r->payload_len; i++)
		t->sum = t->sum * 31 + ((const uint8_t *)r->payload)[i];
	return 0;
}

static int on_damage(const struct sl_wal_damage *d, void *ctx)
{
	struct told *t = ctx;
	MUST(d->reason != NULL && d->segment != NULL);
	MUST(d->first_missing <= d->last_missing);
	t->damage += !d->declared && !d->torn_tail;
	t->sum = t->sum * 31 + d->offset + d->length;
	return 0;
}

static int scan(const struct walmodel_env *e, const char *path, struct told *t, struct sl_wal_stats *st)
{
	struct sl_wal_scan_opts opts = {SL_WAL_SCAN_OPTS_INIT, .env = &e->env, .on_record = on_record,
					.on_damage = on_damage, .ctx = t};
	struct sl_err err = SL_ERR_INIT;
	*st = (struct sl_wal_stats){.struct_size = sizeof(*st)};
	int rc = sl_wal_scan(path, &opts, st, &err);
	MUST(rc == 0 || (err.code == rc && err.msg[0] != '\0'));
	return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct walmodel_env e;
	struct sl_wal_stats st, again;
	if (size < 1)
		return 0;
	unsigned flags = data[0];
	size_t n = size - 1;
	uint8_t *copy = malloc(n + 1);
	MUST(copy != NULL);
	memcpy(copy, data + 1, n);
	bool archive = (flags & 16) != 0;
	uint64_t sequence = 0;
	if (!archive) {
		fix_header(copy, n, flags);
		fix_records(copy, n, flags, &sequence);
	}
	struct crashfs *fs = crashfs_new();
	crashfs_record(fs, false);
	walmodel_env_init(&e, fs, 1);
	const char *path = archive ? "/s.wal.zst" : "/s.wal";
	crashfs_put(fs, path, copy, n);
	struct told first = {.size = archive ? 0 : n}, second = first;
	int rc = scan(&e, path, &first, &st);
	MUST(scan(&e, path, &second, &again) == rc);
	MUST(memcmp(&first, &second, sizeof(first)) == 0);
	if (rc == 0) {
		MUST(st.records == first.records && st.damaged_ranges == first.damage);
		MUST(st.pending + st.sent + st.failed == st.records);
		MUST(st.last_sequence >= first.last);
	}
	MUST(e.live_allocs == 0 && crashfs_open_files(fs) == 0);
	walmodel_env_fini(&e);
	crashfs_free(fs);
	free(copy);
	return 0;
}
