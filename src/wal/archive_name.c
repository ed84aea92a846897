/* SPDX-License-Identifier: Apache-2.0 */
/* The names of archives, their temporary files and quarantined files: parsing. */
#include "wal/archive.h"

#include "wal/format.h"

/* [.<digits>][.<6 hexadecimal>][-N].zst, up to `end`. */
static bool archive_suffix(const char *p, const char *end)
{
	size_t n = strspn(p + (*p == '.'), "0123456789");
	if (*p == '.' && n > 0 && (p[n + 1] == '.' || p[n + 1] == '-'))
		p += n + 1;
	if (*p == '.' && strspn(p + 1, "0123456789abcdef") == 6 && (p[7] == '.' || p[7] == '-'))
		p += 7;
	if (*p == '-') {
		n = strspn(p + 1, "0123456789");
		if (n == 0)
			return false;
		p += n + 1;
	}
	return end - p == 4 && strncmp(p, ".zst", 4) == 0;
}

static bool archive_name_n(const char *name, const char *end, size_t *id_len)
{
	const char *dot = strstr(name, ".wal");
	if (dot == NULL || dot + 4 > end)
		return false;
	char id[256];
	size_t n = (size_t)(dot - name);
	if (n >= sizeof(id))
		return false;
	memcpy(id, name, n);
	id[n] = '\0';
	*id_len = n;
	return sl__wal_id_valid(id) && archive_suffix(dot + 4, end);
}

bool sl__wal_archive_name(const char *name, size_t *id_len)
{
	return archive_name_n(name, name + strlen(name), id_len);
}

bool sl__wal_archive_temp_name(const char *name, const char **id_at, size_t *id_len)
{
	const char *tail = strstr(name, ".zst.tmp-");
	if (name[0] != '.' || tail == NULL)
		return false;
	const char *hex = tail + strlen(".zst.tmp-");
	if (*hex == '\0' || hex[strspn(hex, "0123456789abcdef")] != '\0')
		return false;
	*id_at = name + 1;
	return archive_name_n(name + 1, tail + 4, id_len);
}

static size_t digits(const char *p)
{
	return strspn(p, "0123456789");
}

bool sl__wal_quarantine_name(const char *name)
{
	static const char *const kinds[] = {".torn-", ".damaged-", ".old-"};
	const char *p = strstr(name, ".wal");
	char id[256];
	size_t n = p != NULL ? (size_t)(p - name) : sizeof(id);
	if (n >= sizeof(id))
		return false;
	memcpy(id, name, n);
	id[n] = '\0';
	p += 4;
	if (*p == '.' && digits(p + 1) > 0) /* of a sealed segment */
		p += 1 + digits(p + 1);
	size_t k = 0;
	while (k < SL_COUNT(kinds) && strncmp(p, kinds[k], strlen(kinds[k])) != 0)
		k++;
	if (k == SL_COUNT(kinds) || !sl__wal_id_valid(id))
		return false;
	p += strlen(kinds[k]);
	n = k == 2 ? strspn(p, "0123456789abcdef") : digits(p);
	p += n;
	if (*p == '.' && digits(p + 1) > 0)
		p += 1 + digits(p + 1);
	return n > 0 && *p == '\0';
}
