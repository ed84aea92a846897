/* SPDX-License-Identifier: Apache-2.0 */
/* What every start of a program needs: its input, its signals, its end. See child.h. */
#include "base/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int sl__child_wait(pid_t pid, int *status)
{
	while (waitpid(pid, status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

int sl__child_lift(int fd)
{
	if (fd < 0 || fd > 2)
		return fd;
	int high = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	int why = errno;
	(void)close(fd);
	errno = why;
	return high;
}

int sl__child_input(const char *name, const void *data, size_t len)
{
	int fd = sl__child_lift(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
	if (fd < 0)
		return -errno;
	for (const char *p = data; len > 0;) {
		ssize_t put = write(fd, p, len);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0) {
			int why = errno;
			(void)close(fd);
			return -why;
		}
		p += put;
		len -= (size_t)put;
	}
	(void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
	(void)lseek(fd, 0, SEEK_SET);
	return fd;
}

void sl__signals_default(void)
{
	/* What the kernel takes for "default, no flags, no mask". The C library keeps two signals to itself, and would
	 * hand them on as it found them. */
	static const unsigned long action[8];
	sigset_t all;
	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, NULL);
	for (long number = 1; number <= _NSIG - 1; number++)
		(void)syscall(SYS_rt_sigaction, number, action, NULL, (size_t)8); /* fails for SIGKILL and SIGSTOP */
}
