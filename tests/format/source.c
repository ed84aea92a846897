/* SPDX-License-Identifier: Apache-2.0 */
#include "source.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

int64_t source_read(void *buf, size_t n, struct sl_err *err, void *ctx)
{
	struct source *s = ctx;
	size_t most = s->reads == 0 ? s->first : s->chunk;
	size_t k = s->len - s->at;
	if (++s->reads == s->fail_at)
		return sl_err_set(err, SL_EIO, "the disk is on fire");
	if (k > n)
		k = n;
	if (most > 0 && k > most)
		k = most;
	if (k > 0)
		memcpy(buf, s->data + s->at, k);
	s->at += k;
	return (int64_t)k;
}

static int only_line_ends(const char *p, const char *end)
{
	while (p < end && (*p == '\n' || *p == '\r' || *p == ' ' || *p == '\t'))
		p++;
	return p == end;
}

/* Every byte is in one record or between them, and a record is what stands at its offset. */
static void check_place(const struct source *s, const struct sl_record *r, uint64_t before)
{
	assert_true(r->offset >= before && r->end > r->offset && r->end <= s->len);
	if (before > 3)
		assert_true(only_line_ends(s->data + before, s->data + r->offset));
	assert_memory_equal(r->data, s->data + r->offset, r->len);
	if (r->len != 4096)
		assert_true(only_line_ends(s->data + r->offset + r->len, s->data + r->end));
}

char *source_records(struct source *s, const struct sl_records_opts *opts, size_t at_once)
{
	char *text = NULL;
	size_t bytes = 0, n;
	FILE *f = open_memstream(&text, &bytes);
	sl_records *r;
	struct sl_record *all = calloc(at_once, sizeof(*all));
	struct sl_err err = SL_ERR_INIT;
	uint64_t end = 0;
	assert_int_equal(sl_records_new(&r, source_read, s, opts, &err), 0);
	for (int rc = 1; rc != 0 || n > 0;) {
		rc = sl_records_next(r, all, at_once, &n, &err);
		if (rc == SL_EIO)
			continue;
		if (rc != 0) {
			fprintf(f, "%s: %s\n", sl_err_name(rc), err.msg);
			break;
		}
		for (size_t i = 0; i < n; i++) {
			check_place(s, &all[i], end);
			end = all[i].end;
			fprintf(f, "%llu [%.*s]%s%s\n", (unsigned long long)all[i].line, (int)all[i].len, all[i].data,
				all[i].bad != NULL ? " !" : "", all[i].bad != NULL ? all[i].bad : "");
		}
	}
	fclose(f);
	free(all);
	sl_records_free(r);
	return text;
}
