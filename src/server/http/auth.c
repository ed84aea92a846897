/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens and sessions: see auth.h.
 *
 * Invariants:
 * 1. Only hashes of tokens and session ids are kept; what a client presented is hashed and compared in constant time.
 * 2. A session ends when its token is no longer in the file.
 * 3. A token's sessions are bounded; a further log-in replaces the oldest session of the same token, never another's.
 */
#include "server/http/auth.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX ((size_t)1 << 20)
#define LOGIN_MS 60000 /* a log-in of a token is recorded at most once in this time */
#define REFUSALS 30

struct session {
	unsigned char hash[SRV_HASH_BYTES];  /* of the cookie */
	unsigned char token[SRV_HASH_BYTES]; /* of the token it was made with: gone from the file, it is gone too */
	int64_t until_ms;                    /* 0: free */
};

struct srv_auth {
	sl__mutex mu;
	char *path;
	unsigned char *key; /* of CSRF tokens; locked memory */
	struct srv_token *tokens;
	size_t n_tokens;
	struct session *sessions;
	int64_t refusals, refused_ms; /* what is left in the bucket, and when it was filled */
};

/* Read the file into buf. */
static int read_tokens_file(const char *path, char *buf, size_t *len, struct sl_err *err)
{
	struct stat st;
	int rc = 0, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0) {
		(void)!sl_err_set_errno(err, errno, "tokens file %s", path);
		return sl_err_wrap(err, SL_ECONFIG, "configuration");
	}
	if (fstat(fd, &st) != 0)
		rc = sl_err_set_errno(err, errno, "tokens file %s", path);
	else if (!S_ISREG(st.st_mode))
		rc = sl_err_set(err, SL_ECONFIG, "tokens file %s is not a regular file", path);
	else if (st.st_uid != geteuid() && st.st_uid != 0)
		rc = sl_err_set(err, SL_ECONFIG, "tokens file %s belongs to another user", path);
	else if ((st.st_mode & 077) != 0)
		rc = sl_err_set(err, SL_ECONFIG, "tokens file %s is accessible by other users; run: chmod 600 %s", path,
				path);
	ssize_t n = 1;
	for (*len = 0; rc == 0 && n != 0;) {
		n = *len < FILE_MAX ? read(fd, buf + *len, FILE_MAX - *len) : -1;
		if (*len == FILE_MAX)
			rc = sl_err_set_errno(err, EFBIG, "tokens file %s", path);
		else if (n > 0)
			*len += (size_t)n;
		else if (n < 0 && errno != EINTR)
			rc = sl_err_set_errno(err, errno, "tokens file %s", path);
	}
	close(fd);
	return rc;
}

int srv_auth_reload(srv_auth *a, struct sl_err *err)
{
	if (a->path == NULL)
		return 0;
	struct srv_token *tokens = calloc(SRV_MAX_TOKENS, sizeof(*tokens));
	char *buf = malloc(FILE_MAX);
	size_t len = 0;
	int n = tokens != NULL && buf != NULL ? read_tokens_file(a->path, buf, &len, err)
					      : sl_err_set(err, SL_ENOMEM, "tokens file %s", a->path);
	if (n == 0) {
		n = srv_tokens_parse(buf, len, tokens, SRV_MAX_TOKENS, err);
		if (n < 0)
			n = sl_err_wrap(err, n, "tokens file %s", a->path);
		else if (n == 0)
			n = sl_err_set(err, SL_ECONFIG, "tokens file %s has no token", a->path);
	}
	free(buf);
	if (n < 0) {
		free(tokens);
		return n;
	}
	sl__lock(&a->mu);
	struct srv_token *old = a->tokens;
	a->tokens = tokens;
	a->n_tokens = (size_t)n;
	sl__unlock(&a->mu);
	free(old);
	return 0;
}

int srv_auth_new(srv_auth **out, const char *tokens_file, struct sl_err *err)
{
	srv_auth *a = calloc(1, sizeof(*a));
	if (a == NULL)
		return sl_err_set(err, SL_ENOMEM, "tokens");
	sl__mutex_init(&a->mu);
	a->key = sodium_malloc(crypto_generichash_KEYBYTES);
	a->sessions = calloc(SRV_MAX_SESSIONS, sizeof(*a->sessions));
	a->path = tokens_file != NULL ? strdup(tokens_file) : NULL;
	int rc = 0;
	if (a->key == NULL || a->sessions == NULL || (tokens_file != NULL && a->path == NULL)) {
		rc = sl_err_set(err, SL_ENOMEM, "tokens");
	} else {
		randombytes_buf(a->key, crypto_generichash_KEYBYTES);
		rc = srv_auth_reload(a, err);
	}
	if (rc != 0) {
		srv_auth_free(a);
		return rc;
	}
	*out = a;
	return 0;
}

void srv_auth_free(srv_auth *a)
{
	if (a == NULL)
		return;
	sodium_free(a->key);
	free(a->tokens);
	free(a->sessions);
	free(a->path);
	sl__mutex_fini(&a->mu);
	free(a);
}

size_t srv_auth_tokens(srv_auth *a)
{
	sl__lock(&a->mu);
	size_t n = a->n_tokens;
	sl__unlock(&a->mu);
	return n;
}

/* Every token is compared, so that the time does not depend on which one matches. a->mu held. */
static struct srv_token *find_token(const srv_auth *a, const unsigned char hash[SRV_HASH_BYTES])
{
	struct srv_token *found = NULL;
	for (size_t i = 0; i < a->n_tokens; i++)
		if (sodium_memcmp(a->tokens[i].hash, hash, SRV_HASH_BYTES) == 0)
			found = &a->tokens[i];
	return found;
}

static void identify(const struct srv_token *t, struct srv_identity *out)
{
	memset(out, 0, sizeof(*out));
	memcpy(out->name, t->name, sizeof(out->name));
	out->role = t->role;
	memcpy(out->enqueue, t->enqueue, sizeof(out->enqueue));
	memcpy(out->worker, t->worker, sizeof(out->worker));
	memcpy(out->ship, t->ship, sizeof(out->ship));
}

static void csrf_of(const srv_auth *a, const unsigned char *id, size_t len, char csrf[SRV_CSRF_BYTES])
{
	unsigned char mac[SRV_HASH_BYTES];
	crypto_generichash(mac, sizeof(mac), id, len, a->key, crypto_generichash_KEYBYTES);
	sodium_bin2hex(csrf, SRV_CSRF_BYTES, mac, sizeof(mac));
}

bool srv_auth_by_token(srv_auth *a, const char *token, size_t len, struct srv_identity *out)
{
	unsigned char hash[SRV_HASH_BYTES];
	crypto_hash_sha256(hash, (const unsigned char *)token, len);
	sl__lock(&a->mu);
	const struct srv_token *t = find_token(a, hash);
	if (t != NULL)
		identify(t, out);
	sl__unlock(&a->mu);
	return t != NULL;
}

/* a->mu held. */
static struct session *find_session(srv_auth *a, const unsigned char hash[SRV_HASH_BYTES], int64_t now_ms)
{
	struct session *found = NULL;
	for (size_t i = 0; i < SRV_MAX_SESSIONS; i++)
		if (a->sessions[i].until_ms > now_ms && sodium_memcmp(a->sessions[i].hash, hash, SRV_HASH_BYTES) == 0)
			found = &a->sessions[i];
	return found;
}

bool srv_auth_by_session(srv_auth *a, const char *session, size_t len, int64_t now_ms, struct srv_identity *out)
{
	unsigned char hash[SRV_HASH_BYTES];
	const struct srv_token *t = NULL;
	crypto_hash_sha256(hash, (const unsigned char *)session, len);
	sl__lock(&a->mu);
	struct session *s = find_session(a, hash, now_ms);
	if (s != NULL)
		t = find_token(a, s->token);
	if (t != NULL) {
		identify(t, out);
		csrf_of(a, s->hash, sizeof(s->hash), out->csrf);
	}
	sl__unlock(&a->mu);
	return t != NULL;
}

bool srv_auth_login(srv_auth *a, const char *token, size_t len, int64_t now_ms, char session[SRV_SESSION_BYTES],
		    struct srv_identity *out)
{
	unsigned char id[SRV_HASH_BYTES], hash[SRV_HASH_BYTES];
	crypto_hash_sha256(hash, (const unsigned char *)token, len);
	randombytes_buf(id, sizeof(id));
	sodium_bin2hex(session, SRV_SESSION_BYTES, id, sizeof(id));
	sodium_memzero(id, sizeof(id));
	sl__lock(&a->mu);
	struct srv_token *t = find_token(a, hash);
	if (t != NULL) {
		/* A slot for the session. Every token has its share of the slots, so that a log-in with one ends only
		 * sessions of that one: above its share, the session that would end first. */
		size_t share = SRV_MAX_SESSIONS / a->n_tokens, n_own = 0;
		struct session *own = NULL, *s = &a->sessions[0];
		share = share > SRV_TOKEN_SESSIONS ? SRV_TOKEN_SESSIONS : share;
		for (size_t i = 0; i < SRV_MAX_SESSIONS; i++) {
			struct session *one = &a->sessions[i];
			if (one->until_ms > now_ms && memcmp(one->token, hash, SRV_HASH_BYTES) == 0) {
				n_own++;
				own = own == NULL || one->until_ms < own->until_ms ? one : own;
			}
			s = one->until_ms < s->until_ms ? one : s;
		}
		s = n_own >= share ? own : s;
		identify(t, out);
		out->first_login = t->login_ms == 0 || now_ms - t->login_ms >= LOGIN_MS || now_ms < t->login_ms;
		if (out->first_login)
			t->login_ms = now_ms;
		crypto_hash_sha256(s->hash, (const unsigned char *)session, SRV_SESSION_BYTES - 1);
		memcpy(s->token, hash, sizeof(hash));
		s->until_ms = now_ms + SRV_SESSION_MS;
		csrf_of(a, s->hash, sizeof(s->hash), out->csrf);
	}
	sl__unlock(&a->mu);
	return t != NULL;
}

bool srv_auth_may_refuse(srv_auth *a, int64_t now_ms)
{
	sl__lock(&a->mu);
	int64_t more = a->refused_ms == 0 || now_ms < a->refused_ms ? REFUSALS : (now_ms - a->refused_ms) / 1000;
	if (more > 0) {
		a->refusals = more >= REFUSALS - a->refusals ? REFUSALS : a->refusals + more;
		a->refused_ms = now_ms;
	}
	bool may = a->refusals > 0;
	a->refusals -= may;
	sl__unlock(&a->mu);
	return may;
}

void srv_auth_logout(srv_auth *a, const char *session, size_t len)
{
	unsigned char hash[SRV_HASH_BYTES];
	crypto_hash_sha256(hash, (const unsigned char *)session, len);
	sl__lock(&a->mu);
	struct session *s = find_session(a, hash, 0);
	if (s != NULL)
		memset(s, 0, sizeof(*s));
	sl__unlock(&a->mu);
}

void srv_auth_local_csrf(srv_auth *a, char csrf[SRV_CSRF_BYTES])
{
	static const unsigned char local[] = "local";
	csrf_of(a, local, sizeof(local), csrf);
}
