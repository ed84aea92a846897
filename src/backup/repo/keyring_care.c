/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which keys are damaged, or there only once; and what becomes of them:
 *
 *   keys/<id>   copies/keys/<id>
 *   right       missing, damaged or another   the copy is made of the first
 *   damaged     right                         the first is made of the copy
 *   missing     right, and keys/ has others   removed: somebody removed the key, and was cut off before the copy
 *   missing     right, and it has no other    the first is made of the copy
 *   damaged     missing or damaged            put aside
 */
#include "backup/check/check.h"
#include "backup/check/repair.h"
#include "backup/repo/keyring.h"

#include <stdio.h>

struct ring {
	struct sl_backup *b;
	struct bk_care *care;
	struct bk_listed *keys, *copies;
	size_t keys_n, copies_n;
	bool whole; /* there is one that is not only a copy, and can be read or mended */
};

static bool has_key(const struct ring *r, const char *id)
{
	for (size_t i = 0; i < r->keys_n; i++)
		if (strcmp(r->keys[i].id, id) == 0)
			return true;
	return false;
}

static int put_aside(struct ring *r, const struct bk_twin t[2], struct sl_err *err)
{
	int rc = 0;
	for (int i = 0; i < 2 && rc == 0 && r->care->mend; i++)
		if (t[i].rc == SL_ECORRUPT)
			rc = sl__bk_put_aside(r->b, t[i].name, err);
	return rc;
}

static int load(struct ring *r, const char *id, struct bk_twin t[2], struct sl_err *err)
{
	char name[SL_DRIVER_NAME_BYTES];
	(void)snprintf(name, sizeof(name), BK_KEYS "/%s", id);
	return sl__bk_twins_load(r->b, name, sl__bk_is_key, t, err);
}

static int care_for_key(struct ring *r, const char *id, struct sl_err *err)
{
	struct bk_twin t[2];
	int rc = load(r, id, t, err);
	if (rc == 0 && t[BK_FIRST].rc == SL_ENOENT) { /* removed since it was listed, and its copy is about to be */
		sl__bk_twins_fini(r->b, t);
		return 0;
	}
	bool lost = rc == 0 && t[BK_FIRST].rc == SL_ECORRUPT && t[BK_COPY].rc != 0;
	r->whole = r->whole || (rc == 0 && !lost);
	if (rc == 0)
		rc = sl__bk_twins_care(r->b, SL_BACKUP_FAULT_KEY, t, r->care, err);
	if (rc == 0 && lost)
		rc = put_aside(r, t, err);
	sl__bk_twins_fini(r->b, t);
	return rc;
}

static int remove_rest(struct ring *r, const struct bk_twin *copy, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	(void)sl_err_set(&why, SL_ENOENT, "its key is not there any more; repair removes it");
	int rc = r->care->fn(SL_BACKUP_FAULT_KEY, true, copy->name, &why, r->care->ctx, err);
	if (rc != 0 || !r->care->mend)
		return rc;
	r->care->mended++;
	return sl__bk_twin_remove(r->b, copy->name, err);
}

/* A copy without a key in keys/. */
static int care_for_copy(struct ring *r, const char *id, struct sl_err *err)
{
	struct bk_twin t[2];
	int rc = load(r, id, t, err);
	if (rc == 0 && t[BK_COPY].rc == 0 && r->whole)
		rc = remove_rest(r, &t[BK_COPY], err);
	else if (rc == 0 && t[BK_COPY].rc == 0)
		rc = sl__bk_twins_care(r->b, SL_BACKUP_FAULT_KEY, t, r->care, err);
	else if (rc == 0 && t[BK_COPY].rc != SL_ENOENT) {
		rc = r->care->fn(SL_BACKUP_FAULT_KEY, false, t[BK_COPY].name, &t[BK_COPY].why, r->care->ctx, err);
		if (rc == 0)
			rc = put_aside(r, t, err);
	}
	sl__bk_twins_fini(r->b, t);
	return rc;
}

/* Copies are listed first: a key that is put meanwhile has its first before its copy (T1), so its copy does not seem
 * to be a rest. */
int sl__bk_keyring_care(struct sl_backup *b, struct bk_care *care, struct sl_err *err)
{
	struct ring r = {.b = b, .care = care};
	int rc = sl__bk_list_names(b, BK_KEY_COPIES, &r.copies, &r.copies_n, err);
	if (rc == 0)
		rc = sl__bk_list_names(b, BK_KEYS, &r.keys, &r.keys_n, err);
	for (size_t i = 0; i < r.keys_n && rc == 0; i++)
		rc = care_for_key(&r, r.keys[i].id, err);
	for (size_t i = 0; i < r.copies_n && rc == 0; i++)
		if (!has_key(&r, r.copies[i].id))
			rc = care_for_copy(&r, r.copies[i].id, err);
	sl__free(&b->env, r.keys);
	sl__free(&b->env, r.copies);
	return rc;
}
