/* SPDX-License-Identifier: Apache-2.0 */
/* The live filesystem and its history. Each change is made at once (the page cache) and noted with the operation that
 * makes it durable, if any does; crashfs_state.c reads that history. */
#include "support/crashfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "support/crashfs_priv.h"

#define FD_BASE 100000 /* far from real descriptors, so that a mix-up fails */

void *cfs_alloc(size_t n)
{
	void *p = calloc(1, n != 0 ? n : 1);
	if (p == NULL)
		abort();
	return p;
}

void *cfs_grow(void *p, size_t n)
{
	p = realloc(p, n != 0 ? n : 1);
	if (p == NULL)
		abort();
	return p;
}

char *cfs_strdup(const char *s)
{
	size_t n = strlen(s) + 1;
	return memcpy(cfs_alloc(n), s, n);
}

/* ---- inodes ---- */

static void reserve(struct cfs_inode *node, size_t n)
{
	if (n <= node->cap)
		return;
	size_t cap = node->cap != 0 ? node->cap : 256;
	while (cap < n)
		cap *= 2;
	node->data = cfs_grow(node->data, cap);
	memset(node->data + node->cap, 0, cap - node->cap);
	node->cap = cap;
}

void cfs_write(struct cfs_inode *node, uint64_t off, const void *data, size_t n)
{
	if (n == 0)
		return;
	size_t end = (size_t)off + n;
	reserve(node, end);
	memcpy(node->data + off, data, n);
	if (end > node->size)
		node->size = end;
	if (end > node->max_size)
		node->max_size = end;
}

void cfs_resize(struct cfs_inode *node, size_t size)
{
	reserve(node, size);
	if (size < node->size)
		memset(node->data + size, 0, node->size - size);
	node->size = size;
	if (size > node->max_size)
		node->max_size = size;
}

struct cfs_entry *cfs_lookup(const struct cfs_inode *dir, const char *name)
{
	for (size_t i = 0; i < dir->n_entries; i++)
		if (strcmp(dir->entries[i].name, name) == 0)
			return &dir->entries[i];
	return NULL;
}

void cfs_link(struct cfs_inode *dir, const char *name, uint32_t ino)
{
	struct cfs_entry *entry = cfs_lookup(dir, name);
	if (entry == NULL) {
		dir->entries = cfs_grow(dir->entries, (dir->n_entries + 1) * sizeof(*dir->entries));
		entry = &dir->entries[dir->n_entries++];
		entry->name = cfs_strdup(name);
	}
	entry->ino = ino;
}

void cfs_unlink(struct cfs_inode *dir, const char *name)
{
	struct cfs_entry *entry = cfs_lookup(dir, name);
	if (entry == NULL)
		return;
	free(entry->name);
	size_t at = (size_t)(entry - dir->entries);
	memmove(entry, entry + 1, (dir->n_entries - at - 1) * sizeof(*entry));
	dir->n_entries--;
}

void cfs_copy_inode(struct cfs_inode *to, const struct cfs_inode *from)
{
	*to = *from;
	to->lock_fd = -1;
	to->name = NULL;
	to->data = NULL;
	to->cap = 0;
	if (from->size != 0) {
		reserve(to, from->size);
		memcpy(to->data, from->data, from->size);
	}
	to->entries = cfs_alloc(from->n_entries * sizeof(*to->entries));
	for (size_t i = 0; i < from->n_entries; i++)
		to->entries[i] = (struct cfs_entry){cfs_strdup(from->entries[i].name), from->entries[i].ino};
}

void cfs_free_inodes(struct cfs_inode *nodes, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		for (size_t k = 0; k < nodes[i].n_entries; k++)
			free(nodes[i].entries[k].name);
		free(nodes[i].entries);
		free(nodes[i].data);
		free(nodes[i].name);
	}
	free(nodes);
}

static uint32_t new_inode(struct crashfs *fs, bool is_dir, uint32_t mode, const char *name)
{
	fs->inodes = cfs_grow(fs->inodes, (fs->n_inodes + 1) * sizeof(*fs->inodes));
	fs->inodes[fs->n_inodes] = (struct cfs_inode){
		.is_dir = is_dir, .mode = mode, .lock_fd = -1, .mtime_ms = 1700000000000, .name = cfs_strdup(name)};
	return (uint32_t)fs->n_inodes++;
}

/* ---- history ---- */

static void free_ops(struct crashfs *fs)
{
	for (size_t i = 0; i < fs->n_ops; i++) {
		free(fs->ops[i].name);
		free(fs->ops[i].name2);
		free(fs->ops[i].data);
	}
	fs->n_ops = 0;
	fs->settled = 0;
}

static void note(struct crashfs *fs, struct cfs_op op)
{
	op.durable_at = CFS_NEVER;
	if (!fs->recording) {
		free(op.name);
		free(op.name2);
		free(op.data);
		return;
	}
	if (fs->n_ops == fs->cap_ops) {
		fs->cap_ops = fs->cap_ops != 0 ? fs->cap_ops * 2 : 64;
		fs->ops = cfs_grow(fs->ops, fs->cap_ops * sizeof(*fs->ops));
	}
	fs->ops[fs->n_ops++] = op;
}

/* Call with fs->mu held at the head of every operation that may fail: 0, or what a dead process gets. */
static int alive(const struct crashfs *fs)
{
	return fs->n_ops >= fs->stop_at ? -EIO : 0;
}

static bool covered(const struct cfs_op *op, uint32_t ino, bool is_dir)
{
	if (op->durable_at != CFS_NEVER || op->kind == CFS_SYNC)
		return false;
	if (!is_dir)
		return (op->kind == CFS_WRITE || op->kind == CFS_TRUNCATE) && op->ino == ino;
	if (op->kind == CFS_RENAME)
		return op->dir2 == ino;
	return (op->kind == CFS_CREATE || op->kind == CFS_UNLINK) && op->dir == ino;
}

static void make_durable(struct crashfs *fs, uint32_t ino, const char *call)
{
	size_t covers = 0;
	if (!fs->recording)
		return;
	for (size_t i = fs->settled; i < fs->n_ops; i++)
		if (covered(&fs->ops[i], ino, fs->inodes[ino].is_dir)) {
			fs->ops[i].durable_at = fs->n_ops;
			covers++;
		}
	note(fs, (struct cfs_op){.kind = CFS_SYNC,
				 .ino = ino,
				 .name = cfs_strdup(fs->inodes[ino].name),
				 .call = call,
				 .len = covers});
	while (fs->settled < fs->n_ops &&
	       (fs->ops[fs->settled].durable_at != CFS_NEVER || fs->ops[fs->settled].kind == CFS_SYNC))
		fs->settled++;
}

/* ---- paths ---- */

struct place {
	uint32_t dir;   /* of the last component */
	char name[256]; /* the last component; empty for the root itself */
	bool there;
	uint32_t ino;
};

static int resolve(const struct crashfs *fs, const char *path, struct place *out)
{
	*out = (struct place){.there = true};
	while (*path != '\0') {
		size_t n = strcspn(path, "/");
		if (n == 0 || (n == 1 && *path == '.')) {
			path += n + (path[n] == '/');
			continue;
		}
		if (n >= sizeof(out->name))
			return -ENAMETOOLONG;
		if (!out->there)
			return -ENOENT;
		if (!fs->inodes[out->ino].is_dir)
			return -ENOTDIR;
		out->dir = out->ino;
		memcpy(out->name, path, n);
		out->name[n] = '\0';
		const struct cfs_entry *entry = cfs_lookup(&fs->inodes[out->dir], out->name);
		out->there = entry != NULL;
		out->ino = entry != NULL ? entry->ino : 0;
		path += n + (path[n] == '/');
	}
	return 0;
}

/* ---- the table ---- */

static int new_fd(struct crashfs *fs, uint32_t ino, int flags)
{
	size_t i = 0;
	while (i < fs->n_fds && fs->fds[i].used)
		i++;
	if (i == fs->n_fds)
		fs->fds = cfs_grow(fs->fds, ++fs->n_fds * sizeof(*fs->fds));
	fs->fds[i] = (struct cfs_fd){.used = true, .ino = ino, .flags = flags};
	return FD_BASE + (int)i;
}

static struct cfs_fd *get_fd(struct crashfs *fs, int fd)
{
	if (fd < FD_BASE || (size_t)(fd - FD_BASE) >= fs->n_fds || !fs->fds[fd - FD_BASE].used)
		return NULL;
	return &fs->fds[fd - FD_BASE];
}

static void truncate_node(struct crashfs *fs, uint32_t ino, uint64_t size)
{
	struct cfs_inode *node = &fs->inodes[ino];
	if (node->size == size)
		return;
	note(fs, (struct cfs_op){.kind = CFS_TRUNCATE, .ino = ino, .off = size, .resizes = true});
	cfs_resize(node, (size_t)size);
}

static uint32_t create(struct crashfs *fs, const struct place *at, bool is_dir, uint32_t mode)
{
	uint32_t ino = new_inode(fs, is_dir, mode, at->name);
	note(fs, (struct cfs_op){.kind = CFS_CREATE, .ino = ino, .dir = at->dir, .name = cfs_strdup(at->name)});
	cfs_link(&fs->inodes[at->dir], at->name, ino);
	return ino;
}

static int open_locked(struct crashfs *fs, const char *path, int flags, mode_t mode)
{
	struct place at;
	int rc = alive(fs);
	if (rc == 0)
		rc = resolve(fs, path, &at);
	if (rc != 0)
		return rc;
	if (!at.there) {
		if ((flags & O_CREAT) == 0)
			return -ENOENT;
		return new_fd(fs, create(fs, &at, false, S_IFREG | mode), flags);
	}
	const struct cfs_inode *node = &fs->inodes[at.ino];
	if ((flags & O_CREAT) != 0 && (flags & O_EXCL) != 0)
		return -EEXIST;
	if ((flags & O_DIRECTORY) != 0 && !node->is_dir)
		return -ENOTDIR;
	if (node->is_dir && (flags & O_ACCMODE) != O_RDONLY)
		return -EISDIR;
	if ((flags & O_TRUNC) != 0)
		truncate_node(fs, at.ino, 0);
	return new_fd(fs, at.ino, flags);
}

static int c_open(const char *path, int flags, mode_t mode, void *ctx)
{
	struct crashfs *fs = ctx;
	pthread_mutex_lock(&fs->mu);
	int rc = open_locked(fs, path, flags, mode);
	pthread_mutex_unlock(&fs->mu);
	return rc;
}

static int c_close(int fd, void *ctx)
{
	struct crashfs *fs = ctx;
	pthread_mutex_lock(&fs->mu);
	struct cfs_fd *f = get_fd(fs, fd);
	if (f != NULL) {
		f->used = false;
		if (fs->inodes[f->ino].lock_fd == fd)
			fs->inodes[f->ino].lock_fd = -1;
	}
	pthread_mutex_unlock(&fs->mu);
	return f != NULL ? 0 : -EBADF;
}

static ssize_t c_pread(int fd, void *buf, size_t n, uint64_t offset, void *ctx)
{
	struct crashfs *fs = ctx;
	pthread_mutex_lock(&fs->mu);
	const struct cfs_fd *f = get_fd(fs, fd);
	ssize_t got = alive(fs);
	if (got == 0 && f == NULL)
		got = -EBADF;
	if (got == 0 && fs->inodes[f->ino].is_dir)
		got = -EISDIR;
	if (got == 0 && offset < fs->inodes[f->ino].size) {
		const struct cfs_inode *node = &fs->inodes[f->ino];
		size_t left = node->size - (size_t)offset;
		got = (ssize_t)(n < left ? n : left);
		memcpy(buf, node->data + offset, (size_t)got);
	}
	pthread_mutex_unlock(&fs->mu);
	return got;
}

static bool all_zero(const uint8_t *p, size_t n)
{
	return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

size_t crashfs_used(const struct crashfs *fs)
{
	size_t sum = 0;
	for (size_t i = 0; i < fs->n_inodes; i++)
		sum += fs->inodes[i].size;
	return sum;
}

/* How much of a write fits: all, less, or nothing. */
static size_t within_quota(const struct crashfs *fs, const struct cfs_inode *node, size_t n, uint64_t offset)
{
	if (fs->quota == SIZE_MAX || offset + n <= node->size)
		return n;
	size_t used = crashfs_used(fs), room = fs->quota > used ? fs->quota - used : 0;
	size_t end = node->size + room;
	if (offset >= end)
		return 0;
	return offset + n <= end ? n : end - (size_t)offset;
}

static ssize_t write_locked(struct crashfs *fs, int fd, const void *buf, size_t n, uint64_t offset)
{
	const struct cfs_fd *f = get_fd(fs, fd);
	int rc = alive(fs);
	if (rc != 0)
		return rc;
	if (f == NULL || (f->flags & O_ACCMODE) == O_RDONLY)
		return -EBADF;
	struct cfs_inode *node = &fs->inodes[f->ino];
	size_t fits = within_quota(fs, node, n, offset);
	if (fits == 0 && n != 0)
		return -ENOSPC;
	n = fits;
	struct cfs_op op = {.kind = CFS_WRITE, .ino = f->ino, .off = offset, .len = n};
	op.resizes = offset + n > node->size;
	op.idle_zeros = offset >= node->max_size && all_zero(buf, n);
	op.data = memcpy(cfs_alloc(n), buf, n);
	note(fs, op);
	cfs_write(node, offset, buf, n);
	if ((f->flags & O_DSYNC) != 0)
		make_durable(fs, f->ino, "O_DSYNC");
	return (ssize_t)n;
}

static ssize_t c_pwrite(int fd, const void *buf, size_t n, uint64_t offset, void *ctx)
{
	struct crashfs *fs = ctx;
	pthread_mutex_lock(&fs->mu);
	bool full = fs->fail_in == 1 && fs->fail_n > 0;
	if (full)
		fs->fail_n--;
	else if (fs->fail_in > 1)
		fs->fail_in--;
	ssize_t put = full ? -ENOSPC : write_locked(fs, fd, buf, n, offset);
	pthread_mutex_unlock(&fs->mu);
	return put;
}

static int sync_fd(struct crashfs *fs, int fd, const char *call)
{
	pthread_mutex_lock(&fs->mu);
	const struct cfs_fd *f = get_fd(fs, fd);
	int rc = alive(fs);
	if (rc == 0 && f == NULL)
		rc = -EBADF;
	if (rc == 0 && fs->fail_syncs > 0) {
		fs->fail_syncs--;
		rc = -EIO;
	}
	if (rc == 0)
		make_durable(fs, f->ino, call);
	pthread_mutex_unlock(&fs->mu);
	return rc;
}

static int c_datasync(int fd, void *ctx)
{
	return sync_fd(ctx, fd, "datasync");
}

static int c_sync(int fd, void *ctx)
{
	return sync_fd(ctx, fd, "sync");
}

static int c_truncate(int fd, uint64_t size, void *ctx)
{
	struct crashfs *fs = ctx;
	pthread_mutex_lock(&fs->mu);
	const struct cfs_fd *f = get_fd(fs, fd);
	int rc = alive(fs);
	if (rc == 0 && (f == NULL || (f->flags & O_ACCMODE) == O_RDONLY))
		rc = -EBADF;
	if (rc == 0)
		truncate_node(fs, f->ino, size);
	pthread_mutex_unlock(&fs->mu);
	return rc;
}

static void fill_stat(const struct crashfs *fs, uint32_t ino, struct sl_io_stat *out)
{
	const struct cfs_inode *node = &fs->inodes[ino];
	*out = (struct sl_io_stat){
		.size = node->size, .dev = 1, .ino = ino + 1, .mtime_ms = node->mtime_ms, .mode = node->mode};
}

static int c_fstat(int fd, struct sl_io_stat *out, void *ctx)
{
	struct crashfs *fs = ctx;
	pthread_mutex_lock(&fs->mu);
	const struct cfs_fd *f = get_fd(fs, fd);
	int rc = alive(fs);
	if (rc == 0 && f == NULL)
		rc = -EBADF;
	if (rc == 0)
		fill_stat(fs, f->ino, out);
	pthread_mutex_unlock(&fs->mu);
	return rc;
}

static int c_stat(const char *path, struct sl_io_stat *out, void *ctx)
{
	struct crashfs *fs = ctx;
	struct place at;
	pthread_mutex_lock(&fs->mu);
	int rc = alive(fs);
	if (rc == 0)
		rc = resolve(fs, path, &at);
	if (rc == 0 && !at.there)
		rc = -ENOENT;
	if (rc == 0)
		fill_stat(fs, at.ino, out);
	pthread_mutex_unlock(&fs->mu);
	return rc;
}

static int rename_locked(struct crashfs *fs, const char *from, const char *to, int noreplace)
{
	struct place a, b;
	int rc = alive(fs);
	if (rc == 0)
		rc = resolve(fs, from, &a);
	if (rc == 0)
		rc = a.there ? resolve(fs, to, &b) : -ENOENT;
	if (rc != 0)
		return rc;
	if (b.there && noreplace)
		return -EEXIST;
	if (b.there && b.ino == a.ino)
		return 0;
	if (b.there && fs->inodes[b.ino].is_dir)
		return -EISDIR;
	note(fs, (struct cfs_op){.kind = CFS_RENAME,
				 .ino = a.ino,
				 .dir = a.dir,
				 .dir2 = b.dir,
				 .name = cfs_strdup(a.name),
				 .name2 = cfs_strdup(b.name)});
	cfs_unlink(&fs->inodes[a.dir], a.name);
	cfs_link(&fs->inodes[b.dir], b.name, a.ino);
	free(fs->inodes[a.ino].name);
	fs->inodes[a.ino].name = cfs_strdup(b.name);
	return 0;
}

static int c_rename(const char *from, const char *to, int noreplace, void *ctx)
{
	struct crashfs *fs = ctx;
	pthread_mutex_lock(&fs->mu);
	int rc = rename_locked(fs, from, to, noreplace);
	pthread_mutex_unlock(&fs->mu);
	return rc;
}

static int c_unlink(const char *path, void *ctx)
{
	struct crashfs *fs = ctx;
	struct place at;
	pthread_mutex_lock(&fs->mu);
	int rc = alive(fs);
	if (rc == 0)
		rc = resolve(fs, path, &at);
	if (rc == 0 && !at.there)
		rc = -ENOENT;
	if (rc == 0 && fs->inodes[at.ino].is_dir)
		rc = -EISDIR;
	if (rc == 0) {
		note(fs,
		     (struct cfs_op){.kind = CFS_UNLINK, .ino = at.ino, .dir = at.dir, .name = cfs_strdup(at.name)});
		cfs_unlink(&fs->inodes[at.dir], at.name);
	}
	pthread_mutex_unlock(&fs->mu);
	return rc;
}

static int c_mkdir(const char *path, mode_t mode, void *ctx)
{
	struct crashfs *fs = ctx;
	struct place at;
	pthread_mutex_lock(&fs->mu);
	int rc = alive(fs);
	if (rc == 0)
		rc = resolve(fs, path, &at);
	if (rc == 0 && at.there)
		rc = -EEXIST;
	if (rc == 0)
		(void)create(fs, &at, true, S_IFDIR | mode);
	pthread_mutex_unlock(&fs->mu);
	return rc;
}

/* The names are copied first, so that fn may use the filesystem. */
static int c_list(const char *path, sl_io_list_fn *fn, void *fn_ctx, void *ctx)
{
	struct crashfs *fs = ctx;
	struct place at;
	pthread_mutex_lock(&fs->mu);
	int rc = alive(fs);
	if (rc == 0)
		rc = resolve(fs, path, &at);
	if (rc == 0 && !at.there)
		rc = -ENOENT;
	if (rc == 0 && !fs->inodes[at.ino].is_dir)
		rc = -ENOTDIR;
	size_t n = rc == 0 ? fs->inodes[at.ino].n_entries : 0;
	char **names = cfs_alloc(n * sizeof(*names));
	for (size_t i = 0; i < n; i++)
		names[i] = cfs_strdup(fs->inodes[at.ino].entries[i].name);
	pthread_mutex_unlock(&fs->mu);
	for (size_t i = 0; i < n; i++) {
		if (rc == 0)
			rc = fn(names[i], fn_ctx);
		free(names[i]);
	}
	free(names);
	return rc;
}

static int c_lock(int fd, void *ctx)
{
	struct crashfs *fs = ctx;
	pthread_mutex_lock(&fs->mu);
	const struct cfs_fd *f = get_fd(fs, fd);
	int rc = alive(fs);
	if (rc == 0 && f == NULL)
		rc = -EBADF;
	if (rc == 0 && fs->inodes[f->ino].lock_fd >= 0 && fs->inodes[f->ino].lock_fd != fd)
		rc = -EWOULDBLOCK;
	if (rc == 0)
		fs->inodes[f->ino].lock_fd = fd;
	pthread_mutex_unlock(&fs->mu);
	return rc;
}

const struct sl_io crashfs_io = {
	.version = SL_IO_VERSION,
	.open = c_open,
	.close = c_close,
	.pread = c_pread,
	.pwrite = c_pwrite,
	.datasync = c_datasync,
	.sync = c_sync,
	.truncate = c_truncate,
	.fstat = c_fstat,
	.stat = c_stat,
	.rename = c_rename,
	.unlink = c_unlink,
	.mkdir = c_mkdir,
	.list = c_list,
	.lock = c_lock,
};

/* ---- the rest of the interface ---- */

struct crashfs *crashfs_new(void)
{
	struct crashfs *fs = cfs_alloc(sizeof(*fs));
	pthread_mutex_init(&fs->mu, NULL);
	fs->stop_at = fs->quota = SIZE_MAX;
	(void)new_inode(fs, true, S_IFDIR | 0700, "/");
	crashfs_settle(fs);
	fs->recording = true;
	return fs;
}

void crashfs_free(struct crashfs *fs)
{
	if (fs == NULL)
		return;
	free_ops(fs);
	free(fs->ops);
	cfs_free_inodes(fs->inodes, fs->n_inodes);
	cfs_free_inodes(fs->base, fs->n_base);
	free(fs->fds);
	pthread_mutex_destroy(&fs->mu);
	free(fs);
}

void crashfs_record(struct crashfs *fs, bool on)
{
	fs->recording = on;
	if (on)
		crashfs_settle(fs);
}

void crashfs_settle(struct crashfs *fs)
{
	free_ops(fs);
	cfs_free_inodes(fs->base, fs->n_base);
	fs->n_base = fs->n_inodes;
	fs->base = cfs_alloc(fs->n_base * sizeof(*fs->base));
	for (size_t i = 0; i < fs->n_base; i++)
		cfs_copy_inode(&fs->base[i], &fs->inodes[i]);
}

size_t crashfs_point(const struct crashfs *fs)
{
	return fs->n_ops;
}

void crashfs_stop_at(struct crashfs *fs, size_t point)
{
	fs->stop_at = point;
}

bool crashfs_stopped(const struct crashfs *fs)
{
	return alive(fs) != 0;
}

void crashfs_kill(struct crashfs *fs)
{
	for (size_t i = 0; i < fs->n_fds; i++)
		fs->fds[i].used = false;
	for (size_t i = 0; i < fs->n_inodes; i++)
		fs->inodes[i].lock_fd = -1;
	fs->stop_at = SIZE_MAX;
}

size_t crashfs_open_files(const struct crashfs *fs)
{
	size_t n = 0;
	for (size_t i = 0; i < fs->n_fds; i++)
		n += fs->fds[i].used;
	return n;
}

void crashfs_fail_syncs(struct crashfs *fs, size_t n)
{
	fs->fail_syncs = n;
}

void crashfs_fail_writes(struct crashfs *fs, size_t nth, size_t n_writes)
{
	fs->fail_in = nth;
	fs->fail_n = n_writes;
}

void crashfs_quota(struct crashfs *fs, size_t bytes)
{
	fs->quota = bytes;
}

void crashfs_mkdir(struct crashfs *fs, const char *path)
{
	struct place at;
	bool recording = fs->recording;
	fs->recording = false;
	if (resolve(fs, path, &at) != 0)
		abort();
	if (!at.there)
		(void)create(fs, &at, true, S_IFDIR | 0700);
	crashfs_record(fs, recording);
}

void crashfs_put(struct crashfs *fs, const char *path, const void *data, size_t n)
{
	struct place at;
	bool recording = fs->recording;
	fs->recording = false;
	if (resolve(fs, path, &at) != 0)
		abort();
	uint32_t ino = at.there ? at.ino : create(fs, &at, false, S_IFREG | 0600);
	cfs_resize(&fs->inodes[ino], 0);
	cfs_write(&fs->inodes[ino], 0, data, n);
	crashfs_record(fs, recording);
}

const void *crashfs_get(const struct crashfs *fs, const char *path, size_t *n)
{
	struct place at;
	if (resolve(fs, path, &at) != 0 || !at.there || fs->inodes[at.ino].is_dir)
		return NULL;
	if (n != NULL)
		*n = fs->inodes[at.ino].size;
	return fs->inodes[at.ino].data != NULL ? (const void *)fs->inodes[at.ino].data : "";
}

int crashfs_each(const struct crashfs *fs, const char *dir, sl_io_list_fn *fn, void *ctx)
{
	struct place at;
	if (resolve(fs, dir, &at) != 0 || !at.there)
		return 0;
	for (size_t i = 0; i < fs->inodes[at.ino].n_entries; i++) {
		int rc = fn(fs->inodes[at.ino].entries[i].name, ctx);
		if (rc != 0)
			return rc;
	}
	return 0;
}

size_t crashfs_next_sync(const struct crashfs *fs, size_t point)
{
	while (point < fs->n_ops && (fs->ops[point].kind != CFS_SYNC || fs->ops[point].len == 0))
		point++;
	return point;
}

size_t crashfs_next_rename(const struct crashfs *fs, size_t point)
{
	while (point < fs->n_ops && fs->ops[point].kind != CFS_RENAME)
		point++;
	return point;
}
