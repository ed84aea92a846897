/* SPDX-License-Identifier: Apache-2.0 */
/* P2: which marks a live session may not know of yet, and which sessions are dead. */
#include "backup/prune/prune.h"

struct looking {
	struct bk_prune *p;
	int64_t now_ms; /* taken before the list: a session looks younger, if anything */
};

static bool has_seen(const struct bk_session_info *s, const char *mark)
{
	if (!s->ready)
		return false;
	for (size_t i = 0; i < s->seen_n; i++)
		if (strcmp(s->seen[i], mark) == 0)
			return true;
	return false;
}

static int keep_silent(struct bk_prune *p, const char *id)
{
	char(*grown)[BK_NAME_HEX] = sl__realloc(&p->b->env, p->silent, (p->silent_n + 1) * sizeof(*grown));
	if (grown == NULL)
		return SL_ENOMEM;
	p->silent = grown;
	memcpy(p->silent[p->silent_n++], id, BK_NAME_HEX);
	return 0;
}

static int look_at(const struct bk_session_info *s, void *ctx)
{
	struct looking *l = ctx;
	struct bk_prune *p = l->p;
	if (l->now_ms - s->mtime_ms >= p->opts.session_silence_ms)
		return keep_silent(p, s->id);
	p->live = true;
	p->out.sessions_live++;
	for (size_t i = 0; i < p->old.n; i++)
		if (!has_seen(s, p->old.marks[i].id))
			p->waits[i] = true;
	return 0;
}

/* One that is not there any more has been published, which P3 will see, or has ended. */
int sl__bk_prune_silent(struct bk_prune *p, struct sl_err *err)
{
	const sl_driver *d = &p->b->driver;
	int rc = 0;
	for (size_t i = 0; i < p->silent_n && rc == 0; i++) {
		char name[SL_DRIVER_NAME_BYTES] = "sessions/";
		memcpy(name + strlen(name), p->silent[i], BK_NAME_HEX);
		if (!p->dry)
			rc = d->ops->remove(d->driver, name, err);
		if (rc == 0)
			p->out.sessions_removed++;
		if (rc == SL_ENOENT)
			rc = 0;
	}
	return rc;
}

int sl__bk_prune_sessions(struct bk_prune *p, struct sl_err *err)
{
	const sl_driver *d = &p->b->driver;
	struct looking l = {.p = p};
	p->waits = sl__calloc(&p->b->env, p->old.n + 1, sizeof(*p->waits));
	if (p->waits == NULL)
		return sl_err_set(err, SL_ENOMEM, "prune: out of memory");
	int rc = d->ops->now_ms(d->driver, &l.now_ms, err);
	if (rc == 0)
		rc = sl__bk_sessions_each(p->b, look_at, &l, err);
	if (rc == SL_ENOMEM)
		return sl_err_set(err, SL_ENOMEM, "prune: out of memory");
	if (rc == 0)
		rc = sl__bk_prune_silent(p, err);
	return rc;
}
