/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The notifiers inside a process and between processes that share a SQLite file. Another process is this program again:
 * it subscribes and writes each note as a line to stdout.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "jobs/notify/ops.h"
#include "jobs/sqlite_place.h"

static struct sl_err err;

/* ---- an ear: counts what it hears, and can be held ---- */

struct ear {
	pthread_mutex_t mu;
	pthread_cond_t changed;
	char text[8192]; /* a line per note: "kind type id reason" */
	size_t n, heard;
	bool hold; /* the next call stays inside until this is false */
	bool inside;
};

static void ear_init(struct ear *e)
{
	memset(e, 0, sizeof(*e));
	pthread_mutex_init(&e->mu, NULL);
	pthread_cond_init(&e->changed, NULL);
}

static int line_of(const struct sl_note *note, char *out, size_t size)
{
	return snprintf(out, size, "%d %s %" PRIu64 " %d\n", (int)note->kind, note->type != NULL ? note->type : "-",
			note->id, (int)note->reason);
}

static void hear(const struct sl_note *note, void *ctx)
{
	struct ear *e = ctx;
	pthread_mutex_lock(&e->mu);
	e->inside = true;
	pthread_cond_broadcast(&e->changed);
	while (e->hold)
		pthread_cond_wait(&e->changed, &e->mu);
	e->n += (size_t)line_of(note, e->text + e->n, sizeof(e->text) - e->n);
	e->heard++;
	e->inside = false;
	pthread_cond_broadcast(&e->changed);
	pthread_mutex_unlock(&e->mu);
}

static void ear_hold(struct ear *e, bool hold)
{
	pthread_mutex_lock(&e->mu);
	e->hold = hold;
	pthread_cond_broadcast(&e->changed);
	pthread_mutex_unlock(&e->mu);
}

static void await_inside(struct ear *e)
{
	pthread_mutex_lock(&e->mu);
	while (!e->inside)
		pthread_cond_wait(&e->changed, &e->mu);
	pthread_mutex_unlock(&e->mu);
}

static void await_heard(struct ear *e, size_t n)
{
	pthread_mutex_lock(&e->mu);
	while (e->heard < n)
		pthread_cond_wait(&e->changed, &e->mu);
	pthread_mutex_unlock(&e->mu);
}

static void publish(const sl_notify *n, enum sl_note_kind kind, const char *type, uint64_t id)
{
	struct sl_note note = {.kind = kind, .type = type, .id = id};
	assert_int_equal(n->ops->publish(n->ctx, &note, 1, &err), 0);
}

/* ---- both notifiers ---- */

struct world {
	struct sqlite_place place;
	char folder[128];
	sl_notify n;
};

static int set_up_place(void **state)
{
	static struct world w;
	memset(&w, 0, sizeof(w));
	*state = &w;
	if (sqlite_place_init(&w.place) != 0)
		return -1;
	(void)snprintf(w.folder, sizeof(w.folder), "%s-notify", w.place.path);
	return 0;
}

static int set_up_local(void **state)
{
	return set_up_place(state) != 0 ? -1 : sl_notify_local_open(&((struct world *)*state)->n, NULL, &err);
}

static int set_up_sqlite(void **state)
{
	if (set_up_place(state) != 0)
		return -1;
	struct world *w = *state;
	return sl_notify_sqlite_open(&w->n, w->place.path, NULL, &err);
}

static int tear_down(void **state)
{
	struct world *w = *state;
	sl_notify_close(&w->n);
	sqlite_place_fini(&w->place);
	return 0;
}

static void every_subscriber_hears_every_note(void **state)
{
	struct world *w = *state;
	struct ear a, b;
	ear_init(&a);
	ear_init(&b);
	assert_int_equal(w->n.ops->subscribe(w->n.ctx, hear, &a, &err), 0);
	assert_int_equal(w->n.ops->subscribe(w->n.ctx, hear, &b, &err), 0);
	assert_int_equal(w->n.ops->healthy(w->n.ctx), 1);
	publish(&w->n, SL_NOTE_JOB_SCHEDULED, "mail", 7);
	await_heard(&a, 1);
	struct sl_note lost = {.kind = SL_NOTE_OWNERSHIP_LOST, .id = 9, .reason = SL_LOST_CANCELLED};
	assert_int_equal(w->n.ops->publish(w->n.ctx, &lost, 1, &err), 0);
	await_heard(&a, 2);
	await_heard(&b, 2);
	assert_string_equal(a.text, "1 mail 7 0\n2 - 9 4\n");
	assert_string_equal(b.text, a.text);
	w->n.ops->unsubscribe(w->n.ctx, hear, &a);
	publish(&w->n, SL_NOTE_CHAIN_ENDED, "mail", 8);
	await_heard(&b, 3);
	w->n.ops->unsubscribe(w->n.ctx, hear, &b);
	assert_int_equal(a.heard, 2);
}

static void what_says_the_same_is_merged_while_it_waits(void **state)
{
	struct world *w = *state;
	struct ear e;
	ear_init(&e);
	assert_int_equal(w->n.ops->subscribe(w->n.ctx, hear, &e, &err), 0);
	ear_hold(&e, true);
	publish(&w->n, SL_NOTE_JOB_SCHEDULED, "first", 1);
	await_inside(&e);
	for (uint64_t i = 0; i < 1000; i++)
		publish(&w->n, SL_NOTE_JOB_SCHEDULED, "many", i + 1);
	publish(&w->n, SL_NOTE_JOB_SCHEDULED, "one", 5);
	publish(&w->n, SL_NOTE_JOB_SCHEDULED, "one", 5);
	ear_hold(&e, false);
	await_heard(&e, 3);
	w->n.ops->unsubscribe(w->n.ctx, hear, &e);
	assert_string_equal(e.text, "1 first 1 0\n1 many 0 0\n1 one 5 0\n");
}

static void too_many_notes_become_check_everything(void **state)
{
	struct world *w = *state;
	struct ear e;
	ear_init(&e);
	assert_int_equal(w->n.ops->subscribe(w->n.ctx, hear, &e, &err), 0);
	ear_hold(&e, true);
	publish(&w->n, SL_NOTE_JOB_SCHEDULED, "first", 1);
	await_inside(&e);
	for (uint64_t i = 1; i <= 300; i++)
		publish(&w->n, SL_NOTE_OWNERSHIP_LOST, NULL, i);
	ear_hold(&e, false);
	await_heard(&e, 1 + 256 + 1);
	w->n.ops->unsubscribe(w->n.ctx, hear, &e);
	assert_int_equal(e.heard, 1 + 256 + 1);
	assert_string_equal(e.text + e.n - strlen("0 - 0 0\n"), "0 - 0 0\n");
}

struct leaver {
	struct world *w;
	struct ear *e;
	bool leaving, left; /* atomic */
};

static void *leave(void *arg)
{
	struct leaver *l = arg;
	__atomic_store_n(&l->leaving, true, __ATOMIC_SEQ_CST);
	l->w->n.ops->unsubscribe(l->w->n.ctx, hear, l->e);
	__atomic_store_n(&l->left, true, __ATOMIC_SEQ_CST);
	return NULL;
}

static void unsubscribing_waits_for_the_call_that_runs(void **state)
{
	struct world *w = *state;
	struct ear e;
	struct leaver l = {.w = w, .e = &e};
	pthread_t thread;
	ear_init(&e);
	assert_int_equal(w->n.ops->subscribe(w->n.ctx, hear, &e, &err), 0);
	ear_hold(&e, true);
	publish(&w->n, SL_NOTE_JOB_SCHEDULED, "t", 1);
	await_inside(&e);
	publish(&w->n, SL_NOTE_JOB_SCHEDULED, "later", 2);
	assert_int_equal(pthread_create(&thread, NULL, leave, &l), 0);
	while (!__atomic_load_n(&l.leaving, __ATOMIC_SEQ_CST))
		sched_yield();
	/* Every chance to leave too early. */
	for (int i = 0; i < 2000; i++)
		sched_yield();
	assert_false(__atomic_load_n(&l.left, __ATOMIC_SEQ_CST));
	ear_hold(&e, false);
	pthread_join(thread, NULL);
	/* It never hears again: neither what waited nor what comes. */
	assert_true(e.heard <= 2);
	size_t heard = e.heard;
	memset(&e, 0x5a, sizeof(e));
	struct ear other;
	ear_init(&other);
	assert_int_equal(w->n.ops->subscribe(w->n.ctx, hear, &other, &err), 0);
	publish(&w->n, SL_NOTE_JOB_SCHEDULED, "t", 3);
	await_heard(&other, 1);
	w->n.ops->unsubscribe(w->n.ctx, hear, &other);
	assert_true(heard >= 1);
}

static void a_notifier_does_not_work_in_a_forked_child(void **state)
{
	struct world *w = *state;
	int status = -1;
	pid_t pid = fork();
	if (pid == 0) {
		struct sl_note note = {.kind = SL_NOTE_JOB_SCHEDULED, .type = "t"};
		bool good = w->n.ops->publish(w->n.ctx, &note, 1, NULL) == SL_EFORKED;
		sl_notify_close(&w->n);
		_exit(good ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* ---- between processes ---- */

struct other {
	pid_t pid;
	FILE *from;
	int to;
};

static void write_line(const struct sl_note *note, void *ctx)
{
	char line[256];
	(void)ctx;
	int n = line_of(note, line, sizeof(line));
	if (write(1, line, (size_t)n) != n)
		_exit(2);
}

static int listen_main(const char *path)
{
	sl_notify n;
	char c;
	if (sl_notify_sqlite_open(&n, path, NULL, &err) != 0 || n.ops->subscribe(n.ctx, write_line, NULL, &err) != 0) {
		fprintf(stderr, "# %s\n", err.msg);
		return 1;
	}
	if (write(1, "ready\n", 6) != 6 || read(0, &c, 1) < 0)
		return 1;
	sl_notify_close(&n);
	return 0;
}

static struct other spawn(const char *path)
{
	int in[2], out[2];
	char line[64] = "";
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		if (dup2(in[0], 0) == 0 && dup2(out[1], 1) == 1)
			(void)execl("/proc/self/exe", "test_notify", "listen", path, (char *)NULL);
		_exit(126);
	}
	close(in[0]);
	close(out[1]);
	struct other o = {.pid = pid, .from = fdopen(out[0], "r"), .to = in[1]};
	assert_non_null(fgets(line, sizeof(line), o.from));
	assert_string_equal(line, "ready\n");
	return o;
}

static void end(struct other *o, int signal)
{
	int status;
	if (signal != 0)
		(void)kill(o->pid, signal);
	close(o->to);
	assert_int_equal(waitpid(o->pid, &status, 0), o->pid);
	if (signal == 0)
		assert_int_equal(status, 0);
	fclose(o->from);
}

static void expect_line(struct other *o, const char *expected)
{
	char line[256] = "";
	assert_non_null(fgets(line, sizeof(line), o->from));
	assert_string_equal(line, expected);
}

/* How many names there are in the folder; *first: one of them. */
static int names_in(const char *folder, char first[64])
{
	int n = 0;
	DIR *dir = opendir(folder);
	assert_non_null(dir);
	for (const struct dirent *e; (e = readdir(dir)) != NULL;)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
			if (first != NULL)
				(void)snprintf(first, 64, "%.63s", e->d_name);
			n++;
		}
	closedir(dir);
	return n;
}

static void a_note_reaches_other_processes(void **state)
{
	struct world *w = *state;
	struct other a = spawn(w->place.path), b = spawn(w->place.path);
	struct stat st;
	assert_int_equal(stat(w->folder, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	const struct sl_note notes[] = {{.kind = SL_NOTE_JOB_SCHEDULED, .type = "mail", .id = UINT64_MAX},
					{.kind = SL_NOTE_OWNERSHIP_LOST, .type = "x", .id = 3, .reason = SL_LOST_TAKEN},
					{.kind = SL_NOTE_CHAIN_ENDED, .id = 4}};
	assert_int_equal(w->n.ops->publish(w->n.ctx, notes, 3, &err), 0);
	struct other *both[] = {&a, &b};
	for (int i = 0; i < 2; i++) {
		expect_line(both[i], "1 mail 18446744073709551615 0\n");
		expect_line(both[i], "2 x 3 1\n");
		expect_line(both[i], "3 - 4 0\n");
	}
	end(&a, 0);
	end(&b, 0);
	/* Who left in order took its name along; who only publishes never had one. */
	assert_int_equal(names_in(w->folder, NULL), 0);
}

static void many_notes_take_several_datagrams(void **state)
{
	struct world *w = *state;
	struct other o = spawn(w->place.path);
	static char names[150][120];
	static struct sl_note notes[150];
	char line[256];
	for (int i = 0; i < 150; i++) {
		(void)snprintf(names[i], sizeof(names[i]), "%0100d", i);
		notes[i] = (struct sl_note){.kind = SL_NOTE_JOB_SCHEDULED, .type = names[i], .id = (uint64_t)i};
	}
	assert_int_equal(w->n.ops->publish(w->n.ctx, notes, 150, &err), 0);
	for (int i = 0; i < 150; i++) {
		(void)line_of(&notes[i], line, sizeof(line));
		expect_line(&o, line);
	}
	end(&o, 0);
}

static void the_socket_of_a_dead_process_is_cleaned_up(void **state)
{
	struct world *w = *state;
	struct other dead = spawn(w->place.path), alive = spawn(w->place.path);
	end(&dead, SIGKILL);
	assert_int_equal(names_in(w->folder, NULL), 2);
	publish(&w->n, SL_NOTE_JOB_SCHEDULED, "t", 1);
	expect_line(&alive, "1 t 1 0\n");
	assert_int_equal(names_in(w->folder, NULL), 1);
	end(&alive, 0);
}

static void a_name_that_was_never_finished_is_cleaned_up(void **state)
{
	struct world *w = *state;
	char path[256];
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	(void)snprintf(path, sizeof(path), "%s/.999-0", w->folder);
	assert_true(strlen(path) < sizeof(at.sun_path));
	memcpy(at.sun_path, path, strlen(path) + 1);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	publish(&w->n, SL_NOTE_JOB_SCHEDULED, "t", 1);
	assert_int_equal(names_in(w->folder, NULL), 1); /* still being made */
	close(fd);
	publish(&w->n, SL_NOTE_JOB_SCHEDULED, "t", 1);
	assert_int_equal(names_in(w->folder, NULL), 0);
}

static void a_stopped_peer_does_not_hold_a_publisher_up(void **state)
{
	struct world *w = *state;
	struct other o = spawn(w->place.path);
	assert_int_equal(kill(o.pid, SIGSTOP), 0);
	for (uint64_t i = 1; i <= 5000; i++)
		publish(&w->n, SL_NOTE_CHAIN_ENDED, "t", i);
	assert_int_equal(kill(o.pid, SIGCONT), 0);
	expect_line(&o, "3 t 1 0\n");
	end(&o, 0);
}

static void a_path_may_be_longer_than_a_sockets_address(void **state)
{
	struct world *w = *state;
	char path[1024];
	sl_notify n;
	size_t len = (size_t)snprintf(path, sizeof(path), "%s", w->place.dir);
	for (int i = 0; i < 4; i++)
		len += (size_t)snprintf(path + len, sizeof(path) - len, "/%0100d", i);
	(void)snprintf(path + len, sizeof(path) - len, "/jobs.db");
	struct other o = spawn(path);
	assert_int_equal(sl_notify_sqlite_open(&n, path, NULL, &err), 0);
	publish(&n, SL_NOTE_JOB_SCHEDULED, "far", 1);
	expect_line(&o, "1 far 1 0\n");
	sl_notify_close(&n);
	end(&o, 0);
}

#define STRANGER 54321 /* no user of any machine */

static void a_folder_of_another_user_is_refused(void **state)
{
	struct world *w = *state;
	sl_notify n;
	sl_notify_close(&w->n);
	assert_int_equal(chmod(w->folder, 0777), 0);
	assert_int_equal(sl_notify_sqlite_open(&n, w->place.path, NULL, &err), SL_EACCES);
	assert_non_null(strstr(err.msg, "is writable by other users"));
	assert_int_equal(chmod(w->folder, 0700), 0);
	if (geteuid() != 0)
		return; /* only root can give a folder to another user */
	assert_int_equal(chown(w->folder, STRANGER, (gid_t)-1), 0);
	assert_int_equal(sl_notify_sqlite_open(&n, w->place.path, NULL, &err), SL_EACCES);
	assert_non_null(strstr(err.msg, "belongs to another user (54321)"));
	/* The owner of the database may have made it: who uses that trusts him. */
	FILE *f = fopen(w->place.path, "a");
	assert_non_null(f);
	(void)fclose(f);
	assert_int_equal(chown(w->place.path, STRANGER, (gid_t)-1), 0);
	assert_int_equal(sl_notify_sqlite_open(&n, w->place.path, NULL, &err), 0);
	sl_notify_close(&n);
}

static int bind_at(const char *path)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_true(strlen(path) < sizeof(at.sun_path));
	memcpy(at.sun_path, path, strlen(path) + 1);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	return fd;
}

static void only_sockets_of_this_user_or_the_owner_are_sent_to(void **state)
{
	struct world *w = *state;
	char own[256], theirs[256], elsewhere[256], link[256], data[64];
	(void)snprintf(own, sizeof(own), "%s/own", w->folder);
	(void)snprintf(theirs, sizeof(theirs), "%s/theirs", w->folder);
	(void)snprintf(link, sizeof(link), "%s/link", w->folder);
	(void)snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", w->place.dir);
	int a = bind_at(own), b = bind_at(theirs), c = bind_at(elsewhere);
	assert_int_equal(symlink(elsewhere, link), 0);
	bool given = geteuid() == 0;
	assert_true(!given || chown(theirs, STRANGER, (gid_t)-1) == 0);
	publish(&w->n, SL_NOTE_JOB_SCHEDULED, "t", 1);
	assert_true(recv(a, data, sizeof(data), 0) > 0);
	assert_int_equal(recv(b, data, sizeof(data), 0) > 0, !given);
	assert_int_equal(recv(c, data, sizeof(data), 0), -1);
	(void)close(a), (void)close(b), (void)close(c);
	assert_int_equal(unlink(link) + unlink(elsewhere) + unlink(own) + unlink(theirs), 0);
}

static void invalid_datagrams_are_ignored(void **state)
{
	static const char *const rubbish[] = {"", "\1", "\1\1\1\377xxxxxxxx", "\2\1\1\0012345678x",
					      "\1\177\1\1\0\0\0\0\0\0\0\0x"};
	static const size_t sizes[] = {0, 1, 12, 13, 13};
	struct world *w = *state;
	struct other o = spawn(w->place.path);
	char name[64], path[256];
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	assert_int_equal(names_in(w->folder, name), 1);
	(void)snprintf(path, sizeof(path), "%s/%s", w->folder, name);
	assert_true(strlen(path) < sizeof(at.sun_path));
	memcpy(at.sun_path, path, strlen(path) + 1);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	for (size_t i = 0; i < 5; i++)
		assert_int_equal(sendto(fd, rubbish[i], sizes[i], 0, (struct sockaddr *)&at, sizeof(at)), sizes[i]);
	close(fd);
	publish(&w->n, SL_NOTE_JOB_SCHEDULED, "good", 1);
	expect_line(&o, "1 good 1 0\n");
	end(&o, 0);
}

/* The system call that the thread with this name sleeps in; false: not asleep in one, or not shown by the kernel. */
static bool sleeping_call(const char *name, long *number, uint64_t args[3])
{
	DIR *tasks = opendir("/proc/self/task");
	bool found = false;
	for (const struct dirent *e; tasks != NULL && !found && (e = readdir(tasks)) != NULL;) {
		char path[320], comm[32] = "";
		(void)snprintf(path, sizeof(path), "/proc/self/task/%.200s/comm", e->d_name);
		FILE *f = fopen(path, "r");
		if (f == NULL || fgets(comm, sizeof(comm), f) == NULL)
			comm[0] = '\0';
		if (f != NULL)
			fclose(f);
		comm[strcspn(comm, "\n")] = '\0';
		if (strcmp(comm, name) != 0)
			continue;
		(void)snprintf(path, sizeof(path), "/proc/self/task/%.200s/syscall", e->d_name);
		f = fopen(path, "r");
		if (f == NULL)
			continue;
		found = fscanf(f, "%ld %" SCNx64 " %" SCNx64 " %" SCNx64, number, &args[0], &args[1], &args[2]) == 4;
		fclose(f);
	}
	if (tasks != NULL)
		closedir(tasks);
	return found;
}

static void an_idle_listener_sleeps_in_the_kernel_without_a_time_limit(void **state)
{
	struct world *w = *state;
	struct ear e;
	long number = -1;
	uint64_t args[3] = {0, 0, 0};
	ear_init(&e);
	if (access("/proc/self/syscall", R_OK) != 0) {
		printf("# not tried: this kernel does not report what a thread sleeps in\n");
		return;
	}
	assert_int_equal(w->n.ops->subscribe(w->n.ctx, hear, &e, &err), 0);
	publish(&w->n, SL_NOTE_JOB_SCHEDULED, "t", 1);
	await_heard(&e, 1);
	/* On its way there it may sleep elsewhere: for a lock, say. */
#ifdef SYS_poll
	while (!sleeping_call("sl-notify", &number, args) || (number != SYS_poll && number != SYS_ppoll))
#else
	while (!sleeping_call("sl-notify", &number, args) || number != SYS_ppoll)
#endif
		sched_yield();
#ifdef SYS_poll
	if (number == SYS_poll)
		assert_int_equal((int32_t)args[2], -1);
	else
#endif
	{
		assert_int_equal(number, SYS_ppoll);
		assert_int_equal(args[2], 0);
	}
	w->n.ops->unsubscribe(w->n.ctx, hear, &e);
}

static void a_notifier_is_opened_by_its_url(void **state)
{
	struct world *w = *state;
	char url[256];
	sl_notify n;
	(void)snprintf(url, sizeof(url), "sqlite:%s", w->place.path);
	assert_int_equal(sl_notify_open(&n, url, NULL, &err), 0);
	assert_string_equal(n.ops->name, "sqlite");
	sl_notify_close(&n);
	sl_notify_close(&n);
	assert_int_equal(sl_notify_open(&n, "carrier-pigeon:here", NULL, &err), SL_EINVAL);
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "listen") == 0)
		return listen_main(argv[2]);
#define LOCAL(f)                                                                                                       \
	{                                                                                                              \
		"local: " #f, f, set_up_local, tear_down, NULL                                                         \
	}
#define SQLITE(f)                                                                                                      \
	{                                                                                                              \
		"sqlite: " #f, f, set_up_sqlite, tear_down, NULL                                                       \
	}
	const struct CMUnitTest tests[] = {
		LOCAL(every_subscriber_hears_every_note),
		LOCAL(what_says_the_same_is_merged_while_it_waits),
		LOCAL(too_many_notes_become_check_everything),
		LOCAL(unsubscribing_waits_for_the_call_that_runs),
		LOCAL(a_notifier_does_not_work_in_a_forked_child),
		SQLITE(every_subscriber_hears_every_note),
		SQLITE(what_says_the_same_is_merged_while_it_waits),
		SQLITE(too_many_notes_become_check_everything),
		SQLITE(unsubscribing_waits_for_the_call_that_runs),
		SQLITE(a_notifier_does_not_work_in_a_forked_child),
		SQLITE(a_note_reaches_other_processes),
		SQLITE(many_notes_take_several_datagrams),
		SQLITE(the_socket_of_a_dead_process_is_cleaned_up),
		SQLITE(a_name_that_was_never_finished_is_cleaned_up),
		SQLITE(a_stopped_peer_does_not_hold_a_publisher_up),
		SQLITE(a_path_may_be_longer_than_a_sockets_address),
		SQLITE(a_folder_of_another_user_is_refused),
		SQLITE(only_sockets_of_this_user_or_the_owner_are_sent_to),
		SQLITE(invalid_datagrams_are_ignored),
		SQLITE(an_idle_listener_sleeps_in_the_kernel_without_a_time_limit),
		SQLITE(a_notifier_is_opened_by_its_url),
	};
	return cmocka_run_group_tests_name("notify", tests, NULL, NULL);
}
