/* SPDX-License-Identifier: Apache-2.0 */
#include "writer/writer.h"

#define HASH_MAX_BYTES 255

/* The first four hexadecimal characters of the hash; fewer when it has no more. Returns their number. */
static size_t shard_key(const sl_writer *w, const struct sl_writer_block *block, char key[SL__WRITER_KEY])
{
	const uint8_t *hash = block->hash;
	if (w->o.hash_form == SL_WRITER_HASH_TEXT) {
		size_t n = SL_MIN(block->hash_len, SL__WRITER_KEY);
		memcpy(key, hash, n);
		return n;
	}
	size_t n = SL_MIN(block->hash_len, SL__WRITER_KEY / 2);
	return (size_t)(sl__hex(key, hash, n) - key);
}

static struct sl__wblock *make(const sl_writer *w, const struct sl_writer_block *in, bool copy)
{
	size_t extra = in->hash_len + (copy ? in->len : 0);
	struct sl__wblock *b = NULL;
	if (in->len <= SIZE_MAX - sizeof(*b) - HASH_MAX_BYTES)
		b = sl__alloc(&w->env, sizeof(*b) + extra);
	if (b == NULL)
		return NULL;
	*b = (struct sl__wblock){.item.bytes = in->len, .view = *in};
	memcpy(b->tail, in->hash, in->hash_len);
	b->view.hash = b->tail;
	if (copy && in->len > 0) {
		memcpy(b->tail + in->hash_len, in->bytes, in->len);
		b->view.bytes = b->tail + in->hash_len;
	}
	return b;
}

/* May a block of len come in? */
static int admit(const sl_writer *w, size_t len, struct sl_err *err) SL_REQUIRES(w->mu)
{
	if (w->failed) {
		if (err != NULL)
			*err = w->error;
		return w->error.code;
	}
	if (w->done)
		return sl_err_set(err, SL_ECLOSED, "writer %s: a block after signal_done", w->name);
	if (sl__writer_overfull(w, len)) {
		int rc = sl_err_set(err, SL_EFULL, "writer %s: the backlog is at twice its limit; wait for it to clear",
				    w->name);
		if (err != NULL)
			err->retryable = 1;
		return rc;
	}
	return 0;
}

static int push(sl_writer *w, struct sl__wblock *b, const char *key, size_t key_len, struct sl_err *err)
	SL_REQUIRES(w->mu)
{
	int rc = admit(w, b->view.len, err);
	if (rc != 0)
		return rc;
	if (sl__shards_push(w->shards, key, key_len, &b->item, 0) != 0)
		return sl_err_set(err, SL_ENOMEM, "writer %s: no memory for a shard", w->name);
	w->enqueued++;
	w->queued_blocks++;
	w->queued_bytes += b->view.len;
	sl__writer_press(w);
	sl__writer_stir(w);
	return 0;
}

static int enqueue(sl_writer *w, const struct sl_writer_block *in, bool copy, struct sl_err *err)
{
	char key[SL__WRITER_KEY];
	if (sl__forked(&w->guard))
		return sl_err_set(err, SL_EFORKED, "writer: used in a forked child");
	if (in->hash_len == 0 || in->hash_len > HASH_MAX_BYTES)
		return sl_err_set(err, SL_EINVAL, "writer %s: hash_len is %zu; give 1 to %d", w->name, in->hash_len,
				  HASH_MAX_BYTES);
	struct sl__wblock *b = make(w, in, copy);
	if (b == NULL)
		return sl_err_set(err, SL_ENOMEM, "writer %s: no memory for a block of %zu bytes", w->name, in->len);
	size_t key_len = shard_key(w, in, key);
	sl__lock(&w->mu);
	int rc = push(w, b, key, key_len, err);
	sl__unlock(&w->mu);
	if (rc != 0)
		sl__free(&w->env, b);
	return rc;
}

int sl_writer_enqueue(sl_writer *w, const void *hash, size_t hash_len, const void *bytes, size_t len,
		      struct sl_err *err)
{
	const struct sl_writer_block block = {.hash = hash, .hash_len = hash_len, .bytes = bytes, .len = len};
	return enqueue(w, &block, true, err);
}

int sl_writer_enqueue_block(sl_writer *w, const struct sl_writer_block *block, struct sl_err *err)
{
	return enqueue(w, block, false, err);
}
