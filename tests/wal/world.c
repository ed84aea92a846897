/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

#include <stdlib.h>
#include <string.h>

uint64_t world_rand(struct world *x, uint64_t below)
{
	uint64_t z = x->rng += 0x9E3779B97F4A7C15ULL;
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
	return (z ^ (z >> 31)) % below;
}

static void wrong(struct world *x, const char *text, uint64_t number)
{
	if (x->wrong[0] == '\0')
		(void)snprintf(x->wrong, sizeof(x->wrong), "%s (%llu)", text, (unsigned long long)number);
}

void world_init(struct world *x, uint64_t seed, struct crashfs *fs, struct fault *fault)
{
	static const int64_t ahead[] = {SL_NONE, 4096, 8192, SL_NONE, 4096, 16384, 1024, 4096};
	memset(x, 0, sizeof(*x));
	x->rng = seed;
	x->fs = fs != NULL ? fs : crashfs_new();
	uint8_t key[32];
	memset(key, 0x5a, sizeof(key));
	crashfs_put(x->fs, WORLD_KEY, key, sizeof(key));
	walmodel_env_init(&x->env, x->fs, 1 + (seed & 0xfff) * 64);
	walmodel_init(&x->model, 1 + seed * 1000);
	x->receiver = (struct walmodel_receiver){.m = &x->model, .fs = x->fs};
	x->use = x->env.env;
	x->fault = fault;
	if (fault != NULL) {
		fault_init(fault, &x->env.env);
		x->use = fault_env(fault, &x->env.env);
	}
	x->opts = (struct sl_wal_opts){SL_WAL_OPTS_INIT,
				       .env = &x->use,
				       .wal_dir = WORLD_DIR,
				       .archive_dir = WORLD_ARCHIVE,
				       .dead_letter_dir = WORLD_LETTERS,
				       .archive_on_complete = SL_OFF,
				       .background = SL_OFF,
				       .prepare_max_bytes = ahead[world_rand(x, 8)],
				       .retry_backoff = {.jitter = SL_JITTER_OFF}};
}

void world_fini(struct world *x)
{
	if (x->w != NULL)
		world_die(x);
	walmodel_fini(&x->model);
	walmodel_env_fini(&x->env);
	crashfs_free(x->fs);
	free(x->kept);
	if (x->fault != NULL)
		fault_fini(x->fault);
}

struct walmodel_case world_case(const struct world *x, size_t point)
{
	struct walmodel_case c = {
		.m = &x->model, .point = point, .id = WORLD_ID, .opts = x->opts, .archive_dir = WORLD_ARCHIVE};
	return c;
}

static bool note(struct world *x, int rc)
{
	x->rc = rc;
	return rc == 0;
}

static size_t now(const struct world *x)
{
	return crashfs_point(x->fs);
}

bool world_open(struct world *x)
{
	struct sl_wal_stats st = {.struct_size = sizeof(st)};
	if (!note(x, sl_wal_open(&x->w, WORLD_ID, &x->opts, &x->err)))
		return false;
	if (!note(x, sl_wal_get_stats(x->w, &st, &x->err)))
		return false;
	if (st.incarnation != x->incarnation)
		x->next_sequence = 0;
	x->incarnation = st.incarnation;
	if (st.last_sequence + 1 < x->next_sequence)
		wrong(x, "numbering went back", st.last_sequence + 1);
	x->next_sequence = st.last_sequence + 1;
	x->may_skip = true;
	return true;
}

bool world_close(struct world *x)
{
	sl_wal *w = x->w;
	x->w = NULL;
	if (!note(x, sl_wal_close(w, &x->err)))
		return false;
	walmodel_marks_durable(&x->model, now(x));
	return true;
}

void world_die(struct world *x)
{
	crashfs_stop_at(x->fs, 0);
	if (x->w != NULL)
		(void)sl_wal_close(x->w, NULL);
	x->w = NULL;
	crashfs_kill(x->fs);
	walmodel_marks_forgettable(&x->model);
}

static size_t submit(struct world *x, uint64_t sequence, uint8_t *payload, size_t *len)
{
	uint64_t id = x->model.next_id++;
	*len = walmodel_payload(id, payload);
	(void)walmodel_submit(&x->model, x->incarnation, sequence, id, now(x));
	return x->model.n_entries - 1;
}

static void acknowledge(struct world *x, size_t entry, uint64_t sequence)
{
	struct walmodel_entry *e = &x->model.entries[entry];
	if (sequence != e->sequence && !(x->may_skip && sequence > e->sequence))
		wrong(x, "a sequence that was not due", sequence);
	for (size_t i = 0; i < x->model.n_entries; i++)
		if (i != entry && x->model.entries[i].acked_at != WALMODEL_NEVER &&
		    x->model.entries[i].incarnation == x->incarnation && x->model.entries[i].sequence == sequence)
			wrong(x, "a sequence that was given before", sequence);
	e->sequence = sequence;
	e->acked_at = now(x);
	x->next_sequence = sequence + 1;
}

bool world_append(struct world *x)
{
	uint8_t payload[WALMODEL_MAX_PAYLOAD];
	size_t len, entry = submit(x, x->next_sequence, payload, &len);
	uint64_t sequence = 0;
	if (!note(x, sl_wal_append(x->w, payload, len, &sequence, &x->err)))
		return false;
	acknowledge(x, entry, sequence);
	x->may_skip = false;
	return true;
}

bool world_append_many(struct world *x, size_t n)
{
	static const size_t most = 8;
	uint8_t payload[8][WALMODEL_MAX_PAYLOAD];
	struct sl_wal_span spans[8];
	n = n < most ? n : most;
	size_t from = x->model.n_entries;
	for (size_t i = 0; i < n; i++) {
		spans[i].data = payload[i];
		(void)submit(x, x->next_sequence + i, payload[i], &spans[i].len);
	}
	uint64_t first = 0;
	size_t durable = 0;
	bool ok = note(x, sl_wal_append_many(x->w, spans, n, &first, &durable, &x->err));
	for (size_t i = 0; i < (ok ? n : durable); i++)
		acknowledge(x, from + i, first + i);
	x->may_skip = x->may_skip && durable == 0 && !ok;
	return ok;
}

bool world_tickets(struct world *x, size_t n)
{
	uint8_t payload[WALMODEL_MAX_PAYLOAD];
	struct sl_wal_ticket tickets[16];
	size_t from = x->model.n_entries, len, submitted = 0;
	n = n < 16 ? n : 16;
	for (; submitted < n; submitted++) {
		(void)submit(x, x->next_sequence + submitted, payload, &len);
		if (!note(x, sl_wal_submit(x->w, payload, len, &tickets[submitted], &x->err)))
			break;
	}
	bool ok = submitted == n;
	for (size_t i = 0; i < submitted; i++) {
		if (!note(x, sl_wal_wait(x->w, &tickets[i], SL_UNLIMITED, &x->err))) {
			ok = false;
			continue;
		}
		acknowledge(x, from + i, tickets[i].sequence);
	}
	x->may_skip = false;
	return ok;
}

bool world_mark_sent(struct world *x, uint64_t first, uint64_t last)
{
	walmodel_deliver(&x->model, x->incarnation, first, last, now(x));
	walmodel_mark(&x->model, x->incarnation, first, last, SL_WAL_SENT, now(x));
	return note(x, sl_wal_mark_sent(x->w, first, last, &x->err));
}

bool world_send(struct world *x)
{
	if (!note(x, sl_wal_sender_start(x->w, &walmodel_sender, &x->receiver, &x->err)))
		return false;
	bool ok = note(x, sl_wal_sender_stop(x->w, SL_UNLIMITED, &x->err));
	if (x->receiver.broken)
		wrong(x, "the receiver got a contradiction", 0);
	return ok;
}

bool world_archive(struct world *x, bool include_pending)
{
	walmodel_marks_until(&x->model, now(x));
	return note(x, sl_wal_archive(x->w, WORLD_ARCHIVE, include_pending, &x->err));
}

bool world_archive_path(struct world *x, bool include_pending)
{
	walmodel_marks_until(&x->model, now(x));
	return note(x, sl_wal_archive_path(WORLD_PATH, WORLD_ARCHIVE, include_pending, &x->opts, &x->err));
}

/* A new incarnation takes the pending records over under new numbers; what was sent stays behind in a file beside. */
static void expect_renumbering(struct world *x)
{
	x->model.any_sequence = true;
	for (size_t i = 0; i < x->model.n_entries; i++)
		for (size_t k = 0; k < x->model.n_marks; k++)
			if (x->model.marks[k].first <= x->model.entries[i].sequence &&
			    x->model.entries[i].sequence <= x->model.marks[k].last)
				x->model.entries[i].excused = true;
}

bool world_recover(struct world *x, bool new_incarnation)
{
	if (new_incarnation)
		expect_renumbering(x);
	struct sl_wal_recover_opts opts = {SL_WAL_RECOVER_OPTS_INIT, .wal = &x->opts,
					   .new_incarnation = new_incarnation};
	if (!note(x, sl_wal_recover(WORLD_PATH, &opts, NULL, &x->err)))
		return false;
	x->model.sound_at = now(x);
	return true;
}

struct places {
	size_t n;
	struct {
		uint64_t sequence, offset, length;
		char segment[64];
	} at[64];
};

static int note_place(const struct sl_wal_record *record, void *ctx)
{
	struct places *p = ctx;
	if (p->n == 64)
		return 0;
	p->at[p->n].sequence = record->sequence;
	p->at[p->n].offset = record->offset;
	p->at[p->n].length = record->length + 4;
	(void)snprintf(p->at[p->n].segment, sizeof(p->at[p->n].segment), "%s", record->segment);
	p->n++;
	return 0;
}

/* Entries of a record that is destroyed may be missing from here on. */
static void excuse(struct world *x, uint64_t sequence)
{
	for (size_t i = 0; i < x->model.n_entries; i++)
		if (x->model.entries[i].sequence == sequence)
			x->model.entries[i].excused = true;
}

void world_refused(struct world *x, size_t n)
{
	for (size_t i = x->model.n_entries - n; i < x->model.n_entries; i++)
		x->model.entries[i].refused_at = now(x);
}

struct sl_wal_stats world_stats(struct world *x)
{
	struct sl_wal_stats st = {.struct_size = sizeof(st)};
	(void)note(x, sl_wal_get_stats(x->w, &st, &x->err));
	return st;
}

void world_record(struct world *x)
{
	struct walmodel all;
	crashfs_record(x->fs, true);
	walmodel_rebase(&all, &x->model, SIZE_MAX - 1);
	walmodel_fini(&x->model);
	x->model = all;
}

/* Flip one of the bits from..to of a file; all these bytes are to be kept. */
#define CLOSED_BYTES 32 /* a record without a payload */

static void flip(struct world *x, const char *segment, uint64_t at, uint64_t from, uint64_t to)
{
	char path[128];
	size_t n = 0;
	(void)snprintf(path, sizeof(path), "%s/%s", WORLD_DIR, segment);
	const uint8_t *old = crashfs_get(x->fs, path, &n);
	uint8_t *copy = malloc(n);
	if (old == NULL || copy == NULL)
		abort();
	memcpy(copy, old, n);
	copy[from + world_rand(x, to - from)] ^= (uint8_t)(1U << world_rand(x, 8));
	crashfs_put(x->fs, path, copy, n);
	free(x->kept);
	x->kept = copy;
	x->model.kept = copy + at;
	/* Zeros at the end of a file are no bytes of the log. */
	while (to == n && n > at && copy[n - 1] == 0)
		to = --n;
	x->model.kept_len = (size_t)(to - at);
}

void world_unclose(struct world *x)
{
	size_t n = 0;
	const uint8_t *old = crashfs_get(x->fs, WORLD_PATH, &n);
	uint8_t *copy = malloc(n);
	if (old == NULL || copy == NULL || n < CLOSED_BYTES)
		abort();
	memcpy(copy, old, n);
	crashfs_put(x->fs, WORLD_PATH, copy, n - CLOSED_BYTES);
	free(copy);
}

bool world_damage(struct world *x, bool last)
{
	struct places places = {0};
	struct sl_wal_scan_opts scan = {SL_WAL_SCAN_OPTS_INIT, .env = &x->env.env, .on_record = note_place,
					.ctx = &places};
	if (!note(x, sl_wal_scan(WORLD_PATH, &scan, NULL, &x->err)) || places.n < 2)
		return false;
	uint64_t kind = last ? 0 : world_rand(x, 3);
	size_t i = last ? places.n - 1 : kind < 2 ? 0 : (size_t)world_rand(x, places.n - 1);
	const uint64_t offset = places.at[i].offset, end = offset + places.at[i].length;
	if (kind == 1) {
		flip(x, places.at[i].segment, 0, 0, 16);
		return true;
	}
	/* Not its length field: with that gone, the place of the next record is not certain either. */
	flip(x, places.at[i].segment, offset, offset + 4, end);
	excuse(x, places.at[i].sequence);
	x->next_sequence -= last; /* of what is there now; the number is not free */
	return true;
}
