/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Power loss under the local driver. Two handles, as of two processes, do what a seed says on a crash filesystem; then,
 * for every point of the history, states that a loss could leave there are rebuilt. In all of them:
 *
 *  1. What has a name is whole: one of the contents that were put there, but for an update that was on its way.
 *  2. What put, rename, remove and sync promised is there: no object is older than its last durable change.
 *  3. A rename has happened or not: the object has exactly one of the two names.
 *  4. A new handle can put and get.
 *
 * SLUICE_CRASH_STATES=N: how many states; the other variables are in support/crashloop.h.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdbool.h>

#include "support/crashloop.h"
#include <sluice/adapter/driver.h>

#define STEPS 14
#define NAMES 8
#define STATES_PER_POINT 24
#define NEVER SIZE_MAX
#define SMALL_LEN 1500
#define LARGE_LEN (64u << 10) /* of some scheduled puts and a little more: written around the page cache */
#define MAX_LEN (LARGE_LEN + SMALL_LEN)
#define LARGE_EVERY 8

/* What a name meant from some point on. */
struct change {
	int version;          /* of the contents; 0: no such object */
	size_t start;         /* point of the history when it was asked for */
	size_t durable;       /* when it was promised, NEVER before that */
	int scheduled_by;     /* handle whose sync promises it; -1: promised by the call itself */
	bool seen[2];         /* by a stat of that handle, whose sync promises it too */
	bool may_tear;        /* an update: torn until it is durable */
	const char *moved_to; /* a rename, of which this is the old name */
};

struct history {
	struct change changes[STEPS * 2];
	int n;
};

struct run {
	struct crashfs *fs;
	sl_driver handles[2];
	uint64_t seed, rnd;
	struct history names[NAMES];
	int versions;
};

static const char *const names[NAMES] = {"config",     "sessions/a", "sessions/b", "snapshots/a",
					 "packs/00/a", "packs/00/b", "packs/11/a", "index/deep/a"};

static uint64_t next_random(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

/* The contents of a version: their length and bytes follow from its number. */
static size_t length(int version, uint64_t *rnd)
{
	*rnd = (uint64_t)version * 0x9E3779B97F4A7C15u + 7;
	size_t n = next_random(rnd) % 3 == 0 ? next_random(rnd) % 20 : next_random(rnd) % SMALL_LEN;
	return version % LARGE_EVERY == 0 ? LARGE_LEN + n : n;
}

static size_t contents(int version, char out[MAX_LEN])
{
	uint64_t rnd;
	size_t n = length(version, &rnd);
	for (size_t i = 0; i < n; i++)
		out[i] = (char)('a' + next_random(&rnd) % 26);
	return n;
}

static bool is_version(int version, const void *bytes, size_t n)
{
	static char want[MAX_LEN];
	uint64_t rnd;
	return length(version, &rnd) == n && contents(version, want) == n && memcmp(want, bytes, n) == 0;
}

/* ---- a run ---- */

static struct change *now(struct run *r, int name)
{
	struct history *h = &r->names[name];
	return h->n > 0 ? &h->changes[h->n - 1] : NULL;
}

static int version_now(struct run *r, int name)
{
	const struct change *c = now(r, name);
	return c != NULL ? c->version : 0;
}

static bool is_promised(struct run *r, int name)
{
	const struct change *c = now(r, name);
	return c != NULL && c->version != 0 && c->durable != NEVER;
}

static struct change *add_change(struct run *r, int name, int version)
{
	struct history *h = &r->names[name];
	h->changes[h->n] = (struct change){
		.version = version, .start = crashfs_point(r->fs), .durable = NEVER, .scheduled_by = -1};
	return &h->changes[h->n++];
}

static void open_handle(struct crashfs *fs, sl_driver *out)
{
	const struct sl_env env = {SL_ENV_INIT, .io = &crashfs_io, .io_ctx = fs};
	struct sl_driver_local_opts opts = {SL_DRIVER_LOCAL_OPTS_INIT, .env = &env, .threads = 1, .create = SL_ON};
	struct sl_err err = SL_ERR_INIT;
	if (sl_driver_local_open(out, "/repo", &opts, &err) != 0)
		fail_msg("%s", err.msg);
}

static pthread_mutex_t done_mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done_cond = PTHREAD_COND_INITIALIZER;

static void note_done(const struct sl_err *err, void *ctx)
{
	(void)pthread_mutex_lock(&done_mu);
	*(int *)ctx = err == NULL ? 1 : -1;
	(void)pthread_cond_signal(&done_cond);
	(void)pthread_mutex_unlock(&done_mu);
}

static void schedule(struct run *r, int handle, int name)
{
	static _Alignas(4096) char bytes[MAX_LEN];
	int done = 0;
	size_t n = contents(++r->versions, bytes);
	const sl_driver *d = &r->handles[handle];
	add_change(r, name, r->versions)->scheduled_by = handle;
	assert_int_equal(d->ops->schedule_put(d->driver, names[name], bytes, n, note_done, &done, NULL), 0);
	(void)pthread_mutex_lock(&done_mu);
	while (done == 0)
		(void)pthread_cond_wait(&done_cond, &done_mu);
	(void)pthread_mutex_unlock(&done_mu);
	assert_int_equal(done, 1);
}

static void put(struct run *r, int handle, int name, enum sl_driver_put how)
{
	char bytes[MAX_LEN];
	size_t n = contents(++r->versions, bytes);
	const sl_driver *d = &r->handles[handle];
	struct change *c = add_change(r, name, r->versions);
	c->may_tear = how == SL_DRIVER_UPDATE;
	assert_int_equal(d->ops->put(d->driver, names[name], bytes, n, how, NULL), 0);
	c->durable = crashfs_point(r->fs);
}

static void sync_all(struct run *r, int handle)
{
	const sl_driver *d = &r->handles[handle];
	assert_int_equal(d->ops->sync(d->driver, NULL), 0);
	for (int i = 0; i < NAMES; i++) {
		struct change *c = now(r, i);
		if (c != NULL && c->durable == NEVER && (c->scheduled_by == handle || c->seen[handle]))
			c->durable = crashfs_point(r->fs);
	}
}

static void look_at(struct run *r, int handle, int name)
{
	struct sl_driver_stat st;
	const sl_driver *d = &r->handles[handle];
	struct change *c = now(r, name);
	int rc = d->ops->stat(d->driver, names[name], &st, NULL);
	assert_int_equal(rc, version_now(r, name) != 0 ? 0 : SL_ENOENT);
	if (rc == 0)
		c->seen[handle] = true;
}

/* Only of what is durable under its name, as sessions are. */
static void move(struct run *r, int handle, int from, int to)
{
	const sl_driver *d = &r->handles[handle];
	int version = version_now(r, from);
	if (!is_promised(r, from) || version_now(r, to) != 0)
		return;
	struct change *gone = add_change(r, from, 0), *come = add_change(r, to, version);
	gone->moved_to = names[to];
	assert_int_equal(d->ops->rename(d->driver, names[from], names[to], NULL), 0);
	gone->durable = come->durable = crashfs_point(r->fs);
}

static void step(struct run *r)
{
	int handle = (int)(next_random(&r->rnd) % 2), name = (int)(next_random(&r->rnd) % NAMES);
	bool there = version_now(r, name) != 0;
	switch (next_random(&r->rnd) % 10) {
	case 0:
	case 1:
	case 2:
		schedule(r, handle, name);
		break;
	case 3:
		put(r, handle, name, there ? SL_DRIVER_REPLACE : SL_DRIVER_NEW);
		break;
	case 4:
		put(r, handle, name, is_promised(r, name) ? SL_DRIVER_UPDATE : SL_DRIVER_REPLACE);
		break;
	case 5:
		move(r, handle, name, (int)(next_random(&r->rnd) % NAMES));
		break;
	case 6:
		if (there) {
			struct change *c = add_change(r, name, 0);
			assert_int_equal(r->handles[handle].ops->remove(r->handles[handle].driver, names[name], NULL),
					 0);
			c->durable = crashfs_point(r->fs);
		}
		break;
	case 7:
	case 8:
		look_at(r, handle, name);
		break;
	default:
		sync_all(r, handle);
		break;
	}
}

static void run_begin(struct run *r, uint64_t seed)
{
	*r = (struct run){.seed = seed, .rnd = seed * 0x9E3779B97F4A7C15u + 1, .fs = crashfs_new()};
	open_handle(r->fs, &r->handles[0]);
	open_handle(r->fs, &r->handles[1]);
	for (int i = 0; i < STEPS; i++)
		step(r);
	sync_all(r, 0);
	sync_all(r, 1);
	sl_driver_close(&r->handles[0]);
	sl_driver_close(&r->handles[1]);
}

/* ---- what is there ---- */

/* -1: nothing that was ever put. */
static int version_in(const struct run *r, const struct crashfs *state, int name)
{
	char path[64];
	size_t n = 0;
	(void)snprintf(path, sizeof(path), "/repo/%s", names[name]);
	const void *is = crashfs_get(state, path, &n);
	if (is == NULL)
		return 0;
	for (int v = r->versions; v > 0; v--)
		if (is_version(v, is, n))
			return v;
	return -1;
}

static int find_name(const char *name)
{
	for (int i = 0; i < NAMES; i++)
		if (strcmp(names[i], name) == 0)
			return i;
	abort();
}

static const char *judge_name(const struct run *r, const struct crashfs *state, size_t point, int name)
{
	const struct history *h = &r->names[name];
	int last = -1, is = version_in(r, state, name);
	for (int i = 0; i < h->n; i++)
		last = h->changes[i].durable <= point ? i : last;
	bool right = last < 0 ? is == 0 : is == h->changes[last].version;
	for (int i = last + 1; !right && i < h->n && h->changes[i].start <= point; i++)
		right = is == h->changes[i].version || h->changes[i].may_tear;
	if (right)
		return NULL;
	return is == -1  ? "what has a name is not whole"
	       : is == 0 ? "what was promised is gone"
			 : "a promised change is undone";
}

static const char *judge_moves(const struct run *r, const struct crashfs *state, size_t point)
{
	for (int name = 0; name < NAMES; name++) {
		const struct history *h = &r->names[name];
		for (int i = 1; i < h->n && h->changes[i].start <= point; i++) {
			const struct change *c = &h->changes[i];
			bool last = i + 1 == h->n || h->changes[i + 1].start > point;
			if (c->moved_to == NULL || c->durable <= point || !last)
				continue;
			int version = h->changes[i - 1].version;
			bool old = version_in(r, state, name) == version;
			bool new = version_in(r, state, find_name(c->moved_to)) == version;
			if (old == new)
				return old ? "a rename left both names" : "a rename left neither name";
		}
	}
	return NULL;
}

static const char *judge_going_on(struct crashfs *state)
{
	sl_driver d;
	char buf[8];
	size_t got = 0;
	open_handle(state, &d);
	const char *why = NULL;
	if (d.ops->put(d.driver, "packs/00/new", "new", 3, SL_DRIVER_NEW, NULL) != 0 ||
	    d.ops->get(d.driver, "packs/00/new", 0, buf, sizeof(buf), &got, NULL) != 0 || got != 3)
		why = "a new handle cannot put and get";
	sl_driver_close(&d);
	return why;
}

static const char *judge(const void *run, struct crashfs *state, size_t point)
{
	const struct run *r = run;
	const char *why = NULL;
	for (int name = 0; why == NULL && name < NAMES; name++)
		why = judge_name(r, state, point, name);
	if (why == NULL)
		why = judge_moves(r, state, point);
	return why == NULL ? judge_going_on(state) : why;
}

static void a_power_loss_leaves_whole_objects_and_all_that_was_promised(void **state)
{
	struct crashloop l = crashloop_begin("SLUICE_CRASH_STATES", NULL);
	(void)state;
	do {
		struct run r;
		run_begin(&r, l.seed);
		crashloop_judge(&l, r.fs, STATES_PER_POINT, judge, &r);
		crashfs_free(r.fs);
	} while (crashloop_continues(&l));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_power_loss_leaves_whole_objects_and_all_that_was_promised),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
