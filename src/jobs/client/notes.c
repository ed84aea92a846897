/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of notifications. Up to SL__NOTES_INLINE of them are searched one by one; more are found by an open-addressing
 * index that is at most half full. They stay in the order of arrival, so that going back to a savepoint is cutting the
 * array.
 */
#include "jobs/client/notes.h"

void sl__notes_init(struct sl__notes *s, const struct sl_env *env)
{
	*s = (struct sl__notes){.env = env, .notes = s->inline_notes, .cap = SL__NOTES_INLINE};
}

void sl__notes_fini(struct sl__notes *s)
{
	for (struct sl__note_type *t = s->types, *next; t != NULL; t = next) {
		next = t->next;
		if (t != &s->inline_type)
			sl__free(s->env, t);
	}
	if (s->notes != s->inline_notes)
		sl__free(s->env, s->notes);
	sl__free(s->env, s->index);
	sl__notes_init(s, s->env);
}

void sl__notes_clear(struct sl__notes *s)
{
	s->n = 0;
	s->lost = 0;
	if (s->index != NULL)
		memset(s->index, 0, s->n_index * sizeof(*s->index));
}

const char *sl__notes_name(struct sl__notes *s, const char *type)
{
	if (type == NULL || strlen(type) >= SL__NOTES_TYPE_BYTES)
		return NULL;
	for (const struct sl__note_type *t = s->types; t != NULL; t = t->next)
		if (strcmp(t->name, type) == 0)
			return t->name;
	struct sl__note_type *t = s->types == NULL ? &s->inline_type : sl__alloc(s->env, sizeof(*t));
	if (t == NULL)
		return NULL;
	strcpy(t->name, type);
	t->next = s->types;
	s->types = t;
	return t->name;
}

/* ---- finding ---- */

static bool by_type(const struct sl_note *note)
{
	return note->kind == SL_NOTE_JOB_SCHEDULED;
}

static bool same_note(const struct sl_note *a, const struct sl_note *b)
{
	if (a->kind != b->kind)
		return false;
	if (!by_type(a))
		return a->id == b->id;
	return a->type == b->type || (a->type != NULL && b->type != NULL && strcmp(a->type, b->type) == 0);
}

/* The place of the notification in the index, or the free one where it belongs. */
static uint32_t *find_slot(struct sl__notes *s, const struct sl_note *note)
{
	uint64_t hash = (uint64_t)note->kind * 0x9E3779B97F4A7C15ULL;
	if (!by_type(note))
		hash ^= note->id;
	else
		for (const char *c = note->type != NULL ? note->type : ""; *c != '\0'; c++)
			hash = (hash ^ (unsigned char)*c) * 0x100000001B3ULL;
	hash = (hash ^ (hash >> 31)) * 0xBF58476D1CE4E5B9ULL;
	size_t mask = s->n_index - 1;
	for (size_t i = (size_t)(hash ^ (hash >> 29)) & mask;; i = (i + 1) & mask)
		if (s->index[i] == 0 || same_note(&s->notes[s->index[i] - 1], note))
			return &s->index[i];
}

static void fill_index(struct sl__notes *s)
{
	memset(s->index, 0, s->n_index * sizeof(*s->index));
	for (size_t i = 0; i < s->n; i++)
		*find_slot(s, &s->notes[i]) = (uint32_t)i + 1;
}

/* ---- changing ---- */

/* Room for twice as many, and an index with four places for each notification in the set. */
static bool grow_notes(struct sl__notes *s)
{
	size_t cap = s->cap * 2, n_index = cap * 2;
	bool from_inline = s->notes == s->inline_notes;
	if (cap > UINT32_MAX / 4)
		return false;
	struct sl_note *notes = sl__realloc(s->env, from_inline ? NULL : s->notes, cap * sizeof(*notes));
	if (notes == NULL)
		return false;
	if (from_inline)
		memcpy(notes, s->inline_notes, sizeof(s->inline_notes));
	s->notes = notes;
	uint32_t *index = sl__realloc(s->env, s->index, n_index * sizeof(*index));
	if (index == NULL)
		return false; /* the array is only larger than cap */
	s->index = index;
	s->n_index = n_index;
	s->cap = cap;
	fill_index(s);
	return true;
}

void sl__notes_add(struct sl__notes *s, const struct sl_note *note)
{
	struct sl_note *known = NULL;
	if (s->index != NULL) {
		uint32_t at = *find_slot(s, note);
		known = at != 0 ? &s->notes[at - 1] : NULL;
	}
	for (size_t i = 0; s->index == NULL && known == NULL && i < s->n; i++)
		known = same_note(&s->notes[i], note) ? &s->notes[i] : NULL;
	if (known != NULL) {
		if (by_type(note) && known->id != note->id)
			known->id = 0;
		known->later = known->later && note->later;
		known->sent = known->sent && note->sent;
		return;
	}
	struct sl_note own = *note;
	own.type = sl__notes_name(s, note->type);
	if ((own.type == NULL && by_type(note) && note->type != NULL) || (s->n == s->cap && !grow_notes(s))) {
		s->lost++;
		return;
	}
	s->notes[s->n++] = own;
	if (s->index != NULL)
		*find_slot(s, &own) = (uint32_t)s->n;
}

void sl__notes_cut(struct sl__notes *s, size_t n)
{
	if (n >= s->n)
		return;
	s->n = n;
	if (s->index != NULL)
		fill_index(s);
}

void sl__notes_publish(struct sl__notes *s, const sl_notify *notify)
{
	struct sl_err err = SL_ERR_INIT;
	if (s->n > 0 && notify != NULL && notify->ops->publish(notify->ctx, s->notes, s->n, &err) != 0)
		sl__log(s->env, SL_LOG_WARN, "jobs", "sending notifications failed; polling finds the jobs",
			SL__F_STR("notifier", notify->ops->name), SL__F_STR("error", err.msg));
	if (s->lost > 0)
		sl__log(s->env, SL_LOG_WARN, "jobs", "no memory for notifications; polling finds the jobs",
			SL__F_U64("lost", s->lost));
	sl__notes_clear(s);
}
