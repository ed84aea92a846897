/* SPDX-License-Identifier: Apache-2.0 */
/* The watch over cases (tests/support/case_watch.c), seen from outside: this program runs itself with a case that
 * hangs. */
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

static int set_up(void **state)
{
	static char text[] = "set up";
	*state = text;
	return 0;
}

static void it_passes(void **state)
{
	assert_string_equal(*state, "set up");
}

static void it_hangs(void **state)
{
	(void)state;
	print_message("now it hangs\n");
	(void)fflush(stdout);
	for (;;)
		pause();
}

static int hang(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(it_passes, set_up),
		cmocka_unit_test(it_hangs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What the program printed until it ended, and how it ended. term: send it SIGTERM when the case hangs. */
static int run_hanging(const char *seconds, int term, char *out, size_t size)
{
	int fds[2], status = 0;
	size_t n = 0;
	assert_int_equal(pipe(fds), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)dup2(fds[1], STDOUT_FILENO);
		(void)close(fds[0]);
		(void)setenv("SLUICE_CASE_SECONDS", seconds, 1);
		(void)setenv("CMOCKA_MESSAGE_OUTPUT", "STDOUT", 1);
		(void)execl("/proc/self/exe", "test_case_watch", "hang", (char *)NULL);
		_exit(127);
	}
	(void)close(fds[1]);
	for (ssize_t got; n + 1 < size && (got = read(fds[0], out + n, size - 1 - n)) > 0; n += (size_t)got) {
		out[n + (size_t)got] = '\0';
		if (term && strstr(out, "now it hangs") != NULL) {
			assert_int_equal(kill(pid, SIGTERM), 0);
			term = 0;
		}
	}
	out[n] = '\0';
	(void)close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void a_case_that_hangs_is_named_and_ends_its_program(void **state)
{
	(void)state;
	char out[8192];
	int status = run_hanging("1", 0, out, sizeof(out));
	assert_non_null(strstr(out, "OK ] it_passes"));
	assert_non_null(strstr(out, "Bail out! it_hangs: hangs"));
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void a_program_that_is_asked_to_end_names_the_case_that_ran(void **state)
{
	(void)state;
	char out[8192];
	int status = run_hanging("0", 1, out, sizeof(out));
	assert_non_null(strstr(out, "Bail out! it_hangs: the program was asked to end"));
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

int main(int argc, char **argv)
{
	(void)argv;
	if (argc > 1)
		return hang();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_case_that_hangs_is_named_and_ends_its_program),
		cmocka_unit_test(a_program_that_is_asked_to_end_names_the_case_that_ran),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
