/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What inotify tells of the files of sluice ship. A watch on the file tells that it was written to, truncated or
 * unlinked, under any name; one on the folder of the path tells that another file has the name. A watch is made before
 * the file is looked at, so that nothing falls in between.
 */
#include "shipfollow.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/vfs.h>
#include <unistd.h>

#define FILE_EVENTS (IN_MODIFY | IN_ATTRIB | IN_MOVE_SELF | IN_DELETE_SELF)
#define DIR_EVENTS (IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR)

void shipwatch_open(struct shipfollow *f)
{
	f->inotify = f->follow ? inotify_init1(IN_NONBLOCK | IN_CLOEXEC) : -1;
	if (f->follow && f->inotify < 0)
		cli_say(f->cli, SL_LOG_WARN, "inotify: %s; files are looked at every second instead", strerror(errno));
}

/* File systems that other machines write to, which this kernel does not hear of. */
static int is_remote(int fd)
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
		return 0;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if ((unsigned long)fs.f_type == types[i])
			return 1;
	return 0;
}

/* The folder may not be there yet: then it is asked for again, every SHIP_POLL_MS. */
void shipwatch_source(struct shipfollow *f, struct ship_source *s)
{
	if (!f->follow || s->stream || s->dir_wd >= 0)
		return;
	s->dir_wd = f->inotify >= 0 ? inotify_add_watch(f->inotify, s->dir, DIR_EVENTS) : -1;
	s->poll = s->dir_wd < 0;
}

void shipwatch_part(struct shipfollow *f, struct ship_source *s, struct ship_part *p)
{
	char path[64];

	if (!f->follow || s->stream)
		return;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", p->fd);
	p->wd = f->inotify >= 0 ? inotify_add_watch(f->inotify, path, FILE_EVENTS) : -1;
	if (p->wd < 0 || is_remote(p->fd))
		s->poll = 1;
}

/* Two paths may lead to one file, and have one watch then. */
static int is_watched(const struct shipfollow *f, int wd)
{
	for (size_t i = 0; i < f->n; i++)
		for (const struct ship_part *p = f->sources[i].parts; p; p = p->next)
			if (p->wd == wd)
				return 1;
	return 0;
}

void shipwatch_forget(struct shipfollow *f, struct ship_part *p)
{
	int wd = p->wd;

	p->wd = -1;
	if (wd >= 0 && !is_watched(f, wd))
		(void)inotify_rm_watch(f->inotify, wd);
}

void shipwatch_drop_all(struct shipfollow *f)
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

static void mark(struct shipfollow *f, const struct inotify_event *e)
{
	for (size_t i = 0; i < f->n; i++) {
		struct ship_source *s = &f->sources[i];

		if (e->mask & IN_Q_OVERFLOW)
			s->dirty = 1;
		if (e->wd == s->dir_wd && (!e->len || strcmp(e->name, s->base) == 0))
			s->dirty = 1;
		if (e->wd == s->dir_wd && e->mask & (IN_IGNORED | IN_DELETE_SELF | IN_MOVE_SELF)) {
			if (!(e->mask & IN_IGNORED)) /* another folder may have its name soon */
				(void)inotify_rm_watch(f->inotify, s->dir_wd);
			s->dir_wd = -1;
			s->poll = s->dirty = 1;
		}
		for (const struct ship_part *p = s->parts; p; p = p->next)
			s->dirty |= p->wd == e->wd;
	}
}

void shipwatch_heard(struct shipfollow *f)
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
			mark(f, (const struct inotify_event *)(const void *)(buf.bytes + at));
			at += sizeof(e) + e.len;
		}
}
