/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One path that is followed: which files it has had, which one has it now. follow.h has the cases.
 *
 * The newest place of a path stays in the state also when its file is done with: whatever comes next must be younger,
 * which distinguishes unseen files from those of earlier days.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ship/follow.h"

#define BIRTHS_APART_NS INT64_C(1000000000)
enum { DONE_MAX = 32 }; /* places of one path that are kept to recognize their files */

/* ---- places of a path ---- */

/* The newest place; NULL: the path was never read. */
static struct ship_place *newest(const struct ship_follow *f, const struct ship_source *s)
{
	const struct ship_state *state = &f->log->state;

	for (size_t i = state->n; i-- > 0;)
		if (strcmp(state->places[i].path, s->path) == 0)
			return &state->places[i];
	return NULL;
}

/* Drop places whose files cannot be mistaken for one that came after the newest. Clocks of file systems tick slowly, and
 * files of a fast rotation are born in the same tick. Called with an empty group only. */
static void drop_done(struct ship_follow *f, const struct ship_source *s)
{
	struct ship_state *state = &f->log->state;
	const struct ship_place *last = newest(f, s);
	struct ship_place newest_one = last != NULL ? *last
						    : (struct ship_place){
							      0,
						      };
	int kept = 0;

	for (size_t i = state->n; i-- > 0;) {
		const struct ship_place *p = &state->places[i];

		if (!p->done || p->id == newest_one.id || strcmp(p->path, s->path) != 0)
			continue;
		if (p->born_ns + BIRTHS_APART_NS >= newest_one.since_ns && kept < DONE_MAX)
			kept++;
		else
			sl__ship_state_drop(state, p->id);
	}
}

static struct ship_place *new_place(struct ship_follow *f, const struct ship_source *s, const struct ship_file *file,
				    int64_t since_ns)
{
	struct ship_place *p = sl__ship_state_add(&f->log->state, s->path);

	if (p != NULL) {
		p->dev = file->dev;
		p->ino = file->ino;
		p->since_ns = since_ns;
	}
	return p;
}

/* ---- the list ---- */

static struct ship_part **find_part(struct ship_source *s, uint64_t dev, uint64_t ino)
{
	struct ship_part **at = &s->parts;

	while (*at != NULL && ((*at)->dev != dev || (*at)->ino != ino))
		at = &(*at)->next;
	return at;
}

static void append_part(struct ship_source *s, struct ship_part *p)
{
	struct ship_part **at = &s->parts;

	while (*at != NULL)
		at = &(*at)->next;
	p->next = NULL;
	*at = p;
}

/* file's descriptor is the part's, or closed. */
static struct ship_part *make_part(struct ship_follow *f, struct ship_source *s, struct ship_file *file,
				   struct ship_place *place)
{
	struct ship_part *p = place != NULL ? sl__ship_part_new(f->env, file->fd, place) : NULL;

	if (p == NULL) {
		sl__ship_file_close(file);
		return NULL;
	}
	file->fd = -1;
	sl__ship_watch_part(f, s, p);
	return p;
}

/* The same at the end of the list. SL_ENOMEM. */
static int add_part(struct ship_follow *f, struct ship_source *s, struct ship_file *file, struct ship_place *place,
		    struct sl_err *err)
{
	struct ship_part *p = make_part(f, s, file, place);

	if (p == NULL)
		return sl__no_memory(err, s->given);
	p->old = true;
	append_part(s, p);
	return 0;
}

struct known {
	const struct ship_follow *f;
	struct ship_source *s;
	const struct ship_file *now; /* that has the name */
	bool truncated;              /* it had it before, too, and others are copies of it */
	int64_t since_ns;            /* when its life began: no later than this, nor than a copy of it was made */
};

/* Does the file begin with all that the copy has? Compares its first and last bytes. The copy is read first: a file
 * that is not truncated meanwhile has at least as much. */
static bool has_all_of(int fd, int copy)
{
	char sample[SHIP_SAMPLE], found[SHIP_SAMPLE];
	struct stat st;
	off_t at[2] = {0};

	if (fstat(copy, &st))
		return false;
	at[1] = st.st_size > SHIP_SAMPLE ? st.st_size - SHIP_SAMPLE : 0;
	for (size_t i = 0; i < 2; i++) {
		ssize_t n = pread(copy, sample, sizeof(sample), at[i]);

		if (n < 0 || pread(fd, found, (size_t)n, at[i]) != n || memcmp(sample, found, (size_t)n) != 0)
			return false;
	}
	return true;
}

/* Is the file to be read later? A file that is younger than the one that had the name came after it, and will be found when
 * the name is checked again. A copy of what the name has now may still be in the making: when it is complete, the
 * file is truncated, and the copy is found then. */
static bool is_later(struct known *k, const struct ship_file *file)
{
	if (!k->truncated)
		return file->born_ns > k->now->born_ns;
	if (!has_all_of(k->now->fd, file->fd))
		return false;
	k->since_ns = file->born_ns < k->since_ns ? file->born_ns : k->since_ns;
	return true;
}

/* A place's file as it is, or was when it was left. */
static uint64_t size_of(struct ship_source *s, const struct ship_place *p)
{
	struct stat st;

	for (const struct ship_part *part = s->parts; part; part = part->next)
		if (part->place == p->id && fstat(part->fd, &st) == 0)
			return (uint64_t)st.st_size;
	return p->offset;
}

/* An inode that was read before may be another file by now; and what is the same as a file that was read, and not
 * longer, is a copy of it. */
static bool is_known(const struct ship_file *file, void *ctx)
{
	struct known *k = ctx;
	const struct ship_state *state = &k->f->log->state;

	if ((k->now->dev == file->dev && k->now->ino == file->ino) || *find_part(k->s, file->dev, file->ino) != NULL)
		return true;
	for (size_t i = 0; i < state->n; i++) {
		const struct ship_place *p = &state->places[i];
		int same = p->dev == file->dev && p->ino == file->ino;

		if (strcmp(p->path, k->s->path) != 0 || !sl__ship_file_is_at(file->fd, p))
			continue;
		if (same || (p->offset > 0 && file->size <= size_of(k->s, p)))
			return true;
	}
	return is_later(k, file);
}

static bool has_name(const struct ship_source *s, uint64_t dev, uint64_t ino)
{
	struct stat st;

	return stat(s->path, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
}

/* Is it as it was when its first bytes were read: under its name, and not truncated? */
static bool is_unchanged(const struct ship_source *s, const struct ship_part *p)
{
	char head[SHIP_SAMPLE];

	return has_name(s, p->dev, p->ino) && pread(p->fd, head, p->head_len, 0) == (ssize_t)p->head_len &&
	       memcmp(head, p->head, p->head_len) == 0;
}

/* Files between the newest that was read and the one that has the name now. same: a part that has had it all the time,
 * with the head of what it has now, or none. What is found next to one whose first bytes were read just now, or that was
 * empty, counts only while it still has them and its name: after a rotation the others are younger. */
static int add_unseen(struct ship_follow *f, struct ship_source *s, struct ship_file *now, const struct ship_part *same,
		      struct sl_err *err)
{
	const struct ship_place *after = newest(f, s);
	struct known known = {.f = f, .s = s, .now = now, .truncated = same != NULL, .since_ns = now->seen_ns};
	struct ship_files found = {.files = NULL};
	bool later;
	int rc = 0;

	if (after == NULL)
		return 0;
	/* One that is older than the reading of the former had the name before: only its content is another. */
	known.truncated = known.truncated || now->born_ns < after->since_ns;
	if (sl__ship_file_unseen(&s->in, after, is_known, &known, &found))
		return sl__no_memory(err, s->given);
	later = same != NULL && (same->head_len || same->found_empty) && !is_unchanged(s, same);
	for (size_t i = 0; i < found.n; i++) {
		struct ship_file *file = &found.files[i];

		if (later && file->born_ns < known.since_ns)
			known.since_ns = file->born_ns; /* so that it is found when its time comes */
		if (rc != 0 || later) {
			sl__ship_file_close(file);
			continue;
		}
		sl__log_text(f->env, SL_LOG_INFO, "ship", "%s: reading %s, which was created and rotated meanwhile",
			     s->given, file->name);
		rc = add_part(f, s, file, new_place(f, s, file, file->born_ns), err);
	}
	sl__free(f->env, found.files);
	now->seen_ns = known.since_ns;
	return rc;
}

/* A file that was done with can come back under its name. */
static struct ship_place *place_for(struct ship_follow *f, const struct ship_source *s, const struct ship_file *file)
{
	struct ship_state *state = &f->log->state;

	for (size_t i = state->n; i-- > 0;) {
		struct ship_place *p = &state->places[i];

		if (p->dev == file->dev && p->ino == file->ino && strcmp(p->path, s->path) == 0 &&
		    sl__ship_file_is_at(file->fd, p)) {
			p->done = false;
			return sl__ship_state_move_last(state, p->id);
		}
	}
	return new_place(f, s, file, file->seen_ns);
}

/* The file that has the name now becomes the last of the list. */
static int add_current(struct ship_follow *f, struct ship_source *s, struct ship_file *now, struct sl_err *err)
{
	struct ship_part **at = find_part(s, now->dev, now->ino), *back = *at;
	int rc = add_unseen(f, s, now, NULL, err);

	if (rc != 0 || back != NULL) {
		sl__ship_file_close(now);
		if (back != NULL) {
			*at = back->next;
			back->old = false;
			append_part(s, back);
			(void)sl__ship_state_move_last(&f->log->state, back->place);
		}
		return rc;
	}
	struct ship_part *p = make_part(f, s, now, place_for(f, s, now));

	if (p == NULL)
		return sl__no_memory(err, s->given);
	append_part(s, p);
	drop_done(f, s);
	return 0;
}

/* ---- the path ---- */

/* Logged once, until there is another reason. */
static void report_missing(struct ship_follow *f, struct ship_source *s, int why)
{
	if (why == s->reported)
		return;
	s->reported = why;
	if (why == ENOENT)
		sl__log_text(f->env, SL_LOG_INFO, "ship", "%s does not exist; waiting for it", s->given);
	else if (why == EINVAL)
		sl__log_text(f->env, SL_LOG_WARN, "ship", "%s is not a regular file; waiting for one", s->given);
	else if (why)
		sl__log_text(f->env, SL_LOG_WARN, "ship", "%s: %s; trying again", s->given, strerror(why));
}

int sl__ship_source_refresh(struct ship_follow *f, struct ship_source *s, struct sl_err *err)
{
	struct ship_part *now = s->parts;
	struct ship_file file = {.fd = -1};
	int why;

	/* The part that has the name now, when one has. */
	while (now != NULL && now->old)
		now = now->next;
	if (now != NULL && has_name(s, now->dev, now->ino)) {
		report_missing(f, s, 0);
		return 0;
	}
	why = sl__ship_file_open(s->path, &file);
	if (why && why != ENOENT) { /* it may be the same file, that we may not open any more */
		report_missing(f, s, why);
		return 0;
	}
	if (now != NULL && !why && now->dev == file.dev && now->ino == file.ino) {
		sl__ship_file_close(&file);
		return 0;
	}
	int rc = sl__ship_log_flush(f->log, err);

	if (rc != 0) {
		sl__ship_file_close(&file);
		return rc;
	}
	if (now != NULL)
		now->old = true;
	report_missing(f, s, why);
	return why ? 0 : add_current(f, s, &file, err);
}

/* ---- the start ---- */

int sl__ship_source_open(struct ship_follow *f, struct ship_source *s, struct sl_err *err)
{
	struct ship_state *state = &f->log->state;
	struct ship_part *last;

	/* The files of the places that the log knows. */
	for (size_t i = 0; i < state->n; i++) {
		struct ship_place *p = &state->places[i];
		struct ship_file file = {.fd = -1};

		if (strcmp(p->path, s->path) != 0 || p->done)
			continue;
		if (!sl__ship_file_find(&s->in, p, &file)) {
			if (p->offset > 0)
				sl__log_text(f->env, SL_LOG_WARN, "ship",
					     "%s: the file that was read up to byte %" PRIu64
					     " was removed; if it had more lines, they are not shipped",
					     s->given, p->offset);
			p->done = true;
			continue;
		}
		p->dev = file.dev;
		p->ino = file.ino;
		int rc = add_part(f, s, &file, p, err);

		if (rc != 0)
			return rc;
	}
	for (last = s->parts; last != NULL && last->next != NULL; last = last->next) {
	}
	/* The usual case: the newest one has the name still. */
	if (last != NULL && has_name(s, last->dev, last->ino))
		last->old = false;
	return sl__ship_source_refresh(f, s, err);
}

/* ---- a file that was truncated ---- */

/* What had not been read yet, from a copy. *found: there is one, and it is in front of p when it has more. */
static int add_copy(struct ship_follow *f, struct ship_source *s, struct ship_part *p, bool *found, struct sl_err *err)
{
	struct ship_place *place = sl__ship_state_find(&f->log->state, p->place);
	struct ship_file copy = {.fd = -1};
	struct ship_part **at, *part;

	*found = place != NULL && sl__ship_file_find_copy(&s->in, place, &copy);
	if (!*found)
		return 0;
	place->dev = copy.dev;
	place->ino = copy.ino;
	place->born_ns = copy.born_ns;
	if (copy.size <= place->offset) {
		sl__ship_file_close(&copy);
		return 0;
	}
	part = make_part(f, s, &copy, place);
	if (part == NULL)
		return sl__no_memory(err, s->given);
	part->old = true;
	for (at = &s->parts; *at != p; at = &(*at)->next) {
	}
	part->next = p;
	*at = part;
	p->place = 0; /* the copy has it */
	return 0;
}

/* Copies that were made of it and never read, of a file that was truncated more than once. */
static int add_unseen_before(struct ship_follow *f, struct ship_source *s, struct ship_part *p, struct ship_file *self,
			     struct sl_err *err)
{
	struct ship_part **at = &s->parts;
	int rc;

	if (p->old)
		return 0;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	rc = add_unseen(f, s, self, p, err);
	append_part(s, p);
	return rc;
}

/* Will what was read of p, and is not in the group, be read again from a copy? Before there is a place, a copy is a
 * file like others that were never seen. */
static bool is_in_copy(const struct ship_source *s, const struct ship_part *p)
{
	size_t n = p->n < SHIP_SAMPLE ? p->n : SHIP_SAMPLE;
	char head[SHIP_SAMPLE];

	for (const struct ship_part *q = s->parts; p->offset == 0 && n && q != NULL; q = q->next)
		if (q != p && q->offset == 0 && pread(q->fd, head, n, 0) == (ssize_t)n && memcmp(head, p->data, n) == 0)
			return true;
	return false;
}

int sl__ship_source_truncated(struct ship_follow *f, struct ship_source *s, struct ship_part *p, struct sl_err *err)
{
	struct ship_file self = {.fd = p->fd, .dev = p->dev, .ino = p->ino};
	struct ship_place *place;
	uint64_t was = p->place;
	bool found = false;
	int rc = sl__ship_log_flush(f->log, err);

	if (rc == 0)
		rc = add_copy(f, s, p, &found, err);
	if (rc == 0 && !found)
		sl__log_text(f->env, SL_LOG_INFO, "ship", "%s was truncated; reading it from its beginning", s->given);
	self.seen_ns =
		sl__ship_file_now_ns(); /* copies made later are of its new life; earlier ones are searched for now */
	p->head_len = 0;
	p->found_empty = false;
	if (rc == 0)
		rc = add_unseen_before(f, s, p, &self, err);
	if (rc == 0 && !found && !is_in_copy(s, p)) /* what was read is all there will ever be of it */
		rc = sl__ship_part_end(f, p, err);
	if (rc == 0)
		rc = sl__ship_log_flush(f->log, err);
	if (rc != 0)
		return rc;
	place = sl__ship_state_find(&f->log->state, was);
	if (place != NULL && p->place)
		place->done = true;
	place = new_place(f, s, &self, self.seen_ns);
	if (place == NULL)
		return sl__no_memory(err, s->given);
	p->place = place->id;
	p->offset = 0;
	p->n = p->scanned = p->tail_len = p->head_len = 0;
	p->eof = p->replaced = p->found_empty = false;
	drop_done(f, s);
	return 0;
}

/* Before the first bytes of a file are taken, and when it is found empty: it may have had others, which were copied and
 * truncated before they were read. From the first bytes on its content decides. */
int sl__ship_source_first(struct ship_follow *f, struct ship_source *s, struct ship_part *p, struct sl_err *err)
{
	struct ship_file self = {.fd = p->fd, .dev = p->dev, .ino = p->ino, .seen_ns = sl__ship_file_now_ns()};
	struct ship_place *place;
	int rc;

	if (!has_name(s, p->dev, p->ino))
		return 0; /* it was rotated: what is younger came after it */
	rc = add_unseen_before(f, s, p, &self, err);
	place = sl__ship_state_move_last(&f->log->state, p->place);
	if (place != NULL)
		place->since_ns = self.seen_ns;
	return rc;
}

/* ---- files that are done with ---- */

static int64_t age_ms(struct timespec t)
{
	return (sl__ship_file_now_ns() - ((int64_t)t.tv_sec * 1000000000 + t.tv_nsec)) / 1000000;
}

/* How long until an old file counts as left by its writer; 0: it does. One that was idle when it was rotated is not
 * left by that: renaming and deleting a file count as changes of it. */
static int64_t quiet_in_ms(const struct ship_follow *f, const struct ship_part *p)
{
	struct stat st;
	int64_t age, changed;

	if (!f->follow || fstat(p->fd, &st))
		return 0;
	age = age_ms(st.st_mtim);
	changed = age_ms(st.st_ctim);
	age = changed < age ? changed : age;
	return age < -SHIP_LINGER_MS || age >= SHIP_LINGER_MS ? 0 : SHIP_LINGER_MS - age;
}

/* The part is gone from the list; its place is done, and stays only as the newest. */
static int leave_part(struct ship_follow *f, struct ship_source *s, struct ship_part **at, struct sl_err *err)
{
	struct ship_part *p = *at;
	struct ship_place *place;
	int rc = sl__ship_part_end(f, p, err);

	if (rc == 0)
		rc = sl__ship_log_flush(f->log, err);
	if (rc != 0)
		return rc;
	place = sl__ship_state_find(&f->log->state, p->place);
	if (place != NULL) {
		place->done = true;
		place->born_ns = sl__ship_file_born_ns(p->fd);
	}
	*at = p->next;
	sl__ship_part_free(f, p);
	drop_done(f, s);
	return 0;
}

int sl__ship_source_tidy(struct ship_follow *f, struct ship_source *s, struct sl_err *err)
{
	struct ship_part **at = &s->parts;
	int rc = 0;

	while (*at != NULL && rc == 0) {
		int64_t wait = (*at)->old && (*at)->eof ? quiet_in_ms(f, *at) : -1;

		if (wait == 0) {
			rc = leave_part(f, s, at, err);
			continue;
		}
		if (wait > 0 && (f->wait_ms < 0 || wait < f->wait_ms))
			f->wait_ms = (int)wait;
		at = &(*at)->next;
	}
	return rc;
}
