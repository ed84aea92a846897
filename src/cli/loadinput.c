/* SPDX-License-Identifier: Apache-2.0 */
#include "load.h"
#include "stop.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A read that a signal interrupts fails with SL_ECANCELLED: nothing more is read after the first one. */
static int64_t read_input(void *buf, size_t n, struct sl_err *err, void *ctx)
{
	struct loadinput *in = ctx;

	for (;;) {
		struct pollfd p[2] = {{.fd = in->fd, .events = POLLIN}, {.fd = stop_fd(), .events = POLLIN}};
		ssize_t got;

		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return sl_err_set_errno(err, errno, "%s", in->name);
		if (stop_requested())
			return sl_err_set(err, SL_ECANCELLED, "interrupted");
		if (!p[0].revents)
			continue;
		got = read(in->fd, buf, n);
		if (got >= 0) {
			in->read += (uint64_t)got;
			return got;
		}
		if (errno != EINTR && errno != EAGAIN)
			return sl_err_set_errno(err, errno, "%s", in->name);
	}
}

static int open_file(struct loadinput *in, struct sl_err *err)
{
	struct stat st;

	if (strcmp(in->path, "-") == 0) {
		in->name = "standard input";
		in->fd = STDIN_FILENO;
	} else {
		in->fd = open(in->path, O_RDONLY | O_CLOEXEC);
	}
	if (in->fd < 0 || fstat(in->fd, &st))
		return sl_err_set_errno(err, errno, "%s", in->name);
	if (S_ISDIR(st.st_mode))
		return sl_err_set(err, SL_EINVAL, "%s is a folder; name its files", in->name);
	return 0;
}

int loadinput_open(struct loadinput *in, struct cli *cli, const char *path, struct sl_records_opts opts)
{
	struct sl_err err = SL_ERR_INIT;

	*in = (struct loadinput){.cli = cli, .path = path, .name = path, .fd = -1};
	opts.env = &cli->env;
	if (open_file(in, &err) || sl_records_new(&in->records, read_input, in, &opts, &err))
		return loadinput_failed(in, &err);
	return 0;
}

int loadinput_failed(const struct loadinput *in, struct sl_err *err)
{
	return stop_requested() ? EXIT_INTERRUPTED : cli_fail(in->cli, err, in->name);
}

void loadinput_close(struct loadinput *in)
{
	sl_records_free(in->records);
	if (in->fd > STDIN_FILENO)
		close(in->fd);
	*in = (struct loadinput){.fd = -1};
}
