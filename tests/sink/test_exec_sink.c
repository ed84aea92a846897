/* SPDX-License-Identifier: Apache-2.0 */
/* What only the exec sink does: exit codes, signals, time, what the program sees. */
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "sink/contract.h"
#include "sink/place.h"

static struct place place;

static int set_up(void **state)
{
	(void)state;
	if (place_init(&place, "out") != 0)
		return -1;
	return setenv("OUT", place.path, 1);
}

static int tear_down(void **state)
{
	(void)state;
	place_fini(&place);
	return 0;
}

/* Hand records to the program in one batch. */
static int run_with(const char *command, struct sl_sink_opts opts, const char *const *records, struct sl_err *err,
		    struct sl_sink_reply *reply)
{
	struct sl_sink_item items[8];
	struct sl_sink_reply own;
	uint8_t outcomes[8];
	size_t n = 0;
	sl_sink sink;
	opts.struct_size = sizeof(opts);
	for (; records[n] != NULL; n++)
		items[n] = (struct sl_sink_item){.data = records[n], .len = strlen(records[n])};
	*err = (struct sl_err)SL_ERR_INIT;
	if (sl_sink_exec_open(&sink, command, &opts, err) != 0)
		fail_msg("%s", err->msg);
	void *lane = sink_attach(&sink);
	int rc = sink_write(&sink, lane, items, n, reply != NULL ? reply : &own, outcomes, err);
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
	return rc;
}

static int run(const char *command, struct sl_err *err)
{
	static const char *const records[] = {"{\"a\":1}", "{\"a\":2}", NULL};
	return run_with(command, (struct sl_sink_opts){.timeout_ms = 100000}, records, err, NULL);
}

static void expect_out(const char *want)
{
	char *got = place_read(place.path, NULL);
	assert_non_null(got);
	assert_string_equal(got, want);
	free(got);
}

static void the_exit_code_says_what_became_of_the_batch(void **state)
{
	static const struct {
		const char *command;
		int code;
		enum sl_err_class error_class;
	} cases[] = {
		{"exit 75", SL_EAGAIN, SL_CLASS_TRANSIENT},       {"exit 1", SL_EAGAIN, SL_CLASS_TRANSIENT},
		{"exit 65", SL_EREFUSED, SL_CLASS_POISON},        {"exit 69", SL_EUNAVAIL, SL_CLASS_FATAL},
		{"kill -SEGV $$", SL_EAGAIN, SL_CLASS_TRANSIENT}, {"/nowhere/at/all", SL_EUNAVAIL, SL_CLASS_FATAL},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sl_err err;
		assert_int_equal(run(cases[i].command, &err), cases[i].code);
		assert_int_equal(err.error_class, cases[i].error_class);
	}
	struct sl_err err;
	assert_int_equal(run("exit 0", &err), 0); /* it did not read, and that is its business */
	assert_int_equal(run("exec <&-; exit 0", &err), 0);
}

static void the_program_gets_every_record_on_a_line(void **state)
{
	static const char *const json[] = {"{\"a\":\n1}", "text", NULL}, *const csv[] = {"1,\"x\ny\"", "2", NULL};
	static const char *const half[] = {"1", "{\"a\":\n", "3", NULL};
	struct sl_sink_reply reply;
	struct sl_err err;
	(void)state;
	assert_int_equal(run_with("cat > $OUT", (struct sl_sink_opts){0}, json, &err, NULL), 0);
	expect_out("{\"a\": 1}\ntext\n");
	assert_int_equal(run_with("cat > $OUT", (struct sl_sink_opts){.format = SL_ROWS_CSV}, csv, &err, NULL), 0);
	expect_out("1,\"x\ny\"\n2\n");
	assert_int_equal(run_with("cat > $OUT", (struct sl_sink_opts){0}, half, &err, &reply), SL_EDATA);
	assert_int_equal(reply.culprit, 1);
	expect_out("1,\"x\ny\"\n2\n");
}

static void the_program_knows_its_batch(void **state)
{
	struct sl_err err;
	(void)state;
	assert_int_equal(setenv("SLUICE_BATCH_ID", "ours", 1), 0);
	assert_int_equal(run("echo ${#SLUICE_BATCH_ID} $SLUICE_BATCH_ITEMS > $OUT", &err), 0);
	(void)unsetenv("SLUICE_BATCH_ID");
	expect_out("32 2\n");
}

static void arguments_are_handed_over_as_they_are(void **state)
{
	static const char *const argv[] = {
		"sh", "-c", "cat > \"$OUT\"; printf '%s|' \"$@\" >> \"$OUT\"", "x", "a b", "$c", "", NULL};
	static const char *const records[] = {"1", NULL};
	static const char *const none[] = {NULL};
	struct sl_sink_opts opts = {SL_SINK_OPTS_INIT, .argv = none};
	struct sl_err err;
	sl_sink sink;
	(void)state;
	assert_int_equal(run_with(NULL, (struct sl_sink_opts){.argv = argv}, records, &err, NULL), 0);
	expect_out("1\na b|$c||");
	assert_int_equal(sl_sink_exec_open(&sink, "", &opts, &err), SL_EINVAL);
	assert_int_equal(sl_sink_exec_open(&sink, "", NULL, &err), SL_EINVAL);
	opts.argv = argv;
	assert_int_equal(sl_sink_exec_open(&sink, "cat", &opts, &err), SL_EINVAL);
}

static void the_last_lines_of_standard_error_are_in_the_message(void **state)
{
	struct sl_err err;
	(void)state;
	assert_int_equal(run("seq 1000 >&2; echo; printf 'disk \\303\\251 \\377\\007 full\\n\\n' >&2; exit 75", &err),
			 SL_EAGAIN);
	assert_non_null(strstr(err.msg, "exit code 75: "));
	assert_non_null(strstr(err.msg, "1000 | disk \303\251 ?  full"));
	assert_null(strstr(err.msg, " 1 |"));
	assert_int_equal(run("yes x | head -c 300000 >&2; exit 0", &err), 0); /* it need not all be read */
}

/* Returns when the process is gone, or waits only for its parent; the suite's timeout says when it is not. */
static void await_end(int pid)
{
	char name[64], line[256] = "";
	(void)snprintf(name, sizeof(name), "/proc/%d/stat", pid);
	while (strstr(line, ") Z") == NULL) {
		FILE *f = fopen(name, "r");
		if (f == NULL)
			return;
		if (fgets(line, sizeof(line), f) == NULL)
			line[0] = '\0';
		(void)fclose(f);
		(void)sched_yield();
	}
}

static void a_program_that_takes_too_long_is_ended_with_all_it_started(void **state)
{
	static const char *const records[] = {"1", NULL};
	struct sl_err err;
	(void)state;
	/* The second one ignores the request. */
	static const char *const programs[] = {"sleep 100000 & echo $! > $OUT; wait",
					       "trap '' TERM; sleep 100000 & echo $! > $OUT; while :; do wait; done"};
	int64_t timeout_ms = 300;
	for (size_t i = 0; i < 2;) {
		(void)unlink(place.path);
		const struct sl_sink_opts opts = {.timeout_ms = timeout_ms};
		assert_int_equal(run_with(programs[i], opts, records, &err, NULL), SL_ETIMEDOUT);
		assert_int_equal(err.error_class, SL_CLASS_TRANSIENT);
		char *pid = place_read(place.path, NULL);
		if (pid != NULL && strchr(pid, '\n') != NULL) {
			await_end(atoi(pid));
			i++;
		} else { /* on a busy machine it had not come so far */
			assert_true(timeout_ms < 30000);
			timeout_ms *= 4;
		}
		free(pid);
	}
}

static void the_program_starts_with_a_clean_table_of_signals_and_files(void **state)
{
	int fds[2];
	struct sl_err err;
	(void)state;
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGUSR1, SIG_IGN);
	assert_int_equal(pipe(fds), 0); /* without close-on-exec: the host's business, not the program's */
	assert_int_equal(
		run("ls /proc/self/fd | wc -l > $OUT; grep -E '^Sig(Ign|Blk)' /proc/self/status >> $OUT", &err), 0);
	(void)close(fds[0]);
	(void)close(fds[1]);
	(void)signal(SIGPIPE, SIG_DFL);
	(void)signal(SIGUSR1, SIG_DFL);
	expect_out("4\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"); /* 0, 1, 2 and the folder */
}

static void a_host_without_standard_descriptors_can_run_programs(void **state)
{
	(void)state;
	pid_t pid = fork();
	if (pid == 0) {
		struct sl_err err;
		(void)close(0);
		(void)close(1);
		(void)close(2);
		_exit(run("cat > $OUT; echo oops >&2; exit 69", &err) == SL_EUNAVAIL && strstr(err.msg, "oops") != NULL
			      ? 0
			      : 1);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	expect_out("{\"a\":1}\n{\"a\":2}\n");
}

static void a_host_that_reaps_every_child_is_an_error_that_names_sigchld(void **state)
{
	struct sl_err err;
	(void)state;
	(void)signal(SIGCHLD, SIG_IGN);
	int rc = run("exit 0", &err);
	(void)signal(SIGCHLD, SIG_DFL);
	assert_int_equal(rc, SL_EAGAIN);
	assert_non_null(strstr(err.msg, "SIGCHLD"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(the_exit_code_says_what_became_of_the_batch),
		TEST(the_program_gets_every_record_on_a_line),
		TEST(the_program_knows_its_batch),
		TEST(arguments_are_handed_over_as_they_are),
		TEST(the_last_lines_of_standard_error_are_in_the_message),
		TEST(a_program_that_takes_too_long_is_ended_with_all_it_started),
		TEST(the_program_starts_with_a_clean_table_of_signals_and_files),
		TEST(a_host_without_standard_descriptors_can_run_programs),
		TEST(a_host_that_reaps_every_child_is_an_error_that_names_sigchld),
	};
	return cmocka_run_group_tests_name("exec_sink", tests, NULL, NULL);
}
