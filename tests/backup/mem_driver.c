/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/mem_driver.h"

#include <stdlib.h>
#include <string.h>

void mem_driver_init(struct mem_driver *d)
{
	memset(d, 0, sizeof(*d));
	(void)pthread_mutex_init(&d->mu, NULL);
}

void mem_driver_fini(struct mem_driver *d)
{
	for (size_t i = 0; i < d->n; i++)
		free(d->objects[i].bytes);
	free(d->objects);
	(void)pthread_mutex_destroy(&d->mu);
}

struct mem_object *mem_driver_find(struct mem_driver *d, const char *name)
{
	for (size_t i = 0; i < d->n; i++)
		if (strcmp(d->objects[i].name, name) == 0)
			return &d->objects[i];
	return NULL;
}

static struct mem_object *slot_for(struct mem_driver *d, const char *name)
{
	struct mem_object *o = mem_driver_find(d, name);
	if (o != NULL)
		return o;
	struct mem_object *grown = realloc(d->objects, (d->n + 1) * sizeof(*grown));
	if (grown == NULL)
		abort();
	d->objects = grown;
	o = &grown[d->n++];
	memset(o, 0, sizeof(*o));
	strcpy(o->name, name);
	return o;
}

static int put(void *driver, const char *name, const void *bytes, size_t len, enum sl_driver_put how,
	       struct sl_err *err)
{
	struct mem_driver *d = driver;
	int rc = 0;
	(void)pthread_mutex_lock(&d->mu);
	struct mem_object *old = mem_driver_find(d, name);
	if (how == SL_DRIVER_NEW && old != NULL)
		rc = sl_err_set(err, SL_EEXIST, "%s is there", name);
	else if (how == SL_DRIVER_UPDATE && old == NULL)
		rc = sl_err_set(err, SL_ENOENT, "%s is not there", name);
	if (rc == 0) {
		struct mem_object *o = slot_for(d, name);
		free(o->bytes);
		o->bytes = malloc(len + 1);
		if (o->bytes == NULL)
			abort();
		memcpy(o->bytes, bytes, len);
		o->len = len;
	}
	(void)pthread_mutex_unlock(&d->mu);
	return rc;
}

static int get(void *driver, const char *name, uint64_t offset, void *buf, size_t len, size_t *got, struct sl_err *err)
{
	struct mem_driver *d = driver;
	int rc = 0;
	(void)pthread_mutex_lock(&d->mu);
	const struct mem_object *o = mem_driver_find(d, name);
	if (++d->gets == (uint64_t)d->fail_get_at) {
		rc = sl_err_set(err, SL_EIO, "%s: made to fail", name);
	} else if (o == NULL) {
		rc = sl_err_set(err, SL_ENOENT, "%s is not there", name);
	} else {
		size_t left = offset < o->len ? o->len - (size_t)offset : 0;
		*got = left < len ? left : len;
		memcpy(buf, o->bytes + offset, *got);
		d->got_bytes += *got;
	}
	(void)pthread_mutex_unlock(&d->mu);
	return rc;
}

static int stat_object(void *driver, const char *name, struct sl_driver_stat *out, struct sl_err *err)
{
	struct mem_driver *d = driver;
	(void)pthread_mutex_lock(&d->mu);
	const struct mem_object *o = mem_driver_find(d, name);
	if (o != NULL)
		*out = (struct sl_driver_stat){.size = o->len};
	(void)pthread_mutex_unlock(&d->mu);
	return o != NULL ? 0 : sl_err_set(err, SL_ENOENT, "%s is not there", name);
}

static int list(void *driver, const char *folder, sl_driver_list_fn *fn, void *ctx, struct sl_err *err)
{
	struct mem_driver *d = driver;
	size_t n = strlen(folder);
	int rc = 0;
	(void)err;
	(void)pthread_mutex_lock(&d->mu);
	for (size_t i = 0; rc == 0 && i < d->n; i++) {
		const char *name = d->objects[i].name;
		struct sl_driver_stat st = {.size = d->objects[i].len};
		if (strncmp(name, folder, n) == 0 && name[n] == '/' && strchr(name + n + 1, '/') == NULL)
			rc = fn(name + n + 1, &st, ctx);
	}
	(void)pthread_mutex_unlock(&d->mu);
	if (rc == 0 && d->after_list != NULL)
		d->after_list(d, d->after_list_ctx);
	return rc;
}

static int remove_object(void *driver, const char *name, struct sl_err *err)
{
	struct mem_driver *d = driver;
	(void)pthread_mutex_lock(&d->mu);
	struct mem_object *o = mem_driver_find(d, name);
	if (o != NULL) {
		free(o->bytes);
		memmove(o, o + 1, (size_t)(d->objects + d->n - (o + 1)) * sizeof(*o));
		d->n--;
	}
	(void)pthread_mutex_unlock(&d->mu);
	return o != NULL ? 0 : sl_err_set(err, SL_ENOENT, "%s is not there", name);
}

sl_driver mem_driver_handle(struct mem_driver *d)
{
	static const struct sl_driver_ops ops = {.version = SL_DRIVER_VERSION,
						 .name = "memory",
						 .put = put,
						 .get = get,
						 .stat = stat_object,
						 .list = list,
						 .remove = remove_object};
	return (sl_driver){.ops = &ops, .driver = d};
}
