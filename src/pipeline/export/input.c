/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The input of an export. A regular file that does not grow is mapped, when the environment's I/O is the system's own;
 * everything else is read one piece after the other.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pipeline/export/export.h"

/* A sample of a pipe ends when nothing came for SAMPLE_QUIET_MS, and after SAMPLE_MS in any case. */
#define SAMPLE_QUIET_MS 500
#define SAMPLE_MS 5000
#define LOOK_MS 20

const char *sl__input_name(const struct sl__input *in)
{
	if (in->source.ops != NULL)
		return in->source.ops->describe(in->source.ctx);
	return in->is_file || in->e->o.rows != NULL ? in->e->o.from : "standard input";
}

/* ---- reading ---- */

static int new_records(struct sl__input *in, struct sl_err *err);

static struct sl_records_opts records_opts(const struct sl__input *in)
{
	return (struct sl_records_opts){SL_RECORDS_OPTS_INIT,
					.env = &in->e->env,
					.format = in->csv ? SL_ROWS_CSV : SL_ROWS_JSON,
					.header = in->header ? SL_ON : SL_OFF,
					.max_record_bytes = in->e->o.max_record_bytes,
					.delimiter = in->e->o.delimiter,
					.words = SL_ON};
}

static int64_t input_read_failed(const struct sl__input *in, int failed, struct sl_err *err)
{
	return sl_err_set_errno(err, failed, "read %s", sl__input_name(in));
}

static int64_t cancelled(struct sl_err *err)
{
	return sl_err_set(err, SL_ECANCELLED, "stopped");
}

/* Until there is something to read from fd (-1: nothing), a stop, or so long. */
static void wait_for_input(const struct sl__input *in, int fd, int64_t ms)
{
	struct pollfd fds[2] = {{.fd = in->e->stop_fd, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
	(void)poll(fds, fd >= 0 ? 2 : 1, ms < 0 ? -1 : (int)SL_MIN(ms, 60000));
}

bool sl__input_wait(struct sl__input *in, int64_t ms)
{
	if (!sl__export_stopping(in->e))
		wait_for_input(in, -1, ms);
	return !sl__export_stopping(in->e);
}

bool sl__input_pause(struct sl__input *in)
{
	return sl__input_wait(in, in->e->o.poll_interval_ms);
}

/* A line that is not whole may still become another value: it is left for later. */
static ssize_t whole_lines(const char *buf, ssize_t got, size_t n)
{
	const char *end = got > 0 ? memrchr(buf, '\n', (size_t)got) : NULL;
	if (end == NULL)
		return got == (ssize_t)n ? got : 0;
	return end - buf + 1;
}

/* ---- a file that is followed ---- */

/* Are the bytes before in->offset those that were read? */
static bool has_tail(const struct sl__input *in, int fd)
{
	char buf[sizeof(in->tail)];
	ssize_t got = sl__pread_full(&in->e->env, fd, buf, in->tail_len, in->offset - in->tail_len);
	return got == (ssize_t)in->tail_len && memcmp(buf, in->tail, in->tail_len) == 0;
}

/* Complete lines of a file that grows; 0: it has ended, in->turn says why. */
static int64_t read_followed(struct sl__input *in, void *buf, size_t n, struct sl_err *err)
{
	for (;;) {
		ssize_t got =
			in->turn != SL__INPUT_TRUNCATED ? SL__IO(&in->e->env, pread, in->fd, buf, n, in->offset) : 0;
		if (got < 0)
			return input_read_failed(in, (int)-got, err);
		got = whole_lines(buf, got, n);
		in->offset += (uint64_t)got;
		if (got > 0) { /* keep the last bytes before in->offset */
			size_t k = SL_MIN((size_t)got, sizeof(in->tail)),
			       old = SL_MIN(in->tail_len, sizeof(in->tail) - k);
			memmove(in->tail, in->tail + in->tail_len - old, old);
			memcpy(in->tail + old, (const char *)buf + (size_t)got - k, k);
			in->tail_len = old + k;
		}
		if (got > 0 || in->turn != SL__INPUT_SAME)
			return got;
		if (!sl__input_pause(in))
			return cancelled(err);
		/* Nothing new: was the file truncated, or does another have its name now? */
		const struct sl_env *env = &in->e->env;
		struct sl_io_stat mine, named;
		int rc = SL__IO(env, fstat, in->fd, &mine);
		if (rc != 0)
			return input_read_failed(in, -rc, err);
		if (in->turn == SL__INPUT_COPY_READ) /* the copy is complete */
			continue;
		if (mine.size < in->offset || !has_tail(in, in->fd)) {
			in->turn = SL__INPUT_TRUNCATED;
			continue;
		}
		/* The file that has the name now, also through a link. */
		int fd = SL__IO(env, open, in->e->o.from, O_RDONLY | O_NONBLOCK, 0);
		rc = fd < 0 ? fd : SL__IO(env, fstat, fd, &named);
		sl__close_fd(env, &fd);
		if (rc == 0 && S_ISREG(named.mode) && named.size > 0 &&
		    (named.dev != mine.dev || named.ino != mine.ino))
			in->turn = SL__INPUT_RENAMED;
	}
}

struct find_copy {
	const struct sl__input *in;
	const char *folder, *base;
	int fd;
	int64_t mtime_ms;
};

/* The copy that was made before the truncation lies next to the file, under a name that rotations give, and continues
 * after the bytes that were read. */
static int try_copy(const char *name, void *ctx)
{
	struct find_copy *f = ctx;
	const struct sl_env *env = &f->in->e->env;
	struct sl_io_stat st;
	if (!sl_is_rotated_name(f->base, name))
		return 0;
	char *path = sl__asprintf(env, "%s/%s", f->folder, name);
	int fd = path != NULL ? SL__IO(env, open, path, O_RDONLY | O_NONBLOCK, 0) : -ENOMEM;
	sl__free(env, path);
	if (fd < 0)
		return 0;
	if (SL__IO(env, fstat, fd, &st) == 0 && S_ISREG(st.mode) && st.size > f->in->offset &&
	    (f->fd < 0 || st.mtime_ms > f->mtime_ms) && has_tail(f->in, fd)) {
		sl__close_fd(env, &f->fd);
		f->fd = fd;
		f->mtime_ms = st.mtime_ms;
	} else {
		(void)SL__IO(env, close, fd);
	}
	return 0;
}

static bool has_columns(sl_records *records, char *const *names, size_t n, int *rc, struct sl_err *err)
{
	const char *const *now;
	size_t n_now;
	*rc = sl_records_columns(records, &now, &n_now, err);
	bool same = *rc == 0 && n_now == n;
	for (size_t i = 0; same && i < n; i++)
		same = strcmp(names[i], now[i]) == 0;
	return same;
}

/* Read the file fd, which the input owns from now on, from its beginning. */
static int begin_file(struct sl__input *in, int fd, char *const *names, size_t n, struct sl_err *err)
{
	sl__close_fd(&in->e->env, &in->fd);
	in->fd = fd;
	in->offset = in->tail_len = 0;
	int rc = new_records(in, err);
	if (rc != 0 || !in->header)
		return rc;
	bool same = has_columns(in->records, names, n, &rc, err);
	if (rc != 0 || same)
		return rc;
	return sl_err_set(err, SL_EDATA, "the new file of this name has another header; export it as another dataset");
}

/* The next file that is read before the one that has the name. */
static int begin_before(struct sl__input *in, char *const *names, size_t n, struct sl_err *err)
{
	in->turn = SL__INPUT_COPY_READ; /* it does not grow any more */
	in->begun = false;
	return begin_file(in, in->before[in->before_at++], names, n, err);
}

int sl__input_turn(struct sl__input *in, char *const *names, size_t n, struct sl_err *err)
{
	const struct sl_env *env = &in->e->env;
	struct sl_io_stat st;
	bool header = in->header;
	if (in->turn == SL__INPUT_SAME)
		return SL_PIPELINE_END;
	/* What was not read of a truncated file may be in a copy of it. */
	char *folder = sl__dirname(env, in->e->o.from);
	struct find_copy f = {.in = in, .folder = folder, .base = sl__basename(in->e->o.from), .fd = -1};
	if (in->turn == SL__INPUT_TRUNCATED && folder != NULL && in->offset > 0)
		(void)SL__IO(env, list, folder, try_copy, &f);
	sl__free(env, folder);
	int copy = f.fd, fd;
	if (SL__IO(env, fstat, in->fd, &st) == 0 && in->turn != SL__INPUT_TRUNCATED && st.size > in->offset)
		sl__log(env, SL_LOG_WARN, "export",
			"the last line of the old file has no line feed and is not exported",
			SL__F_STR("dataset", in->e->o.dataset), SL__F_STR("file", in->e->o.from));
	if (in->before_at < in->n_before)
		return begin_before(in, names, n, err);
	sl__log(env, SL_LOG_INFO, "export",
		copy >= 0 ? "the file was truncated; reading the rest from its copy"
			  : "the file was replaced or truncated; reading it from its beginning",
		SL__F_STR("dataset", in->e->o.dataset), SL__F_STR("file", in->e->o.from));
	if (copy >= 0) { /* from the position that was read to its end */
		sl__close_fd(env, &in->fd);
		in->fd = copy;
		in->turn = SL__INPUT_COPY_READ;
		in->header = false;
		int rc = new_records(in, err);
		in->header = header;
		return rc;
	}

	/* Continue with the file that has the name now. A rotation may leave none for a short time. */
	while ((fd = SL__IO(env, open, in->e->o.from, O_RDONLY | O_NONBLOCK, 0)) == -ENOENT)
		if (!sl__input_pause(in))
			return (int)cancelled(err);
	if (fd < 0)
		return sl_err_set_errno(err, -fd, "open %s", in->e->o.from);
	in->turn = SL__INPUT_SAME;
	in->begun = true;
	return begin_file(in, fd, names, n, err);
}

/* ---- what was rotated away unseen ---- */

/* A rotated file, and the number with which it begins. */
struct rotated {
	uint64_t first;
	int fd;
};

struct find_rotated {
	const struct sl__input *in;
	const struct sl__layout *layout;
	const char *folder, *base;
	uint64_t begins;    /* of the file that has the name */
	struct sl__buf all; /* of struct rotated */
	int fd;             /* the one that is inspected, */
	uint64_t offset;    /* and how far */
};

static int64_t read_rotated(void *buf, size_t n, struct sl_err *err, void *ctx)
{
	struct find_rotated *f = ctx;
	ssize_t got = SL__IO(&f->in->e->env, pread, f->fd, buf, n, f->offset);
	if (got < 0)
		return sl_err_set_errno(err, (int)-got, "read");
	f->offset += (uint64_t)got;
	return got;
}

/* The number of the first record of f->fd. false: it has none, or is another kind of file. */
static bool first_number(struct find_rotated *f, uint64_t *out)
{
	const struct sl_records_opts opts = records_opts(f->in);
	sl_records *records = NULL;
	struct sl_record record;
	struct sl__buf scratch;
	size_t n = 0;
	f->offset = 0;
	sl__buf_init(&scratch, &f->in->e->env);
	int rc = sl_records_new(&records, read_rotated, f, &opts, NULL);
	bool found =
		rc == 0 && (!f->in->header || has_columns(records, f->layout->names, f->layout->n_names, &rc, NULL));
	found = found && sl_records_next(records, &record, 1, &n, NULL) == 0 && n == 1 && record.bad == NULL &&
		sl__layout_sequence(f->layout, record.data, record.len, &scratch, out) == NULL;
	sl_records_free(records);
	sl__buf_fini(&scratch);
	return found;
}

bool sl__input_has_row(const struct sl__input *in, const struct sl__layout *layout)
{
	struct find_rotated f = {.in = in, .layout = layout, .fd = in->fd};
	uint64_t first;
	return first_number(&f, &first);
}

static int find_rotated_file(const char *name, void *ctx)
{
	struct find_rotated *f = ctx;
	const struct sl_env *env = &f->in->e->env;
	struct rotated r;
	struct sl_io_stat st;
	if (!sl_is_rotated_name(f->base, name))
		return 0;
	char *path = sl__asprintf(env, "%s/%s", f->folder, name);
	f->fd = path != NULL ? SL__IO(env, open, path, O_RDONLY | O_NONBLOCK, 0) : -ENOMEM;
	sl__free(env, path);
	if (f->fd < 0)
		return f->fd == -ENOMEM ? -ENOMEM : 0;
	bool is = SL__IO(env, fstat, f->fd, &st) == 0 && S_ISREG(st.mode) && first_number(f, &r.first) &&
		  r.first < f->begins;
	r.fd = f->fd;
	if (is && sl__buf_append(&f->all, &r, sizeof(r)) == 0)
		return 0;
	(void)SL__IO(env, close, r.fd);
	return is ? -ENOMEM : 0;
}

static int by_first(const void *a, const void *b)
{
	const struct rotated *x = a, *y = b;
	return x->first < y->first ? -1 : x->first > y->first;
}

static void drop_before(struct sl__input *in)
{
	for (; in->before_at < in->n_before; in->before_at++)
		(void)SL__IO(&in->e->env, close, in->before[in->before_at]);
	sl__free(&in->e->env, in->before);
	in->before = NULL;
	in->n_before = in->before_at = 0;
}

int sl__input_before(struct sl__input *in, const struct sl__layout *layout, uint64_t next, uint64_t begins,
		     struct sl_err *err)
{
	const struct sl_env *env = &in->e->env;
	if (in->sought[0] == next && in->sought[1] == begins)
		return SL_PIPELINE_END; /* no rotated file has it */
	in->sought[0] = next;
	in->sought[1] = begins;
	char *folder = sl__dirname(env, in->e->o.from);
	struct find_rotated f = {
		.in = in, .layout = layout, .folder = folder, .base = sl__basename(in->e->o.from), .begins = begins};
	sl__buf_init(&f.all, env);
	drop_before(in);
	int listed = folder != NULL ? SL__IO(env, list, folder, find_rotated_file, &f) : -ENOMEM;

	/* Of those found, in order: keep the last that begins at or before `next`, and all after it. */
	struct rotated *all = (void *)f.all.data;
	size_t n = f.all.len / sizeof(*all), from = 0;
	if (n > 0)
		qsort(all, n, sizeof(*all), by_first);
	while (from + 1 < n && all[from + 1].first <= next)
		from++;
	int rc = n > 0 && all[from].first <= next ? 0 : SL_PIPELINE_END;
	if (rc == 0 && (in->before = sl__calloc(env, n - from, sizeof(*in->before))) == NULL)
		rc = sl_err_set(err, SL_ENOMEM, "out of memory for rotated files");
	for (size_t i = 0; i < n; i++) {
		if (rc == 0 && i >= from)
			in->before[in->n_before++] = all[i].fd;
		else
			(void)SL__IO(env, close, all[i].fd);
	}
	if (rc >= 0 && listed == -ENOMEM)
		rc = sl_err_set(err, SL_ENOMEM, "out of memory for rotated files");
	sl__buf_fini(&f.all);
	sl__free(env, folder);
	if (rc != 0)
		return rc;
	sl__log(env, SL_LOG_INFO, "export", "reading rows before the file from rotated files",
		SL__F_STR("dataset", in->e->o.dataset), SL__F_STR("file", in->e->o.from),
		SL__F_U64("files", in->n_before));
	return begin_before(in, layout->names, layout->n_names, err);
}

/* ---- other files, and pipes ---- */

static int64_t read_regular(struct sl__input *in, void *buf, size_t n, struct sl_err *err)
{
	const struct sl_env *env = &in->e->env;
	struct stat st;
	if (in->is_file && in->e->o.follow == SL_ON && !in->sampling)
		return read_followed(in, buf, n, err);
	for (;;) {
		ssize_t got = in->is_file ? SL__IO(env, pread, in->fd, buf, n, in->offset) : read(in->fd, buf, n);
		if (got < 0)
			return input_read_failed(in, in->is_file ? (int)-got : errno, err);
		if (in->sampling && in->is_file)
			got = whole_lines(buf, got, n);
		in->offset += (uint64_t)got;
		if (got > 0 || in->e->o.follow != SL_ON || in->sampling)
			return got;

		/* Standard input that is followed has no more. What was read of it must still be there. */
		if (fstat(in->fd, &st) != 0)
			return input_read_failed(in, errno, err);
		if ((uint64_t)st.st_size < in->offset)
			return sl_err_set(err, SL_EDATA,
					  "it is shorter than what was read of it (%llu bytes of %llu); a file that is "
					  "followed must only grow",
					  (unsigned long long)st.st_size, (unsigned long long)in->offset);
		if (!sl__input_pause(in))
			return cancelled(err);
	}
}

/* For a sample, wait until there is something to read or SAMPLE_QUIET_MS have passed. false: they have. */
static bool wait_for_sample(const struct sl__input *in)
{
	const struct sl_env *env = &in->e->env;
	struct pollfd one = {.fd = in->fd, .events = POLLIN};
	int64_t end = SL_MIN(sl__deadline_ns(env, SAMPLE_QUIET_MS), in->sample_end_ns);
	while (sl__mono_ns(env) < end && !sl__export_stopping(in->e)) {
		wait_for_input(in, in->fd, LOOK_MS);
		if (poll(&one, 1, 0) != 0)
			return true;
	}
	return sl__export_stopping(in->e);
}

/* The pipe has ended. Where its writer was ended in the middle of a line, what is there of it is no row, and looks like
 * one: 12 of 1234. */
static int64_t end_of_pipe(const struct sl__input *in, struct sl_err *err)
{
	if (!in->cut)
		return 0;
	return sl_err_set(err, SL_EDATA,
			  "it ends in the middle of a line, perhaps because its writer was interrupted. That line is "
			  "not exported; if it is complete, end it with a line feed");
}

static int64_t read_pipe(struct sl__input *in, void *buf, size_t n, struct sl_err *err)
{
	for (;;) {
		if (in->sample_end_ns == 0)
			wait_for_input(in, in->fd, -1);
		else if (!wait_for_sample(in))
			return SL_EAGAIN; /* for the guess of the columns alone, which continues */
		if (sl__export_stopping(in->e))
			return cancelled(err);
		ssize_t got = read(in->fd, buf, n);
		if (got > 0)
			in->cut = ((const char *)buf)[got - 1] != '\n';
		if (got == 0 && in->cut && in->sample_end_ns != 0)
			in->sampled = true; /* the rows before it are enough for a sample */
		if (got == 0)
			return in->sampled ? SL_EAGAIN : end_of_pipe(in, err);
		if (got > 0)
			return got;
		if (errno != EINTR && errno != EAGAIN)
			return input_read_failed(in, errno, err);
	}
}

static int64_t read_for_records(void *buf, size_t n, struct sl_err *err, void *ctx)
{
	struct sl__input *in = ctx;
	if (sl__export_stopping(in->e))
		return cancelled(err);
	if (in->source.ops != NULL)
		return in->source.ops->read(buf, n, err, in->source.ctx);
	if (in->map.text == NULL)
		return in->regular ? read_regular(in, buf, n, err) : read_pipe(in, buf, n, err);
	size_t k = SL_MIN(n, in->map.len - in->map_at);
	memcpy(buf, in->map.text + in->map_at, k);
	in->map_at += k;
	return (int64_t)k;
}

static int new_records(struct sl__input *in, struct sl_err *err)
{
	const struct sl_records_opts opts = records_opts(in);
	sl_records_free(in->records);
	in->records = NULL;
	return sl_records_new(&in->records, read_for_records, in, &opts, err);
}

int sl__input_begin(struct sl__input *in, uint64_t first, uint64_t last, struct sl_err *err)
{
	if (in->source.ops != NULL) {
		int rc = in->source.ops->begin(first, last, err, in->source.ctx);
		if (rc != 0)
			return rc;
	}
	in->map_at = 0;
	in->offset = in->tail_len = 0;
	in->begun = in->is_file && in->regular && in->e->o.follow == SL_ON;
	if (in->e->o.rows != NULL)
		return 0; /* rows.c calls it */
	if (in->source.ops == NULL && !in->is_file && in->regular && lseek(in->fd, 0, SEEK_SET) != 0)
		return (int)input_read_failed(in, errno, err);
	return new_records(in, err);
}

/* ---- opening ---- */

int sl__input_open(struct sl__input *in, struct sl_export *e, const char *sequence, uint64_t first, struct sl_err *err)
{
	const struct sl_env *env = &e->env;
	int rc = 0;
	*in = (struct sl__input){.e = e, .fd = -1};
	in->csv = e->o.format == SL_EXPORT_CSV;
	in->header = in->csv && e->o.header != SL_OFF;
	if (e->o.rows != NULL) {
		in->csv = in->header = false;
	} else if (e->o.table != NULL || e->o.query != NULL) {
		in->source_opts = e->o;
		if (sequence != NULL)
			in->source_opts.sequence = sequence; /* the dataset's: it outlives the input */
		rc = strncmp(e->o.from, "sqlite:", 7) == 0
			     ? sl__export_sqlite_open(&in->source, &in->source_opts, env, err)
			     : sl__export_postgres_open(&in->source, &in->source_opts, env, err);
		if (rc != 0)
			return rc;
		in->csv = in->source.ops->csv;
		in->header = false;
		sl__lock(&e->mu);
		e->source = &in->source;
		sl__unlock(&e->mu);
		if ((rc = in->source.ops->columns(&in->known, &in->n_known, err, in->source.ctx)) != 0)
			return rc;
	} else if (strcmp(e->o.from, "-") == 0) {
		struct stat st;
		in->fd = e->o.fd;
		in->regular = fstat(in->fd, &st) == 0 && S_ISREG(st.st_mode);
		/* What was read of it before does not belong to the export: then it is read as a pipe. */
		in->regular = in->regular && lseek(in->fd, 0, SEEK_CUR) == 0;
		in->total = in->regular && e->o.follow != SL_ON ? (uint64_t)st.st_size : 0;
	} else { /* a path; a FIFO without a writer is opened as well, and waited for when it is read */
		struct sl_io_stat st;
		int fd = SL__IO(env, open, e->o.from, O_RDONLY | O_NONBLOCK, 0);
		if (fd < 0)
			return sl_err_set_errno(err, -fd, "open %s", e->o.from);
		in->fd = fd;
		in->is_file = true;
		rc = SL__IO(env, fstat, fd, &st);
		if (rc < 0)
			return sl_err_set_errno(err, -rc, "stat %s", e->o.from);
		if (S_ISDIR(st.mode))
			return sl_err_set(err, SL_EINVAL, "%s is a folder", e->o.from);
		in->regular = S_ISREG(st.mode);
		in->total = in->regular && e->o.follow != SL_ON ? st.size : 0;
		if (in->regular && env->io == &sl__io_real && e->o.follow != SL_ON && st.size > 0 &&
		    (rc = sl__map_open(&in->map, fd, (size_t)st.size, err)) != 0)
			return rc;
	}
	return sl__input_begin(in, first, SL__EXPORT_NO_END, err);
}

void sl__input_close(struct sl__input *in)
{
	if (in->e == NULL)
		return;
	sl__lock(&in->e->mu);
	in->e->source = NULL;
	sl__unlock(&in->e->mu);
	sl_records_free(in->records);
	drop_before(in);
	sl__map_close(&in->map);
	if (in->source.ops != NULL)
		in->source.ops->close(in->source.ctx);
	if (in->is_file)
		sl__close_fd(&in->e->env, &in->fd);
	*in = (struct sl__input){.e = NULL};
}

/* ---- columns ---- */

/* Guess the columns. A pipe is not waited for until there is a whole sample: what came before a pause is enough. Nor is
 * a file that grows, once it has a row. */
static int infer(struct sl__input *in, const struct sl_column **guessed, size_t *n, struct sl_err *err)
{
	size_t max = (size_t)in->e->o.sample_records, rows = 1;
	bool grows = in->e->o.follow == SL_ON && in->regular;
	struct sl_record record;
	int rc = SL_EAGAIN;
	if (!in->regular && in->source.ops == NULL && in->map.text == NULL) {
		while (rc == SL_EAGAIN) {
			in->sample_end_ns = sl__deadline_ns(&in->e->env, SAMPLE_MS);
			rc = sl_records_infer(in->records, max, guessed, n, err);
			if (rc == SL_EAGAIN && in->sampled) /* not one complete line */
				rc = (int)end_of_pipe(in, err);
		}
		in->sample_end_ns = 0;
		in->sampled = false;
		return rc;
	}
	do {
		in->sampling = grows;
		if ((rc = sl_records_infer(in->records, max, guessed, n, err)) != 0)
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

int sl__input_schema(struct sl__input *in, const char *sequence, struct sl__schema *out, struct sl_err *err)
{
	const struct sl_column *guessed = NULL;
	struct sl_record record;
	size_t n = 0, n_records = 0;
	bool all_known = in->n_known > 0;
	int rc;
	for (size_t i = 0; i < in->n_known; i++)
		all_known = all_known && in->known[i].kind != 0;
	if (!all_known && (rc = infer(in, &guessed, &n, err)) != 0)
		return rc;
	if (in->n_known > 0) {
		/* The kinds that the source does not know are guessed; the sequence is required. guessed NULL: all kinds are known. */
		sequence = sequence != NULL ? sequence : in->known[0].name;
		struct sl_column *named = sl__calloc(&in->e->env, in->n_known, sizeof(*named));
		if (named == NULL)
			return sl_err_set(err, SL_ENOMEM, "out of memory for a schema");
		for (size_t i = 0; i < in->n_known; i++)
			named[i] = (struct sl_column){.name = in->known[i].name,
						      .kind = n >= in->n_known ? guessed[i].kind : SL_COLUMN_TEXT};
		rc = sl__schema_guess(out, &in->e->env, &(struct sl__guessed){named, in->n_known, sequence}, err);
		sl__free(&in->e->env, named);
		for (size_t i = 0; rc == 0 && i < in->n_known; i++) {
			const char *name = out->columns[i].name;
			if (in->known[i].kind == 0)
				continue;
			out->columns[i] = in->known[i];
			out->columns[i].name = name;
			if (strcmp(name, sequence) == 0)
				out->columns[i].nullable = false;
		}
	} else if (n > 0) {
		const struct sl__guessed from = {guessed, n, sequence != NULL ? sequence : guessed[0].name};
		rc = sl__schema_guess(out, &in->e->env, &from, err);
	} else { /* no column was found: say why */
		if ((rc = sl_records_next(in->records, &record, 1, &n_records, err)) != 0)
			return rc;
		if (n_records == 0)
			return sl_err_set(err, SL_EDATA, "%s is empty; its columns cannot be guessed",
					  sl__input_name(in));
		return sl_err_set(err, SL_EDATA, "%.80s: line %llu: %s", sl__input_name(in),
				  (unsigned long long)record.line,
				  record.bad != NULL ? record.bad : "no columns can be guessed from it");
	}
	if (rc != 0 || in->e->o.follow != SL_ON || !in->regular)
		return rc;
	if ((rc = sl__input_begin(in, 0, SL__EXPORT_NO_END, err)) != 0) /* from its beginning, with all that follows */
		sl__schema_fini(out);
	return rc;
}
