/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a repository by its keys, changing the passphrase, and the care for keys that are damaged or there only once:
 *
 *   keys/<id>   copies/keys/<id>
 *   right       missing, damaged or another   the copy is made of the first
 *   damaged     right                         the first is made of the copy
 *   missing     right, and keys/ has others   removed: a removal of the key was interrupted before the copy
 *   missing     right, and it has no other    the first is made of the copy
 *   damaged     missing or damaged            moved to damaged/
 */
#include "backup/repo/keyring.h"
#include "backup/helpers.h"

#include <sodium.h>
#include <stdio.h>

#include "backup/check/check.h"
#include "backup/check/repair.h"

#define ASIDE "damaged"
#define ROUNDS_MAX 100 /* of removing keys that another process puts back meanwhile */

static void key_names(const char *id, char first[SL_DRIVER_NAME_BYTES], char copy[SL_DRIVER_NAME_BYTES])
{
	(void)snprintf(first, SL_DRIVER_NAME_BYTES, BK_KEYS "/%s", id);
	sl__bk_copy_name(first, copy);
}

int sl__bk_keyring_add(struct sl_backup *b, const struct bk_passphrase *p, char id[BK_NAME_HEX], struct sl_err *err)
{
	const sl_driver *d = &b->driver;
	char fresh[BK_NAME_HEX], first[SL_DRIVER_NAME_BYTES], copy[SL_DRIVER_NAME_BYTES], *json = NULL;
	int rc = sl__bk_new_name(&b->env, fresh, err);
	if (rc == 0)
		rc = sl__bk_key_wrap(&b->env, &b->keys, p, &json, err);
	if (rc != 0)
		return rc;
	key_names(fresh, first, copy);
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
	const struct bk_passphrase *passphrase;
	bool whole;           /* keys/ has something that can be read */
	size_t seen;          /* keys, in any place */
	struct sl_err reason; /* why no key has opened yet; code 0: no reason */
};

/* Whether another key may open where this one did not. */
static bool may_try_next(int rc)
{
	return rc == SL_EKEY || rc == SL_ECORRUPT || rc == SL_ENOENT || rc == SL_EUNSUPPORTED || rc == SL_EIO;
}

/* Fill the keys by one object. */
static int open_object(struct opening *o, const char *name)
{
	struct bk_twin t;
	int rc = sl__bk_twin_load(o->b, name, sl__bk_is_key, &t, NULL);
	if (rc == 0 && t.rc == 0) {
		o->whole = true;
		rc = sl__bk_key_unwrap(&o->b->env, &o->b->keys, (struct bk_bytes){t.text, t.len}, o->passphrase,
				       &t.why);
		sl__bk_twin_fini(o->b, &t);
		if (rc != 0)
			rc = sl_err_wrap(&t.why, rc, "%s", name);
	} else {
		rc = t.rc;
	}
	/* What is reported when no key opens: a wrong passphrase rather than another key that is damaged. */
	if (rc != 0 && (o->reason.code == 0 || rc == SL_EKEY || !may_try_next(rc)))
		o->reason = t.why;
	return rc;
}

/* Open by a key of keys/: by its copy, where it cannot be read itself. copies: by those without a first. */
static int open_by_folder(struct opening *o, bool copies)
{
	struct bk_listed *listed = NULL;
	size_t n = 0;
	struct sl_err err = SL_ERR_INIT;
	int rc = sl__bk_list_names(o->b, copies ? BK_KEY_COPIES : BK_KEYS, &listed, &n, &err);
	if (rc != 0) {
		o->reason = err;
		return rc;
	}
	rc = SL_EKEY;
	for (size_t i = 0; i < n && may_try_next(rc); i++) {
		char first[SL_DRIVER_NAME_BYTES], copy[SL_DRIVER_NAME_BYTES];
		rc = SL_ECORRUPT;
		key_names(listed[i].id, first, copy);
		if (!copies) {
			rc = open_object(o, first);
			o->whole = o->whole || rc == SL_EUNSUPPORTED;
			if (rc != SL_ECORRUPT && rc != SL_EIO)
				continue;
		}
		int again = open_object(o, copy);
		if (again == 0)
			sl__log(&o->b->env, SL_LOG_WARN, "backup", "a key cannot be read; using its copy: run a repair",
				SL__F_STR("key", first));
		if (copies || !may_try_next(again) || again == SL_EKEY)
			rc = again;
	}
	sl__free(&o->b->env, listed);
	o->seen += n;
	return rc;
}

int sl__bk_keyring_open(struct sl_backup *b, const struct bk_passphrase *p, struct sl_err *err)
{
	struct opening o = {.b = b, .passphrase = p, .reason = SL_ERR_INIT};
	int rc = open_by_folder(&o, false);
	if (may_try_next(rc) && !o.whole)
		rc = open_by_folder(&o, true);
	if (rc == 0)
		return 0;
	if (o.seen == 0 && o.reason.code == 0)
		return sl_err_set(err, SL_ECORRUPT, "the repository has no key: put back a copy of " BK_KEYS "/");
	if (o.reason.code == SL_EKEY)
		return sl_err_set(err, SL_EKEY, "the passphrase does not open the repository");
	return sl__bk_result(o.reason.code, &o.reason, err);
}

/* ---- changing the passphrase ---- */

/* Objects that hold a key: in keys/, their copies, and those that a repair has moved to damaged/. */
struct found_keys {
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
	struct found_keys *f = ctx;
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

static int find_keys(struct sl_backup *b, struct found_keys *f, struct sl_err *err)
{
	static const char *const folders[] = {BK_KEYS, BK_KEY_COPIES, ASIDE};
	int rc = 0;
	*f = (struct found_keys){.env = &b->env};
	for (size_t i = 0; i < SL_COUNT(folders) && rc == 0; i++) {
		f->folder = folders[i];
		rc = b->driver.ops->list(b->driver.driver, f->folder, find_key, f, err);
	}
	return f->no_memory ? sl_err_set(err, SL_ENOMEM, "list the keys: out of memory") : rc;
}

/* Remove the keys that were there before, until no other process has put one back (T2). Those of keys/ come first (T1). */
static int remove_old_keys(struct sl_backup *b, const struct found_keys *old, struct sl_err *err)
{
	size_t left = 1;
	int rc = 0;
	for (int round = 0; round < ROUNDS_MAX && left > 0 && rc == 0; round++) {
		struct found_keys now;
		rc = find_keys(b, &now, err);
		left = 0;
		for (size_t i = 0; i < now.n && rc == 0; i++) {
			size_t k = 0;
			while (k < old->n && strcmp(old->at[k].id, now.at[i].id) != 0)
				k++;
			if (k == old->n)
				continue;
			rc = sl__bk_remove(b, now.at[i].name, err);
			left++;
		}
		sl__free(&b->env, now.at);
	}
	if (rc == 0 && left > 0)
		rc = sl_err_set(err, SL_EAGAIN, "another process puts keys back as fast as they are removed");
	if (rc == 0)
		return 0;
	return sl_err_wrap(err, rc, "the new passphrase opens the repository, but so may an old one: try again");
}

/* The others are listed before the new one is put: of two concurrent changes, neither removes the other's key. */
int sl__bk_keyring_replace(struct sl_backup *b, const struct bk_passphrase *p, struct sl_err *err)
{
	char id[BK_NAME_HEX], name[SL_DRIVER_NAME_BYTES], copy[SL_DRIVER_NAME_BYTES];
	struct found_keys old;
	int rc = find_keys(b, &old, err);
	if (rc == 0)
		rc = sl__bk_keyring_add(b, p, id, err);
	if (rc == 0) {
		/* The new key is read back from both places before the others are removed: a repository without a key is
		 * lost. */
		struct bk_twin t[2];
		struct bk_keys again = {.encrypted = true};
		memcpy(again.repository, b->keys.repository, sizeof(again.repository));
		key_names(id, name, copy);
		rc = sl__bk_twins_load(b, name, sl__bk_is_key, t, err);
		const struct bk_twin *wrong = t[BK_FIRST].rc != 0 ? &t[BK_FIRST] : &t[BK_COPY];
		if (rc == 0 && wrong->rc != 0)
			rc = sl__bk_result(wrong->rc, &wrong->why, err);
		if (rc == 0)
			rc = sl__bk_key_unwrap(&b->env, &again, (struct bk_bytes){t[BK_FIRST].text, t[BK_FIRST].len}, p,
					       err);
		if (rc == 0 &&
		    (sodium_memcmp(again.master, b->keys.master, sizeof(again.master)) != 0 || !sl__bk_twins_same(t)))
			rc = sl_err_set(err, SL_EINTERNAL, "%s was read back with another key in it", name);
		sl__bk_keys_wipe(&again);
		sl__bk_twins_fini(b, t);
	}
	if (rc == 0)
		rc = remove_old_keys(b, &old, err);
	sl__free(&b->env, old.at);
	return rc;
}

void sl__bk_keyring_remove(struct sl_backup *b, const char *id)
{
	char first[SL_DRIVER_NAME_BYTES], copy[SL_DRIVER_NAME_BYTES];
	key_names(id, first, copy);
	(void)b->driver.ops->remove(b->driver.driver, first, NULL);
	(void)b->driver.ops->remove(b->driver.driver, copy, NULL);
}

/* ---- care ---- */

struct ring {
	struct sl_backup *b;
	struct bk_care *care;
	struct bk_listed *keys, *copies;
	size_t n_keys, n_copies;
	bool whole; /* one is not only a copy, and can be read or repaired */
};

/* Move what is damaged in both places to damaged/. */
static int quarantine_key(struct ring *r, const struct bk_twin t[2], struct sl_err *err)
{
	int rc = 0;
	for (int i = 0; i < 2 && rc == 0 && r->care->repair; i++)
		if (t[i].rc == SL_ECORRUPT)
			rc = sl__bk_put_aside(r->b, t[i].name, err);
	return rc;
}

static int load_key_twins(struct ring *r, const char *id, struct bk_twin t[2], struct sl_err *err)
{
	char name[SL_DRIVER_NAME_BYTES];
	(void)snprintf(name, sizeof(name), BK_KEYS "/%s", id);
	return sl__bk_twins_load(r->b, name, sl__bk_is_key, t, err);
}

/* A copy without a key in keys/. */
static int care_for_copy(struct ring *r, const char *id, struct sl_err *err)
{
	struct bk_care *care = r->care;
	struct bk_twin t[2], *copy = &t[BK_COPY];
	struct sl_backup_finding x = {.fault = SL_BACKUP_FAULT_KEY, .object = copy->name};
	int rc = load_key_twins(r, id, t, err);
	if (rc == 0 && copy->rc == 0 && r->whole) { /* what a removal left */
		x.harmless = true;
		(void)sl_err_set(&x.reason, SL_ENOENT, "its key was removed; repair removes the copy");
		rc = care->fn(&x, err, care->ctx);
		if (rc == 0 && care->repair) {
			care->repaired++;
			rc = sl__bk_remove(r->b, copy->name, err);
		}
	} else if (rc == 0 && copy->rc == 0) {
		rc = sl__bk_twins_care(r->b, SL_BACKUP_FAULT_KEY, t, care, err);
	} else if (rc == 0 && copy->rc != SL_ENOENT) {
		x.reason = copy->why;
		rc = care->fn(&x, err, care->ctx);
		if (rc == 0)
			rc = quarantine_key(r, t, err);
	}
	sl__bk_twins_fini(r->b, t);
	return rc;
}

/* Copies are listed first: a key that is put meanwhile has its first before its copy (T1), so its copy does not look
 * like a leftover. */
int sl__bk_keyring_care(struct sl_backup *b, struct bk_care *care, struct sl_err *err)
{
	struct ring r = {.b = b, .care = care};
	int rc = sl__bk_list_names(b, BK_KEY_COPIES, &r.copies, &r.n_copies, err);
	if (rc == 0)
		rc = sl__bk_list_names(b, BK_KEYS, &r.keys, &r.n_keys, err);
	for (size_t i = 0; i < r.n_keys && rc == 0; i++) {
		struct bk_twin t[2];
		rc = load_key_twins(&r, r.keys[i].id, t, err);
		/* Without the first: removed since it was listed, and its copy is about to be. */
		bool is = rc == 0 && t[BK_FIRST].rc != SL_ENOENT;
		bool lost = is && t[BK_FIRST].rc == SL_ECORRUPT && t[BK_COPY].rc != 0;
		r.whole = r.whole || (is && !lost);
		if (is)
			rc = sl__bk_twins_care(b, SL_BACKUP_FAULT_KEY, t, care, err);
		if (rc == 0 && lost)
			rc = quarantine_key(&r, t, err);
		sl__bk_twins_fini(b, t);
	}
	for (size_t i = 0; i < r.n_copies && rc == 0; i++) {
		size_t k = 0;
		while (k < r.n_keys && strcmp(r.keys[k].id, r.copies[i].id) != 0)
			k++;
		if (k == r.n_keys)
			rc = care_for_copy(&r, r.copies[i].id, err);
	}
	sl__free(&b->env, r.keys);
	sl__free(&b->env, r.copies);
	return rc;
}
