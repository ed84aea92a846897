/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a dead-letter file; docs/formats/dead_letter.md is the specification.
 *
 * Every record begins with the file's salt, 64 random bits that the writer of an item cannot know. So an item that
 * holds the image of a record, by chance or on purpose, is never taken for one when the way past damage is searched.
 */
#include "flow/dead_letter.h"

#include "base/crc64nvme.h"

static const uint8_t magic[8] = {'S', 'L', 'D', 'L', 'Q', '0', '0', '1'};

static void put16(uint8_t *p, size_t v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
}

static size_t get16(const uint8_t *p)
{
	return (size_t)p[0] | (size_t)p[1] << 8;
}

/* ---- header: two copies of magic, version, zero, first id, salt, CRC ---- */

void sl__dl_put_header(uint8_t out[SL__DL_HEADER], uint64_t first_id, uint64_t salt)
{
	memcpy(out, magic, sizeof(magic));
	sl__put32(out + 8, SL__DL_VERSION);
	sl__put32(out + 12, 0);
	sl__put64(out + 16, first_id);
	sl__put64(out + 24, salt);
	sl__put64(out + 32, sl__crc64nvme(0, out, 32));
	memcpy(out + SL__DL_HEADER_COPY, out, SL__DL_HEADER_COPY);
}

static int get_copy(const uint8_t *p, uint64_t first_id, uint64_t *salt)
{
	if (memcmp(p, magic, sizeof(magic)) != 0 || sl__get64(p + 32) != sl__crc64nvme(0, p, 32))
		return SL_ECORRUPT;
	if (sl__get32(p + 8) != SL__DL_VERSION || sl__get32(p + 12) != 0)
		return SL_EUNSUPPORTED;
	if (sl__get64(p + 16) != first_id)
		return SL_EDATA;
	*salt = sl__get64(p + 24);
	return 0;
}

int sl__dl_get_header(const uint8_t *p, size_t n, uint64_t first_id, uint64_t *salt)
{
	int rc = n >= SL__DL_HEADER_COPY ? get_copy(p, first_id, salt) : SL_ECORRUPT;
	if (rc == SL_ECORRUPT && n >= SL__DL_HEADER)
		rc = get_copy(p + SL__DL_HEADER_COPY, first_id, salt);
	return rc;
}

/* ---- frames ---- */

static uint32_t frame_check(const uint8_t *p)
{
	return (uint32_t)sl__crc64nvme(0, p, 24);
}

static void put_frame(uint8_t *p, uint64_t salt, enum sl__dl_type type, uint64_t id, size_t length)
{
	sl__put64(p, salt);
	sl__put32(p + 8, (uint32_t)length);
	sl__put32(p + 12, (uint32_t)type);
	sl__put64(p + 16, id);
	sl__put32(p + 24, frame_check(p));
	sl__put32(p + 28, 0);
}

bool sl__dl_get_frame(const uint8_t *p, struct sl__dl_frame *out)
{
	uint32_t type = sl__get32(p + 12), length = sl__get32(p + 8);
	bool plausible = (type == SL__DL_LETTER && length >= SL__DL_LETTER_MIN) ||
			 (type == SL__DL_ACKED && length == SL__DL_ACK) ||
			 (type == SL__DL_CLOSED && length == SL__DL_CLOSE);
	if (!plausible || sl__get32(p + 28) != 0 || sl__get32(p + 24) != frame_check(p))
		return false;
	*out = (struct sl__dl_frame){
		.salt = sl__get64(p), .length = length, .type = (enum sl__dl_type)type, .id = sl__get64(p + 16)};
	return true;
}

static void put_crc(uint8_t *p, size_t length)
{
	sl__put64(p + length - 8, sl__crc64nvme(0, p, length - 8));
}

bool sl__dl_whole(const uint8_t *p, const struct sl__dl_frame *frame)
{
	return sl__get64(p + frame->length - 8) == sl__crc64nvme(0, p, frame->length - 8);
}

/* ---- acknowledgements ---- */

void sl__dl_put_ack(uint8_t out[SL__DL_ACK], uint64_t salt, uint64_t first, uint64_t last, int64_t now_ms)
{
	put_frame(out, salt, SL__DL_ACKED, first, SL__DL_ACK);
	sl__put64(out + 32, last);
	sl__put64(out + 40, (uint64_t)now_ms);
	put_crc(out, SL__DL_ACK);
}

/* ---- close records ---- */

void sl__dl_put_close(uint8_t out[SL__DL_CLOSE], uint64_t salt, uint64_t next_id)
{
	put_frame(out, salt, SL__DL_CLOSED, next_id, SL__DL_CLOSE);
	put_crc(out, SL__DL_CLOSE);
}

/* ---- letters ---- */

static const char *text(const char *s)
{
	return s != NULL ? s : "";
}

int sl__dl_measure(const struct sl_dlq_letter *letter, struct sl__dl_sizes *out, struct sl_err *err)
{
	size_t source = strnlen(text(letter->source), SL__DL_MAX_SOURCE + 1);
	size_t target = strnlen(text(letter->target), SL__DL_MAX_TARGET + 1);
	if (source > SL__DL_MAX_SOURCE)
		return sl_err_set(err, SL_EINVAL, "source: longer than %d bytes", SL__DL_MAX_SOURCE);
	if (target > SL__DL_MAX_TARGET)
		return sl_err_set(err, SL_EINVAL, "target: longer than %d bytes", SL__DL_MAX_TARGET);
	if ((unsigned)letter->error_class > SL_CLASS_FATAL)
		return sl_err_set(err, SL_EINVAL, "error_class: %d is not an sl_err_class", (int)letter->error_class);
	if ((unsigned)letter->encoding > SL_DLQ_SEALED)
		return sl_err_set(err, SL_EINVAL, "encoding: %d is not an sl_dlq_encoding", (int)letter->encoding);
	if (letter->item == NULL && letter->item_len > 0)
		return sl_err_set(err, SL_EINVAL, "item: NULL with a length");
	if (letter->item_len > SL__DL_MAX_ITEM)
		return sl_err_set(err, SL_ETOOBIG, "item: %zu bytes are more than the maximum of %zu", letter->item_len,
				  SL__DL_MAX_ITEM);
	/* A long error is cut before a UTF-8 character that would be torn. */
	const char *why = text(letter->error);
	size_t error = strnlen(why, SL__DL_MAX_ERROR + 1);
	if (error > SL__DL_MAX_ERROR) {
		error = SL__DL_MAX_ERROR;
		while (SL__DL_MAX_ERROR - error < 3 && ((unsigned char)why[error] & 0xC0) == 0x80)
			error--;
	}
	*out = (struct sl__dl_sizes){.source = source, .error = error, .target = target, .item = letter->item_len};
	out->total = SL__DL_LETTER_MIN + out->source + out->error + out->target + out->item;
	return 0;
}

static uint8_t *put_text(uint8_t *p, const char *s, size_t n)
{
	memcpy(p, s, n);
	p[n] = '\0';
	return p + n + 1;
}

void sl__dl_put_letter(uint8_t *out, uint64_t salt, uint64_t id, const struct sl_dlq_letter *letter,
		       const struct sl__dl_sizes *sizes)
{
	put_frame(out, salt, SL__DL_LETTER, id, sizes->total);
	sl__put64(out + 32, letter->position);
	sl__put64(out + 40, (uint64_t)letter->first_failed_ms);
	sl__put64(out + 48, (uint64_t)letter->last_failed_ms);
	sl__put32(out + 56, (uint32_t)letter->code);
	sl__put32(out + 60, letter->attempts);
	put16(out + 64, (size_t)letter->error_class);
	put16(out + 66, sizes->source);
	put16(out + 68, sizes->error);
	put16(out + 70, sizes->target);
	sl__put32(out + 72, (uint32_t)sizes->item);
	sl__put32(out + 76, (uint32_t)letter->encoding);
	uint8_t *p = put_text(out + SL__DL_LETTER_FIXED, text(letter->source), sizes->source);
	p = put_text(p, text(letter->error), sizes->error);
	p = put_text(p, text(letter->target), sizes->target);
	if (sizes->item > 0)
		memcpy(p, letter->item, sizes->item);
	put_crc(out, sizes->total);
}

bool sl__dl_get_letter(const uint8_t *p, const struct sl__dl_frame *frame, struct sl_dlq_letter *out)
{
	size_t source = get16(p + 66), error = get16(p + 68), target = get16(p + 70), item = sl__get32(p + 72);
	uint32_t encoding = sl__get32(p + 76);
	if (SL__DL_LETTER_MIN + source + error + target + item != frame->length || encoding > SL_DLQ_SEALED)
		return false;
	const uint8_t *s = p + SL__DL_LETTER_FIXED, *e = s + source + 1, *t = e + error + 1, *i = t + target + 1;
	size_t error_class = get16(p + 64);
	if (e[-1] != '\0' || t[-1] != '\0' || i[-1] != '\0' || error_class > SL_CLASS_FATAL)
		return false;
	*out = (struct sl_dlq_letter){SL_DLQ_LETTER_INIT,
				      .id = frame->id,
				      .source = (const char *)s,
				      .position = sl__get64(p + 32),
				      .error = (const char *)e,
				      .code = (int)sl__get32(p + 56),
				      .error_class = (enum sl_err_class)error_class,
				      .attempts = sl__get32(p + 60),
				      .first_failed_ms = (int64_t)sl__get64(p + 40),
				      .last_failed_ms = (int64_t)sl__get64(p + 48),
				      .target = (const char *)t,
				      .item = i,
				      .item_len = item,
				      .encoding = (enum sl_dlq_encoding)encoding};
	return true;
}
