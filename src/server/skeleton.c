/* SPDX-License-Identifier: Apache-2.0 */
#include "core.h"

extern int srv_nothing;
int srv_nothing;
