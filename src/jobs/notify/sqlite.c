/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The notifier of processes that share a SQLite file: unix datagram sockets in the folder "<file>-notify" (0700).
 *
 * Every process that has subscribers owns one socket there; a publisher sends to all of them without waiting. A socket
 * whose process is gone refuses (ECONNREFUSED), and the process that notices removes its name. A name is bound with a leading
 * dot and then renamed, so that no process takes a socket that is still being made for a dead one; should it be taken for
 * one all the same, its maker begins again. A peer whose queue is full is skipped: notes are hints.
 *
 * Names are reached through an O_PATH descriptor of the folder (/proc/self/fd/N/name): a socket's address has room for
 * 108 bytes only, whatever the length of the path, and the folder stays the same one when the process changes its own.
 *
 * Where others may write beside the file, another user could make the folder first, and would hear of every job and
 * say what he likes. So the folder must belong to this user, to root or to the owner of the database, and not everybody
 * may write to it; and of what lies in it, only sockets of these are sent to.
 *
 * A datagram: the byte FORMAT, then for each note its kind, reason and length of type (a byte each), its id (8 bytes,
 * little-endian) and the type.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "db/sqlite.h"
#include "jobs/notify/fanout.h"
#include <sluice/jobs.h>

#define FORMAT 1
#define DATAGRAM_MAX 4096
#define NOTE_HEAD 11
#define NAME_BYTES 40
#define BIND_TRIES 8

struct peers {
	struct sl__fanout fanout; /* first: its slots get this struct */
	struct sl_env env;
	char *dir;
	int dir_fd;  /* O_PATH */
	uid_t owner; /* of the folder */
	int sock;    /* to send from; bound once there are subscribers */
	int wake_fd; /* an eventfd that interrupts the poll of the thread */
	sl__mutex mu;
	bool listening; /* under mu: bound, with the thread running */
	bool stopping;  /* atomic */
	char name[NAME_BYTES];
	pthread_t thread;
};

static socklen_t address(const struct peers *p, const char *name, struct sockaddr_un *out)
{
	memset(out, 0, sizeof(*out));
	out->sun_family = AF_UNIX;
	int n = snprintf(out->sun_path, sizeof(out->sun_path), "/proc/self/fd/%d/%s", p->dir_fd, name);
	return n > 0 && (size_t)n < sizeof(out->sun_path) ? (socklen_t)sizeof(*out) : 0;
}

/* ---- sending ---- */

struct sending {
	struct peers *p;
	const struct sl__buf *datagram;
};

static int send_to_peer(const char *name, void *ctx)
{
	const struct sending *s = ctx;
	struct stat st;
	struct sockaddr_un to;
	/* Only to sockets of this user, of root and of the folder's owner. */
	if (fstatat(s->p->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISSOCK(st.st_mode) ||
	    (st.st_uid != geteuid() && st.st_uid != 0 && st.st_uid != s->p->owner))
		return 0;
	socklen_t len = address(s->p, name, &to);
	if (len == 0 || strcmp(name, s->p->name) == 0)
		return 0;
	/* A name with a dot was left behind by a crash, or is just being made: only check whether the peer is there. */
	bool probe = name[0] == '.';
	ssize_t rc;
	do
		rc = sendto(s->p->sock, probe ? NULL : s->datagram->data, probe ? 0 : s->datagram->len,
			    MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)&to, len);
	while (rc < 0 && errno == EINTR);
	if (rc < 0 && errno == ECONNREFUSED)
		(void)unlinkat(s->p->dir_fd, name, 0);
	return 0;
}

/* ---- receiving ---- */

static void take_datagram(struct peers *p, const uint8_t *data, size_t n)
{
	size_t at = 1;
	if (n == 0 || data[0] != FORMAT)
		return;
	while (n - at >= NOTE_HEAD) {
		char type[SL__FANOUT_TYPE_BYTES];
		size_t type_len = data[at + 2];
		struct sl_note note = {.kind = (enum sl_note_kind)data[at],
				       .reason = (enum sl_lost_reason)data[at + 1],
				       .id = sl__get64(data + at + 3)};
		at += NOTE_HEAD;
		if (type_len >= sizeof(type) || type_len > n - at || note.kind > SL_NOTE_CHAIN_ENDED ||
		    note.reason > SL_LOST_FAILED)
			return;
		if (type_len > 0) {
			memcpy(type, data + at, type_len);
			type[type_len] = '\0';
			note.type = type;
		}
		at += type_len;
		sl__fanout_push(&p->fanout, &note, 1);
	}
}

static void wake_receiver(void *ctx)
{
	struct peers *p = ctx;
	uint64_t one = 1;
	(void)!write(p->wake_fd, &one, sizeof(one));
}

static void *sq_listen_main(void *arg)
{
	struct peers *p = arg;
	while (!__atomic_load_n(&p->stopping, __ATOMIC_ACQUIRE)) {
		struct pollfd fds[2] = {{.fd = p->sock, .events = POLLIN}, {.fd = p->wake_fd, .events = POLLIN}};
		uint64_t count;
		if (poll(fds, 2, -1) < 0)
			continue;
		if (fds[1].revents != 0)
			(void)!read(p->wake_fd, &count, sizeof(count));
		while (fds[0].revents != 0) {
			uint8_t data[DATAGRAM_MAX];
			ssize_t n = recv(p->sock, data, sizeof(data), MSG_DONTWAIT);
			if (n >= 0)
				take_datagram(p, data, (size_t)n);
			else if (errno != EINTR)
				break;
		}
		sl__fanout_deliver(&p->fanout);
	}
	return NULL;
}

/* ---- listening ---- */

static int new_socket(struct peers *p, struct sl_err *err)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return sl_err_set_errno(err, errno, "socket for %s", p->dir);
	if (p->sock >= 0)
		(void)close(p->sock);
	p->sock = fd;
	return 0;
}

/* 1: taken for dead by a peer before it had its name; make another. */
static int bind_once(struct peers *p, struct sl_err *err)
{
	char name[NAME_BYTES];
	struct sockaddr_un at;
	uint64_t random;
	int rc = p->env.rand->fill(&random, sizeof(random), p->env.rand_ctx);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "random name for a socket");
	(void)snprintf(name, sizeof(name), ".%d-%016" PRIx64, (int)p->fanout.pid, random);
	rc = new_socket(p, err);
	if (rc != 0)
		return rc;
	socklen_t len = address(p, name, &at);
	if (len == 0 || bind(p->sock, (const struct sockaddr *)&at, len) != 0)
		return sl_err_set_errno(err, len == 0 ? ENAMETOOLONG : errno, "bind a socket in %s", p->dir);
	if (renameat(p->dir_fd, name, p->dir_fd, name + 1) == 0) {
		(void)snprintf(p->name, sizeof(p->name), "%s", name + 1);
		return 0;
	}
	int why = errno;
	(void)unlinkat(p->dir_fd, name, 0);
	return why == ENOENT ? 1 : sl_err_set_errno(err, why, "name a socket in %s", p->dir);
}

/* ---- the slots ---- */

static int peers_publish(void *notify, const struct sl_note *notes, size_t n, struct sl_err *err)
{
	static const char format = FORMAT;
	struct peers *p = notify;
	struct sl__buf b;
	struct sending sending = {p, &b};
	int rc = sl__fanout_publish(&p->fanout, notes, n, err);
	if (rc != 0)
		return rc;
	sl__buf_init(&b, &p->env);
	sl__lock(&p->mu); /* the socket and its name change when the first subscriber comes */
	for (size_t i = 0; i < n; i++) {
		const struct sl_note *note = &notes[i];
		size_t type_len = note->type != NULL ? strlen(note->type) : 0;
		if (type_len >= SL__FANOUT_TYPE_BYTES)
			type_len = 0;
		char head[NOTE_HEAD] = {(char)note->kind, (char)note->reason, (char)type_len};
		sl__put64(head + 3, note->id);
		if (b.len == 0)
			(void)sl__buf_append(&b, &format, 1);
		(void)sl__buf_append(&b, head, sizeof(head));
		(void)sl__buf_append(&b, note->type, type_len);
		/* Room for another of any size? */
		if (i + 1 == n || b.len + NOTE_HEAD + SL__FANOUT_TYPE_BYTES > DATAGRAM_MAX) {
			if (b.failed == 0)
				(void)sl__io_real.list(p->dir, send_to_peer, &sending, NULL);
			sl__buf_clear(&b);
		}
	}
	sl__unlock(&p->mu);
	sl__buf_fini(&b);
	return 0;
}

/* Bind a socket and start the thread, unless that was done. */
static int start_listening(struct peers *p, struct sl_err *err) SL_REQUIRES(p->mu)
{
	if (p->listening)
		return 0;
	int rc = 1;
	for (int i = 0; rc == 1 && i < BIND_TRIES; i++)
		rc = bind_once(p, err);
	if (rc == 1)
		return sl_err_set(err, SL_EAGAIN, "sockets in %s are removed while they are created", p->dir);
	if (rc != 0)
		return rc;
	rc = sl__thread_start(&p->thread, "sl-notify", sq_listen_main, p);
	if (rc != 0) {
		(void)unlinkat(p->dir_fd, p->name, 0);
		p->name[0] = '\0';
		return sl__thread_error(err, rc, "notifier", p->dir);
	}
	p->listening = true;
	return 0;
}

static int peers_subscribe(void *notify, sl_note_fn *fn, void *ctx, struct sl_err *err)
{
	struct peers *p = notify;
	int rc = sl__fanout_check_fork(&p->fanout, err);
	if (rc != 0)
		return rc;
	sl__lock(&p->mu);
	rc = start_listening(p, err);
	sl__unlock(&p->mu);
	if (rc != 0)
		return rc;
	return sl__fanout_subscribe(&p->fanout, fn, ctx, err);
}

static void peers_free(struct peers *p)
{
	sl__fanout_fini(&p->fanout);
	sl__mutex_fini(&p->mu);
	if (p->sock >= 0)
		(void)close(p->sock);
	if (p->wake_fd >= 0)
		(void)close(p->wake_fd);
	if (p->dir_fd >= 0)
		(void)sl__io_real.close(p->dir_fd, NULL);
	sl__free(&p->env, p->dir);
	struct sl_env env = p->env;
	sl__free(&env, p);
}

static void peers_close(void *notify)
{
	struct peers *p = notify;
	if (sl__fanout_check_fork(&p->fanout, NULL) != 0)
		return;
	if (p->listening) {
		__atomic_store_n(&p->stopping, true, __ATOMIC_RELEASE);
		wake_receiver(p);
		(void)pthread_join(p->thread, NULL);
		(void)unlinkat(p->dir_fd, p->name, 0);
	}
	peers_free(p);
}

static const struct sl_notify_ops ops = {
	.version = SL_NOTIFY_VERSION,
	.name = "sqlite",
	.close = peers_close,
	.publish = peers_publish,
	.subscribe = peers_subscribe,
	.unsubscribe = sl__fanout_unsubscribe,
	.healthy = sl__fanout_healthy,
};

/* Make and open the folder of sockets beside the database, unless others could write to it. */
static int open_socket_folder(struct peers *p, const char *path, struct sl_err *err)
{
	char real[4096];
	struct stat folder, database;
	int rc = sl__sqlite_locate(&p->env, path, true, real, err);
	if (rc != 0)
		return rc;
	p->dir = sl__asprintf(&p->env, "%s-notify", real);
	if (p->dir == NULL)
		return sl_err_set(err, SL_ENOMEM, "%s: out of memory", path);
	rc = sl__io_real.mkdir(p->dir, 0700, NULL);
	if (rc != 0 && rc != -EEXIST)
		return sl_err_set_errno(err, -rc, "create %s", p->dir);
	p->dir_fd = sl__io_real.open(p->dir, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0, NULL);
	if (p->dir_fd < 0)
		return sl_err_set_errno(err, -p->dir_fd, "open %s", p->dir);
	if (fstat(p->dir_fd, &folder) != 0)
		return sl_err_set_errno(err, errno, "read folder %s", p->dir);
	p->owner = folder.st_uid;
	bool ours = p->owner == geteuid() || p->owner == 0 ||
		    (lstat(real, &database) == 0 && S_ISREG(database.st_mode) && p->owner == database.st_uid);
	if (!ours)
		return sl_err_set(err, SL_EACCES, "%.150s belongs to another user (%u), and is not used; remove it",
				  p->dir, (unsigned)p->owner);
	if ((folder.st_mode & S_IWOTH) != 0)
		return sl_err_set(err, SL_EACCES, "%.150s is writable by other users; run: chmod go-w %.150s", p->dir,
				  p->dir);
	return 0;
}

/* peers_free undoes it. */
static int open_peers(struct peers *p, const char *path, struct sl_err *err)
{
	int rc = sl__fanout_init(&p->fanout, &p->env, wake_receiver, p, err);
	if (rc != 0)
		return rc;
	rc = open_socket_folder(p, path, err);
	if (rc != 0)
		return rc;
	rc = new_socket(p, err);
	if (rc != 0)
		return rc;
	p->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->wake_fd < 0)
		return sl_err_set_errno(err, errno, "eventfd for %s", p->dir);
	return 0;
}

int sl_notify_sqlite_open(sl_notify *out, const char *path, const struct sl_env *env, struct sl_err *err)
{
	struct sl_env full;
	if (out == NULL || path == NULL || path[0] == '\0')
		return sl_err_set(err, SL_EINVAL, "a SQLite notifier needs the name of the database's file");
	int rc = sl__env_init(&full, env, err);
	if (rc != 0)
		return rc;
	struct peers *p = sl__calloc(&full, 1, sizeof(*p));
	if (p == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for a notifier");
	p->env = full;
	p->sock = p->wake_fd = p->dir_fd = -1;
	sl__mutex_init(&p->mu);
	rc = open_peers(p, path, err);
	if (rc != 0) {
		peers_free(p);
		return rc;
	}
	*out = (sl_notify){.ops = &ops, .ctx = p};
	return 0;
}
