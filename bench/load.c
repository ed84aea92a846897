/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How busy the machine was with other things. Where a stranger's process holds the processors, a thread that waits for
 * one sync at a time is woken at the scheduler's next tick, milliseconds late, while many threads hide that from each
 * other: ratios of one against many then say nothing. So the report says how much others took.
 */
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bench.h"

static double own_seconds(int who)
{
	struct rusage u;
	if (getrusage(who, &u) != 0)
		return 0;
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

int load_now(struct load *out)
{
	unsigned long long user, nice, system, idle, iowait, irq, softirq, steal;
	FILE *f = fopen("/proc/stat", "re");
	if (f == NULL)
		return -1;
	int n = fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle, &iowait, &irq,
		       &softirq, &steal);
	fclose(f);
	if (n != 8)
		return -1;
	double ticks = (double)sysconf(_SC_CLK_TCK);
	out->busy_seconds = (double)(user + nice + system + irq + softirq + steal) / ticks;
	out->all_seconds = out->busy_seconds + (double)(idle + iowait) / ticks;
	out->own_seconds = own_seconds(RUSAGE_SELF) + own_seconds(RUSAGE_CHILDREN);
	return 0;
}

double load_of_others(const struct load *from, const struct load *to)
{
	double all = to->all_seconds - from->all_seconds;
	double others = to->busy_seconds - from->busy_seconds - (to->own_seconds - from->own_seconds);
	return all > 0 && others > 0 ? others / all * 100 : 0;
}
