/* SPDX-License-Identifier: Apache-2.0 */
#include "shipfollow.h"

#include "server/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GROUP_BYTES = 4 << 20 }; /* lines are made durable when so much has come together, or nothing more is there */

/* ---- names ---- */

/* The folder as the system knows it, the name as it was given: links are followed each time anew. A folder that is not
 * there yet is taken as it was written. */
static int set_path(struct ship_source *s)
{
	const char *slash = strrchr(s->given, '/');
	char *dir = slash ? strndup(s->given, slash == s->given ? 1 : (size_t)(slash - s->given)) : strdup(".");
	char *full = dir ? realpath(dir, NULL) : NULL, here[PATH_MAX];

	s->base = slash ? slash + 1 : s->given;
	if (dir && !full && dir[0] != '/' && getcwd(here, sizeof(here)))
		if (asprintf(&full, "%s/%s", here, dir) < 0)
			full = NULL;
	if (dir && !full)
		full = strdup(dir);
	free(dir);
	s->dir = full;
	if (!full || asprintf(&s->path, "%s/%s", strcmp(full, "/") ? full : "", s->base) < 0) {
		s->path = NULL;
		return SL_ENOMEM;
	}
	return 0;
}

static int is_stream(const char *operand)
{
	struct stat st;

	return strcmp(operand, "-") == 0 || (stat(operand, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode));
}

/* ---- streams ---- */

/* Each run is a stream of its own: nothing is known of what came before. */
static void forget_places(struct shipfollow *f, const char *path)
{
	struct ship_state *state = &f->log->state;

	for (size_t i = state->n; i-- > 0;)
		if (strcmp(state->places[i].path, path) == 0)
			ship_state_drop(state, state->places[i].id);
}

static int open_stream(struct shipfollow *f, struct ship_source *s, struct sl_err *err)
{
	int fd = strcmp(s->given, "-") ? open(s->given, O_RDONLY | O_CLOEXEC | O_NOCTTY) : STDIN_FILENO;
	struct ship_place *place;

	if (fd < 0)
		return sl_err_set_errno(err, errno, "%.200s", s->given);
	s->path = strdup(s->given);
	if (s->path)
		forget_places(f, s->path);
	place = s->path ? ship_state_add(&f->log->state, s->path) : NULL;
	s->parts = place ? ship_part_new(fd, place) : NULL;
	if (s->parts)
		return 0;
	if (fd != STDIN_FILENO)
		(void)close(fd);
	return sl_err_set(err, SL_ENOMEM, "%.200s: out of memory", s->given);
}

/* ---- open and close ---- */

static int open_file(struct shipfollow *f, struct ship_source *s, struct sl_err *err)
{
	struct stat st;
	int rc = 0;

	if (!*s->base || (stat(s->path, &st) == 0 && S_ISDIR(st.st_mode)))
		return sl_err_set(err, SL_EINVAL, "%.200s is a folder", s->given);
	if (!f->follow && access(s->path, R_OK))
		rc = sl_err_set_errno(err, errno, "%.200s", s->given);
	if (rc)
		return rc;
	shipwatch_source(f, s);
	return shipsource_open(f, s, err);
}

static int open_source(struct shipfollow *f, struct ship_source *s, const char *operand, struct sl_err *err)
{
	*s = (struct ship_source){.given = operand, .dir_wd = -1, .stream = is_stream(operand)};
	s->dirty = !s->stream; /* of a stream poll says when there is something */
	if (s->stream)
		return open_stream(f, s, err);
	return set_path(s) ? sl_err_set(err, SL_ENOMEM, "%.200s: out of memory", operand) : open_file(f, s, err);
}

static int check_twice(const struct shipfollow *f)
{
	for (size_t i = 0; i < f->n; i++)
		for (size_t k = 0; k < i; k++)
			if (strcmp(f->sources[i].path, f->sources[k].path) == 0)
				return cli_usage(f->cli, "%s is named twice", f->sources[i].given);
	if (ship_state_size(&f->log->state) > SHIP_SNAPSHOT_MAX / 2)
		return cli_usage(f->cli, "too many files for one log; give some to a command with another --stream");
	return 0;
}

int shipfollow_open(struct shipfollow *f, struct cli *cli, struct shiplog *log, const char *const *operands, int n,
		    int follow, int json)
{
	struct sl_err err = SL_ERR_INIT;

	*f = (struct shipfollow){.cli = cli, .log = log, .follow = follow, .json = json, .inotify = -1};
	f->sources = calloc((size_t)n, sizeof(*f->sources));
	if (!f->sources) {
		(void)sl_err_set(&err, SL_ENOMEM, "out of memory");
		return cli_fail(cli, &err, NULL);
	}
	shipwatch_open(f);
	for (int i = 0; i < n; i++) {
		f->n++;
		if (open_source(f, &f->sources[i], operands[i], &err))
			return cli_fail(cli, &err, operands[i]);
	}
	return check_twice(f);
}

void shipfollow_close(struct shipfollow *f)
{
	for (size_t i = 0; i < f->n; i++) {
		struct ship_source *s = &f->sources[i];

		while (s->parts) {
			struct ship_part *p = s->parts;

			s->parts = p->next;
			ship_part_free(f, p);
		}
		free(s->path);
		free(s->dir);
	}
	free(f->sources);
	if (f->inotify >= 0)
		(void)close(f->inotify);
	*f = (struct shipfollow){.inotify = -1};
}

/* ---- reading ---- */

/* The end of a stream, or of a file that is not followed. */
static int end_source(struct shipfollow *f, struct ship_source *s, struct ship_part *p, struct sl_err *err)
{
	int rc = ship_part_end(f, p, err);

	if (!rc)
		s->over = 1;
	return rc;
}

/* Read a part until its end, or until the group is full. 1: its end; 0: not yet. */
static int read_part(struct shipfollow *f, struct ship_source *s, struct ship_part *p, struct sl_err *err)
{
	int rc = SHIP_MORE;

	while (rc == SHIP_MORE && shiplog_waiting(f->log) < GROUP_BYTES) {
		rc = ship_part_read(f, s, p, err);
		if (s->stream && rc == SHIP_MORE)
			return 0; /* one read may wait; poll says when the next does not */
	}
	if (rc == SHIP_FIRST)
		return shipsource_first(f, s, p, err);
	if (rc == SHIP_TRUNCATED)
		return shipsource_truncated(f, s, p, err);
	return rc < 0 ? rc : rc == SHIP_EOF;
}

/* The parts in their order; a later one begins when the one before it is at its end. *more as in shipfollow_read. */
static int read_parts(struct shipfollow *f, struct ship_source *s, int *more, struct sl_err *err)
{
	for (struct ship_part *p = s->parts; p; p = p->next) {
		int rc = read_part(f, s, p, err);

		if (rc < 0)
			return rc;
		if (rc == 0) {
			*more |= !s->stream;
			return 0;
		}
		if (!p->next && (s->stream ? p->eof : !f->follow))
			return end_source(f, s, p, err);
	}
	s->dirty = 0;
	return 0;
}

static int read_stream(struct shipfollow *f, struct ship_source *s, struct sl_err *err)
{
	int more = 0;

	if (!s->dirty || s->over)
		return 0;
	s->dirty = 0;
	return read_parts(f, s, &more, err);
}

static int read_file(struct shipfollow *f, struct ship_source *s, int *more, struct sl_err *err)
{
	int rc = 0;

	if (s->dirty && !s->over) {
		shipwatch_source(f, s);
		rc = f->follow ? shipsource_look(f, s, err) : 0;
		rc = rc ? rc : read_parts(f, s, more, err);
	}
	return rc ? rc : shipsource_tidy(f, s, &f->wait_ms, err);
}

int shipfollow_read(struct shipfollow *f, int *more, struct sl_err *err)
{
	int rc = 0;

	*more = 0;
	f->wait_ms = -1;
	for (size_t i = 0; i < f->n && !rc; i++) {
		struct ship_source *s = &f->sources[i];

		if (shiplog_waiting(f->log) >= GROUP_BYTES)
			*more = 1;
		else
			rc = s->stream ? read_stream(f, s, err) : read_file(f, s, more, err);
	}
	return rc;
}

int shipfollow_end_streams(struct shipfollow *f, int *any, struct sl_err *err)
{
	int rc = 0;

	for (size_t i = 0; i < f->n && !rc; i++) {
		struct ship_source *s = &f->sources[i];

		if (!s->stream || s->over || !s->parts)
			continue;
		*any = 1;
		rc = ship_part_end(f, s->parts, err);
	}
	return rc;
}

int shipfollow_over(const struct shipfollow *f)
{
	for (size_t i = 0; i < f->n; i++)
		if (!f->sources[i].over)
			return 0;
	return 1;
}

/* ---- waiting ---- */

void shipfollow_reopen(struct shipfollow *f)
{
	shipwatch_drop_all(f);
	shipwatch_open(f);
	for (size_t i = 0; i < f->n; i++) {
		struct ship_source *s = &f->sources[i];

		s->poll = s->told = 0;
		shipwatch_source(f, s);
		for (struct ship_part *p = s->parts; p; p = p->next)
			shipwatch_part(f, s, p);
		s->dirty |= !s->stream;
	}
}

size_t shipfollow_fds_max(const struct shipfollow *f)
{
	return f->n + 1;
}

/* Nothing tells when a file may be opened after all: its own mode, or that of any folder above it, may change. */
static int is_polled(const struct ship_source *s)
{
	return s->poll || (s->told && s->told != ENOENT);
}

size_t shipfollow_fds(struct shipfollow *f, struct pollfd *fds, int *timeout_ms)
{
	size_t n = 0;

	*timeout_ms = f->wait_ms;
	if (f->inotify >= 0)
		fds[n++] = (struct pollfd){.fd = f->inotify, .events = POLLIN};
	for (size_t i = 0; i < f->n; i++) {
		const struct ship_source *s = &f->sources[i];

		if (s->over)
			continue;
		if (s->stream && s->parts)
			fds[n++] = (struct pollfd){.fd = s->parts->fd, .events = POLLIN};
		if (is_polled(s) && (*timeout_ms < 0 || *timeout_ms > SHIP_POLL_MS))
			*timeout_ms = SHIP_POLL_MS;
	}
	return n;
}

void shipfollow_heard(struct shipfollow *f, const struct pollfd *fds, size_t n)
{
	int64_t now = srv_clock_ms();

	for (size_t i = 0; i < n; i++) {
		if (!fds[i].revents)
			continue;
		if (fds[i].fd == f->inotify)
			shipwatch_heard(f);
		for (size_t k = 0; k < f->n; k++)
			if (f->sources[k].stream && f->sources[k].parts && f->sources[k].parts->fd == fds[i].fd)
				f->sources[k].dirty = 1;
	}
	if (now - f->polled_ms < SHIP_POLL_MS)
		return;
	f->polled_ms = now;
	for (size_t i = 0; i < f->n; i++)
		f->sources[i].dirty |= is_polled(&f->sources[i]);
}
