/* SPDX-License-Identifier: Apache-2.0 */
/* The judge: opens what is left at a crash point and holds it against the model, rule by rule (walmodel.h). */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "support/walmodel.h"
#include <sluice/dead_letter.h>

struct found {
	uint64_t sequence, id;
	enum sl_wal_status status;
	bool archived;
};

struct judge {
	const struct walmodel_case *c;
	struct crashfs *fs;
	struct walmodel_env env;
	struct sl_wal_opts opts;
	sl_wal *w;
	uint32_t incarnation;
	uint64_t holes;
	struct found *found; /* of the last look, log first, then archives */
	size_t n_found;
	bool in_archive; /* what is being collected */
	char *why;
};

static int bad(struct judge *j, const char *fmt, ...) SL_PRINTF(2, 3);
static int bad(struct judge *j, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	(void)vsnprintf(j->why, 512, fmt, args);
	va_end(args);
	return -1;
}

static int collect(const struct sl_wal_record *record, void *ctx)
{
	struct judge *j = ctx;
	uint64_t id = walmodel_id_of(record->payload, record->payload_len);
	unsigned long long sequence = (unsigned long long)record->sequence;
	if (id == 0)
		return bad(j, "record %llu of %s has a payload that was never submitted", sequence, record->segment);
	if (!j->in_archive && j->n_found != 0 && j->found[j->n_found - 1].sequence >= record->sequence)
		return bad(j, "record %llu comes after %llu", sequence,
			   (unsigned long long)j->found[j->n_found - 1].sequence);
	j->found = realloc(j->found, (j->n_found + 1) * sizeof(*j->found));
	if (j->found == NULL)
		abort();
	j->found[j->n_found++] = (struct found){record->sequence, id, record->status, j->in_archive};
	return 0;
}

static int open_log(struct judge *j, const char *when)
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_wal_stats st = {.struct_size = sizeof(st)};
	if (sl_wal_open(&j->w, j->c->id, &j->opts, &err) != 0)
		return bad(j, "does not open %s: %s", when, err.msg);
	if (sl_wal_get_stats(j->w, &st, &err) != 0)
		return bad(j, "no statistics: %s", err.msg);
	j->incarnation = st.incarnation;
	j->holes = st.holes;
	return 0;
}

static int close_log(struct judge *j, const char *when)
{
	struct sl_err err = SL_ERR_INIT;
	sl_wal *w = j->w;
	j->w = NULL;
	if (sl_wal_close(w, &err) != 0)
		return bad(j, "does not close %s: %s", when, err.msg);
	if (crashfs_open_files(j->fs) != 0)
		return bad(j, "%zu descriptors left %s", crashfs_open_files(j->fs), when);
	if (j->env.live_allocs != 0)
		return bad(j, "%zu allocations left %s", j->env.live_allocs, when);
	return 0;
}

static int look_in_archive(const char *name, void *ctx)
{
	struct judge *j = ctx;
	size_t n = strlen(name);
	if (n < 4 || strcmp(name + n - 4, ".zst") != 0 || strstr(name, "tmp") != NULL)
		return 0;
	char path[512];
	(void)snprintf(path, sizeof(path), "%s/%s", j->c->archive_dir, name);
	struct sl_wal_scan_opts scan = {SL_WAL_SCAN_OPTS_INIT, .env = &j->env.env, .key_file = j->opts.key_file,
					.on_record = collect, .ctx = j};
	struct sl_wal_stats st = {.struct_size = sizeof(st)};
	struct sl_err err = SL_ERR_INIT;
	int rc = sl_wal_scan(path, &scan, &st, &err);
	if (rc == -1 && j->why[0] != '\0')
		return -1;
	if (rc != 0 && !j->c->m->copied_archives)
		return bad(j, "archive %s cannot be read: %s", name, err.msg);
	return 0;
}

/* What the log and the archives hold now. */
static int look(struct judge *j, const char *when)
{
	struct sl_err err = SL_ERR_INIT;
	j->n_found = 0;
	j->in_archive = false;
	int rc = sl_wal_iterate(j->w, 0, collect, j, &err);
	if (rc != 0)
		return j->why[0] != '\0' ? -1 : bad(j, "cannot be read %s: %s", when, err.msg);
	j->in_archive = true;
	return j->c->archive_dir != NULL ? crashfs_each(j->fs, j->c->archive_dir, look_in_archive, j) : 0;
}

static const struct found *find(const struct judge *j, uint64_t sequence, uint64_t id)
{
	for (size_t i = 0; i < j->n_found; i++)
		if (j->found[i].id == id && (sequence == 0 || j->found[i].sequence == sequence))
			return &j->found[i];
	return NULL;
}

/* Rule 2. */
static int nothing_invented(struct judge *j)
{
	const struct walmodel *m = j->c->m;
	for (size_t i = 0; i < j->n_found; i++) {
		const struct found *f = &j->found[i];
		bool ok = false;
		for (size_t k = 0; k < m->n_entries && !ok; k++)
			ok = m->entries[k].id == f->id && m->entries[k].submitted_at <= j->c->point &&
			     m->entries[k].refused_at > j->c->point &&
			     (m->any_sequence || m->entries[k].sequence == f->sequence);
		if (!ok)
			return bad(j, "record %llu holds payload %llu, which was not submitted under it, or refused",
				   (unsigned long long)f->sequence, (unsigned long long)f->id);
	}
	return 0;
}

/* Rule 3. */
static int nothing_lost(struct judge *j)
{
	const struct walmodel *m = j->c->m;
	for (size_t k = 0; k < m->n_entries; k++) {
		const struct walmodel_entry *e = &m->entries[k];
		if (e->acked_at > j->c->point || e->excused)
			continue;
		if (find(j, m->any_sequence ? 0 : e->sequence, e->id) == NULL)
			return bad(j, "record %llu (payload %llu) was acknowledged and is lost",
				   (unsigned long long)e->sequence, (unsigned long long)e->id);
	}
	return 0;
}

/* Rule 4, of what is there. */
static int deliveries_stand(struct judge *j)
{
	const struct walmodel *m = j->c->m;
	for (size_t k = 0; k < m->n_deliveries; k++) {
		const struct walmodel_delivery *d = &m->deliveries[k];
		if (d->at > j->c->point || d->incarnation != j->incarnation || d->id == 0)
			continue;
		for (size_t i = 0; i < j->n_found; i++)
			if (!j->found[i].archived && j->found[i].sequence == d->sequence && j->found[i].id != d->id)
				return bad(j, "sequence %llu was delivered with payload %llu and holds %llu",
					   (unsigned long long)d->sequence, (unsigned long long)d->id,
					   (unsigned long long)j->found[i].id);
	}
	return 0;
}

static bool has_mark(const struct judge *j, const struct found *f)
{
	for (size_t i = 0; i < j->c->m->n_marks; i++) {
		const struct walmodel_mark *k = &j->c->m->marks[i];
		if (k->incarnation == j->incarnation && k->at <= j->c->point && k->status == f->status &&
		    k->first <= f->sequence && f->sequence <= k->last)
			return true;
	}
	return false;
}

static bool must_be_settled(const struct judge *j, const struct found *f)
{
	for (size_t i = 0; i < j->c->m->n_marks; i++) {
		const struct walmodel_mark *k = &j->c->m->marks[i];
		if (k->incarnation == j->incarnation && k->durable_at <= j->c->point && k->until > j->c->point &&
		    k->first <= f->sequence && f->sequence <= k->last)
			return true;
	}
	return false;
}

static int letter_is(const struct sl_dlq_letter *letter, void *ctx)
{
	uint64_t *wanted = ctx;
	if (letter->position == *wanted)
		*wanted = 0;
	return 0;
}

static int has_letter(struct judge *j, uint64_t sequence)
{
	struct sl_dlq_opts opts = {SL_DLQ_OPTS_INIT, .env = &j->env.env, .read_only = SL_ON};
	struct sl_err err = SL_ERR_INIT;
	sl_dlq *q = NULL;
	uint64_t wanted = sequence;
	int rc = sl_dlq_open(&q, j->opts.dead_letter_dir, &opts, &err);
	if (rc == 0)
		rc = sl_dlq_list(q, true, letter_is, &wanted, &err);
	sl_dlq_close(q);
	if (rc != 0 || wanted != 0)
		return bad(j, "record %llu is parked but not in the dead letters (%s)", (unsigned long long)sequence,
			   rc != 0 ? err.msg : "no such letter");
	return 0;
}

/* Rule 5. */
static int statuses_stand(struct judge *j)
{
	for (size_t i = 0; i < j->n_found && !j->c->m->any_sequence; i++) {
		const struct found *f = &j->found[i];
		if (f->archived)
			continue;
		if (f->status == SL_WAL_PENDING && must_be_settled(j, f))
			return bad(j, "record %llu is pending again", (unsigned long long)f->sequence);
		if (f->status != SL_WAL_PENDING && !has_mark(j, f))
			return bad(j, "record %llu has status %d, which it was never given",
				   (unsigned long long)f->sequence, (int)f->status);
		if (f->status == SL_WAL_FAILED && j->opts.dead_letter_dir != NULL && has_letter(j, f->sequence) != 0)
			return -1;
	}
	return 0;
}

static int kept_in(const char *name, void *ctx)
{
	struct judge *j = ctx;
	char path[512];
	size_t n;
	(void)snprintf(path, sizeof(path), "%s/%s", j->opts.wal_dir, name);
	const void *data = crashfs_get(j->fs, path, &n);
	return data != NULL && memmem(data, n, j->c->m->kept, j->c->m->kept_len) != NULL;
}

/* Rule 8. */
static int repaired_is_sound(struct judge *j)
{
	char path[512];
	if (j->c->m->sound_at > j->c->point)
		return 0;
	(void)snprintf(path, sizeof(path), "%s/%s.wal", j->opts.wal_dir, j->c->id);
	struct sl_wal_scan_opts scan = {SL_WAL_SCAN_OPTS_INIT, .env = &j->env.env};
	struct sl_wal_stats st = {.struct_size = sizeof(st)};
	struct sl_err err = SL_ERR_INIT;
	if (sl_wal_scan(path, &scan, &st, &err) != 0)
		return bad(j, "cannot be verified: %s", err.msg);
	return st.damaged_ranges == 0 ? 0 : bad(j, "what was repaired is damaged again");
}

static int damage_is_kept(struct judge *j)
{
	if (j->c->m->kept == NULL || crashfs_each(j->fs, j->opts.wal_dir, kept_in, j) == 1)
		return 0;
	return bad(j, "the damaged bytes are gone");
}

static int loss_is_declared(struct judge *j)
{
	const struct walmodel *m = j->c->m;
	uint64_t lost = 0;
	for (size_t k = 0; k < m->n_entries && !m->any_sequence; k++)
		lost += m->entries[k].excused && find(j, m->entries[k].sequence, m->entries[k].id) == NULL;
	return lost <= j->holes ? 0 : bad(j, "a record is gone that is not declared missing");
}

/* Rules 4 and 6: a new record, under a number that is free. */
static int append_one(struct judge *j, struct walmodel *m)
{
	uint8_t payload[WALMODEL_MAX_PAYLOAD];
	struct sl_err err = SL_ERR_INIT;
	uint64_t id = m->next_id++, sequence = 0;
	size_t n = walmodel_payload(id, payload);
	if (sl_wal_append(j->w, payload, n, &sequence, &err) != 0)
		return bad(j, "does not take a record after recovery: %s", err.msg);
	for (size_t i = 0; i < m->n_entries; i++)
		if (m->entries[i].incarnation == j->incarnation && m->entries[i].acked_at == 0 &&
		    m->entries[i].sequence == sequence)
			return bad(j, "sequence %llu was acknowledged and is given again",
				   (unsigned long long)sequence);
	for (size_t i = 0; i < m->n_deliveries; i++)
		if (m->deliveries[i].incarnation == j->incarnation && m->deliveries[i].sequence == sequence)
			return bad(j, "sequence %llu was delivered and is given again", (unsigned long long)sequence);
	walmodel_submit(m, j->incarnation, sequence, id, 0)->acked_at = 0;
	return 0;
}

static int send_rest(struct judge *j, struct walmodel *m)
{
	struct walmodel_receiver receiver = {.m = m};
	struct sl_err err = SL_ERR_INIT;
	if (sl_wal_sender_start(j->w, &walmodel_sender, &receiver, &err) != 0)
		return bad(j, "the sender does not start: %s", err.msg);
	if (sl_wal_sender_stop(j->w, SL_UNLIMITED, &err) != 0)
		return bad(j, "the sender does not deliver: %s%s", err.msg,
			   receiver.broken ? " (contradiction at the receiver)" : "");
	return receiver.broken ? bad(j, "the receiver got a contradiction") : 0;
}

static int all_rules(struct judge *j)
{
	if (nothing_invented(j) != 0 || nothing_lost(j) != 0 || deliveries_stand(j) != 0 || statuses_stand(j) != 0)
		return -1;
	return damage_is_kept(j) != 0 ? -1 : loss_is_declared(j);
}

/* The model of the second half: everything seen must stay. */
static void keep_what_was_found(struct judge *j, struct walmodel *m)
{
	for (size_t i = 0; i < j->n_found; i++)
		for (size_t k = 0; k < m->n_entries; k++)
			if (m->entries[k].id == j->found[i].id)
				m->entries[k].acked_at = 0;
}

static int second_half(struct judge *j, struct walmodel *m)
{
	keep_what_was_found(j, m);
	if (append_one(j, m) != 0 || (j->c->send && send_rest(j, m) != 0) || append_one(j, m) != 0)
		return -1;
	if (close_log(j, "after appending") != 0 || open_log(j, "a second time") != 0)
		return -1;
	struct walmodel_case again = *j->c;
	again.m = m;
	again.point = 0;
	j->c = &again;
	int rc = look(j, "a second time");
	if (rc == 0)
		rc = all_rules(j);
	if (rc == 0)
		rc = close_log(j, "in the end");
	return rc;
}

int walmodel_verify(const struct walmodel_case *c, struct crashfs *fs, char why[512])
{
	struct judge j = {.c = c, .fs = fs, .opts = c->opts, .why = why};
	struct walmodel after;
	why[0] = '\0';
	walmodel_env_init(&j.env, fs, 0x800000); /* far from the draws of a scenario */
	j.env.verbose = c->verbose;
	j.opts.env = &j.env.env;
	walmodel_rebase(&after, c->m, c->point);
	int rc = repaired_is_sound(&j);
	if (rc == 0)
		rc = open_log(&j, "after the crash");
	if (rc == 0)
		rc = look(&j, "after the crash");
	if (rc == 0)
		rc = all_rules(&j);
	if (rc == 0)
		rc = second_half(&j, &after);
	if (j.w != NULL)
		(void)sl_wal_close(j.w, NULL);
	free(j.found);
	walmodel_fini(&after);
	walmodel_env_fini(&j.env);
	return rc;
}
