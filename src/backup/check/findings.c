/* SPDX-License-Identifier: Apache-2.0 */
/* The findings of check and repair: collected first, reported at the end (check.h). */
#include "backup/check/check.h"
#include "backup/grow.h"

static void drop_items(struct bk_findings *f)
{
	for (size_t i = 0; i < f->n; i++)
		sl__free(f->env, f->items[i].text);
	sl__free(f->env, f->items);
	f->items = NULL;
	f->n = f->cap = 0;
}

void sl__bk_findings_fini(struct bk_findings *f)
{
	if (f->env != NULL)
		drop_items(f);
	*f = (struct bk_findings){.env = f->env};
}

/* Copy a string to *at and advance it. */
static const char *copy_text(char **at, const char *text)
{
	if (text == NULL)
		return NULL;
	char *copy = *at;
	size_t size = strlen(text) + 1;
	memcpy(copy, text, size);
	*at += size;
	return copy;
}

/* A view that is loaded again finds the same damage again. */
static bool is_known(const struct bk_findings *f, const struct sl_backup_finding *x)
{
	for (size_t i = 0; i < f->n; i++) {
		const struct sl_backup_finding *k = &f->items[i].x;
		if (k->fault == x->fault && k->path == NULL && k->snapshot == NULL &&
		    strcmp(k->object, x->object) == 0 && strcmp(k->reason.msg, x->reason.msg) == 0)
			return true;
	}
	return false;
}

int sl__bk_findings_add(struct bk_findings *f, const struct sl_backup_finding *x, struct sl_err *err)
{
	if (x->path == NULL && x->snapshot == NULL && is_known(f, x))
		return 0;
	f->faults += !x->harmless;
	f->harmless += x->harmless != 0;
	if (x->path != NULL && f->n >= BK_FINDINGS_FILES) {
		f->unnamed++;
		return 0;
	}
	struct bk_finding *grown = sl__bk_grow(f->env, f->items, f->n, &f->cap, sizeof(*grown));
	if (grown == NULL)
		return sl__no_memory(err, "findings");
	f->items = grown;
	size_t size = strlen(x->object) + 1 + (x->snapshot != NULL ? strlen(x->snapshot) + 1 : 0) +
		      (x->path != NULL ? strlen(x->path) + 1 : 0);
	char *text = sl__alloc(f->env, size), *at = text;
	if (text == NULL)
		return sl__no_memory(err, "findings");
	struct bk_finding *item = &f->items[f->n++];
	*item = (struct bk_finding){.x = *x, .text = text};
	item->x.struct_size = sizeof(item->x);
	item->x.object = copy_text(&at, x->object);
	item->x.snapshot = copy_text(&at, x->snapshot);
	item->x.path = copy_text(&at, x->path);
	return 0;
}

int sl__bk_findings_damaged(enum sl_backup_fault fault, bool harmless, const char *object, const struct sl_err *why,
			    void *ctx, struct sl_err *err)
{
	struct bk_findings *f = ctx;
	const struct sl_backup_finding x = {
		.fault = fault, .harmless = harmless, .object = object, .snapshot = f->snapshot, .reason = *why};
	return sl__bk_findings_add(f, &x, err);
}

int sl__bk_findings_report(struct bk_findings *f, sl_backup_finding_fn *fn, void *ctx, struct sl_err *err)
{
	int rc = 0;
	for (size_t i = 0; i < f->n && fn != NULL && rc == 0; i++)
		rc = fn(&f->items[i].x, ctx);
	if (rc == 0 && f->unnamed > 0 && fn != NULL) {
		struct sl_backup_finding more = {
			.struct_size = sizeof(more), .fault = SL_BACKUP_FAULT_MISSING_BLOCK, .object = ""};
		(void)sl_err_set(&more.reason, SL_ECORRUPT, "%llu more files are affected",
				 (unsigned long long)f->unnamed);
		rc = fn(&more, ctx);
	}
	drop_items(f);
	f->unnamed = 0;
	return rc == 0 ? 0 : sl_err_set(err, rc, "ended by the caller");
}
