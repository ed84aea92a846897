/* SPDX-License-Identifier: Apache-2.0 */
#include <sluice/parquet.h>

int sl_parquet_writer_new(sl_parquet_writer **out, const struct sl_parquet_column *columns, size_t n,
			  const struct sl_parquet_writer_opts *opts, sl_parquet_write_fn *write, void *ctx,
			  struct sl_err *err)
{
	(void)out, (void)columns, (void)n, (void)opts, (void)write, (void)ctx;
	return sl_err_set(err, SL_EUNSUPPORTED, "parquet");
}

void sl_parquet_writer_free(sl_parquet_writer *w)
{
	(void)w;
}

int sl_parquet_writer_put(sl_parquet_writer *w, const struct sl_parquet_values *columns, size_t n_rows,
			  struct sl_err *err)
{
	(void)w, (void)columns, (void)n_rows;
	return sl_err_set(err, SL_EUNSUPPORTED, "parquet");
}

int sl_parquet_writer_finish(sl_parquet_writer *w, struct sl_err *err)
{
	(void)w;
	return sl_err_set(err, SL_EUNSUPPORTED, "parquet");
}

void sl_parquet_writer_stats(const sl_parquet_writer *w, struct sl_parquet_writer_stats *out)
{
	(void)w;
	*out = (struct sl_parquet_writer_stats){0};
}
