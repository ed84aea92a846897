/* SPDX-License-Identifier: Apache-2.0 */
/* What is done to a log while the power may fail at any moment. A scenario stops at the first step that fails; only a
 * process that is made to die has failing steps. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "world.h"

#define TRY(step)                                                                                                      \
	do {                                                                                                           \
		if (!(step))                                                                                           \
			return;                                                                                        \
	} while (0)

static void append_some(struct world *x, size_t n)
{
	for (size_t i = 0; i < n && x->rc == 0; i++)
		(void)world_append(x);
}

static void mark_all(struct world *x)
{
	if (x->rc == 0 && x->next_sequence > 1)
		(void)world_mark_sent(x, 1, x->next_sequence - 1);
}

/* Until the log has n segments, the last of them with records. */
static void fill_segments(struct world *x, uint64_t n)
{
	while (x->rc == 0 && world_append_many(x, 8) && world_stats(x).segments < n)
		;
}

static void run_append(struct world *x)
{
	TRY(world_open(x));
	append_some(x, 4 + world_rand(x, 4));
}

static void run_append_many(struct world *x)
{
	TRY(world_open(x));
	TRY(world_append_many(x, 2 + world_rand(x, 5)));
	TRY(world_append(x));
	TRY(world_append_many(x, 1 + world_rand(x, 3)));
}

static void run_tickets(struct world *x)
{
	TRY(world_open(x));
	TRY(world_tickets(x, 3 + world_rand(x, 5)));
	TRY(world_append(x));
	TRY(world_tickets(x, 2));
}

static void run_rotate(struct world *x)
{
	x->opts.segment_bytes = 4096;
	TRY(world_open(x));
	for (uint64_t i = 0; i < 5 && x->rc == 0; i++)
		(void)(world_rand(x, 2) != 0 ? world_append(x) : world_append_many(x, 7));
	append_some(x, 2);
}

static void run_sent(struct world *x)
{
	x->opts.segment_bytes = 4096;
	TRY(world_open(x));
	append_some(x, 5);
	TRY(x->rc == 0 && world_mark_sent(x, 1, 2));
	TRY(world_mark_sent(x, 4, 4));
	append_some(x, 3);
	mark_all(x);
	append_some(x, 2);
	TRY(x->rc == 0 && world_close(x));
	TRY(world_open(x));
	append_some(x, 2);
}

static void run_close(struct world *x)
{
	for (int i = 0; i < 3 && x->rc == 0; i++) {
		TRY(world_open(x));
		append_some(x, 2);
		TRY(x->rc == 0 && world_mark_sent(x, x->next_sequence - 1, x->next_sequence - 1));
		TRY(world_close(x));
	}
}

static void burst(struct world *x)
{
	if (world_open(x))
		for (int i = 0; i < 8 && x->rc == 0; i++)
			(void)world_append_many(x, 1 + world_rand(x, 4));
}

/* Do burst, and die in the middle of it: often just before a sync or after a rename, which is when most is at stake.
 */
static void die_in_a_burst(struct world *x)
{
	struct world dry;
	uint64_t seed = world_rand(x, UINT32_MAX), coin = world_rand(x, 4), where = world_rand(x, UINT32_MAX);
	world_init(&dry, seed, NULL, NULL);
	dry.opts.segment_bytes = x->opts.segment_bytes;
	dry.opts.prepare_max_bytes = x->opts.prepare_max_bytes;
	dry.model.next_id = x->model.next_id;
	dry.rng = x->rng = seed;
	burst(&dry);
	size_t at = (size_t)where % crashfs_point(dry.fs);
	if (coin == 1)
		at = crashfs_next_rename(dry.fs, at) + 1;
	else if (coin > 1)
		at = crashfs_next_sync(dry.fs, at);
	crashfs_stop_at(x->fs, at);
	world_fini(&dry);
	burst(x);
	world_die(x);
	x->rc = 0;
}

/* A process dies somewhere, with changes that are not durable; the next one finds them in the page cache, recovers, and
 * sends. What was sent must survive a power loss. */
static void run_send_after_recovery(struct world *x)
{
	x->opts.segment_bytes = 4096;
	die_in_a_burst(x);
	TRY(world_open(x));
	TRY(world_send(x));
	append_some(x, 2);
	TRY(x->rc == 0 && world_send(x));
	TRY(world_close(x));
}

static void run_send(struct world *x)
{
	x->opts.segment_bytes = 4096;
	TRY(world_open(x));
	append_some(x, 4);
	x->receiver.fail_next = (uint32_t)world_rand(x, 3);
	TRY(x->rc == 0 && world_send(x));
	append_some(x, 5);
	TRY(x->rc == 0 && world_send(x));
}

/* A record is refused and parked: its letter is durable before it is skipped. */
static void run_refused(struct world *x)
{
	TRY(world_open(x));
	append_some(x, 4);
	x->receiver.refuse = 1 + world_rand(x, 4);
	x->receiver.name_refused = world_rand(x, 2) != 0;
	TRY(x->rc == 0 && world_send(x));
	append_some(x, 2);
	TRY(x->rc == 0 && world_send(x));
	TRY(world_close(x));
}

static void run_archive(struct world *x)
{
	x->opts.segment_bytes = 4096;
	TRY(world_open(x));
	fill_segments(x, 1 + world_rand(x, 3));
	mark_all(x);
	if (world_rand(x, 2) != 0) {
		TRY(x->rc == 0 && world_archive(x, false));
		TRY(world_close(x));
	} else {
		TRY(x->rc == 0 && world_close(x));
		TRY(world_archive_path(x, false));
	}
	/* The same name again, by another incarnation, with records pending. */
	TRY(world_open(x));
	append_some(x, 2);
	TRY(x->rc == 0 && world_close(x));
	TRY(world_archive_path(x, true));
}

/* The archive was copied into its folder before; the copy may still be in the page cache only. */
static void copy_archive(struct world *x, const uint8_t *data, size_t n)
{
	int fd = crashfs_io.open(WORLD_ARCHIVE "/s.wal.zst", O_WRONLY | O_CREAT, 0600, x->fs);
	if (fd < 0 || crashfs_io.pwrite(fd, data, n, 0, x->fs) != (ssize_t)n || crashfs_io.close(fd, x->fs) != 0)
		abort();
}

static void archive_again(struct world *x, const uint8_t *log, size_t log_len)
{
	size_t n;
	TRY(world_archive_path(x, false));
	const uint8_t *archive = crashfs_get(x->fs, WORLD_ARCHIVE "/s.wal.zst", &n);
	uint8_t *copy = malloc(n);
	if (archive == NULL || copy == NULL || crashfs_io.unlink(WORLD_ARCHIVE "/s.wal.zst", x->fs) != 0)
		abort();
	memcpy(copy, archive, n);
	crashfs_put(x->fs, WORLD_PATH, log, log_len);
	world_record(x);
	x->model.copied_archives = true;
	copy_archive(x, copy, n);
	free(copy);
	TRY(world_archive_path(x, false));
	TRY(world_open(x));
	append_some(x, 1);
}

static void run_copied(struct world *x)
{
	size_t n;
	crashfs_record(x->fs, false);
	TRY(world_open(x));
	append_some(x, 3);
	mark_all(x);
	TRY(x->rc == 0 && world_close(x));
	const uint8_t *log = crashfs_get(x->fs, WORLD_PATH, &n);
	uint8_t *copy = malloc(n);
	if (log == NULL || copy == NULL)
		abort();
	memcpy(copy, log, n);
	archive_again(x, copy, n);
	free(copy);
}

/* A flush that a full disk cuts short: what the log refused is not there later. */
static void run_full(struct world *x)
{
	x->opts.prepare_max_bytes = SL_NONE;
	TRY(world_open(x));
	append_some(x, 2);
	TRY(x->rc == 0);
	if (x->fault == NULL) { /* which makes its own full disks */
		crashfs_quota(x->fs, crashfs_used(x->fs) + 40 + world_rand(x, 800));
		if (!world_append_many(x, 6) && x->rc == SL_ENOSPC) {
			world_refused(x, 6);
			x->rc = 0;
		}
		crashfs_quota(x->fs, SIZE_MAX);
	}
	append_some(x, 2);
	TRY(x->rc == 0 && world_close(x));
}

/* A flush whose sync fails: the log takes nothing more, and what it refused is not there later, with and without a
 * power loss before it is opened again. */
static void run_poisoned(struct world *x)
{
	TRY(world_open(x));
	append_some(x, 2);
	TRY(x->rc == 0);
	if (x->fault == NULL) { /* which fails syncs itself */
		crashfs_fail_syncs(x->fs, 1);
		if (!world_append_many(x, 3) && x->rc == SL_EIO) {
			world_refused(x, 3);
			x->rc = 0;
		}
		TRY(x->rc == 0);
		world_die(x);
		TRY(world_open(x));
	}
	append_some(x, 2);
	TRY(x->rc == 0 && world_close(x));
}

/* Sealed segments that are settled are archived one by one while the log is in use. */
static void run_settled(struct world *x)
{
	x->opts.segment_bytes = 4096;
	x->opts.archive_on_complete = SL_ON;
	TRY(world_open(x));
	for (int i = 0; i < 4 && x->rc == 0; i++) {
		(void)world_append_many(x, 6);
		TRY(x->rc == 0 && world_send(x));
	}
	TRY(world_close(x));
	TRY(world_open(x));
	append_some(x, 2);
}

/* The state that a crash left is recovered, and that recovery crashes as well. */
static void run_recover(struct world *x)
{
	static const char *const before[] = {"append_many", "rotate", "sent", "send", "archive"};
	const struct scenario *s = scenario_find(before[world_rand(x, 5)]);
	struct world first;
	world_init(&first, x->rng, NULL, NULL);
	s->run(&first);
	size_t point = (size_t)world_rand(x, crashfs_point(first.fs) + 1);
	size_t k = (size_t)world_rand(x, crashfs_states(first.fs, point, 64));
	struct crashfs *left = crashfs_crash(first.fs, point, k, 64, x->rng, NULL);
	crashfs_free(x->fs);
	x->fs = x->env.fs = x->receiver.fs = left;
	x->env.env.io_ctx = left;
	if (x->fault != NULL)
		x->fault->io_ctx = left;
	else
		x->use.io_ctx = left;
	crashfs_record(left, true);
	walmodel_fini(&x->model);
	walmodel_rebase(&x->model, &first.model, point);
	x->env.rand_state += 0x100000;
	x->opts.segment_bytes = first.opts.segment_bytes;
	world_fini(&first);
	TRY(world_recover(x, false) || x->rc == SL_ENOENT);
	x->rc = 0;
	TRY(world_open(x));
	append_some(x, 2);
	TRY(x->rc == 0 && world_close(x));
}

/* A sealed segment, and an active one with nothing but a mark. */
static void seal_with_marks(struct world *x)
{
	while (x->rc == 0 && world_append_many(x, 8) && world_stats(x).bytes < 4096)
		;
	TRY(x->rc == 0 && world_mark_sent(x, 1, 2));
}

static void run_salvage(struct world *x)
{
	bool last = world_rand(x, 4) == 0;
	crashfs_record(x->fs, false);
	x->opts.segment_bytes = 4096;
	TRY(world_open(x));
	if (last) {
		seal_with_marks(x);
	} else {
		fill_segments(x, 1 + world_rand(x, 3));
		if (world_rand(x, 2) != 0)
			mark_all(x);
		TRY(x->rc == 0 && world_append(x));
	}
	TRY(x->rc == 0);
	TRY(world_close(x));
	/* A closed log ends with how far it went. Without that, only the damaged bytes may hold it. */
	if (x->fault == NULL && world_rand(x, 2) != 0) /* with faults, the close may have failed to write it */
		world_unclose(x);
	TRY(world_damage(x, last));
	world_record(x);
	if (world_rand(x, 2) != 0)
		TRY(world_recover(x, false));
	TRY(world_open(x));
	if (x->model.sound_at == WALMODEL_NEVER)
		x->model.sound_at = crashfs_point(x->fs);
	append_some(x, 2);
	TRY(x->rc == 0 && world_close(x));
}

static void run_new_incarnation(struct world *x)
{
	x->opts.segment_bytes = 4096;
	TRY(world_open(x));
	fill_segments(x, 1 + world_rand(x, 3));
	TRY(x->rc == 0 && world_mark_sent(x, 1, 3));
	TRY(world_close(x));
	TRY(world_recover(x, true));
	TRY(world_open(x));
	append_some(x, 2);
	TRY(x->rc == 0 && world_send(x));
	TRY(world_close(x));
}

static void run_encrypted(struct world *x)
{
	x->opts.key_file = WORLD_KEY;
	if (world_rand(x, 2) != 0)
		run_sent(x);
	else
		run_rotate(x);
}

/* A log that began without a key gets one, and may be archived before it has a record under it. */
static void run_gets_a_key(struct world *x)
{
	TRY(world_open(x));
	append_some(x, world_rand(x, 3));
	mark_all(x);
	TRY(x->rc == 0 && world_close(x));
	x->opts.key_file = WORLD_KEY;
	TRY(world_open(x));
	if (x->next_sequence > 1 && world_rand(x, 2) != 0) {
		TRY(world_archive(x, false));
		TRY(world_close(x));
		TRY(world_open(x));
	}
	append_some(x, 2);
	TRY(x->rc == 0 && world_close(x));
}

const struct scenario scenarios[] = {
	{"append", run_append},       {"append_many", run_append_many},
	{"tickets", run_tickets},     {"rotate", run_rotate},
	{"sent", run_sent},           {"close", run_close},
	{"send", run_send},           {"send_after_recovery", run_send_after_recovery},
	{"refused", run_refused},     {"archive", run_archive},
	{"settled", run_settled},     {"recover", run_recover},
	{"salvage", run_salvage},     {"new_incarnation", run_new_incarnation},
	{"encrypted", run_encrypted}, {"gets_a_key", run_gets_a_key},
	{"copied", run_copied},       {"full", run_full},
	{"poisoned", run_poisoned},
};
const size_t n_scenarios = sizeof(scenarios) / sizeof(scenarios[0]);

const struct scenario *scenario_find(const char *name)
{
	for (size_t i = 0; i < n_scenarios; i++)
		if (strcmp(scenarios[i].name, name) == 0)
			return &scenarios[i];
	return NULL;
}
