/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a repository of backups lives, for people who bring their own storage: a place of named objects, in folders.
 * Objects are written once and never changed, but for sessions, whose contents are replaced while they live.
 *
 * Names are relative paths of [a-z0-9./-], at most 200 bytes, without empty, "." or ".." components ("config",
 * "packs/3f/3fa2…"). A driver makes folders as they are needed.
 *
 * Durability: put, rename and remove are durable when they return 0. A scheduled put is whole and readable under its
 * name when it is done without an error (never in part, also after a power loss), and durable, name and bytes, once a
 * sync that began after that has returned 0. So is what stat has shown, no matter who put it.
 *
 * Thread safety: all functions but close may be called from several threads at once, and may block. Ownership: bytes
 * and names of a call belong to the caller; those of schedule_put live until its completion.
 */
#ifndef SLUICE_ADAPTER_DRIVER_H
#define SLUICE_ADAPTER_DRIVER_H

#include <sluice/adapter/env.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SL_DRIVER_VERSION 1
#define SL_DRIVER_NAME_BYTES 201 /* with the NUL */

enum sl_driver_put {
	SL_DRIVER_NEW = 0,     /* SL_EEXIST when the name is taken */
	SL_DRIVER_REPLACE = 1, /* what was there is replaced in one step */
	/* The object must be there, or SL_ENOENT: it is not made again when another process removed it meanwhile. A
	 * crash or a failure may leave old, new or torn contents, and a concurrent get may read them. */
	SL_DRIVER_UPDATE = 2
};

struct sl_driver_stat {
	uint64_t size;    /* bytes */
	int64_t mtime_ms; /* of the last put, by the driver's own clock; compare with now_ms only */
};

/* A scheduled put has ended: err NULL, or why it failed. Exactly once, on any thread, also inside of schedule_put. */
typedef void sl_driver_done_fn(const struct sl_err *err, void *ctx);
/* name is relative to the listed folder. 0 to continue; another value ends the walk and becomes its result. */
typedef int sl_driver_list_fn(const char *name, const struct sl_driver_stat *stat, void *ctx);

struct sl_driver_ops {
	int version;      /* SL_DRIVER_VERSION */
	const char *name; /* of messages and metrics: "local" */

	/* ---- what the block writer asks (see <sluice/writer.h>); all but schedule_put may be NULL ---- */
	/* Begin to put an object as SL_DRIVER_REPLACE does. A negative SL_E…: refused, done is not called. */
	int (*schedule_put)(void *driver, const char *name, const void *bytes, size_t len, sl_driver_done_fn *done,
			    void *ctx, struct sl_err *err);
	bool (*is_shard_ready)(void *driver, const char *shard_key, size_t key_len);
	bool (*wait_for_any_shard_ready)(void *driver, int64_t timeout_ms);
	uint64_t (*driver_buffered_bytes)(void *driver);
	void (*on_concurrency_limit_changed)(void *driver, uint32_t concurrency);

	/* ---- all of these are required ---- */
	int (*put)(void *driver, const char *name, const void *bytes, size_t len, enum sl_driver_put how,
		   struct sl_err *err);
	/* Bytes from offset on, at most len; *got less than len only at the end of the object. SL_ENOENT. */
	int (*get)(void *driver, const char *name, uint64_t offset, void *buf, size_t len, size_t *got,
		   struct sl_err *err);
	int (*stat)(void *driver, const char *name, struct sl_driver_stat *out, struct sl_err *err);
	/* Objects directly in a folder ("": those in none), in any order; a folder that is not there is empty. Objects
	 * that are there from the beginning of the call to its end are listed; temporary ones of the driver's never
	 * are. fn may get and remove. */
	int (*list)(void *driver, const char *folder, sl_driver_list_fn *fn, void *ctx, struct sl_err *err);
	/* In one step. SL_ENOENT: from is not there; SL_EEXIST: to is taken. */
	int (*rename)(void *driver, const char *from, const char *to, struct sl_err *err);
	int (*remove)(void *driver, const char *name, struct sl_err *err); /* SL_ENOENT */
	int (*sync)(void *driver, struct sl_err *err);
	int (*now_ms)(void *driver, int64_t *out, struct sl_err *err); /* the clock of mtime_ms */

	/* An exclusive lock that dies with its process: SL_ELOCKED. Both NULL: the storage has none, and the
	 * repository is as safe without it, only work may be done twice. */
	int (*lock)(void *driver, const char *name, void **lock, struct sl_err *err);
	void (*unlock)(void *driver, void *lock);

	void (*close)(void *driver); /* scheduled puts have ended */
};

/* A driver in use; zero is none. The caller's; sl_driver_close closes it once. */
typedef struct sl_driver {
	const struct sl_driver_ops *ops;
	void *driver;
} sl_driver;

struct sl_driver_local_opts {
	size_t struct_size; /* SL_DRIVER_LOCAL_OPTS_INIT fills it */
	const struct sl_env *env;
	int32_t threads;       /* that write scheduled puts; default 2, at most 64 */
	enum sl_switch create; /* make the folder when it is missing; default off */
};
#define SL_DRIVER_LOCAL_OPTS_INIT .struct_size = sizeof(struct sl_driver_local_opts)

/* A folder of a local or mounted file system. SL_ENOENT: it is not there; SL_EINVAL names the option. */
SL_API SL_MUST_CHECK int sl_driver_local_open(sl_driver *out, const char *path, const struct sl_driver_local_opts *opts,
					      struct sl_err *err);
/* NULL and a driver that is closed are allowed. */
SL_API void sl_driver_close(sl_driver *driver);

#ifdef __cplusplus
}
#endif
#endif
