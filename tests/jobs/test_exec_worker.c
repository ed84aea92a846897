/* SPDX-License-Identifier: Apache-2.0 */
/* Commands in a real worker on SQLite, their events sent into job_events by a real log: all parts together. */
#include "execbox.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sluice/worker.h>

#define DEADLINE_MS 60000

struct plant {
	struct execbox box; /* its folder and log */
	char path[128];
	sl_store store;
	sl_notify notify;
	sl_jobs *client;
	sl_event_sender *sender;
	sl_exec *execs[8];
	struct sl_processor processors[8];
	size_t n;
	sl_worker *worker;
	struct sl_err err;
};

static void must(struct plant *p, int rc)
{
	if (rc != 0)
		fail_msg("%s", p->err.msg);
}

static int plant_open(void **state)
{
	struct plant *p = calloc(1, sizeof(*p));
	execbox_init(&p->box);
	(void)snprintf(p->path, sizeof(p->path), "%s/jobs.db", p->box.dir);
	must(p, sl_store_sqlite_open(&p->store, p->path, NULL, &p->err));
	must(p, sl_notify_local_open(&p->notify, NULL, &p->err));
	struct sl_jobs_opts opts = {SL_JOBS_OPTS_INIT, .store = &p->store, .notify = &p->notify};
	must(p, sl_jobs_open(&p->client, &opts, &p->err));
	must(p, sl_event_sender_new(&p->sender, &p->store, NULL, &p->err));
	must(p, sl_wal_sender_start(p->box.log, sl_event_sender_ops(), p->sender, &p->err));
	*state = p;
	return 0;
}

static int plant_close(void **state)
{
	struct plant *p = *state;
	sl_worker_free(p->worker);
	for (size_t i = 0; i < p->n; i++)
		sl_exec_free(p->execs[i]);
	assert_int_equal(execbox_children(), 0);
	(void)!sl_wal_sender_stop(p->box.log, 0, NULL);
	sl_event_sender_free(p->sender);
	sl_jobs_close(p->client);
	sl_notify_close(&p->notify);
	sl_store_close(&p->store);
	execbox_fini(&p->box);
	free(p);
	return 0;
}

static void add(struct plant *p, const char *type, const char *script)
{
	struct sl_exec_opts opts = {SL_EXEC_OPTS_INIT, .argv = (const char *const[]){"/bin/sh", "-c", script, NULL},
				    .events = p->box.log, .spool_dir = p->box.spool, .kill_grace_ms = DEADLINE_MS};
	must(p, sl_exec_new(&p->execs[p->n], &opts, &p->err));
	p->processors[p->n] = (struct sl_processor){SL_PROCESSOR_INIT, .type = type, .process = sl_exec_process,
						    .ctx = p->execs[p->n],

						    .retry = {.first_ms = 1, .cap_ms = 1, .max_attempts = 3}};
	p->n++;
}

static void start(struct plant *p, int slots)
{
	struct sl_worker_opts opts = {SL_WORKER_OPTS_INIT,         .store = &p->store,   .notify = &p->notify,
				      .processors = p->processors, .n_processors = p->n, .slots = slots,
				      .events = p->box.log};
	must(p, sl_worker_new(&p->worker, &opts, &p->err));
	must(p, sl_worker_start(p->worker, &p->err));
}

static uint64_t enqueue(struct plant *p, const char *type, const char *input)
{
	struct sl_new_chain chain = {.job = {.type = type, .input = input}};
	struct sl_started started;
	must(p, sl_jobs_enqueue(p->client, NULL, &chain, &started, &p->err));
	return started.chain_id;
}

static struct sl_chain *finish(struct plant *p, uint64_t chain, enum sl_job_status status)
{
	struct sl_chain *c = NULL;
	must(p, sl_jobs_wait(p->client, chain, DEADLINE_MS, &c, &p->err));
	assert_int_equal(c->status, status);
	return c;
}

static int on_row(const struct sl_event_row *row, void *ctx)
{
	char *text = ctx, one[512];
	(void)snprintf(one, sizeof(one), "%d %s%s%.*s\n", (int)row->attempt, sl_event_type_name(row->type),
		       row->type == SL_EVENT_STARTED ? "" : " ",
		       row->type == SL_EVENT_STARTED ? 0 : (int)row->payload_len, (const char *)row->payload);
	strcat(text, one);
	return 0;
}

/* What the store has, once everything is sent. */
static const char *rows(struct plant *p, uint64_t job)
{
	static char text[65536];
	text[0] = '\0';
	must(p, sl_wal_sender_stop(p->box.log, DEADLINE_MS, &p->err));
	must(p, sl_wal_sender_start(p->box.log, sl_event_sender_ops(), p->sender, &p->err));
	must(p, sl_jobs_events(p->client, job, 0, 10000, on_row, text, &p->err));
	return text;
}

static void a_command_completes_its_job_and_its_lines_are_in_the_store(void **state)
{
	struct plant *p = *state;
	add(p, "t", "cat; echo; echo err >&2; echo '{\"output\":{\"ok\":true}}' >&3");
	start(p, 2);
	uint64_t id = enqueue(p, "t", "{\"n\":1}");
	struct sl_chain *c = finish(p, id, SL_JOB_COMPLETED);
	assert_string_equal(c->output, "{\"ok\":true}");
	sl_chain_release(p->client, c);
	assert_string_equal(rows(p, id), "1 started\n1 stdout {\"n\":1}\n1 stderr err\n1 exited {\"code\":0}\n");
}

static void a_failing_command_is_tried_again_until_its_attempts_run_out(void **state)
{
	struct plant *p = *state;
	add(p, "t", "echo attempt $SLUICE_ATTEMPT; echo broken >&2; exit 7");
	start(p, 1);
	uint64_t id = enqueue(p, "t", NULL);
	struct sl_chain *c = finish(p, id, SL_JOB_FAILED);
	assert_string_equal(c->error, "exit code 7: broken");
	sl_chain_release(p->client, c);
	assert_string_equal(rows(p, id), "1 started\n1 stdout attempt 1\n1 stderr broken\n1 exited {\"code\":7}\n"
					 "2 started\n2 stdout attempt 2\n2 stderr broken\n2 exited {\"code\":7}\n"
					 "3 started\n3 stdout attempt 3\n3 stderr broken\n3 exited {\"code\":7}\n");
}

static void exit_75_comes_back_without_being_charged(void **state)
{
	struct plant *p = *state;
	char script[256];
	(void)snprintf(script, sizeof(script), "[ $SLUICE_ATTEMPT = 3 ] && exit 0; exit 75");
	add(p, "t", script);
	start(p, 1);
	uint64_t id = enqueue(p, "t", NULL);
	struct sl_job *job = NULL;
	sl_chain_release(p->client, finish(p, id, SL_JOB_COMPLETED));
	must(p, sl_jobs_get(p->client, id, &job, &p->err));
	assert_int_equal(job->attempt, 3);
	assert_int_equal(job->charged, 1); /* of the last one only */
	sl_job_release(p->client, job);
	assert_string_equal(rows(p, id), "1 started\n1 exited {\"code\":75}\n2 started\n2 exited {\"code\":75}\n"
					 "3 started\n3 exited {\"code\":0}\n");
}

static void a_command_can_fail_for_good(void **state)
{
	struct plant *p = *state;
	add(p, "t", "echo '{\"fail\":\"never\"}' >&3; exit 1");
	start(p, 1);
	uint64_t id = enqueue(p, "t", NULL);
	struct sl_chain *c = finish(p, id, SL_JOB_FAILED);
	assert_string_equal(c->error, "never");
	sl_chain_release(p->client, c);
	assert_string_equal(rows(p, id), "1 started\n1 exited {\"code\":1}\n");
}

static void a_command_continues_with_the_next_job_of_its_chain(void **state)
{
	struct plant *p = *state;
	add(p, "first", "echo '{\"continue_with\":{\"type\":\"second\",\"input\":{\"from\":1}}}' >&3");
	add(p, "second", "printf '{\"output\":' >&3; cat >&3; echo '}' >&3");
	start(p, 2);
	struct sl_chain *c = finish(p, enqueue(p, "first", NULL), SL_JOB_COMPLETED);
	assert_string_equal(c->output, "{\"from\":1}");
	sl_chain_release(p->client, c);
}

static void an_output_that_the_protocol_refuses_fails_only_its_own_job(void **state)
{
	struct plant *p = *state;
	add(p, "t", "printf '{\"output\":\"\\377\"}\\n' >&3");
	add(p, "good", "echo '{\"output\":1}' >&3");
	start(p, 2);
	uint64_t bad = enqueue(p, "t", NULL), good[10];
	for (size_t i = 0; i < SL_COUNT(good); i++)
		good[i] = enqueue(p, "good", NULL);
	for (size_t i = 0; i < SL_COUNT(good); i++)
		sl_chain_release(p->client, finish(p, good[i], SL_JOB_COMPLETED));
	struct sl_chain *c = finish(p, bad, SL_JOB_FAILED);
	assert_memory_equal(c->error, "descriptor 3: ", 14);
	sl_chain_release(p->client, c);
}

static void a_timeout_ends_the_command(void **state)
{
	struct plant *p = *state;
	add(p, "t", "trap 'echo asked; exit 0' TERM; echo waiting; sleep 1000 & wait");
	p->processors[0].retry.max_attempts = 1;
	const char *text;
	for (int64_t ms = 300;; ms *= 4) { /* a busy machine may take longer until the command listens */
		p->processors[0].timeout_ms = ms;
		start(p, 1);
		uint64_t id = enqueue(p, "t", NULL);
		sl_chain_release(p->client, finish(p, id, SL_JOB_FAILED));
		/* Its events come with the settle, and the worker settles after the handler returned. */
		must(p, sl_worker_stop(p->worker, DEADLINE_MS, &p->err));
		sl_worker_free(p->worker);
		p->worker = NULL;
		text = rows(p, id);
		if (ms > 10000 || strstr(text, "waiting") != NULL)
			break;
	}
	assert_string_equal(text, "1 started\n1 stdout waiting\n1 stdout asked\n"
				  "1 error the attempt was aborted: timeout\n1 exited {\"code\":0}\n");
}

static void a_cancelled_job_ends_its_command_at_once(void **state)
{
	struct plant *p = *state;
	char path[160], script[640];
	(void)snprintf(path, sizeof(path), "%s/runs", p->box.dir);
	assert_int_equal(mkfifo(path, 0600), 0);
	(void)snprintf(script, sizeof(script), "mkfifo %s.fifo; : >%s; cat %s.fifo", path, path, path);
	add(p, "t", script);
	start(p, 1);
	uint64_t id = enqueue(p, "t", NULL);
	/* Opens when the command does so at the other end. */
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	(void)close(fd);
	size_t n = 0;
	must(p, sl_jobs_cancel(p->client, NULL, &id, 1, &n, &p->err));
	sl_chain_release(p->client, finish(p, id, SL_JOB_CANCELLED));
	must(p, sl_worker_stop(p->worker, DEADLINE_MS, &p->err));
	assert_non_null(strstr(rows(p, id), "error the attempt was aborted: cancelled\n1 exited {\"signal\":15}\n"));
}

static void many_jobs_in_several_slots_lose_nothing(void **state)
{
	struct plant *p = *state;
	uint64_t ids[200];
	add(p, "t", "echo $SLUICE_JOB_ID; echo \"{\\\"output\\\":$SLUICE_JOB_ID}\" >&3");
	start(p, 4);
	for (size_t i = 0; i < SL_COUNT(ids); i++)
		ids[i] = enqueue(p, "t", NULL);
	for (size_t i = 0; i < SL_COUNT(ids); i++) {
		char number[32];
		struct sl_chain *c = finish(p, ids[i], SL_JOB_COMPLETED);
		(void)snprintf(number, sizeof(number), "%llu", (unsigned long long)ids[i]);
		assert_string_equal(c->output, number);
		sl_chain_release(p->client, c);
	}
	for (size_t i = 0; i < SL_COUNT(ids); i++) {
		char expected[128];
		(void)snprintf(expected, sizeof(expected), "1 started\n1 stdout %llu\n1 exited {\"code\":0}\n",
			       (unsigned long long)ids[i]);
		assert_string_equal(rows(p, ids[i]), expected);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, plant_open, plant_close)
		T(a_command_completes_its_job_and_its_lines_are_in_the_store),
		T(a_failing_command_is_tried_again_until_its_attempts_run_out),
		T(exit_75_comes_back_without_being_charged),
		T(a_command_can_fail_for_good),
		T(a_command_continues_with_the_next_job_of_its_chain),
		T(an_output_that_the_protocol_refuses_fails_only_its_own_job),
		T(a_timeout_ends_the_command),
		T(a_cancelled_job_ends_its_command_at_once),
		T(many_jobs_in_several_slots_lose_nothing),
	};
	return cmocka_run_group_tests_name("exec worker", tests, NULL, NULL);
}
