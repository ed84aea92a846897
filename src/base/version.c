/* SPDX-License-Identifier: Apache-2.0 */
/* The version of the library. */
#include <sluice/version.h>

const char *sl_version(void)
{
	return SL_VERSION;
}
