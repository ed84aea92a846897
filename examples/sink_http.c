/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Items to an HTTP endpoint as CloudEvents. The receiver here is busy at first (429 with Retry-After): the batch waits
 * for as long as asked and is sent again with the same Idempotency-Key.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <sluice/coordinator.h>
#include <sluice/sink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* A stand-in for a receiver: reads a request and answers it, one after the other, until the connection ends. */
static void *receive(void *arg)
{
	const char *answers[] = {"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n",
				 "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"};
	int fd = accept(*(int *)arg, NULL, NULL), requests = 0;
	FILE *in = fdopen(fd, "r");
	char line[4096];
	size_t body = 0;

	while (in && fgets(line, sizeof(line), in)) {
		if (strncasecmp(line, "Content-Length:", 15) == 0)
			body = strtoul(line + 15, NULL, 10);
		if (strcmp(line, "\r\n") != 0)
			continue;
		while (body > 0 && getc(in) != EOF)
			body--;
		const char *answer = answers[requests++ > 0];
		if (write(fd, answer, strlen(answer)) < 0)
			break;
	}
	if (in)
		fclose(in);
	return NULL;
}

static int listen_here(char *url, size_t size)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (bind(fd, (struct sockaddr *)&at, len) || listen(fd, 1) || getsockname(fd, (struct sockaddr *)&at, &len))
		return -1;
	snprintf(url, size, "http://127.0.0.1:%d/events", ntohs(at.sin_port));
	return fd;
}

static int send_items(const char *url)
{
	const struct sl_sink_opts http = {SL_SINK_OPTS_INIT, .body = SL_HTTP_CLOUD_EVENTS, .event_type = "shop.order"};
	const struct sl_dlq_opts letters = {SL_DLQ_OPTS_INIT};
	struct sl_coordinator_opts opts = {SL_COORDINATOR_OPTS_INIT, .workers = 1};
	struct sl_coordinator_report report = {.struct_size = sizeof(report)};
	struct sl_err err = SL_ERR_INIT;
	sl_sink sink = {0};
	sl_coordinator *c = NULL;
	char item[64];

	if (sl_dlq_open(&opts.unwritten.dead_letters, "dead-letters", &letters, &err) != 0 ||
	    sl_sink_open(&sink, url, &http, &err) != 0 || sl_coordinator_new(&c, &sink, &opts, &err) != 0)
		fprintf(stderr, "%s\n", err.msg);
	for (int i = 1; c && i <= 100; i++) {
		int n = snprintf(item, sizeof(item), "{\"order\":%d}", i);
		if (sl_coordinator_submit(c, item, (size_t)n, SL_UNLIMITED) != 0)
			fprintf(stderr, "%s was not taken\n", item);
	}
	if (c && sl_coordinator_submit(c, "{\"order\":", 9, SL_UNLIMITED) != 0) /* not JSON: a dead letter */
		fprintf(stderr, "the last one was not taken\n");
	if (c && sl_coordinator_stop(c, 10000, &report, &err) != 0)
		fprintf(stderr, "%s\n", err.msg);
	printf("%d written, %d dead\n", (int)report.written, (int)report.dead);
	sl_coordinator_free(c);
	sl_sink_close(&sink);
	sl_dlq_close(opts.unwritten.dead_letters);
	return err.code != 0;
}

int main(void)
{
	pthread_t receiver;
	char url[64];
	int fd, rc;

	setenv("no_proxy", "127.0.0.1", 1);
	fd = listen_here(url, sizeof(url));
	if (fd < 0 || pthread_create(&receiver, NULL, receive, &fd) != 0)
		return 1;
	rc = send_items(url);
	pthread_join(receiver, NULL);
	close(fd);
	return rc;
}
