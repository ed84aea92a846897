/* SPDX-License-Identifier: Apache-2.0 */
/* Commands as handlers: what they are given, what becomes of their output, and how attempts end. */
#include "execbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/fault.h"

static int set_up(void **state)
{
	struct execbox *b = malloc(sizeof(*b));
	execbox_init(b);
	*state = b;
	return 0;
}

static int tear_down(void **state)
{
	execbox_fini(*state);
	assert_int_equal(execbox_children(), 0);
	free(*state);
	return 0;
}

/* ---- output ---- */

static void lines_become_events_in_order(void **state)
{
	struct execbox *b = *state;
	struct fake f;
	execbox_sh(b, "echo one; echo two; echo; echo three");
	assert_int_equal(execbox_run(b, &f, "{}"), 0);
	assert_events(b, 1, "started\nout 0 one\nout 4 two\nout 8 \nout 9 three\nexited {\"code\":0}\n");
	assert_string_equal(f.text, "complete nothing");
}

static void stdout_and_stderr_are_told_apart(void **state)
{
	struct execbox *b = *state;
	struct fake f;
	execbox_sh(b, "echo a; sleep 0.05; echo b >&2; sleep 0.05; echo c");
	assert_int_equal(execbox_run(b, &f, "{}"), 0);
	assert_events(b, 1, "started\nout 0 a\nerr 0 b\nout 2 c\nexited {\"code\":0}\n");
}

static void a_last_line_without_newline_is_partial(void **state)
{
	struct execbox *b = *state;
	struct fake f;
	execbox_sh(b, "echo whole; printf rest; printf other >&2");
	assert_int_equal(execbox_run(b, &f, "{}"), 0);
	assert_events(b, 1, "started\nout 0 whole\nout 6+ rest\nerr 0+ other\nexited {\"code\":0}\n");
}

static void bytes_are_kept_as_they_are(void **state)
{
	struct execbox *b = *state;
	struct fake f;
	execbox_sh(b, "printf 'a\\000b\\377\\303\\n\\r\\n'");
	assert_int_equal(execbox_run(b, &f, "{}"), 0);
	assert_events(b, 1, "started\nout 0 a\\x00b\\xFF\\xC3\nout 6 \\x0D\nexited {\"code\":0}\n");
}

static void a_long_line_is_cut_into_partial_events(void **state)
{
	struct execbox *b = *state;
	struct fake f;
	b->opts.max_line_bytes = 4;
	execbox_sh(b, "echo abcd; echo abcde; echo abcdefgh; printf 123456789");
	assert_int_equal(execbox_run(b, &f, "{}"), 0);
	assert_events(b, 1,
		      "started\nout 0 abcd\nout 5+ abcd\nout 9 e\nout 11+ abcd\nout 15 efgh\n"
		      "out 20+ 1234\nout 24+ 5678\nout 28+ 9\nexited {\"code\":0}\n");
}

static void writing_to_dev_stderr_loses_nothing(void **state)
{
	struct execbox *b = *state;
	struct fake f;
	execbox_sh(b, "echo first >&2; echo second > /dev/stderr; echo third > /dev/stdout; echo fourth >&2");
	assert_int_equal(execbox_run(b, &f, "{}"), 0);
	const char *text = execbox_events(b, 1);
	assert_non_null(strstr(text, "err 0 first\n"));
	assert_non_null(strstr(text, "err 6 second\n"));
	assert_non_null(strstr(text, "err 13 fourth\n"));
	assert_non_null(strstr(text, "out 0 third\n"));
}

struct count {
	uint64_t lines, bytes, started, exited, wrong;
};

static void count_event(const struct sl_event *event, void *ctx)
{
	struct count *c = ctx;
	c->started += event->type == SL_EVENT_STARTED;
	c->exited += event->type == SL_EVENT_EXITED;
	if (event->type == SL_EVENT_STDOUT) {
		char expected[32];
		(void)snprintf(expected, sizeof(expected), "%llu", (unsigned long long)++c->lines);
		bool right = event->len == strlen(expected) && memcmp(event->data, expected, event->len) == 0 &&
			     event->position == c->bytes;
		if (!right && c->wrong++ == 0)
			print_error("line %s at %llu is \"%.*s\" at %llu\n", expected, (unsigned long long)c->bytes,
				    (int)event->len, (const char *)event->data, (unsigned long long)event->position);
		c->bytes += event->len + 1;
	}
}

static void every_line_of_a_chatty_command_is_there_once_and_the_spool_stays_small(void **state)
{
	struct execbox *b = *state;
	struct fake f;
	struct count c = {0};
	b->opts.tap = count_event;
	b->opts.tap_ctx = &c;
	execbox_sh(b, "if [ $SLUICE_JOB_ID = 1 ]; then seq -f %.0f 1 2000000; else echo again; fi");
	assert_int_equal(execbox_run(b, &f, "{}"), 0);
	assert_int_equal(c.wrong, 0);
	assert_int_equal(c.lines, 2000000);
	assert_int_equal(c.started, 1);
	assert_int_equal(c.exited, 1);
	/* 14 MB went through it, and holes were left behind. */
	struct stat st;
	assert_int_equal(fstat(b->exec->idle->spool, &st), 0);
	assert_true(st.st_size > 14 * 1024 * 1024);
	assert_true(st.st_blocks * 512 < 13 * 1024 * 1024);
	/* The next attempt begins anew in it. */
	b->exec->tap = NULL;
	assert_int_equal(execbox_run(b, &f, "{}"), 0);
	assert_events(b, 2, "started\nout 0 again\nexited {\"code\":0}\n");
	assert_int_equal(fstat(b->exec->idle->spool, &st), 0);
	assert_true(st.st_size < 1024);
}

/* ---- what a command is given ---- */

static void the_input_is_on_stdin_and_the_job_in_the_environment(void **state)
{
	struct execbox *b = *state;
	struct fake f;
	execbox_sh(b, "cat; echo; echo $SLUICE_JOB_ID $SLUICE_CHAIN_ID $SLUICE_ATTEMPT $SLUICE_TYPE");
	assert_int_equal(execbox_run(b, &f, "{\"a\": [1,2]}"), 0);
	assert_events(b, 1, "started\nout 0 {\"a\": [1,2]}\nout 13 1 1001 2 test.type\nexited {\"code\":0}\n");
}

static void the_trace_context_is_the_jobs_own(void **state)
{
	struct execbox *b = *state;
	struct fake f;
	assert_int_equal(setenv("TRACEPARENT", "of-the-worker", 1), 0);
	execbox_sh(b, "echo \"<$TRACEPARENT>\"");
	assert_int_equal(unsetenv("TRACEPARENT"), 0);
	assert_int_equal(execbox_run(b, &f, "{}"), 0);
	assert_events(b, 1, "started\nout 0 <>\nexited {\"code\":0}\n");
	fake_init(&f, 2, "{}");
	f.job.traceparent = "00-1-2-01";
	assert_int_equal(sl__exec_process(b->exec, &fake_ops, fake_attempt(&f), &b->err), 0);
	fake_fini(&f);
	assert_events(b, 2, "started\nout 0 <00-1-2-01>\nexited {\"code\":0}\n");
}

static void a_command_that_does_not_read_its_input_is_no_error(void **state)
{
	struct execbox *b = *state;
	struct fake f;
	char *input = malloc(3000002);
	memset(input, 'x', 3000000);
	input[0] = input[2999999] = '"';
	input[3000000] = '\0';
	execbox_sh(b, "exit 0");
	assert_int_equal(execbox_run(b, &f, input), 0);
	assert_string_equal(f.text, "complete nothing");
	execbox_sh(b, "wc -c");
	assert_int_equal(execbox_run(b, &f, input), 0);
	assert_events(b, 2, "started\nout 0 3000000\nexited {\"code\":0}\n");
	free(input);
}

static void argv_is_taken_literally_and_found_in_path(void **state)
{
	struct execbox *b = *state;
	struct fake f;
	execbox_exec(b, (const char *const[]){"printf", "%s|", "a b", "$HOME", "*", "", NULL});
	assert_int_equal(execbox_run(b, &f, "{}"), 0);
	assert_events(b, 1, "started\nout 0+ a b|$HOME|*||\nexited {\"code\":0}\n");
}

static void only_its_own_descriptors_are_open_in_a_command(void **state)
{
	struct execbox *b = *state;
	struct fake f;
	int extra = open("/dev/null", O_RDONLY); /* without O_CLOEXEC */
	assert_true(extra > 2);
	execbox_exec(b, (const char *const[]){"/bin/sh", "-c", "for f in /proc/$$/fd/*; do echo ${f##*/}; done", NULL});
	assert_int_equal(execbox_run(b, &f, "{}"), 0);
	const char *text = execbox_events(b, 1);
	assert_non_null(strstr(text, "started\nout 0 0\nout 2 1\nout 4 2\nout 6 240\nout 10 3\n")); /* M4 */
	assert_null(strstr(text, "out 16"));
	(void)close(extra);
}

static void signals_are_as_a_program_expects_them(void **state)
{
	struct execbox *b = *state;
	struct fake f;
	assert_true(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
	assert_true(signal(SIGTERM, SIG_IGN) != SIG_ERR);
	sigset_t usr1;
	(void)sigemptyset(&usr1);
	(void)sigaddset(&usr1, SIGUSR1);
	assert_int_equal(pthread_sigmask(SIG_BLOCK, &usr1, NULL), 0);
	execbox_sh(b, "grep -E 'SigBlk|SigIgn' /proc/self/status; kill -PIPE $$; echo survived");
	assert_int_not_equal(execbox_run(b, &f, "{}"), 0);
	assert_int_equal(pthread_sigmask(SIG_UNBLOCK, &usr1, NULL), 0);
	assert_true(signal(SIGPIPE, SIG_DFL) != SIG_ERR);
	assert_true(signal(SIGTERM, SIG_DFL) != SIG_ERR);
	assert_events(b, 1,
		      "started\nout 0 SigBlk:\\x090000000000000000\nout 25 SigIgn:\\x090000000000000000\n"
		      "exited {\"signal\":13}\n");
	assert_string_equal(b->err.msg, "killed by signal 13 (SIGPIPE)");
}

static void the_input_can_say_what_to_run(void **state)
{
	struct execbox *b = *state;
	struct fake f;
	execbox_exec(b, NULL);
	assert_int_equal(execbox_run(b, &f,
				     "{\"argv\":[\"sh\",\"-c\",\"pwd; echo $A-$HOME; cat; echo $SLUICE_JOB_ID\"],"
				     "\"cwd\":\"/\",\"env\":{\"A\":\"\\u00e9\",\"HOME\":\"/h\"}}"),
			 0);
	assert_events(b, 1, "started\nout 0 /\nout 2 \\xC3\\xA9-/h\nout 8 1\nexited {\"code\":0}\n");
}

static void an_input_that_does_not_say_what_to_run_is_refused(void **state)
{
	static const char *const bad[] = {"3",
					  "{}",
					  "{\"argv\":[]}",
					  "{\"argv\":[\"\"]}",
					  "{\"argv\":[1]}",
					  "{\"argv\":\"sh\"}",
					  "{\"argv\":[\"sh\",\"a\\u0000b\"]}",
					  "{\"argv\":[\"sh\"],\"cwd\":1}",
					  "{\"argv\":[\"sh\"],\"env\":[]}",
					  "{\"argv\":[\"sh\"],\"env\":{\"A\":1}}",
					  "{\"argv\":[\"sh\"],\"env\":{\"A=B\":\"1\"}}"};
	struct execbox *b = *state;
	struct fake f;
	execbox_exec(b, NULL);
	for (size_t i = 0; i < SL_COUNT(bad); i++) {
		assert_int_equal(execbox_run(b, &f, bad[i]), SL_EDATA);
		assert_int_equal(b->err.error_class, SL_CLASS_POISON);
		assert_non_null(strstr(b->err.msg, "input: "));
	}
	assert_events(b, 0, "");
	/* And the next one runs. */
	assert_int_equal(execbox_run(b, &f, "{\"argv\":[\"true\"]}"), 0);
}

static void arguments_that_do_not_fit_are_refused(void **state)
{
	struct execbox *b = *state;
	struct fake f;
	char *input = malloc(3000100);
	static const char head[] = "{\"argv\":[\"echo\",\"", tail[] = "\"]}";
	memcpy(input, head, sizeof(head));
	memset(input + sizeof(head) - 1, 'x', 3000000);
	memcpy(input + sizeof(head) - 1 + 3000000, tail, sizeof(tail));
	execbox_exec(b, NULL);
	assert_int_equal(execbox_run(b, &f, input), SL_ETOOBIG);
	free(input);
}

/* ---- commands that do not start ---- */

static void a_command_that_is_not_there_is_an_error_of_the_attempt(void **state)
{
	struct execbox *b = *state;
	struct fake f;
	execbox_exec(b, (const char *const[]){"no-such-command-anywhere", NULL});
	assert_int_equal(execbox_run(b, &f, "{}"), SL_EAGAIN);
	assert_string_equal(b->err.msg, "cannot execute no-such-command-anywhere: No such file or directory");
	assert_int_equal(sl_err_retryable(&b->err), 1);
	assert_events(b, 1, "error 0 cannot execute it: No such file or directory\n");
	execbox_exec(b, (const char *const[]){"/etc/passwd", NULL});
	assert_int_equal(execbox_run(b, &f, "{}"), SL_EAGAIN);
	assert_string_equal(b->err.msg, "cannot execute /etc/passwd: Permission denied");
}

static void a_folder_that_is_not_there_is_named(void **state)
{
	struct execbox *b = *state;
	struct fake f;
	execbox_exec(b, NULL);
	assert_int_equal(execbox_run(b, &f, "{\"argv\":[\"true\"],\"cwd\":\"/no/such/folder\"}"), SL_EAGAIN);
	assert_string_equal(b->err.msg, "cannot change to the folder of the command: No such file or directory");
}

/* ---- how attempts end ---- */

struct ending {
	const char *script;
	const char *text;  /* the outcome that the attempt gets */
	const char *error; /* or the error */
};

static void what_a_command_says_and_its_exit_code_end_the_attempt(void **state)
{
	static const struct ending table[] = {
		{"exit 0", "complete nothing", NULL},
		{"echo '{\"output\":{\"n\":12345678901234567890123,\"x\":1.50}}' >&3",
		 "complete {\"n\":12345678901234567890123,\"x\":1.50}", NULL},
		{"echo '{\"output\":1}' >&3; echo ' { \"output\" : [ 2 ] } ' >&3", "complete [ 2 ]", NULL},
		{"printf '{\"output\":\"no newline\"}' >&3", "complete \"no newline\"", NULL},
		{"echo '{\"continue_with\":{\"type\":\"next\"}}' >&3", "continue next nothing p0 d0 a0", NULL},
		{"echo "
		 "'{\"continue_with\":{\"type\":\"n\\u0065xt\",\"input\":{\"a\":[]},\"priority\":-3,\"delay_ms\":7,"
		 "\"blockers\":[1,\"18\"]}}' >&3",
		 "continue next {\"a\":[]} p-3 d7 a0 b1 b18", NULL},
		/* A zero that was given is not the type's default. */
		{"echo '{\"continue_with\":{\"type\":\"t\",\"priority\":0}}' >&3",
		 "continue t nothing p-2147483648 d0 a0", NULL},
		{"echo '{\"continue_with\":{\"type\":\"t\",\"priority\":-2147483648}}' >&3", "",
		 "descriptor 3: continue_with: priority is an integer from -2147483647 to 2147483647"},
		{"echo '{\"continue_with\":{\"type\":\"t\",\"at_ms\":1700000000000}}' >&3",
		 "continue t nothing p0 d0 a1700000000000", NULL},
		{"echo '{\"output\":1}' >&3; echo '{\"reschedule_in_ms\":250}' >&3", "reschedule 250", NULL},
		{"echo '{\"reschedule_in_ms\":250}' >&3; echo '{\"output\":1}' >&3", "complete 1", NULL},
		{"echo '{\"fail\":\"no \\\"way\\\"\"}' >&3", "fail no \"way\"", NULL},
		{"echo '{\"fail\":\"no\"}' >&3; exit 3", "fail no", NULL},
		{"echo '{\"fail\":\"no\"}' >&3; kill -9 $$", "fail no", NULL},
		{"exit 75", "reschedule 10000", NULL},
		{"echo '{\"reschedule_in_ms\":5}' >&3; exit 75", "reschedule 5", NULL},
		{"echo '{\"reschedule_in_ms\":6}' >&3; exit 1", "reschedule 6", NULL},
		{"echo '{\"output\":1}' >&3; exit 1", "", "exit code 1"},
		{"echo 'why it was' >&2; echo; exit 42", "", "exit code 42: why it was"},
		{"kill -SEGV $$", "", "killed by signal 11 (SIGSEGV)"},
		{"echo '{\"reschedule_in_ms\":6}' >&3; kill -9 $$", "", "killed by signal 9 (SIGKILL)"},
		{"echo 'hello' >&3", "", "descriptor 3: line: line 1, column 1: a value is expected"},
		{"echo 'hello' >&3; exit 9", "", "exit code 9"},
		{"echo '[]' >&3; echo '{\"output\":1}' >&3", "", "descriptor 3: a line is a JSON object"},
		{"echo '{\"outptu\":1}' >&3", "",
		 "descriptor 3: expected output, continue_with, progress, reschedule_in_ms or fail"},
		{"echo '{}' >&3", "", "descriptor 3: an empty object"},
		{"echo '{\"output\":1} x' >&3", "",
		 "descriptor 3: line: line 1, column 14: unexpected text after the value"},
		{"printf '{\"output\":\"\\377\"}\\n' >&3", "", "descriptor 3: line: line 1, column 12: not UTF-8"},
		{"printf '{\"output\":\\000 1}\\n' >&3", "", "descriptor 3: a NUL in a line of JSON"},
		{"echo '{\"fail\":7}' >&3", "", "descriptor 3: fail is a string without NUL"},
		{"echo '{\"reschedule_in_ms\":-1}' >&3", "",
		 "descriptor 3: reschedule_in_ms is a number of milliseconds"},
		{"echo '{\"reschedule_in_ms\":1.5}' >&3", "",
		 "descriptor 3: reschedule_in_ms is a number of milliseconds"},
		{"echo '{\"continue_with\":{}}' >&3", "", "descriptor 3: continue_with: type is missing"},
		{"echo '{\"continue_with\":{\"type\":\"a\",\"tpye\":1}}' >&3", "",
		 "descriptor 3: continue_with: expected type, input, priority, delay_ms, at_ms or blockers"},
		{"echo '{\"continue_with\":{\"type\":\"a\",\"blockers\":[0]}}' >&3", "",
		 "descriptor 3: continue_with: an item of blockers is not a chain id"},
		{"printf '\\n   \\n{\"output\":1}\\n\\n' >&3", "complete 1", NULL},
	};
	struct execbox *b = *state;
	for (size_t i = 0; i < SL_COUNT(table); i++) {
		struct fake f;
		execbox_sh(b, table[i].script);
		int rc = execbox_run(b, &f, "{}");
		if (table[i].error == NULL && rc != 0)
			fail_msg("%s: %s", table[i].script, b->err.msg);
		assert_string_equal(f.text, table[i].text);
		if (table[i].error == NULL)
			continue;
		assert_int_equal(rc, SL_EAGAIN);
		if (strncmp(table[i].error, "descriptor 3: line:", 19) != 0)
			assert_string_equal(b->err.msg, table[i].error);
		else
			assert_memory_equal(b->err.msg, table[i].error, 30);
	}
}

static void a_command_that_is_to_run_once_is_not_rescheduled(void **state)
{
	struct execbox *b = *state;
	struct fake f;
	b->opts.reschedule = SL_OFF;
	execbox_sh(b, "exit 75");
	assert_int_equal(execbox_run(b, &f, "{}"), SL_EAGAIN);
	assert_string_equal(b->err.msg, "exit code 75");
	execbox_sh(b, "echo '{\"reschedule_in_ms\":5}' >&3");
	assert_int_equal(execbox_run(b, &f, "{}"), 0);
	assert_string_equal(f.text, "complete nothing");
}

static void a_bad_line_is_an_error_event_at_its_place(void **state)
{
	struct execbox *b = *state;
	struct fake f;
	execbox_sh(b, "echo '{\"progress\":1}' >&3; echo '{}' >&3; echo '{\"progress\":{\"p\":2}}' >&3");
	assert_int_equal(execbox_run(b, &f, "{}"), SL_EAGAIN);
	assert_events(b, 1,
		      "started\nprogress 0 1\nerror 15 descriptor 3: an empty object\n"
		      "progress 18 {\"p\":2}\nexited {\"code\":0}\n");
	assert_string_equal(f.progress, "{\"p\":2}");
}

static void a_large_output_comes_through_unchanged(void **state)
{
	struct execbox *b = *state;
	struct fake f;
	execbox_sh(b, "{ printf '{\"output\":\"'; head -c 12000000 /dev/zero | tr '\\000' x; echo '\"}'; } >&3");
	fake_init(&f, 1, "{}");
	struct sl__exec_result r = {0};
	assert_int_equal(sl__exec_run(b->exec, &fake_ops, fake_attempt(&f), &r, &b->err), 0);
	assert_int_equal(r.capture.protocol.last, SL__SAYS_OUTPUT);
	assert_int_equal(r.capture.protocol.text.len, 12000002);
	sl__capture_fini(&r.capture);
	fake_fini(&f);
}

/* ---- ending commands ---- */

struct job_thread {
	struct execbox *b;
	struct fake f;
	int rc;
	struct sl_err err;
};

static void *process_main(void *arg)
{
	struct job_thread *t = arg;
	t->rc = sl__exec_process(t->b->exec, &fake_ops, fake_attempt(&t->f), &t->err);
	return NULL;
}

/* The tap of a test that waits for the command's first line. */
struct gate {
	int fds[2];
};

static void open_gate(const struct sl_event *event, void *ctx)
{
	const struct gate *g = ctx;
	if (event->type == SL_EVENT_STDOUT)
		assert_int_equal(write(g->fds[1], "", 1), 1);
}

static void await_gate(const struct gate *g)
{
	char c;
	assert_int_equal(read(g->fds[0], &c, 1), 1);
}

/* Run the script, abort it after its first line, and give what came of it. */
static void abort_script(struct execbox *b, struct job_thread *t, const char *script, enum sl_abort_reason reason)
{
	struct gate g;
	pthread_t thread;
	assert_int_equal(pipe(g.fds), 0);
	b->opts.tap = open_gate;
	b->opts.tap_ctx = &g;
	execbox_sh(b, script);
	*t = (struct job_thread){.b = b};
	fake_init(&t->f, b->next_id++, "{}");
	assert_int_equal(pthread_create(&thread, NULL, process_main, t), 0);
	await_gate(&g);
	fake_abort(&t->f, reason);
	assert_int_equal(pthread_join(thread, NULL), 0);
	fake_fini(&t->f);
	(void)close(g.fds[0]);
	(void)close(g.fds[1]);
}

static void an_abort_sends_sigterm_to_the_group(void **state)
{
	struct execbox *b = *state;
	struct job_thread t;
	b->opts.kill_grace_ms = 60000;
	abort_script(b, &t, "trap 'echo bye; exit 0' TERM; echo ready; sleep 100 & wait", SL_ABORT_TIMEOUT);
	assert_int_equal(t.rc, SL_ECANCELLED);
	assert_string_equal(t.err.msg, "aborted: timeout");
	assert_string_equal(t.f.text, "");
	assert_events(b, 1,
		      "started\nout 0 ready\nout 6 bye\nerror 0 the attempt was aborted: timeout\n"
		      "exited {\"code\":0}\n");
}

static void who_ignores_sigterm_gets_sigkill_after_the_grace(void **state)
{
	struct execbox *b = *state;
	struct job_thread t;
	b->opts.kill_grace_ms = 50;
	abort_script(b, &t, "trap '' TERM; echo ready; while :; do sleep 1; done", SL_ABORT_CANCELLED);
	assert_int_equal(t.rc, SL_ECANCELLED);
	assert_events(b, 1,
		      "started\nout 0 ready\nerror 0 the attempt was aborted: cancelled\nexited {\"signal\":9}\n");
}

static void a_stopped_command_can_be_ended(void **state)
{
	struct execbox *b = *state;
	struct job_thread t;
	b->opts.kill_grace_ms = 60000;
	abort_script(b, &t, "echo ready; kill -STOP $$; sleep 100", SL_ABORT_SHUTDOWN);
	assert_int_equal(t.rc, SL_ECANCELLED);
	assert_non_null(strstr(execbox_events(b, 1), "exited {\"signal\":15}\n"));
}

/* The number in the first line of output of a job. */
static pid_t pid_in_output(struct execbox *b, uint64_t job)
{
	const char *line = strstr(execbox_events(b, job), "out 0 ");
	assert_non_null(line);
	return (pid_t)atoi(line + 6);
}

/* Wait until no process has this id, or only a zombie. */
static void await_death(pid_t pid)
{
	char path[64], line[256];
	for (int i = 0; i < 60000; i++) {
		(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
		FILE *f = fopen(path, "r");
		bool alive = f != NULL && fgets(line, sizeof(line), f) != NULL && strstr(line, ") Z ") == NULL;
		if (f != NULL)
			(void)fclose(f);
		if (!alive)
			return;
		(void)poll(NULL, 0, 1);
	}
	fail_msg("process %d still lives", (int)pid);
}

static void what_a_command_leaves_behind_is_killed(void **state)
{
	struct execbox *b = *state;
	struct fake f;
	execbox_sh(b, "sleep 1000 & echo $!; exit 0"); /* it holds the pipes */
	assert_int_equal(execbox_run(b, &f, "{}"), 0);
	await_death(pid_in_output(b, 1));
	execbox_sh(b, "sleep 1000 >/dev/null 2>&1 3>&1 & echo $!; exit 0"); /* it does not */
	assert_int_equal(execbox_run(b, &f, "{}"), 0);
	await_death(pid_in_output(b, 2));
}

static void what_is_written_shortly_after_the_exit_is_kept(void **state)
{
	struct execbox *b = *state;
	struct fake f;
	execbox_sh(b, "(sleep 0.2; echo late) & echo early; exit 0");
	for (uint64_t id = 1;; id++) {
		assert_int_equal(execbox_run(b, &f, "{}"), 0);
		if (id == 20 || strstr(execbox_events(b, id), "late") != NULL) {
			assert_events(b, id, "started\nout 0 early\nout 6 late\nexited {\"code\":0}\n");
			break;
		}
		/* A busy machine took more than a second for the rest of it. */
		assert_events(b, id, "started\nout 0 early\nexited {\"code\":0}\n");
	}
}

/* ---- the minder ---- */

static void when_the_minder_is_killed_nothing_is_lost_and_the_command_dies(void **state)
{
	struct execbox *b = *state;
	struct gate g;
	struct fake first;
	pthread_t thread;
	assert_int_equal(pipe(g.fds), 0);
	execbox_sh(b, "echo $$; echo more; sleep 1000");
	/* Made here, to know its number. */
	struct sl__minder *m = NULL;
	assert_int_equal(sl__minder_acquire(b->exec, &m, &b->err), 0);
	pid_t minder = m->pid;
	sl__minder_release(b->exec, m);
	b->exec->tap = open_gate;
	b->exec->tap_ctx = &g;
	struct job_thread t = {.b = b};
	fake_init(&t.f, 1, "{}");
	assert_int_equal(pthread_create(&thread, NULL, process_main, &t), 0);
	await_gate(&g);
	await_gate(&g);
	assert_int_equal(kill(minder, SIGKILL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	fake_fini(&t.f);
	assert_int_equal(t.rc, SL_EAGAIN);
	assert_string_equal(t.err.msg, "the command's minder process died; the command was killed");
	await_death(pid_in_output(b, 1));
	assert_non_null(strstr(execbox_events(b, 1), " more\nerror 0 the command's minder process died"));
	/* Another one takes its place. */
	b->exec->tap = NULL;
	b->next_id = 2;
	execbox_sh(b, "echo fine");
	assert_int_equal(execbox_run(b, &first, "{}"), 0);
	assert_events(b, 2, "started\nout 0 fine\nexited {\"code\":0}\n");
	(void)close(g.fds[0]);
	(void)close(g.fds[1]);
}

static void await_file(const char *path)
{
	for (int i = 0; i < 60000 && access(path, F_OK) != 0; i++)
		(void)poll(NULL, 0, 1);
	assert_int_equal(access(path, F_OK), 0);
}

static void what_a_dead_minder_had_not_read_is_read_by_the_worker(void **state)
{
	struct execbox *b = *state;
	struct gate g;
	struct job_thread t = {.b = b};
	pthread_t thread;
	struct sl__minder *m = NULL;
	char script[512], go[100], wrote[100];
	assert_int_equal(pipe(g.fds), 0);
	(void)snprintf(go, sizeof(go), "%s/go", b->dir);
	(void)snprintf(wrote, sizeof(wrote), "%s/wrote", b->dir);
	(void)snprintf(script, sizeof(script),
		       "sleep 1000 & echo $!; until [ -e %s ]; do sleep 0.01; done; echo unread; echo >&2 too; "
		       "touch %s; sleep 1000",
		       go, wrote);
	execbox_sh(b, script);
	assert_int_equal(sl__minder_acquire(b->exec, &m, &b->err), 0);
	pid_t minder = m->pid;
	sl__minder_release(b->exec, m);
	b->exec->tap = open_gate;
	b->exec->tap_ctx = &g;
	fake_init(&t.f, 1, "{}");
	assert_int_equal(pthread_create(&thread, NULL, process_main, &t), 0);
	await_gate(&g);
	/* The minder is stopped while the command writes. */
	assert_int_equal(kill(minder, SIGSTOP), 0);
	assert_int_equal(close(open(go, O_CREAT | O_WRONLY, 0600)), 0);
	await_file(wrote);
	assert_int_equal(kill(minder, SIGKILL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	fake_fini(&t.f);
	assert_int_equal(t.rc, SL_EAGAIN);
	const char *text = execbox_events(b, 1);
	assert_non_null(strstr(text, " unread\n"));
	assert_non_null(strstr(text, "err 0 too\n"));
	/* Its child too, which no parent's death kills. */
	await_death(pid_in_output(b, 1));
	(void)close(g.fds[0]);
	(void)close(g.fds[1]);
}

static void an_idle_minder_that_was_killed_is_replaced(void **state)
{
	struct execbox *b = *state;
	struct fake f;
	execbox_sh(b, "echo here");
	assert_int_equal(execbox_run(b, &f, "{}"), 0);
	pid_t minder = b->exec->idle->pid;
	assert_int_equal(kill(minder, SIGKILL), 0);
	siginfo_t info;
	assert_int_equal(waitid(P_PID, (id_t)minder, &info, WEXITED | WNOWAIT), 0);
	assert_int_equal(execbox_run(b, &f, "{}"), 0);
	assert_events(b, 2, "started\nout 0 here\nexited {\"code\":0}\n");
	assert_int_not_equal(b->exec->idle->pid, minder);
}

static void one_minder_serves_many_attempts(void **state)
{
	struct execbox *b = *state;
	struct fake f;
	execbox_sh(b, "echo $SLUICE_JOB_ID");
	assert_int_equal(execbox_run(b, &f, "{}"), 0);
	pid_t minder = b->exec->idle->pid;
	for (int i = 0; i < 20; i++)
		assert_int_equal(execbox_run(b, &f, "{}"), 0);
	assert_int_equal(b->exec->idle->pid, minder);
	assert_null(b->exec->idle->next);
	assert_int_equal(execbox_spools(b), 1);
	assert_events(b, 21, "started\nout 0 21\nexited {\"code\":0}\n");
	sl_exec_free(b->exec);
	b->exec = NULL;
	assert_int_equal(access(b->spool, F_OK), -1);
}

/* ---- tickets ---- */

struct ticketed {
	struct fake f; /* first */
	struct sl_wal_ticket ticket;
	int fails;
};

static int take_ticket(sl_attempt *attempt, const struct sl_wal_ticket *ticket, struct sl_err *err)
{
	struct ticketed *t = (struct ticketed *)(void *)attempt;
	t->ticket = *ticket;
	return t->fails ? sl_err_set(err, SL_EIO, "ticket refused") : 0;
}

static void waiting_for_the_last_events_may_be_left_to_the_settle(void **state)
{
	struct execbox *b = *state;
	struct sl__exec_ops ops = fake_ops;
	struct ticketed t = {.fails = 0};
	ops.emitted = take_ticket;
	execbox_sh(b, "echo x");
	fake_init(&t.f, 1, "{}");
	assert_int_equal(sl__exec_process(b->exec, &ops, fake_attempt(&t.f), &b->err), 0);
	/* The last attempt of all waits: an idle handle leaves no spool unfinished. */
	assert_int_equal(sl_wal_wait(b->log, &t.ticket, 0, &b->err), 0);
	assert_int_equal(atomic_load(&b->exec->n_settling), 0);
	assert_non_null(b->exec->idle);
	assert_int_equal(b->exec->idle->header.flags & SL__SPOOL_DONE, SL__SPOOL_DONE);
	fake_fini(&t.f);
	assert_events(b, 1, "started\nout 0 x\nexited {\"code\":0}\n");
}

static void a_refused_ticket_fails_the_attempt_and_keeps_its_events_once(void **state)
{
	struct execbox *b = *state;
	struct sl__exec_ops ops = fake_ops;
	struct ticketed t = {.fails = 1};
	ops.emitted = take_ticket;
	execbox_sh(b, "echo x");
	fake_init(&t.f, 1, "{}");
	assert_int_equal(sl__exec_process(b->exec, &ops, fake_attempt(&t.f), &b->err), SL_EIO);
	fake_fini(&t.f);
	assert_non_null(b->exec->retired);
	sl__exec_retry_retired(b->exec, true);
	assert_null(b->exec->retired);
	assert_events(b, 1, "started\nout 0 x\nexited {\"code\":0}\n");
	assert_int_equal(execbox_spools(b), 0);
}

/* ---- no space ---- */

/* Reopen the log of the box on an environment that can be made to fail. */
static void log_on(struct execbox *b, struct sl_env *env)
{
	struct sl_wal_opts opts = {SL_WAL_OPTS_INIT, .env = env, .wal_dir = b->dir, .archive_dir = b->dir,
				   .archive_on_complete = SL_OFF};
	execbox_close_log(b);
	assert_int_equal(sl_wal_open(&b->log, "w", &opts, &b->err), 0);
}

static void a_log_without_space_fails_the_attempt_and_gets_its_output_later(void **state)
{
	struct execbox *b = *state;
	struct fault fault;
	struct fake f;
	fault_init(&fault, NULL);
	struct sl_env env = fault_env(&fault, NULL);
	log_on(b, &env);
	execbox_sh(b, "trap '' TERM; echo one; echo two; echo '{\"output\":1}' >&3");
	fault_arm_io(&fault, 1, FAULT_FROM, ENOSPC, FAULT_OP(FAULT_PWRITE));
	assert_int_equal(execbox_run(b, &f, "{}"), SL_ENOSPC);
	assert_string_equal(f.text, "");
	fault_disarm(&fault);
	assert_int_equal(execbox_spools(b), 1);
	assert_events(b, 1, "");
	sl__exec_retry_retired(b->exec, true);
	assert_events(b, 1,
		      "started\nout 0 one\nout 4 two\nerror 13 appending this output failed at first; the attempt "
		      "failed because of that\nexited {\"code\":0}\n");
	assert_int_equal(execbox_spools(b), 0);
	/* And so it does when the handle goes. */
	fault_arm_io(&fault, 1, FAULT_FROM, ENOSPC, FAULT_OP(FAULT_PWRITE));
	assert_int_equal(execbox_run(b, &f, "{}"), SL_ENOSPC);
	fault_disarm(&fault);
	sl_exec_free(b->exec);
	b->exec = NULL;
	assert_non_null(strstr(execbox_events(b, 2), "out 4 two\n"));
	assert_int_equal(access(b->spool, F_OK), -1);
	execbox_close_log(b);
	assert_int_equal(fault_open_fds(&fault), 0);
	assert_int_equal(fault_live_allocs(&fault), 0);
	fault_fini(&fault);
	execbox_open_log(b);
}

static void a_poisoned_log_leaves_the_spool_to_the_next_process(void **state)
{
	struct execbox *b = *state;
	struct fault fault;
	struct fake f;
	uint64_t n = 0;
	fault_init(&fault, NULL);
	struct sl_env env = fault_env(&fault, NULL);
	log_on(b, &env);
	execbox_sh(b, "trap '' TERM; echo one"); /* the abort may come before its end */
	fault_arm_io(&fault, 1, FAULT_ONCE, EIO, FAULT_SYNC_OPS);
	assert_int_not_equal(execbox_run(b, &f, "{}"), 0);
	fault_disarm(&fault);
	sl_exec_free(b->exec);
	b->exec = NULL;
	assert_int_equal(execbox_spools(b), 1);
	(void)sl_wal_close(b->log, NULL);
	fault_fini(&fault);
	execbox_open_log(b);
	assert_int_equal(sl_exec_recover(b->log, b->spool, NULL, &n, &b->err), 0);
	assert_events(b, 1,
		      "started\nout 0 one\nerror 0 the worker died; the command was killed\nexited {\"code\":0}\n");
	assert_int_equal(execbox_spools(b), 0);
}

/* The limit of a file's size stands for a disk: only the minder has it. */
static void a_spool_without_space_makes_the_command_wait(void **state)
{
	struct execbox *b = *state;
	struct count c = {0};
	struct job_thread t = {.b = b};
	pthread_t thread;
	struct sl__minder *m = NULL;
	struct rlimit little = {8000, RLIM_INFINITY}, all = {RLIM_INFINITY, RLIM_INFINITY};
	b->opts.tap = count_event;
	b->opts.tap_ctx = &c;
	execbox_sh(b, "seq 1 100000");
	assert_int_equal(sl__minder_acquire(b->exec, &m, &b->err), 0);
	pid_t minder = m->pid;
	struct sl__minder_shared *shared = m->shared;
	sl__minder_release(b->exec, m);
	assert_int_equal(prlimit(minder, RLIMIT_FSIZE, &little, NULL), 0);
	fake_init(&t.f, 1, "{}");
	assert_int_equal(pthread_create(&thread, NULL, process_main, &t), 0);
	/* Until it has something that it cannot write. */
	for (int i = 0; i < 60000 && atomic_load(&shared->chunk_len) == 0; i++)
		(void)poll(NULL, 0, 1);
	assert_int_equal(prlimit(minder, RLIMIT_FSIZE, &all, NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	fake_fini(&t.f);
	if (t.rc != 0)
		fail_msg("%s", t.err.msg);
	assert_int_equal(c.wrong, 0);
	assert_int_equal(c.lines, 100000);
	assert_int_equal(c.exited, 1);
}

static void a_spool_that_stays_full_does_not_keep_an_aborted_attempt(void **state)
{
	struct execbox *b = *state;
	struct job_thread t = {.b = b};
	pthread_t thread;
	struct sl__minder *m = NULL;
	struct rlimit little = {8000, RLIM_INFINITY};
	b->opts.kill_grace_ms = 10;
	execbox_sh(b, "yes");
	assert_int_equal(sl__minder_acquire(b->exec, &m, &b->err), 0);
	assert_int_equal(prlimit(m->pid, RLIMIT_FSIZE, &little, NULL), 0);
	struct sl__minder_shared *shared = m->shared;
	sl__minder_release(b->exec, m);
	fake_init(&t.f, 1, "{}");
	assert_int_equal(pthread_create(&thread, NULL, process_main, &t), 0);
	for (int i = 0; i < 60000 && atomic_load(&shared->chunk_len) == 0; i++)
		(void)poll(NULL, 0, 1);
	fake_abort(&t.f, SL_ABORT_SHUTDOWN);
	assert_int_equal(pthread_join(thread, NULL), 0);
	fake_fini(&t.f);
	assert_int_equal(t.rc, SL_ECANCELLED);
}

static void a_command_is_looked_for_before_it_is_needed(void **state)
{
	struct execbox *b = *state;
	assert_int_equal(sl_exec_check_command("sh", NULL, &b->err), 0);
	assert_int_equal(sl_exec_check_command("/bin/sh", NULL, &b->err), 0);
	assert_int_equal(sl_exec_check_command("no-such-command-anywhere", NULL, &b->err), SL_ENOENT);
	assert_non_null(strstr(b->err.msg, "no command no-such-command-anywhere in PATH"));
	assert_int_equal(sl_exec_check_command("/no/such/command", NULL, &b->err), SL_ENOENT);
	assert_non_null(strstr(b->err.msg, "no file /no/such/command"));
	assert_int_equal(sl_exec_check_command("/etc/passwd", NULL, &b->err), SL_EACCES);
	assert_int_equal(sl_exec_check_command("/etc", NULL, &b->err), SL_EACCES);
	assert_non_null(strstr(b->err.msg, "/etc is a folder"));
	assert_int_equal(sl_exec_check_command("sh", "no-such-user", &b->err), SL_EINVAL);
}

/* ---- a log with a key ---- */

#define SECRET "secret-of-the-command"

static void put_key(const char *path, uint8_t byte)
{
	uint8_t key[32];
	memset(key, byte, sizeof(key));
	FILE *f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fchmod(fileno(f), 0600), 0);
	assert_int_equal(fwrite(key, 1, sizeof(key), f), sizeof(key));
	assert_int_equal(fclose(f), 0);
}

/* The bytes of the only spool; for the caller to free. */
static char *read_spool(struct execbox *b, char path[512], size_t *n)
{
	DIR *d = opendir(b->spool);
	assert_non_null(d);
	path[0] = '\0';
	for (struct dirent *e; (e = readdir(d)) != NULL;)
		if (strstr(e->d_name, ".spool") != NULL)
			(void)snprintf(path, 512, "%.200s/%.255s", b->spool, e->d_name);
	(void)closedir(d);
	FILE *f = fopen(path, "rb");
	char *bytes = malloc(1 << 20);
	assert_non_null(f);
	assert_non_null(bytes);
	*n = fread(bytes, 1, 1 << 20, f);
	(void)fclose(f);
	return bytes;
}

static void the_spool_of_an_encrypted_log_is_encrypted_and_recovered_with_its_key(void **state)
{
	struct execbox *b = *state;
	struct fake f;
	char key[128], other[128], path[512], wal[128];
	size_t n, n_log;
	(void)snprintf(key, sizeof(key), "%s/key", b->dir);
	(void)snprintf(other, sizeof(other), "%s/other", b->dir);
	(void)snprintf(wal, sizeof(wal), "%s/w.wal", b->dir);
	put_key(key, 1);
	put_key(other, 2);
	execbox_close_log(b);
	assert_int_equal(unlink(wal), 0);
	b->key_file = key;
	execbox_open_log(b);

	/* Long lines and many, so that frames, batches and notes in the header follow one another. */
	execbox_sh(b, "echo " SECRET "; head -c 300000 /dev/zero | tr '\\0' x; echo; seq 1 20000; echo " SECRET " >&2");
	assert_int_equal(execbox_run(b, &f, "{}"), 0);
	assert_string_equal(f.text, "complete nothing");
	char *text = strdup(execbox_events(b, 1));
	assert_non_null(strstr(text, "out 0 " SECRET));
	assert_non_null(strstr(text, "20000\n"));
	char *spool = read_spool(b, path, &n);
	assert_true(n > 300000);
	assert_null(memmem(spool, n, SECRET, strlen(SECRET)));
	assert_null(memmem(spool, n, "xxxxxxxx", 8));
	sl_exec_free(b->exec);
	b->exec = NULL;
	execbox_close_log(b);
	assert_int_equal(unlink(wal), 0);

	/* As a worker that was killed before anything was in its log would have left it. */
	struct sl__spool_header h;
	assert_int_equal(sl__spool_get_header((const uint8_t *)spool, &h), 0);
	assert_int_equal(h.flags & SL__SPOOL_SEALED, SL__SPOOL_SEALED);
	h.flags = SL__SPOOL_SEALED;
	h.resume = (struct sl__spool_place){.offset = SL__SPOOL_START};
	memset(h.consumed, 0, sizeof(h.consumed));
	memset(h.known, 0, sizeof(h.known));
	sl__spool_put_header((uint8_t *)spool, &h);
	(void)mkdir(b->spool, 0700);
	FILE *file = fopen(path, "wb");
	assert_non_null(file);
	assert_int_equal(fwrite(spool, 1, n, file), n);
	assert_int_equal(fclose(file), 0);
	free(spool);

	/* Without the key, or with another one, the spool stays as it is. */
	for (int i = 0; i < 2; i++) {
		b->key_file = i == 0 ? NULL : other;
		execbox_open_log(b);
		assert_int_equal(sl_exec_recover(b->log, b->spool, NULL, NULL, &b->err), SL_EKEY);
		assert_non_null(strstr(b->err.msg, "is encrypted, and not with the key of this log"));
		execbox_close_log(b);
		assert_int_equal(unlink(wal), 0);
		assert_int_equal(access(path, F_OK), 0);
	}
	/* With it, every event is there once, and before the exit, which the log did not have, why it is late. */
	b->key_file = key;
	execbox_open_log(b);
	assert_int_equal(sl_exec_recover(b->log, b->spool, NULL, NULL, &b->err), 0);
	static const char died[] = "error 0 the worker died; the command was killed\n";
	const char *got = execbox_events(b, 1), *error = strstr(got, died), *exited = strstr(text, "exited ");
	assert_non_null(error);
	assert_non_null(exited);
	assert_int_equal(error - got, exited - text);
	assert_memory_equal(got, text, (size_t)(exited - text));
	assert_string_equal(error + strlen(died), exited);
	assert_int_equal(execbox_spools(b), 0);
	FILE *log = fopen(wal, "rb");
	char *bytes = malloc(4 << 20);
	assert_non_null(log);
	n_log = fread(bytes, 1, 4 << 20, log);
	(void)fclose(log);
	assert_true(n_log > 300000);
	assert_null(memmem(bytes, n_log, SECRET, strlen(SECRET)));
	free(bytes);
	free(text);
}

static void a_frame_of_an_encrypted_spool_opens_only_in_its_place(void **state)
{
	(void)state;
	static const uint8_t key[SL_WAL_KEY_BYTES] = {7}, wrong[SL_WAL_KEY_BYTES] = {8}, nonce[SL__SPOOL_NONCE] = {9};
	char path[] = "/tmp/sluice-frame-XXXXXX";
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	(void)unlink(path);
	struct sl_env env;
	assert_int_equal(sl__env_init(&env, NULL, NULL), 0);
	static uint8_t buf[SL__SPOOL_BUF];
	const struct {
		uint64_t offset;
		uint32_t salt;
		const uint8_t *key;
		int rc;
	} cases[] = {{SL__SPOOL_START, 5, key, 1},
		     {SL__SPOOL_START + 1, 5, key, -EKEYREJECTED},
		     {SL__SPOOL_START, 5, wrong, -EKEYREJECTED}};
	for (size_t i = 0; i < SL_COUNT(cases); i++) {
		struct sl__frame frame = {SL__FRAME_STDOUT, cases[i].offset, 123, (const uint8_t *)"hello", 5, 0}, out;
		uint8_t sealed[5 + SL__SPOOL_SEAL], head[SL__SPOOL_FRAME];
		sl__spool_seal(sealed, key, nonce, cases[i].salt, &frame);
		frame.data = sealed;
		frame.len = sizeof(sealed);
		sl__spool_put_frame(head, cases[i].salt, &frame);
		assert_int_equal(pwrite(fd, head, sizeof(head), SL__SPOOL_START), sizeof(head));
		assert_int_equal(pwrite(fd, sealed, sizeof(sealed), SL__SPOOL_START + SL__SPOOL_FRAME), sizeof(sealed));
		struct sl__spool_reader r = {.env = &env,
					     .fd = fd,
					     .salt = 5,
					     .at = SL__SPOOL_START,
					     .limit = UINT64_MAX,
					     .buf = buf,
					     .key = cases[i].key};
		assert_int_equal(sl__spool_next(&r, &out), cases[i].rc);
		if (cases[i].rc == 1) {
			assert_int_equal(out.len, 5);
			assert_memory_equal(out.data, "hello", 5);
			assert_int_equal(r.at, SL__SPOOL_START + SL__SPOOL_FRAME + sizeof(sealed));
			/* And reading resumes after it. */
			const struct sl__spool_header h = {.max_line_bytes = 100, .resume.offset = SL__SPOOL_START};
			struct sl__capture c;
			sl__capture_init(&c, &env, &h);
			assert_int_equal(sl__capture_frame(&c, &out, NULL), 0);
			assert_int_equal(c.place.offset, r.at);
			sl__capture_fini(&c);
		}
	}
	(void)close(fd);
}

/* ---- options ---- */

static void options_are_checked(void **state)
{
	struct execbox *b = *state;
	sl_exec *x = NULL;
	struct sl_exec_opts o = {SL_EXEC_OPTS_INIT, .events = b->log};
	assert_int_equal(sl_exec_new(&x, &o, &b->err), SL_EINVAL);
	assert_non_null(strstr(b->err.msg, "spool_dir"));
	o.spool_dir = b->spool;
	o.events = NULL;
	assert_int_equal(sl_exec_new(&x, &o, &b->err), SL_EINVAL);
	assert_non_null(strstr(b->err.msg, "events"));
	o.events = b->log;
	o.max_line_bytes = (8 << 20) + 1;
	assert_int_equal(sl_exec_new(&x, &o, &b->err), SL_EINVAL);
	assert_non_null(strstr(b->err.msg, "max_line_bytes"));
	o.max_line_bytes = 0;
	o.argv = (const char *const[]){NULL};
	assert_int_equal(sl_exec_new(&x, &o, &b->err), SL_EINVAL);
	assert_non_null(strstr(b->err.msg, "argv"));
	assert_null(x);
}

/* ---- many at once ---- */

#define THREADS 4

struct many {
	struct execbox *b;
	const struct sl__exec_ops *ops;
	uint64_t first;
	int n;
};

static void *many_main(void *arg)
{
	struct many *m = arg;
	for (int i = 0; i < m->n; i++) {
		struct ticketed t = {.fails = 0};
		struct sl_err err = SL_ERR_INIT;
		fake_init(&t.f, m->first + (uint64_t)i, "{}");
		assert_int_equal(sl__exec_process(m->b->exec, m->ops, fake_attempt(&t.f), &err), 0);
		if (m->ops->emitted != NULL)
			assert_int_equal(sl_wal_wait(m->b->log, &t.ticket, SL_UNLIMITED, &err), 0);
		fake_fini(&t.f);
	}
	return NULL;
}

static void attempts_at_once_do_not_mix(void **state)
{
	struct execbox *b = *state;
	struct sl__exec_ops ops = fake_ops;
	pthread_t threads[THREADS];
	struct many many[THREADS];
	const int n = 12;
	ops.emitted = take_ticket;
	execbox_sh(b, "echo $SLUICE_JOB_ID; echo e$SLUICE_JOB_ID >&2; echo \"{\\\"output\\\":$SLUICE_JOB_ID}\" >&3");
	for (int i = 0; i < THREADS; i++) {
		many[i] = (struct many){b, i % 2 == 0 ? &ops : &fake_ops, (uint64_t)(i + 1) * 100, n};
		assert_int_equal(pthread_create(&threads[i], NULL, many_main, &many[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	for (int i = 0; i < THREADS; i++)
		for (int k = 0; k < n; k++) {
			char a[128], c[128];
			uint64_t id = many[i].first + (uint64_t)k;
			(void)snprintf(a, sizeof(a), "started\nout 0 %llu\nerr 0 e%llu\nexited {\"code\":0}\n",
				       (unsigned long long)id, (unsigned long long)id);
			(void)snprintf(c, sizeof(c), "started\nerr 0 e%llu\nout 0 %llu\nexited {\"code\":0}\n",
				       (unsigned long long)id, (unsigned long long)id);
			const char *text = execbox_events(b, id);
			if (strcmp(text, a) != 0)
				assert_string_equal(text, c);
		}
	/* The last ones may still be on their way to disk: the next acquire or free waits for them. */
	sl__minder_settled(b->exec, true);
	assert_int_equal(atomic_load(&b->exec->n_settling), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		T(lines_become_events_in_order),
		T(stdout_and_stderr_are_told_apart),
		T(a_last_line_without_newline_is_partial),
		T(bytes_are_kept_as_they_are),
		T(a_long_line_is_cut_into_partial_events),
		T(writing_to_dev_stderr_loses_nothing),
		T(every_line_of_a_chatty_command_is_there_once_and_the_spool_stays_small),
		T(the_input_is_on_stdin_and_the_job_in_the_environment),
		T(the_trace_context_is_the_jobs_own),
		T(a_command_that_does_not_read_its_input_is_no_error),
		T(argv_is_taken_literally_and_found_in_path),
		T(only_its_own_descriptors_are_open_in_a_command),
		T(signals_are_as_a_program_expects_them),
		T(the_input_can_say_what_to_run),
		T(an_input_that_does_not_say_what_to_run_is_refused),
		T(arguments_that_do_not_fit_are_refused),
		T(a_command_that_is_not_there_is_an_error_of_the_attempt),
		T(a_command_is_looked_for_before_it_is_needed),
		T(the_spool_of_an_encrypted_log_is_encrypted_and_recovered_with_its_key),
		T(a_frame_of_an_encrypted_spool_opens_only_in_its_place),
		T(a_folder_that_is_not_there_is_named),
		T(what_a_command_says_and_its_exit_code_end_the_attempt),
		T(a_command_that_is_to_run_once_is_not_rescheduled),
		T(a_bad_line_is_an_error_event_at_its_place),
		T(a_large_output_comes_through_unchanged),
		T(an_abort_sends_sigterm_to_the_group),
		T(who_ignores_sigterm_gets_sigkill_after_the_grace),
		T(a_stopped_command_can_be_ended),
		T(what_a_command_leaves_behind_is_killed),
		T(what_is_written_shortly_after_the_exit_is_kept),
		T(when_the_minder_is_killed_nothing_is_lost_and_the_command_dies),
		T(what_a_dead_minder_had_not_read_is_read_by_the_worker),
		T(an_idle_minder_that_was_killed_is_replaced),
		T(one_minder_serves_many_attempts),
		T(waiting_for_the_last_events_may_be_left_to_the_settle),
		T(a_refused_ticket_fails_the_attempt_and_keeps_its_events_once),
		T(a_log_without_space_fails_the_attempt_and_gets_its_output_later),
		T(a_poisoned_log_leaves_the_spool_to_the_next_process),
		T(a_spool_without_space_makes_the_command_wait),
		T(a_spool_that_stays_full_does_not_keep_an_aborted_attempt),
		T(options_are_checked),
		T(attempts_at_once_do_not_mix),
	};
	const struct CMUnitTest threads[] = {T(attempts_at_once_do_not_mix), T(an_abort_sends_sigterm_to_the_group),
					     T(waiting_for_the_last_events_may_be_left_to_the_settle),
					     T(when_the_minder_is_killed_nothing_is_lost_and_the_command_dies)};
	if (argc > 1 && strcmp(argv[1], "threads") == 0)
		return cmocka_run_group_tests_name("exec threads", threads, NULL, NULL);
	if (argc > 1) {
		print_message("Bail out! no part %s: give threads, or nothing\n", argv[1]);
		return 64;
	}
	return cmocka_run_group_tests_name("exec", tests, NULL, NULL);
}
