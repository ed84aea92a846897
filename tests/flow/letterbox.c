/* SPDX-License-Identifier: Apache-2.0 */
#include "letterbox.h"

static int fill(void *buf, size_t n, void *ctx)
{
	struct sl__prng rng = {.s = *(uint64_t *)ctx};
	for (size_t i = 0; i < n; i++)
		((uint8_t *)buf)[i] = (uint8_t)sl__prng_next(&rng);
	*(uint64_t *)ctx = rng.s;
	return 0;
}

static const struct sl_rand same_rand = {.version = SL_RAND_VERSION, .fill = fill};

static void on_log(const struct sl_log_record *record, void *ctx)
{
	struct letterbox *b = ctx;
	if (record->level < SL_LOG_WARN)
		return;
	b->warnings++;
	(void)snprintf(b->last_warning, sizeof(b->last_warning), "%s", record->message);
}

void letterbox_on(struct letterbox *b, struct crashfs *fs)
{
	b->fs = fs;
	b->fault.io = &crashfs_io;
	b->fault.io_ctx = fs;
}

int letterbox_setup(void **state)
{
	struct letterbox *b = calloc(1, sizeof(*b));
	struct sl_env base = {SL_ENV_INIT,        .clock = &vclock_table, .clock_ctx = &b->clock,
			      .rand = &same_rand, .rand_ctx = &b->random, .log = on_log,
			      .log_ctx = b};
	vclock_init(&b->clock);
	fault_init(&b->fault, NULL);
	b->random = 1;
	b->env = fault_env(&b->fault, &base);
	b->opts = (struct sl_dlq_opts){SL_DLQ_OPTS_INIT, .env = &b->env};
	letterbox_on(b, crashfs_new());
	crashfs_record(b->fs, false);
	*state = b;
	return 0;
}

int letterbox_teardown(void **state)
{
	struct letterbox *b = *state;
	assert_int_equal(fault_open_fds(&b->fault), 0);
	assert_int_equal(fault_live_allocs(&b->fault), 0);
	crashfs_free(b->fs);
	fault_fini(&b->fault);
	vclock_fini(&b->clock);
	free(b);
	return 0;
}

int letterbox_try_open(struct letterbox *b, sl_dlq **out)
{
	b->err = (struct sl_err)SL_ERR_INIT;
	return sl_dlq_open(out, BOX_DIR, &b->opts, &b->err);
}

sl_dlq *letterbox_open(struct letterbox *b)
{
	sl_dlq *q = NULL;
	if (letterbox_try_open(b, &q) != 0)
		fail_msg("open: %s", b->err.msg);
	return q;
}

struct sl_dlq_letter letterbox_letter(const char *item)
{
	return (struct sl_dlq_letter){
		SL_DLQ_LETTER_INIT,
		.source = "test",
		.position = 7, /* the line */
		.error = "no such table",
		.code = SL_EREFUSED,
		.error_class = SL_CLASS_POISON,
		.attempts = 3,
		.first_failed_ms = 1000,
		.last_failed_ms = 2000,
		.target = "sqlite:x",
		.item = item,
		.item_len = strlen(item),
	};
}

uint64_t letterbox_put(struct letterbox *b, sl_dlq *q, const char *item)
{
	struct sl_dlq_letter letter = letterbox_letter(item);
	uint64_t id = 0;
	if (sl_dlq_put(q, &letter, &id, &b->err) != 0)
		fail_msg("put %s: %s", item, b->err.msg);
	return id;
}

void letterbox_put_n(struct letterbox *b, sl_dlq *q, size_t n, size_t len)
{
	char *item = malloc(len + 1);
	memset(item, 'a', len);
	item[len] = '\0';
	for (size_t i = 0; i < n; i++)
		letterbox_put(b, q, item);
	free(item);
}

static int add_text(const struct sl_dlq_letter *letter, void *ctx)
{
	struct letterbox *b = ctx;
	size_t used = strlen(b->text);
	int shown = letter->item_len > 16 ? 16 : (int)letter->item_len;
	(void)snprintf(b->text + used, sizeof(b->text) - used, "%s%llu=%.*s%s%s", used > 0 ? " " : "",
		       (unsigned long long)letter->id, shown, (const char *)letter->item,
		       letter->item_len > 16 ? "~" : "", letter->acknowledged ? "!" : "");
	/* Whatever is listed is whole. */
	assert_string_equal(letter->source, "test");
	assert_string_equal(letter->error, "no such table");
	assert_int_equal(letter->position, 7);
	return 0;
}

const char *letterbox_list(struct letterbox *b, sl_dlq *q, int all)
{
	b->text[0] = '\0';
	if (sl_dlq_list(q, all, add_text, b, &b->err) != 0)
		fail_msg("list: %s", b->err.msg);
	return b->text;
}

struct sl_dlq_stats letterbox_stats(struct letterbox *b, sl_dlq *q)
{
	struct sl_dlq_stats s = {.struct_size = sizeof(s)};
	if (sl_dlq_get_stats(q, &s, &b->err) != 0)
		fail_msg("stats: %s", b->err.msg);
	return s;
}

const uint8_t *letterbox_bytes(struct letterbox *b, const char *path, size_t *n)
{
	const uint8_t *p = crashfs_get(b->fs, path, n);
	if (p == NULL)
		fail_msg("%s is not there", path);
	return p;
}

void letterbox_write(struct letterbox *b, const char *path, const void *data, size_t n)
{
	crashfs_mkdir(b->fs, BOX_DIR);
	crashfs_put(b->fs, path, data, n);
}

void letterbox_flip(struct letterbox *b, const char *path, size_t bit)
{
	size_t n;
	const uint8_t *old = letterbox_bytes(b, path, &n);
	uint8_t *copy = malloc(n);
	memcpy(copy, old, n);
	copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
	letterbox_write(b, path, copy, n);
	free(copy);
}

void letterbox_cut(struct letterbox *b, const char *path, size_t size)
{
	size_t n;
	const uint8_t *old = letterbox_bytes(b, path, &n);
	uint8_t *copy = calloc(1, size + n);
	memcpy(copy, old, n);
	letterbox_write(b, path, copy, size);
	free(copy);
}

bool letterbox_has(struct letterbox *b, const char *path)
{
	size_t n;
	return crashfs_get(b->fs, path, &n) != NULL;
}

struct counting {
	const char *part;
	size_t n;
};

static int count_name(const char *name, void *ctx)
{
	struct counting *c = ctx;
	c->n += strstr(name, c->part) != NULL;
	return 0;
}

size_t letterbox_count(struct letterbox *b, const char *part)
{
	struct counting c = {.part = part};
	(void)crashfs_each(b->fs, BOX_DIR, count_name, &c);
	return c.n;
}
