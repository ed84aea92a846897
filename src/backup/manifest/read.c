/* SPDX-License-Identifier: Apache-2.0 */
/* The entries of a snapshot out of its blocks, each of which begins with a whole path and ends with a whole entry. */
#include "backup/manifest/manifest.h"

struct bk_manifest_reader {
	struct sl_backup *b;
	const struct bk_snapshot *snapshot;
	struct bk_reader *reader;
	struct bk_entry_scratch *scratch;
	struct sl__buf buf;  /* a copy of the block: the reader's bytes are gone when somebody else reads with it */
	size_t at;           /* in it */
	size_t next;         /* block */
	struct sl__buf path; /* of the entry before */
	bool was_dir;        /* the entry before */
};

int sl__bk_manifest_reader_new(struct bk_manifest_reader **out, struct sl_backup *b, const struct bk_snapshot *snapshot,
			       struct bk_reader *reader, struct sl_err *err)
{
	struct bk_manifest_reader *r = sl__calloc(&b->env, 1, sizeof(*r));
	if (r == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory to read a manifest");
	r->b = b;
	r->snapshot = snapshot;
	r->reader = reader;
	sl__buf_init(&r->buf, &b->env);
	sl__buf_init(&r->path, &b->env);
	int rc = sl__bk_entry_scratch_new(&r->scratch, &b->env);
	if (rc != 0) {
		sl__bk_manifest_reader_free(r);
		return sl_err_set(err, rc, "no memory to read a manifest");
	}
	*out = r;
	return 0;
}

void sl__bk_manifest_reader_free(struct bk_manifest_reader *r)
{
	if (r == NULL)
		return;
	sl__bk_entry_scratch_free(r->scratch);
	sl__buf_fini(&r->buf);
	sl__buf_fini(&r->path);
	sl__free(&r->b->env, r);
}

static int read_block(struct bk_manifest_reader *r, struct sl_err *err)
{
	const uint8_t *bytes;
	const struct bk_ref *ref = &r->snapshot->manifest[r->next];
	int rc = sl__bk_read_block(r->reader, &ref->id, ref->len, &bytes, err);
	if (rc != 0)
		return rc;
	sl__buf_clear(&r->buf);
	if (sl__buf_append(&r->buf, bytes, ref->len) != 0)
		return sl_err_set(err, SL_ENOMEM, "no memory to read a manifest");
	r->at = 0;
	r->next++;
	return 0;
}

/* The folder of an entry is the entry before it, or one that this one is in too: then it was looked at. */
static bool in_a_folder(const struct bk_manifest_reader *r, const struct bk_entry *e)
{
	const char *slash = memrchr(e->path, '/', e->path_len);
	size_t n = slash != NULL ? (size_t)(slash - e->path) : 0;
	if (n == 0)
		return true;
	if (r->path.len < n || memcmp(r->path.data, e->path, n) != 0)
		return false;
	return r->path.len == n ? r->was_dir : r->path.data[n] == '/';
}

static int accept(struct bk_manifest_reader *r, const struct bk_entry *e, struct sl_err *err)
{
	if (r->path.len > 0 && sl__bk_path_compare(r->path.data, r->path.len, e->path, e->path_len) >= 0)
		return sl_err_set(err, SL_ECORRUPT, "%.120s: not in order", e->path);
	if (!in_a_folder(r, e))
		return sl_err_set(err, SL_ECORRUPT, "%.120s: its folder does not come before it", e->path);
	sl__buf_clear(&r->path);
	if (sl__buf_append(&r->path, e->path, e->path_len) != 0)
		return sl_err_set(err, SL_ENOMEM, "no memory to read a manifest");
	r->was_dir = e->type == SL_BACKUP_DIR;
	return 1;
}

static int next_entry(struct bk_manifest_reader *r, struct bk_entry *e, struct sl_err *err)
{
	size_t used;
	while (r->at == r->buf.len) {
		if (r->next == r->snapshot->manifest_n)
			return 0;
		int rc = read_block(r, err);
		if (rc != 0)
			return rc;
	}
	bool first = r->at == 0;
	int rc = sl__bk_entry_decode(r->scratch, (const uint8_t *)r->buf.data + r->at, r->buf.len - r->at,
				     first ? "" : sl__buf_str(&r->path), first ? 0 : r->path.len, e, &used, err);
	if (rc == SL_EAGAIN)
		return sl_err_set(err, SL_ECORRUPT, "the last entry of a block is cut off");
	if (rc != 0)
		return rc;
	r->at += used;
	return accept(r, e, err);
}

int sl__bk_manifest_next(struct bk_manifest_reader *r, struct bk_entry *e, struct sl_err *err)
{
	int rc = next_entry(r, e, err);
	return rc < 0 ? sl_err_wrap(err, rc, "snapshot %s: manifest", r->snapshot->info.id) : rc;
}
