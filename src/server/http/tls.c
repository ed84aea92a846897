/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Certificates and keys: see tls.h.
 *
 * A reload reads both files, checks that the key belongs to the certificate, and only then publishes them together; a
 * handshake never sees one of the old pair with one of the new. Memory that held key material is wiped.
 */
#include "server/http/tls.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/x509.h>
#include <malloc.h>
#include <pthread.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_CHAIN 16
#define PEM_MAX ((size_t)256 * 1024)

struct keys {
	struct keys *older;
	unsigned n;
	gnutls_pcert_st chain[MAX_CHAIN];
	gnutls_privkey_t key;
	gnutls_x509_crt_t own;
	unsigned char digest[crypto_generichash_BYTES]; /* of both files */
};

struct srv_tls {
	sl__mutex mu;
	char *cert_file, *key_file;
	struct keys *current;
};

static void keys_free(struct keys *k)
{
	if (k == NULL)
		return;
	for (unsigned i = 0; i < k->n; i++)
		gnutls_pcert_deinit(&k->chain[i]);
	if (k->key != NULL)
		gnutls_privkey_deinit(k->key);
	if (k->own != NULL)
		gnutls_x509_crt_deinit(k->own);
	free(k);
}

/* Read a PEM file. A key may be read by its owner, and by a group only when it belongs to root (as with ssl-cert of
 * Debian). */
static int read_pem(const char *path, bool secret, char *buf, gnutls_datum_t *out, struct sl_err *err)
{
	size_t len = 0;
	ssize_t n = 1;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return sl_err_set(err, SL_ECONFIG, "%s: %s", path, strerror(errno));
	struct stat st;
	int rc = 0;
	if (secret && fstat(fd, &st) != 0)
		rc = sl_err_set_errno(err, errno, "%s", path);
	else if (secret && ((st.st_mode & 07) != 0 || ((st.st_mode & 070) != 0 && st.st_uid != 0)))
		rc = sl_err_set(err, SL_ECONFIG, "%s is accessible by other users; run: chmod 600 %s", path, path);
	while (rc == 0 && n > 0 && len < PEM_MAX) {
		n = read(fd, buf + len, PEM_MAX - len);
		if (n < 0 && errno == EINTR)
			n = 1;
		else if (n < 0)
			rc = sl_err_set(err, SL_ECONFIG, "%s: %s", path, strerror(errno));
		else
			len += (size_t)n;
	}
	close(fd);
	out->data = (unsigned char *)buf;
	out->size = (unsigned)len;
	return rc;
}

/* Read both files into k; buf has room for one of them. */
static int read_keys(const srv_tls *t, struct keys *k, char *buf, struct sl_err *err)
{
	gnutls_datum_t cert, key;
	crypto_generichash_state h;
	crypto_generichash_init(&h, NULL, 0, sizeof(k->digest));
	int rc = read_pem(t->cert_file, false, buf, &cert, err);
	if (rc != 0)
		return rc;
	crypto_generichash_update(&h, cert.data, cert.size);
	gnutls_x509_crt_t certs[MAX_CHAIN];
	unsigned n = MAX_CHAIN;
	rc = gnutls_x509_crt_list_import(certs, &n, &cert, GNUTLS_X509_FMT_PEM,
					 GNUTLS_X509_CRT_LIST_IMPORT_FAIL_IF_EXCEED);
	n = rc >= 0 ? n : 0;
	for (unsigned i = 0; i < n; i++) {
		if (rc >= 0)
			rc = gnutls_pcert_import_x509(&k->chain[i], certs[i], 0);
		k->n += rc >= 0;
		if (i == 0)
			k->own = certs[0];
		else
			gnutls_x509_crt_deinit(certs[i]);
	}
	if (rc < 0)
		return sl_err_set(err, SL_ECONFIG, "certificate %s: %s", t->cert_file, gnutls_strerror(rc));
	rc = read_pem(t->key_file, true, buf, &key, err);
	if (rc != 0)
		return rc;
	crypto_generichash_update(&h, key.data, key.size);
	crypto_generichash_final(&h, k->digest, sizeof(k->digest));
	rc = gnutls_privkey_init(&k->key);
	if (rc == 0)
		rc = gnutls_privkey_import_x509_raw(k->key, &key, GNUTLS_X509_FMT_PEM, NULL, 0);
	if (rc < 0)
		return sl_err_set(err, SL_ECONFIG, "key %s: %s", t->key_file, gnutls_strerror(rc));

	/* They belong together if their public halves are the same. */
	unsigned char a[64], b[64];
	size_t n_a = sizeof(a), n_b = sizeof(b);
	gnutls_pubkey_t pub;
	bool same = false;
	if (gnutls_pubkey_init(&pub) == 0) {
		same = gnutls_pubkey_import_privkey(pub, k->key, 0, 0) == 0 &&
		       gnutls_pubkey_get_key_id(pub, GNUTLS_KEYID_USE_SHA256, a, &n_a) == 0 &&
		       gnutls_x509_crt_get_key_id(k->own, GNUTLS_KEYID_USE_SHA256, b, &n_b) == 0 && n_a == n_b &&
		       memcmp(a, b, n_a) == 0;
		gnutls_pubkey_deinit(pub);
	}
	if (!same)
		return sl_err_set(err, SL_ECONFIG, "key %s does not belong to certificate %s", t->key_file,
				  t->cert_file);
	return 0;
}

int srv_tls_reload(srv_tls *t, struct sl_err *err)
{
	struct keys *k = calloc(1, sizeof(*k));
	char *buf = sodium_malloc(PEM_MAX);
	int rc = k != NULL && buf != NULL ? read_keys(t, k, buf, err)
					  : sl_err_set(err, SL_ENOMEM, "certificate %s", t->cert_file);
	sodium_free(buf);
	if (rc == 0) {
		sl__lock(&t->mu);
		if (t->current == NULL || memcmp(t->current->digest, k->digest, sizeof(k->digest)) != 0) {
			k->older = t->current;
			t->current = k;
			k = NULL;
		}
		sl__unlock(&t->mu);
	}
	keys_free(k);
	return rc;
}

/*
 * GnuTLS gives back buffers of decrypted records as they are, and with them tokens. Its free is a variable that may be
 * set (it says so by exporting it); ours wipes first. For the whole process, once: a wiping free suits every caller.
 */
static void free_tls_buffer(void *p)
{
	if (p != NULL)
		explicit_bzero(p, malloc_usable_size(p));
	free(p);
}

static void make_it_wipe(void)
{
	gnutls_free = free_tls_buffer;
}

int srv_tls_new(srv_tls **out, const char *cert_file, const char *key_file, struct sl_err *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	srv_tls *t = calloc(1, sizeof(*t));
	pthread_once(&once, make_it_wipe);
	if (t == NULL)
		return sl_err_set(err, SL_ENOMEM, "certificate %s", cert_file);
	sl__mutex_init(&t->mu);
	t->cert_file = strdup(cert_file);
	t->key_file = strdup(key_file);
	int rc = t->cert_file != NULL && t->key_file != NULL ? srv_tls_reload(t, err)
							     : sl_err_set(err, SL_ENOMEM, "certificate %s", cert_file);
	if (rc != 0) {
		srv_tls_free(t);
		return rc;
	}
	*out = t;
	return 0;
}

void srv_tls_free(srv_tls *t)
{
	if (t == NULL)
		return;
	for (struct keys *k = t->current, *older; k != NULL; k = older) {
		older = k->older;
		keys_free(k);
	}
	free(t->cert_file);
	free(t->key_file);
	sl__mutex_fini(&t->mu);
	free(t);
}

bool srv_tls_is_named(srv_tls *t, const char *name, size_t len)
{
	char host[256];
	if (len >= sizeof(host))
		return false;
	memcpy(host, name, len);
	host[len] = '\0';
	sl__lock(&t->mu);
	bool ok = gnutls_x509_crt_check_hostname(t->current->own, host) != 0;
	sl__unlock(&t->mu);
	return ok;
}

int srv_tls_current(srv_tls *t, gnutls_pcert_st **chain, unsigned *n, gnutls_privkey_t *key)
{
	sl__lock(&t->mu);
	*chain = t->current->chain;
	*n = t->current->n;
	*key = t->current->key;
	sl__unlock(&t->mu);
	return 0;
}
