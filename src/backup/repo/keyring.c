/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/repo/keyring.h"

#include <sodium.h>
#include <stdio.h>

#define ASIDE "damaged"
#define ROUNDS_MAX 100 /* of removing what somebody puts back meanwhile */

static void names_of(const char *id, char first[SL_DRIVER_NAME_BYTES], char copy[SL_DRIVER_NAME_BYTES])
{
	(void)snprintf(first, SL_DRIVER_NAME_BYTES, BK_KEYS "/%s", id);
	sl__bk_copy_name(first, copy);
}

int sl__bk_is_key(struct sl_backup *b, const char *text, size_t len, struct sl_err *err)
{
	return sl__bk_key_check(&b->env, text, len, err);
}

int sl__bk_keyring_add(struct sl_backup *b, const void *passphrase, size_t len, char id[BK_NAME_HEX],
		       struct sl_err *err)
{
	const sl_driver *d = &b->driver;
	char fresh[BK_NAME_HEX], first[SL_DRIVER_NAME_BYTES], copy[SL_DRIVER_NAME_BYTES], *json = NULL;
	int rc = sl__bk_new_name(&b->env, fresh, err);
	if (rc == 0)
		rc = sl__bk_key_wrap(&b->env, &b->keys, passphrase, len, &json, err);
	if (rc != 0)
		return rc;
	names_of(fresh, first, copy);
	rc = d->ops->put(d->driver, first, json, strlen(json), SL_DRIVER_NEW, err);
	if (rc == 0) /* a repair may have made it meanwhile, of the same bytes */
		rc = d->ops->put(d->driver, copy, json, strlen(json), SL_DRIVER_REPLACE, err);
	sl__free(&b->env, json);
	if (rc == 0 && id != NULL)
		memcpy(id, fresh, BK_NAME_HEX);
	return rc;
}

/* ---- opening ---- */

struct opening {
	struct sl_backup *b;
	const void *passphrase;
	size_t len;
	bool whole;           /* keys/ has something that can be read */
	size_t seen;          /* keys, in any place */
	struct sl_err reason; /* why none has opened yet; code 0: there is none */
};

/* Whether another key may do where this one did not. */
static bool may_go_on(int rc)
{
	return rc == SL_EKEY || rc == SL_ECORRUPT || rc == SL_ENOENT || rc == SL_EUNSUPPORTED || rc == SL_EIO;
}

/* The reason that is told when no key opens: a wrong passphrase rather than a damaged key beside it. */
static int note(struct opening *o, int rc, const struct sl_err *why)
{
	if (o->reason.code == 0 || rc == SL_EKEY || !may_go_on(rc))
		o->reason = *why;
	return rc;
}

/* Fill keys by one object. */
static int open_one(struct opening *o, const char *name, struct bk_keys *keys)
{
	struct bk_twin t;
	int rc = sl__bk_twin_load(o->b, name, sl__bk_is_key, &t, NULL);
	if (rc != 0 || t.rc != 0)
		return note(o, t.rc, &t.why);
	o->whole = true;
	rc = sl__bk_key_unwrap(&o->b->env, keys, (const char *)t.text, t.len, o->passphrase, o->len, &t.why);
	sl__bk_twin_fini(o->b, &t);
	if (rc != 0)
		rc = sl_err_wrap(&t.why, rc, "%s", name);
	return rc != 0 ? note(o, rc, &t.why) : 0;
}

static void tell_copy_is_used(struct opening *o, const char *name)
{
	sl__log(&o->b->env, SL_LOG_WARN, "backup", "a key cannot be read, its copy is used: run a repair",
		SL__F_STR("key", name));
}

/* One that keys/ has: by its copy, where it cannot be read itself. */
static int open_listed(struct opening *o, const char *id)
{
	char first[SL_DRIVER_NAME_BYTES], copy[SL_DRIVER_NAME_BYTES];
	names_of(id, first, copy);
	int rc = open_one(o, first, &o->b->keys);
	o->whole = o->whole || rc == SL_EUNSUPPORTED;
	if (rc != SL_ECORRUPT && rc != SL_EIO)
		return rc;
	int again = open_one(o, copy, &o->b->keys);
	if (again == 0)
		tell_copy_is_used(o, first);
	return may_go_on(again) && again != SL_EKEY ? rc : again;
}

static int open_copy(struct opening *o, const char *id)
{
	char first[SL_DRIVER_NAME_BYTES], copy[SL_DRIVER_NAME_BYTES];
	names_of(id, first, copy);
	int rc = open_one(o, copy, &o->b->keys);
	if (rc == 0)
		tell_copy_is_used(o, first);
	return rc;
}

static int open_folder(struct opening *o, const char *folder, int (*try_one)(struct opening *o, const char *id))
{
	struct bk_listed *listed = NULL;
	size_t n = 0;
	struct sl_err err = SL_ERR_INIT;
	int rc = sl__bk_list_names(o->b, folder, &listed, &n, &err);
	if (rc != 0) {
		o->reason = err;
		return rc;
	}
	rc = SL_EKEY;
	for (size_t i = 0; i < n && may_go_on(rc); i++)
		rc = try_one(o, listed[i].id);
	sl__free(&o->b->env, listed);
	o->seen += n;
	return rc;
}

static int judge(const struct opening *o, struct sl_err *err)
{
	if (o->seen == 0 && o->reason.code == 0)
		return sl_err_set(err, SL_ECORRUPT, "the repository has no key: put back a copy of " BK_KEYS "/");
	if (o->reason.code == SL_EKEY)
		return sl_err_set(err, SL_EKEY, "the passphrase does not open the repository");
	if (err != NULL)
		*err = o->reason;
	return o->reason.code;
}

int sl__bk_keyring_open(struct sl_backup *b, const void *passphrase, size_t len, struct sl_err *err)
{
	struct opening o = {.b = b, .passphrase = passphrase, .len = len, .reason = SL_ERR_INIT};
	int rc = open_folder(&o, BK_KEYS, open_listed);
	if (may_go_on(rc) && !o.whole)
		rc = open_folder(&o, BK_KEY_COPIES, open_copy);
	return rc == 0 ? 0 : judge(&o, err);
}

/* ---- changing the passphrase ---- */

/* The new key is read back from both places before the others go: a repository without a key is lost. */
static int prove(struct sl_backup *b, const char *name, const void *passphrase, size_t len, struct sl_err *err)
{
	struct bk_twin t[2];
	struct bk_keys again = {.encrypted = true};
	memcpy(again.repository, b->keys.repository, sizeof(again.repository));
	int rc = sl__bk_twins_load(b, name, sl__bk_is_key, t, err);
	const struct bk_twin *wrong = t[BK_FIRST].rc != 0 ? &t[BK_FIRST] : &t[BK_COPY];
	if (rc == 0 && wrong->rc != 0) {
		rc = wrong->rc;
		if (err != NULL)
			*err = wrong->why;
	}
	if (rc == 0)
		rc = sl__bk_key_unwrap(&b->env, &again, (const char *)t[BK_FIRST].text, t[BK_FIRST].len, passphrase,
				       len, err);
	if (rc == 0 &&
	    (sodium_memcmp(again.master, b->keys.master, sizeof(again.master)) != 0 || !sl__bk_twins_same(t)))
		rc = sl_err_set(err, SL_EINTERNAL, "%s came back with another key in it", name);
	sl__bk_keys_wipe(&again);
	sl__bk_twins_fini(b, t);
	return rc;
}

/* Objects that hold a key: in keys/, their copies, and those that a repair has put aside. */
struct found {
	const struct sl_env *env;
	const char *folder;
	struct holder {
		char name[SL_DRIVER_NAME_BYTES], id[BK_NAME_HEX];
	} * at;
	size_t n;
	bool no_memory;
};

static int find_key(const char *name, SL_UNUSED const struct sl_driver_stat *stat, void *ctx)
{
	struct found *f = ctx;
	struct holder h;
	bool aside = strcmp(f->folder, ASIDE) == 0; /* keys-<id> or copies-<id>, and perhaps a number */
	size_t front = !aside                                 ? 0
		       : strncmp(name, BK_KEYS "-", 5) == 0   ? 5
		       : strncmp(name, BK_COPIES "-", 7) == 0 ? 7
							      : 0;
	(void)snprintf(h.id, sizeof(h.id), "%s", name + front);
	if (!sl__bk_is_name(h.id) || (!aside && !sl__bk_is_name(name)))
		return 0;
	struct holder *grown = sl__realloc(f->env, f->at, (f->n + 1) * sizeof(*grown));
	f->no_memory = grown == NULL;
	if (grown == NULL)
		return 1;
	(void)snprintf(h.name, sizeof(h.name), "%s/%s", f->folder, name);
	f->at = grown;
	f->at[f->n++] = h;
	return 0;
}

static int find_keys(struct sl_backup *b, struct found *f, struct sl_err *err)
{
	static const char *const folders[] = {BK_KEYS, BK_KEY_COPIES, ASIDE};
	int rc = 0;
	*f = (struct found){.env = &b->env};
	for (size_t i = 0; i < SL_COUNT(folders) && rc == 0; i++) {
		f->folder = folders[i];
		rc = b->driver.ops->list(b->driver.driver, f->folder, find_key, f, err);
	}
	return f->no_memory ? sl_err_set(err, SL_ENOMEM, "list the keys: out of memory") : rc;
}

static bool has_id(const struct found *f, const char *id)
{
	for (size_t i = 0; i < f->n; i++)
		if (strcmp(f->at[i].id, id) == 0)
			return true;
	return false;
}

/* What is there now of the keys that were there before; *left: how many. Those of keys/ come first (T1). */
static int remove_old(struct sl_backup *b, const struct found *old, size_t *left, struct sl_err *err)
{
	struct found now;
	int rc = find_keys(b, &now, err);
	*left = 0;
	for (size_t i = 0; i < now.n && rc == 0; i++) {
		if (!has_id(old, now.at[i].id))
			continue;
		rc = sl__bk_twin_remove(b, now.at[i].name, err);
		++*left;
	}
	sl__free(&b->env, now.at);
	return rc;
}

/* Until nobody has put one back (T2). */
static int remove_all_old(struct sl_backup *b, const struct found *old, struct sl_err *err)
{
	size_t left = 1;
	int rc = 0;
	for (int i = 0; i < ROUNDS_MAX && left > 0 && rc == 0; i++)
		rc = remove_old(b, old, &left, err);
	if (rc == 0 && left > 0)
		rc = sl_err_set(err, SL_EAGAIN, "somebody puts back keys as fast as they are removed");
	return rc == 0 ? 0
		       : sl_err_wrap(err, rc,
				     "the new passphrase opens the repository, but so may an old one: try again");
}

/* The others are listed before the new one is put: of two who do this at once, neither removes the other's. */
int sl__bk_keyring_replace(struct sl_backup *b, const void *passphrase, size_t len, struct sl_err *err)
{
	char id[BK_NAME_HEX], name[SL_DRIVER_NAME_BYTES], copy[SL_DRIVER_NAME_BYTES];
	struct found old;
	int rc = find_keys(b, &old, err);
	if (rc == 0)
		rc = sl__bk_keyring_add(b, passphrase, len, id, err);
	if (rc == 0) {
		names_of(id, name, copy);
		rc = prove(b, name, passphrase, len, err);
	}
	if (rc == 0)
		rc = remove_all_old(b, &old, err);
	sl__free(&b->env, old.at);
	return rc;
}

void sl__bk_keyring_remove(struct sl_backup *b, const char *id)
{
	char first[SL_DRIVER_NAME_BYTES], copy[SL_DRIVER_NAME_BYTES];
	names_of(id, first, copy);
	(void)b->driver.ops->remove(b->driver.driver, first, NULL);
	(void)b->driver.ops->remove(b->driver.driver, copy, NULL);
}
