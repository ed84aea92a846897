/* SPDX-License-Identifier: Apache-2.0 */
/* condemned/<id>: packs that a prune wants to delete (F4, F5). */
#include <jansson.h>

#include "backup/repo/repo.h"
#include "base/buf.h"

#define FOLDER "condemned"
#define MARK_MAX (256u << 20) /* bytes: nearly four million packs */

static int damaged(struct sl_err *err, const char *id)
{
	return sl_err_set(err, SL_ECORRUPT, FOLDER "/%s is damaged: not a mark", id);
}

static int add_packs(const struct sl_env *env, json_t *packs, struct bk_mark *out, struct sl_err *err)
{
	size_t i;
	json_t *pack;
	json_array_foreach(packs, i, pack)
	{
		struct bk_id id;
		if (!json_is_string(pack) || !sl__bk_unhex(json_string_value(pack), id.b, sizeof(id.b)))
			return damaged(err, out->id);
		if (sl__bk_ids_add(env, &out->packs, &id) != 0)
			return sl_err_set(err, SL_ENOMEM, FOLDER "/%s: out of memory", out->id);
	}
	sl__bk_ids_sort(&out->packs);
	return 0;
}

static int parse(const struct sl_env *env, const struct bk_opened *o, struct bk_mark *out, struct sl_err *err)
{
	json_t *root = json_loadb(o->text, o->len, JSON_REJECT_DUPLICATES, NULL), *packs = NULL;
	int version = 0;
	int rc = json_unpack(root, "{s:i, s:o}", "version", &version, "packs", &packs) == 0 && version == BK_VERSION &&
				 json_is_array(packs)
			 ? add_packs(env, packs, out, err)
			 : damaged(err, out->id);
	json_decref(root);
	return rc;
}

static int load_one(struct sl_backup *b, const char *id, struct bk_mark *out, struct sl_err *err)
{
	struct bk_opened o;
	struct bk_mark mark = {.packs.n = 0};
	int rc = sl__bk_get_sealed(b, FOLDER, id, BK_KIND_MARK, MARK_MAX, &o, err);
	if (rc != 0)
		return rc;
	memcpy(mark.id, id, BK_NAME_HEX);
	rc = parse(&b->env, &o, &mark, err);
	sl__free(&b->env, o.memory);
	if (rc == 0)
		*out = mark;
	else
		sl__bk_ids_fini(&b->env, &mark.packs);
	return rc;
}

int sl__bk_marks_load(struct sl_backup *b, struct bk_marks *out, struct sl_err *err)
{
	struct bk_marks marks = {.n = 0};
	struct bk_listed *listed = NULL;
	size_t n = 0;
	int rc = sl__bk_list_names(b, FOLDER, &listed, &n, err);
	if (rc == 0 && (marks.marks = sl__calloc(&b->env, n, sizeof(*marks.marks))) == NULL)
		rc = sl_err_set(err, SL_ENOMEM, "load the marks: out of memory");
	for (size_t i = 0; rc == 0 && i < n; i++) {
		rc = load_one(b, listed[i].id, &marks.marks[marks.n], err);
		if (rc == 0)
			marks.n++;
		else if (rc == SL_ENOENT)
			rc = 0; /* its packs are gone (F4) */
	}
	sl__free(&b->env, listed);
	if (rc == 0)
		*out = marks;
	else
		sl__bk_marks_fini(&b->env, &marks);
	return rc;
}

static bool has_mark(const struct bk_marks *m, const char *id)
{
	for (size_t i = 0; i < m->n; i++)
		if (strcmp(m->marks[i].id, id) == 0)
			return true;
	return false;
}

static int add_mark(struct sl_backup *b, struct bk_marks *m, const char *id, struct sl_err *err)
{
	struct bk_mark *grown = sl__realloc(&b->env, m->marks, (m->n + 1) * sizeof(*grown));
	if (grown == NULL)
		return sl_err_set(err, SL_ENOMEM, "load the marks: out of memory");
	m->marks = grown;
	int rc = load_one(b, id, &m->marks[m->n], err);
	m->n += rc == 0;
	return rc;
}

int sl__bk_marks_newer(struct sl_backup *b, const struct bk_marks *known, struct bk_marks *newer, bool *vanished,
		       struct sl_err *err)
{
	struct bk_listed *listed = NULL;
	size_t n = 0;
	int rc = sl__bk_list_names(b, FOLDER, &listed, &n, err);
	*vanished = false;
	for (size_t i = 0; rc == 0 && i < n; i++) {
		if (has_mark(known, listed[i].id) || has_mark(newer, listed[i].id))
			continue;
		rc = add_mark(b, newer, listed[i].id, err);
		*vanished |= rc == SL_ENOENT;
		if (rc == SL_ENOENT)
			rc = 0;
	}
	sl__free(&b->env, listed);
	return rc;
}

void sl__bk_marks_fini(const struct sl_env *env, struct bk_marks *m)
{
	for (size_t i = 0; i < m->n; i++)
		sl__bk_ids_fini(env, &m->marks[i].packs);
	sl__free(env, m->marks);
	*m = (struct bk_marks){.n = 0};
}

bool sl__bk_marks_have(const struct bk_marks *m, const struct bk_id *pack)
{
	for (size_t i = 0; i < m->n; i++)
		if (sl__bk_ids_has(&m->marks[i].packs, pack))
			return true;
	return false;
}

int sl__bk_mark_put(struct sl_backup *b, const struct bk_ids *packs, char id[BK_NAME_HEX], struct sl_err *err)
{
	struct sl__buf buf;
	char name[BK_NAME_HEX], hex[BK_HEX_BYTES];
	int rc = sl__bk_new_name(&b->env, name, err);
	if (rc != 0)
		return rc;
	sl__buf_init(&buf, &b->env);
	sl__buf_printf(&buf, "{\"version\":%d,\"packs\":[", BK_VERSION);
	for (size_t i = 0; i < packs->n; i++) {
		sl__bk_hex(packs->ids[i].b, sizeof(packs->ids[i].b), hex);
		sl__buf_printf(&buf, "%s\"%s\"", i != 0 ? "," : "", hex);
	}
	sl__buf_str_append(&buf, "]}");
	rc = buf.failed != 0 ? sl_err_set(err, SL_ENOMEM, "mark packs: out of memory")
			     : sl__bk_put_sealed(b, FOLDER, name, BK_KIND_MARK, buf.data, buf.len, SL_DRIVER_NEW, err);
	sl__buf_fini(&buf);
	if (rc == 0)
		memcpy(id, name, BK_NAME_HEX);
	return rc;
}
