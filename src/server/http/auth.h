/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may ask: the tokens of the tokens file and the sessions of browsers.
 *
 * A tokens file has a line per token, `name SCOPE… sha256:HEX`: a name for the logs, what it may do, and the SHA-256 of
 * the token. Scopes: read, write, admin, enqueue:TYPES (start jobs of these types), worker:TYPES (publish what jobs of
 * these types print), ship:PREFIXES (publish to streams whose names begin so); lists have commas, and a * at the end of
 * a type stands for any rest. Lines of one name are one client; a stream belongs to the name that created it. Tokens
 * are 256 random bits, so a fast hash is the right one: there is no dictionary to slow down, a stolen file gives
 * nothing that can be presented, and a stranger cannot make the server spend time. A presented token is hashed and
 * compared with every line in constant time. A session is 256 random bits in a cookie, kept here as a hash too, and
 * lives as long as its token is in the file, twelve hours at most.
 *
 * Thread safety: every function from any thread. Ownership: results are copied out. Secrets: the key of the CSRF tokens
 * lies in locked memory that is not dumped; tokens and session ids are only ever held by the caller.
 */
#ifndef SLUICE_SERVER_AUTH_H
#define SLUICE_SERVER_AUTH_H

#include "server/http/http.h"

#include <stdbool.h>

#define SRV_NAME_BYTES 65
#define SRV_HASH_BYTES 32
#define SRV_SESSION_BYTES 65 /* 64 hexadecimal digits and a NUL */
#define SRV_CSRF_BYTES 65
#define SRV_MAX_TOKENS 1000
#define SRV_SCOPE_BYTES 512
#define SRV_MAX_SESSIONS 1024 /* at least as many as tokens */
#define SRV_TOKEN_SESSIONS 64 /* of one token; fewer where there are more than 16 tokens */
#define SRV_SESSION_MS ((int64_t)12 * 3600 * 1000)

struct srv_token {
	char name[SRV_NAME_BYTES]; /* [A-Za-z0-9._-], at most 64 */
	enum srv_role role;        /* SRV_PUBLIC: none of read, write and admin */
	/* Lists; "": none. */
	char enqueue[SRV_SCOPE_BYTES], worker[SRV_SCOPE_BYTES], ship[SRV_SCOPE_BYTES];
	unsigned char hash[SRV_HASH_BYTES];
	int64_t login_ms; /* the last log-in that was recorded */
};

/* Tokens of a file's text, at most max. The number of them, or SL_ECONFIG: the line that is wrong is named, what it
 * says is not. */
int srv_tokens_parse(const char *text, size_t len, struct srv_token *out, size_t max, struct sl_err *err);
const char *srv_role_name(enum srv_role role);
/* Is name in the list: as it is there, or by the part before a * at its end? With prefix, any entry is such a part. */
bool srv_scope_has(const char *list, const char *name, bool prefix);

typedef struct srv_auth srv_auth;

/* tokens_file NULL: there are no tokens. It must belong to us or to root and be closed to group and others. */
int srv_auth_new(srv_auth **out, const char *tokens_file, struct sl_err *err);
void srv_auth_free(srv_auth *a);
/* The file again. What is in force stays so on failure. */
int srv_auth_reload(srv_auth *a, struct sl_err *err);
size_t srv_auth_tokens(srv_auth *a);

struct srv_identity {
	char name[SRV_NAME_BYTES];
	enum srv_role role;
	char enqueue[SRV_SCOPE_BYTES], worker[SRV_SCOPE_BYTES], ship[SRV_SCOPE_BYTES];
	char csrf[SRV_CSRF_BYTES]; /* of a session; "" else */
	bool first_login;          /* by srv_auth_login: the token's first for a minute */
};

bool srv_auth_by_token(srv_auth *a, const char *token, size_t len, struct srv_identity *out);
bool srv_auth_by_session(srv_auth *a, const char *session, size_t len, int64_t now_ms, struct srv_identity *out);
/* A session for a token. false: unknown token. The caller wipes session. */
bool srv_auth_login(srv_auth *a, const char *token, size_t len, int64_t now_ms, char session[SRV_SESSION_BYTES],
		    struct srv_identity *out);
/* One more log-in was refused: false when there were too many lately. A bucket of 30, refilled by one a second. */
bool srv_auth_may_refuse(srv_auth *a, int64_t now_ms);
void srv_auth_logout(srv_auth *a, const char *session, size_t len);
/* The CSRF token of clients that need no session (loopback without tokens). */
void srv_auth_local_csrf(srv_auth *a, char csrf[SRV_CSRF_BYTES]);

#endif
