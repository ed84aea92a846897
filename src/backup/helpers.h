/* SPDX-License-Identifier: Apache-2.0 */
/* Results that carry a reason, for all parts of a backup. */
#ifndef SL_BACKUP_HELPERS_H
#define SL_BACKUP_HELPERS_H

#include "base/env.h"

/* End a call with rc; when that is an error, *err (may be NULL) becomes why. */
static inline int sl__bk_result(int rc, const struct sl_err *why, struct sl_err *err)
{
	if (rc != 0 && err != NULL)
		*err = *why;
	return rc;
}

#endif
