/* SPDX-License-Identifier: Apache-2.0 */
/* The folders of a local repository: making them, and making what is in them durable (D2, D3). */
#include <errno.h>

#include "backup/driver/local.h"

static struct local_folder *find(struct local *l, const char *name) SL_REQUIRES(l->mu)
{
	for (size_t i = 0; i < l->folders_n; i++)
		if (strcmp(l->folders[i].name, name) == 0)
			return &l->folders[i];
	return NULL;
}

/* NULL without memory. Valid until the next call. */
static struct local_folder *find_or_add(struct local *l, const char *name) SL_REQUIRES(l->mu)
{
	struct local_folder *f = find(l, name);
	if (f != NULL)
		return f;
	if (l->folders_n == l->folders_cap) {
		size_t cap = l->folders_cap != 0 ? 2 * l->folders_cap : 16;
		struct local_folder *bigger = sl__realloc(&l->env, l->folders, cap * sizeof(*bigger));
		if (bigger == NULL)
			return NULL;
		l->folders = bigger;
		l->folders_cap = cap;
	}
	f = &l->folders[l->folders_n++];
	*f = (struct local_folder){.changed = 0};
	memcpy(f->name, name, strlen(name) + 1);
	return f;
}

static int no_memory(const struct local *l, struct sl_err *err)
{
	return sl_err_set(err, SL_ENOMEM, "repository %s: out of memory", l->root);
}

int sl__bk_local_mark_folder(struct local *l, const char *folder, struct sl_err *err)
{
	sl__lock(&l->mu);
	struct local_folder *f = find_or_add(l, folder);
	if (f != NULL)
		f->changed++;
	sl__unlock(&l->mu);
	return f != NULL ? 0 : no_memory(l, err);
}

/* A failed sync is never tried again: what it should have covered may be gone from memory too. */
static int break_handle(struct local *l, const char *folder, int rc, struct sl_err *err)
{
	sl__lock(&l->mu);
	l->broken = true;
	sl__unlock(&l->mu);
	return sl_err_set_errno(err, -rc, "repository %s: sync folder %s", l->root, folder[0] != '\0' ? folder : ".");
}

int sl__bk_local_sync_folder(struct local *l, const char *folder, struct sl_err *err)
{
	char path[LOCAL_PATH_BYTES];
	sl__bk_local_path(l, folder, path);
	int rc = sl__sync_dir(&l->env, path);
	return rc == 0 ? 0 : break_handle(l, folder, rc, err);
}

/* What is known of a folder; false: nothing. */
static bool look_up(struct local *l, const char *folder, struct local_folder *out)
{
	sl__lock(&l->mu);
	const struct local_folder *f = find(l, folder);
	if (f != NULL)
		*out = *f;
	sl__unlock(&l->mu);
	return f != NULL;
}

static int note_made(struct local *l, const char *folder, bool durable, struct sl_err *err)
{
	sl__lock(&l->mu);
	struct local_folder *f = find_or_add(l, folder);
	if (f != NULL) {
		f->made = true;
		f->durable |= durable;
	}
	sl__unlock(&l->mu);
	return f != NULL ? 0 : no_memory(l, err);
}

/* One folder, in one that is there. Another process may have made it and not have come to its sync yet, so the one
 * above is synced, now or by the next sync, whoever made it. */
static int need_one(struct local *l, const char *folder, enum local_need need, struct sl_err *err)
{
	struct local_folder known = {.made = false};
	bool durable = need == LOCAL_DURABLE;
	if (look_up(l, folder, &known) && known.made && (known.durable || !durable))
		return 0;
	char path[LOCAL_PATH_BYTES], above[SL_DRIVER_NAME_BYTES];
	sl__bk_local_path(l, folder, path);
	sl__bk_local_folder_of(folder, above);
	int rc = need != LOCAL_SEEN ? SL__IO(&l->env, mkdir, path, 0700) : 0;
	if (rc < 0 && rc != -EEXIST)
		return sl_err_set_errno(err, -rc, "repository %s: make folder %s", l->root, folder);
	rc = durable ? sl__bk_local_sync_folder(l, above, err) : sl__bk_local_mark_folder(l, above, err);
	return rc == 0 ? note_made(l, folder, durable, err) : rc;
}

int sl__bk_local_need_folder(struct local *l, const char *folder, enum local_need need, struct sl_err *err)
{
	char upto[SL_DRIVER_NAME_BYTES];
	int rc = 0;
	for (size_t n = 0; rc == 0 && folder[0] != '\0' && n <= strlen(folder); n++) {
		if (folder[n] != '/' && folder[n] != '\0')
			continue;
		memcpy(upto, folder, n);
		upto[n] = '\0';
		rc = need_one(l, upto, need, err);
	}
	return rc;
}

void sl__bk_local_forget_folders(struct local *l)
{
	sl__lock(&l->mu);
	for (size_t i = 0; i < l->folders_n; i++)
		l->folders[i].made = l->folders[i].durable = false;
	sl__unlock(&l->mu);
}

/* The first folder from *at on with changes that no sync has covered; false: none. */
static bool next_changed(struct local *l, size_t *at, struct local_folder *out)
{
	bool found = false;
	sl__lock(&l->mu);
	for (; !found && *at < l->folders_n; (*at)++) {
		const struct local_folder *f = &l->folders[*at];
		found = f->changed > f->synced;
		if (found)
			*out = *f;
	}
	sl__unlock(&l->mu);
	return found;
}

static void note_synced(struct local *l, const struct local_folder *was)
{
	sl__lock(&l->mu);
	struct local_folder *f = find(l, was->name);
	if (f != NULL)
		f->synced = SL_MAX(f->synced, was->changed);
	sl__unlock(&l->mu);
}

/* Changes are noted as covered only behind the sync: one of two callers at once may not trust in the other's. */
int sl__bk_local_sync(void *driver, struct sl_err *err)
{
	struct local *l = driver;
	int rc = sl__bk_local_check_change(l, "sync", err);
	struct local_folder f;
	for (size_t at = 0; rc == 0 && next_changed(l, &at, &f);) {
		rc = sl__bk_local_sync_folder(l, f.name, err);
		if (rc == 0)
			note_synced(l, &f);
	}
	return rc;
}
