/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Redis with appendonly yes and appendfsync always: a server of our own on a Unix socket in the scratch folder (no TCP
 * port, no snapshots, no rewrite of the file), a connection per thread, an RPUSH per record. The list is dropped
 * between slices to bound its memory. The server dies with us.
 */
#include <errno.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

struct red {
	pid_t server;
	int dir_fd;
	char socket[64]; /* through dir_fd: a socket's path must be short */
	redisContext *control;
};

static void server_exec(const char *dir)
{
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)setpgid(0, 0);
	int null = open("/dev/null", O_RDWR);
	if (null >= 0) {
		(void)dup2(null, 0);
		(void)dup2(null, 1);
		(void)dup2(null, 2);
	}
	execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", "redis.sock", "--dir", dir,
	       "--appendonly", "yes", "--appendfsync", "always", "--save", "", "--auto-aof-rewrite-percentage", "0",
	       "--daemonize", "no", "--logfile", "redis.log", (char *)NULL);
	_exit(127);
}

/* Up to ten seconds for the server to listen. */
static int red_connect(struct red *r, redisContext **out, struct sl_err *err)
{
	for (int i = 0; i < 1000 && waitpid(r->server, NULL, WNOHANG) == 0; i++) {
		redisContext *c = redisConnectUnix(r->socket);
		redisReply *reply = c != NULL && c->err == 0 ? redisCommand(c, "PING") : NULL;
		if (reply != NULL && reply->type == REDIS_REPLY_STATUS) {
			freeReplyObject(reply);
			*out = c;
			return 0;
		}
		if (reply != NULL)
			freeReplyObject(reply);
		if (c != NULL)
			redisFree(c);
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
	return sl_err_set(err, SL_EUNAVAIL, "redis-server did not start");
}

static int red_open(void **state, const struct place *place, struct sl_err *err)
{
	struct red *r = calloc(1, sizeof(*r));
	if (r == NULL)
		return sl_err_set(err, SL_ENOMEM, "redis");
	*state = r;
	r->dir_fd = open(place->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (r->dir_fd < 0)
		return sl_err_set_errno(err, errno, "open %s", place->dir);
	(void)snprintf(r->socket, sizeof(r->socket), "/proc/self/fd/%d/redis.sock", r->dir_fd);
	r->server = fork();
	if (r->server == 0)
		server_exec(place->dir);
	if (r->server < 0)
		return sl_err_set_errno(err, errno, "fork");
	return red_connect(r, &r->control, err);
}

static int red_worker_open(void **worker, void *state, struct sl_err *err)
{
	redisContext *c = NULL;
	int rc = red_connect(state, &c, err);
	*worker = c;
	return rc;
}

static void red_worker_close(void *worker)
{
	redisFree(worker);
}

static int red_append(void *worker, const void *payload, size_t n, struct sl_err *err)
{
	redisContext *c = worker;
	const char *argv[] = {"RPUSH", "log", payload};
	const size_t lengths[] = {5, 3, n};
	redisReply *reply = redisCommandArgv(c, 3, argv, lengths);
	if (reply == NULL)
		return sl_err_set(err, SL_EUNAVAIL, "redis: %s", c->errstr);
	int rc = 0;
	if (reply->type != REDIS_REPLY_INTEGER)
		rc = sl_err_set(err, SL_EIO, "redis: %s", reply->type == REDIS_REPLY_ERROR ? reply->str : "reply");
	freeReplyObject(reply);
	return rc;
}

static void red_settle(void *state)
{
	struct red *r = state;
	redisReply *reply = redisCommand(r->control, "DEL log");
	if (reply != NULL)
		freeReplyObject(reply);
}

static void red_close(void *state)
{
	struct red *r = state;
	if (r->control != NULL)
		redisFree(r->control);
	if (r->server > 0 && waitpid(r->server, NULL, WNOHANG) == 0) {
		(void)kill(r->server, SIGKILL); /* its data goes next */
		(void)waitpid(r->server, NULL, 0);
	}
	if (r->dir_fd >= 0)
		close(r->dir_fd);
	free(r);
}

const struct contender contender_redis = {
	.name = "redis",
	.settings = "appendonly, appendfsync=always, no snapshots, Unix socket, a connection per thread, one RPUSH per "
		    "record",
	.open = red_open,
	.worker_open = red_worker_open,
	.append = red_append,
	.worker_close = red_worker_close,
	.settle = red_settle,
	.close = red_close,
};
