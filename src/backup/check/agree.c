/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does the index say of each pack what its directory says? Seals find damage; this finds an index that was made wrong.
 * Each file is summed up by pack, and compared with the sums of the directories.
 */
#include "backup/check/check.h"

struct summing {
	const struct bk_verify *v;
	struct bk_findings *f;
	struct sl_err *err;
	size_t file;  /* at hand */
	uint64_t end; /* the first ordinal behind it */
	struct sum {
		uint32_t blocks;
		uint64_t sum;
	} * sums; /* by pack number */
};

static int compare(const struct summing *s)
{
	const char *file = sl__bk_index_name(s->v->view->index, s->file);
	for (size_t i = 0; i < s->v->view->packs.n; i++) {
		const struct bk_verdict *verdict = &s->v->verdicts[i];
		char pack[SL_DRIVER_NAME_BYTES];
		struct sl_err why = SL_ERR_INIT;
		if (s->sums[i].blocks == 0 || verdict->state == BK_PACK_GONE ||
		    verdict->state == BK_PACK_NO_DIRECTORY || verdict->state == BK_PACK_UNREADABLE ||
		    (s->sums[i].blocks == verdict->blocks && s->sums[i].sum == verdict->sum))
			continue;
		sl__bk_pack_name(&s->v->view->packs.ids[i], pack);
		(void)sl_err_set(&why, SL_ECORRUPT, "it does not agree with the directory of %s", pack);
		int rc = sl__bk_findings_add(s->f, SL_BACKUP_FAULT_INDEX, false, file, NULL, NULL, &why, s->err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

/* The file at hand is done with: on to the one that has this ordinal. */
static int next_file(struct summing *s, uint64_t ordinal)
{
	int rc = 0;
	while (rc == 0 && ordinal >= s->end && s->file + 1 < sl__bk_index_files(s->v->view->index)) {
		rc = compare(s);
		memset(s->sums, 0, (s->v->view->packs.n + 1) * sizeof(*s->sums));
		s->end += sl__bk_index_file_entries(s->v->view->index, ++s->file);
	}
	return rc;
}

static int add_up(uint64_t ordinal, const struct bk_id *id, const struct bk_found *found, void *ctx)
{
	struct summing *s = ctx;
	uint32_t pack = s->v->view->pack_of[ordinal];
	int rc = ordinal >= s->end ? next_file(s, ordinal) : 0;
	if (rc != 0 || pack == BK_NO_PACK)
		return rc;
	s->sums[pack].blocks++;
	s->sums[pack].sum += sl__bk_place_sum(id, &found->place);
	return 0;
}

int sl__bk_check_agreement(const struct bk_verify *v, struct bk_findings *f, struct sl_err *err)
{
	struct summing s = {.v = v, .f = f, .err = err};
	const struct bk_view *view = v->view;
	if (sl__bk_index_files(view->index) == 0)
		return 0;
	s.sums = sl__calloc(&v->b->env, view->packs.n + 1, sizeof(*s.sums));
	if (s.sums == NULL)
		return sl_err_set(err, SL_ENOMEM, "check the index: out of memory");
	s.end = sl__bk_index_file_entries(view->index, 0);
	int rc = sl__bk_index_each(view->index, add_up, &s, err);
	if (rc == 0)
		rc = compare(&s);
	sl__free(&v->b->env, s.sums);
	return rc;
}
