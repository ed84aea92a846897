/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice-bench: our log beside its peers, in one run, on one disk. docs/benchmarks.md says what is measured and how.
 */
#include <errno.h>
#include <getopt.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "bench.h"

static const struct {
	const char *name;
	unsigned row;
} row_names[] = {{"1", ROW_1},         {"16", ROW_16},
		 {"64", ROW_64},       {"tickets", ROW_TICKETS},
		 {"crc", ROW_CRC},     {"recovery", ROW_RECOVERY},
		 {"short", ROW_SHORT}, {"cost", ROW_COST},
		 {"queue", ROW_QUEUE}};

static void usage(FILE *out)
{
	fputs("usage: sluice-bench [--dir DIR] [--quick] [--only ROW[,ROW…]] [--json FILE]\n"
	      "  --dir DIR    scratch folder on the disk to measure (default build/bench-data); emptied at the end\n"
	      "  --quick      fewer and shorter rounds: under 40 s, rough\n"
	      "  --only ROW   1, 16, 64 (producers), tickets, crc, recovery, short, queue, cost\n"
	      "  --json FILE  write the results there as well\n"
	      "  --rounds N   measured rounds    --slice-ms N  length of a slice\n",
	      out);
}

static unsigned row_of(const char *name)
{
	for (size_t i = 0; i < sizeof(row_names) / sizeof(*row_names); i++)
		if (strcmp(row_names[i].name, name) == 0)
			return row_names[i].row;
	return 0;
}

static unsigned rows_of(char *list)
{
	unsigned rows = 0;
	char *rest = NULL;
	for (char *name = strtok_r(list, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest)) {
		if (row_of(name) == 0)
			return 0;
		rows |= row_of(name);
	}
	return rows;
}

static void on_signal(int number)
{
	(void)number;
	bench_stopped = 1;
}

static int number_of(const char *text, int lowest, int highest)
{
	char *end;
	long n = strtol(text, &end, 10);
	return *end == '\0' && n >= lowest && n <= highest ? (int)n : -1;
}

struct arguments {
	const char *dir, *json;
	unsigned rows;
	bool quick;
	int rounds, slice_ms; /* 0: by quick */
};

/* 0, or the exit code (with *done set when help was asked for). */
static int parse(int argc, char **argv, struct arguments *a, bool *done)
{
	static const struct option options[] = {
		{"dir", 1, NULL, 'd'},    {"quick", 0, NULL, 'q'},    {"only", 1, NULL, 'o'}, {"json", 1, NULL, 'j'},
		{"rounds", 1, NULL, 'r'}, {"slice-ms", 1, NULL, 's'}, {"help", 0, NULL, 'h'}, {NULL, 0, NULL, 0}};
	int c;
	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (c == 'd')
			a->dir = optarg;
		else if (c == 'q')
			a->quick = true;
		else if (c == 'o')
			a->rows = rows_of(optarg);
		else if (c == 'j')
			a->json = optarg;
		else if (c == 'r')
			a->rounds = number_of(optarg, 1, MAX_ROUNDS);
		else if (c == 's')
			a->slice_ms = number_of(optarg, 1, 60000);
		else if (c == 'h')
			*done = true;
		else
			return 64;
	}
	return optind == argc && a->rows != 0 && a->rounds >= 0 && a->slice_ms >= 0 ? 0 : 64;
}

/* The scratch folder of this run inside dir, on a real disk. */
static int make_scratch(const char *dir, char *out, size_t size)
{
	struct statfs fs;
	if (mkdir(dir, 0700) != 0 && errno != EEXIST) {
		fprintf(stderr, "sluice-bench: cannot make %s: %s\n", dir, strerror(errno));
		return 73;
	}
	if (statfs(dir, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC)) {
		fprintf(stderr,
			"sluice-bench: %s is in memory; a sync costs nothing there. Name a folder on a disk with "
			"--dir\n",
			dir);
		(void)rmdir(dir);
		return 78;
	}
	char absolute[4096];
	if (realpath(dir, absolute) == NULL || snprintf(out, size, "%s/run.XXXXXX", absolute) >= (int)size ||
	    mkdtemp(out) == NULL) {
		fprintf(stderr, "sluice-bench: cannot make a folder in %s: %s\n", dir, strerror(errno));
		return 73;
	}
	return 0;
}

static void run_rows(struct report *r, const struct settings *s, unsigned rows)
{
	rows_append(r, s, rows);
	if ((rows & ROW_CRC) && !bench_stopped)
		row_crc(r, s);
	if ((rows & ROW_RECOVERY) && !bench_stopped)
		row_recovery(r, s);
	if ((rows & ROW_SHORT) && !bench_stopped)
		row_short_logs(r, s);
	if ((rows & ROW_QUEUE) && !bench_stopped)
		row_queue(r, s);
	if ((rows & ROW_COST) && !bench_stopped)
		row_cost(r, s);
	if (s->progress != NULL)
		fputc('\n', s->progress);
}

static int run(const struct arguments *a, const char *scratch)
{
	struct settings s = {.dir = scratch,
			     .rounds = a->rounds > 0 ? a->rounds
				       : a->quick    ? 3
						     : 9,
			     .slice_ms = a->slice_ms > 0 ? a->slice_ms
					 : a->quick      ? 100
							 : 300,
			     .quick = a->quick,
			     .recovery_bytes = (size_t)(a->quick ? 256 : 1024) << 20,
			     .short_logs = a->quick ? 200 : 1000,
			     .short_ns = (uint64_t)(a->quick ? 6 : 40) * 1000000000U,
			     .crc_bytes = (size_t)256 << 20,
			     .progress = isatty(STDERR_FILENO) ? stderr : NULL};
	struct report r;
	int rc = 0;
	if (report_init(&r) != 0)
		return 70;
	struct load before = {0}, after = {0};
	(void)load_now(&before);
	run_rows(&r, &s, a->rows);
	if (load_now(&after) == 0)
		r.others_percent = load_of_others(&before, &after);
	report_print(&r, &s, stdout);
	if (a->json != NULL && report_json(&r, &s, a->json) != 0) {
		fprintf(stderr, "sluice-bench: cannot write %s\n", a->json);
		rc = 73;
	}
	report_fini(&r);
	return bench_stopped ? 130 : rc;
}

int main(int argc, char **argv)
{
	struct arguments a = {.dir = "build/bench-data", .rows = ROW_ALL};
	char scratch[4096];
	bool help = false;
	int rc = parse(argc, argv, &a, &help);
	if (rc != 0 || help) {
		usage(help ? stdout : stderr);
		return help ? 0 : rc;
	}
	struct sigaction sa = {.sa_handler = on_signal};
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
	rc = make_scratch(a.dir, scratch, sizeof(scratch));
	if (rc != 0)
		return rc;
	rc = run(&a, scratch);
	remove_tree(scratch);
	(void)rmdir(a.dir);
	return rc;
}
