/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a record costs on the hot path: calls of the I/O table and allocations per record, counted by tables that pass
 * everything on to the real ones, and the waits of the threads as the kernel counts them (voluntary switches).
 */
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>

#include "base/env.h"
#include "bench.h"

struct counts {
	_Atomic uint64_t writes, syncs, others, allocations;
};

static struct counts *counts_of(void *ctx)
{
	return ctx;
}

static ssize_t counted_pwrite(int fd, const void *buf, size_t n, uint64_t offset, void *ctx)
{
	atomic_fetch_add(&counts_of(ctx)->writes, 1);
	return sl__io_real.pwrite(fd, buf, n, offset, NULL);
}

static int counted_datasync(int fd, void *ctx)
{
	atomic_fetch_add(&counts_of(ctx)->syncs, 1);
	return sl__io_real.datasync(fd, NULL);
}

static int counted_sync(int fd, void *ctx)
{
	atomic_fetch_add(&counts_of(ctx)->syncs, 1);
	return sl__io_real.sync(fd, NULL);
}

static ssize_t counted_pread(int fd, void *buf, size_t n, uint64_t offset, void *ctx)
{
	atomic_fetch_add(&counts_of(ctx)->others, 1);
	return sl__io_real.pread(fd, buf, n, offset, NULL);
}

static int counted_truncate(int fd, uint64_t size, void *ctx)
{
	atomic_fetch_add(&counts_of(ctx)->others, 1);
	return sl__io_real.truncate(fd, size, NULL);
}

static int counted_open(const char *path, int flags, mode_t mode, void *ctx)
{
	atomic_fetch_add(&counts_of(ctx)->others, 1);
	return sl__io_real.open(path, flags, mode, NULL);
}

static int counted_close(int fd, void *ctx)
{
	atomic_fetch_add(&counts_of(ctx)->others, 1);
	return sl__io_real.close(fd, NULL);
}

static int counted_fstat(int fd, struct sl_io_stat *out, void *ctx)
{
	atomic_fetch_add(&counts_of(ctx)->others, 1);
	return sl__io_real.fstat(fd, out, NULL);
}

static int counted_stat(const char *path, struct sl_io_stat *out, void *ctx)
{
	atomic_fetch_add(&counts_of(ctx)->others, 1);
	return sl__io_real.stat(path, out, NULL);
}

static void *counted_alloc(size_t size, void *ctx)
{
	atomic_fetch_add(&counts_of(ctx)->allocations, 1);
	return sl__mem_real.alloc(size, NULL);
}

static void *counted_resize(void *p, size_t size, void *ctx)
{
	atomic_fetch_add(&counts_of(ctx)->allocations, 1);
	return sl__mem_real.resize(p, size, NULL);
}

/* The rest (rename, unlink, mkdir, list, lock) is not on any hot path and passes uncounted; the real tables need no
 * context. */
static struct sl_io counting_io(void)
{
	struct sl_io io = sl__io_real;
	io.pwrite = counted_pwrite;
	io.datasync = counted_datasync;
	io.sync = counted_sync;
	io.pread = counted_pread;
	io.truncate = counted_truncate;
	io.open = counted_open;
	io.close = counted_close;
	io.fstat = counted_fstat;
	io.stat = counted_stat;
	return io;
}

/* What the table states of a record. */
static void line_cost(struct report *r, int clients, const double each[5])
{
	static const char *const what[] = {"writes", "syncs", "other file calls", "allocations", "waits"};
	for (int i = 0; i < 5; i++) {
		struct line l = {
			.row = "cost", .record_bytes = 256, .unit = "a record", .value = each[i], .against = "-"};
		(void)snprintf(l.work, sizeof(l.work), "%d producers: %s", clients, what[i]);
		(void)snprintf(l.ours, sizeof(l.ours), "%.4f", each[i]);
		if (clients == 64)
			report_line(r, &l);
	}
}

static void cost_of(struct report *r, const struct settings *s, const struct contender *c, int clients)
{
	static struct group g;
	struct counts counts = {0};
	struct sl_io io = counting_io();
	struct sl_mem mem = sl__mem_real;
	mem.alloc = counted_alloc;
	mem.resize = counted_resize;
	struct sl_env env = {SL_ENV_INIT, .io = &io, .io_ctx = &counts, .mem = &mem, .mem_ctx = &counts};
	struct rusage before, after;
	g = (struct group){.record_bytes = 256, .env = &env};
	group_add(&g, c, clients);
	getrusage(RUSAGE_SELF, &before);
	group_run(&g, s);
	getrusage(RUSAGE_SELF, &after);
	const struct entry *e = group_find(&g, c);
	if (e == NULL) {
		fprintf(r->details, "  %-16s out: %s\n", c->name, g.entries[0].err.msg);
		return;
	}
	double n = (double)e->records;
	const double each[] = {(double)counts.writes / n, (double)counts.syncs / n, (double)counts.others / n,
			       (double)counts.allocations / n, (double)(after.ru_nvcsw - before.ru_nvcsw) / n};
	fprintf(r->details,
		"  %-14s %2d clients: %.4f writes, %.4f syncs, %.4f other file calls, %.5f allocations, %.2f waits a "
		"record\n",
		c->name, clients, each[0], each[1], each[2], each[3], each[4]);
	line_cost(r, clients, each);
}

void row_cost(struct report *r, const struct settings *s)
{
	fprintf(r->details, "\nWhat a 256 B record costs (opening, preparing space, sealing and closing included)\n");
	cost_of(r, s, &contender_sluice, 1);
	cost_of(r, s, &contender_sluice, 16);
	cost_of(r, s, &contender_sluice, 64);
	cost_of(r, s, &contender_sluice_tickets, 1);
}
