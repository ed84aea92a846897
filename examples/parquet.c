/* SPDX-License-Identifier: Apache-2.0 */
/* Write a Parquet file, and read a column of it again. */
#include <inttypes.h>
#include <sluice/parquet.h>
#include <stdio.h>

static int write_bytes(const void *bytes, size_t n, struct sl_err *err, void *ctx)
{
	return fwrite(bytes, 1, n, (FILE *)ctx) == n ? 0 : sl_err_set(err, SL_EIO, "cannot write");
}

static int read_bytes(void *buf, size_t n, uint64_t offset, struct sl_err *err, void *ctx)
{
	FILE *file = (FILE *)ctx;
	if (fseek(file, (long)offset, SEEK_SET) != 0 || fread(buf, 1, n, file) != n)
		return sl_err_set(err, SL_EIO, "cannot read");
	return 0;
}

int main(void)
{
	const struct sl_parquet_column columns[] = {{.name = "id", .kind = SL_PARQUET_INT64},
						    {.name = "city", .kind = SL_PARQUET_STRING, .nullable = true}};
	const int64_t ids[] = {1, 2, 3};
	const struct sl_parquet_bytes cities[] = {{"Kyoto", 5}, {NULL, 0}, {"Porto", 5}};
	const uint8_t nulls[] = {0, 1, 0};
	const struct sl_parquet_values rows[] = {{ids, NULL}, {cities, nulls}};
	struct sl_parquet_values got = {0};
	struct sl_parquet_writer_stats stats = {.struct_size = sizeof(stats)};
	struct sl_err err = SL_ERR_INIT;
	sl_parquet_writer *w = NULL;
	sl_parquet_reader *r = NULL;
	FILE *f = fopen("cities.parquet", "w+b");

	/* The same rows give the same bytes, however many calls put them. */
	if (f == NULL || sl_parquet_writer_new(&w, columns, 2, NULL, write_bytes, f, &err) != 0 ||
	    sl_parquet_writer_put(w, rows, 3, &err) != 0 || sl_parquet_writer_finish(w, &err) != 0) {
		fprintf(stderr, "%s\n", err.msg);
		return 1;
	}
	sl_parquet_writer_get_stats(w, &stats);
	sl_parquet_writer_free(w);
	if (sl_parquet_reader_open(&r, read_bytes, f, stats.bytes, NULL, &err) != 0 ||
	    sl_parquet_reader_read(r, 0, 1, &got, &err) != 0) {
		fprintf(stderr, "%s\n", err.msg);
		return 1;
	}
	for (size_t i = 0; i < stats.rows; i++) {
		const struct sl_parquet_bytes *city = (const struct sl_parquet_bytes *)got.values + i;
		printf("%" PRId64 " %.*s\n", ids[i], got.nulls[i] ? 4 : (int)city->len,
		       got.nulls[i] ? "NULL" : city->data);
	}
	sl_parquet_reader_close(r);
	return fclose(f) != 0;
}
