/* SPDX-License-Identifier: Apache-2.0 */
/* The folders of a local repository: making them, and making what is in them durable (D2, D3). */
#include <errno.h>

#include "backup/driver/local.h"

static struct local_folder *find_known_folder(struct local *l, const char *name) SL_REQUIRES(l->mu)
{
	for (size_t i = 0; i < l->n_folders; i++)
		if (strcmp(l->folders[i].name, name) == 0)
			return &l->folders[i];
	return NULL;
}

/* NULL without memory. Valid until the next call. */
static struct local_folder *find_or_add_folder(struct local *l, const char *name) SL_REQUIRES(l->mu)
{
	struct local_folder *f = find_known_folder(l, name);
	if (f != NULL)
		return f;
	struct local_folder *bigger = sl__grow(&l->env, l->folders, l->n_folders, &l->cap_folders, sizeof(*bigger));
	if (bigger == NULL)
		return NULL;
	l->folders = bigger;
	f = &l->folders[l->n_folders++];
	*f = (struct local_folder){.changed = 0};
	memcpy(f->name, name, strlen(name) + 1);
	return f;
}

int sl__bk_local_mark_folder(struct local *l, const char *folder, struct sl_err *err)
{
	sl__lock(&l->mu);
	struct local_folder *f = find_or_add_folder(l, folder);
	if (f != NULL)
		f->changed++;
	sl__unlock(&l->mu);
	return f != NULL ? 0 : sl__no_memory(err, l->root);
}

/* A failed sync is never retried: what it should have covered may be gone from memory too. */
int sl__bk_local_sync_folder(struct local *l, const char *folder, struct sl_err *err)
{
	char path[LOCAL_PATH_BYTES];
	sl__bk_local_path(l, folder, path);
	int rc = sl__sync_dir(&l->env, path);
	if (rc == 0)
		return 0;
	sl__lock(&l->mu);
	l->broken = true;
	sl__unlock(&l->mu);
	return sl_err_set_errno(err, -rc, "repository %s: sync folder %s", l->root, folder[0] != '\0' ? folder : ".");
}

/* One folder after the other, from the top. Another process may have made one and not have synced it yet, so the folder
 * above it is synced, now or by the next sync, whichever process made it. */
int sl__bk_local_need_folder(struct local *l, const char *folder, enum local_need need, struct sl_err *err)
{
	bool durable = need == LOCAL_DURABLE;
	for (size_t n = 0; folder[0] != '\0' && n <= strlen(folder); n++) {
		char upto[SL_DRIVER_NAME_BYTES], path[LOCAL_PATH_BYTES], above[SL_DRIVER_NAME_BYTES];
		if (folder[n] != '/' && folder[n] != '\0')
			continue;
		memcpy(upto, folder, n);
		upto[n] = '\0';
		sl__lock(&l->mu);
		struct local_folder *f = find_known_folder(l, upto);
		bool known = f != NULL && f->made && (f->durable || !durable);
		sl__unlock(&l->mu);
		if (known)
			continue;
		sl__bk_local_path(l, upto, path);
		sl__bk_local_folder_of(upto, above);
		int rc = need != LOCAL_SEEN ? SL__IO(&l->env, mkdir, path, 0700) : 0;
		if (rc < 0 && rc != -EEXIST)
			return sl_err_set_errno(err, -rc, "repository %s: create folder %s", l->root, upto);
		rc = durable ? sl__bk_local_sync_folder(l, above, err) : sl__bk_local_mark_folder(l, above, err);
		if (rc != 0)
			return rc;
		sl__lock(&l->mu);
		f = find_or_add_folder(l, upto);
		if (f != NULL) {
			f->made = true;
			f->durable |= durable;
		}
		sl__unlock(&l->mu);
		if (f == NULL)
			return sl__no_memory(err, l->root);
	}
	return 0;
}

void sl__bk_local_forget_folders(struct local *l)
{
	sl__lock(&l->mu);
	for (size_t i = 0; i < l->n_folders; i++)
		l->folders[i].made = l->folders[i].durable = false;
	sl__unlock(&l->mu);
}

/* Changes count as covered only after the sync: of two concurrent callers neither may rely on the other's. */
int sl__bk_local_sync(void *driver, struct sl_err *err)
{
	struct local *l = driver;
	int rc = sl__bk_local_check_change(l, "sync", err);
	for (size_t at = 0; rc == 0; at++) {
		struct local_folder was;
		/* The next folder with changes that no sync has covered. */
		sl__lock(&l->mu);
		while (at < l->n_folders && l->folders[at].changed <= l->folders[at].synced)
			at++;
		bool found = at < l->n_folders;
		if (found)
			was = l->folders[at];
		sl__unlock(&l->mu);
		if (!found)
			return 0;
		rc = sl__bk_local_sync_folder(l, was.name, err);
		if (rc != 0)
			return rc;
		sl__lock(&l->mu);
		struct local_folder *f = find_known_folder(l, was.name);
		if (f != NULL)
			f->synced = SL_MAX(f->synced, was.changed);
		sl__unlock(&l->mu);
	}
	return rc;
}
