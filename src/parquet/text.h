/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8 in texts that end by their length. */
#ifndef SL_PARQUET_TEXT_H
#define SL_PARQUET_TEXT_H

#include <sluice/parquet.h>

#include "base/base.h"

/* Well-formed, as base/utf8.h says; a NUL is a character as any other. Quick for ASCII. */
bool sl__pq_is_utf8(struct sl_parquet_bytes v);

#endif
