/* SPDX-License-Identifier: Apache-2.0 */
/* A driver of your own for the block writer: two threads that put blocks into files named by their hashes. The first
 * attempt at one block fails, and is tried again; readers wait while more than 64 KiB are on their way. */
#include <inttypes.h>
#include <pthread.h>
#include <sluice/writer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define BLOCKS 200
#define CONCURRENT 8

struct job {
	const struct sl_writer_block *block;
	uint32_t attempt;
	struct sl_write write;
};

/* What the writer has scheduled and no thread has taken; never more than CONCURRENT. */
static struct {
	pthread_mutex_t mu;
	pthread_cond_t more;
	struct job jobs[CONCURRENT];
	int n, stop;
} driver = {.mu = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};

/* On the writer's thread: take the block over and return at once. It lives until sl_writer_complete. */
static int schedule_write(void *ctx, const struct sl_writer_block *block, uint32_t attempt, struct sl_write write,
			  struct sl_err *err)
{
	(void)ctx, (void)err;
	pthread_mutex_lock(&driver.mu);
	const struct job job = {block, attempt, write};
	driver.jobs[driver.n++] = job;
	pthread_cond_signal(&driver.more);
	pthread_mutex_unlock(&driver.mu);
	return 0;
}

static int put_file(const struct job *job, struct sl_err *err)
{
	char path[80];
	if (job->attempt == 1 && memcmp(job->block->hash, "0042", 4) == 0)
		return sl_err_set(err, SL_EAGAIN, "the disk is busy");
	snprintf(path, sizeof(path), "blocks/%.*s", (int)job->block->hash_len, (const char *)job->block->hash);
	FILE *f = fopen(path, "wb");
	int ok = f != NULL && fwrite(job->block->bytes, 1, job->block->len, f) == job->block->len;
	ok = f != NULL && fclose(f) == 0 && ok;
	return ok ? 0 : sl_err_set(err, SL_EIO, "write %s", path);
}

static void *write_blocks(void *arg)
{
	pthread_mutex_lock(&driver.mu);
	for (;;) {
		while (driver.n == 0 && !driver.stop)
			pthread_cond_wait(&driver.more, &driver.mu);
		if (driver.n == 0)
			break;
		struct job job = driver.jobs[--driver.n];
		pthread_mutex_unlock(&driver.mu);
		struct sl_err err = SL_ERR_INIT;
		int rc = put_file(&job, &err);
		(void)sl_writer_complete(job.write, rc == 0 ? NULL : &err); /* exactly once, from any thread */
		pthread_mutex_lock(&driver.mu);
	}
	pthread_mutex_unlock(&driver.mu);
	return arg;
}

/* A block handed over is released once it is written, or reported as not written. */
static void release(const struct sl_writer_block *block)
{
	free(block->ctx);
}

static void on_unwritten(const struct sl_writer_block *block, uint32_t attempts, const struct sl_err *reason, void *ctx)
{
	(void)ctx;
	fprintf(stderr, "%.*s after %u attempts: %s\n", (int)block->hash_len, (const char *)block->hash, attempts,
		reason->msg);
}

/* Read, chunk and hash here; without a copy: the bytes are the writer's from then on. */
static int send_block(sl_writer *w, int i, struct sl_err *err)
{
	char hash[17], *bytes = (char *)malloc(1000);
	if (bytes == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory");
	memset(bytes, i, 1000);
	snprintf(hash, sizeof(hash), "%04x%012x", i, i); /* the first four digits are its shard */
	const struct sl_writer_block block = {
		.hash = hash, .hash_len = 16, .bytes = bytes, .len = 1000, .release = release, .ctx = bytes};
	int rc = sl_writer_wait_for_backpressure_clear(w, SL_UNLIMITED, err);
	if (rc == 0)
		rc = sl_writer_enqueue_block(w, &block, err);
	if (rc != 0)
		free(bytes);
	return rc;
}

int main(void)
{
	static const struct sl_writer_driver_ops ops = {
		.version = SL_WRITER_DRIVER_VERSION, .name = "files", .schedule_write = schedule_write};
	const struct sl_writer_opts opts = {SL_WRITER_OPTS_INIT, .max_concurrent_writes = CONCURRENT,
					    .backlog_limit_bytes = 64 << 10, .retry_policy = {.first_ms = 10},
					    .on_unwritten = on_unwritten};
	struct sl_writer_stats stats = {.struct_size = sizeof(stats)};
	struct sl_err err = SL_ERR_INIT;
	pthread_t threads[2];
	sl_writer *w;

	if (mkdir("blocks", 0700) != 0 || sl_writer_new(&w, &ops, NULL, &opts, &err) != 0 ||
	    sl_writer_start(w, &err) != 0) {
		fprintf(stderr, "%s\n", err.msg);
		return 1;
	}
	for (int i = 0; i < 2; i++)
		if (pthread_create(&threads[i], NULL, write_blocks, NULL) != 0)
			return 1;
	int rc = 0;
	for (int i = 0; i < BLOCKS && rc == 0; i++)
		rc = send_block(w, i, &err);
	if ((rc == 0 ? sl_writer_signal_done(w) : sl_writer_cancel(w, &err)) == 0)
		rc = sl_writer_join(w, SL_UNLIMITED, &err); /* 0: every block was written */
	pthread_mutex_lock(&driver.mu);
	driver.stop = 1;
	pthread_cond_broadcast(&driver.more);
	pthread_mutex_unlock(&driver.mu);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	if (rc != 0)
		fprintf(stderr, "%s\n", err.msg);
	else if (sl_writer_get_stats(w, &stats) == 0)
		printf("%" PRIu64 " blocks written, %" PRIu64 " bytes, %" PRIu64 " tried again\n", stats.written,
		       stats.physical_bytes, stats.retries);
	return sl_writer_free(w) != 0 || rc != 0;
}
