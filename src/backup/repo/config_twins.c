/* SPDX-License-Identifier: Apache-2.0 */
/* The config in the repository: as it is loaded, made, and cared for, in both of its places (backup/repo/twins.h). */
#include "backup/repo/config.h"
#include "backup/repo/twins.h"

static int is_config(SL_UNUSED struct sl_backup *b, const char *text, size_t len, struct sl_err *err)
{
	struct bk_config config;
	return sl__bk_config_parse(&config, text, len, err);
}

/* None of the two can be read. */
static int lost(const struct bk_twin t[2], struct sl_err *err)
{
	if (t[BK_FIRST].rc == SL_ENOENT && t[BK_COPY].rc == SL_ENOENT)
		return sl_err_set(err, SL_ENOENT, "there is no repository: make one with init");
	const struct bk_twin *told = t[BK_FIRST].rc != SL_ENOENT ? &t[BK_FIRST] : &t[BK_COPY];
	if (err != NULL)
		*err = told->why;
	return told->rc;
}

int sl__bk_config_load(struct sl_backup *b, struct bk_config *out, struct sl_err *err)
{
	struct bk_twin t[2] = {{.text = NULL}, {.text = NULL}};
	char copy[SL_DRIVER_NAME_BYTES];
	int rc = sl__bk_twin_load(b, BK_CONFIG, is_config, &t[BK_FIRST], err), right = BK_FIRST;
	sl__bk_copy_name(BK_CONFIG, copy);
	if (t[BK_FIRST].rc != 0 && t[BK_FIRST].rc != SL_EUNSUPPORTED && (rc == 0 || rc == SL_EIO)) {
		struct sl_err why = SL_ERR_INIT;
		right = BK_COPY;
		int second = sl__bk_twin_load(b, copy, is_config, &t[BK_COPY], &why);
		rc = second == 0 && t[BK_COPY].rc == 0 ? 0 : rc;
	}
	if (rc == 0 && t[right].rc == 0)
		rc = sl__bk_config_parse(out, (const char *)t[right].text, t[right].len, err);
	else if (rc == 0)
		rc = lost(t, err);
	if (rc == 0 && right == BK_COPY)
		sl__log(&b->env, SL_LOG_WARN, "backup", "the config cannot be read, its copy is used: run a repair",
			SL__F_STR("reason", t[BK_FIRST].why.msg));
	sl__bk_twins_fini(b, t);
	return rc;
}

int sl__bk_config_put(struct sl_backup *b, const struct bk_config *config, struct sl_err *err)
{
	const sl_driver *d = &b->driver;
	char *text, copy[SL_DRIVER_NAME_BYTES];
	int rc = sl__bk_config_text(&b->env, config, &text, err);
	if (rc != 0)
		return rc;
	sl__bk_copy_name(BK_CONFIG, copy);
	rc = d->ops->put(d->driver, BK_CONFIG, text, strlen(text), SL_DRIVER_NEW, err);
	if (rc == SL_EEXIST)
		rc = sl_err_set(err, SL_EEXIST, "there is a repository already");
	else if (rc == 0) {
		rc = d->ops->put(d->driver, copy, text, strlen(text), SL_DRIVER_REPLACE, err);
		if (rc != 0)
			rc = sl_err_wrap(err, rc, "the repository is made, but its config has no copy: run a repair");
	}
	sl__free(&b->env, text);
	return rc;
}

int sl__bk_config_care(struct sl_backup *b, struct bk_care *care, struct sl_err *err)
{
	struct bk_twin t[2];
	int rc = sl__bk_twins_load(b, BK_CONFIG, is_config, t, err);
	if (rc == 0)
		rc = sl__bk_twins_care(b, SL_BACKUP_FAULT_CONFIG, t, care, err);
	sl__bk_twins_fini(b, t);
	return rc;
}
