/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scanner of packs (pack.h). Frames are visited in the order of their offsets. When the whole file is compared with
 * its name, the bytes between and after the frames are read too, so that the hash covers every byte once.
 */
#include "backup/check/pack.h"
#include "backup/helpers.h"
#include "base/sha256.h"

#define PIECE_BYTES (256u << 10) /* read at a time between and after frames */

struct bk_scanner {
	struct sl_backup *b;
	struct bk_opener *opener;
	struct bk_hasher *hasher;
	uint8_t *stored; /* a frame as it is in the file */
	size_t stored_cap;
	uint8_t *raw; /* BK_FRAME_RAW_MAX */
	/* of the current pack */
	const struct bk_scan *scan;
	uint64_t size;
	char name[SL_DRIVER_NAME_BYTES];
	struct sl__sha256 sha;
	uint64_t at; /* bytes hashed so far */
};

int sl__bk_scanner_new(struct bk_scanner **out, struct sl_backup *b, struct sl_err *err)
{
	struct bk_scanner *s = sl__calloc(&b->env, 1, sizeof(*s));
	if (s == NULL)
		return sl__no_memory(err, "read packs");
	s->b = b;
	s->raw = sl__alloc(&b->env, BK_FRAME_RAW_MAX);
	int rc = s->raw != NULL ? 0 : sl__no_memory(err, "read packs");
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

/* Read n bytes from offset on into stored; through the hash when the whole pack is read. */
static int fetch_stored(struct bk_scanner *s, uint64_t offset, size_t n, struct sl_err *err)
{
	const sl_driver *d = &s->b->driver;
	size_t got = 0;
	if (n > s->stored_cap) {
		void *grown = sl__realloc(&s->b->env, s->stored, n);
		if (grown == NULL)
			return sl_err_set(err, SL_ENOMEM, "read %s: out of memory", s->name);
		s->stored = grown;
		s->stored_cap = n;
	}
	int rc = d->ops->get(d->driver, s->name, offset, s->stored, n, &got, err);
	if (rc != 0)
		return rc;
	if (got < n)
		return sl_err_set(err, SL_ECORRUPT, "%s is shorter than it was", s->name);
	s->at = offset + n;
	return s->scan->whole ? sl__sha256_update(&s->sha, s->stored, n, err) : 0;
}

/* Hash what lies between the last byte that was read and `to`. */
static int hash_up_to(struct bk_scanner *s, uint64_t to, struct sl_err *err)
{
	int rc = 0;
	while (s->scan->whole && s->at < to && rc == 0)
		rc = fetch_stored(s, s->at, (size_t)SL_MIN(to - s->at, PIECE_BYTES), err);
	return rc;
}

static int report_bad_block(const struct bk_scanner *s, const struct bk_id *id, const struct sl_err *why,
			    struct sl_err *err)
{
	if (s->scan->bad != NULL)
		return s->scan->bad(id, why, err, s->scan->ctx);
	if (err != NULL)
		*err = *why;
	return why->code;
}

/* Is the place within its bounds? Those of the index are not checked against a directory. */
static bool place_is_valid(const struct bk_place *p, uint64_t size)
{
	return p->frame_raw <= BK_FRAME_RAW_MAX && p->frame_stored <= BK_FRAME_RAW_MAX + BK_SEAL_MAX &&
	       (uint64_t)p->frame_offset + p->frame_stored <= size && (uint64_t)p->offset + p->length <= p->frame_raw;
}

/* Open the frame of these n blocks, compare each with its id and pass it on. */
static int scan_frame(struct bk_scanner *s, const struct bk_pack_block *blocks, size_t n, const bool *wanted,
		      struct sl_err *err)
{
	const struct bk_place *frame = &blocks[0].place;
	struct sl_err why = SL_ERR_INIT;
	int opened = SL_ECORRUPT, rc = 0;
	if (!place_is_valid(frame, s->size)) {
		(void)sl_err_set(&why, SL_ECORRUPT, "%s: a frame lies outside the file", s->name);
	} else {
		rc = hash_up_to(s, frame->frame_offset, err);
		if (rc == 0)
			rc = fetch_stored(s, frame->frame_offset, frame->frame_stored, err);
		if (rc != 0)
			return rc;
		opened = sl__bk_frame_open(s->opener, frame, s->stored, s->raw, &why);
		if (opened != 0 && opened != SL_ECORRUPT)
			return sl__bk_result(opened, &why, err);
	}
	for (size_t i = 0; i < n && rc == 0; i++) {
		const struct bk_id *id = &blocks[i].id;
		const uint8_t *bytes = s->raw + blocks[i].place.offset;
		uint32_t len = blocks[i].place.length;
		struct bk_id is;
		if (!wanted[i])
			continue;
		if (opened != 0 || !place_is_valid(&blocks[i].place, s->size)) {
			rc = report_bad_block(s, id, &why, err);
			continue;
		}
		rc = sl__bk_hash(s->hasher, bytes, len, &is, err);
		if (rc == 0 && memcmp(is.b, id->b, BK_ID_BYTES) != 0) {
			struct sl_err mismatch = SL_ERR_INIT;
			(void)sl_err_set(&mismatch, SL_ECORRUPT, "%s: the bytes of a block do not match its id",
					 s->name);
			rc = report_bad_block(s, id, &mismatch, err);
		} else if (rc == 0 && s->scan->block != NULL) {
			rc = s->scan->block(id, bytes, len, err, s->scan->ctx);
		}
	}
	return rc;
}

int sl__bk_scan(struct bk_scanner *s, const struct bk_pack_blocks *p, const struct bk_scan *scan, struct sl_err *err)
{
	struct bk_id is;
	s->scan = scan;
	s->size = p->size;
	s->at = 0;
	sl__bk_pack_name(&p->pack, s->name);
	bool *wanted = sl__calloc(&s->b->env, p->n + 1, sizeof(*wanted));
	if (wanted == NULL)
		return sl_err_set(err, SL_ENOMEM, "read %s: out of memory", s->name);
	int rc = scan->whole ? sl__sha256_begin(&s->sha, err) : 0;
	for (size_t i = 0, end; i < p->n && rc == 0; i = end) {
		bool any = scan->whole;
		rc = sl__bk_check_stop(s->b, err);
		/* The blocks of the frame, and which of them are wanted. */
		for (end = i; end < p->n && rc == 0; end++) {
			if (p->blocks[end].place.frame_offset != p->blocks[i].place.frame_offset)
				break;
			int wants = scan->wants != NULL ? scan->wants(&p->blocks[end].id, err, scan->ctx) : 1;
			wanted[end] = wants > 0;
			any = any || wants > 0;
			rc = SL_MIN(wants, 0);
		}
		if (rc == 0 && any)
			rc = scan_frame(s, p->blocks + i, end - i, wanted + i, err);
	}
	if (rc == 0 && scan->whole) {
		/* The rest of the file, and whether all of it has the hash in its name. */
		rc = hash_up_to(s, p->size, err);
		if (rc == 0)
			rc = sl__sha256_final(&s->sha, is.b, err);
		if (rc == 0 && memcmp(is.b, p->pack.b, BK_ID_BYTES) != 0)
			rc = sl_err_set(err, SL_ECORRUPT, "the bytes of %s do not match its name", s->name);
	}
	sl__sha256_drop(&s->sha);
	sl__free(&s->b->env, wanted);
	return rc;
}
