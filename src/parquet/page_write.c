/* SPDX-License-Identifier: Apache-2.0 */
/* A page: compressed, with its header before it, handed to the callback. */
#include <zstd_errors.h>

#include "parquet/crc32.h"
#include "parquet/thrift.h"
#include "parquet/writer.h"

#define HEADER_ROOM 64 /* before the compressed page, so that both go out in one piece; a header has about 30 bytes */

int sl__writer_emit(sl_parquet_writer *w, const void *bytes, size_t n, struct sl_err *err)
{
	int rc = w->write(bytes, n, err, w->write_ctx);

	if (rc == 0)
		w->offset += n;
	return rc;
}

/* Level 3 looks for matches of five bytes. In hexadecimal, base 32 and the like these are everywhere, by chance, and
 * cost more to encode than they save: with matches of seven bytes and more such a page is smaller, and packed nine times
 * as fast (measured: 64 hexadecimal digits, 105 and 916 MB/s). Which is better is tried with the beginning of a chunk.
 */
#define LONG_MATCH 7
#define SAMPLE_BYTES (64u << 10)

static size_t pack_sample(sl_parquet_writer *w, int min_match)
{
	(void)ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_minMatch, min_match);
	return ZSTD_compress2(w->zstd, w->packed.data, w->packed.cap, w->page.data, SAMPLE_BYTES);
}

void sl__page_new_chunk(sl_parquet_writer *w)
{
	w->match_chosen = false;
	if (w->zstd != NULL)
		(void)ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_minMatch, 0);
}

/* The page as the file holds it, into w->packed after HEADER_ROOM. */
static int pack_page(sl_parquet_writer *w, size_t *n, struct sl_err *err)
{
	size_t bound = w->zstd_level != 0 ? ZSTD_compressBound(w->page.len) : w->page.len;

	sl__buf_clear(&w->packed);
	if (sl__buf_reserve(&w->packed, HEADER_ROOM + bound) != 0)
		return sl_err_set(err, SL_ENOMEM, "parquet: no memory for a page of %zu bytes", bound);
	if (w->zstd_level == 0) {
		if (w->page.len > 0)
			memcpy(w->packed.data + HEADER_ROOM, w->page.data, w->page.len);
		*n = w->page.len;
		return 0;
	}
	/* Choose the length of matches once per chunk, at its first page that is large enough to decide. */
	if (!w->match_chosen && w->page.len >= 2 * SAMPLE_BYTES) {
		size_t standard = pack_sample(w, 0), longer = pack_sample(w, LONG_MATCH);
		if (ZSTD_isError(longer) || (!ZSTD_isError(standard) && standard < longer))
			(void)ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_minMatch, 0);
		w->match_chosen = true;
	}
	*n = ZSTD_compress2(w->zstd, w->packed.data + HEADER_ROOM, bound, w->page.data, w->page.len);
	if (ZSTD_isError(*n))
		return sl_err_set(err, ZSTD_getErrorCode(*n) == ZSTD_error_memory_allocation ? SL_ENOMEM : SL_EINTERNAL,
				  "parquet: zstd: %s", ZSTD_getErrorName(*n));
	return 0;
}

int sl__page_write(sl_parquet_writer *w, struct sl__chunk *c, struct sl__page_out page, struct sl_err *err)
{
	struct sl__thrift_out t = {.buf = &w->header};
	size_t packed = 0;

	if (w->page.failed != 0)
		return sl_err_set(err, SL_ENOMEM, "parquet: no memory for a page");
	if (w->page.len > INT32_MAX)
		return sl_err_set(err, SL_ETOOBIG, "parquet: a page of %zu bytes", w->page.len);
	int rc = pack_page(w, &packed, err);
	if (rc != 0)
		return rc;

	/* PageHeader */
	sl__buf_clear(&w->header);
	sl__thrift_i32(&t, 1, (int32_t)page.kind);
	sl__thrift_i32(&t, 2, (int32_t)w->page.len);
	sl__thrift_i32(&t, 3, (int32_t)packed);
	sl__thrift_i32(&t, 4, (int32_t)sl__crc32(0, w->packed.data + HEADER_ROOM, packed));
	sl__thrift_begin(&t, page.kind == PQ_DATA_PAGE ? 5 : 7);
	sl__thrift_i32(&t, 1, (int32_t)page.values);
	sl__thrift_i32(&t, 2, (int32_t)page.encoding);
	if (page.kind == PQ_DATA_PAGE) {
		sl__thrift_i32(&t, 3, PQ_RLE);
		sl__thrift_i32(&t, 4, PQ_RLE);
	}
	sl__thrift_end(&t);
	(void)sl__buf_append(&w->header, "", 1);
	if (w->header.failed != 0)
		return sl_err_set(err, SL_ENOMEM, "parquet: no memory for a page's header");

	size_t header = w->header.len;
	assert(header <= HEADER_ROOM);
	if (page.kind == PQ_DICTIONARY_PAGE)
		c->dictionary_offset = (int64_t)w->offset;
	else if (c->data_offset < 0)
		c->data_offset = (int64_t)w->offset;
	c->bytes += (int64_t)(header + packed);
	c->uncompressed_bytes += (int64_t)(header + w->page.len);
	c->encodings |= 1u << page.encoding;
	char *from = w->packed.data + HEADER_ROOM - header;
	memcpy(from, w->header.data, header);
	return sl__writer_emit(w, from, header + packed, err);
}
