/* SPDX-License-Identifier: Apache-2.0 */
/* What other machines write, read with care. */
#include <curl/curl.h>

#include "base/utf8.h"
#include "net/http.h"

#define SECONDS_MAX (INT64_MAX / 1000)

size_t sl__http_first_line(char *out, size_t cap, const char *text, size_t len)
{
	size_t n = 0, i = 0;
	while (i < len && (unsigned char)text[i] <= ' ')
		i++;
	while (i < len && text[i] != '\n' && text[i] != '\r') {
		char padded[5] = {0}; /* no NUL need follow the text */
		memcpy(padded, text + i, SL_MIN(len - i, 4));
		size_t step = sl__utf8_length(padded);
		unsigned char c = (unsigned char)text[i];
		if (n + SL_MAX(step, 1) + 1 > cap)
			break;
		if (step == 0 || c < ' ' || c == 0x7F)
			out[n++] = step == 0 ? '?' : ' ';
		else
			n = (size_t)((char *)mempcpy(out + n, text + i, step) - out);
		i += SL_MAX(step, 1);
	}
	while (n > 0 && out[n - 1] == ' ')
		n--;
	out[n] = '\0';
	return n;
}

bool sl__http_retry_after(const char *value, int64_t now_ms, int64_t *out_ms)
{
	/* Seconds. */
	int64_t seconds = 0;
	const char *p = value;
	for (; *p >= '0' && *p <= '9'; p++)
		seconds = seconds < SECONDS_MAX / 10 ? seconds * 10 + (*p - '0') : SECONDS_MAX;
	if (p != value && *p == '\0') {
		*out_ms = SL_MIN(seconds, SECONDS_MAX) * 1000;
		return true;
	}
	/* A date begins with the day's name; curl_getdate would take much more for one. */
	bool letter = (*value >= 'A' && *value <= 'Z') || (*value >= 'a' && *value <= 'z');
	time_t when = letter ? curl_getdate(value, NULL) : -1;
	if (when < 0)
		return false;
	/* Dates go further than milliseconds do. */
	*out_ms = SL_MAX(SL_MIN((int64_t)when, SECONDS_MAX) * 1000 - now_ms, 0);
	return true;
}
