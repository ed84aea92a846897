/* SPDX-License-Identifier: Apache-2.0 */
/* Old names of base/time.h, for the sources of ship and load. */
#ifndef SLUICE_SERVER_THREAD_H
#define SLUICE_SERVER_THREAD_H

#include "base/time.h"

#define srv_clock_ms sl__clock_ms
#define srv_clock_real_ms sl__clock_real_ms

#endif
