/* SPDX-License-Identifier: Apache-2.0 */
#include "support/fault.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/env.h"

static const char *const op_names[FAULT_N_OPS] = {"open",  "close", "pread",  "pwrite", "datasync", "sync", "truncate",
						  "fstat", "stat",  "rename", "unlink", "mkdir",    "list", "lock"};

static bool hit(struct fault_plan *plan)
{
	plan->calls++;
	bool now = plan->at > 0 && (plan->mode == FAULT_ONCE ? plan->calls == plan->at : plan->calls >= plan->at);
	plan->failed += now;
	return now;
}

/* 0, or the negative errno with which this call is to fail. */
static int io_fault(struct fault *f, enum fault_op op)
{
	int rc = 0;
	pthread_mutex_lock(&f->mu);
	f->op_calls[op]++;
	if ((f->io_ops & FAULT_OP(op)) != 0 && hit(&f->io_plan)) {
		rc = -f->io_errno;
		(void)snprintf(f->failed_op, sizeof(f->failed_op), "%s", op_names[op]);
	}
	pthread_mutex_unlock(&f->mu);
	return rc;
}

static void count_fds(struct fault *f, int by)
{
	pthread_mutex_lock(&f->mu);
	f->open_fds += by;
	pthread_mutex_unlock(&f->mu);
}

static int f_open(const char *path, int flags, mode_t mode, void *ctx)
{
	struct fault *f = ctx;
	int rc = io_fault(f, FAULT_OPEN);
	if (rc == 0)
		rc = f->io->open(path, flags, mode, f->io_ctx);
	if (rc >= 0)
		count_fds(f, 1);
	return rc;
}

static int f_close(int fd, void *ctx)
{
	struct fault *f = ctx;
	int fault = io_fault(f, FAULT_CLOSE);
	count_fds(f, -1);
	int rc = f->io->close(fd, f->io_ctx);
	return fault != 0 ? fault : rc;
}

static ssize_t f_pread(int fd, void *buf, size_t n, uint64_t offset, void *ctx)
{
	struct fault *f = ctx;
	int rc = io_fault(f, FAULT_PREAD);
	return rc != 0 ? rc : f->io->pread(fd, buf, n, offset, f->io_ctx);
}

static ssize_t f_pwrite(int fd, const void *buf, size_t n, uint64_t offset, void *ctx)
{
	struct fault *f = ctx;
	int rc = io_fault(f, FAULT_PWRITE);
	if (rc == 0)
		return f->io->pwrite(fd, buf, n, offset, f->io_ctx);
	/* Only the first failing write leaves a part behind: after it a dead program writes no more. */
	if (f->partial_writes && n > 1 && fault_io_failed(f) == 1)
		(void)f->io->pwrite(fd, buf, n / 2, offset, f->io_ctx);
	return rc;
}

#define FORWARD(name, OP, params, args)                                                                                \
	static int f_##name params                                                                                     \
	{                                                                                                              \
		struct fault *f = ctx;                                                                                 \
		int rc = io_fault(f, OP);                                                                              \
		return rc != 0 ? rc : f->io->name args;                                                                \
	}

FORWARD(datasync, FAULT_DATASYNC, (int fd, void *ctx), (fd, f->io_ctx))
FORWARD(sync, FAULT_SYNC, (int fd, void *ctx), (fd, f->io_ctx))
FORWARD(truncate, FAULT_TRUNCATE, (int fd, uint64_t size, void *ctx), (fd, size, f->io_ctx))
FORWARD(fstat, FAULT_FSTAT, (int fd, struct sl_io_stat *out, void *ctx), (fd, out, f->io_ctx))
FORWARD(stat, FAULT_STAT, (const char *path, struct sl_io_stat *out, void *ctx), (path, out, f->io_ctx))
FORWARD(rename, FAULT_RENAME, (const char *from, const char *to, int noreplace, void *ctx),
	(from, to, noreplace, f->io_ctx))
FORWARD(unlink, FAULT_UNLINK, (const char *path, void *ctx), (path, f->io_ctx))
FORWARD(mkdir, FAULT_MKDIR, (const char *path, mode_t mode, void *ctx), (path, mode, f->io_ctx))
FORWARD(list, FAULT_LIST, (const char *path, sl_io_list_fn *fn, void *fn_ctx, void *ctx), (path, fn, fn_ctx, f->io_ctx))
FORWARD(lock, FAULT_LOCK, (int fd, void *ctx), (fd, f->io_ctx))

const struct sl_io fault_io = {
	.version = SL_IO_VERSION,
	.open = f_open,
	.close = f_close,
	.pread = f_pread,
	.pwrite = f_pwrite,
	.datasync = f_datasync,
	.sync = f_sync,
	.truncate = f_truncate,
	.fstat = f_fstat,
	.stat = f_stat,
	.rename = f_rename,
	.unlink = f_unlink,
	.mkdir = f_mkdir,
	.list = f_list,
	.lock = f_lock,
};

static bool mem_fault(struct fault *f)
{
	pthread_mutex_lock(&f->mu);
	bool fail = hit(&f->mem_plan);
	pthread_mutex_unlock(&f->mu);
	return fail;
}

static void count_allocs(struct fault *f, int by)
{
	pthread_mutex_lock(&f->mu);
	f->live_allocs += by;
	pthread_mutex_unlock(&f->mu);
}

static void *f_alloc(size_t size, void *ctx)
{
	struct fault *f = ctx;
	void *p = mem_fault(f) ? NULL : f->mem->alloc(size, f->mem_ctx);
	if (p != NULL)
		count_allocs(f, 1);
	return p;
}

static void *f_resize(void *old, size_t size, void *ctx)
{
	struct fault *f = ctx;
	void *p = mem_fault(f) ? NULL : f->mem->resize(old, size, f->mem_ctx);
	if (p != NULL && old == NULL)
		count_allocs(f, 1);
	return p;
}

static void f_release(void *p, void *ctx)
{
	struct fault *f = ctx;
	if (p != NULL)
		count_allocs(f, -1);
	f->mem->release(p, f->mem_ctx);
}

const struct sl_mem fault_mem = {.version = SL_MEM_VERSION, .alloc = f_alloc, .resize = f_resize, .release = f_release};

void fault_init(struct fault *f, const struct sl_env *beneath)
{
	*f = (struct fault){.io = &sl__io_real, .mem = &sl__mem_real, .io_ops = FAULT_ALL_OPS};
	if (beneath != NULL && beneath->io != NULL) {
		f->io = beneath->io;
		f->io_ctx = beneath->io_ctx;
	}
	if (beneath != NULL && beneath->mem != NULL) {
		f->mem = beneath->mem;
		f->mem_ctx = beneath->mem_ctx;
	}
	pthread_mutex_init(&f->mu, NULL);
}

void fault_fini(struct fault *f)
{
	pthread_mutex_destroy(&f->mu);
}

struct sl_env fault_env(struct fault *f, const struct sl_env *base)
{
	struct sl_env env = {SL_ENV_INIT};
	if (base != NULL)
		env = *base;
	env.io = &fault_io;
	env.io_ctx = f;
	env.mem = &fault_mem;
	env.mem_ctx = f;
	return env;
}

void fault_arm_io(struct fault *f, int64_t at, enum fault_mode mode, int errnum, unsigned ops)
{
	pthread_mutex_lock(&f->mu);
	f->io_plan = (struct fault_plan){.at = at, .mode = mode};
	f->io_errno = errnum;
	f->io_ops = ops;
	memset(f->op_calls, 0, sizeof(f->op_calls));
	f->failed_op[0] = '\0';
	pthread_mutex_unlock(&f->mu);
}

void fault_arm_mem(struct fault *f, int64_t at, enum fault_mode mode)
{
	pthread_mutex_lock(&f->mu);
	f->mem_plan = (struct fault_plan){.at = at, .mode = mode};
	pthread_mutex_unlock(&f->mu);
}

void fault_disarm(struct fault *f)
{
	pthread_mutex_lock(&f->mu);
	f->io_plan.at = 0;
	f->mem_plan.at = 0;
	pthread_mutex_unlock(&f->mu);
}

static int64_t get(struct fault *f, const int64_t *what)
{
	pthread_mutex_lock(&f->mu);
	int64_t v = *what;
	pthread_mutex_unlock(&f->mu);
	return v;
}

int64_t fault_io_failed(struct fault *f)
{
	return get(f, &f->io_plan.failed);
}

int64_t fault_mem_failed(struct fault *f)
{
	return get(f, &f->mem_plan.failed);
}

int64_t fault_open_fds(struct fault *f)
{
	return get(f, &f->open_fds);
}

int64_t fault_live_allocs(struct fault *f)
{
	return get(f, &f->live_allocs);
}
