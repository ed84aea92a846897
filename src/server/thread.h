/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads of the server and the command, the conditions that they wait for, and the clocks. The library has its own
 * (base/thread.h), which go by its environment; these are always the real ones.
 *
 * Thread safety: all.
 */
#ifndef SLUICE_SERVER_THREAD_H
#define SLUICE_SERVER_THREAD_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

int64_t srv_clock_ms(void);      /* monotonic */
int64_t srv_clock_real_ms(void); /* Unix */
/* A moment of srv_clock_ms, for pthread_cond_timedwait on a condition of srv_cond_init. */
struct timespec srv_clock_at(int64_t ms);

/* A condition whose waits go by the monotonic clock. */
void srv_cond_init(pthread_cond_t *cond);

/* A thread that blocks every signal from its first moment: they are the main thread's, which has to wake from its poll,
 * and must not end a call to the store; without SIGPIPE, a reader that has gone is told by the write. name: at most 15
 * bytes. 0, or an errno. */
int srv_thread_start(pthread_t *out, const char *name, void *(*run)(void *), void *arg);

#endif
