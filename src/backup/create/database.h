/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SL_BACKUP_CREATE_DATABASE_H
#define SL_BACKUP_CREATE_DATABASE_H

#include "backup/create/create.h"

/* When this is an SQLite database: copy it on the caller's thread, contents complete, and *copied is set; its journals
 * are left out then. When it cannot be copied it is reported and read as a file: *copied is set, too, the journals
 * stay. */
SL_MUST_CHECK int sl__bk_create_database(struct bk_create *c, struct bk_visit *v, struct bk_item *item, bool *copied,
					 struct sl_err *err);

#endif
