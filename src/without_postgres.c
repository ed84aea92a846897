/* SPDX-License-Identifier: Apache-2.0 */
/* What opens something of PostgreSQL, in a build without it (-Dpostgres=disabled): a clear refusal. */
#include "pipeline/audit/catalog_db.h"
#include "pipeline/export/source.h"
#include "sink/sink.h"
#include <sluice/jobs.h>

static int refuse_postgres(struct sl_err *err)
{
	return sl_err_set(err, SL_EUNSUPPORTED, "this build of Sluice is without PostgreSQL (-Dpostgres=disabled)");
}

int sl_store_postgres_open(SL_UNUSED sl_store *out, SL_UNUSED const char *conninfo,
			   SL_UNUSED const struct sl_store_opts *opts, struct sl_err *err)
{
	return refuse_postgres(err);
}

int sl_notify_postgres_open(SL_UNUSED sl_notify *out, SL_UNUSED const char *conninfo,
			    SL_UNUSED const struct sl_env *env, struct sl_err *err)
{
	return refuse_postgres(err);
}

int sl_sink_postgres_open(SL_UNUSED sl_sink *out, SL_UNUSED const char *conninfo,
			  SL_UNUSED const struct sl_sink_opts *opts, struct sl_err *err)
{
	return refuse_postgres(err);
}

int sl__sink_postgres_create(SL_UNUSED const char *what, SL_UNUSED const struct sl_sink_opts *opts,
			     SL_UNUSED const struct sl_column *columns, SL_UNUSED size_t n, struct sl_err *err)
{
	return refuse_postgres(err);
}

const struct sl__cat_ops sl__cat_postgres_ops = {0};

int sl__cat_postgres_open(SL_UNUSED void **out, SL_UNUSED const char *url, SL_UNUSED const struct sl_catalog_opts *opts,
			  SL_UNUSED const struct sl_env *env, struct sl_err *err)
{
	return refuse_postgres(err);
}

int sl__export_postgres_open(SL_UNUSED struct sl__export_source *out, SL_UNUSED const struct sl_export_opts *opts,
			     SL_UNUSED const struct sl_env *env, struct sl_err *err)
{
	return refuse_postgres(err);
}
