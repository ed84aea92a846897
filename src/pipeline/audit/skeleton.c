/* SPDX-License-Identifier: Apache-2.0 */
/* What is declared and not yet there. */
#include "base/base.h"
#include <sluice/audit.h>
#include <sluice/catalog.h>

int sl_audit_verify(SL_UNUSED const char *dir, SL_UNUSED const char *dataset,
		    SL_UNUSED const struct sl_audit_verify_opts *opts, SL_UNUSED struct sl_audit_result *out,
		    SL_UNUSED struct sl_err *err)
{
	return SL_EUNSUPPORTED;
}
