/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "backup/check/check.h"
#include "backup/repo/config.h"
#include "backup/repo/keyring.h"

#define MARKS "condemned"
#define MARK_MAX (256u << 20)

static int look_at_mark(struct sl_backup *b, const char *id, struct sl_err *why)
{
	struct bk_opened o = {.memory = NULL};
	int rc = sl__bk_get_sealed(b, &(struct bk_object){MARKS, id, BK_KIND_MARK}, MARK_MAX, &o, why);
	if (rc == 0)
		sl__free(&b->env, o.memory);
	return rc;
}

int sl__bk_check_marks(struct sl_backup *b, bk_damaged_fn *fn, void *ctx, struct sl_err *err)
{
	struct bk_listed *listed = NULL;
	size_t n = 0;
	int rc = sl__bk_list_names(b, MARKS, &listed, &n, err);
	for (size_t i = 0; i < n && rc == 0; i++) {
		char name[SL_DRIVER_NAME_BYTES];
		struct sl_err why = SL_ERR_INIT;
		(void)snprintf(name, sizeof(name), MARKS "/%s", listed[i].id);
		int seen = look_at_mark(b, listed[i].id, &why);
		if (seen == SL_ECORRUPT || seen == SL_ETOOBIG)
			rc = fn(SL_BACKUP_FAULT_MARK, false, name, &why, ctx, err);
		else if (seen != 0 && seen != SL_ENOENT) {
			rc = seen;
			if (err != NULL)
				*err = why;
		}
	}
	sl__free(&b->env, listed);
	return rc;
}

/* ---- strays ---- */

struct straying {
	const char *folder;
	void (*stray)(const char *name, void *ctx);
	void *ctx;
};

static int look_at_name(const char *name, SL_UNUSED const struct sl_driver_stat *stat, void *ctx)
{
	const struct straying *s = ctx;
	struct bk_id id;
	char whole[SL_DRIVER_NAME_BYTES];
	bool fits = strcmp(s->folder, "index") == 0     ? sl__bk_unhex(name, id.b, sizeof(id.b))
		    : strcmp(s->folder, BK_COPIES) == 0 ? strcmp(name, BK_CONFIG) == 0
							: sl__bk_is_name(name);
	(void)snprintf(whole, sizeof(whole), "%s/%s", s->folder, name);
	if (!fits)
		s->stray(whole, s->ctx);
	return 0;
}

int sl__bk_check_strays(struct sl_backup *b, void (*stray)(const char *name, void *ctx), void *ctx, struct sl_err *err)
{
	static const char *const folders[] = {MARKS,   BK_COPIES, BK_KEY_COPIES, BK_SNAPSHOT_COPIES,
					      "index", BK_KEYS,   "sessions",    "snapshots"};
	int rc = 0;
	for (size_t i = 0; i < SL_COUNT(folders) && rc == 0; i++) {
		struct straying s = {.folder = folders[i], .stray = stray, .ctx = ctx};
		rc = b->driver.ops->list(b->driver.driver, folders[i], look_at_name, &s, err);
	}
	return rc;
}
