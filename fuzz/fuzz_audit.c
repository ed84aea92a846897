/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as an audit event, a head or a key file. Nothing may crash; what is accepted has exactly one form, so that
 * it gives the same bytes when it is written again; and a path that is accepted stays below its dataset.
 *
 * The first byte says what the rest is: an event, an event whose hash is corrected first (so that the code after the
 * hash check is reached), a head, a key file, a path.
 */
#include <stdint.h>
#include <string.h>

#include "base/sha256.h"
#include "must.h"
#include "pipeline/audit/event.h"
#include "pipeline/audit/key.h"

#define HASH_AT (sizeof("{\"chain\":{\"event_hash\":\"") - 1)
#define HASH_END (HASH_AT + 64 + 2) /* after its quote and comma */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void event(const char *text, size_t len)
{
	struct sl_audit_event e, again;
	struct sl__audit_chain chain = {.events = 0};
	char storage[SL_AUDIT_EVENT_BYTES], out[SL_AUDIT_EVENT_BYTES];
	struct sl_err err = SL_ERR_INIT;
	size_t n = 0;
	int rc = sl_audit_event_parse(text, len, &e, storage, &err);
	MUST(rc == 0 || (rc == SL_ECORRUPT && err.code == rc));
	if (rc != 0)
		return;
	again = e;
	MUST(sl_audit_event_format(&again, out, &n, &err) == 0);
	MUST(n == len && memcmp(out, text, n) == 0);
	MUST(memcmp(again.hash, e.hash, sizeof(e.hash)) == 0);
	MUST(sl__audit_path_ok(e.dataset, e.path));
	MUST(e.rows + e.bad_rows == e.end - e.start + 1);
	MUST((sl__audit_chain_add(&chain, &e, &err) == 0) == (e.number == 1));
}

static void event_with_hash(const char *text, size_t len)
{
	char fixed[SL_AUDIT_EVENT_BYTES], hashed[SL_AUDIT_EVENT_BYTES], hex[SL__SHA256_HEX];
	uint8_t digest[SL__SHA256_BYTES];
	size_t start = sizeof("{\"chain\":{") - 1;
	if (len < HASH_END || len >= sizeof(fixed))
		return;
	memcpy(fixed, text, len);
	memcpy(hashed, text, start);
	memcpy(hashed + start, text + HASH_END, len - HASH_END);
	MUST(sl__sha256(hashed, start + len - HASH_END, digest, NULL) == 0);
	sl__sha256_hex(digest, hex);
	memcpy(fixed + HASH_AT, hex, 64);
	event(fixed, len);
}

static void head(const char *text, size_t len)
{
	static const uint8_t key[SL_AUDIT_PUBLIC_KEY_BYTES] = {1};
	struct sl_audit_head h;
	struct sl_err err = SL_ERR_INIT;
	char out[SL_AUDIT_HEAD_BYTES];
	size_t n = 0;
	int rc = sl_audit_head_parse(text, len, NULL, &h, &err);
	MUST(rc == 0 || rc == SL_ECORRUPT);
	if (rc != 0)
		return;
	MUST(sl_audit_head_format(&h, out, &n, &err) == 0 && n == len && memcmp(out, text, n) == 0);
	MUST(sl_audit_head_parse(text, len, key, &h, &err) == SL_EKEY);
}

static void path(const char *text, size_t len)
{
	char name[SL__AUDIT_PATH_MAX + 8];
	if (len >= sizeof(name))
		return;
	memcpy(name, text, len);
	name[len] = '\0';
	if (!sl__audit_path_ok("d", name))
		return;
	MUST(strncmp(name, "d/", 2) == 0 && strstr(name, "/.") == NULL && strstr(name, "//") == NULL);
	MUST(strlen(name) <= SL__AUDIT_PATH_MAX && name[strlen(name) - 1] != '/');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data + 1;
	uint8_t key[32];
	if (size < 1)
		return 0;
	switch (data[0] % 5) {
	case 0:
		event(text, size - 1);
		break;
	case 1:
		event_with_hash(text, size - 1);
		break;
	case 2:
		head(text, size - 1);
		break;
	case 3:
		(void)!sl__audit_key_parse(text, size - 1, (size & 1) != 0, key);
		break;
	default:
		path(text, size - 1);
	}
	return 0;
}
