/* SPDX-License-Identifier: Apache-2.0 */
/* All of Sluice in one include, and the version of the library that is running. */
#ifndef SLUICE_SLUICE_H
#define SLUICE_SLUICE_H

#include <sluice/dead_letter.h>
#include <sluice/err.h>
#include <sluice/log.h>
#include <sluice/metrics.h>
#include <sluice/retry.h>
#include <sluice/wal.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SL_VERSION_MAJOR 0
#define SL_VERSION_MINOR 1
#define SL_VERSION_PATCH 0
#define SL_VERSION "0.1.0"

/* The version of the library at run time, "0.1.0"; compare with SL_VERSION of the headers. Static. */
SL_API const char *sl_version(void);

#ifdef __cplusplus
}
#endif
#endif
