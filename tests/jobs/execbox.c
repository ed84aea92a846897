/* SPDX-License-Identifier: Apache-2.0 */
#include "execbox.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- attempts ---- */

static struct fake *fake_of(const sl_attempt *a)
{
	return (struct fake *)(uintptr_t)a;
}

static const struct sl_job *fake_job(const sl_attempt *a)
{
	return &fake_of(a)->job;
}

static struct sl_claim_id fake_claim(const sl_attempt *a)
{
	return fake_of(a)->claim;
}

static int fake_abort_fd(sl_attempt *a, struct sl_err *err)
{
	(void)err;
	return fake_of(a)->abort_fd;
}

static enum sl_abort_reason fake_aborted(const sl_attempt *a)
{
	return (enum sl_abort_reason)atomic_load(&fake_of(a)->reason);
}

static int fake_progress(sl_attempt *a, const char *json, struct sl_err *err)
{
	struct fake *f = fake_of(a);
	(void)err;
	(void)snprintf(f->progress, sizeof(f->progress), "%s", json);
	return 0;
}

static int64_t fake_delay(const sl_attempt *a)
{
	return fake_of(a)->retry_delay_ms;
}

static int fake_complete(sl_attempt *a, const char *output, struct sl_err *err)
{
	struct fake *f = fake_of(a);
	(void)err;
	(void)snprintf(f->text, sizeof(f->text), "complete %.400s", output != NULL ? output : "nothing");
	return 0;
}

static int fake_continue(sl_attempt *a, const struct sl_new_job *next, struct sl_err *err)
{
	struct fake *f = fake_of(a);
	(void)err;
	int n = snprintf(f->text, sizeof(f->text), "continue %s %s p%d d%lld a%lld", next->type,
			 next->input != NULL ? next->input : "nothing", (int)next->priority, (long long)next->delay_ms,
			 (long long)next->at_ms);
	for (size_t i = 0; i < next->n_blockers; i++)
		n += snprintf(f->text + n, sizeof(f->text) - (size_t)n, " b%llu",
			      (unsigned long long)next->blockers[i]);
	return 0;
}

static int fake_fail(sl_attempt *a, const char *reason, struct sl_err *err)
{
	struct fake *f = fake_of(a);
	(void)err;
	(void)snprintf(f->text, sizeof(f->text), "fail %s", reason);
	return 0;
}

static int fake_reschedule(sl_attempt *a, int64_t delay_ms, struct sl_err *err)
{
	struct fake *f = fake_of(a);
	(void)err;
	(void)snprintf(f->text, sizeof(f->text), "reschedule %lld", (long long)delay_ms);
	return 0;
}

const struct sl__exec_ops fake_ops = {.job = fake_job,
				      .claim = fake_claim,
				      .abort_fd = fake_abort_fd,
				      .aborted = fake_aborted,
				      .progress = fake_progress,
				      .retry_delay_ms = fake_delay,
				      .complete = fake_complete,
				      .continue_with = fake_continue,
				      .fail = fake_fail,
				      .reschedule_in = fake_reschedule};

void fake_init(struct fake *f, uint64_t id, const char *input)
{
	*f = (struct fake){.job = {.id = id, .chain_id = id + 1000, .type = "test.type", .attempt = 2, .input = input},
			   .abort_fd = eventfd(0, EFD_CLOEXEC),
			   .retry_delay_ms = 10000};
	assert_true(f->abort_fd >= 0);
	sl__put64(f->claim.bytes, id * 77);
	f->claim.bytes[15] = 0xC1;
}

void fake_fini(struct fake *f)
{
	(void)close(f->abort_fd);
	f->abort_fd = -1;
}

void fake_abort(struct fake *f, enum sl_abort_reason reason)
{
	atomic_store(&f->reason, (int)reason);
	assert_int_equal(eventfd_write(f->abort_fd, 1), 0);
}

/* ---- the folder ---- */

void execbox_open_log(struct execbox *b)
{
	struct sl_wal_opts opts = {SL_WAL_OPTS_INIT, .wal_dir = b->dir, .archive_dir = b->dir,
				   .archive_on_complete = SL_OFF, .key_file = b->key_file};
	int rc = sl_wal_open(&b->log, "w", &opts, &b->err);
	if (rc != 0)
		fail_msg("%s", b->err.msg);
}

void execbox_close_log(struct execbox *b)
{
	assert_int_equal(sl_wal_close(b->log, &b->err), 0);
	b->log = NULL;
}

void execbox_init(struct execbox *b)
{
	const char *tmp = getenv("TMPDIR");
	*b = (struct execbox){.next_id = 1};
	(void)snprintf(b->dir, sizeof(b->dir), "%.40s/sluice-exec-XXXXXX", tmp != NULL ? tmp : "/tmp");
	assert_non_null(mkdtemp(b->dir));
	(void)snprintf(b->spool, sizeof(b->spool), "%s/w.spool", b->dir);
	execbox_open_log(b);
}

static void remove_tree(const char *path)
{
	DIR *d = opendir(path);
	for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
		char child[512];
		struct stat st;
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		(void)snprintf(child, sizeof(child), "%.200s/%.255s", path, e->d_name);
		if (lstat(child, &st) == 0 && S_ISDIR(st.st_mode))
			remove_tree(child);
		else
			(void)unlink(child);
	}
	if (d != NULL)
		(void)closedir(d);
	(void)rmdir(path);
}

void execbox_fini(struct execbox *b)
{
	sl_exec_free(b->exec);
	b->exec = NULL;
	if (b->log != NULL)
		execbox_close_log(b);
	remove_tree(b->dir);
}

void execbox_exec(struct execbox *b, const char *const *argv)
{
	sl_exec_free(b->exec);
	b->exec = NULL;
	b->opts.struct_size = sizeof(b->opts);
	b->opts.argv = argv;
	b->opts.events = b->log;
	b->opts.spool_dir = b->spool;
	int rc = sl_exec_new(&b->exec, &b->opts, &b->err);
	if (rc != 0)
		fail_msg("%s", b->err.msg);
}

void execbox_sh(struct execbox *b, const char *script)
{
	execbox_exec(b, (const char *const[]){"/bin/sh", "-c", script, NULL});
}

int execbox_run(struct execbox *b, struct fake *f, const char *input)
{
	fake_init(f, b->next_id++, input);
	b->err = (struct sl_err)SL_ERR_INIT;
	int rc = sl__exec_process(b->exec, &fake_ops, fake_attempt(f), &b->err);
	fake_fini(f);
	return rc;
}

/* ---- looking ---- */

struct listing {
	uint64_t job_id;
	char *text;
	size_t len, cap;
};

static void put(struct listing *l, const char *data, size_t n)
{
	if (l->len + n + 1 > l->cap) {
		l->cap = (l->len + n + 1) * 2;
		l->text = realloc(l->text, l->cap);
		assert_non_null(l->text);
	}
	memcpy(l->text + l->len, data, n);
	l->len += n;
	l->text[l->len] = '\0';
}

static void put_escaped(struct listing *l, const char *data, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char hex[8];
		if (data[i] >= ' ' && data[i] < 0x7F)
			put(l, data + i, 1);
		else
			put(l, hex, (size_t)snprintf(hex, sizeof(hex), "\\x%02X", (unsigned char)data[i]));
	}
}

static int on_record(const struct sl_wal_record *record, void *ctx)
{
	struct listing *l = ctx;
	struct sl_event e;
	char head[64];
	static const char *const names[] = {"?", "started", "out", "err", "progress", "exited", "error", "log"};
	assert_int_equal(sl_event_decode(record->payload, record->payload_len, &e, NULL), 0);
	if (l->job_id != 0 && e.job_id != l->job_id)
		return 0;
	assert_int_equal(e.attempt, 2);
	assert_int_equal(e.claim.bytes[15], 0xC1);
	assert_int_equal(sl__get64(e.claim.bytes), e.job_id * 77);
	assert_true(e.ts_ms > 1600000000000);
	if (l->job_id == 0)
		put(l, head, (size_t)snprintf(head, sizeof(head), "%llu ", (unsigned long long)e.job_id));
	put(l, names[e.type], strlen(names[e.type]));
	if (e.type != SL_EVENT_STARTED && e.type != SL_EVENT_EXITED)
		put(l, head,
		    (size_t)snprintf(head, sizeof(head), " %llu%s", (unsigned long long)e.position,
				     e.partial ? "+" : ""));
	if (e.type != SL_EVENT_STARTED) {
		put(l, " ", 1);
		put_escaped(l, e.data, e.len);
	}
	put(l, "\n", 1);
	return 0;
}

const char *execbox_events(struct execbox *b, uint64_t job_id)
{
	static struct listing last;
	free(last.text);
	last = (struct listing){.job_id = job_id};
	put(&last, "", 0);
	assert_int_equal(sl_wal_iterate(b->log, 0, on_record, &last, &b->err), 0);
	return last.text;
}

size_t execbox_spools(struct execbox *b)
{
	size_t n = 0;
	DIR *d = opendir(b->spool);
	for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
		n += e->d_name[0] != '.';
	if (d != NULL)
		(void)closedir(d);
	return n;
}

size_t execbox_children(void)
{
	char path[64];
	size_t n = 0;
	(void)snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	FILE *f = fopen(path, "r");
	for (int pid; f != NULL && fscanf(f, "%d", &pid) == 1;)
		n++;
	if (f != NULL)
		(void)fclose(f);
	return n;
}
