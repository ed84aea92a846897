/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server of HTTP alone for tests of another process: http_fixture NAME=VALUE…, prints its address, ends with its
 * standard input, reloads at SIGHUP and says so.
 */
#include "server/http/http.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static void show(srv_request *r, void *ctx)
{
	(void)ctx;
	srv_json(r, 200,
		 json_pack("{s:s,s:i,s:s?,s:s?}", "actor", srv_actor(r), "role", (int)srv_role(r), "id",
			   srv_param(r, "id"), "authorization", srv_header(r, "Authorization")));
}

static void echo(srv_request *r, void *ctx)
{
	size_t n;
	const void *body = srv_body(r, &n);
	(void)ctx;
	srv_bytes(r, 200, "application/octet-stream", body, n);
}

static void rest(srv_request *r, void *ctx)
{
	(void)ctx;
	srv_json(r, 200, json_pack("{s:s}", "rest", srv_param(r, "path")));
}

static int add_pair(const char *name, const char *value, void *ctx)
{
	json_array_append_new(ctx, json_pack("[ss]", name, value));
	return 0;
}

static void query(srv_request *r, void *ctx)
{
	json_t *all = json_array();
	(void)ctx;
	srv_query_each(r, add_pair, all);
	srv_json(r, 200, all);
}

static ssize_t nothing(srv_stream *s, char *buf, size_t cap, void *ctx)
{
	(void)s;
	(void)buf;
	(void)cap;
	(void)ctx;
	return 0;
}

static void no_more(void *ctx)
{
	(void)ctx;
}

static void stream(srv_request *r, void *ctx)
{
	const struct srv_stream_ops ops = {.fill = nothing, .done = no_more};
	srv_stream_open(r, &ops, ctx);
}

/* As fast as the client takes it. */
static ssize_t plenty(srv_stream *s, char *buf, size_t cap, void *ctx)
{
	(void)s;
	(void)ctx;
	memset(buf, 'x', cap);
	return (ssize_t)cap;
}

static void flood(srv_request *r, void *ctx)
{
	const struct srv_stream_ops ops = {.fill = plenty, .done = no_more};
	srv_stream_open(r, &ops, ctx);
}

struct text {
	char *data;
	size_t len;
};

static int append(const char *data, size_t n, void *ctx)
{
	struct text *t = ctx;
	char *p = realloc(t->data, t->len + n);
	if (p == NULL)
		return SL_ENOMEM;
	memcpy(p + t->len, data, n);
	t->data = p;
	t->len += n;
	return 0;
}

static void metrics(srv_request *r, void *ctx)
{
	struct text t = {0};
	if (sl_metrics_render(ctx, append, &t, NULL) == 0)
		srv_bytes(r, 200, "text/plain; version=0.0.4", t.data, t.len);
	else
		srv_error(r, 500, "internal", "metrics");
	free(t.data);
}

static void page(srv_request *r, void *ctx)
{
	static const char text[] = "<!doctype html><title>page</title>";
	(void)ctx;
	srv_static(r, &(struct srv_content){"text/html; charset=utf-8", text, sizeof(text) - 1, NULL, "\"1\"", 0});
}

static const struct srv_route routes[] = {
	{"GET", "/", SRV_PUBLIC, SRV_QUICK, page, NULL},
	{"GET", "/public", SRV_PUBLIC, SRV_QUICK, show, NULL},
	{"GET", "/read", SRV_READ, SRV_QUICK, show, NULL},
	{"GET", "/pool", SRV_READ, 0, show, NULL},
	{"POST", "/write", SRV_WRITE, 0, show, "thing.write"},
	{"POST", "/admin", SRV_ADMIN, 0, show, "thing.admin"},
	{"DELETE", "/things/{id}", SRV_WRITE, 0, show, "thing.delete"},
	{"POST", "/echo", SRV_WRITE, 0, echo, NULL},
	{"DELETE", "/echo", SRV_WRITE, 0, echo, NULL},
	{"GET", "/files/{path*}", SRV_PUBLIC, SRV_QUICK, rest, NULL},
	{"GET", "/query", SRV_PUBLIC, SRV_QUICK, query, NULL},
	{"GET", "/stream", SRV_READ, 0, stream, NULL},
	{"GET", "/flood", SRV_READ, 0, flood, NULL},
	{"GET", "/metrics", SRV_PUBLIC, 0, metrics, NULL},
};

static int64_t number(char **argv, const char *name)
{
	size_t n = strlen(name);
	for (; *argv != NULL; argv++)
		if (strncmp(*argv, name, n) == 0 && (*argv)[n] == '=')
			return strtoll(*argv + n + 1, NULL, 10);
	return 0;
}

static const char *text(char **argv, const char *name)
{
	size_t n = strlen(name);
	for (; *argv != NULL; argv++)
		if (strncmp(*argv, name, n) == 0 && (*argv)[n] == '=')
			return *argv + n + 1;
	return NULL;
}

static void serve(srv_http *h, int signals)
{
	struct pollfd p[2] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
	struct signalfd_siginfo info;
	while (p[0].revents == 0) {
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return;
		if (p[1].revents != 0 && read(signals, &info, sizeof(info)) == sizeof(info)) {
			struct sl_err err = SL_ERR_INIT;
			printf("%s\n", srv_http_reload(h, &err) == 0 ? "reloaded" : err.msg);
			fflush(stdout);
		}
	}
}

int main(int argc, char **argv)
{
	struct sl_err err = SL_ERR_INIT;
	srv_http *h = NULL;
	sl_metrics *m = NULL;
	sigset_t hup;
	const char *host = text(argv, "host");
	(void)argc;
	srv_http_wipe_json();
	sigemptyset(&hup);
	sigaddset(&hup, SIGHUP);
	sigprocmask(SIG_BLOCK, &hup, NULL);
	const struct srv_http_opts opts = {
		.listen = text(argv, "listen"),
		.tls_cert_file = text(argv, "cert"),
		.tls_key_file = text(argv, "key"),
		.tokens_file = text(argv, "tokens"),
		.hosts = &host,
		.n_hosts = host != NULL,
		.body_max = number(argv, "body_max"),
		.header_deadline_ms = number(argv, "header_deadline_ms"),
		.request_deadline_ms = number(argv, "request_deadline_ms"),
		.idle_ms = number(argv, "idle_ms"),
		.connections_max = (int32_t)number(argv, "connections_max"),
		.connections_per_address = (int32_t)number(argv, "connections_per_address"),
		.behind_proxy = number(argv, "behind_proxy") != 0,
		.access_log = (enum srv_access_log)number(argv, "access_log"),
		.access_fd = STDERR_FILENO,
	};
	struct srv_http_opts with = opts;
	int rc = sl_metrics_new(&m, NULL, &err);
	with.metrics = m;
	rc = rc != 0 ? rc : srv_http_new(&h, &with, &err);
	rc = rc != 0 ? rc : srv_http_add(h, routes, sizeof(routes) / sizeof(routes[0]), m, &err);
	rc = rc != 0 ? rc : srv_http_start(h, &err);
	if (rc == 0) {
		printf("%s\n", srv_http_address(h));
		fflush(stdout);
		serve(h, signalfd(-1, &hup, SFD_CLOEXEC));
		rc = srv_http_stop(h, 60000, &err); /* only a hang takes as long */
	}
	if (rc != 0)
		fprintf(stderr, "%s\n", err.msg);
	srv_http_free(h);
	sl_metrics_free(m);
	return rc != 0 ? sl_err_exit_code(rc) : 0;
}
