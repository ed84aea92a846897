/* SPDX-License-Identifier: Apache-2.0 */
/* Names that rotations give to files. */
#include <string.h>

#include <sluice/adapter/io.h>

/* Digits, and what stands between them in dates and numbers. */
static bool is_stamp(const char *text, size_t n)
{
	bool digits = false;
	for (size_t i = 0; i < n; i++) {
		bool digit = text[i] >= '0' && text[i] <= '9';
		digits = digits || digit;
		if (!digit && strchr(".-_:+TZ", text[i]) == NULL)
			return false;
	}
	return digits;
}

static bool is_suffix(const char *text)
{
	static const char *const words[] = {".old", ".bak", ".prev", ".backup", "~"};
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcmp(text, words[i]) == 0)
			return true;
	return strchr(".-_", text[0]) != NULL && is_stamp(text, strlen(text));
}

bool sl_is_rotated_name(const char *base, const char *name)
{
	const char *dot = strrchr(base, '.');
	size_t n = strlen(base), stem = dot != NULL ? (size_t)(dot - base) : 0, ending = n - stem, len = strlen(name);
	if (strncmp(name, base, n) == 0 && name[n] != '\0')
		return is_suffix(name + n);
	if (stem == 0 || len <= n || strncmp(name, base, stem) != 0 || strcmp(name + len - ending, dot) != 0)
		return false;
	return strchr(".-_", name[stem]) != NULL && is_stamp(name + stem, len - ending - stem);
}
