/* SPDX-License-Identifier: Apache-2.0 */
/* Frames, opened: the seal, then zstd with an output of exactly the size that was promised. */
#include <zstd.h>

#include "backup/pack/pack.h"

struct bk_opener {
	struct sl_env env;
	ZSTD_DCtx *zstd;
};

int sl__bk_opener_new(struct bk_opener **out, const struct sl_env *env, struct sl_err *err)
{
	struct bk_opener *o = sl__calloc(env, 1, sizeof(*o));
	if (o != NULL) {
		o->env = *env;
		o->zstd = ZSTD_createDCtx();
	}
	if (o == NULL || o->zstd == NULL) {
		sl__bk_opener_free(o);
		return sl_err_set(err, SL_ENOMEM, "no memory to decompress blocks");
	}
	*out = o;
	return 0;
}

void sl__bk_opener_free(struct bk_opener *o)
{
	if (o == NULL)
		return;
	(void)ZSTD_freeDCtx(o->zstd);
	struct sl_env env = o->env;
	sl__free(&env, o);
}

bool sl__bk_frame_sizes_ok(const struct bk_keys *keys, uint32_t stored, uint32_t raw, bool zstd)
{
	size_t seal = sl__bk_seal_bytes(keys);
	return raw <= BK_FRAME_RAW_MAX && stored >= seal && (zstd ? stored - seal < raw : stored - seal == raw);
}

int sl__bk_frame_open(struct bk_opener *o, const struct bk_keys *keys, const struct bk_place *place, uint8_t *stored,
		      uint8_t *out, struct sl_err *err)
{
	uint8_t *bytes;
	size_t len;
	if (!sl__bk_frame_sizes_ok(keys, place->frame_stored, place->frame_raw, place->zstd))
		return sl_err_set(err, SL_ECORRUPT, "a frame of impossible sizes: %u bytes stored, %u raw",
				  place->frame_stored, place->frame_raw);
	int rc = sl__bk_unseal(keys, BK_KIND_FRAME, NULL, 0, stored, place->frame_stored, &bytes, &len, err);
	if (rc != 0)
		return rc;
	if (!place->zstd) {
		if (len != 0)
			memcpy(out, bytes, len);
		return 0;
	}
	size_t got = ZSTD_decompressDCtx(o->zstd, out, place->frame_raw, bytes, len);
	if (ZSTD_isError(got))
		return sl_err_set(err, SL_ECORRUPT, "a frame does not decompress: %s", ZSTD_getErrorName(got));
	if (got != place->frame_raw)
		return sl_err_set(err, SL_ECORRUPT, "a frame decompresses to %zu bytes instead of %u", got,
				  place->frame_raw);
	return 0;
}
