/* SPDX-License-Identifier: Apache-2.0 */
/* Making, opening and looking into repositories: config, keys and passphrases, snapshots as JSON, list and resolve. */
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backup/repo/config.h"
#include "backup/repo_kit.h"
#include "base/sha256.h"
#include "support/crashfs.h"
#include "support/fault.h"

static struct sl_backup_opts with(const char *passphrase, size_t len)
{
	return (struct sl_backup_opts){SL_BACKUP_OPTS_INIT, .passphrase = passphrase, .passphrase_len = len};
}

/* Open and close: the code. */
static int try_open(const sl_driver *d, const char *passphrase, struct sl_err *err)
{
	sl_backup *b = NULL;
	struct sl_backup_opts opts = with(passphrase, passphrase != NULL ? strlen(passphrase) : 0);
	int rc = sl_backup_open(&b, d, &opts, err);
	assert_true(rc == 0 || b == NULL);
	sl_backup_close(b);
	return rc;
}

/* ---- init and open ---- */

static void a_plain_repository_opens_without_a_passphrase(void **state)
{
	struct repo r;
	struct sl_err err = SL_ERR_INIT;
	struct sl_backup_stats st = {.struct_size = sizeof(st), .packs = 9};
	(void)state;
	repo_make(&r, NULL);
	assert_int_equal(sl_backup_is_encrypted(&r.d, NULL, &err), 0);
	assert_int_equal(sl_backup_get_stats(r.b, &st, &err), 0);
	assert_int_equal(st.packs + st.snapshots + st.blocks + st.sessions + st.index_files + st.marked_packs, 0);
	assert_int_equal(st.encrypted, 0);
	assert_int_equal(strlen(st.id), 32);
	assert_int_equal(sl_backup_change_passphrase(r.b, "x", 1, &err), SL_EINVAL);
	/* A user who expects a passphrase to protect the repository must not be made to write without encryption. */
	assert_int_equal(try_open(&r.d, "a passphrase", &err), SL_EKEY);
	repo_free(&r);
}

/* A key next to a plain config: the config was changed, or an init was interrupted; in either place. */
static void a_plain_config_next_to_keys_is_refused(void **state)
{
	static const char *const keys[] = {"keys/0123456789abcdef0123456789abcdef",
					   "copies/keys/0123456789abcdef0123456789abcdef"};
	(void)state;
	for (size_t i = 0; i < SL_COUNT(keys); i++) {
		struct repo r;
		struct sl_err err = SL_ERR_INIT;
		repo_make(&r, NULL);
		assert_int_equal(r.d.ops->put(r.d.driver, keys[i], "x", 1, SL_DRIVER_NEW, &err), 0);
		assert_int_equal(try_open(&r.d, NULL, &err), SL_EKEY);
		assert_non_null(strstr(err.msg, "has keys"));
		assert_int_equal(r.d.ops->remove(r.d.driver, keys[i], &err), 0);
		assert_int_equal(try_open(&r.d, NULL, &err), 0);
		repo_free(&r);
	}
}

static void a_plain_init_is_refused_next_to_keys_of_an_interrupted_one(void **state)
{
	struct repo r;
	struct sl_err err = SL_ERR_INIT;
	struct sl_backup_opts plain = {SL_BACKUP_OPTS_INIT, .encrypt = SL_OFF};
	struct sl_backup_opts opts = with(KIT_PASSPHRASE, strlen(KIT_PASSPHRASE));
	(void)state;
	repo_place(&r, NULL);
	assert_int_equal(r.d.ops->put(r.d.driver, "keys/0123456789abcdef0123456789abcdef", "x", 1, SL_DRIVER_NEW, &err),
			 0);
	assert_int_equal(sl_backup_init(&r.d, &plain, &err), SL_EEXIST);
	assert_non_null(strstr(err.msg, "remove keys"));
	assert_int_equal(sl_backup_init(&r.d, &opts, &err), 0);
	assert_int_equal(try_open(&r.d, KIT_PASSPHRASE, &err), 0);
	repo_free(&r);
}

static void an_encrypted_repository_opens_with_its_passphrase_only(void **state)
{
	struct repo r;
	struct sl_err err = SL_ERR_INIT;
	static const char bytes[] = "with\0zeros \xff and all";
	sl_backup *b;
	(void)state;
	repo_place(&r, NULL);
	struct sl_backup_opts opts = with(bytes, sizeof(bytes) - 1);
	assert_int_equal(sl_backup_init(&r.d, &opts, &err), 0);
	assert_int_equal(err.code, 0); /* written only on failure */
	assert_int_equal(sl_backup_is_encrypted(&r.d, NULL, &err), 1);
	assert_int_equal(sl_backup_open(&b, &r.d, &opts, &err), 0);
	assert_null(b->opts.passphrase);
	struct sl_backup_stats st = {.struct_size = sizeof(st)};
	assert_int_equal(sl_backup_get_stats(b, &st, &err), 0);
	assert_int_equal(st.encrypted, 1);
	sl_backup_close(b);
	assert_int_equal(try_open(&r.d, NULL, &err), SL_EKEY);
	assert_int_equal(try_open(&r.d, "with", &err), SL_EKEY); /* up to the zero */
	assert_null(strstr(err.msg, "zeros"));
	repo_free(&r);
}

static void init_needs_a_passphrase_unless_encryption_is_off(void **state)
{
	struct repo r;
	struct sl_err err = SL_ERR_INIT;
	struct sl_backup_opts opts = {SL_BACKUP_OPTS_INIT};
	(void)state;
	repo_place(&r, NULL);
	assert_int_equal(sl_backup_init(&r.d, NULL, &err), SL_EINVAL);
	opts.passphrase = "";
	assert_int_equal(sl_backup_init(&r.d, &opts, &err), SL_EINVAL);
	opts.encrypt = SL_OFF;
	opts.passphrase = "x";
	opts.passphrase_len = 1;
	assert_int_equal(sl_backup_init(&r.d, &opts, &err), SL_EINVAL);
	assert_int_equal(repo_count(&r.d, "", NULL) + repo_count(&r.d, "keys", NULL), 0);
	assert_int_equal(try_open(&r.d, NULL, &err), SL_ENOENT);
	assert_int_equal(sl_backup_is_encrypted(&r.d, NULL, &err), SL_ENOENT);
	repo_free(&r);
}

static void init_leaves_what_is_there_alone(void **state)
{
	struct repo r;
	struct sl_err err = SL_ERR_INIT;
	(void)state;
	repo_make(&r, NULL);
	assert_int_equal(sl_backup_init(&r.d, &r.opts, &err), SL_EEXIST);
	assert_int_equal(repo_publish(&r, "host", 1, NULL, &err), 0);
	assert_int_equal(r.d.ops->remove(r.d.driver, "config", NULL), 0);
	assert_int_equal(sl_backup_init(&r.d, &r.opts, &err), SL_EEXIST);
	assert_non_null(strstr(err.msg, "config"));
	repo_free(&r);
}

static int race(struct bad_driver *b, enum bad_op op, const char *name, void *ctx)
{
	if (op == BAD_PUT && strcmp(name, "config") == 0) {
		struct sl_backup_opts opts = with("another", strlen("another"));
		b->hook = NULL;
		*(int *)ctx = sl_backup_init(&b->under, &opts, NULL);
	}
	return 0;
}

static void of_two_inits_at_once_one_wins(void **state)
{
	struct repo r;
	struct sl_err err = SL_ERR_INIT;
	int other = -1;
	struct sl_backup_opts opts = with(KIT_PASSPHRASE, strlen(KIT_PASSPHRASE));
	(void)state;
	repo_place(&r, NULL);
	r.bad.hook = race;
	r.bad.hook_ctx = &other;
	assert_int_equal(sl_backup_init(&r.d, &opts, &err), SL_EEXIST);
	assert_int_equal(other, 0);
	assert_int_equal(try_open(&r.d, "another", &err), 0);
	assert_int_equal(try_open(&r.d, KIT_PASSPHRASE, &err), SL_EKEY);
	assert_int_equal(repo_count(&r.d, "keys", NULL), 1);
	assert_int_equal(repo_count(&r.d, "copies/keys", NULL), 1);
	repo_free(&r);
}

/* The encrypted one begins after the plain one has checked what is there, and ends before it puts its config. */
static void of_a_plain_and_an_encrypted_init_at_once_one_wins(void **state)
{
	struct repo r;
	struct sl_err err = SL_ERR_INIT;
	int other = -1;
	struct sl_backup_opts opts = {SL_BACKUP_OPTS_INIT, .encrypt = SL_OFF};
	(void)state;
	repo_place(&r, NULL);
	r.bad.hook = race;
	r.bad.hook_ctx = &other;
	assert_int_equal(sl_backup_init(&r.d, &opts, &err), SL_EEXIST);
	assert_int_equal(other, 0);
	assert_int_equal(try_open(&r.d, "another", &err), 0);
	repo_free(&r);
}

static void bad_options_and_drivers_are_named(void **state)
{
	struct repo r;
	struct sl_err err = SL_ERR_INIT;
	const struct sl_backup_opts wrong[] = {
		{SL_BACKUP_OPTS_INIT, .threads = 65},
		{SL_BACKUP_OPTS_INIT, .zstd_level = 20},
		{SL_BACKUP_OPTS_INIT, .pack_bytes = 1000},
		{SL_BACKUP_OPTS_INIT, .max_retry_attempts = -1},
		{SL_BACKUP_OPTS_INIT, .passphrase_len = 3},
		{SL_BACKUP_OPTS_INIT, .retry_first_ms = -5},
		{SL_BACKUP_OPTS_INIT, .backlog_limit_bytes = -1},
	};
	const char *const names[] = {"threads",        "zstd_level",     "pack_bytes",         "max_retry_attempts",
				     "passphrase_len", "retry_first_ms", "backlog_limit_bytes"};
	sl_backup *b = NULL;
	(void)state;
	repo_make(&r, NULL);
	for (size_t i = 0; i < SL_COUNT(wrong); i++) {
		assert_int_equal(sl_backup_open(&b, &r.d, &wrong[i], &err), SL_EINVAL);
		assert_non_null(strstr(err.msg, names[i]));
	}
	struct sl_driver_ops ops = *r.d.ops;
	ops.sync = NULL;
	sl_driver d = {.ops = &ops, .driver = r.d.driver};
	assert_int_equal(sl_backup_open(&b, &d, NULL, &err), SL_EINVAL);
	ops = *r.d.ops;
	ops.unlock = NULL;
	assert_int_equal(sl_backup_open(&b, &d, NULL, &err), SL_EINVAL);
	ops.version = 2;
	assert_int_equal(sl_backup_open(&b, &d, NULL, &err), SL_EINVAL);
	assert_int_equal(sl_backup_open(&b, NULL, NULL, &err), SL_EINVAL);
	assert_null(b);
	repo_free(&r);
}

static int never(SL_UNUSED const struct sl_backup_snapshot *s, SL_UNUSED void *ctx)
{
	return 42;
}

static int never_entry(SL_UNUSED const struct sl_backup_entry *e, SL_UNUSED void *ctx)
{
	return 42;
}

static int never_bytes(SL_UNUSED const void *bytes, SL_UNUSED size_t len, SL_UNUSED void *ctx)
{
	return 42;
}

/* How many calls do not say so. A check, above all, must not pass. */
static int calls_that_are_made_in_a_child(sl_backup *b)
{
	struct sl_backup_stats st = {.struct_size = sizeof(st)};
	static const char *const paths[] = {"/nowhere"};
	const struct sl_backup_create_opts create = {SL_BACKUP_CREATE_OPTS_INIT, .paths = paths, .n_paths = 1};
	const struct sl_backup_restore_opts restore = {SL_BACKUP_RESTORE_OPTS_INIT, .to = "/nowhere"};
	const struct sl_backup_forget_opts forget = {SL_BACKUP_FORGET_OPTS_INIT, .keep_last = 1};
	char id[SL_BACKUP_ID_BYTES];
	int n = 0;
	n += sl_backup_get_stats(b, &st, NULL) != SL_EFORKED;
	n += sl_backup_resolve(b, "latest", id, NULL) != SL_EFORKED;
	n += sl_backup_create(b, &create, NULL, NULL) != SL_EFORKED;
	n += sl_backup_list(b, never, NULL, NULL, NULL) != SL_EFORKED;
	n += sl_backup_ls(b, "latest", NULL, never_entry, NULL, NULL) != SL_EFORKED;
	n += sl_backup_cat(b, "latest", "f", never_bytes, NULL, NULL) != SL_EFORKED;
	n += sl_backup_restore(b, "latest", &restore, NULL, NULL) != SL_EFORKED;
	n += sl_backup_check(b, NULL, NULL, NULL) != SL_EFORKED;
	n += sl_backup_repair(b, NULL, NULL, NULL, NULL) != SL_EFORKED;
	n += sl_backup_forget(b, &forget, NULL, NULL) != SL_EFORKED;
	n += sl_backup_prune(b, NULL, NULL, NULL) != SL_EFORKED;
	return n;
}

static void a_forked_child_is_refused(void **state)
{
	struct repo r;
	int status = 0;
	(void)state;
	repo_make(&r, NULL);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0)
		_exit(calls_that_are_made_in_a_child(r.b));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	repo_free(&r);
}

/* ---- config ---- */

static void every_damaged_bit_of_the_config_is_found(void **state)
{
	struct bk_config c = {.encrypted = true, .chunks = {1 << 17, 1 << 19, 1 << 21}}, back;
	struct sl_env env;
	struct sl_err err = SL_ERR_INIT;
	char *text;
	(void)state;
	memset(c.id, 0x5a, sizeof(c.id));
	assert_int_equal(sl__env_init(&env, NULL, NULL), 0);
	assert_int_equal(sl__bk_config_text(&env, &c, &text, &err), 0);
	size_t n = strlen(text);
	assert_int_equal(sl__bk_config_parse(&back, text, n, &err), 0);
	assert_memory_equal(back.id, c.id, sizeof(c.id));
	assert_true(back.encrypted);
	assert_int_equal(back.chunks.avg, c.chunks.avg);
	for (size_t bit = 0; bit < 8 * n; bit++) {
		text[bit / 8] = (char)(text[bit / 8] ^ (1 << bit % 8));
		assert_int_equal(sl__bk_config_parse(&back, text, n, &err), SL_ECORRUPT);
		text[bit / 8] = (char)(text[bit / 8] ^ (1 << bit % 8));
	}
	for (size_t cut = 0; cut < n; cut++)
		assert_int_equal(sl__bk_config_parse(&back, text, cut, &err), SL_ECORRUPT);
	sl__free(&env, text);
}

/* Text with its checksum. */
static int parse_checked(const char *body, struct bk_config *out, struct sl_err *err)
{
	char text[512], hex[SL__SHA256_HEX];
	uint8_t sum[SL__SHA256_BYTES];
	assert_int_equal(sl__sha256(body, strlen(body), sum, NULL), 0);
	sl__sha256_hex(sum, hex);
	(void)snprintf(text, sizeof(text), "%s,\"check\":\"%s\"}", body, hex);
	return sl__bk_config_parse(out, text, strlen(text), err);
}

static void a_config_of_a_later_version_is_not_taken_for_a_damaged_one(void **state)
{
	struct bk_config out = {.chunks.min = 77};
	struct sl_err err = SL_ERR_INIT;
	(void)state;
	assert_int_equal(parse_checked("{\"version\":2,\"something\":\"new\"", &out, &err), SL_EUNSUPPORTED);
	assert_int_equal(parse_checked("{\"version\":1,\"something\":\"new\"", &out, &err), SL_ECORRUPT);
	assert_int_equal(parse_checked("{\"version\":0", &out, &err), SL_ECORRUPT);
	assert_int_equal(parse_checked("{\"version\":1,\"id\":\"00112233445566778899aabbccddeeff\",\"encrypted\":false,"
				       "\"chunker\":{\"min\":131072,\"avg\":524288,\"max\":99999999}",
				       &out, &err),
			 SL_ECORRUPT);
	assert_int_equal(parse_checked("[1", &out, &err), SL_ECORRUPT);
	assert_int_equal(out.chunks.min, 77);
}

/* ---- keys ---- */

static void a_changed_passphrase_is_the_only_one(void **state)
{
	struct repo r;
	struct sl_err err = SL_ERR_INIT;
	sl_backup *b;
	(void)state;
	repo_place(&r, NULL);
	struct sl_backup_opts opts = with("old", 3);
	assert_int_equal(sl_backup_init(&r.d, &opts, &err), 0);
	assert_int_equal(sl_backup_open(&b, &r.d, &opts, &err), 0);
	assert_int_equal(sl_backup_change_passphrase(b, "", 0, &err), SL_EINVAL);
	assert_int_equal(sl_backup_change_passphrase(b, "new", 3, &err), 0);
	sl_backup_close(b);
	assert_int_equal(try_open(&r.d, "new", &err), 0);
	assert_int_equal(try_open(&r.d, "old", &err), SL_EKEY);
	assert_int_equal(repo_count(&r.d, "keys", NULL), 1);
	repo_free(&r);
}

static int remove_key(const char *name, const struct sl_driver_stat *stat, void *ctx)
{
	const sl_driver *d = ctx;
	char whole[SL_DRIVER_NAME_BYTES];
	(void)stat;
	(void)snprintf(whole, sizeof(whole), "keys/%.64s", name);
	assert_int_equal(d->ops->remove(d->driver, whole, NULL), 0);
	return 0;
}

/* Whatever fails: one of the two opens it, and when the change was reported as done, only the new one. */
static void a_failed_change_of_the_passphrase_does_not_lock_the_user_out(void **state)
{
	struct repo r;
	struct sl_err err = SL_ERR_INIT;
	sl_backup *b;
	char key[4096], id[SL_DRIVER_NAME_BYTES], name[SL_DRIVER_NAME_BYTES + 8];
	size_t key_len;
	int64_t n = 1;
	(void)state;
	repo_place(&r, NULL);
	struct sl_backup_opts opts = with("old", 3);
	assert_int_equal(sl_backup_init(&r.d, &opts, &err), 0);
	assert_int_equal(sl_backup_open(&b, &r.d, &opts, &err), 0);
	assert_int_equal(repo_count(&r.d, "keys", id), 1);
	(void)snprintf(name, sizeof(name), "keys/%s", id);
	assert_int_equal(r.d.ops->get(r.d.driver, name, 0, key, sizeof(key), &key_len, NULL), 0);
	for (bool injected = true; injected; n++) {
		r.bad.counted = r.bad.failed = 0;
		r.bad.fail_at = n;
		int rc = sl_backup_change_passphrase(b, "new", 3, &err);
		r.bad.fail_at = 0;
		injected = r.bad.failed != 0;
		assert_true(rc == 0 || injected);
		if (rc == 0) /* and no other key is there */
			assert_int_equal(repo_count(&r.d, "keys", NULL), 1);
		assert_true(try_open(&r.d, "new", &err) == 0 || (rc != 0 && try_open(&r.d, "old", &err) == 0));
		assert_int_equal(r.d.ops->list(r.d.driver, "keys", remove_key, &r.d, NULL), 0); /* as it was */
		assert_int_equal(r.d.ops->put(r.d.driver, name, key, key_len, SL_DRIVER_NEW, NULL), 0);
	}
	sl_backup_close(b);
	repo_free(&r);
	printf("# %lld calls of the driver failed, one after another\n", (long long)n - 2);
}

static int change_too(struct bad_driver *b, enum bad_op op, const char *name, void *ctx)
{
	if (op == BAD_PUT && strncmp(name, "keys/", 5) == 0) {
		b->hook = NULL;
		assert_int_equal(sl_backup_change_passphrase(ctx, "theirs", 6, NULL), 0);
	}
	return 0;
}

static void two_changes_at_once_remove_neither_new_key(void **state)
{
	struct repo r;
	struct sl_err err = SL_ERR_INIT;
	sl_backup *b, *other;
	struct sl_backup_opts opts = with("old", 3);
	(void)state;
	repo_place(&r, NULL);
	assert_int_equal(sl_backup_init(&r.d, &opts, &err), 0);
	assert_int_equal(sl_backup_open(&b, &r.d, &opts, &err), 0);
	assert_int_equal(sl_backup_open(&other, &r.bad.under, &opts, &err), 0);
	r.bad.hook = change_too;
	r.bad.hook_ctx = other;
	assert_int_equal(sl_backup_change_passphrase(b, "mine", 4, &err), 0);
	assert_int_equal(try_open(&r.d, "mine", &err), 0);
	assert_int_equal(try_open(&r.d, "theirs", &err), 0);
	assert_int_equal(try_open(&r.d, "old", &err), SL_EKEY);
	sl_backup_close(other);
	sl_backup_close(b);
	repo_free(&r);
}

static void a_damaged_key_is_not_taken_for_a_wrong_passphrase(void **state)
{
	struct repo r;
	struct sl_err err = SL_ERR_INIT;
	char id[SL_DRIVER_NAME_BYTES], name[SL_DRIVER_NAME_BYTES + 8], copy[SL_DRIVER_NAME_BYTES + 16];
	struct sl_backup_opts opts = with("pass", 4);
	(void)state;
	repo_place(&r, NULL);
	assert_int_equal(sl_backup_init(&r.d, &opts, &err), 0);
	assert_int_equal(repo_count(&r.d, "keys", id), 1);
	(void)snprintf(name, sizeof(name), "keys/%s", id);
	assert_int_equal(
		r.d.ops->put(r.d.driver, "keys/00000000000000000000000000000000", "{}", 2, SL_DRIVER_NEW, NULL), 0);
	assert_int_equal(try_open(&r.d, "pass", &err), 0); /* another one is whole */
	assert_int_equal(try_open(&r.d, "wrong", &err), SL_EKEY);
	(void)snprintf(copy, sizeof(copy), "copies/keys/%s", id);
	repo_damage(&r.d, name, 40);
	repo_damage(&r.d, copy, 40);
	assert_int_equal(try_open(&r.d, "pass", &err), SL_ECORRUPT);
	assert_int_equal(r.d.ops->remove(r.d.driver, name, NULL), 0);
	assert_int_equal(r.d.ops->remove(r.d.driver, copy, NULL), 0);
	assert_int_equal(r.d.ops->remove(r.d.driver, "keys/00000000000000000000000000000000", NULL), 0);
	assert_int_equal(try_open(&r.d, "pass", &err), SL_ECORRUPT);
	assert_non_null(strstr(err.msg, "keys/"));
	repo_free(&r);
}

/* ---- secrets ---- */

/* Memory that is looked through when it is given back. */
struct watched {
	size_t size;
	_Alignas(16) uint8_t bytes[];
};
static const char *const needles[] = {KIT_PASSPHRASE, "KKKKKKKKKKKKKKKKKKKKKKKK", "another passphrase"};
static const char *leaked;

static void *watch_alloc(size_t size, void *ctx)
{
	struct watched *w = malloc(sizeof(*w) + size);
	(void)ctx;
	if (w == NULL)
		return NULL;
	w->size = size;
	return w->bytes;
}

static void watch_release(void *p, void *ctx)
{
	(void)ctx;
	if (p == NULL)
		return;
	struct watched *w = (struct watched *)((uint8_t *)p - offsetof(struct watched, bytes));
	for (size_t i = 0; i < SL_COUNT(needles); i++)
		if (memmem(w->bytes, w->size, needles[i], strlen(needles[i])) != NULL)
			leaked = needles[i];
	free(w);
}

static void *watch_resize(void *p, size_t size, void *ctx)
{
	void *bigger = watch_alloc(size, ctx);
	if (p != NULL && bigger != NULL) {
		const struct watched *w = (const struct watched *)((uint8_t *)p - offsetof(struct watched, bytes));
		memcpy(bigger, p, w->size < size ? w->size : size);
		watch_release(p, ctx);
	}
	return bigger;
}

static int fixed_random(void *buf, size_t n, void *ctx)
{
	static uint64_t counter;
	(void)ctx;
	memset(buf, 'K', n); /* the master key is 32 times this */
	if (n == 16 || n == 24)
		memcpy(buf, &(uint64_t){++counter}, 8);
	return 0;
}

static void neither_passphrase_nor_key_is_left_in_memory_that_was_given_back(void **state)
{
	static const struct sl_mem mem = {SL_MEM_VERSION, watch_alloc, watch_resize, watch_release};
	static const struct sl_rand random = {SL_RAND_VERSION, fixed_random};
	const struct sl_env env = {SL_ENV_INIT, .mem = &mem, .rand = &random};
	struct repo r;
	struct sl_err err = SL_ERR_INIT;
	sl_backup *b;
	(void)state;
	leaked = NULL;
	repo_place(&r, NULL);
	struct sl_backup_opts opts = with(KIT_PASSPHRASE, strlen(KIT_PASSPHRASE));
	opts.env = &env;
	assert_int_equal(sl_backup_init(&r.d, &opts, &err), 0);
	assert_int_equal(sl_backup_open(&b, &r.d, &opts, &err), 0);
	assert_int_equal(b->keys.master[31], 'K');
	assert_int_equal(sl_backup_change_passphrase(b, "another passphrase", 18, &err), 0);
	sl_backup_close(b);
	assert_int_equal(sl_backup_open(&b, &r.d, &opts, &err), SL_EKEY);
	assert_null(strstr(err.msg, KIT_PASSPHRASE));
	if (leaked != NULL)
		fail_msg("%s is in memory that was given back", leaked);
	repo_free(&r);
}

/* ---- snapshots ---- */

static void a_snapshot_comes_back_from_its_json(void **state)
{
	static const char *const paths[] = {"/home/ä b\n\"", "/not \xff utf8/\x80", ""};
	static const char *const tags[] = {"daily"};
	struct bk_ref refs[] = {{.len = 1}, {.len = BK_CHUNK_MAX}};
	struct bk_snapshot s = {.manifest = refs, .n_manifest = 2}, back;
	struct sl_env env;
	struct sl_err err = SL_ERR_INIT;
	char *json;
	size_t len;
	(void)state;
	memset(refs[1].id.b, 0xab, sizeof(refs[1].id.b));
	s.info = (struct sl_backup_snapshot){.struct_size = sizeof(s.info),
					     .time_ms = 1700000000123,
					     .took_ms = 5,
					     .host = "h\xfe",
					     .parent = "00112233445566778899aabbccddeeff",
					     .paths = paths,
					     .n_paths = 3,
					     .tags = tags,
					     .n_tags = 1,
					     .entries = 1,
					     .files = 2,
					     .bytes = INT64_MAX,
					     .new_bytes = 4,
					     .physical_bytes = 5,
					     .problems = 6,
					     .version = "0.1.0"};
	assert_int_equal(sl__env_init(&env, NULL, NULL), 0);
	assert_int_equal(sl__bk_snapshot_json(&env, &s, &json, &len, &err), 0);
	assert_int_equal(sl__bk_snapshot_parse(&env, "ffeeddccbbaa99887766554433221100", (struct bk_bytes){json, len},
					       &back, &err),
			 0);
	assert_string_equal(back.info.id, "ffeeddccbbaa99887766554433221100");
	assert_string_equal(back.info.host, "h\xfe");
	assert_string_equal(back.info.parent, s.info.parent);
	assert_int_equal(back.info.n_paths, 3);
	for (size_t i = 0; i < 3; i++)
		assert_string_equal(back.info.paths[i], paths[i]);
	assert_string_equal(back.info.tags[0], "daily");
	assert_true(back.info.time_ms == 1700000000123 && back.info.bytes == INT64_MAX && back.info.problems == 6);
	assert_string_equal(back.info.version, "0.1.0");
	assert_int_equal(back.n_manifest, 2);
	assert_memory_equal(back.manifest, refs, sizeof(refs));
	sl__bk_snapshot_fini(&env, &back);
	sl__free(&env, json);
}

static void json_that_is_no_snapshot_is_refused(void **state)
{
	static const char whole[] =
		"{\"version\":1,\"time_ms\":1,\"took_ms\":2,\"host\":\"h\",\"parent\":\"\",\"paths\":[\"p\"],\"tags\":["
		"],"
		"\"entries\":1,\"files\":1,\"bytes\":1,\"new_bytes\":1,\"physical_bytes\":1,\"problems\":0,"
		"\"library\":\"x\",\"manifest\":[[\"%s\",5]]}";
	static const struct {
		const char *from, *to;
	} wrong[] = {{"\"version\":1", "\"version\":0"},
		     {"\"time_ms\":1", "\"time_ms\":-1"},
		     {"\"host\":\"h\"", "\"host\":5"},
		     {"\"host\":\"h\"", "\"host\":{\"hex\":\"0\"}"},
		     {"\"host\":\"h\"", "\"host\":{\"hex\":\"00\"}"},
		     {"\"parent\":\"\"", "\"parent\":\"../../x\""},
		     {"[\"p\"]", "\"p\""},
		     {"[\"p\"]", "[[]]"},
		     {"\"tags\":[],", ""},
		     {",5]]", ",0]]"},
		     {",5]]", ",2097153]]"},
		     {",5]]", ",-5]]"},
		     {",5]]", "]]"},
		     {",5]]", ",5,5]]"},
		     {"\"bytes\":1", "\"bytes\":1.5"},
		     {"[[", "[[\"abc\",1],["},
		     {"\"problems\":0", "\"problems\":0,\"problems\":0"}};
	struct sl_env env;
	struct sl_err err = SL_ERR_INIT;
	struct bk_snapshot out;
	char hex[BK_HEX_BYTES], good[1024], bad[1024];
	(void)state;
	memset(hex, 'a', sizeof(hex) - 1);
	hex[sizeof(hex) - 1] = '\0';
	(void)snprintf(good, sizeof(good), whole, hex);
	assert_int_equal(sl__env_init(&env, NULL, NULL), 0);
	assert_int_equal(sl__bk_snapshot_parse(&env, hex, (struct bk_bytes){good, strlen(good)}, &out, &err), 0);
	sl__bk_snapshot_fini(&env, &out);
	for (size_t i = 0; i < SL_COUNT(wrong); i++) {
		const char *at = strstr(good, wrong[i].from);
		assert_non_null(at);
		(void)snprintf(bad, sizeof(bad), "%.*s%s%s", (int)(at - good), good, wrong[i].to,
			       at + strlen(wrong[i].from));
		if (sl__bk_snapshot_parse(&env, hex, (struct bk_bytes){bad, strlen(bad)}, &out, &err) != SL_ECORRUPT)
			fail_msg("%s is taken", bad);
	}
	static const char later[] = "{\"version\":2,\"something\":\"new\"}";
	assert_int_equal(sl__bk_snapshot_parse(&env, hex, (struct bk_bytes){later, strlen(later)}, &out, &err),
			 SL_EUNSUPPORTED);
	for (size_t cut = 0; cut < strlen(good); cut++)
		assert_int_equal(sl__bk_snapshot_parse(&env, hex, (struct bk_bytes){good, cut}, &out, &err),
				 SL_ECORRUPT);
}

struct reported {
	char text[512], damaged[64];
	int stop_after;
};

static int collect(const struct sl_backup_snapshot *s, void *ctx)
{
	struct reported *t = ctx;
	(void)snprintf(t->text + strlen(t->text), sizeof(t->text) - strlen(t->text), "%s ", s->host);
	return t->stop_after != 0 && --t->stop_after == 0 ? 7 : 0;
}

static int collect_damaged(const char *id, const struct sl_err *err, void *ctx)
{
	struct reported *t = ctx;
	assert_int_equal(err->code, SL_ECORRUPT);
	assert_non_null(strstr(err->msg, id));
	(void)snprintf(t->damaged, sizeof(t->damaged), "%s", id);
	return 0;
}

static void snapshots_are_listed_by_their_time(void **state)
{
	struct repo r;
	struct sl_err err = SL_ERR_INIT;
	struct reported t = {.text = ""};
	char ids[3][BK_NAME_HEX], id[SL_BACKUP_ID_BYTES], name[64];
	(void)state;
	repo_make(&r, NULL);
	assert_int_equal(sl_backup_resolve(r.b, "latest", id, &err), SL_ENOENT);
	assert_int_equal(repo_publish(&r, "second", 200, ids[0], &err), 0);
	assert_int_equal(repo_publish(&r, "third", 300, ids[1], &err), 0);
	assert_int_equal(repo_publish(&r, "first", 100, ids[2], &err), 0);
	assert_int_equal(sl_backup_list(r.b, collect, NULL, &t, &err), 0);
	assert_string_equal(t.text, "first second third ");
	t = (struct reported){.stop_after = 2};
	assert_int_equal(sl_backup_list(r.b, collect, NULL, &t, &err), 7);
	assert_int_equal(sl_backup_resolve(r.b, "latest", id, &err), 0);
	assert_string_equal(id, ids[1]);
	(void)snprintf(name, sizeof(name), "snapshots/%s", ids[1]);
	repo_damage(&r.d, name, 50);
	t = (struct reported){.text = ""};
	assert_int_equal(sl_backup_list(r.b, collect, NULL, &t, &err), 0); /* its copy is right */
	assert_string_equal(t.text, "first second third ");
	(void)snprintf(name, sizeof(name), "copies/snapshots/%s", ids[1]);
	repo_damage(&r.d, name, 50);
	t = (struct reported){.text = ""};
	assert_int_equal(sl_backup_list(r.b, collect, NULL, &t, &err), SL_ECORRUPT);
	assert_non_null(strstr(err.msg, ids[1]));
	assert_int_equal(sl_backup_list(r.b, collect, collect_damaged, &t, &err), 0);
	assert_string_equal(t.text, "first second ");
	assert_string_equal(t.damaged, ids[1]);
	/* An older one must not pass for the latest. */
	assert_int_equal(sl_backup_resolve(r.b, "latest", id, &err), SL_ECORRUPT);
	repo_free(&r);
}

static void a_snapshot_is_found_by_the_beginning_of_its_id(void **state)
{
	struct repo r;
	struct sl_err err = SL_ERR_INIT;
	char id[BK_NAME_HEX], found[SL_BACKUP_ID_BYTES], prefix[8], from[64], twin[BK_NAME_HEX], to[64];
	(void)state;
	repo_make(&r, NULL);
	assert_int_equal(repo_publish(&r, "host", 1, id, &err), 0);
	assert_int_equal(sl_backup_resolve(r.b, id, found, &err), 0);
	assert_string_equal(found, id);
	(void)snprintf(prefix, sizeof(prefix), "%.4s", id);
	assert_int_equal(sl_backup_resolve(r.b, prefix, found, &err), 0);
	assert_string_equal(found, id);
	prefix[3] = '\0';
	assert_int_equal(sl_backup_resolve(r.b, prefix, found, &err), SL_ENOENT);
	assert_int_equal(sl_backup_resolve(r.b, "../../etc", found, &err), SL_ENOENT);
	assert_int_equal(sl_backup_resolve(r.b, "", found, &err), SL_ENOENT);
	memcpy(twin, id, sizeof(twin));
	twin[31] = twin[31] == '0' ? '1' : '0';
	(void)snprintf(from, sizeof(from), "snapshots/%s", id);
	(void)snprintf(to, sizeof(to), "snapshots/%s", twin);
	assert_int_equal(r.d.ops->rename(r.d.driver, from, to, NULL), 0);
	assert_int_equal(r.d.ops->put(r.d.driver, from, "x", 1, SL_DRIVER_NEW, NULL), 0);
	(void)snprintf(prefix, sizeof(prefix), "%.4s", id);
	assert_int_equal(sl_backup_resolve(r.b, prefix, found, &err), SL_EINVAL);
	/* The id is bound in: under another name it is no snapshot. */
	struct bk_snapshot s;
	assert_int_equal(sl__bk_snapshot_load(r.b, twin, &s, &err), SL_ECORRUPT);
	repo_free(&r);
}

/* ---- failures ---- */

static void use(struct repo *r, sl_backup **b)
{
	struct reported t = {.text = ""};
	struct sl_backup_stats st = {.struct_size = sizeof(st)};
	char id[SL_BACKUP_ID_BYTES];
	if (sl_backup_open(b, &r->d, &r->opts, NULL) != 0)
		return;
	int rc = sl_backup_list(*b, collect, collect_damaged, &t, NULL);
	assert_true(rc == 0 || rc == SL_ENOMEM);
	rc = sl_backup_resolve(*b, "latest", id, NULL);
	assert_true(rc == 0 || rc == SL_ENOMEM);
	rc = sl_backup_get_stats(*b, &st, NULL);
	assert_true(rc == 0 || rc == SL_ENOMEM);
	sl_backup_close(*b);
}

static void every_failing_allocation_is_reported_and_nothing_is_left(void **state)
{
	struct repo r;
	struct fault f;
	struct sl_err err = SL_ERR_INIT;
	int64_t n = 1;
	(void)state;
	repo_make(&r, NULL);
	assert_int_equal(repo_publish(&r, "host", 1, NULL, &err), 0);
	repo_store(&r, 0, 50);
	fault_init(&f, NULL);
	struct sl_env env = fault_env(&f, NULL);
	r.opts.env = &env;
	for (bool injected = true; injected; n++) {
		sl_backup *b;
		fault_arm_mem(&f, n, FAULT_ONCE);
		use(&r, &b);
		fault_disarm(&f);
		injected = fault_mem_failed(&f) != 0;
		assert_int_equal(fault_live_allocs(&f), 0);
	}
	printf("# %lld allocations failed, one after another\n", (long long)n - 2);
	fault_fini(&f);
	repo_free(&r);
}

static void a_power_loss_leaves_a_repository_or_none(void **state)
{
	struct crashfs *fs = crashfs_new();
	struct sl_env env = {SL_ENV_INIT, .io = &crashfs_io, .io_ctx = fs};
	struct repo r;
	size_t states = 0, done;
	(void)state;
	repo_make(&r, &env);
	done = crashfs_point(fs);
	for (size_t point = 0; point <= done; point++)
		for (size_t k = 0; k < crashfs_states(fs, point, 100); k++, states++) {
			struct crashfs *lost = crashfs_crash(fs, point, k, 100, 1, NULL);
			struct sl_env after = {SL_ENV_INIT, .io = &crashfs_io, .io_ctx = lost};
			struct sl_driver_local_opts opts = {SL_DRIVER_LOCAL_OPTS_INIT, .env = &after, .create = SL_ON};
			sl_driver d;
			assert_int_equal(sl_driver_local_open(&d, "/repo", &opts, NULL), 0);
			int rc = try_open(&d, NULL, NULL);
			assert_true(rc == 0 || (rc == SL_ENOENT && point < done));
			if (rc == SL_ENOENT) {
				assert_int_equal(sl_backup_init(&d, &r.opts, NULL), 0);
				assert_int_equal(try_open(&d, NULL, NULL), 0);
			}
			sl_driver_close(&d);
			crashfs_free(lost);
		}
	printf("# %zu states\n", states);
	repo_free(&r);
	crashfs_free(fs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_plain_repository_opens_without_a_passphrase),
		cmocka_unit_test(a_plain_config_next_to_keys_is_refused),
		cmocka_unit_test(a_plain_init_is_refused_next_to_keys_of_an_interrupted_one),
		cmocka_unit_test(an_encrypted_repository_opens_with_its_passphrase_only),
		cmocka_unit_test(init_needs_a_passphrase_unless_encryption_is_off),
		cmocka_unit_test(init_leaves_what_is_there_alone),
		cmocka_unit_test(of_two_inits_at_once_one_wins),
		cmocka_unit_test(of_a_plain_and_an_encrypted_init_at_once_one_wins),
		cmocka_unit_test(bad_options_and_drivers_are_named),
		cmocka_unit_test(a_forked_child_is_refused),
		cmocka_unit_test(every_damaged_bit_of_the_config_is_found),
		cmocka_unit_test(a_config_of_a_later_version_is_not_taken_for_a_damaged_one),
		cmocka_unit_test(a_changed_passphrase_is_the_only_one),
		cmocka_unit_test(a_failed_change_of_the_passphrase_does_not_lock_the_user_out),
		cmocka_unit_test(two_changes_at_once_remove_neither_new_key),
		cmocka_unit_test(a_damaged_key_is_not_taken_for_a_wrong_passphrase),
		cmocka_unit_test(neither_passphrase_nor_key_is_left_in_memory_that_was_given_back),
		cmocka_unit_test(a_snapshot_comes_back_from_its_json),
		cmocka_unit_test(json_that_is_no_snapshot_is_refused),
		cmocka_unit_test(snapshots_are_listed_by_their_time),
		cmocka_unit_test(a_snapshot_is_found_by_the_beginning_of_its_id),
		cmocka_unit_test(every_failing_allocation_is_reported_and_nothing_is_left),
		cmocka_unit_test(a_power_loss_leaves_a_repository_or_none),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
