/* SPDX-License-Identifier: Apache-2.0 */
#include "box.h"

#include <stdio.h>

void box_init(struct box *b)
{
	memset(b, 0, sizeof(*b));
	b->fs = crashfs_new();
	crashfs_record(b->fs, false);
	walmodel_env_init(&b->e, b->fs, 1);
	b->opts = (struct sl_wal_opts){SL_WAL_OPTS_INIT,
				       .env = &b->e.env,
				       .wal_dir = BOX_DIR,
				       .archive_dir = "/a",
				       .background = SL_OFF,
				       .prepare_max_bytes = SL_NONE,
				       .retry_backoff = {.jitter = SL_JITTER_OFF}};
}

void box_fini(struct box *b)
{
	assert_int_equal(crashfs_open_files(b->fs), 0);
	assert_int_equal(b->e.live_allocs, 0);
	walmodel_env_fini(&b->e);
	crashfs_free(b->fs);
}

int box_try_open(struct box *b, sl_wal **out)
{
	memset(&b->err, 0, sizeof(b->err));
	*out = NULL;
	return sl_wal_open(out, "s", &b->opts, &b->err);
}

sl_wal *box_open(struct box *b)
{
	sl_wal *w;
	if (box_try_open(b, &w) != 0)
		fail_msg("open: %s", b->err.msg);
	return w;
}

void box_close(struct box *b, sl_wal *w)
{
	if (sl_wal_close(w, &b->err) != 0)
		fail_msg("close: %s", b->err.msg);
}

uint64_t box_append(sl_wal *w, const char *text)
{
	struct sl_err err = SL_ERR_INIT;
	uint64_t sequence = 0;
	if (sl_wal_append(w, text, strlen(text), &sequence, &err) != 0)
		fail_msg("append: %s", err.msg);
	return sequence;
}

void box_append_n(sl_wal *w, size_t n, size_t len)
{
	char *text = malloc(len + 1);
	assert_non_null(text);
	memset(text, 'x', len);
	text[len] = '\0';
	for (size_t i = 0; i < n; i++)
		(void)box_append(w, text);
	free(text);
}

struct scan_text {
	char *text;
	size_t n, size;
};

static void put(struct scan_text *t, const char *fmt, ...) SL_PRINTF(2, 3);
static void put(struct scan_text *t, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	int n = vsnprintf(t->text + t->n, t->size - t->n, fmt, args);
	va_end(args);
	t->n += (size_t)n;
	assert_true(t->n < t->size);
}

static int put_record(const struct sl_wal_record *r, void *ctx)
{
	static const char *const suffix[] = {"?", "", "*", "!"};
	struct scan_text *t = ctx;
	bool cut = r->payload_len > 16;
	put(t, "%s%llu=%.*s%s%s", t->n != 0 ? " " : "", (unsigned long long)r->sequence,
	    (int)(cut ? 3 : r->payload_len), (const char *)r->payload, cut ? "~" : "", suffix[r->status & 3]);
	return 0;
}

static int put_damage(const struct sl_wal_damage *d, void *ctx)
{
	struct scan_text *t = ctx;
	const char *gap = t->n != 0 ? " " : "";
	unsigned long long first = d->first_missing, last = d->last_missing;
	if (d->declared)
		put(t, "%s<hole %llu-%llu>", gap, first, last);
	else if (d->torn_tail)
		put(t, "%s<torn %llu+%llu>", gap, (unsigned long long)d->offset, (unsigned long long)d->length);
	else if (first != 0)
		put(t, "%s<damage %llu+%llu miss %llu-%llu>", gap, (unsigned long long)d->offset,
		    (unsigned long long)d->length, first, last);
	else
		put(t, "%s<damage %llu+%llu>", gap, (unsigned long long)d->offset, (unsigned long long)d->length);
	return 0;
}

const char *box_scan(struct box *b, const char *path)
{
	static char text[65536];
	struct scan_text t = {.text = text, .size = sizeof(text)};
	text[0] = '\0';
	struct sl_wal_scan_opts opts = {SL_WAL_SCAN_OPTS_INIT,   .env = &b->e.env,        .key_file = b->opts.key_file,
					.on_record = put_record, .on_damage = put_damage, .ctx = &t};
	memset(&b->err, 0, sizeof(b->err));
	int rc = sl_wal_scan(path, &opts, NULL, &b->err);
	if (rc != 0)
		(void)snprintf(text, sizeof(text), "%s", sl_err_name(rc));
	return text;
}

const uint8_t *box_bytes(struct box *b, const char *path, size_t *n)
{
	const uint8_t *p = crashfs_get(b->fs, path, n);
	if (p == NULL)
		fail_msg("%s is not there", path);
	return p;
}

bool box_has(struct box *b, const char *path)
{
	return crashfs_get(b->fs, path, NULL) != NULL;
}

struct counted {
	const char *part;
	size_t n;
};

static int count_name(const char *name, void *ctx)
{
	struct counted *c = ctx;
	c->n += strstr(name, c->part) != NULL;
	return 0;
}

size_t box_count(struct box *b, const char *dir, const char *part)
{
	struct counted c = {part, 0};
	(void)crashfs_each(b->fs, dir, count_name, &c);
	return c.n;
}

static uint8_t *copy_of(struct box *b, const char *path, size_t room, size_t *n)
{
	const uint8_t *old = box_bytes(b, path, n);
	size_t size = *n > room ? *n : room;
	uint8_t *copy = calloc(1, size + 1);
	assert_non_null(copy);
	memcpy(copy, old, *n);
	return copy;
}

void box_poke(struct box *b, const char *path, size_t offset, const void *bytes, size_t n)
{
	size_t size;
	uint8_t *copy = copy_of(b, path, offset + n, &size);
	memcpy(copy + offset, bytes, n);
	crashfs_put(b->fs, path, copy, size > offset + n ? size : offset + n);
	free(copy);
}

void box_flip(struct box *b, const char *path, size_t bit)
{
	size_t n;
	const uint8_t *p = box_bytes(b, path, &n);
	assert_true(bit / 8 < n);
	uint8_t byte = p[bit / 8] ^ (uint8_t)(1U << bit % 8);
	box_poke(b, path, bit / 8, &byte, 1);
}

void box_cut(struct box *b, const char *path, size_t size)
{
	size_t n;
	uint8_t *copy = copy_of(b, path, size, &n);
	crashfs_put(b->fs, path, copy, size);
	free(copy);
}

struct sl_wal_stats box_stats(sl_wal *w)
{
	struct sl_wal_stats st = {.struct_size = sizeof(st)};
	assert_int_equal(sl_wal_get_stats(w, &st, NULL), 0);
	return st;
}

uint64_t box_crc64(const void *data, size_t n)
{
	const uint8_t *p = data;
	uint64_t crc = UINT64_MAX;
	for (size_t i = 0; i < n; i++) {
		crc ^= p[i];
		for (int k = 0; k < 8; k++)
			crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x9A6C9329AC4BC9B5ULL : 0); /* AD93D23594C93659 reversed */
	}
	return ~crc;
}

static void little(uint8_t *out, uint64_t v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		out[i] = (uint8_t)(v >> (8 * i));
}

size_t box_record(uint8_t *out, uint64_t sequence, uint8_t status, int64_t timestamp_ms, const void *payload, size_t n)
{
	little(out, n + 28, 4);
	little(out + 4, sequence, 8);
	little(out + 12, status, 4);
	little(out + 16, (uint64_t)timestamp_ms, 8);
	memcpy(out + 24, payload, n);
	little(out + 24 + n, box_crc64(out + 4, n + 20), 8);
	return n + 32;
}
