/* SPDX-License-Identifier: Apache-2.0 */
/* sluice parquet cat, schema and stat: what is in a Parquet file. */
#include "commands.h"
#include "parquetcell.h"
#include "stop.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the file ---- */

struct pq_file {
	struct cli *cli;
	const char *path;
	int fd;
	uint64_t bytes;
	sl_parquet_reader *reader;
	struct sl_parquet_info info;
};

static int read_at(void *buf, size_t n, uint64_t offset, struct sl_err *err, void *ctx)
{
	const struct pq_file *f = ctx;
	char *to = buf;

	/* pread may return less than was asked for; the end of the file before n bytes is damage. */
	while (n > 0) {
		ssize_t got = pread(f->fd, to, n, (off_t)offset);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return sl_err_set_errno(err, errno, "read");
		if (got == 0)
			return sl_err_set(err, SL_ECORRUPT, "the file became shorter while it was read");
		to += got, n -= (size_t)got, offset += (uint64_t)got;
	}
	return 0;
}

static void close_file(struct pq_file *f)
{
	sl_parquet_reader_close(f->reader);
	if (f->fd >= 0)
		(void)close(f->fd);
}

/* 0, or the exit code after a line on stderr. close_file is called in any case. */
static int open_file(struct pq_file *f, struct cli *cli, const char *path)
{
	struct sl_parquet_reader_opts opts = {SL_PARQUET_READER_OPTS_INIT, .env = &cli->env};
	struct sl_err err = SL_ERR_INIT;
	struct stat st;
	int rc;

	*f = (struct pq_file){.cli = cli, .path = path, .fd = -1, .info.struct_size = sizeof(f->info)};
	/* O_NONBLOCK: a FIFO of that name must not block the command before it is refused. */
	f->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (f->fd < 0 || fstat(f->fd, &st) < 0) {
		rc = sl_err_set_errno(&err, errno, "open");
	} else if (!S_ISREG(st.st_mode)) {
		rc = sl_err_set(&err, SL_EINVAL, "not a regular file; a Parquet file must be one");
	} else {
		f->bytes = (uint64_t)st.st_size;
		rc = sl_parquet_reader_open(&f->reader, read_at, f, f->bytes, &opts, &err);
	}
	if (rc != 0)
		return cli_fail(cli, &err, path);
	sl_parquet_reader_get_info(f->reader, &f->info);
	return 0;
}

static struct sl_parquet_chunk chunk_of(const struct pq_file *f, size_t group, size_t column)
{
	struct sl_parquet_chunk c = {.struct_size = sizeof(c)};

	(void)!sl_parquet_reader_get_chunk(f->reader, group, column, &c, NULL);
	return c;
}

/* ---- cat ---- */

struct cat {
	struct pq_file file;
	size_t *columns; /* which, in order */
	size_t n_columns;
	struct sl_parquet_values *values; /* of the group, by column of the file */
	uint64_t skip, left;
};

/* "a,b": a name with a comma in it can only be had with all the others. */
static int choose_columns(struct cat *c, const char *list)
{
	const struct sl_parquet_info *info = &c->file.info;
	size_t most = info->n_columns;

	/* Room for every name in the list, which may repeat columns. */
	if (list != NULL && !*list)
		return cli_usage(c->file.cli, "--columns names no column; give names as a,b");
	for (const char *p = list; p != NULL && *p; p++)
		most += *p == ',';
	c->columns = calloc(most, sizeof(*c->columns));
	c->values = calloc(info->n_columns, sizeof(*c->values));
	if (c->columns == NULL || c->values == NULL)
		return cli_no_memory(c->file.cli);
	for (size_t i = 0; i < info->n_columns && list == NULL; i++)
		c->columns[c->n_columns++] = i;
	/* Names are compared byte by byte, without quoting. */
	while (list != NULL && *list) {
		size_t len = strcspn(list, ","), i = 0;

		while (i < info->n_columns &&
		       (strlen(info->columns[i].name) != len || memcmp(info->columns[i].name, list, len) != 0))
			i++;
		if (i == info->n_columns)
			return cli_usage(c->file.cli, "%s has no column '%.*s'", c->file.path, (int)len, list);
		c->columns[c->n_columns++] = i;
		list += len + (list[len] == ',');
	}
	return 0;
}

static int cat_group(struct cat *c, size_t group)
{
	struct out *out = &c->file.cli->out;
	struct sl_err err = SL_ERR_INIT;
	uint64_t rows = chunk_of(&c->file, group, 0).rows, row = c->skip < rows ? c->skip : rows;

	/* Groups before the first row are passed by their counts in the footer; nothing of them is read. */
	c->skip -= row;
	for (size_t i = 0; i < c->n_columns && row < rows; i++)
		if (sl_parquet_reader_read(c->file.reader, group, c->columns[i], &c->values[c->columns[i]], &err))
			return cli_fail(c->file.cli, &err, c->file.path);
	/* A signal or a broken output is noticed every 1,024 rows. */
	for (; row < rows && c->left > 0; row++, c->left--) {
		if (row % 1024 == 0 && (stop_requested() || out_failed(out)))
			return stop_requested() ? cli_interrupted(c->file.cli) : EXIT_OK;
		for (size_t i = 0; i < c->n_columns; i++) {
			const struct sl_parquet_column *column = &c->file.info.columns[c->columns[i]];
			out_str(out, i ? "," : "{");
			parquetcell_text(out, column->name, strlen(column->name));
			out_str(out, ":");
			parquetcell_print(out, column, &c->values[c->columns[i]], (size_t)row);
		}
		out_str(out, "}\n");
	}
	return EXIT_OK;
}

static int parquet_cat_run(struct cli *cli, const struct parsed *args)
{
	struct cat c = {.skip = (uint64_t)opt_num(args, "skip"),
			.left = opt_given(args, "limit") ? (uint64_t)opt_num(args, "limit") : UINT64_MAX};
	int rc = open_file(&c.file, cli, args->operands[0]);

	if (rc == 0)
		rc = choose_columns(&c, opt_str(args, "columns"));
	for (size_t g = 0; rc == 0 && g < c.file.info.row_groups && c.left > 0 && !out_failed(&cli->out); g++)
		rc = cat_group(&c, g);
	free(c.columns);
	free(c.values);
	close_file(&c.file);
	return rc;
}

static const struct opt cat_opts[] = {
	OPT_TEXT("columns", 'c', "A,B", "Print only these columns, in this order"),
	{.name = "limit",
	 .letter = 'n',
	 .kind = OPT_INT,
	 .arg = "N",
	 .min = 0,
	 .max = INT64_MAX,
	 .help = "Print at most N rows"},
	{.name = "skip",
	 .kind = OPT_INT,
	 .arg = "N",
	 .def = "0",
	 .min = 0,
	 .max = INT64_MAX,
	 .help = "Skip the first N rows"},
	{.name = NULL},
};

const struct command cmd_parquet_cat = {
	.name = "parquet cat",
	.operands = "FILE",
	.summary = "print the rows of a Parquet file",
	.opts = cat_opts,
	.description = "Prints one JSON object per row. Integers and decimals have every digit; timestamps and dates "
		       "are as in RFC 3339; bytes are \"\\x\" and hexadecimal digits; NaN and the infinities are "
		       "strings. The CRC of each page is checked; at a damaged page, the command prints the row groups "
		       "before it and ends with status 65.",
	.example = "sluice parquet cat --limit 10 part.parquet\nsluice parquet cat -c id,fee part.parquet | jq .fee",
	.run = parquet_cat_run,
};

/* ---- schema ---- */

static void print_name(struct out *out, const char *name)
{
	char line[256];

	text_line(line, sizeof(line), name);
	out_printf(out, "%-24s", line);
}

static int parquet_schema_run(struct cli *cli, const struct parsed *args)
{
	bool json = opt_flag(args, "json");
	struct out *out = &cli->out;
	struct pq_file f;
	char type[64];
	int rc = open_file(&f, cli, args->operands[0]);

	if (rc == 0 && json) {
		out_str(out, "{\"file\":");
		parquetcell_text(out, f.path, strlen(f.path));
		out_str(out, ",\"columns\":[");
	}
	/* Types are printed as the schema file of an export takes them. */
	for (size_t i = 0; rc == 0 && i < f.info.n_columns; i++) {
		const struct sl_parquet_column *c = &f.info.columns[i];
		const char *name = sl_parquet_type_name(c, type, sizeof(type));
		if (json) {
			out_str(out, i ? ",{\"name\":" : "{\"name\":");
			parquetcell_text(out, c->name, strlen(c->name));
			out_printf(out, ",\"type\":\"%s\",\"nullable\":%s}", name, c->nullable ? "true" : "false");
		} else {
			print_name(out, c->name);
			out_printf(out, " %-18s %s\n", name, c->nullable ? "nullable" : "required");
		}
	}
	if (rc == 0 && json)
		out_str(out, "]}\n");
	close_file(&f);
	return rc;
}

static const struct opt schema_opts[] = {
	OPT_JSON("Print one JSON object: file, columns (name, type, nullable)"),
	{.name = NULL},
};

const struct command cmd_parquet_schema = {
	.name = "parquet schema",
	.operands = "FILE",
	.summary = "print the columns of a Parquet file",
	.opts = schema_opts,
	.description = "Prints one line per column: name, type, and whether it may be NULL.",
	.example = "sluice parquet schema part.parquet\n"
		   "sluice parquet schema part.parquet --json",
	.run = parquet_schema_run,
};

/* ---- stat ---- */

static const char *const encoding_names[] = {[0] = "PLAIN",
					     [2] = "PLAIN_DICTIONARY",
					     [3] = "RLE",
					     [4] = "BIT_PACKED",
					     [5] = "DELTA_BINARY_PACKED",
					     [6] = "DELTA_LENGTH_BYTE_ARRAY",
					     [7] = "DELTA_BYTE_ARRAY",
					     [8] = "RLE_DICTIONARY",
					     [9] = "BYTE_STREAM_SPLIT"};

static void print_encodings(struct out *out, uint32_t encodings, const char *quote, const char *between)
{
	int n = 0;

	for (size_t i = 0; i < sizeof(encoding_names) / sizeof(*encoding_names); i++)
		if (encodings >> i & 1 && encoding_names[i] != NULL)
			out_printf(out, "%s%s%s%s", n++ ? between : "", quote, encoding_names[i], quote);
}

static void print_chunk_json(const struct pq_file *f, size_t group, size_t column)
{
	struct sl_parquet_chunk c = chunk_of(f, group, column);
	const struct sl_parquet_column *of = &f->info.columns[column];
	struct out *out = &f->cli->out;

	out_str(out, column ? ",{\"name\":" : "{\"name\":");
	parquetcell_text(out, of->name, strlen(of->name));
	out_printf(out, ",\"offset\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"uncompressed_bytes\":%" PRIu64 ",\"nulls\":",
		   c.offset, c.bytes, c.uncompressed_bytes);
	/* Writers may leave out statistics: unknown is null, never 0. */
	if (c.nulls < 0)
		out_str(out, "null");
	else
		out_printf(out, "%" PRId64, c.nulls);
	out_printf(out, ",\"compression\":\"%s\",\"encodings\":[", c.compressed ? "zstd" : "none");
	print_encodings(out, c.encodings, "\"", ",");
	out_str(out, "],\"min\":");
	if (c.has_bounds) {
		parquetcell_bound(out, of, c.min);
		out_str(out, ",\"max\":");
		parquetcell_bound(out, of, c.max);
		out_str(out, "}");
	} else {
		out_str(out, "null,\"max\":null}");
	}
}

static void print_stat_json(const struct pq_file *f)
{
	struct out *out = &f->cli->out;

	out_str(out, "{\"file\":");
	parquetcell_text(out, f->path, strlen(f->path));
	out_printf(out,
		   ",\"bytes\":%" PRIu64 ",\"footer_bytes\":%" PRIu64 ",\"rows\":%" PRIu64 ",\"created_by\":", f->bytes,
		   f->info.footer_bytes, f->info.rows);
	parquetcell_text(out, f->info.created_by, strlen(f->info.created_by));
	/* A list of pairs, not an object: keys may repeat, and a value may be missing. */
	out_str(out, ",\"metadata\":[");
	for (size_t i = 0; i < f->info.n_metadata; i++) {
		const struct sl_parquet_pair *p = &f->info.metadata[i];
		out_str(out, i ? ",[" : "[");
		parquetcell_text(out, p->key, strlen(p->key));
		out_str(out, ",");
		if (p->value != NULL)
			parquetcell_text(out, p->value, strlen(p->value));
		else
			out_str(out, "null");
		out_str(out, "]");
	}
	out_str(out, "],\"row_groups\":[");
	for (size_t g = 0; g < f->info.row_groups; g++) {
		out_printf(out, "%s{\"rows\":%" PRIu64 ",\"columns\":[", g ? "," : "", chunk_of(f, g, 0).rows);
		for (size_t c = 0; c < f->info.n_columns; c++)
			print_chunk_json(f, g, c);
		out_str(out, "]}");
	}
	out_str(out, "]}\n");
}

/* A column over all row groups. */
static void print_column(const struct pq_file *f, size_t column)
{
	struct out *out = &f->cli->out;
	uint64_t bytes = 0, plain = 0;
	int64_t nulls = 0;
	uint32_t encodings = 0;
	char a[TEXT_TIME_BYTES], b[TEXT_TIME_BYTES];

	/* Sums over all row groups; NULLs are unknown when one group does not count them. */
	for (size_t g = 0; g < f->info.row_groups; g++) {
		struct sl_parquet_chunk c = chunk_of(f, g, column);
		bytes += c.bytes;
		plain += c.uncompressed_bytes;
		nulls = c.nulls < 0 || nulls < 0 ? -1 : nulls + c.nulls;
		encodings |= c.encodings;
	}
	out_str(out, "  ");
	print_name(out, f->info.columns[column].name);
	out_printf(out, " %10s of %10s  ", text_bytes(a, bytes), text_bytes(b, plain));
	if (nulls < 0)
		out_str(out, "? NULLs  ");
	else
		out_printf(out, "%" PRId64 " NULLs  ", nulls);
	print_encodings(out, encodings, "", ", ");
	out_str(out, "\n");
}

static int parquet_stat_run(struct cli *cli, const struct parsed *args)
{
	char line[256], size[TEXT_TIME_BYTES];
	struct sl_err err = SL_ERR_INIT;
	struct out *out = &cli->out;
	struct pq_file f;
	int rc = open_file(&f, cli, args->operands[0]);

	/* Everything is decoded before the first line is printed. */
	if (rc == 0 && opt_flag(args, "check") && sl_parquet_reader_check(f.reader, &err))
		rc = cli_fail(cli, &err, f.path);
	if (rc == 0 && opt_flag(args, "json")) {
		print_stat_json(&f);
	} else if (rc == 0) {
		text_name(out, f.path);
		out_printf(out, "\nrows         %" PRIu64 "\n", f.info.rows);
		out_printf(out, "row groups   %zu\n", f.info.row_groups);
		out_printf(out, "bytes        %" PRIu64 " (%s), footer %" PRIu64 "\n", f.bytes,
			   text_bytes(size, f.bytes), f.info.footer_bytes);
		text_line(line, sizeof(line), f.info.created_by);
		out_printf(out, "created by   %s\n", line);
		out_printf(out, "columns      %zu\n", f.info.n_columns);
		for (size_t c = 0; c < f.info.n_columns; c++)
			print_column(&f, c);
	}
	close_file(&f);
	return rc;
}

static const struct opt stat_opts[] = {
	OPT_JSON("Print one JSON object with every column of every row group"),
	{.name = "check",
	 .kind = OPT_FLAG,
	 .help = "Decode everything first and compare it with the footer; damage is status 65"},
	{.name = NULL},
};

const struct command cmd_parquet_stat = {
	.name = "parquet stat",
	.operands = "FILE",
	.summary = "print sizes, encodings and bounds of a Parquet file",
	.opts = stat_opts,
	.description = "Prints rows, row groups, bytes, which program wrote the file, and for each column its bytes in "
		       "the file and before compression, NULLs and encodings. With --json, also prints offsets, bounds "
		       "and key/value metadata, row group by row group.",
	.example = "sluice parquet stat part.parquet\nsluice parquet stat --check --json part.parquet | jq .rows",
	.run = parquet_stat_run,
};
