/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order that F3 asks for: a pack's entries go to the index builder when it is closed, but no reader sees them
 * before finish has put the index, and finish does so only when the writer has written every pack, each was found with its
 * length, and a sync has made them durable. A store that has failed puts no index: its packs are taken in by the next
 * create.
 */
#include "backup/pack/store.h"

#include "backup/helpers.h"

#define WAIT_MS 100 /* how often a waiting thread checks whether it is to stop */

struct written {
	struct bk_id pack;
	uint64_t size;
};

struct bk_store {
	struct sl_backup *b;
	struct bk_index *index; /* NULL: nothing is there */
	struct bk_seen *seen;   /* blocks that this store was given */
	struct bk_index_builder *entries;
	struct sl_writer_driver_ops ops;
	sl_writer *writer;
	bool joined;
	struct bk_pack **lanes; /* made by their first block; after those of the workers one for second copies */
	int n_lanes;            /* of workers */
	sl__mutex second_mu;    /* of the last lane: before mu */
	struct bk_images images;
	atomic_uint_fast64_t new_blocks, known_blocks, new_bytes, known_bytes, physical_bytes;
	sl__mutex mu;          /* of what follows */
	struct sl_err failure; /* the first; code 0: none */
	struct written *packs; /* that were handed to the writer */
	size_t n_packs, cap_packs;
};

/* ---- between the writer and the driver ---- */

struct put {
	struct bk_store *s;
	struct sl_write write;
	char name[SL_DRIVER_NAME_BYTES];
};

static void put_done(const struct sl_err *err, void *ctx)
{
	struct put *p = ctx;
	struct sl_write write = p->write;
	sl__free(&p->s->b->env, p);
	(void)sl_writer_complete(write, err); /* the store may be gone after this */
}

static int schedule_write(void *driver, const struct sl_writer_block *block, SL_UNUSED uint32_t attempt,
			  struct sl_write write, struct sl_err *err)
{
	struct bk_store *s = driver;
	struct bk_id pack;
	struct put *p = sl__calloc(&s->b->env, 1, sizeof(*p));
	if (p == NULL)
		return sl_err_set(err, SL_ENOMEM, "put a pack: out of memory");
	p->s = s;
	p->write = write;
	memcpy(pack.b, block->hash, sizeof(pack.b));
	sl__bk_pack_name(&pack, p->name);
	const sl_driver *d = &s->b->driver;
	int rc = d->ops->schedule_put(d->driver, p->name, block->bytes, block->len, put_done, p, err);
	if (rc != 0)
		sl__free(&s->b->env, p);
	return rc;
}

static bool is_shard_ready(void *driver, const char *key, size_t len)
{
	const sl_driver *d = &((struct bk_store *)driver)->b->driver;
	return d->ops->is_shard_ready(d->driver, key, len);
}

static bool wait_for_any_shard_ready(void *driver, int64_t timeout_ms)
{
	const sl_driver *d = &((struct bk_store *)driver)->b->driver;
	return d->ops->wait_for_any_shard_ready(d->driver, timeout_ms);
}

static uint64_t driver_buffered_bytes(void *driver)
{
	const sl_driver *d = &((struct bk_store *)driver)->b->driver;
	return d->ops->driver_buffered_bytes(d->driver);
}

static void on_concurrency_limit_changed(void *driver, uint32_t concurrency)
{
	const sl_driver *d = &((struct bk_store *)driver)->b->driver;
	d->ops->on_concurrency_limit_changed(d->driver, concurrency);
}

static void count_physical(uint64_t bytes, void *ctx)
{
	struct bk_store *s = ctx;
	atomic_fetch_add(&s->physical_bytes, bytes);
}

/* ---- new, free ---- */

int sl__bk_store_new(struct bk_store **out, struct sl_backup *b, struct bk_index *index, int lanes, struct sl_err *err)
{
	assert(lanes > 0);
	struct bk_store *s = sl__calloc(&b->env, 1, sizeof(*s));
	if (s == NULL)
		return sl_err_set(err, SL_ENOMEM, "store blocks: out of memory");
	s->b = b;
	s->index = index;
	s->n_lanes = lanes;
	const struct sl_driver_ops *d = b->driver.ops;
	s->ops = (struct sl_writer_driver_ops){
		.version = SL_WRITER_DRIVER_VERSION,
		.name = d->name,
		.schedule_write = schedule_write,
		.is_shard_ready = d->is_shard_ready != NULL ? is_shard_ready : NULL,
		.wait_for_any_shard_ready = d->wait_for_any_shard_ready != NULL ? wait_for_any_shard_ready : NULL,
		.driver_buffered_bytes = d->driver_buffered_bytes != NULL ? driver_buffered_bytes : NULL,
		.on_concurrency_limit_changed =
			d->on_concurrency_limit_changed != NULL ? on_concurrency_limit_changed : NULL,
	};
	struct sl_writer_opts opts = {SL_WRITER_OPTS_INIT,
				      .env = &b->env,
				      .name = "backup",
				      .hash_form = SL_WRITER_HASH_BINARY,
				      .max_concurrent_writes = b->opts.max_concurrent_writes,
				      .backlog_limit_bytes = b->opts.backlog_limit_bytes,
				      .max_retry_attempts = b->opts.max_retry_attempts,
				      .retry_policy.first_ms = b->opts.retry_first_ms,
				      .handle_physical_bytes = count_physical,
				      .ctx = s};
	sl__mutex_init(&s->mu);
	sl__mutex_init(&s->second_mu);
	sl__bk_images_init(&s->images);
	s->lanes = sl__calloc(&b->env, (size_t)lanes + 1, sizeof(struct bk_pack *));
	int rc = s->lanes != NULL ? sl__bk_seen_new(&s->seen, &b->env, err)
				  : sl_err_set(err, SL_ENOMEM, "store blocks: out of memory");
	if (rc == 0)
		rc = sl__bk_index_builder_new(&s->entries, &b->env, &b->keys, err);
	if (rc == 0)
		rc = sl_writer_new(&s->writer, &s->ops, s, &opts, err);
	if (rc == 0)
		rc = sl_writer_start(s->writer, err);
	if (rc == 0)
		*out = s;
	else
		sl__bk_store_free(s);
	return rc;
}

void sl__bk_store_free(struct bk_store *s)
{
	if (s == NULL)
		return;
	struct sl_backup *b = s->b;
	/* Cancel what is not written, and wait for the driver: it still has the bytes. */
	if (s->writer != NULL && !s->joined && sl_writer_cancel(s->writer, NULL) == 0) {
		int rc = sl_writer_join(s->writer, SL_UNLIMITED, NULL); /* its error does not matter any more */
		(void)rc;
	}
	int freed = sl_writer_free(s->writer);
	assert(freed == 0);
	(void)freed;
	for (int i = 0; s->lanes != NULL && i <= s->n_lanes; i++)
		sl__bk_pack_free(s->lanes[i]);
	sl__free(&b->env, s->lanes);
	sl__bk_seen_free(s->seen);
	sl__bk_index_builder_free(s->entries);
	sl__free(&b->env, s->packs);
	sl__bk_images_fini(&s->images, &b->env);
	sl__mutex_fini(&s->second_mu);
	sl__mutex_fini(&s->mu);
	sl__free(&b->env, s);
}

/* ---- packs ---- */

/* A wait that timed out is not an error. */
static int await_room(struct bk_store *s, struct sl_err *err)
{
	struct sl_err why;
	int rc;
	do {
		why = (struct sl_err)SL_ERR_INIT;
		rc = sl__bk_check_stop(s->b, &why);
		if (rc == 0)
			rc = sl_writer_wait_for_backpressure_clear(s->writer, WAIT_MS, &why);
	} while (rc == SL_ETIMEDOUT);
	return sl__bk_result(rc, &why, err);
}

static void release_image(const struct sl_writer_block *block)
{
	struct bk_store *s = block->ctx;
	union {
		const void *from;
		void *to;
	} bytes = {.from = block->bytes};
	sl__bk_image_free(&s->b->env, &s->images, bytes.to);
}

/* Close a lane's pack and hand it to the writer. */
static int send_pack(struct bk_store *s, int lane, struct sl_err *err)
{
	struct bk_pack_image image = {.bytes = NULL};
	if (s->lanes[lane] == NULL)
		return 0;
	int rc = sl__bk_pack_take(s->lanes[lane], &image, err);
	if (rc != 0 || image.n_blocks == 0)
		return rc;
	/* Remember it for finish. */
	sl__lock(&s->mu);
	struct written *grown = sl__grow(&s->b->env, s->packs, s->n_packs, &s->cap_packs, sizeof(*grown));
	if (grown != NULL) {
		s->packs = grown;
		s->packs[s->n_packs++] = (struct written){.pack = image.name, .size = image.len};
	}
	sl__unlock(&s->mu);
	if (grown == NULL)
		rc = sl_err_set(err, SL_ENOMEM, "put a pack: out of memory");
	else
		rc = sl__bk_index_builder_pack(s->entries, &image.name, image.blocks, image.n_blocks, err);
	/* On success the writer owns the image's bytes. */
	struct sl_writer_block block = {.hash = image.name.b,
					.hash_len = sizeof(image.name.b),
					.bytes = image.bytes,
					.len = image.len,
					.release = release_image,
					.ctx = s};
	bool queued = false;
	while (rc == 0 && !queued) {
		rc = sl_writer_enqueue_block(s->writer, &block, err);
		queued = rc == 0;
		if (rc == SL_EFULL)
			rc = await_room(s, err);
	}
	if (queued)
		image.bytes = NULL;
	sl__bk_pack_image_fini(&s->b->env, &image);
	return rc;
}

static int add_block(struct bk_store *s, int lane, const struct bk_block *block, struct sl_err *err)
{
	const struct sl_backup_opts *o = &s->b->opts;
	bool full = false;
	int rc = 0;
	if (s->lanes[lane] == NULL) {
		const struct bk_pack_opts opts = {.keys = &s->b->keys,
						  .level = o->zstd_level,
						  .pack_bytes = (size_t)o->pack_bytes,
						  .images = &s->images};
		rc = sl__bk_pack_new(&s->lanes[lane], &s->b->env, &opts, err);
		if (rc != 0)
			return rc;
	}
	rc = sl__bk_pack_add(s->lanes[lane], block, &full, err);
	if (rc != 0 || !full)
		return rc;
	rc = send_pack(s, lane, err);
	if (rc != 0)
		return rc;
	return await_room(s, err);
}

/* ---- blocks ---- */

static int is_in_index(struct bk_store *s, const struct bk_id *id, bool *is, struct sl_err *err)
{
	int rc = s->index != NULL ? sl__bk_index_find(s->index, id, NULL, err) : SL_ENOENT;
	*is = rc == 0;
	return rc == SL_ENOENT ? 0 : rc;
}

struct request {
	int lane;
	const struct bk_block *block;
	int copies;  /* packs that are to have it */
	bool always; /* also when the repository has it */
};

/* Into how many packs it has to go, where no other thread will put it; 0: it is in all of them. */
static int claim_block(struct bk_store *s, const struct request *q, struct sl_err *err)
{
	struct bk_found places[2];
	const struct bk_id *id = q->block->id;
	int known = 0;
	int rc = sl__bk_check_stop(s->b, err);
	if (rc == 0)
		rc = sl_writer_error(s->writer, err);
	if (rc != 0)
		return rc;
	if (!q->always && q->copies == 1) {
		bool is = false;
		rc = is_in_index(s, id, &is, err);
		known = is;
	} else if (!q->always && s->index != NULL) {
		known = sl__bk_index_places(s->index, id, places, SL_COUNT(places), err);
		rc = SL_MIN(known, 0);
	}
	if (rc != 0 || known >= q->copies)
		return rc;
	rc = sl__bk_seen_add(s->seen, id);
	if (rc < 0)
		return sl_err_set(err, rc, "store a block: out of memory");
	return rc > 0 ? q->copies - known : 0;
}

static int store_with_copies(struct bk_store *s, const struct request *q, bool *is_new, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	assert(q->lane >= 0 && q->lane < s->n_lanes && q->copies >= 1 && q->copies <= 2);
	int missing = claim_block(s, q, &why);
	int rc = missing > 0 ? add_block(s, q->lane, q->block, &why) : missing;
	/* The second copy goes into a pack that all workers share, so that it is in another one than the first. */
	if (rc == 0 && missing > 1) {
		sl__lock(&s->second_mu);
		rc = add_block(s, s->n_lanes, q->block, &why);
		sl__unlock(&s->second_mu);
	}
	if (rc != 0) { /* from now on finish fails: a block may be missing */
		sl__lock(&s->mu);
		if (s->failure.code == 0)
			s->failure = why;
		sl__unlock(&s->mu);
		return sl__bk_result(rc, &why, err);
	}
	bool added = missing == q->copies;
	atomic_fetch_add(added ? &s->new_blocks : &s->known_blocks, 1);
	atomic_fetch_add(added ? &s->new_bytes : &s->known_bytes, q->block->len);
	if (is_new != NULL)
		*is_new = added;
	return 0;
}

int sl__bk_store_block(struct bk_store *s, int lane, const struct bk_block *block, bool *is_new, struct sl_err *err)
{
	return store_with_copies(s, &(struct request){.lane = lane, .block = block, .copies = 1}, is_new, err);
}

int sl__bk_store_metadata(struct bk_store *s, int lane, const struct bk_block *block, bool *is_new, struct sl_err *err)
{
	return store_with_copies(s, &(struct request){.lane = lane, .block = block, .copies = 2}, is_new, err);
}

int sl__bk_store_put_always(struct bk_store *s, int lane, const struct bk_block *block, int copies, struct sl_err *err)
{
	return store_with_copies(s, &(struct request){.lane = lane, .block = block, .copies = copies, .always = true},
				 NULL, err);
}

int sl__bk_store_missing(struct bk_store *s, const struct bk_id *ids, size_t n, bool *missing, struct sl_err *err)
{
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < n; i++) {
		bool known = false;
		rc = is_in_index(s, &ids[i], &known, err);
		missing[i] = !known;
	}
	return rc;
}

/* ---- finish ---- */

int sl__bk_store_finish(struct bk_store *s, struct sl_err *err)
{
	struct bk_index_put put = {.bytes = 0};
	sl__lock(&s->mu);
	int rc = s->failure.code;
	if (rc != 0 && err != NULL)
		*err = s->failure;
	sl__unlock(&s->mu);
	for (int i = 0; rc == 0 && i <= s->n_lanes; i++)
		rc = send_pack(s, i, err);
	if (rc != 0)
		return rc;

	/* Wait until the writer has written them. */
	rc = sl_writer_signal_done(s->writer);
	if (rc != 0)
		return sl_err_set(err, rc, "end the block writer: %s", sl_err_text(rc));
	struct sl_err why = SL_ERR_INIT;
	while ((rc = sl_writer_join(s->writer, WAIT_MS, &why)) == SL_ETIMEDOUT) {
		struct sl_err stop = SL_ERR_INIT;
		if (sl__bk_check_stop(s->b, &stop) != 0 && sl_writer_cancel(s->writer, &stop) != 0)
			break; /* a forked child: there is nothing to wait for */
	}
	s->joined = true;
	if (rc != 0)
		return sl__bk_result(rc, &why, err);
	if (s->n_packs == 0)
		return 0;

	/* A driver that reports success for what it has not written is detected here rather than at a restore. */
	const sl_driver *d = &s->b->driver;
	for (size_t i = 0; rc == 0 && i < s->n_packs; i++) {
		struct sl_driver_stat st;
		char name[SL_DRIVER_NAME_BYTES];
		sl__bk_pack_name(&s->packs[i].pack, name);
		rc = d->ops->stat(d->driver, name, &st, err);
		if (rc == SL_ENOENT)
			rc = sl_err_set(err, SL_EIO, "the driver reported %s as written, but it is not there", name);
		else if (rc == 0 && st.size != s->packs[i].size)
			rc = sl_err_set(err, SL_EIO,
					"the driver reported %s as written, but %llu of %llu bytes are there", name,
					(unsigned long long)st.size, (unsigned long long)s->packs[i].size);
	}
	/* All of them are there and durable: then they may be in the index. */
	if (rc == 0)
		rc = d->ops->sync(d->driver, err);
	if (rc == 0)
		rc = sl__bk_index_builder_put(s->entries, d, &put, err);
	atomic_fetch_add(&s->physical_bytes, put.bytes);
	return rc;
}

int sl__bk_store_packs(struct bk_store *s, bk_index_pack_fn *fn, void *ctx)
{
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < s->n_packs; i++)
		rc = fn(&s->packs[i].pack, true, ctx);
	return rc;
}

void sl__bk_store_stats(struct bk_store *s, struct bk_store_stats *out)
{
	struct sl_writer_stats w = {.struct_size = sizeof(w)};
	*out = (struct bk_store_stats){.new_blocks = atomic_load(&s->new_blocks),
				       .known_blocks = atomic_load(&s->known_blocks),
				       .new_bytes = atomic_load(&s->new_bytes),
				       .known_bytes = atomic_load(&s->known_bytes),
				       .physical_bytes = atomic_load(&s->physical_bytes)};
	if (sl_writer_get_stats(s->writer, &w) != 0)
		return;
	out->backlog_bytes = w.queued_bytes + w.in_flight_bytes + w.driver_buffered_bytes;
	out->concurrency = w.target_concurrent_writes;
	out->max_concurrency = w.max_concurrent_writes;
	out->backpressure = w.backpressure;
}
