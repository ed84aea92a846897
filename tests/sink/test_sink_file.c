/* SPDX-License-Identifier: Apache-2.0 */
/* The file sink passes the suite: as JSON lines, as CSV made of JSON, and compressed. Last argument: which. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "sink/contract.h"
#include "sink/place.h"

static struct world {
	struct place place;
	bool csv, zstd;
} w;

static int set_up(void *ctx)
{
	(void)ctx;
	return place_init(&w.place, "out");
}

static void tear_down(void *ctx)
{
	(void)ctx;
	place_fini(&w.place);
}

static int open_file(sl_sink *out, const struct sl_env *env, struct sl_err *err, void *ctx)
{
	static const char *const columns[] = {"id", "body"};
	(void)ctx;
	struct sl_sink_opts opts = {SL_SINK_OPTS_INIT, .env = env};
	if (w.csv) {
		opts.file_format = SL_ROWS_CSV;
		opts.columns = columns;
		opts.n_columns = 2;
	}
	opts.zstd_level = w.zstd ? 3 : 0;
	char url[160];
	(void)snprintf(url, sizeof(url), "file:%s", w.place.path);
	return sl_sink_open(out, url, &opts, err);
}

static size_t bad_record(char *out, size_t cap, uint64_t id, void *ctx)
{
	(void)ctx;
	return (size_t)snprintf(out, cap, "{\"id\":%llu,", (unsigned long long)id);
}

/* All frames, as any reader of zstd gives them. */
static char *unpack(char *packed, size_t n)
{
	ZSTD_DStream *stream = ZSTD_createDStream();
	ZSTD_inBuffer in = {packed, n, 0};
	size_t cap = 64u << 20;
	char *text = malloc(cap + 1);
	ZSTD_outBuffer out = {text, cap, 0};
	size_t rc = 0;
	while (in.pos < in.size) {
		rc = ZSTD_decompressStream(stream, &out, &in);
		if (ZSTD_isError(rc))
			abort();
	}
	if (rc != 0)
		abort();
	text[out.pos] = '\0';
	(void)ZSTD_freeDStream(stream);
	free(packed);
	return text;
}

static void read_back(struct sink_ids *out, void *ctx)
{
	size_t n = 0;
	char *text = place_read(w.place.path, &n);
	(void)ctx;
	if (text != NULL && w.zstd)
		text = unpack(text, n);
	for (char *line = text; line != NULL && *line != '\0';) {
		char *end = strchr(line, '\n');
		if (end == NULL)
			abort(); /* half a line */
		*end = '\0';
		if (!w.csv && strncmp(line, "{\"id\":", 6) != 0)
			abort();
		if (!w.csv || strcmp(line, "id,body") != 0)
			sink_ids_add(out, strtoull(line + (w.csv ? 0 : 6), NULL, 10));
		line = end + 1;
	}
	free(text);
}

static void hide(void *ctx)
{
	(void)ctx;
	place_hide(&w.place);
}

static void show(void *ctx)
{
	(void)ctx;
	place_show(&w.place);
}

int main(int argc, char **argv)
{
	static const char *ways[] = {"lines", "csv", "zstd", "csv_zstd", NULL};
	const struct sink_fixture f = {.name = "file",
				       .set_up = set_up,
				       .tear_down = tear_down,
				       .open = open_file,
				       .poison_item = bad_record,
				       .read_back = read_back,
				       .break_target = hide,
				       .mend_target = show};
	w.csv = strcmp(argv[argc - 1], "csv") == 0 || strcmp(argv[argc - 1], "csv_zstd") == 0;
	w.zstd = strcmp(argv[argc - 1], "zstd") == 0 || strcmp(argv[argc - 1], "csv_zstd") == 0;
	return sink_contract_run(&f, sink_contract_part(argc, argv, ways));
}
