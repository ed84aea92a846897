/* SPDX-License-Identifier: Apache-2.0 */
/* Text that grows. Ownership: data is the holder's, to be freed. Thread safety: none. */
#ifndef SLUICE_SERVER_GROWING_H
#define SLUICE_SERVER_GROWING_H

#include <sluice/err.h>
#include <stdlib.h>
#include <string.h>

struct srv_growing {
	char *data;
	size_t len, cap;
};

/* Room for n bytes more. SL_ENOMEM leaves it as it was. */
static inline int srv_growing_reserve(struct srv_growing *t, size_t n)
{
	if (n <= t->cap - t->len)
		return 0;
	size_t cap = (t->cap + n) * 2;
	char *data = realloc(t->data, cap);
	if (data == NULL)
		return SL_ENOMEM;
	t->data = data;
	t->cap = cap;
	return 0;
}

static inline int srv_growing_add(struct srv_growing *t, const char *data, size_t n)
{
	int rc = srv_growing_reserve(t, n);
	if (rc != 0 || n == 0)
		return rc;
	memcpy(t->data + t->len, data, n);
	t->len += n;
	return 0;
}

#endif
