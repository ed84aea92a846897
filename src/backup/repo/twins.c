/* SPDX-License-Identifier: Apache-2.0 */
/* Objects that are there twice: loading, comparing and repairing them (T1, T2 in twins.h). */
#include "backup/repo/twins.h"

#include <stdio.h>

void sl__bk_copy_name(const char *name, char out[SL_DRIVER_NAME_BYTES])
{
	(void)snprintf(out, SL_DRIVER_NAME_BYTES, BK_COPIES "/%s", name);
}

void sl__bk_twin_fini(struct sl_backup *b, struct bk_twin *t)
{
	sl__free(&b->env, t->text);
	t->text = NULL;
}

void sl__bk_twins_fini(struct sl_backup *b, struct bk_twin t[2])
{
	sl__bk_twin_fini(b, &t[BK_FIRST]);
	sl__bk_twin_fini(b, &t[BK_COPY]);
}

bool sl__bk_twins_same(const struct bk_twin t[2])
{
	return t[0].rc == 0 && t[1].rc == 0 && t[0].len == t[1].len && memcmp(t[0].text, t[1].text, t[0].len) == 0;
}

int sl__bk_twin_load(struct sl_backup *b, const char *name, bk_twin_fn *is_right, struct bk_twin *out,
		     struct sl_err *err)
{
	struct bk_twin t = {.why = SL_ERR_INIT};
	(void)snprintf(t.name, sizeof(t.name), "%s", name);
	struct bk_opened o;
	t.rc = sl__bk_get_all(b, name, BK_TWIN_MAX, &o, &t.why);
	if (t.rc == 0) {
		t.text = o.memory;
		t.len = o.len;
		t.rc = is_right(b, o.text, o.len, &t.why);
	}
	if (t.rc == SL_ETOOBIG)
		t.rc = sl_err_set(&t.why, SL_ECORRUPT, "%s is damaged: more than %u bytes", name, BK_TWIN_MAX);
	if (t.rc != 0)
		sl__bk_twin_fini(b, &t);
	*out = t;
	if (t.rc == 0 || t.rc == SL_ENOENT || t.rc == SL_ECORRUPT || t.rc == SL_EUNSUPPORTED)
		return 0;
	if (err != NULL)
		*err = t.why;
	return t.rc;
}

int sl__bk_twins_load(struct sl_backup *b, const char *name, bk_twin_fn *is_right, struct bk_twin out[2],
		      struct sl_err *err)
{
	char copy[SL_DRIVER_NAME_BYTES];
	out[BK_COPY] = (struct bk_twin){.rc = SL_ENOENT};
	sl__bk_copy_name(name, copy);
	int failed = sl__bk_twin_load(b, name, is_right, &out[BK_FIRST], NULL), by = BK_FIRST;
	if (failed == 0 || failed == SL_EIO) {
		int rc = sl__bk_twin_load(b, copy, is_right, &out[BK_COPY], NULL);
		if (failed == 0 || (rc != 0 && rc != SL_EIO)) {
			failed = rc;
			by = BK_COPY;
		}
	}
	if (failed == 0 || (failed == SL_EIO && out[!by].rc == 0))
		return 0;
	if (err != NULL)
		*err = out[by].why;
	return failed;
}

int sl__bk_twin_repair(struct sl_backup *b, const struct bk_twin t[2], int right, struct sl_err *err)
{
	const sl_driver *d = &b->driver;
	struct sl_driver_stat st;
	const char *put = t[!right].name;
	int rc = d->ops->put(d->driver, put, t[right].text, t[right].len, SL_DRIVER_REPLACE, err);
	if (rc == 0)
		rc = d->ops->stat(d->driver, t[right].name, &st, err);
	return rc == SL_ENOENT ? sl__bk_remove(b, put, err) : rc;
}

int sl__bk_twins_care(struct sl_backup *b, enum sl_backup_fault fault, struct bk_twin t[2], struct bk_care *care,
		      struct sl_err *err)
{
	struct bk_twin *copy = &t[BK_COPY];
	if (t[BK_FIRST].rc == 0 && copy->rc == 0 && !sl__bk_twins_same(t))
		copy->rc = sl_err_set(&copy->why, SL_ECORRUPT, "%s differs from %s", copy->name, t[BK_FIRST].name);
	int right = t[BK_FIRST].rc == 0 ? BK_FIRST : BK_COPY, rc = 0;
	for (int i = 0; i < 2 && rc == 0; i++) {
		/* One that is missing in both places is reported once, for the first. */
		if (t[i].rc == 0 || (i == BK_COPY && t[i].rc == SL_ENOENT && right != BK_FIRST))
			continue;
		struct sl_err why = t[i].why;
		bool harmless = i == BK_COPY && t[i].rc == SL_ENOENT;
		if (t[i].rc == SL_ENOENT)
			(void)sl_err_set(&why, SL_ENOENT,
					 harmless ? "there is no second copy of it; repair makes one"
						  : "it is missing");
		const struct sl_backup_finding x = {
			.fault = fault, .harmless = harmless, .object = t[i].name, .reason = why};
		rc = care->fn(&x, err, care->ctx);
	}
	if (rc != 0 || !care->repair || t[right].rc != 0 || t[!right].rc == 0 || t[!right].rc == SL_EUNSUPPORTED)
		return rc;
	rc = sl__bk_twin_repair(b, t, right, err);
	care->repaired += rc == 0;
	return rc;
}
