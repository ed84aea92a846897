/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for each distinct block: BLOCKS synthetic blocks go through the set of a run, the builder of index files, an
 * index that is loaded and asked for every one of them, from two threads, and for as many that it does not have, and
 * what a prune, a check and a repair use: a view of everything, with a place chosen for every block.
 *
 *	sluice-bench-blocks FOLDER [BLOCKS]
 *
 * A repository's index, and files in place of its packs, are put below FOLDER, which must be empty; they stay there.
 * For each phase: the process's peak of resident memory above what it was at the start, by block. The run fails when
 * one is above 64 bytes.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backup/check/needed.h"
#include "base/thread.h"

#define PACK_BLOCKS 400u
#define LIMIT_BYTES 64.0

static struct {
	struct sl_env env;
	struct bk_keys keys;
	sl_driver driver;
	uint64_t blocks;
	struct bk_seen *seen;
	struct bk_index *index;
	const char *folder;
	bool over;
} run;

static void must(int rc, const struct sl_err *err)
{
	if (rc != 0) {
		(void)fprintf(stderr, "sluice-bench-blocks: %s\n", err != NULL ? err->msg : sl_err_text(rc));
		exit(1);
	}
}

static double now_s(void)
{
	struct timespec t;
	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* A line of /proc/self/status, in bytes. */
static uint64_t status_bytes(const char *key)
{
	char line[256];
	unsigned long long kib = 0;
	FILE *f = fopen("/proc/self/status", "r");
	must(f != NULL ? 0 : SL_EIO, NULL);
	while (fgets(line, sizeof(line), f) != NULL)
		if (strncmp(line, key, strlen(key)) == 0)
			kib = strtoull(line + strlen(key), NULL, 10);
	(void)fclose(f);
	return kib << 10;
}

static void reset_peak(void)
{
	FILE *f = fopen("/proc/self/clear_refs", "w");
	must(f != NULL && fputs("5", f) >= 0 && fclose(f) == 0 ? 0 : SL_EIO, NULL);
}

static uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
	return z ^ (z >> 31);
}

static struct bk_id id_of(uint64_t number)
{
	struct bk_id id;
	for (uint64_t i = 0; i < 4; i++)
		sl__put64(id.b + 8 * i, mix(number * 4 + i + 0x9E3779B97F4A7C15ull));
	return id;
}

static void phase(const char *name, void (*fn)(void))
{
	(void)malloc_trim(0);
	reset_peak();
	uint64_t before = status_bytes("VmRSS:");
	double t = now_s();
	fn();
	t = now_s() - t;
	double each = (double)(status_bytes("VmHWM:") - before) / (double)run.blocks;
	printf("%-28s %6.1f bytes a block at the peak, %6.0f ns a block\n", name, each, t * 1e9 / (double)run.blocks);
	run.over = run.over || each > LIMIT_BYTES;
}

static void *half_of_seen(void *arg)
{
	for (uint64_t i = (uintptr_t)arg; i < run.blocks; i += 2) {
		struct bk_id id = id_of(i);
		if (sl__bk_seen_add(run.seen, &id) != 1)
			abort();
	}
	return NULL;
}

static void on_two_threads(void *(*fn)(void *))
{
	pthread_t t[2];
	for (uintptr_t i = 0; i < 2; i++)
		must(sl__thread_start(&t[i], "bench", fn, (void *)i) == 0 ? 0 : SL_EAGAIN, NULL);
	for (int i = 0; i < 2; i++)
		(void)pthread_join(t[i], NULL);
}

static void remember(void)
{
	must(sl__bk_seen_new(&run.seen, &run.env, NULL), NULL);
	on_two_threads(half_of_seen);
	if (sl__bk_seen_count(run.seen) != run.blocks)
		abort();
}

static void build(void)
{
	struct bk_index_builder *b;
	struct bk_pack_block blocks[PACK_BLOCKS];
	struct sl_err err = SL_ERR_INIT;
	must(sl__bk_index_builder_new(&b, &run.env, &run.keys, &err), &err);
	for (uint64_t i = 0; i < run.blocks;) {
		struct bk_id pack = id_of(i + (1ull << 48));
		size_t n = 0;
		for (; n < PACK_BLOCKS && i < run.blocks; n++, i++)
			blocks[n] = (struct bk_pack_block){id_of(i),
							   {.frame_offset = BK_PACK_HEADER,
							    .frame_stored = BK_SEAL_ENCRYPTED + 1000,
							    .frame_raw = 4000,
							    .length = 1000,
							    .zstd = true}};
		must(sl__bk_index_builder_pack(b, &pack, blocks, n, &err), &err);
	}
	must(sl__bk_index_builder_put(b, &run.driver, NULL, &err), &err);
	sl__bk_index_builder_free(b);
}

static void load(void)
{
	struct sl_err err = SL_ERR_INIT;
	must(sl__bk_index_load(&run.index, &(struct bk_index_from){&run.env, &run.keys, &run.driver, NULL, NULL, NULL},
			       &err),
	     &err);
	if (sl__bk_index_entries(run.index) != run.blocks)
		abort();
}

static void *half_of_look_ups(void *arg)
{
	for (uint64_t i = (uintptr_t)arg; i < run.blocks; i += 2) {
		struct bk_id id = id_of(i), other = id_of(i + (1ull << 40));
		if (sl__bk_index_find(run.index, &id, NULL, NULL) != 0 ||
		    sl__bk_index_find(run.index, &other, NULL, NULL) != SL_ENOENT)
			abort();
	}
	return NULL;
}

static void load_and_look_up(void)
{
	load();
	on_two_threads(half_of_look_ups);
}

/* A file in place of a pack; it is never read. */
static void put_pack(const struct bk_id *pack)
{
	char name[SL_DRIVER_NAME_BYTES], path[4096];
	sl__bk_pack_name(pack, name);
	(void)snprintf(path, sizeof(path), "%s/%s", run.folder, name);
	char *slash = strrchr(path, '/');
	*slash = '\0';
	must(mkdir(path, 0700) == 0 || errno == EEXIST ? 0 : SL_EIO, NULL);
	*slash = '/';
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	must(fd >= 0 && ftruncate(fd, BK_PACK_HEADER + BK_SEAL_ENCRYPTED + 2000) == 0 && close(fd) == 0 ? 0 : SL_EIO,
	     NULL);
}

static void put_packs(void)
{
	char path[4096];
	(void)snprintf(path, sizeof(path), "%s/packs", run.folder);
	must(mkdir(path, 0700) == 0 ? 0 : SL_EIO, NULL);
	for (uint64_t i = 0; i < run.blocks; i += PACK_BLOCKS) {
		struct bk_id pack = id_of(i + (1ull << 48));
		put_pack(&pack);
	}
}

static void view_and_choose(void)
{
	static struct sl_backup b;
	struct bk_view view = {.b = NULL};
	struct bk_choice choice;
	struct sl_err err = SL_ERR_INIT;
	b.env = run.env;
	b.keys = run.keys;
	b.driver = run.driver;
	must(sl__bk_view_load(&b, &view, NULL, &err), &err);
	must(sl__bk_choice_init(&choice, &view, NULL, NULL, &err), &err);
	for (uint64_t i = 0; i < run.blocks; i++) {
		struct bk_id id = id_of(i);
		int chosen = sl__bk_choose(&choice, &id, 1, &err);
		must(chosen > 0 ? 0 : chosen, &err);
	}
	sl__bk_choice_fini(&choice);
	sl__bk_view_fini(&view);
}

int main(int argc, char **argv)
{
	struct sl_err err = SL_ERR_INIT;
	if (argc < 2 || argc > 3) {
		(void)fprintf(stderr, "usage: sluice-bench-blocks FOLDER [BLOCKS]\n");
		return 64;
	}
	run.blocks = argc > 2 ? strtoull(argv[2], NULL, 10) : 10000000;
	must(run.blocks != 0 ? 0 : SL_EINVAL, NULL);
	must(sl__env_init(&run.env, NULL, &err), &err);
	run.folder = argv[1];
	run.keys.encrypted = true;
	must(sl__bk_keys_derive(&run.keys, &err), &err);
	must(sl_driver_local_open(&run.driver, argv[1], NULL, &err), &err);
	printf("%llu blocks\n", (unsigned long long)run.blocks);
	phase("seen in a run", remember);
	sl__bk_seen_free(run.seen);
	phase("build and put an index", build);
	phase("load an index", load);
	size_t files = sl__bk_index_files(run.index);
	sl__bk_index_free(run.index);
	phase("load it, look all up, twice", load_and_look_up);
	sl__bk_index_free(run.index);
	put_packs();
	phase("read all as a prune does", view_and_choose);
	printf("%zu index files\n", files);
	sl_driver_close(&run.driver);
	return run.over ? 1 : 0;
}
