/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a spool.
 *
 * P1  A frame is valid when its kind is known, its length fits the kind, its padding is zero and its check is right for
 *     this attempt's salt. The first one that is not is the end: frames are written one after the other, so nothing of
 *     this attempt can come after it.
 * P2  The bytes of a frame of an encrypted spool are nonce | ciphertext | tag. Its check covers them as they are stored,
 *     so that P1 needs no key. A frame opens only at its own place in its own attempt.
 * P3  The header is rewritten in one write of less than a page, which no kill can tear.
 */
#include <errno.h>
#include <sodium.h>

#include "jobs/exec/spool.h"

#include "base/crc64nvme.h"

#define VERSION 1

static const uint8_t magic[8] = {'S', 'L', 'S', 'P', 'O', 'O', 'L', '1'};

void sl__spool_put_header(uint8_t out[SL__SPOOL_HEADER], const struct sl__spool_header *h)
{
	memset(out, 0, SL__SPOOL_HEADER);
	memcpy(out, magic, sizeof(magic));
	sl__put32(out + 8, VERSION);
	sl__put32(out + 12, h->salt);
	sl__put64(out + 16, h->job_id);
	sl__put32(out + 24, (uint32_t)h->attempt);
	sl__put32(out + 28, h->flags);
	memcpy(out + 32, h->claim.bytes, sizeof(h->claim.bytes));
	sl__put64(out + 48, h->sequence);
	sl__put32(out + 56, h->incarnation);
	sl__put64(out + 64, h->max_line_bytes);
	sl__put64(out + 72, h->resume.offset);
	for (size_t i = 0; i < SL__STREAMS; i++) {
		sl__put64(out + 80 + 8 * i, h->resume.position[i]);
		sl__put64(out + 104 + 8 * i, h->consumed[i]);
		sl__put64(out + 128 + 8 * i, h->known[i]);
	}
	sl__put64(out + 152, sl__crc64nvme(0, out, 152));
}

int sl__spool_get_header(const uint8_t in[SL__SPOOL_HEADER], struct sl__spool_header *out)
{
	if (memcmp(in, magic, sizeof(magic)) != 0 || sl__get64(in + 152) != sl__crc64nvme(0, in, 152))
		return SL_EDATA;
	if (sl__get32(in + 8) != VERSION)
		return SL_EUNSUPPORTED;
	struct sl__spool_header h = {.salt = sl__get32(in + 12),
				     .job_id = sl__get64(in + 16),
				     .attempt = (int32_t)sl__get32(in + 24),
				     .flags = sl__get32(in + 28),
				     .sequence = sl__get64(in + 48),
				     .incarnation = sl__get32(in + 56),
				     .max_line_bytes = sl__get64(in + 64),
				     .resume.offset = sl__get64(in + 72)};
	memcpy(h.claim.bytes, in + 32, sizeof(h.claim.bytes));
	for (size_t i = 0; i < SL__STREAMS; i++) {
		h.resume.position[i] = sl__get64(in + 80 + 8 * i);
		h.consumed[i] = sl__get64(in + 104 + 8 * i);
		h.known[i] = sl__get64(in + 128 + 8 * i);
	}
	if (h.resume.offset < SL__SPOOL_START || h.resume.offset > (uint64_t)1 << 62 || h.max_line_bytes == 0 ||
	    h.max_line_bytes > SL__LINE_MAX)
		return SL_EDATA;
	*out = h;
	return 0;
}

/* ---- frames ---- */

static uint32_t check_of(uint32_t salt, const uint8_t frame[SL__SPOOL_FRAME], const void *payload, size_t n)
{
	uint8_t seed[4];
	sl__put32(seed, salt);
	uint64_t crc = sl__crc64nvme(0, seed, sizeof(seed));
	crc = sl__crc64nvme(crc, frame + 4, SL__SPOOL_FRAME - 4);
	return (uint32_t)sl__crc64nvme(crc, payload, n);
}

void sl__spool_put_frame(uint8_t out[SL__SPOOL_FRAME], uint32_t salt, const struct sl__frame *frame)
{
	memset(out, 0, SL__SPOOL_FRAME);
	out[4] = (uint8_t)frame->kind;
	sl__put32(out + 8, (uint32_t)frame->len);
	sl__put64(out + 16, (uint64_t)frame->ts_ms);
	sl__put32(out, check_of(salt, out, frame->data, frame->len));
}

struct bound_to {
	uint8_t bytes[21];
};

/* P2. The associated data. */
static struct bound_to bind_frame(uint32_t salt, const struct sl__frame *frame)
{
	struct bound_to ad;
	sl__put32(ad.bytes, salt);
	sl__put64(ad.bytes + 4, frame->offset);
	sl__put64(ad.bytes + 12, (uint64_t)frame->ts_ms);
	ad.bytes[20] = (uint8_t)frame->kind;
	return ad;
}

_Static_assert(SL__SPOOL_NONCE == crypto_aead_xchacha20poly1305_ietf_NPUBBYTES, "a nonce");
_Static_assert(SL__SPOOL_SEAL == SL__SPOOL_NONCE + crypto_aead_xchacha20poly1305_ietf_ABYTES, "what sealing adds");

void sl__spool_seal(uint8_t *out, const uint8_t key[SL_WAL_KEY_BYTES], const uint8_t nonce[SL__SPOOL_NONCE],
		    uint32_t salt, const struct sl__frame *frame)
{
	const struct bound_to ad = bind_frame(salt, frame);
	memcpy(out, nonce, SL__SPOOL_NONCE);
	(void)crypto_aead_xchacha20poly1305_ietf_encrypt(out + SL__SPOOL_NONCE, NULL, frame->data, frame->len, ad.bytes,
							 sizeof(ad.bytes), NULL, nonce, key);
}

/* In place. */
static bool open_frame(const struct sl__spool_reader *r, uint8_t *sealed, struct sl__frame *frame)
{
	const struct bound_to ad = bind_frame(r->salt, frame);
	uint8_t *text = sealed + SL__SPOOL_NONCE;
	if (crypto_aead_xchacha20poly1305_ietf_decrypt(text, NULL, NULL, text, frame->len - SL__SPOOL_NONCE, ad.bytes,
						       sizeof(ad.bytes), sealed, r->key) != 0)
		return false;
	frame->data = text;
	frame->len -= SL__SPOOL_SEAL;
	frame->seal = SL__SPOOL_SEAL;
	return true;
}

/* Have n bytes from r->at on in the buffer, and as many more as are there. 1, 0 when there are less, or an errno. */
static int have(struct sl__spool_reader *r, size_t n)
{
	if (r->at >= r->have_at && r->at - r->have_at <= r->have && r->have - (r->at - r->have_at) >= n)
		return 1;
	size_t want = (size_t)SL_MIN(r->limit - r->at, (uint64_t)SL__SPOOL_BUF);
	if (want < n)
		return 0;
	ssize_t got = sl__pread_full(r->env, r->fd, r->buf, want, r->at);
	if (got < 0)
		return (int)got;
	r->have_at = r->at;
	r->have = (size_t)got;
	return r->have >= n;
}

int sl__spool_next(struct sl__spool_reader *r, struct sl__frame *out)
{
	if (r->at >= r->limit)
		return 0;
	int rc = have(r, SL__SPOOL_FRAME + 1);
	if (rc <= 0)
		return rc;
	/* P1: the length must fit the kind, and the padding be zero. */
	const uint8_t *head = r->buf + (r->at - r->have_at);
	size_t stored = sl__get32(head + 8), seal = r->key != NULL ? SL__SPOOL_SEAL : 0;
	if (stored < seal)
		return 0;
	size_t n = stored - seal;
	bool fits = false;
	switch (head[4]) {
	case SL__FRAME_STARTED:
		fits = n == 4;
		break;
	case SL__FRAME_STDOUT:
	case SL__FRAME_STDERR:
	case SL__FRAME_CONTROL:
		fits = n > 0 && n <= SL__SPOOL_CHUNK;
		break;
	case SL__FRAME_EXITED:
	case SL__FRAME_FAILED:
		fits = n == 8;
		break;
	}
	if (!fits || (head[5] | head[6] | head[7]) != 0 || sl__get32(head + 12) != 0)
		return 0;
	rc = have(r, SL__SPOOL_FRAME + stored);
	if (rc <= 0)
		return rc;
	uint8_t *frame = r->buf + (r->at - r->have_at);
	if (sl__get32(frame) != check_of(r->salt, frame, frame + SL__SPOOL_FRAME, stored))
		return 0;
	*out = (struct sl__frame){.kind = (enum sl__frame_kind)frame[4],
				  .offset = r->at,
				  .ts_ms = (int64_t)sl__get64(frame + 16),
				  .data = frame + SL__SPOOL_FRAME,
				  .len = stored};
	if (r->key != NULL && !open_frame(r, frame + SL__SPOOL_FRAME, out))
		return -EKEYREJECTED;
	r->at += SL__SPOOL_FRAME + stored;
	return 1;
}
