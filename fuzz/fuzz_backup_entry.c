/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as consecutive entries of a manifest: no byte outside is touched; what is accepted follows the rules, sorts
 * after the entry before it, and comes back the same when it is written and read again.
 */
#include "backup/manifest/manifest.h"
#include "must.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool same_bytes(const void *a, const void *b, size_t n)
{
	return n == 0 || memcmp(a, b, n) == 0;
}

static void must_be_same(const struct bk_entry *a, const struct bk_entry *b)
{
	MUST(a->type == b->type && a->flags == b->flags && a->mode == b->mode && a->uid == b->uid && a->gid == b->gid);
	MUST(sl__bk_same_time(a->mtime, b->mtime) && sl__bk_same_time(a->ctime, b->ctime) && a->dev == b->dev &&
	     a->ino == b->ino);
	MUST(a->nlink == b->nlink && a->size == b->size && a->rdev == b->rdev);
	MUST(a->path_len == b->path_len && same_bytes(a->path, b->path, a->path_len));
	MUST(a->target_len == b->target_len && same_bytes(a->target, b->target, a->target_len));
	MUST(a->n_xattrs == b->n_xattrs && a->n_extents == b->n_extents && a->n_refs == b->n_refs);
	for (size_t i = 0; i < a->n_xattrs; i++)
		MUST(strcmp(a->xattrs[i].name, b->xattrs[i].name) == 0 && a->xattrs[i].len == b->xattrs[i].len &&
		     same_bytes(a->xattrs[i].value, b->xattrs[i].value, a->xattrs[i].len));
	MUST(same_bytes(a->extents, b->extents, a->n_extents * sizeof(*a->extents)));
	for (size_t i = 0; i < a->n_refs; i++)
		MUST(a->refs[i].len == b->refs[i].len && memcmp(&a->refs[i].id, &b->refs[i].id, BK_ID_BYTES) == 0);
}

static void write_and_read_again(const struct sl_env *env, const struct bk_entry *e, const char *previous,
				 size_t previous_len)
{
	struct sl__buf buf;
	struct bk_entry_scratch *s;
	struct bk_entry again;
	size_t used;
	sl__buf_init(&buf, env);
	MUST(sl__bk_entry_scratch_new(&s, env) == 0);
	MUST(sl__bk_entry_encode(&buf, e, previous, previous_len, NULL) == 0);
	MUST(sl__bk_entry_decode(s, &(struct bk_entry_bytes){{buf.data, buf.len}, {previous, previous_len}}, &again,
				 &used, NULL) == 0);
	MUST(used == buf.len);
	must_be_same(e, &again);
	sl__bk_entry_scratch_free(s);
	sl__buf_fini(&buf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sl_env env;
	struct sl__buf path;
	struct bk_entry_scratch *s;
	struct bk_entry e;
	MUST(sl__env_init(&env, NULL, NULL) == 0 && sl__bk_entry_scratch_new(&s, &env) == 0);
	sl__buf_init(&path, &env);
	uint8_t *bytes = malloc(size > 0 ? size : 1); /* ends where its memory ends */
	MUST(bytes != NULL);
	memcpy(bytes, data, size);
	for (size_t at = 0;;) {
		struct sl_err err = SL_ERR_INIT;
		size_t used = 0;
		int rc = sl__bk_entry_decode(
			s, &(struct bk_entry_bytes){{bytes + at, size - at}, {sl__buf_str(&path), path.len}}, &e, &used,
			&err);
		MUST(rc == 0 || (rc == SL_EAGAIN && used > size - at) || (rc == SL_ECORRUPT && err.msg[0] != '\0'));
		if (rc != 0)
			break;
		MUST(sl__bk_entry_wrong(&e) == NULL && used >= 4 && used <= size - at);
		MUST(path.len == 0 || sl__bk_path_compare(path.data, path.len, e.path, e.path_len) < 0);
		write_and_read_again(&env, &e, sl__buf_str(&path), path.len);
		sl__buf_clear(&path);
		MUST(sl__buf_append(&path, e.path, e.path_len) == 0);
		at += used;
	}
	free(bytes);
	sl__buf_fini(&path);
	sl__bk_entry_scratch_free(s);
	return 0;
}
