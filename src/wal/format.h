/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a log segment (docs/formats/wal.md): header, records, file names. Pure functions over memory.
 */
#ifndef SL_WAL_FORMAT_H
#define SL_WAL_FORMAT_H

#include "base/base.h"
#include <sluice/wal.h>

#define WAL_MAGIC "ARWAL001"
#define WAL_HEADER_BYTES 16u
#define WAL_FRAME_BYTES 32u /* Length 4, sequence 8, status 1, reserved 3, timestamp 8, CRC 8 */
#define WAL_BODY_OFFSET 24u /* of the payload in a record */
#define WAL_MAX_RECORD (16u * 1024 * 1024)
#define WAL_MAX_SEQUENCE ((uint64_t)INT64_MAX - 1)
#define WAL_MIN_LENGTH 28u                   /* the Length field of an empty record */
#define WAL_MARK_BYTES (WAL_FRAME_BYTES + 8) /* a status record over a range */
#define WAL_RENEWAL_BYTES (WAL_FRAME_BYTES + 4)

/* After those of enum sl_wal_status: records that speak of the log itself. */
enum wal_log_status {
	WAL_STATUS_RENEWAL = 4, /* from this sequence on, records are sent under the incarnation in the payload */
	WAL_STATUS_CLOSED = 5   /* the log was closed cleanly after this sequence: everything before it was complete */
};

struct wal_header {
	uint32_t version;     /* 1, or 2 with sealed payloads */
	uint32_t incarnation; /* 24 bits; 0: a foreign log */
};

enum wal_header_state {
	WAL_HEADER_OK,
	WAL_HEADER_REPAIRABLE,  /* one bit is wrong; *out is what it must have been */
	WAL_HEADER_UNSUPPORTED, /* a sound header of a later version */
	WAL_HEADER_BAD          /* not a header, or damaged beyond one bit */
};

uint8_t sl__wal_crc8(const uint8_t *data, size_t n);
void sl__wal_header_encode(uint8_t out[WAL_HEADER_BYTES], struct wal_header h);
enum wal_header_state sl__wal_header_decode(const uint8_t in[WAL_HEADER_BYTES], struct wal_header *out);
/* A new incarnation: random, 24 bits, neither it nor the header's CRC-8 zero. 0 or a negative errno. */
int sl__wal_draw_incarnation(const struct sl_env *env, uint32_t version, uint32_t *out);

/* A record as it lies in memory. */
struct wal_record {
	uint64_t sequence;
	uint64_t first; /* of a status record: the range first..sequence it speaks of */
	int64_t timestamp_ms;
	uint64_t crc;
	const uint8_t *payload;
	uint32_t payload_len;
	uint32_t total; /* bytes in the file: payload + 32 */
	uint8_t status;
};

enum wal_check {
	WAL_VALID,
	WAL_CUT_SHORT,  /* the length is in range, the file ends before it */
	WAL_BAD_LENGTH, /* out of range, or past the end of the file */
	WAL_BAD_STATUS,
	WAL_BAD_RESERVED,
	WAL_BAD_SEQUENCE, /* zero, negative, or a range that ends before it begins */
	WAL_BAD_CRC
};
const char *sl__wal_check_text(enum wal_check check);

/* The Length field alone: in range for a record that has avail bytes? 0 when not; else the record's total bytes. */
uint32_t sl__wal_total(const uint8_t *p, uint64_t avail);
/* The fixed fields of a record whose first WAL_BODY_OFFSET bytes are at p; not the CRC. */
enum wal_check sl__wal_check_fields(const uint8_t *p);
/* A whole record of total bytes at p. Fills *out when valid; *actual_crc (may be NULL) whenever the CRC was computed.
 */
enum wal_check sl__wal_check(const uint8_t *p, uint32_t total, struct wal_record *out, uint64_t *actual_crc);

/* Write all of a record but the payload and CRC, then seal: payload must be at out + WAL_BODY_OFFSET by then. */
void sl__wal_begin(uint8_t *out, uint64_t sequence, uint8_t status, int64_t timestamp_ms, uint32_t payload_len);
void sl__wal_seal(uint8_t *out, uint32_t payload_len);
/* Does it change the status of a range of records? */
static inline bool sl__wal_is_mark(uint8_t status)
{
	return status == SL_WAL_SENT || status == SL_WAL_FAILED;
}
/* Under which incarnation records are sent, and from which sequence on. */
struct wal_renewal {
	uint32_t incarnation; /* 0: none, the header's for all */
	uint64_t first;
};
uint32_t sl__wal_encode_renewal(uint8_t *out, struct wal_renewal renewal, int64_t timestamp_ms);
/* A status record over first..last; returns its size (at most WAL_MARK_BYTES). */
uint32_t sl__wal_encode_mark(uint8_t *out, uint64_t first, uint64_t last, uint8_t status, int64_t timestamp_ms);

/* ---- names ---- */
/* id matches [A-Za-z0-9_-][A-Za-z0-9._-]*, has no ".wal", and fits a file name. */
bool sl__wal_id_valid(const char *id);
enum wal_name_kind { WAL_NAME_OTHER, WAL_NAME_ACTIVE, WAL_NAME_SEALED, WAL_NAME_TEMP };
/* What a file name (no folder) is. *id_len is the length of the id in front; *first the number of a sealed segment. */
enum wal_name_kind sl__wal_name(const char *name, size_t *id_len, uint64_t *first);
/* Is this the name of an archive: <segment>.zst, or where that was taken <segment>[.<incarnation>][-N].zst? */
bool sl__wal_archive_name(const char *name, size_t *id_len);
/* Of an archive that is being written: .<archive>.tmp-<hexadecimal>. *id_at is where the id begins. */
bool sl__wal_archive_temp_name(const char *name, const char **id_at, size_t *id_len);
/* Is it what a recovery quarantined: <segment>.torn-<offset>, .damaged-<offset> or .old-<incarnation>, perhaps with .N?
 */
bool sl__wal_quarantine_name(const char *name);

#endif
