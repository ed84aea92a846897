/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sink/http_server.h"

static void die(const char *what)
{
	perror(what);
	abort();
}

static const char *ask(struct http_server *s)
{
	if (fflush(s->to) != 0)
		die("the HTTP server's input");
	ssize_t n = getline(&s->reply, &s->cap, s->from);
	if (n <= 0)
		die("the HTTP server has ended");
	s->reply[n - 1] = '\0';
	return s->reply;
}

static void launch(struct http_server *s, char *const argv[])
{
	int in[2], out[2];
	posix_spawn_file_actions_t files;
	if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
		die("pipe2");
	(void)posix_spawn_file_actions_init(&files);
	(void)posix_spawn_file_actions_adddup2(&files, in[0], 0);
	(void)posix_spawn_file_actions_adddup2(&files, out[1], 1);
	if (posix_spawnp(&s->pid, argv[0], &files, NULL, argv, environ) != 0)
		die("python3");
	(void)posix_spawn_file_actions_destroy(&files);
	(void)close(in[0]);
	(void)close(out[1]);
	s->to = fdopen(in[1], "w");
	s->from = fdopen(out[0], "r");
}

void http_server_certificate(const char *path)
{
	char command[512];
	(void)snprintf(command, sizeof(command),
		       "exec openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "
		       "/CN=test -addext subjectAltName=IP:127.0.0.1 -keyout %s -out %s 2>/dev/null",
		       path, path);
	if (system(command) != 0)
		die("openssl");
}

void http_server_start(struct http_server *s, const char *certificate, const char *key)
{
	char python[] = "python3", *script = strdup(TEST_HTTP_SERVER);
	char *cert = certificate != NULL ? strdup(certificate) : NULL, *its_key = key != NULL ? strdup(key) : NULL;
	char *const argv[] = {python, script, cert, its_key, NULL};
	*s = (struct http_server){.pid = -1};
	/* A proxy of the machine is not for a server on it. */
	(void)setenv("no_proxy", "*", 1);
	launch(s, argv);
	free(script);
	free(cert);
	free(its_key);
	s->port = atoi(ask(s));
}

void http_server_stop(struct http_server *s)
{
	int status;
	if (s->pid < 0)
		return;
	(void)fclose(s->to);
	(void)waitpid(s->pid, &status, 0);
	(void)fclose(s->from);
	free(s->reply);
	*s = (struct http_server){.pid = -1};
}

const char *http_server_command(struct http_server *s, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	(void)vfprintf(s->to, fmt, args);
	va_end(args);
	(void)fputc('\n', s->to);
	return ask(s);
}

struct http_counts http_server_counts(struct http_server *s)
{
	struct http_counts c;
	if (sscanf(http_server_command(s, "counts"), "%u %u %u %u", &c.connections, &c.requests, &c.batches,
		   &c.repeats) != 4)
		die(s->reply);
	return c;
}
