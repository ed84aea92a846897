/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where rows go: the options of a sink as text, so that a dead letter remembers its target and `dlq redrive` can open
 * it again. The text is one JSON object without secrets: passwords come from the environment or a password file each
 * time, and of files with a token or headers it has the path, not what is in them.
 *
 * Thread safety: none; the main thread calls. Ownership: a loadsink owns its strings until loadsink_fini.
 */
#ifndef SLUICE_CLI_LOADSINK_H
#define SLUICE_CLI_LOADSINK_H

#include "cli.h"

#include <sluice/sink.h>

#define LOADSINK_TEXT_BYTES 4000 /* a letter's target has 4096 */

struct loadsink {
	const char *url; /* as given; may hold a secret */
	struct sl_sink_opts opts;
	int partial;  /* of a text: the URL had more, which may be secret and was left out */
	json_t *kept; /* what opts points into, when it came from a text */
	const char **lists[2];
	const char *header[1]; /* with the token of the environment */
};

/* Split "a,b" into a NULL-terminated list, one block of memory for free(); *n its length. 0, SL_ENOMEM, or SL_EINVAL
 * for an empty name. */
int loadsink_split(const char *text, const char ***out, size_t *n);

/* A copy of a list, made the same way; NULL without memory. */
const char **loadsink_copy(const char *const *names, size_t n);

/* The target as text; 0, SL_ETOOBIG when it is too long to be remembered, or SL_ENOMEM. sink gives its URL without
 * secrets. */
int loadsink_write(const struct loadsink *s, const sl_sink *sink, char out[LOADSINK_TEXT_BYTES]);
/* The target of such a text. 0, or an error. */
int loadsink_read(struct loadsink *s, const char *text, struct sl_err *err);
/* The target of a text is to be opened as this URL: what only HTTP, files or databases have is for those. */
void loadsink_fit(struct loadsink *s, const char *url);
/* An HTTP target without a token file gets the token of SLUICE_HTTP_TOKEN, when that is set. 0, or SL_ENOMEM. */
int loadsink_take_token(struct loadsink *s, const char *url);
void loadsink_fini(struct loadsink *s);

#endif
