/* SPDX-License-Identifier: Apache-2.0 */
#include "support/quiet.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The number after a name in /proc/PID/status; 0 without. */
static uint64_t number_of(const char *status, const char *name)
{
	const char *at = strstr(status, name);
	return at != NULL ? strtoull(at + strlen(name), NULL, 10) : 0;
}

/* Whether the thread sleeps (or has ended); how often it was given a processor so far is added to *turns. */
static bool sleeps(int tasks, const char *tid, uint64_t *turns)
{
	char path[300], status[4096];
	(void)snprintf(path, sizeof(path), "%s/status", tid);
	int fd = openat(tasks, path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, status, sizeof(status) - 1) : -1;
	if (fd >= 0)
		(void)close(fd);
	if (n <= 0)
		return true;
	status[n] = '\0';
	*turns += number_of(status, "\nvoluntary_ctxt_switches:") + number_of(status, "\nnonvoluntary_ctxt_switches:") +
		  1;
	const char *state = strstr(status, "\nState:\t");
	return state != NULL && strchr("SZX", state[8]) != NULL;
}

/* Whether all others sleep, and what distinguishes two such moments when a thread ran in between. */
static bool look(uint64_t *turns)
{
	char self[32];
	bool quiet = true;
	DIR *tasks = opendir("/proc/self/task");
	if (tasks == NULL)
		abort();
	(void)snprintf(self, sizeof(self), "%d", (int)gettid());
	*turns = 0;
	for (const struct dirent *e; quiet && (e = readdir(tasks)) != NULL;)
		if (e->d_name[0] != '.' && strcmp(e->d_name, self) != 0)
			quiet = sleeps(dirfd(tasks), e->d_name, turns);
	(void)closedir(tasks);
	return quiet;
}

void quiet_await(void)
{
	uint64_t before = 0, now = 0;
	bool was_quiet = false;
	for (;;) {
		bool is_quiet = look(&now);
		if (is_quiet && was_quiet && now == before)
			return;
		was_quiet = is_quiet;
		before = now;
		(void)sched_yield();
	}
}
