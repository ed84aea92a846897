/* SPDX-License-Identifier: Apache-2.0 */
/* An input read in pieces, and the records of it in one block of text, so that two ways of reading can be compared. */
#ifndef FUZZ_SPLIT_INPUT_H
#define FUZZ_SPLIT_INPUT_H

#include "base/buf.h"
#include "must.h"
#include <sluice/records.h>

struct split_input {
	const uint8_t *data;
	size_t len, at;
	uint32_t state; /* of the generator of piece lengths */
	uint32_t most;  /* the longest piece */
};

static int64_t split_read(void *buf, size_t n, struct sl_err *err, void *ctx)
{
	struct split_input *in = ctx;
	(void)err;
	in->state = in->state * 1664525u + 1013904223u;
	size_t k = SL_MIN(SL_MIN(n, 1 + (in->state >> 8) % in->most), in->len - in->at);
	if (k > 0)
		memcpy(buf, in->data + in->at, k);
	in->at += k;
	return (int64_t)k;
}

/* Every byte is in one record or between two, and what is between them is blank. */
static void split_check(const struct split_input *in, const struct sl_record *r, uint64_t before)
{
	MUST(r->offset >= before && r->end > r->offset && r->end <= in->len);
	for (uint64_t i = before; i < r->offset; i++)
		MUST(strchr(before == 0 ? "\xEF\xBB\xBF\r\n\t " : "\r\n\t ", in->data[i]) != NULL);
	MUST(r->len <= r->end - r->offset && memcmp(r->data, in->data + r->offset, r->len) == 0);
	uint64_t line = 1;
	for (uint64_t i = 0; i < r->offset; i++)
		line += in->data[i] == '\n';
	MUST(r->line == line);
}

/* The records as text: what else a caller wants to know of each is asked by look. */
static void split_records(struct sl__buf *out, struct split_input *in, const struct sl_records_opts *opts,
			  void (*look)(const struct sl_record *r))
{
	struct sl_record batch[5];
	sl_records *r;
	size_t n = 1;
	uint64_t before = 0;
	in->at = 0;
	MUST(sl_records_new(&r, split_read, in, opts, NULL) == 0);
	int rc = 0;
	while (n > 0 && (rc = sl_records_next(r, batch, SL_COUNT(batch), &n, NULL)) == 0)
		for (size_t i = 0; i < n; i++) {
			if (opts->header == SL_OFF)
				split_check(in, &batch[i], before);
			before = batch[i].end;
			(void)sl__buf_printf(out, "%llu %llu %llu %s\n", (unsigned long long)batch[i].line,
					     (unsigned long long)batch[i].offset, (unsigned long long)batch[i].end,
					     batch[i].bad != NULL ? batch[i].bad : "");
			(void)sl__buf_append(out, batch[i].data, batch[i].len);
			if (look != NULL)
				look(&batch[i]);
		}
	MUST(rc == 0 || rc == SL_EDATA);
	(void)sl__buf_printf(out, "%d\n", rc);
	sl_records_free(r);
}

/* The first byte chooses the piece lengths and the longest record; the rest is read whole, in pieces, and after a look
 * ahead: always the same. */
static void split_same(const uint8_t *data, size_t size, struct sl_records_opts opts,
		       void (*look)(const struct sl_record *r))
{
	struct sl_env env;
	struct sl__buf whole, pieces;
	MUST(sl__env_init(&env, NULL, NULL) == 0);
	sl__buf_init(&whole, &env);
	sl__buf_init(&pieces, &env);
	struct split_input in = {.data = data + 1, .len = size - 1, .most = 1u << 20};
	opts.buffer_bytes = 8192;
	opts.max_record_bytes = (data[0] & 1) != 0 ? 1 + data[0] / 4 : 0;
	opts.header = (data[0] & 2) != 0 && opts.format == SL_ROWS_CSV ? SL_ON : SL_OFF;
	split_records(&whole, &in, &opts, look);
	in.state = data[0];
	in.most = 1 + data[0] % 40;
	opts.buffer_bytes = 1 + data[0] % 50;
	split_records(&pieces, &in, &opts, NULL);
	MUST(whole.failed == 0 && pieces.failed == 0);
	MUST(whole.len == pieces.len && memcmp(whole.data, pieces.data, whole.len) == 0);
	sl__buf_fini(&whole);
	sl__buf_fini(&pieces);
}

#endif
