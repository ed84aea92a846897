/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handle. A repository is there when its config is: init puts the key first, so that a config never stands without
 * one, and then the config, as a new object, so that of two inits one wins. The winner puts the config's copy last.
 */
#include "backup/repo/repo.h"

#include <sodium.h>

#include "backup/repo/config.h"
#include "backup/repo/keyring.h"
#include "backup/repo/options.h"

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
	size_t n = out->struct_size;
	sl__lock(&b->mu);
	now = b->progress;
	sl__unlock(&b->mu);
	now.struct_size = n;
	memcpy(out, &now, SL_MIN(n, sizeof(now)));
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

static int check_driver(const sl_driver *driver, struct sl_err *err)
{
	if (driver == NULL || driver->ops == NULL)
		return sl_err_set(err, SL_EINVAL, "backup: driver: none");
	if (driver->ops->version != SL_DRIVER_VERSION)
		return sl_err_set(err, SL_EINVAL, "backup: driver: of another version than this library's");
	const struct sl_driver_ops *o = driver->ops;
	if (o->schedule_put == NULL || o->put == NULL || o->get == NULL || o->stat == NULL || o->list == NULL ||
	    o->rename == NULL || o->remove == NULL || o->sync == NULL || o->now_ms == NULL)
		return sl_err_set(err, SL_EINVAL, "backup: driver: a required function is missing");
	if ((o->lock == NULL) != (o->unlock == NULL))
		return sl_err_set(err, SL_EINVAL, "backup: driver: lock and unlock come together");
	return 0;
}

/* A handle without a repository. */
static int new_handle(sl_backup **out, const sl_driver *driver, const struct sl_backup_opts *opts, struct sl_err *err)
{
	struct sl_backup_opts filled;
	struct sl_env env;
	int rc = check_driver(driver, err);
	if (rc == 0)
		rc = sl__bk_fill_options(&filled, opts, err);
	if (rc == 0)
		rc = sl__env_init(&env, filled.env, err);
	if (rc == 0 && sodium_init() < 0)
		rc = sl_err_set(err, SL_EINTERNAL, "libsodium does not start");
	if (rc != 0)
		return rc;
	sl_backup *b = sl__calloc(&env, 1, sizeof(*b));
	if (b == NULL)
		return sl_err_set(err, SL_ENOMEM, "open a repository: out of memory");
	b->env = env;
	b->driver = *driver;
	b->opts = filled;
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

/* Has one of the folders an object? 1, 0 or a negative SL_E…. */
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

/* A plain repository has no key. One that does was encrypted, and somebody changed its config. */
static int open_plain(sl_backup *b, struct sl_err *err)
{
	int keys = has_objects(b, key_folders, SL_COUNT(key_folders), err);
	if (keys < 0)
		return keys;
	if (keys > 0)
		return sl_err_set(err, SL_EKEY,
				  "the config says that the repository is plain, but it has keys: somebody changed the "
				  "config, or an init was cut off (then remove " BK_KEYS " and " BK_KEY_COPIES ")");
	return sl__bk_keys_derive(&b->keys, err);
}

/* Who was told by the storage that there are no keys, though the user means to have a passphrase, must not write
 * without encryption. */
static int unlock_keys(sl_backup *b, bool encrypted, const void *passphrase, size_t len, struct sl_err *err)
{
	b->keys.encrypted = encrypted;
	if (encrypted && passphrase == NULL)
		return sl_err_set(err, SL_EKEY, "the repository is encrypted: give its passphrase");
	if (!encrypted && passphrase != NULL)
		return sl_err_set(err, SL_EKEY,
				  "a passphrase is given, but the repository says that it is plain: leave "
				  "it out if that is right");
	return encrypted ? sl__bk_keyring_open(b, passphrase, len, err) : open_plain(b, err);
}

static int open_handle(sl_backup *b, const void *passphrase, size_t len, struct sl_err *err)
{
	struct bk_config config;
	int rc = sl__bk_config_load(b, &config, err);
	if (rc != 0)
		return rc;
	memcpy(b->keys.repository, config.id, sizeof(config.id));
	rc = unlock_keys(b, config.encrypted, passphrase, len, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_chunker_init(&b->chunker, &b->keys, config.chunk_min, config.chunk_avg, config.chunk_max, err);
	return rc == SL_EINVAL ? sl_err_set(err, SL_ECORRUPT, "config is damaged: sizes of the chunker") : rc;
}

int sl_backup_open(sl_backup **out, const sl_driver *driver, const struct sl_backup_opts *opts, struct sl_err *err)
{
	sl_backup *b;
	struct sl_backup_opts given;
	int rc = new_handle(&b, driver, opts, err);
	if (rc != 0)
		return rc;
	sl__opts_copy(&given, sizeof(given), opts);
	rc = open_handle(b, given.passphrase, given.passphrase_len, err);
	if (rc == 0)
		*out = b;
	else
		sl_backup_close(b);
	return rc;
}

int sl_backup_is_encrypted(const sl_driver *driver, const struct sl_backup_opts *opts, struct sl_err *err)
{
	sl_backup *b;
	struct bk_config config;
	int rc = new_handle(&b, driver, opts, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_config_load(b, &config, err);
	sl_backup_close(b);
	return rc == 0 ? (int)config.encrypted : rc;
}

/* ---- init ---- */

/* A plain config beside the keys of an init that was cut off would be taken for one that somebody changed. */
static int check_no_keys(sl_backup *b, struct sl_err *err)
{
	int keys = has_objects(b, key_folders, SL_COUNT(key_folders), err);
	if (keys > 0)
		return sl_err_set(err, SL_EEXIST,
				  "keys of an encrypted repository are there, but no config: an init was cut off; "
				  "remove " BK_KEYS " and " BK_KEY_COPIES " to make a plain one");
	return keys;
}

/* A config that got lost must not be replaced by another one: nothing that is there could be read with it. */
static int check_empty(sl_backup *b, bool encrypt, struct sl_err *err)
{
	static const char *const folders[] = {"snapshots", "index", BK_COPIES, BK_SNAPSHOT_COPIES};
	struct sl_driver_stat st;
	struct sl_err why = SL_ERR_INIT; /* that nothing is there is as it should be, and not told */
	int rc = b->driver.ops->stat(b->driver.driver, BK_CONFIG, &st, &why);
	if (rc == 0)
		return sl_err_set(err, SL_EEXIST, "there is a repository already");
	if (rc != SL_ENOENT) {
		if (err != NULL)
			*err = why;
		return rc;
	}
	rc = has_objects(b, folders, SL_COUNT(folders), err);
	if (rc > 0)
		return sl_err_set(err, SL_EEXIST,
				  "objects of a repository are there, but no config: repair puts back its copy");
	return rc == 0 && !encrypt ? check_no_keys(b, err) : rc;
}

static int draw(sl_backup *b, void *out, size_t n, struct sl_err *err)
{
	int rc = b->env.rand->fill(out, n, b->env.rand_ctx);
	return rc == 0 ? 0 : sl_err_set_errno(err, -rc, "draw a random key");
}

static int put_config(sl_backup *b, struct sl_err *err)
{
	struct bk_config config = {.encrypted = b->keys.encrypted,
				   .chunk_min = BK_CHUNK_MIN,
				   .chunk_avg = BK_CHUNK_AVG,
				   .chunk_max = BK_CHUNK_MAX};
	memcpy(config.id, b->keys.repository, sizeof(config.id));
	return sl__bk_config_put(b, &config, err);
}

static int make_repository(sl_backup *b, bool encrypt, const void *passphrase, size_t len, struct sl_err *err)
{
	char key[BK_NAME_HEX];
	int rc = check_empty(b, encrypt, err);
	if (rc == 0)
		rc = draw(b, b->keys.repository, sizeof(b->keys.repository), err);
	b->keys.encrypted = encrypt;
	if (rc == 0 && encrypt)
		rc = draw(b, b->keys.master, sizeof(b->keys.master), err);
	if (rc == 0 && encrypt)
		rc = sl__bk_keyring_add(b, passphrase, len, key, err);
	if (rc != 0)
		return rc;
	rc = put_config(b, err);
	if (rc == SL_EEXIST && encrypt)
		sl__bk_keyring_remove(b, key); /* of no use to the other's config */
	return rc;
}

int sl_backup_init(const sl_driver *driver, const struct sl_backup_opts *opts, struct sl_err *err)
{
	sl_backup *b;
	struct sl_backup_opts given;
	int rc = new_handle(&b, driver, opts, err);
	if (rc != 0)
		return rc;
	sl__opts_copy(&given, sizeof(given), opts);
	bool encrypt = given.encrypt != SL_OFF;
	if (encrypt && (given.passphrase == NULL || given.passphrase_len == 0))
		rc = sl_err_set(err, SL_EINVAL, "backup: passphrase: an encrypted repository needs one");
	else if (!encrypt && given.passphrase != NULL)
		rc = sl_err_set(err, SL_EINVAL, "backup: passphrase: a plain repository has none");
	else
		rc = make_repository(b, encrypt, given.passphrase, given.passphrase_len, err);
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
		return sl_err_set(err, SL_EINVAL, "backup: passphrase: none");
	return sl__bk_keyring_replace(b, passphrase, len, err);
}
