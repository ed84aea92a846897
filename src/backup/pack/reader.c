/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading blocks: find the frame, read and open it once, compare the block with its id. A block that is damaged where
 * it was found, or that the storage cannot read there, is read from another pack that has it, when there is one.
 * Frames that were found damaged are remembered, so that not each of their blocks reads them again first.
 */
#include "backup/helpers.h"
#include "backup/repo/repo.h"

#define FRAMES 4
#define DAMAGED 16
#define PLACES_MAX 16 /* of a block that are tried */
#define RELOADS_MAX 8 /* a running prune deletes packs a few times at most; more is damage */

struct cached_frame {
	struct bk_id pack;
	uint32_t offset;
	uint32_t raw;   /* bytes in it */
	uint8_t *bytes; /* cap */
	size_t cap;
	uint64_t used; /* 0: empty */
};

struct damaged_frame {
	struct bk_id pack;
	uint32_t offset;
};

struct bk_reader {
	struct sl_backup *b;
	struct bk_index *index;
	struct bk_index *fresh; /* loaded by this reader, when a pack was gone */
	int reloads;
	bool index_damaged; /* the last look-up met a segment of the index that cannot be read */
	struct bk_opener *opener;
	struct bk_hasher *hasher;
	uint8_t *stored; /* as read */
	size_t stored_cap;
	uint64_t ticks;
	struct cached_frame frames[FRAMES];
	struct damaged_frame damaged[DAMAGED]; /* the last ones, in a ring */
	uint64_t n_damaged;                    /* in all */
};

int sl__bk_reader_new(struct bk_reader **out, struct sl_backup *b, struct bk_index *index, struct sl_err *err)
{
	struct bk_reader *r = sl__calloc(&b->env, 1, sizeof(*r));
	if (r == NULL)
		return sl_err_set(err, SL_ENOMEM, "read blocks: out of memory");
	r->b = b;
	r->index = index;
	int rc = sl__bk_opener_new(&r->opener, &b->env, &b->keys, err);
	if (rc == 0)
		rc = sl__bk_hasher_new(&r->hasher, &b->env, &b->keys, err);
	if (rc == 0)
		*out = r;
	else
		sl__bk_reader_free(r);
	return rc;
}

void sl__bk_reader_free(struct bk_reader *r)
{
	if (r == NULL)
		return;
	struct sl_backup *b = r->b;
	for (size_t i = 0; i < FRAMES; i++)
		sl__free(&b->env, r->frames[i].bytes);
	sl__free(&b->env, r->stored);
	sl__bk_opener_free(r->opener);
	sl__bk_hasher_free(r->hasher);
	sl__bk_index_free(r->fresh);
	sl__free(&b->env, r);
}

static int grow_buffer(const struct sl_env *env, uint8_t **bytes, size_t *cap, size_t need, struct sl_err *err)
{
	if (*cap >= need && *bytes != NULL)
		return 0;
	uint8_t *bigger = sl__realloc(env, *bytes, need != 0 ? need : 1);
	if (bigger == NULL)
		return sl_err_set(err, SL_ENOMEM, "read a frame of %zu bytes: out of memory", need);
	*bytes = bigger;
	*cap = need;
	return 0;
}

/* The frame of a place, read and opened unless it is cached. */
static int load_frame(struct bk_reader *r, const struct bk_found *at, struct cached_frame **out, struct sl_err *err)
{
	const struct bk_place *p = &at->place;
	struct cached_frame *oldest = &r->frames[0];
	char pack[SL_DRIVER_NAME_BYTES];
	size_t got = 0;
	sl__bk_pack_name(&at->pack, pack);
	/* What an index says is not to be trusted: that of a plain repository may be forged. */
	if (p->frame_raw > BK_FRAME_RAW_MAX || p->frame_stored > BK_FRAME_RAW_MAX + BK_SEAL_MAX ||
	    (uint64_t)p->offset + p->length > p->frame_raw)
		return sl_err_set(err, SL_ECORRUPT, "the index names an impossible place in %s", pack);
	for (size_t i = 0; i < FRAMES; i++) {
		struct cached_frame *f = &r->frames[i];
		if (f->used != 0 && f->offset == p->frame_offset && memcmp(&f->pack, &at->pack, sizeof(f->pack)) == 0) {
			*out = f;
			return 0;
		}
		if (f->used < oldest->used)
			oldest = f;
	}
	oldest->used = 0;
	int rc = grow_buffer(&r->b->env, &r->stored, &r->stored_cap, p->frame_stored, err);
	if (rc == 0)
		rc = r->b->driver.ops->get(r->b->driver.driver, pack, p->frame_offset, r->stored, p->frame_stored, &got,
					   err);
	if (rc == 0 && got != p->frame_stored)
		rc = sl_err_set(err, SL_ECORRUPT, "%s ends inside of a frame", pack);
	if (rc == 0)
		rc = grow_buffer(&r->b->env, &oldest->bytes, &oldest->cap, p->frame_raw, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_frame_open(r->opener, p, r->stored, oldest->bytes, err);
	if (rc != 0)
		return sl_err_wrap(err, rc, "%s at %u", pack, p->frame_offset);
	oldest->pack = at->pack;
	oldest->offset = p->frame_offset;
	oldest->raw = p->frame_raw;
	*out = oldest;
	return 0;
}

static int block_missing(const struct bk_id *id, struct sl_err *err)
{
	char hex[BK_HEX_BYTES];
	sl__bk_hex(id->b, sizeof(id->b), hex);
	return sl_err_set(err, SL_ENOENT, "no existing pack has block %s", hex);
}

/* SL_ESTALE: the pack is gone. */
static int read_found_block(struct bk_reader *r, const struct bk_found *at, const struct bk_ref *want,
			    const uint8_t **bytes, struct sl_err *err)
{
	struct cached_frame *f = &r->frames[0]; /* load_frame sets it */
	char pack[SL_DRIVER_NAME_BYTES];
	struct bk_id is;
	int rc = load_frame(r, at, &f, err);
	if (rc == SL_ENOENT)
		return SL_ESTALE;
	if (rc != 0)
		return rc;
	sl__bk_pack_name(&at->pack, pack);
	if ((uint64_t)at->place.offset + at->place.length > f->raw) /* two entries may disagree about a frame */
		return sl_err_set(err, SL_ECORRUPT, "the index names an impossible place in %s", pack);
	if (at->place.length != want->len)
		return sl_err_set(err, SL_ECORRUPT, "a block in %s has %u bytes where %u are expected", pack,
				  at->place.length, want->len);
	rc = sl__bk_hash(r->hasher, f->bytes + at->place.offset, at->place.length, &is, err);
	if (rc != 0)
		return rc;
	if (memcmp(&is, &want->id, sizeof(is)) != 0)
		return sl_err_set(err, SL_ECORRUPT, "a block in %s at %u does not match its id", pack,
				  at->place.frame_offset);
	f->used = ++r->ticks;
	*bytes = f->bytes + at->place.offset;
	return 0;
}

/* ---- other places ---- */

static bool is_block_damage(int rc)
{
	return rc == SL_ECORRUPT || rc == SL_EIO;
}

/* Whether the block was read from another pack than not_in. */
static bool read_elsewhere(struct bk_reader *r, const struct bk_id *not_in, const struct bk_ref *want,
			   const uint8_t **bytes)
{
	struct bk_found places[PLACES_MAX];
	struct bk_index *index = r->fresh != NULL ? r->fresh : r->index;
	int n = sl__bk_index_places(index, &want->id, places, PLACES_MAX, NULL);
	for (int i = 0; i < n; i++)
		if (memcmp(&places[i].pack, not_in, sizeof(*not_in)) != 0 &&
		    read_found_block(r, &places[i], want, bytes, NULL) == 0)
			return true;
	return false;
}

/* As find says, or, where that is damaged, elsewhere. SL_ENOENT without a pack, SL_ESTALE with one that is gone. */
static int find_and_read(struct bk_reader *r, const struct bk_ref *want, const uint8_t **bytes, struct sl_err *err)
{
	struct bk_found at;
	struct sl_err why = SL_ERR_INIT;
	int rc = sl__bk_index_find(r->fresh != NULL ? r->fresh : r->index, &want->id, &at, &why);
	r->index_damaged = is_block_damage(rc);
	if (rc == SL_ENOENT)
		return block_missing(&want->id, err);
	if (rc == 0) {
		bool known = false; /* its frame was found damaged before */
		for (uint64_t i = 0; i < SL_MIN(r->n_damaged, (uint64_t)DAMAGED); i++)
			known = known || (r->damaged[i].offset == at.place.frame_offset &&
					  memcmp(&r->damaged[i].pack, &at.pack, sizeof(at.pack)) == 0);
		if (known && read_elsewhere(r, &at.pack, want, bytes))
			return 0;
		rc = read_found_block(r, &at, want, bytes, &why);
		if (is_block_damage(rc) && read_elsewhere(r, &at.pack, want, bytes)) {
			if (!known) {
				char pack[SL_DRIVER_NAME_BYTES];
				r->damaged[r->n_damaged++ % DAMAGED] =
					(struct damaged_frame){.pack = at.pack, .offset = at.place.frame_offset};
				sl__bk_pack_name(&at.pack, pack);
				sl__log(&r->b->env, SL_LOG_WARN, "backup",
					"a damaged block is read from another pack: run a check",
					SL__F_STR("pack", pack), SL__F_STR("reason", why.msg));
			}
			return 0;
		}
	}
	return sl__bk_result(rc, &why, err);
}

int sl__bk_read_block(struct bk_reader *r, const struct bk_id *id, uint32_t expected_len, const uint8_t **bytes,
		      struct sl_err *err)
{
	const struct bk_ref want = {.id = *id, .len = expected_len};
	struct bk_index *fresh;
	int rc = find_and_read(r, &want, bytes, err);
	if (rc != SL_ESTALE && !r->index_damaged)
		return rc;
	/* A pack is gone, or the index is damaged there: load a new index and look once more. */
	if (r->reloads == RELOADS_MAX)
		return block_missing(id, err);
	r->reloads++;
	rc = r->index_damaged ? sl__bk_index_around_damage(r->b, &fresh, err)
			      : sl__bk_index_for_reading(r->b, &fresh, err);
	if (rc != 0)
		return rc;
	sl__bk_index_free(r->fresh);
	r->fresh = fresh;
	rc = find_and_read(r, &want, bytes, err);
	return rc == SL_ESTALE ? block_missing(id, err) : rc;
}
