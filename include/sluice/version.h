/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The version of the headers, and that of the library that is running.
 *
 * Thread safety: from any thread. Ownership: the text is static.
 */
#ifndef SLUICE_VERSION_H
#define SLUICE_VERSION_H

#include <sluice/err.h>

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
