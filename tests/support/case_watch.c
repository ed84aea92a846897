/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Around cmocka's runner (every test program is linked with --wrap for it): a case that hangs is named, and ends its
 * program within its own limit, instead of meson killing the whole program without a word.
 *
 * SLUICE_CASE_SECONDS: how long a case may take; 0: for ever. By default 200 s, and no limit where the size of a loop
 * is set by a variable (docs/testing.md) or a sanitizer slows everything down: meson's own limit holds there, and the
 * case is named when it ends the program (SIGTERM).
 *
 * Cases run in their order, so that the setup of each, which is called before it, knows which one it is.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define CASE_SECONDS 200

int __real__cmocka_run_group_tests(const char *group, const struct CMUnitTest *tests, size_t n, CMFixtureFunction setup,
				   CMFixtureFunction teardown);
int __wrap__cmocka_run_group_tests(const char *group, const struct CMUnitTest *tests, size_t n, CMFixtureFunction setup,
				   CMFixtureFunction teardown);

static struct {
	const struct CMUnitTest *tests; /* as the program has them */
	size_t next;
	const char *volatile name; /* of the case that runs */
	long seconds;              /* 0: no limit */
	pid_t pid;
	timer_t timer;
} watch;

/* Only calls that a signal handler may make. */
static void say_where(const char *why)
{
	const char *parts[] = {"\nBail out! ", watch.name, why, "\n"};
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (write(STDOUT_FILENO, parts[i], strlen(parts[i])) < 0)
			return;
}

static void on_limit(int signal_number)
{
	(void)signal_number;
	if (getpid() != watch.pid) /* a child that a test has forked has no timer, only the handler */
		return;
	say_where(": hangs, over its limit (SLUICE_CASE_SECONDS)");
	abort();
}

static void on_term(int signal_number)
{
	if (getpid() == watch.pid)
		say_where(": the program was asked to end while this case ran");
	(void)signal(signal_number, SIG_DFL);
	(void)raise(signal_number);
}

/* seconds 0: the timer is off. */
static void begin(const char *name, long seconds)
{
	const struct itimerspec end = {.it_value.tv_sec = seconds};
	watch.name = name;
	if (watch.seconds > 0)
		(void)timer_settime(watch.timer, 0, &end, NULL);
}

static int begin_case(void **state)
{
	const struct CMUnitTest *t = &watch.tests[watch.next++];
	begin(t->name, watch.seconds);
	return t->setup_func != NULL ? t->setup_func(state) : 0;
}

static long limit(void)
{
	static const char *const sizes[] = {"SLUICE_TEST_SECONDS", "SLUICE_CRASH_STATES", "SLUICE_KILL_CYCLES",
					    "SLUICE_SIM_SEEDS",    "SLUICE_STRESS_SEEDS", "SLUICE_WRITER_SEEDS",
					    "SLUICE_BACKUP_SEEDS", "SLUICE_TEST_STATES",  "SLUICE_DAMAGE_STRIDE"};
	const char *given = getenv("SLUICE_CASE_SECONDS");
	if (given != NULL)
		return strtol(given, NULL, 10);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return 0;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
	return 0;
#endif
#endif
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		if (getenv(sizes[i]) != NULL)
			return 0;
	return CASE_SECONDS;
}

int __wrap__cmocka_run_group_tests(const char *group, const struct CMUnitTest *tests, size_t n, CMFixtureFunction setup,
				   CMFixtureFunction teardown)
{
	struct CMUnitTest *watched = calloc(n + 1, sizeof(*watched));
	if (watched == NULL)
		return -1;
	for (size_t i = 0; i < n; i++) {
		watched[i] = tests[i];
		watched[i].setup_func = begin_case;
	}
	watch.tests = tests;
	watch.next = 0;
	watch.pid = getpid();
	watch.seconds = limit();
	/* A signal that no other code uses, and no thread: some tests must be the only one of their process. */
	struct sigaction now, term = {.sa_handler = on_term}, over = {.sa_handler = on_limit};
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMAX - 3};
	if (watch.seconds > 0 &&
	    (sigaction(SIGRTMAX - 3, &over, NULL) != 0 || timer_create(CLOCK_MONOTONIC, &event, &watch.timer) != 0))
		watch.seconds = 0;
	if (sigaction(SIGTERM, NULL, &now) == 0 && now.sa_handler == SIG_DFL) /* what the program has set stays */
		(void)sigaction(SIGTERM, &term, NULL);
	begin("setup of the group", watch.seconds);
	int failed = __real__cmocka_run_group_tests(group, watched, n, setup, teardown);
	begin("end of the program", 0);
	if (watch.seconds > 0)
		(void)timer_delete(watch.timer);
	free(watched);
	return failed;
}
