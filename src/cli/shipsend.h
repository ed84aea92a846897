/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where lines go: a Sluice server, or any sink.
 *
 * http://host:port without a path is a Sluice server, as 'sluice up' prints it; so is every URL behind "sluice:". An
 * HTTP URL with a path, or with --body, is an endpoint that gets rows (shiprow.h) as POST requests. Nothing is probed:
 * a server that is away must not be taken for something else.
 *
 * A server knows every stream's mark and takes each line once. Of a sink the log itself knows what was delivered: what
 * was written but not yet noted when a crash came is written again, with the same key (stream, incarnation, sequence).
 * Tables are upserted by that key, so each line is there once. A file of rows is asked for the last of this stream that
 * it has. Endpoints and programs get the key with every row.
 *
 * A row that the target refuses is parked in the dead letters of the log by the sender; a target that is away, or wants
 * to be left alone for a while, is waited for.
 *
 * Thread safety: open, close and stop on the main thread; the log's sender calls from its own; shipsend_get from any.
 */
#ifndef SLUICE_CLI_SHIPSEND_H
#define SLUICE_CLI_SHIPSEND_H

#include "loadsink.h"
#include "opts.h"
#include "shipwire.h"

#include <pthread.h>
#include <sluice/events.h>

struct shipsend {
	struct cli *cli;
	const struct parsed *args;
	int server; /* 1: a Sluice server */
	char url[2048];
	char target[2048]; /* the URL without secrets, and a file by its whole path: what a log is for */
	sl_event_http_sender *http;
	struct loadsink to;
	sl_sink sink;
	unsigned members;
	int wake; /* an eventfd: something was delivered, or failed */

	/* of the sender's thread */
	void *lane;
	int attached, ready;
	uint64_t first; /* that was pending when the run began */
	uint64_t mark;
	uint32_t foreign; /* the target has another log's lines under this incarnation; 0: not known to */
	struct ship_buf rows;
	struct sl_sink_item *items;
	uint8_t *outcomes;

	pthread_mutex_t mu;
	uint64_t delivered;    /* lines; guarded by mu, as is all below */
	uint64_t taken;        /* the target's mark */
	struct sl_err trouble; /* code 0: the last batch was delivered */
	int64_t failing_ms;    /* by the monotonic clock: nothing was taken or refused since; counts with trouble */
	int answered;          /* a batch was delivered, or a line of it refused, in this run */
};

/* Options and URL. 0, or an exit code after a line on stderr. Close it in any case. */
int shipsend_open(struct shipsend *s, struct cli *cli, const struct parsed *args);
/* Is the target fit? One that is away is only told of: lines wait for it in the log. */
int shipsend_check(struct shipsend *s);
/* Begin to deliver what the log has from `pending` on. */
int shipsend_start(struct shipsend *s, sl_wal *w, const char *stream, uint64_t pending);
void shipsend_close(struct shipsend *s);
/* Lines delivered in this run, and why the last batch was not. */
uint64_t shipsend_get(struct shipsend *s, struct sl_err *trouble);
/* What the target has done for as long as nothing moves. */
struct shipsend_state {
	struct sl_err why;  /* code 0: it takes lines */
	int64_t failing_ms; /* for so long it has taken none */
	int first;          /* and none before in this run */
};
struct shipsend_state shipsend_state(struct shipsend *s);
/* The sequence up to which everything is delivered or parked. */
uint64_t shipsend_mark(struct shipsend *s);

/* shipmark.c: the last sequence of a stream that a file of rows has, and its row without the newline, which the caller
 * frees; 0: none is found. */
uint64_t shipmark_of_file(const char *path, const char *stream, uint32_t incarnation, char **row, size_t *n);

#endif
