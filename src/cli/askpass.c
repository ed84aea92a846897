/* SPDX-License-Identifier: Apache-2.0 */
/* The passphrase of a repository: from a file, or asked for on the terminal. */
#include "askpass.h"

#include "stop.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

void askpass_wipe(struct askpass *p)
{
	explicit_bzero(p, sizeof(*p));
}

/* ---- the terminal ---- */

/* Ask, and read up to the end of the line, byte by byte, so that nothing of it stays in a buffer. Without an echo,
 * which comes back however the question ends: also Ctrl-Z waits until then. 0, or an exit code. */
static int ask_once(struct cli *cli, const char *prompt, struct askpass *out)
{
	struct pollfd fds[2] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = stop_fd(), .events = POLLIN}};
	struct termios before, silent;
	sigset_t suspend, mask;
	char c = 0;
	int rc = 0;

	if (tcgetattr(STDIN_FILENO, &before)) {
		cli_say(cli, SL_LOG_ERROR, "the terminal: %s", strerror(errno));
		return EXIT_OUTPUT;
	}
	sigemptyset(&suspend);
	sigaddset(&suspend, SIGTSTP);
	(void)sigprocmask(SIG_BLOCK, &suspend, &mask);
	silent = before;
	silent.c_lflag &= ~(tcflag_t)ECHO;
	(void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &silent);
	fprintf(stderr, "%s: ", prompt);
	fflush(stderr);

	for (out->len = 0; rc == 0;) {
		/* poll also sees a signal that came before, which would leave read waiting. */
		bool ready = poll(fds, 2, -1) > 0 && fds[0].revents;
		ssize_t n = ready ? read(STDIN_FILENO, &c, 1) : -1;

		if (stop_requested()) {
			rc = cli_interrupted(cli);
		} else if (n < 0 && (!ready || errno == EINTR)) {
			continue;
		} else if (n < 0) {
			cli_say(cli, SL_LOG_ERROR, "read the passphrase: %s", strerror(errno));
			rc = EXIT_OUTPUT;
		} else if (n == 0 || c == '\n') {
			break;
		} else if (out->len == sizeof(out->bytes) - 1) {
			cli_say(cli, SL_LOG_ERROR, "the passphrase is too long");
			rc = sl_err_exit_code(SL_EKEY);
		} else {
			out->bytes[out->len++] = c;
		}
	}
	(void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
	fputs("\n", stderr);
	(void)sigprocmask(SIG_SETMASK, &mask, NULL);
	return rc;
}

static const char *file_of(const struct parsed *args, const struct askpass_question *q)
{
	const char *path = opt_str(args, q->option);

	if (path == NULL && q->environment != NULL)
		path = getenv(q->environment);
	return path != NULL && *path ? path : NULL;
}

bool askpass_has_file(const struct parsed *args, const struct askpass_question *question)
{
	return file_of(args, question) != NULL;
}

int askpass(struct askpass *out, struct cli *cli, const struct parsed *args, const struct askpass_question *question)
{
	const char *path = file_of(args, question);
	struct sl_err err = SL_ERR_INIT;
	struct askpass second;
	int rc;

	out->len = 0;
	if (path != NULL)
		return srv_passphrase_read(path, out->bytes, &out->len, &err) ? cli_fail(cli, &err, NULL) : 0;
	if (!isatty(STDIN_FILENO)) {
		cli_say(cli, SL_LOG_ERROR, "no terminal to ask for the passphrase; give --%s=FILE%s%s",
			question->option, question->environment != NULL ? " or set " : "",
			question->environment != NULL ? question->environment : "");
		return sl_err_exit_code(SL_EKEY);
	}
	rc = ask_once(cli, question->prompt, out);
	if (rc == 0 && out->len == 0) {
		cli_say(cli, SL_LOG_ERROR, "the passphrase is empty");
		rc = sl_err_exit_code(SL_EKEY);
	}
	if (rc != 0 || !question->twice)
		return rc;
	rc = ask_once(cli, "Repeat the passphrase", &second);
	if (rc == 0 && (second.len != out->len || memcmp(second.bytes, out->bytes, out->len) != 0)) {
		cli_say(cli, SL_LOG_ERROR, "the two passphrases differ");
		rc = sl_err_exit_code(SL_EKEY);
	}
	askpass_wipe(&second);
	return rc;
}
