/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/export_rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sha256.h"

/* ---- the place and the input ---- */

int export_rig_csv_row(char *out, size_t n, uint64_t sequence)
{
	return snprintf(out, n, "%llu,account-%llu,%llu.%02llu,%s\n", (unsigned long long)sequence,
			(unsigned long long)(sequence * 7919 % 97), (unsigned long long)(sequence * 31 % 1000),
			(unsigned long long)(sequence % 100), sequence % 3 == 0 ? "true" : "false");
}

static void put_row(FILE *file, bool csv, uint64_t sequence)
{
	char row[160];
	if (csv) {
		(void)export_rig_csv_row(row, sizeof(row), sequence);
		fputs(row, file);
		return;
	}
	fprintf(file, "{\"seq\":%llu,\"account\":\"account-%llu\",\"fee\":%llu,\"ok\":%s}\n",
		(unsigned long long)sequence, (unsigned long long)(sequence * 7919 % 97),
		(unsigned long long)(sequence * 31 % 1000), sequence % 3 == 0 ? "true" : "false");
}

void export_rig_input(struct export_rig *x, uint64_t rows)
{
	bool csv = strstr(x->input, ".csv") != NULL;
	FILE *file = fopen(x->input, "w");
	assert_non_null(file);
	x->rows = rows;
	if (csv)
		fputs("seq,account,fee,ok\n", file);
	for (uint64_t i = 0; i < rows; i++)
		put_row(file, csv, x->first + i);
	assert_int_equal(fclose(file), 0);
}

void export_rig_init(struct export_rig *x, const char *suffix, uint64_t first, uint64_t rows)
{
	/* Memory where there is some: a kill loses nothing that was written, and these tests write much. */
	const char *place = access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";
	*x = (struct export_rig){.first = first};
	(void)snprintf(x->dir, sizeof(x->dir), "%s/sluice-export-XXXXXX", place);
	assert_non_null(mkdtemp(x->dir));
	(void)snprintf(x->input, sizeof(x->input), "%s/in%s", x->dir, suffix);
	export_rig_to(x, "out");
	export_rig_input(x, rows);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	(void)st;
	(void)kind;
	(void)at;
	return remove(path);
}

static void remove_tree(const char *path)
{
	(void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void export_rig_to(struct export_rig *x, const char *name)
{
	(void)snprintf(x->to, sizeof(x->to), "%s/%.24s", x->dir, name);
	remove_tree(x->to);
}

void export_rig_fini(struct export_rig *x)
{
	remove_tree(x->dir);
}

/* ---- running ---- */

struct sl_export_opts export_rig_opts(const struct export_rig *x)
{
	return (struct sl_export_opts){SL_EXPORT_OPTS_INIT,
				       .from = x->input,
				       .to = x->to,
				       .dataset = EXPORT_DATASET,
				       .sequence = "seq",
				       .partition_size = 50,
				       .perf = {.workers = 3, .queue_size = 2, .retry_backoff_ms = SL_NONE}};
}

int export_rig_run(const struct sl_export_opts *o, struct sl_export_result *result, struct sl_err *err)
{
	sl_export *e = NULL;
	int rc = sl_export_new(&e, o, err);
	if (rc != 0)
		return rc;
	rc = sl_export_run(e, result, err);
	sl_export_free(e);
	return rc;
}

/* ---- looking ---- */

static void hash_file(const char *path, char hex[SL__SHA256_HEX], uint64_t *bytes)
{
	struct sl__sha256 h = {0};
	uint8_t digest[SL__SHA256_BYTES], buf[16384];
	ssize_t n;
	int fd = open(path, O_RDONLY);
	assert_true(fd >= 0);
	assert_int_equal(sl__sha256_begin(&h, NULL), 0);
	for (*bytes = 0; (n = read(fd, buf, sizeof(buf))) > 0; *bytes += (uint64_t)n)
		assert_int_equal(sl__sha256_update(&h, buf, (size_t)n, NULL), 0);
	assert_int_equal(sl__sha256_final(&h, digest, NULL), 0);
	sl__sha256_hex(digest, hex);
	close(fd);
}

/* Files below dir in the order of their names. What belongs to the catalog itself is not inspected. */
static void dump_files(FILE *out, const char *dir, const char *prefix)
{
	struct dirent **names;
	int n = scandir(dir, &names, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		const char *name = names[i]->d_name;
		char path[512], relative[512], hex[SL__SHA256_HEX];
		uint64_t bytes;
		(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
		(void)snprintf(relative, sizeof(relative), "%s%s", prefix, name);
		struct stat st;
		bool own = strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
			   strncmp(relative, "_catalog.db", 11) != 0 && lstat(path, &st) == 0;
		if (own && S_ISDIR(st.st_mode)) {
			strncat(relative, "/", sizeof(relative) - strlen(relative) - 1);
			dump_files(out, path, relative);
		} else if (own) {
			hash_file(path, hex, &bytes);
			fprintf(out, "file %s %llu %s\n", relative, (unsigned long long)bytes, hex);
		}
		free(names[i]);
	}
	if (n >= 0)
		free(names);
}

static int dump_partition(const struct sl_catalog_partition *p, void *ctx)
{
	char hex[SL__SHA256_HEX];
	sl__sha256_hex(p->sha256, hex);
	fprintf(ctx, "partition %llu %llu rows %llu bad %llu bytes %llu %s %s event %llu\n",
		(unsigned long long)p->start, (unsigned long long)p->end, (unsigned long long)p->rows,
		(unsigned long long)p->bad_rows, (unsigned long long)p->bytes, hex, p->path,
		(unsigned long long)p->event);
	return 0;
}

static int dump_event(uint64_t number, const char *event, size_t len, void *ctx)
{
	fprintf(ctx, "event %llu %.*s\n", (unsigned long long)number, (int)len, event);
	return 0;
}

static int dump_dataset(const struct sl_dataset *d, void *ctx)
{
	char hex[SL__SHA256_HEX];
	sl__sha256_hex(d->head, hex);
	fprintf(ctx, "dataset %s size %llu column %s events %llu start %llu checkpoint %llu head %s written %llu\n",
		d->name, (unsigned long long)d->partition_size, d->sequence_column, (unsigned long long)d->events,
		(unsigned long long)d->start, (unsigned long long)d->checkpoint, hex,
		(unsigned long long)d->delivered_files);
	return 0;
}

static sl_catalog *open_catalog(const struct export_rig *x, const char *url)
{
	const struct sl_catalog_opts opts = {SL_CATALOG_OPTS_INIT, .create = SL_OFF};
	sl_catalog *c = NULL;
	char own[128];
	(void)snprintf(own, sizeof(own), "sqlite:%s/_catalog.db", x->to);
	if (url == NULL && access(own + 7, F_OK) != 0)
		return NULL;
	struct sl_err err = SL_ERR_INIT;
	int rc = sl_catalog_open(&c, url != NULL ? url : own, &opts, &err);
	if (rc == SL_EUNAVAIL && url == NULL)
		return NULL; /* killed before its tables were there */
	if (rc != 0)
		fail_msg("catalog: %s", err.msg);
	return c;
}

char *export_rig_look(const struct export_rig *x, const char *catalog)
{
	char *text = NULL;
	size_t n = 0;
	FILE *out = open_memstream(&text, &n);
	assert_non_null(out);
	dump_files(out, x->to, "");
	sl_catalog *c = open_catalog(x, catalog);
	if (c != NULL) {
		assert_int_equal(sl_catalog_datasets(c, NULL, dump_dataset, out, NULL), 0);
		assert_int_equal(sl_catalog_partitions(c, EXPORT_DATASET, 0, 0, dump_partition, out, NULL), 0);
		assert_int_equal(sl_catalog_events(c, EXPORT_DATASET, 0, 0, dump_event, out, NULL), 0);
	}
	sl_catalog_close(c);
	fclose(out);
	return text;
}

struct committed {
	const struct export_rig *x;
	uint64_t n;
};

static int check_file(const struct sl_catalog_partition *p, void *ctx)
{
	struct committed *c = ctx;
	char path[512], is[SL__SHA256_HEX], must_be[SL__SHA256_HEX];
	uint64_t bytes;
	(void)snprintf(path, sizeof(path), "%s/%s", c->x->to, p->path);
	hash_file(path, is, &bytes);
	sl__sha256_hex(p->sha256, must_be);
	assert_string_equal(is, must_be);
	assert_int_equal(bytes, p->bytes);
	c->n++;
	return 0;
}

uint64_t export_rig_assert_committed_files(const struct export_rig *x)
{
	struct committed counted = {.x = x};
	sl_catalog *c = open_catalog(x, NULL);
	int rc = c != NULL ? sl_catalog_partitions(c, EXPORT_DATASET, 0, 0, check_file, &counted, NULL) : 0;
	sl_catalog_close(c);
	assert_true(rc == 0 || rc == SL_ENOENT);
	return counted.n;
}

static int print_finding(const struct sl_audit_finding *f, void *ctx)
{
	(void)ctx;
	if (f->fault < SL_AUDIT_MISSING)
		return 0;
	print_message("# %d %s: %s\n", (int)f->fault, f->path, f->text);
	return 0;
}

void export_rig_assert_verified(const struct export_rig *x, bool complete)
{
	const struct sl_audit_verify_opts opts = {SL_AUDIT_VERIFY_OPTS_INIT, .all = SL_ON, .on_finding = print_finding};
	struct sl_audit_result result = {.struct_size = sizeof(result)};
	struct sl_err err = SL_ERR_INIT;
	int rc = sl_audit_verify(x->to, EXPORT_DATASET, &opts, &result, &err);
	bool nothing_yet = rc == SL_ENOENT || rc == SL_EUNAVAIL; /* killed before its catalog was made */
	if (rc != 0 && (!nothing_yet || complete))
		fail_msg("verify: %s", err.msg);
	assert_int_equal(result.findings, 0);
	if (complete)
		assert_int_equal(result.notes, 0);
}

void export_rig_assert_same(const char *is, const char *must_be, const char *when)
{
	size_t line = 0, i = 0;
	for (; is[i] == must_be[i] && is[i] != '\0'; i++)
		line = is[i] == '\n' ? i + 1 : line;
	if (is[i] != must_be[i])
		fail_msg("%s: is\n%.300s\nand must be\n%.300s", when, is + line, must_be + line);
}
