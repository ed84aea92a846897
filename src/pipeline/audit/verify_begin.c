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

static int load_head(struct sl__verify *v, struct sl_err *err)
{
	const char *path = v->opts.checkpoint;
	int fd = SL__IO(&v->env, open, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
	if (fd < 0)
		return sl_err_set_errno(err, -fd, "open %.180s", path);
	ssize_t n = sl__pread_full(&v->env, fd, v->head, sizeof(v->head), 0);
	(void)SL__IO(&v->env, close, fd);
	if (n < 0)
		return sl_err_set_errno(err, (int)-n, "read %.180s", path);
	v->head_len = (size_t)n;
	return 0;
}

/* ---- the catalog ---- */

/* The URL in fresh memory; NULL with 0: there is none to inspect. */
static int find_url(struct sl__verify *v, char **out, struct sl_err *err)
{
	struct sl_io_stat st;
	*out = NULL;
	if (v->opts.catalog != NULL && v->opts.catalog[0] == '\0')
		return 0;
	*out = v->opts.catalog != NULL ? sl__strdup(&v->env, v->opts.catalog)
				       : sl__asprintf(&v->env, "sqlite:%s/_catalog.db", v->dir);
	if (*out == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for a URL");
	int rc = v->opts.catalog == NULL ? SL__IO(&v->env, stat, *out + strlen("sqlite:"), &st) : 0;
	if (rc == 0)
		return 0;
	sl__free(&v->env, *out);
	*out = NULL;
	return rc == -ENOENT ? 0 : sl_err_set_errno(err, -rc, "look for the catalog in %.150s", v->dir);
}

static int note_delivered(const struct sl__cat_row *row, void *ctx, struct sl_err *err)
{
	struct sl__verify *v = ctx;
	struct sl__cat_dataset d;
	(void)err;
	sl__cat_read_dataset(row, &d);
	v->delivered = d.damaged ? 0 : d.d.delivered_files; /* damage is reported with the catalog */
	return 0;
}

static int open_catalog(struct sl__verify *v, struct sl_err *err)
{
	struct sl_catalog_opts opts = {SL_CATALOG_OPTS_INIT, .env = &v->env, .create = SL_OFF};
	struct sl__cat_call get = {
		.stmt = CAT_DATASET_GET, .values = {CAT_TEXT(v->dataset)}, .n = 1, .fn = note_delivered, .ctx = v};
	char *url;
	int rc = find_url(v, &url, err);
	if (rc != 0 || url == NULL)
		return rc;
	rc = sl_catalog_open(&v->catalog, url, &opts, err);
	sl__free(&v->env, url);
	return rc != 0 ? rc : sl__catalog_once(v->catalog, CAT_READ, &get, err);
}

/* ---- the folder ---- */

static int look_at_folder(struct sl__verify *v, struct sl_err *err)
{
	struct sl_io_stat st;
	char *folder = sl__asprintf(&v->env, "%s/%s", v->dir, v->dataset);
	if (folder == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for a path");
	int rc = SL__IO(&v->env, stat, folder, &st);
	v->has_folder = rc == 0 && S_ISDIR(st.mode);
	sl__free(&v->env, folder);
	if (rc != 0 && rc != -ENOENT && rc != -ENOTDIR)
		return sl_err_set_errno(err, -rc, "look at %.150s/%s", v->dir, v->dataset);
	return 0;
}

int sl__verify_begin(struct sl__verify *v, struct sl_err *err)
{
	if (v->opts.checkpoint != NULL)
		(void)load_head(v, &v->head_why);
	int rc = open_catalog(v, &v->catalog_why);
	if (rc == SL_ENOMEM)
		return sl_err_set(err, rc, "%s", v->catalog_why.msg);
	return look_at_folder(v, err);
}
