/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Following a job's events as server-sent events.
 *
 * Those who follow the same job share a topic: a window of pieces of text, each with the events of one read. One thread
 * reads, for topics of which a follower has sent all events and may have new ones; all of these followers then
 * send the same piece. A follower outside the window (it is new, or reads slowly) reads separately, up to the end
 * of the window, and joins the others there.
 *
 *        pieces of the window, WINDOW_BYTES at most         tail
 *   ────┬───────────┬──────────────┬─────────────────────────┤
 *       │           ▲ a follower   ▲ another                 ▲ hungry ones: the next read is for them
 *       └ before: read for oneself
 *
 * A topic is read when this process has taken events of its job, and every second, because other processes write
 * events as well.
 *
 * Invariants
 *  1. The pieces of a topic follow each other, and the last one ends at its tail.
 *  2. A follower holds one piece at a time: memory is bounded by the window and one piece each, however slow he is.
 *  3. A stream is woken only while its follower is in the topic's list, which leave_topic does under the same lock.
 */
#include "server/api/api.h"
#include "server/ingest/ingest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 256
#define WINDOW_BYTES ((size_t)256 * 1024)
#define LOOK_MS 1000

/* Events as server-sent text, shared by those who follow a job. */
struct srv_piece {
	struct srv_piece *next;
	unsigned refs; /* the hub's lock */
	uint64_t after, upto;
	size_t len;
	char text[];
};

#define PIECE_ROWS 512
#define PIECE_BYTES ((size_t)128 * 1024)
#define ENOUGH 1 /* stops a read */

struct reading {
	uint64_t job_id, after;
	uint64_t upto; /* not past this; 0: no bound */
	bool more;     /* there may be more after the last one */
	struct srv_out out;
	uint64_t last; /* offset */
	size_t rows;
};

static int add_to_piece(const struct sl_event_row *e, void *ctx)
{
	struct reading *x = ctx;
	if (x->upto != 0 && e->offset > x->upto)
		return ENOUGH;
	(void)sl__buf_printf(&x->out.text, "id: %" PRIu64 "\ndata: ", e->offset);
	x->out.comma = false;
	srv_out_event(&x->out, e);
	int rc = sl__buf_append(&x->out.text, "\n\n", 2);
	if (rc != 0)
		return rc;
	x->last = e->offset;
	x->rows++;
	return x->out.text.len >= PIECE_BYTES ? ENOUGH : 0;
}

/* The events of x's job after x->after, in *out; NULL there: none. */
static int read_piece(const struct srv_core *core, struct reading *x, struct srv_piece **out)
{
	const sl_store *store = core->store;
	struct sl_err err = SL_ERR_INIT;
	*out = NULL;
	x->out.text.env = &sl__env_real;
	int rc = store->ops->events_read(store->ctx, x->job_id, x->after, PIECE_ROWS, add_to_piece, x, &err);
	x->more = rc == ENOUGH || x->rows == PIECE_ROWS;
	if ((rc == 0 || rc == ENOUGH) && x->rows > 0) {
		const struct sl__buf *text = &x->out.text;
		struct srv_piece *p = malloc(sizeof(*p) + text->len);
		if (p != NULL) {
			*p = (struct srv_piece){.refs = 1, .after = x->after, .upto = x->last, .len = text->len};
			memcpy(p->text, text->data, text->len);
		}
		*out = p;
		rc = p != NULL ? 0 : SL_ENOMEM;
	}
	srv_out_free(&x->out);
	return rc == ENOUGH ? 0 : rc;
}

static void srv_piece_drop(struct srv_piece *p)
{
	if (p != NULL && --p->refs == 0)
		free(p);
}

struct follower {
	struct srv_follow *hub;
	struct topic *topic;
	struct follower *prev, *next;
	srv_stream *stream; /* NULL before the first fill */
	uint64_t at;        /* everything up to here was sent */
	struct srv_piece *piece;
	size_t sent; /* of the piece */
	bool hungry;
};

struct topic {
	struct topic *next;
	uint64_t job_id;
	uint64_t tail;
	struct srv_piece *first, *last;
	size_t bytes;
	struct follower *followers;
	bool dirty; /* there may be more after the tail */
};

struct srv_follow {
	struct srv_core *core;
	sl__mutex mu;
	sl__cond wake;
	struct topic *buckets[BUCKETS];
	size_t n_topics;
	bool stop, started, work;
	pthread_t reader;
	sl_gauge *gauge;
};

/* ---- topics; the hub's lock is held ---- */

static struct topic **topic_at(struct srv_follow *f, uint64_t job_id)
{
	struct topic **at = &f->buckets[job_id % BUCKETS];
	while (*at != NULL && (*at)->job_id != job_id)
		at = &(*at)->next;
	return at;
}

static void call_reader(struct srv_follow *f)
{
	f->work = true;
	sl__signal(&f->wake);
}

/* ---- the reader ---- */

/* One that may have new events, and a hungry follower. */
static struct topic *next_dirty(struct srv_follow *f)
{
	for (size_t i = 0; i < BUCKETS; i++)
		for (struct topic *t = f->buckets[i]; t != NULL; t = t->next)
			for (const struct follower *w = t->followers; t->dirty && w != NULL; w = w->next)
				if (w->hungry)
					return t;
	return NULL;
}

/* Called and returns with the lock. The topic may be gone, or have grown, when the read comes back. */
static void read_topic(struct srv_follow *f, struct topic *t) SL_REQUIRES(f->mu)
{
	struct reading x = {.job_id = t->job_id, .after = t->tail};
	struct srv_piece *p;
	t->dirty = false;
	sl__unlock(&f->mu);
	(void)read_piece(f->core, &x, &p);
	sl__lock(&f->mu);
	t = *topic_at(f, x.job_id);
	if (t == NULL || t->tail != x.after || p == NULL) {
		srv_piece_drop(p);
		/* What could not be read is looked for again with the next look. */
		return;
	}
	t->dirty |= x.more;
	if (t->last != NULL)
		t->last->next = p;
	else
		t->first = p;
	t->last = p;
	t->tail = p->upto;
	t->bytes += p->len;
	/* Drop the oldest pieces beyond the window. */
	while (t->bytes > WINDOW_BYTES && t->first != t->last) {
		struct srv_piece *old = t->first;
		t->first = old->next;
		t->bytes -= old->len;
		srv_piece_drop(old);
	}
	/* Wake those who wait for it. */
	for (struct follower *w = t->followers; w != NULL; w = w->next) {
		if (!w->hungry)
			continue;
		w->hungry = false;
		srv_stream_wake(w->stream);
	}
}

static void *reader_main(void *ctx)
{
	struct srv_follow *f = ctx;
	int64_t look_at = 0;
	sl__lock(&f->mu);
	while (!f->stop) {
		int64_t now = sl__mono_ns(f->core->env);
		struct topic *t;
		if (f->n_topics > 0 && now >= look_at) {
			for (size_t i = 0; i < BUCKETS; i++)
				for (t = f->buckets[i]; t != NULL; t = t->next)
					t->dirty = true;
			look_at = now + (int64_t)LOOK_MS * 1000000;
		}
		f->work = false;
		while (!f->stop && (t = next_dirty(f)) != NULL)
			read_topic(f, t);
		if (!f->stop && !f->work)
			(void)sl__wait(f->core->env, &f->wake, &f->mu, f->n_topics > 0 ? look_at : SL_FOREVER);
	}
	sl__unlock(&f->mu);
	return NULL;
}

void srv_follow_poke(struct srv_follow *f, const struct sl_event_row *rows, size_t n)
{
	uint64_t before = 0;
	bool any = false;
	sl__lock(&f->mu);
	for (size_t i = 0; f->n_topics > 0 && i < n; i++) {
		struct topic *t = rows[i].job_id != before ? *topic_at(f, rows[i].job_id) : NULL;
		before = rows[i].job_id;
		if (t != NULL)
			t->dirty = any = true;
	}
	if (any)
		call_reader(f);
	sl__unlock(&f->mu);
}

/* ---- followers ---- */

/* Called and returns with the lock. false: the store could not be read. */
static bool catch_up(struct follower *w) SL_NO_TSA
{
	struct srv_follow *f = w->hub;
	struct reading x = {.job_id = w->topic->job_id, .after = w->at, .upto = w->topic->tail};
	struct srv_piece *p;
	sl__unlock(&f->mu);
	int rc = read_piece(f->core, &x, &p);
	sl__lock(&f->mu);
	w->piece = p;
	if (rc == 0 && p == NULL)
		w->at = x.upto; /* nothing is left of it: the job was deleted, or never had any */
	return rc == 0;
}

/* false: nothing to send now. */
static bool next_piece(struct follower *w)
{
	struct topic *t = w->topic;
	while (w->piece == NULL) {
		struct srv_piece *p = t->first;
		while (p != NULL && p->after != w->at)
			p = p->next;
		if (p != NULL) { /* it begins where the follower is */
			p->refs++;
			w->piece = p;
		} else if (w->at >= t->tail) {
			w->hungry = true;
			if (t->dirty)
				call_reader(w->hub);
			return false;
		} else if (!catch_up(w)) {
			/* The reader's next look finds the store again, or not. */
			w->hungry = true;
			return false;
		}
	}
	w->sent = 0;
	return true;
}

static ssize_t fill_from_pieces(srv_stream *s, char *buf, size_t cap, void *ctx)
{
	struct follower *w = ctx;
	struct srv_follow *f = w->hub;
	size_t got = 0;
	sl__lock(&f->mu);
	w->stream = s;
	w->hungry = false;
	while (got < cap && (w->piece != NULL || next_piece(w))) {
		size_t n = w->piece->len - w->sent;
		n = n < cap - got ? n : cap - got;
		memcpy(buf + got, w->piece->text + w->sent, n);
		w->sent += n;
		got += n;
		if (w->sent == w->piece->len) {
			w->at = w->piece->upto;
			srv_piece_drop(w->piece);
			w->piece = NULL;
		}
	}
	/* Who has something to send comes again by himself. */
	w->hungry &= got == 0;
	sl__unlock(&f->mu);
	return (ssize_t)got;
}

static void leave_topic(void *ctx)
{
	struct follower *w = ctx;
	struct srv_follow *f = w->hub;
	sl__lock(&f->mu);
	*(w->prev != NULL ? &w->prev->next : &w->topic->followers) = w->next;
	if (w->next != NULL)
		w->next->prev = w->prev;
	/* The last follower takes the topic with it. */
	if (w->topic->followers == NULL) {
		*topic_at(f, w->topic->job_id) = w->topic->next;
		for (struct srv_piece *p = w->topic->first, *next; p != NULL; p = next) {
			next = p->next;
			srv_piece_drop(p);
		}
		f->n_topics--;
		free(w->topic);
	}
	srv_piece_drop(w->piece);
	sl__unlock(&f->mu);
	sl_gauge_add(f->gauge, -1);
	free(w);
}

static struct follower *join(struct srv_follow *f, uint64_t job_id, uint64_t at)
{
	struct follower *w = calloc(1, sizeof(*w));
	if (w == NULL)
		return NULL;
	w->hub = f;
	w->at = at;
	sl__lock(&f->mu);
	struct topic **slot = topic_at(f, job_id);
	if (*slot == NULL && (*slot = calloc(1, sizeof(**slot))) != NULL) {
		/* A new topic begins where its first follower is. */
		**slot = (struct topic){.job_id = job_id, .tail = at, .dirty = true};
		/* The reader looks every second from now on. */
		if (f->n_topics++ == 0)
			call_reader(f);
	}
	w->topic = *slot;
	if (w->topic != NULL) {
		w->next = w->topic->followers;
		if (w->next != NULL)
			w->next->prev = w;
		w->topic->followers = w;
	}
	sl__unlock(&f->mu);
	if (w->topic == NULL) {
		free(w);
		return NULL;
	}
	sl_gauge_add(f->gauge, 1);
	return w;
}

/* ---- GET /api/v1/jobs/{id}/events/stream ---- */

static int ignore_job(const struct sl_job *job, void *ctx)
{
	(void)job;
	(void)ctx;
	return 0;
}

static void follow_job(srv_request *r, void *ctx)
{
	static const struct srv_stream_ops ops = {.fill = fill_from_pieces, .done = leave_topic};
	struct srv_follow *f = ctx;
	const sl_store *store = f->core->store;
	const char *last = srv_header(r, "Last-Event-ID");
	struct sl_err err = SL_ERR_INIT;
	uint64_t id, after = 0;
	if (!srv_number_parse(srv_param(r, "id"), INT64_MAX, &id) || id == 0) {
		srv_error(r, 400, "invalid", "id: must be a number");
		return;
	}
	const char *from = last != NULL && *last != '\0' ? last : srv_query(r, "after");
	if (from != NULL && !srv_number_parse(from, INT64_MAX, &after)) {
		srv_error(r, 400, "invalid", "%s: must be an offset", last != NULL ? "Last-Event-ID" : "after");
		return;
	}
	if (store->ops->get_job(store->ctx, NULL, id, ignore_job, NULL, &err) != 0) {
		srv_fail(r, &err);
		return;
	}
	struct follower *w = join(f, id, after);
	if (w == NULL)
		srv_error(r, 503, "busy", "out of memory");
	else
		srv_stream_open(r, &ops, w);
}

int srv_follow_add(srv_http *h, struct srv_follow *f, struct sl_err *err)
{
	static const struct srv_route routes[] = {
		{"GET", "/api/v1/jobs/{id}/events/stream", SRV_READ, 0, follow_job, NULL},
	};
	return srv_http_add(h, routes, SL_COUNT(routes), f, err);
}

/* ---- the hub ---- */

int srv_follow_new(struct srv_follow **out, struct srv_core *core, struct sl_err *err)
{
	struct srv_follow *f = calloc(1, sizeof(*f));
	if (f == NULL)
		return sl__no_memory(err, "followers");
	f->core = core;
	sl__mutex_init(&f->mu);
	sl__cond_init(&f->wake);
	int rc = sl_metrics_gauge(core->metrics, "sluice_event_followers", "Clients following the events of a job.",
				  NULL, 0, &f->gauge, err);
	int failed = rc == 0 ? sl__thread_start(&f->reader, "follow", reader_main, f) : 0;
	f->started = rc == 0 && failed == 0;
	if (failed != 0)
		rc = sl__thread_error(err, failed, "event reader", "the server");
	if (rc != 0)
		srv_follow_free(f);
	else
		*out = f;
	return rc;
}

void srv_follow_free(struct srv_follow *f)
{
	if (f == NULL)
		return;
	sl__lock(&f->mu);
	f->stop = true;
	sl__broadcast(&f->wake);
	sl__unlock(&f->mu);
	if (f->started)
		(void)pthread_join(f->reader, NULL);
	sl__cond_fini(&f->wake);
	sl__mutex_fini(&f->mu);
	free(f);
}
