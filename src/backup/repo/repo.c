/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handle: options, open, init, the passphrase, and the names of problems and faults.
 *
 * A repository is there when its config is: init puts the key first, so that a config never exists without one, and then
 * the config, as a new object, so that of two inits one wins. The winner puts the config's copy last.
 */
#include "backup/repo/repo.h"
#include "backup/helpers.h"

#include <sodium.h>
#include <unistd.h>

#include "backup/repo/config.h"
#include "backup/repo/keyring.h"

#define THREADS_MAX 64
#define PACK_MIN ((int64_t)64 << 10)
#define PACK_MAX ((int64_t)64 << 20)

int sl__bk_begin(struct sl_backup *b, const char *phase, struct sl_err *err)
{
	if (sl__forked(&b->guard))
		return sl_err_set(err, SL_EFORKED, "the repository was opened by another process: open it again");
	atomic_store(&b->stopping, false);
	sl__lock(&b->mu);
	b->progress = (struct sl_backup_progress){.struct_size = sizeof(b->progress), .phase = phase};
	sl__unlock(&b->mu);
	return 0;
}

int sl__bk_check_stop(struct sl_backup *b, struct sl_err *err)
{
	return SL_LIKELY(!atomic_load_explicit(&b->stopping, memory_order_relaxed))
		       ? 0
		       : sl_err_set(err, SL_ECANCELLED, "stopped");
}

void sl_backup_stop(sl_backup *b)
{
	atomic_store(&b->stopping, true);
}

void sl_backup_get_progress(sl_backup *b, struct sl_backup_progress *out)
{
	struct sl_backup_progress now;
	sl__lock(&b->mu);
	now = b->progress;
	sl__unlock(&b->mu);
	sl__result_copy(out, &now, sizeof(now));
}

void sl_backup_close(sl_backup *b)
{
	if (b == NULL)
		return;
	struct sl_env env = b->env;
	sl__bk_keys_wipe(&b->keys);
	sodium_memzero(&b->chunker, sizeof(b->chunker)); /* its table comes of a key */
	sl__mutex_fini(&b->mu);
	sl__fork_guard_fini(&b->guard);
	sl__free(&env, b);
}

/* ---- open ---- */

/* Options with their defaults filled in; SL_EINVAL names the bad one. The passphrase stays the caller's. */
static int read_backup_options(const struct sl_backup_opts *in, struct sl_backup_opts *out, struct sl_err *err)
{
	struct sl_backup_opts o;
	sl__opts_copy(&o, sizeof(o), in);
	if (o.threads == 0) {
		long n = sysconf(_SC_NPROCESSORS_ONLN);
		o.threads = n < 1 ? 1 : n > THREADS_MAX ? THREADS_MAX : (int32_t)n;
	}
	if (o.pack_bytes == 0)
		o.pack_bytes = 8 << 20;
	if (o.max_concurrent_writes == 0)
		o.max_concurrent_writes = 4;
	if (o.max_retry_attempts == 0)
		o.max_retry_attempts = 5;
	if (o.retry_first_ms == 0)
		o.retry_first_ms = 2000;
	if (o.backlog_limit_bytes == 0)
		o.backlog_limit_bytes = 32 << 20;
	const struct {
		const char *name;
		int64_t value, low, high;
	} ranges[] = {
		{"threads", o.threads, 1, THREADS_MAX},
		{"zstd_level", o.zstd_level, 0, 19},
		{"pack_bytes", o.pack_bytes, PACK_MIN, PACK_MAX},
		{"max_concurrent_writes", o.max_concurrent_writes, 1, 4096},
		{"max_retry_attempts", o.max_retry_attempts, 1, 1000},
		{"retry_first_ms", o.retry_first_ms, 1, 3600000},
		{"backlog_limit_bytes", o.backlog_limit_bytes, 1, INT64_MAX / 4},
	};
	for (size_t i = 0; i < SL_COUNT(ranges); i++)
		if (ranges[i].value < ranges[i].low || ranges[i].value > ranges[i].high)
			return sl_err_set(err, SL_EINVAL, "backup: %s: give %lld to %lld", ranges[i].name,
					  (long long)ranges[i].low, (long long)ranges[i].high);
	if ((unsigned)o.encrypt > SL_OFF)
		return sl_err_set(err, SL_EINVAL, "backup: encrypt: not a switch");
	if (o.passphrase == NULL && o.passphrase_len != 0)
		return sl_err_set(err, SL_EINVAL, "backup: passphrase_len without a passphrase");
	*out = o;
	return 0;
}

/* A handle without a repository. *p: the passphrase of the options, which is not kept. */
static int new_backup(const sl_driver *driver, const struct sl_backup_opts *opts, sl_backup **out,
		      struct bk_passphrase *p, struct sl_err *err)
{
	struct sl_backup_opts filled;
	struct sl_env env;
	if (driver == NULL || driver->ops == NULL)
		return sl_err_set(err, SL_EINVAL, "backup: missing driver");
	const struct sl_driver_ops *ops = driver->ops;
	if (ops->version != SL_DRIVER_VERSION)
		return sl_err_set(err, SL_EINVAL, "backup: driver: version %d is not supported; use %d", ops->version,
				  SL_DRIVER_VERSION);
	if (ops->schedule_put == NULL || ops->put == NULL || ops->get == NULL || ops->stat == NULL ||
	    ops->list == NULL || ops->rename == NULL || ops->remove == NULL || ops->sync == NULL || ops->now_ms == NULL)
		return sl_err_set(err, SL_EINVAL, "backup: driver: a required function is missing");
	if ((ops->lock == NULL) != (ops->unlock == NULL))
		return sl_err_set(err, SL_EINVAL, "backup: driver: lock and unlock come together");
	int rc = read_backup_options(opts, &filled, err);
	if (rc == 0)
		rc = sl__env_init(&env, filled.env, err);
	if (rc != 0)
		return rc;
	if (sodium_init() < 0)
		return sl_err_set(err, SL_EINTERNAL, "libsodium failed to start");
	sl_backup *b = sl__calloc(&env, 1, sizeof(*b));
	if (b == NULL)
		return sl_err_set(err, SL_ENOMEM, "open a repository: out of memory");
	b->env = env;
	b->driver = *driver;
	b->opts = filled;
	*p = (struct bk_passphrase){filled.passphrase, filled.passphrase_len};
	b->opts.passphrase = NULL; /* never kept */
	b->opts.passphrase_len = 0;
	b->opts.env = &b->env;
	b->progress.struct_size = sizeof(b->progress);
	b->progress.phase = "";
	sl__mutex_init(&b->mu);
	sl__fork_guard_init(&b->guard);
	*out = b;
	return 0;
}

static int found_one(SL_UNUSED const char *name, SL_UNUSED const struct sl_driver_stat *stat, void *ctx)
{
	*(bool *)ctx = true;
	return 1;
}

/* Does one of the folders have an object? 1, 0 or a negative SL_E…. */
static int has_objects(sl_backup *b, const char *const *folders, size_t n, struct sl_err *err)
{
	bool found = false;
	for (size_t i = 0; !found && i < n; i++) {
		int rc = b->driver.ops->list(b->driver.driver, folders[i], found_one, &found, err);
		if (rc != 0 && !found)
			return rc;
	}
	return found;
}

static const char *const key_folders[] = {BK_KEYS, BK_KEY_COPIES};

/* A handle of the repository that is there, its keys not opened yet. */
struct opening {
	struct bk_passphrase passphrase;
	struct bk_config config;
};

static int begin_open(const sl_driver *driver, const struct sl_backup_opts *opts, sl_backup **out, struct opening *o,
		      struct sl_err *err)
{
	int rc = new_backup(driver, opts, out, &o->passphrase, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_config_load(*out, &o->config, err);
	if (rc != 0)
		sl_backup_close(*out);
	return rc;
}

int sl_backup_open(sl_backup **out, const sl_driver *driver, const struct sl_backup_opts *opts, struct sl_err *err)
{
	sl_backup *b;
	struct opening o;
	int rc = begin_open(driver, opts, &b, &o, err);
	if (rc != 0)
		return rc;
	memcpy(b->keys.repository, o.config.id, sizeof(o.config.id));
	b->keys.encrypted = o.config.encrypted;
	if (o.config.encrypted && o.passphrase.bytes == NULL) {
		rc = sl_err_set(err, SL_EKEY, "the repository is encrypted: give its passphrase");
	} else if (o.config.encrypted) {
		rc = sl__bk_keyring_open(b, &o.passphrase, err);
	} else if (o.passphrase.bytes != NULL) {
		/* If the storage claims that there are no keys, though the user has a passphrase, nothing must be written
		 * without encryption. */
		rc = sl_err_set(err, SL_EKEY,
				"a passphrase is given, but the repository is plain: leave it out if that is right");
	} else {
		/* A plain repository has no key. One that does was encrypted, and its config was changed. */
		rc = has_objects(b, key_folders, SL_COUNT(key_folders), err);
		if (rc > 0)
			rc = sl_err_set(err, SL_EKEY,
					"the config says that the repository is plain, but it has keys: the config was "
					"changed, or an init was interrupted (then remove " BK_KEYS
					" and " BK_KEY_COPIES ")");
		else if (rc == 0)
			rc = sl__bk_keys_derive(&b->keys, err);
	}
	if (rc != 0)
		goto fail;
	rc = sl__bk_chunker_init(&b->chunker, &b->keys, &o.config.chunks, err);
	if (rc == SL_EINVAL)
		rc = sl_err_set(err, SL_ECORRUPT, "config is damaged: sizes of the chunker");
	if (rc != 0)
		goto fail;
	*out = b;
	return 0;
fail:
	sl_backup_close(b);
	return rc;
}

int sl_backup_is_encrypted(const sl_driver *driver, const struct sl_backup_opts *opts, struct sl_err *err)
{
	sl_backup *b;
	struct opening o;
	int rc = begin_open(driver, opts, &b, &o, err);
	if (rc != 0)
		return rc;
	sl_backup_close(b);
	return o.config.encrypted;
}

/* ---- init ---- */

/* A lost config must not be replaced by another one: nothing that is there could be read with it. */
static int check_empty(sl_backup *b, bool encrypt, struct sl_err *err)
{
	static const char *const folders[] = {"snapshots", "index", BK_COPIES, BK_SNAPSHOT_COPIES};
	struct sl_driver_stat st;
	struct sl_err why = SL_ERR_INIT; /* that nothing is there is not an error */
	int rc = b->driver.ops->stat(b->driver.driver, BK_CONFIG, &st, &why);
	if (rc == 0)
		return sl_err_set(err, SL_EEXIST, "there is a repository already");
	if (rc != SL_ENOENT)
		return sl__bk_result(rc, &why, err);
	rc = has_objects(b, folders, SL_COUNT(folders), err);
	if (rc > 0)
		return sl_err_set(err, SL_EEXIST,
				  "objects of a repository are there, but no config: repair puts back its copy");
	if (rc != 0 || encrypt)
		return rc;
	/* A plain config next to the keys of an interrupted init would be taken for one that was changed. */
	rc = has_objects(b, key_folders, SL_COUNT(key_folders), err);
	if (rc > 0)
		return sl_err_set(err, SL_EEXIST,
				  "keys of an encrypted repository are there, but no config: an init was interrupted; "
				  "remove " BK_KEYS " and " BK_KEY_COPIES " to make a plain one");
	return rc;
}

static int draw_random(sl_backup *b, void *out, size_t n, struct sl_err *err)
{
	int rc = b->env.rand->fill(out, n, b->env.rand_ctx);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "draw a random key");
	return 0;
}

/* Its id, and with encryption its master key, which `key` then opens with the passphrase. */
static int draw_keys(sl_backup *b, const struct bk_passphrase *p, char key[BK_NAME_HEX], struct sl_err *err)
{
	int rc = draw_random(b, b->keys.repository, sizeof(b->keys.repository), err);
	if (rc != 0 || !b->keys.encrypted)
		return rc;
	rc = draw_random(b, b->keys.master, sizeof(b->keys.master), err);
	if (rc != 0)
		return rc;
	return sl__bk_keyring_add(b, p, key, err);
}

int sl_backup_init(const sl_driver *driver, const struct sl_backup_opts *opts, struct sl_err *err)
{
	sl_backup *b;
	struct bk_passphrase p;
	char key[BK_NAME_HEX];
	int rc = new_backup(driver, opts, &b, &p, err);
	if (rc != 0)
		return rc;
	bool encrypt = b->opts.encrypt != SL_OFF;
	b->keys.encrypted = encrypt;
	if (encrypt && (p.bytes == NULL || p.len == 0))
		rc = sl_err_set(err, SL_EINVAL, "backup: passphrase: an encrypted repository needs one");
	else if (!encrypt && p.bytes != NULL)
		rc = sl_err_set(err, SL_EINVAL, "backup: passphrase: a plain repository has none");
	else
		rc = check_empty(b, encrypt, err);
	if (rc == 0)
		rc = draw_keys(b, &p, key, err);
	if (rc == 0) {
		struct bk_config config = {.encrypted = encrypt, .chunks = {BK_CHUNK_MIN, BK_CHUNK_AVG, BK_CHUNK_MAX}};
		memcpy(config.id, b->keys.repository, sizeof(config.id));
		rc = sl__bk_config_put(b, &config, err);
		if (rc == SL_EEXIST && encrypt)
			sl__bk_keyring_remove(b, key); /* of no use to the other's config */
	}
	sl_backup_close(b);
	return rc;
}

int sl_backup_change_passphrase(sl_backup *b, const void *passphrase, size_t len, struct sl_err *err)
{
	int rc = sl__bk_begin(b, "passphrase", err);
	if (rc != 0)
		return rc;
	if (!b->keys.encrypted)
		return sl_err_set(err, SL_EINVAL, "the repository is plain: it has no passphrase");
	if (passphrase == NULL || len == 0)
		return sl_err_set(err, SL_EINVAL, "backup: missing passphrase");
	return sl__bk_keyring_replace(b, &(struct bk_passphrase){passphrase, len}, err);
}

/* ---- names ---- */

const char *sl_backup_problem_name(enum sl_backup_problem problem)
{
	switch (problem) {
	case SL_BACKUP_VANISHED:
		return "vanished";
	case SL_BACKUP_CHANGED:
		return "changed";
	case SL_BACKUP_UNREADABLE:
		return "unreadable";
	case SL_BACKUP_SKIPPED:
		return "skipped";
	case SL_BACKUP_NOT_SET:
		return "not_set";
	case SL_BACKUP_AS_FILE:
		return "as_file";
	}
	return "unknown";
}

const char *sl_backup_fault_name(enum sl_backup_fault fault)
{
	static const char *const names[] = {[SL_BACKUP_FAULT_PACK] = "pack",
					    [SL_BACKUP_FAULT_INDEX] = "index",
					    [SL_BACKUP_FAULT_SNAPSHOT] = "snapshot",
					    [SL_BACKUP_FAULT_KEY] = "key",
					    [SL_BACKUP_FAULT_CONFIG] = "config",
					    [SL_BACKUP_FAULT_MISSING_PACK] = "missing_pack",
					    [SL_BACKUP_FAULT_MISSING_BLOCK] = "missing_block",
					    [SL_BACKUP_FAULT_UNINDEXED] = "unindexed",
					    [SL_BACKUP_FAULT_STRAY] = "stray",
					    [SL_BACKUP_FAULT_MARK] = "mark",
					    [SL_BACKUP_FAULT_ONE_COPY] = "one_copy"};
	return (size_t)fault < SL_COUNT(names) && names[fault] != NULL ? names[fault] : "unknown";
}
