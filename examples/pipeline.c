/* SPDX-License-Identifier: Apache-2.0 */
/* A format of one's own through the ordered pipeline: a stream of numbers becomes text files of their squares, a
 * hundred each, written by four threads and committed in order. The second run continues after the first. */
#include <inttypes.h>
#include <sluice/pipeline.h>
#include <stdio.h>

struct squares {
	uint64_t at, end;    /* the source */
	uint64_t checkpoint; /* a program keeps it in its database, written by commit */
};

static int next(struct sl_pipeline_element *out, struct sl_err *err, void *ctx)
{
	struct squares *s = (struct squares *)ctx;
	(void)err;
	out->first = out->last = ++s->at; /* out->data is for what comes with the number */
	return s->at <= s->end ? 0 : SL_PIPELINE_END;
}

/* Any worker, any order, perhaps twice: a whole file under its final name, or none. (And fsync, where it matters.) */
static int build(void *worker, const struct sl_pipeline_partition *p, void **out, struct sl_err *err, void *ctx)
{
	char name[64], temporary[80];
	(void)ctx, (void)worker, (void)out;
	snprintf(name, sizeof(name), "squares-%06" PRIu64 ".txt", p->start);
	snprintf(temporary, sizeof(temporary), ".%s.tmp", name);
	FILE *file = fopen(temporary, "w");
	if (file == NULL)
		return sl_err_set(err, SL_EIO, "%s cannot be made", temporary);
	for (uint64_t n = p->start; n <= p->end; n++)
		fprintf(file, "%" PRIu64 " %" PRIu64 "\n", n, n * n);
	return fclose(file) == 0 && rename(temporary, name) == 0 ? 0 : sl_err_set(err, SL_EIO, "%s: not written", name);
}

/* One thread, in order, without a gap: from here on the partition counts. */
static int commit(const struct sl_pipeline_partition *p, void *out, void *ref, struct sl_err *err, void *ctx)
{
	struct squares *s = (struct squares *)ctx;
	(void)out, (void)ref, (void)err;
	s->checkpoint = p->end;
	printf("%" PRIu64 " to %" PRIu64 "\n", p->start, p->end);
	return 0;
}

static int run(struct squares *s, uint64_t end)
{
	static const struct sl_pipeline_ops ops = {
		.version = SL_PIPELINE_OPS_VERSION, .next = next, .build = build, .commit = commit};
	const struct sl_pipeline_opts opts = {
		SL_PIPELINE_OPTS_INIT,      .ops = &ops, .ctx = s, .partition_size = 100, .begin = SL_PIPELINE_AT,
		.first = s->checkpoint + 1, .workers = 4};
	struct sl_err err = SL_ERR_INIT;
	sl_pipeline *p = NULL;
	s->at = 0;
	s->end = end;
	int rc = sl_pipeline_new(&p, &opts, &err);
	if (rc == 0)
		rc = sl_pipeline_run(p, NULL, &err);
	printf("%s; checkpoint %" PRIu64 "\n", rc == 0 ? "done" : err.msg, s->checkpoint);
	sl_pipeline_free(p);
	return rc;
}

int main(void)
{
	struct squares s = {0};
	return run(&s, 250) != 0 || run(&s, 399) != 0;
}
