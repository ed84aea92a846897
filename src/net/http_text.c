/* SPDX-License-Identifier: Apache-2.0 */
/* What other machines write, read with care. */
#include <curl/curl.h>

#include "base/utf8.h"
#include "net/http.h"

#define SECONDS_MAX (INT64_MAX / 1000)

/* The character at p, of which there are n > 0 bytes and no NUL may stand behind. */
static size_t utf8_at(const char *p, size_t n)
{
	char padded[5] = {0};
	memcpy(padded, p, SL_MIN(n, 4));
	return sl__utf8_length(padded);
}

size_t sl__http_first_line(char *out, size_t cap, const char *text, size_t len)
{
	size_t n = 0, i = 0;
	while (i < len && (unsigned char)text[i] <= ' ')
		i++;
	while (i < len && text[i] != '\n' && text[i] != '\r') {
		size_t step = utf8_at(text + i, len - i);
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

static bool read_seconds(const char *value, int64_t *out)
{
	int64_t n = 0;
	if (*value == '\0')
		return false;
	for (; *value >= '0' && *value <= '9'; value++)
		n = n < SECONDS_MAX / 10 ? n * 10 + (*value - '0') : SECONDS_MAX;
	*out = SL_MIN(n, SECONDS_MAX);
	return *value == '\0';
}

bool sl__http_retry_after(const char *value, int64_t now_ms, int64_t *out_ms)
{
	int64_t seconds;
	if (read_seconds(value, &seconds)) {
		*out_ms = seconds * 1000;
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
