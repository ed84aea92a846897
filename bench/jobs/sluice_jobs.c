/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our side of the job benchmark, driven line by line as peer.js is: bench/jobs/run writes "COMMAND ARGUMENT…" to stdin
 * and reads one JSON line per command. The store is BENCH_URL. Commands: bulk N | single N THREADS (of one
 * client) | apart N CLIENTS (each with its own thread and connection) | work SLOTS LANES | count | stop | pickup
 * N | commits N (single durable one-row commits, for the ratios) | idle MS |
 * retain MS (delete what completed longer ago, in the background) | deleted
 *
 * Pickups are measured one by one, each on an idle machine, in turns with commits on an equally idle one. With
 * BENCH_SHARED, a file, the handlers of one process record for another one when they start.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <semaphore.h>
#include <sluice/retention.h>
#include <sluice/worker.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define BITE 5000
#define PAUSE_US 10000
#define LANES_MAX 64

struct seen {
	atomic_uint_fast64_t done;
	atomic_int_fast64_t started_ns; /* of the last handler */
	atomic_bool awaited; /* the handler posts `picked`: a client that polled would disturb what it measures */
	sem_t picked;
};

static struct bench {
	const char *url;
	sl_store store;
	sl_notify notify;
	sl_jobs *client;
	sl_worker *worker;
	sl_retention_thread *retention;
	struct seen own, *seen;
} b;

static int64_t now_ns(void)
{
	struct timespec t;
	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void die(const char *what, const struct sl_err *err)
{
	printf("{\"error\":\"%s: %s\"}\n", what, err != NULL ? err->msg : "failed");
	exit(1);
}

static int noop(sl_attempt *attempt, struct sl_err *err, void *ctx)
{
	(void)attempt, (void)err, (void)ctx;
	atomic_store_explicit(&b.seen->started_ns, now_ns(), memory_order_relaxed);
	atomic_fetch_add_explicit(&b.seen->done, 1, memory_order_release);
	if (atomic_load_explicit(&b.seen->awaited, memory_order_acquire))
		(void)sem_post(&b.seen->picked);
	return 0;
}

static void open_shared(void)
{
	const char *path = getenv("BENCH_SHARED");
	b.seen = &b.own;
	if (path == NULL)
		return;
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, sizeof(*b.seen)) != 0)
		die("BENCH_SHARED", NULL);
	b.seen = mmap(NULL, sizeof(*b.seen), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (b.seen == MAP_FAILED)
		die("BENCH_SHARED", NULL);
	(void)close(fd);
}

static void open_store(void)
{
	struct sl_store_opts store_opts = {SL_STORE_OPTS_INIT, .connections = 12};
	struct sl_err err = SL_ERR_INIT;
	if (sl_store_open(&b.store, b.url, &store_opts, &err) != 0 || sl_notify_open(&b.notify, b.url, NULL, &err) != 0)
		die("open", &err);
	struct sl_jobs_opts opts = {SL_JOBS_OPTS_INIT, .store = &b.store, .notify = &b.notify};
	if (sl_jobs_open(&b.client, &opts, &err) != 0)
		die("client", &err);
}

static void bulk(long n)
{
	static struct sl_new_chain chains[BITE];
	static struct sl_started out[BITE];
	static char inputs[BITE][32];
	struct sl_err err = SL_ERR_INIT;
	for (long i = 0; i < n; i += BITE) {
		size_t k = (size_t)(n - i < BITE ? n - i : BITE);
		for (size_t j = 0; j < k; j++) {
			(void)snprintf(inputs[j], sizeof(inputs[j]), "{\"i\":%ld}", i + (long)j);
			chains[j] = (struct sl_new_chain){.job = {.type = "noop", .input = inputs[j]}};
		}
		if (sl_jobs_enqueue_many(b.client, NULL, chains, k, out, &err) != 0)
			die("bulk", &err);
	}
}

static atomic_long left;

static void *single_lane(void *client)
{
	struct sl_new_chain chain = {.job = {.type = "noop", .input = "{\"i\":1}"}};
	struct sl_started out;
	struct sl_err err = SL_ERR_INIT;
	while (atomic_fetch_sub(&left, 1) > 0)
		if (sl_jobs_enqueue(client, NULL, &chain, &out, &err) != 0)
			die("single", &err);
	return NULL;
}

static void single_lanes(long n, sl_jobs *const *clients, long lanes)
{
	pthread_t threads[LANES_MAX];
	int64_t started = now_ns();
	atomic_store(&left, n);
	for (long i = 0; i < lanes; i++)
		if (pthread_create(&threads[i], NULL, single_lane, clients[i]) != 0)
			die("thread", NULL);
	for (long i = 0; i < lanes; i++)
		(void)pthread_join(threads[i], NULL);
	printf("{\"ms\":%.3f}\n", (double)(now_ns() - started) / 1e6);
}

static void single(long n, long lanes)
{
	sl_jobs *clients[LANES_MAX];
	for (long i = 0; i < lanes; i++)
		clients[i] = b.client;
	single_lanes(n, clients, lanes);
}

/* As separate programs would: each has its own connection, client and transactions. */
static void apart(long n, long lanes)
{
	struct sl_store_opts store_opts = {SL_STORE_OPTS_INIT, .connections = 1};
	sl_store stores[LANES_MAX];
	sl_notify notifies[LANES_MAX];
	sl_jobs *clients[LANES_MAX];
	struct sl_err err = SL_ERR_INIT;
	for (long i = 0; i < lanes; i++) {
		struct sl_jobs_opts opts = {SL_JOBS_OPTS_INIT, .store = &stores[i], .notify = &notifies[i]};
		if (sl_store_open(&stores[i], b.url, &store_opts, &err) != 0 ||
		    sl_notify_open(&notifies[i], b.url, NULL, &err) != 0 || sl_jobs_open(&clients[i], &opts, &err) != 0)
			die("open", &err);
	}
	single_lanes(n, clients, lanes);
	for (long i = 0; i < lanes; i++) {
		sl_jobs_close(clients[i]);
		sl_notify_close(&notifies[i]);
		sl_store_close(&stores[i]);
	}
}

static void work(long slots, long lanes)
{
	struct sl_processor noop_type = {SL_PROCESSOR_INIT, .type = "noop", .process = noop};
	struct sl_worker_opts opts = {SL_WORKER_OPTS_INIT,      .store = &b.store, .notify = &b.notify,
				      .processors = &noop_type, .n_processors = 1, .slots = (int32_t)slots,
				      .lanes = (int32_t)lanes};
	struct sl_err err = SL_ERR_INIT;
	if (sl_worker_new(&b.worker, &opts, &err) != 0 || sl_worker_start(b.worker, &err) != 0)
		die("worker", &err);
}

static void retain(long ms)
{
	const struct sl_retention_opts opts = {SL_RETENTION_OPTS_INIT, .store = &b.store,
					       .keep = {SL_RETENTION_INIT, .completed_ms = ms}};
	struct sl_err err = SL_ERR_INIT;
	if (sl_retention_start(&b.retention, &opts, &err) != 0)
		die("retain", &err);
}

static void deleted(void)
{
	struct sl_retention_status status = {.struct_size = sizeof(status)};
	struct sl_err err = SL_ERR_INIT;
	if (sl_retention_get(&b.store, &status, &err) != 0)
		die("deleted", &err);
	printf("{\"chains\":%" PRIu64 "}\n", status.chains);
}

static int by_value(const void *x, const void *y)
{
	int64_t p = *(const int64_t *)x, q = *(const int64_t *)y;
	return p < q ? -1 : p > q;
}

static double ms_at(int64_t *times, long n, long permille)
{
	qsort(times, (size_t)n, sizeof(*times), by_value);
	return (double)times[n * permille / 1000] / 1e6;
}

/* ---- a durable commit of one row, by itself: what the database allows without batching ---- */

struct committer {
	PGconn *pg;
	sqlite3 *sqlite;
};

static void pg_run(PGconn *c, const char *sql)
{
	PGresult *r = PQexec(c, sql);
	if (PQresultStatus(r) != PGRES_COMMAND_OK && PQresultStatus(r) != PGRES_TUPLES_OK)
		die(PQerrorMessage(c), NULL);
	PQclear(r);
}

static void committer_open(struct committer *c)
{
	*c = (struct committer){0};
	if (strncmp(b.url, "sqlite:", 7) == 0) {
		char path[4096];
		(void)snprintf(path, sizeof(path), "%s-commits", b.url + 7);
		if (sqlite3_open(path, &c->sqlite) != SQLITE_OK ||
		    sqlite3_exec(c->sqlite,
				 "pragma journal_mode=wal; pragma synchronous=full;"
				 " create table if not exists t(i integer primary key, v text)",
				 NULL, NULL, NULL) != SQLITE_OK)
			die("sqlite", NULL);
		return;
	}
	c->pg = PQconnectdb(b.url);
	pg_run(c->pg, "set client_min_messages = warning");
	pg_run(c->pg, "create table if not exists bench_commits"
		      "(i bigint generated always as identity primary key, v text)");
	pg_run(c->pg, "prepare one as insert into bench_commits(v) values ('{\"i\":1}')");
}

static int64_t commit_ns(const struct committer *c)
{
	int64_t at = now_ns();
	if (c->pg != NULL) {
		PGresult *r = PQexecPrepared(c->pg, "one", 0, NULL, NULL, NULL, 0);
		if (PQresultStatus(r) != PGRES_COMMAND_OK)
			die(PQerrorMessage(c->pg), NULL);
		PQclear(r);
	} else if (sqlite3_exec(c->sqlite, "insert into t(v) values ('{\"i\":1}')", NULL, NULL, NULL) != SQLITE_OK) {
		die("sqlite", NULL);
	}
	return now_ns() - at;
}

static void committer_close(struct committer *c)
{
	if (c->pg != NULL)
		PQfinish(c->pg);
	(void)sqlite3_close(c->sqlite);
}

/* One after the other, without a pause. */
static void commits(long n)
{
	struct committer c;
	int64_t *times = calloc((size_t)n, sizeof(*times)), started;
	committer_open(&c);
	started = now_ns();
	for (long i = 0; i < n; i++)
		times[i] = commit_ns(&c);
	double seconds = (double)(now_ns() - started) / 1e9;
	printf("{\"p50_ms\":%.4f,\"per_s\":%.1f}\n", ms_at(times, n, 500), (double)n / seconds);
	free(times);
	committer_close(&c);
}

static int64_t pickup_ns(void)
{
	struct sl_new_chain chain = {.job = {.type = "noop"}};
	struct sl_started out;
	struct sl_err err = SL_ERR_INIT;
	int64_t at = now_ns();
	if (sl_jobs_enqueue(b.client, NULL, &chain, &out, &err) != 0)
		die("pickup", &err);
	while (sem_wait(&b.seen->picked) != 0)
		;
	return atomic_load(&b.seen->started_ns) - at;
}

static void pickup(long n)
{
	struct committer c;
	int64_t *times = calloc((size_t)n, sizeof(*times)), *commit = calloc((size_t)n, sizeof(*commit));
	committer_open(&c);
	if (sem_init(&b.seen->picked, 1, 0) != 0)
		die("sem_init", NULL);
	atomic_store(&b.seen->awaited, true);
	for (long i = 0; i < n; i++) {
		(void)usleep(PAUSE_US);
		commit[i] = commit_ns(&c);
		(void)usleep(PAUSE_US);
		times[i] = pickup_ns();
	}
	atomic_store(&b.seen->awaited, false);
	double p50 = ms_at(times, n, 500);
	printf("{\"p50_ms\":%.4f,\"p99_ms\":%.4f,\"commit_p50_ms\":%.4f}\n", p50, ms_at(times, n, 990),
	       ms_at(commit, n, 500));
	free(times);
	free(commit);
	committer_close(&c);
}

/* CPU time and queries of this process while nothing happens. */
static void idle(long ms)
{
	struct sl_worker_stats before = {.struct_size = sizeof(before)}, after = {.struct_size = sizeof(after)};
	struct rusage r0, r1;
	sl_worker_get_stats(b.worker, &before);
	(void)getrusage(RUSAGE_SELF, &r0);
	(void)usleep((useconds_t)ms * 1000);
	(void)getrusage(RUSAGE_SELF, &r1);
	sl_worker_get_stats(b.worker, &after);
	double cpu =
		(double)(r1.ru_utime.tv_sec - r0.ru_utime.tv_sec + r1.ru_stime.tv_sec - r0.ru_stime.tv_sec) * 1e3 +
		(double)(r1.ru_utime.tv_usec - r0.ru_utime.tv_usec + r1.ru_stime.tv_usec - r0.ru_stime.tv_usec) / 1e3;
	printf("{\"cpu_ms\":%.2f,\"exchanges\":%" PRIu64 "}\n", cpu, after.exchanges - before.exchanges);
}

static int obey(const char *line)
{
	char command[16] = "";
	long x = 0, y = 0;
	int64_t started = now_ns();
	if (sscanf(line, "%15s %ld %ld", command, &x, &y) < 1)
		return 0;
	if (strcmp(command, "bulk") == 0)
		bulk(x);
	else if (strcmp(command, "single") == 0)
		single(x, y < LANES_MAX ? y : LANES_MAX);
	else if (strcmp(command, "apart") == 0)
		apart(x, y < LANES_MAX ? y : LANES_MAX);
	else if (strcmp(command, "work") == 0)
		work(x, y > 0 ? y : 1);
	else if (strcmp(command, "count") == 0 || strcmp(command, "stop") == 0)
		printf("{\"done\":%" PRIu64 "}\n", (uint64_t)atomic_load(&b.seen->done));
	else if (strcmp(command, "pickup") == 0)
		pickup(x);
	else if (strcmp(command, "commits") == 0)
		commits(x);
	else if (strcmp(command, "idle") == 0)
		idle(x);
	else if (strcmp(command, "retain") == 0)
		retain(x);
	else if (strcmp(command, "deleted") == 0)
		deleted();
	else
		die("unknown command", NULL);
	if (strcmp(command, "bulk") == 0 || strcmp(command, "work") == 0 || strcmp(command, "retain") == 0)
		printf("{\"ms\":%.3f}\n", (double)(now_ns() - started) / 1e6);
	(void)fflush(stdout);
	return strcmp(command, "stop") == 0;
}

int main(void)
{
	char line[256];
	struct sl_err err = SL_ERR_INIT;
	b.url = getenv("BENCH_URL");
	if (b.url == NULL) {
		fputs("sluice-bench-jobs is driven by bench/jobs/run\n", stderr);
		return 64;
	}
	open_shared();
	open_store();
	printf("{\"ready\":true}\n");
	(void)fflush(stdout);
	while (fgets(line, sizeof(line), stdin) != NULL && !obey(line))
		;
	sl_retention_stop(b.retention);
	if (b.worker != NULL && sl_worker_stop(b.worker, 10000, &err) != 0)
		die("stop", &err);
	sl_worker_free(b.worker);
	sl_jobs_close(b.client);
	sl_notify_close(&b.notify);
	sl_store_close(&b.store);
	return 0;
}
