/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of a repository as bytes: read completely, sealed, listed by their names; sets of ids. */
#include <stdio.h>
#include <stdlib.h>

#include "backup/repo/repo.h"

#define FIRST_BYTES (64u << 10)

int sl__bk_get_all(struct sl_backup *b, const char *name, size_t max, struct bk_opened *out, struct sl_err *err)
{
	uint8_t *bytes = NULL;
	size_t cap = SL_MIN((size_t)FIRST_BYTES, max + 1), len = 0, got = 0;
	int rc = 0;
	/* Until a read returns less than there is room for; the room doubles. */
	for (;;) {
		uint8_t *bigger = sl__realloc(&b->env, bytes, cap + 1);
		if (bigger == NULL) {
			rc = sl_err_set(err, SL_ENOMEM, "read %s: out of memory", name);
			break;
		}
		bytes = bigger;
		rc = b->driver.ops->get(b->driver.driver, name, len, bytes + len, cap - len, &got, err);
		if (rc == 0 && got > cap - len)
			rc = sl_err_set(err, SL_EINTERNAL, "the driver read more of %s than requested", name);
		if (rc != 0)
			break;
		len += got;
		if (len > max)
			rc = sl_err_set(err, SL_ETOOBIG, "%s has more than %zu bytes", name, max);
		if (rc != 0 || len < cap)
			break;
		cap = SL_MIN(2 * cap, max + 1);
	}
	if (rc != 0) {
		sl__free(&b->env, bytes);
		return rc;
	}
	bytes[len] = 0;
	*out = (struct bk_opened){.memory = bytes, .text = (const char *)bytes, .len = len};
	return 0;
}

void sl__bk_pack_name(const struct bk_id *pack, char out[SL_DRIVER_NAME_BYTES])
{
	char hex[BK_HEX_BYTES];
	sl__bk_hex(pack->b, sizeof(pack->b), hex);
	(void)snprintf(out, SL_DRIVER_NAME_BYTES, "packs/%.2s/%s", hex, hex);
}

int sl__bk_new_name(const struct sl_env *env, char out[BK_NAME_HEX], struct sl_err *err)
{
	uint8_t bytes[BK_NAME_BYTES];
	int rc = env->rand->fill(bytes, sizeof(bytes), env->rand_ctx);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "draw a random name");
	sl__bk_hex(bytes, sizeof(bytes), out);
	return 0;
}

bool sl__bk_is_name(const char *text)
{
	uint8_t bytes[BK_NAME_BYTES];
	return strlen(text) == BK_NAME_HEX - 1 && strspn(text, "0123456789abcdef") == BK_NAME_HEX - 1 &&
	       sl__bk_unhex(text, bytes, sizeof(bytes));
}

int sl__bk_get_sealed(struct sl_backup *b, const struct bk_object *object, size_t max, struct bk_opened *out,
		      struct sl_err *err)
{
	const struct bk_seal as = {
		.keys = &b->keys, .kind = object->kind, .aad = object->id, .aad_len = strlen(object->id)};
	char name[SL_DRIVER_NAME_BYTES];
	struct bk_opened o;
	uint8_t *bytes;
	(void)snprintf(name, sizeof(name), "%s/%s", object->folder, object->id);
	int rc = sl__bk_get_all(b, name, max, &o, err);
	if (rc == SL_ETOOBIG)
		return sl_err_set(err, SL_ECORRUPT, "%s is damaged: more than %zu bytes", name, max);
	if (rc != 0)
		return rc;
	rc = sl__bk_unseal(&as, o.memory, &o.len, &bytes, err);
	if (rc != 0) {
		sl__free(&b->env, o.memory);
		return sl_err_wrap(err, rc, "%s", name);
	}
	o.text = (const char *)bytes;
	*out = o;
	return 0;
}

int sl__bk_put_sealed(struct sl_backup *b, const struct bk_object *object, struct bk_bytes bytes,
		      enum sl_driver_put how, struct sl_err *err)
{
	const struct bk_seal as = {&b->env, &b->keys, object->kind, object->id, strlen(object->id)};
	char name[SL_DRIVER_NAME_BYTES];
	size_t n = bytes.len + sl__bk_seal_bytes(&b->keys);
	uint8_t *sealed = sl__alloc(&b->env, n);
	(void)snprintf(name, sizeof(name), "%s/%s", object->folder, object->id);
	if (sealed == NULL)
		return sl_err_set(err, SL_ENOMEM, "put %s: out of memory", name);
	int rc = sl__bk_seal(&as, bytes.at, bytes.len, sealed, err);
	if (rc == 0)
		rc = b->driver.ops->put(b->driver.driver, name, sealed, n, how, err);
	sl__free(&b->env, sealed);
	return rc;
}

int sl__bk_remove(struct sl_backup *b, const char *name, struct sl_err *err)
{
	int rc = b->driver.ops->remove(b->driver.driver, name, err);
	return rc == SL_ENOENT ? 0 : rc;
}

/* ---- lists ---- */

struct name_list {
	const struct sl_env *env;
	struct bk_listed *all;
	size_t n, cap;
	bool no_memory;
};

static int add_listed_name(const char *name, const struct sl_driver_stat *stat, void *ctx)
{
	struct name_list *s = ctx;
	if (!sl__bk_is_name(name))
		return 0;
	struct bk_listed *grown = sl__grow(s->env, s->all, s->n, &s->cap, sizeof(*grown));
	if (grown == NULL) {
		s->no_memory = true;
		return 1;
	}
	s->all = grown;
	memcpy(s->all[s->n].id, name, BK_NAME_HEX);
	s->all[s->n++].stat = *stat;
	return 0;
}

static int compare_listed_names(const void *a, const void *b)
{
	const struct bk_listed *x = a, *y = b;
	return strcmp(x->id, y->id);
}

int sl__bk_list_names(struct sl_backup *b, const char *folder, struct bk_listed **out, size_t *n, struct sl_err *err)
{
	struct name_list s = {.env = &b->env};
	int rc = b->driver.ops->list(b->driver.driver, folder, add_listed_name, &s, err);
	if (s.no_memory)
		rc = sl_err_set(err, SL_ENOMEM, "list %s: out of memory", folder);
	if (rc != 0) {
		sl__free(&b->env, s.all);
		return rc;
	}
	if (s.n != 0)
		qsort(s.all, s.n, sizeof(*s.all), compare_listed_names);
	*out = s.all;
	*n = s.n;
	return 0;
}

/* ---- sets of ids ---- */

void sl__bk_ids_fini(const struct sl_env *env, struct bk_ids *s)
{
	sl__free(env, s->ids);
	*s = (struct bk_ids){.ids = NULL};
}

int sl__bk_ids_add(const struct sl_env *env, struct bk_ids *s, const struct bk_id *id)
{
	struct bk_id *grown = sl__grow(env, s->ids, s->n, &s->cap, sizeof(*grown));
	if (grown == NULL)
		return SL_ENOMEM;
	s->ids = grown;
	s->ids[s->n++] = *id;
	return 0;
}

void sl__bk_ids_sort(struct bk_ids *s)
{
	size_t kept = 0;
	if (s->n != 0)
		qsort(s->ids, s->n, sizeof(*s->ids), sl__bk_compare_ids);
	for (size_t i = 0; i < s->n; i++)
		if (kept == 0 || sl__bk_compare_ids(&s->ids[i], &s->ids[kept - 1]) != 0)
			s->ids[kept++] = s->ids[i];
	s->n = kept;
}

const struct bk_id *sl__bk_ids_find(const struct bk_ids *s, const struct bk_id *id)
{
	return s->n != 0 ? bsearch(id, s->ids, s->n, sizeof(*s->ids), sl__bk_compare_ids) : NULL;
}

bool sl__bk_ids_has(const struct bk_ids *s, const struct bk_id *id)
{
	return sl__bk_ids_find(s, id) != NULL;
}
