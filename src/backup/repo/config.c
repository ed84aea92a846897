/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One line of JSON that has exactly one form (without the break):
 *
 *   {"version":1,"id":"<32 hex>","encrypted":true,"chunker":{"min":131072,"avg":524288,"max":2097152},
 *    "check":"<64 hex>"}
 *
 * "check" is the SHA-256 of all bytes before `,"check"`. A later version may have other members before it, but keeps
 * first and last, so that an old reader can tell "later" from "damaged".
 */
#include "backup/repo/config.h"

#include <jansson.h>

#include "backup/repo/crypt.h"

int sl__bk_config_text(const struct sl_env *env, const struct bk_config *c, char **text, struct sl_err *err)
{
	char id[BK_NAME_HEX];
	sl__bk_hex(c->id, sizeof(c->id), id);
	char *body =
		sl__asprintf(env,
			     "{\"version\":%d,\"id\":\"%s\",\"encrypted\":%s,\"chunker\":{\"min\":%u,\"avg\":%u,"
			     "\"max\":%u}",
			     BK_VERSION, id, c->encrypted ? "true" : "false", c->chunk_min, c->chunk_avg, c->chunk_max);
	if (body == NULL)
		return sl_err_set(err, SL_ENOMEM, "config: out of memory");
	int rc = sl__bk_checked_text(env, body, text, err);
	sl__free(env, body);
	return rc;
}

static int damaged(struct sl_err *err, const char *why)
{
	return sl_err_set(err, SL_ECORRUPT, "config is damaged (%s)", why);
}

static int read_members(struct bk_config *out, json_t *root, struct sl_err *err)
{
	struct bk_config c = {.encrypted = false};
	int encrypted;
	const char *id;
	json_int_t version, min, avg, max;
	if (json_unpack(root, "{s:I}", "version", &version) != 0 || version < 1)
		return damaged(err, "its version");
	if (version > BK_VERSION)
		return sl_err_set(err, SL_EUNSUPPORTED, "the repository is of version %lld, this library knows %d",
				  (long long)version, BK_VERSION);
	if (json_unpack(root, "{s:s, s:b, s:{s:I, s:I, s:I}}", "id", &id, "encrypted", &encrypted, "chunker", "min",
			&min, "avg", &avg, "max", &max) != 0 ||
	    !sl__bk_unhex(id, c.id, sizeof(c.id)))
		return damaged(err, "its members");
	if (min < 0 || avg < 0 || max < 0 || min > BK_CHUNK_MAX || avg > BK_CHUNK_MAX || max > BK_CHUNK_MAX)
		return damaged(err, "sizes of the chunker");
	c.encrypted = encrypted != 0;
	c.chunk_min = (uint32_t)min;
	c.chunk_avg = (uint32_t)avg;
	c.chunk_max = (uint32_t)max;
	*out = c;
	return 0;
}

int sl__bk_config_parse(struct bk_config *out, const char *text, size_t len, struct sl_err *err)
{
	if (len > BK_CONFIG_MAX || !sl__bk_text_is_checked(text, len))
		return damaged(err, "its checksum");
	json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	int rc = root != NULL ? read_members(out, root, err) : damaged(err, "not JSON");
	json_decref(root);
	return rc;
}
