/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the way of bytes into packs costs, step by step, in CPU time of one thread: the files of a tree are read into
 * memory first (at most LIMIT MiB), so that no disk is measured.
 *
 *	sluice-bench-backup TREE [LIMIT [LEVEL]]
 *
 * One line for each step: bytes per second and, for packs, bytes written and the share of "hash and compress": what
 * hashing and compressing the same blocks into the same frames costs without anything around it.
 */
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

#include "backup/create/chunker.h"
#include "backup/pack/index.h"
#include "backup/pack/pack.h"

struct file {
	size_t at, len;
};

static struct {
	uint8_t *bytes;
	size_t len, limit;
	struct file *files;
	size_t n_files, cap_files;
} tree;

struct step {
	struct sl_env env;
	struct bk_keys keys;
	struct bk_chunker chunker;
	struct bk_hasher *hasher;
	int level;
	uint64_t blocks;
};

static void must(int rc)
{
	if (rc != 0) {
		(void)fprintf(stderr, "sluice-bench-backup: %s\n", sl_err_text(rc));
		exit(1);
	}
}

static double cpu_s(void)
{
	struct timespec t;
	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int take_file(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)ftw;
	size_t len = (size_t)st->st_size;
	if (type != FTW_F || !S_ISREG(st->st_mode) || len == 0 || len > tree.limit - tree.len)
		return 0;
	FILE *f = fopen(path, "rb");
	if (f == NULL)
		return 0;
	size_t got = fread(tree.bytes + tree.len, 1, len, f);
	(void)fclose(f);
	if (tree.n_files == tree.cap_files) {
		tree.cap_files = tree.cap_files == 0 ? 1024 : 2 * tree.cap_files;
		tree.files = realloc(tree.files, tree.cap_files * sizeof(*tree.files));
		must(tree.files != NULL ? 0 : SL_ENOMEM);
	}
	tree.files[tree.n_files++] = (struct file){tree.len, got};
	tree.len += got;
	return 0;
}

/* Each block of each file. */
typedef void block_fn(struct step *s, const uint8_t *bytes, size_t len, void *ctx);

static void each_block(struct step *s, block_fn *fn, void *ctx)
{
	s->blocks = 0;
	for (size_t i = 0; i < tree.n_files; i++) {
		const uint8_t *at = tree.bytes + tree.files[i].at, *end = at + tree.files[i].len;
		while (at < end) {
			size_t n = sl__bk_chunk(&s->chunker, at, (size_t)(end - at));
			fn(s, at, n, ctx);
			at += n;
			s->blocks++;
		}
	}
}

static void only_cut(struct step *s, const uint8_t *bytes, size_t len, void *ctx)
{
	(void)s, (void)bytes, (void)len, (void)ctx;
}

static void only_hash(struct step *s, const uint8_t *bytes, size_t len, void *ctx)
{
	struct bk_id id;
	(void)ctx;
	must(sl__bk_hash(s->hasher, bytes, len, &id, NULL));
}

/* Hashing and compressing, with frames as large as those of packs, and nothing else. */
struct raw {
	ZSTD_CCtx *zstd;
	struct bk_seen *seen;
	uint8_t *frame, *out;
	size_t len;
	uint64_t written;
};

static void raw_flush(struct raw *r, const uint8_t *bytes, size_t len)
{
	if (len != 0)
		r->written += ZSTD_compress2(r->zstd, r->out, ZSTD_compressBound(BK_CHUNK_MAX), bytes, len);
}

static void hash_and_compress(struct step *s, const uint8_t *bytes, size_t len, void *ctx)
{
	struct raw *r = ctx;
	struct bk_id id;
	must(sl__bk_hash(s->hasher, bytes, len, &id, NULL));
	if (sl__bk_seen_add(r->seen, &id) == 0)
		return;
	if (len >= BK_SOLID_BELOW) {
		raw_flush(r, bytes, len);
		return;
	}
	if (r->len + len > BK_FRAME_BYTES) {
		raw_flush(r, r->frame, r->len);
		r->len = 0;
	}
	memcpy(r->frame + r->len, bytes, len);
	r->len += len;
}

struct packing {
	struct bk_pack *pack;
	struct bk_seen *seen;
	struct bk_index_builder *index;
	uint64_t written, packs;
};

static void take(struct step *s, struct packing *p)
{
	struct bk_pack_image image;
	must(sl__bk_pack_take(p->pack, &image, NULL));
	if (image.n_blocks != 0)
		must(sl__bk_index_builder_pack(p->index, &image.name, image.blocks, image.n_blocks, NULL));
	p->written += image.len;
	p->packs += image.n_blocks != 0;
	sl__bk_pack_image_fini(&s->env, &image);
}

static void hash_and_pack(struct step *s, const uint8_t *bytes, size_t len, void *ctx)
{
	struct packing *p = ctx;
	struct bk_id id;
	bool full = false;
	must(sl__bk_hash(s->hasher, bytes, len, &id, NULL));
	if (sl__bk_seen_add(p->seen, &id) == 0)
		return;
	must(sl__bk_pack_add(p->pack, &(struct bk_block){&id, bytes, len}, &full, NULL));
	if (full)
		take(s, p);
}

static double mb_s(double seconds)
{
	return (double)tree.len / 1e6 / seconds;
}

static double run_raw(struct step *s)
{
	struct raw r = {.zstd = ZSTD_createCCtx(),
			.frame = malloc(BK_FRAME_BYTES),
			.out = malloc(ZSTD_compressBound(BK_CHUNK_MAX))};
	must(sl__bk_seen_new(&r.seen, &s->env, NULL));
	must(r.zstd != NULL && r.frame != NULL && r.out != NULL ? 0 : SL_ENOMEM);
	(void)ZSTD_CCtx_setParameter(r.zstd, ZSTD_c_compressionLevel, s->level);
	double t = cpu_s();
	each_block(s, hash_and_compress, &r);
	raw_flush(&r, r.frame, r.len);
	t = cpu_s() - t;
	printf("%-9s hash and compress %8.0f MB/s, %llu bytes\n", s->keys.encrypted ? "encrypted" : "plain", mb_s(t),
	       (unsigned long long)r.written);
	sl__bk_seen_free(r.seen);
	(void)ZSTD_freeCCtx(r.zstd);
	free(r.frame);
	free(r.out);
	return t;
}

static void run_packs(struct step *s, double raw_s)
{
	struct packing p = {.written = 0};
	must(sl__bk_pack_new(&p.pack, &s->env,
			     &(struct bk_pack_opts){.keys = &s->keys, .level = s->level, .pack_bytes = 8u << 20},
			     NULL));
	must(sl__bk_seen_new(&p.seen, &s->env, NULL));
	must(sl__bk_index_builder_new(&p.index, &s->env, &s->keys, NULL));
	double t = cpu_s();
	each_block(s, hash_and_pack, &p);
	take(s, &p);
	t = cpu_s() - t;
	printf("%-9s packs             %8.0f MB/s, %llu bytes in %llu packs, %llu blocks of %llu; %.2f of hash and "
	       "compress\n",
	       s->keys.encrypted ? "encrypted" : "plain", mb_s(t), (unsigned long long)p.written,
	       (unsigned long long)p.packs, (unsigned long long)sl__bk_seen_count(p.seen),
	       (unsigned long long)s->blocks, raw_s / t);
	sl__bk_index_builder_free(p.index);
	sl__bk_seen_free(p.seen);
	sl__bk_pack_free(p.pack);
}

static void run(bool encrypted, int level)
{
	struct step s = {.level = level, .keys = {.encrypted = encrypted}};
	must(sl__env_init(&s.env, NULL, NULL));
	must(sl__bk_keys_derive(&s.keys, NULL));
	must(sl__bk_chunker_init(&s.chunker, &s.keys,
				 &(struct bk_chunk_sizes){BK_CHUNK_MIN, BK_CHUNK_AVG, BK_CHUNK_MAX}, NULL));
	must(sl__bk_hasher_new(&s.hasher, &s.env, &s.keys, NULL));
	static const struct {
		const char *name;
		block_fn *fn;
	} simple[] = {{"cut", only_cut}, {"cut and hash", only_hash}};
	for (size_t i = 0; i < SL_COUNT(simple); i++) {
		double t = cpu_s();
		each_block(&s, simple[i].fn, NULL);
		printf("%-9s %-17s %8.0f MB/s\n", encrypted ? "encrypted" : "plain", simple[i].name, mb_s(cpu_s() - t));
	}
	run_packs(&s, run_raw(&s));
	sl__bk_hasher_free(s.hasher);
}

int main(int argc, char **argv)
{
	if (argc < 2 || argc > 4) {
		(void)fprintf(stderr, "usage: sluice-bench-backup TREE [LIMIT MiB [LEVEL]]\n");
		return 64;
	}
	tree.limit = (argc > 2 ? strtoul(argv[2], NULL, 10) : 512) << 20;
	tree.bytes = malloc(tree.limit);
	must(tree.bytes != NULL ? 0 : SL_ENOMEM);
	(void)nftw(argv[1], take_file, 32, FTW_PHYS);
	printf("%zu files, %zu bytes\n", tree.n_files, tree.len);
	for (int encrypted = 0; encrypted < 2 && tree.len != 0; encrypted++)
		run(encrypted != 0, argc > 3 ? atoi(argv[3]) : 3);
	free(tree.files);
	free(tree.bytes);
	return 0;
}
