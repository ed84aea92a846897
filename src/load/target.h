/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target of a load: the options of a sink as text, so that a dead letter remembers its target and `dlq redrive` can
 * open it again. The text is one JSON object without secrets: passwords come from the environment or a password file
 * each time, and of files with a token or headers it has the path, not the content.
 *
 * Thread safety: none. Ownership: a target that was read from a text owns its strings until fini.
 */
#ifndef SL_LOAD_TARGET_H
#define SL_LOAD_TARGET_H

#include "base/env.h"

#include <jansson.h>
#include <sluice/sink.h>

#define LOAD_TARGET_BYTES 4000 /* the target of a dead letter has 4096 */

struct load_target {
	const struct sl_env *env;
	const char *url; /* as given; may hold a secret */
	struct sl_sink_opts opts;
	bool partial; /* of a text: the URL had more, which may be secret and was left out */
	json_t *kept; /* what opts points into, when it came from a text */
	const char **lists[2];
};

/* The target as text; 0, SL_ETOOBIG when it is too long to be remembered, or SL_ENOMEM. sink has its URL without
 * secrets. */
int sl__load_target_write(const struct load_target *t, const sl_sink *sink, char out[LOAD_TARGET_BYTES]);
/* The target of such a text. 0, or an error. */
int sl__load_target_read(struct load_target *t, const struct sl_env *env, const char *text, struct sl_err *err);
/* The target of a text is to be opened as this URL: drop the options of other kinds of targets. */
void sl__load_target_fit(struct load_target *t, const char *url);
void sl__load_target_fini(struct load_target *t);

/* An HTTP target without a token file gets the token, if there is one, as a header. 0, or SL_ENOMEM; the caller frees
 * header[0] with free. */
int sl__load_set_token(struct sl_sink_opts *opts, const char *url, const char *token, char *header[1]);

#endif
