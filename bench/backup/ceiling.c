/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the libraries allow: the files of a tree are read into memory first; then, on THREADS threads, SHA-256 by
 * libcrypto and zstd as a backup sets it by default (src/backup/pack), over pieces of 2 MiB. Prints one line of JSON:
 * seconds (of the second part), bytes, compressed.
 *
 *	sluice-bench-ceiling TREE THREADS
 */
#include <fcntl.h>
#include <ftw.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

#define PIECE ((size_t)2 << 20)
#define ROOM ((size_t)64 << 30) /* of addresses; memory is taken as it is filled */
#define THREADS_MAX 64

static uint8_t *bytes; /* nftw has no context */
static size_t total;
static atomic_size_t next_piece, compressed;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static int read_file(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)ftw;
	if (type != FTW_F || !S_ISREG(st->st_mode))
		return 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		die(path);
	for (;;) {
		if (total + PIECE > ROOM)
			die("the tree is too big");
		ssize_t n = read(fd, bytes + total, PIECE);
		if (n < 0)
			die(path);
		if (n == 0)
			break;
		total += (size_t)n;
	}
	(void)close(fd);
	return 0;
}

static void *work(void *arg)
{
	size_t room = ZSTD_compressBound(PIECE);
	uint8_t *out = malloc(room), digest[EVP_MAX_MD_SIZE];
	ZSTD_CCtx *zstd = ZSTD_createCCtx();
	(void)arg;
	if (out == NULL || zstd == NULL)
		die("memory");
	const int parameters[][2] = {{ZSTD_c_compressionLevel, 2},
				     {ZSTD_c_strategy, ZSTD_fast},
				     {ZSTD_c_windowLog, 21},
				     {ZSTD_c_hashLog, 16},
				     {ZSTD_c_minMatch, 6}};
	for (size_t i = 0; i < sizeof(parameters) / sizeof(*parameters); i++)
		(void)ZSTD_CCtx_setParameter(zstd, (ZSTD_cParameter)parameters[i][0], parameters[i][1]);
	for (;;) {
		size_t at = atomic_fetch_add(&next_piece, 1) * PIECE;
		if (at >= total)
			break;
		size_t n = total - at < PIECE ? total - at : PIECE;
		if (EVP_Digest(bytes + at, n, digest, NULL, EVP_sha256(), NULL) != 1)
			die("SHA-256");
		size_t m = ZSTD_compress2(zstd, out, room, bytes + at, n);
		if (ZSTD_isError(m))
			die("zstd");
		atomic_fetch_add(&compressed, m);
	}
	ZSTD_freeCCtx(zstd);
	free(out);
	return NULL;
}

static double now(void)
{
	struct timespec t;
	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS_MAX];
	int n = argc == 3 ? atoi(argv[2]) : 0;
	if (n < 1 || n > THREADS_MAX) {
		fprintf(stderr, "usage: sluice-bench-ceiling TREE THREADS\n");
		return 64;
	}
	bytes = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (bytes == MAP_FAILED)
		die("memory");
	if (nftw(argv[1], read_file, 64, FTW_PHYS) != 0)
		die(argv[1]);
	double began = now();
	for (int i = 0; i < n; i++)
		if (pthread_create(&threads[i], NULL, work, NULL) != 0)
			die("thread");
	for (int i = 0; i < n; i++)
		(void)pthread_join(threads[i], NULL);
	printf("{\"seconds\": %.3f, \"bytes\": %zu, \"compressed\": %zu}\n", now() - began, total,
	       atomic_load(&compressed));
	return 0;
}
