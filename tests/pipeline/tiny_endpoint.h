/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An endpoint for audit events, for tests: takes POSTs one after the other on its own port, keeps the bodies that it
 * accepted, and answers with the status that the test sets.
 *
 * Thread safety: one thread starts, controls and stops it.
 */
#ifndef TESTS_TINY_ENDPOINT_H
#define TESTS_TINY_ENDPOINT_H

struct tiny_endpoint;

#define TINY_ENDPOINT_HANG_UP 0   /* close without an answer */
#define TINY_ENDPOINT_SILENT (-1) /* never answer */

struct tiny_endpoint *tiny_endpoint_start(void);
const char *tiny_endpoint_url(const struct tiny_endpoint *e);
/* From the next request on; 200 at first. */
void tiny_endpoint_answer(struct tiny_endpoint *e, int status);
/* Until a request has been read. */
void tiny_endpoint_wait_request(struct tiny_endpoint *e);
/* All bodies that were answered with 200, joined. */
const char *tiny_endpoint_accepted(struct tiny_endpoint *e);
void tiny_endpoint_stop(struct tiny_endpoint *e);

#endif
