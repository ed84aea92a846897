/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON objects in one line whose last member tells damage: "check" is the SHA-256 of all bytes before `,"check"`. For
 * what is read before there is a key: config and wrapped keys.
 */
#include "backup/repo/crypt.h"
#include "base/sha256.h"

#define FRONT ",\"check\":\""
#define END "\"}"
#define FRONT_BYTES (sizeof(FRONT) - 1)
#define END_BYTES (sizeof(END) - 1)
#define CHECK_BYTES (FRONT_BYTES + 64 + END_BYTES) /* from FRONT to the end */

static int check_of(const char *text, size_t n, char hex[SL__SHA256_HEX], struct sl_err *err)
{
	uint8_t sum[SL__SHA256_BYTES];
	int rc = sl__sha256(text, n, sum, err);
	if (rc == 0)
		sl__sha256_hex(sum, hex);
	return rc;
}

int sl__bk_checked_text(const struct sl_env *env, const char *body, char **text, struct sl_err *err)
{
	char hex[SL__SHA256_HEX];
	int rc = check_of(body, strlen(body), hex, err);
	if (rc != 0)
		return rc;
	char *whole = sl__asprintf(env, "%s" FRONT "%s" END, body, hex);
	if (whole == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for a line of JSON");
	*text = whole;
	return 0;
}

bool sl__bk_text_is_checked(const char *text, size_t len)
{
	char hex[SL__SHA256_HEX];
	if (len < CHECK_BYTES)
		return false;
	const char *at = text + len - CHECK_BYTES;
	return check_of(text, len - CHECK_BYTES, hex, NULL) == 0 && memcmp(at, FRONT, FRONT_BYTES) == 0 &&
	       memcmp(at + FRONT_BYTES, hex, 64) == 0 && memcmp(text + len - END_BYTES, END, END_BYTES) == 0;
}
