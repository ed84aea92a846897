/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The load on beanstalkd in the job benchmark, driven line by line as peer.js is: bench/jobs/run writes "COMMAND
 * ARGUMENT…" to stdin and reads one JSON line per command. The server is on port BENCH_URL of this host. Every
 * connection has its own thread with blocking I/O, so that the client is not what is measured.
 * Commands: bulk N CONNECTIONS (up to 1,000 puts unanswered) | single N CONNECTIONS (one) | drain N CONNECTIONS
 * (reserve 200, then delete them) | stop
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS_MAX 64
#define PUTS_AHEAD 1000
#define RESERVES_AHEAD 200
#define LINE_MAX_BYTES 128 /* of a request, and of a line in an answer */

static const char put[] = "put 0 0 60 7\r\n{\"i\":1}\r\n";

struct lane {
	pthread_t thread;
	int fd;
	long ahead;
	char *out;
	size_t n_out;
	char in[1 << 16]; /* in[at..n_in) is unread */
	size_t at, n_in;
};

static struct lane lanes[CONNECTIONS_MAX];
static char outs[CONNECTIONS_MAX][PUTS_AHEAD * LINE_MAX_BYTES];
static atomic_long left;

static int64_t now_ns(void)
{
	struct timespec t;
	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void die(const char *what, const char *detail)
{
	printf("{\"error\":\"beanstalkd: %s: %s\"}\n", what, detail);
	exit(1);
}

static int connect_to(int port)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_port = htons((uint16_t)port),
				      .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
	    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) != 0)
		die("connect", "failed");
	return fd;
}

/* ---- requests and answers ---- */

static void add(struct lane *l, const char *text, size_t n)
{
	memcpy(l->out + l->n_out, text, n);
	l->n_out += n;
}

static void flush_out(struct lane *l)
{
	for (size_t at = 0; at < l->n_out;) {
		ssize_t n = write(l->fd, l->out + at, l->n_out - at);
		if (n <= 0)
			die("write", "failed");
		at += (size_t)n;
	}
	l->n_out = 0;
}

static void read_line(struct lane *l, char line[LINE_MAX_BYTES])
{
	for (size_t n = 0;;) {
		while (l->at < l->n_in) {
			char c = l->in[l->at++];
			if (c == '\n') {
				line[n > 0 ? n - 1 : 0] = '\0';
				return;
			}
			if (n == LINE_MAX_BYTES - 1)
				die("answer", "too long");
			line[n++] = c;
		}
		ssize_t got = read(l->fd, l->in, sizeof(l->in));
		if (got <= 0)
			die("read", "failed");
		l->at = 0;
		l->n_in = (size_t)got;
	}
}

static void expect(struct lane *l, const char *prefix, char line[LINE_MAX_BYTES])
{
	read_line(l, line);
	if (strncmp(line, prefix, strlen(prefix)) != 0)
		die("answer", line);
}

/* ---- lanes ---- */

/* How many of those that are left this lane takes next; 0: none are. */
static long take(long most)
{
	long before = atomic_fetch_sub(&left, most);
	return before <= 0 ? 0 : before < most ? before : most;
}

static void *put_lane(void *arg)
{
	struct lane *l = arg;
	char line[LINE_MAX_BYTES];
	for (long n; (n = take(l->ahead)) > 0;) {
		for (long i = 0; i < n; i++)
			add(l, put, sizeof(put) - 1);
		flush_out(l);
		for (long i = 0; i < n; i++)
			expect(l, "INSERTED ", line);
	}
	return NULL;
}

static void *drain_lane(void *arg)
{
	struct lane *l = arg;
	char line[LINE_MAX_BYTES];
	static const char reserve[] = "reserve\r\n";
	for (long n; (n = take(l->ahead)) > 0;) {
		for (long i = 0; i < n; i++)
			add(l, reserve, sizeof(reserve) - 1);
		flush_out(l);
		for (long i = 0; i < n; i++) {
			char text[LINE_MAX_BYTES];
			expect(l, "RESERVED ", line);
			int k = snprintf(text, sizeof(text), "delete %llu\r\n", strtoull(line + 9, NULL, 10));
			add(l, text, (size_t)k);
			read_line(l, line);
		}
		flush_out(l);
		for (long i = 0; i < n; i++)
			expect(l, "DELETED", line);
	}
	return NULL;
}

static void run(int port, long n, long connections, long ahead, void *(*lane)(void *))
{
	if (connections < 1 || connections > CONNECTIONS_MAX)
		die("connections", "1 to 64");
	for (long i = 0; i < connections; i++) {
		lanes[i] = (struct lane){.fd = connect_to(port), .ahead = ahead, .out = outs[i]};
	}
	int64_t started = now_ns();
	atomic_store(&left, n);
	for (long i = 0; i < connections; i++)
		if (pthread_create(&lanes[i].thread, NULL, lane, &lanes[i]) != 0)
			die("thread", "failed");
	for (long i = 0; i < connections; i++)
		(void)pthread_join(lanes[i].thread, NULL);
	printf("{\"ms\":%.3f}\n", (double)(now_ns() - started) / 1e6);
	for (long i = 0; i < connections; i++)
		(void)close(lanes[i].fd);
}

static bool obey(int port, const char *line)
{
	char command[16] = "";
	long n = 0, connections = 1;
	if (sscanf(line, "%15s %ld %ld", command, &n, &connections) < 1)
		return true;
	bool go_on = strcmp(command, "stop") != 0;
	if (strcmp(command, "bulk") == 0)
		run(port, n, connections, PUTS_AHEAD, put_lane);
	else if (strcmp(command, "single") == 0)
		run(port, n, connections, 1, put_lane);
	else if (strcmp(command, "drain") == 0)
		run(port, n, connections, RESERVES_AHEAD, drain_lane);
	else if (go_on)
		die("unknown command", command);
	else
		printf("{\"done\":0}\n");
	(void)fflush(stdout);
	return go_on;
}

int main(void)
{
	char line[256];
	const char *port = getenv("BENCH_URL");
	if (port == NULL) {
		fputs("sluice-bench-beanstalk is driven by bench/jobs/run\n", stderr);
		return 64;
	}
	printf("{\"ready\":true}\n");
	(void)fflush(stdout);
	while (fgets(line, sizeof(line), stdin) != NULL && obey(atoi(port), line))
		;
	return 0;
}
