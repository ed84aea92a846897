/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The certificate and its key, which may be replaced while the server runs: a handshake takes those that are in force
 * when it begins. Replaced ones are kept until the end, since a handshake may still use them; files that did not change
 * are not read into a new one.
 *
 * Thread safety: every function from any thread.
 */
#ifndef SLUICE_SERVER_HTTP_TLS_H
#define SLUICE_SERVER_HTTP_TLS_H

#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>

#include <sluice/err.h>

typedef struct srv_tls srv_tls;

/* PEM files: the chain, its own certificate first, and the key. SL_ECONFIG: which file, and what is wrong with it. */
int srv_tls_new(srv_tls **out, const char *cert_file, const char *key_file, struct sl_err *err);
void srv_tls_free(srv_tls *t);
/* The files again. What is in force stays so on failure. */
int srv_tls_reload(srv_tls *t, struct sl_err *err);
/* Whether the certificate is for name. */
bool srv_tls_is_named(srv_tls *t, const char *name, size_t len);
/* What a handshake uses; valid until srv_tls_free. */
int srv_tls_current(srv_tls *t, gnutls_pcert_st **chain, unsigned *n, gnutls_privkey_t *key);

#endif
