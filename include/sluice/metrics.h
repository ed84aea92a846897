/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SLUICE_METRICS_H
#define SLUICE_METRICS_H
#include <sluice/adapter/env.h>
#endif
