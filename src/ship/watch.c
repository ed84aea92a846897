/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inotify for the files of sl_ship. A watch on the file reports that it was written to, truncated or unlinked, under any
 * name; one on the folder of the path reports that another file has the name. A watch is made before the file is read,
 * so that no change is missed in between.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "ship/follow.h"

#define FILE_EVENTS (IN_MODIFY | IN_ATTRIB | IN_MOVE_SELF | IN_DELETE_SELF)
#define DIR_EVENTS (IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR)

void sl__ship_watch_open(struct ship_follow *f)
{
	f->inotify = f->follow ? inotify_init1(IN_NONBLOCK | IN_CLOEXEC) : -1;
	if (f->follow && f->inotify < 0)
		sl__log_text(f->env, SL_LOG_WARN, "ship", "inotify: %s; files are checked every second instead",
			     strerror(errno));
}

/* File systems that other machines write to, without events in this kernel. */
static bool is_remote(int fd)
{
	static const unsigned long types[] = {0x6969 /* NFS */,
					      0x517b /* SMB */,
					      0xfe534d42 /* SMB 2 */,
					      0xff534d42 /* CIFS */,
					      0x65735546 /* FUSE */,
					      0x01021997 /* 9P */,
					      0x00c36400 /* Ceph */,
					      0x5346414f /* AFS */,
					      0x6b414653 /* kernel AFS */,
					      0x73757245 /* Coda */,
					      0x01161970 /* GFS2 */,
					      0x7461636f /* OCFS2 */,
					      0x0bd00bd0 /* Lustre */,
					      0x786f4256 /* VirtualBox */};
	struct statfs fs;

	if (fstatfs(fd, &fs))
		return false;
	for (size_t i = 0; i < SL_COUNT(types); i++)
		if ((unsigned long)fs.f_type == types[i])
			return true;
	return false;
}

/* The folder may not exist yet: then it is tried again every SHIP_POLL_MS. */
void sl__ship_watch_source(struct ship_follow *f, struct ship_source *s)
{
	if (!f->follow || s->stream || s->dir_wd >= 0)
		return;
	s->dir_wd = f->inotify >= 0 ? inotify_add_watch(f->inotify, s->in.dir, DIR_EVENTS) : -1;
	s->poll = s->dir_wd < 0;
}

void sl__ship_watch_part(struct ship_follow *f, struct ship_source *s, struct ship_part *p)
{
	char path[64];

	if (!f->follow || s->stream)
		return;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", p->fd);
	p->wd = f->inotify >= 0 ? inotify_add_watch(f->inotify, path, FILE_EVENTS) : -1;
	if (p->wd < 0 || is_remote(p->fd))
		s->poll = true;
}

/* Two paths may lead to one file, and have one watch then. */
static bool is_watched(const struct ship_follow *f, int wd)
{
	for (size_t i = 0; i < f->n; i++)
		for (const struct ship_part *p = f->sources[i].parts; p; p = p->next)
			if (p->wd == wd)
				return true;
	return false;
}

void sl__ship_watch_remove(struct ship_follow *f, struct ship_part *p)
{
	int wd = p->wd;

	p->wd = -1;
	if (wd >= 0 && !is_watched(f, wd))
		(void)inotify_rm_watch(f->inotify, wd);
}

void sl__ship_watch_remove_all(struct ship_follow *f)
{
	if (f->inotify >= 0)
		(void)close(f->inotify);
	f->inotify = -1;
	for (size_t i = 0; i < f->n; i++) {
		f->sources[i].dir_wd = -1;
		for (struct ship_part *p = f->sources[i].parts; p; p = p->next)
			p->wd = -1;
	}
}

/* Two paths may lead to one file, and to one folder: every source is checked. */
static void mark_dirty(struct ship_follow *f, const struct inotify_event *e)
{
	for (size_t i = 0; i < f->n; i++) {
		struct ship_source *s = &f->sources[i];

		if (e->mask & IN_Q_OVERFLOW)
			s->dirty = true;
		if (e->wd == s->dir_wd && (!e->len || strcmp(e->name, s->in.base) == 0))
			s->dirty = true;
		if (e->wd == s->dir_wd && e->mask & (IN_IGNORED | IN_DELETE_SELF | IN_MOVE_SELF)) {
			if (!(e->mask & IN_IGNORED)) /* another folder may have its name soon */
				(void)inotify_rm_watch(f->inotify, s->dir_wd);
			s->dir_wd = -1;
			s->poll = s->dirty = true;
		}
		for (const struct ship_part *p = s->parts; p; p = p->next)
			s->dirty = s->dirty || p->wd == e->wd;
	}
}

void sl__ship_watch_read(struct ship_follow *f)
{
	union {
		char bytes[64 * (sizeof(struct inotify_event) + NAME_MAX + 1)];
		struct inotify_event first;
	} buf;
	ssize_t n;

	while (f->inotify >= 0 && (n = read(f->inotify, buf.bytes, sizeof(buf.bytes))) > 0)
		for (size_t at = 0; at < (size_t)n;) {
			struct inotify_event e;

			memcpy(&e, buf.bytes + at, sizeof(e));
			mark_dirty(f, (const struct inotify_event *)(const void *)(buf.bytes + at));
			at += sizeof(e) + e.len;
		}
}
