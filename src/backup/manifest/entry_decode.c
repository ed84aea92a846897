/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding an entry; nothing in its bytes is trusted before it is checked. */
#include "backup/manifest/manifest.h"

struct bk_entry_scratch {
	const struct sl_env *env;
	char *path;
	size_t path_cap;
	char *text; /* targets and names of attributes, each with a NUL */
	size_t text_len, text_cap;
	struct bk_xattr *xattrs;
	size_t cap_xattrs;
	struct bk_extent *extents;
	size_t cap_extents;
	struct bk_ref *refs;
	size_t cap_refs;
};

/* What is left to read. Once something did not fit, bad stays set and everything reads as nothing. */
struct in {
	const uint8_t *p, *end;
	bool bad;
};

int sl__bk_entry_scratch_new(struct bk_entry_scratch **out, const struct sl_env *env)
{
	struct bk_entry_scratch *s = sl__calloc(env, 1, sizeof(*s));
	if (s == NULL)
		return SL_ENOMEM;
	s->env = env;
	*out = s;
	return 0;
}

void sl__bk_entry_scratch_free(struct bk_entry_scratch *s)
{
	if (s == NULL)
		return;
	sl__free(s->env, s->path);
	sl__free(s->env, s->text);
	sl__free(s->env, s->xattrs);
	sl__free(s->env, s->extents);
	sl__free(s->env, s->refs);
	sl__free(s->env, s);
}

static int grow_scratch(const struct sl_env *env, void *array, size_t *cap, size_t n, size_t size)
{
	void *p;
	memcpy(&p, array, sizeof(p));
	if (n <= *cap)
		return 0;
	size_t want = SL_MAX(n, SL_MAX((size_t)16, *cap * 2));
	void *more = sl__realloc(env, p, want * size);
	if (more == NULL)
		return SL_ENOMEM;
	memcpy(array, &more, sizeof(more));
	*cap = want;
	return 0;
}

/* ---- pieces ---- */

static uint64_t take_varint(struct in *in)
{
	uint64_t v = 0;
	for (unsigned shift = 0; in->p < in->end && shift < 64; shift += 7) {
		uint8_t byte = *in->p++;
		if (shift == 63 && byte > 1)
			break;
		v |= (uint64_t)(byte & 0x7f) << shift;
		if ((byte & 0x80) == 0)
			return v;
	}
	in->bad = true;
	in->p = in->end;
	return 0;
}

static uint32_t get_u32(struct in *in)
{
	uint64_t v = take_varint(in);
	in->bad |= v > UINT32_MAX;
	return (uint32_t)v;
}

static struct timespec take_entry_time(struct in *in)
{
	uint64_t sec = take_varint(in); /* zigzag */
	uint64_t nsec = take_varint(in);
	in->bad |= nsec >= BK_SECOND_NS;
	return (struct timespec){.tv_sec = (int64_t)((sec >> 1) ^ (0 - (sec & 1))),
				 .tv_nsec = (long)(nsec % BK_SECOND_NS)};
}

/* A count of things that take at least `least` bytes each: never more than are left, so that nothing is allocated for
 * what cannot be there. */
static size_t get_count(struct in *in, size_t least)
{
	uint64_t n = take_varint(in);
	if (n > (uint64_t)(in->end - in->p) / least) {
		in->bad = true;
		in->p = in->end;
		return 0;
	}
	return (size_t)n;
}

static const uint8_t *take_bytes(struct in *in, size_t *n)
{
	*n = get_count(in, 1);
	const uint8_t *p = in->p;
	in->p += *n;
	return p;
}

/* A string in the scratch, with its NUL. The room was made: every string is shorter than its encoding. */
static const char *take_entry_text(struct in *in, struct bk_entry_scratch *s, size_t *n)
{
	const uint8_t *p = take_bytes(in, n);
	char *at = s->text + s->text_len;
	if (*n > 0)
		memcpy(at, p, *n);
	at[*n] = '\0';
	s->text_len += *n + 1;
	return at;
}

/* ---- parts ---- */

/* The part that is shared with the path before is in place when that was decoded into the same scratch. */
static int get_path(struct in *in, struct bk_entry_scratch *s, const char *previous, size_t previous_len,
		    struct bk_entry *e)
{
	uint64_t shared = take_varint(in);
	size_t n;
	const uint8_t *rest = take_bytes(in, &n);
	if (in->bad || shared > previous_len || shared + n >= BK_PATH_MAX ||
	    (previous_len > 0 &&
	     sl__bk_path_compare(previous + shared, previous_len - shared, (const char *)rest, n) >= 0))
		return SL_ECORRUPT;
	bool in_place = previous == s->path;
	if (grow_scratch(s->env, &s->path, &s->path_cap, (size_t)shared + n + 1, 1) != 0)
		return SL_ENOMEM;
	if (!in_place && shared > 0)
		memcpy(s->path, previous, (size_t)shared);
	if (n > 0)
		memcpy(s->path + shared, rest, n);
	e->path = s->path;
	e->path_len = (size_t)shared + n;
	s->path[e->path_len] = '\0';
	return 0;
}

static int get_xattrs(struct in *in, struct bk_entry_scratch *s, struct bk_entry *e)
{
	size_t n = get_count(in, 2), name_len, len;
	if (n == 0)
		return 0;
	if (grow_scratch(s->env, &s->xattrs, &s->cap_xattrs, n, sizeof(*s->xattrs)) != 0)
		return SL_ENOMEM;
	for (size_t i = 0; i < n; i++) {
		struct bk_xattr *x = &s->xattrs[i];
		x->name = take_entry_text(in, s, &name_len);
		x->value = take_bytes(in, &len);
		x->len = (uint32_t)len; /* at most BK_ENTRY_MAX */
		in->bad |= strlen(x->name) != name_len;
		if (in->bad)
			return SL_ECORRUPT;
	}
	e->xattrs = s->xattrs;
	e->n_xattrs = n;
	return 0;
}

/* Extents and references of a file. */
static int get_contents(struct in *in, struct bk_entry_scratch *s, struct bk_entry *e)
{
	uint64_t end = 0;
	size_t n = (e->flags & BK_ENTRY_SPARSE) != 0 ? get_count(in, 2) : 0;
	if (n > BK_EXTENTS_MAX)
		return SL_ECORRUPT;
	if (grow_scratch(s->env, &s->extents, &s->cap_extents, n, sizeof(*s->extents)) != 0)
		return SL_ENOMEM;
	for (size_t i = 0; i < n; i++) {
		struct bk_extent *x = &s->extents[i];
		uint64_t gap = take_varint(in);
		x->length = take_varint(in);
		x->offset = end + gap;
		end = x->offset + x->length;
		if (x->offset < gap || end < x->offset)
			return SL_ECORRUPT;
	}
	e->extents = s->extents;
	e->n_extents = n;
	n = get_count(in, BK_ID_BYTES + 1);
	if (grow_scratch(s->env, &s->refs, &s->cap_refs, n, sizeof(*s->refs)) != 0)
		return SL_ENOMEM;
	for (size_t i = 0; i < n; i++) {
		if ((size_t)(in->end - in->p) < BK_ID_BYTES)
			return SL_ECORRUPT;
		memcpy(s->refs[i].id.b, in->p, BK_ID_BYTES);
		in->p += BK_ID_BYTES;
		s->refs[i].len = get_u32(in);
	}
	e->refs = s->refs;
	e->n_refs = n;
	return 0;
}

/* All that follows the length. */
static int get_fields(struct in *in, struct bk_entry_scratch *s, const struct bk_bytes *previous, struct bk_entry *e)
{
	if (in->end - in->p < 2)
		return SL_ECORRUPT;
	e->type = (enum sl_backup_type)in->p[0];
	e->flags = in->p[1];
	in->p += 2;
	int rc = get_path(in, s, previous->at, previous->len, e);
	if (rc != 0)
		return rc;
	e->mode = get_u32(in);
	e->uid = get_u32(in);
	e->gid = get_u32(in);
	e->mtime = take_entry_time(in);
	e->ctime = take_entry_time(in);
	e->dev = take_varint(in);
	e->ino = take_varint(in);
	e->nlink = take_varint(in);
	e->size = take_varint(in);
	e->rdev = take_varint(in);
	/* Room for all texts that may follow. */
	s->text_len = 0;
	rc = grow_scratch(s->env, &s->text, &s->text_cap, (size_t)(in->end - in->p) + 2, 1);
	if (rc != 0)
		return rc;
	if (e->type == SL_BACKUP_SYMLINK || e->type == SL_BACKUP_HARDLINK)
		e->target = take_entry_text(in, s, &e->target_len);
	rc = get_xattrs(in, s, e);
	if (rc == 0 && e->type == SL_BACKUP_FILE)
		rc = get_contents(in, s, e);
	if (rc != 0)
		return rc;
	return in->bad || in->p != in->end ? SL_ECORRUPT : 0;
}

int sl__bk_entry_decode(struct bk_entry_scratch *s, const struct bk_entry_bytes *from, struct bk_entry *e, size_t *used,
			struct sl_err *err)
{
	const uint8_t *bytes = from->bytes.at;
	const char *previous = from->previous.at;
	size_t n = from->bytes.len;
	uint32_t len = n >= 4 ? sl__get32(bytes) : 0;
	if (len > BK_ENTRY_MAX)
		return sl_err_set(err, SL_ECORRUPT, "an entry of %u bytes", len);
	*used = 4 + (size_t)len;
	if (n < *used)
		return SL_EAGAIN;
	struct in in = {bytes + 4, bytes + *used, false};
	memset(e, 0, sizeof(*e));
	int rc = get_fields(&in, s, &from->previous, e);
	if (rc == SL_ENOMEM)
		return sl_err_set(err, rc, "no memory for an entry");
	if (rc != 0)
		return sl_err_set(err, rc, "an entry that is truncated or not in order, after %.120s", previous);
	const char *wrong = sl__bk_entry_wrong(e);
	return wrong != NULL ? sl_err_set(err, SL_ECORRUPT, "%.120s: %s", e->path, wrong) : 0;
}
