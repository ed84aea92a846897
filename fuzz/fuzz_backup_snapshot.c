/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what a reader of a snapshot sees: the snapshot's JSON, and the blocks of its manifest with the lists
 * that its entries name. Nothing may crash or read outside; what is accepted keeps its bounds: names that stay below
 * the target, in order, folders before what is in them, extents in the file, blocks as long as the contents; and what
 * is written of it again reads the same.
 *
 * The first byte says what the rest is: 0 JSON; else a manifest, with 2 as pieces whose lengths are corrected (so that
 * what follows them is reached). Blocks are served out of the input: the first four bytes of an id say from where.
 */
#include <string.h>

#include "backup/manifest/manifest.h"
#include "backup/restore/target.h"
#include "must.h"

#define ROOM (1u << 16)
#define ID "0123456789abcdef0123456789abcdef"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct sl_backup backup;

/* ---- a reader of blocks that has only the input ---- */

struct bk_reader {
	const uint8_t *bytes;
	size_t n;
	uint8_t *copy; /* of the block that was read last, so that a read beyond its end is seen */
};

int sl__bk_read_block(struct bk_reader *r, const struct bk_id *id, uint32_t expected_len, const uint8_t **bytes,
		      struct sl_err *err)
{
	uint32_t at = sl__get32(id->b);
	MUST(expected_len > 0 && expected_len <= BK_CHUNK_MAX);
	free(r->copy);
	r->copy = NULL;
	if (at > r->n || expected_len > r->n - at)
		return sl_err_set(err, SL_ENOENT, "no such block");
	r->copy = malloc(expected_len);
	MUST(r->copy != NULL);
	memcpy(r->copy, r->bytes + at, expected_len);
	*bytes = r->copy;
	return 0;
}

/* ---- the snapshot ---- */

static void expect_same(const struct bk_snapshot *a, const struct bk_snapshot *b)
{
	MUST(strcmp(a->info.host, b->info.host) == 0 && strcmp(a->info.parent, b->info.parent) == 0);
	MUST(a->info.time_ms == b->info.time_ms && a->info.bytes == b->info.bytes);
	MUST(a->info.n_paths == b->info.n_paths && a->info.n_tags == b->info.n_tags);
	for (size_t i = 0; i < a->info.n_paths; i++)
		MUST(strcmp(a->info.paths[i], b->info.paths[i]) == 0);
	for (size_t i = 0; i < a->info.n_tags; i++)
		MUST(strcmp(a->info.tags[i], b->info.tags[i]) == 0);
	MUST(a->n_manifest == b->n_manifest);
	for (size_t i = 0; i < a->n_manifest; i++)
		MUST(memcmp(&a->manifest[i].id, &b->manifest[i].id, BK_ID_BYTES) == 0 &&
		     a->manifest[i].len == b->manifest[i].len && a->manifest[i].len <= BK_CHUNK_MAX);
}

static void any_json(const uint8_t *data, size_t size)
{
	struct bk_snapshot s, again;
	struct sl_err err = SL_ERR_INIT;
	char *text = malloc(size + 1), *json = NULL;
	size_t len;
	MUST(text != NULL);
	memcpy(text, data, size);
	int rc = sl__bk_snapshot_parse(&backup.env, ID, (struct bk_bytes){text, size}, &s, &err);
	free(text);
	MUST(rc == 0 || (rc == err.code && err.msg[0] != '\0'));
	if (rc != 0)
		return;
	MUST(strcmp(s.info.id, ID) == 0);
	MUST(sl__bk_snapshot_json(&backup.env, &s, &json, &len, NULL) == 0);
	MUST(sl__bk_snapshot_parse(&backup.env, ID, (struct bk_bytes){json, len}, &again, NULL) == 0);
	expect_same(&s, &again);
	free(json);
	sl__bk_snapshot_fini(&backup.env, &s);
	sl__bk_snapshot_fini(&backup.env, &again);
}

/* ---- the manifest ---- */

static int add_length(const struct bk_ref *ref, void *ctx)
{
	MUST(ref->len > 0 && ref->len <= BK_CHUNK_MAX);
	*(uint64_t *)ctx += ref->len;
	return 0;
}

static void expect_file(struct bk_reader *r, const struct bk_entry *e)
{
	uint64_t end = 0, total = 0;
	for (size_t i = 0; i < e->n_extents; i++) {
		MUST(e->extents[i].length > 0 && e->extents[i].offset >= end);
		end = e->extents[i].offset + e->extents[i].length;
		MUST(end > e->extents[i].offset && end <= e->size);
	}
	int rc = sl__bk_entry_refs(r, e, add_length, &total, NULL);
	if (rc == 0)
		MUST(total == sl__bk_entry_data_bytes(e));
	else
		MUST(rc == SL_ENOENT || rc == SL_ECORRUPT);
}

/* What is written of an entry reads the same. */
static void expect_encodes(const struct bk_entry *e)
{
	struct sl__buf buf;
	struct bk_entry_scratch *s = NULL;
	struct bk_entry again;
	size_t used;
	sl__buf_init(&buf, &backup.env);
	MUST(sl__bk_entry_encode(&buf, e, "", 0, NULL) == 0);
	MUST(sl__bk_entry_scratch_new(&s, &backup.env) == 0);
	MUST(sl__bk_entry_decode(s, &(struct bk_entry_bytes){{buf.data, buf.len}, {"", 0}}, &again, &used, NULL) == 0);
	MUST(used == buf.len && again.type == e->type && again.flags == e->flags && again.size == e->size);
	MUST(again.path_len == e->path_len && memcmp(again.path, e->path, e->path_len) == 0);
	MUST(again.mode == e->mode && again.uid == e->uid && sl__bk_same_time(again.mtime, e->mtime));
	MUST(again.n_refs == e->n_refs && again.n_extents == e->n_extents && again.n_xattrs == e->n_xattrs);
	MUST(again.target_len == e->target_len &&
	     (e->target_len == 0 || memcmp(again.target, e->target, e->target_len) == 0));
	sl__bk_entry_scratch_free(s);
	sl__buf_fini(&buf);
}

static void expect_entry(struct bk_reader *r, const struct bk_entry *e, const struct sl__buf *before)
{
	MUST(strlen(e->path) == e->path_len);
	MUST(sl__bk_target_path_check(e->path, e->path_len, NULL) == 0);
	MUST(before->len == 0 || sl__bk_path_compare(before->data, before->len, e->path, e->path_len) < 0);
	MUST(e->mode <= 07777);
	if (e->type == SL_BACKUP_HARDLINK) {
		MUST(sl__bk_target_path_check(e->target, e->target_len, NULL) == 0);
		MUST(sl__bk_path_compare(e->target, e->target_len, e->path, e->path_len) < 0);
	}
	if (e->type == SL_BACKUP_SYMLINK)
		MUST(e->target_len > 0 && strlen(e->target) == e->target_len);
	for (size_t i = 0; i < e->n_xattrs; i++)
		MUST(e->xattrs[i].name[0] != '\0' && e->xattrs[i].len <= BK_XATTRS_MAX);
	if (e->type == SL_BACKUP_FILE)
		expect_file(r, e);
	expect_encodes(e);
}

static void read_manifest(const struct bk_snapshot *s, const uint8_t *bytes, size_t n)
{
	struct bk_reader blocks = {.bytes = bytes, .n = n}, contents = blocks;
	struct bk_manifest_reader *m = NULL;
	struct sl_err err = SL_ERR_INIT;
	struct sl__buf before;
	struct bk_entry e;
	int rc;
	sl__buf_init(&before, &backup.env);
	MUST(sl__bk_manifest_reader_new(&m, &backup, s, &blocks, NULL) == 0);
	while ((rc = sl__bk_manifest_next(m, &e, &err)) == 1) {
		expect_entry(&contents, &e, &before);
		sl__buf_clear(&before);
		MUST(sl__buf_append(&before, e.path, e.path_len) == 0);
	}
	MUST(rc == 0 || (rc == err.code && (rc == SL_ECORRUPT || rc == SL_ENOENT) && err.msg[0] != '\0'));
	sl__bk_manifest_reader_free(m);
	sl__buf_fini(&before);
	free(blocks.copy);
	free(contents.copy);
}

static struct bk_ref ref_at(size_t at, size_t len)
{
	struct bk_ref ref = {.len = (uint32_t)len};
	sl__put32(ref.id.b, (uint32_t)at);
	return ref;
}

/* Two blocks, cut where the first byte says, and lists after them where the second does. */
static void any_manifest(const uint8_t *data, size_t size)
{
	struct bk_ref refs[2];
	struct bk_snapshot s = {.info = {.id = ID}, .manifest = refs};
	if (size < 4)
		return;
	size_t n = size - 2, end = n - n * data[1] / 512, cut = end * data[0] / 256;
	if (cut > 0)
		refs[s.n_manifest++] = ref_at(0, cut);
	if (end > cut)
		refs[s.n_manifest++] = ref_at(cut, end - cut);
	read_manifest(&s, data + 2, n);
}

/* Pieces of a byte's length each become entries of right lengths. */
static void right_lengths(const uint8_t *data, size_t size)
{
	static uint8_t stream[ROOM];
	struct bk_ref ref;
	struct bk_snapshot s = {.info = {.id = ID}, .manifest = &ref, .n_manifest = 1};
	size_t n = 0;
	while (size > 1) {
		size_t len = SL_MIN((size_t)data[0], size - 1);
		if (n + 4 + len > sizeof(stream))
			break;
		sl__put32(stream + n, (uint32_t)len);
		memcpy(stream + n + 4, data + 1, len);
		n += 4 + len;
		data += 1 + len;
		size -= 1 + len;
	}
	if (n == 0)
		return;
	ref = ref_at(0, n);
	read_manifest(&s, stream, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (backup.env.mem == NULL)
		MUST(sl__env_init(&backup.env, NULL, NULL) == 0);
	if (size < 2)
		return 0;
	if (data[0] == 0)
		any_json(data + 1, size - 1);
	else if (data[0] == 2)
		right_lengths(data + 1, size - 1);
	else
		any_manifest(data + 1, size - 1);
	return 0;
}
