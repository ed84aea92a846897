/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/shelf.h"

#include <stdlib.h>
#include <string.h>

#include "backup/driver/local.h"

void shelf_init(struct shelf *s)
{
	memset(s, 0, sizeof(*s));
	(void)pthread_mutex_init(&s->mu, NULL);
	s->room = SIZE_MAX;
	s->has_lock = true;
	s->now_ms = 1700000000000;
}

static void clear(struct shelf *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->objects[i].bytes);
	free(s->objects);
	s->objects = NULL;
	s->n = s->cap = s->used = 0;
}

void shelf_fini(struct shelf *s)
{
	clear(s);
	(void)pthread_mutex_destroy(&s->mu);
}

static void *copy_bytes(const void *bytes, size_t len)
{
	void *copy = malloc(len + 1);
	if (copy == NULL)
		abort();
	if (len > 0)
		memcpy(copy, bytes, len);
	return copy;
}

void shelf_copy(struct shelf *to, const struct shelf *from)
{
	clear(to);
	to->objects = calloc(from->n + 1, sizeof(*to->objects));
	if (to->objects == NULL)
		abort();
	to->n = to->cap = from->n;
	for (size_t i = 0; i < from->n; i++) {
		to->objects[i] = from->objects[i];
		to->objects[i].bytes = copy_bytes(from->objects[i].bytes, from->objects[i].len);
	}
	to->used = from->used;
	to->now_ms = from->now_ms;
	to->has_lock = from->has_lock;
	to->locked = false;
	memset(to->locks, 0, sizeof(to->locks));
	to->gate = NULL;
	to->fail_at = 0;
	to->room = SIZE_MAX;
}

struct shelf_object *shelf_find(struct shelf *s, const char *name)
{
	for (size_t i = 0; i < s->n; i++)
		if (strcmp(s->objects[i].name, name) == 0)
			return &s->objects[i];
	return NULL;
}

size_t shelf_count(const struct shelf *s, const char *folder)
{
	size_t n = 0;
	for (size_t i = 0; i < s->n; i++)
		n += strncmp(s->objects[i].name, folder, strlen(folder)) == 0;
	return n;
}

bool shelf_drop(struct shelf *s, const char *name)
{
	struct shelf_object *o = shelf_find(s, name);
	if (o == NULL)
		return false;
	s->used -= o->len;
	free(o->bytes);
	*o = s->objects[--s->n];
	return true;
}

/* ---- the driver ---- */

static void pass_gate(struct shelf *s, const char *what, const char *name)
{
	if (s->gate != NULL)
		s->gate(what, name, s->gate_ctx);
}

/* Every call's name. */
static int check(const char *name, struct sl_err *err)
{
	return sl__bk_driver_name_ok(name) ? 0 : sl_err_set(err, SL_EINVAL, "invalid name \"%.200s\"", name);
}

/* Under the lock. A call that would change something. */
static int fails(struct shelf *s, const char *what, const char *name, struct sl_err *err)
{
	s->changes++;
	if (s->fail_at == 0 || (s->for_ever ? s->changes < s->fail_at : s->changes != s->fail_at))
		return 0;
	return sl_err_set(err, s->fail_code, "%s %s: the test wants it to fail", what, name);
}

static int missing(const char *name, struct sl_err *err)
{
	return sl_err_set(err, SL_ENOENT, "%s is not there", name);
}

static struct shelf_object *make(struct shelf *s, const char *name)
{
	if (s->n == s->cap) {
		s->cap = s->cap * 2 + 16;
		s->objects = realloc(s->objects, s->cap * sizeof(*s->objects));
		if (s->objects == NULL)
			abort();
	}
	struct shelf_object *o = &s->objects[s->n++];
	memset(o, 0, sizeof(*o));
	strncpy(o->name, name, sizeof(o->name) - 1);
	return o;
}

static int set(struct shelf *s, const char *name, const void *bytes, size_t len, enum sl_driver_put how,
	       struct sl_err *err)
{
	struct shelf_object *o = shelf_find(s, name);
	if (o != NULL && how == SL_DRIVER_NEW)
		return sl_err_set(err, SL_EEXIST, "%s is there", name);
	if (o == NULL && how == SL_DRIVER_UPDATE)
		return missing(name, err);
	size_t before = o != NULL ? o->len : 0;
	if (s->used - before + len > s->room)
		return sl_err_set(err, SL_ENOSPC, "%s: no space left", name);
	if (o == NULL)
		o = make(s, name);
	free(o->bytes);
	o->bytes = copy_bytes(bytes, len);
	o->len = len;
	o->mtime_ms = s->now_ms;
	s->used += len - before;
	return 0;
}

static int put(void *driver, const char *name, const void *bytes, size_t len, enum sl_driver_put how,
	       struct sl_err *err)
{
	struct shelf *s = driver;
	pass_gate(s, "put", name);
	(void)pthread_mutex_lock(&s->mu);
	int rc = check(name, err);
	if (rc == 0)
		rc = fails(s, "put", name, err);
	if (rc == 0)
		rc = set(s, name, bytes, len, how, err);
	(void)pthread_mutex_unlock(&s->mu);
	return rc;
}

static int schedule_put(void *driver, const char *name, const void *bytes, size_t len, sl_driver_done_fn *done,
			void *ctx, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	int rc = check(name, err);
	if (rc != 0)
		return rc;
	rc = put(driver, name, bytes, len, SL_DRIVER_REPLACE, &why);
	done(rc != 0 ? &why : NULL, ctx);
	return 0;
}

static int get(void *driver, const char *name, uint64_t offset, void *buf, size_t len, size_t *got, struct sl_err *err)
{
	struct shelf *s = driver;
	pass_gate(s, "get", name);
	(void)pthread_mutex_lock(&s->mu);
	const struct shelf_object *o = shelf_find(s, name);
	int rc = check(name, err);
	if (rc == 0 && o == NULL)
		rc = missing(name, err);
	if (s->unreadable != NULL && strncmp(name, s->unreadable, strlen(s->unreadable)) == 0)
		rc = sl_err_set(err, SL_EIO, "%s cannot be read", name);
	if (rc == 0) {
		size_t left = offset < o->len ? o->len - (size_t)offset : 0;
		*got = left < len ? left : len;
		if (*got > 0)
			memcpy(buf, o->bytes + offset, *got);
	}
	(void)pthread_mutex_unlock(&s->mu);
	return rc;
}

static int look(void *driver, const char *name, struct sl_driver_stat *out, struct sl_err *err)
{
	struct shelf *s = driver;
	pass_gate(s, "stat", name);
	(void)pthread_mutex_lock(&s->mu);
	const struct shelf_object *o = shelf_find(s, name);
	if (o != NULL)
		*out = (struct sl_driver_stat){.size = o->len, .mtime_ms = o->mtime_ms};
	(void)pthread_mutex_unlock(&s->mu);
	int rc = check(name, err);
	return rc == 0 && o == NULL ? missing(name, err) : rc;
}

static bool is_in(const char *name, const char *folder)
{
	size_t n = strlen(folder);
	if (n == 0)
		return strchr(name, '/') == NULL;
	return strncmp(name, folder, n) == 0 && name[n] == '/' && strchr(name + n + 1, '/') == NULL;
}

static int list(void *driver, const char *folder, sl_driver_list_fn *fn, void *ctx, struct sl_err *err)
{
	struct shelf *s = driver;
	int rc = folder[0] != '\0' ? check(folder, err) : 0;
	if (rc != 0)
		return rc;
	pass_gate(s, "list", folder);
	(void)pthread_mutex_lock(&s->mu);
	size_t n = 0, all = s->n;
	struct shelf_object *found = calloc(all + 1, sizeof(*found));
	if (found == NULL)
		abort();
	for (size_t i = 0; i < all; i++)
		if (is_in(s->objects[i].name, folder))
			found[n++] = s->objects[i];
	(void)pthread_mutex_unlock(&s->mu);
	for (size_t i = 0; i < n && rc == 0; i++) {
		const struct sl_driver_stat stat = {.size = found[i].len, .mtime_ms = found[i].mtime_ms};
		rc = fn(found[i].name + (folder[0] != '\0' ? strlen(folder) + 1 : 0), &stat, ctx);
	}
	free(found);
	return rc;
}

static int move(void *driver, const char *from, const char *to, struct sl_err *err)
{
	struct shelf *s = driver;
	pass_gate(s, "rename", from);
	(void)pthread_mutex_lock(&s->mu);
	struct shelf_object *o = shelf_find(s, from);
	int rc = check(from, err);
	if (rc == 0)
		rc = check(to, err);
	if (rc == 0)
		rc = fails(s, "rename", from, err);
	if (rc == 0 && o == NULL)
		rc = missing(from, err);
	if (rc == 0 && shelf_find(s, to) != NULL)
		rc = sl_err_set(err, SL_EEXIST, "%s is there", to);
	if (rc == 0 && o != NULL)
		strncpy(o->name, to, sizeof(o->name) - 1);
	(void)pthread_mutex_unlock(&s->mu);
	return rc;
}

static int drop(void *driver, const char *name, struct sl_err *err)
{
	struct shelf *s = driver;
	pass_gate(s, "remove", name);
	(void)pthread_mutex_lock(&s->mu);
	int rc = check(name, err);
	if (rc == 0)
		rc = fails(s, "remove", name, err);
	if (rc == 0 && !shelf_drop(s, name))
		rc = missing(name, err);
	(void)pthread_mutex_unlock(&s->mu);
	return rc;
}

static int make_durable(void *driver, struct sl_err *err)
{
	struct shelf *s = driver;
	pass_gate(s, "sync", "");
	(void)pthread_mutex_lock(&s->mu);
	int rc = fails(s, "sync", "", err);
	(void)pthread_mutex_unlock(&s->mu);
	return rc;
}

static int tell_time(void *driver, int64_t *out, struct sl_err *err)
{
	struct shelf *s = driver;
	(void)err;
	(void)pthread_mutex_lock(&s->mu);
	*out = s->now_ms;
	(void)pthread_mutex_unlock(&s->mu);
	return 0;
}

static int take_lock(void *driver, const char *name, void **lock, struct sl_err *err)
{
	struct shelf *s = driver;
	char *free_one = NULL;
	bool taken = false, held = false;
	(void)pthread_mutex_lock(&s->mu);
	for (size_t i = 0; i < SHELF_LOCKS; i++) {
		taken |= strcmp(s->locks[i], name) == 0;
		held |= s->locks[i][0] != '\0';
		if (s->locks[i][0] == '\0')
			free_one = s->locks[i];
	}
	taken |= s->locked && !held; /* by the test */
	s->locked = true;
	if (!taken && free_one != NULL)
		*lock = strncpy(free_one, name, SL_DRIVER_NAME_BYTES - 1);
	(void)pthread_mutex_unlock(&s->mu);
	if (!taken && free_one == NULL)
		abort();
	return taken ? sl_err_set(err, SL_ELOCKED, "%s is locked", name) : 0;
}

static void let_go(void *driver, void *lock)
{
	struct shelf *s = driver;
	(void)pthread_mutex_lock(&s->mu);
	memset(lock, 0, SL_DRIVER_NAME_BYTES);
	s->locked = false;
	for (size_t i = 0; i < SHELF_LOCKS; i++)
		s->locked |= s->locks[i][0] != '\0';
	(void)pthread_mutex_unlock(&s->mu);
}

static void leave(void *driver)
{
	(void)driver;
}

#define SHELF_OPS                                                                                                      \
	.version = SL_DRIVER_VERSION, .name = "shelf", .schedule_put = schedule_put, .put = put, .get = get,           \
	.stat = look, .list = list, .rename = move, .remove = drop, .sync = make_durable, .now_ms = tell_time,         \
	.close = leave

sl_driver shelf_driver(struct shelf *s)
{
	static const struct sl_driver_ops with_lock = {SHELF_OPS, .lock = take_lock, .unlock = let_go};
	static const struct sl_driver_ops without = {SHELF_OPS};
	return (sl_driver){.ops = s->has_lock ? &with_lock : &without, .driver = s};
}
