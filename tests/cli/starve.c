/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that runs out: linked into the command with --wrap, it fails the allocations of the command, of the library
 * and of jansson that SLUICE_STARVE names: "N" fails the Nth, "0" none. SLUICE_STARVED is a file that gets a line when
 * one has failed, and at the end with how many there were.
 */
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
char *__wrap_strdup(const char *s);
int __wrap_asprintf(char **out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static _Atomic unsigned long calls;
static unsigned long nth;
static const char *told;

static void report(const char *what, unsigned long n)
{
	char line[64];
	int fd = told ? open(told, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
	ssize_t done = 0;

	if (fd < 0)
		return;
	(void)snprintf(line, sizeof(line), "%s %lu\n", what, n);
	done = write(fd, line, strlen(line));
	(void)done;
	(void)close(fd);
}

__attribute__((constructor)) static void read_plan(void)
{
	const char *plan = getenv("SLUICE_STARVE");

	nth = plan ? strtoul(plan, NULL, 10) : 0;
	told = plan ? getenv("SLUICE_STARVED") : NULL;
	json_set_alloc_funcs(__wrap_malloc, free);
}

__attribute__((destructor)) static void report_all(void)
{
	report("of", calls);
}

static int starves(void)
{
	unsigned long call = ++calls;

	if (!nth || call != nth)
		return 0;
	report("failed", call);
	return 1;
}

void *__wrap_malloc(size_t size)
{
	return starves() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return starves() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	return starves() ? NULL : __real_realloc(p, size);
}

char *__wrap_strdup(const char *s)
{
	size_t n = strlen(s) + 1;
	char *copy = __wrap_malloc(n);

	return copy ? memcpy(copy, s, n) : NULL;
}

int __wrap_asprintf(char **out, const char *fmt, ...)
{
	va_list ap;
	int n = -1;

	va_start(ap, fmt);
	if (!starves())
		n = vasprintf(out, fmt, ap);
	va_end(ap);
	return n;
}
