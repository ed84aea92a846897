/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command for tests: exec_counter FILE LINES writes "o N" to stdout and, in between, "e N" to stderr, for N = 1, 2 …
 * LINES, in pieces of odd sizes, and keeps in FILE what was written for sure: its process id and the last N of both, as
 * three 64-bit numbers. From FILE a test knows what must have been captured.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void put(int fd, const char *text, int n)
{
	for (int done = 0; done < n;) {
		ssize_t put = write(fd, text + done, (size_t)(n - done));
		if (put <= 0)
			_exit(3);
		done += (int)put;
	}
}

int main(int argc, char **argv)
{
	char line[64];
	if (argc != 3)
		return 64;
	int fd = open(argv[1], O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0 || ftruncate(fd, 24) != 0)
		return 2;
	volatile uint64_t *done = mmap(NULL, 24, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (done == MAP_FAILED)
		return 2;
	done[0] = (uint64_t)getpid();
	for (uint64_t n = 1, end = strtoull(argv[2], NULL, 10); n <= end; n++) {
		put(1, line, snprintf(line, sizeof(line), "o %llu\n", (unsigned long long)n));
		done[1] = n;
		put(2, line, snprintf(line, sizeof(line), "e %llu\n", (unsigned long long)n));
		done[2] = n;
		if (n % 64 == 0)
			put(3, line, snprintf(line, sizeof(line), "{\"progress\":%llu}\n", (unsigned long long)n));
	}
	return 0;
}
