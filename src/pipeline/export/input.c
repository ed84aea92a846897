/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The input of an export. A regular file that does not grow is mapped, when the environment's I/O is the system's own;
 * everything else is read one piece after the other.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pipeline/export/export.h"

/* A sample of a pipe ends when nothing came for a moment, and in any case before somebody wonders. */
#define SAMPLE_QUIET_MS 500
#define SAMPLE_MS 5000
#define LOOK_MS 20

const char *sl__input_name(const struct sl__input *in)
{
	if (in->source.ops != NULL)
		return in->source.ops->describe(in->source.ctx);
	return in->is_file ? in->e->o.from : "standard input";
}

/* ---- reading ---- */

static int64_t read_failed(const struct sl__input *in, int failed, struct sl_err *err)
{
	return sl_err_set_errno(err, failed, "read %s", sl__input_name(in));
}

static int64_t cancelled(struct sl_err *err)
{
	return sl_err_set(err, SL_ECANCELLED, "stopped");
}

/* Until there is something to read from fd (-1: nothing), a stop, or so long. */
static void wait_for(const struct sl__input *in, int fd, int64_t ms)
{
	struct pollfd fds[2] = {{.fd = in->e->stop_fd, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
	(void)poll(fds, fd >= 0 ? 2 : 1, ms < 0 ? -1 : (int)SL_MIN(ms, 60000));
}

bool sl__input_pause(struct sl__input *in)
{
	if (!sl__export_stopping(in->e))
		wait_for(in, -1, in->e->o.poll_interval_ms);
	return !sl__export_stopping(in->e);
}

/* A line that is not whole may still become another value: it is left for later. */
static ssize_t whole_lines(const char *buf, ssize_t got, size_t n)
{
	const char *end = got > 0 ? memrchr(buf, '\n', (size_t)got) : NULL;
	if (end == NULL)
		return got == (ssize_t)n ? got : 0;
	return end - buf + 1;
}

/* A file that is followed has no more. What was read of it must still be there: bytes that are written from its
 * beginning again would be taken for those behind the last ones, or waited for in vain. */
static int check_length(const struct sl__input *in, struct sl_err *err)
{
	struct sl_io_stat st = {.size = 0};
	struct stat of_fd;
	int rc = in->is_file ? SL__IO(&in->e->env, fstat, in->fd, &st) : fstat(in->fd, &of_fd);
	if (rc != 0)
		return (int)read_failed(in, in->is_file ? -rc : errno, err);
	uint64_t bytes = in->is_file ? st.size : (uint64_t)of_fd.st_size;
	if (bytes >= in->offset)
		return 0;
	return sl_err_set(err, SL_EDATA,
			  "it is shorter than what was read of it (%llu bytes of %llu): a file that is followed must "
			  "only grow",
			  (unsigned long long)bytes, (unsigned long long)in->offset);
}

static int64_t read_regular(struct sl__input *in, void *buf, size_t n, struct sl_err *err)
{
	const struct sl_env *env = &in->e->env;
	for (;;) {
		ssize_t got = in->is_file ? SL__IO(env, pread, in->fd, buf, n, in->offset) : read(in->fd, buf, n);
		if (got < 0)
			return read_failed(in, in->is_file ? (int)-got : errno, err);
		if (in->sampling && in->is_file)
			got = whole_lines(buf, got, n);
		in->offset += (uint64_t)got;
		if (got > 0 || in->e->o.follow != SL_ON || in->sampling)
			return got;
		int rc = check_length(in, err);
		if (rc != 0)
			return rc;
		if (!sl__input_pause(in))
			return cancelled(err);
	}
}

static bool has_bytes(int fd)
{
	struct pollfd one = {.fd = fd, .events = POLLIN};
	return poll(&one, 1, 0) != 0;
}

/* For a sample, until there is something to read or a moment of the environment's clock has passed. false: it has. */
static bool wait_for_sample(const struct sl__input *in)
{
	const struct sl_env *env = &in->e->env;
	int64_t end = SL_MIN(sl__deadline_ns(env, SAMPLE_QUIET_MS), in->sample_end_ns);
	while (sl__mono_ns(env) < end && !sl__export_stopping(in->e)) {
		wait_for(in, in->fd, LOOK_MS);
		if (has_bytes(in->fd))
			return true;
	}
	return sl__export_stopping(in->e);
}

static int64_t read_pipe(const struct sl__input *in, void *buf, size_t n, struct sl_err *err)
{
	for (;;) {
		if (in->sample_end_ns == 0)
			wait_for(in, in->fd, -1);
		else if (!wait_for_sample(in))
			return SL_EAGAIN; /* for infer_pipe alone, which goes on */
		if (sl__export_stopping(in->e))
			return cancelled(err);
		ssize_t got = read(in->fd, buf, n);
		if (got >= 0)
			return got;
		if (errno != EINTR && errno != EAGAIN)
			return read_failed(in, errno, err);
	}
}

static int64_t read_map(struct sl__input *in, void *buf, size_t n)
{
	size_t k = SL_MIN(n, in->map.len - in->map_at);
	memcpy(buf, in->map.text + in->map_at, k);
	in->map_at += k;
	return (int64_t)k;
}

static int64_t read_input(void *buf, size_t n, struct sl_err *err, void *ctx)
{
	struct sl__input *in = ctx;
	if (sl__export_stopping(in->e))
		return cancelled(err);
	if (in->source.ops != NULL)
		return in->source.ops->read(buf, n, err, in->source.ctx);
	if (in->map.text != NULL)
		return read_map(in, buf, n);
	return in->regular ? read_regular(in, buf, n, err) : read_pipe(in, buf, n, err);
}

static int new_records(struct sl__input *in, struct sl_err *err)
{
	const struct sl_records_opts opts = {SL_RECORDS_OPTS_INIT,
					     .env = &in->e->env,
					     .format = in->csv ? SL_ROWS_CSV : SL_ROWS_JSON,
					     .header = in->header ? SL_ON : SL_OFF,
					     .max_record_bytes = in->e->o.max_record_bytes,
					     .delimiter = in->e->o.delimiter};
	sl_records_free(in->records);
	in->records = NULL;
	return sl_records_new(&in->records, read_input, in, &opts, err);
}

int sl__input_begin(struct sl__input *in, uint64_t first, uint64_t last, struct sl_err *err)
{
	if (in->source.ops != NULL) {
		int rc = in->source.ops->begin(first, last, err, in->source.ctx);
		if (rc != 0)
			return rc;
	}
	in->map_at = 0;
	in->offset = 0;
	if (in->source.ops == NULL && !in->is_file && in->regular && lseek(in->fd, 0, SEEK_SET) != 0)
		return (int)read_failed(in, errno, err);
	return new_records(in, err);
}

/* ---- opening ---- */

static int open_database(struct sl__input *in, const char *sequence, struct sl_err *err)
{
	struct sl_export *e = in->e;
	in->source_opts = e->o;
	if (sequence != NULL)
		in->source_opts.sequence = sequence; /* the dataset's: it outlives the input */
	int rc = strncmp(e->o.from, "sqlite:", 7) == 0
			 ? sl__export_sqlite_open(&in->source, &in->source_opts, &e->env, err)
			 : sl__export_postgres_open(&in->source, &in->source_opts, &e->env, err);
	if (rc != 0)
		return rc;
	in->csv = in->source.ops->csv;
	in->header = false;
	sl__lock(&e->mu);
	e->source = &in->source;
	sl__unlock(&e->mu);
	return in->source.ops->columns(&in->known, &in->n_known, err, in->source.ctx);
}

static int open_path(struct sl__input *in, struct sl_err *err)
{
	const struct sl_env *env = &in->e->env;
	struct sl_io_stat st;
	int fd = SL__IO(env, open, in->e->o.from, O_RDONLY | O_NONBLOCK, 0); /* a fifo without a writer waits below */
	if (fd < 0)
		return sl_err_set_errno(err, -fd, "open %s", in->e->o.from);
	in->fd = fd;
	in->is_file = true;
	int rc = SL__IO(env, fstat, fd, &st);
	if (rc < 0)
		return sl_err_set_errno(err, -rc, "stat %s", in->e->o.from);
	if (S_ISDIR(st.mode))
		return sl_err_set(err, SL_EINVAL, "%s is a folder", in->e->o.from);
	in->regular = S_ISREG(st.mode);
	in->total = in->regular && in->e->o.follow != SL_ON ? st.size : 0;
	if (in->regular && env->io == &sl__io_real && in->e->o.follow != SL_ON && st.size > 0)
		return sl__map_open(&in->map, fd, (size_t)st.size, err);
	return 0;
}

static void open_descriptor(struct sl__input *in)
{
	struct stat st;
	in->fd = in->e->o.fd;
	in->regular = fstat(in->fd, &st) == 0 && S_ISREG(st.st_mode);
	off_t at = in->regular ? lseek(in->fd, 0, SEEK_CUR) : 0;
	in->regular = in->regular && at == 0; /* what was read of it before is not ours */
	in->total = in->regular && in->e->o.follow != SL_ON ? (uint64_t)st.st_size : 0;
}

int sl__input_open(struct sl__input *in, struct sl_export *e, const char *sequence, uint64_t first, struct sl_err *err)
{
	int rc = 0;
	*in = (struct sl__input){.e = e, .fd = -1};
	in->csv = e->o.format == SL_EXPORT_CSV;
	in->header = in->csv && e->o.header != SL_OFF;
	if (e->o.table != NULL || e->o.query != NULL)
		rc = open_database(in, sequence, err);
	else if (strcmp(e->o.from, "-") == 0)
		open_descriptor(in);
	else
		rc = open_path(in, err);
	return rc != 0 ? rc : sl__input_begin(in, first, SL__EXPORT_NO_END, err);
}

void sl__input_close(struct sl__input *in)
{
	if (in->e == NULL)
		return;
	sl__lock(&in->e->mu);
	in->e->source = NULL;
	sl__unlock(&in->e->mu);
	sl_records_free(in->records);
	sl__map_close(&in->map);
	if (in->source.ops != NULL)
		in->source.ops->close(in->source.ctx);
	if (in->is_file)
		sl__close_fd(&in->e->env, &in->fd);
	*in = (struct sl__input){.e = NULL};
}

/* ---- columns ---- */

int sl__input_names(struct sl__input *in, const char *const **names, size_t *n, struct sl_err *err)
{
	*names = NULL;
	*n = 0;
	return in->header ? sl_records_columns(in->records, names, n, err) : 0;
}

static bool all_known(const struct sl__input *in)
{
	for (size_t i = 0; i < in->n_known; i++)
		if (in->known[i].kind == 0)
			return false;
	return in->n_known > 0;
}

/* What the source knows wins; the rest is guessed; the sequence is required. */
static int merge_known(const struct sl__input *in, const char *sequence, const struct sl_column *guessed, size_t n,
		       struct sl__schema *out, struct sl_err *err)
{
	struct sl_column *named = sl__calloc(&in->e->env, in->n_known, sizeof *named);
	if (named == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for a schema");
	for (size_t i = 0; i < in->n_known; i++)
		named[i] =
			(struct sl_column){.name = in->known[i].name, .kind = i < n ? guessed[i].kind : SL_COLUMN_TEXT};
	int rc = sl__schema_guess(out, &in->e->env, named, in->n_known, sequence, err);
	sl__free(&in->e->env, named);
	for (size_t i = 0; rc == 0 && i < in->n_known; i++) {
		const char *name = out->columns[i].name;
		if (in->known[i].kind == 0)
			continue;
		out->columns[i] = in->known[i];
		out->columns[i].name = name;
		if (strcmp(name, sequence) == 0)
			out->columns[i].nullable = 0;
	}
	return rc;
}

/* A pipe is not waited for until there is a whole sample: what came before a pause will do. */
static int infer_pipe(struct sl__input *in, const struct sl_column **guessed, size_t *n, struct sl_err *err)
{
	int rc = SL_EAGAIN;
	while (rc == SL_EAGAIN) {
		in->sample_end_ns = sl__deadline_ns(&in->e->env, SAMPLE_MS);
		rc = sl_records_infer(in->records, (size_t)in->e->o.sample_records, guessed, n, err);
	}
	in->sample_end_ns = 0;
	return rc;
}

/* Nor is a file that grows, only until there is a row. */
static int infer(struct sl__input *in, const struct sl_column **guessed, size_t *n, struct sl_err *err)
{
	bool grows = in->e->o.follow == SL_ON && in->regular;
	struct sl_record record;
	size_t rows = 1;
	int rc;
	if (!in->regular && in->source.ops == NULL && in->map.text == NULL)
		return infer_pipe(in, guessed, n, err);
	do {
		in->sampling = grows;
		if ((rc = sl_records_infer(in->records, (size_t)in->e->o.sample_records, guessed, n, err)) != 0)
			break;
		if (grows)
			rc = sl_records_next(in->records, &record, 1, &rows, err);
		in->sampling = false;
		if (rc == 0 && rows == 0 && !sl__input_pause(in))
			rc = (int)cancelled(err);
		if (rc == 0 && rows == 0)
			rc = sl__input_begin(in, 0, SL__EXPORT_NO_END, err);
	} while (rc == 0 && rows == 0);
	in->sampling = false;
	return rc;
}

/* There was no column to be found: why. */
static int nothing_to_guess_from(struct sl__input *in, struct sl_err *err)
{
	struct sl_record record;
	size_t n = 0;
	int rc = sl_records_next(in->records, &record, 1, &n, err);
	if (rc != 0)
		return rc;
	if (n == 0)
		return sl_err_set(err, SL_EDATA, "%s is empty: there is nothing to guess its columns from",
				  sl__input_name(in));
	return sl_err_set(err, SL_EDATA, "%.80s: line %llu: %s", sl__input_name(in), (unsigned long long)record.line,
			  record.bad != NULL ? record.bad : "no columns can be guessed from it");
}

static int guess_schema(struct sl__input *in, const char *sequence, struct sl__schema *out, struct sl_err *err)
{
	const struct sl_column *guessed = NULL;
	size_t n = 0;
	int rc = all_known(in) ? 0 : infer(in, &guessed, &n, err);
	if (rc != 0)
		return rc;
	if (in->n_known > 0)
		return merge_known(in, sequence != NULL ? sequence : in->known[0].name, guessed, n, out, err);
	if (n == 0)
		return nothing_to_guess_from(in, err);
	return sl__schema_guess(out, &in->e->env, guessed, n, sequence != NULL ? sequence : guessed[0].name, err);
}

int sl__input_schema(struct sl__input *in, const char *sequence, struct sl__schema *out, struct sl_err *err)
{
	int rc = guess_schema(in, sequence, out, err);
	if (rc == 0 && in->e->o.follow == SL_ON && in->regular) { /* from its beginning, with all that comes */
		if ((rc = sl__input_begin(in, 0, SL__EXPORT_NO_END, err)) != 0)
			sl__schema_fini(out);
	}
	return rc;
}
