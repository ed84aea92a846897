/* SPDX-License-Identifier: Apache-2.0 */
/* Options with their defaults filled in; SL_EINVAL names the bad one. The passphrase stays the caller's. */
#ifndef SL_BACKUP_OPTIONS_H
#define SL_BACKUP_OPTIONS_H

#include "base/base.h"
#include <sluice/backup.h>

SL_MUST_CHECK int sl__bk_fill_options(struct sl_backup_opts *out, const struct sl_backup_opts *in, struct sl_err *err);

#endif
