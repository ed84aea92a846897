/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON bodies at a bounded cost.
 *
 * jansson needs up to 80 bytes of memory for every byte of a body such as [{"":{}},…]. So the cost of a text is counted
 * before anything is built, and a text above the bound is refused. Values that are stored as they were sent (inputs and
 * outputs of jobs) are not built at all: they are *opaque*, cut out of the text and replaced by their number. The code
 * that takes an opaque value must check it: then the rest is valid JSON and the value is too, and so was the body.
 *
 * Thread safety: none needed, no shared state. Ownership: struct srv_json_body owns its tree; opaque values point into
 * the text that was parsed.
 */
#ifndef SLUICE_SERVER_JSON_BODY_H
#define SLUICE_SERVER_JSON_BODY_H

#include <jansson.h>

#include <sluice/err.h>

#define SRV_JSON_COST_MAX ((size_t)64 << 20)

struct srv_text {
	const char *at;
	size_t len;
};

struct srv_json_body {
	json_t *json;
	struct srv_text *opaque;
	size_t n_opaque;
};

/* Upper estimate of what jansson allocates for a text, valid or not. */
size_t srv_json_cost(const char *text, size_t len);
/* Reserves this many bytes before they are allocated; false: no room now. */
typedef bool srv_json_reserve_fn(size_t bytes, void *ctx);
struct srv_json_opts {
	const char *opaque;           /* the name of members whose values are kept as text; NULL: none */
	int depth;                    /* where their object is nested so deep; 1: members of the outermost object */
	srv_json_reserve_fn *reserve; /* may be NULL */
	void *ctx;
};
/*
 * Parse a text.
 * SL_EDATA: not JSON, a NUL byte, or a duplicate member. SL_ETOOBIG: above SRV_JSON_COST_MAX. SL_EFULL: reserve had no
 * room. SL_ENOMEM.
 */
SL_MUST_CHECK int srv_json_body_parse(struct srv_json_body *out, struct srv_text text, const struct srv_json_opts *opts,
				      struct sl_err *err);
/* The text of an opaque value; v must be such a member of the tree. */
struct srv_text srv_json_body_text(const struct srv_json_body *b, const json_t *v);
void srv_json_body_fini(struct srv_json_body *b);

#endif
