/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A head on one line, canonical as events are (docs/formats/audit.md):
 *
 *	{"checkpoint":N,"dataset":S,"event_hash":H,"events":N,"public_key":H,"signature":H,"version":1}
 *
 * without public_key and signature when it is not signed. What is signed is "sluice audit head 1\n" and the same text
 * without the member signature.
 */
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>

#include "pipeline/audit/event.h"
#include "pipeline/audit/key.h"
#include "pipeline/partition.h"

#define SIGNED_PREFIX "sluice audit head 1\n"

static const char *wrong_head_member(const struct sl_audit_head *h)
{
	if (sl_dataset_check_name(h->dataset, NULL) != 0)
		return "dataset";
	if (h->events < 1 || h->events > INT64_MAX)
		return "events";
	return h->checkpoint > SL__SEQUENCE_MAX ? "checkpoint" : NULL;
}

/* A dataset's name and digits need no escapes. */
static size_t put_head(const struct sl_audit_head *h, bool with_signature, char *out, size_t size)
{
	char hash[2 * SL_AUDIT_HASH_BYTES + 1], key[2 * SL_AUDIT_PUBLIC_KEY_BYTES + 1],
		signature[2 * SL_AUDIT_SIGNATURE_BYTES + 1];
	sodium_bin2hex(hash, sizeof(hash), h->event_hash, sizeof(h->event_hash));
	sodium_bin2hex(key, sizeof(key), h->public_key, sizeof(h->public_key));
	sodium_bin2hex(signature, sizeof(signature), h->signature, sizeof(h->signature));
	bool named = h->has_signature, with = named && with_signature;
	int n = snprintf(
		out, size,
		"{\"checkpoint\":\"%" PRIu64 "\",\"dataset\":\"%s\",\"event_hash\":\"%s\",\"events\":\"%" PRIu64
		"\"%s%s%s%s%s%s,\"version\":1}",
		h->checkpoint, h->dataset, hash, h->events, named ? ",\"public_key\":\"" : "", named ? key : "",
		named ? "\"" : "", with ? ",\"signature\":\"" : "", with ? signature : "", with ? "\"" : "");
	assert(n > 0 && (size_t)n < size);
	return (size_t)n;
}

static size_t signed_text(const struct sl_audit_head *h, char out[SL_AUDIT_HEAD_BYTES])
{
	size_t n = strlen(SIGNED_PREFIX);
	memcpy(out, SIGNED_PREFIX, n);
	return n + put_head(h, false, out + n, SL_AUDIT_HEAD_BYTES - n);
}

int sl_audit_head_sign(struct sl_audit_head *head, const char *key_file, const struct sl_env *env, struct sl_err *err)
{
	struct sl_env full;
	struct sl__audit_key key;
	char text[SL_AUDIT_HEAD_BYTES];
	const char *wrong = wrong_head_member(head);
	if (wrong != NULL)
		return sl_err_set(err, SL_EINVAL, "head: %s", wrong);
	int rc = sl__env_init(&full, env, err);
	if (rc != 0)
		return rc;
	if ((rc = sl__audit_key_load(&key, &full, key_file, err)) != 0)
		return rc;
	head->has_signature = true;
	memcpy(head->public_key, key.public_key, sizeof(head->public_key));
	size_t n = signed_text(head, text);
	(void)crypto_sign_detached(head->signature, NULL, (const unsigned char *)text, n, key.secret);
	sl__audit_key_drop(&key);
	return 0;
}

int sl_audit_head_format(const struct sl_audit_head *head, char out[SL_AUDIT_HEAD_BYTES], size_t *len,
			 struct sl_err *err)
{
	const char *wrong = wrong_head_member(head);
	if (wrong != NULL)
		return sl_err_set(err, SL_EINVAL, "head: %s", wrong);
	size_t n = put_head(head, true, out, SL_AUDIT_HEAD_BYTES - 1);
	out[n] = '\n';
	out[n + 1] = '\0';
	*len = n + 1;
	return 0;
}

int sl_audit_head_parse(const void *text, size_t len, const uint8_t *public_key, struct sl_audit_head *out,
			struct sl_err *err)
{
	char storage[SL_AUDIT_HEAD_BYTES], again[SL_AUDIT_HEAD_BYTES];
	const char *from = text;
	size_t n;
	if (len >= SL_AUDIT_HEAD_BYTES)
		return sl_err_set(err, SL_ECORRUPT, "head: too long");
	struct sl_audit_head h = {.struct_size = sizeof(h)};
	struct sl__audit_scan s = {
		.at = from, .end = from + len, .storage = storage, .storage_end = storage + sizeof(storage)};
	sl__audit_scan_literal(&s, "{\"checkpoint\":");
	h.checkpoint = sl__audit_scan_u64(&s, "checkpoint");
	sl__audit_scan_literal(&s, ",\"dataset\":");
	const char *dataset = sl__audit_scan_string(&s, "dataset");
	(void)snprintf(h.dataset, sizeof(h.dataset), "%.*s", SL_DATASET_NAME_MAX, dataset);
	sl__audit_scan_literal(&s, ",\"event_hash\":");
	sl__audit_scan_hex(&s, h.event_hash, sizeof(h.event_hash), "event_hash");
	sl__audit_scan_literal(&s, ",\"events\":");
	h.events = sl__audit_scan_u64(&s, "events");
	static const char key[] = ",\"public_key\":";
	h.has_signature = (size_t)(s.end - s.at) > strlen(key) && memcmp(s.at, key, strlen(key)) == 0;
	if (h.has_signature) {
		sl__audit_scan_literal(&s, key);
		sl__audit_scan_hex(&s, h.public_key, sizeof(h.public_key), "public_key");
		sl__audit_scan_literal(&s, ",\"signature\":");
		sl__audit_scan_hex(&s, h.signature, sizeof(h.signature), "signature");
	}
	sl__audit_scan_literal(&s, ",\"version\":1}\n");
	if (s.why == NULL && s.at != s.end)
		s.why = "nothing after the end of the head";
	if (s.why != NULL)
		return sl_err_set(err, SL_ECORRUPT, "head: byte %zu: expected %s", (size_t)(s.at - from), s.why);
	if (wrong_head_member(&h) != NULL)
		return sl_err_set(err, SL_ECORRUPT, "head: invalid: %s", wrong_head_member(&h));
	int rc = sl_audit_head_format(&h, again, &n, err);
	if (rc != 0)
		return rc;
	if (n != len || memcmp(again, from, n) != 0)
		return sl_err_set(err, SL_ECORRUPT, "head: not in canonical form");
	if (public_key != NULL && !h.has_signature)
		return sl_err_set(err, SL_EKEY, "head: not signed");
	if (public_key != NULL && memcmp(public_key, h.public_key, sizeof(h.public_key)) != 0)
		return sl_err_set(err, SL_EKEY, "head: signed with another key");
	if (h.has_signature) {
		if (sodium_init() < 0)
			return sl_err_set(err, SL_EINTERNAL, "libsodium failed to start");
		n = signed_text(&h, again);
		if (crypto_sign_verify_detached(h.signature, (const unsigned char *)again, n, h.public_key) != 0)
			return sl_err_set(err, SL_ECORRUPT, "head: invalid signature");
	}
	*out = h;
	return 0;
}
