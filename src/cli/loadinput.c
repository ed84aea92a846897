/* SPDX-License-Identifier: Apache-2.0 */
#include "load.h"
#include "stop.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The writer of a pipe was cut off in the middle of a line: what is there of it is not a row, although it may look like
 * one (12 of 1234). The sink gets the records before it. export has the same rule. */
static int refuse_cut(struct sl_err *err)
{
	return sl_err_set(err, SL_EDATA,
			  "it ends in the middle of a line: its writer was cut off. That line is not loaded; if it is "
			  "complete, end it with a line feed");
}

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
		if (got > 0)
			in->cut = ((const char *)buf)[got - 1] != '\n';
		if (got == 0 && in->cut && !in->is_file)
			return in->sampling ? SL_EAGAIN : refuse_cut(err);
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
	in->is_file = S_ISREG(st.st_mode);
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

int loadinput_infer(struct loadinput *in, size_t max_records, const struct sl_column **out, size_t *n,
		    struct sl_err *err)
{
	int rc;

	in->sampling = true;
	rc = sl_records_infer(in->records, max_records, out, n, err);
	in->sampling = false;
	return rc == SL_EAGAIN ? refuse_cut(err) : rc; /* not one complete record */
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
