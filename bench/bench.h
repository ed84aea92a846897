/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The benchmarks' shared vocabulary: a contender (our log, a peer database, the raw disk) behind one table, a group of
 * contenders that take turns in short slices, and the lines of the report.
 *
 * Absolute times on a shared machine mean little, so everything is measured side by side: in each round every contender
 * works for one slice, the order rotates from round to round, and a ratio is the median of the rounds' ratios.
 *
 * Thread safety: `append` and `finish` run on one thread per worker, all at once; everything else on the main thread.
 */
#ifndef SL_BENCH_BENCH_H
#define SL_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <sluice/adapter/env.h>

#define BENCH_FRAME_BYTES 32 /* what our format adds to a payload; the raw loops write it too */

/* ---- contenders ---- */

struct place {
	const char *dir; /* a fresh, empty folder on the disk under test; the contender's own */
	size_t record_bytes;
	int clients;
	const struct sl_env *env; /* for our log only; NULL: the real one */
};

struct contender {
	const char *name;
	const char *settings; /* one line for the report */
	bool is_ours;
	bool is_raw;    /* no peer: the bare disk */
	bool pipelined; /* append returns before the record is durable; latencies mean nothing */
	int (*open)(void **state, const struct place *place, struct sl_err *err);
	int (*worker_open)(void **worker, void *state, struct sl_err *err);
	/* Durable when 0 returns, unless pipelined. SL_ECANCELLED once bench_slice_over is set: given up, not counted.
	 */
	int (*append)(void *worker, const void *payload, size_t n, struct sl_err *err);
	/* Ends a slice inside its measured time: everything appended is durable when 0 returns. May be NULL. */
	int (*finish)(void *worker, struct sl_err *err);
	void (*worker_close)(void *worker);
	/* Between slices, not measured: wait for background work, so that no contender pays for another one. May be
	 * NULL. */
	void (*settle)(void *state);
	/* Flushes so far and records in them. May be NULL. */
	void (*flushes)(void *state, uint64_t *flushes, uint64_t *records);
	void (*close)(void *state);
};

extern const struct contender contender_sluice;
extern const struct contender contender_sluice_tickets; /* one thread with 64 records in flight */
extern const struct contender contender_raw_fdatasync;
extern const struct contender contender_raw_direct;
extern const struct contender contender_sqlite;
extern const struct contender contender_rocksdb;
extern const struct contender contender_lmdb;
extern const struct contender contender_redis;

/* The databases that this build knows, ended by NULL. */
extern const struct contender *const bench_peers[];

/* ---- latency: a log-linear histogram, 64 steps per doubling (at most 1.6 % off), no allocation ---- */

#define HIST_STEPS 64
#define HIST_BUCKETS (HIST_STEPS * 36)

struct hist {
	uint64_t count;
	uint64_t bucket[HIST_BUCKETS];
};
void hist_add(struct hist *h, uint64_t ns);
void hist_merge(struct hist *to, const struct hist *from);
double hist_quantile_us(const struct hist *h, double q);

/* ---- a run ---- */

struct settings {
	const char *dir; /* scratch folder of this run */
	int rounds;      /* measured ones; one more before them is thrown away */
	int slice_ms;
	bool quick; /* rough: not for the table */
	size_t recovery_bytes;
	int short_logs;
	uint64_t short_ns; /* the longest that they may take; the count reached is printed */
	size_t crc_bytes;
	FILE *progress; /* NULL: silent */
};

#define MAX_ENTRIES 8
#define MAX_ROUNDS 64

/* A contender's part in a group: what it was asked for, and what it did. */
struct entry {
	const struct contender *c;
	int clients;
	void *state;
	void **workers;
	int n_workers;
	int n_rates;
	double rates[MAX_ROUNDS]; /* records per second, by round */
	struct hist latency;
	uint64_t records;                  /* in all rounds */
	uint64_t flushes, flushed_records; /* in the measured rounds */
	bool out;                          /* gave up; err says why */
	struct sl_err err;
};

struct group {
	size_t record_bytes;
	const struct sl_env *env; /* for our log */
	int n;
	struct entry entries[MAX_ENTRIES];
};

void group_add(struct group *g, const struct contender *c, int clients);
/* Open all, run the rounds, close all. A contender that fails is out; the others continue. */
void group_run(struct group *g, const struct settings *s);
const struct entry *group_find(const struct group *g, const struct contender *c);
/* The fastest by median rate among databases (raw false) or raw loops (raw true), or NULL. */
const struct entry *group_best(const struct group *g, bool raw);
double entry_rate(const struct entry *e);
/* The median over the rounds of a's rate divided by b's. */
double entry_ratio(const struct entry *a, const struct entry *b);

double median(const double *values, int n);
uint64_t now_ns(void);
/* Fill with bytes that do not compress, the same for the same seed. */
void fill_random(void *buf, size_t n, uint64_t seed);

extern _Atomic int bench_slice_over; /* set when a slice's time is up, until its last client has ended */
extern _Atomic int bench_stopped;    /* set by SIGINT and SIGTERM: finish quickly and clean up */

/* ---- what else the machine was doing ---- */

struct load {
	double busy_seconds, all_seconds; /* of all processors, since boot */
	double own_seconds;               /* of this process and the servers it has ended */
};
int load_now(struct load *out);
/* Percent of all processor time between the two that went to other processes and the kernel's own work. */
double load_of_others(const struct load *from, const struct load *to);

/* ---- the report ---- */

/* One line of the main table. */
struct line {
	const char *row; /* as --only names it */
	char work[48];
	size_t record_bytes;        /* 0: not about records */
	char ours[32], against[40]; /* rates, for people */
	double value;               /* what floor and goal speak of: a ratio or a number */
	const char *unit;           /* "x", "GiB/s", … */
	double floor, goal;         /* 0: none */
	bool at_most;               /* the floor is a ceiling */
	/* For the machine-readable form of a ratio: what is divided by what. */
	double ours_rate, peer_rate;
	const char *rate_unit, *peer;
};

struct report {
	double others_percent; /* of the processors, while it ran */
	int n_lines;
	struct line lines[64];
	FILE *details; /* text that follows the main table */
	char *details_text;
	size_t details_len;
	FILE *json_details; /* objects, each followed by ",\n" */
	char *json_text;
	size_t json_len;
};

int report_init(struct report *r);
void report_fini(struct report *r);
void report_line(struct report *r, const struct line *line);
/* All contenders of a group, with their latencies. */
void report_group(struct report *r, const struct group *g, const char *title);
void report_print(const struct report *r, const struct settings *s, FILE *out);
int report_json(const struct report *r, const struct settings *s, const char *path);
/* "12.3 k/s" and the like. */
void format_rate(char *out, size_t size, double per_second);

/* ---- rows ---- */

enum row {
	ROW_1 = 1 << 0,
	ROW_16 = 1 << 1,
	ROW_64 = 1 << 2,
	ROW_TICKETS = 1 << 3,
	ROW_CRC = 1 << 4,
	ROW_RECOVERY = 1 << 5,
	ROW_SHORT = 1 << 6,
	ROW_COST = 1 << 7,
	ROW_QUEUE = 1 << 8,
	ROW_ALL = (1 << 9) - 1
};

void rows_append(struct report *r, const struct settings *s, unsigned wanted);
void row_crc(struct report *r, const struct settings *s);
void row_recovery(struct report *r, const struct settings *s);
void row_short_logs(struct report *r, const struct settings *s);
void row_queue(struct report *r, const struct settings *s);
void row_cost(struct report *r, const struct settings *s);

/* ---- files ---- */

/* <dir>/<name>, made anew with mode 0700, in static memory of the caller; NULL on failure with a message in err. */
int make_dir(char *out, size_t size, const char *dir, const char *name, struct sl_err *err);
void remove_tree(const char *dir);
/* Write bytes of zeros and sync. */
int write_zeros(int fd, uint64_t bytes, struct sl_err *err);

#endif
