/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of the ledger and of the store, read piece by piece and compared. */
#include "cli/demo/lines.h"
#include "base/compare.h"
#include "base/env.h"
#include "jobs/store/ops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sluice/events.h>

#define READ_AT_ONCE 5000

static int add(struct demolines *d, const char *text, size_t n)
{
	char **grown = sl__grow(&sl__env_real, d->lines, d->n, &d->cap, sizeof(*grown));

	if (grown == NULL)
		return SL_ENOMEM;
	d->lines = grown;
	/* Lines are kept as text: only a comparison of both sets shows what is missing. */
	d->lines[d->n] = strndup(text, n);
	d->sorted = 0;
	return d->lines[d->n++] != NULL ? 0 : SL_ENOMEM;
}

int demolines_read_file(struct demolines *d, const char *path, struct sl_err *err)
{
	static const size_t size = 1 << 18;
	char *buf = malloc(size);
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc = 0;
	ssize_t n = 0;

	if (buf == NULL || (fd < 0 && errno != ENOENT))
		rc = sl_err_set_errno(err, buf != NULL ? errno : ENOMEM, "open %s", path);
	/* From where the last call ended, up to the last whole line. A missing file has no lines yet. */
	while (rc == 0 && fd >= 0 && (n = pread(fd, buf, size, (off_t)d->at)) > 0) {
		const char *p = buf, *end;

		/* Whole lines only; what comes after the last end of line is read again. */
		while (rc == 0 && (end = memchr(p, '\n', (size_t)(buf + n - p))) != NULL) {
			rc = add(d, p, (size_t)(end - p));
			p = end + 1;
		}
		d->at += (uint64_t)(p - buf);
		if (p == buf)
			break; /* a line that is being written */
	}
	if (fd >= 0)
		(void)close(fd);
	free(buf);
	return rc;
}

static int take_row(const struct sl_event_row *row, void *ctx)
{
	struct demolines *d = ctx;

	/* Starts, exits and progress are events, too, and no lines. */
	d->at = row->offset;
	return row->type == SL_EVENT_STDOUT ? add(d, row->payload, row->payload_len) : 0;
}

int demolines_read_store(struct demolines *d, const sl_store *store, struct sl_err *err)
{
	uint64_t before;
	int rc;

	/* Page by page, until a page brings nothing new. */
	do {
		before = d->at;
		rc = store->ops->events_read(store->ctx, 0, d->at, READ_AT_ONCE, take_row, d, err);
	} while (rc == 0 && d->at != before);
	return rc;
}

void demolines_fini(struct demolines *d)
{
	for (size_t i = 0; i < d->n; i++)
		free(d->lines[i]);
	free(d->lines);
	*d = (struct demolines){.n = 0};
}

static void sort(struct demolines *d)
{
	if (!d->sorted && d->n)
		qsort(d->lines, d->n, sizeof(*d->lines), sl__compare_texts);
	d->sorted = 1;
}

void demolines_compare(struct demolines *ledger, struct demolines *store, struct demodiff *out)
{
	size_t i = 0, k = 0;

	*out = (struct demodiff){.lost = 0};
	sort(ledger);
	sort(store);
	/* Both are sorted: walk through them together, as in a merge. */
	while (i < ledger->n || k < store->n) {
		int order = i == ledger->n ? 1 : k == store->n ? -1 : strcmp(ledger->lines[i], store->lines[k]);

		if (order < 0) {
			out->lost++;
			out->example = out->example != NULL ? out->example : ledger->lines[i];
			i++;
			continue;
		}
		/* The same line again in the store was delivered twice. */
		out->unnoted += order > 0;
		i += order == 0;
		for (k++; k < store->n && strcmp(store->lines[k], store->lines[k - 1]) == 0; k++)
			out->duplicated++;
	}
}
