/* SPDX-License-Identifier: Apache-2.0 */
/* What is declared and not yet there. */
#include "base/base.h"
#include <sluice/audit.h>
#include <sluice/catalog.h>

int sl_audit_keygen(SL_UNUSED const char *path, SL_UNUSED const struct sl_env *env,
		    SL_UNUSED uint8_t public_key[SL_AUDIT_PUBLIC_KEY_BYTES], SL_UNUSED struct sl_err *err)
{
	return SL_EUNSUPPORTED;
}

int sl_audit_public_key_load(SL_UNUSED const char *path, SL_UNUSED const struct sl_env *env,
			     SL_UNUSED uint8_t out[SL_AUDIT_PUBLIC_KEY_BYTES], SL_UNUSED struct sl_err *err)
{
	return SL_EUNSUPPORTED;
}

int sl_audit_head_sign(SL_UNUSED struct sl_audit_head *head, SL_UNUSED const char *key_file,
		       SL_UNUSED const struct sl_env *env, SL_UNUSED struct sl_err *err)
{
	return SL_EUNSUPPORTED;
}

int sl_audit_head_format(SL_UNUSED const struct sl_audit_head *head, SL_UNUSED char out[SL_AUDIT_HEAD_BYTES],
			 SL_UNUSED size_t *len, SL_UNUSED struct sl_err *err)
{
	return SL_EUNSUPPORTED;
}

int sl_audit_head_parse(SL_UNUSED const void *text, SL_UNUSED size_t len, SL_UNUSED const uint8_t *public_key,
			SL_UNUSED struct sl_audit_head *out, SL_UNUSED struct sl_err *err)
{
	return SL_EUNSUPPORTED;
}

int sl_audit_head_read(SL_UNUSED const char *dir, SL_UNUSED const char *dataset, SL_UNUSED const struct sl_env *env,
		       SL_UNUSED struct sl_audit_head *out, SL_UNUSED struct sl_err *err)
{
	return SL_EUNSUPPORTED;
}

int sl_audit_verify(SL_UNUSED const char *dir, SL_UNUSED const char *dataset,
		    SL_UNUSED const struct sl_audit_verify_opts *opts, SL_UNUSED struct sl_audit_result *out,
		    SL_UNUSED struct sl_err *err)
{
	return SL_EUNSUPPORTED;
}

int sl_audit_events(SL_UNUSED const char *dir, SL_UNUSED const char *dataset, SL_UNUSED const struct sl_env *env,
		    SL_UNUSED sl_audit_event_fn *fn, SL_UNUSED void *ctx, SL_UNUSED struct sl_err *err)
{
	return SL_EUNSUPPORTED;
}
