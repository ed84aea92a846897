/* SPDX-License-Identifier: Apache-2.0 */
/* A page: its header, its CRC, and its bytes without compression. */
#include "parquet/crc32.h"
#include "parquet/reader.h"
#include "parquet/thrift.h"

struct header {
	int64_t kind, bytes, packed, crc, values, encoding, levels;
	bool has_crc, has_body;
};

static void read_header(struct sl__thrift_in *t, struct header *h)
{
	struct sl__thrift_field f;
	int64_t *numbers[] = {[1] = &h->kind, [2] = &h->bytes, [3] = &h->packed, [4] = &h->crc};

	*h = (struct header){.kind = -1, .bytes = -1, .packed = -1, .values = -1, .encoding = -1, .levels = PQ_RLE};
	while ((f = sl__thrift_next(t)).type != THRIFT_STOP) {
		if (f.id >= 1 && f.id <= 4) {
			*numbers[f.id] = sl__thrift_get_int(t, f.type);
			h->has_crc = h->has_crc || f.id == 4;
			continue;
		}
		if (!(f.id == 5 && h->kind == PQ_DATA_PAGE) && !(f.id == 7 && h->kind == PQ_DICTIONARY_PAGE)) {
			sl__thrift_skip(t, f.type);
			continue;
		}
		/* DataPageHeader or DictionaryPageHeader: the first two fields are alike. */
		h->has_body = true;
		sl__thrift_enter(t, f.type);
		while ((f = sl__thrift_next(t)).type != THRIFT_STOP) {
			if (f.id == 1)
				h->values = sl__thrift_get_int(t, f.type);
			else if (f.id == 2)
				h->encoding = sl__thrift_get_int(t, f.type);
			else if (f.id == 3 && f.type == THRIFT_I32)
				h->levels = sl__thrift_get_int(t, f.type);
			else
				sl__thrift_skip(t, f.type);
		}
	}
}

int sl__page_next(struct sl__bytes_in *in, struct sl__page *p, const char **why)
{
	struct sl__thrift_in t = {.at = in->at, .end = in->end};
	struct header h;

	read_header(&t, &h);
	*why = NULL;
	if (t.bad != NULL) {
		*why = t.bad;
	} else if (h.kind == PQ_DATA_PAGE_V2) {
		*why = "a data page of version 2";
		return SL_EUNSUPPORTED;
	} else if (h.kind != PQ_DATA_PAGE && h.kind != PQ_DICTIONARY_PAGE && h.kind != PQ_INDEX_PAGE) {
		*why = "a page of an unknown kind";
	} else if (h.bytes < 0 || h.packed < 0 || h.packed > t.end - t.at) {
		*why = "a page's size is wrong";
	} else if (h.kind != PQ_INDEX_PAGE && (!h.has_body || h.values < 0 || h.encoding < 0 || h.encoding > 31)) {
		*why = "a page's header is incomplete";
	}
	if (*why != NULL)
		return SL_ECORRUPT;
	*p = (struct sl__page){.kind = (enum pq_page)h.kind,
			       .encoding = (enum pq_encoding)h.encoding,
			       .values = (size_t)h.values,
			       .bytes = (size_t)h.bytes,
			       .packed = (size_t)h.packed,
			       .data = (const char *)t.at};
	in->at = t.at + h.packed;
	if (h.has_crc && (uint32_t)h.crc != sl__crc32(0, p->data, p->packed)) {
		*why = "its CRC is wrong";
		return SL_ECORRUPT;
	}
	if (h.kind == PQ_DATA_PAGE && h.levels != PQ_RLE) {
		*why = "levels that are not RLE";
		return SL_EUNSUPPORTED;
	}
	return 0;
}

int sl__page_unpack(sl_parquet_reader *r, enum pq_codec codec, const struct sl__page *p, char *to, const char **why)
{
	if (codec == PQ_UNCOMPRESSED) {
		*why = "its sizes differ without compression";
		if (p->packed != p->bytes)
			return SL_ECORRUPT;
		if (p->bytes > 0)
			memcpy(to, p->data, p->bytes);
		return 0;
	}
	if (r->zstd == NULL && (r->zstd = ZSTD_createDCtx()) == NULL) {
		*why = "no memory for zstd";
		return SL_ENOMEM;
	}
	size_t n = ZSTD_decompressDCtx(r->zstd, to, p->bytes, p->data, p->packed);
	*why = ZSTD_isError(n) ? ZSTD_getErrorName(n) : "it is shorter than its header says";
	return ZSTD_isError(n) || n != p->bytes ? SL_ECORRUPT : 0;
}
