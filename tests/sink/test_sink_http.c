/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP sink passes the suite: "lines" (the server does not say which item is poison), "array" (it names one at a
 * time; headers come from a file), "events" (it names all), "csv" (records become JSON objects), "tls" (JSON lines
 * through TLS).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sink/contract.h"
#include "sink/http_server.h"
#include "sink/place.h"

#define SECRET "open-sesame"

static struct http_server server;
static struct place place;
static const char *way;
static const char *ca_file, *header_file;

static bool is(const char *name)
{
	return strcmp(way, name) == 0;
}

static int set_up(void *ctx)
{
	(void)ctx;
	(void)http_server_command(&server, "clear");
	if (is("array"))
		(void)http_server_command(&server, "always name");
	if (is("events"))
		(void)http_server_command(&server, "always names");
	return 0;
}

static int open_http(sl_sink *out, const struct sl_env *env, struct sl_err *err, void *ctx)
{
	static const char *const columns[] = {"id", "body"}, *const headers[] = {"X-Key: " SECRET};
	struct sl_sink_opts opts = {SL_SINK_OPTS_INIT,         .env = env,     .timeout_ms = 100000,
				    .headers = headers,        .n_headers = 1, .ca_file = ca_file,
				    .header_file = header_file};
	char url[160];
	(void)ctx;
	if (is("csv")) {
		opts.format = SL_ROWS_CSV;
		opts.columns = columns;
		opts.n_columns = 2;
	}
	opts.body = is("array") ? SL_HTTP_JSON_ARRAY : is("events") ? SL_HTTP_CLOUD_EVENTS : SL_HTTP_JSON_LINES;
	(void)snprintf(url, sizeof(url), "http%s://me:" SECRET "@127.0.0.1:%d/in?key=" SECRET, is("tls") ? "s" : "",
		       server.port);
	return sl_sink_open(out, url, &opts, err);
}

static size_t item(char *out, size_t cap, uint64_t id, void *ctx)
{
	(void)ctx;
	return (size_t)snprintf(out, cap, is("csv") ? "%llu,\"a, \"\"b\"\"\"" : "{\"id\":%llu,\n\"body\":\"item\"}",
				(unsigned long long)id);
}

/* By turns: what is no record, and what the server does not take. */
static size_t poison(char *out, size_t cap, uint64_t id, void *ctx)
{
	static const char *const json[] = {"{\"id\":%llu,\"body\":\"poison\"}", "{\"id\":%llu,"};
	static const char *const csv[] = {"%llu,poison", "%llu,\"half"};
	(void)ctx;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	return (size_t)snprintf(out, cap, (is("csv") ? csv : json)[id % 2], (unsigned long long)id);
#pragma GCC diagnostic pop
}

static void read_back(struct sink_ids *out, void *ctx)
{
	char *end;
	(void)ctx;
	for (const char *p = http_server_command(&server, "ids"); *p != '\0'; p = end + (*end == ' '))
		sink_ids_add(out, strtoull(p, &end, 10));
}

static void go_down(void *ctx)
{
	(void)ctx;
	(void)http_server_command(&server, "down");
}

static void come_up(void *ctx)
{
	(void)ctx;
	(void)http_server_command(&server, "up");
}

static void hang(void *ctx)
{
	(void)ctx;
	(void)http_server_command(&server, "always hang");
}

static void await_hang(void *ctx)
{
	(void)ctx;
	(void)http_server_command(&server, "hung");
}

static void let_go(void *ctx)
{
	(void)ctx;
	(void)http_server_command(&server, "release");
}

int main(int argc, char **argv)
{
	static const char *ways[] = {"lines", "array", "events", "csv", "tls", NULL};
	const struct sink_fixture f = {.name = "http",
				       .set_up = set_up,
				       .open = open_http,
				       .item = item,
				       .poison_item = poison,
				       .read_back = read_back,
				       .break_target = go_down,
				       .mend_target = come_up,
				       .hang = hang,
				       .await_hang = await_hang,
				       .let_go = let_go,
				       .secret = SECRET};
	way = argv[argc - 1];
	if (place_init(&place, "file") != 0)
		return 1;
	if (is("tls")) {
		http_server_certificate(place.path);
		ca_file = place.path;
	}
	if (is("array")) {
		place_write(place.path, "X-Other: " SECRET "\n", strlen("X-Other: " SECRET "\n"));
		header_file = place.path;
	}
	http_server_start(&server, ca_file, ca_file);
	int failed = sink_contract_run(&f, sink_contract_part(argc, argv, ways));
	http_server_stop(&server);
	place_fini(&place);
	return failed;
}
