/* SPDX-License-Identifier: Apache-2.0 */
/* The inputs together: opening them, reading them in turn, and what to wait for. follow.h has the rules. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ship/follow.h"

enum { GROUP_BYTES = 4 << 20 }; /* lines are made durable when this much is collected, or nothing more is there */

/* ---- open and close ---- */

/* The folder as the system knows it, the name as given: links are followed each time anew. A folder that does not exist
 * yet is taken as it was written. */
static int set_path(struct ship_source *s)
{
	const struct sl_env *env = s->in.env;
	char full[PATH_MAX], *dir = sl__dirname(env, s->given);

	s->in.base = sl__basename(s->given);
	if (dir == NULL)
		return SL_ENOMEM;
	if (realpath(dir, full) != NULL)
		s->in.dir = sl__strdup(env, full);
	else if (dir[0] != '/' && getcwd(full, sizeof(full)) != NULL)
		s->in.dir = sl__asprintf(env, "%s/%s", full, dir);
	else
		s->in.dir = sl__strdup(env, dir);
	sl__free(env, dir);
	if (s->in.dir == NULL)
		return SL_ENOMEM;
	s->path = sl__asprintf(env, "%s/%s", strcmp(s->in.dir, "/") ? s->in.dir : "", s->in.base);
	return s->path != NULL ? 0 : SL_ENOMEM;
}

/* Each run of a stream is a new input: nothing is known of what came before. */
static int open_stream(struct ship_follow *f, struct ship_source *s, struct sl_err *err)
{
	struct ship_state *state = &f->log->state;
	int fd = strcmp(s->given, "-") ? open(s->given, O_RDONLY | O_CLOEXEC | O_NOCTTY) : STDIN_FILENO;
	struct ship_place *place = NULL;

	if (fd < 0)
		return sl_err_set_errno(err, errno, "%.200s", s->given);
	s->path = sl__strdup(f->env, s->given);
	for (size_t i = state->n; s->path != NULL && i-- > 0;)
		if (strcmp(state->places[i].path, s->path) == 0)
			sl__ship_state_drop(state, state->places[i].id);
	if (s->path != NULL)
		place = sl__ship_state_add(state, s->path);
	if (place != NULL)
		s->parts = sl__ship_part_new(f->env, fd, place);
	if (s->parts != NULL)
		return 0;
	if (fd != STDIN_FILENO)
		(void)close(fd);
	return sl__no_memory(err, s->given);
}

static int open_source(struct ship_follow *f, struct ship_source *s, const char *given, struct sl_err *err)
{
	struct stat st;

	*s = (struct ship_source){.in.env = f->env, .dir_wd = -1};
	s->given = sl__strdup(f->env, given);
	if (s->given == NULL)
		return sl__no_memory(err, given);
	s->stream = strcmp(given, "-") == 0 || (stat(given, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode));
	s->dirty = !s->stream; /* poll reports when a stream has something */
	if (s->stream)
		return open_stream(f, s, err);
	if (set_path(s))
		return sl__no_memory(err, given);
	if (!*s->in.base || (stat(s->path, &st) == 0 && S_ISDIR(st.st_mode)))
		return sl_err_set(err, SL_EINVAL, "%.200s is a folder; give its files", given);
	if (!f->follow && access(s->path, R_OK))
		return sl_err_set_errno(err, errno, "%.200s", given);
	sl__ship_watch_source(f, s);
	return sl__ship_source_open(f, s, err);
}

int sl__ship_follow_open(struct ship_follow *f, const struct sl_env *env, struct ship_log *log,
			 const struct sl_ship_opts *opts, struct sl_err *err)
{
	*f = (struct ship_follow){.env = env,
				  .log = log,
				  .follow = opts->follow == SL_ON,
				  .json = opts->input == SL_SHIP_JSON,
				  .inotify = -1};
	f->sources = sl__calloc(env, opts->n_paths, sizeof(*f->sources));
	if (f->sources == NULL)
		return sl__no_memory(err, "inputs");
	sl__ship_watch_open(f);
	for (size_t i = 0; i < opts->n_paths; i++) {
		f->n++;
		int rc = open_source(f, &f->sources[i], opts->paths[i], err);

		if (rc != 0)
			return rc;
		for (size_t k = 0; k < i; k++)
			if (strcmp(f->sources[i].path, f->sources[k].path) == 0)
				return sl_err_set(err, SL_EINVAL, "%.200s is given twice", f->sources[i].given);
	}
	if (sl__ship_state_size(&log->state) > SHIP_SNAPSHOT_MAX / 2)
		return sl_err_set(
			err, SL_EINVAL,
			"too many files for one log; ship some of them from another process with another --stream");
	return 0;
}

void sl__ship_follow_close(struct ship_follow *f)
{
	if (f->env == NULL)
		return;
	for (size_t i = 0; i < f->n; i++) {
		struct ship_source *s = &f->sources[i];

		while (s->parts != NULL) {
			struct ship_part *p = s->parts;

			s->parts = p->next;
			sl__ship_part_free(f, p);
		}
		sl__free(f->env, s->given);
		sl__free(f->env, s->path);
		sl__free(f->env, s->in.dir);
	}
	sl__free(f->env, f->sources);
	if (f->inotify >= 0)
		(void)close(f->inotify);
	f->env = NULL;
}

/* ---- reading ---- */

/* Read a part until its end, or until the group is full. 1: its end; 0: not yet. */
static int read_part(struct ship_follow *f, struct ship_source *s, struct ship_part *p, struct sl_err *err)
{
	int rc = SHIP_MORE;

	while (rc == SHIP_MORE && sl__ship_log_waiting(f->log) < GROUP_BYTES) {
		rc = sl__ship_part_read(f, s, p, err);
		if (s->stream && rc == SHIP_MORE)
			return 0; /* another read may block; poll reports when it does not */
	}
	if (rc == SHIP_FIRST)
		return sl__ship_source_first(f, s, p, err);
	if (rc == SHIP_TRUNCATED)
		return sl__ship_source_truncated(f, s, p, err);
	return rc < 0 ? rc : rc == SHIP_EOF;
}

/* The parts in their order; a later one begins when the one before it is at its end. *more: there is more to read. */
static int read_parts(struct ship_follow *f, struct ship_source *s, bool *more, struct sl_err *err)
{
	for (struct ship_part *p = s->parts; p; p = p->next) {
		int rc = read_part(f, s, p, err);

		if (rc < 0)
			return rc;
		if (rc == 0) {
			*more = *more || !s->stream;
			return 0;
		}
		/* The end of a stream, or of a file that is not followed. */
		if (p->next == NULL && (s->stream ? p->eof : !f->follow)) {
			rc = sl__ship_part_end(f, p, err);
			s->over = rc == 0;
			return rc;
		}
	}
	s->dirty = false;
	return 0;
}

int sl__ship_follow_read(struct ship_follow *f, bool *more, struct sl_err *err)
{
	*more = false;
	f->wait_ms = -1;
	for (size_t i = 0; i < f->n; i++) {
		struct ship_source *s = &f->sources[i];
		int rc = 0;

		if (sl__ship_log_waiting(f->log) >= GROUP_BYTES) {
			*more = true;
		} else if (!s->stream) {
			if (s->dirty && !s->over) {
				sl__ship_watch_source(f, s);
				if (f->follow)
					rc = sl__ship_source_refresh(f, s, err);
				if (rc == 0)
					rc = read_parts(f, s, more, err);
			}
			if (rc == 0)
				rc = sl__ship_source_tidy(f, s, err);
		} else if (s->dirty && !s->over) {
			bool ignored = false;

			s->dirty = false;
			rc = read_parts(f, s, &ignored, err);
		}
		if (rc != 0)
			return rc;
	}
	return 0;
}

int sl__ship_follow_end_streams(struct ship_follow *f, bool *any, struct sl_err *err)
{
	*any = false;
	for (size_t i = 0; i < f->n; i++) {
		struct ship_source *s = &f->sources[i];

		if (!s->stream || s->over || s->parts == NULL)
			continue;
		*any = true;
		int rc = sl__ship_part_end(f, s->parts, err);

		if (rc != 0)
			return rc;
	}
	return 0;
}

bool sl__ship_follow_over(const struct ship_follow *f)
{
	for (size_t i = 0; i < f->n; i++)
		if (!f->sources[i].over)
			return false;
	return true;
}

/* ---- waiting ---- */

void sl__ship_follow_reopen(struct ship_follow *f)
{
	sl__ship_watch_remove_all(f);
	sl__ship_watch_open(f);
	for (size_t i = 0; i < f->n; i++) {
		struct ship_source *s = &f->sources[i];

		s->poll = false;
		s->reported = 0;
		sl__ship_watch_source(f, s);
		for (struct ship_part *p = s->parts; p; p = p->next)
			sl__ship_watch_part(f, s, p);
		s->dirty = s->dirty || !s->stream;
	}
}

size_t sl__ship_follow_fds_max(const struct ship_follow *f)
{
	return f->n + 1;
}

/* Nothing reports when a file may be opened after all: its own mode, or that of any folder above it, may change. */
static bool is_polled(const struct ship_source *s)
{
	return s->poll || (s->reported && s->reported != ENOENT);
}

size_t sl__ship_follow_fds(struct ship_follow *f, struct pollfd *fds, int *timeout_ms)
{
	size_t n = 0;

	*timeout_ms = f->wait_ms;
	if (f->inotify >= 0)
		fds[n++] = (struct pollfd){.fd = f->inotify, .events = POLLIN};
	for (size_t i = 0; i < f->n; i++) {
		const struct ship_source *s = &f->sources[i];

		if (s->over)
			continue;
		if (s->stream && s->parts != NULL)
			fds[n++] = (struct pollfd){.fd = s->parts->fd, .events = POLLIN};
		if (is_polled(s) && (*timeout_ms < 0 || *timeout_ms > SHIP_POLL_MS))
			*timeout_ms = SHIP_POLL_MS;
	}
	return n;
}

void sl__ship_follow_polled(struct ship_follow *f, const struct pollfd *fds, size_t n)
{
	int64_t now = sl__mono_ns(f->env) / 1000000;

	for (size_t i = 0; i < n; i++) {
		if (!fds[i].revents)
			continue;
		if (fds[i].fd == f->inotify)
			sl__ship_watch_read(f);
		for (size_t k = 0; k < f->n; k++)
			if (f->sources[k].stream && f->sources[k].parts != NULL && f->sources[k].parts->fd == fds[i].fd)
				f->sources[k].dirty = true;
	}
	if (now - f->polled_ms < SHIP_POLL_MS)
		return;
	f->polled_ms = now;
	for (size_t i = 0; i < f->n; i++)
		f->sources[i].dirty = f->sources[i].dirty || is_polled(&f->sources[i]);
}
