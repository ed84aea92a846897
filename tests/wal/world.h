/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A log on a crash filesystem with a model alongside, and the steps that scenarios are made of. Each step does
 * something to the log and updates the model; it returns true when the log acknowledged it. Everything is
 * single-threaded (the sender's thread works only while the scenario waits for it) and determined by the seed.
 */
#ifndef TESTS_WAL_WORLD_H
#define TESTS_WAL_WORLD_H

#include "support/fault.h"
#include "support/walmodel.h"

/* Under sanitizers everything takes ten times as long: the loops are cut, not the kinds of things that they do. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WORLD_SLOW 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WORLD_SLOW 1
#endif
#endif
#ifndef WORLD_SLOW
#define WORLD_SLOW 0
#endif

#define WORLD_ID "s"
#define WORLD_DIR "/w"
#define WORLD_PATH "/w/s.wal"
#define WORLD_ARCHIVE "/a"
#define WORLD_LETTERS "/d"
#define WORLD_KEY "/key"

struct world {
	struct crashfs *fs;
	struct walmodel_env env;
	struct fault *fault; /* NULL, or stands between the log and env */
	struct sl_env use;   /* what the log gets */
	struct sl_wal_opts opts;
	struct walmodel model;
	struct walmodel_receiver receiver;
	sl_wal *w;
	uint32_t incarnation;
	uint64_t next_sequence; /* what the next record must get */
	bool may_skip;          /* just opened: a hole at the end may come before it */
	uint64_t rng;
	int rc; /* of the last step */
	struct sl_err err;
	char wrong[256]; /* a step saw what must not be; empty: none */
	uint8_t *kept;   /* behind model.kept */
};

/* fs NULL: a new one. The world owns it either way. fault may be NULL and must have been made with fault_init over
 * nothing yet: the world layers it over its environment. */
void world_init(struct world *x, uint64_t seed, struct crashfs *fs, struct fault *fault);
void world_fini(struct world *x);
uint64_t world_rand(struct world *x, uint64_t below);
/* Options of the judge for the state at point. */
struct walmodel_case world_case(const struct world *x, size_t point);

bool world_open(struct world *x);
bool world_close(struct world *x);
/* The process is gone: the handle is thrown away without any more effect on the files. */
void world_die(struct world *x);
bool world_append(struct world *x);
bool world_append_many(struct world *x, size_t n);
bool world_tickets(struct world *x, size_t n);
/* Mark some that are there. */
bool world_mark_sent(struct world *x, uint64_t first, uint64_t last);
/* Deliver everything that is pending. */
bool world_send(struct world *x);
bool world_archive(struct world *x, bool include_pending);
bool world_archive_path(struct world *x, bool include_pending);
bool world_recover(struct world *x, bool new_incarnation);
/* Flip a bit in a header, or in a record that has others after it, or in the last one; what removes the bytes must
 * keep a copy. */
bool world_damage(struct world *x, bool last);
/* Take the record of a clean close away again: what a process leaves that is killed right before it writes that. */
void world_unclose(struct world *x);
/* The last n records that were submitted were refused: the log said that they are not there. */
void world_refused(struct world *x, size_t n);
struct sl_wal_stats world_stats(struct world *x);
/* From here on changes are recorded; the facts so far hold at every point. */
void world_record(struct world *x);

struct scenario {
	const char *name;
	void (*run)(struct world *x);
};
extern const struct scenario scenarios[];
extern const size_t n_scenarios;
const struct scenario *scenario_find(const char *name);

#endif
