/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/check/check.h"

static void item_fini(const struct sl_env *env, struct bk_finding *item)
{
	sl__free(env, item->object);
	sl__free(env, item->snapshot);
	sl__free(env, item->path);
}

static void drop(struct bk_findings *f)
{
	for (size_t i = 0; i < f->n; i++)
		item_fini(f->env, &f->items[i]);
	sl__free(f->env, f->items);
	f->items = NULL;
	f->n = f->cap = 0;
}

void sl__bk_findings_fini(struct bk_findings *f)
{
	if (f->env != NULL)
		drop(f);
	*f = (struct bk_findings){.env = f->env};
}

static bool copy_text(const struct sl_env *env, char **to, const char *text)
{
	*to = text != NULL ? sl__strdup(env, text) : NULL;
	return text == NULL || *to != NULL;
}

static int grow(struct bk_findings *f)
{
	if (f->n < f->cap)
		return 0;
	size_t cap = f->cap == 0 ? 16 : f->cap * 2;
	void *grown = sl__realloc(f->env, f->items, cap * sizeof(*f->items));
	if (grown == NULL)
		return SL_ENOMEM;
	f->items = grown;
	f->cap = cap;
	return 0;
}

/* A view that is loaded again meets the same damage again. */
static bool is_known(const struct bk_findings *f, enum sl_backup_fault fault, const char *object,
		     const struct sl_err *reason)
{
	for (size_t i = 0; i < f->n; i++) {
		const struct bk_finding *x = &f->items[i];
		if (x->fault == fault && x->path == NULL && x->snapshot == NULL && strcmp(x->object, object) == 0 &&
		    strcmp(x->reason.msg, reason->msg) == 0)
			return true;
	}
	return false;
}

int sl__bk_findings_add(struct bk_findings *f, enum sl_backup_fault fault, bool harmless, const char *object,
			const char *snapshot, const char *path, const struct sl_err *reason, struct sl_err *err)
{
	if (path == NULL && snapshot == NULL && is_known(f, fault, object, reason))
		return 0;
	f->faults += !harmless;
	f->harmless += harmless;
	if (path != NULL && f->n >= BK_FINDINGS_FILES) {
		f->unnamed++;
		return 0;
	}
	if (grow(f) != 0)
		return sl__no_memory(err, "what was found");
	struct bk_finding *item = &f->items[f->n];
	*item = (struct bk_finding){.fault = fault, .harmless = harmless, .reason = *reason};
	if (!copy_text(f->env, &item->object, object) || !copy_text(f->env, &item->snapshot, snapshot) ||
	    !copy_text(f->env, &item->path, path)) {
		item_fini(f->env, item);
		return sl__no_memory(err, "what was found");
	}
	f->n++;
	return 0;
}

int sl__bk_findings_tell(struct bk_findings *f, sl_backup_finding_fn *fn, void *ctx, struct sl_err *err)
{
	int rc = 0;
	for (size_t i = 0; i < f->n && fn != NULL && rc == 0; i++) {
		const struct bk_finding *item = &f->items[i];
		const struct sl_backup_finding finding = {.struct_size = sizeof(finding),
							  .fault = item->fault,
							  .harmless = item->harmless,
							  .object = item->object,
							  .snapshot = item->snapshot,
							  .path = item->path,
							  .reason = item->reason};
		rc = fn(&finding, ctx);
	}
	if (rc == 0 && f->unnamed > 0 && fn != NULL) {
		struct sl_backup_finding more = {
			.struct_size = sizeof(more), .fault = SL_BACKUP_FAULT_MISSING_BLOCK, .object = ""};
		(void)sl_err_set(&more.reason, SL_ECORRUPT, "%llu more files are affected",
				 (unsigned long long)f->unnamed);
		rc = fn(&more, ctx);
	}
	drop(f);
	f->unnamed = 0;
	return rc == 0 ? 0 : sl_err_set(err, rc, "ended by the caller");
}
