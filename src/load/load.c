/* SPDX-License-Identifier: Apache-2.0 */
/* sl_load: options, inputs and their target; load.h has the parts. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "flow/new.h"
#include "load/load.h"

enum { SAMPLE_RECORDS = 1000, MAX_FOLDERS = 100 /* of dead letters, side by side */ };

/* ---- inputs ---- */

bool sl__load_is_stopped(sl_load *l)
{
	struct pollfd fd = {.fd = l->stop_fd, .events = POLLIN};

	if (!l->stop && l->stop_fd > 0 && poll(&fd, 1, 0) > 0)
		l->stop = true;
	return l->stop;
}

/* The writer of a pipe was cut off in the middle of a line: the part of it that arrived is not a row, although it may
 * look like one (12 of 1234). The sink gets the records before it. Exports have the same rule. */
static int refuse_cut(struct sl_err *err)
{
	return sl_err_set(err, SL_EDATA,
			  "it ends in the middle of a line, perhaps because its writer was interrupted. That line is "
			  "not loaded; if it is complete, end it with a line feed");
}

/* A read that a stop interrupts fails with SL_ECANCELLED. */
static int64_t read_input(void *buf, size_t n, struct sl_err *err, void *ctx)
{
	struct load_input *in = ctx;
	sl_load *l = in->load;

	for (;;) {
		struct pollfd fds[3] = {{.fd = in->fd, .events = POLLIN},
					{.fd = l->wake, .events = POLLIN},
					{.fd = l->stop_fd > 0 ? l->stop_fd : -1, .events = POLLIN}};
		ssize_t got;

		if (poll(fds, SL_COUNT(fds), -1) < 0 && errno != EINTR)
			return sl_err_set_errno(err, errno, "%s", in->name);
		if (sl__load_is_stopped(l))
			return sl_err_set(err, SL_ECANCELLED, "stopped");
		if (!fds[0].revents)
			continue;
		got = read(in->fd, buf, n);
		if (got > 0)
			in->cut = ((const char *)buf)[got - 1] != '\n';
		if (got == 0 && in->cut && !in->is_file)
			return in->sampling ? SL_EAGAIN : refuse_cut(err);
		if (got >= 0) {
			in->read += (uint64_t)got;
			return got;
		}
		if (errno != EINTR && errno != EAGAIN)
			return sl_err_set_errno(err, errno, "%s", in->name);
	}
}

int sl__load_input_open(struct load_input *in, sl_load *l, const char *path, struct sl_err *err)
{
	bool is_stdin = strcmp(path, "-") == 0;
	struct sl_records_opts opts = {SL_RECORDS_OPTS_INIT,
				       .env = &l->env,
				       .format = l->to.opts.format,
				       .header = l->header ? SL_ON : SL_OFF,
				       .max_record_bytes = l->max_record_bytes,
				       .null_text = l->to.opts.null_text,
				       .delimiter = l->to.opts.delimiter};
	struct stat st;
	int rc;

	*in = (struct load_input){.load = l, .path = path, .name = is_stdin ? "standard input" : path};
	in->fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
	if (in->fd < 0 || fstat(in->fd, &st))
		return sl_err_set_errno(err, errno, "%s", in->name);
	if (S_ISDIR(st.st_mode))
		return sl_err_set(err, SL_EINVAL, "%s is a folder; give its files", in->name);
	in->is_file = S_ISREG(st.st_mode);
	rc = sl_records_new(&in->records, read_input, in, &opts, err);
	if (rc != 0)
		return sl__load_input_failed(in, rc, err);
	return 0;
}

int sl__load_name_error(struct sl_err *err, int rc, const char *subject)
{
	return err != NULL && strstr(err->msg, sl__basename(subject)) != NULL ? rc
									      : sl_err_wrap(err, rc, "%.100s", subject);
}

int sl__load_input_failed(const struct load_input *in, int rc, struct sl_err *err)
{
	if (sl__load_is_stopped(in->load))
		return sl_err_set(err, SL_ECANCELLED, "stopped");
	return sl__load_name_error(err, rc, in->name);
}

void sl__load_input_close(struct load_input *in)
{
	sl_records_free(in->records);
	if (in->fd > STDIN_FILENO)
		(void)close(in->fd);
	*in = (struct load_input){.fd = -1};
}

/* ---- the target ---- */

/* CSV: the header names the columns; the first file's, and the others must have the same. *empty: there is nothing at
 * all in the input, not even a header. */
static int take_header(sl_load *l, bool *empty, struct sl_err *err)
{
	struct sl_sink_opts *o = &l->to.opts;
	const char *const *names;
	size_t n;
	int rc;

	*empty = false;
	if (o->format != SL_ROWS_CSV || !l->header)
		return 0;
	rc = sl_records_columns(l->in.records, &names, &n, err);
	if (rc != 0) {
		*empty = l->in.read == 0 && rc == SL_EDATA;
		return *empty ? 0 : sl__load_input_failed(&l->in, rc, err);
	}
	if (o->columns != NULL) {
		bool same = n == o->n_columns;

		for (size_t i = 0; same && i < n; i++)
			same = strcmp(names[i], o->columns[i]) == 0;
		if (!same)
			return sl_err_set(err, SL_EDATA, "%.150s: its header differs from that of the files before",
					  l->in.name);
		return 0;
	}
	l->to.lists[0] = sl__strdup_list(&l->env, names, n);
	if (l->to.lists[0] == NULL)
		return sl__no_memory(err, "columns");
	o->columns = l->to.lists[0];
	o->n_columns = n;
	return 0;
}

/* Without a record or a header there is nothing to create a table from; the check of the target decides then. */
static int create_table(sl_load *l, struct sl_err *err)
{
	const struct sl_sink_opts *o = &l->to.opts;
	const struct sl_column *guessed;
	size_t n;
	int rc;

	/* The sample of a pipe that was cut off consists of the complete records before the cut. */
	l->in.sampling = true;
	rc = sl_records_infer(l->in.records, SAMPLE_RECORDS, &guessed, &n, err);
	l->in.sampling = false;
	if (rc == SL_EAGAIN)
		rc = refuse_cut(err);
	if (rc != 0)
		return sl__load_input_failed(&l->in, rc, err);
	if (n == 0)
		return 0;
	if (o->columns == NULL) {
		rc = sl_sink_create_table(l->to.url, o, guessed, n, err);
		if (rc != 0)
			return sl_err_wrap(err, rc, "create");
		return 0;
	}
	/* Columns of CSV have the names of the header or of the options. */
	if (n != o->n_columns)
		return sl_err_set(err, SL_EDATA, "columns: %zu names, and the first record has %zu fields",
				  o->n_columns, n);
	struct sl_column *columns = sl__calloc(&l->env, n, sizeof(*columns));

	if (columns == NULL)
		return sl__no_memory(err, "columns");
	for (size_t i = 0; i < n; i++) {
		columns[i] = guessed[i];
		columns[i].name = o->columns[i];
	}
	rc = sl_sink_create_table(l->to.url, o, columns, n, err);
	sl__free(&l->env, columns);
	if (rc != 0)
		return sl_err_wrap(err, rc, "create");
	return 0;
}

/* Folder i of the dead letters, from 1. */
static int dead_path(const sl_load *l, int i, char out[PATH_MAX], struct sl_err *err)
{
	int n = i == 1 ? snprintf(out, PATH_MAX, "%s", l->dead_dir) : snprintf(out, PATH_MAX, "%s-%d", l->dead_dir, i);

	return n < PATH_MAX ? 0 : sl_err_set(err, SL_EINVAL, "dead_letters: the path is too long");
}

/* Open the target and the dead letters, and check what can be known before the first row. */
static int open_target(sl_load *l, struct sl_err *err)
{
	struct sl_dlq_opts dead = {SL_DLQ_OPTS_INIT, .env = &l->env};
	struct stat st;
	int rc;

	if (l->sink.ops != NULL)
		return 0;
	rc = sl_sink_open(&l->sink, l->to.url, &l->to.opts, err);
	if (rc != 0)
		return sl_err_wrap(err, rc, "to");
	rc = l->sink.ops->check != NULL ? l->sink.ops->check(l->sink.ctx, err) : 0;
	if (rc != 0)
		return sl__load_name_error(err, rc, sl_sink_target(&l->sink));
	for (int i = 1; i <= (l->numbered ? MAX_FOLDERS : 1); i++) {
		rc = dead_path(l, i, l->dead_path, err);
		if (rc != 0)
			return rc;
		if (stat(l->dead_path, &st) == 0 && !S_ISDIR(st.st_mode))
			return sl_err_set(err, SL_ECREATE, "dead_letters: %.200s is not a folder", l->dead_path);
		rc = sl_dlq_open(&l->dead, l->dead_path, &dead, err);
		if (rc != SL_ELOCKED)
			break;
	}
	if (rc == SL_ELOCKED)
		return sl_err_set(err, rc, "another process writes to %.150s; use another folder (--dead-letters)",
				  l->dead_dir);
	if (rc != 0)
		return rc;
	rc = sl__load_target_write(&l->to, &l->sink, l->target);
	if (rc == SL_ENOMEM)
		return sl__no_memory(err, "target");
	if (rc != 0) {
		sl__log_text(&l->env, SL_LOG_WARN, "load",
			     "the target has too many columns to keep in dead letters; 'sluice dlq redrive' cannot "
			     "restore them");
		(void)snprintf(l->target, sizeof(l->target), "%s", sl_sink_target(&l->sink));
	}
	return 0;
}

/* ---- the run ---- */

static struct load_key key_of_load(const sl_load *l)
{
	return (struct load_key){
		.env = &l->env, .dir = l->wal_dir, .target = l->target, .inputs = l->paths, .n_inputs = l->n_paths};
}

static int load_input(sl_load *l, size_t i, struct sl_err *err)
{
	struct load_key key;
	bool empty = false;
	int rc = sl__load_input_open(&l->in, l, l->paths[i], err);

	(void)snprintf(l->source, sizeof(l->source), "load:%s", l->paths[i]);
	if (rc != 0)
		return rc;
	rc = take_header(l, &empty, err);
	if (rc != 0)
		return rc;
	if (empty) {
		sl__log_text(&l->env, SL_LOG_WARN, "load", "%s is empty", l->in.name);
		return 0;
	}
	rc = l->create ? create_table(l, err) : 0;
	if (rc != 0)
		return rc;
	rc = open_target(l, err);
	if (rc != 0)
		return rc;
	rc = sl__load_resume(l, i, err);
	key = key_of_load(l);
	if (rc == 0)
		rc = sl__load_place_open(&l->place, &key, i, err);
	if (rc == 0)
		rc = sl__load_rows(l, err);
	l->resumable = l->wal_dir != NULL || l->resume.on;
	if (l->stuck)
		return rc;
	sl__load_place_close(&l->place);
	return sl__load_resumed(l, rc, err);
}

struct letter_count {
	const sl_load *l;
	uint64_t letters;
};

/* By its name: an earlier run may have been given another path to the same file. */
static bool is_input(const sl_load *l, const char *source)
{
	char name[sizeof(l->source)];

	for (size_t i = 0; i < l->n_paths; i++) {
		(void)snprintf(name, sizeof(name), "load:%s", l->paths[i]);
		if (strcmp(source, name) == 0 || strcmp(sl__basename(source + 5), sl__basename(l->paths[i])) == 0)
			return true;
	}
	return false;
}

static int count_letter(const struct sl_dlq_letter *letter, void *ctx)
{
	struct letter_count *c = ctx;

	c->letters += strncmp(letter->source, "load:", 5) == 0 && letter->last_failed_ms >= c->l->since_ms &&
		      letter->target != NULL && strcmp(letter->target, c->l->target) == 0 &&
		      is_input(c->l, letter->source);
	return 0;
}

/* Dead letters of the whole load, also of runs that were cut off and could not report them. With numbered folders such a
 * run may have used another one. */
static void count_dead(sl_load *l)
{
	struct sl_dlq_opts opts = {SL_DLQ_OPTS_INIT, .env = &l->env, .read_only = SL_ON};
	struct letter_count own = {.l = l}, others = {.l = l};
	char path[PATH_MAX];

	l->dead_all = l->total.dead + l->bad;
	if (l->dead == NULL || !l->since_ms)
		return;
	if (sl_dlq_list(l->dead, false, count_letter, &own, NULL) == 0)
		l->dead_all = SL_MAX(l->dead_all, own.letters);
	for (int i = 1; l->numbered && i <= MAX_FOLDERS; i++) {
		sl_dlq *q;

		if (dead_path(l, i, path, NULL) != 0 || strcmp(path, l->dead_path) == 0 ||
		    sl_dlq_open(&q, path, &opts, NULL) != 0)
			continue;
		if (sl_dlq_list(q, false, count_letter, &others, NULL) != 0)
			sl__log_text(&l->env, SL_LOG_WARN, "load", "cannot count the dead letters in %s", path);
		sl_dlq_close(q);
	}
	l->dead_all += others.letters;
	l->dead_elsewhere = others.letters;
}

int sl_load_run(sl_load *l, struct sl_err *err)
{
	struct load_key key;
	struct stat st;
	int rc = 0;

	if (l->ran)
		return sl_err_set(err, SL_EINVAL, "sl_load_run was called before");
	l->ran = true;
	/* The size of all files together; not known when one is not a file. */
	for (size_t i = 0; i < l->n_paths; i++) {
		bool is_stdin = strcmp(l->paths[i], "-") == 0;

		if ((is_stdin ? fstat(STDIN_FILENO, &st) : stat(l->paths[i], &st)) || !S_ISREG(st.st_mode)) {
			l->bytes_total = 0;
			break;
		}
		l->bytes_total += (uint64_t)st.st_size;
	}
	for (size_t i = 0; i < l->n_paths && rc == 0; i++) {
		rc = load_input(l, i, err);
		sl__load_input_close(&l->in);
	}
	/* Also when every file was empty: a target that is wrong is wrong. */
	if (rc == 0)
		rc = open_target(l, err);
	if (rc == 0) {
		key = key_of_load(l);
		rc = sl__load_place_finish(&key, err);
	}
	count_dead(l);
	if (rc == SL_ECANCELLED)
		return sl_err_set(err, rc, "stopped before the end of the input");
	return rc;
}

void sl_load_stop(sl_load *l)
{
	uint64_t one = 1;
	int saved = errno;

	l->stop = true;
	(void)!write(l->wake, &one, sizeof(one));
	errno = saved;
}

/* ---- open and close ---- */

static int check_opts(const struct sl_load_opts *o, struct sl_err *err)
{
	size_t n_standard = 0;

	if (o->to == NULL)
		return sl_err_set(err, SL_EINVAL, "to: missing");
	if (o->dead_letters == NULL)
		return sl_err_set(err, SL_EINVAL, "dead_letters: missing");
	if (o->paths == NULL || !o->n_paths)
		return sl_err_set(err, SL_EINVAL, "paths: give at least one");
	for (size_t i = 0; i < o->n_paths; i++)
		n_standard += strcmp(o->paths[i], "-") == 0;
	if (n_standard > 1)
		return sl_err_set(err, SL_EINVAL, "paths: standard input (-) can be read only once");
	if (o->load_id != NULL && n_standard == 0 && o->n_paths > 1)
		return sl_err_set(err, SL_EINVAL, "load_id: names one input; load the files one at a time");
	if (o->sink != NULL && o->sink->columns != NULL && (o->sink->format != SL_ROWS_CSV || o->header != SL_OFF))
		return sl_err_set(err, SL_EINVAL, "columns: only for CSV without a header");
	return 0;
}

/* A copy that lives as long as the handle. false: out of memory. */
static bool copy_string(sl_load *l, const char **field)
{
	if (*field == NULL)
		return true;
	assert(l->n_strings < SL_COUNT(l->strings));
	l->strings[l->n_strings] = sl__strdup(&l->env, *field);
	*field = l->strings[l->n_strings];
	return l->strings[l->n_strings++] != NULL;
}

static bool copy_list(sl_load *l, const char *const **field, size_t n, const char ***owned)
{
	if (*field == NULL)
		return true;
	*owned = sl__strdup_list(&l->env, *field, n);
	*field = *owned;
	return *owned != NULL;
}

static bool copy_opts(sl_load *l, const struct sl_load_opts *o)
{
	struct sl_sink_opts *s = &l->to.opts;
	const char *dead = o->dead_letters, *wal = o->wal_dir, *id = o->load_id;
	const char *const *paths = o->paths;
	size_t n_argv = 0;
	bool ok;

	sl__opts_copy(s, sizeof(*s), o->sink);
	sl__opts_copy(&l->delivery, sizeof(l->delivery), o->delivery);
	while (s->argv != NULL && s->argv[n_argv] != NULL)
		n_argv++;
	s->env = &l->env;
	l->to.env = &l->env;
	l->to.url = o->to;
	ok = copy_string(l, &l->to.url) && copy_string(l, &s->table) && copy_string(l, &s->null_text) &&
	     copy_string(l, &s->header_file) && copy_string(l, &s->token_file) && copy_string(l, &s->ca_file) &&
	     copy_string(l, &s->event_type) && copy_string(l, &s->event_source) && copy_string(l, &dead) &&
	     copy_string(l, &wal) && copy_string(l, &id) && copy_list(l, &s->columns, s->n_columns, &l->to.lists[0]) &&
	     copy_list(l, &s->on_conflict, s->n_on_conflict, &l->to.lists[1]) &&
	     copy_list(l, &s->headers, s->n_headers, &l->headers) && copy_list(l, &s->argv, n_argv, &l->argv) &&
	     copy_list(l, &paths, o->n_paths, &l->paths);
	l->n_paths = o->n_paths;
	l->dead_dir = dead;
	l->wal_dir = wal;
	l->load_id = id;
	return ok;
}

static void free_load(sl_load *l)
{
	sl_dlq_close(l->dead);
	sl_sink_close(&l->sink);
	sl__load_target_fini(&l->to);
	sl__free(&l->env, l->paths);
	sl__free(&l->env, l->headers);
	sl__free(&l->env, l->argv);
	for (size_t i = 0; i < l->n_strings; i++)
		sl__free(&l->env, l->strings[i]);
	if (l->wake >= 0)
		(void)close(l->wake);
	sl__mutex_fini(&l->mu);
	sl__flow_free(l);
}

int sl_load_open(sl_load **out, const struct sl_load_opts *opts, struct sl_err *err)
{
	struct sl_load_opts o;
	int rc;

	sl__opts_copy(&o, sizeof(o), opts);
	rc = check_opts(&o, err);
	if (rc != 0)
		return rc;
	sl_load *l = sl__flow_new(sizeof(*l), o.env, "load", &rc, err);

	if (l == NULL)
		return rc;
	l->in.fd = l->place.fd = -1;
	l->header = o.header != SL_OFF;
	l->create = o.create == SL_ON;
	l->wants_resume = o.resume != SL_OFF;
	l->again = o.again == SL_ON;
	l->numbered = o.dead_letters_numbered == SL_ON;
	l->max_record_bytes = o.max_record_bytes;
	l->stop_fd = o.stop_fd;
	sl__mutex_init(&l->mu);
	l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->wake < 0) {
		rc = sl_err_set_errno(err, errno, "eventfd");
	} else if (!copy_opts(l, &o)) {
		rc = sl__no_memory(err, "load");
	}
	if (rc != 0) {
		free_load(l);
		return rc;
	}
	*out = l;
	return 0;
}

int sl_load_close(sl_load *l, struct sl_err *err)
{
	if (l == NULL)
		return 0;
	if (l->stuck)
		return sl_err_set(err, SL_EPENDING, "a write to the target has not returned");
	free_load(l);
	return 0;
}

/* ---- statistics ---- */

void sl_load_get_stats(sl_load *l, struct sl_load_stats *out)
{
	struct sl_coordinator_health h = {.struct_size = sizeof(h)};
	struct sl_load_stats stats = {.read = l->read,
				      .dead_all = l->dead_all,
				      .dead_elsewhere = l->dead_elsewhere,
				      .skipped = l->skipped,
				      .bytes_read = l->bytes_read,
				      .bytes_total = l->bytes_total,
				      .resumable = l->resumable};

	sl__lock(&l->mu);
	if (l->c != NULL && sl_coordinator_get_health(l->c, &h))
		h = (struct sl_coordinator_health){.struct_size = sizeof(h)};
	stats.written = l->total.written + h.written;
	stats.dead = l->total.dead + h.dead_letters + l->bad;
	stats.dropped = l->total.dropped;
	stats.left = l->total.returned;
	sl__unlock(&l->mu);
	stats.queued = h.queue_size;
	stats.in_flight = h.in_flight;
	stats.retrying = h.retrying;
	if (h.breaker != SL_BREAKER_CLOSED)
		stats.trouble = h.last_error;
	sl__result_copy(out, &stats, sizeof(stats));
}

const char *sl_load_target(const sl_load *l)
{
	return l->dead != NULL ? sl_sink_target(&l->sink) : NULL;
}

const char *sl_load_dead_letters(const sl_load *l)
{
	return l->dead != NULL ? l->dead_path : NULL;
}
