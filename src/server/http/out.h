/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON as text, so that what jobs carry is shown byte for byte: values that came as JSON are put in as they are. The
 * buffer's failure sticks; it is checked once, when the answer is sent.
 *
 * Thread safety: one thread at a time. Ownership: zero-initialise; ended by an answer or srv_out_free.
 */
#ifndef SLUICE_SERVER_HTTP_OUT_H
#define SLUICE_SERVER_HTTP_OUT_H

#include "base/buf.h"
#include "server/http/http.h"

struct srv_out {
	struct sl__buf text; /* text.failed: out of memory */
	bool comma;          /* before the next name or value */
};

void srv_out_open(struct srv_out *o, char bracket);
void srv_out_begin(struct srv_out *o, const char *name, char bracket); /* a member that is an object or an array */
void srv_out_close(struct srv_out *o, char bracket);
int srv_out_end(struct srv_out *o); /* of an object: 0, or SL_ENOMEM when something of the text is missing */
void srv_out_name(struct srv_out *o, const char *name);
void srv_out_str(struct srv_out *o, const char *text); /* NULL: null; what is not UTF-8 becomes U+FFFD */
void srv_out_strn(struct srv_out *o, const char *text, size_t n);
void srv_out_int(struct srv_out *o, int64_t n);
void srv_out_real(struct srv_out *o, double n); /* three digits */
void srv_out_bool(struct srv_out *o, bool b);
void srv_out_id(struct srv_out *o, uint64_t id);       /* a string, since not every reader has 64 bits; 0: null */
void srv_out_time(struct srv_out *o, int64_t ms);      /* RFC 3339; 0: null */
void srv_out_raw(struct srv_out *o, const char *json); /* NULL: null */
void srv_out_base64(struct srv_out *o, const void *data, size_t n);
/* name and value */
#define SRV_FIELD(o, name, kind, value) (srv_out_name(o, name), srv_out_##kind(o, value))
void srv_out_known(struct srv_out *o, const char *name, bool known, int64_t n); /* not known: null */
void srv_out_strs(struct srv_out *o, const char *name, const char *const *texts, size_t n);
void srv_out_free(struct srv_out *o);
/* Answers with it, or with err unless that is NULL, and frees it. */
void srv_out_answer(srv_request *r, int status, struct srv_out *o, const struct sl_err *err);
/* {"items":[ … ],"next_cursor":…}: its start, and its end with the answer, which is the error when rc is not 0. cursor
 * NULL: the list has no pages; "": this is the last page. */
void srv_items_begin(struct srv_out *o);
void srv_items_answer(srv_request *r, struct srv_out *o, int rc, const struct sl_err *err, const char *cursor);

#endif
