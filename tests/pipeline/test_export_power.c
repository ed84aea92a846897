/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Power loss: whatever the disk keeps of what was not synced, every partition that the catalog has is there with its
 * bytes, and so is every event that was marked as written. The export writes to a file system in memory that remembers
 * its history; the catalog, whose durability is SQLite's, lies on a real one.
 */
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "base/base.h"
#include "base/sha256.h"
#include "pipeline/export_rig.h"
#include "support/crashfs.h"

#define STATES 12 /* of each point, drawn by lot */
#define SEEDS 3
#define PARTITIONS 8

struct moment {
	bool of_commit; /* else events were written */
	size_t point;   /* of the history */
	uint64_t number;
};

struct power {
	struct export_rig x;
	struct crashfs *fs;
	char catalog[128];
	pthread_mutex_t mu;
	struct moment moments[64];
	size_t n;
	uint64_t partitions, states;
};

/* From here on it must survive. */
static void note(const char *step, uint64_t number, void *ctx)
{
	struct power *p = ctx;
	bool of_commit = strcmp(step, "committed") == 0;
	if (!of_commit && strcmp(step, "outbox_written") != 0)
		return;
	pthread_mutex_lock(&p->mu);
	assert(p->n < SL_COUNT(p->moments));
	p->moments[p->n++] = (struct moment){of_commit, crashfs_point(p->fs), number};
	pthread_mutex_unlock(&p->mu);
}

static void export_all(struct power *p)
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_env env = {SL_ENV_INIT, .io = &crashfs_io, .io_ctx = p->fs};
	int fd = open(p->x.input, O_RDONLY);
	assert_true(fd >= 0);
	struct sl_export_opts o = export_rig_opts(&p->x);
	o.env = &env;
	o.from = "-";
	o.fd = fd;
	o.format = SL_EXPORT_CSV;
	o.catalog = p->catalog;
	o.on_step = note;
	o.on_step_ctx = p;
	if (export_rig_run(&o, NULL, &err) != 0)
		fail_msg("%s", err.msg);
	close(fd);
}

/* ---- what a state has ---- */

struct look {
	struct power *p;
	struct crashfs *state;
	const struct moment *at;
};

static int look_at(const struct sl_catalog_partition *row, void *ctx)
{
	struct look *l = ctx;
	uint8_t sha256[SL__SHA256_BYTES];
	char path[512];
	size_t n = 0;
	if (row->start > l->at->number)
		return 0; /* committed later */
	(void)snprintf(path, sizeof(path), "%s/%s", l->p->x.to, row->path);
	const void *data = crashfs_get(l->state, path, &n);
	if (data == NULL)
		fail_msg("%s is not there", path);
	assert_int_equal(n, row->bytes);
	assert_int_equal(sl__sha256(data, n, sha256, NULL), 0);
	assert_memory_equal(sha256, row->sha256, sizeof(sha256));
	l->p->partitions++;
	return 0;
}

static int join_event(uint64_t number, const char *event, size_t len, void *ctx)
{
	(void)number;
	return fprintf(ctx, "%.*s\n", (int)len, event) < 0;
}

/* The events up to the last that was written are the beginning of the file. */
static void expect_events(struct power *p, sl_catalog *c, struct crashfs *state, const struct moment *at)
{
	char *text = NULL, path[256];
	size_t len = 0, n = 0;
	FILE *out = open_memstream(&text, &len);
	assert_int_equal(sl_catalog_events(c, EXPORT_DATASET, 0, at->number, join_event, out, NULL), 0);
	fclose(out);
	(void)snprintf(path, sizeof(path), "%s/" EXPORT_DATASET "/_audit/events-%020d.jsonl", p->x.to, 1);
	const void *data = crashfs_get(state, path, &n);
	if (data == NULL)
		fail_msg("%s is not there", path);
	assert_true(n >= len);
	assert_memory_equal(data, text, len);
	free(text);
}

static void lose_power_at(struct power *p, sl_catalog *c, const struct moment *at, uint64_t seed)
{
	size_t states = crashfs_states(p->fs, at->point, STATES);
	for (size_t k = 0; k < states; k++) {
		struct crashfs *state = crashfs_crash(p->fs, at->point, k, STATES, seed, NULL);
		struct look l = {.p = p, .state = state, .at = at};
		if (at->of_commit)
			assert_int_equal(sl_catalog_partitions(c, EXPORT_DATASET, 0, 0, look_at, &l, NULL), 0);
		else
			expect_events(p, c, state, at);
		p->states++;
		crashfs_free(state);
	}
}

static void what_is_committed_or_written_survives_power_loss(void **state)
{
	struct power p = {.mu = PTHREAD_MUTEX_INITIALIZER, .fs = crashfs_new()};
	const struct sl_catalog_opts opts = {SL_CATALOG_OPTS_INIT, .create = SL_OFF};
	sl_catalog *c = NULL;
	(void)state;
	export_rig_init(&p.x, ".csv", 17, 383);
	(void)snprintf(p.x.to, sizeof(p.x.to), "/out");
	(void)snprintf(p.catalog, sizeof(p.catalog), "sqlite:%s/catalog.db", p.x.dir);
	export_all(&p);
	assert_int_equal(sl_catalog_open(&c, p.catalog, &opts, NULL), 0);
	size_t commits = 0;
	for (size_t i = 0; i < p.n; i++) {
		commits += p.moments[i].of_commit;
		for (uint64_t seed = 1; seed <= SEEDS; seed++)
			lose_power_at(&p, c, &p.moments[i], seed);
	}
	assert_int_equal(commits, PARTITIONS);
	assert_true(p.n > commits);
	print_message("# %zu moments, %llu states, %llu files\n", p.n, (unsigned long long)p.states,
		      (unsigned long long)p.partitions);
	sl_catalog_close(c);
	crashfs_free(p.fs);
	export_rig_fini(&p.x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_committed_or_written_survives_power_loss),
	};
	return cmocka_run_group_tests_name("export, power", tests, NULL, NULL);
}
