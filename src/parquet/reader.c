/* SPDX-License-Identifier: Apache-2.0 */
#include <sluice/parquet.h>

int sl_parquet_reader_open(sl_parquet_reader **out, sl_parquet_read_fn *read, void *ctx, uint64_t file_bytes,
			   const struct sl_parquet_reader_opts *opts, struct sl_err *err)
{
	(void)out, (void)read, (void)ctx, (void)file_bytes, (void)opts;
	return sl_err_set(err, SL_EUNSUPPORTED, "parquet");
}

int sl_parquet_reader_open_memory(sl_parquet_reader **out, const void *data, size_t n,
				  const struct sl_parquet_reader_opts *opts, struct sl_err *err)
{
	(void)out, (void)data, (void)n, (void)opts;
	return sl_err_set(err, SL_EUNSUPPORTED, "parquet");
}

void sl_parquet_reader_free(sl_parquet_reader *r)
{
	(void)r;
}

void sl_parquet_reader_info(const sl_parquet_reader *r, struct sl_parquet_info *out)
{
	(void)r;
	*out = (struct sl_parquet_info){0};
}

int sl_parquet_reader_chunk(const sl_parquet_reader *r, size_t group, size_t column, struct sl_parquet_chunk *out,
			    struct sl_err *err)
{
	(void)r, (void)group, (void)column, (void)out;
	return sl_err_set(err, SL_EUNSUPPORTED, "parquet");
}

int sl_parquet_reader_read(sl_parquet_reader *r, size_t group, size_t column, struct sl_parquet_values *out,
			   struct sl_err *err)
{
	(void)r, (void)group, (void)column, (void)out;
	return sl_err_set(err, SL_EUNSUPPORTED, "parquet");
}

int sl_parquet_reader_check(sl_parquet_reader *r, struct sl_err *err)
{
	(void)r;
	return sl_err_set(err, SL_EUNSUPPORTED, "parquet");
}
