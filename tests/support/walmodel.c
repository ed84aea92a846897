/* SPDX-License-Identifier: Apache-2.0 */
#include "support/walmodel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void *grow(void *p, size_t n)
{
	p = realloc(p, n != 0 ? n : 1);
	if (p == NULL)
		abort();
	return p;
}

static uint64_t splitmix(uint64_t *s)
{
	uint64_t z = *s += 0x9E3779B97F4A7C15ULL;
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
	return z ^ (z >> 31);
}

/* ---- payloads ---- */

/* Most are short, some cross a few sectors. The number is in the first eight bytes. */
static size_t payload_len(uint64_t id)
{
	uint64_t s = id, r = splitmix(&s);
	uint64_t spread = r % 10 < 6 ? 112 : r % 10 < 9 ? 700 : 1500;
	return 8 + (size_t)(splitmix(&s) % spread);
}

size_t walmodel_payload(uint64_t id, uint8_t out[WALMODEL_MAX_PAYLOAD])
{
	size_t n = payload_len(id);
	uint64_t s = id * 77;
	memcpy(out, &id, 8);
	for (size_t i = 8; i < n; i += 8) {
		uint64_t v = splitmix(&s);
		memcpy(out + i, &v, n - i < 8 ? n - i : 8);
	}
	return n;
}

uint64_t walmodel_id_of(const void *payload, size_t n)
{
	uint8_t expected[WALMODEL_MAX_PAYLOAD];
	uint64_t id;
	if (n < sizeof(id))
		return 0;
	memcpy(&id, payload, sizeof(id));
	if (id == 0 || payload_len(id) != n)
		return 0;
	(void)walmodel_payload(id, expected);
	return memcmp(expected, payload, n) == 0 ? id : 0;
}

/* ---- facts ---- */

void walmodel_init(struct walmodel *m, uint64_t first_id)
{
	*m = (struct walmodel){.next_id = first_id, .sound_at = WALMODEL_NEVER};
	pthread_mutex_init(&m->mu, NULL);
}

void walmodel_fini(struct walmodel *m)
{
	free(m->entries);
	free(m->deliveries);
	free(m->marks);
	pthread_mutex_destroy(&m->mu);
}

static void deliver(struct walmodel *m, uint32_t incarnation, uint64_t sequence, uint64_t id, size_t at)
{
	m->deliveries = grow(m->deliveries, (m->n_deliveries + 1) * sizeof(*m->deliveries));
	m->deliveries[m->n_deliveries++] = (struct walmodel_delivery){incarnation, sequence, id, at};
}

struct walmodel_entry *walmodel_submit(struct walmodel *m, uint32_t incarnation, uint64_t sequence, uint64_t id,
				       size_t at)
{
	m->entries = grow(m->entries, (m->n_entries + 1) * sizeof(*m->entries));
	m->entries[m->n_entries] = (struct walmodel_entry){.incarnation = incarnation,
							   .sequence = sequence,
							   .id = id,
							   .submitted_at = at,
							   .acked_at = WALMODEL_NEVER,
							   .refused_at = WALMODEL_NEVER};
	return &m->entries[m->n_entries++];
}

void walmodel_mark(struct walmodel *m, uint32_t incarnation, uint64_t first, uint64_t last, enum sl_wal_status status,
		   size_t at)
{
	m->marks = grow(m->marks, (m->n_marks + 1) * sizeof(*m->marks));
	m->marks[m->n_marks++] =
		(struct walmodel_mark){incarnation, first, last, status, at, WALMODEL_NEVER, WALMODEL_NEVER, false};
}

void walmodel_marks_durable(struct walmodel *m, size_t at)
{
	for (size_t i = 0; i < m->n_marks; i++)
		if (m->marks[i].durable_at == WALMODEL_NEVER && !m->marks[i].forgettable)
			m->marks[i].durable_at = at;
}

void walmodel_marks_until(struct walmodel *m, size_t at)
{
	for (size_t i = 0; i < m->n_marks; i++)
		if (m->marks[i].until == WALMODEL_NEVER)
			m->marks[i].until = at;
}

void walmodel_marks_forgettable(struct walmodel *m)
{
	for (size_t i = 0; i < m->n_marks; i++)
		m->marks[i].forgettable |= m->marks[i].durable_at == WALMODEL_NEVER;
}

void walmodel_rebase(struct walmodel *to, const struct walmodel *from, size_t point)
{
	walmodel_init(to, from->next_id);
	to->any_sequence = from->any_sequence;
	to->copied_archives = from->copied_archives;
	to->kept = from->kept;
	to->kept_len = from->kept_len;
	to->sound_at = from->sound_at <= point ? 0 : WALMODEL_NEVER;
	for (size_t i = 0; i < from->n_entries; i++) {
		const struct walmodel_entry *e = &from->entries[i];
		if (e->submitted_at > point)
			continue;
		struct walmodel_entry *copy = walmodel_submit(to, e->incarnation, e->sequence, e->id, 0);
		copy->excused = e->excused;
		copy->acked_at = e->acked_at <= point ? 0 : WALMODEL_NEVER;
		copy->refused_at = e->refused_at <= point ? 0 : WALMODEL_NEVER;
	}
	for (size_t i = 0; i < from->n_deliveries; i++)
		if (from->deliveries[i].at <= point)
			deliver(to, from->deliveries[i].incarnation, from->deliveries[i].sequence,
				from->deliveries[i].id, 0);
	for (size_t i = 0; i < from->n_marks; i++) {
		const struct walmodel_mark *k = &from->marks[i];
		if (k->at > point)
			continue;
		walmodel_mark(to, k->incarnation, k->first, k->last, k->status, 0);
		if (k->durable_at <= point && k->until > point)
			to->marks[to->n_marks - 1].durable_at = 0;
	}
	walmodel_marks_forgettable(to);
}

/* ---- the receiver ---- */

static uint64_t receiver_mark(const struct walmodel *m, uint32_t incarnation)
{
	uint64_t mark = 0;
	for (size_t i = 0; i < m->n_deliveries; i++)
		if (m->deliveries[i].incarnation == incarnation && m->deliveries[i].sequence > mark)
			mark = m->deliveries[i].sequence;
	return mark;
}

void walmodel_deliver(struct walmodel *m, uint32_t incarnation, uint64_t first, uint64_t last, size_t at)
{
	uint64_t mark = receiver_mark(m, incarnation);
	if (first > mark + 1)
		return;
	for (uint64_t sequence = mark + 1; sequence <= last; sequence++)
		for (size_t i = 0; i < m->n_entries; i++)
			if (m->entries[i].incarnation == incarnation && m->entries[i].sequence == sequence &&
			    m->entries[i].acked_at <= at)
				deliver(m, incarnation, sequence, m->entries[i].id, at);
}

static const struct walmodel_delivery *delivered(const struct walmodel *m, uint32_t incarnation, uint64_t sequence)
{
	for (size_t i = 0; i < m->n_deliveries; i++)
		if (m->deliveries[i].incarnation == incarnation && m->deliveries[i].sequence == sequence &&
		    m->deliveries[i].id != 0)
			return &m->deliveries[i];
	return NULL;
}

static void take_skipped(struct walmodel_receiver *r, const struct sl_wal_batch *b, uint64_t *mark, size_t at)
{
	for (size_t i = 0; i < b->n_skipped; i++)
		if (b->skipped[i].first <= *mark + 1 && b->skipped[i].last > *mark) {
			*mark = b->skipped[i].last;
			deliver(r->m, b->incarnation, *mark, 0, at);
			/* A crash may forget that it was parked; then the receiver's mark speaks for it. */
			walmodel_mark(r->m, b->incarnation, b->skipped[i].first, *mark, SL_WAL_SENT, at);
		}
}

static int take_record(struct walmodel_receiver *r, const struct sl_wal_batch *b, const struct sl_wal_record *record,
		       uint64_t *mark, size_t at)
{
	uint64_t id = walmodel_id_of(record->payload, record->payload_len);
	const struct walmodel_delivery *known = delivered(r->m, b->incarnation, record->sequence);
	if (id == 0 || (known != NULL && known->id != id)) {
		r->broken = true;
		return SL_ECONFLICT;
	}
	if (record->sequence == r->refuse && r->name_refused)
		return SL_EREFUSED;
	if (record->sequence == *mark + 1) {
		*mark = record->sequence;
		deliver(r->m, b->incarnation, *mark, id, at);
		walmodel_mark(r->m, b->incarnation, *mark, *mark, SL_WAL_SENT, at);
	}
	return 0;
}

static int receive(struct walmodel_receiver *r, const struct sl_wal_batch *b, struct sl_wal_reply *reply, size_t at)
{
	uint64_t mark = receiver_mark(r->m, b->incarnation);
	int rc = 0;
	for (size_t i = 0; i < b->n_records && r->refuse != 0 && !r->name_refused; i++)
		if (b->records[i].sequence == r->refuse && b->records[i].sequence > mark)
			rc = SL_EREFUSED;
	for (size_t i = 0; i < b->n_records && rc == 0; i++) {
		take_skipped(r, b, &mark, at);
		rc = take_record(r, b, &b->records[i], &mark, at);
	}
	if (rc == 0)
		take_skipped(r, b, &mark, at);
	if (rc == SL_EREFUSED) {
		reply->refused = r->name_refused ? r->refuse : 0;
		walmodel_mark(r->m, b->incarnation, r->refuse, r->refuse, SL_WAL_FAILED, at);
	}
	reply->mark = mark;
	return rc;
}

static int model_send(const struct sl_wal_batch *batch, struct sl_wal_reply *reply, struct sl_err *err, void *ctx)
{
	struct walmodel_receiver *r = ctx;
	size_t at = r->fs != NULL ? crashfs_point(r->fs) : 0;
	pthread_mutex_lock(&r->m->mu);
	r->batches++;
	int rc;
	if (r->fail_next != 0) {
		r->fail_next--;
		rc = SL_EUNAVAIL;
	} else {
		rc = receive(r, batch, reply, at);
	}
	pthread_mutex_unlock(&r->m->mu);
	return rc != 0 ? sl_err_set(err, rc, "the receiver says so") : 0;
}

const struct sl_wal_sender walmodel_sender = {.version = SL_WAL_SENDER_VERSION, .send = model_send};

/* ---- the environment ---- */

static int env_fill(void *buf, size_t n, void *ctx)
{
	struct walmodel_env *e = ctx;
	uint8_t *p = buf;
	uint64_t draw = __atomic_add_fetch(&e->rand_state, 1, __ATOMIC_RELAXED), s = draw;
	uint64_t v = draw * 0x9E3779B1; /* odd: the low 24 bits of 2^24 draws are all different */
	for (size_t i = 0; i < n; i += 8) {
		memcpy(p + i, &v, n - i < 8 ? n - i : 8);
		v = splitmix(&s);
	}
	return 0;
}

static void *env_alloc(size_t size, void *ctx)
{
	struct walmodel_env *e = ctx;
	void *p = malloc(size);
	if (p != NULL)
		__atomic_add_fetch(&e->live_allocs, 1, __ATOMIC_RELAXED);
	return p;
}

static void *env_resize(void *p, size_t size, void *ctx)
{
	return p == NULL ? env_alloc(size, ctx) : realloc(p, size);
}

static void env_release(void *p, void *ctx)
{
	struct walmodel_env *e = ctx;
	if (p != NULL)
		__atomic_sub_fetch(&e->live_allocs, 1, __ATOMIC_RELAXED);
	free(p);
}

static void env_log(const struct sl_log_record *record, void *ctx)
{
	struct walmodel_env *e = ctx;
	e->warnings += record->level == SL_LOG_WARN;
	e->errors += record->level == SL_LOG_ERROR;
	if (e->verbose) {
		char line[1024];
		(void)sl_log_format(record, SL_LOG_LOGFMT, line, sizeof(line));
		printf("#   %s\n", line);
	}
}

static int64_t env_mono(void *ctx)
{
	return vclock_table.mono_ns(&((struct walmodel_env *)ctx)->clock);
}

static int64_t env_real(void *ctx)
{
	return vclock_table.real_ms(&((struct walmodel_env *)ctx)->clock);
}

static int env_wait(pthread_cond_t *cond, pthread_mutex_t *mu, int64_t deadline_ns, void *ctx)
{
	struct walmodel_env *e = ctx;
	int rc = vclock_table.wait(cond, mu, deadline_ns, &e->clock);
	if (e->on_late != NULL && env_mono(e) > e->late_ns)
		e->on_late(e->on_late_ctx);
	return rc;
}

void walmodel_env_init(struct walmodel_env *e, struct crashfs *fs, uint64_t seed)
{
	static const struct sl_rand rand_table = {.version = SL_RAND_VERSION, .fill = env_fill};
	static const struct sl_mem mem_table = {
		.version = SL_MEM_VERSION, .alloc = env_alloc, .resize = env_resize, .release = env_release};
	static const struct sl_clock clock_table = {
		.version = SL_CLOCK_VERSION, .mono_ns = env_mono, .real_ms = env_real, .wait = env_wait};
	memset(e, 0, sizeof(*e));
	vclock_init(&e->clock);
	e->clock.auto_advance = 1;
	e->fs = fs;
	e->rand_state = seed;
	e->env = (struct sl_env){SL_ENV_INIT,    .io = &crashfs_io, .io_ctx = fs, .clock = &clock_table,
				 .clock_ctx = e, .mem = &mem_table, .mem_ctx = e, .rand = &rand_table,
				 .rand_ctx = e,  .log = env_log,    .log_ctx = e};
}

void walmodel_env_fini(struct walmodel_env *e)
{
	vclock_fini(&e->clock);
}
