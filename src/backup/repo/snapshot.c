/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshots/<id>, and once more copies/snapshots/<id>: sealed JSON, its id bound in.
 *
 *   {"version":1,"time_ms":…,"took_ms":…,"host":…,"parent":"<32 hex>" or "","paths":[…],"tags":[…],"entries":…,
 *    "files":…,"bytes":…,"new_bytes":…,"physical_bytes":…,"problems":…,"library":…,"manifest":[["<64 hex>",length],…]}
 *
 * A text that is not UTF-8 (a path may be any bytes) is {"hex":"…"} in place of the string.
 */
#include <jansson.h>
#include <stdio.h>

#include "backup/helpers.h"
#include "backup/repo/twins.h"
#include "base/buf.h"
#include "base/utf8.h"
#include "format/row.h"

#define FOLDER "snapshots"

/* ---- to JSON ---- */

static void put_snapshot_text(struct sl__buf *buf, const char *text)
{
	size_t n = strlen(text);
	if (sl__utf8_valid(text)) {
		sl__put_json_string(buf, text, n);
		return;
	}
	sl__buf_str_append(buf, "{\"hex\":\"");
	for (size_t i = 0; i < n; i++)
		sl__buf_printf(buf, "%02x", (unsigned)(unsigned char)text[i]);
	sl__buf_str_append(buf, "\"}");
}

static void put_texts(struct sl__buf *buf, const char *name, const char *const *texts, size_t n)
{
	sl__buf_printf(buf, ",\"%s\":[", name);
	for (size_t i = 0; i < n; i++) {
		if (i != 0)
			sl__buf_str_append(buf, ",");
		put_snapshot_text(buf, texts[i]);
	}
	sl__buf_str_append(buf, "]");
}

int sl__bk_snapshot_json(const struct sl_env *env, const struct bk_snapshot *s, char **json, size_t *len,
			 struct sl_err *err)
{
	const struct sl_backup_snapshot *i = &s->info;
	const struct {
		const char *name;
		uint64_t value;
	} numbers[] = {{"entries", i->entries},
		       {"files", i->files},
		       {"bytes", i->bytes},
		       {"new_bytes", i->new_bytes},
		       {"physical_bytes", i->physical_bytes},
		       {"problems", i->problems}};
	struct sl__buf buf;
	sl__buf_init(&buf, env);
	sl__buf_printf(&buf, "{\"version\":%d,\"time_ms\":%lld,\"took_ms\":%llu,\"host\":", BK_VERSION,
		       (long long)i->time_ms, (unsigned long long)i->took_ms);
	put_snapshot_text(&buf, i->host);
	sl__buf_str_append(&buf, ",\"parent\":");
	put_snapshot_text(&buf, i->parent != NULL ? i->parent : "");
	put_texts(&buf, "paths", i->paths, i->n_paths);
	put_texts(&buf, "tags", i->tags, i->n_tags);
	for (size_t k = 0; k < SL_COUNT(numbers); k++)
		sl__buf_printf(&buf, ",\"%s\":%llu", numbers[k].name, (unsigned long long)numbers[k].value);
	sl__buf_str_append(&buf, ",\"library\":");
	put_snapshot_text(&buf, i->version);
	sl__buf_str_append(&buf, ",\"manifest\":[");
	for (size_t k = 0; k < s->n_manifest; k++) {
		char hex[BK_HEX_BYTES];
		sl__bk_hex(s->manifest[k].id.b, BK_ID_BYTES, hex);
		sl__buf_printf(&buf, "%s[\"%s\",%u]", k != 0 ? "," : "", hex, s->manifest[k].len);
	}
	sl__buf_str_append(&buf, "]}");
	size_t n = buf.len;
	char *text = sl__buf_take(&buf);
	sl__buf_fini(&buf);
	if (text == NULL)
		return sl_err_set(err, SL_ENOMEM, "write a snapshot: out of memory");
	if (n + BK_SEAL_MAX > BK_SNAPSHOT_MAX) {
		sl__free(env, text);
		return sl_err_set(err, SL_ETOOBIG, "the snapshot has too many manifest blocks: %zu", s->n_manifest);
	}
	*json = text;
	*len = n;
	return 0;
}

/* ---- from JSON ---- */

/* One piece of memory for all strings and arrays of them. No text is longer than what stood for it in the JSON, so the
 * JSON's length and the pointers are enough. `bad` sticks. */
struct arena {
	const char **pointers;
	char *at;
	bool bad;
};

static const char *take_text(struct arena *a, json_t *value)
{
	json_t *hex = json_object_get(value, "hex");
	char *text = a->at;
	size_t n = 0;
	if (hex != NULL && json_is_string(hex)) {
		n = strlen(json_string_value(hex)) / 2;
		if (n == 0 || !sl__bk_unhex(json_string_value(hex), text, n) || memchr(text, 0, n) != NULL)
			a->bad = true;
	} else if (json_is_string(value)) {
		n = json_string_length(value);
		memcpy(text, json_string_value(value), n);
	} else {
		a->bad = true;
	}
	if (a->bad)
		return "";
	text[n] = '\0';
	a->at += n + 1;
	return text;
}

static const char *const *take_texts(struct arena *a, json_t *array, size_t *n)
{
	const char **texts = a->pointers;
	size_t i;
	json_t *value;
	if (!json_is_array(array))
		a->bad = true;
	json_array_foreach(array, i, value) texts[i] = take_text(a, value);
	*n = json_array_size(array);
	a->pointers += *n;
	return texts;
}

static uint64_t take_snapshot_number(struct arena *a, json_t *root, const char *name)
{
	json_t *value = json_object_get(root, name);
	if (!json_is_integer(value) || json_integer_value(value) < 0) {
		a->bad = true;
		return 0;
	}
	return (uint64_t)json_integer_value(value);
}

/* 0, 1 when it is wrong, SL_ENOMEM. */
static int take_manifest(const struct sl_env *env, json_t *array, struct bk_snapshot *out)
{
	size_t n = json_array_size(array), i;
	json_t *value;
	if (!json_is_array(array))
		return 1;
	struct bk_ref *refs = sl__calloc(env, n, sizeof(*refs));
	if (refs == NULL)
		return SL_ENOMEM;
	json_array_foreach(array, i, value)
	{
		const char *hex;
		json_int_t len;
		if (json_unpack(value, "[s, I!]", &hex, &len) != 0 || !sl__bk_unhex(hex, refs[i].id.b, BK_ID_BYTES) ||
		    len < 1 || len > BK_CHUNK_MAX) {
			sl__free(env, refs);
			return 1;
		}
		refs[i].len = (uint32_t)len;
	}
	out->manifest = refs;
	out->n_manifest = n;
	return 0;
}

/* 0, 1 when it is wrong, SL_EUNSUPPORTED, SL_ENOMEM. */
static int take_snapshot(const struct sl_env *env, const char *id, json_t *root, size_t len, struct bk_snapshot *out)
{
	size_t pointers =
		json_array_size(json_object_get(root, "paths")) + json_array_size(json_object_get(root, "tags"));
	json_int_t version = json_integer_value(json_object_get(root, "version"));
	if (version != BK_VERSION)
		return version > BK_VERSION ? SL_EUNSUPPORTED : 1;
	const char **memory = sl__alloc(env, pointers * sizeof(*memory) + BK_NAME_HEX + len + 1);
	if (memory == NULL)
		return SL_ENOMEM;
	struct arena a = {.pointers = memory, .at = (char *)(memory + pointers)};
	struct bk_snapshot s = {.json = memory, .info = {.struct_size = sizeof(s.info)}};
	struct sl_backup_snapshot *i = &s.info;
	i->id = memcpy(a.at, id, BK_NAME_HEX);
	a.at += BK_NAME_HEX;
	i->time_ms = (int64_t)take_snapshot_number(&a, root, "time_ms");
	i->took_ms = take_snapshot_number(&a, root, "took_ms");
	i->host = take_text(&a, json_object_get(root, "host"));
	i->parent = take_text(&a, json_object_get(root, "parent"));
	i->paths = take_texts(&a, json_object_get(root, "paths"), &i->n_paths);
	i->tags = take_texts(&a, json_object_get(root, "tags"), &i->n_tags);
	i->entries = take_snapshot_number(&a, root, "entries");
	i->files = take_snapshot_number(&a, root, "files");
	i->bytes = take_snapshot_number(&a, root, "bytes");
	i->new_bytes = take_snapshot_number(&a, root, "new_bytes");
	i->physical_bytes = take_snapshot_number(&a, root, "physical_bytes");
	i->problems = take_snapshot_number(&a, root, "problems");
	i->version = take_text(&a, json_object_get(root, "library"));
	if (i->parent[0] != '\0' && !sl__bk_is_name(i->parent))
		a.bad = true;
	int rc = a.bad ? 1 : take_manifest(env, json_object_get(root, "manifest"), &s);
	if (rc == 0)
		*out = s;
	else
		sl__free(env, memory);
	return rc;
}

int sl__bk_snapshot_parse(const struct sl_env *env, const char *id, struct bk_bytes json, struct bk_snapshot *out,
			  struct sl_err *err)
{
	json_t *root = json_loadb(json.at, json.len, JSON_REJECT_DUPLICATES, NULL);
	int rc = json_is_object(root) ? take_snapshot(env, id, root, json.len, out) : 1;
	json_decref(root);
	if (rc == 0)
		return 0;
	if (rc == 1)
		return sl_err_set(err, SL_ECORRUPT, FOLDER "/%s is damaged: not a snapshot", id);
	if (rc == SL_EUNSUPPORTED)
		return sl_err_set(err, rc, FOLDER "/%s is of a later version: upgrade", id);
	return sl_err_set(err, rc, FOLDER "/%s: out of memory", id);
}

static int load_from(struct sl_backup *b, const char *folder, const char *id, struct bk_snapshot *out,
		     struct sl_err *err)
{
	struct bk_opened o;
	int rc = sl__bk_get_sealed(b, &(struct bk_object){folder, id, BK_KIND_SNAPSHOT}, BK_SNAPSHOT_MAX, &o, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_snapshot_parse(&b->env, id, (struct bk_bytes){o.text, o.len}, out, err);
	sl__free(&b->env, o.memory);
	return rc;
}

int sl__bk_snapshot_load(struct sl_backup *b, const char *id, struct bk_snapshot *out, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	if (!sl__bk_is_name(id))
		return sl_err_set(err, SL_ENOENT, "invalid snapshot id \"%.64s\"", id);
	int rc = load_from(b, FOLDER, id, out, &why);
	if ((rc == SL_ECORRUPT || rc == SL_ENOENT || rc == SL_EIO) &&
	    load_from(b, BK_SNAPSHOT_COPIES, id, out, NULL) == 0) {
		sl__log(&b->env, SL_LOG_WARN, "backup", "a snapshot is read from its copy: run a repair",
			SL__F_STR("snapshot", id), SL__F_STR("reason", why.msg));
		return 0;
	}
	if (rc == SL_ENOENT)
		return sl_err_set(err, SL_ENOENT, "no snapshot %s", id);
	return sl__bk_result(rc, &why, err);
}

/* ---- both objects of a snapshot ---- */

/* One of them alone: 0, SL_ENOENT, SL_ECORRUPT, SL_EUNSUPPORTED, or a failure to read. */
static int load_twin(struct sl_backup *b, const char *folder, const char *id, struct bk_twin *t)
{
	struct bk_snapshot s = {.manifest = NULL};
	*t = (struct bk_twin){.why = SL_ERR_INIT};
	(void)snprintf(t->name, sizeof(t->name), "%s/%s", folder, id);
	t->rc = load_from(b, folder, id, &s, &t->why);
	sl__bk_snapshot_fini(&b->env, &s);
	return t->rc;
}

int sl__bk_snapshot_care(struct sl_backup *b, const char *id, struct bk_care *care, struct sl_err *err)
{
	struct bk_twin t[2];
	int first = load_twin(b, FOLDER, id, &t[BK_FIRST]), copy = load_twin(b, BK_SNAPSHOT_COPIES, id, &t[BK_COPY]),
	    rc = 0;
	if (first == SL_ENOENT && copy == SL_ENOENT) /* forgotten meanwhile */
		return 0;
	for (int i = 0; i < 2 && rc == 0; i++) {
		int is = t[i].rc;
		bool known = is == 0 || is == SL_ENOENT || is == SL_ECORRUPT || is == SL_EUNSUPPORTED;
		if (!known && (is != SL_EIO || t[!i].rc != 0)) {
			if (err != NULL)
				*err = t[i].why;
			return t[i].rc;
		}
		bool harmless = i == BK_COPY && t[i].rc == SL_ENOENT;
		if (t[i].rc == SL_ENOENT)
			(void)sl_err_set(&t[i].why, SL_ENOENT,
					 harmless ? "the snapshot has no second copy; repair makes one"
						  : "the snapshot is missing; its copy is read");
		const struct sl_backup_finding x = {.fault = SL_BACKUP_FAULT_SNAPSHOT,
						    .harmless = harmless,
						    .object = t[i].name,
						    .reason = t[i].why};
		if (t[i].rc != 0)
			rc = care->fn(&x, err, care->ctx);
	}
	int right = first == 0 ? BK_FIRST : BK_COPY, wrong = !right;
	if (rc != 0 || !care->repair || t[right].rc != 0 || (t[wrong].rc != SL_ENOENT && t[wrong].rc != SL_ECORRUPT))
		return rc;
	struct bk_opened o;
	rc = sl__bk_get_all(b, t[right].name, BK_SNAPSHOT_MAX + BK_SEAL_MAX, &o, err);
	if (rc == 0) {
		t[right].text = o.memory;
		t[right].len = o.len;
		rc = sl__bk_twin_repair(b, t, right, err);
	}
	sl__bk_twin_fini(b, &t[right]);
	care->repaired += rc == 0;
	return rc == SL_ENOENT ? 0 : rc;
}

void sl__bk_snapshot_put_copy(struct sl_backup *b, const char *id, const void *json, size_t len)
{
	struct sl_err why = SL_ERR_INIT;
	struct sl_driver_stat st;
	char first[SL_DRIVER_NAME_BYTES], copy[SL_DRIVER_NAME_BYTES];
	(void)snprintf(first, sizeof(first), FOLDER "/%s", id);
	(void)snprintf(copy, sizeof(copy), BK_SNAPSHOT_COPIES "/%s", id);
	int rc = sl__bk_put_sealed(b, &(struct bk_object){BK_SNAPSHOT_COPIES, id, BK_KIND_SNAPSHOT},
				   (struct bk_bytes){json, len}, SL_DRIVER_REPLACE, &why);
	if (rc == 0 && b->driver.ops->stat(b->driver.driver, first, &st, NULL) == SL_ENOENT)
		rc = sl__bk_remove(b, copy, &why); /* forgotten meanwhile (T2) */
	if (rc != 0)
		sl__log(&b->env, SL_LOG_WARN, "backup", "the snapshot has no second copy: run a repair",
			SL__F_STR("snapshot", id), SL__F_STR("reason", why.msg));
}

int sl__bk_snapshot_remove_copy(struct sl_backup *b, const char *id, struct sl_err *err)
{
	char copy[SL_DRIVER_NAME_BYTES];
	(void)snprintf(copy, sizeof(copy), BK_SNAPSHOT_COPIES "/%s", id);
	return sl__bk_remove(b, copy, err);
}

void sl__bk_snapshot_fini(const struct sl_env *env, struct bk_snapshot *s)
{
	sl__free(env, s->manifest);
	sl__free(env, s->json);
	*s = (struct bk_snapshot){.manifest = NULL};
}

int sl__bk_snapshot_ids(struct sl_backup *b, char (**ids)[BK_NAME_HEX], size_t *n, struct sl_err *err)
{
	struct bk_listed *first = NULL, *copies = NULL;
	size_t n_first = 0, n_copies = 0, count = 0;
	int rc = sl__bk_list_names(b, FOLDER, &first, &n_first, err);
	if (rc == 0)
		rc = sl__bk_list_names(b, BK_SNAPSHOT_COPIES, &copies, &n_copies, err);
	char(*out)[BK_NAME_HEX] = rc == 0 ? sl__calloc(&b->env, n_first + n_copies + 1, sizeof(*out)) : NULL;
	/* Both are sorted: each id once. */
	for (size_t i = 0, k = 0; out != NULL && (i < n_first || k < n_copies);) {
		int order = i == n_first ? 1 : k == n_copies ? -1 : strcmp(first[i].id, copies[k].id);
		memcpy(out[count++], order <= 0 ? first[i].id : copies[k].id, BK_NAME_HEX);
		i += order <= 0;
		k += order >= 0;
	}
	sl__free(&b->env, first);
	sl__free(&b->env, copies);
	if (rc == 0 && out == NULL)
		rc = sl_err_set(err, SL_ENOMEM, "list snapshots: out of memory");
	if (rc != 0)
		return rc;
	*ids = out;
	*n = count;
	return 0;
}
