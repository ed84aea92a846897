/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/place.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int place_init(struct place *p, const char *name)
{
	const char *base = getenv("TMPDIR");
	char inner[80];
	(void)snprintf(p->dir, sizeof(p->dir), "%.30s/sluice-sink-XXXXXX", base != NULL ? base : "/tmp");
	if (mkdtemp(p->dir) == NULL)
		return -1;
	(void)snprintf(inner, sizeof(inner), "%s/inner", p->dir);
	(void)snprintf(p->path, sizeof(p->path), "%s/inner/%s", p->dir, name);
	return mkdir(inner, 0700);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

void place_fini(struct place *p)
{
	(void)nftw(p->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void move(const struct place *p, const char *from, const char *to)
{
	char a[96], b[96];
	(void)snprintf(a, sizeof(a), "%s/%s", p->dir, from);
	(void)snprintf(b, sizeof(b), "%s/%s", p->dir, to);
	if (rename(a, b) != 0)
		abort();
}

void place_hide(const struct place *p)
{
	move(p, "inner", "hidden");
}

void place_show(const struct place *p)
{
	move(p, "hidden", "inner");
}

const char *place_file(const struct place *p, const char *name)
{
	static char path[192];
	(void)snprintf(path, sizeof(path), "%s/inner/%s", p->dir, name);
	return path;
}

char *place_read(const char *path, size_t *n)
{
	FILE *f = fopen(path, "rb");
	if (f == NULL)
		return NULL;
	char *data = NULL;
	size_t len = 0, cap = 0;
	for (size_t got = 1; got > 0; len += got) {
		if (len + 65536 > cap) {
			cap = cap * 2 + 65537;
			data = realloc(data, cap + 1);
			if (data == NULL)
				abort();
		}
		got = fread(data + len, 1, 65536, f);
	}
	(void)fclose(f);
	data[len] = '\0';
	if (n != NULL)
		*n = len;
	return data;
}

void place_write(const char *path, const void *data, size_t n)
{
	FILE *f = fopen(path, "wb");
	if (f == NULL || fwrite(data, 1, n, f) != n || fclose(f) != 0)
		abort();
}
