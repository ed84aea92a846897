/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is read before the event files, because a run writes it after them: the head that was kept, and how many events
 * the catalog says are in the files. An export that continues meanwhile can only add to what they say.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "pipeline/audit/catalog.h"
#include "pipeline/audit/verify.h"

/* ---- the head ---- */

/* ---- the catalog ---- */

static int note_delivered(const struct sl__cat_row *row, void *ctx, struct sl_err *err)
{
	struct sl__verify *v = ctx;
	struct sl__cat_dataset d;
	(void)err;
	sl__cat_read_dataset(row, &d);
	v->delivered = d.damaged ? 0 : d.d.delivered_files; /* damage is reported with the catalog */
	return 0;
}

/* The catalog, and how many events it says are in the files. v->catalog stays NULL if there is no catalog. */
static int open_catalog(struct sl__verify *v, struct sl_err *err)
{
	struct sl_catalog_opts opts = {SL_CATALOG_OPTS_INIT, .env = &v->env, .create = SL_OFF};
	struct sl__cat_call get = {
		.stmt = CAT_DATASET_GET, .values = {CAT_TEXT(v->dataset)}, .n = 1, .fn = note_delivered, .ctx = v};
	struct sl_io_stat st;
	const char *given = v->opts.catalog;
	if (given != NULL && given[0] == '\0')
		return 0;
	char *url = given != NULL ? sl__strdup(&v->env, given) : sl__asprintf(&v->env, "sqlite:%s/_catalog.db", v->dir);
	if (url == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for a URL");
	int found = given == NULL ? SL__IO(&v->env, stat, url + strlen("sqlite:"), &st) : 0;
	int rc = 0;
	if (found == 0)
		rc = sl_catalog_open(&v->catalog, url, &opts, err);
	else if (found != -ENOENT)
		rc = sl_err_set_errno(err, -found, "look for the catalog in %.150s", v->dir);
	sl__free(&v->env, url);
	return rc != 0 || v->catalog == NULL ? rc : sl__catalog_once(v->catalog, CAT_READ, &get, err);
}

/* ---- the folder ---- */

int sl__verify_begin(struct sl__verify *v, struct sl_err *err)
{
	/* The head. What is wrong with it is reported later. */
	const char *path = v->opts.checkpoint;
	if (path != NULL) {
		int fd = SL__IO(&v->env, open, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
		ssize_t n = fd >= 0 ? sl__pread_full(&v->env, fd, v->head, sizeof(v->head), 0) : 0;
		if (fd < 0)
			(void)sl_err_set_errno(&v->head_why, -fd, "open %.180s", path);
		else if (n < 0)
			(void)sl_err_set_errno(&v->head_why, (int)-n, "read %.180s", path);
		else
			v->head_len = (size_t)n;
		sl__close_fd(&v->env, &fd);
	}
	int rc = open_catalog(v, &v->catalog_why);
	if (rc == SL_ENOMEM)
		return sl_err_set(err, rc, "%s", v->catalog_why.msg);

	/* The dataset's folder. */
	struct sl_io_stat st;
	char *folder = sl__asprintf(&v->env, "%s/%s", v->dir, v->dataset);
	if (folder == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for a path");
	rc = SL__IO(&v->env, stat, folder, &st);
	v->has_folder = rc == 0 && S_ISDIR(st.mode);
	sl__free(&v->env, folder);
	if (rc != 0 && rc != -ENOENT && rc != -ENOTDIR)
		return sl_err_set_errno(err, -rc, "stat %.150s/%s", v->dir, v->dataset);
	return 0;
}
