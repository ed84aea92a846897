/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A segment is a 16-byte header and records, little-endian, and ends where all remaining bytes are zero.
 *
 *   header   "ARWAL001" | version u32 | incarnation 3 bytes | CRC-8 over the fifteen bytes before it
 *   record   Length u32 = payload + 28 | sequence i64 | status u8 | 0 0 0 | timestamp i64 | payload | CRC-64/NVME
 *
 * The CRC covers everything between Length and itself. A wrong Length makes the CRC wrong, so every single-bit error in
 * a record is noticed. A foreign log has four zero bytes in place of incarnation and CRC-8.
 */
#include "wal/format.h"

#include "base/crc64nvme.h"
#include "base/env.h"

uint8_t sl__wal_crc8(const uint8_t *data, size_t n)
{
	uint8_t crc = 0;
	for (size_t i = 0; i < n; i++) {
		crc ^= data[i];
		for (int bit = 0; bit < 8; bit++)
			crc = (uint8_t)(crc & 0x80 ? (crc << 1) ^ 0x07 : crc << 1);
	}
	return crc;
}

void sl__wal_header_encode(uint8_t out[WAL_HEADER_BYTES], struct wal_header h)
{
	memcpy(out, WAL_MAGIC, 8);
	sl__put32(out + 8, h.version);
	sl__put32(out + 12, h.incarnation & 0xFFFFFF);
	if (h.incarnation != 0)
		out[15] = sl__wal_crc8(out, 15);
}

/* Sound: the magic, and reserved bytes that are all zero or carry a right CRC-8. The version may be any. A CRC-8 of
 * zero can be right: an incarnation is drawn for the version that the log begins with, and stays when a key comes
 * later. No incarnation of a single bit has it, so one flip does not lead from or to a foreign header. */
static bool header_sound(const uint8_t in[WAL_HEADER_BYTES], struct wal_header *out)
{
	if (memcmp(in, WAL_MAGIC, 8) != 0)
		return false;
	out->version = sl__get32(in + 8);
	out->incarnation = sl__get32(in + 12) & 0xFFFFFF;
	if (out->incarnation == 0 && in[15] == 0)
		return true;
	return out->incarnation != 0 && in[15] == sl__wal_crc8(in, 15);
}

static bool header_known(const uint8_t in[WAL_HEADER_BYTES], struct wal_header *out)
{
	return header_sound(in, out) && (out->version == 1 || out->version == 2);
}

enum wal_header_state sl__wal_header_decode(const uint8_t in[WAL_HEADER_BYTES], struct wal_header *out)
{
	struct wal_header h;
	if (header_known(in, &h)) {
		*out = h;
		return WAL_HEADER_OK;
	}
	/* A sound header of another version with its CRC-8 is a later format, not a flipped bit. */
	if (header_sound(in, &h) && h.incarnation != 0)
		return WAL_HEADER_UNSUPPORTED;
	/* Which single bit makes it right? A foreign header has no CRC-8 and wins over a chance match of one; of two
	 * versions that it could have had, the plain one. */
	struct wal_header best = {0, 0};
	for (unsigned bit = 0; bit < WAL_HEADER_BYTES * 8; bit++) {
		uint8_t fixed[WAL_HEADER_BYTES];
		memcpy(fixed, in, sizeof(fixed));
		fixed[bit / 8] ^= (uint8_t)(1u << (bit % 8));
		if (!header_known(fixed, &h))
			continue;
		bool better = h.incarnation == 0 && (best.incarnation != 0 || h.version < best.version);
		if (best.version == 0 || better)
			best = h;
	}
	if (best.version == 0)
		return header_sound(in, &h) ? WAL_HEADER_UNSUPPORTED : WAL_HEADER_BAD;
	*out = best;
	return WAL_HEADER_REPAIRABLE;
}

int sl__wal_draw_incarnation(const struct sl_env *env, uint32_t version, uint32_t *out)
{
	for (;;) {
		uint8_t bytes[4] = {0}, header[WAL_HEADER_BYTES];
		int rc = env->rand->fill(bytes, 3, env->rand_ctx);
		if (rc < 0)
			return rc;
		struct wal_header h = {.version = version, .incarnation = sl__get32(bytes)};
		if (h.incarnation == 0)
			continue;
		sl__wal_header_encode(header, h);
		if (header[15] == 0)
			continue;
		*out = h.incarnation;
		return 0;
	}
}

const char *sl__wal_check_text(enum wal_check check)
{
	static const char *const texts[] = {
		"valid",
		"cut off by the end of the file",
		"length out of range",
		"unknown status",
		"reserved bytes are not zero",
		"sequence out of range",
		"checksum mismatch",
	};
	return texts[check];
}

uint32_t sl__wal_total(const uint8_t *p, uint64_t avail)
{
	uint32_t length = sl__get32(p);
	if (length < WAL_MIN_LENGTH || length > WAL_MAX_RECORD - 4 || (uint64_t)length + 4 > avail)
		return 0;
	return length + 4;
}

enum wal_check sl__wal_check_fields(const uint8_t *p)
{
	uint8_t status = p[12];
	if (status < SL_WAL_PENDING || status > WAL_STATUS_CLOSED)
		return WAL_BAD_STATUS;
	if ((p[13] | p[14] | p[15]) != 0)
		return WAL_BAD_RESERVED;
	int64_t sequence = (int64_t)sl__get64(p + 4);
	if (sequence < 1 || sequence == INT64_MAX)
		return WAL_BAD_SEQUENCE;
	uint32_t payload_len = sl__get32(p) - WAL_MIN_LENGTH;
	if (sl__wal_is_mark(status) && payload_len != 0 && payload_len != 8)
		return WAL_BAD_LENGTH;
	if ((status == WAL_STATUS_RENEWAL && payload_len != 4) || (status == WAL_STATUS_CLOSED && payload_len != 0))
		return WAL_BAD_LENGTH;
	return WAL_VALID;
}

enum wal_check sl__wal_check(const uint8_t *p, uint32_t total, struct wal_record *out, uint64_t *actual_crc)
{
	enum wal_check check = sl__wal_check_fields(p);
	uint64_t actual = sl__crc64nvme(0, p + 4, total - 12);
	if (actual_crc != NULL)
		*actual_crc = actual;
	if (check != WAL_VALID)
		return check;
	uint64_t stored = sl__get64(p + total - 8);
	if (actual != stored)
		return WAL_BAD_CRC;
	*out = (struct wal_record){.sequence = sl__get64(p + 4),
				   .timestamp_ms = (int64_t)sl__get64(p + 16),
				   .crc = stored,
				   .payload = p + WAL_BODY_OFFSET,
				   .payload_len = total - WAL_FRAME_BYTES,
				   .total = total,
				   .status = p[12]};
	out->first = out->sequence;
	if (sl__wal_is_mark(out->status) && out->payload_len == 8)
		out->first = sl__get64(out->payload);
	if (out->first < 1 || out->first > out->sequence)
		return WAL_BAD_SEQUENCE;
	return WAL_VALID;
}

void sl__wal_begin(uint8_t *out, uint64_t sequence, uint8_t status, int64_t timestamp_ms, uint32_t payload_len)
{
	sl__put32(out, payload_len + WAL_MIN_LENGTH);
	sl__put64(out + 4, sequence);
	sl__put32(out + 12, status); /* and the three reserved bytes */
	sl__put64(out + 16, (uint64_t)timestamp_ms);
}

void sl__wal_seal(uint8_t *out, uint32_t payload_len)
{
	uint32_t total = payload_len + WAL_FRAME_BYTES;
	sl__put64(out + total - 8, sl__crc64nvme(0, out + 4, total - 12));
}

uint32_t sl__wal_encode_mark(uint8_t *out, uint64_t first, uint64_t last, uint8_t status, int64_t timestamp_ms)
{
	uint32_t payload_len = first == last ? 0 : 8;
	sl__wal_begin(out, last, status, timestamp_ms, payload_len);
	if (payload_len != 0)
		sl__put64(out + WAL_BODY_OFFSET, first);
	sl__wal_seal(out, payload_len);
	return payload_len + WAL_FRAME_BYTES;
}

uint32_t sl__wal_encode_renewal(uint8_t *out, struct wal_renewal renewal, int64_t timestamp_ms)
{
	sl__wal_begin(out, renewal.first, WAL_STATUS_RENEWAL, timestamp_ms, 4);
	sl__put32(out + WAL_BODY_OFFSET, renewal.incarnation);
	sl__wal_seal(out, 4);
	return WAL_RENEWAL_BYTES;
}

static bool id_valid_n(const char *id, size_t n)
{
	/* Room for ".wal.", 20 digits, an incarnation and ".zst" within the 255 bytes of a file name. */
	if (n == 0 || n > 192)
		return false;
	for (size_t i = 0; i < n; i++) {
		char c = id[i];
		bool alnum = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
		if (!alnum && c != '_' && c != '-' && (c != '.' || i == 0))
			return false;
	}
	return memmem(id, n, ".wal", 4) == NULL;
}

bool sl__wal_id_valid(const char *id)
{
	return id_valid_n(id, strlen(id));
}

enum wal_name_kind sl__wal_name(const char *name, size_t *id_len, uint64_t *first)
{
	const char *dot = strstr(name, ".wal");
	if (dot == NULL || !id_valid_n(name, (size_t)(dot - name)))
		return WAL_NAME_OTHER;
	*id_len = (size_t)(dot - name);
	const char *rest = dot + 4;
	if (*rest == '\0')
		return WAL_NAME_ACTIVE;
	if (strncmp(rest, ".tmp-", 5) == 0)
		return WAL_NAME_TEMP;
	if (*rest++ != '.' || *rest < '0' || *rest > '9')
		return WAL_NAME_OTHER;
	uint64_t n = 0;
	for (; *rest >= '0' && *rest <= '9'; rest++)
		if (__builtin_mul_overflow(n, 10u, &n) || __builtin_add_overflow(n, (uint64_t)(*rest - '0'), &n))
			return WAL_NAME_OTHER;
	if (*rest != '\0' || n == 0)
		return WAL_NAME_OTHER;
	*first = n;
	return WAL_NAME_SEALED;
}

/* ---- archives and quarantined files ---- */

/* Is name, up to `end`, that of an archive: <id>.wal[.<digits>][.<6 hexadecimal>][-N].zst? */
static bool is_archive_name(const char *name, const char *end, size_t *id_len)
{
	const char *p = strstr(name, ".wal");
	if (p == NULL || p + 4 > end || !id_valid_n(name, (size_t)(p - name)))
		return false;
	*id_len = (size_t)(p - name);
	p += 4;
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

bool sl__wal_archive_name(const char *name, size_t *id_len)
{
	return is_archive_name(name, name + strlen(name), id_len);
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
	return is_archive_name(name + 1, tail + 4, id_len);
}

bool sl__wal_quarantine_name(const char *name)
{
	static const char *const kinds[] = {".torn-", ".damaged-", ".old-"};
	static const char digits[] = "0123456789";
	const char *p = strstr(name, ".wal");
	if (p == NULL || !id_valid_n(name, (size_t)(p - name)))
		return false;
	p += 4;
	if (*p == '.' && strspn(p + 1, digits) > 0) /* of a sealed segment */
		p += 1 + strspn(p + 1, digits);
	size_t k = 0;
	while (k < SL_COUNT(kinds) && strncmp(p, kinds[k], strlen(kinds[k])) != 0)
		k++;
	if (k == SL_COUNT(kinds))
		return false;
	p += strlen(kinds[k]);
	size_t n = strspn(p, k == 2 ? "0123456789abcdef" : digits);
	p += n;
	if (*p == '.' && strspn(p + 1, digits) > 0)
		p += 1 + strspn(p + 1, digits);
	return n > 0 && *p == '\0';
}
