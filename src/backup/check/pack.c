/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/check/pack.h"
#include "base/sha256.h"

#define PIECE_BYTES (256u << 10) /* of what is between and behind frames */

struct bk_scanner {
	struct sl_backup *b;
	struct bk_opener *opener;
	struct bk_hasher *hasher;
	uint8_t *stored; /* a frame as it is in the file */
	size_t stored_cap;
	uint8_t *raw; /* BK_FRAME_RAW_MAX */
	/* of the pack at hand */
	const struct bk_scan *scan;
	char name[SL_DRIVER_NAME_BYTES];
	struct sl__sha256 sha;
	uint64_t at; /* bytes that sha has seen */
};

int sl__bk_scanner_new(struct bk_scanner **out, struct sl_backup *b, struct sl_err *err)
{
	struct bk_scanner *s = sl__calloc(&b->env, 1, sizeof(*s));
	if (s == NULL)
		return sl_err_set(err, SL_ENOMEM, "read packs: out of memory");
	s->b = b;
	s->raw = sl__alloc(&b->env, BK_FRAME_RAW_MAX);
	int rc = s->raw != NULL ? 0 : sl_err_set(err, SL_ENOMEM, "read packs: out of memory");
	if (rc == 0)
		rc = sl__bk_opener_new(&s->opener, &b->env, &b->keys, err);
	if (rc == 0)
		rc = sl__bk_hasher_new(&s->hasher, &b->env, &b->keys, err);
	if (rc != 0) {
		sl__bk_scanner_free(s);
		return rc;
	}
	*out = s;
	return 0;
}

void sl__bk_scanner_free(struct bk_scanner *s)
{
	if (s == NULL)
		return;
	const struct sl_env *env = &s->b->env;
	sl__sha256_drop(&s->sha);
	sl__bk_opener_free(s->opener);
	sl__bk_hasher_free(s->hasher);
	sl__free(env, s->stored);
	sl__free(env, s->raw);
	sl__free(env, s);
}

static int reserve(struct bk_scanner *s, size_t n, struct sl_err *err)
{
	if (n <= s->stored_cap)
		return 0;
	void *grown = sl__realloc(&s->b->env, s->stored, n);
	if (grown == NULL)
		return sl_err_set(err, SL_ENOMEM, "read %s: out of memory", s->name);
	s->stored = grown;
	s->stored_cap = n;
	return 0;
}

/* n bytes from offset on into stored; through the hash when the whole pack is read. */
static int fetch(struct bk_scanner *s, uint64_t offset, size_t n, struct sl_err *err)
{
	const sl_driver *d = &s->b->driver;
	size_t got = 0;
	int rc = reserve(s, n, err);
	if (rc == 0)
		rc = d->ops->get(d->driver, s->name, offset, s->stored, n, &got, err);
	if (rc == 0 && got < n)
		rc = sl_err_set(err, SL_ECORRUPT, "%s is shorter than it was", s->name);
	if (rc == 0 && s->scan->whole)
		rc = sl__sha256_update(&s->sha, s->stored, n, err);
	s->at = offset + n;
	return rc;
}

/* What lies between the last byte that was read and `to`, for the hash. */
static int pass_to(struct bk_scanner *s, uint64_t to, struct sl_err *err)
{
	int rc = 0;
	while (s->scan->whole && s->at < to && rc == 0)
		rc = fetch(s, s->at, (size_t)SL_MIN(to - s->at, PIECE_BYTES), err);
	return rc;
}

static int tell_bad(const struct bk_scanner *s, const struct bk_id *id, const struct sl_err *why, struct sl_err *err)
{
	if (s->scan->bad != NULL)
		return s->scan->bad(id, why, s->scan->ctx, err);
	if (err != NULL)
		*err = *why;
	return why->code;
}

static int tell_block(struct bk_scanner *s, const struct bk_pack_block *block, struct sl_err *err)
{
	struct bk_id is;
	const uint8_t *bytes = s->raw + block->place.offset;
	int rc = sl__bk_hash(s->hasher, bytes, block->place.length, &is, err);
	if (rc != 0)
		return rc;
	if (memcmp(is.b, block->id.b, BK_ID_BYTES) != 0) {
		struct sl_err why = SL_ERR_INIT;
		(void)sl_err_set(&why, SL_ECORRUPT, "%s: a block has not the bytes of its id", s->name);
		return tell_bad(s, &block->id, &why, err);
	}
	return s->scan->block != NULL ? s->scan->block(&block->id, bytes, block->place.length, s->scan->ctx, err) : 0;
}

/* How many of the frame's n blocks are wanted? */
static int count_wanted(const struct bk_scanner *s, const struct bk_pack_block *blocks, size_t n, bool *wanted,
			struct sl_err *err)
{
	int count = 0;
	for (size_t i = 0; i < n; i++) {
		int rc = s->scan->wants != NULL ? s->scan->wants(&blocks[i].id, s->scan->ctx, err) : 1;
		if (rc < 0)
			return rc;
		wanted[i] = rc > 0;
		count += rc > 0;
	}
	return count;
}

/* Does the place make sense? The index's places are not checked against a directory. */
static bool is_sound(const struct bk_place *p, uint64_t size)
{
	return p->frame_raw <= BK_FRAME_RAW_MAX && p->frame_stored <= BK_FRAME_RAW_MAX + BK_SEAL_MAX &&
	       (uint64_t)p->frame_offset + p->frame_stored <= size && (uint64_t)p->offset + p->length <= p->frame_raw;
}

static int scan_frame(struct bk_scanner *s, uint64_t size, const struct bk_pack_block *blocks, size_t n,
		      const bool *wanted, struct sl_err *err)
{
	const struct bk_place *frame = &blocks[0].place;
	struct sl_err why = SL_ERR_INIT;
	int opened = SL_ECORRUPT, rc = 0;
	if (!is_sound(frame, size)) {
		(void)sl_err_set(&why, SL_ECORRUPT, "%s: a frame lies outside of it", s->name);
	} else {
		rc = pass_to(s, frame->frame_offset, err);
		if (rc == 0)
			rc = fetch(s, frame->frame_offset, frame->frame_stored, err);
		if (rc == 0)
			opened = sl__bk_frame_open(s->opener, frame, s->stored, s->raw, &why);
		if (rc == 0 && opened != 0 && opened != SL_ECORRUPT) {
			rc = opened;
			if (err != NULL)
				*err = why;
		}
	}
	for (size_t i = 0; i < n && rc == 0; i++) {
		if (!wanted[i])
			continue;
		bool there = opened == 0 && is_sound(&blocks[i].place, size);
		rc = there ? tell_block(s, &blocks[i], err) : tell_bad(s, &blocks[i].id, &why, err);
	}
	return rc;
}

static int scan_frames(struct bk_scanner *s, uint64_t size, const struct bk_pack_block *blocks, size_t n, bool *wanted,
		       struct sl_err *err)
{
	int rc = 0;
	for (size_t i = 0, end; i < n && rc == 0; i = end) {
		for (end = i + 1; end < n && blocks[end].place.frame_offset == blocks[i].place.frame_offset;)
			end++;
		rc = sl__bk_check_stop(s->b, err);
		int count = rc != 0 ? rc : count_wanted(s, blocks + i, end - i, wanted, err);
		if (count < 0)
			rc = count;
		else if (count > 0 || s->scan->whole)
			rc = scan_frame(s, size, blocks + i, end - i, wanted, err);
	}
	return rc;
}

/* The rest of the file, and whether all of it has the name's hash. */
static int settle(struct bk_scanner *s, const struct bk_id *pack, uint64_t size, struct sl_err *err)
{
	struct bk_id is;
	int rc = pass_to(s, size, err);
	if (rc == 0)
		rc = sl__sha256_final(&s->sha, is.b, err);
	if (rc == 0 && memcmp(is.b, pack->b, BK_ID_BYTES) != 0)
		rc = sl_err_set(err, SL_ECORRUPT, "%s has not the bytes of its name", s->name);
	return rc;
}

int sl__bk_scan(struct bk_scanner *s, const struct bk_id *pack, uint64_t size, const struct bk_pack_block *blocks,
		size_t n, const struct bk_scan *scan, struct sl_err *err)
{
	s->scan = scan;
	s->at = 0;
	sl__bk_pack_name(pack, s->name);
	bool *wanted = sl__calloc(&s->b->env, n + 1, sizeof(*wanted));
	if (wanted == NULL)
		return sl_err_set(err, SL_ENOMEM, "read %s: out of memory", s->name);
	int rc = scan->whole ? sl__sha256_begin(&s->sha, err) : 0;
	if (rc == 0)
		rc = scan_frames(s, size, blocks, n, wanted, err);
	if (rc == 0 && scan->whole)
		rc = settle(s, pack, size, err);
	sl__sha256_drop(&s->sha);
	sl__free(&s->b->env, wanted);
	return rc;
}
