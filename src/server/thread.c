/* SPDX-License-Identifier: Apache-2.0 */
#include "server/thread.h"

#include <signal.h>

static int64_t read_ms(clockid_t clock)
{
	struct timespec t;
	(void)clock_gettime(clock, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t srv_clock_ms(void)
{
	return read_ms(CLOCK_MONOTONIC);
}

int64_t srv_clock_real_ms(void)
{
	return read_ms(CLOCK_REALTIME);
}

struct timespec srv_clock_at(int64_t ms)
{
	return (struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
}

void srv_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(cond, &attr);
	(void)pthread_condattr_destroy(&attr);
}

int srv_thread_start(pthread_t *out, const char *name, void *(*run)(void *), void *arg)
{
	sigset_t all, before;
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	int failed = pthread_create(out, NULL, run, arg);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (failed == 0)
		(void)pthread_setname_np(*out, name);
	return failed;
}
