/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of options: their defaults, and the one message about one that is out of its range. */
#ifndef SL_BASE_OPTIONS_H
#define SL_BASE_OPTIONS_H

#include "base/base.h"
#include <sluice/err.h>

struct sl__range {
	const char *name;
	int64_t value, least, most;
};

/* Zero means the default. */
static inline int64_t sl__or_default(int64_t value, int64_t standard)
{
	return value != 0 ? value : standard;
}

/* SL_EINVAL names the first that is outside: "writer: window_ms is -1; give 1 to 86400000". */
static inline int sl__check_ranges(const char *of, const struct sl__range *rows, size_t n, struct sl_err *err)
{
	for (size_t i = 0; i < n; i++)
		if (rows[i].value < rows[i].least || rows[i].value > rows[i].most)
			return sl_err_set(err, SL_EINVAL, "%s: %s is %lld; give %lld to %lld", of, rows[i].name,
					  (long long)rows[i].value, (long long)rows[i].least, (long long)rows[i].most);
	return 0;
}

#endif
