/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading blocks: find the frame, read and open it once, compare the block with its id. A block that is damaged where
 * it was found, or that the storage does not give there, is read from another pack that has it, when there is one.
 * Frames that were found damaged are remembered, so that not each of their blocks reads them again first.
 */
#include "backup/repo/repo.h"

#define FRAMES 4
#define DAMAGED 16
#define PLACES_MAX 16 /* of a block that are tried */
#define RELOADS_MAX 8 /* a prune that runs takes packs away a few times at most; more is damage */

struct frame {
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
	bool index_damaged; /* the last look met a segment of the index that cannot be read */
	struct bk_opener *opener;
	struct bk_hasher *hasher;
	uint8_t *stored; /* as read */
	size_t stored_cap;
	uint64_t ticks;
	struct frame frames[FRAMES];
	struct damaged_frame damaged[DAMAGED]; /* the last ones, in a ring */
	uint64_t damaged_n;                    /* ever */
};

int sl__bk_reader_new(struct bk_reader **out, struct sl_backup *b, struct bk_index *index, struct sl_err *err)
{
	struct bk_reader *r = sl__calloc(&b->env, 1, sizeof(*r));
	if (r == NULL)
		return sl_err_set(err, SL_ENOMEM, "read blocks: out of memory");
	r->b = b;
	r->index = index;
	int rc = sl__bk_opener_new(&r->opener, &b->env, err);
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

static int grow(const struct sl_env *env, uint8_t **bytes, size_t *cap, size_t need, struct sl_err *err)
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

static struct frame *find_frame(struct bk_reader *r, const struct bk_found *at)
{
	for (size_t i = 0; i < FRAMES; i++) {
		struct frame *f = &r->frames[i];
		if (f->used != 0 && f->offset == at->place.frame_offset &&
		    memcmp(&f->pack, &at->pack, sizeof(f->pack)) == 0)
			return f;
	}
	return NULL;
}

static struct frame *oldest_frame(struct bk_reader *r)
{
	struct frame *f = &r->frames[0];
	for (size_t i = 1; i < FRAMES; i++)
		if (r->frames[i].used < f->used)
			f = &r->frames[i];
	return f;
}

/* What an index says is not to be trusted: a plain repository's can be anybody's. */
static int check_place(const struct bk_place *p, const char *pack, struct sl_err *err)
{
	if (p->frame_raw <= BK_FRAME_RAW_MAX && p->frame_stored <= BK_FRAME_RAW_MAX + BK_SEAL_MAX &&
	    (uint64_t)p->offset + p->length <= p->frame_raw)
		return 0;
	return sl_err_set(err, SL_ECORRUPT, "the index names an impossible place in %s", pack);
}

static int read_stored(struct bk_reader *r, const char *pack, const struct bk_place *p, struct sl_err *err)
{
	size_t got = 0;
	int rc = grow(&r->b->env, &r->stored, &r->stored_cap, p->frame_stored, err);
	if (rc == 0)
		rc = r->b->driver.ops->get(r->b->driver.driver, pack, p->frame_offset, r->stored, p->frame_stored, &got,
					   err);
	if (rc == 0 && got != p->frame_stored)
		rc = sl_err_set(err, SL_ECORRUPT, "%s ends inside of a frame", pack);
	return rc;
}

static int load_frame(struct bk_reader *r, const struct bk_found *at, struct frame **out, struct sl_err *err)
{
	char pack[SL_DRIVER_NAME_BYTES];
	sl__bk_pack_name(&at->pack, pack);
	int rc = check_place(&at->place, pack, err);
	if (rc != 0)
		return rc;
	struct frame *f = find_frame(r, at);
	if (f != NULL) {
		*out = f;
		return 0;
	}
	f = oldest_frame(r);
	f->used = 0;
	rc = read_stored(r, pack, &at->place, err);
	if (rc == 0)
		rc = grow(&r->b->env, &f->bytes, &f->cap, at->place.frame_raw, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_frame_open(r->opener, &r->b->keys, &at->place, r->stored, f->bytes, err);
	if (rc != 0)
		return sl_err_wrap(err, rc, "%s at %u", pack, at->place.frame_offset);
	f->pack = at->pack;
	f->offset = at->place.frame_offset;
	f->raw = at->place.frame_raw;
	*out = f;
	return 0;
}

static int missing(const struct bk_id *id, struct sl_err *err)
{
	char hex[BK_HEX_BYTES];
	sl__bk_hex(id->b, sizeof(id->b), hex);
	return sl_err_set(err, SL_ENOENT, "block %s is in no pack that is there", hex);
}

/* Two entries of an index may lie about the same frame. */
static int verify(struct bk_reader *r, const struct frame *f, const struct bk_found *at, const struct bk_id *id,
		  uint32_t expected_len, struct sl_err *err)
{
	char pack[SL_DRIVER_NAME_BYTES];
	struct bk_id is;
	sl__bk_pack_name(&at->pack, pack);
	if ((uint64_t)at->place.offset + at->place.length > f->raw)
		return sl_err_set(err, SL_ECORRUPT, "the index names an impossible place in %s", pack);
	if (at->place.length != expected_len)
		return sl_err_set(err, SL_ECORRUPT, "a block in %s has %u bytes where %u are expected", pack,
				  at->place.length, expected_len);
	int rc = sl__bk_hash(r->hasher, f->bytes + at->place.offset, at->place.length, &is, err);
	if (rc == 0 && memcmp(&is, id, sizeof(is)) != 0)
		rc = sl_err_set(err, SL_ECORRUPT, "a block in %s at %u is not the one of its id", pack,
				at->place.frame_offset);
	return rc;
}

/* SL_ESTALE: the pack is gone. */
static int read_at(struct bk_reader *r, const struct bk_found *at, const struct bk_id *id, uint32_t expected_len,
		   const uint8_t **bytes, struct sl_err *err)
{
	struct frame *f = &r->frames[0]; /* load_frame says which */
	int rc = load_frame(r, at, &f, err);
	if (rc == SL_ENOENT)
		return SL_ESTALE;
	if (rc == 0)
		rc = verify(r, f, at, id, expected_len, err);
	if (rc != 0)
		return rc;
	f->used = ++r->ticks;
	*bytes = f->bytes + at->place.offset;
	return 0;
}

/* ---- other places ---- */

static bool is_damaged(const struct bk_reader *r, const struct bk_found *at)
{
	for (uint64_t i = 0; i < SL_MIN(r->damaged_n, (uint64_t)DAMAGED); i++)
		if (r->damaged[i].offset == at->place.frame_offset &&
		    memcmp(&r->damaged[i].pack, &at->pack, sizeof(at->pack)) == 0)
			return true;
	return false;
}

static void note_damaged(struct bk_reader *r, const struct bk_found *at, const struct sl_err *why)
{
	char pack[SL_DRIVER_NAME_BYTES];
	if (is_damaged(r, at))
		return;
	r->damaged[r->damaged_n++ % DAMAGED] =
		(struct damaged_frame){.pack = at->pack, .offset = at->place.frame_offset};
	sl__bk_pack_name(&at->pack, pack);
	sl__log(&r->b->env, SL_LOG_WARN, "backup", "a damaged block is read from another pack: run a check",
		SL__F_STR("pack", pack), SL__F_STR("reason", why->msg));
}

static bool is_damage(int rc)
{
	return rc == SL_ECORRUPT || rc == SL_EIO;
}

static struct bk_index *index_of(const struct bk_reader *r)
{
	return r->fresh != NULL ? r->fresh : r->index;
}

/* 0; or SL_ENOENT: there is no other place that is right. */
static int read_elsewhere(struct bk_reader *r, const struct bk_id *not_in, const struct bk_id *id,
			  uint32_t expected_len, const uint8_t **bytes)
{
	struct bk_found places[PLACES_MAX];
	size_t n = 0;
	int rc = sl__bk_index_places(index_of(r), id, places, PLACES_MAX, &n, NULL);
	if (rc != 0)
		return SL_ENOENT;
	rc = SL_ENOENT;
	for (size_t i = 0; i < n && rc != 0; i++)
		if (memcmp(&places[i].pack, not_in, sizeof(*not_in)) != 0)
			rc = read_at(r, &places[i], id, expected_len, bytes, NULL);
	return rc == 0 ? 0 : SL_ENOENT;
}

/* As find says, or, where that is damaged, elsewhere. SL_ENOENT without a pack, SL_ESTALE with one that is gone. */
static int look(struct bk_reader *r, const struct bk_id *id, uint32_t expected_len, const uint8_t **bytes,
		struct sl_err *err)
{
	struct bk_found at;
	struct sl_err why = SL_ERR_INIT;
	int rc = sl__bk_index_find(index_of(r), id, &at, &why);
	r->index_damaged = is_damage(rc);
	if (rc == SL_ENOENT)
		return missing(id, err);
	if (rc == 0 && is_damaged(r, &at) && read_elsewhere(r, &at.pack, id, expected_len, bytes) == 0)
		return 0;
	if (rc == 0) {
		rc = read_at(r, &at, id, expected_len, bytes, &why);
		if (is_damage(rc) && read_elsewhere(r, &at.pack, id, expected_len, bytes) == 0) {
			note_damaged(r, &at, &why);
			return 0;
		}
	}
	if (rc != 0 && err != NULL)
		*err = why;
	return rc;
}

static int reload(struct bk_reader *r, const struct bk_id *id, struct sl_err *err)
{
	struct bk_index *fresh;
	if (r->reloads == RELOADS_MAX)
		return missing(id, err);
	r->reloads++;
	int rc = r->index_damaged ? sl__bk_index_around_damage(r->b, &fresh, err)
				  : sl__bk_index_for_reading(r->b, &fresh, err);
	if (rc != 0)
		return rc;
	sl__bk_index_free(r->fresh);
	r->fresh = fresh;
	return 0;
}

int sl__bk_read_block(struct bk_reader *r, const struct bk_id *id, uint32_t expected_len, const uint8_t **bytes,
		      struct sl_err *err)
{
	int rc = look(r, id, expected_len, bytes, err);
	if ((rc == SL_ESTALE || r->index_damaged) && (rc = reload(r, id, err)) == 0 &&
	    (rc = look(r, id, expected_len, bytes, err)) == SL_ESTALE)
		rc = missing(id, err);
	return rc;
}
