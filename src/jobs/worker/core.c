/* SPDX-License-Identifier: Apache-2.0 */
/* The core itself: its construction, lists, claims and state. The steps are in core_*.c. */
#include "jobs/worker/core_priv.h"

/* ---- lists ---- */

void sl__core_push(struct core_list *list, struct sl__run *run)
{
	run->next = NULL;
	if (list->tail != NULL)
		list->tail->next = run;
	else
		list->head = run;
	list->tail = run;
	list->n++;
}

void sl__core_push_front(struct core_list *list, struct sl__run *run)
{
	run->next = list->head;
	list->head = run;
	if (list->tail == NULL)
		list->tail = run;
	list->n++;
}

void sl__core_remove(struct core_list *list, struct sl__run *run)
{
	struct sl__run **at = &list->head, *before = NULL;
	for (; *at != run; at = &before->next)
		before = *at;
	*at = run->next;
	if (list->tail == run)
		list->tail = before;
	list->n--;
}

/* ---- the memory of a batch: chunks that are filled from the front ---- */

#define ARENA_FIRST ((size_t)16 << 10)
#define ARENA_KEEP ((size_t)1 << 20) /* a larger first chunk is not kept for the next batch */

struct arena_chunk {
	struct arena_chunk *next;
	size_t used, cap;
	char data[];
};

struct sl__arena {
	struct arena_chunk *chunks; /* the newest first */
};

/* Empty it; the newest chunk, which is the largest as a rule, stays unless it is huge or all must go. */
static void arena_clear(const struct sl_env *env, struct sl__arena *arena, bool all)
{
	struct arena_chunk *keep = arena->chunks;
	if (keep == NULL)
		return;
	for (struct arena_chunk *c = keep->next, *next; c != NULL; c = next) {
		next = c->next;
		sl__free(env, c);
	}
	keep->next = NULL;
	keep->used = 0;
	if (all || keep->cap > ARENA_KEEP) {
		sl__free(env, keep);
		arena->chunks = NULL;
	}
}

const char *sl__core_text(const struct sl_env *env, struct sl__arena *arena, const char *text)
{
	size_t n = strlen(text) + 1;
	struct arena_chunk *c = arena->chunks;
	if (c == NULL || c->cap - c->used < n) {
		size_t cap = SL_MAX(n, c == NULL ? ARENA_FIRST : SL_MIN(c->cap * 2, ARENA_KEEP));
		c = sl__alloc(env, sizeof(*c) + cap);
		if (c == NULL)
			return NULL;
		*c = (struct arena_chunk){.next = arena->chunks, .cap = cap};
		arena->chunks = c;
	}
	char *copy = memcpy(c->data + c->used, text, n);
	c->used += n;
	return copy;
}

/* ---- claims ---- */

static void claim_free(const struct sl_env *env, struct sl__claim *claim)
{
	if (claim->arena != NULL)
		arena_clear(env, claim->arena, true);
	sl__free(env, claim->arena);
	sl__free(env, claim->runs);
	sl__free(env, claim);
}

struct sl__claim *sl__core_claim_get(struct sl__core *core, uint32_t cap)
{
	/* A spare one that is large enough, or a new one. */
	struct sl__claim **at = &core->spare, *claim;
	while (*at != NULL && (*at)->cap < cap)
		at = &(*at)->next;
	if (*at != NULL) {
		claim = *at;
		*at = claim->next;
		core->n_spare--;
	} else {
		claim = sl__calloc(core->env, 1, sizeof(*claim));
		if (claim == NULL)
			return NULL;
		for (claim->cap = 4; claim->cap < cap;)
			claim->cap *= 2;
		claim->arena = sl__calloc(core->env, 1, sizeof(*claim->arena));
		claim->runs = sl__calloc(core->env, claim->cap, sizeof(*claim->runs));
		if (claim->arena == NULL || claim->runs == NULL) {
			claim_free(core->env, claim);
			return NULL;
		}
	}
	claim->next = claim->prev = NULL;
	claim->n = claim->n_gone = claim->n_picked = 0;
	claim->abandoned = false;
	claim->grace_ns = claim->held_ms = 0;
	sl__put64(claim->id.bytes, sl__prng_next(&core->prng));
	sl__put64(claim->id.bytes + 8, sl__prng_next(&core->prng2));
	return claim;
}

void sl__core_claim_put(struct sl__core *core, struct sl__claim *claim)
{
	if (core->n_spare > 2 * (uint32_t)core->cfg.lanes + 2) {
		claim_free(core->env, claim);
		return;
	}
	arena_clear(core->env, claim->arena, false);
	claim->next = core->spare;
	core->spare = claim;
	core->n_spare++;
}

/* ---- construction ---- */

int sl__core_new(struct sl__core **out, const struct sl__core_cfg *cfg, int64_t now_ns, struct sl_err *err)
{
	struct sl__core *core = sl__calloc(cfg->env, 1, sizeof(*core));
	if (core == NULL)
		return sl_err_set(err, SL_ENOMEM, "worker: out of memory");
	core->env = cfg->env;
	core->cfg = *cfg;
	core->n_types = cfg->n_types;
	core->types = sl__calloc(cfg->env, cfg->n_types, sizeof(*core->types));
	core->classes = sl__calloc(cfg->env, cfg->n_types, sizeof(*core->classes));
	core->lanes = sl__calloc(cfg->env, (size_t)cfg->lanes, sizeof(*core->lanes));
	if (core->types == NULL || core->classes == NULL || core->lanes == NULL) {
		sl__core_free(core);
		return sl_err_set(err, SL_ENOMEM, "worker: out of memory");
	}
	for (size_t i = 0; i < core->n_types; i++) {
		const struct sl__core_type *type = &cfg->types[i];
		const struct core_class class = {.lease_ms = type->lease_ms,
						 .renew_ms = type->renew_ms,
						 .once = type->retry.max_attempts == 1,
						 .poll_ns = now_ns,
						 .expiry_ns = SL_FOREVER};
		uint32_t k = 0;
		while (k < core->n_classes &&
		       (core->classes[k].lease_ms != class.lease_ms || core->classes[k].renew_ms != class.renew_ms ||
			core->classes[k].once != class.once))
			k++;
		if (k == core->n_classes)
			core->classes[core->n_classes++] = class;
		core->types[i] = (struct core_type){.cfg = *type, .klass = k, .avg_ns = -1};
		core->rests |= type->next_job_delay_ms > 0;
	}
	core->avg_ns = -1;
	core->last_end_ns = now_ns;
	core->backoff_ns = core->reaper_backoff_ns = INT64_MIN;
	core->renew_ns = core->abort_ns = SL_FOREVER;
	core->reap_ns = core->reaped_ns = core->cron_ns = core->cron_done_ns = now_ns;
	core->heartbeat_ns = cfg->heartbeat_ms > 0 ? now_ns : SL_FOREVER;
	core->tick_ms = -1;
	sl__prng_init(&core->prng, cfg->env);
	sl__prng_init(&core->prng2, cfg->env);
	*out = core;
	return 0;
}

void sl__core_free(struct sl__core *core)
{
	if (core == NULL)
		return;
	const struct sl_env *env = core->env;
	for (const struct sl__claim *c = core->claims; c != NULL; c = c->next)
		for (uint32_t i = 0; i < c->n; i++)
			if (c->runs[i].state != SL__RUN_GONE && core->cfg.release != NULL)
				core->cfg.release(&c->runs[i], core->cfg.release_ctx);
	struct sl__claim *const lists[] = {core->claims, core->spare, core->lost};
	for (size_t i = 0; i < SL_COUNT(lists); i++)
		for (struct sl__claim *c = lists[i], *next; c != NULL; c = next) {
			next = c->next;
			claim_free(env, c);
		}
	sl__free(env, core->types);
	sl__free(env, core->classes);
	sl__free(env, core->lanes);
	sl__free(env, core);
}

int sl__todo_init(struct sl__todo *todo, const struct sl__core *core, int who, struct sl_err *err)
{
	const struct sl_env *env = core->env;
	*todo = (struct sl__todo){.who = who};
	if (who < 0)
		return 0;
	todo->runs = sl__calloc(env, SL__SETTLE_MAX, sizeof(struct sl__run *));
	todo->types = sl__calloc(env, core->n_types, sizeof(*todo->types));
	todo->type_index = sl__calloc(env, core->n_types, sizeof(*todo->type_index));
	todo->seen = sl__calloc(env, core->n_types, sizeof(*todo->seen));
	if (todo->runs != NULL && todo->types != NULL && todo->type_index != NULL && todo->seen != NULL)
		return 0;
	sl__todo_fini(todo, core);
	return sl_err_set(err, SL_ENOMEM, "worker: out of memory");
}

void sl__todo_fini(struct sl__todo *todo, const struct sl__core *core)
{
	const struct sl_env *env = core->env;
	if (todo->claim != NULL)
		claim_free(env, todo->claim);
	sl__free(env, todo->runs);
	sl__free(env, todo->types);
	sl__free(env, todo->type_index);
	sl__free(env, todo->seen);
	sl__free(env, todo->renewals);
	sl__free(env, todo->ids);
	*todo = (struct sl__todo){.who = todo->who};
}

/* ---- notifications and state ---- */

void sl__core_note_type(struct sl__core *core, struct core_type *type)
{
	type->dry = false;
	type->hints++;
	core->stats.notified++;
}

void sl__core_note(struct sl__core *core, const struct sl_note *note, int64_t now_ns)
{
	bool all = note->kind == 0;
	if (all || note->kind == SL_NOTE_OWNERSHIP_LOST) {
		/* Is one of our runs meant? Its claim is renewed now: the note has no fence and may be about an earlier
		 * claim of the same job, so the answer of the store counts and not the note. */
		for (struct sl__claim *c = core->claims; c != NULL; c = c->next)
			for (uint32_t i = 0; i < c->n; i++)
				if ((all || c->runs[i].id == note->id) && c->runs[i].state != SL__RUN_GONE) {
					c->renew_ns = now_ns;
					core->renew_ns = SL_MIN(core->renew_ns, now_ns);
					break;
				}
	}
	if (!all && note->kind != SL_NOTE_JOB_SCHEDULED)
		return;
	for (size_t i = 0; i < core->n_types; i++)
		if (all || note->type == NULL || strcmp(core->types[i].cfg.name, note->type) == 0)
			sl__core_note_type(core, &core->types[i]);
	if (note->id == 0) /* a new schedule is notified without a job */
		core->cron_ns = SL_MIN(core->cron_ns, SL_MAX(now_ns, core_add(core->cron_done_ns, CORE_CRON_MIN_NS)));
}

bool sl__core_satisfied(const struct sl__core *core, const struct sl__todo *todo, const struct sl_note *note)
{
	if (note->kind != SL_NOTE_JOB_SCHEDULED || note->type == NULL || !todo->answered)
		return false;
	for (size_t i = 0; i < todo->request.n_types; i++)
		if (strcmp(todo->types[i].type, note->type) == 0)
			return core->types[todo->type_index[i]].dry;
	return false;
}

const struct sl__core_stats *sl__core_stats(const struct sl__core *core)
{
	return &core->stats;
}
