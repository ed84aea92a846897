/* SPDX-License-Identifier: Apache-2.0 */
/* Marks: the objects marks/<id>, each a list of packs that a prune wants to delete (F4, F5). */
#include <jansson.h>

#include "backup/repo/repo.h"
#include "base/buf.h"

#define FOLDER "marks"
#define MARK_MAX (256u << 20) /* bytes: nearly four million packs */

static int load_mark(struct sl_backup *b, const char *name, struct bk_mark *out, struct sl_err *err)
{
	const struct bk_object object = {FOLDER, name, BK_KIND_MARK};
	struct bk_opened o;
	struct bk_mark mark = {.packs.n = 0};
	json_t *packs = NULL, *pack;
	size_t i;
	int version = 0;
	int rc = sl__bk_get_sealed(b, &object, MARK_MAX, &o, err);
	if (rc != 0)
		return rc;
	memcpy(mark.id, name, BK_NAME_HEX);
	json_t *root = json_loadb(o.text, o.len, JSON_REJECT_DUPLICATES, NULL);
	bool good = json_unpack(root, "{s:i, s:o}", "version", &version, "packs", &packs) == 0 &&
		    version == BK_VERSION && json_is_array(packs);
	json_array_foreach(packs, i, pack)
	{
		struct bk_id id;
		good = good && json_is_string(pack) && sl__bk_unhex(json_string_value(pack), id.b, sizeof(id.b));
		if (good && sl__bk_ids_add(&b->env, &mark.packs, &id) != 0)
			rc = sl_err_set(err, SL_ENOMEM, FOLDER "/%s: out of memory", name);
		if (!good || rc != 0)
			break;
	}
	json_decref(root);
	sl__free(&b->env, o.memory);
	if (!good)
		rc = sl_err_set(err, SL_ECORRUPT, FOLDER "/%s is damaged: not a mark", name);
	if (rc != 0) {
		sl__bk_ids_fini(&b->env, &mark.packs);
		return rc;
	}
	sl__bk_ids_sort(&mark.packs);
	*out = mark;
	return 0;
}

int sl__bk_marks_load(struct sl_backup *b, struct bk_marks *out, struct sl_err *err)
{
	const struct bk_marks none = {.n = 0};
	struct bk_marks marks = {.n = 0};
	bool vanished; /* the packs of one that vanished are gone (F4) */
	int rc = sl__bk_marks_newer(b, &none, &marks, &vanished, err);
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
		struct bk_mark *grown = sl__realloc(&b->env, newer->marks, (newer->n + 1) * sizeof(*grown));
		if (grown == NULL) {
			rc = sl_err_set(err, SL_ENOMEM, "load the marks: out of memory");
			break;
		}
		newer->marks = grown;
		rc = load_mark(b, listed[i].id, &newer->marks[newer->n], err);
		newer->n += rc == 0;
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
	if (buf.failed != 0)
		rc = sl_err_set(err, SL_ENOMEM, "mark packs: out of memory");
	else
		rc = sl__bk_put_sealed(b, &(struct bk_object){FOLDER, name, BK_KIND_MARK},
				       (struct bk_bytes){buf.data, buf.len}, SL_DRIVER_NEW, err);
	sl__buf_fini(&buf);
	if (rc == 0)
		memcpy(id, name, BK_NAME_HEX);
	return rc;
}
