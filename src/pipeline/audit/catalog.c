/* SPDX-License-Identifier: Apache-2.0 */
/* The catalog's handle: which database a URL names, and rows as structs. */
#include <stdlib.h>

#include "base/base64.h"
#include "base/compare.h"
#include "base/sha256.h"
#include "pipeline/audit/catalog.h"
#include "pipeline/audit/event.h"
#include <sluice/version.h>

static const char not_a_url[] = "invalid catalog URL; use sqlite:FILE or postgres://…";

/* Only the scheme is ever put into an error: the rest may hold a password. */
static int open_url(struct sl_catalog *c, const char *url, const struct sl_catalog_opts *opts, struct sl_err *err)
{
	if (sl__starts_with(url, "postgres://") || sl__starts_with(url, "postgresql://")) {
		int rc = sl__cat_postgres_open(&c->db, url, opts, &c->env, err);
		c->ops = rc == 0 ? &sl__cat_postgres_ops : NULL;
		return rc;
	}
	if (!sl__starts_with(url, "sqlite:"))
		return sl_err_set(err, SL_EINVAL, "%s", not_a_url);
	const char *path = url + strlen("sqlite:"), *home = getenv("HOME");
	if (path[0] == '\0' || (sl__starts_with(path, "//") && path[2] != '/'))
		return sl_err_set(err, SL_EINVAL, "catalog: write sqlite:FILE, without //, for a local file");
	char *file = sl__starts_with(path, "~/") && home != NULL ? sl__asprintf(&c->env, "%s%s", home, path + 1)
								 : sl__strdup(&c->env, path);
	if (file == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for the name of a catalog");
	int rc = sl__cat_sqlite_open(&c->db, file, opts, &c->env, err);
	c->ops = rc == 0 ? &sl__cat_sqlite_ops : NULL;
	sl__free(&c->env, file);
	return rc;
}

int sl_catalog_open(sl_catalog **out, const char *url, const struct sl_catalog_opts *opts, struct sl_err *err)
{
	struct sl_catalog_opts o;
	struct sl_env env;
	sl__opts_copy(&o, sizeof(o), opts);
	if (out == NULL || url == NULL)
		return sl_err_set(err, SL_EINVAL, "%s", not_a_url);
	o.schema = o.schema != NULL ? o.schema : "sluice";
	o.busy_ms = o.busy_ms != 0 ? o.busy_ms : 10000;
	o.connect_timeout_ms = o.connect_timeout_ms != 0 ? o.connect_timeout_ms : 5000;
	o.statement_timeout_ms = o.statement_timeout_ms != 0 ? o.statement_timeout_ms : 30000;
	if (o.busy_ms < 0 && o.busy_ms != SL_UNLIMITED)
		return sl_err_set(err, SL_EINVAL, "busy_ms: must be positive or SL_UNLIMITED");
	if (o.connect_timeout_ms < 0)
		return sl_err_set(err, SL_EINVAL, "connect_timeout_ms: must be positive");
	if (o.statement_timeout_ms < 0 && o.statement_timeout_ms != SL_UNLIMITED)
		return sl_err_set(err, SL_EINVAL, "statement_timeout_ms: must be positive or SL_UNLIMITED");
	int rc = sl__env_init(&env, o.env, err);
	if (rc != 0)
		return rc;
	struct sl_catalog *c = sl__calloc(&env, 1, sizeof(*c));
	if (c == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for a catalog");
	c->env = env;
	sl__fork_guard_init(&c->fork_guard);
	c->producer = sl__strdup(&env, o.producer != NULL ? o.producer : "sluice");
	c->producer_version = sl__strdup(&env, o.producer_version != NULL ? o.producer_version : sl_version());
	if (c->producer == NULL || c->producer_version == NULL)
		rc = sl_err_set(err, SL_ENOMEM, "out of memory for a catalog");
	else
		rc = open_url(c, url, &o, err);
	if (rc != 0) {
		sl_catalog_close(c);
		return rc;
	}
	*out = c;
	return 0;
}

void sl_catalog_close(sl_catalog *c)
{
	/* A forked child must not touch the connections: their locks are the parent's. */
	if (c == NULL || sl__forked(&c->fork_guard))
		return;
	if (c->ops != NULL)
		c->ops->close(c->db);
	sl__free(&c->env, c->producer);
	sl__free(&c->env, c->producer_version);
	sl__fork_guard_fini(&c->fork_guard);
	struct sl_env env = c->env;
	sl__free(&env, c);
}

int sl__catalog_check(const struct sl_catalog *c, struct sl_err *err)
{
	if (!sl__forked(&c->fork_guard))
		return 0;
	return sl_err_set(err, SL_EFORKED, "the catalog was opened before a fork; open it again in the child");
}

int sl__catalog_once(struct sl_catalog *c, enum sl__cat_kind kind, struct sl__cat_call *call, struct sl_err *err)
{
	struct sl__cat_tx tx;
	int rc = sl__catalog_check(c, err);
	if (rc != 0)
		return rc;
	if (c->frozen) {
		assert(kind == CAT_READ);
		return c->ops->call(&c->snapshot, call, 1, false, err);
	}
	if ((rc = c->ops->begin(c->db, kind, &tx, err)) != 0)
		return rc;
	rc = c->ops->call(&tx, call, 1, true, err);
	c->ops->end(&tx);
	return rc;
}

int sl__catalog_freeze(struct sl_catalog *c, struct sl_err *err)
{
	int rc = sl__catalog_check(c, err);
	if (rc == 0)
		rc = c->ops->begin(c->db, CAT_SNAPSHOT, &c->snapshot, err);
	c->frozen = rc == 0;
	return rc;
}

void sl__catalog_thaw(struct sl_catalog *c)
{
	if (!c->frozen)
		return;
	c->ops->end(&c->snapshot);
	c->frozen = false;
}

/* ---- rows ---- */

const char *sl__cat_type_name(enum sl_audit_type type)
{
	return type == SL_AUDIT_LATE ? "late" : type == SL_AUDIT_BACKFILL ? "backfill" : "partition";
}

static const char *or_empty(const char *text)
{
	return text != NULL ? text : "";
}

static bool all_typed(const struct sl__cat_row *row, const int *texts, size_t n_texts, const int *numbers,
		      size_t n_numbers)
{
	bool typed = true;
	for (size_t i = 0; i < n_texts; i++)
		typed = typed && sl__cat_text(row, texts[i]) != NULL;
	for (size_t i = 0; i < n_numbers; i++)
		typed = typed && sl__cat_number(row, numbers[i]) >= 0;
	return typed;
}

void sl__cat_read_dataset(const struct sl__cat_row *row, struct sl__cat_dataset *out)
{
	/* Not the lease's: the next holder writes them again. */
	static const int texts[] = {0, 2, 3, 4, 11}, numbers[] = {1, 5, 6, 7, 8, 9, 10, 12, 13};
	struct sl_dataset *d = &out->d;
	*out = (struct sl__cat_dataset){.d = {.struct_size = sizeof(*d)}};
	d->name = or_empty(sl__cat_text(row, 0));
	d->partition_size = (uint64_t)sl__cat_number(row, 1);
	d->sequence_column = or_empty(sl__cat_text(row, 2));
	d->schema = or_empty(sl__cat_text(row, 3));
	out->schema_sha256 = or_empty(sl__cat_text(row, 4));
	d->events = d->partitions = (uint64_t)sl__cat_number(row, 5);
	d->start = (uint64_t)sl__cat_number(row, 6);
	d->checkpoint = (uint64_t)sl__cat_number(row, 7);
	d->rows = (uint64_t)sl__cat_number(row, 8);
	d->bad_rows = (uint64_t)sl__cat_number(row, 9);
	d->bytes = (uint64_t)sl__cat_number(row, 10);
	out->head_hash = or_empty(sl__cat_text(row, 11));
	(void)!sl__unhex(out->head_hash, strlen(out->head_hash), d->head, sizeof(d->head));
	d->delivered_files = (uint64_t)sl__cat_number(row, 12);
	d->delivered_endpoint = (uint64_t)sl__cat_number(row, 13);
	d->fence = (uint64_t)sl__cat_number(row, 14);
	d->holder = sl__cat_text(row, 15);
	out->damaged = !all_typed(row, texts, SL_COUNT(texts), numbers, SL_COUNT(numbers));
}

bool sl__cat_read_partition(const struct sl__cat_row *row, struct sl_catalog_partition *out)
{
	static const int texts[] = {2, 6, 7, 10}, numbers[] = {0, 1, 3, 4, 5, 8, 9};
	*out = (struct sl_catalog_partition){.struct_size = sizeof(*out)};
	out->start = (uint64_t)sl__cat_number(row, 0);
	out->end = (uint64_t)sl__cat_number(row, 1);
	const char *type = or_empty(sl__cat_text(row, 2));
	out->type = strcmp(type, "late") == 0       ? SL_AUDIT_LATE
		    : strcmp(type, "backfill") == 0 ? SL_AUDIT_BACKFILL
						    : SL_AUDIT_PARTITION;
	out->rows = (uint64_t)sl__cat_number(row, 3);
	out->bad_rows = (uint64_t)sl__cat_number(row, 4);
	out->bytes = (uint64_t)sl__cat_number(row, 5);
	const char *hash = or_empty(sl__cat_text(row, 6));
	bool readable = sl__unhex(hash, strlen(hash), out->sha256, sizeof(out->sha256)) &&
			strcmp(type, sl__cat_type_name(out->type)) == 0 &&
			all_typed(row, texts, SL_COUNT(texts), numbers, SL_COUNT(numbers));
	out->path = or_empty(sl__cat_text(row, 7));
	out->event = (uint64_t)sl__cat_number(row, 8);
	out->holes = (uint64_t)sl__cat_number(row, 9);
	out->hole_ranges = or_empty(sl__cat_text(row, 10));
	return readable;
}
