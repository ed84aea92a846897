/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The config and its copy (backup/repo/twins.h). One line of JSON that has exactly one form (without the break):
 *
 *   {"version":1,"id":"<32 hex>","encrypted":true,"chunker":{"min":131072,"avg":524288,"max":2097152},
 *    "check":"<64 hex>"}
 *
 * "check" is the SHA-256 of all bytes before `,"check"`. A later version may have other members before it, but keeps
 * first and last, so that an old reader can distinguish "later" from "damaged".
 */
#include "backup/repo/config.h"

#include <jansson.h>

#include "backup/repo/twins.h"

int sl__bk_config_text(const struct sl_env *env, const struct bk_config *c, char **text, struct sl_err *err)
{
	char id[BK_NAME_HEX];
	sl__bk_hex(c->id, sizeof(c->id), id);
	char *body = sl__asprintf(env,
				  "{\"version\":%d,\"id\":\"%s\",\"encrypted\":%s,\"chunker\":{\"min\":%u,\"avg\":%u,"
				  "\"max\":%u}",
				  BK_VERSION, id, c->encrypted ? "true" : "false", c->chunks.min, c->chunks.avg,
				  c->chunks.max);
	if (body == NULL)
		return sl_err_set(err, SL_ENOMEM, "config: out of memory");
	int rc = sl__bk_checked_text(env, body, text, err);
	sl__free(env, body);
	return rc;
}

static int config_damaged(struct sl_err *err, const char *why)
{
	return sl_err_set(err, SL_ECORRUPT, "config is damaged (%s)", why);
}

int sl__bk_config_parse(struct bk_config *out, const char *text, size_t len, struct sl_err *err)
{
	struct bk_config c = {.encrypted = false};
	int encrypted = 0, rc = 0;
	const char *id;
	json_int_t version = 0, min = 0, avg = 0, max = 0;
	if (len > BK_CONFIG_MAX || !sl__bk_text_is_checked(text, len))
		return config_damaged(err, "its checksum");
	json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	if (root == NULL)
		return config_damaged(err, "not JSON");
	if (json_unpack(root, "{s:I}", "version", &version) != 0 || version < 1)
		rc = config_damaged(err, "its version");
	else if (version > BK_VERSION)
		rc = sl_err_set(err, SL_EUNSUPPORTED,
				"the repository has version %lld, this library supports %d; use a newer sluice",
				(long long)version, BK_VERSION);
	else if (json_unpack(root, "{s:s, s:b, s:{s:I, s:I, s:I}}", "id", &id, "encrypted", &encrypted, "chunker",
			     "min", &min, "avg", &avg, "max", &max) != 0 ||
		 !sl__bk_unhex(id, c.id, sizeof(c.id)))
		rc = config_damaged(err, "its members");
	else if (min < 0 || avg < 0 || max < 0 || min > BK_CHUNK_MAX || avg > BK_CHUNK_MAX || max > BK_CHUNK_MAX)
		rc = config_damaged(err, "sizes of the chunker");
	json_decref(root);
	if (rc != 0)
		return rc;
	c.encrypted = encrypted != 0;
	c.chunks = (struct bk_chunk_sizes){(uint32_t)min, (uint32_t)avg, (uint32_t)max};
	*out = c;
	return 0;
}

/* ---- in the repository ---- */

static int is_config(SL_UNUSED struct sl_backup *b, const char *text, size_t len, struct sl_err *err)
{
	struct bk_config config;
	return sl__bk_config_parse(&config, text, len, err);
}

int sl__bk_config_load(struct sl_backup *b, struct bk_config *out, struct sl_err *err)
{
	struct bk_twin t[2] = {{.text = NULL}, {.text = NULL}}, *first = &t[BK_FIRST], *copy = &t[BK_COPY],
		       *right = first;
	char copy_name[SL_DRIVER_NAME_BYTES];
	int rc = sl__bk_twin_load(b, BK_CONFIG, is_config, first, err);
	sl__bk_copy_name(BK_CONFIG, copy_name);
	/* A config that is missing, damaged or cannot be read is replaced by its copy. */
	if (first->rc != 0 && first->rc != SL_EUNSUPPORTED && (rc == 0 || rc == SL_EIO)) {
		right = copy;
		if (sl__bk_twin_load(b, copy_name, is_config, copy, NULL) == 0 && copy->rc == 0)
			rc = 0;
	}
	if (rc == 0 && right->rc == 0) {
		rc = sl__bk_config_parse(out, (const char *)right->text, right->len, err);
	} else if (rc == 0 && first->rc == SL_ENOENT && copy->rc == SL_ENOENT) {
		rc = sl_err_set(err, SL_ENOENT, "there is no repository: make one with init");
	} else if (rc == 0) { /* neither can be read */
		const struct bk_twin *reported = first->rc != SL_ENOENT ? first : copy;
		if (err != NULL)
			*err = reported->why;
		rc = reported->rc;
	}
	if (rc == 0 && right == copy)
		sl__log(&b->env, SL_LOG_WARN, "backup", "the config cannot be read; using its copy: run a repair",
			SL__F_STR("reason", first->why.msg));
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
			rc = sl_err_wrap(err, rc,
					 "the repository is created, but its config has no copy: run a repair");
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
